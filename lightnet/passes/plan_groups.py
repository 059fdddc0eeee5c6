"""The groups of values that make the best plan, and the packing problem that they are.

`best_groups` tries without the merges that waste memory where most is in use. Imports the groups of `plan_buffers` and
the numbers of `planning`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice

from xdsl.ir import Operation

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import ARENA, STATIC
from lightnet.ir.module import op_label
from lightnet.ir.target import Space
from lightnet.passes.plan_buffers import PlannedValues, ValueGroup
from lightnet.passes.planning import Buffer, lower_bound, pack
from lightnet.passes.planning.buffers import load_profile
from lightnet.passes.planning.stacking import MOST_CALLS, telling_calls
from lightnet.runtime.dims import at, greatest, typical

#: Calls that are asked which merges are worth while, where calls decide sizes.
MOST_GROUPINGS = 3


@dataclass
class PackingProblem:
    """The arena as a packing problem: a buffer for each group and each workspace, and what they stand for; and the
    groups of the other spaces, and those that are ports."""

    groups: list[ValueGroup]
    buffers: list[Buffer]
    static: list[ValueGroup]
    workspaces: dict[int, str]  # op position -> buffer id
    ids: dict[int, str]  # id(group) -> buffer id
    elsewhere: dict[str, list[ValueGroup]]  # space -> groups
    alignment: int
    names: dict[str, int]  # the ids of buffers that are taken
    ports: dict[str, ValueGroup]  # by name

    def spill(self, group: ValueGroup) -> None:
        """Move a group of another space into the arena."""
        self.elsewhere[group.space].remove(group)
        group.space = ARENA
        self.groups.append(group)
        self.ids[id(group)] = name = _unique(group.name, self.names)
        self.buffers.append(group.buffer(name, self.alignment, typical))

    def bound(self) -> int:
        return lower_bound(self.buffers)

    def sizes(self, network: PlannedValues) -> dict[str, int]:
        """The size of each buffer, which a call may decide."""
        return {self.ids[id(g)]: g.hi - g.lo for g in self.groups} | {
            self.workspaces[i]: n for i, n, _ in network.workspaces
        }


def _problem_of(network: PlannedValues, groups: Sequence[ValueGroup], alignment: int) -> PackingProblem:
    """Buffers for the groups of the arena, and the groups of the static space in order of definition."""
    ports = network.port_groups()
    given = {id(g) for g in ports.values()}
    arena = [g for g in groups if g.space == ARENA and id(g) not in given]
    static = sorted((g for g in groups if g.space == STATIC), key=lambda g: min(s.number for s in g.slots))
    names: dict[str, int] = {}
    buffers, ids = [], {}
    for g in arena:
        ids[id(g)] = name = _unique(g.name, names)
        buffers.append(g.buffer(name, alignment, network.number))
    elsewhere: dict[str, list[ValueGroup]] = {}
    for g in groups:
        if g.space not in (ARENA, STATIC):
            elsewhere.setdefault(g.space, []).append(g)
    workspaces = {}
    for i, size, freed in network.workspaces:
        workspaces[i] = _unique(f"workspace of {op_label(network.ops[i])}", names)
        buffers.append(Buffer(workspaces[i], i, freed, network.number(size), alignment))
    return PackingProblem(arena, buffers, static, workspaces, ids, elsewhere, alignment, names, ports)


def _unique(name: str, names: dict[str, int]) -> str:
    count = names[name] = names.get(name, 0) + 1
    return name if count == 1 else _unique(f"{name}#{count}", names)


def group_loc(group: ValueGroup) -> SourceLoc | None:
    """The location where the largest value of a group is made."""
    value = group.largest.value
    return loc_of(value.owner) if isinstance(value.owner, Operation) else None


def fit_space(problem: PackingProblem, name: str, space: Space) -> tuple[dict[int, int], int]:
    """Pack the groups of a small space into its capacity: the base of each group that stays there, by id, and the bytes
    used.

    While they do not fit, the largest group at the moment of the highest load moves to the arena, which makes room
    there with the fewest copies.
    """
    groups = {str(i): g for i, g in enumerate(problem.elsewhere.get(name, ()))}
    for key in [key for key, g in groups.items() if greatest(g.hi - g.lo) > space.capacity]:
        _may_spill(groups[key], name, space)
        problem.spill(groups.pop(key))
    while groups:
        buffers = [g.buffer(key, space.alignment, greatest) for key, g in groups.items()]
        plan = pack(buffers, effort="fast")
        if plan.peak <= space.capacity:
            return {id(groups[key]): offset - groups[key].lo for key, offset in plan.offsets.items()}, plan.peak
        moment, _ = max(load_profile(buffers), key=lambda p: p[1])
        there = [b for b in buffers if b.lower <= moment < b.upper]
        largest = groups.pop(str(max(there, key=lambda b: b.size).id))
        _may_spill(largest, name, space)
        problem.spill(largest)
    return {}, 0


def _may_spill(group: ValueGroup, name: str, space: Space) -> None:
    """Raise `LightNetError` for a group that has to stand in its space, and does not fit."""
    if not space.spills:
        raise LightNetError(
            f"memory space '{name}' has {space.capacity} bytes, and has no room for '{group.name}' of "
            f"{group.hi - group.lo} beside what "
            "is live then",
            group_loc(group),
            label="plan.capacity",
        )


def best_groups(network: PlannedValues, alignment: int, peak: Callable[[PackingProblem], int]) -> PackingProblem:
    """The groups with the lowest `peak`: all merges, less the doubtful ones that the peak can do better without. Where
    calls decide sizes, those of some calls are held against each other: the groups count that are worst off least."""
    if not network.is_open:
        sites, problem = _best_sites(network, alignment, peak)
        return problem or _problem_of(network, network.groups(sites), alignment)
    sizes = [*(slot.size for slot in network.slots.values()), *(n for _, n, _ in network.workspaces)]
    numbers = [partial(at, values=call) for call in islice(telling_calls(sizes), MOST_CALLS)]
    found: dict[frozenset[int], list[int]] = {}
    for network.number in numbers[:MOST_GROUPINGS]:
        found[_best_sites(network, alignment, peak)[0]] = []
    for sites, bounds in found.items() if len(found) > 1 else ():
        groups = network.groups(sites)
        for network.number in numbers:
            bounds.append(_problem_of(network, groups, alignment).bound())
    network.number = typical
    lowest = [min(bounds) for bounds in zip(*found.values())]
    best = min(found, key=lambda sites: max((n / max(m, 1) for n, m in zip(found[sites], lowest)), default=0))
    return _problem_of(network, network.groups(best), alignment)


def _best_sites(
    network: PlannedValues, alignment: int, peak: Callable[[PackingProblem], int]
) -> tuple[frozenset[int], PackingProblem | None]:
    """The positions of ops whose doubtful merges are left out; and the problem, where it is that of the last grouping,
    whose offsets stand in the slots.

    At each step the groups that waste bytes at the moment of the highest load lose their doubtful merges; a step is
    kept if the lower bound falls. Equal peaks go to more merges, which are fewer copies.
    """
    disabled: frozenset[int] = frozenset()
    current = _problem_of(network, network.groups(), alignment)
    budget = 24 if len(network.ops) <= 2_000 else 6
    tried: set[int] = set()
    while suspects := _wasteful(current, network.number) - tried - disabled:
        for sites in _trials(suspects, current)[:budget]:
            budget -= 1
            tried |= sites  # all suspects, by the first
            trial = _problem_of(network, network.groups(disabled | sites), alignment)
            if trial.bound() < current.bound():
                disabled, current = disabled | sites, trial
                break
        else:  # the slots have the offsets of the last trial, which was not kept
            break
        if not budget:
            break
    every = frozenset(range(len(network.ops)))
    choices = [frozenset[int](), disabled, every] if any(g.doubtful for g in current.groups) or disabled else [disabled]
    if len(choices) == 1:
        return disabled, current
    best, height = choices[0], 0
    for sites in dict.fromkeys(choices):
        trial = _problem_of(network, network.groups(sites), alignment)
        if not height or (trial.bound() < height and peak(trial) < height):
            best, height = sites, peak(trial)
    return best, None


def _trials(suspects: frozenset[int], problem: PackingProblem) -> list[frozenset[int]]:
    """Sets of merges to try without: all suspects, then those of each group alone."""
    each = [frozenset(g.doubtful) & suspects for g in problem.groups]
    alone = sorted((s for s in each if s), key=len)
    return [suspects, *(s for s in alone if s != suspects)][:6]


def _wasteful(problem: PackingProblem, number: Callable[[int], int]) -> frozenset[int]:
    """The doubtful merges in groups that, at the moment of the highest load, are larger than what lives in them."""
    moment, _ = max(load_profile(problem.buffers), key=lambda point: point[1], default=(0, 0))
    found: set[int] = set()
    for g in problem.groups:
        if g.doubtful and g.lower <= moment < g.upper and _live_bytes(g, moment, number) < number(g.hi - g.lo):
            found.update(g.doubtful)
    return frozenset(found)


def _live_bytes(group: ValueGroup, moment: int, number: Callable[[int], int]) -> int:
    total, end = 0, number(group.lo)
    live = [(number(s.offset), number(s.size)) for s in group.slots if s.lower <= moment < s.upper]
    for offset, size in sorted(live):
        top = offset + size
        if top > end:
            total += top - max(offset, end)
            end = top
    return total
