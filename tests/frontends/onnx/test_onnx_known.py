"""Operators of ONNX on what is known when a model is read, which are computed then, and attributes that few models give: ONNX Runtime is the oracle."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import helper, numpy_helper  # noqa: E402
from test_counted import agree, session  # noqa: E402

import lightnet  # noqa: E402

KINDS = np.array([[3, 1, 3, 2], [1, 1, 1, 2], [3, 1, 3, 2], [0, 2, 0, 2]], np.float32)


def compare(
    op: str,
    given: np.ndarray | None,
    constants: list,
    outputs: int = 1,
    domain: str = "",
    opset: int = 17,
    tolerance: float = 1e-5,
    **attributes: Any,
) -> None:
    """A network of one node: what `given` is is fed, the rest is constant; None is left out."""
    names = [*(["x"] if given is not None else []), *("" if c is None else f"c{k}" for k, c in enumerate(constants))]
    results = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(op, names, results, "n", domain=domain, **attributes)
    fed = (
        []
        if given is None
        else [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(given.dtype), given.shape)]
    )
    graph = helper.make_graph([node], "g", fed, [helper.make_empty_tensor_value_info(y) for y in results],
                              [numpy_helper.from_array(np.asarray(c), f"c{k}") for k, c in enumerate(constants) if c is not None])  # fmt: skip
    opsets = {"": opset} | ({domain: {"ai.onnx.ml": 3}.get(domain, 1)} if domain else {})
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid(d, n) for d, n in opsets.items()], ir_version=8
    ).SerializeToString()
    feeds = {} if given is None else {"x": given}
    agree(lightnet.compile(model, target="none")(feeds), session(model).run(None, feeds), tolerance)


@pytest.mark.parametrize(("axis", "order"), list(itertools.product([None, 0, 1, -1], [0, 1])))
def test_unique(axis: int | None, order: int) -> None:
    compare("Unique", None, [KINDS], outputs=4, sorted=order, **({} if axis is None else {"axis": axis}))
    compare(
        "Unique",
        None,
        [KINDS[:3].astype(np.int64)],
        outputs=4,
        sorted=order,
        **({} if axis is None else {"axis": axis}),
    )


@pytest.mark.parametrize("dims", [(1, 1), (2, 2), (3, 3), (4, 4), (2, 3, 5, 5), (1, 2, 2)])
def test_determinants(dims: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(dims).astype(np.float32)
    compare("Det", None, [x])
    if dims[-1] <= 3:
        compare("Det", x, [])


@pytest.mark.parametrize("p", [1, 2, 3])
def test_pools_of_whole_channels(p: int) -> None:
    x = np.random.default_rng(1).standard_normal((2, 3, 4, 5)).astype(np.float32)
    compare("GlobalLpPool", x, [], p=p)
    compare("GlobalLpPool", x[..., 0], [], p=p)
    if p == 2:
        compare("GlobalLpPool", x, [])
    compare("GlobalMaxPool", x[:, :, 0], [])


@pytest.mark.parametrize("op", ["QuantizeLinear", "DequantizeLinear"])
@pytest.mark.parametrize("channels", [False, True])
def test_quantisation_in_the_domain_of_onnx_runtime(op: str, channels: bool) -> None:
    x = np.random.default_rng(2).integers(0, 255, (2, 3, 4)).astype(np.uint8)
    scale = np.array([0.5, 0.25, 2], np.float32) if channels else np.float32(0.5)
    zero = np.array([3, 0, 128], np.uint8) if channels else np.uint8(7)
    compare(
        op,
        x if op[0] == "D" else x.astype(np.float32) / 3 - 20,
        [scale, zero],
        domain="com.microsoft",
        **({"axis": 1} if channels else {}),
    )


DYNAMIC = [
    *([0.0] * n for n in (1, 5)), [-0.0, 0.0], [3.5], [-3.5], [1.0, 2.0, 250.0], [-1.0, -7.5, -0.25], [-2.0, 0.0, 6.0],
    [255.0, 0.5, 1.5, 2.5], [-255.0, -0.5, -1.5], [1e-30, 2e-30], [-1e30, 3e30],
]  # fmt: skip


@pytest.mark.parametrize("numbers", DYNAMIC, ids=str)
def test_dynamic_quantisation(numbers: list[float]) -> None:
    """Bytes, scale and zero point: of zeros alone, too, where any scale gives the same bytes, and the scale is 1; of
    one sign, where the range begins or ends with 0; and of halves."""
    compare("DynamicQuantizeLinear", np.float32(numbers), [], outputs=3, tolerance=0)


def test_probits() -> None:
    """Of probabilities between 0 and 1, both tails and the middle."""
    x = np.array([[0.001], [0.25], [0.4999], [0.5001], [0.75], [0.999]], np.float32)
    compare("LinearRegressor", x, [], domain="ai.onnx.ml", coefficients=[1.0], intercepts=[0.0], targets=1, post_transform="PROBIT",
            tolerance=1e-4)  # fmt: skip


def test_layers_of_onnx_runtime() -> None:
    """With what their attributes are when they are left out, too."""
    rng = np.random.default_rng(3)
    x, bias = rng.standard_normal((2, 5, 32)).astype(np.float32), rng.standard_normal(32).astype(np.float32)
    for activation in ({}, {"activation": "Relu"}, {"activation": "Tanh"}, {"activation": "Sigmoid"}):
        compare("FusedConv", x[:, :, :7], [x[:1, :5, :3] * 0.1, None], domain="com.microsoft", **activation)
    compare("QuickGelu", x, [], domain="com.microsoft", alpha=1.3)
    compare("QuickGelu", x, [], domain="com.microsoft")
    compare("FastGelu", x, [bias], domain="com.microsoft", tolerance=1e-4)
    compare("FastGelu", x, [], domain="com.microsoft", tolerance=1e-4)
