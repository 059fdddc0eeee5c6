"""The bodies that are one product of matrices: `match`. A convolution is one, as is a dense layer, whose window is the
whole picture.

C [rows, cols] = A [rows, depth] · B, `batch` times, then elementwise ops on C. Rows are windows and k is (window row,
window column, channel) for a convolution of maps, channels that fill a layout up included. Imports the ops, layouts,
windows and the epilogue's conditions.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import cached_property
from math import prod

from xdsl.ir import SSAValue

from lightnet.backends.cuda.base import MAP, PRODUCT_TYPES, is_all_epilogue
from lightnet.backends.cuda.gemm.windows import Interleave, interleave_of, is_product, product_window_of
from lightnet.dataclasses import dataclass, replace
from lightnet.dialects.ln.conv import Conv2d, Deconv2d
from lightnet.dialects.ln.matmul import Matmul, gemm_shape
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import ChannelsLast, Layout, Phases
from lightnet.ir.op import LnOp
from lightnet.ir.target import Form
from lightnet.ir.types import spec_of
from lightnet.ir.windows import Window
from lightnet.runtime.dtypes import DType


class Kind(Enum):
    """The sources of A and B: maps and packed weights, or row-major tensors, of a dense layer or of a product."""

    CONV = "conv"
    DENSE = "dense"
    MATMUL = "matmul"


@dataclass(frozen=True)
class ChannelSlice:
    """The channels from `first` on of a map that has `channels`; `value` is what of the product's ops they are."""

    value: SSAValue
    first: int
    channels: int


@dataclass(frozen=True)
class GemmProblem:
    """A product and what becomes of it; all sizes are in elements. `slice` says that it makes some channels of a
    kernel's result, `computed` that B is a map like others: weights that need not be static."""

    kind: Kind
    ops: tuple[LnOp, ...]
    batch: int
    rows: int
    cols: int
    depth: int
    slice: ChannelSlice | None = None
    computed: bool = False

    @property
    def anchor(self) -> LnOp:
        return self.ops[0]

    @property
    def epilogue(self) -> tuple[LnOp, ...]:
        return self.ops[1:]

    @property
    def dtype(self) -> DType:
        """The type of the factors."""
        return self.anchor.operand_specs[0].dtype

    @property
    def a(self) -> SSAValue:
        return self.anchor.operands[0]

    @property
    def b(self) -> SSAValue:
        return self.anchor.operands[1]

    @property
    def bias(self) -> SSAValue | None:
        """A value for each column of all products, which C begins with."""
        return None if self.kind is Kind.MATMUL else self.anchor.operands[2]

    @property
    def by_k(self) -> bool:
        """True if B is [depth, cols] in memory, not [cols, depth]."""
        return self.kind is Kind.MATMUL

    @property
    def is_map(self) -> bool:
        return self.kind is Kind.CONV

    @property
    def result_dims(self) -> tuple[int, ...]:
        return self.anchor.result_specs[0].dims

    @cached_property
    def window(self) -> Window:
        """The windows of a convolution: a row of A each."""
        assert isinstance(self.anchor, Conv2d | Deconv2d)
        return product_window_of(self.anchor)

    @cached_property
    def interleave(self) -> Interleave | None:
        """The map from rows and columns to pixels, where rows are not the pixels of the result themselves: columns are
        (phase, channel) then."""
        return interleave_of(self.anchor) if isinstance(self.anchor, Conv2d | Deconv2d) else None

    @property
    def packed(self) -> Layout:
        """The layout of a convolution's weights: each column's in one piece, in the order of k."""
        return Phases(self.anchor.stride, MAP.multiple) if isinstance(self.anchor, Deconv2d) else WEIGHTS

    @property
    def channels(self) -> int:
        """Channels of A's map that a product reads, as they lie in memory."""
        return whole_channels(self.anchor.operand_specs[0].dims[1]) // self.batch

    @property
    def is_pointwise(self) -> bool:
        """True if the rows of A are those of a map, one after the other."""
        return self.window.is_pointwise

    @property
    def groups(self) -> int:
        """Products whose columns stand beside each other in one result."""
        return self.batch if self.is_map else 1

    @property
    def pixels(self) -> int:
        """Rows of a result as it lies in memory."""
        return self.rows if self.interleave is None else prod(self.result_dims) // self.result_dims[1]

    @property
    def pitch(self) -> int:
        """Elements from one row of a result to the next."""
        return whole_channels(self.result_dims[1]) if self.is_map else self.cols

    @property
    def written(self) -> int:
        """Columns of a product that a kernel writes: with those that fill a map up."""
        return self.pitch if self.groups == 1 and self.interleave is None else self.cols

    def shape(self, value: SSAValue) -> tuple[int, ...]:
        """The row-major shape in which a kernel sees the memory of `value`, the tensors of the product as [batch, rows,
        columns]: A as [batch, rows, k], a map as [1, pixels, channels]; a smaller tensor as it is."""
        dims = spec_of(value.type).dims
        if value is self.b:
            return self._shape_of_b()
        if self.slice is not None and isinstance(value.owner, KernelOp):
            return (1, self.pixels, whole_channels(self.slice.channels))
        if dims == self.result_dims:
            return (self.batch // self.groups, self.pixels, self.pitch)
        if value is not self.a:
            return dims
        if self.is_map:
            n, h, w, c = MAP.physical_dims(dims)
            return (1, n * h * w, c)
        return (prod(dims) // (self.rows * self.depth), self.rows, self.depth)

    def _shape_of_b(self) -> tuple[int, ...]:
        if self.kind is Kind.MATMUL:
            dims = self.anchor.operand_specs[1].dims
            return (prod(dims[:-2]), self.depth, self.cols)
        return (1, self.cols * self.groups, self.depth)

    def batches(self, operand: int) -> tuple[int, ...]:
        """The dimensions of operand 0 or 1 that the batch walks, as many as the result has; 1 where an operand is read
        repeatedly."""
        outer = self.result_dims[:-2] if self.batch > 1 and self.kind is Kind.MATMUL else ()
        own = self.anchor.operand_specs[operand].dims[:-2] if outer else ()
        return (1,) * (len(outer) - len(own)) + own

    def form(self) -> Form:
        """The form of the product's values in memory."""
        if not self.is_map:
            return Form({}, plain_results=True)
        wide = [v for op in self.epilogue for v in op.operands if spec_of(v.type).dims == self.result_dims]
        inside = {r for op in self.ops for r in op.results}
        weights = [self.b]
        maps = [self.a, *wide, *(weights if self.computed else ())]
        return Form({v: (0, 0) for v in maps if v not in inside}, frozenset(() if self.computed else weights))


#: How the weights of a convolution lie, which are a map to those who compute them.
WEIGHTS = ChannelsLast(MAP.multiple)


def whole_channels(channels: int) -> int:
    """Channels as they lie in a map."""
    return -(-channels // MAP.multiple) * MAP.multiple


def match(ops: Sequence[LnOp], yielded: Sequence[SSAValue]) -> list[GemmProblem]:
    """The products that a body can be computed as: none, or one for each form."""
    if (
        not ops
        or not isinstance(ops[0], Conv2d | Deconv2d | Matmul)
        or not is_all_epilogue(ops, yielded, _along(ops[0]))
    ):
        return []
    anchor = ops[0]
    specs = [*anchor.operand_specs, *anchor.result_specs]
    if specs[0].dtype.name not in PRODUCT_TYPES or 0 in (s.len for s in specs):
        return []
    read_again = {v for op in ops[1:] for v in op.operands if spec_of(v.type).dims != anchor.result_specs[0].dims}
    if (
        anchor.operands[1] in (anchor.operands[0], *(v for op in ops[1:] for v in op.operands))
        or anchor.operands[0] in read_again
    ):
        return []  # seen in two ways
    if isinstance(anchor, Matmul):
        batch, m, k, n = gemm_shape(anchor)
        return [GemmProblem(Kind.MATMUL, tuple(ops), batch, m, n, k)]
    if isinstance(anchor, Deconv2d):
        return _transposed(anchor, tuple(ops))
    return [*_convolution(anchor, tuple(ops)), *_dense(anchor, tuple(ops))]


def _convolution(anchor: Conv2d, ops: tuple[LnOp, ...]) -> list[GemmProblem]:
    """On maps. The channels of a group are whole pieces of four, in and out, or there is one group."""
    o, per_group, kh, kw = anchor.operand_specs[1].dims
    n, _, oh, ow = anchor.result_specs[0].dims
    if anchor.group > 1 and (per_group % MAP.multiple or (o // anchor.group) % MAP.multiple):
        return []
    depth = kh * kw * whole_channels(per_group)
    found = GemmProblem(Kind.CONV, ops, anchor.group, n * oh * ow, o // anchor.group, depth)
    return [found, replace(found, computed=True)]


def _transposed(anchor: Deconv2d, ops: tuple[LnOp, ...]) -> list[GemmProblem]:
    """On maps, as the convolution that a transposed one is: a column for each channel of each phase."""
    if not is_product(anchor):
        return []
    (n, channels), (_, outputs) = anchor.operand_specs[0].dims[:2], anchor.operand_specs[1].dims[:2]
    window, interleave = product_window_of(anchor), interleave_of(anchor)
    cols = outputs if interleave is None else interleave.phases * whole_channels(outputs)
    return [
        GemmProblem(Kind.CONV, ops, 1, n * prod(window.positions), cols, prod(window.taps) * whole_channels(channels))
    ]


def _dense(anchor: Conv2d, ops: tuple[LnOp, ...]) -> list[GemmProblem]:
    """On row-major tensors, where each window is the whole picture."""
    (n, c, h, w), o = anchor.operand_specs[0].dims, anchor.operand_specs[1].dims[0]
    whole = anchor.size == (h, w) and anchor.result_specs[0].dims[2:] == (1, 1)
    if not whole or anchor.group > 1 or anchor.derived_values()["pad"] != (0, 0, 0, 0):
        return []
    return [GemmProblem(Kind.DENSE, ops, 1, n, o, c * h * w)]


def _along(anchor: LnOp) -> tuple[int, ...]:
    """A product whose batch counts as rows, and pixels, are read along the columns alone."""
    if isinstance(anchor, Conv2d | Deconv2d):
        return (1,)
    assert isinstance(anchor, Matmul)
    ndim = anchor.result_specs[0].ndim
    return tuple(range(ndim)) if gemm_shape(anchor)[1] == anchor.result_specs[0].dims[-2] else (ndim - 1,)
