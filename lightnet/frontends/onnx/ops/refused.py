"""Ops that are refused for what they are, each with its reason; any other op without a handler may only be missing. Imports the table of handlers."""

from __future__ import annotations

from typing import NoReturn

from lightnet.frontends.graph import Value
from lightnet.frontends.onnx.node import Node, onnx_op
from lightnet.frontends.onnx.ops.training import TRAINING

TEXT = "it computes text, and a network has tensors of numbers: do that before the network"


@onnx_op("StringNormalizer", "StringConcat", "StringSplit", "RegexFullMatch", sequences=True)
def texts(n: Node, *inputs: Value | None) -> NoReturn:
    n.unsupported(TEXT)


@onnx_op("ImageDecoder")
def image_decoder(n: Node, *inputs: Value | None) -> NoReturn:
    n.unsupported("it decodes a file of a picture, whose size follows from the bytes: do that before the network")


@onnx_op("Gradient", domain=TRAINING)
def gradient(n: Node, *inputs: Value | None) -> NoReturn:
    n.unsupported("it asks for derivatives, which a compiled network does not have")
