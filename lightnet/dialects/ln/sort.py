"""Sorting and picking in one dimension: `sort1d`, `sort1d_by_key`, `pick1d`."""

from __future__ import annotations

from typing import Any

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, IntegerType, MemRefType

from lightnet.dialects.ln import radix
from lightnet.ir.op import LnOp, case, ln_op, number, operand, result, string
from lightnet.ir.types import storage_type
from lightnet.runtime.arrays import align_up
from lightnet.runtime.dtypes import BY_NAME
from lightnet.runtime.initial import sample

_DIRECTIONS = ("TL_SORT_DIR_ASCENDING", "TL_SORT_DIR_DESCENDING")


def _order(keys: np.ndarray, direction: str) -> np.ndarray:
    """The stable order of `keys`; NaN counts as larger than everything."""
    if direction == _DIRECTIONS[0]:
        return np.argsort(keys, kind="stable")
    return len(keys) - 1 - np.argsort(keys[::-1], kind="stable")[::-1]


class _Sort(LnOp):
    """Many keys of 32 bits by their digits (`radix.py`). Else a bottom-up merge sort between two halves of the
    workspace, then a copy to the results (Knuth, volume 3, 5.2.4).

    Keys and values move together. Of two runs, the right element goes first only if it belongs strictly before the left
    one: that is what makes the sort stable.
    """

    has_builder = True

    def workspace_bytes(self):
        if radix.takes(self.operand_specs[0]):
            return radix.workspace_bytes(self.operand_specs)
        return sum(align_up(2 * s.nbytes) for s in self.result_specs)

    def flops(self):
        n = self.operand_specs[0].len
        return n * max(1, (n - 1).bit_length())

    def build_loops(self, b, operands, results, workspace):
        n = self.operand_specs[0].len
        if radix.takes(self.operand_specs[0]):
            radix.build(b, self.operand_specs, operands, results, workspace, self.dir == _DIRECTIONS[1])
            return
        buffers, at = [], 0
        for spec in self.result_specs:
            buffers.append(b.view(workspace, at, MemRefType(storage_type(spec.dtype), [2, n])))
            at += align_up(2 * spec.nbytes)
        with b.loop(0, n) as i:
            for source, buffer in zip(operands, buffers):
                b.store(b.load(source, [i.iv]), buffer, [0, i.iv])
        dtype, descending = self.operand_specs[0].dtype, self.dir == _DIRECTIONS[1]
        half = merge_sort(b, buffers, n, lambda x, y: goes_before(b, x, y, dtype, descending))
        with b.loop(0, n) as i:
            for result, buffer in zip(results, buffers):
                b.store(b.load(buffer, [half, i.iv]), result, [i.iv])


def merge_sort(b, buffers, n: int, before, count=None):
    """Sort the `n` elements in half 0 of `buffers` (memrefs [2, n]: keys, then what moves with them), or the first
    `count` of them (an index that run time knows); stable. Gives the half that they are in at the end: a number, or
    with `count` an index. ``before(x, y)`` says whether key x belongs strictly before key y."""
    passes: Any = max(n - 1, 0).bit_length()
    last: Any = passes % 2
    if count is not None:
        with b.loop(0, passes, carry=[b.index(1), b.index(0)], name="step") as step:
            width, needed = step.args
            more = b.cmpi("slt", width, count)
            step.yields(b.add(width, width), b.select(more, b.add(needed, 1), needed))
        passes = step.results[1]
        last = b.op(arith.RemSIOp, passes, b.index(2))
    end, behind = (n, n - 1) if count is None else (count, b.op(arith.SubiOp, count, b.index(1)))
    with b.loop(0, passes, carry=[b.index(1)], name="step") as step:
        source = b.op(arith.RemSIOp, step.iv, b.index(2))
        target = b.op(arith.SubiOp, b.index(1), source)
        width = step.args[0]
        double = b.add(width, width)
        with b.loop(0, end, double, name="run") as run:
            middle, stop = (_min(b, b.add(run.iv, w), end) for w in (width, double))
            _merge(b, buffers, source, target, run.iv, middle, stop, behind, before)
        step.yields(double)
    return last


def _merge(b, buffers, source, target, low, middle, high, last, before) -> None:
    """Merge [low, middle) and [middle, high) of half `source` into half `target`; `last` is the last element that there
    is."""
    keys, one = buffers[0], b.index(1)
    with b.loop(low, high, carry=[low, middle], name="out") as out:
        left, right = out.args
        here = b.load(keys, [source, _min(b, left, last)])
        there = b.load(keys, [source, _min(b, right, last)])
        first = before(there, here)
        has_left, has_right = b.cmpi("slt", left, middle), b.cmpi("slt", right, high)
        none_left = b.op(arith.XOrIOp, has_left, b.const(1, IntegerType(1)))
        take = b.op(arith.OrIOp, none_left, b.op(arith.AndIOp, has_right, first))
        chosen = b.select(take, right, left)
        for buffer in buffers:
            b.store(b.load(buffer, [source, chosen]), buffer, [target, out.iv])
        out.yields(b.select(take, left, b.add(left, one)), b.select(take, b.add(right, one), right))


def count_of(b, memory, most: int):
    """The number in a tensor of rank 0, between 0 and `most`, as an index."""
    given = b.op(arith.IndexCastOp, b.load(memory, [0]), type=IndexType())
    return b.op(arith.MinSIOp, b.op(arith.MaxSIOp, given, b.index(0)), b.index(most))


def goes_before(b, x, y, dtype, descending: bool):
    """Return whether key x belongs strictly before key y; NaN is the largest key."""
    if descending:
        x, y = y, x
    if not dtype.is_float:
        return b.cmpi("slt" if dtype.kind == "int" else "ult", x, y)
    if dtype.size < 4:
        x, y = (b.cast("extf", v, storage_type(BY_NAME["f32"])) for v in (x, y))
    nan = b.op(arith.AndIOp, b.cmpf("uno", y, y), b.cmpf("ord", x, x))
    return b.op(arith.OrIOp, b.cmpf("olt", x, y), nan)


def _min(b, x, limit):
    return b.op(arith.MinSIOp, x, b.index(limit))


@ln_op
class Sort1d(_Sort):
    """The elements in order; stable; NaN counts as the largest.

    ```mlir
    %y = ln.sort1d %x {dir = "TL_SORT_DIR_DESCENDING"} : tensor<9xf32>
    ```
    """

    optype = "sort1d"
    src_key = operand(rank=1)
    dst_key = result(owner="src_key", overwrites=True)
    dir = string(*_DIRECTIONS)

    def reference(self, src_key):
        return src_key[_order(src_key, self.dir)]

    @classmethod
    def samples(cls):
        return [case(src_key=(n,), dir=d) for d in _DIRECTIONS for n in (1, 2, 17, 100)] + [
            case("i32", src_key=(33,), dir=_DIRECTIONS[0]), case("ui8", src_key=(300,), dir=_DIRECTIONS[1]),
            case(src_key=(600,), dir=_DIRECTIONS[0]),
        ]  # fmt: skip


@ln_op
class Sort1dByKey(_Sort):
    """The keys in order, and the values in the order of their keys; stable; NaN counts as the largest key.

    ```mlir
    // %key : tensor<9xf32>, %val : tensor<9xi32>
    %k, %v = ln.sort1d_by_key %key, %val {dir = "TL_SORT_DIR_DESCENDING"} : tensor<9xf32>, tensor<9xi32>
    ```
    """

    optype = "sort1d_by_key"
    src_key = operand(rank=1)
    src_val = operand(rank=1, dtypes=("i32",))
    dst_key = result(owner="src_key", overwrites=True)
    dst_val = result(dtype="src_val", owner="src_val", overwrites=True)
    dir = string(*_DIRECTIONS)
    checks = {"same-length": "src_val.len == src_key.len"}

    def reference(self, src_key, src_val):
        order = _order(src_key, self.dir)
        return src_key[order], src_val[order]

    @classmethod
    def samples(cls):
        return [case(src_key=(n,), src_val=((n,), "i32"), dir=d) for d in _DIRECTIONS for n in (1, 2, 17, 100)] + [
            case(kind, src_key=(n,), src_val=((n,), "i32"), dir=d)
            for d in _DIRECTIONS
            for kind, n in (("i8", 300), ("f32", 600))
        ]


@ln_op
class Pick1d(LnOp):
    """Groups of `stride` elements, picked by index: dst[i * stride + j] = src[index[i] * stride + j] for i < len. An
    index outside is clamped to the first or last group.

    ```mlir
    // %x : tensor<20xf32>, %index : tensor<10xi32>
    %y = ln.pick1d %x, %index {len = 4, stride = 2} : tensor<8xf32>
    ```
    """

    optype = "pick1d"
    src = operand(rank=1)
    src_index = operand(kind="index", rank=1, dtypes=("i32",))
    dst = result(dims="[len * stride]")
    len = number("int", gt=0, le="src_index.len")
    stride = number("int", ge=1, default=1)
    checks = {"one-group": "stride <= src.len"}
    definition = "dst[i] = src[clamp(src_index[i / stride], 0, src.len / stride - 1) * stride + i % stride]"
    work = 0

    def reference(self, src, src_index):
        groups = src[: len(src) // self.stride * self.stride].reshape(-1, self.stride)
        return groups[np.clip(src_index[: self.len], 0, len(groups) - 1)].reshape(-1)

    @classmethod
    def sample_data(cls, name, kind, spec, tensors, params, seed):
        if kind != "index":
            return super().sample_data(name, kind, spec, tensors, params, seed)
        groups = tensors["src"].len // params["stride"]
        return sample(name, kind, spec.dims, spec.dtype, seed=seed, bound=groups)

    @classmethod
    def samples(cls):
        return [
            case(src=(20,), src_index=((7,), "i32"), len=5, stride=4),
            case(src=(1,), src_index=((1,), "i32"), len=1, stride=1),
            case("i32", src=(9,), src_index=((9,), "i32"), len=9, stride=1),
            case(src=(11,), src_index=((6,), "i32"), len=6, stride=3),
        ]  # fmt: skip
