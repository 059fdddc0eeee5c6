"""The errors and warnings that a user sees when something is wrong. Imports the standard library only, so that every
layer can use it.

One exception class, `LightNetError`, carries a message, a source location and notes. Command-line tools print it
as ``file:line:col: error: message``, the source line and a caret, and exit with status 1. Anything else that
reaches the top of a tool is a bug of ours.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

#: Longest part of a source line that an error shows.
LINE_WIDTH = 160
#: Longest message that an error shows: lists out of a file may be of any length.
MESSAGE_LENGTH = 2000
#: Characters of a name that others are compared with.
_NAME = 200
#: So many errors of one input are reported; after them it is read no further.
MAX_ERRORS = 20


class SourceLoc(NamedTuple):
    """A place in a file: `line` and `col` count from 1; 0 means unknown."""

    file: str
    line: int = 0
    col: int = 0

    def __str__(self) -> str:
        file = os.fsdecode(self.file) if isinstance(self.file, bytes | os.PathLike) else str(self.file)
        return ":".join([file, *(str(n) for n in (self.line, self.col) if n)])


class DescriptionWarning(UserWarning):
    """A warning of a description: the code of an operator's (`ln_msg_warn`), or that its hardware is not here. `loc`
    is where."""

    kind = "warning"

    def __init__(self, message: str, loc: SourceLoc | None = None):
        super().__init__(message)
        self.message, self.loc = message, loc

    def __str__(self) -> str:
        return f"{self.loc}: {self.message}" if self.loc else self.message


class InternalWarning(DescriptionWarning):
    """A warning of a rule of an optimizer description (`warn`): upstream calls it an internal warning."""

    kind = "internal warning"


class FallbackWarning(DescriptionWarning):
    """A warning of what the compiler does in a plainer and slower way than it meant to, as no generator takes what it
    meant: a gap of ours.
    """


class PipelineWarning(DescriptionWarning):
    """A warning of what a pipeline asks for in vain: a pass that finds nothing of its level, a name to switch off that
    nothing has.
    """


@dataclass
class LightNetError(Exception):
    """A mistake in the user's input, or a limit that it exceeds.

    `label` is the stable name of the violated constraint (``conv2d.bias-length``); `source_line` is the text of the
    line at `loc`, when showing it is allowed (never for a file that must not be read); `notes` are further lines,
    each with a location of its own or None. `others` are further errors in the same input (`ErrorList`), `warnings`
    what was warned of before it was refused.
    """

    message: str
    loc: SourceLoc | None = None
    label: str | None = None
    source_line: str | None = None
    notes: list[tuple[SourceLoc | None, str]] = field(default_factory=list)
    others: list[LightNetError] = field(default_factory=list)
    warnings: list[tuple[SourceLoc, str]] = field(default_factory=list)

    def __str__(self) -> str:
        return self.render()

    def render(self) -> str:
        """The text a command-line tool prints: location, message, source line with a caret, notes; then those of
        `others`."""
        where = f"{self.loc}: " if self.loc else ""
        label = f" [{self.label}]" if self.label else ""
        lines = [f"{where}error: {_clipped(str(self.message))}{label}"]
        if self.source_line is not None:
            lines += _caret(self.source_line, self.loc.col if self.loc else 0)
        for loc, text in self.notes:
            lines.append(f"{loc}: note: {_clipped(text)}" if loc else f"note: {_clipped(text)}")
        return "\n".join([printable("\n".join(lines), "\n\t"), *(e.render() for e in self.others)])

    def at(self, loc: SourceLoc | None, source_line: str | None = None) -> LightNetError:
        """Give the error a location if it has none yet; returns itself, to be raised."""
        if self.loc is None:
            self.loc, self.source_line = loc, source_line
        return self


class LimitError(LightNetError):
    """A limit that the input exceeds: nothing behind it is read, so that no further error is looked for."""


class ErrorList:
    """The errors of one input, as they are found: a reader that can go on after a mistake adds it here, and calls
    `check` in the end, which raises the first with all others in its `others`. With a `sink` they go there, one by one,
    and none is raised. There are at most `limit` (None: any number)."""

    def __init__(self, sink: Callable[[LightNetError], None] | None = None, limit: int | None = MAX_ERRORS):
        self.found: list[LightNetError] = []
        self.sink = sink
        self.limit = limit

    def add(self, error: LightNetError) -> None:
        """Take up an error. Raises `LimitError` where there are too many."""
        self.found.append(error)
        if self.sink is not None:
            self.sink(error)
        if self.limit is not None and len(self.found) >= self.limit:
            raise LimitError(f"there are {self.limit} errors: what is behind them was not read")

    def joined(self, last: LightNetError) -> LightNetError:
        """`last`, which ends the reading, behind the errors before it: to be raised."""
        if not self.found or self.sink is not None or last is self.found[0]:
            return last
        first = self.found[0]
        first.others = [*self.found[1:], last]
        return first

    def check(self) -> None:
        """Raise what was found, if anything was."""
        if self.found and self.sink is None:
            raise self.joined(self.found.pop())


def printable(text: str, kept: str = "") -> str:
    """`text` with what a terminal would act on, or cannot show, as escapes (``\\x1b``), but for the characters in
    `kept`: names come out of files, and may hold anything."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode("ascii") for c in text)


def did_you_mean(names: Sequence[str]) -> str:
    """The end of an error about an unknown name: ``; did you mean a, b or c?``, or nothing."""
    if not names:
        return ""
    *others, last = names
    return f"; did you mean {', '.join(others)}{' or ' if others else ''}{last}?"


def near(name: str, known: Iterable[str]) -> str:
    """The same, of the names in `known` that are spelt like `name`."""
    return did_you_mean(alike(name, known))


def alike(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The names in `known` that are spelt like `name`, the nearest first."""
    from difflib import get_close_matches  # which nobody needs who spells names right

    return get_close_matches(name[:_NAME], [*known], most)


def first_twice(names: Iterable[str]) -> str:
    """The first of `names` that stood before; empty where each stands once."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return ""


def near_or_all(name: str, known: Iterable[str]) -> str:
    """As `near`; where nothing is, all that there are."""
    known = [*known]
    return near(name, known) or "; there are: " + (", ".join(known) or "none")


def _clipped(text: str) -> str:
    half = MESSAGE_LENGTH // 2
    return text if len(text) <= MESSAGE_LENGTH else f"{text[:half]} [...] {text[-half:]}"


def _caret(text: str, col: int) -> list[str]:
    """The source line, clipped around `col`, and a caret below that column."""
    start = max(0, col - LINE_WIDTH // 2) if len(text) > LINE_WIDTH else 0
    length = len(text)
    text = "".join(c if c.isprintable() else " " for c in text[start : start + LINE_WIDTH].rstrip("\n"))
    lines = ["  " + text]
    if 0 < col <= length + 1:
        lines.append("  " + " " * (col - 1 - start) + "^")
    return lines


def needs_compiler(error: ImportError) -> LightNetError | None:
    """The error of a module that is not there where only lightnet-runtime is installed; None where the compiler is,
    or for other modules."""
    from importlib.util import find_spec

    package = (error.name or "").partition(".")[0]
    if not package.startswith(("lightnet", "xdsl", "llvmlite")) or find_spec("lightnet.compiler"):
        return None
    return LightNetError(
        "this needs the compiler, and lightnet-runtime is installed, which runs .lnx files: pip install "
        "lightnet-compiler"
    )
