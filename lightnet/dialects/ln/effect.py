"""Ops with an effect in the host: `print` and `fprint`. They run in the order of the program, never inside kernels."""

from __future__ import annotations

from xdsl.irdl import traits_def

from lightnet.ir.op import LnOp, ln_op, operand, string


class _Effect(LnOp):
    traits = traits_def()  # unknown effects: never removed, merged or moved across another effect
    is_host = True
    src = operand()
    msg = string()
    work = 0


@ln_op
class Print(_Effect):
    """Print a line and the tensor where the op stands in the program (`runtime.printing` has the format).

    ```mlir
    // %x : tensor<2x3xf32>
    ln.print %x {msg = "x:"}
    ```
    """

    optype = "print"


@ln_op
class Fprint(_Effect):
    """As `print`, into a file that is opened for writing: a relative path below the working folder.

    ```mlir
    // %x : tensor<2x3xf32>
    ln.fprint %x {msg = "x:", file = "x.txt"}
    ```
    """

    optype = "fprint"
    file = string()
