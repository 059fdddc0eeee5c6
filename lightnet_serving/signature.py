"""The signature of a model, in the words of the Open Inference Protocol. Imports NumPy and the runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Protocol

import numpy as np

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.runtime.dtypes import BY_NAME, BY_NP, DType

#: Bytes that a request in JSON may have beside its tensors, and for each element of them: the longest float64 takes 24.
JSON_BASE, JSON_ELEMENT = 64 * 1024, 40
#: Bytes that a request may have for each element of text, and the size that counts for a dim that a call decides.
TEXT_ELEMENT, OPEN_DIM = 8 * 1024, 128
#: Bytes that all inputs of a request whose size nobody knows, of text and of open dims, may have together.
MAX_OPEN = 64 * 1024 * 1024
#: The protocol's name of text: strings in JSON; in binary, UTF-8 behind the number of its bytes (4, little-endian).
TEXT = "BYTES"


class Servable(Protocol):
    """A model that can be served: an executable, or any callable that says what it takes and gives. Calls come from
    several threads.
    """

    inputs: Mapping[str, tuple[Sequence[Any] | None, np.dtype]]
    outputs: Mapping[str, tuple[Sequence[Any] | None, np.dtype]]

    def __call__(self, feeds: dict[str, np.ndarray], /) -> Mapping[str, np.ndarray]:
        """The outputs by name of contiguous arrays by input name, each of the shape and dtype that `inputs` says."""


@dataclass(frozen=True)
class TensorSignature:
    """The type of an input or output. `datatype` is the protocol's name of `dtype` (``FP32``), which is None of text.
    A dim that a call decides is -1."""

    name: str
    dims: tuple[int, ...]
    dtype: DType | None
    datatype: str

    @property
    def count(self) -> int:
        """The number of its elements; of open dims, how many count for the limits of requests."""
        return prod(OPEN_DIM if d < 0 else d for d in self.dims)

    @property
    def is_open(self) -> bool:
        """True where its bytes do not follow from the model: of text, and where a call decides a dim."""
        return self.dtype is None or any(d < 0 for d in self.dims)

    @property
    def most_bytes(self) -> int:
        """Bytes that a request may have for its elements, in binary."""
        return self.count * (TEXT_ELEMENT if self.dtype is None else self.dtype.size)

    @property
    def most_json(self) -> int:
        """The same, in JSON."""
        return self.count * (TEXT_ELEMENT if self.dtype is None else JSON_ELEMENT)


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of a model by name; `required` are the inputs that a request must have, the others have
    contents of their own. With `rows`, requests may have 1 to so many rows (the first dim of every input and output);
    with 0, shapes are fixed."""

    inputs: Mapping[str, TensorSignature]
    outputs: Mapping[str, TensorSignature]
    required: frozenset[str]
    rows: int = 0

    @classmethod
    def of(cls, model: Servable, rows: int = 0) -> Signature:
        """The signature of an executable, or of another callable, all of whose inputs are required."""
        inputs, outputs = (
            {name: _tensor(name, *of) for name, of in tensors.items()} for tensors in (model.inputs, model.outputs)
        )
        program, host = getattr(model, "program", None), getattr(model, "host", None)
        required = set(inputs if program is None else program.required)
        if host is not None and host.maps:
            raise LightNetError(
                f"'{next(iter(host.maps))}' is a map, of which the protocol has none: serve what "
                "`lightnet.runtime.hosted.of_tensors` makes of the executable",
                label="host.map",
            )
        if host is not None:  # what it makes of its inputs is no input
            required = (required & set(inputs)) | set(host.required)
        return cls(inputs, outputs, frozenset(required), rows)

    @property
    def json_limit(self) -> int:
        """Bytes that the JSON of a request may have: what its inputs take at most, written without much space."""
        return self._limit(lambda tensor: tensor.most_json)

    @property
    def body_limit(self) -> int:
        """Bytes that a request may have, its tensors in JSON or in binary."""
        return max(self.json_limit, self._limit(lambda tensor: tensor.most_bytes))

    def _limit(self, most: Callable[[TensorSignature], int]) -> int:
        sizes = {
            is_open: sum(most(t) for t in self.inputs.values() if t.is_open == is_open) for is_open in (False, True)
        }
        return JSON_BASE + sizes[False] + min(sizes[True], MAX_OPEN)

    def described(self) -> dict[str, Any]:
        """The inputs and outputs of the protocol's model metadata: a dim of -1 may be of any size, up to that of the
        model."""
        return {
            kind: [{"name": t.name, "datatype": t.datatype, "shape": self.shape(t)} for t in tensors.values()]
            for kind, tensors in (("inputs", self.inputs), ("outputs", self.outputs))
        }

    def shape(self, tensor: TensorSignature) -> list[int]:
        """The shape that requests see."""
        return [-1, *tensor.dims[1:]] if self.rows else list(tensor.dims)


def common_rows(signature: Signature) -> int:
    """The first dim where all inputs and outputs have the same, else 0; also 0 where a call decides any dim: it would
    be decided for the rows of all its requests."""
    tensors = [*signature.inputs.values(), *signature.outputs.values()]
    if any(d < 0 for t in tensors for d in t.dims):
        return 0
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


def _tensor(name: str, dims: Sequence[Any] | None, dtype: np.dtype) -> TensorSignature:
    sizes = tuple(d if isinstance(d, int) else -1 for d in ((None,) if dims is None else dims))
    if np.dtype(dtype).hasobject:
        return TensorSignature(name, sizes, None, TEXT)
    known = BY_NP[np.dtype(dtype)]
    known = BY_NAME["ui8"] if known.is_stored else known
    return TensorSignature(name, sizes, known, datatype_of(known))
