"""Geometry of sliding-window kernels on plain NCHW: phases, taps, staging. Numbers only, no IR.

A convolution of stride s reads, for the tap (r, q), every s-th pixel. The *staged* input is a padded copy of a band of
rows in which pixels are sorted by their remainders mod s (their *plane*), so that each tap reads contiguous pixels. A
transposed convolution of stride s is s*s convolutions of stride 1, one for each remainder of the output pixel (its
*phase*), each with the taps that reach it. Pools are windows without a sum over channels.
"""

from __future__ import annotations

from lightnet.dataclasses import dataclass
from lightnet.dialects.ln.conv import Conv2d, Deconv2d
from lightnet.dialects.ln.pool import Avgpool2d, Maxpool2d
from lightnet.ir import windows
from lightnet.ir.op import LnOp

#: Bytes of staged input a band of rows may take: half of a usual L2.
BAND_BYTES = 512 << 10
#: Blocks that a grid should have, for threads to share it.
BLOCKS = 16
#: Rows of a band that a finer grid does not go below, as each band stages the rows that its taps reach beyond it, too.
BAND_ROWS = 16
#: Outputs of the usual tile.
TILE_OUTPUTS = 8
#: Pixels of a row, at least, when independent pixels are cut into rows: of whole vectors, and of others.
ROW_PIXELS, RAGGED_ROW_PIXELS = 256, 512


@dataclass(frozen=True)
class Tap:
    """The weight (r, q) and where its pixels start in the staged input: plane (py, px), row and column."""

    r: int
    q: int
    py: int
    px: int
    row: int
    col: int


@dataclass(frozen=True)
class Phase:
    """Output pixels ``(oy + y*step_y, ox + x*step_x)`` for y < rows, x < cols; each is a sum over `taps`."""

    taps: tuple[Tap, ...]
    oy: int
    ox: int
    rows: int
    cols: int


@dataclass(frozen=True)
class StagedWindow:
    """A window op in numbers. Channels and outputs are those of one group; `in_hw` and `out_hw` are [rows, columns]."""

    kind: str  # sum (convolutions), max, mean, or count: the mean where windows reach padding, which does not count
    batch: int
    groups: int
    channels: int
    outputs: int
    in_hw: tuple[int, int]
    out_hw: tuple[int, int]
    planes: tuple[int, int]  # the stride by which staged pixels are sorted
    origin: tuple[int, int]  # staged position 0 is input pixel -origin
    step: tuple[int, int]  # output pixels between neighbours of a phase
    phases: tuple[Phase, ...]
    transposed: bool
    itemsize: int

    @property
    def staged(self) -> bool:
        """True if the input is copied: not when taps read it contiguously and inside its bounds as it is."""
        inside = all(
            t.row - self.origin[0] >= 0
            and t.col - self.origin[1] >= 0
            and t.row - self.origin[0] + p.rows <= self.in_hw[0]
            and t.col - self.origin[1] + p.cols <= self.in_hw[1]
            for p in self.phases
            for t in p.taps
        )
        return self.planes != (1, 1) or not inside

    @property
    def layers(self) -> int:
        """Staged pictures: one a channel, and behind them, to count what is inside, one that is 1 where there are
        pixels."""
        return self.channels + (self.kind == "count")

    @property
    def plane_rows(self) -> tuple[int, ...]:
        """The remainders mod the stride that taps use, along y: only these planes are staged."""
        return tuple(sorted({t.py for p in self.phases for t in p.taps}))

    @property
    def plane_cols(self) -> tuple[int, ...]:
        return tuple(sorted({t.px for p in self.phases for t in p.taps}))

    @property
    def reach(self) -> tuple[int, int]:
        """Rows and columns of a plane beyond the output position that taps read."""
        taps = [t for p in self.phases for t in p.taps]
        return max((t.row for t in taps), default=0), max((t.col for t in taps), default=0)

    def columns_inside(self, px: int) -> tuple[int, int]:
        """The staged columns [first, end) of plane `px` that hold pixels; those before and behind are padding."""
        width = self.cols + self.reach[1]
        first = -((px - self.origin[1]) // self.planes[1])  # ceil((origin - px) / stride)
        end = (self.in_hw[1] - 1 + self.origin[1] - px) // self.planes[1] + 1
        return min(max(first, 0), width), max(min(end, width), 0)

    @property
    def margin(self) -> int:
        """Columns of padding at both ends of every staged row: where rows follow each other, one serves for two."""
        width = self.cols + self.reach[1]
        ends = [self.columns_inside(px) for px in self.plane_cols]
        return min((min(first, width - end) for first, end in ends), default=0)

    @property
    def rows(self) -> int:
        """Most output rows of a phase."""
        return max(p.rows for p in self.phases)

    @property
    def cols(self) -> int:
        return max(p.cols for p in self.phases)

    def staged_shape(self, band: int, lanes: int) -> tuple[int, int, int, int, int]:
        """[channels, planes_y, planes_x, rows, columns] of the staged input for `band` output rows; a row has room for
        whole vectors of `lanes`."""
        columns = -(-self.cols // lanes) * lanes + self.reach[1]
        return (self.layers, len(self.plane_rows), len(self.plane_cols), band + self.reach[0], columns)

    def band(self, lanes: int, multiple: int) -> int:
        """Output rows of a block, a multiple of the tile's rows: few enough for `BLOCKS` blocks, and to stage them in
        `BAND_BYTES`."""
        blocks = self.batch * self.groups * -(-self.outputs // TILE_OUTPUTS)
        fine = -(-self.rows // -(-BLOCKS // blocks))
        if not self.staged:
            return min(-(-fine // multiple) * multiple, self.rows)
        most = self._staged_band(lanes, multiple)
        fine = max(fine, BAND_ROWS)
        return min(most, -(-fine // multiple) * multiple)

    def _staged_band(self, lanes: int, multiple: int) -> int:
        """As many rows as fit."""
        channels, py, px, fixed, columns = self.staged_shape(0, lanes)
        row = channels * py * px * columns * self.itemsize
        fit = BAND_BYTES // row - fixed
        if fit >= self.rows:
            return self.rows
        bands = -(-self.rows // max(fit // multiple * multiple, multiple))
        even = -(-self.rows // bands)
        return min(-(-even // multiple) * multiple, self.rows)

    def staged_bytes(self, band: int, lanes: int) -> int:
        if not self.staged:
            return 0
        size = self.itemsize
        for d in self.staged_shape(band, lanes):
            size *= d
        return size


def staged_window_of(op: LnOp) -> StagedWindow:
    """The window of a conv2d, deconv2d, maxpool2d or avgpool2d."""
    if isinstance(op, Deconv2d):
        return _transposed(op)
    assert isinstance(op, Conv2d | Maxpool2d | Avgpool2d)
    found = windows.Window.of(op)
    n, c, *_ = op.operand_specs[0].dims
    padded = max(op.derived_values()["pad"]) > 0
    groups = op.group if isinstance(op, Conv2d) else c
    in_hw, out_hw = found.size, found.positions
    if found.is_pointwise:  # pixels are independent: rows of any length
        in_hw = out_hw = _rows_of(in_hw[0] * in_hw[1])
    taps = tuple(
        Tap(r, q, py, px, row, col)
        for r, (row, py) in enumerate(found.rows.strides())
        for q, (col, px) in enumerate(found.cols.strides())
    )
    return StagedWindow(
        kind="sum" if isinstance(op, Conv2d) else "max" if isinstance(op, Maxpool2d) else "count" if padded else "mean",
        batch=n, groups=groups, channels=c // groups, outputs=op.result_specs[0].dims[1] // groups,
        in_hw=in_hw, out_hw=out_hw, planes=found.stride, origin=found.before, step=(1, 1),
        phases=(Phase(taps, 0, 0, *out_hw),), transposed=False, itemsize=op.operand_specs[0].dtype.size,
    )  # fmt: skip


def _rows_of(pixels: int) -> tuple[int, int]:
    """[rows, columns] for so many independent pixels: rows as a grid should have, if they are long enough; else one."""
    for rows in range(BLOCKS, 1, -1):
        columns, rest = divmod(pixels, rows)
        if not rest and columns >= (RAGGED_ROW_PIXELS if columns % 16 else ROW_PIXELS):
            return rows, columns
    return 1, pixels


def _transposed(op: Deconv2d) -> StagedWindow:
    """Windows of stride 1, one for each remainder of the output pixel mod the stride."""
    n, c, *in_hw = op.operand_specs[0].dims
    _, o, *out_hw = op.result_specs[0].dims
    rows, columns = (windows.transposed_phases(op, axis) for axis in (0, 1))
    down, right = (-min((at for _, taps in axis for _, at in taps), default=0) for axis in (rows, columns))
    phases = []
    for oy, (height, row_taps) in enumerate(rows):
        for ox, (width, col_taps) in enumerate(columns):
            taps = tuple(Tap(r, q, 0, 0, y + down, x + right) for r, y in row_taps for q, x in col_taps)
            phases.append(Phase(taps, oy, ox, height, width))
    return StagedWindow(
        kind="sum", batch=n, groups=op.group, channels=c // op.group, outputs=o // op.group,
        in_hw=(in_hw[0], in_hw[1]), out_hw=(out_hw[0], out_hw[1]), planes=(1, 1), origin=(down, right),
        step=(op.stride[0], op.stride[1]), phases=tuple(phases), transposed=True,
        itemsize=op.operand_specs[0].dtype.size,
    )  # fmt: skip
