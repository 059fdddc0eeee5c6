"""Networks that no library of the list has: a U-Net, and a detector in the manner of YOLOv5 with its decoding. Imports PyTorch."""

from __future__ import annotations

import torch
from torch import nn


def _twice(inner: int, outer: int) -> nn.Sequential:
    def once(channels: int) -> list[nn.Module]:
        return [nn.Conv2d(channels, outer, 3, padding=1, bias=False), nn.BatchNorm2d(outer), nn.ReLU()]

    return nn.Sequential(*once(inner), *once(outer))


class UNet(nn.Module):
    """Four halvings and four doublings with skips (Ronneberger et al., 2015), padded; [1, 3, H, W] to [1, 2, H, W]."""

    def __init__(self, width: int = 32):
        super().__init__()
        widths = [width << k for k in range(5)]
        self.down = nn.ModuleList(_twice(a, b) for a, b in zip([3, *widths], widths))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in widths[-2::-1])
        self.up = nn.ModuleList(_twice(2 * w, w) for w in widths[-2::-1])
        self.pool, self.head = nn.MaxPool2d(2), nn.Conv2d(width, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The two logits of each pixel."""
        skips: list[torch.Tensor] = []
        for i, block in enumerate(self.down):
            x = block(self.pool(x) if i else x)
            skips.append(x)
        for grow, block, skip in zip(self.grow, self.up, skips[-2::-1]):
            x = block(torch.cat([skip, grow(x)], 1))
        return self.head(x)


def _conv(inner: int, outer: int, size: int = 1, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inner, outer, size, stride, (size - 1) // 2, bias=False), nn.BatchNorm2d(outer), nn.SiLU()
    )


class _C3(nn.Module):
    """Bottlenecks on one half of the channels, the other half passed by."""

    def __init__(self, inner: int, outer: int, depth: int, shortcut: bool = True):
        super().__init__()
        half = outer // 2
        self.a, self.b, self.out = _conv(inner, half), _conv(inner, half), _conv(outer, outer)
        self.blocks = nn.ModuleList(nn.Sequential(_conv(half, half), _conv(half, half, 3)) for _ in range(depth))
        self.shortcut = shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[1, inner, H, W] to [1, outer, H, W]."""
        y = self.a(x)
        for block in self.blocks:
            y = y + block(y) if self.shortcut else block(y)
        return self.out(torch.cat([y, self.b(x)], 1))


class _Pyramid(nn.Module):
    """Pools of 5, 9 and 13 side by side, each on the one before (SPPF)."""

    def __init__(self, channels: int):
        super().__init__()
        self.a, self.out = _conv(channels, channels // 2), _conv(2 * channels, channels)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same shape."""
        found = [self.a(x)]
        for _ in range(3):
            found.append(self.pool(found[-1]))
        return self.out(torch.cat(found, 1))


class Yolo(nn.Module):
    """A detector of YOLOv5 s's widths and depths; [1, 3, H, W] to boxes, objectness and class scores [1, N, 5 + classes]."""

    def __init__(self, classes: int = 80, anchors: int = 3):
        super().__init__()
        self.each, self.anchors = classes + 5, anchors
        self.stem = nn.Sequential(
            _conv(3, 32, 6, 2), _conv(32, 64, 3, 2), _C3(64, 64, 1), _conv(64, 128, 3, 2), _C3(128, 128, 2)
        )
        self.mid = nn.Sequential(_conv(128, 256, 3, 2), _C3(256, 256, 3))
        self.deep = nn.Sequential(_conv(256, 512, 3, 2), _C3(512, 512, 1), _Pyramid(512), _conv(512, 256))
        self.join, self.narrow = _C3(512, 256, 1, False), _conv(256, 128)
        self.heads = nn.ModuleList([_C3(256, 128, 1, False), _C3(256, 256, 1, False), _C3(512, 512, 1, False)])
        self.step = nn.ModuleList([_conv(128, 128, 3, 2), _conv(256, 256, 3, 2)])
        self.out = nn.ModuleList(nn.Conv2d(c, anchors * self.each, 1) for c in (128, 256, 512))
        self.sizes = nn.Parameter(torch.rand(3, 1, anchors, 1, 1, 2) * 40 + 8, requires_grad=False)
        self.larger = nn.Upsample(scale_factor=2, mode="nearest")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The decoded boxes (centre and size in pixels) with their scores."""
        low = self.stem(x)
        mid = self.mid(low)
        deep = self.deep(mid)
        joined = self.narrow(self.join(torch.cat([self.larger(deep), mid], 1)))
        first = self.heads[0](torch.cat([self.larger(joined), low], 1))
        second = self.heads[1](torch.cat([self.step[0](first), joined], 1))
        third = self.heads[2](torch.cat([self.step[1](second), deep], 1))
        maps = [out(y) for out, y in zip(self.out, (first, second, third))]
        return torch.cat([self._decoded(y, 8 << k, k) for k, y in enumerate(maps)], 1)

    def _decoded(self, y: torch.Tensor, stride: int, scale: int) -> torch.Tensor:
        height, width = y.shape[-2:]
        y = y.view(-1, self.anchors, self.each, height, width).permute(0, 1, 3, 4, 2).sigmoid()
        axes = (torch.arange(n, dtype=y.dtype) for n in (height, width))
        rows, columns = torch.meshgrid(*axes, indexing="ij")
        corner = torch.stack([columns, rows], -1) - 0.5
        centre = (y[..., :2] * 2 + corner) * stride
        size = (y[..., 2:4] * 2) ** 2 * self.sizes[scale]
        return torch.cat([centre, size, y[..., 4:]], -1).flatten(1, 3)
