"""Choices, layouts, plans and code of the networks that come with the project are those that were recorded (`shipped.py`)."""

from __future__ import annotations

import pytest
import shipped

#: Between them every setting, and most generators; the rest is slow.
QUICK = {
    "cnn": shipped.SETTINGS, "lenet": shipped.SETTINGS, "squeezenet1.1": ("cpu-avx2", "cuda-sm_80"), "lstm_embed": ("cpu-avx512",),
}  # fmt: skip
CASES = [
    pytest.param(network, setting, marks=() if setting in QUICK.get(network, ()) else pytest.mark.slow)
    for network in shipped.NETWORKS
    for setting in shipped.SETTINGS
]
#: Of a network whose kernels all changed, so many are shown.
SHOWN = 12


@pytest.mark.parametrize("network, setting", CASES)
def test_decisions_for_shipped_networks_are_those_recorded(network: str, setting: str) -> None:
    changed = shipped.differences(
        shipped.rows_of(network, shipped.SETTINGS[setting]), shipped.recorded(network, setting)
    )
    if changed:
        more = f"\n… and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
        pytest.fail(
            f"{network} on {setting}; where it is meant, run python tests/shipped.py:\n"
            + "\n".join(changed[:SHOWN])
            + more,
            pytrace=False,
        )


def test_a_change_is_named() -> None:
    """The kernel, what it was and what it is, before the lines that follow from it."""
    wanted = shipped.recorded("cnn", "cpu-avx512")
    kernel = next(row for row, text in wanted.items() if "alg=" in text)
    found = {**wanted, kernel: wanted[kernel].replace("alg=", "alg=un"), "line 0": "none"}
    first, second = shipped.differences(found, wanted)
    assert first.startswith(f"{kernel}:") and "alg=un" in first.split("is  ")[1] and second.startswith("line 0")


def test_every_record_belongs_to_a_network() -> None:
    assert {f.stem for f in shipped.FOLDER.glob("*.json")} == set(shipped.NETWORKS)
