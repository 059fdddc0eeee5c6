"""Conversions between types. Imports NumPy.

A float that becomes an integer is clamped to the range of the type; NaN becomes 0, or the integer with only the top bit
set where a 64-bit type is involved. An integer that becomes a shorter one is cut off (``.sat``: clamped). Semantics:
"PTX ISA", 9.7.9.21 (cvt).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lightnet_ptx import rounding
from lightnet_ptx.rounding import bf16_to_f32, f16, f32, f32_to_bf16, f64, flush, saturate, u32
from lightnet_ptx.tables import DTYPES, Array, Row, Table, join_halves

Function = Callable[..., Array]

_INTEGERS = [f"{k}{bits}" for k in "su" for bits in (8, 16, 32, 64)]
_FLOATS = ("f16", "bf16", "f32", "f64")
#: Rounding to an integer: to nearest even, toward zero, down, up.
_ROUND: dict[str, Function] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def _widened(kind: str) -> Function:
    """The type that a float is computed in, exactly: float32, or float64."""
    if kind == "bf16":
        return bf16_to_f32
    return (lambda x: np.asarray(x).astype(f32)) if kind == "f16" else np.asarray


def _to_integer(source: str, dest: str, rounding_name: str) -> Function:
    wide, whole, dtype = _widened(source), _ROUND[rounding_name], DTYPES[dest]
    info = np.iinfo(dtype)
    of_nan = dtype.type(0)
    if source == "f64" or dtype.itemsize == 8:
        of_nan = dtype.type(info.min if dest[0] == "s" else 1 << (8 * dtype.itemsize - 1))

    def run(x: Array) -> Array:
        x = whole(wide(x)).astype(f64)
        low, high = x <= float(info.min), x >= float(info.max)
        inside = np.where(low | high | np.isnan(x), 0.0, x).astype(dtype)
        clamped = np.where(low, dtype.type(info.min), np.where(high, dtype.type(info.max), inside))
        return np.where(np.isnan(x), of_nan, clamped)

    return run


def _sticky(x: Array) -> Array:
    """A 64-bit integer as float64, rounded to odd: the 11 bits that may not fit are or-ed into the lowest that does."""
    x = np.asarray(x)
    size: Array = np.asarray(np.where(x < 0, np.negative(x), x)).astype(np.uint64)
    lost = (size & np.uint64(0x7FF)) != 0
    large = size >> np.uint64(53) != 0
    size = np.where(
        large,
        (size & ~np.uint64(0xFFF)) | (size & np.uint64(0x800)) | np.where(lost, np.uint64(0x800), np.uint64(0)),
        size,
    )
    value = size.astype(f64)
    return np.where(x < 0, -value, value)


def _from_integer(source: str, dest: str) -> Function:
    if dest in ("f32", "f64"):
        return lambda x: np.asarray(x).astype(DTYPES[dest])  # one rounding
    exact: Function = (lambda x: np.asarray(x).astype(f64)) if source[1:] != "64" else _sticky
    if dest == "f16":
        return lambda x: exact(x).astype(f16)
    return lambda x: rounding.f64_to_bf16(exact(x))


def _between_integers(source: str, dest: str, sat: bool) -> Function:
    dtype = DTYPES[dest]
    if not sat:
        return lambda x: np.asarray(x).astype(dtype)
    from_, to = np.iinfo(DTYPES[source]), np.iinfo(dtype)
    kind = DTYPES[source].type
    low, high = kind(max(from_.min, to.min)), kind(min(from_.max, to.max))
    return lambda x: np.clip(x, low, high).astype(dtype)


def _toward_zero(x: Array, nearest: Array, widen: Function) -> Array:
    """The neighbour toward zero of what was rounded to nearest, where that is larger in magnitude than `x`."""
    nearest = np.asarray(nearest)
    unsigned = nearest.view(np.dtype(f"u{nearest.dtype.itemsize}"))
    larger = np.abs(widen(nearest).astype(f64)) > np.abs(np.asarray(x).astype(f64))
    return (unsigned - larger.astype(unsigned.dtype)).view(nearest.dtype)


def _narrow(source: str, dest: str, mode: str) -> Function:
    """A float to a shorter one: `mode` is ``rn`` or ``rz``."""
    if dest == "bf16":
        fn: Function = f32_to_bf16 if source == "f32" else rounding.f64_to_bf16
    else:
        fn = lambda x: np.asarray(x).astype(DTYPES[dest])  # noqa: E731
    if mode == "rn":
        return fn
    widen = _widened(dest)
    return lambda x: _toward_zero(x, fn(x), widen)


def _relu(fn: Function) -> Function:
    return lambda x: fn(np.where(np.asarray(x) < 0, f32(0), x) + f32(0))


def _within(kind: str, whole: Function) -> Function:
    """A float rounded to an integer of its own type."""
    if kind != "bf16":
        return lambda x: np.asarray(whole(x))
    return lambda x: f32_to_bf16(whole(bf16_to_f32(x)))


def _integers(table: Table) -> None:
    for source in _INTEGERS:
        for dest in _INTEGERS:
            table[f"cvt.{dest}.{source}"] = Row(_between_integers(source, dest, False), dest, (source,))
            table[f"cvt.sat.{dest}.{source}"] = Row(_between_integers(source, dest, True), dest, (source,))
        for dest in _FLOATS:
            table[f"cvt.rn.{dest}.{source}"] = Row(_from_integer(source, dest), dest, (source,))
        for dest in _FLOATS:
            for name in _ROUND:
                row = Row(_to_integer(dest, source, name), source, (dest,))
                table[f"cvt.{name}.{source}.{dest}"] = table[f"cvt.{name}.sat.{source}.{dest}"] = row
                if dest == "f32":
                    fn = _to_integer(dest, source, name)
                    table[f"cvt.{name}.ftz.{source}.f32"] = Row(lambda x, fn=fn: fn(flush(x)), source, ("f32",))


def _floats(table: Table) -> None:
    for kind in _FLOATS:
        for name, whole in _ROUND.items():
            table[f"cvt.{name}.{kind}.{kind}"] = Row(_within(kind, whole), kind, (kind,))
    for name, whole in _ROUND.items():
        table[f"cvt.{name}.ftz.f32.f32"] = Row(lambda x, whole=whole: flush(whole(flush(x))), "f32", ("f32",))
    for source, dest in (("f16", "f32"), ("f16", "f64"), ("bf16", "f32"), ("bf16", "f64"), ("f32", "f64")):
        widen, dtype = _widened(source), DTYPES[dest]
        table[f"cvt.{dest}.{source}"] = Row(lambda x, w=widen, d=dtype: w(x).astype(d), dest, (source,))
    table["cvt.ftz.f32.f16"] = table["cvt.f32.f16"]  # subnormal f16 are normal f32
    table["cvt.ftz.f64.f32"] = Row(lambda x: flush(x).astype(f64), "f64", ("f32",))
    for source, dest in (("f64", "f32"), ("f64", "f16"), ("f64", "bf16"), ("f32", "f16"), ("f32", "bf16")):
        for mode in ("rn", "rz"):
            fn = _narrow(source, dest, mode)
            table[f"cvt.{mode}.{dest}.{source}"] = Row(fn, dest, (source,))
            if source == "f32":
                table[f"cvt.{mode}.relu.{dest}.f32"] = Row(_relu(fn), dest, ("f32",))
    table["cvt.rn.ftz.f16.f32"] = Row(lambda x: flush(x).astype(f16), "f16", ("f32",))
    table["cvt.rn.ftz.f32.f64"] = Row(lambda x: flush(np.asarray(x).astype(f32)), "f32", ("f64",))
    for name in ("cvt.sat.f32.f32", "cvt.rn.sat.f32.f32"):
        table[name] = Row(saturate, "f32", ("f32",))
    table["cvt.ftz.sat.f32.f32"] = Row(lambda x: saturate(flush(x)), "f32", ("f32",))


def _packs(table: Table) -> None:
    """Two f32 into one word: the first operand is the upper half."""
    for kind in ("f16", "bf16"):
        for mode in ("rn", "rz"):
            fn = _narrow("f32", kind, mode)
            for name, change in (("", lambda f: f), (".relu", _relu)):
                one = change(fn)
                row = Row(lambda a, b, one=one: join_halves(one(a), one(b)), "b32", ("f32", "f32"))
                table[f"cvt.{mode}{name}.{kind}x2.f32"] = row
    table["cvt.rna.tf32.f32"] = Row(rounding.tf32_nearest_away, "b32", ("f32",))
    table["cvt.rn.tf32.f32"] = Row(rounding.tf32_nearest_even, "b32", ("f32",))
    table["cvt.rz.tf32.f32"] = Row(lambda x: np.asarray(x, f32).view(u32) & u32(0xFFFFE000), "b32", ("f32",))


def table() -> Table:
    """All rows of this family."""
    rows: Table = {}
    for part in (_integers, _floats, _packs):
        part(rows)
    return rows
