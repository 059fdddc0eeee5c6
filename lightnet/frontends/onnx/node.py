"""The node that a handler of an ONNX op sees, and the table of handlers.

A handler takes a `Node` and one `Value` for each input (None for an absent one) and returns a Value for each output:

    @onnx_op("Gemm")
    def gemm(n: Node, a: Value, b: Value, c: Value | None = None) -> Value: ...

Handlers stand in `frontends/onnx/ops/<family>.py`, `lightnet_ml/` (ai.onnx.ml) and `lightnet_ort/` (com.microsoft), all
listed by `registry.ONNX_OPS`. Imports the graph builder and the registry.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import WeakSet

import numpy as np

from lightnet.frontends.graph import Graph, Value
from lightnet.frontends.handlers import HandledNode, Handler
from lightnet.frontends.loading import OpenError
from lightnet.frontends.onnx.model import OnnxGraph, type_name
from lightnet.frontends.sizes import UndecidedSize
from lightnet.ir.decorated import FunctionTable
from lightnet.ir.registry import ONNX_OPS
from lightnet.runtime.dims import greatest
from lightnet.runtime.dtypes import BY_NAME, DType
from lightnet.runtime.stored import FORMATS

if TYPE_CHECKING:
    from lightnet.frontends.onnx.importer import Importer
    from lightnet.frontends.onnx.model import OnnxNode
    from lightnet.frontends.random import Draws

#: Elements of the largest input whose value may decide a shape: beyond that, it is data.
MAX_DECIDING = 4096

_HANDLERS = FunctionTable("ONNX op", ONNX_OPS.imported)
_TAKES_SEQUENCES: WeakSet[Handler] = WeakSet()


class Items:
    """A sequence: a list of tensors while the model is read, and nothing in the network, which has tensors only."""

    __slots__ = ("tensors",)

    def __init__(self, tensors: Iterable[Value]):
        self.tensors = tuple(tensors)


def onnx_op(*op_types: str, domain: str = "", sequences: bool = False) -> Callable[[Handler], Handler]:
    """Decorator: the function imports the ops of these types, of every opset (`Node.opset` tells them apart).

    With `sequences`, an input may be `Items`.
    """

    register: Callable[[Handler], Handler] = _HANDLERS.decorator(
        "@onnx_op", op_types, key=lambda op_type: (domain, op_type)
    )

    def registered(function: Handler) -> Handler:
        if sequences:
            _TAKES_SEQUENCES.add(function)
        return register(function)

    return registered


def handler_of(domain: str, op_type: str) -> Handler | None:
    """The handler of an op, or None."""
    for beside in (False, True):  # importing a family registers its handlers
        if (domain, op_type) not in _HANDLERS:
            ONNX_OPS.imported(beside)
    return _HANDLERS.get((domain, op_type))


def takes_sequences(domain: str, op_type: str) -> bool:
    """Return whether the inputs of an op may be `Items`."""
    return _HANDLERS.get((domain, op_type)) in _TAKES_SEQUENCES


def handlers() -> dict[tuple[str, str], Handler]:
    """Every handler by (domain, op type)."""
    ONNX_OPS.imported()
    return dict(_HANDLERS)


class Poisoned(Exception):
    """A subgraph of this node could not be imported, which has been noted."""


class NeedsValue(OpenError):
    """The network's shapes depend on the values of `inputs`, graph inputs that nobody gave."""


class Node(HandledNode):
    """One node of an ONNX graph, as its handler sees it."""

    form = "onnx"

    def __init__(self, importer: Importer, node: OnnxNode, opset: int):
        self.importer, self.node, self.opset = importer, node, opset
        self.g: Graph = importer.graph

    @property
    def op_type(self) -> str:
        return self.node.op_type

    @property
    def outputs(self) -> Sequence[str]:
        """The names of the outputs; "" for one that is not wanted."""
        return self.node.outputs

    def wants(self, index: int) -> bool:
        """Return whether anybody names output `index`."""
        return index < len(self.node.outputs) and bool(self.node.outputs[index])

    # -- attributes

    def has(self, name: str) -> bool:
        return name in self.node.attributes

    def _attribute(self, name: str, kind: type | tuple[type, ...], what: str, default: Any) -> Any:
        value = self.node.attributes.get(name)
        if value is None:
            if default is ...:
                self.fail(f"needs the attribute '{name}' ({what})")
            return default
        if not isinstance(value, kind) or isinstance(value, bool):
            self.fail(f"its attribute '{name}' should be {what}, but is {value!r:.60}")
        return value

    def int(self, name: str, default: Any = ...) -> Any:
        """An integer attribute; without a default it has to be there."""
        return self._attribute(name, int, "an integer", default)

    def float(self, name: str, default: Any = ...) -> Any:
        """A float attribute."""
        return self._attribute(name, (float, int), "a float", default)

    def string(self, name: str, default: Any = ...) -> Any:
        """A string attribute."""
        return self._attribute(name, str, "a string", default)

    def ints(self, name: str, default: Any = ...) -> Any:
        """An attribute of several integers, as a tuple."""
        return self._several(name, int, "a list of integers", default)

    def floats(self, name: str, default: Any = ...) -> Any:
        """An attribute of several floats, as a tuple."""
        return self._several(name, (float, int), "a list of floats", default)

    def strings(self, name: str, default: Any = ...) -> Any:
        """An attribute of several strings, as a tuple."""
        return self._several(name, str, "a list of strings", default)

    def _several(self, name: str, kind: type | tuple[type, ...], what: str, default: Any) -> Any:
        value = self._attribute(name, (tuple, list), what, default)
        if value is default:
            return default
        if not all(isinstance(v, kind) for v in value):
            self.fail(f"its attribute '{name}' should be {what}, but is {value!r:.60}")
        return tuple(value)

    def tensor(self, name: str) -> np.ndarray | None:
        """A tensor attribute's contents, or None."""
        value = self.node.attributes.get(name)
        return None if value is None else self.importer.contents(value)

    def element_type(self, name: str) -> DType | None:
        """The element type that an attribute names by ONNX's number; None where there is no such attribute, or it is
        0."""
        code = self.int(name, 0)
        if not code:
            return None
        known = type_name(code)
        if known is None:
            self.fail(f"there is no element type {code}")
        if known not in BY_NAME or BY_NAME[known].is_stored:
            self.unsupported(f"type {known} is not supported")
        return BY_NAME[known]

    def storage_type(self, name: str) -> str | None:
        """The storage type that an attribute names by ONNX's number; None where it names another, or nothing."""
        known = type_name(self.int(name, 0)) if self.int(name, 0) else None
        return known if known in FORMATS else None

    def graph(self, name: str) -> OnnxGraph:
        """A graph attribute."""
        return self._attribute(name, OnnxGraph, "a graph", ...)

    def axis(self, value: builtins.int, ndim: builtins.int) -> builtins.int:
        """As the base class has it; of a scalar, models name axis 0."""
        return 0 if not value and not ndim else super().axis(value, ndim)

    # -- random numbers

    def draws(self) -> Draws:
        """The generator of this network's random numbers; without a seed there is none."""
        if self.importer.draws is None:
            self.unsupported("it draws random numbers: give them a seed, as in --seed 1 (in Python: seed=1)")
        return self.importer.draws

    # -- inputs that decide something

    def need(self, value: Value, what: str) -> np.ndarray:
        """The contents of an input that decides `what` (a shape, a parameter).

        Where it follows from graph inputs, the network is to be specialised on their values (`NeedsValue`).
        """
        known = value.contents
        if known is not None:
            return known
        if (numbers := getattr(value, "numbers", None)) is not None:
            raise UndecidedSize(*numbers.reshape(-1))
        self.need_inputs(value.inputs, f"data-dependent shape: {what} is computed from data", what)

    def need_inputs(self, inputs: frozenset[str], reason: str, what: str) -> NoReturn:
        """Refuse this node for `reason`, or ask for the values of the graph inputs that `what` follows from, where
        these are few and small."""
        specs = {name: self.importer.values[name].spec for name in inputs}
        if not specs or any(greatest(s.len) > MAX_DECIDING for s in specs.values()):
            self.unsupported(reason)
        error = NeedsValue(f"{what} depends on the value of {_names(specs)}")
        error.inputs = frozenset(specs)
        raise error

    def need_ints(self, value: Value, what: str) -> tuple[builtins.int, ...]:
        """`need`, as integers; some may be sizes that the data decides (`Dim`)."""
        if (numbers := getattr(value, "numbers", None)) is not None:
            return tuple(numbers.reshape(-1))
        array = self.need(value, what)
        if array.dtype.kind not in "iu":
            self.fail(f"{what} should be integers, but its type is {value.dtype}")
        return tuple(int(v) for v in array.reshape(-1))

    # -- parts of the importer

    def inline(self, graph: OnnxGraph, inputs: Sequence[Value | Items] = ()) -> list[Any]:
        """Import a subgraph here, its formal inputs bound to `inputs`; its outputs, each a `Value` or `Items`."""
        found = self.importer.inline(graph, inputs)
        if not all(isinstance(v, Value | Items) for v in found):
            raise Poisoned
        return found


def _names(names: Any) -> str:
    return ", ".join(f"'{n}'" for n in sorted(names))
