"""Tensors of rank 0, and tensors without elements, at every level: index notation, passes, plans, machine code, files.

The oracle is NumPy (and ONNX Runtime for what is exported).
"""

from __future__ import annotations

import io

import numpy as np
import pytest
import test_loops as loops
import test_notation as t
from executing import feeds_of

import lightnet
from lightnet.backends.interpreter import graph
from lightnet.diagnostics import LightNetError
from lightnet.frontends import json_ir, mlir
from lightnet.frontends.importer import to_module
from lightnet.ir.types import TensorSpec
from lightnet.passes.check_plan import check_plan
from lightnet.runtime.dtypes import BY_NAME
from lightnet_export.netlist import from_module
from lightnet_trust.interpreter.loops import run_main
from lightnet_trust.interpreter.notation import evaluate_definition

INF = np.float32(np.inf)

#: definition, operands, dims of `dst`, and what NumPy makes of the operands.
DEFINITIONS = [
    ("dst[] = a[] + b[]", {"a": (), "b": ()}, (), lambda a, b: a + b),
    ("dst[i...] = a[i...] * 2", {"a": ()}, (), lambda a: a * 2),
    ("dst[i] = a[] * b[i]", {"a": (), "b": (5,)}, (5,), lambda a, b: a * b),
    ("dst[] += a[i, j]", {"a": (4, 3)}, (), lambda a: a.sum()),
    ("dst.flat[i] = a.flat[i]", {"a": ()}, (1, 1), lambda a: a.reshape(1, 1)),
    ("dst[i...] = a[i[inverse(axes)]...]", {"a": ()}, (), lambda a: a),
    ("t[] max= a[i]\ndst[i] = a[i] - t[]", {"a": (7,)}, (7,), lambda a: a - a.max()),
    # A reduction over nothing is the identity of its op, or what the target holds.
    ("dst[] += a[i]", {"a": (0,)}, (), lambda a: 0),
    ("dst[] *= a[i]", {"a": (0,)}, (), lambda a: 1),
    ("dst[j] max= a[i, j]", {"a": (0, 3)}, (3,), lambda a: np.full(3, -INF)),
    ("dst[i] min= a[i, j]", {"a": (3, 0)}, (3,), lambda a: np.full(3, INF)),
    ("dst[] = b[]\ndst[] += a[i]", {"a": (0,), "b": ()}, (), lambda a, b: b),
    ("dst[i] += a[j] * b[i] for j < 0", {"a": (2,), "b": (3,)}, (3,), lambda a, b: np.zeros(3)),
    # A statement over nothing writes nothing, and what it would have written may be read over nothing.
    ("dst[i, j] = a[i, j]", {"a": (3, 0)}, (3, 0), lambda a: a),
    ("t[i] = a[i] * 2\ndst[i] = t[i]", {"a": (0,)}, (0,), lambda a: a),
    ("t[i] = a[i] * 2\ndst[] += t[i]", {"a": (0,)}, (), lambda a: 0),
    ("dst[i] = a[i] for i < a.dims[0]\ndst[i + a.dims[0]] = b[i]", {"a": (0,), "b": (2,)}, (2,), lambda a, b: b),
    ("dst[i] = a[i - 1 | 7]", {"a": (0,)}, (3,), lambda a: np.full(3, 7)),
]  # fmt: skip


@pytest.mark.parametrize("text, operands, dims, numpy", DEFINITIONS)
def test_definitions(text, operands, dims, numpy):
    data = {n: loops.draw(TensorSpec(d, BY_NAME["f32"]), k) for k, (n, d) in enumerate(operands.items())}
    definition = t.bound(text, data, {"axes": ()}, dst=TensorSpec(dims, BY_NAME["f32"]))
    want = np.asarray(numpy(*data.values()), np.float32)
    got = evaluate_definition(definition, data)["dst"]
    assert got.shape == want.shape == dims
    np.testing.assert_allclose(got, want, rtol=1e-6)
    loops.check([(definition, data)])


@pytest.mark.parametrize(
    "dtype, low, high", [("i8", -128, 127), ("ui16", 0, 65535), ("i64", -(2**63), 2**63 - 1), ("i1", 0, 1)]
)
def test_extremes_of_nothing_are_those_of_the_type(dtype, low, high):
    spec = TensorSpec((0,), BY_NAME[dtype])
    for op, want in (("max=", low), ("min=", high)):
        data = {"a": np.zeros(0, spec.dtype.np)}
        definition = t.bound(f"dst[] {op} a[i]", data, {}, dst=TensorSpec((), spec.dtype))
        assert evaluate_definition(definition, data)["dst"] == want
        loops.check([(definition, data)])


@pytest.mark.parametrize(
    "text, words",
    [
        ("dst[], at[] argmax= a[i]", "argmax= over an empty range has no winner"),
        ("dst[] = a[0]\nat[] = 1", "outside 0..-1"),
        ("dst[] = b[b[]]\nat[] = 1", "has rank 0, got 1 subscripts"),
        ("dst[] = a[]\nat[] = 1", "has rank 1, got 0 subscripts"),
    ],
)
def test_what_nothing_cannot_give(text, words):
    f32, i32 = BY_NAME["f32"], BY_NAME["i32"]
    data = {"a": np.zeros(0, np.float32), "b": np.zeros((), np.int32)}
    with pytest.raises(LightNetError, match=words):
        t.bound(text, data, {}, dst=TensorSpec((), f32), at=TensorSpec((), i32))


NETWORK = """builtin.module {
  func.func @main() -> (tensor<f32>, tensor<0x3xf32>, tensor<5x3xf32>, tensor<2x0xf32>, tensor<3x0xf32>, tensor<1x1xf32>,
                        tensor<2x0xf32>, tensor<f32>, tensor<1x3xf32>, tensor<1x4x2x2xf32>, tensor<f32>, tensor<0x4x2x2xf32>) {
    %x = ln.input : tensor<f32> as "x"("x")
    %s = ln.param : tensor<f32> as "s"("s")
    %s2 = ln.relu %s : tensor<f32> as "s2"("s2")
    %e = ln.input : tensor<0x3xf32> as "e"("e")
    %pe = ln.param : tensor<0x3xf32> as "pe"("pe")
    %m = ln.input : tensor<5x3xf32> as "m"("m")
    %r = ln.relu %x : tensor<f32> as "r"("r")
    %p = ln.elew %r, %s2 {elew_op = "TL_SUM"} : tensor<f32> as "p"("p")
    %er = ln.elew %e, %pe {elew_op = "TL_SUM"} : tensor<0x3xf32> as "er"("er")
    %mr = ln.relu %m : tensor<5x3xf32> as "mr"("mr")
    %c = ln.concat %er, %mr, %e {axis = 0} : tensor<5x3xf32> as "c"("c")
    %q = ln.reshape %er : tensor<2x0xf32> as "q"("q")
    %t = ln.transpose %er {axes = [1, 0]} : tensor<3x0xf32> as "t"("t")
    %v = ln.reshape %p : tensor<1x1xf32> as "v"("v")
    %w = ln.reshape %v : tensor<f32> as "w"("w")
    %w2 = ln.sigmoid %w : tensor<f32> as "w2"("w2")
    %k = ln.slice %m {axis = 0, start = 2, len = 2} : tensor<2x3xf32> as "k"("k")
    %k0 = ln.slice %k {axis = 1, start = 3, len = 0} : tensor<2x0xf32> as "k0"("k0")
    %h = ln.softmax %er {axis = 1} : tensor<0x3xf32> as "h"("h")
    %max = ln.maxreduce %mr {axis = 0} : tensor<1x3xf32> as "max"("max")
    %i = ln.input : tensor<1x2x2x2xf32> as "i"("i")
    %cw = ln.param : tensor<4x2x1x1xf32> as "cw"("cw")
    %cb = ln.param : tensor<4xf32> as "cb"("cb")
    %cv = ln.conv2d %i, %cw, %cb {size = [1, 1]} : tensor<1x4x2x2xf32> as "cv"("cv")
    %ct = ln.mul %cv, %s : tensor<1x4x2x2xf32> as "ct"("ct")
    %i0 = ln.input : tensor<0x2x2x2xf32> as "i0"("i0")
    %cv0 = ln.conv2d %i0, %cw, %cb {size = [1, 1]} : tensor<0x4x2x2xf32> as "cv0"("cv0")
    %z = ln.zeros : tensor<f32> as "z"("z")
    %zp = ln.elew %z, %p {elew_op = "TL_MAX"} : tensor<f32> as "zp"("zp")
    ln.print %er {msg = "empty"} as "print0"
    ln.print %p {msg = "scalar"} as "print1"
    func.return %p, %h, %c, %q, %t, %v, %k0, %w2, %max, %ct, %zp, %cv0 : tensor<f32>, tensor<0x3xf32>, tensor<5x3xf32>,
      tensor<2x0xf32>, tensor<3x0xf32>, tensor<1x1xf32>, tensor<2x0xf32>, tensor<f32>, tensor<1x3xf32>,
      tensor<1x4x2x2xf32>, tensor<f32>, tensor<0x4x2x2xf32>
  }
}
"""


def wanted(f: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of `NETWORK`, by NumPy alone."""
    relu = lambda x: np.maximum(x, 0)  # noqa: E731
    p, mr = relu(f["x"]) + relu(f["s"]), relu(f["m"])
    conv = np.einsum("nchw,oc->nohw", f["i"], f["cw"][:, :, 0, 0]) + f["cb"][:, None, None]
    found = {
        "p": p, "h": np.zeros((0, 3)), "c": mr, "q": np.zeros((2, 0)), "t": np.zeros((3, 0)), "v": p.reshape(1, 1),
        "k0": np.zeros((2, 0)), "w2": 1 / (1 + np.exp(-p)), "max": mr.max(axis=0, keepdims=True), "ct": conv * f["s"],
        "zp": np.maximum(p, 0), "cv0": np.zeros((0, 4, 2, 2)),
    }  # fmt: skip
    return {k: np.asarray(v, np.float32) for k, v in found.items()}


def same(got, want) -> None:
    assert list(got) == list(want)
    for name, array in want.items():
        assert got[name].shape == array.shape and got[name].dtype == array.dtype, name
        np.testing.assert_allclose(got[name], array, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.fixture(scope="module")
def compiled():
    module = mlir.read(NETWORK, "net.mlir")
    feeds = feeds_of(module)
    return module, feeds, lightnet.compile(lightnet.Model(module.clone(), "net"))


def test_every_level(compiled):
    module, feeds, run = compiled
    want, printed = wanted(feeds), io.StringIO()
    assert str(mlir.read(str(module), "net.mlir")) == str(module)
    same(graph.run(module, feeds, stream=printed), want)
    assert printed.getvalue().startswith("empty\n[]\nscalar\n")
    for stage in (run._compilation.stage("schedule"), run.planned):
        assert str(mlir.read(str(stage), "net.mlir")) == str(stage)
        same(graph.run(stage, feeds, stream=io.StringIO()), want)
    check_plan(run.planned)


def test_level_4_in_the_interpreter(compiled):
    _, feeds, run = compiled
    program = run.program
    memory = {"arena": np.full(program.memory["arena"], 0xA5, np.uint8), "static": run._static(feeds)[0]}
    for tensor in program.inputs:
        tensor.view(memory)[...] = feeds[tensor.name]
    run_main(run._compilation.stage("lower-cpu"), memory["arena"], memory["static"])
    same({tensor.name: tensor.view(memory) for tensor in program.outputs}, wanted(feeds))


def test_machine_code_and_its_file(compiled, tmp_path, capsys):
    _, feeds, run = compiled
    same(run(feeds), wanted(feeds))
    run.save(tmp_path / "net.lnx")
    again = lightnet.load_executable(tmp_path / "net.lnx")
    zeros = {name: np.zeros(dims, dtype) for name, (dims, dtype) in run.params.items()}  # what the file was saved with
    same(again({n: feeds[n] for n in again.inputs}), wanted(feeds | zeros))
    assert capsys.readouterr().out.count("empty\n[]\n") == 2


def test_json_keeps_the_network(compiled):
    """Where a parameter is an array without elements (the dims of rank 0), JSON has null: the format has no such array."""
    module, feeds, run = compiled
    for stage in (module, run.planned):
        text = json_ir.write(from_module(stage))
        assert '"value" : null' in text
        again = to_module(json_ir.read(text, "net.json"))
        same(graph.run(again, feeds, stream=io.StringIO()), wanted(feeds))
    check_plan(again)


def test_empty_tensors_take_no_memory():
    text = """func.func @main() -> tensor<4x0xf32> {
      %x = ln.input : tensor<4x0xf32>  as "x"("x")
      %w = ln.param : tensor<4x0xf32>  as "w"("w")
      %y = ln.elew %x, %w {elew_op = "TL_SUM"} : tensor<4x0xf32> as "y"("y")
      func.return %y : tensor<4x0xf32>
    }"""
    run = lightnet.compile(lightnet.Model(mlir.read(text, "net.mlir"), "net"))
    assert run.program.memory == {"static": 0, "arena": 0}
    assert run()["y"].shape == (4, 0)
    upstream = lightnet.compile(lightnet.Model(mlir.read(text, "net.mlir"), "net"), plan="upstream")
    assert upstream()["y"].shape == (4, 0)


@pytest.mark.parametrize(
    "op, words",
    [
        ("ln.zeros : tensor<0x70000x70000x70000xf32>", "more than the limit"),
        ("ln.zeros : tensor<1x1x1x1x1x1x1x1x1xf32>", "at most 8 dimensions"),
        ("ln.zeros : tensor<?xf32>", "has 1 open dims, of which 0 are named"),
        ("ln.input {data = [1, 2]} : tensor<f32>", "of 1 elements .* no more data"),
        ("ln.input {data = [1]} : tensor<0xf32>", "of 0 elements .* no more data"),
    ],
)
def test_what_is_refused(op, words):
    with pytest.raises(LightNetError, match=words):
        module = mlir.read(f'func.func @main() {{ %x = {op} as "x"("x")\nfunc.return }}', "net.mlir")
        graph.run(module)


@pytest.mark.parametrize(
    "op, words",
    [
        ("%a, %b = ln.maxreduce_arg %x {axis = 1} : tensor<2x1xf32>, tensor<2x1xi32>", "not-empty"),
        ("%a = ln.relu %x {axis = 1} : tensor<2x1xf32>", "axis"),
        ("%a = ln.softmax %s {axis = 0} : tensor<f32>", r"src\.rank"),
        ("%a = ln.reshape %x : tensor<f32>", "1 against 0"),
        ("%a = ln.resize %x : tensor<2x3xf32>", "not-empty"),
    ],
)
def test_ops_that_need_elements(op, words):
    text = f"""func.func @main() {{
      %x = ln.zeros : tensor<2x0xf32>
      %s = ln.zeros : tensor<f32>
      {op}
      func.return
    }}"""
    with pytest.raises(LightNetError, match=words):
        mlir.read(text, "net.mlir")


def test_onnx_runtime_agrees_with_the_export():
    onnxruntime = pytest.importorskip("onnxruntime")
    from lightnet_export.onnx.model import to_onnx

    text = """func.func @main() -> (tensor<f32>, tensor<2x0xf32>, tensor<3x4xf32>, tensor<1x4xf32>) {
      %x = ln.input : tensor<1x1xf32> as "x"("x")
      %e = ln.input : tensor<0x4xf32> as "e"("e")
      %m = ln.input : tensor<3x4xf32> as "m"("m")
      %y = ln.reshape %x : tensor<f32> as "y"("y")
      %s = ln.sigmoid %y : tensor<f32> as "s"("s")
      %r = ln.reshape %e : tensor<2x0xf32> as "r"("r")
      %c = ln.concat %e, %m {axis = 0} : tensor<3x4xf32> as "c"("c")
      %top = ln.maxreduce %e {axis = 0} : tensor<1x4xf32> as "top"("top")
      func.return %s, %r, %c, %top : tensor<f32>, tensor<2x0xf32>, tensor<3x4xf32>, tensor<1x4xf32>
    }"""
    module = mlir.read(text, "net.mlir")
    feeds = feeds_of(module)
    session = onnxruntime.InferenceSession(to_onnx(lightnet.Model(module, "net")).SerializeToString())
    names = [o.name for o in session.get_outputs()]
    theirs = dict(zip(names, session.run(names, {i.name: feeds[i.name] for i in session.get_inputs()})))
    same(graph.run(module, feeds), theirs)
    same(lightnet.compile(lightnet.Model(module, "net"))(feeds), theirs)
