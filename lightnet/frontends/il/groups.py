"""Conditional groups: which lines between `#if` and `#endif` are read. Imports the lexer only."""

from __future__ import annotations

from collections.abc import Callable

from lightnet.dataclasses import dataclass
from lightnet.frontends.il.lexer import Token, TokenError

#: The directives of conditional groups. What follows `el` is the test of the group, as in `#if`.
DIRECTIVES = ("if", "ifdef", "ifndef", "elif", "elifdef", "elifndef", "else", "endif")
#: Nested #if.
MAX_DEPTH = 200


@dataclass(slots=True)
class _Group:
    """An open #if: whether its present part is read, whether one was, whether anything around it is, and #else seen."""

    pos: int
    active: bool
    taken: bool
    outer: bool
    has_else: bool = False


class Groups:
    """The open groups of one file."""

    def __init__(self) -> None:
        self._open: list[_Group] = []

    @property
    def active(self) -> bool:
        """True if the lines that come are read."""
        return not self._open or self._open[-1].active

    @property
    def unclosed(self) -> int | None:
        """The place of the innermost open #if."""
        return self._open[-1].pos if self._open else None

    def take(self, name: str, token: Token, holds: Callable[[str], bool]) -> None:
        """Carry out a directive; `holds` evaluates its condition by the name of the test (`if`, `ifdef`, `ifndef`), and
        is called only where that matters. TokenError for a directive that may not stand here."""
        if name.startswith("if"):
            if len(self._open) >= MAX_DEPTH:
                raise TokenError("#if is nested too deeply", token)
            outer = self.active
            group = _Group(token[3], False, False, outer)
            self._open.append(group)  # before the condition is known to be well formed: its #endif will come
            group.active = group.taken = outer and holds(name)
            return
        if not self._open:
            raise TokenError(f"#{name} without #if", token)
        group = self._open[-1]
        if name == "endif":
            self._open.pop()
            return
        if group.has_else:
            raise TokenError(f"#{name} after #else", token)
        group.has_else = name == "else"
        group.active = group.outer and not group.taken and (name == "else" or holds(name[2:]))
        group.taken |= group.active
