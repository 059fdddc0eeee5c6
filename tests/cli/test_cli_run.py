"""`lightnet run`, and `--shape` and `--value` of all tools: inputs from the command line and from files, outputs to files,
comparisons. Expected values are NumPy's and ONNX Runtime's."""

from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from lightnet.cli import feeding, ln_opt
from lightnet.cli.lightnet import main
from lightnet.cli.run import summary
from lightnet.diagnostics import LightNetError
from lightnet.runtime.dtypes import BY_NAME
from lightnet_debug.command import difference_row
from lightnet_debug.peers import by_onnxruntime

NET = (
    "create(| dst=a | dtype=TL_FLOAT, dims=[2, 3], data=[1], ran=[0, 0], from_file=false);\n"
    "create(| dst=b | dtype=TL_FLOAT, dims=[2, 3], data=[0], ran=[0, 0], from_file=true);\n"
    'elew(src1=a, src2=b | dst=c | elew_op="TL_SUM");\nelew(src1=a, src2=b | dst=d | elew_op="TL_MUL");\n'
)
A, B = np.float32([[1, 2, 3], [4, 5, 6]]), np.float32([[3, 1, 4], [1, 5, 9]])


@pytest.fixture
def cli(capfd, tmp_path, monkeypatch):
    """Run `lightnet run` in a folder with a network and arrays: (status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    Path("n.net").write_text(NET)
    np.savez("in.npz", a=A, other=B)
    np.save("b.npy", B)

    def run(*args: object) -> tuple[int, str, str]:
        capfd.readouterr()
        try:
            status = main(["run", *map(str, args)])
        except SystemExit as e:
            status = e.code or 0
        return status, *capfd.readouterr()

    return run


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("@in.npz:a", "@in.npz:other"),
        ("@in.npz", "@b.npy"),
        ("1,2,3,4,5,6", "3,1,4,1,5,9"),
        ("1,2,3,4,5,6.0", "@./b.npy"),
    ],
)
@pytest.mark.parametrize("target", ["cpu", "none"])
def test_inputs_and_outputs(cli, a, b, target):
    status, out, err = cli("n.net", "-i", f"a={a}", "-i", f"b={b}", "-o", "out.npz", "-t", target)
    assert (status, err) == (0, "")
    with np.load("out.npz") as found:
        assert found["c"].dtype == np.float32
        np.testing.assert_array_equal(found["c"], A + B)
        np.testing.assert_array_equal(found["d"], A * B)
    assert [line.split() for line in out.splitlines()][1:] == [
        ["c", "float32", "2x3", "3", f"{(A + B).mean():.6g}", "15", "0"],
        ["d", "float32", "2x3", "2", f"{(A * B).mean():.6g}", "54", "0"],
    ]


def test_the_subcommand_gives_way_to_a_file_of_its_name(cli, capfd):
    Path("run").write_text(NET + 'print(src=c || msg="c:");')
    assert main(["-w", "run"]) == 0 and capfd.readouterr().out.startswith("c:\n[[1.000")
    assert main(["run"]) == 0


def test_contents_that_are_made(cli):
    for seed, name in ((0, "0.npz"), (0, "again.npz"), (1, "1.npz")):
        assert cli("n.net", "-i", "random", "-i", "a=zeros", "--seed", seed, "-o", name)[0] == 0
    assert cli("n.net", "-i", "a=2.5", "-i", "b=random", "-o", "a.npz")[0] == 0
    first, again, other, scaled = (np.load(n)["c"] for n in ("0.npz", "again.npz", "1.npz", "a.npz"))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(scaled, first + np.float32(2.5))  # b depends on name and seed only; one number fills
    assert np.ptp(first) > 0 and (first != other).any()


def test_weights_and_shapes(cli):
    np.savez("w.npz", b=np.float32([[10], [20]]))
    status, _, err = cli("n.net", "-f", "w.npz", "-i", "a=1,2", "--shape", "a=2x1", "--shape", "b=2,1", "-o", "o.npz")
    assert (status, err) == (0, "")
    np.testing.assert_array_equal(np.load("o.npz")["c"], [[11], [22]])
    assert "missing" in cli("n.net", "-f", "in.npz")[2]
    assert cli("n.net", "-i", "a=1")[2] == "warning: no weights are given: 1 tensors hold zeros (b)\n"


def test_one_output_as_npy(cli, tmp_path):
    Path("one.net").write_text("".join(NET.splitlines()[:3]))
    assert cli("one.net", "-i", "a=1,2,3,4,5,6", "-i", "b=@b.npy", "-o", "c.npy")[0] == 0
    np.testing.assert_array_equal(np.load("c.npy"), A + B)
    assert cli("one.net", "-i", "a=1,2,3,4,5,6", "-i", "b=@b.npy", "--compare", "c.npy")[0] == 0
    before = sorted(p.name for p in tmp_path.iterdir())
    for path, message in (("c2.npy", "2 outputs"), ("c.txt", "as .npz, .npy or .json"), ("no/c.npz", "cannot write")):
        status, _, err = cli("n.net", "-i", "b=1", "-o", path)
        assert status == 1 and message in err
    assert sorted(p.name for p in tmp_path.iterdir()) == before


@pytest.mark.parametrize("peer", ["interpreter", "onnxruntime"])
def test_comparison_with_a_peer(cli, peer):
    if peer == "onnxruntime":
        pytest.importorskip("onnxruntime")
        pytest.importorskip("onnx")
    status, out, err = cli("n.net", "-i", "random", "--compare", peer)
    assert (status, err) == (0, "") and out.count("agrees") == 2 and "note:" not in out


def test_comparison_of_constants_says_so(cli):
    """Zeros agree with zeros, whatever computes them."""
    status, out, _ = cli("n.net", "-i", "a=0,0,0,0,0,0", "-i", "b=0,0,0,0,0,0", "--compare", "interpreter")
    assert status == 0 and "note: outputs are one number throughout, whose equality proves little: '" in out


@pytest.mark.parametrize("precision", ["f16", "bf16"])
def test_comparison_allows_for_the_precision(cli, precision):
    """What rounding to 16 bits explains agrees, layer by layer, too, unless somebody asks for more."""
    if precision == "bf16":
        pytest.importorskip("ml_dtypes")
    net = Path(__file__).parents[2] / "examples" / "cnn.net"
    given = (net, "-i", "random", "--precision", precision, "--compare", "interpreter")
    status, out, err = cli(*given)
    assert (status, err) == (0, "") and "agrees" in out
    status, out, err = cli(*given, "--layers")
    assert (status, err) == (0, "") and "DIFFERS" not in out
    assert cli(*given, "--rtol", "1e-6", "--atol", "1e-6")[0] == 1


def test_a_peer_that_there_is_not(cli):
    """Said before anything is compiled or printed."""
    status, out, err = cli("n.net", "-i", "random", "--compare", "cpu")
    assert (status, out) == (1, "") and "--compare takes onnxruntime, interpreter, FILE.npz or FILE.npy" in err


#: Networks whose outputs have no names, one of them in a kernel, and one that computes nothing.
UNNAMED = {
    "two.mlir": """func.func @main(%x : tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %a = ln.relu %x : tensor<4xf32>
  %b = ln.abs %x : tensor<4xf32> as "b"("b")
  %c = ln.neg %b : tensor<4xf32>
  func.return %a, %b, %c : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}""",
    "kernel.mlir": """func.func @main(%x : tensor<4xf32>) -> tensor<4xf32> {
  %y = cpu.kernel(%x_ = %x) { %a = ln.relu %x_ : tensor<4xf32> ln.yield %a }
  func.return %y : tensor<4xf32>
}""",
    "nothing.mlir": "func.func @main(%x : tensor<4xf32>) -> tensor<4xf32> {\n  func.return %x : tensor<4xf32>\n}",
}


@pytest.mark.parametrize("target", ["cpu", "none"])
@pytest.mark.parametrize("file, outputs", [("two.mlir", ["output0", "b", "output2"]), ("kernel.mlir", ["output0"]), ("nothing.mlir", ["x"])])  # fmt: skip
def test_comparison_of_outputs_without_names(cli, file, outputs, target):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    Path(file).write_text(UNNAMED[file])
    status, out, err = cli(file, "-i", "x=1,-2,3,-4", "-t", target, "--compare", "onnxruntime", "-o", "out.npz")
    assert (status, err) == (0, "") and out.count("agrees") == len(outputs)
    x = np.float32([1, -2, 3, -4])
    expected = {"x": x, "output0": np.maximum(x, 0), "b": np.abs(x), "output2": -np.abs(x)}
    with np.load("out.npz") as got:
        assert sorted(got) == sorted(outputs)
        for name in outputs:
            np.testing.assert_array_equal(got[name], expected[name])


def test_comparison_of_layers_of_a_model_with_a_file_of_weights(cli):
    """ONNX Runtime gets the model with further outputs, and the weights from where the model stands: not from here."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    h, float_ = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [h.make_node("Add", ["x", "w"], ["inner"]), h.make_node("Relu", ["inner"], ["y"])]
    ends = [[h.make_tensor_value_info(name, float_, [2, 3])] for name in "xy"]
    graph = h.make_graph(nodes, "g", *ends, [onnx.numpy_helper.from_array(B, "w")])
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9)
    Path("models").mkdir()
    onnx.save(model, "models/m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    assert Path("models/w.bin").exists()
    words = ("models/m.onnx", "-i", "x=-1,2,-3,4,-5,6", "-t", "none", "--compare", "onnxruntime")
    for more in ([], ["--layers"]):
        status, out, err = cli(*words, *more)
        assert (status, err) == (0, "") and "agree" in out
    for name in ("models/m.onnx", str(Path("models/m.onnx").resolve())):
        network = SimpleNamespace(is_onnx=True, path=name, values={})
        found = by_onnxruntime(network, {"x": A}, ["inner", "nothing"])
        assert list(found) == ["y", "inner"]
        np.testing.assert_array_equal(found["inner"], A + B)


def test_comparison_with_a_file(cli):
    feeds = ("-i", "a=@in.npz", "-i", "b=@b.npy")
    np.savez("right.npz", c=A + B, d=A * B, e=A)
    np.savez("wrong.npz", c=A + B, d=A * B + np.float32([[0, 0, 0], [0, 0.5, 0]]))
    np.savez("part.npz", d=A * B)
    np.savez("none.npz", q=A)
    np.savez("shape.npz", c=(A + B)[:1], d=np.float64(A * B))
    assert cli("n.net", *feeds, "--compare", "right.npz")[0] == 0
    status, out, _ = cli("n.net", *feeds, "--compare", "wrong.npz")
    assert status == 1 and "DIFFERS in 1 of 6 elements" in out and out.count("agrees") == 1
    assert cli("n.net", *feeds, "--compare", "wrong.npz", "--atol", "0.5")[0] == 0
    assert cli("n.net", *feeds, "--compare", "wrong.npz", "--rtol", "0.1")[0] == 0
    status, out, _ = cli("n.net", *feeds, "--compare", "part.npz")
    assert status == 0 and "not in the file" in out
    status, _, err = cli("n.net", *feeds, "--compare", "none.npz")
    assert status == 1 and "none.npz: error: no output is in it; there are: q" in err
    status, out, _ = cli("n.net", *feeds, "--compare", "shape.npz")
    assert status == 1 and "is float32[2, 3], not float32[1, 3]" in out and "not float64[2, 3]" in out
    assert cli("n.net", *feeds, "--compare", "b.npy")[0] == 1
    assert cli("n.net", *feeds, "--compare", "what")[0] == 1


def test_differences():
    """NaN agrees with NaN only, an infinity with itself only; integers have to be equal."""
    nan, inf = np.nan, np.inf
    want = np.float32([nan, inf, -inf, 1000, 1])
    assert difference_row("x", want.copy(), want, 1e-4, None)[-1] == "agrees"
    assert difference_row("x", np.float32([nan, inf, -inf, 1000.05, 1.05]), want, 1e-4, None)[-1] == "agrees"
    assert difference_row("x", np.float32([nan, inf, -inf, 1000.05, 1.05]), want, 1e-4, 0)[-1].startswith(
        "DIFFERS in 1 of"
    )
    assert difference_row("x", np.float32([0, nan, inf, 1000, 1]), want, 1, 1)[-1].startswith("DIFFERS in 3 of")
    assert difference_row("x", np.int64([1, 2]), np.int64([1, 3]), 1, 1)[-1] == "DIFFERS in 1 of 2 elements"
    assert difference_row("x", np.zeros(0, np.float32), np.zeros(0, np.float32), 0, 0)[-1] == "agrees"
    # Where elements cannot be set against each other, there is no number to show.
    for got, other in ((np.zeros(2), np.zeros(3)), (np.zeros((2, 1)), np.zeros((1, 2))), (np.zeros(()), np.zeros(1))):
        *shown, verdict = difference_row("x", got, other, 1, 1)
        assert shown == ["x", "", "", ""] and verdict.startswith("DIFFERS: ")


def test_summaries():
    """NaN is left out and counted, 64-bit integers are not rounded, nothing has no mean."""
    nan, big = np.nan, 2**63 - 1
    assert summary(("x", np.float32([nan, 1, 3, nan])))[1:] == ("float32", "4", "1", "2", "3", "2")
    assert summary(("x", np.array([[big, big]])))[2:] == ("1x2", str(big), "9.22337e+18", str(big), "0")
    assert summary(("x", np.array(True)))[1:] == ("bool", "scalar", "1", "1", "1", "0")
    assert summary(("x", np.zeros((0, 2), np.int64)))[2:] == ("0x2", "-", "-", "-", "0")


def test_latency(cli):
    status, out, _ = cli("n.net", "-i", "b=1", "--repeat", "5")
    assert status == 0 and "latency of 5 runs: median" in out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["-i", "a=1,2"], "error: 'a' has 6 elements [2, 3], but gets 2"),
        (["-i", "q=1"], "error: no input or param is called 'q'; there are: a, b"),
        (["-i", "c=1"], "tensor 'c' cannot be fed: the network computes it"),
        (["-i", "a=1", "-i", "a=2"], "error: -i names 'a' twice"),
        (["-i", "a"], "error: -i takes name=..., and gets 'a'"),
        (["-i", "a=one"], "'a' gets 'one', which is neither numbers (1.5,2), nor @FILE.npy"),
        (["-i", "a="], "which is neither numbers"),
        (["-i", "a=@no.npy"], "no.npy: error: cannot open"),
        (["-i", "a=@in.npz:q"], "in.npz: error: no array is called 'q'; there are: a, other"),
        (["-i", "b=@in.npz"], "in.npz: error: no array is called 'b'"),
        (["-i", "a=@n.net"], "n.net: error: arrays are read from .npy and .npz files"),
        (["-i", "a=@text.npy"], "text.npy: error: invalid weight file: 'text.npy': not an .npy array"),
        (["-i", "a=@objects.npy"], "objects.npy: error: the array has type '|O', which cannot be read"),
        (["-i", "a=@huge.npy"], "huge.npy: error: invalid weight file"),
        (["-i", "a=@column.npy"], "'a' has shape [2, 3], but gets [6, 1] [feed.shape]"),
        (["-i", "a=@flat.npy"], "'a' has shape [2, 3], but gets [6] [feed.shape]"),
        (["-i", "a=@complex.npy"], "complex.npy: error: the array has type '<c8', which cannot be read"),
        (["-i", "a=true"], "'a' takes float32, but gets bool; convert it first [feed.dtype]"),
        (["-i", "a=99999999999999999999"], "'a' gets an integer of over 64 bits"),
        (["--shape", "a=2xx3"], "error: --shape takes name=1x3x224x224, and gets 'a=2xx3'"),
        (["--shape", "q=2"], "no input or param is called 'q'"),
        (["--value", "a=1"], "values decide shapes in ONNX models only"),
        (["--repeat", "-1"], "--repeat should not be negative"),
        (["--rtol", "-1"], "--rtol should not be negative"),
        (["--rounds", "0", "--profile"], "--rounds should be positive"),
        (["--compare", ""], "--compare is empty"),
        (["--dump-tensors", ""], "--dump-tensors is empty"),
        (["--profile="], "--profile is empty"),
        (["--dump-tensors", "d", "--tensors", ","], "--tensors names no tensor"),
        (["--atol", "nan"], "--atol should not be negative"),
        (["-t", "gpu"], "unknown target 'gpu'"),
    ],
)
def test_mistakes(cli, args, message):
    Path("text.npy").write_text("text")
    np.save("objects.npy", np.array([{}], object), allow_pickle=True)
    np.save("column.npy", A.reshape(6, 1))
    np.save("flat.npy", A.reshape(6))
    np.save("complex.npy", A.astype(np.complex64))
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 3)}\n"
    Path("huge.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(24))
    status, out, err = cli("n.net", *args)
    assert status == 1 and message in err and "Traceback" not in err and out == ""


def test_numbers():
    assert feeding.parsed_numbers("x", "3").shape == () and feeding.parsed_numbers("x", "3,").shape == (1,)
    assert (
        feeding.parsed_numbers("x", "1, -2").dtype == np.int64
        and feeding.parsed_numbers("x", "1,2.").dtype == np.float64
    )
    assert feeding.parsed_numbers("x", "18446744073709551615").dtype == np.uint64
    assert feeding.parsed_numbers("x", "true,false").tolist() == [True, False]
    assert feeding.parsed_numbers("x", "9223372036854775807") == 9223372036854775807  # not through a double
    assert np.isnan(feeding.parsed_numbers("x", "nan,inf")[0])


def test_open_shapes():
    f32, i64 = BY_NAME["f32"], BY_NAME["i64"]
    assert feeding.fed("x", "1,2,3", f32, (None,), 0).tolist() == [1, 2, 3]
    assert feeding.fed("x", "3", i64, ("N",), 0).tolist() == [3]
    assert feeding.fed("x", "3", i64, None, 0).shape == ()
    for text, dims in (("random", ("N", 3)), ("zeros", None), ("1,2", ("N", 2))):
        with pytest.raises(LightNetError, match="--shape x="):
            feeding.fed("x", text, f32, dims, 0)


def test_shapes_in_ln_opt(capfd, tmp_path):
    path = tmp_path / "n.net"
    path.write_text(NET)
    assert ln_opt.main([str(path), "--shape", "a=7x1", "--shape", "b=7x1"]) == 0
    assert "tensor<7x1xf32>" in capfd.readouterr().out
    assert ln_opt.main([str(path), "--shape", "a=7x1"]) == 1
    assert "error" in capfd.readouterr().err


@pytest.fixture
def reshaper(cli):
    """r.onnx: y = relu(reshape(x + w, shape)), with the first dim of x and the values of shape open."""
    onnx = pytest.importorskip("onnx")
    h, t = onnx.helper, onnx.TensorProto
    nodes = [
        h.make_node("Add", ["x", "w"], ["s"]),
        h.make_node("Reshape", ["s", "shape"], ["r"]),
        h.make_node("Relu", ["r"], ["y"]),
    ]
    inputs = [h.make_tensor_value_info("x", t.FLOAT, ["N", 3]), h.make_tensor_value_info("shape", t.INT64, [2])]
    outputs = [h.make_tensor_value_info("y", t.FLOAT, None)]
    weight = onnx.numpy_helper.from_array(np.float32([-1, -2, -3]), "w")
    graph = h.make_graph(nodes, "g", inputs, outputs, [weight])
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9), "r.onnx")
    return cli


@pytest.mark.parametrize(
    "args",
    [
        ["-i", "x=@in.npz:a", "-i", "shape=3,2"],  # specialised on what it is called with
        ["-i", "x=@in.npz:a", "--value", "shape=3,2"],
        ["-i", "x=@in.npz:a", "-i", "shape=3,2", "--shape", "x=2x3"],
        ["-i", "x=@in.npz:a", "--shape", "x=2x3", "--value", "shape=@shape.npy"],
        ["-i", "x=@in.npz:a", "--shape", "x=2x3", "--value", "shape=@shape.npy", "-t", "none"],
    ],
)
def test_an_onnx_model(reshaper, args):
    np.save("shape.npy", np.int64([3, 2]))
    status, out, err = reshaper("r.onnx", *args, "-o", "y.npy", "--repeat", "2")
    assert (status, err) == (0, "") and "y       float32  3x2" in out
    np.testing.assert_array_equal(np.load("y.npy"), np.maximum(A - np.float32([1, 2, 3]), 0).reshape(3, 2))


@pytest.mark.parametrize("args", [["-i", "shape=3,-1"], ["--value", "shape=3,-1"]])
@pytest.mark.parametrize("peer", ["onnxruntime", "interpreter"])
def test_an_onnx_model_with_a_peer(reshaper, args, peer):
    pytest.importorskip("onnxruntime")
    status, out, err = reshaper("r.onnx", "-i", "x=random", "--shape", "x=2x3", *args, "--compare", peer)
    assert (status, err) == (0, "") and "agrees" in out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["-i", "x=random", "-i", "shape=3,2"], "'x' has shape [N, 3]: random contents need --shape x=..."),
        (["-i", "x=1,2,3", "-i", "shape=3,2"], "'x' has shape [N, 3]: numbers need --shape x=..."),
        (["-i", "x=@in.npz:a"], "the network needs input 'shape', which no one fed"),
        (["-i", "x=@in.npz:a", "-i", "shape=3,2,1"], "'shape' has 2 elements [2], but gets 3"),
        (["-i", "x=@in.npz:a", "-i", "shape=5,2"], "r.onnx"),
        (["-i", "x=@in.npz:a", "--value", "shape=3"], "r.onnx: error: input 'shape' has shape [2], and its value []"),
        (["-i", "x=@in.npz:a", "--value", "size=3"], "no input is called 'size'"),
    ],
)
def test_mistakes_with_an_onnx_model(reshaper, args, message):
    status, _, err = reshaper("r.onnx", *args)
    assert status == 1 and message in err and "Traceback" not in err


def test_shapes_and_values_of_an_onnx_model(reshaper, capfd):
    """All tools take --shape and --value; without them they say what to give."""
    given = ["--shape", "x=2x3", "--value", "shape=3,2"]
    assert ln_opt.main(["r.onnx", *given]) == 0 and "tensor<3x2xf32>" in capfd.readouterr().out
    assert ln_opt.main(["r.onnx", *given[:2]]) == 1 and "--value" in capfd.readouterr().err
    assert ln_opt.main(["r.onnx", *given[2:]]) == 0  # the value says what N is
    found = capfd.readouterr()
    assert "tensor<2x3xf32>" in found.out and "N is 2" in found.err
    assert main(["-c", "r.onnx", *given, "-o", "-"]) == 0 and '"ops"' in capfd.readouterr().out
    assert main(["-c", "r.onnx", *given[:2]]) == 1 and "--value" in capfd.readouterr().err
