"""A described rule at work: it builds the new ops, puts them where the matched ones stood, and keeps names and
locations.

At level 1 ops stand in the function itself; at level 2 each new op gets a kernel of its own. Names follow upstream: an
op that is new is called ``<optype><n>``, its tensors ``<op>_<arg>``. A tensor that takes the place of another keeps its
name, and an op of the optype of a matched one that one's. Imports xDSL, `ir`, the `ln` dialect and the modules beside
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from xdsl.dialects.builtin import StringAttr
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint

from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.move import Forward
from lightnet.dialects.ln.source import Source
from lightnet.ir.kernel import KernelOp
from lightnet.ir.locations import fused, set_loc
from lightnet.ir.memory import ARENA, MTYPE
from lightnet.ir.names import FreshNames
from lightnet.ir.op import OP_NAME, LnOp, name_of, set_tensor_names, tensor_names
from lightnet.ir.refusal import Refusal
from lightnet.ir.target import Target
from lightnet.ir.types import spec_of
from lightnet_descriptions.details import New, NewKernel, NewOp, Renamed, Replacement
from lightnet_descriptions.scope import Ops
from lightnet_descriptions.tensors import holder, is_returned, kernel_of, origin, outside, readers


def rename_op(to: Renamed, op: LnOp, rewriter: PatternRewriter, kernel: type[KernelOp] | None) -> None:
    """Make an op of level 1 one of another optype, with its name, tensors and parameters, in a `kernel` if there is
    one."""
    if type(op) is to.cls:
        new = op
    else:
        try:
            new = to.cls.make(op.operands, op.param_values(), name=op.op_name)
        except LightNetError as e:
            raise to.item.error(f"`{op.op_name or op.optype}` cannot be this op: {e.message}", e.label) from None
        set_tensor_names(new, tensor_names(op))
    if new.result_types != op.result_types:
        new.erase()
        raise to.item.error(f"the results of {to.cls.optype} have other types than those of {op.optype}")
    if kernel is None:
        rewriter.replace(op, new)
        return
    set_loc(new, op.location)
    wrapped = kernel.wrap([new])
    set_loc(wrapped, op.location)
    if new is not op:
        new.erase()
    rewriter.replace(op, wrapped)


def stand_in(op: LnOp, arch: Target, target: Target) -> bool:
    """Let what enters the network stand in the memory of an arch; False, as nothing is replaced. Raises `LightNetError`
    where `target`, which the network is for, has no such memory."""
    mtype = arch.mtype(ARENA)
    if mtype not in (types := {target.mtype(space) for space in target.spaces}):
        raise LightNetError(
            f"target '{target.name}' has no memory of type '{mtype}'; there are: {', '.join(sorted(types))}"
        )
    if isinstance(op, Source) and len(types) > 1:
        op.attributes[MTYPE] = StringAttr(mtype)
    return False


def replace(
    what: Replacement,
    ops: Ops,
    anchor: LnOp,
    rewriter: PatternRewriter,
    target: Target,
    wrapped: Mapping[str, Target],
) -> bool | Refusal:
    """Put the new ops before `anchor`, the last matched op, and take the matched ones away; those of the variables
    `wrapped` in kernels of their arch, in a network for `target`. A refusal, and nothing done, where a matched value is
    still needed or a kernel has other ops, too."""
    old = holders(ops)
    if not _covers(old, ops):
        return Refusal("a kernel of theirs has other ops, too")
    if not _is_free(what, ops, old):
        return Refusal("a matched value is needed elsewhere, too")
    env: dict[str, Any] = dict(ops)
    try:
        for new in what.new_ops:
            env[new.var] = made = new.build(env)
            if isinstance(made, Source) and new.var in wrapped:
                stand_in(made, wrapped[new.var], target)
            elif new.var in wrapped and (reason := refusal(made, wrapped[new.var])) is not None:
                raise new.item.error(reason)
        taken = {_value(ops, k): ref.value(env) for k, ref in what.results.items()}
        _check_types(taken)
    except LightNetError:
        _erase(what, env)
        raise
    if any(_keeps_a_name(old, new) for old, new in taken.items()):
        _erase(what, env)
        return Refusal("the name of an output would get lost")
    _name(what, ops, anchor, env, taken)
    kernels = {var: t.kernel_op for var, t in wrapped.items() if not isinstance(env[var], Source)}
    _insert(what, env, old, taken, rewriter, kernels)
    return True


def _erase(what: Replacement, env: Ops) -> None:
    """Throw the new ops away."""
    for new in reversed([new for new in what.new_ops if new.var in env]):
        env[new.var].erase()


def _keeps_a_name(old: SSAValue, new: SSAValue) -> bool:
    """Return whether `old` is a copy that gives an output its name: where another tensor took its place, a copy would
    again."""
    attached = isinstance(new.owner, Block) or new.owner.parent is not None
    return attached and isinstance(old.owner, Forward) and all(isinstance(op, ReturnOp) for op, _ in readers(old))


def refusal(op: LnOp, target: Target) -> str | None:
    """The reason why an op cannot be a kernel of `target`; None where it can."""
    reason = op.refusal(target.name)
    if reason is None and not target.supports(op):
        reason = "it runs no such op"
    return None if reason is None else f"target '{target.name}' cannot run {op.optype}: {reason}"


def holders(ops: Ops) -> list[Operation]:
    """The ops of the function's block that hold the matched ones, in program order."""
    found = set(map(holder, ops.values()))
    return [op for op in span_of(next(iter(found)), found) if op in found]


def span_of(root: Operation, matched: set[Operation]) -> list[Operation]:
    """The ops from the first of `matched` to the last, in program order, found from `root`, one of them: the time is
    that of their distance, not of the block."""
    before, after = [root], [root]
    left = matched - {root}
    while left and (before[-1].prev_op is not None or after[-1].next_op is not None):
        for ops, op in ((before, before[-1].prev_op), (after, after[-1].next_op)):
            if op is not None:
                ops.append(op)
                left.discard(op)
    span = [*before[:0:-1], *after]
    inside = [i for i, op in enumerate(span) if op in matched]
    return span[inside[0] : inside[-1] + 1]


def _covers(old: Sequence[Operation], ops: Ops) -> bool:
    """Return whether the kernels hold matched ops only."""
    matched = set(ops.values())
    return all(set(k.ops) <= matched for k in old if isinstance(k, KernelOp))


def _is_free(what: Replacement, ops: Ops, old: Sequence[Operation]) -> bool:
    """Return whether no op outside reads a result that nothing takes the place of, nor one too early, and no new op one
    that is gone.
    """
    matched = set(ops.values())
    heirs = {_value(ops, key) for key in what.results}
    for op in matched:
        for result in op.results:
            outer = [reader for reader, _ in readers(result) if reader not in matched]
            if outer and result not in heirs:
                return False
            early = holder(op) is not old[-1]
            if early and any(holder(r).is_before_in_block(old[-1]) for r in outer):
                return False
    gone = {r for op in matched for r in op.results}
    reads = [ref for new in what.new_ops for ref in new.operands.values() if ref.var in ops]
    reads += [ref for ref in what.results.values() if ref.var in ops]
    return not any(origin(ref.value(ops)) in gone for ref in reads)


def _value(ops: Ops, key: tuple[str, str]) -> SSAValue:
    op = ops[key[0]]
    names = op.arg_names()[1]
    if key[1] in names:
        return op.results[names.index(key[1])]
    number = int(key[1]) if key[1].isdigit() else len(op.results)
    if number >= len(op.results):
        raise LightNetError(f"`{op.op_name or op.optype}` has no output tensor `{key[1]}`")
    return op.results[number]


def _check_types(taken: Mapping[SSAValue, SSAValue]) -> None:
    for old, new in taken.items():
        if old.type != new.type:
            raise LightNetError(f"a {spec_of(new.type)} takes the place of a {spec_of(old.type)}")


# -- names -----------------------------------------------------------------------------------------------------------


def _name(what: Replacement, ops: Ops, anchor: LnOp, env: Ops, taken: Mapping[SSAValue, SSAValue]) -> None:
    """Name the new ops and their tensors; a network without names stays without."""
    replaced = {new: old for old, new in taken.items()}
    used = _used(anchor) if anchor.op_name is not None and what.new_ops else None
    if used is not None:
        _name_ops(what, ops, env, replaced, used)
    for new in what.new_ops:
        op = env[new.var]
        args = list(new.outs) if isinstance(new, NewKernel) else op.arg_names()[1]
        names = [_tensor_name(new, arg, op, replaced.get(r), env, used) for arg, r in zip(args, op.results)]
        set_tensor_names(op, names)


def _name_ops(what: Replacement, ops: Ops, env: Ops, replaced: Mapping[SSAValue, SSAValue], used: _Used) -> None:
    """An op of the optype of a matched one takes that one's name, first what takes over its result; others are new."""
    left = [op for op in ops.values() if op.op_name is not None]
    made = [env[new.var] for new in what.new_ops]
    for is_heir in (True, False):
        for op in made:
            heir_of = {replaced[r].owner for r in op.results if r in replaced}
            old = next((o for o in left if type(o) is type(op) and (o in heir_of or not is_heir)), None)
            if name_of(op) is None and old is not None:
                op.attributes[OP_NAME] = old.attributes[OP_NAME]
                left.remove(old)
    for new, op in zip(what.new_ops, made):
        if name_of(op) is None:
            used.name_op(op, new.optype)


def _tensor_name(new: New, arg: str, op: Operation, heir: SSAValue | None, env: Ops, used: _Used | None) -> str | None:
    if heir is not None:
        assert isinstance(heir.owner, Operation)
        return tensor_names(heir.owner)[heir.owner.results.index(heir)]
    if isinstance(new, NewOp) and arg in new.names:
        wish = str(new.names[arg].value(env))
        return wish if used is None else used.tensors.fresh(wish)
    return used.tensors.fresh(f"{name_of(op)}_{arg}") if used is not None else None


#: The names that a block uses, while a pass runs: `forget_names` begins the next one.
_NAMES: WeakKeyDictionary[Block, _Used] = WeakKeyDictionary()


def forget_names() -> None:
    """Read names anew: other passes may have changed them."""
    _NAMES.clear()


def _used(anchor: LnOp) -> _Used:
    block = holder(anchor).parent
    assert isinstance(block, Block)
    if (names := _NAMES.get(block)) is None:
        names = _NAMES[block] = _Used(block)
    return names


class _Used:
    """The names that a block used when it was read, and those that were given since."""

    def __init__(self, block: Block):
        ops = [op for op in block.walk() if not isinstance(op, KernelOp)]
        self.largest: dict[str, int] = {}
        for op in ops:
            stem, number = _split(name_of(op) or "")
            self.largest[stem] = max(number, self.largest.get(stem, 0))
        self.tensors = FreshNames(n for op in ops for n in tensor_names(op) if n)

    def name_op(self, op: Operation, optype: str) -> None:
        """``<optype><n>``, n one more than the largest number behind that optype."""
        stem, number = _split(optype)  # conv1x1 ends with a digit itself
        self.largest[optype] = number = max(self.largest.get(optype, 0), self.largest.get(stem, 0) if number else 0) + 1
        op.attributes[OP_NAME] = StringAttr(f"{optype}{number}")


def _split(name: str) -> tuple[str, int]:
    """A name without the number at its end, and that number (0 if there is none)."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :][-18:] or 0)


# -- putting in place ------------------------------------------------------------------------------------------------


def _insert(
    what: Replacement,
    env: Ops,
    old: Sequence[Operation],
    taken: dict[SSAValue, SSAValue],
    rewriter: PatternRewriter,
    wrapped: Mapping[str, type[KernelOp]],
) -> None:
    location = fused(old)
    new_ops: list[Operation] = [env[new.var] for new in what.new_ops]
    kinds = [wrapped.get(new.var) for new in what.new_ops]
    for value, by in list(taken.items()):
        if by.owner not in new_ops and is_returned(value):
            # An output keeps its name, by a copy that costs nothing once planned.
            assert isinstance(value.owner, Operation)
            forward = Forward.make([outside(by) or by])
            set_tensor_names(forward, [tensor_names(value.owner)[value.owner.results.index(value)]])
            new_ops.append(forward)
            kinds.append(type(k) if (k := kernel_of(value.owner)) is not None else None)
            taken[value] = forward.dst
    placed: list[Operation] = []
    for op, kernel in zip(new_ops, kinds):
        op.operands = [outside(v) or v for v in op.operands]
        set_loc(op, location)
        placed.append(op if kernel is None else _wrapped(op, kernel, taken))
    rewriter.insert(placed, InsertPoint.before(old[-1]))
    for before in reversed(old):
        rewriter.replace(before, [], [_successor(before, r, taken) for r in before.results])


def _wrapped(op: Operation, kernel: type[KernelOp], taken: dict[SSAValue, SSAValue]) -> KernelOp:
    """A kernel around a new op, whose results it takes over."""
    assert isinstance(op, LnOp)
    made = kernel.wrap([op])
    set_loc(made, op.location)
    outer = dict(zip(op.results, made.results))
    for result, value in outer.items():
        result.replace_all_uses_with(value)
    for old, new in taken.items():
        taken[old] = outer.get(new, new)
    op.erase()
    return made


def _successor(before: Operation, result: SSAValue, taken: Mapping[SSAValue, SSAValue]) -> SSAValue | None:
    new = taken.get(origin(result) if isinstance(before, KernelOp) else result)
    return None if new is None else outside(new) or new
