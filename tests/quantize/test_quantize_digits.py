"""Accuracy of networks that were trained: a convolutional one and a transformer that read handwritten digits lose at
most half a point in 8 bits, by whatever runtime and method."""

from __future__ import annotations

from functools import cache
from typing import Any

import digit_networks
import numpy as np
import onnx
import onnxruntime
import pytest
from digit_networks import TRAINED, accuracy, digits
from onnx.reference import ReferenceEvaluator

import lightnet
from lightnet_quantize import QuantizeOptions, quantize

pytestmark = pytest.mark.slow
#: Points of accuracy that 8 bits may cost.
MOST_LOST = 0.5


@cache
def trained(name: str) -> tuple[onnx.ModelProto, float]:
    """The network, and its accuracy in float32, by ONNX Runtime."""
    model = getattr(digit_networks, name)()
    logits = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": digits()[0][TRAINED:]})[0]
    return model, accuracy(logits)


@pytest.mark.parametrize(
    "options",
    [{}, {"method": "percentile"}, {"method": "mse", "weight_method": "mse"}, {"activation_type": "s8", "symmetric": "both"},
     {"per_channel": False}, {"weight_type": "u8", "symmetric": "none"}, {"reduce_range": True}],
    ids=lambda o: "-".join(map(str, o.values())) or "default",
)  # fmt: skip
@pytest.mark.parametrize("name", ["cnn", "transformer"])
def test_eight_bits_lose_half_a_point_at_most(name: str, options: dict[str, Any]) -> None:
    """By LightNet and ONNX's reference evaluator; with weights of 7 bits by ONNX Runtime, too, whose products of others
    saturate on processors without VNNI."""
    model, float32 = trained(name)
    assert float32 > 94
    found = quantize(model, {"x": digit_networks.calibration()}, QuantizeOptions(report_samples=0, **options)).model
    feeds = {"x": digits()[0][TRAINED:]}
    by = {
        "lightnet": lightnet.compile(found)(feeds)["y"],
        "reference": ReferenceEvaluator(found).run(None, feeds)[0],
    }
    if "reduce_range" in options:
        by["onnxruntime"] = onnxruntime.InferenceSession(found.SerializeToString()).run(None, feeds)[0]
    lost = {runtime: float32 - accuracy(logits) for runtime, logits in by.items()}
    half_used = "both" in options.values()  # what a ReLU makes has 7 bits where 0 is in the middle
    assert max(lost.values()) <= MOST_LOST * (1 + half_used), lost
    print(name, options, f"{float32:.2f}", {runtime: round(value, 2) for runtime, value in lost.items()})


@pytest.mark.parametrize("name", ["cnn", "transformer"])
def test_the_report_says_as_much(name: str) -> None:
    """The classes of the report's samples agree as often as those of ONNX's reference evaluator do."""
    model, _ = trained(name)
    pictures = digit_networks.calibration()
    found = quantize(model, {"x": pictures}, QuantizeOptions())
    assert found.report is not None
    want, got = (ReferenceEvaluator(m).run(None, {"x": pictures})[0].argmax(1) for m in (model, found.model))
    assert found.report.agreement["y"] == pytest.approx(np.mean(want == got), abs=1.5 / len(pictures))
