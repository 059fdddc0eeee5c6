"""Expressions of bound definitions as level-4 scalars, each placed in the outermost loop that knows its indices.

Part of `loops.py`. Imports `ir.bound`, `ir.affine`, `builder` and xDSL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import IntegerType, f64, i1
from xdsl.ir import Attribute, Block, SSAValue

from lightnet.backends.builder import INDEX, Builder
from lightnet.ir.affine import IndexSpace
from lightnet.ir.bound import BOOL, F64, I64, Apply, Const, Idx, Node, Read, operand_nodes, walk_nodes
from lightnet.ir.functions import FLOAT_FUNCTIONS
from lightnet.ir.types import storage_type
from lightnet.runtime.dtypes import DType


def scalar_type(dtype: DType) -> Attribute:
    """The type of a value in a register: bools are i1."""
    return i1 if dtype.kind == "bool" else storage_type(dtype)


@dataclass
class Scope:
    """A block under construction: the indices that it defines, and the values made in it."""

    block: Block
    indices: dict[str, SSAValue] = field(default_factory=dict)
    guard: bool = False
    cache: dict[tuple[bool, Node], SSAValue] = field(default_factory=dict)


class Values:
    """Emits expressions. `memory` maps a tensor to its rank-1 memref, `registers` one that this nest has just computed
    to its value; tensors of `written` change while the function runs."""

    def __init__(self, b: Builder, memory: dict[str, SSAValue], sizes: dict[str, int], written: set[str]):
        self.b, self.memory, self.sizes, self.written = b, memory, sizes, written
        self.registers: dict[str, SSAValue] = {}
        self.scopes = [Scope(b.block)]
        self.space = IndexSpace(())
        self.hoist_reads = True
        self._facts: dict[Node, tuple[frozenset[str], bool, bool]] = {}

    # -- Scopes

    @contextmanager
    def scope(self, indices: dict[str, SSAValue], guard: bool = False) -> Iterator[None]:
        """A new innermost scope for the builder's current block."""
        self.scopes.append(Scope(self.b.block, indices, guard))
        yield
        self.scopes.pop()

    def define(self, name: str, value: SSAValue) -> None:
        """Define an index in the current scope."""
        self.scopes[-1].indices[name] = value

    def _about(self, node: Node) -> tuple[frozenset[str], bool, bool]:
        """The indices of an expression, whether it reads memory, and whether what it reads may change."""
        known = self._facts.get(node)
        if known is None:
            parts = [self._about(c) for c in operand_nodes(node)]
            own = frozenset([node.name]) if isinstance(node, Idx) else frozenset()
            changing = isinstance(node, Read) and node.tensor in self.written
            known = self._facts[node] = (
                own.union(*(p[0] for p in parts)),
                isinstance(node, Read) or any(p[1] for p in parts),
                changing or any(p[2] for p in parts),
            )
        return known

    def _depth(self, node: Node) -> int:
        """The outermost scope in which a value may be computed."""
        names, has_reads, changes = self._about(node)
        here = len(self.scopes) - 1
        guarded = has_reads and not self.speculable(node)  # what is read may not be there further out
        if changes or (guarded and not self.hoist_reads):
            return here
        if has_reads:  # a loop with a step may have no trip, and its base is then outside of its range
            names = names | {f"{name.removesuffix('.base')}.trip" for name in names if name.endswith(".base")}
        depth = 0
        for k, scope in enumerate(self.scopes):
            if names & scope.indices.keys() or (scope.guard and guarded):
                depth = k
        return depth

    def _emit(self, node: Node, as_index: bool, make: Callable[[Any], SSAValue]) -> SSAValue:
        key = (as_index, node)
        changes = self._about(node)[2]
        if not changes:
            for scope in reversed(self.scopes):
                if (found := scope.cache.get(key)) is not None:
                    return found
        depth = self._depth(node)
        all_scopes, block = self.scopes, self.b.block
        if depth < len(all_scopes) - 1:
            self.scopes = all_scopes[: depth + 1]
            self.b.block = self.scopes[-1].block
        value = make(node)
        if not changes:
            self.scopes[-1].cache[key] = value
        self.scopes, self.b.block = all_scopes, block
        return value

    # -- Indices

    def index(self, node: Node) -> SSAValue:
        """An i64 expression as an `index`."""
        if isinstance(node, Const):
            return self.b.index(int(node.value))
        if isinstance(node, Idx):
            return next(s.indices[node.name] for s in reversed(self.scopes) if node.name in s.indices)
        return self._emit(node, True, self._index)

    def _index(self, node: Node) -> SSAValue:
        b = self.b
        match node:
            case Apply(fn="add", args=(x, y)):
                return b.add(self.index(x), self.index(y))
            case Apply(fn="mul", args=(x, y)):
                return b.mul(self.index(x), self.index(y))
            case Apply(fn="sub", args=(x, y)):
                return b.op(arith.SubiOp, self.index(x), self.index(y))
            case Apply(fn="neg", args=(x,)):
                return b.mul(self.index(x), -1)
            case Apply(fn="floordiv" | "mod", args=(x, Const(value=c))):
                return self._divide(node.fn == "mod", x, int(c))
            case Apply(fn="div" | "rem" | "min" | "max", args=(x, y)):
                kinds = {"div": arith.DivSIOp, "rem": arith.RemSIOp, "min": arith.MinSIOp, "max": arith.MaxSIOp}
                return b.op(kinds[node.fn], self.index(x), self.index(y))
            case Apply(fn="select", args=(c, x, y)):
                return b.select(self.value(c), self.index(x), self.index(y))
            case Apply(fn="table"):
                return self._table(node, INDEX)
        return b.op(arith.IndexCastOp, self.value(node), type=INDEX)

    def _divide(self, remainder: bool, x: Node, c: int) -> SSAValue:
        b, divisor = self.b, self.b.index(c)
        if self.space.interval(x)[0] >= 0:
            return b.op(arith.RemSIOp if remainder else arith.DivSIOp, self.index(x), divisor)
        quotient = b.op(arith.FloorDivSIOp, self.index(x), divisor)
        return b.op(arith.SubiOp, self.index(x), b.mul(quotient, c)) if remainder else quotient

    def _table(self, node: Apply, type: Attribute) -> SSAValue:
        place, *rows = node.args
        values = [v for v in rows if isinstance(v, Const)]
        result = self.b.const(values[-1].value, type)
        at = self.index(place)
        for k, value in reversed(list(enumerate(values[:-1]))):
            hit = self.b.cmpi("eq", at, self.b.index(k))
            result = self.b.select(hit, self.b.const(value.value, type), result)
        return result

    # -- Values

    def value(self, node: Node) -> SSAValue:
        """An expression as a scalar of its dtype."""
        if isinstance(node, Const):
            return self.b.const(signed(node.value, node.dtype), scalar_type(node.dtype))
        if isinstance(node, Read) and node.tensor in self.registers:
            return self.registers[node.tensor]
        return self._emit(node, False, self._value)

    def _value(self, node: Node) -> SSAValue:
        b = self.b
        if node.dtype is I64 and (isinstance(node, Idx) or _is_index_arithmetic(node)) and not self._about(node)[1]:
            return b.op(arith.IndexCastOp, self.index(node), type=scalar_type(I64))
        match node:
            case Read(tensor=tensor, subs=(sub,), dtype=dtype):
                loaded = b.load(self.memory[tensor], [self.index(sub)])
                return b.cmpi("ne", loaded, b.const(0, loaded.type)) if dtype is BOOL else loaded
            case Apply(fn="cast", args=(x,), dtype=dtype):
                return converted_value(b, self.value(x), x.dtype, dtype)
            case Apply(fn="wrap", args=(x,), dtype=dtype):
                return _keep_bits(b, self.value(x), x.dtype, dtype)
            case Apply(fn="bitcast", args=(x,), dtype=dtype):
                value, type = self.value(x), scalar_type(dtype)
                return value if value.type == type else b.op(arith.BitcastOp, value, type=type)
            case Apply(fn="table"):
                return self._table(node, scalar_type(node.dtype))
            case Apply(fn="lt" | "le" | "eq" | "ne", args=(x, y)):
                return self._compare(node.fn, x, y)
            case Apply(fn="select", args=(c, x, y)):
                return self._select(c, lambda: self.value(x), lambda: self.value(y), (x, y))
            case Apply(fn="and", args=(x, y)):
                return self._select(x, lambda: self.value(y), lambda: b.const(0, i1), (y,))
            case Apply(fn="or", args=(x, y)):
                return self._select(x, lambda: b.const(1, i1), lambda: self.value(y), (y,))
            case Apply(fn="not", args=(x,)):
                return b.op(arith.XOrIOp, self.value(x), b.const(1, i1))
            case Apply(fn=fn, args=args, dtype=dtype):
                return self._arithmetic(fn, [self.value(a) for a in args], dtype)
        raise TypeError(node)

    def result(self, node: Node) -> SSAValue:
        """An expression as the value that a statement gives its target."""
        return self.value(node)

    def speculable(self, node: Node) -> bool:
        """Return whether every read falls into memory whatever the guards say."""
        return all(
            n.tensor in self.registers or self.space.inside(n.subs[0], self.sizes[n.tensor])
            for n in walk_nodes(node)
            if isinstance(n, Read)
        )

    def _select(
        self, cond: Node, then: Callable[[], SSAValue], other: Callable[[], SSAValue], arms: tuple[Node, ...]
    ) -> SSAValue:
        """A select, or a branch where an arm reads what may not be there."""
        test = self.value(cond)
        if all(map(self.speculable, arms)):
            return self.b.select(test, then(), other())

        def arm(build: Callable[[], SSAValue]) -> Callable[[], list[SSAValue]]:
            def run() -> list[SSAValue]:
                with self.scope({}, guard=True):
                    return [build()]

            return run

        return self.b.choose(test, arm(then), arm(other))[0]

    def _compare(self, fn: str, x: Node, y: Node) -> SSAValue:
        if x.dtype is I64 and not self._about(x)[1] and not self._about(y)[1]:
            a, b = self.index(x), self.index(y)
        else:
            a, b = self.value(x), self.value(y)
        if x.dtype.is_float:
            return self.b.cmpf(FLOAT_COMPARE[fn], a, b)
        sign = "u" if x.dtype.kind in ("uint", "bool") else "s"
        return self.b.cmpi(fn if fn in ("eq", "ne") else sign + fn, a, b)

    def _arithmetic(self, fn: str, args: list[SSAValue], dtype: DType) -> SSAValue:
        b = self.b
        if dtype.is_float:
            if fn == "rem":
                quotient = b.op(math.TruncOp, b.op(arith.DivfOp, *args))
                return b.op(arith.SubfOp, args[0], b.op(arith.MulfOp, args[1], quotient))
            return b.op(FLOAT[fn], *args)
        if fn == "neg":
            return b.op(arith.SubiOp, b.const(0, args[0].type), args[0])
        if fn == "pow":
            a, n = (converted_value(b, v, dtype, F64) for v in args)
            return converted_value(b, b.op(math.PowFOp, a, n), F64, dtype)
        if fn in ("shl", "shr"):
            x, by = args
            return self._shift(fn, x, by, dtype)
        return b.op((_UNSIGNED if dtype.kind == "uint" else _SIGNED)[fn], *args)

    def _shift(self, fn: str, x: SSAValue, n: SSAValue, dtype: DType) -> SSAValue:
        """A shift by the width or more (which MLIR leaves open) gives 0, or the sign."""
        b = self.b
        if fn == "shr" and dtype.kind == "int":
            return b.op(arith.ShRSIOp, x, b.op(arith.MinUIOp, n, b.const(dtype.bits - 1, x.type)))
        shifted = b.op(arith.ShLIOp if fn == "shl" else arith.ShRUIOp, x, n)
        return b.select(b.cmpi("ult", n, b.const(dtype.bits, x.type)), shifted, b.const(0, x.type))


def on_vectors(b: Builder, node: Apply, args: Sequence[SSAValue]) -> SSAValue:
    """A function of floats or bools applied to vectors, both arms of a `select` too."""
    match node.fn:
        case "select":
            return b.select(*args)
        case "lt" | "le" | "eq" | "ne" as fn:
            return b.cmpf(FLOAT_COMPARE[fn], *args)
        case "and" | "or" as fn:
            return b.op(arith.AndIOp if fn == "and" else arith.OrIOp, *args)
        case "not":
            return b.op(arith.XOrIOp, args[0], b.const(1, args[0].type))
        case "cast":
            old, new = node.args[0].dtype, node.dtype
            if old is new:
                return args[0]
            return b.cast("extf" if new.size > old.size else "truncf", args[0], storage_type(new))
    return b.op(FLOAT[node.fn], *args)


def signed(value: float, dtype: DType) -> float:
    """The number as MLIR writes it in a signless integer."""
    return value - (1 << dtype.bits) if dtype.kind == "uint" and value >= 1 << (dtype.bits - 1) else value


def combine(b: Builder, op: str, a: SSAValue, x: SSAValue, dtype: DType) -> SSAValue:
    """One step of a reduction. Sums and products of floats may be reassociated."""
    if dtype is BOOL:
        return b.op(arith.OrIOp if op in ("+=", "max=") else arith.AndIOp, a, x)
    fn = {"+=": "add", "*=": "mul", "max=": "max", "min=": "min"}[op]
    if not dtype.is_float:
        return b.op((_UNSIGNED if dtype.kind == "uint" else _SIGNED)[fn], a, x)
    if fn in ("max", "min"):
        return b.op(FLOAT[fn], a, x)
    return b.op(FLOAT[fn], a, x, fastmath=_REASSOC)


def converted_value(b: Builder, x: SSAValue, old: DType, new: DType) -> SSAValue:
    """Between floats by rounding, else saturating and truncating; to bool, whatever is not zero is true."""
    if old is new:
        return x
    type = scalar_type(new)
    if new is BOOL:
        zero = b.const(0, x.type)
        return b.cmpf("une", x, zero) if old.is_float else b.cmpi("ne", x, zero)
    if old.is_float:
        if new.is_float:
            return b.op(arith.ExtFOp if new.size > old.size else arith.TruncFOp, x, type=type)
        return b.op(arith.FPToUIOp if new.kind == "uint" else arith.FPToSIOp, x, type=type)
    unsigned = old.kind in ("uint", "bool")
    if new.is_float:
        return b.op(arith.UIToFPOp if unsigned else arith.SIToFPOp, x, type=type)
    return _resize(b, x, old, new, unsigned)


def _keep_bits(b: Builder, x: SSAValue, old: DType, new: DType) -> SSAValue:
    """Integer to integer as in C: the low bits, extended by the sign of the old type."""
    if old.size == new.size:
        return x
    kind = arith.TruncIOp if old.size > new.size else arith.ExtSIOp if old.kind == "int" else arith.ExtUIOp
    return b.op(kind, x, type=scalar_type(new))


def _resize(b: Builder, x: SSAValue, old: DType, new: DType, unsigned: bool) -> SSAValue:
    """Integer to integer: clamp to the range of both, then change the width."""
    if old.kind != "bool":
        high = (1 << (new.bits - (new.kind == "int"))) - 1
        if high < (1 << (old.bits - (old.kind == "int"))) - 1:
            x = b.op(arith.MinUIOp if unsigned else arith.MinSIOp, x, b.const(high, x.type))
        if not unsigned and (new.kind == "uint" or new.bits < old.bits):
            low = 0 if new.kind == "uint" else -(1 << (new.bits - 1))
            x = b.op(arith.MaxSIOp, x, b.const(low, x.type))
    if isinstance(x.type, IntegerType) and x.type.width.data == new.size * 8:
        return x
    if isinstance(x.type, IntegerType) and x.type.width.data > new.size * 8:
        return b.op(arith.TruncIOp, x, type=scalar_type(new))
    return b.op(arith.ExtUIOp if unsigned else arith.ExtSIOp, x, type=scalar_type(new))


_REASSOC = arith.FastMathFlagsAttr([arith.FastMathFlag.REASSOC])
#: The functions of `bound.Apply` on floats that are one op, and the predicates of its comparisons.
FLOAT: dict[str, Any] = {
    "add": arith.AddfOp, "sub": arith.SubfOp, "mul": arith.MulfOp, "div": arith.DivfOp, "neg": arith.NegfOp,
    "min": arith.MinimumfOp, "max": arith.MaximumfOp, "pow": math.PowFOp, "abs": math.AbsFOp,
    "floor": math.FloorOp, "ceil": math.CeilOp,
    "round": math.RoundOp, "rint": math.RoundEvenOp,
} | {op.name[5:]: op for op in math.Math.operations if op.name[5:] in FLOAT_FUNCTIONS}  # fmt: skip
FLOAT_COMPARE = {"lt": "olt", "le": "ole", "eq": "oeq", "ne": "une"}
_SIGNED: dict[str, Any] = {
    "add": arith.AddiOp, "sub": arith.SubiOp, "mul": arith.MuliOp, "div": arith.DivSIOp, "rem": arith.RemSIOp,
    "min": arith.MinSIOp, "max": arith.MaxSIOp, "abs": math.AbsIOp, "bitand": arith.AndIOp, "bitor": arith.OrIOp,
    "bitxor": arith.XOrIOp,
}  # fmt: skip
_UNSIGNED = _SIGNED | {"div": arith.DivUIOp, "rem": arith.RemUIOp, "min": arith.MinUIOp, "max": arith.MaxUIOp}
assert f64 == scalar_type(F64)


def _is_index_arithmetic(node: Node) -> bool:
    """Return whether `_index` computes the node itself (it hands anything else to `_value`)."""
    return isinstance(node, Apply) and node.fn in _INDEX_FUNCTIONS


_INDEX_FUNCTIONS = {"add", "mul", "sub", "neg", "floordiv", "mod", "div", "rem", "min", "max", "select", "table"}
