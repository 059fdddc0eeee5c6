"""f16 and bf16 in LLVM IR: conversions without library calls, and arithmetic on them in float. Part of the emitter.

LLVM turns ``fpext`` and ``fptrunc`` of these types into calls of a compiler's run-time library (``__truncsfbf2``, …)
wherever the processor has no instruction, and neither a JIT nor an object file of ours links that. So bfloat, the upper
half of a float, is shifted, and half is converted by the processor where it can (F16C, AVX-512, AArch64) and else by
integer arithmetic. All of it vectorises.
"""

from __future__ import annotations

from lightnet.backends.llvm.function import FunctionEmitter
from lightnet.backends.llvm.values import float_literal, leaf_type, splat_literal

#: The element types that values are stored in, and not computed in.
SHORT = ("half", "bfloat")


def element_text(type: str) -> str:
    """The element type of a scalar's or a vector's type."""
    return type[1:-1].partition(" x ")[2] if type.startswith("<") else type


def is_short(type: str) -> bool:
    return element_text(type) in SHORT


class _Lanes:
    """Instructions on float and i32 values of so many lanes; operands are texts or Python numbers."""

    def __init__(self, e: FunctionEmitter, lanes: int):
        self.e, self.lanes = e, lanes

    def type(self, elem: str) -> str:
        return leaf_type(elem, self.lanes)

    def number(self, value: int | str, elem: str = "i32") -> str:
        return value if isinstance(value, str) else splat_literal(elem, self.lanes, str(value))

    def op(self, instruction: str, x: str, y: int | str, elem: str = "i32") -> str:
        return self.e.ins(f"{instruction} {self.type(elem)} {x}, {self.number(y, elem)}")

    def cast(self, instruction: str, x: str, source: str, target: str) -> str:
        return self.e.ins(f"{instruction} {self.type(source)} {x} to {self.type(target)}")

    def select(self, cond: str, x: int | str, y: int | str) -> str:
        i32 = self.type("i32")
        return self.e.ins(f"select {self.type('i1')} {cond}, {i32} {self.number(x)}, {i32} {self.number(y)}")

    def float(self, value: float) -> str:
        return splat_literal("float", self.lanes, float_literal(value, "float"))


def widen(e: FunctionEmitter, x: str, elem: str, lanes: int) -> str:
    """A half or bfloat as a float; exact."""
    v = _Lanes(e, lanes)
    if elem == "half" and e.has_half:
        return v.cast("fpext", x, "half", "float")
    bits = v.cast("zext", v.cast("bitcast", x, elem, "i16"), "i16", "i32")
    if elem == "bfloat":
        return v.cast("bitcast", v.op("shl", bits, 16), "i32", "float")
    magnitude = v.op("shl", v.op("and", bits, 0x7FFF), 13)
    # The exponent's bias is 112 less: a product puts that right for subnormal numbers too.
    scaled = v.e.ins(f"fmul {v.type('float')} {v.cast('bitcast', magnitude, 'i32', 'float')}, {v.float(2.0**112)}")
    special = v.op("icmp uge", magnitude, 0x7C00 << 13)  # infinity, NaN
    finite = v.cast("bitcast", scaled, "float", "i32")
    value = v.select(special, v.op("or", magnitude, 0x7F800000), finite)
    sign = v.op("shl", v.op("and", bits, 0x8000), 16)
    return v.cast("bitcast", v.op("or", value, sign), "i32", "float")


def short_float(e: FunctionEmitter, x: str, elem: str, lanes: int) -> str:
    """A float as a half or bfloat: to nearest, ties to even, overflow to infinity; a NaN stays one."""
    v = _Lanes(e, lanes)
    if (elem == "half" and e.has_half) or (elem == "bfloat" and e.has_bfloat):
        return v.cast("fptrunc", x, "float", elem)
    bits = v.cast("bitcast", x, "float", "i32")
    short = _to_bfloat(v, x, bits) if elem == "bfloat" else _to_half(v, bits)
    return v.cast("bitcast", v.cast("trunc", short, "i32", "i16"), "i16", elem)


def _to_bfloat(v: _Lanes, x: str, bits: str) -> str:
    odd = v.op("and", v.op("lshr", bits, 16), 1)
    rounded = v.op("lshr", v.op("add", v.op("add", bits, 0x7FFF), odd), 16)
    quiet = v.op("or", v.op("lshr", bits, 16), 0x40)  # rounding up could carry a NaN to infinity
    return v.select(v.e.ins(f"fcmp uno {v.type('float')} {x}, {v.float(0.0)}"), quiet, rounded)


def _to_half(v: _Lanes, bits: str) -> str:
    magnitude = v.op("and", bits, 0x7FFFFFFF)
    odd = v.op("and", v.op("lshr", magnitude, 13), 1)
    moved = v.op("add", v.op("add", magnitude, 0xFFF - (112 << 23)), odd)
    result = v.op("lshr", moved, 13)
    # Below 2^-14, the sum with 1/2 has the subnormal number in its last bits, rounded by the addition.
    sum_ = v.e.ins(f"fadd {v.type('float')} {v.cast('bitcast', magnitude, 'i32', 'float')}, {v.float(0.5)}")
    subnormal = v.op("sub", v.cast("bitcast", sum_, "float", "i32"), 0x3F000000)
    result = v.select(v.op("icmp ult", magnitude, 0x38800000), subnormal, result)
    result = v.select(v.op("icmp uge", magnitude, 0x477FF000), 0x7C00, result)  # 65520 rounds to infinity
    nan = v.op("or", v.op("and", v.op("lshr", magnitude, 13), 0x3FF), 0x7E00)
    result = v.select(v.op("icmp ugt", magnitude, 0x7F800000), nan, result)
    return v.op("or", result, v.op("and", v.op("lshr", bits, 16), 0x8000))


def to_odd(e: FunctionEmitter, x: str, lanes: int) -> str:
    """A double as a float rounded to odd: rounding that again rounds the double right (Boldo and Melquiond, 2008)."""
    v = _Lanes(e, lanes)
    near = v.cast("fptrunc", x, "double", "float")
    back = v.cast("fpext", near, "float", "double")
    double = v.type("double")
    far, size = (e.intrinsic("fabs", double, [(double, y)]) for y in (back, x))
    above = v.cast("zext", e.ins(f"fcmp ogt {double} {far}, {size}"), "i1", "i32")
    bits = v.cast("bitcast", near, "float", "i32")
    odd = v.op("or", v.op("sub", bits, above), 1)
    exact = e.ins(f"fcmp oeq {double} {back}, {x}")
    return v.cast("bitcast", v.select(exact, bits, odd), "i32", "float")
