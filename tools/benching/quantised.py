"""Networks that ONNX Runtime's own tools quantised, as files: what people deploy on processors.

A name is that of a network and a form: ``resnet18-qdq``. Weights are i8 by channel; activations, calibrated with noise, are ui8
(``s8``: i8). Imports onnxruntime, and onnx, when a file is made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benching import networks

CONVOLUTIONAL, TRANSFORMERS = (
    ("squeezenet1.1", "mobilenetv2", "resnet18", "resnet50", "tiny-yolo"),
    ("bert-mini", "vit-tiny"),
)
#: Forms of quantised networks: Q/DQ pairs, the same of i8, QLinear ops, and maxima that a run finds.
STATIC, DYNAMIC = ("qdq", "s8", "qop"), "dyn"
NAMES = (*(f"{n}-{form}" for n in (*CONVOLUTIONAL, *TRANSFORMERS) for form in STATIC),
         *(f"{n}-{DYNAMIC}" for n in TRANSFORMERS))  # fmt: skip
#: Batches of noise that ranges are found from.
BATCHES = 4


def write(name: str, folder: Path) -> Path:
    """The quantised network of `NAMES` as a file below `folder`, written once."""
    network, _, form = name.rpartition("-")
    version = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    path = folder / f"quantised-{version}" / f"{name}.onnx"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _quantise(_floats(network, folder), path, form)
    return path


def _floats(network: str, folder: Path) -> Path:
    if network in TRANSFORMERS:
        from suites import transformers

        return transformers.write(network, folder)
    return Path(networks.prepare(networks.NETWORKS[network], network, reference=False).onnx)


def _quantise(source: Path, target: Path, form: str) -> None:
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    ready = target.with_suffix(".ready")
    quant_pre_process(str(source), str(ready), skip_symbolic_shape=True)
    if form == DYNAMIC:
        quantize_dynamic(str(ready), str(target), per_channel=True)
    else:
        kind = QuantFormat.QOperator if form == "qop" else QuantFormat.QDQ
        types = {
            "activation_type": QuantType.QInt8 if form == "s8" else QuantType.QUInt8,
            "weight_type": QuantType.QInt8,
        }
        quantize_static(str(ready), str(target), _Noise(ready), quant_format=kind, per_channel=True, **types)
    ready.unlink()


class _Noise:
    """Calibration data as ONNX Runtime reads them."""

    def __init__(self, path: Path):
        import onnx

        graph = onnx.load(path, load_external_data=False).graph
        known, rng = {i.name for i in graph.initializer}, np.random.default_rng(0)

        def drawn(tensor: onnx.TypeProto.Tensor) -> np.ndarray:
            dims = [d.dim_value or 1 for d in tensor.shape.dim]
            floats = tensor.elem_type == onnx.TensorProto.FLOAT
            return rng.standard_normal(dims).astype(np.float32) if floats else rng.integers(0, 100, dims)

        inputs = [i for i in graph.input if i.name not in known]
        self.batches: Iterator[dict[str, np.ndarray]] = iter(
            [{i.name: drawn(i.type.tensor_type) for i in inputs} for _ in range(BATCHES)]
        )

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.batches, None)
