"""An ONNX graph with text or maps in it, parted: a host part (`runtime/host`) before and behind the graph of numbers
that is compiled.

Kernels have no text, and no maps. So every node that reads or gives some becomes a step of the host part: before the
network, where all that it reads is known there, or else behind it. Nodes of the graph that only move numbers go with
them where text waits for them (the shape of a Reshape that is computed from another shape). A network that computes
numbers from text that it made of numbers has no such parts, and is refused. Labels of classifiers that are texts are
numbers in the network, and become texts behind it; the maps of a ZipMap are a tensor of scores in it.

Imports the model and the host part's table; no xDSL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from lightnet.dataclasses import dataclass, replace
from lightnet.diagnostics import LightNetError
from lightnet.frontends.onnx.model import STRINGS, OnnxGraph, OnnxModel, OnnxNode, OnnxTensor, ValueInfo, type_name
from lightnet.frontends.onnx.textual import names_classes, names_columns, names_text
from lightnet.runtime.dtypes import BY_NAME
from lightnet.runtime.host.program import CLASSES, SCORES, HostProgram, HostTensor, text_array
from lightnet.runtime.host.steps import MAX_ELEMENTS, TEXT, TEXT_DTYPE, HostStep, host_ops, is_hosted, pair_of
from lightnet.runtime.program import unknown
from lightnet.runtime.stored import FORMATS

Shapes = Mapping[str, Sequence[int]]
#: Refusals as `Importer.refused` has them.
Refused = list[tuple[str, str, str, None]]

#: Nodes of numbers in a row that go before the network with text.
MAX_PULLED = 100
#: Elements of an array that a step is run on to learn the dims of what it gives. Of larger ones, calls show them.
MAX_EXAMPLE = 1 << 20


@dataclass(frozen=True)
class Parted:
    """`model`, the numbers of a model, and the host part around it. What is `missing` in the model nodes that are
    `refused` would have made."""

    model: OnnxModel
    host: HostProgram
    refused: Refused
    missing: tuple[str, ...]

    def of_numbers(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The part of `given`, by the name of an input, that is for the network."""
        names = {i.name for i in self.model.graph.inputs}
        return {name: value for name, value in given.items() if name in names}


def part(model: OnnxModel, shapes: Shapes, values: Mapping[str, Any]) -> Parted:
    """The parts of a model with text. `shapes` gives inputs their dims, and inputs in `values` are constants. Raises
    LightNetError for a shape or value of no input, and for a value that does not fit."""
    return _Parting(model, shapes, values).run()


class _Parting:
    """See `part`. Of each name: `kind`, its element type where it is known here; `dims` and `value`, as far as they are
    known before the network."""

    def __init__(self, model: OnnxModel, shapes: Shapes, values: Mapping[str, Any]):
        self.model, self.graph, self.shapes, self.values = model, model.graph, shapes, values
        self.kind: dict[str, str] = {}
        self.dims: dict[str, tuple[int | None, ...] | None] = {}
        self.value: dict[str, np.ndarray] = {}
        self.maker: dict[str, OnnxNode] = {}
        self.before: list[HostStep] = []
        self.after: list[HostStep] = []
        #: Names that stand before the network, those that only a step behind it gives, and nodes that the network does
        #: not have.
        self.known: set[str] = set()
        self.behind: set[str] = set()
        self.gone: set[int] = set()
        self.pulled: set[int] = set()
        self.never: set[str] = set()  # what cannot be had before the network
        self.refused: Refused = []
        self.missing: dict[str, None] = {}
        self.made = 0  # elements that steps have made here

    def run(self) -> Parted:
        inputs = [i for i in self.graph.inputs if i.name not in self.graph.initializers]
        for name in (*self.shapes, *self.values):
            if name not in {i.name for i in inputs}:
                raise unknown("input", name, [i.name for i in inputs])
        for info in inputs:
            self._define_input(info)
        for tensor in self.graph.initializers.values():
            self._define_constant(tensor.name, tensor)
        for node in self.graph.nodes:
            for name in node.outputs:
                self.maker[name] = node
            self._place(node)
        return self._parts(inputs)

    # -- where values come from

    def _define_input(self, info: ValueInfo) -> None:
        name = info.name
        self.kind[name] = kind_of(info)
        if pair_of(self.kind[name]) is not None:
            return self._define_map(info)
        dims = tuple(int(d) for d in self.shapes[name]) if name in self.shapes else info.dims
        if (
            info.dtype == STRINGS
            and dims is not None
            and info.dims is not None
            and (len(dims) != len(info.dims) or any(isinstance(d, int) and d != e for d, e in zip(info.dims, dims)))
        ):
            raise LightNetError(
                f"input '{name}' has shape {list(info.dims)} in the model, which {list(dims)} does not fit",
                label="onnx.input-shape",
            )
        self.dims[name] = None if dims is None else tuple(d if isinstance(d, int) else None for d in dims)
        self.known.add(name)
        if name in self.values:
            self._set_value(name, self._whole(info, info.dims).checked(self.values[name]))

    def _define_map(self, info: ValueInfo) -> None:
        if info.name in self.shapes or info.name in self.values:
            raise LightNetError(
                f"input '{info.name}' is a map ({self.kind[info.name]}), which each call feeds: it has no "
                "shape, and no value beforehand",
                label="onnx.input-shape",
            )
        self.dims[info.name] = ()
        self.known.add(info.name)

    def _define_constant(self, name: str, tensor: OnnxTensor) -> None:
        self.kind[name] = TEXT if tensor.dtype == STRINGS else tensor.dtype
        self.dims[name] = tensor.dims
        if tensor.dtype == STRINGS:
            self._set_value(name, tensor.texts())
        elif tensor.dtype in BY_NAME and tensor.dtype not in FORMATS:
            self.known.add(name)  # its contents are read where a step wants them

    def _set_value(self, name: str, array: np.ndarray) -> None:
        self.value[name] = array
        self.dims[name] = array.shape
        self.known.add(name)

    def _constant(self, name: str) -> np.ndarray | None:
        """The value of a name, where it is known here."""
        if name not in self.value and name in self.graph.initializers and name in self.known:
            self.value[name] = self.graph.initializers[name].load()
        return self.value.get(name)

    # -- nodes

    def _place(self, node: OnnxNode) -> None:
        """Let the network keep a node, or make a step of it."""
        read = set(_reads(node))
        if node.op_type == "Constant" and not node.domain:
            self._constant_node(node)
        elif read & self.missing.keys():
            self._lose(node)
        elif names_classes(node) and not read & self.behind:
            labels = tuple(str(t) for t in node.attributes["classlabels_strings"])
            self._name(node, CLASSES, TEXT, {"keys_int64s": tuple(range(len(labels))), "values_strings": labels})
        elif names_columns(node) and not read & self.behind:
            self._place_columns(node)
        elif any(is_hosted(self.kind.get(name)) for name in read) or names_text(node):
            self._host(node, "it has text or maps, and there is no step of a host part for it")
        elif read & self.behind:
            self._host(
                node, "it computes with numbers of text that the network made: text is before a network, or behind it"
            )

    def _name(self, node: OnnxNode, op: str, kind: str, attributes: Mapping[str, Any]) -> None:
        """A node that names numbers: the network gives the number of a class, or the scores by column, and a step
        behind it the names, as what is called the same."""
        name = node.outputs[0]
        self.after.append(HostStep(op, node.name, (name,), (name,), attributes))
        self.kind[name] = kind
        self.behind.add(name)

    def _place_columns(self, node: OnnxNode) -> None:
        try:
            step, (kind, *_) = self._step(node)
        except LightNetError as error:
            return self._refuse(node, error.message)
        self._name(node, SCORES, kind, step.attributes)

    def _constant_node(self, node: OnnxNode) -> None:
        """A constant of the graph: of text, or one that steps may want as well."""
        ((key, value),) = list(node.attributes.items())[:1] or [("", None)]
        dtypes = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}
        name, dtype = node.outputs[0], dtypes.get(key)
        if isinstance(value, OnnxTensor):
            self._define_constant(name, value)
            if value.dtype in BY_NAME and value.dtype not in FORMATS:
                self._set_value(name, value.load())
        elif dtype is not None:
            self._set_value(name, np.array(value, dtype))
        elif key in ("value_string", "value_strings"):
            self.kind[name] = TEXT
            try:
                self._set_value(name, text_array(name, list(value) if isinstance(value, tuple) else value))
            except LightNetError:
                return self._refuse(node, "its text is not in UTF-8")
        if self.kind.get(name) == TEXT:
            self.gone.add(id(node))

    def _host(self, node: OnnxNode, otherwise: str) -> None:
        """Make a step of a node, before the network if what it reads can be had there."""
        op = _op_name(node)
        if op not in host_ops() or (op == "TfIdfVectorizer" and "pool_strings" not in node.attributes):
            return self._refuse(node, otherwise)
        try:
            step, kinds = self._step(node)
        except LightNetError as error:
            return self._refuse(node, error.message)
        self.gone.add(id(node))
        for name, kind in zip(node.outputs, kinds):
            self.kind[name] = kind
        if all(self._before(name) for name in node.inputs if name):
            self._add_before(step)
        else:
            self.after.append(step)
            self.behind.update(node.outputs)

    def _before(self, name: str, depth: int = 0) -> bool:
        """Return whether a value can be had before the network: it is known there, or made by nodes that can be steps
        as well, and are then.
        """
        if name in self.known:
            return True
        if name in self.never or depth > MAX_PULLED or not self._pull(name, depth):
            self.never.add(name)
            return False
        return True

    def _pull(self, name: str, depth: int) -> bool:
        node = self.maker.get(name)
        if (
            node is None
            or name in self.behind
            or id(node) in self.gone
            or _op_name(node) not in host_ops()
            or node.op_type == "TfIdfVectorizer"
        ):
            return False
        if not all(self._before(n, depth + 1) for n in node.inputs if n):
            return False
        try:
            step, kinds = self._step(node)
        except LightNetError:
            return False
        if not all(kind in BY_NAME for kind in kinds):
            return False
        self.kind.update(zip(node.outputs, kinds))
        self.pulled.add(id(node))
        self._add_before(step)
        return True

    def _step(self, node: OnnxNode) -> tuple[HostStep, tuple[str, ...]]:
        """The step of a node, and the element types of what it gives. Raises LightNetError for attributes that no step
        has, and for inputs and outputs that the op has not."""
        found: dict[str, Any] = {}
        for key, value in node.attributes.items():
            if isinstance(value, OnnxTensor):
                found[key] = value.texts() if value.dtype == STRINGS else value.load()
            elif key == "to":
                kind = type_name(value)
                found[key] = TEXT if kind == STRINGS else str(kind)
            elif isinstance(value, float | int | str) or (
                isinstance(value, tuple) and all(isinstance(v, float | int | str) for v in value)
            ):
                found[key] = value
            else:
                raise LightNetError(f"its attribute '{key}' is {value!r:.60}")
        if node.op_type == "Split" and not node.domain:
            found.pop("num_outputs", None)  # which says how many outputs it has
        op, reads = host_ops()[_op_name(node)], [self.kind.get(n, "") for n in node.inputs]
        taken = [kind for kind in reads if pair_of(kind) is not None]
        if taken and not op.maps:
            raise LightNetError(f"it takes no map, and its input is one ({taken[0]})")
        if op.maps:
            if reads != taken:
                raise LightNetError(f"it takes a map, and its input is {reads[0] if reads else ''}")
            found["map"] = reads[0]
        step = HostStep(op.name, node.name, node.inputs, node.outputs, found)
        op.check(step)
        if op.prepare is not None:
            op.prepare(step)
        kinds = op.kinds(step, reads)
        if len(kinds) < len(node.outputs):
            raise LightNetError(f"it gives {len(kinds)} outputs, not {len(node.outputs)}")
        return step, kinds

    def _add_before(self, step: HostStep) -> None:
        """A step before the network; what it gives, as far as that is known now."""
        op = host_ops()[step.op]
        constants = [self._constant(name) if name else None for name in step.inputs]
        most = MAX_ELEMENTS if op.of_dims else MAX_EXAMPLE
        arrays = [c if c is not None else self._example(name, most) for c, name in zip(constants, step.inputs)]
        self.before.append(step)
        self.known.update(step.outputs)
        decided = all(i >= len(step.inputs) or not step.inputs[i] or constants[i] is not None for i in op.deciding)
        is_constant = all(c is not None or not name for c, name in zip(constants, step.inputs))
        results: Sequence[np.ndarray] = ()
        if (
            self.made <= MAX_ELEMENTS
            and all(a is not None or not name for a, name in zip(arrays, step.inputs))
            and (is_constant or (decided and not op.opened))
        ):
            try:
                results = step.run(arrays)
                self.made += sum(a.size for a in results)
            except LightNetError:  # a call will say so
                results = ()
        if op.shapes is not None and (first := self.dims.get(step.inputs[0])) is not None:
            try:
                self.dims.update(zip(step.outputs, op.shapes(step, first)))
            except LightNetError as error:
                raise step.named(error) from None
        for name, array in zip(step.outputs, results):
            self.dims[name] = array.shape
            if array.size <= MAX_EXAMPLE and (is_constant or op.of_dims):
                self.value[name] = array

    def _example(self, name: str, most: int) -> np.ndarray | None:
        """An array like those that a call gives a name, where its dims are known and it has `most` elements at most."""
        dims = self.dims.get(name) if name else None
        if dims is None or None in dims or prod(dims) > most or self.kind[name] not in (TEXT, *BY_NAME):
            return None
        if self.kind[name] == TEXT:
            return np.broadcast_to(np.array("", TEXT_DTYPE), dims)
        return np.broadcast_to(np.zeros((), BY_NAME[self.kind[name]].np), dims)

    # -- refusing

    def _refuse(self, node: OnnxNode, reason: str) -> None:
        self.refused.append((node.op_type, f"'{node.name}'" if node.name else f"#{node.index}", reason, None))
        self._lose(node)

    def _lose(self, node: OnnxNode) -> None:
        self.gone.add(id(node))
        self.missing.update(dict.fromkeys(n for n in node.outputs if n))

    # -- the parts

    def _parts(self, inputs: Sequence[ValueInfo]) -> Parted:
        given = {o.name: o for o in self.graph.outputs}
        read_behind = {name for step in self.after for name in step.inputs}
        nodes = self._without_spare([n for n in self.graph.nodes if id(n) not in self.gone], {*given, *read_behind})
        # A constant that no step can load, as of float8, is the network's to give.
        unloaded = read_behind & self.graph.initializers.keys() - self.known
        there = {name for node in nodes for name in node.outputs} | {n for n in unloaded if self.kind[n] in BY_NAME}
        by_steps = {name for step in (*self.before, *self.after) for name in step.outputs} - there | set(self.missing)
        wanted = [
            name
            for name, kind in ((n, self.kind.get(n)) for n in given)
            if name in there or (not is_hosted(kind) and name not in by_steps)
        ]
        wanted += [name for name in dict.fromkeys(_read_by(self.after)) if name in there and name not in given]
        read = {name for node in nodes for name in _reads(node)} | set(wanted)
        before = self._needed_before({n for n in read if n not in there} | set(given) | read_behind)
        entering = [name for step in before for name in step.outputs if name in read and name not in there]
        used = {*_read_by((*before, *self.after)), *(n for n in given if is_hosted(self.kind.get(n)))} - self.behind
        free = {i.name for i in inputs if i.name not in self.values}
        constants = {
            name: array for name in sorted(used - free - by_steps) if (array := self._constant(name)) is not None
        }
        numbers = [i for i in inputs if not is_hosted(kind_of(i)) and (i.name in read or i.name not in used)]
        graph = replace(
            self.graph,
            inputs=(*numbers, *(ValueInfo(n, self.kind[n], self.dims.get(n)) for n in entering)),
            outputs=tuple(given.get(n) or ValueInfo(n, "", None) for n in wanted),
            initializers={k: t for k, t in self.graph.initializers.items() if t.dtype != STRINGS},
            nodes=tuple(nodes),
        )
        host = HostProgram(
            tuple(self._whole(i, self.shapes.get(i.name, i.dims)) for i in inputs if i.name in free),
            tuple(self._whole(o, self.dims.get(o.name) or o.dims) for o in self.graph.outputs),
            tuple(before), tuple(self.after), constants, tuple(entering), tuple(n for n in wanted if n not in given),
        )  # fmt: skip
        return Parted(replace(self.model, graph=graph), host, self.refused, tuple(self.missing))

    def _whole(self, info: ValueInfo, dims: Sequence[int | str | None] | None) -> HostTensor:
        """An input or output of the whole; one of another type than steps have is the network's, which says its
        type."""
        kind = TEXT if info.dtype == STRINGS else self.kind.get(info.name, info.dtype)
        dims = self.dims[info.name] if pair_of(kind) is not None and info.name in self.dims else dims
        return HostTensor(
            info.name, None if dims is None else tuple(dims), kind if is_hosted(kind) or kind in BY_NAME else ""
        )

    def _without_spare(self, nodes: Sequence[OnnxNode], wanted: set[str]) -> list[OnnxNode]:
        """The nodes without those that only steps needed, which have them as steps now."""
        needed, kept = wanted - {name for step in self.before for name in step.outputs}, []
        for node in reversed(nodes):
            if id(node) not in self.pulled or needed & set(node.outputs):
                kept.append(node)
                needed.update(_reads(node))
        return kept[::-1]

    def _needed_before(self, wanted: set[str]) -> list[HostStep]:
        """The steps before the network that somebody needs."""
        kept = []
        for step in reversed(self.before):
            if wanted & set(step.outputs):
                kept.append(step)
                wanted |= set(step.inputs)
        return kept[::-1]


def kind_of(info: ValueInfo) -> str:
    """The type of a declared input as steps have it."""
    return info.dtype.replace(STRINGS, TEXT)


def _read_by(steps: Sequence[HostStep]) -> Iterator[str]:
    return (name for step in steps for name in step.inputs if name)


def _reads(node: OnnxNode) -> Iterator[str]:
    """The names that a node reads, its subgraphs included."""
    yield from (name for name in node.inputs if name)
    for value in node.attributes.values():
        for inner in value if isinstance(value, tuple) else (value,):
            if isinstance(inner, OnnxGraph):
                yield from (o.name for o in inner.outputs)
                for other in inner.nodes:
                    yield from _reads(other)


def _op_name(node: OnnxNode) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type
