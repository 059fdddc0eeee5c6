"""The tools on networks whose dims calls decide: every command ends well, or with an error that names the dim; none with a
traceback. Values are ONNX Runtime's; a small attention block has a batch and a length that are open."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import lightnet as ln  # noqa: E402
from lightnet.cli import ln_opt  # noqa: E402
from lightnet.cli.lightnet import main  # noqa: E402
from lightnet.diagnostics import LightNetError  # noqa: E402
from lightnet_report.plan_report import plan_report  # noqa: E402

DIMS = ["--dim", "batch=1..8", "--dim", "length=1..32"]


def attention() -> onnx.ModelProto:
    """softmax(xQ · (xK)ᵀ) · xV + x, the lengths from `Shape`."""
    random = np.random.default_rng(3)
    weights = [numpy_helper.from_array(random.standard_normal((8, 8)).astype(np.float32) / 3, n) for n in "qkv"]
    nodes = [helper.make_node("MatMul", ["x", n], [f"x{n}"]) for n in "qkv"]
    nodes += [
        helper.make_node("Transpose", ["xk"], ["t"], perm=[0, 2, 1]), helper.make_node("MatMul", ["xq", "t"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"], axis=-1), helper.make_node("MatMul", ["p", "xv"], ["o"]),
        helper.make_node("Shape", ["x"], ["dims"]), helper.make_node("Reshape", ["o", "dims"], ["r"]),
        helper.make_node("Add", ["r", "x"], ["y"]),
    ]  # fmt: skip
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "length", 8])]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "length", 8])]
    graph = helper.make_graph(nodes, "attention", given, made, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def tool(capfd, tmp_path, monkeypatch):
    """Run `lightnet` (or `ln-opt`) in a folder with the network: (status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    onnx.save(attention(), "net.onnx")
    for batch, length in ((1, 1), (3, 7), (8, 32)):
        np.save(f"x{batch}.npy", np.random.default_rng(batch).standard_normal((batch, length, 8)).astype(np.float32))

    def run(*words: str) -> tuple[int, str, str]:
        capfd.readouterr()
        program, rest = (ln_opt.main, words[1:]) if words[0] == "ln-opt" else (main, words)
        try:
            status = program([*rest])
        except SystemExit as e:
            status = e.code or 0
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return status, out, err

    return run


@pytest.mark.parametrize("target", ["cpu", "none"])
@pytest.mark.parametrize("batch", [1, 3, 8])
def test_a_run_of_each_shape_agrees(tool, batch, target) -> None:
    words = ["net.onnx", *DIMS, "-i", f"x=@x{batch}.npy", "-t", target]
    status, out, _ = tool("run", *words, "--compare", "onnxruntime")
    assert status == 0 and out.count("agrees") == 1
    status, out, _ = tool("run", *words, "--compare", "interpreter", "--layers")
    assert status == 0 and re.search(r"all \d+ tensors agree|agrees", out)


def test_every_tensor_of_a_call_is_looked_at(tool) -> None:
    words = ["run", "net.onnx", *DIMS, "-i", "x=@x3.npy"]
    status, out, _ = tool(*words, "--compare", "onnxruntime", "--layers", "--tensors", "all")
    assert status == 0 and re.search(r"^s +matmul\S* .*3x7x7", out, re.M)
    status, out, _ = tool(*words, "--check-nan", "--dump-tensors", "all.npz")
    assert status == 0 and "no NaN or infinity" in out
    with np.load("all.npz") as found:
        x = np.load("x3.npy")
        assert found["p"].shape == (3, 7, 7)
        want = ort.InferenceSession(attention().SerializeToString()).run(None, {"x": x})[0]
        np.testing.assert_allclose(found["y"], want, atol=1e-5)


def test_nan_is_found_in_a_call(tool) -> None:
    x = np.load("x3.npy")
    x[1, 2, 3] = np.nan
    np.save("bad.npy", x)
    status, out, _ = tool("run", "net.onnx", *DIMS, "-i", "x=@bad.npy", "--check-nan")
    assert status == 1 and "'x' has 1 NaN of 168 elements" in out


def test_a_profile_is_of_the_shapes_that_are_fed(tool) -> None:
    status, out, _ = tool("run", "net.onnx", *DIMS, "-i", "x=@x3.npy", "--profile", "--rounds", "1")
    assert status == 0 and "3x7x8" in out and re.search(r"sum of \d kernels", out)
    status, _, _ = tool("run", "net.onnx", *DIMS, "-i", "x=@x8.npy", "--profile=trace.json", "--rounds", "1")
    assert status == 0 and "8x32x8" in Path("trace.json").read_text()


def test_random_contents_have_typical_dims_or_those_of_other_inputs(tool) -> None:
    status, out, err = tool("run", "net.onnx", *DIMS, "-i", "random")
    assert status == 0 and "2x8x8" in out
    assert "note: 'x' is made for batch = 2 and length = 8: --dim batch=N is for another one" in err
    status, out, err = tool("run", "net.onnx", "--dim", "batch=3", "--dim", "length=1..32", "-i", "random")
    assert status == 0 and "3x8x8" in out and "made for length = 8:" in err
    add = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["y"])], "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 2]) for n in "ab"],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])],
    )  # fmt: skip
    onnx.save(helper.make_model(add, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "add.onnx")
    np.save("b.npy", np.ones((5, 2), np.float32))
    status, out, err = tool("run", "add.onnx", "--dim", "n=1..99", "-i", "zeros", "-i", "b=@b.npy")
    assert status == 0 and "5x2" in out and "made for" not in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-i", "x=@x8.npy", "--dim", "batch=1..4", "--dim", "length=1..32"], "dim 0 of 'x' is 8: batch is 8, not in 1..4"),
        (["-i", "x=1,2", *DIMS], "numbers need --shape"),
        (DIMS, "the network needs input 'x'"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("target", ["cpu", "none"])
def test_what_does_not_fit_is_an_error(tool, words, message, target) -> None:
    words = words if "-t" in words else ["-t", target, *words]
    status, _, err = tool("run", "net.onnx", *words)
    assert status == 1 and message in err


@pytest.mark.parametrize("to", ["f16", "bf16"])
def test_short_types(tool, to) -> None:
    status, out, _ = tool("run", "net.onnx", *DIMS, "-i", "x=@x8.npy", "--precision", to, "--compare", "onnxruntime")
    assert status == 0 and "agrees" in out


@pytest.mark.parametrize("high", [4, 1 << 20])
def test_sums_are_short_where_the_longest_would_be(tool, high) -> None:
    """A decision on all calls is that for the largest, which a static network shows."""
    text = (
        'func.func @main() -> tensor<1xf32> {\n%x = ln.input : TYPE as ("x")\n'
        "%s = ln.reduce_sum %x {axes = [0]} : tensor<1xf32>\nfunc.return %s : tensor<1xf32>\n}\n"
    )
    found = []
    for type in (f'tensor<?xf32, #ln.dims<"n(1..{high})">>', f"tensor<{high}xf32>"):
        Path("sum.mlir").write_text(text.replace("TYPE", type))
        status, out, _ = tool("ln-opt", "sum.mlir", "--pass=precision{to=f16}")
        found.append("f16" in out)
        assert status == 0
    assert found[0] == found[1]


# -- reports


def test_inspect_tells_ranges_figures_and_memory(tool) -> None:
    status, out, _ = tool("inspect", "net.onnx", *DIMS, "--layers")
    assert status == 0 and "input  x batchxlengthx8 f32" in out
    assert "each call decides: batch in 1..8, length in 1..32; figures are for batch = 2, length = 8" in out
    assert re.search(r"low +.* where batch = 1, length = 1", out) and re.search(r"high .*batch = 8, length = 32", out)
    assert re.search(r"in all +.*batch\*length", out)
    status, out, _ = tool("inspect", "net.onnx", *DIMS, "--json")
    found = json.loads(out)
    assert status == 0 and found["inputs"][0]["dims"] == ["batch", "length", 8]
    static = json.loads(tool("inspect", "net.onnx", "--shape", "x=2x8x8", "--json")[1])
    assert found["flops"] == static["flops"] and found["bytes"] == static["bytes"]
    status, out, _ = tool("inspect", "net.onnx", *DIMS, "-t", "cuda")
    assert status == 0 and re.search(r"in all +.*batch\*length", out)


def test_memory_of_calls_is_that_of_the_plan(tool) -> None:
    executable = ln.compile(ln.load("net.onnx", dims={"batch": (1, 8), "length": (1, 32)}))
    report = plan_report(executable.planned)
    assert report.calls is not None
    for call in report.calls.calls:
        values = (call.values["batch"], call.values["length"])
        assert call.nbytes == executable.instance.of(values).program.memory["arena"]
    assert report.plan.peak <= report.calls.typical.nbytes


@pytest.mark.parametrize("form", ["txt", "json", "svg", "html", "dot"])
def test_reports_of_open_networks(tool, form) -> None:
    status, _, _ = tool("net.onnx", *DIMS, "-c", "--report", f"report.{form}")
    text = Path(f"report.{form}").read_text()
    assert status == 0 and len(text) > 300
    if form == "json":
        assert [c["kind"] for c in json.loads(text)["calls"]["calls"]] == ["low", "typical", "high"]
    elif form != "dot":
        assert "batch = 2, length = 8" in text


def test_watching_passes_of_open_networks(tool) -> None:
    words = ["net.onnx", *DIMS, "--pass=@cpu", "-o", "out.mlir"]
    status, _, err = tool("ln-opt", *words, "--stats")
    assert status == 0 and "figures are for batch = 2, length = 8" in err
    status, _, _ = tool("ln-opt", *words, "--html-report", "page.html", "--dot", "g.dot", "--dfg=g.txt")
    assert status == 0 and "figures are for batch = 2" in Path("page.html").read_text()
    status, _, err = tool("ln-opt", *words, "--timing", "--print-ir-after-change", "--trace-rewrites")
    assert status == 0 and "wall ms" in err


def test_remarks_name_what_is_slower_and_why(tool) -> None:
    words = ["net.onnx", "--pass=@cpu", "-o", "out.mlir", "--remarks"]
    status, _, err = tool("ln-opt", *words, *DIMS)
    assert status == 0 and all("remark: " in line for line in err.splitlines())
    lines = [line for line in err.splitlines() if "as calls decide" in line]
    planned = tool("ln-opt", "net.onnx", *DIMS, "--pass=@cpu:plan")[1]
    static = tool("ln-opt", "net.onnx", "--shape", "x=2x8x8", "--pass=@cpu:plan")[1]
    slow = planned.count('"loops"') - static.count('"loops"')
    assert (len(lines) > 0) == (slow > 0)
    for line in lines:
        assert re.search(
            r"runs on '\w+', as calls decide dims? \d[\d, ]* of '\w+' \((batch|length).*where batch = 2, length = 8 it could",
            line,
        )
    status, _, err = tool("ln-opt", *words, "--shape", "x=2x8x8")
    assert status == 0 and "as calls decide" not in err and "cost: choose" in err


# -- other forms


def test_export_to_onnx_keeps_dims_open(tool) -> None:
    status, _, _ = tool("net.onnx", *DIMS, "-c", "--onnx", "out.onnx")
    found = onnx.load("out.onnx")
    named = [
        [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim]
        for v in (*found.graph.input, *found.graph.output)
    ]
    assert status == 0 and named == [["batch", "length", 8]] * 2
    before, after = (ort.InferenceSession(name) for name in ("net.onnx", "out.onnx"))
    for batch in (1, 3, 8):
        x = np.load(f"x{batch}.npy")
        np.testing.assert_allclose(after.run(None, {"x": x})[0], before.run(None, {"x": x})[0], atol=1e-5)
    again = ln.compile(ln.load("out.onnx", dims={"batch": (1, 8), "length": (1, 32)}))
    np.testing.assert_allclose(again({"x": x})["y"], before.run(None, {"x": x})[0], atol=1e-5)


def test_exported_sizes_are_computed(tool) -> None:
    """Products, quotients, maxima of dims, of symbols that are multiples."""
    text = (
        'func.func @main() -> tensor<?xf32, #ln.dims<"4*(h(8..64 by 8) floordiv 8)*n(2..9)">> {\n'
        '%x = ln.input : tensor<?x?xf32, #ln.dims<"n(2..9), h(8..64 by 8)">> as ("x")\n'
        '%s = ln.slice %x {axis = 1, start = 0, len = ?"h(8..64 by 8) floordiv 2"} '
        ': tensor<?x?xf32, #ln.dims<"n(2..9), h(8..64 by 8) floordiv 2">>\n'
        '%y = ln.reshape %s : tensor<?xf32, #ln.dims<"4*(h(8..64 by 8) floordiv 8)*n(2..9)">> as ("y")\n'
        'func.return %y : tensor<?xf32, #ln.dims<"4*(h(8..64 by 8) floordiv 8)*n(2..9)">>\n}\n'
    )
    Path("n.mlir").write_text(text)
    assert tool("n.mlir", "-c", "--onnx", "n.onnx")[0] == 0
    for n, h in ((2, 8), (9, 64), (5, 24)):
        x = np.arange(n * h, dtype=np.float32).reshape(n, h)
        (y,) = ort.InferenceSession("n.onnx").run(None, {"x": x})
        np.testing.assert_array_equal(y, x[:, : h // 2].reshape(-1))


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["-c", "-o", "out.json"], "a planned netlist (JSON IR)"),
        (["-c", "--nnvm", "out.json"], "an NNVM graph"),
    ],
)
def test_forms_of_numbers_say_which_dim_is_open(tool, words, what) -> None:
    status, _, err = tool("net.onnx", *DIMS, *words)
    assert status == 1
    assert f"net.onnx: error: {what} needs numbers for sizes, and each call decides 'batch'" in err
    assert "--dim batch=16" in err and not list(Path().glob("out*"))


def test_the_plan_of_upstream_needs_numbers(tool) -> None:
    status, _, err = tool("net.onnx", *DIMS, "-c", "--plan", "upstream", "-o", "!")
    assert status == 1 and "numbers only" in err


# -- the API


def test_an_executable_of_one_call_shares_the_code(tool) -> None:
    whole = ln.compile(ln.load("net.onnx", dims={"batch": (1, 8), "length": (1, 32)}))
    x = np.load("x3.npy")
    one = whole.specialized({"x": x})
    assert one.inputs["x"][0] == (3, 7, 8) and one.values == {"batch": 3, "length": 7} and not whole.values
    assert one.native is whole.native and one.specialized({"x": x}) is one
    np.testing.assert_array_equal(one({"x": x})["y"], whole({"x": x})["y"])
    np.testing.assert_allclose(one.interpreted({"x": x})["y"], whole({"x": x})["y"], atol=1e-5)
    with pytest.raises(LightNetError, match="batch is 9"):
        whole.specialized({"x": np.zeros((9, 1, 8), np.float32)})


def test_a_static_executable_is_its_own_special_one(tool) -> None:
    static = ln.compile(ln.load("net.onnx", shapes={"x": (3, 7, 8)}))
    assert static.specialized() is static and not static.values


def test_a_file_of_an_open_model_is_for_all_its_shapes(tmp_path, monkeypatch, capsys):
    """`compile` says nothing of sizes that nobody gave, and warns of what the model teaches of them; where it cannot be, it says what to give."""
    monkeypatch.chdir(tmp_path)
    kind = TensorProto.FLOAT

    def save(name: str, *nodes, **inputs) -> None:
        graph = helper.make_graph(
            nodes, "g", [helper.make_tensor_value_info(n, t, d) for n, (t, d) in inputs.items()],
            [helper.make_tensor_value_info("y", kind, None)],
        )  # fmt: skip
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), name)

    save("add.onnx", helper.make_node("Add", ["a", "b"], ["y"]), a=(kind, ["n", 3]), b=(kind, ["m", 3]))
    assert main(["compile", "add.onnx", "-o", "add.lnx"]) == 0
    assert capsys.readouterr().err.startswith("add.onnx: warning: n is m(1..1024): add gets ")
    saved = ln.load_executable("add.lnx")
    for n in (1, 5, 1024):
        np.testing.assert_array_equal(saved(np.ones((n, 3), "f"), np.ones((n, 3), "f"))["y"], np.full((n, 3), 2.0))
    save(
        "reshape.onnx", helper.make_node("Reshape", ["a", "s"], ["y"]),
        a=(kind, ["n", 3]), s=(TensorProto.INT64, [2]),
    )  # fmt: skip
    assert main(["compile", "reshape.onnx", "-o", "r.lnx"]) == 1 and not Path("r.lnx").exists()
    assert "error: " in capsys.readouterr().err
