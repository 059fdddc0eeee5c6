"""Products of short numbers in sums of 32 bits: `conv2d_integer`, `matmul_integer`, `conv2d_short`, `matmul_short`.

The first two are what a quantised network computes. Operands are i16, i8 or ui8, and what they hold is multiplied as it
is: a zero point is subtracted before, so that padding is 0. Sums wrap around at 32 bits, in any order alike. The others
are of f16 or bf16, with sums of f32 that are not rounded to the type of the factors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from lightnet.dialects.ln.conv import Conv2d
from lightnet.dialects.ln.numeric import broadcast_dims
from lightnet.dialects.ln.window import AUTOPAD, correlation, effective_padding, pad_hw, window_result
from lightnet.ir.op import LnOp, case, ln_op, number, numbers, operand, result, string
from lightnet.ir.types import TensorSpec
from lightnet.runtime.dtypes import BY_NAME, SHORT, DType

#: The types that are multiplied, and that of the sums.
FACTORS = ("i16", "i8", "ui8")
SUMS = BY_NAME["i32"]


def _whole_numbers(data: np.ndarray, factor: int) -> np.ndarray:
    """Sample data that reaches far into its type, if these are integers."""
    return data if data.dtype.kind not in "iu" else (data * data.dtype.type(factor)).astype(data.dtype)


@ln_op
class Conv2dInteger(LnOp):
    """2-D cross-correlation of integers [N, C, H, W] with weights [O, C/group, kh, kw], in `group` groups: sums in i32,
    which wrap around. The maths are ONNX's ConvInteger without zero points.

    ```mlir
    // %x : tensor<1x8x12x12xi16>, %w : tensor<8x8x3x3xi16>
    %y = ln.conv2d_integer %x, %w {size = [3, 3], padding = [1, 1, 1, 1]} : tensor<1x8x12x12xi32>
    ```
    """

    optype = "conv2d_integer"
    sums: ClassVar[DType] = SUMS
    src = operand(rank=4, dtypes=FACTORS)
    weight = operand("param", rank=4, dtypes=FACTORS)
    dst = result(dtype="i32")
    group = number("int", ge=1, default=1)
    size = numbers("int", 2, ge=1)
    stride = numbers("int", 2, ge=1, default=(1, 1))
    dilation = numbers("int", 2, ge=1, default=(1, 1))
    padding = numbers("int", 4, ge=0, default=(0, 0, 0, 0))
    autopad = string(*AUTOPAD, default="NOTSET")
    checks = {k: text for k, text in Conv2d.checks.items() if k != "bias-length"}
    definition = """
        dst[n, o, y, x] += i32(weight[o, c, r, q]) * i32(src[n, o / (weight.dims[0] / group) * weight.dims[1] + c,
                                                             y * stride[0] + r * dilation[0] - pad[0],
                                                             x * stride[1] + q * dilation[1] - pad[1] | 0])
    """

    @classmethod
    def infer(cls, t, p):
        pad = effective_padding(p, t.src.dims[2:], p.dilation)
        found = window_result(cls, t.src, t.weight.dims[0], p.size, p.stride, pad, p.dilation)
        return [TensorSpec(found.dims, cls.sums)]

    @classmethod
    def derived(cls, t, p):
        return {"pad": effective_padding(p, t.src.dims[2:], p.dilation)}

    def flops(self):
        return 2 * self.result_specs[0].len * int(np.prod(self.operand_specs[1].dims[1:]))

    def reference(self, src, weight):
        kind = self.sums.np
        padded = pad_hw(src.astype(kind), self.derived_values()["pad"])
        return correlation(self, padded, weight.astype(kind), np.zeros(weight.shape[0], kind))

    @classmethod
    def sample_data(cls, name, kind, spec, tensors, params, seed):
        return _whole_numbers(super().sample_data(name, kind, spec, tensors, params, seed), 7)

    @classmethod
    def samples(cls):
        def conv(types, src, out, size, **p):
            types = types if cls.sums == SUMS else (SHORT[-1],) * 2
            weight = (out, src[1] // p.get("group", 1), *size)
            return case(src=(src, types[0]), weight=(weight, types[1]), size=size, **p)

        words, bytes_ = ("i16", "i16"), ("ui8", "i8")
        return [
            conv(words, (1, 3, 9, 9), 4, (3, 3), padding=(1, 1, 1, 1)),
            conv(words, (1, 1, 1, 1), 1, (1, 1)),
            conv(words, (2, 16, 7, 11), 24, (3, 3), padding=(2, 0, 1, 3)),
            conv(words, (1, 24, 13, 17), 17, (1, 1)),
            conv(words, (1, 32, 15, 33), 16, (3, 3), stride=(2, 2), padding=(1, 1, 1, 1)),
            conv(words, (1, 40, 14, 14), 48, (3, 3), stride=(2, 1), dilation=(2, 3), padding=(2, 3, 2, 3)),
            conv(words, (1, 32, 8, 8), 64, (5, 3), group=2, padding=(2, 1, 2, 1)),
            conv(words, (1, 16, 10, 7), 32, (3, 2), stride=(2, 2), autopad="SAME_UPPER"),
            conv(words, (1, 48, 1, 1), 37, (1, 1)),
            conv(bytes_, (2, 5, 7, 11), 9, (3, 3), padding=(2, 0, 1, 3)),
            conv(("i8", "i8"), (1, 8, 6, 6), 8, (3, 3), padding=(4, 4, 4, 4)),
            conv(("i16", "i8"), (1, 6, 9, 20), 6, (3, 3), group=6, padding=(1, 1, 1, 1)),
        ]


@ln_op
class MatmulInteger(LnOp):
    """Products of integer matrices: [..., M, K] x [..., K, N] = [..., M, N] in i32, which wraps around; the dimensions
    before broadcast as NumPy's do. The maths are ONNX's MatMulInteger without zero points, for operands of rank 2 or
    more.

    ```mlir
    // %a : tensor<4x3x8xi16>, %b : tensor<8x5xi8>
    %y = ln.matmul_integer %a, %b : tensor<4x3x5xi32>
    ```
    """

    optype = "matmul_integer"
    sums: ClassVar[DType] = SUMS
    a = operand(min_rank=2, dtypes=FACTORS)
    b = operand(min_rank=2, dtypes=FACTORS)
    dst = result(dtype="i32")
    checks = {"inner": "a.dims[a.ndim - 1] == b.dims[b.ndim - 2]"}

    @classmethod
    def infer(cls, t, p):
        batch = broadcast_dims(cls.optype, [TensorSpec(spec.dims[:-2], cls.sums) for spec in (t.a, t.b)])
        return [TensorSpec((*batch, t.a.dims[-2], t.b.dims[-1]), cls.sums)]

    @property
    def definition(self) -> str:
        """As that of `matmul`, in the type of the sums."""
        subscripts, sums = self._subscripts(), self.sums
        return f"dst[{subscripts[2]}m, n] += {sums}(a[{subscripts[0]}m, k]) * {sums}(b[{subscripts[1]}k, n])"

    def _subscripts(self) -> Sequence[str]:
        """The subscripts of a, b and dst in front of the matrices; a dimension of 1 that is repeated has 0."""
        names = [f"x{k}" for k in range(len(self.result_specs[0].dims) - 2)]
        found = []
        for spec in (*self.operand_specs, self.result_specs[0]):
            dims = spec.dims[:-2]
            own = names[len(names) - len(dims) :]
            kept = spec is self.result_specs[0]
            found.append("".join(f"{'0' if d == 1 and not kept else name}, " for d, name in zip(dims, own)))
        return found

    def flops(self):
        return 2 * self.result_specs[0].len * self.operand_specs[0].dims[-1]

    def reference(self, a, b):
        return np.matmul(a.astype(self.sums.np), b.astype(self.sums.np))

    @classmethod
    def sample_data(cls, name, kind, spec, tensors, params, seed):
        return _whole_numbers(super().sample_data(name, kind, spec, tensors, params, seed), 7)

    @classmethod
    def samples(cls):
        kinds = [("i16", "i16"), ("ui8", "i8"), ("i8", "i8"), ("ui8", "ui8")]
        kinds = kinds if cls.sums == SUMS else [(t, t) for t in SHORT]
        shapes = [
            ((3, 4), (4, 5)), ((1, 1), (1, 1)), ((1, 37), (37, 130)), ((33, 17), (17, 1)), ((50, 40), (40, 101)),
            ((2, 3, 7, 9), (2, 3, 9, 19)), ((2, 5, 6), (6, 33)), ((2, 1, 5, 8), (3, 8, 16)), ((3, 0), (0, 4)),
        ]  # fmt: skip
        types = (kinds[k % len(kinds)] for k in range(len(shapes)))
        return [case(a=(a, left), b=(b, right)) for (left, right), (a, b) in zip(types, shapes)]


@ln_op
class Conv2dShort(Conv2dInteger):
    """2-D cross-correlation of f16 or bf16 [N, C, H, W] with weights [O, C/group, kh, kw] of the same type, in `group`
    groups: sums in f32, which the result keeps. Subnormal factors may count as 0.

    ```mlir
    // %x : tensor<1x8x12x12xbf16>, %w : tensor<8x8x3x3xbf16>
    %y = ln.conv2d_short %x, %w {size = [3, 3], padding = [1, 1, 1, 1]} : tensor<1x8x12x12xf32>
    ```
    """

    optype = "conv2d_short"
    sums = BY_NAME["f32"]
    src = operand(rank=4, dtypes=SHORT)
    weight = operand("param", rank=4, dtypes=SHORT)
    dst = result(dtype="f32")
    checks = Conv2dInteger.checks | {"types": "src.dtype == weight.dtype"}
    definition = Conv2dInteger.definition.replace("i32", "f32")


@ln_op
class MatmulShort(MatmulInteger):
    """Products of matrices of f16 or bf16: [..., M, K] x [..., K, N] = [..., M, N] in f32, which the result keeps; the
    dimensions before broadcast as NumPy's do. Subnormal factors may count as 0.

    ```mlir
    // %a : tensor<4x3x8xbf16>, %b : tensor<8x5xbf16>
    %y = ln.matmul_short %a, %b : tensor<4x3x5xf32>
    ```
    """

    optype = "matmul_short"
    sums = BY_NAME["f32"]
    a = operand(min_rank=2, dtypes=SHORT)
    b = operand(min_rank=2, dtypes=SHORT)
    dst = result(dtype="f32")
    checks = MatmulInteger.checks | {"types": "a.dtype == b.dtype"}
