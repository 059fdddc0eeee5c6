"""A place: where a planned value stands, as a memory space and a byte offset.

Level 3 writes places on results (`ln.places`), level 4 uses them as the arguments of launches. An offset that a call
decides is a `Dim`. Imports xDSL, dims and their text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects.builtin import IntAttr, StringAttr
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from lightnet.ir.types import format_param_value, parse_open_size
from lightnet.runtime.dims import least


@irdl_attr_definition
class PlaceAttr(ParametrizedAttribute):
    """``#ln.place<arena, 1024>``: byte `offset` (at least 0) of memory space `space`; ``arena+1024`` inside ops, and
    ``arena+?"256*batch(1..16)"`` where a call decides."""

    name = "ln.place"

    space: StringAttr
    offset: IntAttr

    def __init__(self, space: str | StringAttr, offset: int | IntAttr):
        super().__init__(
            StringAttr(space) if isinstance(space, str) else space,
            offset if isinstance(offset, IntAttr) else IntAttr(offset),
        )

    def verify(self) -> None:
        if not self.space.data.isidentifier():
            raise VerifyException(f"a memory space is an identifier, got {self.space.data!r}")
        if least(self.offset.data) < 0:
            raise VerifyException(f"an offset is at least 0, got {self.offset.data}")

    def __str__(self) -> str:
        return f"{self.space.data}+{format_param_value(self.offset.data)}"

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            space = parser.parse_identifier(" of a memory space")
            parser.parse_punctuation(",")
            return [StringAttr(space), IntAttr(_parse_offset(parser))]

    def print_parameters(self, printer: Printer) -> None:
        printer.print_string(f"<{self.space.data}, {format_param_value(self.offset.data)}>")


def _parse_offset(parser: AttrParser) -> Any:
    size = parse_open_size(parser)
    return parser.parse_integer(allow_boolean=False, allow_negative=False) if size is None else size


def parse_place(parser: AttrParser) -> PlaceAttr:
    """Parse the short form ``arena+1024`` (``arena`` alone is offset 0)."""
    space = parser.parse_identifier(" of a memory space")
    offset = 0
    if parser.parse_optional_punctuation("+"):
        offset = _parse_offset(parser)
    return PlaceAttr(space, offset)


def parse_places(parser: AttrParser) -> list[PlaceAttr]:
    """Parse ``[arena+0, static+64]``."""
    return parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: parse_place(parser))


def print_places(printer: Printer, places: Sequence[Attribute]) -> None:
    """Print ``[arena+0, static+64]``."""
    printer.print_string(f"[{', '.join(map(str, places))}]")
