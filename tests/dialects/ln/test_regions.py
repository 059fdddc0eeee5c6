"""Regions of maps whose corners are far away: the reference and the loops beside ONNX Runtime, and beyond what they compare."""

from __future__ import annotations

import numpy as np
import pytest

import lightnet
from lightnet.model import Model

SRC = np.arange(600, dtype=np.float32).reshape(1, 1, 1, 600)
PARTS = 4096  # so many that the first of them see how long a far region is
#: Corners are taken for these at most.
LIMIT = 1 << 20


def network(regions: int) -> Model:
    return lightnet.loads(f"""func.func @main() -> tensor<{regions}x1x1x{PARTS}xf32> {{
      %x = ln.input : tensor<1x1x1x600xf32> as ("x")
      %r = ln.input : tensor<{regions}x4xf32> as ("r")
      %b = ln.input : tensor<{regions}xi64> as ("b")
      %y = ln.roi_pool %x, %r, %b {{height = 1, width = {PARTS}, scale = 1}} : tensor<{regions}x1x1x{PARTS}xf32> as ("y")
      func.return %y : tensor<{regions}x1x1x{PARTS}xf32> }}""", ".mlir")  # fmt: skip


def corners(*ends: tuple[float, float]) -> np.ndarray:
    """Regions of the one row, from one column to another."""
    return np.array([(left, 0, right, 0) for left, right in ends], np.float32)


NEAR = corners(
    (0, LIMIT),
    (-LIMIT, LIMIT),
    (-LIMIT, -LIMIT),
    (-LIMIT, 599),
    (LIMIT, 0),
    (5, LIMIT - 1),
    (-70000, LIMIT - 70000),
    (2.5, 600000.5),
)
#: Each is what the one beside it is.
BEYOND = [((0, 4 * LIMIT), (0, LIMIT)), ((0, np.inf), (0, LIMIT)), ((-np.inf, 599), (-LIMIT, 599)), ((-1e30, 1e30), (-LIMIT, LIMIT)),
          ((np.nan, 599), (-LIMIT, 599)), ((3, LIMIT + 1), (3, LIMIT)), ((-LIMIT - 1, 599), (-LIMIT, 599)), ((np.nan, np.nan), (-LIMIT, -LIMIT))]  # fmt: skip


@pytest.fixture(scope="module", params=["none", "cpu"])
def pooled(request):
    executable = lightnet.compile(network(8), request.param)
    return lambda rois: executable({"x": SRC, "r": rois, "b": np.zeros(8, np.int64)})["y"]


def test_far_corners_are_those_of_onnx_runtime(pooled) -> None:
    ort, onnx = pytest.importorskip("onnxruntime"), pytest.importorskip("onnx")
    h = onnx.helper
    node = h.make_node("MaxRoiPool", ["x", "r"], ["y"], pooled_shape=[1, PARTS])
    values = [h.make_tensor_value_info(n, 1, d) for n, d in (("x", SRC.shape), ("r", (8, 5)))]
    graph = h.make_graph([node], "g", values, [h.make_empty_tensor_value_info("y")])
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8).SerializeToString()
    rois = np.concatenate([np.zeros((8, 1), np.float32), NEAR], axis=1)
    (want,) = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": SRC, "r": rois})
    assert len(np.unique(want[:, 0, 0], axis=0)) > 5
    np.testing.assert_array_equal(pooled(NEAR), want)


def test_corners_beyond_are_at_the_limit(pooled) -> None:
    """Whatever is no number is far to the left."""
    given, same = (corners(*ends) for ends in zip(*BEYOND))
    np.testing.assert_array_equal(pooled(given), pooled(same))


@pytest.mark.parametrize("target", ["none", "cpu"])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_the_number_of_points_is_that_of_the_coordinates_type(target: str, mode: str) -> None:
    """Lengths of a whole number of elements, but for the rounding of f32: one more point would be another mean."""
    ort, onnx = pytest.importorskip("onnxruntime"), pytest.importorskip("onnx")
    h, rng = onnx.helper, np.random.default_rng(6)
    node = h.make_node("RoiAlign", ["x", "r", "b"], ["y"], mode=mode, output_height=1, output_width=2, sampling_ratio=0)
    shapes = (("x", 1, (1, 3, 9, 16)), ("r", 1, (400, 4)), ("b", 7, (400,)))
    graph = h.make_graph(
        [node], "g", [h.make_tensor_value_info(*v) for v in shapes], [h.make_empty_tensor_value_info("y")]
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 16)], ir_version=8).SerializeToString()
    low = rng.uniform(0, 4, (400, 2)).astype(np.float32)
    rois = np.concatenate([low, low + rng.integers(1, 5, (400, 2)).astype(np.float32) * [2, 1]], 1).astype(np.float32)
    exact = rois.astype(np.float64)
    differ = np.ceil(exact[:, 2:] - exact[:, :2]) != np.ceil(rois[:, 2:] - rois[:, :2])
    assert differ.sum() > 50
    feeds = {"x": rng.standard_normal((1, 3, 9, 16)).astype(np.float32), "r": rois, "b": np.zeros(400, np.int64)}
    (want,) = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)
    np.testing.assert_allclose(lightnet.compile(model, target)(feeds)["y"], want, atol=1e-5)
