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
from lightnet.model import load_closed  # noqa: E402
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
    ("OneHot", [i(1, 2), i(), f(2)], {}, "the depth of OneHot should be one number, but is tensor<0xi64>"),
    ("OneHot", [i(1, 2), i(3, 3), f(2)], {}, "the depth of OneHot should be one number, but is tensor<2xi64>"),
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
    ("Attention", [f(1, 4, 3, 8), f(1, 2, 5, 8), f(1, 4, 5, 8)], {}, "its 4 heads of Q should be a multiple of the 2 of K, and V has 4"),
    *(("Attention", [f(1, 2, 3, 4)] * 3, more, f"its window sizes {left} and {right} should be -1 or more")
      for more, left, right in (({"left_window_size": -2}, -2, -1), ({"right_window_size": -2}, -1, -2))),
    ("BitCast", [f(2)], {"to": onnx.TensorProto.INT64}, "satisfy .sizeof.*, but gets 4 against 8"),
    ("BitCast", [f(2)], {"to": onnx.TensorProto.BOOL}, "tensor<2xf32> and i1 are not of one size"),
    ("BitCast", [f(2)], {"to": onnx.TensorProto.FLOAT8E5M2}, "are not of one size"),
    ("BitCast", [np.ones(2, np.bool_)], {"to": onnx.TensorProto.FLOAT8E5M2}, "are not of one size"),
    ("Cast", [f(2)], {"to": onnx.TensorProto.FLOAT8E8M0, "round_mode": "sideways"}, "should be one of .*, but is 'sideways'"),
    ("TensorScatter", [f(2, 4, 3), f(2, 5, 3)], {}, "tensor<2x5x3xf32> does not fit into tensor<2x4x3xf32> along axis 1"),
    ("TensorScatter", [f(2, 4, 3), f(2, 4, 2)], {}, "does not fit into tensor<2x4x3xf32> along axis 1"),
    ("TensorScatter", [f(2, 4, 3), f(2, 4)], {}, "does not fit into tensor<2x4x3xf32> along axis 1"),
    ("TensorScatter", [f(2, 4, 3), f(1, 4, 3)], {"axis": 0}, "does not fit into tensor<2x4x3xf32> along axis 0"),
    # sampling
    ("GridSample", [np.ones((1, 1, 3, 3), np.int32), f(1, 2, 2, 2)], {}, "sampling of integers"),
    ("RoiAlign", [f(1, 1, 4, 4), f(1, 4), i(0)], {"coordinate_transformation_mode": "half"}, "is 'half'; there are half_pixel and output_half_pixel"),
    *(("MaxRoiPool", [f(*x), f(*rois)], {"pooled_shape": shape}, "takes a picture of rank 4, regions of five numbers and a pooled_shape of two")
      for x, rois, shape in (((1, 4, 4), (1, 5), [2, 2]), ((1, 1, 4, 4), (5,), [2, 2]), ((1, 1, 4, 4), (1, 4), [2, 2]), ((1, 1, 4, 4), (1, 5), [2]))),
    *(("DeformConv", [f(*x), f(*w), f(*o)], {}, "other pictures than those with two axes")
      for x, w, o in (((1, 1, 4), (1, 1, 2, 2), (1, 8, 3, 3)), ((1, 1, 4, 4), (1, 1, 2), (1, 8, 3, 3)), ((1, 1, 4, 4), (1, 1, 2, 2), (1, 8, 3)))),
    ("DeformConv", [f(1, 1, 4, 4), f(1, 1, 2, 2), f(1, 8, 3, 3)], {"kernel_shape": [2, 3]}, r"kernel_shape \[2, 3\] is not that of its weights"),
    *(("DeformConv", [f(1, channels, 4, 4), f(outputs, 2, 2, 2), f(1, number, 3, 3)], {"group": group, "offset_group": offsets},
       f"do not fit for group {group} and offset_group {offsets}")
      for channels, outputs, number, group, offsets in ((3, 2, 8, 1, 1), (4, 3, 8, 2, 1), (2, 2, 7, 1, 1), (2, 2, 24, 1, 3), (2, 2, 0, 1, 0))),
    *(("DeformConv", [f(1, 1, 4, 4), f(1, 1, 2, 2), f(1, 8, 3, 3)], more, "elements, as its input has 2 spatial axes")
      for more in ({"strides": [1]}, {"dilations": [1, 1, 1]}, {"pads": [0, 0]})),
    # quantised
    ("DequantizeLinear", [np.ones((2, 3), np.uint8), f(2, 2)], {}, "should have rank 0 or 1, but one is tensor<2x2xf32>"),
    ("DequantizeLinear", [np.ones((2, 3), np.uint8), f(2)], {}, "along axis 1 of tensor<2x3xui8> it has 2 scales or zero points"),
    ("DequantizeLinear", [np.ones((2, 5), np.uint8), f(2, 2)], {"block_size": 2}, "with blocks of 2 along axis 1, a scale of tensor<2x2xf32> does not fit"),
    ("DequantizeLinear", [np.ones((2, 4), np.uint8), f(2, 3)], {"block_size": -1}, "with blocks of -1 along axis 1"),
    ("DequantizeLinear", [np.ones((2, 4), np.uint8), f(2, 3)], {"block_size": 2}, "a scale of tensor<2x3xf32> does not fit tensor<2x4xui8>"),
    ("ConvInteger", [np.ones((1, 1, 4), np.uint8), np.ones((1, 1, 2, 2), np.uint8)], {}, "both should have one rank, of at least 3"),
    ("ConvInteger", [np.ones((1, 1), np.uint8), np.ones((1, 1), np.uint8)], {}, "both should have one rank, of at least 3"),
    # recurrent
    ("RNN", [f(3, 2), f(1, 4, 2), f(1, 4, 4)], {"hidden_size": 4}, "X, W and R should have rank 3"),
    ("RNN", [f(3, 1, 2), f(4, 2), f(1, 4, 4)], {"hidden_size": 4}, "X, W and R should have rank 3"),
    ("RNN", [f(3, 1, 2), f(1, 4, 2), f(4, 4)], {"hidden_size": 4}, "X, W and R should have rank 3"),
    ("RNN", [f(3, 1, 2), f(1, 4, 2), f(1, 4, 4)], {"hidden_size": 4, "direction": "up"}, "direction is 'up'; there are forward, reverse, bidirectional"),
    ("RNN", [f(3, 1, 2), f(1, 4, 2), f(1, 4, 4), None, np.ones(2, np.int32)], {"hidden_size": 4}, "its sequence_lens tensor<2xi32> should have 1 elements"),
    ("RNN", [f(3, 1, 2), f(1, 4, 2), f(1, 4, 4)], {"hidden_size": 4, "activations": ["Tanh", "Relu"]}, r"its activations \['Tanh', 'Relu'\] should be 1 for each"),
    ("RNN", [f(3, 1, 2), f(1, 4, 2), f(1, 4, 4)], {"hidden_size": 4, "activations": ["Tan"]}, "unknown activation 'Tan'; there are "),
    # sums, losses, determinants
    ("Einsum", [f(2)], {"equation": "i->i" + " " * 1021}, "an equation of 1025 characters, more than 1024"),
    ("NegativeLogLikelihoodLoss", [f(2, 3), i(0)], {}, "tensor<2x3xf32> and the classes tensor<1xi64> do not fit together"),
    ("NegativeLogLikelihoodLoss", [f(2, 3, 4), i(0, 1)], {}, "and the classes tensor<2xi64> do not fit together"),
    ("Det", [f(2, 3)], {}, "needs square matrices, got tensor<2x3xf32>"),
    ("Det", [f(3)], {}, "needs square matrices, got tensor<3xf32>"),
    ("Det", [f(4, 4)], {}, "the determinant of a 4 x 4 matrix that is computed at run time"),
    ("Det", [f(2, 0, 0)], {}, "the determinant of a 0 x 0 matrix"),
    # signals
    ("STFT", [f(1, 8, 3), s(2)], {}, r"should be \[batch, samples, 1 or 2\]"),
    ("STFT", [f(8), s(2)], {}, r"should be \[batch, samples, 1 or 2\]"),
    ("STFT", [f(1, 8, 1), s(2), f(2, 2)], {}, "and its window a vector"),
    ("STFT", [f(1, 8, 2), s(2)], {}, "with onesided .* its signal should be real"),
    ("STFT", [f(1, 8, 1), s(0), f(4)], {}, "frames of 4 samples every 0 do not fit"),
    ("STFT", [f(1, 8, 1), s(2), f(9)], {}, "frames of 9 samples every 2 do not fit"),
    ("STFT", [f(1, 8, 1), s(2), f(4), s(5)], {}, "frames of 5 samples every 2 do not fit its signal .* and window tensor<4xf32>"),
    ("STFT", [f(1, 8, 1), i(2, 2)], {}, "the step of STFT should be one integer, but is tensor<2xi64>"),
    *(("MelWeightMatrix", [None, s(count), s(size), s(rate), s(low, np.float32), s(high, np.float32)], {}, message)
      for count, size, rate, low, high, message in ((0, 16, 8000, 0, 100, "0 bands of 9 bins"), (4, 0, 8000, 0, 100, "4 bands of 1 bins"), (4, 16, 0, 0, 100, "of 0 Hz"),
          (4, 16, 8000, 101, 100, "between 101.0 and 100.0"), (4, 16, 8000, -1, 100, "between -1.0"), (4, 16, 8000, 0, np.inf, "are not possible"),
          (1 << 22, 16, 8000, 0, 100, "are not possible"), (4, 16, 8000, 0, 1e6, "the upper edge 1000000.0 Hz is beyond half of the sample rate 8000 Hz"))),
    # numbers at the edge of what is taken
    ("OneHot", [i(1, 2), s(3), f(2, 1)], {}, "its values should be two"),
    ("DepthToSpace", [f(1, 5, 2, 2)], {"blocksize": 2}, "a multiple of 2.2"),
    ("SpaceToDepth", [f(1, 1, 2, 2)], {"blocksize": 0}, "multiples of 0"),
    ("Col2Im", [f(1, 4, 4), i(4, 4), i(2, 2)], {"strides": [0, 2]}, "Col2Im"),
    ("SplitToSequence", [f(4), s(-1)], {}, "positive length, not -1"),
    ("Resize", [f(1, 1, 2, 2), None, None, i(1, 1, -2, 2)], {}, "should be 4 lengths"),
    ("Resize", [f(1, 1, 0, 2), None, None, i(1, 1, 2, 2)], {}, "should be 4 lengths"),
    ("CenterCropPad", [f(4, 4), i(3, -1)], {}, "a length for each of 2 axes"),
    ("DFT", [f(4)], {}, "DFT"), ("DFT", [f(1, 4, 3)], {}, "DFT"), ("DFT", [f(1, 4, 1), None, s(2)], {}, "DFT"),
    ("BatchNormalization", [f(1, 3, 2), f(3, 1), f(3), f(3), f(3)], {}, "an element for each channel"),
    ("LpPool", [f(1, 1, 4)], {"kernel_shape": [2], "p": -1}, "p is -1, and should be 1 or more"),
    ("Scan", [], {"body": BODY, "num_scan_inputs": 1}, "Scan"),
    ("Cast", [f(2)], {}, "needs the attribute 'to'"), ("Cast", [f(2)], {"to": 99}, "there is no element type 99"),
    ("Transpose", [f(2, 3)], {"perm": [0.5, 1.0]}, "its attribute 'perm' should be .*integers"),
    # what is drawn
    ("RandomUniform", [None], {"shape": [2], "dtype": onnx.TensorProto.INT32}, "it draws floats, but its dtype is i32"),
    ("RandomNormalLike", [np.ones(2, np.int64)], {}, "it draws floats, but its dtype is i64"),
    ("Bernoulli", [np.ones(2, np.int32)], {}, "its probabilities are tensor<2xi32>, which are no floats"),
    ("Multinomial", [f(3)], {}, r"should be \[batch, classes\], but are tensor<3xf32>"),
    ("Multinomial", [f(3, 0)], {}, r"should be \[batch, classes\], but are tensor<3x0xf32>"),
    # n-grams
    *(("TfIdfVectorizer", [np.ones(dims, dtype)], dict(max_gram_length=1, min_gram_length=1, max_skip_count=0, mode="TF", ngram_counts=[0], pool_int64s=[1, 2],
                                                       ngram_indexes=[0, 1]) | more, message)
      for dims, dtype, more, message in (
          ((2,), np.float32, {}, "n-grams of anything but i32 and i64"), ((1, 1, 2), np.int64, {}, r"its input should be \[C\] or \[N, C\], but is"),
          ((), np.int64, {}, r"its input should be \[C\] or \[N, C\]"), ((2,), np.int64, {"ngram_indexes": [0, -1]}, r"its ngram_indexes are \[0, -1\]"),
          ((2,), np.int64, {"ngram_indexes": [0, 1 << 23]}, "2 n-grams and 8388609 outputs"), ((2,), np.int64, {"ngram_counts": [0, 1]}, r"ngram_counts \[0, 1\] do not divide its pool of 2"),
          ((2,), np.int64, {"ngram_counts": [2, 0]}, "do not divide its pool"), ((2,), np.int64, {"ngram_indexes": [0]}, "it has 1 ngram_indexes, and its pool 2 n-grams"),
          ((2,), np.int64, {"mode": "TFI"}, "its mode is 'TFI'; there are TF, IDF and TFIDF"),
          ((2,), np.int64, {"mode": "IDF", "weights": [1.0]}, "it has 1 weights for 2 n-grams"))),
]  # fmt: skip


def model_of(op: str, inputs: list, attributes: dict, outputs: int, opset: int = 23) -> bytes:
    domain, _, op = op.rpartition(":")
    names = ["" if a is None else f"x{k}" for k, a in enumerate(inputs)]
    if names and inputs[0] is None:  # no operand is fed
        names, inputs = names[1:], inputs[1:]
        fed = []
    else:
        fed = [helper.make_tensor_value_info(names[0], helper.np_dtype_to_tensor_dtype(inputs[0].dtype), inputs[0].shape)] if inputs else []  # fmt: skip
    constants = [numpy_helper.from_array(a, n) for n, a in zip(names[len(fed) :], inputs[len(fed) :]) if a is not None]
    results = [f"y{k}" for k in range(outputs)]
    graph = helper.make_graph([helper.make_node(op, names, results, "the_node", domain=domain, **attributes)], "g", fed,
                              [helper.make_empty_tensor_value_info(y) for y in results[:1]], constants)  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(d, n) for d, n in {"": opset, domain: opset if domain == "" else 1}.items()],
                             ir_version=10).SerializeToString()  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[3]}")
def test_a_refusal(row) -> None:
    refused(*row)


def refused(op: str, inputs: list, attributes: dict, message: str, outputs: int = 1) -> None:
    """The model is refused at the node, with a label, in words that `message` matches."""
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
        load_closed(open_model(), **given)
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


@pytest.mark.parametrize("kind", ["input", "output", "attribute"])
def test_a_function_declares_each_name_once(kind: str) -> None:
    """Even one that nothing calls, and whose body would not mind."""
    names = {"input": ["a", "b"], "output": ["c"], "attribute": ["k"]}
    names[kind] = [*names[kind], names[kind][0]]
    nodes = [helper.make_node("Add", ["a", "b"], ["c"])]
    ids = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    made = helper.make_function("local", "F", names["input"], names["output"], nodes, ids[:1], names["attribute"])
    ends = [[helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2])] for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", *ends)
    proto = helper.make_model(graph, opset_imports=ids, functions=[made], ir_version=8)
    with pytest.raises(LightNetError, match=rf"(?s)function 'F'.*{kind} '{names[kind][0]}' is declared twice"):
        lightnet.loads(proto.SerializeToString(), ".onnx")
