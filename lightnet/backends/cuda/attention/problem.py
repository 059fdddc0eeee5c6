"""The bodies that are attention: `attention_of`.

O = softmax(epilogue(Q·Kᵀ)) · V, for each of some batch dimensions (a picture or sentence, and a head of it);
elementwise ops scale and mask the scores. Q, K and V may be rearrangements of what a kernel reads, and its result one
of O: heads are columns of one matrix then, which are read and written where they lie. Imports the ops and the problem
of products.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from xdsl.ir import Block, SSAValue

from lightnet.backends.cuda.gemm.problem import GemmProblem, Kind, match
from lightnet.dataclasses import dataclass
from lightnet.dialects.ln.arith import Cast
from lightnet.dialects.ln.factors import Factor, rearranged
from lightnet.dialects.ln.matmul import Matmul
from lightnet.dialects.ln.move import Reshape, Transpose
from lightnet.dialects.ln.norm import Softmax
from lightnet.dialects.ln.rearrange import Expand
from lightnet.ir.op import LnOp
from lightnet.ir.types import spec_of

#: Ops by which a tensor is another one, rearranged.
REARRANGING = (Reshape, Transpose, Expand)
#: Columns that tensor cores take of Q and K at a time, and that a head has at most: its sums are registers.
HEAD_PIECE, MOST_WIDE = 16, 128
#: Elements of 16 bytes, at multiples of which rows begin.
CHUNK = 8

#: (size, stride) of each factor of a dimension, in elements.
Axis = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Placed:
    """A tensor [*batch, rows, columns] in the memory of `value`: the steps of its batch dimensions, and from row to
    row. Columns lie next to each other.
    """

    value: SSAValue
    batch: tuple[Axis, ...]
    row: int


@dataclass(frozen=True)
class Attention:
    """`scores` are Q·Kᵀ and the ops on it, `softmax_input` what becomes of it; `k` and `v` are [*batch, keys,
    columns]."""

    scores: GemmProblem
    softmax_input: SSAValue
    keys: int
    width: int
    columns: int
    q: Placed
    k: Placed
    v: Placed
    out: Placed

    @property
    def rows(self) -> int:
        return self.scores.rows

    @property
    def heads(self) -> int:
        """The number of batches of all dimensions."""
        return self.scores.batch

    @property
    def dims(self) -> tuple[int, ...]:
        """The batch dimensions."""
        return self.scores.result_dims[:-2]

    def shape(self, value: SSAValue) -> tuple[int, ...]:
        """The shape in which a kernel sees the memory of a value: factors and the result as one row of elements."""
        if value in (self.q.value, self.k.value, self.v.value) or not isinstance(value.owner, Block):
            return (spec_of(value.type).len,)
        return self.scores.shape(value)


def attention_of(ops: Sequence[LnOp], yielded: Sequence[SSAValue]) -> Attention | None:
    """The attention that a body is; None for any other body."""
    found = [op for op in ops if isinstance(op, Softmax)]
    if len(found) != 1 or len(yielded) != 1 or len(ops) < 3:
        return None
    softmax = found[0]
    makers: dict[SSAValue, LnOp] = {r: op for op in ops for r in op.results}
    scored = _before(softmax.operands[0], makers)
    if not scored or not isinstance(scored[0], Matmul) or softmax.axis != softmax.result_specs[0].ndim - 1:
        return None
    mixing = _mixing(softmax, ops)
    if mixing is None:
        return None
    product, (*casts, mix) = scored[0], mixing
    problem = next((p for p in match(scored, [softmax.operands[0]]) if p.kind is Kind.MATMUL), None)
    if problem is None or not problem.dtype.is_short or problem.rows != problem.result_dims[-2]:
        return None
    if mix.operand_specs[1].dtype != problem.dtype or problem.batch != prod(problem.result_dims[:-2]):
        return None
    q, k, v = (_read(value) for value in (*product.operands, mix.operands[1]))
    out = _written(yielded[0], mix)
    if q is None or k is None or v is None or out is None:
        return None
    moves = [m for value in (*product.operands, mix.operands[1]) for m in _moves(value, None)]
    moves += _moves(yielded[0], mix.results[0])
    if {*scored, softmax, *casts, mix, *moves} != set(ops) or len(q[1]) < 2:
        return None
    *_, keys, columns = mix.operand_specs[1].dims
    dims = problem.result_dims[:-2]
    turned = k[0], [*k[1][:-2], k[1][-1], k[1][-2]]  # as the product reads it
    placed = [_placed(*tensor, dims) for tensor in (q, turned, v, out)]
    width = problem.depth
    there = [tensor for tensor in placed if tensor is not None]
    if len(there) < len(placed) or width % HEAD_PIECE or columns % HEAD_PIECE or max(width, columns) > MOST_WIDE:
        return None
    return Attention(problem, softmax.operands[0], keys, width, columns, *there)


def _before(value: SSAValue, makers: Mapping[SSAValue, LnOp]) -> list[LnOp]:
    """The product that a value follows from, and the ops between, in their order; none where there is not one."""
    found, waiting = set[LnOp](), [value]
    while waiting:
        op = makers.get(waiting.pop())
        if op is not None and op not in found:
            found.add(op)
            waiting += [] if isinstance(op, Matmul) else op.operands
    return [op for op in makers.values() if op in found]


def _mixing(softmax: Softmax, ops: Sequence[LnOp]) -> list[LnOp] | None:
    """The casts of a softmax's result, and the product of that and V."""
    value, found = softmax.results[0], list[LnOp]()
    while True:
        users = [op for op in ops if value in op.operands]
        if len(users) != 1:
            return None
        found.append(users[0])
        if isinstance(users[0], Matmul):
            return found if users[0].operands[0] is value is not users[0].operands[1] else None
        if not isinstance(users[0], Cast):
            return None
        value = users[0].results[0]


def _moves(value: SSAValue, end: SSAValue | None) -> list[LnOp]:
    """The moves that make a value, up to `end`."""
    found: list[LnOp] = []
    while value is not end and isinstance(op := value.owner, REARRANGING):
        found.append(op)
        value = op.operands[0]
    return found


def _read(value: SSAValue) -> tuple[SSAValue, list[Axis]] | None:
    """The value that a rearrangement reads, and the steps there of each of its dimensions."""
    if (r := rearranged(value)) is None:
        return None
    steps = _steps(r.order)
    return r.source, [tuple((f.size, 0 if f.repeats else steps[f]) for f in axis) for axis in r.axes]


def _written(value: SSAValue, mix: LnOp) -> tuple[SSAValue, list[Axis]] | None:
    """The value that a rearrangement of a product is, and the steps there of each of the product's dimensions."""
    r = rearranged(value)
    if r is None or r.source is not mix.results[0] or any(f.repeats for axis in r.axes for f in axis):
        return None
    steps, rest, axes = _steps([f for axis in r.axes for f in axis]), list(r.order), []
    for dim in mix.result_specs[0].dims:
        axis, made = [], 1
        while made < dim:
            factor = rest.pop(0)
            axis.append((factor.size, steps[factor]))
            made *= factor.size
        axes.append(tuple(axis))
    return value, axes


def _steps(order: Sequence[Factor]) -> dict[Factor, int]:
    """Elements from one index of each factor to the next, where all lie in this order."""
    steps, step = {}, 1
    for factor in reversed(order):
        steps[factor], step = step, step * factor.size
    return steps


def _placed(value: SSAValue, axes: Sequence[Axis], dims: Sequence[int]) -> Placed | None:
    """A tensor whose rows are whole pieces of 16 bytes; None where they are not. A batch dimension that it has not is
    read repeatedly."""
    *outer, row, column = axes
    batch = [*[()] * len(dims), *outer][-len(dims) :] if dims else []
    own = [axis if prod(n for n, _ in axis) == d else () for axis, d in zip(batch, dims)]
    if len(row) > 1 or len(column) != 1 or column[0][1] != 1:
        return None
    step = row[0][1] if row else 0
    strides = [s for axis in own for _, s in axis] + [step]
    return None if any(s % CHUNK for s in strides) else Placed(value, tuple(own), step)
