"""Edits that make a network smaller and keep it a network, for `ln-reduce`: ops, outputs and inputs go, what they leave
behind is closed again. Levels 1 to 3; `loop_edits.py` has level 4.

An edit changes a module in place, and need not succeed: `reduce.py` tries it on a copy, which it throws away where the
result does not verify. Imports xDSL, `ir` and the `ln` dialect.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, SSAValue
from xdsl.traits import IsTerminator

from lightnet.dialects.ln.source import Create, Input, ParamOp, Source
from lightnet.ir.counts import set_outputs
from lightnet.ir.kernel import KernelOp, RegionOp, YieldOp
from lightnet.ir.layout import byte_size
from lightnet.ir.memory import ARENA, STATIC, memory_of, set_memory, workspace_size
from lightnet.ir.names import FreshNames, set_tensor_names, tensor_name, tensor_names
from lightnet.ir.op import PLACES, WORKSPACE, LnOp, places_of
from lightnet.ir.place import PlaceAttr
from lightnet.ir.types import spec_of
from lightnet.runtime.arrays import align_up


class Fresh:
    """Makes the sources that stand for values which nothing computes any more: of the same type, a param where only
    params are read, under the value's name. In a planned module each has bytes of its own, behind all others."""

    def __init__(self, module: ModuleOp):
        self.module = module
        ops = list(module.walk())
        self.bound = not any(isinstance(op, Create) for op in ops)
        self.sizes = memory_of(module)
        self.names = FreshNames(n for op in ops if isinstance(op, Source) for n in tensor_names(op) if n)

    def source(self, value: SSAValue, *, param: bool | None = None) -> Source:
        """A source to take the place of `value`; the caller inserts it."""
        spec = spec_of(value.type)
        cls = Create if not self.bound else ParamOp if param or (param is None and not _is_data(value)) else Input
        contents = {
            "dims": spec.dims,
            "dtype": spec.dtype.tl,
            "ran": (0 if spec.dtype.kind in ("uint", "bool") else -1, 1),
        }
        name = self.names.fresh(tensor_name(value) or value.name_hint or "x")
        op = cls.make([], contents, tensors=[name])
        op.results[0]._type = value.type  # in its layout, too
        if self.sizes:
            op.attributes[PLACES] = ArrayAttr([self.place(op.results[0].type, STATIC if cls is ParamOp else ARENA)])
        return op

    def place(self, type: Attribute, space: str) -> PlaceAttr:
        """Bytes that nothing else has."""
        size = byte_size(type)
        at = align_up(self.sizes.get(space, 0)) if size else 0
        self.sizes[space] = max(self.sizes.get(space, 0), at + size)
        set_memory(self.module, self.sizes)
        return PlaceAttr(space, at)


def _is_data(value: SSAValue) -> bool:
    """Return whether anything but the param operand of an op reads the value."""
    for use in value.uses:
        user = use.operation
        if isinstance(user, KernelOp):
            if _is_data(user.body.args[use.index]):
                return True
        elif not isinstance(user, LnOp) or user.schema.operand_fields(len(user.operands))[use.index].role == "data":
            return True
    return False


# -- what there is to drop ---------------------------------------------------------------------------------------------


def block_functions(module: ModuleOp) -> list[FuncOp]:
    """The functions of one block."""
    return [op for op in module.ops if isinstance(op, FuncOp) and len(op.body.blocks) == 1]


def graph_ops(module: ModuleOp) -> list[Operation]:
    """The ops of all functions that are graphs, in order: no sources, no terminators, nothing in a region."""
    blocks = [f.body.block for f in block_functions(module)]
    graphs = [b for b in blocks if any(isinstance(op, LnOp | RegionOp) for op in b.ops)]
    return [op for b in graphs for op in b.ops if not isinstance(op, Source) and not op.has_trait(IsTerminator)]


def body_ops(module: ModuleOp) -> list[Operation]:
    """The ops inside of kernels and `ln.once`, but for the only op of a kernel."""
    regions = [op for op in graph_ops(module) if isinstance(op, RegionOp)]
    bodies = [(r, [op for op in r.body.ops if not isinstance(op, YieldOp | Source)]) for r in regions]
    return [op for region, ops in bodies if len(ops) > 1 or not isinstance(region, KernelOp) for op in ops]


def unread_results(module: ModuleOp) -> list[tuple[RegionOp, int]]:
    """The results of kernels and `ln.once` that nothing reads."""
    regions = [op for op in graph_ops(module) if isinstance(op, RegionOp)]
    return [(op, i) for op in regions for i, value in enumerate(op.results) if value.first_use is None]


def outputs(module: ModuleOp) -> list[tuple[Operation, int]]:
    """Every value that a function returns, as an operand of its `func.return`."""
    lasts = [f.body.block.last_op for f in block_functions(module)]
    return [(last, i) for last in lasts if isinstance(last, ReturnOp) for i in range(len(last.operands))]


def twins(module: ModuleOp) -> list[tuple[SSAValue, SSAValue]]:
    """Pairs of sources of one kind, role and type: (the first of them, another)."""
    found: list[tuple[SSAValue, SSAValue]] = []
    for block in (f.body.block for f in block_functions(module)):
        first: dict[object, SSAValue] = {}
        for op in block.ops:
            if isinstance(op, Source):
                value = op.results[0]
                twin = first.setdefault((op.name, value.type, _is_data(value)), value)
                found += [(twin, value)] if twin is not value else []
    return found


def like_operands(module: ModuleOp) -> list[tuple[Operation, int]]:
    """The ops of levels 1 to 3 whose results all have the type of an operand, with each such operand."""
    found = []
    for op in module.walk():
        if isinstance(op, LnOp | KernelOp) and op.results and len(set(op.result_types)) == 1:
            found += [(op, i) for i, v in enumerate(op.operands) if v.type == op.results[0].type]
    return found


# -- edits -------------------------------------------------------------------------------------------------------------


def drop_ops(module: ModuleOp, gone: Collection[Operation]) -> None:
    """Drop ops of graphs. What others read of their results becomes a source; what they alone read becomes an output,
    and an output of theirs is none any more."""
    fresh = Fresh(module)
    for block in dict.fromkeys(op.parent for op in gone):
        assert block is not None
        _drop_ops(block, {op for op in gone if op.parent is block}, fresh)


def _drop_ops(block: Block, gone: set[Operation], fresh: Fresh) -> None:
    last = block.last_op
    assert last is not None
    leaving = [v for v in last.operands if v.owner not in gone]
    kept = [op for op in block.ops if op not in gone and op is not last and not isinstance(op, Source)]
    leaving += [v for v in _read_by_alone(kept, gone) if v not in leaving]
    set_outputs(last, leaving)
    for op in gone:
        for value in op.results:
            if any(use.operation not in gone for use in value.uses):
                source = fresh.source(value)
                block.insert_op_before(source, op)
                value.replace_uses_with_if(source.dst, lambda use: use.operation not in gone)
    _erase(gone)


def _read_by_alone(kept: Iterable[Operation], readers: set[Operation]) -> list[SSAValue]:
    """The results of `kept` that `readers` read and nothing else does."""
    values = (v for op in kept for v in op.results if v.first_use is not None)
    return [v for v in values if all(use.operation in readers for use in v.uses)]


def _erase(gone: Iterable[Operation]) -> None:
    """Erase ops that read nothing but each other, whatever their order."""
    ops = list(gone)
    for op in ops:
        op.detach()
    for op in ops:
        op.erase(safe_erase=False)


def drop_body_ops(module: ModuleOp, gone: Collection[Operation]) -> None:
    """Drop ops inside of kernels and `ln.once`: as `drop_ops`, where operands and results of the region op take the
    part of inputs and outputs."""
    fresh = Fresh(module)
    for region in dict.fromkeys(op.parent_op() for op in gone):
        assert isinstance(region, RegionOp)
        _drop_inside(region, {op for op in gone if op.parent is region.body}, fresh)


def _drop_inside(region: RegionOp, gone: set[Operation], fresh: Fresh) -> None:
    body, block = region.body, region.parent
    assert block is not None
    last = region.terminator
    stay = [i for i, v in enumerate(last.operands) if v.owner not in gone]
    kept = [op for op in body.ops if op not in gone and op is not last and not isinstance(op, Source)]
    yielded = [*(last.operands[i] for i in stay), *_read_by_alone(kept, gone)]
    operands = list(region.operands)
    for op in gone:
        for value in op.results:
            if not any(use.operation not in gone and use.operation is not last for use in value.uses):
                continue
            if isinstance(region, KernelOp):
                source = fresh.source(value)
                block.insert_op_before(source, region)
                operands.append(source.dst)
                inside: SSAValue = body.insert_arg(value.type, len(body.args))
            else:
                source = fresh.source(value, param=True)
                source.attributes.pop(PLACES, None)
                body.insert_op_before(source, op)
                inside = source.dst
            value.replace_uses_with_if(inside, lambda use: use.operation not in gone)
    last.detach()
    last.erase()
    _erase(gone)
    body.add_op(YieldOp.of(yielded))
    _remake(region, operands, stay, fresh)


def drop_results(module: ModuleOp, gone: Collection[tuple[RegionOp, int]]) -> None:
    """Yield less; what computed it stays."""
    fresh = Fresh(module)
    for region in dict.fromkeys(op for op, _ in gone):
        stay = [i for i in range(len(region.results)) if (region, i) not in gone]
        last = region.terminator
        last.operands = [last.operands[i] for i in stay]
        _remake(region, list(region.operands), stay, fresh)


def _remake(region: RegionOp, operands: list[SSAValue], stay: list[int], fresh: Fresh) -> None:
    """A region op anew after its body has changed: of its results those in `stay` remain, the first that it yields now;
    the others that it yields are outputs."""
    block = region.parent
    assert block is not None
    old_names, old_places = tensor_names(region), places_of(region)
    body = region.detach_region(region.regions[0])
    last = body.block.last_op
    assert last is not None
    added = list(last.operands)[len(stay) :]
    attributes = {k: v for k, v in region.attributes.items() if k != PLACES}
    new = type(region).create(operands=operands, result_types=last.operand_types, regions=[body],
                              attributes=attributes, location=region.location)  # fmt: skip
    set_tensor_names(new, [*(old_names[i] for i in stay), *map(tensor_name, added)])
    if old_places:
        space = old_places[0].space.data
        more = [fresh.place(v.type, space) for v in added]
        new.attributes[PLACES] = ArrayAttr([*(old_places[i] for i in stay), *more])
    block.insert_op_before(new, region)
    for i, value in zip(stay, new.results):
        region.results[i].replace_all_uses_with(value)
    end = block.last_op
    assert end is not None
    end.operands = [v for v in end.operands if v.owner is not region] + list(new.results[len(stay) :])
    for value in region.results:
        if value.first_use is not None:
            source = fresh.source(value)
            block.insert_op_before(source, region)
            value.replace_all_uses_with(source.dst)
    region.detach()
    region.erase()
    if not new.results:
        new.detach()
        new.erase()


def drop_outputs(module: ModuleOp, gone: Collection[tuple[Operation, int]]) -> None:
    """Return fewer values; what computed them stays."""
    for last in dict.fromkeys(op for op, _ in gone):
        set_outputs(last, [v for i, v in enumerate(last.operands) if (last, i) not in gone])


def merge_twins(module: ModuleOp, pairs: Collection[tuple[SSAValue, SSAValue]]) -> None:
    """Read the first of two equal sources wherever the other is read."""
    for first, other in pairs:
        other.replace_all_uses_with(first)


def bypass(module: ModuleOp, sites: Collection[tuple[Operation, int]]) -> None:
    """Replace the results of ops by an operand of each, the first of those given."""
    for op, operand in dict(reversed(list(sites))).items():
        for result in op.results:
            result.replace_all_uses_with(op.operands[operand])
        _erase([op])


def spare_memory(module: ModuleOp) -> list[str]:
    """The memory spaces of a planned module of level 3 that are larger than what stands in them."""
    needed = _needed(module)
    return [space for space, size in memory_of(module).items() if space in needed and needed[space] < size]


def shrink_memory(module: ModuleOp, spaces: Collection[str]) -> None:
    """Make spaces as large as what stands in them."""
    needed = _needed(module)
    set_memory(module, {k: needed[k] if k in spaces else n for k, n in memory_of(module).items()})


def _needed(module: ModuleOp) -> dict[str, int]:
    """Bytes of each space up to the end of the last value or workspace in it; nothing for other levels than 3."""
    ops = [op for f in block_functions(module) for op in f.body.block.ops if isinstance(op, LnOp | RegionOp)]
    needed = dict.fromkeys(memory_of(module), 0) if ops else {}
    for op in ops:
        ends = [(p, p.offset.data + byte_size(r.type)) for p, r in zip(places_of(op), op.results)]
        work = op.attributes.get(WORKSPACE)
        ends += [(p, p.offset.data + workspace_size(op)) for p in (work.data if isinstance(work, ArrayAttr) else ())]
        for place, end in ends:
            needed[place.space.data] = max(needed.get(place.space.data, 0), end)
    return needed


@contextmanager
def tidied(module: ModuleOp) -> Iterator[None]:
    """Around an edit: sources and operands of kernels that lose their last reader by it go too, and the types of
    functions follow what they return."""
    unread = {v for v in _droppable(module) if v.first_use is None}
    yield
    for value in list(_droppable(module)):
        if value.first_use is not None or value in unread:
            continue
        if isinstance(value, BlockArgument):
            kernel = value.block.parent_op()
            assert isinstance(kernel, KernelOp)
            kernel.operands = [v for i, v in enumerate(kernel.operands) if i != value.index]
            value.block.erase_arg(value)
        else:
            assert isinstance(value, OpResult)
            _erase([value.op])
    for function in block_functions(module):
        function.update_function_type()


def _droppable(module: ModuleOp) -> Iterator[SSAValue]:
    """The values that kernels read, then those that sources make: a source may lose its reader when a kernel drops an
    operand.
    """
    ops = list(module.walk())
    for op in ops:
        if isinstance(op, KernelOp):
            yield from reversed(op.body.args)
    for op in ops:
        if isinstance(op, Source):
            yield op.results[0]
