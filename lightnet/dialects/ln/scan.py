"""Ops along one axis in which each element needs those before it: `cumsum`, `cumprod`, `topk`, `topk_of`.

They carry a value through their loop, or sort, which index notation does not say; so they have loop-level builders.
"""

from __future__ import annotations

from contextlib import nullcontext
from math import prod

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import MemRefType, f32, i64

from lightnet.dialects.ln.numeric import SHORT, widened
from lightnet.dialects.ln.scatter import accumulate, narrowed, widened_element
from lightnet.dialects.ln.sort import count_of, goes_before, merge_sort
from lightnet.ir.op import LnOp, boolean, case, ln_op, number, operand, result
from lightnet.ir.types import TensorSpec, storage_type
from lightnet.runtime.arrays import align_up
from lightnet.runtime.dtypes import DTYPES
from lightnet.runtime.initial import sample

#: The longest list of best elements that `topk` inserts into; for more it sorts.
MAX_INSERTED = 32
_NUMBERS = tuple(d.name for d in DTYPES if d.name != "i1")


def _lines(spec: TensorSpec, axis: int) -> int:
    """The number of lines that a tensor has along an axis."""
    return prod(spec.dims[:axis]) * prod(spec.dims[axis + 1 :])


class _Scan(LnOp):
    src = operand(min_rank=1, dtypes=_NUMBERS)
    dst = result()
    axis = number("int", ge=0, lt="src.ndim")
    exclusive = boolean(default=False)
    reverse = boolean(default=False)
    has_builder = True
    step = ""

    def blocks(self):
        return _lines(self.operand_specs[0], self.axis)

    def build_loops(self, b, operands, results, workspace):
        (src,), (dst,), spec = operands, results, self.operand_specs[0]
        n, inner, dtype = spec.dims[self.axis], prod(spec.dims[self.axis + 1 :]), spec.dtype
        start = b.const(self.step == "mul", f32 if dtype.is_short else storage_type(dtype))
        with b.loop(b.lo, b.hi, name="line") as line:
            block, lane = b.divmod(line.iv, inner)
            first = b.add(b.mul(block, n * inner), lane)
            with b.loop(0, n, carry=[start]) as i:
                place = b.op(arith.SubiOp, b.index(n - 1), i.iv) if self.reverse else i.iv
                at, (total,) = b.add(first, b.mul(place, inner)), i.args
                after = accumulate(b, self.step, total, widened_element(b, b.load(src, [at]), dtype), dtype)
                b.store(narrowed(b, total if self.exclusive else after, dtype), dst, [at])
                i.yields(after)

    def _scan(self, src: np.ndarray, function, start: int) -> np.ndarray:
        wide = np.flip(widened(src), self.axis) if self.reverse else widened(src)
        found = function(wide, axis=self.axis, dtype=wide.dtype)
        if self.exclusive:
            head = np.full_like(np.take(found, [0], self.axis), start) if src.size else found
            found = np.concatenate([head, found], self.axis).take(range(src.shape[self.axis]), self.axis)
        return (np.flip(found, self.axis) if self.reverse else found).astype(src.dtype)

    @classmethod
    def samples(cls):
        return [
            case(src=(3, 17), axis=1, exclusive=e, reverse=r) for e in (False, True) for r in (False, True)
        ] + [
            case(src=(1,), axis=0), case(src=(2, 1, 5, 1, 3), axis=2), case("i32", src=(3, 9), axis=0, exclusive=True),
            case("ui8", src=(40,), axis=0), case("f64", src=(4, 3), axis=0, reverse=True), case(src=(0, 3), axis=0),
            *(case(t, src=(3, 9), axis=1) for t in SHORT),
        ]  # fmt: skip


@ln_op
class Cumsum(_Scan):
    """Along `axis`, the sum of the elements up to each one; with `exclusive` without it, with `reverse` from the end.
    Integers wrap; f16 and bf16 are summed in f32.

    ```mlir
    // %x : tensor<3x5xf32>
    %y = ln.cumsum %x {axis = 1, exclusive = true} : tensor<3x5xf32>
    ```
    """

    optype = "cumsum"
    step = "add"

    def reference(self, src):
        found = self._scan(src, np.cumsum, 0)
        return found + found.dtype.type(0)  # running sums begin at 0: no -0 comes out


@ln_op
class Cumprod(_Scan):
    """Along `axis`, the product of the elements up to each one; with `exclusive` without it, with `reverse` from the
    end. Integers wrap; f16 and bf16 are multiplied in f32.

    ```mlir
    // %x : tensor<3x5xf32>
    %y = ln.cumprod %x {axis = 1} : tensor<3x5xf32>
    ```
    """

    optype = "cumprod"
    src = operand(min_rank=1, dtypes=_NUMBERS, kind="scale")
    step = "mul"

    def reference(self, src):
        return self._scan(src, np.cumprod, 1)


_BEST = "[src.dims[0:axis], k, src.dims[axis + 1:src.ndim]]"


class _Topk(LnOp):
    src = operand(min_rank=1)
    values = result(dims=_BEST)
    indices = result(dims=_BEST, dtype="i64")
    axis = number("int", ge=0, lt="src.ndim")
    k = number("int", ge=0, le="src.dims[axis]")
    largest = boolean(default=True)
    sorted = boolean(default=True)
    has_builder = True

    @property
    def by_insertion(self) -> bool:
        """True if the best are so few that a sorted list of them is kept, which most elements leave alone."""
        return self.k <= MAX_INSERTED

    def _sizes(self) -> list[int]:
        """Bytes of the two buffers of the sort: keys and indices, two halves each."""
        spec = self.operand_specs[0]
        return [align_up(2 * spec.dims[self.axis] * size) for size in (spec.dtype.size, 8)]

    def workspace_bytes(self):
        return 0 if self.by_insertion else sum(self._sizes())

    def flops(self):
        n = self.operand_specs[0].dims[self.axis]
        return self.operand_specs[0].len * max(1, max(n - 1, 0).bit_length())

    def blocks(self):
        return _lines(self.operand_specs[0], self.axis) if self.by_insertion else 1

    def build_loops(self, b, operands, results, workspace):
        """One line after the other: sorted in the workspace, or into a short list in the results."""
        (src, *limits), (values, indices), spec = operands, results, self.operand_specs[0]
        n, inner, k, dtype = spec.dims[self.axis], prod(spec.dims[self.axis + 1 :]), self.k, spec.dtype
        if self.result_specs[0].len == 0:
            return
        limit = count_of(b, limits[0], n) if limits else None
        end, found = (n, k) if limit is None else (limit, b.op(arith.MinSIOp, limit, b.index(k)))
        if self.by_insertion:
            with b.loop(b.lo, b.hi, name="line") as line:
                block, lane = b.divmod(line.iv, inner)
                first, to = (b.add(b.mul(block, m * inner), lane) for m in (n, k))
                for low, high in ((0, found), (k, end)):
                    with b.loop(low, high) as i:
                        at = b.add(first, b.mul(i.iv, inner))
                        self._insert(b, src, at, i.iv, (values, indices), to, inner, is_full=low == k)
                self._clear(b, (values, indices), found, to, inner)
            return
        keys = b.view(workspace, 0, MemRefType(storage_type(dtype), [2, n]), name="keys")
        order = b.view(workspace, self._sizes()[0], MemRefType(i64, [2, n]), name="order")
        with b.loop(0, prod(spec.dims[: self.axis]), name="block") as block, b.loop(0, inner, name="lane") as lane:
            first = b.add(b.mul(block.iv, n * inner), lane.iv)
            with b.loop(0, end) as i:
                b.store(b.load(src, [b.add(first, b.mul(i.iv, inner))]), keys, [0, i.iv])
                b.store(b.op(arith.IndexCastOp, i.iv, type=i64), order, [0, i.iv])
            half = merge_sort(b, [keys, order], n, lambda x, y: goes_before(b, x, y, dtype, self.largest), limit)
            first = b.add(b.mul(block.iv, k * inner), lane.iv)
            with b.loop(0, found) as i:
                at = b.add(first, b.mul(i.iv, inner))
                b.store(b.load(keys, [half, i.iv]), values, [at])
                b.store(b.load(order, [half, i.iv]), indices, [at])
            self._clear(b, (values, indices), found, first, inner)

    def _clear(self, b, lists, found, to, inner) -> None:
        """Zeros behind the `found` best of a line."""
        if isinstance(found, int):
            return
        with b.loop(found, self.k) as i:
            for memory, spec in zip(lists, self.result_specs):
                b.store(b.const(0, storage_type(spec.dtype)), memory, [b.add(to, b.mul(i.iv, inner))])

    def _insert(self, b, src, at, i, lists, to, inner, is_full) -> None:
        """Put element `i` of a line into the list of at most k, at `to`, if it belongs there; of equal ones, behind. A
        list that `is_full` has k elements, any other one i."""
        dtype, k, one = self.operand_specs[0].dtype, self.k, b.index(1)
        x, (values, indices) = b.load(src, [at]), lists

        def place(j):
            return [b.add(to, b.mul(j, inner))]

        count, last = (b.index(k), b.index(k - 1)) if is_full else (i, i)
        better = goes_before(b, x, b.load(values, place(last)), dtype, self.largest) if is_full else None
        with b.when(better) if better is not None else nullcontext():
            with b.loop(0, count, carry=[b.index(0)], name="j") as j:
                after = goes_before(b, x, b.load(values, place(j.iv)), dtype, self.largest)
                j.yields(b.select(after, j.args[0], b.add(j.args[0], one)))
            (position,) = j.results
            with b.loop(position, last, name="j") as j:  # from the end on, each moves up by one
                target = b.op(arith.SubiOp, b.add(last, position), j.iv)
                source = b.op(arith.SubiOp, target, one)
                for memory in lists:
                    b.store(b.load(memory, place(source)), memory, place(target))
            b.store(x, values, place(position))
            b.store(b.op(arith.IndexCastOp, i, type=i64), indices, place(position))

    def best(self, src: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The best along the axis, with NumPy."""
        wide = src.astype(np.uint8) if src.dtype == np.bool_ else widened(src)
        if self.largest:  # the stable order of the reversed axis, backwards
            last = wide.shape[self.axis] - 1
            order = last - np.flip(np.argsort(np.flip(wide, self.axis), self.axis, kind="stable"), self.axis)
        else:
            order = np.argsort(wide, self.axis, kind="stable")
        order = order.take(range(min(self.k, src.shape[self.axis])), self.axis)
        return np.take_along_axis(src, order, self.axis), order.astype(np.int64)


@ln_op
class Topk(_Topk):
    """The `k` largest (or smallest) elements along `axis` in order, and their indices (i64). Of equal elements the one
    with the lower index comes first; NaN counts as the largest. They are in order whether `sorted` asks for it or not.

    ```mlir
    // %x : tensor<3x9xf32>
    %y, %i = ln.topk %x {axis = 1, k = 2} : tensor<3x2xf32>, tensor<3x2xi64>
    ```
    """

    optype = "topk"

    def reference(self, src):
        return self.best(src)

    @classmethod
    def samples(cls):
        return [
            case(t, src=(3, 17), axis=1, k=5, largest=large) for large in (True, False) for t in ("f32", "i32", "ui8",
                "i1", *SHORT)
        ] + [
            case(src=(9,), axis=0, k=9), case(src=(2, 100), axis=1, k=70),
            case("i8", src=(90, 2), axis=0, k=50, largest=False), case(src=(1,), axis=0, k=1),
            case(src=(2, 7, 1, 3, 2), axis=1, k=2),
            case("f64", src=(33, 2), axis=0, k=1, largest=False), case(src=(3, 4), axis=1, k=0),
            case(src=(0, 4), axis=1, k=2),
        ]  # fmt: skip


@ln_op
class TopkOf(_Topk):
    """`topk` of the first `limit` elements along `axis`, as the data says; behind as many there are zeros.

    ```mlir
    // %x : tensor<3x9xf32>, %limit : tensor<i64>
    %y, %i = ln.topk_of %x, %limit {axis = 1, k = 2} : tensor<3x2xf32>, tensor<3x2xi64>
    ```
    """

    optype = "topk_of"
    limit = operand(rank=0, dtypes=("i64",), kind="index")

    def reference(self, src, limit):
        part = src.take(range(int(np.clip(limit, 0, src.shape[self.axis]))), self.axis)
        found = []
        for array in self.best(part):
            rest = [(0, self.k - n if k == self.axis else 0) for k, n in enumerate(array.shape)]
            found.append(np.pad(array, rest))
        return tuple(found)

    @classmethod
    def sample_data(cls, name, kind, spec, tensors, params, seed):
        if name != "limit":
            return super().sample_data(name, kind, spec, tensors, params, seed)
        return sample(name, "index", (), spec.dtype, seed=seed, bound=tensors["src"].dims[params["axis"]] + 1)

    @classmethod
    def samples(cls):
        limit = ((), "i64")
        return [
            case(t, src=(3, 17), limit=limit, axis=1, k=k, largest=large)
            for large in (True, False) for k in (5, 17) for t in ("f32", "i32", "ui8", "i1", *SHORT)
        ] + [
            case(src=(2, 100), limit=limit, axis=1, k=70),
            case("i8", src=(90, 2), limit=limit, axis=0, k=50, largest=False),
            case(src=(2, 7, 1, 3, 2), limit=limit, axis=1, k=2), case(src=(0, 4), limit=limit, axis=1, k=2),
            case(src=(9,), limit=limit, axis=0, k=0),
        ]  # fmt: skip
