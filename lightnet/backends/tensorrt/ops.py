"""The ops that the expander description makes, and that the op table has not: read from `ops.op`."""

from __future__ import annotations

from lightnet.ir.registry import resolve

BN2SCALE_WTS_CPU, SCALE_TENSORRT, DOT_PRODUCT_CUDA = resolve("lightnet.descriptions.operators:packaged_operators")(
    "lightnet.backends.tensorrt:ops.op"
)
