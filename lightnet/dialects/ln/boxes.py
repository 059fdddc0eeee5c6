"""Boxes of detectors: greedy non-maximum suppression, `nms`."""

from __future__ import annotations

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerType

from lightnet.ir.op import LnOp, boolean, case, ln_op, number, operand, result
from lightnet.ir.types import storage_type
from lightnet.runtime.initial import sample

_I8 = IntegerType(8)


@ln_op
class Nms(LnOp):
    """Select the boxes that stay: of [B, N, 4] boxes (left, top, right, bottom) that stand in falling order of their
    scores, one that is `valid` stays unless it overlaps an earlier one that stays and has the same `group` by more than
    `threshold` (with `inclusive`, by that much or more).

    The overlap of two boxes is the area of their intersection over that of their union (0 / 0 is no overlap). Extents
    are right - left and bottom - top; with `pixels`, where the corners are elements of the box, one more. A box whose
    extent is below 0 is empty. All is computed in the type of the boxes.

    ```mlir
    // %b : tensor<1x9x4xf32>, %g : tensor<1x9xf32>, %v : tensor<1x9xi1>
    %y = ln.nms %b, %g, %v {threshold = 0.5} : tensor<1x9xi1>
    ```
    """

    optype = "nms"
    boxes = operand(rank=3, dtypes=("f32", "f64"))
    group = operand(rank=2, same_type="boxes")
    valid = operand(rank=2, dtypes=("i1",))
    keep = result(dims="group.dims", dtype="i1")
    threshold = number("float")
    inclusive = boolean(default=False)
    pixels = boolean(default=False)
    checks = {
        "corners": "boxes.dims[2] == 4",
        "groups": "group.dims[0] == boxes.dims[0] && group.dims[1] == boxes.dims[1]",
        "valid": "valid.dims[0] == boxes.dims[0] && valid.dims[1] == boxes.dims[1]",
    }
    has_builder = True

    def flops(self):
        batch, count, _ = self.operand_specs[0].dims
        return 8 * batch * count * count

    def blocks(self):
        return self.operand_specs[0].dims[0]  # pictures

    def build_loops(self, b, operands, results, workspace):
        (boxes, group, valid), (keep,) = operands, results
        spec = self.operand_specs[0]
        count = spec.dims[1]
        if not spec.len:
            return
        element = storage_type(spec.dtype)
        limit, no = b.const(self.threshold, element), b.const(0, _I8)
        with b.loop(b.mul(b.lo, count), b.mul(b.hi, count), name="row") as row:
            b.store(b.load(valid, [row.iv]), keep, [row.iv])
        with b.loop(b.lo, b.hi, name="picture") as picture, b.loop(0, count) as i:
            first = b.mul(picture.iv, count)
            mine = b.add(first, i.iv)
            with b.when(b.cmpi("ne", b.load(keep, [mine]), no)):
                ours = _corners(b, boxes, mine)
                # Later boxes that overlap this one go: what is left when its turn comes stays.
                with b.loop(b.add(i.iv, 1), count, name="j") as j:
                    other = b.add(first, j.iv)
                    same = b.cmpf("oeq", b.load(group, [mine]), b.load(group, [other]))
                    overlap = self._overlap(b, ours, _corners(b, boxes, other), element)
                    over = b.cmpf("oge" if self.inclusive else "ogt", overlap, limit)
                    with b.when(b.op(arith.AndIOp, same, over)):
                        b.store(no, keep, [other])

    def _overlap(self, b, ours, other, element):
        """Intersection over union."""

        def extent(low, high):
            size = b.op(arith.SubfOp, high, low)
            return b.op(arith.AddfOp, size, b.const(1.0, element)) if self.pixels else size

        def area(box):
            sizes = (extent(box[0], box[2]), extent(box[1], box[3]))
            return b.op(arith.MulfOp, *(b.op(arith.MaximumfOp, size, b.const(0.0, element)) for size in sizes))

        starts = [b.op(arith.MaximumfOp, ours[k], other[k]) for k in (0, 1)]
        stops = [b.op(arith.MinimumfOp, ours[k], other[k]) for k in (2, 3)]
        inter = area([*starts, *stops])
        union = b.op(arith.SubfOp, b.op(arith.AddfOp, area(other), area(ours)), inter)
        return b.op(arith.DivfOp, inter, union)

    def reference(self, boxes, group, valid):
        keep = valid.copy()
        limit, more = boxes.dtype.type(self.threshold), boxes.dtype.type(self.pixels)
        for picture in range(boxes.shape[0]):
            x0, y0, x1, y1 = boxes[picture].T
            wide, tall = x1 - x0 + more, y1 - y0 + more
            area = np.maximum(wide, 0) * np.maximum(tall, 0)
            for i in range(boxes.shape[1]):
                if not keep[picture, i]:
                    continue
                width = np.maximum(np.minimum(x1, x1[i]) - np.maximum(x0, x0[i]) + more, 0)
                height = np.maximum(np.minimum(y1, y1[i]) - np.maximum(y0, y0[i]) + more, 0)
                inter = width * height
                overlap = inter / (area + area[i] - inter)
                over = overlap >= limit if self.inclusive else overlap > limit
                keep[picture] &= ~(over & (group[picture] == group[picture, i]) & (np.arange(len(area)) > i))
        return keep

    @classmethod
    def sample_data(cls, name, kind, spec, tensors, params, seed):
        if name == "group":
            return np.floor(np.abs(sample(name, "data", spec.dims, spec.dtype, seed=seed)) * 3).astype(spec.dtype.np)
        if name != "boxes":
            return super().sample_data(name, kind, spec, tensors, params, seed)
        corners = sample(name, "data", spec.dims, spec.dtype, seed=seed)
        low, size = corners[..., :2], np.abs(corners[..., 2:]) + 0.25
        if params.get("inclusive"):  # so that overlaps of the threshold itself are there
            low, size = np.round(low), np.ceil(size)
        if params.get("pixels"):  # and boxes that are empty
            size = size - 0.5
        return np.concatenate([low, low + size], axis=-1).astype(spec.dtype.np)

    @classmethod
    def samples(cls):
        def boxes(dtype, batch, count, threshold, **p):
            pairs = (batch, count)
            return case(dtype, boxes=(*pairs, 4), group=pairs, valid=(pairs, "i1"), threshold=threshold, **p)

        return [
            boxes("f32", 1, 33, 0.1), boxes("f32", 2, 7, 0.45), boxes("f64", 1, 1, 0.5), boxes("f64", 3, 16, 0.0),
            boxes("f32", 2, 19, 0.3, pixels=True), boxes("f64", 1, 12, 0.2, pixels=True),
            boxes("f32", 2, 23, 0.5, inclusive=True),
        ]  # fmt: skip


def _corners(b, boxes, row):
    first = b.mul(row, 4)
    return [b.load(boxes, [b.add(first, k)]) for k in range(4)]
