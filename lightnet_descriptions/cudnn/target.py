"""The target `cudnn`: the one op that LightNet has for it, `relu_cudnn`, of levels 1 to 3; its optimizer does nothing.

There is no cuDNN here: the planned network runs in the interpreter.
"""

from __future__ import annotations

from lightnet.ir.memory import ARENA, STATIC
from lightnet.ir.op import LnOp
from lightnet.ir.target import Space, Target


def supports(op: LnOp) -> bool:
    return op.optype == "relu"


CUDNN = Target(
    "cudnn", spaces={name: Space(256, mtype="cuda") for name in (ARENA, STATIC)}, kernel="cudnn", supports=supports
)
