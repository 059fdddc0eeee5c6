"""C's arithmetic and conversions on numbers: integers never wrap, what does not fit is an error. Imports the values and
`ir.constants`."""

from __future__ import annotations

import math
from typing import Any

from lightnet.ir.constants import int_div
from lightnet_descriptions.c.tree import Type
from lightnet_descriptions.c.values import SIZES, CMemory, Enumerator, Float, shown
from lightnet_descriptions.c.variables import Variable


def c_kind(value: Any) -> str:
    return "float" if isinstance(value, Float) else "double" if isinstance(value, float) else "int"


def c_size_of(type: Type) -> int:
    return 8 if type.is_pointer else SIZES.get(type.name, 8)


def c_element_type(memory: CMemory) -> Type:
    if isinstance(memory, Variable):
        return memory.declared
    name = memory.type.rstrip(" *")
    return Type(name, memory.type.count("*"))


def integer(value: Any, type: str) -> Any:
    """`value` as an integer of `type`: a number is cut, an enumerator and text stay what they are. Raises ValueError
    where it does not fit."""
    if isinstance(value, Enumerator):
        return value
    if isinstance(value, str) and len(value) == 1 and type == "char":
        return value
    if not isinstance(value, int | float):
        raise TypeError(f"{shown(value)} is no {type}")
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is no {type}")
        value = math.trunc(value)
    if type in ("ln_bool", "bool"):
        return int(value != 0)
    bits = 8 * SIZES[type]
    low, high = (
        (0, 1 << bits) if "unsigned" in type or type.startswith(("u", "size")) else (-(1 << bits - 1), 1 << bits - 1)
    )
    if not low <= value < high:
        raise ValueError(f"{value} does not fit {type}")
    return int(value)


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, Enumerator) and isinstance(b, int):
        return a.number == b
    if isinstance(b, Enumerator) and isinstance(a, int):
        return b.number == a
    if isinstance(a, str) and isinstance(b, str):
        raise TypeError("strings are compared by ln_streq(a, b), not by ==")
    if a is None or b is None:
        return (a is None or a == 0) and (b is None or b == 0)
    return bool(a == b)


def negated(value: Any, op: str) -> Any:
    if not isinstance(value, int | float):
        raise TypeError(f"'{op}' takes a number, not {shown(value)}")
    return type(value)(-value) if op == "-" else value


_INT64 = 1 << 63


def c_arithmetic(op: str, a: Any, b: Any) -> Any:
    """A binary operator of C on numbers; what does not fit 64 bits is a ValueError, a division of integers by 0 an
    ArithmeticError."""
    a, b = (x.number if isinstance(x, Enumerator) and x.number is not None else x for x in (a, b))
    for x in (a, b):
        if not isinstance(x, int | float):
            raise TypeError(f"'{op}' takes numbers, not {shown(x)}")
    if op in ("<", "<=", ">", ">="):
        return int({"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[op])
    if isinstance(a, int) and isinstance(b, int):
        return _whole(op, int(a), int(b))
    found = _real(op, float(a), float(b))
    single = all(isinstance(x, Float | int) for x in (a, b))
    return Float(found) if single else found


def _whole(op: str, a: int, b: int) -> int:
    if op in ("/", "%"):
        if b == 0:
            raise ArithmeticError(f"{a} {op} 0: a division by zero")
        found = int_div(a, b)
        return found if op == "/" else a - b * found
    if op in ("<<", ">>"):
        if not 0 <= b < 64:
            raise ValueError(f"a shift by {b}")
        found = a << b if op == "<<" else a >> b
    else:
        found = {"+": a + b, "-": a - b, "*": a * b, "&": a & b, "|": a | b, "^": a ^ b}[op]
    if not -_INT64 <= found < 2 * _INT64:
        raise ValueError(f"{a} {op} {b} does not fit 64 bits")
    return found


def _real(op: str, a: float, b: float) -> float:
    if op == "/" and b == 0:
        return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1.0, b)
    found = {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a / b}.get(op)
    if found is None:
        raise TypeError(f"'{op}' takes integers")
    return found()
