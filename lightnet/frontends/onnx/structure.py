"""Checks of an ONNX model's structure: names, their order, subgraphs, functions. Only the model's own data is looked
at.

ONNX's rules (docs/IR.md): a graph is in SSA form, its nodes stand in topological order, a subgraph sees the names that
are defined around it at its node (and may shadow them), and functions do not call themselves. Imports the model's data
and diagnostics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.frontends.onnx.model import AttributeRef, OnnxFunction, OnnxGraph, OnnxModel, OnnxNode

#: Nodes after all functions of the model are expanded, and functions inside of functions.
MAX_EXPANDED = 200_000
MAX_CALLS = 24
#: Names of a cycle that an error shows.
_SHOWN = 8

Key = tuple[str, str]


def check_structure(model: OnnxModel) -> None:
    """Raises LightNetError, with the node and the names concerned, for a model that breaks a rule."""
    _Checker(model).run()


class _Checker:
    def __init__(self, model: OnnxModel):
        self.model = model

    def fail(self, where: Sequence[object], message: str) -> NoReturn:
        raise LightNetError(": ".join([*map(str, where), message]), SourceLoc(self.model.path), label="onnx.model")

    def run(self) -> None:
        model = self.model
        for function in model.functions.values():
            self.function(function)
        graph = model.graph
        for info in graph.inputs:
            if info.dtype == "undefined" and info.name not in graph.initializers:
                self.fail([f"input '{info.name}'"], "its type is not given")
        if not graph.outputs:
            self.fail([], "the graph has no outputs")
        self.graph(graph, [], model.opsets, None, [])
        self.calls()

    # -- names

    def graph(self, graph: OnnxGraph, outer: list[set[str]], opsets: Mapping[str, int],
              attributes: frozenset[str] | None, where: list[object]) -> None:  # fmt: skip
        """Check a graph that sees the names in `outer`; `attributes` are those of the function around it, if any."""
        inputs = [i.name for i in graph.inputs]
        self.unique(inputs, "input", where)
        self.unique([o.name for o in graph.outputs], "output", where)
        defined = {*inputs, *graph.initializers}
        self.nodes(graph.nodes, defined, outer, opsets, attributes, where)
        for info in graph.outputs:
            if not _visible(info.name, defined, outer):
                self.fail(where, f"output '{info.name}' of the graph is not defined")

    def nodes(self, nodes: Sequence[OnnxNode], defined: set[str], outer: list[set[str]], opsets: Mapping[str, int],
              attributes: frozenset[str] | None, where: list[object]) -> None:  # fmt: skip
        """Check nodes in order, and add what they define to `defined`."""
        scopes = [*outer, defined]
        for node in nodes:
            function = self.model.functions.get((node.domain, node.op_type))
            if function is not None:
                for what, have, most in (("in", node.inputs, function.inputs), ("out", node.outputs, function.outputs)):
                    if len(have) > len(most):
                        self.fail([*where, node], f"it has {len(have)} {what}puts, and its function {len(most)}")
            elif node.domain not in opsets:
                domain = node.domain or "ai.onnx"
                self.fail([*where, node], f"the model does not import the domain '{domain}'")
            for name in node.inputs:
                if name and name not in defined and not _visible(name, defined, outer):
                    self.undefined(name, node, nodes, where)
            for key, value in node.attributes.items():
                self.attribute(key, value, scopes, opsets, attributes, [*where, node])
            for name in node.outputs:
                if name in defined:
                    self.fail([*where, node], f"its output '{name}' is defined twice")
                if name:
                    defined.add(name)

    def attribute(self, key: str, value: Any, scopes: list[set[str]], opsets: Mapping[str, int],
                  attributes: frozenset[str] | None, where: list[object]) -> None:  # fmt: skip
        if isinstance(value, AttributeRef) and value.name not in (attributes or ()):
            what = "of the function" if attributes is not None else "outside of a function"
            self.fail(where, f"attribute '{key}' refers to the attribute '{value.name}' {what}, which does not exist")
        for graph in _graphs(value):
            self.graph(graph, scopes, opsets, attributes, [*where, f"attribute '{key}'"])

    def unique(self, names: Iterable[str], what: str, where: list[object]) -> None:
        seen: set[str] = set()
        for name in names:
            if name in seen:
                self.fail(where, f"{what} '{name}' is declared twice")
            seen.add(name)

    def undefined(self, name: str, node: OnnxNode, nodes: Sequence[OnnxNode], where: list[object]) -> NoReturn:
        """The error for a name that is not defined before its use: it is on a cycle, comes later, or never."""
        makers = {output: n for n in nodes for output in n.outputs if output}
        maker = makers.get(name)
        if maker is None:
            self.fail([*where, node], f"its input '{name}' is not defined")
        cycle = _cycle(name, node, makers)
        if not cycle:
            self.fail([*where, node], f"its input '{name}' is defined later, by {maker}: nodes must be in order")
        shown = [f"'{n}'" for n in cycle[:_SHOWN]] + (["..."] if len(cycle) > _SHOWN else []) + [f"'{cycle[0]}'"]
        self.fail([*where, node], f"it is on a cycle: {' <- '.join(shown)}")

    # -- functions

    def function(self, function: OnnxFunction) -> None:
        where: list[object] = [f"function '{function.name}'"]
        attributes = [*function.attributes, *function.defaults]
        self.unique(function.inputs, "input", where)
        self.unique(function.outputs, "output", where)
        self.unique(attributes, "attribute", where)
        for key, value in function.defaults.items():
            if isinstance(value, AttributeRef):
                self.fail(where, f"the default of attribute '{key}' refers to another attribute")
        defined = set(function.inputs)
        opsets = {**self.model.opsets, **function.opsets}
        self.nodes(function.nodes, defined, [], opsets, frozenset(attributes), where)
        for name in function.outputs:
            if name not in defined:
                self.fail(where, f"output '{name}' is not defined")

    def calls(self) -> None:
        """Refuse recursion, deep calls, and functions that double themselves into too many nodes."""
        functions = self.model.functions
        called = {
            key: [n for n in _nodes(f.nodes) if (n.domain, n.op_type) in functions] for key, f in functions.items()
        }
        sizes: dict[Key, int] = {}
        for root in functions:
            path: list[Key] = []
            work = [(root, False)]
            while work:
                key, done = work.pop()
                if done:
                    path.pop()
                    inner = [sizes[n.domain, n.op_type] for n in called[key]]
                    sizes[key] = sum(1 for _ in _nodes(functions[key].nodes)) + sum(inner)
                    continue
                if key in path:
                    names = [f"'{name}'" for _, name in path[path.index(key) :]][:_SHOWN]
                    self.fail([], f"function '{key[1]}' calls itself: {' -> '.join([*names, repr(key[1])])}")
                if key in sizes:
                    continue
                if len(path) >= MAX_CALLS:
                    self.fail([], f"functions call each other deeper than {MAX_CALLS}")
                path.append(key)
                work.append((key, True))
                work += {(n.domain, n.op_type): False for n in called[key]}.items()
        total = sum(1 + sizes.get((n.domain, n.op_type), 0) for n in _nodes(self.model.graph.nodes))
        if total > MAX_EXPANDED:
            self.fail([], f"the model's functions expand to more than {MAX_EXPANDED} nodes")


def _visible(name: str, defined: set[str], outer: Sequence[set[str]]) -> bool:
    return name in defined or any(name in scope for scope in outer)


def _graphs(value: Any) -> tuple[OnnxGraph, ...]:
    """The graphs that an attribute holds."""
    if isinstance(value, OnnxGraph):
        return (value,)
    return value if isinstance(value, tuple) and value and isinstance(value[0], OnnxGraph) else ()


def _nodes(nodes: Iterable[OnnxNode]) -> Iterator[OnnxNode]:
    """Nodes, and those of their subgraphs."""
    for node in nodes:
        yield node
        for value in node.attributes.values():
            for graph in _graphs(value):
                yield from _nodes(graph.nodes)


def _reads(node: OnnxNode) -> Iterator[str]:
    """The names that a node reads, those of its subgraphs among them."""
    for inner in _nodes([node]):
        yield from inner.inputs


def _cycle(name: str, node: OnnxNode, makers: Mapping[str, OnnxNode]) -> list[str]:
    """Names on a cycle through `node`, of which `name` is an input, each made from the next; none if there is none."""
    goal = set(node.outputs)
    came: dict[str, str | None] = {name: None}
    work = [name]
    while work:
        at = work.pop()
        if at in goal:
            cycle, step = [], at
            while step is not None:
                cycle.append(step)
                step = came[step]  # type: ignore[assignment]
            return cycle[::-1]
        maker = makers.get(at)
        for source in _reads(maker) if maker else ():
            if source and source not in came:
                came[source] = at
                work.append(source)
    return []
