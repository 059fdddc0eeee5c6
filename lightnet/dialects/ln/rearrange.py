"""Ops that move elements to other places, leave some out or repeat them: `strided_slice`, `pad`, `expand`, `tile`,
`trilu`."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np

from lightnet.dialects.ln.move import Reshape, Slice
from lightnet.dialects.ln.numeric import SHORT
from lightnet.dialects.ln.rules import producer, rule
from lightnet.ir.op import (
    ConstraintError,
    LnOp,
    boolean,
    case,
    dims_of_result,
    ln_op,
    number,
    numbers,
    operand,
    result,
    string,
)
from lightnet.ir.types import TensorSpec
from lightnet.runtime.dims import dim_max, dim_min, greatest, typical
from lightnet.runtime.dtypes import convert


def plus(index: str, offset: int) -> str:
    """An index moved by a constant, as text of index notation."""
    return f"{index} + {offset}" if offset > 0 else f"{index} - {-offset}" if offset else index


class _Rearrangement(LnOp):
    src = operand()
    dst = result()
    work = 0


# -- strided_slice ---------------------------------------------------------------------------------------------------


# x[all] = x
@rule("strided_slice")
def strided_slice_of_all(op):
    whole = op.operand_specs == op.result_specs and all(s == 1 for s, n in zip(op.steps, op.lens) if greatest(n) > 1)
    return op.src if whole else None


# x[.., a:b, ..] = slice(x), where one axis alone is cut, without a step
@rule("strided_slice")
def strided_slice_of_one_axis(op):
    dims = op.operand_specs[0].dims
    cut = [k for k, n in enumerate(dims) if op.lens[k] != n]
    if len(cut) != 1 or 0 in op.lens or any(s != 1 for s, n in zip(op.steps, op.lens) if greatest(n) > 1):
        return None
    (axis,) = cut
    return Slice.make([op.src], {"axis": axis, "start": op.starts[axis], "len": op.lens[axis]})


# x[a:][b:] = x[a + s*b:], axis by axis
@rule("strided_slice")
def strided_slice_of_strided_slice(op):
    inner = producer(op.src, StridedSlice)
    if inner is None:
        return None
    starts = tuple(a + s * b for a, s, b in zip(inner.starts, inner.steps, op.starts))
    steps = tuple(s * t for s, t in zip(inner.steps, op.steps))
    return StridedSlice.make([inner.src], {"starts": starts, "steps": steps, "lens": op.lens})


@ln_op
class StridedSlice(_Rearrangement):
    """dst[i, ...] = src[starts[0] + steps[0] * i, ...], for each axis; steps may be negative.

    ```mlir
    // %x : tensor<4x6xf32>
    %y = ln.strided_slice %x {starts = [3, 1], steps = [-1, 2], lens = [4, 3]} : tensor<4x3xf32>
    ```
    """

    optype = "strided_slice"
    is_move = True
    starts = numbers("int", "src.ndim", ge=0)
    steps = numbers("int", "src.ndim", ne=0)
    lens = numbers("int", "src.ndim", ge=0)
    rewrites = (strided_slice_of_all, strided_slice_of_one_axis, strided_slice_of_strided_slice)

    @property
    def definition(self):
        written, read = [], []
        for k, (start, step, n) in enumerate(zip(self.starts, self.steps, self.lens)):
            one = n == 1
            written.append(f"d{k}")
            read.append(str(start) if one else plus(f"d{k}" if step == 1 else f"{step} * d{k}", start))
        return f"dst[{', '.join(written)}] = src[{', '.join(read)}]"

    @classmethod
    def infer(cls, t, p):
        for k, (n, start, step, count) in enumerate(zip(t.src.dims, p.starts, p.steps, p.lens)):
            last = start + step * (count - 1)
            if count and not (start < n and 0 <= last < n):
                raise ConstraintError(
                    f"strided_slice: axis {k} of {t.src} is read from {start} to {last}, outside 0..{n - 1}",
                    label="strided_slice.range",
                )
        return [TensorSpec(p.lens, t.src.dtype)]

    def views(self):
        dims = self.operand_specs[0].dims
        cut = [k for k, n in enumerate(self.lens) if greatest(n) > 1]
        if any(self.steps[k] != 1 for k in cut) or 0 in self.lens:
            return
        first = next((k for k, n in enumerate(self.lens) if greatest(n) > 1), len(dims))
        if all(self.lens[k] == dims[k] for k in range(first + 1, len(dims))):
            at = sum(start * prod(dims[k + 1 :]) for k, start in enumerate(self.starts))
            yield 0, 0, at * self.operand_specs[0].dtype.size

    def reference(self, src):
        grid = [s + t * np.arange(n) for s, t, n in zip(self.starts, self.steps, self.lens)]
        return src[np.ix_(*grid)] if grid else src

    @classmethod
    def samples(cls):
        return [
            case(src=(4, 6), starts=(3, 1), steps=(-1, 2), lens=(4, 3)),
            case(src=(5,), starts=(4,), steps=(3,), lens=(1,)),
            case(src=(2, 3, 5, 7), starts=(0, 0, 1, 0), steps=(1, 1, 2, 1), lens=(2, 3, 2, 7)),
            case(src=(), starts=(), steps=(), lens=()),
            case(src=(1, 4, 6), starts=(0, 1, 0), steps=(1, 1, 1), lens=(1, 2, 6)),
            case(src=(3, 4, 6), starts=(2, 1, 0), steps=(1, 1, 1), lens=(1, 2, 6)),
            case("i8", src=(2, 1, 3, 1, 9), starts=(1, 0, 2, 0, 8), steps=(-1, 1, -2, 5, -4), lens=(2, 1, 2, 1, 3)),
            case(src=(3, 4), starts=(0, 2), steps=(1, 1), lens=(3, 0)),
            case("i1", src=(9,), starts=(8,), steps=(-1,), lens=(9,)),
            *(case(t, src=(4, 5), starts=(0, 4), steps=(1, -1), lens=(4, 5)) for t in SHORT),
        ]  # fmt: skip


# -- pad -------------------------------------------------------------------------------------------------------------

_MODES = ("constant", "reflect", "edge", "wrap")


# pad(x, 0) = x
@rule("pad")
def pad_of_nothing(op):
    return op.src if not any(op.before) and not any(op.after) else None


@ln_op
class Pad(_Rearrangement):
    """`before[k]` elements in front of axis k and `after[k]` behind it; a negative number cuts off as many. What is
    added is `value` (in the type of the tensor, saturating), or by `mode` the mirror image without the border
    (``reflect``), the border (``edge``), or the other end (``wrap``).

    ```mlir
    // %x : tensor<4x6xf32>
    %y = ln.pad %x {before = [1, 0], after = [2, -1], value = -1.5} : tensor<7x5xf32>
    ```
    """

    optype = "pad"
    before = numbers("int", "src.ndim")
    after = numbers("int", "src.ndim")
    mode = string(*_MODES, default="constant")
    value = number("double", default=0)
    rewrites = (pad_of_nothing,)

    @property
    def definition(self):
        """The inside, and boxes around it: those before and behind it along the first axis, the rest along the second
        …"""
        dims, out = self.operand_specs[0].dims, self.result_specs[0].dims
        # Along axis k, elements lo[k] to hi[k] of the result are elements lo[k] - before[k] … of the operand.
        lo = [dim_min(dim_max(b, 0), d) for b, d in zip(self.before, out)]
        hi = [dim_min(dim_max(b + n, low), d) for b, n, low, d in zip(self.before, dims, lo, out)]
        lines = [self._box(lo, hi, None)]
        for axis in range(len(dims)):
            for low, high in ((0, lo[axis]), (hi[axis], out[axis])):
                start = [*lo[:axis], low, *[0] * (len(dims) - axis - 1)]
                stop = [*hi[:axis], high, *out[axis + 1 :]]
                if all(greatest(b - a) > 0 for a, b in zip(start, stop)):  # in some call
                    lines.append(self._box(start, stop, axis))
        return "\n".join(lines)

    def _box(self, start: list[int], stop: list[int], axis: int | None) -> str:
        """One statement: the inside, or a box that lies outside along `axis`, perhaps along later ones."""
        names = [f"d{k}" for k in range(len(start))]
        written = ", ".join(plus(i, at) for i, at in zip(names, start))
        ranges = ", ".join(f"{i} < {dim_max(b - a, 0)}" for i, a, b in zip(names, start, stop))
        if axis is not None and self.mode == "constant":
            value = "value"
        else:
            subs = []
            for k, (i, at) in enumerate(zip(names, start)):
                place = plus(i, at - self.before[k])
                subs.append(place if axis is None or k < axis else self._source(place, self.operand_specs[0].dims[k]))
            value = f"src[{', '.join(subs)}]"
        return f"dst[{written}] = {value}{' for ' + ranges if ranges else ''}"

    def _source(self, place: str, n: int) -> str:
        """The element of an axis of length `n` that stands at `place`, counted from its first element and possibly
        outside."""
        if n == 1:
            return "0"
        if self.mode == "edge":
            return f"clamp({place}, 0, {n - 1})"
        if self.mode == "wrap":
            return f"({place}) % {n}"
        period = 2 * (n - 1)  # reflect; the last bound is implied, and there for the proof
        return f"min(({place}) % {period}, {period} - ({place}) % {period}, {n - 1})"

    @classmethod
    def infer(cls, t, p):
        dims = tuple(b + n + a for b, n, a in zip(p.before, t.src.dims, p.after))
        if any(d < 0 for d in dims):
            raise ConstraintError(
                f"pad: {t.src} is cut to the dimensions {list(dims)}, which should not be negative", label="pad.dims"
            )
        if p.mode != "constant" and 0 in t.src.dims and 0 not in dims:
            raise ConstraintError(f'pad: mode "{p.mode}" needs elements to repeat, {t.src} has none', label="pad.empty")
        return [TensorSpec(dims, t.src.dtype)]

    def reference(self, src):
        if not src.ndim:
            return src
        grow = [(max(b, 0), max(a, 0)) for b, a in zip(self.before, self.after)]
        if self.mode == "constant":
            filler = convert(np.asarray(self.value, np.float64), self.operand_specs[0].dtype)
            found = np.pad(src, grow, constant_values=filler)
        else:
            found = np.pad(src, grow, mode=self.mode)
        keep = [slice(max(-b, 0), n - max(-a, 0)) for b, a, n in zip(self.before, self.after, found.shape)]
        return found[tuple(keep)]

    @classmethod
    def samples(cls):
        shapes = [
            dict(src=(4, 6), before=(1, 0), after=(2, 3)), dict(src=(5,), before=(3,), after=(2,)),
            dict(src=(1, 2, 3, 5), before=(0, 0, 1, 2), after=(0, 0, 2, 1)),
            dict(src=(3, 1, 4), before=(-1, 2, 5), after=(2, 0, -2)),
        ]  # fmt: skip
        return [case(**s, mode=m, value=-1.5) for m in _MODES for s in shapes] + [
            case("i8", src=(3, 4), before=(1, 1), after=(1, 1), value=300),
            case(src=(0, 2), before=(1, 0), after=(0, 1), value=2),
            case(src=(), before=(), after=()), case(src=(3,), before=(-4,), after=(6,), value=1),
            case("i1", src=(4,), before=(1,), after=(1,), value=1),
            case("i64", src=(2, 3, 2, 1, 2), before=(0, 0, 1, 0, 0), after=(0,) * 5),
            *(case(t, src=(3, 4), before=(1, 1), after=(0, 1), value=0.1) for t in SHORT),
        ]  # fmt: skip


# -- expand and tile -------------------------------------------------------------------------------------------------


# expand(x) = reshape(x), where no element is repeated
@rule("expand")
def expand_without_repeats(op):
    src, dst = op.operand_specs[0], op.result_specs[0]
    return Reshape.make([op.src], {"dims": dst.dims}) if src.len == dst.len and src.len else None


# expand(expand(x)) = expand(x)
@rule("expand")
def expand_of_expand(op):
    inner = producer(op.src, Expand)
    return None if inner is None else Expand.make([inner.src], {"dims": op.dims})


@ln_op
class Expand(_Rearrangement):
    """Broadcast to `dims`, as NumPy does: axes of length 1 are repeated, and axes may be new in front.

    ```mlir
    // %x : tensor<3x1xf32>
    %y = ln.expand %x : tensor<2x3x4xf32>
    ```
    """

    optype = "expand"
    dst = result(dims="dims")
    dims = dims_of_result(ge=0)
    rewrites = (expand_without_repeats, expand_of_expand)

    @property
    def definition(self):
        src, dst = self.operand_specs[0].dims, self.result_specs[0].dims
        skip = len(dst) - len(src)
        read = ["0" if n == 1 else f"d{skip + k}" for k, n in enumerate(src)]
        return f"dst[{', '.join(f'd{k}' for k in range(len(dst)))}] = src[{', '.join(read)}]"

    @classmethod
    def infer(cls, t, p):
        skip = len(p.dims) - t.src.ndim
        if skip < 0 or any(n not in (1, m) for n, m in zip(t.src.dims, p.dims[skip:])):
            raise ConstraintError(f"expand: {t.src} does not broadcast to {list(p.dims)}", label="expand.dims")
        return [TensorSpec(p.dims, t.src.dtype)]

    def reference(self, src):
        return np.broadcast_to(src, self.dims)

    @classmethod
    def samples(cls):
        return [
            case(src=(3, 1), dims=(2, 3, 4)), case(src=(1,), dims=(17,)), case(src=(2, 1, 3, 1), dims=(2, 5, 3, 7)),
            case(src=(3,), dims=(1, 1, 3)), case("i8", src=(1, 1), dims=(3, 2, 1, 2, 5)), case(src=(), dims=(2, 3)),
            case(src=(1, 3), dims=(0, 3)), case("i1", src=(2, 1), dims=(2, 9)), case("i64", src=(), dims=()),
            *(case(t, src=(3, 1), dims=(3, 5)) for t in SHORT),
        ]  # fmt: skip


#: Copies that `tile` writes as runs, one statement each; more are found by division.
MAX_RUNS = 32
#: So many of them where there are fewer elements than these: LLVM unrolls short ones, and takes minutes to look for
#: vectors among 1,000 stores.
FEW_RUNS, LONG_RUN = 4, 256


# tile(x, 1) = x
@rule("tile")
def tile_once(op):
    return op.src if op.operand_specs == op.result_specs else None


@ln_op
class Tile(_Rearrangement):
    """`repeats[k]` copies behind each other along each axis k.

    ```mlir
    // %x : tensor<2x3xf32>
    %y = ln.tile %x {repeats = [1, 4]} : tensor<2x12xf32>
    ```
    """

    optype = "tile"
    repeats = numbers("int", "src.ndim", ge=0)
    rewrites = (tile_once,)

    @property
    def definition(self):
        dims = self.operand_specs[0].dims
        copied = [k for k, (n, r) in enumerate(zip(dims, self.repeats)) if greatest(n) > 1 and r > 1]
        read = ["0" if n == 1 else f"d{k}" for k, n in enumerate(dims)]
        written = [f"d{k}" for k in range(len(dims))]
        runs = prod(self.repeats[k] for k in copied)
        if not 0 < runs <= (MAX_RUNS if typical(self.operand_specs[0].len) >= LONG_RUN else FEW_RUNS):
            read = [f"{i} % {dims[k]}" if k in copied else i for k, i in enumerate(read)]
            return f"dst[{', '.join(written)}] = src[{', '.join(read)}]"
        ranges = ", ".join(f"d{k} < {dims[k]}" for k in copied)
        lines = []
        for copy in product(*(range(self.repeats[k]) for k in copied)):
            for k, at in zip(copied, copy):
                written[k] = plus(f"d{k}", at * dims[k])
            lines.append(f"dst[{', '.join(written)}] = src[{', '.join(read)}]{' for ' + ranges if ranges else ''}")
        return "\n".join(lines)

    @classmethod
    def infer(cls, t, p):
        return [TensorSpec(tuple(n * r for n, r in zip(t.src.dims, p.repeats)), t.src.dtype)]

    def reference(self, src):
        return np.tile(src, self.repeats)

    @classmethod
    def samples(cls):
        return [
            case(src=(2, 3), repeats=(1, 4)), case(src=(5,), repeats=(3,)),
            case(src=(1, 2, 1, 3, 5), repeats=(2, 1, 3, 2, 1)),
            case(src=(2, 3), repeats=(1, 1)), case(src=(), repeats=()), case(src=(2, 3), repeats=(0, 2)),
            case("i16", src=(3, 1), repeats=(2, 17)), case(src=(3, 5), repeats=(7, 9)),
            *(case(t, src=(3,), repeats=(5,)) for t in SHORT),
        ]  # fmt: skip


# -- trilu -----------------------------------------------------------------------------------------------------------


@ln_op
class Trilu(_Rearrangement):
    """The upper triangle of the matrices in the last two axes (elements on and above the diagonal `k` places to the
    right of the main one), or the lower one (on and below); zeros elsewhere.

    ```mlir
    // %x : tensor<2x3x3xf32>
    %y = ln.trilu %x {upper = false, k = -1} : tensor<2x3x3xf32>
    ```
    """

    optype = "trilu"
    src = operand(min_rank=2)
    upper = boolean(default=True)
    k = number("int", default=0)

    @property
    def definition(self):
        return f"dst[i..., y, x] = x - y {'>=' if self.upper else '<='} {self.k} ? src[i..., y, x] : 0"

    def reference(self, src):
        return np.triu(src, self.k) if self.upper else np.tril(src, self.k)

    @classmethod
    def samples(cls):
        return [
            case(src=(2, 3, 4), upper=u, k=k) for u in (True, False) for k in (-1, 0, 2)
        ] + [
            case(src=(1, 1), upper=True, k=0), case(src=(2, 1, 3, 17, 5), upper=False, k=1),
            case("i64", src=(5, 3), upper=True, k=9),
            case("i1", src=(4, 4), upper=False, k=-9), case(src=(0, 3), upper=True, k=0),
            *(case(t, src=(3, 4)) for t in SHORT),
        ]  # fmt: skip
