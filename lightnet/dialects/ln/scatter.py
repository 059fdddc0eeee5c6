"""Ops that write where another tensor says: `scatter_elements`, `scatter_nd`.

Index notation has no subscripts from data on its left side, so that both are loops, over a copy of the operand: updates
are applied in order, and of two to one place without a reduction the later one stays.
"""

from __future__ import annotations

from contextlib import ExitStack
from math import prod

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, f32

from lightnet.dialects.ln.indexing import INDEX_TYPES, WITHIN, _Indexed, in_range
from lightnet.dialects.ln.numeric import SHORT
from lightnet.ir.op import case, ln_op, number, operand, string
from lightnet.ir.types import storage_type
from lightnet.runtime.dtypes import DType

REDUCTIONS = ("none", "add", "mul", "max", "min")
_FLOAT = {"add": arith.AddfOp, "mul": arith.MulfOp, "max": arith.MaximumfOp, "min": arith.MinimumfOp}
_SIGNED = {"add": arith.AddiOp, "mul": arith.MuliOp, "max": arith.MaxSIOp, "min": arith.MinSIOp}
_UNSIGNED = _SIGNED | {"max": arith.MaxUIOp, "min": arith.MinUIOp}
_BOOL = {"add": arith.OrIOp, "mul": arith.AndIOp, "max": arith.OrIOp, "min": arith.AndIOp}
_UFUNC = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def widened_element(b, value, dtype: DType):
    """A loaded value in the type that it is computed in: f32 for f16 and bf16."""
    return b.cast("extf", value, f32) if dtype.is_float and dtype.size < 4 else value


def narrowed(b, value, dtype: DType):
    """The way back: rounded to the type that it is stored in."""
    return b.cast("truncf", value, storage_type(dtype)) if dtype.is_float and dtype.size < 4 else value


def accumulate(b, reduction: str, old, new, dtype: DType):
    """One step of a reduction, in the type that values are computed in."""
    table = (
        _FLOAT if dtype.is_float else _BOOL if dtype.kind == "bool" else _UNSIGNED if dtype.kind == "uint" else _SIGNED
    )
    return b.op(table[reduction], old, new)


class _Scatter(_Indexed):
    updates = operand(same_type="src")
    reduction = string(*REDUCTIONS, default="none")
    has_builder = True

    def flops(self):
        return 0 if self.reduction == "none" else self.operand_specs[2].len

    def copy_source(self, b, src, dst) -> None:
        """dst = src, to begin with."""
        with b.loop(0, self.operand_specs[0].len) as i:
            b.store(b.load(src, [i.iv]), dst, [i.iv])

    def place(self, b, index, at, n: int):
        """The element of an axis of length `n` that the index at `at` means."""
        raw = b.op(arith.IndexCastOp, b.load(index, [at]), type=IndexType())
        raw = b.select(b.cmpi("slt", raw, b.index(0)), b.add(raw, n), raw)
        return b.op(arith.MinSIOp, b.op(arith.MaxSIOp, raw, b.index(0)), b.index(n - 1))

    def write(self, b, updates, update, dst, at) -> None:
        """Apply one update."""
        dtype = self.operand_specs[0].dtype
        value = b.load(updates, [update])
        if self.reduction != "none":
            old, new = (widened_element(b, v, dtype) for v in (b.load(dst, [at]), value))
            value = narrowed(b, accumulate(b, self.reduction, old, new, dtype), dtype)
        b.store(value, dst, [at])

    def apply(self, out: np.ndarray, at: tuple[np.ndarray, ...], updates: np.ndarray) -> np.ndarray:
        """The updates in order, with NumPy."""
        if self.reduction == "none":
            out[at] = updates  # of equal indices, NumPy keeps the last
        else:
            rounds = out.dtype.kind in "iub" or out.dtype.itemsize < 4
            wide = out if rounds else out.astype(np.float64)
            _UFUNC[self.reduction].at(wide, at, updates.astype(wide.dtype))
            out[...] = wide.astype(out.dtype)
        return out


@ln_op
class ScatterElements(_Scatter):
    """`src` with each element of `updates` written (or by `reduction` added, multiplied, …) where `index`, of the same
    shape, says: along `axis` at that index, else at its own place: ``dst[index[i, j], j] = updates[i, j]`` for axis 0.
    Negative indices count from the end; what is outside is clamped. f16 and bf16 round after each update.

    ```mlir
    // %x : tensor<5x4xf32>, %index : tensor<2x4xi64>, %u : tensor<2x4xf32>
    %y = ln.scatter_elements %x, %index, %u {axis = 0, reduction = "add"} : tensor<5x4xf32>
    ```
    """

    optype = "scatter_elements"
    src = operand(min_rank=1)
    updates = operand(same_type="src", same_shape="index")
    axis = number("int", ge=0, lt="src.ndim")
    checks = {**WITHIN, "not-empty": "index.len == 0 || src.dims[axis] > 0"}

    def build_loops(self, b, operands, results, workspace):
        (src, index, updates), (dst,) = operands, results
        self.copy_source(b, src, dst)
        dims, shape = self.operand_specs[0].dims, self.operand_specs[1].dims
        if 0 in shape:
            return
        with ExitStack() as stack:
            update = at = b.index(0)
            for k, n in enumerate(shape):
                i = stack.enter_context(b.loop(0, n)).iv
                update = b.add(update, b.mul(i, prod(shape[k + 1 :])))
                if k != self.axis:
                    at = b.add(at, b.mul(i, prod(dims[k + 1 :])))
            along = self.place(b, index, update, dims[self.axis])
            self.write(b, updates, update, dst, b.add(at, b.mul(along, prod(dims[self.axis + 1 :]))))

    def reference(self, src, index, updates):
        at = list(np.indices(index.shape))
        at[self.axis] = in_range(index, src.shape[self.axis])
        return self.apply(src.copy(), tuple(at), updates)

    @classmethod
    def samples(cls):
        return [
            case(t, src=(5, 4), index=((3, 4), "i64"), updates=(3, 4), axis=0, reduction=r)
            for r in REDUCTIONS for t in ("f32", "i32", "ui8", *SHORT)
        ] + [
            case(src=(7,), index=((4,), "i32"), updates=(4,), axis=0),
            case(src=(3, 17), index=((2, 20), "i64"), updates=(2, 20), axis=1),
            case("i64", src=(2, 1, 3, 1, 5), index=((1, 1, 4, 1, 2), "i64"), updates=(1, 1, 4, 1, 2), axis=2),
            case("i1", src=(6,), index=((3,), "i64"), updates=(3,), axis=0, reduction="max"),
            case(src=(2, 3), index=((0, 3), "i64"), updates=(0, 3), axis=0),
        ]  # fmt: skip


@ln_op
class ScatterNd(_Scatter):
    """`src` with slices of it written (or by `reduction` added, multiplied, …) from `updates`, at the places that the
    last axis of `index` holds: updates.dims = index.dims[:-1] + src.dims[index.dims[-1]:]. Negative numbers count from
    the end; what is outside is clamped. f16 and bf16 round after each update.

    ```mlir
    // %x : tensor<5x4xf32>, %index : tensor<3x1xi64>, %u : tensor<3x4xf32>
    %y = ln.scatter_nd %x, %index, %u : tensor<5x4xf32>
    ```
    """

    optype = "scatter_nd"
    src = operand(min_rank=1)
    index = operand(kind="index", dtypes=INDEX_TYPES, min_rank=1)
    checks = {
        "depth": "index.dims[index.ndim - 1] <= src.ndim",
        "updates": "updates.dims == [index.dims[0:index.ndim - 1], src.dims[index.dims[index.ndim - 1]:src.ndim]]",
        "not-empty": "prod(index.dims[0:index.ndim - 1]) == 0 || prod(src.dims[0:index.dims[index.ndim - 1]]) > 0",
    }

    def build_loops(self, b, operands, results, workspace):
        (src, index, updates), (dst,) = operands, results
        self.copy_source(b, src, dst)
        dims, shape = self.operand_specs[0].dims, self.operand_specs[1].dims
        depth, size = shape[-1], prod(dims[shape[-1] :])
        if self.operand_specs[2].len == 0:
            return
        with b.loop(0, prod(shape[:-1]), name="row") as row:
            at = b.index(0)
            for k in range(depth):
                along = self.place(b, index, b.add(b.mul(row.iv, depth), k), dims[k])
                at = b.add(at, b.mul(along, prod(dims[k + 1 :])))
            first = b.mul(row.iv, size)
            with b.loop(0, size) as i:
                self.write(b, updates, b.add(first, i.iv), dst, b.add(at, i.iv))

    @classmethod
    def limits(cls, src, index, params):
        """The bounds of the entries of the last axis."""
        return src.dims[: index.dims[-1]]

    def reference(self, src, index, updates):
        at = tuple(in_range(index[..., k], src.shape[k]) for k in range(index.shape[-1]))
        if not at:
            at = (np.zeros(index.shape[:-1], np.int64),)
            return self.apply(src[None].copy(), at, updates)[0]
        return self.apply(src.copy(), at, updates)

    @classmethod
    def samples(cls):
        return [
            case(t, src=(5, 4), index=((3, 1), "i64"), updates=(3, 4), reduction=r) for r in REDUCTIONS for t in ("f32",
                "i8", *SHORT)
        ] + [
            case(src=(4, 5, 6), index=((2, 3, 2), "i32"), updates=(2, 3, 6)),
            case(src=(7,), index=((1,), "i64"), updates=()),
            case("i64", src=(2, 3, 1, 2, 5), index=((2, 5), "i64"), updates=(2,)),
            case(src=(3, 2), index=((0, 1), "i64"), updates=(0, 2)),
            case("ui16", src=(3, 4), index=((9, 2), "i64"), updates=(9,), reduction="add"),
        ]  # fmt: skip
