"""The attributes that every op of levels 1 to 3 may carry: its name and its results' names in the source network, and
their places.

All are discardable attributes, printed behind the op: ``at arena+64 as "conv2d0"("conv1")``. Rewrites keep names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute, Operation, OpResult, SSAValue
from xdsl.parser import Parser
from xdsl.printer import Printer

from lightnet.ir.place import PlaceAttr, parse_place
from lightnet.ir.types import format_param_value

OP_NAME = "ln.name"  #: discardable attribute: the op's name in the source network
TENSORS = "ln.tensors"  #: discardable attribute: the names of its results


class FreshNames:
    """Names that are new: the wished one, or with a number from `first` on behind it, after `separator`. `taken` are
    those in use, `reserved` further ones that nobody gets."""

    def __init__(
        self, taken: Iterable[str] = (), *, reserved: Iterable[str] = (), first: int = 1, separator: str = "_"
    ):
        self.taken = set(taken)
        self.reserved = frozenset(reserved)
        self.first, self.separator = first, separator
        self._next: dict[str, int] = {}  # a wish -> the number to try: many equal wishes stay linear

    def fresh(self, wish: str, *, may_be_reserved: bool = False) -> str:
        """The new name, which is taken from now on."""
        name = wish
        while name in self.taken or (not may_be_reserved and name in self.reserved):
            number = self._next.get(wish, self.first)
            self._next[wish] = number + 1
            name = f"{wish}{self.separator}{number}"
        self.taken.add(name)
        return name


def name_of(op: Operation) -> str | None:
    """The name an op has in the source network."""
    attr = op.attributes.get(OP_NAME)
    return attr.data if isinstance(attr, StringAttr) else None


def tensor_names(op: Operation) -> tuple[str | None, ...]:
    """The source names of an op's results (None where unknown)."""
    attr = op.attributes.get(TENSORS)
    if not isinstance(attr, ArrayAttr):
        return (None,) * len(op.results)
    names = tuple(a.data or None for a in attr if isinstance(a, StringAttr))
    return names + (None,) * (len(op.results) - len(names))


def tensor_name(value: SSAValue) -> str | None:
    """The source name of one value: cheap also where its op has thousands of results (`ln.once`)."""
    if not isinstance(value, OpResult):
        return None
    attr = value.op.attributes.get(TENSORS)
    if not isinstance(attr, ArrayAttr) or value.index >= len(attr.data):
        return None
    name = attr.data[value.index]
    return name.data or None if isinstance(name, StringAttr) else None


def set_tensor_names(op: Operation, names: Sequence[str | None]) -> None:
    """Name an op's results (an empty string stands for an unknown name); hints follow."""
    if not any(names):
        op.attributes.pop(TENSORS, None)
        return
    op.attributes[TENSORS] = ArrayAttr([StringAttr(n or "") for n in names])
    for value, tensor in zip(op.results, names):
        if tensor:
            value.name_hint = name_hint(tensor)


def name_hint(tensor: str) -> str | None:
    """The SSA name of a tensor. xDSL takes a trailing ``_1`` for a suffix of its own, at each reading: spell it
    ``.1``."""
    hint = re.sub(r"_(\d+)$", r".\1", tensor)
    return hint if SSAValue.is_valid_name(hint) else None


PLACES = "ln.places"  #: after `plan`: an array of `#ln.place`, one a result
WORKSPACE = "ln.workspace"  #: after `plan`: the places of a kernel's workspace
SUFFIX = (OP_NAME, TENSORS, PLACES, WORKSPACE)


def places_of(op: Operation) -> tuple[PlaceAttr, ...]:
    """The places of an op's results, empty before `plan`."""
    attr = op.attributes.get(PLACES)
    return attr.data if isinstance(attr, ArrayAttr) else ()


def parse_operands(parser: Parser) -> list[SSAValue]:
    """A possibly empty comma-separated list of values that are already defined (types are not repeated)."""
    operands: list[SSAValue] = []
    unresolved = parser.parse_optional_unresolved_operand()
    while unresolved is not None:
        operands.append(resolve_value(parser, unresolved))
        unresolved = parser.parse_unresolved_operand() if parser.parse_optional_punctuation(",") else None
    return operands


def resolve_value(parser: Parser, unresolved: Any) -> SSAValue:
    """The value behind a parsed ``%name``; an undefined one is an error at its use."""
    values = parser.ssa_values.get(unresolved.operand_name)
    if values is None or unresolved.index >= len(values):
        parser.raise_error(f"value %{unresolved.operand_name} is used before it is defined", unresolved.span)
    return values[unresolved.index]


def parse_suffix(parser: Parser, attributes: dict[str, Attribute]) -> None:
    """``at arena+64, arena+128 work arena+4096 as "conv2d0"("conv1")``, each part optional."""
    for key, word in ((PLACES, "at"), (WORKSPACE, "work")):
        if parser.parse_optional_keyword(word):
            places = parser.parse_comma_separated_list(parser.Delimiter.NONE, lambda: parse_place(parser))
            attributes[key] = ArrayAttr(places)
    if not parser.parse_optional_keyword("as"):
        return
    if (name := parser.parse_optional_str_literal()) is not None:
        attributes[OP_NAME] = StringAttr(name)
    if parser.parse_optional_punctuation("("):
        names = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_str_literal)
        parser.parse_punctuation(")")
        attributes[TENSORS] = ArrayAttr([StringAttr(n) for n in names])


def print_suffix(printer: Printer, op: Operation) -> None:
    for key, word in ((PLACES, "at"), (WORKSPACE, "work")):
        if isinstance(places := op.attributes.get(key), ArrayAttr):
            printer.print_string(f" {word} {', '.join(map(str, places))}")
    name, tensors = op.attributes.get(OP_NAME), op.attributes.get(TENSORS)
    if name is None and tensors is None:
        return
    printer.print_string(" as ")
    if isinstance(name, StringAttr):
        printer.print_string(format_param_value(name.data))
    if isinstance(tensors, ArrayAttr):
        printer.print_string(f"({', '.join(format_param_value(t.data) for t in tensors)})")
