"""`check_indices`: an index outside of its axis is an error that names the op, the place and the value; negative ones count from the end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lightnet
from lightnet.cli.lightnet import main
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.dialect import built_in_optypes

NETWORK = """
func.func @main(%x: tensor<5x4xf32>, %i: tensor<2x3xi64>, %u: tensor<2x4xf32>, %at: tensor<2x2xi32>, %v: tensor<2xf32>) -> ({types}) {{
{body}
}}
"""
OPS = {
    "take": ("%y = ln.take %x, %i {axis = 0} : tensor<2x3x4xf32>", "2x3x4", "i", 5),
    "take_along": ("%y = ln.take_along %x, %i {axis = 1} : tensor<2x3xf32>", "2x3", "i", 4),
    "gather_nd": ("%y = ln.gather_nd %x, %at : tensor<2xf32>", "2", "at", (5, 4)),
    "scatter_elements": ("%w = ln.slice %x {axis = 0, start = 0, len = 2} : tensor<2x4xf32>\n"
                         "%z = ln.slice %u {axis = 1, start = 0, len = 3} : tensor<2x3xf32>\n"
                         "%y = ln.scatter_elements %w, %i, %z {axis = 1} : tensor<2x4xf32>", "2x4", "i", 4),
    "scatter_nd": ("%y = ln.scatter_nd %x, %at, %v : tensor<5x4xf32>", "5x4", "at", (5, 4)),
}  # fmt: skip


def feeds() -> dict[str, np.ndarray]:
    return {"x": np.arange(20, dtype=np.float32).reshape(5, 4), "i": np.zeros((2, 3), np.int64), "u": np.ones((2, 4), np.float32),
            "at": np.zeros((2, 2), np.int32), "v": np.ones(2, np.float32)}  # fmt: skip


def network(op: str) -> lightnet.Model:
    body, dims, _, _ = OPS[op]
    text = NETWORK.format(types=f"tensor<{dims}xf32>", body=f"{body}\nfunc.return %y : tensor<{dims}xf32>")
    return lightnet.loads(text, ".mlir")


def test_every_op_with_indices_has_a_case() -> None:
    """An op that takes an operand called `index` says how large its elements may be."""
    made = {"interpolate"}  # its table of indices is made with the op, never fed; known where upstream's ops are loaded
    regions = {"roi_align"}  # whose `batch` are indices
    assert set(OPS) | regions == {n for n, c in built_in_optypes().items() if hasattr(c, "index_limits")}
    assert (
        set(OPS)
        == {n for n, c in built_in_optypes().items() if any(o.name == "index" for o in c.schema.operands)} - made
    )


@pytest.mark.parametrize("target", ["cpu", "none"])
@pytest.mark.parametrize(
    "op",
    ["take", "gather_nd", *(pytest.param(o, marks=pytest.mark.slow) for o in OPS if o not in ("take", "gather_nd"))],
)
def test_an_index_outside_is_named(op: str, target: str) -> None:
    _, _, name, limits = OPS[op]
    run, plain = (lightnet.compile(network(op), target, check_indices=c) for c in (True, False))
    assert list(run.outputs) == list(plain.outputs)
    fed = feeds()
    used = {k: v for k, v in fed.items() if k in run.inputs}
    (output,) = plain(used)
    np.testing.assert_array_equal(run(used)[output], plain(used)[output])
    last = limits if isinstance(limits, tuple) else (limits,) * 3
    for place, value in (((1, 1), last[1]), ((1, 0), last[0]), ((0, 1), -last[1] - 1), ((0, 0), 1 << 30)):
        wrong = {**used, name: fed[name].copy()}
        wrong[name][place] = value
        with pytest.raises(LightNetError) as caught:
            run(wrong)
        assert op in str(caught.value) and f"its index {value}, at {list(place)}, is outside of an axis of" in str(
            caught.value
        )
        plain(wrong)  # clamped
    right = {**used, name: fed[name].copy()}
    right[name][1, :2] = -last[0], last[1] - 1
    np.testing.assert_array_equal(run(right)[output], plain(right)[output])


def test_in_a_saved_executable_and_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path, saved = tmp_path / "net.mlir", tmp_path / "net.lnx"
    path.write_text(str(network("take").module))
    assert main(["compile", str(path), "-o", str(saved), "--check-indices"]) == 0
    run = lightnet.load_executable(str(saved))
    fed = {k: v for k, v in feeds().items() if k in run.inputs}
    assert len(run.outputs) == 1 and len(run(fed)) == 1
    fed["i"][1, 2] = 7
    with pytest.raises(
        LightNetError, match=r"its index 7, at \[1, 2\], is outside of an axis of 5 elements \(-5 to 4\)"
    ):
        run(fed)
    np.savez(tmp_path / "in.npz", **fed)
    given = [x for name in fed for x in ("-i", f"{name}=@{tmp_path / 'in.npz'}:{name}")]
    capsys.readouterr()
    assert main(["run", str(path), *given, "--check-indices"]) == 1
    assert "its index 7, at [1, 2], is outside of an axis of 5 elements" in capsys.readouterr().err
    assert main(["run", str(path), *given]) == 0


def test_where_shapes_are_open() -> None:
    onnx = pytest.importorskip("onnx")
    h = onnx.helper
    node = h.make_node("Gather", ["table", "ids"], ["y"], name="embedding")
    infos = [h.make_tensor_value_info("ids", 7, ["n"])]
    table = onnx.numpy_helper.from_array(np.eye(6, dtype=np.float32), "table")
    graph = h.make_graph([node], "g", infos, [h.make_empty_tensor_value_info("y")], [table])
    source = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8).SerializeToString()
    run = lightnet.compile(source, check_indices=True)
    np.testing.assert_array_equal(run({"ids": np.array([5, -6])})["y"], np.eye(6)[[5, 0]])
    with pytest.raises(LightNetError, match="take 'embedding': its index 6"):
        run({"ids": np.array([5, 6, 7])})


def test_dims_of_one_name_have_one_size() -> None:
    onnx = pytest.importorskip("onnx")
    h = onnx.helper
    node = h.make_node("ReduceSum", ["ids"], ["y"], keepdims=0)
    infos = [h.make_tensor_value_info(n, 1, ["batch", "s"]) for n in ("ids", "mask")]
    graph = h.make_graph([node], "g", infos, [h.make_empty_tensor_value_info("y")])
    source = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8).SerializeToString()
    run = lightnet.compile(source)
    assert run({"ids": np.ones((1, 9)), "mask": np.ones((1, 9))})["y"] == 9
    message = (
        "calls axis 1 of 'ids' and axis 1 of 'mask' 's', so that they are of one size, but they have 9 and 8 elements"
    )
    with pytest.raises(LightNetError, match=message):
        run({"ids": np.ones((1, 9)), "mask": np.ones((1, 8))})
    with pytest.raises(LightNetError, match=message):
        lightnet.loads(source, ".onnx", shapes={"ids": (2, 9), "mask": (2, 8)})


def test_a_picture_that_there_is_not() -> None:
    text = """func.func @main(%x: tensor<2x1x8x8xf32>, %r: tensor<2x4xf32>, %b: tensor<2xi64>) -> tensor<2x1x2x2xf32> {
        %y = ln.roi_align %x, %r, %b {height = 2, width = 2} : tensor<2x1x2x2xf32>
        func.return %y : tensor<2x1x2x2xf32>
    }"""
    run = lightnet.compile(lightnet.loads(text, ".mlir"), check_indices=True)
    fed = {"x": np.ones((2, 1, 8, 8), "f"), "r": np.array([[0, 0, 4, 4]] * 2, "f"), "b": np.array([0, 1])}
    assert next(iter(run(fed).values())).min() > 0
    with pytest.raises(LightNetError, match=r"its index 2, at \[1\], is outside of an axis of 2 elements"):
        run({**fed, "b": np.array([0, 2])})


@pytest.mark.parametrize(
    ("dims", "shape", "where"),
    [
        ("n(1..9)", (3,), r"at \[2\]"), ("n(1..9), 2", (3, 2), r"at \[2, 1\]"), ("'a x:b'(1..9)", (3,), r"at \[2\]"),
        ("n(1..9), m(1..9)", (3, 2), "element 5 in row-major order"),
    ],
)  # fmt: skip
def test_the_place_of_an_index_where_calls_decide_shapes(
    dims: str, shape: tuple[int, ...], where: str, tmp_path
) -> None:
    """Also in a saved file. Where an inner dim is open, what is known is the number of the element."""
    onnx = pytest.importorskip("onnx")
    helper, kinds = onnx.helper, onnx.TensorProto
    names = {3: "a x:b" if "a x:b" in dims else "n", 2: "m" if "m(" in dims else 2}
    graph = helper.make_graph(
        [helper.make_node("Gather", ["w", "i"], ["y"], "pick")], "g",
        [helper.make_tensor_value_info("i", kinds.INT64, [names[d] for d in shape])], [helper.make_tensor_value_info("y", kinds.FLOAT, None)],
        [onnx.numpy_helper.from_array(np.arange(14, dtype=np.float32).reshape(7, 2), "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    run = lightnet.compile(lightnet.loads(model, ".onnx"), check_indices=True)
    run.save(tmp_path / "i.lnx")
    index = np.zeros(shape, np.int64)
    for found in (run, lightnet.load_executable(tmp_path / "i.lnx")):
        assert found(index)["y"].shape == (*shape, 2)
        with pytest.raises(LightNetError, match=f"its index 7, {where}, is outside of an axis of 7 elements"):
            index_wrong = index.copy()
            index_wrong[(-1,) * len(shape)] = 7
            found(index_wrong)
