"""Ops that only move elements: `concat`, `slice`, `transpose`, `reshape`, `forward`, `gather`, `scatter`."""

from __future__ import annotations

from math import prod

import numpy as np

from lightnet.dialects.ln.rules import producer, rule
from lightnet.ir.op import ConstraintError, LnOp, case, dims_of_result, ln_op, number, numbers, operand, result
from lightnet.ir.types import TensorSpec

#: Results of one op, at most.
MAX_RESULTS = 1 << 16


class _Move(LnOp):
    is_move = True

    def flops(self):
        return 0


# concat(x[a:b], x[b:c]) = x[a:c]
@rule("concat")
def concat_of_slices(op):
    first, second = producer(op.src1, Slice), producer(op.src2, Slice)
    if first is None or second is None or first.src is not second.src:
        return None
    if not first.axis == second.axis == op.axis or first.start + first.len != second.start:
        return None
    return Slice.make([first.src], {"axis": op.axis, "start": first.start, "len": first.len + second.len})


@ln_op
class Concat(_Move):
    """Two tensors behind each other along `axis`.

    ```mlir
    // %a : tensor<1x2x4x5xf32>, %b : tensor<1x3x4x5xf32>
    %y = ln.concat %a, %b {axis = 1} : tensor<1x5x4x5xf32>
    ```
    """

    optype = "concat"
    src1 = operand()
    src2 = operand(same_type="src1")
    dst = result()
    axis = number("int", ge=0, lt="src1.ndim")
    checks = {"same-rank": "src1.ndim == src2.ndim"}
    definition = """
        dst[i:axis..., j, k...] = src1[i..., j, k...] for j < src1.dims[axis]
        dst[i:axis..., j + src1.dims[axis], k...] = src2[i..., j, k...]
    """

    @classmethod
    def infer(cls, t, p):
        a, b = list(t.src1.dims), list(t.src2.dims)
        joined = a[p.axis] + b[p.axis]
        a[p.axis] = b[p.axis] = joined
        if a != b:
            raise ConstraintError(
                f"concat: {t.src1} and {t.src2} should have the same dimensions but along axis {p.axis}",
                label="concat.same-dims",
            )
        return [TensorSpec(tuple(a), t.src1.dtype)]

    def views(self):
        first = self.operand_specs[0]
        if prod(first.dims[: self.axis]) == 1:
            yield 0, 0, 0
            yield 1, 0, first.nbytes

    rewrites = (concat_of_slices,)

    def reference(self, src1, src2):
        return np.concatenate([src1, src2], axis=self.axis)

    @classmethod
    def samples(cls):
        return [
            case(src1=(1, 2, 4, 5), src2=(1, 3, 4, 5), axis=1), case(src1=(3,), src2=(1,), axis=0),
            case(src1=(2, 3), src2=(2, 17), axis=1), case("i8", src1=(2, 1, 3, 1, 2), src2=(2, 1, 2, 1, 2), axis=2),
        ]  # fmt: skip


# x[0:n] = x, where n is the length
@rule("slice")
def slice_of_all(op):
    return op.src if op.operand_specs == op.result_specs else None


# x[a:][b:c] = x[a+b:a+c]
@rule("slice")
def slice_of_slice(op):
    inner = producer(op.src, Slice)
    if inner is None or inner.axis != op.axis:
        return None
    return Slice.make([inner.src], {"axis": op.axis, "start": inner.start + op.start, "len": op.len})


# concat(x, y)[a:b] = x[a:b] or y[a-n:b-n], where n is the length of x and the range lies in one of the two
@rule("slice")
def slice_of_concat(op):
    inner = producer(op.src, Concat)
    if inner is None or inner.axis != op.axis:
        return None
    split = inner.operand_specs[0].dims[op.axis]
    if op.start + op.len <= split:
        return Slice.make([inner.src1], {"axis": op.axis, "start": op.start, "len": op.len})
    if op.start >= split:
        return Slice.make([inner.src2], {"axis": op.axis, "start": op.start - split, "len": op.len})
    return None


@ln_op
class Slice(_Move):
    """The elements `start` to `start + len` along `axis`.

    ```mlir
    // %x : tensor<2x4xf32>
    %y = ln.slice %x {axis = 1, start = 1, len = 3} : tensor<2x3xf32>
    ```
    """

    optype = "slice"
    src = operand()
    dst = result()
    axis = number("int", ge=0, lt="src.ndim")
    start = number("int", ge=0, lt="src.dims[axis]")
    len = number("int", gt=0, le="src.dims[axis]")
    checks = {"range": "start + len <= src.dims[axis]"}
    definition = "dst[i:axis..., j, k...] = src[i..., j + start, k...]"

    @classmethod
    def infer(cls, t, p):
        dims = list(t.src.dims)
        dims[p.axis] = p.len
        return [TensorSpec(tuple(dims), t.src.dtype)]

    def views(self):
        src = self.operand_specs[0]
        if prod(src.dims[: self.axis]) == 1:
            yield 0, 0, self.start * src.nbytes // src.dims[self.axis]

    rewrites = (slice_of_all, slice_of_slice, slice_of_concat)

    def reference(self, src):
        return src.take(range(self.start, self.start + self.len), axis=self.axis)

    @classmethod
    def samples(cls):
        return [
            case(src=(2, 4), axis=1, start=1, len=3), case(src=(5,), axis=0, start=4, len=1),
            case(src=(1, 8, 3, 5), axis=1, start=2, len=4), case("i16", src=(3, 1, 4, 2, 2), axis=4, start=1, len=1),
            case(src=(1, 3), axis=1, start=0, len=3),
        ]  # fmt: skip


# transpose(x, p) = reshape(x), where p keeps the order of the axes longer than 1
@rule("transpose")
def transpose_of_units(op):
    moved = [a for a in op.axes if op.operand_specs[0].dims[a] > 1]
    return Reshape.make([op.src], {"dims": op.result_specs[0].dims}) if moved == sorted(moved) else None


# transpose(transpose(x, p), q) = transpose(x, p[q])
@rule("transpose")
def transpose_of_transpose(op):
    inner = producer(op.src, Transpose)
    if inner is None:
        return None
    return Transpose.make([inner.src], {"axes": tuple(inner.axes[a] for a in op.axes)})


@ln_op
class Transpose(_Move):
    """dst.dims[i] = src.dims[axes[i]], for a permutation `axes`.

    ```mlir
    // %x : tensor<2x3xf32>
    %y = ln.transpose %x {axes = [1, 0]} : tensor<3x2xf32>
    ```
    """

    optype = "transpose"
    src = operand()
    dst = result()
    axes = numbers("int", "src.ndim", ge=0, lt="src.ndim")

    definition = "dst[i...] = src[i[inverse(axes)]...]"

    @classmethod
    def infer(cls, t, p):
        if sorted(p.axes) != list(range(t.src.ndim)):
            raise ConstraintError(
                f"transpose: `axes` {list(p.axes)} should be a permutation of the axes of {t.src}",
                label="transpose.permutation",
            )
        return [TensorSpec(tuple(t.src.dims[a] for a in p.axes), t.src.dtype)]

    def views(self):
        dims = self.operand_specs[0].dims
        moved = [a for a in self.axes if dims[a] > 1]
        if moved == sorted(moved):  # only axes of length 1 change places
            yield 0, 0, 0

    rewrites = (transpose_of_units, transpose_of_transpose)

    def reference(self, src):
        return np.transpose(src, self.axes)

    @classmethod
    def samples(cls):
        return [
            case(src=(2, 3), axes=(1, 0)), case(src=(5,), axes=(0,)), case(src=(1, 6, 1, 4, 5), axes=(0, 3, 4, 1, 2)),
            case("ui8", src=(7, 17, 3), axes=(2, 0, 1)), case(src=(1, 2, 5, 3, 4), axes=(0, 2, 1, 3, 4)),
        ]  # fmt: skip


# reshape(x, dims of x) = x
@rule("reshape")
def reshape_to_itself(op):
    return op.src if op.operand_specs == op.result_specs else None


# reshape(reshape(x)) = reshape(x)
@rule("reshape")
def reshape_of_reshape(op):
    inner = producer(op.src, Reshape)
    return None if inner is None else Reshape.make([inner.src], {"dims": op.dims})


@ln_op
class Reshape(_Move):
    """The same elements in row-major order, under other dimensions; never copies where the plan can avoid it.

    ```mlir
    // %x : tensor<2x3xf32>
    %y = ln.reshape %x : tensor<3x2xf32>
    ```
    """

    optype = "reshape"
    src = operand()
    dst = result(owner="src")
    dims = dims_of_result(ge=1)
    rewrites = (reshape_to_itself, reshape_of_reshape)

    definition = "dst.flat[i] = src.flat[i]"

    @classmethod
    def infer(cls, t, p):
        if prod(p.dims) != t.src.len:
            raise ConstraintError(
                f"reshape: `dims` {list(p.dims)} should hold as many elements as {t.src}: "
                f"expected {t.src.len}, got {prod(p.dims)}",
                label="reshape.length",
            )
        return [TensorSpec(p.dims, t.src.dtype)]

    def views(self):
        yield 0, 0, 0

    def reference(self, src):
        return src.reshape(self.dims)

    @classmethod
    def samples(cls):
        return [
            case(src=(2, 3), dims=(3, 2)), case(src=(1,), dims=(1, 1, 1)), case(src=(1, 6, 4, 5), dims=(1, 2, 3, 4, 5)),
            case("i32", src=(2, 3, 5), dims=(30,)), case(src=(6, 35), dims=(7, 5, 6)),
        ]  # fmt: skip


# forward(x) = x
@rule("forward")
def forward_is_operand(op):
    return op.src


@ln_op
class Forward(_Move):
    """The tensor itself.

    ```mlir
    %y = ln.forward %x : tensor<2x3xf32>
    ```
    """

    optype = "forward"
    src = operand()
    dst = result(owner="src")
    definition = "dst[i...] = src[i...]"
    rewrites = (forward_is_operand,)

    def views(self):
        yield 0, 0, 0

    def reference(self, src):
        return src

    @classmethod
    def samples(cls):
        return [case(src=(2, 3)), case("i1", src=(7,)), case("ui16", src=(2, 1, 3, 1, 2))]


# gather(scatter(x)) = x; gather(x) = reshape(x)
@rule("gather")
def gather_of_scatter(op):
    inner = producer(op.operands[0], Scatter)
    if inner is not None and tuple(op.operands) == tuple(inner.results):
        return inner.src
    if len(op.operands) == 1:
        return Reshape.make([op.operands[0]], {"dims": op.result_specs[0].dims})
    return None


@ln_op
class Gather(_Move):
    """Tensors of one type stacked along a new first dimension.

    ```mlir
    // %a : tensor<3x4xf32>, %b : tensor<3x4xf32>
    %y = ln.gather %a, %b : tensor<2x3x4xf32>
    ```
    """

    optype = "gather"
    src = operand(variadic=True)
    dst = result()
    rewrites = (gather_of_scatter,)

    @property
    def definition(self):
        return "\n".join(f"dst[{k}, i...] = src{k + 1}[i...]" for k in range(len(self.operands)))

    @classmethod
    def infer(cls, t, p):
        return [TensorSpec((len(t.src), *t.src[0].dims), t.src[0].dtype)]

    def views(self):
        size = self.operand_specs[0].nbytes
        for k in range(len(self.operands)):
            yield k, 0, k * size

    def reference(self, *src):
        return np.stack(src)

    @classmethod
    def samples(cls):
        return [case(src=[(3, 4), (3, 4)]), case(src=[(1,)]), case("i8", src=[(2, 1, 3), (2, 1, 3), (2, 1, 3)])]


# scatter(gather(x, y, ...)) = x, y, ...
@rule("scatter")
def scatter_of_gather(op):
    inner = producer(op.src, Gather)
    return None if inner is None else tuple(inner.operands)


@ln_op
class Scatter(_Move):
    """The slices of a tensor along its first dimension, one result each.

    ```mlir
    // %x : tensor<2x3x4xf32>
    %a, %b = ln.scatter %x : tensor<3x4xf32>, tensor<3x4xf32>
    ```
    """

    optype = "scatter"
    src = operand(min_rank=2)
    dst = result(variadic=True)
    checks = {"count": f"src.dims[0] <= {MAX_RESULTS}"}
    rewrites = (scatter_of_gather,)

    @property
    def definition(self):
        return "\n".join(f"dst{k + 1}[i...] = src[{k}, i...]" for k in range(len(self.results)))

    @classmethod
    def infer(cls, t, p):
        return [TensorSpec(t.src.dims[1:], t.src.dtype)] * t.src.dims[0]

    def views(self):
        size = self.result_specs[0].nbytes
        for k in range(len(self.results)):
            yield 0, k, k * size

    def reference(self, src):
        return tuple(src)

    @classmethod
    def samples(cls):
        return [case(src=(2, 3)), case(src=(1, 1)), case("i32", src=(3, 2, 1, 5))]


OPS = (Concat, Slice, Transpose, Reshape, Forward, Gather, Scatter)
