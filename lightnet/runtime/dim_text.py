"""The text of dims: ``batch(1..16)``, ``2*length(1..512 by 8) + 1``, ``length floordiv 4``, ``max(a(0..9), 3)``.

A symbol has its bounds behind it where it stands first, here and in a list of dims; operators are MLIR's of affine
expressions. Imports `runtime.dims`, the parser of expressions and diagnostics.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import gcd, prod
from types import MappingProxyType
from typing import NoReturn

from lightnet.diagnostics import LightNetError
from lightnet.parsing import Token, TokenParser, lexed
from lightnet.runtime.dims import (
    Atom,
    Dim,
    Extreme,
    Monomial,
    Quotient,
    Size,
    Symbol,
    dim_max,
    dim_min,
    is_known,
    symbol,
)

#: The longest text that is read, and the largest number in one.
MAX_TEXT, MAX_NUMBER = 1 << 14, 1 << 62
#: The most terms of a dim that is read, and the most factors of a term: each may double what a bound takes.
MAX_TERMS, MAX_FACTORS = 128, 8

_WORDS = ("floordiv", "ceildiv", "mod", "min", "max", "by")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<num>\d+)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|"
    r"(?P<quoted>\'(?:[^\']|\'\')*\')|(?P<op>\.\.|[-+*(),])",
    re.ASCII,
)


def text(size: Size, shown: set[str] | None = None) -> str:
    """The text of a dim; symbols in `shown` stand without their bounds, and those that get them are added."""
    return _Writer(set() if shown is None else shown).size(size)


def dims_text(sizes: Sequence[Size]) -> str:
    """The text of several dims, with commas; of equal symbols the first has the bounds."""
    writer = _Writer(set())
    return ", ".join(map(writer.size, sizes))


def parse_sizes(
    source: str, known: Mapping[str, Size] = MappingProxyType({}), as_written: bool = False
) -> tuple[Size, ...]:
    """The dims of a text that `dims_text` writes. Raises `LightNetError`, which names the column. `as_written`, they
    are the polynomials that stand there, and nothing is proved to simplify them: canonical where `dims_text` wrote
    them, and read in no time whoever did."""
    if len(source) > MAX_TEXT:
        raise LightNetError(f"dims of more than {MAX_TEXT} characters")
    return _Reader(source, known, as_written).sizes()


def parse_size(source: str, known: Mapping[str, Size] = MappingProxyType({}), as_written: bool = False) -> Size:
    """The one dim of a text; the symbols in `known` need no bounds in it."""
    sizes = parse_sizes(source, known, as_written)
    if len(sizes) != 1:
        raise LightNetError(f"expected one dim, got {len(sizes)}: '{source}'")
    return sizes[0]


def _quoted(name: str) -> str:
    """A symbol that is no name of its own; a quote in it stands twice."""
    return "'" + name.replace("'", "''") + "'"


class _Writer:
    def __init__(self, shown: set[str]):
        self.shown = shown

    def size(self, size: Size) -> str:
        """The terms, those of the highest degree first."""
        if not isinstance(size, Dim):
            return str(size)
        out = ""
        for term, c in sorted(size.terms.items(), key=lambda t: (-len(t[0]), t[1] < 0, [a.key for a in t[0]])):
            part = self.product(term, abs(c))
            out += (" - " if c < 0 else " + ") + part if out else ("-" if c < 0 else "") + part
        return out

    def product(self, term: Monomial, c: int) -> str:
        factors = []
        for atom in term:
            whole = self.atom(atom)
            if isinstance(atom, Symbol) and atom.multiple > 1:
                g = gcd(c, atom.multiple)
                c //= g
                if g < atom.multiple:
                    whole = f"({whole} floordiv {atom.multiple // g})"
            factors.append(whole)
        return "*".join(([str(c)] if c != 1 or not factors else []) + factors)

    def atom(self, atom: Atom) -> str:
        match atom:
            case Symbol(name=name):
                shown = name if _NAME.fullmatch(name) and name not in _WORDS else _quoted(name)
                if name in self.shown:
                    return shown
                self.shown.add(name)
                by = f" by {atom.multiple}" if atom.multiple > 1 else ""
                return f"{shown}({atom.low}..{atom.high}{by})"
            case Quotient(dividend=dividend, divisor=divisor):
                return f"(({self.size(dividend)}) floordiv {divisor})"
            case Extreme(fn=fn, args=args):
                return f"{fn}({', '.join(map(self.size, args))})"


def _extent(size: Size) -> tuple[int, int]:
    """The number of terms of a size, and of the factors of its longest."""
    return (len(size.terms), max(map(len, size.terms))) if isinstance(size, Dim) else (1, 0)


class _Reader(TokenParser[Size]):
    """Parses and computes at once."""

    LEVELS = (("+", "-"), ("*", "floordiv", "ceildiv", "mod"))
    MAX_DEPTH, MAX_ROW, WHAT = 20, 64, "dims"

    def __init__(self, source: str, known: Mapping[str, Size], as_written: bool):
        unknown: Callable[[int], NoReturn] = lambda at: self.error(f"unexpected '{source[at]}'", at)  # noqa: E731
        self.source, self.as_written = source, as_written
        self.known: dict[str, Size] = dict(known)
        tokens = [*lexed(source, _TOKEN, unknown), Token("end", "", len(source))]
        super().__init__(source, tokens)

    def error(self, message: str, pos: int | None = None) -> NoReturn:
        at = self.token.pos if pos is None else pos
        raise LightNetError(f"{message}, at column {at + 1} of the dims '{self.source}'")

    def too_long(self) -> NoReturn:
        self.error(f"more than {self.MAX_ROW} operators in a row")

    def sizes(self) -> tuple[Size, ...]:
        found = []
        if self.token.kind != "end":
            found.append(self.climb())
            while self.accept(","):
                found.append(self.climb())
        if self.token.kind != "end":
            self.error(f"expected ',' or the end, got '{self.token.text}'")
        return tuple(found)

    def operator(self) -> str:
        return self.token.text if self.token.kind in ("op", "name") else ""

    def joined(self, left: Size, right: Callable[[], Size]) -> Size:
        token = self.next()
        other = right()
        counts, factors = zip(*map(_extent, (left, other)))
        is_product = token.text == "*"
        if (prod(counts) if is_product else sum(counts)) > MAX_TERMS or sum(factors) * is_product > MAX_FACTORS:
            self.error(f"a dim of more than {MAX_TERMS} terms, or {MAX_FACTORS} factors of one", token.pos)
        match token.text:
            case "+":
                return left + other
            case "-":
                return left - other
            case "*":
                return left * other
        if not isinstance(other, int) or other < 1:
            self.error(f"'{token.text}' takes a positive number", token.pos)
        match token.text:
            case "floordiv":
                return self.floor(left, other)
            case "ceildiv":
                return -self.floor(-left, other)
        return left - self.floor(left, other) * other

    def floor(self, size: Size, by: int) -> Size:
        """The quotient, rounded down."""
        if not self.as_written or not isinstance(size, Dim):
            return size // by
        return Dim({(Quotient(size, by),): 1}) if (whole := size.over(by)) is None else whole

    def operand(self) -> Size:
        token = self.next()
        if token.text == "-" and token.kind == "op":
            return -self.nested(self.operand)
        if token.text == "(" and token.kind == "op":
            inner = self.nested(self.climb)
            self.expect(")")
            return inner
        if token.kind == "num":
            return self.number(token)
        if token.kind == "name" and token.text in ("min", "max"):
            return self.extreme(token.text)
        if token.kind == "quoted" or (token.kind == "name" and token.text not in _WORDS):
            return self.named(token)
        self.error(f"expected a dim, got '{token.text}'", token.pos)

    def number(self, token: Token) -> int:
        if token.kind != "num" or len(token.text) > 19 or int(token.text) > MAX_NUMBER:
            self.error(f"expected a number of at most {MAX_NUMBER}, got '{token.text}'", token.pos)
        return int(token.text)

    def extreme(self, fn: str) -> Size:
        self.expect("(")
        found = self.nested(self.climb)
        while self.accept(","):
            other = self.nested(self.climb)
            if self.as_written and not is_known((found, other)):
                found = Dim({(Extreme(fn, (found, other)),): 1})
            else:
                found = (dim_min if fn == "min" else dim_max)(found, other)
        self.expect(")")
        return found

    def named(self, token: Token) -> Size:
        """A symbol: with bounds, or one that had them."""
        name = token.text[1:-1].replace("''", "'") if token.kind == "quoted" else token.text
        if not self.accept("("):
            if name not in self.known:
                self.error(f"the bounds of '{name}' are missing, as in {name}(1..64)", token.pos)
            return self.known[name]
        low = self.number(self.next())
        self.expect("..")
        high = self.number(self.next())
        multiple = self.number(self.next()) if self.accept("by") else 1
        self.expect(")")
        try:
            found = symbol(name, low, high, multiple)
        except ValueError as e:
            self.error(str(e), token.pos)
        if self.known.setdefault(name, found) != found:
            self.error(f"'{name}' has two ranges: {self.known[name]!s} and {found!s}", token.pos)
        return found
