"""An op of one's own, in a file of one's own: it is read, verified, fused, compiled and interpreted like ours.

lightnet --load examples/my_op.py examples/my_op.net
"""

import numpy as np

from lightnet.ir.op import LnOp, case, ln_op, number, operand, result


@ln_op
class ScaledSquare(LnOp):
    """scale * src * src.

    ```mlir
    %y = ln.scaled_square %x {scale = 2} : tensor<3xf32>
    ```
    """

    optype = "scaled_square"
    src = operand()
    dst = result()
    scale = number("float", gt=0)
    definition = "dst[i...] = scale * src[i...] * src[i...]"

    def reference(self, src):
        return (self.scale * np.square(src.astype(np.float64))).astype(src.dtype)

    @classmethod
    def samples(cls):
        return [case(src=(3, 5), scale=2), case("f64", src=(1,), scale=0.5)]
