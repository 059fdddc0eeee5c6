"""The front end for com.microsoft, ONNX Runtime's domain of what its optimiser fuses and its quantiser writes: a family
of handlers a file, each a row of `ONNX_OPS` in `lightnet/ir/registry.py`."""
