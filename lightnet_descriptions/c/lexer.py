"""The tokens of C: names, numbers, strings, operators. Comments are blanks. Imports `ir.expr` for its limits, and
`values`."""

from __future__ import annotations

import re
from itertools import islice
from typing import NoReturn

from lightnet.ir.expr import MAX_STRING, MAX_TEXT, MAX_TOKENS
from lightnet.parsing import Token, lexed
from lightnet_descriptions.c.values import Float, text_error

_TOKEN = re.compile(
    r"(?P<space>(?:\s+|//[^\n]*|/\*.*?\*/)+)"
    r"|(?P<num>0[xX][0-9a-fA-F]+[uUlL]*|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[uUlLfF]*)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r'|(?P<str>"(?:[^"\\\n]|\\.)*")'
    r"|(?P<char>'(?:[^'\\\n]|\\.)')"
    r"|(?P<op><<=|>>=|\.\.\.|->|\+\+|--|<<|>>|&&|\|\||[-+*/%&|^=!<>]=|(?!/\*)[-+*/%<>=!~&|^?:;,.(){}\[\]#])",
    re.DOTALL | re.ASCII,
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b", "a": "\a", "v": "\v"}
_MAX_NUMBER = 64


def tokens(text: str) -> list[Token]:
    """The tokens of `text`, with one of the kind ``end`` behind them. Raises `LightNetError` at what is none."""
    if len(text) > MAX_TEXT:
        raise text_error(text, 0, f"C text of {len(text)} characters (at most {MAX_TEXT})")

    def unknown(at: int) -> NoReturn:
        c = text[at]
        message = "unterminated string" if c in "\"'" else f"unexpected character {c!a}"
        raise text_error(text, at, "unterminated comment" if text.startswith("/*", at) else message)

    found = [*islice(lexed(text, _TOKEN, unknown), MAX_TOKENS + 1)]
    if len(found) > MAX_TOKENS:
        raise text_error(text, found[-1].pos, f"more than {MAX_TOKENS} tokens")
    return [*found, Token("end", "the end of the text", len(text))]


def c_number(text: str, token: Token) -> int | float:
    """The value of a number. ``1.5f`` is a `Float`; suffixes of integers say nothing here."""
    if len(token.text) > _MAX_NUMBER:
        raise text_error(text, token.pos, f"a number of more than {_MAX_NUMBER} characters")
    if token.text[:2].lower() == "0x":
        return _integer(text, token, token.text.rstrip("uUlL"), 16)
    body = token.text.rstrip("uUlLfF")
    suffix = token.text[len(body) :].lower()
    if body.isdigit() and "f" not in suffix:
        octal = body.startswith("0") and len(body) > 1
        if octal and not set(body) <= set("01234567"):
            raise text_error(text, token.pos, f"'{token.text}' is no octal number")
        return _integer(text, token, body, 8 if octal else 10)
    value = float(body)
    if value == float("inf"):
        raise text_error(text, token.pos, f"the number {token.text} is too large")
    return Float(value) if suffix == "f" else value


def _integer(text: str, token: Token, digits: str, base: int) -> int:
    value = int(digits, base)
    if value >= 1 << 64:
        raise text_error(text, token.pos, f"the integer {token.text} has more than 64 bits")
    return value


def c_string(text: str, token: Token) -> str:
    """The characters of a string or of a character."""
    if len(token.text) > MAX_STRING:
        raise text_error(text, token.pos, f"a string of more than {MAX_STRING} characters")

    def one(m: re.Match[str]) -> str:
        if m[1] or m[2]:
            return chr(int(m[1], 16) if m[1] else int(m[2], 8) & 255)
        return _ESCAPED.get(m[3], m[3])

    return _ESCAPE.sub(one, token.text[1:-1])
