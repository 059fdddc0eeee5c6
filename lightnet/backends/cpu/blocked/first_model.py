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


@dataclass(frozen=True)
class FirstConvTile:
    """A tile, `rows` x `columns` pixels by `vectors` blocks of output channels, and the rows of a block of the grid."""

    rows: int
    columns: int
    vectors: int
    band: int


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


def staged_dims(conv: LnOp, band: int) -> tuple[int, int, int]:
    """Channels, rows and columns of the staged picture of `band` output rows."""
    return conv.operand_specs[0].dims[1], Axis.of(conv, 0).span(band), Axis.of(conv, 1).reach


def staged_bytes(conv: LnOp, band: int) -> int:
    channels, rows, columns = staged_dims(conv, band)
    return 4 * channels * rows * columns


def picture_bytes(conv: LnOp, shape: FirstConvTile) -> int:
    """Bytes of the staged picture. None where pixels are read where they are: no window reaches a column beside the
    picture, and tiles are single rows, whose windows are cut where the picture ends; but of grey pictures, windows must
    be whole."""
    one_by_one = not Axis.of(conv, 1).clipped and shape.rows == 1 and conv.operand_specs[0].dims[1] > 1
    return 0 if one_by_one else staged_bytes(conv, shape.band)
