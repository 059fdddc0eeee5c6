"""What docs/patterns.md says of exactness is what runs show: `tests/data/exactness.json` against `tools/exactness.py`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import exactness  # noqa: E402

import docs  # noqa: E402 (of tools/)
from lightnet.ir.rewrites import pattern_name  # noqa: E402
from lightnet.passes.patterns import every  # noqa: E402

RECORD = json.loads(exactness.RECORD.read_text("utf-8"))
SUBJECTS = [
    s for s in exactness.subjects() if s.name.startswith(("rule", "slice", "simplify", "precision", "recognize"))
]


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda s: s.name)
def test_a_rewrite_is_as_exact_as_the_record_says(subject):
    """Each that the network has; one that is right in floats alone somewhere may be exact here."""
    for pattern, how in exactness.measured(subject).items():
        assert RECORD[pattern] in (how, exactness.IN_FLOATS), pattern


def test_each_rewrite_has_a_verdict():
    """Every rule, description and step of a pass but those that only say where a value stands: some network here has it."""
    patterns = {pattern_name(cls) for _, _, cls in every() if not docs.only_places(cls)}
    assert patterns | {name for name, _ in docs.pass_steps()} <= RECORD.keys()


def test_the_only_rewrites_that_round_say_so():
    """None of ours rests on a law that it does not name: what is in floats rounds on purpose, or has a `law`."""
    lawful = {pattern_name(cls) for _, _, cls in every() if getattr(cls, "law", None)}
    in_floats = {pattern for pattern, how in RECORD.items() if how == exactness.IN_FLOATS}
    assert in_floats - lawful == {"precision", "short-products"}
