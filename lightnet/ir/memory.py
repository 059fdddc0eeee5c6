"""The memory of a planned module: the size of each space, the rules of its plan, workspaces of kernels.

A size that a call decides is a `Dim`. Imports xDSL, the names of ops and parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.ir import Attribute, Operation

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.ir.names import PLACES, WORKSPACE
from lightnet.ir.types import ParamAttr
from lightnet.runtime.dims import Dim, Symbol

#: The memory spaces: params and results of `ln.once`, which are there before the first op; and everything else.
STATIC, ARENA = "static", "arena"
#: The memory of the host, of a target whose arena stands in a device's.
HOST_SPACE = "host"
#: Module attribute of level 3: bytes of each memory space.
MEMORY = "ln.memory"
#: Module attribute: ``"upstream"`` where the places follow upstream's rules instead of ours.
PLAN_RULES = "ln.plan"
#: Module attribute of a plan by upstream's rules: the memory type of each space, where one is not ``cpu``.
TYPES = "ln.memory_types"
#: Discardable attribute of a source or a run-time call: the memory type that its optype names (``create_cuda``).
MTYPE = "ln.mtype"
#: Module attribute of level 4: the symbols that a call decides, in the order of the frame.
SYMBOLS = "ln.symbols"
#: Attribute of a kernel: bytes of workspace that it needs while it runs (an integer).
WORKSPACE_SIZE = "ln.workspace_size"


@dataclass(frozen=True)
class MemoryType:
    """A memory type of document 004 (`ln_mem_info`): its number, the alignment of every address, and its capacity in
    bytes."""

    index: int
    alignment: int = 1
    capacity: int = 16 << 30


#: Upstream's memory types by name (``cuda`` of ``LN_MEM_CUDA``); a plan by its rules has a size for each, at its
#: number.
MEMORY_TYPES = {
    "none": MemoryType(0),
    "cpu": MemoryType(1),
    "cuda": MemoryType(2, alignment=32),
    "dpu": MemoryType(3, capacity=1 << 19),
}


def memory_type(name: str) -> MemoryType:
    """A memory type; one that upstream has not is as that of the CPU."""
    return MEMORY_TYPES.get(name, MEMORY_TYPES["cpu"])


def memory_types(module: ModuleOp) -> dict[str, str]:
    """The memory type of each space of a module that is planned by upstream's rules."""
    attr = module.attributes.get(TYPES)
    said = (
        {k: v.data for k, v in attr.data.items() if isinstance(v, StringAttr)}
        if isinstance(attr, DictionaryAttr)
        else {}
    )
    return {space: said.get(space, "cpu") for space in memory_of(module)}


def memory_of(module: ModuleOp) -> dict[str, int]:
    """Bytes of each memory space of a planned module; empty before `plan`."""
    attr = module.attributes.get(MEMORY)
    if not isinstance(attr, DictionaryAttr):
        return {}
    return {k: n for k, v in attr.data.items() if (n := _size(v)) is not None}


def set_memory(module: ModuleOp, sizes: Mapping[str, int]) -> None:
    """Say how large each space is."""
    module.attributes[MEMORY] = DictionaryAttr({k: size_attr(n) for k, n in sizes.items()})


def call_symbols(module: ModuleOp) -> tuple[Symbol, ...]:
    """The symbols whose values a call of a lowered module brings, in the order of its frame."""
    attr = module.attributes.get(SYMBOLS)
    sizes = attr.data if isinstance(attr, ParamAttr) and isinstance(attr.data, tuple) else ()
    return tuple(s for size in sizes if isinstance(size, Dim) for s in size.symbols)


def set_call_symbols(module: ModuleOp, symbols: Iterable[Symbol]) -> None:
    """Say which symbols a call decides, in the order of their names; raises `LightNetError` where a name has two
    ranges."""
    found = sorted(set(symbols), key=lambda s: s.name)
    for a, b in pairwise(found):
        if a.name == b.name:
            raise LightNetError(f"'{a.name}' is {a.domain} here and {b.domain} there: a name has one range")
    if found:
        module.attributes[SYMBOLS] = ParamAttr(tuple(s.dim for s in found))


def unplan(module: ModuleOp) -> None:
    """Drop every place."""
    for op in module.walk():
        op.attributes.pop(PLACES, None)
        op.attributes.pop(WORKSPACE, None)
    module.attributes.pop(MEMORY, None)
    module.attributes.pop(PLAN_RULES, None)
    module.attributes.pop(TYPES, None)


def is_upstream(module: ModuleOp) -> bool:
    """Return whether the places follow upstream's rules (`--plan=upstream`)."""
    return module.attributes.get(PLAN_RULES) == StringAttr("upstream")


def workspace_size(op: Operation) -> int:
    """Bytes of workspace of a kernel."""
    size = _size(op.attributes.get(WORKSPACE_SIZE))
    return 0 if size is None else size


def size_attr(size: int) -> Attribute:
    """A number of bytes as an attribute: ``64 : i64``, or ``#ln.param<?"256*batch(1..16)">``."""
    return ParamAttr(size) if isinstance(size, Dim) else IntegerAttr(size, i64)


def _size(attr: Attribute | None) -> Any:
    """The number that an attribute is, an int or a `Dim`; None where it is none."""
    if isinstance(attr, ParamAttr) and isinstance(attr.data, Dim):
        return attr.data
    return attr.value.data if isinstance(attr, IntegerAttr) else None
