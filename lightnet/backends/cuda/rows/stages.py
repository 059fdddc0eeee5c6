"""A definition whose statements reduce rows, as stages that a team of threads runs for one row after the other.

    top[n, y, x] max= src[n, j, y, x]                  reduce  top   at p      over r < J
    e[n, j, y, x] = exp(src[n, j, y, x] - top[n, y, x])     (inlined)
    sum[n, y, x] += e[n, j, y, x]                  →   reduce  sum   at p      over r < J
    dst[n, j, y, x] = e[n, j, y, x] / sum[n, y, x]     map     dst   at p, r   for  r < J

All statements run at the same *points*, the independent loops of the reductions; what is between them is a scalar of
its point. The loops of a point are one index ``p``, those of a row one index ``r``; subscripts are addresses in memory,
in the tensors' layouts. Imports `ir` and layouts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from lightnet.dataclasses import dataclass, replace
from lightnet.ir.affine import IndexSpace
from lightnet.ir.bound import (
    I64,
    Apply,
    BoundDefinition,
    Const,
    Idx,
    Loop,
    Node,
    Read,
    Statement,
    indices,
    reads,
    rebuild,
    renamed_statement,
    substitute,
)
from lightnet.ir.fusion import delinearize, inline_local, linearize, prune
from lightnet.ir.layout import ChannelsLast, Layout
from lightnet.runtime.dtypes import DType

#: The indices of a stage: of the point, and of the row.
POINT, ROW = "p", "r"
#: The index of a piece of the rows, where several blocks share them.
PIECE = "s"
#: More statements than that are no kernel of rows: code is written out for each.
MOST_STAGES = 16
#: How often a statement reads an element, on average and at most: what is read more often is a product of matrices,
#: which wants tiles in shared memory.
MOST_READS = 4


@dataclass(frozen=True)
class RowStage:
    """One statement. It writes `targets` at `address` (for arg-reductions, value and place: of one address). A stage
    with a `place` or with another `op` than ``=`` reduces `value` over a row of `extent` elements, from the identity if
    it is `fresh`, else from what the target holds; one that `is_map` writes each element of its row; any other runs
    once a point. `channel` is the subscript of the target's axis 1, where channels lie last; `dtypes` are those of the
    targets. What is `in_pieces` works on the block's piece of the row."""

    targets: tuple[str, ...]
    op: str
    value: Node
    address: Node
    extent: int
    place: Node | None
    fresh: bool
    is_map: bool
    channel: Node | None
    dtypes: tuple[DType, ...]
    in_pieces: bool = False

    @property
    def is_reduction(self) -> bool:
        return self.op != "="

    @property
    def has_row(self) -> bool:
        return self.is_reduction or self.is_map


@dataclass(frozen=True)
class Rows:
    """Stages in order, for each of so many `points`. So many `pieces` of each row are blocks of their own."""

    points: int
    stages: tuple[RowStage, ...]
    pieces: int = 1

    @property
    def extent(self) -> int:
        """The elements of the longest row."""
        return max(s.extent for s in self.stages)

    def written(self) -> set[str]:
        return {t for s in self.stages for t in s.targets}

    def row_reads(self) -> list[tuple[Read, int, bool]]:
        """The reads along rows, how long these are, and whether an earlier stage has read the same."""
        found: list[tuple[Read, int, bool]] = []
        seen: set[tuple[Read, int]] = set()
        written = self.written()
        for s in self.stages:
            for r in dict.fromkeys(reads(s.value)) if s.has_row else ():
                if r.tensor not in written:
                    found.append((r, s.extent, (r, s.extent) in seen))
                    seen.add((r, s.extent))
        return found


def definition_rows(d: BoundDefinition, layouts: Mapping[str, Layout]) -> Rows | None:
    """A definition as stages; None where its statements are no such rows. `layouts` are those of tensors that are not
    plain."""
    if any(not n for s in d.statements for _, n in s.loops + s.reductions):
        return None
    first = next((s for s in d.statements if s.op != "="), None)
    inlined = None if first is None else _without_maps(d, first.size)
    if inlined is None or not 0 < len(inlined.statements) <= MOST_STAGES:
        return None
    d = inlined
    extents = tuple(n for _, n in next(s for s in d.statements if s.op != "=").loops)
    aligned = _aligned(d, tuple((f"o{k}", n) for k, n in enumerate(extents)))
    if aligned is None or any(r.filler is not None for s in aligned for r in reads(s.value)):
        return None
    operands = {name for name, _ in d.operands}
    most = MOST_READS * sum(spec.len for _, spec in d.operands)
    if any(s.trips * len({r for r in reads(s.value) if r.tensor in operands}) > most for s in aligned):
        return None
    flat = _Flat(d, layouts, extents)
    return Rows(prod(extents), tuple(map(flat.stage, aligned)))


def _without_maps(d: BoundDefinition, points: int) -> BoundDefinition | None:
    """The definition with every local inlined that has an element for each of a row, so that the other locals are
    scalars of a point."""
    for name, spec in d.locals:
        if spec.len <= points or name not in dict(d.locals):
            continue
        inlined = inline_local(d, name)
        if inlined is None:
            return None
        d = inlined
    return prune(d)


def _aligned(d: BoundDefinition, points: tuple[Loop, ...]) -> list[Statement] | None:
    """The statements with the loops of `points` first, under their names; None where a value does not stay at its
    point."""
    seen: dict[str, int] = {}
    for s in d.statements:
        for name in {*s.targets, *(r.tensor for r in reads(s.value))}:
            seen[name] = seen.get(name, 0) + 1
    between = {t for s in d.statements for t in s.targets if seen[t] > 1}
    placed: dict[str, tuple[Node, ...]] = {}
    found = []
    for s in d.statements:
        named = _named(s, points, placed)
        if named is None:
            return None
        for tensor, subs in _accesses(named):
            if tensor in between and placed.setdefault(tensor, subs) != subs:
                return None
        scalar = len(named.loops) == len(points)
        if any(_slides(sub) for r in reads(named.value) if not r.flat for sub in r.subs):
            return None
        if not scalar and (named.op != "=" or between & set(named.targets)):
            return None
        found.append(named)
    return found


def _slides(sub: Node) -> bool:
    """Return whether a subscript is that of a window: of a point and of its row at once."""
    return len({name.startswith("o") for name in indices(sub)}) > 1


def _accesses(s: Statement) -> list[tuple[str, tuple[Node, ...]]]:
    return [(t, s.subs) for t in s.targets] + [(r.tensor, r.subs) for r in reads(s.value)]


def _named(s: Statement, points: tuple[Loop, ...], placed: Mapping[str, tuple[Node, ...]]) -> Statement | None:
    """A statement whose loops that are those of a point come first and are called so: they are those that index what
    was written at a point, else the leading ones."""
    names: dict[str, str] = {}
    for tensor, subs in _accesses(s):
        for known, sub in zip(placed.get(tensor, ()), subs):
            if isinstance(known, Idx) and (
                not isinstance(sub, Idx) or names.setdefault(sub.name, known.name) != known.name
            ):
                return None
    if not names:
        names = {old: new for (old, _), (new, _) in zip(s.loops, points)}
    extents = dict(s.loops)
    if {new: extents.get(old) for old, new in names.items()} != dict(points):
        return None
    rest = [loop for loop in s.loops if loop[0] not in names]
    names |= {old: f"x{k}" for k, (old, _) in enumerate(rest)}
    names |= {old: f"y{k}" for k, (old, _) in enumerate(s.reductions)}
    named = renamed_statement(s, {}, names)
    own = tuple((names[old], n) for old, n in rest)
    return Statement(named.tensor, named.subs, named.op, named.value, (*points, *own), named.reductions, named.arg,
                     named.fresh, named.flat)  # fmt: skip


class _Flat:
    """Stages of statements: one index for the loops of a point, one for those of a row, and addresses in memory."""

    def __init__(self, d: BoundDefinition, layouts: Mapping[str, Layout], extents: tuple[int, ...]):
        self.d, self.layouts = d, layouts
        self.points = prod(extents)
        self.by = {f"o{k}": node for k, node in enumerate(delinearize(Idx(POINT), extents))}

    def stage(self, s: Statement) -> RowStage:
        own = s.loops[len(self.by) :] + s.reductions
        extent = prod(n for _, n in own)
        by = {**self.by, **{name: n for (name, _), n in zip(own, delinearize(Idx(ROW), [n for _, n in own]))}}
        space = IndexSpace([(POINT, self.points), (ROW, extent), *s.loops, *s.reductions])

        def flat(node: Node) -> Node:
            return space.simplify(substitute(space.simplify(node), by))

        last = isinstance(self.layouts.get(s.tensor), ChannelsLast)
        return RowStage(
            s.targets, s.op, flat(self.node(s.value)), flat(self.address(s.tensor, s.subs, s.flat)), extent,
            None if s.arg is None else flat(Idx(s.reductions[0][0])), s.fresh, s.op == "=" and bool(own),
            flat(s.subs[1]) if last else None, tuple(self.d.specs[t].dtype for t in s.targets),
        )  # fmt: skip

    def address(self, tensor: str, subs: Sequence[Node], flat: bool) -> Node:
        """The number of an element in memory."""
        dims, layout = self.d.specs[tensor].dims, self.layouts.get(tensor)
        if not isinstance(layout, ChannelsLast):
            return subs[0] if flat else linearize(subs, dims)
        n, c, h, w = delinearize(subs[0], dims) if flat else subs
        return linearize((n, h, w, c), layout.physical_dims(dims))

    def node(self, node: Node) -> Node:
        """Reads by address."""
        new = rebuild(node, self.node)
        if not isinstance(new, Read):
            return new
        return Read(new.tensor, (self.address(new.tensor, new.subs, new.flat),), None, new.dtype, True)


def split_rows(rows: Rows, pieces: int) -> tuple[Rows, ...] | None:
    """Rows as one launch for each reduction, which reduces pieces of the rows, and one more.

    Each launch begins with what the ones before it have found: it puts their pieces together, which are few. None where
    a reduction begins from what its target holds, or rows differ in length.

        sum[p] += x[p, r]     →   sum.parts[p, s] += x[p, r of piece s]    |   sum[p] += sum.parts[p, r]  (r < pieces)
    """
    found = [s for s in rows.stages if s.has_row]
    if any(s.is_reduction and not s.fresh for s in found) or len({s.extent for s in found}) > 1:
        return None
    at_points = {r.tensor for s in rows.stages if not s.has_row for r in reads(s.value)} - rows.written()
    if at_points and any(s.is_map for s in found):
        return None  # every block of a row reads what the first one, for all it knows, overwrites
    launches: list[Rows] = []
    before: list[RowStage] = []
    for s in rows.stages:
        if not s.is_reduction:
            before.append(replace(s, in_pieces=s.is_map))
            continue
        parts = tuple(f"{t}.parts" for t in s.targets)
        start = tuple(q for q in before if not q.is_map)
        piece = replace(s, targets=parts, address=_position(pieces, Idx(PIECE)), in_pieces=True, channel=None)
        launches.append(Rows(rows.points, (*start, piece), pieces))
        value, *place = (
            Read(part, (_position(pieces, Idx(ROW)),), None, dtype, True) for part, dtype in zip(parts, s.dtypes)
        )
        before.append(replace(s, value=value, place=place[0] if place else None, extent=pieces))
    shared = any(s.in_pieces for s in before)
    return (*launches, Rows(rows.points, tuple(before), pieces if shared else 1))


def _position(pieces: int, piece: Node) -> Node:
    """The position of the result of a piece."""
    return Apply("add", (Apply("mul", (Idx(POINT), Const(pieces, I64)), I64), piece), I64)
