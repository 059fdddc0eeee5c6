"""Ops that are made of what their definitions say, and operands with the types that they are checked for: those of
xDSL's own declarations are values of any type.

Imports xDSL.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import ClassVar, Self, TypeVar, cast

from xdsl.dialects.builtin import IntegerAttr, UnitAttr, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import AttrConstraint, IRDLOperation, operand_def, var_operand_def
from xdsl.irdl.declarative_assembly_format import FormatProgram
from xdsl.irdl.operations import VarOperand
from xdsl.parser import Parser
from xdsl.printer import Printer

_T = TypeVar("_T", bound=Attribute, covariant=True)


def operand_of(kind: type[_T] | AttrConstraint[_T]) -> SSAValue[_T]:
    """`operand_def`: one operand of this type."""
    return cast("SSAValue[_T]", operand_def(kind))


def operands_of(kind: type[_T] | AttrConstraint[_T]) -> VarOperand[_T]:
    """`var_operand_def`: any number of operands of this type."""
    return cast("VarOperand[_T]", var_operand_def(kind))


class FormattedOp(IRDLOperation):
    """An op whose text is what its `SYNTAX` says, in xDSL's format of assembly. That is read when the first op of the
    class is parsed or printed: compiling does neither."""

    SYNTAX: ClassVar[str]

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        return _format(cls).parse(parser, cls)

    def print(self, printer: Printer) -> None:
        _format(type(self)).print(printer, self)


@cache
def _format(cls: type[FormattedOp]) -> FormatProgram:
    return FormatProgram.from_str(cls.SYNTAX, cls.get_irdl_definition())


_Value = SSAValue | Operation


class DefinedOp(FormattedOp):
    """An op that is made of operands in the order of its definition (of a variadic one a list, of an optional one that
    is not there None), and of attributes, integers and flags by name. A result has the type of the operand for which
    the definition has the same constraint."""

    def __init__(self, *operands: _Value | Sequence[_Value] | None, **properties: Attribute | int):
        super().__init__(
            operands=operands,
            result_types=[_types_of(operands[k]) for k in _alike(type(self))],
            properties={name: _property(value) for name, value in properties.items()},
        )


@cache
def _alike(cls: type[IRDLOperation]) -> list[int]:
    """The operand of the same type as each result, by number."""
    definition = cls.get_irdl_definition()
    constraints = [operand.constr for _, operand in definition.operands]
    return [constraints.index(result.constr) for _, result in definition.results]


def _types_of(operand: _Value | Sequence[_Value] | None) -> Attribute | list[Attribute]:
    if isinstance(operand, SSAValue | Operation):
        return SSAValue.get(operand).type
    return [SSAValue.get(value).type for value in operand or ()]


def _property(value: Attribute | int) -> Attribute | None:
    if isinstance(value, bool):
        return UnitAttr() if value else None
    return IntegerAttr(value, i64) if isinstance(value, int) else value
