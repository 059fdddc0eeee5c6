"""Ops that only move elements: `concat`, `slice`, `transpose`, `reshape`, `forward`, `gather`, `scatter`."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import numpy as np

from lightnet.dialects.ln.rules import producer, rule
from lightnet.ir.op import ConstraintError, LnOp, case, dims_of_result, ln_op, number, numbers, operand, result
from lightnet.ir.types import TensorSpec
from lightnet.runtime.dims import greatest

#: Results of one op, at most.
MAX_RESULTS = 1 << 16
#: Operands of one op, at most: each is a statement of its definition.
MAX_OPERANDS = 256


def _check_count(optype, operands) -> None:
    if len(operands) > MAX_OPERANDS:
        raise ConstraintError(
            f"{optype}: {len(operands)} operands, more than the limit of {MAX_OPERANDS}", label=f"{optype}.count"
        )


class _Move(LnOp):
    is_move = True
    work = 0


# concat(x[a:b], x[b:c], ...) = x[a:c]
@rule("concat")
def concat_of_slices(op):
    slices = [producer(v, Slice) for v in op.operands]
    if len(slices) < 2 or any(s is None or s.src is not slices[0].src or s.axis != op.axis for s in slices):
        return None
    if any(a.start + a.len != b.start for a, b in pairwise(slices)):
        return None
    total = sum(s.len for s in slices)
    return Slice.make([slices[0].src], {"axis": op.axis, "start": slices[0].start, "len": total})


# concat(x) = x
@rule("concat")
def concat_of_one(op):
    return op.operands[0] if len(op.operands) == 1 else None


@ln_op
class Concat(_Move):
    """Tensors of one type behind each other along `axis`.

    ```mlir
    // %a : tensor<1x2x4x5xf32>, %b : tensor<1x3x4x5xf32>
    %y = ln.concat %a, %b {axis = 1} : tensor<1x5x4x5xf32>
    ```
    """

    optype = "concat"
    extends = True
    src = operand(variadic=True, by_name=True, same_type="src1")
    dst = result()
    axis = number("int", ge=0, lt="src1.ndim")

    @property
    def definition(self):
        lines, start = [], 0
        for k, spec in enumerate(self.operand_specs):
            at, n = "j" if start == 0 else f"j + {start}", spec.dims[self.axis]
            lines.append(f"dst[i:axis..., {at}, k...] = src{k + 1}[i..., j, k...] for j < {n}")
            start += n
        return "\n".join(lines)

    @classmethod
    def infer(cls, t, p):
        first = t.src[0]
        for spec in t.src[1:]:
            if spec.ndim != first.ndim:
                raise ConstraintError(
                    f"concat: {first} and {spec} should have the same number of dimensions", label="concat.same-rank"
                )
            if any(a != b for k, (a, b) in enumerate(zip(first.dims, spec.dims)) if k != p.axis):
                raise ConstraintError(
                    f"concat: {first} and {spec} should have the same dimensions but along axis {p.axis}",
                    label="concat.same-dims",
                )
        _check_count("concat", t.src)
        joined = sum(spec.dims[p.axis] for spec in t.src)
        return [TensorSpec((*first.dims[: p.axis], joined, *first.dims[p.axis + 1 :]), first.dtype)]

    def views(self):
        specs = self.operand_specs
        if prod(specs[0].dims[: self.axis]) == 1:
            offset = 0
            for k, spec in enumerate(specs):
                yield k, 0, offset
                offset += spec.nbytes

    rewrites = (concat_of_slices, concat_of_one)

    def reference(self, *src):
        return np.concatenate(src, axis=self.axis)

    @classmethod
    def samples(cls):
        return [
            case(src=[(1, 2, 4, 5), (1, 3, 4, 5)], axis=1), case(src=[(3,), (1,)], axis=0),
            case(src=[(2, 3), (2, 17)], axis=1), case("i8", src=[(2, 1, 3, 1, 2), (2, 1, 2, 1, 2)], axis=2),
            case(src=[(2, 3, 4)], axis=0), case("i64", src=[(2, 1), (2, 5), (2, 2), (2, 1)], axis=1),
            case(src=[(1, 4), (3, 4), (2, 4)], axis=0), case(src=[(2, 0, 3), (2, 4, 3), (2, 0, 3)], axis=1),
            case(src=[(0, 3), (0, 3)], axis=1), case("i8", src=[(0,), (5,)], axis=0),
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


# concat(x, y, ...)[a:b] = x[a:b] or y[a-n:b-n] ..., where n is the length before it and the range lies in one of them
@rule("slice")
def slice_of_concat(op):
    inner = producer(op.src, Concat)
    if inner is None or inner.axis != op.axis:
        return None
    start = op.start
    for value, spec in zip(inner.operands, inner.operand_specs):
        n = spec.dims[op.axis]
        if 0 <= start and start + op.len <= n:
            return Slice.make([value], {"axis": op.axis, "start": start, "len": op.len})
        start -= n
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
    dst = result(dims="[src.dims[0:axis], len, src.dims[axis + 1:src.ndim]]")
    axis = number("int", ge=0, lt="src.ndim")
    start = number("int", ge=0, le="src.dims[axis]")
    len = number("int", ge=0, le="src.dims[axis]")
    checks = {"range": "start + len <= src.dims[axis]"}
    definition = "dst[i:axis..., j, k...] = src[i..., j + start, k...]"

    def views(self):
        src = self.operand_specs[0]
        if prod(src.dims[: self.axis]) == 1:
            yield 0, 0, self.start * src.nbytes // max(src.dims[self.axis], 1)

    rewrites = (slice_of_all, slice_of_slice, slice_of_concat)

    def reference(self, src):
        return src.take(range(self.start, self.start + self.len), axis=self.axis)

    @classmethod
    def samples(cls):
        return [
            case(src=(2, 4), axis=1, start=1, len=3), case(src=(5,), axis=0, start=4, len=1),
            case(src=(1, 8, 3, 5), axis=1, start=2, len=4), case("i16", src=(3, 1, 4, 2, 2), axis=4, start=1, len=1),
            case(src=(1, 3), axis=1, start=0, len=3), case(src=(2, 3), axis=1, start=3, len=0),
            case(src=(0, 3), axis=1, start=1, len=2), case(src=(0,), axis=0, start=0, len=0),
        ]  # fmt: skip


# transpose(x, p) = reshape(x), where p keeps the order of the axes longer than 1
@rule("transpose")
def transpose_of_units(op):
    moved = [a for a in op.axes if greatest(op.operand_specs[0].dims[a]) > 1]
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
    dst = result(dims="src.dims[axes]")
    axes = numbers("int", "src.ndim", ge=0, lt="src.ndim")
    checks = {"permutation": "permutation(axes)"}
    definition = "dst[i...] = src[i[inverse(axes)]...]"

    def views(self):
        dims = self.operand_specs[0].dims
        moved = [a for a in self.axes if greatest(dims[a]) > 1]
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
            case(src=(), axes=()), case(src=(2, 0, 3), axes=(2, 0, 1)),
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
    dst = result(dims="dims", owner="src")
    dims = dims_of_result(ge=0)
    checks = {"length": "prod(dims) == src.len"}
    rewrites = (reshape_to_itself, reshape_of_reshape)
    definition = "dst.flat[i] = src.flat[i]"

    def views(self):
        yield 0, 0, 0

    def reference(self, src):
        return src.reshape(self.dims)

    @classmethod
    def samples(cls):
        return [
            case(src=(2, 3), dims=(3, 2)), case(src=(1,), dims=(1, 1, 1)), case(src=(1, 6, 4, 5), dims=(1, 2, 3, 4, 5)),
            case("i32", src=(2, 3, 5), dims=(30,)), case(src=(6, 35), dims=(7, 5, 6)), case(src=(), dims=(1, 1)),
            case("i8", src=(1,), dims=()), case(src=(0, 3), dims=(2, 0)),
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
        return [
            case(src=(2, 3)), case("i1", src=(7,)), case("ui16", src=(2, 1, 3, 1, 2)), case(src=()), case(src=(0, 2)),
        ]  # fmt: skip


@ln_op
class Copy(LnOp):
    """The tensor in memory of its own: what a target puts where a value goes from one memory space to another. No
    rewrite takes it away, and no plan lets it share memory with its operand; where the spaces differ, the target's
    machine copies (`Target.machine`).

    ```mlir
    %y = ln.copy %x : tensor<2x3xf32>
    ```
    """

    optype = "copy"
    takes_bits = True
    src = operand()
    dst = result()
    definition = "dst[i...] = src[i...]"
    work = 0

    def reference(self, src):
        return src.copy()

    @classmethod
    def samples(cls):
        return [
            case(src=(2, 3)), case("i1", src=(7,)), case("ui16", src=(2, 1, 3, 1, 2)), case(src=()), case(src=(0, 2)),
        ]  # fmt: skip


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
    src = operand(variadic=True, same_type="src1", same_shape="src1")
    dst = result()
    rewrites = (gather_of_scatter,)

    @property
    def definition(self):
        return "\n".join(f"dst[{k}, i...] = src{k + 1}[i...]" for k in range(len(self.operands)))

    @classmethod
    def infer(cls, t, p):
        _check_count("gather", t.src)
        return [TensorSpec((len(t.src), *t.src[0].dims), t.src[0].dtype)]

    def views(self):
        size = self.operand_specs[0].nbytes
        for k in range(len(self.operands)):
            yield k, 0, k * size

    def reference(self, *src):
        return np.stack(src)

    @classmethod
    def samples(cls):
        return [case(src=[(3, 4), (3, 4)]), case(src=[(1,)]), case("i8", src=[(2, 1, 3), (2, 1, 3), (2, 1, 3)]),
                case(src=[(), (), ()]), case(src=[(0, 4), (0, 4)])]  # fmt: skip


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
    src = operand(min_rank=1)
    dst = result(variadic=True)
    checks = {"count": f"src.dims[0] > 0 && src.dims[0] <= {MAX_RESULTS}"}
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
        return [
            case(src=(2, 3)), case(src=(1, 1)), case("i32", src=(3, 2, 1, 5)), case(src=(3,)), case(src=(2, 0)),
        ]  # fmt: skip
