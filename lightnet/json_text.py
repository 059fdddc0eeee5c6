"""JSON text with places: what JSON IR, NNVM graphs and descriptions are read with.

`JsonSource`, `json_kind` and the numbers are for each reader of JSON; `JsonText` is the strict one, for networks, which
may be large: the top level is walked by hand and each part of it is decoded by the standard library's C scanner, so
that memory holds one raw entry at a time; what has the wrong form is an error at its line and column. Comments (`//`
and `/* */`) are taken; trailing commas, duplicate keys, NaN, Infinity and numbers beyond 64 bits are not. The lenient
one, whose values know where they stand, is `lightnet_descriptions/reader.py`. Imports the standard library, `source`
and diagnostics only.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn

from lightnet.diagnostics import LightNetError, SourceLoc, first_twice
from lightnet.source import Lines, check_text, end_of

MAX_FILE = 1 << 26  # bytes, of the file and of the text in memory
# What a text within MAX_FILE may hold, so that even one odd operator decodes in a few seconds to a few hundred MB.
_MAX_COUNTS = {
    "{": 4_000_000,
    "[": 4_000_000,
    '"': 20_000_000,
    ",": 8_000_000,
    ":": 4_000_000,
    "//": 1_000_000,
    "/*": 1_000_000,
}

_BLANK = re.compile(r"[ \t\r\n]*")
_COMMENT = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|//[^\n]*|/\*.*?\*/|/\*', re.DOTALL)
_PIECE = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.DOTALL)


#: Levels that a value may be nested.
MAX_DEPTH = 100

#: A place in a decoded value: keys and indices from the value that was decoded.
Path = tuple[str | int, ...]


class FormError(Exception):
    """Something in a decoded value does not have the form it should: what, and where."""

    def __init__(self, message: str, path: Path = ()):
        super().__init__(message)
        self.message = message
        self.path = path


class JsonSource(NamedTuple):
    """The text that values stand in."""

    file: str
    lines: Lines

    def loc(self, at: int) -> SourceLoc:
        return self.lines.loc(self.file, min(at, len(self.lines.text)))

    def error(self, message: str, at: int, label: str | None = None) -> LightNetError:
        at = min(at, len(self.lines.text))
        return LightNetError(message, self.loc(at), label, source_line=self.lines.line_at(at))


def json_kind(value: object) -> str:
    """The kind of a value, for messages."""
    match value:
        case None:
            return "null"
        case bool():
            return "a bool"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
    return "an object"


class LiteralError(ValueError):
    """A literal that may not stand in a text: what is wrong with it, and its text."""

    def __init__(self, message: str, text: str):
        super().__init__(message)
        self.message, self.text = message, text


def _integer(text: str) -> int:
    """The integer that `text` is. Raises `LiteralError` for one beyond 64 bits."""
    if len(text) > 40 or not -(1 << 63) <= (value := int(text)) < 1 << 64:
        raise LiteralError(f"the number {text[:40]} does not fit 64 bits", text)
    return value


def real(text: str) -> float:
    """The number that `text` is. Raises `LiteralError` for one beyond double."""
    value = float(text)
    if math.isinf(value):
        raise LiteralError(f"the number {text[:40]} is too large", text)
    return value


def json_number(text: str) -> int | float:
    """The number that `text` is, an integer where it has digits alone. Raises `LiteralError`."""
    return _integer(text) if text.lstrip("+-").isdigit() else real(text)


class JsonText:
    """A text and the values in it. `members` walks the top object, `value` decodes what stands at an offset, `checked`
    turns a `FormError` into an error at its place."""

    #: What the top object has to be, for the error where the text is another value.
    needs = "the top value has to be an object"

    def __init__(self, text: str, path: str):
        self.path = path
        self.lines = Lines(text)
        self.error = JsonSource(path, self.lines).error
        self.duplicate = ""
        decoder = json.JSONDecoder(
            object_pairs_hook=self.pairs, parse_int=_integer, parse_float=real, parse_constant=_constant
        )
        self.scan: Callable[[str, int], tuple[Any, int]] = decoder.scan_once  # type: ignore[attr-defined]  # typeshed lacks it
        if sys.getsizeof(text) > MAX_FILE + 128:
            raise LightNetError(f"'{path}' is too large: more than {MAX_FILE} bytes")
        check_text(text, path)
        for mark, most in _MAX_COUNTS.items():
            if text.count(mark) > most:
                raise LightNetError(f"'{path}' is too large: more than {most} times '{mark}'")
        self.text = self.without_comments(text) if "//" in text or "/*" in text else text

    def without_comments(self, text: str) -> str:
        """Comments replaced by blanks of the same length, so that every offset stays."""

        def blank(m: re.Match) -> str:
            if m[0] == "/*":
                raise self.error("unterminated comment", m.start())
            return m[0] if m[0][0] == '"' else re.sub(r"[^\n]", " ", m[0])

        return _COMMENT.sub(blank, text)

    def pairs(self, pairs: list[tuple[str, Any]]) -> dict:
        """An object's members; a key that stands twice is remembered, since the place is not known here."""
        members = dict(pairs)
        if len(members) != len(pairs) and not self.duplicate:
            self.duplicate = first_twice(k for k, _ in pairs)
        return members

    # -- walking ------------------------------------------------------------------------------------------------------
    def skip(self, at: int) -> int:
        return end_of(_BLANK, self.text, at)

    def value(self, at: int) -> tuple[Any, int]:
        """Decode the value at `at`: it, and the offset after it."""
        try:
            value, end = self.scan(self.text, at)
        except StopIteration as e:
            raise self.unexpected(e.value) from None
        except json.JSONDecodeError as e:
            raise self.error(f"not valid JSON: {e.msg[0].lower()}{e.msg[1:]}", e.pos) from None
        except LiteralError as e:
            raise self.error(e.message, self.find_literal(at, e.text)) from None
        except RecursionError:
            raise self.error(f"nested deeper than {MAX_DEPTH} levels", at) from None
        if self.duplicate:
            raise self.error(f'the key "{self.duplicate[:80]}" stands twice in one object', self.find_duplicate(at))
        return value, end

    def unexpected(self, at: int) -> LightNetError:
        if at >= len(self.text):
            return self.error("not valid JSON: the text ends too early", at)
        return self.error("not valid JSON: expected a value", at)

    def expect(self, at: int, marks: str, what: str) -> int:
        if at < len(self.text) and self.text[at] in marks:
            return at  # as nearly everywhere: keys, and marks behind values
        at = self.skip(at)
        if at >= len(self.text):
            raise self.unexpected(at)
        if self.text[at] not in marks:
            raise self.error(f"not valid JSON: expected {what}", at)
        return at

    def members(self) -> Iterator[tuple[str, int, list[int]]]:
        """The members of the top object: the key, the offset of the value, and a list that takes the offset
        after it."""
        at = self.skip(0)
        if self.text[at : at + 1] == "\ufeff":
            raise self.error("the text begins with a byte order mark", at)
        if self.text[at : at + 1] != "{":
            self.value(at)
            raise self.error(self.needs, at)
        at = self.skip(at + 1)
        seen: set[str] = set()
        closed = self.text[at : at + 1] == "}"
        while not closed:
            at = self.expect(at, '"', "a key in quotes")
            key, end = self.value(at)
            if key in seen:
                raise self.error(f'the key "{key[:80]}" stands twice in one object', at)
            seen.add(key)
            after = [self.skip(self.expect(end, ":", "':'") + 1)]
            yield key, after[0], after
            at = self.expect(after[0], ",}", "',' or '}'")
            closed = self.text[at] == "}"
            at = self.skip(at + 1) if not closed else at
        at = self.skip(at + 1)
        if at < len(self.text):
            raise self.error("not valid JSON: more text after the end", at)

    def items(self, at: int, after: list[int]) -> Iterator[tuple[Any, int]]:
        """The values of the array at `at`, each with its offset; after the last, `after[0]` is the offset behind the
        array."""
        at = self.skip(at + 1)
        closed = self.text[at : at + 1] == "]"
        while not closed:
            value, end = self.value(at)
            yield value, at
            at = self.expect(end, ",]", "',' or ']'")
            closed = self.text[at] == "]"
            at = self.skip(at + 1) if not closed else at
        after[0] = at + 1

    def checked(self, convert: Callable[[], Any], at: int) -> Any:
        """The result of a conversion; what it finds wrong becomes an error at its place in the value that
        begins at `at`."""
        try:
            return convert()
        except FormError as e:
            raise self.error(e.message, self.find(at, e.path)) from None

    # -- finding places, for errors only ------------------------------------------------------------------------------
    def find(self, at: int, path: Path) -> int:
        """The offset of the part of a (valid) value that a path names."""
        for step in path:
            if self.text[at] == "{":
                at = self.skip(at + 1)
                while self.text[at] != "}":
                    key, end = self.scan(self.text, at)
                    at = self.skip(self.skip(end) + 1)
                    if key == step:
                        break
                    at = self.after(at)
            else:
                at = self.skip(at + 1)
                for _ in range(int(step)):
                    at = self.after(at)
        return at

    def after(self, at: int) -> int:
        """The offset of what follows a value and its comma."""
        at = self.skip(self.scan(self.text, at)[1])
        return self.skip(at + 1) if self.text[at] == "," else at

    def find_literal(self, at: int, literal: str) -> int:
        return next((m.start() for m in _PIECE.finditer(self.text, at) if m[0] in (literal, "-" + literal)), at)

    def find_duplicate(self, at: int) -> int:
        """The second of two equal keys in the value at `at`."""
        open_: list[set[str]] = []
        last = at
        key = ""
        for m in _PIECE.finditer(self.text, at):
            if m[0] in "{[":
                open_.append(set())
            elif m[0] in "}]":
                open_.pop()
                if not open_:
                    break
            elif m[0] == ":":
                if key in open_[-1]:
                    return last
                open_[-1].add(key)
            elif m[0][0] == '"':
                last, key = m.start(), json.loads(m[0])
        return at


def _constant(text: str) -> NoReturn:
    raise LiteralError(f"not valid JSON: {text[:40]}", text)
