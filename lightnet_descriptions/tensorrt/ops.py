"""The ops that the expander description makes, and that the op table has not: read from `ops.op`."""

from __future__ import annotations

from lightnet_descriptions.operators import packaged_operators

BN2SCALE_WTS_CPU, SCALE_TENSORRT, DOT_PRODUCT_CUDA = packaged_operators("lightnet_descriptions.tensorrt:ops.op")
