"""Between which numbers the results of a definition lie, if its operands lie between some: interval arithmetic (R. E.
Moore, "Interval Analysis", 1966) on index notation.

An interval is a pair of doubles. Bounds are safe but not tight: every occurrence of a value counts as another one, but
for what a condition says of it (``x < 0 ? exp(x) : x``). NaN is left out. Imports bound definitions and `constants`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from itertools import product
from math import inf, prod

from lightnet.ir.affine import Interval, dtype_range
from lightnet.ir.bound import Apply, BoundDefinition, Const, Idx, Node, Read, Statement, indices, reads, walk_nodes
from lightnet.ir.constants import round_half_away, whole_float

EVERYTHING: Interval = (-inf, inf)
#: Values of an index that are looked at one by one.
_FEW = 1 << 12


def intervals(definition: BoundDefinition, operands: Mapping[str, Interval], factors: Interval) -> dict[str, Interval]:
    """The interval of every tensor that a definition makes, locals included. `operands` has those of float operands;
    integers take all values of their type. A contraction, which sums products of two operands, is taken to lie within
    `factors`, whatever its length."""
    known = {name: operands.get(name, dtype_range(spec.dtype)) for name, spec in definition.operands}
    for statement in definition.statements:
        _run(definition, statement, known, factors)
    return {name: known.get(name, EVERYTHING) for name, _ in definition.results + definition.locals}


def is_contraction(definition: BoundDefinition, s: Statement) -> bool:
    """Return whether a statement sums products of two operands."""
    operands = {name for name, _ in definition.operands}

    def is_product(node: Node) -> bool:
        if not (isinstance(node, Apply) and node.fn == "mul"):
            return False
        a, b = ({n.tensor for n in values(x) if isinstance(n, Read)} for x in node.args)
        return len(a) == len(b) == 1 and a != b and a | b <= operands

    return s.op == "+=" and bool(s.reductions) and any(map(is_product, values(s.value)))


def has_positions(definition: BoundDefinition) -> bool:
    """Return whether a float says where something is, so that rounding it by a share of itself moves that: it has an
    index added to it or taken from it, or an element is read there.
    """

    def says_where(node: Node) -> bool:
        if not (isinstance(node, Apply) and node.fn in ("add", "sub") and node.dtype.is_float):
            return False
        return any(isinstance(n, Idx) for a in node.args for n in values(a))

    def reads_there(node: Node) -> bool:
        subs = node.subs if isinstance(node, Read) else ()
        return any(isinstance(n, Read) and n.dtype.is_float for sub in subs for n in walk_nodes(sub))

    nodes = [node for s in definition.statements for node in values(s.value)]
    return any(says_where(node) or reads_there(node) for node in nodes)


def values(node: Node) -> Iterator[Node]:
    """The nodes of an expression whose values go into its own: none of a subscript, or of a condition."""
    yield node
    parts: tuple[Node, ...] = ()
    if isinstance(node, Apply):
        parts = node.args[1:] if node.fn in ("select", "table") else node.args
    elif isinstance(node, Read) and node.filler is not None:
        parts = (node.filler,)
    for part in parts:
        yield from values(part)


def _run(definition: BoundDefinition, s: Statement, known: dict[str, Interval], factors: Interval) -> None:
    ranges = {name: (0.0, float(max(n - 1, 0))) for name, n in s.loops + s.reductions}
    wins = {"max=": inf, "argmax=": inf, "min=": -inf, "argmin=": -inf}.get(s.op)
    term, base = _Evaluator(known, ranges, loses=None if wins is None else -wins).value(s.value), known.get(s.tensor)
    count = prod(n for _, n in s.reductions)
    match s.op:
        case "=":
            whole = s.size == definition.specs[s.tensor].len
            known[s.tensor] = term if whole or base is None else _hull(term, base)
        case "+=":
            total = factors if is_contraction(definition, s) else (_times(term[0], count), _times(term[1], count))
            known[s.tensor] = total if s.fresh or base is None else (base[0] + total[0], base[1] + total[1])
        case "*=":
            most = _power_of(max(1.0, *map(abs, term)), count)
            known[s.tensor] = (-most, most)
        case _:
            known[s.tensor] = term if s.fresh or base is None else _hull(term, base)
            if s.arg is not None:
                known[s.arg] = (0.0, float(count))


class _Evaluator:
    """Expressions; `given` bounds some of them, by what the conditions around say. A filler of `loses` is never the
    value of a reduction: what is outside of a picture is not its largest element."""

    def __init__(self, tensors: Mapping[str, Interval], indices: Mapping[str, Interval],
                 given: Mapping[Node, Interval] | None = None, loses: float | None = None):  # fmt: skip
        self.tensors, self.indices, self.given, self.loses = tensors, indices, given or {}, loses
        self.memo: dict[Node, Interval] = {}

    def value(self, node: Node) -> Interval:
        if node not in self.memo:
            found = self._value(node)
            if (bounds := self.given.get(node)) is not None:
                low, high = max(found[0], bounds[0]), min(found[1], bounds[1])
                found = (low, high) if low <= high else (low, low)
            self.memo[node] = found
        return self.memo[node]

    def _value(self, node: Node) -> Interval:
        match node:
            case Const(value=value):
                return float(value), float(value)
            case Idx(name=name):
                return self.indices.get(name, EVERYTHING)
            case Read(tensor=tensor, filler=filler):
                read = self.tensors.get(tensor, EVERYTHING)
                if filler is None or (isinstance(filler, Const) and filler.value == self.loses):
                    return read
                return _hull(read, self.value(filler))
            case Apply(fn="select", args=(condition, a, b)):
                return _hull(self._where(condition, True).value(a), self._where(condition, False).value(b))
            case Apply(fn="cast" | "wrap", args=(a,), dtype=dtype):
                return self.value(a) if dtype.is_float else _clipped(self.value(a), dtype_range(dtype))
            case Apply(fn="table", args=(_, *values)):
                return _hull_of(map(self.value, values))
            case Apply(dtype=dtype) if not dtype.is_float and (index := self._alone(node)) is not None:
                low, high = self.indices[index]
                points = (
                    _Evaluator({}, {index: (float(i), float(i))}).value(node) for i in range(int(low), int(high) + 1)
                )
                return _hull_of(points)
            case Apply(fn=fn, args=args, dtype=dtype) if fn in _FUNCTIONS:
                found, all_values = _FUNCTIONS[fn](*map(self.value, args)), dtype_range(dtype)
                return found if _hull(found, all_values) == all_values else all_values  # what is too large wraps
            case Apply(dtype=dtype):
                return dtype_range(dtype)
        return EVERYTHING

    def _alone(self, node: Node) -> str | None:
        """The index, of few values, that a number depends on and on nothing else: then it is known exactly, as is how
        much of a window lies in a picture."""
        names = indices(node)
        if len(names) != 1 or reads(node):
            return None
        (name,) = names
        low, high = self.indices.get(name, EVERYTHING)
        return name if 0 < high - low < _FEW else None

    def _where(self, condition: Node, holds: bool) -> _Evaluator:
        """The evaluator of an arm of a choice."""
        if not (isinstance(condition, Apply) and condition.fn in ("lt", "le")):
            return self
        less, more = condition.args if holds else condition.args[::-1]
        given = dict(self.given)
        given[less] = _meet(given.get(less), (-inf, self.value(more)[1]))
        given[more] = _meet(given.get(more), (self.value(less)[0], inf))
        given = {node: bounds for node, bounds in given.items() if not isinstance(node, Const)}
        return _Evaluator(self.tensors, self.indices, given, self.loses)


# ---- intervals -------------------------------------------------------------------------------------------------------


def _hull(a: Interval, b: Interval) -> Interval:
    return min(a[0], b[0]), max(a[1], b[1])


def _hull_of(parts: Iterable[Interval]) -> Interval:
    return reduce(_hull, parts)


def _meet(a: Interval | None, b: Interval) -> Interval:
    return b if a is None else (max(a[0], b[0]), min(a[1], b[1]))


def _clipped(a: Interval, to: Interval) -> Interval:
    return min(max(a[0], to[0]), to[1]), min(max(a[1], to[0]), to[1])


def _times(a: float, b: float) -> float:
    """A product where nothing infinite of nothing is nothing: a bound that is not reached."""
    return 0.0 if a == 0 or b == 0 else a * b


def _multiplied(a: Interval, b: Interval) -> Interval:
    corners = [_times(x, y) for x, y in product(a, b)]
    return min(corners), max(corners)


def _divided(a: Interval, b: Interval) -> Interval:
    if b[0] <= 0 <= b[1]:
        return EVERYTHING
    return _multiplied(a, (1 / b[1], 1 / b[0]))


def _rising(function: Callable[[float], float]) -> Callable[[Interval], Interval]:
    """Of a function that never falls; what overflows is infinite."""

    def bounds(a: Interval) -> Interval:
        low, high = (_or_infinite(function, x) for x in a)
        return low, high

    return bounds


def _or_infinite(function: Callable[[float], float], x: float) -> float:
    try:
        return function(x)
    except OverflowError:
        return inf if x > 0 else -inf


def _power_of(base: float, count: int) -> float:
    try:
        return float(base) ** count
    except OverflowError:
        return inf


def _absolute(a: Interval) -> Interval:
    largest = max(abs(a[0]), abs(a[1]))
    return (0.0, largest) if a[0] <= 0 <= a[1] else (min(abs(a[0]), abs(a[1])), largest)


def _log(a: Interval) -> Interval:
    return tuple(math.log(x) if x > 0 else -inf for x in a)  # type: ignore[return-value]


def _power(a: Interval, b: Interval) -> Interval:
    """Of a base that may be anything it is known only where the exponent is one small whole number."""
    if b[0] != b[1] or b[0] not in (1.0, 2.0, 3.0):
        return EVERYTHING
    found = a
    for _ in range(int(b[0]) - 1):
        found = _multiplied(found, a)
    return found


def _remainder(a: Interval, b: Interval) -> Interval:
    largest = min(_absolute(a)[1], _absolute(b)[1])
    return (0.0 if a[0] >= 0 else -largest), largest


def _modulo(a: Interval, b: Interval) -> Interval:
    """Of a whole number by a positive one that is known, rounding down."""
    by = b[0]
    return (a[0] % by, a[1] % by) if a[0] // by == a[1] // by else (0.0, by - 1)


_FUNCTIONS: dict[str, Callable[..., Interval]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": _multiplied,
    "div": _divided,
    "neg": lambda a: (-a[1], -a[0]),
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "abs": _absolute,
    "sqrt": _rising(lambda x: math.sqrt(max(x, 0.0))),
    "exp": _rising(math.exp),
    "log": _log,
    "pow": _power,
    "erf": _rising(math.erf),
    "tanh": _rising(math.tanh),
    "atan": _rising(math.atan),
    "asinh": _rising(math.asinh),
    "sin": lambda a: (-1.0, 1.0),
    "cos": lambda a: (-1.0, 1.0),
    "asin": lambda a: (-2.0, 2.0),
    "acos": lambda a: (0.0, 4.0),
    "rem": _remainder,
    "mod": _modulo,
    "floor": _rising(whole_float(math.floor)),
    "ceil": _rising(whole_float(math.ceil)),
    "round": _rising(round_half_away),
    "rint": _rising(whole_float(round)),
    **{name: (lambda *a: (0.0, 1.0)) for name in ("lt", "le", "eq", "ne", "and", "or", "not")},
}  # fmt: skip
