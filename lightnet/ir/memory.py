"""What a planned module says about memory: the size of each space, the rules of its plan, workspaces of kernels.

Imports xDSL and the names of ops.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.ir import Operation

from lightnet.ir.names import PLACES, WORKSPACE

#: The memory spaces: params and results of `ln.once`, which are there before the first op; and everything else.
STATIC, ARENA = "static", "arena"
#: Module attribute of level 3: bytes of each memory space.
MEMORY = "ln.memory"
#: Module attribute: ``"upstream"`` where the places follow upstream's rules instead of ours.
PLAN_RULES = "ln.plan"
#: Attribute of a kernel: bytes of workspace that it needs while it runs (an integer).
WORKSPACE_SIZE = "ln.workspace_size"


def memory_of(module: ModuleOp) -> dict[str, int]:
    """Bytes of each memory space of a planned module; empty before `plan`."""
    attr = module.attributes.get(MEMORY)
    if not isinstance(attr, DictionaryAttr):
        return {}
    return {k: v.value.data for k, v in attr.data.items() if isinstance(v, IntegerAttr)}


def set_memory(module: ModuleOp, sizes: Mapping[str, int]) -> None:
    """Say how large each space is."""
    module.attributes[MEMORY] = DictionaryAttr({k: IntegerAttr(n, i64) for k, n in sizes.items()})


def unplan(module: ModuleOp) -> None:
    """Drop every place."""
    for op in module.walk():
        op.attributes.pop(PLACES, None)
        op.attributes.pop(WORKSPACE, None)
    module.attributes.pop(MEMORY, None)
    module.attributes.pop(PLAN_RULES, None)


def is_upstream(module: ModuleOp) -> bool:
    """Whether the places follow upstream's rules (`--plan=upstream`)."""
    return module.attributes.get(PLAN_RULES) == StringAttr("upstream")


def workspace_size(op: Operation) -> int:
    """Bytes of workspace of a kernel."""
    attr = op.attributes.get(WORKSPACE_SIZE)
    return attr.value.data if isinstance(attr, IntegerAttr) else 0
