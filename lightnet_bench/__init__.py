"""Two compilations of a network side by side: how much longer one takes, with what confidence, and where
(`lightnet compare`); one pass on many networks (`--verdict`); and forms of kernels that are measured (`lightnet tune`).

`intervals` has the statistics, `rotation` the turns in which calls are timed, `sides` what is compared, `comparison`
all that there is to say of two sides. docs/compare.md says what the figures mean.
"""
