"""Tensor-core instructions: `ldmatrix`, and `mma` for f16, bf16 and tf32 with float32 accumulators. Imports NumPy.

Which lane holds which element: "PTX ISA", 9.7.14.5 (figures of the fragments of m16n8k8 and m16n8k16) and 9.7.14.5.15
(ldmatrix). Products are exact; sums are in float32, in an order that hardware does not share. tf32 operands are cut off
to 10 bits of fraction.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from lightnet_ptx import findings
from lightnet_ptx import tree as ptx
from lightnet_ptx.rounding import bf16_to_f32, f16, f32, tf32_truncated

if TYPE_CHECKING:
    from lightnet_ptx.kernel import Step
    from lightnet_ptx.machine import Batch
    from lightnet_ptx.site import Site

Array = Any
WARP = 32
_FULL = np.uint32(0xFFFFFFFF)

#: How to read a 32-bit register as the elements that it holds, [..., elements] of float32.
_ELEMENTS: dict[str, Callable[[Array], Array]] = {
    "f16": lambda words: words.view(f16).reshape(*words.shape, 2).astype(f32),
    "bf16": lambda words: bf16_to_f32(words.view(np.uint16)).reshape(*words.shape, 2),
    "tf32": lambda words: tf32_truncated(words)[..., None],
}


def _layouts(k: int, each: int) -> tuple[Array, Array, Array, Array, Array, Array]:
    """(row, column) of each element that a lane holds, [32, elements]: of A [16, k], B [k, 8] and C [16, 8]. A register
    has `each` elements, next to each other along k.
    """
    lane = np.arange(WARP)[:, None]
    group, inner = lane >> 2, lane & 3
    a, b, c = (np.arange(n)[None] for n in (16 * k // WARP, 8 * k // WARP, 4))
    register, element = a // each, a % each
    a_row = group + 8 * (register % 2)
    a_column = inner * each + element + 4 * each * (register // 2)
    b_row = inner * each + b % each + 4 * each * (b // each)
    return a_row, a_column, b_row, group + 0 * b, group + 8 * (c // 2), inner * 2 + c % 2


def _together(batch: Batch) -> bool:
    """Bring whole warps together; False where none is complete."""
    if not batch.gather_warps(_FULL):
        return False
    if batch.padded:
        short = batch.mask_array() & (batch.tid // WARP == batch.threads // WARP)
        if short.any():
            lane = int(np.argmax(short))
            findings.fail(
                batch, "missing-lane", f"the last warp of the block has {batch.threads % WARP} threads, not 32", lane
            )
    return True


def _registers(site: Site, operand: ptx.Operand, count: int) -> tuple[ptx.Operand, ...]:
    if not isinstance(operand, ptx.Vec) or len(operand.items) != count:
        raise site.error(f"a vector of {count} registers is expected")
    return operand.items


def _mma(site: Site, match: re.Match[str]) -> Step:
    """``mma.sync d, a, b, c``: D = A B + C, by warp."""
    site.count(4)
    k, kind = int(match[1]), match[2]
    each = 1 if kind == "tf32" else 2
    counts = (4, 16 * k // WARP // each, 8 * k // WARP // each, 4)
    parts = [_registers(site, o, n) for o, n in zip(site.operands, counts)]
    readers = [[site.reader(r, "b32") for r in part] for part in parts[1:]]
    slots = [site.slot(r, "b32") for r in parts[0]]
    a_row, a_column, b_row, b_column, c_row, c_column = _layouts(k, each)
    elements = _ELEMENTS[kind]

    def words(batch: Batch, part: int) -> Array:
        return np.stack([np.broadcast_to(r(batch.regs), batch.lanes) for r in readers[part]], axis=1).reshape(
            -1, WARP, len(readers[part])
        )

    def run(batch: Batch) -> None:
        if not _together(batch):
            return
        warps = batch.lanes // WARP
        a, b = np.zeros((warps, 16, k), f32), np.zeros((warps, k, 8), f32)
        a[:, a_row, a_column] = elements(words(batch, 0)).reshape(warps, WARP, -1)
        b[:, b_row, b_column] = elements(words(batch, 1)).reshape(warps, WARP, -1)
        c = np.zeros((warps, 16, 8), f32)
        c[:, c_row, c_column] = words(batch, 2).view(f32)
        d = (a @ b + c)[:, c_row, c_column].reshape(batch.lanes, 4)
        for i, slot in enumerate(slots):
            batch.put(slot, np.ascontiguousarray(d[:, i]).view(np.uint32))

    return run


def _ldmatrix(site: Site, match: re.Match[str]) -> Step:
    """Matrices of 8 rows of 8 16-bit elements: lane i of the 8 lanes for matrix j has the address of row i; each lane
    gets two elements.
    """
    site.count(2)
    count, transposed = int(match[1][1:]), match[2] is not None
    dest = site.operands[0]
    slots = [site.slot(r, "b32") for r in (_registers(site, dest, count))]
    address, space = site.address(site.operands[1], (match[3] or "generic").split("::")[0])
    site.touches(space, 16)
    row, pair = np.arange(WARP) >> 2, np.arange(WARP) & 3

    def run(batch: Batch) -> None:
        if not _together(batch):
            return
        where = np.broadcast_to(address(batch.regs), batch.lanes)
        asked = batch.mask_array() & (batch.tid % WARP < 8 * count)
        rows = batch.for_lanes(np.nonzero(asked)[0], lambda: batch.load(space, where[asked], np.dtype(np.uint16), 8))
        full = np.zeros((batch.lanes, 8), np.uint16)
        full[asked] = rows
        matrices = full.reshape(-1, 4, 8, 8)[:, :count]
        if transposed:
            matrices = matrices.swapaxes(2, 3)
        pairs = np.ascontiguousarray(matrices).view(np.uint32)  # [warps, count, 8, 4]
        for i, slot in enumerate(slots):
            batch.put(slot, pairs[:, i][:, row, pair].ravel())

    return run


EXACT: dict[str, Any] = {}
PATTERNS = [
    ("mma", r"mma\.sync\.aligned\.m16n8k(8|16)\.row\.col\.f32\.(f16|bf16)\.\2\.f32", _mma),
    ("mma", r"mma\.sync\.aligned\.m16n8k(4|8)\.row\.col\.f32\.(tf32)\.tf32\.f32", _mma),
    ("ldmatrix", r"ldmatrix\.sync\.aligned\.m8n8\.(x1|x2|x4)(\.trans)?(?:\.(shared|shared::cta))?\.b16", _ldmatrix),
]
