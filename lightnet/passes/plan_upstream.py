"""`--plan=upstream`: the offsets and sizes that the C implementation gives, byte for byte.

Works on a network that was never fused: ops of level 1, or kernels of one op each, or kernels that stand for one op of
upstream's (`CompositeKernelOp`). The order of ops is that of the pass `preprocess`. Each memory space has a pool of
document 004 for its memory type; the rules are in `_Planner`. All that upstream lays into one memory type lies in one
space; offsets start at the alignment (at 1 for ``cpu``). As upstream does, tensors that nobody consumes are
overwritten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Block, Operation, OpResult, SSAValue

from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.structure import planned_ops
from lightnet.ir import budget
from lightnet.ir.kernel import CompositeKernelOp, KernelOp
from lightnet.ir.layout import is_plain
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import ARENA, PLAN_RULES, TYPES, memory_type, set_memory, unplan
from lightnet.ir.module import main_of, value_name
from lightnet.ir.op import LnOp, Result
from lightnet.ir.place import PlaceAttr
from lightnet.ir.target import Target
from lightnet.ir.types import spec_of
from lightnet.passes.plan import write_places
from lightnet.passes.planning.upstream import Pool
from lightnet.runtime.dims import is_known


def plan_upstream(
    module: ModuleOp, target: Target | None = None, *, alignment: int | None = None, capacity: int | None = None
) -> None:
    """Plan a never-fused module in place for a target (default: everything stands in the arena, of memory type
    ``cpu``). Alignment and capacity, in bytes, are those of the memory types unless given. Raises `LightNetError` for a
    fused network."""
    unplan(module)
    block = main_of(module).body.block
    for op in planned_ops(block):
        if not all(is_known(spec_of(v.type).dims) for v in op.results):
            raise LightNetError(f"{op.name}: upstream's plan knows shapes that are numbers only", loc_of(op),
                                label="plan.upstream-dims")  # fmt: skip
        if not is_plain(op):
            raise LightNetError(f"{op.name}: upstream's plan knows row-major tensors only: leave the pass layout out",
                                loc_of(op),
                                label="plan.upstream-layout")  # fmt: skip
        if not isinstance(op, ReturnOp):
            _single(op)
    target = target or Target("cpu")
    ops = planned_ops(block)
    types = {space: target.mtype(space) for space in _spaces(ops, target)}
    pools = {
        space: Pool(capacity or memory_type(mtype).capacity, alignment or memory_type(mtype).alignment)
        for space, mtype in types.items()
    }
    planner = _Planner(ops, pools, target)
    places = planner.run()
    _check_overwritten(ops, planner.root)
    write_places(module, ops, dict(places), {})
    set_memory(module, {space: pool.high_water for space, pool in pools.items()})
    module.attributes[PLAN_RULES] = StringAttr("upstream")
    if set(types.values()) != {"cpu"}:
        module.attributes[TYPES] = DictionaryAttr({space: StringAttr(mtype) for space, mtype in types.items()})


def _spaces(ops: Sequence[Operation], target: Target) -> list[str]:
    """The memory spaces that values stand in, the arena first."""
    found = dict.fromkeys([ARENA, *(target.space_of(value) for op in ops for value in op.results)])
    return list(found)


def is_kept_by_upstream(value: SSAValue) -> bool:
    """Return whether upstream never frees the tensor: results of `create` and `arange`."""
    field = _field(value)
    return field is not None and field.static


def _check_overwritten(ops: list[Operation], root: dict[SSAValue, SSAValue]) -> None:
    """Refuse a network in which a tensor is read after an op that upstream runs in place on its memory."""
    position: dict[Operation | Block, int] = {op: i for i, op in enumerate(ops)}
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
                inner = _single(op)
                assert inner is not None
                raise LightNetError(
                    f"upstream's {inner.optype} overwrites `{value_name(other)}` in place, but a later op reads it: "
                    "no upstream plan keeps both (plan=default does)",
                    loc_of(late),
                    label="plan.upstream-overwritten",
                )


class _Planner:
    """Upstream's planner: first every use is counted for the root owner of the tensor, and static tensors are
    allocated in order of ops; then, op by op, the other results are allocated, results that nobody uses are freed at
    once, and each operand is freed after its last use (so that results never overlap operands but by ownership)."""

    def __init__(self, ops: list[Operation], pools: Mapping[str, Pool], target: Target):
        self.ops = ops
        self.pools = pools
        self.target = target
        self.root: dict[SSAValue, SSAValue] = {}
        self.uses: Counter[SSAValue] = Counter()
        self.places: dict[SSAValue, PlaceAttr] = {}

    def run(self) -> dict[SSAValue, PlaceAttr]:
        for op in budget.within(self.ops):
            if isinstance(op, ReturnOp):
                continue
            for value in op.results:
                owner = _owner(value)
                self.root[value] = value if owner is None else self.root[owner]
                if is_kept_by_upstream(value):
                    self.places[value] = self.alloc(op, value)
            self.uses.update(self.root[v] for v in _operands(op))
        for op in self.ops:
            if not isinstance(op, ReturnOp):
                self.step(op)
        return self.places

    def step(self, op: Operation) -> None:
        for value in op.results:
            if self.root[value] is not value:
                self.places[value] = self.places[self.root[value]]
            elif not is_kept_by_upstream(value):
                self.places[value] = self.alloc(op, value)
        for value in op.results:
            if not self.uses[value] and self.root[value] is value and not is_kept_by_upstream(value):
                self.dealloc(value)
        for operand in _operands(op):
            root = self.root[operand]
            self.uses[root] -= 1
            if not self.uses[root] and not is_kept_by_upstream(root):
                self.dealloc(root)

    def dealloc(self, value: SSAValue) -> None:
        place = self.places[value]
        self.pools[place.space.data].dealloc(place.offset.data)

    def alloc(self, op: Operation, value: SSAValue) -> PlaceAttr:
        spec, space = spec_of(value.type), self.target.space_of(value)
        try:  # an empty tensor has an address of its own
            return PlaceAttr(space, self.pools[space].alloc(max(spec.len * spec.dtype.tl_size, 1)))
        except LightNetError as e:
            e.message = f"no place for tensor '{value_name(value)}' {spec}: {e.message}"
            raise e.at(loc_of(op)) from None


def _single(op: Operation) -> LnOp | None:
    """The one `ln` op that `op` is or holds; None for a kernel that stands for one of upstream's ops, however many it
    holds."""
    if isinstance(op, CompositeKernelOp):
        return None
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
    if not isinstance(op, KernelOp) or (inner := _single(op)) is None:
        return list(op.operands)
    outside = op.outside
    return [outside[v] for v in inner.operands]


def _field(value: SSAValue) -> Result | None:
    if not isinstance(value, OpResult) or (op := _single(value.op)) is None:
        return None
    results = op.schema.results
    return results[min(value.index, len(results) - 1)]


def _owner(value: SSAValue) -> SSAValue | None:
    """The operand in whose memory upstream makes the result."""
    field = _field(value)
    if field is None or field.owner is None:
        return None
    op = value.owner
    assert isinstance(op, Operation)
    inner = _single(op)
    assert inner is not None
    names, _ = inner.arg_names()
    return _operands(op)[names.index(field.owner)]
