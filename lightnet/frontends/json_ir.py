"""JSON IR, both ways: text to `Netlist` and back, for plain networks, planned ones and kernel regions.

    network := {"ops": [op], "mem_sizes_h": [int], "mem_sizes_l": [int], ...}
    op      := {"name": string, "optype": string, "tensors_in": [tensor], "tensors_out": [tensor], "params": [param], "body": [op]}
    tensor  := {"arg_name": string, "name": string, "dims": [int], "offset_h": int, "offset_l": int}
    param   := {"arg_name": string, "value": null | string | number | bool | [string] | [number] | [bool]}

`body`, `dims`, the offsets and the memory sizes are optional: a kernel region has the first, a planned network the others. A `_h`/`_l` pair is the
high and the low 32-bit word of one number of bytes. Other keys are ignored, but those of the top level are kept (`Netlist.extra`). Comments
(`//` and `/* */`) are taken; trailing commas, duplicate keys, NaN and Infinity are not.

The top level is walked by hand and each operator is decoded by the standard library's C scanner, so that memory holds one raw operator at a time.
Imports the standard library, the netlist, `source` and diagnostics only.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.frontends.netlist import Netlist, NetOp, NetParam, NetTensor, ParamValue
from lightnet.frontends.source import STDIN_NAME, Lines, check_text, read_text

MAX_FILE = 1 << 26  # bytes, of the file and of the text in memory
MAX_DEPTH = 100
MAX_OPS = 250_000
MAX_DIMS = 64
# What a text within MAX_FILE may hold, so that even one odd operator decodes in a few seconds to a few hundred MB.
_MAX_COUNTS = {"{": 4_000_000, "[": 4_000_000, '"': 20_000_000, ",": 8_000_000, ":": 4_000_000, "//": 1_000_000, "/*": 1_000_000}

_BLANK = re.compile(r"[ \t\r\n]*")
_COMMENT = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|//[^\n]*|/\*.*?\*/|/\*', re.DOTALL)
_PIECE = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.DOTALL)
_TOP_KEYS = ("ops", "mem_sizes_h", "mem_sizes_l")
_OP_KEYS = frozenset(("name", "optype", "tensors_in", "tensors_out", "params", "body"))
_TENSOR_KEYS = frozenset(("arg_name", "name", "dims", "offset_h", "offset_l"))
_PARAM_KEYS = frozenset(("arg_name", "value"))
_HOMOGENEOUS = ({int}, {float}, {int, float}, {str}, {bool})
_KINDS = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number", type(None): "null"}

#: A place in a decoded value: keys and indices from the value that was decoded.
Path = tuple[str | int, ...]


class _Form(Exception):
    """Something in a decoded value does not have the form it should: what, and where."""

    def __init__(self, message: str, path: Path = ()):
        super().__init__(message)
        self.message = message
        self.path = path


class _Literal(Exception):
    """A literal that the scanner may not take: its text and why."""

    def __init__(self, text: str, why: str):
        super().__init__(why)
        self.text = text
        self.why = why


def read(text: str, path: str) -> Netlist:
    """The network in `text`, which was read from `path` ("-" for standard input).

    Raises LightNetError with a place for anything that is no JSON, has not the form above, or exceeds the limits (size, depth 100, 64-bit
    integers). Whether the network makes sense (tensors defined before use, known operators) is not checked here.
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
            raise self.error(f"the key \"{self.duplicate[:80]}\" stands twice in one object", self.find_duplicate(at))
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
        """The members of the top object: the key, the offset of the value, and a list that takes the offset after it."""
        at = self.skip(0)
        if self.text[at : at + 1] == "\ufeff":
            raise self.error("the text begins with a byte order mark", at)
        if self.text[at : at + 1] != "{":
            if at < len(self.text):
                self.value(at)
            raise self.error("parse error: top object should have an 'ops' item", at)
        at = self.skip(at + 1)
        seen: set[str] = set()
        closed = self.text[at : at + 1] == "}"
        while not closed:
            at = self.expect(at, '"', "a key in quotes")
            key, end = self.value(at)
            if key in seen:
                raise self.error(f"the key \"{key[:80]}\" stands twice in one object", at)
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
                with_place = self.checked(lambda v=value, k=key: _words(v, k), at)
                words[key] = with_place, at
            else:
                self.checked(lambda v=value: _check_depth(v, MAX_DEPTH - 1), at)
                self.checked(lambda v=value, k=key: _check_encodable({k: v}), at)
                extra[key] = value
        if ops is None:
            raise self.error("parse error: top object should have an 'ops' item", start)
        net = Netlist(ops, self.path, self.mem_sizes(words), self.lines.text.splitlines(), extra)
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
        return [self.checked(lambda h=h, l=l: _join(h, l), at) for h, l in zip(high, low)]

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
            op = self.checked(lambda raw=raw: _op(raw, len(ops), (), 2), at)
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
        """The result of a conversion; what it finds wrong becomes an error at its place in the value that begins at `at`."""
        try:
            return convert()
        except _Form as e:
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


# -- the form ---------------------------------------------------------------------------------------------------------
def _op(raw: Any, index: int, path: Path, depth: int) -> NetOp:
    """An operator from its decoded object."""
    if type(raw) is not dict:
        raise _Form(f"parse error: op {index} should be an object, not {_KINDS[type(raw)]}", path)
    who = f"op {index}"
    name = _string(raw, "name", who, path)
    who = f"op '{name[:80]}'"
    optype = _string(raw, "optype", who, path)
    inputs = [_tensor(t, who, (*path, "tensors_in", i), depth) for i, t in enumerate(_array(raw, "tensors_in", who, path))]
    outputs = [_tensor(t, who, (*path, "tensors_out", i), depth) for i, t in enumerate(_array(raw, "tensors_out", who, path))]
    params = [_param(p, who, (*path, "params", i), depth) for i, p in enumerate(_array(raw, "params", who, path))]
    body = None
    if "body" in raw:
        if depth + 2 > MAX_DEPTH:
            raise _Form(f"nested deeper than {MAX_DEPTH} levels", path)
        entries = _array(raw, "body", who, path)
        body = [_op(o, i, (*path, "body", i), depth + 2) for i, o in enumerate(entries)]
        if len({o.name for o in body}) != len(body):
            raise _Form(f"two operators in the body of {who} have the same name", (*path, "body"))
    if raw.keys() - _OP_KEYS:
        _check_unknown(raw, _OP_KEYS, depth)
    if len({x.arg for x in (*inputs, *outputs, *params)}) != len(inputs) + len(outputs) + len(params):
        raise _duplicate_arg(inputs, outputs, params, who, path)
    return NetOp(name, optype, inputs, outputs, params, SourceLoc(""), body)


def _duplicate_arg(inputs: list, outputs: list, params: list, who: str, path: Path) -> _Form:
    seen: set[str] = set()
    for key, items in (("tensors_in", inputs), ("tensors_out", outputs), ("params", params)):
        for i, item in enumerate(items):
            if item.arg in seen:
                return _Form(f"{who} has two arguments '{item.arg[:80]}'", (*path, key, i, "arg_name"))
            seen.add(item.arg)
    raise AssertionError("no duplicate argument")


def _tensor(raw: Any, who: str, path: Path, depth: int) -> NetTensor:
    if type(raw) is not dict:
        raise _Form(f"parse error: an entry of '{path[-2]}' of {who} should be an object, not {_KINDS[type(raw)]}", path)
    who = f"a tensor of {who}"
    tensor = NetTensor(_string(raw, "arg_name", who, path), _string(raw, "name", who, path))
    if len(raw) > 2:
        if "dims" in raw:
            tensor.dims = _dims(raw["dims"], tensor.name, (*path, "dims"))
        if "offset_h" in raw or "offset_l" in raw:
            tensor.offset = _offset(raw, tensor.name, path)
        if raw.keys() - _TENSOR_KEYS:
            _check_unknown(raw, _TENSOR_KEYS, depth + 2, path)
    return tensor


def _param(raw: Any, who: str, path: Path, depth: int) -> NetParam:
    if type(raw) is not dict:
        raise _Form(f"parse error: an entry of 'params' of {who} should be an object, not {_KINDS[type(raw)]}", path)
    arg = _string(raw, "arg_name", f"a param of {who}", path)
    if "value" not in raw:
        raise _Form(f"parse error: param '{arg[:80]}' of {who} doesn't have a \"value\" key", path)
    if len(raw) > 2:
        _check_unknown(raw, _PARAM_KEYS, depth + 2, path)
    return NetParam(arg, _value(raw["value"], f"param '{arg[:80]}' of {who}", (*path, "value")))


def _value(raw: Any, who: str, path: Path) -> ParamValue:
    if type(raw) is list:
        kinds = set(map(type, raw))
        if kinds not in _HOMOGENEOUS:
            raise _bad_array(raw, kinds, who, path)
        if kinds == {str}:
            for i, text in enumerate(raw):
                _check_string(text, who, (*path, i))
        return tuple(raw)
    if type(raw) is dict:
        raise _Form(f"parse error: the value of {who} may not be an object", path)
    if type(raw) is str:
        _check_string(raw, who, path)
    return raw


def _bad_array(raw: list, kinds: set[type], who: str, path: Path) -> _Form:
    if not raw:
        return _Form(f"parse error: the array of {who} is empty", path)
    for i, element in enumerate(raw):
        if type(element) in (dict, list, type(None)):
            return _Form(f"parse error: the array of {who} may not hold {_KINDS[type(element)]}", (*path, i))
    return _Form(f"parse error: the array of {who} should hold numbers, strings or booleans, not a mixture", path)


def _string(raw: dict, key: str, who: str, path: Path) -> str:
    value = raw.get(key)
    if value is None and key not in raw:
        raise _Form(f"parse error: {who} doesn't have a \"{key}\" key", path)
    if type(value) is not str:
        raise _Form(f"parse error: \"{key}\" of {who} should be a string, not {_KINDS[type(value)]}", (*path, key))
    if not value or not value.isprintable():
        raise _Form(f"parse error: \"{key}\" of {who} is empty or holds characters that cannot be printed", (*path, key))
    return value


def _check_string(text: str, who: str, path: Path) -> None:
    """A JSON escape can spell a NUL or half a surrogate pair: no file could hold them again."""
    if "\0" in text:
        raise _Form(f"the string of {who} holds a NUL character", path)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise _Form(f"the string of {who} holds a lone surrogate", path) from None


def _array(raw: dict, key: str, who: str, path: Path) -> list:
    value = raw.get(key)
    if type(value) is not list:
        if key not in raw:
            raise _Form(f"parse error: {who} doesn't have a \"{key}\" key", path)
        raise _Form(f"parse error: \"{key}\" of {who} should be an array, not {_KINDS[type(value)]}", (*path, key))
    return value


def _dims(raw: Any, name: str, path: Path) -> tuple[int, ...]:
    if type(raw) is not list or len(raw) > MAX_DIMS or not all(type(d) is int and 0 <= d < 1 << 63 for d in raw):
        raise _Form(f"parse error: 'dims' of tensor '{name[:80]}' should be an array of at most {MAX_DIMS} sizes", path)
    return tuple(raw)


def _words(raw: Any, key: str) -> list[int]:
    if type(raw) is not list or len(raw) > MAX_DIMS or not all(map(_is_word, raw)):
        raise _Form(f"parse error: '{key}' should be an array of 32-bit integers")
    return raw


def _is_word(x: Any) -> bool:
    """Whether x is a 32-bit integer, signed (as upstream prints the low word) or unsigned."""
    return type(x) is int and -(1 << 31) <= x < 1 << 32


def _join(high: int, low: int) -> int:
    if high < 0 or high >= 1 << 31:
        raise _Form("a size or offset may not be negative")
    return high << 32 | (low & 0xFFFFFFFF)


def _offset(raw: dict, name: str, path: Path) -> int:
    high, low = raw.get("offset_h"), raw.get("offset_l")
    if not _is_word(high) or not _is_word(low):
        raise _Form(f"parse error: tensor '{name[:80]}' needs 'offset_h' and 'offset_l', two 32-bit integers", path)
    try:
        return _join(high, low)
    except _Form as e:
        raise _Form(e.message, (*path, "offset_h")) from None


def _check_unknown(raw: dict, known: frozenset[str], depth: int, path: Path = ()) -> None:
    """Unknown keys are ignored, but their values have to keep the limit on nesting too."""
    for key in raw.keys() - known:
        try:
            _check_depth(raw[key], MAX_DEPTH - depth)
        except _Form as e:
            raise _Form(e.message, (*path, key)) from None


def _check_depth(value: Any, left: int) -> None:
    level = [value]
    while level := [v for v in level if type(v) in (dict, list)]:
        if left <= 0:
            raise _Form(f"nested deeper than {MAX_DEPTH} levels")
        left -= 1
        level = [inner for v in level for inner in (v.values() if type(v) is dict else v)]


def _check_encodable(value: Any) -> None:
    """What is kept has to be writable again."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise _Form("a string holds a lone surrogate") from None


# -- writing ----------------------------------------------------------------------------------------------------------
def write(netlist: Netlist) -> str:
    """The network as JSON in upstream's il2json form: three blanks a level, keys sorted, a newline at the end.

    `read(write(n))` is `n` but for locations. LightNetError for a number that JSON lacks (infinity, NaN).
    """
    top: dict[str, Any] = {k: v for k, v in netlist.extra.items() if k not in _TOP_KEYS}
    if netlist.mem_sizes is not None:
        top["mem_sizes_h"], top["mem_sizes_l"] = map(list, zip(*map(_split, netlist.mem_sizes))) if netlist.mem_sizes else ([], [])
    top["ops"] = [_op_json(op) for op in netlist.ops]
    try:
        return json.dumps(top, indent=3, separators=(",", " : "), sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
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
        "params": [{"arg_name": p.arg, "value": list(p.value) if isinstance(p.value, tuple) else p.value} for p in op.params],
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
