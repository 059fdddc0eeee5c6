"""The text of operator and optimizer descriptions: JSON and `.op` text to values that know where they stand.

One reader takes both dialects, since the later one only adds to the former: JSON with comments, trailing commas, bare
keys and raw strings, and upstream's `.op` objects, ``NAME : BASE { ... }``, with inheritance. Grammar:

    document := value | (NAME (":" BASE)? object ","?)*          JSON text has one object, `.op` text named ones
    object   := "{" (key ":" value ","?)* "}"                     key: an identifier or a string, once
    array    := "[" (value ","?)* "]"
    value    := object | array | string | number | true | false | null | "-"
    string   := "..." with escapes | '...' raw | `...` raw | '''...''' raw (a JSON file's form of longer text)
    comment  := // or # to the end of the line | /* ... */

A key that stands twice in an object of JSON text has the later value, as in upstream's reader; `.op` text refuses it.
`-` stands in `.op` text only, and deletes what the base has there: a member, or an element of an array. A derived
object takes its base's members; objects merge by key, arrays by index, everything else is replaced. Nothing is
executed; size and depth are bounded. Imports the standard library, `json_text`, `parsing`, `source` and `diagnostics`
only.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Any, NoReturn

from lightnet import json_text
from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.json_text import JsonSource, json_kind
from lightnet.parsing import Token, lexed
from lightnet.source import Lines, check_text

MAX_TEXT = 16 << 20
MAX_DEPTH = 64
#: Values, escapes in strings, and what inheritance makes, in all: a chain of objects that each hold the last one twice
#: grows fast.
MAX_VALUES = 200_000

_TOKEN = re.compile(
    r"(?P<space>(?:[ \t\r\n]+|//[^\n]*|\#[^\n]*|/\*.*?\*/)+)"
    r"|(?P<string>\"(?:[^\"\\\n]|\\.)*\"|'''.*?'''|'[^']*'|`[^`]*`)"
    r"|(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<mark>[{}\[\]:,-])",
    re.DOTALL | re.ASCII,
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "b": "\b"}
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}


@dataclass(frozen=True, slots=True)
class DescribedValue:
    """A value of a description and its place: of a string that of the first character inside of the quotes. Members of
    an object also know the place of their key. Two items are equal if their values are."""

    value: str | int | float | bool | list[DescribedValue] | dict[str, DescribedValue] | None
    source: JsonSource = field(compare=False, repr=False)
    start: int = field(compare=False, repr=False)
    key_start: int | None = field(default=None, compare=False, repr=False)
    #: For a string with escapes: the offsets, in the value and in the text, of what follows each of them.
    jumps: tuple[tuple[int, int], ...] = field(default=(), compare=False, repr=False)

    @property
    def loc(self) -> SourceLoc:
        """The place where it stands."""
        return self.source.loc(self.start)

    @property
    def key_loc(self) -> SourceLoc | None:
        """The place where its key stands; None for what is no member."""
        return None if self.key_start is None else self.source.loc(self.key_start)

    def error(self, message: str, label: str | None = None) -> LightNetError:
        """An error at the value."""
        return self.source.error(message, self.start, label)

    def key_error(self, message: str, label: str | None = None) -> LightNetError:
        """An error at its key, or at the value of what is no member."""
        return self.source.error(message, self.start if self.key_start is None else self.key_start, label)

    def position(self, offset: int) -> int:
        """The offset in the text of character `offset` of a string."""
        at = bisect_right(self.jumps, (offset, len(self.source.lines.text)))
        value, text = self.jumps[at - 1] if at else (0, self.start)
        return text + offset - value

    def error_at(self, offset: int, message: str, label: str | None = None) -> LightNetError:
        """An error at character `offset` of a string."""
        return self.source.error(message, self.position(offset), label)

    @property
    def kind(self) -> str:
        """The word for what it is, for messages."""
        return json_kind(self.value)

    def plain(self) -> Any:
        """The value without places, as `json.loads` would give it."""
        if isinstance(self.value, dict):
            return {key: item.plain() for key, item in self.value.items()}
        if isinstance(self.value, list):
            return [item.plain() for item in self.value]
        return self.value


@dataclass(frozen=True)
class Document:
    """The contents of a text. `kind` is ``json`` (one object, under the name "") or ``op`` (named objects, with what
    they inherit).
    """

    file: str
    kind: str
    objects: dict[str, DescribedValue]
    source: JsonSource = field(repr=False, compare=False)


def read_description(text: str, file: str) -> Document:
    """The values of a description. Raises `LightNetError` at the place of what is malformed."""
    if len(text) > MAX_TEXT:
        raise LightNetError(f"'{file}' is too large: more than {MAX_TEXT} characters")
    check_text(text, file)
    return _Reader(JsonSource(file, Lines(text))).document()


#: What `-` is until the object or array around it is merged with its base.
_DELETED = object()


class _Reader:
    """Recursive descent, one token ahead."""

    def __init__(self, source: JsonSource):
        self.source, self.text = source, source.lines.text
        self.values = 0
        self.kind = "op"
        self.tokens = lexed(self.text, _TOKEN, self.unknown)
        self.token = Token("", "", 0)
        self.take()

    def error(self, message: str, at: int | None = None) -> LightNetError:
        return self.source.error(message, self.token.pos if at is None else at)

    # -- tokens

    def unknown(self, at: int) -> NoReturn:
        c = self.text[at]
        message = "unterminated string" if c in "\"'`" else f"unexpected character {c!a}"
        raise self.source.error("unterminated comment" if self.text.startswith("/*", at) else message, at)

    def take(self) -> Token:
        token, self.token = self.token, next(self.tokens, Token("end", "", len(self.text)))
        return token

    def taken(self, mark: str) -> bool:
        """Take `mark` if it is next."""
        if self.token.kind == "mark" and self.token.text == mark:
            self.take()
            return True
        return False

    def expect(self, mark: str, what: str) -> None:
        if not self.taken(mark):
            raise self.error(f"expected '{mark}' {what}, got {self.shown()}")

    def shown(self) -> str:
        return "the end of the text" if self.token.kind == "end" else f"{self.token.text[:40]!a}"

    # -- documents

    def document(self) -> Document:
        if self.token.kind == "name" or self.token.kind == "end":
            return Document(self.source.file, "op", self.named_objects(), self.source)
        if self.token.text != "{":
            raise self.error(f"expected an object, or a named one, got {self.shown()}")
        self.kind = "json"
        top = self.object(0)
        if self.token.kind != "end":
            raise self.error(f"expected the end of the text behind the object, got {self.shown()}")
        return Document(self.source.file, "json", {"": _resolved(top, {})}, self.source)

    def named_objects(self) -> dict[str, DescribedValue]:
        """``NAME : BASE { ... }`` one after another, each merged with its base."""
        raw: dict[str, DescribedValue] = {}
        while self.token.kind == "name":
            name = self.take()
            if name.text in raw:
                raise self.error(
                    f"'{name.text}' is defined twice; the first stands at {raw[name.text].key_loc}", name.pos
                )
            base = None
            if self.taken(":"):
                if self.token.kind != "name":
                    raise self.error(f"expected the name of a base, got {self.shown()}")
                if self.token.text not in raw:
                    known = ", ".join(raw) or "none"
                    raise self.error(f"unknown base '{self.token.text}'; defined before it: {known}")
                base = raw[self.take().text]
            if self.token.text != "{":
                raise self.error(f"expected '{{' behind '{name.text}', got {self.shown()}")
            item = self.object(0)
            merged = item if base is None else self.merged(base, item)
            raw[name.text] = DescribedValue(merged.value, self.source, item.start, name.pos)
            self.taken(",")
        if self.token.kind != "end":
            raise self.error(f"expected the name of an object, got {self.shown()}")
        seen: dict[int, DescribedValue] = {}
        return {name: _resolved(item, seen) for name, item in raw.items()}

    # -- values

    def value(self, depth: int) -> DescribedValue:
        token = self.token
        self.count(1, token.pos)
        if depth > MAX_DEPTH:
            raise self.error(f"nested deeper than {MAX_DEPTH} levels")
        match token.kind, token.text:
            case "mark", "{":
                return self.object(depth)
            case "mark", "[":
                return self.array(depth)
            case "mark", "-":
                self.take()
                return DescribedValue(_DELETED, self.source, token.pos)  # type: ignore[arg-type]
            case "string", _:
                self.take()
                return self.string(token)
            case "number", _:
                self.take()
                return DescribedValue(self.number(token), self.source, token.pos)
            case "name", word if word in _WORDS:
                self.take()
                return DescribedValue(_WORDS[word], self.source, token.pos)
        raise self.error(f"expected a value, got {self.shown()}")

    def object(self, depth: int) -> DescribedValue:
        start = self.take().pos
        members: dict[str, DescribedValue] = {}
        while not self.taken("}"):
            key = self.token
            if key.kind not in ("name", "string"):
                raise self.error(f"expected a key or '}}', got {self.shown()}")
            self.take()
            name = str(self.string(key).value) if key.kind == "string" else key.text
            if name in members and self.kind == "op":
                raise self.error(f"the key '{name[:80]}' stands twice in one object", key.pos)
            self.expect(":", f"behind the key '{name[:80]}'")
            item = self.value(depth + 1)
            members[name] = DescribedValue(item.value, self.source, item.start, key.pos, item.jumps)
            if not self.taken(",") and self.token.text != "}":
                raise self.error(f"expected ',' or '}}', got {self.shown()}")
        return DescribedValue(members, self.source, start)

    def array(self, depth: int) -> DescribedValue:
        start = self.take().pos
        items: list[DescribedValue] = []
        while not self.taken("]"):
            items.append(self.value(depth + 1))
            if not self.taken(",") and self.token.text != "]":
                raise self.error(f"expected ',' or ']', got {self.shown()}")
        return DescribedValue(items, self.source, start)

    def number(self, token: Token) -> int | float:
        try:
            return json_text.json_number(token.text)
        except json_text.LiteralError as e:
            raise self.error(e.message, token.pos) from None

    def string(self, token: Token) -> DescribedValue:
        quote = 3 if token.text.startswith("'''") and len(token.text) >= 6 else 1
        inner, start = token.text[quote:-quote], token.pos + quote
        if token.text[0] != '"' or "\\" not in inner:
            return DescribedValue(inner, self.source, start)
        self.count(inner.count("\\"), token.pos)
        parts: list[str] = []
        jumps: list[tuple[int, int]] = []
        last, length = 0, 0
        for m in _ESCAPE.finditer(inner):
            plain = inner[last : m.start()]
            parts += [plain, chr(int(m[1], 16)) if m[1] else _ESCAPED.get(m[2], m[2])]
            length += len(plain) + 1
            last = m.end()
            jumps.append((length, start + last))
        return DescribedValue("".join([*parts, inner[last:]]), self.source, start, None, ((0, start), *jumps))

    # -- inheritance

    def count(self, values: int, at: int) -> None:
        self.values += values
        if self.values > MAX_VALUES:
            raise self.error(f"more than {MAX_VALUES} values", at)

    def merged(self, base: DescribedValue, derived: DescribedValue) -> DescribedValue:
        """`derived` on top of `base`; what the derived one says of itself has its own place."""
        a, b = base.value, derived.value
        if isinstance(a, dict) and isinstance(b, dict):
            self.count(len(a) + len(b), derived.start)
            both: dict[str, DescribedValue] = dict(a)
            for key, item in b.items():
                old = both.get(key)
                both[key] = item if old is None else self.merged(old, item)
            return DescribedValue(both, derived.source, derived.start, derived.key_start)
        if isinstance(a, list) and isinstance(b, list):
            self.count(max(len(a), len(b)), derived.start)
            longer = [*b[len(a) :]] if len(b) > len(a) else [*a[len(b) :]]
            items = [self.merged(x, y) for x, y in zip(a, b)]
            return DescribedValue([*items, *longer], derived.source, derived.start, derived.key_start)
        return derived


def _resolved(item: DescribedValue, seen: dict[int, DescribedValue]) -> DescribedValue:
    """`item` without what `-` deletes; `seen` has the answers so far by identity, since derived objects share what they
    inherit."""
    value = item.value
    if not isinstance(value, dict | list):
        return item
    if (known := seen.get(id(item))) is not None:
        return known
    if isinstance(value, dict):
        value = {key: _resolved(inner, seen) for key, inner in value.items() if inner.value is not _DELETED}
    else:
        value = [_resolved(inner, seen) for inner in value if inner.value is not _DELETED]
    seen[id(item)] = result = DescribedValue(value, item.source, item.start, item.key_start)
    return result
