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
from lightnet.frontends.loading import OpenError  # noqa: E402
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


def of(nodes: list, inputs: dict, weights: dict | None = None) -> bytes:
    """A model of nodes, (op, inputs, outputs, attributes), whose last output is its own."""
    kind, helper = onnx.TensorProto.FLOAT, onnx.helper
    graph = helper.make_graph(
        [helper.make_node(op, ins, outs, **attributes) for op, ins, outs, attributes in nodes], "g",
        [helper.make_tensor_value_info(name, kind, dims) for name, dims in inputs.items()],
        [helper.make_tensor_value_info(nodes[-1][2][0], kind, None)],
        [onnx.numpy_helper.from_array(value, name) for name, value in (weights or {}).items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def never(*args):
    raise AssertionError("a call compiles")


def test_one_executable_for_all_calls(monkeypatch, tmp_path) -> None:
    """A network of rows is compiled once; calls beyond its ranges are compiled for, each."""
    factors = f(16, 8) / 8
    source = of([("MatMul", ["x", "w"], ["a"], {}), ("Relu", ["a"], ["y"], {})], {"x": ["b", "l", 16]}, {"w": factors})
    run = lightnet.compile(source)
    special = run._compiled
    monkeypatch.setattr(run, "_compiled", never)
    for rows in ((1, 1), (3, 5), (2, 129), (1, 1024)):
        x = f(*rows, 16) - 100
        np.testing.assert_allclose(run(x)["y"], np.maximum(x @ factors, 0), rtol=1e-4, atol=1e-3)
        assert run.specialized({"x": x}).values == {"b": rows[0], "l": rows[1]}
    assert (
        run._quick is not None
        and run.is_native
        and not run._cache
        and run.program is run._general.program
        and "b(1..1024)" in run.ir()
    )
    run.save(tmp_path / "open.lnx")
    saved = lightnet.load_executable(tmp_path / "open.lnx")
    np.testing.assert_array_equal(saved(x)["y"], run(x)["y"])
    monkeypatch.setattr(run, "_compiled", special)
    x = f(1025, 1, 16)
    np.testing.assert_allclose(run(x)["y"], np.maximum(x @ factors, 0), rtol=1e-4)
    assert len(run._cache) == 1 and run.specialized({"x": x}) is next(iter(run._cache.values()))
    for wrong in ({"x": f(2, 3, 15)}, {"x": f(2, 3)}, {"z": x}, {}):
        refusal(run, wrong)
    made = [run._general, *run._cache.values()]
    run.close()
    assert run._quick is None and all(e.is_closed for e in made) and "closed" in refusal(run, x)


def test_sizes_that_one_executable_takes_to_be_equal() -> None:
    """What broadcasts in a call is compiled for it."""
    run = lightnet.compile(of([("Add", ["x", "y"], ["z"], {})], {"x": ["n", 3], "y": ["m", 3]}))
    assert run._general is not None
    for n, m in ((4, 4), (1, 4), (4, 1)):
        np.testing.assert_array_equal(run(f(n, 3), f(m, 3))["z"], f(n, 3) + f(m, 3))
    assert len(run._cache) == 2


@pytest.mark.parametrize(
    ("dims", "target", "is_general"),
    [
        ({"x": ["b", 3, 12, 12]}, "cpu", True), ({"x": [1, 3, "h", "w"]}, "cpu", False), ({"x": ["b", 3, 12, 12]}, "cuda", True),
        ({"x": [1, 3, "h", "w"]}, "cuda", False),
        ({"x": ["b", 3, 12, 12]}, "none", False),
    ],
)  # fmt: skip
def test_when_there_is_one_executable(dims: dict, target: str, is_general: bool) -> None:
    """Not where a convolution would run on loops, and where nothing is compiled."""
    source = of([("Conv", ["x", "w"], ["y"], {})], dims, {"w": f(8, 3, 3, 3)})
    run = lightnet.compile(source, target, **({"emulate": True} if target == "cuda" else {}))
    assert (run._general is not None) is is_general
    x = f(1, 3, 12, 12)
    want = lightnet.compile(lightnet.loads(source, ".onnx", shapes={"x": x.shape}), "none")({"x": x})["y"]
    np.testing.assert_allclose(run({"x": x})["y"], want, rtol=1e-4)


def test_elementwise_loops_are_fast_enough() -> None:
    run = lightnet.compile(of([("Exp", ["x"], ["y"], {})], {"x": [1, 3, "h", "w"]}))
    assert run._general is not None
    np.testing.assert_allclose(run(f(1, 3, 2, 5) / 99)["y"], np.exp(f(1, 3, 2, 5) / 99), rtol=1e-5)


def test_an_open_model_is_loaded_as_any_other() -> None:
    """Its dims are symbols; where a value decides, or `dims` says something else, as before."""
    model = lightnet.loads(open_model(), ".onnx")
    assert "tensor<?x3xf32" in str(model) and "n(1..1024)" in str(model) and model.warnings == []
    run = lightnet.compile(model)
    for n in (1, 7):
        np.testing.assert_array_equal(run(f(n, 3), f(n, 3))["z"], f(n, 3) * 2)
    assert "1025" in refusal(run, f(1025, 3), f(1025, 3))
    assert "n(1..9)" in str(lightnet.loads(open_model(), ".onnx", dims={"n": (1, 9)}))
    taught = lightnet.loads(of([("Add", ["x", "y"], ["z"], {})], {"x": ["n", 3], "y": ["m", 3]}), ".onnx")
    assert len(taught.warnings) == 1 and "(1..1024)" in str(taught)
    decides = of([("Reshape", ["x", "s"], ["y"], {})], {"x": ["n", 3]})
    decides = onnx.load_from_string(decides)
    decides.graph.input.append(onnx.helper.make_tensor_value_info("s", onnx.TensorProto.INT64, [2]))
    with pytest.raises(OpenError):
        lightnet.load(decides)
    np.testing.assert_array_equal(
        lightnet.compile(decides)({"x": f(2, 3), "s": np.array([3, 2])})["y"], f(2, 3).reshape(3, 2)
    )


def test_what_is_of_one_call_is_not_saved(tmp_path) -> None:
    """It has the code of that for all calls, which is; one that reads no size of its input is for all calls itself."""
    run = lightnet.compile(of([("Relu", ["x"], ["y"], {})], {"x": ["n", 3]}))
    for out in (run.specialized({"x": f(4, 3)}), run._general.specialized({"x": f(4, 3)})):
        assert "save that one" in refusal(out.save, tmp_path / "four.lnx") and not list(tmp_path.iterdir())
        assert "save that one" in refusal(pickle.dumps, out)
    unread = lightnet.compile(of([("Mul", ["c", "c"], ["y"], {})], {"x": ["n", 3]}, {"c": f(2, 3)}))
    unread.specialized({"x": f(4, 3)}).save(tmp_path / "none.lnx")
    np.testing.assert_array_equal(unread({"x": f(4, 3)})["y"], f(2, 3) ** 2)
    np.testing.assert_array_equal(lightnet.load_executable(tmp_path / "none.lnx")({"x": f(4, 3)})["y"], f(2, 3) ** 2)
