"""Operands of ops with the types that they are checked for: those of xDSL's own declarations are values of any type.

Imports xDSL.
"""

from __future__ import annotations

from typing import TypeVar, cast

from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import AttrConstraint, operand_def, var_operand_def
from xdsl.irdl.operations import VarOperand

_T = TypeVar("_T", bound=Attribute, covariant=True)


def operand_of(kind: type[_T] | AttrConstraint[_T]) -> SSAValue[_T]:
    """`operand_def`: one operand of this type."""
    return cast("SSAValue[_T]", operand_def(kind))


def operands_of(kind: type[_T] | AttrConstraint[_T]) -> VarOperand[_T]:
    """`var_operand_def`: any number of operands of this type."""
    return cast("VarOperand[_T]", var_operand_def(kind))
