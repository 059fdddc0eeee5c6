"""The data-flow graph of a network as an analysis: document 004's `ln_dfg`, computed from the SSA values of a block.

Nodes are the ops of `@main` (the terminator left out), edges the tensors between them. The IR is its own graph, so
nothing is kept in step by hand: make a new one after a change. Imports xDSL and the op base.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import NamedTuple, TextIO

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.traits import IsTerminator

from lightnet.diagnostics import LightNetError
from lightnet.ir.locations import loc_of
from lightnet.ir.module import main_of
from lightnet.ir.op import name_of, tensor_names


class Edge(NamedTuple):
    """`tensor` goes from op `source` to op `target`; None at the end that dangles."""

    source: Operation | None
    target: Operation | None
    tensor: str


class DataFlowGraph:
    """The graph of one block. Ops may stand in any order: a block under construction, or one with cycles, is a graph,
    too."""

    def __init__(self, block: Block):
        self.ops: list[Operation] = [op for op in block.ops if not op.has_trait(IsTerminator)]
        self._index = {op: i for i, op in enumerate(self.ops)}
        self._names = _value_names(block, self.ops)

    @classmethod
    def of(cls, module: ModuleOp) -> DataFlowGraph:
        """The graph of a module's `@main`. Raises `LightNetError` when it has none."""
        return cls(main_of(module).body.block)

    # -- nodes and edges

    def name(self, value: SSAValue) -> str:
        """The name of a tensor, unique in the graph."""
        return self._names.get(value, "?")

    def find(self, name: str) -> Operation | None:
        """The op called `name` in the source network, or None."""
        return next((op for op in self.ops if name_of(op) == name), None)

    def edges(self) -> Iterator[Edge]:
        """Every edge between two ops, once for each use."""
        for op in self.ops:
            for value in op.operands:
                if value.owner in self._index:
                    yield Edge(value.owner, op, self.name(value))

    def nexts(self, op: Operation, tensor: str | None = None) -> list[Operation]:
        """The ops that read `op`'s result `tensor` (any of its results if None), in order."""
        found = {
            use.operation: None
            for value in op.results
            if tensor is None or self.name(value) == tensor
            for use in value.uses
            if use.operation in self._index
        }
        return sorted(found, key=self._index.__getitem__)

    def next(self, op: Operation, tensor: str | None = None) -> Operation | None:
        """The first of `nexts`, or None."""
        return next(iter(self.nexts(op, tensor)), None)

    def prev(self, op: Operation, tensor: str) -> Operation | None:
        """The op that makes `op`'s operand `tensor`, or None."""
        value = next((v for v in op.operands if self.name(v) == tensor), None)
        return value.owner if value is not None and value.owner in self._index else None

    def prevs(self, op: Operation) -> list[Operation]:
        """The ops that make the operands of `op`, in order."""
        found = {v.owner: None for v in op.operands if v.owner in self._index}
        return sorted(found, key=self._index.__getitem__)

    # -- structure

    def dangling_ins(self) -> list[Edge]:
        """Operands that no op of the graph makes."""
        return [Edge(None, op, self.name(v)) for op in self.ops for v in op.operands if v.owner not in self._index]

    def dangling_outs(self) -> list[Edge]:
        """Results that no op of the graph reads: the outputs of a network."""
        return [
            Edge(op, None, self.name(v))
            for op in self.ops
            for v in op.results
            if not any(use.operation in self._index for use in v.uses)
        ]

    def outliers(self) -> list[Operation]:
        """Ops that are linked with no other op."""
        return [op for op in self.ops if not self.prevs(op) and not self.nexts(op)]

    def layers(self) -> list[list[Operation]]:
        """The ops by topological layer: each reads only from layers before its own, and stands in the first such one.
        Raises `LightNetError` when there is a cycle."""
        waiting = {op: len(self.prevs(op)) for op in self.ops}
        layers: list[list[Operation]] = []
        ready = [op for op in self.ops if not waiting[op]]
        while ready:
            layers.append(ready)
            following: list[Operation] = []
            for op in ready:
                for reader in self.nexts(op):
                    waiting[reader] -= 1
                    if not waiting[reader]:
                        following.append(reader)
            ready = sorted(following, key=self._index.__getitem__)
        if sum(map(len, layers)) < len(self.ops):
            cycle = self.cycles()[0]
            raise LightNetError(f"the ops {', '.join(map(self.label, cycle))} depend on each other", loc_of(cycle[0]))
        return layers

    def cycles(self) -> list[list[Operation]]:
        """The sets of ops that depend on each other (strongly connected components, Tarjan 1972), each in order of the
        block; empty for a well-formed network."""
        order: dict[Operation, int] = {}
        low: dict[Operation, int] = {}
        stack: list[Operation] = []
        waiting: set[Operation] = set()
        found: list[list[Operation]] = []
        for start in self.ops:
            if start in order:
                continue
            work = [(start, iter(self.nexts(start)))]  # an explicit stack: networks are deep
            order[start] = low[start] = len(order)
            stack.append(start)
            waiting.add(start)
            while work:
                op, following = work[-1]
                step = next(following, None)
                if step is not None and step not in order:
                    order[step] = low[step] = len(order)
                    stack.append(step)
                    waiting.add(step)
                    work.append((step, iter(self.nexts(step))))
                    continue
                if step is not None:
                    if step in waiting:
                        low[op] = min(low[op], order[step])
                    continue
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[op])
                if low[op] == order[op]:
                    part = [stack.pop()]
                    while part[-1] is not op:
                        part.append(stack.pop())
                    waiting.difference_update(part)
                    if len(part) > 1 or op in self.nexts(op):
                        found.append(sorted(part, key=self._index.__getitem__))
        return found

    def check(self) -> None:
        """Raise `LightNetError` for an operand that no op makes, a tensor read before it is made, or a cycle."""
        for edge in self.dangling_ins():
            assert edge.target is not None
            raise LightNetError(
                f"`{self.label(edge.target)}`'s tensor `{edge.tensor}` is made by no op of the network",
                loc_of(edge.target),
                "dfg.dangling",
            )
        self.layers()
        for edge in self.edges():
            assert edge.source is not None and edge.target is not None
            if self._index[edge.source] >= self._index[edge.target]:
                raise LightNetError(
                    f"`{self.label(edge.target)}` reads `{edge.tensor}` before `{self.label(edge.source)}` makes it",
                    loc_of(edge.target),
                    "dfg.order",
                )

    # -- text

    def label(self, op: Operation) -> str:
        """A short name of an op: its name in the source, or its kind and first tensor."""
        return (
            name_of(op) or f"{op.name} {self.name(op.results[0]) if op.results else self._index.get(op, '')}".rstrip()
        )

    def print(self, stream: TextIO | None = None) -> None:
        """A line for each op: ``conv2d0: create0(x), create1(w) -> relu0(conv1)``."""
        out = stream or sys.stdout
        for op in self.ops:
            made = [f"{self.label(v.owner) if v.owner in self._index else '?'}({self.name(v)})" for v in op.operands]
            read = [
                f"{self.label(use.operation)}({self.name(v)})"
                for v in op.results
                for use in v.uses
                if use.operation in self._index
            ]
            out.write(f"{self.label(op)}: {', '.join(made) or '-'} -> {', '.join(read) or '-'}\n")

    def dot(self, title: str = "network") -> str:
        """The graph for Graphviz: ops as boxes, tensors on the edges, outputs as ellipses."""
        lines = [f"digraph {_quoted(title)} {{", "  node [shape=box];"]
        for i, op in enumerate(self.ops):
            text = f"{self.label(op)}\n{op.name}"
            lines.append(f"  n{i} [label={_quoted(text)}];")
        for edge in self.edges():
            a, b = self._index[edge.source], self._index[edge.target]
            lines.append(f"  n{a} -> n{b} [label={_quoted(edge.tensor)}];")
        for k, edge in enumerate(self.dangling_outs()):
            lines.append(f"  o{k} [shape=ellipse, label={_quoted(edge.tensor)}];")
            lines.append(f"  n{self._index[edge.source]} -> o{k};")
        return "\n".join([*lines, "}", ""])


def _value_names(block: Block, ops: list[Operation]) -> dict[SSAValue, str]:
    values = [*block.args, *(v for op in ops for v in op.results)]
    named = {v: n for op in ops for v, n in zip(op.results, tensor_names(op)) if n}
    taken = set(named.values())
    names: dict[SSAValue, str] = {}
    for i, value in enumerate(values):
        name = named.get(value)
        if name is None:
            name = f"%{value.name_hint or i}"
            while name in taken:
                name += "'"
            taken.add(name)
        names[value] = name
    return names


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
