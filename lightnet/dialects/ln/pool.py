"""Pooling over [N, C, H, W]: `maxpool2d` and `avgpool2d`."""

from __future__ import annotations

from typing import Any

import numpy as np

from lightnet.dialects.ln.numeric import as_summed, largest, total
from lightnet.dialects.ln.window import AUTOPAD, effective_padding, pad_hw, window_result, windows_of
from lightnet.ir.op import LnOp, case, ln_op, numbers, operand, result, string

_NO_DILATION = (1, 1)


class _Pool(LnOp):
    """The declarations of both pools."""

    src = operand(rank=4)
    dst = result()
    size = numbers("int", 2, gt=0)
    stride = numbers("int", 2, gt=0, default=(1, 1))
    padding = numbers("int", 4, ge=0, default=(0, 0, 0, 0))
    autopad = string(*AUTOPAD, default="NOTSET")
    #: A window that lies in the padding alone has no maximum and no mean.
    checks = {
        "padding-height": 'autopad != "NOTSET" || padding[0] < size[0] && padding[2] < size[0]',
        "padding-width": 'autopad != "NOTSET" || padding[1] < size[1] && padding[3] < size[1]',
    }

    @classmethod
    def infer(cls, t, p):
        pad = effective_padding(p, t.src.dims[2:], _NO_DILATION)
        return [window_result(cls, t.src, t.src.dims[1], p.size, p.stride, pad, _NO_DILATION, reads=True)]

    @classmethod
    def derived(cls, t, p):
        return {"pad": effective_padding(p, t.src.dims[2:], _NO_DILATION)}

    def flops(self):
        return self.result_specs[0].len * self.size[0] * self.size[1]

    def windows(self, src: np.ndarray, filler: float) -> np.ndarray:
        """All windows of `src`: [kh * kw, N, C, rows, columns]."""
        _, _, rows, columns = self.result_specs[0].dims
        x = pad_hw(src, self.derived_values()["pad"], filler)
        return windows_of(x, self.size, self.stride, _NO_DILATION, (rows, columns))

    @classmethod
    def samples(cls):
        return [
            case(src=(1, 3, 9, 11), size=(3, 3), stride=(2, 2), padding=(1, 1, 1, 1)),
            case(src=(1, 1, 1, 1), size=(1, 1)),
            case(src=(2, 3, 7, 40), size=(3, 2), stride=(1, 1), padding=(0, 1, 2, 0)),
            case(src=(1, 5, 7, 7), size=(7, 7)),
            case(src=(1, 2, 8, 9), size=(2, 2), stride=(2, 2), autopad="SAME_UPPER"),
            case(src=(1, 2, 8, 9), size=(3, 2), stride=(3, 2), autopad="SAME_LOWER"),
            case(src=(1, 2, 8, 9), size=(3, 3), stride=(2, 3), padding=(1, 1, 1, 1), autopad="VALID"),
            case("f64", src=(1, 2, 5, 6), size=(3, 3), padding=(1, 1, 1, 1)),
        ]


@ln_op
class Maxpool2d(_Pool):
    """The maximum of each window; padding never wins (it is minus infinity). The maths are ONNX's MaxPool.

    ```mlir
    // %x : tensor<1x3x9x11xf32>
    %y = ln.maxpool2d %x {size = [3, 3], stride = [2, 2], padding = [1, 1, 1, 1]} : tensor<1x3x5x6xf32>
    ```
    """

    optype = "maxpool2d"
    definition = """
        dst[n, c, y, x] max= src[n, c, y * stride[0] + r - pad[0], x * stride[1] + q - pad[1] | lowest]
            for r < size[0], q < size[1]
    """

    @classmethod
    def derived(cls, t, p):
        return {
            **super().derived(t, p),
            "lowest": 0 if t.src.dtype.kind == "bool" else -np.inf,
        }  # as a bool, -inf is true

    def reference(self, src):
        kind = self.operand_specs[0].dtype.kind
        filler: Any = -np.inf if kind == "float" else False if kind == "bool" else int(np.iinfo(src.dtype).min)
        return largest(self.windows(src, filler), 0, filler)

    @classmethod
    def samples(cls):
        return [*super().samples(), case("i32", src=(1, 2, 5, 5), size=(2, 2), padding=(1, 0, 0, 1)),
                case("i1", src=(1, 2, 5, 5), size=(2, 2), padding=(1, 0, 0, 1))]  # fmt: skip


@ln_op
class Avgpool2d(_Pool):
    """The mean of the elements of each window that lie inside the picture. The maths are ONNX's AveragePool with
    `count_include_pad = 0`.

    ```mlir
    // %x : tensor<1x64x7x7xf32>
    %y = ln.avgpool2d %x {size = [7, 7]} : tensor<1x64x1x1xf32>
    ```
    """

    optype = "avgpool2d"
    src = operand(rank=4, dtypes=("f32", "f64", "f16", "bf16"))
    definition = """
        dst[n, c, y, x] += src[n, c, y * stride[0] + r - pad[0], x * stride[1] + q - pad[1] | 0]
            for r < size[0], q < size[1]
        dst[n, c, y, x] = dst[n, c, y, x]
            / ((min(y * stride[0] - pad[0] + size[0], src.dims[2]) - max(y * stride[0] - pad[0], 0))
             * (min(x * stride[1] - pad[1] + size[1], src.dims[3]) - max(x * stride[1] - pad[1], 0)))
    """

    def reference(self, src):
        inside = self.windows(np.ones(src.shape), 0).sum(axis=0)
        added = as_summed(total(self.windows(src.astype(np.float64), 0), 0), src.dtype)
        return (added / inside).astype(src.dtype)
