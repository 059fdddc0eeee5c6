"""ONNX ops that make, cut, join and reorder tensors. Imports the table of handlers and the composites."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from lightnet.frontends.composites import (
    broadcast,
    cut,
    depth_to_space,
    expand,
    full,
    one_hot,
    positions_along,
    space_to_depth,
    squeeze,
    tile,
    unsqueeze,
)
from lightnet.frontends.graph import MAX_MADE, Value
from lightnet.frontends.onnx.model import OnnxTensor
from lightnet.frontends.onnx.node import Items, Node, onnx_op
from lightnet.frontends.onnx.storage import marked
from lightnet.frontends.sizes import is_counted, is_one, same
from lightnet.runtime.dims import Dim, dim_max, greatest, is_known, least
from lightnet.runtime.dtypes import BY_NAME
from lightnet.runtime.stored import FORMATS

# -- constants -------------------------------------------------------------------------------------------------------


@onnx_op("Identity", "OptionalGetElement", sequences=True)
def identity(n: Node, x: Value | Items) -> Value | Items:
    return x


@onnx_op("Constant")
def constant(n: Node) -> Value:
    """The attribute that is there is the value."""
    tensor = n.node.attributes.get("value")
    # Some exporters keep all weights so: they stay in the file.
    if isinstance(tensor, OnnxTensor) and tensor.dtype in BY_NAME:
        return n.importer.value_of(tensor, n.outputs[0] if n.outputs else "const")
    if tensor is not None:
        return n.g.constant(n.tensor("value"))
    for name, read, dtype in (
        ("value_float", n.float, "f32"), ("value_floats", n.floats, "f32"), ("value_int", n.int, "i64"),
        ("value_ints", n.ints, "i64"),
    ):  # fmt: skip
        if n.has(name):
            return n.g.constant(np.asarray(read(name)), dtype)
    n.unsupported("a constant of strings, or a sparse one")


@onnx_op("ConstantOfShape")
def constant_of_shape(n: Node, shape: Value) -> Value:
    dims = n.need_ints(shape, "the shape of ConstantOfShape")
    value = n.tensor("value")
    value = np.zeros(1, np.float32) if value is None else value
    if value.size != 1:
        n.fail(f"its value should have one element, but has {value.size}")
    full = expand(n.g, n.g.constant(value.reshape(())), _dims(n, dims))
    tensor = n.node.attributes.get("value")
    return marked(full, tensor.dtype) if isinstance(tensor, OnnxTensor) and tensor.dtype in FORMATS else full


@onnx_op("Shape")
def shape(n: Node, x: Value) -> Value:
    """The dims, a constant where they are known. `start` and `end` clamp."""
    return _numbers(n, x.dims[slice(n.int("start", 0), n.int("end", x.ndim))])


@onnx_op("Size")
def size(n: Node, x: Value) -> Value:
    return _numbers(n, x.len)


@onnx_op("Range")
def range_(n: Node, start: Value, limit: Value, delta: Value) -> Value:
    """start + i * delta below limit, in the operands' type."""
    if any(v.len != 1 for v in (start, limit, delta)):
        n.fail("its inputs should be scalars")
    if any(hasattr(v, "numbers") for v in (start, limit, delta)):
        return _range_of_sizes(n, start, limit, delta)
    first, last, step = (n.need(v, "an end of Range").reshape(()) for v in (start, limit, delta))
    if step == 0:
        n.fail("its delta is 0")
    wide = [v.item() if v.dtype.kind in "iu" else float(v) for v in (first, last, step)]
    count = max(-int((wide[0] - wide[1]) // wide[2]), 0) if np.isfinite(wide).all() else MAX_MADE + 1
    if count > MAX_MADE:
        n.fail(f"a range of {count} elements, more than the limit of {MAX_MADE}")
    whole = first.dtype.kind in "iu"
    return n.g.table((count,), start.dtype,
                     lambda: np.arange(count, dtype=np.int64 if whole else np.float64) * wide[2] + wide[0])  # fmt: skip


@onnx_op("EyeLike")
def eye_like(n: Node, x: Value) -> Value:
    if x.ndim != 2:
        n.fail(f"needs a matrix, got {x.spec}")
    rows, columns = x.dims
    shift = max(-greatest(rows), min(n.int("k", 0), greatest(columns)))
    dtype = n.element_type("dtype") or x.dtype
    if is_known(x.dims):
        return n.g.table(x.dims, dtype, lambda: np.eye(rows, columns, shift, np.int8))
    row, column = (positions_along(n.g, count, axis, 2) for axis, count in enumerate(x.dims))
    return n.g.cast(n.g.op("equal", n.g.op("add", row, n.g.scalar(shift, "i64")), column), dtype)


@onnx_op("OneHot")
def onehot(n: Node, indices: Value, depth: Value, values: Value) -> Value:
    """`values` are (off, on); an index below 0 counts from the end, one outside is on nowhere."""
    if depth.len != 1:
        n.fail(f"the depth of OneHot should be one number, but is {depth.spec}")
    g, count = n.g, int(n.need(depth, "the depth of OneHot").item())
    if values.dims != (2,) or count < 0:
        n.fail(f"its values should be two, and its depth not negative; got {values.spec} and {count}")
    axis = n.axis(n.int("axis", -1), indices.ndim + 1)
    index = g.cast(indices, "i64")
    from_end = g.op("add", index, g.scalar(count, "i64"))
    index = g.op("where", g.op("less", index, g.scalar(0, "i64")), from_end, index)
    off, on = (g.reshape(cut(g, values, 0, k, 1), ()) for k in (0, 1))
    return g.op("where", one_hot(g, index, count, axis), on, off)


# -- the same elements in another shape ------------------------------------------------------------------------------


@onnx_op("Reshape")
def reshape(n: Node, x: Value, to: Value) -> Value:
    """0 keeps a dimension (unless `allowzero`), one -1 is what is left."""
    dims = list(n.need_ints(to, "the shape of Reshape"))
    if not n.int("allowzero", 0):
        for k, d in enumerate(dims):
            if d == 0:
                if k >= x.ndim:
                    n.fail(
                        f"dimension {k} of the shape {dims} is 0, which copies it from {x.spec}, which has none such"
                    )
                dims[k] = x.dims[k]
    if dims.count(-1) > 1 or any(least(d) < -1 for d in dims):
        n.fail(f"the shape {dims} should have at most one -1")
    if -1 in dims:
        rest = prod(d for d in dims if d != -1)
        if rest == 0 or not same(x.len % rest, 0):
            n.fail(f"{x.spec} cannot have the shape {dims}")
        dims[dims.index(-1)] = x.len // rest
    if not same(prod(dims), x.len):
        n.fail(f"{x.spec} cannot have the shape {dims}")
    return n.g.reshape(x, dims)


@onnx_op("Flatten")
def flatten(n: Node, x: Value) -> Value:
    axis = n.int("axis", 1)
    if not -x.ndim <= axis <= x.ndim:
        n.fail(f"axis {axis} is out of range for a tensor of rank {x.ndim}")
    axis = axis + x.ndim if axis < 0 else axis
    return n.g.reshape(x, (prod(x.dims[:axis]), prod(x.dims[axis:])))


def _axes_of(n: Node, axes: Value | None, ndim: int) -> tuple[int, ...] | None:
    """Axes from an input, or an attribute; None where there are none."""
    given = n.ints("axes", None) if axes is None else n.need_ints(axes, "the axes")
    return None if given is None else n.axes(given, ndim)


@onnx_op("Squeeze")
def squeeze_(n: Node, x: Value, axes: Value | None = None) -> Value:
    which = _axes_of(n, axes, x.ndim)
    if which is None:
        which = tuple(k for k, d in enumerate(x.dims) if is_one(d))
    if not all(same(x.dims[k], 1) for k in which):
        n.fail(f"axes {list(which)} of {x.spec} should have length 1")
    return squeeze(n.g, x, which)


@onnx_op("Unsqueeze")
def unsqueeze_(n: Node, x: Value, axes: Value | None = None) -> Value:
    given = n.ints("axes") if axes is None else n.need_ints(axes, "the axes")
    return unsqueeze(n.g, x, n.axes(given, x.ndim + len(given)))


@onnx_op("Transpose")
def transpose(n: Node, x: Value) -> Value:
    axes = n.axes(n.ints("perm", tuple(reversed(range(x.ndim)))), x.ndim)
    if len(axes) != x.ndim:
        n.fail(f"perm {list(axes)} should order the {x.ndim} axes of {x.spec}")
    return n.g.transpose(x, axes)


@onnx_op("DepthToSpace")
def depth_to_space_(n: Node, x: Value) -> Value:
    b = n.int("blocksize")
    if x.ndim != 4 or b < 1 or x.dims[1] % (b * b):
        n.fail(f"needs [N, C, H, W] whose channels are a multiple of {b}^2, got {x.spec}")
    return depth_to_space(n.g, x, b, n.string("mode", "DCR") == "DCR")


@onnx_op("SpaceToDepth")
def space_to_depth_(n: Node, x: Value) -> Value:
    b = n.int("blocksize")
    if x.ndim != 4 or b < 1 or x.dims[2] % b or x.dims[3] % b:
        n.fail(f"needs [N, C, H, W] whose sizes are multiples of {b}, got {x.spec}")
    return space_to_depth(n.g, x, b, n.string("mode", "DCR") == "DCR")


# -- repeating -------------------------------------------------------------------------------------------------------


@onnx_op("Expand")
def expand_(n: Node, x: Value, to: Value) -> Value:
    """Both ways: an axis of length 1 of the shape takes the tensor's length."""
    return expand(n.g, x, broadcast(x.dims, _dims(n, n.need_ints(to, "the shape of Expand"))))


@onnx_op("Tile")
def tile_(n: Node, x: Value, repeats: Value) -> Value:
    counts = n.need_ints(repeats, "the repeats of Tile")
    if len(counts) != x.ndim or any(r < 0 for r in counts):
        n.fail(f"repeats {list(counts)} should be one for each axis of {x.spec}")
    return tile(n.g, x, counts)


# -- others ----------------------------------------------------------------------------------------------------------


@onnx_op("Trilu")
def trilu(n: Node, x: Value, k: Value | None = None) -> Value:
    diagonal = 0 if k is None else n.need_ints(k, "the diagonal of Trilu")[0]
    most = max(map(greatest, x.dims[-2:]), default=0)  # beyond the corners, all diagonals are alike
    return n.g.op("trilu", x, upper=bool(n.int("upper", 1)), k=max(-most, min(diagonal, most)))


@onnx_op("ReverseSequence")
def reverse_sequence(n: Node, x: Value, lens: Value) -> Value:
    batch, time = n.axis(n.int("batch_axis", 1), x.ndim), n.axis(n.int("time_axis", 0), x.ndim)
    return n.g.op("reverse_sequence", x, lens, batch_axis=batch, time_axis=time)


@onnx_op("Col2Im")
def col2im(n: Node, x: Value, image: Value, block: Value) -> Value:
    """Columns [N, C * prod(block), L] added up where they came from: a transposed convolution with weights that pick
    one element of the block for each of its columns."""
    g = n.g
    size, kernel = n.need_ints(image, "the image of Col2Im"), n.need_ints(block, "the block of Col2Im")
    rank = len(size)
    stride, dilation = n.ints("strides", (1,) * rank), n.ints("dilations", (1,) * rank)
    pads = n.ints("pads", (0,) * (2 * rank))
    if (
        x.ndim != 3
        or len(kernel) != rank
        or min((*kernel, *stride, *dilation), default=1) < 1
        or x.dims[1] % prod(kernel)
    ):
        n.fail(f"{x.spec} does not hold columns of blocks of {list(kernel)}")
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation)]
    room = [i + a + b - r for i, a, b, r in zip(size, pads[:rank], pads[rank:], reach)]
    grid = [r // s + 1 for r, s in zip(room, stride)]
    if min(room, default=0) < 0 or prod(grid) != x.dims[2]:
        n.fail(f"{x.spec} should have {prod(grid)} columns for an image of {list(size)}")
    channels = x.dims[1] // prod(kernel)
    g.bounded(max(channels, 1) * prod(kernel) ** 2, "the weights of Col2Im")
    pick = np.eye(prod(kernel), dtype=x.dtype.np).reshape(prod(kernel), 1, *kernel)
    weight = g.constant(np.tile(pick, (channels, *[1] * (rank + 1))))
    return g.op(
        "deconv", g.reshape(x, (*x.dims[:2], *grid)), weight, full(g, (channels,), 0, x.dtype),
        group=channels, stride=tuple(stride), dilation=tuple(dilation), padding=tuple(pads),
        output_padding=tuple(r % s for r, s in zip(room, stride)),
    )  # fmt: skip


def _numbers(n: Node, dims: Any) -> Value:
    """Dims as a tensor."""
    if is_known(dims if isinstance(dims, tuple) else (dims,)):
        return n.g.constant(np.asarray(dims, np.int64))
    from lightnet.frontends.counted import dim_numbers

    return dim_numbers(n.g, dims)


def _range_of_sizes(n: Node, *ends: Value) -> Value:
    """As many numbers as the data says, or the call."""
    from lightnet.frontends.counted import axis_positions, counted, dim_number, dim_quotient, whole_contents, width

    g = n.g
    known = [whole_contents(v) for v in ends]
    if any(a is None and v.is_known for a, v in zip(known, ends)):
        n.unsupported("an end of Range is no whole number, beside a size that is not known")
    start, limit, delta = (
        n.need_ints(v, "an end of Range")[0] if a is None else int(a.item()) for a, v in zip(known, ends)
    )
    if isinstance(delta, Dim) or delta == 0:
        n.fail(f"its delta is {delta}")
    count = dim_quotient(dim_max(limit - start if delta > 0 else start - limit, 0) + (abs(delta) - 1), abs(delta))
    steps = axis_positions(g, width(count), 0, 1)
    steps = steps if delta == 1 else g.op("mul", steps, g.scalar(delta, "i64"))
    is_steps = start == 0 and not is_counted(count)
    found = steps if is_steps else counted(g, g.op("add", steps, dim_number(g, start)), (count,))
    return g.cast(found, ends[0].dtype)


def _dims(n: Node, dims: Sequence[int]) -> tuple[int, ...]:
    if any(least(d) < 0 for d in dims):
        n.fail(f"the shape {list(dims)} has a negative dimension")
    return tuple(dims)
