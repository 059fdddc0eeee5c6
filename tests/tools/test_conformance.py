"""What ONNX's backend suite and the NNVM networks say of us does not fall below the checked-in floor: here a share of the
cases, in `python tools/conformance.py --check` all of them. And the tool itself: it counts what agrees, and nothing else."""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import sampling

import lightnet

onnx = pytest.importorskip("onnx")
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from suites import floor, page, pool, runners  # noqa: E402
from suites.cases import Case, Problem, cases_in, collect, modules  # noqa: E402
from suites.runners import CRASH, ERROR, PASS, TIMEOUT, UNSUPPORTED, WRONG, Result  # noqa: E402

TOOL = [sys.executable, str(ROOT / "tools" / "conformance.py"), "--check", "--jobs", "1"]
X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    "share",
    [
        ["--suite=node", "--suite=node-expanded", "--every=12"],
        ["--suite=simple", "--suite=pytorch-converted", "--suite=pytorch-operator", "--suite=nnvm", "--every=6"],
        ["--suite=real"],
    ],
    ids=lambda words: words[0].partition("=")[2],
)
def test_the_floor_holds(share):
    done = subprocess.run([*TOOL, *share], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("floor: holds\n")


def test_the_page_is_of_the_floor():
    """The totals on the page are the sizes of the floor's suites."""
    known = floor.read()
    text = (ROOT / "docs" / "conformance.md").read_text("utf-8")
    for suite, names in known.passing.items():
        row = next(line for line in text.splitlines() if line.startswith(f"| {suite}:"))
        assert int(re.match(r"\d+", row.split("|")[3].strip())[0]) == len(names)


@pytest.fixture(scope="module")
def suite() -> list[Case]:
    return collect()


def test_every_case_is_collected(suite):
    counts = Counter(c.suite for c in suite)
    assert len({c.key for c in suite}) == len(suite)
    if version("onnx") != "1.23.2":
        pytest.skip("the counts are those of onnx 1.23.2")
    for suite_of_ours in ("nnvm", "com.microsoft", "ai.onnx.ml"):
        counts.pop(suite_of_ours, 0)
    assert counts == {"node": 1404, "node-expanded": 480, "simple": 23, "pytorch-converted": 82,
                                    "pytorch-operator": 35, "real": 9}  # fmt: skip


def test_cases_know_what_they_test(suite):
    by_key = {c.key: c for c in suite}
    relu, clip = by_key["node/relu"], by_key["node-expanded/clip_expanded"]
    assert (relu.op, relu.since, relu.dtype) == ("Relu", 14, "float")
    assert (clip.op, clip.dtype) == ("Clip", "float")  # of the op that is expanded, not of its body
    assert by_key["node/loop11"].tags >= {"control flow"} and "string" in by_key["node/string_split_basic"].tags


#: The core of an op's cases, spread over all that it has; a date draws from the others.
OF_AN_OP = 2


@pytest.mark.sampled(every=3, share=0.2)
@pytest.mark.parametrize("module", modules())
def test_what_ops_compute(module):
    """Cases of every op, by the references of the ops that it is made of: without machine code most of them take milliseconds."""
    known = floor.read()
    ops = defaultdict(list)
    for case in cases_in(module):
        if case.key in known:
            ops[case.op].append(case)
    for op, cases in ops.items():
        for case in sampling.draw(cases, op, every=-(-len(cases) // OF_AN_OP)):
            problem = case.load()
            run = lightnet.compile(problem.model.SerializeToString(), "none")
            for feeds, expected in problem.sets:
                assert not runners.compare(problem, expected, run(feeds)), case.key


def test_modules_have_all_cases(suite):
    found = {c.key for module in modules() for c in cases_in(module)}
    assert found == {c.key for c in suite if c.suite == "node"}


def problem(want: np.ndarray = X, **options) -> Problem:
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    values = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, X.shape) for n in "xy"]
    graph = onnx.helper.make_graph([node], "g", values[:1], values[1:])
    return Problem(onnx.helper.make_model(graph), [({"x": X}, {"y": want})], **options)


class Given:
    """A runner that returns what it is given."""

    name, package, outputs = "given", "onnx", {}

    @classmethod
    def prepare(cls, _):
        return lambda feeds: cls.outputs


@pytest.mark.parametrize(
    ("got", "status"),
    [
        ({"y": X}, PASS),
        ({"y": X + np.float32(5e-4) * X}, PASS),
        ({"y": X + np.float32(1e-2)}, WRONG),
        ({"y": X.astype(np.float64)}, WRONG),
        ({"y": X.reshape(3, 2)}, WRONG),
        ({"y": X[:1]}, WRONG),
        ({"y": np.where(X == 3, np.float32(np.nan), X)}, WRONG),
        ({"z": X}, WRONG),
        ({"y": X, "z": X}, WRONG),
        ({}, WRONG),
        ({"y": X.tolist()}, WRONG),
        ({"y": None}, WRONG),
    ],
)
@pytest.mark.parametrize("options", [{}, {"of_largest": 1e-3}], ids=["suite", "largest"])
def test_only_what_agrees_passes(got, status, options, monkeypatch):
    monkeypatch.setitem(runners.RUNNERS, "given", Given)
    monkeypatch.setattr(Given, "outputs", got)
    result = runners.judge("given", Case("node", "c", lambda: problem(**options)))
    assert result.status == status and bool(result.detail) == (status != PASS)


def crash():
    faulthandler.disable()  # pytest's would print where
    os.kill(os.getpid(), signal.SIGSEGV)


def exhaust():
    return np.ones(pool.MEMORY + (1 << 30), np.uint8)


def fail():
    raise ZeroDivisionError("no")


def test_a_case_harms_no_other():
    """A crash, a hang, an exception and too much memory cost one case each."""
    loads = [problem, crash, problem, lambda: time.sleep(100), fail, exhaust, problem]
    cases = [Case("node", str(i), load) for i, load in enumerate(loads)]
    found = {c.name: r for _, c, r in pool.run(cases, ["reference"], jobs=2, limit=5)}
    assert [found[str(i)].status for i in range(7)] == [PASS, CRASH, PASS, TIMEOUT, ERROR, ERROR, PASS]
    assert found["1"].detail == "SIGSEGV" and found["5"].detail == "out of memory"


def test_the_floor_file(tmp_path):
    path = tmp_path / "floor.json"
    assert floor.read(path).passing == {}
    floor.write("1.2", ["node/b", "real/a", "node/a"], path)
    known = floor.read(path)
    assert known.onnx == "1.2" and known.passing == {"node": {"a", "b"}, "real": {"a"}}
    assert "node/a" in known and "real/b" not in known and "simple/a" not in known


@pytest.mark.parametrize("name", ["dft_inverse", "attention_4d_causal_fp16_expanded"])
def test_what_is_called_wrong_is_nearer(name):
    """Cases that we fail since the suite's own rounding is larger than its tolerance: we are nearer to what f64 gives."""
    case = next(c for c in collect() if c.name == name)
    ((feeds, expected),) = (problem := case.load()).sets
    x = [np.asarray(a, np.float64) for a in feeds.values()]
    if name == "dft_inverse":
        y = np.fft.ifft(x[0][..., 0] + 1j * x[0][..., 1], axis=1)
        exact = np.stack([y.real, y.imag], -1)
    else:
        scores = x[0] @ x[1].swapaxes(-1, -2) / np.sqrt(x[0].shape[-1])
        scores = np.where(np.tril(np.ones(scores.shape[-2:])), np.exp(scores), 0)
        exact = scores / scores.sum(-1, keepdims=True) @ x[2]
    (ours,) = lightnet.compile(problem.model.SerializeToString(), "none")(feeds).values()
    theirs = next(iter(expected.values())) if isinstance(expected, dict) else expected[0]
    off = [np.abs(np.asarray(a, np.float64) - exact) for a in (ours, theirs)]
    where = np.abs(exact) < 1e-9  # the tolerance is absolute there
    assert off[0].max() <= off[1].max() * 1.01
    assert not where.any() or off[0][where].max() < 1e-12 < 1e-7 < off[1][where].max()


def test_reasons_and_page():
    cases = [
        Case("node", "add", problem, "Add", 14, "float"),
        Case("node", "add_f8", problem, "Add", 14, "complex64", frozenset({"element type"})),
        Case("node", "loop", problem, "Loop", 13, "float", frozenset({"control flow"})),
        Case("node", "abs", problem, "Abs", 13, "int8"),
        Case("real", "net", problem),
    ]
    results = [Result(PASS), Result(UNSUPPORTED, "type COMPLEX64 is not supported"), Result(UNSUPPORTED, "Loop (#0): no"),
               Result(WRONG, "y differs by 3 (largest value 1)"), Result(PASS, folded=True)]  # fmt: skip
    ours = {c.key: r for c, r in zip(cases, results)}
    assert [page.reason(c, ours[c.key]) for c in cases[1:4]] == ["element type", "control flow", "wrong"]
    text = page.page(cases, {"lightnet": ours, "onnxruntime": ours}, "command", "a machine")
    assert (
        "| node: one op each | 4 | 1 (25 %) |  |  | 1 (25 %) |" in text
        and "| real: whole networks | 1 | 1 (all) | 1 |  |" in text
    )
    assert "| Add | 1/2 |  | 14 (1/2) | f32, ~~complex64~~ | 1 element type |" in text
    assert (
        "so it is in 1 of the 2 cases that pass" in text
        and "**1 of 2** of those single-op" in text
        and "y differs by 3 (largest value 1): `abs`" in text
    )
