"""Elementary functions in LLVM IR: exp, erf and tanh of f32 inline, others by calls of libm. Part of the emitter.

LLVM calls libm lane by lane, which costs several times what the rest of a kernel does; what networks apply to every
element is therefore computed here by polynomials, which vectorise. Double calls libm throughout.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from math import factorial, log
from typing import Any

from xdsl.ir import Operation

from lightnet.backends.llvm.function import Function
from lightnet.backends.llvm.short_floats import element
from lightnet.backends.llvm.values import float_literal, leaf_type, splat_literal

#: (emitter, op, operand texts, operand type, result type, lanes) -> operand text of the result
#: It gets ops of the class that it stands under.
Emit = Callable[[Function, Any, list[str], str, str, int], str]


class _Float:
    """Instructions on f32, so many lanes at a time."""

    def __init__(self, e: Function, lanes: int):
        self.e, self.lanes, self.type = e, lanes, leaf_type("float", lanes)

    def const(self, value: float) -> str:
        return splat_literal("float", self.lanes, float_literal(value, "float"))

    def op(self, instruction: str, x: str, y: str) -> str:
        return self.e.ins(f"{instruction} {self.type} {x}, {y}")

    def fma(self, x: str, y: str, z: str) -> str:
        return self.e.intrinsic("fma", self.type, [(self.type, v) for v in (x, y, z)])

    def polynomial(self, x: str, coefficients: Sequence[float]) -> str:
        """The sum of ``c[k] x^k``, by Horner's rule."""
        total = self.const(coefficients[-1])
        for c in coefficients[-2::-1]:
            total = self.fma(total, x, self.const(c))
        return total

    def clamp(self, x: str, low: float, high: float) -> str:
        """`x` moved to the nearer end where it is outside; NaN stays."""
        for predicate, limit in (("olt", low), ("ogt", high)):
            beyond = self.op(f"fcmp {predicate}", x, self.const(limit))
            cond = leaf_type("i1", self.lanes)
            x = self.e.ins(f"select {cond} {beyond}, {self.type} {self.const(limit)}, {self.type} {x}")
        return x


def exp(e: Function, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
    """``x = n ln 2 + r`` with ``|r| <= ln 2 / 2`` and ``exp x = 2^n exp r``; exp r is its Taylor sum to r^7 (the rest
    is below 2^-27), 2^n is two factors, so that the ends of the range come out as infinity, subnormals and 0.

    Adding `_ROUND` rounds to an integer, which then stands in the low bits of the sum: n + 254, the sum of the two
    factors' biased exponents (Schraudolph 1999 and others). Of a NaN those bits are anything, but the factor exp r is
    NaN.
    """
    if element(r) != "float":
        return e.intrinsic("exp", r, [(r, a[0])])
    f, i32 = _Float(e, lanes), leaf_type("i32", lanes)
    x = f.clamp(a[0], -104.0, 89.0)
    shifted = f.fma(x, f.const(1 / _LN2), f.const(_ROUND))
    n = f.op("fsub", shifted, f.const(_ROUND))
    rest = f.fma(n, f.const(-_LN2_HIGH), x)
    rest = f.fma(n, f.const(_LN2_HIGH - _LN2), rest)
    total = f.polynomial(rest, [1 / factorial(k) for k in range(8)])
    bits = e.ins(f"bitcast {r} {shifted} to {i32}")
    half = e.ins(f"lshr {i32} {bits}, {splat_literal('i32', lanes, '1')}")
    for biased in (half, e.ins(f"sub {i32} {bits}, {half}")):
        power = e.ins(f"shl {i32} {biased}, {splat_literal('i32', lanes, '23')}")  # what stands above is shifted out
        total = e.ins(f"fmul {r} {total}, {e.ins(f'bitcast {i32} {power} to {r}')}")
    return total


#: 1.5 * 2^23, where neighbours of f32 are 1 apart, and twice the bias of an exponent.
_ROUND = 1.5 * 2**23 + 254
_LN2 = log(2.0)
_LN2_HIGH = struct.unpack("<f", struct.pack("<f", _LN2))[0]

#: x·P(x²) / Q(x²), fitted to least relative error up to the point where f32 is 1: 2e-8; computed in f32, 3e-7.
_ERF_END = 3.9375
_ERF_P = (1.128379145, 0.1910488792, 0.05281916045, 0.003789339988, 0.0002847380707, 2.036065141e-06)
_ERF_Q = (1.0, 0.5026453689, 0.1143614691, 0.0150170908, 0.001167038322, 3.793940737e-05)
_TANH_END = 9.02
_TANH_P = (0.9999999794, 0.13379755, 0.003494077072, 2.058412631e-05, 1.331986665e-08)
_TANH_Q = (1.0, 0.4671307036, 0.02587123869, 0.0003283159972, 7.762365572e-07)


def erf(e: Function, op: Operation, a: list[str], t: str, r: str, lanes: int, divide: str = "fdiv") -> str:
    """An odd rational function of f32, whose quotient is the instruction `divide`; double calls libm."""
    if element(r) != "float":
        return libm("erf")(e, op, a, t, r, lanes)
    return _odd_rational(_Float(e, lanes), a[0], _ERF_END, _ERF_P, _ERF_Q, divide)


def tanh(e: Function, op: Operation, a: list[str], t: str, r: str, lanes: int, divide: str = "fdiv") -> str:
    """An odd rational function of f32, whose quotient is the instruction `divide`; double calls libm."""
    if element(r) != "float":
        return e.intrinsic("tanh", r, [(r, a[0])])
    return _odd_rational(_Float(e, lanes), a[0], _TANH_END, _TANH_P, _TANH_Q, divide)


def _odd_rational(f: _Float, x: str, end: float, p: Sequence[float], q: Sequence[float], divide: str) -> str:
    """``x P(x²) / Q(x²)`` of x within ``±end``, and never beyond ±1."""
    x = f.clamp(x, -end, end)
    square = f.op("fmul", x, x)
    quotient = f.op(divide, f.op("fmul", x, f.polynomial(square, p)), f.polynomial(square, q))
    return f.clamp(quotient, -1.0, 1.0)


def libm(name: str) -> Emit:
    """A function of libm without an intrinsic, one call a lane."""

    def emit(e: Function, op: Operation, a: list[str], t: str, r: str, lanes: int) -> str:
        elem = element(r)
        if lanes == 1:
            return _libm_scalar(e, name, elem, a[0])
        parts = [e.ins(f"extractelement {t} {a[0]}, i64 {k}") for k in range(lanes)]
        return e.leaf_of_elements(elem, [_libm_scalar(e, name, elem, p) for p in parts])

    return emit


def _libm_scalar(e: Function, name: str, elem: str, x: str) -> str:
    return e.ins(e.call_text(name if elem == "double" else name + "f", elem, [(elem, x)]))
