"""Parsing of expressions: binary operators by precedence climbing, and recursive descent over tokens.

Every expression language of the package is a table of operators, an operand and what becomes of two of them: constant
expressions and index notation (`ir/expr.py`), the C of descriptions, conditions of IL's `#if`, the arithmetic of
`${eval}`. Imports the standard library.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, Generic, NamedTuple, NoReturn, TypeVar

T = TypeVar("T")

#: Operands that are open at once, of operators and in brackets; and, where there is a bound on rows, operators that
#: hold one another: a row may stand in brackets at the head of the next one.
MAX_HEIGHT = 150


class Climber(Generic[T]):
    """Binary operators between operands (Richards and Whitby-Strevens, BCPL, 1979). A subclass says where the operators
    are, and what they make: of trees, or of values at once."""

    #: The operators by precedence, those that bind weakest first.
    LEVELS: ClassVar[Sequence[Sequence[str]]] = ()
    #: Operators that do not stand in a row: ``a < b < c`` is malformed.
    SINGLE: ClassVar[Sequence[str]] = ()
    #: Bounds on how deep a text is nested, so that it takes no deep stack, and on operators in a row, so that no tree
    #: is deep.
    MAX_DEPTH: ClassVar[int]
    MAX_ROW: ClassVar[int | None] = None
    BINDING: ClassVar[dict[str, int]]
    depth = opened = height = 0

    def __init_subclass__(cls) -> None:
        cls.BINDING = {op: level for level, ops in enumerate(cls.LEVELS) for op in ops}

    def operator(self) -> str:
        """The operator that stands here, not taken; any other text where there is none."""
        raise NotImplementedError

    def operand(self) -> T:
        """Parse what stands between operators."""
        raise NotImplementedError

    def joined(self, left: T, right: Callable[[], T]) -> T:
        """Take the operator that stands here, and join `left` with what `right()` parses behind it."""
        raise NotImplementedError

    def too_deep(self) -> NoReturn:
        raise NotImplementedError

    def too_long(self) -> NoReturn:
        """Raise the error of more than `MAX_ROW` operators in a row, at the one that stands here."""
        raise NotImplementedError

    def too_high(self) -> NoReturn:
        """Raise the error of operators that hold one another beyond `MAX_HEIGHT`."""
        self.too_deep()

    def climb(self, least: int = 0) -> T:
        """Operands and the operators between them that bind no weaker than level `least`."""
        self.opened += 1
        if self.opened > MAX_HEIGHT:
            self.too_high()
        beside, self.height = self.height, 0  # of other operands of what this is an operand of
        left, most, count = self.operand(), len(self.LEVELS), 0
        height = self.height
        while least <= (level := self.BINDING.get(op := self.operator(), -1)) < most:
            count += 1
            if self.MAX_ROW is not None and count > self.MAX_ROW:
                self.too_long()
            self.height = 0
            left = self.joined(left, partial(self.climb, level + 1))
            most = level + (op not in self.SINGLE)  # `right` has taken what binds tighter
            height = max(height, self.height) + 1
            if self.MAX_ROW is not None and height > MAX_HEIGHT:
                self.too_high()
        self.opened -= 1
        self.height = max(beside, height)
        return left

    def nested(self, parse: Callable[[], Any]) -> Any:
        """The result of `parse`, one level deeper."""
        self.depth += 1
        if self.depth > self.MAX_DEPTH:
            self.too_deep()
        found = parse()
        self.depth -= 1
        return found


class EvaluatingParser(Climber[T]):
    """Parses and evaluates at once. While `idle` is positive (an arm that is not taken) it only parses."""

    idle = 0

    def unless(self, skip: bool, parse: Callable[[], T]) -> T:
        """Parse an operand, evaluating it unless `skip`."""
        self.idle += skip
        value = parse()
        self.idle -= skip
        return value


class Token(NamedTuple):
    """A token: its kind (``name``, ``num``, ``str``, ``op`` …; the last one is ``end``), its text, and its offset."""

    kind: str
    text: str
    pos: int


def lexed(text: str, pattern: re.Pattern[str], unknown: Callable[[int], NoReturn]) -> Iterator[Token]:
    """The tokens of `text`, whose kinds are the groups of `pattern`, without those of the group ``space``;
    `unknown(offset)` raises the error of text that is none."""
    at = 0
    while at < len(text):
        m = pattern.match(text, at)
        if m is None:
            unknown(at)
        kind = m.lastgroup or ""
        if kind != "space":
            yield Token(kind, m[kind], at)
        at = m.end()


class TokenParser(Climber[T]):
    """Recursive descent over tokens, of which the last is the end."""

    #: What is parsed, in messages.
    WHAT: ClassVar[str]

    def __init__(self, text: str, tokens: Sequence[Token]):
        self.text, self.tokens = text, tokens
        self.i = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.i]

    def ahead(self, count: int) -> Token:
        return self.tokens[min(self.i + count, len(self.tokens) - 1)]

    def error(self, message: str, pos: int | None = None) -> NoReturn:
        """Raise a located error at an offset of the text, or at the token."""
        raise NotImplementedError

    def next(self) -> Token:
        token = self.token
        self.i += token.kind != "end"
        return token

    def accept(self, *texts: str) -> Token | None:
        """Take the token if it is one of `texts`."""
        return self.next() if self.token.text in texts and self.token.kind in ("op", "name") else None

    def expect(self, text: str, where: str = "") -> Token:
        got = self.token.text
        return self.accept(text) or self.error(f"expected '{text}'{' ' + where if where else ''}, got '{got[:40]}'")

    def name(self, what: str) -> Token:
        if self.token.kind != "name":
            self.error(f"expected {what}, got '{self.token.text[:40]}'")
        return self.next()

    def operator(self) -> str:
        return self.token.text if self.token.kind == "op" else ""

    def too_deep(self) -> NoReturn:
        self.error(f"{self.WHAT} nested more than {self.MAX_DEPTH} deep")

    def too_high(self) -> NoReturn:
        self.error(f"{self.WHAT} with more than {MAX_HEIGHT} operators that hold one another")
