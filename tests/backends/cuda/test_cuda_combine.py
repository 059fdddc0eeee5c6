"""What `combine` takes into one kernel for cuda."""

from __future__ import annotations

import numpy as np
import pytest

import lightnet
from lightnet.ir.kernel import KernelOp
from lightnet.ir.module import main_of

#: A convolution and what is done to its result: by channel, an activation, by column of pixels, a sum.
NET = """
builtin.module {
  func.func @main() -> tensor<1x8x6x6xf32> {
    %x = ln.input : tensor<1x8x6x6xf32> as ("x")
    %w = ln.param : tensor<8x8x3x3xf32> as ("w")
    %b = ln.param : tensor<8xf32> as ("b")
    %k = ln.param : tensor<8x1x1xf32> as ("k")
    %s = ln.param : tensor<6xf32> as ("s")
    %c = ln.conv2d %x, %w, %b {size = [3, 3], padding = [1, 1, 1, 1]} : tensor<1x8x6x6xf32>
    %d = ln.mul %c, %k : tensor<1x8x6x6xf32>
    %r = ln.relu %d : tensor<1x8x6x6xf32>
    %m = ln.mul %r, %s : tensor<1x8x6x6xf32>
    %y = ln.add %m, %x : tensor<1x8x6x6xf32> as ("y")
    func.return %y : tensor<1x8x6x6xf32>
  }
}
"""


def bodies(executable) -> list[list[str]]:
    found = [op for op in main_of(executable._compilation.planned).body.block.ops if isinstance(op, KernelOp)]
    return [[op.optype for op in k.ops] for k in found]


def norm(before: str, rows: str = "17x40") -> str:
    """What stands in front of a norm and behind it, as transformers have them; `before` makes %a of %x."""
    return f"""
builtin.module {{
  func.func @main() -> tensor<{rows}xf32> {{
    %x = ln.input : tensor<{rows}xf16> as ("x")
    %s = ln.param {{ran = [0.5, 1.5]}} : tensor<40xf32> as ("s")
    %b = ln.param {{ran = [-0.5, 0.5]}} : tensor<40xf32> as ("b")
    {before.replace("TYPE", f"tensor<{rows}xf32>")}
    %n = ln.layernorm %a {{axis = {rows.count("x")}}} : tensor<{rows}xf32>
    %m = ln.mul %n, %s : tensor<{rows}xf32>
    %y = ln.add %m, %b : tensor<{rows}xf32> as ("y")
    func.return %y : tensor<{rows}xf32>
  }}
}}
"""


CAST = "%a = ln.cast %x : TYPE"
COSTLY = "%c = ln.cast %x : TYPE %e = ln.exp %c : TYPE %f = ln.exp %e : TYPE %a = ln.gelu %f : TYPE"


@pytest.mark.parametrize(
    "text, wanted",
    [
        (norm(CAST), [["cast", "layernorm", "mul", "add"]]),
        (norm(CAST, "2x3x40"), [["cast", "layernorm", "mul", "add"]]),
        (norm(COSTLY), [["cast", "exp", "exp", "gelu"], ["layernorm", "mul", "add"]]),
    ],
)
def test_elementwise_ops_stand_around_a_norm(tmp_path, text, wanted) -> None:
    """In front of it those that cost little: they are done for each of its reductions."""
    path = tmp_path / "net.mlir"
    path.write_text(text)
    executable = lightnet.compile(path, "cuda", emulate=True)
    assert bodies(executable) == wanted
    x = np.random.default_rng(0).uniform(-1, 1, executable.inputs["x"][0]).astype(np.float16)
    want = lightnet.compile(path, "none")({"x": x})["y"]
    np.testing.assert_allclose(executable({"x": x})["y"], want, rtol=1e-4, atol=1e-5)


def test_an_epilogue_that_tiles_cannot_do_stays_outside(tmp_path) -> None:
    path = tmp_path / "net.mlir"
    path.write_text(NET)
    executable = lightnet.compile(path, "cuda", emulate=True)
    kernels = [op for op in main_of(executable._compilation.planned).body.block.ops if isinstance(op, KernelOp)]
    assert [body for body in bodies(executable) if body != ["forward"]] == [["conv2d", "mul", "relu"], ["mul", "add"]]
    for kernel in kernels:  # nothing that was tried goes on reading what is there
        assert all(use.operation.parent is not None for v in kernel.operands for use in v.uses)
