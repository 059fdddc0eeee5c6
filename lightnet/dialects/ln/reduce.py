"""Reductions: `reduce_sum` and its kind, `argmax`, `argmin`, `maxreduce`, `maxreduce_arg`, `dot_product`."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from lightnet.dialects.ln.numeric import SHORT, as_summed, largest, total, widened
from lightnet.dialects.ln.rows import OpRows
from lightnet.dialects.ln.rules import rule
from lightnet.ir.op import Case, ConstraintError, LnOp, boolean, case, ln_op, number, numbers, operand, result
from lightnet.ir.types import TensorSpec
from lightnet.runtime.dtypes import DTYPES, is_float

#: The element types that can be added up.
_NUMBERS = tuple(d.name for d in DTYPES if d.name != "i1")


# reduce(x, axes) = reshape(x), where every axis has length 1 (a sum of one term is the term: -0 stays -0)
@rule("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_mean")
def reduction_of_ones(op):
    return op.src if op.operand_specs == op.result_specs else None


class _Reduction(OpRows):
    """One of `+= *= max= min=` along `axes`."""

    src = operand()
    dst = result()
    axes = numbers("int", ge=0, lt="src.ndim")
    rewrites = (reduction_of_ones,)
    accumulate: ClassVar[str]
    #: The reduction in NumPy, of integers or doubles along axes that stay.
    function: ClassVar[Callable[[np.ndarray, tuple[int, ...]], np.ndarray]]
    #: Test cases beside those that every reduction has.
    more: ClassVar[tuple[Case, ...]] = ()

    @classmethod
    def row(
        cls, optype: str, accumulate: str, function: Callable[..., np.ndarray], what: str, **own: Any
    ) -> type[Self]:
        """The reduction that `accumulate` says in index notation, and `function` in NumPy."""
        return cls.made(1, optype, what, accumulate=accumulate, function=staticmethod(function), **own)

    def reference(self, src):
        return self.function(widened(src), self.axes).astype(src.dtype)

    @classmethod
    def infer(cls, t, p):
        if len(set(p.axes)) != len(p.axes):
            raise ConstraintError(
                f"{cls.optype}: `axes` {list(p.axes)} should not name an axis twice",
                label=f"{cls.optype}.distinct-axes",
            )
        return [TensorSpec(tuple(1 if k in p.axes else n for k, n in enumerate(t.src.dims)), t.src.dtype)]

    def subscripts(self) -> tuple[str, str, str]:
        """The kept indices, those of the result, those of the operand."""
        ndim, axes = self.operand_specs[0].ndim, self.axes
        kept = [f"d{k}" for k in range(ndim) if k not in axes]
        written = ["0" if k in axes else f"d{k}" for k in range(ndim)]
        read = [f"r{k}" if k in axes else f"d{k}" for k in range(ndim)]
        return ", ".join(kept), ", ".join(written), ", ".join(read)

    @property
    def definition(self):
        _, written, read = self.subscripts()
        return f"dst[{written}] {self.accumulate} src[{read}]"

    def flops(self):
        return self.operand_specs[0].len

    @classmethod
    def samples(cls):
        return [
            case(src=(3, 4), axes=(1,)), case(src=(5,), axes=(0,)), case(src=(2, 1, 3, 1, 7), axes=(1, 2, 4)),
            case(src=(2, 17, 5, 3), axes=(2, 3)), case(src=(3, 4), axes=(0, 1)), case(src=(2, 3, 33), axes=(0,)),
            case(src=(2, 3), axes=()), case(src=(), axes=()), case("f64", src=(4, 3, 2), axes=(2, 0)),
            case("i32", src=(3, 17, 2), axes=(1,)), case("ui8", src=(2, 33), axes=(1,)),
            *(case(t, src=(3, 50), axes=(1,)) for t in SHORT), *cls.more,
        ]  # fmt: skip


def _maximum(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return largest(x, axes, _extreme(x.dtype, low=True), keepdims=True)


def _minimum(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    if is_float(x.dtype):
        return -largest(-x, axes, -np.inf, keepdims=True)
    return np.min(x, axis=axes, keepdims=True, initial=_extreme(x.dtype, low=False))


def _extreme(dtype: np.dtype, low: bool) -> float | int | bool:
    """The least, or the largest, value of a type: the maximum, or the minimum, of nothing."""
    if dtype.kind == "b":
        return not low
    if dtype.kind in "iu":
        return np.iinfo(dtype).min if low else np.iinfo(dtype).max
    return -np.inf if low else np.inf


_EMPTY = (case(src=(2, 0, 3), axes=(1,)), case("i32", src=(0, 3), axes=(0,)), case(src=(2, 0), axes=(0,)))
_OF_BOOLS = (case("i1", src=(3, 5), axes=(1,)), _EMPTY[1])

# fmt: off
ReduceSum = _Reduction.row(
    "reduce_sum", "+=", lambda x, axes: total(x, axes, keepdims=True),
    "The sum along `axes`, which stay with length 1; over nothing it is 0. Integers wrap.",
    src=operand(dtypes=_NUMBERS), more=_EMPTY)
ReduceProd = _Reduction.row(
    "reduce_prod", "*=", lambda x, axes: np.prod(x, axis=axes, keepdims=True, dtype=x.dtype),
    "The product along `axes`, which stay with length 1; over nothing it is 1. Integers wrap.",
    src=operand(dtypes=_NUMBERS, kind="scale"), more=_EMPTY)
ReduceMax = _Reduction.row(
    "reduce_max", "max=", _maximum,
    "The maximum along `axes`, which stay with length 1; NaN propagates. Over nothing it is the lowest value of the "
    "type: -inf, false.", more=_OF_BOOLS)
ReduceMin = _Reduction.row(
    "reduce_min", "min=", _minimum,
    "The minimum along `axes`, which stay with length 1; NaN propagates. Over nothing it is the highest value of the "
    "type: inf, true.", more=_OF_BOOLS)
# fmt: on


@ln_op
class ReduceMean(_Reduction):
    """The sum along `axes` (which stay with length 1) divided by the number of its terms; over nothing it is NaN, and 0
    of integers, whose sums wrap and whose quotients truncate.

    ```mlir
    // %x : tensor<3x5x4xf32>
    %y = ln.reduce_mean %x {axes = [1, 2]} : tensor<3x1x1xf32>
    ```
    """

    optype = "reduce_mean"
    src = operand(dtypes=_NUMBERS)
    more = (_EMPTY[1], _EMPTY[2])

    @property
    def terms(self) -> int:
        """The number of elements that each mean is of."""
        return prod(self.operand_specs[0].dims[k] for k in self.axes)

    @property
    def definition(self):
        kept, written, read = self.subscripts()
        quotient, dtype = f"total[{kept}] / {self.terms}", self.operand_specs[0].dtype
        # A constant takes the type of its partner, saturating.
        if not dtype.is_float and dtype.size < 8 and self.terms > dtype.limits[1]:
            quotient = f"wrap(i64(total[{kept}]) / {self.terms}, dst)"
        return f"total[{kept}] += src[{read}]\ndst[{written}] = {quotient}"

    def reference(self, src):
        added = total(widened(src), self.axes, keepdims=True)
        if src.dtype.kind not in "iu":
            return (as_summed(added, src.dtype) / np.float64(self.terms)).astype(src.dtype)
        return np.trunc(added / max(self.terms, 1)).astype(src.dtype)


#: The dims of what is reduced along `axis`.
_REDUCED = "[src.dims[0:axis], 1, src.dims[axis + 1:src.ndim]]"


class _ArgExtreme(OpRows):
    """The index of the first (or last) extreme along `axis`, in two passes, each of which is a reduction that
    vectorises."""

    src = operand(min_rank=1)
    dst = result(dims=_REDUCED, dtype="i64")
    axis = number("int", ge=0, lt="src.ndim")
    picks = "[src.dims[axis]]"
    last = boolean(default=False)
    accumulate: ClassVar[str]
    function: ClassVar[Callable[..., np.ndarray]]

    @classmethod
    def row(cls, optype: str, accumulate: str, function: Callable[..., np.ndarray], what: str) -> type[Self]:
        """The index of what `accumulate` says in index notation, and `function` in NumPy."""
        return cls.made(1, optype, what, accumulate=accumulate, function=staticmethod(function))

    @property
    def definition(self):
        read, best = "src[i..., r, k...]", "best[i..., k...]"
        found = f"{read} == {best}"
        if self.operand_specs[0].dtype.is_float:
            found += f" || {read} != {read}"  # the best is NaN where there is one, and equals nothing
        keep, none = ("max=", "-1") if self.last else ("min=", "src.dims[axis]")
        return (
            f"best[i:axis..., k...] {self.accumulate} {read}\n"
            f"at[i:axis..., k...] {keep} {found} ? i32(r) : i32({none})\n"
            "dst[i:axis..., 0, k...] = i64(at[i..., k...])"
        )

    def flops(self):
        return self.operand_specs[0].len

    def reference(self, src):
        wide, find = widened(src), self.function
        if self.last:
            found = src.shape[self.axis] - 1 - find(np.flip(wide, self.axis), axis=self.axis, keepdims=True)
        else:
            found = find(wide, axis=self.axis, keepdims=True)
        return found.astype(np.int64)

    @classmethod
    def samples(cls):
        return [
            case(src=(3, 4), axis=1), case(src=(5,), axis=0, last=True), case(src=(1,), axis=0),
            case(src=(2, 1, 3, 1, 7), axis=4), case("i8", src=(3, 17, 2), axis=1),
            case("i8", src=(3, 17, 2), axis=1, last=True),
            case("f64", src=(4, 3, 2), axis=0), case("ui8", src=(2, 33), axis=1), case(src=(0, 4), axis=1),
            *(case(t, src=(3, 50), axis=1) for t in SHORT),
        ]  # fmt: skip


# fmt: off
Argmax = _ArgExtreme.row(
    "argmax", "max=", np.argmax,
    "The index (i64) of the maximum along `axis`, which stays with length 1: of its first occurrence, or with `last` "
    "of "
    "its last one. NaN is larger than every number.")
Argmin = _ArgExtreme.row(
    "argmin", "min=", np.argmin,
    "The index (i64) of the minimum along `axis`, which stays with length 1: of its first occurrence, or with `last` "
    "of "
    "its last one. NaN is smaller than every number.")
# fmt: on


class _AxisReduction(LnOp):
    src = operand()
    dst = result(dims=_REDUCED)
    axis = number("int", ge=0, lt="src.ndim")

    def flops(self):
        return self.operand_specs[0].len

    @classmethod
    def samples(cls):
        return [
            case(src=(3, 4), axis=1), case(src=(5,), axis=0), case(src=(1,), axis=0), case(src=(2, 1, 3, 1, 7), axis=4),
            case("i8", src=(3, 17, 2), axis=1), case("f64", src=(4, 3, 2), axis=0), case("ui8", src=(2, 33), axis=1),
            case(src=(0, 3), axis=1),
        ]  # fmt: skip


# maxreduce(x, axis) = x, where the axis has length 1
@rule("maxreduce")
def maxreduce_of_one(op):
    return op.src if op.operand_specs == op.result_specs else None


@ln_op
class Maxreduce(_AxisReduction):
    """The maximum along `axis`, which stays with length 1; of nothing the lowest value of the type (-inf for floats).
    NaN propagates.

    ```mlir
    // %x : tensor<3x5xf32>
    %y = ln.maxreduce %x {axis = 1} : tensor<3x1xf32>
    ```
    """

    optype = "maxreduce"
    definition = "dst[i:axis..., 0, k...] max= src[i..., j, k...]"
    rewrites = (maxreduce_of_one,)

    @classmethod
    def samples(cls):
        return [*super().samples(), case("i8", src=(2, 0, 3), axis=1), case("ui16", src=(0,), axis=0)]

    def reference(self, src):
        return largest(src, self.axis, _extreme(src.dtype, low=True), keepdims=True)


@ln_op
class MaxreduceArg(_AxisReduction):
    """The maximum along `axis` and the index of its first occurrence (i32); the axis stays with length 1.

    ```mlir
    // %x : tensor<3x5xf32>
    %y, %i = ln.maxreduce_arg %x {axis = 1} : tensor<3x1xf32>, tensor<3x1xi32>
    ```
    """

    optype = "maxreduce_arg"
    arg = result(dims=_REDUCED, dtype="i32")
    picks = "[src.dims[axis]]"
    definition = "dst[i:axis..., 0, k...], arg[i:axis..., 0, k...] argmax= src[i..., j, k...]"

    def reference(self, src):
        arg = src.argmax(axis=self.axis)
        value = np.take_along_axis(src, np.expand_dims(arg, self.axis), self.axis)
        return value, np.expand_dims(arg, self.axis).astype(np.int32)


@ln_op
class DotProduct(LnOp):
    """The sum of the products of all elements, accumulated in the tensors' type, as a tensor of one element.

    ```mlir
    // %a : tensor<9xf32>, %b : tensor<9xf32>
    %y = ln.dot_product %a, %b : tensor<1xf32>
    ```
    """

    optype = "dot_product"
    src1 = operand()
    src2 = operand(same_type="src1", same_shape="src1")
    dst = result(dims="[1]")
    definition = "dst[0] += src1[i...] * src2[i...]"

    def flops(self):
        return 2 * self.operand_specs[0].len

    def reference(self, src1, src2):
        if is_float(src1.dtype):
            return total((src1.astype(np.float64) * src2).reshape(-1), 0, keepdims=True).astype(src1.dtype)
        with np.errstate(over="ignore"):
            return np.asarray([np.sum(src1 * src2, dtype=src1.dtype)])

    @classmethod
    def samples(cls):
        return [case(src1=s, src2=s) for s in ((1,), (7,), (3, 5), (2, 1, 3, 1, 50), (), (2, 0))] + [
            case("i8", src1=(40,), src2=(40,)), case("f64", src1=(3, 3), src2=(3, 3)),
        ]  # fmt: skip
