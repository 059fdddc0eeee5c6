"""Text, speech and sequences: transformers' encoders and decoders, recurrent networks."""

from __future__ import annotations

from typing import Any

from . import Example, architecture


def _text(module: Any, vocabulary: int, tokens: int, function: Any, outputs: tuple[str, ...] = ("y",)) -> Example:
    from .parts import Calls, token_ids

    return Example(Calls(module.eval(), function), {"ids": token_ids(vocabulary, 1, tokens)}, outputs)


@architecture("bert_base")
def bert() -> Example:
    """BERT on ids and a mask, 128 tokens."""
    import torch
    from transformers import BertConfig, BertModel

    example = _text(BertModel(BertConfig()), 30522, 128, lambda part, ids, mask: part(ids, attention_mask=mask)[:2],
                    ("hidden", "pooled"))  # fmt: skip
    mask = torch.ones(1, 128, dtype=torch.int64)
    mask[:, 100:] = 0
    return Example(example.module, example.inputs | {"mask": mask}, example.outputs)


@architecture("distilbert")
def distilbert() -> Example:
    """DistilBERT, 128 tokens."""
    from transformers import DistilBertConfig, DistilBertModel

    return _text(DistilBertModel(DistilBertConfig()), 30522, 128, lambda part, ids: part(ids)[0])


@architecture("gpt2, prefill of 64")
def gpt2_prefill() -> Example:
    """GPT-2 small, 64 tokens at once, keys and values given back."""
    from transformers import GPT2Config, GPT2LMHeadModel

    net = GPT2LMHeadModel(GPT2Config())
    return _text(net, 50257, 64, lambda part, ids: part(ids, use_cache=False).logits)


def _decoding(net: Any, layers: int, heads: int, width: int, vocabulary: int, past: int) -> Example:
    """One token after `past`, keys and values as inputs and outputs."""
    from transformers import DynamicCache

    from .parts import Calls, noise, token_ids

    def step(part: Any, ids: Any, *cached: Any) -> Any:
        cache = DynamicCache()
        for layer in range(layers):
            cache.update(cached[2 * layer], cached[2 * layer + 1], layer)
        found = part(ids, past_key_values=cache, use_cache=True)
        kept = found.past_key_values
        return (found.logits, *(t for layer in kept.layers for t in (layer.keys, layer.values)))

    names = [f"{kind}{layer}" for layer in range(layers) for kind in "kv"]
    inputs = {"ids": token_ids(vocabulary, 1, 1)} | {n: noise(1, heads, past, width) for n in names}
    return Example(Calls(net.eval(), step), inputs, ("logits", *(f"new_{n}" for n in names)))


@architecture("gpt2, decode after 64")
def gpt2_decode() -> Example:
    """GPT-2 small, one token, 64 cached."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return _decoding(GPT2LMHeadModel(GPT2Config()), 12, 12, 64, 50257, 64)


@architecture("llama-like, decode after 64")
def llama_decode() -> Example:
    """Six layers of Llama's kind with grouped queries and rotary positions, one token, 64 cached."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(hidden_size=512, intermediate_size=1376, num_hidden_layers=6, num_attention_heads=8,
                         num_key_value_heads=2, vocab_size=32000, max_position_embeddings=512)  # fmt: skip
    return _decoding(LlamaForCausalLM(config), 6, 2, 64, 32000, 64)


@architecture("t5-small encoder", traced=True)
def t5() -> Example:
    """T5's encoder: relative positions, norms by root mean square."""
    from transformers import T5Config, T5EncoderModel

    return _text(T5EncoderModel(T5Config()), 32128, 128, lambda part, ids: part(ids)[0])


@architecture("clip text")
def clip_text() -> Example:
    """CLIP's text tower, 77 tokens."""
    import torch
    from transformers import CLIPTextConfig, CLIPTextModelWithProjection

    net = CLIPTextModelWithProjection(CLIPTextConfig())
    example = _text(net, 49000, 77, lambda part, ids: part(ids).text_embeds)
    example.inputs["ids"][:, 40:] = torch.tensor(49407)
    return example


@architecture("clip vit-b/32 vision")
def clip_vision() -> Example:
    """CLIP's picture tower."""
    from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

    from .parts import Calls, noise

    net = CLIPVisionModelWithProjection(CLIPVisionConfig())
    return Example(Calls(net.eval(), lambda part, x: part(x).image_embeds), {"x": noise(1, 3, 224, 224)})


@architecture("whisper-tiny encoder")
def whisper() -> Example:
    """Whisper's encoder on 30 s."""
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    from .parts import Calls, noise

    config = WhisperConfig(d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536)
    return Example(Calls(WhisperEncoder(config).eval(), lambda part, x: part(x)[0]), {"mel": noise(1, 80, 3000)})


@architecture("wav2vec2-base, ctc")
def wav2vec() -> Example:
    """Wav2vec 2.0 with its letters, on 1 s of 16 kHz."""
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    from .parts import Calls, noise

    net = Wav2Vec2ForCTC(Wav2Vec2Config())
    return Example(Calls(net.eval(), lambda part, x: part(x).logits), {"x": noise(1, 16000)})


@architecture("lstm language model")
def lstm() -> Example:
    """Two layers of 512, 32 steps."""
    from torch import nn

    class Words(nn.Module):
        """Embedding, LSTM, logits."""

        def __init__(self) -> None:
            super().__init__()
            self.words, self.rnn, self.out = (
                nn.Embedding(10000, 512),
                nn.LSTM(512, 512, 2, batch_first=True),
                nn.Linear(512, 10000),
            )

        def forward(self, ids: Any) -> Any:
            """Logits of every step."""
            return self.out(self.rnn(self.words(ids))[0])

    return _text(Words(), 10000, 32, lambda part, ids: part(ids))


@architecture("bi-gru tagger")
def tagger() -> Example:
    """A bidirectional GRU of 128 that tags 32 words."""
    from torch import nn

    class Tags(nn.Module):
        """Embedding, GRU in both directions, tags."""

        def __init__(self) -> None:
            super().__init__()
            self.words, self.out = nn.Embedding(20000, 100), nn.Linear(256, 20)
            self.rnn = nn.GRU(100, 128, batch_first=True, bidirectional=True)

        def forward(self, ids: Any) -> Any:
            """Logits of every word's tags."""
            return self.out(self.rnn(self.words(ids))[0])

    return _text(Tags(), 20000, 32, lambda part, ids: part(ids))
