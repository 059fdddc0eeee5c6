"""Files for C: the object, the library, the header, assembly and LLVM IR; the oracle is the reference interpreter, through a C compiler."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest
from ports import with_ports

import lightnet
from lightnet import deploy
from lightnet.backends.llvm.cheader import c_identifier, identifiers
from lightnet.cli.lightnet import main
from lightnet.diagnostics import LightNetError
from lightnet.runtime import elf, processor
from lightnet.runtime.arrays import aligned

ROOT = Path(__file__).parents[1]
CNN = str(ROOT / "examples" / "cnn.net")
X = np.random.default_rng(0).random((1, 3, 32, 32), np.float32)
STRICT = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-std=c99"]
CC = shutil.which("cc")
needs_cc = pytest.mark.skipif(CC is None or sys.platform != "linux", reason="there is no C compiler (cc)")

#: Several inputs and outputs of several types, with names that are none in C.
MIXED = """
func.func @main() -> (tensor<2x3xf32>, tensor<4xi32>, tensor<3xf64>, tensor<i1>, tensor<2x3xf32>) {
  %0 = ln.input : tensor<2x3xf32> as "c0"("in/put")
  %1 = ln.input : tensor<2x3xf32> as "c1"("int")
  %2 = ln.input : tensor<4xi32> as "c2"("x")
  %3 = ln.input : tensor<3xf64> as "c3"("X")
  %4 = ln.input : tensor<i1> as "c4"("1*/é")
  %5 = ln.input : tensor<0x7xf32> as "c5"("nothing")
  %a = ln.elew %0, %1 {elew_op = "TL_SUM"} : tensor<2x3xf32> as "e0"("sum")
  %b = ln.elew %2, %2 {elew_op = "TL_MUL"} : tensor<4xi32> as "e1"("x\\"y")
  %c = ln.elew %3, %3 {elew_op = "TL_SUM"} : tensor<3xf64> as "e2"("for")
  %d = ln.forward %4 : tensor<i1> as "f0"("flag")
  func.return %a, %b, %c, %d, %0 : tensor<2x3xf32>, tensor<4xi32>, tensor<3xf64>, tensor<i1>, tensor<2x3xf32>
}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    return lightnet.compile(CNN, "none")({"picture": X})["classes"]


def run(*words: str) -> None:
    assert main(list(words)) == 0


def shell(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def close(got: np.ndarray, want: np.ndarray) -> None:
    assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()


def called(path: str, name: str, function: str = "run", threads: int | None = None, data: np.ndarray = X) -> np.ndarray:
    """What the library's function computes; no part of ours takes part in the call."""
    library = ctypes.CDLL(os.path.abspath(path))
    bytes_of = getattr(library, f"{name}_arena_bytes")
    bytes_of.restype = ctypes.c_uint64
    arena, out = aligned(bytes_of()), np.full((1, 32, 16, 16), np.nan, np.float32)
    arena[:] = 0xFF  # contents that must not matter
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (arena, data, out)]
    first = [] if threads is None else [threads]
    assert getattr(library, f"{name}_{function}")(*first, *pointers) == 0
    return out


# -- libraries and programs


@needs_cc
def test_a_shared_library(expected: np.ndarray) -> None:
    run("compile", CNN, "-o", "net.so", "--emit=so")
    close(called("net.so", "net"), expected)
    exported = re.findall(r" T (\w+)", shell("nm", "-D", "net.so"))
    assert sorted(exported) == ["net_arena_bytes", "net_run"]


@needs_cc
def test_several_threads(expected: np.ndarray) -> None:
    model = lightnet.loads(MIXED.replace("2x3", "64x512").replace("4xi32", "70000xi32"), ".mlir")
    executable = lightnet.compile(model, threads=3)
    if executable.program.widest == 1:
        pytest.skip("no kernel of this network is worth several threads")
    deploy.emit(executable, {"so": "net.so", "header": "net.h", "obj": "net.o"}, "net")
    assert "net_run_threads(int threads," in Path("net.h").read_text()
    library = ctypes.CDLL(os.path.abspath("net.so"))
    arrays = {n: np.random.default_rng(1).integers(0, 2, d).astype(t) for n, (d, t) in executable.inputs.items()}
    wanted = executable(arrays)
    count = library.net_scratch_bytes
    count.restype = ctypes.c_uint64
    stride = int(re.search(r"NET_SCRATCH_BYTES (\d+)", Path("net.h").read_text())[1])
    assert [count(n) for n in (-1, 0, 1, 2, 3, 99)] == [stride * k for k in (0, 0, 0, 1, 2, 2)]
    for threads in (-1, 0, 1, 2, 3, 99):
        arena = aligned(executable.program.memory["arena"])
        made = {n: np.zeros(d, t) for n, (d, t) in executable.outputs.items()}
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (arena, *arrays.values(), *made.values())]
        assert library.net_run_threads(threads, *pointers) == 0
        assert all(np.array_equal(made[n], wanted[n]) for n in wanted)


@needs_cc
@pytest.mark.parametrize("form", ["o", "s"])
def test_an_object_and_assembly(form: str, expected: np.ndarray) -> None:
    run("compile", CNN, "-o", f"net.{form}", f"--emit={'obj' if form == 'o' else 'asm'}")
    assert Path("net.weights").exists() == (form == "s")
    shell("cc", "-shared", "-o", "made.so", f"net.{form}", "-Wl,-z,noexecstack")
    close(called("made.so", "net"), expected)


@needs_cc
@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
@pytest.mark.parametrize("flags", ["-O2", "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all"])
def test_the_example(flags: str, folder: Path) -> None:
    """examples/c: a strict C99 program that is built with its Makefile, and compares with `lightnet run`."""
    shutil.copytree(ROOT / "examples" / "c", folder / "c")
    shutil.copy(CNN, folder)
    tool = folder / "tool"
    tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m lightnet.cli.lightnet "$@"\n')
    tool.chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = ["make", "-C", "c", "check", f"LIGHTNET={tool}", f"PYTHON={sys.executable}", f"CFLAGS={flags}"]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=120)
    if "sanitize" in flags and "cannot find" in done.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert done.returncode == 0 and "status 0, largest difference" in done.stdout, done.stdout + done.stderr


@needs_cc
@pytest.mark.skipif(
    shutil.which("valgrind") is None or processor.architecture() != "x86_64", reason="there is no valgrind"
)
def test_no_access_is_out_of_bounds_or_uninitialised() -> None:
    """The arena is as large as the header says, with guarded memory behind it."""
    run("compile", CNN, "-o", "net", "--emit=obj,header", "--cpu=x86-64-v3")  # valgrind knows no AVX-512
    Path("main.c").write_text("""
#define _POSIX_C_SOURCE 200112L
#include "net.h"
#include <stdlib.h>
int main(void) {
  float *x = malloc(NET_IN_PICTURE_BYTES), *y = malloc(NET_OUT_CLASSES_BYTES);
  void *arena; float sum = 0; int i, status;
  if (posix_memalign(&arena, NET_ARENA_ALIGN, NET_ARENA_BYTES)) return 3;
  for (i = 0; i < NET_IN_PICTURE_COUNT; i++) x[i] = (float)i / NET_IN_PICTURE_COUNT;
  status = net_run(arena, x, y);
  for (i = 0; i < NET_OUT_CLASSES_COUNT; i++) sum += y[i];
  free(arena); free(x); free(y);
  return status ? 2 : !(sum > 255.9f && sum < 256.1f); /* softmax over 256 places */
}
""")
    shell("cc", *STRICT, "-o", "main", "main.c", "net.o")
    shell("valgrind", "-q", "--error-exitcode=9", "--leak-check=full", "./main")


@needs_cc
@pytest.mark.parametrize("ports", [0, 1])
def test_several_inputs_and_outputs_of_any_type(ports: int) -> None:
    """Copied, and read and written where they are."""
    executable = lightnet.compile(lightnet.loads(MIXED, ".mlir"), pipeline=with_ports(ports))
    assert bool(executable.program.ports) == bool(ports)
    deploy.emit(executable, {"obj": "net.o", "header": "net.h"}, "net")
    Path("main.c").write_text("""
#include "net.h"
#include <stdio.h>
static double memory[NET_ARENA_BYTES / 8 + 16];
int main(void) {
  unsigned char *arena = (unsigned char *)memory + (NET_ARENA_ALIGN - (uintptr_t)memory % NET_ARENA_ALIGN) % NET_ARENA_ALIGN;
  const int dims[NET_IN_IN_PUT_RANK] = NET_IN_IN_PUT_DIMS;
  float a[NET_IN_IN_PUT_COUNT] = {1, 2, 3, 4, 5, 6}, b[6] = {10, 20, 30, 40, 50, 60}, sum[NET_OUT_SUM_COUNT], copy[6];
  int32_t x[NET_IN_X_COUNT] = {1, -2, 3, 100000}, square[NET_OUT_X_Y_COUNT];
  double d[NET_IN_X_2_COUNT] = {0.5, 1e300, -3}, twice[3];
  uint8_t flag = 1, out = 9;
  int status = net_run(arena, a, b, x, d, &flag, NULL, sum, square, twice, &out, copy);
  printf("%d %d %d %d|%g %g|%d %d|%g %g|%d|%g|%d %d %d\\n", status, dims[0], dims[1], NET_IN_NOTHING_COUNT, sum[0], sum[5], square[1],
         square[3], twice[1], twice[2], out, copy[5], net_run(arena + 4, a, b, x, d, &flag, NULL, sum, square, twice, &out, copy),
         net_run(NULL, a, b, x, d, &flag, NULL, sum, square, twice, &out, copy), NET_INPUTS * 10 + NET_OUTPUTS);
  if (net_run(arena, NULL, b, x, d, &flag, NULL, sum, square, twice, &out, copy) != NET_BAD_TENSOR) return 1;
  if (net_run(arena, a, b, x, d, &flag, NULL, sum, square, NULL, &out, copy) != NET_BAD_TENSOR) return 1;
  return 0;
}
""")
    shell("cc", *STRICT, "-o", "main", "main.c", "net.o")
    assert (
        shell("./main").strip() == f"0 2 3 0|11 66|4 {(100000 * 100000 + 2**31) % 2**32 - 2**31}|2e+300 -6|1|6|1 1 65"
    )
    if shutil.which("c++"):
        Path("main.cc").write_text(
            '#include "net.h"\n#include "net.h"\nint main() { return net_run(nullptr, 0,0,0,0,0,0, 0,0,0,0,0) - 1; }\n'
        )
        shell("c++", "-Wall", "-Wextra", "-Werror", "-o", "cc", "main.cc", "net.o")
        shell("./cc")


def test_the_header_holds_no_text_of_the_network_as_code() -> None:
    deploy.emit(lightnet.compile(lightnet.loads(MIXED, ".mlir")), {"header": "net.h"}, "net")
    text = Path("net.h").read_text()
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    assert "*/" not in code and "é" not in code
    assert text.isascii()


def test_identifiers() -> None:
    assert [c_identifier(t) for t in ("conv/1:0", "1x", "for", "", "é", "__a", "_", "ok_1")] == [
        "conv_1_0", "t_1x", "t_for", "t_", "t__", "a", "t__", "ok_1",
    ]  # fmt: skip
    assert identifiers(["a", "A", "a_2", "b/c", "b c"], taken=("arena",)) == ["a", "A_2", "a_2_2", "b_c", "b_c_2"]
    assert identifiers(["arena"], taken=("arena",)) == ["arena_2"]
    assert len(c_identifier("x" * 1000)) <= 60


# -- other machines, other forms


@pytest.mark.parametrize("words", [("--cpu=generic-aarch64",), ("--cpu=neon", "--triple=aarch64-linux-android")])
def test_aarch64(words: tuple[str, ...]) -> None:
    run("compile", CNN, "-o", "net", "--emit=obj,asm,llvm,header", *words)
    assert elf.elf_machine_of(Path("net.o").read_bytes()) == elf.AARCH64
    assert len(re.findall(r"\bfmla\tv\d+\.4s", Path("net.s").read_text())) > 50  # multiply-adds on vectors of four
    names = {s.name: s for s in elf.read_object(Path("net.o").read_bytes()).symbols}
    assert {"net_run", "net_arena_bytes", "net_weights"} == {
        n for n, s in names.items() if not s.is_local and s.section
    }
    with pytest.raises(LightNetError, match="not for aarch64"):
        deploy.emit(lightnet.compile(CNN, cpu="neon"), {"so": "net.so"}, "net")


@pytest.mark.skipif(processor.architecture() != "x86_64", reason="code for x86-64")
@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v2", "x86-64-v3"])
def test_the_levels_of_x86_64(cpu: str, expected: np.ndarray) -> None:
    if not set(processor.LEVEL_FEATURES[cpu]) <= processor.supported():
        pytest.skip("this processor does not run it")
    executable = lightnet.compile(CNN, cpu=cpu)
    close(executable({"picture": X})["classes"], expected)
    text = executable.assembly
    assert ("zmm" in text, "ymm" in text, "vfmadd" in text) == (False, cpu == "x86-64-v3", cpu == "x86-64-v3")
    assert not re.search(r"call\w*\s+fma", text)  # for each element


def test_llvm_ir_and_mlir_read_back() -> None:
    run("compile", CNN, "-o", "net", "--emit=llvm,mlir")
    module = llvm.parse_assembly(Path("net.ll").read_text(), llvm.create_context())
    module.verify()
    assert {f.name for f in module.functions if not f.is_declaration and f.linkage == llvm.Linkage.external} == {
        "net_run",
        "net_arena_bytes",
    }
    weights = lightnet.compile(CNN).variant().static
    assert Path("net.weights").read_bytes() == weights.tobytes()
    from lightnet.ir.context import make_context
    from lightnet.ir.parser import parse_mlir

    parse_mlir(make_context(), Path("net.mlir").read_text(), "net.mlir").verify()


def test_standard_output(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    run("compile", CNN, "-o", "-", "--emit=header", "--name", "my-net")
    assert b"int my_net_run(void *arena," in capsysbinary.readouterr().out


# -- refusals


def test_what_c_cannot_run_is_refused() -> None:
    text = 'create(|dst=x|dtype=TL_FLOAT, dims=[2], data=[0], from_file=false);\nprint(src=x||msg="m");\nrelu(src=x|dst=y|);\n'
    printing = lightnet.compile(lightnet.loads(text, ".net"))
    upstream = lightnet.compile(CNN, plan="upstream")
    for executable, words in ((printing, r"run-time calls \(print\)"), (upstream, "--plan=default")):
        for kind in ("obj", "header", "asm", "llvm", "so"):
            with pytest.raises(LightNetError, match=words):
                deploy.emit(executable, {"lnx": "net.lnx", kind: f"net{deploy.KINDS[kind]}"}, "net")
    for triple in ("x86_64-pc-windows-msvc", "x86_64-apple-macosx"):
        if processor.architecture() == "x86_64":
            with pytest.raises(LightNetError, match="ELF"):
                deploy.emit(lightnet.compile(CNN, triple=triple), {"obj": "net.o"}, "net")
    with pytest.raises(LightNetError, match="target none has none here"):
        deploy.emit(lightnet.compile(CNN, "none"), {"obj": "net.o"}, "net")
    with pytest.raises(LightNetError, match="cannot emit 'exe'"):
        deploy.emit(printing, {"exe": "net"}, "net")
    assert not list(Path().iterdir())


def test_without_a_linker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(LightNetError, match="cc or ld"):
        deploy.emit(lightnet.compile(CNN), {"so": "net.so", "header": "net.h"}, "net")
    assert not list(Path().iterdir())


@needs_cc
def test_a_linker_that_fails(monkeypatch: pytest.MonkeyPatch, folder: Path, expected: np.ndarray) -> None:
    broken = folder / "broken"
    broken.write_text("#!/bin/sh\necho 'out of luck' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(broken))
    with pytest.raises(LightNetError, match="out of luck"):
        deploy.emit(lightnet.compile(CNN), {"so": "net.so"}, "net")
    monkeypatch.undo()
    if not shutil.which("ld"):
        pytest.skip("there is no ld")
    monkeypatch.chdir(folder)
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: which(name) if name == "ld" else None)
    deploy.emit(lightnet.compile(CNN), {"so": "net.so"}, "net")
    close(called("net.so", "net"), expected)
