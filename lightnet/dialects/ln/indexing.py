"""Ops that read where another tensor says: `take`, `take_along`, `gather_nd`, `reverse_sequence`.

An index below 0 counts from the end of its axis; one outside of the axis is clamped to its first or last element.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lightnet.dialects.ln.numeric import SHORT
from lightnet.ir.op import LnOp, case, ln_op, number, operand, result
from lightnet.ir.types import TensorSpec
from lightnet.runtime.initial import sample

#: The element types of indices.
INDEX_TYPES = ("i32", "i64")


def from_end(read: str, n: int) -> str:
    """An index of an axis of length `n`, as text of index notation: negative ones count from the end."""
    return f"({read} < 0 ? {read} + {n} : {read})"


def in_range(index: np.ndarray, n: int) -> np.ndarray:
    """The elements of an axis of length `n` that indices mean."""
    index = index.astype(np.int64)
    return np.clip(np.where(index < 0, index + n, index), 0, max(n - 1, 0))


def sample_index(name: str, spec: TensorSpec, limits: Sequence[int], seed: int) -> np.ndarray:
    """Indices, some of them negative; the last axis of `limits` (or all, if there is one) says how large each may
    be."""
    drawn = sample(name, "index", spec.dims, spec.dtype, seed=seed, bound=1 << 20).astype(np.int64)
    high = np.maximum(np.asarray(limits), 1)
    return (drawn % (2 * high) - high).astype(spec.dtype.np).reshape(spec.dims)


#: The constraints where an element of `index` takes its own place along all axes but one.
WITHIN = {
    "same-rank": "src.ndim == index.ndim",
    "dims": "index.dims[0:axis] <= src.dims[0:axis] && index.dims[axis + 1:index.ndim] <= src.dims[axis + 1:src.ndim]",
}


class _Indexed(LnOp):
    src = operand()
    index = operand(kind="index", dtypes=INDEX_TYPES)
    dst = result()
    work = 0

    @classmethod
    def limits(cls, src: TensorSpec, index: TensorSpec, params) -> Sequence[int]:
        """The bounds of the indices of test data."""
        return [src.dims[params["axis"]]]

    @classmethod
    def sample_data(cls, name, kind, spec, tensors, params, seed):
        if kind != "index":
            return super().sample_data(name, kind, spec, tensors, params, seed)
        return sample_index(name, spec, cls.limits(tensors["src"], spec, params), seed)

    def index_limits(self):
        """The lengths of the axes that indices point into: one for all of them, or for each entry of their last
        axis."""
        src, index = self.operand_specs[:2]
        return self.limits(src, index, {p: getattr(self, p) for p in ("axis", "batch_dims") if hasattr(self, p)})


@ln_op
class Take(_Indexed):
    """The elements of one axis that `index` (i32 or i64, of any rank) names: dst.dims = src.dims[:axis] + index.dims +
    src.dims[axis+1:]. Negative indices count from the end; what is outside is clamped.

    ```mlir
    // %x : tensor<2x9x4xf32>, %index : tensor<3x5xi64>
    %y = ln.take %x, %index {axis = 1} : tensor<2x3x5x4xf32>
    ```
    """

    optype = "take"
    src = operand(min_rank=1)
    dst = result(dims="[src.dims[0:axis], index.dims, src.dims[axis + 1:src.ndim]]")
    axis = number("int", ge=0, lt="src.ndim")
    picks = "[src.dims[axis]]"

    @property
    def definition(self):
        at = from_end("index[j...]", self.operand_specs[0].dims[self.axis])
        return f"dst[i:axis..., j..., k...] = src[i..., {at}, k...]"

    def reference(self, src, index):
        return np.take(src, in_range(index, src.shape[self.axis]), axis=self.axis)

    @classmethod
    def samples(cls):
        return [
            case(src=(2, 9, 4), index=((3, 5), "i64"), axis=1), case(src=(7,), index=((4,), "i32"), axis=0),
            case(src=(5, 17), index=((1,), "i32"), axis=0), case(src=(2, 3, 1, 2, 6), index=((4,), "i64"), axis=4),
            case(src=(5, 3), index=((), "i64"), axis=0), case(src=(4,), index=((), "i32"), axis=0),
            case("i64", src=(3, 2), index=((2, 1, 2), "i32"), axis=1),
            case("i1", src=(6,), index=((9,), "i64"), axis=0),
            case(src=(2, 0), index=((0,), "i64"), axis=1),
            *(case(t, src=(3, 4), index=((5,), "i64"), axis=0) for t in SHORT),
        ]  # fmt: skip


@ln_op
class TakeAlong(_Indexed):
    """For each element of `index` (as many axes as `src`), the element of `src` that has this index along `axis`, and
    else stands at the same place: ``dst[i, j] = src[index[i, j], j]`` for axis 0. Negative indices count from the end;
    what is outside is clamped.

    ```mlir
    // %x : tensor<5x4xf32>, %index : tensor<3x4xi64>
    %y = ln.take_along %x, %index {axis = 0} : tensor<3x4xf32>
    ```
    """

    optype = "take_along"
    src = operand(min_rank=1)
    dst = result(dims="index.dims")
    axis = number("int", ge=0, lt="src.ndim")
    checks = WITHIN
    picks = "[src.dims[axis]]"

    @property
    def definition(self):
        at = from_end("index[i..., j, k...]", self.operand_specs[0].dims[self.axis])
        return f"dst[i:axis..., j, k...] = src[i..., {at}, k...]"

    def reference(self, src, index):
        part = tuple(slice(None) if k == self.axis else slice(n) for k, n in enumerate(index.shape))
        return np.take_along_axis(src[part], in_range(index, src.shape[self.axis]), self.axis)

    @classmethod
    def samples(cls):
        return [
            case(src=(5, 4), index=((3, 4), "i64"), axis=0), case(src=(5, 4), index=((3, 2), "i32"), axis=0),
            case(src=(7,), index=((9,), "i64"), axis=0),
            case(src=(2, 1, 3, 1, 5), index=((1, 1, 4, 1, 5), "i64"), axis=2),
            case("i8", src=(3, 17), index=((3, 20), "i64"), axis=1), case(src=(2, 3), index=((0, 3), "i64"), axis=0),
            *(case(t, src=(3, 4), index=((3, 2), "i64"), axis=1) for t in SHORT),
        ]  # fmt: skip


@ln_op
class GatherNd(_Indexed):
    """Slices of `src` at the places that the last axis of `index` holds, one number for each of the axes after the
    first `batch_dims`, which both tensors share: dst.dims = index.dims[:-1] + src.dims[batch_dims + index.dims[-1]:].
    Negative numbers count from the end; what is outside is clamped.

    ```mlir
    // %x : tensor<4x5x6xf32>, %index : tensor<3x2xi64>
    %y = ln.gather_nd %x, %index : tensor<3x6xf32>
    ```
    """

    optype = "gather_nd"
    src = operand(min_rank=1)
    index = operand(kind="index", dtypes=INDEX_TYPES, min_rank=1)
    dst = result(dims="[index.dims[0:index.ndim - 1], src.dims[batch_dims + index.dims[index.ndim - 1]:src.ndim]]")
    batch_dims = number("int", ge=0, lt="index.ndim", default=0)
    checks = {
        "depth": "batch_dims + index.dims[index.ndim - 1] <= src.ndim",
        "batch": "src.dims[0:batch_dims] == index.dims[0:batch_dims]",
    }
    picks = "src.dims[batch_dims:batch_dims + index.dims[index.ndim - 1]]"

    @property
    def definition(self):
        src, index = (s.dims for s in self.operand_specs)
        places = [f"p{k}" for k in range(len(index) - 1)]
        at = [from_end(f"index[{', '.join([*places, str(k)])}]", src[self.batch_dims + k]) for k in range(index[-1])]
        inner = [f"s{k}" for k in range(len(src) - self.batch_dims - index[-1])]
        return f"dst[{', '.join(places + inner)}] = src[{', '.join(places[: self.batch_dims] + at + inner)}]"

    @classmethod
    def limits(cls, src, index, params):
        b = int(params.get("batch_dims", 0))
        return src.dims[b : b + index.dims[-1]]

    def reference(self, src, index):
        b, depth = self.batch_dims, index.shape[-1]
        batch = np.indices(index.shape[:-1])[:b]
        at = [in_range(index[..., k], src.shape[b + k]) for k in range(depth)]
        picked = src[(*batch, *at)] if b + depth else np.broadcast_to(src, (*index.shape[:-1], *src.shape))
        return picked

    @classmethod
    def samples(cls):
        return [
            case(src=(4, 5, 6), index=((3, 2), "i64")), case(src=(4, 5), index=((2, 3, 2), "i32")),
            case(src=(5,), index=((1,), "i64")),
            case(src=(2, 4, 5), index=((2, 3, 1), "i64"), batch_dims=1),
            case("i8", src=(2, 3, 4, 5), index=((2, 3, 2), "i64"), batch_dims=2),
            case(src=(3, 2), index=((2, 1, 2, 1), "i64")), case(src=(3, 2), index=((0, 2), "i64")),
            *(case(t, src=(3, 4), index=((5, 1), "i64")) for t in SHORT),
        ]  # fmt: skip


@ln_op
class ReverseSequence(LnOp):
    """The first ``lens[b]`` elements (at most all) along `time_axis` of each batch entry b in reverse, the others as
    they are.

    ```mlir
    // %x : tensor<6x3x4xf32>, %lens : tensor<3xi64>
    %y = ln.reverse_sequence %x, %lens {batch_axis = 1, time_axis = 0} : tensor<6x3x4xf32>
    ```
    """

    optype = "reverse_sequence"
    src = operand(min_rank=2)
    lens = operand(kind="index", rank=1, dtypes=INDEX_TYPES)
    dst = result()
    batch_axis = number("int", ge=0, lt="src.ndim", default=1)
    time_axis = number("int", ge=0, lt="src.ndim", default=0)
    work = 0
    checks = {"axes": "batch_axis != time_axis", "length": "lens.dims[0] == src.dims[batch_axis]"}

    @property
    def definition(self):
        names = [f"d{k}" for k in range(self.operand_specs[0].ndim)]
        time = names[self.time_axis]
        count = f"min(lens[{names[self.batch_axis]}], {self.operand_specs[0].dims[self.time_axis]})"
        read = list(names)
        read[self.time_axis] = f"({time} < {count} ? {count} - 1 - {time} : {time})"
        return f"dst[{', '.join(names)}] = src[{', '.join(read)}]"

    @classmethod
    def sample_data(cls, name, kind, spec, tensors, params, seed):
        if name != "lens":
            return super().sample_data(name, kind, spec, tensors, params, seed)
        longest = tensors["src"].dims[int(params.get("time_axis", 0))]
        return sample(name, "index", spec.dims, spec.dtype, seed=seed, bound=longest + 1)

    def reference(self, src, lens):
        out = src.copy()
        moved, back = (np.moveaxis(x, (self.batch_axis, self.time_axis), (0, 1)) for x in (src, out))
        for row, turned, n in zip(moved, back, lens):
            turned[: max(n, 0)] = row[: max(n, 0)][::-1]
        return out

    @classmethod
    def samples(cls):
        return [
            case(src=(6, 3, 4), lens=((3,), "i64")), case(src=(3, 6), lens=((3,), "i32"), batch_axis=0, time_axis=1),
            case("i8", src=(2, 5, 1, 3, 1), lens=((5,), "i64")), case(src=(1, 1), lens=((1,), "i64")),
            *(case(t, src=(4, 2), lens=((2,), "i64")) for t in SHORT),
        ]  # fmt: skip
