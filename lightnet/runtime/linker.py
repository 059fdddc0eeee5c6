"""A static linker: objects become one image, in which all is resolved but the addresses of the C library's functions.

A saved executable holds such an image, so that running it needs no LLVM: importing that takes longer than everything
else a small network does, and as much memory as its weights. `image.py` loads it. Machines that this does not know (all
but x86-64 ELF) keep their objects, and LLVM links them at load. Source of the relocations: the System V ABI, AMD64
supplement, table 4.9. Imports the standard library.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence

from lightnet.diagnostics import LightNetError
from lightnet.runtime import elf
from lightnet.runtime.arrays import align_up
from lightnet.runtime.image import Image
from lightnet.runtime.lnx import PAGE

#: Relocations by number: absolute, relative to the place (to a function's stub where it is elsewhere), through the GOT.
_ABS64, _PC32, _PLT32, _GOTPCREL, _PC64, _GOTPCRELX, _REX_GOTPCRELX = 1, 2, 4, 9, 24, 41, 42
_STUB = b"\xff\x25\0\0\0\0\xcc\xcc"  # jmp *rel32(%rip): over the whole address space, by way of the GOT


def can_link(objects: Sequence[bytes]) -> bool:
    """Return whether `link` knows this kind of objects."""
    return all(elf.is_elf(o) and elf.elf_machine_of(o) == elf.X86_64 for o in objects)


def exported_symbols(objects: Sequence[bytes]) -> list[str]:
    """The global symbols that are called from outside: those of the compiler's own prefix."""
    found = {
        s.name: None
        for o in objects
        for s in elf.read_object(o).symbols
        if not s.is_local and s.section != elf.UNDEFINED
    }
    return [name for name in found if name.startswith("ln_")]


def link(objects: Sequence[bytes], exports: Sequence[str]) -> Image:
    """Link objects that `can_link` takes; `exports` are the symbols to find later. Raises LightNetError where they do
    not fit together: a symbol that two define, or that none of them defines and that is to be exported."""
    try:
        return _Linker([elf.read_object(image) for image in objects]).link(exports)
    except (IndexError, OverflowError, struct.error):
        raise LightNetError("the compiled objects are damaged, or too large to be linked") from None


class _Linker:
    def __init__(self, objects: Sequence[elf.Object]):
        self.objects = objects
        self.data = bytearray()
        self.base: dict[tuple[int, int], int] = {}  # (object, section) -> offset in the image
        self.globals: dict[str, int] = {}
        self.imports: dict[str, int] = {}  # name -> offset of its entry of the GOT
        self.local: dict[int, int] = {}  # offset of something of the image -> offset of its entry of the GOT
        self.stubs: dict[str, int] = {}
        self.relative: list[int] = []

    def link(self, exports: Sequence[str]) -> Image:
        """Lay the sections out (code, constants, variables), then resolve every relocation."""
        self._place(lambda flags: flags & elf.EXEC)
        self._define_functions()
        self._reserve_stubs()
        self._place(lambda flags: not flags & (elf.EXEC | elf.WRITE))
        self.data += bytes(-len(self.data) % PAGE)
        writable = len(self.data)
        self._place(lambda flags: flags & elf.WRITE and not flags & elf.EXEC)
        self._define_functions()
        self.data += bytes(-len(self.data) % 8)
        for name in self.stubs:
            self._got(name)
        for at, kind, addend, target in list(self._relocations()):
            self._resolve(at, kind, addend, target)
        for name, stub in self.stubs.items():
            struct.pack_into("<2si", self.data, stub, _STUB[:2], self.imports[name] - (stub + 6))
        self.data += bytes(-len(self.data) % PAGE)
        if missing := [name for name in exports if name not in self.globals]:
            raise LightNetError(f"the compiled objects have no '{missing[0]}'")
        found = {name: self.globals[name] for name in exports}
        return Image(bytes(self.data), writable, found, self.imports, tuple(self.relative))

    def _place(self, wanted: Callable[[int], object]) -> None:
        for i, obj in enumerate(self.objects):
            for k, section in enumerate(obj.sections):
                # Tables of unwinding are of no use: nothing unwinds through compiled code.
                takes = section.flags & elf.ALLOC and section.name != ".eh_frame" and wanted(section.flags)
                if not takes:
                    continue
                if section.flags & elf.TLS:
                    raise LightNetError("the compiled objects have thread-local variables, which cannot be saved")
                self.data += bytes(align_up(len(self.data), section.align) - len(self.data))
                self.base[i, k] = len(self.data)
                self.data += section.data

    def _define_functions(self) -> None:
        """Find the places of the global symbols of the sections that have been placed so far."""
        for i, obj in enumerate(self.objects):
            for symbol in obj.symbols:
                if symbol.is_local or (i, symbol.section) not in self.base:
                    continue
                place = self.base[i, symbol.section] + symbol.value
                if self.globals.setdefault(symbol.name, place) != place:
                    raise LightNetError(f"two compiled objects define '{symbol.name}'")

    def _reserve_stubs(self) -> None:
        """A jump for each function that is called and stands outside of the image, within reach of the calls."""
        self.data += bytes(-len(self.data) % 16)
        for i, obj in enumerate(self.objects):
            for section, rows in obj.relocations.items():
                if (i, section) not in self.base:
                    continue
                for _, kind, k, _ in rows:
                    symbol = obj.symbols[k]
                    outside = symbol.section == elf.UNDEFINED and symbol.name not in self.globals
                    if kind == _PLT32 and outside and symbol.name not in self.stubs:
                        self.stubs[symbol.name] = len(self.data)
                        self.data += _STUB

    def _relocations(self) -> Iterator[tuple[int, int, int, int | str]]:
        """(place, type, addend, target): an offset in the image, or the name of something outside."""
        for i, obj in enumerate(self.objects):
            for section, rows in obj.relocations.items():
                if (start := self.base.get((i, section))) is None:
                    continue
                for at, kind, k, addend in rows:
                    yield start + at, kind, addend, self._target(i, obj.symbols[k])

    def _target(self, i: int, symbol: elf.ObjectSymbol) -> int | str:
        if symbol.section == elf.UNDEFINED:
            return self.globals.get(symbol.name, symbol.name)
        if (start := self.base.get((i, symbol.section))) is None:
            raise LightNetError(f"'{symbol.name}' stands in a section of an unknown kind")
        return start + symbol.value

    def _resolve(self, at: int, kind: int, addend: int, target: int | str) -> None:
        if kind in (_GOTPCREL, _GOTPCRELX, _REX_GOTPCRELX):
            place: int | str = self._got(target)
        elif kind == _PLT32 and isinstance(target, str):
            place = self.stubs[target]
        else:
            place = target
        if isinstance(place, str):
            raise LightNetError(f"the compiled objects need the address of '{place}' in a way that cannot be saved")
        if kind == _ABS64:
            struct.pack_into("<q", self.data, at, place + addend)
            self.relative.append(at)
        elif kind == _PC64:
            struct.pack_into("<q", self.data, at, place + addend - at)
        elif kind in (_PC32, _PLT32, _GOTPCREL, _GOTPCRELX, _REX_GOTPCRELX):
            struct.pack_into("<i", self.data, at, place + addend - at)
        else:
            raise LightNetError(f"the compiled objects have a relocation of type {kind}, which cannot be saved")

    def _got(self, target: int | str) -> int:
        """The offset of the entry of the global offset table with the address of `target`, made when it is first asked
        for."""
        table: dict = self.imports if isinstance(target, str) else self.local
        if target not in table:
            table[target] = len(self.data)
            self.data += struct.pack("<q", target if isinstance(target, int) else 0)
            if isinstance(target, int):
                self.relative.append(table[target])
        return table[target]
