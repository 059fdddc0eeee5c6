"""An ONNX model as the importer sees it: plain data, in which only tensors' contents are not loaded yet.

Imports NumPy, the runtime's types, and the package `onnx` where a node is wanted as a protobuf message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import LightNetError
from lightnet.runtime.dtypes import BY_NAME
from lightnet.runtime.stored import FORMATS

if TYPE_CHECKING:
    import onnx

#: Domains of ops beside ONNX's own, which is "".
MICROSOFT, ML, TRAINING = "com.microsoft", "ai.onnx.ml", "ai.onnx.preview.training"
#: ONNX's element types: number → name.
ONNX_TYPES = {
    1: "FLOAT", 2: "UINT8", 3: "INT8", 4: "UINT16", 5: "INT16", 6: "INT32", 7: "INT64", 8: "STRING", 9: "BOOL",
    10: "FLOAT16", 11: "DOUBLE", 12: "UINT32", 13: "UINT64", 14: "COMPLEX64", 15: "COMPLEX128", 16: "BFLOAT16",
    17: "FLOAT8E4M3FN", 18: "FLOAT8E4M3FNUZ", 19: "FLOAT8E5M2", 20: "FLOAT8E5M2FNUZ", 21: "UINT4", 22: "INT4",
    23: "FLOAT4E2M1", 24: "FLOAT8E8M0", 25: "UINT2", 26: "INT2", 27: "FLOAT6E2M3", 28: "FLOAT6E3M2",
}  # fmt: skip
#: The type of text, which is none of kernels: `split.py` deals with it.
STRINGS = "STRING"
#: Our element types: name → ONNX's number.
ELEM_TYPES = {"f32": 1, "ui8": 2, "i8": 3, "ui16": 4, "i16": 5, "i32": 6, "i64": 7, "i1": 9, "f16": 10, "f64": 11,
              "ui32": 12, "ui64": 13, "bf16": 16, "f8E4M3FN": 17, "f8E4M3FNUZ": 18, "f8E5M2": 19, "f8E5M2FNUZ": 20,
              "ui4": 21, "i4": 22, "f4E2M1FN": 23, "f8E8M0FNU": 24, "ui2": 25, "i2": 26}  # fmt: skip
#: ONNX's number → our element type, where LightNet has it here.
DTYPES = {code: name for name, code in ELEM_TYPES.items() if name in BY_NAME}


def type_name(code: int) -> str | None:
    """The name of an element type: ours where LightNet has the type, else ONNX's; None for an unknown number."""
    return DTYPES.get(code) or ONNX_TYPES.get(code)


@dataclass(frozen=True)
class ValueInfo:
    """A declared input or output. `dtype` as `type_name` gives it, or ``sequence(...)`` and the like. A dim is a
    number, a symbol, or None where it is open; `dims` is None where the rank is."""

    name: str
    dtype: str
    dims: tuple[int | str | None, ...] | None


@dataclass(frozen=True)
class OnnxTensor:
    """A constant. `dtype` as `type_name` gives it; `read` gives the contents, which have been checked to be there."""

    name: str
    dims: tuple[int, ...]
    dtype: str
    read: Callable[[], np.ndarray] = field(repr=False, compare=False)

    def texts(self) -> np.ndarray:
        """The contents of a tensor of text: an array of strings (dtype object). Raises LightNetError where they are not
        in UTF-8."""
        assert self.dtype == STRINGS
        return self.read().reshape(self.dims)

    def load(self) -> np.ndarray:
        """The contents: read-only, C-contiguous; a view of the file where its bytes allow it, else a copy that belongs
        to the caller; of a storage type, what it stands for. Raises LightNetError for a type that LightNet lacks."""
        if self.dtype not in BY_NAME:
            raise LightNetError(
                f"tensor '{self.name}' has type {self.dtype}, which is not supported", label="onnx.dtype"
            )
        dtype = BY_NAME[FORMATS[self.dtype].carrier if self.dtype in FORMATS else self.dtype].np
        array = self.read()
        if dtype.kind == "b" and array.dtype.kind != "b":
            array = array != 0  # a bool is 0 or 1 to compiled code
        array = np.require(array.reshape(self.dims), dtype, ["C"])
        array.flags.writeable = False
        return array


@dataclass(frozen=True)
class AttributeRef:
    """In a function: the value that the call gives the function's attribute `name`."""

    name: str


@dataclass(frozen=True)
class TypeDescription:
    """The value of an attribute that is a type, as in the op Optional."""

    dtype: str
    dims: tuple[int | str | None, ...] | None


@dataclass(frozen=True)
class OnnxNode:
    """A node. `index` is its place in its graph. An absent input and an unwanted output have the name "".

    An attribute is a float, int, str (bytes where it is no UTF-8), `OnnxTensor`, `OnnxGraph`, `TypeDescription`, a
    tuple of these, or an `AttributeRef`. `domain` is "" for ONNX's own ops.
    """

    index: int
    name: str
    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]

    def __str__(self) -> str:
        name = f" '{self.name}'" if self.name else ""
        return f"node {self.index}{name} ({self.op_type})"

    @property
    def proto(self) -> onnx.NodeProto:
        """The node as a protobuf message, for the package `onnx`; without the attributes that are references."""
        from lightnet.frontends.onnx.protos import node_proto

        return node_proto(self)


@dataclass(frozen=True)
class OnnxGraph:
    """A graph, or a subgraph, which sees the names around it."""

    name: str
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    initializers: Mapping[str, OnnxTensor]
    nodes: tuple[OnnxNode, ...]


@dataclass(frozen=True)
class OnnxFunction:
    """A function of a model, or a standard one. `attributes` are those without a default."""

    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[str, ...]
    defaults: Mapping[str, Any]
    nodes: tuple[OnnxNode, ...]
    opsets: Mapping[str, int]


@dataclass(frozen=True)
class OnnxModel:
    """A model that has been read and checked. `path` names it in errors; `opsets` and `functions` are by domain ("" is
    ONNX's own) and by (domain, name)."""

    path: str
    ir_version: int
    producer: str
    graph: OnnxGraph
    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str], OnnxFunction]
