"""The networks of `networks.py` in PyTorch, in evaluation mode, with random weights. Imports PyTorch."""

from __future__ import annotations

from typing import Any

from architectures.parts import Calls, awake, settled


def bert() -> Any:
    """BERT, four layers of 256 and four heads, on ids and a padding mask."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=8192, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024
    )
    return Calls(BertModel(config).eval(), lambda part, ids, mask: part(ids, attention_mask=mask)[0])


def resnet18() -> Any:
    """ResNet-18 of torchvision."""
    return _torchvision("resnet18")


def mobilenet_v2() -> Any:
    """MobileNetV2 of torchvision."""
    return _torchvision("mobilenet_v2")


def squeezenet1_1() -> Any:
    """SqueezeNet 1.1 of torchvision."""
    return _torchvision("squeezenet1_1")


def _torchvision(name: str) -> Any:
    from torchvision import models

    return settled(models.get_model(name, weights=None), 1, 3, 224, 224)


def unet() -> Any:
    """The U-Net of `architectures`, 16 to 256 channels."""
    from architectures.networks import UNet

    return settled(UNet(16), 1, 3, 64, 64)


def yolo() -> Any:
    """The detector of `architectures`, with its boxes decoded."""
    from architectures.networks import Yolo

    return settled(Yolo(), 1, 3, 256, 256)  # of less, the deepest maps have too few pixels for statistics


def tagger() -> Any:
    """Embedding, LSTM in both directions, the logits of each word's tags."""
    from torch import nn

    class Tagger(nn.Module):
        """[batch, length] ids to [batch, length, 20] logits."""

        def __init__(self) -> None:
            super().__init__()
            self.words, self.out = nn.Embedding(8192, 128), nn.Linear(256, 20)
            self.rnn = nn.LSTM(128, 128, batch_first=True, bidirectional=True)

        def forward(self, ids: Any) -> Any:
            """Logits of every word's tags."""
            return self.out(self.rnn(self.words(ids))[0])

    return Tagger().eval()


def whisper() -> Any:
    """An encoder in the manner of Whisper's tiny one, on any number of frames: two convolutions, positions, four layers."""
    import torch
    from torch import nn

    class Encoder(nn.Module):
        """[batch, 80, frames] to [batch, frames / 2, 384]."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv1d(80, 384, 3, padding=1), nn.Conv1d(384, 384, 3, stride=2, padding=1)
            self.positions = nn.Parameter(torch.randn(1500, 384) * 0.1)
            self.layers = nn.ModuleList(Layer() for _ in range(4))
            self.norm = nn.LayerNorm(384)

        def forward(self, mel: Any) -> Any:
            """The last hidden states."""
            x = nn.functional.gelu(self.second(nn.functional.gelu(self.first(mel)))).transpose(1, 2)
            x = x + self.positions[: x.shape[1]]
            for layer in self.layers:
                x = layer(x)
            return self.norm(x)

    class Layer(nn.Module):
        """Attention and a perceptron, each behind a norm."""

        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(384), nn.LayerNorm(384)
            self.q, self.k, self.v = nn.Linear(384, 384), nn.Linear(384, 384, bias=False), nn.Linear(384, 384)
            self.out, self.wide, self.narrow = nn.Linear(384, 384), nn.Linear(384, 1536), nn.Linear(1536, 384)

        def forward(self, x: Any) -> Any:
            """The same shape."""
            y = self.norm1(x)
            q, k, v = (part(y).unflatten(-1, (6, 64)).transpose(1, 2) for part in (self.q, self.k, self.v))
            mixed = nn.functional.scaled_dot_product_attention(q, k, v)
            x = x + self.out(mixed.transpose(1, 2).flatten(-2))
            return x + self.narrow(nn.functional.gelu(self.wide(self.norm2(x))))

    return Encoder().eval()


def gpt2() -> Any:
    """GPT-2's kind, four layers of 256, one token after those of the cache."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return _decoding(GPT2LMHeadModel(GPT2Config(n_embd=256, n_layer=4, n_head=4, vocab_size=8192, n_positions=512)), 4)


def llama() -> Any:
    """Llama's kind, four layers of 512 with eight heads in two groups and rotary positions, one token after those of the cache."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(hidden_size=512, intermediate_size=1376, num_hidden_layers=4, num_attention_heads=8,
                         num_key_value_heads=2, vocab_size=8192, max_position_embeddings=512)  # fmt: skip
    return _decoding(LlamaForCausalLM(config), 4)


def _decoding(net: Any, layers: int) -> Any:
    from transformers import DynamicCache

    def step(part: Any, ids: Any, *cached: Any) -> Any:
        cache = DynamicCache()
        for layer in range(layers):
            cache.update(cached[2 * layer], cached[2 * layer + 1], layer)
        found = part(ids, past_key_values=cache, use_cache=True)
        return (found.logits, *(t for layer in found.past_key_values.layers for t in (layer.keys, layer.values)))

    return Calls(awake(net.eval()), step)
