"""Relocatable ELF objects (64 bits, little endian), as LLVM writes them: reading them, and giving one a table of data.

What is read comes from our own code generator, or from its cache on disk, whose files may be damaged. Source: the
System V ABI, chapters 4 (object files) and 5, and its AMD64 supplement. Imports the standard library.
"""

from __future__ import annotations

import struct

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError

X86_64, AARCH64 = 62, 183
#: Section types and flags.
PROGBITS, SYMTAB, RELA, NOBITS = 1, 2, 4, 8
WRITE, ALLOC, EXEC, TLS = 1, 2, 4, 1024
#: Special section indices of symbols.
UNDEFINED, ABSOLUTE, COMMON = 0, 0xFFF1, 0xFFF2

#: Bytes of zeros that a file stands for, and the alignment of a section in memory, at most: that of a page, since
#: images are mapped.
MAX_ZEROS, MAX_ALIGN = 1 << 28, 4096

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELA = struct.Struct("<QQq")
#: The section that `with_data` adds.
_DATA_SECTION = b".rodata.weights\0"
_MAGIC = b"\x7fELF\x02\x01"


@dataclass(frozen=True)
class Section:
    """A section header, with its bytes (zeros where the file has none)."""

    name: str
    kind: int
    flags: int
    offset: int
    link: int
    info: int
    align: int
    data: bytes


@dataclass(frozen=True)
class ObjectSymbol:
    """A symbol: `section` is the index of the one it stands in, at `value`; `is_local` says that other objects cannot
    name it."""

    name: str
    section: int
    value: int
    is_local: bool


@dataclass(frozen=True)
class Object:
    """A relocatable object. `relocations` maps a section's index to (offset, type, symbol's index, addend)."""

    machine: int
    sections: list[Section]
    symbols: list[ObjectSymbol]
    relocations: dict[int, list[tuple[int, int, int, int]]]


def is_elf(image: bytes) -> bool:
    """Return whether these are the bytes of a 64-bit little-endian ELF file."""
    return image[: len(_MAGIC)] == _MAGIC


def elf_machine_of(image: bytes) -> int:
    """The machine that an ELF object is for: `X86_64`, `AARCH64`, or another number of the ABI."""
    return _HEADER.unpack_from(image)[2]


def read_object(image: bytes) -> Object:
    """The contents of an object file. Raises LightNetError for anything else."""
    if not is_elf(image):
        raise LightNetError("this is no 64-bit little-endian ELF object")
    try:
        return _read(image)
    except (IndexError, OverflowError, ValueError, struct.error):
        raise LightNetError("the object file is damaged") from None


def _read(image: bytes) -> Object:
    _, _, machine, _, _, _, start, _, _, _, _, _, count, names = _HEADER.unpack_from(image)
    headers = [_SECTION.unpack_from(image, start + i * _SECTION.size) for i in range(count)]
    _check(headers, len(image))
    data = [bytes(h[5]) if h[1] == NOBITS else image[h[4] : h[4] + h[5]] for h in headers]
    sections = [
        Section(_name(data[names], h[0]), h[1], h[2], h[4], h[6], h[7], max(h[8], 1), d) for h, d in zip(headers, data)
    ]
    symbols: list[ObjectSymbol] = []
    relocations: dict[int, list[tuple[int, int, int, int]]] = {}
    for section in sections:
        if section.kind == SYMTAB:
            strings = data[section.link]
            symbols = [
                ObjectSymbol(_name(strings, name), index, value, info >> 4 == 0)
                for name, info, _, index, value, _ in _SYMBOL.iter_unpack(section.data)
            ]
        elif section.kind == RELA:
            rows = _RELA.iter_unpack(section.data)
            relocations[section.info] = [(at, info & 0xFFFFFFFF, info >> 32, addend) for at, info, addend in rows]
    return Object(machine, sections, symbols, relocations)


def _check(headers: list[tuple[int, ...]], size: int) -> None:
    """Raise ValueError unless sections lie in a file of `size` bytes, and are no more than it and some zeros: nothing
    is made before that is known."""
    for _, kind, flags, _, offset, length, _, _, align, _ in headers:
        if kind != NOBITS and offset + length > size:
            raise ValueError("a section behind the end of the file")
        if align & (align - 1) or (flags & ALLOC and align > MAX_ALIGN):
            raise ValueError("an alignment that no page has")
    if sum(h[5] for h in headers) > size + MAX_ZEROS:
        raise ValueError("sections that are larger than the file")


def _name(strings: bytes, start: int) -> str:
    return strings[start : strings.index(b"\0", start)].decode()


def with_data(image: bytes, symbol: str, size: int, align: int) -> tuple[bytes, bytes]:
    """The object `image` with a read-only section that defines its undefined `symbol`, of `size` bytes, as two parts:
    what stands before these bytes in the file, and what stands behind.

    The section headers move to the end. LLVM could place such data, but only from a text of three characters a byte.
    Raises LightNetError where the object has no such undefined symbol.
    """
    header = list(_HEADER.unpack_from(image))
    start, count = header[6], header[12]
    raw = [list(_SECTION.unpack_from(image, start + i * _SECTION.size)) for i in range(count)]
    patched = bytearray(image)
    table = next(h for h in raw if h[1] == SYMTAB)
    for k, entry in enumerate(read_object(image).symbols):
        if entry.name == symbol and entry.section == UNDEFINED:
            at = table[4] + k * _SYMBOL.size
            label, info, other, _, _, _ = _SYMBOL.unpack_from(patched, at)
            # An object (1) of the binding and visibility that the reference has.
            _SYMBOL.pack_into(patched, at, label, info & 0xF0 | 1, other, count, 0, size)
            break
    else:
        raise LightNetError(f"the object does not refer to '{symbol}'")
    strings = raw[header[13]]  # a copy of the table of names, with one more
    names = image[strings[4] : strings[4] + strings[5]]
    strings[4], strings[5] = len(patched), len(names) + len(_DATA_SECTION)
    patched += names + _DATA_SECTION
    patched += bytes(-len(patched) % align)
    raw.append([len(names), PROGBITS, ALLOC, 0, len(patched), size, 0, 0, align, 0])
    behind = bytes(-(len(patched) + size) % 8)
    header[6], header[12] = len(patched) + size + len(behind), count + 1
    _HEADER.pack_into(patched, 0, *header)
    return bytes(patched), behind + b"".join(_SECTION.pack(*h) for h in raw)
