"""The example accelerator: a target from a folder outside of the project, on networks, against the interpreter, and as C."""

from __future__ import annotations

import ctypes
import io
import shutil
import subprocess
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest
from sampled_weights import sampled_weights

import lightnet
from lightnet.backends.interpreter.static import static_bytes
from lightnet.cli import ln_opt
from lightnet.cli.lightnet import main as lightnet_main
from lightnet.diagnostics import LightNetError
from lightnet.ir.kernel import KernelOp
from lightnet.ir.memory import memory_of
from lightnet.ir.module import main_of
from lightnet.ir.target import get_target
from lightnet.ir.views import place_of
from lightnet.plugins import load
from lightnet.runtime.program import Tensor

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "accelerator"
SHUFFLENET = ROOT / "tests" / "data" / "nets" / "il" / "shufflenetv2.net"

SMALL = """
func.func @main() -> tensor<1x64x16x16xf32> {
  %x = ln.input {ran = [-1, 1]} : tensor<1x32x16x16xf32> as "create0"("x")
  %w = ln.param {ran = [-0.2, 0.2]} : tensor<64x16x3x3xf32> as "create1"("w")
  %b = ln.param {ran = [-0.2, 0.2]} : tensor<64xf32> as "create2"("b")
  %d = ln.param {ran = [-0.2, 0.2]} : tensor<64x1x3x3xf32> as "create3"("d")
  %a = ln.conv2d %x, %w, %b {size = [3, 3], padding = [1, 1, 1, 1], group = 2} : tensor<1x64x16x16xf32>
  %r = ln.relu %a : tensor<1x64x16x16xf32>
  %c = ln.conv2d %r, %d, %b {size = [3, 3], padding = [1, 1, 1, 1], group = 64} : tensor<1x64x16x16xf32>
  %s = ln.sigmoid %c : tensor<1x64x16x16xf32>
  %m = ln.maxpool2d %s {size = [3, 3], stride = [1, 1], padding = [1, 1, 1, 1]} : tensor<1x64x16x16xf32>
  %y = ln.add %m, %r : tensor<1x64x16x16xf32> as "add0"("y")
  func.return %y : tensor<1x64x16x16xf32>
}
"""


@pytest.fixture
def npu():
    with load(FOLDER):
        yield get_target("npu")


@pytest.fixture(scope="module")
def shufflenet() -> lightnet.Model:
    """A classifier of 57 convolutions, with weights that keep its values in bounds."""
    weights = sampled_weights(lightnet.load(SHUFFLENET))
    return lightnet.load(SHUFFLENET, weights=weights, override=True)


def compiled(source) -> lightnet.Executable:
    return lightnet.compile(source, "npu")


def kernels(executable: lightnet.Executable) -> list[KernelOp]:
    return [op for op in executable.planned.walk() if isinstance(op, KernelOp)]


def agrees(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    assert got.keys() == want.keys()
    for name, array in want.items():
        assert np.isfinite(array).all() and array.any()
        scale = np.abs(array).max()
        np.testing.assert_allclose(got[name], array, rtol=1e-4, atol=1e-5 * scale)


def test_small_network(npu) -> None:
    """Groups are split, epilogues fused, each kernel has a unit and its cycles; results are the graph's."""
    model = lightnet.loads(SMALL, ".mlir")
    executable = compiled(model)
    assert "group = 2" not in str(executable.planned)
    assert any([op.optype for op in k.ops] == ["conv2d", "sigmoid"] for k in kernels(executable))
    assert {k.attributes["unit"].data for k in kernels(executable)} == {"array", "vector"}
    agrees(executable(), lightnet.compile(model, "none")())


def test_memory_of_its_own(npu, shufflenet: lightnet.Model) -> None:
    """Results stand in the near memory as long as they fit, outputs and large ones in the DRAM."""
    executable = compiled(shufflenet)
    memory = memory_of(executable.planned)
    assert 0 < memory["sram"] <= 192 * 1024 and memory["arena"] > memory["sram"]
    places = {place_of(r).space.data for k in kernels(executable) for r in k.results}
    assert places == {"sram", "arena"}
    for output in main_of(executable.planned).body.block.last_op.operands:
        assert place_of(output).space.data == "arena"


def test_capacity_is_kept_by_spilling(npu, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a memory of any size the plan holds, checked byte by byte, and the interpreter on poisoned memory agrees."""
    from dataclasses import replace

    from lightnet.ir import registry

    model = lightnet.loads(SMALL, ".mlir")
    want = lightnet.compile(model, "none")()
    used = []
    for capacity in (0, 70_000, 140_000, 1 << 20):
        spaces = {**npu.spaces, "sram": replace(npu.spaces["sram"], capacity=capacity)}
        monkeypatch.setitem(registry.TARGETS._values, "npu", replace(npu, spaces=spaces))
        executable = compiled(model)
        used.append(memory_of(executable.planned)["sram"])
        assert used[-1] <= capacity
        agrees(executable(), want)
    assert used == sorted(used) and used[0] == 0 < used[1] < used[-1]


@pytest.mark.slow
def test_real_network_in_the_interpreter(npu, shufflenet: lightnet.Model) -> None:
    agrees(compiled(shufflenet)(), lightnet.compile(shufflenet, "cpu")())


def test_what_it_lacks_is_listed_at_once(npu) -> None:
    text = SMALL.replace("%y = ln.add %m, %r", "%t = ln.softmax %m {axis = 1} : tensor<1x64x16x16xf32> as \"soft\"(\"t\")\n"
                         "%e = ln.softmax %t {axis = 2} : tensor<1x64x16x16xf32> as \"soft1\"(\"e\")\n%y = ln.add %e, %r")  # fmt: skip
    with pytest.raises(LightNetError) as e:
        compiled(lightnet.loads(text, ".mlir"))
    assert "target 'npu' cannot run 2 ops" in e.value.message
    assert "`soft` of optype softmax" in e.value.render() and "`soft1` of optype softmax" in e.value.render()


def test_tools(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    net = tmp_path / "small.mlir"
    net.write_text(SMALL.replace("func.return", 'ln.print %y {msg = "y:"}\nfunc.return'))
    seen = []
    for words in (["--load", str(FOLDER), "-t", "npu"], ["-t", "none"]):
        assert lightnet_main([*words, str(net)]) == 0
        seen.append(capsys.readouterr().out.split("info:")[0])
    got, want = (
        np.array(text.removeprefix("y:\n").replace("[", " ").replace("]", " ").split(), float) for text in seen
    )
    assert seen[0].startswith("y:\n[[[[") and got.size == 64 * 16 * 16
    np.testing.assert_allclose(got, want, atol=0.0011)  # three digits, of sums in another order
    passes = "--pass=bind,expand,hoist,combine,choose,plan"
    assert ln_opt.main(["--load", str(FOLDER), "-t", "npu", passes, str(net)]) == 0
    out = capsys.readouterr().out
    assert "npu.kernel(" in out and "at sram+" in out and 'unit = "array"' in out
    assert ln_opt.main([*["--load", str(FOLDER), "-t", "npu"], "--emit=c", str(net)]) == 1
    assert "emits planned networks: run its passes up to plan first" in capsys.readouterr().err
    assert ln_opt.main(["--emit=c", passes, str(net)]) == 1
    assert "target 'cpu' has no emitter for 'c'" in capsys.readouterr().err


# -- C -----------------------------------------------------------------------------------------------------

CC = shutil.which("cc")


def run_c(executable: lightnet.Executable, folder: Path) -> dict[str, np.ndarray]:
    """Compile what the emitter writes, and run it on memories filled as the plan says."""
    source = folder / "net.c"
    source.write_text(get_target("npu").emit("c", executable.planned))
    flags = [
        "-std=c99",
        "-O1",
        "-Wall",
        "-Werror",
        "-Wno-unused-variable",
        "-Wno-unused-function",
        "-Wno-unused-but-set-variable",
    ]
    done = subprocess.run(
        [CC, *flags, "-shared", "-fPIC", "-o", str(folder / "net.so"), str(source), "-lm"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[:2000]
    memory = {name: np.zeros(max(size, 1), np.uint8) for name, size in memory_of(executable.planned).items()}
    main = main_of(executable.planned)
    for place, raw in static_bytes(main, {}, executable._store, executable._seed):
        memory[place.space.data][place.offset.data : place.offset.data + raw.nbytes] = raw
    for tensor in executable.program.inputs:
        tensor.view(memory)[...] = executable.loaded(tensor.name)
    library = ctypes.CDLL(str(folder / "net.so"))
    library.npu_run(*(ctypes.c_void_p(memory[name].ctypes.data) for name in ("arena", "static")))
    outputs: tuple[Tensor, ...] = executable.program.outputs
    return {t.name: t.view(memory).copy() for t in outputs}


@pytest.mark.skipif(CC is None, reason="there is no C compiler (cc)")
def test_small_network_as_c(npu, tmp_path: Path) -> None:
    executable = compiled(lightnet.loads(SMALL, ".mlir"))
    agrees(run_c(executable, tmp_path), executable())


@pytest.mark.skipif(CC is None, reason="there is no C compiler (cc)")
def test_real_network_as_c(npu, shufflenet: lightnet.Model, tmp_path: Path) -> None:
    """A whole classifier: the C agrees with machine code that another backend made."""
    agrees(run_c(compiled(shufflenet), tmp_path), lightnet.compile(shufflenet, "cpu")())


def test_emitter_refuses_what_it_has_no_text_for(npu) -> None:
    """The C is never silently wrong: an op without a text is an error at its place."""
    planned = compiled(lightnet.loads(SMALL, ".mlir")).planned
    emit = vars(__import__("sys").modules["plugin.accelerator.emit_c"])
    text = emit["TEXT"].pop("math.exp")
    try:
        with redirect_stdout(io.StringIO()), pytest.raises(LightNetError, match=r"no text for math\.exp"):
            get_target("npu").emit("c", planned)
    finally:
        emit["TEXT"]["math.exp"] = text


# -- its machine -----------------------------------------------------------------------------------------------------


def test_its_machine_is_opened_copies_and_is_closed(npu) -> None:
    """Every byte that goes from the host to the machine's memory and back, and from one of its memories to the other, by its own copy;
    the counts are those of the tensors."""
    executable = compiled(lightnet.loads(SMALL, ".mlir"))
    state = executable.state
    assert not state
    want = lightnet.compile(lightnet.loads(SMALL, ".mlir"), "none")()
    agrees(executable(), want)
    picture, result = 32 * 16 * 16 * 4, 64 * 16 * 16 * 4
    weights = (64 * 16 * 3 * 3 + 64 + 64 * 3 * 3) * 4
    assert dict(state) == {
        ("host", "arena"): picture,
        ("host", "static"): state["host", "static"],
        ("arena", "sram"): picture,
        ("arena", "host"): result,
    }
    assert state["host", "static"] >= weights  # `ln.once` cuts weights into groups
    with executable:
        executable()
        assert state["arena", "sram"] == 2 * picture
    assert not state  # what `close` does here
    with pytest.raises(LightNetError, match="the executable is closed"):
        executable()
    executable.close()


def test_a_copy_between_memories_is_a_line_of_level_4(npu, tmp_path: Path) -> None:
    """What C makes of it, and what level 4 computes with a machine that copies otherwise."""
    from lightnet.dialects.launch import CopyOp, lines_of
    from lightnet.passes.lower_cpu import LowerCpuPass
    from lightnet_trust.interpreter.loops import run_main

    executable = compiled(lightnet.loads(SMALL, ".mlir"))
    lowered = executable.planned.clone()
    LowerCpuPass().apply(None, lowered)
    (line,) = [line for line in lines_of(lowered) if isinstance(line, CopyOp)]
    assert line.size == 32 * 16 * 16 * 4
    assert [p.space.data for p in line.args] == ["arena", "sram"]
    assert "memcpy((void *)(sram + " in npu.emit("c", executable.planned)
    memory = {name: np.zeros(size, np.uint8) for name, size in memory_of(lowered).items()}
    seen = []
    run_main(lowered, memory["arena"], memory["static"], ports={"sram": memory["sram"]},
             copy=lambda to, source: seen.append((source.space, to.space, source.nbytes)))  # fmt: skip
    assert seen == [("arena", "sram", line.size)]
