"""Networks of one kind of kernel each, side by side, in sizes that are neither square nor round: what tells one term of a model in numbers
from another."""

from __future__ import annotations

from collections.abc import Callable

from cuda_cases import Graph
from xdsl.dialects.builtin import ModuleOp

#: Batch, channels, height, width; outputs, window, stride, groups, dilation.
CONVOLUTIONS = (
    (1, 3, 41, 37, 24, 5, 2, 1, 1), (1, 19, 28, 30, 40, 3, 1, 1, 1), (2, 64, 13, 17, 96, 3, 2, 1, 1), (1, 128, 9, 50, 64, 1, 1, 1, 1),
    (3, 48, 60, 20, 200, 1, 2, 1, 1), (1, 72, 21, 19, 88, 3, 1, 1, 2), (1, 256, 6, 5, 130, 3, 1, 1, 1), (4, 96, 27, 35, 160, 3, 1, 1, 1),
    (1, 40, 23, 70, 56, 7, 1, 1, 1), (1, 36, 14, 18, 60, 3, 1, 2, 1), (1, 4, 90, 110, 12, 3, 1, 1, 1), (1, 1030, 1, 3, 520, 1, 1, 1, 1),
)  # fmt: skip
#: Batch, channels, height, width; window, stride.
DEPTHWISE = ((1, 40, 31, 27, 3, 1), (2, 96, 15, 40, 5, 2), (1, 20, 64, 50, 7, 1), (1, 300, 7, 9, 3, 2))
POOLS = ((1, 40, 31, 27, 2, 2), (2, 96, 15, 40, 3, 2), (1, 20, 64, 50, 5, 1), (1, 3, 90, 70, 3, 1))
DECONVOLUTIONS = ((1, 20, 11, 9, 13, 3, 2), (2, 16, 30, 20, 24, 4, 2), (1, 64, 9, 21, 40, 2, 2))
#: Rows, depth, columns.
PRODUCTS = (
    (1, 1000, 370),
    (7, 500, 300),
    (64, 33, 1000),
    (300, 129, 65),
    (2, 4100, 17),
    (1500, 64, 96),
    (8, 96, 40),
    (16, 256, 64),
    (40, 384, 24),
    (5, 160, 33),
)
#: Shape and axis.
ROWS = (((3, 31), 1), ((130, 65), 1), ((17, 1000), 1), ((2, 9000), 1), ((50, 40), 0), ((5, 70, 33), 1), ((700, 5), 1))
#: Steps, batch, hidden.
RECURRENT = ((7, 5, 96), (20, 1, 200), (3, 40, 64))
TRANSPOSED = (((5, 37, 45), (0, 2, 1)), ((64, 9, 50), (1, 0, 2)), ((6, 20, 7, 33), (3, 1, 0, 2)), ((300, 3), (1, 0)))


def _convolutions(g: Graph) -> None:
    for n, c, h, w, out, size, stride, group, dilation in CONVOLUTIONS:
        g.op("relu", g.conv(g.input(n, c, h, w), out, size, stride=stride, group=group, dilation=dilation))


def _depthwise(g: Graph) -> None:
    for n, c, h, w, size, stride in DEPTHWISE:
        g.op("relu", g.conv(g.input(n, c, h, w), c, size, stride=stride, group=c))


def _pools(g: Graph) -> None:
    for n, c, h, w, size, stride in POOLS:
        for optype in ("maxpool2d", "avgpool2d"):
            g.op(optype, g.input(n, c, h, w), size=(size, size), stride=(stride, stride), padding=(size // 2,) * 4)
        g.op("upsample", g.input(n, c, h, w), mode="TL_NEAREST", scales=(1, 1, 2, 3))


def _deconvolutions(g: Graph) -> None:
    for n, c, h, w, out, size, stride in DECONVOLUTIONS:
        operands = (g.input(n, c, h, w), g.input(c, out, size, size), g.input(out))
        g.op("deconv2d", *operands, size=(size, size), stride=(stride, stride), padding=(0,) * 4)


def _products(g: Graph) -> None:
    for m, k, n in PRODUCTS:
        g.op("relu", g.op("add", g.op("matmul", g.input(m, k), g.input(k, n)), g.input(n)))
    g.op("matmul", g.input(6, 40, 50), g.input(6, 50, 30))


def _rows(g: Graph) -> None:
    for shape, axis in ROWS:
        g.op("softmax", g.input(*shape), axis=axis)
        g.op("reduce_sum", g.input(*shape), axes=(axis,))
        g.op("layernorm", g.input(*shape), axis=axis)


def _recurrent(g: Graph) -> None:
    for steps, batch, hidden in RECURRENT:
        lens = g.op("arange", dtype="TL_INT32", start=steps, stop=steps + batch, step=1)
        state = (g.input(steps, batch, 4 * hidden), g.input(hidden, 4 * hidden), g.input(batch, hidden))
        g.op("lstm", *state, lens, g.input(batch, hidden), g.input(3 * hidden))
        state = (g.input(steps, batch, 3 * hidden), g.input(hidden, 3 * hidden), g.input(batch, hidden))
        g.op("gru", *state, lens, g.input(hidden))


def _moves(g: Graph) -> None:
    for shape, axes in TRANSPOSED:
        g.op("transpose", g.input(*shape), axes=axes)
        g.op("concat", g.input(*shape), g.input(*shape), axis=len(shape) - 1)
        g.op("gelu", g.input(*shape))


FAMILIES: dict[str, Callable[[Graph], None]] = {
    f.__name__[1:]: f
    for f in (_convolutions, _depthwise, _pools, _deconvolutions, _products, _rows, _recurrent, _moves)
}


def family(name: str, dtype: str = "f32") -> ModuleOp:
    """The network of a family."""
    graph = Graph()
    graph.dtype = dtype
    FAMILIES[name](graph)
    return graph.module()
