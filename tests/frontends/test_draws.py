"""What networks draw: the same numbers as constants and as ops, in both widths, and once each; a seed that is none."""

from __future__ import annotations

import numpy as np
import pytest

import lightnet
from lightnet.diagnostics import LightNetError
from lightnet.frontends.graph import MAX_MADE, Graph
from lightnet.frontends.random import FROM_INPUT, INPUT, Draws, philox
from lightnet.model import Model


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_ops_draw_what_constants_are(dtype: str) -> None:
    seed = -5
    values: dict[int | str, list] = {}
    for how in (seed, FROM_INPUT):
        g = Graph("n.onnx")
        draws = Draws(g, how)
        made = [
            draws.uniform((3,), dtype),
            draws.normal((2, 2), dtype),
            draws.uniform((3,), dtype),
            draws.normal((3,), dtype, 0.5),
            draws.uniform((3,), dtype, 0.5),
        ]
        if how == seed:
            values[how] = [v.known for v in made]
            continue
        module, weights = g.finish({f"y{k}": v for k, v in enumerate(made)})
        assert sum(op.name == "ln.input" for op in module.walk()) == 1  # one seed for all
        values[how] = list(
            lightnet.compile(Model(module, "n.onnx", weights), target="none")({INPUT: np.int64(seed)}).values()
        )
    for a, b in zip(values[seed], values[FROM_INPUT], strict=True):
        assert a.dtype == b.dtype == np.dtype("f4" if dtype == "f32" else "f8")
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6 if dtype == "f32" else 1e-14)
    assert (
        not np.array_equal(values[seed][0], values[seed][2])
        and (0 <= values[seed][0]).all()
        and (values[seed][0] < 1).all()
    )


def test_the_counters_of_elements() -> None:
    """They are documented: element, 0, draw and own seed, one word each. Elements are drawn here one by one."""
    assert MAX_MADE <= 1 << 32
    seed = -5
    draws, key = Draws(Graph("n"), seed), (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF)
    rows = (
        ((2, 3), "f32", None, (0, 0)),
        ((3,), "f64", 0.5, (0xFFFFFFFF, 0x3F000000)),
        ((), "f32", None, (1, 0)),
        ((2,), "f32", -1.0, (0xFFFFFFFF, 0xBF800000)),
        ((2,), "f64", None, (2, 0)),
    )
    for dims, dtype, own, upper in rows:
        for i, got in enumerate(draws.uniform(dims, dtype, own).known.reshape(-1).tolist()):
            first, second = (int(w) for w in philox((i, 0, *upper), key)[:2])
            assert got == ((first >> 8) / 2**24 if dtype == "f32" else (first << 21 | second >> 11) / 2**53)


@pytest.mark.parametrize("seed", [1 << 63, -(1 << 63) - 1, "inputs", 0.5, None])
def test_no_seed(seed: object) -> None:
    with pytest.raises(
        LightNetError, match="a seed is an integer of 64 bits, or 'input', which makes it an input of the network: not "
    ):
        Draws(Graph("n"), seed)  # type: ignore[arg-type]


def test_the_largest_seeds() -> None:
    assert (
        len({Draws(Graph("n"), k).uniform((1,), "f32").known.item() for k in ((1 << 63) - 1, -(1 << 63), 0, 1 << 32)})
        == 4
    )
