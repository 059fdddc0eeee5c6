"""JSON IR, both ways: text to `Netlist` and back, for plain networks, planned ones and kernel regions.

    network := {"ops": [op], "mem_sizes_h": [int], "mem_sizes_l": [int], ...}
    op      := {"name": string, "optype": string, "tensors_in": [tensor], "tensors_out": [tensor], "params": [param], "body": [op]}
    tensor  := {"arg_name": string, "name": string, "dims": [int], "offset_h": int, "offset_l": int}
    param   := {"arg_name": string, "value": null | string | number | bool | [string] | [number] | [bool]}

`body`, `dims`, the offsets and the memory sizes are optional: a kernel region has the first, a planned network the
others. A `_h`/`_l` pair is the high and the low 32-bit word of one number of bytes. Other keys are ignored, but those
of the top level are kept (`Netlist.extra`). Comments (`//` and `/* */`) are taken; trailing commas, duplicate keys, NaN
and Infinity are not.

The top level is walked by hand and each operator is decoded by the standard library's C scanner, so that memory holds
one raw operator at a time. Imports the standard library, the netlist, `json_form`, `source` and diagnostics only.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from lightnet.diagnostics import LightNetError
from lightnet.frontends.json_form import (
    MAX_DEPTH,
    FormError,
    Path,
    check_depth,
    check_encodable,
    join_words,
    to_op,
    to_words,
)
from lightnet.frontends.netlist import Netlist, NetOp, NetTensor
from lightnet.source import STDIN_NAME, Lines, check_text, read_text

MAX_FILE = 1 << 26  # bytes, of the file and of the text in memory
MAX_OPS = 250_000
# What a text within MAX_FILE may hold, so that even one odd operator decodes in a few seconds to a few hundred MB.
_MAX_COUNTS = {
    "{": 4_000_000,
    "[": 4_000_000,
    '"': 20_000_000,
    ",": 8_000_000,
    ":": 4_000_000,
    "//": 1_000_000,
    "/*": 1_000_000,
}

_BLANK = re.compile(r"[ \t\r\n]*")
_COMMENT = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|//[^\n]*|/\*.*?\*/|/\*', re.DOTALL)
_PIECE = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.DOTALL)
_TOP_KEYS = ("ops", "mem_sizes_h", "mem_sizes_l")


class _Literal(Exception):
    """A literal that the scanner may not take: its text and why."""

    def __init__(self, text: str, why: str):
        super().__init__(why)
        self.text = text
        self.why = why


def read(text: str, path: str) -> Netlist:
    """The network in `text`, which was read from `path` ("-" for standard input).

    Raises LightNetError with a place for anything that is no JSON, has not the form above, or exceeds the limits (size,
    depth 100, 64-bit integers). Whether the network makes sense (tensors defined before use, known operators) is not
    checked here.
    """
    return _Reader(text, STDIN_NAME if path == "-" else path).read()


def read_file(path: str) -> Netlist:
    """The network in a file ("-": standard input)."""
    return read(read_text(path, MAX_FILE), path)


# -- the text ---------------------------------------------------------------------------------------------------------
class _Reader:
    def __init__(self, text: str, path: str):
        self.path = path
        self.lines = Lines(text)
        self.duplicate = ""
        decoder = json.JSONDecoder(
            object_pairs_hook=self.pairs, parse_int=_integer, parse_float=_real, parse_constant=_constant
        )
        self.scan: Callable[[str, int], tuple[Any, int]] = decoder.scan_once
        if sys.getsizeof(text) > MAX_FILE + 128:
            raise LightNetError(f"'{path}' is too large: more than {MAX_FILE} bytes")
        check_text(text, path)
        for mark, most in _MAX_COUNTS.items():
            if text.count(mark) > most:
                raise LightNetError(f"'{path}' is too large: more than {most} times '{mark}'")
        self.text = self.without_comments(text) if "//" in text or "/*" in text else text

    def error(self, message: str, at: int) -> LightNetError:
        at = min(at, len(self.lines.text))
        return LightNetError(message, self.lines.loc(self.path, at), source_line=self.lines.line_at(at))

    def without_comments(self, text: str) -> str:
        """Comments replaced by blanks of the same length, so that every offset stays."""

        def blank(m: re.Match) -> str:
            if m[0] == "/*":
                raise self.error("unterminated comment", m.start())
            return m[0] if m[0][0] == '"' else re.sub(r"[^\n]", " ", m[0])

        return _COMMENT.sub(blank, text)

    def pairs(self, pairs: list[tuple[str, Any]]) -> dict:
        """An object's members; a key that stands twice is remembered, since the place is not known here."""
        members = dict(pairs)
        if len(members) != len(pairs) and not self.duplicate:
            seen: set[str] = set()
            self.duplicate = next(k for k, _ in pairs if k in seen or seen.add(k))
        return members

    # -- walking ------------------------------------------------------------------------------------------------------
    def skip(self, at: int) -> int:
        return _BLANK.match(self.text, at).end()

    def value(self, at: int) -> tuple[Any, int]:
        """Decode the value at `at`: it, and the offset after it."""
        try:
            value, end = self.scan(self.text, at)
        except StopIteration as e:
            raise self.unexpected(e.value) from None
        except json.JSONDecodeError as e:
            raise self.error(f"not valid JSON: {e.msg[0].lower()}{e.msg[1:]}", e.pos) from None
        except _Literal as e:
            raise self.error(f"{e.why}: {e.text[:40]}", self.find_literal(at, e.text)) from None
        except RecursionError:
            raise self.error(f"nested deeper than {MAX_DEPTH} levels", at) from None
        if self.duplicate:
            raise self.error(f'the key "{self.duplicate[:80]}" stands twice in one object', self.find_duplicate(at))
        return value, end

    def unexpected(self, at: int) -> LightNetError:
        if at >= len(self.text):
            return self.error("not valid JSON: the text ends too early", at)
        return self.error("not valid JSON: expected a value", at)

    def expect(self, at: int, marks: str, what: str) -> int:
        at = self.skip(at)
        if at >= len(self.text):
            raise self.unexpected(at)
        if self.text[at] not in marks:
            raise self.error(f"not valid JSON: expected {what}", at)
        return at

    def members(self) -> Iterator[tuple[str, int, list[int]]]:
        """The members of the top object: the key, the offset of the value, and a list that takes the offset
        after it."""
        at = self.skip(0)
        if self.text[at : at + 1] == "\ufeff":
            raise self.error("the text begins with a byte order mark", at)
        if self.text[at : at + 1] != "{":
            self.value(at)
            raise self.error("parse error: top object should have an 'ops' item", at)
        at = self.skip(at + 1)
        seen: set[str] = set()
        closed = self.text[at : at + 1] == "}"
        while not closed:
            at = self.expect(at, '"', "a key in quotes")
            key, end = self.value(at)
            if key in seen:
                raise self.error(f'the key "{key[:80]}" stands twice in one object', at)
            seen.add(key)
            after = [self.skip(self.expect(end, ":", "':'") + 1)]
            yield key, after[0], after
            at = self.expect(after[0], ",}", "',' or '}'")
            closed = self.text[at] == "}"
            at = self.skip(at + 1) if not closed else at
        at = self.skip(at + 1)
        if at < len(self.text):
            raise self.error("not valid JSON: more text after the end", at)

    def read(self) -> Netlist:
        ops: list[NetOp] | None = None
        words: dict[str, tuple[list[int], int]] = {}
        extra: dict = {}
        start = self.skip(0)
        for key, at, after in self.members():
            if key == "ops":
                ops, after[0] = self.ops(at)
                continue
            value, after[0] = self.value(at)
            if key in _TOP_KEYS:
                with_place = self.checked(lambda v=value, k=key: to_words(v, k), at)
                words[key] = with_place, at
            else:
                self.checked(lambda v=value: check_depth(v, MAX_DEPTH - 1), at)
                self.checked(lambda v=value, k=key: check_encodable({k: v}), at)
                extra[key] = value
        if ops is None:
            raise self.error("parse error: top object should have an 'ops' item", start)
        net = Netlist(ops, self.path, self.mem_sizes(words), self.lines.text.split("\n"), extra)
        return net

    def mem_sizes(self, words: dict[str, tuple[list[int], int]]) -> list[int] | None:
        """The sizes of the memory types from their two words."""
        if not words:
            return None
        if len(words) == 1:
            have, at = next(iter(words.items()))
            raise self.error(f"'{have}' needs its partner 'mem_sizes_{'l' if have.endswith('h') else 'h'}'", at[1])
        (high, _), (low, at) = words["mem_sizes_h"], words["mem_sizes_l"]
        if len(high) != len(low):
            raise self.error("'mem_sizes_h' and 'mem_sizes_l' should have the same length", at)
        return [self.checked(lambda h=h, l=l: join_words(h, l), at) for h, l in zip(high, low)]

    def ops(self, at: int) -> tuple[list[NetOp], int]:
        """The operators of the array at `at`, each with the place of its object."""
        if self.text[at : at + 1] != "[":
            self.value(at)
            raise self.error("parse error: item 'ops' has to be an Array", at)
        ops: list[NetOp] = []
        names: set[str] = set()
        at = self.skip(at + 1)
        if self.text[at : at + 1] == "]":
            return ops, at + 1
        while True:
            raw, end = self.value(at)
            if len(ops) >= MAX_OPS:
                raise self.error(f"the network has more than {MAX_OPS} operators", at)
            op = self.checked(lambda raw=raw: to_op(raw, len(ops), (), 2), at)
            self.locate(op, raw, at)
            if op.name in names:
                raise self.error(f"two operators are named '{op.name[:80]}'", at)
            names.add(op.name)
            ops.append(op)
            at = self.expect(end, ",]", "',' or ']'")
            if self.text[at] == "]":
                return ops, at + 1
            at = self.skip(at + 1)

    def locate(self, op: NetOp, raw: dict, at: int) -> None:
        """Give an operator, and those in its body, the places of their objects."""
        op.loc = self.lines.loc(self.path, at)
        if not op.body:
            return
        at = self.skip(self.find(at, ("body",)) + 1)
        for inner, raw_inner in zip(op.body, raw["body"]):
            self.locate(inner, raw_inner, at)
            _, at = self.scan(self.text, at)
            at = self.skip(self.skip(at) + 1)

    def checked(self, convert: Callable[[], Any], at: int) -> Any:
        """The result of a conversion; what it finds wrong becomes an error at its place in the value that
        begins at `at`."""
        try:
            return convert()
        except FormError as e:
            raise self.error(e.message, self.find(at, e.path)) from None

    # -- finding places, for errors only ------------------------------------------------------------------------------
    def find(self, at: int, path: Path) -> int:
        """The offset of the part of a (valid) value that a path names."""
        for step in path:
            if self.text[at] == "{":
                at = self.skip(at + 1)
                while self.text[at] != "}":
                    key, end = self.scan(self.text, at)
                    at = self.skip(self.skip(end) + 1)
                    if key == step:
                        break
                    at = self.after(at)
            else:
                at = self.skip(at + 1)
                for _ in range(int(step)):
                    at = self.after(at)
        return at

    def after(self, at: int) -> int:
        """The offset of what follows a value and its comma."""
        at = self.skip(self.scan(self.text, at)[1])
        return self.skip(at + 1) if self.text[at] == "," else at

    def find_literal(self, at: int, literal: str) -> int:
        return next((m.start() for m in _PIECE.finditer(self.text, at) if m[0] in (literal, "-" + literal)), at)

    def find_duplicate(self, at: int) -> int:
        """The second of two equal keys in the value at `at`."""
        open_: list[set[str]] = []
        last = at
        key = ""
        for m in _PIECE.finditer(self.text, at):
            if m[0] in "{[":
                open_.append(set())
            elif m[0] in "}]":
                open_.pop()
                if not open_:
                    break
            elif m[0] == ":":
                if key in open_[-1]:
                    return last
                open_[-1].add(key)
            elif m[0][0] == '"':
                last, key = m.start(), json.loads(m[0])
        return at


def _integer(text: str) -> int:
    if len(text) > 20 or not -(1 << 63) <= (value := int(text)) < 1 << 64:
        raise _Literal(text, "the number does not fit 64 bits")
    return value


def _real(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise _Literal(text, "the number is too large")
    return value


def _constant(text: str) -> NoReturn:
    raise _Literal(text, "not valid JSON")


# -- writing ----------------------------------------------------------------------------------------------------------
def write(netlist: Netlist) -> str:
    """The network as JSON in upstream's il2json form: three blanks a level, keys sorted, a newline at the end.

    `read(write(n))` is `n` but for locations. LightNetError for a number that JSON lacks (infinity, NaN).
    """
    top: dict[str, Any] = {k: v for k, v in netlist.extra.items() if k not in _TOP_KEYS}
    if netlist.mem_sizes is not None:
        top["mem_sizes_h"], top["mem_sizes_l"] = (
            map(list, zip(*map(_split, netlist.mem_sizes))) if netlist.mem_sizes else ([], [])
        )
    top["ops"] = [_op_json(op) for op in netlist.ops]
    try:
        return (
            json.dumps(top, indent=3, separators=(",", " : "), sort_keys=True, ensure_ascii=False, allow_nan=False)
            + "\n"
        )
    except ValueError:
        raise LightNetError("a parameter of the network is infinite or not a number, which JSON cannot say") from None


def _split(size: int) -> tuple[int, int]:
    """A number of bytes as signed 32-bit words, as upstream prints them."""
    low = size & 0xFFFFFFFF
    return size >> 32, low - (1 << 32) if low >= 1 << 31 else low


def _op_json(op: NetOp) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": op.name,
        "optype": op.optype,
        "tensors_in": [_tensor_json(t) for t in op.tensors_in],
        "tensors_out": [_tensor_json(t) for t in op.tensors_out],
        "params": [
            {"arg_name": p.arg, "value": list(p.value) if isinstance(p.value, tuple) else p.value} for p in op.params
        ],
    }
    if op.body is not None:
        entry["body"] = [_op_json(o) for o in op.body]
    return entry


def _tensor_json(tensor: NetTensor) -> dict[str, Any]:
    entry: dict[str, Any] = {"arg_name": tensor.arg, "name": tensor.name}
    if tensor.dims is not None:
        entry["dims"] = list(tensor.dims)
    if tensor.offset is not None:
        entry["offset_h"], entry["offset_l"] = _split(tensor.offset)
    return entry
