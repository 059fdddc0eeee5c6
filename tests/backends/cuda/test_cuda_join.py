"""Convolutions that write to the channels of one result: against the CPU, in the interpreter and as loops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cuda_plans import timed

import lightnet
from lightnet.backends.cuda.gemm.join import JOIN, JOIN_MMA
from lightnet.backends.cuda.loops import LOOPS
from lightnet.diagnostics import LightNetError
from lightnet.ir.body import choice
from lightnet.ir.kernel import KernelOp
from lightnet.ir.module import main_of
from lightnet.passes import pipelines
from lightnet.runtime.cuda.program import KernelLine
from lightnet_debug.steps import steps_of


def branch(name: str, channels: int, out: int, size: int, dtype: str, hw: str) -> str:
    """A convolution of %x that keeps its pixels, and relu."""
    pad = size // 2
    return f"""
    %{name}w = ln.param {{ran = [-0.5, 0.5]}} : tensor<{out}x{channels}x{size}x{size}x{dtype}> as ("{name}w")
    %{name}b = ln.param {{ran = [-0.5, 0.5]}} : tensor<{out}x{dtype}> as ("{name}b")
    %{name}c = ln.conv2d %x, %{name}w, %{name}b {{size = [{size}, {size}], padding = [{pad}, {pad}, {pad}, {pad}]}} : tensor<2x{out}x{hw}x{dtype}>
    %{name} = ln.relu %{name}c : tensor<2x{out}x{hw}x{dtype}>"""


def net(outs: tuple[int, ...], extra: int = 0, dtype: str = "f32", channels: int = 8, hw: str = "7x9") -> str:
    """Branches of 1x1 and 3x3 convolutions of an input, then `extra` channels that are no convolution's, concatenated."""
    names = [f"v{i}" for i in range(len(outs))]
    text = "".join(branch(n, channels, o, 1 + 2 * (i % 2), dtype, hw) for i, (n, o) in enumerate(zip(names, outs)))
    if extra:
        names.append("e")
        text += f"""
    %e0 = ln.input : tensor<2x{extra}x{hw}x{dtype}> as ("e0")
    %e = ln.maxpool2d %e0 {{size = [3, 3], stride = [1, 1], padding = [1, 1, 1, 1]}} : tensor<2x{extra}x{hw}x{dtype}>"""
    type = f"tensor<2x{sum(outs) + extra}x{hw}x{dtype}>"
    return f"""builtin.module {{
  func.func @main() -> {type} {{
    %x = ln.input : tensor<2x{channels}x{hw}x{dtype}> as ("x"){text}
    %y = ln.concat {", ".join(f"%{n}" for n in names)} {{axis = 1}} : {type} as ("y")
    func.return %y : {type}
  }}
}}
"""


def kernels(executable) -> list[KernelOp]:
    return [op for op in main_of(executable._compilation.planned).body.block.ops if isinstance(op, KernelOp)]


@pytest.fixture
def made_by(monkeypatch):
    """A function that says which generator makes what it takes, whatever the model says of networks so small."""

    def chosen(generator, time: float = 1.0) -> None:
        timed(monkeypatch, LOOPS, lambda kernel: 1e9)
        timed(monkeypatch, generator, lambda kernel: time)

    return chosen


def compiled(path: Path, text: str, **options):
    path.write_text(text)
    return lightnet.compile(path, "cuda", **options)


def check(path: Path, text: str, alg: str, tolerance: float, **options) -> None:
    """The network's results are those of the reference interpreter, and `alg` makes the concatenation."""
    executable = compiled(path, text, **options)
    (joint,) = (k for k in kernels(executable) if k.ops[-1].optype == "concat")
    assert choice(joint, "alg") == alg
    rng = np.random.default_rng(0)
    feeds = {n: rng.uniform(-1, 1, dims).astype(dtype) for n, (dims, dtype) in executable.inputs.items()}
    want = lightnet.compile(path, "none")(feeds)["y"].astype(np.float64)
    got = executable(feeds)["y"].astype(np.float64)
    assert want.std() > 0
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * np.abs(want).max())


CASES = [
    ((16, 24), 0), ((4, 8, 12), 0), ((8, 5), 0),  # the last one fills its lanes up
    ((8, 16), 12), ((20,), 3), ((4,), 1),  # copied, with lanes that fill up, too
]  # fmt: skip


@pytest.mark.sampled(every=5, share=0.2)
@pytest.mark.parametrize("way", [{"emulate": True}, {"on_cpu": True}], ids=["emulate", "on_cpu"])
@pytest.mark.parametrize(("outs", "extra"), CASES, ids=str)
def test_branches_write_to_one_result(tmp_path, made_by, outs, extra, way) -> None:
    made_by(JOIN)
    check(tmp_path / "net.mlir", net(outs, extra), "join", 1e-5, **way)


@pytest.mark.parametrize(("dtype", "tolerance"), [("f16", 4e-3), ("bf16", 3e-2)])
def test_on_tensor_cores(tmp_path, made_by, dtype, tolerance) -> None:
    made_by(JOIN_MMA)
    check(tmp_path / "net.mlir", net((16, 24), 8, dtype), "join-mma", tolerance, emulate=True)


def test_in_tf32(tmp_path, made_by) -> None:
    """Layouts are decided for exact products, and the kernel then goes to tensor cores."""
    made_by(JOIN)
    made_by(JOIN_MMA, 0.5)
    check(tmp_path / "net.mlir", net((16, 24), 8), "join-mma", 2e-3, precision="tf32", emulate=True)


def test_parts_of_k_of_each_product_have_a_workspace_of_their_own(tmp_path, made_by) -> None:
    made_by(JOIN)
    path, text = tmp_path / "net.mlir", net((16, 24), channels=48, hw="3x3")
    path.write_text(text)
    tiles = "[16, 64, 16, 2, 2, 32, 32, 16, 3, 4]"
    spec = pipelines.default("cuda").replace("choose", f'choose{{set="y.tiles={tiles}"}}')
    executable = lightnet.compile(path, "cuda", pipeline=spec, emulate=True)
    lines = [line for line in executable.native.code.lines if isinstance(line, KernelLine)]
    assert [line.grid[2] for line in lines if line.kernel.startswith("conv2d")] == [2, 1, 4, 1]
    first, _, second, _ = (line for line in lines if line.kernel.startswith("conv2d"))
    assert first.after == second.after, "the branches may run at once"
    steps = steps_of(executable.planned, executable.loops)  # launches go by their kernel's name
    assert [len(step.lines) for step in steps if step.op.ops[-1].optype == "concat"] == [4]
    rng = np.random.default_rng(0)
    feeds = {n: rng.uniform(-1, 1, dims).astype(dtype) for n, (dims, dtype) in executable.inputs.items()}
    want = lightnet.compile(path, "none")(feeds)["y"]
    np.testing.assert_allclose(executable(feeds)["y"], want, atol=1e-4 * np.abs(want).max())


@pytest.mark.parametrize(
    ("tiles", "message"),
    [("[1, 2]", "array of 10 integers"), ("[16, 64, 16, 2, 0, 32, 32, 16, 3, 4]", "is cut into 1 to"),
     ("[16, 64, 16, 2, 99, 32, 32, 16, 3, 4]", "is cut into"), ("[0, 64, 16, 2, 1, 32, 32, 16, 3, 4]", "sizes are 1 to"),
     *((f"[16, 64, 16, {ring}, 1, 32, 32, 16, 3, 4]", "a ring has 2 to 8 stages") for ring in (99, 1, 0, -3))],
)  # fmt: skip
def test_choices_that_cannot_be_are_refused(tmp_path, made_by, tiles, message) -> None:
    made_by(JOIN)
    path = tmp_path / "net.mlir"
    path.write_text(net((16, 24)))
    spec = pipelines.default("cuda").replace("choose", f'choose{{set="y.tiles={tiles}"}}')
    with pytest.raises(LightNetError, match=message):
        lightnet.compile(path, "cuda", pipeline=spec)


def test_a_result_that_others_read_is_copied(tmp_path) -> None:
    """What a branch makes is no part of the joint where somebody else needs it."""
    text = net((16, 24)).replace("func.return %y", "%z = ln.tanh %v0 : tensor<2x16x7x9xf32>\n    func.return %y, %z")
    text = text.replace("-> tensor<2x40x7x9xf32> {", "-> (tensor<2x40x7x9xf32>, tensor<2x16x7x9xf32>) {")
    text = text.replace(
        "func.return %y, %z : tensor<2x40x7x9xf32>", "func.return %y, %z : tensor<2x40x7x9xf32>, tensor<2x16x7x9xf32>"
    )
    executable = compiled(tmp_path / "net.mlir", text)
    bodies = [[op.optype for op in k.ops] for k in kernels(executable)]
    assert ["conv2d", "relu"] in bodies and ["conv2d", "relu", "concat"] in bodies


def test_squeezenet_copies_nothing() -> None:
    executable = lightnet.compile(Path(__file__).parents[3] / "examples/nets/squeezenet1.1.net", "cuda")
    joints = [k for k in kernels(executable) if k.ops[-1].optype == "concat"]
    assert len(joints) == 8 and all(choice(k, "alg") == "join" for k in joints)
