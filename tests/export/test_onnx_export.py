"""ONNX export. Each op's every sample, exported alone and run by ONNX Runtime (by ONNX's reference evaluator where ONNX
Runtime has no kernel for a type), equals the op's own reference: the references are checked by an oracle that is not ours.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest
from kernels import agree, op_of
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Region

import lightnet
from lightnet.cli import lightnet as cli
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.dialect import optypes
from lightnet.dialects.ln.source import Input
from lightnet.ir.op import ConstraintError, LnOp
from lightnet.ir.types import TensorSpec, tensor_type
from lightnet.runtime.dtypes import BFLOAT16, BY_NAME, BY_NP, DTYPES, widened_array
from lightnet_export.onnx.graph import NOT_EXPORTED, exporters
from lightnet_export.onnx.model import export, input_contents, to_onnx

onnx = pytest.importorskip("onnx")
evaluator = pytest.importorskip("onnx.reference")
ort = pytest.importorskip("onnxruntime")

OPS = {name: cls for name, cls in optypes().items() if cls.samples() and name not in NOT_EXPORTED}

RuntimeImplementationError = evaluator.op_run.RuntimeImplementationError
_ERRORS = ort.capi.onnxruntime_pybind11_state
#: How ONNX Runtime says that it lacks a kernel: for a type, for a number of axes, for a type in a kernel of another.
REFUSALS = (_ERRORS.NotImplemented, _ERRORS.InvalidArgument, _ERRORS.RuntimeException)
_INTEGERS = "i1! i16! i32! i64! i8! ui16! ui32! ui64! ui8!"
#: What ONNX Runtime has no kernel for, by op and type of a case: ONNX's reference evaluator runs it. With "!", ONNX's operator
#: is not for it, and the export is refused; with "?", neither has pools over four axes, or of regions in doubles.
LACKING = {
    **dict.fromkeys(
        ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh", "tan", "erf", "gelu", "lrn"), "f64"
    ),
    **dict.fromkeys(("lstm", "gru", "rnn", "avgpool2d"), "f64"),
    **dict.fromkeys(("conv2d", "deconv2d"), f"f64 {_INTEGERS}"),
    **dict.fromkeys(("conv", "deconv"), "f64 i32! i64!"),
    "avgpool": "f32 f64",  # over four axes
    "bitcast": "f8E4M3FN ui8",
    "maxpool2d": "i64! ui64!",
    **dict.fromkeys(("maxpool", "maxpool_index"), "f32? i64! ui64!"),
    **dict.fromkeys(("argmax", "argmin", "maxreduce", "maxreduce_arg", "reduce_max", "reduce_min"), "ui64"),
    **dict.fromkeys(("sort1d", "sort1d_by_key", "topk", "topk_of", "unique"), "ui64"),
    "roi_pool": "f64?",
    "nms": "f32!",  # of what ONNX has not, beside those that ONNX Runtime runs
}
_MARKS = {"reference": "", "refused": "!", "nobody": "?"}


def session(model):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def with_float_ends(model):
    """The model with f32 in place of bf16 inputs and outputs, which NumPy arrays do not hold for ONNX Runtime."""
    helper, graph = onnx.helper, model.graph
    for value in [*graph.input, *graph.output]:
        if value.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16:
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
            outer, inner = value.name, f"{value.name}.bf16"
            for node in graph.node:
                node.input[:] = [inner if n == outer else n for n in node.input]
                node.output[:] = [inner if n == outer else n for n in node.output]
            is_input = value in graph.input
            ends, kind = ((outer, inner), "BFLOAT16") if is_input else ((inner, outer), "FLOAT")
            cast = helper.make_node("Cast", ends[:1], ends[1:], to=getattr(onnx.TensorProto, kind))
            graph.node.insert(0 if is_input else len(graph.node), cast)
    return model


def run_onnx(model, feeds, dtypes) -> tuple[str, list[np.ndarray]]:
    """Run a model; returns which evaluator did, too. `dtypes` are those of the outputs."""
    model = with_float_ends(model)
    feeds = {
        i.name: widened_array(feeds[i.name]) if feeds[i.name].dtype == BFLOAT16 else feeds[i.name]
        for i in model.graph.input
    }
    try:
        who, found = "onnxruntime", session(model).run(None, feeds)
    except (*REFUSALS, RuntimeError) as e:
        if not isinstance(e, REFUSALS) and "No corresponding Numpy type" not in str(e):  # of outputs in 4 bits
            raise
        with np.errstate(all="ignore"):
            who, found = "reference", evaluator.ReferenceEvaluator(model).run(None, feeds)
    found = [np.asarray(a) for a in found]
    return who, [a.astype(d) if d == BFLOAT16 else a for a, d in zip(found, dtypes, strict=True)]


def module_of(ops: list[LnOp]) -> tuple[ModuleOp, list[str]]:
    """A network of ops that each read inputs of their own; and the names of the inputs."""
    sources, copies, names = [], [], []
    for k, op in enumerate(ops):
        mine = []
        for i, spec in enumerate(op.operand_specs):
            names.append(f"in{k}_{i}")
            params = {"dtype": spec.dtype.tl, "dims": spec.dims, "from_file": True}
            mine.append(Input.make([], params, name=names[-1], tensors=[names[-1]]))
        sources += mine
        copies.append(type(op).build_unchecked(
            [s.results[0] for s in mine], op.param_values(), op.result_specs, name=f"op{k}" if k else "op",
            tensors=[f"out{k}_{i}" for i in range(len(op.results))],
        ))  # fmt: skip
    results = [r for op in copies for r in op.results]
    block = Block([*sources, *copies, func.ReturnOp(*results)])
    main = func.FuncOp("main", ([], [r.type for r in results]), Region(block))
    return ModuleOp([main]), names


def exported(*cases) -> tuple[str, list[np.ndarray]]:
    """What ONNX computes for pairs of an op and its operands, in one model."""
    module, names = module_of([op for op, _ in cases])
    model = to_onnx(module)
    onnx.checker.check_model(model, full_check=True)  # its shape inference agrees with ours
    dtypes = [s.dtype.np for op, _ in cases for s in op.result_specs]
    return run_onnx(model, dict(zip(names, [a for _, arrays in cases for a in arrays])), dtypes)


def wanted(op: LnOp, arrays) -> list[np.ndarray]:
    found = op.reference(*arrays)
    return [np.asarray(a) for a in (found if isinstance(found, tuple) else (found,))]


def compared(cases) -> dict[int, str]:
    """Run cases, all at once or else one by one, and compare each with its op's reference; returns which were not run by
    ONNX Runtime, by number, and who ran or refused them."""
    want = [wanted(*case) for case in cases]
    try:
        whos, (who, got) = {}, exported(*cases)
    except (LightNetError, RuntimeError):
        who = "one by one"
    if who != "onnxruntime":
        whos, got = {}, []
        for i, case in enumerate(cases):
            try:
                whos[i], found = exported(case)
            except LightNetError as e:
                assert e.label == "onnx.unsupported"
                whos[i], found = "refused", want[i]
            except (
                IndexError,
                RuntimeImplementationError,
            ):  # the reference evaluator has no pools of four axes, or regions, either
                assert len(case[0].operand_specs[0].dims) == 6 or case[0].optype == "roi_pool"
                whos[i], found = "nobody", want[i]
            got += found
    for array, (i, reference) in zip(got, [(i, a) for i, arrays in enumerate(want) for a in arrays], strict=True):
        try:
            agree(array, reference)
        except AssertionError as e:
            raise AssertionError(f"case {i}: {cases[i][0]}: {e}") from None
    return {i: who for i, who in whos.items() if who != "onnxruntime"}


def test_every_op_has_an_exporter_or_a_reason():
    assert set(exporters()) | set(NOT_EXPORTED) == set(optypes()), "step 7 of docs/add-an-op.md"
    assert not set(exporters()) & set(NOT_EXPORTED)


@pytest.mark.sampled(every=3, share=0.2)
@pytest.mark.parametrize("name", sorted(OPS))
def test_exported_op_agrees_with_the_reference(name):
    """Every sample, and one in every element type that the op takes."""
    cases = cases_of(name)
    for op, arrays in cases:
        if name in ("lstm", "gru", "rnn") and op.operand_specs[0].dtype.name == "f64":
            arrays[3][:] = op.sizes[0]  # the reference evaluator does not know sequences that end early
    whos = {f"{cases[i][0].operand_specs[0].dtype}{_MARKS[who]}" for i, who in compared(cases).items()}
    assert name in exporters() or name in NOT_EXPORTED, (
        f"{name} has no exporter, nor a reason: step 7 of docs/add-an-op.md"
    )
    assert " ".join(sorted(whos)) == LACKING.get(name, "")


def cases_of(name: str) -> list[tuple[LnOp, list[np.ndarray]]]:
    cases = [op_of(OPS[name], case, i) for i, case in enumerate(OPS[name].samples())]
    return cases + [found for dtype in DTYPES if (found := in_type(name, dtype)) is not None]


@pytest.mark.sampled(every=3, share=0.2)
@pytest.mark.parametrize(
    "name", sorted(set(OPS) - {"non_max_suppression", "topk_of", "unique"})
)  # where an input decides a shape
def test_exported_op_can_be_imported_again(name):
    """What comes back computes the same: two front ends against each other, and both against the reference."""
    refused = {mark[:-1] for mark in LACKING.get(name, "").split() if mark.endswith("!")}
    cases = [c for c in cases_of(name) if not c[1] or c[0].operand_specs[0].dtype.name not in refused]
    module, names = module_of([op for op, _ in cases])
    back = lightnet.loads(to_onnx(module).SerializeToString(), ".onnx")
    with np.errstate(all="ignore"):
        found = lightnet.compile(back, target="none")(dict(zip(names, [a for _, arrays in cases for a in arrays])))
    for array, reference in zip(found.values(), [a for case in cases for a in wanted(*case)], strict=True):
        agree(np.asarray(array), reference)


def in_type(name: str, dtype) -> tuple[LnOp, list[np.ndarray]] | None:
    """The op's first sample of its most usual type, in another element type; None where the op does not take it."""
    cls = OPS[name]
    cases = [cls.schema.resolve(c) for c in cls.samples()]
    case = next((c for c in cases if "f32" in str(c.tensors) or not c.tensors), cases[0])
    fixed = {o.name for o in cls.schema.operands if len(o.dtypes) == 1 or o.kind == "index"}

    def retyped(field, value):
        if not isinstance(value, TensorSpec):
            return tuple(retyped(field, v) for v in value)
        return value if field in fixed else TensorSpec(value.dims, dtype)

    tensors = {k: retyped(k, v) for k, v in case.tensors.items()}
    params = {**case.params, "dtype": dtype.tl} if "dtype" in case.params and not tensors else case.params
    specs, kinds, names = [], [], []
    for field in cls.schema.operands:
        value = tensors[field.name]
        for i, spec in enumerate(value if field.variadic else (value,)):
            specs.append(spec)
            kinds.append(field.kind)
            names.append(f"{field.name}{i}" if field.variadic else field.name)
    block = Block(arg_types=[tensor_type(s) for s in specs])
    try:
        op = cls.make(list(block.args), params, name=name)
    except ConstraintError:
        return None
    block.add_op(op)
    known = dict(zip(names, specs))
    return op, [cls.sample_data(n, k, s, known, params, 7) for n, k, s in zip(names, kinds, specs)]


def op_on(name: str, arrays, params) -> tuple[LnOp, list[np.ndarray]]:
    """An op on these operands."""
    block = Block(arg_types=[tensor_type(TensorSpec(a.shape, BY_NP[a.dtype])) for a in arrays])
    op = OPS[name].make(list(block.args), params)
    block.add_op(op)
    return op, arrays


def one_op(name: str, arrays, params) -> tuple[np.ndarray, np.ndarray]:
    """What ONNX computes, and the op's reference."""
    op, arrays = op_on(name, arrays, params)
    return exported((op, arrays))[1][0], op.reference(*arrays)


def equal_in_one_model(cases) -> None:
    """What ONNX computes is what the references do, NaN and infinities included."""
    with np.errstate(all="ignore"):
        _, got = exported(*cases)
        want = [a for case in cases for a in wanted(*case)]
    for array, reference, (op, _) in zip(got, want, cases, strict=True):
        np.testing.assert_array_equal(widened_array(array), widened_array(reference), err_msg=str(op))


INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def pairs_at_the_limits(dtype: str) -> list[np.ndarray]:
    info = np.iinfo(dtype)
    values = (info.min, info.min + 1, -7, -2, -1, 0, 1, 2, 7, 8, 63, 64, 2**32 - 1, 2**32, info.max)
    values = [v for v in values if info.min <= v <= info.max]
    return list(np.array([(a, b) for a in values for b in values], dtype).T.copy())


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_arithmetic_at_its_limits(dtype):
    names = ("add", "sub", "mul", "div", "fmod", "mod", "maximum", "minimum", "shift_left", "shift_right", "equal", "less",
             "less_equal", "prelu")  # fmt: skip
    cases = [op_on(name, pairs_at_the_limits(dtype), {}) for name in names]
    cases += [op_on("elew", pairs_at_the_limits(dtype), {"elew_op": kind}) for kind in ("TL_DIV", "TL_MUL")]
    equal_in_one_model(cases)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_powers_at_their_limits(dtype):
    """Through double: the last bits of large 64-bit powers are lost, and whether an exponent is odd."""
    x, y = pairs_at_the_limits(dtype)
    got, want = one_op("pow", [x, y], {})
    sure = np.abs(y.astype(float)) < 2**53
    np.testing.assert_allclose(got[sure].astype(float), want[sure].astype(float), rtol=1e-15)


@pytest.mark.parametrize("mode", ["saturate", "wrap"])
@pytest.mark.parametrize("dtype", [d.name for d in DTYPES])
def test_casts_at_the_limits(dtype, mode):
    """Between all types."""
    source = BY_NAME[dtype]
    if source.is_float:
        values = [
            0.5,
            -0.5,
            1.5,
            127.6,
            255.9,
            -129,
            65519,
            65520,
            3e9,
            -3e9,
            1e19,
            -1e19,
            3e38,
            np.inf,
            -np.inf,
            np.nan,
            -0.0,
        ]
    else:
        values = [v for v in (*source.limits, -129, -128, -1, 0, 1, 127, 128, 255, 2049, 65536) if source.limits[0] <= v <= source.limits[1]]  # fmt: skip
    with np.errstate(all="ignore"):
        array = np.array(values, np.float64 if source.is_float else None).astype(source.np)
    equal_in_one_model([op_on("cast", [array], {"dtype": d.tl, "mode": mode}) for d in DTYPES])


NAN = np.array([np.nan, 1, -1, np.inf, -np.inf, -0.0], np.float32)


def test_nan_and_infinities():
    others = NAN[::-1].copy()
    unary = ["relu", "sigmoid", "abs", "neg", "sign", "floor", "ceil", "round_even", "exp", "sqrt", "isnan", "isinf", "log",
             "tanh", "reciprocal", "softsign"]  # fmt: skip
    cases = [op_on(name, [NAN], {}) for name in unary]
    cases += [op_on("lrelu", [NAN], {"negslope": 0.5}), op_on("clip", [NAN], {"lo": -1, "hi": 2})]
    for name in ("add", "sub", "mul", "div", "maximum", "minimum", "equal", "less", "less_equal", "fmod", "mod"):
        cases.append(op_on(name, list(np.array([(a, b) for a in NAN for b in others]).T.copy()), {}))
    cases += [op_on("elew", [NAN, others], {"elew_op": kind}) for kind in ("TL_MAX", "TL_MIN", "TL_SUM")]
    equal_in_one_model(cases)


@pytest.mark.parametrize(
    "tl, values",
    [
        ("TL_INT8", [300, -300, np.nan, 1.9, -1.9, np.inf]),
        ("TL_INT64", [1e19, -1e19, np.nan, 2.0**62, -np.inf, 0.5]),
        ("TL_UINT64", [1e20, -1, np.nan, 2.0**63, np.inf, 0.5]),
        ("TL_FLOAT", [1e300, -1e300, np.nan, np.inf, -np.inf, 1e-300]),
    ],
)
def test_conversions_saturate(tl, values):
    picture = np.array(values, np.float64).reshape(1, 2, 3)
    got, want = one_op("submean", [picture], {"mean": (0, 0, 0), "dtype": tl})
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["conv2d", "avgpool2d", "maxpool2d"])
@pytest.mark.parametrize("pad", ["SAME_UPPER", "SAME_LOWER"])
def test_padding_below_zero_crops(name, pad):
    rng = np.random.default_rng(1)
    src = rng.normal(size=(1, 2, 8, 11)).astype(np.float32)
    params = {"size": (1, 2), "stride": (3, 4), "autopad": pad}
    weights = [rng.normal(size=s).astype(np.float32) for s in ((3, 2, 1, 2), (3,))] if name == "conv2d" else []
    agree(*one_op(name, [src, *weights], params))


@pytest.mark.parametrize(
    "params",
    [
        {"stride": (3, 3), "output_dims": (1, 3, 15, 12), "autopad": "SAME_UPPER"},
        {"stride": (3, 3), "output_dims": (1, 3, 15, 12), "autopad": "SAME_LOWER"},
        {"stride": (2, 2), "output_padding": (1, 1), "padding": (1, 0, 1, 1)},
        {"stride": (1, 2), "output_padding": (3, 2), "padding": (0, 1, 1, 0)},
    ],
)
def test_deconvolutions_that_need_more_than_convtranspose(params):
    rng = np.random.default_rng(2)
    arrays = [rng.normal(size=s).astype(np.float32) for s in ((1, 2, 5, 4), (2, 3, 2, 2), (3,))]
    agree(*one_op("deconv2d", arrays, {"size": (2, 2), **params}))


NET = """
    create(|dst=x|dtype=TL_FLOAT, dims=[1,4,8,8], ran=[-1,1], data=[0], from_file=false);
    create(|dst=w|dtype=TL_FLOAT, dims=[4,4,3,3], ran=[-1,1], data=[0], from_file=false);
    create(|dst=const|dtype=TL_FLOAT, dims=[4], ran=[-1,1], data=[0], from_file=false);
    conv2d(src=x, weight=w, bias=const|dst=c|group=1, size=[3,3], stride=[1,1], padding=[1,1,1,1], autopad="NOTSET",
           dilation=[1,1]);
    relu(src=c|dst=r|); elew(src1=r, src2=x|dst=odd/name|elew_op=TL_SUM);
    slice(src=odd/name|dst=left|axis=1, start=0, len=1); slice(src=odd/name|dst=right|axis=1, start=1, len=3);
    concat(src1=right, src2=left|dst=y|axis=1); print(src=r||msg="r");
    softmax(src=r|dst=z|axis=1)
""".replace("odd/name", "s_")


@pytest.fixture(scope="module")
def model():
    return lightnet.loads(NET, ".net")


def test_names_and_order(model):
    graph = to_onnx(model).graph
    assert [i.name for i in graph.input] == ["x"]
    assert [o.name for o in graph.output] == ["y", "z"]
    assert {"w", "const"} <= {t.name for t in graph.initializer}
    made = {o: n.name for n in graph.node for o in n.output}
    assert made["c"] == "conv2d1" or made["c"].startswith("conv2d"), made
    assert len({n.name for n in graph.node}) == len(graph.node)


def test_dropped_prints_are_noted(model):
    assert "print" in to_onnx(model).doc_string


@pytest.mark.parametrize("stage", ["source", "bind", "simplify", "combine", "hoist", "plan"])
def test_every_level_exports_the_same(model, stage):
    executable = lightnet.compile(model)
    stages = {"source": model.module, "plan": executable.planned}
    module = stages.get(stage) or executable._compilation.stage(stage)
    feeds = {"x": np.random.default_rng(3).normal(size=(1, 4, 8, 8)).astype(np.float32)}
    want = session(to_onnx(model)).run(None, feeds)
    with open("/dev/null", "w") as null:
        ours = executable(feeds, stream=null)
    for a, b, c in zip(session(to_onnx(module)).run(None, feeds), want, ours.values(), strict=True):
        agree(a, b, 1e-6)
        agree(a, c)


def test_inputs_as_params_and_further_outputs(model):
    proto = to_onnx(model, inputs_as_params=True, outputs=["c", "x"])
    assert not proto.graph.input
    y, z, c, x = session(proto).run(None, {})
    feeds = input_contents(model)
    np.testing.assert_array_equal(x, feeds["x"])
    assert np.abs(c).max() > 0
    for a, b in zip((y, z), session(to_onnx(model)).run(None, feeds), strict=True):
        agree(a, b, 1e-5)  # a runtime that folds constants rounds otherwise


def test_weights_come_from_the_mapping():
    text = "create(|dst=x|dtype=TL_FLOAT, dims=[1], ran=[0,0], data=[0], from_file=true); relu(src=x|dst=y|)"
    loaded = lightnet.loads(text, ".net")
    proto = to_onnx(loaded, weights={"x": np.array([3], np.float32)}, inputs_as_params=True)
    assert session(proto).run(None, {})[0].tolist() == [3]


@pytest.mark.parametrize(
    "name, arrays, params, opset",
    [
        ("abs", [np.zeros(3, np.float32)], {}, 18),
        ("grid_sample", [np.zeros((1, 1, 4, 4), np.float32), np.zeros((1, 2, 2, 2), np.float32)], {}, 20),
        ("bitcast", [np.zeros(3, np.float32)], {"dtype": "TL_INT32"}, 26),
        ("bitcast", [np.zeros(3, np.int8)], {"dtype": "TL_UINT8"}, 18),
    ],
)
def test_the_opset_is_the_oldest_that_has_the_ops(name, arrays, params, opset):
    module, _ = module_of([op_on(name, arrays, params)[0]])
    assert [o.version for o in to_onnx(module).opset_import] == [opset]


@pytest.mark.parametrize("dtype, number", [("f16", "FLOAT16"), ("bf16", "BFLOAT16")])
def test_short_floats_are_stored_short_and_computed_in_float(dtype, number):
    op, _ = in_type("exp", BY_NAME[dtype])
    graph = to_onnx(module_of([op])[0]).graph
    ends = {v.type.tensor_type.elem_type for v in (*graph.input, *graph.output)}
    assert ends == {getattr(onnx.TensorProto, number)}
    assert [n.op_type for n in graph.node] == ["Cast", "Exp", "Cast"]


@pytest.mark.parametrize("stride", [1, 2, 3, 4, 6, 7])
@pytest.mark.parametrize("taken", [1, 2])
def test_picked_elements_are_cut_only_where_some_are_left_over(stride, taken):
    """`pick1d` of 12 elements: one Slice for elements behind the last whole group, one for indices that it ignores."""
    source = f"""
        create(|dst=x|dtype=TL_FLOAT, dims=[12], ran=[-1,1], data=[0], from_file=false);
        create(|dst=i|dtype=TL_INT32, dims=[2], ran=[0,0], data=[0, 0], from_file=false);
        pick1d(src=x, src_index=i|dst=y|len={taken}, stride={stride})
    """
    graph = to_onnx(lightnet.loads(source, ".net"), inputs_as_params=True).graph
    assert [n.op_type for n in graph.node].count("Slice") == (12 % stride > 0) + (taken < 2)


def test_known_indices_are_not_clamped():
    for values, inside in (([4, -5], True), ([5, 0], False)):
        source = f"""
            create(|dst=x|dtype=TL_FLOAT, dims=[5,4], ran=[-1,1], data=[0], from_file=false);
            create(|dst=i|dtype=TL_INT64, dims=[2], ran=[0,0], data={values}, from_file=false);
            take(src=x, index=i|dst=y|axis=0)
        """
        graph = to_onnx(lightnet.loads(source, ".net"), inputs_as_params=True).graph
        assert ([n.op_type for n in graph.node] == ["Gather"]) == inside


@pytest.mark.parametrize(
    "name, arrays, params",
    [
        ("reduce_mean", [np.where(np.arange(300) < 127, 1, 0).astype(np.int8)[None]], {"axes": (1,)}),
        ("reverse_sequence", [np.arange(6, dtype=np.int16).reshape(3, 2), np.array([9, -2])], {}),
        ("reverse_sequence", [np.arange(24.0).reshape(2, 3, 4), np.array([1, 4])], {"batch_axis": 0, "time_axis": 2}),
        ("take", [np.arange(5), np.array([9, -9, 2**32 + 1])], {"axis": 0}),
        ("gather_nd", [np.arange(6).reshape(2, 3), np.array([[1, 7], [-9, -1]])], {}),
        ("gather_nd", [np.arange(6).reshape(2, 3), np.zeros((2, 4, 0), np.int64)], {"batch_dims": 1}),
        ("scatter_nd", [np.arange(3), np.zeros((2, 0), np.int64), np.ones((2, 3), np.int64)], {"reduction": "add"}),
        ("strided_slice", [np.arange(5)], {"starts": (4,), "steps": (-2,), "lens": (3,)}),
        ("pad", [np.arange(5)], {"before": (-7,), "after": (9,), "value": 3}),
        ("grid_sample", [np.ones((1, 1, 1, 3)), np.array([[[[0.0, 5.0]]]])],
         {"normalized": False, "padding_mode": "reflection", "align_corners": True}),
    ],
)  # fmt: skip
def test_corners_that_samples_do_not_reach(name, arrays, params):
    equal_in_one_model([op_on(name, arrays, params)])


def test_integer_convolution_is_refused():
    with pytest.raises(LightNetError, match="conv2d: `op` cannot be exported to ONNX"):
        exported(in_type("conv2d", BY_NAME["i8"]))


def test_an_op_without_an_exporter_is_refused(model, monkeypatch):
    monkeypatch.delitem(exporters(), "softmax")
    with pytest.raises(LightNetError, match="no exporter is registered for 'softmax'") as e:
        to_onnx(model)
    assert e.value.loc is not None and e.value.loc.line == 10


def test_without_the_package_the_error_says_what_to_install(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(LightNetError, match=r"lightnet-compiler\[onnx\]"):
        to_onnx(model)


def test_unknown_output(model):
    with pytest.raises(LightNetError, match="nowhere"):
        to_onnx(model, outputs=["nowhere"])


def test_command_line(tmp_path, capsys):
    net, out = tmp_path / "a.net", tmp_path / "a.onnx"
    net.write_text(NET)
    assert cli.main(["-c", "--onnx", str(out), str(net)]) == 0
    assert [o.name for o in onnx.load(out).graph.output] == ["y", "z"]
    export(lightnet.load(net), tmp_path / "b.onnx")
    assert out.read_bytes() == (tmp_path / "b.onnx").read_bytes()
