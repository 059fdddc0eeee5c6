"""Looking at intermediate tensors: dumps of the fused code, comparison layer by layer, where NaN begins. Faults are planted, and have
to be named. Expected values are the interpreter's, ONNX Runtime's and NumPy's."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from network_cases import random_model

import lightnet
from lightnet.backends.cpu.selection import SELECTION
from lightnet.cli.lightnet import main
from lightnet.diagnostics import LightNetError
from lightnet.runtime.dtypes import BFLOAT16
from lightnet_debug.alone import alone
from lightnet_debug.arrays import difference
from lightnet_debug.differences import compare_layers, layers_text
from lightnet_debug.tensors import Tensors, file_name, first_non_finite, tensors, write_tensors

SOURCE = """\
create(| dst=x | dtype=TL_FLOAT, dims=[1, 4, 6, 6], data=[1], ran=[-1, 1], from_file=false);
create(| dst=w1 | dtype=TL_FLOAT, dims=[3, 4, 3, 3], data=[1], ran=[-1, 1], from_file=false);
create(| dst=b1 | dtype=TL_FLOAT, dims=[3], data=[1], ran=[-1, 1], from_file=false);
create(| dst=w2 | dtype=TL_FLOAT, dims=[3, 3, 3, 3], data=[1], ran=[-1, 1], from_file=false);
create(| dst=b2 | dtype=TL_FLOAT, dims=[3], data=[1], ran=[-1, 1], from_file=false);
conv2d(src=x, weight=w1, bias=b1 | dst=c1 | size=[3, 3], stride=[1, 1], padding=[1, 1, 1, 1], dilation=[1, 1], group=1, autopad="NOTSET");
relu(src=c1 | dst=r1 |);
conv2d(src=r1, weight=w2, bias=b2 | dst=c2 | size=[3, 3], stride=[1, 1], padding=[1, 1, 1, 1], dilation=[1, 1], group=1, autopad="NOTSET");
sigmoid(src=c2 | dst=s2 |);
reshape(src=s2 | dst=flat | dims=[3, 36]);
softmax(src=flat | dst=y | axis=1);
"""
#: What fusion leaves in memory, and what it swallows.
KEPT, SWALLOWED = ["x", "r1", "s2", "flat", "y"], {"c1", "c2"}
#: A rewrite with a fault: it takes the sigmoid for tanh.
FAULT = """
from xdsl.pattern_rewriter import RewritePattern

from lightnet.dialects.ln.dialect import optypes
from lightnet.ir.registry import pattern


@pattern("expand", "cpu")
class WrongSigmoid(RewritePattern):
    def match_and_rewrite(self, op, rewriter):
        if op.name == "ln.sigmoid":
            rewriter.replace(op, [optypes()["tanh"].make(list(op.operands))])
"""


@pytest.fixture
def cli(capfd, tmp_path, monkeypatch):
    """Run `lightnet run` in a folder with the network: (status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    Path("n.net").write_text(SOURCE)

    def run(*args: object) -> tuple[int, str, str]:
        capfd.readouterr()
        try:
            status = main(["run", *map(str, args)])
        except SystemExit as e:
            status = e.code or 0
        return status, *capfd.readouterr()

    return run


def model(**options) -> lightnet.Model:
    return lightnet.loads(SOURCE, ".net", "n.net", **options)


# -- tensors ---------------------------------------------------------------------------------------------------------


def test_tensors_are_those_of_the_fused_code():
    found = tensors(lightnet.compile(model()))
    assert list(found.arrays) == KEPT and set(found.swallowed) == SWALLOWED
    assert found.swallowed["c1"] == "inside the kernel of 'r1'" and found.kernels["r1"] == "conv2d conv2d0 + relu relu0"
    want = tensors(lightnet.compile(model(), "none"))
    assert list(want.arrays) == ["x", "c1", "r1", "c2", "s2", "flat", "y"] and not want.swallowed
    for name, array in found.arrays.items():
        assert np.ptp(array) > 0
        np.testing.assert_allclose(array, want.arrays[name], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found.arrays["y"], lightnet.compile(model())()["y"])


def test_tensors_of_fed_inputs_and_params():
    x, w = np.full((1, 4, 6, 6), 0.5, np.float32), np.zeros((3, 3, 3, 3), np.float32)
    found = tensors(lightnet.compile(model()), {"x": x, "w2": w, "b2": np.zeros(3)})
    np.testing.assert_array_equal(found.arrays["x"], x)
    np.testing.assert_array_equal(found.arrays["s2"], np.full((1, 3, 6, 6), 0.5, np.float32))  # sigmoid of 0


def test_files_of_a_dump(cli):
    status, out, err = cli("n.net", "--dump-tensors", "d")
    assert (status, err) == (0, "") and "wrote 5 tensors to d" in out and "c1: inside the kernel of 'r1'" in out
    index = json.loads(Path("d/index.json").read_text())
    assert [t["name"] for t in index["tensors"]] == KEPT and set(index["swallowed"]) == SWALLOWED
    want = tensors(lightnet.compile(model())).arrays
    for entry in index["tensors"]:
        array = np.load(Path("d") / entry["file"])
        np.testing.assert_array_equal(array, want[entry["name"]])
        assert (entry["shape"], entry["dtype"]) == (list(array.shape), str(array.dtype))
    assert index["tensors"][1]["source"] == "n.net:7:1"
    assert cli("n.net", "--dump-tensors", "d.npz", "--tensors", "r1,y")[0] == 0
    with np.load("d.npz") as found:
        assert found.files == ["r1", "y"]
        np.testing.assert_array_equal(found["r1"], want["r1"])


def test_what_the_other_side_lacks_is_said(cli):
    want = tensors(lightnet.compile(model())).arrays
    np.savez("half.npz", **{n: want[n] for n in ("r1", "y")})
    status, out, _ = cli("n.net", "--compare", "half.npz", "--layers")
    assert (
        status == 0 and "all 2 tensors agree" in out and "not compared: 2 tensors that half.npz lacks: s2, flat" in out
    )


def test_names_that_no_file_can_have(tmp_path):
    """Of tensors that a folder can hold and an archive cannot: ZIP ends names at NUL."""
    name = "a\0b"
    found = Tensors({name: np.ones(2, np.float32)}, model().module)
    with pytest.raises(LightNetError, match=r"no entry of an \.npz can be called") as raised:
        write_tensors(found, str(tmp_path / "t.npz"))
    assert "\0" not in str(raised.value) and not any(tmp_path.iterdir())
    write_tensors(found, str(tmp_path / "t"))
    assert json.loads((tmp_path / "t" / "index.json").read_text())["tensors"][0]["name"] == name


def test_swallowed_tensors_are_kept_on_request(cli):
    status, out, _ = cli("n.net", "--dump-tensors", "d.npz", "--tensors", "c1,y")
    assert status == 0 and "compiled again with 1 more output, which changes what is fused: c1" in out
    with np.load("d.npz") as found:
        assert found.files == ["c1", "y"] and (found["c1"] < 0).any()
    status, out, _ = cli("n.net", "--dump-tensors", "d.npz", "--tensors", "all")
    with np.load("d.npz") as found:
        assert found.files == ["c1", "r1", "c2", "s2", "flat", "y"]
        np.testing.assert_array_equal(found["r1"], np.maximum(found["c1"], 0))
    status, _, err = cli("n.net", "--dump-tensors", "d.npz", "--tensors", "c11")
    assert status == 1 and "no computed tensor is called 'c11'; there are: c1" in err
    assert cli("n.net", "-t", "none", "--dump-tensors", "d.npz")[0] == 0
    assert set(np.load("d.npz").files) == {*KEPT, *SWALLOWED}


def test_options_that_go_together(cli):
    assert "--layers goes with --compare" in cli("n.net", "--layers")[2]
    assert "--tensors goes with" in cli("n.net", "--tensors", "all")[2]
    Path("file").write_text("")
    status, _, err = cli("n.net", "--dump-tensors", "file")
    assert status == 1 and "cannot write the folder 'file'" in err


def test_file_names():
    taken: set[str] = set()
    plain = ["conv1", "a-b_c.0"]
    assert [file_name(n, taken) for n in plain] == plain
    odd = ["model/layer:0", "../../etc/passwd", ".hidden", "", "a" * 500, "a" * 501, "Conv1", "con\x00", "naïve", "x y"]
    found = [file_name(n, taken) for n in odd]
    assert found[0] == "model%2flayer%3a0" and found[1] == "%2e.%2f..%2fetc%2fpasswd" and found[2] == "%2ehidden"
    assert len({f.lower() for f in [*plain, *found]}) == len(plain) + len(odd)
    for name in found:
        assert 0 < len(name) <= 120 and name[0] != "." and not set(name) & set('/\\:\0 <>|"?*')


def test_bfloat16_is_written_as_float32(tmp_path):
    pytest.importorskip("ml_dtypes")
    text = SOURCE.splitlines()[0].replace("TL_FLOAT", "TL_BFLOAT16") + "\nrelu(src=x | dst=y |);\n"
    found = tensors(lightnet.compile(lightnet.loads(text, ".net")))
    assert found.arrays["y"].dtype == BFLOAT16
    write_tensors(found, str(tmp_path / "d"))
    np.testing.assert_array_equal(np.load(tmp_path / "d" / "y.npy"), found.arrays["y"].astype(np.float32))


# -- comparison ------------------------------------------------------------------------------------------------------


def test_differences_are_scaled():
    want = np.float32([100, -50, 0])
    d = difference(np.float32([100, -49, 0]), want)
    assert (d.absolute, d.relative, d.largest, d.wrong, d.scaled) == (
        1,
        pytest.approx(0.02),
        100,
        1,
        pytest.approx(0.01),
    )
    assert difference(np.float32([100, np.nan, 0]), want).scaled == math.inf
    assert difference(want[:2], want).verdict == "DIFFERS: is float32[2], not float32[3]"
    assert difference(np.int32([1, 5]), np.int32([1, 2])).wrong == 1
    assert difference(want, want).agrees


@pytest.mark.parametrize("peer", ["interpreter", "onnxruntime"])
def test_layers_agree(cli, peer):
    if peer == "onnxruntime":
        pytest.importorskip("onnxruntime")
        pytest.importorskip("onnx")
    status, out, err = cli("n.net", "--compare", peer, "--layers")
    assert (status, err) == (0, "") and "all 4 tensors agree" in out and "not compared: 2 tensors without memory" in out
    status, out, err = cli("n.net", "--compare", peer, "--layers", "--tensors", "all")
    assert (status, err) == (0, "") and "all 6 tensors agree" in out


def test_a_wrong_rewrite_is_named(cli):
    """Its layer differs first, and jumps; what is behind differs, and does not jump."""
    Path("fault.py").write_text(FAULT)
    status, out, _ = cli("n.net", "--load", "fault.py", "--compare", "interpreter", "--layers")
    assert status == 1 and "first difference: 's2', by sigmoid sigmoid0 (n.net:9:1)" in out
    assert "  sigmoid(src=c2 | dst=s2 |);" in out and "in the kernel conv2d conv2d1 + tanh" in out
    rows = {line.split()[0]: line for line in out.splitlines() if line.split()}
    assert (
        "agrees" in rows["r1"] and "jumps" in rows["s2"] and "DIFFERS" in rows["flat"] and "jumps" not in rows["flat"]
    )
    status, out, _ = cli("n.net", "--load", "fault.py", "--compare", "interpreter", "--layers", "--tensors", "all")
    assert (
        status == 1
        and "first difference: 's2'" in out
        and "agrees" in next(x for x in out.splitlines() if x.startswith("c2 "))
    )


def test_a_changed_weight_is_found_against_a_file(cli):
    """One weight of the second convolution: the first tensor that differs is the one that it makes."""
    weights = model()
    w2 = lightnet.compile(weights).loaded("w2").copy()
    assert cli("n.net", "--dump-tensors", "right.npz", "--tensors", "all")[0] == 0
    w2[2, 2, 1, 1] += 1
    np.savez("w.npz", w2=w2)
    assert cli("n.net", "--compare", "right.npz", "--layers")[0] == 0
    Path("n.net").write_text(
        SOURCE.replace(
            "3, 3, 3, 3], data=[1], ran=[-1, 1], from_file=false", "3, 3, 3, 3], data=[1], ran=[-1, 1], from_file=true"
        )
    )
    status, out, _ = cli("n.net", "-f", "w.npz", "--compare", "right.npz", "--layers", "--tensors", "all")
    assert status == 1 and "first difference: 'c2', by conv2d conv2d1 (n.net:8:1)" in out and "c2, " not in out
    np.savez("other.npz", nothing=w2)
    status, _, err = cli("n.net", "--compare", "other.npz", "--layers")
    assert status == 1 and "no tensor of the network is in other.npz" in err


def test_jumps_follow_the_graph_not_the_order():
    """An error in one branch does not hide that another branch has one of its own."""
    text = (
        SOURCE.splitlines()[0] + "\nrelu(src=x | dst=a |);\nsigmoid(src=a | dst=a2 |);\ntanh(src=x | dst=b |);\n"
        'elew(src1=a2, src2=b | dst=sum | elew_op="TL_SUM");\n'
    )
    found = tensors(lightnet.compile(lightnet.loads(text, ".net"), "none"))
    want = dict(found.arrays)
    want["a2"], want["b"], want["sum"] = want["a2"] + 0.1, want["b"] * 1.5, want["sum"] + 0.1
    layers = compare_layers(found, want)
    assert [(x.name, x.jumps) for x in layers] == [("a", False), ("a2", True), ("b", True), ("sum", False)]
    assert "the error jumps at: a2, b" in layers_text(layers) and "3 of 4 tensors differ" in layers_text(layers)


def test_constant_tensors_are_pointed_out():
    found = tensors(
        lightnet.compile(
            lightnet.loads(SOURCE.replace("data=[1], ran=[-1, 1]", "data=[0], ran=[0, 0]"), ".net"), "none"
        )
    )
    assert "constant, which proves little" in layers_text(compare_layers(found, found.arrays))


def test_the_kernel_at_fault_is_told_from_the_rewrite(cli, monkeypatch):
    """A wrong rewrite leaves a kernel that does what its ops mean; wrong machine code does not."""
    Path("fault.py").write_text(FAULT)
    _, out, _ = cli("n.net", "--load", "fault.py", "--compare", "interpreter", "--layers")
    assert "the kernel of 's2' does what its ops mean: look at the rewrites" in out
    generate = SELECTION.generate

    def wrong(kernel, name, aliases):
        """Code that writes a block too few."""
        made = generate(kernel, name, aliases)
        return [replace(m, grid=m.grid - 1) if "sigmoid" in name else m for m in made]

    monkeypatch.setattr(SELECTION, "generate", wrong)
    executable = lightnet.compile(model())
    assert alone(executable, {}, "r1").agrees and alone(executable, {}, "x") is None
    found = alone(executable, {}, "s2")
    assert not found.agrees and found.differences[0].wrong > 0
    _, out, _ = cli("n.net", "--compare", "interpreter", "--layers")
    assert "the kernel of 's2' does not compute what its ops mean" in out
    assert alone(lightnet.compile(model(), "none"), {}, "s2") is None


# -- NaN -------------------------------------------------------------------------------------------------------------

LOGS = (
    SOURCE.splitlines()[0]
    + "\nrelu(src=x | dst=a |);\ntanh(src=x | dst=t |);\nlog(src=t | dst=bad |);\nsigmoid(src=bad | dst=c |);\n"
    'elew(src1=a, src2=c | dst=y | elew_op="TL_SUM");\n'
)


@pytest.mark.parametrize("words", [("--tensors", "all"), ("-t", "none")])
def test_where_nan_begins(cli, words):
    Path("nan.net").write_text(LOGS)
    status, out, _ = cli("nan.net", "--check-nan", *words)
    assert status == 1 and "nan.net:4:1: 'bad' has" in out and "computed by log log0" in out
    assert "    log(src=t | dst=bad |);" in out and "'y' has" not in out
    assert cli("n.net", "--check-nan")[1].endswith("no NaN or infinity in 5 tensors\n")


def test_nan_of_a_fused_kernel_and_of_a_weight(cli):
    Path("nan.net").write_text(LOGS)
    status, out, _ = cli("nan.net", "--check-nan")
    assert status == 1 and "it begins at log log0" in out and "  nan.net:4:1: 'y' has" in out
    assert "    log(src=t | dst=bad |);" in out
    text = SOURCE.replace("dst=w1 | dtype=TL_FLOAT, dims=[3, 4, 3, 3], data=[1], ran=[-1, 1], from_file=false",
                          "dst=w1 | dtype=TL_FLOAT, dims=[3, 4, 3, 3], data=[1], ran=[-1, 1], from_file=true")  # fmt: skip
    weight = np.ones((3, 4, 3, 3), np.float32)
    weight[0, 0, 0, 0] = np.nan
    executable = lightnet.compile(lightnet.loads(text, ".net", "n.net", weights={"w1": weight}))
    (first,) = first_non_finite(tensors(executable), executable)
    assert (first.name, first.weights, first.where.line) == ("r1", ("w1",), 7)
    fed = {"x": np.full((1, 4, 6, 6), np.inf, np.float32)}
    good = lightnet.compile(model())
    (first,) = first_non_finite(tensors(good, fed), good)
    assert first.name == "x" and "as it was fed" in str(first)


# -- ONNX ------------------------------------------------------------------------------------------------------------


def onnx_model(path: str, dims: list, external: bool = False) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    h, float_ = onnx.helper, onnx.TensorProto.FLOAT
    weight = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    nodes = [
        h.make_node("Conv", ["x", "w"], ["conv/out:0"], name="conv", pads=[1, 1, 1, 1]),
        h.make_node("Relu", ["conv/out:0"], ["act"], name="relu"),
        h.make_node("GlobalAveragePool", ["act"], ["pool"], name="pool"),
        h.make_node("Exp", ["pool"], ["y"], name="exp"),
    ]
    graph = h.make_graph(nodes, "g", [h.make_tensor_value_info("x", float_, dims)], [h.make_tensor_value_info("y", float_, None)],
                         [onnx.numpy_helper.from_array(weight, "w")])  # fmt: skip
    proto = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9)
    onnx.save(proto, path, save_as_external_data=external, size_threshold=0, location="w.bin")


@pytest.mark.parametrize("external", [False, True])
def test_layers_of_an_onnx_model(cli, external):
    """The model's own tensors, as further outputs; weights may stand in a file beside it."""
    onnx_model("m.onnx", [1, 3, 8, 8], external)
    status, out, err = cli("m.onnx", "-i", "random", "--compare", "onnxruntime", "--layers", "--tensors", "all")
    assert (status, err) == (0, "") and "all 4 tensors agree" in out and "conv/out:0" in out
    status, out, err = cli("m.onnx", "-i", "random", "--compare", "interpreter", "--layers")
    assert (status, err) == (0, "") and "agree" in out
    Path("fault.py").write_text(FAULT.replace("ln.sigmoid", "ln.relu"))
    status, out, _ = cli("m.onnx", "-i", "random", "--load", "fault.py", "--compare", "onnxruntime", "--layers")
    assert status == 1 and "first difference: 'act', by relu" in out


def test_layers_of_open_shapes(cli):
    onnx_model("m.onnx", ["N", 3, "H", "W"])
    words = ("m.onnx", "-i", "x=random", "--shape", "x=2x3x5x7")
    for peer in ("onnxruntime", "interpreter"):
        status, out, err = cli(*words, "--compare", peer, "--layers", "--check-nan", "--dump-tensors", f"{peer}.npz")
        assert (status, err) == (0, "") and "agree" in out and "2x4x" in out
    np.save("x.npy", np.ones((3, 3, 4, 4), np.float32))
    status, out, err = cli("m.onnx", "-i", "x=@x.npy", "--compare", "onnxruntime", "--layers", "--tensors", "all")
    assert (status, err) == (0, "") and "all 4 tensors agree" in out and "3x4x4x4" in out


def test_planned_networks_keep_no_more_outputs():
    from lightnet.frontends import json_ir
    from lightnet_export.netlist import from_module

    text = json_ir.write(from_module(lightnet.compile(model()).planned))
    planned = lightnet.loads(text, ".json")
    assert list(tensors(lightnet.compile(planned, compiled=True)).arrays) == KEPT
    with pytest.raises(LightNetError, match="choose outputs before"):
        lightnet.compile(planned, compiled=True, outputs=["c1"])


@pytest.mark.parametrize("seed", range(7000, 7004))
def test_random_networks(seed):
    """Every tensor of the fused code, kernel by kernel, is what the references compute; outputs are those of a call, bit by bit."""
    network = random_model(seed)
    executable = lightnet.compile(network)
    got, want = tensors(executable), tensors(lightnet.compile(network, "none"))
    assert set(got.arrays) | set(got.swallowed) >= set(want.arrays)
    layers = compare_layers(got, want.arrays)
    assert [x.name for x in layers if x.difference.scaled > 1e-3] == []
    for name, array in executable(stream=io.StringIO()).items():
        assert array.tobytes() == got.arrays[name].tobytes()


@pytest.mark.parametrize("peer", ["interpreter", "onnxruntime"])
def test_tensors_that_passes_make_are_no_layers(cli, peer):
    """A batch norm goes into weights that no other runtime knows."""
    if peer == "onnxruntime":
        pytest.importorskip("onnxruntime")
    vectors = "".join(
        f"create(| dst={v} | dtype=TL_FLOAT, dims=[3], data=[1], ran=[0.5, 1.5], from_file=false);\n"
        for v in ("scale", "offset", "mean", "var")
    )
    norm = "batchnorm(src=c1, scale=scale, offset=offset, mean=mean, var=var | dst=n1 | epsilon=1e-5);\n"
    text = SOURCE.replace("relu(src=c1 ", vectors + norm + "relu(src=n1 ")
    Path("norm.net").write_text(text)
    status, out, err = cli("norm.net", "-i", "random", "--compare", peer, "--layers")
    assert status == 0 and "tensors agree" in out, err
