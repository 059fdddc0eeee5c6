"""Which bytes the lines of ``@main`` read and write: the places of launches, and what their functions do with the memrefs.

A launch names places; which of them it writes stands in its function alone. Imports xDSL, `ir` and the launch dialect.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, MemRefType, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, SSAValue

from lightnet.dialects import tile_memory
from lightnet.dialects.launch import HostOp, LaunchOp, kernels, memref_bytes
from lightnet.ir.place import PlaceAttr
from lightnet.runtime.dtypes import BY_NAME


@dataclass(frozen=True)
class Use:
    """What a function does with a memref argument. `is_bytes`: it makes typed views of it, as of workspace alone."""

    reads: bool
    writes: bool
    is_bytes: bool = False


@dataclass(frozen=True)
class Access:
    """Bytes [begin, end) of a memory space, as one argument of a line: as the memref `type` (None: unknown). `is_scratch`: a piece
    for each thread, which no other touches."""

    space: str
    begin: int
    end: int
    type: Attribute | None
    reads: bool
    writes: bool
    is_workspace: bool = False
    is_scratch: bool = False


class LineAccesses:
    """The accesses of the lines of a module's ``@main``."""

    def __init__(self, module: ModuleOp):
        self._functions = kernels(module)
        self._uses: dict[str, list[Use]] = {}

    def of(self, line: LaunchOp | HostOp) -> list[Access]:
        """The accesses of one line, one a place; none of a launch whose function is not there. Host calls only read: as many bytes
        as their tensor has, or all that follow where they do not say. Scratch is that of all threads."""
        if isinstance(line, HostOp):
            size = host_bytes(line)
            return [_access(p, size, None, Use(True, False)) for p in line.args]
        function = self._functions.get(line.callee.string_value())
        if function is None:
            return []
        types = function.body.block.arg_types[2:]
        found = [_access(p, memref_bytes(t), t, use) for p, t, use in zip(line.args, types, self.uses(function))]
        if line.scratch_bytes and found:
            end = found[-1].begin + line.most_threads * line.scratch_bytes
            found[-1] = replace(found[-1], end=end, is_workspace=True, is_scratch=True)
        return found

    def uses(self, function: FuncOp) -> list[Use]:
        """What a function does with each of its memrefs."""
        name = function.sym_name.data
        if name not in self._uses:
            self._uses[name] = [use_of(arg) for arg in function.body.block.args[2:]]
        return self._uses[name]


def _access(place: PlaceAttr, size: int, type: Attribute | None, use: Use) -> Access:
    begin = place.offset.data
    return Access(place.space.data, begin, begin + size, type, use.reads, use.writes, use.is_bytes)


def use_of(argument: SSAValue) -> Use:
    """What happens to a memref argument in its function. Whatever is no load, store or view of it counts as both."""
    reads = writes = is_bytes = False
    waiting = [argument]
    while waiting:
        value = waiting.pop()
        for use in value.uses:
            op = use.operation
            if isinstance(op, tile_memory.PrefetchOp):  # a hint: nothing depends on it
                continue
            derived = [r for r in op.results if isinstance(r.type, MemRefType)]
            if op.name.endswith(".store"):
                writes = True
            elif op.name.endswith(".load"):
                reads = True
            elif derived and not op.regions:  # a view: what happens to it happens to the argument
                waiting += derived
                is_bytes |= op.name == "memref.view"
            else:
                reads = writes = True
    return Use(reads, writes, is_bytes)


#: Bytes that a host call may read where it does not say.
UNKNOWN = 1 << 62


def host_bytes(line: HostOp) -> int:
    """Bytes of the tensor of a host call."""
    dims, dtype = line.attributes.get("dims"), line.attributes.get("dtype")
    if not isinstance(dims, ArrayAttr) or not isinstance(dtype, StringAttr) or dtype.data not in BY_NAME:
        return UNKNOWN
    if not all(isinstance(d, IntegerAttr) and d.value.data >= 0 for d in dims):
        return UNKNOWN
    return prod(d.value.data for d in dims if isinstance(d, IntegerAttr)) * BY_NAME[dtype.data].size
