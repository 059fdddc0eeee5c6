"""The form of JSON IR: decoded objects as operators, tensors and parameters, each refused with its path when it is not
well formed.

The grammar stands in `json_ir`, which knows the text and turns a path into a place. Imports the netlist,
`json_text` and diagnostics only.
"""

from __future__ import annotations

import json
from typing import Any

from lightnet.diagnostics import SourceLoc
from lightnet.frontends.netlist import OPEN_SIZE, NetOp, NetParam, NetTensor, ParamValue
from lightnet.json_text import MAX_DEPTH, FormError, Path, json_kind

MAX_DIMS = 64

_OP_KEYS = frozenset(("name", "optype", "tensors_in", "tensors_out", "params", "body"))
_TENSOR_KEYS = frozenset(("arg_name", "name", "dims", "offset_h", "offset_l", "layout"))
_PARAM_KEYS = frozenset(("arg_name", "value"))
_HOMOGENEOUS = ({int}, {float}, {int, float}, {str}, {bool})


def to_op(raw: Any, index: int, path: Path, depth: int) -> NetOp:
    """An operator from its decoded object."""
    if type(raw) is not dict:
        raise FormError(f"parse error: op {index} should be an object, not {json_kind(raw)}", path)
    if depth + 8 > MAX_DEPTH:  # an op far inside of bodies: its tensors may be too deep
        _check_unknown(raw, frozenset(("body",)), depth, path)
    who = f"op {index}"
    name = _string(raw, "name", who, path)
    who = f"op '{name[:80]}'"
    optype = _string(raw, "optype", who, path)
    inputs = [
        _tensor(t, who, (*path, "tensors_in", i), depth) for i, t in enumerate(_array(raw, "tensors_in", who, path))
    ]
    outputs = [
        _tensor(t, who, (*path, "tensors_out", i), depth) for i, t in enumerate(_array(raw, "tensors_out", who, path))
    ]
    params = [_param(p, who, (*path, "params", i), depth) for i, p in enumerate(_array(raw, "params", who, path))]
    body = None
    if "body" in raw:
        if depth + 2 > MAX_DEPTH:
            raise FormError(f"nested deeper than {MAX_DEPTH} levels", path)
        entries = _array(raw, "body", who, path)
        body = [to_op(o, i, (*path, "body", i), depth + 2) for i, o in enumerate(entries)]
        if len({o.name for o in body}) != len(body):
            raise FormError(f"two operators in the body of {who} have the same name", (*path, "body"))
    if raw.keys() - _OP_KEYS:
        _check_unknown(raw, _OP_KEYS, depth)
    if len({x.arg for x in (*inputs, *outputs, *params)}) != len(inputs) + len(outputs) + len(params):
        raise _duplicate_arg(inputs, outputs, params, who, path)
    return NetOp(name, optype, inputs, outputs, params, SourceLoc(""), body)


def _duplicate_arg(inputs: list, outputs: list, params: list, who: str, path: Path) -> FormError:
    seen: set[str] = set()
    for key, items in (("tensors_in", inputs), ("tensors_out", outputs), ("params", params)):
        for i, item in enumerate(items):
            if item.arg in seen:
                return FormError(f"{who} has two arguments '{item.arg[:80]}'", (*path, key, i, "arg_name"))
            seen.add(item.arg)
    raise AssertionError("no duplicate argument")


def _tensor(raw: Any, who: str, path: Path, depth: int) -> NetTensor:
    if type(raw) is not dict:
        raise FormError(
            f"parse error: an entry of '{path[-2]}' of {who} should be an object, not {json_kind(raw)}", path
        )
    who = f"a tensor of {who}"
    tensor = NetTensor(_string(raw, "arg_name", who, path), _string(raw, "name", who, path))
    if len(raw) > 2:
        if "dims" in raw:
            tensor.dims = _dims(raw["dims"], tensor.name, (*path, "dims"))
        if "layout" in raw:
            tensor.layout = _string(raw, "layout", who, path)
        if "offset_h" in raw or "offset_l" in raw:
            tensor.offset = _offset(raw, tensor.name, path)
        if raw.keys() - _TENSOR_KEYS:
            _check_unknown(raw, _TENSOR_KEYS, depth + 2, path)
    return tensor


def _param(raw: Any, who: str, path: Path, depth: int) -> NetParam:
    if type(raw) is not dict:
        raise FormError(f"parse error: an entry of 'params' of {who} should be an object, not {json_kind(raw)}", path)
    arg = _string(raw, "arg_name", f"a param of {who}", path)
    if "value" not in raw:
        raise FormError(f"parse error: param '{arg[:80]}' of {who} doesn't have a \"value\" key", path)
    if len(raw) > 2:
        _check_unknown(raw, _PARAM_KEYS, depth + 2, path)
    return NetParam(arg, _value(raw["value"], f"param '{arg[:80]}' of {who}", (*path, "value")))


def _value(raw: Any, who: str, path: Path) -> ParamValue:
    if type(raw) is list:
        kinds = set(map(type, raw))
        sizes = kinds == {int, str} and all(type(v) is int or v.startswith(OPEN_SIZE) for v in raw)
        if kinds not in _HOMOGENEOUS and not sizes:
            raise _bad_array(raw, kinds, who, path)
        if str in kinds:
            for i, text in enumerate(v if type(v) is str else "" for v in raw):
                _check_string(text, who, (*path, i))
        return tuple(raw)
    if type(raw) is dict:
        raise FormError(f"parse error: the value of {who} may not be an object", path)
    if type(raw) is str:
        _check_string(raw, who, path)
    return raw


def _bad_array(raw: list, kinds: set[type], who: str, path: Path) -> FormError:
    if not raw:
        return FormError(f"parse error: the array of {who} is empty", path)
    for i, element in enumerate(raw):
        if type(element) in (dict, list, type(None)):
            return FormError(f"parse error: the array of {who} may not hold {json_kind(element)}", (*path, i))
    return FormError(f"parse error: the array of {who} should hold numbers, strings or booleans, not a mixture", path)


def _string(raw: dict, key: str, who: str, path: Path) -> str:
    value = raw.get(key)
    if value is None and key not in raw:
        raise FormError(f'parse error: {who} doesn\'t have a "{key}" key', path)
    if type(value) is not str:
        raise FormError(f'parse error: "{key}" of {who} should be a string, not {json_kind(value)}', (*path, key))
    if not value or not value.isprintable():
        raise FormError(
            f'parse error: "{key}" of {who} is empty or holds characters that cannot be printed', (*path, key)
        )
    return value


def _check_string(text: str, who: str, path: Path) -> None:
    """A JSON escape can spell a NUL or half a surrogate pair: no file could hold them again."""
    if "\0" in text:
        raise FormError(f"the string of {who} holds a NUL character", path)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise FormError(f"the string of {who} holds a lone surrogate", path) from None


def _array(raw: dict, key: str, who: str, path: Path) -> list:
    value = raw.get(key)
    if type(value) is not list:
        if key not in raw:
            raise FormError(f'parse error: {who} doesn\'t have a "{key}" key', path)
        raise FormError(f'parse error: "{key}" of {who} should be an array, not {json_kind(value)}', (*path, key))
    return value


def _dims(raw: Any, name: str, path: Path) -> tuple[int, ...]:
    if type(raw) is not list or len(raw) > MAX_DIMS or not all(type(d) is int and 0 <= d < 1 << 63 for d in raw):
        raise FormError(
            f"parse error: 'dims' of tensor '{name[:80]}' should be an array of at most {MAX_DIMS} sizes", path
        )
    return tuple(raw)


def to_words(raw: Any, key: str) -> list[int]:
    if type(raw) is not list or len(raw) > MAX_DIMS or not all(map(_is_word, raw)):
        raise FormError(f"parse error: '{key}' should be an array of 32-bit integers")
    return raw


def _is_word(x: Any) -> bool:
    """Return whether x is a 32-bit integer, signed (as upstream prints the low word) or unsigned."""
    return type(x) is int and -(1 << 31) <= x < 1 << 32


def join_words(high: int, low: int) -> int:
    if high < 0 or high >= 1 << 31:
        raise FormError("a size or offset may not be negative")
    return high << 32 | (low & 0xFFFFFFFF)


def _offset(raw: dict, name: str, path: Path) -> int:
    high, low = raw.get("offset_h"), raw.get("offset_l")
    if not _is_word(high) or not _is_word(low):
        raise FormError(f"parse error: tensor '{name[:80]}' needs 'offset_h' and 'offset_l', two 32-bit integers", path)
    try:
        return join_words(high, low)
    except FormError as e:
        raise FormError(e.message, (*path, "offset_h")) from None


def _check_unknown(raw: dict, known: frozenset[str], depth: int, path: Path = ()) -> None:
    """Unknown keys are ignored, but their values have to keep the limit on nesting too."""
    for key in raw.keys() - known:
        try:
            check_depth(raw[key], MAX_DEPTH - depth)
        except FormError as e:
            raise FormError(e.message, (*path, key)) from None


def check_depth(value: Any, left: int) -> None:
    level = [value]
    while level := [v for v in level if type(v) in (dict, list)]:
        if left <= 0:
            raise FormError(f"nested deeper than {MAX_DEPTH} levels")
        left -= 1
        level = [inner for v in level for inner in (v.values() if type(v) is dict else v)]


def check_encodable(value: Any) -> None:
    """Check that what is kept can be written again."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise FormError("a string holds a lone surrogate") from None
