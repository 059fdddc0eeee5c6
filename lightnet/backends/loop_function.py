"""One kernel function of a definition: its nests of statements as loops over a block of the grid.

What matters is its shape: memory as rank-1 memrefs with linear addresses, adjacent loops collapsed where every address
allows it, reductions in registers, guards of reads turned into bounds of the reduction loops, and each value computed
in the outermost loop that knows its indices. Where all that a function does is maps of floats that lie beside each
other, it is written in vectors, and needs nothing of LLVM's middle end (a quarter of the time to compile, and as fast);
else the code is scalar, and the middle end vectorises it.
Imports `ir` and xDSL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, NamedTuple

from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import UNKNOWN_LOC, LocationAttr, MemRefType
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from lightnet.backends.builder import Builder, Index
from lightnet.backends.elementwise import combine, converted_value, loaded_value, memory_value, scalar_type
from lightnet.backends.loop_addresses import Addresses
from lightnet.backends.loop_shapes import (
    TILE,
    Guarded,
    collapsed,
    identity_number,
    pull_guards,
    reduction_order,
    row_reduction,
    turned,
)
from lightnet.backends.loop_values import wins
from lightnet.backends.loop_vectors import ConsecutiveValues, width_of
from lightnet.dataclasses import dataclass
from lightnet.ir.affine import IndexSpace
from lightnet.ir.bound import (
    I64,
    BoundDefinition,
    Const,
    Idx,
    Loop,
    Node,
    Read,
    Statement,
    reads,
)
from lightnet.ir.fusion import Nest, nests
from lightnet.ir.types import flat_memref, storage_type
from lightnet.runtime.dims import Size, dim_max, dim_min, greatest, is_known, typical
from lightnet.runtime.dtypes import DType

#: The accumulators of a reduction by rows.
ROW_BYTES = 8 << 10
#: Bytes of the vectors in which lanes of a layout are summed, and maps are computed; narrower ones are not worth it.
VECTOR, NARROW = 64, 32
#: A block has at least this many evaluations.
BLOCK_TRIPS = 1 << 11


@dataclass(frozen=True)
class LoopKernel:
    """One kernel function; `args` names the operands, results and workspace tensors of its memrefs, in order.

    Memrefs are rank-1: the elements of the tensor's memory.
    """

    func: FuncOp
    grid: Size
    args: tuple[str, ...]


class Labels(NamedTuple):
    """Labels that tell readers of a function where it comes from: how its tensors are called, and its place in the
    network."""

    hints: Mapping[str, str | None]
    location: LocationAttr


NO_LABELS = Labels({}, UNKNOWN_LOC)


def uses(s: Statement) -> list[tuple[str, tuple[Node, ...], bool]]:
    """The reads and writes of a statement: the tensor, its subscripts, whether they are the row-major address."""
    return [(t, s.subs, s.flat) for t in s.targets] + [(r.tensor, r.subs, r.flat) for r in reads(s.value)]


class LoopFunction:
    """Builds one kernel function from nests: `shared` leading loops are the grid, or, where that is None, they stand
    beside each other. `zeros` stand beside them. `by_lanes` are reductions whose innermost loop is as short as a
    block of a layout. `vectors`: maps may be written in these; who makes code of the loops may know scalars alone."""

    def __init__(
        self,
        d: BoundDefinition,
        groups: list[Nest],
        shared: int | None,
        private: dict[str, tuple[int, ...]],
        aliases: dict[str, str],
        blocks: int,
        zeros: Sequence[Nest] = (),
        by_lanes: bool = False,
        labels: Labels = NO_LABELS,
        vectors: bool = True,
    ):
        self.private, self.aliases, self.blocks = private, aliases, blocks
        self.shared, self.by_lanes, self.labels, self.vectors = shared, by_lanes, labels, vectors
        self.addresses = Addresses(d.specs, private)
        self.specs = self.addresses.stored
        self.symbols = d.symbols
        self.several = groups if shared is not None else []
        self.alone = [*(groups if shared is None else []), *zeros]
        everything = [*groups, *zeros]
        touched = {t for g in everything for s in g.statements for t, _, _ in uses(s)}
        self.touched = {aliases.get(t, t) for t in touched}
        written = {t for g in everything for s in g.statements for t in s.targets}
        self.written = written | {x for x, r in aliases.items() if r in written}
        counts = {
            n: sum(any(n == t for s in g.statements for t, _, _ in uses(s)) for g in nests(d)) for n, _ in d.locals
        }
        self.scalars = {n for n, k in counts.items() if k <= 1}

    def lower(self, name: str, order: Sequence[str]) -> LoopKernel:
        args = tuple(
            n for n in dict.fromkeys(order) if n in self.touched and n not in self.private and n not in self.scalars
        )
        hints = [self.labels.hints.get(n, n.lstrip("0123456789.")) for n in args]  # a local is `0.top` in a composition
        self.by_vectors = self._takes_vectors()
        opt = "none" if self.by_vectors else "O2"
        self.b = b = Builder.kernel(
            name,
            [self._memref(n) for n in args],
            opt=opt,
            hints=hints,
            location=self.labels.location,
            symbols=self.symbols,
        )
        memory: dict[str, SSAValue] = dict(zip(args, b.args))
        for local in self.private:
            memory[local] = self._stack(self.specs[local].dtype, greatest(self.specs[local].len))
        for operand, result in self.aliases.items():
            if result in memory:
                memory[operand] = memory[result]
        sizes = {n: spec.len for n, spec in self.specs.items()}
        self.values = ConsecutiveValues(self.b, memory, sizes, self.written)
        grid = self._grid()
        return LoopKernel(b.finish(), grid, args)

    def _grid(self) -> Size:
        """The loops; how many blocks they have."""
        self.first: Size = 0
        if self.several:
            self._blocks(self.several, self.several[0].loops[: self.shared])
        for nest in self.alone:
            self._one_nest(nest)
        return self.first

    def _takes_vectors(self) -> bool:
        """Bring the nests to linear addresses; return whether each is a map along an innermost loop, in vectors."""
        shared = self.shared or 0
        self.several = [self.addresses.flat(nest, shared) for nest in self.several]
        self.alone = [self.addresses.flat(nest, 0) for nest in self.alone]
        for k in range(shared - 2, -1, -1):  # a block would divide by what a call decides, which takes long
            joined = [] if is_known(n for _, n in self.several[0].loops[k : k + 2]) else self.several
            found = [new for nest in joined if (new := collapsed(nest, k)) is not None]
            if found and len(found) == len(joined):
                self.several, self.shared, shared = found, shared - 1, shared - 1
        if not self.vectors or any(len(nest.loops) <= shared for nest in self.several):
            return False
        nests = [*self.several, *self.alone]
        return all(_is_map(nest) and turned(nest) is None and self._vector(nest) > 1 for nest in nests)

    @contextmanager
    def _range(self, size: Size) -> Iterator[SSAValue]:
        """The next `size` blocks of the grid, by their numbers among these, as far as they are this call's."""
        b, first = self.b, self.first
        self.first += size
        low: Index = b.lo
        high: Index = b.hi
        if len(self.alone) + bool(self.several) > 1:
            low = b.op(arith.MaxSIOp, b.lo, b.index(first)) if first != 0 else b.lo
            high = b.op(arith.MinSIOp, b.hi, b.index(self.first))
        with self._over_blocks(low, high) as block:
            yield b.add(block, -first) if first != 0 else block

    @contextmanager
    def _over_blocks(self, low: Index | None = None, high: Index | None = None) -> Iterator[SSAValue]:
        """A loop over the blocks, those of the call unless given; the number of one, which may be the index of an
        axis."""
        b = self.b
        with b.loop(b.lo if low is None else low, b.hi if high is None else high) as block, self.values.scope({}):
            yield block.iv
            b.called(block.iv, "block")

    def _stack(self, dtype: DType, count: int) -> SSAValue:
        """Memory on the stack, made once at the head of the function."""
        alloca = memref.AllocaOp.get(storage_type(dtype), 64, [count])
        alloca.location = self.b.location
        entry = self.b.entry
        if entry.first_op is None:
            entry.add_op(alloca)
        else:
            entry.insert_op_before(alloca, entry.first_op)
        return alloca.memref

    def _memref(self, name: str) -> MemRefType:
        spec = self.specs[name]
        return flat_memref(spec)

    def _blocks(self, group: list[Nest], loops: tuple[Loop, ...]) -> None:
        """Several nests in each block of the shared loops."""
        with self._range(prod(n for _, n in loops)) as block:
            self.nest = group[0]
            self._unpack(block, loops)
            for nest in group:
                self.nest = nest
                self._loops(nest, nest.loops[len(loops) :])

    def _one_nest(self, nest: Nest) -> None:
        """The grid is the leading loops, as many as give enough blocks; a long single loop is cut into pieces."""
        self.nest = nest
        if (across := turned(nest)) is not None:
            return self._tiles(across)
        points = typical(prod(n for _, n in nest.loops))
        inner = max(1, typical(sum(s.trips for s in nest.statements)) // max(1, points))
        total = inner * points
        lead, grid = 0, 1
        while lead < len(nest.loops) - 1 and grid < self.blocks and total // grid > BLOCK_TRIPS:
            grid *= typical(nest.loops[lead][1])
            lead += 1
        left = nest.loops[lead:]
        if left and grid < self.blocks and total // grid > BLOCK_TRIPS and (self.by_vectors or self._width(nest) == 1):
            return self._cut(nest, lead, inner)
        with self._range(prod(n for _, n in nest.loops[:lead])) as block:
            self._unpack(block, nest.loops[:lead])
            self._loops(nest, left)

    def _cut(self, nest: Nest, lead: int, inner: int) -> None:
        """The last loop in pieces, so that a block has work but not all of it."""
        b, n = self.b, nest.loops[lead][1]
        outer, most = prod(m for _, m in nest.loops[:lead]), typical(n)
        pieces: Size = max(1, min(-(-self.blocks // typical(outer)), most * inner // BLOCK_TRIPS, most))
        size = -(-most // pieces)
        size = -(-size // 64) * 64 if size >= 256 or self.by_vectors else size  # whole vectors and cache lines
        pieces = -(-n // size)
        with self._range(outer * pieces) as block:
            quotient, piece = b.divmod(block, pieces)
            self._unpack(quotient, nest.loops[:lead])
            b.called(piece, "piece")
            low = b.mul(piece, size)
            high = b.add(low, size)
            if n % size != 0:
                high = b.op(arith.MinSIOp, high, b.index(n))
            self._loop(nest, low, high, nest.loops[lead:])

    def _tiles(self, nest: Nest) -> None:
        """The last two loops in tiles, so that a cache line is read whole before it leaves the cache; a block is a row
        of tiles."""
        b, (height, width) = self.b, TILE
        *outer, (row, m), (column, n) = nest.loops
        strips = -(-m // height)
        with self._range(prod(n for _, n in outer) * strips) as block:
            quotient, strip = b.divmod(block, strips)
            self._unpack(quotient, tuple(outer))
            low = b.mul(strip, height)
            high = b.op(arith.MinSIOp, b.index(b.add(low, height)), b.index(m))
            x, y = nest.axis((column, n)), nest.axis((row, m))
            with b.loop(0, n, width, name=f"{x}.tile") as left:
                right = b.op(arith.MinSIOp, b.index(b.add(left.iv, width)), b.index(n))
                with b.loop(left.iv, right, name=x) as j, self.values.scope({column: j.iv}):
                    with b.loop(low, high, name=y) as i, self.values.scope({row: i.iv}):
                        self._body(nest)

    def _unpack(self, position: SSAValue, loops: tuple[Loop, ...]) -> None:
        """The indices of a block from its number."""
        for k in range(len(loops) - 1, -1, -1):
            name, n = loops[k]
            if k:
                position, value = self.b.divmod(position, n)
            else:
                value = position
            self.b.called(value, self.nest.axis((name, n)))
            self.values.define(name, value)

    def _loops(self, nest: Nest, loops: tuple[Loop, ...]) -> None:
        if not loops:
            return self._body(nest)
        self._loop(nest, 0, loops[0][1], loops)

    def _loop(self, nest: Nest, low: Index, high: Index, loops: tuple[Loop, ...]) -> None:
        """The first of `loops` from `low` to `high`, and the others inside."""
        (name, n), *rest = loops
        if not rest and (width := self._width(nest)) > 1 and (self.by_vectors or (low, high) == (0, n)):
            return self._lanes(nest, name, low, high, width)
        if not rest and (reduction := row_reduction(nest, self.by_lanes)) is not None:
            return self._rows(nest, reduction, name, low, high, n)
        with self.b.loop(low, high, name=nest.axis((name, n))) as loop, self.values.scope({name: loop.iv}):
            self._loops(nest, tuple(rest))

    # -- Vectors along the innermost loop

    def _width(self, nest: Nest) -> int:
        """The number of elements along the innermost loop that are computed as one vector: of maps, where the function
        consists of these, and of reductions `by_lanes`; else 1."""
        return self._vector(nest) if (self.by_vectors if _is_map(nest) else self.by_lanes) else 1

    def _vector(self, nest: Nest) -> int:
        is_map = _is_map(nest)
        width = width_of(nest, self.specs, self.scalars, VECTOR, VECTOR // 4, gathers=not is_map)
        return 1 if is_map and width * 4 < NARROW else width

    def _lanes(self, nest: Nest, name: str, low: Index, high: Index, width: int) -> None:
        """Several elements at a time along the innermost loop; accumulators are vectors."""
        values = self.values
        values.lane, values.width = name, width
        axis = nest.axis((name, dict(nest.loops)[name]))
        with self.b.loop(low, high, width, name=axis) as loop, values.scope({name: loop.iv}):
            self._body(nest)
        values.width = 1

    # -- Reductions by rows

    def _rows(self, nest: Nest, s: Statement, name: str, low: Index, high: Index, n: Size) -> None:
        """A reduction whose innermost loop runs along a row of the target, so that it vectorises; the accumulators of
        the row stand on the stack. The statements before the reduction are evaluated again after it.
        """
        b, dtype = self.b, self.specs[s.tensor].dtype
        length = min(greatest(n), ROW_BYTES // dtype.size)
        row = self._stack(dtype, length)
        if length == greatest(n):
            return self._row(nest, s, name, low, high, low, row)
        with b.loop(low, high, length) as piece, self.values.scope({}):
            end = b.op(arith.MinSIOp, b.add(piece.iv, length), b.index(high))
            self._row(nest, s, name, piece.iv, end, piece.iv, row)

    def _row(self, nest: Nest, s: Statement, name: str, low: Index, high: Index, origin: Index, row: SSAValue) -> None:
        b, v = self.b, self.values
        place = nest.statements.index(s)
        base, loop_n = b.mul(origin, -1), dict(nest.loops)[name]
        axis = nest.axis((name, loop_n))
        with b.loop(low, high, name=axis) as loop, v.scope({name: loop.iv}):
            self._run(nest, nest.statements[:place])
            v.space = IndexSpace(nest.loops)
            self._put(self._initial(s), row, b.add(loop.iv, base))
        v.registers = {}
        v.space = IndexSpace(nest.loops + s.reductions)
        v.hoist_reads = True
        order = reduction_order(s)
        guarded = pull_guards(s, self.specs[s.tensor].dtype, (*order, (name, loop_n)), nest)
        v.hoist_reads, v.space = not guarded.bounds, guarded.space
        self._accumulate(s, order, (name, loop_n), (low, high), guarded, (row, base))
        with b.loop(low, high, name=axis) as loop, v.scope({name: loop.iv}):
            stores = self._run(nest, nest.statements[:place])
            v.registers[s.tensor] = self._get(s, row, b.add(loop.iv, base))
            if s.tensor not in self.scalars:
                stores[s.tensor] = s.subs[0]
            stores |= self._run(nest, nest.statements[place + 1 :])
            self._finish(stores)

    def _accumulate(
        self,
        s: Statement,
        order: tuple[Loop, ...],
        along: Loop,
        ends: tuple[Index, Index],
        g: Guarded,
        row: tuple[SSAValue, Index],
    ) -> None:
        """The reduction loops, and inside of them the loop along the row, within the bounds that guards give."""
        b, v = self.b, self.values
        if order:
            (index, n), *rest = order
            with self._bounded(g, (index, n), 0, n):
                self._accumulate(s, tuple(rest), along, ends, g, row)
            return
        memory, base = row
        name, _ = along
        with self._bounded(g, along, *ends):
            at = b.add(v.index(g.indices.get(name, Idx(name))), base)
            step = combine(b, s.op, self._get(s, memory, at), v.value(g.value), self.specs[s.tensor].dtype)
            self._put(step, memory, at)

    @contextmanager
    def _bounded(
        self, g: Guarded, along: Loop, low: Index, high: Index, carry: Sequence[SSAValue] = ()
    ) -> Iterator[Any]:
        """A loop from `low` to `high` within the bounds of its guards."""
        (name, _), axis = along, self.nest.axis(along)
        b, v, bound = self.b, self.values, g.bounds.get(name)
        if bound is not None:
            low = _tighter(b, arith.MaxSIOp, low, v.index(bound.low))
            high = _tighter(b, arith.MinSIOp, high, v.index(bound.high))
        if bound is None or bound.residue is None:
            with b.loop(low, high, carry=carry, name=axis) as loop, v.scope({name: loop.iv}):
                yield loop
            return
        step = b.index(bound.step)
        gap = b.op(arith.SubiOp, v.index(bound.residue), b.index(low))
        gap = b.op(arith.SubiOp, gap, b.mul(b.op(arith.FloorDivSIOp, gap, step), step))
        base = b.add(low, gap)
        span = b.op(arith.SubiOp, b.add(high, bound.step - 1), base)
        trips = b.op(arith.FloorDivSIOp, span, step)
        with v.scope({f"{name}.base": base}), b.loop(0, trips, carry=carry, name=f"{axis}.trip") as loop:
            with v.scope({f"{name}.trip": loop.iv}):
                yield loop

    def _get(self, s: Statement, row: SSAValue, at: SSAValue) -> SSAValue:
        return loaded_value(self.b, self.b.load(row, [at]), self.specs[s.tensor].dtype)

    def _put(self, value: SSAValue, row: SSAValue, at: SSAValue) -> None:
        self.b.store(memory_value(self.b, value), row, [at])

    # -- Statements

    def _body(self, nest: Nest) -> None:
        """The statements at one point; what they write is stored once, at the end."""
        self.values.registers = {}
        self._finish(self._run(nest, nest.statements))

    def _run(self, nest: Nest, statements: Sequence[Statement]) -> dict[str, Node]:
        """Statements in registers; the addresses where results go."""
        v = self.values
        stores: dict[str, Node] = {}
        for s in statements:
            v.space = IndexSpace(nest.loops + s.reductions)
            v.hoist_reads = True
            if s.op == "=":
                results = [v.result(s.value)]
            elif s.arg is not None:
                results = self._argument(s)
            else:
                results = [self._reduce(s, nest)]
            for tensor, value in zip(s.targets, results):
                v.registers[tensor] = value
                if tensor not in self.scalars:
                    stores[tensor] = s.subs[0]
        return stores

    def _finish(self, stores: dict[str, Node]) -> None:
        for tensor, address in stores.items():
            self._store(tensor, address, self.values.registers[tensor])
        self.values.registers = {}

    def _store(self, tensor: str, address: Node, value: SSAValue) -> None:
        if self.values.width > 1:
            return self.values.put(tensor, address, value)
        value = memory_value(self.b, value)
        self.b.store(value, self.values.memory[tensor], [self.values.index(address)])

    def _initial(self, s: Statement) -> SSAValue:
        dtype = self.specs[s.tensor].dtype
        if s.fresh:
            return self.values.result(Const(identity_number(s.op, dtype), dtype))
        return self.values.result(Read(s.tensor, s.subs, None, dtype, True))

    def _reduce(self, s: Statement, nest: Nest) -> SSAValue:
        """A reduction in a register; guards whose filler is its identity become bounds of its loops."""
        dtype = self.specs[s.tensor].dtype
        order = reduction_order(s)
        guarded = pull_guards(s, dtype, order, nest)
        self.values.hoist_reads, self.values.space = not guarded.bounds, guarded.space
        return self._reduce_over(s, order, guarded, self._initial(s))

    def _reduce_over(self, s: Statement, order: tuple[Loop, ...], g: Guarded, start: SSAValue) -> SSAValue:
        if not order:
            return combine(self.b, s.op, start, self.values.result(g.value), self.specs[s.tensor].dtype)
        along, *rest = order
        with self._bounded(g, along, 0, along[1], [start]) as loop:
            loop.yields(self._reduce_over(s, tuple(rest), g, loop.args[0]))
        return loop.results[0]

    def _argument(self, s: Statement) -> list[SSAValue]:
        """Value and position of the first winner; a NaN wins over every number."""
        b, v = self.b, self.values
        dtype, index_dtype = self.specs[s.tensor].dtype, self.specs[s.arg or ""].dtype
        start = [b.const(identity_number(s.op, dtype), scalar_type(dtype)), b.const(0, scalar_type(index_dtype))]
        ((name, n),) = s.reductions
        with b.loop(0, n, carry=start, name=self.nest.axis((name, n))) as loop, v.scope({name: loop.iv}):
            value, (best, place) = v.value(s.value), loop.args
            best.name_hint, place.name_hint = "best", "place"
            better = wins(b, s.op, value, best, dtype)
            here = converted_value(b, v.value(Idx(name)), I64, index_dtype)
            loop.yields(b.select(better, value, best), b.select(better, here, place))
        return list(loop.results)


def _is_map(nest: Nest) -> bool:
    return all(s.op == "=" for s in nest.statements)


def _tighter(b: Builder, op: Any, a: Index, limit: SSAValue) -> Index:
    """The larger low end, or the smaller high end."""
    m, n = b.number(a), b.number(limit)
    if m is not None and n is not None:
        return dim_max(m, n) if op is arith.MaxSIOp else dim_min(m, n)
    return b.op(op, b.index(a), limit)
