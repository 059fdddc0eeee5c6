"""Tensors of an ONNX model: checked against the bytes that are there when the model is read, decoded when they are
asked for.

Raw data and float data are views of the mapped file; integers of variable length are decoded piece by piece into the
one array that they fill. Imports NumPy, the types and the wire format.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from lightnet.diagnostics import LightNetError
from lightnet.frontends.onnx import wire as w
from lightnet.frontends.onnx.external import ExternalFiles
from lightnet.frontends.onnx.model import STRINGS, OnnxTensor, type_name
from lightnet.ir.types import MAX_TENSOR_BYTES
from lightnet.runtime.dtypes import BY_NAME, DType
from lightnet.runtime.stored import FORMATS, StoredFormat

#: Bytes of the largest sparse tensor: it becomes a dense one.
MAX_SPARSE = 1 << 26
#: NumPy's limit.
MAX_DIMS = 64
MAX_NAME = 1024

_TYPED = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")
#: Which typed field holds a type's values (onnx.proto, TensorProto).
_FIELD = {
    "f32": "float_data", "f64": "double_data", "i64": "int64_data", "ui32": "uint64_data", "ui64": "uint64_data",
    **dict.fromkeys(("i32", "i16", "i8", "ui16", "ui8", "i1", "f16", "bf16"), "int32_data"),
}  # fmt: skip


class TensorReader:
    """Reads the TensorProtos of one file."""

    def __init__(self, wire: w.Wire, external: ExternalFiles, fail: Callable[[str], LightNetError]):
        self.wire, self.external, self.fail = wire, external, fail

    def tensor(self, span: w.Span) -> OnnxTensor:
        """A tensor whose contents are known to be there. Raises LightNetError for a malformed one."""
        fields = self.wire.decode(w.TENSOR, span)
        name = self.wire.text(fields["name"], MAX_NAME) if "name" in fields else ""
        code = fields.get("data_type", 0)
        dtype = type_name(code)
        if dtype is None:
            raise self.fail(f"tensor '{name}' has the unknown element type {code}")
        dims = self.dims(fields, f"tensor '{name}'", BY_NAME.get(dtype))
        if "segment" in fields:
            raise self.fail(f"tensor '{name}' is a segment of a larger one, which is not supported")
        if dtype in FORMATS:
            return OnnxTensor(name, dims, dtype, self._packed(fields, name, dims, FORMATS[dtype]))
        if dtype == STRINGS:
            return OnnxTensor(name, dims, dtype, self._strings(fields, name, dims))
        if dtype not in BY_NAME:  # nothing will read it
            return OnnxTensor(name, dims, dtype, partial(np.empty, 0))
        return OnnxTensor(name, dims, dtype, self._contents(fields, name, dims, BY_NAME[dtype]))

    def dims(self, fields: w.Fields, what: str, dtype: DType | None) -> tuple[int, ...]:
        """Dims that are not negative, of a tensor that is not too large."""
        dims = self.wire.ints(fields.get("dims", []), MAX_DIMS)
        if any(d < 0 for d in dims):
            raise self.fail(f"{what} has a negative dim: {list(dims)}")
        # Zero dims are left out: NumPy refuses 2^60 x 2^60 x 0.
        if math.prod(d for d in dims if d) * (dtype.size if dtype else 1) > MAX_TENSOR_BYTES:
            raise self.fail(f"{what} of dims {list(dims)} is too large: more than {MAX_TENSOR_BYTES} bytes")
        return dims

    def _contents(self, fields: w.Fields, name: str, dims: Sequence[int], dtype: DType) -> Callable[[], np.ndarray]:
        count = math.prod(dims)
        present = [f for f in _TYPED if fields.get(f)]
        if fields.get("data_location", 0) == 1:
            if present or "raw_data" in fields:
                raise self.fail(f"tensor '{name}' has data in the model and outside of it")
            return self._external(fields, name, count * dtype.size, dtype)
        if fields.get("data_location", 0) != 0 or fields.get("external_data"):
            raise self.fail(f"tensor '{name}' has an invalid data location")
        if "raw_data" in fields:
            begin, end = fields["raw_data"]
            if present:
                raise self.fail(f"tensor '{name}' has its data twice, in raw_data and {present[0]}")
            self._check_count(name, dims, dtype, count * dtype.size, end - begin, "bytes")
            return partial(_raw, self.wire.data[begin:end], dtype)
        field = _FIELD[dtype.name]
        if present not in ([], [field]):
            wrong = next(f for f in present if f != field)
            raise self.fail(f"tensor '{name}' of type {dtype} has data in {wrong}, not in {field}")
        spans = fields.get(field, [])
        if field in ("float_data", "double_data"):
            self._check_count(name, dims, dtype, count, self.wire.count_fixed(spans, dtype.size), "values")
            return partial(self.wire.fixed, spans, dtype.np.newbyteorder("<"))
        self._check_count(name, dims, dtype, count, self.wire.count_varints(spans), "values")
        return partial(self._integers, spans, count, dtype)

    def _strings(self, fields: w.Fields, name: str, dims: Sequence[int]) -> Callable[[], np.ndarray]:
        """The contents of a tensor of text: an array of strings (dtype object). They are not in UTF-8 where ONNX asks
        for it: an error once they are read."""
        spans, count = fields.get("string_data", []), math.prod(dims)
        if (
            "raw_data" in fields
            or fields.get("data_location", 0)
            or any(fields.get(f) for f in _TYPED if f != "string_data")
        ):
            raise self.fail(f"tensor '{name}' of text has data elsewhere than in string_data")
        if len(spans) != count:
            raise self.fail(
                f"tensor '{name}' of text and dims {list(dims)} needs {count} strings, and has {len(spans)}"
            )

        def read() -> np.ndarray:
            found = np.empty(count, object)
            try:
                found[:] = [str(self.wire.data[begin:end], "utf-8") for begin, end in spans]
            except UnicodeDecodeError:
                raise self.fail(f"tensor '{name}' has text that is not in UTF-8") from None
            return found

        return read

    def _packed(
        self, fields: w.Fields, name: str, dims: Sequence[int], format: StoredFormat
    ) -> Callable[[], np.ndarray]:
        """The contents of a tensor of a storage type: bytes, raw or one in each int32, of one element or several."""
        count = math.prod(dims)
        read = self._contents(fields, name, (format.packed_size(count),), BY_NAME["ui8"])
        return lambda: format.unpacked(np.asarray(read()).view(np.uint8), count)

    def _check_count(self, name: str, dims: Sequence[int], dtype: DType, want: int, have: int, unit: str) -> None:
        if want != have:
            raise self.fail(
                f"tensor '{name}' of type {dtype} and dims {list(dims)} needs {want} {unit} of data, and has {have}"
            )

    def _integers(self, spans: Sequence[w.Span], count: int, dtype: DType) -> np.ndarray:
        """Values of variable length; half floats are the bits of one each. As elsewhere, what is too large wraps."""
        bits = np.dtype(np.uint16) if dtype.is_float else dtype.np
        out = np.empty(count, bits)
        at = 0
        for part in self.wire.varints(spans):
            out[at : at + len(part)] = part.astype(bits)
            at += len(part)
        return out.view(dtype.np)

    def _external(self, fields: w.Fields, name: str, size: int, dtype: DType) -> Callable[[], np.ndarray]:
        entries: dict[str, str] = {}
        for span in fields.get("external_data", []):
            entry = self.wire.decode(w.STRING_ENTRY, span)
            key, value = (self.wire.text(entry.get(k, (0, 0)), 4096) for k in ("key", "value"))
            if key in entries:
                raise self.fail(f"tensor '{name}': its external data gives '{key}' twice")
            entries[key] = value
        location = entries.get("location", "")
        offset = self._number(name, entries, "offset", 0)
        length = self._number(name, entries, "length", size)
        if length != size:
            raise self.fail(f"tensor '{name}' needs {size} bytes of data, and its external data states {length}")
        have = self.external.size(location)
        if offset + size > have:
            raise self.fail(f"tensor '{name}': bytes {offset} to {offset + size} are not in the {have} of '{location}'")

        def read() -> np.ndarray:
            data = self.external.view(location)[offset : offset + size]
            if len(data) != size:
                raise self.external.fail(location, "has become shorter since the model was read")
            return _raw(data, dtype)

        return read

    def _number(self, name: str, entries: dict[str, str], key: str, default: int) -> int:
        text = entries.get(key)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and len(text) <= 19):
            raise self.fail(f"tensor '{name}': the {key} '{text[:40]}' of its external data is not a number")
        return int(text)

    def sparse(self, span: w.Span) -> OnnxTensor:
        """A sparse tensor, which is a dense one when it is loaded. Its indices are checked here."""
        fields = self.wire.decode(w.SPARSE_TENSOR, span)
        if "values" not in fields or "indices" not in fields:
            raise self.fail("a sparse tensor has no values or no indices")
        values, indices = self.tensor(fields["values"]), self.tensor(fields["indices"])
        what = f"the sparse tensor '{values.name}'"
        dtype = BY_NAME.get(values.dtype)
        dims = self.dims(fields, what, dtype)
        if dtype is None:
            return OnnxTensor(values.name, dims, values.dtype, values.read)
        total = math.prod(dims)
        if total * dtype.size > MAX_SPARSE:
            raise self.fail(f"{what} of dims {list(dims)} is too large: dense, it has more than {MAX_SPARSE} bytes")
        count = math.prod(values.dims)
        if len(values.dims) != 1 or indices.dtype != "i64" or indices.dims not in ((count,), (count, len(dims))):
            raise self.fail(f"{what} has values of dims {list(values.dims)} and indices of dims {list(indices.dims)} "
                            "and type "
                            f"{indices.dtype}: it needs [N], and [N] or [N, {len(dims)}] of i64")  # fmt: skip
        flat = indices.load()
        if flat.ndim == 2:
            if flat.size and (flat.min() < 0 or (flat >= np.array(dims)).any()):
                raise self.fail(f"{what} has an index outside of its dims {list(dims)}")
            flat = flat @ np.array([math.prod(dims[i + 1 :]) for i in range(len(dims))], np.int64)
        if flat.size and (flat.min() < 0 or flat.max() >= total or (np.diff(flat) <= 0).any()):
            raise self.fail(f"{what} has indices that do not rise, or lie outside of its dims {list(dims)}")

        def read() -> np.ndarray:
            out = np.zeros(total, dtype.np)
            out[flat] = values.load()
            return out

        return OnnxTensor(values.name, dims, values.dtype, read)


def _raw(data: memoryview, dtype: DType) -> np.ndarray:
    """Little-endian bytes as an array, a view of them; a bool is any byte, for the caller to compare with 0."""
    return np.frombuffer(data, np.uint8 if dtype.kind == "bool" else dtype.np.newbyteorder("<"))
