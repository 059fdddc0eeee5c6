"""Index notation → level 4: a bound definition as kernel functions of `scf`, `arith`, `math` and `memref`.

Here is decided which nests of statements make a launch, and where the locals between them live; `loop_function.py`
writes the functions, `loop_points.py` those of threads. Imports `ir` and xDSL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from lightnet.backends.loop_function import NO_LABELS, Labels, LoopFunction, LoopKernel, uses
from lightnet.backends.loop_layouts import Layouts, covers, gaps, laid_out
from lightnet.backends.loop_points import Part, PointFunction, beside
from lightnet.dataclasses import dataclass
from lightnet.ir.bound import BoundDefinition, Idx
from lightnet.ir.fusion import Nest, nests
from lightnet.ir.types import TensorSpec
from lightnet.runtime.arrays import align_up
from lightnet.runtime.dims import Size, greatest, typical

#: Locals up to this many bytes live on the stack of a block.
STACK_BYTES = 16 << 10
#: A launch has about this many blocks.
LOOP_BLOCKS = 64
#: Nests of so many evaluations together are one launch, in whatever grid.
FEW_TRIPS = 1 << 14


@dataclass(frozen=True)
class Lowered:
    """The launches of a definition, in order, and the tensors that they need as workspace."""

    kernels: tuple[LoopKernel, ...]
    workspace: tuple[tuple[str, TensorSpec], ...]

    @property
    def workspace_bytes(self) -> Size:
        """The size of the workspace, each tensor aligned to 64 bytes."""
        return sum(align_up(spec.nbytes) for _, spec in self.workspace)


def lower_definition(
    name: str,
    definition: BoundDefinition,
    order: Sequence[str] = (),
    aliases: Mapping[str, str] | None = None,
    blocks: int | None = LOOP_BLOCKS,
    layouts: Layouts | None = None,
    labels: Labels = NO_LABELS,
    vectors: bool = True,
) -> Lowered:
    """Lower a definition (of one op, or composed) to kernel functions called `name`, `name_1`, ….

    `order` is the order of the memref arguments (operands and results; unused ones of a launch are left out); workspace
    tensors follow. `aliases` maps an operand to the result that shares its memory; both then stand for one argument,
    under the result's name. `blocks` is the number of blocks to aim for; None: each point of the loops that are
    independent is a block of its own, as a GPU's threads want it, or a few that follow each other. Operands and results
    may lie in `layouts`: zeros are written wherever the memory of these results has more than they have. `labels` are
    for who reads the functions; without `vectors` all of row-major memory is scalar.
    """
    order = tuple(order) or tuple(n for n, _ in definition.operands + definition.results)
    aliases, zeros = dict(aliases or {}), gaps(definition, layouts or {})
    definition = laid_out(definition, layouts or {})
    schedule = _schedule(definition, by_point=blocks is None)
    order = (*order, *(n for n, _ in schedule.workspace))
    kernels = []
    for k, parts in enumerate(_parts(schedule, aliases, bool(layouts) or blocks is None)):
        nests = [nest for part in parts for nest in part]
        left = [nest for nest in zeros if not k and not covers(nests, nest)]
        function = (
            PointFunction(definition, parts, schedule.private, aliases, left, labels)
            if blocks is None
            else LoopFunction(
                definition,
                nests,
                schedule.shared,
                schedule.private,
                aliases,
                blocks,
                left,
                bool(layouts),
                labels,
                vectors,
            )
        )
        kernels.append(function.lower(f"{name}_{k}" if k else name, order))
    return Lowered(tuple(kernels), schedule.workspace)


def _parts(schedule: _Schedule, aliases: dict[str, str], together: bool = True) -> list[list[Part]]:
    """The parts that stand beside each other in each launch; each nest in a launch of its own, unless they may be
    `together`.
    """
    if schedule.shared is not None or not together:
        return [[group] for group in schedule.launches]
    return beside([g for group in schedule.launches for g in group], aliases)


def launches_by_point(definition: BoundDefinition) -> int:
    """The number of launches that `lower_definition` makes of a definition for single points."""
    return len(_parts(_schedule(definition, by_point=True), {}))


def workspace_of(
    definition: BoundDefinition, blocks: int | None, layouts: Layouts | None
) -> tuple[tuple[str, TensorSpec], ...]:
    """The workspace tensors that `lower_definition` will ask for."""
    return _schedule(laid_out(definition, layouts or {}), blocks is None).workspace


@dataclass(frozen=True)
class _Schedule:
    """The nests that make a launch, the number of leading loops that they share, and the places of locals."""

    launches: list[list[Nest]]
    shared: int | None
    private: dict[str, tuple[int, ...]]
    workspace: tuple[tuple[str, TensorSpec], ...]


def _schedule(definition: BoundDefinition, by_point: bool) -> _Schedule:
    """One launch if all nests share enough parallel loops (`by_point`: all of them) or there is little work, else one
    for each nest. `shared` is None where no launch has several."""
    groups = nests(definition)
    if not groups:  # every result is empty
        return _Schedule([], None, {}, ())
    shared = _shared_prefix(groups)
    parallel = typical(prod(n for _, n in groups[0].loops[:shared]))
    trips = typical(sum(s.trips for g in groups for s in g.statements))
    together = len(groups) == 1 or (shared > 0 and parallel >= 8) or trips <= FEW_TRIPS
    if by_point:
        together = all(len(g.loops) == shared for g in groups)
    memory_locals = _memory_locals(definition, groups)
    private = _private(definition, groups, memory_locals, shared) if together else {}
    workspace = tuple((n, definition.specs[n]) for n in memory_locals if n not in private)
    several = together and len(groups) > 1
    return _Schedule([groups] if together else [[g] for g in groups], shared if several else None, private, workspace)


def _memory_locals(d: BoundDefinition, groups: list[Nest]) -> list[str]:
    """Locals that more than one nest touches; the others live in registers."""
    count = {n: sum(any(n == t for s in g.statements for t, _, _ in uses(s)) for g in groups) for n, _ in d.locals}
    return [n for n, k in count.items() if k > 1]


def _shared_prefix(groups: list[Nest]) -> int:
    """The number of leading loops that all nests share, such that no block of them touches what another one writes."""
    if not groups:
        return 0
    limit = min(len(g.loops) for g in groups)
    p = 0
    while p < limit and all(g.loops[p] == groups[0].loops[p] for g in groups):
        p += 1
    written = {t for g in groups for s in g.statements for t in s.targets}
    between = {t for t in written if sum(any(t == u for s in g.statements for u, _, _ in uses(s)) for g in groups) > 1}
    while p and _prefix_positions(groups, between, p) is None:
        p -= 1
    return p


def _prefix_positions(groups: list[Nest], tensors: set[str], p: int) -> dict[str, tuple[int, ...]] | None:
    """For each tensor, the dimensions that the first `p` loops index in every access; None if there are none such."""
    found: dict[str, tuple[int, ...]] = {}
    for g in groups:
        for s in g.statements:
            for tensor, subs, flat in uses(s):
                if tensor not in tensors:
                    continue
                wanted = [Idx(f"p{k}") for k in range(p)]
                if flat or not all(w in subs for w in wanted):
                    return None
                places = tuple(subs.index(w) for w in wanted)
                if found.setdefault(tensor, places) != places:
                    return None
    return found


def _private(d: BoundDefinition, groups: list[Nest], names: list[str], shared: int) -> dict[str, tuple[int, ...]]:
    """Locals that fit on the stack of one block, with the dimensions that the block fixes."""
    places = _prefix_positions(groups, set(names), shared) or {}
    fits = {}
    for name in names:
        dims = [1 if k in places.get(name, ()) else n for k, n in enumerate(d.specs[name].dims)]
        if greatest(prod(dims)) * d.specs[name].dtype.size <= STACK_BYTES:
            fits[name] = places.get(name, ())
    return fits
