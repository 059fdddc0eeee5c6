"""`plan`: give every value a place, a byte offset in a memory space (level 2 → 3).

```mlir
%y = cpu.kernel(%x_ = %x) {…}             →   %y = cpu.kernel(%x_ = %x) {…} at arena+0
```

`static` holds params and results of `ln.once`, one behind the other, for the whole program. `arena` holds everything
else: liveness over op positions gives each value an interval, views and in-place results are merged (`plan_buffers`),
and what is left is packed (`planning.pack`). Inputs live throughout, for a call need not feed them again; outputs live
to the end. On a target with `Target.ports`, inputs and outputs of so many bytes and more are *ports*, memory of the
caller that is read and written where it is: each is a space of its own, `in0`, `out0` and so on. A target may have
further spaces, small and near: it says which values should stand there (`Target.home`), and what does not fit stands in
the arena. Where launches run at once that need not wait for each other, small values share no bytes with those of the
branches beside them (`Target.apart`): sharing them would be a reason to wait. Where calls decide sizes, one plan holds
for all: who lies below whom is packed, and offsets follow (`planning.stacking`); near spaces and capacities are for the
largest sizes. The checker runs on every result. Dropping the attributes un-plans.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.ir import Operation, OpResult, SSAValue

from lightnet.diagnostics import LightNetError
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import ARENA, STATIC, memory_of, set_memory, unplan
from lightnet.ir.module import op_label
from lightnet.ir.op import PLACES, WORKSPACE
from lightnet.ir.passes import LnPass
from lightnet.ir.place import PlaceAttr
from lightnet.ir.resolving import resolve_beside
from lightnet.ir.target import Space, get_target
from lightnet.passes.plan_buffers import PlannedValues, in_arena
from lightnet.passes.plan_groups import PackingProblem, best_groups, fit_space, group_loc
from lightnet.passes.planning import MemoryPlan, pack
from lightnet.passes.planning.buffers import load_profile
from lightnet.passes.planning.stacking import stack_buffers
from lightnet.runtime.arrays import align_up
from lightnet.runtime.dims import greatest, typical
from lightnet.runtime.program import is_port

if TYPE_CHECKING:
    from lightnet_report.plan_report import PlanReport

CAPACITY = Space().capacity
ALIGNMENT = Space().alignment


@dataclass(frozen=True)
class PlanPass(LnPass):
    """Plan memory. `plan` is ``default`` or ``upstream``; `capacity` (bytes, of each space) and `alignment` (bytes) are
    the target's unless given (by upstream's rules those of its memory types); `ports` is from how many bytes on inputs
    and outputs are memory of the caller (0: none; unless given the target's), which plans of upstream's kind do not
    have; `effort` is the packing's (``fast``, ``default``, ``high`` or a number of steps); `report` is a file to write
    the report to (.txt, .json, .svg or .html)."""

    name = "plan"
    level = "graph"

    target: str = "cpu"
    plan: str = "default"
    capacity: int | None = None
    alignment: int | None = None
    effort: str | int = "default"
    ports: int | None = None
    report: str | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from lightnet.passes.check_plan import check_plan

        target = get_target(self.target)
        space = target.spaces.get(ARENA, Space())
        capacity = space.capacity if self.capacity is None else self.capacity
        alignment = self.alignment
        if self.plan == "upstream":
            from lightnet.passes.plan_upstream import plan_upstream

            plan_upstream(op, target, alignment=alignment, capacity=self.capacity)
        elif self.plan == "default":
            alignment = space.alignment if alignment is None else alignment
            effort = int(self.effort) if str(self.effort).isdigit() else self.effort
            others = {name: s for name, s in target.spaces.items() if name not in (ARENA, STATIC)}
            home = target.home or in_arena
            ports = target.ports if self.ports is None else self.ports
            if ports < 0:
                raise LightNetError(f"ports is a number of bytes, or 0 for none, and is {ports}", label="plan.ports")
            plan_module(
                op, alignment=alignment, capacity=capacity, effort=effort, others=others, home=home, ports=ports,
                apart=target.apart,
            )  # fmt: skip
        else:
            raise LightNetError(f"unknown plan '{self.plan}'; there are: default, upstream", label="plan.kind")
        check_plan(op, capacity=capacity + 1 if self.plan == "upstream" else capacity, alignment=alignment)
        check_spaces(op, target.spaces)
        if self.report is not None:
            write_report(op, self.report)


def plan_module(
    module: ModuleOp,
    *,
    alignment: int = ALIGNMENT,
    capacity: int = CAPACITY,
    effort: str | int = "default",
    others: Mapping[str, Space] | None = None,
    home: Callable[[OpResult], str] = in_arena,
    ports: int = 0,
    apart: int = 0,
) -> MemoryPlan:
    """Plan a module of level 1 or 2 in place; returns the plan of the arena. Raises `LightNetError` when a space
    exceeds `capacity`. `home` names the space, the arena or one of `others`, in which a computed value should stand;
    what does not fit into its space stands in the arena. Inputs and outputs of at least `ports` bytes are ports (0:
    none is). Values of at most `apart` bytes share none with those of ops nearby that may run at the same time (0: all
    may share)."""
    if alignment < 1:
        raise LightNetError(f"the alignment should be at least 1, but is {alignment}", label="plan.alignment")
    unplan(module)
    network = PlannedValues.of(module, home, ports, apart)
    problem = best_groups(network, alignment, lambda p: pack(p.buffers, effort="fast").peak)
    base, sizes = {}, {}
    if unknown := set(problem.elsewhere).difference(others or ()):
        there = ", ".join([ARENA, *(others or ())])
        raise LightNetError(
            f"values should stand in memory space '{min(unknown)}', which the target has not; there are: {there}"
        )
    for name, space in (others or {}).items():
        fitted, sizes[name] = fit_space(problem, name, space)
        base.update(fitted)
    try:
        plan = pack(problem.buffers, capacity=capacity, effort=effort)
    except LightNetError as e:
        raise e if e.label != "plan.capacity" else _overflow(network, problem, e, capacity) from None
    if network.is_open:
        plan = stack_buffers(problem.buffers, problem.sizes(network), plan)
        if greatest(plan.peak) > capacity:
            raise LightNetError(f"'{ARENA}' takes up to {greatest(plan.peak)} bytes ({plan.peak}), the capacity is "
                                f"{capacity}", label="plan.capacity")  # fmt: skip
    base.update({id(g): plan.offsets[problem.ids[id(g)]] - g.lo for g in problem.groups})
    for name, group in problem.ports.items():
        group.space, base[id(group)], sizes[name] = name, -group.lo, group.hi - group.lo
        if greatest(sizes[name]) > capacity:
            raise LightNetError(
                f"'{group.name}' has {sizes[name]} bytes, the capacity is {capacity}",
                group_loc(group),
                label="plan.capacity",
            )
    top = _place_static(problem, alignment, capacity, base)
    places = {v: PlaceAttr(s.group.space, base[id(s.group)] + s.offset) for v, s in network.slots.items()}
    work = {i: PlaceAttr(ARENA, plan.offsets[name]) for i, name in problem.workspaces.items()}
    write_places(module, network.ops, places, work)
    set_memory(module, {STATIC: top, ARENA: plan.peak, **sizes})
    return plan


def _place_static(problem: PackingProblem, alignment: int, capacity: int, base: dict[int, int]) -> int:
    """Put the groups of the static space one behind the other, into `base`; the bytes that they take."""
    top = 0
    for group in problem.static:
        if group.lo == group.hi:  # what is empty stands at 0, in the arena too
            base[id(group)] = -group.lo
            continue
        base[id(group)] = align_up(top, alignment) - group.lo
        top = base[id(group)] + group.hi
    if greatest(top) > capacity:
        largest = max(problem.static, key=lambda group: typical(group.hi - group.lo))
        raise LightNetError(
            f"the static tensors need {top} bytes, the capacity of '{STATIC}' is {capacity}; this one takes "
            f"{largest.hi - largest.lo}",
            group_loc(largest),
            label="plan.capacity",
        )
    return top


def check_spaces(module: ModuleOp, spaces: Mapping[str, Space]) -> None:
    """Raise `LightNetError` where a space of the module is none of the target's, or larger than it is there."""
    for name, size in memory_of(module).items():
        if is_port(name):
            continue
        if name not in spaces and name not in (ARENA, STATIC):
            raise LightNetError(f"the target has no memory space '{name}'; there are: {', '.join(spaces)}")
        if name not in (ARENA, STATIC) and greatest(size) > spaces[name].capacity:
            raise LightNetError(f"the plan takes {size} bytes of '{name}', which has {spaces[name].capacity}")


def write_places(
    module: ModuleOp, ops: list[Operation], places: dict[SSAValue, PlaceAttr], work: dict[int, PlaceAttr]
) -> None:
    """Set `ln.places` and `ln.workspace`."""
    for i, op in enumerate(ops):
        if op.results:
            op.attributes[PLACES] = ArrayAttr([places[r] for r in op.results])
        if i in work:
            op.attributes[WORKSPACE] = ArrayAttr([work[i]])


def _overflow(network: PlannedValues, problem: PackingProblem, error: LightNetError, capacity: int) -> LightNetError:
    """The capacity error with the op where the most is live, and what the largest buffers there are."""
    moment, load = max(load_profile(problem.buffers), key=lambda p: p[1])
    op = network.ops[min(moment, len(network.ops) - 1)]
    there = sorted((b for b in problem.buffers if b.lower <= moment < b.upper), key=lambda b: -b.size)
    error.message = (
        f"the network does not fit into '{ARENA}': {error.message}; {load} bytes are live at "
        f"`{op_label(op)}`, the most of all ops"
    )
    error.loc = loc_of(op)
    for b in there[:5]:
        error.notes.append((None, f"'{b.id}' takes {b.size} bytes there"))
    return error


def plan_report(module: ModuleOp, space: str = ARENA) -> PlanReport:
    """The report on one memory space of a planned module (text, json, svg, html): peak, lower bound, ratio, and the
    interval of each buffer in op positions."""
    return resolve_beside("lightnet_report.plan_report:plan_report", "the report on a memory plan")(module, space)


def write_report(module: ModuleOp, file: str) -> None:
    """Write the arena's report in the form that the file's suffix names."""
    try:
        Path(file).write_text(plan_report(module).in_form(file), encoding="utf-8")
    except OSError as e:
        raise LightNetError(f"cannot write the report to '{file}': {e.strerror}") from None
