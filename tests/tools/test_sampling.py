"""What a date draws: the same each time, all cases over many dates, and a core that lacks no value of any parameter."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import date
from itertools import product
from pathlib import Path

import durations
import pytest
import sampling
from sampling import CORE, SHARE, VARIABLE, Sample, draw

HERE = Path(__file__).parents[1]
DATES = [f"2026-{month:02}-{day:02}" for month, day in product(range(1, 13), range(1, 29))]


def drawn(word: str, monkeypatch: pytest.MonkeyPatch, **how) -> list[int]:
    monkeypatch.setenv(VARIABLE, word)
    return draw(range(200), "numbers", **{"every": 7, **how})


def test_a_date_draws_the_same_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn("2026-11-22", monkeypatch) == drawn("2026-11-22", monkeypatch) != drawn("2026-11-23", monkeypatch)


def test_the_core_is_in_every_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    core = drawn(CORE, monkeypatch, start=2, by=lambda n: n // 50)
    assert core == sorted({*range(2, 200, 7), 0, 50, 100, 150})
    assert set(drawn("2026-11-22", monkeypatch, start=2, by=lambda n: n // 50)) > set(core)


def test_every_case_runs_on_some_date_and_a_share_on_each(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = [drawn(date, monkeypatch) for date in DATES]
    assert set().union(*draws) == set(range(200))
    beyond = [len(d) - len(range(0, 200, 7)) for d in draws]
    assert 0.75 * SHARE < sum(beyond) / len(beyond) / (200 - len(range(0, 200, 7))) < 1.25 * SHARE


@pytest.mark.parametrize("share", [SHARE, 0.2, 0.3])
def test_every_case_comes_round(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """None waits for longer than twice the days that it has in the mean, whenever one begins to look."""
    first = date(2026, 12, 1).toordinal()
    days = [date.fromordinal(first + n).isoformat() for n in range(100)]
    draws = [set(drawn(day, monkeypatch, every=0, share=share)) for day in days]
    most = round(2 / share)
    assert all(set().union(*draws[n : n + most]) == set(range(200)) for n in range(len(days) - most))


def test_a_word_that_is_no_date_draws_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [len(drawn(f"word {n}", monkeypatch, every=0, share=0.3)) for n in range(50)]
    assert 0.25 < sum(found) / len(found) / 200 < 0.35


def test_without_a_word_everything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn("", monkeypatch) == list(range(200))


def test_what_has_no_core_runs_on_its_share_of_dates(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = [drawn(date, monkeypatch, every=0, share=0.3) for date in DATES]
    assert not drawn(CORE, monkeypatch, every=0, share=0.3) and set().union(*draws) == set(range(200))
    assert 0.27 < sum(map(len, draws)) / len(draws) / 200 < 0.33


def test_today_is_fixed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "today")
    sampling.settle()
    assert len(sampling.word()) == len("2026-11-22") and sampling.word() != "today"


class Item:
    """As much of a test as is looked at."""

    def __init__(self, name: str, mark: pytest.Mark | None, **params: object):
        self.nodeid, self.mark = f"test_x.py::{name}[{list(params.values())}]", mark
        self.callspec = type("CallSpec", (), {"params": params})

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self.mark


def test_unmarked_tests_are_never_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, CORE)
    mark = pytest.mark.sampled(every=100, by="op").mark
    items = [Item("f", mark, op=op, n=n) for op in "ab" for n in range(5)] + [Item("g", None, n=n) for n in range(3)]
    kept, left = sampling.split(items)  # type: ignore[arg-type]
    assert [i.nodeid for i in kept] == [items[k].nodeid for k in (0, 5, 10, 11, 12)] and len(left) == 8


def test_a_test_that_costs_much_runs_as_much_of_it_as_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marked or not, its cases come round, and take what there is for them in the mean; others run whole, and so does each where nothing is
    drawn beyond the core, or everything is."""
    monkeypatch.setattr(sampling, "recorded", lambda: {"test_x.py::f": 0.1, "test_x.py::g": 0.4, "test_x.py::h": 0.01})
    mark = pytest.mark.sampled(every=2).mark
    items = [Item(name, mark if name == "g" else None, n=n) for name in "fgh" for n in range(20)]

    def run(day: str) -> list[str]:
        monkeypatch.setenv(VARIABLE, day)
        return [item.nodeid for item in sampling.split(items)[0]]  # type: ignore[arg-type]

    days = [date.fromordinal(740000 + n).isoformat() for n in range(200)]
    draws = [run(day) for day in days]
    names = [item.nodeid for item in items]
    assert all(set(names[:20]) == set().union(*draws[n : n + 14]) & {*names[:20]} for n in range(186))
    assert set(names) == set().union(*draws) and all(set(draw) >= {*names[40:]} for draw in draws)
    mean = {
        name: sum(nodeid.startswith(f"test_x.py::{name}") for draw in draws for nodeid in draw) / 200 for name in "fg"
    }
    assert abs(mean["f"] - 20 * sampling.BUDGET / 2) < 0.4, "what there is for it, of two seconds"
    assert abs(mean["g"] - 10.5 * sampling.LEAST) < 0.3, "no less than its least share, of four seconds"
    assert run("") == names and run(CORE) == [*names[:20], *names[20:40:2], *names[40:]]


def test_what_is_recorded_stays_while_it_is_there(tmp_path: Path) -> None:
    """A report of a draw says less of a test than it costs, and nothing of most; tests that are gone are forgotten."""
    cases = [
        ("test_sampling", "test_today_is_fixed_once", 0.3),
        *([("test_sampling", "drawn[1]", 0.4), ("test_sampling", "drawn[2]", 0.6)]),
    ]
    text = "".join(f'<testcase classname="tests.tools.{c}" name="{n}" time="{t}"/>' for c, n, t in cases)
    text += '<testcase classname="tests.tools.test_sampling" name="drawn[3]" time="9"><skipped/></testcase>'
    report = tmp_path / "report.xml"
    report.write_text(f"<testsuites><testsuite>{text}</testsuite></testsuites>")
    here = "tests/tools/test_sampling.py"
    old = {
        f"{here}::test_today_is_fixed_once": 2.0,
        f"{here}::test_groups_count_anew_in_each_product": 1.0,
        f"{here}::gone": 1.0,
    }
    new = durations.merged(old, durations.measured(report))
    assert new == {
        f"{here}::drawn": 0.5,
        f"{here}::test_today_is_fixed_once": 0.3,
        f"{here}::test_groups_count_anew_in_each_product": 1.0,
    }


def test_a_method_goes_by_its_class() -> None:
    """As in node ids, by which a draw looks a test up."""
    assert durations.place_of("tests.frontends.il.test_il.TestPerl") == "tests/frontends/il/test_il.py::TestPerl"
    assert durations.place_of("tests.frontends.il.test_il") == "tests/frontends/il/test_il.py"
    assert durations.is_there("tests/frontends/il/test_il.py::TestPerl::test_limits")


def test_what_no_draw_knows_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests above their budget, all phases of all cases together, that are not recorded."""
    monkeypatch.setattr(sampling, "recorded", lambda: {"a.py::known": 3.0})
    half = sampling.BUDGET * 0.6
    phases = [("a.py::new[1]", half), ("a.py::new[2]", half), ("a.py::known", 9.0), ("a.py::small", half)]
    assert sampling.unrecorded(phases) == {"a.py::new": pytest.approx(2 * half)}


def test_what_is_recorded_is_there() -> None:
    """A test that is gone is forgotten by `python tests/durations.py`, one that is new is recorded by it with a report."""
    assert sampling.recorded() and [name for name in sampling.recorded() if not durations.is_there(name)] == []


def test_groups_count_anew_in_each_product() -> None:
    sample = Sample(every=10, share=0, start=3)
    assert sample.takes("0", "a") and sample.count == 1


#: Collects everything, and prints the values of parameters that the core of a marked test lacks though they have cases enough.
LACKING = """
import os, sys, pytest, sampling
from collections import Counter

class Lacking:
    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items):
        os.environ[sampling.VARIABLE] = sampling.CORE
        marked = [i for i in items if (mark := i.get_closest_marker("sampled")) and mark.kwargs["every"] and hasattr(i, "callspec")]
        core = {i.nodeid for i in sampling.split(items)[0]}
        every = {i.nodeid.split("[")[0]: i.get_closest_marker("sampled").kwargs["every"] for i in marked}

        def values(chosen):
            return Counter((i.nodeid.split("[")[0], k, str(v)) for i in chosen for k, v in i.callspec.params.items())

        there = values(i for i in marked if i.nodeid in core)
        print(len(marked), "marked")
        for value, count in values(marked).items():
            if value not in there and count >= 2 * every[value[0]]:
                print("lost", *value, count)

sys.exit(pytest.main(["--collect-only", "-qq", "-n0", "-p", "no:cacheprovider", *sys.argv[1:]], plugins=[Lacking()]))
"""


@pytest.mark.slow
def test_the_core_has_every_value_of_every_parameter() -> None:
    """Of each marked test, where enough cases have the value for two to be in the core: generators, types, machines, ops."""
    files = [str(p) for p in HERE.rglob("test_*.py") if "mark.sampled(" in p.read_text("utf-8") and p != Path(__file__)]
    environment = {**os.environ, VARIABLE: ""}
    path = os.pathsep.join([str(HERE), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", LACKING, *files],
        env={**environment, "PYTHONPATH": path},
        cwd=HERE.parent,
        capture_output=True,
        text=True,
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and any(line.endswith(" marked") and int(line.split()[0]) > 1000 for line in lines)
    assert [line for line in lines if line.startswith("lost ")] == []
