"""The target `cuda`: kernels as PTX, for NVIDIA devices or the emulator.

Every op runs from its definition or its loop-level builder, as on the CPU, so that no network is refused; all tensors stand in device
memory, row-major.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute

from lightnet.backends.bodies import kind_of
from lightnet.backends.cuda.generators import workspace_bytes
from lightnet.diagnostics import LightNetError
from lightnet.ir.body import choice
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import layout_of
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import ARENA, STATIC, WORKSPACE_SIZE, workspace_size
from lightnet.ir.names import WORKSPACE
from lightnet.ir.op import LnOp
from lightnet.ir.target import Request, Space, Target

#: What `cuMemAlloc` aligns to, and what every access of a kernel could ask for.
ALIGNMENT = 256
#: The only generator there is: one thread a point of the independent loops.
LOOPS = "loops"


def supports(op: LnOp) -> bool:
    """Whether `op` runs by itself: from its definition, or by its loop-level builder."""
    return op.definition is not None or op.has_builder


def choose(kernel: KernelOp, request: Request) -> Mapping[str, Attribute]:
    """`alg`, and the bytes of workspace that the generator needs, if any. Raises `LightNetError` for an `alg` that there is not, and
    for layouts that no generator reads."""
    if not all(layout_of(v.type).is_plain for v in (*kernel.operands, *kernel.results)):
        raise LightNetError(f"{kernel.name} runs on row-major tensors alone: run layout{{layout=plain}}", loc_of(kernel),
                            label="cuda.kernel.layout")  # fmt: skip
    alg = choice(kernel, "alg") or LOOPS
    if alg != LOOPS:
        raise LightNetError(
            f"no generator of cuda is called alg = '{alg}'; there is: {LOOPS}", loc_of(kernel), label="choose.alg"
        )
    choices: dict[str, Attribute] = {"alg": StringAttr(alg)}
    if (size := workspace_bytes(kernel)) > workspace_size(kernel):
        for stale in (WORKSPACE_SIZE, WORKSPACE):  # chosen, and planned, for a body that was another one
            kernel.attributes.pop(stale, None)
        choices[WORKSPACE_SIZE] = IntegerAttr(size, i64)
    return choices


CUDA = Target(
    "cuda",
    spaces={ARENA: Space(ALIGNMENT), STATIC: Space(ALIGNMENT)},
    kernel="cuda",
    supports=supports,
    accepts=kind_of,
    choose=choose,
    lowering="lower-cuda",
)
