"""The models in numbers, on kernels of real networks: costs and choices are those that were recorded (`decisions.py`), so that whoever
changes a model sees what it changes. That the choices are right, other tests say, and benchmarks that they are good."""

from __future__ import annotations

import json

import decisions
import pytest

RECORDED = json.loads(decisions.FILE.read_text("utf-8"))


@pytest.mark.sampled(every=3, share=0.3)
@pytest.mark.parametrize("network", [*decisions.NETWORKS, *decisions.FAMILIES])
@pytest.mark.parametrize("target, decide", [("cpu", decisions.of_cpu), ("cuda", decisions.of_cuda)])
def test_decisions_are_those_recorded(network: str, target: str, decide) -> None:
    same(decide(network), RECORDED[network][target])


def test_chains_are_those_recorded() -> None:
    same(decisions.of_chains(), RECORDED["chains"])


@pytest.mark.sampled(every=3, share=0.3)
@pytest.mark.parametrize("one", decisions.LOWERED, ids=lambda one: decisions.code_name(*one))
def test_code_is_that_recorded(one) -> None:
    """As many launches, blocks, threads and bytes, and as many loads, products and prefetches in each kernel."""
    found, wanted = decisions.of_code(*one), RECORDED["code"][decisions.code_name(*one)]
    for row, old in zip(found, wanted):
        assert row == old, "where the change is meant, run python tests/decisions.py"
    assert len(found) == len(wanted)


def same(found: dict[str, list[str]], wanted: dict[str, list[str]]) -> None:
    assert found.keys() == wanted.keys()
    for name, rows in found.items():
        assert [_split(row) for row in rows] == [_split(row) for row in wanted[name]], (
            f"{name}: where the change is meant, run python tests/decisions.py"
        )


def _split(row: str) -> tuple[list[str], object]:
    """What was chosen, and the cost, which rounds otherwise elsewhere."""
    where, alg, cost, *chosen = row.split(" ")
    return [where, alg, *chosen], pytest.approx(float(cost), rel=1e-4)
