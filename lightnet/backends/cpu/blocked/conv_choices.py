"""The choices of direct convolutions: tile, order and bands, those of a kernel where it has them and the model's where
not.

Imports the model in numbers, layouts and kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from lightnet.backends.cpu.blocked import conv_model as model
from lightnet.backends.cpu.blocked.base import NO_HALO, Ends, ProcessorModel, choice_error, choice_ints
from lightnet.backends.cpu.blocked.conv_model import OUTPUTS, ROWS, ConvTile, Geometry, TileWalk
from lightnet.backends.cpu.blocked.depthwise import conv_of
from lightnet.dataclasses import dataclass, replace
from lightnet.ir.body import choice
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Blocked, layout_of
from lightnet.ir.types import spec_of

#: Accumulators of a tile that a choice may ask for, at most: more do not fit in any machine's registers.
MOST_SUMS = 32


@dataclass(frozen=True)
class ConvSchedule:
    """The run of a direct convolution: its geometry in numbers, tile and walk; whether tiles fetch the next one's
    pixels, and bytes of the next group's weights that each fetches (`conv_model.weights_ahead`). Where this is a part
    of another kernel, what is read is near.
    """

    geometry: Geometry
    shape: ConvTile
    walk: TileWalk
    pixels_ahead: bool = False
    weights_ahead: int = 0

    @property
    def skips(self) -> bool:
        """True if tiles pass over columns of the window."""
        return model.skips_columns(self.geometry, self.shape.columns) and self.shape.rows == 1


def conv_schedule_of(kernel: KernelOp, machine: ProcessorModel, alone: bool = True) -> ConvSchedule:
    """The schedule of a kernel, or of a part of one, whose maps are not seen as one row (not `alone`): its choices
    where it has them, the model's where not. Raises `LightNetError` for choices that do not fit the convolution or the
    layouts."""
    geometry = geometry_of(kernel) if alone else Geometry.of(conv_of(kernel))
    halo_rows = _halo_rows(kernel)
    given = choice_ints(kernel, "tile")
    if given is None:
        shape = model.best_shape(geometry, machine, halo_rows)
    else:
        shape = chosen_conv_tile(kernel, geometry, machine.lanes, given, halo_rows)
    found = _with_walk(kernel, geometry, machine, shape)
    if not alone or found.skips:
        return found
    weights = model.weights_ahead(geometry, machine, shape, found.walk)
    return replace(found, pixels_ahead=model.pixels_ahead(geometry, machine, shape), weights_ahead=weights)


def open_schedule_of(kernel: KernelOp, ends: Ends, machine: ProcessorModel) -> ConvSchedule:
    """The schedule for open maps of which a kernel has the typical ones, and `ends` the smallest and the largest: tiles
    of one row that suit all, bands of whole rows. Raises `LightNetError` for choices that do not fit."""
    geometry, _, most = geometries = [geometry_of(k) for k in (kernel, *ends)]
    given = choice_ints(kernel, "tile")
    if given is not None:
        shape = chosen_conv_tile(kernel, most, machine.lanes, given, 0)
        if shape.rows > 1:
            raise choice_error(kernel, "convolution.tile", f"tile = {list(given)}: a tile of open maps has one row")
    else:
        shape = shape_for(geometries, machine)
    found = _with_walk(kernel, geometry, machine, shape)
    columns = _with_walk(kernel, most, machine, shape).walk.columns if geometry.flat else geometry.positions[1]
    rows = found.walk.rows
    if choice(kernel, "band") is None and model.has_many_weights(geometry):
        rows = -(-rows // model.TALL) * model.TALL  # of which tall tiles are whole
    return replace(found, walk=replace(found.walk, rows=rows, columns=columns))


def shape_for(geometries: Sequence[Geometry], machine: ProcessorModel) -> ConvTile:
    """The tile of one row that loses least where it serves maps of several sizes, beside the best tile for each."""
    shapes = {s for g in geometries for s in model.conv_tiles(g, machine) if s.rows == 1}
    best = [model.tiles_time(g, machine, model.best_shape(g, machine, one_row=True)) for g in geometries]
    step = gcd(*(g.positions[1] for g in geometries))

    def loss(shape: ConvTile) -> float:
        times = (model.tiles_time(replace(g, step=step), machine, shape) for g in geometries)
        return sum(t / time for t, time in zip(times, best))

    return min(shapes, key=lambda shape: (loss(shape), -shape.columns, shape.vectors, shape.unroll))


def _with_walk(kernel: KernelOp, geometry: Geometry, machine: ProcessorModel, shape: ConvTile) -> ConvSchedule:
    """The schedule of a kernel with this tile."""
    order, band = choice(kernel, "order"), choice_ints(kernel, "band")
    if order not in (None, OUTPUTS, ROWS):
        raise choice_error(
            kernel, "convolution.order", f"order = '{order}': a convolution takes '{OUTPUTS}' or '{ROWS}'"
        )
    walk = model.best_walk(geometry, machine, shape, order)
    if band is not None:
        walk = _checked_walk(kernel, geometry, shape, walk.order, band)
    return ConvSchedule(geometry, shape, walk)


def geometry_of(kernel: KernelOp) -> Geometry:
    """The convolution of a kernel: of one row where pixels are independent and no map has a halo between its rows."""
    conv = conv_of(kernel)
    geometry = Geometry.of(conv)
    if not geometry.is_pointwise or geometry.rows.positions == 1 or geometry.cols.size == 0:
        return geometry
    values = (*kernel.body.args, *kernel.terminator.operands)
    dims = (conv.operand_specs[0].dims, conv.result_specs[0].dims)
    maps = [layout_of(v.type) for v in values if spec_of(v.type).dims in dims]
    plain = all(not isinstance(layout, Blocked) or layout.halo == NO_HALO for layout in maps)
    return Geometry.of(conv, flat=True) if plain else geometry


def _halo_rows(kernel: KernelOp) -> int | None:
    """Rows of halo that the input has; None where it is no map yet, and may get what a tile needs."""
    layout = layout_of(kernel.ops[0].operands[0].type)
    return layout.halo[0] if isinstance(layout, Blocked) else None


def chosen_conv_tile(
    kernel: KernelOp, geometry: Geometry, lanes: int, given: tuple[int, ...], halo_rows: int | None
) -> ConvTile:
    """The tile that a kernel's choice names."""
    height, width = geometry.positions
    said = f"tile = {list(given)}: a convolution takes [rows, columns, vectors, unroll]"
    if len(given) != 4 or min(given) < 1:
        raise choice_error(kernel, "convolution.tile", said)
    depth = geometry.depth(lanes)
    shape, blocks = ConvTile(*given), model.blocks_of(geometry.outputs, lanes)
    large = shape.sums > MOST_SUMS or shape.sums * shape.unroll > 2 * model.MOST_CONV_BODY
    outside = shape.rows > 1 and halo_rows is not None and halo_rows < geometry.rows.halo
    problems = (
        (shape.rows > height or shape.columns > width, f" of at most {height} x {width} pixels"),
        (blocks % shape.vectors, f", where vectors divides the {blocks} blocks of output channels"),
        (depth % shape.unroll, f", where unroll divides the {depth} channels of a block"),
        (
            geometry.together > 1 and geometry.channels % depth % shape.unroll,
            f", where unroll divides the {geometry.channels % depth} channels of the last block",
        ),
        (large, f" of at most {MOST_SUMS} sums, and {2 * model.MOST_CONV_BODY} multiply-adds in a step"),
        (outside, f"; several rows need an input with {geometry.rows.halo} rows of halo, not {halo_rows}"),
    )
    for wrong, problem in problems:
        if wrong:
            raise choice_error(kernel, "convolution.tile", said + problem)
    return shape


def _checked_walk(kernel: KernelOp, geometry: Geometry, shape: ConvTile, order: str, band: tuple[int, ...]) -> TileWalk:
    """The bands that a kernel's choice names."""
    (height, width), tile = geometry.positions, (shape.rows, shape.columns)
    fits = len(band) == 2 and all(
        1 <= size <= whole and (size == whole or size % step == 0)
        for size, whole, step in zip(band, (height, width), tile)
    )
    if not fits:
        message = f"band = {list(band)}: a convolution takes [rows, columns] that are multiples of the tile's "
        raise choice_error(kernel, "convolution.band", f"{message}{list(tile)}, or all {[height, width]}")
    return TileWalk(order, *band)
