"""`ln-opt --check` runs what `lower-cuda` makes as threads, too: faults that loops of a processor do not have are found."""

from __future__ import annotations

import re

import pytest
from xdsl.ir import Operation

from lightnet.backends.cuda.selection import SELECTION
from lightnet.cli import ln_opt
from lightnet.dialects.cuda_mbarrier import MbarrierFenceOp
from lightnet.dialects.cuda_memory import AsyncWaitOp
from lightnet.dialects.cuda_simt import BarrierOp

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


@pytest.mark.parametrize("kind", [BarrierOp, AsyncWaitOp])
def test_threads_that_do_not_wait_are_found(tmp_path, monkeypatch, capsys, kind) -> None:
    drop(monkeypatch, kind)
    assert check(tmp_path) == 1
    error = capsys.readouterr().err
    assert "pass 'lower-cuda' changed the result" in error
    assert kind is BarrierOp or "as threads" in error  # as loops, copies are made at once
