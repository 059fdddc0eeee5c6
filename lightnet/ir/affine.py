"""Integer arithmetic on loop indices: linear forms, floor division and modulo, intervals. Imports `ir.bound` and the
dtypes.

An `IndexSpace` knows the range of each index. It normalises subscripts (so that equal ones are equal trees), divides
out `/` and `%` where ranges allow it, and proves bounds. All identities hold in the integers; index arithmetic of
checked shapes does not overflow 64 bits. Constants, coefficients and the ends of ranges may be dims that a call decides
(`runtime/dims.py`): what is proved then holds in every call.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from lightnet.dataclasses import dataclass, field
from lightnet.ir.bound import BOOL, I64, Apply, Const, Idx, Loop, Node, Read, rebuild, show
from lightnet.runtime.dims import Dim, Size, dim_max, dim_min, greatest, is_known, least, typical
from lightnet.runtime.dtypes import DType

INF = math.inf
#: The ends of a range: infinities, numbers, or dims.
Interval = tuple[Any, Any]
#: Whether a flag is known: True, False or None.
Known = bool | None


@dataclass
class Linear:
    """``const + Σ coefficient · atom``; an atom is an index or an expression that is not linear."""

    const: Size = 0
    terms: dict[Node, Size] = field(default_factory=dict)

    def plus(self, other: Linear, factor: Size = 1) -> Linear:
        terms = dict(self.terms)
        for atom, c in other.terms.items():
            total = terms.get(atom, 0) + c * factor
            if total != 0:
                terms[atom] = total
            else:
                terms.pop(atom, None)
        return Linear(self.const + other.const * factor, terms)

    def times(self, factor: Size) -> Linear:
        return Linear().plus(self, factor) if factor != 0 else Linear()

    def node(self) -> Node:
        """The canonical tree of this form."""
        parts: list[Node] = []
        for atom, c in sorted(self.terms.items(), key=lambda t: (-abs(typical(t[1])), show(t[0]))):
            parts.append(atom if c == 1 else Apply("mul", (atom, Const(c, I64)), I64))
        if self.const != 0 or not parts:
            parts.append(Const(self.const, I64))
        total = parts[0]
        for part in parts[1:]:
            total = Apply("add", (total, part), I64)
        return total


def dtype_range(dtype: DType) -> Interval:
    """Lowest and highest value of a dtype; everything for floats."""
    return (-INF, INF) if dtype.is_float else dtype.limits


def constant_divisor(quotient: Apply) -> Size:
    """The constant that a `floordiv` or `mod` of index arithmetic divides by."""
    by = quotient.args[1]
    assert isinstance(by, Const)
    return whole(by.value)


def whole(value: Any) -> Size:
    """A constant of index arithmetic as a number."""
    """A constant of index arithmetic as a number."""
    return value if isinstance(value, Dim) else int(value)


def exact_quotient(k: Size, c: Size) -> Size | None:
    """The quotient of a coefficient by a constant, None where it is not known to be whole."""
    if isinstance(k, Dim):
        return k.over(c)
    if isinstance(c, Dim):
        return None if k else 0
    return None if k % c else k // c


def _cancelled(form: Linear, c: Dim) -> Linear | None:
    """The form over the rest of `c` beside its divisor, where that is a factor of it: ``(2·i·n + n) / (4·n)`` is
    ``(2·i + 1) / 4``. None where it is none."""
    by = c.over(c.divisor)
    terms = {atom: exact_quotient(k, by) for atom, k in form.terms.items()}
    const = exact_quotient(form.const, by)
    return None if const is None or None in terms.values() else Linear(const, terms)


def _quotient_within(low: Any, high: Any, c: Size) -> int | None:
    """The floor of what lies in ``low..high`` over `c`, where it is one number (never where an end is infinite)."""
    if isinstance(low, Dim) or isinstance(high, Dim) or isinstance(c, Dim):
        return 0 if least(low) >= 0 and greatest(high - c) < 0 else None
    return int(low // c) if low // c == high // c else None


def _lower(a: Any, b: Any) -> Any:
    """The lower of two ends of ranges, which may be infinite."""
    if -INF in (a, b):
        return -INF
    return b if a == INF else a if b == INF else dim_min(a, b)


def _upper(a: Any, b: Any) -> Any:
    """The upper of two ends of ranges, which may be infinite."""
    if INF in (a, b):
        return INF
    return b if a == -INF else a if b == -INF else dim_max(a, b)


class IndexSpace:
    """The ranges of the indices of one statement, and what holds where a guard has been passed."""

    def __init__(self, loops: Iterable[Loop]):
        # A loop that a call may leave out says nothing of its index in that call: what holds in the others is enough.
        self.ranges: dict[str, Interval] = {
            name: (0, n - 1 if isinstance(n, Dim) else max(n - 1, 0)) for name, n in loops
        }
        self.facts: tuple[Linear, ...] = ()
        self._forms: dict[Node, Linear] = {}

    def knowing(self, facts: Iterable[Linear]) -> IndexSpace:
        """This space where further linear forms are known to be at least 0."""
        space = IndexSpace(())
        space.ranges, space.facts = self.ranges, (*self.facts, *facts)
        return space

    def linear(self, node: Node) -> Linear:
        """The linear form of an i64 expression."""
        form = self._forms.get(node)
        if form is None:
            form = self._forms[node] = self._linear(node)
        return form

    def _linear(self, node: Node) -> Linear:
        match node:
            case Const(value=value):
                return Linear(whole(value))
            case Idx(name=name):
                low, high = self.ranges.get(name, (0, INF))
                return Linear(0) if low == high == 0 else Linear(0, {node: 1})
            case Apply(fn="add", args=(a, b), dtype=dtype) if dtype is I64:
                return self._recombine(self.linear(a).plus(self.linear(b)))
            case Apply(fn="sub", args=(a, b), dtype=dtype) if dtype is I64:
                return self._recombine(self.linear(a).plus(self.linear(b), -1))
            case Apply(fn="neg", args=(a,), dtype=dtype) if dtype is I64:
                return self.linear(a).times(-1)
            case Apply(fn="mul", args=(a, b), dtype=dtype) if dtype is I64:
                left, right = self.linear(a), self.linear(b)
                if not left.terms:
                    return right.times(left.const)
                if not right.terms:
                    return left.times(right.const)
            case Apply(fn="floordiv", args=(a, Const(value=c))):
                return self._floordiv(self.linear(a), whole(c))
            case Apply(fn="mod", args=(a, Const(value=c))):
                return self._mod(self.linear(a), whole(c))
            case Apply(fn="min" | "max", args=(a, b), dtype=dtype) if dtype is I64:
                sign = 1 if node.fn == "max" else -1
                low, high = self.bounds(self.linear(a).plus(self.linear(b), -1))
                low, high = (low, high) if sign > 0 else (-high, -low)
                if least(low) >= 0:
                    return self.linear(a)
                if greatest(high) <= 0:
                    return self.linear(b)
        return Linear(0, {rebuild(node, self.simplify): 1})

    def _split(self, form: Linear, c: Size) -> tuple[Linear, Linear]:
        """Quotient and rest: ``form = c·quotient + rest``, the rest's constant in ``0..c-1`` where both are numbers."""
        if isinstance(form.const, Dim) or isinstance(c, Dim):
            whole = exact_quotient(form.const, c)
            quotient, rest = (Linear(), Linear(form.const)) if whole is None else (Linear(whole), Linear())
        else:
            quotient, rest = Linear(form.const // c), Linear(form.const % c)
        for atom, k in form.terms.items():
            whole = exact_quotient(k, c)
            part = rest if whole is None else quotient
            part.terms[atom] = k if whole is None else whole
        return quotient, rest

    def _floordiv(self, form: Linear, c: Size) -> Linear:
        quotient, rest = self._split(form, c)
        if (known := _quotient_within(*self.bounds(rest), c)) is not None:
            return quotient.plus(Linear(known))
        if isinstance(c, Dim) and (common := _cancelled(rest, c)) is not None:
            return quotient.plus(self._floordiv(common, c.divisor))
        if not is_known((c, rest.const, *rest.terms.values())):
            return quotient.plus(Linear(0, {Apply("floordiv", (rest.node(), Const(c, I64)), I64): 1}))
        g = math.gcd(c, *rest.terms.values())
        inner = Linear(rest.const // g, {a: k // g for a, k in rest.terms.items()})
        if not inner.const and len(inner.terms) == 1:
            ((atom, k),) = inner.terms.items()
            if k == 1 and isinstance(atom, Apply) and atom.fn == "floordiv":  # (x / a) / b = x / (a·b)
                outer = Apply("floordiv", (atom.args[0], Const(constant_divisor(atom) * (c // g), I64)), I64)
                return quotient.plus(Linear(0, {outer: 1}))
        return quotient.plus(Linear(0, {Apply("floordiv", (inner.node(), Const(c // g, I64)), I64): 1}))

    def _mod(self, form: Linear, c: Size) -> Linear:
        _, rest = self._split(form, c)
        if (known := _quotient_within(*self.bounds(rest), c)) is not None:
            return rest.plus(Linear(-c * known))
        if not is_known((c, rest.const, *rest.terms.values())):
            return Linear(0, {Apply("mod", (rest.node(), Const(c, I64)), I64): 1})
        g = math.gcd(c, *rest.terms.values())  # (g·x + r) mod (g·c) = g·((x + r / g) mod c) + r mod g
        if g > 1:
            inner = Linear(rest.const // g, {a: k // g for a, k in rest.terms.items()})
            return self._mod(inner, c // g).times(g).plus(Linear(rest.const % g))
        return Linear(0, {Apply("mod", (rest.node(), Const(c, I64)), I64): 1})

    def _recombine(self, form: Linear) -> Linear:
        """``k·c·(x / c) + k·(x mod c) = k·x``."""
        for atom, k in list(form.terms.items()):
            if isinstance(atom, Apply) and atom.fn == "mod":
                c = constant_divisor(atom)
                for other in list(form.terms):
                    if not (isinstance(other, Apply) and other.fn == "floordiv" and form.terms[other] == k * c):
                        continue
                    if other.args == atom.args:
                        rest = Linear(form.const, {a: f for a, f in form.terms.items() if a not in (atom, other)})
                        return self._recombine(rest.plus(self.linear(atom.args[0]), k))
        return form

    def written(self, sub: Node) -> tuple[int, str | None]:
        """The constant and the index (if any) of a subscript on the left: an index plus a constant, or a constant."""
        form = self.linear(sub)
        return form.const, next((a.name for a in form.terms if isinstance(a, Idx)), None)

    def bounds(self, form: Linear) -> Interval:
        """Lowest and highest value of a linear form."""
        low: Any = form.const
        high: Any = form.const
        for atom, k in form.terms.items():
            a, b = self.interval(atom)
            if isinstance(k, Dim) and k.low < 0 < k.high:
                return -INF, INF
            low += k * a if least(k) >= 0 else k * b
            high += k * b if least(k) >= 0 else k * a
        return low, high

    def interval(self, node: Node) -> Interval:
        """Lowest and highest value of an integer expression."""
        match node:
            case Const(value=value):
                return value, value
            case Idx(name=name):
                return self.ranges.get(name, (0, INF))
            case Read():
                return dtype_range(node.dtype)
            case Apply(fn="add" | "sub" | "mul" | "neg") if node.dtype is I64:
                form = self.linear(node)
                return (-INF, INF) if node in form.terms else self.bounds(form)
            case Apply(fn="floordiv", args=(a, Const(value=c))):
                low, high = self.interval(a)
                if isinstance(c, Dim):
                    return (0 if least(low) >= 0 else -INF), (high if least(low) >= 0 else INF)
                return (low // c if low > -INF else low), (high // c if high < INF else high)
            case Apply(fn="mod", args=(_, Const(value=c))):
                return 0, c - 1
            case Apply(fn="min" | "max" as fn, args=(a, b)):
                extreme = _lower if fn == "min" else _upper
                (p, q), (r, s) = self.interval(a), self.interval(b)
                return extreme(p, r), extreme(q, s)
            case Apply(fn="select", args=(_, a, b)):
                (p, q), (r, s) = self.interval(a), self.interval(b)
                return _lower(p, r), _upper(q, s)
            case Apply(fn="table", args=(_, *values)):
                found = [v.value for v in values if isinstance(v, Const)]
                return min(found), max(found)
            case Apply(fn="cast", args=(a,)) if node.dtype is I64 and not a.dtype.is_float:
                return self.interval(a)
        return dtype_range(node.dtype)

    def at_least_zero(self, form: Linear) -> bool:
        """Return whether `form` >= 0 everywhere, by ranges or with the help of one fact."""
        return least(self.bounds(form)[0]) >= 0 or any(
            least(self.bounds(form.plus(fact, -1))[0]) >= 0 for fact in self.facts
        )

    def inside(self, sub: Node, extent: Size) -> bool:
        """Return whether ``0 <= sub < extent`` is proven."""
        form = self.linear(sub)
        return self.at_least_zero(form) and self.at_least_zero(Linear(extent - 1).plus(form, -1))

    def outside(self, sub: Node, extent: Size) -> bool:
        """Return whether `sub` never falls into ``0..extent-1``."""
        form = self.linear(sub)
        return self.at_least_zero(form.plus(Linear(-extent))) or self.at_least_zero(Linear(-1).plus(form, -1))

    def consequences(self, cond: Node, holds: bool) -> list[Linear]:
        """Linear forms that are at least 0 where the condition is `holds`."""
        match cond:
            case Apply(fn="not", args=(a,)):
                return self.consequences(a, not holds)
            case Apply(fn="and" | "or", args=(a, b)) if (cond.fn == "and") == holds:
                return self.consequences(a, holds) + self.consequences(b, holds)
            case Apply(fn="lt" | "le", args=(a, b)) if a.dtype is I64:
                margin = self.linear(b).plus(self.linear(a), -1)  # b - a
                strict = cond.fn == "lt"
                if holds:
                    return [margin.plus(Linear(-int(strict)))]
                return [Linear(0 if strict else -1).plus(margin, -1)]
            case Apply(fn="eq" | "ne", args=(a, b)) if a.dtype is I64:
                margin = self.linear(b).plus(self.linear(a), -1)
                if (cond.fn == "eq") == holds:
                    return [margin, margin.times(-1)]
                low, high = self.bounds(margin)
                if least(low) >= 0:  # not zero, so at least 1
                    return [margin.plus(Linear(-1))]
                return [margin.times(-1).plus(Linear(-1))] if greatest(high) <= 0 else []
        return []

    def decide(self, cond: Node) -> Known:
        """Return whether a condition on indices is known to hold or to fail."""
        match cond:
            case Const(value=value):
                return bool(value)
            case Apply(fn="not", args=(a,)):
                known = self.decide(a)
                return None if known is None else not known
            case Apply(fn="and" | "or", args=(a, b)):
                left, right, stop = self.decide(a), self.decide(b), cond.fn == "or"
                if stop in (left, right):
                    return stop
                return (not stop) if left is right is (not stop) else None
            case Apply(fn="lt" | "le" | "eq" | "ne", args=(a, b)) if a.dtype is I64:
                facts, against = self.consequences(cond, True), self.consequences(cond, False)
                if cond.fn in ("lt", "le"):
                    if self.at_least_zero(facts[0]):
                        return True
                    return False if self.at_least_zero(against[0]) else None
                margin = self.linear(b).plus(self.linear(a), -1)
                if not margin.terms and margin.const == 0:
                    return cond.fn == "eq"
                away = self.at_least_zero(margin.plus(Linear(-1))) or self.at_least_zero(Linear(-1).plus(margin, -1))
                return cond.fn == "ne" if away else None
        return None

    def simplify(self, node: Node) -> Node:
        """The expression with canonical subscripts and index arithmetic, decided guards and needless fillers removed.

        Bounds are not checked here: a read without a filler stays one.
        """
        match node:
            case Const():
                return node
            case Idx():
                return self.linear(node).node()
            case Apply(fn="select", args=(cond, then, other)):
                cond = self.simplify(cond)
                known = self.decide(cond)
                if known is not None:
                    return self.simplify(then if known else other)
                a = self.knowing(self.consequences(cond, True)).simplify(then)
                b = self.knowing(self.consequences(cond, False)).simplify(other)
                return a if a == b else Apply("select", (cond, a, b), node.dtype)
            case Apply(
                fn="eq" | "ne", args=(Apply(fn="rem", args=(a, Const(value=c) as n)), Const(value=0) as zero)
            ) if a.dtype is I64 and least(c) > 0:  # remainders of / that truncates and of / that floors are 0 together
                return self.simplify(Apply(node.fn, (Apply("mod", (a, n), I64), zero), BOOL))
            case Apply(fn="div" | "rem", args=(a, Const(value=c) as n), dtype=dtype) if dtype is I64 and least(c) > 0:
                a = self.simplify(a)
                if least(self.interval(a)[0]) >= 0:
                    return self.linear(Apply("floordiv" if node.fn == "div" else "mod", (a, n), I64)).node()
                return Apply(node.fn, (a, n), I64)
            case Apply(dtype=dtype) if dtype is BOOL and (known := self.decide(node)) is not None:
                return Const(known, BOOL)
            case Apply(fn="and" | "or", args=(a, b)):
                x, y = self.simplify(a), self.simplify(b)
                for flag, rest in ((x, y), (y, x)):
                    if isinstance(flag, Const):
                        return rest if bool(flag.value) == (node.fn == "and") else flag
                return Apply(node.fn, (x, y), BOOL)
            case Apply(dtype=dtype) if dtype is I64 and node.fn not in ("select", "table", "cast", "div", "rem"):
                form = self.linear(node)
                return form.node()
        return rebuild(node, self.simplify)
