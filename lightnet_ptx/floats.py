"""Floating-point arithmetic: exactly rounded where PTX says so; approximations as documented here. Imports NumPy.

Approximate instructions give the exact value rounded to nearest (ex2, lg2, rcp, rsqrt, sqrt, div: hardware is within 1
to 2 units in the last place of float32), but for those that are coarser on hardware, where a network should see it: sin
and cos are rounded to multiples of 2^-21 (hardware: an absolute error of 2^-20.9 within [-pi, pi]), tanh.approx.f32 to
11 bits of fraction (hardware: a relative error of 2^-11). NaN results have the payload that NumPy gives them, not
always PTX's canonical one. Semantics: "PTX ISA", 9.7.3 to 9.7.5.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lightnet_ptx import rounding
from lightnet_ptx.rounding import bf16_to_f32, f16, f32, f32_to_bf16, f64, flush, saturate, u32, u64
from lightnet_ptx.tables import Array, Row, Table, packed

Function = Callable[..., Array]


def in_bf16(fn: Function) -> Function:
    """A function of float32 on bfloat16, rounded to nearest. Right for +, - and *: 24 bits hold a sum or product of two
    of 8 bits well enough (24 >= 2 * 8 + 2) for the second rounding to do no harm.
    """
    return lambda *xs: f32_to_bf16(fn(*(bf16_to_f32(x) for x in xs)))


def in_f64(fn: Function, dtype: type = f32) -> Function:
    """A function of float64 on shorter operands, its value rounded to nearest."""
    return lambda *xs: np.asarray(fn(*(np.asarray(x, f64) for x in xs))).astype(dtype)


def _ftz(fn: Function) -> Function:
    return lambda *xs: flush(fn(*(flush(x) for x in xs)))


def _ftz16(fn: Function) -> Function:
    def zeroed(x: Array) -> Array:
        x = np.asarray(x)
        return np.where(np.abs(x) < f16(2.0**-14), np.copysign(f16(0), x), x)

    return lambda *xs: zeroed(fn(*(zeroed(x) for x in xs)))


def _sat(fn: Function) -> Function:
    return lambda *xs: saturate(fn(*xs))


def _sat16(fn: Function) -> Function:
    return lambda *xs: saturate(fn(*xs)).astype(f16)


def _relu(fn: Function) -> Function:
    def run(*xs: Array) -> Array:
        y = np.asarray(fn(*xs))
        return np.where(y > 0, y, np.where(np.isnan(y), y, y.dtype.type(0)))

    return run


def _relu_bf16(fn: Function) -> Function:
    def run(*xs: Array) -> Array:
        y = np.asarray(fn(*xs))
        return np.where((y >> 15).astype(bool) & ((y & 0x7FFF) <= 0x7F80), np.uint16(0), y)

    return run


def _signed_bits(x: Array) -> Array:
    return np.asarray(x).view({2: np.uint16, 4: np.uint32, 8: np.uint64}[np.asarray(x).dtype.itemsize])


def minimum(a: Array, b: Array) -> Array:
    """The smaller operand, of a number and a NaN the number; -0 is less than +0."""
    a, b = np.asarray(a), np.asarray(b)
    equal = (_signed_bits(a) | _signed_bits(b)).view(a.dtype)
    return np.where(a == b, equal, np.fmin(a, b))


def maximum(a: Array, b: Array) -> Array:
    """The larger operand, of a number and a NaN the number."""
    a, b = np.asarray(a), np.asarray(b)
    equal = (_signed_bits(a) & _signed_bits(b)).view(a.dtype)
    return np.where(a == b, equal, np.fmax(a, b))


def _or_nan(fn: Function) -> Function:
    def run(a: Array, b: Array) -> Array:
        nan = np.isnan(a) | np.isnan(b)
        return np.where(nan, np.asarray(a).dtype.type(np.nan), fn(a, b))

    return run


def _div_approx(a: Array, b: Array) -> Array:
    """a / b; a divisor in (2^126, 2^128) gives 0, as its reciprocal is flushed (NaN for an infinite a)."""
    quotient = np.divide(a, b, dtype=f32)
    size = np.abs(np.asarray(b))
    huge = (size > f32(2.0**126)) & np.isfinite(b)
    lost = np.where(np.isfinite(a), np.copysign(f32(0), quotient), f32(np.nan))
    return np.where(huge, lost, quotient)


def _on_grid(fn: Function) -> Function:
    return lambda x: (np.rint(fn(np.asarray(x, f64)) * 2.0**21) * 2.0**-21).astype(f32)


def _tanh(x: Array) -> Array:
    """tanh to 11 bits of fraction."""
    mantissa, exponent = np.frexp(np.tanh(np.asarray(x, f64)))
    return np.ldexp(np.rint(mantissa * 4096.0) / 4096.0, exponent).astype(f32)


def _rcp64(x: Array) -> Array:
    """1 / x of float64 to 20 bits of fraction; subnormal operands and results are flushed."""
    x = np.where(np.abs(x) < np.finfo(f64).tiny, np.copysign(0.0, x), x)
    y = np.asarray(1.0 / x)
    y = np.where(np.abs(y) < np.finfo(f64).tiny, np.copysign(0.0, y), y)
    return (y.view(u64) & u64(0xFFFFFFFF00000000)).view(f64)


def _copysign(a: Array, b: Array) -> Array:
    return np.copysign(b, a)  # PTX's first operand has the sign


def _arithmetic(table: Table) -> None:
    for name, fn, fused in (
        ("add", np.add, None),
        ("sub", np.subtract, None),
        ("mul", np.multiply, None),
        ("fma", None, True),
    ):
        count = 3 if fused else 2
        for rnd in (".rn",) if fused else ("", ".rn"):
            table[f"{name}{rnd}.f64"] = Row(fn or rounding.fma64, "f64", ("f64",) * count)
            base = fn or rounding.fma32
            half = fn or rounding.fma16
            for mod, change, change16 in (
                ("", lambda f: f, lambda f: f),
                (".ftz", _ftz, _ftz16),
                (".sat", _sat, _sat16),
                (".ftz.sat", lambda f: _sat(_ftz(f)), lambda f: _sat16(_ftz16(f))),
            ):
                table[f"{name}{rnd}{mod}.f32"] = Row(change(base), "f32", ("f32",) * count)
                table[f"{name}{rnd}{mod}.f16"] = Row(change16(half), "f16", ("f16",) * count)
                table[f"{name}{rnd}{mod}.f16x2"] = Row(packed(change16(half), f16), "b32", ("b32",) * count)
            short = in_bf16(fn) if fn else rounding.fma_bf16
            table[f"{name}{rnd}.bf16"] = Row(short, "bf16", ("bf16",) * count)
            table[f"{name}{rnd}.bf16x2"] = Row(packed(short, np.uint16), "b32", ("b32",) * count)
    for kind, fused_fn, dtype, relu in (
        ("f16", rounding.fma16, f16, _relu),
        ("bf16", rounding.fma_bf16, np.uint16, _relu_bf16),
    ):
        table[f"fma.rn.relu.{kind}"] = Row(relu(fused_fn), kind, (kind,) * 3)
        table[f"fma.rn.relu.{kind}x2"] = Row(packed(relu(fused_fn), dtype), "b32", ("b32",) * 3)


def _min_max(table: Table) -> None:
    for name, fn in (("min", minimum), ("max", maximum)):
        for nan, change in (("", lambda f: f), (".NaN", _or_nan)):
            either = change(fn)
            table[f"{name}{nan}.f32"] = Row(either, "f32", ("f32",) * 2)
            table[f"{name}.ftz{nan}.f32"] = Row(_ftz(either), "f32", ("f32",) * 2)
            table[f"{name}{nan}.f16"] = Row(either, "f16", ("f16",) * 2)
            table[f"{name}{nan}.f16x2"] = Row(packed(either, f16), "b32", ("b32",) * 2)
            table[f"{name}{nan}.bf16"] = Row(in_bf16(either), "bf16", ("bf16",) * 2)
            table[f"{name}{nan}.bf16x2"] = Row(packed(in_bf16(either), np.uint16), "b32", ("b32",) * 2)
        table[f"{name}.f64"] = Row(fn, "f64", ("f64",) * 2)


def _signs(table: Table) -> None:
    for kind in ("f32", "f64", "f16"):
        table[f"abs.{kind}"] = Row(np.abs, kind, (kind,))
        table[f"neg.{kind}"] = Row(np.negative, kind, (kind,))
        if kind != "f16":
            table[f"copysign.{kind}"] = Row(_copysign, kind, (kind, kind))
    table["abs.ftz.f32"] = Row(_ftz(np.abs), "f32", ("f32",))
    table["neg.ftz.f32"] = Row(_ftz(np.negative), "f32", ("f32",))
    for name, op, mask in (("abs", np.bitwise_and, 0x7FFF), ("neg", np.bitwise_xor, 0x8000)):
        table[f"{name}.bf16"] = Row(lambda x, op=op, m=mask: op(x, np.uint16(m)), "bf16", ("bf16",))
        table[f"{name}.f16x2"] = table[f"{name}.bf16x2"] = Row(
            lambda x, op=op, m=mask: op(x, u32(m * 0x10001)), "b32", ("b32",)
        )


def _divisions(table: Table) -> None:
    one = ("f32",)
    rows: dict[str, Function] = {
        "div.rn": np.divide,
        "div.approx": _div_approx,
        "div.full": np.divide,
        "rcp.rn": lambda x: f32(1) / x,
        "sqrt.rn": np.sqrt,
        "rcp.approx": lambda x: f32(1) / x,
        "sqrt.approx": np.sqrt,
        "rsqrt.approx": in_f64(lambda x: 1 / np.sqrt(x)),
        "ex2.approx": in_f64(np.exp2),
        "lg2.approx": in_f64(np.log2),
        "sin.approx": _on_grid(np.sin),
        "cos.approx": _on_grid(np.cos),
    }
    for name, fn in rows.items():
        sources = one * (2 if name.startswith("div") else 1)
        table[f"{name}.f32"] = Row(fn, "f32", sources)
        table[f"{name}.ftz.f32"] = Row(_ftz(fn), "f32", sources)
    table["div.rn.f64"] = Row(np.divide, "f64", ("f64",) * 2)
    table["rcp.rn.f64"] = Row(lambda x: f64(1) / x, "f64", ("f64",))
    table["rcp.approx.ftz.f64"] = Row(_rcp64, "f64", ("f64",))
    table["rsqrt.approx.f64"] = Row(lambda x: 1 / np.sqrt(x), "f64", ("f64",))
    table["sqrt.rn.f64"] = Row(np.sqrt, "f64", ("f64",))
    table["tanh.approx.f32"] = Row(_tanh, "f32", one)
    for name, fn in (("tanh.approx", np.tanh), ("ex2.approx", np.exp2)):
        table[f"{name}.f16"] = Row(in_f64(fn, f16), "f16", ("f16",))
        table[f"{name}.f16x2"] = Row(packed(in_f64(fn, f16), f16), "b32", ("b32",))
        bf = name if name == "tanh.approx" else "ex2.approx.ftz"
        short = in_bf16(in_f64(fn))
        table[f"{bf}.bf16"] = Row(short, "bf16", ("bf16",))
        table[f"{bf}.bf16x2"] = Row(packed(short, np.uint16), "b32", ("b32",))


def table() -> Table:
    """All rows of this family."""
    rows: Table = {}
    for part in (_arithmetic, _min_max, _signs, _divisions):
        part(rows)
    return rows
