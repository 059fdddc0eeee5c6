"""Machine code of a saved executable, mapped into this process: no LLVM, no compiling, a copy of what is written only.

Imports the standard library.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

from lightnet.diagnostics import LightNetError

#: A host service: ``void (i64 call, ptr* args)``.
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.POINTER(ctypes.c_void_p))
#: Images are laid out in pages of this size.
PAGE = 4096
_MAIN = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_READ_EXECUTE = 1 | 4  # PROT_READ | PROT_EXEC, which are the same numbers on every system


@dataclass(frozen=True)
class Image:
    """Linked machine code. `data` is mapped as a whole, at any address: up to `writable` it is executable, from there on it is
    written; `exports` has the offsets of global symbols; at an offset of `imports` the address of the named function is
    stored, at one of `relative` its own address plus what stands there."""

    data: bytes | memoryview
    writable: int
    exports: dict[str, int]
    imports: dict[str, int] = field(default_factory=dict)
    relative: tuple[int, ...] = ()

    def header(self) -> dict[str, object]:
        """Everything but the bytes, as JSON values."""
        return {"writable": self.writable, "exports": self.exports, "imports": self.imports, "relative": self.relative}


class LoadedImage:
    """An `Image` at an address of this process. Keep it alive while an address from it is in use.

    `file` and `offset`, a descriptor and a multiple of the page size, say where its bytes stand in a file: its pages are
    shared then with every process that runs them. Raises LightNetError where the system lets no code be loaded, and for a function that the
    process does not have.
    """

    def __init__(self, image: Image, file: int | None = None, offset: int = 0):
        size = len(image.data)
        places = (*image.exports.values(), *image.imports.values(), *image.relative)
        fits = all(type(n) is int for n in (image.writable, *places)) and all(0 <= n <= size - 8 for n in places)
        if not fits or not 0 < image.writable <= size or image.writable % PAGE or size % PAGE:
            raise LightNetError("the machine code is damaged")
        self._image = image
        self._map = None
        if file is not None and offset % mmap.ALLOCATIONGRANULARITY == 0:
            self._map = mmap.mmap(
                file, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE, offset=offset
            )
            if not self._finish():
                self._map = None  # a file system from which nothing may be run
        if self._map is None:
            self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self._map[:] = image.data
            if not self._finish():
                raise LightNetError(f"the system refuses to run loaded code: {os.strerror(ctypes.get_errno())}")

    def _finish(self) -> bool:
        """Write the addresses, and make the code executable; False where the system refuses."""
        assert self._map is not None
        self._view = ctypes.c_char.from_buffer(self._map)  # keeps the map where it is
        self._base = ctypes.addressof(self._view)
        image, words = self._image, memoryview(self._map)
        for at in image.relative:
            value = int.from_bytes(words[at : at + 8], "little") + self._base
            words[at : at + 8] = value.to_bytes(8, "little")
        for name, at in image.imports.items():
            words[at : at + 8] = _address_of(name).to_bytes(8, "little")
        return _libc().mprotect(self._base, image.writable, _READ_EXECUTE) == 0

    def address(self, symbol: str) -> int:
        """The address of an exported symbol; LightNetError when there is none."""
        if symbol not in self._image.exports:
            raise LightNetError(f"the compiled objects have no '{symbol}'")
        return self._base + self._image.exports[symbol]

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
        try:
            return ctypes.cast(getattr(library(), name), ctypes.c_void_p).value or 0
        except (AttributeError, OSError):
            continue
    raise LightNetError(f"this process has no function '{name}', which the executable calls")
