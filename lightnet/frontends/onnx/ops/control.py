"""Control flow that constants decide: `If` becomes the branch that is taken, `Loop` and `Scan` are unrolled.

Imports the composites and the table of handlers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lightnet.frontends.composites import element_at, stack
from lightnet.frontends.graph import Value
from lightnet.frontends.onnx.node import Items, Node, onnx_op

#: Trips of a loop that is unrolled: more make a network that takes longer to compile than anybody waits.
MAX_TRIPS = 4096


@onnx_op("If")
def if_(n: Node, cond: Value) -> list[Any]:
    """The branch that a constant condition takes, inlined; where sizes that the data decides are about (is there any
    box?), both, and a choice."""
    if not cond.is_known and (n.g.sizes or not cond.inputs):
        return _both(n, cond)
    taken = _flag(n, cond, "which branch of If is taken")
    return n.inline(n.graph("then_branch" if taken else "else_branch"))


def _both(n: Node, cond: Value) -> list[Any]:
    """Both branches, and of each output that which counts: no op has an effect, or a fault, on what does not count."""
    from lightnet.frontends.counted_moves import merged

    if cond.len != 1:
        n.fail(f"which branch of If is taken should be one bool, and has {cond.len} elements")
    pairs = list(zip(n.inline(n.graph("then_branch")), n.inline(n.graph("else_branch")), strict=True))
    alike = all(
        isinstance(a, Value) and isinstance(b, Value) and (a.ndim, a.dtype) == (b.ndim, b.dtype) for a, b in pairs
    )
    if not alike:
        n.need(cond, "which branch of If is taken, whose outputs have different ranks or types,")
    return [merged(n.g, n.g.reshape(cond, ()), a, b) for a, b in pairs]


@onnx_op("Loop", sequences=True)
def loop(n: Node, trips: Value | None = None, cond: Value | None = None, *carried: Value | Items) -> list[Any]:
    """Unrolled: the number of trips, and the condition after each of them, have to be constant."""
    body = n.graph("body")
    if isinstance(trips, Items):
        n.fail("its number of trips is a sequence")
    most = None if trips is None else n.need_ints(trips, "the number of trips of Loop")[0]
    going = cond is None or _flag(n, cond, "the condition of Loop")
    state, rows = list(carried), []
    trip = 0
    while going and (most is None or trip < most):
        if trip >= MAX_TRIPS:
            n.unsupported(f"a Loop of more than {MAX_TRIPS} trips")
        flag = n.g.constant([True], "i1") if cond is None else cond
        results = n.inline(body, [n.g.scalar(trip, "i64"), n.g.reshape(flag, ()), *state])
        if len(results) < 1 + len(state):
            n.fail(f"its body should have {1 + len(state)} outputs or more, and has {len(results)}")
        going = _flag(n, results[0], "the condition of Loop")
        state, made = results[1 : 1 + len(state)], results[1 + len(state) :]
        if any(isinstance(v, Items) for v in made):
            n.unsupported("a Loop that collects sequences")
        rows.append(made)
        trip += 1
    if not rows and len(body.outputs) > 1 + len(state):
        n.unsupported("a Loop of no trips, whose outputs are empty")
    return [*state, *(stack(n.g, column, 0) for column in zip(*rows))]


@onnx_op("Scan")
def scan(n: Node, first: Value | None = None, *others: Value) -> list[Value]:
    """Unrolled along the scanned axis, whose length is part of the type."""
    if n.opset < 9:
        return _batched_scan(n, first, others)
    if first is None:
        n.fail("needs its input 0")
    return _scan(n, (first, *others), "scan_input_directions")


def _batched_scan(n: Node, lengths: Value | None, inputs: Sequence[Value]) -> list[Value]:
    """Scan of opset 8: its inputs have a batch axis before all others, and each entry is scanned on its own."""
    batches = {v.dims[:1] for v in inputs}
    if len(batches) != 1 or not (batch := batches.pop()) or not batch[0]:
        n.fail("its inputs should have one batch size")
    if lengths is not None:
        n.unsupported("lengths of sequences in a Scan of opset 8")
    if batch[0] > MAX_TRIPS:
        n.unsupported(f"a Scan of more than {MAX_TRIPS} batch entries")
    entries = [_scan(n, [element_at(n.g, v, 0, b) for v in inputs], "directions") for b in range(batch[0])]
    return [stack(n.g, column, 0) for column in zip(*entries)]


def _scan(n: Node, inputs: Sequence[Value], directions: str) -> list[Value]:
    body = n.graph("body")
    scanned = n.int("num_scan_inputs")
    if not 0 < scanned <= len(inputs):
        n.fail(f"num_scan_inputs {scanned} should be between 1 and its number of inputs, {len(inputs)}")
    states = len(inputs) - scanned
    state, sequences = list(inputs[:states]), inputs[states:]
    made = len(body.outputs) - states
    axes = _listed(n, "scan_input_axes", scanned)
    backward = _listed(n, directions, scanned)
    if not all(v.ndim for v in sequences):
        n.fail("a scanned input is a scalar")
    lengths = {v.dims[n.axis(a, v.ndim)] for v, a in zip(sequences, axes)}
    if len(lengths) != 1 or 0 in lengths:
        n.fail(f"its scanned inputs should have one length, and have {sorted(lengths)}")
    if (length := lengths.pop()) > MAX_TRIPS:
        n.unsupported(f"a Scan of more than {MAX_TRIPS} steps")
    rows = []
    for step in range(length):
        slices = [element_at(n.g, v, n.axis(a, v.ndim), length - 1 - step if b else step)
                  for v, a, b in zip(sequences, axes, backward)]  # fmt: skip
        results = n.inline(body, [*state, *slices])
        if any(isinstance(v, Items) for v in results):
            n.fail("a Scan of sequences")
        state = results[:states]
        rows.append(results[states:])
    columns = [list(column) for column in zip(*rows)]
    for column, b in zip(columns, _listed(n, "scan_output_directions", made)):
        if b:
            column.reverse()
    out_axes = _listed(n, "scan_output_axes", made)
    return [*state, *(stack(n.g, c, n.axis(a, c[0].ndim + 1)) for c, a in zip(columns, out_axes))]


def _listed(n: Node, name: str, count: int) -> tuple[int, ...]:
    values = n.ints(name, (0,) * count)
    if len(values) != count:
        n.fail(f"its attribute '{name}' should have {count} elements, and has {len(values)}")
    return values


def _flag(n: Node, value: Value | Items, what: str) -> bool:
    if isinstance(value, Items):
        n.fail(f"{what} should be one bool, and is a sequence")
    array = n.need(value, what)
    if array.size != 1:
        n.fail(f"{what} should be one bool, and has {array.size} elements")
    return bool(array.reshape(-1)[0])
