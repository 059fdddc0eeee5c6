"""Protocol buffers' wire format and ONNX's messages in it, read in place: nothing of the file is copied or allocated
before its size is known.

A reader of our own, because a parsed `onnx.ModelProto` holds the weights a second time (and three times while it is
made), and because no C++ code should see a file that nobody has checked. It is stricter than protobuf: a field of the
wrong wire type and a repeated singular field are errors, groups too; unknown fields are passed over. Imports NumPy, the
standard library and diagnostics.

Source: "Encoding" in the protocol buffers documentation; onnx/onnx-ml.proto for the numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from lightnet.diagnostics import LightNetError, SourceLoc

#: Fields of all messages that are looked at: a second of reading. A network of 10,000 nodes has some 300,000.
MAX_FIELDS = 1 << 20
#: A half-open range of bytes of the file.
Span = tuple[int, int]
#: A decoded message: ints, floats, spans (strings, bytes, messages), and lists of spans.
Fields = dict[str, Any]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIRE = {"int": _VARINT, "float": _FIXED32, "double": _FIXED64, "bytes": _BYTES}
_CHUNK = 1 << 20
#: Bytes of numbers that are quicker to read one by one.
_FEW = 64


class WireMessage:
    """The fields of a message: ``name=(number, kind)`` with kind ``int``, ``float``, ``double`` or ``bytes`` (strings
    and messages too), with a ``*`` behind it where the field is repeated. Fields that we do not use are left out."""

    def __init__(self, name: str, /, **fields: tuple[int, str]):
        self.name = name
        self.tags: dict[int, tuple[str, bool]] = {}
        self.numbers = {number: field for field, (number, _) in fields.items()}
        for field, (number, kind) in fields.items():
            repeated = kind.endswith("*")
            self.tags[number << 3 | _WIRE[kind.rstrip("*")]] = (field, repeated)
            if repeated:  # numbers may be packed
                self.tags[number << 3 | _BYTES] = (field, True)


MODEL = WireMessage(
    "ModelProto", ir_version=(1, "int"), producer_name=(2, "bytes"), graph=(7, "bytes"), opset_import=(8, "bytes*"),
    functions=(25, "bytes*"))  # fmt: skip
OPSET = WireMessage("OperatorSetIdProto", domain=(1, "bytes"), version=(2, "int"))
GRAPH = WireMessage(
    "GraphProto", node=(1, "bytes*"), name=(2, "bytes"), initializer=(5, "bytes*"), sparse_initializer=(15, "bytes*"),
    input=(11, "bytes*"), output=(12, "bytes*"))  # fmt: skip
FUNCTION = WireMessage(
    "FunctionProto", name=(1, "bytes"), input=(4, "bytes*"), output=(5, "bytes*"), attribute=(6, "bytes*"),
    attribute_proto=(11, "bytes*"), node=(7, "bytes*"), opset_import=(9, "bytes*"), domain=(10, "bytes"),
    overload=(13, "bytes"))  # fmt: skip
NODE = WireMessage(
    "NodeProto", input=(1, "bytes*"), output=(2, "bytes*"), name=(3, "bytes"), op_type=(4, "bytes"),
    attribute=(5, "bytes*"), domain=(7, "bytes"), overload=(8, "bytes"))  # fmt: skip
ATTRIBUTE = WireMessage(
    "AttributeProto", name=(1, "bytes"), f=(2, "float"), i=(3, "int"), s=(4, "bytes"), t=(5, "bytes"), g=(6, "bytes"),
    floats=(7, "float*"), ints=(8, "int*"), strings=(9, "bytes*"), tensors=(10, "bytes*"), graphs=(11, "bytes*"),
    tp=(14, "bytes"), type_protos=(15, "bytes*"), type=(20, "int"), ref_attr_name=(21, "bytes"),
    sparse_tensor=(22, "bytes"), sparse_tensors=(23, "bytes*"))  # fmt: skip
TENSOR = WireMessage(
    "TensorProto", dims=(1, "int*"), data_type=(2, "int"), segment=(3, "bytes"), float_data=(4, "float*"),
    int32_data=(5, "int*"), string_data=(6, "bytes*"), int64_data=(7, "int*"), name=(8, "bytes"), raw_data=(9, "bytes"),
    double_data=(10, "double*"), uint64_data=(11, "int*"), external_data=(13, "bytes*"),
    data_location=(14, "int"))  # fmt: skip
SPARSE_TENSOR = WireMessage("SparseTensorProto", values=(1, "bytes"), indices=(2, "bytes"), dims=(3, "int*"))
STRING_ENTRY = WireMessage("StringStringEntryProto", key=(1, "bytes"), value=(2, "bytes"))
VALUE_INFO = WireMessage("ValueInfoProto", name=(1, "bytes"), type=(2, "bytes"))
TYPE = WireMessage(
    "TypeProto", tensor_type=(1, "bytes"), sequence_type=(4, "bytes"), map_type=(5, "bytes"), opaque_type=(7, "bytes"),
    sparse_tensor_type=(8, "bytes"), optional_type=(9, "bytes"))  # fmt: skip
TENSOR_TYPE = WireMessage("TypeProto.Tensor", elem_type=(1, "int"), shape=(2, "bytes"))
#: Of a sequence and of an optional.
ELEMENT = WireMessage("TypeProto.Sequence", elem_type=(1, "bytes"))
MAP_TYPE = WireMessage("TypeProto.Map", key_type=(1, "int"), value_type=(2, "bytes"))
SHAPE = WireMessage("TensorShapeProto", dim=(1, "bytes*"))
DIMENSION = WireMessage("TensorShapeProto.Dimension", dim_value=(1, "int"), dim_param=(2, "bytes"))


class Wire:
    """A file under reading: decodes messages and keeps count of their fields. `path` is for errors."""

    def __init__(self, data: memoryview, path: str):
        self.data, self.path = data, path
        self.left = MAX_FIELDS

    def fail(self, at: int, message: str) -> LightNetError:
        return LightNetError(f"not a valid ONNX model: byte {at}: {message}", SourceLoc(self.path), label="onnx.wire")

    def decode(self, message: WireMessage, span: Span) -> Fields:
        """The fields of the message in `span`, by name; fields that are not there are not in the result.

        Raises LightNetError for what does not lie within the span, for a field of the wrong wire type, for a singular
        field given twice, and for more than `MAX_FIELDS` in all.
        """
        data, tags, fields = self.data, message.tags, Fields()
        at, stop = span
        while at < stop:
            start = at
            tag = data[at]
            at += 1
            if tag >= 0x80:
                tag, at = self._varint(start, stop)
            wire, begin = tag & 7, at
            value: Any
            # Nearly all numbers have one byte: they are read here.
            if wire == _BYTES:
                if at < stop and (size := data[at]) < 0x80:
                    begin = at + 1
                else:
                    size, begin = self._varint(at, stop)
                at = begin + size
            elif wire == _VARINT:
                if at < stop and (value := data[at]) < 0x80:
                    at += 1
                else:
                    value, at = self._varint(at, stop)
            elif wire == _FIXED32:
                at += 4
            elif wire == _FIXED64:
                at += 8
            else:
                raise self.fail(start, f"{message.name} has a field of wire type {wire}")
            if at > stop:
                raise self.fail(start, f"a field of {message.name} is cut off")
            self.left -= 1
            if self.left < 0:
                raise LightNetError(
                    f"the model is too large: it has more than {MAX_FIELDS} fields", SourceLoc(self.path)
                )
            known = tags.get(tag)
            if known is None:
                if tag >> 3 in message.numbers or tag < 8:
                    raise self.fail(start, f"{message.name} has a field {tag >> 3} of wire type {wire}")
                continue
            name, repeated = known
            if repeated:
                fields.setdefault(name, []).append((begin, at))
                continue
            if name in fields:
                raise self.fail(start, f"{message.name}.{name} is given twice")
            if wire == _VARINT:
                fields[name] = value - (1 << 64) if value >> 63 else value
            else:
                fields[name] = (begin, at)
        return fields

    def _varint(self, at: int, stop: int) -> tuple[int, int]:
        """A number of up to 64 bits, and where it ends."""
        value, start = 0, at
        for shift in range(0, 70, 7):
            if at >= stop:
                raise self.fail(start, "a number is cut off")
            byte = self.data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, at
        raise self.fail(start, "a number is longer than 64 bits")

    def text(self, span: Span, limit: int) -> str:
        """A string of at most `limit` bytes of UTF-8 without control characters."""
        begin, end = span
        if end - begin > limit:
            raise self.fail(begin, f"a name of {end - begin} bytes is longer than the limit of {limit}")
        try:
            text = str(self.data[begin:end], "utf-8")
        except UnicodeDecodeError:
            raise self.fail(begin, "a name is not valid UTF-8") from None
        if not text.isprintable():
            raise self.fail(begin, f"the name {text[:40]!a} is not printable")
        return text

    def float(self, span: Span) -> float:
        """A singular float."""
        return float(struct.unpack_from("<f", self.data, span[0])[0])

    # -- repeated numbers, packed or not: the payloads of their fields, one behind the other

    def count_fixed(self, spans: Sequence[Span], size: int) -> int:
        """The number of numbers of `size` bytes in the payloads."""
        for begin, end in spans:
            if (end - begin) % size:
                raise self.fail(begin, f"{end - begin} bytes do not hold numbers of {size} bytes")
        return sum(end - begin for begin, end in spans) // size

    def count_varints(self, spans: Sequence[Span]) -> int:
        """The number of numbers of variable length in the payloads; each is checked."""
        count = 0
        for begin, end in spans:
            for at in range(begin, end, _CHUNK):
                count += int(np.count_nonzero(np.frombuffer(self.data[at : min(at + _CHUNK, end)], np.uint8) < 0x80))
            if end > begin and self.data[end - 1] >= 0x80:
                raise self.fail(begin, "a number is cut off")
        return count

    def fixed(self, spans: Sequence[Span], dtype: np.dtype) -> np.ndarray:
        """Floats or doubles (little-endian `dtype`): a view of the file where they lie in one piece, else a copy."""
        if len(spans) == 1:
            return np.frombuffer(self.data[spans[0][0] : spans[0][1]], dtype)
        out = np.empty(self.count_fixed(spans, dtype.itemsize), dtype)
        at = 0
        for begin, end in spans:
            part = np.frombuffer(self.data[begin:end], dtype)
            out[at : at + len(part)] = part
            at += len(part)
        return out

    def varints(self, spans: Sequence[Span]) -> Iterator[np.ndarray]:
        """The numbers as int64, a piece of at most a million bytes at a time."""
        for begin, end in spans:
            while begin < end:
                chunk = np.frombuffer(self.data[begin : min(begin + _CHUNK, end)], np.uint8)
                ends = np.flatnonzero(chunk < 0x80)
                lengths = np.diff(ends, prepend=-1)
                if not len(ends) or lengths.max() > 10:
                    raise self.fail(begin, "a number is cut off or longer than 64 bits")
                starts = ends - lengths + 1
                values = np.zeros(len(ends), np.uint64)
                for k in range(int(lengths.max())):
                    longer = np.flatnonzero(lengths > k)
                    digits = (chunk[starts[longer] + k] & 0x7F).astype(np.uint64)
                    values[longer] |= digits << np.uint64(7 * k)
                yield values.view(np.int64)
                begin += int(ends[-1]) + 1

    def ints(self, spans: Sequence[Span], limit: int) -> tuple[int, ...]:
        """A repeated integer field of at most `limit` numbers."""
        numbers: list[int] = []
        for span in spans:
            begin, end = span
            if end - begin > _FEW:
                if len(numbers) + self.count_varints([span]) > limit:
                    raise self.fail(begin, f"a list is longer than {limit} numbers")
                for part in self.varints([span]):
                    numbers += part.tolist()
                continue
            while begin < end:
                value, begin = self._varint(begin, end)
                numbers.append(value - (1 << 64) if value >> 63 else value)
            if len(numbers) > limit:
                raise self.fail(begin, f"a list is longer than {limit} numbers")
        return tuple(numbers)
