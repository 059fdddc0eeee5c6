"""The rewrite of a pass that made the module wrong: the pass is run again on what it got, and stopped after fewer
rewrites.

Imports the rewrites' record, `ir`, and `check`.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from lightnet.diagnostics import LightNetError
from lightnet.ir.rewrites import Rewrite, Rewrites, recording
from lightnet_trust.baseline import first_wrong
from lightnet_trust.check import CheckError, Difference, check_error

#: Says what is wrong with a module, if anything.
Judge = Callable[[ModuleOp], Difference | None]


class _StopError(LightNetError):
    """Ends a pass after some rewrites."""


class _Until:
    """Listens to rewrites, and stops after number `last` (None: never)."""

    def __init__(self, last: int | None = None, wants_text: bool = False):
        self.last, self.wants_text = last, wants_text
        self.rewrites: list[Rewrite] = []

    def rewrote(self, rewrite: Rewrite) -> None:
        self.rewrites.append(rewrite)
        if self.last is not None and len(self.rewrites) >= self.last:
            raise _StopError("stopped")


def blame(ctx: Context, pass_: ModulePass, before: ModuleOp, judge: Judge, difference: Difference) -> CheckError:
    """The error about `pass_`, which made `difference` out of `before`: with the first rewrite whose result `judge`
    finds wrong, where the one before it was right (found by bisection, in about log2(rewrites) runs of the pass)."""
    run = _Until()
    after = _partial(ctx, pass_, before, run)
    count = len(run.rewrites)
    if judge(after) is None:
        return check_error(difference, pass_, None, "run again, the pass does something else: it is not deterministic")
    if not count:
        return check_error(difference, pass_, None, "the pass changed it in one step: it has no rewrites")
    if judge(_partial(ctx, pass_, before, _Until(count))) is None:
        return check_error(difference, pass_, None, f"the pass changed it after its {count} rewrites, which are right")
    bad = first_wrong(count, lambda number: judge(_partial(ctx, pass_, before, _Until(number))) is not None)
    last = _Until(bad, wants_text=True)
    found = judge(_partial(ctx, pass_, before, last))
    return check_error(found or difference, pass_, last.rewrites[-1])


def _partial(ctx: Context, pass_: ModulePass, before: ModuleOp, until: _Until) -> ModuleOp:
    """A copy of `before` after the rewrites that `until` lets happen."""
    module = before.clone()
    rewrites = Rewrites([until])
    rewrites.pass_name = pass_.name
    try:
        with recording(rewrites):
            pass_.apply(ctx, module)
    except _StopError:
        pass
    return module
