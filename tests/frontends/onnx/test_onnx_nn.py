"""Layers of ONNX models where ONNX's own node tests (`tools/conformance.py`) are thin: against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

import lightnet
from lightnet.frontends import volumes

onnx = pytest.importorskip("onnx")

helper = onnx.helper

# -- against ONNX Runtime


def agrees_with_ort(nodes, inputs, weights=None, outputs=("y",), opset=17, tolerance=1e-5):
    """Compile a model with these inputs (arrays by name) and initializers, run it here and there, compare the outputs.
    Returns the model's file."""
    ort = pytest.importorskip("onnxruntime")

    def info(name, array):
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

    graph = helper.make_graph(
        nodes,
        "g",
        [info(k, v) for k, v in inputs.items()],
        [helper.make_empty_tensor_value_info(o) for o in outputs],
        [onnx.numpy_helper.from_array(v, k) for k, v in (weights or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    data = model.SerializeToString()
    session = ort.InferenceSession(data, providers=["CPUExecutionProvider"])
    want = session.run(list(outputs), inputs)
    got = lightnet.compile(data)(inputs)
    for name, array in zip(outputs, want):
        assert (got[name].shape, got[name].dtype) == (array.shape, array.dtype)
        error = np.abs(got[name].astype(np.float64) - array).max() if array.size else 0
        assert error <= tolerance * max(1.0, np.abs(array).max()), (name, error)
    return data


def normal(*dims, seed=0, dtype=np.float32) -> np.ndarray:
    return np.random.default_rng([seed, *dims]).standard_normal(dims).astype(dtype)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op_type", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers(op_type, direction):
    """Sequences of several lengths, biases, initial states, clipping and peepholes."""
    steps, batch, size, hidden = 5, 3, 7, 9
    both, gates = 2 if direction == "bidirectional" else 1, {"LSTM": 4, "GRU": 3, "RNN": 1}[op_type]
    weights = {
        "w": normal(both, gates * hidden, size) / 2,
        "r": normal(both, gates * hidden, hidden) / 2,
        "b": normal(both, 2 * gates * hidden),
        "h": normal(both, batch, hidden),
    }
    inputs = ["x", "w", "r", "b", "lens", "h"]
    outputs = ["y", "last"]
    if op_type == "LSTM":
        weights |= {"c": normal(both, batch, hidden, seed=1), "p": normal(both, 3 * hidden)}
        inputs += ["c", "p"]
        outputs += ["cell"]
    more = {"linear_before_reset": 1} if op_type == "GRU" else {}
    node = helper.make_node(op_type, inputs, outputs, direction=direction, hidden_size=hidden, clip=1.5, **more)
    feeds = {"x": normal(steps, batch, size), "lens": np.array([5, 2, 4], np.int32)}
    agrees_with_ort([node], feeds, weights, tuple(outputs))


def test_gru_of_onnx_resets_before_the_product():
    weights = {"w": normal(1, 12, 3), "r": normal(1, 12, 4), "b": normal(1, 24)}
    node = helper.make_node("GRU", ["x", "w", "r", "b"], ["y"], hidden_size=4)
    agrees_with_ort([node], {"x": normal(3, 1, 3)}, weights)


def test_activations_of_recurrent_layers():
    """Alphas and betas belong to those activations that take one."""
    weights = {"w": normal(1, 12, 3), "r": normal(1, 12, 3)}
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=3, activations=["HardSigmoid", "Softsign", "Elu"],
                            activation_alpha=[0.3, 0.7], activation_beta=[0.4])  # fmt: skip
    agrees_with_ort([node], {"x": normal(4, 2, 3)}, weights)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_convolutions_of_any_rank(axes):
    """Groups, strides, dilations, asymmetric padding and no bias; then a transposed one with output_padding."""
    dims = (7, 6, 5)[:axes]
    weights = {"w": normal(6, 2, *(3, 2, 3)[:axes]), "v": normal(6, 2, *(2, 3, 2)[:axes]), "b": normal(4)}
    pads = [1, 0, 2, 0, 1, 1]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["h"], group=2, strides=[2, 1, 1][:axes], dilations=[1, 2, 1][:axes],
                         pads=[*pads[:axes], *pads[3 : 3 + axes]]),
        helper.make_node("ConvTranspose", ["h", "v", "b"], ["y"], group=2, strides=[2] * axes,
                         output_padding=[1, 0, 1][:axes]),
    ]  # fmt: skip
    agrees_with_ort(nodes, {"x": normal(2, 4, *dims)}, weights)


CUBE = normal(2, 3, 9, 7, 8)


@pytest.mark.parametrize(
    "size, stride, padding",
    [
        ((5, 1, 1), (2, 1, 1), (2, 0, 0, 1, 0, 0)),
        ((1, 1, 5), (1, 1, 3), (0, 0, 1, 0, 0, 2)),
        ((1, 3, 1), (1, 2, 1), (0, 1, 0, 0, 1, 0)),
        ((1, 1, 1), (1, 1, 1), (0,) * 6),
        ((1, 1, 1), (1, 2, 1), (0,) * 6),
        ((1, 1, 1), (1, 1, 1), (0, 0, 1, 0, 0, 0)),
    ],
)
def test_convolutions_over_some_of_three_axes(size, stride, padding):
    """Axes side by side that have no window are one."""
    conv = helper.make_node("Conv", ["x", "w", "b"], ["y"], strides=stride, pads=padding, group=3)
    agrees_with_ort([conv], {"x": CUBE}, {"w": normal(6, 1, *size), "b": normal(6)})


def test_a_large_copy_of_planes_is_made_in_parts(monkeypatch):
    """Halves, as often as it takes; taps of one position may be more than is allowed."""
    conv = helper.make_node("Conv", ["x", "w"], ["y"], strides=[2, 1, 1], pads=[1, 1, 0, 2, 0, 1], dilations=[2, 1, 1])
    for most, parts in ((1 << 26, 1), (CUBE[:, :, :6].size, 2), (1, 4)):  # of 4 positions, with 3 taps each
        monkeypatch.setattr(volumes, "MAX_COPY", most)
        data = agrees_with_ort([conv], {"x": CUBE}, {"w": normal(4, 3, 3, 2, 2)})
        assert str(lightnet.loads(data, ".onnx").module).count("ln.conv2d") == parts


@pytest.mark.parametrize(
    "size, stride, padding, extra",
    [
        ((2, 2, 2), (2, 2, 2), (0,) * 6, (0, 0, 0)),
        ((3, 1, 3), (1, 2, 1), (2, 0, 1, 1, 0, 1), (0, 1, 0)),
        ((4, 3, 2), (3, 1, 2), (1, 0, 0, 2, 1, 0), (2, 0, 1)),
        ((5, 2, 1), (2, 2, 1), (4, 0, 0, 4, 1, 0), (1, 0, 0)),
        ((1, 2, 2), (2, 2, 2), (0,) * 6, (1, 0, 0)),
    ],
)
def test_transposed_convolutions_over_three_axes(size, stride, padding, extra):
    """By phases of the stride, the last excepted, where some have no tap."""
    more = dict(strides=stride, pads=padding, output_padding=extra, group=3)
    deconv = helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], **more)
    agrees_with_ort([deconv], {"x": CUBE}, {"w": normal(3, 2, *size), "b": normal(6)})


@pytest.mark.parametrize("ceil", [0, 1])
def test_pools_over_three_axes(ceil):
    more = dict(kernel_shape=[2, 3, 2], strides=[2, 2, 3], pads=[1, 2, 0, 0, 1, 1], ceil_mode=ceil)
    nodes = [
        helper.make_node("MaxPool", ["x"], ["m"], **more),
        helper.make_node("MaxPool", ["x"], ["d"], **{**more, "dilations": [1, 1, 2]}),
        helper.make_node("AveragePool", ["x"], ["a"], **more),
        helper.make_node("AveragePool", ["x"], ["c"], count_include_pad=1, **more),
        helper.make_node("AveragePool", ["x"], ["u"], kernel_shape=[1, 2, 1]),
    ]
    agrees_with_ort(nodes, {"x": normal(2, 3, 5, 6, 7)}, outputs=("m", "d", "a", "c", "u"))


@pytest.mark.parametrize("axes", [3, 4])
def test_special_values_in_pools_over_many_axes(axes):
    """Two axes at a time make of NaN, infinities and padding what all at once make, which NumPy says."""
    size, stride, before, behind = ((2, 3, 2, 2), (2, 2, 3, 1), (1, 2, 0, 1), (0, 1, 1, 0))
    size, stride, before, behind = (v[:axes] for v in (size, stride, before, behind))
    x = normal(1, 2, *(5, 6, 7, 4)[:axes])
    x[0, 0, 1], x[0, 1, 4, 0], x[0, 1, 0, 5] = -np.inf, np.nan, np.inf
    more = dict(kernel_shape=size, strides=stride, pads=(*before, *behind))
    nodes = [helper.make_node(kind, ["x"], [kind], **more) for kind in ("MaxPool", "AveragePool")]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, x.shape)],
                              [helper.make_tensor_value_info(n.output[0], 1, None) for n in nodes])  # fmt: skip
    got = lightnet.compile(helper.make_model(graph).SerializeToString())({"x": x})

    def taps(array, filler):
        padded = np.pad(array.astype(np.float64), [(0, 0), (0, 0), *zip(before, behind)], constant_values=filler)
        found = np.lib.stride_tricks.sliding_window_view(padded, size, tuple(range(2, axes + 2)))
        return found[:, :, *(slice(None, None, s) for s in stride)].reshape(*got["MaxPool"].shape, -1)

    np.testing.assert_array_equal(got["MaxPool"], taps(x, -np.inf).max(-1))
    with np.errstate(invalid="ignore"):  # inf - inf
        means = taps(x, 0).sum(-1) / taps(np.ones_like(x), 0).sum(-1)
    np.testing.assert_allclose(got["AveragePool"], means, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_automatic_padding(auto_pad):
    weights = {"w": normal(3, 2, 4, 3), "v": normal(3, 2, 3, 3)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], auto_pad=auto_pad, strides=[2, 3]),
        helper.make_node("MaxPool", ["c"], ["m"], auto_pad=auto_pad, kernel_shape=[2, 2], strides=[1, 2]),
        helper.make_node("AveragePool", ["m"], ["a"], auto_pad=auto_pad, kernel_shape=[2, 1], strides=[1, 1]),
        helper.make_node("ConvTranspose", ["a", "v"], ["y"], auto_pad=auto_pad, strides=[2, 2]),
    ]
    agrees_with_ort(nodes, {"x": normal(1, 2, 11, 14)}, weights)


@pytest.mark.parametrize("ceil, counted", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_pools(ceil, counted):
    """The large one is taken along one axis after the other."""
    more = dict(kernel_shape=[3, 2], strides=[2, 3], pads=[1, 0, 1, 1], ceil_mode=ceil)
    nodes = [
        helper.make_node("MaxPool", ["x"], ["m", "at"], **more),
        helper.make_node("AveragePool", ["x"], ["a"], count_include_pad=counted, **more),
        helper.make_node("GlobalMaxPool", ["x"], ["g"]),
        helper.make_node(
            "MaxPool", ["x"], ["l"], kernel_shape=[5, 4], strides=[2, 1], pads=[2, 1, 1, 3], ceil_mode=ceil
        ),
    ]
    agrees_with_ort(nodes, {"x": normal(2, 3, 8, 9)}, outputs=("m", "at", "a", "g", "l"))


@pytest.mark.parametrize(
    "a, b", [((5,), (5,)), ((5,), (2, 5, 3)), ((2, 3, 5), (5,)), ((3, 1, 4, 5), (2, 5, 6)), ((1, 70), (70, 40))]
)
def test_products(a, b):
    agrees_with_ort([helper.make_node("MatMul", ["a", "b"], ["y"])], {"a": normal(*a)}, {"b": normal(*b)})


@pytest.mark.parametrize("rows", [1, 6])
@pytest.mark.parametrize("bias", [(), (7,), (1, 7), (1,), (6, 7)])
def test_gemm(rows, bias):
    """With a weight stored [N, K], biases of every shape, and factors."""
    if bias == (6, 7) and rows == 1:
        pytest.skip("the bias would be larger than the product")
    weights = {"w": normal(7, 33), "c": normal(*bias)}
    nodes = [
        helper.make_node("Gemm", ["x", "w", "c"], ["h"], transB=1),
        helper.make_node("Gemm", ["x", "w", "c"], ["g"], transB=1, alpha=0.5, beta=2.0),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Add", ["r", "g"], ["y"]),
    ]
    agrees_with_ort(nodes, {"x": normal(rows, 33)}, weights)


@pytest.mark.parametrize("more", [{}, {"group": 2, "offset_group": 4}], ids=["plain", "groups"])
def test_deformable_convolutions_of_unlike_axes(more):
    """Windows, steps, distances of taps and borders that are others along each axis; offsets into the border, too."""
    x, w = normal(2, 4, 7, 9), normal(4, 4 // more.get("group", 1), 2, 3)
    window = {"strides": [2, 1], "dilations": [3, 2], "pads": [1, 2, 0, 3]}
    offset = 1.5 * normal(2, more.get("offset_group", 1) * 2 * 6, 3, 10)
    mask = normal(2, more.get("offset_group", 1) * 6, 3, 10)
    node = helper.make_node("DeformConv", ["x", "w", "offset", "b", "mask"], ["y"], **window, **more)
    agrees_with_ort([node], {"x": x, "offset": offset, "mask": mask}, {"w": w, "b": normal(4)}, opset=19)


def test_softmax_of_old_opsets_flattens():
    nodes = [helper.make_node("Softmax", ["x"], ["s"], axis=1), helper.make_node("LogSoftmax", ["x"], ["y"])]
    agrees_with_ort(nodes, {"x": normal(2, 3, 4)}, outputs=("s", "y"), opset=11)


@pytest.mark.parametrize("dims", [(4, 3), (4, 3, 5), (1, 3, 2, 3, 4)])
def test_batch_normalization_of_any_rank(dims):
    weights = {"s": normal(3), "b": normal(3, seed=1), "m": normal(3, seed=2), "v": np.abs(normal(3, seed=3)) + 0.5}
    agrees_with_ort(
        [helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"])], {"x": normal(*dims)}, weights
    )


MAPPINGS = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")


@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize(mode, mapping):
    """Up along one axis, down along the other; with aligned corners to whole lengths, as ONNX Runtime rounds these first
    (the standard's own cases do not)."""
    scales = (2, 2 / 3) if mapping == "align_corners" else (1.7, 0.6)
    weights = {"scales": np.array([1, 1, *scales], np.float32)}
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode=mode, coordinate_transformation_mode=mapping)
    agrees_with_ort([node], {"x": normal(1, 2, 7, 9)}, weights, opset=19, tolerance=1e-4)


def test_resize_of_opset_10_and_11():
    old = helper.make_node("Resize", ["x", "scales"], ["y"], mode="linear")
    agrees_with_ort([old], {"x": normal(1, 2, 4, 5)}, {"scales": np.array([1, 1, 2, 3], np.float32)}, opset=10)
    new = helper.make_node("Resize", ["x", "roi", "none", "sizes"], ["y"], mode="nearest",
                           coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip
    weights = {"roi": np.zeros(0, np.float32), "none": np.zeros(0, np.float32), "sizes": np.array([1, 2, 8, 15])}
    agrees_with_ort([new], {"x": normal(1, 2, 4, 5)}, weights, opset=11)


def test_a_transformer_block():
    """Layer norm, attention by MatMul and Softmax, GELU: what fuses into products, in one network."""
    rows, size, heads = 12, 32, 4
    weights = {name: normal(size, size, seed=i) / 6 for i, name in enumerate(("q", "k", "v", "o"))}
    weights |= {"up": normal(size, 4 * size) / 6, "bias": normal(4 * size), "down": normal(4 * size, size) / 12}
    weights |= {"g": normal(size) + 1, "s": normal(size, seed=1), "scale": np.float32(8**-0.5),
                "split": np.array([0, 0, heads, -1]), "join": np.array([0, 0, -1])}  # fmt: skip
    node = helper.make_node
    nodes = [node("LayerNormalization", ["x", "g", "s"], ["n"])]
    for name, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [node("MatMul", ["n", name], [f"{name}0"]), node("Reshape", [f"{name}0", "split"], [f"{name}1"]),
                  node("Transpose", [f"{name}1"], [f"{name}2"], perm=perm)]  # fmt: skip
    nodes += [
        node("MatMul", ["q2", "k2"], ["s0"]), node("Mul", ["s0", "scale"], ["s1"]), node("Add", ["s1", "mask"], ["s2"]),
        node("Softmax", ["s2"], ["s3"]), node("MatMul", ["s3", "v2"], ["a0"]),
        node("Transpose", ["a0"], ["a1"], perm=[0, 2, 1, 3]), node("Reshape", ["a1", "join"], ["a2"]),
        node("MatMul", ["a2", "o"], ["a3"]), node("Add", ["a3", "x"], ["r"]),
        node("MatMul", ["r", "up"], ["u0"]), node("Add", ["u0", "bias"], ["u1"]), node("Erf", ["u1"], ["u2"]),
        node("Mul", ["u1", "u2"], ["u3"]), node("MatMul", ["u3", "down"], ["d"]), node("Add", ["d", "r"], ["y"]),
    ]  # fmt: skip
    agrees_with_ort(nodes, {"x": normal(2, rows, size), "mask": normal(2, 1, 1, rows)}, weights, tolerance=1e-4)


# -- refusals


def refused(node, inputs, match, weights=None):
    with pytest.raises((lightnet.LightNetError, AssertionError), match=match):
        agrees = helper.make_graph(
            [node], "g",
            [helper.make_tensor_value_info(k, onnx.TensorProto.FLOAT, v) for k, v in inputs.items()],
            [helper.make_empty_tensor_value_info("y")],
            [onnx.numpy_helper.from_array(v, k) for k, v in (weights or {}).items()],
        )  # fmt: skip
        model = helper.make_model(agrees, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        lightnet.compile(model.SerializeToString())


def test_refusals_name_the_node_and_what_is_wrong():
    node = helper.make_node
    refused(
        node("Conv", ["x", "w"], ["y"], strides=[1]), {"x": (1, 3, 8, 8), "w": (4, 3, 3, 3)}, "strides .* 2 elements"
    )
    refused(node("MatMul", ["x", "w"], ["y"]), {"x": (2, 3), "w": (4, 5)}, "inner")
    refused(node("LRN", ["x"], ["y"]), {"x": (1, 3, 4, 4)}, "size")
    refused(node("MaxPool", ["x"], ["y"], kernel_shape=[9, 9]), {"x": (1, 3, 4, 4)}, "dimensions|window")
    huge = {"s": np.array([1, 1, 1e5, 1e5], np.float32)}
    refused(
        node("Resize", ["x", "", "s"], ["y"], mode="linear"), {"x": (1, 3, 400, 400)}, "not possible|more than", huge
    )


@pytest.mark.parametrize("stride, dilation, group", [(1, 1, 1), (2, 1, 2), (1, 3, 4)])
def test_a_convolution_over_one_column(stride, dilation, group):
    """It runs as one over a row, along the vectors."""
    rng = np.random.default_rng(0)
    x, w = rng.random((2, 8, 37, 1), np.float32), rng.random((12, 8 // group, 5, 1), np.float32)
    conv = helper.make_node("Conv", ["x", "w", "b"], ["y"], strides=[stride, 1], dilations=[dilation, 1], group=group,
                            pads=[3, 0, 1, 0])  # fmt: skip
    agrees_with_ort([conv], {"x": x}, {"w": w, "b": rng.random(12, np.float32)}, tolerance=1e-4)
