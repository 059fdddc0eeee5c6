"""Ops that are refused for what they are, each with its reason; any other op without a handler may only be missing."""

from __future__ import annotations

from lightnet.frontends.onnx.model import TRAINING

_TEXT = "it computes text inside of a subgraph or a function, and only the graph itself has a host part for that"

#: The reason by domain and name.
REASONS = {("", name): _TEXT for name in ("StringNormalizer", "StringConcat", "StringSplit", "RegexFullMatch")} | {
    (
        "",
        "ImageDecoder",
    ): "it decodes a file of a picture, whose size follows from the bytes: do that before the network",
    (TRAINING, "Gradient"): "it asks for derivatives, which a compiled network does not have",
}
