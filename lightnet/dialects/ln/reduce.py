"""Reductions: `maxreduce`, `maxreduce_arg`, `dot_product`."""

from __future__ import annotations

import numpy as np

from lightnet.dialects.ln.rules import rule
from lightnet.ir.op import LnOp, case, ln_op, number, operand, result
from lightnet.ir.types import TensorSpec
from lightnet.runtime.dtypes import BY_NAME


def _reduced(spec: TensorSpec, axis: int) -> tuple[int, ...]:
    return (*spec.dims[:axis], 1, *spec.dims[axis + 1 :])


class _AxisReduction(LnOp):
    src = operand()
    dst = result()
    axis = number("int", ge=0, lt="src.ndim")

    def flops(self):
        return self.operand_specs[0].len

    @classmethod
    def samples(cls):
        return [
            case(src=(3, 4), axis=1), case(src=(5,), axis=0), case(src=(1,), axis=0), case(src=(2, 1, 3, 1, 7), axis=4),
            case("i8", src=(3, 17, 2), axis=1), case("f64", src=(4, 3, 2), axis=0), case("ui8", src=(2, 33), axis=1),
        ]  # fmt: skip


# maxreduce(x, axis) = x, where the axis has length 1
@rule("maxreduce")
def maxreduce_of_one(op):
    return op.src if op.operand_specs == op.result_specs else None


@ln_op
class Maxreduce(_AxisReduction):
    """The maximum along `axis`, which stays with length 1. NaN propagates.

    ```mlir
    // %x : tensor<3x5xf32>
    %y = ln.maxreduce %x {axis = 1} : tensor<3x1xf32>
    ```
    """

    optype = "maxreduce"
    definition = "dst[i:axis..., 0, k...] max= src[i..., j, k...]"
    rewrites = (maxreduce_of_one,)

    @classmethod
    def infer(cls, t, p):
        return [TensorSpec(_reduced(t.src, p.axis), t.src.dtype)]

    def reference(self, src):
        return src.max(axis=self.axis, keepdims=True)


@ln_op
class MaxreduceArg(_AxisReduction):
    """The maximum along `axis` and the index of its first occurrence (i32); the axis stays with length 1.

    ```mlir
    // %x : tensor<3x5xf32>
    %y, %i = ln.maxreduce_arg %x {axis = 1} : tensor<3x1xf32>, tensor<3x1xi32>
    ```
    """

    optype = "maxreduce_arg"
    arg = result()
    definition = "dst[i:axis..., 0, k...], arg[i:axis..., 0, k...] argmax= src[i..., j, k...]"

    @classmethod
    def infer(cls, t, p):
        dims = _reduced(t.src, p.axis)
        return [TensorSpec(dims, t.src.dtype), TensorSpec(dims, BY_NAME["i32"])]

    def reference(self, src):
        arg = src.argmax(axis=self.axis)
        value = np.take_along_axis(src, np.expand_dims(arg, self.axis), self.axis)
        return value, np.expand_dims(arg, self.axis).astype(np.int32)


@ln_op
class DotProduct(LnOp):
    """The sum of the products of all elements, accumulated in the tensors' type, as a tensor of one element.

    ```mlir
    // %a : tensor<9xf32>, %b : tensor<9xf32>
    %y = ln.dot_product %a, %b : tensor<1xf32>
    ```
    """

    optype = "dot_product"
    src1 = operand()
    src2 = operand(same_type="src1", same_shape="src1")
    dst = result()
    definition = "dst[0] += src1[i...] * src2[i...]"

    @classmethod
    def infer(cls, t, p):
        return [TensorSpec((1,), t.src1.dtype)]

    def flops(self):
        return 2 * self.operand_specs[0].len

    def reference(self, src1, src2):
        if src1.dtype.kind == "f":
            return np.asarray([np.sum(src1.astype(np.float64) * src2)], src1.dtype)
        with np.errstate(over="ignore"):
            return np.asarray([np.sum(src1 * src2, dtype=src1.dtype)])

    @classmethod
    def samples(cls):
        return [case(src1=s, src2=s) for s in ((1,), (7,), (3, 5), (2, 1, 3, 1, 50))] + [
            case("i8", src1=(40,), src2=(40,)), case("f64", src1=(3, 3), src2=(3, 3)),
        ]  # fmt: skip


OPS = (Maxreduce, MaxreduceArg, DotProduct)
