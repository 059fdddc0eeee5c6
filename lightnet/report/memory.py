"""Who wrote last what is read at level 4, and what memory tensors take. Imports xDSL, `ir` and the launch dialect."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Attribute

from lightnet.dialects.accesses import Access, LineAccesses
from lightnet.dialects.launch import HostOp, LaunchLine, memref_bytes
from lightnet.ir.layout import byte_size

__all__ = ["Access", "Accesses", "nbytes"]


class Accesses:
    """The accesses of the launches of a module, and who wrote last what is there: feed `wrote` in program order."""

    def __init__(self, module: ModuleOp):
        self._lines = LineAccesses(module)
        self._memory: dict[str, _Writers] = {}

    def of(self, line: LaunchLine | HostOp) -> list[Access]:
        """The accesses of one line of ``@main``, one a place. Workspace is written before it is read: nothing comes in through it."""
        return [replace(a, reads=a.reads and not a.is_workspace) for a in self._lines.of(line)]

    def writers(self, access: Access) -> list[int]:
        """The numbers of those that wrote the bytes last, in order."""
        memory = self._memory.get(access.space)
        return memory.of(access.begin, access.end) if memory is not None else []

    def wrote(self, access: Access, number: int) -> None:
        """Note that `number` wrote these bytes."""
        self._memory.setdefault(access.space, _Writers()).set(access.begin, access.end, number)


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
            return byte_size(type)
        except TypeError:
            return 0
    return memref_bytes(type)
