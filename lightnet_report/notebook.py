"""Pictures of a network and of an executable for notebooks: the graph, and the memory plan. Each is HTML that needs no
script and no file beside it. Imports the graph, its drawing, and html's sizes."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from lightnet.diagnostics import LightNetError, printable
from lightnet_report.dfg import DataNode
from lightnet_report.graph import graph_of
from lightnet_report.html import LINE, MARGIN, node_lines, node_size
from lightnet_report.layout import layout

if TYPE_CHECKING:
    from lightnet.compiled import Compiled
    from lightnet.model import Model

#: Nodes that are drawn: a picture of more is no picture.
NODES = 300
#: Kinds of nodes that are no op, and how they are filled.
FILLS = {"input": "#e6f4ea", "output": "#e6f4ea", "host": "#fdf3d8"}
PLAIN = "#eef3fa"


def model_html(model: Model) -> str:
    """One line about a network, and the graph of its ops, the first 300 of them."""
    graph = graph_of(model.module).picture()
    nodes = graph.nodes[:NODES]
    edges = [edge.ends for edge in graph.edges if edge.source is not None and (edge.target or 0) < len(nodes)]
    sizes = [node_size(node) for node in nodes]
    drawing = layout(sizes, edges)
    width, height = drawing.width, drawing.height
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'style="max-width: 100%; height: auto" font-family="sans-serif" font-size="11" role="img">'
    ]
    for (source, target), bends in zip(edges, drawing.bends):
        (x0, y0), (x1, y1) = drawing.centers[source], drawing.centers[target]
        points = [(x0, y0 + sizes[source][1] / 2), *bends, (x1, y1 - sizes[target][1] / 2)]
        path = " ".join(f"{x:.0f},{y:.0f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="#8a99ad"/>')
    for node, (x, y), size in zip(nodes, drawing.centers, sizes):
        parts += _node(node, x, y, *size)
    left = graph.left_out + len(graph.nodes) - len(nodes)
    more = f"<p>{left} more ops are left out.</p>" if left else ""
    return f"<p>{_text(repr(model))}</p>{''.join(parts)}</svg>{more}"


def _node(node: DataNode, x: float, y: float, width: float, height: float) -> list[str]:
    fill = FILLS.get(node.kind, PLAIN)
    left, top = x - width / 2, y - height / 2
    box = (
        f'<rect x="{left:.0f}" y="{top:.0f}" width="{width:.0f}" height="{height:.0f}" rx="4" fill="{fill}" '
        f'stroke="#5b6b80"/>'
    )
    lines = [
        f'<text x="{x:.0f}" y="{top + MARGIN + (k + 0.8) * LINE:.0f}" text-anchor="middle">{_text(line)}</text>'
        for k, line in enumerate(node_lines(node))
    ]
    return [box, *lines]


def executable_html(executable: Compiled) -> str:
    """One line about an executable, and the picture of its memory plan, where it has one."""
    line = f"<p>{_text(repr(executable))}</p>"
    try:
        return line + executable.plan.svg()
    except LightNetError as error:
        return f"{line}<p>{_text(error.message)}</p>"


def _text(text: str) -> str:
    return escape(printable(text))
