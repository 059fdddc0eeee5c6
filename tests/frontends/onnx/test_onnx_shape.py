"""ONNX ops that move, pick, reduce and search: what ONNX's own node cases (`tools/conformance.py`) leave out, old opsets and edge
cases, through import and machine code, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import lightnet
from lightnet.diagnostics import LightNetError

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402


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
