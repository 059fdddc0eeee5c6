"""Shapes and layouts, repeating and padding, of MXNet and NNVM. See `lightnet_nnvm/node.py`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from lightnet.frontends import composites
from lightnet.frontends.graph import Value
from lightnet.frontends.sizes import is_one
from lightnet.ir.types import MAX_RANK
from lightnet.runtime.dims import is_same
from lightnet_nnvm.node import Lazy, Node, nnvm_op

# -- reshaping --------------------------------------------------------------------------------------------------------


@nnvm_op("Reshape", "reshape")
def reshape(n: Node, x: Value) -> Value:
    shape = n.ints("shape", None)
    if shape is None:  # the attribute of MXNet before 0.7: 0 is the dim that is left over
        shape = tuple(d or -1 for d in n.ints("target_shape"))
    reverse = n.bool("reverse", False)
    dims = _reshaped(n, x.dims[::-1], shape[::-1])[::-1] if reverse else _reshaped(n, x.dims, shape)
    return n.g.reshape(x, dims)


def _reshaped(n: Node, dims: Sequence[int], codes: Sequence[int]) -> tuple[int, ...]:
    """MXNet's codes: 0 keeps a dim, -1 is what is left over, -2 keeps all the rest, -3 merges two, -4 (with two more
    numbers) splits one. A reversed list of codes has -4 behind its numbers."""
    found: list[int] = []
    at, i, codes = 0, 0, _split_codes(codes)
    while i < len(codes):
        code = codes[i]
        i += 1
        if code == -2:
            found += dims[at:]
            at = len(dims)
        elif code in (0, -3, -4):
            count = 2 if code == -3 else 1
            if at + count > len(dims):
                n.fail(f"its shape {list(codes)} takes more dims than {list(dims)} has")
            source = prod(dims[at : at + count])
            found += _split(n, source, codes[i : i + 2]) if code == -4 else [source]
            i, at = i + 2 * (code == -4), at + count
        elif code < -4:
            n.fail(f"its shape holds {code}")
        else:
            found.append(code)
            at += 1
    total = prod(dims)
    if (left := found.count(-1)) > 1:
        n.fail("its shape has more than one -1")
    if left:
        rest = prod(d for d in found if d != -1)
        found[found.index(-1)] = total // rest if rest else 0
    if prod(found) != total:
        n.fail(f"{list(dims)} cannot become {found}")
    return tuple(found)


def _split_codes(codes: Sequence[int]) -> list[int]:
    """Reversed codes end with -4 where a split begins: the code goes in front of its two numbers again."""
    codes = list(codes)
    for i, code in enumerate(codes):
        if code == -4 and (i + 2 >= len(codes)) and i >= 2:
            codes[i - 2 : i + 1] = [-4, codes[i - 2], codes[i - 1]]
    return codes


def _split(n: Node, dim: int, parts: Sequence[int]) -> list[int]:
    if len(parts) != 2 or sum(p == -1 for p in parts) > 1:
        n.fail("-4 in its shape should be followed by two dims, at most one of them -1")
    known = prod(p for p in parts if p != -1)
    full = [dim // known if p == -1 and known else p for p in parts]
    if prod(full) != dim:
        n.fail(f"the dim {dim} cannot be split into {list(parts)}")
    return full


@nnvm_op("reshape_like", lazy=(0,))
def reshape_like(n: Node, x: Value | Lazy, like: Value) -> Value:
    if isinstance(x, Lazy):
        return n.fixed(x, like.dims, like)
    begin, end = (n.int(f"lhs_{e}", d) for e, d in (("begin", 0), ("end", x.ndim)))
    from_, to = (n.int(f"rhs_{e}", d) for e, d in (("begin", 0), ("end", like.ndim)))
    dims = (*x.dims[:begin], *like.dims[from_:to], *x.dims[end:])
    if prod(dims) != x.len:
        n.fail(f"{list(x.dims)} cannot become {list(dims)}")
    return n.g.reshape(x, dims)


@nnvm_op("Flatten", "flatten", "batch_flatten")
def flatten(n: Node, x: Value) -> Value:
    return n.g.reshape(n.at_least(x, 1), (x.dims[0], prod(x.dims[1:])))


@nnvm_op("expand_dims")
def expand_dims(n: Node, x: Value) -> Value:
    """NNVM's `num_newaxis` inserts several."""
    axis, count = n.axis(n.int("axis"), x.ndim + 1), n.int("num_newaxis", 1)
    if not 0 <= count <= MAX_RANK:
        n.fail(f"{count} new axes are not possible")
    return n.g.reshape(x, (*x.dims[:axis], *(1,) * count, *x.dims[axis:]))


@nnvm_op("squeeze")
def squeeze(n: Node, x: Value) -> Value:
    axes = n.axes(n.ints("axis", ()), x.ndim)
    if not all(is_same(x.dims[a], 1) for a in axes):
        n.fail(f"axes {list(axes)} of {list(x.dims)} should have length 1")
    dims = tuple(d for i, d in enumerate(x.dims) if (i not in axes if axes else not is_one(d)))
    return n.g.reshape(x, dims or (1,))


@nnvm_op("transpose")
def transpose(n: Node, x: Value) -> Value:
    axes = n.axes(n.ints("axes", ()), x.ndim) or tuple(range(x.ndim))[::-1]
    if len(axes) != x.ndim:
        n.fail(f"its axes {list(axes)} should be as many as {list(x.dims)} has")
    return n.g.transpose(x, axes)


@nnvm_op("SwapAxis", "swapaxes")
def swap_axis(n: Node, x: Value) -> Value:
    order = list(range(x.ndim))
    a, b = n.axis(n.int("dim1", 0), x.ndim), n.axis(n.int("dim2", 0), x.ndim)
    order[a], order[b] = order[b], order[a]
    return n.g.transpose(x, order)


@nnvm_op("depth_to_space", "space_to_depth")
def depth_space(n: Node, x: Value) -> Value:
    n.need_rank(x, 4)
    block, (_, depth, height, width) = n.int("block_size"), x.dims
    if n.op == "depth_to_space":
        if block < 1 or depth % block**2:
            n.fail(f"{depth} channels cannot be split into blocks of {block} by {block}")
        return composites.depth_to_space(n.g, x, block)
    if block < 1 or height % block or width % block:
        n.fail(f"a picture of {height} by {width} cannot be split into blocks of {block}")
    return composites.space_to_depth(n.g, x, block)


# -- repeating, padding -----------------------------------------------------------------------------------------------


@nnvm_op("tile")
def tile(n: Node, x: Value) -> Value:
    repeats = n.ints("reps")
    rank = max(len(repeats), x.ndim)
    src = n.g.reshape(x, (*(1,) * (rank - x.ndim), *x.dims))
    return composites.tile(n.g, src, (*(1,) * (rank - len(repeats)), *repeats))


@nnvm_op("repeat")
def repeat(n: Node, x: Value) -> Value:
    """Each element `repeats` times, along an axis or of all in a row."""
    axis = n.int("axis", None)
    src = n.g.reshape(x, (x.len,)) if axis is None else x
    at, count = 0 if axis is None else n.axis(axis, x.ndim), n.int("repeats")
    wide = n.g.reshape(src, (*src.dims[: at + 1], 1, *src.dims[at + 1 :]))
    copies = composites.expand(n.g, wide, [count if i == at + 1 else d for i, d in enumerate(wide.dims)])
    return n.g.reshape(copies, tuple(d * count if i == at else d for i, d in enumerate(src.dims)))


@nnvm_op("reverse", "flip")
def reverse(n: Node, x: Value) -> Value:
    axes = n.axes(n.ints("axis"), x.ndim)
    backwards = [i in axes and d > 0 for i, d in enumerate(x.dims)]
    return composites.strided(
        n.g, x, [d - 1 if b else 0 for b, d in zip(backwards, x.dims)], [-1 if b else 1 for b in backwards], x.dims
    )


@nnvm_op("Pad", "pad")
def pad(n: Node, x: Value) -> Value:
    """`pad_width` has before and after for each axis: MXNet's in a row, NNVM's in pairs."""
    widths = n.value("pad_width")
    flat: list = []
    for w in widths if isinstance(widths, tuple) else (widths,):
        flat += w if isinstance(w, tuple) else (w,)
    if len(flat) != 2 * x.ndim or not all(isinstance(w, int) for w in flat):
        n.fail(f"its pad_width should have {2 * x.ndim} integers, two for each axis of {list(x.dims)}")
    mode = n.choice("mode", "constant", "edge", "reflect")
    value = n.float("constant_value", n.float("pad_value", 0.0))
    return n.g.op("pad", x, before=tuple(flat[::2]), after=tuple(flat[1::2]), mode=mode, value=value)


@nnvm_op("broadcast_to", "broadcast_like", "broadcast_axis", "broadcast_axes", "expand_like")
def broadcast(n: Node, x: Value, like: Value | None = None) -> Value:
    """To `shape` (0 keeps a dim), to the shape of another tensor, or of some axes to `size`."""
    if n.op == "broadcast_to":
        dims = tuple(d or o for d, o in zip(n.ints("shape"), (*x.dims, *(0,) * 8)))
    elif n.op.startswith("broadcast_ax"):
        sizes = dict(zip(n.axes(n.ints("axis", ()), x.ndim), n.ints("size", ())))
        dims = tuple(sizes.get(i, d) for i, d in enumerate(x.dims))
    else:
        if like is None:
            n.fail("needs a second input")
        dims = like.dims
        if n.op == "expand_like":  # the axes are those that the other tensor has more
            axes = n.axes(n.ints("axis", ()), like.ndim) if x.ndim != like.ndim else ()
            x = n.g.reshape(x, tuple(1 if i in axes else d for i, d in enumerate(dims)) if axes else x.dims)
        elif n.has("lhs_axes"):
            pairs = dict(zip(n.axes(n.ints("lhs_axes"), x.ndim), n.axes(n.ints("rhs_axes"), like.ndim)))
            dims = tuple(like.dims[pairs[i]] if i in pairs else d for i, d in enumerate(x.dims))
    return composites.expand(n.g, x, dims)
