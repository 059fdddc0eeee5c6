"""NNVM graphs for tests: built node by node, written as JSON, imported and run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import lightnet

Entry = list[int]


class Graph:
    """A graph in NNVM's JSON; `attrs` is the key of an op's attributes, `width` how many elements an entry has."""

    def __init__(self, attrs: str = "attrs", width: int = 3):
        self.nodes: list[dict[str, Any]] = []
        self.key, self.width = attrs, width

    def add(self, op: str, name: str, inputs: Sequence[Entry], attrs: Mapping[str, str], **more: Any) -> Entry:
        node: dict[str, Any] = {"op": op, "name": name, "inputs": [list(i)[: self.width] for i in inputs], **more}
        if attrs:
            node[self.key] = dict(attrs)
        self.nodes.append(node)
        return [len(self.nodes) - 1, 0, 0]

    def var(self, name: str, **attrs: str) -> Entry:
        return self.add("null", name, [], attrs)

    def op(self, op: str, name: str, *inputs: Entry, **attrs: Any) -> Entry:
        return self.add(op, name, inputs, {k: str(v) for k, v in attrs.items()})

    def data(self, *heads: Entry, **more: Any) -> dict[str, Any]:
        """The whole graph, as Python data."""
        args = [i for i, n in enumerate(self.nodes) if n["op"] == "null"]
        return {"nodes": self.nodes, "arg_nodes": args, "heads": [list(h)[: self.width] for h in heads], **more}

    def text(self, *heads: Entry, **more: Any) -> str:
        return json.dumps(self.data(*heads, **more), indent=1)


def run(text: str, feeds: Mapping[str, np.ndarray] | None = None, weights: Mapping[str, np.ndarray] | None = None,
        target: str = "none", **options: Any) -> list[np.ndarray]:  # fmt: skip
    """The outputs of a graph in JSON, in order; the feeds' shapes are the inputs' shapes."""
    shapes = {name: np.shape(value) for name, value in (feeds or {}).items()}
    model = lightnet.loads(text, ".json", "graph.json", weights, shapes, **options)
    read = {
        op.tensor_names[0] for op in model.main.walk() if op.name in ("ln.input", "ln.param")
    }  # not: gamma where it is fixed
    return list(lightnet.compile(model, target=target)({k: v for k, v in (feeds or {}).items() if k in read}).values())


def run_op(op: str, inputs: Sequence[np.ndarray], attrs: Mapping[str, Any] | None = None, heads: int = 1,
           target: str = "none") -> list[np.ndarray]:  # fmt: skip
    """The first `heads` outputs of one op."""
    g = Graph()
    entries = [g.var(f"x{i}") for i in range(len(inputs))]
    node = g.op(op, "y", *entries, **(attrs or {}))[0]
    text = g.text(*([node, i, 0] for i in range(heads)))
    return run(text, {f"x{i}": x for i, x in enumerate(inputs)}, target=target)
