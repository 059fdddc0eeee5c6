"""The statements of IL: preprocessed text as operators of a netlist, and what was expected where it is malformed.

    network   := (statement? ";")* statement?
    statement := optype "(" tensors "|" tensors "|" params ")"
    tensors   := (name "=" name ("," name "=" name)* ","?)?
    params    := (name "=" value ("," name "=" value)* ","?)?
    value     := number | string | name | "true" | "false" | "null" | "[" element ("," element)* ","? "]"
    element   := number | string | "true" | "false" | "null"         all of one kind

A bare name as a value is a string. A string keeps its escapes as they are written. Imports the standard library, the
netlist and diagnostics only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NoReturn

from lightnet import json_text
from lightnet.diagnostics import SourceLoc
from lightnet.frontends.netlist import NetOp, NetParam, NetTensor, ParamValue
from lightnet.source import end_of

_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_NAME = r"[A-Za-z_][A-Za-z0-9_]*+"
_NUMBER = r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?"
_FLAGS = re.ASCII | re.DOTALL
_BETWEEN = re.compile(r"[\s;]*+", _FLAGS)
_SKIPPED = re.compile(rf'{_STRING}|;|"', _FLAGS)
_BLANKS = re.compile(r"\s*+", _FLAGS)
_HEAD = re.compile(rf"({_NAME})\s*+\(\s*+", _FLAGS)
_TENSOR = re.compile(rf"({_NAME})\s*+=\s*+({_NAME})\s*+([,|]?)\s*+", _FLAGS)
_PARAM = re.compile(rf"({_NAME})\s*+=\s*+(?:({_NUMBER})|({_STRING})|({_NAME})|(\[))\s*+([,)]?)", _FLAGS)
_ELEMENT = re.compile(rf"\s*+(?:({_NUMBER})|({_STRING})|(true|false|null)\b)\s*+([,\]]?)", _FLAGS)
_ARGUMENT = re.compile(rf"({_NAME})\s*+(=?)\s*+", _FLAGS)
_TOKEN = re.compile(rf"{_STRING}|{_NUMBER}|{_NAME}|.", _FLAGS)
_ELEMENT_END = re.compile(rf"{_STRING}|[,|;)\]]", _FLAGS)
_PARAM_END = re.compile(rf"{_STRING}|\[(?:{_STRING}|[^\]\"|;])*+\]|[,|;)]", _FLAGS)
_WORDS: dict[str, ParamValue] = {"true": True, "false": False, "null": None}
_VALUE = "a number, a string, a name, true, false, null or an array in [ ]"
_ELEMENTS = "a number, a string, true, false or null"
_SECTIONS = ("the inputs", "the outputs")


class StatementError(Exception):
    """A mistake, and the offset where it is; reading goes on at `resume`, or behind the statement."""

    def __init__(self, message: str, at: int, resume: int | None = None):
        super().__init__(message)
        self.message = message
        self.at = at
        self.resume = resume


def located_statements(text: str) -> Iterator[tuple[int, int, NetOp | StatementError]]:
    """The begin and end of each statement, and its operator, without a name and a place, or what is wrong with it."""
    at = end_of(_BETWEEN, text)
    while at < len(text):
        statement = _Statement(text, at)
        try:
            op, end = statement.parse()
            yield at, end, op
            end = statement.end_at(end)
        except StatementError as e:
            resume = _behind(text, e.at) if e.resume is None else e.resume
            yield at, resume, e
            end = resume
        at = end_of(_BETWEEN, text, end)


def _behind(text: str, at: int) -> int:
    """The end of the statement that holds `at`; a ';' in a string ends none."""
    for m in _SKIPPED.finditer(text, at):
        if m[0] == ";":
            return m.start()
    return len(text)


class _Statement:
    """The statement that begins at `start`."""

    def __init__(self, text: str, start: int):
        self.text = text
        self.start = start

    def parse(self) -> tuple[NetOp, int]:
        """The operator, and the offset behind its ')'."""
        head = _HEAD.match(self.text, self.start)
        if head is None:
            self.malformed_head()
        self.seen: set[str] = set()
        self.optype = head[1]
        inputs, at = self.tensors(head.end(), _SECTIONS[0])
        outputs, at = self.tensors(at, _SECTIONS[1])
        params, at = self.params(at)
        return NetOp("", head[1], inputs, outputs, params, SourceLoc("")), at

    def end_at(self, at: int) -> int:
        """The offset of what ends the statement: a ';' or the end of the text."""
        at = self.skip(at)
        if at < len(self.text) and self.text[at] != ";":
            message = f"expected ';' behind ')', got {self.got(at)}: wrong syntax in\n    {self.quote(self.start, at)}"
            raise StatementError(message, at, at if self.text[at].isalpha() else None)
        return at

    def tensors(self, at: int, section: str) -> tuple[list[NetTensor], int]:
        """The tensors up to '|', and the offset behind it."""
        text = self.text
        found: list[NetTensor] = []
        while m := _TENSOR.match(text, at):
            arg, name, mark = m.groups()
            self.once(arg, at)
            found.append(NetTensor(arg, name))
            if mark == "|":
                return found, m.end()
            if not mark:
                self.misplaced(m.end(), at, "tensor name", f"',' or the '|' behind {section}")
            at = m.end()
        if text.startswith("|", at):
            return found, self.skip(at + 1)
        self.malformed_argument(at, "tensor name", f"an argument's name or the '|' behind {section}", "a tensor's name")

    def params(self, at: int) -> tuple[list[NetParam], int]:
        """The parameters up to ')', and the offset behind it."""
        text = self.text
        found: list[NetParam] = []
        value: ParamValue
        while m := _PARAM.match(text, at):
            arg, number, string, word, bracket, mark = m.groups()
            self.once(arg, at)
            end = m.end()
            if bracket:
                value, end = self.array(m.end(5), at)
                end = self.skip(end) + 1
                mark = text[end - 1 : end]
            else:
                value = self.scalar(number, string, word, m.start(2))
            found.append(NetParam(arg, value))
            if mark == ")":
                return found, end
            if mark != ",":
                self.misplaced(end - bool(bracket), at, "param value", "',' or the ')' behind the parameters")
            at = self.skip(end)
        if text.startswith(")", at):
            return found, at + 1
        self.malformed_argument(at, "param value", "a parameter's name or ')'", _VALUE)

    def once(self, arg: str, at: int) -> None:
        if arg in self.seen:
            raise StatementError(f"'{arg}' is given twice in a {self.optype}", at)
        self.seen.add(arg)

    def array(self, start: int, param: int) -> tuple[tuple, int]:
        """The values between brackets, and the offset behind the second: at least one, all numbers, strings, booleans
        or null."""
        values: list = []
        at = start
        while m := _ELEMENT.match(self.text, at):
            number, string, word, mark = m.groups()
            values.append(self.scalar(number, string, word, m.start(1)))
            if mark == "]":
                return self.of_one_kind(values, start, m.end() - 1), m.end()
            if not mark:
                self.bad_element(m.end(), at, "',' or ']'")
            at = m.end()
        at = self.skip(at)
        if not self.text.startswith("]", at):
            self.bad_element(at, at, _ELEMENTS)
        if not values:
            what = f"wrong param value format in '{self.quote(param, at + 1)}': the array is empty"
            raise StatementError(f"expected {_ELEMENTS}, got ']': {what}", at)
        return self.of_one_kind(values, start, at), at + 1

    def of_one_kind(self, values: list, start: int, end: int) -> tuple:
        if set(map(type, values)) not in ({int}, {float}, {int, float}, {str}, {bool}, {type(None)}):
            why = "an array has numbers, strings, booleans or null, not a mixture"
            message = f"wrong array param element format in '{self.quote(start, end)}': {why}"
            raise StatementError(message, self.skip(start))
        return tuple(values)

    def scalar(self, number: str | None, string: str | None, word: str | None, at: int) -> ParamValue:
        if string is not None:
            return string[1:-1]
        if word is not None:
            return _WORDS.get(word, word)
        assert number is not None
        try:
            return json_text.json_number(number)
        except json_text.LiteralError as e:
            raise StatementError(e.message, at) from None

    # -- what is wrong ------------------------------------------------------------------------------------------------
    def malformed_head(self) -> NoReturn:
        name = re.compile(_NAME, _FLAGS).match(self.text, self.start)
        if name is None:
            self.wrong_syntax(self.start, "an op's type")
        self.wrong_syntax(self.skip(name.end()), f"'(' behind the op's type '{name[0][:80]}'")

    def malformed_argument(self, at: int, what: str, expected: str, value: str) -> NoReturn:
        """Neither an argument nor the end of its section stands at `at`."""
        m = _ARGUMENT.match(self.text, at)
        if m is None:
            self.misplaced(at, at, what, expected)
        wanted = f"{value} for '{m[1][:80]}'" if m[2] else f"'=' behind '{m[1][:80]}'"
        self.wrong_format(m.end(), at, what, wanted)

    def misplaced(self, at: int, argument: int, what: str, expected: str) -> NoReturn:
        """Something else than `expected` stands at `at`, where an argument begins or ends."""
        if self.text[at : at + 1] in ("", ";", "|", ")", "]", ",", "["):
            self.wrong_syntax(at, expected)
        self.wrong_format(at, argument, what, expected)

    def wrong_format(self, at: int, argument: int, what: str, expected: str) -> NoReturn:
        quoted = self.quote(argument, max(self.argument_end(argument), argument + 1))
        raise StatementError(f"expected {expected}, got {self.got(at)}: wrong {what} format in '{quoted}'", at)

    def bad_element(self, at: int, element: int, expected: str) -> NoReturn:
        """Something else than `expected` stands in an array."""
        element = self.skip(element)
        found = self.text[at : at + 1]
        is_name = found.isalpha() and element == at
        if found in ("", ";", "|", ")", "[") or is_name:
            self.wrong_syntax(at, f"{expected} in the array")
        end = next((m.start() for m in _ELEMENT_END.finditer(self.text, at) if m[0] in (",", "]")), len(self.text))
        quoted = self.quote(element, end)
        raise StatementError(
            f"expected {expected}, got {self.got(at)}: wrong array param element format in '{quoted}'", at
        )

    def wrong_syntax(self, at: int, expected: str) -> NoReturn:
        quoted = self.quote(self.start, _behind(self.text, at))
        raise StatementError(f"expected {expected}, got {self.got(at)}: wrong syntax in\n    {quoted}", at)

    def argument_end(self, start: int) -> int:
        """The end of the argument that begins at `start`."""
        ends = (m.start() for m in _PARAM_END.finditer(self.text, start) if m[0] in (",", "|", ";", ")"))
        return next(ends, len(self.text))

    def got(self, at: int) -> str:
        m = _TOKEN.match(self.text, at)
        return f"'{m[0][:40]}'" if m else "the end"

    def quote(self, start: int, end: int) -> str:
        text = " ".join(self.text[start:end].split())
        return text if len(text) <= 200 else text[:200] + "..."

    def skip(self, at: int) -> int:
        return end_of(_BLANKS, self.text, at)
