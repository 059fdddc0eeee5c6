"""Elements of tensors, as JSON or bytes have them, to arrays and back. Imports NumPy and the runtime.

JSON has no NaN and no infinities: they are the strings "NaN", "Infinity" and "-Infinity", as in Protocol Buffers' JSON,
of which the protocol's other form (gRPC) is made. Numbers are rounded to the tensor's type, integers must fit in it.
"""

from __future__ import annotations

import re
from itertools import chain, islice
from math import prod
from typing import Any

import numpy as np

from lightnet.runtime.dtypes import DType, is_stored, round_to, widened_array
from lightnet_serving.errors import RequestError, shown_value
from lightnet_serving.signature import TEXT, TensorSignature

#: Halves of surrogate pairs, which JSON may escape and no text has.
_SURROGATE = re.compile("[\ud800-\udfff]")
_SPECIAL = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
#: Types that the elements of JSON may have, by the kind of the tensor's type, and what an error calls them.
_TYPES = {"float": {float, int}, "int": {int}, "uint": {int}, "bool": {bool}}
_CALLED = {"float": "numbers", "int": "integers", "uint": "integers", "bool": "true or false"}


def array_of(tensor: TensorSignature, dims: tuple[int, ...], data: Any) -> np.ndarray:
    """The array of a JSON list, flat in row-major order or nested like the shape `dims`. Raises `RequestError`."""
    where = f"'data' of input '{tensor.name}'"
    flat = _flat(data, dims, where)
    count = prod(dims)
    if len(flat) != count:
        raise RequestError(f"{where} should have {count} elements, as shape {list(dims)} says, and has {len(flat)}")
    if tensor.dtype is None:
        return _texts(flat, where).reshape(dims)
    kind, types = tensor.dtype.kind, set(map(type, flat))
    if kind == "float" and str in types:
        flat = [_SPECIAL.get(v, v) if type(v) is str else v for v in flat]
        types = set(map(type, flat))
    if wrong := types - _TYPES[kind]:
        k = next(k for k, v in enumerate(flat) if type(v) in wrong)
        raise RequestError(
            f"{where} should be {_CALLED[kind]} ({tensor.datatype}), and element {k} is {shown_value(flat[k])}"
        )
    made = _floats if kind == "float" else _integers
    return made(tensor.dtype, tensor.datatype, flat, where).reshape(dims)


def _flat(data: Any, dims: tuple[int, ...], where: str) -> list[Any]:
    """The elements of a list that is flat, or nested like the shape."""
    if not isinstance(data, list):
        raise RequestError(f"{where} should be a list, and is {shown_value(data)}")
    if not any(isinstance(item, list) for item in data):
        return data
    level: list[Any] = data
    for axis, size in enumerate(dims):
        if axis:
            if wrong := [r for r in level if not isinstance(r, list)]:
                raise RequestError(
                    f"{where} should be nested like shape {list(dims)}, and has {shown_value(wrong[0])} at depth {axis}"
                )
            if lengths := {len(row) for row in level} - {size}:
                raise RequestError(
                    f"{where} should have lists of {size} at depth {axis}, as shape {list(dims)} says, and has one of "
                    f"{min(lengths)}"
                )
            level = list(chain.from_iterable(level))
        elif len(level) != size:
            raise RequestError(f"{where} should have {size} rows, as shape {list(dims)} says, and has {len(level)}")
    return level


def _texts(flat: list[Any], where: str) -> np.ndarray:
    if (k := next((k for k, v in enumerate(flat) if type(v) is not str), None)) is not None:
        raise RequestError(f"{where} should be strings ({TEXT}), and element {k} is {shown_value(flat[k])}")
    if (k := next((k for k, v in enumerate(flat) if not v.isascii() and _SURROGATE.search(v)), None)) is not None:
        raise RequestError(f"element {k} of {where} is not text: it has half of a surrogate pair")
    found = np.empty(len(flat), object)
    found[:] = flat
    return found


def _floats(dtype: DType, called: str, flat: list[Any], where: str) -> np.ndarray:
    try:
        source = np.array(flat, np.float64)
    except OverflowError:
        k = next(k for k, v in enumerate(flat) if type(v) is int and v.bit_length() > 1000)
        raise RequestError(f"{where}: element {k} is beyond the range of {called}") from None
    result = round_to(source, dtype)
    if (beyond := np.isinf(widened_array(result)) & np.isfinite(source)).any():
        k = int(beyond.argmax())
        raise RequestError(f"{where}: element {k}, {source[k]}, is beyond the range of {called}")
    return result


def _integers(dtype: DType, called: str, flat: list[Any], where: str) -> np.ndarray:
    try:
        return np.array(flat, dtype.np)
    except OverflowError:
        low, high = dtype.limits
        k = next(k for k, v in enumerate(flat) if not low <= v <= high)
        raise RequestError(f"{where}: element {k}, {shown_value(flat[k])}, is beyond the range of {called}") from None


def raw_bytes(tensor: TensorSignature, dims: tuple[int, ...], raw: memoryview, said: int | None = None) -> np.ndarray:
    """The array of an input's bytes; `said` is how many there should be by what the request says. Raises
    `RequestError`."""
    where = f"input '{tensor.name}'"
    if tensor.dtype is None:
        if said is not None and said != len(raw):
            raise RequestError(f"the body ends within the bytes of {where}: {len(raw)} of {said} are there")
        return _texts(_strings(bytes(raw), prod(dims), where), where).reshape(dims)
    size = prod(dims) * tensor.dtype.size
    if (len(raw) if said is None else said) != size:
        raise RequestError(
            f"{where} of {tensor.datatype}{list(dims)} takes {size} bytes, but gets "
            f"{len(raw) if said is None else said}"
        )
    if len(raw) != size:
        raise RequestError(f"the body ends within the bytes of {where}: {len(raw)} of {size} are there")
    if tensor.dtype.kind == "bool" and (np.frombuffer(raw, np.uint8) > 1).any():
        raise RequestError(f"{where} of BOOL takes bytes of 0 or 1, but gets others")
    array = np.frombuffer(raw, tensor.dtype.np).reshape(dims)
    return array if array.flags.aligned else array.copy()


def _strings(raw: bytes, count: int, where: str) -> list[str]:
    """So many strings, each behind the number of its bytes. Raises `RequestError`."""
    found, position = [], 0
    for k in range(count):
        start = position + 4
        position = start + int.from_bytes(raw[start - 4 : start], "little")
        if start > len(raw) or position > len(raw):
            raise RequestError(f"the {len(raw)} bytes of {where} end within element {k} of {count}")
        found.append(_decoded(raw[start:position], f"element {k} of {where}"))
    if position != len(raw):
        raise RequestError(f"the {count} elements of {where} take {position} bytes, but there are {len(raw)}")
    return found


def _decoded(raw: bytes, where: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as e:
        raise RequestError(f"{where} is not in UTF-8: {e.reason} at byte {e.start}") from None


def whole_text(raw: memoryview, where: str) -> str:
    """The one text that a body is. Raises `RequestError`."""
    return _decoded(bytes(raw), where)


def payload_size(array: np.ndarray) -> int:
    """Roughly the bytes of an array; of text, its characters and what each element takes beside them."""
    if not array.dtype.hasobject:
        return array.nbytes
    return array.nbytes + sum(map(len, islice(array.flat, 4096)))  # more elements than that are large anyway


def raw_of(array: np.ndarray) -> bytes:
    """The elements of an array as bytes."""
    if not array.dtype.hasobject:
        return array.tobytes()
    texts = [str(v).encode(errors="replace") for v in array.reshape(-1)]
    return b"".join(part for text in texts for part in (len(text).to_bytes(4, "little"), text))


def values_of(tensor: TensorSignature, array: np.ndarray) -> list[Any]:
    """The elements of an array for JSON, flat."""
    array = array.reshape(-1)
    if tensor.dtype is None:
        return [str(v) for v in array]
    array = array.view(np.uint8) if is_stored(array.dtype) else widened_array(array)
    values = array.tolist()
    if tensor.dtype.is_float and not (finite := np.isfinite(array)).all():
        for k in np.flatnonzero(~finite):
            values[k] = "NaN" if values[k] != values[k] else "Infinity" if values[k] > 0 else "-Infinity"
    return values
