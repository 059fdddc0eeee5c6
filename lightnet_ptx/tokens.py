"""Cuts PTX text into tokens. Imports the standard library and `lightnet.diagnostics`."""

from __future__ import annotations

import re

from lightnet.diagnostics import LightNetError
from lightnet_ptx.tree import Source

#: Bytes of a variable, and the largest number where a bound is not given.
MAX_VARIABLE = 1 << 31
#: Characters of an integer: 64 binary digits, with their prefix and suffix.
MAX_DIGITS = 67

_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<float>0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b|\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
    |(?P<int>0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+U?)
    |(?P<word>[A-Za-z_$%.][\w$]*(?:(?:::|\.)[\w$]+)*)
    |(?P<string>"[^"\n]*")
    |(?P<mark>[\[\]{}(),;:+\-|!@<>=])""",
    re.VERBOSE | re.DOTALL,
)


class Tokens:
    """The tokens of a text, and where reading is. What is not there is an error at that place."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.kinds: list[str] = []
        self.texts: list[str] = []
        self.starts: list[int] = []
        self.at = 0
        self._scan()

    def _scan(self) -> None:
        text, pos = self.source.text, 0
        match = _TOKEN.match
        while pos < len(text):
            m = match(text, pos)
            if m is None:
                raise self.source.error(f"unexpected character {text[pos]!r}", pos, "ptx.syntax")
            if m.lastgroup == "int" and m.end() - pos > MAX_DIGITS:
                raise self.source.error(f"a number of {m.end() - pos} digits", pos, "ptx.constant")
            if m.lastgroup != "skip":
                self.kinds.append(m.lastgroup or "")
                self.texts.append(m.group())
                self.starts.append(pos)
            pos = m.end()
        self.kinds.append("end")
        self.texts.append("end of file")
        self.starts.append(max(0, len(text) - 1))

    @property
    def text(self) -> str:
        """The token at hand."""
        return self.texts[self.at]

    @property
    def pos(self) -> int:
        """The position where it begins in the text."""
        return self.starts[self.at]

    def fail(self, expected: str) -> LightNetError:
        """An error: something else is expected here."""
        return self.source.error(f"expected {expected}, found {self.text!r}", self.pos, "ptx.syntax")

    def take(self, text: str) -> bool:
        """Pass a token, if it is this one."""
        if self.texts[self.at] != text or self.kinds[self.at] == "end":
            return False
        self.at += 1
        return True

    def expect(self, text: str) -> None:
        """Pass this token."""
        if not self.take(text):
            raise self.fail(repr(text))

    def word(self, what: str) -> str:
        """Pass a word; `what` says in an error what it should have been."""
        if self.kinds[self.at] != "word":
            raise self.fail(what)
        self.at += 1
        return self.texts[self.at - 1]

    def integer(self, what: str, low: int = 0, high: int = MAX_VARIABLE) -> int:
        """Pass a number within bounds; `what` names it in an error."""
        negative = self.take("-")
        if self.kinds[self.at] != "int":
            raise self.fail(what)
        value = integer_value(self.text) * (-1 if negative else 1)
        if not low <= value <= high:
            raise self.source.error(f"{what} is {value}, which is not in {low}..{high}", self.pos, "ptx.limit")
        self.at += 1
        return value

    def rest_of_line(self) -> None:
        """Skip a debugging directive, which ends with its line."""
        line = self.source.loc(self.pos).line
        while self.kinds[self.at] != "end" and self.source.loc(self.pos).line == line:
            self.at += 1


def integer_value(text: str) -> int:
    text = text.rstrip("U")
    base = {"0x": 16, "0X": 16, "0b": 2, "0B": 2}.get(text[:2])
    if base:
        return int(text[2:], base)
    return int(text, 8 if len(text) > 1 and text[0] == "0" and text.strip("01234567") == "" else 10)
