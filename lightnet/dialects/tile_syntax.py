"""The syntax of the `tile` dialect beyond xDSL's directives: words without quotes, the types of comparisons, and arrays
of integers, ``grid [8, 2, 1]``, where a format does not say them. Imports xDSL."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import DenseArrayBase, IntegerType, StringAttr, VectorType, i1, i64
from xdsl.irdl import IRDLOperation
from xdsl.irdl.declarative_assembly_format import (
    AttributeVariable,
    CustomDirective,
    ParsingState,
    PrintingState,
    TypeDirective,
    irdl_custom_directive,
)
from xdsl.parser import Parser
from xdsl.printer import Printer


@irdl_custom_directive
class Word(CustomDirective):
    """A text without quotes, such as the kind of a cast."""

    text: AttributeVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        self.text.set(state, StringAttr(parser.parse_identifier(f" as the {self.text.name}")))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        text = self.text.get(op)
        assert isinstance(text, StringAttr)
        state.print_whitespace(printer)
        printer.print_string(text.data)


@irdl_custom_directive
class Compared(CustomDirective):
    """The type of vectors that are compared, from which that of the result follows."""

    operand: TypeDirective
    result: TypeDirective

    def parse(self, parser: Parser, state: ParsingState) -> None:
        type = parser.parse_type()
        if not isinstance(type, VectorType):
            parser.raise_error(f"expected a vector type, got {type}")
        self.operand.set(state, (type,))
        self.result.set(state, (VectorType(i1, type.get_shape()),))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        self.operand.print(printer, state, op)


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
