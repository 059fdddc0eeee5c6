"""Parts of exported networks whose dims stay open, each in small, compiled once and compared with ONNX Runtime on many shapes: what
exporters make of positions, masks, heads, grids of boxes and padded windows."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper  # noqa: E402

import lightnet  # noqa: E402
from lightnet.frontends.loading import OpenError  # noqa: E402
from lightnet.ir import registry  # noqa: E402
from lightnet.ir.target import Target  # noqa: E402

F, I = TensorProto.FLOAT, TensorProto.INT64


def model(nodes, inputs, **constants):
    """A model of nodes (op type, inputs, outputs, attributes) with the output z, its inputs as name: (type, dims)."""
    initializers = [onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()]
    made = [helper.make_node(op, i, o, **a) for op, i, o, a in nodes]
    given = [helper.make_tensor_value_info(n, t, d) for n, (t, d) in inputs.items()]
    graph = helper.make_graph(made, "g", given, [helper.make_empty_tensor_value_info("z")], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def check(net, dims, shapes, most: float = 1e-5) -> None:
    """The one executable of a model agrees with ONNX Runtime on all shapes of its input x."""
    session = ort.InferenceSession(net.SerializeToString())
    made = lightnet.compile(lightnet.load(net, dims=dims))
    for shape in shapes:
        x = np.random.default_rng(len(shapes)).standard_normal(shape).astype(np.float32)
        np.testing.assert_allclose(made({"x": x})["z"], session.run(None, {"x": x})[0], rtol=most, atol=most)


def size_of(axis: int, name: str) -> list:
    """Nodes that make `name` of a dim of x, an i64 of rank 0."""
    return [("Shape", ["x"], ["shape"], {}), ("Gather", ["shape", f"at{axis}"], [name], {"axis": 0})]


@pytest.mark.parametrize("to", [TensorProto.FLOAT, TensorProto.INT32, TensorProto.DOUBLE, TensorProto.INT64])
def test_a_range_is_of_any_type_that_has_its_end(to) -> None:
    """As ``arange(n, dtype=…)`` is traced; the size goes through arithmetic of that type."""
    kind = {
        TensorProto.FLOAT: np.float32,
        TensorProto.INT32: np.int32,
        TensorProto.DOUBLE: np.float64,
        TensorProto.INT64: np.int64,
    }[to]
    nodes = [*size_of(1, "n"), ("Cast", ["n"], ["end0"], {"to": to}), ("Mul", ["end0", "two"], ["end"], {}),
             ("Range", ["zero", "end", "two"], ["r0"], {}), ("Cast", ["r0"], ["r"], {"to": F}), ("Add", ["x", "r"], ["z"], {})]  # fmt: skip
    net = model(nodes, {"x": (F, [2, "n"])}, at1=np.int64(1), zero=kind(0), two=kind(2))
    check(net, {"n": "1..20"}, [(2, n) for n in (1, 2, 7, 20)])


def test_a_range_in_halves_is_refused() -> None:
    nodes = [*size_of(1, "n"), ("Cast", ["n"], ["end"], {"to": F}), ("Range", ["zero", "end", "half"], ["z"], {})]
    net = model(nodes, {"x": (F, [2, "n"])}, at1=np.int64(1), zero=np.float32(0), half=np.float32(0.5))
    with pytest.raises(lightnet.LightNetError, match="whole number"):
        lightnet.load(net, dims={"n": "1..20"})


def test_a_shape_is_sliced_as_any_tensor_is() -> None:
    """Whichever ends there are, far ones included: what is left of the shape of an open x is what NumPy takes of it."""
    ends = (-(2**40), -(2**31), -1, 2, 2**31, 2**40)
    cases = [(a, b, s) for s in (1, 2, -1) for a in (-9, -1, 2) for b in ends]
    names = [f"p{k}" for k in range(len(cases))]
    nodes = [("Shape", ["x"], ["shape"], {})]
    for name in names:
        nodes.append(("Slice", ["shape", f"{name}a", f"{name}b", "axis", f"{name}s"], [name], {}))
    nodes += [("Concat", names, ["all"], {"axis": 0}), ("Cast", ["all"], ["floats"], {"to": F})]
    nodes += [("ReduceMin", ["x"], ["least"], {"keepdims": 0}), ("Add", ["floats", "least"], ["z"], {})]
    bounds = {f"{name}{at}": np.array([v]) for name, case in zip(names, cases) for at, v in zip("abs", case)}
    net = model(nodes, {"x": (F, ["n", 5, "m"])}, axis=np.array([0]), **bounds)
    made = lightnet.compile(lightnet.load(net, dims={"n": "1..9", "m": "1..9"}))
    for n, m in ((2, 7), (9, 1)):
        numbers = np.array([n, 5, m])
        want = [numbers[max(a, -3) : b : s] for a, b, s in cases]  # ONNX: what begins before the first begins there
        np.testing.assert_array_equal(made({"x": np.zeros((n, 5, m), np.float32)})["z"], np.concatenate(want))


def test_what_depends_on_params_and_on_dims_is_computed_in_a_call() -> None:
    """The first rows of a table of positions, behind an op on the table: no static tensor has open dims."""
    nodes = [*size_of(0, "n"), ("Unsqueeze", ["n", "axis"], ["end"], {}), ("Tanh", ["table"], ["t"], {}), ("Slice", ["t", "axis", "end"], ["p"], {}),
             ("Transpose", ["p"], ["q"], {}), ("Transpose", ["q"], ["r"], {}), ("Add", ["x", "r"], ["z"], {})]  # fmt: skip
    table = np.random.default_rng(0).standard_normal((40, 5)).astype(np.float32)
    net = model(nodes, {"x": (F, ["n", 5])}, at0=np.int64(0), axis=np.array([0]), table=table)
    check(net, {"n": "1..40"}, [(n, 5) for n in (1, 3, 16, 40)])


def test_a_size_in_the_data_reaches_the_code() -> None:
    """A parameter that a call decides, and no dim of the op: the last row, and a mean by a sum over n."""
    nodes = [*size_of(0, "n"), ("Sub", ["n", "one"], ["last"], {}), ("Unsqueeze", ["last", "axis"], ["from"], {}), ("Unsqueeze", ["n", "axis"], ["to"], {}),
             ("Slice", ["table", "from", "to"], ["row"], {}), ("Cast", ["n"], ["count"], {"to": F}), ("ReduceSum", ["x", "axis"], ["sum"], {}),
             ("Div", ["sum", "count"], ["mean"], {}), ("Add", ["mean", "row"], ["z"], {})]  # fmt: skip
    table = np.random.default_rng(0).standard_normal((30, 5)).astype(np.float32)
    net = model(nodes, {"x": (F, ["n", 5])}, at0=np.int64(0), axis=np.array([0]), one=np.int64(1), table=table)
    check(net, {"n": "1..30"}, [(n, 5) for n in (1, 2, 17, 30)])


@pytest.mark.parametrize("size", [3, 5])
def test_windows_on_maps_that_may_be_as_small_as_their_padding(size) -> None:
    weights = np.random.default_rng(0).standard_normal((4, 3, size, size)).astype(np.float32)
    pads = [size // 2] * 4
    nodes = [
        ("Conv", ["x", "w"], ["c"], {"pads": pads}),
        ("MaxPool", ["c"], ["z"], {"kernel_shape": [size, size], "pads": pads}),
    ]
    net = model(nodes, {"x": (F, [1, 3, "h", "w"])}, w=weights)
    check(net, {"h": "1..9", "w": "1..9"}, [(1, 3, h, w) for h, w in ((1, 1), (1, 9), (9, 1), (2, 3), (9, 9))])


def test_nearest_pixels_by_a_whole_scale() -> None:
    nodes = [("Resize", ["x", "", "scales"], ["y"], {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}),
             ("Relu", ["y"], ["z"], {})]  # fmt: skip
    net = model(nodes, {"x": (F, [1, 2, "h", "w"])}, scales=np.array([1, 1, 2, 3], np.float32))
    check(net, {"h": "4..32:4", "w": "1..9"}, [(1, 2, h, w) for h, w in ((4, 1), (32, 9), (8, 5))])


@pytest.mark.parametrize(("dims", "k"), [(["n", "m"], 0), (["n", "m"], -8), (["n", 4], 1), ([5, "m"], -20)], ids=str)
def test_a_unit_matrix_of_open_dims(dims: list, k: int) -> None:
    """Its diagonal may begin outside of some matrices, and of all."""
    shapes = [
        (dims[0] if dims[0] == 5 else n, dims[1] if dims[1] == 4 else m) for n, m in ((1, 1), (3, 7), (7, 3), (9, 9))
    ]
    nodes = [("EyeLike", ["x"], ["e"], {"k": k, "dtype": F}), ("Add", ["x", "e"], ["z"], {})]
    check(model(nodes, {"x": (F, dims)}), {d: "1..9" for d in dims if isinstance(d, str)}, shapes)


HALF_PIXEL = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}


@pytest.mark.parametrize(("factor", "divisor"), [(3, 1), (1, 2)])
def test_sizes_that_are_a_ratio_of_open_dims(factor: int, divisor: int) -> None:
    """Sizes of a Shape that is multiplied, or divided: the scale of the lengths is one number in all calls."""
    nodes = [("Shape", ["x"], ["shape"], {}), ("Slice", ["shape", "zero", "two"], ["front"], {}), ("Slice", ["shape", "two", "four"], ["plane"], {}),
             ("Mul", ["plane", "factor"], ["more"], {}), ("Div", ["more", "divisor"], ["less"], {}), ("Concat", ["front", "less"], ["sizes"], {"axis": 0}),
             ("Resize", ["x", "", "", "sizes"], ["z"], HALF_PIXEL)]  # fmt: skip
    numbers = {"zero": [0], "two": [2], "four": [4], "factor": factor, "divisor": divisor}
    net = model(nodes, {"x": (F, [1, 2, "h", "w"])}, **{n: np.array(v, np.int64) for n, v in numbers.items()})
    check(net, {"h": "4..32:4", "w": "8..32:4"}, [(1, 2, h, w) for h, w in ((4, 8), (32, 12), (8, 32))])


def test_maps_that_have_no_pixel_in_some_calls() -> None:
    """A window that is as large as the map and one more: what is read of nothing is nowhere else."""
    weights = np.random.default_rng(0).standard_normal((3, 9, 5, 5)).astype(np.float32)
    nodes = [("Relu", ["x"], ["r"], {}), ("Conv", ["r", "w"], ["c"], {}), ("Sigmoid", ["c"], ["z"], {})]
    net = model(nodes, {"x": (F, [1, 9, "h", "w"])}, w=weights)
    check(net, {"h": "4..40", "w": "4..40"}, [(1, 9, h, w) for h, w in ((5, 5), (5, 40), (23, 9))])
    made = lightnet.compile(lightnet.load(net, dims={"h": "4..40", "w": "4..40"}))
    assert made({"x": np.ones((1, 9, 4, 30), np.float32)})["z"].shape == (1, 3, 0, 26)


def test_what_is_padded_in_some_calls_alone() -> None:
    """A map that was halved and doubled again, padded to the size it had: by nothing where that is even."""
    nodes = [("MaxPool", ["x"], ["p"], {"kernel_shape": [2, 2], "strides": [2, 2]}), ("Resize", ["p", "", "scales"], ["r"], DOUBLED),
             ("Shape", ["x"], ["all"], {}), ("Shape", ["r"], ["some"], {}), ("Sub", ["all", "some"], ["left"], {}),
             ("Concat", ["none", "left"], ["pads"], {"axis": 0}), ("Pad", ["r", "pads"], ["q"], {}), ("Add", ["x", "q"], ["z"], {})]  # fmt: skip
    net = model(nodes, {"x": (F, [1, 9, "h", "w"])}, scales=np.float32([1, 1, 2, 2]), none=np.zeros(4, np.int64))
    check(net, {"h": "2..30", "w": "2..30"}, [(1, 9, h, w) for h, w in ((2, 2), (3, 30), (17, 9), (30, 29))])


DOUBLED = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
MAPPINGS = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")


def resampled(sizes: bool = True, to: int = F, **how) -> onnx.ModelProto:
    """x, in another type, resampled to 2 h - 1 rows and w / 2 + 1 columns, to twice as many of each otherwise."""
    nodes, numbers = [("Cast", ["x"], ["m"], {"to": to})], {"scales": np.float32([1, 1, 2, 2])}
    if sizes:
        nodes += [("Shape", ["x"], ["shape"], {"start": 2}), ("Mul", ["shape", "times"], ["t"], {}), ("Div", ["t", "by"], ["d"], {}),
                  ("Add", ["d", "more"], ["plane"], {}), ("Concat", ["front", "plane"], ["sizes"], {"axis": 0})]  # fmt: skip
        numbers = {"times": [2, 1], "by": [1, 2], "more": [-1, 1], "front": [1, 9]}
    nodes += [
        ("Resize", ["m", "", *(["", "sizes"] if sizes else ["scales"])], ["r"], how),
        ("Cast", ["r"], ["z"], {"to": F}),
    ]
    return model(nodes, {"x": (F, [1, 9, "h", "w"])}, **{n: np.array(v) for n, v in numbers.items()})


def check_beside_static(net, shapes) -> None:
    """The one executable of a model computes what the executable of each shape does, to the bit but for the order of sums."""
    made = lightnet.compile(lightnet.load(net, dims={"h": "1..32", "w": "1..40"}))
    for shape in shapes:
        x = 9 * np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        static = lightnet.compile(lightnet.load(net, shapes={"x": shape}))
        np.testing.assert_allclose(made({"x": x})["z"], static({"x": x})["z"], rtol=1e-6, atol=1e-6)


RESAMPLED = [(1, 9, 1, 1), (1, 9, 1, 7), (1, 9, 5, 1), (1, 9, 32, 40), (1, 9, 17, 23)]


@pytest.mark.parametrize("open_axis", ["h", "w"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("mapping", ["", *MAPPINGS])
def test_an_open_axis_beside_one_of_a_fixed_ratio(mapping: str, mode: str, open_axis: str) -> None:
    """Both sizes are given numbers. Each order of the axes, as each is resampled by itself, is imported open or refused by the dim, and right by its shapes."""
    how = {"mode": mode} | ({"coordinate_transformation_mode": mapping} if mapping else {})
    dims = [1, 2, *("h" if open_axis == "h" else 7, "w" if open_axis == "w" else 7)]
    net = model([("Resize", ["x", "", "", "sizes"], ["z"], how)], {"x": (F, dims)}, sizes=np.array([1, 2, 11, 5]))
    x = np.random.default_rng(0).standard_normal((1, 2, 7, 7)).astype(np.float32)
    want = lightnet.compile(lightnet.load(net, shapes={"x": x.shape}))({"x": x})["z"]
    np.testing.assert_allclose(lightnet.compile(net.SerializeToString())({"x": x})["z"], want, rtol=1e-6, atol=1e-6)
    try:
        open_net = lightnet.load(net, dims={open_axis: "1..32"})
    except lightnet.LightNetError as error:
        assert f"it needs the number {open_axis}(1..32)" in str(error)
    else:
        np.testing.assert_allclose(lightnet.compile(open_net)({"x": x})["z"], want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("sizes", [True, False])
@pytest.mark.parametrize("mapping", MAPPINGS)
def test_linear_resampling_whose_ratio_each_call_decides(mapping: str, sizes: bool) -> None:
    net = resampled(sizes, mode="linear", coordinate_transformation_mode=mapping)
    check_beside_static(net, RESAMPLED)
    check(net, {"h": "2..32", "w": "2..40"}, RESAMPLED[3:], 1e-4)  # its coordinates are f32


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("mapping", MAPPINGS)
def test_nearest_pixels_whose_ratio_each_call_decides(mapping: str, rounding: str) -> None:
    """ONNX Runtime computes coordinates in f32: which of two pixels that are as near is taken is no oracle."""
    check_beside_static(
        resampled(mode="nearest", coordinate_transformation_mode=mapping, nearest_mode=rounding), RESAMPLED
    )


@pytest.mark.parametrize("to", [TensorProto.INT32, TensorProto.DOUBLE])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resampled_tensors_of_other_types(mode: str, to: int) -> None:
    check_beside_static(resampled(to=to, mode=mode, coordinate_transformation_mode="align_corners"), RESAMPLED)


def test_doubled_pixels_of_any_rounding() -> None:
    """By a whole factor, where the pixels are others than those of the centres."""
    how = {"mode": "nearest", "coordinate_transformation_mode": "align_corners", "nearest_mode": "ceil"}
    check_beside_static(resampled(False, **how), RESAMPLED)


@pytest.mark.parametrize(
    "more", [{"mode": "cubic"}, {"mode": "linear", "antialias": 1}, {"mode": "linear", "exclude_outside": 1}], ids=str
)
def test_a_ratio_that_each_call_decides_asks_for_the_input(more: dict) -> None:
    """Where its tables are no simple numbers: the shape of x has to be given."""
    net = resampled(coordinate_transformation_mode="half_pixel", **more)
    with pytest.raises(OpenError, match=r"it needs the number .*, which each call decides") as caught:
        lightnet.load(net, dims={"h": "1..9", "w": "1..9"})
    assert caught.value.inputs == {"x"}


def test_heads_of_which_each_call_decides_the_channels() -> None:
    """[1, n, heads, width], which may lie in blocks of channels: n is no whole number of them."""
    nodes = [("Reshape", ["x", "split"], ["h"], {}), ("Softmax", ["h"], ["s"], {"axis": 2}), ("Transpose", ["s"], ["t"], {"perm": [0, 2, 1, 3]}),
             ("Add", ["t", "bias"], ["a"], {}), ("Transpose", ["a"], ["u"], {"perm": [0, 2, 1, 3]}), ("Mul", ["u", "h"], ["z"], {})]  # fmt: skip
    net = model(nodes, {"x": (F, ["b", "n", 12])}, split=np.array([0, 0, 3, 4]), bias=np.float32([[[[1, 2, 3, 4]]]]))
    check(net, {"b": "1..3", "n": "1..40"}, [(b, n, 12) for b, n in ((1, 1), (3, 40), (1, 15), (2, 16), (3, 17))])


@pytest.mark.parametrize(
    "nodes",
    [
        [("Shape", ["x"], ["z"], {})],
        [("Shape", ["x"], ["s"], {}), ("Neg", ["s"], ["z"], {})],
        [("Shape", ["x"], ["s"], {"start": 1, "end": 2}), ("Cast", ["s"], ["z"], {"to": F})],
        [("Size", ["x"], ["z"], {})],
    ],
    ids=["shape", "negated", "one", "size"],
)
def test_an_input_of_which_the_shape_alone_is_read(nodes: list) -> None:
    """No value has its dims any more; the call still knows them."""
    net = model(nodes, {"x": (F, ["b", "n", 5])})
    check(net, {"b": "1..3", "n": "1..9"}, [(b, n, 5) for b, n in ((1, 1), (3, 9), (2, 7))])


def test_a_size_that_no_type_has_is_known_to_kernels_of_cuda() -> None:
    net = model([("Shape", ["x"], ["z"], {})], {"x": (F, ["n", 5])})
    run = lightnet.compile(lightnet.load(net, dims={"n": "1..9"}), "cuda", emulate=True)
    for n in (1, 9, 4):
        np.testing.assert_array_equal(run({"x": np.zeros((n, 5), np.float32)})["z"], [n, 5])


def test_a_size_that_no_type_has_is_refused_where_sizes_are_numbers() -> None:
    net = model([("Shape", ["x"], ["z"], {})], {"x": (F, ["n", 5])})
    restore = registry.checkpoint()
    registry.TARGETS.add("fixed", Target("fixed", kernel="cpu", takes_open=False))
    try:
        with pytest.raises(
            lightnet.LightNetError, match="target fixed needs numbers for sizes, and each call decides 'n'"
        ):
            lightnet.compile(lightnet.load(net, dims={"n": "1..9"}), "fixed")
    finally:
        restore()


def test_a_rank_that_calls_decide_is_each_calls_own() -> None:
    """A Squeeze without axes leaves out a dim that is 1 in a call: no executable is for all of them, but where it cannot be 1."""
    net = model([("Squeeze", ["x"], ["z"], {})], {"x": (F, ["n", 1, 3])})
    with pytest.raises(OpenError):
        lightnet.load(net)
    run = lightnet.compile(net)
    for n in (1, 2, 1, 5):
        x = np.random.default_rng(n).standard_normal((n, 1, 3)).astype(np.float32)
        assert np.array_equal(run({"x": x})["z"], x.squeeze())
    check(net, {"n": "2..9"}, [(2, 1, 3), (9, 1, 3)])
