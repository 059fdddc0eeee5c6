"""C, as descriptions hold it: a small language with a reader of ours, which is never executed as C.

    parse_code(text), parse_expression(text)  text -> tree (`tree`); what is outside of the language is refused
    check_c_code(block, text, scope)        names, functions, numbers of arguments, without running anything
    check_head(text)                        what stands at the head of a file of C: `#include` lines and declarations
    Machine(names, functions).run(…)        runs statements at compile time, within bounds on steps and memory
    evaluate_c(text, names, functions)      one expression, as a value of Python
    library.FUNCTIONS, library.NAMES        what upstream's functions and enumerators mean

Errors are `CodeError`s, whose lines and columns count in the text; `ccode.moved_error(error, item)` gives them their
place in a file. The modules `code.py` and `steps.py` beside this folder say what the code of an operator means with
these. Imports `ir`, the dtypes, and nothing of the compiler besides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightnet_descriptions.c.checks import CodeScope, check_c_code, check_head
from lightnet_descriptions.c.functions import CFunction, RunBudget, function
from lightnet_descriptions.c.machine import CMachine
from lightnet_descriptions.c.parser import parse_code, parse_expression, parse_type
from lightnet_descriptions.c.tree import Expr
from lightnet_descriptions.c.values import (
    CBuffer,
    CMemory,
    CodeError,
    CSymbol,
    Enumerator,
    Float,
    Pointer,
    Struct,
    array,
)

__all__ = [
    "CBuffer",
    "CFunction",
    "CMachine",
    "CMemory",
    "CSymbol",
    "CodeError",
    "CodeScope",
    "Enumerator",
    "Float",
    "Pointer",
    "RunBudget",
    "Struct",
    "array",
    "check_c_code",
    "check_head",
    "evaluate_c",
    "function",
    "parse_code",
    "parse_expression",
    "parse_type",
    "plain",
    "tensor",
]  # fmt: skip


def evaluate_c(
    text: str, names: Mapping[str, Any], functions: Mapping[str, CFunction] | None = None, parsed: Expr | None = None
) -> Any:
    """The value of one expression: an int, a float, a string, None, or a tuple of these for an array. `names` beside
    the enumerators, and `functions` beside the library's; `parsed` is what `text` is, where it was read before. Raises
    `CodeError`, at its place in `text`."""
    from lightnet_descriptions.c import library

    machine = CMachine({**library.NAMES, **names}, library.FUNCTIONS if functions is None else functions)
    return plain(machine.value(parse_expression(text) if parsed is None else parsed, text))


def plain(value: Any) -> Any:
    """A value as Python has it: an enumerator is its name, a pointer the tuple of what is behind it."""
    match value:
        case Enumerator(name=name):
            return name
        case Float():
            return float(value)
        case Pointer(memory=CBuffer(type="char")):
            return value.memory.text(value.offset)
        case Pointer(memory=CBuffer()):
            return tuple(plain(v) for v in value.memory.elements[value.offset :])
    return value


def tensor(name: str, dims: Any, dtype: str) -> Struct:
    """A tensor as code sees it, without data: `dims`, `ndim`, `len` and `dtype` (TensorLight's name of it)."""
    from math import prod

    dims = tuple(int(d) for d in dims)
    from lightnet_descriptions.c import library

    fields = {
        "dims": array("int", dims, f"{name}->dims", read_only=True),
        "ndim": len(dims),
        "len": prod(dims),
        "dtype": library.NAMES[dtype],
    }
    return Struct(f"tensor '{name}'", fields)
