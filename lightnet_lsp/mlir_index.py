"""An index of MLIR text from its tokens alone: statements, and the values and symbols that they define and use.

It needs no parser, so that it holds for a text that is being typed; what it knows of the grammar is how names are
bound. ``%x = op`` and ``%a, %b:2 = op`` define results. ``(%a = %b)``, ``%i = %lo to`` and typed names in the
parentheses behind a symbol or a block label define arguments of the region that follows. A brace opens a scope, and
what stands there sees the scopes around it, up to a function. ``// -----`` ends everything, as in
`ln-opt --split-input-file`. Imports `text`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lightnet.dataclasses import dataclass, field
from lightnet_lsp.text import Span

TOKEN = re.compile(
    r"(?P<comment>//[^\n]*)"
    r'|(?P<string>"(?:[^"\\\n]|\\.)*+"?)'
    r"|(?P<value>%(?:[0-9]++|[A-Za-z$._-][\w$.-]*+))"
    r'|(?P<symbol>@(?:[A-Za-z_][\w$.]*+|"[^"\n]*+"))'
    r"|(?P<label>\^[\w$.-]++)"
    r"|(?P<alias>[#!][\w$.-]++)"
    r"|(?P<name>[A-Za-z_][\w$.]*+)"
    r"|(?P<number>[0-9][\w.]*+)"
    r"|(?P<mark>->|[^\s\w])"
)
#: Ops whose first symbol is their own name.
_NAMING = ("func.func", "pdl.pattern", "memref.global", "builtin.module", "module")
#: Braces inside braces that make scopes: what is deeper belongs to the scope around it.
MAX_NESTING = 64
SPLIT = re.compile(r"^[^\S\n]*+// -----.*$", re.MULTILINE)
#: Result list of a statement.
_RESULTS = re.compile(r"%[\w$.-]+(?:\s*:\s*\d+)?(?:\s*,\s*%[\w$.-]+(?:\s*:\s*\d+)?)*\s*=(?!=)")
_BOUND = re.compile(r"\s*=(?!=)")
_TYPED = re.compile(r"\s*:")
#: What follows the brace of a dictionary of attributes.
_DICTIONARY = re.compile(r'\s*(?:"[^"\n]*"|[A-Za-z_][\w$.]*)\s*[=,}]|\s*\}')
#: The names that an op and its tensors have in the source network.
_NAMES = re.compile(r'\bas\s+("(?:[^"\\\n]|\\.)*")?\s*(\([^)\n]*\))?')


@dataclass(eq=False)
class Definition:
    """A value: its name, where it is defined, by which statement, and as the how-manieth result or argument of that."""

    name: str
    span: Span
    statement: Statement
    index: int
    is_argument: bool
    uses: list[Span] = field(default_factory=list)


@dataclass(eq=False)
class Statement:
    """An op in the text: the span of its name (of the quotes in generic form), and of all of it, with its regions."""

    op: str
    name: Span
    start: int
    end: int
    scope: Scope
    results: list[Definition] = field(default_factory=list)
    arguments: list[Definition] = field(default_factory=list)
    symbol: Span | None = None
    inner: list[Statement] = field(default_factory=list)


@dataclass(eq=False)
class Scope:
    """A region, or whatever else stands between braces. `statement` is the op that it belongs to."""

    start: int
    parent: Scope | None
    statement: Statement | None
    end: int = 0
    is_dictionary: bool = False
    definitions: dict[str, list[Definition]] = field(default_factory=dict)
    uses: list[tuple[str, Span]] = field(default_factory=list)

    @property
    def is_isolated(self) -> bool:
        """True if nothing outside is seen from here."""
        return self.statement is not None and self.statement.op == "func.func"

    def outward(self) -> Iterator[Scope]:
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = None if scope.is_isolated else scope.parent

    def find(self, name: str, offset: int) -> Definition | None:
        """The meaning of `name` at `offset`: the last definition before it in the nearest scope, or the first one
        behind."""
        for scope in self.outward():
            if found := scope.definitions.get(name):
                before = [d for d in found if d.span.start < offset]
                return before[-1] if before else found[0]
        return None


class Index:
    """The index of one text."""

    def __init__(self, text: str):
        self.text = text
        self.statements: list[Statement] = []
        self.scopes: list[Scope] = []
        self.symbols: list[tuple[str, Span, int]] = []  # every @name, where, and in which part of the file
        self.defined: dict[tuple[str, int], Statement] = {}
        self.part_starts = [0, *(m.end() for m in SPLIT.finditer(text))]
        for part, (start, end) in enumerate(zip(self.part_starts, [*self.part_starts[1:], len(text)])):
            _Reader(self, part, start, end).read()
        self._resolve()

    def _resolve(self) -> None:
        self.by_start: dict[int, tuple[Definition, Span]] = {}
        for scope in self.scopes:
            for definitions in scope.definitions.values():
                self.by_start.update((d.span.start, (d, d.span)) for d in definitions)
            for name, span in scope.uses:
                if (definition := scope.find(name, span.start)) is not None:
                    definition.uses.append(span)
                    self.by_start[span.start] = definition, span

    def value_at(self, offset: int) -> tuple[Definition, Span] | None:
        """The value whose name stands at `offset`, and the span of that name."""
        start = self.text.rfind("%", 0, offset + 1)
        if start < 0 or (found := self.by_start.get(start)) is None or offset not in found[1]:
            return None
        return found

    def symbol_at(self, offset: int) -> tuple[str, Span, int] | None:
        return next((s for s in self.symbols if offset in s[1]), None)

    def scope_at(self, offset: int) -> Scope | None:
        """The innermost scope around `offset`."""
        around = [s for s in self.scopes if s.start < offset <= s.end]
        return max(around, key=lambda s: s.start, default=None)

    def visible(self, offset: int) -> list[Definition]:
        """The values that may be used at `offset`, the nearest ones first; no results of the op that is being
        written."""
        scope = self.scope_at(offset)
        found: dict[str, Definition] = {}
        for outer in scope.outward() if scope is not None else ():
            for name, definitions in reversed(outer.definitions.items()):
                before = [d for d in definitions if _is_over(d, offset)]
                if before:
                    found.setdefault(name, before[-1])
        return list(found.values())

    def statement_at(self, offset: int) -> Statement | None:
        """The innermost statement around `offset`."""
        around = [s for s in self.statements if s.start <= offset <= s.end]
        return max(around, key=lambda s: s.start, default=None)

    def tensor_names(self, statement: Statement) -> list[str]:
        """The names that the text gives the tensors of an op, behind it."""
        start, end = statement.start, statement.end
        behind = self.text.rfind("}", start, end) if statement.inner else start
        matches = list(_NAMES.finditer(self.text, max(behind, start), end))
        return re.findall(r'"((?:[^"\\]|\\.)*)"', matches[-1][2] or "") if matches else []


def _is_over(definition: Definition, offset: int) -> bool:
    """Return whether a value is there at `offset`: an argument once it is written, a result once its op is."""
    return (definition.span if definition.is_argument else definition.statement).end < offset


class _Reader:
    """Reads one part of a file into the index."""

    def __init__(self, index: Index, part: int, start: int, end: int):
        self.index, self.text, self.part = index, index.text, part
        self.start, self.end = start, end
        self.scope = Scope(start - 1, None, None, end)
        index.scopes.append(self.scope)
        self.statement: Statement | None = None
        self.open: list[Statement | None] = []  # the statements whose regions are open
        self.depth = 0
        self.pending: list[Definition] = []  # arguments of the region to come
        self.results: list[tuple[str, Span]] = []
        self.results_until = self.results_at = 0
        self.parentheses: list[str] = []  # what stood before each open one
        self.last, self.last_end = "", start
        self.begins_block = False  # whether the last label begins a block, rather than naming one

    def read(self) -> None:
        for m in TOKEN.finditer(self.text, self.start, self.end):
            kind, text = m.lastgroup, m[0]
            if kind == "comment":
                continue
            if kind == "value":
                self.value(text, Span(*m.span()))
            elif kind == "symbol":
                self.symbol(text, Span(*m.span()))
            elif kind == "label":
                self.begins_block = self.begins_line(m.start())
            elif kind in ("name", "string"):
                self.name(text, Span(*m.span()))
            elif text == "{":
                self.enter(m.start())
            elif text == "}":
                self.leave(m.end())
            elif text == "(":
                self.parentheses.append(self.last)
            elif text == ")" and self.parentheses:
                self.parentheses.pop()
            self.last, self.last_end = text, m.end()
            if self.statement is not None and kind != "label" and text != "}":
                self.statement.end = max(self.statement.end, m.end())

    def value(self, text: str, span: Span) -> None:
        if self.begins_line(span.start) and not self.scope.is_dictionary:
            if found := _RESULTS.match(self.text, span.start, self.end):
                self.results_until, self.results, self.results_at = found.end(), [], span.start
                self.statement = None
        if span.start < self.results_until:
            self.results.append((text, span))
        elif self.binds(span.end):
            self.argument(text, span)
        else:
            self.scope.uses.append((text, span))

    def binds(self, end: int) -> bool:
        """Return whether the name that ends at `end` is an argument of the region to come."""
        if _BOUND.match(self.text, end, self.end):
            return self.statement is not None
        before = self.parentheses[-1] if self.parentheses else ""
        return before.startswith(("@", "^")) and _TYPED.match(self.text, end, self.end) is not None

    def argument(self, text: str, span: Span) -> None:
        if self.parentheses and self.parentheses[-1].startswith("^"):
            owner = self.scope.statement
            if owner is not None and self.begins_block:
                self.define(self.scope, owner, owner.arguments, text, span, is_argument=True)
            else:
                self.scope.uses.append((text, span))
        elif self.statement is not None:
            index = len(self.statement.arguments)
            made = Definition(text, span, self.statement, index, True)
            self.statement.arguments.append(made)
            self.pending.append(made)

    def begins_line(self, offset: int) -> bool:
        """Return whether nothing but blanks stands before `offset` in its line, or what may end a statement."""
        return "\n" in self.text[self.last_end : offset] or self.last in ("", "{", "}", ">", ")", ":")

    def define(
        self, scope: Scope, owner: Statement, among: list[Definition], text: str, span: Span, *, is_argument: bool
    ) -> None:
        made = Definition(text, span, owner, len(among), is_argument)
        among.append(made)
        scope.definitions.setdefault(text, []).append(made)

    def name(self, text: str, span: Span) -> None:
        """The name of an op begins a statement: it follows a result list, or begins a line."""
        after_results = self.results and span.start >= self.results_until
        if self.scope.is_dictionary or self.parentheses or not (after_results or self.is_op(text, span)):
            return
        start = self.results_at if after_results else span.start
        self.statement = Statement(text.strip('"'), span, start, span.end, self.scope)
        self.index.statements.append(self.statement)
        if self.scope.statement is not None:
            self.scope.statement.inner.append(self.statement)
        for name, where in self.results if after_results else ():
            self.define(self.scope, self.statement, self.statement.results, name, where, is_argument=False)
        self.results, self.pending = [], []

    def is_op(self, text: str, span: Span) -> bool:
        if "." not in text and text not in ("module", "return"):
            return False
        if "\n" in self.text[self.last_end : span.start]:
            return self.last not in ("->", ",", "=")
        return self.last in ("", "{", "}", ">", ")")

    def symbol(self, text: str, span: Span) -> None:
        statement = self.statement
        self.index.symbols.append((text, span, self.part))
        if statement is not None and statement.symbol is None and statement.op in _NAMING:
            statement.symbol = span
            self.index.defined.setdefault((text, self.part), statement)

    def enter(self, at: int) -> None:
        self.depth += 1
        if self.depth > MAX_NESTING:
            return
        dictionary = self.last in ("attributes", "choices", "=", ",", "[", "<") or self.is_dictionary(at)
        scope = Scope(at, self.scope, self.statement, self.end, dictionary)
        self.index.scopes.append(scope)
        self.scope = scope
        if dictionary:
            return
        for made in self.pending:
            scope.definitions.setdefault(made.name, []).append(made)
        self.pending = []
        self.open.append(self.statement)
        self.statement, self.parentheses = None, []

    def is_dictionary(self, at: int) -> bool:
        found = _DICTIONARY.match(self.text, at + 1, self.end)
        # A region of one op without operands, `{ ln.yield }`, looks like a dictionary of one unit.
        return found is not None and not ("." in found[0] and found[0].lstrip(" ").startswith("\n"))

    def leave(self, end: int) -> None:
        scope = self.scope
        self.depth = max(self.depth - 1, 0)
        if self.depth >= MAX_NESTING or scope.parent is None:
            return
        scope.end = end - 1
        self.scope = scope.parent
        if not scope.is_dictionary and self.open:
            self.statement = self.open.pop()
            self.parentheses = []
        if self.statement is not None:
            self.statement.end = max(self.statement.end, end)
