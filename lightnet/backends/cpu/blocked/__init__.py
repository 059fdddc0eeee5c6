"""Kernels on blocked maps, [N, C/16, H, W, 16] with a halo: one generator a file, and the table of them.

A generator takes a body (a convolution with an epilogue, a pool, elementwise ops) on maps in the layout `Blocked`, whose block is
as long as the machine's vectors. `layout` asks which bodies are taken and what they need, `choose` what each would cost and with
which choices, `pack` how weights should lie, `lower-cpu` builds the functions.
"""

from __future__ import annotations

from functools import cache

from lightnet.backends.cpu.blocked.base import Generator
from lightnet.ir.registry import resolve

#: The generators, in order of preference where they cost the same: ``module:Attribute``, imported when they are needed.
TABLE = (
    "conv:DIRECT",
    "winograd:WINOGRAD4",
    "winograd:WINOGRAD2",
    "bands:BANDS",
    "deconv:DECONV",
    "first:FIRST",
    "first_pool:FIRST_POOL",
    "depthwise:DEPTHWISE",
    "pool:POOL",
    "views:VIEWS",
    "channels:CHANNELS",
    "resample:RESAMPLE",
    "maps:MAPS",
    "reorder:REORDER",
    "nhwc:NHWC",
    "dense:DENSE",
)  # fmt: skip


@cache
def generators() -> tuple[Generator, ...]:
    """All of them."""
    return tuple(resolve(f"lightnet.backends.cpu.blocked.{row}") for row in TABLE)
