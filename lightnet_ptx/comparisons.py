"""Comparisons, selections and tests, which are about predicates. Imports NumPy.

An ordered comparison (``lt``) is false where an operand is NaN, an unordered one (``ltu``) is true. Semantics: "PTX
ISA", 9.7.6.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lightnet_ptx.rounding import bf16_to_f32, f16
from lightnet_ptx.tables import Array, Row, Table

_ORDERED = {"eq": np.equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
#: Unsigned comparisons: lower, lower or same, higher, higher or same.
_UNSIGNED = {"lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal}
_COMBINE = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}

Function = Callable[..., Array]


def _unordered(fn: Function) -> Function:
    return lambda a, b: np.isnan(a) | np.isnan(b) | fn(a, b)


def float_comparisons() -> dict[str, Function]:
    """The comparisons of floats by name."""
    ne = lambda a, b: (a != b) & ~(np.isnan(a) | np.isnan(b))  # noqa: E731
    table: dict[str, Function] = {**_ORDERED, "ne": ne, "neu": np.not_equal}
    table |= {f"{name}u": _unordered(fn) for name, fn in _ORDERED.items()}
    table["num"] = lambda a, b: ~(np.isnan(a) | np.isnan(b))
    table["nan"] = lambda a, b: np.isnan(a) | np.isnan(b)
    return table


def _of_bf16(fn: Function) -> Function:
    return lambda a, b, *p: fn(bf16_to_f32(a), bf16_to_f32(b), *p)


def _combined(fn: Function, op: Function) -> Function:
    return lambda a, b, p: op(fn(a, b), p)


def _setp(table: Table) -> None:
    def add(name: str, fn: Function, kind: str) -> None:
        table[f"setp.{name}.{kind}"] = Row(fn, "pred", (kind, kind))
        for word, op in _COMBINE.items():
            table[f"setp.{name}.{word}.{kind}"] = Row(_combined(fn, op), "pred", (kind, kind, "pred"))

    for bits in (16, 32, 64):
        for name, fn in (("eq", np.equal), ("ne", np.not_equal)):
            for k in "bsu":
                add(name, fn, f"{k}{bits}")
        for name in ("lt", "le", "gt", "ge"):
            for k in "su":
                add(name, _ORDERED[name], f"{k}{bits}")
        for name in _UNSIGNED:
            add(name, _UNSIGNED[name], f"u{bits}")
    for name, compare in float_comparisons().items():
        for kind in ("f16", "f32", "f64"):
            add(name, compare, kind)
        add(name, _of_bf16(compare), "bf16")


def _pairs(table: Table) -> None:
    """``setp.lt.f16x2 p|q``: `fn` gives two predicates, of the low and the high half, as an array [2, threads]."""
    for name, fn in float_comparisons().items():
        for kind, dtype, change in (("f16x2", f16, lambda f: f), ("bf16x2", np.uint16, _of_bf16)):

            def both(a: Array, b: Array, fn: Function = change(fn), dtype: type = dtype) -> Array:
                halves: list[Array] = [
                    np.ascontiguousarray(np.atleast_1d(x)).view(dtype).reshape(-1, 2) for x in (a, b)
                ]
                return np.ascontiguousarray(fn(*halves).T)

            table[f"setp.{name}.{kind}"] = Row(both, "pred", ("b32", "b32"))


def _tests(table: Table) -> None:
    for kind in ("f32", "f64"):
        tiny = np.finfo(kind.replace("f", "float")).tiny
        rows: dict[str, Function] = {
            "finite": np.isfinite,
            "infinite": np.isinf,
            "number": lambda x: ~np.isnan(x),
            "notanumber": np.isnan,
            "normal": lambda x, t=tiny: np.isfinite(x) & (np.abs(x) >= t),
            "subnormal": lambda x, t=tiny: (np.abs(x) < t) & (x != 0),
        }
        for name, fn in rows.items():
            table[f"testp.{name}.{kind}"] = Row(fn, "pred", (kind,))


def _select(a: Array, b: Array, p: Array) -> Array:
    return np.where(p, a, b)


def table() -> Table:
    """All rows of this family."""
    rows: Table = {}
    _setp(rows)
    _pairs(rows)
    _tests(rows)
    for kind in ("b16", "b32", "b64", "s16", "s32", "s64", "u16", "u32", "u64", "f16", "f32", "f64"):
        rows[f"selp.{kind}"] = Row(_select, kind, (kind, kind, "pred"))
    return rows
