"""The common parts of several architectures: noise, a module of a function, batch norms with statistics of their own.
Imports PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def noise(*dims: int) -> torch.Tensor:
    """Gaussian noise."""
    return torch.randn(dims)


def token_ids(vocabulary: int, *dims: int) -> torch.Tensor:
    """Random positions in a vocabulary, int64."""
    return torch.randint(0, vocabulary, dims)


class Calls(nn.Module):
    """A module that calls `function(part, *inputs)`: takes what an exporter cannot out of a library's forward."""

    def __init__(self, part: nn.Module, function: Callable[..., Any]):
        super().__init__()
        self.part, self.function = part, function

    def forward(self, *inputs: torch.Tensor) -> Any:
        """Apply the function to the part."""
        return self.function(self.part, *inputs)


def settled(module: nn.Module, *dims: int) -> nn.Module:
    """The module in evaluation mode with batch norms that have the statistics of noise and random scales, so that values neither
    vanish nor explode as they would with the initial ones."""
    norms = [m for m in module.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias, std=0.1)
    if norms:
        module.train()
        with torch.no_grad():
            module(noise(2, *dims[1:]))
    return module.eval()


def awake(module: nn.Module) -> nn.Module:
    """The module with parameters that libraries start at nothing made to count: heads of zeros, and scales of residuals of 1e-6 or so,
    behind which no error would be seen."""
    with torch.no_grad():
        for parameter in module.parameters():
            low, high = float(parameter.min()), float(parameter.max())
            if low == high == 0 and parameter.ndim > 1:
                nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
            elif low == high and 0 < abs(low) < 1e-3:
                nn.init.uniform_(parameter, 0.1, 0.3)
    return module
