"""The C99 preprocessor of IL: macros, `#`, `##`, `__VA_ARGS__`, conditions and includes, as `gcc -E` does them, within
bounds.

Expansion follows GCC's algorithm: a macro is disabled while its replacement is read, and a disabled macro's name that
is read is frozen for ever. A replacement list is pushed, reversed, on the stack of pending tokens, above an END token
that enables the macro again.

What differs from `gcc -E`: `linux` and `unix` are not predefined, nor __DATE__ and __TIME__ (a network must not depend
on the day); `#include` reads only below the file's folder and the include folders (`includes.py`); everything is
bounded (`Limits`). Imports the lexer, the conditions, the includes and diagnostics only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.frontends.condition import ConditionError
from lightnet.frontends.condition import evaluate as evaluate_condition
from lightnet.frontends.includes import Folders
from lightnet.frontends.lexer import (
    CHAR,
    END,
    FROZEN,
    NAME,
    NUMBER,
    OPEN_COMMENT,
    OTHER,
    PUNCT,
    STRING,
    SourceFile,
    SourceMap,
    Token,
    spell,
    token_kind,
)
from lightnet.frontends.macros import ARG, PASTE, RAW, STRINGIZE, Macro, MacroError, parse_define


@dataclass(frozen=True)
class Limits:
    """What one translation may use: far above any network, far below what hurts."""

    tokens: int = 2_000_000  # made by macros, and collected as their arguments
    result: int = 4_000_000  # tokens of the result
    text: int = 1 << 26  # characters of the result
    token_length: int = 1 << 16  # characters that `#` or `##` may put in one token
    nesting: int = 60  # macro calls within the arguments of macro calls
    include_depth: int = 30
    includes: int = 1000
    include_bytes: int = 1 << 23
    conditions: int = 200  # nested #if


@dataclass(slots=True, eq=False)
class Expansion:
    """One use of a macro: where its name stood, and inside which other expansion; `root` is the outermost use."""

    macro: Macro
    pos: int
    parent: Expansion | None
    root: int


@dataclass(slots=True)
class _Condition:
    """An open #if: whether its present group is read, whether one was, whether anything around it is, and #else
    seen."""

    pos: int
    active: bool
    taken: bool
    outer: bool
    has_else: bool = False


@dataclass
class Translation:
    """The result: the tokens after preprocessing, their text, and the offset in it of each."""

    tokens: list[Token]
    text: str
    starts: list[int]
    sources: SourceMap
    warnings: list[tuple[SourceLoc, str]] = field(default_factory=list)


class _File:
    """A file that is being read, line by line."""

    def __init__(self, source: SourceFile, level: int):
        self.source = source
        self.level = level
        self.conditions: list[_Condition] = []
        self._lines = source.lines()
        self._next: list[Token] | None = None

    @property
    def active(self) -> bool:
        return not self.conditions or self.conditions[-1].active

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
) -> Translation:
    """Preprocess `text`, which was read from `path`.

    `include_dirs` are searched by #include after the folder of the including file; `defines` are `NAME` (which is 1) or
    `NAME=value` or `NAME(args)=value`. Raises LightNetError with the place in the user's file and the macros around it.
    """
    return _Preprocessor(path, include_dirs, limits).run(text, path, defines)


def is_directive(line: list[Token]) -> bool:
    return line[0][0] == PUNCT and line[0][1] == "#"


class _Preprocessor:
    def __init__(self, path: str, include_dirs: Iterable[str], limits: Limits):
        self.limits = limits
        self.sources = SourceMap()
        self.folders = Folders(path, include_dirs, limits.include_bytes)
        self.macros: dict[str, Macro] = {}
        self.out: list[Token] = []
        self.warnings: list[tuple[SourceLoc, str]] = []
        self.budget = limits.tokens
        self.depth = 0
        self.files = 0
        self.counter = 0
        self.collecting = False
        self.in_condition = False
        self.once: set[str] = set()
        self.file: _File
        self.directives: dict[str, Callable[[Token, list[Token]], None]] = {
            "define": self.define, "undef": self.undef, "include": self.include, "error": self.error_directive,
            "warning": self.warning, "pragma": self.pragma, "line": self.ignore, "ident": self.ignore,
        }  # fmt: skip

    def run(self, text: str, path: str, defines: Iterable[str]) -> Translation:
        for name, handler in (
            ("__LINE__", self.line_macro),
            ("__FILE__", self.file_macro),
            ("__COUNTER__", self.counter_macro),
            ("__INCLUDE_LEVEL__", self.level_macro),
            ("__STDC__", None),
            ("__STDC_HOSTED__", None),
        ):
            one: Token = (NUMBER, "1", False, -1, None)
            self.macros[name] = Macro(name, -1, None, False, [one], handler=handler)
        source = self.sources.add(path, text)
        version = "#define __STDC_VERSION__ 199901L\n#define _Pragma(x)\n"
        self.read_file(self.sources.add("<built-in>", version), 0)
        for item in defines:
            name, equals, value = item.partition("=")
            line = f"#define {name} {value if equals else '1'}".replace("\n", " ")
            self.read_file(self.sources.add("<command line>", line), 0)
        self.read_file(source, 0)
        if sum(map(len, (t[1] for t in self.out))) > self.limits.text:
            raise LightNetError(
                f"the network is too large: more than {self.limits.text} characters after preprocessing"
            )
        return Translation(self.out, *spell(self.out), self.sources, self.warnings)

    # -- lines --------------------------------------------------------------------------------------------------------
    def read_file(self, source: SourceFile, level: int) -> None:
        outer = getattr(self, "file", None)
        self.file = _File(source, level)
        while (line := self.next_line()) is not None:
            self.expand(line[::-1], self.out, from_file=True)
            if len(self.out) > self.limits.result:
                raise self.error(f"the network has more than {self.limits.result} tokens", line[0])
        if self.file.conditions:
            raise self.error("#if without #endif", self.at(self.file.conditions[-1].pos))
        if outer is not None:
            self.file = outer

    def next_line(self) -> list[Token] | None:
        """The next line of text of the present file; directives before it are carried out."""
        while (line := self.file.take()) is not None:
            if line[0][0] == OPEN_COMMENT:
                raise self.error("unterminated comment", line[0])
            if is_directive(line):
                self.directive(line)
            elif self.file.active:
                return line
        return None

    def directive(self, line: list[Token]) -> None:
        if len(line) == 1:
            return
        _, name, *_ = line[1]
        if name in ("if", "ifdef", "ifndef", "elif", "else", "endif"):
            self.condition(name, line[1], line[2:])
        elif self.file.active:
            if name not in self.directives:
                if line[1][0] == NUMBER:  # a line marker of another preprocessor
                    return
                raise self.error(f"unknown directive '#{name[:40]}'", line[1])
            self.directives[name](line[1], line[2:])

    # -- conditions ---------------------------------------------------------------------------------------------------
    def condition(self, name: str, token: Token, rest: list[Token]) -> None:
        open_ = self.file.conditions
        if name.startswith("if"):
            outer = self.file.active
            if len(open_) >= self.limits.conditions:
                raise self.error("#if is nested too deeply", token)
            holds = outer and self.holds(name, token, rest)
            open_.append(_Condition(token[3], holds, holds, outer))
            return
        if not open_:
            raise self.error(f"#{name} without #if", token)
        group = open_[-1]
        if name == "endif":
            open_.pop()
            return
        if group.has_else:
            raise self.error(f"#{name} after #else", token)
        group.has_else = name == "else"
        group.active = group.outer and not group.taken and (name == "else" or self.holds("if", token, rest))
        group.taken |= group.active

    def holds(self, name: str, token: Token, rest: list[Token]) -> bool:
        if name != "if":
            if not rest or rest[0][0] != NAME:
                raise self.error(f"#{name} needs a macro's name", token)
            return (rest[0][1] in self.macros) == (name == "ifdef")
        tokens: list[Token] = []
        self.in_condition = True
        self.expand(self.replace_defined(rest)[::-1], tokens)
        self.in_condition = False
        try:
            return evaluate_condition(tokens)
        except ConditionError as e:
            raise self.error(e.message, e.token or token) from None

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
        try:
            macro = parse_define(token, rest)
        except MacroError as e:
            raise self.error(e.message, e.token) from None
        old = self.macros.get(macro.name)
        if old is not None and not old.same(macro):
            self.warnings.append((self.sources.loc(macro.pos), f"'{macro.name}' is defined again"))
        self.macros[macro.name] = macro

    def undef(self, token: Token, rest: list[Token]) -> None:
        if not rest or rest[0][0] != NAME:
            raise self.error("#undef needs a macro's name", token)
        self.macros.pop(rest[0][1], None)

    def error_directive(self, token: Token, rest: list[Token]) -> None:
        raise self.error(f"#error {spell(rest)[0].strip()}".rstrip(), token)

    def warning(self, token: Token, rest: list[Token]) -> None:
        self.warnings.append((self.sources.loc(token[3]), f"#warning {spell(rest)[0].strip()}"[:1000]))

    def pragma(self, token: Token, rest: list[Token]) -> None:
        if [t[1] for t in rest] == ["once"]:
            self.once.add(self.file.source.name)

    def ignore(self, token: Token, rest: list[Token]) -> None:
        pass

    def include(self, token: Token, rest: list[Token]) -> None:
        if self.collecting:
            raise self.error("#include inside the arguments of a macro", token)
        if self.file.level >= self.limits.include_depth:
            raise self.error("#include is nested too deeply", token)
        self.files += 1
        if self.files > self.limits.includes:
            raise self.error(f"more than {self.limits.includes} #include", token)
        name, angled = self.header_name(token, rest)
        try:
            path, text = self.folders.read(name, angled, self.file.source.name)
        except LightNetError as e:
            raise self.error(e.message, token) from None
        if path not in self.once:
            self.read_file(self.sources.add(path, text, token[3]), self.file.level + 1)

    def header_name(self, token: Token, rest: list[Token]) -> tuple[str, bool]:
        """The file name of an #include, and whether it stands in <>; macros are expanded unless one stands
        there at once."""
        if rest and rest[0][0] != STRING and rest[0][1] != "<":
            expanded: list[Token] = []
            self.expand(rest[::-1], expanded)
            rest = expanded
        if len(rest) == 1 and rest[0][0] == STRING and len(rest[0][1]) > 2:
            return rest[0][1][1:-1], False
        text = spell(rest)[0].strip()
        if text.startswith("<") and text.endswith(">") and len(text) > 2:
            return text[1:-1].replace(" ", ""), True
        raise self.error('#include needs "FILE" or <FILE>', token)

    # -- expansion ----------------------------------------------------------------------------------------------------
    def expand(self, pending: list[Token], out: list[Token], from_file: bool = False) -> None:
        """Expand a stack of tokens (the next one last) to `out`; with `from_file` a call may go on in the next
        lines."""
        macros = self.macros
        while pending:
            token = pending.pop()
            kind = token[0]
            if kind == END:
                token[1].disabled = False
                continue
            if kind != NAME or (macro := macros.get(token[1])) is None:
                if kind == OTHER and token[1] in "\"'" and from_file:
                    raise self.error(f"unterminated string: missing {token[1]}", token)
                out.append(token)
                continue
            if macro.disabled:
                out.append((FROZEN, *token[1:]))
                continue
            args = None
            if macro.params is not None:
                args = self.collect(macro, token, pending, from_file)
                if args is None:
                    out.append(token)
                    continue
            result = self.replace(macro, token, args)
            self.spend(1 + len(result), token)
            macro.disabled = True
            pending.append((END, macro, False, 0, None))
            result.reverse()
            pending += result

    def spend(self, tokens: int, at: Token) -> None:
        self.budget -= tokens
        if self.budget < 0:
            raise self.error(f"macros expand to more than {self.limits.tokens} tokens", at)

    def collect(self, macro: Macro, name: Token, pending: list[Token], from_file: bool) -> list | None:
        """The arguments of a call, or None if no '(' follows the name. An absent variable argument is None in
        the list."""
        if not self.at_paren(pending, from_file):
            return None
        pending.pop()
        macros, args, arg, depth, count = self.macros, [], [], 0, 0
        last = len(macro.params) if macro.variadic else -1
        while True:
            if not pending:
                pending += self.more_lines(macro, name) if from_file else self.unfinished(macro, name)
            token = pending.pop()
            kind, text = token[0], token[1]
            if kind == END:
                text.disabled = False
                continue
            count += 1
            if kind == NAME:
                other = macros.get(text)
                if other is not None and other.disabled:
                    token = (FROZEN, *token[1:])
            elif kind == PUNCT:
                if text == "(":
                    depth += 1
                elif text == ")":
                    if depth == 0:
                        break
                    depth -= 1
                elif text == "," and depth == 0 and len(args) + 1 != last:
                    args.append(arg)
                    arg = []
                    continue
            arg.append(token)
        self.spend(count, name)
        args.append(arg)
        return self.check_arguments(macro, name, args)

    def at_paren(self, pending: list[Token], from_file: bool) -> bool:
        while True:
            while pending and pending[-1][0] == END:
                pending.pop()[1].disabled = False
            if pending or not from_file:
                return bool(pending) and pending[-1][1] == "("
            line = self.file.peek()
            if line is None or line[0][1] != "(":
                return False
            if not self.file.active:
                return False
            pending += self.file.take()[::-1]

    def more_lines(self, macro: Macro, name: Token) -> list[Token]:
        self.collecting = True
        line = self.next_line()
        self.collecting = False
        return self.unfinished(macro, name) if line is None else line[::-1]

    def unfinished(self, macro: Macro, name: Token) -> list[Token]:
        raise self.error(f"unterminated call of macro '{macro.name}'", name)

    def check_arguments(self, macro: Macro, name: Token, args: list) -> list:
        wanted, given = len(macro.params), len(args)
        if wanted == 0 and given == 1 and not args[0]:
            return []
        if macro.variadic and given == wanted - 1:
            return [*args, None]
        if macro.variadic and given == wanted == 1 and not args[0]:
            return [None]
        if given != wanted:
            more = " or more" if macro.variadic else ""
            raise self.call_error(
                f"macro '{macro.name}' takes {wanted - macro.variadic}{more} arguments, not {given}", name, macro
            )
        return args

    def call_error(self, message: str, name: Token, macro: Macro) -> LightNetError:
        error = self.error(message, name)
        if macro.pos >= 0:
            error.notes.insert(0, (self.sources.loc(macro.pos), f"macro '{macro.name}' is defined here"))
        return error

    def replace(self, macro: Macro, name: Token, args: list | None) -> list[Token]:
        """The replacement list of one use, with arguments put in; its first token takes the white space of the name."""
        parent = name[4]
        origin = Expansion(macro, name[3], parent, parent.root if parent is not None else name[3])
        if macro.handler is not None:
            kind, text = macro.handler(origin)
            return [(kind, text, name[2], name[3], parent)]
        if macro.plan is None:
            result = [(k, t, s, p, origin) for k, t, s, p, _ in macro.body]
        else:
            result = self.substitute(macro, name, args or [], origin)
        if self.in_condition:
            result = self.replace_defined(result)  # as GCC does; C99 leaves it open
        if result:
            k, t, _, p, o = result[0]
            result[0] = (k, t, name[2], p, o)
        return result

    def substitute(self, macro: Macro, name: Token, args: list, origin: Expansion) -> list[Token]:
        """Carry out the macro's plan: C99 6.10.3.1 (arguments), 6.10.3.2 (#) and 6.10.3.3 (##; an empty operand
        is a placemarker)."""
        out: list[Token] = []
        expanded: dict[int, list[Token]] = {}
        paste = False
        empty = False  # the left operand of a coming ## is a placemarker
        for code, value, space in macro.plan:
            if code == PASTE:
                paste = True
                continue
            if code == ARG:
                piece = expanded.get(value)
                if piece is None:
                    piece = expanded[value] = self.expand_argument(args[value] or [], name)
            elif code == RAW:
                piece = args[value] or []
                if paste and macro.variadic and value == len(args) - 1 and out and out[-1][1] == ",":
                    # GNU: `, ## __VA_ARGS__` drops the comma when the variable argument is absent, and pastes nothing
                    if args[value] is None:
                        out.pop()
                    paste = False
            elif code == STRINGIZE:
                piece = [(STRING, self.stringize(args[value] or [], name), space, name[3], origin)]
            else:
                k, t, s, p, _ = value
                piece = [(k, t, s, p, origin)]
            if paste and not empty:
                if piece:
                    out[-1] = self.paste(out[-1], piece[0], origin)
                    out += piece[1:]
            elif piece:
                k, t, _, p, o = piece[0]
                out.append((k, t, space, p, o))
                out += piece[1:]
                self.spend(len(piece) >> 4, name)
            empty = not piece and (empty or not paste)
            paste = False
            if len(out) > self.budget:
                self.spend(len(out), name)
        return out

    def expand_argument(self, arg: list[Token], name: Token) -> list[Token]:
        self.depth += 1
        if self.depth > self.limits.nesting:
            raise self.error("macro calls are nested too deeply", name)
        out: list[Token] = []
        self.expand(arg[::-1], out)
        self.depth -= 1
        return out

    def paste(self, left: Token, right: Token, origin: Expansion) -> Token:
        text = left[1] + right[1]
        if len(text) > self.limits.token_length:
            raise self.error("## makes a token that is too long", left)
        kind = token_kind(text)
        if kind is None:
            raise self.error(f"## of '{left[1][:40]}' and '{right[1][:40]}' gives no valid token", (*left[:4], origin))
        return kind, text, left[2], left[3], origin

    def stringize(self, arg: list[Token], name: Token) -> str:
        parts, length = [], 0
        for kind, text, space, *_ in arg:
            if kind in (STRING, CHAR):
                text = text.replace("\\", "\\\\").replace('"', '\\"')
            parts.append(" " + text if space and parts else text)
            length += len(text) + 1
            if length > self.limits.token_length:
                raise self.error("# makes a string that is too long", name)
        return '"' + "".join(parts) + '"'

    # -- predefined macros --------------------------------------------------------------------------------------------
    def line_macro(self, use: Expansion) -> tuple[int, str]:
        return NUMBER, str(self.sources.loc(use.root).line)

    def file_macro(self, use: Expansion) -> tuple[int, str]:
        name = self.sources.file_of(use.root).name
        return STRING, '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'

    def counter_macro(self, use: Expansion) -> tuple[int, str]:
        self.counter += 1
        return NUMBER, str(self.counter - 1)

    def level_macro(self, use: Expansion) -> tuple[int, str]:
        return NUMBER, str(self.file.level)

    # -- errors -------------------------------------------------------------------------------------------------------
    def at(self, pos: int) -> Token:
        return PUNCT, "#", False, pos, None

    def error(self, message: str, token: Token) -> LightNetError:
        return self.sources.error(message, token)
