"""Register-tiled kernels for windows on plain NCHW: convolutions, transposed convolutions and pools, with an epilogue.

Which bodies they take, and which of the kernels a window gets: the general one (`window_kernel.py`), the one for narrow
maps (`narrow.py`), or the one for a single output pixel (`dense.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from lightnet.backends.cpu.dense import DenseKernel, is_dense
from lightnet.backends.cpu.narrow import NarrowKernel, narrow_layout_of
from lightnet.backends.cpu.window import staged_window_of
from lightnet.backends.cpu.window_kernel import TiledKernel, pieces_of, tile_shape, vector_lanes
from lightnet.backends.expressions import has_tile_epilogue
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


def workspace_bytes(kernel: KernelOp, width: int) -> int:
    """Bytes of staged input that one block needs, for a target with `width` lanes of f32."""
    window = staged_window_of(kernel.ops[0])
    if is_dense(window):
        return 0
    if (layout := narrow_layout_of(window, width)) is not None:
        return layout.workspace_bytes
    lanes = vector_lanes(window, width)
    return window.staged_bytes(window.band(lanes, tile_shape(window, width).rows), lanes)


def grid(kernel: KernelOp, width: int) -> int:
    """The blocks of the kernel."""
    window = staged_window_of(kernel.ops[0])
    outputs, bands = DenseKernel.OUTPUTS, 1
    if not is_dense(window) and (layout := narrow_layout_of(window, width)) is not None:
        outputs, bands = layout.outputs, -(-window.rows // layout.band)
    elif not is_dense(window):
        shape = tile_shape(window, width)
        outputs, bands = shape.outputs, -(-window.rows // window.band(vector_lanes(window, width), shape.rows))
    coarse = window.batch * window.groups * bands
    return coarse * pieces_of(window, outputs, coarse)[0]


def build(kernel: KernelOp, name: str, width: int, aliases: dict[int, int]) -> tuple[FuncOp, int]:
    """The kernel function and its grid. `aliases` maps a result to the operand whose memory it takes."""
    window = staged_window_of(kernel.ops[0])
    make: type[DenseKernel | NarrowKernel | TiledKernel] = TiledKernel
    if is_dense(window):
        make = DenseKernel
    elif narrow_layout_of(window, width) is not None:
        make = NarrowKernel
    return make(kernel, window, name, width, aliases, workspace_bytes(kernel, width)).build()
