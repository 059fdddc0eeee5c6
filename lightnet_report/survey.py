"""The survey of a network that cannot be imported: its graph as the file has it, and everything that is missing,
at once.

Shapes are those that the file states. Used where `lightnet.load` raises; a file that is malformed stays an error.
Imports the readers and importers of the front ends when they are needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.frontends.loading import OpenError, is_nnvm
from lightnet.runtime.dtypes import BY_NAME
from lightnet.source import read_text
from lightnet_report.facts import Inspection, OpInfo, TensorInfo, grouped

if TYPE_CHECKING:
    from lightnet.frontends.netlist import Netlist, NetTensor
    from lightnet.frontends.onnx.model import OnnxGraph, OnnxModel, OnnxNode

MAX_SOURCE = 1 << 28


def survey(path: str, error: LightNetError, *, shapes: Mapping[str, Any] | None = None,
           values: Mapping[str, Any] | None = None, **options: Any) -> Inspection:  # fmt: skip
    """The network at `path`, which could not be imported because of `error`. `options` are those of reading IL
    (`load`'s). Raises `error` for a form of which no more can be said, and whatever is malformed about the file
    itself."""
    suffix = Path(path).suffix.lower()
    if suffix == ".onnx":
        return _onnx(path, error, shapes or {}, values or {})
    if suffix == ".json":
        text = read_text(path, MAX_SOURCE)
        if is_nnvm(text):
            return _nnvm(path, text, error)
        from lightnet.frontends import json_ir

        return _netlist(json_ir.read(text, path), error)
    if suffix == ".net":
        from lightnet.frontends.il import reader as il

        return _netlist(il.read_file(path, **options), error)
    raise error


def _opened(error: LightNetError) -> str:
    """The shapes that a call has to decide, where that stands in the way beside missing ops."""
    return f"open shapes: {error.message}" if isinstance(error, OpenError) else ""


def _problem(error: LightNetError, refused: bool) -> str:
    """The reasons besides."""
    return "" if refused or isinstance(error, OpenError) else f"cannot be imported: {error.message}"


# -- ONNX


def _onnx(path: str, error: LightNetError, shapes: Mapping[str, Any], values: Mapping[str, Any]) -> Inspection:
    from lightnet.frontends.graph import Value
    from lightnet.frontends.onnx.importer import Importer, parted_of
    from lightnet.frontends.onnx.reader import read_model

    model = read_model(path)
    if (parted := parted_of(model, shapes, values)) is not None:
        shapes, values = parted.of_numbers(shapes), parted.of_numbers(values)
    importer = Importer(parted.model if parted else model, shapes, values, parted=parted)
    try:
        importer.run()
    except LightNetError as e:
        error = e
    for inner in _subgraphs(model.graph):  # which an import looks into only where it gets so far
        importer.survey(inner)
    graph, types = model.graph, _qualified(model)
    refused = dict.fromkeys((types.get(op, op), name, reason, None) for op, name, reason, _ in importer.refused)
    weights = [t for t in graph.initializers.values() if t.name not in values]
    known = {t.name: TensorInfo(t.name, t.dims, t.dtype) for t in weights}
    inputs = [TensorInfo(i.name, i.dims, i.dtype) for i in graph.inputs if i.name not in graph.initializers]
    known.update((t.name, t) for t in inputs)
    known.update((o.name, TensorInfo(o.name, o.dims, o.dtype)) for o in graph.outputs)
    scope = importer.scopes[0] if importer.scopes else {}  # as far as the import came
    known.update((n, TensorInfo(n, v.dims, v.dtype.name)) for n, v in scope.items() if isinstance(v, Value))
    nodes = [n for g in (graph, *_subgraphs(graph)) for n in g.nodes]
    return Inspection(
        path, tuple(inputs), tuple(known[o.name] for o in graph.outputs),
        tuple(_node_info(n, known, graph, path) for n in nodes),
        sum(prod(t.dims) for t in weights),
        sum(prod(t.dims) * BY_NAME[t.dtype].size for t in weights if t.dtype in BY_NAME),
        grouped(list(refused)), weights_given=True, host=str(parted.host) if parted else "", opsets=dict(model.opsets),
        opened=_opened(error), problem=_problem(error, bool(refused)),
    )  # fmt: skip


def _subgraphs(graph: OnnxGraph) -> Iterator[OnnxGraph]:
    """The graphs in the attributes of a graph's nodes, and those inside of them."""
    from lightnet.frontends.onnx.model import OnnxGraph

    for node in graph.nodes:
        for value in node.attributes.values():
            for inner in value if isinstance(value, tuple) else (value,):
                if isinstance(inner, OnnxGraph):
                    yield inner
                    yield from _subgraphs(inner)


def _qualified(model: OnnxModel) -> dict[str, str]:
    """Each op type with its domain, and the opset that decides what it means."""
    nodes = [n for g in (model.graph, *_subgraphs(model.graph)) for n in g.nodes]
    return {
        n.op_type: f"{n.domain and n.domain + '.'}{n.op_type} (opset {model.opsets.get(n.domain, '?')})" for n in nodes
    }


def _node_info(node: OnnxNode, known: Mapping[str, TensorInfo], graph: OnnxGraph, path: str) -> OpInfo:
    """A node as the file has it: shapes of what the file declares, no costs."""
    read = [n for n in node.inputs if n and n not in graph.initializers]
    params = sum(prod(graph.initializers[n].dims) for n in node.inputs if n in graph.initializers)
    ins, outs = (tuple(known.get(n) or TensorInfo(n, None, "") for n in names if n) for names in (read, node.outputs))
    op = f"{node.domain and node.domain + '.'}{node.op_type}"
    return OpInfo(node.name or f"#{node.index}", op, ins, outs, params, None, None, None, SourceLoc(path))


# -- NNVM


def _nnvm(path: str, text: str, error: LightNetError) -> Inspection:
    from lightnet_nnvm import reader
    from lightnet_nnvm.node import handlers

    graph = reader.read(text, path)
    nodes = [graph.nodes[i] for i in graph.order]
    known = handlers()
    ops = [n for n in nodes if not n.is_variable]
    refused = [(n.op, n.name, "there is no lowering of this op", n.loc) for n in ops if n.op not in known]

    def tensors(refs: Sequence[tuple[int, int]]) -> tuple[TensorInfo, ...]:
        return tuple(TensorInfo(graph.nodes[i].name + (f"_output{k}" if k else ""), None, "") for i, k in refs)

    return Inspection(
        path, tuple(TensorInfo(n.name, None, "") for n in nodes if n.is_variable), tensors(graph.heads),
        tuple(OpInfo(n.name, n.op, tensors(n.inputs), tensors([(n.index, 0)]), 0, None, None, None,
                     n.loc) for n in ops),
        0, 0, grouped(refused), opened=_opened(error), problem=_problem(error, bool(refused)),
    )  # fmt: skip


# -- IL and JSON IR


def _netlist(netlist: Netlist, error: LightNetError) -> Inspection:
    """The statements of a netlist; `create` makes inputs and params, which only their uses tell apart."""
    from lightnet.frontends.importer import to_module, unregistered

    errors: list[LightNetError] = []
    to_module(netlist, errors.append)
    refused = [(op.optype, op.name, "there is no such op here", op.loc) for op in unregistered(netlist)]
    places = {loc for *_, loc in refused}
    others = [
        f"cannot be imported: {e.loc or netlist.file}: {e.message}"
        for e in errors
        if e.label != "unknown-optype" or e.loc not in places
    ]
    sources = [op for op in netlist.ops if op.optype in ("create", "input", "param")]
    ops = [op for op in netlist.ops if op not in sources]
    made = {t.name for op in netlist.ops for t in op.tensors_out}
    read = {t.name for op in netlist.ops for t in op.tensors_in}

    def tensors(found: Sequence[NetTensor]) -> tuple[TensorInfo, ...]:
        return tuple(TensorInfo(t.name, t.dims, "") for t in found)

    return Inspection(
        netlist.file, tuple(t for op in sources for t in tensors(op.tensors_out)),
        tuple(t for op in ops for t in tensors(op.tensors_out) if t.name in made - read),
        tuple(OpInfo(op.name, op.optype, tensors(op.tensors_in), tensors(op.tensors_out), 0, None, None, None,
                     op.loc) for op in ops),
        0, 0, grouped(refused), opened="" if others else _opened(error),
        problem="\n".join(others) or _problem(error, bool(refused)),
    )  # fmt: skip
