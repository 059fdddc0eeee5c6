"""Normalisation: `batchnorm` and `softmax`."""

from __future__ import annotations

import numpy as np

from lightnet.ir.op import LnOp, case, ln_op, number, operand, result

_FLOATS = ("f32", "f64")


@ln_op
class Batchnorm(LnOp):
    """scale * (src - mean) / sqrt(var + epsilon) + offset, channel by channel of [N, C, H, W].

    Ioffe and Szegedy 2015, in inference form; ONNX's BatchNormalization.

    ```mlir
    // %x : tensor<1x3x4x5xf32>, %scale : tensor<3xf32>, %offset : tensor<3xf32>, %mean : tensor<3xf32>, %var : tensor<3xf32>
    %y = ln.batchnorm %x, %scale, %offset, %mean, %var {epsilon = 1.0e-05} : tensor<1x3x4x5xf32>
    ```
    """

    optype = "batchnorm"
    src = operand(rank=4, dtypes=_FLOATS)
    scale = operand("param", kind="scale", rank=1, same_type="src")
    offset = operand("param", kind="bias", rank=1, same_type="src")
    mean = operand("param", kind="mean", rank=1, same_type="src")
    var = operand("param", kind="variance", rank=1, same_type="src")
    dst = result()
    epsilon = number("float", gt=0, default=1e-5)
    checks = {f"{name}-length": f"{name}.len == src.dims[1]" for name in ("scale", "offset", "mean", "var")}
    definition = """
        dst[n, c, y, x] = scale[c] * (src[n, c, y, x] - mean[c]) / sqrt(var[c] + epsilon) + offset[c]
    """

    def flops(self):
        return 4 * self.result_specs[0].len

    def reference(self, src, scale, offset, mean, var):
        s, o, m, v = (a.astype(np.float64)[:, None, None] for a in (scale, offset, mean, var))
        return (s * (src - m) / np.sqrt(v + self.epsilon) + o).astype(src.dtype)

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
        ]


@ln_op
class Softmax(LnOp):
    """exp(src) / sum(exp(src)) along `axis`, computed after the maximum is subtracted.

    ```mlir
    %y = ln.softmax %x {axis = 1} : tensor<1x3x4x5xf32>
    ```
    """

    optype = "softmax"
    src = operand(dtypes=_FLOATS)
    dst = result()
    axis = number("int", ge=0, lt="src.ndim")
    definition = """
        top[i:axis..., k...] max= src[i..., j, k...]
        e[i:axis..., j, k...] = exp(src[i..., j, k...] - top[i..., k...])
        sum[i:axis..., k...] += e[i..., j, k...]
        dst[i:axis..., j, k...] = e[i..., j, k...] / sum[i..., k...]
    """

    def flops(self):
        return 5 * self.result_specs[0].len

    def reference(self, src):
        x = src.astype(np.float64)
        e = np.exp(x - x.max(axis=self.axis, keepdims=True))
        return (e / e.sum(axis=self.axis, keepdims=True)).astype(src.dtype)

    @classmethod
    def samples(cls):
        return [
            case(src=(1, 3, 4, 5), axis=1), case(src=(7,), axis=0), case(src=(1, 1), axis=1), case(src=(5, 33), axis=1),
            case(src=(3, 1, 2, 1, 3), axis=4), case("f64", src=(4, 3, 17), axis=0),
        ]  # fmt: skip


OPS = (Batchnorm, Softmax)
