"""The function of one launch of rows: each team walks the row of its point once a stage, or holds it in registers.

Imports stages, teams and the expressions of loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from xdsl.ir import SSAValue

from lightnet.backends.cuda.kernel import KernelFunction
from lightnet.backends.cuda.rows.stages import PIECE, POINT, ROW, Rows, RowStage
from lightnet.backends.cuda.rows.teams import Found, Team, step_of, tree
from lightnet.backends.elementwise import memory_value, scalar_type
from lightnet.backends.loop_shapes import identity_number
from lightnet.backends.loop_values import Values
from lightnet.dataclasses import dataclass, replace
from lightnet.ir.affine import IndexSpace
from lightnet.ir.bound import I64, Apply, Const, Idx, Node, Read, reads, substitute

#: Elements that a thread reads before it needs the first, where it does not hold its share of the row.
READ_AHEAD = 4
#: Values of a row that a thread holds, in blocks of up to `FEW_THREADS` and in larger ones.
HELD, HELD_BY_MANY, FEW_THREADS = 32, 16, 256


@dataclass(frozen=True)
class RowWalk:
    """The run of a launch: its teams; how many consecutive elements of a row a thread takes at a time; whether a thread
    holds its share of the row in registers, from the first stage to the last."""

    team: Team
    width: int = 1
    held: bool = True

    @classmethod
    def of(cls, team: Team, width: int, extent: int) -> RowWalk:
        """The way of a team on rows of `extent` elements: held where that takes few registers."""
        walk = cls(team, width)
        most = HELD if team.threads <= FEW_THREADS else HELD_BY_MANY
        return walk if walk.turns(extent) * width <= most else replace(walk, held=False)

    def turns(self, extent: int) -> int:
        """The number of times that a team takes elements until it has a row."""
        return -(-extent // (self.width * self.team.size))


class RowFunction:
    """Writes the function `f`. `memory` maps tensors to memrefs of rank 1 and `sizes` to their lengths; tensors of
    `written` change while it runs, `stored` are the targets that go to memory, `pads` has how many lanes lie behind the
    channels of such."""

    def __init__(self, f: KernelFunction, rows: Rows, walk: RowWalk, memory: Mapping[str, SSAValue],
                 sizes: Mapping[str, int],
                 written: set[str], stored: set[str], pads: Mapping[str, tuple[int, int]]):  # fmt: skip
        self.b, self.rows, self.walk, self.team = f.b, rows, walk, walk.team
        self.memory, self.sizes, self.stored, self.pads = memory, sizes, stored, pads
        again = [t for s in rows.stages for t in s.targets]
        self.written = written | {t for t in again if again.count(t) > 1}
        self.values = Values(self.b, dict(memory), dict(sizes), self.written)
        self.ranges: dict[str, int] = {POINT: rows.points, PIECE: rows.pieces}

    def build(self) -> tuple[int, int, int]:
        """Write the body; the grid."""
        b, v, points = self.b, self.values, self.rows.points
        self.thread = b.thread_id()
        within, self.member = self.team.place(b, self.thread)
        point = b.add(b.mul(b.block_id("x"), self.team.across), within)
        self.inside: SSAValue | None = None
        if points % self.team.across:
            self.inside = b.below(point, points)
            point = b.least(point, points - 1)
        v.define(POINT, point if points > 1 else b.index(0))
        self.piece = b.block_id("y") if self.rows.pieces > 1 else b.index(0)
        v.define(PIECE, self.piece)
        last = self._last()
        for stage in self.rows.stages[:last]:
            self._run(stage)
        self._finish(self.rows.stages[last:])
        return -(-points // self.team.across), self.rows.pieces, 1

    def _last(self) -> int:
        """The first of the stages behind the last row: what they compute one member of the team alone needs."""
        return 1 + max(k for k, s in enumerate(self.rows.stages) if s.has_row)

    def _run(self, stage: RowStage) -> None:
        if stage.is_reduction:
            found = self._reduce(stage)
            self.values.registers.update(zip(stage.targets, found))
        elif stage.is_map:
            self._map(stage)
        else:
            self._space()
            self.values.registers[stage.targets[0]] = self.values.value(stage.value)

    def _finish(self, rest: Sequence[RowStage]) -> None:
        """The stages that run once a point and store, in the first member of the team."""
        b = self.b
        places = {t: s for s in self.rows.stages if not s.is_map for t in s.targets if t in self.stored}
        if not places:
            return
        if (
            self.written
            & {r.tensor for s in self.rows.stages[: self._last()] for r in reads(s.value)}
            & set(self.memory)
        ):
            b.barrier()  # other members have read what is written now
        first = b.cmpi("eq", self.member, b.index(0))
        whole = not any(s.in_pieces for s in self.rows.stages if s.is_reduction)
        if self.rows.pieces > 1 and whole:
            first = b.both(first, b.cmpi("eq", self.piece, b.index(0)))
        with self._when(b.every(first, self.inside)):
            for stage in rest:
                self._run(stage)
            for target, stage in places.items():
                self._store(stage, target, self.values.registers[target], stage.address, stage.channel)

    # -- Rows

    def _space(self) -> None:
        self.values.space, self.values.hoist_reads = IndexSpace(self.ranges.items()), True

    def _at(self, node: Node, row: Node) -> Node:
        """An expression at an element of the row."""
        self._space()
        return self.values.space.simplify(substitute(node, {ROW: row}))

    def _index(self, name: str, value: SSAValue, count: int) -> Node:
        """A number of a piece of `width` elements of a row, as an index of that name."""
        self.values.define(name, value)
        self.ranges[name] = count
        return Idx(name)

    def _width(self, stage: RowStage) -> int:
        """The number of elements of the row that a thread takes at a time; of what pieces have given, perhaps one."""
        return self.walk.width if stage.extent % self.walk.width == 0 else 1

    def _elements(self, number: Node, width: int) -> list[Node]:
        """The elements of the row that a thread takes at a time."""
        if width == 1:
            return [number]
        start = Apply("mul", (number, Const(width, I64)), I64)
        return [Apply("add", (start, Const(k, I64)), I64) if k else start for k in range(width)]

    def _held(self, stage: RowStage) -> Iterator[tuple[list[Node], SSAValue | None]]:
        """The elements of a row that the thread holds, and whether they are there; those behind the end stand for the
        last ones."""
        b, size, width = self.b, self.team.size, self._width(stage)
        count = stage.extent // width
        for turn in range(-(-count // size)):
            name, number = f"{ROW}{stage.extent}.{turn}", b.add(self.member, turn * size)
            there = None
            if (turn + 1) * size > count:
                there, number = b.below(number, count), b.least(number, count - 1)
            index = Idx(name) if name in self.ranges else self._index(name, number, count)
            yield self._elements(index, width), there

    def _walk(
        self, stage: RowStage, carry: Sequence[SSAValue], do: Callable[[list[Node], list[SSAValue]], list[SSAValue]]
    ) -> list[SSAValue]:
        """Loops over the thread's share of a row, or of the block's piece of it: several turns at a time, then the rest
        one by one. `do` gets elements and what is carried."""
        b, size, width = self.b, self.team.size, self._width(stage)
        count = stage.extent // width
        start, stop = self.member, b.index(count)
        if stage.in_pieces:
            share = -(-count // self.rows.pieces)
            first = b.mul(self.piece, share)
            start, stop = b.add(start, first), b.least(b.add(first, share), count)
        name = f"{ROW}{stage.extent}"

        def turns(n: int, low: SSAValue, values: Sequence[SSAValue]) -> list[SSAValue]:
            end = b.add(stop, -(n - 1) * size)
            with b.loop(low, end, n * size, [low, *values]) as loop, self.values.scope({}):
                elements = []
                for k in range(n):
                    number = self._index(f"{name}.{k}", b.add(loop.iv, k * size), count)
                    elements += self._elements(number, width)
                loop.yields(b.add(loop.iv, n * size), *do(elements, loop.args[1:]))
            return list(loop.results)

        values = list(carry)
        if count > READ_AHEAD * size * (self.rows.pieces if stage.in_pieces else 1):
            start, *values = turns(READ_AHEAD, start, values)
        return turns(1, start, values)[1:]

    def _reduce(self, stage: RowStage) -> Found:
        b, v = self.b, self.values
        dtype = stage.dtypes[0]
        step = step_of(b, stage.op, dtype)
        neutral = b.const(identity_number(stage.op, dtype), scalar_type(dtype))
        start: Found = (neutral,)
        if stage.place is not None:
            start = (neutral, b.const(0, scalar_type(stage.dtypes[1])))

        def element(row: Node) -> Found:
            value = v.value(self._at(stage.value, row))
            return (value,) if stage.place is None else (value, self._place(stage, row))

        if self._holds(stage):
            parts = []
            for elements, there in self._held(stage):
                part = tree([element(row) for row in elements], step)
                parts.append(part if there is None else tuple(b.select(there, x, y) for x, y in zip(part, start)))
            found = tree(parts, step)
        else:
            found = tuple(self._walk(stage, start, lambda rows, carry: list(
                step(tuple(carry), tree([element(row) for row in rows], step)))))  # fmt: skip
        found = self.team.total(b, found, stage.dtypes, step, self.thread)
        if stage.fresh:
            return found
        self._space()
        return step((v.value(Read(stage.targets[0], (stage.address,), None, dtype, True)),), found)

    def _place(self, stage: RowStage, row: Node) -> SSAValue:
        """The place of an element, in the type of places."""
        assert stage.place is not None
        node = self._at(stage.place, row)
        dtype = stage.dtypes[1]
        return self.values.value(node if node.dtype is dtype else Apply("cast", (node,), dtype))

    def _holds(self, stage: RowStage) -> bool:
        return self.walk.held and not stage.in_pieces

    def _map(self, stage: RowStage) -> None:
        def store(row: Node) -> None:
            value = self.values.value(self._at(stage.value, row))
            address = self._at(stage.address, row)
            channel = None if stage.channel is None else self._at(stage.channel, row)
            self._store(stage, stage.targets[0], value, address, channel)

        if self._holds(stage):
            for elements, there in self._held(stage):
                with self._when(self.b.every(there, self.inside)):
                    for row in elements:
                        store(row)
            return

        def several(elements: list[Node], carry: list[SSAValue]) -> list[SSAValue]:
            for row in elements:
                store(row)
            return []

        with self._when(self.inside):
            self._walk(stage, [], several)

    # -- Memory

    @contextmanager
    def _when(self, condition: SSAValue | None) -> Iterator[None]:
        """Run what is inside under a condition, or always."""
        if condition is None:
            yield
            return
        with self.b.when(condition), self.values.scope({}):
            yield

    def _store(self, stage: RowStage, target: str, value: SSAValue, address: Node, channel: Node | None) -> None:
        """A value to memory; behind the last channel of a map, zeros."""
        b, memory, value = self.b, self.memory[target], memory_value(self.b, value)
        self._space()
        at = self.values.index(address)
        b.store(value, memory, [at])
        channels, pad = self.pads.get(target, (0, 0))
        if channel is None or not pad:
            return

        def zeros() -> None:
            for k in range(1, pad + 1):
                b.store(b.const(0, value.type), memory, [b.add(at, k)])

        number = self.values.index(channel)
        if b.number(number) is None:
            with self._when(b.cmpi("eq", number, b.index(channels - 1))):
                zeros()
        elif b.number(number) == channels - 1:
            zeros()
