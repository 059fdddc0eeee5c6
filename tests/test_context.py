"""Document 004's context, through its life cycle, against NumPy."""

from __future__ import annotations

import json

import numpy as np
import pytest

import lightnet
from lightnet.diagnostics import LightNetError
from lightnet.ir.module import main_of
from lightnet.ir.types import ParamAttr

X, W = np.float32([[1, -2, 3], [-4, 5, -6]]), np.float32([[2, 2, 2], [3, 3, 3]])
NET = (
    "create(| dst=x | dtype=TL_FLOAT, dims=[2, 3], data=[1, -2, 3, -4, 5, -6], ran=[0, 0], from_file=false);\n"
    "create(| dst=w | dtype=TL_FLOAT, dims=[2, 3], data=[0], ran=[0, 0], from_file=true);\n"
    "lrelu(src=x | dst=a | negslope=0.5);\n"
    'elew(src1=a, src2=w | dst=y | elew_op="TL_SUM");\n'
    "slice(src=y | dst=part | axis=1, start=0, len=2);\n"
)


@pytest.fixture
def context(tmp_path) -> lightnet.Context:
    (tmp_path / "n.net").write_text(NET)
    np.savez(tmp_path / "w.npz", w=W)
    context = lightnet.Context().init(tmp_path / "n.net")
    context.compile(datafile=tmp_path / "w.npz").load()
    return context


def want(x=X, w=W, slope=0.5) -> np.ndarray:
    return (np.where(x >= 0, x, slope * x) + w)[:, :2]


def refused(call, words: str) -> LightNetError:
    with pytest.raises(LightNetError) as info:
        call()
    assert words in str(info.value), info.value
    return info.value


def test_the_life_cycle(context):
    context.check()
    np.testing.assert_array_equal(context.run()["part"], want())
    context.set_data("x", 2 * X)
    np.testing.assert_array_equal(context.get_data("x"), 2 * X)
    np.testing.assert_array_equal(context.run()["part"], want(2 * X))
    np.testing.assert_array_equal(context.get_data("part"), want(2 * X))
    np.testing.assert_array_equal(context.run({"x": X + 1})["part"], want(X + 1))  # this run only
    np.testing.assert_array_equal(context.run()["part"], want(2 * X))
    context.set_data("w", 0 * W)
    np.testing.assert_array_equal(context.run()["part"], want(2 * X, 0 * W))
    context.load()  # from the start
    np.testing.assert_array_equal(context.run()["part"], want())
    assert context.data_size("x") == 24 and context.data_size("part") == 16 and context.data_size("a") == 24


def test_before_and_after(context, tmp_path):
    fresh = lightnet.Context()
    refused(fresh.check, "holds no network: call init first")
    refused(fresh.run, "not loaded: call load first")
    fresh.init(tmp_path / "n.net")
    refused(fresh.load, "not compiled: call compile first")
    fresh.compile()
    refused(lambda: fresh.set_data("x", X), "call load first")
    context.unload()
    refused(context.run, "call load first")
    context.load()
    np.testing.assert_array_equal(context.run()["part"], want())
    context.cleanup()
    refused(context.check, "call init first")
    refused(context.load, "not compiled")
    context.init(tmp_path / "n.net")
    context.compile("none", tmp_path / "w.npz").load()
    np.testing.assert_array_equal(context.run()["part"], want())


def too_long(ops: dict) -> None:
    ops["slice0"].properties["len"] = ParamAttr(9)


def read_too_early(ops: dict) -> None:
    ops["elew0"].operands[1] = ops["slice0"].results[0]


def moved_behind(ops: dict) -> None:
    op = ops["lrelu0"]
    op.detach()
    ops["elew0"].parent.insert_op_after(op, ops["elew0"])


def without_an_end(ops: dict) -> None:
    ops["slice0"].parent.last_op.detach()


@pytest.mark.parametrize(
    "spoil, line, words",
    [
        (too_long, 5, "slice: `slice0`'s `len` param's value should be <= 3, but gets a 9"),
        (read_too_early, 4, "operand 1 (%part) is used before it is defined"),
        (moved_behind, 4, "operand 0 (%a) is used before it is defined"),
        (without_an_end, 5, "ends its block, but is not a terminator"),
    ],
)
def test_check_finds_what_somebody_did_to_the_network(tmp_path, spoil, line, words):
    (tmp_path / "n.net").write_text(NET)
    context = lightnet.Context().init(tmp_path / "n.net")
    context.check()
    spoil({op.op_name: op for op in main_of(context.model.module).body.block.ops if op.name.startswith("ln.")})
    error = refused(context.check, words)
    assert error.loc is not None and error.loc.line == line


def test_what_can_be_read(context):
    np.testing.assert_array_equal(context.get_data("x"), X)
    np.testing.assert_array_equal(context.get_data("w"), W)
    refused(lambda: context.get_data("part"), "has no value yet: call run first")
    context.run()
    context.set_data("x", X)
    context.run()
    for name, held in (("part", want()), ("x", X), ("w", W)):  # a result, what was fed, what was loaded
        context.get_data(name)[:] = 0
        np.testing.assert_array_equal(context.get_data(name), held)
    np.testing.assert_array_equal(context.run()["part"], want())
    error = refused(lambda: context.get_data("a"), "outputs=['a']")
    assert "keep it with" in str(error)
    refused(lambda: context.get_data("nothing"), "no tensor is called 'nothing'")
    refused(lambda: context.data_size("nothing"), "no tensor is called 'nothing'")
    context.compile(outputs=["a"]).load()
    context.run()
    np.testing.assert_array_equal(context.get_data("a"), np.where(X >= 0, X, 0.5 * X))


def test_data_is_checked(context):
    refused(lambda: context.set_data("x", X[0]), "'x' has shape [2, 3], but gets [3]")
    refused(lambda: context.set_data("a", X), "cannot be fed: the network computes it")
    refused(lambda: context.set_data("q", X), "no input or param is called 'q'")


def test_set_data_copies(context):
    mine = X.copy()
    context.set_data("x", mine)
    mine[:] = 0
    np.testing.assert_array_equal(context.run()["part"], want())


def test_set_param_compiles_again_and_keeps_fed_data(context):
    context.set_data("x", 2 * X)
    context.run()
    context.set_param("lrelu0", "negslope", 0.25)
    refused(lambda: context.get_data("part"), "call run first")
    np.testing.assert_array_equal(context.run()["part"], want(2 * X, slope=0.25))
    context.set_param("slice0", "start", 1)
    np.testing.assert_array_equal(context.run()["part"], (np.where(X >= 0, 2 * X, X / 2) + W)[:, 1:])
    context.set_param("elew0", "elew_op", "TL_MUL")
    np.testing.assert_array_equal(context.run()["part"], (np.where(X >= 0, 2 * X, X / 2) * W)[:, 1:])
    context.set_param("create0", "data", np.arange(6.0))
    context.load()
    np.testing.assert_array_equal(context.get_data("x"), np.arange(6).reshape(2, 3))


def test_a_network_is_compiled_when_something_changed(context, tmp_path, monkeypatch):
    """And not for each use: what was loaded and made ready is what runs."""
    compiled = []

    def counted(*args, **options):
        compiled.append(lightnet.compile(*args, **options))
        return compiled[-1]

    monkeypatch.setattr("lightnet.context.compile", counted)

    def use() -> None:
        context.set_data("x", X)
        context.run()
        context.get_data("part")
        context.data_size("w")
        context.print(tmp_path / "out.json")

    for change, count in (
        (lambda: None, 0),
        (context.load, 0),
        (lambda: context.load({"w": 2 * W}), 1),
        (lambda: context.set_param("lrelu0", "negslope", 0.25), 1),
        (lambda: (context.unload(), context.load()), 1),
        (lambda: (context.compile(datafile={"w": W}), context.load()), 1),
    ):
        compiled.clear()
        change()
        use()
        use()
        assert len(compiled) == count


def test_set_param_refuses_and_changes_nothing(context):
    error = refused(lambda: context.set_param("slice0", "start", 2), "slice.range")
    assert error.loc is not None and error.loc.line == 5
    refused(lambda: context.set_param("slice0", "len", 1), "would change the type of its result from tensor<2x2xf32>")
    refused(lambda: context.set_param("lrelu0", "negslope", "x"), "should be of type LN_PARAM_NUMBER")
    refused(lambda: context.set_param("lrelu0", "slope", 1), "has no `slope` param; there are: negslope")
    refused(lambda: context.set_param("create0", "dims", [2, 3]), "is the type of its result")
    refused(lambda: context.set_param("create0", "data", [1, "a"]), "all numbers, all strings or all bools")
    refused(lambda: context.set_param("create0", "data", {}), "cannot be a dict")
    refused(lambda: context.set_param("nothing", "x", 1), "no op is called 'nothing'")
    np.testing.assert_array_equal(context.run()["part"], want())


def test_print_writes_the_compiled_network(context, tmp_path):
    context.print(tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text())["mem_sizes_l"]
    again = lightnet.Context().init(tmp_path / "out.json")
    again.compile(datafile=tmp_path / "w.npz").load()
    np.testing.assert_array_equal(again.run()["part"], want())
    refused(lambda: context.print(tmp_path / "no" / "out.json"), "cannot write")


def test_init_takes_what_load_takes(tmp_path):
    (tmp_path / "n.net").write_text(NET)
    context = lightnet.Context().init(tmp_path / "n.net", weights={"w": 2 * W}, shapes={"x": [2, 3]})
    context.compile().load()
    np.testing.assert_array_equal(context.run()["part"], want(w=2 * W))
    context.load({"w": np.float64(3 * W)})
    np.testing.assert_array_equal(context.run()["part"], want(w=3 * W))
    refused(lambda: context.compile("gpu"), "unknown target 'gpu'; there are: cpu, cuda, cudnn, dpu, none, tensorrt")
