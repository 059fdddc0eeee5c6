"""Test-case reduction: the smallest module that still shows what a judge looks for.

Delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002) over the sites of
each kind of edit, coarse to fine: chunks of them are tried from the largest to single ones, from the end, until no edit
of any kind helps. Every candidate verifies before it is judged. The order is fixed, so equal input and equal verdicts
give equal output. Imports xDSL, `ir`, the passes' checks, and the edits of this folder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.ir.memory import MEMORY, memory_of
from lightnet.ir.module import count_ops
from lightnet.ir.names import OP_NAME, PLACES, TENSORS
from lightnet.ir.printer import module_text
from lightnet.ir.verify import verify_module
from lightnet_trust import edits, loop_edits, shrink
from lightnet_trust.judges import Judge

MAX_TESTS = 2000
INTERRUPT = "by an interrupt"


@dataclass(frozen=True)
class Step:
    """One kind of edit: the sites of a module where it could be made, and making it at some of them. Alternatives are
    tried `singly`, one site after the other."""

    name: str
    sites: Callable[[ModuleOp], Sequence[Any]]
    apply: Callable[[ModuleOp, Sequence[Any]], None]
    singly: bool = False


@dataclass(frozen=True)
class Reduction:
    """The result of a reduction: the module's text, tests made, ops before and after, and why it stopped early (None:
    nothing smaller is left to try). `broken` are the exceptions of edits that failed in another way than by an error of
    the op at hand.
    """

    text: str
    tests: int
    ops_before: int
    ops_after: int
    stopped: str | None
    broken: tuple[Exception, ...]

    @property
    def interrupted(self) -> bool:
        return self.stopped == INTERRUPT


Notify = Callable[[str, int, int], None]


def reduce_module(
    module: ModuleOp,
    judge: Judge,
    *,
    max_tests: int = MAX_TESTS,
    notify: Notify = lambda step, tests, ops: None,
    sizes_first: bool = False,
) -> Reduction:
    """The smallest module found that shows to `judge` what `module` shows. `notify` gets the kind of edit, the number
    of tests and the ops left before each test. With `sizes_first` tensors get smaller before anything goes: for few ops
    on large tensors. An interrupt (`KeyboardInterrupt`) ends it with the best so far.

    Raises `LightNetError` where the judge finds nothing in `module` itself.
    """
    return _Reducer(module, judge, max_tests, notify).run(sizes_first)


class _ExhaustedError(Exception):
    """All tests are spent."""


class _Reducer:
    def __init__(self, module: ModuleOp, judge: Judge, max_tests: int, notify: Notify):
        self.best, self.judge, self.max_tests, self.notify = module, judge, max_tests, notify
        self.text = module_text(module)
        self.ops_before = count_ops(module)
        self.tests = 0
        self.judged: set[bytes] = set()
        self.broken: list[Exception] = []
        self.planned = _plan_holds(module)

    def run(self, sizes_first: bool) -> Reduction:
        self.tests += 1
        first = self.judge.verdict(self.text)
        if first.found is None:
            raise LightNetError(f"there is nothing to reduce: {first.detail}", label="reduce.nothing")
        self.wanted = first.found
        stopped = None
        try:
            if sizes_first:
                self.step(SIZES)
            while self.round():
                pass
        except _ExhaustedError:
            stopped = f"after {self.max_tests} tests"
        except KeyboardInterrupt:
            stopped = INTERRUPT
        ops_after = count_ops(self.best)
        return Reduction(self.text, self.tests, self.ops_before, ops_after, stopped, tuple(self.broken))

    def round(self) -> bool:
        """All kinds of edits, one after the other; whether any edit was accepted."""
        changed = False
        for step in STEPS:
            changed |= self.step(step)
        return changed

    def step(self, step: Step) -> bool:
        """All edits of one kind."""
        return self.one_by_one(step) if step.singly else self.chunks(step)

    def one_by_one(self, step: Step) -> bool:
        changed, at = False, 0
        while at < len(step.sites(self.best)):
            if self.attempt(step, [at]):
                changed = True  # the sites are others now: look at this place again
            else:
                at += 1
        return changed

    def chunks(self, step: Step) -> bool:
        changed = False
        chunk = len(step.sites(self.best))
        while chunk:
            dropped = False
            end = len(step.sites(self.best))
            while end > 0:
                start = max(0, end - chunk)
                dropped |= self.attempt(step, range(start, end))
                end = min(start, len(step.sites(self.best)))
            changed |= dropped
            if chunk == 1 and not dropped:
                break  # no single site can go
            chunk = min(max(1, chunk // 2), len(step.sites(self.best)))
        return changed

    def attempt(self, step: Step, sites: Sequence[int]) -> bool:
        """Make the edit at the sites with these numbers, on a copy; it is kept if the judge finds the same in it."""
        text = self.edited(step, sites)
        if text is None or text[1] == self.text:
            return False
        candidate, new = text
        key = sha256(new.encode()).digest()
        if key in self.judged:
            return False
        if self.tests >= self.max_tests:
            raise _ExhaustedError
        self.notify(step.name, self.tests, count_ops(self.best))
        self.tests += 1
        if self.judge.verdict(new).found != self.wanted:
            self.judged.add(key)
            return False
        self.best, self.text = candidate, new
        return True

    def edited(self, step: Step, sites: Sequence[int]) -> tuple[ModuleOp, str] | None:
        """A copy with the edit made, and its text; None where that is no module that verifies."""
        candidate = self.best.clone()
        try:
            there = step.sites(candidate)
            with edits.tidied(candidate):
                step.apply(candidate, [there[i] for i in sites])
            verify_module(candidate)
            if self.planned:
                _check_plan(candidate)
            return candidate, module_text(candidate)
        except (LightNetError, NotImplementedError):
            return None
        except Exception as e:  # an op's own code that met what it did not expect: no candidate, and no reason to stop
            self.broken.append(e)
            return None


def _plan_holds(module: ModuleOp) -> bool:
    """Return whether the module is planned, by our rules and without a fault: then candidates have to be, too."""
    if not memory_of(module):
        return False
    try:
        _check_plan(module)
    except LightNetError:
        return False
    return True


def _check_plan(module: ModuleOp) -> None:
    from lightnet.passes.check_plan import check_plan

    if edits.graph_ops(module):
        check_plan(module)


# -- names and attributes ----------------------------------------------------------------------------------------------


def _named(module: ModuleOp) -> list[Operation]:
    return [op for op in module.walk() if OP_NAME in op.attributes or TENSORS in op.attributes]


def _drop_names(module: ModuleOp, ops: Sequence[Operation]) -> None:
    for op in ops:
        op.attributes.pop(OP_NAME, None)
        op.attributes.pop(TENSORS, None)


#: Attributes that have a step of their own, or are no choices.
KEPT = (OP_NAME, TENSORS, PLACES, MEMORY)


def _attributes(module: ModuleOp) -> list[tuple[Operation, str]]:
    return [(op, key) for op in module.walk() for key in op.attributes if key not in KEPT]


def _drop_attributes(module: ModuleOp, sites: Sequence[tuple[Operation, str]]) -> None:
    for op, key in sites:
        del op.attributes[key]


def _values(module: ModuleOp) -> list[SSAValue]:
    ops = list(module.walk())
    return [
        *(r for op in ops for r in op.results),
        *(a for op in ops for g in op.regions for b in g.blocks for a in b.args),
    ]


def _hints(module: ModuleOp) -> list[ModuleOp]:
    return [module] if any(v.name_hint for v in _values(module)) else []


def _drop_hints(module: ModuleOp, sites: Sequence[ModuleOp]) -> None:
    for value in _values(module):
        value.name_hint = None


SIZES = Step("sizes", shrink.sizes, shrink.resize, singly=True)
#: Coarse to fine: what makes the module smaller fastest first.
STEPS = (
    Step("functions", loop_edits.other_functions, loop_edits.drop_functions),
    Step("launches", loop_edits.lines, loop_edits.drop_lines),
    Step("ops", edits.graph_ops, edits.drop_ops),
    Step("ops of regions", edits.body_ops, edits.drop_body_ops),
    Step("unread results", edits.unread_results, edits.drop_results),
    Step("outputs", edits.outputs, edits.drop_outputs),
    Step("bypasses", edits.like_operands, edits.bypass),
    Step("equal inputs", edits.twins, edits.merge_twins),
    Step("attributes", _attributes, _drop_attributes),
    Step("ops of loops", loop_edits.loop_ops, loop_edits.drop_loop_ops),
    Step("loops", loop_edits.kernel_loops_in, loop_edits.run_once, singly=True),
    Step("grids", loop_edits.grids, loop_edits.shrink_grids, singly=True),
    Step("threads", loop_edits.shared_launches, loop_edits.run_alone),
    Step("memory", edits.spare_memory, edits.shrink_memory),
    Step("arguments", loop_edits.unread_arguments, loop_edits.drop_arguments),
    SIZES,
    Step("defaults", shrink.defaults, shrink.set_params),
    Step("numbers", shrink.simpler_values, shrink.set_params, singly=True),
    Step("names", _named, _drop_names),
    Step("SSA names", _hints, _drop_hints, singly=True),
)
