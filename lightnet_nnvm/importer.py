"""NNVM or MXNet graph → level-1 module: a node at a time, through the handlers in `ops/`.

A graph has variables, not inputs and weights: a variable is a parameter where the weights name it, where an op reads it
as one, or where its name or hidden attributes are a parameter's; any other is an input. A parameter's shape is what the
weights or the graph say, or follows from the op that reads it. What old graphs leave out (auxiliary states) is made up,
what only training needs (labels) is left out. Imports the reader, the graph builder and the handlers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.frontends.graph import Graph, Value
from lightnet.frontends.handlers import MAX_LISTED, Unsupported, arity, called, list_refused
from lightnet.frontends.loading import Imported, OpenError
from lightnet.frontends.open_dims import LearntError, equal
from lightnet.ir.collector import collector_paused
from lightnet.runtime.dims import Dim, Undecided
from lightnet.runtime.dtypes import BY_NAME, DType
from lightnet.runtime.mxnet import strip_prefix
from lightnet.runtime.program import unknown
from lightnet.runtime.weights import WeightStore
from lightnet_nnvm import attributes, reader
from lightnet_nnvm.node import Handler, Lazy, Node, handlers
from lightnet_nnvm.pairs import DTYPE_NUMBERS, OUTPUT_NAMES
from lightnet_nnvm.reader import Entry, GraphNode, NnvmGraph, who

#: Ends of names that MXNet gives to parameters and states.
_PARAM_SUFFIXES = ("_weight", "_bias", "_gamma", "_beta", "_moving_mean", "_moving_var", "_running_mean",
                   "_running_var", "_parameters")  # fmt: skip
#: Hidden attributes that only parameters have.
_PARAM_KEYS = ("init", "lr_mult", "wd_mult", "storage_type")


class _Missing:
    """Stands for the output of a node that could not be imported: who reads it is not to blame."""


_MISSING = _Missing()


def read(text: str, name: str, *, shapes: Mapping[str, Sequence[int]] | None = None, weights: WeightStore | None = None,
         internals: bool = False) -> tuple[ModuleOp, WeightStore]:  # fmt: skip
    """The level-1 module of a graph in JSON, and the store of its constants and of what `weights` hold for it.

    `shapes` gives variables their dims, numbers or symbols; the names in `weights` may begin with ``arg:`` or ``aux:``.
    With `internals`, the outputs of all nodes are outputs of the network. Raises `LearntError` where an op needs a fact
    on symbols, `OpenError` where the shape of an input is open, and `LightNetError`, with a place, for what is no valid
    graph and (all of it at once) for what cannot be imported.
    """
    graph = reader.read(text, name)
    try:
        return to_module(graph, shapes or {}, weights, internals)
    except OpenError as e:
        e.again = lambda shapes, values: Imported(*to_module(graph, shapes, weights, internals))
        raise


@collector_paused()
def to_module(graph: NnvmGraph, shapes: Mapping[str, Sequence[int]], weights: WeightStore | None,
              internals: bool) -> tuple[ModuleOp, WeightStore]:  # fmt: skip
    """As `read`, from a graph."""
    return _Importer(graph, shapes, weights, internals).run()


class _Importer:
    def __init__(
        self, graph: NnvmGraph, shapes: Mapping[str, Sequence[int]], weights: WeightStore | None, internals: bool
    ):
        self.graph, self.shapes, self.weights, self.internals = graph, shapes, weights, internals
        self.g = Graph(graph.file)
        self.nodes = [graph.nodes[i] for i in graph.order]
        self.handlers = handlers()
        self.stored = {strip_prefix(name): name for name in weights or ()}
        self.values: dict[Entry, Value | Lazy | _Missing] = {}
        self.made_outputs: dict[int, int] = {}  # how many outputs a node has
        self.by_name: dict[str, Lazy] = {}  # variables: those of one name are one
        self.made: set[str] = set()  # params that ops read
        self.refused: list[tuple[GraphNode, str]] = []
        self.open: dict[str, GraphNode] = {}

    def run(self) -> tuple[ModuleOp, WeightStore]:
        self.check_ops()
        self.variables()
        for node in self.nodes:
            if not node.is_variable:
                self.node(node)
        if self.refused:
            raise self.refusal()
        outputs = self.outputs()
        if self.open:
            raise self.open_shapes()
        module, store = self.g.finish(outputs)
        return module, self.own_weights(store)

    def own_weights(self, constants: WeightStore) -> WeightStore:
        """The constants, and what the weights hold for this graph, also under the names that they have there."""
        if self.weights is None:
            return constants
        used = {name: self.stored[name] for name in self.made if name in self.stored}
        return constants.under(self.weights.renamed({**used, **{key: key for key in used.values()}}))

    def check_ops(self) -> None:
        """Refuse, all at once, the ops that have no handler."""
        self.refused = [(n, "there is no lowering of this op") for n in self.nodes
                        if not n.is_variable and n.op not in self.handlers]  # fmt: skip
        if self.refused:
            raise self.refusal()

    # -- variables

    def variables(self) -> None:
        params: set[int] = set()
        read_at_all: set[int] = {head for head, _ in self.graph.heads}
        for node in self.nodes:
            handler = self.handlers.get(node.op)
            for i, (ref, _) in enumerate(node.inputs):
                if handler is not None and i in handler.labels:
                    continue
                read_at_all.add(ref)
                if handler is not None and i in handler.params:
                    params.add(ref)
        for node in self.nodes:
            if node.is_variable and node.index in read_at_all:
                self.values[node.index, 0] = self.variable(node, node.index in params)
        names = {node.name for node in self.graph.nodes if node.is_variable}
        if unknown_names := [n for n in self.shapes if n not in names]:
            raise unknown("variable", unknown_names[0], sorted(names)).at(SourceLoc(self.graph.file))

    def variable(self, node: GraphNode, read_as_param: bool) -> Lazy:
        name = node.name or f"var{node.index}"
        if (known := self.by_name.get(name)) is not None:
            return known
        is_param = (read_as_param or name in self.stored or name.endswith(_PARAM_SUFFIXES)
                    or any(key in node.hidden for key in _PARAM_KEYS))  # fmt: skip
        hint, dtype = self.declared(node, name)

        def make(dims: tuple[int, ...], dtype: DType) -> Value:
            with self.g.node(node.loc, name, who(node)):
                if not is_param:
                    return self.g.input(name, dims, dtype)
                self.made.add(name)
                return self.g.param(name, dims, dtype)

        lazy = self.by_name[name] = Lazy(name, hint, dtype, make)
        lazy.is_param = is_param
        return lazy

    def declared(self, node: GraphNode, name: str) -> tuple[tuple[int, ...] | None, DType | None]:
        """The dims and type that the weights, the caller and the graph give a variable, in this order."""
        dtype = self.declared_dtype(node)
        if name in self.stored:
            assert self.weights is not None
            stored = self.stored[name]
            dtype = self.weights.dtype(stored) or dtype
            return self.weights.dims(stored), dtype
        if name in self.shapes:
            return tuple(d if isinstance(d, Dim) else int(d) for d in self.shapes[name]), dtype
        for text in (node.hidden.get("shape"), self.inferred("shape", "list_shape", node)):
            dims = attributes.as_ints(_parsed(text)) if isinstance(text, str) else text
            if isinstance(dims, list | tuple) and dims and all(type(d) is int for d in dims):
                return tuple(max(d, 0) for d in dims), dtype
        return None, dtype

    def declared_dtype(self, node: GraphNode) -> DType | None:
        number = attributes.attribute_int(_parsed(node.hidden.get("dtype", "None")))
        if number is None:
            number = self.inferred("dtype", "list_int", node)
        valid = type(number) is int and 0 <= number < len(DTYPE_NUMBERS)
        return BY_NAME.get(DTYPE_NUMBERS[number]) if valid else None

    def inferred(self, key: str, kind: str, node: GraphNode) -> Any:
        """The value that an NNVM pass has written into the graph's attributes for the output of a variable; None if
        nothing.
        """
        item, pointers = self.graph.attrs.get(key), self.graph.node_row_ptr
        if pointers is None or self.graph.nodes[node.index] is not node:
            return None
        if type(item) is not list or len(item) != 2 or item[0] != kind or type(item[1]) is not list:
            return None
        at = pointers[node.index]
        return item[1][at] if at < len(item[1]) else None

    # -- nodes

    def node(self, node: GraphNode) -> None:
        handler = self.handlers[node.op]
        name = node.name or f"{node.op.strip('_').lower()}{node.index}"
        with self.g.node(node.loc, name, who(node)):
            try:
                found = self.attempt(node, handler, name)
            except Unsupported as e:
                self.refused.append((node, str(e)))
                found = None
            except Undecided as e:
                if e.is_same and (facts := equal(e.dim)):
                    raise LearntError(facts, who(node)) from None
                self.refused.append((node, f"{e}: give it a number"))
                found = None
            except LightNetError as e:
                if e.source_line is None:
                    e.source_line = self.graph.text.lines.line_at(node.offset)
                raise
        results = found if isinstance(found, tuple) else (found,)
        self.made_outputs[node.index] = len(results) if found is not None else 0
        for i, value in enumerate(results):
            self.values[node.index, i] = _MISSING if value is None else value

    def attempt(self, node: GraphNode, handler: Handler, name: str) -> Any:
        """The result of the handler on a node; None where an input is missing."""
        operands: list[Value | Lazy | None] = []
        for i, entry in enumerate(node.inputs):
            operand = None if i in handler.labels else self.operand(node, entry, handler, i)
            operands.append(operand)
        if _MISSING in operands:
            return None
        operands += [self.made_up(node, f"{name}_{aux}") for aux in self.absent(node, handler)]
        return called(handler.function, Node(self.g, node, self.graph.version), operands)

    def operand(self, node: GraphNode, entry: Entry, handler: Handler | None = None, position: int = 0) -> Any:
        """The operand that a node reads at a position. A parameter stays open until the op fixes it, since not every
        form of weights has shapes; another variable only where the op can say its shape, and nothing else does.
        """
        index, output = entry
        if entry not in self.values:
            have = self.made_outputs[index]
            if have == 0:
                return _MISSING
            raise LightNetError(f"reads output {output} of {who(self.graph.nodes[index])}, which has {have}",
                                label="nnvm.inputs")  # fmt: skip
        value = self.values[entry]
        if not isinstance(value, Lazy):
            return value
        if handler is not None and position in handler.params:
            return value.value or value
        if (known := value.known()) is not None:
            return known
        if handler is not None and position in handler.lazy:
            return value
        self.open[value.name] = node
        return _MISSING

    def absent(self, node: GraphNode, handler: Handler) -> Sequence[str]:
        """The auxiliary states that a graph of MXNet before 0.9 leaves out."""
        lacks_all = handler.aux and len(node.inputs) == arity(handler.function)[1] - len(handler.aux)
        return handler.aux if lacks_all else ()

    def made_up(self, node: GraphNode, name: str) -> Lazy:
        stand_in = GraphNode(node.index, "null", name, [], {}, {}, [], node.loc, node.offset)
        return self.variable(stand_in, True)

    # -- outputs

    def outputs(self) -> dict[str, Value]:
        """The outputs by MXNet's names: ``<node>_output``, with a number where the node has several."""
        wanted, names = list(self.graph.heads), self.given_names()
        if self.internals:
            wanted = [(n.index, i) for n in self.nodes if not n.is_variable for i in range(self.made_outputs[n.index])]
            names = []
        found: dict[str, Value] = {}
        for k, (index, output) in enumerate(wanted):
            node = self.graph.nodes[index]
            if (index, output) not in self.values and self.made_outputs[index]:
                raise self.graph.error(
                    node, f"the graph's head is output {output}, and it has {self.made_outputs[index]}"
                )
            value = self.operand(node, (index, output))
            if value is not _MISSING:
                found[_unique(names[k] if names else self.output_name(node, output), found)] = value
        return found

    def given_names(self) -> list[str]:
        """The names of the outputs that our exporter writes into the graph's attributes, beside MXNet's of nodes; none
        where they do not fit."""
        item = self.graph.attrs.get(OUTPUT_NAMES)
        if type(item) is not list or len(item) != 2 or item[0] != "list_str" or type(item[1]) is not list:
            return []
        names = item[1]
        fits = len(names) == len(self.graph.heads) and all(
            isinstance(n, str) and 0 < len(n) <= reader.MAX_NAME and n.isprintable() for n in names
        )
        return names if fits else []

    def output_name(self, node: GraphNode, output: int) -> str:
        if node.is_variable:
            return node.name
        names = self.handlers[node.op].outputs
        last = "output" if self.made_outputs[node.index] == 1 else f"output{output}"
        last = names[output] if output < len(names) else last
        return f"{node.name}_{last}" if node.name else last

    # -- refusing

    def refusal(self) -> LightNetError:
        """One error for everything that cannot be imported, by op and reason."""
        error = LightNetError(f"{len(self.refused)} of {len(self.nodes)} nodes cannot be imported",
                              SourceLoc(self.graph.file), label="nnvm.unsupported")  # fmt: skip
        return list_refused(error, ((n.op[:80], f"'{n.name[:80]}'", reason, n.loc) for n, reason in self.refused))

    def open_shapes(self) -> LightNetError:
        """The error for variables whose shapes nothing says: one that a call can answer where all of them are
        inputs."""
        lazies = [self.by_name.get(name) for name in self.open]
        what = ", ".join(f"'{name}'" for name in list(self.open)[:MAX_LISTED])
        more = f" and {len(self.open) - MAX_LISTED} more" if len(self.open) > MAX_LISTED else ""
        first = next(iter(self.open))
        message = f"the graph does not say the shape of {what}{more}: give it, as in --shape {first}=1x3x224x224"
        loc = SourceLoc(self.graph.file)
        if any(lazy is None or lazy.is_param for lazy in lazies):
            return LightNetError(f"{message}, or give the weights", loc, label="nnvm.open-shape")
        error = OpenError(message, loc, label="nnvm.open-shape")
        error.inputs = frozenset(self.open)
        inputs = [lazy for lazy in self.by_name.values() if not lazy.is_param]
        error.signature = {lazy.name: ((lazy.dtype or BY_NAME["f32"]).name, _open_dims(lazy)) for lazy in inputs}
        return error


def _open_dims(lazy: Lazy) -> tuple[int | None, ...] | None:
    """The dims of an input as far as they are known: an open one is None, and None alone is an open rank."""
    hint = lazy.value.dims if lazy.value is not None else lazy.hint
    return None if hint is None else tuple(d or None for d in hint)


def _parsed(text: str | None) -> attributes.Attribute:
    """The value of a hidden attribute; None where it is no such text, which is then of no use."""
    try:
        return attributes.parse_attribute(text) if text is not None else None
    except attributes.AttributeText:
        return None


def _unique(name: str, taken: Mapping[str, Any]) -> str:
    count, found = 0, name
    while found in taken:
        count += 1
        found = f"{name}_{count}"
    return found
