"""Pictures sampled where other tensors say: `grid_sample` and `roi_align`."""

from __future__ import annotations

from itertools import product

import numpy as np
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import IndexType, i64
from xdsl.ir import SSAValue

from lightnet.dialects.ln.numeric import FLOATS, SHORT
from lightnet.ir.op import LnOp, boolean, case, ln_op, number, operand, result, string
from lightnet.ir.types import TensorSpec, storage_type
from lightnet.runtime.initial import sample

#: The free parameter of the cubic kernel (Keys 1981, equation 4).
CUBIC_A = -0.75


@ln_op
class GridSample(LnOp):
    """`src` [N, C, *S] at the points of `grid` [N, *Out, r], as [N, C, *Out]; r is the number of axes in S.

    A point has a coordinate for each axis, that of the last axis first. With `normalized`, -1 and 1 are the ends of an axis:
    the middles of its first and last elements with `align_corners`, else the outer edges of these; without, element i is at
    i. Outside of `src` there are zeros, the elements at the `border`, or its `reflection` (at the middles or edges that -1
    and 1 mean). Jaderberg et al., "Spatial Transformer Networks" (2015), section 3.3; ONNX's GridSample.

    ```mlir
    // %x : tensor<1x3x4x4xf32>, %grid : tensor<1x5x6x2xf32>
    %y = ln.grid_sample %x, %grid {mode = "linear", align_corners = true} : tensor<1x3x5x6xf32>
    ```
    """

    optype = "grid_sample"
    src = operand(min_rank=3, dtypes=FLOATS)
    grid = operand(min_rank=2, same_type="src")
    dst = result()
    mode = string("linear", "nearest", "cubic", default="linear")
    padding_mode = string("zeros", "border", "reflection", default="zeros")
    align_corners = boolean(default=False)
    normalized = boolean(default=True)
    checks = {
        "not-empty": "src.len > 0",
        "batch": "grid.dims[0] == src.dims[0]",
        "coordinates": "grid.dims[grid.ndim - 1] == src.ndim - 2",
    }

    @classmethod
    def infer(cls, t, p):
        return [TensorSpec((*t.src.dims[:2], *t.grid.dims[1:-1]), t.src.dtype)]

    def flops(self):
        taps = {"nearest": 1, "linear": 2, "cubic": 4}[self.mode]
        return self.result_specs[0].len * 3 * taps ** (self.operand_specs[0].ndim - 2)

    @property
    def definition(self) -> str:
        """The coordinates, the weights of the taps along each axis, and their sum."""
        sizes = self.operand_specs[0].dims[2:]
        lines: list[str] = []
        for k, size in enumerate(sizes):
            at = f"grid[n, o..., {len(sizes) - 1 - k}]"
            if self.normalized:
                at = f"({at} + 1) / 2 * {size - 1}" if self.align_corners else f"(({at} + 1) * {size} - 1) / 2"
            at = f"rint({at})" if self.mode == "nearest" else at
            # The elements of a cubic are clamped, not the point: its weights are those of a picture with a border.
            clamped = self.padding_mode == "border" and self.mode != "cubic"
            lines.append(f"p{k}[n, o...] = " + (f"clamp({at}, 0, {size - 1})" if clamped else at))
        if self.mode == "nearest":
            return "\n".join([*lines, f"dst[n, c, o...] = src[n, c, {', '.join(map(self.tap, range(len(sizes))))}]"])
        count = 2 if self.mode == "linear" else 4
        for k in range(len(sizes)):
            lines.append(f"f{k}[n, o...] = p{k}[n, o...] - floor(p{k}[n, o...])")
            *first, last = self.weights(f"f{k}[n, o...]")
            chosen = "".join(f"t == {t} ? {w} : " for t, w in enumerate(first)) + last
            lines.append(f"w{k}[n, o..., t] = {chosen} for t < {count}")
        weights = " * ".join(f"w{k}[n, o..., t{k}]" for k in range(len(sizes)))
        source = f"src[n, c, {', '.join(map(self.tap, range(len(sizes))))}]"
        ranges = ", ".join(f"t{k} < {count}" for k in range(len(sizes)))
        return "\n".join([*lines, f"dst[n, c, o...] += {weights} * {source} for {ranges}"])

    def weights(self, f: str) -> list[str]:
        """The weights of the elements around a point that is `f` behind an element."""
        if self.mode == "linear":
            return [f"1 - {f}", f]
        a = CUBIC_A
        near = [f"(({a + 2} * {x} - {a + 3}) * {x} * {x} + 1)" for x in (f, f"(1 - {f})")]
        far = [f"((({x} - 5) * {x} + 8) * {x} - 4) * ({a})" for x in (f"(1 + {f})", f"(2 - {f})")]
        return [far[0], *near, far[1]]

    def tap(self, k: int) -> str:
        """The subscript along axis `k`."""
        size = self.operand_specs[0].dims[2 + k]
        first = f"i64(floor(p{k}[n, o...]))"
        at = first if self.mode == "nearest" else f"{first} + t{k}" if self.mode == "linear" else f"{first} + t{k} - 1"
        if self.padding_mode == "border":
            return f"clamp({at}, 0, {size - 1})"
        if self.padding_mode == "zeros":
            return at + (" | 0" if k == self.operand_specs[0].ndim - 3 else "")
        period = 2 * (size - 1) if self.align_corners else 2 * size
        back = period if self.align_corners else period - 1
        return f"min(({at}) % {period}, {back} - ({at}) % {period})" if period else "0"

    def reference(self, src, grid):
        sizes, x = src.shape[2:], src.astype(np.float64)
        indices, weights = [], []
        for k, size in enumerate(sizes):
            index, weight = self.taps(grid.astype(np.float64)[..., len(sizes) - 1 - k], size)
            indices.append(index)
            weights.append(weight)
        batch = np.arange(len(src)).reshape(-1, *(1,) * (grid.ndim - 2))
        total = np.zeros(self.result_specs[0].dims)
        for tap in product(range(len(indices[0])), repeat=len(sizes)):
            at = tuple(indices[k][t] for k, t in enumerate(tap))
            inside = np.logical_and.reduce([(i >= 0) & (i < n) for i, n in zip(at, sizes)])
            clipped = tuple(np.clip(i, 0, n - 1) for i, n in zip(at, sizes))
            value = np.moveaxis(x[(batch, slice(None), *clipped)], -1, 1)
            weight = np.where(inside, np.prod([weights[k][t] for k, t in enumerate(tap)], axis=0), 0)
            total += weight[:, None] * value
        return total.astype(src.dtype)

    def taps(self, at: np.ndarray, size: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Indices and weights along one axis; an index outside counts as zero."""
        low, high = (0, size - 1) if self.align_corners else (-0.5, size - 0.5)
        if self.normalized:
            at = low + (at + 1) / 2 * (high - low)
        at = np.rint(at) if self.mode == "nearest" else at
        at = np.clip(at, 0, size - 1) if self.padding_mode == "border" and self.mode != "cubic" else at
        base = np.floor(at)
        if self.mode == "nearest":
            offsets = [0]
        else:
            offsets = [0, 1] if self.mode == "linear" else [-1, 0, 1, 2]
        found, weights = [], []
        for offset in offsets:
            distance = np.abs(at - base - offset)
            near = ((CUBIC_A + 2) * distance - (CUBIC_A + 3)) * distance**2 + 1
            far = CUBIC_A * (distance**3 - 5 * distance**2 + 8 * distance - 4)
            cubic = np.where(distance <= 1, near, far)
            weights.append({"nearest": np.ones_like(at), "linear": 1 - distance, "cubic": cubic}[self.mode])
            index = base + offset
            if self.padding_mode == "border":
                index = np.clip(index, 0, size - 1)
            elif self.padding_mode == "reflection":
                span = high - low
                index = low + np.abs((index - high) % (2 * span) - span) if span else np.zeros_like(index)
            found.append(np.rint(index).astype(np.int64))
        return found, weights

    @classmethod
    def sample_data(cls, name, kind, spec, tensors, params, seed):
        data = super().sample_data(name, kind, spec, tensors, params, seed)
        if name == "src":
            return data
        return (data * 1.5 if params.get("normalized", True) else data * 4 + 1).astype(data.dtype)

    @classmethod
    def samples(cls):
        def grid(src, out, kind="f32", **p):
            return case(kind, src=src, grid=(src[0], *out, len(src) - 2), **p)

        modes = product(("linear", "nearest", "cubic"), ("zeros", "border", "reflection"), (True, False))
        return [
            *(grid((2, 3, 4, 5), (3, 7), mode=m, padding_mode=q, align_corners=a) for m, q, a in modes),
            grid((1, 2, 3, 4, 5), (2, 3, 4)), grid((1, 2, 7), (5,), padding_mode="border"), grid((1, 1, 1, 1), (1, 1)),
            grid((1, 2, 5, 6), (9,), normalized=False), grid((1, 2, 5, 6), (2, 2, 3), normalized=False, mode="cubic"),
            grid((1, 2, 4, 4), (3, 3), kind="f64"),
            *(grid((1, 2, 4, 4), (3, 3), kind=t) for t in SHORT),
        ]  # fmt: skip


@ln_op
class RoiAlign(LnOp):
    """Regions of [N, C, H, W] as maps of one size [R, C, `height`, `width`]: each result is the mean (or, with `mode` max,
    the maximum of the weighted neighbours) of bilinear samples in its part of the region.

    A region of `rois` [R, 4] is x1, y1, x2, y2, times `scale`; `batch` [R] says which picture it is of. A part has
    `sampling_ratio` points along each axis or, where that is 0, as many as it has elements, rounded up. With `half_pixel`, element i is
    at i + 0.5, else at i, and a region is at least one element wide. He et al., "Mask R-CNN" (2017), section 3; ONNX's
    RoiAlign.

    ```mlir
    // %x : tensor<1x3x8x8xf32>, %rois : tensor<2x4xf32>, %batch : tensor<2xi64>
    %y = ln.roi_align %x, %rois, %batch {height = 4, width = 4, sampling_ratio = 2} : tensor<2x3x4x4xf32>
    ```
    """

    optype = "roi_align"
    has_builder = True
    src = operand(rank=4, dtypes=("f32", "f64"))
    rois = operand(rank=2, same_type="src")
    batch = operand(kind="index", rank=1, dtypes=("i64",))
    dst = result()
    height = number("int", ge=1)
    width = number("int", ge=1)
    sampling_ratio = number("int", ge=0, default=0)
    scale = number("float", gt=0, default=1.0)
    half_pixel = boolean(default=True)
    mode = string("avg", "max", default="avg")
    checks = {"not-empty": "src.len > 0", "corners": "rois.dims[1] == 4", "regions": "batch.len == rois.dims[0]"}

    @classmethod
    def infer(cls, t, p):
        return [TensorSpec((t.rois.dims[0], t.src.dims[1], p.height, p.width), t.src.dtype)]

    def flops(self):
        return 8 * self.result_specs[0].len * max(self.sampling_ratio, 2) ** 2

    # -- at the loop level

    def blocks(self):
        return self.operand_specs[1].dims[0]

    def build_loops(self, b, operands, results, workspace):
        maths = _Sampler(self, b, operands, results[0])
        with b.loop(b.lo, b.hi) as n:
            maths.region(n.iv)

    # -- in NumPy

    def reference(self, src, rois, batch):
        regions = rois.astype(np.float64) * self.scale - (0.5 if self.half_pixel else 0)
        out = np.zeros(self.result_specs[0].dims)
        for n, (x1, y1, x2, y2) in enumerate(regions):
            picture = src[np.clip(batch[n], 0, len(src) - 1)].astype(np.float64)
            rows = self.points(y1, y2, self.height, src.shape[2])
            columns = self.points(x1, x2, self.width, src.shape[3])
            corners = [
                (wy[..., None, None] * wx)[None] * picture[:, iy][..., ix]
                for iy, wy in rows for ix, wx in columns
            ]  # fmt: skip
            if self.mode == "max":
                values = np.max(corners, axis=0)
                out[n] = values.max(axis=(2, 4), initial=-np.inf) if values.size else 0
            elif corners[0].size:
                out[n] = np.sum(corners, axis=0).mean(axis=(2, 4))
        return out.astype(src.dtype)

    def points(self, low: float, high: float, parts: int, size: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Indices and weights [parts, points] of the two elements around each point of an axis."""
        length = high - low if self.half_pixel else max(high - low, 1)
        step = length / parts
        count = self.sampling_ratio or int(np.clip(np.ceil(step), 0, MAX_POINTS))
        at = low + np.arange(parts)[:, None] * step + (np.arange(count) + 0.5) * step / max(count, 1)
        inside = (at >= -1) & (at <= size)
        at = np.clip(at, 0, size - 1)
        first = np.floor(at).astype(int)
        part = at - first
        return [(first, inside * (1 - part)), (np.minimum(first + 1, size - 1), inside * part)]

    @classmethod
    def sample_data(cls, name, kind, spec, tensors, params, seed):
        if name == "batch":
            return sample(name, kind, spec.dims, spec.dtype, seed=seed, bound=tensors["src"].dims[0])
        data = super().sample_data(name, kind, spec, tensors, params, seed)
        if name == "rois":  # corners of regions, some of which reach outside
            low, length = data[:, :2] * 3 + 2, (data[:, 2:] + 1) * 3 + 0.1
            data = np.concatenate([low, low + length], axis=1).astype(data.dtype)
        return data

    @classmethod
    def samples(cls):
        def align(kind, src, regions, height, width, **p):
            return case(kind, src=src, rois=(regions, 4), batch=((regions,), "i64"), height=height, width=width, **p)

        return [
            align("f32", (2, 3, 8, 9), 5, 3, 2, sampling_ratio=2), align("f32", (1, 2, 7, 7), 3, 2, 3, half_pixel=False),
            align("f32", (1, 1, 1, 1), 1, 1, 1), align("f32", (2, 2, 6, 5), 4, 2, 2, mode="max", scale=0.5),
            align("f64", (1, 2, 6, 6), 2, 5, 1, sampling_ratio=3, scale=2.0, mode="max"),
        ]  # fmt: skip


#: Points along an axis of one part of a region: a region so large is a mistake, and must not take forever.
MAX_POINTS = 1024


class _Sampler:
    """`roi_align` at the loop level: for each region, part and point, weights and offsets once for all channels."""

    def __init__(self, op: RoiAlign, b, operands, target):
        self.op, self.b, self.target = op, b, target
        self.src, self.rois, self.batch = operands
        self.element = storage_type(op.operand_specs[0].dtype)
        self.pictures, self.channels, *self.size = op.operand_specs[0].dims

    def number(self, value: float) -> SSAValue:
        return self.b.const(float(value), self.element)

    def choose(self, predicate: str, x: SSAValue, y: SSAValue, then: SSAValue, other: SSAValue) -> SSAValue:
        return self.b.select(self.b.cmpf(predicate, x, y), then, other)

    def to_index(self, x: SSAValue) -> SSAValue:
        return self.b.op(arith.IndexCastOp, self.b.op(arith.FPToSIOp, x, type=i64), type=IndexType())

    def to_float(self, x: SSAValue) -> SSAValue:
        return self.b.op(arith.SIToFPOp, self.b.op(arith.IndexCastOp, x, type=i64), type=self.element)

    def region(self, n: SSAValue) -> None:
        b, op = self.b, self.op
        picture = b.op(arith.IndexCastOp, b.load(self.batch, [n]), type=IndexType())
        picture = b.op(arith.MinSIOp, b.op(arith.MaxSIOp, picture, b.index(0)), b.index(self.pictures - 1))
        corners = []
        for k in range(4):
            value = b.op(arith.MulfOp, b.load(self.rois, [b.add(b.mul(n, 4), k)]), self.number(op.scale))
            corners.append(b.op(arith.SubfOp, value, self.number(0.5 if op.half_pixel else 0)))
        rows = self.axis(corners[1], corners[3], op.height)
        columns = self.axis(corners[0], corners[2], op.width)
        with b.loop(0, op.height) as y, b.loop(0, op.width) as x:
            self.part(n, picture, rows, columns, y.iv, x.iv)

    def axis(self, low: SSAValue, high: SSAValue, parts: int) -> tuple[SSAValue, SSAValue, SSAValue]:
        """Start, length of a part, and number of points."""
        b, op = self.b, self.op
        length = b.op(arith.SubfOp, high, low)
        if not op.half_pixel:
            length = b.op(arith.MaximumfOp, length, self.number(1))
        step = b.op(arith.DivfOp, length, self.number(parts))
        if op.sampling_ratio:
            return low, step, b.index(op.sampling_ratio)
        count, zero, most = b.op(math.CeilOp, step), self.number(0), self.number(MAX_POINTS)
        count = self.choose("ogt", count, zero, count, zero)
        return low, step, self.to_index(self.choose("olt", count, most, count, most))

    def part(self, n, picture, rows, columns, y, x) -> None:
        """One element of the result for each channel."""
        b, op = self.b, self.op
        start = self.number(float("-inf") if op.mode == "max" else 0)
        area = op.height * op.width
        base = b.add(b.mul(n, self.channels * area), b.add(b.mul(y, op.width), x))
        with b.loop(0, self.channels) as c:
            b.store(start, self.target, [b.add(base, b.mul(c.iv, area))])
        with b.loop(0, rows[2]) as i:
            tops = self.point(rows, y, i.iv, self.size[0])
            with b.loop(0, columns[2]) as j:
                self.add_point(picture, base, tops, self.point(columns, x, j.iv, self.size[1]))
        points = b.mul(rows[2], columns[2])
        some = b.cmpi("sgt", points, b.index(0))
        count = self.to_float(b.op(arith.MaxSIOp, points, b.index(1)))
        with b.loop(0, self.channels) as c:
            at = b.add(base, b.mul(c.iv, area))
            value = b.load(self.target, [at])
            value = value if op.mode == "max" else b.op(arith.DivfOp, value, count)
            b.store(b.select(some, value, self.number(0)), self.target, [at])

    def point(self, axis, part: SSAValue, i: SSAValue, size: int) -> list[tuple[SSAValue, SSAValue]]:
        """Index and weight of the elements around point `i` of a part; a point outside weighs nothing."""
        b, (low, step, count) = self.b, axis
        zero, one, last = self.number(0), self.number(1), self.number(size - 1)
        share = b.op(arith.DivfOp, b.op(arith.AddfOp, self.to_float(i), self.number(0.5)), self.to_float(count))
        at = b.op(arith.AddfOp, low, b.op(arith.MulfOp, b.op(arith.AddfOp, self.to_float(part), share), step))
        above, below = b.cmpf("oge", at, self.number(-1)), b.cmpf("ole", at, self.number(size))
        inside = b.select(b.op(arith.AndIOp, above, below), one, zero)
        at = self.choose("ogt", at, zero, at, zero)
        at = self.choose("olt", at, last, at, last)
        first = self.to_index(at)
        rest = b.op(arith.SubfOp, at, self.to_float(first))
        second = b.op(arith.MinSIOp, b.add(first, 1), b.index(size - 1))
        return [
            (first, b.op(arith.MulfOp, inside, b.op(arith.SubfOp, one, rest))),
            (second, b.op(arith.MulfOp, inside, rest)),
        ]

    def add_point(self, picture, base, tops, lefts) -> None:
        """Add (or take the maximum of) the weighted neighbours of a point, channel by channel."""
        b, op, (height, width) = self.b, self.op, self.size
        area = op.height * op.width
        corners = [(b.add(b.mul(iy, width), ix), b.op(arith.MulfOp, wy, wx)) for iy, wy in tops for ix, wx in lefts]
        first = b.mul(picture, self.channels * height * width)
        with b.loop(0, self.channels) as c:
            at = b.add(base, b.mul(c.iv, area))
            plane = b.add(first, b.mul(c.iv, height * width))
            total = b.load(self.target, [at])
            for offset, weight in corners:
                value = b.op(arith.MulfOp, weight, b.load(self.src, [b.add(plane, offset)]))
                total = b.op(arith.MaximumfOp if op.mode == "max" else arith.AddfOp, total, value)
            b.store(total, self.target, [at])


OPS = (GridSample, RoiAlign)
