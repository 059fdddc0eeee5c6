"""The floor: the names of the cases that pass, checked in, which may only grow. Imports the standard library.

One name a line, so that a change of it can be reviewed. It holds for the version of onnx that it was made with: a case that
another version does not have is no loss.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FLOOR = Path(__file__).parents[2] / "tests" / "data" / "conformance_floor.json"


@dataclass(frozen=True)
class Floor:
    """`onnx` is the version of the suite, `passing` the names of the cases of each suite that pass."""

    onnx: str
    passing: dict[str, frozenset[str]]

    def __contains__(self, key: str) -> bool:
        suite, _, name = key.partition("/")
        return name in self.passing.get(suite, ())


def read(path: Path = FLOOR) -> Floor:
    """The checked-in floor; an empty one where there is none."""
    if not path.exists():
        return Floor("", {})
    data = json.loads(path.read_text("utf-8"))
    return Floor(data["onnx"], {suite: frozenset(names) for suite, names in data["passing"].items()})


def write(onnx: str, keys: Iterable[str], path: Path = FLOOR) -> None:
    """Make the floor of the cases that pass, as ``suite/name``."""
    passing: dict[str, list[str]] = {}
    for key in sorted(keys):
        suite, _, name = key.partition("/")
        passing.setdefault(suite, []).append(name)
    path.write_text(json.dumps({"onnx": onnx, "passing": passing}, indent=0) + "\n", "utf-8")
