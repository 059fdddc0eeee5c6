"""Convolutions: `conv2d` and its transpose `deconv2d`, on [N, C, H, W] tensors."""

from __future__ import annotations

import numpy as np

from lightnet.dialects.ln.window import (
    AUTOPAD,
    correlation,
    effective_padding,
    pad_hw,
    transposed_correlation,
    transposed_padding,
    transposed_result,
    window_result,
)
from lightnet.ir.op import ConstraintError, LnOp, case, ln_op, number, numbers, operand, result, string


class _Convolution(LnOp):
    """The declarations that both begin with."""

    src = operand(rank=4)
    weight = operand("param", rank=4, same_type="src")
    bias = operand("param", kind="bias", rank=1, same_type="src")
    dst = result()
    group = number("int", ge=1, default=1)
    size = numbers("int", 2, ge=1)
    stride = numbers("int", 2, ge=1, default=(1, 1))


@ln_op
class Conv2d(_Convolution):
    """2-D cross-correlation of [N, C, H, W] with weights [O, C/group, kh, kw], plus a bias [O], in `group` groups.

    `padding` is [top, left, bottom, right] and counts when `autopad` is NOTSET. The maths are ONNX's Conv.

    ```mlir
    // %x : tensor<1x3x12x12xf32>, %w : tensor<8x3x3x3xf32>, %b : tensor<8xf32>
    %y = ln.conv2d %x, %w, %b {size = [3, 3], stride = [2, 2], padding = [1, 1, 1, 1]} : tensor<1x8x6x6xf32>
    ```
    """

    optype = "conv2d"
    dilation = numbers("int", 2, ge=1, default=(1, 1))
    padding = numbers("int", 4, ge=0, default=(0, 0, 0, 0))
    autopad = string(*AUTOPAD, default="NOTSET")
    checks = {
        "in-channels": "weight.dims[1] * group == src.dims[1]",
        "out-channels": "weight.dims[0] % group == 0",
        "kernel-height": "size[0] == weight.dims[2]",
        "kernel-width": "size[1] == weight.dims[3]",
        "bias-length": "bias.dims[0] == weight.dims[0]",
    }
    definition = """
        dst[n, o, y, x] = bias[o]
        dst[n, o, y, x] += weight[o, c, r, q] * src[n, o / (weight.dims[0] / group) * weight.dims[1] + c,
                                                    y * stride[0] + r * dilation[0] - pad[0],
                                                    x * stride[1] + q * dilation[1] - pad[1] | 0]"""

    @classmethod
    def infer(cls, t, p):
        pad = effective_padding(p, t.src.dims[2:], p.dilation)
        return [window_result(cls, t.src, t.weight.dims[0], p.size, p.stride, pad, p.dilation)]

    @classmethod
    def derived(cls, t, p):
        return {"pad": effective_padding(p, t.src.dims[2:], p.dilation)}

    def flops(self):
        return 2 * self.result_specs[0].len * int(np.prod(self.operand_specs[1].dims[1:]))

    def reference(self, src, weight, bias):
        return correlation(self, pad_hw(src, self.derived_values()["pad"]), weight, bias)

    @classmethod
    def samples(cls):
        def conv(src, out, size, **p):
            group = p.get("group", 1)
            return case(src=src, weight=(out, src[1] // group, *size), bias=(out,), size=size, **p)

        return [
            conv((1, 3, 9, 9), 4, (3, 3), padding=(1, 1, 1, 1)),
            conv((1, 1, 1, 1), 1, (1, 1)),
            conv((2, 5, 7, 11), 9, (3, 3), padding=(2, 0, 1, 3)),
            conv((1, 16, 13, 17), 17, (1, 1)),
            conv((1, 8, 15, 33), 10, (3, 3), stride=(2, 2), padding=(1, 1, 1, 1)),
            conv((1, 8, 14, 14), 6, (3, 3), stride=(2, 1), dilation=(2, 3), padding=(2, 3, 2, 3)),
            conv((1, 6, 9, 20), 6, (3, 3), group=6, padding=(1, 1, 1, 1)),
            conv((1, 12, 8, 8), 8, (5, 3), group=4, padding=(2, 1, 2, 1), autopad="NOTSET"),
            conv((1, 4, 10, 7), 3, (3, 2), stride=(2, 2), autopad="SAME_UPPER"),
            conv((1, 4, 10, 7), 3, (4, 2), stride=(3, 2), autopad="SAME_LOWER"),
            conv((1, 4, 6, 6), 3, (3, 3), padding=(5, 5, 5, 5), autopad="VALID"),
            conv((1, 24, 1, 1), 37, (1, 1)),
            conv((1, 3, 20, 50), 8, (7, 7), stride=(2, 2), padding=(3, 3, 3, 3)),
            conv((1, 4, 5, 70), 12, (1, 3), padding=(0, 1, 0, 1)),
            conv((1, 3, 4, 4), 2, (3, 3), padding=(4, 4, 4, 4)),
        ]


@ln_op
class Deconv2d(_Convolution):
    """Transposed 2-D convolution of [N, I, H, W] with weights [I, O/group, kh, kw], plus a bias [O].

    Each input element adds its weights, scaled, to a window of the output; `padding` is cut off the full output and
    `output_padding` added at its end. When all four `output_dims` are positive they are the result's shape and decide
    the padding of SAME_*. The maths are ONNX's ConvTranspose.

    ```mlir
    // %x : tensor<1x3x5x5xf32>, %w : tensor<3x4x3x3xf32>, %b : tensor<4xf32>
    %y = ln.deconv2d %x, %w, %b {size = [3, 3], stride = [2, 2], padding = [1, 1, 1, 1]} : tensor<1x4x9x9xf32>
    ```
    """

    optype = "deconv2d"
    output_dims = numbers("int", 4, ge=0, default=(0, 0, 0, 0))
    padding = numbers("int", 4, ge=0, default=(0, 0, 0, 0))
    output_padding = numbers("int", 2, ge=0, default=(0, 0))
    dilation = numbers("int", 2, ge=1, default=(1, 1))
    autopad = string(*AUTOPAD, default="NOTSET")
    checks = {
        "in-channels": "weight.dims[0] == src.dims[1]",
        "group-channels": "src.dims[1] % group == 0",
        "kernel-height": "size[0] == weight.dims[2]",
        "kernel-width": "size[1] == weight.dims[3]",
        "bias-length": "bias.dims[0] == weight.dims[1] * group",
        "same-output-dims": 'autopad == "NOTSET" || autopad == "VALID" || '
        "output_dims[0] > 0 && output_dims[1] > 0 && output_dims[2] > 0 && output_dims[3] > 0",
    }
    definition = """
        dst[n, o, y, x] = bias[o]
        dst[n, o, y, x] += (y + pad[0] - r * dilation[0]) % stride[0] == 0
            && (x + pad[1] - q * dilation[1]) % stride[1] == 0
            ? src[n, o / weight.dims[1] * (src.dims[1] / group) + c,
                  (y + pad[0] - r * dilation[0]) / stride[0], (x + pad[1] - q * dilation[1]) / stride[1] | 0]
              * weight[o / weight.dims[1] * (src.dims[1] / group) + c, o % weight.dims[1], r, q]
            : 0
            for c < src.dims[1] / group, r < size[0], q < size[1]"""

    @classmethod
    def infer(cls, t, p):
        found = transposed_result(cls, t.src, t.weight, p, transposed_padding(p, t.src.dims[2:]))
        if all(d > 0 for d in p.output_dims) and found.dims != p.output_dims:
            text = f"deconv2d: `output_dims` {list(p.output_dims)} should be the result's shape {list(found.dims)}"
            raise ConstraintError(text, label="deconv2d.output-dims")
        return [found]

    @classmethod
    def derived(cls, t, p):
        return {"pad": transposed_padding(p, t.src.dims[2:])}

    def flops(self):
        return 2 * self.operand_specs[0].len * int(np.prod(self.operand_specs[1].dims[1:]))

    def reference(self, src, weight, bias):
        return transposed_correlation(self, src, weight, bias, self.derived_values()["pad"][:2])

    @classmethod
    def samples(cls):
        def deconv(src, per_group, size, **p):
            group = p.get("group", 1)
            return case(src=src, weight=(src[1], per_group, *size), bias=(per_group * group,), size=size, **p)

        return [
            deconv((1, 3, 4, 5), 2, (3, 3), stride=(2, 2), padding=(1, 1, 1, 1)),
            deconv((1, 1, 1, 1), 1, (1, 1)),
            deconv((2, 4, 5, 3), 3, (2, 2), stride=(2, 2)),
            deconv((1, 4, 5, 7), 2, (3, 2), group=2, dilation=(2, 1), output_padding=(1, 0), stride=(2, 3)),
            deconv((1, 3, 6, 6), 4, (3, 3), padding=(0, 2, 1, 0)),
            deconv((1, 8, 5, 9), 5, (3, 3), stride=(2, 2), output_dims=(1, 5, 10, 18), autopad="SAME_UPPER"),
            deconv((1, 2, 5, 4), 3, (4, 4), stride=(2, 2), output_dims=(1, 3, 10, 8), autopad="SAME_LOWER"),
            deconv((1, 2, 3, 4), 3, (2, 1), stride=(2, 4), output_dims=(1, 3, 6, 16), autopad="SAME_UPPER"),
        ]
