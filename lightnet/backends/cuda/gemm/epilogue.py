"""The end of the sums of a product: bias, elementwise ops, and stores that keep inside of the result.

The ops are evaluated on a thread's fragment at once, from their definitions. A thread reads of a tensor of the result's
shape the elements that it writes, and no others, so that such an operand may share the result's memory; a tensor with a
value a column is read where there is one. Imports the evaluator, the problem and the fragments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import VectorType, i1
from xdsl.ir import Attribute, SSAValue

from lightnet.backends.builder import Index, vector_type
from lightnet.backends.cuda.gemm.core import Corner, Fragment
from lightnet.backends.cuda.gemm.problem import GemmProblem, Kind
from lightnet.backends.cuda.gemm.windows import Interleave
from lightnet.backends.cuda.kernel import KernelFunction
from lightnet.backends.cuda.simt import Simt
from lightnet.backends.expressions import TileEvaluator, TileView
from lightnet.ir import bound
from lightnet.ir.types import spec_of, storage_type


class Epilogue:
    """Finishes the fragments of a tile."""

    def __init__(self, f: KernelFunction, problem: GemmProblem, at: Corner):
        self.f, self.b, self.problem, self.at = f, f.b, problem, at

    def write(self, fragment: Fragment) -> None:
        """Run the ops on a fragment, and store what the kernel yields."""
        p, piece = self.problem, self._run(fragment)
        for number, memref in self.f.outputs.items():
            made = self.f.kernel.terminator.operands[number] if p.slice is None else p.slice.value
            piece.store(piece.registers[made], memref)

    def computed(self, fragment: Fragment, value: SSAValue) -> SSAValue:
        """A value that the ops make, for a fragment."""
        return self._run(fragment).registers[value]

    def _run(self, fragment: Fragment) -> _Piece:
        b, p = self.b, self.problem
        piece = _Piece(self, fragment)
        total, result = fragment.value, p.anchor.results[0]
        if p.bias is not None:
            bias = piece.columns(p.bias, lambda col: [col], p.result_dims[1])
            total = b.op(arith.AddfOp, total, b.broadcast(b.widened(bias), piece.shape))
        short = p.anchor.result_specs[0].dtype.is_short
        piece.registers[result] = b.cast("truncf", total, storage_type(p.dtype)) if short else total
        for op in p.epilogue:
            piece.run(op)
        return piece


class _Piece(TileEvaluator):
    """Evaluates ops on a fragment. A tile of C is [rows, columns] of a result [batch, rows, columns]."""

    b: Simt

    def __init__(self, owner: Epilogue, fragment: Fragment):
        b, p, at = owner.b, owner.problem, owner.at
        type = fragment.value.type
        assert isinstance(type, VectorType)
        self.shape = type.get_shape()
        super().__init__(b, TileView([], [], self.shape, [], None), owner.f.inputs.__getitem__)
        self.problem, self.step = p, fragment.row_step
        grouped = p.groups > 1
        self.product: Index = 0 if grouped else at.product
        self.row, self.own = b.add(at.row, fragment.row), b.add(at.col, fragment.col)
        self.col = b.add(self.own, b.mul(at.product, p.cols)) if grouped else self.own
        self.coords = self._coordinates(at.product)
        self.rows = [b.add(self.row, i * self.step) for i in range(self.shape[0])]
        #: Whether a row is one of the result (None: all are), and a column.
        self.has_row = [None if p.rows % at.rows == 0 else b.below(row, p.rows) for row in self.rows]
        #: Whether rows lie so that a fragment's columns are one vector of memory.
        self.whole = p.pitch % self.shape[1] == 0 and p.written % self.shape[1] == 0
        every = p.written % at.cols == 0
        count = 1 if self.whole else self.shape[1]
        self.has_col = [None if every else b.below(b.add(self.own, j), p.written) for j in range(count)]
        self.phases: list[_Phase] = []
        if p.interleave is not None:
            self.phases = [_phase(b, p, p.interleave, b.add(self.own, j)) for j in range(count)]
            self.positions = [_position(b, p, row) for row in self.rows]
        self.known: dict[SSAValue, SSAValue] = {}

    def _coordinates(self, product: Index) -> list[Index]:
        """The indices of the result's batch dimensions."""
        p, found = self.problem, list[Index]()
        if p.kind is not Kind.MATMUL:
            return found
        for d in reversed(p.result_dims[:-2]):
            product, index = self.b.divmod(product, d) if p.batch > 1 else (0, 0)
            found.insert(0, index)
        return found

    # ---- what ops read -------------------------------------------------------------------------------------------

    def read(self, value: SSAValue, subs: Sequence[bound.Node]) -> SSAValue:
        if value in self.registers:
            return self.registers[value]
        if value not in self.known:
            if spec_of(value.type).dims == self.dims:
                self.known[value] = self._load(self.memory(value))
            else:
                self.known[value] = self.b.broadcast(self._smaller(value, subs), self.shape)
        return self.known[value]

    def _smaller(self, value: SSAValue, subs: Sequence[bound.Node]) -> SSAValue:
        """A tensor that is read along some dimensions of the result: one value, or one for each column, row, or
        both."""
        last = 1 if self.problem.is_map or self.problem.kind is Kind.DENSE else len(self.dims) - 1
        roles = [self.position[s.name] if isinstance(s, bound.Idx) else None for s in subs]
        if not roles or set(roles) == {None}:
            return self.b.load(self.memory(value), [0] * len(roles))
        if self.problem.kind is Kind.MATMUL and last - 1 in roles:
            return self._by_row(value, roles, last)

        def at(col: Index) -> list[Index]:
            return [col if r == last else 0 if r is None else self.coords[r] for r in roles]

        if last not in roles:
            return self.b.load(self.memory(value), at(0))
        return self.columns(value, at, self.dims[last])

    def _by_row(self, value: SSAValue, roles: Sequence[int | None], last: int) -> SSAValue:
        """A value for each row, or each element, of a row that is there."""
        b, p = self.b, self.problem
        wide = last in roles
        made = b.const(0.0, vector_type((self.shape[0], self.shape[1] if wide else 1), self._element(value)))
        for i, row in enumerate(self.rows):
            row = row if self.has_row[i] is None else b.least(row, p.rows - 1)
            for j in range(self.shape[1] if wide else 1):
                col = b.least(b.add(self.own, j), p.cols - 1)
                at = [col if r == last else row if r == last - 1 else 0 if r is None else self.coords[r] for r in roles]
                made = b.get(vector.InsertOp(b.load(self.memory(value), at), made, [i, j]))
        return made

    def columns(self, value: SSAValue, at: Callable[[Index], list[Index]], count: int) -> SSAValue:
        """A tensor's values for the fragment's columns, [1, columns], of which there are `count` in all; those behind
        the last one are any."""
        b, memory, width = self.b, self.memory(value), self.shape[1]
        if count % width == 0 and self.whole:
            behind = count < self.problem.pitch or (not self.phases and self.has_col[0] is not None)
            col = b.least(self._channel(0), count - width) if behind else self._channel(0)
            where = at(col)
            return b.tile_load(memory, where, [0, where.index(col)], (1, width))
        made = b.const(0.0, vector_type((1, width), self._element(value)))
        for j in range(width):
            made = b.get(vector.InsertOp(b.load(memory, at(b.least(self._channel(j), count - 1))), made, [0, j]))
        return made

    def _element(self, value: SSAValue) -> Attribute:
        return storage_type(spec_of(value.type).dtype)

    # ---- the result's memory ---------------------------------------------------------------------------------------

    def _load(self, memref: SSAValue) -> SSAValue:
        """Load what a tensor of the result's shape has here; zeros outside."""
        b, (rows, width) = self.b, self.shape
        element = memref.type.element_type  # type: ignore[attr-defined]
        made = b.const(0.0, vector_type(self.shape, element))
        for i in range(rows):
            if self.whole:
                zero = b.const(0.0, vector_type((width,), element))
                part = self._guarded(
                    self._inside(i, 0), lambda i=i: b.tile_load(memref, self._at(i, 0), [2], (width,)), zero
                )
                made = b.get(vector.InsertOp(part, made, [i]))
                continue
            for j in range(width):
                one = self._guarded(
                    self._inside(i, j), lambda i=i, j=j: b.load(memref, self._at(i, j)), b.const(0.0, element)
                )
                made = b.get(vector.InsertOp(one, made, [i, j]))
        return made

    def store(self, value: SSAValue, memref: SSAValue) -> None:
        """Write a fragment of a result, with zeros in the lanes that fill a map up."""
        b, (rows, width) = self.b, self.shape
        value = self._filled(value)
        element = memref.type.element_type  # type: ignore[attr-defined]
        for i in range(rows):
            if self.whole:
                row = b.get(vector.ExtractOp(value, [i], vector_type((width,), element)))
                with b.where(self._inside(i, 0)):
                    b.tile_store(row, memref, self._to(i, 0), [2])
                continue
            for j in range(width):
                one = b.extract(value, [i, j])
                with b.where(self._inside(i, j)):
                    b.store(one, memref, self._to(i, j))

    def _filled(self, value: SSAValue) -> SSAValue:
        b, p, width = self.b, self.problem, self.shape[1]
        if not p.is_map or p.pitch == p.result_dims[1]:
            return value
        mask = b.const(0, vector_type((1, width), i1))
        for j in range(width):
            mask = b.get(vector.InsertOp(b.below(self._channel(j), p.result_dims[1]), mask, [0, j]))
        return b.select(b.broadcast(mask, self.shape), value, b.const(0.0, value.type))

    def _channel(self, j: int) -> SSAValue:
        """The column of the result that a fragment's column is."""
        b = self.b
        if not self.phases:
            return b.add(self.col, j)
        return b.add(self.phases[0].channel, j) if self.whole else b.index(self.phases[j].channel)

    def _at(self, i: int, j: int) -> list[Index]:
        return [self.product, self._pixel(i, j)[0], self._channel(j)]

    def _pixel(self, i: int, j: int) -> tuple[SSAValue, SSAValue | None]:
        """The row of the result that an element stands in, and whether it is one (None: it is, if the product has the
        element's row)."""
        b, p = self.b, self.problem
        if p.interleave is None:
            return self.rows[i], None
        oh, ow = p.result_dims[2:]
        (n, v, u), phase, stride = self.positions[i], self.phases[j], p.interleave.stride
        y, x = b.add(b.mul(v, stride[0]), phase.row), b.add(b.mul(u, stride[1]), phase.col)
        inside = [
            b.cmpi("ult", at, b.index(count)) if skip or many * step != count else None
            for at, count, skip, step, many in zip((y, x), (oh, ow), p.interleave.skip, stride, p.window.positions)
        ]
        return b.add(b.mul(b.add(b.mul(n, oh), y), ow), x), b.every(*inside)

    def _to(self, i: int, j: int) -> list[Index]:
        """The subscripts where an element is written."""
        *where, col = self._at(i, j)
        return [*where, col if self.problem.slice is None else self.b.add(col, self.problem.slice.first)]

    def _inside(self, i: int, j: int) -> SSAValue | None:
        """Return whether an element is one of the result; None where all are."""
        return self.b.every(self.has_row[i], self.has_col[j], self._pixel(i, j)[1])

    def _guarded(self, inside: SSAValue | None, load: Callable[[], SSAValue], otherwise: SSAValue) -> SSAValue:
        return load() if inside is None else self.b.choose(inside, lambda: [load()], lambda: [otherwise])[0]


class _Phase(NamedTuple):
    """The phase of a transposed convolution's column: what it adds to the pixel at which a position begins, and the
    channel."""

    row: SSAValue
    col: SSAValue
    channel: SSAValue


def _phase(b: Simt, p: GemmProblem, interleave: Interleave, col: Index) -> _Phase:
    number, channel = b.divmod(col, p.pitch)
    row, column = b.divmod(number, interleave.stride[1])
    return _Phase(b.add(row, -interleave.skip[0]), b.add(column, -interleave.skip[1]), channel)


def _position(b: Simt, p: GemmProblem, row: Index) -> tuple[SSAValue, SSAValue, SSAValue]:
    """The picture, row and column of a position."""
    down, along = p.window.positions
    n, rest = b.divmod(row, down * along)
    return (n, *b.divmod(rest, along))
