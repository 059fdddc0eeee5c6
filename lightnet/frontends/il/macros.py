"""Macro definitions: parsing `#define`, and the plan by which a use is replaced. Imports the lexer only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lightnet.dataclasses import dataclass
from lightnet.frontends.il.lexer import NAME, PUNCT, Token, TokenError

# What a step of a plan does: a token of the body; a parameter, expanded; a parameter as it was written (beside ##);
# #parameter; ##; __VA_OPT__ with its plan, and whether # stands before it.
TOKEN, ARG, RAW, STRINGIZE, PASTE, OPTION = range(6)
_VARIABLE = ("__VA_ARGS__", "__VA_OPT__")
_UNDEFINABLE = ("defined", *_VARIABLE)
_HASH, _PASTE = ("#", "%:"), ("##", "%:%:")


@dataclass(slots=True, eq=False)
class Macro:
    """A macro. `params` is None for an object-like one; the last of them is the variable one if `variadic`.

    `plan` is None if the body has neither parameters nor ##, so that a use is the body itself. `handler` computes a
    predefined macro (its kind and text); `reader` computes one that reads what stands behind its name.
    """

    name: str
    pos: int
    params: list[str] | None
    variadic: bool
    body: list[Token]
    plan: list[tuple[int, Any, bool]] | None = None
    handler: Callable | None = None
    reader: Callable | None = None
    disabled: bool = False

    def same(self, other: Macro) -> bool:
        """Return whether a second definition says the same (C99 6.10.3): white space counts only as present or not."""

        def key(m: Macro) -> tuple:
            body = [(t[1], t[2] and i > 0) for i, t in enumerate(m.body)]
            return m.params, m.variadic, body, m.handler

        return key(self) == key(other)


def parse_define(directive: Token, rest: list[Token]) -> Macro:
    """The macro of a `#define` line (`rest` is what follows the word); TokenError when malformed."""
    if not rest or rest[0][0] != NAME:
        raise TokenError("#define needs a name", rest[0] if rest else directive)
    name = rest[0]
    if name[1] in _UNDEFINABLE:
        raise TokenError(f"'{name[1]}' cannot be defined", name)
    params, variadic, body = None, False, rest[1:]
    if body and body[0][1] == "(" and body[0][0] == PUNCT and not body[0][2]:
        params, variadic, body = _parameters(name, body[1:])
    macro = Macro(name[1], name[3], params, variadic, body)
    macro.plan = _plan(macro)
    return macro


def _parameters(name: Token, tokens: list[Token]) -> tuple[list[str], bool, list[Token]]:
    """The parameters after '(', whether the last is variable, and the tokens after ')'."""
    params: list[str] = []
    i = 0
    while i < len(tokens):
        kind, text, *_ = tokens[i]
        if text == ")" and not params:
            return params, False, tokens[i + 1 :]
        variadic = text == "..."
        if variadic:
            params.append("__VA_ARGS__")
        elif kind != NAME or text in _VARIABLE:
            raise TokenError(f"'{text[:40]}' cannot be a parameter of a macro", tokens[i])
        elif text in params:
            raise TokenError(f"the macro has two parameters '{text}'", tokens[i])
        else:
            params.append(text)
            if i + 1 < len(tokens) and tokens[i + 1][1] == "...":  # GNU: a variable parameter with a name
                variadic = True
                i += 1
        after = tokens[i + 1][1] if i + 1 < len(tokens) else ""
        if after == ")":
            return params, variadic, tokens[i + 2 :]
        if after != "," or variadic:
            break
        i += 2
    raise TokenError("the parameter list of the macro has no ')'", tokens[min(i, len(tokens) - 1)] if tokens else name)


def _plan(macro: Macro) -> list[tuple[int, Any, bool]] | None:
    """The steps that make a replacement, one a token of the body (two for #x); None if they are just the body."""
    plan = _steps(macro, macro.body, {p: i for i, p in enumerate(macro.params or [])}, "a macro's body")
    return plan if any(step[0] != TOKEN for step in plan) else None


def _steps(macro: Macro, body: list[Token], index: dict[str, int], where: str) -> list[tuple[int, Any, bool]]:
    """The steps of a body, or of what stands in the parentheses of a __VA_OPT__ there."""
    plan: list[tuple[int, Any, bool]] = []
    i = 0
    while i < len(body):
        token = body[i]
        kind, text, space, *_ = token
        if kind == PUNCT and text in _PASTE:
            if not plan or i + 1 == len(body):
                raise TokenError(f"'##' cannot stand at an end of {where}", token)
            if plan[-1][0] == ARG:
                plan[-1] = (RAW, *plan[-1][1:])
            plan.append((PASTE, None, space))
        elif kind == PUNCT and text in _HASH and macro.params is not None:
            i += 1
            if i < len(body) and body[i][1] == "__VA_OPT__" and macro.variadic:
                inner, i = _option(macro, body, i, index, where)
                plan.append((OPTION, (inner, True), space))
            elif i == len(body) or body[i][1] not in index:
                raise TokenError("'#' has to stand before a parameter of the macro", token)
            else:
                plan.append((STRINGIZE, index[body[i][1]], space))
        elif kind == NAME and text in index:
            plan.append((RAW if plan and plan[-1][0] == PASTE else ARG, index[text], space))
        elif kind == NAME and text == "__VA_OPT__" and macro.variadic:
            inner, i = _option(macro, body, i, index, where)
            plan.append((OPTION, (inner, False), space))
        else:
            plan.append((TOKEN, token, space))
        i += 1
    return plan


def _option(macro: Macro, body: list[Token], at: int, index: dict[str, int], where: str) -> tuple[list, int]:
    """The steps of the __VA_OPT__ at `at`, and where its ')' stands."""
    if where == "__VA_OPT__":
        raise TokenError("__VA_OPT__ may not stand in a __VA_OPT__", body[at])
    if at + 1 == len(body) or body[at + 1][1] != "(":
        raise TokenError("expected '(' behind __VA_OPT__", body[at])
    depth = 0
    for end in range(at + 1, len(body)):
        depth += (body[end][1] == "(") - (body[end][1] == ")")
        if depth == 0:
            return _steps(macro, body[at + 2 : end], index, "__VA_OPT__"), end
    raise TokenError("__VA_OPT__ has no ')'", body[at])
