"""`--plan=upstream`: the order of ops, offsets and sizes that the C implementation gives, byte for byte.

Works on a network that was never fused: ops of level 1, or kernels of one op each. Two steps: upstream's `preprocess`
(static tensors move to the front), and its planner on the pool of document 004, whose rules are in `_Planner`. All that
upstream lays into one memory type lies in the space `arena`; offsets start at 1. As upstream does, tensors that nobody
consumes are overwritten. `print` is no static op here: it shows a tensor where it stands in the program.
"""

from __future__ import annotations

from collections import Counter

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Block, Operation, SSAValue

from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.structure import planned_ops
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import is_plain
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import ARENA, PLAN_RULES, set_memory, unplan
from lightnet.ir.module import main_of, value_name
from lightnet.ir.op import LnOp, Result
from lightnet.ir.place import PlaceAttr
from lightnet.ir.types import spec_of
from lightnet.passes.plan import write_places
from lightnet.passes.planning.upstream import Pool


def plan_upstream(module: ModuleOp, *, alignment: int = 1, capacity: int = 16 << 30) -> None:
    """Reorder and plan a never-fused module in place. Raises `LightNetError` for a fused one."""
    unplan(module)
    block = main_of(module).body.block
    for op in planned_ops(block):
        if not is_plain(op):
            raise LightNetError(f"{op.name}: upstream's plan knows row-major tensors only: leave the pass layout out", loc_of(op),
                                label="plan.upstream-layout")  # fmt: skip
        if not isinstance(op, ReturnOp):
            _single(op)
    preprocess(block)
    preprocess(block)
    ops = planned_ops(block)
    planner = _Planner(ops, Pool(capacity, alignment))
    offsets = planner.run()
    _check_overwritten(ops, planner.root)
    write_places(module, ops, {v: PlaceAttr(ARENA, x) for v, x in offsets.items()}, {})
    set_memory(module, {ARENA: planner.pool.high_water})
    module.attributes[PLAN_RULES] = StringAttr("upstream")


def preprocess(block: Block) -> None:
    """Move each op whose operands and results are all static to right behind the op that makes the last of its
    operands, or to the front if it has none. So one pass reverses the `create`s, and upstream's two restore them; the
    first op of the list stays."""
    ops = list(block.ops)
    for op in ops[1:-1]:
        if not op.results or not all(map(is_static, op.results)) or not all(map(is_static, op.operands)):
            continue
        makers = {v.owner for v in op.operands if isinstance(v.owner, Operation)}
        last = next((o for o in reversed(list(block.ops)) if o in makers), None) if makers else None
        op.detach()
        if last is None:
            assert block.first_op is not None
            block.insert_op_before(op, block.first_op)
        else:
            block.insert_op_after(op, last)


def is_static(value: SSAValue) -> bool:
    """Whether upstream never frees the tensor: results of `create` and `arange`."""
    field = _field(value)
    return field is not None and field.static


def _check_overwritten(ops: list[Operation], root: dict[SSAValue, SSAValue]) -> None:
    """Refuse a network in which a tensor is read after an op that upstream runs in place on its memory."""
    position = {op: i for i, op in enumerate(ops)}
    sharing: dict[SSAValue, list[SSAValue]] = {}
    for value, owner in root.items():
        sharing.setdefault(owner, []).append(value)
    for value, owner in root.items():
        field = _field(value)
        if field is None or not field.overwrites:
            continue
        op = value.owner
        assert isinstance(op, Operation)
        for other in sharing[owner]:
            if position[other.owner] >= position[op]:  # made of the new contents
                continue
            late = next((u.operation for u in other.uses if position.get(u.operation, 0) > position[op]), None)
            if late is not None and not isinstance(late, ReturnOp):
                raise LightNetError(
                    f"upstream's {_single(op).optype} overwrites `{value_name(other)}` in place, but a later op reads it: "
                    "no upstream plan keeps both (plan=default does)",
                    loc_of(late),
                    label="plan.upstream-overwritten",
                )


class _Planner:
    """Upstream's planner: first every use is counted for the root owner of the tensor, and static tensors are
    allocated in order of ops; then, op by op, the other results are allocated, results that nobody uses are freed at
    once, and each operand is freed after its last use (so that results never overlap operands but by ownership)."""

    def __init__(self, ops: list[Operation], pool: Pool):
        self.ops = ops
        self.pool = pool
        self.root: dict[SSAValue, SSAValue] = {}
        self.uses: Counter[SSAValue] = Counter()
        self.offsets: dict[SSAValue, int] = {}

    def run(self) -> dict[SSAValue, int]:
        for op in self.ops:
            if isinstance(op, ReturnOp):
                continue
            for value in op.results:
                owner = _owner(value)
                self.root[value] = value if owner is None else self.root[owner]
                if is_static(value):
                    self.offsets[value] = self.alloc(op, value)
            self.uses.update(self.root[v] for v in _operands(op))
        for op in self.ops:
            if not isinstance(op, ReturnOp):
                self.step(op)
        return self.offsets

    def step(self, op: Operation) -> None:
        for value in op.results:
            if self.root[value] is not value:
                self.offsets[value] = self.offsets[self.root[value]]
            elif not is_static(value):
                self.offsets[value] = self.alloc(op, value)
        for value in op.results:
            if not self.uses[value] and self.root[value] is value and not is_static(value):
                self.pool.dealloc(self.offsets[value])
        for value in _operands(op):
            root = self.root[value]
            self.uses[root] -= 1
            if not self.uses[root] and not is_static(root):
                self.pool.dealloc(self.offsets[root])

    def alloc(self, op: Operation, value: SSAValue) -> int:
        spec = spec_of(value.type)
        try:
            return self.pool.alloc(max(spec.len * spec.dtype.tl_size, 1))  # an empty tensor has an address of its own
        except LightNetError as e:
            e.message = f"no place for tensor '{value_name(value)}' {spec}: {e.message}"
            raise e.at(loc_of(op)) from None


def _single(op: Operation) -> LnOp:
    """The one `ln` op that `op` is or holds."""
    inner = op.ops if isinstance(op, KernelOp) else [op]
    if len(inner) != 1 or not isinstance(inner[0], LnOp):
        raise LightNetError(
            "upstream's plan needs a network that was never fused or hoisted: expand it without combine "
            f"and hoist, here stands a {op.name} of {len(inner)} ops",
            loc_of(op),
            label="plan.upstream",
        )
    return inner[0]


def _operands(op: Operation) -> list[SSAValue]:
    """The operands as often as upstream's op lists them."""
    if not isinstance(op, KernelOp):
        return list(op.operands)
    outer = dict(zip(op.body.args, op.operands))
    return [outer[v] for v in _single(op).operands]


def _field(value: SSAValue) -> Result | None:
    owner = value.owner
    if not isinstance(owner, Operation):
        return None
    results = _single(owner).schema.results
    return results[min(value.index, len(results) - 1)]


def _owner(value: SSAValue) -> SSAValue | None:
    """The operand in whose memory upstream makes the result."""
    field = _field(value)
    if field is None or field.owner is None:
        return None
    op = value.owner
    assert isinstance(op, Operation)
    names, _ = _single(op).arg_names()
    return _operands(op)[names.index(field.owner)]
