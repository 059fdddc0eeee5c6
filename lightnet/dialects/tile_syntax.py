"""The arrays of integers in the syntax of the `tile` dialect: ``dims [0, 2]``. Imports xDSL."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import DenseArrayBase, IntegerType, i64
from xdsl.parser import Parser
from xdsl.printer import Printer


def ints(values: Sequence[int]) -> DenseArrayBase[IntegerType]:
    """Integers as a property."""
    return DenseArrayBase.from_list(i64, list(values))


def print_ints(printer: Printer, keyword: str, values: DenseArrayBase[IntegerType] | None) -> None:
    """Print `keyword` and the integers; nothing where there are none."""
    if values is not None:
        printer.print_string(f" {keyword} [{', '.join(map(str, values.get_values()))}]")


def parse_ints(parser: Parser, keyword: str) -> DenseArrayBase[IntegerType] | None:
    """The integers behind `keyword`, if that stands here."""
    if parser.parse_optional_keyword(keyword) is None:
        return None
    return ints(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer))
