"""The rules by which an op passes on dims that the data decides, derived from its definition in index notation.

An index that runs over a counted axis of what is read counts the axis of what is written; one that is reduced over
needs elements behind the count that change nothing: a *fill*, a number found by evaluating the definition with it. So
there is no table of ops here. What cannot be derived is a `Refused` that says why. Imports `ir` and the dtypes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from xdsl.ir import Block

from lightnet.dataclasses import dataclass, replace
from lightnet.ir.bound import Apply, BoundDefinition, Const, Idx, Node, Read, Statement, indices, reads, show
from lightnet.ir.constraints import check_op
from lightnet.ir.notation import bind
from lightnet.ir.op import LnOp
from lightnet.ir.types import TensorSpec, tensor_type
from lightnet.runtime.dtypes import DType

#: Which axes of a tensor are counted: axis -> a number that stands for the size.
Axes = Mapping[int, int]


class Refused(Exception):
    """An op does not pass on a counted dim, and why."""


@dataclass(frozen=True)
class Passing:
    """An op's effect on counted operands: of each result the axes that are counted, and the number that elements behind
    the count have to be (None: any will do)."""

    results: tuple[Axes, ...]
    fill: float | int | None


def passing(cls: type[LnOp], specs: Sequence[TensorSpec], params: Mapping[str, Any], counted: Sequence[Axes],
            by_index: bool = False) -> Passing:  # fmt: skip
    """The way that an op passes on the counted axes of its operands. `by_index`: what it takes the length of an axis
    for is to clamp indices.

    Raises `Refused`.
    """
    key = tuple(tuple(sorted(axes.items())) for axes in counted)
    found = _derived(cls, tuple(specs), tuple(sorted((k, _frozen(v)) for k, v in params.items())), key, by_index)
    if isinstance(found, str):
        raise Refused(found)
    return found


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@lru_cache(maxsize=1 << 12)
def _derived(
    cls: type[LnOp], specs: tuple[TensorSpec, ...], params: tuple, counted: tuple, by_index: bool
) -> Passing | str:
    try:
        specs = tuple(
            TensorSpec(tuple(n or 2 for n in s.dims), s.dtype) for s in specs
        )  # what writes nothing says nothing
        definition, names = _bound(cls, specs, dict(params))
        if not by_index:
            _check_lengths(cls, specs, dict(params), counted, definition)
        sizes = {name: dict(axes) for name, axes in zip(names[0], counted) if axes}
        fill = _Analysis(definition, sizes, specs[0].dtype).run()
        return Passing(tuple(sizes.get(name, {}) for name in names[1]), fill)
    except Refused as e:
        return str(e)


def _bound(cls: type[LnOp], specs: Sequence[TensorSpec], params: dict[str, Any]) -> tuple[BoundDefinition, tuple]:
    """The bound definition of an op, and the names of its operands and results."""
    results = check_op(cls, list(specs), params)
    op = cls.build_unchecked(Block(arg_types=[tensor_type(s) for s in specs]).args, params, results)
    if op.definition is None:
        raise Refused(f"{cls.optype} has no definition in index notation to derive it from")
    env, names = op.env(), op.arg_names()
    return bind(op.definition, env.tensors, env.params, names[1]), names


def _check_lengths(
    cls: type[LnOp], specs: Sequence[TensorSpec], params: dict[str, Any], counted: tuple, definition: BoundDefinition
) -> None:
    """Raise `Refused` where the definition takes the length of a counted axis for a number: with another bound it is
    another one."""
    longer = [
        TensorSpec(tuple(n + 1 if k in dict(axes) else n for k, n in enumerate(s.dims)), s.dtype)
        for s, axes in zip(specs, counted)
    ]
    try:
        other, _ = _bound(cls, longer, dict(params))
    except Exception as e:
        raise Refused(f"its parameters hold for one length only ({e})") from None
    if [_without_lengths(s) for s in definition.statements] != [_without_lengths(s) for s in other.statements]:
        raise Refused("what it computes depends on the length itself")


def _without_lengths(s: Statement) -> Statement:
    return replace(s, loops=tuple((n, 0) for n, _ in s.loops), reductions=tuple((n, 0) for n, _ in s.reductions))


class _Analysis:
    """One definition; `sizes` gets the counted axes of locals and results, too."""

    def __init__(self, definition: BoundDefinition, sizes: dict[str, dict[int, int]], dtype: DType):
        self.definition, self.sizes, self.dtype = definition, sizes, dtype
        self.seen: set[tuple[str, int]] = set()

    def run(self) -> float | int | None:
        given = {(name, axis) for name, axes in self.sizes.items() for axis in axes}
        counted = [(s, self.statement(s)) for s in self.definition.statements]
        if given - self.seen:
            raise Refused("it does not go over the dim")
        if not any(names & {n for n, _ in s.reductions} for s, names in counted):
            return None
        operands = [name for name, _ in self.definition.operands if self.sizes.get(name)]
        for fill in _candidates(self.definition.specs[operands[0]].dtype):
            if all(
                self.definition.specs[name].dtype == self.definition.specs[operands[0]].dtype for name in operands
            ) and self.neutral(counted, dict.fromkeys(operands, fill)):
                return fill
        raise Refused("it reduces over the dim, and no number is neutral there")

    def statement(self, s: Statement) -> set[str]:
        """The indices of a statement that run over counted axes; notes the axes of its target."""
        found: dict[str, set[int | None]] = {}
        for read in reads(s.value):
            axes = self.sizes.get(read.tensor, {})
            if read.flat and axes:
                raise Refused("it reads the elements as a row")
            for axis, sub in enumerate(read.subs):
                size = axes.get(axis)
                if isinstance(sub, Idx) or (size is not None and reads(sub)):
                    self.seen.add((read.tensor, axis))
                if isinstance(sub, Idx):
                    found.setdefault(sub.name, set()).add(size)
                elif size is not None and not isinstance(sub, Const) and not reads(sub):
                    raise Refused(f"it reads the dim at {show(sub)}")
        names = {}
        for name, sizes in found.items():
            if sizes == {None}:
                continue
            if len(sizes) > 1:
                raise Refused(
                    "it goes over this dim and over another one at once, and that they are equal cannot be told"
                )
            (names[name],) = sizes
        for axis, sub in enumerate(s.subs):
            over = indices(sub) & names.keys()
            if over and (s.flat or not isinstance(sub, Idx)):
                raise Refused("it writes the dim behind something else")
            for tensor in s.targets if over else ():
                self.sizes.setdefault(tensor, {})[axis] = names[sub.name]
        return set(names)

    def neutral(self, counted: Sequence[tuple[Statement, set[str]]], behind: dict[str, Any]) -> bool:
        """Return whether every reduction over a counted index adds nothing where operands are `behind`."""
        known: dict[str, Any] = dict(behind)
        for s, names in counted:
            if not names:
                continue
            with np.errstate(all="ignore"):
                value = _value(s.value, known, names)
            if names & {n for n, _ in s.reductions}:
                if value is None or not _same(value, _identity(s.op, self.definition.specs[s.tensor].dtype)):
                    return False
                names = names - {n for n, _ in s.reductions}
            if names:
                known[s.tensor] = value if s.op == "=" else None
        return True


def _candidates(dtype: DType) -> list[Any]:
    if dtype.kind == "bool":
        return [0, 1]
    return [0, 1, *((-math.inf, math.inf) if dtype.is_float else _limits(dtype))]


def _limits(dtype: DType) -> tuple[int, int]:
    info = np.iinfo(dtype.np)
    return int(info.min), int(info.max)


def _identity(op: str, dtype: DType) -> Any:
    if op in ("+=", "*="):
        return int(op == "*=")
    low, high = (-math.inf, math.inf) if dtype.is_float else (0, 1) if dtype.kind == "bool" else _limits(dtype)
    return low if "max" in op else high


def _same(a: Any, b: Any) -> bool:
    return float(a) == float(b)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "neg": lambda a: -a, "abs": abs,
    "min": min, "max": max,
    "exp": np.exp, "sqrt": np.sqrt, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "and": lambda a, b: bool(a and b), "or": lambda a, b: bool(a or b), "not": lambda a: not a, "cast": lambda a: a,
}  # fmt: skip


def _value(node: Node, behind: Mapping[str, Any], counted: set[str]) -> Any:
    """The value of an expression behind the count, where reads of counted axes are `behind`; None where it may be any
    (finite) number."""
    match node:
        case Const(value=value):
            return value
        case Read(tensor=tensor, subs=subs):
            is_behind = any(isinstance(s, Idx) and s.name in counted for s in subs)
            return behind.get(tensor) if is_behind else None
        case Apply(fn="select", args=(cond, a, b)):
            where, left, right = (_value(n, behind, counted) for n in (cond, a, b))
            return (
                left if where is not None and where else right if where is not None else left if left == right else None
            )
        case Apply(fn=fn, args=args):
            values = [_value(n, behind, counted) for n in args]
            if None not in values:
                function = _FUNCTIONS.get(fn)
                return None if function is None else function(*values)
            known = [v for v in values if v is not None]
            if fn == "mul" and any(v == 0 for v in known):
                return 0
            if fn in ("add", "sub") and known and math.isinf(known[0]):
                return -known[0] if fn == "sub" and values[0] is None else known[0]
    return None
