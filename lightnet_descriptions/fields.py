"""Taking the objects of a description apart: which members there may be, and of which kinds. Imports `reader` only."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from lightnet.diagnostics import near_or_all
from lightnet_descriptions.reader import DescribedValue

#: Members that begin so are kept and mean nothing: the place for a tool's own notes.
NOTE = "_"
#: Tensors, parameters, constraints, ... in one array.
MAX_ELEMENTS = 1000
#: Kinds of values by the letters that `members` takes.
_KINDS: dict[str, tuple[str, type | tuple[type, ...]]] = {
    "s": ("a string", str), "b": ("a bool", bool), "n": ("a number", (int, float)), "a": ("an array", list),
    "o": ("an object", dict),
}  # fmt: skip
_IDENTIFIER = re.compile(r"[A-Za-z_]\w{0,199}", re.ASCII)
_WORDS = ("inf", "true", "false", "for", "priv", "op_arg")


def members(
    item: DescribedValue, what: str, known: Mapping[str, str], required: Sequence[str] = ()
) -> dict[str, DescribedValue]:
    """The members of an object that is `what`. `known` says which ones there may be, and of what kinds: ``s`` a string,
    ``b`` a bool, ``n`` a number, ``a`` an array, ``o`` an object. Raises `LightNetError` for an unknown member, one of
    another kind, and a `required` one that is missing."""
    if not isinstance(item.value, dict):
        raise item.error(f"{what} should be an object, but is {item.kind}", "description.kind")
    for key, value in item.value.items():
        if key.startswith(NOTE) and key not in known:
            continue
        if key not in known:
            raise value.key_error(f"{what} has no member '{key[:80]}'{near_or_all(key, known)}", "description.member")
        if known[key] and not any(_is(value, letter) for letter in known[key]):
            kinds = " or ".join(_KINDS[letter][0] for letter in known[key])
            raise value.error(f"'{key}' of {what} should be {kinds}, but is {value.kind}", "description.kind")
    for key in required:
        if key not in item.value:
            raise item.error(f"{what} needs a member '{key}'", "description.member")
    return {key: value for key, value in item.value.items() if key in known}


def _is(item: DescribedValue, letter: str) -> bool:
    value = item.value
    return isinstance(value, _KINDS[letter][1]) and (letter == "b" or not isinstance(value, bool))


def elements(item: DescribedValue, what: str, most: int = MAX_ELEMENTS) -> list[DescribedValue]:
    """The elements of an array, at most so many."""
    if not isinstance(item.value, list):
        raise item.error(f"{what} should be an array, but is {item.kind}", "description.kind")
    if len(item.value) > most:
        raise item.value[most].error(f"{what} has more than {most} elements")
    return item.value


def identifier(item: DescribedValue, what: str) -> str:
    """A name that expressions can refer to."""
    name = item.value
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name) or name in _WORDS:
        raise item.error(f"{what} should be an identifier, but is {name if not isinstance(name, str) else name[:80]!a}")
    return name


def one_of(item: DescribedValue, what: str, names: Sequence[str]) -> str:
    """A string that is one of `names`."""
    if not isinstance(item.value, str) or item.value not in names:
        name = str(item.value)
        raise item.error(f"unknown {what} '{name[:80]}'{near_or_all(name, names)}")
    return item.value
