"""Winograd's minimal filtering F(m, 3): its points, the transform of weights, and the coefficients of the other two
transforms.

F(m, 3) computes m outputs of a 1-D correlation with 3 taps by m + 2 products (Winograd, "Arithmetic Complexity of
Computations", 1980; Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015): y = A^T ((G g) * (B^T
d)). The matrices follow from m + 1 points and infinity: 0 and pairs +-a. Nested in both axes it is F(m x m, 3 x 3).
With pairs, B^T and A^T split into even and odd parts that a pair shares. For m = 4 the pairs are 5/8 and 3/2, not the
usual 1 and 2: all coefficients that the transforms use are still exact in f32, and on sums over 512 channels the
largest error falls from 7e-6 to 2e-6 of the largest value. Imports NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, reduce
from math import prod

import numpy as np

#: The a of each pair of points +-a, by outputs m.
PAIRS: dict[int, tuple[float, ...]] = {2: (1.0,), 4: (5 / 8, 3 / 2)}
#: Input channels of transformed weights are filled up to a multiple of this, so that products run in steps of as many.
CHANNEL_MULTIPLE = 4
#: Multiply-adds of one step of the transform of weights: what it makes stays in the second-level cache, and BLAS does
#: not start threads for it, which would wait for each other longer than it takes where the machine has other work.
_STEP = 1 << 18


def points_of(m: int) -> tuple[float, ...]:
    """The finite points of F(m, 3), in the order of the products: 0, then +a and -a of each pair. Infinity is the last
    product."""
    return (0.0, *(p for a in PAIRS[m] for p in (a, -a)))


def polynomial(squares: Sequence[float]) -> tuple[float, ...]:
    """The coefficients of the product of (t - s) over `squares`, from t^0 on; the last one is 1."""
    return tuple(reduce(lambda c, s: np.convolve(c, (-s, 1.0)), squares, np.ones(1)).tolist())


@cache
def weight_matrix(m: int, taps: int = 3) -> np.ndarray:
    """G of F(m, taps), [m + taps - 1, taps] in float64; of one tap there is nothing to transform: [[1]]."""
    if taps == 1:
        return np.ones((1, 1))
    points = points_of(m)
    rows = [[p**k / prod(p - q for q in points if q != p) for k in range(3)] for p in points]
    return np.array([*rows, [0.0, 0.0, 1.0]])


@cache
def window_matrix(m: int, size: tuple[int, int]) -> np.ndarray:
    """vec(G g G^T) = `window_matrix` vec(g) of a window g of `size` (each 3 or 1), rows first, in float64."""
    return np.kron(weight_matrix(m, size[0]), weight_matrix(m, size[1]))


def tile_products(m: int, size: Sequence[int]) -> int:
    """Products of a tile: (m + 2) in each axis that has 3 taps."""
    return prod(m + 2 if taps == 3 else 1 for taps in size)


def transform(weights: np.ndarray, m: int, memory: np.ndarray) -> Iterator[int]:
    """U = G g G^T of all windows of `weights` [O, I, KH, KW], made in float64 and rounded once, into `memory` [ceil(O /
    block), products, I', block], I' the multiple of `CHANNEL_MULTIPLE` from I on, which holds zeros; a step is a block
    of outputs, and gives its bytes."""
    i, *size = weights.shape[1:]
    matrix = window_matrix(m, tuple(size))
    products, taps = matrix.shape
    block = memory.shape[-1]
    step = max(1, _STEP // (products * taps * block))
    for b, panel in enumerate(memory):
        part = weights[b * block : (b + 1) * block].reshape(-1, i, taps)
        for first in range(0, i, step):
            windows = part[:, first : first + step].transpose(2, 1, 0)  # [taps, channels, outputs]
            made = matrix @ windows.reshape(taps, -1).astype(np.float64)
            panel[:, first : first + windows.shape[1], : len(part)] = made.reshape(products, *windows.shape[1:])
        yield panel.nbytes


def inverse(memory: np.ndarray, m: int, dims: Sequence[int]) -> np.ndarray:
    """The weights of shape `dims` that `transform` made `memory` of, but for rounding: the columns of `window_matrix`
    are independent."""
    o, i, *size = dims
    back = np.linalg.pinv(window_matrix(m, tuple(size)))
    windows = np.einsum("qp,bpik->bkiq", back, memory.astype(np.float64))
    return windows.reshape(-1, memory.shape[2], *size)[:o, :i].astype(memory.dtype)
