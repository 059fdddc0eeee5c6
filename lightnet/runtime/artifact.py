"""A saved executable: one file with a JSON header, the object code and the static tensors, page-aligned to be mapped.

Layout: the magic ``LNEXE2\\n``, the header's length and CRC-32 (8 and 4 bytes, little endian), the header, then sections at
multiples of 4096. Loading runs nothing from the file but its machine code, so load only files that you trust; checksums of
the header, the code and the texts find damage, not malice (tensors are mapped, not read, and so not summed). No xDSL.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import numpy as np

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.runtime.arrays import by_name
from lightnet.runtime.dtypes import BY_NAME, BY_NP
from lightnet.runtime.files import map_file, write_atomic
from lightnet.runtime.program import ALIGNMENT, Instance, Program, aligned

MAGIC = b"LNEXE2\n\0"
PAGE = 4096
_FIXED = struct.Struct("<QI")


def save(path: str | Path, program: Program, arrays: Mapping[str, np.ndarray], texts: Mapping[str, str]) -> None:
    """Write a program, named arrays and named texts; the file appears whole or not at all."""
    payload: list[Any] = [*program.objects, *(t.encode() for t in texts.values())]
    names = [*(f"object{i}" for i in range(len(program.objects))), *(f"text:{k}" for k in texts)]
    sections: dict[str, dict[str, Any]] = {n: {"size": len(d), "crc": zlib.crc32(d)} for n, d in zip(names, payload)}
    for name, array in arrays.items():
        array = np.asarray(array, order="C")
        sections[f"array:{name}"] = {"size": array.nbytes, "dtype": BY_NP[array.dtype].name, "dims": array.shape}
        payload.append(array.reshape(-1).view(np.uint8).data)
    header = {"program": program.header(), "objects": len(program.objects), "sections": sections}
    length = len(json.dumps(header)) + 32 * len(sections)  # room for the offsets
    position = _pages(len(MAGIC) + _FIXED.size + length)
    for entry in sections.values():
        entry["offset"], position = position, _pages(position + entry["size"])
    text = json.dumps(header).ljust(length).encode()

    def write(out: BinaryIO) -> None:
        out.write(MAGIC + _FIXED.pack(len(text), zlib.crc32(text)) + text)
        for entry, data in zip(sections.values(), payload):
            out.write(bytes(entry["offset"] - out.tell()))
            out.write(data)
        out.write(bytes(position - out.tell()))

    write_atomic(path, write)


def _pages(nbytes: int) -> int:
    return -(-nbytes // PAGE) * PAGE


def load(path: str | Path) -> tuple[Program, dict[str, np.ndarray], dict[str, str]]:
    """Read what `save` wrote; the arrays are views of the mapped file. Raises `LightNetError` for a damaged file."""
    where = SourceLoc(os.fspath(path))
    data = map_file(path)
    start = len(MAGIC) + _FIXED.size
    if bytes(data[: len(MAGIC)]) != MAGIC or len(data) < start:
        raise LightNetError("this is no executable saved by this version of LightNet", where)
    length, crc = _FIXED.unpack(data[len(MAGIC) : start])
    text = data[start : start + length]
    if len(text) != length or zlib.crc32(text) != crc:
        raise LightNetError("the file is damaged or cut short: its header does not match its checksum", where)
    try:
        return _parse(json.loads(bytes(text)), data, where)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise LightNetError("the header says nothing sensible: the file was made by something else", where) from None


def _parse(header: Any, data: memoryview, where: SourceLoc) -> tuple[Program, dict[str, np.ndarray], dict[str, str]]:
    raw: dict[str, memoryview] = {}
    for name, entry in header["sections"].items():
        part = data[entry["offset"] : entry["offset"] + entry["size"]]
        if len(part) != entry["size"] or ("crc" in entry and zlib.crc32(part) != entry["crc"]):
            raise LightNetError(f"the file is damaged or cut short: section '{name}'", where)
        raw[name] = part
    objects = tuple(bytes(raw[f"object{i}"]) for i in range(header["objects"]))
    arrays = {
        name.removeprefix("array:"): np.frombuffer(raw[name], BY_NAME[e["dtype"]].np).reshape(e["dims"])
        for name, e in header["sections"].items() if name.startswith("array:")
    }  # fmt: skip
    texts = {k.removeprefix("text:"): bytes(v).decode() for k, v in raw.items() if k.startswith("text:")}
    program = Program.from_header(header["program"], objects)
    if arrays["static"].nbytes < program.memory.get("static", 0):
        raise ValueError("the static tensors are too short")
    return program, arrays, texts


def check_machine(program: Program, where: SourceLoc | None = None) -> None:
    """Refuse machine code for another architecture, or that uses what this processor lacks."""
    import llvmlite.binding as llvm

    arch, here = (triple.partition("-")[0] for triple in (program.triple, llvm.get_default_triple()))
    if arch != here:
        raise LightNetError(f"the executable is for {arch} processors, and this is a {here}: compile it here", where)
    have = llvm.get_host_cpu_features()
    lacking = [f[1:] for f in program.features.split(",") if f.startswith("+") and not have.get(f[1:], False)]
    if lacking:
        more = f" and {len(lacking) - 8} more" if len(lacking) > 8 else ""
        raise LightNetError(f"the executable is for {program.cpu}, and this processor ({llvm.get_host_cpu_name()}) lacks "
                            f"{', '.join(lacking[:8])}{more}: compile it here", where)  # fmt: skip


class SavedExecutable:
    """An executable read from a file: called like `lightnet.Executable`; needs no compiler, and its params are fixed."""

    def __init__(self, path: str | Path):
        program, arrays, self.texts = load(path)
        check_machine(program, SourceLoc(os.fspath(path)))
        static = arrays.pop("static")
        if static.ctypes.data % ALIGNMENT:
            static, mapped = aligned(max(static.nbytes, 1)), static
            static[: mapped.nbytes] = mapped
        self.instance = Instance(program, static, {k.removeprefix("default:"): v for k, v in arrays.items()})
        self.program = program

    def __call__(self, feeds: Mapping[str, Any] | None = None, *, outputs: Sequence[str] | None = None,
                 stream: TextIO | None = None) -> dict[str, np.ndarray]:  # fmt: skip
        """Run on `feeds` (input name → array); returns the outputs by name, or those called `outputs`."""
        return self.program.pick(outputs, lambda: self.instance.call(by_name(feeds), stream=stream))

    run = __call__

    @property
    def inputs(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Shape and dtype of every input by name."""
        return types_of((*self.program.inputs, *self.program.unread))

    @property
    def outputs(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Shape and dtype of every output by name, in order."""
        return types_of(self.program.outputs)


def types_of(tensors: Sequence[Any]) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Shape and dtype by name."""
    return {t.name: (t.dims, BY_NAME[t.dtype].np) for t in tensors}


def load_executable(path: str | Path) -> SavedExecutable:
    """Load what `Executable.save` wrote. Raises `LightNetError` for a damaged file or another machine's code."""
    return SavedExecutable(path)
