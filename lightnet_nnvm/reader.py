"""NNVM graph JSON → a checked graph: every writer's spelling of the same thing, with the place of each node.

    graph := {"nodes": [node], "arg_nodes": [id], "heads": [entry], "node_row_ptr": [int],
              "attrs": {name: [type, value]}}
    node  := {"op": string, "name": string, "inputs": [entry], "attrs"|"attr"|"param": {string: string},
              "control_deps": [id]}
    entry := [id, output] | [id, output, version]

`op` is ``null`` for a variable. Document 003 defines the form; MXNet's versions differ from it: up to 0.8 an op's
attributes are called `param` (`attr` are the user's), entries have two elements, and auxiliary states are not written
(`importer.py` makes them up); 0.9 to 0.11 have `attr` for both. Imports the JSON reader and diagnostics only.
"""

from __future__ import annotations

import re
from functools import partial
from itertools import pairwise
from typing import Any

from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.frontends.json_ir.form import check_depth
from lightnet.json_text import MAX_DEPTH, FormError, JsonText, Path
from lightnet.source import STDIN_NAME

MAX_NODES = 250_000
MAX_ATTRIBUTE = 1 << 16  # characters
MAX_NAME = 1024
#: Users' attributes that MXNet before 0.9 wrote without underscores around them; also behind a parameter's name.
_USER_KEYS = ("ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage", "profiler_scope")
_HIDDEN = re.compile(rf"__\w*__|(?:\w+_)?(?:{'|'.join(_USER_KEYS)})")
#: The version of graphs that say none and have the form of MXNet 0.8 (its own reader assumes it of every such graph).
_OLDEST = 800

_TVM_EXECUTOR = (
    "this is a graph of TVM's graph executor: its nodes call functions of a library compiled beside it (op 'tvm_op') "
    "and do "
    "not say what they compute, so it cannot be compiled; export the network before TVM builds it (NNVM, MXNet or ONNX)"
)

#: A value in the graph: the node that makes it, and which of its outputs it is.
Entry = tuple[int, int]


@dataclass(slots=True)
class GraphNode:
    """One node. `name` is what the file says (perhaps empty, perhaps another's too); `attrs` are the op's attributes,
    `hidden` the user's, by their names without underscores; `control` are nodes that have to run before."""

    index: int
    op: str
    name: str
    inputs: list[Entry]
    attrs: dict[str, str]
    hidden: dict[str, str]
    control: list[int]
    loc: SourceLoc
    offset: int  # in the text

    @property
    def is_variable(self) -> bool:
        return self.op == "null"


@dataclass
class NnvmGraph:
    """A graph whose entries refer to nodes that exist and to no cycle. `order` has the nodes that the heads need, each
    behind its inputs. `version` is MXNet's (10901 for 1.9.1; 0 where no MXNet wrote the file), `shapes` and `dtypes`
    are by entry number, where the file has them."""

    file: str
    nodes: list[GraphNode]
    arg_nodes: list[int]
    heads: list[Entry]
    node_row_ptr: list[int] | None
    attrs: dict[str, Any]
    version: int
    text: JsonText
    order: list[int] = field(default_factory=list)

    def error(self, node: GraphNode, message: str, label: str | None = None) -> LightNetError:
        """An error at a node, which it names."""
        line = self.text.lines.line_at(node.offset)
        return LightNetError(f"{who(node)}: {message}", node.loc, label=label, source_line=line)


def read(text: str, path: str) -> NnvmGraph:
    """The graph in `text`, which was read from `path` ("-": standard input).

    Raises LightNetError with a place for what is no JSON, has not the form above or exceeds the limits, for entries
    of nodes that do not exist, for cycles, and for the JSON of TVM's graph executor.
    """
    return _Reader(text, STDIN_NAME if path == "-" else path).read()


class _Reader(JsonText):
    needs = "an NNVM graph is an object with 'nodes', 'arg_nodes' and 'heads'"

    is_oldest = False

    def read(self) -> NnvmGraph:
        nodes: list[GraphNode] = []
        found: dict[str, tuple[Any, int]] = {}
        for key, at, after in self.members():
            if key == "nodes":
                nodes, after[0] = self.nodes(at)
                found[key] = nodes, at
                continue
            value, after[0] = self.value(at)
            self.checked(partial(check_depth, value, MAX_DEPTH - 1), at)
            found[key] = value, at
        for key in ("nodes", "arg_nodes", "heads"):
            if key not in found:
                raise self.error(f"an NNVM graph needs the key '{key}'", self.skip(0))
        graph = self.graph(nodes, found)
        _check_references(graph)
        graph.order = _sorted(graph)
        return graph

    def nodes(self, at: int) -> tuple[list[GraphNode], int]:
        if self.text[at : at + 1] != "[":
            raise self.error("'nodes' has to be an array", at)
        nodes: list[GraphNode] = []
        after = [at]
        for raw, start in self.items(at, after):
            if len(nodes) >= MAX_NODES:
                raise self.error(f"the graph has more than {MAX_NODES} nodes", start)
            node = self.checked(partial(_node, raw, len(nodes)), start)
            if node.op == "tvm_op":
                raise self.error(_TVM_EXECUTOR, start)
            node.loc, node.offset = self.lines.loc(self.path, start), start
            self.is_oldest = self.is_oldest or "param" in raw
            nodes.append(node)
        return nodes, after[0]

    def graph(self, nodes: list[GraphNode], found: dict[str, tuple[Any, int]]) -> NnvmGraph:
        count = len(nodes)

        def convert(key: str, how, optional=None):
            if key not in found:
                return optional
            value, at = found[key]
            return self.checked(lambda: how(value, key), at)

        heads = convert("heads", lambda v, k: [_entry(e, (i,)) for i, e in enumerate(_array(v, k))])
        if not heads:
            raise self.error("the graph has no heads: nothing is computed", found["heads"][1])
        for i, (head, output) in enumerate(heads):
            if head >= count or (output and nodes[head].is_variable):
                raise self.error(f"head {i}, [{head}, {output}], is no output of the {count} nodes", found["heads"][1])
        arg_nodes = convert("arg_nodes", _ids)
        for index in arg_nodes:
            if index >= count or not nodes[index].is_variable:
                raise self.error(f"'arg_nodes' has {index}, which is no variable of the graph", found["arg_nodes"][1])
        pointers = convert("node_row_ptr", _ids)
        if pointers is not None and (len(pointers) != count + 1 or any(a > b for a, b in pairwise(pointers))):
            raise self.error(
                f"'node_row_ptr' has to ascend and to have {count + 1} numbers, one more than nodes",
                found["node_row_ptr"][1],
            )
        # MXNet 0.8 and before had "attr" only on nodes; the specification's own text spells the key both ways.
        attrs = convert("attrs" if "attrs" in found else "attr", _object, {})
        version = self.checked(lambda: _version(attrs), found.get("attrs", found["nodes"])[1])
        version = version or (_OLDEST if self.is_oldest else 0)
        return NnvmGraph(self.path, nodes, arg_nodes, heads, pointers, attrs, version, self)


def _check_references(graph: NnvmGraph) -> None:
    nodes, count = graph.nodes, len(graph.nodes)
    for node in nodes:
        for what, refs in (("input", [i for i, _ in node.inputs]), ("control dependency", node.control)):
            for ref in refs:
                if ref >= count:
                    raise graph.error(node, f"{what} {ref} does not exist: there are {count} nodes")
        for ref, output in node.inputs:
            if output and nodes[ref].is_variable:
                raise graph.error(node, f"input [{ref}, {output}] is a variable's, which has one output")


def _sorted(graph: NnvmGraph) -> list[int]:
    """The nodes that the heads need, inputs first: in the file's order where that is so. An error names a cycle."""
    nodes = graph.nodes
    state = bytearray(len(nodes))  # 0 not seen, 1 its inputs are being visited, 2 done
    order: list[int] = []
    ascending = True
    stack = [head for head, _ in reversed(graph.heads)]
    while stack:
        index = stack[-1]
        if state[index] == 1:
            state[index] = 2
            order.append(index)
        if state[index] == 2:
            stack.pop()
            continue
        state[index] = 1
        before = [*(i for i, _ in nodes[index].inputs), *nodes[index].control]
        for ref in before:
            ascending = ascending and ref < index
            if state[ref] == 1:
                raise graph.error(nodes[index], f"depends on itself, through {who(nodes[ref])}: a cycle")
        stack += [ref for ref in reversed(before) if not state[ref]]
    return sorted(order) if ascending else order


def who(node: GraphNode) -> str:
    """A node in a message: its op and name, or its number where it has no name."""
    name = f"'{node.name[:80]}'" if node.name else f"number {node.index}"
    return f"variable {name}" if node.is_variable else f"{node.op[:80]} {name}"


# -- the form ---------------------------------------------------------------------------------------------------------


def _node(raw: Any, index: int) -> GraphNode:
    who = f"node {index}"
    if type(raw) is not dict:
        raise FormError(f"{who} should be an object")
    check_depth(raw, MAX_DEPTH - 2)
    op, name = (_text(raw, key, who) for key in ("op", "name"))
    if not op:
        raise FormError(f"{who}: 'op' is empty", ("op",))
    inputs = [_entry(e, ("inputs", i)) for i, e in enumerate(_array(raw.get("inputs"), "inputs"))]
    control = _ids(raw["control_deps"], "control_deps") if "control_deps" in raw else []
    attrs, hidden = _attributes(raw, op)
    if op == "null" and inputs:
        raise FormError(f"{who}: a variable has no inputs", ("inputs",))
    return GraphNode(index, op, name, inputs, attrs, hidden, control, SourceLoc(""), 0)


def _attributes(raw: dict, op: str) -> tuple[dict[str, str], dict[str, str]]:
    """The op's attributes and the user's. Before 0.9, `param` are the op's and `attr` the user's; later, one object has
    both."""
    attrs: dict[str, str] = {}
    hidden: dict[str, str] = {}
    for source in ("param", "attr", "attrs"):
        for key, value in _object(raw.get(source) or {}, source).items():
            if type(value) not in (str, int, float, bool):
                raise FormError(f"attribute '{key[:80]}' should be a string", (source, key))
            text = str(value)
            if len(text) > MAX_ATTRIBUTE:
                raise FormError(f"attribute '{key[:80]}' is longer than {MAX_ATTRIBUTE} characters", (source, key))
            if _HIDDEN.fullmatch(key):
                hidden[key.strip("_")] = text
            elif op != "null" and (source != "attr" or "param" not in raw):
                attrs[key] = text  # on a variable, old writers repeat the attributes of the op that reads it
    return attrs, hidden


def _entry(raw: Any, path: Path) -> Entry:
    """[id, output] or [id, output, version]; the version (1 for auxiliary states) says nothing here."""
    if type(raw) is not list or len(raw) not in (2, 3) or not all(type(n) is int and 0 <= n < 1 << 31 for n in raw):
        raise FormError("an entry should be [node, output] or [node, output, version]", path)
    return raw[0], raw[1]


def _ids(raw: Any, what: str) -> list[int]:
    for i, n in enumerate(_array(raw, what)):
        if type(n) is not int or not 0 <= n < 1 << 31:
            raise FormError(f"'{what}' should hold node numbers", (i,) if what != "control_deps" else (what, i))
    return raw


def _array(raw: Any, what: str, kind: type = list) -> Any:
    if type(raw) is not kind:
        raise FormError(f"'{what}' should be an {'array' if kind is list else 'object'}")
    return raw


_object = partial(_array, kind=dict)


def _text(raw: dict, key: str, who: str) -> str:
    value = raw.get(key)
    if type(value) is not str:
        raise FormError(f"{who} needs a string '{key}'", (key,) if key in raw else ())
    if len(value) > MAX_NAME or not (value.isprintable() or not value):
        raise FormError(f"{who}: '{key}' is longer than {MAX_NAME} characters or cannot be printed", (key,))
    return value


def _version(attrs: dict) -> int:
    """MXNet's version number; 0 where the graph says none."""
    if "mxnet_version" not in attrs:
        return 0
    value = attrs["mxnet_version"]
    if type(value) is list and len(value) == 2 and type(value[1]) is int and 0 <= value[1] < 1 << 31:
        return value[1]
    raise FormError("'mxnet_version' should be [\"int\", number]", ("mxnet_version",))
