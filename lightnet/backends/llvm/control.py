"""Structured control flow (`scf`, `func`) as LLVM basic blocks. Part of the emitter; see `function.py`.

Loops are rotated; the guard in front is left out when the trip count is a known constant, a loop of one trip is
inlined. Carried values become one phi a leaf.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects import func, scf
from xdsl.dialects.builtin import IndexType, MemRefType
from xdsl.ir import Block, Operation, SSAValue

from lightnet.backends.llvm.function import FunctionEmitter, Handler, RegionScope
from lightnet.backends.llvm.values import Lin, Mem, Sym, llvm_type, size_of
from lightnet.diagnostics import LightNetError
from lightnet.dialects.tile_memory import is_plain_memref


def _open(e: FunctionEmitter) -> list:
    """Settle lazy values and make the place in front of a construct, where its invariants go."""
    e.settle()
    pre: list = []
    e.scopes[-1].lines.append(pre)
    return pre


def _for(e: FunctionEmitter, op: scf.ForOp) -> None:
    if not isinstance(op.lb.type, IndexType):
        raise LightNetError("scf.for: only index bounds are supported at level 4")
    lb, ub, step = e.get_index(op.lb), e.get_index(op.ub), e.get_index(op.step)
    span = ub + lb.scaled(-1)
    trips = None
    if not span.terms and not step.terms:
        trips = max(0, -(-span.const // step.const)) if step.const > 0 else None
    inits = [e.parts(v) for v in op.iter_args]
    types = [e.part_types(v.type) for v in op.iter_args]
    if trips == 0:
        for result, parts in zip(op.res, inits):
            e.bind_parts(result, parts)
        return
    pre = _open(e)
    if trips == 1:
        _inline(e, op, pre, lb, inits)
    else:
        _loop(e, op, pre, (lb, ub, step), trips, inits, types)


def _inline(e: FunctionEmitter, op: scf.ForOp, pre: list, lb: Lin, inits: list[list[str]]) -> None:
    """A loop of one trip: its body with the induction variable bound to the lower bound."""
    block = op.body.block
    scope = _push(e, pre)
    e.vals[block.args[0]] = lb
    for arg, parts in zip(block.args[1:], inits):
        e.bind_parts(arg, parts)
    yielded = _body(e, block)
    e.scopes.pop()
    e.scopes[-1].lines.append(scope.lines)
    for result, parts in zip(op.res, yielded):
        e.bind_parts(result, parts)


def _loop(
    e: FunctionEmitter, op: scf.ForOp, pre: list, bounds: tuple[Lin, Lin, Lin], trips: int | None, inits, types
) -> None:
    block = op.body.block
    lb, ub, step = (e.index(b) for b in bounds)
    head, exit, before = e.new_label("loop"), e.new_label("done"), e.label
    if trips is None:
        guard = e.ins(f"icmp slt i64 {lb}, {ub}")
        e.emit(f"br i1 {guard}, label %{head}, label %{exit}")
    else:
        e.emit(f"br label %{head}")
    scope, phis = _push(e, pre), []
    iv = e.name()
    e.vals[block.args[0]] = Lin(0, ((Sym(iv, e.depth), 1),))
    carried = [[e.name() for _ in parts] for parts in inits]
    for arg, names in zip(block.args[1:], carried):
        e.bind_parts(arg, names)
    e.label = head
    yielded = _body(e, block)
    latch = e.label
    following = e.ins(f"add nsw i64 {iv}, {step}")
    again = e.ins(f"icmp slt i64 {following}, {ub}")
    e.emit(f"br i1 {again}, label %{head}, label %{exit}")
    phis.append(f"{iv} = phi i64 [ {lb}, %{before} ], [ {following}, %{latch} ]")
    for names, tys, ins, outs in zip(carried, types, inits, yielded):
        phis += [f"{n} = phi {t} [ {i}, %{before} ], [ {o}, %{latch} ]" for n, t, i, o in zip(names, tys, ins, outs)]
    e.scopes.pop()
    e.label = exit
    e.scopes[-1].lines += [f"{head}:", phis, scope.lines, f"{exit}:"]
    for result, tys, ins, outs in zip(op.res, types, inits, yielded):
        if trips is None:
            outs = [e.ins(f"phi {t} [ {i}, %{before} ], [ {o}, %{latch} ]") for t, i, o in zip(tys, ins, outs)]
        e.bind_parts(result, outs)


def _push(e: FunctionEmitter, pre: list) -> RegionScope:
    scope = RegionScope(pre)
    e.scopes.append(scope)
    return scope


def _body(e: FunctionEmitter, block: Block) -> list[list[str]]:
    """Emit a block; what its terminator yields, as operands."""
    e.block(block)
    last = block.last_op
    return [e.parts(v) for v in last.operands] if isinstance(last, scf.YieldOp) else []


def _if(e: FunctionEmitter, op: scf.IfOp) -> None:
    cond = e.operand(op.cond)
    pre = _open(e)
    if cond in ("true", "false"):
        return _known_if(e, op, pre, cond == "true")
    then, other, exit = e.new_label("then"), e.new_label("else"), e.new_label("endif")
    has_else = bool(op.false_region.blocks)
    e.emit(f"br i1 {cond}, label %{then}, label %{other if has_else else exit}")
    arms, lines = [], []
    regions = [(then, op.true_region)] + ([(other, op.false_region)] if has_else else [])
    for label, region in regions:
        scope = _push(e, pre)
        e.label = label
        yielded = _body(e, region.block)
        e.emit(f"br label %{exit}")
        e.scopes.pop()
        arms.append((e.label, yielded))
        lines += [f"{label}:", scope.lines]
    e.label = exit
    e.scopes[-1].lines += [*lines, f"{exit}:"]
    for k, result in enumerate(op.output):
        sources = [(label, yielded[k]) for label, yielded in arms]
        names = []
        for p, type in enumerate(e.part_types(result.type)):
            edges = ", ".join(f"[ {parts[p]}, %{label} ]" for label, parts in sources)
            names.append(e.ins(f"phi {type} {edges}"))
        e.bind_parts(result, names)


def _known_if(e: FunctionEmitter, op: scf.IfOp, pre: list, taken: bool) -> None:
    region = op.true_region if taken else op.false_region
    if not region.blocks:
        return
    scope = _push(e, pre)
    yielded = _body(e, region.block)
    e.scopes.pop()
    e.scopes[-1].lines.append(scope.lines)
    for result, parts in zip(op.output, yielded):
        e.bind_parts(result, parts)


def _while(e: FunctionEmitter, op: scf.WhileOp) -> None:
    inits = [e.parts(v) for v in op.arguments]
    types = [e.part_types(v.type) for v in op.arguments]
    pre = _open(e)
    entered = e.label
    head, body, exit = e.new_label("while"), e.new_label("do"), e.new_label("done")
    e.emit(f"br label %{head}")
    before = op.before_region.block
    scope, phis = _push(e, pre), []
    carried = [[e.name() for _ in parts] for parts in inits]
    for arg, names in zip(before.args, carried):
        e.bind_parts(arg, names)
    e.label = head
    e.block(before)
    condition = before.last_op
    assert isinstance(condition, scf.ConditionOp)
    passed = [e.parts(v) for v in condition.args]
    e.emit(f"br i1 {e.operand(condition.condition)}, label %{body}, label %{exit}")
    e.scopes.pop()
    after = op.after_region.block
    tail = _push(e, pre)
    e.label = body
    for arg, parts in zip(after.args, passed):
        e.bind_parts(arg, parts)
    yielded = _body(e, after)
    e.emit(f"br label %{head}")
    latch = e.label
    e.scopes.pop()
    for names, tys, ins, outs in zip(carried, types, inits, yielded):
        phis += [f"{n} = phi {t} [ {i}, %{entered} ], [ {o}, %{latch} ]" for n, t, i, o in zip(names, tys, ins, outs)]
    e.label = exit
    e.scopes[-1].lines += [f"{head}:", phis, scope.lines, f"{body}:", tail.lines, f"{exit}:"]
    for result, parts in zip(op.res, passed):
        e.bind_parts(result, parts)


def _call(e: FunctionEmitter, op: func.CallOp) -> None:
    args = []
    for value in op.arguments:
        known = e.vals[value]
        if isinstance(known, Mem):
            args.append(("ptr", e.pointer(known.root, known.offset)))
        else:
            args += zip(e.part_types(value.type), e.parts(value))
    e.settle()
    callee = op.callee.string_value()
    e.calls.add(callee)
    text = f"@{quoted(callee)}({', '.join(f'{t} {a}' for t, a in args)})"
    if not op.res:
        e.emit(f"call void {text}")
        return
    if len(op.res) != 1:
        raise LightNetError(f"a call of @{callee} with several results is not supported")
    (type,) = e.part_types(op.res[0].type)
    e.scalar_result(op.res[0], e.ins(f"call {type} {text}"))


def _return(e: FunctionEmitter, op: func.ReturnOp) -> None:
    values: Sequence[SSAValue] = op.arguments
    if len(values) > 1:
        raise LightNetError("a function with several results is not supported")
    e.emit(f"ret {llvm_type(values[0].type)} {e.operand(values[0])}" if values else "ret void")


def _nothing(e: FunctionEmitter, op: Operation) -> None:
    """Terminators: the construct around them takes their operands."""


def quoted(symbol: str) -> str:
    """A symbol as LLVM writes it after the @."""
    if all(c.isalnum() or c in "._$-" for c in symbol) and symbol.isascii() and not symbol[:1].isdigit():
        return symbol
    return '"' + "".join(c if c.isalnum() and c.isascii() else f"\\{b:02X}" for c in symbol for b in c.encode()) + '"'


def declare_arguments(e: FunctionEmitter, block: Block, align: int, exclusive: bool) -> list[str]:
    """Bind a function's arguments; the text of its parameters. `exclusive`: no memref argument overlaps a written
    one."""
    texts = []
    for n, arg in enumerate(block.args):
        name = f"%arg{n}"
        if isinstance(arg.type, MemRefType):
            if not is_plain_memref(arg.type):
                raise LightNetError(
                    "level 4 needs the identity layout, and a shape of which only the first extent may be open, got "
                    f"{arg.type}"
                )
            e.vals[arg] = Mem(name, Lin(0), arg.type, align)
            size = _byte_size(arg.type)
            noalias, bytes_ = "noalias " if exclusive else "", f" dereferenceable({size})" if size else ""
            texts.append(f"ptr {noalias}align {align}{bytes_} {name}")
        else:
            texts.append(f"{llvm_type(arg.type)} {name}")
            e.vals[arg] = Lin(0, ((Sym(name, 0), 1),)) if isinstance(arg.type, IndexType) else name
    return texts


def _byte_size(type: MemRefType) -> int:
    """The bytes of a memref; 0 where its length is open."""
    return size_of(llvm_type(type.element_type)) * prod(max(n, 0) for n in type.get_shape())


HANDLERS: dict[type[Operation], Handler] = {
    scf.ForOp: _for,
    scf.IfOp: _if,
    scf.WhileOp: _while,
    scf.YieldOp: _nothing,
    scf.ConditionOp: _nothing,
    func.CallOp: _call,
    func.ReturnOp: _return,
}
