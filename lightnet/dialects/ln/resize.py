"""Resampling: `resize` (to given dimensions), `upsample` (by given scales), `interpolate` (along an axis, by tables)."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from lightnet.dialects.ln.numeric import FLOATS, SHORT
from lightnet.dialects.ln.rules import rule
from lightnet.ir.op import ConstraintError, LnOp, case, dims_of_result, ln_op, number, numbers, operand, result, string
from lightnet.ir.types import TensorSpec
from lightnet.runtime.initial import sample


# resize(x, dims of x) = x
@rule("resize", "upsample")
def resample_to_itself(op):
    return op.src if op.operand_specs == op.result_specs else None


class _Resample(LnOp):
    """Nearest neighbour: along each axis, element d comes from round((d + 0.5) * old / new - 0.5), where round takes
    halves away from zero. `TL_LINEAR` is a name that upstream knows and does not implement."""

    src = operand()
    dst = result()
    mode = string("TL_NEAREST", "TL_LINEAR", default="TL_NEAREST")
    checks = {"mode": 'mode == "TL_NEAREST"', "not-empty": "src.len > 0"}
    rewrites = (resample_to_itself,)

    #: (d + 0.5) * old / new - 0.5 rounded half away from zero is floor((2*d + 1) * old / (2 * new)) where it is not
    #: below zero; below, it is above -0.5 and rounds to 0.
    definition = "dst[i...] = src[(2 * i + 1) * src.dims / (2 * dst.dims)...]"

    def reference(self, src):
        for axis, (old, new) in enumerate(zip(src.shape, self.result_specs[0].dims)):
            at = [Fraction(2 * d + 1, 2) * Fraction(old, new) - Fraction(1, 2) for d in range(new)]
            index = [math.floor(x + Fraction(1, 2)) if x >= 0 else -math.floor(Fraction(1, 2) - x) for x in at]
            src = src.take(np.clip(np.array(index, np.int64), 0, old - 1), axis=axis)
        return src


@ln_op
class Resize(_Resample):
    """`src` resampled to the dimensions of the result.

    ```mlir
    // %x : tensor<1x3x4x4xf32>
    %y = ln.resize %x {mode = "TL_NEAREST"} : tensor<1x3x8x8xf32>
    ```
    """

    optype = "resize"
    dims = dims_of_result(gt=0)
    checks = {**_Resample.checks}

    @classmethod
    def infer(cls, t, p):
        if len(p.dims) != t.src.ndim:
            raise ConstraintError(
                f"resize: `dims` {list(p.dims)} should have as many elements as {t.src} has dimensions",
                label="resize.dims-length",
            )
        return [TensorSpec(p.dims, t.src.dtype)]

    @classmethod
    def samples(cls):
        return [
            case(src=(1, 3, 4, 5), mode="TL_NEAREST", dims=(1, 3, 8, 7)),
            case(src=(7,), mode="TL_NEAREST", dims=(3,)),
            case(src=(1, 1), mode="TL_NEAREST", dims=(3, 5)),
            case("ui8", src=(9, 10, 3), mode="TL_NEAREST", dims=(4, 6, 3)),
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
        return [TensorSpec(tuple(math.floor(s * d) for s, d in zip(p.scales, t.src.dims)), t.src.dtype)]

    @classmethod
    def samples(cls):
        return [
            case(src=(1, 3, 4, 5), mode="TL_NEAREST", scales=(1, 1, 2, 2)),
            case(src=(5,), mode="TL_NEAREST", scales=(1.5,)),
            case(src=(2, 3, 7, 5), mode="TL_NEAREST", scales=(1, 1, 0.5, 3)),
        ]


@ln_op
class Interpolate(LnOp):
    """Weighted sums along one axis: dst[.., o, ..] = sum over t of weight[o, t] * src[.., index[o, t], ..].

    Every resize that is linear in its source is one of these for each axis; the tables hold the formula. An index outside is
    clamped to the first or last element. The weights are f64 where `src` is, else f32.

    ```mlir
    // %x : tensor<1x3x4x4xf32>, %index : tensor<8x2xi32>, %weight : tensor<8x2xf32>
    %y = ln.interpolate %x, %index, %weight {axis = 2} : tensor<1x3x8x4xf32>
    ```
    """

    optype = "interpolate"
    src = operand(min_rank=1, dtypes=FLOATS)
    index = operand("param", kind="index", rank=2, dtypes=("i32",))
    weight = operand("param", rank=2, dtypes=("f32", "f64"), same_shape="index")
    dst = result()
    axis = number("int", ge=0, lt="src.ndim")
    checks = {
        "not-empty": "src.dims[axis] > 0",
        "weight-type": 'weight.dtype == dtype("TL_DOUBLE") ? src.dtype == weight.dtype : src.dtype != dtype("TL_DOUBLE")',
    }
    definition = "dst[i:axis..., o, k...] += weight[o, t] * src[i..., index[o, t], k...]"

    @classmethod
    def infer(cls, t, p):
        dims = (*t.src.dims[: p.axis], t.index.dims[0], *t.src.dims[p.axis + 1 :])
        return [TensorSpec(dims, t.src.dtype)]

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
            along(2, (1, 3, 4, 5), 9, 2), along(3, (1, 3, 4, 5), 9, 4), along(0, (1,), 1, 1), along(1, (2, 7, 33), 3, 5),
            along(2, (2, 3, 17), 40, 2, "f64"), *(along(1, (3, 6, 4), 5, 2, t) for t in SHORT),
        ]  # fmt: skip


OPS = (Resize, Upsample, Interpolate)
