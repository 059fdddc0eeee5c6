"""Index notation in a prime field: sums, products and quotients without rounding, for what is right only nearly.

A tensor of floats has *residues* beside its numbers. A number m * 2^e is m * 2^e modulo `PRIME`, sums, products and
quotients are those of the field, and any other function is a random one of its arguments' residues, the same in every
run (J. T. Schwartz, "Fast probabilistic algorithms for verification of polynomial identities", 1980). What depends on
order (comparisons, max, abs), and what is a whole number (floor, round, casts to integers), the numbers beside decide,
so that each law of order holds. Casts between floats are the identity: rounding is for the numbers.

Residues lie around 0, below 2^21 in magnitude, so that float64 multiplies them exactly, and sums 2^11 products of them:
contractions are products of matrices. Imports NumPy, `ir.bound` and `notation`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np

from lightnet.ir.bound import Apply, BoundDefinition, Const, Idx, Node, Read, Statement, reads, walk_nodes
from lightnet.ir.functions import FLOAT_FUNCTIONS
from lightnet_trust.interpreter.notation import (
    Execution,
    Expression,
    evaluate_definition,
    grid_of,
    pieces,
    target_box,
    target_order,
    target_views,
)

#: The largest prime below 2^22 of which 2 is a primitive root: no two powers of two that a float may have are equal.
PRIME = 4194187
#: Products that are added before they are reduced: 2^42 * 2^11 is the last integer that float64 counts to.
TERMS = 1 << 11
#: Elements of an operand of a contraction, as it is laid out for a product of matrices.
MOST = 1 << 23
#: Residues of what is no number, at random: of infinity (and its negative), of NaN, and of 1 / 0.
INFINITY, NAN, NO_INVERSE = 1234577, 1713731, 987643
#: Functions whose results are whole numbers, or made of bits: the numbers decide them.
_DECIDED = frozenset({"floor", "ceil", "round", "rint", "bitcast", "table", "wrap"})
#: Functions that look at the order of their arguments.
_ORDERED = frozenset({"lt", "le", "eq", "ne", "max", "min", "abs", "rem", "pow", "cast"}) | _DECIDED

Residues = np.ndarray


def reduced(a: np.ndarray) -> Residues:
    """Whole numbers of float64, below 2^53 in magnitude, as residues (up to one that has two forms, p/2 and -p/2)."""
    return a - PRIME * np.rint(a * (1.0 / PRIME))


def canonical(a: Residues) -> Residues:
    """Residues in float32, each in its one form."""
    half = PRIME // 2
    return np.where(a > half, a - PRIME, np.where(a < -half, a + PRIME, a)).astype(np.float32)


def image(array: np.ndarray) -> Residues:
    """The residues of numbers: those of the rational numbers that floats are."""
    wide = np.asarray(array).astype(np.float64)
    with np.errstate(all="ignore"):
        finite = np.isfinite(wide)
        part, power = np.frexp(np.where(finite, wide, 0.0))
        whole = np.ldexp(part, 53)  # an integer of 53 bits: two parts that float64 multiplies
        high = np.floor(whole * 2.0**-27)
        low = whole - high * 2.0**27
        two = _powers()
        mantissa = reduced(reduced(high) * float(two[27]) + reduced(low))
        found = reduced(mantissa * two[np.mod(power - 53, PRIME - 1)])
    if finite.all():
        return found
    other = np.where(np.isnan(wide), NAN, np.sign(wide) * INFINITY)
    return np.where(finite, found, other)


@cache
def _powers() -> np.ndarray:
    """Powers of 2, by exponents modulo p - 1."""
    found = np.ones(1)
    while len(found) < PRIME - 1:
        last = reduced(found[-1:] * 2)
        found = np.concatenate([found, reduced(found * last)])
    return found[: PRIME - 1].astype(np.float32)


@cache
def _inverses() -> np.ndarray:
    """1 / x for each x from 0: as 2 generates the field, that of 2^k is 2^(p - 1 - k)."""
    found = np.empty(PRIME, np.float32)
    powers = _powers()
    found[_positions(powers)] = np.roll(powers[::-1], 1)
    found[0] = NO_INVERSE
    return found


@cache
def _random(name: str) -> np.ndarray:
    """A random function of the field, by the residue from 0: that of this name."""
    draw = np.random.Generator(np.random.PCG64(zlib.crc32(name.encode())))
    return canonical(draw.integers(0, PRIME, PRIME, dtype=np.int32).astype(np.float32))


def _positions(a: Residues) -> np.ndarray:
    """Residues as integers from 0."""
    whole = a.astype(np.int32)
    return np.where(whole < 0, whole + PRIME, whole)


def inverse(a: Residues) -> Residues:
    """1 / a; of 0, a residue of its own."""
    return _inverses()[_positions(a)].astype(np.float64)


def random_function(name: str, *args: Residues) -> Residues:
    """The value of the random function `name`."""
    found = args[0]
    for k, arg in enumerate(args[1:]):
        found = reduced(_random(f"{name}{k}")[_positions(found)].astype(np.float64) + arg)
    return _random(name)[_positions(found)].astype(np.float64)


def evaluate_residues(
    definition: BoundDefinition, arrays: Mapping[str, np.ndarray], residues: Mapping[str, Residues]
) -> dict[str, Residues]:
    """The residues of the results that are floats; `residues` has those of the operands that are."""
    made: list[FieldExecution] = []

    def algebra(d: BoundDefinition, values: dict[str, np.ndarray]) -> FieldExecution:
        made.append(FieldExecution(d, values, residues))
        return made[0]

    evaluate_definition(definition, arrays, algebra)
    return {name: canonical(made[0].residues[name]) for name, spec in definition.results if spec.dtype.is_float}


class FieldExecution(Execution):
    """Statements on residues; on numbers, too, where order, integers and bools need them."""

    def __init__(self, definition: BoundDefinition, values: dict[str, np.ndarray], residues: Mapping[str, Residues]):
        super().__init__(definition, values)
        self.residues = dict(residues)
        self.types = {name: spec.dtype for name, spec in definition.specs.items()}
        for name, spec in definition.results + definition.locals:
            if spec.dtype.is_float:
                self.residues[name] = np.zeros(spec.dims)
        self.wanted = _wanted(definition)
        self.source = self.residues

    def run(self, s: Statement) -> None:
        if not self.types[s.tensor].is_float:
            self.source = self.residues
            return super().run(s)
        view = target_views(s, self.residues, (s.tensor,))[0]
        if s.op != "=" and s.fresh:
            view[target_box(s)] = {"+=": 0, "*=": 1, "max=": -INFINITY, "argmax=": -INFINITY}.get(s.op, INFINITY)
        self.source = dict(self.residues)
        if s.op == "=" and any(r.tensor == s.tensor for r in reads(s.value)):
            self.source[s.tensor] = self.residues[s.tensor].copy()
        floats = s.tensor in self.wanted or _picks(s)
        product = _product(s)
        if product is not None:
            self.contract(s, *product)
            if floats:
                Execution.run(_Numbers(self), s)
        elif floats:
            super().run(s)
        else:
            for piece in pieces([(name, 0, n) for name, n in s.loops + s.reductions]):
                self.own_piece(s, piece, self.values)

    def piece(self, s: Statement, ranges: list[tuple[str, int, int]], source: Mapping[str, np.ndarray]) -> None:
        if self.types[s.tensor].is_float:
            self.own_piece(s, ranges, source)
        super().piece(s, ranges, source)

    def own_piece(self, s: Statement, ranges: list[tuple[str, int, int]], source: Mapping[str, np.ndarray]) -> None:
        """A part of a statement, on residues. The numbers are as they were before it."""
        shape = tuple(high - low for _, low, high in ranges)
        expression = FieldExpression(grid_of(ranges), source, self.source)
        value = np.broadcast_to(expression.residue(s.value), shape)
        box, order, n = target_box(s, {name: (low, high) for name, low, high in ranges}), target_order(s), len(s.loops)
        view = target_views(s, self.residues, (s.tensor,))[0]
        if s.op == "=":
            view[box] = np.transpose(value, order)
            return
        flat = value.reshape(*shape[:n], -1)
        if s.op == "+=":
            view[box] = reduced(view[box] + np.transpose(reduced(flat.sum(-1)), order))
        elif s.op == "*=":
            view[box] = reduced(view[box] * np.transpose(_multiplied(flat), order))
        else:
            numbers = np.broadcast_to(expression.value(s.value), shape).reshape(*shape[:n], -1)
            low = s.op in ("min=", "argmin=")
            pick = (np.argmin if low else np.argmax)(numbers, axis=-1)[..., None]
            best, chosen = (np.transpose(np.take_along_axis(a, pick, -1)[..., 0], order) for a in (numbers, flat))
            old = target_views(s, self.values, (s.tensor,))[0][box]
            view[box] = np.where(best < old if low else best > old, chosen, view[box])

    def contract(self, s: Statement, a: Node, b: Node) -> None:
        """A sum of products, as products of matrices: [batch, m, k] x [batch, k, n]."""
        names = [name for name, _ in s.loops + s.reductions]
        uses = [{n.name for n in walk_nodes(node) if isinstance(n, Idx)} for node in (a, b)]
        view = target_views(s, self.residues, (s.tensor,))[0]
        for ranges in _parts(s, uses):
            expression = FieldExpression(grid_of(ranges), self.values, self.source)
            shape = tuple(high - low for _, low, high in ranges)
            both = []
            for node, used in zip((a, b), uses):
                own = tuple(m if name in used else 1 for name, m in zip(names, shape))
                both.append(np.broadcast_to(expression.residue(node), own))
            made = _matrices(both, len(s.loops), shape)
            box = target_box(s, {name: (low, high) for name, low, high in ranges})
            view[box] = reduced(view[box] + np.transpose(made, target_order(s)))

    def expression(self, grid: Mapping[str, np.ndarray], source: Mapping[str, np.ndarray]) -> Expression:
        return FieldExpression(grid, source, self.source)


class _Numbers(Execution):
    """The numbers of an execution, without its residues."""

    def __init__(self, of: FieldExecution):
        super().__init__(of.definition, of.values)


class FieldExpression(Expression):
    """Expressions on residues, on a grid of indices."""

    def __init__(
        self, grid: Mapping[str, np.ndarray], values: Mapping[str, np.ndarray], residues: Mapping[str, Residues]
    ):
        super().__init__(grid, values)
        self.residues = residues
        self.known: dict[Node, Residues] = {}

    def residue(self, node: Node) -> Residues:
        """The residues of an expression."""
        found = self.known.get(node)
        if found is None:
            found = self.known[node] = self._residue(node)
        return found

    def _residue(self, node: Node) -> Residues:
        if not node.dtype.is_float or isinstance(node, Const):
            return image(self.value(node))
        if isinstance(node, Read):
            return self.read(node, self.residues, self.residue).astype(np.float64)
        assert isinstance(node, Apply)
        fn, args = node.fn, node.args
        if fn in _DECIDED or (fn == "cast" and not args[0].dtype.is_float):
            return image(self.value(node))
        if fn == "select":
            return np.where(self.value(args[0]), self.residue(args[1]), self.residue(args[2]))
        found = [self.residue(a) for a in args]
        if fn == "pow" and (whole := _exponent(self.value(args[1]), found[1])) is not None:
            return _power(found[0], whole)
        match fn:
            case "cast":
                return found[0]
            case "neg":
                return -found[0]
            case "add":
                return reduced(found[0] + found[1])
            case "sub":
                return reduced(found[0] - found[1])
            case "mul":
                return reduced(found[0] * found[1])
            case "div":
                return reduced(found[0] * inverse(found[1]))
            case "max":
                return np.where(self.value(args[0]) >= self.value(args[1]), *found)
            case "min":
                return np.where(self.value(args[0]) <= self.value(args[1]), *found)
            case "abs":
                return np.where(self.value(args[0]) < 0, -found[0], found[0])
            case "rem":
                whole = np.trunc(self.value(args[0]) / self.value(args[1]))
                return reduced(found[0] - reduced(found[1] * image(whole)))
        assert fn in FLOAT_FUNCTIONS or fn == "pow", fn
        return random_function(fn, *found)


def _exponent(numbers: np.ndarray, residues: Residues) -> int | None:
    """The small whole number that all exponents are, as numbers and as residues."""
    values = np.unique(numbers)
    if len(values) != 1 or not float(values[0]).is_integer() or abs(values[0]) > 64:
        return None
    return int(values[0]) if (canonical(residues) == canonical(image(values))).all() else None


def _power(a: Residues, exponent: int) -> Residues:
    base = inverse(a) if exponent < 0 else a
    found: Any = np.ones(())
    for _ in range(abs(exponent)):
        found = reduced(found * base)
    return np.broadcast_to(found, np.shape(a))


def _multiplied(flat: Residues) -> Residues:
    """The product along the last axis."""
    while flat.shape[-1] > 1:
        if flat.shape[-1] % 2:
            flat = np.concatenate([flat, np.ones((*flat.shape[:-1], 1))], axis=-1)
        flat = reduced(flat[..., ::2] * flat[..., 1::2])
    return flat[..., 0] if flat.shape[-1] else np.ones(flat.shape[:-1])


def _picks(s: Statement) -> bool:
    return s.op in ("max=", "min=", "argmax=", "argmin=")


def _wanted(definition: BoundDefinition) -> set[str]:
    """The tensors whose numbers something looks at: what is compared, and what makes integers or bools."""
    wanted: set[str] = set()
    for s in reversed(definition.statements):
        whole = s.tensor in wanted or _picks(s) or not definition.specs[s.tensor].dtype.is_float
        wanted |= {r.tensor for r in reads(s.value)} if whole else set(_looked_at(s.value))
        for target in s.subs:
            wanted |= {r.tensor for r in reads(target)}
    return wanted


def _looked_at(node: Node, inside: bool = False) -> Iterator[str]:
    """The tensors whose numbers an expression looks at, to give residues."""
    if isinstance(node, Read):
        if inside:
            yield node.tensor
        for sub in node.subs:
            yield from _looked_at(sub, True)
        if node.filler is not None:
            yield from _looked_at(node.filler, inside)
    elif isinstance(node, Apply):
        for k, arg in enumerate(node.args):
            yield from _looked_at(arg, inside or node.fn in _ORDERED or (node.fn == "select" and not k))


def _product(s: Statement) -> tuple[Node, Node] | None:
    """The factors of a sum of products over more than one term."""
    value = s.value
    if s.op != "+=" or not isinstance(value, Apply) or value.fn != "mul" or not s.reductions:
        return None
    return value.args[0], value.args[1]


def _parts(s: Statement, uses: Sequence[set[str]]) -> Iterator[list[tuple[str, int, int]]]:
    """The grid of a contraction in parts, each of whose operands and results have at most `MOST` elements."""
    waiting = [[(name, 0, n) for name, n in s.loops + s.reductions]]
    loops = {name for name, _ in s.loops}
    while waiting:
        ranges = waiting.pop()
        sizes = [prod(high - low for name, low, high in ranges if name in used) for used in (*uses, loops)]
        if max(sizes) <= MOST:
            yield ranges
            continue
        largest = (*uses, loops)[sizes.index(max(sizes))]
        k = max(range(len(ranges)), key=lambda k: (ranges[k][2] - ranges[k][1]) * (ranges[k][0] in largest))
        name, low, high = ranges[k]
        for part in ((low, (low + high) // 2), ((low + high) // 2, high)):
            waiting.append([*ranges[:k], (name, *part), *ranges[k + 1 :]])


def _matrices(both: list[Residues], n: int, shape: tuple[int, ...]) -> Residues:
    """The sum over the axes from `n` on of the product of two arrays, in which an axis of 1 is repeated."""
    once = prod(m for k, m in enumerate(shape) if k >= n and both[0].shape[k] == both[1].shape[k] == 1)
    both = [a.sum(tuple(k for k in range(n, a.ndim) if both[1 - i].shape[k] == 1), keepdims=True)
            for i, a in enumerate(both)]  # fmt: skip
    both = [reduced(a) for a in both]
    a, b = both
    batch = [k for k in range(n) if a.shape[k] > 1 and b.shape[k] > 1]
    rows = [k for k in range(n) if a.shape[k] > 1 and k not in batch]
    columns = [k for k in range(n) if k not in batch and k not in rows]
    terms = list(range(n, len(shape)))

    def size(axes: list[int], of: Residues) -> int:
        return prod(of.shape[k] for k in axes)

    left = a.transpose(batch + rows + terms + columns).reshape(size(batch, a), size(rows, a), -1)
    right = b.transpose(batch + terms + columns + rows).reshape(size(batch, b), -1, size(columns, b))
    made: Any = 0.0
    for k in range(0, left.shape[2], TERMS):
        made = reduced(made + left[:, :, k : k + TERMS] @ right[:, k : k + TERMS])
    made = np.asarray(made).reshape([a.shape[k] for k in batch + rows] + [b.shape[k] for k in columns])
    back = np.argsort(batch + rows + columns)
    made = made.transpose(back)
    # A sum over an axis that neither has counts its terms.
    return np.broadcast_to(reduced(made * once) if once > 1 else made, shape[:n])
