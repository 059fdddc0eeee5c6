"""The bytes that the lines of ``@main`` read and write: the places of launches, and what their functions do with the
memrefs.

A launch names places; which of them it writes stands in its function alone. Imports xDSL, `ir` and the dialects of
launches.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, NamedTuple, cast

from xdsl.dialects.builtin import DYNAMIC_INDEX, ArrayAttr, IntegerAttr, MemRefType, ModuleOp, StringAttr
from xdsl.dialects.func import CallOp, FuncOp
from xdsl.ir import Attribute, BlockArgument, SSAValue

from lightnet.dataclasses import dataclass, replace
from lightnet.dialects import tile_memory
from lightnet.dialects.launch import CopyOp, HostOp, LaunchLine, LaunchOp, kernels, memref_bytes
from lightnet.ir.place import PlaceAttr
from lightnet.runtime.dims import Dim, greatest
from lightnet.runtime.dtypes import BY_NAME

if TYPE_CHECKING:
    from lightnet.dialects.cuda_hopper import TmaLoadOp
    from lightnet.dialects.cuda_memory import AsyncCopyOp


class Use(NamedTuple):
    """A function's use of a memref argument. `is_bytes`: it makes typed views of it, as of workspace alone."""

    reads: bool
    writes: bool
    is_bytes: bool = False


@dataclass(frozen=True)
class Access:
    """Bytes [begin, end) of a memory space, as one argument of a line: as the memref `type` (None: unknown).
    `is_scratch`: those of the first thread, which no other touches. `is_open`: calls decide which, so it has all that
    there may be."""

    space: str
    begin: int
    end: int
    type: Attribute | None
    reads: bool
    writes: bool
    is_workspace: bool
    is_scratch: bool = False
    is_open: bool = False


class LineAccesses:
    """The accesses of the lines of a module's ``@main``."""

    def __init__(self, module: ModuleOp):
        self._functions = kernels(module)
        self._uses: dict[str, list[Use]] = {}

    def of(self, line: LaunchLine | HostOp | CopyOp) -> list[Access]:
        """The accesses of one line, one a place; none of a launch whose function is not there. Host calls only read: as
        many bytes as their tensor has, or all that follow where they do not say. Scratch is that of the first
        thread."""
        if isinstance(line, CopyOp):
            source, to = line.args
            return [_access(source, line.size, None, Use(True, False)), _access(to, line.size, None, Use(False, True))]
        if isinstance(line, HostOp):
            size = host_bytes(line)
            return [_access(p, size, None, Use(True, False)) for p in line.args]
        function = self._functions.get(line.callee.string_value())
        if function is None:
            return []
        types = [arg.type for arg in _memrefs(function)]
        found = [_access(p, memref_bytes(t), t, use) for p, t, use in zip(line.args, types, self.uses(function))]
        if isinstance(line, LaunchOp) and line.scratch is not None and found:
            last = found[-1]
            end = last.end if last.is_open else last.begin + greatest(line.scratch_bytes)
            found[-1] = replace(last, end=end, is_workspace=True, is_scratch=True)
        return found

    def uses(self, function: FuncOp) -> list[Use]:
        """A function's use of each of its memrefs."""
        name = function.sym_name.data
        if name not in self._uses:
            self._uses[name] = [self._use_of(arg) for arg in _memrefs(function)]
        return self._uses[name]

    def _use_of(self, argument: SSAValue) -> Use:
        """`use_of`, where a function of the module that the argument is handed to does with it what it does."""
        calls: list[Use] = []

        def called(op: CallOp, value: SSAValue) -> bool:
            function = self._functions.get(op.callee.string_value())
            if function is None:
                return False
            uses = dict(zip(_memrefs(function), self.uses(function)))
            calls.extend(uses[a] for a, v in zip(function.body.block.args, op.operands) if v is value)
            return True

        own = use_of(argument, called)
        return Use(*(any(parts) for parts in zip(own, *calls)))


def _access(place: PlaceAttr, size: int, type: Attribute | None, use: Use) -> Access:
    begin, end = place.offset.data, place.offset.data + size
    is_open = isinstance(end, Dim) or (isinstance(type, MemRefType) and DYNAMIC_INDEX in type.get_shape())
    if is_open:
        begin, end = 0, UNKNOWN  # where calls decide, it may be any bytes of the space
    return Access(place.space.data, begin, end, type, use.reads, use.writes, use.is_bytes, is_open=is_open)


def _memrefs(function: FuncOp) -> list[BlockArgument]:
    """The memref arguments of a function."""
    return [arg for arg in function.body.block.args if isinstance(arg.type, MemRefType)]


def use_of(argument: SSAValue, called: Callable[[CallOp, SSAValue], bool] | None = None) -> Use:
    """The use of a memref argument in its function. Whatever is no load, store or view of it counts as both, but
    for calls that `called` takes."""
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
            elif op.name in (
                "cuda.async_copy",
                "cuda.tma_load",
            ):  # by name: a compilation for processors need not import the dialect
                copy = cast("AsyncCopyOp | TmaLoadOp", op)
                reads, writes = reads or copy.source is value, writes or copy.destination is value
            elif isinstance(op, CallOp) and called is not None and called(op, value):
                continue
            elif derived and not op.regions:  # a view: what happens to it happens to the argument
                waiting += derived
                is_bytes |= op.name == "memref.view"
            else:
                reads = writes = True
    return Use(reads, writes, is_bytes)


#: Bytes that a host call may read where it does not say, and more than any space has.
UNKNOWN = 1 << 62


def host_bytes(line: HostOp) -> int:
    """Bytes of the tensor of a host call."""
    dims, dtype = line.attributes.get("dims"), line.attributes.get("dtype")
    if not isinstance(dims, ArrayAttr) or not isinstance(dtype, StringAttr) or dtype.data not in BY_NAME:
        return UNKNOWN
    if not all(isinstance(d, IntegerAttr) and d.value.data >= 0 for d in dims):
        return UNKNOWN
    return prod(d.value.data for d in dims if isinstance(d, IntegerAttr)) * BY_NAME[dtype.data].size
