"""Quantisation of networks after training: float32 ONNX in, QDQ ONNX in 8-bit integers out (docs/quantize.md).

    from lightnet_quantize import QuantizeOptions, quantize
    quantized = quantize("net.onnx", "calib.npz", QuantizeOptions(method="mse"))
    quantized.save("q.onnx")

`options` has the choices, `source` reads and writes models, `prepare` folds what is constant, `placement` decides what
becomes an integer, `histograms` and `ranges` have the mathematics, `calibration` runs the float network on data,
`rewriting` writes the QDQ form, `report` says what each layer costs, `quantizer` leads through these, and `command` is
`lightnet quantize`. Imports the package; onnx inside of functions.
"""

from __future__ import annotations

from lightnet_quantize.options import QuantizeOptions
from lightnet_quantize.quantizer import Quantized, quantize

__all__ = ["QuantizeOptions", "Quantized", "quantize"]
