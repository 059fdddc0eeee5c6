"""The `ln` dialect: every op of every registered family, and its attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, wraps
from typing import TypeVar

from xdsl.ir import Dialect, Operation

from lightnet.ir.layout import LayoutAttr
from lightnet.ir.op import LnOp
from lightnet.ir.place import PlaceAttr
from lightnet.ir.registry import ARCH_OPS, FAMILIES
from lightnet.ir.types import DimsAttr, ParamAttr

Found = TypeVar("Found")


def _kept(find: Callable[[], Found]) -> Callable[[], Found]:
    """Decorator: keep what is found as long as the families are the same. Plugins add some, and take them back."""
    cached = lru_cache(1)(lambda families, version: find())
    return wraps(find)(lambda: cached(tuple(FAMILIES), FAMILIES.version))


@_kept
def ops() -> tuple[type[Operation], ...]:
    """Every op class of the families that there are now."""
    heirs = {op.name: op for family in FAMILIES.in_order() for op in family if getattr(op, "replaces", False)}
    return tuple(dict.fromkeys(heirs.get(op.name, op) for op in every_op()))


@_kept
def every_op() -> tuple[type[Operation], ...]:
    """`ops`, and those whose places others take: what is decomposed into them is simplified by their rules."""
    return tuple(op for family in FAMILIES for op in FAMILIES.get(family))


@_kept
def built_in_optypes() -> dict[str, type[LnOp]]:
    """Our own op classes by optype, those too whose place a description takes."""
    ours = (op for family in FAMILIES if not FAMILIES.is_added(family) for op in FAMILIES.get(family))
    return {op.optype: op for op in ours if issubclass(op, LnOp)}


class LnDialect(Dialect):
    """The dialect, whose ops are looked up when a context loads it."""

    @property
    def operations(self) -> Iterator[type[Operation]]:
        return iter(ops())


Ln = LnDialect("ln", [], [ParamAttr, PlaceAttr, LayoutAttr, DimsAttr])


def find_op(optype: str, table: Mapping[str, type[LnOp]] | None = None) -> type[LnOp] | None:
    """The class of an optype in `table` (default: `optypes`), or of one that comes with a target (`registry.ARCH_OPS`);
    None for what is none."""
    cls = (optypes() if table is None else table).get(optype)
    return ARCH_OPS.get(optype) if cls is None and optype in ARCH_OPS else cls


def optypes() -> dict[str, type[LnOp]]:
    """The op classes by optype (structural ops, which stand for no optype, left out)."""
    return {op.optype: op for op in ops() if issubclass(op, LnOp)}
