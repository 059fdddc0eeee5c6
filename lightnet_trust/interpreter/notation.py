"""Evaluates bound definitions on NumPy arrays: the meaning of index notation, for tests and for the interpreter.

Whole statements are evaluated at once on grids of indices, in pieces of bounded size. Shares only the tree
(`ir.bound`) with the lowering to loops. Imports NumPy, `ir.bound` and the dtypes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from lightnet.ir.bound import Apply, BoundDefinition, Const, Idx, Node, Read, Statement, reads
from lightnet.ir.functions import FLOAT_FUNCTIONS
from lightnet.runtime.dtypes import BY_NP, DType, convert, is_float, round_to

#: Grid points evaluated at once.
CHUNK = 1 << 18


def evaluate_definition(
    definition: BoundDefinition, arrays: Mapping[str, np.ndarray], algebra: Algebra | None = None
) -> dict[str, np.ndarray]:
    """The results of a definition; `arrays` has every operand, in its shape and dtype. `algebra` says what numbers and
    their functions are (default: those of NumPy)."""
    values = {name: np.asarray(arrays[name], order="C") for name, _ in definition.operands}
    for name, spec in definition.operands:
        if values[name].shape != spec.dims or values[name].dtype != spec.dtype.np:
            raise ValueError(f"operand '{name}' is {values[name].dtype}{values[name].shape}, expected {spec}")
    for name, spec in definition.results + definition.locals:
        values[name] = np.zeros(spec.dims, spec.dtype.np)
    execution = (algebra or Execution)(definition, values)
    with np.errstate(all="ignore"):
        for statement in definition.statements:
            execution.run(statement)
    return {name: values[name] for name, _ in definition.results}


class Execution:
    """Statements, executed one after the other on `values`, the arrays of all tensors by name. A subclass computes in
    another algebra: it says what an expression, a reduction and an identity are."""

    def __init__(self, definition: BoundDefinition, values: dict[str, np.ndarray]):
        self.definition, self.values = definition, values

    def run(self, s: Statement) -> None:
        if s.op != "=" and s.fresh:
            target_views(s, self.values)[0][target_box(s)] = self.identity(s.op, self.values[s.tensor].dtype)
            if s.arg is not None:
                target_views(s, self.values)[1][target_box(s)] = 0
        ranges = [(name, 0, n) for name, n in s.loops + s.reductions]
        source = dict(self.values)
        if s.op == "=" and any(r.tensor == s.tensor for r in reads(s.value)):
            source[s.tensor] = self.values[s.tensor].copy()
        for piece in pieces(ranges):
            self.piece(s, piece, source)

    def piece(self, s: Statement, ranges: list[tuple[str, int, int]], source: Mapping[str, np.ndarray]) -> None:
        """Execute a statement on a part of its grid."""
        shape = tuple(high - low for _, low, high in ranges)
        value = np.broadcast_to(self.expression(grid_of(ranges), source).value(s.value), shape)
        if s.op == "=" and s.tensor in source and value.dtype != self.values[s.tensor].dtype:
            raise TypeError(f"value of {value.dtype} for '{s.tensor}'")
        box = target_box(s, {name: (low, high) for name, low, high in ranges})
        order = target_order(s)
        views = target_views(s, self.values)
        n = len(s.loops)
        flat = value.reshape(*shape[:n], -1) if s.op != "=" else value
        if s.op == "=":
            views[0][box] = np.transpose(value, order)
        elif s.arg is None:
            part = np.transpose(self.reduce(s.op, flat), order)
            views[0][box] = self.combine(s.op, views[0][box], part)
        else:
            _arg(s, flat, ranges[n][1], order, box, views)

    def expression(self, grid: Mapping[str, np.ndarray], source: Mapping[str, np.ndarray]) -> Expression:
        """An evaluator of expressions on a grid of indices."""
        return Expression(grid, source)

    def identity(self, op: str, dtype: np.dtype) -> Any:
        """The value that a reduction starts from."""
        return array_identity(op, dtype)

    def reduce(self, op: str, flat: np.ndarray) -> np.ndarray:
        """Reduce the last axis."""
        return _reduce(op, flat)

    def combine(self, op: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Two parts of a reduction as one."""
        return _combine(op, a, b)


#: Executes definitions in its own way.
Algebra = Callable[[BoundDefinition, dict[str, np.ndarray]], Execution]


def pieces(ranges: list[tuple[str, int, int]], most: int = CHUNK) -> Iterator[list[tuple[str, int, int]]]:
    """The grid in parts of at most `most` points: halves, outermost axis first."""
    if prod(high - low for _, low, high in ranges) <= most:
        yield ranges
        return
    k = next(k for k, (_, low, high) in enumerate(ranges) if high - low > 1)
    name, low, high = ranges[k]
    for part in ((low, (low + high) // 2), ((low + high) // 2, high)):
        yield from pieces([*ranges[:k], (name, *part), *ranges[k + 1 :]], most)


def grid_of(ranges: list[tuple[str, int, int]]) -> dict[str, np.ndarray]:
    """The indices of a part of a grid, each along an axis of its own."""
    return {
        name: np.arange(low, high).reshape([-1 if k == axis else 1 for k in range(len(ranges))])
        for axis, (name, low, high) in enumerate(ranges)
    }


def _arg(s: Statement, flat: np.ndarray, first: int, order: list[int], box: Any, views: Any) -> None:
    """The first winner along the last axis; a NaN wins over every number."""
    pick = (np.argmax if s.op == "argmax=" else np.argmin)(flat, axis=-1)
    best = np.transpose(np.take_along_axis(flat, pick[..., None], -1)[..., 0], order)
    where = np.transpose(pick, order) + first
    old = views[0][box]
    better = best > old if s.op == "argmax=" else best < old
    if best.dtype.kind == "f":
        better = (better & ~np.isnan(old)) | (np.isnan(best) & ~np.isnan(old))
    views[0][box] = np.where(better, best, old)
    views[1][box] = np.where(better, where, views[1][box]).astype(views[1].dtype)


def target_views(s: Statement, values: Mapping[str, np.ndarray], names: Sequence[str] = ()) -> list[np.ndarray]:
    """The arrays that a statement writes (or those `names` of them), as it subscripts them."""
    return [values[t].reshape(-1) if s.flat else values[t] for t in names or s.targets]


def target_order(s: Statement) -> list[int]:
    """Positions of the loops in the order of the target's subscripts."""
    axes = {name: k for k, (name, _) in enumerate(s.loops)}
    return [axes[name] for sub in s.subs if (name := _split(sub)[0]) is not None]


def _split(sub: Node) -> tuple[str | None, int]:
    """The index and the constant of a subscript on the left."""
    match sub:
        case Const(value=value):
            return None, int(value)
        case Idx(name=name):
            return name, 0
        case Apply(fn="add", args=(Idx(name=name), Const(value=value))):
            return name, int(value)
    raise TypeError(f"{sub} on the left")


def target_box(s: Statement, ranges: Mapping[str, tuple[int, int]] | None = None) -> tuple[Any, ...]:
    """The NumPy index of the elements that a piece writes."""
    if ranges is None:
        ranges = {name: (0, n) for name, n in s.loops}
    parts: list[Any] = []
    for sub in s.subs:
        name, offset = _split(sub)
        parts.append(offset if name is None else slice(ranges[name][0] + offset, ranges[name][1] + offset))
    return tuple(parts)


def array_identity(op: str, dtype: np.dtype) -> Any:
    """The value that a reduction starts from."""
    if op in ("+=", "*="):
        return dtype.type(op == "*=")
    low = op in ("max=", "argmax=")
    if dtype.kind == "b":
        return np.bool_(not low)
    if dtype.kind == "f":
        return dtype.type(-np.inf if low else np.inf)
    return np.iinfo(dtype).min if low else np.iinfo(dtype).max


def _reduce(op: str, flat: np.ndarray) -> np.ndarray:
    """Reduce the last axis, in the dtype of the elements."""
    if flat.dtype == bool:
        return (np.logical_or if op in ("+=", "max=") else np.logical_and).reduce(flat, axis=-1)
    ufunc = {"+=": np.add, "*=": np.multiply, "max=": np.maximum, "min=": np.minimum}[op]
    return ufunc.reduce(flat, axis=-1, dtype=flat.dtype)


def _combine(op: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype == bool:
        return (np.logical_or if op in ("+=", "max=") else np.logical_and)(a, b)
    return {"+=": np.add, "*=": np.multiply, "max=": np.maximum, "min=": np.minimum}[op](a, b)


class Expression:
    """Expressions on a grid of indices."""

    def __init__(self, grid: Mapping[str, np.ndarray], values: Mapping[str, np.ndarray]):
        self.grid, self.values = grid, values
        self.memo: dict[Node, np.ndarray] = {}

    def value(self, node: Node) -> np.ndarray:
        found = self.memo.get(node)
        if found is None:
            found = self.memo[node] = self._value(node)
        return found

    def _value(self, node: Node) -> np.ndarray:
        match node:
            case Const(value=value, dtype=dtype):
                return np.asarray(value, dtype.np)
            case Idx(name=name):
                return self.grid[name]
            case Read():
                return self.read(node, self.values, self.value)
            case Apply(fn="cast", args=(a,), dtype=dtype):
                return _cast(self.value(a), dtype)
            case Apply(fn="wrap", args=(a,), dtype=dtype):
                return self.value(a).astype(dtype.np)
            case Apply(fn="bitcast", args=(a,), dtype=dtype):
                return np.asarray(self.value(a)).view(dtype.np)
            case Apply(fn="table", args=(i, *values), dtype=dtype):
                return np.array([v.value for v in values if isinstance(v, Const)], dtype.np)[self.value(i)]
            case Apply(fn="select", args=(c, a, b)):
                return np.where(self.value(c), self.value(a), self.value(b))
            case Apply(fn=fn, args=args):
                return FUNCTIONS[fn](*map(self.value, args))
        raise TypeError(node)

    def read(self, node: Read, arrays: Mapping[str, np.ndarray], filler: Callable[[Node], np.ndarray]) -> np.ndarray:
        """The elements of `arrays` that `node` reads. Both arms of a guard are evaluated here, so that subscripts are
        clipped before the `filler` is put in."""
        array = arrays[node.tensor].reshape(-1) if node.flat else arrays[node.tensor]
        subs = [self.value(s) for s in node.subs]
        picked = array[tuple(np.clip(s, 0, n - 1) for s, n in zip(subs, array.shape))] if subs else array
        if node.filler is None:
            return picked
        inside: Any = True
        for s, n in zip(subs, array.shape):
            inside = inside & (s >= 0) & (s < n)
        return np.where(inside, picked, filler(node.filler))


def _cast(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Between floats as NumPy rounds; everything else saturating and truncating (`runtime.dtypes.convert`)."""
    if dtype.is_float and is_float(array.dtype):
        return round_to(array, dtype)
    return np.asarray(convert(array, dtype))


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Integers truncate, x/0 is 0, and the lowest integer over -1 wraps to itself."""
    if a.dtype.kind == "f":
        return a / b
    divisor = np.where(b == 0, b.dtype.type(1), b)
    if a.dtype.kind == "u":
        return np.where(b == 0, a.dtype.type(0), a // divisor)
    floor = a // divisor
    truncated = floor + ((floor * divisor != a) & ((a < 0) != (divisor < 0)))
    return np.where(b == 0, a.dtype.type(0), truncated).astype(a.dtype)


def _remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The sign of `a`; x%0 is 0 for integers. Floats: a - b·trunc(a / b), in the dtype."""
    if a.dtype.kind == "f":
        return a - b * np.trunc(a / b)
    return np.where(b == 0, a.dtype.type(0), np.fmod(a, np.where(b == 0, b.dtype.type(1), b))).astype(a.dtype)


def _power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Integers: the power in double, converted with saturation."""
    if a.dtype.kind == "f":
        return np.power(a, b)
    return convert(np.power(a.astype(np.float64), b.astype(np.float64)), BY_NP[a.dtype])


def _round(a: np.ndarray) -> np.ndarray:
    """Halves away from zero."""
    whole = np.trunc(a)
    return np.where(np.abs(a - whole) >= 0.5, whole + np.sign(a), whole).astype(a.dtype)


def _shift(left: bool) -> Any:
    """Shifts by any amount: one that is negative or the width or more leaves 0, or the sign."""

    def shift(a: np.ndarray, n: np.ndarray) -> np.ndarray:
        bits = 8 * a.dtype.itemsize
        inside = (n >= 0) & (n < bits)
        by = np.where(inside, n, n.dtype.type(0))
        if left:
            return np.where(inside, np.left_shift(a, by), a.dtype.type(0))
        return np.where(inside, np.right_shift(a, by), np.where(a < 0, ~a.dtype.type(0), a.dtype.type(0)))

    return shift


FUNCTIONS = {name: f.of_array for name, f in FLOAT_FUNCTIONS.items()} | {
    "rint": np.rint,
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
    "shl": _shift(left=True),
    "shr": _shift(left=False),
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _divide,
    "rem": _remainder,
    "neg": np.negative,
    "min": np.minimum,
    "max": np.maximum,
    "pow": _power,
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": _round,
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
}
