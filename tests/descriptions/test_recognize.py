"""What exporters spell out is recognised as the op that says it, keeps its meaning, and nothing that only looks alike is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from spelt_out import SPELLINGS, Writer, spelling

import lightnet
from lightnet.diagnostics import LightNetError
from lightnet.ir.module import main_of
from lightnet.ir.passes import parse_pipeline
from lightnet.passes.pipelines import expanded
from lightnet.passes.recognize import FAMILIES, recognizers
from lightnet.plugins import load
from lightnet_trust.check import CheckOptions, run_checked

#: The pass with all its rules.
ALL = "recognize{rules=norms,activations}"
#: What is left of a spelling beside the op: gain and bias, and the copy that keeps the output's name.
BESIDE = {"ln.input", "ln.param", "ln.mul", "ln.add", "ln.forward", "func.return"}


def loaded(model: onnx.ModelProto) -> lightnet.Model:
    return lightnet.loads(model.SerializeToString(), ".onnx")


def recognized(model: lightnet.Model, passes: str = f"bind,simplify,{ALL}") -> list[str]:
    """The names of the ops after the passes, which are checked on all kinds of data."""
    verdict = run_checked(model.ctx, model.module, parse_pipeline(passes))
    assert verdict.ok, verdict.error.render()
    return [op.name for op in main_of(model.module).body.block.ops]


def x_of(dims: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(7).normal(0, 2, dims).astype(np.float32)


@pytest.mark.parametrize("name", SPELLINGS)
def test_spelling_is_recognised(name: str) -> None:
    """One op stands for the arithmetic, by the rule that the table names, and gives what ONNX Runtime computes of the arithmetic."""
    spelt = spelling(name)
    model = loaded(spelt.model)
    family = spelt.rule.partition(".")[0]
    names = recognized(model, f"bind,simplify,recognize{{rules={family}}}")
    assert names.count(spelt.op) == 1 and set(names) <= BESIDE | {spelt.op}
    assert names.count("ln.mul") <= 1 and names.count("ln.add") <= 1
    x = x_of((2, 5, 24))
    wanted = ort.InferenceSession(spelt.model.SerializeToString()).run(None, {"x": x})[0]
    np.testing.assert_allclose(lightnet.compile(model)({"x": x})["y"], wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", SPELLINGS)
def test_verdict_of_each_rule(name: str) -> None:
    """Exactly right, or right by a law that the rule names; tests/data/exactness.json says of the rule the same, or less."""
    spelt = spelling(name, (2, 3, 8))
    model = loaded(spelt.model)
    verdict = run_checked(model.ctx, model.module, parse_pipeline(f"bind,simplify,{ALL}"), CheckOptions(in_field=True))
    assert verdict.ok, verdict.error.render()
    (pattern,) = (p for p in recognizers() if p.name == spelt.rule)
    noted = any(f"pattern '{spelt.rule}'" in note for note in verdict.notes)
    assert pattern.law is not None or not noted
    record = json.loads((Path(__file__).parents[1] / "data" / "exactness.json").read_text())
    assert record[spelt.rule] in (("in floats",) if noted else ("exact", "in floats"))


@pytest.mark.parametrize("name", ["torch layernorm", "keras layernorm", "torchlib rmsnorm", "torch gelu"])
def test_dims_that_calls_decide(name: str) -> None:
    """A batch that each call brings along hides nothing."""
    spelt = spelling(name, ("n", 5, 24))
    model = lightnet.loads(spelt.model.SerializeToString(), ".onnx", dims={"n": "1..16"})
    assert recognized(model).count(spelt.op) == 1
    run, session = lightnet.compile(model), ort.InferenceSession(spelt.model.SerializeToString())
    for n in (1, 3):
        x = x_of((n, 5, 24))
        np.testing.assert_allclose(run({"x": x})["y"], session.run(None, {"x": x})[0], rtol=2e-5, atol=2e-6)


def test_each_rule_has_a_spelling() -> None:
    """No rule is there that no exporter asks for."""
    assert {spelling(name).rule for name in SPELLINGS} == {p.name for p in recognizers()}


def _gelu(w: Writer, root: float = 2**0.5, one: float = 1.0, half: float = 0.5, other: str = "x") -> str:
    return w("Mul", w("Mul", other, w("Add", w("Erf", w("Div", "x", root)), one)), half)


def _layernorm(w: Writer, axes=(-1,), then=(-1,), epsilon=1e-5, other: str = "x", root: str = "Sqrt") -> str:
    d = w("Sub", other, w("ReduceMean", "x", axes=list(axes)))
    variance = w("ReduceMean", w("Mul", d, d), axes=list(then))
    return w("Div", d, w(root, w("Add", variance, epsilon)))


@pytest.mark.parametrize("write", [
    lambda w: _gelu(w, root=1.41), lambda w: _gelu(w, one=1.001), lambda w: _gelu(w, half=0.25),
    lambda w: _gelu(w, other=w("Relu", "x")), lambda w: _gelu(w, half=np.full((1, 1, 1, 1), 0.5)),
    lambda w: _layernorm(w, axes=(1,), then=(1,)), lambda w: _layernorm(w, root="Exp"),
    lambda w: w("Mul", "x", w("Sigmoid", w("Neg", "x"))),
    lambda w: w("Div", w("Mul", "x", w("Clip", w("Add", "x", 3.0), 0.0, 5.0)), 6.0),
    lambda w: w("Div", "x", w("Sqrt", w("Add", w("ReduceMean", w("Mul", "x", w("Neg", "x")), axes=[-1]), 9.0))),
], ids=["root", "one", "half", "other", "rank", "middle axis", "no root", "another sigmoid", "relu5", "no square"])  # fmt: skip
def test_what_looks_alike_stays(write) -> None:
    """Another constant, another operand, other axes, another rank: arithmetic as before."""
    writer = Writer((2, 5, 24))
    model = loaded(writer.model(write(writer)))
    before = recognized(model, "bind,simplify")
    assert recognized(model, ALL) == before


@pytest.mark.parametrize("other", [{"axes": (1,)}, {"other": "absolute"}], ids=["axes", "another x"])
def test_half_of_a_layernorm_is_an_rmsnorm(other: dict) -> None:
    """What is not centred by its own mean is still divided by the root of the mean of its squares."""
    writer = Writer((2, 5, 24))
    other = {key: writer("Abs", "x") if value == "absolute" else value for key, value in other.items()}
    names = recognized(loaded(writer.model(_layernorm(writer, **other))))
    assert "ln.layernorm" not in names and {"ln.reduce_mean", "ln.sub", "ln.rmsnorm"} <= set(names)


def test_a_number_that_anybody_may_feed_stays() -> None:
    """The same graph, whose constants are inputs with a default, is not the op: a call may feed another epsilon."""
    model = spelling("torch gelu").model
    for tensor in model.graph.initializer:
        model.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    assert "ln.gelu" not in recognized(loaded(model))


def test_what_others_read_is_computed_once() -> None:
    """A deviation that is an output, too, keeps the arithmetic; the norm of it is right all the same."""
    writer = Writer((2, 5, 24))
    y = _layernorm(writer)
    model = writer.model(y)
    root = next(n.output[0] for n in model.graph.node if n.op_type == "Sqrt")
    model.graph.output.append(onnx.helper.make_tensor_value_info(root, onnx.TensorProto.FLOAT, None))
    names = recognized(loaded(model))
    assert "ln.layernorm" not in names and "ln.sqrt" in names


def test_norms_are_recognised_by_default() -> None:
    """A LayerNorm that is spelt out takes one kernel, as the op does; activations are fused as they stand, and left alone."""
    text = {}
    for name in ("torch layernorm", "torch gelu"):
        model = loaded(spelling(name).model)
        for p in parse_pipeline(*expanded("@cpu:plan", {"target": "cpu"})):
            p.apply(model.ctx, model.module)
        text[name] = str(model.module)
    assert "ln.layernorm" in text["torch layernorm"] and "ln.gelu" not in text["torch gelu"]
    assert text["torch layernorm"].count("cpu.kernel(") <= 2 and text["torch gelu"].count("cpu.kernel(") == 1


def test_rules_of_files_come_behind(tmp_path: Path) -> None:
    """A description says ``pass: "recognize"``, PDL ``ln.pass``; their rules are for every target, and may round."""
    (tmp_path / "softsign.json").write_text("""{author: "me", arch: "none", name: "mine", subgraphs: [
        // x / (1 + |x|) = softsign(x)
        {name: "softsign", pass: "recognize", match: ["abs a", "add b", "div y"],
         edges: ["a.outs[dst] => b.ins[src1]", "b.outs[dst] => y.ins[src2]"],
         cond: ["b.ins[src2].value == [1] && y.ins[src1] == a.ins[src]"],
         replace: ["softsign s"], details: ["s.ins[src] = a.ins[src]", "s.outs[dst] = y.outs[dst]"]}]}""")
    writer = Writer((2, 5, 24))
    model = loaded(writer.model(writer("Div", "x", writer("Add", 1.0, writer("Abs", "x")))))
    with load(str(tmp_path / "softsign.json")):
        assert "ln.softsign" in recognized(model)


def test_unknown_family_is_named() -> None:
    with pytest.raises(LightNetError, match="there are no rules 'norm'; did you mean norms"):
        recognized(loaded(spelling("torch silu").model), "bind,recognize{rules=norm}")
    assert set(FAMILIES) == {"norms", "activations"}


# -- attention ---------------------------------------------------------------------------------------------------------


def _attention(w: Writer, how: str, mask: np.ndarray | None, size: int) -> str:
    """softmax(q k^T / sqrt(d) + mask) v on x of [N, H, T, D], as it is spelt."""
    turned = w("Transpose", "x", perm=[0, 1, 3, 2])
    if how == "torch":  # TorchScript: both factors by the root of the scale
        scores = w("MatMul", w("Mul", "x", size**-0.25), w("Mul", turned, size**-0.25))
    elif how == "bert":
        scores = w("Div", w("MatMul", "x", turned), float(size**0.5))
    else:
        scores = w("Mul", w("MatMul", "x", turned), float(size**-0.5))
    scores = scores if mask is None else w("Add", scores, mask)
    return w("MatMul", w("Softmax", scores, axis=-1), "x")


@pytest.mark.parametrize("how", ["torch", "bert", "keras"])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_needs_no_recognition(how: str, masked: bool) -> None:
    """Spelt out, with its scale and its mask, it takes no more kernels than ONNX's Attention does, and gives what ONNX Runtime does."""
    dims = (1, 2, 16, 8)
    mask = np.where(np.tri(16, dtype=bool), 0, -1e9).astype(np.float32) if masked else None
    writer = Writer(dims)
    spelt = writer.model(_attention(writer, how, mask, dims[3]))
    op = Writer(dims)
    whole = op.model(op("Attention", "x", "x", "x", *([] if mask is None else [mask])), opset=23)
    kernels = []
    for model in (spelt, whole):
        found = loaded(model)
        for p in parse_pipeline(*expanded("@cpu:plan", {"target": "cpu"})):
            p.apply(found.ctx, found.module)
        kernels.append(str(found.module).count("cpu.kernel("))
    assert kernels[0] <= kernels[1] + (how == "torch")  # which scales both factors, in a kernel of its own
    x = x_of(dims)
    wanted = ort.InferenceSession(spelt.SerializeToString()).run(None, {"x": x})[0]
    np.testing.assert_allclose(lightnet.compile(loaded(spelt))({"x": x})["y"], wanted, rtol=2e-5, atol=2e-6)
