"""What a model takes and gives, in the words of the Open Inference Protocol. Imports NumPy and the runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np

from lightnet.diagnostics import LightNetError
from lightnet.runtime.dtypes import BY_NAME, BY_NP, DType

#: Bytes that a request in JSON may have beside its tensors, and for each element of them: the longest float64 takes 24.
JSON_BASE, JSON_ELEMENT = 64 * 1024, 40


class Runnable(Protocol):
    """What can be served: an executable, or any callable that says what it takes and gives. Calls come from several
    threads."""

    inputs: Mapping[str, tuple[tuple[int, ...], np.dtype]]
    outputs: Mapping[str, tuple[tuple[int, ...], np.dtype]]

    def __call__(self, feeds: dict[str, np.ndarray], /) -> Mapping[str, np.ndarray]:
        """The outputs by name of contiguous arrays by input name, each of the shape and dtype that `inputs` says."""


@dataclass(frozen=True)
class Tensor:
    """The type of an input or output. `datatype` is the protocol's name of `dtype` (``FP32``)."""

    name: str
    dims: tuple[int, ...]
    dtype: DType
    datatype: str

    @property
    def count(self) -> int:
        """How many elements it has."""
        return prod(self.dims)


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of a model by name; `required` are the inputs that a request must have, the others have
    contents of their own. With `rows`, requests may have 1 to so many rows (the first dim of every input and output);
    with 0, shapes are fixed."""

    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    required: frozenset[str]
    rows: int = 0

    @classmethod
    def of(cls, model: Runnable, rows: int = 0) -> Signature:
        """That of an executable, or of another callable, all of whose inputs are required."""
        inputs, outputs = (
            {name: _tensor(name, *of) for name, of in tensors.items()} for tensors in (model.inputs, model.outputs)
        )
        program = getattr(model, "program", None)
        return cls(inputs, outputs, frozenset(inputs if program is None else program.required), rows)

    @property
    def json_limit(self) -> int:
        """Bytes that the JSON of a request may have: what its inputs take at most, written without much space."""
        return JSON_BASE + sum(JSON_ELEMENT * t.count for t in self.inputs.values())

    @property
    def body_limit(self) -> int:
        """Bytes that a request may have, its tensors in JSON or in binary."""
        return max(self.json_limit, JSON_BASE + sum(t.count * t.dtype.size for t in self.inputs.values()))

    def described(self) -> dict[str, Any]:
        """The inputs and outputs of the protocol's model metadata: a dim of -1 may be of any size, up to that of the
        model."""
        return {
            kind: [{"name": t.name, "datatype": t.datatype, "shape": self.shape(t)} for t in tensors.values()]
            for kind, tensors in (("inputs", self.inputs), ("outputs", self.outputs))
        }

    def shape(self, tensor: Tensor) -> list[int]:
        """The shape that requests see."""
        return [-1, *tensor.dims[1:]] if self.rows else list(tensor.dims)


def common_rows(signature: Signature) -> int:
    """The first dim where all inputs and outputs have the same, else 0."""
    tensors = [*signature.inputs.values(), *signature.outputs.values()]
    first = {t.dims[0] if t.dims else 0 for t in tensors}
    return first.pop() if len(first) == 1 and signature.inputs else 0


def datatype_of(dtype: DType) -> str:
    """The protocol's name of an element type; elements of a type that is only stored in go as bytes."""
    if dtype.is_stored:
        return "UINT8"
    if dtype.kind == "bool":
        return "BOOL"
    if dtype.name == "bf16":
        return "BF16"
    return {"float": "FP", "int": "INT", "uint": "UINT"}[dtype.kind] + str(dtype.bits)


def _tensor(name: str, dims: tuple[int, ...], dtype: np.dtype) -> Tensor:
    if np.dtype(dtype).hasobject:
        raise LightNetError(f"'{name}' is text: a server takes and gives numbers", label="serve.text")
    known = BY_NP[np.dtype(dtype)]
    known = BY_NAME["ui8"] if known.is_stored else known
    return Tensor(name, tuple(dims), known, datatype_of(known))
