"""LSTM, GRU and RNN of ONNX: the products of the inputs in one matrix product, then `ln`'s recurrent ops, one a
direction.

Imports the composites and the table of handlers.
"""

from __future__ import annotations

from lightnet.dataclasses import dataclass, field
from lightnet.frontends.composites import cut, element_at, full, number_of, stack
from lightnet.frontends.graph import Value
from lightnet.frontends.onnx.node import Node, onnx_op
from lightnet.frontends.onnx.pairs import RECURRENT

#: By ONNX's names, which may be written in either case.
_ACTIVATIONS = {name.lower(): row for name, row in RECURRENT.items()}


@dataclass
class _Layer:
    """The common part of all three: the input as [T, B, I], and inputs and attributes of each direction."""

    n: Node
    x: Value
    weights: Value
    recurrent: Value
    bias: Value | None
    lens: Value | None
    gates: int
    activations: tuple[str, ...]
    batch_first: bool = field(init=False)
    hidden: int = field(init=False)
    directions: tuple[bool, ...] = field(init=False)

    def __post_init__(self) -> None:
        n, g = self.n, self.n.g
        self.dtype = self.x.dtype
        if self.dtype.name != "f64":  # f16 and bf16 are computed in f32
            self.x, self.weights, self.recurrent = (g.cast(v, "f32") for v in (self.x, self.weights, self.recurrent))
            self.bias = None if self.bias is None else g.cast(self.bias, "f32")
        self.batch_first = bool(n.int("layout", 0))
        if self.x.ndim != 3 or self.weights.ndim != 3 or self.recurrent.ndim != 3:
            n.fail(
                f"its inputs X, W and R should have rank 3, but are {self.x.spec}, {self.weights.spec}, "
                f"{self.recurrent.spec}"
            )
        if self.batch_first:
            self.x = g.transpose(self.x, (1, 0, 2))
        kinds = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
        direction = n.string("direction", "forward")
        if direction not in kinds:
            n.fail(f"direction is '{direction}'; there are {', '.join(kinds)}")
        self.directions = kinds[direction]
        self.hidden = n.int("hidden_size", self.recurrent.dims[2])
        self.check(self.weights, self.gates * self.hidden, self.x.dims[2], "W")
        self.check(self.recurrent, self.gates * self.hidden, self.hidden, "R")
        if self.bias is not None:
            self.check(self.bias, 2 * self.gates * self.hidden, None, "B")
        steps, batch, _ = self.x.dims
        lens = number_of(g, steps, (batch,), "i32") if self.lens is None else g.cast(self.lens, "i32")
        if lens.dims != (batch,):
            n.fail(f"its sequence_lens {lens.spec} should have {batch} elements")
        self.lens = lens

    def check(self, value: Value, rows: int, columns: int | None, what: str) -> None:
        wanted = (len(self.directions), rows, *(() if columns is None else (columns,)))
        if value.dims != wanted:
            self.n.fail(f"its input {what} should be {list(wanted)}, but is {value.spec}")

    def of(self, value: Value, number: int) -> Value:
        """The part of a direction."""
        return element_at(self.n.g, value, 0, number)

    def inputs(self, number: int, both: int) -> Value:
        """The inputs' part of the gate outputs, [T, B, G]: X W^T + Wb, and Rb for the first `both` gates."""
        g, (steps, batch, size) = self.n.g, self.x.dims
        weights = g.transpose(self.of(self.weights, number), (1, 0))
        result = g.op("matmul", g.reshape(self.x, (steps * batch, size)), weights)
        if self.bias is not None:
            bias, width = self.of(self.bias, number), self.gates * self.hidden
            own, state = cut(g, bias, 0, 0, width), cut(g, bias, 0, width, both * self.hidden)
            if both < self.gates:
                state = g.op("concat", state, full(g, (width - state.len,), 0, state.dtype), axis=0)
            result = g.op("add", result, g.op("add", own, state))
        return g.reshape(result, (steps, batch, self.gates * self.hidden))

    def state_weights(self, number: int) -> Value:
        """[H, G] of a direction."""
        return self.n.g.transpose(self.of(self.recurrent, number), (1, 0))

    def start(self, value: Value | None, number: int) -> Value:
        """An initial state of a direction, [B, H]."""
        g, batch = self.n.g, self.x.dims[1]
        if value is None:
            return full(g, (batch, self.hidden), 0, self.x.dtype)
        value = g.transpose(value, (1, 0, 2)) if self.batch_first else value
        self.check(value, batch, self.hidden, "initial state")
        return g.cast(self.of(value, number), self.x.dtype)

    def params(self, number: int) -> dict[str, float | bool]:
        """The parameters that all ops have."""
        return {"reverse": self.directions[number], "clip": self.n.float("clip", 0.0)}

    def functions(self, number: int) -> list[tuple[str, float, float]]:
        """Name, alpha and beta of the activations of a direction. The lists of alphas and betas have elements for those
        activations only that take one."""
        n, each = self.n, len(self.activations)
        names = n.strings("activations", self.activations * len(self.directions))
        if len(names) != each * len(self.directions):
            n.fail(f"its activations {list(names)} should be {each} for each direction")
        alphas, betas = list(n.floats("activation_alpha", ())), list(n.floats("activation_beta", ()))
        found = []
        for name in names:
            if name.lower() not in _ACTIVATIONS:
                n.fail(f"unknown activation '{name}'; there are {', '.join(_ACTIVATIONS)}")
            own, alpha, beta = _ACTIVATIONS[name.lower()]
            if alpha is not None and alphas:
                alpha = alphas.pop(0)
            if beta is not None and betas:
                beta = betas.pop(0)
            found.append((own, alpha or 0.0, beta or 0.0))
        return found[number * each : (number + 1) * each]

    def outputs(self, results: list[tuple[Value, ...]]) -> list[Value]:
        """Y and the last states, from those of each direction."""
        g = self.n.g
        y, *states = zip(*results)
        whole, last = stack(g, y, 1), [stack(g, s, 0) for s in states]
        if self.batch_first:
            whole, last = g.transpose(whole, (2, 0, 1, 3)), [g.transpose(s, (1, 0, 2)) for s in last]
        return [g.cast(v, self.dtype) for v in (whole, *last)]


@onnx_op("LSTM")
def lstm(n: Node, x: Value, w: Value, r: Value, b: Value | None = None, lens: Value | None = None,
         h: Value | None = None, c: Value | None = None, p: Value | None = None) -> list[Value]:  # fmt: skip
    """Long short-term memory."""
    layer = _Layer(n, x, w, r, b, lens, 4, ("Sigmoid", "Tanh", "Tanh"))
    results = []
    for number in range(len(layer.directions)):
        peephole = full(n.g, (3 * layer.hidden,), 0, layer.x.dtype)
        if p is not None:
            layer.check(p, 3 * layer.hidden, None, "P")
            peephole = n.g.cast(layer.of(p, number), layer.x.dtype)
        (f, fa, fb), (g, ga, gb), (k, ka, kb) = layer.functions(number)
        results.append(n.g.op(
            "lstm", layer.inputs(number, 4), layer.state_weights(number), layer.start(h, number), layer.lens,
            layer.start(c, number), peephole, f=f, g=g, k=k, alpha=(fa, ga, ka), beta=(fb, gb, kb),
            input_forget=bool(n.int("input_forget", 0)), **layer.params(number),
        ))  # fmt: skip
    return layer.outputs(results)


@onnx_op("GRU")
def gru(n: Node, x: Value, w: Value, r: Value, b: Value | None = None, lens: Value | None = None,
        h: Value | None = None) -> list[Value]:  # fmt: skip
    """Gated recurrent unit."""
    layer = _Layer(n, x, w, r, b, lens, 3, ("Sigmoid", "Tanh"))
    before = bool(n.int("linear_before_reset", 0))
    results = []
    for number in range(len(layer.directions)):
        bias = full(n.g, (layer.hidden,), 0, layer.x.dtype)
        if before and layer.bias is not None:
            bias = cut(n.g, layer.of(layer.bias, number), 0, 5 * layer.hidden, layer.hidden)
        (f, fa, fb), (g, ga, gb) = layer.functions(number)
        results.append(n.g.op(
            "gru", layer.inputs(number, 2 if before else 3), layer.state_weights(number), layer.start(h, number),
            layer.lens,
            bias, f=f, g=g, alpha=(fa, ga), beta=(fb, gb), linear_before_reset=before, **layer.params(number),
        ))  # fmt: skip
    return layer.outputs(results)


@onnx_op("RNN")
def rnn(n: Node, x: Value, w: Value, r: Value, b: Value | None = None, lens: Value | None = None,
        h: Value | None = None) -> list[Value]:  # fmt: skip
    """The simple recurrent layer."""
    layer = _Layer(n, x, w, r, b, lens, 1, ("Tanh",))
    results = []
    for number in range(len(layer.directions)):
        ((f, alpha, beta),) = layer.functions(number)
        results.append(n.g.op("rnn", layer.inputs(number, 1), layer.state_weights(number), layer.start(h, number),
                              layer.lens, f=f, alpha=alpha, beta=beta, **layer.params(number)))  # fmt: skip
    return layer.outputs(results)
