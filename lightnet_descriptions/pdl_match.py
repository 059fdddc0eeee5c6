"""Patterns in PDL at work: matching a graph of `ln` ops, and putting another one in its place.

A `PdlMatcher` is made of a `pdl.pattern` that `pdl_check.py` has checked. xDSL's own interpreter of PDL creates ops
without checking them, knows no ranges and no pattern whose root does not reach all of it, and raises what no user
should see.
Imports xDSL's dialect, the op base, `rules` and the rules of replacing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from xdsl.dialects import pdl
from xdsl.ir import Operation, OpResult, SSAValue
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.rules import replace_by_values
from lightnet.dialects.ln.source import ParamOp
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir.locations import loc_of
from lightnet.ir.op import LnOp
from lightnet.ir.params import ParamScalar, ParamValue
from lightnet.ir.refusal import Refusal, refusal_reason
from lightnet.ir.schema import Param
from lightnet.ir.types import spec_of
from lightnet_descriptions.rewriting import span_of
from lightnet_descriptions.rules import Bindings, Matcher, MatchStep, furthest, solutions

#: Matching from one op tries at most so many users of values.
MAX_TRIES = 1 << 16


# -- native constraints and rewrites ---------------------------------------------------------------------------------


def _one_use(value: SSAValue | LnOp) -> bool:
    results = value.results if isinstance(value, Operation) else [value]
    return all(r.has_one_use() for r in results)


def _static(value: SSAValue) -> bool:
    return isinstance(value.owner, ParamOp | OnceOp)


def _numbers(function: Callable[[Any, Any], Any]) -> Callable[[ParamValue, ParamValue], ParamValue]:
    """A function of two numbers, for numbers and element by element for arrays of one length."""

    def apply(a: ParamValue, b: ParamValue) -> ParamValue:
        if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
            return tuple(map(scalar, a, b))
        return scalar(a, b)

    def scalar(a: ParamValue, b: ParamValue) -> ParamScalar:
        if any(isinstance(v, bool) or not isinstance(v, int | float) for v in (a, b)):
            raise LightNetError(f"takes two numbers, or two arrays of one length, and gets {a!r} and {b!r}")
        return function(a, b)

    return apply


def _compose(first: ParamValue, second: ParamValue) -> ParamValue:
    """The permutation that transposing by `first`, then by `second` amounts to: d2[i] = d1[second[i]] =
    d0[first[second[i]]]."""
    one, other = _permutation(first), _permutation(second)
    if one is None or other is None or len(one) != len(other):
        raise LightNetError(f"takes two permutations of one length, and gets {first!r} and {second!r}")
    return tuple(one[i] for i in other)


def _permutation(value: ParamValue) -> list[int] | None:
    """The permutation of 0, 1, … that an array is; None for any other value."""
    numbers = [int(v) for v in value if isinstance(v, int | float) and v == v // 1] if isinstance(value, tuple) else []
    return numbers if isinstance(value, tuple) and sorted(numbers) == list(range(len(value))) else None


#: Name -> (kinds of arguments, what holds). Kinds: a = attribute, v = value, o = operation.
CONSTRAINTS: dict[str, tuple[tuple[str, ...], Callable[..., bool]]] = {
    "one_use": (("v", "o"), _one_use),
    "static": (("v",), _static),
    "same_shape": (("vv",), lambda a, b: spec_of(a.type).dims == spec_of(b.type).dims),
    "same_type": (("vv",), lambda a, b: a.type == b.type),
    "equal": (("aa",), lambda a, b: a == b),
}
#: Name -> (kinds of arguments, the attribute).
REWRITES: dict[str, tuple[tuple[str, ...], Callable[..., ParamValue]]] = {
    "compose": (("aa",), _compose),
    "add": (("aa",), _numbers(lambda a, b: a + b)),
    "mul": (("aa",), _numbers(lambda a, b: a * b)),
    "min": (("aa",), _numbers(min)),
    "max": (("aa",), _numbers(max)),
}


# -- matching --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Climb:
    """An op of a pattern that no operand leads to: one of the users of `value`, as its operand number `index`."""

    op: pdl.OperationOp
    value: SSAValue
    index: int


@dataclass(frozen=True)
class PdlMatcher(Matcher):
    """A pattern: its root, what is reached from there by climbing, and its native constraints. `constants` are the
    values of the pattern that are fixed, `classes` the op classes that the rewrite makes, by name."""

    name: str
    root: pdl.OperationOp
    climbs: tuple[Climb, ...]
    constraints: tuple[pdl.ApplyNativeConstraintOp, ...]
    rewrite: pdl.RewriteOp
    constants: Bindings
    classes: dict[str, type[LnOp]]

    @property
    def roots(self) -> tuple[str, ...]:
        return (name_of_pattern(self.root),)

    def anchors(self, op: Operation) -> Sequence[LnOp]:
        return (op,) if isinstance(op, LnOp) else ()

    def matches(self, anchor: LnOp) -> Iterator[Bindings]:
        """The meanings of the pattern's values where `anchor` is its root."""
        bound = dict(self.constants)
        if not self._op(self.root, anchor, bound):
            return
        steps = [MatchStep(partial(self._users, c), partial(self._op, c.op)) for c in self.climbs]
        too_many = partial(LightNetError, "the pattern leaves too many ways to match", loc_of(self.root))
        for found in solutions(steps, bound, MAX_TRIES, too_many):
            if all(self._holds(c, found) for c in self.constraints):
                yield found

    def why_not(self, anchor: LnOp) -> str:
        bound = dict(self.constants)
        if not (root := self._op(self.root, anchor, bound)):
            return refusal_reason(root)
        steps = [MatchStep(partial(self._users, c), partial(self._op, c.op)) for c in self.climbs]
        nothing = "no further op reads what {} makes".format
        text = furthest(steps, bound, MAX_TRIES, lambda k: nothing(anchor.optype))
        if text is not None:
            return text
        for found in solutions(steps, bound, MAX_TRIES, RuntimeError):
            if (failed := next((c for c in self.constraints if not self._holds(c, found)), None)) is not None:
                return f"constraint '{'not ' * bool(failed.is_negated)}{failed.constraint_name.data}' fails"
        return "nothing matches"

    def _users(self, climb: Climb, bound: Bindings) -> Iterator[Operation]:
        value = self.value(climb.value, bound)
        for use in sorted(value.uses, key=lambda use: use.index):
            if use.index == climb.index and use.operation not in bound.values():
                yield use.operation

    def _op(self, pattern: pdl.OperationOp, op: Operation, bound: Bindings) -> bool | Refusal:
        if pattern.op in bound:
            return bound[pattern.op] is op or Refusal("{} would be two ops at once", name_of_pattern(pattern))
        if not isinstance(op, LnOp) or op.name != name_of_pattern(pattern):
            return Refusal("{} is there in the place of {}", op.name, name_of_pattern(pattern))
        bound[pattern.op] = op
        if not (params := self._params(pattern, op, bound)):
            return params
        types = list(pattern.type_values)
        same = not types or len(types) == len(op.results)
        if not same or not all(_bind(t, r.type, bound) for t, r in zip(types, op.results)):
            return Refusal("{} gives {}, not the types of the pattern", op.name, ", ".join(map(str, op.result_specs)))
        return self._operands(pattern, op, bound)

    @staticmethod
    def _params(pattern: pdl.OperationOp, op: LnOp, bound: Bindings) -> bool | Refusal:
        if not pattern.attribute_values:
            return True
        values, fields = op.param_values(), op.schema.by_name
        pairs = zip((a.data for a in pattern.attributeValueNames), pattern.attribute_values)
        odd = next(((k, a) for k, a in pairs if not _bind(a, values[k], bound, fields[k])), None)
        if odd is None:
            return True
        return Refusal("{} of {} is {}, not {}", odd[0], op.name, values[odd[0]], bound[odd[1]])

    def _operands(self, pattern: pdl.OperationOp, op: LnOp, bound: Bindings) -> bool | Refusal:
        wanted, given = list(pattern.operand_values), list(op.operands)
        ranges = [i for i, v in enumerate(wanted) if isinstance(v.type, pdl.RangeType)]
        if ranges:  # at most one, which takes what the others leave
            at, rest = ranges[0], len(given) - len(wanted) + 1
            if rest < 0:
                return Refusal("{} has {} operands", op.name, len(given))
            parts: list[SSAValue | tuple[SSAValue, ...]] = [*given[:at], tuple(given[at : at + rest])]
            parts += given[at + rest :]
        else:
            parts = [*given]
        if len(wanted) != len(parts):
            return Refusal("{} has {} operands, not {}", op.name, len(parts), len(wanted))
        found = (self._value(w, g, bound) for w, g in zip(wanted, parts))
        why = next((taken for taken in found if not taken), None)
        return why is None or Refusal("an operand of {} does not match: {}", op.name, refusal_reason(why))

    def _value(self, wanted: SSAValue, given: SSAValue | tuple[SSAValue, ...], bound: Bindings) -> bool | Refusal:
        """Match an operand: a value that anything may make, or a result of another op of the pattern."""
        owner = wanted.owner
        if wanted in bound:
            return bound[wanted] == given or Refusal("it is another value than the pattern's")
        if isinstance(owner, pdl.ResultOp | pdl.ResultsOp):
            maker = _maker(given, owner)
            wanted_op = parent_of(owner)
            if maker is None:
                return Refusal("no {} makes it as the pattern says", name_of_pattern(wanted_op))
            if not (made := self._op(wanted_op, maker, bound)):
                return made
        elif isinstance(owner, pdl.OperandOp | pdl.OperandsOp) and owner.value_type is not None:
            types = tuple(v.type for v in given) if isinstance(given, tuple) else given.type
            if not _bind(owner.value_type, types, bound):
                return Refusal("its type is {}", types)
        bound[wanted] = given
        return True

    def _holds(self, op: pdl.ApplyNativeConstraintOp, bound: Bindings) -> bool:
        _, function = CONSTRAINTS[op.constraint_name.data]
        return function(*(self.value(v, bound) for v in op.args)) != bool(op.is_negated)

    def value(self, value: SSAValue, bound: Bindings) -> Any:
        """The meaning of a value of the pattern; results of ops that are matched, or made, follow from these."""
        if value not in bound:
            owner = value.owner
            assert isinstance(owner, pdl.ResultOp | pdl.ResultsOp)
            results = bound[owner.parent_].results
            bound[value] = results[owner.index.value.data] if isinstance(owner, pdl.ResultOp) else tuple(results)
        return bound[value]


def _maker(given: SSAValue | tuple[SSAValue, ...], owner: pdl.ResultOp | pdl.ResultsOp) -> Operation | None:
    """The op whose result of that number a value is, or whose results several are; None where there is none."""
    if isinstance(given, tuple):
        maker = given[0].owner if given else None
        return maker if isinstance(maker, Operation) and tuple(maker.results) == given else None
    wanted = owner.index.value.data if owner.index is not None else None
    return given.op if isinstance(given, OpResult) and given.index == wanted else None


def parent_of(op: pdl.ResultOp | pdl.ResultsOp) -> pdl.OperationOp:
    """The op of the pattern whose result it is."""
    parent = op.parent_.owner
    assert isinstance(parent, pdl.OperationOp)
    return parent


def name_of_pattern(op: pdl.OperationOp) -> str:
    """The name of the ops that an op of the pattern stands for; empty for one that has none, which is refused."""
    return op.opName.data if op.opName is not None else ""


def _bind(name: SSAValue, value: Any, bound: Bindings, field: Param | None = None) -> bool:
    """Let `name` stand for `value`, or check that it does; a parameter's value counts as it is read, 1 as 1.0."""
    if name not in bound:
        bound[name] = value
        return True
    known = bound[name]
    if field is None or known is None or value is None or type(known) is str:
        return known == value
    try:
        return field.read(known) == field.read(value)
    except (TypeError, ValueError):  # bound to a value of another type
        return False


# -- rewriting -------------------------------------------------------------------------------------------------------


def rewrite(matcher: PdlMatcher, bound: Bindings, root: LnOp, rewriter: PatternRewriter) -> bool | Refusal:
    """Rewrite what `matcher` found; refused, and nothing done, where an op to erase is in use, or a value is not there
    yet where it is needed."""
    rewriting = _Rewriting(matcher, bound, root)
    try:
        return rewriting.run(rewriter)
    finally:
        for op in reversed([op for op in rewriting.new if op.parent is None]):
            op.erase()


class _Rewriting:
    """One application of a pattern: everything is made and checked first, then put in place."""

    def __init__(self, matcher: PdlMatcher, bound: Bindings, root: Operation):
        self.matcher, self.bound, self.root = matcher, bound, root
        self.new: list[LnOp] = []
        self.replaced: list[tuple[Operation, list[SSAValue]]] = []
        self.erased: list[Operation] = []

    def run(self, rewriter: PatternRewriter) -> bool | Refusal:
        for op in self.matcher.rewrite.body.block.ops:
            try:
                self.step(op)
            except LightNetError as e:
                e.notes.append((loc_of(op), f"in the rewrite of pattern '{self.matcher.name}'"))
                raise e.at(loc_of(self.root)) from None
        removed = [*(op for op, _ in self.replaced), *self.erased]
        block = self.root.parent
        assert block is not None
        if any(op.parent is not block for op in removed) or not self.unused(removed):
            return Refusal("an op to erase is in use")
        matched = {op for op in self.bound.values() if isinstance(op, Operation) and op.parent is block}
        span = span_of(self.root, matched)
        first = next(op for op in span if op in removed)
        if first is not span[-1] and not self.there(span[span.index(first) :]):
            return Refusal("a value is not there yet where it is needed")
        rewriter.insertion_point = InsertPoint.before(first)
        for op in self.new:
            rewriter.insert(op)
        made = {r for op in self.new for r in op.results}
        for op, values in self.replaced:
            if made.issuperset(values):
                rewriter.replace(op, [], values)
                continue
            rewriter.insertion_point = InsertPoint.before(op)
            replace_by_values(op, values, rewriter)
        for op in reversed([op for op in span if op in self.erased]):
            rewriter.erase(op)
        return True

    def step(self, op: Operation) -> None:
        """Carry out one op of the rewrite."""
        if isinstance(op, pdl.OperationOp):
            self.bound[op.op] = self.make(op)
        elif isinstance(op, pdl.ApplyNativeRewriteOp):
            _, function = REWRITES[op.constraint_name.data]
            self.bound[op.res[0]] = function(*(self.value(v) for v in op.args))
        elif isinstance(op, pdl.RangeOp):
            self.bound[op.result] = tuple(self.values(op.arguments))
        elif isinstance(op, pdl.ReplaceOp):
            old = self.bound[op.op_value]
            new = self.bound[op.repl_operation].results if op.repl_operation else self.values(op.repl_values)
            self.check_types(old, list(new))
            self.replaced.append((old, list(new)))
        elif isinstance(op, pdl.EraseOp):
            self.erased.append(self.bound[op.op_value])

    def make(self, op: pdl.OperationOp) -> LnOp:
        params = {k.data: self.value(v) for k, v in zip(op.attributeValueNames, op.attribute_values)}
        made = self.matcher.classes[name_of_pattern(op)].make(self.values(op.operand_values), params)
        for want, result in zip(op.type_values, made.results):
            if self.value(want) != result.type:
                raise LightNetError(f"{made.name} gives a {spec_of(result.type)}, which is not the type of the pattern")
        self.new.append(made)
        return made

    def value(self, value: SSAValue) -> Any:
        return self.matcher.value(value, self.bound)

    def values(self, values: Sequence[SSAValue]) -> list[SSAValue]:
        found: list[SSAValue] = []
        for value in map(self.value, values):
            found += value if isinstance(value, tuple) else [value]
        return found

    @staticmethod
    def check_types(old: Operation, new: list[SSAValue]) -> None:
        before, after = ([str(spec_of(v.type)) for v in values] for values in (old.results, new))
        if before != after:
            raise LightNetError(f"{old.name} has results of type {', '.join(before)}, and they would be replaced by "
                                f"{', '.join(after) or 'nothing'}", label="pdl.types")  # fmt: skip

    def unused(self, removed: list[Operation]) -> bool:
        return all(use.operation in removed for op in self.erased for r in op.results for use in r.uses)

    def there(self, span: Sequence[Operation]) -> bool:
        """Return whether every value from outside that new ops read, or that takes a result's place, is computed before
        `span`, the ops from the first that is removed to the last that is matched: what these read is computed before
        the last of them."""
        made = {r for op in self.new for r in op.results}
        outside = {v for op in self.new for v in op.operands} | {v for _, values in self.replaced for v in values}
        late = set(span)
        return all(v.owner not in late for v in outside - made)
