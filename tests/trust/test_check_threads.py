"""`ln-opt --check` runs what `lower-cuda` makes as threads, too: faults that loops of a processor do not have are found."""

from __future__ import annotations

import re

import numpy as np
import pytest
from cuda_device import op_kernel, parse
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from lightnet.backends.cuda import threads
from lightnet.backends.cuda.nvptx import Ptx, emit_program
from lightnet.backends.cuda.selection import SELECTION
from lightnet.cli import ln_opt
from lightnet.dialects.cuda_mbarrier import MbarrierFenceOp
from lightnet.dialects.cuda_memory import AsyncWaitOp
from lightnet.dialects.cuda_simt import BarrierOp
from lightnet_trust import level4

PRODUCT = """builtin.module {
  func.func @main() -> tensor<17x9xf32> {
    %a = ln.input : tensor<17x33xf32> as ("a")
    %b = ln.input : tensor<33x9xf32> as ("b")
    %y = ln.matmul %a, %b : tensor<17x9xf32> as ("y")
    func.return %y : tensor<17x9xf32>
  }
}
"""
PIPELINE = 'bind,expand,combine,choose{set="y.alg=simt;y.tile=[32,32,16]"},plan,lower-cuda'


def check(tmp_path) -> int:
    path = tmp_path / "product.mlir"
    path.write_text(PRODUCT)
    return ln_opt.main(["--target=cuda", f"--pass={PIPELINE}", "--check", str(path)])


def test_kernels_run_as_threads(tmp_path, capsys) -> None:
    assert check(tmp_path) == 0
    assert re.search(r"lower-cuda: 1 of them as threads, in the interpreter of PTX\n", capsys.readouterr().err)


WARPGROUPS = """builtin.module {
  func.func @main() -> tensor<16x40xf16> {
    %a = ln.input : tensor<16x72xf16> as ("a")
    %b = ln.input : tensor<72x40xf16> as ("b")
    %y = ln.matmul %a, %b : tensor<16x40xf16> as ("y")
    func.return %y : tensor<16x40xf16>
  }
}
"""


def drop(monkeypatch: pytest.MonkeyPatch, kind: type[Operation]) -> None:
    """Let the lowering make kernels without the ops of a kind."""
    right = SELECTION.generate

    def without(kernel, name, aliases):
        made = right(kernel, name, aliases)
        for op in [op for m in made for op in m.function.walk() if isinstance(op, kind)]:
            op.detach()
            op.erase()
        return made

    monkeypatch.setattr(SELECTION, "generate", without)


@pytest.mark.parametrize("broken", [False, True])
def test_what_takes_too_long_as_loops_runs_as_threads(tmp_path, monkeypatch, capsys, broken) -> None:
    """A product by warpgroups is one instruction of a warpgroup, and a great many steps of loops."""
    if broken:
        drop(monkeypatch, MbarrierFenceOp)
    path = tmp_path / "product.mlir"
    path.write_text(WARPGROUPS)
    pipeline = 'bind,expand,combine,choose{features=sm_90a set="y.alg=wgmma"},plan,lower-cuda{arch=sm_90a}'
    assert ln_opt.main(["--target=cuda", f"--pass={pipeline}", "--check", str(path)]) == broken
    error = capsys.readouterr().err
    assert (
        ("fails as threads" in error)
        if broken
        else ("1 of them as threads, in the interpreter of PTX, 1 only so" in error)
    )


def test_what_takes_too_long_is_named(tmp_path, monkeypatch, capsys) -> None:
    """A kernel that can be afforded neither as loops nor as threads is none that is right."""
    for name in ("MAX_STEPS", "MAX_THREAD_STEPS"):
        monkeypatch.setattr(level4, name, 1)
    assert check(tmp_path) == 0
    said = capsys.readouterr().err
    assert "lower-cuda: 0 of 1 kernel functions are executed, 0 of them" in said
    assert re.search(r"lower-cuda: not executed, as that takes too long: @\w+\n", said)


@pytest.mark.parametrize("kind", [BarrierOp, AsyncWaitOp])
def test_threads_that_do_not_wait_are_found(tmp_path, monkeypatch, capsys, kind) -> None:
    drop(monkeypatch, kind)
    assert check(tmp_path) == 1
    error = capsys.readouterr().err
    assert "pass 'lower-cuda' changed the result" in error
    assert kind is BarrierOp or "as threads" in error  # as loops, copies are made at once


TWO = """
func.func private @twice(%i: index, %x: memref<64xf32>, %y: memref<64xf32>) {
  %a = memref.load %x[%i] : memref<64xf32>
  %s = arith.addf %a, %a : f32
  memref.store %s, %y[%i] : memref<64xf32>
  func.return
}
func.func @calls(%x: memref<64xf32>, %y: memref<64xf32>) attributes {cuda.block = array<i32: 64, 1, 1>} {
  %t = cuda.thread_id x
  func.call @twice(%t, %x, %y) : (index, memref<64xf32>, memref<64xf32>) -> ()
  func.return
}
func.func @main() {
  cuda.launch @square grid [1, 1, 1] block [64, 1, 1] [arena+0, arena+256]
  cuda.launch @calls grid [1, 1, 1] block [64, 1, 1] [arena+256, arena+512]
  cuda.launch @square grid [1, 1, 1] block [64, 1, 1] [arena+512, arena+768]
  func.return
}
"""


def test_each_kernel_becomes_ptx_alone_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the functions that are there to be called, and not with the other kernels: a module may have thousands."""
    made: list[list[str]] = []

    def emit(module: ModuleOp, arch: str) -> Ptx:
        made.append([f.sym_name.data for f in module.ops])
        return emit_program(module, arch)

    monkeypatch.setattr(threads, "emit_program", emit)
    run = threads.CudaThreads(parse(op_kernel("square", "arith.mulf %a, %a : f32", "f32", "f32", 1) + TWO), "sm_80")
    arena = np.zeros(256, np.float32)
    arena[:64] = x = np.arange(64, dtype=np.float32)
    run.run(run.launches, {"arena": arena.view(np.uint8)})
    np.testing.assert_array_equal(arena.reshape(4, 64), [x, x * x, 2 * x * x, 4 * x**4])
    assert made == [["twice", "square"], ["twice", "calls"]]
