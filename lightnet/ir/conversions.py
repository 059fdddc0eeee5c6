"""Conversions between dtypes in bound expressions: rounding, saturating, wrapping; constants are converted at once.

f16 and bf16 are types of memory: `widened_value` makes an f32 of what is read from one, `as_stored` takes that back.
Part of `notation.py`; imports `bound` and the dtypes.
"""

from __future__ import annotations

import math

import numpy as np

from lightnet.ir.bound import BOOL, F32, Apply, Const, Node
from lightnet.runtime.dims import Dim
from lightnet.runtime.dtypes import DType, round_to


def convert_constant(value: float, dtype: DType) -> bool | int | float:
    """A constant in `dtype`: saturating, truncating toward zero, as `runtime.dtypes.convert` (whose ints have 64
    bits)."""
    if dtype.kind == "bool":
        return value != 0
    if dtype.is_float:
        if isinstance(value, float) and not math.isfinite(value):
            return value
        lowest, highest = dtype.limits
        value = max(lowest, min(float(max(-(10**308), min(value, 10**308))), highest))
        return float(round_to(np.float64(value), dtype))
    low, high = map(int, dtype.limits)
    if value != value:
        return 0
    if isinstance(value, float) and math.isinf(value):
        return high if value > 0 else low
    return max(low, min(int(value), high))


def _is_number(node: Node) -> bool:
    """Return whether a node is a constant in every call."""
    return isinstance(node, Const) and not isinstance(node.value, Dim)


def cast(node: Node, dtype: DType) -> Node:
    """`node` in `dtype`, floats to floats by rounding; constants are converted at once."""
    if node.dtype is dtype:
        return node
    if isinstance(node, Const) and _is_number(node):
        return Const(convert_constant(node.value, dtype), dtype)
    if node.dtype.is_short and dtype is not F32:
        node = widened_value(node)
    if dtype.is_short:  # of f32, and rounded once of f64
        if as_stored(node).dtype is dtype:
            return as_stored(node)
        if not node.dtype.is_float:
            node = Apply("cast", (node,), F32)
    return node if node.dtype is dtype else Apply("cast", (node,), dtype)


def widened_value(node: Node) -> Node:
    """A value that was stored in f16 or bf16, as one of f32; any other as it is."""
    return cast(node, F32) if node.dtype.is_short else node


def as_stored(node: Node) -> Node:
    """The converse of `widened_value`: exact, so that a value that is only moved is not converted."""
    if isinstance(node, Apply) and node.fn == "cast" and node.dtype is F32 and node.args[0].dtype.is_short:
        return node.args[0]
    return node


def saturated(node: Node, dtype: DType) -> Node:
    """`node` in `dtype` as `runtime.dtypes.convert` has it: no finite number becomes an infinity."""
    old = as_stored(node).dtype
    if _is_number(node) or old is dtype or not dtype.is_float or dtype.limits[1] >= old.limits[1]:
        return cast(node, dtype)
    if not node.dtype.is_float:
        node = cast(node, F32)
    low, high = (Const(limit, node.dtype) for limit in dtype.limits)
    inside = Apply("min", (Apply("max", (node, low), node.dtype), high), node.dtype)
    if old.is_float:
        inside = Apply("select", (not_finite("isinf", node), node, inside), node.dtype)
    return cast(inside, dtype)


def wrap(node: Node, dtype: DType) -> Node:
    """`node` in `dtype` as C converts: an integer keeps its low bits; all else is as in `cast`."""
    old = node.dtype
    if isinstance(node, Const) and isinstance(node.value, Dim):
        return cast(node, dtype)
    if isinstance(node, Const) and dtype.is_float:
        return Const(float(round_to(np.float64(node.value), dtype)), dtype)
    if isinstance(node, Const) and isinstance(node.value, int) and dtype.kind in ("int", "uint"):
        low = 1 << (dtype.bits - 1) if dtype.kind == "int" else 0
        return Const((int(node.value) + low) % (1 << dtype.bits) - low, dtype)
    if old.kind not in ("int", "uint") or dtype.kind not in ("int", "uint"):
        return cast(node, dtype)
    fits = old.bits < dtype.bits and (old.kind == "uint" or dtype.kind == "int")
    return node if old is dtype else Apply("cast" if fits else "wrap", (node,), dtype)


def not_finite(fn: str, x: Node) -> Node:
    """``isnan(x)``: x differs from itself. ``isinf(x)``: its magnitude is infinity."""
    if not x.dtype.is_float:
        return Const(False, BOOL)
    if fn == "isnan":
        return Apply("ne", (x, x), BOOL)
    return Apply("eq", (Apply("abs", (x,), x.dtype), Const(math.inf, x.dtype)), BOOL)
