"""Direct convolution of short numbers on blocked maps: two channels of 16 bits in one product, or four of 8, by
`tile.dot`.

The kernel is that of floats (`conv.py`): what one product takes lies in four bytes, as a float does, and counts as one
channel. Sums of integers are exact. Imports the direct kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import MemRefType, StringAttr, i32
from xdsl.ir import SSAValue

from lightnet.backends.builder import Builder, Index, vector_type
from lightnet.backends.cpu.blocked import conv_model as model
from lightnet.backends.cpu.blocked.base import ProcessorModel
from lightnet.backends.cpu.blocked.conv import Direct, DirectKernel
from lightnet.backends.cpu.blocked.conv_choices import ConvSchedule
from lightnet.backends.cpu.blocked.conv_model import ConvTile, Geometry, together_of
from lightnet.backends.cpu.blocked.forms import FLOAT_SUMS, convolution_form
from lightnet.backends.cpu.blocked.kernel import MapTile
from lightnet.dataclasses import replace
from lightnet.dialects.ln.integer import SUMS, Conv2dInteger
from lightnet.dialects.tile_arith import DotOp
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Layout, Packed
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal
from lightnet.ir.target import Form, Halo
from lightnet.ir.types import vector_type_of
from lightnet.runtime.dims import Dim

#: The kinds of `tile.dot` by the types of both factors.
KINDS = {("i16", "i16"): "words", ("ui8", "i8"): "bytes", ("bf16", "bf16"): "bfloats"}


class DirectDot(Direct):
    """The generator of `conv2d_integer` on maps of i16 or ui8, and of `conv2d_short` on such of bf16, with an
    elementwise epilogue: the one of `conv2d`, of channels that are multiplied together."""

    alg, opens = "dot", False

    def form(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: ProcessorModel) -> Form | Refusal:
        def halo_of(conv: Conv2dInteger) -> Halo | Refusal:
            geometry = Geometry.of(conv)
            if geometry.is_open or not _takes(conv, geometry, machine.lanes):
                return Refusal("calls decide its maps, or its channels do not fill products and blocks")
            return model.halo_of(geometry, machine)

        if ops and isinstance(ops[0], Conv2dInteger) and any(ops[0].operands[0] in o.operands for o in ops[1:]):
            return Refusal("its epilogue reads the map's elements, too, as they are")
        return convolution_form(ops, yielded, Conv2dInteger, halo_of, sums=(SUMS.name, *FLOAT_SUMS))

    def effort(self, kernel: KernelOp) -> float:
        return 1 / together_of(kernel.ops[0])

    def weights_of(self, shape: ConvTile, lanes: int, together: int) -> Layout:
        return Packed("p", shape.vectors * lanes, together)


def dot_kind(anchor: LnOp) -> str | None:
    """The kind of product of a convolution or of matrices, None where there is none of its types."""
    left, right = (spec.dtype.name for spec in anchor.operand_specs)
    return KINDS.get((left, right))


def dot(b: Builder, anchor: LnOp, left: SSAValue, right: SSAValue, sums: SSAValue) -> SSAValue:
    """`sums` and the products of two tiles of factors of `anchor`, by `tile.dot`."""
    kind = dot_kind(anchor)
    assert kind is not None
    return b.op(DotOp, left, right, sums, type=sums.type, kind=StringAttr(kind))


def _takes(conv: Conv2dInteger, geometry: Geometry, lanes: int) -> bool:
    """Return whether a convolution has a kind of product, and groups whose channels fill these, and whole blocks if
    there are several."""
    channels, outputs = conv.operand_specs[0].dims[1] // conv.group, conv.result_specs[0].dims[1] // conv.group
    if dot_kind(conv) is None or isinstance(channels, Dim) or channels % geometry.together:
        return False
    return conv.group == 1 or channels % lanes == outputs % lanes == 0


class DotKernel(DirectKernel):
    """Builds the function of a kernel, whose maps and weights are elements of i32 to it: what one product takes."""

    def __init__(self, kernel: KernelOp, schedule: ConvSchedule, name: str, aliases: dict[int, int]):
        super().__init__(kernel, replace(schedule, weights_ahead=0), name, aliases)

    def memref(self, value: SSAValue) -> MemRefType:
        found = super().memref(value)
        src, weight = self.anchor.operands
        if value is src:
            *outer, lanes = found.get_shape()
            return MemRefType(i32, [*outer, lanes // self.geometry.together])
        if value is weight:
            *outer, _ = found.get_shape()
            return MemRefType(i32, outer)
        return found

    def first_sums(self, tile: MapTile) -> SSAValue:
        return self.b.const(0 if self.element == i32 else 0.0, vector_type(tile.shape, self.element))

    def weights(self, r: Index, block: Index, q: Index, channel: Index, count: int, sums: SSAValue) -> SSAValue:
        *_, vectors, lanes = vector_type_of(sums).get_shape()
        at = self.b.add(self.b.mul(block, self.depth), channel)
        memref = self.inputs[self.weight]
        return self.b.tile_load(memref, [self.group, r, q, at, 0], [3, 4, 4], (count, vectors, lanes),
                                steps=[1, lanes, 1])  # fmt: skip

    def multiplied(self, pixels: SSAValue, weights: SSAValue, sums: SSAValue) -> SSAValue:
        return dot(self.b, self.anchor, pixels, weights, sums)


DOT = DirectDot(DotKernel)
