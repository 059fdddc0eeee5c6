"""Random networks lower to loops for every processor, one after the other in one process as `--variants` does, without falling back; what is for
this processor runs, too. ``LIGHTNET_FUZZ=N`` takes 30 times as many each, from other seeds."""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest
from blocked_networks import random_network
from network_cases import random_model
from random_heads import PROCESSORS, TOLERANCES

import lightnet
from lightnet.backends.interpreter import graph
from lightnet.diagnostics import FallbackWarning
from lightnet.model import Model

FACTOR = int(os.environ.get("LIGHTNET_FUZZ", "0"))
SEEDS = range(1000, 1000 + FACTOR * 30) if FACTOR else range(1)


def options(rng: np.random.Generator) -> dict[str, object]:
    """Those that decide what kernels are made."""
    return {
        "exact": bool(rng.random() < 0.3), "threads": int(rng.choice([1, 2, 4, 8])),
        "layout": str(rng.choice(["blocked", "plain"], p=[0.8, 0.2])),
        "precision": str(rng.choice(list(TOLERANCES), p=[0.8, 0.1, 0.1])),
    }  # fmt: skip


def lower(model: Model, rng: np.random.Generator) -> None:
    """Compile a network for all processors, in some order, as far as to loops."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        for cpu in rng.permutation(PROCESSORS):
            assert lightnet.compile(model, cpu=str(cpu), **options(rng))._compilation.loops is not None


@pytest.mark.parametrize("seed", SEEDS)
def test_networks_of_maps_lower_for_every_processor(seed: int) -> None:
    rng = np.random.default_rng(seed)
    module, feeds = random_network(seed, ops=int(rng.integers(3, 14)))
    lower(Model(module, "net"), rng)
    executable = lightnet.compile(Model(module, "net"))
    got = executable({n: a for n, a in feeds.items() if n in {*executable.inputs, *executable.params}})
    for name, b in graph.run(module, feeds).items():
        assert np.abs(got[name].astype(np.float64) - b).max(initial=0) <= 1e-4 * max(np.abs(b).max(initial=0), 1e-3), (
            name
        )


@pytest.mark.parametrize("seed", SEEDS)
def test_networks_of_all_ops_lower_for_every_processor(seed: int) -> None:
    lower(random_model(seed), np.random.default_rng(seed))
