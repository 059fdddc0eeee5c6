"""Kernels of threads as loops of the processor: the pass `simt-to-cpu` (`simt_to_cpu.py`), a row of `PASSES` in
`lightnet/ir/registry.py`, by which networks that are compiled for cuda run at full size where there is no device."""
