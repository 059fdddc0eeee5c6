"""Empty tensors go through every op (`empty_ops.py`): a dimension of 0 wherever that infers, on every target, beside ONNX Runtime."""

from __future__ import annotations

import pytest
from empty_ops import OPS, TARGETS, cases, differences, onnxruntime_differences

from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.dialect import optypes
from lightnet.model import loads

#: Ops of which no tensor can be empty.
NEVER = {"pick1d", "rearange"}
#: What was refused until its results could be empty.
WINDOWS = ["conv2d", "conv", "deconv2d", "deconv", "maxpool2d", "maxpool", "maxpool_index", "avgpool2d", "avgpool", "resize",
           "upsample", "interpolate", "grid_sample", "roi_align", "roi_pool", "argmax", "maxreduce_arg"]  # fmt: skip


def test_every_op_takes_an_empty_tensor():
    assert {name for name in OPS if not cases(name, 1)} == NEVER
    assert set(OPS) <= set(optypes())


@pytest.mark.parametrize("target", ["interpreter", "cpu"])
def test_one_case_of_each_op(target):
    assert not differences(list(OPS), target, most=1)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_windows_without_pixels(target):
    assert not differences(WINDOWS, target, most=2)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", OPS)
def test_all_cases(name, target):
    assert not differences(name, target)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPS)
def test_onnxruntime_agrees(name):
    pytest.importorskip("onnxruntime")
    _, wrong = onnxruntime_differences(name)
    assert not wrong, wrong


@pytest.mark.parametrize(
    "op, dims",
    [
        ("%y = ln.maxpool2d %x {size = [3, 3], padding = [2, 2, 2, 2]}", "1x2x2x2"),  # a position, and no pixel
        ("%y = ln.maxpool2d %x {size = [6, 6], padding = [1, 1, 1, 1]}", "1x2x0x0"),  # less than no position
        ("%y = ln.argmax %x {axis = 2}", "1x2x1x0"),
    ],
)
def test_what_would_pick_from_nothing_is_refused(op, dims):
    source = "1x2x0x0" if "maxpool" in op else "1x2x0x1"
    result = dims if "maxpool" in op else "1x2x1x1"
    kind = "f32" if "maxpool" in op else "i64"
    text = f"""func.func @main() -> tensor<{result}x{kind}> {{
      %x = ln.input {{required = true}} : tensor<{source}xf32> as "i"("x")
      {op} : tensor<{result}x{kind}>
      func.return %y : tensor<{result}x{kind}> }}"""
    with pytest.raises(LightNetError, match=r"position|no elements to pick"):
        loads(text, ".mlir")
