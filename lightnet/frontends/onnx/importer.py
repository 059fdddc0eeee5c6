"""ONNX model → level-1 module: a node at a time, through the handlers in `ops/`.

What a model computes from constants is computed here (`frontends/graph.py`), so that shape arithmetic leaves nothing
behind; an op without a handler is expanded through its ONNX function body; what cannot be imported is listed at once,
with every node and its reason. Tensors whose value decides a shape must be constant: a graph input that does is given
in `values`, or named by `NeedsValue` (see `lightnet/specialize.py`). Imports the reader, the graph builder and the
handlers."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.frontends.graph import Graph, Value
from lightnet.frontends.handlers import MAX_LISTED, Unsupported, called, list_refused
from lightnet.frontends.loading import Imported, OpenError
from lightnet.frontends.onnx import functions
from lightnet.frontends.onnx.model import STRINGS, OnnxFunction, OnnxGraph, OnnxModel, OnnxNode, OnnxTensor, ValueInfo
from lightnet.frontends.onnx.node import Items, NeedsValue, Node, Poisoned, handler_of, takes_sequences
from lightnet.frontends.onnx.storage import AWARE, MOVES, entered, left, moved
from lightnet.frontends.onnx.textual import needs_host
from lightnet.frontends.open_dims import DimTable, LearntError, equal
from lightnet.frontends.sizes import inputs_of, is_counted
from lightnet.ir.collector import collector_paused
from lightnet.runtime.arrays import checked_array
from lightnet.runtime.dims import Dim, Undecided, least
from lightnet.runtime.dtypes import BY_NAME
from lightnet.runtime.program import unknown
from lightnet.runtime.stored import FORMATS
from lightnet.runtime.weights import WeightStore

if TYPE_CHECKING:
    from lightnet.frontends.onnx.split import Parted
    from lightnet.frontends.random import Draws

#: Nodes that expanding functions, branches and loops may lead to.
MAX_NODES = 200_000
#: Functions and subgraphs inside of each other.
MAX_DEPTH = 32

Seed = int | str | None
Scope = MutableMapping[str, "Value | Items | _Missing | None"]


@dataclass(frozen=True)
class _Missing:
    """Stands for the output of a node that could not be imported: who reads it is not to blame."""

    why: str


class NeedsShape(OpenError):
    """Inputs whose shapes the model leaves open and nobody gave."""


def read(
    model: OnnxModel, shapes: Mapping[str, Sequence[Any]], values: Mapping[str, Any], seed: Seed = None
) -> Imported:
    """As `to_module`; an `OpenError` that comes out can read the model again. Of a model with text, the numbers: its
    host part is an attribute of the module, or of the error."""
    if (parted := parted_of(model, shapes, values)) is None:
        return _read_numbers(model, shapes, values, seed)
    from lightnet.ir.host import set_host

    if parted.refused:
        Importer(parted.model, {}, {}, seed, parted).run()  # which raises, with what else there is
    try:
        found = _read_numbers(parted.model, parted.of_numbers(shapes), parted.of_numbers(values), seed)
    except OpenError as e:
        e.host = parted.host
        if isinstance(e, NeedsShape):
            e.message = _open_text(model, parted, shapes, e)
        raise
    set_host(found.module, parted.host)
    return found


def read_named(
    model: OnnxModel,
    shapes: Mapping[str, Sequence[Any]],
    values: Mapping[str, Any],
    seed: Seed,
    ranges: Mapping[str, Any],
    warn: Callable[[SourceLoc, str], None],
) -> Imported:
    """As `read`, with symbols for open dims, of these ranges by name: again with each fact that reading the model
    teaches of them, of which it warns."""
    dims = DimTable(ranges)
    if parted_of(model, {}, values) is not None:
        raise LightNetError("a network with text has no named dims: give the shapes of its inputs",
                            SourceLoc(model.path), label="onnx.symbol")  # fmt: skip
    given = set(dims.table)
    try:
        with collector_paused():
            found = dims.taught(lambda: Importer(model, shapes, values, seed, dims=dims).run())
    except OpenError as e:
        own = [i for i in model.graph.inputs if i.name not in model.graph.initializers]
        e.signature = {i.name: (i.dtype, i.dims) for i in own}
        e.again = lambda shapes, values: _read_numbers(model, shapes, values, seed)
        raise
    for name in given - dims.used:
        raise unknown("open dim", name, sorted(dims.used - given))
    for remark in dims.remarks:
        warn(SourceLoc(model.path), remark)
    return Imported(*found)


def _open_text(model: OnnxModel, parted: Parted, shapes: Mapping[str, Sequence[int]], error: NeedsShape) -> str:
    """The advice on open shapes where some are of what steps on text give."""
    inputs = {i.name: i for i in model.graph.inputs}
    opened = {
        n: i
        for n, i in inputs.items()
        if n in error.inputs or (i.dtype == STRINGS and n not in shapes and not _is_closed(i.dims))
    }
    made = [f"'{n}'" for n in parted.host.entering if n in error.inputs]
    if opened:
        return _say_open(opened)
    shapes = f"the shape of {', '.join(made)}, which ops on text give the network,"
    return f"{shapes} follows from what the text says: each call decides, and no file has it"


def parted_of(model: OnnxModel, shapes: Mapping[str, Sequence[int]], values: Mapping[str, Any]) -> Parted | None:
    """The numbers and the host part of a model with text or maps, None of one without. Raises as `split.part`."""
    if not needs_host(model.graph):
        return None
    from lightnet.frontends.onnx.split import part

    return part(model, shapes, values)


def _read_numbers(
    model: OnnxModel, shapes: Mapping[str, Sequence[int]], values: Mapping[str, Any], seed: Seed
) -> Imported:
    own = {i.name: (i.dtype, i.dims) for i in model.graph.inputs if i.name not in model.graph.initializers}
    if seed == "input":
        from lightnet.frontends.random import INPUT

        if INPUT not in own:
            shapes = {k: v for k, v in shapes.items() if k != INPUT}
            own[INPUT] = ("i64", ())
    try:
        return Imported(*to_module(model, shapes, values, seed))
    except OpenError as e:
        e.signature = own
        e.again = lambda shapes, values: _read_numbers(model, shapes, values, seed)
        e.named = partial(read_named, model, shapes, values, seed, {})
        raise


@collector_paused()
def to_module(model: OnnxModel, shapes: Mapping[str, Sequence[int]] | None = None,
              values: Mapping[str, Any] | None = None, seed: Seed = None) -> tuple[ModuleOp, WeightStore]:  # fmt: skip
    """The level-1 module of a model, and its weights.

    `shapes` gives inputs their dims (those that the model leaves open have to be given); inputs in `values` become
    constants; `seed` is that of ops that draw random numbers, which are refused without one. Raises `NeedsShape` and
    `NeedsValue` where more of these is needed, `LightNetError` for an invalid model and, with a list of all nodes
    concerned, for one that cannot be imported."""
    return Importer(model, shapes or {}, values or {}, seed).run()


class Importer:
    """One import; see `to_module`. `values` are the graph's inputs by name."""

    def __init__(self, model: OnnxModel, shapes: Mapping[str, Sequence[int]], given: Mapping[str, Any],
                 seed: Seed = None, parted: Parted | None = None, dims: DimTable | None = None):  # fmt: skip
        self.model, self.shapes, self.given, self.open_dims = model, shapes, given, dims
        self.graph = Graph(model.path)
        self.draws = None if seed is None else _draws(self.graph, seed)
        self.values: dict[str, Value] = {}
        self.refused: list[tuple[str, str, str, None]] = list(parted.refused) if parted else []  # op, name, reason
        self.missing = parted.missing if parted else ()  # what refused nodes would have made
        self.needed: list[NeedsValue] = []
        self.scopes: list[Scope] = []
        self.symbols: dict[str, tuple[int, str]] = {}  # open dims by name: size, and where it came from
        self.opsets = model.opsets
        self.fed = {i.name for i in model.graph.inputs}  # what a caller may feed, initializers among it
        self.prefix = ""
        self.count = 0

    def run(self) -> tuple[ModuleOp, WeightStore]:
        graph = self.model.graph
        for name in (*self.shapes, *self.given):
            if name not in {i.name for i in graph.inputs}:
                raise unknown("input", name, [i.name for i in graph.inputs if i.name not in graph.initializers])
        self.survey(graph)
        self.graph.reserve((*graph.initializers, *(i.name for i in graph.inputs)))
        scope: Scope = {name: _Missing("") for name in self.missing}
        self.scopes.append(scope)
        for tensor in graph.initializers.values():
            if tensor.name not in self.given:
                scope[tensor.name] = self.weight(tensor)
        self.inputs(graph, scope)
        self.nodes(graph.nodes, scope)
        for output in graph.outputs:
            if isinstance(scope.get(output.name), Items):
                self.refused.append(("output", f"'{output.name}'", "it is a sequence: a network gives tensors", None))
        if self.refused:
            raise self.refusal()
        outputs = {o.name: self.read(o.name, scope) for o in graph.outputs}
        if self.needed:
            raise self.needs()
        return self.graph.finish({k: left(self.graph, v) for k, v in outputs.items() if isinstance(v, Value)})

    # -- inputs and weights

    def inputs(self, graph: OnnxGraph, scope: Scope) -> None:
        """Define the graph's inputs: as constants where a value is given, else as inputs of the network."""
        opened = {}
        for info in graph.inputs:
            if info.name in graph.initializers and info.name not in self.given:
                continue  # before IR version 4 an initializer was an input too
            if info.dtype not in BY_NAME:
                self.refused.append(("input", f"'{info.name}'", f"type {info.dtype} is not supported", None))
                scope[info.name] = _Missing(info.name)
                continue
            if info.name in self.given:
                scope[info.name] = self.given_value(info)
                continue
            dims = self.dims(info)
            if dims is None:
                opened[info.name] = info
                scope[info.name] = _Missing(info.name)
                continue
            self.tie(info, dims)
            with self.graph.node(SourceLoc(self.model.path), info.name, f"input '{info.name}'"):
                self.values[info.name] = self.graph.input(info.name, dims, info.dtype)
                scope[info.name] = entered(self.graph, self.values[info.name])
        if opened:
            raise self.refusal() if self.refused else self.open_shapes(opened)

    def dims(self, info: ValueInfo) -> tuple[int, ...] | None:
        """The dims of an input, None where they are open. Raises LightNetError where what is given contradicts the
        model."""
        given = self.shapes.get(info.name)
        if self.open_dims is not None and (info.dims is not None or given is not None):
            given = self.open_dims.dims(info.name, info.dims or (), given)
        if given is None:
            return tuple(info.dims) if _is_closed(info.dims) else None
        dims = tuple(d if isinstance(d, Dim) else int(d) for d in given)
        fits = info.dims is None or (
            len(dims) == len(info.dims) and all(not isinstance(d, int) or d == e for d, e in zip(info.dims, dims))
        )
        if not fits or any(least(d) < 0 for d in dims):
            raise LightNetError(f"input '{info.name}' has shape {_shape(info.dims)} in the model, which {list(dims)} "
                                "does not "
                                "fit", SourceLoc(self.model.path), label="onnx.input-shape")  # fmt: skip
        return dims

    def tie(self, info: ValueInfo, dims: Sequence[int]) -> None:
        """Keep what a symbol stands for. Raises LightNetError where another input has it stand for another size."""
        for axis, (symbol, size) in enumerate(zip(info.dims or (), dims)):
            if not isinstance(symbol, str):
                continue
            known, before = self.symbols.setdefault(symbol, (size, f"axis {axis} of '{info.name}'"))
            if known != size and (facts := equal(known - size)):
                raise LearntError(facts, f"the model calls {before} and axis {axis} of '{info.name}' '{symbol}'")
            if known != size:
                raise LightNetError(f"the model calls {before} and axis {axis} of '{info.name}' '{symbol}', so that "
                                    "they are of one size, but they "
                                    f"have {known} and {size} elements", SourceLoc(self.model.path),
                                    label="onnx.symbol")  # fmt: skip

    def open_shapes(self, opened: Mapping[str, ValueInfo]) -> NeedsShape:
        """The error for inputs whose shapes are open."""
        error = NeedsShape(_say_open(opened), SourceLoc(self.model.path))
        error.inputs = frozenset(opened)
        return error

    def given_value(self, info: ValueInfo) -> Value:
        """An input that is a constant of this import."""
        array = np.asarray(self.given[info.name])
        if info.dims is not None and len(info.dims) != array.ndim:
            raise LightNetError(f"input '{info.name}' has shape {_shape(info.dims)}, and its value {list(array.shape)}",
                                SourceLoc(self.model.path), label="onnx.input-shape")  # fmt: skip
        self.tie(info, array.shape)
        dtype = BY_NAME[info.dtype]
        return entered(self.graph, self.graph.constant(checked_array(info.name, array, array.shape, dtype), dtype))

    def weight(self, tensor: OnnxTensor) -> Value | _Missing:
        """An initializer."""
        if tensor.dtype not in BY_NAME:
            return _Missing(f"initializer '{tensor.name}' has type {tensor.dtype}, which is not supported")
        with self.graph.node(SourceLoc(self.model.path), tensor.name, f"initializer '{tensor.name}'"):
            return self.value_of(tensor, tensor.name, self.model.ir_version >= 4 and tensor.name not in self.fed)

    def value_of(self, tensor: OnnxTensor, name: str, is_fixed: bool = True) -> Value:
        """A tensor that is known, not loaded; of a storage type as its values, marked."""
        form = FORMATS.get(tensor.dtype)
        value = self.graph.weight(name, tensor.dims, tensor.dtype if form is None else form.carrier, tensor.load,
                                  is_fixed)  # fmt: skip
        value.storage = None if form is None else tensor.dtype
        return value

    def contents(self, tensor: Any) -> np.ndarray:
        """The contents of a tensor attribute."""
        if not isinstance(tensor, OnnxTensor):
            raise LightNetError(f"expected a tensor as an attribute, got {tensor!r:.60}", label="onnx.node")
        if tensor.dtype not in BY_NAME:
            raise Unsupported(f"type {tensor.dtype} is not supported")
        return tensor.load()

    # -- nodes

    def survey(self, graph: OnnxGraph) -> None:
        """Refuse what has neither a handler nor a function, whatever else a missing shape or value hides."""
        reasons: dict[tuple[str, str], str | None] = {}
        for node in graph.nodes:
            key = node.domain, node.op_type
            if key not in reasons:
                known = key in self.model.functions or handler_of(*key) is not None
                reasons[key] = None if known else functions.why_not(node, self.opsets.get(node.domain, 0))
            if (reason := reasons[key]) is not None:
                self.refuse(node, reason)

    def nodes(self, nodes: Sequence[OnnxNode], scope: Scope) -> None:
        for node in nodes:
            self.node(node, scope)

    def node(self, node: OnnxNode, scope: Scope) -> None:
        """Import one node and define its outputs."""
        self.step()
        inputs = [self.read(name, scope) if name else None for name in node.inputs]
        found: Sequence[Any]
        if missing := next((i for i in inputs if isinstance(i, _Missing)), None):
            if missing.why.startswith("initializer"):
                self.refuse(node, missing.why)
            found = [_Missing("")] * len(node.outputs)
        else:
            found = self.attempt(node, inputs)
        for name, value in zip(node.outputs, (*found, *[None] * len(node.outputs))):
            if not name:
                continue
            scope[name] = value
            if isinstance(value, Value) and len(self.scopes) == 1 and value.storage is None:
                self.graph.set_name(value, name)

    def step(self) -> None:
        """Count a node, or a trip of a loop, against the limit."""
        self.count += 1
        if self.count > MAX_NODES:
            raise LightNetError(f"the model expands to more than {MAX_NODES} nodes", SourceLoc(self.model.path))

    def attempt(self, node: OnnxNode, inputs: Sequence[Value | None]) -> Sequence[Any]:
        """The outputs of a node; where it cannot be imported, what stands for them."""
        base = self.prefix + (node.name or node.op_type.lower())
        try:
            with self.graph.node(SourceLoc(self.model.path), base, str(node)):
                results = self.imported(node, inputs)
        except Unsupported as e:
            self.refuse(node, str(e))
            return [_Missing("")] * len(node.outputs)
        except Poisoned:
            return [_Missing("")] * len(node.outputs)
        except NeedsValue as e:
            self.needed.append(e)
            return [_Missing("")] * len(node.outputs)
        found = results if isinstance(results, tuple | list) else (results,)
        for i, name in enumerate(node.outputs):
            if name and (i >= len(found) or found[i] is None):
                self.refuse(node, f"its output {i} ('{name}') is not supported")
                return [_Missing("")] * len(node.outputs)
        return found

    def imported(self, node: OnnxNode, inputs: Sequence[Value | None]) -> Any:
        """The result of a node's handler, or else its function body."""
        function = self.model.functions.get((node.domain, node.op_type))
        if function is not None:
            return self.expanded(node, inputs, function)
        opset = self.opsets.get(node.domain)
        if opset is None:
            raise Unsupported(f"no opset of domain '{node.domain}' is imported")
        handler = handler_of(node.domain, node.op_type)
        if any(isinstance(i, Items) for i in inputs) and not takes_sequences(node.domain, node.op_type):
            raise Unsupported("an input is a sequence")
        storage = [i.storage for i in inputs if isinstance(i, Value) and i.storage]
        if storage and node.op_type not in AWARE:
            raise Unsupported(f"an input is stored as {storage[0]}: cast or dequantise it first")
        if handler is not None:
            seen = Node(self, node, opset)
            try:
                found = called(handler, seen, inputs)
            except Undecided as e:  # whose inputs, given as constants, decide it
                self.undecided(seen, e)
                seen.need_inputs(inputs_of(e.dim), str(e), f"a size ({e})")
            return moved(found, storage[0]) if storage and node.op_type in MOVES and inputs[0].storage else found
        function = functions.body_of(node, inputs, opset)
        if function is None:
            raise Unsupported(functions.why_not(node, opset) or f"its function body needs a newer opset than {opset}")
        return self.expanded(node, inputs, function)

    def undecided(self, node: Node, error: Undecided) -> None:
        """Learn that two dims are one, or give the network up for open shapes, where calls decide `error`."""
        if is_counted(error.dim):
            return
        if error.is_same and (facts := equal(error.dim)):
            raise LearntError(facts, str(node.node)) from None
        names = {s.name for s in error.dim.symbols}
        opened = NeedsShape(f"{node.node}: {error}: give the shapes of inputs", SourceLoc(self.model.path))
        ours = {n: {s.name for d in v.spec.open_dims for s in d.symbols} for n, v in self.values.items()}
        opened.inputs = frozenset(n for n, found in ours.items() if found & names)
        raise opened from None

    def expanded(self, node: OnnxNode, inputs: Sequence[Value | None], function: OnnxFunction) -> list[Any]:
        """The outputs of a node that is a call of `function`."""
        if len(self.scopes) >= MAX_DEPTH:
            raise LightNetError(f"functions are nested deeper than {MAX_DEPTH}", label="onnx.depth")
        scope: Scope = dict.fromkeys(function.inputs)
        scope.update(zip(function.inputs, inputs))
        before = self.opsets, self.prefix
        self.opsets = {**self.opsets, **function.opsets}
        self.prefix = f"{self.prefix}{node.name or node.op_type.lower()}/"
        self.scopes.append(scope)
        try:
            self.nodes(functions.bound_body(function, node), scope)
            found = [self.read(name, scope) for name in function.outputs]
        finally:
            self.scopes.pop()
            self.opsets, self.prefix = before
        return found

    def inline(self, graph: OnnxGraph, inputs: Sequence[Value | Items]) -> list[Any]:
        """The outputs of a subgraph, which sees the names around it."""
        if len(self.scopes) >= MAX_DEPTH:
            raise LightNetError(f"subgraphs are nested deeper than {MAX_DEPTH}", label="onnx.depth")
        self.step()
        scope: Scope = ChainMap({}, self.scopes[-1])
        scope.update((t.name, self.weight(t)) for t in graph.initializers.values())
        scope.update(zip((i.name for i in graph.inputs), inputs))
        self.scopes.append(scope)
        try:
            self.nodes(graph.nodes, scope)
            return [self.read(o.name, scope) for o in graph.outputs]
        finally:
            self.scopes.pop()

    def read(self, name: str, scope: Scope) -> Value | Items | _Missing | None:
        if name not in scope:
            raise LightNetError(f"the name '{name}' is not defined", SourceLoc(self.model.path), label="onnx.name")
        return scope[name]

    # -- refusing

    def refuse(self, node: OnnxNode, reason: str) -> None:
        name = f"'{node.name}'" if node.name else f"#{node.index}"
        refusal = f"{self.prefix}{node.op_type}", name, reason, None
        if refusal not in self.refused[-MAX_LISTED:]:
            self.refused.append(refusal)

    def refusal(self) -> LightNetError:
        """One error for everything that cannot be imported."""
        count = len(self.refused)
        error = LightNetError(f"the model cannot be imported: {count} node{'s are' if count > 1 else ' is'} not "
                              "supported", SourceLoc(self.model.path), label="onnx.unsupported")  # fmt: skip
        return list_refused(error, self.refused)

    def needs(self) -> NeedsValue:
        """One error for all inputs whose values decide shapes."""
        error = NeedsValue("; ".join(dict.fromkeys(e.message for e in self.needed)), SourceLoc(self.model.path))
        error.inputs = frozenset().union(*(e.inputs for e in self.needed))
        error.notes = [(None, "give the value, as in --value NAME=@file.npy or --value NAME=1,2,3")]
        return error


def _say_open(opened: Mapping[str, ValueInfo]) -> str:
    what = ", ".join(f"'{n}' {_shape(i.dims)}" for n, i in opened.items())
    example = " ".join(f"--shape {n}={_example(i.dims)}" for n, i in opened.items())
    python = "lightnet.compile(path, shapes={name: dims})"
    return f"the model leaves the shape of {what} open: give it, as in {example} (in Python: {python})"


def _is_closed(dims: Sequence[int | str | None] | None) -> bool:
    return dims is not None and all(isinstance(d, int) for d in dims)


def _draws(graph: Graph, seed: int | str) -> Draws:
    from lightnet.frontends.random import Draws

    return Draws(graph, seed)


def _shape(dims: Sequence[int | str | None] | None) -> str:
    return "of unknown rank" if dims is None else f"[{', '.join('?' if d is None else str(d) for d in dims)}]"


def _example(dims: Sequence[int | str | None] | None) -> str:
    return "1x3x224x224" if dims is None else "x".join(str(d) if isinstance(d, int) else "1" for d in dims) or "1"
