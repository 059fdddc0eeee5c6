"""The functions that code may call, and how much a run may take. Imports the standard library and diagnostics."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import near, near_or_all

#: Steps of one run (expressions and statements, and the elements and characters that a function goes through, so many a
#: step), and bytes of the memory that it makes.
MAX_STEPS, MAX_BYTES = 200_000, 1 << 20
ELEMENTS_A_STEP = 8


class CFunction(NamedTuple):
    """A function that code may call: what it does with the values of its arguments, and how many these are (`most`
    None: any number). It raises TypeError, ValueError, IndexError or LightNetError for what is wrong with them."""

    call: Callable[..., Any]
    least: int
    most: int | None


def function(count: int, most: int | None = -1) -> Callable[[Callable[..., Any]], CFunction]:
    """Decorator: a `CFunction` of ``(machine, *arguments)`` that takes `count` arguments, or up to `most`."""
    return lambda call: CFunction(call, count, count if most == -1 else most)


class _Pool:
    """Steps that several runs may take together."""

    def __init__(self, steps: float = math.inf):
        self.steps = steps

    @property
    def is_empty(self) -> bool:
        return self.steps < 0


_POOL: ContextVar[_Pool] = ContextVar("pool", default=_Pool())  # noqa: B039 (without an end)


@contextmanager
def together(steps: int) -> Iterator[_Pool]:
    """Within the block, let all runs that begin take no more than so many steps together: trying, and trying again,
    ends."""
    pool = _Pool(steps)
    token = _POOL.set(pool)
    try:
        yield pool
    finally:
        _POOL.reset(token)


@dataclass
class RunBudget:
    """The steps and memory that a run may still take."""

    steps: int = MAX_STEPS
    bytes: int = MAX_BYTES
    pool: _Pool = field(default_factory=_POOL.get)


#: A message lists at most so many names.
_MANY = 24


def unknown_value(what: str, name: str, known: Any) -> str:
    names = sorted(known)
    if len(names) > _MANY:
        none = f"; it is none of the {len(names)} that code may use (docs/describe-an-op.md has the table)"
        return f"unknown {what} '{name}'{near(name, names) or none}"
    return f"unknown {what} '{name}'{near_or_all(name, names)}"


def check_count(name: str, fn: CFunction, count: int) -> None:
    """Raise TypeError where a function is called with another number of arguments."""
    if count < fn.least or (fn.most is not None and count > fn.most):
        need = (
            f"at least {fn.least}"
            if fn.most is None
            else str(fn.least)
            if fn.least == fn.most
            else f"{fn.least} to {fn.most}"
        )
        raise TypeError(f"{name} takes {need} argument{'s' * (need != '1')}, got {count}")
