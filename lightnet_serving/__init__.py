"""Serving executables over HTTP: `lightnet serve` (docs/serve.md).

`protocol` has requests and replies as values, `signature` what a model takes and gives, `batching` the queue and who
runs calls, `repository` the models, `metrics` the counters, `app` the routes, `server` the process. Imports the
runtime; the packages of the extra `serve` inside of functions alone, so that lightnet-runtime has all of this.
"""
