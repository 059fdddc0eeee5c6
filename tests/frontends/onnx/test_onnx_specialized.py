"""An executable whose shapes are open: what it keeps, what it says it has for each set of shapes only; and why an op is not imported."""

from __future__ import annotations

import pickle
import threading
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from test_onnx_refusals import f, open_model  # noqa: E402

import lightnet  # noqa: E402
from lightnet import specialize  # noqa: E402
from lightnet.diagnostics import LightNetError  # noqa: E402
from lightnet.frontends.onnx import functions, protos  # noqa: E402


def refusal(run, *args) -> str:
    with pytest.raises(LightNetError) as caught:
        run(*args)
    return caught.value.message


def test_what_is_kept(monkeypatch) -> None:
    run = lightnet.compile(open_model(), target="none")
    monkeypatch.setattr(specialize, "CAPACITY", 2)
    for rows in (1, 2, 1, 3):
        np.testing.assert_array_equal(run({"x": f(rows, 3), "y": f(rows, 3)})["z"], f(rows, 3) * 2)
    assert [key[0][1] for key in run._cache] == [(1, 3), (3, 3)]  # the one that was called longest ago is gone
    assert (run.weight_warnings, run.missing, run.is_native) == ([], [], False)
    assert {n: (tuple(dims), t) for n, (dims, t) in run.inputs.items()} == {n: (("n", 3), np.dtype("f4")) for n in "xy"}
    for read, what, how in ((lambda: run.plan, "memory plan", "plan"), (lambda: run.planned, "planned module", "planned"), (lambda: run.program, "program", "program"),
                            (run.ir, "module", "ir(stage)"), (lambda: run.save("x"), "file", "save(path)")):  # fmt: skip
        assert refusal(read) == f"there is a {what} for each set of shapes: `specialized(feeds).{how}`"
    assert refusal(run, {"x": f(1, 3), "w": f(1, 3)}).startswith("no input is called 'w'") or "'w'" in refusal(
        run, {"x": f(1, 3), "w": f(1, 3)}
    )
    again = pickle.loads(pickle.dumps(run))
    np.testing.assert_array_equal(again({"x": f(1, 3), "y": f(1, 3)})["z"], f(1, 3) * 2)
    run._made_of = None
    assert refusal(pickle.dumps, run).startswith(
        "an executable whose shapes are open goes to other processes as the path of its model, and this one has none"
    )
    run.signature["x"] = ("f8x", ("n", 3))
    assert refusal(run, {"x": f(1, 3), "y": f(1, 3)}) == "input 'x' has type f8x, which is not supported" and list(
        run.inputs
    ) == ["y"]


@pytest.mark.parametrize("fails", [False, True])
def test_what_another_thread_compiles_is_waited_for(monkeypatch, fails: bool) -> None:
    """Asleep: a thread looks once before, and once when there is an executable, or none and it makes one itself."""
    run = lightnet.compile(open_model(), target="none")
    feeds = {name: f(2, 3) for name in "xy"}
    begun, going, looks, made = threading.Event(), threading.Event(), Counter(), []
    key, compiled = run._key, run._compiled

    class Watched(threading.Condition):
        def wait(self, timeout=None):
            going.set()  # the lock is held until the thread sleeps
            return super().wait(timeout)

    def looked(arrays, deciding):
        name = threading.current_thread().name
        looks[name] += 1
        if looks[name] > 2:  # it does not sleep
            going.set()
        return key(arrays, deciding)

    def slowly(arrays, deciding):
        made.append(threading.current_thread().name)
        if len(made) > 1:
            return compiled(arrays, deciding)
        begun.set()
        assert going.wait(60)
        if fails:
            raise LightNetError("it failed")
        return compiled(arrays, deciding)

    for name, value in (("_key", looked), ("_compiled", slowly), ("_made", Watched(run._lock))):
        monkeypatch.setattr(run, name, value)
    found = {}

    def call() -> None:
        try:
            found[threading.current_thread().name] = run.specialized(feeds)
        except LightNetError as error:
            found[threading.current_thread().name] = error.message

    threads = [threading.Thread(target=call, name=name) for name in ("first", "second")]
    threads[0].start()
    assert begun.wait(60)
    threads[1].start()
    for thread in threads:
        thread.join(60)
    assert looks == {"first": 1, "second": 2} and not run._making
    assert made == (["first", "second"] if fails else ["first"])
    assert found["first"] == "it failed" if fails else found["first"] is found["second"]
    np.testing.assert_array_equal(found["second"](feeds)["z"], f(2, 3) * 2)


def test_dims_that_are_equal() -> None:
    for dims, other, want in (
        ((1, 2), (1, 3), (1, None)),
        ((1,), (1, 2), None),
        (None, (1,), None),
        ((None, 2), (5, 2), (None, 2)),
        ((), (), ()),
    ):
        assert specialize._either(dims, other) == want


@pytest.mark.parametrize(
    ("domain", "op", "opset", "reason"),
    [
        ("", "SequenceAt", 17, "sequences, optionals and maps are not supported"), ("", "Conv", 17, "the op is not supported yet: it needs a handler (docs/add-an-op.md)"), ("", "Softplus", 18, None),
        ("", "NoSuchOp", 17, "there is no such op in ONNX, opset 17"), ("x.y", "Conv", 1 << 40, f"there is no such op in domain 'x.y', opset {1 << 40}"),
    ],
)  # fmt: skip
def test_why_an_op_is_not_imported(domain: str, op: str, opset: int, reason: str | None) -> None:
    assert functions.why_not(SimpleNamespace(domain=domain, op_type=op), opset) == reason


def test_attributes_of_bodies() -> None:
    assert (
        protos._attribute("k", ()).type == onnx.AttributeProto.INTS
        and list(protos._attribute("k", (1, 2)).ints) == [1, 2]
        and protos._attribute("k", 0.5).f == 0.5
    )
    for value in (object(), (object(),)):
        assert refusal(protos._attribute, "k", value) == "the attribute 'k' cannot be passed to a function body"
