"""Empty tensors go through every op (`empty_ops.py`): a dimension of 0 wherever that infers, on every target, beside ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from empty_ops import OPS, TARGETS, cases, differences, onnxruntime_differences

import lightnet
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.dialect import optypes
from lightnet.frontends import mlir
from lightnet.ir.context import make_context
from lightnet.ir.passes import parse_pipeline, run_pipeline
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


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_windows_that_no_division_agrees_on(op):
    """A window of 2 on 1 element, by steps of 2: none by ONNX's formula, one by C's division (ONNX Runtime). By steps of 1 it is none by both; rounded
    up it is one."""
    onnx = pytest.importorskip("onnx")
    h = onnx.helper

    def dims(stride: int, ceil: int) -> tuple[int, ...]:
        node = h.make_node(op, ["x"], ["y"], kernel_shape=[2], strides=[stride], **({"ceil_mode": 1} if ceil else {}))
        graph = h.make_graph(
            [node], "g", [h.make_tensor_value_info("x", 1, [1, 3, 1])], [h.make_empty_tensor_value_info("y")]
        )
        model = h.make_model(graph, opset_imports=[h.make_opsetid("", 22)])
        return lightnet.load(model).main.function_type.outputs.data[0].get_shape()

    with pytest.raises(
        LightNetError, match="its window of 2 should fit into an axis of 1 elements with padding 0 and 0"
    ) as raised:
        dims(2, 0)
    assert raised.value.label == "onnx.empty-window"  # which fuzzers know as a refusal on purpose
    assert dims(1, 0) == (1, 3, 0) and dims(2, 1) == (1, 3, 1)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_window_without_pixels_in_the_middle_of_a_kernel(target):
    """As nobody but a module's author puts it there: `expand` makes zeros of it."""
    text = f"""func.func @main() -> tensor<1x8x2x1xf32> {{
      %x = ln.input : tensor<1x8x2x1xf32> as ("x")
      %y = {target}.kernel(%a = %x) {{
        %0 = ln.slice %a {{axis = 2, start = 0, len = 0}} : tensor<1x8x0x1xf32>
        %1 = ln.maxpool2d %0 {{size = [1, 1], stride = [1, 1]}} : tensor<1x8x0x1xf32>
        %2 = ln.concat %1, %a {{axis = 2}} : tensor<1x8x2x1xf32>
        ln.yield %2
      }} as ("y")
      func.return %y : tensor<1x8x2x1xf32>
    }}"""
    module = mlir.read(text, "net.mlir")
    options = "" if target == "cpu" else "{target=cuda}"
    steps = [*(f"{step}{options}" for step in ("layout", "choose", "pack")), "plan", f"lower-{target}"]
    run_pipeline(make_context(), module, parse_pipeline(",".join(steps)), verify_each=True)


@pytest.mark.parametrize("mode", ["TL_NEAREST", "TL_LINEAR"])
def test_an_empty_upsample_within_a_kernel(mode):
    """Fused by hand, which passes do not do: it is a kernel that writes nothing."""
    body = f'%r = ln.relu %a : tensor<1x2x4xf32> %u = ln.upsample %r {{mode = "{mode}", scales = [1, 0.3, 2]}} : tensor<1x0x8xf32>'
    kernel = (
        f"%k = cpu.kernel(%a = %x) {{ {body} %s = ln.relu %u : tensor<1x0x8xf32> ln.yield %s }} : tensor<1x0x8xf32>"
    )
    text = f"func.func @main() -> tensor<1x0x8xf32> {{ %x = ln.input : tensor<1x2x4xf32> {kernel} return %k : tensor<1x0x8xf32> }}"
    (found,) = lightnet.compile(loads(text, ".mlir"))(np.ones((1, 2, 4), np.float32)).values()
    assert found.shape == (1, 0, 8)


def test_a_definition_that_fails_has_the_place_of_its_op(monkeypatch):
    from lightnet.backends.kernel_loops import bind_op
    from lightnet.dialects.ln.elementwise import Relu

    text = "func.func @main() -> tensor<7x11xf32> {\n  %x = ln.input : tensor<7x11xf32>\n  %y = ln.relu %x : tensor<7x11xf32>\n"
    module = loads(text + "  return %y : tensor<7x11xf32>\n}", ".mlir").module
    (op,) = (op for op in module.walk() if isinstance(op, Relu))
    monkeypatch.setattr(Relu, "definition", "dst[i...] = src[i / 0...]")
    with pytest.raises(LightNetError) as error:
        bind_op(op)
    assert error.value.loc is not None and error.value.loc.line == 3 and error.value.message.startswith("ln.relu: ")
    assert "in its definition: dst[i...] = src[i / 0...]" in str(error.value)
