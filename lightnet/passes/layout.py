"""`layout`: how tensors lie in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, OpResult, SSAValue

from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.move import Forward
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir import budget, rewrites
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import PLAIN, Blocked, Layout, is_plain, layout_of, with_layout
from lightnet.ir.memory import memory_of, unplan
from lightnet.ir.names import OP_NAME, FreshNames
from lightnet.ir.op import set_tensor_names, tensor_name, tensor_names
from lightnet.ir.passes import LnPass
from lightnet.ir.refusal import Refusal
from lightnet.ir.target import Blocking, Halo, Target, get_target
from lightnet.passes.graph import graphs, static_values, tensor_names_in
from lightnet.passes.hoist import hoist_block
from lightnet.passes.min_cut import TwoLabels


@dataclass(frozen=True)
class LayoutPass(LnPass):
    """Give every tensor type its layout.

    ```mlir
    %y = cpu.kernel(%x_ = %x) { ln.relu … }
    ```
    ->
    ```mlir
    %0 = cpu.kernel(%x_ = %x) { ln.forward … } : tensor<…, #ln.layout<"c16">>
    %1 = cpu.kernel(%x_ = %0) { ln.relu … } : tensor<…, #ln.layout<"c16">>
    %y = cpu.kernel(%x_ = %1) { ln.forward … } : tensor<…>
    ```

    `layout` is one of the target's (default: its first): ``plain`` (row-major everywhere); ``blocked`` (cpu): kernels
    run on maps in blocks of channels, with the halo that their readers need; ``nhwc`` (cuda): on maps with the channels
    last. A kernel does where this costs less than it saves, changes of layout (`ln.forward` from one type to the other)
    included. What a machine has `features` for decides how long a block is. A kernel whose `alg` is pinned follows
    that. What was laid out comes in as if it were plain: changes of layout, and the choices made for them, go.
    """

    name = "layout"
    level = "kernels"
    target: str = "cpu"
    layout: str = ""
    features: str = ""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        target = get_target(self.target)
        layout = self.layout or target.layouts[0]
        if layout not in target.layouts:
            known = ", ".join(target.layouts)
            raise LightNetError(f"target '{target.name}' has no layout '{layout}'; there are: {known}")
        planned = bool(memory_of(op))
        for block in graphs(op):
            changed = _make_plain(block)
            if layout != "plain":
                changed |= LayoutAssignment.of(block, target, self.features).write(FreshNames(tensor_names_in(op)))
                hoist_block(block)  # the maps that are static
            if changed and planned:
                unplan(op)  # places were for values of other sizes
            function = block.parent_op()
            if isinstance(function, FuncOp):
                function.update_function_type()


def _make_plain(block: Block) -> bool:
    """Take the layouts off all types, the changes of layout out, and the choices, which were made for these layouts,
    off their kernels. Whether there were any."""
    laid_out = [op for op in block.ops if isinstance(op, KernelOp) and not is_plain(op)]
    ops = [op for op in block.ops if isinstance(op, Forward | KernelOp) and changes_layout(op)]
    for once in [op for op in block.ops if isinstance(op, OnceOp)]:
        if inside := [op for op in once.body.ops if isinstance(op, Forward) and changes_layout(op)]:
            _leave_out(inside)
            set_tensor_names(once, [tensor_name(v) for v in once.terminator.operands])
            ops += inside
    _leave_out([op for op in ops if op.parent is block])
    for kernel in laid_out:
        for name in kernel.choices:
            del kernel.attributes[name]
    values = [v for inner in _blocks_in(block) for v in (*inner.args, *(r for op in inner.ops for r in op.results))]
    changed = bool(ops)
    for value in values:
        changed |= isinstance(value.type, TensorType) and not layout_of(value.type).is_plain
        set_layout(value, PLAIN)
    return changed


def _blocks_in(block: Block) -> Iterator[Block]:
    yield block
    for op in budget.within(block.ops):
        for region in op.regions:
            for inner in region.blocks:
                yield from _blocks_in(inner)


def changes_layout(op: Operation) -> bool:
    """Return whether an op is a `forward` from one layout to another, or the kernel of one."""
    forward = isinstance(op, Forward) or (isinstance(op, KernelOp) and [type(o) for o in op.ops] == [Forward])
    alone = forward and len(op.operands) == len(op.results) == 1
    return alone and layout_of(op.operands[0].type) != layout_of(op.results[0].type)


def _leave_out(ops: Sequence[Operation]) -> None:
    """Let readers of changes of layout read what these read. An output keeps its name, unless what is read is one
    itself or is no result of a kernel: then the op stays, as a copy."""
    for op in ops:
        (value,), (result,) = op.operands, op.results
        if any(isinstance(use.operation, ReturnOp) for use in result.uses):
            if not isinstance(value.owner, KernelOp) or any(isinstance(use.operation, ReturnOp) for use in value.uses):
                continue
            if (name := tensor_name(result)) is not None:
                _rename(value, name)
        result.replace_all_uses_with(value)
        op.detach()
        op.erase()


def set_layout(value: SSAValue, layout: Layout) -> None:
    """Give a value another layout; the ops around it have to follow."""
    if isinstance(value.type, TensorType) and layout_of(value.type) != layout:
        value._type = with_layout(value.type, layout)


@dataclass
class MapNode:
    """A kernel that some generator takes on blocked maps. `reads` are its operands that would be maps."""

    kernel: KernelOp
    blocking: Blocking
    reads: dict[SSAValue, Halo]
    blocked: bool = True

    @classmethod
    def of(cls, kernel: KernelOp, blocking: Blocking, static: set[SSAValue]) -> MapNode | Refusal:
        """Refused where it has to stay plain."""
        outside = kernel.outside
        form, yielded = blocking.form, kernel.terminator.operands
        reads: dict[SSAValue, Halo] = {}
        for arg, (rows, cols) in form.maps.items():
            known = reads.get(outside[arg], (0, 0))
            reads[outside[arg]] = (max(rows, known[0]), max(cols, known[1]))
        twice = any(value in reads and arg not in form.maps for arg, value in outside.items())
        if twice or len(set(yielded)) < len(yielded):
            return Refusal("a value would be a map and something else, or two results")
        if not all(outside[v] in static for v in form.weights):
            return Refusal("its weights are computed by the network, and would be packed")
        return cls(kernel, blocking, reads)

    @property
    def makes(self) -> Sequence[SSAValue]:
        """The results that would be maps."""
        return () if self.blocking.form.plain_results else self.kernel.results


@dataclass
class LayoutAssignment:
    """The choice of kernels of a block that run on blocked maps: those that make the network cheapest by the model of
    the target, the changes of layout between them and what stays plain included. Exact, as a minimum cut."""

    nodes: dict[Operation | Block, MapNode]
    target: Target
    static: set[SSAValue] = field(default_factory=set)
    refused: dict[KernelOp, Refusal] = field(default_factory=dict)

    @classmethod
    def of(cls, block: Block, target: Target, features: str) -> LayoutAssignment:
        """The cheapest one for a block."""
        found = cls({}, target, static := static_values(block))
        for op in block.ops:
            if not isinstance(op, KernelOp) or all(r in static for r in op.results):
                continue
            blocking = target.blocking(op, features)
            node = MapNode.of(op, blocking, static) if isinstance(blocking, Blocking) else blocking
            if isinstance(node, MapNode):
                found.nodes[op] = node
            else:
                found.refused[op] = node or Refusal("")
        found.decide()
        return found

    # -- deciding

    def decide(self) -> None:
        """Label the kernels, True for blocked."""
        cut = TwoLabels()
        numbers = {
            op: cut.node(_picoseconds(n.blocking.blocked), _picoseconds(n.blocking.plain))
            for op, n in self.nodes.items()
        }
        for value in dict.fromkeys(v for n in self.nodes.values() for v in (*n.reads, *n.makes)):
            if value not in self.static:
                self.add_reorders(cut, numbers, value)
        for node, label in zip(self.nodes.values(), cut.solve()):
            node.blocked = label

    def add_reorders(self, cut: TwoLabels, numbers: Mapping[Operation | Block, int], value: SSAValue) -> None:
        """Add the cost of changes of a value's layout: one, however many ops read it in the other layout."""
        owner = self.nodes.get(value.owner)
        makes = numbers[owner.kernel] if owner is not None and value in owner.makes else None
        readers = dict.fromkeys(use.operation for use in value.uses)
        maps = [numbers[op] for op in readers if op in self.nodes and value in self.nodes[op].reads]
        layout = next(self.nodes[op] for op in (value.owner, *readers) if op in self.nodes).blocking.map
        time = _picoseconds(self.target.reorder(value, layout))
        cut.any_true(maps, makes, time)
        if makes is not None and len(maps) < len(readers):
            cut.cost(makes, if_true=time)
        elif makes is not None:
            cut.any_false(makes, maps, time)

    def is_map(self, value: SSAValue) -> bool:
        """Return whether the op that makes a value makes it as a map."""
        node = self.nodes.get(value.owner)
        return node is not None and node.blocked and value in node.makes

    def readers(self, value: SSAValue) -> tuple[list[MapNode], list[Operation]]:
        """The kernels that read a value as a map, and the ops that read it plain."""
        maps: list[MapNode] = []
        plain: list[Operation] = []
        for use in value.uses:
            node = self.nodes.get(use.operation)
            if node is not None and node.blocked and value in node.reads:
                maps.append(node)
            else:
                plain.append(use.operation)
        return maps, plain

    # -- writing

    def write(self, names: FreshNames) -> bool:
        """Put the layouts on types, and kernels in between that change layouts. Whether there is anything to do."""
        chosen = [n for n in self.nodes.values() if n.blocked]
        if not chosen or (step := rewrites.begin("layout", [n.kernel for n in chosen])) is None:
            return False
        made: list[Operation] = []
        changed: dict[Operation, None] = dict.fromkeys(n.kernel for n in chosen)
        halos = self.halos(chosen)
        values = dict.fromkeys(v for n in chosen for v in (*n.reads, *n.makes))
        for value in values:
            maps, plain = self.readers(value)
            layout = (maps[0] if maps else self.nodes[value.owner]).blocking.map
            if isinstance(layout, Blocked):
                layout = replace(layout, halo=halos.get(value, (0, 0)))
            if self.is_map(value):
                set_layout(value, layout)
                other, users = PLAIN, set(plain)
            else:
                other, users = layout, {n.kernel for n in maps}
            changed.update((u, None) for u in users if isinstance(u, KernelOp))
            if users:
                made.append(change_layout(self.target, value, other, users, names))
        for op in (*changed, *made):
            follow(op)
        step.done([*(n.kernel for n in chosen), *made])
        return True

    def halos(self, chosen: Sequence[MapNode]) -> dict[SSAValue, Halo]:
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


def change_layout(
    target: Target, value: SSAValue, layout: Layout, users: set[Operation], names: FreshNames
) -> KernelOp:
    """A kernel behind the op that makes `value`, which gives it another layout for `users`, under the value's name and
    the layout's. An output keeps its name: then it is `value` that gets another one."""
    forward, owner = Forward.make([value]), value.owner
    if not isinstance(owner, Block):
        forward.location = owner.location
    set_layout(forward.results[0], layout)
    if (name := tensor_name(value)) is not None:
        own = names.fresh(f"{name}.{layout_of(value.type) if layout.is_plain else layout}")
        if any(isinstance(user, ReturnOp) for user in users):
            _rename(value, own)
            own = name
        elif layout.is_plain:
            own = names.fresh(f"{name}.plain")
        set_tensor_names(forward, [own])
        forward.attributes[OP_NAME] = StringAttr(own)
    kernel = target.kernel_op.wrap([forward])
    kernel.location = forward.location
    forward.erase()
    if isinstance(owner, Block):
        first = owner.first_op
        assert first is not None
        owner.insert_op_before(kernel, first)
    else:
        block = owner.parent
        assert block is not None
        block.insert_op_after(kernel, owner)
    value.replace_uses_with_if(kernel.results[0], lambda use: use.operation in users)
    return kernel


def _rename(value: SSAValue, name: str) -> None:
    assert isinstance(value, OpResult)
    names = list(tensor_names(value.op))
    names[value.index] = name
    set_tensor_names(value.op, names)


def _picoseconds(nanoseconds: float) -> int:
    return round(1000 * nanoseconds)


def follow(kernel: Operation) -> None:
    """Give the inside of a kernel the types of its operands and results."""
    assert isinstance(kernel, KernelOp)
    for arg, operand in zip(kernel.body.args, kernel.operands):
        arg._type, arg.name_hint = operand.type, operand.name_hint
    for inner, result in zip(kernel.terminator.operands, kernel.results):
        inner._type = result.type
