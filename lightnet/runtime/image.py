"""Machine code of a saved executable, copied into this process and linked with it: no LLVM, no compiling.

Imports the standard library.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.runtime.lnx import PAGE

#: A host service: ``void (i64 call, ptr* args)``.
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.POINTER(ctypes.c_void_p))
_MAIN = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_READ_EXECUTE = 1 | 4  # PROT_READ | PROT_EXEC, which are the same numbers on every system


@dataclass(frozen=True)
class Image:
    """Linked machine code. `data` is mapped as a whole, at any address: up to `writable` it is executable, from there
    on it is written; `exports` has the offsets of global symbols; at an offset of `imports` the address of the named
    function is stored, at one of `relative` its own address plus what stands there."""

    data: bytes | memoryview
    writable: int
    exports: dict[str, int]
    imports: dict[str, int]
    relative: tuple[int, ...]

    def header(self) -> dict[str, object]:
        """Everything but the bytes, as JSON values."""
        return {"writable": self.writable, "exports": self.exports, "imports": self.imports, "relative": self.relative}


class LoadedImage:
    """An `Image` at an address of this process: a copy, as whoever changes a file changes what is mapped of it. Keep it
    alive while an address from it is in use.

    Raises LightNetError where the system lets no code be loaded, and for a function that the process does not have.
    """

    def __init__(self, image: Image):
        size = len(image.data)
        places = (*image.exports.values(), *image.imports.values(), *image.relative)
        fits = all(type(n) is int for n in (image.writable, *places)) and all(0 <= n <= size - 8 for n in places)
        if not fits or not 0 < image.writable <= size or image.writable % PAGE or size % PAGE:
            raise LightNetError("the machine code is damaged")
        self._exports = dict(image.exports)
        self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._map[:] = image.data
        self._view = ctypes.c_char.from_buffer(self._map)  # keeps the map where it is
        self._base = ctypes.addressof(self._view)
        self._link(image)
        if _libc().mprotect(self._base, image.writable, _READ_EXECUTE):
            raise LightNetError(f"the system refuses to run loaded code: {os.strerror(ctypes.get_errno())}")

    def _link(self, image: Image) -> None:
        """Write the addresses."""
        words = memoryview(self._map)
        for at in image.relative:
            value = int.from_bytes(words[at : at + 8], "little") + self._base & 0xFFFFFFFFFFFFFFFF
            words[at : at + 8] = value.to_bytes(8, "little")
        for name, at in image.imports.items():
            words[at : at + 8] = _address_of(name).to_bytes(8, "little")

    def address(self, symbol: str) -> int:
        """The address of an exported symbol; LightNetError when there is none."""
        if symbol not in self._exports:
            raise LightNetError(f"the compiled objects have no '{symbol}'")
        return self._base + self._exports[symbol]

    def entry(self, symbol: str = "ln_main") -> Callable[[int], None]:
        """The entry, as a function of the address of a frame (`program.FRAME`)."""
        return _MAIN(self.address(symbol))


@cache
def _libc() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return library


def _libraries() -> Sequence[Callable[[], ctypes.CDLL]]:
    return _libc, lambda: ctypes.CDLL("libm.so.6")


def _address_of(name: str) -> int:
    """The address of a function of the process, or of the C library's mathematics."""
    for library in _libraries():
        with suppress(AttributeError, OSError):
            return ctypes.cast(getattr(library(), name), ctypes.c_void_p).value or 0
    raise LightNetError(f"this process has no function '{name}', which the executable calls")
