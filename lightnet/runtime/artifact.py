"""Saved executables: what `save` writes to a ``.lnx`` file, and `load_executable` runs without a compiler.

A file holds one or several variants of the network, for processors of different abilities; equal contents stand in it
once. Nothing of it stays mapped or open once it is loaded (`copies.py`), so it may be replaced, changed or removed
while the network runs. All that it says of itself is checked (`lnx_check.py`), but for its machine code, which is run:
load only files that you trust, or that are signed by who you trust (`signing.py`). No xDSL, no LLVM.
"""

from __future__ import annotations

import json
import os
import stat
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.runtime import dtypes, lnx
from lightnet.runtime.copies import LEAST
from lightnet.runtime.files import open_file, reason_of, write_atomic
from lightnet.runtime.formats import format_of
from lightnet.runtime.lnx_check import needs
from lightnet.runtime.program import Program
from lightnet.runtime.saved import SavedExecutable, types_of

if TYPE_CHECKING:
    from lightnet.runtime.signing import Signer, Trust

#: The text of a file that is the host part of its network.
HOST_PART = "host"

__all__ = ["SavedExecutable", "Variant", "is_saved", "load_executable", "save", "saved_bytes", "types_of"]


@dataclass(frozen=True)
class Variant:
    """A network compiled for one kind of machine: the program, the bytes of its static space, what inputs (and
    residents) hold that nobody feeds, and what else its format packs (`formats.py`); what it was compiled with, and is
    warned of."""

    program: Program
    static: np.ndarray
    defaults: Mapping[str, np.ndarray]
    code: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[str] = ()


class _Sections:
    """The sections of a file that is being made; equal contents are one section."""

    def __init__(self) -> None:
        self.entries: dict[str, dict[str, Any]] = {}
        self.payload: list[Any] = []

    def add(self, name: str, data: bytes) -> str:
        """Add bytes; the name of the section that has them."""
        return self._add(name, data, {})

    def add_array(self, name: str, array: np.ndarray) -> str:
        """Add an array; the name of the section that has it."""
        array = np.asarray(array, order="C")
        entry = {"dtype": dtypes.BY_NP[array.dtype].name, "dims": array.shape}
        return self._add(name, array.reshape(-1).view(np.uint8).data, entry)

    def _add(self, name: str, data: Any, entry: dict[str, Any]) -> str:
        from hashlib import sha256

        entry |= {"size": len(data), "sha256": sha256(data).hexdigest()}
        if len(data) < LEAST:  # what is read at each start: a cheap sum, that needs no import
            entry["crc"] = zlib.crc32(data)
        for other, known in self.entries.items():
            if known == entry:
                return other
        self.entries[name] = entry
        self.payload.append(data)
        return name


def save(path: str | Path, variants: Sequence[Variant], texts: Mapping[str, str], signer: Signer | None = None) -> None:
    """Write variants of one network, the best first, and named texts, signed if there is a `signer`; the file appears
    whole or not at all. Raises LightNetError where the system refuses."""
    head, sections, end = _laid_out(variants, texts)

    def write(out: BinaryIO) -> None:
        at = out.write(head)  # a pipe does not say where it is
        for entry, data in zip(sections.entries.values(), sections.payload):
            out.write(bytes(entry["offset"] - at))
            out.write(data)
            at = entry["offset"] + entry["size"]
        out.write(bytes(end - at))
        if signer is not None:
            out.write(signer.trailer(head))

    write_atomic(path, write)


def saved_bytes(variants: Sequence[Variant], texts: Mapping[str, str]) -> bytes:
    """The bytes that `save` would write."""
    head, sections, end = _laid_out(variants, texts)
    found = bytearray(end)
    found[: len(head)] = head
    for entry, data in zip(sections.entries.values(), sections.payload):
        found[entry["offset"] : entry["offset"] + entry["size"]] = data
    return bytes(found)


def _laid_out(variants: Sequence[Variant], texts: Mapping[str, str]) -> tuple[bytes, _Sections, int]:
    """The header, the sections, and where the last of them ends."""
    sections = _Sections()
    described = [_describe(sections, i, variant) for i, variant in enumerate(variants)]
    named = {k: sections.add(f"text:{k}", t.encode()) for k, t in texts.items()}
    first = variants[0]
    header = {"variants": described, "texts": named, "options": dict(first.options), "warnings": list(first.warnings),
              "sections": sections.entries}  # fmt: skip
    length = len(json.dumps(header)) + 32 * len(sections.entries)  # room for the offsets
    end = len(lnx.packed_header(bytes(length)))
    for entry in sections.entries.values():
        entry["offset"] = lnx.pages(end)
        end = entry["offset"] + entry["size"]
    return lnx.packed_header(json.dumps(header).ljust(length).encode()), sections, lnx.pages(end)


def _describe(sections: _Sections, i: int, variant: Variant) -> dict[str, Any]:
    program, header = variant.program, variant.program.header()
    if program.values:
        raise LightNetError("an executable of one call's shapes runs the code of that for all calls: save that one",
                            label="specialize.whole")  # fmt: skip
    if program.symbols and Program.from_header(header, program.objects) != program:
        raise LightNetError("the sizes that calls decide do not read back as they are written", label="dims.saved")
    form = format_of(program.triple, variant.options.get("target"))
    requires = form.requires(program)
    found, body = form.packed(program, variant.code)
    facts: dict[str, Any] = {**needs(program), "requires": requires, **found}
    code = sections.add(f"code{i}", lnx.packed_code(facts, body))
    kept = {k: v for k, v in variant.defaults.items() if k not in program.required}  # which every call feeds
    defaults = {k: sections.add_array(f"default{i}:{k}", v) for k, v in kept.items()}
    static = sections.add_array(f"static{i}", variant.static)
    return {"program": header, "requires": requires, "code": code, "static": static, "defaults": defaults}


def is_saved(path: str | Path) -> bool:
    """Return whether a file begins as saved executables do; False of a pipe or a device, which gives its bytes only
    once. Raises LightNetError for what cannot be opened or read: what it holds nobody knows.
    """
    with suppress(OSError, ValueError):  # of which `open_file` tells
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
    fd = open_file(path)
    try:
        return os.pread(fd, len(lnx.ANY_VERSION), 0) == lnx.ANY_VERSION
    except OSError as error:
        raise LightNetError(f"cannot read: {reason_of(error)}", SourceLoc(os.fsdecode(path))) from None
    finally:
        os.close(fd)


def load_executable(
    source: str | os.PathLike[str] | bytes, *, trust: Trust | None = None, runs: bool = True, **options: Any
) -> Any:
    """Load what `Executable.save` wrote: a file, or its bytes, as a `SavedExecutable`, or, with text at its ends, a
    `HostedExecutable`. `options` are those of the code's format (`CodeFormat.options`): ``emulate=True`` runs code for
    cuda in the PTX interpreter instead of on a device. With `trust`, files of public keys or folders of them, only a
    file is accepted that one of these keys signed. Without `runs`, the file is checked and tells what it is, and
    nothing is opened that would run it (a device): the executable is a closed one.

    The file may be replaced, changed or removed afterwards. Raises `LightNetError` for what cannot be opened or read,
    is damaged, says what cannot be, is for another machine, or is not signed by whom it should.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        if bytes(source[: len(lnx.ANY_VERSION)]) != lnx.ANY_VERSION:
            raise LightNetError(
                "these bytes are no saved executable: load_executable takes its path, or what the file holds"
            )
        return _hosted(SavedExecutable.of_bytes(source, trust, options, runs), "<bytes>")
    if not isinstance(source, str | os.PathLike):
        raise LightNetError(f"a saved executable is a path, or the bytes of a file, not a {type(source).__name__}")
    return _hosted(SavedExecutable(source, trust, options, runs), os.fsdecode(source))


def reloaded(variant: Variant, texts: Mapping[str, str]) -> tuple[Any, tuple[bytes]]:
    """The call by which `pickle` makes an executable again. Options that say how code runs are told again."""
    form, options = format_of(variant.program.triple, variant.options["target"]), variant.options
    told = {name: options[name] for name in form.options if name in options}
    return partial(load_executable, **told), (saved_bytes([variant], texts),)


def _hosted(saved: SavedExecutable, path: str) -> Any:
    """The executable with its host part, if the file has one (`runtime/hosted.py`)."""
    if HOST_PART not in saved.texts_there:
        return saved
    from lightnet.runtime.hosted import with_host

    return with_host(saved, SourceLoc(path))
