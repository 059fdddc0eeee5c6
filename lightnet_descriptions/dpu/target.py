"""The target `dpu`: an accelerator with 512 KiB of memory of its own, of levels 1 to 3.

It has the ops that LightNet describes for it (rows of convolutions, `ldmr` and `svmr`, which load and save a row), and
no expander: LightNet's is a stub. There is no DPU here: the planned network runs in the interpreter, by the ops'
definitions.
"""

from __future__ import annotations

from xdsl.ir import OpResult

from lightnet.ir.kernel import KernelOp
from lightnet.ir.memory import ARENA, MEMORY_TYPES, STATIC
from lightnet.ir.op import LnOp
from lightnet.ir.target import Space, Target

#: The space of its own memory.
OWN = "dpu"
#: Ops of arch none that it has a variant of.
_VARIANTS = ("ldmr", "svmr", "gather", "scatter")


def supports(op: LnOp) -> bool:
    return op.arch == "dpu" or op.optype in _VARIANTS


def home(value: OpResult) -> str:
    """The space of a value: what its kernels make stands in its memory, but for what they save."""
    op = value.op
    saves = isinstance(op, KernelOp) and any(inner.optype == "svmr" for inner in op.ops)
    return OWN if isinstance(op, KernelOp) and op.name == "dpu.kernel" and not saves else ARENA


DPU = Target(
    "dpu",
    spaces={
        ARENA: Space(mtype="cpu"),
        STATIC: Space(mtype="cpu"),
        OWN: Space(capacity=MEMORY_TYPES["dpu"].capacity, spills=False),
    },
    kernel="dpu",
    supports=supports,
    home=home,
)
