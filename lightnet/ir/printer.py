"""The printer of IR: xDSL's, with names for values that have no hint, and long lists broken over lines.

A name that follows from what a value is (the number of a constant, the id of a thread, the memory that is loaded) is
found here, when somebody looks, and costs a compilation nothing; names that only their maker knows (a tensor, the axis
of a loop) are hints on the values. Both survive: a printed name is a hint when the text is read. As MLIR does it with
``getAsmResultNames``: an op of ours says in `result_hint` what its results are called. Imports xDSL.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from xdsl.dialects.builtin import IndexType, IntegerAttr, IntegerType, ModuleOp
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError

#: Columns that a line should have at most.
COLUMNS = 120
#: Columns by which what is broken off stands behind the beginning of its line.
HANGING = 4
#: What decides where a line may be broken: texts in quotes, brackets, commas, colons before types, words before lists.
_MARKS = re.compile(r'"(?:[^"\\]++|\\.)*+"|->|[(\[{<]|[)\]}>]|, | : | (?=[a-z_]+ ?[\[{(])')


@dataclass(frozen=True)
class TextForm:
    """The form of printed IR: in MLIR's `generic` form, with the `locations` of ops, with lines of at most so many
    `columns` where lists allow it (0: lines are never broken)."""

    generic: bool = False
    locations: bool = False
    columns: int = COLUMNS

    def text(self, op: Operation) -> str:
        """An op, and what stands in it."""
        stream = io.StringIO()
        LnPrinter(stream, print_generic_format=self.generic, print_debuginfo=self.locations).print_op(op)
        text = stream.getvalue().rstrip("\n")
        return wrapped(text, self.columns) if self.columns else text


def module_text(module: ModuleOp, form: TextForm = TextForm()) -> str:
    """The module as text, ending in a newline. Raises `LightNetError` where it is nested too deeply."""
    with printing():
        return form.text(module) + "\n"


@contextmanager
def printing() -> Iterator[None]:
    """Raise `LightNetError` for what is printed inside and nested too deeply."""
    try:
        yield
    except RecursionError as e:
        raise LightNetError("the module is nested too deeply to be printed") from e


class LnPrinter(Printer):
    """xDSL's printer, which describes values without a name hint (`hint_for`)."""

    def print_ssa_value(self, value: SSAValue) -> str:
        if value.name_hint is None and value not in self._ssa_values and (hint := _described(value)) is not None:
            number = self.ssa_names.get(hint, 0)
            self._ssa_values[value] = f"{hint}_{number}" if number else hint
            self.ssa_names[hint] = number + 1
        return super().print_ssa_value(value)


# -- names


def hint_for(value: SSAValue) -> str | None:
    """The hint of a value, or what it is; None where that says nothing."""
    return value.name_hint or _described(value)


def part_of(memory: SSAValue, what: str) -> str:
    """The name of what is loaded from memory: ``x.tile``."""
    name = hint_for(memory)
    return what if name is None else f"{name}.{what}"


def _described(value: SSAValue) -> str | None:
    if isinstance(value, BlockArgument):
        return _argument(value)
    op = value.owner
    assert isinstance(op, Operation)
    if (rule := _RESULTS.get(op.name)) is not None:
        return rule(op, value)
    hint = getattr(op, "result_hint", None)
    return hint() if hint is not None else None


def _argument(value: BlockArgument) -> str | None:
    op = value.owner.parent_op()
    if op is None or value.owner is not op.regions[0].blocks.first:
        return None
    if op.name == "scf.for":
        return "acc" if value.index else "i"
    return f"arg{value.index}" if op.has_trait(IsolatedFromAbove, value_if_unregistered=False) else None


def _constant(op: Operation, value: SSAValue) -> str:
    """As MLIR calls constants."""
    number = op.properties.get("value")
    if not isinstance(number, IntegerAttr):
        return "cst"
    match value.type:
        case IndexType():
            return f"c{number.value.data}"
        case IntegerType() as type if type.width.data == 1:
            return "true" if number.value.data else "false"
    return f"c{number.value.data}_{value.type}"


def _of_loop(op: Operation, value: SSAValue) -> str:
    """Name what a loop leaves after what it carries."""
    carried = op.regions[0].block.args[1:]
    return next((a.name_hint for a, r in zip(carried, op.results) if r is value and a.name_hint), "acc")


#: Names of the results of ops that are not ours.
_RESULTS: dict[str, Callable[[Operation, SSAValue], str | None]] = {
    "arith.constant": _constant,
    "scf.for": _of_loop,
    "memref.load": lambda op, _: part_of(op.operands[0], "value"),
    "memref.alloca": lambda op, _: "alloca",
}


# -- lines


def wrapped(text: str, columns: int = COLUMNS) -> str:
    """Text of IR, in which lists that reach beyond so many columns go on in further lines. It means the same."""
    return "\n".join(piece for line in text.split("\n") for piece in wrapped_line(line, columns))


def wrapped_line(line: str, columns: int = COLUMNS) -> list[str]:
    """A line in pieces of at most so many columns, as far as its lists allow that: it ends behind a comma, before the
    types of an op, or before the word that tells what a list is, where brackets are nested little."""
    if len(line) <= columns:
        return [line]
    places = [*_places(line)]
    hanging = " " * (len(line) - len(line.lstrip()) + HANGING)
    pieces: list[str] = []
    start, k, room = 0, 0, columns
    while len(line) - start > room and k < len(places):
        fits = k
        while fits < len(places) and places[fits].end - start <= room:
            fits += 1
        best = min(range(k, max(fits, k + 1)), key=lambda i: places[i].cost(start, room))  # what is too long ends late
        pieces.append(hanging[: len(hanging) if start else 0] + line[start : places[best].end])
        start, k, room = places[best].next, best + 1, max(1, columns - len(hanging))
    return [*pieces, hanging[: len(hanging) if start else 0] + line[start:]]


class _Place(NamedTuple):
    """A place where a line may be broken: it ends before `end` and goes on at `next`; `nesting` counts the brackets."""

    end: int
    next: int
    nesting: float

    def cost(self, start: int, room: int) -> float:
        """The price of breaking there: a fourth of the line that stays empty is as bad as a bracket."""
        return self.nesting + 4 * (room + start - self.end) / room


def _places(line: str) -> Iterator[_Place]:
    """The places where a line may be broken. What is in angle brackets is a type or table, which other places are
    better than; before types is better than between them."""
    nesting = 0
    for mark in _MARKS.finditer(line):
        text = mark.group()
        if text == ", ":
            yield _Place(mark.end() - 1, mark.end(), nesting)
        elif text in (" : ", " "):
            if not nesting:
                yield _Place(mark.start(), mark.start() + 1, 0 if text == " " else -2)
        elif text in _NESTING:
            nesting += _NESTING[text]


_NESTING = {"(": 1, "[": 1, "{": 1, "<": 10, ")": -1, "]": -1, "}": -1, ">": -10}
