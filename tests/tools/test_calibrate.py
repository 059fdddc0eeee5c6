"""`tools/calibrate.py`: the constants that it lists are there, and are as they were when it is done with them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import bench_blocked
import calibrate

from lightnet.backends.cpu.blocked.base import ProcessorModel


@pytest.mark.parametrize("family", calibrate.CONSTANTS)
def test_constants_are_there(family: str) -> None:
    where, names = calibrate.CONSTANTS[family]
    module = importlib.import_module(calibrate.MODELS + where)
    assert family in bench_blocked.FAMILIES
    for name in names:
        own = getattr(module, name)
        assert own > 0
        with calibrate.replaced(module, name, 2 * own):
            assert getattr(module, name) == 2 * own
        assert getattr(module, name) == own


def test_rates_are_those_of_the_machine_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the table names them: `base.ProcessorModel.flops`."""
    sizes = [(1 << 17, 2e9), (1 << 23, 3e9), (1 << 26, 4e9)]
    monkeypatch.setattr(calibrate.roofline, "measured", lambda: type("Peaks", (), {"flops": 1e9, "bandwidth": sizes}))
    found = calibrate.rates(ProcessorModel())
    assert [here for _, _, here in found] == [1, 2, 3, 4]
    assert all(getattr(ProcessorModel(), name) == own for name, own, _ in found)
