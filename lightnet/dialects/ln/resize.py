"""Resampling: `resize` (to given dimensions), `upsample` (by given scales), `interpolate` (along an axis, by
tables)."""

from __future__ import annotations

import math

import numpy as np

from lightnet.dialects.ln.numeric import FLOATS, SHORT
from lightnet.dialects.ln.rules import rule
from lightnet.ir.op import LnOp, case, dims_of_result, ln_op, number, numbers, operand, result, string
from lightnet.ir.types import TensorSpec
from lightnet.runtime.dtypes import convert
from lightnet.runtime.initial import sample


# resize(x, dims of x) = x
@rule("resize", "upsample")
def resample_to_itself(op):
    return op.src if op.operand_specs == op.result_specs else None


class _Resample(LnOp):
    """Along each axis, element d of the result comes from the coordinate x = (d + 0.5) * old / new - 0.5 of the source,
    whose element i is at i: ONNX's `half_pixel`.

    `TL_NEAREST` takes the element at round(x), where round takes halves away from zero. `TL_LINEAR` takes s[l] + (x -
    l) * (s[l + 1] - s[l]) with l = floor(x), one axis after the other from the first on; x is clamped to the source,
    and an axis that keeps its length is left alone, one of length 1 repeated. Integers are computed in f64 and
    truncated toward zero.
    """

    src = operand()
    dst = result()
    mode = string("TL_NEAREST", "TL_LINEAR", default="TL_NEAREST")
    checks = {"mode": 'mode == "TL_NEAREST" || src.dtype != dtype("TL_BOOL")'}
    picks = "src.dims"
    rewrites = (resample_to_itself,)

    @property
    def definition(self) -> str:
        if self.mode == "TL_LINEAR" and self.result_specs[0].len:
            return _linear(self.operand_specs[0], self.result_specs[0])
        # (d + 0.5) * old / new - 0.5 rounded half away from zero is floor((2*d + 1) * old / (2 * new)) where it is not
        # below zero; below, it is above -0.5 and rounds to 0.
        by = "(2 * dst.dims)"
        if not self.result_specs[0].len:  # nothing is divided, by nothing
            by = str([max(2 * n, 1) for n in self.result_specs[0].dims])
        return f"dst[i...] = src[(2 * i + 1) * src.dims / {by}...]"

    def reference(self, src):
        from fractions import Fraction  # which imports decimal, for nobody but the reference

        dims = self.result_specs[0].dims
        wide = src.astype(np.float64) if self.mode == "TL_LINEAR" else src
        for axis, (old, new) in enumerate(zip(src.shape, dims)):
            at = [Fraction(2 * d + 1, 2) * Fraction(old, new) - Fraction(1, 2) for d in range(new)]
            if self.mode == "TL_NEAREST":
                index = [math.floor(x + Fraction(1, 2)) if x >= 0 else -math.floor(Fraction(1, 2) - x) for x in at]
                wide = wide.take(np.clip(np.array(index, np.int64), 0, old - 1), axis=axis)
            elif old != new:
                at = [min(max(x, Fraction(0)), Fraction(old - 1)) for x in at]
                low = np.array([math.floor(x) for x in at], np.int64)
                if old == 1:
                    wide = wide.take(low, axis=axis)
                    continue
                weight = np.array([float(x - math.floor(x)) for x in at]).reshape(-1, *(1,) * (src.ndim - 1 - axis))
                first, second = wide.take(low, axis=axis), wide.take(np.minimum(low + 1, old - 1), axis=axis)
                wide = first + weight * (second - first)
        return wide if wide.dtype == src.dtype else convert(wide, self.result_specs[0].dtype)


def _linear(src: TensorSpec, dst: TensorSpec) -> str:
    """The definition of a linear resampling: weights `w1` of the elements of axis 1, and a tensor `r1` in which it has
    its new length."""
    wide = "f32" if src.dtype.is_float and src.dtype.name != "f64" else "f64"
    index = [f"at{axis}" for axis in range(src.ndim)]
    axes = [axis for axis in range(src.ndim) if src.dims[axis] != dst.dims[axis]]
    lines, source = [], "src"
    for axis in axes:
        old, new, i = src.dims[axis], dst.dims[axis], index[axis]

        def read(where: str, source: str = source, axis: int = axis) -> str:
            element = f"{source}[{', '.join([*index[:axis], where, *index[axis + 1 :]])}]"
            return f"{wide}({element})" if source == "src" and wide == "f64" else element

        value = read("0")
        if old > 1:
            at = f"clamp((2 * {i} + 1) * {old} - {new}, 0, {(old - 1) * 2 * new})"  # the coordinate, times 2 * new
            first, second = read(f"{at} / {2 * new}"), read(f"min({at} / {2 * new} + 1, {old - 1})")
            lines.append(f"w{axis}[{i}] = {wide}(f64({at} % {2 * new}) / {2 * new}) for {i} < {new}")
            value = f"{first} + w{axis}[{i}] * ({second} - {first})"
        source = f"r{axis}"
        lengths = [*dst.dims[: axis + 1], *src.dims[axis + 1 :]]
        ranges = ", ".join(f"{k} < {length}" for k, length in zip(index, lengths))
        lines.append(f"{source}[{', '.join(index)}] = {value} for {ranges}")
    if axes:
        lines[-1] = f"dst[{', '.join(index)}] = {value if src.dtype.is_float else f'sat({value}, dst)'}"
    return "\n".join(lines) or "dst[i...] = src[i...]"


@ln_op
class Resize(_Resample):
    """`src` resampled to the dimensions of the result.

    ```mlir
    // %x : tensor<1x3x4x4xf32>
    %y = ln.resize %x {mode = "TL_NEAREST"} : tensor<1x3x8x8xf32>
    ```
    """

    optype = "resize"
    dst = result(dims="dims")
    dims = dims_of_result(ge=0)
    checks = {"dims-length": "len(dims) == src.ndim", **_Resample.checks}

    @classmethod
    def samples(cls):
        return [
            case(src=(1, 3, 4, 5), mode="TL_NEAREST", dims=(1, 3, 8, 7)),
            case(src=(7,), mode="TL_NEAREST", dims=(3,)),
            case(src=(1, 1), mode="TL_NEAREST", dims=(3, 5)),
            case("ui8", src=(9, 10, 3), mode="TL_NEAREST", dims=(4, 6, 3)),
            case(src=(1, 3, 4, 5), mode="TL_LINEAR", dims=(1, 3, 9, 3)),
            case("f64", src=(7,), mode="TL_LINEAR", dims=(20,)),
            case("ui8", src=(5, 4, 3), mode="TL_LINEAR", dims=(8, 11, 3)),
            case("i32", src=(2, 3), mode="TL_LINEAR", dims=(5, 2)),
            *(case(t, src=(1, 2, 3, 4), mode="TL_LINEAR", dims=(1, 2, 6, 7)) for t in SHORT),
        ]


@ln_op
class Upsample(_Resample):
    """`src` resampled to floor(scale * dim) along each axis.

    ```mlir
    // %x : tensor<1x3x4x4xf32>
    %y = ln.upsample %x {mode = "TL_NEAREST", scales = [1, 1, 2, 2]} : tensor<1x3x8x8xf32>
    ```
    """

    optype = "upsample"
    scales = numbers("float", "src.ndim", gt=0)

    @classmethod
    def infer(cls, t, p):
        whole = (d * int(s) if s.is_integer() else math.floor(s * d) for s, d in zip(p.scales, t.src.dims))
        return [TensorSpec(tuple(whole), t.src.dtype)]

    @classmethod
    def samples(cls):
        return [
            case(src=(1, 3, 4, 5), mode="TL_NEAREST", scales=(1, 1, 2, 2)),
            case(src=(5,), mode="TL_NEAREST", scales=(1.5,)),
            case(src=(2, 3, 7, 5), mode="TL_NEAREST", scales=(1, 1, 0.5, 3)),
            case(src=(2, 3, 7, 5), mode="TL_LINEAR", scales=(1, 1, 0.5, 3)),
        ]


@ln_op
class Interpolate(LnOp):
    """Weighted sums along one axis: dst[.., o, ..] = sum over t of weight[o, t] * src[.., index[o, t], ..].

    Every resize that is linear in its source is one of these for each axis; the tables hold the formula. An index
    outside is clamped to the first or last element. The weights are f64 where `src` is, else f32.

    ```mlir
    // %x : tensor<1x3x4x4xf32>, %index : tensor<8x2xi32>, %weight : tensor<8x2xf32>
    %y = ln.interpolate %x, %index, %weight {axis = 2} : tensor<1x3x8x4xf32>
    ```
    """

    optype = "interpolate"
    src = operand(min_rank=1, dtypes=FLOATS)
    index = operand("param", kind="index", rank=2, dtypes=("i32",))
    weight = operand("param", rank=2, dtypes=("f32", "f64"), same_shape="index")
    dst = result(dims="[src.dims[0:axis], index.dims[0], src.dims[axis + 1:src.ndim]]")
    axis = number("int", ge=0, lt="src.ndim")
    picks = "[src.dims[axis]]"
    checks = {
        "weight-type": 'weight.dtype == dtype("TL_DOUBLE") ? src.dtype == weight.dtype : src.dtype != '
        'dtype("TL_DOUBLE")',
    }
    definition = "dst[i:axis..., o, k...] += weight[o, t] * src[i..., index[o, t], k...]"

    def flops(self):
        return 2 * self.result_specs[0].len * self.operand_specs[1].dims[1]

    def reference(self, src, index, weight):
        axis = self.axis
        taken = src.astype(np.float64).take(np.clip(index, 0, src.shape[axis] - 1), axis=axis)
        weight = weight.astype(np.float64).reshape(*weight.shape, *(1,) * (src.ndim - 1 - axis))
        return (taken * weight).sum(axis=axis + 1).astype(src.dtype)

    @classmethod
    def sample_data(cls, name, kind, spec, tensors, params, seed):
        bound = tensors["src"].dims[params["axis"]] if kind == "index" else None
        return sample(name, kind, spec.dims, spec.dtype, seed=seed, bound=bound)

    @classmethod
    def samples(cls):
        def along(axis, src, out, taps, kind="f32"):
            weight = ((out, taps), "f64" if kind == "f64" else "f32")
            return case(kind, src=src, index=((out, taps), "i32"), weight=weight, axis=axis)

        return [
            along(2, (1, 3, 4, 5), 9, 2), along(3, (1, 3, 4, 5), 9, 4), along(0, (1,), 1, 1),
            along(1, (2, 7, 33), 3, 5),
            along(2, (2, 3, 17), 40, 2, "f64"), *(along(1, (3, 6, 4), 5, 2, t) for t in SHORT),
        ]  # fmt: skip
