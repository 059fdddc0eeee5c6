"""The shape of loop nests: collapsing loops, the order of reductions, guards as bounds and steps of loops.

Part of `loops.py`; works on bound statements with linear addresses alone, before any code is built. Imports `ir`.
"""

from __future__ import annotations

from math import gcd

from lightnet.backends.elementwise import signed
from lightnet.dataclasses import dataclass, replace
from lightnet.ir.affine import IndexSpace, Linear, constant_divisor, exact_quotient
from lightnet.ir.bound import (
    BOOL,
    I64,
    Apply,
    Const,
    Idx,
    Loop,
    Node,
    Statement,
    indices,
    reads,
    substitute,
    walk_nodes,
)
from lightnet.ir.fusion import Nest, divisions
from lightnet.runtime.dims import Dim, Size, greatest, least, typical
from lightnet.runtime.dtypes import DType


def identity_number(op: str, dtype: DType) -> float:
    """The value that a reduction starts from."""
    if op in ("+=", "*="):
        return int(op == "*=")
    low = op in ("max=", "argmax=")
    if dtype.is_float:
        return float("-inf") if low else float("inf")
    if dtype.kind == "bool":
        return int(not low)
    if dtype.kind == "uint":
        return signed(0 if low else (1 << dtype.bits) - 1, dtype)
    return -(1 << (dtype.bits - 1)) if low else (1 << (dtype.bits - 1)) - 1


def _divisions(nest: Nest) -> int:
    return divisions(part for s in nest.statements for part in (*s.subs, s.value))


#: Pieces that a loop is cut into, at most.
MAX_SPLITS = 6


def unfolded(nest: Nest, first: int) -> Nest:
    """The loops from `first` on cut in two, wherever that makes index divisions vanish: a copy through reshapes, which
    runs over row-major numbers, then runs over the dimensions in between.

    ``for i < 6: i / 3, i % 3``  becomes  ``for i < 2, j < 3: i, j``
    """
    if not _divisions(nest):
        return nest
    for serial in range(MAX_SPLITS):
        cuts = ((k, c) for k in range(first, len(nest.loops)) for c in _divisors(nest, *nest.loops[k]))
        tried = (_cut(nest, k, c, serial) for k, c in cuts)
        better = next((new for new in tried if _divisions(new) < _divisions(nest)), None)
        if better is None:
            return nest
        nest = better
    return nest


def _divisors(nest: Nest, name: str, n: Size) -> list[Size]:
    """The constants by which something with this index is divided, as far as they divide its extent."""
    found = set()
    for s in nest.statements:
        for node in (part for root in (*s.subs, s.value) for part in walk_nodes(root)):
            if isinstance(node, Apply) and node.fn in ("floordiv", "mod") and name in indices(node):
                c = constant_divisor(node)
                found |= {c} if c not in (1, n) and exact_quotient(n, c) is not None else set()
    return sorted(found, key=lambda c: (typical(c), str(c)))


def _cut(nest: Nest, k: int, c: Size, serial: int) -> Nest:
    """Loop `k` as two, the inner one of extent `c`."""
    name, n = nest.loops[k]
    inner = f"{name}_{serial}"
    both = Apply("add", (Apply("mul", (Idx(name), Const(c, I64)), I64), Idx(inner)), I64)
    loops = (*nest.loops[:k], (name, n // c), (inner, c), *nest.loops[k + 1 :])
    return _over(nest, loops, {name: both})


def _over(nest: Nest, loops: tuple[Loop, ...], by: dict[str, Node]) -> Nest:
    """A nest over other loops, by which its indices are known."""
    statements = []
    for s in nest.statements:
        space = IndexSpace(loops + s.reductions)
        address, *subs, value = (space.simplify(substitute(node, by)) for node in (*s.subs, s.value))
        statements.append(replace(s, loops=loops, subs=(address, *subs), value=value))
    return replace(nest, loops=loops, statements=statements)


def collapsed(nest: Nest, k: int) -> Nest | None:
    """Loops `k` and `k + 1` as one, when every address is linear in their common position."""
    loops, by = _joined(nest.loops, k)
    joined = _over(nest, loops, by)
    return joined if _divisions(joined) <= _divisions(nest) else None


def _joined(loops: tuple[Loop, ...], k: int) -> tuple[tuple[Loop, ...], dict[str, Node]]:
    """Loops of which `k` and `k + 1` are one, and these two by it."""
    (a, m), (c, n) = loops[k : k + 2]
    by: dict[str, Node] = {
        a: Apply("floordiv", (Idx(a), Const(n, I64)), I64),
        c: Apply("mod", (Idx(a), Const(n, I64)), I64),
    }
    return (*loops[:k], (a, m * n), *loops[k + 2 :]), by


def collapsed_reductions(s: Statement) -> Statement:
    """Adjacent reduction loops of a statement as one, where every address is linear in their common position: the
    longer an innermost loop, the better it vectorises. An index that is a value itself (`argmax`) keeps its loop."""
    k = len(s.reductions) - 2
    while k >= 0 and s.arg is None:
        joined, by = _joined(s.reductions, k)
        value = IndexSpace(s.loops + joined).simplify(substitute(s.value, by))
        if divisions([value]) <= divisions([s.value]):
            s = replace(s, reductions=joined, value=value)
        k -= 1
    return s


def turned(nest: Nest) -> Nest | None:
    """A nest that reads across what it writes along (a transpose), with the loop along which it reads second to last;
    None where the other loops do not matter: nothing else is read so, or the last loop's cache lines stay in the cache
    as it is.
    """
    if len(nest.loops) < 2 or any(s.op != "=" or s.reductions for s in nest.statements):
        return None
    *outer, (name, n) = nest.loops
    space = IndexSpace(nest.loops)
    if any(space.linear(s.subs[0]).terms.get(Idx(name)) != 1 for s in nest.statements):
        return None
    found = [r for s in nest.statements for r in reads(s.value) if r.flat]
    forms = [(space.linear(r.subs[0]).terms, r.dtype.size) for r in found]
    across = [f for f, size in forms if typical(n) > _lines(abs(typical(f.get(Idx(name), 0))) * size)]
    along = [loop for loop in outer if typical(loop[1]) >= TILE[0] and any(f.get(Idx(loop[0])) == 1 for f in across)]
    if not along:
        return None
    loops = (*(loop for loop in outer if loop != along[0]), along[0], nest.loops[-1])
    return replace(nest, loops=loops, statements=[replace(s, loops=loops) for s in nest.statements])


def _lines(stride: int) -> float:
    """The number of cache lines, `stride` bytes apart, that surely stay in a cache of 64 sets and 8 ways while a loop
    touches them and others: strides by a power of two fall into few sets.
    """
    if stride < LINE:
        return float("inf")
    return min(4096 // gcd(stride, 4096), 4096 // LINE) * 4


#: Bytes of a cache line.
LINE = 64
#: The tile of a transpose: along the cache lines that it reads, and along those that it writes.
TILE = (16, 64)


def row_reduction(nest: Nest, by_lanes: bool) -> Statement | None:
    """The one reduction of a nest, if it should run by rows: its target is contiguous along the last loop, and the
    operands are not contiguous along a long reduction loop (which LLVM vectorises as it is); `by_lanes`: along a loop
    that has the length of a vector.
    """
    found = [s for s in nest.statements if s.op != "="]
    if len(found) != 1 or found[0].arg is not None or not found[0].reductions or not nest.loops:
        return None
    s, (name, n) = found[0], nest.loops[-1]
    space = IndexSpace(nest.loops + s.reductions)
    inner, trips = reduction_order(s)[-1]
    forms = [space.linear(r.subs[0]).terms for r in reads(s.value)]
    vectorised = typical(trips) >= (8 if by_lanes else 32) and all(f.get(Idx(inner), 0) in (0, 1) for f in forms)
    along = [f for f in forms if Idx(name) in f]
    if typical(n) < 8 or vectorised or not along or space.linear(s.subs[0]).terms.get(Idx(name)) != 1:
        return None
    return s


def reduction_order(s: Statement) -> tuple[Loop, ...]:
    """The loop along which most reads are contiguous comes innermost."""
    space = IndexSpace(s.loops + s.reductions)

    def contiguous(loop: Loop) -> int:
        forms = [space.linear(r.subs[0]) for r in reads(s.value)]
        return sum(f.terms.get(Idx(loop[0])) == 1 for f in forms)

    return tuple(sorted(s.reductions, key=contiguous))


@dataclass(frozen=True)
class Bound:
    """A loop from `low` to `high`; with a `step`, over the values congruent to `residue` modulo it. The index of a
    loop with a step is ``{name}.base + step * {name}.trip``.
    """

    low: Node
    high: Node
    step: int
    residue: Node | None


@dataclass
class Guarded:
    """The value of a reduction without the guards that `bounds` take care of, and the space of its indices."""

    value: Node
    bounds: dict[str, Bound]
    space: IndexSpace
    indices: dict[str, Node]


def pull_guards(s: Statement, dtype: DType, order: tuple[Loop, ...], nest: Nest) -> Guarded:
    """Turn guards into bounds and steps of the loops of `order`.

    ``acc op= cond ? v : identity`` runs only where `cond` holds. In a sum, ``(cond ? v : 0) * w`` counts as such: a
    padding of zero contributes nothing, whatever its partner.
    """
    space = IndexSpace(nest.loops + s.reductions)
    neutral = identity_number(s.op, dtype)
    conds, value = _guards(s.value, s.op, neutral, dtype)
    limits: dict[str, tuple[list[Node], list[Node]]] = {}
    steps: dict[str, tuple[int, Node]] = {}
    rest: list[Node] = []
    for cond in conds:
        if _congruence(cond, order, space, steps):
            continue
        forms = space.consequences(cond, True) if isinstance(cond, Apply) and cond.fn in ("lt", "le") else []
        placed = forms and all(_limit(form, order, limits) for form in forms)
        if not placed:
            rest.append(cond)
    for cond in rest:
        value = Apply("select", (cond, value, Const(neutral, dtype)), dtype)
    bounds: dict[str, Bound] = {}
    for name, n in order:
        if name not in limits and name not in steps:
            continue
        lows, highs = limits.get(name, ([], []))
        low: Node = Const(0, I64)
        high: Node = Const(n, I64)
        for node in lows:
            low = Apply("max", (low, node), I64)
        for node in highs:
            high = Apply("min", (high, node), I64)
        step, residue = steps.get(name, (1, None))
        bounds[name] = Bound(space.simplify(low), space.simplify(high), step, residue)
    return _stepped(Guarded(value, bounds, space, {}), dict(order), nest.loops + s.reductions)


def _congruence(cond: Node, order: tuple[Loop, ...], space: IndexSpace, steps: dict[str, tuple[int, Node]]) -> bool:
    """Turn ``(±index + rest) mod c == 0`` into a step of its innermost loop, if that loop has none yet."""
    match cond:
        case Apply(fn="eq", args=(Apply(fn="mod", args=(inner, Const(value=c))), Const(value=0))):
            form = space.linear(inner)
        case _:
            return False
    if isinstance(c, Dim):
        return False
    used = [name for name, _ in order if any(name in indices(atom) for atom in form.terms)]
    if not used or used[-1] in steps:
        return False
    index = Idx(used[-1])
    sign = form.terms.get(index)
    rest = Linear(form.const, {a: k for a, k in form.terms.items() if a != index})
    if sign not in (1, -1) or any(used[-1] in indices(atom) for atom in rest.terms):
        return False
    steps[used[-1]] = (int(c), rest.times(-sign).node())
    return True


def _stepped(g: Guarded, extents: dict[str, int], loops: tuple[Loop, ...]) -> Guarded:
    """Replace each index of a loop with a step by ``base + step * trip``, so that divisions by the step vanish."""
    for name, bound in g.bounds.items():
        if bound.step > 1:
            base, trip = Idx(f"{name}.base"), Idx(f"{name}.trip")
            g.indices[name] = Apply("add", (base, Apply("mul", (trip, Const(bound.step, I64)), I64)), I64)
            loops = (*loops, (base.name, extents[name]), (trip.name, -(-extents[name] // bound.step)))
    if not g.indices:
        return g
    space = IndexSpace(loops)

    def change(node: Node) -> Node:
        return space.simplify(substitute(node, g.indices))

    bounds = {
        name: Bound(change(b.low), change(b.high), b.step, None if b.residue is None else change(b.residue))
        for name, b in g.bounds.items()
    }
    return Guarded(change(g.value), bounds, space, g.indices)


def _guards(node: Node, op: str, neutral: float, dtype: DType) -> tuple[list[Node], Node]:
    """The conditions that an expression must meet to count, and the expression under them."""
    match node:
        case Apply(fn="select", args=(cond, value, Const(value=other))) if other == neutral and dtype is not BOOL:
            conds, inner = _guards(value, op, neutral, dtype)
            return _conjuncts(cond) + conds, inner
        case Apply(fn="mul", args=(a, b)) if op == "+=":
            (left, x), (right, y) = _guards(a, op, neutral, dtype), _guards(b, op, neutral, dtype)
            return left + right, Apply("mul", (x, y), node.dtype)
    return [], node


def _conjuncts(cond: Node) -> list[Node]:
    if isinstance(cond, Apply) and cond.fn == "and":
        return _conjuncts(cond.args[0]) + _conjuncts(cond.args[1])
    return [cond]


def _limit(form: Linear, order: tuple[Loop, ...], limits: dict[str, tuple[list[Node], list[Node]]]) -> bool:
    """Turn ``form >= 0`` into a bound of its innermost reduction index, if that occurs in it once and linearly."""
    names = [name for name, _ in order]
    used = [name for name in names if any(name in indices(atom) for atom in form.terms)]
    if not used:
        return False
    index = Idx(used[-1])
    c = form.terms.get(index)
    if (
        c is None
        or least(c) <= 0 <= greatest(c)
        or any(used[-1] in indices(atom) for atom in form.terms if atom != index)
    ):
        return False
    rest = Linear(form.const, {a: k for a, k in form.terms.items() if a != index})
    lows, highs = limits.setdefault(used[-1], ([], []))
    if least(c) > 0:  # index >= ceil(-rest / c)
        lows.append(_floordiv(rest.times(-1).plus(Linear(c - 1)), c))
    else:  # index < floor(rest / -c) + 1
        highs.append(Apply("add", (_floordiv(rest, -c), Const(1, I64)), I64))
    return True


def _floordiv(form: Linear, c: int) -> Node:
    return form.node() if c == 1 else Apply("floordiv", (form.node(), Const(c, I64)), I64)
