"""Register-tiled matrix products against NumPy, alone and with an epilogue."""

from __future__ import annotations

import numpy as np
import pytest
from kernels import agree, op_of, run_native
from test_tiled import fused
from xdsl.ir import Block

from lightnet.backends.cpu import gemm
from lightnet.backends.cpu.plain import accepts
from lightnet.dialects.cpu import CpuKernelOp
from lightnet.dialects.ln.arith import Add
from lightnet.dialects.ln.elementwise import Lrelu
from lightnet.dialects.ln.matmul import Matmul
from lightnet.ir.body import Body
from lightnet.ir.op import case
from lightnet.ir.types import TensorSpec, tensor_type

CASES = range(len(Matmul.samples()))


@pytest.mark.parametrize("index", CASES)
@pytest.mark.parametrize("width", [16, 8])
def test_products(index, width):
    op, arrays = op_of(Matmul, Matmul.samples()[index], index)
    spec = op.result_specs[0]
    tiles = spec.dtype.name in ("f32", "f64") and spec.dims[-1] > 1 and op.operand_specs[0].len > 0
    assert bool(gemm.accepts([op])) == tiles
    if not gemm.accepts([op]):
        pytest.skip("left to the generic loops")
    kernel = CpuKernelOp.wrap([op])
    launch = gemm.build(kernel, "k", width, {})
    (got,) = run_native(
        launch.function, launch.grid, arrays, op.result_specs, workspace=gemm.workspace_bytes(kernel, width)
    )
    agree(got, np.matmul(*arrays), 1e-5)


#: (a, b, what is added to the product): along columns, along rows, for each matrix of a batch, as large as the result.
EPILOGUES = [
    ((5, 7, 20), (20, 33), (33,)),  # the batch counts as rows, which reads along columns alone leave possible
    ((5, 7, 20), (20, 33), (5, 7, 33)),
    ((40, 20), (20, 33), (40, 1)),
    ((2, 3, 10, 8), (2, 3, 8, 19), (2, 1, 1, 19)),
    ((2, 3, 10, 8), (3, 8, 19), (3, 10, 1)),
    ((1, 1, 8), (1, 8, 40), (1, 1, 1)),
]


@pytest.mark.parametrize("a, b, c", EPILOGUES)
@pytest.mark.parametrize("width", [16, 8])
def test_epilogues(a, b, c, width):
    """Addition of a smaller tensor, an activation, and a tensor of the result's shape, in place of the latter."""
    op, arrays = op_of(Matmul, case(a=a, b=b))
    spec = op.result_specs[0]
    extra = Block(arg_types=[tensor_type(TensorSpec(c, spec.dtype)), tensor_type(spec)])
    bias, residual = extra.args
    added = Add.make([op.dst, bias])
    activated = Lrelu.make([added.dst], {"negslope": 0.1})
    total = Add.make([residual, activated.dst])
    ops = [op, added, activated, total]
    assert gemm.accepts(ops)
    assert accepts(Body(tuple(ops), (total.dst,))) == "anchor"
    rng = np.random.default_rng(0)
    arrays += [rng.standard_normal(d).astype(np.float32) for d in (c, spec.dims)]
    kernel = fused(ops, [*op.operands, bias, residual])
    launch = gemm.build(kernel, "k", width, {0: 3})
    workspace = gemm.workspace_bytes(kernel, width)
    (got,) = run_native(launch.function, launch.grid, arrays, [spec], aliases={0: 3}, workspace=workspace)
    want = np.matmul(arrays[0], arrays[1]) + arrays[2]
    agree(got, np.where(want < 0, want * np.float32(0.1), want) + arrays[3], 1e-5)


def test_what_an_epilogue_cannot_be():
    """Where a batch counts as rows, a value for each matrix of the batch cannot be read; the two stay apart."""
    op, _ = op_of(Matmul, case(a=(5, 7, 20), b=(20, 33)))
    extra = Block(arg_types=[tensor_type(TensorSpec((5, 1, 1), op.result_specs[0].dtype))])
    added = Add.make([op.dst, extra.args[0]])
    assert not gemm.accepts([op, added])
    assert not accepts(Body((op, added), (added.dst,)))
