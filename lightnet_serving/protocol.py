"""Requests and replies of the Open Inference Protocol v2 (KServe v2) over HTTP, with its extension of binary tensors:
bytes to arrays and back.

Pure functions: no server, no state. A body is JSON; with the header ``Inference-Header-Content-Length`` that many bytes
are, and the bytes of tensors follow, little-endian and row-major, in the order of the inputs that have the parameter
``binary_data_size``. Imports NumPy and the runtime.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import near
from lightnet_serving.elements import array_of, raw_bytes, raw_of, values_of, whole_text
from lightnet_serving.errors import RequestError, shown_value
from lightnet_serving.signature import Signature, TensorSignature

#: The header that says how many bytes of a body are JSON.
HEADER = "Inference-Header-Content-Length"
BINARY_TYPE, JSON_TYPE = "application/octet-stream", "application/json"
#: Parameters that change what a tensor means, and that this server has not: to leave them out would answer something
#: else.
_REFUSED = ("classification", "shared_memory_region", "shared_memory_offset", "shared_memory_byte_size")


#: Elements of an input whose dims the call decides; dims of a shape with a 0 make no more, either.
MAX_ELEMENTS = 1 << 26


@dataclass(frozen=True)
class Wanted:
    """An output of a reply, and whether its elements are sent as bytes."""

    tensor: TensorSignature
    binary: bool


@dataclass(frozen=True)
class InferenceRequest:
    """A request: arrays by input name, the outputs of the reply, how many rows (0 where shapes are fixed), and the
    caller's id."""

    feeds: dict[str, np.ndarray]
    wanted: Sequence[Wanted]
    rows: int = 0
    id: str | None = None


def read_request(body: bytes | bytearray, header: str | None, signature: Signature) -> InferenceRequest:
    """The request in a body; `header` is the value of `HEADER`, None where it is not sent.

    A header of 0 means that the whole body is the bytes of the only input. Raises `RequestError` (400) which names what
    is wrong, what is expected and what came instead.
    """
    length = _header_length(header, len(body))
    if length == 0 and header is not None:
        return _raw(body, signature)
    if length > signature.json_limit:
        raise RequestError(f"the JSON of a request may have {signature.json_limit} bytes here, and has {length}", 413)
    top = _parsed(body[:length])
    binary = memoryview(body)[length:]
    binary_output = _flag(_parameters(top, "the request"), "binary_data_output", "the request")
    feeds, used = _feeds(top, binary, signature)
    if used != len(binary):
        raise RequestError(f"{len(binary)} bytes follow the JSON, and the inputs' 'binary_data_size' make {used}")
    rows = _rows(feeds, signature)
    number = top.get("id")
    if number is not None and not isinstance(number, str):
        raise RequestError(f"'id' should be a string, and is {shown_value(number)}")
    return InferenceRequest(feeds, _wanted(top, signature, binary_output), rows, number)


def _header_length(header: str | None, size: int) -> int:
    if header is None:
        return size
    if not header.isascii() or not header.isdigit() or len(header) > 18:
        raise RequestError(f"the header {HEADER} should be a number of bytes, and is {shown_value(header)}")
    if int(header) > size:
        raise RequestError(f"the header {HEADER} says {int(header)} bytes, and the body has {size}")
    return int(header)


def _parsed(text: bytes | bytearray) -> dict[str, Any]:
    try:
        top = json.loads(text)
    except RecursionError:
        raise RequestError("the body is no JSON that can be read: it is nested too deeply") from None
    except ValueError as e:  # also what is no UTF-8, and integers of thousands of digits
        raise RequestError(f"the body is no JSON: {e!s:.200}") from None
    if not isinstance(top, dict):
        raise RequestError(f"the body should be a JSON object, and is {shown_value(top)}")
    return top


def _raw(body: bytes | bytearray, signature: Signature) -> InferenceRequest:
    """A body that is the bytes of the only input."""
    if len(signature.inputs) != 1:
        raise RequestError(f"a body without JSON is for models of one input, and this one has {len(signature.inputs)}")
    (tensor,) = signature.inputs.values()
    dims = tensor.dims
    if tensor.dtype is None or min(dims, default=0) < 0:
        return _raw_text(body, tensor, signature)
    if signature.rows:
        row = tensor.count // tensor.dims[0] * tensor.dtype.size
        dims = (len(body) // row if row else 0, *dims[1:])
        _check_shape(tensor, dims, signature)
    feeds = {tensor.name: raw_bytes(tensor, dims, memoryview(body))}
    return InferenceRequest(
        feeds,
        [Wanted(t, True) for t in signature.outputs.values()],
        feeds[tensor.name].shape[0] if signature.rows else 0,
    )


def _raw_text(body: bytes | bytearray, tensor: TensorSignature, signature: Signature) -> InferenceRequest:
    """A body that is one text, without its length: no more can be said without JSON where sizes are open."""
    dims = tuple(1 if d < 0 else d for d in signature.shape(tensor))
    if tensor.dtype is not None or prod(dims) != 1:
        raise RequestError(
            f"a body without JSON has no shape, and input '{tensor.name}' is {tensor.datatype}{signature.shape(tensor)}"
        )
    array = np.array(whole_text(memoryview(body), f"input '{tensor.name}'"), object).reshape(dims)
    return InferenceRequest(
        {tensor.name: array}, [Wanted(t, True) for t in signature.outputs.values()], 1 if signature.rows else 0
    )


# -- inputs


def _feeds(top: Mapping[str, Any], binary: memoryview, signature: Signature) -> tuple[dict[str, np.ndarray], int]:
    """The inputs' arrays, and how many of the bytes behind the JSON are theirs."""
    inputs = top.get("inputs")
    if not isinstance(inputs, list):
        raise RequestError(f"'inputs' should be a list of tensors, and {_is(top, 'inputs')}")
    feeds: dict[str, np.ndarray] = {}
    position = 0
    for k, item in enumerate(inputs):
        tensor = _named(item, f"inputs[{k}]", signature.inputs, "input")
        where = f"input '{tensor.name}'"
        if tensor.name in feeds:
            raise RequestError(f"{where} is there twice")
        dims = _shape(item, where)
        if item.get("datatype") != tensor.datatype:
            raise RequestError(f"{where} has datatype {tensor.datatype}, but {_gets(item, 'datatype')}")
        _check_shape(tensor, dims, signature)
        size = _parameters(item, where).get("binary_data_size")
        if size is None:
            if "data" not in item:
                raise RequestError(f"{where} has neither 'data' nor the parameter 'binary_data_size'")
            feeds[tensor.name] = array_of(tensor, dims, item["data"])
            continue
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise RequestError(f"'binary_data_size' of {where} should be a number of bytes, and is {shown_value(size)}")
        if "data" in item:
            raise RequestError(f"{where} has both 'data' and the parameter 'binary_data_size'")
        feeds[tensor.name] = raw_bytes(tensor, dims, binary[position : position + size], size)
        position += size
    if missing := [t for t in signature.inputs.values() if t.name in signature.required and t.name not in feeds]:
        names = ", ".join(f"'{t.name}' ({t.datatype}{signature.shape(t)})" for t in missing)
        raise RequestError(f"the model needs input{'s' * (len(missing) > 1)} {names}, which the request has not")
    return feeds, position


def _named(item: Any, where: str, known: Mapping[str, TensorSignature], what: str) -> TensorSignature:
    """The tensor of a JSON object that names it."""
    if not isinstance(item, dict):
        raise RequestError(f"'{where}' should be an object, and is {shown_value(item)}")
    name = item.get("name")
    if not isinstance(name, str):
        raise RequestError(f"'{where}.name' should be a string, and {_is(item, 'name')}")
    if name not in known:
        ending = near(name, known) or f"; there are: {', '.join(list(known)[:8]) or 'none'}"
        raise RequestError(f"the model has no {what} {shown_value(name)}{ending}")
    return known[name]


def _shape(item: Mapping[str, Any], where: str) -> tuple[int, ...]:
    shape = item.get("shape")
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise RequestError(
            f"'shape' of {where} should be a list of integers that are not negative, and {_is(item, 'shape')}"
        )
    return tuple(shape)


def _check_shape(tensor: TensorSignature, dims: tuple[int, ...], signature: Signature) -> None:
    want = signature.shape(tensor)
    fits = len(dims) == len(want) and all(w in (-1, n) for w, n in zip(want, dims))
    if not fits:
        raise RequestError(f"input '{tensor.name}' has shape {want}, but gets {shown_value(list(dims))}")
    if (most := max(MAX_ELEMENTS, tensor.count)) < prod(n for n in dims if n):
        raise RequestError(
            f"input '{tensor.name}' has at most {most} elements, but gets shape {shown_value(list(dims))}"
        )
    if signature.rows and not 1 <= dims[0] <= signature.rows:
        raise RequestError(f"input '{tensor.name}' has 1 to {signature.rows} rows, but gets {dims[0]}")


def _rows(feeds: Mapping[str, np.ndarray], signature: Signature) -> int:
    if not signature.rows:
        return 0
    rows = {array.shape[0] for array in feeds.values()}
    if len(rows) > 1:
        found = ", ".join(f"'{name}' {array.shape[0]}" for name, array in feeds.items())
        raise RequestError(f"all inputs of a request have as many rows, but get {found}")
    return rows.pop() if rows else signature.rows


# -- outputs and parameters


def _wanted(top: Mapping[str, Any], signature: Signature, binary: bool) -> Sequence[Wanted]:
    outputs = top.get("outputs")
    if outputs is None or outputs == []:
        return [Wanted(t, binary) for t in signature.outputs.values()]
    if not isinstance(outputs, list):
        raise RequestError(f"'outputs' should be a list, and is {shown_value(outputs)}")
    found: dict[str, Wanted] = {}
    for k, item in enumerate(outputs):
        tensor = _named(item, f"outputs[{k}]", signature.outputs, "output")
        if tensor.name in found:
            raise RequestError(f"output '{tensor.name}' is there twice")
        where = f"output '{tensor.name}'"
        found[tensor.name] = Wanted(tensor, _flag(_parameters(item, where), "binary_data", where, binary))
    return list(found.values())


def _parameters(item: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    found = item.get("parameters")
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise RequestError(f"'parameters' of {where} should be an object, and is {shown_value(found)}")
    for name in _REFUSED:
        if name in found:
            raise RequestError(f"the parameter '{name}' of {where} is of an extension that this server does not have")
    return found


def _flag(parameters: Mapping[str, Any], name: str, where: str, default: bool = False) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise RequestError(f"'{name}' of {where} should be true or false, and is {shown_value(value)}")
    return value


def _is(item: Mapping[str, Any], key: str) -> str:
    return f"is {shown_value(item[key])}" if key in item else "is not there"


def _gets(item: Mapping[str, Any], key: str) -> str:
    return f"gets {shown_value(item[key])}" if key in item else "gets none"


# -- replies


def write_reply(
    model: str, version: str, request: InferenceRequest, outputs: Mapping[str, np.ndarray]
) -> tuple[bytes, dict[str, str]]:
    """The body and the headers of a reply with the outputs of a request's arrays, which may have more rows than it."""
    described: list[dict[str, Any]] = []
    parts: list[bytes] = []
    for wanted in request.wanted:
        array = np.ascontiguousarray(outputs[wanted.tensor.name])
        item: dict[str, Any] = {
            "name": wanted.tensor.name,
            "datatype": wanted.tensor.datatype,
            "shape": list(array.shape),
        }
        if wanted.binary:
            parts.append(raw_of(array))
            item["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            item["data"] = values_of(wanted.tensor, array)
        described.append(item)
    top: dict[str, Any] = {"model_name": model, "model_version": version}
    if request.id is not None:
        top["id"] = request.id
    text = json.dumps({**top, "outputs": described}, allow_nan=False, separators=(",", ":")).encode()
    if not any(wanted.binary for wanted in request.wanted):
        return text, {"Content-Type": JSON_TYPE}
    return b"".join([text, *parts]), {"Content-Type": BINARY_TYPE, HEADER: str(len(text))}
