"""The network that tools/soak.py serves: a perceptron in float64, as an ONNX model, compiled, and in ONNX Runtime behind our application."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

DIMS, ROWS = (64, 256, 10), 8


def weights(seed: int) -> list[np.ndarray]:
    """The matrices of a perceptron."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(np.float32) / 8 for shape in itertools.pairwise(DIMS)]


def reference(x: np.ndarray, matrices: list[np.ndarray]) -> np.ndarray:
    """Its outputs in float64."""
    first, second = (m.astype(np.float64) for m in matrices)
    z = np.maximum(x.astype(np.float64) @ first, 0) @ second
    powers = np.exp(z - z.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def write_network(path: Path, matrices: list[np.ndarray]) -> None:
    """The same as an ONNX model, and compiled beside it."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    import lightnet

    nodes = [("MatMul", ["x", "w0"], "a"), ("Relu", ["a"], "b"), ("MatMul", ["b", "w1"], "c"), ("Softmax", ["c"], "y")]
    graph = helper.make_graph(
        [helper.make_node(kind, inputs, [output]) for kind, inputs, output in nodes],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [ROWS, DIMS[0]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [ROWS, DIMS[-1]])],
        [numpy_helper.from_array(m, f"w{k}") for k, m in enumerate(matrices)],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path.with_suffix(".onnx")
    )
    lightnet.compile(path.with_suffix(".onnx")).save(path.with_suffix(".lnx"))


class Peer:
    """ONNX Runtime as a callable that the application serves."""

    def __init__(self, path: str):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.inputs = {t.name: (tuple(t.shape), np.dtype(np.float32)) for t in self.session.get_inputs()}
        self.outputs = {t.name: (tuple(t.shape), np.dtype(np.float32)) for t in self.session.get_outputs()}

    def __call__(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return dict(zip(self.outputs, self.session.run(list(self.outputs), feeds)))


def load_peer(path: str) -> Peer:
    """A session, whose errors are those of a model."""
    from lightnet.diagnostics import LightNetError

    try:
        return Peer(path)
    except Exception as e:
        raise LightNetError(f"{path}: {e}") from None


def serve_peer(path: str) -> None:
    """The server of ONNX Runtime: the application of `lightnet serve` with another callable."""
    from lightnet_serving import server
    from lightnet_serving.app import Service
    from lightnet_serving.repository import ModelSource, ServingOptions

    options = ServingOptions(delay=0.001, workers=2, control=True, timeout=10)
    service = Service([ModelSource("net", lambda: load_peer(path))], options)
    with server.listen("127.0.0.1", 0) as sock:
        server.serve(service.open(), sock, grace=10, connections=512, log_level="error")
