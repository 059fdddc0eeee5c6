"""An ONNX graph under construction, and the registry of exporters: what every op's exporter is written with.

    @exporter("relu")
    def relu(g, op, src):
        return g.node("Relu", src)

An exporter gets the graph, the op and the ONNX names of its operands, and returns the names of its results.
`KERNEL_TYPES` has the types that ONNX Runtime computes each operator in; `ExportGraph.widened` computes in a wider one
where it lacks one, and f16 and bf16, which LightNet only stores, in f32. Nothing else here knows about a runtime.
Imports NumPy, the IR and the runtime's dtypes; `onnx` only where the finished model is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import LightNetError
from lightnet.frontends.onnx.model import ELEM_TYPES
from lightnet.ir.decorated import FunctionTable
from lightnet.ir.locations import loc_of
from lightnet.ir.names import FreshNames
from lightnet.ir.op import LnOp
from lightnet.ir.registry import ONNX_EXPORTERS
from lightnet.runtime.dims import Atom, Dim, Extreme, Quotient, Size, Symbol, Undecided, greatest, is_known, least
from lightnet.runtime.dims import symbol as symbol_dim
from lightnet.runtime.dtypes import BY_NAME, DType

#: ONNX's operator set: the oldest that has nearly everything used here; runtimes of 2023 and later run it. An exporter
#: that needs a newer one says so (`ExportGraph.needs`).
OPSET = 18

_ALL_INTS = "i32 i64 i8 ui8 i16 ui16 ui32 ui64"
#: The types that ONNX Runtime's CPU kernels take, where those are not all of ours; in order of preference for others.
KERNEL_TYPES = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Neg", "Less", "LessOrEqual", "Equal"), "i32 i64 f32 f64"),
    **dict.fromkeys(("CumSum", "Einsum", "MatMul", "TopK"), "i32 i64 f32 f64"),
    **dict.fromkeys(("Max", "Min"), "i32 ui32 ui64 f32 f64"),
    **dict.fromkeys(("ReduceMax", "ReduceMin", "ArgMax", "ArgMin"), "i32 i64 f32 f64 i8 ui8"),
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "Mod"), _ALL_INTS),
    **dict.fromkeys(("Abs", "Sign"), f"f32 f64 {_ALL_INTS}"),
    "ReduceSum": "i64 f32 f64",  # which sums integers in double: 64 bits hold what wraps in 32
    "MaxPool": "f32 f64 i8 ui8",
    "Not": "i1",
    "Where": "i32 i64 f32 f64 ui8",
    **dict.fromkeys(("Expand", "ReverseSequence"), f"f32 f64 f16 {_ALL_INTS} i1"),
    "Tile": f"f32 f64 {_ALL_INTS} i1",
    "Pad": "i32 i64 f32 f64 i8 ui8 ui32 ui64 i1",
    "Trilu": "i64 f32 f64 i1",
    "Unique": "f32 f64 i64 i8",
}
#: Those of every other operator: functions of floats.
WIDE_FLOATS = "f32 f64"
#: Operators of which the low bits of the result depend on the low bits of the operands alone, so that a ui64 may be an
#: i64.
LOW_BITS = frozenset(("Add", "Sub", "Mul", "CumSum", "Einsum", "ReduceSum", "MatMul", "Where", "Equal", "Trilu"))

Exporter = Callable[..., Any]
_EXPORTERS = FunctionTable("ONNX exporter of", ONNX_EXPORTERS.imported)
#: Optypes without an exporter -> why none is needed.
NOT_EXPORTED = {
    "create": "becomes a graph input or an initializer",
    "input": "becomes a graph input",
    "param": "becomes an initializer",
    "constant": "becomes an initializer",
    "conv2d_integer": "is made of a convolution by the pass `integers`: ONNX's ConvInteger has no words of 16 bits",
    "round_clip": "is made of roundings by the pass `integers`, and is `low` for NaN, which ONNX's Clip is not",
    "matmul_integer": "is made of a product by the pass `integers`: ONNX's MatMulInteger has no words of 16 bits",
    **dict.fromkeys(
        ("conv2d_short", "matmul_short"),
        "is made of a product by the pass `short-products`: ONNX's sums have the type of their factors",
    ),
    "print": "has no counterpart: dropped, with a note in the model",
    "fprint": "has no counterpart: dropped, with a note in the model",
}


def exporter(*optypes: str) -> Callable[[Exporter], Exporter]:
    """Decorator: `function(g, op, *operands)` exports the ops of these optypes."""
    return _EXPORTERS.decorator("@exporter", optypes)


def export_pairs(pairs: Mapping[str, str], make: Callable[[str], Exporter]) -> None:
    """Register what `make` makes of an operator as the exporter of the optype beside it (`pairs.py`), unless that has
    one of its own."""
    for kind, optype in pairs.items():
        if optype not in _EXPORTERS:
            exporter(optype)(make(kind))


def operator(pairs: Mapping[str, str], op: LnOp) -> str:
    """The operator beside the op in two-way pairs."""
    return next(kind for kind, optype in pairs.items() if optype == op.optype)


def exporters() -> dict[str, Exporter]:
    """Every exporter by optype."""
    ONNX_EXPORTERS.imported()  # importing a family registers its exporters
    return _EXPORTERS


def unsupported(op: LnOp, why: str) -> LightNetError:
    """The error of an op that ONNX cannot express."""
    who = f"{op.optype}: `{op.op_name}`" if op.op_name else op.optype
    return LightNetError(f"{who} cannot be exported to ONNX: {why}", loc_of(op), label="onnx.unsupported")


@dataclass
class _Node:
    """One ONNX node."""

    kind: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]
    name: str = ""


@dataclass
class ExportGraph:
    """Nodes, initializers and names so far. Value names are unique; the nodes of an op are named after it."""

    #: Value names; the names of all tensors of the network are reserved, so that no other value takes one.
    names: FreshNames = field(default_factory=lambda: FreshNames(separator="."))
    nodes: list[_Node] = field(default_factory=list)
    initializers: dict[str, np.ndarray] = field(default_factory=dict)
    _node_names: FreshNames = field(default_factory=lambda: FreshNames(separator="."), init=False)
    _constants: dict[tuple, str] = field(default_factory=dict, init=False)
    #: The inputs and their axes that say the values of symbols, by name.
    _said: dict[str, tuple[str, int]] = field(default_factory=dict, init=False)
    #: Vectors of one i64: these values by name, and sizes by what they are of them.
    _sizes: dict[str, str] = field(default_factory=dict, init=False)
    _stem: str = field(default="", init=False)
    #: The operator set of the model.
    opset: int = OPSET

    # -- for the driver

    def claim(self, wanted: str) -> str:
        """`wanted` as the name of a tensor of the network, with a number behind it if it is taken."""
        return self.names.fresh(wanted, may_be_reserved=True)

    def fresh(self, wanted: str) -> str:
        """As `claim`, for a value that the network has no name for."""
        return self.names.fresh(wanted)

    def export(self, op: LnOp, operands: Sequence[str], wanted: Sequence[str]) -> list[str]:
        """Add the nodes of `op`; `wanted` are the names that its results should have. Returns those they have."""
        function = exporters().get(op.optype)
        if function is None:
            raise unsupported(op, f"no exporter is registered for '{op.optype}'")
        self._stem = op.op_name or wanted[0]
        start = len(self.nodes)
        if any(greatest(s.len) for s in op.result_specs):
            try:
                found = function(self, op, *operands)
            except Undecided as e:
                raise unsupported(op, f"{e.message}: give its dims numbers (--dim NAME=N)") from None
        else:  # runtimes differ in what they make of nothing
            found = [self.const(np.zeros(s.dims), s.dtype) for s in op.result_specs]
        results = [found] if isinstance(found, str) else list(found)
        assert len(results) == len(op.results), op.optype
        made = {name: node for node in self.nodes[start:] for name in node.outputs}
        renamed: dict[str, str] = {}
        final = []
        for result, name in zip(results, wanted):
            name = self.claim(name)
            if result in made and result not in renamed:
                renamed[result] = name
            else:  # an operand, or the same value again
                self.nodes.append(_Node("Identity", [result], [name], {}))
            final.append(name)
        for node in self.nodes[start:]:
            node.inputs = [renamed.get(n, n) for n in node.inputs]
            node.outputs = [renamed.get(n, n) for n in node.outputs]
        self._name_nodes(start, final)
        return final

    def _name_nodes(self, start: int, results: Sequence[str]) -> None:
        """The node that makes the first result has the op's name, the others one that begins with it."""
        for node in self.nodes[start:]:
            whole = results and results[0] in node.outputs
            wanted = self._stem if whole else f"{self._stem}/{node.kind}"
            node.name = self._node_names.fresh(wanted)

    # -- for exporters

    def needs(self, opset: int) -> None:
        """The model uses what came with this operator set."""
        self.opset = max(self.opset, opset)

    def compute(self, kind: str, dtype: DType, operands: Sequence[str], *rest: str, **attributes: Any) -> str:
        """A node on `operands` of one type, then on `rest`, with a result of that type: in a type that `KERNEL_TYPES`
        has."""
        _, operands, back = self.widened(
            dtype, KERNEL_TYPES.get(kind, WIDE_FLOATS), *operands, low_bits=kind in LOW_BITS
        )
        return back(self.node(kind, *operands, *rest, **attributes))

    def test(self, kind: str, dtype: DType, *operands: str, **attributes: Any) -> str:
        """As `compute`, for a node whose result is a bool."""
        _, wide, _ = self.widened(dtype, KERNEL_TYPES.get(kind, WIDE_FLOATS), *operands, low_bits=kind in LOW_BITS)
        return self.node(kind, *wide, **attributes)

    def where(self, dtype: DType, condition: str, x: str, y: str) -> str:
        """`condition ? x : y`."""
        _, (x, y), back = self.widened(dtype, KERNEL_TYPES["Where"], x, y, low_bits=True)
        return back(self.node("Where", condition, x, y))

    def extreme(self, kind: str, dtype: DType, x: str, y: str) -> str:
        """Max or Min, where NaN wins; of i64 by comparing, as ONNX Runtime's kernels err there beyond 32 bits."""
        wide, (x, y), back = self.widened(dtype, KERNEL_TYPES[kind], x, y)
        if wide.name != "i64":
            return back(self.node(kind, x, y))
        return self.node("Where", self.node("Less", x, y), *((y, x) if kind == "Max" else (x, y)))

    def full(self, dims: Sequence[int], value: Any, dtype: DType) -> str:
        """A tensor that has one value throughout."""
        return self.compute("Expand", dtype, [self.const(value, dtype)], self.ints(dims))

    def within(self, index: str, dtype: DType, low: Any, high: Any) -> str:
        """Integers kept between bounds (numbers, or arrays that broadcast); the bounds of known contents are checked
        here."""
        known = self.initializers.get(index) if not isinstance(high, Dim) else None
        if known is not None and np.all((known >= low) & (known <= high)):
            return index
        index = self.extreme("Max", dtype, index, self.const(low, dtype))
        if isinstance(high, Dim):
            return self.extreme("Min", dtype, index, self.cast(self.size(high), BY_NAME["i64"], dtype))
        return self.extreme("Min", dtype, index, self.const(high, dtype))

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """A node with one output; its name. An attribute of None is left out."""
        return self.node_n(kind, 1, *inputs, **attributes)[0]

    def node_n(self, kind: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """A node with `count` outputs; their names."""
        outputs = [self.fresh(f"{self._stem}/{kind}") for _ in range(count)]
        kept = {k: v for k, v in attributes.items() if v is not None}
        self.nodes.append(_Node(kind, list(inputs), outputs, kept))
        return outputs

    def const(self, value: Any, dtype: DType | str) -> str:
        """A constant: an initializer, shared with every equal one."""
        np_dtype = (BY_NAME[dtype] if isinstance(dtype, str) else dtype).np
        array = np.ascontiguousarray(np.asarray(value, np_dtype)).reshape(np.shape(value))
        key = (np_dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self.fresh("const")
            self.initializers[self._constants[key]] = array
        return self._constants[key]

    def ints(self, values: Iterable[Size]) -> str:
        """A vector of i64: shapes, axes, starts; computed from the shapes of inputs where calls decide."""
        values = list(values)
        if is_known(values):
            return self.const(values, "i64")
        parts = [self.size(v) if isinstance(v, Dim) else self.const([v], "i64") for v in values]
        return parts[0] if len(parts) == 1 else self.node("Concat", *parts, axis=0)

    # -- sizes that calls decide

    def learn_sizes(self, name: str, dims: Sequence[Size]) -> None:
        """Note where the value of a symbol is found: in the shape of the input `name`, one of whose dims it is."""
        for axis, dim in enumerate(dims):
            symbols = dim.symbols if isinstance(dim, Dim) else ()
            if len(symbols) == 1 and (s := next(iter(symbols))).name not in self._said:
                if dim == symbol_dim(s.name, s.low, s.high, s.multiple):
                    self._said[s.name] = name, axis

    def size(self, dim: Dim) -> str:
        """A size as a vector of one i64."""
        if (known := self._sizes.get(dim.key)) is None:
            terms = [self._product([*map(self._atom, term)] + [self.const([c], "i64")] * (c != 1 or not term))
                     for term, c in dim.terms.items()]  # fmt: skip
            known = self._sizes[dim.key] = reduce(partial(self.node, "Add"), terms)
        return known

    def _product(self, factors: Sequence[str]) -> str:
        return reduce(partial(self.node, "Mul"), factors)

    def _atom(self, atom: Atom) -> str:
        match atom:
            case Symbol(name=name, multiple=multiple):
                if name not in self._said:
                    raise LightNetError(f"no input has the dim '{name}' by itself, so that no ONNX model can read it "
                                        f"off: give it a number (--dim {name}=N)", label="onnx.dims")  # fmt: skip
                if (value := self._sizes.get(name)) is None:
                    source, axis = self._said[name]
                    value = self._sizes[name] = self.node("Shape", source, start=axis, end=axis + 1)
                return value if multiple == 1 else self.node("Div", value, self.const([multiple], "i64"))
            case Quotient(dividend=dividend, divisor=divisor):
                if least(dividend) < 0:  # Div truncates
                    raise Undecided(dividend)
                return self.node("Div", self.size(dividend), self.const([divisor], "i64"))
            case Extreme(fn=fn, args=args):
                return self.extreme(fn.capitalize(), BY_NAME["i64"], *(self.ints([a]) for a in args))

    @staticmethod
    def type_number(dtype: DType) -> Any:
        """An attribute that is ONNX's number of an element type."""
        return _ElementType(dtype)

    def cast(self, x: str, source: DType, to: DType | str) -> str:
        """`x` in another type: wrapping between integers, != 0 to bool, undefined where a float does not fit."""
        to = BY_NAME[to] if isinstance(to, str) else to
        return x if source == to else self.node("Cast", x, to=_ElementType(to))

    def reshape(self, x: str, dims: Sequence[int]) -> str:
        zero = 1 if 0 in dims else None  # without it, a 0 stands for the dimension of `x`
        return self.node("Reshape", x, self.ints(dims), allowzero=zero)

    def slice(self, x: str, axis: int, start: int, stop: int) -> str:
        """Elements [start, stop) along one axis."""
        return self.node("Slice", x, self.ints([start]), self.ints([stop]), self.ints([axis]))

    def clamp(self, x: str, low: str, high: str) -> str:
        """min(max(x, low), high) of floats, where NaN stays NaN (which ONNX's Clip does not promise)."""
        return self.node("Min", self.node("Max", x, low), high)

    def widened(self, dtype: DType, kinds: str, *operands: str, low_bits: bool = False) -> tuple[DType, list[str],
        Callable[[str], str]]:  # fmt: skip
        """`operands` in the first type of `kinds` (``"f32 f64 i32"``, in order of preference) that holds all values of
        `dtype` (in `dtype` itself where none does), and a function that casts a result back. With `low_bits` a ui64 may
        be an i64."""
        names = kinds.split()
        to = dtype if dtype.name in names else next((BY_NAME[n] for n in names if holds(BY_NAME[n], dtype)), dtype)
        if low_bits and dtype.name == "ui64" and to == dtype and "ui64" not in names:
            to = BY_NAME["i64"]
        return to, [self.cast(x, dtype, to) for x in operands], lambda y: self.cast(y, to, dtype)

    def convert(self, x: str, source: DType, to: DType) -> str:
        """`runtime.dtypes.convert`: saturating, truncating toward zero, NaN to 0."""
        if source == to or to.kind == "bool" or source.kind == "bool":
            return self.cast(x, source, to)
        if not source.is_float:
            return self._saturated(x, source, to)
        wide = BY_NAME["f64"]
        if to.is_float:
            if holds(to, source):
                return self.cast(x, source, to)
            x, limit = self.cast(x, source, wide), to.limits[1]
            clipped = self.clamp(x, self.const(-limit, wide), self.const(limit, wide))
            return self.cast(self.node("Where", self.node("IsInf", x), x, clipped), wide, to)
        x = self.cast(x, source, wide)
        low, high = (self.const(float(limit), wide) for limit in to.limits)
        x = self.node("Where", self.node("IsNaN", x), self.const(0.0, wide), x)
        if to.size < 8:
            return self.cast(self.clamp(x, low, high), wide, to)
        # float(max) is max + 1: cast only what is below it.
        over = self.node("GreaterOrEqual", x, high)
        inside = self.node("Max", self.node("Where", over, low, x), low)
        return self.where(to, over, self.const(to.limits[1], to), self.cast(inside, wide, to))

    def _saturated(self, x: str, source: DType, to: DType) -> str:
        """Integers in another type."""
        if to.is_float:
            single = BY_NAME["f32"]
            return self.convert(self.cast(x, source, single), single, to) if to.is_short else self.cast(x, source, to)
        (least, most), (low, high) = source.limits, to.limits
        if least < low:
            x = self.extreme("Max", source, x, self.const(low, source))
        if most > high:
            x = self.extreme("Min", source, x, self.const(high, source))
        return self.cast(x, source, to)


@dataclass(frozen=True)
class _ElementType:
    """An attribute that stands for ONNX's number of an element type."""

    dtype: DType


def holds(wide: DType, narrow: DType) -> bool:
    """Return whether every value of `narrow` is one of `wide`, exactly."""
    if wide == narrow or narrow.kind == "bool":
        return True
    if narrow.is_float:
        return wide.is_float and wide.size > narrow.size
    low, high = narrow.limits
    if wide.is_float:
        return max(-low, high) <= 2 ** DIGITS[wide.name]
    if wide.kind == "bool":
        return False
    return wide.limits[0] <= low and high <= wide.limits[1]


#: Bits of a float's significand.
DIGITS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}


def node_protos(nodes: Iterable[_Node]) -> Iterator[Any]:
    """The nodes as ONNX's messages."""
    from onnx import helper

    for n in nodes:
        attributes: dict[str, Any] = {
            k: ELEM_TYPES[v.dtype.name] if isinstance(v, _ElementType) else v for k, v in n.attributes.items()
        }
        yield helper.make_node(n.kind, n.inputs, n.outputs, name=n.name, **attributes)
