"""A saved executable: one file with a JSON header, the object code and the static tensors, page-aligned to be mapped.

Layout: the magic ``LNEXE1\\n``, the header's length (8 bytes, little endian), the header, then sections at multiples of
4096. Loading runs nothing from the file but its machine code, so load only files that you trust. Imports no xDSL.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.runtime.program import ALIGNMENT, Instance, Program, aligned

MAGIC = b"LNEXE1\n\0"
PAGE = 4096
MAX_HEADER = 1 << 28


def save(path: str | Path, program: Program, arrays: dict[str, np.ndarray], texts: dict[str, str]) -> None:
    """Write a program, named arrays and named texts; the file appears whole or not at all."""
    sections = [(f"object{i}", o) for i, o in enumerate(program.objects)]
    sections += [(f"text:{k}", v.encode()) for k, v in texts.items()]
    header: dict[str, Any] = {"program": program.header(), "objects": len(program.objects), "sections": {}}
    arrays = {k: np.ascontiguousarray(v) for k, v in arrays.items()}
    for name, data in sections:
        header["sections"][name] = {"size": len(data)}
    for name, array in arrays.items():
        header["sections"][f"array:{name}"] = {"size": array.nbytes, "dtype": array.dtype.str, "dims": array.shape}
    payload = [d for _, d in sections] + [a.reshape(-1).view(np.uint8).data for a in arrays.values()]
    for entry in header["sections"].values():
        entry["offset"] = 0
    length = len(json.dumps(header)) + 24 * len(header["sections"])  # offsets take more digits than the zeros
    position = -(-(len(MAGIC) + 8 + length) // PAGE) * PAGE
    for entry in header["sections"].values():
        entry["offset"], position = position, -(-(position + entry["size"]) // PAGE) * PAGE
    text = json.dumps(header).ljust(length).encode()
    temporary = Path(f"{path}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as f:
            f.write(MAGIC + struct.pack("<Q", len(text)) + text)
            for entry, data in zip(header["sections"].values(), payload):
                f.seek(entry["offset"])
                f.write(data)
            f.truncate(position)
        os.replace(temporary, path)
    except OSError as e:
        raise LightNetError(f"cannot write {path}: {e.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)


def load(path: str | Path) -> tuple[Program, dict[str, np.ndarray], dict[str, str]]:
    """Read what `save` wrote; arrays are mapped, copied on write. Raises `LightNetError` for a damaged file."""
    where = SourceLoc(str(path))
    try:
        size = os.path.getsize(path)
        with open(path, "rb") as f:
            start = f.read(len(MAGIC) + 8)
            if start[: len(MAGIC)] != MAGIC:
                raise LightNetError("this is no saved LightNet executable", where)
            (length,) = struct.unpack("<Q", start[len(MAGIC) :])
            if length > min(MAX_HEADER, size):
                raise LightNetError("the header is damaged", where)
            header = json.loads(f.read(length))
            mapped = np.memmap(f, np.uint8, "c")
    except OSError as e:
        raise LightNetError(f"cannot read: {e.strerror}", where) from None
    except (ValueError, struct.error):
        raise LightNetError("the header is damaged", where) from None
    try:
        data: dict[str, Any] = {}
        for name, entry in header["sections"].items():
            begin, end = entry["offset"], entry["offset"] + entry["size"]
            if not 0 <= begin <= end <= size:
                raise LightNetError(f"section '{name}' lies outside the file", where)
            data[name] = mapped[begin:end]
        objects = tuple(bytes(data[f"object{i}"]) for i in range(header["objects"]))
        arrays = {
            k.removeprefix("array:"): data[k].view(np.dtype(e["dtype"])).reshape(e["dims"])
            for k, e in header["sections"].items() if k.startswith("array:")
        }  # fmt: skip
        texts = {k.removeprefix("text:"): bytes(v).decode() for k, v in data.items() if k.startswith("text:")}
        return Program.from_header(header["program"], objects), arrays, texts
    except (KeyError, TypeError, ValueError):
        raise LightNetError("the header is damaged", where) from None


class SavedExecutable:
    """An executable read from a file: called like `lightnet.Executable`; needs no compiler, and its params are fixed."""

    def __init__(self, path: str | Path):
        program, arrays, self.texts = load(path)
        static = arrays.pop("static")
        if static.ctypes.data % ALIGNMENT:
            static, mapped = aligned(max(static.nbytes, 1)), static
            static[: mapped.nbytes] = mapped
        self.instance = Instance(program, static, {k.removeprefix("default:"): v for k, v in arrays.items()})
        self.program = program

    def __call__(self, feeds: Mapping[str, Any] | None = None, *, stream: TextIO | None = None) -> dict[str, np.ndarray]:
        """Run on `feeds` (input name → array); returns the outputs by name."""
        return self.instance.call(feeds or {}, stream=stream)


def load_executable(path: str | Path) -> SavedExecutable:
    """Load what `Executable.save` wrote. Raises `LightNetError` for a damaged file or another machine's code."""
    return SavedExecutable(path)
