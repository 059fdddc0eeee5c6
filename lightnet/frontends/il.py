"""The reader of LightNet IL: preprocessed text, `${eval}` replaced, split into statements, each an operator of a
`Netlist`.

    network   := (statement? ";")* statement?
    statement := optype "(" tensors "|" tensors "|" params ")"
    tensors   := (name "=" name ("," name "=" name)* ","?)?          params := (name "=" value ("," name "=" value)* ","?)?
    value     := number | string | name | "true" | "false" | "null" | "[" element ("," element)* ","? "]"
    element   := number | string | "true" | "false"                  all of one kind

A bare name as a value is a string. A string keeps its escapes as they are written. Operators are named by their type
and a count from 0 of each type. Imports the standard library, the netlist, the preprocessor and diagnostics only.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.frontends.evals import MODES, substitute
from lightnet.frontends.netlist import Netlist, NetOp, NetParam, NetTensor, ParamValue
from lightnet.frontends.preprocessor import preprocess
from lightnet.ir.collector import collector_paused
from lightnet.source import STDIN_NAME, check_text, read_text

MAX_FILE = 1 << 23  # bytes
MAX_OPS = 250_000
MAX_STATEMENT = 1 << 24  # characters

_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_BREAK = re.compile(rf'{_STRING}|;|"', re.DOTALL)
_SECTION = re.compile(rf'{_STRING}|[|\[\]",]', re.DOTALL)
_OPTYPE = re.compile(rf"\s*({_NAME})\s*\(")
_TENSOR = re.compile(rf"\s*({_NAME})\s*=\s*({_NAME})\s*", re.ASCII)
_SCALAR = re.compile(
    rf"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|({_STRING})|({_NAME})", re.ASCII | re.DOTALL
)
_PARAM = re.compile(rf"\s*({_NAME})\s*=\s*", re.ASCII)
_WORDS: dict[str, ParamValue] = {"true": True, "false": False, "null": None}


@collector_paused()
def read(
    text: str,
    path: str,
    *,
    include_dirs: Iterable[str] = (),
    eval_mode: str = "arith",
    defines: Iterable[str] = (),
    on_warning: Callable[[SourceLoc, str], None] | None = None,
    on_error: Callable[[LightNetError], None] | None = None,
) -> Netlist:
    """The network in `text`, which was read from `path` ("-" or "<stdin>" for standard input).

    `include_dirs`: folders that #include searches after the including file's. `defines`: macros, as `NAME` or
    `NAME=value`. `eval_mode`: "arith" or "perl" (which runs Perl code from the file). `on_warning` gets what #warning
    and redefinitions say. With `on_error` a malformed statement is reported there and left out. Raises LightNetError,
    located in the user's file also within macros, for anything malformed or beyond the limits.
    """
    if eval_mode not in MODES:
        raise LightNetError(f"unknown eval mode '{eval_mode}'; the modes are: {', '.join(MODES)}")
    path = STDIN_NAME if path == "-" else path
    check_text(text, path)
    translation = preprocess(text.removeprefix("\ufeff"), path, include_dirs, defines)
    for loc, message in translation.warnings if on_warning else ():
        on_warning(loc, message)
    expanded, starts, tokens = substitute(translation, eval_mode)

    def error(message: str, offset: int) -> LightNetError:
        index = max(0, bisect_right(starts, offset) - 1)
        return translation.sources.error(message, tokens[index])

    def loc(offset: int) -> SourceLoc:
        _, _, _, pos, origin = tokens[bisect_right(starts, offset) - 1]
        return translation.sources.loc(origin.root if origin else pos)

    counts: dict[str, int] = {}
    ops: list[NetOp] = []
    for start, end in _statements(expanded, error):
        if len(ops) >= MAX_OPS:
            raise error(f"the network has more than {MAX_OPS} operators", start)
        try:
            op = _Statement(expanded, start, end, error).parse()
        except LightNetError as e:
            if on_error is None:
                raise
            on_error(e)
            continue
        op.loc = loc(start)
        number = counts.get(op.optype, 0)
        counts[op.optype] = number + 1
        op.name = f"{op.optype}{number}"
        ops.append(op)
    return Netlist(ops, path, lines=text.split("\n"))


def read_file(path: str, **options) -> Netlist:
    """The network in a file ("-": standard input); the options of `read`."""
    return read(read_text(path, MAX_FILE), path, **options)


_Error = Callable[[str, int], LightNetError]


def _statements(text: str, error: _Error) -> Iterator[tuple[int, int]]:
    """The spans of the statements, without the white space around them; a ';' in a string ends none."""
    start = 0

    def span(end: int) -> tuple[int, int] | None:
        piece = text[start:end]
        first = start + len(piece) - len(piece.lstrip())
        if first == end:
            return None
        if end - start > MAX_STATEMENT:
            raise error("the statement is too long", first)
        return first, start + len(piece.rstrip())

    for m in _BREAK.finditer(text):
        if m[0] == '"':
            raise error("unterminated string", m.start())
        if m[0] == ";":
            if found := span(m.start()):
                yield found
            start = m.end()
    if found := span(len(text)):
        yield found


class _Statement:
    """One statement, `text[start:end]`; offsets are those of the whole text, so that an error finds its token."""

    def __init__(self, text: str, start: int, end: int, error: _Error):
        self.text = text
        self.start = start
        self.end = end
        self.error = error

    def parse(self) -> NetOp:
        """The operator, still without a name and a location."""
        head = _OPTYPE.match(self.text, self.start, self.end)
        if not head or self.text[self.end - 1] != ")":
            raise self.syntax_error()
        sections = self.split(head.end(), self.end - 1)
        inputs = [self.tensor(*e) for e in sections[0]]
        outputs = [self.tensor(*e) for e in sections[1]]
        params = [self.param(*e) for e in sections[2]]
        seen: set[str] = set()
        elements = [e for section in sections for e in section]
        for item, (at, _) in zip([*inputs, *outputs, *params], elements):
            if item.arg in seen:
                raise self.error(f"'{item.arg}' is given twice in a {head[1]}", at)
            seen.add(item.arg)
        return NetOp("", head[1], inputs, outputs, params, SourceLoc(""))

    def split(self, start: int, end: int) -> list[list[tuple[int, int]]]:
        """The spans of the elements of the three lists, which '|' separates; a comma may end a list."""
        sections: list[list[tuple[int, int]]] = [[]]
        depth, at = 0, start
        for m in _SECTION.finditer(self.text, start, end):
            mark = m[0]
            if mark == "[" or mark == "]":
                depth += 1 if mark == "[" else -1
                if depth not in (0, 1):
                    break
            elif depth == 0 and mark in ",|":
                self.close(sections[-1], at, m.start(), mark == ",")
                at = m.end()
                if mark == "|":
                    sections.append([])
        if depth or len(sections) != 3:
            raise self.syntax_error()
        self.close(sections[-1], at, end, False)
        return sections

    def close(self, elements: list[tuple[int, int]], start: int, end: int, comma: bool) -> None:
        """Add an element to its list; an empty one may only end the list."""
        if self.text[start:end].strip():
            elements.append((start, end))
        elif comma:
            raise self.syntax_error()

    def tensor(self, start: int, end: int) -> NetTensor:
        m = _TENSOR.fullmatch(self.text, start, end)
        if not m:
            raise self.format_error("tensor name", start, end)
        return NetTensor(m[1], m[2])

    def param(self, start: int, end: int) -> NetParam:
        m = _PARAM.match(self.text, start, end)
        if not m:
            raise self.format_error("param value", start, end)
        at = m.end()
        stop = at + len(self.text[at:end].rstrip())
        if self.text.startswith("[", at) and at < stop:
            if self.text[stop - 1] != "]":
                raise self.format_error("param value", start, end)
            return NetParam(m[1], self.array(start, at + 1, stop - 1))
        value = _SCALAR.fullmatch(self.text, at, stop)
        if not value:
            raise self.format_error("param value", start, end)
        return NetParam(m[1], self.scalar(value))

    def array(self, element: int, start: int, end: int) -> tuple:
        """The values between the brackets: at least one, all numbers, all strings or all booleans."""
        values: list = []
        at = start
        while at < end:
            while at < end and self.text[at].isspace():
                at += 1
            if at == end and values:
                break
            m = _SCALAR.match(self.text, at, end)
            stop = m.end() if m else at
            while stop < end and self.text[stop].isspace():
                stop += 1
            if not m or (stop < end and self.text[stop] != ","):
                comma = self.text.find(",", at, end)
                raise self.format_error("array param element", at, comma if comma >= 0 else end)
            if m[3] and m[3] not in _WORDS:
                raise self.syntax_error()
            values.append(self.scalar(m))
            at = stop + 1
        if not values:
            raise self.error(
                f"wrong param value format in '{self.quote(element, end + 1)}': the array is empty", element
            )
        self.check_kinds(values, start, end)
        return tuple(values)

    def check_kinds(self, values: list, start: int, end: int) -> None:
        kinds = set(map(type, values))
        if kinds in ({int}, {float}, {int, float}, {str}, {bool}):
            return
        why = (
            "an array has no null"
            if type(None) in kinds
            else "an array has numbers, strings or booleans, not a mixture"
        )
        raise self.error(f"wrong array param element format in '{self.quote(start, end)}': {why}", start)

    def scalar(self, m: re.Match) -> ParamValue:
        number, string, word = m.groups()
        if string is not None:
            return string[1:-1]
        if word is not None:
            return _WORDS.get(word, word)
        if number.lstrip("+-").isdigit():
            value = int(number) if len(number) <= 40 else 1 << 64
            if not -(1 << 63) <= value < 1 << 64:
                raise self.error(f"the number '{number[:40]}' does not fit 64 bits", m.start())
            return value
        real = float(number)
        if abs(real) == float("inf"):
            raise self.error(f"the number '{number[:40]}' is too large", m.start())
        return real

    def quote(self, start: int, end: int) -> str:
        text = " ".join(self.text[start:end].split())
        return text if len(text) <= 200 else text[:200] + "..."

    def format_error(self, what: str, start: int, end: int) -> LightNetError:
        first = start + len(self.text[start:end]) - len(self.text[start:end].lstrip())
        return self.error(f"wrong {what} format in '{self.quote(start, end)}'", first)

    def syntax_error(self) -> LightNetError:
        return self.error(f"wrong syntax in\n    {self.quote(self.start, self.end)}", self.start)
