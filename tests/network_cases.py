"""Random networks for whole-compiler tests: a level-1 module of some size, in which everything that is awkward occurs.

Ops are drawn and run by their references at once, so that magnitudes stay bounded. A value is *exact* if every
implementation must give the same bits; only such values are printed, and only they decide an order, an index or a pick.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

import numpy as np
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, SSAValue

from lightnet.dialects.ln.conv import Conv2d, Deconv2d
from lightnet.dialects.ln.detection import Submean
from lightnet.dialects.ln.effect import Print
from lightnet.dialects.ln.elementwise import Elew, Lrelu, Relu, Sigmoid
from lightnet.dialects.ln.move import Concat, Forward, Gather, Reshape, Scatter, Slice, Transpose
from lightnet.dialects.ln.norm import Batchnorm, Softmax
from lightnet.dialects.ln.pool import Avgpool2d, Maxpool2d
from lightnet.dialects.ln.reduce import DotProduct, Maxreduce, MaxreduceArg
from lightnet.dialects.ln.resize import Resize, Upsample
from lightnet.dialects.ln.sort import Pick1d, Sort1d, Sort1dByKey
from lightnet.dialects.ln.source import Arange, Create, Rearange, Zeros
from lightnet.ir.op import ConstraintError, LnOp
from lightnet.ir.types import TensorSpec, spec_of, tensor_type
from lightnet.model import Model
from lightnet.runtime.dtypes import BY_NAME

#: Nothing larger is kept: elements, and absolute values.
MAX_ELEMENTS, MAX_VALUE = 6000, 1e3
_INTS = ("i32", "i8", "ui8", "i16", "ui32", "i64", "ui64", "ui16")


@dataclass
class Network:
    """A module under construction; `values` in order, with what each holds."""

    rng: np.random.Generator
    block: Block = field(default_factory=Block)
    arrays: dict[SSAValue, np.ndarray] = field(default_factory=dict)
    exact: set[SSAValue] = field(default_factory=set)
    feeds: set[str] = field(default_factory=set)
    serial: int = 0

    # -- drawing

    def pick(self, *choices):
        return choices[int(self.rng.integers(len(choices)))]

    def value(self, wanted: Callable[[SSAValue], bool]) -> SSAValue | None:
        """A value that is `wanted`, preferably a late one."""
        found = [v for v in self.arrays if wanted(v)]
        if not found:
            return None
        return found[-1 - min(int(self.rng.exponential(4)), len(found) - 1)]

    def factor(self, n: int) -> int:
        return self.pick(*[d for d in range(1, n + 1) if n % d == 0])

    # -- building

    def add(self, cls: type[LnOp], operands=(), params=None, exact: bool | None = None) -> list[SSAValue]:
        """One op; [] where it is refused, or its results are too large."""
        operands, params = list(operands), dict(params or {})
        names = [f"t{self.serial + k}" for k in range(64)]
        try:
            op = cls.make(operands, params, name=f"{cls.optype}{self.serial}")
        except ConstraintError:
            return []
        if len(op.results) > 6 or (cls is not Create and any(not 0 < s.len <= MAX_ELEMENTS for s in op.result_specs)):
            return []  # (`empty_ops` has what is empty)
        if isinstance(op, Create):
            op = cls.make(operands, params, name=f"{cls.optype}{self.serial}", tensors=names[:1])
            results = [op.contents(None, 0)]
        else:
            op = cls.make(operands, params, name=f"{cls.optype}{self.serial}", tensors=names[: len(op.results)])
            results = op.evaluate([self.arrays[v] for v in operands])
        for r in results:
            if r.dtype.kind == "f" and not (np.isfinite(r).all() and np.abs(r).max() < MAX_VALUE):
                return []
        self.block.add_op(op)
        self.serial += len(results)
        self.arrays.update(zip(op.results, results))
        if exact if exact is not None else all(v in self.exact for v in operands):
            self.exact.update(op.results)
        return list(op.results)

    def create(self, dims, dtype="f32", low=-1.0, high=1.0) -> SSAValue:
        d = BY_NAME[dtype]
        if not d.is_float:
            low, high = (0, 5) if d.kind != "int" else (-4, 5)
        tensors = self.add(Create, (), {"dtype": d.tl, "dims": tuple(dims), "ran": (low, high)}, exact=True)
        return tensors[0]


def is_float(v: SSAValue) -> bool:
    return spec_of(v.type).dtype.is_float


def picture(v: SSAValue) -> bool:
    return is_float(v) and spec_of(v.type).ndim == 4


# -- the moves a network is made of; each adds a few ops or nothing


def _input(net: Network) -> None:
    rank = net.pick(1, 2, 3, 4, 4, 4, 4, 5)
    dims = [net.pick(1, 2, 3, 4, 5, 6, 8) for _ in range(rank)]
    if rank == 4:
        dims = [net.pick(1, 1, 1, 2), net.pick(1, 2, 4, 6, 8), net.pick(1, 5, 6, 8), net.pick(1, 5, 8, 12)]
    net.create(dims, net.pick("f32", "f32", "f32", "f32", "f64", *_INTS, "i1"))


def _unary(net: Network) -> None:
    cls = net.pick(Relu, Relu, Lrelu, Sigmoid, Forward)
    v = net.value(is_float if cls is Sigmoid else lambda v: True)
    if v is not None:
        params = {"negslope": net.pick(0.1, 2, 1, -0.5)} if cls is Lrelu else {}
        net.add(cls, [v], params, exact=v in net.exact and cls is not Sigmoid)


def _binary(net: Network) -> None:
    a = net.value(lambda v: True)
    assert a is not None
    spec = spec_of(a.type)
    b = net.value(lambda v: v.type == a.type)
    if net.rng.random() < 0.15:
        b = net.create(spec.dims, spec.dtype.name)
    op = net.pick("TL_SUM", "TL_SUM", "TL_SUB", "TL_MUL", "TL_MAX", "TL_MIN", *([] if is_float(a) else ["TL_DIV"]))
    net.add(Elew, [a, b], {"elew_op": op})


def _param(net: Network, dims, dtype, low, high) -> SSAValue:
    """A param; sometimes made by an op of params, or shared."""
    wanted = tensor_type(TensorSpec(tuple(dims), BY_NAME[dtype]))
    same = net.value(lambda v: v.type == wanted and isinstance(v.owner, Create))
    if same is not None and net.rng.random() < 0.1 and low < 0:
        return same
    if net.rng.random() < 0.1 and low < 0:
        if made := net.add(Zeros, (), {"dims": dims, "dtype": BY_NAME[dtype].tl}, exact=True):
            return made[0]
    if net.rng.random() < 0.15 and prod(dims) <= MAX_ELEMENTS:
        flat = net.create((prod(dims),), dtype, low, high)
        return net.add(Reshape, [flat], {"dims": dims})[0]
    return net.create(dims, dtype, low, high)


def _window(net: Network) -> None:
    v = net.value(picture)
    if v is None:
        return
    spec, cls = spec_of(v.type), net.pick(Conv2d, Conv2d, Conv2d, Deconv2d, Maxpool2d, Avgpool2d)
    size, stride = (net.pick(1, 1, 2, 3), net.pick(1, 1, 2, 3)), (net.pick(1, 1, 2), net.pick(1, 1, 2))
    pad = tuple(net.pick(0, size[i % 2] // 2) for i in range(4))
    params: dict = {"size": size, "stride": stride, "padding": pad,
                    "autopad": net.pick("NOTSET", "NOTSET", "NOTSET", "SAME_UPPER", "VALID")}  # fmt: skip
    if cls in (Maxpool2d, Avgpool2d):
        net.add(cls, [v], params, exact=v in net.exact and cls is Maxpool2d)
        return
    if net.rng.random() < 0.4:  # keeps the shape: residual chains
        params |= {"size": (3, 3), "stride": (1, 1), "padding": (1, 1, 1, 1), "autopad": "NOTSET"}
    c, name = spec.dims[1], spec.dtype.name
    group = net.factor(c) if net.rng.random() < 0.3 else 1
    out = group * net.pick(1, 2, 3) if group > 1 else net.pick(c, c, 1, 2, 5, 8, 17)
    if cls is Deconv2d and params["autopad"] == "SAME_UPPER":
        params["autopad"] = "NOTSET"
    dims = (out, c // group, *params["size"]) if cls is Conv2d else (c, out // group, *params["size"])
    bound = float(1.7 / np.sqrt(c // group * prod(params["size"])))
    weight, bias = _param(net, dims, name, -bound, bound), _param(net, (out,), name, -0.1, 0.1)
    net.add(cls, [v, weight, bias], {"group": group, **params}, exact=False)


def _block(net: Network) -> None:
    """conv -> batchnorm -> residual -> activation, or a part of it."""
    v = net.value(picture)
    if v is None:
        return
    spec = spec_of(v.type)
    c, name = spec.dims[1], spec.dtype.name
    k = net.pick(1, 3)
    bound = float(1.7 / np.sqrt(c * k * k))
    weight, bias = _param(net, (c, c, k, k), name, -bound, bound), _param(net, (c,), name, -0.1, 0.1)
    found = net.add(Conv2d, [v, weight, bias], {"size": (k, k), "padding": (k // 2,) * 4}, exact=False)
    if found and net.rng.random() < 0.7:
        found = _norm_of(net, found[0])
    if found and net.rng.random() < 0.6:
        found = net.add(
            Elew, [found[0], v] if net.rng.random() < 0.5 else [v, found[0]], {"elew_op": "TL_SUM"}, exact=False
        )
    if found:
        net.add(net.pick(Relu, Sigmoid), found, exact=False)


def _norm_of(net: Network, v: SSAValue) -> list[SSAValue]:
    spec = spec_of(v.type)
    vectors = [_param(net, (spec.dims[1],), spec.dtype.name, low, high)
               for low, high in ((0.5, 1.5), (-0.1, 0.1), (-0.1, 0.1), (0.5, 1.5))]  # fmt: skip
    return net.add(Batchnorm, [v, *vectors], {"epsilon": 1e-3}, exact=False)


def _norm(net: Network) -> None:
    v = net.value(picture)
    if v is not None:
        _norm_of(net, v)


def _softmax(net: Network) -> None:
    v = net.value(is_float)
    if v is not None:
        net.add(Softmax, [v], {"axis": int(net.rng.integers(spec_of(v.type).ndim))}, exact=False)


def _concat(net: Network) -> None:
    a = net.value(lambda v: True)
    assert a is not None
    spec = spec_of(a.type)
    axis = int(net.rng.integers(spec.ndim))

    def fits(v: SSAValue) -> bool:
        other = spec_of(v.type)
        return other.dtype == spec.dtype and other.ndim == spec.ndim and all(
            x == y for k, (x, y) in enumerate(zip(spec.dims, other.dims)) if k != axis)  # fmt: skip

    net.add(Concat, [a, net.value(fits)], {"axis": axis})


def _slices(net: Network) -> None:
    """A slice, or all pieces of an axis, perhaps joined again."""
    v = net.value(lambda v: True)
    assert v is not None
    dims = spec_of(v.type).dims
    axis = int(net.rng.integers(len(dims)))
    n = dims[axis]
    cut = int(net.rng.integers(0, n))
    first = net.add(Slice, [v], {"axis": axis, "start": cut, "len": n - cut})
    if cut and net.rng.random() < 0.6:
        second = net.add(Slice, [v], {"axis": axis, "start": 0, "len": cut})
        if net.rng.random() < 0.6:
            net.add(Concat, [*second, *first] if net.rng.random() < 0.5 else [*first, *second], {"axis": axis})


def _reshape(net: Network) -> None:
    v = net.value(lambda v: True)
    assert v is not None
    n = spec_of(v.type).len
    dims = []
    for _ in range(net.pick(1, 1, 2, 3, 4, 4)):
        dims.append(net.factor(n // prod(dims)))
    dims.append(n // prod(dims))
    net.add(Reshape, [v], {"dims": tuple(dims)})


def _transpose(net: Network) -> None:
    v = net.value(lambda v: spec_of(v.type).ndim > 1)
    if v is not None:
        net.add(Transpose, [v], {"axes": tuple(int(a) for a in net.rng.permutation(spec_of(v.type).ndim))})


def _shuffle(net: Network) -> None:
    v = net.value(picture)
    if v is None:
        return
    n, c, h, w = spec_of(v.type).dims
    g = net.factor(c)
    a = net.add(Reshape, [v], {"dims": (n, g, c // g, h, w)})
    b = net.add(Transpose, a, {"axes": (0, 2, 1, 3, 4)})
    net.add(Reshape, b, {"dims": (n, c, h, w)})


def _stack(net: Network) -> None:
    v = net.value(lambda v: True)
    assert v is not None
    count = net.pick(1, 2, 2, 3)
    rest = [net.value(lambda u: u.type == v.type) for _ in range(count - 1)]
    found = net.add(Gather, [v, *rest])
    if found and net.rng.random() < 0.5:
        net.add(Scatter, found)


def _scatter(net: Network) -> None:
    v = net.value(lambda v: spec_of(v.type).ndim >= 2 and spec_of(v.type).dims[0] <= 6)
    if v is not None:
        net.add(Scatter, [v])


def _resample(net: Network) -> None:
    v = net.value(lambda v: True)
    assert v is not None
    dims = spec_of(v.type).dims
    if net.rng.random() < 0.5:
        net.add(Upsample, [v], {"scales": tuple(net.pick(1, 1, 2, 1.5) for _ in dims)})
    else:
        net.add(Resize, [v], {"dims": tuple(net.pick(d, d, max(1, d - 1), d + 2) for d in dims)})


def _reduce(net: Network) -> None:
    cls = net.pick(Maxreduce, Maxreduce, MaxreduceArg)
    v = net.value(lambda v: cls is Maxreduce or v in net.exact)
    if v is not None:
        net.add(cls, [v], {"axis": int(net.rng.integers(spec_of(v.type).ndim))})


def _dot(net: Network) -> None:
    a = net.value(lambda v: True)
    assert a is not None
    net.add(DotProduct, [a, net.value(lambda v: v.type == a.type)], exact=not is_float(a) and a in net.exact)


def _flat(net: Network, wanted: Callable[[SSAValue], bool]) -> SSAValue | None:
    v = net.value(wanted)
    if v is None or spec_of(v.type).ndim == 1:
        return v
    return net.add(Reshape, [v], {"dims": (spec_of(v.type).len,)})[0]


def _sort(net: Network) -> None:
    direction = {"dir": net.pick("TL_SORT_DIR_ASCENDING", "TL_SORT_DIR_DESCENDING")}
    if net.rng.random() < 0.4:
        v = _flat(net, lambda v: True)
        net.add(Sort1d, [v], direction)
        return
    keys = _flat(net, lambda v: v in net.exact and spec_of(v.type).dtype.kind != "bool")
    if keys is None:
        return
    n = spec_of(keys.type).len
    order = net.add(Arange, (), {"dtype": "TL_INT32", "start": 0, "stop": n, "step": 1}, exact=True)
    if net.rng.random() < 0.3:
        order = net.add(Rearange, order, {"start": 0, "stop": 2 * n, "step": 2}, exact=True)
    found = net.add(Sort1dByKey, [keys, *order], direction)
    source = _flat(net, lambda v: True)
    if found and source is not None:
        stride = net.pick(*[s for s in (1, 2, 4) if s <= spec_of(source.type).len])
        net.add(Pick1d, [source, found[1]], {"len": int(net.rng.integers(1, n + 1)), "stride": stride})


def _pick(net: Network) -> None:
    index = net.value(lambda v: spec_of(v.type).dtype.name == "i32" and spec_of(v.type).ndim == 1 and v in net.exact)
    source = _flat(net, lambda v: True)
    if index is not None and source is not None:
        net.add(Pick1d, [source, index], {"len": spec_of(index.type).len, "stride": 1})


def _constant(net: Network) -> None:
    if net.rng.random() < 0.5:
        dtype = net.pick("TL_FLOAT", "TL_INT32", "TL_BOOL", "TL_UINT8")
        net.add(
            Zeros,
            (),
            {"dims": tuple(net.pick(1, 2, 4, 5) for _ in range(net.pick(1, 2, 4))), "dtype": dtype},
            exact=True,
        )
    else:
        dtype = net.pick("TL_FLOAT", "TL_INT32", "TL_UINT8")
        net.add(
            Arange, (), {"dtype": dtype, "start": 0, "stop": net.pick(1, 7, 24), "step": net.pick(1, 2)}, exact=True
        )


def _submean(net: Network) -> None:
    picture = net.create((net.pick(1, 3, 5), net.pick(1, 4), 3), net.pick("ui8", "f32", "i32"))
    net.add(
        Submean, [picture], {"mean": (1.5, 0.25, 2), "dtype": net.pick("TL_FLOAT", "TL_INT8", "TL_DOUBLE")}, exact=True
    )


def _print(net: Network) -> None:
    v = net.value(lambda v: v in net.exact and spec_of(v.type).len < 100)
    if v is not None:
        net.block.add_op(Print.make([v], {"msg": f"print {net.serial}:"}, name=f"print_{len(net.block.ops)}"))


MOVES = (
    [_unary] * 5 + [_binary] * 6 + [_window] * 4 + [_block] * 4 + [_concat] * 3 + [_slices] * 3 + [_reshape] * 3
    + [_transpose] * 2 + [_shuffle, _stack, _stack, _scatter, _resample, _reduce, _reduce, _dot, _sort, _sort, _pick]
    + [_norm, _softmax, _constant, _constant, _submean, _print, _input]
)  # fmt: skip


def random_network(seed: int, size: int | None = None) -> ModuleOp:
    """A network of about `size` ops (8 to 90, a third of them sources): sources, ops and outputs, all named."""
    rng = np.random.default_rng(seed)
    net = Network(rng)
    size = size or int(rng.integers(8, 90))
    for _ in range(net.pick(1, 2, 3)):
        net.create((1, net.pick(2, 4, 6, 8), net.pick(1, 6, 8), net.pick(1, 8, 9)))
    moves = [MOVES[i] for i in rng.permutation(len(MOVES))[: net.pick(4, 10, len(MOVES))]]  # each has its favourites
    tries = 0
    while len(net.block.ops) < size and tries < 4 * size:
        net.pick(*moves)(net)
        tries += 1
    unused = [v for v in net.arrays if v.first_use is None]
    returned = {v for v in unused if rng.random() < 0.8 and not isinstance(v.owner, Create)}
    returned |= {v for v in net.arrays if rng.random() < 0.08}  # inner values, views of each other, inputs, params
    outputs = [v for v in net.arrays if v in returned] or unused[-1:]
    net.block.add_op(ReturnOp(*outputs))
    main = FuncOp("main", FunctionType.from_lists([], [v.type for v in outputs]))
    for op in list(net.block.ops):
        op.detach()
        main.body.block.add_op(op)
    module = ModuleOp([main])
    module.verify()
    return module


def random_model(seed: int, size: int | None = None) -> Model:
    return Model(random_network(seed, size), f"network {seed}")


def other_feeds(module: ModuleOp, names, seed: int) -> dict[str, np.ndarray]:
    """Other contents for the inputs and params called `names`: permuted, so that ranges stay as they are."""
    rng = np.random.default_rng(seed)
    creates = {op.tensor_names[0]: op for op in module.walk() if isinstance(op, Create)}
    feeds = {}
    for name in names:
        array = creates[name].contents(None, 0)
        feeds[name] = rng.permutation(array.reshape(-1)).reshape(array.shape)
    return feeds
