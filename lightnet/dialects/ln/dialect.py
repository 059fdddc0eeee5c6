"""The `ln` dialect: every op of every registered family, and its attributes."""

from __future__ import annotations

from functools import cache

from xdsl.ir import Dialect

from lightnet.ir.layout import LayoutAttr
from lightnet.ir.op import LnOp
from lightnet.ir.place import PlaceAttr
from lightnet.ir.registry import FAMILIES
from lightnet.ir.types import ParamAttr


@cache
def _ops() -> tuple[type, ...]:
    return tuple(op for family in FAMILIES for op in FAMILIES.get(family))


Ln = Dialect("ln", list(_ops()), [ParamAttr, PlaceAttr, LayoutAttr])


def optypes() -> dict[str, type[LnOp]]:
    """The op classes by optype (structural ops, which stand for no optype, left out)."""
    return {op.optype: op for op in _ops() if issubclass(op, LnOp)}
