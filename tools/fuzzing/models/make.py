"""A random model from a seed: steps of all kinds, drawn by weight."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from . import blocks, moves, pointwise, products, quantized, regions, spatial
from .builder import Builder, Stuck

GROUPS = {pointwise: 9, moves: 9, spatial: 6, products: 8, regions: 1.5, blocks: 5}
#: The same for quantised networks, in which little else happens.
QUANTIZED = {quantized: 20, pointwise: 1.5, moves: 1.5, spatial: 1}


def model(seed: int) -> bytes:
    """The bytes of a random ONNX model."""
    b = Builder(seed)
    weights = {group: weight * b.rng.choice((0, 0.5, 1, 2)) for group, weight in GROUPS.items()}
    if not any(weights.values()):
        weights = dict(GROUPS)
    b.input(b.main, b.shape())
    return _stepped(b, weights, seed)


def quantized_model(seed: int) -> bytes:
    """The bytes of a random quantised model, of an opset that has QuantizeLinear."""
    b = Builder(seed)
    b.opset, b.main, b.empty = b.rng.choice((10, 11, 12, 13, 13, 14, 16, 17, 17, 18, 19, 20, 21, 22)), "f32", False
    return _stepped(b, QUANTIZED, seed)


def _stepped(b: Builder, weights: Mapping[ModuleType, float], seed: int) -> bytes:
    done, goal = 0, b.rng.choice((1, 2, 3, 4, 5, 6, 8, 10))
    for _ in range(8 * goal):
        group = b.rng.choices(list(weights), list(weights.values()))[0]
        step = b.rng.choices(list(group.STEPS), list(group.STEPS.values()))[0]
        mark = b.mark()
        try:
            step(b)
        except Stuck:
            b.back(mark)
            continue
        done += 1
        if done == goal:
            break
    return b.model(seed)
