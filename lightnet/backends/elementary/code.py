"""Expressions that write LLVM IR: how the elementary functions are put down, on one element or on so many lanes.

A `TypedText` is an operand; what Python's operators and the methods of `BodyText` make of it are instructions. Nothing
is contracted or reordered, so that the errors of sums and products can be computed (`two_sum`, `two_product`). Imports
the standard library and `llvm.function`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from math import inf

from lightnet.backends.llvm.function import FunctionEmitter
from lightnet.backends.llvm.values import leaf_type, literal, mangled, splat_literal
from lightnet.dataclasses import dataclass

FLOATS = ("float", "double")
#: Bits of a type, of its significand, and the bias of its exponent.
BITS = {"float": 32, "double": 64}
DIGITS = {"float": 23, "double": 52}
BIAS = {"float": 127, "double": 1023}


@dataclass(frozen=True, eq=False)
class TypedText:
    """An operand whose elements have LLVM type `type`; the other operand of an operator may be a number."""

    code: BodyText
    type: str
    text: str

    def _op(self, floats: str, integers: str, other: TypedText | float, swap: bool = False) -> TypedText:
        a, b = self, self.code.lift(other, self.type)
        a, b = (b, a) if swap else (a, b)
        return self.code.ins(self.type, f"{floats if self.type in FLOATS else integers} {a.typed}, {b.text}")

    @property
    def typed(self) -> str:
        """The operand behind its type."""
        return f"{self.code.wide(self.type)} {self.text}"

    def __add__(self, other: TypedText | float) -> TypedText:
        return self._op("fadd", "add", other)

    __radd__ = __add__

    def __sub__(self, other: TypedText | float) -> TypedText:
        return self._op("fsub", "sub", other)

    def __rsub__(self, other: TypedText | float) -> TypedText:
        return self._op("fsub", "sub", other, swap=True)

    def __mul__(self, other: TypedText | float) -> TypedText:
        return self._op("fmul", "mul", other)

    __rmul__ = __mul__

    def __truediv__(self, other: TypedText | float) -> TypedText:
        return self._op("fdiv", "", other)

    def __rtruediv__(self, other: TypedText | float) -> TypedText:
        return self._op("fdiv", "", other, swap=True)

    def __and__(self, other: TypedText | int) -> TypedText:
        return self._op("", "and", other)

    def __or__(self, other: TypedText | int) -> TypedText:
        return self._op("", "or", other)

    def __xor__(self, other: TypedText | int) -> TypedText:
        return self._op("", "xor", other)

    def __lshift__(self, other: TypedText | int) -> TypedText:
        return self._op("", "shl", other)

    def __rshift__(self, other: TypedText | int) -> TypedText:
        """A logical shift."""
        return self._op("", "lshr", other)

    def __invert__(self) -> TypedText:
        """The opposite of a truth value."""
        return self._op("", "xor", True)

    def __neg__(self) -> TypedText:
        return self.code.ins(self.type, f"fneg {self.typed}") if self.type in FLOATS else 0 - self

    def __abs__(self) -> TypedText:
        return self.code.call("fabs", self)

    def compare(self, floats: str, integers: str, other: TypedText | float) -> TypedText:
        """A comparison by its name for floats, and that for integers."""
        operation = f"fcmp {floats}" if self.type in FLOATS else f"icmp {integers}"
        return self.code.ins("i1", f"{operation} {self.typed}, {self.code.lift(other, self.type).text}")

    def __lt__(self, other: TypedText | float) -> TypedText:
        return self.compare("olt", "slt", other)

    def __le__(self, other: TypedText | float) -> TypedText:
        return self.compare("ole", "sle", other)

    def __gt__(self, other: TypedText | float) -> TypedText:
        return self.compare("ogt", "sgt", other)

    def __ge__(self, other: TypedText | float) -> TypedText:
        return self.compare("oge", "sge", other)

    def equals(self, other: TypedText | float) -> TypedText:
        """Equality; of floats, false where one is NaN."""
        return self.compare("oeq", "eq", other)

    def differs(self, other: TypedText | float) -> TypedText:
        """Inequality; of floats, true where one is NaN."""
        return self.compare("une", "ne", other)


class BodyText:
    """The place in a function where something is computed, on `lanes` elements at a time. `division` is the instruction
    of `divided`, where it may be one that is less exact."""

    def __init__(self, e: FunctionEmitter, lanes: int = 1, division: str = "fdiv") -> None:
        self.e, self.lanes, self.division = e, lanes, division

    # ---- instructions

    def wide(self, type: str) -> str:
        """The type of `lanes` elements."""
        return leaf_type(type, self.lanes)

    def ins(self, type: str, text: str) -> TypedText:
        """An instruction with a result."""
        return TypedText(self, type, self.e.ins(text))

    def const(self, value: float, type: str) -> TypedText:
        return TypedText(self, type, splat_literal(type, self.lanes, literal(value, type)))

    def lift(self, value: TypedText | float, type: str) -> TypedText:
        """An operand as it is, or a number as a constant."""
        return value if isinstance(value, TypedText) else self.const(value, type)

    def call(self, intrinsic: str, *args: TypedText) -> TypedText:
        """An intrinsic of LLVM that is overloaded on the type of its operands."""
        type = self.wide(args[0].type)
        return self.called(f"llvm.{intrinsic}.{mangled(type)}", args[0].type, *args)

    def called(self, symbol: str, type: str, *args: TypedText) -> TypedText:
        """A call of a function of operands of one type, by its symbol."""
        pairs = [(self.wide(a.type), a.text) for a in args]
        return self.ins(type, self.e.call_text(symbol, self.wide(type), pairs))

    def fma(self, a: TypedText, b: TypedText | float, c: TypedText | float) -> TypedText:
        """``a b + c``, rounded once where the processor has an instruction for that, else twice."""
        return self.call("fma", a, self.lift(b, a.type), self.lift(c, a.type))

    def residue(self, x: TypedText, a: TypedText, b: TypedText | float) -> TypedText:
        """``x - a b``, rounded once where `x` and the product are near each other."""
        if self.e.has_fma:
            return self.fma(-a, b, x)
        product = two_product(a, self.lift(b, a.type))
        return (x - product.hi) - product.lo

    def divided(self, a: TypedText, b: TypedText) -> TypedText:
        """A quotient, as exact as the place asks for."""
        return self.ins(a.type, f"{self.division} {a.typed}, {b.text}")

    def select(self, cond: TypedText, yes: TypedText | float, no: TypedText | float) -> TypedText:
        """One of two values, of which one at least is no number."""
        type = yes.type if isinstance(yes, TypedText) else no.type  # type: ignore[union-attr]
        a, b = self.lift(yes, type), self.lift(no, type)
        return self.ins(type, f"select {cond.typed}, {a.typed}, {b.typed}")

    def cast(self, operation: str, x: TypedText, type: str) -> TypedText:
        """``bitcast``, ``sitofp``, ``fptrunc``, …"""
        return self.ins(type, f"{operation} {x.typed} to {self.wide(type)}")

    def signed_shift(self, x: TypedText, count: int) -> TypedText:
        """An integer shifted to the right, with its sign."""
        return self.ins(x.type, f"ashr {x.typed}, {self.const(count, x.type).text}")

    # ---- floats

    def bits(self, x: TypedText) -> TypedText:
        return self.cast("bitcast", x, f"i{BITS[x.type]}")

    def polynomial(self, x: TypedText, coefficients: Sequence[float]) -> TypedText:
        """The sum of ``c[k] x^k``, by Horner's rule."""
        total = self.const(coefficients[-1], x.type)
        for c in coefficients[-2::-1]:
            total = self.fma(total, x, c)
        return total

    def power_of_two(self, n: TypedText, type: str) -> TypedText:
        """``2^n`` of an integer within the range of normal numbers."""
        return self.cast("bitcast", (n + BIAS[type]) << DIGITS[type], type)

    def scale(self, x: TypedText, n: TypedText) -> TypedText:
        """``x 2^n`` for n within three times the range of exponents, in two factors: the ends of the range come out
        right, and rounded once unless the result is subnormal."""
        half = self.signed_shift(n, 1)
        return x * self.power_of_two(half, x.type) * self.power_of_two(n - half, x.type)

    def round(self, x: TypedText) -> tuple[TypedText, TypedText]:
        """The nearest whole number, of less than half the digits' range: as a float, and as an integer as wide. By the
        sum with a number whose neighbours are 1 apart: unlike a conversion, that is defined for NaN."""
        shift = 1.5 * 2.0 ** DIGITS[x.type]
        shifted = x + shift
        return shifted - shift, self.bits(shifted) - self.bits(self.const(shift, x.type))

    def counted(self, n: TypedText, type: str) -> TypedText:
        """A whole number from 0 to half the digits' range as a float, from an integer as wide: the sum with 2^digits,
        of which it is the last digits."""
        shift = 2.0 ** DIGITS[type]
        return self.cast("bitcast", n | self.bits(self.const(shift, type)), type) - shift

    def clamp(self, x: TypedText, low: float, high: float) -> TypedText:
        """`x` moved to the nearer end where it is outside; NaN stays."""
        x = self.select(x < low, low, x)
        return self.select(x > high, high, x)

    def copysign(self, x: TypedText, sign: TypedText) -> TypedText:
        return self.call("copysign", x, sign)

    def is_nan(self, x: TypedText) -> TypedText:
        return x.differs(x)

    def negative(self, x: TypedText) -> TypedText:
        """Return whether the sign of a float is set: that of -0, too."""
        return self.bits(x) < 0

    def whole_part(self, x: TypedText) -> TypedText:
        """A number that is not negative as a whole one, to nearest: by the sum with one whose neighbours are 1
        apart."""
        shift = 2.0 ** DIGITS[x.type]
        return self.select(x < shift, (x + shift) - shift, x)

    # ---- control flow, of one element

    def choose(
        self, cond: TypedText, then: Callable[[], Sequence[TypedText]], other: Callable[[], Sequence[TypedText]]
    ) -> list[TypedText]:
        """Run one of two pieces of code; what it gives."""
        e, arms = self.e, []
        labels = [e.new_label(hint) for hint in ("then", "else", "join")]
        e.emit(f"br {cond.typed}, label %{labels[0]}, label %{labels[1]}")
        for label, body in zip(labels, (then, other)):
            e.emit(f"{label}:")
            e.label = label
            values = body()
            arms.append((e.label, values))
            e.emit(f"br label %{labels[2]}")
        e.emit(f"{labels[2]}:")
        e.label = labels[2]
        (first, a), (second, b) = arms
        return [self.ins(x.type, f"phi {x.type} [ {x.text}, %{first} ], [ {y.text}, %{second} ]") for x, y in zip(a, b)]


#: A function of a place and operands.
Definition = Callable[..., TypedText]


# ---- pairs: unevaluated sums of two floats, with twice the digits (Dekker 1971) --------------------------------------


@dataclass(frozen=True)
class Pair:
    """``hi + lo``, where hi is the sum, rounded."""

    hi: TypedText
    lo: TypedText


def two_sum(a: TypedText, b: TypedText) -> Pair:
    """The sum and its error, exactly (Knuth, TAOCP 2, 4.2.2)."""
    total = a + b
    part = total - a
    return Pair(total, (a - (total - part)) + (b - part))


def quick_sum(a: TypedText, b: TypedText) -> Pair:
    """`two_sum` where a is the larger one, or 0."""
    total = a + b
    return Pair(total, b - (total - a))


def two_product(a: TypedText, b: TypedText) -> Pair:
    """The product and its error, exactly; without a fused instruction as long as a factor is below 2^996."""
    product = a * b
    if a.code.e.has_fma:
        return Pair(product, a.code.fma(a, b, -product))
    (a1, a2), (b1, b2) = _halves(a), _halves(b)
    return Pair(product, a2 * b2 - (((product - a1 * b1) - a2 * b1) - a1 * b2))


def _halves(x: TypedText) -> tuple[TypedText, TypedText]:
    """A double as the sum of two, of 26 digits each (Veltkamp, in Dekker 1971)."""
    scaled = x * (2.0**27 + 1)
    high = scaled - (scaled - x)
    return high, x - high


def pair_add(x: Pair, y: Pair) -> Pair:
    total = two_sum(x.hi, y.hi)
    return quick_sum(total.hi, total.lo + (x.lo + y.lo))


def pair_multiply(x: Pair, y: Pair) -> Pair:
    product = two_product(x.hi, y.hi)
    code = x.hi.code
    return quick_sum(product.hi, code.fma(x.lo, y.hi, code.fma(x.hi, y.lo, product.lo)))


def pair_divide(x: Pair, y: Pair) -> Pair:
    code = x.hi.code
    quotient = x.hi / y.hi
    rest = code.residue(x.hi, quotient, y.hi)
    return quick_sum(quotient, (rest + code.fma(-quotient, y.lo, x.lo)) / y.hi)


def constant_pair(c: BodyText, number: tuple[float, float]) -> Pair:
    """A pair of doubles that are known."""
    return Pair(c.const(number[0], "double"), c.const(number[1], "double"))


def rational_pair(number: tuple[int, int], type: str = "double") -> tuple[float, float]:
    """A rational number (numerator, denominator) as a pair of floats."""
    numerator, denominator = number
    hi = _rounded(numerator / denominator, type)
    n, d = hi.as_integer_ratio()
    return hi, _rounded((numerator * d - n * denominator) / (denominator * d), type)


def _rounded(x: float, type: str) -> float:
    return struct.unpack("<f", struct.pack("<f", x))[0] if type == "float" else x


INFINITY = inf
NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000000))[0]
