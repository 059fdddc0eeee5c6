"""Preprocessing tokens of C, and where they stand: the lexical part of the IL preprocessor.

A token is a plain tuple `(kind, text, space, pos, origin)`, because a network expands to some hundred thousand of them.
`space` says that white space stands before it, `pos` is a global offset that `TranslationMap` turns into a file, line
and column, and `origin` is the `Expansion` it comes from (None for a token of the file itself). Imports the standard
library, `source` and diagnostics only.
"""

from __future__ import annotations

import re
from bisect import bisect_right, insort
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Union

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.source import Lines, Texts

if TYPE_CHECKING:
    from lightnet.frontends.il.expansion import Expansion

Token = tuple[int, Any, bool, int, Union["Expansion", None]]

# Token kinds: the groups of `_TOKEN`, then three kinds that only the expansion makes.
SPACE, NEWLINE, NAME, NUMBER, STRING, CHAR, PUNCT, OPEN_COMMENT, OTHER = range(1, 10)
FROZEN = 10  # a name that must never be expanded again
END = 11  # the end of a macro's replacement list; `text` holds the Macro
EMPTY = 12  # a placemarker: an empty operand of ##

# `$` belongs to names, as in GCC; a string may have a prefix (L, u, U, u8).
_TOKEN = re.compile(
    r"""([ \t\f\v]+|//[^\n]*|/\*.*?\*/)
       |(\n)
       |((?!(?:u8|[LuU])"|[LuU]')[A-Za-z_$][A-Za-z0-9_$]*)
       |(\.?[0-9](?:[eEpP][+-]|[A-Za-z0-9_.$])*)
       |((?:u8|[LuU])?"[^"\\\n]*+(?:\\[^\n][^"\\\n]*+)*+")
       |([LuU]?'[^'\\\n]*+(?:\\[^\n][^'\\\n]*+)*+')
       |(\.\.\.|<<=|>>=|\#\#|%:%:|%:|<:|:>|<%|%>|->|\+\+|--|<<|>>|&&|\|\||[-+*/%&|^<>=!]=|(?!/\*)[-!#%&()*+,./:;<=>?\[\]^{|}~])
       |(/\*)
       |(.)""",
    re.VERBOSE | re.DOTALL,
)
_SPLICE = re.compile(r"\\[ \t]*\n")

# Pairs of adjacent punctuators that would read as one: `-` `-5` must not become `--5`.
_RISKY = {
    a + b
    for a, bs in {
        "+": "+=", "-": "-=>", "*": "=", "/": "=/*", "%": "=:>", "&": "&=", "|": "|=", "^": "=", "<": "<=:%", ">": ">=",
        "=": "=", "!": "=", "#": "#", ":": ":>", ".": ".",
    }.items()
    for b in bs
}  # fmt: skip
_PREFIXES = ("L", "u", "U", "u8")
_WORDS = (NAME, NUMBER, FROZEN)
_QUOTED = (STRING, CHAR)
#: Tokens, white space included, that one file may hold.
MAX_TOKENS = 4_000_000
#: An error shows so many of the innermost macros around it, so many of the outermost, and so many #include.
_MAX_NOTES = 4


class TokenError(Exception):
    """A mistake, and the token there (None: the end of the line)."""

    def __init__(self, message: str, token: Token | None):
        super().__init__(message)
        self.message = message
        self.token = token


def token_kind(text: str) -> int | None:
    """The kind of a text that is exactly one token (the result of `##`), else None."""
    m = _TOKEN.fullmatch(text)
    return m.lastindex if m and m.lastindex in (NAME, NUMBER, STRING, CHAR, PUNCT, OTHER) else None


class SourceFile:
    """One file's text after line splicing; `base` is the global offset of its first character.

    `presumed` is the file's name as `#line` gave it; `end` is where the line ends that `lines` gave last.
    """

    def __init__(self, name: str, text: str, base: int, included_at: int | None):
        self.name = self.presumed = name
        self.end = 0
        self._marks: list[tuple[int, int, str]] = []  # from this line on, so many lines further down, in this file
        self.base = base
        self.included_at = included_at
        self.original = Lines(text.replace("\r\n", "\n"))
        self.text = self.original.text
        self._splices: list[int] = []
        if _SPLICE.search(self.text):
            self._splice()

    def _splice(self) -> None:
        """Join continued lines, and keep where something was removed and how much up to there."""
        spans = [m.span() for m in _SPLICE.finditer(self.text)]
        self._removed = list(accumulate(end - start for start, end in spans))
        self._splices = [start - gone for (start, _), gone in zip(spans, [0, *self._removed])]
        self.text = _SPLICE.sub("", self.text)

    def original_offset(self, offset: int) -> int:
        i = bisect_right(self._splices, offset)
        return offset + (self._removed[i - 1] if i else 0)

    def mark(self, line: int, name: str | None) -> None:
        """Say that the line behind the present one is line `line` of file `name` (None: as before)."""
        self.presumed = self.presumed if name is None else name
        behind = self.original.line_col(self.original_offset(self.end))[0] + 1
        self._marks.append((behind, line - behind, self.presumed))

    def loc(self, offset: int) -> SourceLoc:
        """The place of an offset, where it is."""
        return self.original.loc(self.name, self.original_offset(offset))

    def presumed_loc(self, offset: int) -> SourceLoc:
        """The place of an offset, where `#line` says that it is."""
        loc = self.loc(offset)
        i = bisect_right(self._marks, loc.line, key=lambda mark: mark[0])
        return SourceLoc(self._marks[i - 1][2], loc.line + self._marks[i - 1][1], loc.col) if i else loc

    def add_to(self, texts: Texts) -> None:
        """Remember the text, under the names and with the numbers that its lines are presumed to have."""
        if not self._marks:
            texts.extend(self.name, self.original.text, 1)
            return
        lines = self.original.text.split("\n")
        starts = [(1, 0, self.name), *self._marks, (len(lines) + 1, 0, "")]
        for (first, delta, name), (end, *_) in pairwise(starts):
            if end > first:
                texts.extend(name, "\n".join(lines[first - 1 : end - 1]), first + delta)

    def lines(self) -> Iterator[list[Token]]:
        """The logical lines as token lists; comments count as white space, empty lines are left out."""
        line: list[Token] = []
        space, base = True, self.base
        for count, m in enumerate(_TOKEN.finditer(self.text)):
            kind = m.lastindex
            if count > MAX_TOKENS:
                raise LightNetError(f"'{self.name}' is too large: more than {MAX_TOKENS} tokens")
            if kind == SPACE:
                space = True
            elif kind == NEWLINE:
                if line:
                    self.end = m.start()
                    yield line
                line, space = [], True
            elif kind == OPEN_COMMENT:
                yield [(OPEN_COMMENT, "/*", space, base + m.start(), None)]
                return
            else:
                line.append((kind, m[0], space, base + m.start(), None))
                space = False
        if line:
            self.end = len(self.text)
            yield line


class TranslationMap:
    """All files of one translation; global offsets are unique over them. With `physical`, places are where they are,
    whatever `#line` says."""

    def __init__(self, physical: bool = False) -> None:
        self.physical = physical
        self.files: list[SourceFile] = []
        self.failed: list[int] = []  # where errors are, sorted
        self._bases: list[int] = []

    def add(self, name: str, text: str, included_at: int | None = None) -> SourceFile:
        base = self._bases[-1] + len(self.files[-1].text) + 1 if self.files else 0
        file = SourceFile(name, text, base, included_at)
        self.files.append(file)
        self._bases.append(base)
        return file

    def file_of(self, pos: int) -> SourceFile:
        return self.files[bisect_right(self._bases, pos) - 1]

    def loc(self, pos: int) -> SourceLoc:
        file = self.file_of(pos)
        return file.loc(pos - file.base) if self.physical else file.presumed_loc(pos - file.base)

    def texts(self) -> Texts:
        """The lines of all files, by the places that `loc` gives."""
        texts = Texts()
        for file in self.files:
            file.add_to(texts)
        return texts

    def line_at(self, pos: int) -> str | None:
        file = self.file_of(pos)
        return file.original.line_at(file.original_offset(pos - file.base))

    def error(self, message: str, token: Token, kind: type[LightNetError] = LightNetError) -> LightNetError:
        """An error at a token: the place in the user's file, and notes for each macro and each #include around it."""
        origin = token[4]
        pos = position(token)
        insort(self.failed, pos)
        notes: list[tuple[SourceLoc | None, str]] = []
        while origin is not None:
            loc = self.loc(origin.macro.pos) if origin.macro.pos >= 0 else None
            notes.append((loc, f"in expansion of macro '{origin.macro.name}'"))
            origin = origin.parent
        if len(notes) > 2 * _MAX_NOTES:
            notes[_MAX_NOTES:-_MAX_NOTES] = [(None, f"({len(notes) - 2 * _MAX_NOTES} more macros)")]
        at = self.file_of(pos).included_at
        for _ in range(_MAX_NOTES):
            if at is not None:
                notes.append((self.loc(at), "included from here"))
                at = self.file_of(at).included_at
        return kind(message, self.loc(pos), source_line=self.line_at(pos), notes=notes)


def position(token: Token) -> int:
    """The position where the user wrote a token, or the macro that it comes from."""
    return token[4].root if token[4] is not None else token[3]


def spell(tokens: list[Token]) -> tuple[str, list[int]]:
    """The text of tokens and the offset of each: white space is one blank, and none joins what were two tokens."""
    parts: list[str] = []
    starts: list[int] = []
    at, last_kind, last = 0, 0, ""
    for kind, text, space, _, _ in tokens:
        if space or (
            (kind in _WORDS and last_kind in _WORDS)
            or (kind == PUNCT and (last[-1:] + text[0] in _RISKY or (last_kind == NUMBER and text[0] in ".+-")))
            or (kind == NUMBER and last == ".")
            or (last == "%:" and text[0] == "%")  # %:%: is ##
            or (kind in _QUOTED and last_kind in _WORDS and (last in _PREFIXES or text[0] not in "\"'"))
        ):
            parts.append(" ")
            at += 1
        parts.append(text)
        starts.append(at)
        at += len(text)
        last_kind, last = kind, text
    return "".join(parts), starts
