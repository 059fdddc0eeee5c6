"""The reads of an op's operands, as its definition says: what a target decides fusion by, so that no op is named there.

    elementwise   one result, each element of which is computed from operands' elements at the same index (and from
                  params and operands of other shapes along some of the axes: a scale for each channel, a scalar)
    copy          one operand, one result, and each result element is one operand element
    reduction     one result, which a reduction writes, perhaps after an initial value and before a last statement

Imports `expr`, `statements` and the op base.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from lightnet.ir.expr import ArraySlice, Expr, Index, Name, Num, Pack, is_flat, read_name, walk
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal
from lightnet.ir.statements import Assignment, StatementTarget, parse
from lightnet.ir.types import spec_of


def is_elementwise(op: LnOp) -> bool | Refusal:
    """Return whether `op` computes each result element from data at its own index."""
    if op.is_move or op.is_host or op.definition is None:
        return Refusal("it moves data" if op.is_move else "it has no definition in index notation")
    if len(op.results) != 1 or not op.operands:
        return Refusal("it has {} operands and {} results, not one result", len(op.operands), len(op.results))
    repeated = broadcast_operands(op)
    data = [k for k in data_operands(op) if k not in repeated]
    operands, results = op.arg_names()
    if not data:
        return Refusal("no operand has its result's shape")
    return _is_elementwise(op.definition, tuple(operands), tuple(operands[k] for k in data), results[0])


def broadcast_operands(op: LnOp) -> list[int]:
    """The numbers of the data operands whose shape is not the result's: an elementwise op reads their elements
    repeatedly."""
    dims = op.result_specs[0].dims
    return [k for k in data_operands(op) if spec_of(op.operands[k].type).dims != dims]


def is_copy(op: LnOp) -> bool:
    """Return whether each result element is one operand element (of the one operand), found without a computation.
    Where `op.is_move` is not set, an operand element may be read several times.
    """
    if op.definition is None or len(op.operands) != 1 or len(op.results) != 1:
        return False
    return _is_copy(op.definition, op.arg_names()[0][0])


def is_reduction(op: LnOp) -> bool:
    """Return whether the one result is made by a reduction, without tensors in between."""
    if op.definition is None or len(op.results) != 1:
        return False
    return _is_reduction(op.definition, op.arg_names()[1][0])


def data_operands(op: LnOp) -> list[int]:
    """The numbers of the operands that are data (not params)."""
    return [k for k, field in enumerate(op.schema.operand_fields(len(op.operands))) if field.role == "data"]


class _Read(NamedTuple):
    tensor: str
    element: Index


def _reads(s: Assignment, operands: tuple[str, ...]) -> list[_Read]:
    found = (_Read(read_name(e), e) for e in walk(s.value) if isinstance(e, Index))
    return [r for r in found if r.tensor in operands]


@lru_cache(1024)
def _is_elementwise(definition: str, operands: tuple[str, ...], data: tuple[str, ...], result: str) -> bool | Refusal:
    statements = parse(definition).statements
    if len(statements) != 1:
        local = ", ".join(dict.fromkeys(f"'{t.name}'" for s in statements for t in s.targets if t.name != result))
        text = f"its definition has {len(statements)} statements{local and f' (with the local tensor {local})'}"
        return Refusal(f"{text}, where an elementwise op has one")
    if statements[0].op != "=" or statements[0].targets[0].name != result:
        return Refusal("its definition reduces, by {}", statements[0].op)
    (target,) = statements[0].targets
    reads = _reads(statements[0], operands)
    if missing := [name for name in data if name not in {r.tensor for r in reads}]:
        return Refusal("its definition does not read {}", missing[0])
    elsewhere = (r for r in reads if not (_at_index(r, target) if r.tensor in data else _along_axes(r, target)))
    found = next(elsewhere, None)
    return found is None or Refusal("its definition reads {} at another index than it writes", found.tensor)


def _at_index(read: _Read, target: StatementTarget) -> bool:
    same = read.element.subs == target.subs and is_flat(read.element) == target.flat
    return same and read.element.filler is None


def _along_axes(read: _Read, target: StatementTarget) -> bool:
    """Return whether a tensor is read by some of the indices that are written, and constants."""
    packs = {s.pattern for s in target.subs if isinstance(s, Pack)}

    def picks(sub: Expr | Pack | ArraySlice) -> bool:
        element = isinstance(sub, Index) and sub.base in packs  # i[2], of a pack i... on the left
        return isinstance(sub, Num) or element or (isinstance(sub, Name) and sub in target.subs)

    return read.element.filler is None and not target.flat and all(map(picks, read.element.subs))


@lru_cache(1024)
def _is_copy(definition: str, operand: str) -> bool:
    statements = parse(definition).statements
    if len(statements) != 1 or statements[0].op != "=":
        return False
    value = statements[0].value
    if not isinstance(value, Index) or value.filler is not None or read_name(value) != operand:
        return False
    return len(_reads(statements[0], (operand,))) == 1


@lru_cache(1024)
def _is_reduction(definition: str, result: str) -> bool:
    statements = parse(definition).statements
    written = {t.name for s in statements for t in s.targets}
    return written == {result} and any(s.op != "=" for s in statements)
