"""Random ONNX graphs whose sizes the data decides: something that picks, then a chain of consumers. ONNX Runtime is the oracle."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

_NP = {"f": np.float32, "i": np.int64, "b": np.bool_}


@dataclass
class Tensor:
    """A tensor of the graph: its name, kind (f, i or b) and dims, of which one that is a string is counted."""

    name: str
    kind: str
    dims: tuple[int | str, ...]


@dataclass
class Graph:
    """A graph under construction."""

    rng: np.random.Generator
    nodes: list = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)
    count: int = 0

    def fresh(self, base: str) -> str:
        self.count += 1
        return f"{base}{self.count}"

    def const(self, value, dtype=np.int64) -> str:
        name = self.fresh("c")
        self.constants[name] = np.asarray(value, dtype)
        return name

    def add(self, op: str, inputs, kind: str = "", dims=None, outputs: int = 1, **attributes):
        from onnx import helper

        names = [self.fresh(op.lower()) for _ in range(outputs)]
        self.nodes.append(
            helper.make_node(op, [i.name if isinstance(i, Tensor) else i for i in inputs], names, **attributes)
        )
        if dims is None:
            return names[0] if outputs == 1 else names
        made = Tensor(names[0], kind, tuple(dims))
        self.tensors.append(made)
        return made

    def pick(self, *choices):
        return choices[int(self.rng.integers(len(choices)))]

    def input(self, dims) -> Tensor:
        name = self.fresh("x")
        values = self.rng.standard_normal(dims).astype(np.float32)
        if self.rng.random() < 0.4:
            values = np.round(values)
        if self.rng.random() < 0.25:
            values = -np.abs(values) if self.rng.random() < 0.5 else np.abs(values) + 1
        self.inputs[name] = values
        made = Tensor(name, "f", tuple(dims))
        self.tensors.append(made)
        return made

    def some(self, *, kind: str | None = None, rank: int | None = None, least: int = 0) -> Tensor | None:
        """A tensor, one of the newest as a rule."""
        fitting = [
            t
            for t in self.tensors
            if (kind is None or t.kind in kind) and (rank is None or len(t.dims) == rank) and len(t.dims) >= least
        ]
        if not fitting:
            return None
        counted = [t for t in fitting if any(isinstance(d, str) for d in t.dims)]
        return self.pick(*(counted[-4:] if counted and self.rng.random() < 0.85 else fitting))


def _axis(g: Graph, t: Tensor) -> int:
    return int(g.rng.integers(len(t.dims)))


# -- what decides ----------------------------------------------------------------------------------------------------


def mask(g: Graph, t: Tensor) -> Tensor:
    op = g.pick("Greater", "Less")
    return g.add(op, [t, g.const(g.pick(0.0, 0.5, -0.5, 2.5), np.float32)], "b", t.dims)


def nonzero(g: Graph) -> None:
    t = g.some(kind="f", least=1)
    flags = mask(g, t) if g.rng.random() < 0.7 else t
    n = g.fresh("n")
    found = g.add("NonZero", [flags], "i", (len(t.dims), n))
    turned = g.add("Transpose", [found], "i", (n, len(t.dims)), perm=[1, 0])
    g.add("GatherND", [t, turned], "f", (n,))


def compress(g: Graph) -> None:
    t = g.some(kind="f", least=1)
    axis = _axis(g, t)
    if g.rng.random() < 0.3 or (isinstance(t.dims[axis], str) and len(t.dims) > 1):
        flat = g.add("Reshape", [t, g.const([-1])], t.kind, (g.fresh("n"),))
        g.add("Compress", [flat, mask(g, flat)], "f", (g.fresh("n"),), axis=0)
        return
    if isinstance(t.dims[axis], str):
        g.add("Compress", [t, mask(g, t)], "f", (g.fresh("n"),), axis=0)
        return
    flags = g.input((max(t.dims[axis] - int(g.rng.integers(0, 2)), 1),))
    g.add(
        "Compress",
        [t, mask(g, flags)],
        "f",
        [g.fresh("n") if k == axis else d for k, d in enumerate(t.dims)],
        axis=axis,
    )


def rows_of(g: Graph) -> None:
    """x[mask] for a mask of rows: NonZero, Squeeze, Gather."""
    t = g.some(kind="f", least=1)
    if isinstance(t.dims[0], str):
        return
    flags = mask(g, g.input((t.dims[0],)))
    n = g.fresh("n")
    index = g.add("Squeeze", [g.add("NonZero", [flags], "i", (1, n)), g.const([0])], "i", (n,))
    g.add("Gather", [t, index], "f", (n, *t.dims[1:]), axis=0)


def unique(g: Graph) -> None:
    t = g.some(kind="f")
    rounded = g.add("Round", [t], "f", t.dims)
    n, m = g.fresh("n"), g.fresh("n")
    values, first, inverse, repeats = g.add("Unique", [rounded], outputs=4, sorted=int(g.rng.integers(2)))
    g.tensors += [
        Tensor(values, "f", (n,)),
        Tensor(repeats, "i", (n,)),
        Tensor(first, "i", (n,)),
        Tensor(inverse, "i", (m,)),
    ]


def nms(g: Graph) -> None:
    batch, classes, count = (int(g.rng.integers(1, n)) for n in (3, 4, 14))
    low = g.rng.random((batch, count, 2))
    boxes = np.concatenate([low, low + g.rng.random((batch, count, 2)) * 0.5], -1).astype(np.float32)
    scores = np.round(g.rng.random((batch, classes, count)), 1).astype(np.float32)
    names = g.fresh("boxes"), g.fresh("scores")
    g.inputs.update(zip(names, (boxes, scores)))
    limits = [
        g.const([g.pick(0, 1, 3, 100)]),
        g.const([g.pick(0.0, 0.3, 0.7)], np.float32),
        g.const([g.pick(0.0, 0.45, 2.0)], np.float32),
    ]
    n = g.fresh("n")
    picked = g.add("NonMaxSuppression", [*names, *limits], "i", (n, 3), center_point_box=int(g.rng.integers(2)))
    index = g.add("Slice", [picked, g.const([2]), g.const([3]), g.const([1])], "i", (n, 1))
    turned = g.add("Transpose", [names[0]], "f", (count, batch, 4), perm=[1, 0, 2])
    g.add("GatherND", [turned, index], "f", (n, batch, 4))


def length(g: Graph) -> None:
    """Range, or ConstantOfShape, of the length of a counted axis."""
    t = g.some(least=1)
    axis = _axis(g, t)
    size = g.add("Gather", [g.add("Shape", [t]), g.const([axis])], axis=0)
    if g.rng.random() < 0.5:
        g.add(
            "Range", [g.const(1), g.add("Squeeze", [size, g.const([0])]), g.const(g.pick(1, 2))], "i", (g.fresh("n"),)
        )
    else:
        from onnx import numpy_helper

        shape = g.add("Concat", [size, g.const([3])], axis=0)
        g.add(
            "ConstantOfShape",
            [shape],
            "f",
            (t.dims[axis], 3),
            value=numpy_helper.from_array(np.asarray([1.5], np.float32)),
        )


# -- what consumes ---------------------------------------------------------------------------------------------------


def elementwise(g: Graph) -> None:
    t = g.some(kind="fi")
    if t.kind == "i" or g.rng.random() < 0.4:
        g.add("Mul", [t, t], t.kind, t.dims)
    elif g.rng.random() < 0.5:
        g.add(
            g.pick("Relu", "Sigmoid", "Neg", "Abs", "Exp"),
            [g.add("Clip", [t, g.const(-4, np.float32), g.const(4, np.float32)], "f", t.dims)],
            "f",
            t.dims,
        )
    elif t.dims and isinstance(t.dims[-1], int):
        g.add("Add", [t, g.const(g.rng.standard_normal(t.dims[-1:]), np.float32)], "f", t.dims)
    else:
        g.add("Where", [mask(g, t), t, g.add("Neg", [t], "f", t.dims)], "f", t.dims)


def reduction(g: Graph) -> None:
    t = g.some(kind="f", least=1)
    op = g.pick(
        "ReduceSum", "ReduceMean", "ReduceL2", "ReduceL1", "ReduceSumSquare", "ReduceMax", "ReduceMin", "ReduceProd"
    )
    axis, keep = _axis(g, t), int(g.rng.integers(2))
    if op in ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd") and isinstance(t.dims[axis], str):
        row = [1 if k == axis else d if isinstance(d, int) else None for k, d in enumerate(t.dims)]
        if None in row:
            return  # of an empty axis, runtimes disagree
        one = g.const(np.full(row, 0.25), np.float32)
        t = g.add("Concat", [t, one], "f", [g.fresh("n") if k == axis else d for k, d in enumerate(t.dims)], axis=axis)
    dims = [1 if k == axis else d for k, d in enumerate(t.dims) if keep or k != axis]
    small = g.add("Clip", [t, g.const(-2, np.float32), g.const(2, np.float32)], "f", t.dims)
    if op == "ReduceSum":
        g.add(op, [small, g.const([axis])], "f", dims, keepdims=keep)
    else:
        g.add(op, [small], "f", dims, axes=[axis], keepdims=keep)


def softmax(g: Graph) -> None:
    t = g.some(kind="f", least=1)
    axis = _axis(g, t)
    if not isinstance(t.dims[axis], str) or g.rng.random() < 0.5:
        g.add(g.pick("Softmax", "LogSoftmax"), [t], "f", t.dims, axis=axis)
    else:
        g.add(
            "CumSum", [t, g.const(axis)], "f", t.dims, reverse=int(g.rng.integers(2)), exclusive=int(g.rng.integers(2))
        )


def concat(g: Graph) -> None:
    t = g.some(kind="fi", least=1)
    axis = _axis(g, t)
    parts = [t] * int(g.rng.integers(1, 4))
    others = [
        u
        for u in g.tensors
        if u.kind == t.kind
        and len(u.dims) == len(t.dims)
        and all(a == b or k == axis for k, (a, b) in enumerate(zip(u.dims, t.dims)))
    ]
    parts += [g.pick(*others) for _ in range(2)]
    dims = [g.fresh("n") if k == axis else d for k, d in enumerate(t.dims)]
    g.add("Concat", [parts[k] for k in g.rng.permutation(len(parts))], t.kind, dims, axis=axis)


def sliced(g: Graph) -> None:
    t = g.some(kind="fi", least=1)
    axis = _axis(g, t)
    start, end, step = g.pick(
        (0, 3, 1), (1, 1 << 40, 1), (-2, 1 << 40, 1), (0, -1, 1), (1, 9, 2), (-1, -(1 << 40), -1), (4, 0, -2), (0, 1, 1)
    )
    g.add(
        "Slice",
        [t, g.const([start]), g.const([end]), g.const([axis]), g.const([step])],
        t.kind,
        [g.fresh("n") if k == axis else d for k, d in enumerate(t.dims)],
    )


def topk(g: Graph) -> None:
    """The best min(n, 3) along an axis, as exporters write it."""
    t = g.some(kind="f", least=1)
    axis = _axis(g, t)
    size = g.add("Gather", [g.add("Shape", [t]), g.const([axis])], axis=0)
    k = g.add("Min", [size, g.const([g.pick(1, 3, 40)])])
    n = g.fresh("n")
    dims = tuple(n if j == axis else d for j, d in enumerate(t.dims))
    values, indices = g.add("TopK", [t, k], outputs=2, axis=axis, largest=int(g.rng.integers(2)))
    g.tensors += [Tensor(values, "f", dims), Tensor(indices, "i", dims)]


def reshaped(g: Graph) -> None:
    t = g.some(kind="fi", least=1)
    how = g.rng.integers(5)
    if how == 0:
        g.add("Reshape", [t, g.const([-1])], t.kind, (g.fresh("n"),))
    elif how == 1:
        at = int(g.rng.integers(len(t.dims) + 1))
        g.add("Unsqueeze", [t, g.const([at])], t.kind, (*t.dims[:at], 1, *t.dims[at:]))
    elif how == 2:
        order = g.rng.permutation(len(t.dims))
        g.add("Transpose", [t], t.kind, [t.dims[k] for k in order], perm=order.tolist())
    elif how == 3 and len(t.dims) >= 2:
        g.add("Flatten", [t], t.kind, (g.fresh("n"), g.fresh("n")), axis=int(g.rng.integers(1, len(t.dims))))
    else:
        g.add("Tile", [t, g.const([g.pick(1, 2, 3) for _ in t.dims])], t.kind, [g.fresh("n") for _ in t.dims])


def expanded(g: Graph) -> None:
    """[n] and [n, m] by Expand, to the shape of another tensor."""
    t, u = g.some(kind="f", rank=1), g.some(kind="f", rank=1)
    if t is None or u is None:
        return
    column = g.add("Unsqueeze", [t, g.const([1])])
    shape = g.add("Concat", [g.add("Shape", [t]), g.add("Shape", [u])], axis=0)
    wide = g.add("Expand", [column, shape], "f", (t.dims[0], u.dims[0]))
    g.add("Add", [wide, u], "f", wide.dims)


def product(g: Graph) -> None:
    t = g.some(kind="f", rank=2)
    if t is None:
        return
    turned = g.add("Transpose", [t], "f", t.dims[::-1], perm=[1, 0])
    small = g.add("Clip", [t, g.const(-3, np.float32), g.const(3, np.float32)], "f", t.dims)
    turned = g.add("Clip", [turned, g.const(-3, np.float32), g.const(3, np.float32)], "f", t.dims[::-1])
    g.add(
        "MatMul",
        [small, turned] if g.rng.random() < 0.5 else [turned, small],
        "f",
        (t.dims[0],) * 2 if False else (g.fresh("n"), g.fresh("n")),
    )


def gathered(g: Graph) -> None:
    """Places named by data: the order of the elements of a counted axis reversed, by Range."""
    t = g.some(kind="f", rank=1)
    if t is None:
        return
    n = g.add("Squeeze", [g.add("Shape", [t]), g.const([0])])
    last = g.add("Sub", [n, g.const(1)])
    index = g.add("Sub", [last, g.add("Range", [g.const(0), n, g.const(1)])], "i", t.dims)
    if g.rng.random() < 0.5:
        g.add("Gather", [t, index], "f", t.dims, axis=0)
    else:
        place = g.add("Unsqueeze", [index, g.const([1])])
        zero = g.add("Mul", [t, g.const(0, np.float32)], "f", t.dims)
        g.add("ScatterND", [zero, place, t], "f", t.dims) if g.rng.random() < 0.5 else g.add(
            "ScatterElements", [zero, index, t], "f", t.dims, axis=0
        )


DECIDE = (nonzero, compress, rows_of, unique, nms, length)
CONSUME = (
    elementwise,
    reduction,
    softmax,
    concat,
    sliced,
    topk,
    reshaped,
    expanded,
    product,
    gathered,
    elementwise,
    nonzero,
    compress,
    length,
)


def counted_graph(seed: int, most: int = 6):
    """A model (bytes) and its feeds."""
    from onnx import TensorProto, helper, numpy_helper

    g = Graph(np.random.default_rng(seed))
    rank = int(g.rng.integers(1, 4))
    g.input([int(g.rng.integers(1, 6)) for _ in range(rank)])
    g.pick(*DECIDE)(g)
    for _ in range(int(g.rng.integers(2, most + 1))):
        g.pick(*CONSUME)(g)
    read = {i for n in g.nodes for i in n.input}
    made = {t.name: t for t in g.tensors if t.name not in g.inputs}
    wanted = [n for n in made if n not in read] or list(made)[-1:]
    wanted = list(dict.fromkeys([*wanted, *(n for n in made if g.rng.random() < 0.3)]))
    kinds = {"f": TensorProto.FLOAT, "i": TensorProto.INT64, "b": TensorProto.BOOL}
    graph = helper.make_graph(
        g.nodes, "counted", [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in g.inputs.items()],
        [helper.make_tensor_value_info(n, kinds[made[n].kind], None) for n in wanted],
        [numpy_helper.from_array(a, n) for n, a in g.constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString(), g.inputs
