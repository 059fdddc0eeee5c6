"""The statements of index notation: text → AST → text. Meaning is given to them in `notation.py`.

Grammar: docs/design.md, "Index notation". Imports `expr` only.
"""

from __future__ import annotations

from functools import lru_cache

from lightnet.dataclasses import dataclass, field
from lightnet.ir.expr import ArraySlice, Expr, NotationParser, Pack, format_expr

MAX_STATEMENTS = 256
OPERATORS = ("=", "+=", "*=", "max=", "min=", "argmax=", "argmin=")


@dataclass(frozen=True, slots=True)
class StatementTarget:
    name: str
    subs: tuple[Expr | Pack | ArraySlice, ...]
    flat: bool
    pos: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Assignment:
    """One statement as written."""

    targets: tuple[StatementTarget, ...]
    op: str
    value: Expr
    ranges: tuple[tuple[str, Expr], ...]
    pos: int = field(compare=False)


@dataclass(frozen=True)
class Definition:
    """A parsed definition; `text` and `file` are kept for errors."""

    statements: tuple[Assignment, ...]
    text: str
    file: str

    def __str__(self) -> str:
        return "\n".join(map(format_statement, self.statements))


class _StatementParser(NotationParser):
    def definition(self) -> Definition:
        statements: list[Assignment] = []
        while self.token.kind != "end":
            if self.token.kind == "newline" or self.token.text == ";":
                self.next()
                continue
            statements.append(self._statement())
            if len(statements) > MAX_STATEMENTS:
                self.error(f"more than {MAX_STATEMENTS} statements")
            if self.token.kind not in ("newline", "end") and self.token.text != ";":
                self.error(f"expected an operator or the end of the statement, got '{self.token.text}'")
        if not statements:
            self.error("a definition has at least one statement")
        return Definition(tuple(statements), self.text, self.file)

    def _statement(self) -> Assignment:
        targets = [self._target()]
        while self.accept(","):
            targets.append(self._target())
        pos, op = self.token.pos, self.next().text
        if op in ("max", "min", "argmax", "argmin"):
            op += self.expect("=").text
        if op not in OPERATORS:
            self.error(f"expected one of {' '.join(OPERATORS)}, got '{op}'", pos)
        if len(targets) != (2 if op.startswith("arg") else 1):
            self.error("argmax= and argmin= have two targets (value, index), the other operators one", targets[-1].pos)
        value = self.expr()
        ranges = []
        if self.accept("for"):
            ranges.append(self._range())
            while self.accept(","):
                ranges.append(self._range())
        return Assignment(tuple(targets), op, value, tuple(ranges), pos)

    def _target(self) -> StatementTarget:
        token = self.name("a tensor to assign to")
        flat = False
        if self.accept("."):
            flat = bool(self.expect("flat"))
        self.expect("[")
        subs, filler = self.subscripts()
        if filler is not None:
            self.error("a target has no filler", token.pos)
        return StatementTarget(token.text, subs, flat, token.pos)

    def _range(self) -> tuple[str, Expr]:
        name = self.name("an index").text
        self.expect("<")
        return name, self.expr()


@lru_cache(1024)
def parse(text: str, file: str = "<definition>") -> Definition:
    """Parse a definition; a mistake is a `LightNetError` with line and column."""
    return _StatementParser(text, file).definition()


def format_statement(s: Assignment) -> str:
    """The text of a statement; parses back to an equal one."""
    names = ", ".join(f"{t.name}{'.flat' if t.flat else ''}[{', '.join(map(format_expr, t.subs))}]" for t in s.targets)
    ranges = ", ".join(f"{name} < {format_expr(e)}" for name, e in s.ranges)
    return f"{names} {s.op} {format_expr(s.value)}{' for ' + ranges if ranges else ''}"
