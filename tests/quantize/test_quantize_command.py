"""`lightnet quantize`: what it writes and prints, and each mistake as one line that names its file."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import test_quantize as nets
from onnx import TensorProto, helper

from lightnet.cli.lightnet import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a network and calibration data, in which the command runs."""
    monkeypatch.chdir(tmp_path)
    model = nets.dense()
    onnx.save(model, "net.onnx")
    np.savez("calib.npz", **nets.data(model))
    return tmp_path


def command(*words: str) -> int:
    return main(["quantize", "net.onnx", "-o", "q.onnx", "--data", "calib.npz", *words])


def test_it_writes_a_model_and_prints_a_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the Python interface gives, byte for byte."""
    assert command() == 0
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert lines[0].split("  ")[0] == "layer" and lines[1].startswith("first") and lines[2].startswith("last")
    assert lines[-1] == "wrote q.onnx" and "output 'y': " in shown.out and not shown.err
    model = onnx.load("net.onnx")
    expected = nets.quantize(model, nets.data(model)).model
    assert Path("q.onnx").read_bytes() == expected.SerializeToString(deterministic=True)


def test_the_table_on_a_terminal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the package rich; every name stands in it, whole."""
    rich = pytest.importorskip("rich.console", reason="rich is not installed")
    from lightnet_quantize import command as tool

    shown = io.StringIO()
    monkeypatch.setattr(tool, "_terminal", lambda: rich.Console(file=shown, force_terminal=True, width=100))
    assert command("--report-samples", "1") == 0
    assert all(word in shown.getvalue() for word in ("alone, dB", "first", "last", "output 'y': "))


def test_the_report_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--json", "--report-samples", "2") == 0
    report = json.loads(capsys.readouterr().out)
    assert [la["name"] for la in report["layers"]] == ["first", "last"] and report["calls"] == 2
    assert report["outputs"]["y"]["db"] > 20


@pytest.mark.parametrize(
    ("words", "options"),
    [(["--method", "percentile", "--percentile", "99"], {"method": "percentile", "percentile": 99.0}),
     (["--weight-method", "mse"], {"weight_method": "mse"}), (["--symmetric", "both"], {"symmetric": "both"}),
     (["--activation-type", "s8", "--weight-type", "u8"], {"activation_type": "s8", "weight_type": "u8"}),
     (["--per-tensor"], {"per_channel": False}), (["--reduce-range"], {"reduce_range": True}),
     (["--exclude", "first", "--exclude", "w1"], {"exclude": ("first", "w1")}), (["--ops", "Conv,Gemm"], {"ops": ("Conv", "Gemm")}),
     (["--ops", "Gemm", "--also", "Mul"], {"ops": ("Gemm", "Mul")}), (["--samples", "1"], {"samples": 1})],
    ids=lambda o: " ".join(o) if isinstance(o, list) else "",
)  # fmt: skip
def test_options(folder: Path, words: list[str], options: dict[str, object]) -> None:
    """Each is that of the Python interface."""
    assert command("--report-samples", "0", *words) == 0
    model = onnx.load("net.onnx")
    expected = nets.quantized(model, **options).model
    assert Path("q.onnx").read_bytes() == expected.SerializeToString(deterministic=True)


def test_weights_beside_and_standard_output(folder: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert command("--external", "--report-samples", "0") == 0
    assert Path("q.onnx.data").is_file() or Path("q.onnx").stat().st_size < 4096
    capfdbinary.readouterr()
    assert main(["quantize", "net.onnx", "-o", "-", "--data", "calib.npz"]) == 0
    assert capfdbinary.readouterr().out == nets.quantized(onnx.load("net.onnx")).model.SerializeToString(
        deterministic=True
    )


def _spoil(name: str) -> None:
    """Make a mistake in the files."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(4, 1, 10)).astype(np.float32)
    model = onnx.load("net.onnx")
    match name:
        case "missing input":
            np.savez("calib.npz", y=x)
        case "unknown input":
            np.savez("calib.npz", x=x, xx=x)
        case "type":
            np.savez("calib.npz", x=x.astype(np.complex64))
        case "float for integer":
            model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT32
            model.graph.node.insert(0, helper.make_node("Cast", ["x"], ["xf"], to=TensorProto.FLOAT))
            model.graph.node[2].input[0] = "xf"
            onnx.save(model, "net.onnx")
        case "shape":
            np.savez("calib.npz", x=x[..., :9])
        case "rank":
            np.savez("calib.npz", x=x.reshape(2, 2, 1, 10))
        case "batch":
            model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 3
            del model.graph.output[0].type.tensor_type.shape.dim[:]
            model.graph.output[0].type.tensor_type.shape.dim.add().dim_value = 3
            model.graph.output[0].type.tensor_type.shape.dim.add().dim_value = 4
            del model.graph.value_info[:]
            onnx.save(model, "net.onnx")
            np.savez("calib.npz", x=x[:, 0])
        case "NaN":
            x[2, 0, 5] = np.nan
            np.savez("calib.npz", x=x)
        case "infinite":
            x[0, 0, 0] = -np.inf
            np.savez("calib.npz", x=x)
        case "no samples":
            np.savez("calib.npz", x=x[:0])
        case "overflow":
            np.savez("calib.npz", x=np.full_like(x, 3e38))
        case "weights":
            for tensor in model.graph.initializer:
                if tensor.name == "w2":
                    array = onnx.numpy_helper.to_array(tensor).copy()
                    array[1, 1] = np.nan
                    tensor.CopyFrom(onnx.numpy_helper.from_array(array, "w2"))
            onnx.save(model, "net.onnx")
        case "not npz":
            Path("calib.npz").write_bytes(b"PK nothing")
        case "no file":
            Path("calib.npz").unlink()
        case "no network":
            Path("net.onnx").unlink()
        case "nothing":
            onnx.save(nets.net([helper.make_node("Relu", ["x"], ["y"])], {}, {"x": [1, 10]}), "net.onnx")
        case "quantised":
            onnx.save(nets.quantized(nets.dense()).model, "net.onnx")
        case "half":
            half = onnx.ModelProto.FromString(nets.dense().SerializeToString())
            for tensor in half.graph.initializer:
                tensor.CopyFrom(
                    onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor).astype(np.float16), tensor.name)
                )
            half.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT16
            half.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT16
            del half.graph.value_info[:]
            onnx.save(half, "net.onnx")


MISTAKES = {
    "missing input": "calib.npz: error: there is no array for input 'x'; there are: y",
    "unknown input": "calib.npz: error: no input is called 'xx'; there are: x; did you mean x?",
    "type": "calib.npz: error: ",
    "float for integer": "calib.npz: error: the array for input 'x' is of float32, and the input of int32",
    "shape": "calib.npz: error: the array for input 'x' has shape [4, 1, 9], and the input [1, 10]: samples count along one "
    "more axis in front, or along the first",
    "rank": "calib.npz: error: the array for input 'x' has shape [2, 2, 1, 10], and the input [1, 10]: samples",
    "batch": "calib.npz: error: the array for input 'x' has 4 samples, no multiple of the network's batch of 3",
    "NaN": "calib.npz: error: calibration data for input 'x' holds nan (in call 2, at [0, 5])",
    "infinite": "calib.npz: error: calibration data for input 'x' holds -inf (in call 0, at [0, 0])",
    "no samples": "calib.npz: error: there is no calibration data: it has no samples",
    "overflow": "net.onnx: error: tensor 'r1' holds ",
    "weights": "net.onnx: error: the weights 'w2' of 'last' hold NaN or infinities",
    "not npz": "calib.npz: error: ",
    "no file": "calib.npz: error: cannot open: No such file or directory",
    "no network": "net.onnx: error: cannot open: No such file or directory",
    "nothing": "net.onnx: error: there is nothing to quantise: it has no Conv, ConvTranspose, MatMul, Gemm",
    "quantised": "net.onnx: error: it is quantised already (QuantizeLinear): quantise the float32 network",
    "half": "net.onnx: error: there is nothing to quantise: each Gemm is excluded, or not of float32 with weights of float32",
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_in_files(folder: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line, status 1, and no file."""
    _spoil(name)
    assert command() == 1
    shown = capsys.readouterr()
    assert shown.err.startswith(MISTAKES[name]) and shown.err.count("\n") == 1, shown.err
    assert not [p for p in folder.iterdir() if p.name not in ("net.onnx", "calib.npz")]


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--exclude", "frist"], "net.onnx: error: nothing to exclude is called 'frist': no node, tensor or op type; did you mean first?"),
     (["--exclude", "Gemm"], "net.onnx: error: there is nothing to quantise: each Gemm is excluded"),
     (["--ops", "Gem"], "error: no op to quantise is called 'Gem'"), (["--percentile", "3"], "error: percentile should be more than 50"),
     (["--samples", "0"], "error: samples should be at least 1, and is 0"), (["-f", "w.npz"], "net.onnx: error: weights are for networks"),
     (["--shape", "x=1x10"], "net.onnx: error: shapes are for networks of other forms"),
     (["-o", "nowhere/q.onnx"], "error: cannot write 'nowhere/q.onnx': there is no folder 'nowhere'"),
     (["-o", "."], "error: cannot write '.': is a folder"), (["--data", "net.onnx"], "net.onnx: error: calibration data is read from .npz files")],
    ids=lambda o: " ".join(o) if isinstance(o, list) else "",
)  # fmt: skip
def test_mistakes_in_words(folder: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(*words) == 1
    shown = capsys.readouterr()
    assert shown.err.startswith(said) and shown.err.count("\n") == 1, shown.err
    assert not Path("q.onnx").exists()


def test_wrong_choices_are_usage_errors(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        command("--method", "max")
    assert left.value.code == 1 and capsys.readouterr().err.startswith(
        "error: argument --method: invalid choice: 'max'"
    )
