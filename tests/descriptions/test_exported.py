"""What PyTorch's exporters really write (`exported.py`): activations and norms become one op, attention the fewest kernels, and PyTorch's results come out."""

from __future__ import annotations

import numpy as np
import pytest
from exported import names, read

import lightnet
from lightnet.ir.kernel import KernelOp
from lightnet.ir.module import main_of

#: The op that a model is, and what stays beside it: gains and biases.
ONE_OP = {"gelu": "ln.gelu", "silu": "ln.silu", "hardswish": "ln.hard_swish", "mish": "ln.mish", "layernorm": "ln.layernorm", "rmsnorm": "ln.rmsnorm",
          "gelu-quick": "ln.silu"}  # fmt: skip
BESIDE = {"ln.input", "ln.param", "ln.constant", "ln.mul", "ln.add", "ln.forward", "func.return"}
#: The kernels of attention whose scale and mask stand in those of the product: K turned over, the product, the softmax, the product with V.
LEAST = 4
#: Kernels beside these, by model and exporter: of a mask that is made of an input, of a scale of Q or K, of what holds zeros where all is masked, of
#: projections and heads.
MORE = {
    "attention-before": 1, "attention-fill": 1, "attention-infinite": 1, "sdpa.ts": 1, "sdpa.dynamo.18": 1,
    "sdpa-bias.ts": 1, "sdpa-bias.dynamo.18": 1, "sdpa-bias.dynamo.23": 2,
    "sdpa-causal.ts": 1, "sdpa-causal.dynamo.18": 1, "sdpa-bool": 3, "sdpa-groups.dynamo.18": 5, "sdpa-groups.dynamo.23": 4, "mha": 8, "mha-weights": 8,
}  # fmt: skip


def expected_of(name: str, table: dict):
    """The entry of the longest part of a name that has one."""
    parts = name.split(".")
    return next(
        (table[key] for n in (3, 2, 1) if (key := ".".join(parts[:n])) in table), table.get(name.partition("-")[0])
    )


def model_of(name: str) -> lightnet.Model:
    return lightnet.loads(read(name).onnx, ".onnx")


def check_result(name: str, model: lightnet.Model) -> None:
    found, run = read(name), lightnet.compile(model)
    (got,) = run(dict(zip(run.inputs, found.inputs, strict=True))).values()
    np.testing.assert_allclose(got, found.result, rtol=2e-5, atol=2e-6)


ATTENTION = [name for name in names() if name.startswith(("attention", "sdpa", "mha"))]
OTHERS = [name for name in names() if name not in ATTENTION]


@pytest.mark.parametrize("name", OTHERS)
def test_one_op_is_recognised(name):
    """Whatever the exporter and the opset."""
    model = model_of(name)
    model.run("bind,simplify,recognize{rules=norms,activations}")
    ops = [op.name for op in main_of(model.module).body.block.ops]
    op = expected_of(name, ONE_OP)
    assert ops.count(op) == 1 and set(ops) <= BESIDE | {op}
    check_result(name, model)


@pytest.mark.parametrize("name", ATTENTION)
def test_scale_and_mask_stand_in_the_kernels_of_products(name):
    """In no kernel of their own, but for what the table says."""
    check_result(name, model := model_of(name))
    model.run("@cpu:kernels")
    kernels = [op for op in main_of(model.module).body.block.ops if isinstance(op, KernelOp)]
    assert len(kernels) == LEAST + (expected_of(name, MORE) or 0), [[o.name for o in k.ops] for k in kernels]


def test_each_exporter_is_there():
    """Of every model both, but where one has no such op."""
    assert {name.partition(".")[0] for name in names()} == {
        name.partition(".")[0] for name in names() if ".dynamo." in name or ".ts." in name
    }
    assert {".ts." in name for name in ATTENTION} == {".ts." in name for name in OTHERS} == {True, False}
