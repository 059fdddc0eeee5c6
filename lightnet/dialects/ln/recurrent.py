"""Recurrent layers over a sequence, one direction each: `lstm`, `gru`, `rnn`.

The products of the inputs with their weights are a matrix product over all steps, which stands before the op: what is
left is what one step needs of the step before it. All tensors are time-major, states are [B, H], and weights of the
state are [H, G]: row k says what element k of the state adds to all G gate outputs, so that the inner loop runs along
memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerType
from xdsl.ir import SSAValue

from lightnet.dialects.ln.gates import GATE_ACTIVATIONS, Maths, activate
from lightnet.ir.op import LnOp, boolean, case, ln_op, number, numbers, operand, result, string
from lightnet.ir.types import TensorSpec, flat_memref, storage_type
from lightnet.runtime.arrays import align_up
from lightnet.runtime.initial import sample

_DTYPES = ("f32", "f64")
#: Elements of the state whose products are added to the gate outputs in one pass over them.
_UNROLL = 4


class Recurrent(LnOp):
    """The declarations of all: `gates` [T, B, G], what the inputs add to the gate outputs, biases included; `weight`
    [H, G] of the state; the initial state; and `lens` [B], how many of the T steps each sequence has. Behind its end,
    results are 0 and the state stays. With `reverse`, time runs backward. Gate outputs are clamped to [-clip, clip]
    before their activation, unless `clip` is 0.
    """

    has_builder = True
    gates = operand(rank=3, dtypes=_DTYPES)
    weight = operand("param", rank=2, same_type="gates")
    h0 = operand(rank=2, same_type="gates")
    lens = operand(kind="index", rank=1, dtypes=("i32",))
    y = result(dims="[gates.dims[0:2], weight.dims[0]]")
    h = result(dims="[gates.dims[1], weight.dims[0]]")
    reverse = boolean(default=False)
    clip = number("float", ge=0, default=0)
    checks = {
        "state": "h0.dims[0] == gates.dims[1] && h0.dims[1] == weight.dims[0]",
        "lens": "lens.len == gates.dims[1]",
    }
    #: Gate outputs for each element of the state.
    count = 1

    # -- what a step is, for whoever writes the loops

    def products(self) -> tuple[tuple[int, int], ...]:
        """The gates, as (first, how many), whose products with the state are made together; those behind the first take
        what `between` makes of the state."""
        return ((0, self.count),)

    def constants(self) -> tuple[tuple[str, int], ...]:
        """The params that a unit needs, as (operand, k): unit j has its element k * H + j."""
        return ()

    def between(self, m: Maths, total: SSAValue, h: SSAValue) -> SSAValue:
        """An element of the state that the second products take, from the gate output before it."""
        raise NotImplementedError(f"{self.name} has one product a step")

    def unit(self, m: Maths, x: Sequence[SSAValue], products: Sequence[SSAValue], old: Mapping[str, SSAValue],
             constants: Sequence[SSAValue]) -> dict[str, SSAValue]:  # fmt: skip
        """The new state of a unit, by name: from what the inputs and what the state add to its gate outputs, and the
        old state."""
        return self.cell(m, [m.add(*pair) for pair in zip(x, products, strict=True)], old, constants)

    def cell(
        self, m: Maths, sums: Sequence[SSAValue], old: Mapping[str, SSAValue], beside: Sequence[SSAValue]
    ) -> dict[str, SSAValue]:
        """The new state of a unit, from its whole gate outputs and what these take `beside`."""
        raise NotImplementedError

    @property
    def sizes(self) -> tuple[int, int, int]:
        """(T, B, H)."""
        steps, batch, hidden = self.result_specs[0].dims
        return steps, batch, hidden

    def flops(self):
        steps, batch, hidden = self.sizes
        return steps * batch * hidden * self.count * (2 * hidden + 8)

    def macs(self) -> int:
        """Multiply-adds: the state times the weight, for each step."""
        steps, batch, hidden = self.sizes
        return steps * batch * hidden * self.count * hidden

    @classmethod
    def sample_data(cls, name, kind, spec, tensors, params, seed):
        if name == "lens":  # of no steps, of some, of all
            return sample(name, kind, spec.dims, spec.dtype, seed=seed, bound=tensors["gates"].dims[0] + 1)
        data = super().sample_data(name, kind, spec, tensors, params, seed)
        return data * 2 if name == "gates" else data

    # -- at the loop level

    def workspace_bytes(self):
        _, batch, hidden = self.sizes
        return align_up((self.count + 1) * batch * hidden * self.operand_specs[0].dtype.size)

    def build_loops(self, b, operands, results, workspace):
        steps, batch, hidden = self.sizes
        values = dict(zip([o.name for o in self.schema.operands], operands))
        values |= dict(zip([r.name for r in self.schema.results], results))
        element, size = storage_type(self.operand_specs[0].dtype), self.operand_specs[0].dtype.size
        width = self.count * hidden
        for name, start, count in (("sums", 0, batch * width), ("more", batch * width * size, batch * hidden)):
            part = flat_memref(TensorSpec((count,), self.operand_specs[0].dtype))
            values[name] = b.view(workspace, start, part, name=name, length=count)
        for state, start in (("h", "h0"), ("c", "c0")):
            if start in values:
                self.copy(b, values[start], 0, values[state], 0, batch * hidden)
        with b.loop(0, steps, name="step") as step:
            t = b.op(arith.SubiOp, b.index(steps - 1), step.iv) if self.reverse else step.iv
            self.copy(b, values["gates"], b.mul(t, batch * width), values["sums"], 0, batch * width)
            self.step(b, Maths(b, element), values, t)

    def step(self, b, m, values, t) -> None:
        """The gate outputs of step `t`, and from them results and state."""
        _, batch, hidden = self.sizes
        self.totals(b, m, values)
        with b.loop(0, batch, name="n") as n:
            on = self.active(b, values["lens"], t, n.iv)
            with b.loop(0, hidden, name="j") as j:
                at = b.add(b.mul(n.iv, hidden), j.iv)
                sums = [self.sum_of(b, values, n.iv, j.iv, k) for k in range(self.count)]
                old = {k: b.load(values[k], [at]) for k in ("h", "c") if k in values}
                self.put(b, m, values, t, n.iv, j.iv, on, self.cell(m, sums, old, self.beside(b, values, at, j.iv)))

    def totals(self, b, m, values) -> None:
        """Add what the state adds to the gate outputs."""
        self.accumulate(b, values["h"], values["weight"], values["sums"], 0, self.count * self.sizes[2])

    def sum_of(self, b, values, n, j, gate: int) -> SSAValue:
        """A gate output of unit `j` of sequence `n`."""
        hidden = self.sizes[2]
        return b.load(values["sums"], [b.add(b.add(b.mul(n, self.count * hidden), gate * hidden), j)])

    def beside(self, b, values, at, j) -> list[SSAValue]:
        """The values that the cell of unit `j` takes beside its gate outputs; `at` is its element of the state."""
        return [b.load(values[name], [b.add(k * self.sizes[2], j)]) for name, k in self.constants()]

    @staticmethod
    def copy(b, source, start, target, to, count) -> None:
        with b.loop(0, count) as i:
            b.store(b.load(source, [b.add(i.iv, start)]), target, [b.add(i.iv, to)])

    def accumulate(self, b, state, weight, sums, first: int, columns: int) -> None:
        """sums[b, first + j] += sum over k of state[b, k] * weight[k, first + j] for j < columns."""
        _, batch, hidden = self.sizes
        width = self.count * hidden
        whole = hidden // _UNROLL * _UNROLL
        for low, high, unroll in ((0, whole, _UNROLL), (whole, hidden, 1)):
            if low == high:
                continue
            with b.loop(low, high, unroll, name="k") as k, b.loop(0, batch, name="n") as n:
                parts = [b.load(state, [b.add(b.add(b.mul(n.iv, hidden), k.iv), u)]) for u in range(unroll)]
                rows = [b.add(b.mul(b.add(k.iv, u), width), first) for u in range(unroll)]
                base = b.add(b.mul(n.iv, width), first)
                with b.loop(0, columns, name="j") as j:
                    at = b.add(base, j.iv)
                    total = b.load(sums, [at])
                    for part, row in zip(parts, rows):
                        product = b.op(arith.MulfOp, part, b.load(weight, [b.add(row, j.iv)]))
                        total = b.op(arith.AddfOp, total, product)
                    b.store(total, sums, [at])

    def clipped(self, m: Maths, x: SSAValue) -> SSAValue:
        return m.clamp(x, -self.clip, self.clip) if self.clip else x

    def active(self, b, lens, t, n) -> SSAValue:
        """Return whether sequence `n` has a step `t`."""
        now = b.op(arith.IndexCastOp, t, type=IntegerType(32))
        return b.cmpi("slt", now, b.load(lens, [n]))

    def put(self, b, m, values, t, n, j, on, new: dict[str, SSAValue]) -> None:
        """Store the new state (`h`, `c`) and the result where the sequence goes on."""
        _, batch, hidden = self.sizes
        at = b.add(b.mul(n, hidden), j)
        for name, value in new.items():
            b.store(b.select(on, value, b.load(values[name], [at])), values[name], [at])
        row = b.add(b.mul(b.add(b.mul(t, batch), n), hidden), j)
        b.store(b.select(on, new["h"], m.number(0)), values["y"], [row])

    # -- in NumPy

    def clip_(self, x: np.ndarray) -> np.ndarray:
        return np.clip(x, -self.clip, self.clip) if self.clip else x

    def run(
        self, gates: np.ndarray, lens: np.ndarray, states: Sequence[np.ndarray], step: Any
    ) -> tuple[np.ndarray, ...]:
        """All steps in float64; `step` maps gate inputs and states to new states, the first of which is the result."""
        dtype, steps = gates.dtype, len(gates)
        states = [s.astype(np.float64) for s in states]
        y = np.zeros(self.sizes)
        for t in reversed(range(steps)) if self.reverse else range(steps):
            on = (t < lens)[:, None]
            states = [np.where(on, new, old) for new, old in zip(step(gates[t].astype(np.float64), *states), states)]
            y[t] = np.where(on, states[0], 0)
        return tuple(a.astype(dtype) for a in (y, *states))


_SIZES = ((5, 2, 8), (1, 1, 1), (3, 1, 17), (4, 3, 5), (2, 2, 33))


@ln_op
class Lstm(Recurrent):
    """Long short-term memory. Gate outputs in the order input, output, forget, cell:

    i = f(x_i + h W_i + p_i c),  fg = f(x_f + h W_f + p_f c),  c' = fg c + i g(x_c + h W_c),
    o = f(x_o + h W_o + p_o c'),  h' = o k(c').

    `peephole` is p_i, p_o, p_f, [3H] (zeros without peepholes); with `input_forget`, fg = 1 - i. The activations f, g,
    k have an `alpha` and a `beta` each. Gers and Schmidhuber, "Recurrent Nets that Time and Count" (2000); ONNX's LSTM.

    ```mlir
    // %x : tensor<5x2x32xf32>, %w : tensor<8x32xf32>, %h : tensor<2x8xf32>, %n : tensor<2xi32>, %p : tensor<24xf32>
    %y, %h1, %c1 = ln.lstm %x, %w, %h, %n, %h, %p : tensor<5x2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>
    ```
    """

    optype = "lstm"
    c0 = operand(rank=2, same_type="gates", same_shape="h0")
    peephole = operand("param", kind="bias", rank=1, same_type="gates")
    c = result(dims="h0.dims")
    f = string(*GATE_ACTIVATIONS, default="sigmoid")
    g = string(*GATE_ACTIVATIONS, default="tanh")
    k = string(*GATE_ACTIVATIONS, default="tanh")
    alpha = numbers("float", 3, default=(0, 0, 0))
    beta = numbers("float", 3, default=(0, 0, 0))
    input_forget = boolean(default=False)
    count = 4
    checks = {
        "gates": "gates.dims[2] == 4 * weight.dims[0] && weight.dims[1] == gates.dims[2]",
        **Recurrent.checks,
        "peephole": "peephole.len == 3 * weight.dims[0]",
    }

    def constants(self):
        return tuple(("peephole", k) for k in range(3))

    def cell(self, m, sums, old, beside):
        def gate(number: int, peep: int | None, state: SSAValue) -> SSAValue:
            x = sums[number]
            if peep is not None:
                x = m.add(x, m.mul(beside[peep], state))
            return self.clipped(m, x)

        state = old["c"]
        i = self.activated(m, 0, gate(0, 0, state))
        forget = m.op(arith.SubfOp, m.number(1), i) if self.input_forget else self.activated(m, 0, gate(2, 2, state))
        c = m.add(m.mul(forget, state), m.mul(i, self.activated(m, 1, gate(3, None, state))))
        o = self.activated(m, 0, gate(1, 1, c))
        return {"h": m.mul(o, self.activated(m, 2, c)), "c": c}

    def activated(self, m: Maths, which: int, x: SSAValue) -> SSAValue:
        return m.activate((self.f, self.g, self.k)[which], x, self.alpha[which], self.beta[which])

    def reference(self, gates, weight, h0, lens, c0, peephole):
        w, (p_i, p_o, p_f) = weight.astype(np.float64), np.split(peephole.astype(np.float64), 3)

        def act(which, x):
            return activate((self.f, self.g, self.k)[which], x, self.alpha[which], self.beta[which])

        def step(x, h, c):
            i, o, f, g = np.split(x + h @ w, 4, axis=1)
            i = act(0, self.clip_(i + p_i * c))
            f = 1 - i if self.input_forget else act(0, self.clip_(f + p_f * c))
            c = f * c + i * act(1, self.clip_(g))
            return act(0, self.clip_(o + p_o * c)) * act(2, c), c

        return self.run(gates, lens, (h0, c0), step)

    @classmethod
    def samples(cls):
        def lstm(kind, t, b, h, **p):
            return case(kind, gates=(t, b, 4 * h), weight=(h, 4 * h), h0=(b, h), lens=((b,), "i32"), c0=(b, h),
                        peephole=(3 * h,), **p)  # fmt: skip

        odd = dict(f="hard_sigmoid", g="softsign", k="elu", alpha=(0.2, 0, 0.7), beta=(0.5, 0, 0))
        return [*(lstm("f32", *s) for s in _SIZES), lstm("f64", 3, 2, 4), lstm("f32", 4, 2, 9, reverse=True, clip=0.5),
                lstm("f32", 3, 2, 7, input_forget=True, **odd)]  # fmt: skip


@ln_op
class Gru(Recurrent):
    """Gated recurrent unit. Gate outputs in the order update, reset, hidden:

    z = f(x_z + h W_z),  r = f(x_r + h W_r),  h' = (1 - z) g(n) + z h,
    n = x_h + (r h) W_h or, with `linear_before_reset`, n = x_h + r (h W_h + bias).

    `bias` [H] counts in the second form alone. Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder"
    (2014); ONNX's GRU.

    ```mlir
    // %x : tensor<5x2x24xf32>, %w : tensor<8x24xf32>, %h : tensor<2x8xf32>, %n : tensor<2xi32>, %b : tensor<8xf32>
    %y, %h1 = ln.gru %x, %w, %h, %n, %b : tensor<5x2x8xf32>, tensor<2x8xf32>
    ```
    """

    optype = "gru"
    bias = operand("param", kind="bias", rank=1, same_type="gates")
    f = string(*GATE_ACTIVATIONS, default="sigmoid")
    g = string(*GATE_ACTIVATIONS, default="tanh")
    alpha = numbers("float", 2, default=(0, 0))
    beta = numbers("float", 2, default=(0, 0))
    linear_before_reset = boolean(default=False)
    count = 3
    checks = {
        "gates": "gates.dims[2] == 3 * weight.dims[0] && weight.dims[1] == gates.dims[2]",
        **Recurrent.checks,
        "bias": "bias.len == weight.dims[0]",
    }

    def products(self):
        return ((0, 3),) if self.linear_before_reset else ((0, 2), (2, 1))

    def constants(self):
        return (("bias", 0),) if self.linear_before_reset else ()

    def between(self, m, total, h):
        return m.mul(self.gate(m, total), h)

    def unit(self, m, x, products, old, constants):
        if not self.linear_before_reset:
            return super().unit(m, x, products, old, constants)
        sums = [m.add(*pair) for pair in zip((*x[:2], *constants), products, strict=True)]
        return self.cell(m, sums, old, x[2:])

    def gate(self, m, total: SSAValue) -> SSAValue:
        """The update or the reset gate."""
        return m.activate(self.f, self.clipped(m, total), self.alpha[0], self.beta[0])

    def cell(self, m, sums, old, beside):
        """With linear_before_reset, the last of `sums` is h W_h + bias, and `beside` has x_h."""
        x = m.add(beside[0], m.mul(self.gate(m, sums[1]), sums[2])) if self.linear_before_reset else sums[2]
        z = self.gate(m, sums[0])
        new = m.activate(self.g, self.clipped(m, x), self.alpha[1], self.beta[1])
        return {"h": m.add(m.mul(m.op(arith.SubfOp, m.number(1), z), new), m.mul(z, old["h"]))}

    def totals(self, b, m, values):
        """`more` holds r * h or, with linear_before_reset, what the inputs add to the hidden gate."""
        _, batch, hidden = self.sizes
        h, sums, more, weight = (values[k] for k in ("h", "sums", "more", "weight"))
        if self.linear_before_reset:
            with b.loop(0, batch, name="n") as n, b.loop(0, hidden, name="j") as j:
                at = b.add(b.add(b.mul(n.iv, 3 * hidden), 2 * hidden), j.iv)
                b.store(b.load(sums, [at]), more, [b.add(b.mul(n.iv, hidden), j.iv)])
                b.store(b.load(values["bias"], [j.iv]), sums, [at])
            return super().totals(b, m, values)
        self.accumulate(b, h, weight, sums, 0, 2 * hidden)
        with b.loop(0, batch, name="n") as n, b.loop(0, hidden, name="j") as j:
            at = b.add(b.mul(n.iv, hidden), j.iv)
            b.store(self.between(m, self.sum_of(b, values, n.iv, j.iv, 1), b.load(h, [at])), more, [at])
        self.accumulate(b, more, weight, sums, 2 * hidden, hidden)

    def beside(self, b, values, at, j):
        return [b.load(values["more"], [at])] if self.linear_before_reset else []

    def reference(self, gates, weight, h0, lens, bias):
        w_z, w_r, w_h = np.split(weight.astype(np.float64), 3, axis=1)

        def step(x, h):
            x_z, x_r, x_h = np.split(x, 3, axis=1)
            z, r = (
                activate(self.f, self.clip_(v), self.alpha[0], self.beta[0]) for v in (x_z + h @ w_z, x_r + h @ w_r)
            )
            n = x_h + (r * (h @ w_h + bias) if self.linear_before_reset else (r * h) @ w_h)
            return [(1 - z) * activate(self.g, self.clip_(n), self.alpha[1], self.beta[1]) + z * h]

        return self.run(gates, lens, (h0,), step)

    @classmethod
    def samples(cls):
        def gru(kind, t, b, h, **p):
            return case(kind, gates=(t, b, 3 * h), weight=(h, 3 * h), h0=(b, h), lens=((b,), "i32"), bias=(h,), **p)

        return [*(gru("f32", *s, linear_before_reset=bool(i % 2)) for i, s in enumerate(_SIZES)), gru("f64", 3, 2, 4),
                gru("f32", 4, 2, 9, reverse=True, clip=0.5, linear_before_reset=True),
                gru("f32", 3, 2, 7, f="softplus", g="scaled_tanh", alpha=(0, 1.5), beta=(0, 0.5))]  # fmt: skip


@ln_op
class Rnn(Recurrent):
    """h' = f(x + h W), the simple recurrent layer of Elman, "Finding Structure in Time" (1990); ONNX's RNN.

    ```mlir
    // %x : tensor<5x2x8xf32>, %w : tensor<8x8xf32>, %h : tensor<2x8xf32>, %n : tensor<2xi32>
    %y, %h1 = ln.rnn %x, %w, %h, %n : tensor<5x2x8xf32>, tensor<2x8xf32>
    ```
    """

    optype = "rnn"
    f = string(*GATE_ACTIVATIONS, default="tanh")
    alpha = number("float", default=0)
    beta = number("float", default=0)
    checks = {
        "gates": "gates.dims[2] == weight.dims[0] && weight.dims[1] == gates.dims[2]",
        **Recurrent.checks,
    }

    def cell(self, m, sums, old, beside):
        return {"h": m.activate(self.f, self.clipped(m, sums[0]), self.alpha, self.beta)}

    def reference(self, gates, weight, h0, lens):
        w = weight.astype(np.float64)
        return self.run(
            gates, lens, (h0,), lambda x, h: [activate(self.f, self.clip_(x + h @ w), self.alpha, self.beta)]
        )

    @classmethod
    def samples(cls):
        def rnn(kind, t, b, h, **p):
            return case(kind, gates=(t, b, h), weight=(h, h), h0=(b, h), lens=((b,), "i32"), **p)

        kinds = ("relu", "affine", "leaky_relu", "thresholded_relu")
        return [*(rnn("f32", *s) for s in _SIZES), rnn("f64", 3, 2, 4), rnn("f32", 4, 2, 9, reverse=True, clip=0.5),
                *(rnn("f32", 3, 2, 5, f=k, alpha=0.3, beta=0.1) for k in kinds)]  # fmt: skip
