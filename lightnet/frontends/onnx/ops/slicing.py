"""ONNX ops that join tensors, cut them, and pad them. Imports the table of handlers and the composites."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lightnet.frontends.composites import concat, cut_up, strided
from lightnet.frontends.graph import Value
from lightnet.frontends.onnx.node import Node, onnx_op
from lightnet.frontends.sizes import same
from lightnet.runtime.dims import dim_max, dim_min, is_known, least


@onnx_op("Concat")
def concat_(n: Node, *parts: Value) -> Value:
    if not parts[0].ndim:
        n.fail("its inputs are scalars")
    axis = n.axis(n.int("axis"), parts[0].ndim)
    for p in parts[1:]:
        alike = p.ndim == parts[0].ndim and all(
            k == axis or same(a, b) for k, (a, b) in enumerate(zip(p.dims, parts[0].dims))
        )
        if not alike or p.dtype != parts[0].dtype:
            n.fail(f"{parts[0].spec} and {p.spec} should be alike but along axis {axis}")
    return concat(n.g, parts, axis)


@onnx_op("Split")
def split(n: Node, x: Value, sizes: Value | None = None) -> tuple[Value, ...]:
    """Into parts of the given sizes, or as equal as can be (the last one is smaller)."""
    if not x.ndim:
        n.fail("its input is a scalar")
    axis = n.axis(n.int("axis", 0), x.ndim)
    length = x.dims[axis]
    given = n.ints("split", None) if sizes is None else n.need_ints(sizes, "the sizes of Split")
    if given is None:
        count = n.int("num_outputs", len(n.outputs))
        if count != len(n.outputs):
            n.fail(f"num_outputs is {count}, but it has {len(n.outputs)} outputs")
        part = -(-length // count)
        given = [dim_max(dim_min(part, length - k * part), 0) for k in range(count)]
    if not same(sum(given), length) or any(least(s) < 0 for s in given):
        n.fail(f"parts of {list(given)} should add up to the {length} of axis {axis} of {x.spec}")
    return tuple(cut_up(n.g, x, axis, given))


@onnx_op("Slice")
def slice_(n: Node, x: Value, starts: Value | None = None, ends: Value | None = None, axes: Value | None = None,
           steps: Value | None = None) -> Value:  # fmt: skip
    """As NumPy's slices, with begins and ends that clamp."""
    if starts is None or ends is None:
        low, high = n.ints("starts"), n.ints("ends")
        which = n.ints("axes", tuple(range(len(low))))
        by: Sequence[int] = (1,) * len(low)
    else:
        low, high = n.need_ints(starts, "the starts of Slice"), n.need_ints(ends, "the ends of Slice")
        which = tuple(range(len(low))) if axes is None else n.need_ints(axes, "the axes of Slice")
        by = (1,) * len(low) if steps is None else n.need_ints(steps, "the steps of Slice")
    which = n.axes(which, x.ndim)
    if type(x) is not Value or not is_known((*low, *high, *(x.dims[k] for k in which))):
        return _counted_slice(n, x, low, high, which, by)
    if not len(low) == len(high) == len(which) == len(by) or 0 in by:
        n.fail(f"starts {list(low)}, ends {list(high)}, axes {list(which)} and steps {list(by)} do not fit together")
    first, step, lens = [0] * x.ndim, [1] * x.ndim, list(x.dims)
    for axis, a, b, s in zip(which, low, high, by):
        taken = _taken(a, b, s, x.dims[axis])
        first[axis], step[axis], lens[axis] = taken.start if len(taken) else 0, s, len(taken)
    return strided(n.g, x, first, [max(min(s, 2**31 - 1), -(2**31)) for s in step], lens)


def _taken(start: int, end: int, step: int, length: int) -> range:
    """The elements of an axis that a slice takes: NumPy's, but what begins before the first one begins there, in steps
    back, too."""
    return range(*slice(max(start, -length), end, step).indices(length))


def _counted_slice(
    n: Node, x: Value, low: Sequence[Any], high: Sequence[Any], which: Sequence[int], by: Sequence[int]
) -> Value:
    """Slice where the length of an axis, or an end, is a size that the data decides: an axis at a time."""
    from lightnet.frontends.counted import counted, dim_numbers
    from lightnet.frontends.counted_moves import slice_axis

    g, ends = n.g, list(zip(which, low, high, by, strict=True))
    if not is_known(by) or 0 in by:
        n.fail(f"its steps are {list(by)}")
    if (sizes := getattr(x, "numbers", None)) is not None and is_known((*low, *high)):
        for axis, a, b, s in ends:
            taken = _taken(a, b, s, sizes.shape[axis])
            sizes = sizes.take(np.arange(taken.start, taken.stop, taken.step), axis)
        return dim_numbers(g, sizes)
    for axis, a, b, s in ends:
        if not is_known((x.dims[axis], a, b)):
            x = slice_axis(g, x, axis, a, b, s)
            continue
        taken = _taken(a, b, s, x.dims[axis])
        first, step, lens = [0] * x.ndim, [1] * x.ndim, list(x.spec.dims)
        first[axis], step[axis], lens[axis] = taken.start if len(taken) else 0, s if len(taken) > 1 else 1, len(taken)
        dims = [len(taken) if k == axis else d for k, d in enumerate(x.dims)]
        x = counted(g, g.plain("strided_slice", x, starts=tuple(first), steps=tuple(step), lens=tuple(lens)), dims)
    return x


@onnx_op("Pad")
def pad(n: Node, x: Value, pads: Value | None = None, value: Value | None = None, axes: Value | None = None) -> Value:
    """`pads` are the begins of all axes (or of `axes`), then the ends."""
    given = n.ints("pads") if pads is None else n.need_ints(pads, "the pads")
    which = tuple(range(x.ndim)) if axes is None else n.axes(n.need_ints(axes, "the axes of Pad"), x.ndim)
    if len(given) != 2 * len(which):
        n.fail(f"pads {list(given)} should be two for each of {len(which)} axes")
    before, after = [0] * x.ndim, [0] * x.ndim
    for k, axis in enumerate(which):
        before[axis], after[axis] = given[k], given[k + len(which)]
    mode = n.string("mode", "constant")
    if mode not in ("constant", "reflect", "edge", "wrap"):
        n.fail(f"unknown mode '{mode}'")
    filler = n.float("value", 0.0) if value is None else _number(n.need(value, "the value of Pad"))
    if is_known((*before, *after)) and not any(before) and not any(after):
        return x
    if mode == "constant" and not (is_known((*before, *after)) and type(x) is Value):
        from lightnet.frontends.counted_moves import pad as counted_pad

        return counted_pad(n.g, x, before, after, filler)
    return n.g.op("pad", x, before=tuple(before), after=tuple(after), mode=mode, value=filler)


def _number(array: np.ndarray) -> float | int:
    """The one element of an array, as a parameter; what is empty is 0."""
    if array.size == 0:
        return 0
    first = array.reshape(-1)[0]
    return int(first) if array.dtype.kind in "iub" else float(first)


@onnx_op("CenterCropPad")
def center_crop_pad(n: Node, x: Value, to: Value) -> Value:
    """Each axis cut or padded to its length, as much on both sides; what is odd goes to the end."""
    wanted = n.need_ints(to, "the shape of CenterCropPad")
    which = n.axes(n.ints("axes", tuple(range(x.ndim))), x.ndim)
    if len(wanted) != len(which) or any(d < 0 for d in wanted):
        n.fail(f"the shape {list(wanted)} should have a length for each of {len(which)} axes")
    before, after = [0] * x.ndim, [0] * x.ndim
    for axis, length in zip(which, wanted):
        more = length - x.dims[axis]
        before[axis] = more // 2 if more >= 0 else -(-more // 2)
        after[axis] = more - before[axis]
    if not any(before) and not any(after):
        return x
    return n.g.op("pad", x, before=tuple(before), after=tuple(after))
