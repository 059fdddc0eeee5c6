"""Random numbers of networks, made by a counter-based generator: a number follows from the seed and from its place
alone.

Philox 4x32-10 turns a key of 64 bits, the seed, and a counter of 128 bits into four words of 32 bits. Element i of draw
number d of a network has the counter (i, 0, d, s), low word first, where draws are counted in the order of the nodes
(`graph.MAX_MADE` keeps i below 2^32); a node with a seed of its own has d = 2^32 - 1, and s is the bits of that seed as
a float (0 for others), so that nodes with one seed draw the same. So the same seed gives the same numbers in every
call, on every target and machine, in whatever order elements are computed.

A known seed makes constants, which NumPy computes when they are needed; a seed that every call feeds makes ops of `ln`.
Imports NumPy and the graph builder.

Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011; Box and Muller, "A note
on the generation of random normal deviates", 1958.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import pi, prod
from typing import Any

import numpy as np

from lightnet.diagnostics import LightNetError
from lightnet.frontends.graph import Graph, Value

#: What `seed` may say beside a number: the network gets an input called `INPUT`, an i64 [], which seeds each call.
FROM_INPUT = "input"
INPUT = "seed"
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_WEYL = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10
_LOW = (1 << 32) - 1
#: The third counter word of a node with a seed of its own.
OWN = _LOW


def philox(counter: Sequence[Any], key: Sequence[Any], ops: Any = None) -> tuple[Any, ...]:
    """Four words from four words of a counter and two of a key; all are held in 64 bits. `ops` multiplies, takes
    exclusive ors, and halves a product into its high and low word (default: NumPy's)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    ops = ops or _Arrays
    for turn in range(_ROUNDS):
        if turn:
            k0, k1 = ops.bumped(k0, _WEYL[0]), ops.bumped(k1, _WEYL[1])
        (high0, low0), (high1, low1) = ops.product(c0, _MULTIPLIERS[0]), ops.product(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = ops.xor(high1, c1, k0), low1, ops.xor(high0, c3, k1), low0
    return c0, c1, c2, c3


class _Arrays:
    """The arithmetic of `philox` on NumPy's arrays of uint64."""

    @staticmethod
    def product(x: np.ndarray, factor: int) -> tuple[np.ndarray, np.ndarray]:
        p = np.asarray(x, np.uint64) * np.uint64(factor)
        return p >> np.uint64(32), p & np.uint64(_LOW)

    @staticmethod
    def xor(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        return a ^ b ^ c

    @staticmethod
    def bumped(key: np.ndarray, by: int) -> np.ndarray:
        return (np.asarray(key, np.uint64) + np.uint64(by)) & np.uint64(_LOW)


class _Values:
    """The arithmetic of `philox` as ops of a network."""

    def __init__(self, g: Graph):
        self.g, self.low, self.half = g, g.scalar(_LOW, "ui64"), g.scalar(32, "ui64")

    def product(self, x: Value, factor: int) -> tuple[Value, Value]:
        p = self.g.op("mul", x, self.g.scalar(factor, "ui64"))
        return self.g.op("shift_right", p, self.half), self.g.op("bit_and", p, self.low)

    def xor(self, a: Value, b: Value, c: Value) -> Value:
        return self.g.op("bit_xor", self.g.op("bit_xor", a, b), c)

    def bumped(self, key: Value, by: int) -> Value:
        return self.g.op("bit_and", self.g.op("add", key, self.g.scalar(by, "ui64")), self.low)


def uniform_of(words: Sequence[np.ndarray], dtype: np.dtype) -> np.ndarray:
    """Numbers in [0, 1): 24 bits of the first word, or in f64 53 of the first two."""
    if dtype == np.float64:
        return ((words[0] << np.uint64(21)) | (words[1] >> np.uint64(11))).astype(np.float64) * 2.0**-53
    return (words[0] >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24)


def normal_of(words: Sequence[np.ndarray], dtype: np.dtype) -> np.ndarray:
    """sqrt(-2 ln u) cos(2 pi v), where u in (0, 1] and v are `uniform_of` of other words."""
    wide = dtype == np.float64
    u, v = uniform_of(words, dtype), uniform_of(words[2:] if wide else words[1:], dtype)
    step, turn = (2.0**-53, 2 * pi) if wide else (np.float32(2.0**-24), np.float32(2 * pi))
    return np.sqrt(dtype.type(-2) * np.log(u + step)) * np.cos(turn * v)


class Draws:
    """The draws of one network, in order. Raises LightNetError for a seed that is none."""

    def __init__(self, graph: Graph, seed: int | str):
        if seed != FROM_INPUT and not (isinstance(seed, int) and -(1 << 63) <= seed < 1 << 63):
            raise LightNetError(
                f"a seed is an integer of 64 bits, or '{FROM_INPUT}', which makes it an input of the network: not "
                f"{seed!r:.40}"
            )
        self.g, self.seed, self.count = graph, seed, 0
        self._key: tuple[Value, Value] | None = None

    def uniform(self, dims: Sequence[int], dtype: str, own: float | None = None) -> Value:
        """Numbers in [0, 1), of f32 or f64; `own` is the seed that the node gives."""
        if self.seed != FROM_INPUT:
            return self._constant(dims, dtype, own, uniform_of)
        return self._fraction(self._words(dims, own), dtype)

    def normal(self, dims: Sequence[int], dtype: str, own: float | None = None) -> Value:
        """Numbers of mean 0 and deviation 1, of f32 or f64."""
        if self.seed != FROM_INPUT:
            return self._constant(dims, dtype, own, normal_of)
        g, words = self.g, self._words(dims, own)
        wide = dtype == "f64"
        u, v = self._fraction(words, dtype), self._fraction(words[2:] if wide else words[1:], dtype)
        u = g.op("add", u, g.scalar(2.0**-53 if wide else 2.0**-24, dtype))
        radius = g.op("sqrt", g.op("mul", g.op("log", u), g.scalar(-2, dtype)))
        return g.op("mul", radius, g.op("cos", g.op("mul", v, g.scalar(2 * pi, dtype))))

    def _counter(self, own: float | None) -> tuple[int, int]:
        """The upper two words of the counters of the next draw."""
        if own is not None:
            return OWN, int(np.float32(own).view(np.uint32))
        self.count += 1
        return self.count - 1, 0

    def _constant(self, dims: Sequence[int], dtype: str, own: float | None, make: Callable) -> Value:
        upper = self._counter(own)
        seed = int(self.seed)
        key = np.uint64(seed & _LOW), np.uint64((seed >> 32) & _LOW)

        def made() -> np.ndarray:
            counter = np.arange(prod(dims), dtype=np.uint64), *map(np.uint64, (0, *upper))
            return make(philox(counter, key), np.dtype("f8" if dtype == "f64" else "f4"))

        return self.g.table(tuple(dims), dtype, made)

    def _words(self, dims: Sequence[int], own: float | None) -> tuple[Value, ...]:
        g = self.g
        index = g.table(tuple(dims), "ui64", lambda: np.arange(prod(dims)))
        return philox((index, *(g.scalar(w, "ui64") for w in (0, *self._counter(own)))), self._keys(), _Values(g))

    def _keys(self) -> tuple[Value, Value]:
        if self._key is None:
            g = self.g
            seed = g.cast(g.input(INPUT, (), "i64"), "ui64")
            self._key = g.op("bit_and", seed, g.scalar(_LOW, "ui64")), g.op("shift_right", seed, g.scalar(32, "ui64"))
        return self._key

    def _fraction(self, words: Sequence[Value], dtype: str) -> Value:
        g = self.g
        if dtype == "f64":
            bits = g.op(
                "bit_or",
                g.op("shift_left", words[0], g.scalar(21, "ui64")),
                g.op("shift_right", words[1], g.scalar(11, "ui64")),
            )
            return g.op("mul", g.cast(bits, "f64"), g.scalar(2.0**-53, "f64"))
        return g.op("mul", g.cast(g.op("shift_right", words[0], g.scalar(8, "ui64")), "f32"), g.scalar(2.0**-24, "f32"))
