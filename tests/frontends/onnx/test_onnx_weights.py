"""Where the weights of an ONNX model are: never in the IR, never twice in memory, and in a file of their own where asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import lightnet
from lightnet.cli.lightnet import main
from lightnet.diagnostics import LightNetError

MIB = 1 << 20


def dense(folder: Path) -> tuple[Path, np.ndarray]:
    """A model y = x · w, and w."""
    w = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "dense",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 5])], [numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    path = folder / "dense.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path, w


@pytest.mark.parametrize("form", ["json", "mlir"])
def test_a_network_without_its_model(tmp_path, form):
    """Its JSON or MLIR form runs with the saved weights, and without any it is an error, not zeros."""
    path, w = dense(tmp_path)
    net, weights = tmp_path / f"net.{form}", tmp_path / "w.npz"
    assert main(["-c", "-o", str(tmp_path / "net.json"), "--save-weights", str(weights), str(path)]) == 0
    if form == "mlir":
        net.write_text(str(lightnet.load(path)))
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    run = lightnet.compile(lightnet.load(net, weights))
    np.testing.assert_allclose(run({"x": x})["y"], x @ w, rtol=1e-5, atol=1e-5)
    with pytest.raises(LightNetError, match=r"no contents for 1 of the network's params \(w\)"):
        lightnet.compile(lightnet.load(net))({"x": x})
    with pytest.raises(LightNetError, match=r"no contents for 1 of the network's params \(w\)"):
        lightnet.compile(lightnet.load(net)).save(tmp_path / "net.lnx")
    assert not (tmp_path / "net.lnx").exists()


def test_saving_weights_that_are_not_there(tmp_path, capsys):
    assert (
        main(
            [
                "-c",
                "--save-weights",
                str(tmp_path / "w.npz"),
                str(Path(__file__).parents[3] / "examples/example.net"),
            ]
        )
        == 1
    )
    assert "there are no weights to write" in capsys.readouterr().err


def test_given_weights_go_before_the_models(tmp_path):
    path, w = dense(tmp_path)
    x = np.ones((2, 6), np.float32)
    model = lightnet.load(path, {"w": 2 * w})
    np.testing.assert_allclose(lightnet.compile(model)({"x": x})["y"], x @ (2 * w), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        lightnet.compile(path, weights={"w": 3 * w})({"x": x})["y"], x @ (3 * w), rtol=1e-5, atol=1e-5
    )


_PEAK = """
import sys, numpy, onnx, lightnet, lightnet.compiler
def peak():
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmHWM"))
model = lightnet.load(sys.argv[1])
run = lightnet.compile(model)
text = len(str(run.planned))
compiled = peak()
run({"x": numpy.ones((1, 1024), numpy.float32)})
print(text, compiled, peak())
"""


def test_memory_of_large_weights(tmp_path):
    """160 MiB of weights: reading and compiling touch none of them, a run holds the packed ones beside the mapped file."""
    count, side = 40, 1024
    with open(tmp_path / "weights.bin", "wb") as f:
        f.truncate(count * side * side * 4)
    nodes, tensors, x = [], [], "x"
    for i in range(count):
        tensor = TensorProto(
            name=f"w{i}", dims=[side, side], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL
        )
        for key, value in (("location", "weights.bin"), ("offset", i * side * side * 4), ("length", side * side * 4)):
            tensor.external_data.add(key=key, value=str(value))
        tensors.append(tensor)
        nodes.append(helper.make_node("MatMul", [x, f"w{i}"], [f"y{i}"]))
        x = f"y{i}"
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, side])],
                              [helper.make_tensor_value_info(x, TensorProto.FLOAT, [1, side])], tensors)  # fmt: skip
    (tmp_path / "m.onnx").write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    )
    found = subprocess.run(
        [sys.executable, "-c", _PEAK, str(tmp_path / "m.onnx")], capture_output=True, text=True, check=True
    )
    text, compiled, ran = map(int, found.stdout.split())
    assert text < 40_000
    assert compiled < 160 * MIB, f"{compiled / MIB:.0f} MiB after compiling"
    assert ran < 2 * 160 * MIB + 160 * MIB, f"{ran / MIB:.0f} MiB after a run"
