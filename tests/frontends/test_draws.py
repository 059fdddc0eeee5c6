"""What networks draw: the same numbers as constants and as ops, in both widths, and once each; a seed that is none."""

from __future__ import annotations

import numpy as np
import pytest

import lightnet
from lightnet.diagnostics import LightNetError
from lightnet.frontends.graph import Graph
from lightnet.frontends.random import FROM_INPUT, INPUT, Draws
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
