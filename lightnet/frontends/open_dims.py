"""The dims of a model's inputs that calls decide: their symbols, and what reading the model teaches of these.

A model names open dims, or leaves them without a name; the caller gives ranges (``length=1..512:8``). An op that takes
two dims for one, or needs a least length, holds for the calls for which these *facts* hold: one symbol is replaced by
an expression of others, or its range shrinks, and the model is read again. Imports `ir` alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from math import lcm
from typing import Any, TypeVar

from lightnet.diagnostics import LightNetError
from lightnet.ir.constraints import check_op
from lightnet.ir.instances import changed_value
from lightnet.ir.op import LnOp
from lightnet.ir.params import ParamValue
from lightnet.ir.types import TensorSpec
from lightnet.runtime.dim_text import parse_size
from lightnet.runtime.dims import Dim, Extreme, Quotient, Size, Symbol, Undecided, greatest, least, symbol, with_sizes

#: The range of a dim of which nothing is said: 1..1024. Squares of it times another one (what attention, or a batch of
#: images, makes of it) are tensors that a type may be of (`MAX_TENSOR_BYTES`).
DEFAULT_HIGH = 1024
#: Facts that may be learnt of one model, and of one op.
MAX_FACTS, MAX_FACTS_OF_OP = 256, 3

_RANGE = re.compile(r"(\d{1,12})(?:\.\.(\d{1,12})(?::(\d{1,12}))?)?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")

T = TypeVar("T")
#: The symbols that a fact replaces, by name.
Facts = Mapping[str, Size]


class LearntError(Exception):
    """The model can be read if `facts` hold, because of `why`."""

    def __init__(self, facts: Facts, why: str):
        self.facts, self.why = facts, why
        super().__init__(why)


def ranged(name: str, given: Any) -> Size:
    """The dim `name` with the range that a caller gives: ``"1..512:8"`` (or ``"128"``), ``(1, 512)``, ``(1, 512, 8)``
    or a number. Raises `LightNetError`."""
    if isinstance(given, str) and (found := _RANGE.fullmatch(given)):
        given = [int(g) for g in found.groups() if g is not None]
    numbers = [given] if isinstance(given, int) else list(given) if isinstance(given, Sequence) else []
    if not 1 <= len(numbers) <= 3 or not all(isinstance(n, int) for n in numbers):
        raise LightNetError(f"the range of the dim '{name}' should be as 1..512 or 32..1024:32, but is {given!r:.60}")
    try:
        return symbol(name, numbers[0], *numbers[1:]) if len(numbers) > 1 else symbol(name, numbers[0], numbers[0])
    except ValueError as e:
        raise LightNetError(f"the range of a dim: {e}") from None


class DimTable:
    """The symbols of one model by name, with all that is known of them; `ranges` are what the caller said."""

    def __init__(self, ranges: Mapping[str, Any]):
        self.table: dict[str, Size] = {name: ranged(name, given) for name, given in ranges.items()}
        self.used: set[str] = set()
        self.remarks: list[str] = []

    def named(self, name: str) -> Size:
        """The dim that is called so in the model; it has the default range where nobody gave one."""
        self.used.add(name)
        return self.table.setdefault(name, symbol(name, 1, DEFAULT_HIGH))

    def size(self, text: str) -> Size:
        """The dim that a model spells so: a name, or an expression of names (``past + 1``)."""
        if text in self.table or _NAME.fullmatch(text):
            return self.named(text)
        try:
            return parse_size(text, {name: self.named(name) for name in _NAME.findall(text)})
        except LightNetError:
            return self.named(text.replace("'", ""))

    def dims(self, name: str, dims: Sequence[int | str | None], given: Sequence[Any] | None = None) -> tuple[Size, ...]:
        """The dims of the input `name`, where the model has `dims` and the caller gives others (numbers or texts)."""
        found = dims if given is None else given
        return tuple(
            self.named(f"{name}.{axis}") if d is None else self.size(d) if isinstance(d, str) else d
            for axis, d in enumerate(found)
        )

    def taught(self, read: Callable[[], T]) -> T:
        """The result of `read`, which is called again with each fact that the model teaches. Raises what it does."""
        while True:
            self.used.clear()
            try:
                return read()
            except LearntError as e:
                self.learn(e)

    def learn(self, error: LearntError) -> None:
        """Keep a fact. Raises `LightNetError` for too many of them."""
        if len(self.remarks) >= MAX_FACTS:
            raise LightNetError(f"more than {MAX_FACTS} facts on open dims: give the shapes of inputs")
        for name, size in self.table.items():
            self.table[name] = with_sizes(size, error.facts)
        said = ", ".join(f"{name} is {size!s}" for name, size in error.facts.items())
        self.remarks.append(f"{said}: {error.why}")


# -- what has to hold ------------------------------------------------------------------------------------------------


def equal(difference: Size) -> Facts | None:
    """The facts by which a dim is 0, None where no such are found: a symbol is what the others say, or an extreme the
    one of its two that it is compared with."""
    if not isinstance(difference, Dim):
        return {} if difference == 0 else None
    for atom, c, rest in _linear(difference):
        value = _over(-rest * (atom.multiple if isinstance(atom, Symbol) else 1), c)
        if value is None:
            continue
        if isinstance(atom, Symbol):
            found = _replaced(atom, value)
        elif isinstance(atom, Extreme) and value in atom.args:
            a, b = atom.args if value == atom.args[0] else reversed(atom.args)
            found = facts_of_least(b - a if atom.fn == "min" else a - b)
        else:
            continue
        if found is not None:
            return found
    return None


def facts_of_least(size: Size) -> Facts | None:
    """The facts by which a dim is not negative, None where no such are found: the range of its one symbol shrinks."""
    if least(size) >= 0:
        return {}
    if not isinstance(size, Dim) or greatest(size) < 0:
        return None
    for atom, c, rest in _linear(size):
        if isinstance(rest, Dim):
            continue
        if isinstance(atom, Quotient):  # floor(e / d) >= n is e >= n * d, and floor(e / d) <= n is e <= n * d + d - 1
            d, n = atom.divisor, -(rest // c) if c > 0 else rest // -c
            return facts_of_least(atom.dividend - n * d if c > 0 else n * d + d - 1 - atom.dividend)
        if isinstance(atom, Symbol):
            low, high = atom.range
            low, high = (max(low, -(rest // c)), high) if c > 0 else (low, min(high, rest // -c))
            return _within(atom, low * atom.multiple, high * atom.multiple)
    return None


def _linear(dim: Dim) -> Iterator[tuple[Any, int, Size]]:
    """The atoms that stand alone in one term of a dim and nowhere else, their coefficients, and the rest."""
    atoms = sorted(dim.atoms, key=lambda a: (isinstance(a, Symbol), a.key), reverse=True)
    for atom in atoms:
        alone = Dim({(atom,): 1})
        c = dim.terms.get((atom,), 0)
        rest = dim - alone * c
        inside = {s.name for s in alone.symbols}
        if c and not (isinstance(rest, Dim) and inside & {s.name for s in rest.symbols} and isinstance(atom, Symbol)):
            yield atom, c, rest


def _over(size: Size, by: int) -> Size | None:
    return size.over(by) if isinstance(size, Dim) else None if size % by else size // by


def _replaced(s: Symbol, value: Size) -> Facts | None:
    """The facts by which a symbol is `value`, within its range."""
    if not isinstance(value, Dim):
        return {s.name: value} if s.low <= value <= s.high and value % s.multiple == 0 else None
    facts: dict[str, Size] = {}
    if value.over(s.multiple) is None:
        other = next(value.atoms)
        if not isinstance(other, Symbol) or value.terms != {(other,): other.multiple}:
            return None
        facts = dict(_within(other, other.low, other.high, lcm(other.multiple, s.multiple)) or {})
        if not facts:
            return None
    for bound in (lambda v: v - s.low, lambda v: s.high - v):
        more = facts_of_least(bound(with_sizes(value, facts)))
        if more is None:
            return None
        facts = {**{k: with_sizes(v, more) for k, v in facts.items()}, **more}
    return {**facts, s.name: with_sizes(value, facts)}


def _within(s: Symbol, low: int, high: int, multiple: int = 1) -> Facts | None:
    try:
        return {s.name: symbol(s.name, max(low, s.low), min(high, s.high), lcm(multiple, s.multiple))}
    except ValueError:
        return None


# -- what an op teaches ----------------------------------------------------------------------------------------------


def learnt(cls: type[LnOp], specs: Sequence[TensorSpec], params: Mapping[str, ParamValue], error: Exception,
           depth: int = 0) -> Facts | None:  # fmt: skip
    """The facts by which an op takes these operands and parameters, which are found by trying: what it raised without
    them, `error`, names two dims or a bound."""
    if not any(isinstance(d, Dim) for s in specs for d in s.dims) or depth >= MAX_FACTS_OF_OP:
        return None
    tried = (_tried(cls, specs, params, candidate, depth) for candidate in _candidates(specs, error))
    found = [facts for facts in tried if facts is not None]
    return found[0] if found and (not isinstance(error, Undecided) or error.is_same or len(found) == 1) else None


def _candidates(specs: Sequence[TensorSpec], error: Exception) -> Iterator[Facts]:
    """Facts that may have to hold: of a comparison one of its two outcomes, else that dims in one place are one."""
    if isinstance(error, Undecided):
        ways = (equal(error.dim),) if error.is_same else (facts_of_least(error.dim), facts_of_least(-1 - error.dim))
        yield from (way for way in ways if way)
        return
    for k, a in enumerate(specs):
        for b in specs[:k]:
            aligned = [*zip(reversed(a.dims), reversed(b.dims)), *zip(a.dims, b.dims)]
            for m, n in dict.fromkeys((*aligned, *product(a.dims, b.dims))):
                if m != n and 1 not in (m, n) and (facts := equal(m - n)):
                    yield facts


def _tried(cls: type[LnOp], specs: Sequence[TensorSpec], params: Mapping[str, ParamValue], facts: Facts,
           depth: int) -> Facts | None:  # fmt: skip
    """The facts, with those that the op asks for beyond them; None where it does not take its operands."""
    specs = [s._replace(dims=tuple(with_sizes(d, facts) for d in s.dims)) for s in specs]
    params = {k: changed_value(v, partial(with_sizes, by=facts)) for k, v in params.items()}
    try:
        check_op(cls, specs, dict(params))
    except (Undecided, LightNetError) as e:
        more = learnt(cls, specs, params, e, depth + 1)
        return None if more is None else {**{k: with_sizes(v, more) for k, v in facts.items()}, **more}
    return facts
