"""The table for each thing that a plugin's module defines, and the clashes that no table sees.

A class belongs to the module that defines it; a value (a target, a dialect, a front end, a generator) to the one that
holds it and is not known yet. Imports xDSL, and of `ir`, `frontends` and `backends` what those things are.
"""

from __future__ import annotations

import sys
from inspect import isabstract, isclass
from types import ModuleType
from typing import Any, NamedTuple

from xdsl.ir import Dialect
from xdsl.passes import ModulePass

from lightnet.backends.generator import Generator
from lightnet.diagnostics import LightNetError, near
from lightnet.frontends.loading import FrontEnd
from lightnet.ir import registry
from lightnet.ir.context import DIALECTS
from lightnet.ir.kernel import KernelOp
from lightnet.ir.op import LnOp
from lightnet.ir.passes import XDSL_PASSES
from lightnet.ir.rewrites import pattern_name
from lightnet.ir.target import Target, get_target
from lightnet.passes.patterns import built_in


class Added(NamedTuple):
    """The additions of a plugin."""

    ops: tuple[type, ...]
    patterns: tuple[type, ...]


class Before:
    """The ops and patterns that there were before a plugin, to tell what it added."""

    def __init__(self) -> None:
        self.families = set(registry.FAMILIES)
        self.patterns = registry.all_patterns()

    def checked(self, module: ModuleType | None) -> Added:
        """The additions since then. Raises LightNetError where an op or a pattern has the name of another one."""
        families = registry.FAMILIES
        new = [name for name in families if name not in self.families]
        known = {op.name: (family, op) for family in self.families if new for op in families.get(family)}
        ops: list[type] = []
        for family in new:
            for op in families.get(family):
                _check_op(known, family, op)
                known[op.name] = (family, op)
                ops.append(op)
        rules = [row for row in registry.all_patterns() if row not in self.patterns]
        for pass_name, target, cls in rules:
            registry.check_pattern(pass_name, cls, (known for _, _, known in built_in(pass_name, target)))
        return Added(tuple(ops), tuple(cls for _, _, cls in rules))

    def check_places(self) -> None:
        """Raise LightNetError for a new pattern that no pass applies, as its pass or its target is misspelt."""
        for pass_name, target, cls in registry.all_patterns():
            if (pass_name, target, cls) not in self.patterns and (problem := registry.misplaced(pass_name, target)):
                where = registry.described(cls, None)
                raise LightNetError(f"pattern '{pattern_name(cls)}' ({where}) is never applied: {problem}")
            if (pass_name, target, cls) not in self.patterns and hasattr(cls, "apply"):
                _check_roots(cls)


def _check_roots(cls: Any) -> None:
    """Raise LightNetError for a `@rule` of an op that there is not."""
    from lightnet.dialects.ln.dialect import find_op, optypes

    for optype in (root.removeprefix("ln.") for root in getattr(cls, "roots", ())):
        if find_op(optype) is None:
            where = f"rule '{pattern_name(cls)}' ({registry.described(cls, None)})"
            raise LightNetError(f"{where} is never applied: unknown op 'ln.{optype}'{near(optype, optypes())}")


def _check_op(known: dict[str, tuple[str, type]], family: str, op: Any) -> None:
    if op.name not in known or getattr(op, "replaces", False):
        return
    other_family, other = known[op.name]
    if other is not op:
        table = registry.FAMILIES
        both = f"by {table.origin_of(other_family, other)} and by {table.origin_of(family, op)}"
        raise LightNetError(f"op '{op.name}' is defined twice: {both}")


def register_module(module: ModuleType) -> None:
    """Register everything that a module and the modules inside of it define."""
    inside = [n for n in sys.modules if n.startswith(f"{module.__name__}.")]
    for name in (module.__name__, *inside):
        register(vars(sys.modules[name]), name)


def register_value(value: Any, where: str) -> None:
    """Register one object, which ``module:attribute`` names. Raises LightNetError where it is nothing that a table
    takes."""
    module, _, attribute = where.partition(":")
    if isclass(value) and issubclass(value, ModulePass | KernelOp | LnOp):
        register({attribute: value}, value.__module__)
    elif isinstance(value, Dialect | Target | FrontEnd) or _is_generator(value):
        register({attribute: value}, module)
    else:
        raise LightNetError(f"{where} is no pass, op, dialect, target, front end or generator")


def register(values: dict[str, Any], module: str) -> None:
    """Register what a module defines, given by attribute. Raises LightNetError for a name that is taken."""
    ops: list[type[LnOp]] = []
    for attribute, value in list(values.items()):
        where = f"{module}:{attribute}"
        if isinstance(value, Dialect):
            DIALECTS.add(value.name, where)
        elif isinstance(value, Target):
            registry.TARGETS.add(value.name, where)
        elif isinstance(value, FrontEnd):
            for suffix in value.suffixes:
                registry.FRONTENDS.add(suffix, where)
        elif _is_generator(value):
            _table(value, where).add(value.alg, where)
        elif isclass(value) and value.__module__ == module:
            ops += _class(value)
    families = registry.FAMILIES
    listed = {op for family in families for op in families.get(family)} if ops else set()
    if rest := [op for op in ops if op not in listed]:
        families.add(module, tuple(dict.fromkeys(rest)))


def _is_generator(value: Any) -> bool:
    """Return whether a value is a generator of kernels (a class of them is none)."""
    return isinstance(value, Generator)


def _table(generator: Generator, where: str) -> registry.Table:
    """The table of a generator: that of its target. Raises `LightNetError` for one without a name, and where its target
    has none."""
    alg = getattr(generator, "alg", None)
    if not isinstance(alg, str) or not alg:
        raise LightNetError(f'generator {where} has no name: its class says alg = "..."')
    target = getattr(generator, "target", None)
    table = get_target(target).generators if isinstance(target, str) else None
    if table is None:
        raise LightNetError(f"generator {where} is of target {target!r}, which has no table of generators")
    return table


def _class(cls: type) -> list[type[LnOp]]:
    """Register a class; ops are returned, as a module's ops are one family."""
    if issubclass(cls, ModulePass):
        _pass(cls)
    elif issubclass(cls, KernelOp) and "name" in vars(cls):
        registry.KERNELS.add(cls.name.partition(".")[0], cls)
    elif issubclass(cls, LnOp) and vars(cls).get("optype"):
        if "schema" not in vars(cls):
            raise LightNetError(f"op {registry.where_from(cls)} has an optype, and not the decorator @ln_op")
        return [cls]
    return []


def _pass(cls: type[ModulePass]) -> None:
    name = getattr(cls, "name", None)
    if isabstract(cls) or registry.PASSES.holds(str(name), cls):
        return
    where = registry.where_from(cls)
    if not isinstance(name, str):
        raise LightNetError(f"pass {where} has no name")
    if name in XDSL_PASSES:
        there = registry.described(cls, registry.source())
        raise LightNetError(f"pass '{name}' is defined twice: by {XDSL_PASSES[name]} and by {there}")
    registry.PASSES.add(name, cls)
