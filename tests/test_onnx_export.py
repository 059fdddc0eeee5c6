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
from lightnet.frontends.onnx_export import export, input_contents, to_onnx
from lightnet.frontends.onnx_graph import NOT_EXPORTED, exporters
from lightnet.ir.op import ConstraintError, LnOp
from lightnet.ir.types import TensorSpec, tensor_type
from lightnet.runtime.dtypes import BY_NAME, BY_NP, DTYPES

onnx = pytest.importorskip("onnx")
evaluator = pytest.importorskip("onnx.reference")
ort = pytest.importorskip("onnxruntime")

OPS = {name: cls for name, cls in optypes().items() if cls.samples()}
CASES = [(name, i) for name, cls in sorted(OPS.items()) for i in range(len(cls.samples()))]


def session(model):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run_onnx(model, feeds) -> tuple[str, list[np.ndarray]]:
    """Run a model; returns which evaluator did, too."""
    feeds = {i.name: feeds[i.name] for i in model.graph.input}
    try:
        return "onnxruntime", session(model).run(None, feeds)
    except ort.capi.onnxruntime_pybind11_state.NotImplemented:
        with np.errstate(all="ignore"):
            return "reference", evaluator.ReferenceEvaluator(model).run(None, feeds)


def module_of(op: LnOp) -> tuple[ModuleOp, list[str]]:
    """A network of one op on inputs; and the names of the inputs."""
    names = [f"in{i}" for i in range(len(op.operands))]
    sources = [
        Input.make([], {"dtype": s.dtype.tl, "dims": s.dims, "from_file": True}, name=n, tensors=[n])
        for n, s in zip(names, op.operand_specs)
    ]
    op = type(op).build_unchecked(
        [s.results[0] for s in sources],
        op.param_values(),
        op.result_specs,
        name="op",
        tensors=[f"out{i}" for i in range(len(op.results))],
    )
    block = Block([*sources, op, func.ReturnOp(*op.results)])
    main = func.FuncOp("main", ([], [r.type for r in op.results]), Region(block))
    return ModuleOp([main]), names


def exported(op: LnOp, arrays) -> tuple[str, list[np.ndarray]]:
    module, names = module_of(op)
    model = to_onnx(module)
    onnx.checker.check_model(model, full_check=True)  # its shape inference agrees with ours
    return run_onnx(model, dict(zip(names, arrays)))


def test_every_op_has_an_exporter_or_a_reason():
    assert set(exporters()) | set(NOT_EXPORTED) == set(optypes())
    assert not set(exporters()) & set(NOT_EXPORTED)


@pytest.mark.parametrize("name, index", CASES)
def test_exported_op_agrees_with_the_reference(name, index):
    op, arrays = op_of(OPS[name], OPS[name].samples()[index], index)
    want = op.reference(*arrays)
    want = [np.asarray(a) for a in (want if isinstance(want, tuple) else (want,))]
    who, got = exported(op, arrays)
    for array, reference in zip(got, want, strict=True):
        agree(np.asarray(array), reference)
    lacking = name == "avgpool2d" and op.operand_specs[0].dtype.name == "f64"  # ONNX Runtime has no such kernel
    assert who == ("reference" if lacking else "onnxruntime")


def in_type(name: str, dtype) -> tuple[LnOp, list[np.ndarray]] | None:
    """The op's first sample of f32, in another element type; None where the op does not take it."""
    cls = OPS[name]
    case = next(c for c in map(cls.schema.resolve, cls.samples()) if "f32" in str(c.tensors) or not c.tensors)
    fixed = {o.name for o in cls.schema.operands if len(o.dtypes) == 1}

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


@pytest.mark.parametrize("name", sorted(OPS))
def test_exported_op_agrees_in_every_type(name):
    """Every element type that an op takes is exported or refused with a reason, and computes the same."""
    refused = []
    for dtype in DTYPES:
        if (found := in_type(name, dtype)) is None:
            continue
        op, arrays = found
        try:
            _, got = exported(op, arrays)
        except LightNetError as e:
            assert e.label == "onnx.unsupported"
            refused.append(dtype.name)
            continue
        want = op.reference(*arrays)
        for array, reference in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
            agree(np.asarray(array), np.asarray(reference))
    integers = [d.name for d in DTYPES if not d.is_float]
    expected = {"conv2d": integers, "deconv2d": integers, "maxpool2d": ["i64", "ui64"]}
    assert refused == expected.get(name, [])


def one_op(name: str, arrays, params) -> tuple[np.ndarray, np.ndarray]:
    """What ONNX computes, and the op's reference."""
    block = Block(arg_types=[tensor_type(TensorSpec(a.shape, BY_NP[a.dtype])) for a in arrays])
    op = OPS[name].make(list(block.args), params)
    block.add_op(op)
    return exported(op, arrays)[1][0], op.reference(*arrays)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint32", "uint64"])
@pytest.mark.parametrize("kind", ["TL_DIV", "TL_POW", "TL_MUL"])
def test_integer_arithmetic_at_its_limits(dtype, kind):
    info = np.iinfo(dtype)
    values = [v for v in (info.min, info.min + 1, -7, -2, -1, 0, 1, 2, 7, info.max) if v >= info.min]
    x, y = np.array([(a, b) for a in values for b in values], dtype).T
    got, want = one_op("elew", [x, y], {"elew_op": kind})
    if (
        kind == "TL_POW"
    ):  # through double: the last bits of large 64-bit powers are lost, and whether an exponent is odd
        sure = np.abs(y.astype(float)) < 2**53
        np.testing.assert_allclose(got[sure].astype(float), want[sure].astype(float), rtol=1e-15)
    else:
        np.testing.assert_array_equal(got, want)


NAN = np.array([np.nan, 1, -1, np.inf, -np.inf, -0.0], np.float32)


@pytest.mark.parametrize(
    "name, params",
    [
        ("relu", {}),
        ("lrelu", {"negslope": 0.5}),
        ("sigmoid", {}),
        ("elew", "TL_MAX"),
        ("elew", "TL_MIN"),
        ("elew", "TL_SUM"),
    ],
)
def test_nan_and_infinities(name, params):
    arrays = [NAN] if name != "elew" else [NAN, NAN[::-1].copy()]
    with np.errstate(all="ignore"):
        got, want = one_op(name, arrays, params if isinstance(params, dict) else {"elew_op": params})
    np.testing.assert_array_equal(got, want)


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


def test_integer_convolution_is_refused():
    op, arrays = in_type("conv2d", BY_NAME["i8"])
    with pytest.raises(LightNetError, match="conv2d: `op` cannot be exported to ONNX"):
        exported(op, arrays)


def test_an_op_without_an_exporter_is_refused(model, monkeypatch):
    monkeypatch.delitem(exporters(), "softmax")
    with pytest.raises(LightNetError, match="no exporter is registered for 'softmax'") as e:
        to_onnx(model)
    assert e.value.loc is not None and e.value.loc.line == 10


def test_without_the_package_the_error_says_what_to_install(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(LightNetError, match=r"lightnet\[onnx\]"):
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
