"""Constants, params and inputs: where a network says that nobody can feed a tensor, who may read what it holds, and that it stays so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import lightnet
from lightnet.cli.lightnet import main
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.source import ConstantOp, ParamOp, known
from lightnet.frontends import json_ir, mlir
from lightnet.frontends.importer import to_module
from lightnet.ir.module import main_of
from lightnet.ir.passes import parse_pipeline
from lightnet.passes.pipelines import expanded
from lightnet.plugins import load
from lightnet_export.netlist import from_module
from lightnet_trust.check import CheckOptions, run_checked

EXAMPLES = Path(__file__).parents[2] / "examples" / "constants"
X = np.linspace(-3, 3, 192, dtype=np.float32).reshape(1, 3, 8, 8)


def onnx_model(nodes, initializers=(), ir_version=8, inputs=()) -> onnx.ModelProto:
    """A model of x and `inputs` (names of initializers that a caller may feed) whose output is y."""
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in initializers]
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)]
    infos += [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in tensors if t.name in inputs]
    graph = helper.make_graph(nodes, "g", infos, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=ir_version)


def sources(model: lightnet.Model) -> dict[str, str]:
    """The kind of each source that is no input, by name."""
    ops = (op for op in main_of(model.module).walk() if isinstance(op, ParamOp))
    return {op.tensor_names[0]: op.optype for op in ops}


def doubled(ir_version=8, inputs=()) -> onnx.ModelProto:
    mul = helper.make_node("Mul", ["two", "x"], ["y"])
    return onnx_model([mul], [("two", np.float32([2]))], ir_version, inputs)


@pytest.mark.parametrize(
    "nodes, initializers, ir_version, inputs, expected",
    [
        ([helper.make_node("Mul", ["x", "c"], ["y"])], [("c", np.float32(2))], 8, (), "constant"),
        ([helper.make_node("Mul", ["x", "c"], ["y"])], [("c", np.float32(2))], 8, ("c",), "param"),
        ([helper.make_node("Mul", ["x", "c"], ["y"])], [("c", np.float32(2))], 3, ("c",), "param"),
        ([helper.make_node("Mul", ["x", "c"], ["y"])], [("c", np.float32(2))], 3, (), "param"),
        ([helper.make_node("Mul", ["x", "c"], ["y"])], [("c", np.ones((2, 1, 1, 8), np.float32))], 8, (), "constant"),
        ([helper.make_node("Mul", ["x", "c"], ["y"])], [("c", np.ones((3, 1, 8), np.float32))], 8, (), "param"),
        ([helper.make_node("Mul", ["x", "c"], ["y"])], [("c", np.float32([-0.0]))], 8, (), "param"),
        ([helper.make_node("Constant", [], ["c"], value_float=2.0), helper.make_node("Mul", ["x", "c"], ["y"])],
         [], 3, (), "constant"),
    ],
    ids=["initializer", "default of an input", "IR 3", "IR 3, no input", "16", "24", "-0", "Constant"],
)  # fmt: skip
def test_what_onnx_calls_constant(nodes, initializers, ir_version, inputs, expected) -> None:
    """Constant nodes, and initializers of IR version 4 on that are no graph inputs, where they are small and doubles say them."""
    model = lightnet.loads(onnx_model(nodes, initializers, ir_version, inputs).SerializeToString(), ".onnx")
    assert sources(model) == {"c": expected}


def test_weights_stay_params_however_small() -> None:
    """A bias of three numbers is what a network was trained to; an epsilon beside it is a constant."""
    conv = helper.make_node("Conv", ["x", "w", "b"], ["c"])
    add = helper.make_node("Add", ["c", "e"], ["y"])
    weights = [("w", np.ones((3, 3, 1, 1), np.float32)), ("b", np.float32([1, 2, 3])), ("e", np.float32(1e-5))]
    model = lightnet.loads(onnx_model([conv, add], weights).SerializeToString(), ".onnx")
    assert sources(model) == {"w": "param", "b": "param", "e": "constant"}
    run = lightnet.compile(model)
    fed = {"x": X, "b": np.float32([4, 5, 6])}
    np.testing.assert_allclose(run(fed)["y"] - run({"x": X})["y"], np.full((1, 3, 8, 8), 3), rtol=1e-5)


def test_feeding_a_constant_is_an_error_that_says_so(tmp_path: Path) -> None:
    """Also of a saved executable, where it is no param; a param of the same name can be fed."""
    model = lightnet.loads(doubled().SerializeToString(), ".onnx")
    run = lightnet.compile(model)
    with pytest.raises(LightNetError, match="tensor 'two' cannot be fed: it is a constant of the network; what can be"):
        run({"x": X, "two": np.float32([3])})
    run.save(tmp_path / "net.lnx")
    with pytest.raises(LightNetError, match="two"), lightnet.load_executable(tmp_path / "net.lnx") as saved:
        assert "two" not in saved.params
        saved({"x": X, "two": np.float32([3])})
    fed = lightnet.compile(lightnet.loads(doubled(inputs=("two",)).SerializeToString(), ".onnx"))
    np.testing.assert_array_equal(fed({"x": X, "two": np.float32([3])})["y"], 3 * X)


@pytest.mark.parametrize("form", ["double.py", "double.json", "double.mlir"])
def test_one_rule_in_three_forms(form: str) -> None:
    """x * 2 = x + x applies to an ONNX model, as Python, description and PDL, is right exactly, and gives what ONNX Runtime does; a
    2 that anybody may feed stays."""
    proto = doubled().SerializeToString()
    model = lightnet.loads(proto, ".onnx")
    with load(EXAMPLES / form):
        verdict = run_checked(model.ctx, model.module, parse_pipeline("bind,simplify"), CheckOptions(in_field=True))
        assert verdict.ok, verdict.error.render()
        optypes = [op.name for op in main_of(model.module).body.block.ops]
        assert optypes == ["ln.input", "ln.add", "func.return"]
        fed = lightnet.loads(doubled(inputs=("two",)).SerializeToString(), ".onnx")
        assert run_checked(fed.ctx, fed.module, parse_pipeline("bind,simplify")).ok
        assert "ln.mul" in [op.name for op in main_of(fed.module).body.block.ops]
    session = ort.InferenceSession(proto, providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(lightnet.compile(model)({"x": X})["y"], session.run(None, {"x": X})[0])


TEXT = """
func.func @main() -> tensor<2x3xf32> {
  %x = ln.input : tensor<2x3xf32> as ("x")
  %two = ln.constant {data = [2]} : tensor<1xf32> as ("two")
  %y = ln.mul %x, %two : tensor<2x3xf32> as ("y")
  func.return %y : tensor<2x3xf32>
}
"""


@pytest.mark.parametrize("passes", ["bind", "bind,hoist", "bind,hoist,expand,combine", "@cpu:plan"])
def test_a_constant_is_known_at_every_level(passes: str) -> None:
    """In `ln.once`, and where it enters a kernel; JSON IR keeps it a constant."""
    model = lightnet.loads(TEXT, ".mlir")
    for p in parse_pipeline(*expanded(passes, {"target": "cpu"})):
        p.apply(model.ctx, model.module)
    again = to_module(json_ir.read(json_ir.write(from_module(model.module)), "net.json"))
    for module in (model.module, mlir.read(str(model.module), "net.mlir"), again):
        (mul,) = (op for op in main_of(module).walk() if op.name == "ln.mul")
        assert known(mul.operands[0]) is None and known(mul.operands[1]) == np.float32([2])
        assert sum(isinstance(op, ConstantOp) for op in module.walk()) == 1


@pytest.mark.parametrize("value, expected", [
    ("ln.constant {data = [1, 2]} : tensor<2xi32>", [1, 2]), ("ln.zeros : tensor<2xi32>", [0, 0]),
    ("ln.arange {start = 3, stop = 5, step = 1} : tensor<2xi32>", [3, 4]),
    ("ln.constant {data = [1]} : tensor<17xi32>", None), ("ln.zeros : tensor<17xi32>", None),
    ("ln.param {data = [1, 2]} : tensor<2xi32>", None), ("ln.input {data = [1, 2]} : tensor<2xi32>", None),
])  # fmt: skip
def test_what_passes_read(value: str, expected: list[int] | None) -> None:
    """What the program spells out, up to 16 elements; neither params nor inputs, whatever they hold."""
    kind = value.rpartition(": ")[2]
    text = f'func.func @main() -> {kind} {{\n%a = {value} as ("a")\n%b = ln.neg %a : {kind} as ("b")\nfunc.return %b : {kind}\n}}'
    (neg,) = (op for op in main_of(mlir.read(text, "net.mlir")).walk() if op.name == "ln.neg")
    found = known(neg.operands[0])
    assert (found is None) == (expected is None)
    np.testing.assert_array_equal(found, expected)


def test_bind_makes_a_constant_a_param_where_it_is_told_so() -> None:
    """Who wants to feed a number of a network says so when it is compiled."""
    model = lightnet.loads(TEXT, ".mlir")
    (bind,) = parse_pipeline('bind{params="two"}')
    bind.apply(model.ctx, model.module)
    assert sources(model) == {"two": "param"}


EXPANDER = """{author: "me", arch: "cpu", name: "mine", ops: [{optype: "mul", rules: [
    // x * 2 = x + x
    {cond: ["len(self.ins[src2].value) == 1 && self.ins[src2].value[0] == 2"], replace: ["add_cpu sum"],
     details: ["sum.ins[src1] = self.ins[src1]", "sum.ins[src2] = self.ins[src1]", "sum.outs[dst] = self.outs[dst]"]},
    {cond: [], replace: ["mul_cpu"]}]}]}"""


@pytest.mark.parametrize(
    "kind, value, expected", [("constant", 2, "ln.add"), ("constant", 3, "ln.mul"), ("param", 2, "ln.mul")]
)
def test_an_expander_reads_a_constant(tmp_path: Path, kind: str, value: int, expected: str) -> None:
    """Behind `hoist`, too, which has put it into `ln.once`; of a param it sees no number."""
    (tmp_path / "d.json").write_text(EXPANDER)
    text = TEXT.replace("ln.constant {data = [2]}", f"ln.{kind} {{data = [{value}]}}")
    model = lightnet.loads(text, ".mlir")
    with load(str(tmp_path / "d.json")):
        assert run_checked(model.ctx, model.module, parse_pipeline("bind,hoist,expand")).ok
    assert [op.name for op in main_of(model.module).walk() if op.name in ("ln.add", "ln.mul")] == [expected]


def test_the_command_line_says_so_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(EXAMPLES / "double.net"), "-i", "two=3"]) == 1
    assert "tensor 'two' cannot be fed: it is a constant of the network; what can be fed: x" in capsys.readouterr().err
