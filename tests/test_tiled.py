"""The register-tiled kernels against the NumPy references, at the ops' own ugly shapes."""

from __future__ import annotations

import numpy as np
import pytest
from kernels import agree, op_of, run_native

from lightnet.backends.cpu import tiled
from lightnet.dialects.cpu import CpuKernelOp
from lightnet.dialects.ln.conv import Conv2d, Deconv2d
from lightnet.dialects.ln.pool import Avgpool2d, Maxpool2d

CASES = [(cls, i) for cls in (Conv2d, Deconv2d, Maxpool2d, Avgpool2d) for i in range(len(cls.samples()))]


@pytest.mark.parametrize("cls, index", CASES, ids=lambda v: getattr(v, "optype", str(v)))
@pytest.mark.parametrize("width", [16, 8])
def test_window_kernels(cls, index, width):
    op, arrays = op_of(cls, cls.samples()[index], index)
    if not tiled.accepts([op]):
        pytest.skip("left to the generic loops")
    kernel = CpuKernelOp.wrap([op])
    function, grid = tiled.build(kernel, "k", width, {})
    (got,) = run_native(function, grid, arrays, op.result_specs, workspace=tiled.workspace_bytes(kernel, width))
    agree(got, np.asarray(op.reference(*arrays)))
