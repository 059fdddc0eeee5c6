"""Random convolutional networks of f32 maps, for the passes that choose layouts: convolutions of every kind, pools, concatenations,
slices, channel shuffles, residual sums, resizes and heads, with channels that fill blocks and channels that do not."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
from networks import Network
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from lightnet.dialects.ln.dialect import optypes
from lightnet.ir.constraints import check_op
from lightnet.ir.types import TensorSpec, spec_of
from lightnet.runtime.dtypes import BY_NAME

F32 = BY_NAME["f32"]
OPS = optypes()
#: Sums of so many products at most, and results of so many elements, so that references take milliseconds.
MAX_WORK, MAX_ELEMENTS = 3_000_000, 40_000
CHANNELS = (16, 32, 48, 16, 32, 3, 5, 8, 17, 24, 40)


def random_network(seed: int, ops: int = 12) -> tuple[ModuleOp, dict[str, np.ndarray]]:
    """A level-1 module with about `ops` ops, and data for all its sources, by name."""
    maker = _Maker(random.Random(seed))
    for _ in range(ops):
        maker.step()
    maker.heads()
    return maker.net.module(), maker.net.feeds


class _Maker:
    def __init__(self, rng: random.Random):
        self.rng, self.net = rng, Network()
        batch = rng.choice((1, 1, 1, 2))
        size = rng.choice((5, 7, 8, 13, 16)), rng.choice((1, 6, 7, 9, 16, 20))
        self.maps = [self.source((batch, rng.choice(CHANNELS), *size), "data")]
        if rng.random() < 0.3:  # another picture, and a map that is a param
            self.maps.append(self.source(self.dims(self.maps[0]), rng.choice(("data", "weight"))))

    def dims(self, value: SSAValue) -> tuple[int, ...]:
        return spec_of(value.type).dims

    def source(self, dims: tuple[int, ...], kind: str) -> SSAValue:
        return self.net.source(TensorSpec(dims, F32), kind)

    def op(self, optype: str, operands: list[SSAValue], **params: Any) -> SSAValue:
        """Add an op; its first result."""
        self.net.add(OPS[optype], operands, params)
        return self.net.block.last_op.results[0]

    def step(self) -> None:
        x = self.rng.choice(self.maps[-4:])
        kind: Callable[[SSAValue], SSAValue | None] = self.rng.choice(
            (self.conv, self.conv, self.conv, self.depthwise, self.grouped, self.deconv, self.pool, self.activation, self.activation,
             self.residual, self.residual, self.concat, self.slice, self.shuffle, self.resize, self.scale, self.reuse)
        )  # fmt: skip
        if (made := kind(x)) is not None:
            self.maps.append(made)

    def window(self, x: SSAValue) -> dict[str, Any] | None:
        """A window with stride, dilation and padding, that x has room for."""
        rng, (_, _, h, w) = self.rng, self.dims(x)
        size = rng.choice(((3, 3), (3, 3), (1, 1), (1, 1), (5, 5), (1, 3), (3, 1), (2, 2), (7, 7)))
        dilation = rng.choice(((1, 1), (1, 1), (1, 1), (2, 2), (1, 2)))
        reach = [d * (s - 1) for s, d in zip(size, dilation)]
        padding = tuple(rng.choice((0, r // 2, r // 2, r)) for r in reach)
        padding = (*padding, *padding) if rng.random() < 0.7 else (0, padding[1], padding[0], 0)
        if h + padding[0] + padding[2] <= reach[0] or w + padding[1] + padding[3] <= reach[1]:
            return None
        return {
            "size": size,
            "stride": rng.choice(((1, 1), (1, 1), (2, 2), (1, 2))),
            "dilation": dilation,
            "padding": padding,
        }

    def fits(self, optype: str, operands: list[SSAValue], params: dict[str, Any], depth: int) -> bool:
        """Whether the op is small enough."""
        dims = check_op(OPS[optype], [spec_of(v.type) for v in operands], dict(params))[0].dims
        count = int(np.prod(dims))
        return 0 < count <= MAX_ELEMENTS and count * depth <= MAX_WORK

    def convolution(self, x: SSAValue, out: int, group: int) -> SSAValue | None:
        if (params := self.window(x)) is None:
            return None
        depth = self.dims(x)[1] // group
        w, b = self.source((out, depth, *params["size"]), "weight"), self.source((out,), "bias")
        params["group"] = group
        if not self.fits("conv2d", [x, w, b], params, depth * params["size"][0] * params["size"][1]):
            return None
        return self.op("conv2d", [x, w, b], **params)

    def conv(self, x: SSAValue) -> SSAValue | None:
        return self.convolution(x, self.rng.choice(CHANNELS), 1)

    def depthwise(self, x: SSAValue) -> SSAValue | None:
        channels = self.dims(x)[1]
        return self.convolution(x, channels * self.rng.choice((1, 1, 1, 2)), channels)

    def grouped(self, x: SSAValue) -> SSAValue | None:
        group = self.rng.choice([g for g in (2, 3, 4) if self.dims(x)[1] % g == 0] or [1])
        return self.convolution(x, group * self.rng.choice((8, 16, 5)), group)

    def deconv(self, x: SSAValue) -> SSAValue | None:
        size, stride = self.rng.choice(((2, 2), (3, 2), (4, 2), (3, 1)))
        out = self.rng.choice(CHANNELS[:6])
        operands = [x, self.source((self.dims(x)[1], out, size, size), "weight"), self.source((out,), "bias")]
        params = {"size": (size, size), "stride": (stride, stride), "padding": (self.rng.choice((0, 1)),) * 4}
        if min(self.dims(x)[2:]) < 2 or not self.fits("deconv2d", operands, params, self.dims(x)[1] * 4):
            return None
        return self.op("deconv2d", operands, **params)

    def pool(self, x: SSAValue) -> SSAValue | None:
        size, stride = self.rng.choice(((2, 2), (3, 2), (3, 1)))
        pad = self.rng.choice((0, size // 2))
        if min(self.dims(x)[2:]) + 2 * pad < size:
            return None
        kind = self.rng.choice(("maxpool2d", "avgpool2d"))
        return self.op(kind, [x], size=(size, size), stride=(stride, stride), padding=(pad,) * 4)

    def activation(self, x: SSAValue) -> SSAValue | None:
        kind = self.rng.choice(("relu", "relu", "lrelu", "sigmoid", "tanh", "exp"))
        if kind == "exp":
            x = self.op("sigmoid", [x])
        return self.op(kind, [x], **({"negslope": 0.1} if kind == "lrelu" else {}))

    def residual(self, x: SSAValue) -> SSAValue | None:
        alike = [v for v in self.maps if self.dims(v) == self.dims(x)]
        return self.op("elew", [x, self.rng.choice(alike)], elew_op=self.rng.choice(("TL_SUM", "TL_MAX", "TL_SUB")))

    def concat(self, x: SSAValue) -> SSAValue | None:
        n, _, h, w = self.dims(x)
        alike = [v for v in self.maps if (self.dims(v)[0], *self.dims(v)[2:]) == (n, h, w)]
        parts = [x, *(self.rng.choice(alike) for _ in range(self.rng.choice((1, 1, 2))))]
        if sum(self.dims(v)[1] for v in parts) > 160:
            return None
        return self.op("concat", parts, axis=1)

    def slice(self, x: SSAValue) -> SSAValue | None:
        axis = self.rng.choice((1, 1, 1, 2))
        extent = self.dims(x)[axis]
        start = self.rng.choice([s for s in (0, 16, 32, 3) if s < extent])
        length = self.rng.choice([n for n in (16, 32, 8, 1, extent - start) if start + n <= extent])
        return self.op("slice", [x], axis=axis, start=start, len=length)

    def shuffle(self, x: SSAValue) -> SSAValue | None:
        n, c, h, w = self.dims(x)
        group = self.rng.choice([g for g in (2, 3, 4) if c % g == 0] or [1])
        split = self.op("reshape", [x], dims=(n, group, c // group, h, w))
        turned = self.op("transpose", [split], axes=(0, 2, 1, 3, 4))
        return self.op("reshape", [turned], dims=(n, c, h, w))

    def resize(self, x: SSAValue) -> SSAValue | None:
        if int(np.prod(self.dims(x))) * 4 > MAX_ELEMENTS:
            return None
        return self.op("upsample", [x], scales=(1, 1, 2, 2))

    def scale(self, x: SSAValue) -> SSAValue | None:
        """Squeeze and excite: a map of one pixel times the map."""
        one = self.op("reduce_mean", [x], axes=(2, 3))
        channels = self.dims(x)[1]
        one = self.op(
            "conv2d",
            [one, self.source((channels, channels, 1, 1), "weight"), self.source((channels,), "bias")],
            size=(1, 1),
        )
        gate = self.op("sigmoid", [one])
        return self.op("mul", [x, gate])

    def reuse(self, x: SSAValue) -> SSAValue | None:
        """Something that reads the map plain."""
        return self.op("transpose", [self.op("transpose", [x], axes=(0, 2, 3, 1))], axes=(0, 3, 1, 2))

    def heads(self) -> None:
        x = self.rng.choice(self.maps)
        mean = self.op("reduce_mean", [x], axes=(2, 3))
        n, channels = self.dims(x)[:2]
        flat = self.op("reshape", [mean], dims=(n, channels))
        self.op("softmax", [self.op("matmul", [flat, self.source((channels, 10), "weight")])], axis=1)
