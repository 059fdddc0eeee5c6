"""The target `cpu`: kernels on plain memory, run in process or from an object file.

Every op runs from its definition or its loop-level builder, so `supports` refuses only what has neither; what is faster
than that stands in `combiners`, `expanders` and the kernel generators of this folder.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from lightnet.backends.cpu.combiners import CONVOLUTIONS, accepts
from lightnet.backends.cpu.expanders import EXPANDERS, supports
from lightnet.backends.cpu.subgraphs import SUBGRAPHS
from lightnet.ir.kernel import KernelOp
from lightnet.ir.target import Space, Target


def choose(kernel: KernelOp) -> Mapping[str, Attribute]:
    """`alg`: ``direct`` (register-tiled) for a body that starts with a convolution, else ``loops``."""
    tiled = any(isinstance(op, CONVOLUTIONS) for op in kernel.ops)
    return {"alg": StringAttr("direct" if tiled else "loops")}


CPU = Target(
    "cpu",
    spaces={"arena": Space(), "static": Space()},
    kernel="cpu",
    supports=supports,
    accepts=accepts,
    choose=choose,
    expanders=EXPANDERS,
    subgraphs=SUBGRAPHS,
    lowering="lower-cpu",
    runtime="lightnet.runtime.executable:load",
)
