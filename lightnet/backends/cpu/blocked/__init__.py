"""Kernels on blocked maps, [N, C/16, H, W, 16] with a halo: one generator a file; `ir/registry.py` has the table of
them.

A generator takes a body (a convolution with an epilogue, a pool, elementwise ops) on maps in the layout `Blocked`,
whose block is as long as the machine's vectors; `backends/cpu/selection.py` asks it for its plan.
"""
