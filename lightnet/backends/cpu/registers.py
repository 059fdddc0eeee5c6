"""The common limits of the register-tiled generators: registers that a tile may hold, and unrolling of bodies."""

from __future__ import annotations

#: Accumulators a tile may hold, by lanes of f32 (AVX-512 and NEON have 32 registers, AVX2 has 16), less those for
#: pixels, weights and temporaries.
REGISTERS = {16: 24, 8: 12, 4: 24}
#: Longest unrolled body, in multiply-adds: beyond, code generation and the instruction cache suffer.
MOST_BODY = 256


def even(total: int, most: int) -> list[tuple[int, int, int]]:
    """`total` in as few steps of at most `most` as there can be, which differ by one at most: (first, count, step), the
    larger ones first."""
    steps = -(-total // most)
    size = -(-total // steps)
    large = (total - steps * (size - 1)) * size
    parts = [(0, large, size)]
    return parts + ([(large, total - large, size - 1)] if total > large else [])


def cover(total: int, size: int) -> list[tuple[int, int, int]]:
    """`total` in steps of `size` and one smaller rest: (first, count, step)."""
    whole = total // size * size
    parts = [(0, whole, size)] if whole else []
    return parts + ([(whole, total - whole, total - whole)] if total > whole else [])
