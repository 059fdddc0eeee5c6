"""`tools/mutants.py --source`: faults are programs of as many lines, the same for a seed; functions exchange their code; and in a small
project the faults that its tests notice are found, and no others."""

from __future__ import annotations

import ast
import itertools
import json
import operator
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from mutations import ci_suites, judging, source
from mutations.carrying import carried_map, carry, holds
from mutations.covering import Tests, reading_source
from mutations.faults import faults, is_program, sample
from mutations.judging import Job, Session, pair
from mutations.probes import FUNCTION
from mutations.watching import Marks

PACKAGE = Path(__file__).parents[2] / "lightnet"
TEXT = '''"""Docstring with 1 < 2."""
LIMIT = 3

def first(values: list[int] = None, most: int = 2) -> int:
    """Nothing of 7 here."""
    assert values
    total = 0
    for v in values:
        if v is None or (v <
                         0):
            continue
        total += -v * 2
    return (total
            + 1)

class Held:
    size = 1.5
    def get(self):
        return [x for x in range(9) if x not in (1, 2)]
'''


def changes(text: str = TEXT) -> set[tuple[int, str, str, str]]:
    return {(f.line, f.kind, f.old, f.new) for f in faults("a.py", text)}


def test_every_kind() -> None:
    assert changes() == {
        (2, "constant", "3", "4"), (4, "constant", "2", "3"), (7, "constant", "0", "1"),
        (9, "comparison", "is", "is not"), (9, "boolean", "or", "and"), (9, "comparison", "<", "<="),
        (9, "condition", "v is None or (v <\n                         0)", "(not (v is None or (v <\n                         0)))"),
        (9, "condition", "v is None or (v <\n                         0)", "(True\n)"),
        (9, "condition", "v is None or (v <\n                         0)", "(False\n)"),
        (10, "constant", "0", "1"), (11, "statement", "continue", "pass"),
        (12, "statement", "total += -v * 2", "pass"), (12, "operator", "+=", "-="), (12, "operator", "-v", "(v)"),
        (12, "operator", "*", "+"), (12, "constant", "2", "3"),
        (13, "return", "total\n            + 1", "(None)\n"), (14, "operator", "+", "-"), (14, "constant", "1", "2"),
        (17, "constant", "1.5", "4.0"), (19, "constant", "9", "10"), (19, "comparison", "not in", "in"),
        (19, "constant", "1", "2"), (19, "constant", "2", "3"),
        (19, "return", "[x for x in range(9) if x not in (1, 2)]", "None"),
        *((19, "condition", "x not in (1, 2)", new) for new in ("(not (x not in (1, 2)))", "(True)", "(False)")),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["frontends/il/statements.py", "runtime/arrays.py", "passes/bind.py"])
def test_faults_of_our_files_are_programs_of_as_many_lines(name: str) -> None:
    text = (PACKAGE / name).read_text("utf-8")
    found = faults(name, text)
    assert len(found) >= 20
    for fault in found[:: len(found) // 20]:
        changed = fault.apply(text)
        assert is_program(changed) and changed.count("\n") == text.count("\n")
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text)), fault


def test_a_sample_is_that_of_its_seed() -> None:
    texts = {f"{i}.py": TEXT for i in range(4)}
    five = sample(texts, 5, 1)
    assert sample(texts, 12, 1)[:5] == five != sample(texts, 5, 2)
    assert len({(f.file, f.line) for f in sample(texts, 100, 1)}) == len(sample(texts, 100, 1)) == 4 * 11  # one a line


def test_test_cases_of_ops_are_told_apart() -> None:
    """What `samples` says is data of tests: another number is no fault."""
    text = "class Op:\n    def samples(cls):\n        return [1]\n\n    def infer(self):\n        return 2\n"
    assert {(f.line, f.within) for f in faults("a.py", text)} == {(3, "samples"), (6, "infer")}


def test_code_is_exchanged_where_it_changed() -> None:
    text = "def a():\n    def b():\n        return 1\n    return b\n\ndef c():\n    return 3\n"
    space: dict = {}
    exec(compile(text, "a.py", "exec"), space)
    codes: dict = {}
    pair(compile(text, "a.py", "exec"), compile(text.replace("1", "2"), "a.py", "exec"), codes)
    made = space["a"]()
    assert {code.co_name for code in codes} == {"<module>", "a", "b"}
    for function in (space["a"], made):
        function.__code__ = codes[function.__code__]
    assert made() == space["a"]()() == 2


def test_a_function_with_other_variables_around_it_is_left_to_a_cold_child(tmp_path: Path) -> None:
    """With the faults of all survivors at once, the other functions of a file have theirs nevertheless."""
    text = "def a(f):\n    def b():\n        return f(1)\n    return b\n\ndef c():\n    return 3\n"
    changed = text.replace("f(1)", "None").replace("3", "4")
    path, space = tmp_path / "a.py", dict[str, Any]()
    exec(compile(text, str(path), "exec", dont_inherit=True), space)
    made, session = space["a"](str), Session.__new__(Session)
    session.job = SimpleNamespace(root=tmp_path)  # type: ignore[assignment]
    session.functions = {str(path): [made, space["c"]]}
    row = {"file": "a.py", "text": text, "changed": changed}
    with pytest.raises(ValueError, match="free vars"):
        session.exchange(row)
    session.exchange(row, whole=False)
    assert made() == "1" and space["c"]() == 4


def watched(text: str) -> tuple[Marks, dict, bytearray]:
    """A text with marks, what it defines, and the marks that are set when that is called."""
    marks = Marks()
    marked = marks.mark("a.py", text)
    space: dict = {}
    exec(marks.module(), space)
    assert len(space["HITS"]) == marks.size
    names = {f"_{n}_": space[n] for n in ("both", "some", "truth")} | {"_hits_": space["HITS"]}
    names |= {f"_{n}_": getattr(operator, n) for n in FUNCTION.values()}
    exec(compile(marked.replace("from lightnet._watched", "#").replace("from operator", "#"), "a.py", "exec"), names)
    return marks, names, space["HITS"]


def test_marks_say_which_blocks_ran() -> None:
    marks, space, hits = watched(TEXT)
    assert space["first"]([1, 2]) == -5
    ran = {line for line, mark in marks.lines["a.py"].items() if hits[mark]}
    first, last = marks.files["a.py"]
    assert ran == {6, 7, 8, 9, 10, 12, 13, 14} and first == 0 and last == max(marks.lines["a.py"].values()) + 1


def test_probes_say_which_faults_make_a_difference() -> None:
    """An expression of each kind, on numbers: a probe's mark is set when and only when the value with the fault is another one."""
    expressions = [
        "a < b",
        "a >= b",
        "a + b",
        "a - b",
        "a * b",
        "a // b",
        "a % b",
        "a << b",
        "a & b",
        "a | b",
        "a ^ b",
        "a ** b",
        "a / b",
    ]
    tried = 0
    for expression in expressions:
        text = f"def f(a, b):\n    x = {expression}\n    return x\n"
        (fault,) = [f for f in faults("a.py", text) if f.kind in ("comparison", "operator")]
        wrong: dict = {}
        exec(fault.apply(text), wrong)
        for a, b in itertools.product((0, 1, 2, 3), repeat=2):
            marks, right, hits = watched(text)
            try:
                value = right["f"](a, b)
            except ArithmeticError:
                continue
            try:
                other = wrong["f"](a, b)
            except ArithmeticError:
                other = None
            assert bool(hits[marks.probes[fault.name]]) == (repr(other) != repr(value)), (expression, a, b)
            tried += 1
    assert tried > 190


@pytest.mark.parametrize(
    ("call", "noticed"),
    [
        ((0, 1), {("condition", "(True)"), ("boolean", "or"), ("return", "None")}),
        ((1, 0), {("condition", "(True)"), ("boolean", "or"), ("return", "None")}),
        ((1, 2), {("condition", "(False)")}),
    ],
)  # fmt: skip
def test_probes_of_conditions_and_values(call: tuple, noticed: set[tuple[str, str]]) -> None:
    text = "def f(a, b):\n    if a and b:\n        return g(b)\n    return 5\n"
    marks, space, hits = watched(text)
    space["g"] = lambda b: None
    space["f"](*call)
    found = {(f.kind, f.new) for f in faults("a.py", text) if f.name in marks.probes and hits[marks.probes[f.name]]}
    assert found == noticed


def test_faults_are_carried_to_where_their_lines_are_now() -> None:
    """Changed and missing lines carry none; a verdict holds where function and test are as they were, letter by letter."""
    tests = "def test_first():\n    assert first([1]) == -1\n"
    old = {"a.py": TEXT, "b.py": TEXT, "tests/t.py": tests}
    new = {"a.py": "# moved\n" + TEXT.replace("size = 1.5", "size = 2.5"), "tests/t.py": "import numpy\n" + tests}
    given = faults("a.py", TEXT) + faults("b.py", TEXT)
    moved = carry(given, old, new)
    assert list(moved) == [f for f in given if f.file == "a.py" and f.line != 17]
    result = {"verdict": "found", "by": "tests/t.py::test_first[2]"}
    for fault, here in moved.items():
        assert here.apply(new["a.py"]).count(fault.new.strip()) and (here.line, here.new) == (fault.line + 1, fault.new)
        assert holds(result, fault, here, old, new) == fault.function
        assert not holds({"verdict": "survives"}, fault, here, old, new)
        changed = {**new, "tests/t.py": tests.replace("-1", "-2")}
        assert not holds(result, fault, here, old, changed) and not holds(
            {**result, "by": "gone"}, fault, here, old, new
        )
        other = {**new, "a.py": new["a.py"].replace("+ 1)", "+ 2)")}
        assert holds(result, fault, here, old, other) == (fault.function and fault.line > 14)


def test_faults_follow_a_function_that_moves() -> None:
    """To another file, letter by letter; not where it stands twice, and its verdict only with its test."""
    tests = "def test_first():\n    assert first([1]) == -1\n"
    function = TEXT[TEXT.index("def first") : TEXT.index("class Held")]
    old = {"a.py": TEXT, "tests/t.py": tests}
    new = {"a.py": TEXT.replace(function, ""), "b/c.py": "import a\n\n\n" + function, "tests/b/t.py": tests}
    given = faults("a.py", TEXT)
    moved = carry(given, old, new)
    assert list(moved) == given
    for fault, here in moved.items():
        inside = 4 <= fault.line <= 14
        assert here.file == ("b/c.py" if inside else "a.py") and here.old == fault.old
        assert here.apply(new[here.file]) != new[here.file]
        assert holds({"verdict": "found", "by": "tests/t.py::test_first"}, fault, here, old, new) == fault.function
    twice = carry(given, old, new | {"d.py": function})
    assert {f.file for f in twice.values()} == {"a.py"}


def write_map(folder: Path, ran: dict[str, tuple[float, set[int]]], texts: dict[str, str]) -> Marks:
    """A map of `texts` in which each test took so long and ran these lines of a.py."""
    marks = Marks()
    for name, text in texts.items():
        marks.mark(name, text)
    rows = np.zeros((len(ran), marks.size), np.uint8)
    for row, (_, lines) in zip(rows, ran.values()):
        row[[marks.lines["a.py"][line] for line in lines]] = 1
    np.savez(folder / "map.npz", names=list(ran), passed=[True] * len(ran), seconds=[s for s, _ in ran.values()],
             marks=np.packbits(rows, axis=1))  # fmt: skip
    (folder / "lines.json").write_text(json.dumps({"lines": marks.lines, "files": marks.files, "probes": marks.probes}))
    return marks


RAN = {
    "tests/t.py::test_empty": (0.001, {7, 8, 13}), "tests/t.py::test_cases[1]": (0.002, {7, 8, 9, 12, 13}), "tests/t.py::test_cases[2]": (0.1, {7, 8, 9, 11, 13}),
    "tests/u.py::test_held": (0.003, {19}), "tests/u.py::test_slow": (5.0, {7, 8, 9, 12, 13}),
}  # fmt: skip


def test_tests_are_chosen_by_branches_costs_and_files(tmp_path: Path) -> None:
    """One that takes the rarer branch behind a line comes first, others of the file last, and none beyond the budget; none at all where
    each computes the same with the fault."""
    write_map(tmp_path, RAN, {"a.py": TEXT})
    never, fault = (
        next(f for f in faults("a.py", TEXT) if f.line == 9 and f.new.startswith(w)) for w in ("(True", "(not ")
    )
    tests = Tests(tmp_path / "map.npz")
    assert tests.of(never, 2) == [] and tests.runs(never) and not tests.notices(never) and tests.notices(fault)
    chosen = Tests(tmp_path / "map.npz").of(fault, 2)
    assert chosen == [
        f"tests/{n}" for n in ("t.py::test_cases[2]", "t.py::test_cases[1]", "t.py::test_empty", "u.py::test_held")
    ]
    assert "tests/u.py::test_slow" in Tests(tmp_path / "map.npz").of(fault, 9)


def test_a_map_is_carried_to_where_its_lines_are_now(tmp_path: Path) -> None:
    """For files of tests that are as they were."""
    marks = write_map(tmp_path, RAN, {"a.py": TEXT})
    new, moved = "X = 1\n" + TEXT.replace("total += -v * 2", "total -= v"), Marks()
    moved.mark("a.py", new)
    watched = json.loads((tmp_path / "lines.json").read_text())
    data = carried_map(
        np.load(tmp_path / "map.npz"),
        watched["lines"],
        watched["probes"],
        moved,
        {"a.py": TEXT},
        {"a.py": new},
        {"tests/t.py": "tests/sub/t.py"},
    )
    assert data["names"].tolist() == [n.replace("tests/", "tests/sub/") for n in list(RAN)[:3]] and data[
        "seconds"
    ].tolist() == [0.001, 0.002, 0.1]
    ran = np.unpackbits(data["marks"], axis=1)[:, : marks.size]
    found = [{line for line, mark in moved.lines["a.py"].items() if row[mark]} for row in ran]
    assert 11 in found[1] and {8, 9, 14} <= found[0] and 12 in found[2] and 12 not in found[0]


def test_the_rest_is_what_tells_most_of_survivors(tmp_path: Path) -> None:
    """Of tests that a fault has not had: those first that may notice more of them in their time; names of the faults stand with each."""
    write_map(tmp_path, RAN, {"a.py": TEXT})
    one, two = (next(f for f in faults("a.py", TEXT) if f.line == line and f.kind == "constant") for line in (12, 7))
    rest = Tests(tmp_path / "map.npz").rest({one: {"tests/t.py::test_cases[1]"}, two: set()}, 20)
    assert rest == {"tests/t.py::test_empty": [two.name], "tests/t.py::test_cases[1]": [two.name], "tests/t.py::test_cases[2]": [two.name],
                    "tests/u.py::test_slow": [one.name, two.name]}  # fmt: skip
    assert Tests(tmp_path / "map.npz").rest({one: set()}, 1) == {"tests/t.py::test_cases[1]": [one.name]}


def test_names_by_a_fault_choose_tests_where_it_runs_at_import(tmp_path: Path) -> None:
    """Those that bear the rarest of its names, before those that run most of its file."""
    text = TEXT + 'ROWS = [("softsign", 1), ("gelu", True)]\n'
    line = len(text.splitlines())
    ran = RAN | {f"tests/v.py::test_op[{op}]": (0.2, {19}) for op in ("softsign", "gelu", "relu")}
    write_map(tmp_path, ran, {"a.py": text})
    one, two = (next(f for f in faults("a.py", text) if f.line == line and f.old == old) for old in ("1", "True"))
    tests = Tests(tmp_path / "map.npz", {"a.py": text})
    assert tests.of(one, 9)[0] == "tests/v.py::test_op[softsign]" and "tests/t.py::test_empty" in tests.of(one, 9)
    assert tests.of(two, 9)[0] == "tests/v.py::test_op[gelu]"


def test_functions_that_read_source_are_found() -> None:
    """By what they say, and what their fixtures do."""
    one = """
@pytest.fixture
def trees(): return list(Path().rglob("*.py"))
def test_trees(trees): pass
def test_own(): Path().glob("*.py")
def test_other(tmp_path): pass
"""
    found = reading_source({"tests/a.py": one, "tests/b.py": "def test_c(trees): pass"})
    assert found == ["tests/a.py::test_trees", "tests/a.py::test_own"]


def test_suites_of_ci_have_seconds_of_their_own(tmp_path: Path) -> None:
    """Behind the tests that a fault has, in as many seconds more."""
    suite = f"{ci_suites.NAME}::test_conformance"
    ran = RAN | {f"{suite}[node~a]": (0.9, {8, 13}), f"{suite}[node~b]": (0.9, {8, 13})}
    write_map(tmp_path, ran, {"a.py": TEXT})
    fault = next(f for f in faults("a.py", TEXT) if f.line == 7 and f.kind == "constant")
    names = Tests(tmp_path / "map.npz").of(fault, 1)
    assert names[-1:] == [f"{suite}[node~a]"] and "tests/t.py::test_empty" in names[:-1]
    assert Tests(tmp_path / "map.npz").of(fault, 2)[-2:] == [f"{suite}[node~a]", f"{suite}[node~b]"]


def job_of(path: Path) -> Job:
    rows = [{"name": "one", "file": "a.py", "text": "old", "changed": "new", "tests": ["t", "u"]}]
    data = {"root": str(path / "tree"), "rows": rows, "seconds": {"t": 0.0, "u": 0.0}, "out": str(path / "out.jsonl"), "budget": 60,
            "warm": True, "cpu": 1}  # fmt: skip
    (path / "tree").mkdir()
    (path / "tree" / "a.py").write_text("old")
    (path / "job.json").write_text(json.dumps(data))
    return Job(path / "job.json")


def spin() -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("act", "answer"),
    [
        (lambda: None, ("survives", None, None)), (lambda: "t", ("found", "t", "fails")),
        (lambda: 1 // 0, ("unclear", None, "ZeroDivisionError: integer division or modulo by zero")),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), ("found", "t", "dies")), (spin, ("found", "t", "dies")),
        (lambda: time.sleep(1000), ("found", "t", "hangs")),
    ],
    ids=["survives", "fails", "raises", "is killed", "never ends", "waits"],
)  # fmt: skip
def test_what_becomes_of_a_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act, answer) -> None:
    for name, value in {"GRACE": 0.1, "IDLE": 0.2, "TURN": 0.1, "BUSY": 1000.0}.items():
        monkeypatch.setattr(judging, name, value)
    job = job_of(tmp_path)

    def judge(row, tests):
        job.begin("t")
        return act()

    assert job.child(judge, {}, ["t"]) == answer


def test_no_child_of_a_child_goes_on_as_the_judge(tmp_path: Path) -> None:
    """A test may fork, and what it forked may raise, or outlive the verdict."""
    job, judges = job_of(tmp_path), tmp_path / "judges"

    def judge(row, tests):
        if os.fork() == 0:
            os.setsid()  # out of reach of whoever ends the child
            time.sleep(0.3)
            return "u"
        return "t"

    assert job.child(judge, {}, ["t"]) == ("found", "t", "fails")
    with judges.open("a") as f:
        f.write("one\n")
    time.sleep(0.6)
    assert judges.read_text() == "one\n"


def test_a_test_that_fails_anyway_is_not_believed(tmp_path: Path) -> None:
    """Nor does it hide another one; the text is as it was in the end."""
    job = job_of(tmp_path)
    file = tmp_path / "tree" / "a.py"
    always, both = {"t"}, {"t", "u"}

    def judge(row, tests):
        failing = both if file.read_text() == "new" else always
        return next((t for t in tests if t in failing), None)

    job.run(judge)
    (found,) = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert (found["verdict"], found["by"], found["how"]) == ("found", "u", "fails")
    both = always
    job.run(judge)
    assert json.loads((tmp_path / "out.jsonl").read_text().splitlines()[1])["verdict"] == "survives"
    assert file.read_text() == "old"


def test_faults_are_judged_together(tmp_path: Path) -> None:
    """What fails with all of them is asked of each that it may notice; a test that fails anyway, or with several only, finds none, and
    those behind it have their turn."""
    job, file = job_of(tmp_path), tmp_path / "tree" / "a.py"
    text = "one two three four"
    file.write_text(text)
    at = {word: (text.index(word), text.index(word) + len(word)) for word in text.split()}
    reach = {"one": ["t", "u"], "two": ["t", "anyway", "both"], "three": ["both", "v"], "four": ["w"]}
    job.rows = [{"name": word, "file": "a.py", "text": text, "changed": text.replace(word, "-"), "start": start, "end": end, "new": "-",
                 "tests": reach[word]} for word, (start, end) in at.items()]  # fmt: skip
    job.together, asked = ["t", "anyway", "both", "u", "v", "w"], tmp_path / "asked"
    finds = {
        "t": lambda now: "one" not in now,
        "anyway": lambda now: True,
        "both": lambda now: "two" not in now and "three" not in now,
        "v": lambda now: "three" not in now,
    }

    def judge(row, tests):
        now = file.read_text()
        assert row.get("parts", [{"changed": now}])[0]["changed"] == now
        with asked.open("a") as f:
            f.write(f"{now}: {' '.join(tests)}\n")
        return next((t for t in tests if finds.get(t, lambda now: False)(now)), None)

    job.run(judge)
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(row["name"], row["by"]) for row in found] == [("one", "t"), ("three", "v")]
    assert file.read_text() == text
    runs = asked.read_text().splitlines()
    assert runs[0] == "- - - -: t anyway both u v w" and runs[-1] == "one - three -: w"


SMALL = {
    "lightnet/__init__.py": "",
    "lightnet/calc.py": "LIMIT = 10\n\ndef clamp(x):\n    if x > LIMIT:\n        return LIMIT\n    return x\n\n"
    "def never(x):\n    return x + 1\n",
    "tests/test_calc.py": "import pytest\nfrom lightnet.calc import clamp\n\n@pytest.mark.parametrize('x', [1, 2, 11, 12])\n"
    "def test_clamp(x):\n    assert clamp(x) == min(x, 10)\n\ndef test_always_fails():\n    assert clamp(3) == 4\n",
    "lightnet/table.py": "SIZES = (2, 4)\nassert SIZES == (2, 4)\n",
    "tests/conftest.py": "import gc\nimport lightnet.table\n\ndef pytest_collection_finish():\n    gc.freeze()\n",  # what is frozen is no longer listed
    "pyproject.toml": "[tool.pytest.ini_options]\nmarkers = ['slow']\n",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cpu", "rest"), [(20, 0), (0.001, 20)], ids=["each by its tests", "by one test, then together"]
)
def test_a_small_project(cpu: float, rest: float, tmp_path: Path) -> None:
    """Found by a test that passes otherwise; not where values agree, nor where no test comes by, whatever runs the file; and nothing is judged twice."""
    for name, text in SMALL.items():
        (tmp_path / "project" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "project" / name).write_text(text)
    run = source.Run(tmp_path / "work", 60, tmp_path / "project")
    run.cpu, run.rest = cpu, rest
    texts = run.texts()
    chosen = [f for name in ("lightnet/calc.py", "lightnet/table.py") for f in faults(name, texts[name])]
    run.judge(chosen)
    verdicts = {(f.line, f.new): run.verdict(f) for f in chosen}
    assert verdicts == {
        (1, "11"): "found", (4, ">="): "survives", (4, "(not (x > LIMIT))"): "found", (4, "(True)"): "found",
        (4, "(False)"): "found", (5, "None"): "found", (6, "None"): "found", (9, "-"): "survives", (9, "2"): "survives",
        (9, "None"): "survives", (1, "3"): "found", (1, "5"): "found",  # with the last two no test can begin
    }  # fmt: skip
    assert {r["by"].partition("[")[0] for r in run.results.values() if r["verdict"] == "found"} == {
        "tests/test_calc.py::test_clamp", "collection"
    }  # fmt: skip
    assert {r["warm"] for r in run.results.values() if r["verdict"] == "found" and r["name"].split(":")[1] != "1"} == {
        True
    }
    assert {r["warm"] for r in run.results.values() if "warm" in r} == {True, False}
    again = source.Run(tmp_path / "work", 60, tmp_path / "project")
    again.cpu = cpu
    again.start = None  # type: ignore[method-assign]
    for fault in chosen:
        if again.verdict(fault) != "found":
            again.note(fault.name, "no test can")
    assert again.report(chosen) == 0
    assert np.load(run.work / "map.npz")["passed"].tolist().count(False) == 1
