"""Detectors with their suppression of boxes inside, whose outputs have as many rows as boxes were found."""

from __future__ import annotations

from typing import Any

from . import Example, architecture

#: How much sharper the random class scores are made: an untrained head finds every class alike likely, and so nothing.
SHARPNESS = 12.0


def _yolo() -> Any:
    from .networks import Yolo
    from .parts import settled

    return settled(Yolo(), 1, 3, 320, 320)


@architecture("yolo, decoded")
def yolo() -> Example:
    """A detector of YOLOv5 s's size, boxes decoded."""
    from .parts import noise

    return Example(_yolo(), {"x": noise(1, 3, 320, 320)})


@architecture("yolo with suppression", traced=True)
def yolo_suppressed() -> Example:
    """The same with suppression: boxes, scores and classes of what is left."""
    from torchvision.ops import batched_nms, box_convert

    from .parts import Calls, noise

    net = _yolo()
    for head in net.out:
        head.weight.data *= 4

    def found(part: Any, x: Any) -> Any:
        rows = part(x)[0]
        scores, classes = (rows[:, 5:] * rows[:, 4:5]).max(1)
        likely = (scores > 0.6).nonzero()[:, 0]
        boxes, scores, classes = box_convert(rows[likely, :4], "cxcywh", "xyxy"), scores[likely], classes[likely]
        kept = batched_nms(boxes, scores, classes, 0.45)[:100]
        return boxes[kept], scores[kept], classes[kept]

    return Example(Calls(net, found), {"x": noise(1, 3, 320, 320)}, ("boxes", "scores", "classes"))


def _detector(net: Any, side: int) -> Example:
    import torch

    from .parts import Calls

    def found(part: Any, x: Any) -> Any:
        (rows,) = part([x[0]])
        return rows["boxes"], rows["scores"], rows["labels"]

    picture = torch.nn.functional.interpolate(torch.rand(1, 3, 20, 20), size=(side, side), mode="bilinear")
    return Example(Calls(net.eval(), found), {"x": picture}, ("boxes", "scores", "labels"))


def _settle(backbone: Any, side: int) -> None:
    from .parts import settled

    settled(backbone, 1, 3, side, side)


@architecture("ssdlite320", traced=True)
def ssdlite() -> Example:
    """SSDLite on MobileNetV3 with all that torchvision does after it."""
    from torchvision.models.detection import ssdlite320_mobilenet_v3_large

    net = ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None)
    _settle(net.backbone, 320)
    for block in net.head.classification_head.module_list:
        block[-1].weight.data *= SHARPNESS
    return _detector(net, 320)


@architecture("faster r-cnn, mobilenet_v3", traced=True)
def faster_rcnn() -> Example:
    """Faster R-CNN on MobileNetV3, of pictures of 320: proposals, pooled regions, boxes by class."""
    from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn

    net = fasterrcnn_mobilenet_v3_large_320_fpn(weights=None, weights_backbone=None, trainable_backbone_layers=6)
    _settle(net.backbone, 320)
    net.roi_heads.box_predictor.cls_score.weight.data *= SHARPNESS
    net.rpn.head.cls_logits.weight.data *= SHARPNESS
    return _detector(net, 320)
