"""Pooling over any number of axes of [N, C, *S]: `maxpool`, `avgpool`, and `maxpool_index`, where each maximum stands.

What has two axes, no dilation, and padding that counts for nothing is better written as `maxpool2d` and `avgpool2d`,
which have kernels of their own.
"""

from __future__ import annotations

from math import prod

import numpy as np

from lightnet.dialects.ln.numeric import FLOATS, SHORT, as_summed, largest, total
from lightnet.dialects.ln.window import ceil_output_dim, result_of, window_result, windows_of
from lightnet.ir.op import LnOp, boolean, case, ln_op, numbers, operand, result
from lightnet.runtime.dims import is_never_below

_AXES = "src.ndim - 2"


class _PoolNd(LnOp):
    """The declarations of all. `padding` has what is added before each axis, then what is added behind. With `ceil`, a
    last window that begins inside may reach past the end.
    """

    src = operand(min_rank=3)
    dst = result()
    size = numbers("int", _AXES, ge=1)
    stride = numbers("int", _AXES, ge=1)
    dilation = numbers("int", _AXES, ge=1)
    padding = numbers("int", f"2 * ({_AXES})", ge=0)
    ceil = boolean(default=False)

    @classmethod
    def infer(cls, t, p):
        if not p.ceil:
            return [window_result(cls, t.src, t.src.dims[1], p.size, p.stride, p.padding, p.dilation, reads=True)]
        ends = p.padding[: len(p.size)], p.padding[len(p.size) :]
        out = map(ceil_output_dim, t.src.dims[2:], p.size, p.stride, *ends, p.dilation)
        return [result_of(cls, t.src, (*t.src.dims[:2], *out), reads=True)]

    def flops(self):
        return self.result_specs[0].len * prod(self.size)

    # -- parts of the definition

    def axes(self) -> range:
        """The numbers of the spatial axes."""
        return range(len(self.size))

    def out(self) -> str:
        """The subscripts of the result."""
        return ", ".join(["n", "c", *(f"y{i}" for i in self.axes())])

    def at(self) -> list[str]:
        """The spatial subscripts of the source."""
        return [f"y{i} * stride[{i}] + r{i} * dilation[{i}] - padding[{i}]" for i in self.axes()]

    def taps(self) -> str:
        """The ranges of the window's indices."""
        return ", ".join(f"r{i} < size[{i}]" for i in self.axes())

    def everywhere(self) -> str:
        """The ranges of all indices, for a local tensor."""
        places = ", ".join(f"y{i} < dst.dims[{i + 2}]" for i in self.axes())
        return f"n < src.dims[0], c < src.dims[1], {places}, {self.taps()}"

    # -- parts of the reference

    def windows(self, src: np.ndarray, filler: float) -> np.ndarray:
        """All windows of `src`: [taps, N, C, *out]."""
        axes, out = len(self.size), self.result_specs[0].dims[2:]
        reach = [(o - 1) * s + (k - 1) * d + 1 for o, s, k, d in zip(out, self.stride, self.size, self.dilation)]
        behind = [max(0, r - b - n) for r, b, n in zip(reach, self.padding, src.shape[2:])]
        x = np.pad(src, [(0, 0), (0, 0), *zip(self.padding[:axes], behind)], constant_values=filler)
        return windows_of(x, self.size, self.stride, self.dilation, out)

    @classmethod
    def samples(cls):
        def pool(kind, src, size, stride=None, dilation=None, padding=None, **p):
            ones = (1,) * len(size)
            return case(kind, src=src, size=size, stride=stride or ones, dilation=dilation or ones,
                        padding=padding or (0,) * 2 * len(size), **p)  # fmt: skip

        return [
            pool("f32", (1, 2, 5, 6, 7), (3, 2, 3), stride=(2, 1, 2), padding=(1, 1, 0, 1, 0, 2)),
            pool("f32", (1, 1, 1, 1, 1), (1, 1, 1)),
            pool("f32", (2, 3, 9, 11), (2, 3), dilation=(2, 3), padding=(1, 2, 1, 0)),
            pool("f32", (1, 2, 7, 8), (3, 2), stride=(2, 3), padding=(1, 0, 1, 1), ceil=True),
            pool("f32", (1, 3, 10), (3,), stride=(2,), ceil=True), pool("f64", (1, 2, 4, 17), (2, 2), stride=(3, 2)),
            *(pool(t, (1, 2, 4, 9), (3, 2), padding=(1, 0, 1, 1)) for t in SHORT),
            pool("f32", (1, 1, 3, 2, 3, 4), (2, 1, 2, 2), padding=(1, 0, 0, 0, 0, 0, 1, 1)),
        ]  # fmt: skip


def lowest(dtype) -> float | int:
    """The value that never wins a maximum."""
    return -np.inf if dtype.is_float else 0 if dtype.kind in ("bool", "uint") else int(np.iinfo(dtype.np).min)


@ln_op
class Maxpool(_PoolNd):
    """The maximum of each window; padding never wins, NaN does. The maths are ONNX's MaxPool.

    ```mlir
    // %x : tensor<1x2x4x5x6xf32>
    %y = ln.maxpool %x {size = [2, 2, 2], stride = [2, 2, 2], dilation = [1, 1, 1], padding = [0, 0, 0, 0, 0, 0]}
           : tensor<1x2x2x2x3xf32>
    ```
    """

    optype = "maxpool"

    @classmethod
    def derived(cls, t, p):
        return {"lowest": lowest(t.src.dtype)}

    @property
    def definition(self) -> str:
        return f"dst[{self.out()}] max= src[n, c, {', '.join(self.at())} | lowest] for {self.taps()}"

    def reference(self, src):
        filler = lowest(self.operand_specs[0].dtype)
        return largest(self.windows(src, filler), 0, filler)

    @classmethod
    def samples(cls):
        more = dict(size=(2, 2), stride=(1, 2), dilation=(1, 2), padding=(1, 0, 0, 1))
        return [*super().samples(), case("i32", src=(1, 2, 5, 5), **more), case("ui8", src=(1, 2, 5, 5), **more)]


@ln_op
class MaxpoolIndex(_PoolNd):
    """The row-major place in `src` where the first maximum of each window stands (a NaN is a maximum); the number of
    its elements for a window that lies in the padding alone. The maths are the second output of ONNX's MaxPool.

    ```mlir
    // %x : tensor<1x2x4x6xf32>
    %y = ln.maxpool_index %x {size = [2, 2], stride = [2, 2], dilation = [1, 1], padding = [0, 0, 0, 0]}
           : tensor<1x2x2x3xi64>
    ```
    """

    optype = "maxpool_index"
    dst = result(dtype="i64")

    @classmethod
    def derived(cls, t, p):
        return {"lowest": lowest(t.src.dtype)}

    @property
    def definition(self) -> str:
        """Positions grow in the order of the window, so the first maximum is that at the least position."""
        place, out = "n * src.dims[1] + c", self.out()
        for i, at in enumerate(self.at()):
            place = f"({place}) * src.dims[{i + 2}] + {at}"
        read = f"src[n, c, {', '.join(self.at())}]"
        inside = " && ".join(f"{at} >= 0 && {at} < src.dims[{i + 2}]" for i, at in enumerate(self.at()))
        return f"""
            top[{out}] max= src[n, c, {", ".join(self.at())} | lowest] for {self.everywhere()}
            dst[{out}] min= {inside} ? ({read} == top[{out}] || {read} != {read} ? {place} : src.len) : src.len
                for {self.taps()}
        """

    def reference(self, src):
        places = np.arange(src.size).reshape(src.shape)
        values, at = self.windows(src, lowest(self.operand_specs[0].dtype)), self.windows(places, -1)
        wins = ((values == values.max(axis=0)) | (values != values)) & (at >= 0)
        first = np.take_along_axis(at, wins.argmax(axis=0)[None], axis=0)[0]
        return np.where(wins.any(axis=0), first, src.size).astype(np.int64)

    @classmethod
    def samples(cls):
        more = dict(size=(2, 2), stride=(1, 2), dilation=(1, 2), padding=(1, 0, 0, 1))
        return [*super().samples(), case("ui8", src=(1, 2, 5, 5), **more)]


@ln_op
class Avgpool(_PoolNd):
    """The mean of each window: of what lies inside `src`, or, with `count_include_pad`, inside `src` and its padding.
    The maths are ONNX's AveragePool.

    ```mlir
    // %x : tensor<1x2x4x5x6xf32>
    %y = ln.avgpool %x {size = [2, 2, 2], stride = [2, 2, 2], dilation = [1, 1, 1], padding = [0, 0, 0, 0, 0, 0]}
           : tensor<1x2x2x2x3xf32>
    ```
    """

    optype = "avgpool"
    src = operand(min_rank=3, dtypes=FLOATS)
    count_include_pad = boolean(default=False)

    @property
    def definition(self) -> str:
        return f"""
            sum[{self.out()}] += src[n, c, {", ".join(self.at())} | 0] for {self.everywhere()}
            dst[{self.out()}] = sum[{self.out()}] / ({" * ".join(map(self.count, self.axes()))})
        """

    def count(self, i: int) -> str:
        """The number of a window's taps along an axis that count: the t in [0, size) with first <= begin + t * dilation
        < end.
        """
        size, n = self.size[i], self.operand_specs[0].dims[2 + i]
        before, behind = self.padding[i], self.padding[len(self.size) + i]
        begin = f"(y{i} * {self.stride[i]} - {before})"
        last = (self.result_specs[0].dims[2 + i] - 1) * self.stride[i] - before + (size - 1) * self.dilation[i]
        end = n + behind if self.count_include_pad else n
        step = self.dilation[i]
        most = str(size) if is_never_below(end - 1, last) else f"min({size}, ({end + step - 1} - {begin}) / {step})"
        if self.count_include_pad or not before:
            return most if most == str(size) else f"max({most}, 1)"
        return f"max({most} - (max(-{begin}, 0) + {step - 1}) / {step}, 1)"

    def reference(self, src):
        axes, out = len(self.size), self.result_specs[0].dims[2:]
        count = np.ones(out)
        for i in range(axes):
            before, behind = (self.padding[i], self.padding[axes + i]) if self.count_include_pad else (0, 0)
            at = (
                np.arange(out[i])[:, None] * self.stride[i]
                - self.padding[i]
                + np.arange(self.size[i]) * self.dilation[i]
            )
            inside = ((at >= -before) & (at < src.shape[2 + i] + behind)).sum(axis=1)
            count *= inside.reshape(-1, *(1,) * (axes - 1 - i))
        added = as_summed(total(self.windows(src.astype(np.float64), 0), 0), src.dtype)
        return (added / np.maximum(count, 1)).astype(src.dtype)

    @classmethod
    def samples(cls):
        own = super().samples()
        more = [case(**{**c.params, "count_include_pad": True}) for c in own if c.tensors[""].dtype.name == "f32"]
        return own + more
