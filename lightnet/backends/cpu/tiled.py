"""Register-tiled kernels for windows on plain NCHW: convolutions, transposed convolutions and pools, with an epilogue.

Which bodies they take, and which of the kernels a window gets: the general one (`window_kernel.py`), the one for narrow
maps (`narrow.py`), or the one for a single output pixel (`dense.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

from xdsl.ir import SSAValue

from lightnet.backends.cpu.dense import DenseKernel, is_dense
from lightnet.backends.cpu.narrow import NarrowKernel, narrow_layout_of
from lightnet.backends.cpu.window import StagedWindow, staged_window_of
from lightnet.backends.cpu.window_kernel import TiledKernel, pieces_of, tile_shape, vector_lanes
from lightnet.backends.expressions import has_tile_epilogue
from lightnet.backends.launches import Launch
from lightnet.dialects.ln.conv import Conv2d, Deconv2d
from lightnet.dialects.ln.pool import Avgpool2d, Maxpool2d
from lightnet.ir.kernel import KernelOp
from lightnet.ir.op import LnOp

ANCHORS = (Conv2d, Deconv2d, Maxpool2d, Avgpool2d)
#: Elements of the largest window of a pool that is written out in full; a larger one (a global pool) is a loop.
MAX_POOL = 200
#: The same of a convolution, whose window is unrolled along each row.
MAX_WINDOW = 31 * 31
#: The most phases of a transposed convolution (one for each remainder by its strides), each of which is code of its
#: own.
MAX_PHASES = 16 * 16


def accepts(ops: Sequence[LnOp], yielded: Sequence[SSAValue] = ()) -> bool:
    """Return whether the body is one window op on floats followed by elementwise ops on its result, which make all that
    is `yielded`.
    """
    if not ops:
        return False
    anchor = ops[0]
    if not isinstance(anchor, ANCHORS) or anchor.result_specs[0].dtype.name not in ("f32", "f64"):
        return False
    if any(spec.len == 0 for spec in (*anchor.operand_specs, *anchor.result_specs)):
        return False  # no channels to sum over, or no pixels: a tile needs both
    if anchor.size[0] * anchor.size[1] > (MAX_POOL if isinstance(anchor, Maxpool2d | Avgpool2d) else MAX_WINDOW):
        return False
    if isinstance(anchor, Deconv2d) and prod(map(min, anchor.stride, anchor.result_specs[0].dims[2:])) > MAX_PHASES:
        return False
    return has_tile_epilogue(ops, yielded)


def readable(anchor: LnOp) -> tuple[int, ...]:
    """The result's dimensions along which an epilogue may read smaller tensors: batch and channels."""
    return (0, 1)


class _Cut(NamedTuple):
    """The kernel that a window gets, the blocks of its grid, and bytes of scratch of one of them."""

    window: StagedWindow
    kind: type[DenseKernel | NarrowKernel | TiledKernel]
    grid: int
    scratch: int


def _cut(kernel: KernelOp, width: int) -> _Cut:
    window = staged_window_of(kernel.ops[0])
    kind: type[DenseKernel | NarrowKernel | TiledKernel]
    if is_dense(window):
        kind, outputs, band, scratch = DenseKernel, DenseKernel.OUTPUTS, window.rows, 0
    elif (layout := narrow_layout_of(window, width)) is not None:
        kind, outputs, band, scratch = NarrowKernel, layout.outputs, layout.band, layout.workspace_bytes
    else:
        lanes, shape = vector_lanes(window, width), tile_shape(window, width)
        kind, outputs, band = TiledKernel, shape.outputs, window.band(lanes, shape.rows)
        scratch = window.staged_bytes(band, lanes)
    coarse = window.batch * window.groups * -(-window.rows // band)
    return _Cut(window, kind, coarse * pieces_of(window, outputs, coarse)[0], scratch)


def workspace_bytes(kernel: KernelOp, width: int) -> int:
    """Bytes of staged input that one block needs, for a target with `width` lanes of f32."""
    return _cut(kernel, width).scratch


def grid(kernel: KernelOp, width: int) -> int:
    """The blocks of the kernel."""
    return _cut(kernel, width).grid


def build(kernel: KernelOp, name: str, width: int, aliases: Mapping[int, int]) -> Launch:
    """The kernel function. `aliases` maps a result to the operand whose memory it takes."""
    cut = _cut(kernel, width)
    return cut.kind(kernel, cut.window, name, width, aliases, cut.scratch).build()
