"""The transforms of Winograd convolutions on blocked maps, and the one of the input, tile by tile.

Both transforms work on vectors of channels, first along the columns of a tile, then along its rows; what stands between
is a tile in scratch, so that each is a short loop. Reads behind the input's halo are moved to its last row or column:
only outputs that do not exist depend on them. Imports the builder, the plan and the maths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import DYNAMIC_INDEX, MemRefType, f32, i8
from xdsl.ir import SSAValue

from lightnet.backends.builder import Builder, Index
from lightnet.backends.cpu.blocked.kernel import map_place
from lightnet.backends.cpu.blocked.winograd_model import TiledAxis, WinogradSchedule
from lightnet.backends.cpu.blocked.winograd_runs import (
    Planes,
    group_bytes,
    input_rows,
    planes,
    used_slots,
    workspace_bytes,
)
from lightnet.backends.cpu.tile_kernel import memref_of
from lightnet.backends.launches import Argument, Launch
from lightnet.ir import winograd
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Blocked, layout_of
from lightnet.ir.types import memref_type_of, spec_of
from lightnet.runtime.dims import Size, is_never_below

# -- the transforms of one axis ---------------------------------------------------------------------------------------


def transform_input(b: Builder, m: int, d: Sequence[SSAValue]) -> list[SSAValue]:
    """B^T d: m + 2 vectors of m + 2. The row of a point p is the product of (t - q) over the other points q, that of
    infinity the product over all of them; of a pair +-a the even powers agree, and the odd ones differ in their
    sign."""
    squares = [a * a for a in winograd.PAIRS[m]]
    whole = winograd.polynomial(squares)
    rows = [_combine(b, whole, d[0::2])]
    for i, a in enumerate(winograd.PAIRS[m]):
        rest = winograd.polynomial([s for j, s in enumerate(squares) if j != i])
        even, odd = _combine(b, rest, d[2::2]), _combine(b, rest, d[1::2])
        rows += [scaled_sum(b, even, odd, a), scaled_sum(b, even, odd, -a)]
    return [*rows, _combine(b, whole, d[1::2])]


def transform_output(b: Builder, m: int, products: Sequence[SSAValue]) -> list[SSAValue]:
    """A^T x: m vectors of m + 2. Output k is the sum of p^k x_p over the points p; the last one takes infinity's,
    too."""
    zero, *pairs, infinity = products
    sums = [b.op(arith.AddfOp, p, n) for p, n in zip(pairs[0::2], pairs[1::2])]
    differences = [b.op(arith.SubfOp, p, n) for p, n in zip(pairs[0::2], pairs[1::2])]
    outputs: list[SSAValue] = []
    for k in range(m):
        total = zero if k == 0 else infinity if k == m - 1 else None
        for a, term in zip(winograd.PAIRS[m], differences if k % 2 else sums):
            total = scaled_sum(b, total, term, a**k)
        assert total is not None
        outputs.append(total)
    return outputs


def transform_weights(b: Builder, m: int, g: Sequence[SSAValue]) -> list[SSAValue]:
    """G g: m + 2 vectors of 3 taps (of one tap, itself). The rows of a pair +-a agree but for the sign of the middle
    tap."""
    if len(g) == 1:
        return list(g)
    matrix = winograd.weight_matrix(m).tolist()
    made = [b.op(arith.MulfOp, g[0], b.const(matrix[0][0], g[0].type))]
    for plus in matrix[1:-1:2]:
        even = scaled_sum(b, b.op(arith.MulfOp, g[0], b.const(plus[0], g[0].type)), g[2], plus[2])
        made += [scaled_sum(b, even, g[1], plus[1]), scaled_sum(b, even, g[1], -plus[1])]
    return [*made, g[2]]


def scaled_sum(b: Builder, total: SSAValue | None, term: SSAValue, factor: float) -> SSAValue:
    """total + factor * term; None for a total of 0."""
    if total is None:
        return term if factor == 1 else b.op(arith.MulfOp, term, b.const(factor, term.type))
    if abs(factor) == 1:
        return b.op(arith.AddfOp if factor > 0 else arith.SubfOp, total, term)
    return b.op(vector.FMAOp, term, b.const(factor, term.type), total)


def _combine(b: Builder, coefficients: Sequence[float], values: Sequence[SSAValue]) -> SSAValue:
    """The sum of coefficient * value; the last coefficient is 1."""
    total = values[len(coefficients) - 1]
    for c, v in reversed(list(zip(coefficients[:-1], values))):
        total = scaled_sum(b, total, v, c)
    return total


# -- the transform of the input ----------------------------------------------------------------------------------------


class Inputs:
    """Transforms the input of tiles: reads the map `source` with its halo, writes `target`, of
    `WinogradSchedule.input_shape`; `tile` is memory of `WinogradSchedule.tile_shape`."""

    def __init__(
        self,
        b: Builder,
        schedule: WinogradSchedule,
        kernel: KernelOp,
        source: SSAValue,
        tile: SSAValue,
        target: Planes,
        place: Callable[[list[Index]], list[Index]],
    ):
        """`place` gives the memref indices of an element of the map's layout."""
        self.b, self.schedule, self.source, self.stage, self.target = b, schedule, source, tile, target
        self.place = place
        layout = layout_of(kernel.ops[0].operands[0].type)
        assert isinstance(layout, Blocked)
        self.halo = layout.halo

    def group(self, n: Index, gy: Index, gx: Index, number: Index, block: Index) -> None:
        """The tiles of group (gy, gx) of picture n, `number` in the target, for one block of channels."""
        schedule, b = self.schedule, self.b
        with group_tiles(b, schedule, gy, gx) as (ty, tx, slot):
            rows = self.positions(schedule.y, ty, 0)
            columns = start_of(b, schedule.x, tx)
            self.tile([n, block], rows, columns, number, b.add(b.mul(block, used_slots(schedule)), slot))

    def tile(self, at: list[Index], rows: Sequence[Index], column: Index, group: Index, to: Index) -> None:
        """One tile: columns first, each along y, then rows along x. It becomes vector `to` of each plane."""
        schedule, b = self.schedule, self.b
        load, store, (n, block) = self.load, self.store, at
        first = self.position(
            schedule.x, column, schedule.x.points - schedule.x.m, 1
        )  # the columns before are in the tile before, too
        for y in rows:  # of the next block of channels
            soon = self.place([n, b.add(block, 1), y, first, 0])
            b.prefetch(self.source, soon, 4 * schedule.lanes * schedule.x.m * schedule.x.dilation)
        if schedule.y.taps == 3:
            with b.loop(0, schedule.x.points, name="q") as q:
                x = self.position(schedule.x, column, q.iv, 1)
                made = transform_input(b, schedule.m, [load([*at, y, x]) for y in rows])
                for k, value in enumerate(made):
                    if schedule.x.taps == 3:
                        store(value, self.stage, [k, q.iv, 0])
                    else:
                        store(value, self.target.memref, [*self.target.at(b, k, to, [group]), 0])
        if schedule.x.taps == 3:
            with b.loop(0, schedule.y.points, name="line") as line:
                if schedule.y.taps == 3:
                    values = [
                        b.tile_load(self.stage, [line.iv, i, 0], [2], (schedule.lanes,))
                        for i in range(schedule.x.points)
                    ]
                else:
                    columns = [self.position(schedule.x, column, i, 1) for i in range(schedule.x.points)]
                    values = [load([*at, rows[0], x]) for x in columns]
                for i, value in enumerate(transform_input(b, schedule.m, values)):
                    number = b.add(b.mul(line.iv, schedule.x.points), i)
                    store(value, self.target.memref, [*self.target.at(b, number, to, [group]), 0])

    def positions(self, axis: TiledAxis, tile: Index, number: int) -> list[Index]:
        """The memory rows or columns (`number` 0 or 1) that a tile reads."""
        start = start_of(self.b, axis, tile)
        return [self.position(axis, start, k, number) for k in range(axis.points)]

    def position(self, axis: TiledAxis, start: Index, k: Index, number: int) -> Index:
        """The position of point k of the tile whose outputs begin at `start`; at most the last one of the map."""
        b, halo = self.b, self.halo[number]
        found = b.add(b.add(start, b.mul(k, axis.dilation)), halo - axis.before)
        if is_never_below(axis.size + halo - 1, axis.last):
            return found
        return b.op(arith.MinSIOp, b.index(found), b.index(axis.size + 2 * halo - 1))

    def load(self, at: Sequence[Index]) -> SSAValue:
        where = self.place([*at, 0])
        return self.b.tile_load(self.source, where, [len(where) - 1], (self.schedule.lanes,))

    def store(self, value: SSAValue, memref: SSAValue, at: Sequence[Index]) -> None:
        self.b.tile_store(value, memref, at, [memref_type_of(memref).get_num_dims() - 1])


def start_of(b: Builder, axis: TiledAxis, tile: Index) -> Index:
    """The first output of a tile: interleaved axes follow each other."""
    if axis.dilation == 1:
        return b.mul(tile, axis.m)
    whole, phase = b.divmod(tile, axis.dilation)
    return b.add(b.mul(whole, axis.m * axis.dilation), phase)


@contextmanager
def group_tiles(b: Builder, schedule: WinogradSchedule, gy: Index, gx: Index) -> Iterator[tuple[Index, Index, Index]]:
    """Loops over the tiles of a group: (row of tiles, column of tiles, number in the group)."""
    if schedule.is_run:
        first, count = extent(b, schedule.y.tiles * schedule.x.tiles, schedule.slots, gy)
        with b.loop(0, count, name="slot") as slot:
            yield *b.divmod(b.add(first, slot.iv), schedule.x.tiles), slot.iv
        return
    firsts, counts = zip(*(extent(b, axis.tiles, size, g) for axis, size, g in
                           zip((schedule.y, schedule.x), schedule.group, (gy, gx))))  # fmt: skip
    with b.loop(0, counts[0]) as i, b.loop(0, counts[1], name="j") as j:
        yield b.add(firsts[0], i.iv), b.add(firsts[1], j.iv), b.add(b.mul(i.iv, schedule.group[1]), j.iv)


def extent(b: Builder, total: Size, size: int, number: Index) -> tuple[Index, Index]:
    """The first and the count of part `number` of `total` in parts of `size`."""
    first = b.mul(number, size)
    if total % size == 0:
        return first, size
    left = b.op(arith.SubiOp, b.index(total), b.index(first))
    return first, b.op(arith.MinSIOp, left, b.index(size))


def input_launch(kernel: KernelOp, schedule: WinogradSchedule, name: str) -> Launch:
    """The transform of all inputs into the workspace; a block of the grid is a group for one block of channels."""
    source = kernel.ops[0].operands[0]
    number = kernel.number_of(source)
    symbols = {s for d in spec_of(source.type).open_dims for s in d.symbols}
    work = MemRefType(i8, [DYNAMIC_INDEX]) if schedule.is_run else MemRefType(f32, schedule.input_shape)
    b = Builder.kernel(
        name,
        [memref_of(source.type), work, MemRefType(f32, schedule.tile_shape)],
        opt="none",
        hints=[source.name_hint, "transformed", "scratch"],
        location=kernel.ops[0].location,
        symbols=symbols,
    )
    x, target, tile = b.args
    with b.loop(b.lo, b.hi, name="block") as block:
        group, channels = b.divmod(block.iv, schedule.in_blocks)
        n, gy, gx = group_place(b, schedule, group)
        to = group_view(b, schedule, target, group) if schedule.is_run else Planes(target)
        inputs = Inputs(b, schedule, kernel, x, tile, to, lambda indices: map_place(b, source, indices))
        inputs.group(n, gy, gx, 0 if schedule.is_run else group, channels)
    arguments = (Argument("operand", number), Argument("workspace", 0), Argument("scratch", 0))
    used = workspace_bytes(schedule) if schedule.is_run else 0
    return Launch(b.finish(), schedule.all_groups * schedule.in_blocks, arguments, used)


def group_view(b: Builder, schedule: WinogradSchedule, workspace: SSAValue, group: Index) -> Planes:
    """The transformed input of one group, `group` of those in the workspace."""
    shape = (schedule.products, schedule.lanes)
    at = b.mul(group, group_bytes(schedule))
    return planes(b, workspace, at, input_rows(schedule), shape, "transformed")


def group_place(b: Builder, schedule: WinogradSchedule, group: Index) -> tuple[Index, Index, Index]:
    """(picture, row of groups, column of groups) of a group's number."""
    rest, gx = b.divmod(group, schedule.groups[1])
    n, gy = b.divmod(rest, schedule.groups[0])
    return n, gy, gx
