"""A target of one's own, in a file of one's own: an accelerator that has no softmax and fuses at most two ops.

ln-opt --load examples/my_target.py --target=toy --pass=bind,expand,combine,plan net.mlir
"""

from xdsl.ir import Dialect

from lightnet.ir.body import Body
from lightnet.ir.kernel import KernelOp
from lightnet.ir.op import LnOp
from lightnet.ir.target import Space, Target


class ToyKernelOp(KernelOp):
    """A kernel of the toy: one or two `ln` ops."""

    name = "toy.kernel"


def supports(op: LnOp) -> bool:
    return op.optype != "softmax"


def accepts(body: Body) -> str | None:
    return "pair" if len(body.ops) <= 2 and len(body.yielded) == 1 else None


TOY = Target("toy", spaces={"arena": Space(), "static": Space()}, kernel="toy", supports=supports, accepts=accepts)
Toy = Dialect("toy", [ToyKernelOp], [])
