"""Normalisation: by statistics of a batch, of a tensor's own axes, of neighbouring channels; and softmax."""

from __future__ import annotations

import math
from collections.abc import Mapping
from math import prod
from typing import ClassVar

import numpy as np

from lightnet.dialects.ln.numeric import FLOATS, SHORT, as_summed, cases, total
from lightnet.ir.op import LnOp, case, ln_op, number, operand, result

#: Elements that a reference computes at a time in float64, so that they stay in the second-level cache.
_STEP = 1 << 15


@ln_op
class Batchnorm(LnOp):
    """scale * (src - mean) / sqrt(var + epsilon) + offset, channel by channel of [N, C, H, W].

    Ioffe and Szegedy 2015, in inference form; ONNX's BatchNormalization.

    ```mlir
    // %x : tensor<1x3x4x5xf32>, %scale : tensor<3xf32>, %offset : tensor<3xf32>, %mean : tensor<3xf32>
    // %var : tensor<3xf32>
    %y = ln.batchnorm %x, %scale, %offset, %mean, %var {epsilon = 1.0e-05} : tensor<1x3x4x5xf32>
    ```
    """

    optype = "batchnorm"
    src = operand(rank=4, dtypes=FLOATS)
    scale = operand("param", kind="scale", rank=1, same_type="src")
    offset = operand("param", kind="bias", rank=1, same_type="src")
    mean = operand("param", kind="mean", rank=1, same_type="src")
    var = operand("param", kind="variance", rank=1, same_type="src")
    dst = result()
    epsilon = number("float", gt=0, default=1e-5)
    checks = {f"{name}-length": f"{name}.len == src.dims[1]" for name in ("scale", "offset", "mean", "var")}
    definition = """
        dst[n, c, y, x] = (src[n, c, y, x] - mean[c]) * (scale[c] / sqrt(var[c] + epsilon)) + offset[c]
    """
    work = 4

    def reference(self, src, scale, offset, mean, var):
        s, o, m, v = (a.astype(np.float64)[:, None, None] for a in (scale, offset, mean, var))
        ratio, result = s / np.sqrt(v + self.epsilon), np.empty_like(src)
        step = max(1, _STEP * src.shape[1] // max(1, src.size))
        for first in range(0, src.shape[1], step):
            part = slice(first, first + step)
            x = src[:, part].astype(np.float64)
            x -= m[part]
            x *= ratio[part]
            x += o[part]
            result[:, part] = x
        return result

    @classmethod
    def samples(cls):
        def bn(*src, dtype="f32", **p):
            vectors = dict.fromkeys(("scale", "offset", "mean", "var"), (src[1],))
            return case(dtype, src=src, **vectors, **p)

        return [
            bn(1, 3, 4, 5, epsilon=1e-5),
            bn(1, 1, 1, 1, epsilon=0.5),
            bn(2, 17, 3, 19),
            bn(1, 4, 7, 1, dtype="f64"),
            *cases({"src": (1, 3, 2, 5), **dict.fromkeys(("scale", "offset", "mean", "var"), (3,))}, SHORT),
        ]


class _Trailing(LnOp):
    """A normalisation over the axes from `axis` on."""

    src = operand(min_rank=1, dtypes=FLOATS)
    dst = result()
    axis = number("int", ge=0, lt="src.ndim")
    epsilon = number("float", ge=0, default=1e-5)
    work = 6

    @classmethod
    def derived(cls, t, p):
        return {"count": max(prod(t.src.dims[p.axis :]), 1)}

    def trailing(self) -> tuple[int, ...]:
        """The axes that are normalised over."""
        return tuple(range(self.axis, self.operand_specs[0].ndim))

    @classmethod
    def samples(cls):
        return [
            case(src=(2, 5, 33), axis=2), case(src=(1, 1), axis=1), case(src=(7,), axis=0, epsilon=1e-3),
            case(src=(3, 4, 5), axis=1), case(src=(2, 3, 1, 17), axis=2), case(src=(128, 40), axis=1),
            case(src=(2, 3), axis=0), case("f64", src=(4, 9), axis=1), case(src=(0, 4), axis=1),
            *cases({"src": (3, 40)}, SHORT, axis=1),
        ]  # fmt: skip


@ln_op
class Layernorm(_Trailing):
    """(src - mean) / sqrt(variance + epsilon), of all elements that agree in the axes before `axis`.

    Ba, Kiros and Hinton, "Layer Normalization" (2016), equation 4, without gain and bias; ONNX's LayerNormalization.

    ```mlir
    // %x : tensor<2x5x32xf32>
    %y = ln.layernorm %x {axis = 2} : tensor<2x5x32xf32>
    ```
    """

    optype = "layernorm"
    definition = """
        sum[i:axis...] += src[i..., j...]
        mean[i:axis...] = sum[i...] / count
        var[i:axis...] += (src[i..., j...] - mean[i...]) * (src[i..., j...] - mean[i...])
        scale[i:axis...] = 1 / sqrt(var[i...] / count + epsilon)
        dst[i:axis..., j...] = (src[i..., j...] - mean[i...]) * scale[i...]
    """

    def reference(self, src):
        if not src.size:
            return src
        x, axes = src.astype(np.float64), self.trailing()
        count = math.prod(x.shape[k] for k in axes)
        centred = as_summed(x - as_summed(total(x, axes, keepdims=True), src.dtype) / count, src.dtype)
        variance = as_summed(np.square(centred).sum(axis=axes, keepdims=True), src.dtype) / count
        return (centred / np.sqrt(variance + self.epsilon)).astype(src.dtype)


@ln_op
class Rmsnorm(_Trailing):
    """src / sqrt(mean of squares + epsilon), of all elements that agree in the axes before `axis`.

    Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019), equation 4, without gain; ONNX's
    RMSNormalization.

    ```mlir
    // %x : tensor<2x5x32xf32>
    %y = ln.rmsnorm %x {axis = 2} : tensor<2x5x32xf32>
    ```
    """

    optype = "rmsnorm"
    definition = """
        sum[i:axis...] += src[i..., j...] * src[i..., j...]
        scale[i:axis...] = 1 / sqrt(sum[i...] / count + epsilon)
        dst[i:axis..., j...] = src[i..., j...] * scale[i...]
    """

    def reference(self, src):
        if not src.size:
            return src
        x = src.astype(np.float64)
        count = math.prod(x.shape[k] for k in self.trailing())
        squares = as_summed(np.square(x).sum(axis=self.trailing(), keepdims=True), src.dtype) / count
        return (x / np.sqrt(squares + self.epsilon)).astype(src.dtype)


class _Along(LnOp):
    """A normalisation along one axis."""

    src = operand(min_rank=1, dtypes=FLOATS)
    dst = result()
    axis = number("int", ge=0, lt="src.ndim")
    work = 5

    @classmethod
    def samples(cls):
        return [
            case(src=(1, 3, 4, 5), axis=1), case(src=(7,), axis=0), case(src=(1, 1), axis=1), case(src=(5, 33), axis=1),
            case(src=(3, 1, 2, 1, 3), axis=4), case("f64", src=(4, 3, 17), axis=0), case(src=(2, 0, 3), axis=1),
            case(src=(0, 4), axis=1), *cases({"src": (3, 20)}, SHORT, axis=1),
        ]  # fmt: skip


@ln_op
class Softmax(_Along):
    """exp(src) / sum(exp(src)) along `axis`, computed after the maximum is subtracted.

    ```mlir
    %y = ln.softmax %x {axis = 1} : tensor<1x3x4x5xf32>
    ```
    """

    optype = "softmax"
    definition = """
        top[i:axis..., k...] max= src[i..., j, k...]
        e[i:axis..., j, k...] = exp(src[i..., j, k...] - top[i..., k...])
        sum[i:axis..., k...] += e[i..., j, k...]
        dst[i:axis..., j, k...] = e[i..., j, k...] / sum[i..., k...]
    """

    def reference(self, src):
        x = src.astype(np.float64)
        e = np.exp(x - x.max(axis=self.axis, keepdims=True, initial=-np.inf))
        return (e / e.sum(axis=self.axis, keepdims=True)).astype(src.dtype)


@ln_op
class LogSoftmax(_Along):
    """src - log(sum(exp(src))) along `axis`, computed after the maximum is subtracted.

    ```mlir
    %y = ln.log_softmax %x {axis = 1} : tensor<1x3x4x5xf32>
    ```
    """

    optype = "log_softmax"
    definition = """
        top[i:axis..., k...] max= src[i..., j, k...]
        sum[i:axis..., k...] += exp(src[i..., j, k...] - top[i..., k...])
        shift[i:axis..., k...] = log(sum[i..., k...])
        dst[i:axis..., j, k...] = src[i..., j, k...] - top[i..., k...] - shift[i..., k...]
    """

    def reference(self, src):
        x = src.astype(np.float64)
        x = x - x.max(axis=self.axis, keepdims=True, initial=-np.inf)
        return (x - np.log(np.exp(x).sum(axis=self.axis, keepdims=True))).astype(src.dtype)


@ln_op
class L2norm(_Along):
    """src / sqrt(sum of squares along `axis` + epsilon). MXNet's L2Normalization.

    ```mlir
    %y = ln.l2norm %x {axis = 1, epsilon = 1.0e-10} : tensor<1x3x4x5xf32>
    ```
    """

    optype = "l2norm"
    epsilon = number("float", ge=0, default=1e-10)
    definition = """
        sum[i:axis..., k...] += src[i..., j, k...] * src[i..., j, k...]
        length[i:axis..., k...] = sqrt(sum[i..., k...] + epsilon)
        dst[i:axis..., j, k...] = src[i..., j, k...] / length[i..., k...]
    """

    def reference(self, src):
        x = src.astype(np.float64)
        squares = as_summed(np.square(x).sum(axis=self.axis, keepdims=True), src.dtype)
        return (x / np.sqrt(squares + self.epsilon)).astype(src.dtype)


@ln_op
class Lrn(LnOp):
    """src / (bias + alpha / size * sum of the squares of `size` neighbouring channels) ** beta, of [N, C, ...].

    The channels are c - (size - 1) / 2 (rounded down) to c + (size - 1) / 2 (rounded up). Krizhevsky, Sutskever and
    Hinton, "ImageNet Classification with Deep Convolutional Neural Networks" (2012), section 3.3; ONNX's LRN.

    ```mlir
    %y = ln.lrn %x {size = 5, alpha = 1.0e-04, beta = 0.75, bias = 1.0} : tensor<1x3x4x5xf32>
    ```
    """

    optype = "lrn"
    src = operand(min_rank=2, dtypes=FLOATS)
    dst = result()
    size = number("int", ge=1)
    alpha = number("float", default=1e-4)
    beta = number("float", default=0.75)
    bias = number("float", default=1.0)

    #: base ** -beta for the usual exponents, without a logarithm.
    POWERS: ClassVar[Mapping[float, str]] = {
        0.5: "1 / sqrt({0})",
        0.75: "1 / (sqrt({0}) * sqrt(sqrt({0})))",
        1.0: "1 / {0}",
    }

    @classmethod
    def derived(cls, t, p):
        return {"before": (p.size - 1) // 2}

    @property
    def definition(self) -> str:
        scale = self.POWERS.get(self.beta, "pow({0}, -beta)").format("base[n, c, i...]")
        axes = range(2, self.operand_specs[0].ndim)
        at = "".join(f", i{k}" for k in axes)
        ranges = "".join(f", i{k} < src.dims[{k}]" for k in axes)
        return f"""
            sum[n, c{at}] += src[n, c + k - before{at} | 0] * src[n, c + k - before{at} | 0]
                for k < size, n < src.dims[0], c < src.dims[1]{ranges}
            base[n, c, i...] = bias + alpha / size * sum[n, c, i...]
            dst[n, c, i...] = src[n, c, i...] * ({scale})
        """

    def flops(self):
        return (2 * self.size + 4) * self.result_specs[0].len

    def reference(self, src):
        before = (self.size - 1) // 2
        squares = np.square(src.astype(np.float64))
        squares = np.pad(squares, [(0, 0), (before, self.size - 1 - before), *((0, 0),) * (src.ndim - 2)])
        total = as_summed(sum(squares[:, k : k + src.shape[1]] for k in range(self.size)), src.dtype)
        return (src * (self.bias + self.alpha / self.size * total) ** -self.beta).astype(src.dtype)

    @classmethod
    def samples(cls):
        p = dict(alpha=0.5, bias=1.5)
        return [
            case(src=(1, 7, 4, 5), size=5, **p), case(src=(2, 3, 1, 17), size=4, beta=0.6, **p),
            case(src=(1, 1), size=1, **p),
            case(src=(1, 2, 3, 3), size=9, beta=0.5, **p), case("f64", src=(1, 5, 6), size=3, beta=1.0, **p),
            *cases({"src": (1, 5, 20)}, SHORT, size=3, **p),
        ]  # fmt: skip
