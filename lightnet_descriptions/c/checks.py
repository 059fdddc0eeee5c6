"""The checks of code without running it: names, functions and their numbers of arguments, members of what is
known.

A mistake in a description shows when its file is loaded, at its place, and not in the first network that meets the
line. Imports the tree, the parser and the machine's messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from lightnet.dataclasses import dataclass, field
from lightnet_descriptions.c import tree
from lightnet_descriptions.c.functions import CFunction, check_count, unknown_value
from lightnet_descriptions.c.parser import parse_code
from lightnet_descriptions.c.values import text_error

_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w*)([^\n]*)$", re.MULTILINE)
_INCLUDE = re.compile(r'\s*(?:<[^<>"\n]+>|"[^<>"\n]+")\s*(?://[^\n]*|/\*[^\n]*?\*/\s*)?')


@dataclass
class CodeScope:
    """The names of code: values by name, with their members where these are known (None: any, or no structure); the
    functions; and which of the names may be assigned. `instead(name)` says what to write instead of a name that means
    nothing."""

    names: Mapping[str, Collection[str] | None]
    functions: Mapping[str, CFunction]
    assignable: Collection[str] = ()
    instead: Callable[[str], str | None] = lambda name: None
    #: Variables of the function that this code is part of: earlier code of it declared them.
    declared: dict[str, str] = field(default_factory=dict)


def check_c_code(block: tree.Block, text: str, scope: CodeScope) -> None:
    """Raise `CodeError` at the first name, call or member of `block` that has no meaning. What it declares outside of
    blocks stays in `scope.declared`."""
    _Checker(text, scope).statement(block, [scope.declared])


class _Checker:
    def __init__(self, text: str, scope: CodeScope):
        self.text, self.scope = text, scope

    def fail(self, message: str, at: tree.SyntaxNode) -> Any:
        raise text_error(self.text, at.pos, message)

    def unknown(self, what: str, name: str, known: Collection[str], at: tree.SyntaxNode) -> None:
        better = self.scope.instead(name)
        self.fail(f"'{name}' has no meaning here: {better}" if better else unknown_value(what, name, known), at)

    # -- statements

    def statement(self, s: Any, scopes: list[dict[str, str]]) -> None:
        match s:
            case None:
                return
            case tree.Block(statements=statements, is_scope=is_scope):
                inner = [*scopes, {}] if is_scope else scopes
                for part in statements:
                    self.statement(part, inner)
            case tree.For(start=start, cond=cond, step=step, body=body):
                inner = [*scopes, {}]
                self.statement(start, inner)
                for e in (cond, step):
                    self.parts(e, inner)
                self.statement(body, inner)
            case tree.If(cond=cond, then=then, other=other):
                self.parts(cond, scopes)
                self.statement(then, [*scopes, {}])
                self.statement(other, [*scopes, {}])
            case tree.Declaration(name=name, value=value, length=length):
                for e in (length, value):
                    self.parts(e, scopes)
                scopes[-1][name] = str(s.type)
            case tree.Evaluate(expr=e) | tree.Return(value=e):
                self.parts(e, scopes)

    # -- expressions

    def parts(self, e: Any, scopes: list[dict[str, str]]) -> None:
        if e is None:
            return
        match e:
            case tree.Name(name=name):
                self.name(e, name, scopes)
            case tree.Call(fn=fn):
                self.call(e, fn)
            case tree.Member(base=tree.Name(name=base), name=member) if not any(base in s for s in scopes):
                fields = self.scope.names.get(base)
                if fields is not None and member not in fields:
                    self.fail(f"'{base}' has no member '{member}'; there are: {', '.join(sorted(fields)) or 'none'}", e)
            case tree.Assign(target=tree.Name(name=name)) | tree.Increment(target=tree.Name(name=name)):
                if (
                    name in self.scope.names
                    and name not in self.scope.assignable
                    and not any(name in s for s in scopes)
                ):
                    self.fail(f"'{name}' cannot be assigned here", e)
        for child in tree.children(e):
            self.parts(child, scopes)

    def name(self, e: tree.SyntaxNode, name: str, scopes: list[dict[str, str]]) -> None:
        if name == "NULL" or name in self.scope.names or any(name in s for s in scopes):
            return
        self.unknown("name", name, [*(n for s in scopes for n in s), *self.scope.names], e)

    def call(self, e: tree.Call, fn: str) -> None:
        if fn not in self.scope.functions:
            self.unknown("function", fn, self.scope.functions, e)
        try:
            check_count(fn, self.scope.functions[fn], len(e.args))
        except TypeError as error:
            self.fail(str(error), e)


def check_head(text: str) -> None:
    """Check what an optimizer description has in front of its code: `#include` lines, which mean nothing here (what
    there is to call is in tables), comments and declarations of variables. Raises `CodeError` for anything else."""
    plain = re.sub(r"/\*.*?\*/|//[^\n]*", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.DOTALL)
    for m in _DIRECTIVE.finditer(plain):
        if m[1] != "include":
            raise text_error(
                text,
                m.start(),
                f"'#{m[1]}' is not taken here: only #include may stand at the head, and it means nothing",
            )
        if not _INCLUDE.fullmatch(m[2]):
            raise text_error(text, m.start(), '#include is followed by <file> or "file"')
    blanked = _DIRECTIVE.sub(lambda m: " " * len(m[0]), plain)
    for s in parse_code(blanked).statements:
        if not isinstance(s, tree.Declaration | tree.Block):
            raise text_error(
                text, s.pos, "only #include lines and declarations may stand at the head: code is never run"
            )
