"""What `combine` takes into one kernel for cuda."""

from __future__ import annotations

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


def test_an_epilogue_that_tiles_cannot_do_stays_outside(tmp_path) -> None:
    path = tmp_path / "net.mlir"
    path.write_text(NET)
    executable = lightnet.compile(path, "cuda", emulate=True)
    kernels = [op for op in main_of(executable._compilation.planned).body.block.ops if isinstance(op, KernelOp)]
    bodies = [[op.optype for op in k.ops] for k in kernels]
    assert [body for body in bodies if body != ["forward"]] == [["conv2d", "mul", "relu"], ["mul", "add"]]
    for kernel in kernels:  # nothing that was tried goes on reading what is there
        assert all(use.operation.parent is not None for v in kernel.operands for use in v.uses)
