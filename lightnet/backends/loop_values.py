"""Expressions of bound definitions as level-4 scalars, each placed in the outermost loop that knows its indices.

Part of `loops.py`. Imports `ir.bound`, `ir.affine`, `elementwise`, `builder` and xDSL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from xdsl.dialects import arith
from xdsl.dialects.builtin import i1
from xdsl.ir import Attribute, Block, SSAValue

from lightnet.backends.builder import INDEX, Builder
from lightnet.backends.elementwise import applied, constant, loaded_value, scalar_type
from lightnet.dataclasses import dataclass, field
from lightnet.ir.affine import IndexSpace, whole
from lightnet.ir.bound import I64, Apply, Const, Idx, Node, Read, operand_nodes, walk_nodes
from lightnet.runtime.dims import Size, dim_max, least
from lightnet.runtime.dtypes import DType


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

    def __init__(self, b: Builder, memory: dict[str, SSAValue], sizes: dict[str, Size], written: set[str]):
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

    def _reads(self, nodes: Iterable[Node]) -> bool:
        return any(self._about(node)[1] for node in nodes)

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
            return self.b.index(whole(node.value))
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
                return self._divide(node.fn == "mod", x, whole(c))
            case Apply(fn="div" | "rem" | "min" | "max", args=(x, y)):
                kinds = {"div": arith.DivSIOp, "rem": arith.RemSIOp, "min": arith.MinSIOp, "max": arith.MaxSIOp}
                return b.op(kinds[node.fn], self.index(x), self.index(y))
            case Apply(fn="select", args=(c, x, y)):
                return b.select(self.value(c), self.index(x), self.index(y))
            case Apply(fn="table"):
                return self._table(node, INDEX)
        return b.op(arith.IndexCastOp, self.value(node), type=INDEX)

    def _divide(self, remainder: bool, x: Node, c: Size) -> SSAValue:
        b, divisor = (
            self.b,
            self.b.index(dim_max(c, 1)),
        )  # what is computed ahead of a loop without a trip must not trap
        if least(self.space.interval(x)[0]) >= 0:
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
            return constant(self.b, node)
        if isinstance(node, Read) and node.tensor in self.registers:
            return self.registers[node.tensor]
        return self._emit(node, False, self._value)

    def _value(self, node: Node) -> SSAValue:
        b = self.b
        if node.dtype is I64 and (isinstance(node, Idx) or _is_index_arithmetic(node)) and not self._reads([node]):
            return b.op(arith.IndexCastOp, self.index(node), type=scalar_type(I64))
        match node:
            case Read(tensor=tensor, subs=(sub,), dtype=dtype):
                return loaded_value(b, b.load(self.memory[tensor], [self.index(sub)]), dtype)
            case Apply(fn="table"):
                return self._table(node, scalar_type(node.dtype))
            case Apply(fn="lt" | "le" | "eq" | "ne", args=(x, y)) if x.dtype is I64 and not self._reads((x, y)):
                return applied(b, node, [self.index(x), self.index(y)])
            case Apply(fn="select", args=(c, x, y)):
                return self._select(c, lambda: self.value(x), lambda: self.value(y), (x, y))
            case Apply(fn="and", args=(x, y)):
                return self._select(x, lambda: self.value(y), lambda: b.const(0, i1), (y,))
            case Apply(fn="or", args=(x, y)):
                return self._select(x, lambda: b.const(1, i1), lambda: self.value(y), (y,))
            case Apply(args=args):
                return applied(b, node, [self.value(a) for a in args])
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


def _is_index_arithmetic(node: Node) -> bool:
    """Return whether `_index` computes the node itself (it hands anything else to `_value`)."""
    return isinstance(node, Apply) and node.fn in _INDEX_FUNCTIONS


_INDEX_FUNCTIONS = {"add", "mul", "sub", "neg", "floordiv", "mod", "div", "rem", "min", "max", "select", "table"}


def wins(b: Builder, op: str, value: SSAValue, best: SSAValue, dtype: DType) -> SSAValue:
    """The condition on which `value` takes the place of the `best` so far: it is larger (``argmax=``) or smaller, or
    the first NaN."""
    if not dtype.is_float:
        sign = "u" if dtype.kind in ("uint", "bool") else "s"
        return b.cmpi(f"{sign}{'gt' if op == 'argmax=' else 'lt'}", value, best)
    beyond = b.cmpf("ogt" if op == "argmax=" else "olt", value, best)
    first_nan = b.op(arith.AndIOp, b.cmpf("uno", value, value), b.cmpf("ord", best, best))
    return b.op(arith.OrIOp, beyond, first_nan)
