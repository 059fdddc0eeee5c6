"""The C preprocessor of IL: files, directives, conditions and includes, as `gcc -E` does them, within bounds.

The directives are C23's (`#elifdef`, `__VA_OPT__`, `__has_include`) and some of GCC's. What differs from `gcc -E`:
`linux` and `unix` are not predefined, nor what GCC says of itself and the machine; `#include` reads only below the
file's folder and the include folders (`includes.py`); everything is bounded (`Limits`).

`#line` and line markers (`# 12 "file"`) say where a line is to be looked for: places in messages follow them, and
`__LINE__` and `__FILE__`. Imports the expansion, the lexer, conditions, includes and diagnostics only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import ErrorList, LightNetError, LimitError, SourceLoc, alike, did_you_mean
from lightnet.frontends.il.condition import condition_holds as evaluate_condition
from lightnet.frontends.il.expansion import Expander, Limits
from lightnet.frontends.il.groups import DIRECTIVES as CONDITIONS
from lightnet.frontends.il.groups import Groups
from lightnet.frontends.il.includes import Folders
from lightnet.frontends.il.lexer import (
    NAME,
    NUMBER,
    OPEN_COMMENT,
    PUNCT,
    STRING,
    SourceFile,
    Token,
    TokenError,
    TranslationMap,
    spell,
)
from lightnet.frontends.il.macros import Macro, parse_define
from lightnet.frontends.il.predefined import PREDEFINED, Predefined

MAX_LINE = (1 << 31) - 1


@dataclass(frozen=True)
class Translation:
    """The result: the tokens after preprocessing, their text, and the offset in it of each. `is_whole` is false where a
    directive failed, so that something is missing."""

    tokens: list[Token]
    text: str
    starts: list[int]
    sources: TranslationMap
    warnings: list[tuple[SourceLoc, str]] = field(default_factory=list)
    is_whole: bool = True


class _File:
    """A file that is being read, line by line."""

    def __init__(self, source: SourceFile, level: int):
        self.source = source
        self.level = level
        self.groups = Groups()
        self._lines = source.lines()
        self._next: list[Token] | None = None

    def peek(self) -> list[Token] | None:
        if self._next is None:
            self._next = next(self._lines, None)
        return self._next

    def take(self) -> list[Token] | None:
        line = self.peek()
        self._next = None
        return line


def preprocess(
    text: str,
    path: str,
    include_dirs: Iterable[str] = (),
    defines: Iterable[str] = (),
    limits: Limits = Limits(),
    errors: ErrorList | None = None,
    physical: bool = False,
) -> Translation:
    """Preprocess `text`, which was read from `path`.

    `include_dirs` are searched by #include after the folder of the including file; `defines` are `NAME` (which is 1) or
    `NAME=value` or `NAME(args)=value`. With `physical`, places are where they are, whatever `#line` says. Mistakes go
    to `errors`, with the place in the user's file and the macros around it; without it, LightNetError has them. Raises
    LimitError for what is too large.
    """
    found = ErrorList() if errors is None else errors
    preprocessor = Preprocessor(path, include_dirs, limits, found, TranslationMap(physical))
    if errors is not None:
        return preprocessor.run(text, path, defines)
    try:
        translation = preprocessor.run(text, path, defines)
    except LightNetError as e:
        raise found.joined(e) from None
    found.check()
    return translation


def is_directive(line: list[Token]) -> bool:
    return line[0][0] == PUNCT and line[0][1] in ("#", "%:")


class Preprocessor(Expander):
    """One translation: the files, what is defined, and the tokens of the result."""

    def __init__(
        self, path: str, include_dirs: Iterable[str], limits: Limits, errors: ErrorList, sources: TranslationMap
    ) -> None:
        super().__init__(limits, errors, sources)
        self.folders = Folders(path, include_dirs, limits.include_bytes)
        self.out: list[Token] = []
        self.warnings: list[tuple[SourceLoc, str]] = []
        self.files = 0
        self.is_whole = True
        self.once: set[str] = set()
        self.pushed: dict[str, list[Macro | None]] = {}
        self.file: _File
        self.directives: dict[str, Callable[[Token, list[Token]], None]] = {
            "define": self.define, "undef": self.undef, "include": self.include, "import": self.import_,
            "error": self.error_directive, "warning": self.warning, "pragma": self.pragma, "line": self.line,
            "ident": self.ignore, "sccs": self.ignore,
        }  # fmt: skip

    def run(self, text: str, path: str, defines: Iterable[str]) -> Translation:
        source = self.sources.add(path, text)
        self.macros = Predefined(self).macros()
        self.read_file(self.sources.add("<built-in>", PREDEFINED), 0)
        for item in defines:
            name, equals, value = item.partition("=")
            line = f"#define {name} {value if equals else '1'}".replace("\n", " ")
            self.read_file(self.sources.add("<command line>", line), 0)
        self.read_file(source, 0)
        if sum(map(len, (t[1] for t in self.out))) > self.limits.text:
            raise LimitError(f"the network is too large: more than {self.limits.text} characters after preprocessing")
        return Translation(self.out, *spell(self.out), self.sources, self.warnings, self.is_whole)

    # -- lines --------------------------------------------------------------------------------------------------------
    def read_file(self, source: SourceFile, level: int) -> None:
        outer = getattr(self, "file", None)
        self.file = _File(source, level)
        while (line := self.next_line()) is not None:
            self.expand(line[::-1], self.out, from_file=True)
            if len(self.out) > self.limits.result:
                raise self.limit(f"the network has more than {self.limits.result} tokens", line[0])
        if (pos := self.file.groups.unclosed) is not None:
            self.fail("#if without #endif", (PUNCT, "#", False, pos, None))
        if outer is not None:
            self.file = outer

    def next_line(self) -> list[Token] | None:
        while (line := self.file.take()) is not None:
            if line[0][0] == OPEN_COMMENT:
                self.fail("unterminated comment: expected '*/'", line[0])
            elif is_directive(line):
                self.directive(line)
            elif self.file.groups.active:
                return line
        return None

    def next_paren(self) -> list[Token] | None:
        line = self.file.peek()
        if line is None or line[0][1] != "(" or not self.file.groups.active:
            return None
        return self.file.take()

    def presumed(self, pos: int) -> SourceLoc:
        """The place of a token, where `#line` says that it is."""
        file = self.sources.file_of(pos)
        return file.presumed_loc(pos - file.base)

    # -- directives ---------------------------------------------------------------------------------------------------
    def directive(self, line: list[Token]) -> None:
        """Carry out a directive. One that fails is an error and has no effect."""
        if len(line) == 1:
            return
        kind, name, *_ = line[1]
        try:
            if name in CONDITIONS:
                self.file.groups.take(name, line[1], lambda test: self.holds(test, line[1], line[2:]))
            elif self.file.groups.active:
                if kind == NUMBER:  # a line marker, as other preprocessors write them
                    self.marker(line[1], line[1:])
                elif name not in self.directives:
                    raise self.error(f"unknown directive '#{name[:40]}'{self.near(name)}", line[1])
                else:
                    self.directives[name](line[1], line[2:])
        except LimitError:
            raise
        except (TokenError, LightNetError) as e:
            self.is_whole = False
            if isinstance(e, LightNetError):
                self.errors.add(e)
            else:
                self.report(e.message, e.token or line[1])

    def near(self, name: str) -> str:
        return did_you_mean([f"#{n}" for n in alike(name, [*self.directives, *CONDITIONS], 2)])

    def fail(self, message: str, token: Token) -> None:
        """Take up an error behind which something is missing."""
        self.is_whole = False
        self.report(message, token)

    # -- conditions ---------------------------------------------------------------------------------------------------
    def holds(self, name: str, token: Token, rest: list[Token]) -> bool:
        if name != "if":
            if not rest or rest[0][0] != NAME:
                raise self.error(f"expected a macro's name behind #{token[1]}", token)
            return (rest[0][1] in self.macros) == (name == "ifdef")
        tokens: list[Token] = []
        self.in_condition = True
        try:
            self.expand(self.replace_defined(rest)[::-1], tokens)
        finally:
            self.in_condition = False
        return evaluate_condition(tokens)

    def has_include(self, token: Token, pending: list[Token]) -> Token:
        """`__has_include("FILE")` as 1 or 0: whether #include would read it."""
        found = False
        name = self.parenthesized(pending)
        if not self.in_condition:
            self.fail("__has_include stands outside of #if", token)
        elif name is None:
            self.fail("expected a file's name in parentheses behind __has_include", token)
        else:
            try:
                found = self.folders.has(*self.header_name(token, name), self.file.source.name)
            except LimitError:
                raise
            except LightNetError as e:
                self.is_whole = False
                self.errors.add(e)
        return NUMBER, str(int(found)), token[2], token[3], token[4]

    def parenthesized(self, pending: list[Token]) -> list[Token] | None:
        """Take what stands in parentheses, unexpanded; None where nothing does."""
        if not pending or pending[-1][1] != "(":
            return None
        pending.pop()
        taken: list[Token] = []
        while pending and pending[-1][1] != ")":
            taken.append(pending.pop())
        return taken if pending and pending.pop() else None

    def replace_defined(self, line: list[Token]) -> list[Token]:
        """`defined X` and `defined(X)` as 1 or 0, before the names there are expanded."""
        out, i = [], 0
        while i < len(line):
            token = line[i]
            i += 1
            if token[1] != "defined" or token[0] != NAME:
                out.append(token)
                continue
            texts = [t[1] for t in line[i : i + 3]]
            paren = texts[:1] == ["("]
            name = line[i + paren] if len(line) > i + paren else token
            if name is token or name[0] != NAME or (paren and texts[2:] != [")"]):
                raise self.error("'defined' needs a macro's name", token)
            out.append((NUMBER, str(int(name[1] in self.macros)), True, token[3], None))
            i += 3 if paren else 1
        return out

    # -- other directives ---------------------------------------------------------------------------------------------
    def define(self, token: Token, rest: list[Token]) -> None:
        macro = parse_define(token, rest)
        old = self.macros.get(macro.name)
        if old is not None and not old.same(macro):
            self.warnings.append((self.sources.loc(macro.pos), f"'{macro.name}' is defined again"))
        self.macros[macro.name] = macro

    def undef(self, token: Token, rest: list[Token]) -> None:
        if not rest or rest[0][0] != NAME:
            raise self.error("expected a macro's name behind #undef", token)
        self.macros.pop(rest[0][1], None)

    def error_directive(self, token: Token, rest: list[Token]) -> None:
        raise self.error(f"#error {spell(rest)[0].strip()}".rstrip(), token)

    def warning(self, token: Token, rest: list[Token]) -> None:
        self.warnings.append((self.sources.loc(token[3]), f"#warning {spell(rest)[0].strip()}"[:1000]))

    def pragma(self, token: Token, rest: list[Token]) -> None:
        texts = [t[1] for t in rest]
        if texts == ["once"]:
            self.once.add(self.file.source.name)
        elif texts[:1] in (["push_macro"], ["pop_macro"]) and len(rest) == 4 and rest[2][0] == STRING:
            name = texts[2].strip('"')
            stack = self.pushed.setdefault(name, [])
            if texts[0] == "push_macro":
                stack.append(self.macros.get(name))
            elif stack:
                self.restore(name, stack.pop())

    def restore(self, name: str, macro: Macro | None) -> None:
        if macro is None:
            self.macros.pop(name, None)
        else:
            self.macros[name] = macro

    def ignore(self, token: Token, rest: list[Token]) -> None:
        pass

    def line(self, token: Token, rest: list[Token]) -> None:
        expanded: list[Token] = []
        self.expand(rest[::-1], expanded)
        self.marker(token, expanded)

    def marker(self, token: Token, rest: list[Token]) -> None:
        """Say which line the next one is: a number, and a file's name or none. The flags of a line marker mean nothing
        here."""
        text = rest[0][1] if rest else ""
        if not (text.isascii() and text.isdigit() and int(text[:20]) <= MAX_LINE):
            raise self.error(f"expected a line number up to {MAX_LINE} behind #line, got '{text[:40]}'", token)
        name = None
        if len(rest) > 1:
            kind, name, *_ = rest[1]
            if kind != STRING or name[0] != '"':
                raise self.error(f"expected a file's name in quotes behind the line number, got '{name[:40]}'", rest[1])
            name = name[1:-1].replace('\\"', '"').replace("\\\\", "\\")
        self.file.source.mark(int(text), name)

    def import_(self, token: Token, rest: list[Token]) -> None:
        """GNU's #import: an #include that reads each file once."""
        self.include(token, rest, once=True)

    def include(self, token: Token, rest: list[Token], once: bool = False) -> None:
        if self.collecting:
            raise self.error(f"#{token[1]} inside the arguments of a macro", token)
        if self.file.level >= self.limits.include_depth:
            raise self.limit(f"#{token[1]} is nested too deeply", token)
        self.files += 1
        if self.files > self.limits.includes:
            raise self.limit(f"more than {self.limits.includes} #include", token)
        name, angled = self.header_name(token, rest)
        try:
            path, text = self.folders.read(name, angled, self.file.source.name)
        except LightNetError as e:
            raise self.error(e.message, token) from None
        if path not in self.once:
            if once:
                self.once.add(path)
            self.read_file(self.sources.add(path, text, token[3]), self.file.level + 1)

    def header_name(self, token: Token, rest: list[Token]) -> tuple[str, bool]:
        """The file name of an #include, and whether it stands in <>; macros are expanded unless one stands
        there at once."""
        if rest and rest[0][0] != STRING and rest[0][1] != "<":
            expanded: list[Token] = []
            self.expand(rest[::-1], expanded)
            rest = expanded
        if len(rest) == 1 and rest[0][0] == STRING and rest[0][1][0] == '"' and len(rest[0][1]) > 2:
            return rest[0][1][1:-1], False
        text = spell(rest)[0].strip()
        if text.startswith("<") and text.endswith(">") and len(text) > 2:
            return text[1:-1].replace(" ", ""), True
        raise self.error(f'expected "FILE" or <FILE> behind {"#" * (token[1][0] != "_")}{token[1]}', token)
