"""From a module to buffers: which values may share bytes, and how long each buffer lives.

A *group* is a set of values with fixed offsets to each other. Three kinds of merges make groups: a move whose result
is a part of its operand (reshape, slice, scatter), a move whose operands are parts of its result (concat, gather), and
a result that takes the bytes of an operand that dies. Every merge is checked value by value, so none is ever wrong;
but keeping a large value because a small part of it lives on can cost memory, so `best_groups` tries without.
Offsets and sizes that a call decides are `Dim`s: a merge is made where all that it needs is proved for all values, and
what it is worth is told by the typical network. Imports `ir` and the numbers of `planning`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Operation, OpResult, SSAValue

from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.source import Input, ParamOp, Source
from lightnet.dialects.ln.structure import OnceOp, planned_ops
from lightnet.ir import budget
from lightnet.ir.layout import byte_size
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import ARENA, STATIC, workspace_size
from lightnet.ir.module import main_of, value_name
from lightnet.ir.reserved import grown
from lightnet.ir.types import spec_of
from lightnet.ir.views import cut_pieces, joined_pieces, operand_pieces, overwritable, views_of
from lightnet.passes.planning import Buffer
from lightnet.passes.planning.spans import OpenSpans, Spans
from lightnet.runtime.dims import Dim, Undecided, dim_max, dim_min, is_known, typical

#: Merging two groups compares at most so many pairs of values; larger ones stay apart.
MAX_PAIRS = 20_000
#: A tensor whose size calls decide is a port from this part of the bytes on from which others are: a call of a new
#: shape makes a view of it to copy by, which takes as long as to say where an array is.
OPEN_SHARE = 16


def in_arena(value: OpResult) -> str:
    """The space of computed values on a machine with one memory."""
    return ARENA


@dataclass(eq=False, slots=True)
class _Slot:
    """A value to be placed. Live in op positions [lower, upper); `pieces` is its content as runs of bytes of values
    that are computed (leaves), by which copies are told from new data."""

    value: OpResult
    number: int
    size: int
    element: int
    home: str  # the space it has by itself; a view of a static tensor stands where that does
    lower: int
    upper: int
    protected: bool  # an input, a param or a result of ln.once: never overwritten
    freed: int  # from which position on others may have its bytes: `upper`, or later (`PlannedValues.freed`)
    pieces: list[tuple[int, int, int]] = field(default_factory=list)
    group: ValueGroup = field(init=False)
    offset: int = 0


@dataclass(eq=False, slots=True)
class ValueGroup:
    """Values at fixed offsets to each other; `lo` and `hi` bound their bytes, `lower` and `upper` their lifetimes;
    `sources` counts those that are protected, `spans` has the slots by where they are. `doubtful` lists the ops whose
    merges made the group larger than the value merged."""

    slots: list[_Slot]
    space: str
    lo: int
    hi: int
    lower: int
    upper: int
    sources: int
    doubtful: list[int]
    spans: Spans[_Slot]

    @classmethod
    def single(cls, slot: _Slot, spans: Spans[_Slot]) -> ValueGroup:
        """The group of one slot, in `spans`, which are empty."""
        spans.add(slot)
        return cls([slot], slot.home, 0, slot.size, slot.lower, slot.upper, int(slot.protected), [], spans)

    @property
    def protected(self) -> bool:
        """True if a value of it is never overwritten."""
        return self.sources > 0

    @property
    def largest(self) -> _Slot:
        """The slot of its largest value."""
        return max(self.slots, key=lambda s: (typical(s.size), -s.number))

    @property
    def name(self) -> str:
        """The name of its largest value."""
        return value_name(self.largest.value)

    def buffer(self, name: str, alignment: int, number: Callable[[int], int]) -> Buffer:
        """The buffer that it asks of its space, as large as `number` says of a size that a call decides."""
        return Buffer(name, self.lower, max(s.freed for s in self.slots), number(self.hi - self.lo), alignment)

    def absorb(self, other: ValueGroup, shift: int) -> None:
        """Take in the slots of `other`, `shift` bytes further on."""
        for slot in other.slots:
            slot.group = self
        self.slots += other.slots
        self.spans.absorb(other.spans, shift)
        self.sources += other.sources
        self.lo = dim_min(self.lo, other.lo + shift)  # type: ignore[assignment]
        self.hi = dim_max(self.hi, other.hi + shift)  # type: ignore[assignment]
        self.lower, self.upper = min(self.lower, other.lower), max(self.upper, other.upper)
        self.doubtful += other.doubtful


@dataclass
class PlannedValues:
    """The facts about a module that planning needs: its ops, and a slot for each value."""

    ops: list[Operation]
    slots: dict[SSAValue, _Slot]
    workspaces: list[tuple[int, int, int]]  # (op position, bytes, position from which on others may have them)
    pieces: list[list]  # of each op, `views.pieces_of`
    views: list[list]  # of each op
    pairs: list[list[tuple[int, int]]]  # of each op: operands that may be overwritten
    grown: dict[int, list[tuple[int, int]]]  # of an op: inputs that become results where they are (`reserved.grown`)
    ports: int = 0  # inputs and outputs of at least so many bytes are ports; 0: none is
    number: Callable[[int], int] = typical  # of a size that calls decide, in the call that decides merges

    @classmethod
    def of(cls, module: ModuleOp, home: Callable[[OpResult], str] = in_arena, ports: int = 0,
           apart: int = 0) -> PlannedValues:  # fmt: skip
        """Read a module of level 1 or 2 (old places are ignored); `home` names the space a computed value should stand
        in. Values of at most `apart` bytes keep theirs from ops that need not wait for those that read them."""
        ops = planned_ops(main_of(module).body.block)
        position = {op: i for i, op in enumerate(ops)}
        end = len(ops)
        slots: dict[SSAValue, _Slot] = {}
        moves = [operand_pieces(op) for op in ops]
        needs = _needs(ops, position) if apart else []
        growing = {i: pairs for i, op in enumerate(ops) if (pairs := _growing(op))}
        caches = {ops[i].operands[k] for i, pairs in growing.items() for k, _ in pairs}
        for i, op in enumerate(ops):
            source = isinstance(op, Source | OnceOp)
            static = isinstance(op, ParamOp | OnceOp)
            for j, value in enumerate(op.results):
                spec = spec_of(value.type)
                readers = [position.get(use.operation, i) for use in value.uses] or [i]
                last, size = max(readers), byte_size(value.type)
                lower = 0 if source else i
                upper = end if last == end - 1 or (source and value not in caches) else last + 1
                freed = upper if source or typical(size) > apart else _freed(needs, readers, upper)
                space = STATIC if static else ARENA if source else home(value)
                slot = _Slot(value, len(slots), size, spec.dtype.size, space, lower, upper, source, freed)
                runs = moves[i][j]
                slot.pieces = [(slot.number, 0, size)]
                if runs is not None:
                    with suppress(Undecided):
                        parts = (cut_pieces(slots[op.operands[k]].pieces, at, n) for k, at, n in runs)
                        slot.pieces = joined_pieces([p for part in parts for p in part])
                slots[value] = slot
        workspaces = [
            (i, n, _freed(needs, [i], i + 1) if typical(n) <= apart else i + 1)
            for i, op in enumerate(ops)
            if (n := workspace_size(op)) != 0
        ]
        return cls(
            ops,
            slots,
            workspaces,
            moves,
            [views_of(op) for op in ops],
            [overwritable(op) if op.operands else [] for op in ops],
            growing,
            ports,
        )

    @cached_property
    def is_open(self) -> bool:
        """True if a call decides some size or offset."""
        sizes = [*(slot.size for slot in self.slots.values()), *(n for _, n, _ in self.workspaces)]
        return not is_known([*sizes, *(view.delta for views in self.views for view in views)])

    def port_groups(self) -> dict[str, ValueGroup]:
        """The groups that are ports, by the names of these: as merged now, what has the bytes of one input or of one
        output and no more. All of an input's other values read it, for it is protected; what else an output's memory
        holds is for nobody to see. An input that grows into an output is always one with it."""
        caches = [self.slots[self.ops[i].results[j]].group for i, pairs in self.grown.items() for _, j in pairs]
        found = {f"cache{number}": group for number, group in enumerate(caches)}
        taken = set(map(id, caches))
        if not self.ports:
            return found
        inputs = [op.results[0] for op in self.ops if isinstance(op, Input)]
        outputs = self.ops[-1].operands if self.ops and isinstance(self.ops[-1], ReturnOp) else ()
        for kind, values in (("in", inputs), ("out", outputs)):
            number = 0
            for slot in (self.slots[v] for v in values):
                group = slot.group
                if group.space != ARENA or group.sources != (kind == "in") or id(group) in taken:
                    continue
                least_bytes = self.ports // OPEN_SHARE if isinstance(slot.size, Dim) else self.ports
                if typical(slot.size) < least_bytes or (group.lo, group.hi) != (slot.offset, slot.offset + slot.size):
                    continue
                found[f"{kind}{number}"] = group
                taken.add(id(group))
                number += 1
        return found

    def groups(self, disabled: frozenset[int] = frozenset(), inplace: bool = True) -> list[ValueGroup]:
        """Merge what can be merged; `disabled` are the positions of ops without doubtful merges."""
        spans = OpenSpans if self.is_open else Spans
        for slot in self.slots.values():
            slot.offset = 0
            slot.group = ValueGroup.single(slot, spans())
        for i, op in enumerate(self.ops):
            budget.check(op)
            for k, j, delta in self.views[i]:
                with suppress(Undecided):
                    self._view(i, op, k, j, delta, i not in disabled)
            for k, j in self.grown.get(i, ()):
                self._grow(i, op, k, j)
            if inplace:
                self._in_place(i, op, i not in disabled)
        return list({id(s.group): s.group for s in self.slots.values()}.values())

    def _view(self, i: int, op: Operation, k: int, j: int, delta: int, doubtful: bool) -> None:
        source, target = self.slots[op.operands[k]], self.slots[op.results[j]]
        if not doubtful and source.size > target.size:
            return
        if target.size > source.size and (not doubtful or source.group.protected):
            return  # the rest of the result would be written among protected bytes
        self._merge(i, source, target, delta)

    def _grow(self, i: int, op: Operation, k: int, j: int) -> None:
        """Let a result have the memory of the input that it is, grown."""
        source, target = self.slots[op.operands[k]], self.slots[op.results[j]]
        if not self._merge(i, source, target, 0):
            text = (
                f"'{value_name(target.value)}' cannot grow where '{value_name(source.value)}' is, which is read later"
            )
            raise LightNetError(text, loc_of(op), label="plan.grown")

    def _in_place(self, i: int, op: Operation, doubtful: bool) -> None:
        taken: set[int] = set()
        for k, j in self.pairs[i]:
            source, target = self.slots[op.operands[k]], self.slots[op.results[j]]
            if j in taken or source.upper != i + 1 or source.protected or source.group.space != target.group.space:
                continue
            if source.group is target.group:
                taken.add(j)  # the op is a view, too
                continue
            if not doubtful and source.group.hi - source.group.lo != source.size:
                continue
            with suppress(Undecided):
                if self._merge(i, source, target, 0):
                    taken.add(j)

    def _merge(self, i: int, source: _Slot, target: _Slot, delta: int) -> bool:
        """Put `target` at `delta` bytes from `source`, with the groups of both, if no value is damaged by it. Raises
        `Undecided`, with nothing done, where that is not known."""
        a, b = source.group, target.group
        if a is b:
            return source.offset + delta == target.offset
        shift = source.offset + delta - target.offset  # what b's offsets gain
        if shift % max(target.element, 1):
            return False
        if a.space != b.space and (target.size > source.size or a.space not in (ARENA, STATIC)):
            return False  # what is to stand in the arena is no view of what stands elsewhere
        if not self._compatible(a, b, shift, i):
            return False
        space = a.space  # a view of a static tensor stands where that does
        grown = dim_max(a.hi, b.hi + shift) - dim_min(a.lo, b.lo + shift)
        if len(b.slots) > len(a.slots):
            a, b, shift = b, a, -shift
        a.absorb(b, shift)
        a.space = space
        if not grown == source.size == target.size:
            a.doubtful.append(i)
        return True

    def _compatible(self, a: ValueGroup, b: ValueGroup, shift: int, i: int) -> bool:
        """Return whether no two values, one of each group, disturb each other when b moves by `shift`."""
        ours = a.spans.meeting(b.lo + shift, b.hi + shift, b.lower, i)
        theirs = b.spans.meeting(a.lo - shift, a.hi - shift, a.lower, i)
        if len(ours) * len(theirs) > MAX_PAIRS:
            return False
        return all(self._apart(s, t, t.offset + shift) for s in ours for t in theirs)

    def _met(self, a: _Slot, b: _Slot) -> bool:
        """Return whether two values share bytes already."""
        return a.group is b.group and a.offset < b.offset + b.size and b.offset < a.offset + a.size

    def _in_place_move(self, result: _Slot, operand: _Slot, delta: int) -> bool:
        """Return whether no byte need be copied from the operand to the result that stands `delta` bytes further on; if
        the two are not operand and result of one op, none is.
        """
        op = self.ops[result.lower]
        pieces = self.pieces[result.lower][result.value.index] if result.lower else None
        at = 0
        for k, offset, size in pieces or ():
            if op.operands[k] is operand.value and offset != delta + at:
                return False
            at += size
        return True

    def _apart(self, s: _Slot, t: _Slot, t_offset: int) -> bool:
        if s.upper <= t.lower or t.upper <= s.lower:
            return True
        lo, hi = max(s.offset, t_offset), min(s.offset + s.size, t_offset + t.size)
        if lo >= hi:
            return True
        same = cut_pieces(s.pieces, lo - s.offset, hi - lo) == cut_pieces(t.pieces, lo - t_offset, hi - lo)
        first, second = (s, t) if s.lower < t.lower else (t, s)
        if same:
            return self._in_place_move(second, first, t_offset - s.offset if second is t else s.offset - t_offset)
        if first.upper != second.lower + 1 or s.offset != t_offset or s.size != t.size:
            return False
        op, growing = self.ops[second.lower], self.grown.get(second.lower, ())
        grows = any((op.operands[k], op.results[j]) == (first.value, second.value) for k, j in growing)
        if first.protected and not grows:
            return False
        if any(
            self._met(self.slots[v], first) or self._met(self.slots[v], second)
            for v in op.operands
            if v is not first.value
        ):
            return False  # of a kernel's arguments, only one may have the bytes that it writes
        used = [k for k, v in enumerate(op.operands) if v is first.value]
        made = [j for j, v in enumerate(op.results) if v is second.value]
        return bool(used and made) and all((k, made[0]) in self.pairs[second.lower] for k in used)


def _growing(op: Operation) -> list[tuple[int, int]]:
    """The pairs of `grown` whose operand is an input, and whose result is an output."""
    return [
        (k, j)
        for k, j in grown(op)
        if isinstance(op.operands[k].owner, Input)
        and any(isinstance(use.operation, ReturnOp) for use in op.results[j].uses)
    ]


#: How many ops behind its last reader a value keeps its bytes from ops that need not wait for that.
WINDOW = 16


def _needs(ops: Sequence[Operation], position: dict[Operation, int]) -> list[set[int] | None]:
    """For each op, those among the `WINDOW` before it whose results it needs, directly or not; None of ops that compute
    nothing."""
    found: list[set[int] | None] = []
    for j, op in enumerate(ops):
        if isinstance(op, Source | OnceOp | ReturnOp):
            found.append(None)
            continue
        earlier = {position[v.owner] for v in op.operands if isinstance(v.owner, Operation) and v.owner in position}
        needed = set(earlier)
        for i in earlier:
            needed |= found[i] or set()
        found.append({i for i in needed if i >= j - WINDOW})
    return found


def _freed(needs: Sequence[set[int] | None], readers: Sequence[int], upper: int) -> int:
    """The position behind the last op of the window that needs not all of `readers`: it may run beside one of them,
    unless it has its memory."""
    for j in range(min(upper + WINDOW, len(needs)) - 1, upper - 1, -1):
        needed = needs[j]
        if needed is not None and any(i >= j - WINDOW and i not in needed for i in readers):
            return j + 1
    return upper
