"""Ops whose results are as large as the data decides: `nonzero`, `unique`, `non_max_suppression`.

A result has its bound as a dim of its type, and the op's last result, ``count`` (an i64 of rank 0), says how many of
its rows count. Those behind are 0, so that who gathers by them stays inside of everything. All three are loops over a
position that follows the data, which index notation does not say.
"""

from __future__ import annotations

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, IntegerType, MemRefType, f32, i64

from lightnet.dialects.ln.numeric import SHORT
from lightnet.dialects.ln.scatter import widened_element
from lightnet.dialects.ln.sort import count_of, goes_before, merge_sort
from lightnet.ir.op import LnOp, boolean, case, ln_op, number, operand, result
from lightnet.ir.types import storage_type
from lightnet.runtime.arrays import align_up
from lightnet.runtime.dtypes import BY_NAME, DTYPES
from lightnet.runtime.initial import sample

_I8 = IntegerType(8)


def as_i64(b, index):
    """An index as a number that is stored."""
    return b.op(arith.IndexCastOp, index, type=i64)


@ln_op
class NonZero(LnOp):
    """The places where a tensor is not zero: column k of `indices` [rank, len] has the place of the k-th such element,
    in row-major order. NaN is not zero. Columns from `count` on are 0.

    ```mlir
    // %x : tensor<2x3xf32>
    %i, %n = ln.nonzero %x : tensor<2x6xi64>, tensor<i64>
    ```
    """

    optype = "nonzero"
    src = operand()
    indices = result(dims="[src.ndim, src.len]", dtype="i64")
    count = result(dims="[]", dtype="i64")
    has_builder = True
    work = 0

    def build_loops(self, b, operands, results, workspace):
        (src,), (indices, count), spec = operands, results, self.operand_specs[0]
        element = storage_type(spec.dtype)
        wide = f32 if spec.dtype.is_short else element
        with b.loop(0, spec.len, carry=[b.index(0)]) as i:
            value, zero = widened_element(b, b.load(src, [i.iv]), spec.dtype), b.const(0, wide)
            there = b.cmpf("une", value, zero) if spec.dtype.is_float else b.cmpi("ne", value, zero)
            (place,) = i.args
            with b.when(there):
                rest = i.iv
                for k in range(spec.ndim - 1, -1, -1):
                    rest, at = b.divmod(rest, spec.dims[k]) if k else (b.index(0), rest)
                    b.store(as_i64(b, at), indices, [b.add(place, k * spec.len)])
            i.yields(b.select(there, b.add(place, 1), place))
        (found,) = i.results
        b.store(as_i64(b, found), count, [0])
        for k in range(spec.ndim):
            with b.loop(found, spec.len) as i:
                b.store(b.const(0, i64), indices, [b.add(i.iv, k * spec.len)])

    def reference(self, src):
        found = np.stack(np.nonzero(np.atleast_1d(src)))
        indices = np.zeros(self.result_specs[0].dims, np.int64)
        indices[:, : found.shape[1]] = found[: src.ndim]
        return indices, np.asarray(found.shape[1], np.int64)

    @classmethod
    def sample_data(cls, name, kind, spec, tensors, params, seed):
        drawn = sample(name, "data", spec.dims, spec.dtype, seed=seed)
        hidden = sample(name, "index", spec.dims, BY_NAME["i32"], seed=seed + 1, bound=5)
        return np.where(hidden < 2, np.zeros_like(drawn), drawn)

    @classmethod
    def samples(cls):
        return [case(t.name, src=(3, 7)) for t in DTYPES] + [
            case(src=()), case(src=(1,)), case(src=(33,)), case(src=(2, 1, 5)), case("i8", src=(2, 3, 4, 3)),
            case(src=(2, 3, 1, 2, 5)),
            case(src=(0, 3)), case("i1", src=(4, 0)),
        ]  # fmt: skip


@ln_op
class Unique(LnOp):
    """The different rows among the first `limit` rows of a matrix: `first` says which row each is (the first of those
    that are equal), `inverse` which of them each row is, and `repeats` how many rows are it. In rising order where
    `sorted`, else in the order in which they come. NaN equals NaN, and is the largest; -0 equals 0. Behind `count` (of
    `inverse`: behind `limit`) there are zeros.

    ```mlir
    // %x : tensor<9x1xf32>, %limit : tensor<i64>
    %f, %i, %r, %n = ln.unique %x, %limit : tensor<9xi64>, tensor<9xi64>, tensor<9xi64>, tensor<i64>
    ```
    """

    optype = "unique"
    src = operand(rank=2)
    limit = operand(rank=0, dtypes=("i64",), kind="index")
    first = result(dims="src.dims[0:1]", dtype="i64")
    inverse = result(dims="src.dims[0:1]", dtype="i64")
    repeats = result(dims="src.dims[0:1]", dtype="i64")
    count = result(dims="[]", dtype="i64")
    sorted = boolean(default=True)
    has_builder = True

    def flops(self):
        rows, width = self.operand_specs[0].dims
        return rows * max(width, 1) * max(1, (rows - 1).bit_length())

    def workspace_bytes(self):
        return 3 * align_up(8 * max(self.operand_specs[0].dims[0], 1))

    def build_loops(self, b, operands, results, workspace):
        (src, limit), (first, inverse, repeats, count) = operands, results
        rows = self.operand_specs[0].dims[0]
        if not rows:
            b.store(b.const(0, i64), count, [0])
            return
        n, zero = count_of(b, limit, rows), b.const(0, i64)
        order = b.view(workspace, 0, MemRefType(i64, [2, rows]), name="order")
        number = b.view(workspace, 2 * align_up(8 * rows), MemRefType(i64, [rows]), name="number")
        with b.loop(0, rows) as i:
            b.store(as_i64(b, i.iv), order, [0, i.iv])
            for memory in (first, inverse, repeats):
                b.store(zero, memory, [i.iv])
        half = merge_sort(b, [order], rows, lambda x, y: self._compare(b, src, x, y, "slt"), n)
        # inverse[i] = the first row that equals row i, to begin with
        with b.loop(0, n, carry=[b.index(0)]) as i:
            row = self._row(b, order, half, i.iv)
            head = self._row(b, order, half, b.op(arith.MaxSIOp, b.op(arith.SubiOp, i.iv, b.index(1)), b.index(0)))
            is_new = b.op(
                arith.OrIOp,
                b.cmpi("eq", i.iv, b.index(0)),
                self._compare(b, src, as_i64(b, row), as_i64(b, head), "ne"),
            )
            mine = b.select(is_new, row, i.args[0])
            b.store(as_i64(b, mine), inverse, [row])
            i.yields(mine)
        with b.loop(0, n, carry=[b.index(0)]) as i:
            row = self._row(b, order, half, i.iv) if self.sorted else i.iv
            head = b.op(arith.IndexCastOp, b.load(inverse, [row]), type=IndexType())
            is_first = b.cmpi("eq", head, row)
            (place,) = i.args
            with b.when(is_first):
                b.store(as_i64(b, place), number, [row])
                b.store(as_i64(b, row), first, [place])
            i.yields(b.select(is_first, b.add(place, 1), place))
        b.store(as_i64(b, i.results[0]), count, [0])
        with b.loop(0, n) as i:
            head = b.op(arith.IndexCastOp, b.load(inverse, [i.iv]), type=IndexType())
            which = b.load(number, [head])
            b.store(which, inverse, [i.iv])
            at = b.op(arith.IndexCastOp, which, type=IndexType())
            b.store(b.op(arith.AddiOp, b.load(repeats, [at]), b.const(1, i64)), repeats, [at])

    @staticmethod
    def _row(b, order, half, at):
        return b.op(arith.IndexCastOp, b.load(order, [half, at]), type=IndexType())

    def _compare(self, b, src, x, y, predicate: str):
        """Return whether row `x` (an i64) compares so (``slt``, ``ne``) to row `y`: 0 as they are equal, -1 or 1 by the
        first difference.
        """
        width, dtype = self.operand_specs[0].dims[1], self.operand_specs[0].dtype
        left, right = (b.mul(b.op(arith.IndexCastOp, v, type=IndexType()), width) for v in (x, y))
        with b.loop(0, width, carry=[b.const(0, i64)], name="j") as j:
            p, q = (b.load(src, [b.add(at, j.iv)]) for at in (left, right))
            below, above = goes_before(b, p, q, dtype, False), goes_before(b, q, p, dtype, False)
            here = b.select(below, b.const(-1, i64), b.select(above, b.const(1, i64), b.const(0, i64)))
            j.yields(b.select(b.cmpi("ne", j.args[0], b.const(0, i64)), j.args[0], here))
        return b.cmpi(predicate, j.results[0], b.const(0, i64))

    def reference(self, src, limit):
        rows, n = len(src), int(np.clip(limit, 0, len(src)))
        keys = [tuple((0, 0.0) if v == 0 else (1, 0.0) if v != v else (0, v) for v in row.tolist()) for row in src[:n]]
        found: dict = {}
        for i, key in enumerate(keys):
            found.setdefault(key, []).append(i)
        order = sorted(found) if self.sorted else list(found)
        first, inverse, repeats = np.zeros((3, rows), np.int64)
        for k, key in enumerate(order):
            first[k], repeats[k] = found[key][0], len(found[key])
            inverse[found[key]] = k
        return first, inverse, repeats, np.asarray(len(order), np.int64)

    @classmethod
    def sample_data(cls, name, kind, spec, tensors, params, seed):
        if name == "limit":
            return sample(name, "index", (), spec.dtype, seed=seed, bound=tensors["src"].dims[0] + 1)
        drawn = np.floor(np.abs(sample(name, "data", spec.dims, BY_NAME["f64"], seed=seed)) * 3)
        return np.minimum(drawn, 4).astype(spec.dtype.np)

    @classmethod
    def samples(cls):
        return [case(t, src=(17, 1), limit=((), "i64"), sorted=s) for s in (True, False) for t in ("f32", "f64", "i64",
            "ui8", "i1", *SHORT)] + [
            case(src=(9, 2), limit=((), "i64")), case("i32", src=(33, 3), limit=((), "i64"), sorted=False),
            case(src=(1, 1), limit=((), "i64")),
            case(src=(0, 1), limit=((), "i64")),
        ]  # fmt: skip


@ln_op
class NonMaxSuppression(LnOp):
    """ONNX's suppression: `indices` [rows, 3] has (batch, class, box) of the boxes that stay, of each batch and class
    at most `most`, the best first. Of the first `limit` boxes those count whose score is above `least` (without
    `filtered`, all do), in falling order of score, the lower index first where two are equal; one goes if it overlaps a
    better one that stays by more than `overlap`. There are as many rows as `capacity` boxes of each batch and class;
    those behind `count` are 0.

    `boxes` [B, N, 4] are two opposite corners (y, x, y, x), or with `centred` (x, y, width, height). The overlap is the
    area of the intersection over that of the union; boxes without an area overlap nothing. It is computed in f32.

    ```mlir
    // %b : tensor<1x9x4xf32>, %s : tensor<1x2x9xf32>, %most : tensor<i64>, %overlap : tensor<f32>
    // %least : tensor<f32>, %limit : tensor<i64>
    %i, %n = ln.non_max_suppression %b, %s, %most, %overlap, %least, %limit {capacity = 5}
      : tensor<10x3xi64>, tensor<i64>
    ```
    """

    optype = "non_max_suppression"
    boxes = operand(rank=3, dtypes=("f32",))
    scores = operand(rank=3, dtypes=("f32",))
    most = operand(rank=0, dtypes=("i64",), kind="index")
    overlap = operand(rank=0, dtypes=("f32",))
    least = operand(rank=0, dtypes=("f32",))
    limit = operand(rank=0, dtypes=("i64",), kind="index")
    indices = result(dims="[scores.dims[0] * scores.dims[1] * capacity, 3]", dtype="i64")
    count = result(dims="[]", dtype="i64")
    capacity = number("int", ge=0, le="boxes.dims[1]")
    filtered = boolean(default=True)
    centred = boolean(default=False)
    checks = {
        "corners": "boxes.dims[2] == 4",
        "scores": "scores.dims[0] == boxes.dims[0] && scores.dims[2] == boxes.dims[1]",
    }
    has_builder = True

    def flops(self):
        return 8 * self.operand_specs[1].len * max(self.capacity, 1)

    def _sizes(self) -> list[int]:
        """Bytes of the parts of the workspace: scores and boxes in two halves, for sorting; four corners and an area,
        and which are gone."""
        n = max(self.operand_specs[0].dims[1], 1)
        return [align_up(size * n) for size in (8, 16, *[4] * 5, 1)]

    def workspace_bytes(self):
        return sum(self._sizes())

    def build_loops(self, b, operands, results, workspace):
        (indices, count), dims = results, self.operand_specs[1].dims
        if not self.result_specs[0].len:
            b.store(b.const(0, i64), count, [0])
            return
        suppressor = _Suppressor(self, b, operands, indices, workspace)
        with b.loop(0, dims[0], carry=[b.index(0)], name="batch") as batch:
            with b.loop(0, dims[1], carry=batch.args, name="which") as which:
                which.yields(suppressor.one_class(batch.iv, which.iv, which.args[0]))
            batch.yields(*which.results)
        (found,) = batch.results
        b.store(as_i64(b, found), count, [0])
        with b.loop(b.mul(found, 3), self.result_specs[0].len) as i:
            b.store(b.const(0, i64), indices, [i.iv])

    def reference(self, boxes, scores, most, overlap, least, limit):
        rows, n = [], int(np.clip(limit, 0, boxes.shape[1]))
        for batch, which in np.ndindex(*scores.shape[:2]):
            score, box = scores[batch, which, :n], boxes[batch, :n]
            there = np.flatnonzero(score > least) if self.filtered else np.arange(n)
            order = there[np.argsort(-score[there], kind="stable")]
            kept: list[int] = []
            for i in order:
                if len(kept) >= min(int(most), self.capacity):
                    break
                if not any(_overlap(box[i], box[k], self.centred) > overlap for k in kept):
                    kept.append(i)
            rows += [(batch, which, i) for i in kept]
        indices = np.zeros(self.result_specs[0].dims, np.int64)
        indices[: len(rows)] = np.asarray(rows, np.int64).reshape(-1, 3)
        return indices, np.asarray(len(rows), np.int64)

    @classmethod
    def sample_data(cls, name, kind, spec, tensors, params, seed):
        count = tensors["boxes"].dims[1]
        drawn = sample(name, "data", spec.dims, BY_NAME["f32"], seed=seed)
        match name:
            case "scores":  # some of them equal
                return np.round(np.abs(drawn), 1)
            case "boxes":
                return (np.concatenate([drawn[..., :2], drawn[..., :2] + np.abs(drawn[..., 2:]) + 0.25], -1)).astype(
                    np.float32
                )
            case "most":
                return np.asarray(params["capacity"], np.int64)
            case "limit":
                return np.asarray(count - count // 5, np.int64)
        return np.asarray(0.3, np.float32)

    @classmethod
    def samples(cls):
        def boxes(batch, classes, count, capacity, **p):
            scalar, integer = ((), "f32"), ((), "i64")
            return case(boxes=(batch, count, 4), scores=(batch, classes, count), most=integer, overlap=scalar,
                        least=scalar, limit=integer,
                        capacity=capacity, **p)  # fmt: skip

        return [
            boxes(1, 1, 33, 33), boxes(2, 3, 17, 4), boxes(1, 2, 1, 1), boxes(1, 1, 9, 0), boxes(2, 1, 0, 0),
            boxes(1, 2, 40, 40, filtered=False),
            boxes(2, 2, 21, 21, centred=True),
        ]  # fmt: skip


def _overlap(a: np.ndarray, b: np.ndarray, centred: bool) -> np.float32:
    """Intersection over union of two boxes, 0 where a box has no area."""
    corners = []
    for box in (a, b):
        first, last = (box[:2] - box[2:] / 2, box[:2] + box[2:] / 2) if centred else (box[:2], box[2:])
        corners.append((np.minimum(first, last), np.maximum(first, last)) if not centred else (first, last))
    inter = np.minimum(corners[0][1], corners[1][1]) - np.maximum(corners[0][0], corners[1][0])
    if (inter <= 0).any():
        return np.float32(0)
    areas = [np.prod(high - low) for low, high in corners]
    area = np.prod(inter)
    union = areas[0] + areas[1] - area
    return area / union if min(*areas, union) > 0 else np.float32(0)


class _Suppressor:
    """`non_max_suppression` at the loop level. The boxes of a class lie in order of their scores, a corner behind the
    other, so that a box that stays marks those behind it that go by a loop without branches."""

    def __init__(self, op: NonMaxSuppression, b, operands, indices, workspace):
        self.op, self.b, self.indices = op, b, indices
        self.boxes, self.scores, most, overlap, least, limit = operands
        self.n = n = op.operand_specs[0].dims[1]
        self.classes = op.operand_specs[1].dims[1]
        sizes = op._sizes()
        starts = [sum(sizes[:k]) for k in range(len(sizes))]
        types = [MemRefType(f32, [2, n]), MemRefType(i64, [2, n]), *[MemRefType(f32, [n])] * 5, MemRefType(_I8, [n])]
        self.keys, self.order, *self.corners, self.gone = (b.view(workspace, s, t) for s, t in zip(starts, types))
        self.most, self.limit = count_of(b, most, op.capacity), count_of(b, limit, n)
        self.overlap, self.least = b.load(overlap, [0]), b.load(least, [0])

    def one_class(self, batch, which, found):
        """Write the rows of one class from row `found` on; how many rows there are then."""
        b = self.b
        taken = self.candidates(b.mul(b.add(b.mul(batch, self.classes), which), self.n))
        half = merge_sort(b, [self.keys, self.order], self.n, lambda x, y: b.cmpf("ogt", x, y), taken)
        with b.loop(0, taken) as i:
            box = b.op(arith.IndexCastOp, b.load(self.order, [half, i.iv]), type=IndexType())
            self.place(b.mul(b.add(b.mul(batch, self.n), box), 4), i.iv)
        last = b.add(found, self.most)
        with b.loop(0, taken, carry=[found]) as i:
            (row,) = i.args
            stays = b.op(
                arith.AndIOp, b.cmpi("eq", b.load(self.gone, [i.iv]), b.const(0, _I8)), b.cmpi("slt", row, last)
            )
            with b.when(stays):
                at = b.mul(row, 3)
                numbers = as_i64(b, batch), as_i64(b, which), b.load(self.order, [half, i.iv])
                for k, value in enumerate(numbers):
                    b.store(value, self.indices, [b.add(at, k)])
                is_last = b.cmpi("eq", b.add(row, 1), last)  # of whom it overlaps nobody will ask
                self.mark(i.iv, b.select(is_last, i.iv, taken))
            i.yields(b.select(stays, b.add(row, 1), row))
        return i.results[0]

    def candidates(self, first):
        """The scores that count, and their boxes, in half 0 of what is sorted; how many there are."""
        b = self.b
        with b.loop(0, self.limit, carry=[b.index(0)]) as i:
            (place,) = i.args
            score = b.load(self.scores, [b.add(first, i.iv)])
            b.store(score, self.keys, [0, place])  # which the next one overwrites, unless it counts
            b.store(as_i64(b, i.iv), self.order, [0, place])
            more = b.add(place, 1)
            i.yields(b.select(b.cmpf("ogt", score, self.least), more, place) if self.op.filtered else more)
        return i.results[0]

    def place(self, at, i) -> None:
        """The corners and the area of the box at `at` as number `i` in order."""
        b = self.b
        a = [b.load(self.boxes, [b.add(at, k)]) for k in range(4)]
        if self.op.centred:
            halves = [b.op(arith.DivfOp, v, b.const(2.0, f32)) for v in a[2:]]
            low = [b.op(arith.SubfOp, v, h) for v, h in zip(a, halves)]
            high = [b.op(arith.AddfOp, v, h) for v, h in zip(a, halves)]
        else:
            low = [b.op(arith.MinimumfOp, a[k], a[k + 2]) for k in (0, 1)]
            high = [b.op(arith.MaximumfOp, a[k], a[k + 2]) for k in (0, 1)]
        area = b.op(arith.MulfOp, *(b.op(arith.SubfOp, h, v) for v, h in zip(low, high)))
        for memory, value in zip(self.corners, (*low, *high, area)):
            b.store(value, memory, [i])
        b.store(b.const(0, _I8), self.gone, [i])

    def mark(self, i, end) -> None:
        """Mark those behind number `i`, up to `end`, that overlap it too much."""
        b, zero = self.b, self.b.const(0.0, f32)
        ours = [b.load(memory, [i]) for memory in self.corners]
        with b.loop(b.add(i, 1), end, name="j") as j:
            other = [b.load(memory, [j.iv]) for memory in self.corners]
            low = [b.op(arith.MaximumfOp, ours[k], other[k]) for k in (0, 1)]
            high = [b.op(arith.MinimumfOp, ours[k], other[k]) for k in (2, 3)]
            sides = [b.op(arith.SubfOp, h, v) for v, h in zip(low, high)]
            area = b.op(arith.MulfOp, *sides)
            union = b.op(arith.SubfOp, b.op(arith.AddfOp, ours[4], other[4]), area)
            over = b.cmpf("ogt", b.op(arith.DivfOp, area, union), self.overlap)
            for value in (*sides, ours[4], other[4], union):
                over = b.op(arith.AndIOp, over, b.cmpf("ogt", value, zero))
            b.store(b.select(over, b.const(1, _I8), b.load(self.gone, [j.iv])), self.gone, [j.iv])
