"""The time that compiling may take: a budget that whoever works on one op after another asks, and that names the op
where it ends.

    with limited(seconds):          reading, or compiling, one network
        check(op)                   before the work on an op: raises `LightNetError` once the budget is spent
        within(ops)                 the ops, with a check before each
        check_code(count)           the size of one function of level 4, which LLVM takes more than linear time for

Seconds are those of this thread's processor time, which a busy machine does not lengthen; a size is counted, so that
the same network is refused everywhere. Imports the lower modules of `ir`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from lightnet.diagnostics import LightNetError
from lightnet.ir import rewrites
from lightnet.ir.locations import loc_of

P = ParamSpec("P")
T = TypeVar("T")
Op = TypeVar("Op", bound=Operation)

#: Seconds that a network may take where nothing else is said, and for each of its ops beyond that: a hundred times what
#: is usual.
DEFAULT_SECONDS, SECONDS_AN_OP = 120.0, 0.5
#: Operations of one function for each second: LLVM compiles some 2,000 in a second.
CODE_A_SECOND = 1000


class Budget:
    """The rest of `seconds`, counted from now."""

    def __init__(self, seconds: float):
        self.seconds = seconds
        self.end = time.thread_time() + seconds
        self.op: Operation | None = None  # the last that work began on

    def extend(self, seconds: float) -> None:
        """Allow for more: a larger network than was known."""
        self.seconds += seconds
        self.end += seconds


_CURRENT: ContextVar[Budget | None] = ContextVar("budget", default=None)


@contextmanager
def limited(seconds: float | None = None) -> Iterator[Budget]:
    """Let the block take so many seconds; without a number the default, or what is left of a budget that it is part
    of."""
    current = _CURRENT.get()
    if current is not None and seconds is None:
        yield current
        return
    budget = Budget(DEFAULT_SECONDS if seconds is None else _checked(seconds))
    token = _CURRENT.set(budget)
    try:
        yield budget
    finally:
        _CURRENT.reset(token)


def budgeted(function: Callable[P, T]) -> Callable[P, T]:
    """Let a call of `function` take the seconds of its keyword `budget`."""

    @wraps(function)
    def bounded(*args: P.args, **options: P.kwargs) -> T:
        with limited(options.get("budget")):  # type: ignore[arg-type]
            return function(*args, **options)

    return bounded


def for_ops(count: int) -> None:
    """Allow for a network of so many ops, unless somebody said how long it may take."""
    budget = _CURRENT.get()
    if budget is not None and budget.seconds == DEFAULT_SECONDS:
        budget.extend(count * SECONDS_AN_OP)


def check(op: Operation | None = None, what: str = "") -> None:
    """Raise `LightNetError` where the budget is spent: it names the pass, and `op` (or `what` is worked on, else the op
    that work began on last) with its place; of a module or a function its first op."""
    budget = _CURRENT.get()
    if budget is None:
        return
    if op is not None:
        budget.op = op
    if time.thread_time() < budget.end:
        return
    op, name = _named(None if what else budget.op)
    pass_name = rewrites.current().pass_name
    where = " ".join(
        [*([f"in pass '{pass_name}'"] if pass_name else []), *([f"at {name or what}"] if name or what else [])]
    )
    raise LightNetError(f"compiling takes longer than the budget of {budget.seconds:g} "
                        f"s{f': it ended {where}' if where else ''} (--compile-budget, "
                        "compile(budget=...))", loc_of(op) if op is not None else None,
                        label="compile.budget")  # fmt: skip


def within(ops: Iterable[Op]) -> Iterator[Op]:
    """The ops, with a `check` before each."""
    for op in ops:
        check(op)
        yield op


def check_code(count: int) -> None:
    """Raise `LightNetError` where a function of `count` operations is more than the budget allows: it names the op that
    work began on last."""
    budget = _CURRENT.get()
    most = int((budget.seconds if budget is not None else DEFAULT_SECONDS) * CODE_A_SECOND)
    if count > most:
        op, name = _named(budget.op if budget is not None else None)
        raise LightNetError(f"the code of {name or 'this kernel'} has more than {most} operations, which would take "
                            f"longer than the budget of {most / CODE_A_SECOND:g} s to compile (--compile-budget, "
                            "compile(budget=...))", loc_of(op) if op is not None else None,
                            label="compile.code")  # fmt: skip
    check()


def _named(op: Operation | None) -> tuple[Operation | None, str]:
    """An op, or the first inside of a module or a function, and what it is called."""
    if isinstance(op, ModuleOp | FuncOp):
        op = next((inner for inner in op.walk() if not isinstance(inner, ModuleOp | FuncOp)), op)
    return op, "" if op is None else rewrites.op_and_name(op)


def _checked(seconds: float) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise LightNetError(f"a budget is a number of seconds above 0, not {seconds!r}", label="compile.budget")
    return float(seconds)
