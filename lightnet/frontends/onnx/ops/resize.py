"""Resampling ops of ONNX. Imports the resampling of the front ends and the table of handlers."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from math import floor

import numpy as np

from lightnet.dataclasses import dataclass
from lightnet.frontends import resampling
from lightnet.frontends.composites import cut
from lightnet.frontends.graph import Value
from lightnet.frontends.onnx.node import Node, onnx_op
from lightnet.runtime.dims import Dim, Quotient, Size, Undecided, greatest, is_known, least


@dataclass(frozen=True)
class _Axis:
    """The resampling of one axis; `scale` is 0 where it is another in each call."""

    scale: float
    length: Size
    roi: tuple[float, float] = (0.0, 1.0)

    def changes(self, size: Size) -> bool:
        return self.length != size or abs(self.scale - 1) > 1e-9 or self.roi != (0.0, 1.0)


@onnx_op("Upsample")
def upsample(n: Node, x: Value, scales: Value | None = None) -> Value:
    """By given scales, as Resize did at first: the grid begins at the first element."""
    given = n.floats("scales") if scales is None else _floats(n, scales, "the scales of Upsample")
    mode = n.string("mode", "nearest")
    return _resampled(n, x, _scaled(n, x, given, range(x.ndim)), "linear" if mode == "bilinear" else mode, "asymmetric",
                      "simple")  # fmt: skip


@onnx_op("Resize")
def resize(
    n: Node, x: Value, roi: Value | None = None, scales: Value | None = None, sizes: Value | None = None
) -> Value:
    """Of every version: by scales or to sizes, of all axes or some."""
    if n.opset < 11:  # Resize(X, scales), which began as Upsample
        if roi is None:
            n.fail("needs scales")
        axes = _scaled(n, x, _floats(n, roi, "the scales of Resize"), range(x.ndim))
        return _resampled(n, x, axes, n.string("mode", "nearest"), "asymmetric", "simple")
    mode = n.string("coordinate_transformation_mode", "half_pixel")
    if mode not in resampling.COORDINATES:
        n.fail(f"coordinate_transformation_mode is '{mode}'; there are {', '.join(resampling.COORDINATES)}")
    named = n.axes(n.ints("axes", tuple(range(x.ndim))), x.ndim)
    wanted = () if sizes is None else n.need_ints(sizes, "the sizes of Resize")
    if wanted:
        axes = _sized(n, x, wanted, named)
    elif scales is not None:
        axes = _scaled(n, x, _floats(n, scales, "the scales of Resize"), named)
    else:
        n.fail("needs scales or sizes")
    if mode == "tf_crop_and_resize":
        if roi is None:
            n.fail("tf_crop_and_resize needs roi")
        axes = _cropped(n, axes, _floats(n, roi, "the region that Resize takes"), named)
    return _resampled(n, x, axes, n.string("mode", "nearest"), mode, n.string("nearest_mode", "round_prefer_floor"))


def _floats(n: Node, value: Value, what: str) -> tuple[float, ...]:
    return tuple(float(v) for v in n.need(value, what).reshape(-1))


def _scaled(n: Node, x: Value, scales: Sequence[float], named: Sequence[int]) -> list[_Axis]:
    """Axes of floor(scale * dim)."""
    if len(scales) != len(named) or not all(0 < s < 1e6 for s in scales):
        n.fail(f"its scales {list(scales)} should be {len(named)} positive numbers")
    axes = [_Axis(1.0, d) for d in x.dims]
    for axis, scale in zip(named, scales):
        axes[axis] = _Axis(scale, _scaled_length(scale, x.dims[axis]))
    return axes


def _scaled_length(scale: float, size: Size) -> Size:
    """floor(scale * size)."""
    if not isinstance(size, Dim):
        return floor(scale * size)
    exact = Fraction(scale)
    return size * exact.numerator // exact.denominator


def _ratio(length: Size, size: Size) -> float:
    """length / size, 0 where it is not one number for all calls."""
    if is_known((length, size)):
        return length / size
    for a, b, power in ((length, size, 1), (size, length, -1)):
        if isinstance(a, Dim) and isinstance(whole := a.over(b), int):
            return float(whole) ** power
    return 0.0


def _sized(n: Node, x: Value, sizes: Sequence[int], named: Sequence[int]) -> list[_Axis]:
    """Axes of given lengths, or of one scale that fits or covers them."""
    if len(sizes) != len(named) or any(least(s) < 0 for s in sizes) or any(x.dims[a] == 0 for a in named):
        n.fail(f"its sizes {list(sizes)} should be {len(named)} lengths for axes that have elements")
    policy = n.string("keep_aspect_ratio_policy", "stretch")
    scales = [_ratio(s, x.dims[a]) for s, a in zip(sizes, named)]
    if policy != "stretch":
        if policy not in ("not_larger", "not_smaller"):
            n.fail(f"keep_aspect_ratio_policy is '{policy}'; there are stretch, not_larger and not_smaller")
        for size, axis, scale in zip(sizes, named, scales):
            if not scale and isinstance(difference := size - x.dims[axis], Dim):
                raise Undecided(difference)
        scales = [min(scales) if policy == "not_larger" else max(scales)] * len(scales)
        sizes = [floor(s * x.dims[a] + 0.5) for s, a in zip(scales, named)]
    axes = [_Axis(1.0, d) for d in x.dims]
    for axis, scale, size in zip(named, scales, sizes):
        axes[axis] = _Axis(scale, size)
    return axes


def _cropped(n: Node, axes: list[_Axis], roi: Sequence[float], named: Sequence[int]) -> list[_Axis]:
    """With the region [starts then ends] of each axis."""
    if len(roi) != 2 * len(named):
        n.fail(f"its roi {list(roi)} should have {2 * len(named)} elements")
    axes = list(axes)
    for i, axis in enumerate(named):
        axes[axis] = _Axis(axes[axis].scale, axes[axis].length, (roi[i], roi[len(named) + i]))
    return axes


def _resampled(n: Node, x: Value, axes: Sequence[_Axis], mode: str, mapping: str, rounding: str) -> Value:
    """`x` resampled along each axis that changes. The rounding ``simple``, of the first versions, is up where an axis
    shrinks, else down."""
    if mode not in ("nearest", "linear", "cubic"):
        n.fail(f"mode is '{mode}'; there are nearest, linear and cubic")
    if rounding != "simple" and rounding not in resampling.ROUNDINGS:
        n.fail(f"nearest_mode is '{rounding}'; there are {', '.join(resampling.ROUNDINGS)}")
    n.g.spec([a.length for a in axes], x.dtype)  # refuses what is too large before any table is made
    changed = [k for k, a in enumerate(axes) if a.changes(x.dims[k])]
    for k in changed:
        n.g.bounded(greatest(axes[k].length), "an axis to resample to")
    if not is_known(d for k in changed for d in (x.dims[k], axes[k].length)):
        return _of_open_axes(n, x, axes, changed, mode, mapping, rounding)
    at = {k: resampling.coordinates(mapping, x.dims[k], axes[k].length, axes[k].scale, axes[k].roi) for k in changed}
    if mode == "nearest":
        names = {k: ("ceil" if axes[k].scale < 1 else "floor") if rounding == "simple" else rounding for k in changed}
        tables = {k: resampling.nearest_elements(at[k], x.dims[k], names[k]) for k in changed}
        y = resampling.nearest(n.g, x, tables)
    else:
        y = x
        for k in changed:
            index, weight = resampling.bounded_taps(
                n.g, at[k], x.dims[k], axes[k].scale, mode, antialias=bool(n.int("antialias", 0)),
                cubic_a=n.float("cubic_coeff_a", -0.75), exclude_outside=bool(n.int("exclude_outside", 0)),
            )  # fmt: skip
            y = resampling.interpolate(n.g, y, k, index, weight)
    if mapping == "tf_crop_and_resize":
        for k in changed:
            y = _extrapolated(n, y, k, (at[k] < 0) | (at[k] > x.dims[k] - 1))
    return y


def _of_open_axes(
    n: Node, x: Value, axes: Sequence[_Axis], changed: Sequence[int], mode: str, mapping: str, rounding: str
) -> Value:
    """`_resampled` where calls decide lengths. By scales whose tables are the same for all lengths: of nearest elements
    those by whole factors, else the first rows of the tables for the longest axis. Other tables are computed in the
    call."""
    g, decided = n.g, _open_of(x, axes, changed)
    same = mapping in ("half_pixel", "asymmetric") or all(least(axes[k].length) > 1 for k in changed)
    same = same and mapping in ("half_pixel", "asymmetric", "pytorch_half_pixel")
    same = same and all(axes[k].scale for k in changed)
    if n.int("exclude_outside", 0) or not (same or (mode != "cubic" and not n.int("antialias", 0))):
        raise Undecided(decided)
    if mode == "nearest" and same and all(map(partial(_takes_centres, mapping, rounding), (axes[k] for k in changed))):
        return g.op("resize", x, dims=tuple(a.length for a in axes), mode="TL_NEAREST")
    for k in changed:
        axis, size, wide = axes[k], x.dims[k], "f64" if x.dtype.name == "f64" else "f32"
        if same and mode != "nearest":
            most, length = greatest(size), greatest(axis.length)
            index, weight = resampling.bounded_taps(
                g, resampling.coordinates(mapping, most, length, axis.scale), most, axis.scale, mode,
                antialias=bool(n.int("antialias", 0)), cubic_a=n.float("cubic_coeff_a", -0.75),
            )  # fmt: skip
            # An index behind the end of a shorter axis is clamped by the op.
            tables = [cut(g, g.constant(t, dtype), 0, 0, axis.length) for t, dtype in ((index, "i32"), (weight, wide))]
            x = resampling.summed(g, x, k, *tables)
            continue
        if isinstance(size, Dim) and any(isinstance(a, Quotient) for a in size.atoms):
            # Plans of networks that go on with such rounded sizes take minutes to prove.
            raise Undecided(decided)
        exact = Fraction(axis.scale)
        if exact and size * exact.numerator != axis.length * exact.denominator:
            raise Undecided(decided)  # a last element that is part of one
        columns = 1 if mode == "nearest" else 2
        at = resampling.open_coordinates(g, mapping, size, axis.length, axis.scale, columns)
        if mode == "nearest":
            name = rounding
            if rounding == "simple":
                if not axis.scale:
                    raise Undecided(decided)
                name = "ceil" if axis.scale < 1 else "floor"
            x = resampling.picked(g, x, k, resampling.open_nearest(g, at, size, name))
        else:
            x = resampling.summed(g, x, k, *resampling.open_taps(g, at, size, wide))
    return x


def _open_of(x: Value, axes: Sequence[_Axis], changed: Sequence[int]) -> Dim:
    """A length among those of axes that change which a call decides."""
    return next(d for k in changed for d in (x.dims[k], axes[k].length) if isinstance(d, Dim))


def _takes_centres(mapping: str, rounding: str, axis: _Axis) -> bool:
    """Return whether the nearest elements along an axis of any length are those that `ln.resize` takes."""
    factor, name = round(axis.scale), "floor" if rounding == "simple" else rounding
    if factor < 1 or factor != axis.scale:
        return False
    table = resampling.nearest_elements(resampling.coordinates(mapping, 8, 8 * factor, factor), 8, name)
    return np.array_equal(table, resampling.nearest_centres(8 * factor, 8))


def _extrapolated(n: Node, y: Value, axis: int, outside: np.ndarray) -> Value:
    """The extrapolation_value where an axis was left."""
    if not outside.any():
        return y
    mask = n.g.constant(outside.reshape(-1, *(1,) * (y.ndim - 1 - axis)))
    return n.g.op("where", mask, n.g.scalar(n.float("extrapolation_value", 0.0), y.dtype), y)
