"""Activations, norms and attention as PyTorch's two exporters write them: `python tests/exported.py` writes `tests/data/exported.zip` again.

The models are what people write: modules of PyTorch, and formulas out of the libraries named beside them. Each was exported by torch 2.13.0 (onnxscript 0.7.2),
by TorchScript (`ts`) for opsets 11, 14, 17 and 23, and by `torch.export` (`dynamo`) for 18, 20 and 23; of equal graphs the first is kept, without notes of where
in the source a node came from. Beside them stand an input and what PyTorch computes of it. Tests need none of that: `read` takes them from the archive.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ARCHIVE = Path(__file__).parent / "data" / "exported.zip"
TORCHSCRIPT, DYNAMO = (11, 14, 17, 23), (18, 20, 23)


class Exported(NamedTuple):
    """A model by one exporter: its bytes, its inputs in order, and PyTorch's result."""

    onnx: bytes
    inputs: tuple[np.ndarray, ...]
    result: np.ndarray


def names() -> list[str]:
    """All of them, as ``gelu.ts.11``."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        return [name.removesuffix(".onnx") for name in archive.namelist() if name.endswith(".onnx")]


def read(name: str) -> Exported:
    """One of them."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        values = np.load(io.BytesIO(archive.read(f"{name.partition('.')[0]}.npz")))
        inputs = tuple(values[key] for key in values.files if key != "result")
        return Exported(archive.read(f"{name}.onnx"), inputs, values["result"])


def models() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """The modules and their inputs by name."""
    import torch
    from torch import nn
    from torch.nn import functional as f

    class Of(nn.Module):
        """A function of inputs, and of a gain and a bias where it takes these."""

        def __init__(self, function: Any, gain: bool = False, bias: bool = False):
            super().__init__()
            self.function = function
            self.own = nn.ParameterList([nn.Parameter(torch.rand(8) + 0.5) for _ in range(gain + bias)])

        def forward(self, *inputs):
            return self.function(*inputs, *self.own)

    class SelfAttention(nn.MultiheadAttention):
        """Of one input, by the fast path or the other."""

        def __init__(self, weights: bool):
            super().__init__(8, 2, batch_first=True)
            self.weights = weights

        def forward(self, x):
            return super().forward(x, x, x, need_weights=self.weights)[0]

    def own_layernorm(x, gain, bias):
        mean, variance = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
        return (x - mean) / torch.sqrt(variance + 1e-5) * gain + bias

    def attention(mask=lambda scores: scores, before=False):
        def of(q, k, v, *m):
            root = q.shape[-1] ** 0.5
            scores = (q / root) @ k.transpose(-2, -1) if before else q @ k.transpose(-2, -1) / root
            return torch.softmax(mask(scores, *m), -1) @ v

        return Of(of)

    sdpa = f.scaled_dot_product_attention
    below = torch.tril(torch.ones(5, 5)).view(1, 1, 5, 5)
    torch.manual_seed(0)
    x = (2 * torch.randn(2, 3, 8),)
    q, k, v = qkv = tuple(torch.randn(2, 2, 5, 8) for _ in range(3))
    seen = (torch.rand(2, 1, 5, 5) > 0.3).float()
    seen[..., 0] = 1
    masked, biased = (*qkv, seen), (*qkv, (1 - seen) * -1e4)
    return {
        "gelu": (nn.GELU(), x),
        "gelu-tanh": (nn.GELU("tanh"), x),
        # transformers: GELUActivation, NewGELUActivation, FastGELUActivation, QuickGELUActivation
        "gelu-python": (Of(lambda x: x * 0.5 * (1.0 + torch.erf(x / 2**0.5))), x),
        "gelu-new": (Of(lambda x: 0.5 * x * (1.0 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * torch.pow(x, 3.0))))), x),
        "gelu-fast": (Of(lambda x: 0.5 * x * (1.0 + torch.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x)))), x),
        "gelu-quick": (Of(lambda x: x * torch.sigmoid(1.702 * x)), x),
        "silu": (nn.SiLU(), x),
        "hardswish": (nn.Hardswish(), x),
        "hardswish-product": (Of(lambda x: x * f.relu6(x + 3) / 6), x),
        "hardswish-quotient": (Of(lambda x: x * (f.relu6(x + 3) / 6)), x),
        "hardswish-sigmoid": (Of(lambda x: x * f.hardsigmoid(x)), x),
        "mish": (nn.Mish(), x),
        "layernorm": (nn.LayerNorm(8), x),
        "layernorm-plain": (nn.LayerNorm(8, elementwise_affine=False), x),
        "layernorm-own": (Of(own_layernorm, True, True), x),
        "rmsnorm": (nn.RMSNorm(8), x),
        # transformers: LlamaRMSNorm, GemmaRMSNorm
        "rmsnorm-llama": (Of(lambda x, g: g * (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)), True), x),
        "rmsnorm-gemma": (Of(lambda x, g: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * (1.0 + g), True), x),
        "rmsnorm-quotient": (Of(lambda x, g: x / torch.sqrt(torch.mean(x * x, -1, keepdim=True) + 1e-5) * g, True), x),
        "attention": (attention(), qkv),
        "attention-before": (attention(before=True), qkv),
        "attention-bias": (attention(lambda s, m: s + m), biased),
        "attention-fill": (attention(lambda s, m: s.masked_fill(m == 0, -1e9)), masked),
        "attention-infinite": (attention(lambda s, m: s.masked_fill(m == 0, float("-inf"))), masked),
        "attention-causal": (attention(lambda s: s.masked_fill(below == 0, float("-inf"))), qkv),
        "sdpa": (Of(sdpa), qkv),
        "sdpa-bias": (Of(lambda q, k, v, m: sdpa(q, k, v, attn_mask=m)), biased),
        "sdpa-bool": (Of(lambda q, k, v, m: sdpa(q, k, v, attn_mask=m > 0)), masked),
        "sdpa-causal": (Of(lambda q, k, v: sdpa(q, k, v, is_causal=True)), qkv),
        "sdpa-groups": (Of(lambda q, k, v: sdpa(q, k, v, enable_gqa=True)), (q, k[:, :1], v[:, :1])),
        "mha": (SelfAttention(False), x),
        "mha-weights": (SelfAttention(True), x),
    }  # fmt: skip


def _graph_of(model: Any) -> str:
    """What tells a graph from another: its nodes, without names."""
    parts = [(n.op_type, len(n.input), *sorted(a.name for a in n.attribute)) for n in model.graph.node]
    return repr([part for part in parts if part[0] not in ("Constant", "Identity")])


def _plain(data: bytes) -> Any:
    """The model without what only people read."""
    import onnx

    model = onnx.load_from_string(data)
    del model.metadata_props[:], model.functions[:]
    for part in (model.graph, *model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output):
        del part.metadata_props[:]
        part.doc_string = ""
    del model.graph.value_info[:]
    onnx.checker.check_model(model)
    return model


def write() -> None:
    """The archive, anew: torch and onnxscript are needed."""
    import torch

    with zipfile.ZipFile(ARCHIVE, "w", zipfile.ZIP_DEFLATED) as archive:

        def add(name: str, data: bytes) -> None:
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)

        for name, (module, inputs) in models().items():
            module.eval()
            with torch.no_grad():
                result = module(*inputs)
            values = io.BytesIO()
            np.savez(values, *(x.numpy() for x in inputs), result=result.numpy())
            add(f"{name}.npz", values.getvalue())
            seen = set()
            for exporter, opset in [*(("ts", n) for n in TORCHSCRIPT), *(("dynamo", n) for n in DYNAMO)]:
                file, more = io.BytesIO(), {} if exporter == "ts" else {"verbose": False}
                try:
                    made = torch.onnx.export(
                        module,
                        inputs,
                        file if exporter == "ts" else None,
                        dynamo=exporter == "dynamo",
                        opset_version=opset,
                        **more,
                    )
                except (torch.onnx.errors.UnsupportedOperatorError, AssertionError):
                    continue  # which an opset, or an exporter, does not have
                model = _plain(file.getvalue() if made is None else made.model_proto.SerializeToString())
                if (graph := _graph_of(model)) not in seen:
                    seen.add(graph)
                    add(f"{name}.{exporter}.{opset}.onnx", model.SerializeToString(deterministic=True))


if __name__ == "__main__":
    write()
