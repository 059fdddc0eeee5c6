"""Convolutions over any number of axes: `conv` and its transpose `deconv`, on [N, C, *S] tensors.

What has one or two axes is better written as `conv2d` and `deconv2d`, which have kernels of their own.
"""

from __future__ import annotations

import numpy as np

from lightnet.dialects.ln.numeric import FLOATS, SHORT
from lightnet.dialects.ln.window import correlation, transposed_correlation, transposed_result, window_result
from lightnet.ir.op import LnOp, case, ln_op, number, numbers, operand, result

DTYPES = (*FLOATS, "i32", "i64")
_AXES = "src.ndim - 2"


class _ConvolutionNd(LnOp):
    """The declarations of both. `padding` has what is added before each axis, then what is added behind."""

    src = operand(min_rank=3, dtypes=DTYPES)
    weight = operand("param", min_rank=3, same_type="src")
    bias = operand("param", kind="bias", rank=1, same_type="src")
    dst = result()
    group = number("int", ge=1, default=1)
    stride = numbers("int", _AXES, ge=1)
    dilation = numbers("int", _AXES, ge=1)
    padding = numbers("int", f"2 * ({_AXES})", ge=0)

    def flops(self):
        spec = self.result_specs[0] if self.optype == "conv" else self.operand_specs[0]
        return 2 * spec.len * int(np.prod(self.operand_specs[1].dims[1:]))

    def axes(self) -> range:
        """The numbers of the spatial axes."""
        return range(self.operand_specs[0].ndim - 2)


@ln_op
class Conv(_ConvolutionNd):
    """N-D cross-correlation of [N, C, *S] with weights [O, C/group, *K], plus a bias [O], in `group` groups.

    `padding` is [begins then ends], of zeros. The maths are ONNX's Conv.

    ```mlir
    // %x : tensor<1x2x4x5x6xf32>, %w : tensor<3x2x3x3x3xf32>, %b : tensor<3xf32>
    %y = ln.conv %x, %w, %b {stride = [1, 1, 1], dilation = [1, 1, 1], padding = [1, 1, 1, 1, 1, 1]}
      : tensor<1x3x4x5x6xf32>
    ```
    """

    optype = "conv"
    checks = {
        "rank": "weight.ndim == src.ndim",
        "in-channels": "weight.dims[1] * group == src.dims[1]",
        "out-channels": "weight.dims[0] % group == 0",
        "bias-length": "bias.dims[0] == weight.dims[0]",
    }
    definition = """
        dst[n, o, y...] = bias[o]
        dst[n, o, y...] += weight[o, c, r...] * src[n, o / (weight.dims[0] / group) * weight.dims[1] + c,
                                                    y * stride + r * dilation - before... | 0]
    """

    @classmethod
    def infer(cls, t, p):
        size = t.weight.dims[2:]
        return [window_result(cls, t.src, t.weight.dims[0], size, p.stride, p.padding, p.dilation)]

    @classmethod
    def derived(cls, t, p):
        return {"before": p.padding[: len(p.stride)]}

    def reference(self, src, weight, bias):
        before, behind = self.padding[: src.ndim - 2], self.padding[src.ndim - 2 :]
        x = np.pad(src, [(0, 0), (0, 0), *zip(before, behind)])
        return correlation(self, x, weight, bias)

    @classmethod
    def samples(cls):
        def conv(kind, src, out, kernel, stride=None, dilation=None, padding=None, group=1):
            ones = (1,) * len(kernel)
            return case(kind, src=src, weight=(out, src[1] // group, *kernel), bias=(out,), stride=stride or ones,
                        dilation=dilation or ones, padding=padding or (0,) * 2 * len(kernel), group=group)  # fmt: skip

        return [
            conv("f32", (1, 2, 4, 5, 6), 3, (3, 3, 3), padding=(1,) * 6),
            conv("f32", (1, 1, 1, 1, 1), 1, (1, 1, 1)),
            conv("f32", (2, 4, 3, 7, 19), 6, (2, 1, 3), stride=(1, 2, 2), padding=(0, 1, 2, 1, 0, 1), group=2),
            conv("f32", (1, 3, 5, 6, 7), 3, (2, 2, 3), dilation=(2, 1, 2), padding=(1, 0, 2, 2, 1, 0), group=3),
            conv("f32", (2, 3, 33), 5, (4,), stride=(3,), padding=(2, 1)),
            conv("f32", (1, 2, 3, 2, 3, 4), 2, (1, 2, 2, 3), padding=(0, 1, 0, 1, 0, 0, 1, 1)),
            conv("f64", (1, 2, 3, 4, 5), 3, (2, 3, 2)), conv("i32", (1, 2, 3, 4, 5), 3, (2, 3, 2), padding=(1,) * 6),
            *(conv(t, (1, 2, 3, 4, 5), 3, (2, 3, 2), padding=(1,) * 6) for t in SHORT),
        ]  # fmt: skip


@ln_op
class Deconv(_ConvolutionNd):
    """Transposed N-D convolution of [N, I, *S] with weights [I, O/group, *K], plus a bias [O].

    Each input element adds its weights, scaled, to a window of the output; `padding` is cut off the full output and
    `output_padding` added at its end: S_out = stride * (S - 1) + output_padding + (K - 1) * dilation + 1 - padding. The
    maths are ONNX's ConvTranspose.

    ```mlir
    // %x : tensor<1x2x2x3x4xf32>, %w : tensor<2x3x2x2x2xf32>, %b : tensor<3xf32>
    %y = ln.deconv %x, %w, %b {stride = [2, 2, 2], dilation = [1, 1, 1], padding = [0, 0, 0, 0, 0, 0],
                               output_padding = [0, 0, 0]} : tensor<1x3x4x6x8xf32>
    ```
    """

    optype = "deconv"
    output_padding = numbers("int", _AXES, ge=0)
    checks = {
        "rank": "weight.ndim == src.ndim",
        "in-channels": "weight.dims[0] == src.dims[1]",
        "group-channels": "src.dims[1] % group == 0",
        "bias-length": "bias.dims[0] == weight.dims[1] * group",
    }

    @classmethod
    def infer(cls, t, p):
        return [transposed_result(cls, t.src, t.weight, p, p.padding)]

    @property
    def definition(self) -> str:
        axes = self.axes()
        source = [f"(y{i} + padding[{i}] - r{i} * dilation[{i}])" for i in axes]
        whole = " && ".join(f"{s} % stride[{i}] == 0" for i, s in zip(axes, source))
        at = ", ".join(f"{s} / stride[{i}]" for i, s in zip(axes, source))
        out = ", ".join(f"y{i}" for i in axes)
        channel = "o / weight.dims[1] * (src.dims[1] / group) + c"
        taps = ", ".join(f"r{i}" for i in axes)
        return f"""
            dst[n, o, {out}] = bias[o]
            dst[n, o, {out}] += {whole}
                ? src[n, {channel}, {at} | 0] * weight[{channel}, o % weight.dims[1], {taps}] : 0
                for c < src.dims[1] / group, {", ".join(f"r{i} < weight.dims[{i + 2}]" for i in axes)}
        """

    def reference(self, src, weight, bias):
        return transposed_correlation(self, src, weight, bias, self.padding[: src.ndim - 2])

    @classmethod
    def samples(cls):
        def deconv(
            kind, src, per_group, kernel, stride=None, dilation=None, padding=None, output_padding=None, group=1
        ):
            axes = len(kernel)
            return case(kind, src=src, weight=(src[1], per_group, *kernel), bias=(per_group * group,), group=group,
                        stride=stride or (1,) * axes, dilation=dilation or (1,) * axes,
                        padding=padding or (0,) * 2 * axes,
                        output_padding=output_padding or (0,) * axes)  # fmt: skip

        return [
            deconv("f32", (1, 2, 2, 3, 4), 3, (2, 2, 2), stride=(2, 2, 2)),
            deconv("f32", (1, 1, 1, 1, 1), 1, (1, 1, 1)),
            deconv("f32", (2, 4, 3, 2, 5), 3, (3, 2, 3), stride=(2, 1, 3), padding=(1, 0, 2, 0, 1, 1), group=2,
                   output_padding=(1, 0, 2)),
            deconv("f32", (1, 2, 3, 4, 5), 2, (2, 3, 2), dilation=(1, 2, 3), stride=(2, 1, 2),
                   padding=(0, 1, 1, 0, 1, 0)),
            deconv("f32", (2, 3, 9), 4, (4,), stride=(2,), padding=(1, 1)),
            deconv("f64", (1, 2, 2, 3, 2), 2, (2, 2, 1)),
            deconv("i32", (1, 2, 2, 3, 2), 2, (2, 2, 3), stride=(2, 2, 2)),
        ]  # fmt: skip
