"""Ops that move elements, of text or numbers: what ONNX calls Reshape, Gather, Concat, Where and their like.

Attributes and inputs are ONNX's; where an op has had an operand as an attribute, either is taken.
"""

from __future__ import annotations

from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

from lightnet.runtime.host.steps import HostStep, host_op, texts

Array = np.ndarray


def _axis(step: HostStep, value: int, ndim: int) -> int:
    if not -ndim <= value < ndim:
        step.fail(f"axis {value} is out of range for a tensor of rank {ndim}")
    return value % ndim


def _numbers(step: HostStep, name: str, given: Array | None, default: Any = ...) -> Any:
    """Integers that are an operand, or in older opsets an attribute."""
    if given is not None:
        if given.dtype.kind not in "iu":
            step.fail(f"its {name} should be integers, but are {given.dtype}")
        return [int(v) for v in given.reshape(-1)]
    return step.list(name, int, default)


@host_op("Identity", "same")
def identity(step: HostStep, x: Array) -> Array:
    return x


@host_op("Shape", "i64", of_dims=True)
def shape(step: HostStep, x: Array) -> Array:
    return np.array(x.shape[slice(step.integer("start", 0), step.integer("end", None))], np.int64)


@host_op("Size", "i64", of_dims=True)
def size(step: HostStep, x: Array) -> Array:
    return np.array(x.size, np.int64)


@host_op("Reshape", "same", deciding=(1,))
def reshape(step: HostStep, x: Array, dims: Array) -> Array:
    """0 keeps the dim of x that stands there, unless `allowzero`; -1 is what is left."""
    wanted = _numbers(step, "shape", dims)
    if not step.integer("allowzero", 0):
        wanted = [x.shape[i] if d == 0 and i < x.ndim else d for i, d in enumerate(wanted)]
    return x.reshape(wanted)


@host_op("Flatten", "same")
def flatten(step: HostStep, x: Array) -> Array:
    axis = step.integer("axis", 1)
    if not -x.ndim <= axis <= x.ndim:
        step.fail(f"axis {axis} is out of range for a tensor of rank {x.ndim}")
    axis += x.ndim if axis < 0 else 0
    return x.reshape(prod(x.shape[:axis]), prod(x.shape[axis:]))


@host_op("Squeeze", "same", deciding=(1,))
def squeeze(step: HostStep, x: Array, axes: Array | None = None) -> Array:
    wanted = _numbers(step, "axes", axes, None)
    return x.squeeze(None if wanted is None else tuple(_axis(step, a, x.ndim) for a in wanted))


@host_op("Unsqueeze", "same", deciding=(1,))
def unsqueeze(step: HostStep, x: Array, axes: Array | None = None) -> Array:
    wanted = _numbers(step, "axes", axes)
    return np.expand_dims(x, tuple(_axis(step, a, x.ndim + len(wanted)) for a in wanted))


@host_op("Transpose", "same")
def transpose(step: HostStep, x: Array) -> Array:
    return x.transpose(step.list("perm", int, None))


@host_op("Expand", "same", deciding=(1,))
def expand(step: HostStep, x: Array, dims: Array) -> Array:
    return np.broadcast_to(x, step.room(np.broadcast_shapes(x.shape, tuple(_numbers(step, "shape", dims)))))


@host_op("Tile", "same", deciding=(1,))
def tile(step: HostStep, x: Array, repeats: Array) -> Array:
    times = _numbers(step, "repeats", repeats)
    if len(times) != x.ndim or any(n < 0 for n in times):
        step.fail(f"its repeats {times} are not those of a tensor of rank {x.ndim}")
    step.room(d * n for d, n in zip(x.shape, times))
    return np.tile(x, times)


@host_op("Concat", "same")
def concat(step: HostStep, *parts: Array) -> Array:
    axis = _axis(step, step.integer("axis", 1), parts[0].ndim)
    if len({p.dtype for p in parts}) > 1:
        step.fail(f"its operands are {', '.join(str(p.dtype) for p in parts):.80}")
    dims = list(parts[0].shape)
    dims[axis] = sum(p.shape[axis] for p in parts)
    step.room(dims)
    return np.concatenate(parts, axis)


@host_op("Split", "same", deciding=(1,))
def split(step: HostStep, x: Array, sizes: Array | None = None) -> tuple[Array, ...]:
    axis, count = _axis(step, step.integer("axis", 0), x.ndim), len(step.outputs)
    wanted = _numbers(step, "split", sizes, None)
    if wanted is None:
        chunk = -(-x.shape[axis] // count)
        wanted = [max(min(chunk, x.shape[axis] - i * chunk), 0) for i in range(count)]
    if len(wanted) != count or min(wanted) < 0 or sum(wanted) != x.shape[axis]:
        step.fail(f"its sizes {wanted} do not divide {x.shape[axis]} elements among {count} outputs")
    return tuple(np.split(x, list(accumulate(wanted))[:-1], axis))


@host_op("Slice", "same", deciding=(1, 2, 3, 4))
def slice_(
    step: HostStep,
    x: Array,
    starts: Array | None = None,
    ends: Array | None = None,
    axes: Array | None = None,
    steps: Array | None = None,
) -> Array:
    begin, end = _numbers(step, "starts", starts), _numbers(step, "ends", ends)
    along = _numbers(step, "axes", axes, None) or list(range(len(begin)))
    stride = _numbers(step, "steps", steps, None) or [1] * len(begin)
    if not len(begin) == len(end) == len(along) == len(stride) or 0 in stride:
        step.fail(f"its starts {begin}, ends {end}, axes {along} and steps {stride} do not fit")
    index = [slice(None)] * x.ndim
    for b, e, a, s in zip(begin, end, along, stride):
        axis = _axis(step, a, x.ndim)
        index[axis] = slice(max(b, -x.shape[axis]), e, s)  # what begins before the first element begins there
    return x[tuple(index)]


def _indices(step: HostStep, index: Array, length: int) -> Array:
    """Indices counted from 0. LightNetError for one that is outside."""
    if index.dtype.kind not in "iu":
        step.fail(f"its indices are {index.dtype}")
    if index.size and not -length <= int(index.min()) <= int(index.max()) < length:
        step.fail(f"an index from {int(index.min())} to {int(index.max())} of {length} elements", "host.index")
    return np.where(index < 0, index + length, index)


@host_op("Gather", "same")
def gather(step: HostStep, x: Array, index: Array) -> Array:
    axis = _axis(step, step.integer("axis", 0), x.ndim)
    step.room((*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]))
    return np.asarray(np.take(x, _indices(step, index, x.shape[axis]), axis), x.dtype)  # one text is a str


@host_op("GatherElements", "same")
def gather_elements(step: HostStep, x: Array, index: Array) -> Array:
    axis = _axis(step, step.integer("axis", 0), x.ndim)
    step.room(index.shape)
    return np.take_along_axis(x[tuple(slice(n) if a != axis else slice(None) for a, n in enumerate(index.shape))],
                              _indices(step, index, x.shape[axis]), axis)  # fmt: skip


@host_op("Where", lambda step, inputs: (inputs[1],))
def where(step: HostStep, condition: Array, x: Array, y: Array) -> Array:
    step.room(np.broadcast_shapes(condition.shape, x.shape, y.shape))
    if condition.dtype != np.bool_ or x.dtype != y.dtype:
        step.fail(f"its operands are {condition.dtype}, {x.dtype} and {y.dtype}")
    return np.where(condition, x, y)


@host_op("Compress", "same", opened=True)
def compress(step: HostStep, x: Array, condition: Array) -> Array:
    axis = step.integer("axis", None)
    chosen = np.flatnonzero(condition)
    return np.take(x, chosen, None if axis is None else _axis(step, axis, x.ndim))


@host_op("Unique", ("same", "i64", "i64", "i64"), opened=True)
def unique(step: HostStep, x: Array) -> tuple[Array, ...]:
    """The different elements, where each first stands, which of them each is, and how often there are. Of all elements,
    not along an axis."""
    if step.integer("axis", None) is not None:
        step.fail("Unique along an axis is not supported of text", "host.unsupported")
    flat = x.reshape(-1).tolist()
    first: dict[Any, int] = {}
    for i, value in enumerate(flat):
        first.setdefault(value, i)
    values = (
        sorted(first, key=(lambda v: v.encode()) if x.dtype == object else None)
        if step.integer("sorted", 1)
        else list(first)
    )
    place = {value: i for i, value in enumerate(values)}
    inverse = np.array([place[v] for v in flat], np.int64)
    found = texts(values) if x.dtype == object else np.array(values, x.dtype)
    return (
        found,
        np.array([first[v] for v in values], np.int64),
        inverse,
        np.bincount(inverse, minlength=len(values)).astype(np.int64),
    )


@host_op("ai.onnx.ml.ArrayFeatureExtractor", "same")
def array_feature_extractor(step: HostStep, x: Array, index: Array) -> Array:
    """The elements of the last axis that `index` names; of a vector, as one row."""
    found = np.take(x, _indices(step, index.reshape(-1), x.shape[-1]), -1)
    return found.reshape(1, -1) if x.ndim == 1 else found
