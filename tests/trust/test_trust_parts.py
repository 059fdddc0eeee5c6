"""Parts of `lightnet_trust` in this process, which elsewhere run in one of their own: judges of candidates, what two modules differ by, and what
is kept of an execution."""

from __future__ import annotations

import re

import numpy as np
import pytest

from lightnet.diagnostics import LightNetError
from lightnet.ir import watchdog
from lightnet.ir.context import make_context
from lightnet.ir.parser import parse_mlir
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.runtime.dtypes import BY_NAME
from lightnet_trust import compare, data, evaluation, record, reproducer, shrink, trace
from lightnet_trust.baseline import compare_modules, is_level4, lowered_to
from lightnet_trust.check import check_error
from lightnet_trust.judges import PipelineJudge
from lightnet_trust.record import Trace

NET = """func.func @main() -> tensor<2x3xf32> {
  %x = ln.input : tensor<2x3xf32> as ("x")
  %y = ln.relu %x : tensor<2x3xf32> as "r"("y")
  func.return %y : tensor<2x3xf32>
}"""


def module_of(text: str):
    return parse_mlir(make_context(), text, "net.mlir")


def test_a_pipeline_is_judged_by_its_message() -> None:
    """The label and the first line, without sizes and names; a module that it takes is of no interest."""
    none = PipelineJudge("crash", "bind").judge(NET)
    assert none.found is None and none.detail == "the passes 'bind' run without an error"
    found = PipelineJudge("crash", "check-plan").judge(NET)
    assert found.found is not None and found.detail
    again = PipelineJudge("crash", "check-plan").judge(NET.replace("%x", "%other").replace("2x3", "4x5"))
    assert again.found == found.found
    with pytest.raises(LightNetError):
        PipelineJudge("crash", "bind").judge("func.func @main() { ln.nothing }")


def test_a_check_that_finds_nothing_says_so() -> None:
    verdict = PipelineJudge("check", "bind,simplify").judge(NET)
    assert verdict.found is None
    assert verdict.detail.startswith("--check finds no pass of 'bind,simplify' that changes a result")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("ln.relu", "ln.neg", "differ"),
        ('ln.input : tensor<2x3xf32> as ("x")', 'ln.input {ran = [2.0, 3.0]} : tensor<2x3xf32> as ("x")', "where nobody feeds it"),
        ("ln.input", "ln.param", "was an ln.input before and is an ln.param after"),
        ("2x3", "3x2", "before and is .* after"),
        ("ln.relu %x", "ln.softmax %x {axis = 7}", "cannot be executed any more"),
    ],
)  # fmt: skip
def test_what_two_modules_differ_by(old: str, new: str, words: str) -> None:
    assert compare_modules(module_of(NET), module_of(NET)) is None
    difference = compare_modules(module_of(NET), module_of(NET.replace(old, new)))
    assert difference is not None
    assert re.search(words, difference.what), difference


def test_levels_are_told() -> None:
    """A list of launches is level 4; what a target lowers to is called by its first op, and a network by none."""
    network = module_of(NET)
    assert lowered_to(network) is None and not is_level4(network)
    lowered = module_of(NET)
    options = {"target": "cpu", "features": "avx2", "plan": "default"}
    run_pipeline(make_context(), lowered, parse_pipeline("@cpu", options))
    assert is_level4(lowered) and lowered_to(lowered) is not None
    alone = module_of("func.func @f(%x: i64) -> i64 { %y = arith.addi %x, %x : i64 func.return %y : i64 }")
    assert lowered_to(alone) == "arith.addi" and not is_level4(alone)
    assert lowered_to(module_of("func.func @main() { func.return }")) is None
    assert not is_level4(module_of("func.func @main() { func.return }"))


def test_tensors_are_kept_while_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the budget; a name that two tensors have stands for neither."""
    monkeypatch.setattr(record, "TRACE_BUDGET", 24)
    trace, array, other = Trace(), np.zeros(3, np.float32), np.ones(3, np.float32)
    trace.keep("a", array, array)
    trace.keep("b", other, other)  # 24 bytes in all
    trace.keep("c", array, array)
    assert set(trace.values) == {"a", "b"} and trace.unkept == 1
    trace.keep("a", array, array)  # the same once more
    assert "a" in trace.values
    trace.keep("a", array, other)
    assert set(trace.values) == {"b"} and trace.ambiguous == {"a"}
    trace.keep("a", array, array)
    assert set(trace.values) == {"b"} and trace.unkept == 1


# -- comparing
@pytest.mark.parametrize(("name", "digits", "roundings"), [
    ("f64", 52, compare.ROUNDINGS), ("f32", 23, compare.ROUNDINGS), ("f16", 10, compare.SHORT_ROUNDINGS), ("bf16", 7, compare.SHORT_ROUNDINGS),
    ("f8E4M3FN", 3, compare.SHORT_ROUNDINGS), ("f8E5M2", 2, compare.SHORT_ROUNDINGS), ("f4E2M1FN", 1, compare.SHORT_ROUNDINGS), ("i32", None, 0), ("i1", None, 0), ("i4", None, 0),
])  # fmt: skip
def test_what_rounding_explains(name: str, digits: int | None, roundings: float) -> None:
    """Some units in the last place; nothing of integers and bools."""
    assert compare.tolerance(BY_NAME[name].np) == (0 if digits is None else roundings * 2.0**-digits)


def test_where_tensors_differ() -> None:
    """Within the tolerance of an element and the largest; NaN and infinities are what they were; the worst element is told."""
    old = np.array([[1.0, 100.0, np.nan], [np.inf, -2.0, 0.0]], np.float32)
    assert compare.mismatch(old, old.copy(), True) is None
    near = float(np.finfo(np.float32).eps) * compare.ROUNDINGS * 101
    for off, differs in ((near * 0.9, False), (near * 1.2, True)):
        new = old.copy()
        new[0, 0] += np.float32(off)
        assert (compare.mismatch(old, new, False) is not None) == differs and compare.mismatch(
            old, new, True
        ) is not None
        assert compare.mismatch(old, new, False, 1e-2) is None
    new = old.copy()
    new[0, 1], new[1, 1] = 90, 30
    found = compare.mismatch(old, new, False)
    assert found is not None and (found.index, found.count, found.total, found.largest) == ((1, 1), 2, 6, 32.0)
    assert str(found) == "[1, 1] is -2.0 before and 30.0 after; 2 of 6 elements differ"
    for value, at in ((np.nan, (0, 0)), (-np.inf, (0, 0))):
        new = old.copy()
        new[at] = value
        assert (
            compare.mismatch(old, new, False, 1.0).index == at
            and compare.mismatch(old, new, False, 1.0).largest == np.inf
        )
    one = compare.mismatch(np.array(True), np.array(False), True)
    assert str(one) == " is true before and false after" and one.largest == 1
    assert (
        str(compare.mismatch(np.array([1, 2]), np.array([1, 3]), False))
        == "[1] is 2 before and 3 after; 1 of 2 elements differ"
    )
    quiet, other = (np.array([bits], np.uint32).view(np.float32) for bits in (0x7FC00000, 0x7FC00001))
    assert compare.mismatch(quiet, other, True) is None  # of NaNs the bits do not count
    assert compare.mismatch(np.zeros(1, np.float32), -np.zeros(1, np.float32), True) is not None
    assert compare.mismatch(np.zeros(1, np.float32), -np.zeros(1, np.float32), False) is None


@pytest.mark.parametrize(("values", "says"), [
    ([], None), ([np.nan, np.inf], "NaN"), ([np.inf, -np.inf], "infinite"), ([np.inf, 1], None), ([2, 2, 2], "constant"), ([2], None), ([2, 3], None), ([np.nan, 1], None),
])  # fmt: skip
def test_what_agreement_says_nothing(values: list[float], says: str | None) -> None:
    assert compare.says_nothing(np.array(values, np.float32)) == says
    if not any(v != v or abs(v) == np.inf for v in values):
        assert compare.says_nothing(np.array(values, np.int32)) == says


def test_bytes_are_the_same() -> None:
    a = np.array([0.0, 1.0], np.float32)
    assert (
        evaluation.same_bytes(a, a.copy())
        and not evaluation.same_bytes(a, -a)
        and not evaluation.same_bytes(a, a.astype(np.float64))
    )
    assert not evaluation.same_bytes(a, a.reshape(1, 2))
    nan = np.array([np.nan, 1.0], np.float32)
    assert evaluation.same_bytes(nan, nan.copy())


# -- shrinking, data, replaying
@pytest.mark.parametrize(("value", "smaller"), [
    (0, []), (1, [0]), (2, [0, 1]), (3, [0, 1]), (7, [0, 1, 3]), (-1, [0]), (-7, [0, 1, -3]), (0.5, [0]), (9.5, [0, 1, 4]), (True, [0]),
    (1 << 53, [0, 1, 1 << 52]), ((1 << 53) + 1, [0, 1]), (-(1 << 54), [0, 1]), (float("nan"), [0, 1]), (float("inf"), [0, 1]), ("a", [0, 1]),
])  # fmt: skip
def test_simpler_numbers(value: object, smaller: list[int]) -> None:
    assert shrink._simpler(value) == smaller


def test_awkward_contents_by_kind_of_operand() -> None:
    """What becomes of numbers drawn in 2..3, and of how many: small ones for a bias, so that no sum is a bias alone."""
    drawer = data._Drawer("awkward", 3, evaluation.RememberingEvaluator(), None, data.WIDE)
    drawn = np.random.default_rng(0).uniform(2.1, 2.9, (40, 50)).astype(np.float32)
    made = {
        "data": (np.float32(data.WIDE), 0.5),
        "bias": (np.float32(np.array(data.WIDE) * 0.01), 0.5),
        "weight": (np.float32([0]), 0.25),
        "scale": (-drawn, 0.3),
    }
    for kind in ("data", "bias", "weight", "scale", "index", "anchor", "variance", "mean"):
        found = drawer.awkward("t", kind, drawn, BY_NAME["f32"], False)
        assert found.dtype == drawn.dtype and found.shape == drawn.shape
        wanted, share = made.get(kind, (drawn, 0))
        changed = found != drawn
        assert abs(changed.mean() - share) < 0.05, kind
        assert {*found[changed].tolist()} <= {*wanted.ravel().tolist()}, kind
        assert kind not in ("data", "bias") or {*found[changed].tolist()} == {*wanted.tolist()}
    within = drawer.awkward("t", "data", drawn - 2, BY_NAME["f32"], True)
    assert {*within[within != drawn - 2].tolist()} == {*np.float32([0, 0.5, 0.1, 1e-3]).tolist()}
    bits = drawn > 2.5
    assert drawer.awkward("t", "data", bits, BY_NAME["i1"], False) is bits


def test_awkward_whole_numbers() -> None:
    """The ends of the range, a third of the top, and small ones; of 4 bits as much as fits."""
    assert data._whole_numbers(BY_NAME["i8"]).tolist() == [-128, 127, 42, 0, 1, 2, 2, 7, 100]
    assert data._whole_numbers(BY_NAME["ui16"]).tolist() == [0, 65535, 21845, 0, 1, 2, 2, 7, 100]
    four = data._whole_numbers(BY_NAME["i4"])
    assert four.dtype == BY_NAME["i4"].np and four.astype(np.int64).tolist() == [-8, 7, 2, 0, 1, 2, 2, 7, 7]


def test_a_recipe_comes_back() -> None:
    recipe = reproducer.Recipe("bind,simplify", ("a b.py",), {"rewrite-limit": 3}, "w.npz")
    text = reproducer.reproducer_text(module_of(NET), recipe, ValueError("no\nüber"))
    lines = text.split("\n")
    assert reproducer.read_recipe(text, "f") == recipe
    assert lines[1:4] == [
        "// Replay it: ln-opt --run-reproducer FILE --load 'a b.py'",
        "// error: ValueError: no",
        "// \\xfcber",
    ]
    assert module_of(text) and reproducer.versions().keys() >= {"python", "machine", "lightnet", "numpy"}


MARK = reproducer.MARK
RECIPES = [
    ("", f"not a reproducer: its first line should begin with `{MARK.strip()}`"),
    (MARK + "{", "the reproducer's first line is malformed: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
    (MARK + "[]", "the reproducer's first line should be an object with a pipeline"),
    (MARK + "{}", "the reproducer's first line should be an object with a pipeline"),
    (MARK + '{"pipeline": 1}', "the reproducer's first line should be an object with a pipeline"),
    (MARK + '{"pipeline": "", "load": "a"}', "the reproducer's `options` should be an object, its `load` an array of strings"),
    (MARK + '{"pipeline": "", "load": [1]}', "the reproducer's `options` should be an object, its `load` an array of strings"),
    (MARK + '{"pipeline": "", "options": []}', "the reproducer's `options` should be an object, its `load` an array of strings"),
    (MARK + '{"pipeline": ""}' + " " * reproducer.MAX_LINE, "the reproducer's first line should be an object with a pipeline"),
]  # fmt: skip


def test_recipes_that_are_none() -> None:
    for text, message in RECIPES:
        with pytest.raises(LightNetError) as caught:
            reproducer.read_recipe(text, "f")
        assert caught.value.message == message and str(caught.value.loc) == "f:1:1"
    full = (MARK + '{"pipeline": "a"}').ljust(reproducer.MAX_LINE)
    assert reproducer.read_recipe(full + "\nmore", "f") == reproducer.Recipe("a", (), {}, None)
    assert reproducer.read_recipe(MARK + '{"pipeline": "a", "weights": 5}', "f").weights is None


def test_large_tensors_are_not_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MAX_TENSOR_BYTES", 24)
    trace.check_size(module_of(NET))
    monkeypatch.setattr(trace, "MAX_TENSOR_BYTES", 23)
    with pytest.raises(LightNetError, match="'x' takes 0 MiB: tensors of more than 0 MiB are not executed"):
        trace.check_size(module_of(NET))


def test_a_watchdog_is_of_the_main_thread() -> None:
    """0 seconds and other threads set no timer; what was there before is there behind."""
    import signal
    import threading

    found = []

    def look(seconds: float) -> None:
        with watchdog.pattern_timeout(seconds):
            found.append(signal.getitimer(signal.ITIMER_REAL)[0] > 0)

    before = signal.getsignal(signal.SIGALRM)
    look(0)
    look(0.5)
    thread = threading.Thread(target=look, args=(0.5,))
    thread.start()
    thread.join()
    assert found == [False, True, False]
    assert signal.getsignal(signal.SIGALRM) is before and signal.getitimer(signal.ITIMER_REAL)[0] == 0


@pytest.mark.parametrize("seconds", [1 / 64, 1 / 8, 1 / 2, 1, 8])
@pytest.mark.parametrize("began", [0, 1 / 4, 3 / 4])
def test_a_watchdog_looks_as_often_as_it_must(monkeypatch: pytest.MonkeyPatch, seconds: float, began: float) -> None:
    """On a clock of the test's own. A match that began anywhere between two looks is never stopped before its time, and
    soon after it; a short time takes three looks, a long one one in each period."""
    import signal

    clock, match = [0.0], [None]
    timers: list[float] = []
    monkeypatch.setattr(signal, "setitimer", lambda which, first, every=0.0: timers.extend((first, every)))
    monkeypatch.setattr(watchdog.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(watchdog.rewrites, "matching", lambda: match[0])
    looks = 0
    with pytest.raises(KeyboardInterrupt), watchdog.pattern_timeout(seconds):
        look, (first, every) = signal.getsignal(signal.SIGALRM), timers
        assert first == every > 0
        look(signal.SIGALRM, None)
        clock[0] += every
        look(signal.SIGALRM, None)  # no match goes on
        match[0] = object()
        begin = clock[0] + began * every
        while looks < 1000:
            clock[0] += every
            looks += 1
            look(signal.SIGALRM, None)
    assert seconds <= clock[0] - begin <= seconds + 2 * min(watchdog.PERIOD, seconds)
    assert looks <= max(3, seconds / watchdog.PERIOD + 1)
    assert timers[2:] == [0, 0]


def test_an_error_names_the_tensor_that_differs_if_there_is_one() -> None:
    (pass_,) = parse_pipeline("simplify")
    for tensor, note in (("y", "'y' is now computed by cpu.kernel \"t\""), (None, 'at cpu.kernel "t"')):
        error = check_error(record.Difference("fails", "it does not run", tensor, op='cpu.kernel "t"'), pass_, None)
        assert error.message == "pass 'simplify' changed the result: it does not run" and error.label == "check.fails"
        assert error.notes == [(None, note)]
