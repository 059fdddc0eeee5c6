"""A module as a picture has it: nodes, and the tensors between them, at any level. Graphviz and the HTML page draw it.

At levels 1 to 3 a node is an op of the graph or a kernel (with the ops in it), at level 4 a launch; there the edges follow
from memory: who wrote last what a launch reads. Weights are no nodes but lines of the ops that read them: parameters,
`ln.once` and constants outnumber everything else, and say nothing about the flow. Imports xDSL, `ir`, dialects and `bind`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, MemRefType, ModuleOp, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue

from lightnet.dialects.launch import HostOp, LaunchOp, launches
from lightnet.dialects.ln.source import Create, Input, ParamOp
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import layout_of
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import WORKSPACE_SIZE, workspace_size
from lightnet.ir.names import WORKSPACE, name_of, tensor_name, tensor_names
from lightnet.ir.op import LnOp
from lightnet.ir.views import place_of
from lightnet.passes.bind import is_data
from lightnet.passes.graph import is_constant
from lightnet.report.memory import Access, Accesses

#: A picture has at most so many nodes; what comes behind is left out, and counted.
MAX_NODES = 20_000


@dataclass(frozen=True)
class Tensor:
    """A value as a picture names it: `type` is ``1x3x8x8xf32`` (``1x3x8x8xf32 c16h1`` in a layout), `place` ``arena+64`` or empty."""

    name: str
    type: str
    place: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.name, self.type, self.place and f"@ {self.place}")))


@dataclass
class Node:
    """An op, a kernel or a launch. `kind`: input, op, host, kernel, launch or output; `title` is its name in the source, or
    what it computes; `optype` the op's name (of a kernel those of its ops)."""

    kind: str
    title: str
    optype: str
    where: str = ""
    group: str = ""  # the function it stands in, where there are several
    results: tuple[Tensor, ...] = ()
    weights: tuple[Tensor, ...] = ()
    inner: tuple[Inner, ...] = ()
    notes: tuple[str, ...] = ()
    op: Operation | None = None


@dataclass(frozen=True)
class Inner:
    """An op in a kernel; `tensors` are its results' names in the source, `reads` the positions in the kernel of the ops whose
    results it reads (-1: an operand)."""

    optype: str
    title: str
    reads: tuple[int, ...] = ()
    tensors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Edge:
    """`tensor` goes from node number `source` to node number `target`, which is later in the list."""

    source: int
    target: int
    tensor: Tensor


@dataclass
class Graph:
    """Nodes in program order, so that every edge leads to a later one."""

    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    left_out: int = 0

    @classmethod
    def of(cls, module: ModuleOp) -> Graph:
        """The graph of a module of any level: of ``@main`` where that is a list of launches, else of every function."""
        if lines := launches(module):
            return _of_launches(module, lines)
        graph = cls()
        functions = [op for op in module.ops if isinstance(op, FuncOp) and op.body.blocks]
        if not functions:
            _Reader(graph, "").read(module.body.blocks)
        for function in functions:
            group = function.sym_name.data if len(functions) > 1 else ""
            _Reader(graph, group).read(function.body.blocks)
        return graph

    def add(self, node: Node) -> int | None:
        """The number of a new node; None where there are too many."""
        if len(self.nodes) >= MAX_NODES:
            self.left_out += 1
            return None
        self.nodes.append(node)
        return len(self.nodes) - 1


def type_text(type: Attribute) -> str:
    """``1x3x8x8xf32`` of a tensor or memref type, with the layout if it is not row-major; the type's own text of any other."""
    if not isinstance(type, TensorType | MemRefType):
        return str(type)
    text = "x".join([*map(str, type.get_shape()), str(type.element_type)])
    layout = layout_of(type)
    return text if layout.is_plain else f"{text} {layout}"


# -- levels 1 to 3 ---------------------------------------------------------------------------------------------------


class _Reader:
    """Reads the blocks of one function into a graph."""

    def __init__(self, graph: Graph, group: str):
        self.graph, self.group = graph, group
        self.made: dict[SSAValue, int] = {}
        self.weights: set[SSAValue] = set()
        self.unnamed: dict[SSAValue, str] = {}

    def read(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            for argument in block.args:
                self.argument(argument)
            for op in block.ops:
                self.op(op)

    def argument(self, value: BlockArgument) -> None:
        if value.first_use is None:
            return
        number = self.graph.add(Node("input", self.name(value), "argument", "", self.group, (self.tensor(value),)))
        self.define([value], number)

    def op(self, op: Operation) -> None:
        if (
            isinstance(op, ParamOp | OnceOp)
            or is_constant(op)
            or (isinstance(op, Create) and not is_data(op.results[0]))
        ):
            self.weights.update(op.results)
            return
        if isinstance(op, ReturnOp):
            for value in op.operands:
                self.output(value, op)
            return
        read = list(dict.fromkeys(_outer_operands(op)))
        node = Node(
            _kind(op), _title(op), _optype(op), _where(op), self.group,
            results=tuple(map(self.tensor, op.results)),
            weights=tuple(self.tensor(v) for v in read if v in self.weights),
            inner=_inner(op) if isinstance(op, KernelOp) else (),
            notes=_choices(op) if isinstance(op, KernelOp) else (),
            op=op,
        )  # fmt: skip
        number = self.graph.add(node)
        self.define(op.results, number)
        self.link(read, number)

    def output(self, value: SSAValue, op: Operation) -> None:
        tensor = self.tensor(value)
        weights = (tensor,) if value in self.weights else ()
        self.link(
            [value], self.graph.add(Node("output", tensor.name, "output", _where(op), self.group, weights=weights))
        )

    def define(self, values: Iterable[SSAValue], number: int | None) -> None:
        if number is not None:
            self.made.update(dict.fromkeys(values, number))

    def link(self, values: Iterable[SSAValue], number: int | None) -> None:
        if number is None:
            return
        for value in values:
            if value in self.made:
                self.graph.edges.append(Edge(self.made[value], number, self.tensor(value)))

    def name(self, value: SSAValue) -> str:
        name = tensor_name(value) or (f"%{value.name_hint}" if value.name_hint else None)
        return name or self.unnamed.setdefault(value, f"%{len(self.unnamed)}")

    def tensor(self, value: SSAValue) -> Tensor:
        return Tensor(self.name(value), type_text(value.type), str(place_of(value) or ""))


def _outer_operands(op: Operation) -> list[SSAValue]:
    """The values that an op reads, those that ops in its regions read included."""
    if not op.regions:
        return list(op.operands)
    inside: set[Operation | Block] = {op}
    inside.update(block for inner in op.walk() for region in inner.regions for block in region.blocks)
    inside.update(op.walk())
    return [v for inner in op.walk() for v in inner.operands if v.owner not in inside]


def _kind(op: Operation) -> str:
    if isinstance(op, KernelOp):
        return "kernel"
    if isinstance(op, Input | Create):
        return "input"
    return "host" if isinstance(op, LnOp) and op.is_host else "op"


def _optype(op: Operation) -> str:
    return op.optype if isinstance(op, LnOp) else op.name


def _title(op: Operation) -> str:
    """The name in the source: the op's; of a kernel or an input its first tensor's."""
    names = [name_of(op), next((n for n in tensor_names(op) if n), None)]
    if _kind(op) in ("kernel", "input"):
        names.reverse()
    hint = op.results[0].name_hint if op.results else None
    return next(filter(None, names), None) or (f"%{hint}" if hint else _optype(op))


def _where(op: Operation) -> str:
    return str(loc_of(op) or "")


def _inner(kernel: KernelOp) -> tuple[Inner, ...]:
    made = {r: i for i, op in enumerate(kernel.ops) for r in op.results}
    found = []
    for op in kernel.ops:
        tensors = tuple(n for n in tensor_names(op) if n)
        reads = tuple(made.get(v, -1) for v in op.operands)
        found.append(Inner(_optype(op), name_of(op) or next(iter(tensors), ""), reads, tensors))
    return tuple(found)


def _choices(kernel: KernelOp) -> tuple[str, ...]:
    found = [f"{k} = {_plain(v)}" for k, v in kernel.choices.items() if k != WORKSPACE_SIZE]
    if size := workspace_size(kernel):
        place = getattr(kernel.attributes.get(WORKSPACE), "data", ())
        found.append(f"workspace {size} bytes" + "".join(f" @ {p}" for p in place))
    return tuple(found)


def _plain(value: Attribute) -> object:
    if isinstance(value, ArrayAttr):
        return f"[{', '.join(str(_plain(v)) for v in value.data)}]"
    return value.value.data if isinstance(value, IntegerAttr) else getattr(value, "data", value)


# -- level 4 ---------------------------------------------------------------------------------------------------------


def _of_launches(module: ModuleOp, lines: Iterable[LaunchOp | HostOp]) -> Graph:
    graph, accesses = Graph(), Accesses(module)
    for line in lines:
        found = accesses.of(line)
        if isinstance(line, LaunchOp):
            name, notes = line.callee.string_value(), (f"grid {line.grid.value.data}",)
            notes += (f"{line.most_threads} threads",) if line.most_threads > 1 else ()
            node = Node("launch", name, "tile.launch", _where(line), notes=notes, op=line)
        else:
            node = Node("host", line.service.data, "tile.host", _where(line), op=line)
        node.weights = tuple(_range(a) for a in found if a.space == "static" and not a.writes)
        node.results = tuple(_range(a) for a in found if a.writes and not a.is_workspace)
        node.notes += tuple(f"workspace {a.end - a.begin} bytes @ {a.space}+{a.begin}" for a in found if a.is_workspace)
        number = graph.add(node)
        if number is None:
            continue
        for access in found:
            if access.reads and access.space != "static":
                sources = accesses.writers(access)
                graph.edges += [Edge(k, number, _range(access)) for k in sources if k < number]
        for access in found:
            if access.writes:
                accesses.wrote(access, number)
    return graph


def _range(access: Access) -> Tensor:
    type = type_text(access.type) if access.type is not None else f"{access.end - access.begin} bytes"
    return Tensor("", type, f"{access.space}+{access.begin}")
