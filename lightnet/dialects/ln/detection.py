"""Heads of detection networks and their input: `submean`, `transform_bboxSQD`, `detect_yolov3`."""

from __future__ import annotations

import numpy as np

from lightnet.ir.op import LnOp, case, dtype_of_result, ln_op, number, numbers, operand, result
from lightnet.runtime.dtypes import convert


@ln_op
class Submean(LnOp):
    """A picture [H, W, 3] minus the mean of each channel, as [3, H, W]; computed in double, then converted to the
    result's type, saturating.

    ```mlir
    // %x : tensor<4x5x3xui8>
    %y = ln.submean %x {mean = [123.68, 116.78, 103.94]} : tensor<3x4x5xf32>
    ```
    """

    optype = "submean"
    src = operand(rank=3, dtypes=("f64", "f32", "i64", "i32", "i16", "i8", "ui64", "ui32", "ui16", "ui8"))
    dst = result(dims="[src.dims[2], src.dims[0:2]]", dtype="dtype")
    mean = numbers("double", 3)
    dtype = dtype_of_result()
    checks = {"channels": "src.dims[2] == 3", "not-bool": 'dtype != "TL_BOOL"'}
    definition = "dst[c, y, x] = sat(f64(src[y, x, c]) - mean[c], dst)"

    def reference(self, src):
        centred = np.transpose(src.astype(np.float64) - np.asarray(self.mean), (2, 0, 1))
        return convert(centred, self.result_specs[0].dtype)

    @classmethod
    def samples(cls):
        mean = (1.5, 30.25, 100)
        return [
            case("ui8", src=(4, 5, 3), mean=mean, dtype="TL_FLOAT"),
            case("ui8", src=(1, 1, 3), mean=mean, dtype="TL_INT8"),
            case(src=(7, 17, 3), mean=mean, dtype="TL_FLOAT"), case("i32", src=(3, 2, 3), mean=mean, dtype="TL_DOUBLE"),
        ]  # fmt: skip


@ln_op
class TransformBboxSQD(LnOp):
    """SqueezeDet's boxes: offsets `src_delta` [.., 4] applied to anchors (cx, cy, w, h), scaled from the network's
    picture to the image's, shifted, and clamped to it: (xmin, ymin, xmax, ymax).

    Wu et al., "SqueezeDet" (2016), section 3.1; sizes grow as exp(d) below d = 1 and as e * d above.

    ```mlir
    // %d : tensor<1x2x3x1x4xf32>, %a : tensor<1x2x3x1x4xf32>
    %b = ln.transform_bboxSQD %d, %a {width = 8, height = 6, img_width = 16, img_height = 12, x_shift = 0, y_shift = 0}
           : tensor<1x2x3x1x4xf32>
    ```
    """

    optype = "transform_bboxSQD"
    src_delta = operand(rank=5, dtypes=("f32",))
    src_anchor = operand("param", kind="anchor", rank=5, same_type="src_delta", same_shape="src_delta")
    dst = result()
    width = number("int", gt=0)
    height = number("int", gt=0)
    img_width = number("int", gt=0)
    img_height = number("int", gt=0)
    x_shift = number("int")
    y_shift = number("int")
    checks = {"last-dim": "src_delta.dims[4] == 4"}
    definition = """
        sx[i] = f32(img_width) / f32(width) for i < 1
        sy[i] = f32(img_height) / f32(height) for i < 1
        cx[i...] = (src_anchor[i..., 0] + src_delta[i..., 0] * src_anchor[i..., 2]) * sx[0] + x_shift
        cy[i...] = (src_anchor[i..., 1] + src_delta[i..., 1] * src_anchor[i..., 3]) * sy[0] + y_shift
        w[i...] = src_anchor[i..., 2] * sx[0]
            * (src_delta[i..., 2] < 1 ? exp(src_delta[i..., 2]) : src_delta[i..., 2] * 2.718281828)
        h[i...] = src_anchor[i..., 3] * sy[0]
            * (src_delta[i..., 3] < 1 ? exp(src_delta[i..., 3]) : src_delta[i..., 3] * 2.718281828)
        dst[i..., 0] = clamp(cx[i...] - w[i...] / 2, 0, img_width - 1)
        dst[i..., 1] = clamp(cy[i...] - h[i...] / 2, 0, img_height - 1)
        dst[i..., 2] = clamp(cx[i...] + w[i...] / 2, 0, img_width - 1)
        dst[i..., 3] = clamp(cy[i...] + h[i...] / 2, 0, img_height - 1)
    """
    work = 12

    def reference(self, src_delta, src_anchor):
        d, a = src_delta.astype(np.float64), src_anchor.astype(np.float64)
        sx, sy = self.img_width / self.width, self.img_height / self.height

        def growth(x):
            return np.where(x < 1, np.exp(np.minimum(x, 1)), x * 2.718281828)

        cx = (a[..., 0] + d[..., 0] * a[..., 2]) * sx + self.x_shift
        cy = (a[..., 1] + d[..., 1] * a[..., 3]) * sy + self.y_shift
        w, h = a[..., 2] * growth(d[..., 2]) * sx, a[..., 3] * growth(d[..., 3]) * sy
        corners = [
            np.clip(v, 0, limit - 1)
            for v, limit in (
                (cx - w / 2, self.img_width),
                (cy - h / 2, self.img_height),
                (cx + w / 2, self.img_width),
                (cy + h / 2, self.img_height),
            )
        ]
        return np.stack(corners, axis=-1).astype(src_delta.dtype)

    @classmethod
    def samples(cls):
        p = dict(width=40, height=30, img_width=80, img_height=45, x_shift=-2, y_shift=3)
        return [case(src_delta=s, src_anchor=s, **p) for s in ((1, 3, 4, 2, 4), (1, 1, 1, 1, 4), (2, 3, 1, 5, 4))]


#: The dims of what there is so many of for each anchor and pixel.
_MAPS = "[feature.dims[0], anchors.dims[0], {}, feature.dims[2:4]]"


@ln_op
class DetectYolov3(LnOp):
    """The boxes of one scale of YOLOv3: `feature` [1, A*(5+K), H, W] and anchors [A, 2] (w, h), in pixels of the image.

    Redmon and Farhadi, "YOLOv3" (2018), section 2.1. For each anchor the channels are x, y, w, h, confidence, classes.
    centre = (sigmoid(t) + cell) * image / grid; size = anchor * clamp(exp(t), 1e-9, 50); boxes are centre -/+ size / 2.

    ```mlir
    // %f : tensor<1x8x2x2xf32>, %a : tensor<1x2xf32>
    %c, %s, %b, %o, %p = ln.detect_yolov3 %f, %a {img_width = 16, img_height = 16}
      : tensor<1x1x2x2x2xf32>, tensor<1x1x2x2x2xf32>, tensor<1x1x4x2x2xf32>, tensor<1x1x1x2x2xf32>,
        tensor<1x1x3x2x2xf32>
    ```
    """

    optype = "detect_yolov3"
    feature = operand(rank=4, dtypes=("f32",))
    anchors = operand("param", kind="anchor", rank=2, same_type="feature")
    box_centers = result(dims=_MAPS.format("2"))
    box_sizes = result(dims=_MAPS.format("2"))
    boxes = result(dims=_MAPS.format("4"))
    confs = result(dims=_MAPS.format("1"))
    probs = result(dims=_MAPS.format("feature.dims[1] / anchors.dims[0] - 5"))
    img_width = number("int", gt=0)
    img_height = number("int", gt=0)
    checks = {
        "one-picture": "feature.dims[0] == 1",
        "anchor-pairs": "anchors.dims[1] == 2",
        "anchor-count": "anchors.dims[0] <= 64",
        "channels": "feature.dims[1] % anchors.dims[0] == 0 && feature.dims[1] / anchors.dims[0] > 5",
    }
    definition = """
        box_centers[n, a, k, y, x] = (1 / (1 + exp(-feature[n, a * (probs.dims[2] + 5) + k, y, x])) + (k == 0 ? x : y))
            * (k == 0 ? img_width : img_height) / (k == 0 ? feature.dims[3] : feature.dims[2])
        box_sizes[n, a, k, y, x] = anchors[a, k]
            * clamp(exp(feature[n, a * (probs.dims[2] + 5) + 2 + k, y, x]), 1e-9, 50)
        boxes[n, a, k, y, x] = box_centers[n, a, k, y, x] - box_sizes[n, a, k, y, x] / 2 for k < 2
        boxes[n, a, k + 2, y, x] = box_centers[n, a, k, y, x] + box_sizes[n, a, k, y, x] / 2
        confs[n, a, k, y, x] = 1 / (1 + exp(-feature[n, a * (probs.dims[2] + 5) + 4, y, x]))
        probs[n, a, k, y, x] = 1 / (1 + exp(-feature[n, a * (probs.dims[2] + 5) + 5 + k, y, x]))
    """
    work = 5

    def reference(self, feature, anchors):
        n, c, h, w = feature.shape
        a = anchors.shape[0]
        t = feature.astype(np.float64).reshape(n, a, c // a, h, w)
        with np.errstate(over="ignore"):
            s, e = 1 / (1 + np.exp(-t)), np.exp(t)
        cx = (s[:, :, 0] + np.arange(w)) * self.img_width / w
        cy = (s[:, :, 1] + np.arange(h)[:, None]) * self.img_height / h
        centers = np.stack([cx, cy], axis=2)
        sizes = anchors.astype(np.float64)[:, :, None, None] * np.clip(e[:, :, 2:4], 1e-9, 50)
        boxes = np.concatenate([centers - sizes / 2, centers + sizes / 2], axis=2)
        return tuple(x.astype(feature.dtype) for x in (centers, sizes, boxes, s[:, :, 4:5], s[:, :, 5:]))

    @classmethod
    def samples(cls):
        p = dict(img_width=160, img_height=96)
        return [
            case(feature=(1, 24, 5, 5), anchors=(3, 2), **p), case(feature=(1, 6, 1, 1), anchors=(1, 2), **p),
            case(feature=(1, 18, 3, 17), anchors=(2, 2), **p),
        ]  # fmt: skip
