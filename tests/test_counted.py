"""Results whose size the data decides: a bound at compile time, a count at run time, outputs at their true size. ONNX Runtime is the oracle."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnxruntime as ort
from counted_graphs import counted_graph
from detectors import HEADS, detector
from onnx import TensorProto, helper, numpy_helper

import lightnet
from lightnet.diagnostics import LightNetError
from lightnet.executable import Executable
from lightnet.frontends.sizes import SizeSymbol, of_symbol
from lightnet.ir.context import make_context
from lightnet.ir.counts import counts_of
from lightnet.ir.module import main_of
from lightnet.ir.parser import parse_mlir
from lightnet.ir.verify import verify_module
from lightnet.runtime import lnx_check
from lightnet.runtime.dims import Dim, Undecided
from lightnet.runtime.program import Program

pytestmark = pytest.mark.meaning

F, I, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def session(model: bytes) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def model_of(nodes, inputs, outputs, constants=None, opset: int = 17) -> bytes:
    """A model of (op type, inputs, outputs, attributes); `inputs` are (name, type, dims), `outputs` (name, type)."""
    graph = helper.make_graph(
        [helper.make_node(op, ins, outs, **attributes) for op, ins, outs, attributes in nodes], "g",
        [helper.make_tensor_value_info(*i) for i in inputs], [helper.make_tensor_value_info(n, t, None) for n, t in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8).SerializeToString()


def agree(found, wanted, tolerance: float = 2e-4) -> None:
    """Same shapes and types; integers are equal, floats within a tolerance of the largest."""
    assert len(found) == len(wanted)
    for (name, array), want in zip(found.items(), wanted):
        assert (array.shape, array.dtype) == (want.shape, want.dtype), name
        if array.dtype.kind == "f":
            largest = np.abs(want[np.isfinite(want)]).max(initial=1)
            np.testing.assert_allclose(array, want, rtol=tolerance, atol=tolerance * largest, err_msg=name)
        else:
            np.testing.assert_array_equal(array, want, name)


# -- random graphs ---------------------------------------------------------------------------------------------------


def run_random(seed: int, **options) -> bool:
    """Compile a random graph once, and compare; whether it was compiled before it ran."""
    model, feeds = counted_graph(seed)
    try:
        want = session(model).run(None, feeds)
    except Exception:
        return True  # a graph that ONNX Runtime does not run either
    executable = lightnet.compile(model, **options)
    agree(executable(feeds), want)
    return isinstance(executable, Executable)


def test_random_graphs_agree_in_the_interpreter() -> None:
    assert all(run_random(seed, target="none") for seed in range(25))


def test_random_graphs_agree_natively() -> None:
    assert all(run_random(seed) for seed in range(500, 503))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_many_random_graphs_agree(part: int) -> None:
    assert all(run_random(1000 + 60 * part + k, target="none" if k % 6 else "cpu") for k in range(60))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(700, 712))
def test_random_graphs_agree_on_cuda(seed: int) -> None:
    assert run_random(seed, target="cuda", emulate=True)


# -- detectors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(HEADS))
@pytest.mark.parametrize("target", ["none", "cpu"])
def test_detectors_with_their_suppression_run_whole(name: str, target: str) -> None:
    """Nothing compiles at run time: one executable for calls whose outputs differ in size, none among them."""
    model = detector(name)
    executable, oracle, sizes = lightnet.compile(model, target=target), session(model), set()
    assert isinstance(executable, Executable)
    for seed in range(4):
        scale = 0 if seed == 3 else 1 + seed
        features = (
            np.random.default_rng(seed).standard_normal((1, 3, 1, 60)).astype(np.float32) * scale - (seed == 3) * 9
        )
        found = executable({"features": features})
        agree(found, oracle.run(None, {"features": features}), 1e-4)
        sizes.add(next(iter(found.values())).shape[0])
    assert len(sizes) > 1


def test_the_true_size_survives_every_form(tmp_path) -> None:
    """A saved executable, `.mlir`, JSON IR and ONNX give what the network gives."""
    model = detector("yolo_offset")
    read = lightnet.loads(model, ".onnx")
    features = np.random.default_rng(0).standard_normal((1, 3, 1, 60)).astype(np.float32)
    want = lightnet.compile(read, target="none")({"features": features})
    assert 0 < len(want["scores"]) < 60

    executable = lightnet.compile(read)
    executable.save(tmp_path / "net.lnx")
    saved = lightnet.load_executable(tmp_path / "net.lnx")
    agree(saved({"features": features}), list(want.values()))
    assert list(saved.outputs) == list(executable.outputs) == ["boxes", "scores", "classes"]
    assert saved({"features": features}, outputs=["scores"]).keys() == {"scores"}

    ctx = make_context()
    text = str(read.module)
    again = parse_mlir(ctx, text, "again")
    assert str(again) == text
    assert counts_of(main_of(again).body.block.last_op)

    from lightnet.frontends import importer, json_ir
    from lightnet_export.netlist import from_module

    net = from_module(read.module)
    back = importer.to_module(json_ir.read(json_ir.write(net), "net.json"))
    verify_module(back)
    assert counts_of(main_of(back).body.block.last_op) == counts_of(main_of(read.module).body.block.last_op)

    from lightnet_export.onnx.model import to_onnx

    exported = to_onnx(read)
    agree(dict(zip(want, session(exported.SerializeToString()).run(None, {"features": features}))), list(want.values()))


def test_the_header_for_c_says_what_counts() -> None:
    from lightnet.backends.llvm.cheader import header

    text = header("net", lightnet.compile(detector("yolo_masked")).program, "0")
    assert "axis 0 has as many elements as " in text


def exported(name: str, path) -> bytes:
    """A detector of torchvision with random weights, as PyTorch exports it. Classes are far apart, so that many boxes have a score."""
    torch = pytest.importorskip("torch", reason="exports the detectors")
    models = pytest.importorskip("torchvision", reason="has the detectors").models.detection
    torch.manual_seed(0)
    network = getattr(models, name)(weights=None, weights_backbone=None, num_classes=12).eval()
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.1)
                module.running_var.uniform_(0.5, 1.5)
        if name.startswith("fasterrcnn"):
            network.roi_heads.box_predictor.cls_score.weight.mul_(300)
        torch.onnx.export(network, ([torch.rand(3, 320, 320)],), path, dynamo=False, opset_version=17)
    return path.read_bytes()


def behind_backbone(model: bytes) -> tuple[bytes, dict[str, tuple[int, ...]]]:
    """What of an exported detector follows its backbone, and the shapes of the maps that it then takes."""
    import onnx

    proto = onnx.load_from_string(model)
    made = {name: node for node in proto.graph.node for name in node.output}
    cut, kept, todo = set(), set(), [o.name for o in proto.graph.output]
    while todo:
        node = made.get(name := todo.pop())
        if node is None or node.name in kept:
            continue
        if node.name.startswith("/backbone"):
            cut.add(name)
            continue
        kept.add(node.name)
        inner = [n for a in node.attribute if a.HasField("g") for n in a.g.node]
        todo += [*node.input, *(i for n in inner for i in n.input)]
    names = sorted(cut)
    proto.graph.output.extend(helper.make_tensor_value_info(n, F, None) for n in names)
    whole = session(proto.SerializeToString())
    maps = whole.run(names, {whole.get_inputs()[0].name: np.zeros((3, 320, 320), np.float32)})
    shapes = {n: a.shape for n, a in zip(names, maps)}
    del proto.graph.output[-len(names) :]
    nodes = [n for n in proto.graph.node if n.name in kept]
    read = {
        i
        for n in nodes
        for i in (*n.input, *(x for a in n.attribute if a.HasField("g") for m in a.g.node for x in m.input))
    }
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    given = [i for i in proto.graph.input if i.name in read]
    del proto.graph.input[:]
    proto.graph.input.extend([*given, *(helper.make_tensor_value_info(n, F, s) for n, s in shapes.items())])
    return proto.SerializeToString(), shapes | {i.name: (3, 320, 320) for i in given}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ssdlite320_mobilenet_v3_large", "fasterrcnn_mobilenet_v3_large_320_fpn"])
def test_detectors_of_torchvision_run_whole(name: str, tmp_path) -> None:
    """Outputs of true size, and, behind the backbone, within 1e-4 of ONNX Runtime's: on maps that are drawn, since those of an untrained backbone are
    nearly constant, and boxes change their order for a rounding."""
    model = exported(name, tmp_path / "net.onnx")
    executable, oracle = lightnet.compile(model), session(model)
    assert isinstance(executable, Executable)
    rng = np.random.default_rng(0)
    feeds = {oracle.get_inputs()[0].name: rng.random((3, 320, 320), dtype=np.float32)}
    assert [a.shape for a in executable(feeds).values()] == [a.shape for a in oracle.run(None, feeds)]
    heads, shapes = behind_backbone(model)
    executable, oracle = lightnet.compile(heads), session(heads)
    for scale in (0, 1, 3):
        feeds = {n: rng.standard_normal(dims).astype(np.float32) * scale for n, dims in shapes.items()}
        agree(executable(feeds), oracle.run(None, feeds), 1e-4)


# -- ops -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("dims", [(7,), (3, 4), (2, 1, 3), (2, 3, 1, 2), (1, 2, 2, 1, 3), (0, 3), (1,)])
def test_nonzero_of_every_rank_and_type(dtype: str, dims: tuple[int, ...]) -> None:
    x = np.random.default_rng(len(dims)).integers(0, 2, dims).astype(dtype)
    model = model_of(
        [("NonZero", ["x"], ["y"], {})], [("x", helper.np_dtype_to_tensor_dtype(x.dtype), dims)], [("y", I)]
    )
    executable = lightnet.compile(model, target="none")
    for array in (x, np.zeros_like(x), np.ones_like(x)):
        np.testing.assert_array_equal(executable({"x": array})["y"], np.stack(np.nonzero(array)))


def test_nonzero_of_a_scalar_has_no_rows() -> None:
    executable = lightnet.compile(model_of([("NonZero", ["x"], ["y"], {})], [("x", F, ())], [("y", I)]), target="none")
    assert executable({"x": np.float32(0)})["y"].shape == (0, 0)
    assert executable({"x": np.float32(2)})["y"].shape == (0, 1)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("order", [0, 1])
def test_unique_gives_all_four_outputs(axis: int | None, order: int) -> None:
    attributes = {"sorted": order, **({} if axis is None else {"axis": axis})}
    names = ["y", "first", "inverse", "counts"]
    model = model_of(
        [("Unique", ["x"], names, attributes)], [("x", F, (4, 6))], [("y", F), *((n, I) for n in names[1:])]
    )
    executable, oracle = lightnet.compile(model, target="none"), session(model)
    for seed in range(3):
        x = np.random.default_rng(seed).integers(0, 2 + seed, (4, 6)).astype(np.float32)
        agree(executable({"x": x}), oracle.run(None, {"x": x}))


def test_unique_counts_what_is_no_number_once() -> None:
    model = model_of([("Unique", ["x"], ["y", "", "", "counts"], {})], [("x", F, (6,))], [("y", F), ("counts", I)])
    found = lightnet.compile(model)({"x": np.array([np.nan, 0, -0.0, np.nan, 1, np.inf], np.float32)})
    np.testing.assert_array_equal(found["y"], np.array([0, 1, np.inf, np.nan], np.float32))
    np.testing.assert_array_equal(found["counts"], [2, 1, 1, 2])


@pytest.mark.parametrize("axis, length", [(None, 12), (0, 3), (1, 4), (1, 2), (0, 5)])
def test_compress_takes_a_condition_of_another_length(axis: int | None, length: int) -> None:
    attributes = {} if axis is None else {"axis": axis}
    model = model_of([("Compress", ["x", "c"], ["y"], attributes)], [("x", F, (3, 4)), ("c", B, (length,))], [("y", F)])
    executable = lightnet.compile(model, target="none")
    x, rng = np.arange(12, dtype=np.float32).reshape(3, 4), np.random.default_rng(0)
    for _ in range(3):
        c = rng.integers(0, 2, length).astype(bool)
        c[3 if axis == 0 else 4 if axis == 1 else 12 :] = False
        want = np.compress(c, x, axis)
        np.testing.assert_array_equal(executable({"x": x, "c": c})["y"], want)


def nms_model(batch, classes, count, most=None, centred=0, limits=("overlap", "least")) -> bytes:
    scalars = [("most", I, (1,)), *((n, F, (1,)) for n in limits)]
    inputs = [("boxes", F, (batch, count, 4)), ("scores", F, (batch, classes, count)), *scalars]
    constants = {}
    if most is not None:
        constants, inputs = {"most": np.array([most], np.int64)}, [i for i in inputs if i[0] != "most"]
    nodes = [("NonMaxSuppression", ["boxes", "scores", "most", *limits], ["y"], {"center_point_box": centred})]
    return model_of(nodes, inputs, [("y", I)], constants)


@pytest.mark.parametrize("most", [None, 0, 3, 1 << 50])
@pytest.mark.parametrize("centred", [0, 1])
def test_suppression_agrees_with_onnx_runtime(most: int | None, centred: int) -> None:
    """Ties of scores, boxes with swapped corners, boxes without an area, thresholds at run time."""
    model = nms_model(2, 3, 25, most, centred)
    executable, oracle, rng = lightnet.compile(model, target="none"), session(model), np.random.default_rng(centred)
    for k in range(6):
        boxes = np.round(rng.random((2, 25, 4)), 1 if k % 2 else 5).astype(np.float32)
        feeds = {"boxes": boxes, "scores": np.round(rng.random((2, 3, 25)), k % 3 + 1).astype(np.float32)}
        feeds |= {
            "overlap": np.array([0.2 * k / 2], np.float32),
            "least": np.array([(-1, 0.5, 0.9)[k % 3]], np.float32),
        }
        if most is None:
            feeds["most"] = np.array([(0, 2, 100)[k % 3]], np.int64)
        agree(executable(feeds), oracle.run(None, feeds))


def test_a_mask_of_a_mask_of_a_mask() -> None:
    """Chains of boolean indexing, of one tensor by flags of another that were picked alike: equal sizes are one size."""
    nodes = [
        ("Greater", ["x", "zero"], ["m"], {}), ("NonZero", ["m"], ["i"], {}), ("NonZero", ["m"], ["j"], {}),
        ("Transpose", ["i"], ["it"], {}), ("Transpose", ["j"], ["jt"], {}), ("GatherND", ["x", "it"], ["a"], {}), ("GatherND", ["z", "jt"], ["b"], {}),
        ("Add", ["a", "b"], ["c"], {}), ("Less", ["c", "one"], ["n"], {}), ("Compress", ["c", "n"], ["d"], {"axis": 0}),
        ("ReduceSum", ["d"], ["total"], {"keepdims": 0}), ("Shape", ["d"], ["size"], {}),
    ]  # fmt: skip
    model = model_of(nodes, [("x", F, (3, 5)), ("z", F, (3, 5))], [("d", F), ("total", F), ("size", I)],
                     {"zero": np.float32(0), "one": np.float32(1)})  # fmt: skip
    executable = lightnet.compile(model)
    x, z = np.random.default_rng(0).standard_normal((2, 3, 5)).astype(np.float32)
    for sign in (1, -1, 0):
        c = (sign * x + z)[sign * x > 0]
        found = executable({"x": sign * x, "z": z})
        np.testing.assert_allclose(found["d"], c[c < 1], rtol=1e-6)
        np.testing.assert_allclose(found["total"], c[c < 1].sum(), rtol=1e-4, atol=1e-5)
        assert found["size"].tolist() == [len(c[c < 1])]


def test_a_branch_that_the_data_decides() -> None:
    """No boxes: one branch gives an empty constant, as torchvision exports it."""
    then = helper.make_graph([helper.make_node("Constant", [], ["e"], value=numpy_helper.from_array(np.zeros(0, np.float32)))], "t", [],
                             [helper.make_tensor_value_info("e", F, None)])  # fmt: skip
    other = helper.make_graph(
        [helper.make_node("Mul", ["a", "a"], ["q"])], "o", [], [helper.make_tensor_value_info("q", F, None)]
    )
    nodes = [
        ("NonZero", ["x"], ["i"], {}), ("Squeeze", ["i", "c0"], ["k"], {}), ("Gather", ["x", "k"], ["a"], {}), ("Shape", ["a"], ["s"], {}),
        ("ReduceProd", ["s"], ["n"], {"keepdims": 0}), ("Equal", ["n", "zero"], ["none"], {}),
        ("If", ["none"], ["y"], {"then_branch": then, "else_branch": other}),
    ]  # fmt: skip
    model = model_of(nodes, [("x", F, (5,))], [("y", F)], {"c0": np.array([0]), "zero": np.int64(0)})
    executable = lightnet.compile(model, target="none")
    for x in (np.zeros(5, np.float32), np.array([1, 0, 2, 0, 3], np.float32)):
        np.testing.assert_array_equal(executable({"x": x})["y"], x[x != 0] ** 2)


# -- errors ----------------------------------------------------------------------------------------------------------


def test_an_op_that_cannot_take_a_size_says_so() -> None:
    """The op and the dim are named. (An input of more than 4,096 elements: of a smaller one, calls specialise.)"""
    nodes = [("NonZero", ["x"], ["i"], {}), ("Cast", ["i"], ["f"], {"to": F}), ("Unsqueeze", ["f", "c0"], ["u"], {}),
             ("MaxPool", ["u"], ["y"], {"kernel_shape": [3]})]  # fmt: skip
    model = model_of(nodes, [("x", F, (5000,))], [("y", F)], {"c0": np.array([0])})
    with pytest.raises(LightNetError) as e:
        lightnet.compile(model)
    said = str(e.value)
    assert "MaxPool" in said and "'number of elements that are not zero'(0..5000)" in said


@pytest.mark.parametrize(
    "counts, message",
    [
        ("[[0 : i64, 0 : i64, 7 : i64]]", "names an output that is not there"),
        ("[[0 : i64, 3 : i64, 1 : i64]]", "has no axis 3"),
        ("[[1 : i64, 0 : i64, 0 : i64]]", "has no axis 0"),
        ("[[0 : i64, 0 : i64, 0 : i64]]", "which should be tensor<i64>"),
        ("[[0 : i64, 0 : i64]]", "expected three integers"),
        ("[[0 : i64, 0 : i64, 1 : i64], [0 : i64, 0 : i64, 1 : i64]]", "an axis has two counts"),
    ],
)
def test_counts_that_do_not_fit_are_refused(counts: str, message: str) -> None:
    text = f"""func.func @main() -> (tensor<4xf32>, tensor<i64>) {{
      %x = ln.input : tensor<4xf32> as "x"("x")
      %n = ln.input : tensor<i64> as "n"("n")
      func.return {{ln.counts = {counts}}} %x, %n : tensor<4xf32>, tensor<i64>
    }}"""
    ctx = make_context()
    with pytest.raises(LightNetError, match=message):
        verify_module(parse_mlir(ctx, text, "text"), ctx)


# -- sizes -----------------------------------------------------------------------------------------------------------


def test_sizes_are_polynomials_with_bounds() -> None:
    n, m = (of_symbol(SizeSymbol(name, 0, high, emit=lambda: None)) for name, high in (("n", 5), ("m", 3)))
    assert (n + n).over(2) == n and (n * m).over(n) == m and (2 * n * m).over(2 * m) == n
    assert n - n == 0 and (n + 1) - n == 1 and n * 0 == 0
    assert (2 * n + m - 1).high == 12 and (n - m).low == -3
    assert n < 6 and n >= 0 and not n > 5
    assert n <= 5 and not n <= -1 and n >= 0 and not n >= 6 and n > -1 and not n < 0
    assert n < n + 1 and n <= n and n >= n and not n < n and not n > n and not n + 1 <= n
    assert (
        -n == n * -1
        and (-n).low == -5
        and 7 - n == -(n - 7)
        and (7 - n).low == 2
        and str(2 * n + m - 1) == "2*n(0..5) + m(0..3) - 1"
    )
    assert (
        n.over(n) == 1
        and n.over(0) is None
        and n.over(2) is None
        and n.over(m) is None
        and n.over(n + m) is None
        and (3 * n).over(n) == 3
    )
    assert (n * n * m).over(n) == n * m and (2 * n) // 2 == n and (2 * n) % 2 == 0 and (n + m).over(n + m) == 1
    for operator in ("__add__", "__sub__", "__rsub__", "__mul__"):
        assert getattr(n, operator)("a") is NotImplemented and getattr(n, operator)(True) is NotImplemented
    assert n != m and n + m == m + n and hash(n + m) == hash(m + n)
    for needs_a_number in (
        lambda: range(n),
        lambda: int(n),
        lambda: n / 2,
        lambda: n > 2,
        lambda: n > 0,
        lambda: n < 5,
        lambda: n <= 4,
        lambda: n >= 1,
        lambda: bool(n),
        lambda: [0] * n,
    ):
        with pytest.raises(Undecided):
            needs_a_number()


def test_sizes_agree_with_numbers() -> None:
    """Sums, products and quotients of polynomials, at every value of their symbols."""
    rng = np.random.default_rng(0)
    symbols = [SizeSymbol(f"s{k}", 0, 3, emit=lambda: None) for k in range(2)]

    def value(x, at):
        return x if not isinstance(x, Dim) else sum(c * int(np.prod([at[s] for s in t])) for t, c in x.terms.items())

    for _ in range(60):
        a, b = (
            sum((int(rng.integers(-2, 3)) * of_symbol(s) for s in symbols), int(rng.integers(-2, 3))) for _ in range(2)
        )
        for i in range(4):
            for j in range(4):
                at = dict(zip(symbols, (i, j)))
                assert value(a + b, at) == value(a, at) + value(b, at) and value(a * b, at) == value(a, at) * value(
                    b, at
                )
                if isinstance(a, Dim):
                    assert a.low <= value(a, at) <= a.high
                    product = a * 3
                    assert value(product.over(3), at) == value(a, at)


def test_outputs_that_are_dropped_take_their_counts_with_them() -> None:
    from lightnet_trust.edits import drop_outputs, outputs

    module = lightnet.loads(detector("yolo_offset"), ".onnx").module
    drop_outputs(module, [outputs(module)[1]])
    main_of(module).update_function_type()
    verify_module(module)
    assert counts_of(main_of(module).body.block.last_op) == [(0, 0, 2), (1, 0, 2)]
    drop_outputs(module, [outputs(module)[2]])
    main_of(module).update_function_type()
    verify_module(module)
    assert not counts_of(main_of(module).body.block.last_op)


@pytest.mark.parametrize("lie", [None, 3, [["y", 0]], [["y", "0", "n"]], [["nobody", 0, "n"]], [["y", 0, "nobody"]], [["y", 0, 7]],
                                 [["y", 9, "n"]], [["y", -1, "n"]], [["y", 0, "y"]]])  # fmt: skip
def test_a_saved_executable_may_not_lie_about_counts(lie) -> None:
    """What it says of them is checked when it is loaded, by name, axis and type; what is true is taken."""
    executable = lightnet.compile(model_of([("NonZero", ["x"], ["y"], {})], [("x", F, (6,))], [("y", I)]))
    header = executable.program.header()
    (true,) = header["counts"]
    lnx_check.check_program(header)
    Program.from_header(header, ())
    names = {"y": true[0], "n": true[2]}
    if isinstance(lie, list):
        lie = [[names.get(v, v) if isinstance(v, str) else v for v in row] for row in lie]
    with pytest.raises(ValueError):
        lnx_check.check_program({**header, "counts": lie})
        Program.from_header({**header, "counts": lie}, ())


def test_upstream_plans_do_not_give_what_they_have_lost_the_count_of() -> None:
    """By upstream's rules what nobody reads is overwritten: an output whose count is gone is not returned, rather than at its bound."""
    h = helper
    constants = {
        "boxes": np.array([[[0, 0, 1, 1]]], np.float32),
        "most": np.array([1], np.int64),
        "iou": np.array([0.5], np.float32),
    }
    nodes = [
        h.make_node("NonMaxSuppression", ["boxes", "scores", "most", "iou"], ["y"]),
        h.make_node("Neg", ["scores"], ["w"]),
    ]
    graph = h.make_graph(
        nodes, "g", [h.make_tensor_value_info("scores", 1, [1, 1, 1])],
        [h.make_empty_tensor_value_info("y"), h.make_tensor_value_info("w", 1, [1, 1, 1])],
        [numpy_helper.from_array(a, name) for name, a in constants.items()],
    )  # fmt: skip
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
    run = lightnet.compile(model.SerializeToString(), plan="upstream")
    ((name, _, count),) = run.program.counts
    lost = {name for name, _ in run.program.overwritten}
    assert count in lost, "the case is about a count that is lost"
    assert name in lost and list(run({"scores": np.ones((1, 1, 1), np.float32)})) == ["w"]
