"""Pictures: classifiers of torchvision and timm, segmentation."""

from __future__ import annotations

from typing import Any

from . import Example, architecture


def _picture(module: Any, side: int) -> Example:
    from .parts import noise, settled

    dims = (1, 3, side, side)
    return Example(settled(module, *dims), {"x": noise(*dims)})


def _torchvision(name: str, side: int = 224, **options: Any) -> None:
    def make() -> Example:
        from torchvision import models

        return _picture(models.get_model(name, weights=None, **options), side)

    architecture(name)(make)


def _timm(name: str, model: str, side: int = 224) -> None:
    def make() -> Example:
        import timm

        return _picture(timm.create_model(model, pretrained=False), side)

    architecture(name)(make)


_torchvision("resnet50")
_torchvision("efficientnet_b0")
_torchvision("convnext_tiny")
_torchvision("swin_t")
_timm("vit_small", "vit_small_patch16_224")
_timm("deit_small, distilled", "deit_small_distilled_patch16_224")
_timm("mobilevit_s", "mobilevit_s", 256)
_torchvision("regnet_y_400mf")
_torchvision("densenet121")
_torchvision("mobilenet_v3_large")
_timm("mixer_s32", "mixer_s32_224")
_torchvision("maxvit_t")


@architecture("deeplabv3, mobilenet_v3")
def deeplab() -> Example:
    """DeepLabV3: dilated convolutions."""
    from torchvision.models.segmentation import deeplabv3_mobilenet_v3_large

    from .parts import Calls

    net = deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None)
    return _picture(Calls(net, lambda part, x: part(x)["out"]), 256)


@architecture("unet")
def unet() -> Example:
    """A U-Net of 32 to 512 channels with transposed convolutions."""
    from .networks import UNet

    return _picture(UNet(), 256)


@architecture("segformer_b0")
def segformer() -> Example:
    """SegFormer of transformers, its default being b0."""
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    from .parts import Calls

    net = SegformerForSemanticSegmentation(SegformerConfig(num_labels=150))
    return _picture(Calls(net, lambda part, x: part(x).logits), 256)


@architecture("detr, resnet18")
def detr() -> Example:
    """DETR: boxes by a transformer, without suppression."""
    from transformers import DetrConfig, DetrForObjectDetection, TimmBackboneConfig

    from .parts import Calls, noise

    backbone = TimmBackboneConfig(backbone="resnet18", use_pretrained_backbone=False, out_indices=[1, 2, 3, 4])
    net = DetrForObjectDetection(DetrConfig(backbone_config=backbone))

    def boxes(part: Any, x: Any) -> Any:
        found = part(x)
        return found.logits, found.pred_boxes

    return Example(Calls(net, boxes).eval(), {"x": noise(1, 3, 256, 256)}, ("logits", "boxes"))
