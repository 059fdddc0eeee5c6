"""The target `cpu`: kernels on plain memory, run in process or from an object file.

Every op runs from its definition or its loop-level builder, so `supports` refuses only what has neither; what is faster
than that stands in `combiners`, `expanders` and the kernel generators of this folder.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute

from lightnet.backends.cpu.combiners import accepts
from lightnet.backends.cpu.expanders import EXPANDERS, supports
from lightnet.backends.cpu.generators import tiled_generator, workspace_bytes
from lightnet.backends.cpu.subgraphs import SUBGRAPHS
from lightnet.diagnostics import LightNetError
from lightnet.ir.body import choice
from lightnet.ir.kernel import KernelOp
from lightnet.ir.memory import ARENA, STATIC, WORKSPACE_SIZE, workspace_size
from lightnet.ir.names import WORKSPACE
from lightnet.ir.target import Description, Space, Target

#: Lanes of f32 in a vector register, by the feature that decides.
LANES = {"avx512": 16, "avx2": 8, "neon": 4}


def choose(kernel: KernelOp, features: str) -> Mapping[str, Attribute]:
    """`alg`: ``direct`` (register-tiled, for vectors of `lanes`) where that generator takes the body, else ``loops``;
    and the bytes of workspace that the generator needs, if any."""
    if features and features not in LANES:
        raise LightNetError(f"unknown CPU feature '{features}'; there are: {', '.join(LANES)}")
    tiles = tiled_generator(kernel.ops, kernel.terminator.operands) is not None
    alg = choice(kernel, "alg") or ("direct" if tiles else "loops")
    choices: dict[str, Attribute] = {"alg": StringAttr(alg)}
    lanes = LANES[features or "avx512"]
    if alg == "direct":
        choices["lanes"] = IntegerAttr(lanes, i64)
    kernel.attributes.update({k: v for k, v in choices.items() if k not in kernel.attributes})
    if (size := workspace_bytes(kernel)) > workspace_size(kernel):
        choices[WORKSPACE_SIZE] = IntegerAttr(size, i64)
        for stale in (WORKSPACE_SIZE, WORKSPACE):  # chosen, and planned, for a body that was another one
            kernel.attributes.pop(stale, None)
    return choices


CPU = Target(
    "cpu",
    spaces={ARENA: Space(), STATIC: Space()},
    kernel="cpu",
    supports=supports,
    accepts=accepts,
    choose=choose,
    expanders=EXPANDERS,
    subgraphs=SUBGRAPHS,
    descriptions=(Description("lightnet.backends.cpu:subgraphs.json", "subgraph", frozenset({"maxpool2d"})),),
    lowering="lower-cpu",
)
