"""A graph under construction: values with their type, shape and the interval that their elements lie in.

The interval is what keeps a random network meaningful: no logarithm of a negative number, no overflow, no cast out of range, so that whatever differs is a fault.
Steps (`pointwise`, `moves`, `spatial`, `products`, `regions`, `blocks`) are functions of a `Builder` that pick values and add nodes.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

#: dtype by short name: ONNX's number and NumPy's type.
DTYPES: dict[str, tuple[int, Any]] = {
    "f32": (TensorProto.FLOAT, np.float32),
    "f64": (TensorProto.DOUBLE, np.float64),
    "f16": (TensorProto.FLOAT16, np.float16),
    "i8": (TensorProto.INT8, np.int8),
    "ui8": (TensorProto.UINT8, np.uint8),
    "i32": (TensorProto.INT32, np.int32),
    "i64": (TensorProto.INT64, np.int64),
    "i1": (TensorProto.BOOL, np.bool_),
}
FLOATS = ("f32", "f64", "f16")
#: Most elements of a value that steps take, and of one that they make.
SMALL, LARGE = 1500, 6000
#: What a float may grow to before it is squashed (f16 ends at 65,504, and sums are of many).
BOUND = 100.0
DIMS = (1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9)


class Stuck(Exception):
    """A step does not fit what there is: nothing is added, and another is tried."""


@dataclass(frozen=True)
class Value:
    """A tensor of the graph."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    lo: float = -2.0
    hi: float = 2.0

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def reach(self) -> float:
        """The largest magnitude of an element."""
        return max(abs(self.lo), abs(self.hi))


class Builder:
    """A graph, or the body of a region: nodes, initializers and inputs so far, and what steps may pick from."""

    def __init__(self, seed: int, outer: Builder | None = None):
        self.rng = outer.rng if outer else random.Random(seed)
        self.data = outer.data if outer else np.random.default_rng(seed)
        self.outer = outer
        self.nodes: list[onnx.NodeProto] = []
        self.inits: list[onnx.TensorProto] = []
        self.inputs: list[Value] = []
        self.values: list[Value] = list(outer.values) if outer else []
        #: Results of a size that only the data knows: outputs as they are.
        self.apart: list[Value] = []
        self.used: set[str] = outer.used if outer else {""}
        if outer:
            self.opset, self.main, self.empty, self.open, self.ugly = (
                outer.opset, outer.main, outer.empty, outer.open, outer.ugly)  # fmt: skip
            return
        rng = self.rng
        self.opset = rng.choice((7, 8, 9, 10, 11, 11, 12, 13, 13, 14, 15, 16, 17, 17, 18, 18, 19, 20, 21, 22))
        #: The graph's main type, and whether dims of 0, dims without a size and names out of the ordinary are drawn.
        self.main = rng.choices(FLOATS, (8, 1, 1))[0]
        self.empty, self.open, self.ugly = (rng.random() < p for p in (0.05, 0.08, 0.2))

    def mark(self) -> tuple[int, ...]:
        """The state where the graph stands, for `back`."""
        return tuple(map(len, (self.nodes, self.inits, self.inputs, self.values, self.apart)))

    def back(self, mark: tuple[int, ...]) -> None:
        """Drop what was added since."""
        for things, n in zip((self.nodes, self.inits, self.inputs, self.values, self.apart), mark):
            del things[n:]

    # --- drawing

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def dim(self) -> int:
        return 0 if self.empty and self.chance(0.08) else self.rng.choice(DIMS)

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        """A random shape of few elements."""
        rank = self.rng.choices(range(7), (1, 2, 4, 4, 5, 1, 1))[0] if rank is None else rank
        dims = [self.dim() for _ in range(rank)]
        while math.prod(dims) > SMALL:
            dims[dims.index(max(dims))] = self.rng.choice((1, 2, 3))
        return tuple(dims)

    def axis(self, x: Value, low: int = 0) -> int:
        """An axis of a value, counted from either end."""
        if x.rank <= low:
            raise Stuck
        axis = self.rng.randrange(low, x.rank)
        return axis - x.rank if self.opset >= 11 and self.chance(0.4) else axis

    # --- names

    def name(self, stem: str = "t") -> str:
        """A name that is new: plain, as exporters write them, or ugly."""
        n = len(self.used)
        kinds = [f"{stem}{n}", f"/layers.{n}/{stem}/{stem}_output_0", str(n)]
        ugly = [f"{stem} {n}", f"{stem}:{n}", f"é{stem}{n}", f'"{n}', f"%{n}", f"main.{n}", f"ln.{stem}{n}",
                f"{stem}[{n}]", f"'{n}'", f"{stem}\\{n}", f"${{{n}}}", f"#{n}", stem + "x" * 300 + str(n), f"{n}-{stem}", f"-{n}", f"@{n}"]  # fmt: skip
        name = self.rng.choice(ugly if self.ugly and self.chance(0.4) else kinds)
        self.used.add(name)
        return name if len(self.used) > n else self.name(stem)

    # --- leaves

    def numbers(self, dtype: str, shape: Sequence[int], lo: float = -2.0, hi: float = 2.0) -> np.ndarray:
        """Elements within an interval, some equal, some at its ends."""
        kind = DTYPES[dtype][1]
        if dtype == "i1":
            return self.data.random(shape) < 0.5
        if dtype not in FLOATS:
            return self.data.integers(int(lo), int(hi), size=shape, endpoint=True).astype(kind)
        x = self.data.uniform(lo, hi, shape)
        if self.chance(0.15):
            x = np.clip(np.round(x * 4) / 4, lo, hi)
        return np.asarray(x, kind)

    def ends(self, dtype: str) -> tuple[float, float]:
        """The interval that new data of a type is drawn from."""
        return {"i1": (0, 1), "ui8": (0, 20), "i8": (-9, 9)}.get(dtype, (-5, 5) if dtype[0] == "i" else (-2.0, 2.0))

    def input(self, dtype: str, shape: Sequence[int], lo: float | None = None, hi: float | None = None) -> Value:
        """A graph input, which each call feeds; in a region, a tensor of the graph outside."""
        ends = self.ends(dtype)
        x = Value(self.name("in"), dtype, tuple(shape), *(e if v is None else v for v, e in zip((lo, hi), ends)))
        root = self
        while root.outer:
            root = root.outer
            root.values.append(x)
        root.inputs.append(x)
        self.values.append(x)
        return x

    def const(self, array: Any, dtype: str | None = None) -> Value:
        """A parameter: an initializer, a Constant node, or one behind an Identity."""
        dtype = dtype or self.main
        array = np.asarray(array, DTYPES[dtype][1])
        lo, hi = (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)
        x = Value(self.name("w"), dtype, array.shape, lo, hi)
        how = self.rng.choices(("init", "constant", "identity"), (6, 3, 1))[0]
        if self.outer and self.opset < 9:  # IR version 3 knows no initializers that are no inputs
            how = "constant"
        if how == "init":
            self.inits.append(numpy_helper.from_array(array, x.name))
        elif how == "constant":
            self.nodes.append(helper.make_node("Constant", [], [x.name], value=numpy_helper.from_array(array)))
        else:
            source = self.name("w")
            self.inits.append(numpy_helper.from_array(array, source))
            self.nodes.append(helper.make_node("Identity", [source], [x.name]))
        return x

    def param(self, shape: Sequence[int], lo: float = -1.0, hi: float = 1.0, dtype: str | None = None) -> Value:
        """A parameter of random elements; at times an input is used as one."""
        dtype = dtype or self.main
        if not self.outer and self.chance(0.08):
            return self.input(dtype, shape, lo, hi)
        return self.const(self.numbers(dtype, shape, lo, hi), dtype)

    def ints(self, numbers: Iterable[int] | int) -> Value:
        """Integers that decide a shape: a constant, or arithmetic on shapes that comes to the same."""
        array = np.asarray(numbers if isinstance(numbers, int) else list(numbers), np.int64)
        if array.ndim == 1 and array.size and self.chance(0.15):
            return self._computed(array)
        return self.const(array, "i64")

    def _computed(self, array: np.ndarray) -> Value:
        """`array` from the shape of a value: those elements that are one of its dims are gathered."""
        x = self.rng.choice(self.values or [self.input(self.main, self.shape(2))])
        dims = self.add("Shape", [x], "i64", (x.rank,), 0, 9)
        parts = []
        for n in array.tolist():
            if n in x.shape:
                at = self.const([x.shape.index(n)], "i64")
                parts.append(self.add("Gather", [dims, at], "i64", (1,), 0, 9, axis=0))
            else:
                parts.append(self.const([n], "i64"))
        return self.add("Concat", parts, "i64", array.shape, -9, 9, axis=0)

    # --- picking

    def pick(self, dtypes: Sequence[str] | str | None = None, rank: int | tuple[int, int] | None = None,
             where: Callable[[Value], bool] = lambda x: True, size: int = SMALL) -> Value:  # fmt: skip
        """A value of one of `dtypes`, of a rank (or from .. to): a late one rather than an early one, or a new input."""
        dtypes = (self.main,) if dtypes is None else (dtypes,) if isinstance(dtypes, str) else dtypes
        low, high = (0, 6) if rank is None else (rank, rank) if isinstance(rank, int) else rank
        fits = [x for x in self.values if x.dtype in dtypes and low <= x.rank <= high and x.size <= size and where(x)]
        if fits and not self.chance(0.1):
            return fits[max(self.rng.randrange(len(fits)), self.rng.randrange(len(fits)))]
        dtype = self.main if self.main in dtypes else self.rng.choice(list(dtypes))
        for _ in range(5):
            shape = self.shape(self.rng.randint(low, min(high, max(low, 4))))
            if where(Value("", dtype, shape, *self.ends(dtype))):
                return self.input(dtype, shape)
        raise Stuck

    def like(self, x: Value) -> Value:
        """A value that broadcasts with `x`: one that there is, a parameter, or `x`."""
        fits = [
            y for y in self.values if y.dtype == x.dtype and y.size <= SMALL and _joint(x.shape, y.shape) is not None
        ]
        if fits and self.chance(0.6):
            return self.rng.choice(fits)
        shape = [1 if self.chance(0.3) else d for d in x.shape][self.rng.choice((0, 0, x.rank // 2)) :]
        return self.param(shape, *self.ends(x.dtype), dtype=x.dtype)

    # --- nodes

    def add(
        self,
        op: str,
        inputs: Sequence[Value | None],
        dtype: str,
        shape: Sequence[int],
        lo: float,
        hi: float,
        **attrs: Any,
    ) -> Value:
        """A node of one result."""
        return self.multi(op, inputs, [(dtype, shape, lo, hi)], **attrs)[0]

    def multi(self, op: str, inputs: Sequence[Value | None], results: Sequence[tuple[str, Sequence[int], float, float] | None],
              **attrs: Any) -> list[Value]:  # fmt: skip
        """A node; None among its inputs and results is what is left out."""
        if any(r is not None and math.prod(r[1]) > LARGE for r in results):
            raise Stuck
        outs = [
            None if r is None else Value(self.name(op.lower()), r[0], tuple(int(d) for d in r[1]), *map(float, r[2:]))
            for r in results
        ]
        names = ["" if x is None else x.name for x in inputs]
        while names and not names[-1] and self.chance(0.7):
            names.pop()
        domain = attrs.pop("domain", "")
        attrs = {k: v for k, v in attrs.items() if v is not None}
        node_name = self.rng.choice(("", self.name(op), self.name(f"/{op}")))
        self.nodes.append(
            helper.make_node(op, names, [y.name if y else "" for y in outs], node_name, domain=domain, **attrs)
        )
        kept = [self._bounded(y) for y in outs if y is not None]
        self.values += kept
        return kept

    def _bounded(self, y: Value) -> Value:
        """`y`, or what squashes it where its elements may be large."""
        if y.dtype in FLOATS and y.reach > BOUND:
            op = self.rng.choice(("Tanh", "Mul", "Clip", "Sigmoid", "Softsign")) if y.reach < 1e6 else "Tanh"
            if op == "Mul":
                return self._plain("Mul", [y, self.const(1.0 / y.reach, y.dtype)], y, -1.0, 1.0)
            if op == "Clip":
                ends = (-3.0, 3.0)
                if self.opset < 11:
                    return self._plain("Clip", [y], y, *ends, min=ends[0], max=ends[1])
                return self._plain("Clip", [y, *(self.const(e, y.dtype) for e in ends)], y, *ends)
            return self._plain(op, [y], y, 0.0 if op == "Sigmoid" else -1.0, 1.0)
        if y.dtype in ("i32", "i64") and y.reach > 1e6:
            return self._plain("Mod", [y, self.const(97, y.dtype)], y, 0, 96) if self.opset >= 10 else y
        return y

    def _plain(self, op: str, inputs: Sequence[Value], like: Value, lo: float, hi: float, **attrs: Any) -> Value:
        out = Value(self.name(op.lower()), like.dtype, like.shape, lo, hi)
        self.nodes.append(helper.make_node(op, [x.name for x in inputs], [out.name], **attrs))
        return out

    # --- the end

    def graph(self, name: str, inputs: Sequence[Value], outputs: Sequence[Value]) -> onnx.GraphProto:
        """The body of a region."""
        info = [_info(x, x.shape) for x in inputs]
        return helper.make_graph(self.nodes, name, info, [_info(x, x.shape) for x in outputs], self.inits)

    def model(self, seed: int) -> bytes:
        """The model's bytes: outputs are some of what nobody reads, and at times what somebody does, or an input."""
        read = {n for node in self.nodes for n in node.input}
        made = [x for x in self.values if x.name not in {i.name for i in self.inputs}]
        ends = [x for x in made if x.name not in read]
        outputs = self.rng.sample(ends, max(1, min(len(ends), 4) - self.chance(0.2))) if ends else made[-1:]
        if made and self.chance(0.25):
            outputs += [x for x in self.rng.sample(made, min(2, len(made))) if x not in outputs]
        if self.inputs and self.chance(0.04):
            outputs.append(self.rng.choice(self.inputs))
        outputs += self.apart
        if not outputs:
            outputs = [self.add("Identity", [self.pick()], self.main, (), -2, 2)]
        open_dims = {}
        if self.open and self.inputs:
            x = self.rng.choice(self.inputs)
            open_dims[x.name] = [f"d{i}" if self.chance(0.5) else d for i, d in enumerate(x.shape)]
        inputs = [_info(x, open_dims.get(x.name, x.shape)) for x in self.inputs]
        if self.chance(0.1) or self.opset < 9:  # as IR version 3 has it, every initializer is an input, too
            inputs += [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in self.inits]
        infos = [
            _info(x, x.shape if self.chance(0.7) and not open_dims and x not in self.apart else None)
            for x in dict.fromkeys(outputs)
        ]
        graph = helper.make_graph(
            self.nodes, self.rng.choice(("g", "main_graph", "torch-jit-export")), inputs, infos, self.inits
        )
        opsets = [helper.make_opsetid("", self.opset)]
        model = helper.make_model(
            graph, opset_imports=opsets, ir_version=min(10, helper.find_min_ir_version_for(opsets))
        )
        helper.set_model_props(
            model, {"seed": str(seed), "ranges": json.dumps({x.name: [x.lo, x.hi, list(x.shape)] for x in self.inputs})}
        )
        return model.SerializeToString()


def _info(x: Value, shape: Sequence[Any] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(x.name, DTYPES[x.dtype][0], shape)


def _joint(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...] | None:
    try:
        shape = np.broadcast_shapes(tuple(a), tuple(b))
    except ValueError:
        return None
    return shape if math.prod(shape) <= SMALL and len(shape) <= 6 else None


def joint(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    """The shape that two broadcast to. Raises `Stuck` where they do not, or to something large."""
    shape = _joint(a, b)
    if shape is None:
        raise Stuck
    return shape
