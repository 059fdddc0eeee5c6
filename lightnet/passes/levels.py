"""The four levels as values: which passes of the pipeline work towards each, how a module of it is told, and what must
hold of one.

What holds is checked by `verify_level`: where ``--verify-each`` verifies after every pass, and of what is read from a
file, unless it is printed alone. Imports `ir`, the dialects' launches, and `check_plan` when there is a plan.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import VerifyException

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError, PipelineWarning
from lightnet.dialects.accesses import LineAccesses
from lightnet.dialects.launch import LaunchLine, Line, lines_of
from lightnet.dialects.ln.source import Source
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import is_plain
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import memory_of
from lightnet.ir.names import PLACES
from lightnet.ir.op import LnOp
from lightnet.ir.passes import Instrumentation
from lightnet.ir.registry import TARGETS
from lightnet.ir.rewrites import disabling
from lightnet.ir.target import get_target
from lightnet.runtime.dims import is_never_below


@dataclass(frozen=True)
class Level:
    """A level of the IR. `passes` are those of the default pipeline that lead to its end, `what` a module of it is for
    people, `made_by` the pass that makes one of the level below; `holds` raises `LightNetError` for a module of the
    level that breaks what the level promises."""

    name: str
    what: str
    made_by: str
    passes: tuple[str, ...]
    holds: Callable[[ModuleOp], None]

    @property
    def number(self) -> int:
        """From 1."""
        return LEVELS.index(self) + 1

    def __str__(self) -> str:
        return f"level {self.number}, {self.what}"


def level_of(module: ModuleOp) -> Level | None:
    """The level that a module is at; None of one without a network, such as loops that nobody launches."""
    if lines_of(module):
        return LOOP_LEVEL
    kinds = {KernelOp if isinstance(op, KernelOp) else type(op) for op in _top(module)}
    if KernelOp not in kinds and not any(issubclass(kind, LnOp) for kind in kinds):
        return None
    return PLAN_LEVEL if memory_of(module) else KERNEL_LEVEL if KernelOp in kinds else GRAPH_LEVEL


def verify_level(module: ModuleOp) -> None:
    """Check what the level of a module promises beyond what each op does. Raises `LightNetError` at the op that breaks
    it."""
    if (level := level_of(module)) is not None:
        level.holds(module)


class NothingToDo(Instrumentation):
    """Warns of passes that find nothing of their level: ``combine`` in front of ``expand``, or behind the lowering."""

    def __init__(self) -> None:
        self._made: set[str] = set()
        self._warnings: list[str] = []

    def before_pass(self, pass_: ModulePass, module: ModuleOp) -> None:
        wanted, found = LEVEL_OF.get(getattr(pass_, "level", None) or ""), level_of(module)
        self._made |= {level.name for level in LEVELS if level.made_by == pass_.name}
        if wanted is None or found is None or wanted is found:
            return
        text = f"pass '{pass_.name}' finds nothing to do: it is for {wanted}, and the module is at {found}"
        if found is LOOP_LEVEL:
            self._warnings.append(text)
        elif wanted.number > found.number and wanted.name not in self._made:
            self._warnings.append(f"{text}; the pass '{wanted.made_by}' makes that")

    def after_pipeline(self, module: ModuleOp) -> None:
        """One that failed has said what was wrong."""
        for text in self._warnings:
            warnings.warn(PipelineWarning(text), stacklevel=2)
        self._warnings.clear()


@contextmanager
def driven(disable: Iterable[str], named: bool = True) -> Iterator[tuple[Instrumentation, ...]]:
    """The watchers that every tool puts around passes: switches off by name what somebody `disable`s, gives what
    watches them where somebody `named` them, and warns in the end of names that nothing had.
    """
    with disabling(disable) as disabled:
        yield (NothingToDo(),) if named else ()
    for name in disabled.unknown:
        text = f"nothing is switched off by '{name}': no pass of that name ran, and no pattern of it matched"
        warnings.warn(PipelineWarning(text), stacklevel=2)


def _broken(op: Operation, what: str, label: str) -> LightNetError:
    return LightNetError(f"{op.name}: {what}", loc_of(op), label=f"level.{label}")


def _functions(module: ModuleOp) -> Iterable[FuncOp]:
    return (op for op in module.ops if isinstance(op, FuncOp))


def _top(module: ModuleOp) -> Iterable[Operation]:
    """The ops that stand in functions themselves, not in regions of others."""
    return (op for function in _functions(module) for block in function.body.blocks for op in block.ops)


def _unplanned(module: ModuleOp) -> None:
    """No place without a plan: addresses mean something in memory of a known size alone."""
    for op in _top(module):
        if PLACES in op.attributes:
            what = "has a place, and the module has no memory: its attribute `ln.memory` gives the bytes of each space"
            raise _broken(op, what, "place")


def _kernels(module: ModuleOp) -> None:
    """Kernels are of one target and of the arches that it takes in; what computes outside of them reads and makes
    row-major tensors."""
    _unplanned(module)
    _one_machine(module)
    for op in _top(module):
        if isinstance(op, LnOp) and not isinstance(op, Source) and not op.is_move and not is_plain(op):
            what = "computes on a layout that only kernels know: put it into one, or a change of layout in front of it"
            raise _broken(op, what, "layout")


def _one_machine(module: ModuleOp) -> None:
    found = {type(op): op for op in _top(module) if isinstance(op, KernelOp)}
    if len(found) < 2:
        return
    for name in TARGETS:
        target = get_target(name)
        own = {get_target(arch).kernel_op for arch in (name, *target.arches) if get_target(arch).kernel is not None}
        if found.keys() <= own:
            return
    first, last = list(found.values())[:: len(found) - 1]
    raise _broken(last, f"no target runs it beside {first.name}", "target")


def _planned(module: ModuleOp) -> None:
    """Every value has a place, and no two that are live at the same time share bytes but where they may
    (`check_plan`)."""
    from lightnet.passes.check_plan import check_plan

    check_plan(module)


def _launched(module: ModuleOp) -> None:
    """`@main` is a list of lines, on bytes that memory has, and each launch fits its function."""
    lines = lines_of(module)
    (main,) = (f for f in _functions(module) if f.sym_name.data == "main")
    for op in main.body.block.ops:
        if not isinstance(op, Line | ReturnOp):
            what = "stands among launches: at level 4 `@main` is a list of launches, copies and host calls"
            raise _broken(op, what, "line")
    for kind in dict.fromkeys(type(line) for line in lines if isinstance(line, LaunchLine)):
        try:
            kind.verify_module(module)
        except VerifyException as error:
            raise LightNetError(str(error), loc_of(main), label="level.launch") from None
    accesses, memory = LineAccesses(module), memory_of(module)
    for line, a in ((op, a) for op in lines if memory for a in accesses.of(op) if not a.is_open):
        if not is_never_below(there := memory.get(a.space, 0), a.end):
            what = f"{a.end - a.begin} bytes at {a.space}+{a.begin}, where the module has {there} in all"
            raise _broken(line, what, "memory")


#: `hoist` stands before kernels, so that `ln.once` holds plain ops, which NumPy evaluates at load; `subgraph` before
#: `combine`, so that it sees one op a kernel, and `hoist` again behind it, for what it does to params; `bands` behind
#: `layout`, because it joins kernels on blocked maps; `choose` before `pack`, because how weights lie depends on it,
#: and before `plan`, because workspace does.
GRAPH_LEVEL = Level("graph", "a graph of ops", "bind",
              ("bind", "simplify", "recognize", "trim-windows", "fold-batchnorm", "move-scales", "simplify", "hoist"),
              _unplanned)  # fmt: skip
KERNEL_LEVEL = Level("kernels", "kernels", "expand",
                ("expand", "subgraph", "hoist", "combine", "layout", "grow-caches", "bands", "choose", "pack",
                 "schedule"),
                _kernels)  # fmt: skip
PLAN_LEVEL = Level("plan", "places in memory", "plan", ("plan",), _planned)  # which ends with the check of `check-plan`
LOOP_LEVEL = Level("loops", "loops, and a list of launches", "lower-<target>", (), _launched)  # the target's `lowering`
LEVELS = (GRAPH_LEVEL, KERNEL_LEVEL, PLAN_LEVEL, LOOP_LEVEL)
LEVEL_OF = {level.name: level for level in LEVELS}
