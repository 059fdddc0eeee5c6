"""Machine code in this process: objects linked by LLVM's JIT linker, and the entry that runs a network.

It loads what `backends.llvm.jit` made, now or in an earlier process, and compiles nothing. Imports NumPy and llvmlite.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache

import llvmlite.binding as llvm

from lightnet.diagnostics import LightNetError
from lightnet.runtime.program import MAIN_ENTRY

#: Bytes of a page of memory.
PAGE = mmap.PAGESIZE

_MAIN = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_numbers = itertools.count()


#: `madvise`'s advice that pages are not needed; those of a file come back from it.
_DONT_NEED = 4
#: Of an ELF file's program headers: a segment that is loaded, and the flag of one that is written.
_LOADED, _WRITTEN = 1, 2


@cache
def initialize() -> None:
    """Make LLVM's host target available."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    release_library()  # what LLVM runs and reads while it starts is no more than that


def release_library() -> None:
    """Give the pages of LLVM's code and constants back, and what it has freed: up to 70 and 15 MB, which would count
    beside all that a process does after it has compiled. They are mapped again where they are needed. Does nothing
    where the system does not say where they are."""
    with suppress(OSError, ValueError, AttributeError, struct.error), open("/proc/self/maps", encoding="utf-8") as maps:
        system, name = ctypes.CDLL(None), str(llvm.ffi.lib._name)
        parts = _constant_parts(name)
        for line in maps:
            if not line.rstrip().endswith(name):
                continue
            addresses, _, offset = line.split()[:3]
            start, stop = (int(part, 16) for part in addresses.split("-"))
            shift = start - int(offset, 16)
            for first, last in parts:
                begin, end = max(start, first + shift), min(stop, last + shift)
                if begin < end:
                    system.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _DONT_NEED)
        system.malloc_trim(ctypes.c_size_t(0))  # glibc's


@cache
def _constant_parts(name: str) -> list[tuple[int, int]]:
    """Begin and end of the whole pages of the parts of an ELF file that are loaded and never written, so that a process
    has nothing of its own there. (What is relocated is written once, and then protected.)"""
    with open(name, "rb") as file:
        head = file.read(64)
        if head[:6] != b"\x7fELF\x02\x01":
            return []
        (where,), (size, count) = struct.unpack_from("<Q", head, 32), struct.unpack_from("<HH", head, 54)
        file.seek(where)
        table = file.read(size * count)
    found = []
    for i in range(count):
        kind, flags, offset, _, _, length = struct.unpack_from("<IIQQQQ", table, i * size)
        if kind == _LOADED and not flags & _WRITTEN:
            begin, end = -(-offset // PAGE) * PAGE, (offset + length) // PAGE * PAGE
            if begin < end:  # a page that has part of another segment may be written
                found.append((begin, end))
    return found


class NativeCode:
    """Linked objects. Keep it alive while an address from it is in use.

    `objects` are relocatable object files (`bytes`); symbols that they leave open come from the process (libm).
    LightNetError if they do not link.
    """

    def __init__(self, objects: Sequence[bytes]):
        initialize()
        self._jit = llvm.create_lljit_compiler(use_jit_link=True)
        builder = llvm.JITLibraryBuilder()
        for image in objects:
            builder.add_object_img(image)
        builder.add_current_process()
        self._name = f"lightnet.{next(_numbers)}"
        try:
            self._library = builder.link(self._jit, self._name)
        except RuntimeError as error:
            raise LightNetError(f"the compiled objects do not link: {error}") from None
        self._trackers: list[object] = []
        self._addresses: dict[str, int] = {}

    def address(self, symbol: str) -> int:
        """The address of a symbol; LightNetError when there is none."""
        if (known := self._addresses.get(symbol)) is not None:
            return known
        try:
            tracker = self._jit.lookup(self._name, symbol)
        except RuntimeError as error:
            raise LightNetError(f"the compiled objects have no '{symbol}': {error}") from None
        self._trackers.append(tracker)  # its collection would unload the library
        self._addresses[symbol] = tracker[symbol]
        return self._addresses[symbol]

    def entry(self) -> Callable[[int], None]:
        """`ENTRY`, as a function of the address of a frame."""
        return _MAIN(self.address(MAIN_ENTRY))
