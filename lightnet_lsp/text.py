"""The terms that the analyses of a document speak in: places in its text, findings, hovers, completions and symbols.

Everything counts in code points of the text; `server.py` turns that into the units of a client. Imports diagnostics and
`source`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import LightNetError, SourceLoc

#: What an error's caret stands below, when only its first character is known.
_WORD = re.compile(r'"[^"\n]*"|[%@^#!]?[\w$.]+|[^\s\w]')
#: The verifier's note with the op's text, which an editor shows anyway.
_REDUNDANT = "the op is: "


class Span(NamedTuple):
    """A part of the document's text: offsets of its first character and of the one behind it."""

    start: int
    end: int

    def __contains__(self, offset: object) -> bool:
        """Return whether a cursor at `offset` is inside, or at one of the ends."""
        return isinstance(offset, int) and self.start <= offset <= self.end


class Place(NamedTuple):
    """Somewhere a name is defined or used: a span of the document, or a line and column (from 1) of another file."""

    span: Span = Span(0, 0)
    other: SourceLoc | None = None


@dataclass(frozen=True)
class Finding:
    """Something wrong in the document. `related` are further places, each with a text."""

    span: Span
    message: str
    severity: str = "error"
    label: str | None = None
    related: tuple[tuple[SourceLoc, str], ...] = ()


@dataclass(frozen=True)
class Hover:
    """Markdown about the text at `span`."""

    span: Span
    markdown: str


@dataclass(frozen=True)
class Completion:
    """One proposal: `text` replaces `span`. `kind` is a name of the protocol (`Function`, `Property` …); `topic` says
    what `op_docs.topic_markdown` has more about."""

    text: str
    span: Span
    kind: str
    detail: str = ""
    topic: str = ""


@dataclass
class Symbol:
    """An entry of the document's outline."""

    name: str
    detail: str
    kind: str
    span: Span
    selection: Span
    children: list[Symbol] = field(default_factory=list)


class Text:
    """A document's text with its lines. Each of the protocol's line ends, CR LF, LF and CR, becomes a newline: columns
    count none of them."""

    def __init__(self, text: str):
        self.text = text.replace("\r\n", "\n").replace("\r", "\n")
        self.starts = [0, *(m.end() for m in re.finditer("\n", self.text))]

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column, from 0, of an offset."""
        line = bisect_right(self.starts, offset) - 1
        return line, offset - self.starts[line]

    def line(self, number: int) -> str:
        """Line `number`, from 0, without its end; "" beyond the last."""
        if not 0 <= number < len(self.starts):
            return ""
        end = self.starts[number + 1] if number + 1 < len(self.starts) else len(self.text)
        return self.text[self.starts[number] : end].rstrip("\n")

    def offset(self, line: int, column: int) -> int:
        """The offset of a line and column, from 0; a place beyond the line or the text is the nearest that exists."""
        if line >= len(self.starts):
            return len(self.text)
        return self.starts[max(line, 0)] + min(max(column, 0), len(self.line(line)))

    def word_at(self, offset: int) -> Span:
        """The name, string or sign that begins at `offset`; empty at the end of a line."""
        found = _WORD.match(self.text, offset)
        return Span(offset, found.end() if found else offset)

    def span_at(self, loc: SourceLoc) -> Span:
        """The span at a place of an error, whose lines and columns count from 1; a whole line where the column is
        unknown."""
        if not loc.line:
            return Span(0, 0)
        start = self.offset(loc.line - 1, loc.col - 1)
        if loc.col:
            return self.word_at(start)
        return Span(start, start + len(self.line(loc.line - 1)))


def finding(error: LightNetError, text: Text, path: str) -> Finding:
    """A finding of the document `path` from an error. One in an included file stands where that is included."""
    notes = [(loc, note) for loc, note in error.notes if not note.startswith(_REDUNDANT)]
    related = tuple((loc, note) for loc, note in notes if loc is not None)
    message = "\n".join([error.message, *(note for loc, note in notes if loc is None)])
    loc = error.loc
    if loc is not None and loc.file != path:
        message, related = f"{loc}: {message}", ((loc, error.message), *related)
        loc = next((l for l, _ in related if l.file == path), None)
    return Finding(text.span_at(loc) if loc else Span(0, 0), message, label=error.label, related=related)


def findings(errors: Iterable[LightNetError], text: Text, path: str) -> list[Finding]:
    """Findings in the order of the text, none twice."""
    found = dict.fromkeys(finding(e, text, path) for e in errors)
    return sorted(found, key=lambda f: f.span)
