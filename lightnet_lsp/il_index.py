"""An index of IL text from its tokens: statements with their arguments, tensors, macros and included files.

It uses the preprocessor's lexer, and expands nothing: it holds for text that is being typed. Imports `frontends` and
`text`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.frontends.il.includes import Folders
from lightnet.frontends.il.lexer import NAME, OPEN_COMMENT, STRING, SourceFile
from lightnet.source import Lines
from lightnet_lsp.text import Span

#: A comment, or a string, in which none begins.
_COMMENT = re.compile(r'(?P<comment>//[^\n]*|/\*(?:[^*]|\*(?!/))*+(?:\*/)?)|"(?:[^"\\\n]|\\.)*+"?')
#: Files that macros are looked for in, and their bytes.
MAX_FILES, MAX_BYTES = 200, 4 << 20


@dataclass(frozen=True)
class Word:
    """A token of the document, at offsets of its text."""

    kind: int
    text: str
    span: Span


@dataclass(frozen=True)
class _Argument:
    """``name = value`` in one of the three sections of a statement: 0 operands, 1 results, 2 parameters."""

    section: int
    name: Word
    values: tuple[Word, ...]


@dataclass
class IlStatement:
    """``optype(a=x | b=y | c=1)``, or the call of a macro, which has `words` only."""

    op: Word
    words: list[Word]
    arguments: list[_Argument] = field(default_factory=list)

    @property
    def span(self) -> Span:
        return Span(self.op.span.start, self.words[-1].span.end if self.words else self.op.span.end)

    def tensors(self, section: int) -> Iterator[Word]:
        """The tensors of its operands (0) or results (1)."""
        for argument in self.arguments:
            if argument.section == section and len(argument.values) == 1 and argument.values[0].kind == NAME:
                yield argument.values[0]


@dataclass(frozen=True)
class MacroText:
    """A macro: where its name stands in its file, and its definition as written."""

    name: str
    loc: SourceLoc
    text: str


@dataclass(frozen=True)
class Include:
    """An `#include` of the document: the span of the file's name, and the file that was found."""

    span: Span
    path: str | None


class IlIndex:
    """The index of one document; `path` and `include_dirs` say which files may be read."""

    def __init__(self, text: str, path: str, include_dirs: Iterable[str]):
        self.text, self.path = text, path
        self.macros: dict[str, MacroText] = {}
        self.includes: list[Include] = []
        self.words: list[Word] = []
        self.directive_words: list[Word] = []
        self._folders = Folders(path, include_dirs, MAX_BYTES)
        self._seen: set[str] = set()
        self._read(text, path)
        self.statements = list(_statements(self.words))
        self.tensors: dict[str, Word] = {}
        for statement in self.statements:
            for word in statement.tensors(1):
                self.tensors.setdefault(word.text, word)

    def _read(self, text: str, path: str) -> None:
        """Take up a file; of those that are included only the macros."""
        own = not self._seen
        self._seen.add(path)
        source = SourceFile(path, text, 0, None)
        lines = Lines(source.original.text)
        try:
            for line in source.lines():
                words = [_word(source, token) for token in line if token[0] != OPEN_COMMENT]
                if words and words[0].text in ("#", "%:"):
                    self.directive_words += words if own else []
                    self._directive(words, path, lines, own)
                elif own:
                    self.words += words
        except LightNetError:  # too many tokens: what was read is enough
            return

    def _directive(self, words: list[Word], path: str, lines: Lines, own: bool) -> None:
        if len(words) < 3:
            return
        if words[1].text == "define":
            text = lines.text[words[0].span.start : words[-1].span.end]
            name = words[2]
            self.macros.setdefault(name.text, MacroText(name.text, lines.loc(path, name.span.start), text))
        elif words[1].text == "include" and len(self._seen) < MAX_FILES:
            self._include(words[2:], path, own)

    def _include(self, words: list[Word], path: str, own: bool) -> None:
        quoted = words[0].kind == STRING
        span = Span(words[0].span.start, words[-1].span.end)
        name = words[0].text[1:-1] if quoted else "".join(w.text for w in words[1:-1])
        found = text = None
        if "\0" in name:
            return
        try:
            found, text = self._folders.read(name, not quoted, path)
        except LightNetError:
            pass
        if own:
            self.includes.append(Include(span, found))
        if found is not None and text is not None and found not in self._seen:
            self._read(text, found)

    def word_at(self, offset: int) -> Word | None:
        """The name at an offset."""
        return next((w for w in self.words if w.kind == NAME and offset in w.span), None)

    def directive_word_at(self, offset: int) -> Word | None:
        """The name at an offset in a directive: in the body of a macro, say, which is no statement of the document."""
        return next((w for w in self.directive_words if w.kind == NAME and offset in w.span), None)

    def is_comment(self, offset: int) -> bool:
        """Return whether what is typed at an offset belongs to a comment."""
        comment = next((m for m in _COMMENT.finditer(self.text, 0, offset) if m.end() == offset), None)
        if comment is None or comment["comment"] is None:
            return False
        return comment[0].startswith("//") or not (comment[0].endswith("*/") and len(comment[0]) > 3)

    def statement_at(self, offset: int) -> IlStatement | None:
        return next((s for s in self.statements if offset in s.span), None)

    def occurrences(self, tensor: str) -> list[Span]:
        """The places where a tensor is named: as an operand or result, and in the calls of macros."""
        found = []
        for statement in self.statements:
            words = [*statement.tensors(0), *statement.tensors(1)] if statement.arguments else statement.words
            found += [w.span for w in words if w.kind == NAME and w.text == tensor]
        return found

    def before(self, offset: int) -> list[Word]:
        """The words of the statement around an offset that end before it."""
        words: list[Word] = []
        for word in self.words:
            if word.span.end > offset:
                break
            if word.text == ";":
                words = []
            else:
                words.append(word)
        return words


def _word(source: SourceFile, token: tuple) -> Word:
    kind, text, _, at, _ = token
    return Word(kind, text, Span(source.original_offset(at), source.original_offset(at + len(text) - 1) + 1))


def _statements(words: list[Word]) -> Iterator[IlStatement]:
    statement: IlStatement | None = None
    for word in words:
        if word.text == ";":
            if statement is not None:
                yield _with_arguments(statement)
            statement = None
        elif statement is not None:
            statement.words.append(word)
        elif word.kind == NAME:
            statement = IlStatement(word, [])
    if statement is not None:
        yield _with_arguments(statement)


def _with_arguments(statement: IlStatement) -> IlStatement:
    """The statement with its arguments; the call of a macro, which has no ``|``, keeps none."""
    if not any(w.text == "|" for w in statement.words):
        return statement
    section = depth = 0
    open_: list[Word] = []

    def close() -> None:
        if len(open_) > 1 and open_[1].text == "=":
            statement.arguments.append(_Argument(section, open_[0], tuple(open_[2:])))
        open_.clear()

    for word in statement.words[1:]:
        depth += (word.text in "[(") - (word.text in "])") if len(word.text) == 1 else 0
        if depth < 0 or (depth == 0 and word.text in (",", "|")):
            close()
            section += word.text == "|"
            continue
        open_.append(word)
    close()
    return statement
