"""Sequences and optionals of ONNX.

A sequence is a list of tensors while a model is read (`Items`), and an optional is what it holds, so that neither
reaches the network. How long a sequence is, and which element is meant, has to be known. Imports the table of handlers
and the composites.
"""

from __future__ import annotations

from lightnet.frontends.composites import concat, cut_up, squeeze, unsqueeze
from lightnet.frontends.graph import Value
from lightnet.frontends.onnx.node import Items, Node, onnx_op

#: Elements of the longest sequence: more tensors make a network that takes longer to compile than anybody waits.
MAX_ITEMS = 4096


@onnx_op("SequenceEmpty")
def sequence_empty(n: Node) -> Items:
    return Items(())


@onnx_op("SequenceConstruct")
def sequence_construct(n: Node, *tensors: Value) -> Items:
    return Items(tensors)


@onnx_op("SequenceInsert", sequences=True)
def sequence_insert(n: Node, items: Items, tensor: Value, position: Value | None = None) -> Items:
    """With `tensor` before the element at `position`, or at the end."""
    tensors = _tensors(n, items)
    if isinstance(tensor, Items):
        n.unsupported("a sequence of sequences")
    if len(tensors) >= MAX_ITEMS:
        n.unsupported(f"a sequence of more than {MAX_ITEMS} tensors")
    at = len(tensors) if position is None else _position(n, position, len(tensors), len(tensors))
    return Items((*tensors[:at], tensor, *tensors[at:]))


@onnx_op("SequenceErase", sequences=True)
def sequence_erase(n: Node, items: Items, position: Value | None = None) -> Items:
    """Without the element at `position`, or the last one."""
    tensors = _tensors(n, items)
    if not tensors:
        n.fail("its sequence is empty")
    at = len(tensors) - 1 if position is None else _position(n, position, len(tensors))
    return Items((*tensors[:at], *tensors[at + 1 :]))


@onnx_op("SequenceAt", sequences=True)
def sequence_at(n: Node, items: Items, position: Value) -> Value:
    tensors = _tensors(n, items)
    return tensors[_position(n, position, len(tensors))]


@onnx_op("SequenceLength", sequences=True)
def sequence_length(n: Node, items: Items) -> Value:
    return n.g.scalar(len(_tensors(n, items)), "i64")


@onnx_op("SplitToSequence")
def split_to_sequence(n: Node, x: Value, split: Value | None = None) -> Items:
    """Parts of `x` along `axis`: of given lengths, of one length (but for the last), or single elements, which lose the
    axis if `keepdims` is 0."""
    axis = n.axis(n.int("axis", 0), x.ndim)
    if not x.ndim:
        n.fail("a scalar cannot be split")
    total, parts = x.dims[axis], [1] * x.dims[axis] if x.dims[axis] <= MAX_ITEMS else None
    if split is not None:
        given = n.need_ints(split, "the split of SplitToSequence")
        if split.ndim:
            parts = list(given) if len(given) <= MAX_ITEMS else None
        elif given[0] < 1:
            n.fail(f"its parts should have a positive length, not {given[0]}")
        else:
            count = -(-total // given[0])
            parts = [min(given[0], total - k * given[0]) for k in range(count)] if count <= MAX_ITEMS else None
    if parts is None:
        n.unsupported(f"a sequence of more than {MAX_ITEMS} tensors")
    if sum(parts) != total or min(parts, default=0) < 0:
        n.fail(f"its parts {parts} should have {total} elements in all, those of axis {axis} of {x.spec}")
    tensors = tuple(cut_up(n.g, x, axis, parts))
    if split is None and not n.int("keepdims", 1):
        tensors = tuple(squeeze(n.g, t, [axis]) for t in tensors)
    return Items(tensors)


@onnx_op("ConcatFromSequence", sequences=True)
def concat_from_sequence(n: Node, items: Items) -> Value:
    """The tensors behind each other along `axis`, which is a new one if `new_axis` is 1."""
    tensors, stacked = _tensors(n, items), n.int("new_axis", 0)
    if not tensors:
        n.unsupported("an empty sequence, whose tensors have no shape")
    axis = n.axis(n.int("axis"), tensors[0].ndim + (1 if stacked else 0))
    if stacked:
        tensors = tuple(unsqueeze(n.g, t, [axis]) for t in tensors)
    if len({t.ndim for t in tensors}) > 1 or not tensors[0].ndim:
        n.fail(f"tensors of one rank, not 0, can be joined: {', '.join(str(t.spec) for t in tensors[:8])}")
    return concat(n.g, tensors, axis)


@onnx_op("SequenceMap", sequences=True)
def sequence_map(n: Node, items: Items, *others: Items | Value) -> list[Items]:
    """The body for each element; of other sequences it gets the element at the same place, tensors as they are."""
    body, tensors = n.graph("body"), _tensors(n, items)
    if any(isinstance(o, Items) and len(o.tensors) != len(tensors) for o in others):
        n.fail("its sequences should have one length")
    rows = []
    for k, tensor in enumerate(tensors):
        row = n.inline(body, [tensor, *(o.tensors[k] if isinstance(o, Items) else o for o in others)])
        if any(isinstance(v, Items) for v in row):
            n.unsupported("a sequence of sequences")
        rows.append(row)
    return [Items(column) for column in zip(*rows)] if rows else [Items(()) for _ in body.outputs]


@onnx_op("Optional", sequences=True)
def optional(n: Node, x: Value | Items | None = None) -> Value | Items:
    """Import an optional as what it holds."""
    if x is None:
        n.unsupported("an optional without an element")
    return x


@onnx_op("OptionalHasElement", sequences=True)
def optional_has_element(n: Node, x: Value | Items | None = None) -> Value:
    return n.g.scalar(x is not None, "i1")


def _tensors(n: Node, items: Items | Value) -> tuple[Value, ...]:
    if not isinstance(items, Items):
        n.fail(f"its input should be a sequence, but is {items.spec}")
    return items.tensors


def _position(n: Node, value: Value, count: int, last: int | None = None) -> int:
    """A place in a sequence of `count` elements, at most `last`; it may count from the end."""
    if isinstance(value, Items) or value.len != 1:
        n.fail("its position should be one integer")
    (at,) = n.need_ints(value, "the position in a sequence")
    if not -count <= at <= (count - 1 if last is None else last):
        n.fail(f"position {at} is out of range for a sequence of {count} tensors")
    return at + count if at < 0 else at
