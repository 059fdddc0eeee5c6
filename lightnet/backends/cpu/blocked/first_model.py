"""The first convolution in numbers: its tile, its bands of rows, and the part of the picture that is staged for a band.

Imports the choices of kernels; no IR is made here.
"""

from __future__ import annotations

from lightnet.backends.cpu.blocked.base import ProcessorModel, blocks_of, choice_error, choice_ints
from lightnet.dataclasses import dataclass
from lightnet.ir.kernel import KernelOp
from lightnet.ir.op import LnOp
from lightnet.ir.windows import Axis

#: Bytes of scratch that a staged band of the picture takes, about: a first-level cache, and bands enough for several
#: threads.
STAGED = 48 << 10
#: Columns of the piece that a block of an open picture has, about.
OPEN_PIECE = 60


@dataclass(frozen=True)
class FirstConvTile:
    """A tile, `rows` x `columns` pixels by `vectors` blocks of output channels, and the rows of a block of the grid; of
    an open picture, whose tiles are single rows, also its columns, `piece`."""

    rows: int
    columns: int
    vectors: int
    band: int
    piece: int = 0


def shape_of(kernel: KernelOp, machine: ProcessorModel) -> FirstConvTile:
    """The kernel's choices, where it has any, which must fit (`LightNetError`), and the best for the rest."""
    conv = kernel.ops[0]
    _, channels, height, width = conv.result_specs[0].dims
    blocks = blocks_of(channels, machine.lanes)
    rows, columns, vectors = choice_ints(kernel, "tile", 3) or tile_of(height, width, blocks, machine.registers)
    (band,) = choice_ints(kernel, "band", 1) or (band_of(conv, rows),)
    fits = 1 <= rows <= height and 1 <= columns <= width and 1 <= vectors <= blocks and blocks % vectors == 0
    if (
        not fits
        or rows * columns * vectors > 64
        or not (band >= height or (band >= 1 and band % rows == 0 == height % rows))
    ):
        message = f"tile = {[rows, columns, vectors]}, band = {[band]}: the kernel of a first convolution takes [rows, "
        message += (
            f"columns, vectors] of at most {[height, width, blocks]}, the last a divisor, the product at most 64; "
        )
        raise choice_error(kernel, "first.tile", message + "and bands of whole tiles")
    return FirstConvTile(rows, columns, vectors, min(band, height))


def tile_of(height: int, width: int, blocks: int, registers: int) -> tuple[int, int, int]:
    """8x2, 16x1 or 5x3: sixteen chains hide the latency of multiply-adds, and results leave in short bursts, between
    which the store buffer empties (14x2 is 5 to 10 % slower on maps that do not fit into a cache)."""
    vectors = next(v for v in (2, 3, 1) if blocks % v == 0)
    most = (16 if registers >= 32 else 12) // vectors
    columns = -(-width // -(-width // most))
    return max(1, min(most // columns, height)) if 2 * columns <= most else 1, columns, vectors


def band_of(conv: LnOp, rows: int) -> int:
    """Rows of a band whose part of the picture fits into `STAGED`; all of them where tiles of `rows` rows leave a
    rest."""
    height = conv.result_specs[0].dims[2]
    if height % rows:
        return height
    base, step = staged_bytes(conv, rows), staged_bytes(conv, 2 * rows) - staged_bytes(conv, rows)
    tiles = max(1, min(1 + (STAGED - base) // step, height // rows))
    bands = -(-height // (tiles * rows))
    return -(-height // rows // bands) * rows


def open_shape_of(kernel: KernelOp, machine: ProcessorModel) -> FirstConvTile:
    """`shape_of` for an open picture, `kernel` being that of the largest."""
    conv = kernel.ops[0]
    _, channels, height, _ = conv.result_specs[0].dims
    blocks = blocks_of(channels, machine.lanes)
    rows, columns, vectors = choice_ints(kernel, "tile", 3) or tile_of(1, OPEN_PIECE, blocks, machine.registers)
    band, piece = choice_ints(kernel, "band", 2) or (open_band_of(conv, height), -(-OPEN_PIECE // columns) * columns)
    if rows != 1 or min(columns, vectors, band, piece) < 1 or blocks % vectors or columns * vectors > 64:
        message = f"tile = {[rows, columns, vectors]}, band = {[band, piece]}: of open pictures, a tile is one row by "
        message += f"columns by vectors that divide {blocks}, the product at most 64, and a band rows by columns"
        raise choice_error(kernel, "first.tile", message)
    return FirstConvTile(rows, columns, vectors, band, piece)


def open_band_of(conv: LnOp, height: int) -> int:
    """Rows of a band of which the part of a piece fits into `STAGED`."""
    base, more = (staged_bytes(conv, rows, OPEN_PIECE) for rows in (1, 2))
    return max(1, min(1 + (STAGED - base) // (more - base), height))


def staged_dims(conv: LnOp, band: int, piece: int = 0) -> tuple[int, int, int]:
    """Channels, rows and columns of the staged picture of `band` output rows, of `piece` columns unless that is 0."""
    x = Axis.of(conv, 1)
    return conv.operand_specs[0].dims[1], Axis.of(conv, 0).span(band), x.span(piece) if piece else x.reach


def staged_bytes(conv: LnOp, band: int, piece: int = 0) -> int:
    channels, rows, columns = staged_dims(conv, band, piece)
    return 4 * channels * rows * columns


def picture_bytes(conv: LnOp, shape: FirstConvTile) -> int:
    """Bytes of the staged picture. None where pixels are read where they are: no window reaches a column beside the
    picture, and tiles are single rows, whose windows are cut where the picture ends; but of grey pictures, windows must
    be whole."""
    one_by_one = not Axis.of(conv, 1).clipped and shape.rows == 1 and conv.operand_specs[0].dims[1] > 1
    return 0 if one_by_one else staged_bytes(conv, shape.band)
