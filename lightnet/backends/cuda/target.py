"""The target `cuda`: kernels as PTX, for NVIDIA devices or the emulator.

Every op runs from its definition or its loop-level builder, as on the CPU, so that no network is refused; what is faster stands in the
table of generators (`selection.py`). Maps lie with the channels last where that saves time.
"""

from __future__ import annotations

from lightnet.backends.cuda.combiners import accepts
from lightnet.backends.cuda.selection import blocking, choose, packing, reorder_time
from lightnet.backends.subgraphs import InterleaveConcat
from lightnet.ir.memory import ARENA, STATIC
from lightnet.ir.op import LnOp
from lightnet.ir.target import Space, Target

#: What `cuMemAlloc` aligns to, and what every access of a kernel could ask for.
ALIGNMENT = 256


def supports(op: LnOp) -> bool:
    """Whether `op` runs by itself: from its definition, or by its loop-level builder."""
    return op.definition is not None or op.has_builder


CUDA = Target(
    "cuda",
    spaces={ARENA: Space(ALIGNMENT), STATIC: Space(ALIGNMENT)},
    kernel="cuda",
    supports=supports,
    accepts=accepts,
    choose=choose,
    subgraphs=(InterleaveConcat,),
    layouts=("nhwc", "plain"),
    blocking=blocking,
    packing=packing,
    reorder=reorder_time,
    lowering="lower-cuda",
)
