"""Index notation: every op of the table written in it, against formulations that share nothing with the notation."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from onnx.reference import ReferenceEvaluator

from lightnet.diagnostics import LightNetError
from lightnet.ir.bound import BoundDefinition, renamed_statement
from lightnet.ir.constants import Env, failure
from lightnet.ir.constants import evaluate as constant
from lightnet.ir.expr import format_expr, parse_expr
from lightnet.ir.notation import bind, parse
from lightnet.ir.types import TensorSpec
from lightnet.runtime.dtypes import BY_NAME, BY_NP, DTYPES, convert, is_float
from lightnet_trust.interpreter.notation import evaluate_definition

F32, I32 = BY_NAME["f32"], BY_NAME["i32"]


def spec(array_or_dims, dtype=F32) -> TensorSpec:
    if isinstance(array_or_dims, np.ndarray):
        return TensorSpec(array_or_dims.shape, BY_NP[array_or_dims.dtype])
    return TensorSpec(tuple(array_or_dims), dtype)


def bound(text, arrays, params=None, **results) -> BoundDefinition:
    specs = {name: spec(a) for name, a in arrays.items()}
    specs |= {name: r if isinstance(r, TensorSpec) else spec(r) for name, r in results.items()}
    return bind(parse(text), specs, params or {}, list(results))


def run(text, arrays, params=None, **results):
    out = evaluate_definition(bound(text, arrays, params, **results), arrays)
    return next(iter(out.values())) if len(out) == 1 else out


def onnx_run(op, arrays, **attributes):
    node = helper.make_node(op, list(arrays), ["y"], **attributes)
    kind = {n: helper.np_dtype_to_tensor_dtype(a.dtype) for n, a in arrays.items()}
    inputs = [helper.make_tensor_value_info(n, kind[n], a.shape) for n, a in arrays.items()]
    output = helper.make_tensor_value_info("y", next(iter(kind.values())), None)
    model = helper.make_model(
        helper.make_graph([node], "g", inputs, [output]), opset_imports=[helper.make_opsetid("", 18)]
    )
    return ReferenceEvaluator(model).run(None, dict(arrays))[0]


def normal(*dims, seed=0):
    return np.random.default_rng([seed, *dims]).normal(size=dims).astype(np.float32)


def close(got, want, tolerance=1e-5):
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(want).max())))


# --- The ops --------------------------------------------------------------------------------------------------------

CONV2D = """
dst[n, o, y, x] = bias[o]
dst[n, o, y, x] += src[n, o / (weight.dims[0] / group) * weight.dims[1] + c, y*stride[0] + r*dilation[0] - padding[0],
                       x*stride[1] + q*dilation[1] - padding[1] | 0] * weight[o, c, r, q]
"""
DECONV2D = """
dst[n, o, y, x] = bias[o]
dst[n, o, y, x] += (y + padding[0] - r*dilation[0]) % stride[0] == 0 && (x + padding[1] - q*dilation[1]) % stride[1] == 0
    ? src[n, o / weight.dims[1] * (src.dims[1] / group) + c, (y + padding[0] - r*dilation[0]) / stride[0],
          (x + padding[1] - q*dilation[1]) / stride[1] | 0]
      * weight[o / weight.dims[1] * (src.dims[1] / group) + c, o % weight.dims[1], r, q] : 0
    for c < src.dims[1] / group
"""
MAXPOOL = """
dst[n, c, y, x] max= src[n, c, y*stride[0] + r - padding[0], x*stride[1] + q - padding[1] | -inf]
    for r < size[0], q < size[1]
"""
AVGPOOL = """
dst[n, c, y, x] += src[n, c, y*stride[0] + r - padding[0], x*stride[1] + q - padding[1] | 0] for r < size[0], q < size[1]
dst[n, c, y, x] = dst[n, c, y, x]
    / ((min(y*stride[0] - padding[0] + size[0], src.dims[2]) - max(y*stride[0] - padding[0], 0))
       * (min(x*stride[1] - padding[1] + size[1], src.dims[3]) - max(x*stride[1] - padding[1], 0)))
"""
BATCHNORM = "dst[n, c, k...] = scale[c] * (src[n, c, k...] - mean[c]) / sqrt(var[c] + epsilon) + offset[c]"
SOFTMAX = """
top[i:axis..., k...] max= src[i..., j, k...]
e[i:axis..., j, k...] = exp(src[i..., j, k...] - top[i..., k...])
sum[i:axis..., k...] += e[i..., j, k...]
dst[i:axis..., j, k...] = e[i..., j, k...] / sum[i..., k...]
"""
CONCAT = """
dst[i:axis..., j, k...] = src1[i..., j, k...] for j < src1.dims[axis]
dst[i:axis..., j + src1.dims[axis], k...] = src2[i..., j, k...]
"""
SLICE = "dst[i:axis..., j, k...] = src[i..., j + start, k...]"
TRANSPOSE = "dst[i...] = src[i[inverse(axes)]...]"
RESHAPE = "dst.flat[i] = src.flat[i]"
MAXREDUCE = "dst[i:axis..., 0, k...] max= src[i..., j, k...]"
MAXREDUCE_ARG = "dst[i:axis..., 0, k...], arg[i:axis..., 0, k...] argmax= src[i..., j, k...]"
ELEW = """
dst[i...] = elew_op == "TL_MUL" ? src1[i...] * src2[i...] : elew_op == "TL_DIV" ? src1[i...] / src2[i...]
    : elew_op == "TL_SUM" ? src1[i...] + src2[i...] : elew_op == "TL_SUB" ? src1[i...] - src2[i...]
    : elew_op == "TL_MAX" ? max(src1[i...], src2[i...]) : elew_op == "TL_MIN" ? min(src1[i...], src2[i...])
    : pow(src1[i...], src2[i...])
"""
DOT_PRODUCT = "dst[0] += src1[i...] * src2[i...]"
RESIZE = "dst[i...] = src[(2*i + 1) * src.dims / (2 * dst.dims)...]"
PICK1D = "dst[i] = src[src_index[i / stride] * stride + i % stride]"
SUBMEAN = "dst[c, y, x] = sat(f64(src[y, x, c]) - mean[c], dst)"
TRANSFORM_BBOX = """
sx[i] = f32(img_width) / f32(width) for i < 1
sy[i] = f32(img_height) / f32(height) for i < 1
cx[i...] = (src_anchor[i..., 0] + src_delta[i..., 0] * src_anchor[i..., 2]) * sx[0] + x_shift
cy[i...] = (src_anchor[i..., 1] + src_delta[i..., 1] * src_anchor[i..., 3]) * sy[0] + y_shift
w[i...] = src_anchor[i..., 2] * (src_delta[i..., 2] < 1 ? exp(src_delta[i..., 2]) : src_delta[i..., 2] * 2.718281828) * sx[0]
h[i...] = src_anchor[i..., 3] * (src_delta[i..., 3] < 1 ? exp(src_delta[i..., 3]) : src_delta[i..., 3] * 2.718281828) * sy[0]
dst[i..., 0] = clamp(cx[i...] - w[i...] / 2, 0, img_width - 1)
dst[i..., 1] = clamp(cy[i...] - h[i...] / 2, 0, img_height - 1)
dst[i..., 2] = clamp(cx[i...] + w[i...] / 2, 0, img_width - 1)
dst[i..., 3] = clamp(cy[i...] + h[i...] / 2, 0, img_height - 1)
"""
DETECT_YOLOV3 = """
box_centers[n, a, k, y, x] = (1 / (1 + exp(-feature[n, a * (probs.dims[2] + 5) + k, y, x])) + (k == 0 ? x : y))
    * (k == 0 ? img_width : img_height) / (k == 0 ? feature.dims[3] : feature.dims[2])
box_sizes[n, a, k, y, x] = anchors[a, k] * clamp(exp(feature[n, a * (probs.dims[2] + 5) + 2 + k, y, x]), 1e-9, 50)
boxes[n, a, k, y, x] = box_centers[n, a, k, y, x] - box_sizes[n, a, k, y, x] / 2 for k < 2
boxes[n, a, k + 2, y, x] = box_centers[n, a, k, y, x] + box_sizes[n, a, k, y, x] / 2
confs[n, a, k, y, x] = 1 / (1 + exp(-feature[n, a * (probs.dims[2] + 5) + 4, y, x]))
probs[n, a, k, y, x] = 1 / (1 + exp(-feature[n, a * (probs.dims[2] + 5) + 5 + k, y, x]))
"""
ARANGE = "dst[i] = sat(start + i * step, dst)"
GATHER = "dst[0, k...] = src1[k...]\ndst[1, k...] = src2[k...]"
SCATTER = "dst1[k...] = src[0, k...]\ndst2[k...] = src[1, k...]"

CONV_CASES = [
    # (src, weight, stride, padding, dilation, group)
    ((1, 1, 1, 1), (1, 1, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    ((2, 3, 5, 7), (4, 3, 3, 2), (2, 1), (1, 0, 2, 1), (1, 2), 1),
    ((1, 6, 9, 4), (6, 1, 3, 3), (1, 2), (0, 2, 1, 0), (2, 1), 6),
    ((1, 4, 1, 8), (6, 2, 1, 3), (1, 3), (0, 1, 0, 1), (1, 1), 2),
]


@pytest.mark.parametrize(("src", "weight", "stride", "padding", "dilation", "group"), CONV_CASES)
def test_conv2d(src, weight, stride, padding, dilation, group):
    arrays = {"src": normal(*src), "weight": normal(*weight, seed=1), "bias": normal(weight[0], seed=2)}
    attributes = {"strides": stride, "pads": padding, "dilations": dilation, "group": group}
    want = onnx_run("Conv", arrays, **attributes)
    params = {"stride": stride, "padding": padding, "dilation": dilation, "group": group}
    close(run(CONV2D, arrays, params, dst=want.shape), want)


@pytest.mark.parametrize(
    ("src", "weight", "stride", "padding", "dilation"),
    [
        ((1, 2, 3, 4), (2, 3, 3, 3), (2, 2), (1, 0, 1, 2), (1, 1)),
        ((2, 4, 1, 5), (4, 2, 2, 3), (3, 1), (0, 1, 0, 1), (1, 2)),
    ],
)
def test_deconv2d(src, weight, stride, padding, dilation):
    arrays = {"src": normal(*src), "weight": normal(*weight, seed=1), "bias": normal(weight[1], seed=2)}
    want = onnx_run("ConvTranspose", arrays, strides=stride, pads=padding, dilations=dilation)
    params = {"stride": stride, "padding": padding, "dilation": dilation, "group": 1}
    close(run(DECONV2D, arrays, params, dst=want.shape), want)


def test_grouped_deconv2d_is_one_deconv2d_per_group():
    arrays = {"src": normal(1, 4, 3, 3), "weight": normal(4, 2, 3, 2, seed=1), "bias": normal(4, seed=2)}
    params = {"stride": (2, 1), "padding": (0, 1, 1, 0), "dilation": (1, 1), "group": 2}
    halves = []
    for g in range(2):
        part = {
            "src": arrays["src"][:, 2 * g : 2 * g + 2],
            "weight": arrays["weight"][2 * g : 2 * g + 2],
            "bias": arrays["bias"][2 * g : 2 * g + 2],
        }
        halves.append(onnx_run("ConvTranspose", part, strides=(2, 1), pads=(0, 1, 1, 0)))
    want = np.concatenate(halves, 1)
    close(run(DECONV2D, arrays, params, dst=want.shape), want)


@pytest.mark.parametrize(
    ("src", "size", "stride", "padding"),
    [((1, 1, 1, 1), (1, 1), (1, 1), (0, 0, 0, 0)), ((2, 3, 7, 5), (3, 2), (2, 1), (1, 0, 2, 1))],
)
def test_pools(src, size, stride, padding):
    arrays = {"src": normal(*src)}
    params = {"size": size, "stride": stride, "padding": padding}
    attributes = {"kernel_shape": size, "strides": stride, "pads": padding}
    for text, op, more in ((MAXPOOL, "MaxPool", {}), (AVGPOOL, "AveragePool", {"count_include_pad": 0})):
        want = onnx_run(op, arrays, **attributes, **more)
        close(run(text, arrays, params, dst=want.shape), want)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.kind != "bool"])
def test_maxpool_pads_with_the_lowest_value_in_every_dtype(dtype):
    src = np.array([[[[0, 1, 2], [3, 4, 5]]]], dtype.np)
    params = {"size": (2, 2), "stride": (1, 1), "padding": (1, 1, 0, 0)}
    got = run(MAXPOOL, {"src": src}, params, dst=TensorSpec((1, 1, 2, 3), dtype))
    assert np.array_equal(got, src)


def test_batchnorm():
    src, c = normal(2, 3, 4, 5), 3
    vectors = {
        "scale": normal(c),
        "offset": normal(c, seed=1),
        "mean": normal(c, seed=2),
        "var": np.abs(normal(c, seed=3)),
    }
    want = onnx_run("BatchNormalization", {"x": src, **vectors}, epsilon=1e-3)
    close(run(BATCHNORM, {"src": src, **vectors}, {"epsilon": 1e-3}, dst=src.shape), want)


@pytest.mark.parametrize(("dims", "axis"), [((4,), 0), ((1, 5), 1), ((2, 3, 4), 1), ((3, 2, 1, 2), 0), ((2, 1, 3), 1)])
def test_softmax(dims, axis):
    src = normal(*dims) * 30
    want = onnx_run("Softmax", {"x": src}, axis=axis)
    close(run(SOFTMAX, {"src": src}, {"axis": axis}, dst=dims), want)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["f32", "i8", "i1"])
def test_concat_slice(axis, dtype):
    a = (normal(2, 3, 4) * 9).astype(BY_NAME[dtype].np)
    dims = [2, 3, 4]
    dims[axis] = 5
    b = (normal(*dims, seed=1) * 9).astype(BY_NAME[dtype].np)
    want = np.concatenate([a, b], axis)
    got = run(CONCAT, {"src1": a, "src2": b}, {"axis": axis}, dst=spec(want))
    assert np.array_equal(got, want)
    part = want.take(range(1, 4), axis)
    got = run(SLICE, {"src": want}, {"axis": axis, "start": 1}, dst=spec(part))
    assert np.array_equal(got, part)


@pytest.mark.parametrize("axes", [(0,), (1, 0), (2, 0, 1), (0, 3, 1, 2), (4, 2, 0, 1, 3)])
def test_transpose(axes):
    src = normal(*range(1, len(axes) + 1))
    assert np.array_equal(
        run(TRANSPOSE, {"src": src}, {"axes": axes}, dst=src.transpose(axes).shape), src.transpose(axes)
    )


@pytest.mark.parametrize(("old", "new"), [((1,), (1, 1)), ((2, 3, 4), (6, 4)), ((2, 3, 4), (4, 3, 2)), ((7, 5), (35,))])
def test_reshape(old, new):
    src = normal(*old)
    assert np.array_equal(run(RESHAPE, {"src": src}, dst=new), src.reshape(new))


def test_gather_scatter():
    a, b = normal(2, 3), normal(2, 3, seed=1)
    want = np.stack([a, b])
    assert np.array_equal(run(GATHER, {"src1": a, "src2": b}, dst=want.shape), want)
    got = run(SCATTER, {"src": want}, dst1=(2, 3), dst2=(2, 3))
    assert np.array_equal(got["dst1"], a)
    assert np.array_equal(got["dst2"], b)


@pytest.mark.parametrize(("dims", "axis"), [((5,), 0), ((1, 1), 1), ((3, 4, 2), 1), ((2, 1, 3), 1)])
def test_maxreduce(dims, axis):
    src = np.round(normal(*dims) * 2)  # ties: the first one wins
    want = src.max(axis, keepdims=True)
    assert np.array_equal(run(MAXREDUCE, {"src": src}, {"axis": axis}, dst=want.shape), want)
    got = run(MAXREDUCE_ARG, {"src": src}, {"axis": axis}, dst=want.shape, arg=spec(want.shape, I32))
    assert np.array_equal(got["dst"], want)
    assert np.array_equal(got["arg"], src.argmax(axis, keepdims=True).astype(np.int32))


def test_argmax_of_upstreams_bad_case():
    src = np.array([0.5, 0.25, 0.75, 0.125], np.float32)
    got = run(MAXREDUCE_ARG, {"src": src}, {"axis": 0}, dst=(1,), arg=spec((1,), I32))
    assert (got["dst"][0], got["arg"][0]) == (0.75, 2)


def elew_reference(op, a, b):
    """Element by element in Python integers or NumPy floats."""
    dtype = a.dtype
    if is_float(dtype):
        if BY_NP[dtype].is_short:
            a, b = a.astype(np.float32), b.astype(np.float32)
        with np.errstate(all="ignore"):
            return {
                "MUL": np.multiply,
                "DIV": np.divide,
                "SUM": np.add,
                "SUB": np.subtract,
                "MAX": np.maximum,
                "MIN": np.minimum,
                "POW": np.power,
            }[op](a, b).astype(dtype)

    def one(x, y):
        x, y = int(x), int(y)
        if op == "DIV":
            return 0 if y == 0 else int(np.trunc(np.longdouble(x) / np.longdouble(y)))
        if op == "POW":
            with np.errstate(all="ignore"):
                return int(convert(np.power(np.float64(x), np.float64(y)), BY_NP[dtype]))
        return {"MUL": x * y, "SUM": x + y, "SUB": x - y, "MAX": max(x, y), "MIN": min(x, y)}[op]

    bits = 8 * dtype.itemsize
    out = [one(x, y) for x, y in zip(a.ravel(), b.ravel())]
    if dtype.kind == "b":
        return np.array([v != 0 for v in out]).reshape(a.shape)
    low = 0 if dtype.kind == "u" else -(2 ** (bits - 1))
    return np.array([(v - low) % 2**bits + low for v in out], dtype).reshape(a.shape)


@pytest.mark.parametrize("op", ["MUL", "DIV", "SUM", "SUB", "MAX", "MIN", "POW"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_elew(op, dtype):
    values = [0, 1, 2, 3, 7, 100] if dtype.kind in ("uint", "bool") else [0, 1, -1, 2, -3, 7, -100, 100]
    if dtype.kind in ("int", "uint"):
        values += [np.iinfo(dtype.np).max, np.iinfo(dtype.np).min]
    a, b = (np.array(v, dtype.np) for v in zip(*itertools.product(values, values)))
    if op == "POW" and dtype.name == "f32":
        a = np.abs(a)
    got = run(ELEW, {"src1": a, "src2": b}, {"elew_op": f"TL_{op}"}, dst=spec(a))
    want = elew_reference(op, a, b)
    np.testing.assert_array_equal(*(x.astype(np.float32) if dtype.is_short else x for x in (got, want)))


def test_activations():
    src = np.array([-np.inf, -2, -0.5, 0, 0.25, 3, np.nan], np.float32)
    relu = run("dst[i...] = max(src[i...], 0)", {"src": src}, dst=src.shape)
    np.testing.assert_array_equal(relu, np.maximum(src, 0))
    lrelu = "dst[i...] = src[i...] >= 0 ? src[i...] : src[i...] * negslope"
    got = run(lrelu, {"src": src}, {"negslope": 0.1}, dst=src.shape)
    np.testing.assert_array_equal(got, np.where(src >= 0, src, src * np.float32(0.1)))
    ints = np.array([-20, -1, 5], np.int8)  # the slope is cast to the dtype first: 0.1 is 0, 2.9 is 2
    assert run(lrelu, {"src": ints}, {"negslope": 0.1}, dst=spec(ints)).tolist() == [0, 0, 5]
    assert run(lrelu, {"src": ints}, {"negslope": 2.9}, dst=spec(ints)).tolist() == [-40, -2, 5]
    sigmoid = run("dst[i...] = 1 / (1 + exp(-src[i...]))", {"src": src[1:6]}, dst=(5,))
    close(sigmoid, (1 / (1 + np.exp(-src[1:6].astype(np.float64)))).astype(np.float32))


@pytest.mark.parametrize("dtype", ["f32", "i8", "ui16", "i64"])
def test_dot_product_accumulates_in_the_dtype(dtype):
    a, b = (np.arange(30).reshape(2, 3, 5).astype(BY_NAME[dtype].np) for _ in range(2))
    want = (a * b).sum(dtype=a.dtype).reshape(1)
    np.testing.assert_allclose(run(DOT_PRODUCT, {"src1": a, "src2": b}, dst=spec(want)), want)


@pytest.mark.parametrize(
    ("old", "new"), [((3,), (7,)), ((1, 5), (4, 2)), ((2, 3, 4, 5), (1, 3, 9, 13)), ((6, 4), (3, 4))]
)
def test_resize_nearest(old, new):
    src = normal(*old)
    want = src
    for axis, (a, b) in enumerate(zip(old, new)):
        places = (np.arange(b) + 0.5) * (a / b) - 0.5
        nearest = [int(np.copysign(np.floor(abs(p) + 0.5), p)) for p in places.round(9)]
        want = want.take([min(max(i, 0), a - 1) for i in nearest], axis)
    assert np.array_equal(run(RESIZE, {"src": src}, dst=new), want)


def test_pick1d_clamps_hostile_indices():
    src = np.arange(12, dtype=np.float32)
    index = np.array([2, 0, 5, -7, 2**31 - 1, -(2**31)], np.int32)
    got = run(PICK1D, {"src": src, "src_index": index}, {"stride": 2, "len": 6}, dst=(12,))
    assert got.tolist() == [4, 5, 0, 1, 10, 11, 0, 0, 11, 11, 0, 0]


@pytest.mark.parametrize("dtype", ["ui8", "f32", "i16", "f64"])
def test_submean(dtype):
    src = np.arange(2 * 3 * 3).reshape(2, 3, 3).astype(np.uint8)
    mean = (1.5, 100.25, -300.0)
    want = convert(np.transpose(src.astype(np.float64) - np.array(mean), (2, 0, 1)), BY_NAME[dtype])
    assert np.array_equal(run(SUBMEAN, {"src": src}, {"mean": mean}, dst=spec(want)), want)


def test_transform_bbox():
    delta, anchor = normal(1, 2, 3, 2, 4), np.abs(normal(1, 2, 3, 2, 4, seed=1)) * 40
    p = {"width": 31, "height": 17, "img_width": 64, "img_height": 48, "x_shift": 3, "y_shift": -2}
    d, a = delta.astype(np.float64), anchor.astype(np.float64)
    sx, sy = p["img_width"] / p["width"], p["img_height"] / p["height"]
    grow = lambda t: np.where(t < 1, np.exp(t), t * 2.718281828)  # noqa: E731
    cx, cy = (a[..., 0] + d[..., 0] * a[..., 2]) * sx + 3, (a[..., 1] + d[..., 1] * a[..., 3]) * sy - 2
    w, h = a[..., 2] * grow(d[..., 2]) * sx, a[..., 3] * grow(d[..., 3]) * sy
    x, y = (lambda v: np.clip(v, 0, 63)), (lambda v: np.clip(v, 0, 47))
    want = np.stack([x(cx - w / 2), y(cy - h / 2), x(cx + w / 2), y(cy + h / 2)], -1).astype(np.float32)
    close(run(TRANSFORM_BBOX, {"src_delta": delta, "src_anchor": anchor}, p, dst=want.shape), want)


def test_detect_yolov3():
    anchors, classes, height, width = np.array([[10, 13], [16, 30.5]], np.float32), 3, 2, 5
    feature = normal(1, 2 * (5 + classes), height, width)
    t = feature.astype(np.float64).reshape(1, 2, 5 + classes, height, width)
    sigmoid = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
    cx = (sigmoid(t[:, :, 0]) + np.arange(width)) * 416 / width
    cy = (sigmoid(t[:, :, 1]) + np.arange(height)[:, None]) * 320 / height
    size = anchors[None, :, :, None, None] * np.clip(np.exp(t[:, :, 2:4]), 1e-9, 50)
    centers = np.stack([cx, cy], 2)
    want = {
        "box_centers": centers,
        "box_sizes": size,
        "boxes": np.concatenate([centers - size / 2, centers + size / 2], 2),
        "confs": sigmoid(t[:, :, 4:5]),
        "probs": sigmoid(t[:, :, 5:]),
    }
    arrays = {"feature": feature, "anchors": anchors}
    got = run(DETECT_YOLOV3, arrays, {"img_width": 416, "img_height": 320}, **{k: v.shape for k, v in want.items()})
    for name, array in want.items():
        close(got[name], array.astype(np.float32))


@pytest.mark.parametrize("dtype", ["f32", "i16", "ui8"])
def test_arange_zeros(dtype):
    d = BY_NAME[dtype]
    want = convert(np.arange(0.5, 6, 0.75), d)
    assert np.array_equal(run(ARANGE, {}, {"start": 0.5, "step": 0.75}, dst=spec(want)), want)
    assert not run("dst[i...] = 0", {}, dst=TensorSpec((2, 1, 3), d)).any()


def test_large_statements_are_evaluated_in_pieces():
    a, b = normal(130, 70), normal(70, 90, seed=1)
    close(run("c[i, j] += a[i, k] * b[k, j]", {"a": a, "b": b}, c=(130, 90)), a @ b, 1e-4)
    got = run("m[0], p[0] argmin= v[k]", {"v": b[:, 0].copy()}, m=(1,), p=spec((1,), I32))
    assert got["p"][0] == b[:, 0].argmin()


# --- Constant expressions -------------------------------------------------------------------------------------------

ENV = Env(
    {"src": TensorSpec((1, 4, 7, 6), F32), "weight": TensorSpec((6, 2, 3, 3), F32)},
    {
        "group": 2,
        "axis": 1,
        "start": 1,
        "len": 3,
        "size": (3, 3),
        "name": "TL_FLOAT",
        "flag": True,
        "step": 0.5,
        "axes": (1, 0, 2),
        "nothing": None,
    },
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("weight.dims[1] * group == src.dims[1]", True),
        ("len + start <= src.dims[axis]", True),
        ("size == weight.dims[2:4]", True),
        ("size >= 1 && size < 4", True),
        ("size != 3", False),
        ("7 / 2 + -7 / 2 + -7 % 3", -1),
        ("7.0 / 2", 3.5),
        ("1 / 0", 0),
        ("ceil((7 - start) / step)", 12),
        ("round(2.5) + round(-2.5) + round(0.49)", 0.0),
        ("prod(src.dims) == src.len && src.ndim == 4", True),
        ('src.dtype == dtype(name) && name != "TL_INT8"', True),
        ("flag ? 1 + 2 * 3 - 4 : nothing", 3),
        ("!flag || axis < src.ndim", True),
        ("permutation(axes) && inverse(axes) == axes", True),
        ("[src.dims[0:axis], len, src.dims[axis + 1:src.ndim]]", (1, 3, 7, 6)),
        ("src.dims[[3, 0, 3]]", (6, 1, 6)),
        ("src.dims[axes] == [[src.dims[axes[0]]], src.dims[axes[1:len(axes)]]]", True),
        ("min(3, 1, 2) + max(size) + clamp(9, 0, 5)", 9),
        ("-inf < -1e30", True),
        ("int(2.9) + floor(-0.5)", 1),
        ("src->dims[axis] + src->ndim", 8),
        ("size == [3, 3] && axes != {0, 1, 2}", True),
        ("[1, src.ndim, 7][axis]", 4),
        ("prod([])", 1),
        ('sizeof(src.dtype) + sizeof(name) + sizeof("TL_INT8")', 9),
    ],
)
def test_constant_expressions(text, value):
    got = constant(text, ENV)
    assert got == value
    assert type(got) is type(value)
    assert parse_expr(format_expr(parse_expr(text))) == parse_expr(text)


def test_a_failing_comparison_shows_both_sides():
    found = failure("group >= 1 && weight.dims[1] * group == src.dims[2]", ENV)
    assert (found.text, found.got, found.expected) == ("weight.dims[1] * group == src.dims[2]", 4, 7)
    assert failure("group == 2", ENV) is None


@pytest.mark.parametrize(
    ("text", "message", "col"),
    [
        ("1 +", "expected an expression, got 'end of text'", 4),
        ("a $ b", "unexpected character '$'", 3),
        ("(1", "expected ')'", 3),
        ("src.shape", "unknown attribute 'shape'", 5),
        ("1 2", "expected an operator", 3),
        ("a[1", "expected ']'", 4),
        ("x ? 1", "expected ':'", 6),
        ("1e999", "number out of range", 1),
        ("[1, 2", "expected ']'", 6),
        ("{1 2}", "expected '}'", 4),
        ("src->shape", "unknown attribute 'shape'", 6),
    ],
)
def test_syntax_errors_have_a_column(text, message, col):
    with pytest.raises(LightNetError) as error:
        parse_expr(text)
    assert message in error.value.message
    assert error.value.loc.col == col
    assert error.value.source_line == text


@pytest.mark.parametrize(
    "text",
    [
        "(" * 10000,
        "-" * 10000 + "1",
        "1+" * 10000 + "1",
        "a[" * 5000,
        "f(" * 5000,
        "!" * 60 + "x",
        "9" * 100,
        "1?" * 5000,
        "x" * 100000,
        "[" * 9000,
        "pow(10, 1000000000)",
        "pow(pow(10, 60), pow(10, 60))",
        "min()",
        "size[9]",
        "unknown",
        "src",
        '"a" < 1',
        "size + 1",
        "len(1)",
        "foo(1)",
        '"a" * 1000000000',
        "src.flat",
        "size[1:9]",
        "inverse(size)",
        "exp(size)",
        "*".join(["99999999999999"] * 50),
        "src[0 | 1]",
        "src.dims[0].dims",
        "1 ? : 2",
        "max(1, size)",
        "min(name)",
        "-name",
        "size[[0, 9]]",
        "sizeof(1)",
        "[1, 2] + 1",
        'sum(["a"])',
        'max(["a", "b"])',
        'permutation(["a", 1])',
        "nothing < 1",
        "-nothing",
    ],
)
def test_bad_constant_expressions_are_errors_at_once(text):
    with pytest.raises(LightNetError):
        constant(text, ENV)


def test_nested_unary_operators_cost_nothing():
    assert constant("-(" * 25 + "1" + ")" * 25, ENV) == -1


# --- Statements -----------------------------------------------------------------------------------------------------

A = {"a": np.zeros((2, 3), np.float32)}
X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at least one statement"),
        ("dst[i, j] == a[i, j]", "expected one of"),
        ("dst[i, j] = a[i, j] a[i, j]", "end of the statement"),
        ("dst[i, j], b[i, j] = a[i, j]", "two targets"),
        ("dst[i, j | 0] = 1", "no filler"),
        ("dst[i, j] = a[i, j+1]", "subscript 1 of 'a'"),
        ("dst[i, j] = a[j, i]", "ranges over 0..2"),
        ("dst[i, j] = a[i]", "rank 2, got 1"),
        ("dst[i, j] = a[i, k]", "index 'k' is not on the left"),
        ("dst[i, j] += a[i, k - 1 | 0]", "extent of index 'k'"),
        ("dst[i, i] = 1", "twice on the left"),
        ("dst[2*i, j] = 1", "an index plus a constant"),
        ("dst[i, j] = b[i, j]", "unknown tensor 'b'"),
        ("dst[i, j] = dst[i, j]", "read before it is written"),
        ("dst[i, j] = i > 0 ? a[i - 2, j] : 0", "subscript 0"),
        ("dst[i, j] = a[i, j] for i < 1", "every element"),
        ("dst[i, j] = 1\ndst[i, j] = dst[i, 0]", "another index"),
        ("dst[i, j] = i32(a[i, j])", "dtype i32 is assigned"),
        ("dst[i, j] = a[i, j] + i32(a[i, j])", "mixes f32 and i32"),
        ("dst[i, j] = a", "without subscripts"),
        ("t[i...] = 1", "size of pack"),
        ("dst[i...] = i", "outside of a subscript list"),
        ("dst[i, j] = a[a[i, j], j]", "a subscript is an integer"),
        ("a[i, j] = 1", "operand 'a' is assigned"),
        ("t[i] = 1\ndst[i, j] = t[i]", "extent of index 'i'"),
        ("dst[i, j] = foo(a[i, j])", "unknown function"),
        ('dst[i, j] = "x"', "string"),
        ("t[i, j] = a[i, j]", "never writes its result"),
        ("dst[i, j] = a[i, j / (j + 1)]", "positive constant"),
        ("dst[i, j] += 1 for k < 1000000000000000", "evaluated more than"),
        ("dst[i, j] = p[i]", "array"),
        ("dst[i, j] = a[0:2, j]", "a slice stands only in a constant array"),
        ("dst[i, j] += a[i, k] * a[k, j]", "index 'k' ranges over 3 in 'a' and over 2 in 'a'"),
        ("dst[i, j] = a[0.5, j]", "a subscript is an integer"),
        ("p[i, j] = 1", "'p' is a parameter"),
        ("u[i, j], t[j, i] argmax= a[i, j]", "both targets have the same subscripts"),
        ("u[i], t[i] argmax= a[i, j] + a[k, l]\ndst[i, j] = 1", "takes exactly one reduction index"),
        ("dst[i, j, i, k...] = 1", "too many subscripts for a tensor of rank 2"),
        ("dst[k:(2)...] = a[k:(1)..., 0]", "pack 'k' has 2 indices here and 1 there"),
        ("dst[k:(9)...] = 1", "pack 'k' of 9 indices"),
        ("dst[i] = 1", "'dst' has rank 2, got 1 subscripts"),
        ("dst[i, j] += 1 for k < -1", "index 'k' has the range -1"),
        ("dst[2, j] = 1", "subscript 2 of 'dst' is outside"),
        ("dst[i, j] = 1 for i < 3", "index 'i' ranges over 3, 'dst' has room for 2"),
        ("t[i + 1] = 1 for i < 2\ndst[i, j] = 1", "the first assignment to local 't' has plain indices"),
        ("t[i] = 1.0 for i < 1000000000000\ndst[i, j] = 1", "local 't' has 8000000000000 bytes"),
        ("dst[i, j] = a.dims", "'a.dims' is an array"),
        ("dst[i, j] = n", "'n' is an array"),
        ("dst[i, j] = s", "'s' is no number"),
        ("dst[i, j] = 1 for k < n", "the range of index 'k' is [1, 2], not an integer"),
        ("dst[i, j] += 1 for k < 1.5", "is 1.5, not an integer"),
        ("dst[i, j] = exp", "'exp' is a function"),
        ("dst[i, j] = f32", "'f32' is a function"),
        ("dst[i, j] = a[i, j % -1]", "'%' in a subscript takes a positive constant"),
        ("dst[i, j] = a[5 / 0, j]", "'/' in a subscript takes a positive constant"),
        ("dst[i, j] = f32(1, 2)", "f32 takes one value, got 2"),
        ("dst[k...] = k[2] > 0 ? 1 : 0", "'k[2]' is no element of a pack of 2 indices"),
        ("dst[k...] = a[(k - one)... | 0]", "'one' has 1 elements, the pack has more"),
        ("dst[i, j] = n[i, j]", "an array indexed by an index has 1 to 64 constants and one subscript"),
        ("dst[i, j] = a[i - 1, j | i32(a[0, 0])]", "the filler's dtype is i32, the tensor's f32"),
    ],
)
def test_bad_definitions(text, message):
    with pytest.raises(LightNetError) as error:
        bound(text, A, {"p": ("x", "y"), "n": (1, 2), "one": (1,), "s": "x"}, dst=(2, 3))
    assert message in error.value.message, error.value.message


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("bitand(a[i, j] > 1, a[i, j] < 4)", (X > 1) & (X < 4)),
        ("bitxor(a[i, j] > 1, a[i, j] < 4)", (X > 1) ^ (X < 4)),
        ("a[i, j] ? 5 : 6", np.where(X != 0, 5, 6)),
        ("!a[i, j]", X == 0),
        ("a[i, j] && 1", X != 0),
        ("a[i, j] || 0", X != 0),
        ("(i == 1) + (j == 2) * 2", [[0, 0, 2], [1, 1, 3]]),
        ("n[i] * 10 + j", [[10, 11, 12], [20, 21, 22]]),
        ("a[(i + 3) % 2, (j * 2 + 1) / 2]", X[::-1]),
        ("a[5 / 3, -4 % 3]", np.full((2, 3), X[1, 2])),
        ("floormod(i - 1, 2) + floormod(j - 5, 3) * 10", [[11, 21, 1], [10, 20, 0]]),
        ("floormod(a[i, j] - 2, 3)", np.mod(X - 2, 3)),
        ("floormod(i32(a[i, j]) - 2, i32(-3))", np.mod(X.astype(int) - 2, -3)),
        ("floor(i32(a[i, j])) + abs(ui8(a[i, j]))", None),
        ("sat(bitnot(i32(a[i, j])), dst)", ~X.astype(np.int32)),
        ("bitnot(ui8(a[i, j]))", 255 - X),
        ("clamp(a[i, j], 1, 3)", np.clip(X, 1, 3)),
        ("max(a[i, j], i, 2)", np.maximum(X, 2)),
        ("1 / 2 + 1 / 2.0", np.full((2, 3), 0.5)),
    ],
)
def test_values_of_expressions(text, want):
    """Bools in arithmetic and arithmetic as bools, integers of C and of subscripts, constants that are folded."""
    if want is None:
        with pytest.raises(LightNetError, match="mixes i32 and ui8"):
            run(f"dst[i, j] = {text}", {"a": X}, dst=(2, 3))
        return
    got = run(f"dst[i, j] = f32({text})", {"a": X}, {"n": (1, 2)}, dst=(2, 3))
    np.testing.assert_array_equal(got, np.asarray(want, np.float32))


def test_guards_prove_bounds():
    text = "dst[i, j] = i > 0 && j < 2 ? a[i - 1, j + 1] : 7"
    got = run(text, {"a": np.arange(6, dtype=np.float32).reshape(2, 3)}, dst=(2, 3))
    assert got.tolist() == [[7, 7, 7], [1, 2, 7]]


def test_statements_print_and_parse_back():
    for text in (CONV2D, DECONV2D, AVGPOOL, SOFTMAX, DETECT_YOLOV3, TRANSPOSE, RESHAPE, MAXREDUCE_ARG, RESIZE):
        definition = parse(text)
        assert parse(str(definition)).statements == definition.statements


@pytest.mark.parametrize(
    ("text", "results"),
    [
        (MAXREDUCE_ARG, {"dst": (2, 1, 4), "arg": spec((2, 1, 4), I32)}),
        ("t[i, k] += src[i, j, k]\ndst[k, i] = t[i, k] * src[i, 0, k]", {"dst": (4, 2)}),
        ("dst[i, j, k] = src[i - 1, j, k + 1 | 7] + src.flat[i * 12 + j * 4 + k]", {"dst": (2, 3, 4)}),
    ],
)
def test_renamed_statements_compute_the_same(text, results):
    """Tensors, winners, indices of loops and of reductions, subscripts, fillers."""
    src = np.random.default_rng(0).random((2, 3, 4), np.float32)
    one = bound(text, {"src": src}, {"axis": 1}, **results)
    tensors = {name: f"other.{name}" for part in (one.operands, one.results, one.locals) for name, _ in part}
    indices = {name: f"{name}.x" for s in one.statements for name, _ in (*s.loops, *s.reductions)}
    renamed = [tuple((tensors[n], x) for n, x in part) for part in (one.operands, one.results, one.locals)]
    two = BoundDefinition(*renamed, tuple(renamed_statement(s, tensors, indices) for s in one.statements))
    assert not {x for s in two.statements for x in (s.tensor, s.arg)} & set(tensors)
    got, want = evaluate_definition(two, {"other.src": src}), evaluate_definition(one, {"src": src})
    for name, array in want.items():
        np.testing.assert_array_equal(got[tensors[name]], array)


def test_keys_ignore_names_only():
    one = bound("dst[i, j] = a[i, j] + 1", A, dst=(2, 3))
    two = bound("out[p, q] = b[p, q] + 1", {"b": A["a"]}, out=(2, 3))
    three = bound("out[p, q] = b[p, q] + 2", {"b": A["a"]}, out=(2, 3))
    assert one.key == two.key != three.key
    assert one != two


@settings(max_examples=60, deadline=None)
@given(st.text("abi[]()+-*/%?:<>=!&|.,;0123 \nfor", max_size=60))
def test_any_text_is_parsed_or_refused(text):
    try:
        bound(text, A, {}, dst=(2, 3))
    except LightNetError:
        pass


def test_a_whole_number_may_be_a_subscript_however_it_is_written():
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    got = evaluate_definition(bound("dst[i, j] = a[1.0, j]", {"a": a}, dst=(2, 3)), {"a": a})["dst"]
    np.testing.assert_array_equal(got, [a[1], a[1]])
