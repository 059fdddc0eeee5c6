"""Sorting and picking in one dimension: `sort1d`, `sort1d_by_key`, `pick1d`."""

from __future__ import annotations

import numpy as np

from lightnet.ir.op import LnOp, case, ln_op, number, operand, result, string
from lightnet.ir.types import TensorSpec

_DIRECTIONS = ("TL_SORT_DIR_ASCENDING", "TL_SORT_DIR_DESCENDING")


def _order(keys: np.ndarray, direction: str) -> np.ndarray:
    """The stable order of `keys`; NaN counts as larger than everything."""
    if direction == _DIRECTIONS[0]:
        return np.argsort(keys, kind="stable")
    return len(keys) - 1 - np.argsort(keys[::-1], kind="stable")[::-1]


@ln_op
class Sort1d(LnOp):
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
        ]  # fmt: skip


@ln_op
class Sort1dByKey(LnOp):
    """The keys in order, and the values in the order of their keys; stable; NaN counts as the largest key.

    ```mlir
    %k, %v = ln.sort1d_by_key %key, %val {dir = "TL_SORT_DIR_DESCENDING"} : tensor<9xf32>, tensor<9xi32>
    ```
    """

    optype = "sort1d_by_key"
    src_key = operand(rank=1)
    src_val = operand(rank=1, dtypes=("i32",))
    dst_key = result(owner="src_key", overwrites=True)
    dst_val = result(owner="src_val", overwrites=True)
    dir = string(*_DIRECTIONS)
    checks = {"same-length": "src_val.len == src_key.len"}

    @classmethod
    def infer(cls, t, p):
        return [t.src_key, t.src_val]

    def reference(self, src_key, src_val):
        order = _order(src_key, self.dir)
        return src_key[order], src_val[order]

    @classmethod
    def samples(cls):
        return [case(src_key=(n,), src_val=((n,), "i32"), dir=d) for d in _DIRECTIONS for n in (1, 2, 17, 100)] + [
            case("i8", src_key=(300,), src_val=((300,), "i32"), dir=d) for d in _DIRECTIONS
        ]  # fmt: skip


@ln_op
class Pick1d(LnOp):
    """Groups of `stride` elements, picked by index: dst[i * stride + j] = src[index[i] * stride + j] for i < len. An
    index outside is clamped to the first or last group.

    ```mlir
    %y = ln.pick1d %x, %index {len = 4, stride = 2} : tensor<8xf32>
    ```
    """

    optype = "pick1d"
    src = operand(rank=1)
    src_index = operand(kind="index", rank=1, dtypes=("i32",))
    dst = result()
    len = number("int", gt=0, le="src_index.len")
    stride = number("int", ge=1, default=1)
    checks = {"one-group": "stride <= src.len"}
    definition = "dst[i] = src[clamp(src_index[i / stride], 0, src.len / stride - 1) * stride + i % stride]"

    @classmethod
    def infer(cls, t, p):
        return [TensorSpec((p.len * p.stride,), t.src.dtype)]

    def reference(self, src, src_index):
        groups = src[: len(src) // self.stride * self.stride].reshape(-1, self.stride)
        return groups[np.clip(src_index[: self.len], 0, len(groups) - 1)].reshape(-1)

    @classmethod
    def samples(cls):
        return [
            case(src=(20,), src_index=((7,), "i32"), len=5, stride=4), case(src=(1,), src_index=((1,), "i32"), len=1, stride=1),
            case("i32", src=(9,), src_index=((9,), "i32"), len=9, stride=1),
            case(src=(11,), src_index=((6,), "i32"), len=6, stride=3),
        ]  # fmt: skip


OPS = (Sort1d, Sort1dByKey, Pick1d)
