"""The transformers of `suites/transformers.py` in PyTorch, as people write them: fused attention, layer norms and linear maps, on the same weights,
by the names that they have in the ONNX files. Imports torch where a module is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from suites.transformers import EPSILON, PATCH

#: The modules by name: how one's output follows from its weights and its input.
Forward = Callable[["Layers", Any], Any]


class Layers:
    """The parts of a transformer. `weights` are tensors by name, matrices as PyTorch has them, [outer, inner]."""

    def __init__(self, weights: Mapping[str, Any], heads: int):
        self.weights, self.heads = weights, heads

    def linear(self, name: str, x: Any) -> Any:
        """x times a matrix, plus a bias."""
        from torch.nn.functional import linear

        return linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def norm(self, name: str, x: Any) -> Any:
        """Layer normalisation over the last axis."""
        from torch.nn.functional import layer_norm

        return layer_norm(x, x.shape[-1:], self.weights[f"{name}.scale"], self.weights[f"{name}.bias"], EPSILON)

    def attention(self, name: str, x: Any) -> Any:
        """Attention among the tokens of x [batch, tokens, width]."""
        from torch.nn.functional import scaled_dot_product_attention

        def split(part: str) -> Any:
            return self.linear(f"{name}.{part}", x).unflatten(-1, (self.heads, -1)).transpose(1, 2)

        mixed = scaled_dot_product_attention(split("q"), split("k"), split("v"))
        return self.linear(f"{name}.out", mixed.transpose(1, 2).flatten(-2))

    def perceptron(self, name: str, x: Any) -> Any:
        """Four times as wide, GELU, and back."""
        from torch.nn.functional import gelu

        return self.linear(f"{name}.narrow", gelu(self.linear(f"{name}.wide", x)))


def _bert(g: Layers, ids: Any) -> Any:
    x = g.norm("embedding", g.weights["words"][ids] + g.weights["positions"])
    for k in range(4):
        x = g.norm(f"{k}.norm1", x + g.attention(f"{k}.attention", x))
        x = g.norm(f"{k}.norm2", x + g.perceptron(f"{k}.perceptron", x))
    return x


def _vit(g: Layers, picture: Any) -> Any:
    from torch.nn.functional import conv2d

    patches = conv2d(picture, g.weights["patches.weight"], g.weights["patches.bias"], PATCH)
    x = patches.flatten(2).transpose(1, 2) + g.weights["positions"]
    for k in range(12):
        x = x + g.attention(f"{k}.attention", g.norm(f"{k}.norm1", x))
        x = x + g.perceptron(f"{k}.perceptron", g.norm(f"{k}.norm2", x))
    return g.linear("classes", g.norm("norm", x).mean(1))


#: The networks, and how many heads their attention has.
MODULES: dict[str, tuple[Forward, int]] = {"bert-mini": (_bert, 4), "vit-tiny": (_vit, 3)}


def module_of(name: str, contents: Mapping[str, np.ndarray], device: str, dtype: str) -> Any:
    """The `torch.nn.Module` of a transformer on a device, in a type of torch (``float16``), with the weights of `contents`: one input, a tuple of one output."""
    import torch

    forward, heads = MODULES[name]
    arrays = {n: a for n, a in contents.items() if a.dtype == np.float32 and n != "picture"}

    class Transformer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for number, (key, array) in enumerate(arrays.items()):
                is_matrix = key.endswith(".weight") and array.ndim == 2
                self.register_buffer(
                    f"w{number}", torch.from_numpy(np.array(array.T if is_matrix else array, order="C"))
                )

        def forward(self, x: Any) -> tuple[Any]:
            weights = {key: getattr(self, f"w{number}") for number, key in enumerate(arrays)}
            return (forward(Layers(weights, heads), x),)

    return Transformer().eval().to(device=device, dtype=getattr(torch, dtype))
