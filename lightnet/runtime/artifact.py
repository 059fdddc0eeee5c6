"""A saved executable: one file with a JSON header, machine code and the static tensors, page-aligned to be mapped.

Layout: the magic ``LNEXE4\\n``, the header's length and CRC-32 (8 and 4 bytes, little endian), the header, then sections at
multiples of 4096. A file holds one or several variants of the network, for processors of different abilities; equal contents
stand in it once. Loading runs nothing from the file but its machine code, so load only files that you trust; checksums of
the header and of what is read find damage, not malice (tensors are mapped, not read, and so not summed). No xDSL, no LLVM.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

import numpy as np

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.runtime import dtypes, processor
from lightnet.runtime.arrays import ALIGNMENT, aligned, by_name
from lightnet.runtime.dtypes import BY_NAME
from lightnet.runtime.files import map_descriptor, open_file, write_atomic
from lightnet.runtime.image import Image, LoadedImage
from lightnet.runtime.index_checks import is_check
from lightnet.runtime.instance import Instance
from lightnet.runtime.machine import Opened
from lightnet.runtime.program import CUDA_TRIPLE, Program

if TYPE_CHECKING:
    from lightnet.runtime.cuda.program import CudaCode, CudaInstance

MAGIC = b"LNEXE4\n\0"
PAGE = 4096
_FIXED = struct.Struct("<QI")


@dataclass(frozen=True)
class Variant:
    """A network compiled for one kind of processor: the program, the bytes of its static space, what inputs (and residents)
    hold that nobody feeds, and, where a device runs it, the code for that."""

    program: Program
    static: np.ndarray
    defaults: Mapping[str, np.ndarray]
    cuda: CudaCode | None = None


class _Sections:
    """The sections of a file that is being made; equal contents are one section."""

    def __init__(self) -> None:
        self.entries: dict[str, dict[str, Any]] = {}
        self.payload: list[Any] = []

    def add(self, name: str, data: Any) -> str:
        """Add bytes with a checksum; the name of the section that has them."""
        return self._add(name, data, {"size": len(data), "crc": zlib.crc32(data)})

    def add_array(self, name: str, array: np.ndarray) -> str:
        """Add an array, which is mapped where it is used; the name of the section that has it."""
        array = np.asarray(array, order="C")
        entry = {"size": array.nbytes, "dtype": dtypes.BY_NP[array.dtype].name, "dims": array.shape}
        return self._add(name, array.reshape(-1).view(np.uint8).data, entry)

    def _add(self, name: str, data: Any, entry: dict[str, Any]) -> str:
        for (other, known), there in zip(self.entries.items(), self.payload):
            if known == entry and memoryview(there) == memoryview(data):
                return other
        self.entries[name] = entry
        self.payload.append(data)
        return name


def save(path: str | Path, variants: Sequence[Variant], texts: Mapping[str, str]) -> None:
    """Write variants of one network, the best first, and named texts; the file appears whole or not at all."""
    sections = _Sections()
    described = [_describe(sections, i, variant) for i, variant in enumerate(variants)]
    named = {k: sections.add(f"text:{k}", t.encode()) for k, t in texts.items()}
    entries = sections.entries
    header = {"variants": described, "texts": named, "sections": entries}
    length = len(json.dumps(header)) + 32 * len(entries)  # room for the offsets
    position = _pages(len(MAGIC) + _FIXED.size + length)
    for entry in entries.values():
        entry["offset"], position = position, _pages(position + entry["size"])
    text = json.dumps(header).ljust(length).encode()

    def write(out: BinaryIO) -> None:
        out.write(MAGIC + _FIXED.pack(len(text), zlib.crc32(text)) + text)
        at = len(MAGIC) + _FIXED.size + len(text)  # a pipe does not say where it is
        for entry, data in zip(entries.values(), sections.payload):
            out.write(bytes(entry["offset"] - at))
            out.write(data)
            at = entry["offset"] + entry["size"]
        out.write(bytes(position - at))

    write_atomic(path, write)


def _describe(sections: _Sections, i: int, variant: Variant) -> dict[str, Any]:
    from lightnet.runtime import linker

    program = variant.program
    code: dict[str, Any]
    if variant.cuda is not None:
        code = {"ptx": sections.add(f"code{i}", variant.cuda.ptx.encode()), **variant.cuda.header()}
    elif linker.can_link(program.objects):
        image = linker.link(program.objects, linker.entries(program.objects))
        code = {"image": sections.add(f"code{i}", image.data), **image.header()}
    else:
        code = {"objects": [sections.add(f"object{i}.{k}", o) for k, o in enumerate(program.objects)]}
    defaults = {k: sections.add_array(f"default{i}:{k}", v) for k, v in variant.defaults.items()}
    static = sections.add_array(f"static{i}", variant.static)
    requires = [] if variant.cuda is not None else processor.required(program.cpu, program.features)
    return {"program": program.header(), "requires": requires, "code": code, "static": static, "defaults": defaults}


def _pages(nbytes: int) -> int:
    return -(-nbytes // PAGE) * PAGE


def is_saved(path: str | Path) -> bool:
    """Whether a file begins as saved executables do; False also for what cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)).startswith(MAGIC[:5])
    except (OSError, ValueError):
        return False


class _File:
    """An open executable: its header, and its sections on demand."""

    def __init__(self, fd: int, name: str):
        self.fd, self.where = fd, SourceLoc(name)
        self.data = map_descriptor(fd, name)
        start = len(MAGIC) + _FIXED.size
        if bytes(self.data[: len(MAGIC)]) != MAGIC or len(self.data) < start:
            raise LightNetError("this is no executable saved by this version of LightNet", self.where)
        length, crc = _FIXED.unpack(self.data[len(MAGIC) : start])
        text = self.data[start : start + length]
        if len(text) != length or zlib.crc32(text) != crc:
            raise LightNetError("the file is damaged or cut short: its header does not match its checksum", self.where)
        self.header = json.loads(bytes(text))
        last = max((e["offset"] + e["size"] for e in self.header["sections"].values()), default=0)
        if last > len(self.data):
            raise LightNetError("the file is damaged or cut short: it lacks its end", self.where)

    def section(self, name: str) -> memoryview:
        entry = self.header["sections"][name]
        part = self.data[entry["offset"] : entry["offset"] + entry["size"]]
        if len(part) != entry["size"] or ("crc" in entry and zlib.crc32(part) != entry["crc"]):
            raise LightNetError(f"the file is damaged or cut short: section '{name}'", self.where)
        return part

    def array(self, name: str) -> np.ndarray:
        entry = self.header["sections"][name]
        return np.frombuffer(self.section(name), BY_NAME[entry["dtype"]].np).reshape(entry["dims"])

    def chosen(self) -> dict[str, Any]:
        """The first variant that this processor runs; LightNetError, which says what it lacks, where there is none."""
        if self.header["variants"][0]["program"]["triple"] == CUDA_TRIPLE:
            return self.header["variants"][0]
        here, have = processor.architecture(), processor.supported()
        lacking: list[tuple[str, list[str]]] = []
        variants = self.header["variants"]
        fitting = [v for v in variants if processor.architecture_of(v["program"]["triple"]) == here]
        if not fitting:
            archs = ", ".join({processor.architecture_of(v["program"]["triple"]): None for v in variants})
            raise LightNetError(
                f"the executable is for {archs} processors, and this is a {here}: compile it here", self.where
            )
        for variant in fitting:
            missing = [name for name in variant["requires"] if name not in have]
            if not missing:
                return variant
            lacking.append((variant["program"]["cpu"], missing))
        cpu, missing = min(lacking, key=lambda item: len(item[1]))
        more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
        raise LightNetError(f"the executable is for {cpu}, and this processor ({processor.name()}) lacks "
                            f"{', '.join(missing[:8])}{more}: compile it here, or with --variants", self.where)  # fmt: skip

    def program(self, variant: Mapping[str, Any]) -> Program:
        names = variant["code"].get("objects", ())
        return Program.from_header(variant["program"], tuple(bytes(self.section(name)) for name in names))

    def cuda(self, variant: Mapping[str, Any], program: Program) -> CudaCode | None:
        """The code that a device runs; None where a processor does."""
        code = variant["code"]
        if "ptx" not in code:
            return None
        from lightnet.runtime.cuda.program import CudaCode

        return CudaCode.from_header(code, bytes(self.section(code["ptx"])).decode(), program)

    def code(self, variant: Mapping[str, Any]) -> LoadedImage | None:
        """The linked machine code; None where the file has objects, which LLVM links."""
        code = variant["code"]
        if "image" not in code:
            return None
        data = self.section(code["image"])
        numbers = [*code["exports"].values(), *code["imports"].values(), *code["relative"]]
        if not all(isinstance(n, int) and 0 <= n <= len(data) - 8 for n in numbers):
            raise ValueError("an address outside of the code")
        image = Image(data, code["writable"], code["exports"], code["imports"], tuple(code["relative"]))
        return LoadedImage(image, self.fd, self.header["sections"][code["image"]]["offset"])


class SavedExecutable:
    """An executable read from a file: called like `lightnet.Executable`; needs no compiler, and its params are fixed. `emulate`: of
    one for cuda, in the PTX interpreter."""

    instance: Instance | CudaInstance

    def __init__(self, path: str | Path, emulate: bool = False):
        self._opened: Opened | None = None
        fd = open_file(path)
        try:
            self._open(fd, os.fspath(path), emulate)
        except LightNetError as e:
            raise e.at(SourceLoc(os.fspath(path))) from e.__cause__
        except (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError):
            where = SourceLoc(os.fspath(path))
            raise LightNetError(
                "the header says nothing sensible: the file was made by something else", where
            ) from None
        finally:
            os.close(fd)

    def _open(self, fd: int, name: str, emulate: bool) -> None:
        self._file = file = _File(fd, name)
        variant = file.chosen()
        self.program = file.program(variant)
        static = file.array(variant["static"])
        if static.nbytes < self.program.memory.get("static", 0):
            raise ValueError("the static tensors are too short")
        if static.ctypes.data % ALIGNMENT:  # a system with pages of another kind
            static, mapped = aligned(max(static.nbytes, 1)), static
            static[: mapped.nbytes] = mapped
        defaults = {k: file.array(v) for k, v in variant["defaults"].items()}
        for tensor in (*self.program.inputs, *self.program.residents):
            if (defaults[tensor.name].shape, defaults[tensor.name].dtype) != (tensor.dims, tensor.np_dtype):
                raise ValueError("what an input holds is of another type")
        cuda = file.cuda(variant, self.program)
        self.instance: Instance | CudaInstance
        if cuda is not None:
            from lightnet.runtime.cuda.machine import MACHINE
            from lightnet.runtime.cuda.program import CudaInstance

            self._opened = Opened(MACHINE, {"emulate": emulate, "arch": cuda.arch})
            state = self._opened.state
            self.instance = CudaInstance(self.program, cuda, static, defaults, state, self._opened)
            return
        if emulate:
            raise LightNetError("the executable is for processors: only code for cuda can be emulated")
        self.instance = Instance(self.program, static, defaults, file.code(variant))

    @cached_property
    def texts(self) -> dict[str, str]:
        """The named texts: ``planned``, the module that was compiled."""
        return {k: bytes(self._file.section(v)).decode() for k, v in self._file.header["texts"].items()}

    def close(self) -> None:
        """Give back the device that it runs on, which it cannot do afterwards; code of processors has none."""
        if self._opened is not None:
            self._opened.close()

    @property
    def variants(self) -> list[str]:
        """The processors that the file has code for, the best first; `program.cpu` is the one that runs."""
        return [v["program"]["cpu"] for v in self._file.header["variants"]]

    def __call__(self, feeds: Mapping[str, Any] | None = None, *, outputs: Sequence[str] | None = None,
                 stream: TextIO | None = None, threads: int | None = None) -> dict[str, np.ndarray]:  # fmt: skip
        """Run on `feeds` (input name → array), on at most (and unless given) as many threads as it was compiled for; returns the
        outputs by name, or those called `outputs`."""
        if outputs is None and threads is None and (found := self.instance.quick(feeds)) is not None:
            return found
        return self.program.pick(outputs, lambda: self.instance.call(by_name(feeds), stream=stream, threads=threads))

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
    """Shape and dtype by name; checks of indices are none of the outputs."""
    return {t.name: (t.dims, BY_NAME[t.dtype].np) for t in tensors if not is_check(t.name)}


def load_executable(path: str | Path, *, emulate: bool = False) -> SavedExecutable:
    """Load what `Executable.save` wrote; `emulate` runs code for cuda in the PTX interpreter instead of on a device. Raises
    `LightNetError` for a damaged file or another machine's code."""
    return SavedExecutable(path, emulate)
