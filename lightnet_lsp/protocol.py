"""From the analyses' words to the protocol's and back: positions in a client's units, diagnostics, locations,
proposals, outlines.

Imports lsprotocol, pygls' URIs and `documents`.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from lsprotocol import types as lsp
from pygls.uris import from_fs_path, to_fs_path

from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import SourceLoc
from lightnet_lsp.documents import MAX_TEXT
from lightnet_lsp.text import Completion, Finding, Span, Symbol, Text

_SEVERITIES = {"error": lsp.DiagnosticSeverity.Error, "warning": lsp.DiagnosticSeverity.Warning}
_WIDTHS: dict[str, Callable[[str], int]] = {
    "utf-8": lambda text: len(text.encode("utf-8", "replace")),
    "utf-16": lambda text: len(text) + sum(c > "\uffff" for c in text),
    "utf-32": len,
}


@dataclass
class Units:
    """Positions of the protocol, which count in the code units that client and server agreed on."""

    encoding: str
    width: Callable[[str], int] = field(init=False)

    def __post_init__(self) -> None:
        self.width = _WIDTHS.get(self.encoding, _WIDTHS["utf-16"])

    def offset(self, text: Text, position: lsp.Position) -> int:
        """The offset in `text` of a position; one beyond its line is the line's end."""
        line = text.line(position.line)
        column = units = 0
        while column < len(line) and units < position.character:
            units += self.width(line[column])
            column += 1
        return text.offset(position.line, column)

    def position(self, text: Text, offset: int) -> lsp.Position:
        line, column = text.position(offset)
        return lsp.Position(line, self.width(text.line(line)[:column]))

    def range(self, text: Text, span: Span) -> lsp.Range:
        return lsp.Range(self.position(text, span.start), self.position(text, span.end))


def diagnostic(found: Finding, uri: str, text: Text, units: Units) -> lsp.Diagnostic:
    own = path_of(uri)
    related = [
        lsp.DiagnosticRelatedInformation(location(loc, text, units, uri if loc.file == own else None), message)
        for loc, message in found.related
        if loc.file == own or os.path.isfile(loc.file)
    ]
    return lsp.Diagnostic(
        units.range(text, found.span),
        found.message[:4000],
        severity=_SEVERITIES[found.severity],
        code=found.label,
        source="LightNet",
        related_information=related or None,
    )


def location(loc: SourceLoc, text: Text, units: Units, uri: str | None = None) -> lsp.Location:
    """A place in the document `uri`, whose text is at hand, or, without `uri`, in another file."""
    if uri is not None:
        return lsp.Location(uri, units.range(text, text.span_at(loc)))
    before = _line_of(loc)[: max(loc.col - 1, 0)]
    at = lsp.Position(max(loc.line - 1, 0), units.width(before) if before else max(loc.col - 1, 0))
    return lsp.Location(from_fs_path(os.path.abspath(loc.file)) or loc.file, lsp.Range(at, at))


def _line_of(loc: SourceLoc) -> str:
    """The line of a place in a file; "" if that cannot be read, or a column needs none."""
    if loc.line < 1 or loc.col <= 1 or not os.path.isfile(loc.file):
        return ""
    try:
        with open(loc.file, encoding="utf-8", errors="replace") as f:
            return Text(f.read(MAX_TEXT)).line(loc.line - 1)
    except OSError:
        return ""


def item(found: Completion, number: int, where: lsp.Range) -> lsp.CompletionItem:
    return lsp.CompletionItem(
        label=found.text.rstrip(" ="),
        kind=lsp.CompletionItemKind[found.kind],
        detail=found.detail[:200] or None,
        sort_text=f"{number:05}",
        filter_text=found.text,
        text_edit=lsp.TextEdit(where, found.text),
        data=found.topic or None,
    )


def symbol(found: Symbol, where: Callable[[Span], lsp.Range]) -> lsp.DocumentSymbol:
    return lsp.DocumentSymbol(
        name=found.name,
        kind=lsp.SymbolKind[found.kind],
        range=where(found.span),
        selection_range=where(found.selection),
        detail=found.detail,
        children=[symbol(c, where) for c in found.children],
    )


def path_of(uri: str) -> str:
    """The file of a document; one that is none yet is called what the editor calls it."""
    return to_fs_path(uri) or uri.rpartition(":")[2]
