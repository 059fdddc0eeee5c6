"""The arguments of functions, as what they should be: each of these raises TypeError for what is something else.
Imports the values and the dtypes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from lightnet.runtime.dtypes import BY_NAME, BY_TL, DType
from lightnet_descriptions.c.values import MAX_TEXT, Enumerator, Pointer, shown, text_of

_FORMAT = re.compile(r"%%|%[-+ #0]*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|h|ll|l|z|j|t)?([diuoxXfFeEgGcsp])", re.ASCII)


def whole(value: Any, what: str = "an integer") -> int:
    """An argument that is an integer."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"expected {what}, got {shown(value)}")
    return value


def string_argument(value: Any) -> str:
    """An argument that is a string."""
    found = text_of(value)
    if found is None:
        raise TypeError(f"expected a string, got {shown(value)}")
    return found


def integers(value: Any, count: Any) -> list[int]:
    """The first `count` integers of an array."""
    if not isinstance(value, Pointer):
        raise TypeError(f"expected an array, got {shown(value)}")
    if not 0 <= whole(count) <= value.memory.length:
        raise IndexError(f"{count} elements are read of an array of {value.memory.length}")
    return [whole(v) for v in value.elements(count)]


def dtype_of(value: Any) -> DType:
    """The dtype that an enumerator is."""
    name = value.name if isinstance(value, Enumerator) else value
    if not isinstance(name, str) or (found := BY_TL.get(name) or BY_NAME.get(name)) is None:
        raise TypeError(f"{shown(value)} is no dtype")
    return found


def formatted(form: str, args: Sequence[Any]) -> str:
    """The text that `printf` makes; a value is shown as what it is, whatever its format says."""
    values = iter(args)

    def one(m: re.Match[str]) -> str:
        if m[0] == "%%":
            return "%"
        value = next(values, m[0])
        if isinstance(value, float) and m[1] in "fFeEgG" and "*" not in m[0]:
            return re.sub(r"h+|l+|[zjt]", "", m[0]) % value
        found = text_of(value)
        return found if found is not None else shown(value)

    found = _FORMAT.sub(one, form)
    if len(found) > MAX_TEXT:
        raise ValueError(f"a text of more than {MAX_TEXT} characters")
    return found
