"""Weights that several ops use stand once: one initializer, several of equal bytes, one and its transpose; packed by one op and gathered from by others.
The oracle is ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lightnet
from lightnet.diagnostics import LightNetError

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

#: Rows and columns of the table, more than `tying.LEAST` bytes; a gather of `IDS` is cheap beside a product.
TABLE, IDS = (700, 64), 8
#: What a network does with its table W [V, D]: nodes of ``x`` [IDS, D] or ``ids`` that give ``y{i}``.
USES = {
    "gather": lambda w, t, y: [("Gather", [w, "ids"], [y], {"axis": 0})],
    "columns": lambda w, t, y: [("Gather", [t, "ids"], [y], {"axis": 1})],
    "project": lambda w, t, y: [("MatMul", ["x", t], [y], {})],
    "gemm": lambda w, t, y: [("Gemm", ["x", w], [y], {"transB": 1})],
    "product": lambda w, t, y: [("MatMul", ["z", w], [y], {})],
}


def built(uses: list[str], forms: list[str]) -> tuple[bytes, dict[str, np.ndarray], int]:
    """A network with an op of each of `uses`, whose tables come in the `forms`: the initializer ``same``, a ``copy`` of it, with ``turned`` contents or by
    a Transpose (``op``); or are ``another`` table of the size. Its file, what to feed, and the bytes of one table."""
    random = np.random.default_rng(len(uses))
    table = random.standard_normal(TABLE, np.float32)
    weights, nodes = [onnx.numpy_helper.from_array(table, "w")], []
    for i, (use, form) in enumerate(zip(uses, forms)):
        w, t = f"w{i}" if form in ("copy", "another") else "w", f"t{i}"
        if w != "w":
            weights.append(onnx.numpy_helper.from_array(table if form == "copy" else table[::-1].copy(), w))
        made = USES[use](w, t, f"y{i}")
        if any(t in inputs for _, inputs, _, _ in made):
            if form == "turned":
                weights.append(onnx.numpy_helper.from_array(np.ascontiguousarray(table.T), t))
            else:
                made.insert(0, ("Transpose", [w], [t], {"perm": [1, 0]}))
        nodes += [onnx.helper.make_node(op, inputs, outputs, **a) for op, inputs, outputs, a in made]
    feeds = {
        "ids": random.integers(0, 64, IDS),
        "x": random.standard_normal((IDS, TABLE[1]), np.float32),
        "z": random.standard_normal((IDS, TABLE[0]), np.float32),
    }
    info = onnx.helper.make_tensor_value_info
    inputs = [
        info("ids", onnx.TensorProto.INT64, [IDS]),
        *(info(n, onnx.TensorProto.FLOAT, feeds[n].shape) for n in "xz"),
    ]
    outputs = [info(f"y{i}", onnx.TensorProto.FLOAT, None) for i in range(len(uses))]
    graph = onnx.helper.make_graph(nodes, "g", inputs, outputs, weights)
    model = onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)])
    return model.SerializeToString(), feeds, table.nbytes


def checked(uses: list[str], forms: list[str], **options) -> tuple[lightnet.compiler.Executable, int]:
    """The network, compiled, and the bytes of one table; it gives what ONNX Runtime does, and so does the interpreter on its plan."""
    model, feeds, size = built(uses, forms)
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    wanted = session.run(None, {i.name: feeds[i.name] for i in session.get_inputs()})
    executable = lightnet.compile(model, threads=1, **options)
    fed = {i.name: feeds[i.name] for i in session.get_inputs()}
    found, planned = executable(fed), executable.interpreted(fed)
    for i, array in enumerate(wanted):
        np.testing.assert_allclose(found[f"y{i}"], array, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(planned[f"y{i}"], array, rtol=1e-4, atol=1e-4)
    return executable, size


@pytest.mark.parametrize("form", ["same", "copy", "turned"])
@pytest.mark.parametrize(
    "uses", [["gather", "project"], ["columns", "project"], ["gather", "columns", "gemm"]], ids="-".join
)
def test_an_embedding_that_is_the_projection_stands_once(uses: list[str], form: str, tmp_path: Path) -> None:
    executable, size = checked(uses, ["same"] + [form] * (len(uses) - 1))
    assert executable.program.memory["static"] < 1.1 * size
    executable.save(tmp_path / "net.lnx")
    assert (tmp_path / "net.lnx").stat().st_size < 1.1 * size + (64 << 10), "and once in the file"


@pytest.mark.parametrize("uses", [["columns", "project"], ["gather", "project"], ["columns", "gemm"]], ids="-".join)
def test_another_table_of_the_size_is_not_taken_for_it(uses: list[str]) -> None:
    executable, size = checked(uses, ["another", "op"])
    assert 1.9 * size < executable.program.memory["static"] < 2.2 * size


def test_what_is_packed_in_two_ways_stands_twice_and_no_more() -> None:
    """A product by the table and one by its transpose read panels along different axes."""
    executable, size = checked(["gather", "project", "product"], ["same", "copy", "copy"])
    assert 1.9 * size < executable.program.memory["static"] < 2.2 * size


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_tables_used_at_random(seed: int) -> None:
    random = np.random.default_rng(seed)
    count = int(random.integers(2, 5))
    uses, forms = (
        [str(random.choice(c)) for _ in range(count)] for c in (sorted(USES), ["same", "copy", "turned", "op"])
    )
    options = {} if seed % 3 else {"layout": "plain"}
    executable, size = checked(uses, forms, **options)
    assert executable.program.memory["static"] < (2.2 if not options else 3.2) * size


def test_a_gather_of_many_rows_keeps_its_plain_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would read a line of memory for each element."""
    monkeypatch.setattr("test_tied.IDS", 600)
    monkeypatch.setattr("lightnet.passes.tied.ROWS", 1 << 20)  # however many rows the product has
    executable, size = checked(["gather", "project"], ["same", "same"])
    assert executable.program.memory["static"] > 1.9 * size


def test_tied_params_are_fed_alike() -> None:
    model, feeds, _ = built(["product", "product"], ["same", "copy"])
    executable = lightnet.compile(model, threads=1)
    other = np.ones(TABLE, np.float32)
    both = executable({**feeds, "w": other, "w1": other})
    for name in ("y0", "y1"):
        np.testing.assert_allclose(both[name], feeds["z"] @ other, rtol=1e-4, atol=1e-3)
    for wrong in ({"w": other}, {"w1": other}, {"w": other, "w1": 2 * other}):
        with pytest.raises(LightNetError, match="the params w, w1 held the same contents") as error:
            executable({**feeds, **wrong})
        assert error.value.label == "feed.tied"
    assert not executable.warnings


def test_params_that_differ_in_one_element_are_two() -> None:
    model = onnx.load_from_string(built(["product", "product"], ["same", "copy"])[0])
    for weight in model.graph.initializer:
        if weight.name == "w1":
            table = onnx.numpy_helper.to_array(weight).copy()
            table[350, 20] += 1
            weight.CopyFrom(onnx.numpy_helper.from_array(table, "w1"))
    executable = lightnet.compile(model.SerializeToString(), threads=1)
    assert executable.program.memory["static"] > 1.9 * table.nbytes


def test_convolutions_that_share_weights_share_them_packed() -> None:
    """On pictures of two sizes, where each alone might choose another algorithm."""
    random = np.random.default_rng(0)
    weights = [onnx.numpy_helper.from_array(random.standard_normal((64, 64, 3, 3), np.float32) / 24, "w")]
    nodes = [onnx.helper.make_node("Conv", [x, "w"], [y], pads=[1] * 4) for x, y in (("x", "a"), ("b", "y"))]
    nodes.insert(1, onnx.helper.make_node("MaxPool", ["a"], ["b"], kernel_shape=[8, 8], strides=[8, 8]))
    ends = [
        onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, d)
        for n, d in (("x", (1, 64, 56, 56)), ("y", None))
    ]
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    model = onnx.helper.make_model(
        graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)]
    ).SerializeToString()
    x = random.standard_normal((1, 64, 56, 56), np.float32)
    (wanted,) = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    executable = lightnet.compile(model, threads=1)
    np.testing.assert_allclose(executable({"x": x})["y"], wanted, atol=1e-4)
    assert executable.program.memory["static"] < 1.4 * 64 * 64 * 9 * 4
