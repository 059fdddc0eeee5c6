"""How long tests take: the mean seconds of a case of each test that costs more than its share of a run (`sampling.BUDGET`), recorded in
``data/durations.json``. ``pytest --junitxml=REPORT`` measures, with any draw or of some files only, ``python tests/durations.py REPORT`` records, and forgets what is gone (without a report that alone).
"""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path

from sampling import BUDGET, DURATIONS, recorded

ROOT = Path(__file__).parent.parent


def measured(report: Path) -> dict[str, list[float]]:
    """The seconds of the cases that ran, by the test's node id without its parameters."""
    seconds: dict[str, list[float]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("skipped") is None:
            name = f"{place_of(case.get('classname', ''))}::{case.get('name', '').partition('[')[0]}"
            seconds.setdefault(name, []).append(float(case.get("time", 0)))
    return seconds


def place_of(dotted: str) -> str:
    """The part of a node id before the function, of ``tests.cli.test_cli`` or ``tests.cli.test_cli.TestWords``."""
    words = dotted.split(".")
    here = next(
        (n for n in range(len(words), 0, -1) if (ROOT / Path(*words[:n])).with_suffix(".py").is_file()), len(words)
    )
    return "::".join(["/".join(words[:here]) + ".py", *words[here:]])


def merged(old: Mapping[str, float], new: Mapping[str, list[float]]) -> dict[str, float]:
    """What to record: tests that cost more than the budget, and those of which a draw left too few cases to tell, while they are there."""
    of = {name: sum(times) / len(times) for name, times in new.items() if sum(times) > BUDGET or name in old}
    return {name: float(f"{seconds:.2g}") for name, seconds in sorted({**old, **of}.items()) if is_there(name)}


def is_there(name: str) -> bool:
    """Return whether a file of tests defines the function of this node id."""
    path, function = name.partition("::")[0], name.rpartition("::")[2]
    return (ROOT / path).is_file() and f"def {function}(" in (ROOT / path).read_text("utf-8")


if __name__ == "__main__":
    news = measured(Path(sys.argv[1])) if sys.argv[1:] else {}
    DURATIONS.write_text(json.dumps(merged(recorded(), news), indent=1) + "\n", "utf-8")
