"""Kernels with code of their own for values that somebody named, beside that for all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from kernels import agree
from onnx import numpy_helper

import lightnet
from lightnet import LightNetError
from lightnet.backends.cpu import selection
from lightnet.backends.cpu.special import SPECIAL
from lightnet.cli import ln_opt
from lightnet.cli.lightnet import main
from lightnet.ir.kernel import KernelOp

#: Attention over an open length, a recurrence over it, and a convolution: products of two open factors, softmax over an open axis, moves.
TEXT = """<ir_version: 9, opset_import: ["" : 18]>
g (float[batch, length, 32] x, float[batch, 8, length] c) => (float[batch, length, 32] y, float[batch, 12, length] z, float[batch, length] s) <
    float[32, 32] q, float[32, 32] k, float[32, 32] v, float[12, 8, 3] f
> {
    a = MatMul (x, q)
    b = MatMul (x, k)
    d = MatMul (x, v)
    bt = Transpose <perm = [0, 2, 1]> (b)
    e = MatMul (a, bt)
    p = Softmax <axis = -1> (e)
    o = MatMul (p, d)
    y = Add (o, x)
    z = Conv <pads = [1, 1]> (c, f)
    s = ReduceMax <keepdims = 0> (y, axes)
}"""

#: Convolutions on maps of an open height and width.
MAPS = """<ir_version: 9, opset_import: ["" : 18]>
g (float[1, 16, h, w] x) => (float[1, 20, p, q] y) <float[32, 16, 3, 3] a, float[20, 32, 1, 1] b> {
    t0 = Conv <pads = [1, 1, 1, 1]> (x, a)
    t1 = Relu (t0)
    t2 = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (t1)
    y = Conv (t2, b)
}"""


def network(text: str) -> bytes:
    model, random = onnx.parser.parse_model(text), np.random.default_rng(4)
    for value in model.graph.value_info:
        dims = [d.dim_value for d in value.type.tensor_type.shape.dim]
        array = random.standard_normal(dims).astype(np.float32) / np.sqrt(np.prod(dims[1:]))
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), value.name))
    if "axes" in text:
        model.graph.initializer.append(numpy_helper.from_array(np.array([2]), "axes"))
    return model.SerializeToString()


def feeds(batch: int, length: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(batch * 1000 + length)
    return {
        "x": random.standard_normal((batch, length, 32)).astype(np.float32),
        "c": random.standard_normal((batch, 8, length)).astype(np.float32),
    }


RANGES: dict[str, Any] = {"batch": (1, 4), "length": (1, 96)}


def cases_of(run: Any) -> list[KernelOp]:
    return [op for op in run.planned.walk() if isinstance(op, KernelOp) and SPECIAL in op.attributes]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("special", [{"length": [17, 64]}, {"length": 32, "batch": [1, 2]}, {"batch": [1]}])
def test_calls_of_named_values_and_others(special: dict[str, Any], threads: int) -> None:
    data = network(TEXT)
    session = onnxruntime.InferenceSession(data)
    run = lightnet.compile(lightnet.loads(data, ".onnx", dims=RANGES), threads=threads, specialize=special)
    assert len(cases_of(run)) >= 3 and "specialize" in run.options
    for batch, length in ((1, 17), (1, 64), (2, 64), (1, 32), (2, 32), (4, 32), (1, 1), (3, 96), (2, 17), (1, 17)):
        given = feeds(batch, length)
        for name, want in zip("yzs", session.run(None, given)):
            agree(run(given)[name], want, 1e-4)


def test_each_case_runs_at_its_values_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A case that computes nothing gives something else at its values, and nowhere else."""
    from lightnet.backends.cpu import special

    made = special._on_open_maps

    def emptied(launch: Any, kernel: KernelOp) -> Any:
        function = made(launch, kernel)
        for op in reversed(list(function.body.block.ops)[:-1]):
            op.detach()
            op.erase(safe_erase=False)
        return function

    model = lightnet.loads(network(TEXT), ".onnx", dims=RANGES)
    right = lightnet.compile(model, specialize={"length": [17, 64]})
    assert right.options["specialize"] == lightnet.compile(model, specialize="length=17,64").options["specialize"]
    monkeypatch.setattr(special, "_on_open_maps", emptied)
    wrong = lightnet.compile(model, specialize={"length": [17, 64]})
    for batch, length in ((1, 16), (2, 17), (1, 64), (3, 65), (1, 17)):
        given = feeds(batch, length)
        assert np.array_equal(right(given)["y"], wrong(given)["y"]) == (length not in (17, 64))


def test_values_of_maps() -> None:
    """Height and width: kernels on maps in blocks."""
    data, random = network(MAPS), np.random.default_rng(2)
    session = onnxruntime.InferenceSession(data)
    model = lightnet.loads(data, ".onnx", dims={"h": (3, 40), "w": (3, 40)})
    run = lightnet.compile(model, threads=1, specialize={"h": [7, 24], "w": [5, 24]})
    assert cases_of(run)
    for h, w in ((7, 5), (24, 24), (7, 24), (24, 5), (5, 7), (40, 40), (3, 3)):
        x = random.standard_normal((1, 16, h, w)).astype(np.float32)
        agree(run(x=x)["y"], session.run(None, {"x": x})[0], 1e-4)


def test_exact_is_asked_of_cases_too(monkeypatch: pytest.MonkeyPatch) -> None:
    made, seen = selection.with_cases, list[bool]()

    def watched(kernel: KernelOp, general: Any, offers: Any, machine: Any) -> Any:
        return made(kernel, general, lambda static, exact: (seen.append(exact), offers(static, exact))[1], machine)

    monkeypatch.setattr(selection, "with_cases", watched)
    model = lightnet.loads(network(MAPS), ".onnx", dims={"h": (3, 40), "w": (3, 40)})
    run = lightnet.compile(model, threads=1, exact=True, specialize={"h": [7, 24], "w": [5, 24]})
    found = [case.data["alg"].data for k in cases_of(run) for case in k.attributes[SPECIAL]]
    assert found and not any("winograd" in alg for alg in found)
    assert seen and all(seen)
    seen.clear()
    lightnet.compile(model, threads=1, specialize={"h": 8})
    assert seen and not any(seen)


#: A window of three rows of which one may be padding: a map of one row has none of them.
EMPTY = """<ir_version: 9, opset_import: ["" : 18]>
g (float[n, 3, h, 10] x) => (float[n, 9, p, q] y) <float[9, 1, 3, 3] a> {
    y = Conv <group = 3, pads = [0, 0, 1, 0], strides = [1, 3]> (x, a)
}"""


def test_a_value_that_leaves_nothing() -> None:
    """Where a result is empty, there is no code for it, and an empty array comes out."""
    data = network(EMPTY)
    model = lightnet.loads(data, ".onnx", dims={"n": (1, 3), "h": (1, 20)})
    run, session = lightnet.compile(model, specialize={"h": [1, 5]}), onnxruntime.InferenceSession(data)
    assert [len(k.attributes[SPECIAL]) for k in cases_of(run)] == [1]
    for h in (5, 1, 4):
        x = np.random.default_rng(h).standard_normal((2, 3, h, 10)).astype(np.float32)
        y = run(x=x)["y"]
        assert y.shape == (2, 9, h - 1, 3)
        if h > 1:
            agree(y, session.run(None, {"x": x})[0], 1e-4)


def test_weights_stand_once_and_the_file_has_all(tmp_path: Path) -> None:
    data = network(TEXT)
    (tmp_path / "net.onnx").write_bytes(data)
    words = ["compile", str(tmp_path / "net.onnx"), "--dim", "batch=1..4", "--dim", "length=1..96", "-o"]
    assert main([*words, str(tmp_path / "all.lnx")]) == 0
    assert main([*words, str(tmp_path / "special.lnx"), "--specialize", "length=17,64", "--specialize", "batch=1"]) == 0
    plain, special = (lightnet.load_executable(tmp_path / f"{name}.lnx") for name in ("all", "special"))
    assert plain.program.memory["static"] == special.program.memory["static"]
    for batch, length in ((1, 17), (1, 64), (2, 64)):
        given = feeds(batch, length)
        for name, value in special(given).items():
            agree(value, plain(given)[name], 1e-5)


def test_the_choice_is_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A planned module says which cases there are: read back it gives the same code, and a case may be taken out, pinned or refused."""
    (tmp_path / "net.onnx").write_bytes(network(TEXT))
    words = [str(tmp_path / "net.onnx"), "--dim", "batch=1..4", "--dim", "length=1..96"]
    passes = 'choose{specialize="length=17,64"}'
    assert ln_opt.main([*words, "--pass=@cpu:plan", "-o", str(tmp_path / "plain.mlir")]) == 0
    for name, text in (
        ("plan", f"@cpu:plan-choose+before:pack:{passes}"),
        ("loops", f"@cpu-choose+before:pack:{passes}"),
    ):
        assert ln_opt.main([*words, f"--pass={text}", "-o", str(tmp_path / f"{name}.mlir")]) == 0, (
            capsys.readouterr().err
        )
    planned = (tmp_path / "plan.mlir").read_text()
    assert "special = [{at = {length = 17 : i64}" in planned
    again = [str(tmp_path / "plan.mlir"), "--pass=lower-cpu", "-o", str(tmp_path / "again.mlir")]
    assert ln_opt.main(again) == 0
    assert (tmp_path / "again.mlir").read_text() == (tmp_path / "loops.mlir").read_text()
    for wrong, message in (
        ("length = 97 : i64", "length is 97, not in 1..96"),
        ("width = 17 : i64", "no dim of the kernel has 'width'"),
        ('length = "x"', "each case has values of symbols"),
    ):
        (tmp_path / "plan.mlir").write_text(planned.replace("at = {length = 17 : i64}", f"at = {{{wrong}}}"))
        assert ln_opt.main(again) == 1
        assert message in capsys.readouterr().err


def test_a_call_of_two_cases_runs_the_first(tmp_path: Path) -> None:
    """A case that is said twice, or by fewer symbols, does nothing twice: a kernel may overwrite what it reads."""
    (tmp_path / "net.onnx").write_bytes(data := network(TEXT))
    words = [str(tmp_path / "net.onnx"), "--dim", "batch=1..4", "--dim", "length=1..96"]
    passes = 'choose{specialize="length=17,64"}'
    assert (
        ln_opt.main([*words, f"--pass=@cpu:plan-choose+before:pack:{passes}", "-o", str(tmp_path / "plan.mlir")]) == 0
    )
    planned = (tmp_path / "plan.mlir").read_text()
    twice = planned.replace("special = [", "special = [{at = {batch = 2 : i64}}, {at = {length = 17 : i64}}, ")
    assert twice.count("batch = 2 : i64") >= 3
    (tmp_path / "plan.mlir").write_text(twice)
    model, session = lightnet.loads(data, ".onnx", dims=RANGES), onnxruntime.InferenceSession(data)
    run = lightnet.compile(lightnet.load(tmp_path / "plan.mlir", weights=model.weights), compiled=True, threads=1)
    for batch, length in ((2, 17), (1, 17), (2, 64), (2, 5), (3, 64)):
        given = feeds(batch, length)
        for name, want in zip("yzs", session.run(None, given)):
            agree(run(given)[name], want, 1e-4)


def test_each_pass_keeps_the_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.onnx").write_bytes(network(TEXT))
    words = [str(tmp_path / "net.onnx"), "--dim", "batch=1..2", "--dim", "length=1..9", "--check", "-o", os.devnull]
    passes = '--pass=@cpu-choose+before:pack:choose{specialize="length=1,9"}'
    assert ln_opt.main([*words, passes]) in (0, None), capsys.readouterr().err
    assert "passes keep the results" in capsys.readouterr().err


@pytest.mark.parametrize(
    "special, message",
    [
        ({"width": 3}, "no dim that calls decide is called 'width'; there are: batch, length"),
        ({"length": 97}, "specialize: length is 97, not in 1..96"),
        ({"length": "long"}, "should be name=value"),
        ({"length": list(range(1, 20))}, "19 combinations of values of length: at most 16"),
    ],
)
def test_what_no_call_can_have_is_refused(special: dict[str, Any], message: str) -> None:
    model = lightnet.loads(network(TEXT), ".onnx", dims=RANGES)
    with pytest.raises(LightNetError, match=message):
        lightnet.compile(model, specialize=special)


def test_a_path_takes_it(tmp_path: Path) -> None:
    """The general executable of a network that specialises itself has the cases; a mistake is not swallowed."""
    (tmp_path / "net.onnx").write_bytes(network(TEXT))
    run = lightnet.compile(tmp_path / "net.onnx", specialize={"length": 64})
    assert cases_of(run)
    with pytest.raises(LightNetError, match="no dim that calls decide is called 'width'"):
        lightnet.compile(tmp_path / "net.onnx", specialize={"width": 64})
    with pytest.raises(LightNetError, match="no dim that calls decide is called 'length'"):
        lightnet.compile(
            lightnet.load(tmp_path / "net.onnx", shapes={"x": (1, 4, 32), "c": (1, 8, 4)}), specialize={"length": 4}
        )
