"""Regions of pictures as maps of one size: `roi_align` and `roi_pool`."""

from __future__ import annotations

import numpy as np
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import IndexType
from xdsl.ir import SSAValue

from lightnet.dialects.ln.gates import Scalars
from lightnet.ir.op import LnOp, boolean, case, ln_op, number, operand, result, string
from lightnet.ir.types import storage_type
from lightnet.runtime.initial import sample


class _Regions(LnOp):
    """The base of ops that make maps of one size out of regions of pictures."""

    has_builder = True
    src = operand(rank=4, dtypes=("f32", "f64"))
    rois = operand(rank=2, same_type="src")
    batch = operand(kind="index", rank=1, dtypes=("i64",))
    dst = result(dims="[rois.dims[0], src.dims[1], height, width]")
    height = number("int", ge=1)
    width = number("int", ge=1)
    checks = {"corners": "rois.dims[1] == 4", "regions": "batch.len == rois.dims[0]"}
    picks = "[src.dims[0], src.dims[2:4]]"


@ln_op
class RoiAlign(_Regions):
    """Regions of [N, C, H, W] as maps of one size [R, C, `height`, `width`]: each result is the mean (or, with `mode`
    max, the maximum of the weighted neighbours) of bilinear samples in its part of the region.

    A region of `rois` [R, 4] is x1, y1, x2, y2, times `scale`; `batch` [R] says which picture it is of; one of a
    picture below 0 is 0. A part has `sampling_ratio` points along each axis or, where that is 0, as many as it has
    elements, rounded up. What is computed with coordinates is computed in their type. With `half_pixel`, element i is
    at i + 0.5, else at i, and a region is at least one element wide. He et al., "Mask R-CNN" (2017), section 3; ONNX's
    RoiAlign.

    ```mlir
    // %x : tensor<1x3x8x8xf32>, %rois : tensor<2x4xf32>, %batch : tensor<2xi64>
    %y = ln.roi_align %x, %rois, %batch {height = 4, width = 4, sampling_ratio = 2} : tensor<2x3x4x4xf32>
    ```
    """

    optype = "roi_align"
    sampling_ratio = number("int", ge=0, default=0)
    scale = number("float", gt=0, default=1.0)
    half_pixel = boolean(default=True)
    mode = string("avg", "max", default="avg")

    @property
    def index(self):
        """The pictures, which `check-indices` looks at."""
        return self.batch

    def index_limits(self):
        return [self.operand_specs[0].dims[0]]

    def flops(self):
        return 8 * self.result_specs[0].len * max(self.sampling_ratio, 2) ** 2

    # -- at the loop level

    def blocks(self):
        return self.operand_specs[1].dims[0]

    def build_loops(self, b, operands, results, workspace):
        maths = _Sampler(self, b, operands, results[0])
        with b.loop(b.lo, b.hi, name="n") as n:
            maths.region(n.iv)

    # -- in NumPy

    def reference(self, src, rois, batch):
        regions = rois * rois.dtype.type(self.scale) - rois.dtype.type(0.5 if self.half_pixel else 0)
        out = np.zeros(self.result_specs[0].dims)
        for n, (x1, y1, x2, y2) in enumerate(regions):
            if batch[n] < 0:
                continue
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

    def points(self, low: np.floating, high: np.floating, parts: int, size: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Indices and weights [parts, points] of the two elements around each point of an axis."""
        kind = type(low)
        length = high - low if self.half_pixel else np.maximum(high - low, kind(1))
        step = length / kind(parts)
        count = self.sampling_ratio or int(np.clip(np.nan_to_num(np.ceil(step)), 0, MAX_POINTS))
        share = (np.arange(count).astype(kind) + kind(0.5)) / kind(max(count, 1))
        at = low + (np.arange(parts).astype(kind)[:, None] + share) * step
        inside = (at >= -1) & (at <= size)
        at = np.clip(np.where(inside, at, kind(0)), 0, size - 1).astype(np.float64)
        first = np.floor(at).astype(int)
        part = at - first
        return [(first, inside * (1 - part)), (np.minimum(first + 1, size - 1), inside * part)]

    @classmethod
    def sample_data(cls, name, kind, spec, tensors, params, seed):
        if name == "batch":
            drawn = sample(name, kind, spec.dims, spec.dtype, seed=seed, bound=tensors["src"].dims[0])
            return np.where(np.arange(len(drawn)) == 4, -1, drawn)  # one of no picture
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
            align("f32", (2, 3, 8, 9), 5, 3, 2, sampling_ratio=2),
            align("f32", (1, 2, 7, 7), 3, 2, 3, half_pixel=False),
            align("f32", (1, 1, 1, 1), 1, 1, 1), align("f32", (2, 2, 6, 5), 4, 2, 2, mode="max", scale=0.5),
            align("f64", (1, 2, 6, 6), 2, 5, 1, sampling_ratio=3, scale=2.0, mode="max"),
        ]  # fmt: skip


#: Points along an axis of one part of a region: a region so large is a mistake, and must not take forever.
MAX_POINTS = 1024
#: Points along an axis of a part that are added up at once.
MAX_UNROLLED = 3


class _Sampler(Scalars):
    """`roi_align` at the loop level: for each region, part and point, weights and offsets once for all channels."""

    def __init__(self, op: RoiAlign, b, operands, target):
        super().__init__(b, storage_type(op.operand_specs[0].dtype))
        self.roi, self.target = op, target
        self.src, self.rois, self.batch = operands
        self.pictures, self.channels, *self.size = op.operand_specs[0].dims

    def region(self, n: SSAValue) -> None:
        b, op = self.b, self.roi
        given = b.op(arith.IndexCastOp, b.load(self.batch, [n]), type=IndexType())
        is_there = b.cmpi("sge", given, b.index(0))
        picture = self.within(given, 0, self.pictures - 1)
        corners = []
        for k in range(4):
            value = b.op(arith.MulfOp, b.load(self.rois, [b.add(b.mul(n, 4), k)]), self.number(op.scale))
            corners.append(b.op(arith.SubfOp, value, self.number(0.5 if op.half_pixel else 0)))
        rows = self.axis(corners[1], corners[3], op.height)
        columns = self.axis(corners[0], corners[2], op.width)
        few = 0 < op.sampling_ratio <= MAX_UNROLLED
        with b.when(is_there), b.loop(0, op.height, name="y") as y, b.loop(0, op.width, name="x") as x:
            (self.part_of_few if few else self.part)(n, picture, rows, columns, y.iv, x.iv)
        size = self.channels * op.height * op.width
        with b.when(b.cmpi("slt", given, b.index(0))), b.loop(0, size) as i:
            b.store(self.number(0), self.target, [b.add(b.mul(n, size), i.iv)])

    def axis(self, low: SSAValue, high: SSAValue, parts: int) -> tuple[SSAValue, SSAValue, SSAValue]:
        """Start, length of a part, and number of points."""
        b, op = self.b, self.roi
        length = b.op(arith.SubfOp, high, low)
        if not op.half_pixel:
            length = b.op(arith.MaximumfOp, length, self.number(1))
        step = b.op(arith.DivfOp, length, self.number(parts))
        if op.sampling_ratio:
            return low, step, b.index(op.sampling_ratio)
        count, zero, most = b.op(math.CeilOp, step), self.number(0), self.number(MAX_POINTS)
        count = self.choose("ogt", count, zero, count, zero)
        return low, step, self.to_index(self.choose("olt", count, most, count, most))

    def part_of_few(self, n, picture, rows, columns, y, x) -> None:
        """One element of the result for each channel, where the points are so few that their sum stays in a
        register."""
        b, op, count = self.b, self.roi, self.roi.sampling_ratio
        corners = []
        for i in range(count):
            tops = self.point(rows, y, b.index(i), self.size[0])
            for j in range(count):
                corners += self.corners(tops, self.point(columns, x, b.index(j), self.size[1]))
        area, plane = op.height * op.width, self.size[0] * self.size[1]
        base = b.add(b.mul(n, self.channels * area), b.add(b.mul(y, op.width), x))
        first = b.mul(picture, self.channels * plane)
        with b.loop(0, self.channels, name="c") as c:
            at = b.add(first, b.mul(c.iv, plane))
            total = self.weighted(corners, at, self.number(float("-inf") if op.mode == "max" else 0))
            if op.mode == "avg":
                total = b.op(arith.DivfOp, total, self.number(count * count))
            b.store(total, self.target, [b.add(base, b.mul(c.iv, area))])

    def part(self, n, picture, rows, columns, y, x) -> None:
        """One element of the result for each channel."""
        b, op = self.b, self.roi
        start = self.number(float("-inf") if op.mode == "max" else 0)
        area = op.height * op.width
        base = b.add(b.mul(n, self.channels * area), b.add(b.mul(y, op.width), x))
        with b.loop(0, self.channels, name="c") as c:
            b.store(start, self.target, [b.add(base, b.mul(c.iv, area))])
        with b.loop(0, rows[2]) as i:
            tops = self.point(rows, y, i.iv, self.size[0])
            with b.loop(0, columns[2], name="j") as j:
                self.add_point(picture, base, tops, self.point(columns, x, j.iv, self.size[1]))
        points = b.mul(rows[2], columns[2])
        some = b.cmpi("sgt", points, b.index(0))
        count = self.to_float(b.op(arith.MaxSIOp, points, b.index(1)))
        with b.loop(0, self.channels, name="c") as c:
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
        b, op, (height, width) = self.b, self.roi, self.size
        area = op.height * op.width
        corners = self.corners(tops, lefts)
        first = b.mul(picture, self.channels * height * width)
        with b.loop(0, self.channels, name="c") as c:
            at = b.add(base, b.mul(c.iv, area))
            plane = b.add(first, b.mul(c.iv, height * width))
            b.store(self.weighted(corners, plane, b.load(self.target, [at])), self.target, [at])

    def corners(self, tops, lefts) -> list[tuple[SSAValue, SSAValue]]:
        """Place in its plane, and weight, of each neighbour of a point."""
        b, width = self.b, self.size[1]
        return [(b.add(b.mul(iy, width), ix), b.op(arith.MulfOp, wy, wx)) for iy, wy in tops for ix, wx in lefts]

    def weighted(self, corners, plane: SSAValue, total: SSAValue) -> SSAValue:
        """`total` and the weighted neighbours in a plane: added, or the largest."""
        b = self.b
        for offset, weight in corners:
            value = b.op(arith.MulfOp, weight, b.load(self.src, [b.add(plane, offset)]))
            total = b.op(arith.MaximumfOp if self.roi.mode == "max" else arith.AddfOp, total, value)
        return total


#: Coordinates are limited to this before they become integers: far beyond any map, and exact in every float type.
FAR = 1 << 20


@ln_op
class RoiPool(_Regions):
    """Regions of [N, C, H, W] as maps of one size [R, C, `height`, `width`]: each result is the maximum of the elements
    in its part of the region, or 0 where no element is in it.

    A region of `rois` [R, 4] is x1, y1, x2, y2, times `scale`, each rounded to the nearest element (halves away from
    0); both ends belong to it, and it has at least one element. `batch` [R] says which picture it is of; of no picture,
    its results are 0. Part i of n of a region of L elements is those from floor(i * L / n) to ceil((i + 1) * L / n),
    the end left out: parts may share elements. What is computed with coordinates is computed in their type. Girshick,
    "Fast R-CNN" (2015), section 2.1; ONNX's MaxRoiPool.

    ```mlir
    // %x : tensor<1x3x8x8xf32>, %rois : tensor<2x4xf32>, %batch : tensor<2xi64>
    %y = ln.roi_pool %x, %rois, %batch {height = 4, width = 4, scale = 0.5} : tensor<2x3x4x4xf32>
    ```
    """

    optype = "roi_pool"
    scale = number("float", gt=0, default=1.0)

    def flops(self):
        pictures, _, height, width = self.operand_specs[0].dims
        return self.result_specs[0].len * (1 + height * width // (self.height * self.width)) if pictures else 0

    def blocks(self):
        return self.operand_specs[1].dims[0] * self.operand_specs[0].dims[1]  # maps of one channel

    def build_loops(self, b, operands, results, workspace):
        if not self.operand_specs[0].len:
            with b.loop(b.mul(b.lo, self.height * self.width), b.mul(b.hi, self.height * self.width)) as i:
                b.store(b.const(0.0, storage_type(self.result_specs[0].dtype)), results[0], [i.iv])
            return
        maths = _Pooler(self, b, operands, results[0])
        with b.loop(b.lo, b.hi, name="block") as block:
            maths.plane(block.iv)

    def reference(self, src, rois, batch):
        pictures, channels, rows, columns = src.shape
        out = np.zeros(self.result_specs[0].dims, src.dtype)
        corners = np.nan_to_num(rois * src.dtype.type(self.scale), nan=-FAR)
        size = np.abs(corners)
        size = np.floor(size) + (size - np.floor(size) >= 0.5)
        corners = np.clip(np.copysign(size, corners), -FAR, FAR).astype(np.int64)
        for n in np.flatnonzero((batch >= 0) & (batch < pictures)):
            x1, y1, x2, y2 = corners[n]
            tall, wide = self.parts(y1, y2, self.height, rows), self.parts(x1, x2, self.width, columns)
            for i, (top, bottom) in enumerate(tall):
                for j, (left, right) in enumerate(wide):
                    part = src[batch[n], :, top:bottom, left:right].reshape(channels, -1)
                    if part.size:  # as the maximum of a comparison has it: what is no number is never the largest
                        lowest = np.finfo(src.dtype).min
                        out[n, :, i, j] = np.where(part > lowest, part, lowest).max(axis=1)
        return out

    def parts(self, first: int, last: int, count: int, size: int) -> list[tuple[int, int]]:
        """The begin and end of each of `count` parts of an axis of `size` elements."""
        kind = self.operand_specs[0].dtype.np.type
        step = kind(max(last - first + 1, 1)) / kind(count)
        found = []
        for k in range(count):
            begin, end = int(np.floor(kind(k) * step)) + first, int(np.ceil(kind(k + 1) * step)) + first
            found.append((min(max(begin, 0), size), min(max(end, 0), size)))
        return found

    @classmethod
    def sample_data(cls, name, kind, spec, tensors, params, seed):
        if name == "batch":
            return sample(name, kind, spec.dims, spec.dtype, seed=seed, bound=max(tensors["src"].dims[0], 1))
        data = super().sample_data(name, kind, spec, tensors, params, seed)
        if name == "rois":  # corners, some of which lie outside, some the wrong way round
            low, length = np.round(data[:, :2] * 8 + 6) / 2, data[:, 2:] * 4 + 3  # with halves, which are rounded
            data = np.concatenate([low, low + length], axis=1).astype(data.dtype)
        return data

    @classmethod
    def samples(cls):
        def pool(kind, src, regions, height, width, **p):
            return case(kind, src=src, rois=(regions, 4), batch=((regions,), "i64"), height=height, width=width, **p)

        return [
            pool("f32", (2, 3, 8, 9), 7, 3, 2), pool("f32", (1, 2, 7, 7), 5, 2, 3, scale=0.5),
            pool("f32", (1, 1, 1, 1), 1, 1, 1),
            pool("f64", (2, 2, 6, 5), 4, 7, 5, scale=1.7), pool("f32", (1, 5, 17, 1), 3, 1, 4),
        ]  # fmt: skip


class _Pooler(Scalars):
    """`roi_pool` at the loop level."""

    def __init__(self, op: RoiPool, b, operands, target):
        super().__init__(b, storage_type(op.operand_specs[0].dtype))
        self.roi, self.target = op, target
        self.src, self.rois, self.batch = operands
        self.lowest = float(np.finfo(op.operand_specs[0].dtype.np).min)
        self.pictures, self.channels, *self.size = op.operand_specs[0].dims

    def plane(self, block: SSAValue) -> None:
        """One channel of one region."""
        b, op = self.b, self.roi
        region, channel = b.divmod(block, self.channels)
        given = b.op(arith.IndexCastOp, b.load(self.batch, [region]), type=IndexType())
        picture = self.within(given, 0, self.pictures - 1)
        is_there = b.cmpi("eq", picture, given)
        first = b.mul(b.add(b.mul(picture, self.channels), channel), self.size[0] * self.size[1])
        x1, y1, x2, y2 = (self.coordinate(region, k) for k in range(4))
        with b.loop(0, op.height) as i:
            top, bottom = self.part(y1, y2, i.iv, op.height, self.size[0])
            with b.loop(0, op.width, name="j") as j:
                left, right = self.part(x1, x2, j.iv, op.width, self.size[1])
                some = b.op(arith.AndIOp, b.cmpi("slt", top, bottom), b.cmpi("slt", left, right))
                value = self.largest(first, (top, bottom), (left, right))
                value = b.select(b.op(arith.AndIOp, is_there, some), value, self.number(0))
                at = b.add(b.mul(b.add(b.mul(block, op.height), i.iv), op.width), j.iv)
                b.store(value, self.target, [at])

    def coordinate(self, region: SSAValue, k: int) -> SSAValue:
        """A corner's coordinate in elements: rounded, halves away from 0."""
        b, one, zero = self.b, self.number(1), self.number(0)
        x = b.op(arith.MulfOp, b.load(self.rois, [b.add(b.mul(region, 4), k)]), self.number(self.roi.scale))
        for limit, outside in ((-FAR, "ogt"), (FAR, "olt")):  # what is no number is far outside
            x = b.select(b.cmpf(outside, x, self.number(limit)), x, self.number(limit))
        size = b.op(math.AbsFOp, x)
        whole = b.op(math.FloorOp, size)
        up = b.cmpf("oge", b.op(arith.SubfOp, size, whole), self.number(0.5))
        rounded = self.to_index(b.op(arith.AddfOp, whole, b.select(up, one, zero)))
        is_negative = b.cmpf("olt", x, zero)
        return b.select(is_negative, b.op(arith.SubiOp, b.index(0), rounded), rounded)

    def part(self, first: SSAValue, last: SSAValue, k: SSAValue, count: int, size: int) -> tuple[SSAValue, SSAValue]:
        """Begin and end of part `k` of `count` of an axis."""
        b = self.b
        length = b.op(arith.MaxSIOp, b.add(b.op(arith.SubiOp, last, first), 1), b.index(1))
        step = b.op(arith.DivfOp, self.to_float(length), self.number(count))
        begin = b.op(math.FloorOp, b.op(arith.MulfOp, self.to_float(k), step))
        end = b.op(math.CeilOp, b.op(arith.MulfOp, self.to_float(b.add(k, 1)), step))
        low, high = (self.within(b.add(self.to_index(x), first), 0, size) for x in (begin, end))
        return low, high

    def largest(self, first: SSAValue, rows: tuple[SSAValue, SSAValue], columns: tuple[SSAValue, SSAValue]) -> SSAValue:
        b = self.b
        with b.loop(*rows, carry=[self.number(self.lowest)], name="y") as y:
            row = b.add(first, b.mul(y.iv, self.size[1]))
            with b.loop(*columns, carry=y.args, name="x") as x:
                value, best = b.load(self.src, [b.add(row, x.iv)]), x.args[0]
                x.yields(b.select(b.cmpf("ogt", value, best), value, best))
            y.yields(*x.results)
        return y.results[0]
