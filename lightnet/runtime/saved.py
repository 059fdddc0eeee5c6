"""Executables read from files: reading and checking the file, and calling what it holds. `artifact.py` writes it.

Imports NumPy, the standard library and the rest of the runtime.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.runtime import copies, lnx, lnx_check, processor
from lightnet.runtime.arrays import ALIGNMENT, aligned
from lightnet.runtime.calls import Invocation
from lightnet.runtime.dtypes import BY_NAME
from lightnet.runtime.files import check_regular, open_file, reason_of
from lightnet.runtime.formats import CodeFormat, format_of
from lightnet.runtime.index_checks import is_check
from lightnet.runtime.open_instance import OpenCallee
from lightnet.runtime.program import Program
from lightnet.runtime.runnable import Runnable, closed

if TYPE_CHECKING:
    from lightnet.runtime.instance import Callee
    from lightnet.runtime.machine import Opened
    from lightnet.runtime.signing import Trust


#: The name of the format of machine code.
NATIVE = "native"


class _File:
    """An open executable: its header, checked, and its sections on demand. With `trust`, each section must have the
    digest that the signed header says; else, those that are large must, and the others their checksum."""

    def __init__(self, fd: int, where: SourceLoc, trust: Trust | None):
        check_regular(fd, where.file)
        self.fd, self.where, self.is_trusted = fd, where, trust is not None
        self.head = lnx.read_head(fd, where)
        if trust is not None:
            from lightnet.runtime import signing

            signing.check_signature(self.head, trust, where)
        self.header = json.loads(self.head.text)
        lnx_check.checked_part(self._check)
        if trust is not None:
            self._check_gaps()

    def _check(self) -> None:
        head = self.head
        lnx_check.check_header(self.header, len(head.raw), head.size, head.signature is not None)

    def _check_gaps(self) -> None:
        """Raise LightNetError where there is anything but zeros between the sections, which no digest covers."""
        at = len(self.head.raw)
        for entry in sorted(self.header["sections"].values(), key=lambda e: e["offset"]):
            self._check_zeros(at)
            at = entry["offset"] + entry["size"]
        self._check_zeros(at)

    def _check_zeros(self, at: int) -> None:
        if any(os.pread(self.fd, lnx.pages(at) - at, at)):
            raise LightNetError("the executable was changed after it was signed", self.where, "lnx.trust")

    def section(self, name: str) -> np.ndarray:
        """The bytes of a section, in memory of this process, or such that nobody changes."""
        entry = self.header["sections"][name]
        try:
            if "crc" not in entry:
                return copies.private(self.fd, entry["offset"], entry["size"], entry["sha256"])
            found = copies.read_at(self.fd, entry["offset"], entry["size"])
            if zlib.crc32(found.data) != entry["crc"]:
                raise copies.Damaged
            if self.is_trusted:
                copies.check_digest(found, entry["sha256"])
        except copies.Damaged:
            raise LightNetError(
                f"the file is damaged or cut short, or being written: section '{name}'", self.where
            ) from None
        found.flags.writeable = False
        return found

    def array(self, name: str) -> np.ndarray:
        entry = self.header["sections"][name]
        return self.section(name).view(BY_NAME[entry["dtype"]].np).reshape(entry["dims"])

    def chosen(self) -> dict[str, Any]:
        """The first variant that this machine runs; LightNetError, which says what it lacks, where there is none."""
        variants = self.header["variants"]
        if format_of(*self._made_for(variants[0])).name != NATIVE:
            return variants[0]
        here, have = processor.architecture(), processor.supported()
        lacking: list[tuple[str, list[str]]] = []
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
        raise LightNetError(f"the executable is for {cpu}, and this processor ({processor.processor_name()}) lacks "
                            f"{', '.join(missing[:8])}{more}: compile it here, or with --variants",
                            self.where)  # fmt: skip

    def program(self, variant: Mapping[str, Any]) -> tuple[Program, CodeFormat, Any]:
        """The program of a variant, checked against the facts of its code; its format; and its code."""
        header, name = variant["program"], variant["code"]
        lnx_check.checked_part(lambda: lnx_check.check_program(header))
        try:
            facts, body = lnx.unpacked_code(self.section(name).data)
        except (ValueError, RecursionError) as error:
            raise LightNetError(f"the file is damaged or cut short: section '{name}' {error}", self.where) from None
        form = format_of(*self._made_for(variant))
        objects = lnx_check.checked_part(lambda: form.objects(facts, body))
        program = lnx_check.checked_part(lambda: Program.from_header(header, objects))
        lnx_check.checked_part(lambda: lnx_check.check_needs(program, facts, variant["requires"]))
        if program.symbols and not form.takes_symbols:
            raise lnx_check.Lie(f"code ({form.name}) whose dims calls decide")
        lnx_check.checked_part(lambda: list(map(lnx_check.check_places, program.examples)))
        sections = self.header["sections"]
        defaults = {k: sections[v] for k, v in variant["defaults"].items()}
        lnx_check.checked_part(lambda: lnx_check.check_contents(program, sections[variant["static"]], defaults))
        return program, form, lnx_check.checked_part(lambda: form.unpacked(program, facts, body))

    def _made_for(self, variant: Mapping[str, Any]) -> tuple[str, str | None]:
        """The triple of a variant, and the target that it was compiled for."""
        target = self.header["options"].get("target")
        return variant["program"]["triple"], target if isinstance(target, str) else None


class SavedExecutable(Runnable):
    """An executable read from a file: called like `lightnet.Executable`; needs no compiler, and its params are fixed.
    `trust`, `runs` and `options`: as `load_executable`.

    It goes to other processes (`pickle`) as its path, which there has to hold what it holds here; one that was loaded
    from bytes, as these. The file itself is not needed while it runs.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        trust: Trust | None = None,
        options: Mapping[str, Any] | None = None,
        runs: bool = True,
    ):
        fd = open_file(path)
        try:
            self._load(fd, os.fsdecode(path), trust, options or {}, runs)
        finally:
            os.close(fd)
        self._made = partial(_reloaded, str(Path(os.fsdecode(path)).absolute()), self._head, trust, options)

    @classmethod
    def of_bytes(
        cls,
        data: bytes,
        trust: Trust | None = None,
        options: Mapping[str, Any] | None = None,
        runs: bool = True,
    ) -> SavedExecutable:
        """The executable that a file of these bytes holds."""
        import tempfile

        self = cls.__new__(cls)
        with tempfile.TemporaryFile() as file:
            try:
                file.write(data)
                file.flush()
            except OSError as error:
                raise LightNetError(f"cannot write a temporary file: {reason_of(error)}") from None
            self._load(file.fileno(), "<bytes>", trust, options or {}, runs)
        self._made = partial(cls.of_bytes, bytes(data), trust, options)
        return self

    def _load(self, fd: int, name: str, trust: Trust | None, options: Mapping[str, Any], runs: bool) -> None:
        where = SourceLoc(name)
        try:
            self._open(_File(fd, where, trust), options, runs)
        except LightNetError as e:
            raise e.at(where) from e.__cause__
        except (lnx_check.Lie, ValueError, RecursionError) as e:
            raise LightNetError(
                f"the header says nothing sensible: the file was made by something else ({e!s:.300})",
                where,
                "lnx.header",
            ) from None
        except OSError as e:
            raise LightNetError(f"cannot read: {reason_of(e)}", where) from None

    def _open(self, file: _File, options: Mapping[str, Any], runs: bool) -> None:
        self._head = file.head.raw
        #: Whether the file has a signature, whosever.
        self.is_signed = file.head.signature is not None
        variant = file.chosen()
        self.program, form, code = file.program(variant)
        #: The processors that the file has code for, the best first; `program.cpu` is the one that runs.
        self.variants: list[str] = [v["program"]["cpu"] for v in file.header["variants"]]
        self._options, self._warnings = file.header["options"], file.header["warnings"]
        self._texts = {k: file.section(v) for k, v in file.header["texts"].items()}
        static = file.array(variant["static"])
        if static.ctypes.data % ALIGNMENT:  # a system with pages of another kind
            static, mapped = aligned(max(static.nbytes, 1)), static
            static[: mapped.nbytes] = mapped
        defaults = {k: file.array(v) for k, v in variant["defaults"].items()}
        given = {name: value for name, value in options.items() if value not in (None, False)}
        if unknown := [name for name in given if name not in form.options]:
            there = ", ".join(form.options) or "none"
            raise LightNetError(f"the executable's code ({form.name}) takes no option '{unknown[0]:.40}' when it is "
                                f"loaded; there are: {there}",
                                label="lnx.option")  # fmt: skip
        self._opened: Opened | None = None
        self._instance: Callee | None = None
        if runs:
            self._opened = form.opened(self.program, code, given)
            self._instance = form.instance(self.program, code, static, defaults, self._opened)
            if isinstance(self._instance, OpenCallee):
                self._instance.is_read = True
            self._quick = self._instance.quick

    def __reduce__(self) -> Any:
        self._check_open()
        return self._made.func, self._made.args

    @property
    def instance(self) -> Callee:
        """The program in this process. LightNetError once it is closed."""
        if (found := self._instance) is None:
            raise closed()
        return found

    @property
    def is_closed(self) -> bool:
        return self._instance is None

    def close(self) -> None:
        self._instance = self._quick = None
        if self._opened is not None:
            self._opened.close()

    def _run(self, call: Invocation) -> dict[str, np.ndarray]:
        run = self.instance.call
        return call.answer(self.program, lambda: run(call))

    @property
    def texts_there(self) -> list[str]:
        """The names of `texts`."""
        return list(self._texts)

    @property
    def texts(self) -> dict[str, str]:
        """The named texts: ``planned``, the module that was compiled."""
        return {k: bytes(v).decode(errors="replace") for k, v in self._texts.items()}

    @property
    def inputs(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        return self.program.input_types()

    @property
    def outputs(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        return types_of(self.program.shown)

    def _out_types(self, feeds: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        return types_of(self.program.of_feeds(feeds).shown)

    @property
    def params(self) -> dict[str, Any]:
        """Shape and dtype of every param that a call may feed: none, as they are fixed (`program.params` has their
        names)."""
        return {}

    @property
    def threads(self) -> int:
        return self.program.bound.used

    @property
    def options(self) -> dict[str, Any]:
        return {**self._options, "cpu": self.program.cpu}

    @property
    def warnings(self) -> list[str]:
        return list(self._warnings)

    @property
    def plan(self) -> Any:
        try:
            from lightnet.model import loads
            from lightnet.passes.plan import plan_report
        except ImportError:
            raise LightNetError(
                "the report of a memory plan is made by the compiler, which is not installed here"
            ) from None
        return plan_report(loads(self.texts["planned"], ".mlir").module)


def _reloaded(path: str, head: bytes, trust: Trust | None, options: Mapping[str, Any] | None) -> SavedExecutable:
    """The executable at a path, which should be the one whose file begins with `head`: sections are named there by
    their digests."""
    found = SavedExecutable(path, trust, options)
    if found._head != head:
        raise LightNetError("the executable is another one than that which was handed over", SourceLoc(path))
    return found


def types_of(tensors: Sequence[Any]) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Shape and dtype by name; checks of indices are none of the outputs."""
    return {t.name: (t.dims, BY_NAME[t.dtype].np) for t in tensors if not is_check(t.name)}
