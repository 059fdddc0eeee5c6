"""Convolutions over one axis, and over several where it is simple, as those over pictures, for which there are
products: cuda's patterns of `expand`.

Front ends write most convolutions so (`frontends/windows.py`); here are those of networks that have the ops over any
number of axes themselves. All that depends on weights alone is hoisted. Imports the ops.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from lightnet.backends.cuda.base import PRODUCT_TYPES
from lightnet.dialects.ln.conv import Conv2d, Deconv2d
from lightnet.dialects.ln.conv_nd import Conv, Deconv
from lightnet.dialects.ln.move import MAX_OPERANDS, Concat, Reshape, Transpose
from lightnet.dialects.ln.rearrange import Expand, Pad, StridedSlice
from lightnet.ir.op import LnOp
from lightnet.ir.params import ParamValue
from lightnet.ir.types import spec_of

#: Channels from which on the products of a sum take longer than copies of what goes in and comes out.
LEAST_CHANNELS = 8
#: Elements of such a copy, at most.
MOST_COPIED = 1 << 28


class _Ops:
    """Ops that follow each other, in order."""

    def __init__(self) -> None:
        self.made: list[LnOp] = []

    def op(self, cls: type[LnOp], *operands: SSAValue, name: str | None = None, **params: ParamValue) -> SSAValue:
        self.made.append(cls.make(list(operands), params, name=name))
        return self.made[-1].results[0]

    def reshape(self, value: SSAValue, dims: Sequence[int]) -> SSAValue:
        return self.op(Reshape, value, dims=tuple(dims))

    def picture(self, value: SSAValue) -> SSAValue:
        """[.., W] as [.., 1, W], where there is one axis."""
        dims = spec_of(value.type).dims
        return self.reshape(value, (*dims[:2], 1, dims[2])) if len(dims) == 3 else value


class FlatConvolution(RewritePattern):
    """A convolution over one axis as one over pictures of one row, and one over two axes as what it is; the same of
    transposed ones.

    ```
    %y = conv %x, %w, %b        ->    %0 = reshape %x, %1 = reshape %w       (views: [.., W] as [.., 1, W])
                                      %2 = conv2d %0, %1, %b
                                      %y = reshape %2
    ```
    """

    # y[n, o, x] = y'[n, o, 0, x], where y' = conv2d(x', w') and x'[n, c, 0, x] = x[n, c, x]
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if (
            not isinstance(op, Conv | Deconv)
            or len(op.axes()) > 2
            or op.operand_specs[0].dtype.name not in PRODUCT_TYPES
        ):
            return
        if any(s.len == 0 for s in op.operand_specs):  # the loops know what a sum over nothing is
            return
        ops, result = _Ops(), op.result_specs[0]
        src, weight = (ops.picture(v) for v in op.operands[:2])
        params: dict[str, object] = {"size": spec_of(weight.type).dims[2:], "group": op.group}
        count = len(op.axes())
        params |= {"stride": _pair(op.stride, 1), "dilation": _pair(op.dilation, 1)}
        params["padding"] = (*_pair(op.padding[:count], 0), *_pair(op.padding[count:], 0))
        if isinstance(op, Deconv):
            params["output_padding"] = _pair(op.output_padding, 0)
        made = ops.op(
            Conv2d if isinstance(op, Conv) else Deconv2d, src, weight, op.operands[2], name=op.op_name, **params
        )
        if count == 1:
            ops.reshape(made, result.dims)
        rewriter.replace(op, ops.made)


class ConvByPlanes(RewritePattern):
    """A convolution over three axes as one over pictures: the taps along the first axis become channels, its positions
    a batch.

    ```
    %y = conv %x, %w, %b        ->    %0 = transpose %x, %1 = pad %0          [N, D, C, H, W], with planes of padding
                                      %2 = strided_slice %1, …                the planes that each tap reads, in order
                                      %3 = concat %2, …, %4 = reshape %3      [N, D', C, K, H, W] as [N*D', C*K, H, W]
                                      %5 = reshape %w                         [O, C, K, ..] as [O, C*K, ..]
                                      %6 = conv2d %4, %5, %b
                                      %7 = reshape %6, %y = transpose %7      [N*D', O, ..] as [N, O, D', ..]
    ```
    """

    # y[n, o, d] = b[o] + sum over c, t of w[o, c, t] (*) x[n, c, d*stride + t*dilation - before], (*) over two axes
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, Conv) or len(op.axes()) != 3 or op.operand_specs[0].dtype.name not in PRODUCT_TYPES:
            return
        (n, channels, _, *plane), (outputs, per_group, taps, *size) = (s.dims for s in op.operand_specs[:2])
        planes = op.result_specs[0].dims[2]
        if any(s.len == 0 for s in op.operand_specs) or outputs // op.group * size[0] * size[1] < LEAST_CHANNELS:
            return
        if n * channels * planes * taps * plane[0] * plane[1] > MOST_COPIED or taps > MAX_OPERANDS:
            return
        ops, stride, padding = _Ops(), op.stride, op.padding
        kernel = ops.reshape(op.operands[1], (outputs, per_group * taps, *size))
        pictures = ops.reshape(_stacked(ops, op), (n * planes, channels * taps, *plane))
        made = ops.op(
            Conv2d, pictures, kernel, op.operands[2], name=op.op_name, size=tuple(size), group=op.group,
            stride=stride[1:],
            dilation=op.dilation[1:], padding=(*padding[1:3], *padding[4:]),
        )  # fmt: skip
        rows = spec_of(made.type).dims[2:]
        ops.op(Transpose, ops.reshape(made, (n, planes, outputs, *rows)), axes=(0, 2, 1, 3, 4))
        rewriter.replace(op, ops.made)


def _stacked(ops: _Ops, op: Conv) -> SSAValue:
    """The planes that the taps along the first axis read: [N, D', C, K, H, W]. Of one picture each tap's are a range of
    memory."""
    before, behind = op.padding[0], op.padding[3]
    (n, channels, _, *plane), taps = op.operand_specs[0].dims, op.operand_specs[1].dims[2]
    planes = op.result_specs[0].dims[2]
    src = ops.op(Transpose, op.operands[0], axes=(0, 2, 1, 3, 4))
    if before or behind:
        src = ops.op(Pad, src, before=(0, before, 0, 0, 0), after=(0, behind, 0, 0, 0))
    parts = []
    for t in range(taps):
        part = ops.op(
            StridedSlice, src, starts=(0, t * op.dilation[0], 0, 0, 0), steps=(1, op.stride[0], 1, 1, 1),
            lens=(n, planes, channels, *plane),
        )  # fmt: skip
        parts.append(ops.reshape(part, (n, planes, channels, 1, *plane)))
    return ops.op(Concat, *parts, axis=3) if taps > 1 else parts[0]


class DeconvByPlanes(RewritePattern):
    """A transposed convolution over three axes whose windows do not overlap along the first, as one over pictures: each
    plane makes as many as a window has, which are channels until they are put behind each other.

    ```
    %y = deconv %x, %w, %b      ->    %0 = transpose %x, %1 = reshape %0      [N, C, D, H, W] as [N*D, C, H, W]
                                      %2 = reshape %w                         [C, O, K, ..] as [C, O*K, ..]
                                      %3 = deconv2d %1, %2, %b, each K times
                                      %4 = reshape %3, %5 = transpose %4      [N, D, O, K, ..] as [N, O, D, K, ..]
                                      %y = reshape %5
    ```
    """

    # y[n, o, K*d + t] = deconv2d(x[n, :, d], w[:, o, t]) + b[o], where the stride is K and nothing is cut off
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, Deconv) or len(op.axes()) != 3 or op.operand_specs[0].dtype.name not in PRODUCT_TYPES:
            return
        src, weight, bias = op.operands
        (n, channels, depth, *plane), (_, per_group, taps, *size) = (s.dims for s in op.operand_specs[:2])
        outputs, whole = op.result_specs[0].dims[1:3]
        if op.stride[0] != taps or op.padding[0] or op.padding[3] or whole != depth * taps:
            return
        if any(s.len == 0 for s in op.operand_specs) or channels // op.group < LEAST_CHANNELS:
            return
        ops = _Ops()
        pictures = ops.reshape(ops.op(Transpose, src, axes=(0, 2, 1, 3, 4)), (n * depth, channels, *plane))
        kernel = ops.reshape(weight, (channels, per_group * taps, *size))
        each = ops.reshape(ops.op(Expand, ops.reshape(bias, (outputs, 1)), dims=(outputs, taps)), (outputs * taps,))
        made = ops.op(
            Deconv2d, pictures, kernel, each, name=op.op_name, size=tuple(size), group=op.group, stride=op.stride[1:],
            dilation=op.dilation[1:], padding=(*op.padding[1:3], *op.padding[4:]), output_padding=op.output_padding[1:],
        )  # fmt: skip
        rows = spec_of(made.type).dims[2:]
        planes = ops.op(Transpose, ops.reshape(made, (n, depth, outputs, taps, *rows)), axes=(0, 2, 1, 3, 4, 5))
        ops.reshape(planes, op.result_specs[0].dims)
        rewriter.replace(op, ops.made)


def _pair(values: Sequence[int], first: int) -> tuple[int, int]:
    return (first, values[0]) if len(values) == 1 else (values[0], values[1])


EXPANDERS: tuple[type[RewritePattern], ...] = (FlatConvolution, ConvByPlanes, DeconvByPlanes)
