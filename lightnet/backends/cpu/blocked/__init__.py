"""Kernels on blocked maps, [N, C/16, H, W, 16] with a halo: one generator a file; `ir/registry.py` has the table of them.

A generator takes a body (a convolution with an epilogue, a pool, elementwise ops) on maps in the layout `Blocked`, whose block is
as long as the machine's vectors. `layout` asks which bodies are taken and what they need, `choose` what each would cost and with
which choices, `pack` how weights should lie, `lower-cpu` builds the functions. Imports the registry.
"""

from __future__ import annotations

from functools import lru_cache

from lightnet.backends.cpu.blocked.base import Generator
from lightnet.ir.registry import GENERATORS, load_installed


def generators() -> tuple[Generator, ...]:
    """All of them, plugins' included, in order of preference where they cost the same."""
    load_installed()
    return _generators(GENERATORS.version)


@lru_cache(maxsize=1)
def _generators(version: int) -> tuple[Generator, ...]:
    """What the table holds at this version of it: the passes ask for every kernel."""
    return tuple(GENERATORS.in_order())
