"""A thin builder for level 4: ops through `create` with cached types, constants once a function, trivial sums folded.

The ordinary constructors cost about twice as much, and level 4 is where most ops are made. Every method appends at the
end of the current block. Imports xDSL and the dialect `tile`.

```python
b = Builder.kernel("scale", [memref, memref], opt="O2")
x, o = b.args
with b.loop(b.lo, b.hi) as row, b.loop(0, 100) as col:
    b.store(b.op(arith.MulfOp, b.load(x, [row.iv, col.iv]), b.const(2.0, f32)), o, [row.iv, col.iv])
func = b.finish()
```
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import TypeVar

from xdsl.dialects import arith, func, memref, scf, vector
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    UNKNOWN_LOC,
    AnyFloat,
    ArrayAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    FunctionType,
    IndexType,
    IntegerAttr,
    IntegerType,
    LocationAttr,
    MemRefType,
    StringAttr,
    VectorType,
    i1,
    i32,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import IRDLOperation

from lightnet.dialects import tile_arith, tile_memory
from lightnet.dialects.launch import SYMBOLS
from lightnet.ir import budget
from lightnet.ir.names import name_hint
from lightnet.ir.types import memref_type_of, vector_type_of
from lightnet.runtime.dims import Atom, Dim, Extreme, Quotient, Size, Symbol

INDEX = IndexType()
#: An index, or a number that stands for a constant: a dim that a call decides is one of a whole function.
Index = SSAValue | int | Size
I = TypeVar("I", bound=Index)


@cache
def vector_type(shape: tuple[int, ...], element: Attribute) -> VectorType:
    return VectorType(element, shape)


@cache
def _mask_type(shape: tuple[int, ...]) -> VectorType[IntegerType]:
    return VectorType(i1, shape)


@cache
def _default_properties(cls: type[Operation]) -> dict[str, Attribute]:
    """The properties that an op has when none are given (fast-math and overflow flags)."""
    names = cls.get_irdl_definition().properties if issubclass(cls, IRDLOperation) else {}
    defaults: dict[str, Attribute] = {}
    if "fastmath" in names:
        defaults["fastmath"] = arith.FastMathFlagsAttr("none")
    if "overflowFlags" in names:
        defaults["overflowFlags"] = arith.IntegerOverflowAttr("none")
    return defaults


@lru_cache(maxsize=1024)
def _constant(text: str, value: float, type: Attribute) -> Attribute:
    """A value of a scalar type, or a splat of a vector's; `text` tells -0.0 from 0.0, and NaN from nothing."""
    if isinstance(type, VectorType):
        return DenseIntOrFPElementsAttr.from_list(type, [value])
    if isinstance(type, IntegerType | IndexType):
        return IntegerAttr(int(value), type)
    assert isinstance(type, AnyFloat)
    return FloatAttr(value, type)


@cache
def _predicate(number: int) -> IntegerAttr:
    return IntegerAttr(number, i64)


@cache
def _numbers(values: tuple[int, ...], type: IntegerType = i64) -> DenseArrayBase:
    return DenseArrayBase.from_list(type, list(values))


def _slice_properties(
    dims: Sequence[int], steps: Sequence[int] | None, valid: Sequence[int] | None, segments: tuple[int, ...]
) -> dict[str, Attribute]:
    """The properties of a `tile.load` or `tile.store`; `segments` are the numbers of its operands by name."""
    given = {"dims": dims, "steps": steps, "valid": valid}
    found: dict[str, Attribute] = {k: _numbers(tuple(v)) for k, v in given.items() if v is not None}
    found["operandSegmentSizes"] = _numbers(segments, i32)
    return found


_CASTS: dict[str, type[Operation]] = {
    "extf": arith.ExtFOp, "truncf": arith.TruncFOp, "extsi": arith.ExtSIOp, "extui": arith.ExtUIOp,
    "trunci": arith.TruncIOp, "sitofp": arith.SIToFPOp, "uitofp": arith.UIToFPOp, "fptosi": arith.FPToSIOp,
    "fptoui": arith.FPToUIOp, "bitcast": arith.BitcastOp,
}  # fmt: skip


def empty_function(
    name: str, types: Sequence[Attribute], hints: Sequence[str | None], location: LocationAttr
) -> func.FuncOp:
    """A function without results and, so far, without ops; `hints` are names of its first arguments."""
    block = Block(arg_types=types)
    for arg, hint in zip(block.args, hints):
        arg.name_hint, arg.location = hint, location
    function = func.FuncOp(name, FunctionType.from_lists(types, []), Region(block))
    function.location = location
    return function


class Loop:
    """A loop being built: `iv`, the carried values `args`; after the `with`, `results`."""

    def __init__(self, iv: SSAValue, args: Sequence[SSAValue]):
        self.iv, self.args = iv, list(args)
        self.yielded: Sequence[SSAValue] = ()
        self.results: Sequence[SSAValue] = ()

    def yields(self, *values: SSAValue) -> None:
        """The values that the next trip gets as `args`."""
        self.yielded = values


class Builder:
    """Builds the body of one function. `args` are the memrefs after the block range `lo`, `hi`. `location` is that of
    the ops that are made next, up to the end of the loop or branch: where in the network stands what they compute."""

    def __init__(self, function: func.FuncOp):
        self.function = function
        self.entry = self.block = function.body.block
        self._constants: dict[object, SSAValue] = {}
        self._indices: dict[Size, SSAValue] = {}
        self._numbers: dict[SSAValue, Size] = {}
        self._symbols: dict[str, SSAValue] = {}
        self._last_constant: Operation | None = None
        self._size = 0
        self.location = function.location

    @classmethod
    def kernel(
        cls,
        name: str,
        memrefs: Sequence[Attribute],
        *,
        opt: str = "O2",
        hints: Sequence[str | None] = (),
        location: LocationAttr = UNKNOWN_LOC,
        symbols: Iterable[Symbol | str] = (),
    ) -> Builder:
        """A kernel function: block range, the values of `symbols` (or of those of these names), then `memrefs`, called
        by their `hints`; `opt` is ``O2`` or ``none``."""
        names = sorted({s.name if isinstance(s, Symbol) else s for s in symbols})
        types = [INDEX, INDEX, *(INDEX for _ in names), *memrefs]
        function = empty_function(name, types, ["lo", "hi", *map(name_hint, names), *hints], location)
        function.attributes["tile.opt"] = StringAttr(opt)
        if names:
            function.attributes[SYMBOLS] = ArrayAttr([StringAttr(n) for n in names])
        b = cls(function)
        b._symbols = dict(zip(names, b.entry.args[2:]))
        return b

    @property
    def lo(self) -> SSAValue:
        return self.entry.args[0]

    @property
    def hi(self) -> SSAValue:
        return self.entry.args[1]

    @property
    def args(self) -> Sequence[SSAValue]:
        return self.entry.args[2 + len(self._symbols) :]

    def symbol_value(self, name: str) -> SSAValue:
        """The value of a symbol of the function."""
        return self._symbols[name]

    def finish(self, *results: SSAValue) -> func.FuncOp:
        """End the function."""
        self.append(func.ReturnOp(*results))
        return self.function

    def append(self, op: Operation) -> Operation:
        """Append an op, which gets the builder's location."""
        op.location = self.location
        self.block.add_op(op)
        self._count()
        return op

    def _count(self) -> None:
        """Ask now and then whether the function gets too large."""
        self._size += 1
        if not self._size & 255:
            budget.check_code(self._size)

    # ---- scalars and elementwise ---------------------------------------------------------------------------------

    def const(self, value: float, type: Attribute) -> SSAValue:
        """A constant of a scalar or (as a splat) vector type; one op a value, in the entry block."""
        key = (repr(value), type)
        known = self._constants.get(key)
        if known is not None:
            return known
        attr = _constant(key[0], value, type)
        op = arith.ConstantOp.create(result_types=[type], properties={"value": attr}, location=self.location)
        self._insert_constant(op)
        self._constants[key] = op.results[0]
        if isinstance(type, IndexType):
            self._numbers[op.results[0]] = int(value)
        return op.results[0]

    def mask(self, shape: tuple[int, ...], bits: Sequence[bool]) -> SSAValue:
        """A constant vector of i1, its elements in row-major order; one op a value, in the entry block."""
        type = _mask_type(shape)
        key = (repr(bits), type)
        if key not in self._constants:
            attr = DenseIntOrFPElementsAttr.from_list(type, list(bits))
            op = arith.ConstantOp.create(result_types=[type], properties={"value": attr}, location=self.location)
            self._insert_constant(op)
            self._constants[key] = op.results[0]
        return self._constants[key]

    def _insert_constant(self, op: Operation) -> None:
        first = self.entry.first_op
        if self._last_constant is not None:
            self.entry.insert_op_after(op, self._last_constant)
        elif first is not None:
            self.entry.insert_op_before(op, first)
        else:
            self.entry.add_op(op)
        self._last_constant = op

    def index(self, value: Index) -> SSAValue:
        if not isinstance(value, int) and isinstance(value, SSAValue):
            return value
        known = self._indices.get(value)
        if known is None:
            known = self._indices[value] = (
                self._of_symbols(value) if isinstance(value, Dim) else self.const(value, INDEX)
            )
            self._numbers[known] = value
        return known

    def _of_symbols(self, dim: Dim) -> SSAValue:
        """The value of a dim, computed once, in the entry block."""
        total = None
        for term, c in dim.terms.items():
            factors = [self.index(c)] if c != 1 or not term else []
            factors += map(self._of_atom, term)
            part = factors[0]
            for factor in factors[1:]:
                part = self._early(arith.MuliOp, part, factor)
            total = part if total is None else self._early(arith.AddiOp, total, part)
        assert total is not None
        return total

    def _of_atom(self, atom: Atom) -> SSAValue:
        match atom:
            case Symbol(name=name, multiple=by):
                value = self._symbols[name]
                return value if by == 1 else self._early(arith.DivSIOp, value, self.index(by))
            case Quotient(dividend=e, divisor=c):
                return self._early(arith.DivSIOp if e.low >= 0 else arith.FloorDivSIOp, self.index(e), self.index(c))
            case Extreme(fn=fn, args=args):
                return self._early(arith.MinSIOp if fn == "min" else arith.MaxSIOp, *map(self.index, args))

    def _early(self, cls: type[Operation], *operands: SSAValue) -> SSAValue:
        """An op on indices, behind the constants of the entry block."""
        op = cls.create(operands=operands, result_types=[INDEX], properties=_default_properties(cls),
                        location=self.function.location)  # fmt: skip
        self._insert_constant(op)
        return op.results[0]

    def called(self, value: I, hint: str) -> I:
        """The value, which has a hint now, unless it is a constant or has one: names of what is computed on the way."""
        if isinstance(value, SSAValue) and value.name_hint is None and value not in self._numbers:
            value.name_hint = hint
        return value

    def number(self, value: Index) -> Size | None:
        """The value of an index that is constant in a call, None for any other."""
        return value if isinstance(value, int | Dim) else self._numbers.get(value)

    def op(self, cls: type[Operation], *operands: SSAValue, type: Attribute | None = None, **properties) -> SSAValue:
        """An op with one result, of the first operand's type unless given."""
        result = operands[0].type if type is None else type
        merged = {**_default_properties(cls), **properties}
        op = cls.create(operands=operands, result_types=[result], properties=merged, location=self.location)
        self.block.add_op(op)
        self._count()
        return op.results[0]

    def add(self, a: Index, b: Index) -> SSAValue:
        """The sum of two indices; constants fold."""
        m, n = self.number(a), self.number(b)
        if m is not None and n is not None:
            return self.index(m + n)
        if m == 0 or n == 0:
            return self.index(b if m == 0 else a)
        return self.op(arith.AddiOp, self.index(a), self.index(b))

    def mul(self, a: Index, b: Index) -> SSAValue:
        """The product of two indices; constants fold."""
        m, n = self.number(a), self.number(b)
        if m is not None and n is not None:
            return self.index(m * n)
        if m in (0, 1) or n in (0, 1):
            return self.index(0 if 0 in (m, n) else b if m == 1 else a)
        return self.op(arith.MuliOp, self.index(a), self.index(b))

    def divmod(self, a: Index, b: Size) -> tuple[SSAValue, SSAValue]:
        """Quotient and remainder of an index that is not negative by a positive constant."""
        if b == 1:
            return self.index(a), self.index(0)
        m = self.number(a)
        if m is not None and isinstance(b, int):
            return self.index(m // b), self.index(m % b)
        quotient = self.op(arith.DivSIOp, self.index(a), self.index(b))
        return quotient, self.op(arith.RemSIOp, self.index(a), self.index(b))

    def cmpi(self, predicate: str, a: SSAValue, b: SSAValue) -> SSAValue:
        if isinstance(a.type, VectorType):
            return self.append(tile_arith.CmpOp(predicate, a, b)).results[0]
        number = arith.CMPI_COMPARISON_OPERATIONS.index(predicate)
        return self.op(arith.CmpiOp, a, b, type=i1, predicate=_predicate(number))

    def cmpf(self, predicate: str, a: SSAValue, b: SSAValue) -> SSAValue:
        if isinstance(a.type, VectorType):
            return self.append(tile_arith.CmpOp(predicate, a, b)).results[0]
        number = arith.CMPF_COMPARISON_OPERATIONS.index(predicate)
        return self.op(arith.CmpfOp, a, b, type=i1, predicate=_predicate(number))

    def select(self, cond: SSAValue, a: SSAValue, b: SSAValue) -> SSAValue:
        """A scalar condition chooses a value of any type, a vector of i1 element by element."""
        kind = tile_arith.SelectOp if isinstance(cond.type, VectorType) else arith.SelectOp
        return self.op(kind, cond, a, b, type=a.type)

    def cast(self, kind: str, value: SSAValue, element: Attribute) -> SSAValue:
        """A conversion by arith's name (``sitofp``, ``extui``, ...) of a scalar or a vector to `element`."""
        if isinstance(value.type, VectorType):
            return self.append(tile_arith.CastOp(kind, value, element)).results[0]
        return self.op(_CASTS[kind], value, type=element)

    # ---- memory --------------------------------------------------------------------------------------------------

    def load(self, m: SSAValue, indices: Sequence[Index]) -> SSAValue:
        return self.op(memref.LoadOp, m, *map(self.index, indices), type=memref_type_of(m).element_type)

    def store(self, value: SSAValue, m: SSAValue, indices: Sequence[Index]) -> None:
        self.append(memref.StoreOp.create(operands=[value, m, *map(self.index, indices)]))

    def view(self, workspace: SSAValue, byte_offset: Index, type: MemRefType, name: str | None = None,
             length: Index = 0) -> SSAValue:  # fmt: skip
        """Part of an i8 workspace as a memref of `type`, whose first extent, if it is open, is `length`."""
        lengths = [self.index(length)] if type.get_shape()[:1] == (DYNAMIC_INDEX,) else []
        found = self.op(memref.ViewOp, workspace, self.index(byte_offset), *lengths, type=type)
        found.name_hint = name
        return found

    def tile_load(
        self,
        m: SSAValue,
        indices: Sequence[Index],
        dims: Sequence[int],
        shape: Sequence[int],
        *,
        steps: Sequence[int] | None = None,
        valid: Sequence[int] | None = None,
        lanes: SSAValue | None = None,
    ) -> SSAValue:
        """`tile.load` of a vector of `shape`."""
        type = vector_type(tuple(shape), memref_type_of(m).element_type)
        at, extent = [*map(self.index, indices)], [] if lanes is None else [lanes]
        properties = _slice_properties(dims, steps, valid, (1, len(at), len(extent)))
        op = tile_memory.LoadOp.create(operands=[m, *at, *extent], result_types=[type], properties=properties)
        return self.append(op).results[0]

    def tile_store(
        self,
        value: SSAValue,
        m: SSAValue,
        indices: Sequence[Index],
        dims: Sequence[int],
        *,
        steps: Sequence[int] | None = None,
        valid: Sequence[int] | None = None,
        lanes: SSAValue | None = None,
    ) -> None:
        """`tile.store`."""
        at, extent = [*map(self.index, indices)], [] if lanes is None else [lanes]
        properties = _slice_properties(dims, steps, valid, (1, 1, len(at), len(extent)))
        self.append(tile_memory.StoreOp.create(operands=[value, m, *at, *extent], properties=properties))

    def prefetch(self, m: SSAValue, indices: Sequence[Index], bytes: int, *, write: bool = False) -> None:
        """`tile.prefetch`."""
        self.append(tile_memory.PrefetchOp(m, [*map(self.index, indices)], bytes, write))

    def fma(self, a: SSAValue, b: SSAValue, acc: SSAValue) -> SSAValue:
        """`tile.fma`."""
        return self.op(tile_arith.FmaOp, a, b, acc, type=acc.type)

    def broadcast(self, value: SSAValue, shape: Sequence[int]) -> SSAValue:
        """A scalar or a smaller tile (dimensions of 1 stretch) as a tile of `shape`."""
        element = value.type.element_type if isinstance(value.type, VectorType) else value.type
        return self.op(vector.BroadcastOp, value, type=vector_type(tuple(shape), element))

    def transpose(self, values: Sequence[SSAValue]) -> Sequence[SSAValue]:
        """`tile.transpose`: n tiles [m, r..] as m tiles [n, r..]."""
        return self.append(tile_arith.TransposeOp(values)).results

    def reduce(self, kind: str, value: SSAValue, dims: Sequence[int]) -> SSAValue:
        """`tile.reduce`."""
        return self.append(tile_arith.ReduceOp(kind, value, dims)).results[0]

    def shuffle(self, a: SSAValue, b: SSAValue, lanes: Sequence[int]) -> SSAValue:
        """`vector.shuffle`: elements of two vectors of n elements, numbered through (those of `b` from n on)."""
        result = vector_type((len(lanes),), vector_type_of(a).element_type)
        return self.op(vector.ShuffleOp, a, b, type=result, mask=_numbers(tuple(lanes)))

    # ---- control flow --------------------------------------------------------------------------------------------

    @contextmanager
    def loop(
        self, lo: Index, hi: Index, step: Index = 1, carry: Sequence[SSAValue] = (), name: str | None = None
    ) -> Iterator[Loop]:
        """An `scf.for` over an index called `name`; inside, call `yields` with as many values as `carry` has."""
        bounds = [self.index(v) for v in (lo, hi, step)]
        types = [v.type for v in carry]
        block, outer = Block(arg_types=[INDEX, *types]), self.block
        handle = Loop(block.args[0], block.args[1:])
        if name is not None:
            handle.iv.name_hint = name
        self.block, location = block, self.location
        yield handle
        self.location = location
        self._end(list(handle.yielded))
        self.block = outer
        op = scf.ForOp.create(
            operands=[*bounds, *carry], result_types=types, regions=[Region(block)], location=self.location
        )
        outer.add_op(op)
        handle.results = op.results

    @contextmanager
    def when(self, cond: SSAValue) -> Iterator[None]:
        """An `scf.if` without results and without an else."""
        block, outer, location = Block(), self.block, self.location
        self.block = block
        yield
        self.location = location
        self._end([])
        self.block = outer
        outer.add_op(scf.IfOp.create(operands=[cond], regions=[Region(block), Region()], location=self.location))

    def choose(self, cond: SSAValue, then, other) -> Sequence[SSAValue]:
        """An `scf.if` with results: `then()` and `other()` build the arms and return lists of values."""
        outer, arms, values = self.block, [], []
        for build in (then, other):
            self.block = Block()
            arms.append(self.block)
            values = build()
            self._end(list(values))
        self.block = outer
        types, regions = [v.type for v in values], [Region(arm) for arm in arms]
        op = scf.IfOp.create(operands=[cond], result_types=types, regions=regions, location=self.location)
        outer.add_op(op)
        return op.results

    def _end(self, values: Sequence[SSAValue]) -> None:
        """End the block of a loop or an arm."""
        self.block.add_op(scf.YieldOp.create(operands=values, location=self.location))


def flat_index(b: Builder, dims: Sequence[Size], indices: Sequence[Index]) -> SSAValue:
    """The row-major number of an element."""
    at: Index = 0
    for n, index in zip(dims, indices):
        at = b.add(b.mul(at, n), index)
    return b.index(at)
