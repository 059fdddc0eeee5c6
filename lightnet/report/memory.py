"""Who reads and writes which bytes at level 4: from the places of launches, and the functions that they run.

A launch names places; which of them it writes stands in its function alone. Imports xDSL, `ir` and the launch dialect.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from math import prod

from xdsl.dialects import func
from xdsl.dialects.builtin import (
    ArrayAttr,
    FixedBitwidthType,
    IntegerAttr,
    MemRefType,
    ModuleOp,
    StringAttr,
    TensorType,
)
from xdsl.ir import Attribute, SSAValue

from lightnet.dialects.launch import HostOp, LaunchOp, kernels
from lightnet.ir.types import spec_of
from lightnet.runtime.dtypes import BY_NAME


@dataclass(frozen=True)
class Access:
    """Bytes [begin, end) of a memory space, as one argument of a launch. Workspace is written before it is read, so that
    nothing comes in through it."""

    space: str
    begin: int
    end: int
    type: Attribute | None
    reads: bool
    writes: bool
    is_workspace: bool = False


class Accesses:
    """The accesses of the launches of a module, and who wrote last what is there: feed `wrote` in program order."""

    def __init__(self, module: ModuleOp):
        self._functions = kernels(module)
        self._of_function: dict[str, list[tuple[bool, bool, bool]]] = {}
        self._memory: dict[str, _Writers] = {}

    def of(self, line: LaunchOp | HostOp) -> list[Access]:
        """The accesses of one line of ``@main``, one a place. Host calls only read."""
        if isinstance(line, HostOp):
            size = _host_bytes(line)
            return [Access(p.space.data, p.offset.data, p.offset.data + size, None, True, False) for p in line.args]
        name = line.callee.string_value()
        if name not in self._functions:
            return []
        types = self._functions[name].body.block.arg_types[2:]
        found = []
        for place, type, (reads, writes, work) in zip(line.args, types, self._uses(name)):
            begin = place.offset.data
            found.append(Access(place.space.data, begin, begin + nbytes(type), type, reads and not work, writes, work))
        return found

    def writers(self, access: Access) -> list[int]:
        """The numbers of those that wrote the bytes last, in order."""
        memory = self._memory.get(access.space)
        return memory.of(access.begin, access.end) if memory is not None else []

    def wrote(self, access: Access, number: int) -> None:
        """Note that `number` wrote these bytes."""
        self._memory.setdefault(access.space, _Writers()).set(access.begin, access.end, number)

    def _uses(self, name: str) -> list[tuple[bool, bool, bool]]:
        """(read, written, workspace) of each memref argument of a function; functions call only earlier-known private ones."""
        if name not in self._of_function:
            self._of_function[name] = []  # a function that calls itself ends here
            block = self._functions[name].body.block
            self._of_function[name] = [self._use(arg) for arg in block.args[2:]]
        return self._of_function[name]

    def _use(self, argument: SSAValue) -> tuple[bool, bool, bool]:
        reads = writes = work = False
        waiting = [argument]
        while waiting:
            value = waiting.pop()
            for use in value.uses:
                op = use.operation
                if isinstance(op, func.CallOp):
                    reads, writes = True, True
                elif op.name.endswith(".store"):
                    writes = True
                elif op.name.endswith(".load"):
                    reads = True
                elif derived := [r for r in op.results if isinstance(r.type, MemRefType)]:
                    waiting += derived  # a view: what happens to it happens to the argument
                    work |= op.name == "memref.view"  # only workspace is untyped bytes
                else:
                    reads = writes = True
        return reads, writes, work


class _Writers:
    """Disjoint intervals of bytes, in order, each with the number that wrote it last."""

    def __init__(self) -> None:
        self.begins: list[int] = []
        self.parts: list[tuple[int, int, int]] = []

    def of(self, begin: int, end: int) -> list[int]:
        first, last = self._meeting(begin, end)
        return sorted({self.parts[i][2] for i in range(first, last)})

    def set(self, begin: int, end: int, number: int) -> None:
        if begin == end:
            return
        first, last = self._meeting(begin, end)
        old = self.parts[first:last]
        new = [(b, begin, n) for b, _, n in old[:1] if b < begin]
        new += [(begin, end, number), *((end, e, n) for _, e, n in old[-1:] if e > end)]
        self.parts[first:last] = new
        self.begins[first:last] = [b for b, _, _ in new]

    def _meeting(self, begin: int, end: int) -> tuple[int, int]:
        """The range of parts that share a byte with [begin, end)."""
        first = bisect_right(self.begins, begin)
        if first and self.parts[first - 1][1] > begin:
            first -= 1
        last = first
        while last < len(self.parts) and self.begins[last] < end:
            last += 1
        return first, last


def nbytes(type: Attribute) -> int:
    """Bytes of a tensor or memref type; 0 of any other."""
    if isinstance(type, TensorType):
        try:
            return spec_of(type).nbytes
        except TypeError:
            return 0
    if isinstance(type, MemRefType) and isinstance(type.element_type, FixedBitwidthType):
        return prod(type.get_shape()) * type.element_type.size
    return 0


def _host_bytes(line: HostOp) -> int:
    dims, dtype = line.attributes.get("dims"), line.attributes.get("dtype")
    if not isinstance(dims, ArrayAttr) or not isinstance(dtype, StringAttr) or dtype.data not in BY_NAME:
        return 0
    return prod(d.value.data for d in dims if isinstance(d, IntegerAttr)) * BY_NAME[dtype.data].size
