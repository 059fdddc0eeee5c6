"""Values with dims that the data decides, and the ops on them: a tensor whose type has the bound, and beside it the
true sizes.

`Graph.op` comes here where an operand is one of these. An op passes sizes on as its definition says (`passing.py`); the
few of `RULES` say it themselves, since their parameters are sizes, or since they are loops. `Numbers` are small integer
tensors of sizes (what `Shape` gives), on which shape arithmetic goes on as it does on constants. Imports the graph
builder.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from importlib import import_module
from math import prod
from typing import Any

import numpy as np
from xdsl.ir import Block

from lightnet.frontends.composites import cut, positions_along
from lightnet.frontends.graph import Graph, Value
from lightnet.frontends.passing import Refused, passing
from lightnet.frontends.sizes import SizeSymbol, UndecidedSize, bound, inputs_of, is_counted, of_symbol
from lightnet.ir.constraints import check_op
from lightnet.ir.decorated import FunctionTable
from lightnet.ir.types import tensor_type
from lightnet.runtime.dims import (
    Atom,
    Dim,
    Extreme,
    Quotient,
    Size,
    Undecided,
    dim_max,
    dim_min,
    greatest,
    is_known,
    is_same,
    least,
)
from lightnet.runtime.dtypes import BY_NAME


class Counted(Value):
    """A tensor of whose axes some are as long as the data says: `dims` has a `Dim` there, `spec` the bound."""

    __slots__ = ("sizes",)

    def __init__(self, value: Value, sizes: Mapping[int, Dim]):
        super().__init__(value.spec, ssa=value.ssa, inputs=value.inputs, load=value._load, name=value.name)
        self.sizes = dict(sizes)

    @property
    def dims(self) -> tuple[Size, ...]:
        return tuple(self.sizes.get(k, n) for k, n in enumerate(self.spec.dims))

    @property
    def len(self) -> Size:
        return prod(self.dims)

    @property
    def is_known(self) -> bool:
        return False

    @property
    def contents(self) -> None:
        return None

    @property
    def whole(self) -> Value:
        """The tensor within its bounds."""
        return Value(self.spec, ssa=self.ssa, inputs=self.inputs, load=self._load, name=self.name)

    def emitted(self, g: Graph) -> Value:
        return self.whole


class Numbers(Value):
    """A tensor of sizes, of a type that has them exactly: `numbers` is an array of ints and `Dim`s. It is computed when
    an op of the network reads it."""

    __slots__ = ("numbers",)

    def __init__(self, g: Graph, numbers: np.ndarray, dtype: str):
        super().__init__(g.spec(numbers.shape, dtype), inputs=inputs_of(*numbers.reshape(-1)))
        self.numbers = numbers

    def emitted(self, g: Graph) -> Value:
        parts = [g.reshape(dim_number(g, d), (1,)) for d in self.numbers.reshape(-1)]
        whole = g.reshape(g.op("concat", *parts, axis=0) if len(parts) > 1 else parts[0], self.numbers.shape)
        return g.cast(whole, self.dtype)


def dim_numbers(g: Graph, dims: Any, dtype: str = "i64") -> Value:
    """A tensor of dims: a constant where all are known."""
    array = np.asarray(dims, object)
    if is_known(array.reshape(-1)):
        return g.constant(array.astype(BY_NAME[dtype].np))
    return Numbers(g, array, dtype)


def counted(g: Graph, value: Value, dims: Sequence[Size]) -> Value:
    """`value` with these dims: axes whose length in the type is not the bound are padded, or cut."""
    for axis, dim in enumerate(dims):
        value = fitted(g, value, axis, dim)
    sizes = {k: d for k, d in enumerate(dims) if is_counted(d)}
    return Counted(value, sizes) if sizes else value


def fitted(g: Graph, x: Value, axis: int, dim: Size) -> Value:
    """A plain value whose axis is as long as the bound of `dim`; what is added is 0."""
    have, want = x.spec.dims[axis], width(dim)
    if have == want:
        return x
    if have > want:
        return cut(g, x, axis, 0, want)
    before, after = [0] * x.ndim, [0] * x.ndim
    after[axis] = want - have
    return g.plain("pad", x, before=tuple(before), after=tuple(after))


def width(dim: Size) -> int:
    """The length of an axis in the type. A counted one has two elements at least: one would be repeated where another
    axis is longer."""
    return max(bound(dim), 2) if is_counted(dim) else dim


def widths(dims: Sequence[Size]) -> tuple[int, ...]:
    return tuple(map(width, dims))


def size_of_value(g: Graph, name: str, high: Size, value: Value) -> Dim:
    """A size that the scalar `value` (i64) is at run time."""
    return of_symbol(SizeSymbol(name, 0, greatest(high), emit=lambda: value, inputs=value.inputs))


def decided(g: Graph, key: Any, make: Callable[[], Any]) -> Any:
    """The result of `make`, made once for a key: two ops that decide the same size make one symbol."""
    if key not in g.sizes:
        g.sizes[key] = make()
    return g.sizes[key]


def dim_number(g: Graph, dim: Size) -> Value:
    """A dim as a tensor of rank 0, i64."""
    if not isinstance(dim, Dim):
        return g.scalar(dim, "i64")
    return decided(g, ("number", dim), lambda: _emitted(g, dim))


def _emitted(g: Graph, dim: Dim) -> Value:
    total = None
    for term, c in dim.terms.items():
        part = None if c != 1 and term else g.scalar(c, "i64")
        for atom in term:
            value = decided(g, ("atom", atom), partial(_atom, g, atom))
            part = value if part is None or (c == 1 and part.is_known) else g.plain("mul", part, value)
        assert part is not None
        if term and c != 1:
            part = g.plain("mul", part, g.scalar(c, "i64"))
        total = part if total is None else g.plain("add", total, part)
    assert total is not None
    return total


def _atom(g: Graph, atom: Atom) -> Value:
    """An atom as a tensor of rank 0; a number that a call decides is the element of a table of all that it can be."""
    match atom:
        case SizeSymbol():
            return atom.emit()
        case Quotient(dividend=dividend, divisor=divisor):
            behind = max(0, -(dividend.low // divisor))  # ln.div truncates
            found = g.plain("div", dim_number(g, dividend + behind * divisor), g.scalar(divisor, "i64"))
            return g.plain("sub", found, g.scalar(behind, "i64")) if behind else found
        case Extreme(fn=fn, args=args):
            return g.plain("minimum" if fn == "min" else "maximum", *(dim_number(g, a) for a in args))
    table = positions_along(g, atom.range[1] + 1)
    return g.reshape(g.plain("slice", table, axis=0, start=Dim({(atom,): 1}), len=1), ())


def dim_quotient(a: Size, b: Size) -> Size:
    """a / b, rounded down, of what is not negative. Raises `Undecided` where that is not known."""
    exact = a.over(b) if isinstance(a, Dim) else None
    if exact is not None:
        return exact
    if least(b) <= 0 or least(a) < 0:
        raise UndecidedSize(a, b)
    return a // b


# -- ops -------------------------------------------------------------------------------------------------------------

Rule = Callable[..., Any]
RULES = FunctionTable("counted rule of", lambda: import_module("lightnet.frontends.counted_moves"))


def counted_rule(*optypes: str) -> Callable[[Rule], Rule]:
    """Decorator: the function (graph, op type, operands, params) makes these ops of counted operands."""
    return RULES.decorator("@counted_rule", optypes)


def op(g: Graph, optype: str, operands: Sequence[Value], params: Mapping[str, Any]) -> Any:
    """`Graph.op` where an operand is `Counted` or `Numbers`, or a parameter has a size."""
    if any(isinstance(v, Numbers) for v in operands):
        found = _on_numbers(g, optype, operands, params)
        if found is not None:
            return found
        operands = [
            decided(g, ("tensor", id(v), v), partial(v.emitted, g)) if isinstance(v, Numbers) else v for v in operands
        ]
        if not any(isinstance(v, Counted) for v in operands):
            return g.op(optype, *operands, **params)
    return RULES.get(optype, derived)(g, optype, list(operands), dict(params))


def derived(g: Graph, optype: str, operands: list[Value], params: dict[str, Any], by_index: bool = False) -> Any:
    """An op as its definition says. Raises `UndecidedSize` where that cannot be told."""
    params = {k: widths(v) if isinstance(v, tuple | list) and v and not isinstance(v[0],
        str) else width(v) if is_counted(v) else v for k, v in params.items()}  # fmt: skip
    classes: list[Dim] = []
    marks = []
    for v in operands:
        sizes = v.sizes if isinstance(v, Counted) else {}
        classes += [s for s in sizes.values() if s not in classes]
        marks.append({k: classes.index(s) for k, s in sizes.items()})
    specs = [v.spec for v in operands]
    try:
        passed = passing(g.classes[optype], specs, params, marks, by_index)
    except Refused as e:
        raise UndecidedSize(
            *classes,
            message=f"data-dependent shape: {optype} takes no dim that the data decides "
            f"({', '.join(map(str, classes))}): {e}",
        ) from None
    if passed.fill is not None:
        operands = [filled_behind(g, v, passed.fill) if isinstance(v, Counted) else v for v in operands]
    found = g.plain(optype, *operands, **params)
    results = found if isinstance(found, tuple) else (found,)
    given = [
        counted(g, r, [classes[axes[k]] if k in axes else n for k, n in enumerate(r.spec.dims)])
        for r, axes in zip(results, passed.results)
    ]
    return tuple(given) if isinstance(found, tuple) else given[0]


def before_count(g: Graph, dims: Sequence[Size]) -> Value | None:
    """The flags of the elements of a tensor of these dims that count, as i1 that broadcasts to them; None where all
    do.
    """
    flags = None
    for axis, dim in enumerate(dims):
        if is_counted(dim):
            here = g.plain("less", axis_positions(g, width(dim), axis, len(dims)), dim_number(g, dim))
            flags = here if flags is None else g.plain("bit_and", flags, here)
    return flags


def axis_positions(g: Graph, count: int, axis: int, ndim: int) -> Value:
    """0, 1, … along an axis of a tensor, i64."""
    dims = tuple(count if k == axis else 1 for k in range(ndim))
    return decided(g, ("positions", dims), lambda: positions_along(g, count, axis, ndim))


def filled_behind(g: Graph, x: Value, fill: float | int) -> Value:
    """A counted tensor with `fill` behind its counts."""
    flags = before_count(g, x.dims)
    if flags is None:
        return x
    return Counted(g.plain("where", flags, x, g.scalar(fill, x.dtype)), x.sizes)


# -- sizes as tensors ------------------------------------------------------------------------------------------------


_SCALAR: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "neg": operator.neg, "cast": lambda a: a,
    "abs": lambda a: dim_max(a, -a), "div": dim_quotient, "minimum": dim_min, "maximum": dim_max, "equal": is_same,
    "less": operator.lt, "less_equal": operator.le, "where": lambda c, a, b: a if c else b,
    "floor": lambda a: a, "ceil": lambda a: a, "round_even": lambda a: a,
}  # fmt: skip
_REDUCED = {"reduce_min": "minimum", "reduce_max": "maximum", "reduce_sum": "add", "reduce_prod": "mul"}
#: The largest whole numbers up to which a type has all of them; those of other types are computed at run time.
_EXACT = {"i32": (1 << 31) - 1, "i64": (1 << 63) - 1, "f32": 1 << 24, "f64": 1 << 53}
#: Ops whose NumPy reference moves elements, of any type.
_MOVES = frozenset(
    {"reshape", "concat", "slice", "strided_slice", "take", "transpose", "expand", "forward", "gather_nd"}
)


def _on_numbers(g: Graph, optype: str, operands: Sequence[Value], params: Mapping[str, Any]) -> Value | None:
    """An op on sizes, as sizes; None where it has to be computed at run time."""
    found_arrays = [v.numbers if isinstance(v, Numbers) else whole_contents(v) for v in operands]
    arrays = [a for a in found_arrays if a is not None]
    dtype = BY_NAME_TL.get(params["dtype"]) if optype == "cast" else operands[-1].dtype.name
    if len(arrays) < len(operands) or dtype not in _EXACT or (optype == "div" and dtype[0] == "f"):
        return None
    cls, given = g.classes[optype], {k: v for k, v in params.items() if v is not None}
    try:
        if optype in _MOVES:
            if not all(isinstance(v, Numbers) or k for k, v in enumerate(operands)) and optype != "concat":
                return None
            specs = [v.spec for v in operands]
            results = check_op(cls, specs, given)
            built = cls.build_unchecked(Block(arg_types=[tensor_type(s) for s in specs]).args, given, results)
            return dim_numbers(
                g,
                built.reference(
                    *(a.astype(object) if k == 0 or optype == "concat" else a for k, a in enumerate(arrays))
                ),
                results[0].dtype.name,
            )
        if optype in _REDUCED:
            function = _SCALAR[_REDUCED[optype]]
            array = arrays[0]
            for axis in params["axes"]:
                rows = np.moveaxis(array, axis, 0)
                array = np.expand_dims(_each(lambda *column: reduce(function, column), *rows), axis)
            return dim_numbers(g, array, dtype)
        if optype not in _SCALAR:
            return None
        found = _each(_SCALAR[optype], *arrays)
    except (Undecided, ZeroDivisionError):
        return None
    if optype in ("equal", "less", "less_equal"):
        return g.constant(found.astype(bool))
    if not all(-_EXACT[dtype] <= least(d) and greatest(d) <= _EXACT[dtype] for d in found.reshape(-1)):
        return None
    return dim_numbers(g, found, dtype)


def whole_contents(value: Value) -> np.ndarray | None:
    """The contents of a constant as integers (or bools), None where it has none, or others."""
    array = value.contents
    if array is None or array.dtype.kind != "f":
        return array if array is None or array.dtype.kind in "iub" else None
    return array.astype(np.int64) if (np.abs(array) < 1 << 53).all() and (array == np.trunc(array)).all() else None


def _each(function: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    """A function of each element of arrays that broadcast."""
    given = np.broadcast_arrays(*(np.asarray(a, object) for a in arrays))
    found = np.empty(given[0].shape, object)
    for at in np.ndindex(found.shape):
        found[at] = function(*(a[at] for a in given))
    return found


BY_NAME_TL = {d.tl: name for name, d in BY_NAME.items()}
