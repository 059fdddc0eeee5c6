"""Direct convolutions on blocked maps in numbers: geometry, tiles, the walk over them, and a model of their time.

A tile is rows x columns of pixels by vectors of output channels, all in registers; each step over an input channel
broadcasts the pixels and reads one weight vector per vector of outputs. What a tile costs follows from the two
multiply-adds and the two reads that a core starts in a cycle, what the walk costs from the bytes that leave the
second-level cache. Nothing is measured while compiling. The constants are for the machine model's AMD Zen 5;
`python tools/calibrate.py direct` prints what fits the processor at hand beside them. Imports the machine model and
the ops.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, cached_property
from math import gcd

import numpy as np

from lightnet.backends.cpu.blocked.base import ProcessorModel, blocks_of, read_rate
from lightnet.dataclasses import dataclass, replace
from lightnet.dialects.ln.conv import Conv2d
from lightnet.dialects.ln.integer import Conv2dInteger, MatmulInteger
from lightnet.ir.op import LnOp
from lightnet.ir.target import Halo
from lightnet.ir.windows import Axis, Window
from lightnet.runtime.dims import greatest, least

#: Multiply-adds of an unrolled body, at most: larger ones overflow the cache of decoded instructions.
MOST_CONV_BODY = 250
#: Vectors of outputs in a tile, at most.
MOST_VECTORS = 12
#: Cycles beside the arithmetic: of a trip of the innermost loop, and of a tile (its first and last sums are not
#: overlapped).
TRIP_CYCLES, TILE_CYCLES = 4.0, 40.0
#: Reads that start in a cycle beside the multiply-adds (measured: two, and some are lost).
READS = 1.85
#: Share of the time to read weights that is not hidden behind arithmetic: from the second-level cache, and from behind
#: it.
EXPOSED, EXPOSED_FAR = 0.2, 0.7
#: What tiles of several rows cost more: rows of halo to be written, and a second tile for what is left.
SEVERAL_ROWS = 1.05
#: Bytes of a cache line; lines that a step may fetch ahead; nanoseconds to fetch a line, and to wait for one that was
#: not (measured).
LINE, MOST_AHEAD, FETCH, WAIT = 64, 32, 0.8, 3.2
#: Sequences of lines that processors follow by themselves are fewer.
STREAMS = 4
#: Share of the time of traffic that is not hidden behind arithmetic.
TRAFFIC = 0.3
#: A last column of tiles that computes more than this share of a row again is made narrower instead, which is code of
#: its own.
MOST_AGAIN = 0.04
#: Share of the taps of a row of tiles that read the picture, at most, for tiles to look which do.
MOST_LIVE = 0.8
#: Nanoseconds that a block of the grid should take at least, and blocks that several threads can share evenly.
BLOCK_TIME, BLOCKS = 4_000.0, 48

OUTPUTS, ROWS = "outputs", "rows"
#: Bytes of the short numbers that one product takes.
PRODUCT_BYTES = 4


@dataclass(frozen=True)
class Geometry(Window):
    """A convolution in numbers: its windows; `channels` and `outputs` are those of one group. `flat`: pixels of all
    rows are one row. One product takes `together` channels, which count as one of `channels` and lie in 4 bytes. Where
    this is one of many calls, `step` divides the columns of all."""

    batch: int
    groups: int
    channels: int
    outputs: int
    flat: bool = False
    together: int = 1
    step: int = 0

    @classmethod
    def of(cls, op: Conv2d | Conv2dInteger, flat: bool = False) -> Geometry:
        """The geometry of a convolution; `flat` needs `is_pointwise`."""
        return op.remembered(_flat if flat else _spread)

    @cached_property
    def _hash(self) -> int:
        return hash((self.rows, self.cols, self.batch, self.groups, self.channels, self.outputs, self.flat, self.step))

    def __hash__(self) -> int:
        """Computed once: what the model says of a geometry is remembered, and asked thousands of times."""
        return self._hash

    def over(self, size: tuple[int, int], positions: tuple[int, int]) -> Geometry:
        """The same windows on maps of other sizes."""
        axes = zip((self.rows, self.cols), size, positions)
        rows, cols = (replace(axis, size=n, positions=out) for axis, n, out in axes)
        return replace(self, rows=rows, cols=cols)

    def output_blocks(self, lanes: int) -> int:
        """Blocks of output channels of all groups."""
        return self.groups * blocks_of(self.outputs, lanes)

    def input_steps(self, lanes: int, unroll: int) -> int:
        """Input channels that are summed over, with those that fill up the last step."""
        return whole_steps(self.channels, self.depth(lanes), unroll)

    def depth(self, lanes: int) -> int:
        """Channels, as `channels` counts them, of a block of `lanes`."""
        return lanes // self.together


def _spread(op: Conv2d | Conv2dInteger) -> Geometry:
    channels, outputs = op.operand_specs[0].dims[1], op.result_specs[0].dims[1]
    together = together_of(op)
    return Geometry(Axis.of(op, 0), Axis.of(op, 1), op.operand_specs[0].dims[0], op.group,
                    -(-channels // op.group // together), outputs // op.group, together=together)  # fmt: skip


def together_of(op: LnOp) -> int:
    """The number of elements of its factors that one product of a convolution or of matrices takes."""
    several = isinstance(op, Conv2dInteger | MatmulInteger)
    return PRODUCT_BYTES // op.operand_specs[0].dtype.size if several else 1


def _flat(op: Conv2d | Conv2dInteger) -> Geometry:
    (height, width), found = op.operand_specs[0].dims[2:], Geometry.of(op)
    return replace(found.over((1, height * width), (1, height * width)), flat=True)


#: Bytes of weights from which on it costs to read them again for few pixels.
MANY_WEIGHTS = 64 << 10
#: Rows of a tile of a narrow map, at most.
TALL = 4


def may_be_narrow(geometry: Geometry, columns: int = 16) -> bool:
    """Return whether an open map may have rows shorter than a tile's, which then would read all weights for few pixels:
    there tiles may have several rows."""
    narrow = least(geometry.cols.positions) < columns and greatest(geometry.rows.positions) > 1
    return geometry.is_open and narrow and has_many_weights(geometry)


def has_many_weights(geometry: Geometry) -> bool:
    """Return whether the weights of a convolution of windows are worth several rows of a tile."""
    weights = 4 * geometry.channels * geometry.outputs * geometry.rows.taps * geometry.cols.taps
    return not geometry.flat and weights >= MANY_WEIGHTS


@dataclass(frozen=True)
class ConvTile:
    """A tile: rows x columns of pixels by `vectors` of output channels, and the input channels of one step."""

    rows: int
    columns: int
    vectors: int
    unroll: int

    @property
    def pixels(self) -> int:
        return self.rows * self.columns

    @property
    def sums(self) -> int:
        """Accumulators."""
        return self.pixels * self.vectors


@dataclass(frozen=True)
class TileWalk:
    """The order of tiles: blocks of the grid are pictures x output vectors x bands of `rows` x `columns`; `order` says
    whether bands run inside (``outputs``: the weights of a block stay near) or outside (``rows``: the pixels of a band
    do)."""

    order: str
    rows: int
    columns: int


def taps_inside(geometry: Geometry) -> int:
    """Rows of the window that lie in the picture, added up over the rows of the result."""
    return int(np.maximum(geometry.rows.inside(), 0).sum())


def live_columns(geometry: Geometry, x: int, columns: int) -> tuple[int, int]:
    """The columns of the window, [from, to), that lie in the picture for any of `columns` pixels of a row from `x` on;
    others see padding alone."""
    left = x * geometry.cols.stride - geometry.cols.before
    right, d = left + (columns - 1) * geometry.cols.stride, geometry.cols.dilation
    return max(-(right // d), 0), min(-(-(geometry.cols.size - left) // d), geometry.cols.taps)


@cache
def skips_columns(geometry: Geometry, columns: int) -> bool:
    """Return whether a tile of so many columns somewhere passes over columns of the window. Only where the window
    reaches far: to find out takes each tile a moment.
    """
    if not geometry.cols.clipped:
        return False
    starts = range(0, geometry.cols.positions, columns)
    found = [live_columns(geometry, min(x, geometry.cols.positions - columns), columns) for x in starts]
    left = sum(max(end - first, 0) for first, end in found)
    return left <= MOST_LIVE * geometry.cols.taps * len(found)


def _columns_inside(geometry: Geometry, columns: int) -> dict[int, float]:
    """Columns of the window that tiles do not pass over, on average, by the tile's columns (`column_tiles`)."""
    size, width, found = geometry.cols.taps, geometry.cols.positions, {}
    if not skips_columns(geometry, columns):
        return {part: size for part, _ in column_tiles(geometry, columns)}
    at = 0
    for part, count in column_tiles(geometry, columns):
        live = 0
        for _ in range(count):
            first, end = live_columns(geometry, min(at, width - part), part)
            live += max(end - first, 0)
            at += part
        found[part] = live / count
    return found


def most_pixels(machine: ProcessorModel, vectors: int, together: int = 1) -> int:
    """Pixels of a tile that leave room for weights: what compiles without spilling (measured: of 32 registers 14x2,
    28x1, 8x3 and 6x4 run at the peak, 9x3 and 7x4 do not; of 16 registers 6x2 and 3x4, but not 4x3). Products of
    several channels `together` take a register before they are added, and weights are read once."""
    if machine.registers <= 16 and together > 1:
        return max(min(12, 14 - vectors) // vectors, 1)
    if machine.registers <= 16:
        return 3 if vectors == 3 else max(12 // vectors, 1)
    return max((28 if machine.lanes == 16 and vectors <= 2 else 24) // vectors, 1)


def unroll_of(geometry: Geometry, machine: ProcessorModel, sums: int) -> int:
    """Input channels of a step: as many as the body may hold, fewer where the last step would be mostly empty."""
    return _unroll(geometry.channels, geometry.depth(machine.lanes), sums, geometry.together > 1)


@cache
def _unroll(channels: int, lanes: int, sums: int, whole: bool) -> int:
    """`whole`: a step may not reach beyond the last channel."""
    choices = [u for u in (16, 8, 4, 2, 1) if u <= lanes and u * sums <= MOST_CONV_BODY] or [1]
    choices = [u for u in choices if not whole or channels % lanes % u == 0]

    def cost(unroll: int) -> float:
        steps = whole_steps(channels, lanes, unroll)
        return steps * (sums / 2) + steps / unroll * TRIP_CYCLES

    return min(choices, key=cost)


def whole_steps(channels: int, lanes: int, unroll: int) -> int:
    """So many channels, with those that fill up the last step of `unroll` in the last block."""
    whole, rest = divmod(channels, lanes)
    return whole * lanes + -(-rest // unroll) * unroll


def conv_tiles(geometry: Geometry, machine: ProcessorModel, halo_rows: int | None = None) -> Iterator[ConvTile]:
    """The tiles that a convolution could take. Tiles of several rows read the rows of padding from memory: they need
    `halo_rows` (None: as many as they like)."""
    height, width = geometry.positions
    has_halo = halo_rows is None or halo_rows >= geometry.rows.halo
    blocks = blocks_of(geometry.outputs, machine.lanes)
    for vectors in (v for v in range(1, MOST_VECTORS + 1) if blocks % v == 0):
        most = most_pixels(machine, vectors, geometry.together)
        for count in range(-(-width // most), min(width, -(-width // most) + 4) + 1):
            columns = -(-width // count)
            rows = {1}
            if columns == width and height > 1 and has_halo:
                rows |= set(range(2, min(most // columns, height) + 1))
            for r in rows:
                yield ConvTile(r, columns, vectors, unroll_of(geometry, machine, r * columns * vectors))


@cache
def best_shape(
    geometry: Geometry, machine: ProcessorModel, halo_rows: int | None = None, one_row: bool = False
) -> ConvTile:
    """The tile that costs least, of `one_row` or any."""
    shapes = (s for s in conv_tiles(geometry, machine, halo_rows) if s.rows == 1 or not one_row)
    return min(shapes, key=lambda s: tiles_time(geometry, machine, s))


def column_tiles(geometry: Geometry, columns: int) -> list[tuple[int, int]]:
    """The tiles that cover a row: (columns, count) of each width of tile."""
    if geometry.step:
        return open_tiles(geometry.cols.positions, columns, geometry.step)
    whole, rest = divmod(geometry.cols.positions, columns)
    if rest and (columns - rest) / geometry.cols.positions <= MOST_AGAIN:
        return [(columns, whole + 1)]
    return [(columns, whole)] * bool(whole) + [(rest, 1)] * bool(rest)


def shorter_tile(columns: int, step: int = 1) -> int:
    """The next shorter tile of an open row, of which a multiple of `step` is left: about a third as long, a power of
    two."""
    return max(1 << max((columns // 3).bit_length() - 1, 0), step)


def open_tiles(width: int, columns: int, step: int) -> list[tuple[int, int]]:
    """The tiles that cover a row which is one of many, all multiples of `step` (`BlockedKernel.across_open`)."""
    first, found = 0, list[tuple[int, int]]()
    while first < width:
        many = (width - first + columns - 1 - columns // 2) // columns if width >= columns else 0
        found += [(columns, many)] * bool(many)
        first += many * columns
        step = gcd(step, columns)
        columns = shorter_tile(columns, step)
    return found


def cycles(machine: ProcessorModel, pixels: int, vectors: int, together: int = 1) -> float:
    """Cycles of a step over one input channel (so many that are multiplied `together`): two multiply-adds or two reads
    start in one, and a sum takes four."""
    return max(pixels * vectors / 2 * machine.product(together), (pixels + vectors) / READS, 4.0)


@cache
def tiles_time(geometry: Geometry, machine: ProcessorModel, shape: ConvTile) -> float:
    """Nanoseconds of all tiles of a convolution on one core, weights read from where they fit."""
    height, _ = geometry.positions
    steps = geometry.input_steps(machine.lanes, shape.unroll)
    taps = taps_inside(geometry) / height if shape.rows == 1 else geometry.rows.taps
    across = _columns_inside(geometry, shape.columns) if shape.rows == 1 else {}
    weights: float = 4 * machine.lanes * shape.vectors * steps * geometry.rows.taps * geometry.cols.taps
    if shape.rows == 1 and skips_columns(geometry, shape.columns):  # of which a tile reads a part
        weights *= taps * max(across.values()) / (geometry.rows.taps * geometry.cols.taps)
        share = 1.0
    else:
        share = taps / geometry.rows.taps
    far = weights > 0.6 * machine.l2
    reading = 0.0 if weights <= machine.l1 // 2 else weights / (machine.l3_bytes if far else machine.l2_bytes)
    clock = machine.flops / (4 * machine.lanes)  # GHz, of two multiply-adds a cycle
    total = 0.0
    for rows, many in ((shape.rows, height // shape.rows), (height % shape.rows, 1)):
        for columns, count in column_tiles(geometry, shape.columns) if rows else ():
            pixels = rows * columns
            trips = taps * across.get(columns, geometry.cols.taps) * steps / shape.unroll
            arithmetic = trips * (
                shape.unroll * cycles(machine, pixels, shape.vectors, geometry.together) + TRIP_CYCLES
            )
            arithmetic += TILE_CYCLES + 1.5 * pixels * shape.vectors
            exposed = (EXPOSED_FAR if far else EXPOSED) * reading * share
            total += many * count * (arithmetic / clock + exposed)
    total *= SEVERAL_ROWS if shape.rows > 1 else 1.0
    return total * geometry.batch * geometry.output_blocks(machine.lanes) / shape.vectors


def traffic(geometry: Geometry) -> tuple[int, int, int]:
    """Bytes of the weights, of what is read of one picture (whole rows: processors fetch pairs of lines), and of its
    result."""
    touched = geometry.rows.size // max(geometry.rows.stride // geometry.rows.taps, 1), geometry.cols.size
    weights = 4 * geometry.groups * geometry.outputs * geometry.channels * geometry.rows.taps * geometry.cols.taps
    read = 4 * geometry.groups * geometry.channels * touched[0] * touched[1]
    written = 4 * geometry.groups * geometry.outputs * geometry.rows.positions * geometry.cols.positions
    return weights, read, written


def edge_rows(geometry: Geometry, shape: ConvTile) -> tuple[int, int]:
    """Rows at the top and at the bottom whose tiles pass over taps."""
    if shape.rows > 1:
        return 0, 0
    axis = geometry.rows
    step, pad, height = axis.stride, axis.before, axis.positions
    top = min(max(-(-pad // step), 0), height)
    whole = (axis.size - axis.extent + pad) // step + 1  # rows whose last tap is inside
    return top, min(max(height - whole, 0), height)


def weights_ahead(geometry: Geometry, machine: ProcessorModel, shape: ConvTile, walk: TileWalk) -> int:
    """Bytes of the next group's weights that each tile should fetch for a row of taps and a block of inputs, so that
    they are near when the group begins: an even share. It has to be all of them: a processor does not follow a sequence
    with holes. 0 where they could not stay, or where that costs more than to wait for them."""
    block = 4 * geometry.cols.taps * machine.lanes * shape.vectors * machine.lanes
    steps = geometry.rows.taps * blocks_of(geometry.channels, machine.lanes)
    groups = geometry.output_blocks(machine.lanes) // shape.vectors
    rows = -(-geometry.rows.positions // shape.rows) - sum(edge_rows(geometry, shape))
    tiles = geometry.batch * rows * -(-geometry.cols.positions // shape.columns)
    if walk.order != OUTPUTS or groups == 1 or rows < 1 or tiles < 3 or block * steps > 0.6 * machine.l2:
        return 0
    lines = -(-block // (LINE * tiles))
    pays = steps * (block / LINE) * WAIT > tiles * (6 + steps * lines) * FETCH  # in each group; 6: to find its share
    return lines * LINE if pays and lines <= MOST_AHEAD else 0


def pixels_ahead(geometry: Geometry, machine: ProcessorModel, shape: ConvTile) -> bool:
    """Return whether a tile should fetch the pixels of the next one: they stand far away in more than a few of the
    passes over them, and in more places than a processor follows by itself.
    """
    _, read, _ = traffic(geometry)
    groups = blocks_of(geometry.outputs, machine.lanes) // shape.vectors
    far = groups if read > machine.l2 else 1 if read > machine.l2 // 2 else 0
    streams = blocks_of(geometry.channels, machine.lanes) * geometry.rows.taps
    strays = geometry.cols.taps < geometry.cols.stride  # to lines that nobody reads
    return 2 * WAIT * far > groups * FETCH and streams >= STREAMS and not strays


def again(geometry: Geometry, machine: ProcessorModel, shape: ConvTile, order: str) -> int:
    """Bytes that come from behind the second-level cache more than once: pixels in each pass of ``outputs``, weights in
    each of ``rows``."""
    weights, read, _ = traffic(geometry)
    if order == OUTPUTS:
        # Of rows of which every second pixel is read, what is fetched ahead arrives late.
        keep = machine.l2 if geometry.cols.stride == 1 else 3 * machine.l2 // 4
        groups = geometry.output_blocks(machine.lanes) // shape.vectors
        return geometry.batch * (groups - 1) * read if read > keep else 0
    bands = -(-read // (machine.l2 // 4))
    return (geometry.batch * bands - 1) * weights if weights > machine.l2 // 2 else 0


def cache_time(geometry: Geometry, machine: ProcessorModel, shape: ConvTile, order: str) -> float:
    """Nanoseconds to bring what leaves the second-level cache, in either order."""
    weights, read, written = traffic(geometry)
    least = weights + geometry.batch * (read + written)
    return (least + again(geometry, machine, shape, order)) / read_rate(machine, least)


def best_walk(geometry: Geometry, machine: ProcessorModel, shape: ConvTile, order: str | None) -> TileWalk:
    """The order that brings least, and bands that leave the threads a fair share and the grid's blocks some work."""
    _, read, _ = traffic(geometry)
    compute = tiles_time(geometry, machine, shape)
    if order is None:
        order = min((OUTPUTS, ROWS), key=lambda o: again(geometry, machine, shape, o))
    groups = geometry.output_blocks(machine.lanes) // shape.vectors
    height, width = geometry.positions
    one_row = -(-height // shape.rows) == 1  # then blocks are columns
    steps = -(-width // shape.columns) if one_row else -(-height // shape.rows)
    work = compute / (groups * geometry.batch)  # of all bands of one group
    bands = max(1, min(steps, int(work / BLOCK_TIME)))
    if order == OUTPUTS:
        bands = min(bands, max(1, -(-BLOCKS // (groups * geometry.batch))))
    else:
        near = -(-read // (machine.l2 // 8))  # bands whose pixels stay while all weights pass
        bands = min(steps, max(bands, near))
    size = -(-steps // bands)
    if one_row:
        return TileWalk(order, height, min(size * shape.columns, width))
    return TileWalk(order, min(size * shape.rows, height), width)


def halo_of(geometry: Geometry, machine: ProcessorModel) -> Halo:
    """The halo that the input should have at least: rows of padding are passed over where a tile is one row."""
    shape = best_shape(geometry, machine)
    return (geometry.rows.halo if shape.rows > 1 else 0), geometry.cols.halo
