"""What ONNX's operators do not allow is refused by each of them, at its node, in words that say what is wrong: one row a refusal, none of
which another check stands in for. Built by ONNX's helpers, which allow everything."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import helper, numpy_helper  # noqa: E402

import lightnet  # noqa: E402
from lightnet.diagnostics import LightNetError  # noqa: E402
from lightnet.frontends.onnx.ops.quantized import span  # noqa: E402
from lightnet.runtime.dtypes import BY_NAME  # noqa: E402


def f(*dims: int) -> np.ndarray:
    return np.ones(dims, np.float32)


def i(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def s(value: float, dtype: type = np.int64) -> np.ndarray:
    return np.array(value, dtype)


def body() -> onnx.GraphProto:
    """A graph that takes nothing and gives two numbers."""
    numbers = [helper.make_node("Constant", [], [name], value_float=1.0) for name in ("a", "b")]
    return helper.make_graph(numbers, "body", [], [helper.make_empty_tensor_value_info(name) for name in ("a", "b")])


BODY = body()
#: op, inputs (the first is fed, the others are constants; a tuple is one that is fed, too), attributes, message, outputs.
ROWS = [
    ("ConstantOfShape", [None, i(2)], {"value": numpy_helper.from_array(f(2))}, "one element, but has 2"),
    ("Range", [None, i(1, 2), s(3), s(1)], {}, "scalars"),
    ("Range", [None, s(0), s(3), s(0)], {}, "its delta is 0"),
    ("EyeLike", [f(2, 3, 4)], {}, "needs a matrix"),
    ("OneHot", [i(1, 2), s(3), f(3)], {}, "its values should be two"),
    ("OneHot", [i(1, 2), s(-1), f(2)], {}, "not negative"),
    ("Reshape", [f(4), i(2, 0)], {}, "dimension 1 of the shape .* is 0"),
    ("Reshape", [f(4), i(-1, -1)], {}, "at most one -1"),
    ("Reshape", [f(4), i(2, -2)], {}, "at most one -1"),
    ("Reshape", [f(4), i(3, -1)], {}, "cannot have the shape"),
    ("Squeeze", [f(1, 2), i(1)], {}, "should have length 1"),
    ("Transpose", [f(2, 3)], {"perm": [0]}, "should order the 2 axes"),
    ("Transpose", [f(2, 3)], {"perm": [0, 0]}, "axes"),
    ("DepthToSpace", [f(1, 6, 2, 2)], {"blocksize": 2}, "a multiple of 2.2"),
    ("DepthToSpace", [f(4, 2, 2)], {"blocksize": 2}, "needs .N, C, H, W."),
    ("DepthToSpace", [f(1, 4, 2, 2)], {"blocksize": 0}, "a multiple of 0"),
    ("SpaceToDepth", [f(1, 1, 3, 2)], {"blocksize": 2}, "multiples of 2"),
    ("SpaceToDepth", [f(1, 1, 2, 3)], {"blocksize": 2}, "multiples of 2"),
    ("SpaceToDepth", [f(1, 2, 2)], {"blocksize": 2}, "needs .N, C, H, W."),
    ("Concat", [f(), f()], {"axis": 0}, "scalars"),
    ("Concat", [f(2), f(2, 2)], {"axis": 0}, "alike but along axis 0"),
    ("Concat", [f(2), i(2)], {"axis": 0}, "alike but along axis 0"),
    ("Split", [f()], {}, "scalar"),
    ("Split", [f(4)], {"num_outputs": 3}, "num_outputs is 3, but it has 1"),
    ("Split", [f(4), i(3)], {}, "should add up to the 4"),
    ("Split", [f(4), i(5, -1)], {}, "should add up to the 4", 2),
    ("Slice", [f(4), i(0), i(2, 3)], {}, "do not fit together"),
    ("Slice", [f(4), i(0), i(2), i(0), i(0)], {}, "do not fit together"),
    ("Pad", [f(4), i(1, 1)], {"mode": "mirror"}, "unknown mode 'mirror'"),
    ("CenterCropPad", [f(4, 4), i(3)], {}, "a length for each of 2 axes"),
    ("CenterCropPad", [f(4), i(-3)], {}, "a length for each of 1 axes"),
    ("Tile", [f(2, 2), i(2)], {}, "one for each axis"),
    ("Tile", [f(2), i(-1)], {}, "one for each axis"),
    ("Col2Im", [f(1, 4), i(4, 4), i(2, 2)], {}, "does not hold columns"),
    ("Col2Im", [f(1, 5, 4), i(4, 4), i(2, 2)], {"strides": [2, 2]}, "does not hold columns"),
    ("Col2Im", [f(1, 4, 5), i(4, 4), i(2, 2)], {"strides": [2, 2]}, "should have 4 columns"),
    ("Col2Im", [f(1, 4, 1), i(1, 1), i(2, 2)], {}, "columns for an image"),
    ("Compress", [f(2, 2), s(True, np.bool_)], {}, "should be a vector"),
    ("NonMaxSuppression", [f(1, 3, 4), f(1, 3)], {}, "needs boxes"),
    ("NonMaxSuppression", [f(1, 3, 5), f(1, 2, 3)], {}, "needs boxes"),
    ("NonMaxSuppression", [f(2, 3, 4), f(1, 2, 3)], {}, "needs boxes"),
    ("NonMaxSuppression", [f(3, 4), f(1, 2, 3)], {}, "needs boxes"),
    ("NonMaxSuppression", [f(1, 3, 4), f(1, 2, 3), i(1, 2)], {}, "should be single numbers"),
    ("Expand", [f(2), i(-1)], {}, "has a negative dimension"),
    ("ConstantOfShape", [None, i(-1)], {}, "has a negative dimension"),
    ("Conv", [f(1, 1, 4, 4), f(1, 1, 3, 3)], {"auto_pad": "SAME"}, "auto_pad is 'SAME'"),
    ("Conv", [f(1, 1, 4, 4), f(1, 1, 3, 3)], {"pads": [-1, 0, 0, 0]}, "negative padding"),
    ("Conv", [f(1, 1), f(1, 1, 3)], {}, "1 spatial axes or more"),
    ("Conv", [f(1, 1, 4, 4), f(1, 1, 3)], {}, "should have the rank of its input"),
    ("Conv", [f(1, 1, 4, 4), f(1, 1, 3, 3)], {"kernel_shape": [3, 2]}, "is not that of its weights"),
    ("MaxPool", [f(1, 1, 4)], {"kernel_shape": [5], "strides": [2]}, "its window of 5 should fit into an axis of 4"),
    ("ConvTranspose", [f(1, 1, 4, 4), f(1, 1, 3, 3)], {"output_shape": [8]}, "should have 2 elements"),
    ("MaxUnpool", [f(1, 1, 2, 2), np.zeros((1, 1, 2, 2), np.int64), i(1, 1, 9)], {"kernel_shape": [2, 2]}, "should have 4 elements"),
    ("MaxPool", [f(1, 1)], {"kernel_shape": [2]}, "1 spatial axes or more"),
    ("MaxPool", [f(1, 1, 4)], {"kernel_shape": [9]}, "the window should have a position"),
    ("LpPool", [f(1, 1, 4)], {"kernel_shape": [2], "p": 0}, "p is 0, and should be 1 or more"),
    ("MatMul", [f(), f(2)], {}, "rank 1 or more"),
    ("Gemm", [f(2, 3), f(2, 3)], {}, "do not multiply"),
    ("Gemm", [np.ones((2, 2), np.int32), np.ones((2, 2), np.int32)], {"alpha": 0.5}, "integers times 0.5"),
    ("SplitToSequence", [f(), i(1)], {}, "scalar"),
    ("SplitToSequence", [f(4), s(0)], {}, "positive length, not 0"),
    ("SplitToSequence", [f(4), i(1, 2)], {}, "should have 4 elements in all"),
    ("Resize", [f(1, 1, 2, 2), None, f(4)], {"coordinate_transformation_mode": "x"}, "coordinate_transformation_mode is 'x'"),
    ("Resize", [f(1, 1, 2, 2), None, f(4)], {"coordinate_transformation_mode": "tf_crop_and_resize"}, "needs roi"),
    ("Resize", [f(1, 1, 2, 2), f(3), f(4)], {"coordinate_transformation_mode": "tf_crop_and_resize"}, "should have 8 elements"),
    ("Resize", [f(1, 1, 2, 2), None, f(3)], {}, "should be 4 positive numbers"),
    ("Resize", [f(1, 1, 2, 2), None, -f(4)], {}, "should be 4 positive numbers"),
    ("Resize", [f(1, 1, 2, 2), None, None, i(1, 1, 2)], {}, "should be 4 lengths"),
    ("Resize", [f(1, 1, 2, 2), None, None, i(1, 1, 4, 4)], {"keep_aspect_ratio_policy": "x"}, "keep_aspect_ratio_policy is 'x'"),
    ("Resize", [f(1, 1, 2, 2), None, f(4) * 2], {"mode": "area"}, "mode is 'area'"),
    ("Resize", [f(1, 1, 2, 2), None, f(4) * 2], {"nearest_mode": "x"}, "nearest_mode is 'x'"),
    ("Attention", [f(1, 2, 3, 4), f(1, 2, 3, 4), f(1, 2, 3, 4), None, f(1, 2, 1, 4)], {}, "belong together"),
    ("Attention", [f(1, 2, 3, 4), f(1, 2, 3, 4), f(1, 2, 3, 4)], {"qk_matmul_output_mode": 4}, "there are 0 to 3", 4),
    ("Attention", [f(1, 3, 4), f(1, 3, 4), f(1, 3, 4)], {"q_num_heads": 3, "kv_num_heads": 2}, "elements for q_num_heads 3"),
    ("Attention", [f(3, 4), f(1, 2, 3, 4), f(1, 2, 3, 4)], {}, "should have rank 4"),
    ("Attention", [f(1, 3, 3, 4), f(1, 2, 3, 4), f(1, 2, 3, 4)], {}, "its 3 heads of Q should be a multiple of the 2 of K"),
    ("Attention", [f(1, 2, 3, 4), f(1, 2, 3, 4), f(1, 2, 3, 4)], {"softmax_precision": 2}, "softmax_precision is 2"),
    # control flow
    ("Loop", [None, s(2), s([True, True], np.bool_)], {"body": BODY}, "should be one bool, and has 2 elements"),
    ("Loop", [None, s(0), s(True, np.bool_)], {"body": BODY}, "a Loop of no trips"),
    ("Loop", [None, s(1), s(True, np.bool_), f(2), f(2)], {"body": BODY}, "should have 3 outputs or more, and has 2"),
    ("Scan", [f(3)], {"body": BODY, "num_scan_inputs": 2}, "should be between 1 and its number of inputs, 1"),
    ("Scan", [f(3)], {"body": BODY, "num_scan_inputs": 0}, "should be between 1 and its number of inputs, 1"),
    ("Scan", [f()], {"body": BODY, "num_scan_inputs": 1}, "a scanned input is a scalar"),
    ("Scan", [f(3), f(4)], {"body": BODY, "num_scan_inputs": 2}, r"should have one length, and have \[3, 4\]"),
    ("Scan", [f(3)], {"body": BODY, "num_scan_inputs": 1, "scan_input_axes": [0, 0]}, "'scan_input_axes' should have 1 elements, and has 2"),
    ("Scan", [f(3)], {"body": BODY, "num_scan_inputs": 1, "scan_output_axes": [0]}, "'scan_output_axes' should have 2 elements, and has 1"),
    # norms
    ("BatchNormalization", [f(1, 3, 2), f(2), f(3), f(3), f(3)], {}, "an element for each channel"),
    ("BatchNormalization", [f(1, 3, 2), f(3), f(3), f(3), f(2)], {}, "an element for each channel"),
    ("BatchNormalization", [f(3), f(3), f(3), f(3), f(3)], {"training_mode": 1}, r"should be \[N, C"),
    ("BatchNormalization", [f(1, 3, 2), f(2), f(3), f(3), f(3)], {"training_mode": 1}, "an element for each channel"),
    ("InstanceNormalization", [f(1, 3), f(3), f(3)], {}, "with a spatial axis or more"),
    ("InstanceNormalization", [f(1, 3, 2), f(2), f(3)], {}, "an element for each channel"),
    ("GroupNormalization", [f(1, 4, 2), f(4), f(4)], {"num_groups": 3}, "a multiple of num_groups 3"),
    ("GroupNormalization", [f(1, 4, 2), f(4), f(4)], {"num_groups": 0}, "a multiple of num_groups 0"),
    ("LpNormalization", [f(2, 2)], {"p": 3}, "p is 3, and should be 1 or 2"),
    # element by element
    ("BitShift", [np.ones(2, np.uint8), np.ones(2, np.uint8)], {"direction": "UP"}, "should be LEFT or RIGHT, but is 'UP'"),
    ("Gelu", [f(2)], {"approximate": "sin"}, "should be none or tanh, but is 'sin'"),
    ("Dropout", [f(2), s(1.0, np.float32), s(True, np.bool_)], {}, "ratio should be in"),
    ("Dropout", [f(2), s(-0.1, np.float32), s(True, np.bool_)], {}, "ratio should be in"),
    ("Attention", [f(1, 4, 3, 8), f(1, 3, 5, 8), f(1, 3, 5, 8)], {}, "its 4 heads of Q should be a multiple of the 3 of K"),
]  # fmt: skip


def model_of(op: str, inputs: list, attributes: dict, outputs: int, opset: int = 23) -> bytes:
    names = ["" if a is None else f"x{k}" for k, a in enumerate(inputs)]
    if names and inputs[0] is None:  # no operand is fed
        names, inputs = names[1:], inputs[1:]
        fed = []
    else:
        fed = [helper.make_tensor_value_info(names[0], helper.np_dtype_to_tensor_dtype(inputs[0].dtype), inputs[0].shape)] if inputs else []  # fmt: skip
    constants = [numpy_helper.from_array(a, n) for n, a in zip(names[len(fed) :], inputs[len(fed) :]) if a is not None]
    results = [f"y{k}" for k in range(outputs)]
    graph = helper.make_graph([helper.make_node(op, names, results, "the_node", **attributes)], "g", fed,
                              [helper.make_empty_tensor_value_info(y) for y in results[:1]], constants)  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10).SerializeToString()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[3]}")
def test_a_refusal(row) -> None:
    op, inputs, attributes, message, outputs = (*row, 1)[:5]
    with pytest.raises(LightNetError) as caught:
        lightnet.loads(model_of(op, inputs, attributes, outputs), ".onnx")
    words = [caught.value.message, *(note for _, note in caught.value.notes)]
    assert any("the_node" in text and re.search(message, text) for text in words), words
    assert caught.value.label


def open_model() -> bytes:
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 3]) for name in "xy")
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "y"], ["z"])], "g", [x, y], [helper.make_empty_tensor_value_info("z")]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10).SerializeToString()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "leaves the shape of 'x' .n, 3., 'y' .n, 3. open"),
        ({"shapes": {"x": (2, 3)}}, "leaves the shape of 'y' .n, 3. open"),
        ({"shapes": {"x": (2, 3), "y": (4, 3)}}, "axis 0 of 'x' and axis 0 of 'y' 'n', so that they are of one size"),
        ({"shapes": {"y": (4, 3)}, "values": {"x": f(2, 3)}}, "axis 0 of 'x' and axis 0 of 'y' 'n', so that they are of one size"),
        ({"shapes": {"y": (2, 3)}, "values": {"x": f(2)}}, "input 'x' has shape .n, 3., and its value .2."),
        ({"shapes": {"x": (2, 4), "y": (2, 3)}}, ".2, 4. does not fit"), ({"shapes": {"x": (2, 3, 1), "y": (2, 3)}}, "does not fit"),
        ({"shapes": {"x": (-2, 3), "y": (2, 3)}}, "does not fit"),
    ],
)  # fmt: skip
def test_open_shapes(given: dict, message: str) -> None:
    """What is given fits the model, and a symbol is one size, of inputs and of values alike."""
    with pytest.raises(LightNetError, match=message):
        lightnet.loads(open_model(), ".onnx", **given)
    x, y = f(2, 3), f(2, 3) * 4
    executable = lightnet.compile(lightnet.loads(open_model(), ".onnx", shapes={"y": (2, 3)}, values={"x": x}), "none")
    np.testing.assert_array_equal(executable({"y": y})["z"], x + y)


@pytest.mark.parametrize("dtype", ["i8", "ui8"])
@pytest.mark.parametrize("points", [None, [0], [3], [100], [7, 120], "fed"])
def test_the_largest_quantised_number(dtype: str, points) -> None:
    """`span` decides whether f32 holds a sum: no number less its zero point is larger, and one is as large where the points are known."""
    kind = BY_NAME[dtype]
    low, high = (int(v) for v in kind.limits)
    known = None if points in (None, "fed") else np.array(points, kind.np)
    zero = (
        None
        if points is None
        else SimpleNamespace(is_known=known is not None, known=known, len=1 if known is None else known.size)
    )
    found = span(SimpleNamespace(dtype=kind), zero)
    at = range(low, high + 1) if points == "fed" else [0] if points is None else points
    assert found == max(abs(q - z) for q in (low, high) for z in at)
