"""Random networks from the op table, for property tests: a Hypothesis strategy that draws ops whose operands can take the
tensors there are, parameters within the bounds of the schema, and new sources where no tensor fits.

What the table cannot say stands here: how the shapes of weights follow from the data's (`PARAM_SHAPES`), and which ops turn
a rounding error into another result (`SHARP`): they get exact operands only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Region, SSAValue

from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.dialect import optypes
from lightnet.ir import constants
from lightnet.ir.constraints import check_op, constant_env
from lightnet.ir.op import LnOp
from lightnet.ir.schema import Operand, Param
from lightnet.ir.types import TensorSpec, spec_of
from lightnet.runtime.dtypes import BY_NAME
from lightnet.runtime.initial import sample

OPS = {name: cls for name, cls in optypes().items() if name not in ("create", "input", "param", "print", "fprint")}
DTYPES = ("f32", "f32", "f32", "f64", "i32", "ui8", "i8", "i64", "i1")
MAX_LEN = 700  # elements of a tensor
EMPTY = 20  # one tensor in so many is empty

#: Ops whose result jumps where the operand changes little, and the operands concerned.
SHARP = {"maxreduce_arg", "sort1d", "sort1d_by_key", "submean"}
#: Ops that keep exact tensors exact (beside moves and integer arithmetic).
EXACT = {"relu", "maxreduce", "maxreduce_arg", "maxpool2d", "resize", "upsample", "zeros", "arange", "rearange", "sort1d",
         "sort1d_by_key", "pick1d"}  # fmt: skip


def _conv(t: dict[str, TensorSpec], p: dict[str, Any], draw: Any) -> dict[str, tuple[int, ...]]:
    channels = t["src"].dims[1]
    p["group"] = draw(st.sampled_from([g for g in (1, 2, 3, channels or 1) if channels % g == 0]))
    out = p["group"] * draw(st.integers(1, 3))
    return {"weight": (out, channels // p["group"], *p["size"]), "bias": (out,)}


def _deconv(t: dict[str, TensorSpec], p: dict[str, Any], draw: Any) -> dict[str, tuple[int, ...]]:
    channels = t["src"].dims[1]
    p["group"] = draw(st.sampled_from([g for g in (1, 2, channels or 1) if channels % g == 0]))
    p["output_dims"] = (0, 0, 0, 0)
    p["autopad"] = draw(st.sampled_from(["NOTSET", "VALID"]))
    out = draw(st.integers(1, 3))
    return {"weight": (channels, out, *p["size"]), "bias": (out * p["group"],)}


def _concat(t: dict[str, TensorSpec], p: dict[str, Any], draw: Any) -> dict[str, tuple[int, ...]]:
    dims, axis = t["src1"].dims, p["axis"]
    return {f"src{k}": (*dims[:axis], draw(st.integers(1, 4)), *dims[axis + 1 :]) for k in (2, 3)}


#: Operands whose shape follows from the earlier ones and from parameters (which may be changed to fit).
PARAM_SHAPES: dict[str, Callable[..., dict[str, tuple[int, ...]]]] = {
    "conv2d": _conv,
    "deconv2d": _deconv,
    "batchnorm": lambda t, p, draw: dict.fromkeys(("scale", "offset", "mean", "var"), (t["src"].dims[1],)),
    "detect_yolov3": lambda t, p, draw: {"anchors": (2, 2)},
    "concat": _concat,
}
#: Shapes of first operands that chance would not find.
SHAPES = {
    "detect_yolov3": lambda draw: (
        1,
        2 * (5 + draw(st.integers(1, 2))),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 3)),
    ),
    "transform_bboxSQD": lambda draw: (1, draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 2)), 4),
    "submean": lambda draw: (draw(st.integers(1, 4)), draw(st.integers(1, 4)), 3),
}


class Impossible(Exception):
    """No op of the kind fits here."""


@dataclass
class Network:
    """A level-1 module under construction, its data, and which tensors hold exact numbers."""

    block: Block = field(default_factory=Block)
    values: list[SSAValue] = field(default_factory=list)
    exact: set[SSAValue] = field(default_factory=set)
    feeds: dict[str, np.ndarray] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    netlist: bool = False
    gone: set[SSAValue] = field(default_factory=set)  # overwritten

    def number(self, optype: str) -> str:
        self.counts[optype] = self.counts.get(optype, -1) + 1
        return f"{optype}{self.counts[optype]}"

    def source(self, spec: TensorSpec, kind: str) -> SSAValue:
        name = self.number("create")
        tensor = f"t_{name}"
        params = {"dtype": spec.dtype.tl, "dims": spec.dims, "ran": (0, 0), "data": (0,), "from_file": True}
        op = optypes()["create"].make([], params, name=name, tensors=[tensor])
        self.block.add_op(op)
        self.feeds[tensor] = sample(tensor, kind, spec.dims, spec.dtype)
        self.values.append(op.results[0])
        self.exact.add(op.results[0])
        return op.results[0]

    def add(self, cls: type[LnOp], operands: list[SSAValue], params: dict[str, Any]) -> None:
        name = self.number(cls.optype)
        op = cls.make(operands, params, name=name)
        op.attributes.update(_named(op, name))
        self.block.add_op(op)
        self.values += op.results
        if any(r.overwrites for r in cls.schema.results):
            self.gone.update(operands)
        exact = all(o in self.exact for o in operands)
        for value in op.results:
            integer = not spec_of(value.type).dtype.is_float
            if (exact and (cls.is_move or cls.optype in EXACT)) or (integer and cls.optype not in SHARP):
                self.exact.add(value)

    def module(self) -> ModuleOp:
        """The module; every tensor that nobody reads is returned."""
        outputs = [v for v in self.values if v.first_use is None]
        self.block.add_op(func.ReturnOp(*outputs))
        return ModuleOp([func.FuncOp("main", ((), [v.type for v in outputs]), Region(self.block))])


def _named(op: LnOp, name: str) -> dict[str, Any]:
    from xdsl.dialects.builtin import ArrayAttr, StringAttr

    names = [f"{name}_{r}" for r in op.arg_names()[1]]
    for value, hint in zip(op.results, names):
        value.name_hint = hint
    return {"ln.tensors": ArrayAttr([StringAttr(n) for n in names])}


class Drawn(NamedTuple):
    """A level-1 module, and data by tensor name."""

    module: ModuleOp
    feeds: dict[str, np.ndarray]

    def __repr__(self) -> str:
        return f"\n{self.module}"


@st.composite
def networks(draw: Any, max_ops: int = 8, netlist: bool = False) -> Drawn:
    """Networks of at most `max_ops` ops beside their sources. `netlist`: such as a netlist can say, where `sort1d` and the
    like write their source, so that nothing else reads it."""
    net = Network(netlist=netlist)
    for _ in range(draw(st.integers(1, max_ops))):
        for _ in range(4):
            try:
                _draw_op(net, OPS[draw(st.sampled_from(sorted(OPS)))], draw)
                break
            except (Impossible, LightNetError):  # try another op
                continue
    if not net.values:
        net.source(TensorSpec((2,), BY_NAME["f32"]), "data")
    return Drawn(net.module(), net.feeds)


def _draw_op(net: Network, cls: type[LnOp], draw: Any) -> None:
    """Draw an op of a class. New sources are made only when its types are known to be right."""
    chosen: list[SSAValue | tuple[TensorSpec, str]] = []  # a tensor there is, or a source to make
    tensors: dict[str, TensorSpec] = {}
    params: dict[str, Any] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    drawn = cls.optype in PARAM_SHAPES
    fields = [(f, k) for f in cls.schema.operands for k in range(draw(st.integers(1, 3)) if f.variadic else 1)]
    for i, (f, k) in enumerate(fields):
        if i == 1 and drawn:
            params = _draw_params(cls, tensors, params, draw)
            shapes = PARAM_SHAPES[cls.optype](tensors, params, draw)
        value = _draw_operand(net, cls, f, k, tensors, shapes, draw)
        chosen.append(value)
        arg = f"{f.name}{k + 1}" if f.variadic else f.name
        tensors[arg] = value[0] if isinstance(value, tuple) else spec_of(value.type)
    if not drawn or len(fields) == 1:
        params = _draw_params(cls, tensors, params, draw)
    specs = list(tensors.values())
    results = check_op(cls, specs, dict(params))
    if sum(r.len for r in results) > MAX_LEN or sum(r.dtype.size for r in results) > 256:
        raise Impossible
    net.add(cls, [net.source(*v) if isinstance(v, tuple) else v for v in chosen], params)


def _draw_operand(
    net: Network,
    cls: type[LnOp],
    f: Operand,
    k: int,
    tensors: dict[str, TensorSpec],
    shapes: dict[str, tuple[int, ...]],
    draw: Any,
) -> SSAValue | tuple[TensorSpec, str]:
    same_type, same_shape = (None, None) if f.variadic and not k else (f.same_type, f.same_shape)
    dtypes = (
        {tensors[same_type].dtype.name}
        if same_type
        else set(f.dtypes or {"f32", "f64", "i32", "ui8", "i8", "i64", "i1"})
    )
    if cls.optype in ("conv2d", "deconv2d", "dot_product", "lrelu") and not same_type:
        dtypes &= {"f32", "f64", "i32"}
    dims = tensors[same_shape].dims if same_shape else shapes.get(f"{f.name}{k + 1}" if f.variadic else f.name)
    first = not tensors and cls.optype in SHAPES
    fresh = f.kind in ("scale", "variance", "anchor") or (cls.optype == "elew" and tensors and "f" in "".join(dtypes))

    overwrites = any(r.overwrites and r.owner == f.name for r in cls.schema.results)

    def fits(v: SSAValue) -> bool:
        spec = spec_of(v.type)
        if net.netlist and (v in net.gone or (overwrites and v.first_use is not None)):
            return False
        return (
            spec.dtype.name in dtypes
            and (f.rank is None or spec.ndim == f.rank)
            and spec.ndim >= f.min_rank
            and (dims is None or spec.dims == dims)
            and (cls.optype not in SHARP or v in net.exact)
        )

    there = [v for v in net.values if fits(v)] if not fresh and not first else []
    if there and draw(st.integers(0, 3)):
        return draw(st.sampled_from(there))
    if dims is None:
        rank = f.rank or draw(st.integers(f.min_rank, 5))
        dims = SHAPES[cls.optype](draw) if first else _draw_dims(rank, draw)
    if math.prod(dims) > MAX_LEN:
        raise Impossible
    dtype = draw(st.sampled_from([d for d in DTYPES if d in dtypes] or sorted(dtypes)))
    return TensorSpec(dims, BY_NAME[dtype]), "scale" if fresh and f.kind == "data" else f.kind


def _draw_dims(rank: int, draw: Any) -> tuple[int, ...]:
    """Dims of at most MAX_LEN elements, ones among them, and now and then a zero."""
    largest = {1: 40, 2: 20, 3: 7}.get(rank, 5 if rank == 4 else 3)
    dims = draw(st.lists(st.integers(1, largest), min_size=rank, max_size=rank))
    if dims and draw(st.integers(0, EMPTY)) == EMPTY:
        dims[draw(st.integers(0, rank - 1))] = 0
    return tuple(dims)


def _draw_params(cls: type[LnOp], tensors: dict[str, TensorSpec], given: dict[str, Any], draw: Any) -> dict[str, Any]:
    params = dict(given)
    if cls.optype in ("arange", "rearange"):
        start, step = draw(st.integers(0, 3)), draw(st.sampled_from([1, 2, 3]))
        count = tensors["src"].len if tensors else draw(st.integers(1, 20))
        params = {"start": start, "step": step, "stop": start + step * count}
    for p in cls.schema.params:
        if p.name not in params:
            env = constant_env(cls, list(tensors.values()), params)
            params[p.name] = _draw_param(cls, p, tensors, env, draw)
    return params


def _draw_param(cls: type[LnOp], p: Param, tensors: dict[str, TensorSpec], env: Any, draw: Any) -> Any:
    src = next(iter(tensors.values()), None)
    if p.kind == "string":
        return draw(st.sampled_from([c for c in p.choices if c not in ("TL_LINEAR", "TL_BOOL")] or ["x"]))
    if p.kind == "bool":
        return draw(st.booleans())
    if p.name == "axes" and src is not None:
        return tuple(draw(st.permutations(range(src.ndim))))
    if cls.optype == "reshape" and src is not None:
        return _factors(src.len, draw)
    if p.kind == "number":
        return draw(_in_bounds(p, env))
    count = constants.evaluate(p.length, env) if isinstance(p.length, str) else p.length
    if count is None:
        count = src.ndim if src is not None else draw(st.integers(1, 5))
    return tuple(draw(st.lists(_in_bounds(p, env), min_size=count, max_size=count)))


def _in_bounds(p: Param, env: Any) -> st.SearchStrategy[Any]:
    low, high = -2.0, 4.0
    for op, bound in p.bounds:
        value = constants.evaluate(bound, env) if isinstance(bound, str) else bound
        if op in ("ge", "gt"):
            low = max(low, value + (op == "gt") * (1 if p.realtype == "int" else 0.25))
        elif op in ("le", "lt"):
            high = min(high, value - (op == "lt"))
    if p.realtype == "int":
        return st.integers(math.ceil(low), max(math.ceil(low), int(high)))
    return st.sampled_from([v for v in (low, 0.25, 0.5, 1.0, 1.5, 2.0, -0.5, high) if low <= v <= high])


def _factors(n: int, draw: Any) -> tuple[int, ...]:
    """Dims that hold n elements."""
    if not n:
        return (*draw(st.lists(st.integers(0, 3), max_size=2)), 0)
    dims = []
    while len(dims) < 4 and draw(st.booleans()):
        d = draw(st.sampled_from([d for d in range(1, n + 1) if n % d == 0]))
        dims.append(d)
        n //= d
    return (*dims, n) if n > 1 or draw(st.booleans()) else tuple(dims)
