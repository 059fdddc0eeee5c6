"""The expansion of macros: calls and their arguments, `#`, `##`, `__VA_OPT__`, as GCC does them, within bounds.

GCC's algorithm: a macro is disabled while its replacement is read, and a disabled macro's name that is read is frozen
for ever. A replacement list is pushed, reversed, on the stack of pending tokens, above an END token that enables the
macro again.

A mistake goes to `errors`, and the expansion goes on; what exceeds a limit is raised. Imports the lexer, macros and
diagnostics only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import ErrorList, LightNetError, LimitError
from lightnet.frontends.il.lexer import (
    CHAR,
    EMPTY,
    END,
    FROZEN,
    NAME,
    OTHER,
    PUNCT,
    STRING,
    Token,
    TranslationMap,
    token_kind,
)
from lightnet.frontends.il.macros import ARG, PASTE, RAW, STRINGIZE, TOKEN, Macro


@dataclass(frozen=True)
class Limits:
    """The limits of one translation: far above any network, far below what hurts."""

    tokens: int = 2_000_000  # made by macros, and collected as their arguments
    result: int = 4_000_000  # tokens of the result
    text: int = 1 << 26  # characters of the result
    token_length: int = 1 << 16  # characters that `#` or `##` may put in one token
    nesting: int = 60  # macro calls within the arguments of macro calls
    include_depth: int = 30
    includes: int = 1000
    include_bytes: int = 1 << 23


@dataclass(slots=True, eq=False)
class Expansion:
    """One use of a macro: where its name stood, and inside which other expansion; `root` is the outermost use."""

    macro: Macro
    pos: int
    parent: Expansion | None
    root: int


@dataclass(slots=True)
class _Use:
    """A use of a macro that has a plan: its name, its arguments, and what of them is expanded already."""

    macro: Macro
    name: Token
    args: list
    origin: Expansion
    expanded: dict[int, list[Token]]


class Expander(ABC):
    """Expands lists of tokens. Where a call may go on in the lines behind, they come from `next_line` and
    `next_paren`."""

    def __init__(self, limits: Limits, errors: ErrorList, sources: TranslationMap):
        self.limits = limits
        self.errors = errors
        self.sources = sources
        self.macros: dict[str, Macro] = {}
        self.budget = limits.tokens
        self.depth = 0
        self.collecting = False
        self.in_condition = False

    @abstractmethod
    def next_line(self) -> list[Token] | None:
        """The next line of text, directives before it carried out; None at the end of the file."""

    @abstractmethod
    def next_paren(self) -> list[Token] | None:
        """The next line if it begins with '(' and no directive stands before it."""

    @abstractmethod
    def replace_defined(self, line: list[Token]) -> list[Token]:
        """`defined X` and `defined(X)` as 1 or 0."""

    # -- errors -------------------------------------------------------------------------------------------------------
    def error(self, message: str, token: Token) -> LightNetError:
        return self.sources.error(message, token)

    def report(self, message: str, token: Token) -> None:
        """Take up an error that ends nothing."""
        self.errors.add(self.error(message, token))

    def limit(self, message: str, token: Token) -> LightNetError:
        return self.sources.error(message, token, LimitError)

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
                    self.report(f"unterminated string: expected a closing {token[1]} in this line", token)
                    token = (STRING, '""', *token[2:])
                out.append(token)
                continue
            if macro.reader is not None:
                out.append(macro.reader(token, pending))
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
            raise self.limit(f"macros expand to more than {self.limits.tokens} tokens", at)

    def collect(self, macro: Macro, name: Token, pending: list[Token], from_file: bool) -> list | None:
        """The arguments of a call; None if no '(' follows the name, and for a malformed call. An absent variable
        argument is None in the list."""
        if not self.at_paren(pending, from_file):
            return None
        pending.pop()
        macros, depth, count = self.macros, 0, 0
        args: list[list[Token]] = []
        arg: list[Token] = []
        last = len(macro.params or ()) if macro.variadic else -1
        while True:
            if not pending:
                line = self.more_lines() if from_file else None
                if line is None:
                    self.call_error(f"unterminated call of macro '{macro.name}': expected ')'", name, macro)
                    return None
                pending += line
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
        while pending and pending[-1][0] == END:
            pending.pop()[1].disabled = False
        if not pending and from_file and (line := self.next_paren()) is not None:
            pending += line[::-1]
        return bool(pending) and pending[-1][1] == "("

    def more_lines(self) -> list[Token] | None:
        """The next line, reversed; a directive before it may not read another file."""
        self.collecting = True
        line = self.next_line()
        self.collecting = False
        return None if line is None else line[::-1]

    def check_arguments(self, macro: Macro, name: Token, args: list) -> list | None:
        wanted, given = len(macro.params or ()), len(args)
        if wanted == 0 and given == 1 and not args[0]:
            return []
        if macro.variadic and given == wanted - 1:
            return [*args, None]
        if macro.variadic and given == wanted == 1 and not args[0]:
            return [None]
        if given != wanted:
            more = " or more" if macro.variadic else ""
            message = f"macro '{macro.name}' takes {wanted - macro.variadic}{more} arguments, not {given}"
            self.call_error(message, name, macro)
            return None
        return args

    def call_error(self, message: str, name: Token, macro: Macro) -> None:
        error = self.error(message, name)
        error.notes.insert(0, (self.sources.loc(macro.pos), f"macro '{macro.name}' is defined here"))
        self.errors.add(error)

    def replace(self, macro: Macro, name: Token, args: list | None) -> list[Token]:
        """The replacement list of one use, with arguments put in; its first token takes the white space of the name."""
        parent = name[4]
        origin = Expansion(macro, name[3], parent, parent.root if parent is not None else name[3])
        if macro.handler is not None:
            kind, text = macro.handler(origin)
            return [(kind, text, name[2], name[3], parent)]
        if macro.plan is None:
            result: list[Token] = [(k, t, s, p, origin) for k, t, s, p, _ in macro.body]
        else:
            result = self.substitute(macro, name, args or [], origin)
        if self.in_condition:
            result = self.replace_defined(result)  # as GCC does; C99 leaves it open
        if result:
            k, t, _, p, o = result[0]
            result[0] = (k, t, name[2], p, o)
        return result

    def substitute(self, macro: Macro, name: Token, args: list, origin: Expansion) -> list[Token]:
        """Carry out the macro's plan: C99 6.10.3.1 (arguments), 6.10.3.2 (#) and 6.10.3.3 (##), C23 6.10.5.2
        (__VA_OPT__)."""
        out = self.carry_out(macro.plan or [], _Use(macro, name, args, origin, {}))
        return [t for t in out if t[0] != EMPTY]

    def carry_out(self, plan: list, use: _Use, inside: bool = False) -> list[Token]:
        """The tokens that a plan makes. A placemarker stands for an operand of ## that is empty and, `inside` of a
        __VA_OPT__, for every argument that is."""
        out: list[Token] = []
        paste = False
        for i, (code, value, space) in enumerate(plan):
            if code == PASTE:
                paste = True
                continue
            if code == TOKEN:
                kind, text, had_space, pos, _ = value
                piece: list[Token] = [(kind, text, had_space, pos, use.origin)]
            else:
                piece = self.step(code, value, space, use)
            if paste and code == RAW and self.is_variable(use, value) and out and out[-1][1] == ",":
                # GNU: `, ## __VA_ARGS__` drops the comma when the variable argument is absent, and pastes nothing
                if use.args[value] is None:
                    out.pop()
                paste = space = False
            if not piece and (inside or paste or (i + 1 < len(plan) and plan[i + 1][0] == PASTE)):
                piece = [(EMPTY, "", space, use.name[3], use.origin)]
            if paste and out:
                out[-1:] = self.paste(out[-1], piece[0], use.origin)
                out += piece[1:]
            elif piece:
                k, t, _, p, o = piece[0]
                out.append((k, t, space, p, o))
                out += piece[1:]
                self.spend(len(piece) >> 4, use.name)
            paste = False
            if len(out) > self.budget:
                self.spend(len(out), use.name)
        return out

    def step(self, code: int, value: Any, space: bool, use: _Use) -> list[Token]:
        """The tokens of one step of a plan that is no plain token."""
        if code == ARG:
            return self.expanded(use, value)
        if code == RAW:
            return use.args[value] or []
        if code == STRINGIZE:
            return [(STRING, self.stringize(use.args[value] or [], use.name), space, use.name[3], use.origin)]
        inner, as_string = value  # OPTION
        chosen = self.carry_out(inner, use, True) if self.expanded(use, len(use.args) - 1) else []
        if as_string:
            text = self.stringize([t for t in chosen if t[0] != EMPTY], use.name)
            return [(STRING, text, space, use.name[3], use.origin)]
        return chosen

    def is_variable(self, use: _Use, index: int) -> bool:
        return use.macro.variadic and index == len(use.args) - 1

    def expanded(self, use: _Use, index: int) -> list[Token]:
        """An argument, expanded once."""
        piece = use.expanded.get(index)
        if piece is None:
            piece = use.expanded[index] = self.expand_argument(use.args[index] or [], use.name)
        return piece

    def expand_argument(self, arg: list[Token], name: Token) -> list[Token]:
        self.depth += 1
        if self.depth > self.limits.nesting:
            raise self.limit("macro calls are nested too deeply", name)
        out: list[Token] = []
        self.expand(arg[::-1], out)
        self.depth -= 1
        return out

    def paste(self, left: Token, right: Token, origin: Expansion) -> list[Token]:
        """The one token of `left ## right`; both where they make none, which is an error."""
        if EMPTY in (left[0], right[0]):
            kind, text, _, pos, parent = right if left[0] == EMPTY else left
            return [(kind, text, left[2], pos, parent)]
        text = left[1] + right[1]
        if len(text) > self.limits.token_length:
            raise self.limit("## makes a token that is too long", left)
        kind = token_kind(text)
        if kind is None:
            self.report(f"## of '{left[1][:40]}' and '{right[1][:40]}' gives no valid token", (*left[:4], origin))
            return [left, right]
        return [(kind, text, left[2], left[3], origin)]

    def stringize(self, arg: list[Token], name: Token) -> str:
        parts: list[str] = []
        length = 0
        for kind, text, space, *_ in arg:
            if kind in (STRING, CHAR):
                text = text.replace("\\", "\\\\").replace('"', '\\"')
            parts.append(" " + text if space and parts else text)
            length += len(text) + 1
            if length > self.limits.token_length:
                raise self.limit("# makes a string that is too long", name)
        return '"' + "".join(parts) + '"'
