"""`ln-opt --emit`: what each target makes of a lowered module."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import numpy as np
import ptxas
import pytest

import lightnet
from lightnet.backends.cuda import assembler
from lightnet.cli import ln_opt
from lightnet.diagnostics import LightNetError
from lightnet.ir.registry import TARGETS
from lightnet.ir.target import get_target
from lightnet.runtime.native import NativeCode

NET = str(Path(__file__).parents[2] / "examples" / "cnn.net")
PASSES = "--pass=bind,simplify,hoist,expand,combine,layout,choose,pack,plan"
LOWERED = f"{PASSES},lower-cpu"

SCALE = """func.func @scale(%lo: index, %hi: index, %x: memref<100xf32>, %o: memref<100xf32>) {
  %c1 = arith.constant 1 : index
  %two = arith.constant 2.0 : f32
  scf.for %i = %lo to %hi step %c1 {
    %a = memref.load %x[%i] : memref<100xf32>
    %p = arith.mulf %a, %two : f32
    memref.store %p, %o[%i] : memref<100xf32>
  }
  func.return
}
"""


def test_every_target_with_code_emits_it() -> None:
    emitted = {name: set(get_target(name).emitters) for name in TARGETS if get_target(name).lowering}
    assert emitted["cpu"] == {"llvm", "asm", "obj"} and emitted["cuda"] == {"llvm", "ptx", "asm", "obj"}
    assert not get_target("none").emitters


def test_an_object_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One kernel without a network or a plan: its LLVM IR names it, its object computes."""
    source, made = tmp_path / "scale.mlir", tmp_path / "scale"
    source.write_text(SCALE)
    assert ln_opt.main([str(source), "--emit=llvm,asm,obj", "-o", str(made)]) == 0
    symbol = re.search(r"define void @(k[0-9a-f]+)\(", made.with_suffix(".ll").read_text())[1]  # type: ignore[index]
    assert re.search(rf"^_?{symbol}:", made.with_suffix(".s").read_text(), re.MULTILINE)
    code = NativeCode([made.with_suffix(".o").read_bytes()])
    kernel = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(
        code.address(symbol)
    )
    memory = np.zeros(1024, np.float32)
    first = -memory.ctypes.data % 64 // 4  # memrefs are aligned
    x, o = memory[first : first + 100], memory[first + 128 : first + 228]
    x[:] = np.arange(100)
    kernel(0, 100, x.ctypes.data, o.ctypes.data)
    np.testing.assert_array_equal(o, 2 * np.arange(100, dtype=np.float32))
    assert capsys.readouterr().out == ""


def test_llvm_ir_is_that_of_the_compiler(capsys: pytest.CaptureFixture[str]) -> None:
    """Of the passes of `lightnet.compile`, for a processor without wide vectors: the same kernels."""
    assert ln_opt.main([LOWERED, "--emit=llvm", "--cpu=x86-64", NET]) == 0
    found = capsys.readouterr().out
    compiled = lightnet.compile(NET, cpu="x86-64", triple="x86_64-unknown-linux-gnu")
    kernels = [re.findall(r"^define void @(k[0-9a-f]{20})\(", text, re.MULTILINE) for text in (found, compiled.llvm_ir)]
    assert kernels[0] == kernels[1] != []
    assert "<4 x float>" in found and "<16 x float>" not in found and "<8 x float>" not in found


def test_passes_make_kernels_for_the_processor(capsys: pytest.CaptureFixture[str]) -> None:
    lanes = {}
    for cpu in ("avx512", "avx2", "baseline"):
        assert ln_opt.main([PASSES, f"--cpu={cpu}", NET]) == 0
        lanes[cpu] = set(re.findall(r"c(\d+)h", capsys.readouterr().out))
    assert lanes["avx512"] == {"16"} and lanes["avx2"] == {"8"} and lanes["baseline"] == {"4"}


@pytest.mark.slow
def test_assembly_of_another_processor(capsys: pytest.CaptureFixture[str]) -> None:
    assert ln_opt.main([LOWERED, "--emit=asm", "--cpu=neon", NET]) == 0
    assert "fmla" in capsys.readouterr().out
    assert ln_opt.main([LOWERED, "--emit=asm", "--cpu=avx2", NET]) == 0
    assert "vfmadd" in (text := capsys.readouterr().out) and "ymm" in text and "zmm" not in text


def test_assembly_of_cuda_is_ptx(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    net = tmp_path / "relu.mlir"
    net.write_text("""func.func @main() -> tensor<300xf32> {
  %x = ln.input : tensor<300xf32> as "x"("x")
  %y = ln.relu %x : tensor<300xf32> as "relu0"("y")
  func.return %y : tensor<300xf32>
}
""")
    given = ["-t", "cuda", "--pass=bind,expand,choose,plan,lower-cuda", "--arch=sm_90", str(net)]
    texts = []
    for form in ("ptx", "asm"):
        assert ln_opt.main([*given, f"--emit={form}"]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] and ".target sm_90\n" in texts[0] and ".visible .entry relu_0(" in texts[0]
    made = tmp_path / "relu.cubin"
    monkeypatch.setattr(assembler, "find_tool", lambda program: None)
    assert ln_opt.main([*given, "--emit=obj", "-o", str(made)]) == 1 and not made.exists()
    assert "objects of cuda are made by ptxas, which is not here" in capsys.readouterr().err


def test_objects_of_cuda_are_cubins() -> None:
    """ELF files of NVIDIA's machine (190), with a section of code for the kernel; what ptxas says of other text is the error."""
    ptxas.require()
    ptx = ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k_0() { ret; }\n"
    found = assembler.assemble(ptx, "sm_80")
    assert found[:4] == b"\x7fELF" and int.from_bytes(found[18:20], "little") == 190 and b".text.k_0" in found
    with pytest.raises(LightNetError, match="line 4"):
        assembler.assemble(ptx.replace("ret", "nonsense"), "sm_80")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([PASSES, "--emit=llvm"], "target 'cpu' emits code of loops: run its passes up to lower-cpu first"),
        (["--emit=asm"], "target 'cpu' emits planned networks: run its passes up to plan first"),
        (["--emit=ptx"], "target 'cpu' has no emitter for 'ptx'; there are: llvm, asm, obj"),
        (["-t", "none", "--emit=llvm"], "target 'none' has no emitter for 'llvm'; there are: none"),
        (["-t", "cuda", "--emit=elf"], "target 'cuda' has no emitter for 'elf'; there are: ptx, llvm, asm, obj"),
        (
            [LOWERED, "--emit=llvm,obj"],
            "--emit of several forms goes to files: say with -o what their names begin with",
        ),
        ([LOWERED, "--emit=,"], "--emit names nothing; there are: llvm, asm, obj"),
        ([LOWERED, "--emit=llvm", "--cpu=i386"], "unknown processor 'i386'"),
        ([LOWERED, "--emit=llvm", "--arch=sm_80"], "--arch says nothing to target 'cpu'"),
        ([LOWERED, "--arch=sm_80"], "--arch says nothing to target 'cpu'"),
        (["-t", "cuda", "--cpu=avx2"], "--cpu says nothing to target 'cuda'"),
        ([LOWERED, "--emit=llvm", "--triple=no-such-thing"], "this processor runs no no code: name one with --cpu"),
    ],
)
def test_what_is_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ln_opt.main([*arguments, NET]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--emit=elf"], "target 'cpu' has no emitter for 'elf'"),
        (["--emit=llvm,elf", "-o", "net"], "target 'cpu' has no emitter for 'elf'"),
        (["--emit=elf,llvm"], "target 'cpu' has no emitter for 'elf'"),
        (["-t", "none", "--emit=obj"], "target 'none' has no emitter for 'obj'"),
        (["-t", "cuda", "--emit=ptx,net"], "target 'cuda' has no emitter for 'net'"),
        (["-t", "cuda", "--emit=ptx", "--triple=x86_64-linux"], "--triple says nothing to target 'cuda'"),
        (["--emit=,"], "--emit names nothing"),
        (["--emit=llvm,obj"], "--emit of several forms goes to files"),
    ],
)
def test_a_request_that_cannot_be_met_is_refused_before_the_input_is_read(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Passes may take minutes: what is wrong with the request is said first."""
    assert ln_opt.main([*arguments, str(tmp_path / "missing.mlir")]) == 1
    err = capsys.readouterr().err
    assert message in err and "missing.mlir" not in err


def test_an_emitter_takes_what_it_names() -> None:
    with pytest.raises(LightNetError, match="--arch says nothing to target 'cpu' about 'obj'"):
        get_target("cpu").emitter("obj", ["arch"])


def test_a_module_without_kernels_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "empty.mlir"
    source.write_text("func.func @main() {\n  func.return\n}\n")
    assert ln_opt.main(["--emit=llvm", str(source)]) == 1
    assert (
        "empty.mlir:1:1: error: target 'cpu' emits code of loops: run its passes up to lower-cpu first"
        in capsys.readouterr().err
    )


def test_parts_of_a_file(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    source = tmp_path / "two.mlir"
    source.write_text(f"{SCALE}// -----\n{SCALE.replace('@scale', '@twice')}")
    assert ln_opt.main(["--split-input-file", "--emit=llvm", str(source)]) == 0
    assert re.findall(rb"^; @(\w+)", capsysbinary.readouterr().out, re.MULTILINE) == [b"scale", b"twice"]
    assert ln_opt.main(["--split-input-file", "--emit=obj", str(source)]) == 1
    assert b"--emit=obj of several parts is not one file" in capsysbinary.readouterr().err
