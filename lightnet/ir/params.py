"""The values that parameters of ops take: document 004's seven types as Python values. Imports `runtime.dims`."""

from __future__ import annotations

from lightnet.runtime.dims import Size

#: None, a string, a bool or a number (int or float, kept as written, or a dim that a call decides).
ParamScalar = None | str | bool | int | float | Size
#: One of these, or a tuple of such of one kind.
ParamValue = ParamScalar | tuple[ParamScalar, ...]


def ptype_of(value: ParamValue) -> str:
    """Document 004's type of a parameter's value."""
    if value is None:
        return "LN_PARAM_NULL"
    scalar = value[0] if isinstance(value, tuple) and value else value
    if isinstance(value, tuple) and not value:
        return "LN_PARAM_ARRAY_NUMBER"
    if scalar is None:
        return "LN_PARAM_ARRAY_NULL"  # of no op: IL may write one, and upstream's JSON parser takes none
    base = "BOOL" if isinstance(scalar, bool) else "STRING" if isinstance(scalar, str) else "NUMBER"
    return f"LN_PARAM_{'ARRAY_' if isinstance(value, tuple) else ''}{base}"


def same_value(a: object, b: object) -> bool:
    """Equal and of the same kind (1 and 1.0 differ in text, 1 and true in meaning)."""
    return (
        type(a) is type(b)
        and a == b
        and (not isinstance(a, tuple) or not isinstance(b, tuple) or all(map(same_value, a, b)))
    )
