"""Each way that an ONNX op can be said, beside what the conformance tests say of it: in double precision, without what is optional, of a scalar, in an
older opset. ONNX's reference evaluator is the oracle, or NumPy where it differs from the operator's text."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx.reference import ReferenceEvaluator  # noqa: E402
from test_onnx_refusals import BODY, f, i, model_of, s  # noqa: E402

import lightnet  # noqa: E402
from lightnet.diagnostics import LightNetError  # noqa: E402

RNG = np.random.default_rng(5)
X = RNG.uniform(-2, 2, (2, 4, 3)).astype(np.float32)
WIDE = X.astype(np.float64)
MEAN, INVERSE = WIDE.mean(-1, keepdims=True), 1 / np.sqrt(WIDE.var(-1, keepdims=True) + 1e-5)
U8 = RNG.integers(0, 255, (2, 4)).astype(np.uint8)
FOUR = RNG.uniform(0.5, 2, (4, 4)).astype(np.float64)
SIGNAL = RNG.uniform(-1, 1, (1, 8, 1)).astype(np.float32)


def vector(count: int, dtype: type = np.float32) -> np.ndarray:
    return RNG.uniform(0.5, 2, count).astype(dtype)


#: op, opset, inputs (the first is fed), attributes, outputs, and what NumPy says (None: what the reference evaluator says).
ROWS = [
    ("BatchNormalization", 15, [WIDE, *(vector(4, np.float64) for _ in range(4))], {}, 1, None),
    ("BatchNormalization", 15, [X, *(vector(4) for _ in range(4))], {"epsilon": 0.5}, 1, None),
    ("BatchNormalization", 15, [X, *(vector(4) for _ in range(4))], {"training_mode": 1}, 3, None),
    ("BatchNormalization", 14, [X, *(vector(4) for _ in range(4))], {"training_mode": 1}, 3, None),
    *(("BatchNormalization", opset, [X[0, 0], *(np.float32([v]) for v in (3, 2, 0.5, 4))], {}, 1,
       [3 * (X[0, 0] - np.float32(0.5)) / np.sqrt(np.float32(4 + 1e-5)) + 2]) for opset in (9, 14, 15)),
    ("GroupNormalization", 18, [X, vector(2), vector(2)], {"num_groups": 2}, 1, None), ("GroupNormalization", 21, [X, vector(4), vector(4)], {"num_groups": 2}, 1, None),
    ("LayerNormalization", 17, [WIDE, np.full(3, 2.0)], {"stash_type": 11}, 3, [(WIDE - MEAN) * INVERSE * 2, MEAN, INVERSE]), ("LayerNormalization", 17, [X, vector(3), vector(3)], {}, 3, None),
    ("Softmax", 13, [np.float32(7)], {}, 1, [np.float32(1)]), ("LogSoftmax", 13, [np.float32(7)], {}, 1, [np.float32(0)]), ("Softmax", 11, [X], {"axis": 3}, 1, [np.ones_like(X)]),
    ("Softmax", 11, [X], {"axis": 1}, 1, [(np.exp(X) / np.exp(X).sum((1, 2), keepdims=True))]),
    ("Clip", 10, [X], {"min": -0.5}, 1, [np.maximum(X, np.float32(-0.5))]), ("Clip", 11, [X, np.float32(-np.inf), np.float32(1)], {}, 1, [np.minimum(X, np.float32(1))]),
    ("Clip", 11, [X, None, np.float32(1)], {}, 1, [np.minimum(X, np.float32(1))]), ("PRelu", 6, [X, vector(1)], {}, 1, None),
    ("ReduceL1", 18, [U8.astype(np.uint32), i(1)], {}, 1, None), ("ReduceL1", 18, [X, i(1)], {}, 1, None), ("Pad", 18, [X, i(0, 0, 0, 0, 0, 0)], {}, 1, [X]),
    ("Det", 11, [None, FOUR], {}, 1, [np.linalg.det(FOUR)]), ("MaxUnpool", 11, [f(1, 1, 2, 2), np.array([[[[0, 2], [6, 8]]]], np.int64)], {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 0, 0, 1]}, 1,
     [np.float32([[[[1, 0, 1], [0, 0, 0], [1, 0, 1]]]])]),
    ("STFT", 17, [SIGNAL, s(2), None, s(4)], {}, 1, None), ("STFT", 17, [SIGNAL, s(4), vector(8)], {}, 1, None), ("DFT", 20, [SIGNAL, None, s(1)], {}, 1, None),
    ("QuantizeLinear", 13, [X, np.float32(0.02)], {}, 1, None), ("DequantizeLinear", 19, [U8, np.float32(0.5)], {}, 1, None), ("DequantizeLinear", 21, [U8, np.float32([[1, 2], [3, 4]])], {"block_size": 2}, 1,
     [U8 * np.repeat(np.float32([[1, 2], [3, 4]]), 2, 1)]),
    ("MatMulInteger", 10, [U8, U8.T.copy()], {}, 1, [U8.astype(np.int32) @ U8.T.astype(np.int32)]),
    ("MatMulInteger", 10, [U8, U8.T.copy(), np.uint8([3, 200])], {}, 1, [(U8.astype(np.int32) - np.int32([[3], [200]])) @ U8.T.astype(np.int32)]),
    ("MatMulInteger", 10, [U8, U8.T.copy(), np.uint8(7), np.uint8(9)], {}, 1, [(U8.astype(np.int32) - 7) @ (U8.T.astype(np.int32) - 9)]),
    ("MatMulInteger", 10, [U8[0], U8.T.copy()], {}, 1, [U8[0].astype(np.int32) @ U8.T.astype(np.int32)]), ("ConvInteger", 10, [U8.reshape(1, 2, 4), U8[:, :2].reshape(1, 2, 2)], {}, 1,
     [np.int32([[[(U8.astype(np.int32)[:, k : k + 2] * U8[:, :2]).sum() for k in range(3)]]])]),
    ("Resize", 19, [X, None, None, i(2, 4, 6)], {"mode": "linear", "coordinate_transformation_mode": "half_pixel_symmetric"}, 1, None),
    ("Resize", 13, [X, np.float32([0, 0, 0.25, 1, 1, 0.75]), None, i(2, 4, 1)], {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"}, 1, None),
    ("Resize", 11, [X, f(0), np.float32([1, 1, 2])], {"coordinate_transformation_mode": "tf_half_pixel_for_nn"}, 1, [X[:, :, [0, 1, 1, 2, 2, 2]]]),
    # the smallest number that is taken
    ("DepthToSpace", 13, [X.reshape(1, 4, 3, 2)], {"blocksize": 1}, 1, [X.reshape(1, 4, 3, 2)]), ("SpaceToDepth", 13, [X.reshape(1, 4, 3, 2)], {"blocksize": 1}, 1, [X.reshape(1, 4, 3, 2)]),
    ("LpPool", 18, [X], {"kernel_shape": [2], "p": 1}, 1, [np.abs(X)[:, :, :2] + np.abs(X)[:, :, 1:]]), ("GroupNormalization", 21, [X, vector(4), vector(4)], {"num_groups": 1}, 1, None),
    *(("OneHot", 11, [i(0, -1), depth, f(2) * [0, 5]], {}, 1, [np.float64([[5, 0, 0], [0, 0, 5]])])
      for depth in (i(3), s(3, np.float32))),
    ("OneHot", 11, [i(0, 1), s(0), f(2)], {}, 1, [np.zeros((2, 0), np.float32)]), ("CenterCropPad", 18, [X, i(2, 0, 3)], {}, 1, [X[:, :0]]), ("Range", 11, [None, s(5), s(-1), s(-2)], {}, 1, [i(5, 3, 1)]),
    ("LpNormalization", 1, [X], {"p": 1, "axis": 1}, 1, [X / np.abs(X).sum(1, keepdims=True)]),
    ("InstanceNormalization", 6, [X, vector(4), vector(4)], {}, 1, None), ("MelWeightMatrix", 17, [None, s(1), s(1), s(8), s(0, np.float32), s(4, np.float32)], {}, 1, None),
    ("Det", 11, [np.stack([FOUR[:2, :2], FOUR[2:, 2:]])], {}, 1, [np.linalg.det(np.stack([FOUR[:2, :2], FOUR[2:, 2:]]))]), ("EyeLike", 9, [f(2, 3)], {"k": 1}, 1, None),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[1]}")
def test_a_way_to_say_an_op(row) -> None:
    op, opset, inputs, attributes, outputs, want = row
    data = model_of(op, inputs, attributes, outputs, opset)
    model = onnx.load_from_string(data)
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(f"y{k}") for k in range(1, outputs))
    feeds = {} if inputs[0] is None else {"x0": inputs[0]}
    if want is None:
        want = ReferenceEvaluator(model).run(None, feeds)
    found = lightnet.compile(lightnet.loads(model.SerializeToString(), ".onnx"), target="none")(feeds)
    for a, b in zip(found.values(), want, strict=True):
        assert (a.shape, a.dtype) == (np.shape(b), b.dtype)
        np.testing.assert_allclose(a, b, rtol=1e-12 if a.dtype == np.float64 and op == "Det" else 3e-5, atol=3e-5)


@pytest.mark.parametrize(
    ("op", "opset", "inputs", "attributes", "message"),
    [
        ("BatchNormalization", 8, [X, *[vector(4)] * 4], {"spatial": 0}, "statistics for each pixel (spatial = 0)"), ("Upsample", 9, [X, f(2)], {}, "should be 3 positive numbers"),
        ("If", 13, [np.ones(2, np.bool_)], {"then_branch": BODY, "else_branch": BODY}, "which branch of If is taken depends on the value of 'x0'"),
    ],
    ids=lambda v: v if isinstance(v, str) else None,
)  # fmt: skip
def test_what_an_older_opset_says_is_refused(op: str, opset: int, inputs: list, attributes: dict, message: str) -> None:
    with pytest.raises(LightNetError) as caught:
        lightnet.loads(model_of(op, inputs, attributes, 1, opset), ".onnx")
    assert any(message in text for text in (caught.value.message, *(note for _, note in caught.value.notes)))
