"""The `ln` dialect: every op of every registered family, and its attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from xdsl.ir import Dialect, Operation

from lightnet.ir.layout import LayoutAttr
from lightnet.ir.op import LnOp
from lightnet.ir.place import PlaceAttr
from lightnet.ir.registry import ARCH_OPS, FAMILIES
from lightnet.ir.types import ParamAttr


def ops() -> tuple[type[Operation], ...]:
    """Every op class of the families that there are now: plugins add some, and take them back."""
    families = tuple(FAMILIES)
    return _ops(families, FAMILIES.version)


@lru_cache(1)
def _ops(families: tuple[str, ...], version: int) -> tuple[type[Operation], ...]:
    heirs = {op.name: op for family in FAMILIES.in_order() for op in family if getattr(op, "replaces", False)}
    return tuple(dict.fromkeys(heirs.get(op.name, op) for op in _every(families, version)))


def every_op() -> tuple[type[Operation], ...]:
    """`ops`, and those whose places others take: what is decomposed into them is simplified by their rules."""
    return _every(tuple(FAMILIES), FAMILIES.version)


@lru_cache(1)
def _every(families: tuple[str, ...], version: int) -> tuple[type[Operation], ...]:
    return tuple(op for family in families for op in FAMILIES.get(family))


def built_in_optypes() -> dict[str, type[LnOp]]:
    """Our own op classes by optype, those too whose place a description takes."""
    return _built_in(FAMILIES.version)


@lru_cache(1)
def _built_in(version: int) -> dict[str, type[LnOp]]:
    ours = (op for family in FAMILIES if not FAMILIES.is_added(family) for op in FAMILIES.get(family))
    return {op.optype: op for op in ours if issubclass(op, LnOp)}


class LnDialect(Dialect):
    """The dialect, whose ops are looked up when a context loads it."""

    @property
    def operations(self) -> Iterator[type[Operation]]:
        return iter(ops())


Ln = LnDialect("ln", [], [ParamAttr, PlaceAttr, LayoutAttr])


def find_op(optype: str, table: Mapping[str, type[LnOp]] | None = None) -> type[LnOp] | None:
    """The class of an optype in `table` (default: `optypes`), or of one that comes with a target (`registry.ARCH_OPS`);
    None for what is none."""
    cls = (optypes() if table is None else table).get(optype)
    return ARCH_OPS.get(optype) if cls is None and optype in ARCH_OPS else cls


def optypes() -> dict[str, type[LnOp]]:
    """The op classes by optype (structural ops, which stand for no optype, left out)."""
    return {op.optype: op for op in ops() if issubclass(op, LnOp)}
