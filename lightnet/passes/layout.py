"""`layout`: how tensors lie in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, OpResult, SSAValue

from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.move import Forward
from lightnet.ir import rewrites
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import PLAIN, Blocked, Layout, layout_of, with_layout
from lightnet.ir.names import NAME, FreshNames
from lightnet.ir.op import set_tensor_names, tensor_name, tensor_names
from lightnet.ir.passes import LnPass
from lightnet.ir.target import Blocking, Halo, Target, get_target, reorder_time
from lightnet.passes.graph import graphs, static_values, tensor_names_in
from lightnet.passes.hoist import hoist_block


@dataclass(frozen=True)
class LayoutPass(LnPass):
    """Give every tensor type its layout.

    ```mlir
    %y = cpu.kernel(%x_ = %x) { ln.relu … }  ->  %0 = cpu.kernel(%x_ = %x) { ln.forward … } : tensor<…, #ln.layout<"c16">>
                                                 %1 = cpu.kernel(%x_ = %0) { ln.relu … } : tensor<…, #ln.layout<"c16">>
                                                 %y = cpu.kernel(%x_ = %1) { ln.forward … } : tensor<…>
    ```

    `layout` is one of the target's (default: its first): ``plain`` (row-major everywhere) or ``blocked``: kernels run on maps in blocks of channels,
    with the halo that their readers need, where this costs less than it saves, changes of layout (`ln.forward` from one type to
    the other) included. What a machine has `features` for decides how long a block is.
    """

    name = "layout"
    target: str = "cpu"
    layout: str = ""
    features: str = ""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        target = get_target(self.target)
        layout = self.layout or target.layouts[0]
        if layout not in target.layouts:
            known = ", ".join(target.layouts)
            raise LightNetError(f"target '{target.name}' has no layout '{layout}'; there are: {known}")
        for block in graphs(op):
            _make_plain(block)
            if layout == "blocked":
                _Assignment.of(block, target, self.features).write(target, FreshNames(tensor_names_in(op)))
                hoist_block(block)  # the maps that are static
            function = block.parent_op()
            if isinstance(function, FuncOp):
                function.update_function_type()


def _make_plain(block: Block) -> None:
    values: list[SSAValue] = list(block.args)
    for op in block.ops:
        values += op.results
        for region in op.regions:
            for inner in region.blocks:
                _make_plain(inner)
    for value in values:
        set_layout(value, PLAIN)


def set_layout(value: SSAValue, layout: Layout) -> None:
    """Give a value another layout; the ops around it have to follow."""
    if isinstance(value.type, TensorType) and layout_of(value.type) != layout:
        value._type = with_layout(value.type, layout)


@dataclass
class _Node:
    """A kernel that some generator takes on blocked maps. `reads` are its operands that would be maps."""

    kernel: KernelOp
    blocking: Blocking
    reads: dict[SSAValue, Halo]
    blocked: bool = True

    @property
    def makes(self) -> Sequence[SSAValue]:
        """The results that would be maps."""
        return () if self.blocking.form.plain_results else self.kernel.results


@dataclass
class _Assignment:
    """Which kernels of a block run on blocked maps.

    Every kernel that can does at first. Then kernels go back to plain maps one by one, while the network becomes cheaper by the
    model of the target: a kernel alone, or all that hang together by maps. Each kernel is looked at a bounded number of times.
    """

    nodes: dict[Operation, _Node]
    static: set[SSAValue] = field(default_factory=set)

    @classmethod
    def of(cls, block: Block, target: Target, features: str) -> _Assignment:
        """The cheapest one for a block."""
        static = static_values(block)
        nodes: dict[Operation, _Node] = {}
        for op in block.ops:
            if not isinstance(op, KernelOp) or all(r in static for r in op.results):
                continue
            blocking = target.blocking(op, features)
            if blocking is None:
                continue
            outside = dict(zip(op.body.args, op.operands))
            if all(outside[v] in static for v in blocking.form.weights):
                reads = {outside[v]: halo for v, halo in blocking.form.maps.items()}
                nodes[op] = _Node(op, blocking, reads)
        found = cls(nodes, static)
        found.improve()
        return found

    # -- deciding

    def improve(self) -> None:
        for group in self.groups():
            if self.change(group) < 0:
                for node in group:
                    node.blocked = False
        for _ in range(3):
            better = [n for n in self.nodes.values() if self.flips(n)]
            if not better:
                return

    def flips(self, node: _Node) -> bool:
        """Change a kernel to the other side if that is cheaper."""
        if self.change([node]) >= 0:
            return False
        node.blocked = not node.blocked
        return True

    def groups(self) -> Iterator[list[_Node]]:
        """Kernels that hang together by maps."""
        seen: set[Operation] = set()
        for start in self.nodes:
            if start in seen:
                continue
            seen.add(start)
            group, waiting = [], [start]
            while waiting:
                op = waiting.pop()
                group.append(self.nodes[op])
                around = [v.owner for v in op.operands] + [u.operation for r in op.results for u in r.uses]
                for other in around:
                    if other in self.nodes and other not in seen:
                        seen.add(other)
                        waiting.append(other)
            yield group

    def change(self, group: Sequence[_Node]) -> float:
        """Nanoseconds that the network would gain (below 0: save) were the kernels of `group` on the other side."""
        values = list(dict.fromkeys(v for n in group for v in (*n.reads, *n.kernel.results)))
        before = sum(map(self.reorders, values))
        for node in group:
            node.blocked = not node.blocked
        after = sum(map(self.reorders, values))
        for node in group:
            node.blocked = not node.blocked
        kernels = sum((n.blocking.plain - n.blocking.blocked) * (1 if n.blocked else -1) for n in group)
        return after - before + kernels

    def reorders(self, value: SSAValue) -> float:
        """Nanoseconds that changes of a value's layout take."""
        if value in self.static:
            return 0.0
        maps, plain = self.readers(value)
        if self.is_map(value):
            return reorder_time(value, self.nodes[value.owner].blocking.lanes) if plain else 0.0
        return reorder_time(value, maps[0].blocking.lanes) if maps else 0.0

    def is_map(self, value: SSAValue) -> bool:
        """Whether the op that makes a value makes it as a map."""
        node = self.nodes.get(value.owner) if isinstance(value.owner, Operation) else None
        return node is not None and node.blocked and value in node.makes

    def readers(self, value: SSAValue) -> tuple[list[_Node], list[Operation]]:
        """The kernels that read a value as a map, and the ops that read it plain."""
        maps: list[_Node] = []
        plain: list[Operation] = []
        for use in value.uses:
            node = self.nodes.get(use.operation)
            if node is not None and node.blocked and value in node.reads:
                maps.append(node)
            else:
                plain.append(use.operation)
        return maps, plain

    # -- writing

    def write(self, target: Target, names: FreshNames) -> None:
        """Put the layouts on types, and kernels in between that change layouts."""
        chosen = [n for n in self.nodes.values() if n.blocked]
        if not chosen or (step := rewrites.begin("layout", [n.kernel for n in chosen])) is None:
            return
        made: list[Operation] = []
        changed: dict[Operation, None] = dict.fromkeys(n.kernel for n in chosen)
        halos = self.halos(chosen)
        values = dict.fromkeys(v for n in chosen for v in (*n.reads, *n.makes))
        for value in values:
            maps, plain = self.readers(value)
            lanes = (maps[0] if maps else self.nodes[value.owner]).blocking.lanes
            layout = Blocked(lanes, halos.get(value, (0, 0)))
            if self.is_map(value):
                set_layout(value, layout)
                other, users = PLAIN, set(plain)
            else:
                other, users = layout, {n.kernel for n in maps}
            changed.update((u, None) for u in users if isinstance(u, KernelOp))
            if users:
                made.append(_reorder(target, value, other, users, names))
        for op in (*changed, *made):
            follow(op)
        step.done([*(n.kernel for n in chosen), *made])

    def halos(self, chosen: Sequence[_Node]) -> dict[SSAValue, Halo]:
        """The halo of each map: the largest that a reader needs; tied ones have one."""
        leader: dict[SSAValue, SSAValue] = {}

        def find(value: SSAValue) -> SSAValue:
            while (above := leader.get(value, value)) is not value:
                leader[value] = leader.get(above, above)
                value = above
            return value

        for node in chosen:
            if node.blocking.form.tied:
                first, *rest = (*node.reads, *node.makes)
                for value in rest:
                    leader[find(value)] = find(first)
        largest: dict[SSAValue, Halo] = {}
        for node in chosen:
            for value, (rows, cols) in node.reads.items():
                known = largest.get(find(value), (0, 0))
                largest[find(value)] = (max(rows, known[0]), max(cols, known[1]))
        return {v: largest.get(find(v), (0, 0)) for n in chosen for v in (*n.reads, *n.makes)}


def _reorder(target: Target, value: SSAValue, layout: Layout, users: set[Operation], names: FreshNames) -> KernelOp:
    """A kernel behind the op that makes `value`, which gives it another layout for `users`, under the value's name and the layout's.
    An output keeps its name: then it is `value` that gets another one."""
    forward = Forward.make([value])
    set_layout(forward.results[0], layout)
    if (name := tensor_name(value)) is not None:
        own = names.fresh(f"{name}.{layout_of(value.type) if layout.is_plain else layout}")
        if any(isinstance(user, ReturnOp) for user in users):
            _rename(value, own)
            own = name
        elif layout.is_plain:
            own = names.fresh(f"{name}.plain")
        set_tensor_names(forward, [own])
        forward.attributes[NAME] = StringAttr(own)
    kernel = target.kernel_op.wrap([forward])
    forward.erase()
    owner = value.owner
    if isinstance(owner, Block):
        owner.insert_op_before(kernel, owner.first_op)
    else:
        owner.parent.insert_op_after(kernel, owner)
        kernel.location = owner.location
    value.replace_uses_with_if(kernel.results[0], lambda use: use.operation in users)
    return kernel


def _rename(value: SSAValue, name: str) -> None:
    assert isinstance(value, OpResult)
    names = list(tensor_names(value.op))
    names[value.index] = name
    set_tensor_names(value.op, names)


def follow(kernel: Operation) -> None:
    """Give the inside of a kernel the types of its operands and results."""
    assert isinstance(kernel, KernelOp)
    for arg, operand in zip(kernel.body.args, kernel.operands):
        arg._type, arg.name_hint = operand.type, operand.name_hint
    for inner, result in zip(kernel.terminator.operands, kernel.results):
        inner._type = result.type
