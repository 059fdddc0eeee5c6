"""Products with a packed matrix in numbers: tiles of sums, how rows, columns and sums are cut, and a model of their
time.

A product [M, K] x [K, N] of few rows is as fast as B is read. What reading gives was measured (AMD Zen 5, one core;
bytes a nanosecond from the second-level cache, and from behind it): 125 and 105 where a trip of the loop reads 2 KiB,
235 and 108 where it reads 1 KiB, 230 and 120 where it asks for lines ahead as well; that is what the caches have.
`python tools/calibrate.py dense` prints what fits here. Imports the machine model.
"""

from __future__ import annotations

from lightnet.backends.cpu.blocked.base import ProcessorModel, read_rate
from lightnet.backends.cpu.registers import MOST_BODY, even
from lightnet.dataclasses import dataclass

#: Tiles (rows, vectors) by registers, and the share of the peak that they reach on long sums.
TILES = {
    32: (((6, 4), 0.97), ((8, 3), 0.96), ((12, 2), 0.95), ((24, 1), 0.7)),
    16: (((6, 2), 0.95), ((4, 3), 0.93), ((12, 1), 0.7)),
}
#: Rows up to which a product is as fast as B is read.
FEW = 4
#: Columns that a panel of few rows has at least, divided by the rows: enough sums that the latency of a multiply-add
#: does not show.
STREAM = 64
#: Bytes of B that a trip of a loop reads for few rows. Where a load is 2 KiB ahead of itself one trip before, the
#: prefetchers of the first-level cache (of the processor measured) halve what the second one gives.
TRIP = 1024
#: How far ahead of its loads such a loop asks for lines, in bytes: 1 to 4 KiB are as good.
AHEAD = 2048
#: Multiply-adds that should not wait for each other: each takes four cycles, in which the second-level cache gives so
#: many vectors.
CHAINS = 4
#: How much faster B is read that way than the machine model says of other loops.
FETCHED = 1.3
#: Rows that a tile pays for at least: a row of it costs as much as reading the panel for it.
LEAST_ROWS = 2
#: Bytes of a panel that stay in the second-level cache while all tiles of rows pass; K is cut where a panel has more.
PANEL = 320 << 10
#: Bytes of a band of rows of A that stay in the second-level cache, beside a panel, while all panels pass.
BAND = 256 << 10
#: Blocks that the grid should have at least, where there are enough rows, and tiles of rows that one block has at
#: least.
BLOCKS, BLOCK_TILES = 16, 4
#: Instructions of an epilogue on a tile from which on it runs row by row: a long one would be most of the code.
EPILOGUE = 320
#: Tiles of rows from which on K is cut: with fewer, B is hardly read again.
CUT_FROM = 4
#: Rows of a block whose sums wait in scratch memory, at most.
CUT_ROWS = 384


def best_dense_tile(m: int, n: int, machine: ProcessorModel, together: int = 1) -> tuple[int, int]:
    """Rows and vectors of the tile that takes least time for [m, K] x [K, n]. A product of several steps `together`
    takes a register before it is added, and weights are read once."""
    lanes, registers = machine.lanes, machine.registers
    tiles = [(r, v) for (r, v), _ in TILES[registers] if together == 1 or r * v + v + 2 <= registers]
    rows, vectors = min(tiles, key=lambda t: tile_time(m, n, t[0], t[1], lanes, registers))
    rows = min(rows, m)
    return rows, min(max(vectors, STREAM // (lanes * rows)), -(-n // lanes))


def tile_time(m: int, n: int, rows: int, vectors: int, lanes: int, registers: int) -> float:
    """Multiply-adds that [m, 1] x [1, n] costs in tiles, what is done for nothing included."""
    share = dict(TILES[registers]).get((rows, vectors), 0.9)
    panels = -(-n // (vectors * lanes))
    paid = sum(count // size * max(size, LEAST_ROWS) for _, count, size in even(m, rows))
    return paid * panels * vectors * lanes / share


def product_time(m: int, k: int, n: int, tile: tuple[int, int], machine: ProcessorModel) -> float:
    """Nanoseconds of [m, k] x [k, n] on one thread: of its sums, or of reading B and moving the result, whichever takes
    longer."""
    compute = 2 * k * tile_time(m, n, *tile, machine.lanes, machine.registers) / machine.flops
    size = 4 * k * n
    rate = read_rate(machine, size) * (FETCHED if m <= FEW else 1)
    return max(compute, size / rate + 8 * m * n / machine.l2_bytes)


@dataclass(frozen=True)
class DenseSchedule:
    """The cut of a product: tiles of `rows` by `columns`, of vectors of `lanes`; the grid is `bands` of rows by
    `panels` of columns; sums over `cuts` parts of K, of `depth` each, wait in `scratch` bytes; so do tiles whose
    epilogue runs row by row (`by_rows`). Of `few` rows, B is read once."""

    rows: int
    columns: int
    lanes: int
    panels: int
    bands: int
    cuts: int
    depth: int
    scratch: int
    by_rows: bool
    few: bool

    def trip(self, rows: int) -> tuple[int, int]:
        """For a tile of so many rows: steps along K of one trip of its loop, and the parts of these steps that have
        sums of their own, so that they need not wait for each other."""
        sums = rows * self.columns // self.lanes
        if not self.few:
            return max(1, min(8, MOST_BODY // sums, self.depth)), 1
        steps = max(1, min(TRIP // (4 * self.columns), self.depth))
        return steps, min(steps, -(-CHAINS // sums))

    @property
    def ahead(self) -> int:
        """Rows of a panel that are fetched ahead; 0 where they are not."""
        return max(1, AHEAD // (4 * self.columns)) if self.few else 0


def dense_schedule_of(m: int, k: int, n: int, tile: tuple[int, int], lanes: int, operations: int) -> DenseSchedule:
    """The schedule of [m, k] x [k, n] in tiles (rows, vectors), with an epilogue of so many `operations` a vector."""
    rows, columns = tile[0], tile[1] * lanes
    panels, tiles = -(-n // columns), -(-m // rows)
    bands = max(1, min(max(-(-BLOCKS // panels), -(-4 * m * k // BAND)), tiles // BLOCK_TILES))
    cuts = -(-4 * k * columns // PANEL) if tiles >= CUT_FROM else 1
    while cuts > 1 and k % cuts:
        cuts += 1  # parts of one size
        if cuts > 64:
            cuts = 1
    if cuts > 1:
        bands = max(bands, -(-m // CUT_ROWS))
    most = sum((-(-(count // size) // bands)) * size for _, count, size in even(m, rows))
    by_rows = operations * rows * tile[1] > EPILOGUE
    waiting = most if cuts > 1 else rows if by_rows else 0
    few = tiles == 1 and m <= FEW
    return DenseSchedule(rows, columns, lanes, panels, bands, cuts, k // cuts, waiting * columns * 4, by_rows, few)
