"""ONNX ops that move, pick, reduce and search, against what ONNX's own node cases expect, through import and machine code,
and what those cases leave out (old opsets, edge cases) against NumPy."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

import lightnet
from lightnet.diagnostics import LightNetError

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

#: A few node cases of each op: those that say something that the others do not.
SUBSET = re.compile(
    r"test_(argmax_(negative_axis_keepdims_example_select_last_index|no_keepdims_random)|argmin_default_axis_example"
    r"|center_crop_pad_(crop_and_pad|crop_axes_hwc|pad)|col2im(_strides|_pads|_5d|_dilations)?|compress_(1|default_axis)|concat_3d_axis_negative_2"
    r"|constant_pad_axes|cumsum_(1d_reverse_exclusive|2d_axis_1|2d_negative_axis)|cumprod_1d_exclusive|depthtospace_(crd_mode_)?example|det_(2d|nd)"
    r"|edge_pad|reflect_pad|wrap_pad|einsum_(batch_diagonal|batch_matmul|inner_prod|sum|transpose|scalar)|expand_dim_(un)?changed"
    r"|eyelike_with_dtype|gather_(0|negative_indices)|gather_elements_(0|negative_indices)|gathernd_example_(int32_batch_dim1|float32)"
    r"|hardmax_(one_hot|axis_0)|nllloss_(NC|NCd1d2_with_weight_reduction_mean_ii|NCd1_mean_weight_negative_ii)|nonzero_example"
    r"|onehot_(negative_indices|with_negative_axis)|range_(float_type_positive_delta|int32_type_negative_delta)|reduce_l2_empty_set"
    r"|reduce_log_sum_exp_(keepdims_random|empty_set)|reduce_max_(bool_inputs|empty_set)|reduce_sum_(empty_axes_input_noop|empty_set_non_reduced_axis_zero)"
    r"|reduce_mean_(do_not_keepdims|negative_axes_keepdims)_random|reduce_prod_keepdims_random|reduce_sum_square_do_not_keepdims_random|reshape_(allowzero_reordered|zero_and_negative_dim)"
    r"|reversesequence_(batch|time)|scatter_elements_with_(duplicate_indices|negative_indices|reduction_min)|scatternd(_add|_min|)?"
    r"|sce_(mean_weight_ii_3d_log_prob|none_weights|sum)|slice_(neg_steps|start_out_of_bounds|negative_axes)|spacetodepth(_crd_mode)?_example"
    r"|split_(1d_uneven_split_opset18|variable_parts_2d_opset13|zero_size_splits_opset18)|tensorscatter_circular|tensorscatter|tile(_precomputed)?"
    r"|top_k(_smallest|_negative_axis)?|tri[lu]_(out_neg|one_row_neg|zero)|unique_(not_sorted_without_axis|sorted_with_axis_3d)|unsqueeze_unsorted_axes)"
)


def node_cases() -> list:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return collect_testcases(None)


def test_node_cases():
    """The subset as a whole: making ONNX's cases takes most of the time."""
    wrong, seen = [], 0
    for case in node_cases():
        if SUBSET.fullmatch(case.name) is None:
            continue
        seen += 1
        names = [o.name for o in case.model.graph.output]
        run = lightnet.compile(case.model.SerializeToString())
        for inputs, outputs in case.data_sets:
            got = run(dict(zip([i.name for i in case.model.graph.input], inputs)))
            for name, want in zip(names, outputs):
                same = got[name].shape == want.shape and got[name].dtype == want.dtype
                if not same or not np.allclose(got[name], want, case.rtol, case.atol, equal_nan=True):
                    wrong.append(case.name)
    assert not wrong
    assert seen >= 90


def run_node(
    op_type: str, inputs: dict[str, np.ndarray], outputs: int = 1, opset: int = 21, constants=(), **attributes
):
    """One node in a model; the inputs named in `constants` are initializers. Its outputs."""
    names = [f"y{k}" for k in range(outputs)]
    nodes = [helper.make_node(op_type, list(inputs), names, **attributes)]
    fed = {k: v for k, v in inputs.items() if k not in constants}
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in fed.items()],
        [helper.make_tensor_value_info(k, TensorProto.UNDEFINED, None) for k in names],
        [numpy_helper.from_array(inputs[k], k) for k in constants],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    got = lightnet.compile(model.SerializeToString())(fed)
    return got[names[0]] if outputs == 1 else tuple(got[k] for k in names)


X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def ints(*values: int) -> np.ndarray:
    return np.asarray(values, np.int64)


@pytest.mark.parametrize(
    "starts, ends, axes, steps",
    [
        ((0, -2), (2**40, 2**62), (0, 2), (1, 1)),
        ((-1, 3), (-(2**62), -5), (1, 2), (-1, -2)),
        ((5,), (2,), (1,), (1,)),  # nothing
        ((-100,), (100,), (-1,), (3,)),
        ((2,), (1,), (1,), (2**40,)),
    ],
)
def test_slice_clamps_as_numpy_does(starts, ends, axes, steps):
    index = [slice(None)] * 3
    for axis, *cut in zip(axes, starts, ends, steps):
        index[axis] = slice(*cut)
    given = {"x": X, "s": ints(*starts), "e": ints(*ends), "a": ints(*axes), "p": ints(*steps)}
    np.testing.assert_array_equal(run_node("Slice", given, constants="seap"), X[tuple(index)])


def test_attributes_of_old_opsets():
    np.testing.assert_array_equal(
        run_node("Slice", {"x": X}, opset=9, starts=[1, -3], ends=[2, -1], axes=[0, 2]), X[1:2, :, -3:-1]
    )
    np.testing.assert_array_equal(run_node("Squeeze", {"x": X[:1]}, opset=11, axes=[-3]), X[0])
    np.testing.assert_array_equal(run_node("Unsqueeze", {"x": X}, opset=11, axes=[0, -1]), X[None, ..., None])
    np.testing.assert_array_equal(run_node("ReduceSum", {"x": X}, opset=11, axes=[-1], keepdims=0), X.sum(-1))
    padded = run_node("Pad", {"x": X}, opset=10, pads=[0, 1, 0, 0, 0, 2], value=7.0)
    np.testing.assert_array_equal(padded, np.pad(X, [(0, 0), (1, 0), (0, 2)], constant_values=7))
    a, b = run_node("Split", {"x": X}, outputs=2, opset=11, axis=2, split=[1, 3])
    np.testing.assert_array_equal(np.concatenate([a, b], 2), X)
    values, index = run_node("TopK", {"x": X}, outputs=2, opset=9, axis=1, k=2)
    np.testing.assert_array_equal(values, X[:, :0:-1])
    np.testing.assert_array_equal(index[0, :, 0], [2, 1])
    one = run_node("Hardmax", {"x": X}, opset=11)
    np.testing.assert_array_equal(one.reshape(2, 12), np.eye(12, dtype=np.float32)[[11, 11]])


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32, np.int64, np.uint8])
def test_reductions_of_other_types(dtype):
    x = (X % 5 + 1).astype(dtype)
    for op, want in (
        ("ReduceSum", x.sum((0, 2))),
        ("ReduceMax", x.max((0, 2))),
        ("ReduceProd", x.prod((0, 2), dtype=dtype)),
    ):
        got = run_node(op, {"x": x, "a": ints(0, 2)}, opset=18, constants="a", keepdims=0)
        assert got.dtype == dtype
        np.testing.assert_allclose(got, want.astype(dtype), rtol=2e-3 if dtype == np.float16 else 1e-12)


def test_log_sum_exp_of_infinities():
    x = np.array([[-np.inf, -np.inf], [np.inf, 1], [1000, 1000], [-np.inf, 0]], np.float32)
    got = run_node("ReduceLogSumExp", {"x": x, "a": ints(1)}, opset=18, constants="a", keepdims=0)
    np.testing.assert_allclose(got, [-np.inf, np.inf, 1000 + np.log(2), 0], rtol=1e-6)


@pytest.mark.parametrize(
    "equation, shapes",
    [
        ("bhqd,bhkd->bhqk", [(2, 3, 5, 4), (2, 3, 7, 4)]), ("ij,jk,kl->il", [(3, 4), (4, 5), (5, 2)]),
        ("ij,ij->i", [(3, 4), (3, 4)]), ("i,j->ij", [(3,), (4,)]), ("bij,jk", [(2, 3, 4), (4, 5)]),
        ("...i,...i->...", [(2, 3, 4), (3, 4)]), ("ii,ij->j", [(3, 3), (3, 4)]), ("abc,cd->dab", [(2, 3, 4), (4, 5)]),
        ("ab,ac,ad->bcd", [(6, 2), (6, 3), (6, 4)]),
    ],
)  # fmt: skip
def test_einsum(equation, shapes):
    rng = np.random.default_rng(0)
    operands = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    got = run_node("Einsum", {f"x{k}": x for k, x in enumerate(operands)}, equation=equation)
    np.testing.assert_allclose(
        got, np.einsum(equation, *(x.astype(np.float64) for x in operands)), rtol=1e-4, atol=1e-5
    )


def test_many_operands_are_joined():
    parts = {f"x{k}": np.full((2, 1), k, np.float32) for k in range(300)}
    np.testing.assert_array_equal(run_node("Concat", parts, axis=1)[0], np.arange(300))


def test_gather_of_a_known_run_is_a_slice():
    for index, want in (
        (np.int64(-1), X[:, -1]),
        (ints(1, 2), X[:, 1:]),
        (ints(-2, -1), X[:, 1:]),
        (ints(2, 1), X[:, [2, 1]]),
    ):
        np.testing.assert_array_equal(run_node("Gather", {"x": X, "i": np.asarray(index)}, constants="i", axis=1), want)


@pytest.mark.parametrize(
    "op, inputs, attributes, message",
    [
        ("Reshape", {"x": X, "s": ints(5, -1)}, {}, "cannot have the shape"),
        ("Concat", {"x": X, "y": X[:, :2]}, {"axis": 0}, "alike but along axis 0"),
        ("Slice", {"x": X, "s": ints(0), "e": ints(1), "a": ints(7)}, {}, "out of range"),
        ("Pad", {"x": X, "s": ints(1, 1)}, {}, "two for each"),
        ("Einsum", {"x": X, "y": X}, {"equation": "ijk,ikj->ij"}, "in one place"),
        ("Range", {"s": ints(0)[0], "e": ints(2**60)[0], "a": ints(1)[0]}, {}, "limit"),
        ("Expand", {"x": X, "s": ints(2, 2, 4)}, {}, "do not broadcast"),
    ],
)
def test_mistakes_are_reported(op, inputs, attributes, message):
    inputs = {k: np.asarray(v) for k, v in inputs.items()}
    with pytest.raises(LightNetError, match=message):
        run_node(op, inputs, constants=[k for k in inputs if k in "sea"], **attributes)


def test_nan_is_the_largest():
    x = np.array([[1, np.nan, 3, np.nan], [5, 2, 5, -np.inf]], np.float32)
    np.testing.assert_array_equal(run_node("ArgMax", {"x": x}, axis=1, keepdims=0), [1, 0])
    np.testing.assert_array_equal(run_node("ArgMax", {"x": x}, axis=1, keepdims=0, select_last_index=1), [3, 2])
    np.testing.assert_array_equal(run_node("ArgMin", {"x": x}, axis=1, keepdims=0), [1, 3])
    _, index = run_node("TopK", {"x": x, "k": ints(3)}, outputs=2, constants="k")
    np.testing.assert_array_equal(index, [[1, 3, 2], [0, 2, 1]])
    wide = np.tile(x, (1, 20))  # so many that they are sorted
    values, index = run_node("TopK", {"x": wide, "k": ints(60)}, outputs=2, constants="k", largest=0)
    np.testing.assert_array_equal(index, np.argsort(wide, 1, kind="stable")[:, :60])
    np.testing.assert_array_equal(values, np.sort(wide, 1)[:, :60])


def test_moves_compose():
    """What cutting, repeating and reducing nothing leaves behind: a chain of slices is one, the rest is gone."""
    from lightnet.frontends.graph import Graph

    g = Graph("g")
    x = g.input("x", (4, 6), "f32")
    y = g.op("strided_slice", x, starts=(3, 0), steps=(-1, 1), lens=(4, 6))
    y = g.op("strided_slice", y, starts=(1, 1), steps=(2, 2), lens=(2, 3))
    for optype, params in (
        ("pad", {"before": (0, 0), "after": (0, 0)}), ("expand", {"dims": (2, 3)}), ("tile", {"repeats": (1, 1)}),
        ("reduce_sum", {"axes": ()}), ("strided_slice", {"starts": (0, 0), "steps": (1, 1), "lens": (2, 3)}),
    ):  # fmt: skip
        y = g.op(optype, y, **params)
    module, _ = g.finish({"y": y})
    data = np.arange(24, dtype=np.float32).reshape(4, 6)
    run = lightnet.compile(lightnet.loads(str(module), ".mlir"))
    np.testing.assert_array_equal(run({"x": data})["y"], data[::-1][1::2, 1::2])
    names = [op.name for op in run.planned.walk() if op.name.startswith("ln.")]
    assert names.count("ln.strided_slice") == 1
    assert not {"ln.pad", "ln.expand", "ln.tile", "ln.reduce_sum"} & set(names)
