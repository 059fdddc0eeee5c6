"""MXNet's fused recurrent layers, `RNN`: several layers, one or two directions, all parameters in one vector.

See `lightnet_nnvm/node.py`. The vector has, layer by layer and direction by direction, the weights of the input [G H,
I] and of the state [G H, H]; behind all weights, in the same order, the two biases [G H] of each. Gates stand in the
order input, forget, cell, output (LSTM) and reset, update, new (GRU).
"""

from __future__ import annotations

from math import prod

from lightnet.dataclasses import dataclass
from lightnet.frontends import composites
from lightnet.frontends.graph import Value
from lightnet_nnvm.node import Lazy, Node, nnvm_op

#: `ln` op, its activation, and MXNet's gates in the order of that op, by mode.
_MODES: dict[str, tuple[str, str | None, tuple[int, ...]]] = {
    "lstm": ("lstm", None, (0, 3, 1, 2)),
    "gru": ("gru", None, (1, 0, 2)),
    "rnn_tanh": ("rnn", "tanh", (0,)),
    "rnn_relu": ("rnn", "relu", (0,)),
}


@dataclass(frozen=True)
class _Cell:
    """The parameters of one layer in one direction, gates in the order of the `ln` op: weights [I, G H] and [H, G H],
    biases [G H]."""

    i2h: Value
    h2h: Value
    i2h_bias: Value
    h2h_bias: Value


@nnvm_op("RNN", params=(1,), lazy=(2, 3), outputs=("output", "state_output", "statecell_output"))
def rnn(n: Node, x: Value, params: Value | Lazy, *states: Value | Lazy) -> Value | tuple[Value, ...]:
    n.need_rank(x, 3)
    mode = n.choice("mode", "lstm", "gru", "rnn_tanh", "rnn_relu")
    for name in ("projection_size", "lstm_state_clip_min", "lstm_state_clip_max"):
        if n.has(name):
            n.unsupported(f"the attribute '{name}'")
    layers, hidden, two = n.int("num_layers"), n.int("state_size"), 1 + n.bool("bidirectional", False)
    gates = len(_MODES[mode][2])
    time, batch, width = x.dims
    if layers < 1 or n.bounded(hidden) < 1 or layers * two > 1024:
        n.fail(f"{layers} layers of {hidden} are not possible")
    sizes = [width] + [two * hidden] * (layers - 1)
    total = sum(two * gates * hidden * (size + hidden + 2) for size in sizes)
    vector = n.fixed(params, (total,), x)
    expected = 2 if mode == "lstm" else 1
    if len(states) < expected:
        n.fail(f"needs {expected} states")
    initial = [n.fixed(s, (layers * two, batch, hidden), x) for s in states[:expected]]
    lens = _lengths(n, states[expected:], batch, time)
    cells = _cells(n, vector, sizes, hidden, two, _MODES[mode][2])
    final: list[list[Value]] = [[] for _ in initial]
    for layer in range(layers):
        outputs = []
        for direction in range(two):
            number = layer * two + direction
            start = [composites.element_at(n.g, s, 0, number) for s in initial]
            y, *last = _run(n, mode, x, cells[number], start, lens, direction == 1)
            outputs.append(y)
            for values, value in zip(final, last):
                values.append(value)
        x = composites.concat(n.g, outputs, 2)
    if not n.bool("state_outputs", False):
        return x
    return (x, *(composites.stack(n.g, values, 0) for values in final))


def _lengths(n: Node, given: tuple[Value | Lazy, ...], batch: int, time: int) -> Value:
    if n.bool("use_sequence_length", False):
        if len(given) != 1 or not isinstance(given[0], Value):
            n.fail("use_sequence_length needs the lengths as its last input")
        return n.g.cast(n.g.reshape(given[0], (batch,)), "i32")
    return composites.full(n.g, (batch,), time, "i32")


def _cells(n: Node, vector: Value, sizes: list[int], hidden: int, two: int, order: tuple[int, ...]) -> list[_Cell]:
    """The parameters, cut out of the vector."""
    g, at, rows = n.g, 0, len(order) * hidden

    def take(*dims: int) -> Value:
        nonlocal at
        count = prod(dims)
        part = g.reshape(composites.cut(g, vector, 0, at, count), dims)
        at += count
        parts = [composites.cut(g, part, 0, k * hidden, hidden) for k in order]
        return part if order == tuple(range(len(order))) else composites.concat(g, parts, 0)

    weights = [(take(rows, size), take(rows, hidden)) for size in sizes for _ in range(two)]
    biases = [(take(rows), take(rows)) for _ in weights]
    return [_Cell(g.transpose(i, (1, 0)), g.transpose(h, (1, 0)), *b) for (i, h), b in zip(weights, biases)]


def _run(
    n: Node, mode: str, x: Value, cell: _Cell, start: list[Value], lens: Value, reverse: bool
) -> tuple[Value, ...]:
    """One layer in one direction: outputs [T, B, H] and the last states."""
    g, (time, batch, width) = n.g, x.dims
    optype, activation, _ = _MODES[mode]
    hidden, bias = cell.h2h.dims[0], g.op("add", cell.i2h_bias, cell.h2h_bias)
    extra: list[Value] = []
    params: dict[str, object] = {"f": activation} if activation else {}
    if mode == "lstm":
        extra = [start[1], composites.full(g, (3 * hidden,), 0, x.dtype)]
    elif mode == "gru":  # the new gate's bias of the state is multiplied by the reset gate
        halves = [composites.cut(g, cell.h2h_bias, 0, 0, 2 * hidden), composites.full(g, (hidden,), 0, x.dtype)]
        bias = g.op("add", cell.i2h_bias, g.op("concat", *halves, axis=0))
        extra = [composites.cut(g, cell.h2h_bias, 0, 2 * hidden, hidden)]
        params["linear_before_reset"] = True
    product = g.op("matmul", g.reshape(x, (time * batch, width)), cell.i2h)
    gates = g.reshape(g.op("add", product, bias), (time, batch, bias.dims[0]))
    return g.op(optype, gates, cell.h2h, start[0], lens, *extra, reverse=reverse, **params)
