"""Convolutions on open maps that a call may make narrower than a tile: pixels anywhere, which share weights.

Imports the kernels on blocked maps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from lightnet.backends.builder import Index
from lightnet.backends.cpu.blocked import conv_model as model
from lightnet.backends.cpu.blocked.kernel import MapTile, map_place, summed_channels

if TYPE_CHECKING:
    from lightnet.backends.cpu.blocked.conv import DirectKernel

#: Pixels of a narrow map that share weights: as many addresses as there are registers for.
SCATTERED = 8


def open_rows(kernel: DirectKernel, first: Index, last: Index, width: Index) -> None:
    """Rows [first, last) of an open map that may be narrow: what whole tiles of one row leave at its end, or all of
    it, are pixels by number, `SCATTERED` of them together, or one."""
    b, columns = kernel.b, kernel.shape.columns
    most = min(columns, SCATTERED)
    stop: Index = 0
    if kernel.has_rows:
        spare = columns - 1 - columns // 2 if kernel.overlaps else 0
        whole = b.divmod(b.add(width, spare), columns)[0]
        end = b.mul(b.select(b.cmpi("sge", b.index(width), b.index(columns)), whole, b.index(0)), columns)
        with b.loop(first, last, name="y") as y, b.loop(0, end, columns, name="x") as x:
            kernel.tile(y.iv, b.op(arith.MinSIOp, x.iv, b.add(width, -columns)) if spare else x.iv, 1, columns)
        stop = b.op(arith.MinSIOp, end, b.index(width))
    narrow = b.op(arith.SubiOp, b.index(width), b.index(stop))
    pixels = b.mul(b.op(arith.SubiOp, b.index(last), b.index(first)), narrow)
    done: Index = 0
    for count in dict.fromkeys((most, 1)):  # one by itself where it is the last
        left = b.op(arith.SubiOp, pixels, b.index(done))
        end = b.add(done, b.mul(b.divmod(b.add(left, max(count - 2, 0)), count)[0], count))
        with b.loop(done, end, count, name="pixel") as pixel:
            numbers = [b.op(arith.MinSIOp, b.add(pixel.iv, k), b.add(pixels, -1)) for k in range(count)]
            places = [b.divmod(number, narrow) for number in numbers]
            places = [(b.add(first, y), b.add(stop, x)) for y, x in places]
            if count == 1:
                kernel.tile(*places[0], 1, 1)
            else:
                _scattered(kernel, places, (stop, b.add(width, -1)), b.op(arith.SubiOp, pixels, pixel.iv))
        done = b.op(arith.MinSIOp, end, pixels)


def _scattered(
    kernel: DirectKernel, places: Sequence[tuple[Index, Index]], columns: tuple[Index, Index], count: Index
) -> None:
    """Pixels (row, column) anywhere between two columns of some rows, the first of which is the highest, the last
    the lowest: each has sums of its own, by the same weights. What they read outside the picture is its halo. The
    first `count` are pixels of the result."""
    b, g = kernel.b, kernel.geometry
    shape, step = (1, 1, kernel.shape.vectors, kernel.lanes), kernel.shape.unroll if "r" in kernel.order else 1
    tiles = [MapTile(kernel.n, kernel.first, y, x, shape, kernel.used) for y, x in places]
    sums = [kernel.first_sums(tiles[0])] * len(tiles)

    def begin(position: Index, axis: int) -> SSAValue:
        return kernel.times(position, g.stride[axis], -g.before[axis])

    corners = (places[0][0], places[-1][0]), columns
    taps = [(kernel.inside(begin(last, k), k, 1)[0], kernel.inside(begin(first, k), k, 1)[1])
            for k, (first, last) in enumerate(corners)]  # fmt: skip
    starts = [kernel.at(kernel.src, kernel.n, kernel.source_block, begin(y, 0), begin(x, 1))[0] for y, x in places]

    channels = partial(summed_channels, b, g.input_steps(kernel.lanes, kernel.shape.unroll), lanes=kernel.depth)
    blocks = model.blocks_of(g.channels, kernel.depth)
    ranges: dict[str, tuple[Index, Index]] = {"r": taps[0], "q": taps[1], "block": (0, blocks)}

    def nest(names: Sequence[str], at: dict[str, Index], sums: Sequence[SSAValue]) -> Sequence[SSAValue]:
        """The loops called `names` inside of those whose indices are `at`."""
        if not names:
            return _products(kernel, at, starts, sums, step)
        first, end = ranges.get(names[0]) or (0, channels(at["block"]))
        with b.loop(first, end, 1 if names[0] in ranges else step, carry=sums, name=names[0]) as loop:
            loop.yields(*nest(names[1:], {**at, names[0]: loop.iv}, loop.args))
        return loop.results

    totals = nest(kernel.order.split(), {}, sums)
    for k, (tile, total) in enumerate(zip(tiles, totals)):
        with b.when(b.cmpi("sgt", b.index(count), b.index(k))):  # once: it may overwrite what it reads
            kernel.finish_blocks(tile, total)


def _products(kernel: DirectKernel, at: Mapping[str, Index], starts: Sequence[Index], sums: Sequence[SSAValue],
             step: int) -> Sequence[SSAValue]:  # fmt: skip
    """`sums` and, of each, the products of a step over channels under one tap, or all, from where its window
    starts."""
    b, g, walked = kernel.b, kernel.geometry, kernel.walks(kernel.src, [2, 3, 4])
    taps = [(at["r"], at["q"])] if "r" in at else product(range(g.rows.taps), range(g.cols.taps))
    for r, q in taps:
        tap = [0, at["block"], b.mul(r, g.rows.dilation), b.mul(q, g.cols.dilation), 0]
        further = map_place(b, kernel.src, tap)[0]
        weights = kernel.weights(r, at["block"], q, at["c"], step, sums[0])
        places = [[b.add(start, further), at["c"]] for start in starts]
        pixels = [b.tile_load(kernel.inputs[kernel.src], place, walked, (1, 1, step)) for place in places]
        sums = [kernel.multiplied(pixel, weights, total) for pixel, total in zip(pixels, sums)]
    return sums
