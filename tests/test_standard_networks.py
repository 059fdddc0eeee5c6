"""The standard networks of examples/nets have the published structure, and compute what ONNX Runtime computes on their export."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import lightnet
from lightnet.dialects.ln.source import Source
from lightnet.ir.op import LnOp
from lightnet_debug import costs

ROOT = Path(__file__).parent.parent
NETS = ROOT / "examples" / "nets"

#: Multiply-adds and learned parameters. Those of squeezenet1.1 to resnet50 are torchvision's (its documentation has 0.35, 0.30, 1.81
#: and 4.09 G, and the parameters as they stand here); those of tiny-yolo are the numbers in the authors' weight file, where means
#: and variances count. The others follow from the layers.
PUBLISHED = {
    "mlp": (784 * 512 + 512 * 256 + 256 * 10, 785 * 512 + 513 * 256 + 257 * 10),
    "lenet": (28 * 28 * 6 * 25 + 10 * 10 * 16 * 150 + 400 * 120 + 120 * 84 + 84 * 10, 61_706),
    "squeezenet1.1": (349_151_936, 1_235_496),
    "mobilenetv2": (300_774_272, 3_504_872),
    "resnet18": (1_814_073_344, 11_689_512),
    "resnet50": (4_089_184_256, 25_557_032),
    "tiny-yolo": (3_485_520_896, 15_867_885),
}
SLOW = ("mobilenetv2", "resnet18", "resnet50", "tiny-yolo")
RUN = [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in PUBLISHED]


@pytest.mark.parametrize("name", PUBLISHED)
def test_structure_is_the_published_one(name: str) -> None:
    ops = [op for op in lightnet.load(NETS / f"{name}.net").main.walk() if isinstance(op, LnOp)]
    macs, learned = PUBLISHED[name]
    assert sum(map(costs.macs, ops)) == macs
    sizes = {op.tensor_names[0]: op.result_specs[0].len for op in ops if isinstance(op, Source)}
    unlearned = ("_conv_bias",) if name == "tiny-yolo" else ("_conv_bias", "_mean", "_var")
    normed = {n.removesuffix("_scale") for n in sizes if n.endswith("_scale")}
    skipped = {f"{n}{part}" for n in normed for part in unlearned} | {"input"}
    assert sum(size for n, size in sizes.items() if n not in skipped) == learned


@pytest.mark.parametrize("name", RUN)
def test_network_agrees_with_onnxruntime(name: str) -> None:
    pytest.importorskip("onnxruntime")
    sys.path.insert(0, str(ROOT / "tools"))
    from compare_onnxruntime import compare

    model = lightnet.load(NETS / f"{name}.net")
    got = lightnet.compile(model)()
    findings = compare(model, got)
    assert findings and [f for f in findings if f.problem] == []
    assert all(f.spread > 0.01 for f in findings), "an output that hardly varies shows little"
    assert all(0.1 < np.abs(a).max() < 100 for a in got.values()), "activations vanish or explode"


def test_contents_belong_to_names_and_seed() -> None:
    def weights(seed: int) -> np.ndarray:
        model = lightnet.load(NETS / "lenet.net", seed=seed)
        op = next(op for op in model.main.walk() if isinstance(op, Source) and op.tensor_names[0] == "conv2_conv_wts")
        return op.contents(None, model.seed)

    assert np.array_equal(weights(0), weights(0)) and not np.array_equal(weights(0), weights(1))
    assert weights(0).var() == pytest.approx(2 / 150, rel=0.1), "the variance that He et al. give weights before a ReLU"
