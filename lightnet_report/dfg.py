"""The data-flow graph of a module: document 004's `ln_dfg`, and the one graph that tools and reports look at.

Nodes are ops, kernels or launches, edges the tensors between them; `graph.py` reads them out of a module of any
level. The IR is its own graph, so nothing is kept in step by hand: read a new one after a change. Imports xDSL and
diagnostics.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TextIO

from xdsl.ir import Operation

from lightnet.dataclasses import dataclass, field, replace
from lightnet.diagnostics import LightNetError, SourceLoc, printable

#: A picture has at most so many nodes; what comes behind is left out, and counted.
MAX_NODES = 20_000


@dataclass(frozen=True)
class DataTensor:
    """A value as people read it: `type` is ``1x3x8x8xf32`` (``1x3x8x8xf32 c16h1`` in a layout), `place` ``arena+64`` or
    empty."""

    name: str
    type: str
    place: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.name, self.type, self.place and f"@ {self.place}")))

    @property
    def label(self) -> str:
        """The label that tells it from others: its name, else its place."""
        return self.name or self.place or self.type


@dataclass(frozen=True)
class Inner:
    """An op in a kernel; `tensors` are its results' names in the source, `reads` the positions in the kernel of the ops
    whose results it reads (-1: an operand)."""

    optype: str
    title: str
    reads: tuple[int, ...] = ()
    tensors: tuple[str, ...] = ()


@dataclass(eq=False)
class DataNode:
    """An op, a kernel or a launch. `kind`: input, weight (what is there before a run), op, host, kernel, launch or
    output; `title` is its name in the source, or what it computes, `name` the op's name alone; `optype` the op's name
    (of a kernel those of its ops). `weights` are the weights that it reads, where these are no nodes."""

    kind: str
    title: str
    optype: str
    where: SourceLoc | None = None
    group: str = ""  # the function it stands in, where there are several
    results: tuple[DataTensor, ...] = ()
    weights: tuple[DataTensor, ...] = ()
    inner: tuple[Inner, ...] = ()
    notes: tuple[str, ...] = ()
    op: Operation | None = None
    name: str = ""
    number: int = -1  # its position in the graph

    @property
    def label(self) -> str:
        """A short name: that in the source, or the kind of op and its first tensor."""
        if self.name or self.kind in ("input", "launch", "host"):
            return self.name or self.title
        return self.title if self.title == self.optype or not self.title else f"{self.optype} {self.title}"


@dataclass(frozen=True)
class Edge:
    """`tensor` goes from node number `source` to node number `target`; None at the end that dangles. It is the source's
    result number `result`, or (None: of memory) of any."""

    source: int | None
    target: int | None
    tensor: DataTensor
    result: int | None = None

    @property
    def ends(self) -> tuple[int, int]:
        """The numbers of both nodes, of an edge that does not dangle."""
        assert self.source is not None and self.target is not None
        return self.source, self.target


@dataclass
class DataFlowGraph:
    """Nodes in program order, and the edges between them, one for each tensor that a node reads. A node may read what
    stands behind it: a module under construction, or one with cycles, is a graph, too."""

    nodes: list[DataNode] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    dangling: list[Edge] = field(default_factory=list)
    left_out: int = 0

    def add(self, node: DataNode) -> DataNode:
        """Add a node, which gets its number."""
        node.number = len(self.nodes)
        self.nodes.append(node)
        return node

    def link(self, source: DataNode | None, target: DataNode, tensor: DataTensor, result: int | None = None) -> None:
        """Add an edge; without a source it dangles."""
        if source is None:
            self.dangling.append(Edge(None, target.number, tensor))
        else:
            self.edges.append(Edge(source.number, target.number, tensor, result))

    # -- nodes and edges

    def find(self, name: str) -> DataNode | None:
        """The node of the op called `name` in the source, or None."""
        return next((node for node in self.nodes if node.name == name), None)

    def nexts(self, node: DataNode, tensor: str | None = None) -> list[DataNode]:
        """The nodes that read `node`'s result `tensor` (any of its results if None), in order."""
        edges = (e for e in self._at(node, _source) if tensor is None or e.tensor.label == tensor)
        return self._distinct(e.target for e in edges)

    def next(self, node: DataNode, tensor: str | None = None) -> DataNode | None:
        """The first of `nexts`, or None."""
        return next(iter(self.nexts(node, tensor)), None)

    def prev(self, node: DataNode, tensor: str) -> DataNode | None:
        """The node that makes what `node` reads as `tensor`, or None."""
        found = (e.source for e in self._at(node, _target) if e.tensor.label == tensor)
        return next((self.nodes[k] for k in found if k is not None), None)

    def prevs(self, node: DataNode) -> list[DataNode]:
        """The nodes that make what `node` reads, in order."""
        return self._distinct(e.source for e in self._at(node, _target))

    def _distinct(self, numbers: Iterable[int | None]) -> list[DataNode]:
        return [self.nodes[k] for k in sorted({k for k in numbers if k is not None})]

    def _at(self, node: DataNode, end: Callable[[Edge], int | None]) -> list[Edge]:
        """The edges that begin, or end, at a node."""
        kept = self.__dict__.get("_kept")
        if kept is None or kept[0] != len(self.edges):
            tables: dict[Callable, dict[int | None, list[Edge]]] = {_source: {}, _target: {}}
            for side, table in tables.items():
                for edge in self.edges:
                    table.setdefault(side(edge), []).append(edge)
            kept = self.__dict__["_kept"] = (len(self.edges), tables)
        return kept[1][end].get(node.number, [])

    # -- structure

    def dangling_ins(self) -> list[Edge]:
        """The edges that are read and made by no node."""
        return list(self.dangling)

    def dangling_outs(self) -> list[Edge]:
        """Results that no op of the graph reads: the outputs of a network, and what is computed for nothing."""
        found = []
        for node in self.nodes:
            read = {
                e.result
                for e in self._at(node, _source)
                if e.target is not None and self.nodes[e.target].kind != "output"
            }
            if node.kind != "output" and None not in read:
                found += [Edge(node.number, None, t, k) for k, t in enumerate(node.results) if k not in read]
        return found

    def outliers(self) -> list[DataNode]:
        """Nodes that are linked with no other."""
        linked = {k for e in self.edges if e.source != e.target for k in (e.source, e.target)}
        return [node for node in self.nodes if node.number not in linked]

    def layers(self) -> list[list[DataNode]]:
        """The nodes by topological layer: each reads only from layers before its own, and stands in the first such one.
        Raises `LightNetError` where there is a cycle."""
        waiting = [len(self.prevs(node)) for node in self.nodes]
        layers: list[list[DataNode]] = []
        ready = [node for node in self.nodes if not waiting[node.number]]
        while ready:
            layers.append(ready)
            following: list[DataNode] = []
            for reader in chain.from_iterable(map(self.nexts, ready)):
                waiting[reader.number] -= 1
                if not waiting[reader.number]:
                    following.append(reader)
            ready = sorted(following, key=lambda node: node.number)
        if sum(map(len, layers)) < len(self.nodes):
            cycle = self.cycles()[0]
            names = ", ".join(node.label for node in cycle)
            raise LightNetError(f"the ops {names} depend on each other", cycle[0].where, "dfg.cycle")
        return layers

    def cycles(self) -> list[list[DataNode]]:
        """The sets of nodes that depend on each other (strongly connected components, Tarjan 1972), each in program
        order; empty for a well-formed network."""
        order: dict[int, int] = {}
        low: dict[int, int] = {}
        stack: list[DataNode] = []
        waiting: set[int] = set()
        found: list[list[DataNode]] = []
        for start in self.nodes:
            work = [] if start.number in order else [self._entered(start, order, low, stack, waiting)]
            while work:  # an explicit stack: networks are deep
                node, following = work[-1]
                step = next(following, None)
                if step is not None and step.number not in order:
                    work.append(self._entered(step, order, low, stack, waiting))
                elif step is not None:
                    if step.number in waiting:
                        low[node.number] = min(low[node.number], order[step.number])
                else:
                    work.pop()
                    if work:
                        above = work[-1][0].number
                        low[above] = min(low[above], low[node.number])
                    if low[node.number] == order[node.number]:
                        found += self._component(node, stack, waiting)
        return found

    def _entered(
        self, node: DataNode, order: dict[int, int], low: dict[int, int], stack: list[DataNode], waiting: set[int]
    ) -> tuple[DataNode, Iterator[DataNode]]:
        """A node of the search, met now, and its readers."""
        order[node.number] = low[node.number] = len(order)
        stack.append(node)
        waiting.add(node.number)
        return node, iter(self.nexts(node))

    def _component(self, root: DataNode, stack: list[DataNode], waiting: set[int]) -> list[list[DataNode]]:
        """The component of `root`, taken off the stack, if it is a cycle."""
        part = [stack.pop()]
        while part[-1] is not root:
            part.append(stack.pop())
        waiting.difference_update(node.number for node in part)
        is_cycle = len(part) > 1 or root in self.nexts(root)
        return [sorted(part, key=lambda node: node.number)] if is_cycle else []

    def check(self) -> None:
        """Raise `LightNetError` for what is read and no op makes, a cycle, or a tensor that is read before it is
        made."""
        for edge in self.dangling:
            assert edge.target is not None
            reader = self.nodes[edge.target]
            message = f"`{reader.label}`'s tensor `{edge.tensor.label}` is made by no op of the network"
            raise LightNetError(message, reader.where, "dfg.dangling")
        self.layers()
        for edge in self.edges:
            source, target = edge.ends
            if source >= target:
                maker, reader = self.nodes[source], self.nodes[target]
                message = f"`{reader.label}` reads `{edge.tensor.label}` before `{maker.label}` makes it"
                raise LightNetError(message, reader.where, "dfg.order")

    # -- for people

    def picture(self) -> DataFlowGraph:
        """The graph as it is drawn: weights are lines of the nodes that read them, since they outnumber everything else
        and say nothing about the flow; of very many nodes the first ones; and every edge leads to a later node."""
        shown = [node for node in self.nodes if node.kind != "weight"]
        drawn = DataFlowGraph(left_out=max(0, len(shown) - MAX_NODES))
        numbers: dict[int | None, int] = {}
        for node in shown[:MAX_NODES]:
            read = (e for e in self._at(node, _target) if self.nodes[e.source or 0].kind == "weight")
            weights = (*node.weights, *(e.tensor for e in read))
            numbers[node.number] = drawn.add(replace(node, weights=weights)).number
        ends = ((numbers.get(e.source), numbers.get(e.target), e) for e in self.edges)
        drawn.edges = [replace(e, source=a, target=b) for a, b, e in ends if a is not None and b is not None and a < b]
        return drawn

    def print(self, stream: TextIO | None = None) -> None:
        """A line for each node: ``conv2d0: create0(x), create1(w) -> relu0(conv1)``."""
        out = stream or sys.stdout
        for node in self.nodes:
            out.write(f"{self._line(node)}\n")

    def _line(self, node: DataNode) -> str:
        ins = [
            (e.source, e.tensor)
            for e in (*self._at(node, _target), *(d for d in self.dangling if d.target == node.number))
        ]
        outs = [(e.target, e.tensor) for e in self._at(node, _source)]
        made, read = (", ".join(f"{self._end(k)}({t.label})" for k, t in ends) or "-" for ends in (ins, outs))
        return printable(f"{node.label}: {made} -> {read}")

    def _end(self, number: int | None) -> str:
        return "?" if number is None else self.nodes[number].label

    def text(self) -> str:
        """All of this for a terminal: layer by layer, what is linked with nothing or read by nothing, and whether it is
        well-formed."""
        try:
            layers, problem = self.layers(), ""
            self.check()
        except LightNetError as e:
            layers, problem = [] if e.label == "dfg.cycle" else self.layers(), e.message
        cycles = self.cycles()
        widest = max(map(len, layers), default=0)
        lines = [
            f"graph: {len(self.nodes)} nodes, {len(self.edges)} edges, {len(layers)} layers, at most {widest} side by "
            "side"
        ]
        for k, layer in enumerate(layers):
            lines += [f"layer {k}:", *(f"  {self._line(node)}" for node in layer)]
        lines += [f"cycle: {', '.join(n.label for n in cycle)}" for cycle in cycles]
        loose, unread = (", ".join(found) or "none" for found in (
            [n.label for n in self.outliers()],
            [f"{self._end(e.source)}({e.tensor.label})" for e in self.dangling_outs()]))  # fmt: skip
        lines += [f"linked with nothing: {loose}", f"read by no op: {unread}", f"check: {problem or 'well-formed'}"]
        return "".join(printable(line) + "\n" for line in lines)


def _source(edge: Edge) -> int | None:
    return edge.source


def _target(edge: Edge) -> int | None:
    return edge.target
