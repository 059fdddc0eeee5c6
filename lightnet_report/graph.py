"""The data-flow graph (`dfg.py`) of a module of any level.

At levels 1 to 3 a node is an op of the graph or a kernel (with the ops in it), at level 4 a launch; there the edges
follow from memory: who wrote last what a launch reads. Imports xDSL, `ir`, dialects and `bind`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, MemRefType, ModuleOp, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, SSAValue

from lightnet.dataclasses import replace
from lightnet.dialects.accesses import Access, LineAccesses
from lightnet.dialects.dependences import writers_of
from lightnet.dialects.launch import CopyOp, LaunchLine, Line, lines_of
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
from lightnet_report.dfg import DataFlowGraph, DataNode, DataTensor, Inner


def graph_of(module: ModuleOp) -> DataFlowGraph:
    """The graph of a module of any level: of ``@main`` where that is a list of launches, else of every function."""
    if lines := lines_of(module):
        return _of_launches(module, lines)
    graph = DataFlowGraph()
    functions = [op for op in module.ops if isinstance(op, FuncOp) and op.body.blocks]
    if not functions:
        _Reader(graph, "").read(module.body.blocks)
    for function in functions:
        group = function.sym_name.data if len(functions) > 1 else ""
        _Reader(graph, group).read(function.body.blocks)
    return graph


def type_text(type: Attribute) -> str:
    """``1x3x8x8xf32`` of a tensor or memref type, with the layout if it is not row-major; the type's own text of any
    other."""
    if not isinstance(type, TensorType | MemRefType):
        return str(type)
    text = "x".join([*map(str, type.get_shape()), str(type.element_type)])
    layout = layout_of(type)
    return text if layout.is_plain else f"{text} {layout}"


# -- levels 1 to 3 ---------------------------------------------------------------------------------------------------


class _Reader:
    """Reads the blocks of one function into a graph: first its nodes, then the edges, since a broken module reads what
    stands behind."""

    def __init__(self, graph: DataFlowGraph, group: str):
        self.graph, self.group = graph, group
        self.made: dict[SSAValue, DataNode] = {}
        self.unnamed: dict[SSAValue, str] = {}
        self.reads: list[tuple[DataNode, list[SSAValue]]] = []

    def read(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            for argument in block.args:
                self.argument(argument)
            for op in block.ops:
                self.op(op)
        for node, values in self.reads:
            for value in values:
                result = value.index if isinstance(value, OpResult) else 0
                self.graph.link(self.made.get(value), node, self.tensor(value), result)

    def argument(self, value: BlockArgument) -> None:
        if value.first_use is not None:
            tensor = self.tensor(value)
            self.made[value] = self.graph.add(
                DataNode("input", tensor.name, "argument", group=self.group, results=(tensor,))
            )

    def op(self, op: Operation) -> None:
        if isinstance(op, ReturnOp):
            self.outputs(op)
            return
        node = self.graph.add(DataNode(
            _kind(op), _title(op), _optype(op), loc_of(op), self.group,
            results=tuple(map(self.tensor, op.results)),
            inner=_inner(op) if isinstance(op, KernelOp) else (),
            notes=_choices(op) if isinstance(op, KernelOp) else (),
            op=op,
            name=name_of(op) or "",
        ))  # fmt: skip
        self.made.update(dict.fromkeys(op.results, node))
        self.reads.append((node, list(dict.fromkeys(_outer_operands(op)))))

    def outputs(self, op: Operation) -> None:
        for value in op.operands:
            node = DataNode("output", self.name(value), "output", loc_of(op), self.group)
            self.reads.append((self.graph.add(node), [value]))

    def name(self, value: SSAValue) -> str:
        name = tensor_name(value) or (f"%{value.name_hint}" if value.name_hint else None)
        return name or self.unnamed.setdefault(value, f"%{len(self.unnamed)}")

    def tensor(self, value: SSAValue) -> DataTensor:
        return DataTensor(self.name(value), type_text(value.type), str(place_of(value) or ""))


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
    if isinstance(op, ParamOp | OnceOp) or is_constant(op) or (isinstance(op, Create) and not is_data(op.results[0])):
        return "weight"
    if isinstance(op, Input | Create):
        return "input"
    return "host" if isinstance(op, LnOp) and op.is_host else "op"


def _optype(op: Operation) -> str:
    return op.optype if isinstance(op, LnOp) else op.name


def _title(op: Operation) -> str:
    """The name in the source: the op's; of a kernel or an input its first tensor's."""
    names = [name_of(op), next((n for n in tensor_names(op) if n), None)]
    if _kind(op) in ("kernel", "input", "weight"):
        names.reverse()
    hint = op.results[0].name_hint if op.results else None
    return next(filter(None, names), None) or (f"%{hint}" if hint else _optype(op))


def _inner(kernel: KernelOp) -> tuple[Inner, ...]:
    made: dict[SSAValue, int] = {r: i for i, op in enumerate(kernel.ops) for r in op.results}
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


def _of_launches(module: ModuleOp, lines: Sequence[Line]) -> DataFlowGraph:
    graph, accesses = DataFlowGraph(), LineAccesses(module)
    touched = [list(map(_read, accesses.of(line))) for line in lines]
    for line, found in zip(lines, touched):
        node = _line(line)
        node.weights = tuple(_range(a) for a in found if a.space == "static" and not a.writes)
        node.results = tuple(_range(a) for a in found if a.writes and not a.is_workspace)
        node.notes += tuple(f"workspace {a.end - a.begin} bytes @ {a.space}+{a.begin}" for a in found if a.is_workspace)
        graph.add(node)
    for node, found, writers in zip(list(graph.nodes), touched, writers_of(touched)):
        for access, numbers in zip(found, writers):
            for number in numbers if access.space != "static" else ():
                graph.link(graph.nodes[number], node, _range(access))
    return graph


def _read(access: Access) -> Access:
    """An access as others see it: workspace is written before it is read, and nothing comes in through it."""
    return replace(access, reads=access.reads and not access.is_workspace)


def _line(line: Line) -> DataNode:
    if isinstance(line, LaunchLine):
        return DataNode("launch", line.callee.string_value(), line.name, loc_of(line), notes=line.notes, op=line)
    if isinstance(line, CopyOp):
        return DataNode("host", "copy", line.name, loc_of(line), notes=(f"{line.size} bytes",), op=line)
    return DataNode("host", line.service.data, line.name, loc_of(line), op=line)


def _range(access: Access) -> DataTensor:
    type = type_text(access.type) if access.type is not None else f"{access.end - access.begin} bytes"
    return DataTensor("", type, f"{access.space}+{access.begin}")
