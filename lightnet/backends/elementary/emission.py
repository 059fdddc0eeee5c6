"""The elementary functions in kernels: in place of float, as functions that are called of double. Part of the emitter.

LLVM calls libm lane by lane, which costs several times what the rest of a kernel does, and its NVPTX has no library at
all: a call of ``llvm.log.f32`` ends the process. So kernels call functions of our own, ``@ln.log.f64``, whose
definitions go into their module (`definitions`).
"""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.ir import Operation

from lightnet.backends.elementary.code import BodyText, Definition, TypedText
from lightnet.backends.elementary.table import BY_OP, FUNCTIONS, PREFIX
from lightnet.backends.llvm.function import FunctionEmitter, flatten
from lightnet.backends.llvm.short_floats import element_text
from lightnet.dataclasses import dataclass

TYPES = {"f32": "float", "f64": "double"}


def emit_call(
    e: FunctionEmitter, op: Operation, a: list[str], t: str, r: str, lanes: int, division: str = "fdiv"
) -> str:
    """An op of the table on operands of float or double; the result's operand text. `division`: see `BodyText`."""
    row, elem = BY_OP[type(op)], element_text(r)
    if elem == "float":
        return in_place(row.definition(elem), e, a, r, lanes, division)
    symbol = f"{PREFIX}{row.name}.f64"
    if lanes == 1:
        return e.ins(e.call_text(symbol, elem, [(elem, x) for x in a]))
    lane = [[e.ins(f"extractelement {t} {x}, i64 {k}") for x in a] for k in range(lanes)]
    return e.leaf_of_elements(elem, [e.ins(e.call_text(symbol, elem, [(elem, x) for x in xs])) for xs in lane])


def in_place(
    definition: Definition, e: FunctionEmitter, a: list[str], r: str, lanes: int, division: str = "fdiv"
) -> str:
    """The code that a definition makes of operands of type `r`, here; the result's operand text."""
    code = BodyText(e, lanes, division)
    return definition(code, *(TypedText(code, element_text(r), x) for x in a)).text


@dataclass(frozen=True)
class Definitions:
    """Texts of functions, and the declarations that they need."""

    texts: list[str]
    declared: list[str]


def definitions(declarations: Iterable[str], has_fma: bool = True) -> Definitions:
    """The definitions of the functions that these lines declare."""
    symbols = sorted({line.partition("@")[2].partition("(")[0] for line in declarations})
    made = [definition(symbol, has_fma) for symbol in symbols]
    return Definitions([text for text, _ in made], sorted(set().union(*(needed for _, needed in made))))


def definition(symbol: str, has_fma: bool = True) -> tuple[str, set[str]]:
    """The text of a function by its symbol (``ln.log.f64``), and the declarations that it needs."""
    _, name, suffix = symbol.split(".")
    row, type = FUNCTIONS[name], TYPES[suffix]
    e = FunctionEmitter(1, tiled=False, handlers={}, has_fma=has_fma)
    code = BodyText(e)
    args = [TypedText(code, type, f"%x{k}") for k in range(row.arity)]
    result = row.definition(type)(code, *args)
    lines = [line if line.endswith(":") else "  " + line for line in flatten(e.scopes[0].lines, [])]
    head = f"define internal {type} @{symbol}({', '.join(a.typed for a in args)}) nounwind alwaysinline"
    return "\n".join([f"{head} {{", "entry:", *lines, f"  ret {result.typed}", "}"]), e.declared
