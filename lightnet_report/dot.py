"""The graph of a module for Graphviz: `dot -Tsvg`. Imports `graph`.

Kernels are clusters with their ops, functions are clusters where there are several; an edge has its tensor's name, type
and place; weights are lines of the node that reads them. Equal modules give equal text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp

from lightnet.diagnostics import printable
from lightnet_report.dfg import DataFlowGraph, DataNode, DataTensor, Edge
from lightnet_report.graph import graph_of

#: Longest name in a label; a node lists at most so many weights.
LONGEST, WEIGHTS = 60, 4

SHAPES = {"input": "invhouse", "output": "house", "host": "note", "launch": "component"}


def dot(module: ModuleOp, title: str = "network") -> str:
    """The module as a digraph in the DOT language (https://graphviz.org/doc/info/lang.html)."""
    graph = graph_of(module).picture()
    lines = [
        f"digraph {_quoted(title)} {{",
        '  graph [rankdir=TB, compound=true, fontname="Helvetica", fontsize=11];',
        '  node [shape=box, style="rounded,filled", fillcolor="#eef3fa", fontname="Helvetica", fontsize=11];',
        '  edge [fontname="Helvetica", fontsize=9];',
        *_clusters(graph),
        *(_edge(graph, edge) for edge in graph.edges),
    ]
    if graph.left_out:
        lines.append(f"  rest [shape=plaintext, label={_quoted(f'{graph.left_out} more ops are left out')}];")
    return "\n".join([*lines, "}", ""])


def _clusters(graph: DataFlowGraph) -> Iterator[str]:
    """The nodes, those of one function together."""
    groups: dict[str, list[int]] = {}
    for number, node in enumerate(graph.nodes):
        groups.setdefault(node.group, []).append(number)
    for k, (group, numbers) in enumerate(groups.items()):
        if group:
            yield f"  subgraph cluster_f{k} {{ label={_quoted(f'@{group}')}; style=dashed;"
        for number in numbers:
            yield from (
                _kernel(number, graph.nodes[number])
                if graph.nodes[number].inner
                else [_node(number, graph.nodes[number])]
            )
        if group:
            yield "  }"


def _node(number: int, node: DataNode) -> str:
    shape = f", shape={SHAPES[node.kind]}" if node.kind in SHAPES else ""
    title = [node.title] if node.title != node.optype else []
    label = [*title, node.optype, *_weights(node), *node.notes]
    if node.kind == "input":
        label = [node.title, *(t.type for t in node.results), *(t.place for t in node.results if t.place)]
    if node.kind == "output":
        label = [node.title, *_weights(node)]
    return f"  n{number} [label={_label(label)}{shape}];"


def _kernel(number: int, node: DataNode) -> Iterator[str]:
    """A cluster: the ops of the kernel, with the edges between them. Edges from outside go to the first op, edges to
    outside leave from the last."""
    heading = [*node.notes, *_weights(node)]
    yield f'  subgraph cluster_n{number} {{ label={_label([node.optype, *heading])}; style=filled; fillcolor="#f7f2e6";'
    for k, op in enumerate(node.inner):
        yield f"    n{number}_{k} [label={_label([op.title, op.optype] if op.title else [op.optype])}];"
    for k, op in enumerate(node.inner):
        for source, times in sorted(Counter(r for r in op.reads if r >= 0).items()):
            label = f' [label="{times}×"]' if times > 1 else ""
            yield f"    n{number}_{source} -> n{number}_{k}{label};"
    yield "  }"


def _edge(graph: DataFlowGraph, edge: Edge) -> str:
    source, target = (graph.nodes[end] for end in edge.ends)
    tail = f"n{edge.source}" + (f"_{len(source.inner) - 1}" if source.inner else "")
    head = f"n{edge.target}" + ("_0" if target.inner else "")
    ends = f", ltail=cluster_n{edge.source}" if source.inner else ""
    ends += f", lhead=cluster_n{edge.target}" if target.inner else ""
    return f"  {tail} -> {head} [label={_label(_parts(edge.tensor))}{ends}];"


def _parts(tensor: DataTensor) -> list[str]:
    return [part for part in (tensor.name, tensor.type, tensor.place) if part]


def _weights(node: DataNode) -> list[str]:
    found = [str(t) for t in node.weights[:WEIGHTS]]
    rest = len(node.weights) - WEIGHTS
    return [*found, f"and {rest} more"] if rest > 0 else found


def _label(lines: list[str]) -> str:
    """Lines as a label, in which Graphviz decodes entities as HTML has them."""
    shown = (line if len(line) <= LONGEST else line[: LONGEST - 1] + "…" for line in lines)
    return _quoted("\n".join(shown).replace("&", "&amp;"))


def _quoted(text: str) -> str:
    """A string of the DOT language. Graphviz reads escapes (``\\N``, ``\\l``) in labels, and XML forbids control
    characters."""
    escaped = printable(text, "\n").replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
