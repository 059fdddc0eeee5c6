"""Small networks that together ask every generator of cuda for its kernels, in ugly shapes and in large ones; and how to pin a generator.

A case is one op, or an op with an epilogue. `pinned` compiles those of them that a generator takes, side by side in one module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from cuda_plans import candidates
from networks import Network
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import SSAValue

from lightnet.compilation import Compilation
from lightnet.dialects.ln.dialect import optypes
from lightnet.ir.context import make_context
from lightnet.ir.kernel import KernelOp
from lightnet.ir.module import main_of
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.ir.target import get_target
from lightnet.passes import pipelines
from lightnet.runtime.dtypes import BY_NAME

#: What maps and factors are made of.
FLOATS = ("f32", "f16", "bf16")
SHORT_FLOATS = FLOATS[1:]


class Graph(Network):
    """A network, one op at a time."""

    dtype = "f32"

    def input(self, *dims: int, kind: str = "data") -> SSAValue:
        """A source of the case's dtype; what it holds is random, and not made before it is asked for."""
        name = self.number("create")
        ran = (0.5, 1.5) if kind in ("scale", "variance") else (-1, 1)
        params = {"dtype": BY_NAME[self.dtype].tl, "dims": dims, "ran": ran, "data": (0,), "from_file": False}
        op = optypes()["create"].make([], params, name=name, tensors=[f"t_{name}"])
        self.block.add_op(op)
        self.values.append(op.results[0])
        return op.results[0]

    def op(self, optype: str, *operands: SSAValue, **params) -> SSAValue:
        """The first result of an op."""
        before = len(self.values)
        self.add(optypes()[optype], list(operands), params)
        return self.values[before]

    def conv(self, x: SSAValue, channels: int, rows: int, *, stride: int = 1, group: int = 1, dilation: int = 1,
             cols: int | None = None) -> SSAValue:  # fmt: skip
        """``conv2d`` with as much padding as keeps the size at stride 1."""
        size = (rows, rows if cols is None else cols)
        weight = self.input(channels, x.type.get_shape()[1] // group, *size)
        pad = [dilation * (n // 2) for n in size]
        return self.op("conv2d", x, weight, self.input(channels), group=group, size=size, stride=(stride,) * 2,
                       dilation=(dilation,) * 2, padding=(pad[0], pad[1], pad[0], pad[1]))  # fmt: skip


@dataclass(frozen=True)
class Case:
    """What `make` adds to a graph, of every dtype of `dtypes`."""

    name: str
    make: Callable[[Graph], object]
    dtypes: tuple[str, ...] = FLOATS


def _window(optype: str, size: int, stride: int, pad: int) -> Callable[[Graph], object]:
    return lambda g: g.op(optype, g.input(2, 7, 11, 13), size=(size,) * 2, stride=(stride,) * 2, padding=(pad,) * 4)


def _residual(g: Graph) -> None:
    x = g.input(1, 20, 7, 9)
    g.op("relu", g.op("add", g.conv(x, 24, 1), g.input(1, 24, 7, 9)))


def _dense(m: int, k: int, n: int) -> Callable[[Graph], object]:
    return lambda g: g.op("relu", g.op("add", g.op("matmul", g.input(m, k), g.input(k, n)), g.input(n)))


def _batched(g: Graph) -> None:
    g.op("matmul", g.input(3, 2, 19, 21), g.input(3, 2, 21, 10))


def _deconv(g: Graph) -> None:
    g.op(
        "deconv2d",
        g.input(1, 5, 6, 7),
        g.input(5, 7, 3, 3),
        g.input(7),
        size=(3, 3),
        stride=(2, 2),
        padding=(1, 1, 1, 1),
    )


def _classifier(g: Graph) -> None:
    """A sum of 64, whose loop ptxas would unroll until registers do not suffice."""
    x, weight, bias = g.input(1, 64, 90, 160), g.input(64, 32, 2, 2), g.input(32)
    g.op("relu", g.op("deconv2d", x, weight, bias, size=(2, 2), stride=(2, 2)))


def _norm(g: Graph) -> None:
    vectors = [g.input(7, kind=kind) for kind in ("scale", "bias", "mean", "variance")]
    g.op("relu", g.op("batchnorm", g.input(2, 7, 5, 6), *vectors))


def _shuffled(g: Graph) -> None:
    x = g.op("relu", g.conv(g.input(1, 12, 5, 7), 12, 1))
    g.conv(
        g.op(
            "reshape",
            g.op("transpose", g.op("reshape", x, dims=(1, 2, 6, 5, 7)), axes=(0, 2, 1, 3, 4)),
            dims=(1, 12, 5, 7),
        ),
        8,
        1,
    )


def _joined(g: Graph) -> None:
    x = g.input(1, 9, 6, 5)
    g.op("concat", g.conv(x, 6, 1), g.conv(x, 10, 3), axis=1)


def _branches(g: Graph) -> None:
    x = g.op("relu", g.conv(g.input(1, 24, 9, 7), 16, 1))
    pool = g.op("maxpool2d", x, size=(3, 3), stride=(1, 1), padding=(1,) * 4)
    g.op(
        "concat", g.op("relu", g.conv(x, 20, 1)), g.conv(x, 12, 3), g.op("slice", pool, axis=1, start=0, len=5), axis=1
    )


def _sorted(g: Graph) -> None:
    order = g.op("arange", dtype="TL_INT32", start=0, stop=1000, step=1)
    g.op("sort1d_by_key", g.input(1000), order, dir="TL_SORT_DIR_DESCENDING")


def _recurrent(optype: str, steps: int, batch: int, hidden: int, **params) -> Case:
    gates, states, vector = {"lstm": (4, 2, 3 * hidden), "gru": (3, 1, hidden), "rnn": (1, 1, 0)}[optype]

    def make(g: Graph) -> None:
        x, weight = g.input(steps, batch, gates * hidden), g.input(hidden, gates * hidden)
        first, *others = (g.input(batch, hidden) for _ in range(states))
        lens = g.op("arange", dtype="TL_INT32", start=steps - batch + 1, stop=steps + 1, step=1)
        g.op(optype, x, weight, first, lens, *others, *([g.input(vector)] if vector else []), **params)

    return Case(f"{optype} of {steps}x{batch}x{hidden}", make, ("f32", "f64"))


def _attention(
    batch: int, rows: int, keys: int, heads: int, width: int, masked: bool = False
) -> Callable[[Graph], object]:
    """Attention among the columns of matrices, a head each, as transformers have it."""

    def make(g: Graph) -> None:
        def split(rows: int, *axes: int) -> SSAValue:
            parts = g.op("reshape", g.input(batch, rows, heads * width), dims=(batch, rows, heads, width))
            return g.op("transpose", parts, axes=axes)

        q, k, v = split(rows, 0, 2, 1, 3), split(keys, 0, 2, 3, 1), split(keys, 0, 2, 1, 3)
        scores = g.op("div", g.op("matmul", q, k), g.input(1, kind="scale"))
        if masked:
            scores = g.op("add", scores, g.input(batch, 1, rows, keys))
        mixed = g.op("matmul", g.op("softmax", scores, axis=3), v)
        g.op("reshape", g.op("transpose", mixed, axes=(0, 2, 1, 3)), dims=(batch, rows, heads * width))

    return make


def _reduced(optype: str, shape: Sequence[int], **params) -> Case:
    return Case(f"{optype} {params.get('axes', params.get('axis'))} of {'x'.join(map(str, shape))}",
                lambda g: g.op(optype, g.input(*shape), **params))  # fmt: skip


CASES = [
    Case("conv 3x3", lambda g: g.op("relu", g.conv(g.input(2, 5, 9, 11), 7, 3))),
    Case("conv 3x3/2", lambda g: g.conv(g.input(1, 13, 10, 7), 17, 3, stride=2)),
    Case("conv 7x7/2, first", lambda g: g.op("relu", g.conv(g.input(1, 3, 33, 31), 16, 7, stride=2))),
    Case("conv 1x5", lambda g: g.conv(g.input(1, 8, 6, 9), 12, 1, cols=5)),
    Case("conv 3x3, dilated", lambda g: g.conv(g.input(1, 8, 12, 12), 12, 3, dilation=2)),
    Case("conv 3x3, two groups", lambda g: g.conv(g.input(1, 10, 6, 6), 14, 3, group=2)),
    Case("conv 1x1 with a residual", _residual),
    Case("conv 1x1, one pixel", lambda g: g.conv(g.input(1, 40, 1, 1), 30, 1)),
    Case("conv 3x3, large", lambda g: g.op("relu", g.conv(g.input(8, 64, 56, 56), 64, 3))),
    Case("conv 1x1, large", lambda g: g.op("relu", g.conv(g.input(8, 256, 28, 28), 512, 1))),
    Case("conv 3x3, deep and small", lambda g: g.conv(g.input(1, 512, 7, 7), 512, 3)),
    Case("depthwise 3x3", lambda g: g.op("relu", g.conv(g.input(2, 6, 9, 7), 6, 3, group=6))),
    Case("depthwise 5x5/2", lambda g: g.conv(g.input(1, 32, 15, 14), 32, 5, group=32, stride=2)),
    Case("deconv 3x3/2", _deconv),
    Case("deconv 2x2/2, large", _classifier),
    Case("product 17x33x9", _dense(17, 33, 9)),
    Case("product 1x100x37", _dense(1, 100, 37)),
    Case("product 1024x512x768", _dense(1024, 512, 768)),
    Case("product, large", _dense(4096, 4096, 4096)),
    Case("products, batched", _batched),
    Case("attention", _attention(2, 37, 70, 3, 32, masked=True), SHORT_FLOATS),
    Case("attention, large", _attention(2, 256, 256, 4, 64), SHORT_FLOATS),
    Case("attention, wide", _attention(1, 128, 65, 1, 128), SHORT_FLOATS),
    Case("maxpool 3x3/2", _window("maxpool2d", 3, 2, 1), (*FLOATS, "i8", "f64")),
    Case("avgpool 2x2", _window("avgpool2d", 2, 2, 0)),
    Case("mean of maps", lambda g: g.op("avgpool2d", g.input(2, 9, 7, 6), size=(7, 6), stride=(1, 1), padding=(0,) * 4)),
    _reduced("reduce_mean", (2, 9, 7, 6), axes=(2, 3)),
    _reduced("reduce_max", (5, 300), axes=(1,)),
    _reduced("reduce_sum", (40, 33), axes=(0,)),
    _reduced("reduce_sum", (3, 70000), axes=(1,)),
    _reduced("softmax", (7, 1000), axis=1),
    _reduced("softmax", (2, 5, 6, 7), axis=1),
    _reduced("log_softmax", (3, 33), axis=1),
    _reduced("layernorm", (6, 100), axis=1),
    _reduced("rmsnorm", (4, 2048), axis=1),
    Case("add", lambda g: g.op("add", g.input(2, 7, 5, 6), g.input(2, 7, 5, 6)), (*FLOATS, "i32", "f64")),
    Case("sigmoid", lambda g: g.op("mul", g.op("sigmoid", x := g.input(1, 6, 5, 3)), x)),
    Case("gelu", lambda g: g.op("gelu", g.input(1001))),
    Case("batch norm", _norm),
    Case("transpose", lambda g: g.op("transpose", g.input(37, 45), axes=(1, 0)), (*FLOATS, "i8", "i64")),
    Case("channel shuffle", _shuffled),
    Case("concat", _joined),
    Case("convolutions beside each other", _branches),
    Case("forward, tiles", lambda g: g.op("forward", g.input(2, 37, 5, 6)), (*FLOATS, "i8", "i64")),
    Case("forward, few channels", lambda g: g.op("forward", g.input(2, 6, 5, 6)), (*FLOATS, "i8", "i64")),
    Case("sort", lambda g: g.op("sort1d", g.input(1000), dir="TL_SORT_DIR_ASCENDING"), (*FLOATS, "i8", "i64", "f64")),
    Case("sort by key", _sorted),
    _recurrent("lstm", 4, 3, 33, reverse=True),
    _recurrent("lstm", 50, 1, 512),
    _recurrent("gru", 4, 2, 70),
    _recurrent("gru", 50, 32, 256, linear_before_reset=True),
    _recurrent("rnn", 3, 2, 130),
    Case("upsample", lambda g: g.op("relu", g.op("upsample", g.conv(g.input(1, 6, 4, 5), 6, 1), mode="TL_NEAREST", scales=(1, 1, 2, 2)))),
]  # fmt: skip
DTYPES = tuple(dict.fromkeys(t for case in CASES for t in case.dtypes))


def graph_of(cases: Sequence[Case], dtype: str) -> Graph:
    """A network of cases side by side."""
    graph = Graph()
    graph.dtype = dtype
    for case in cases:
        case.make(graph)
    return graph


def _kernels(module: ModuleOp) -> list[KernelOp]:
    return [op for op in main_of(module).body.block.ops if isinstance(op, KernelOp)]


def _stages() -> tuple[str, str]:
    """The pipeline of cuda, cut where kernels are whole and have no layout."""
    names = pipelines.default("cuda").split(",")
    at = names.index("layout")
    return ",".join(names[:at]), ",".join(names[at:])


def pinned(
    alg: str, dtype: str, arch: str = "sm_80", cases: Sequence[Case] = CASES
) -> tuple[Compilation | None, list[str]]:
    """The cases of a dtype whose kernels, or one of them, `alg` takes, compiled with it; and their names. None where there are none."""
    wanted = [case for case in cases if dtype in case.dtypes and alg in takers(case, dtype)]
    if not wanted:
        return None, []
    options = {"target": "cuda", "features": arch, "arch": arch}
    first, rest = _stages()
    module = graph_of(wanted, dtype).module()
    run_pipeline(make_context(), module, parse_pipeline(first, options))
    for kernel in _kernels(module):
        if any(g.alg == alg for g, _ in candidates(kernel)):
            kernel.attributes["alg"] = StringAttr(alg)
    stages = pipelines.staged(rest, options).parsed(options)
    settings = get_target("cuda").settings(emulate=True)
    return Compilation(module, *stages, make_context(), target="cuda", settings=settings), [c.name for c in wanted]


@cache
def takers(case: Case, dtype: str) -> frozenset[str]:
    """The generators that take a kernel of a case, on any device."""
    module = graph_of([case], dtype).module()
    run_pipeline(make_context(), module, parse_pipeline(_stages()[0], {"target": "cuda"}))
    return frozenset(g.alg for kernel in _kernels(module) for g, _ in candidates(kernel))
