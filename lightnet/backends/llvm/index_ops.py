"""`arith` on indices: linear forms that fold by themselves, the rest hoisted. Part of the emitter; see `function.py`.

An op of `arith` is an index op where its operands are of type `index`; on any other type `scalar_ops` emits it.
"""

from __future__ import annotations

from functools import partial

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Operation

from lightnet.backends.llvm.function import FunctionEmitter, Handler
from lightnet.backends.llvm.scalar_ops import ELEMENTWISE, elementwise
from lightnet.backends.llvm.values import Lin

_INDEX_NAMES: dict[type[Operation], str] = {
    arith.MaxSIOp: "smax",
    arith.MinSIOp: "smin",
    arith.MaxUIOp: "umax",
    arith.MinUIOp: "umin",
}


def _add(e: FunctionEmitter, op: Operation) -> None:
    a, b = (e.get_index(v) for v in op.operands)
    e.vals[op.results[0]] = a + b


def _sub(e: FunctionEmitter, op: Operation) -> None:
    a, b = (e.get_index(v) for v in op.operands)
    e.vals[op.results[0]] = a + b.scaled(-1)


def _mul(e: FunctionEmitter, op: Operation) -> None:
    a, b = (e.get_index(v) for v in op.operands)
    if not a.terms or not b.terms:
        e.vals[op.results[0]] = b.scaled(a.const) if not a.terms else a.scaled(b.const)
    else:
        _hoisted_binary(e, op, a, b, f"mul i64 {e.index(a)}, {e.index(b)}")


def _hoisted_binary(e: FunctionEmitter, op: Operation, a: Lin, b: Lin, text: str) -> None:
    """An index op that is no linear form: one instruction, as far out as its operands are."""
    outer = max((a, b), key=lambda x: x.depth)
    key = (type(op), a, b)
    name = e.hoisted(outer.depth, key, text)
    e.vals[op.results[0]] = e.symbol_at(name, outer.depth)


def _extremum_index(e: FunctionEmitter, op: Operation) -> None:
    a, b = (e.get_index(v) for v in op.operands)
    name = _INDEX_NAMES[type(op)]
    if not a.terms and not b.terms and name[0] == "s":
        e.vals[op.results[0]] = Lin((max if name == "smax" else min)(a.const, b.const))
    else:
        text = e.call_text(f"llvm.{name}.i64", "i64", [("i64", e.index(a)), ("i64", e.index(b))])
        _hoisted_binary(e, op, a, b, text)


def _divide_index(e: FunctionEmitter, op: Operation) -> None:
    """Division of indices; by a positive constant it folds where it is exact and moves out like any arithmetic."""
    a, b = (e.get_index(v) for v in op.operands)
    divisor = b.const if not b.terms else 0
    kind = type(op)
    if divisor > 0 and all(c % divisor == 0 for _, c in a.terms) and (not a.terms or a.const % divisor == 0):
        if folded := _fold_divide(kind, a, divisor):
            e.vals[op.results[0]] = folded[0]
            return
    if divisor > 0 and kind in _SPECULATABLE:
        return _hoisted_binary(e, op, a, b, f"{_SPECULATABLE[kind]} i64 {e.index(a)}, {divisor}")
    text = ELEMENTWISE[kind](e, op, [e.index(a), e.index(b)], "i64", "i64", 1)
    e.scalar_result(op.results[0], text)


_SPECULATABLE: dict[type[Operation], str] = {
    arith.DivSIOp: "sdiv",
    arith.DivUIOp: "udiv",
    arith.RemSIOp: "srem",
    arith.RemUIOp: "urem",
}


def _fold_divide(kind: type[Operation], a: Lin, divisor: int) -> tuple[Lin] | None:
    """An exact division or remainder by a positive constant, as a linear form; None for the unsigned kinds."""
    if kind is arith.RemSIOp:
        return (Lin(a.const - divisor * _truncated(a.const, divisor) if not a.terms else 0),)
    if a.terms and kind in (arith.DivSIOp, arith.FloorDivSIOp, arith.CeilDivSIOp):
        return (Lin(a.const // divisor, tuple((s, c // divisor) for s, c in a.terms)),)
    if kind is arith.DivSIOp:
        return (Lin(_truncated(a.const, divisor)),)
    if kind is arith.FloorDivSIOp:
        return (Lin(a.const // divisor),)
    if kind is arith.CeilDivSIOp:
        return (Lin(-(-a.const // divisor)),)
    return None


def _truncated(a: int, b: int) -> int:
    return abs(a) // b * (1 if a >= 0 else -1)


def _cmpi_index(e: FunctionEmitter, op: arith.CmpiOp) -> None:
    a, b = (e.get_index(v) for v in op.operands)
    predicate = arith.CMPI_COMPARISON_OPERATIONS[op.predicate.value.data]
    difference = a + b.scaled(-1)
    if not difference.terms and predicate[0] != "u":  # signed indices do not wrap
        x = difference.const
        known = {"eq": x == 0, "ne": x != 0, "slt": x < 0, "sle": x <= 0, "sgt": x > 0, "sge": x >= 0}[predicate]
        e.vals[op.results[0]] = "true" if known else "false"
    else:
        e.vals[op.results[0]] = e.ins(f"icmp {predicate} i64 {e.index(a)}, {e.index(b)}")


_INDEX_HANDLERS: dict[type[Operation], Handler] = {
    arith.AddiOp: _add, arith.SubiOp: _sub, arith.MuliOp: _mul, arith.CmpiOp: _cmpi_index,
    **dict.fromkeys(_INDEX_NAMES, _extremum_index),
    **dict.fromkeys(
        (arith.DivSIOp, arith.DivUIOp, arith.RemSIOp, arith.RemUIOp, arith.FloorDivSIOp, arith.CeilDivSIOp,
         arith.CeilDivUIOp), _divide_index),
}  # fmt: skip


def _maybe_index(handler: Handler, e: FunctionEmitter, op: Operation) -> None:
    if isinstance(op.operands[0].type, IndexType):
        handler(e, op)
    else:
        elementwise(e, op)


HANDLERS: dict[type[Operation], Handler] = {
    kind: partial(_maybe_index, handler) for kind, handler in _INDEX_HANDLERS.items()
}
