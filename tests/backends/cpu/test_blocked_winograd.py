"""Winograd convolutions on blocked maps against the ops' references in float64 (and PyTorch where it is installed)."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from blocked_kernels import check_blocked, form_of, kernel_of, lay_out, planned
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp, StringAttr

from lightnet.backends.cpu.blocked.base import ProcessorModel
from lightnet.backends.cpu.blocked.conv import DIRECT
from lightnet.backends.cpu.blocked.winograd import WINOGRAD2, WINOGRAD4
from lightnet.backends.cpu.blocked.winograd_model import OUTPUTS, PANELS, TILES, winograd_schedule_of
from lightnet.backends.llvm.emitter import TargetVectors, emit_module
from lightnet.diagnostics import LightNetError
from lightnet.ir import winograd
from lightnet.ir.layout import Layout, Packed
from lightnet.ir.types import ParamAttr
from lightnet_trust.interpreter.loop_types import memory_dtype
from lightnet_trust.interpreter.loops import LoopProgram

GENERATORS = {2: WINOGRAD2, 4: WINOGRAD4}
PLAIN = "%y = ln.relu %s : {t} ln.yield %y"
MACHINES = {
    16: ProcessorModel(),
    8: ProcessorModel(lanes=8, registers=16, flops=118.0),
    4: ProcessorModel(lanes=4, flops=59.0),
}


def tensor(*dims: int) -> str:
    return f"tensor<{'x'.join(map(str, dims))}xf32>"


def body_of(src, outputs, size=(3, 3), pad=(1, 1, 1, 1), dilation=(1, 1), rest=PLAIN, **operands):
    """Operands and body of a convolution and what follows it; `{t}` in `rest` is the type of the result."""
    n, c, *hw = src
    dims = (n, outputs, *(hw[i] + pad[i] + pad[i + 2] - (size[i] - 1) * dilation[i] for i in (0, 1)))
    params = f"size = {list(size)}, padding = {list(pad)}, dilation = {list(dilation)}"
    types = {"x": tensor(*src), "w": tensor(outputs, c, *size), "b": tensor(outputs)}
    types |= {name: tensor(*dims) if shape is None else tensor(*shape) for name, shape in operands.items()}
    return types, f"%s = ln.conv2d %x, %w, %b {{{params}}} : {tensor(*dims)} " + rest.replace("{t}", tensor(*dims))


def check(m, src, outputs, *, choices=None, machine=MACHINES[16], out=(1, 1), extra=(0, 0), tolerance=3e-6, aliases=None,
          arrays=None, **body):  # fmt: skip
    """A convolution by F(m, 3)."""
    operands, text = body_of(src, outputs, **body)
    attributes = {k: StringAttr(v) if isinstance(v, str) else ParamAttr(v) for k, v in (choices or {}).items()}
    return check_blocked(
        GENERATORS[m], operands, text, choices=attributes, machine=machine, out=out, extra=extra, tolerance=tolerance,
        aliases=aliases, arrays=arrays,
    )  # fmt: skip


# -- the maths ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [2, 4])
def test_the_weights_matrix_is_that_of_minimal_filtering(m):
    """y = A^T ((G g) * (B^T d)) with A and B by their definition from the points, in float64."""
    points = winograd.points_of(m)
    output = np.array([[p**k for p in points] + [float(k == m - 1)] for k in range(m)])
    rows = [np.poly([q for q in points if q != p])[::-1] for p in points] + [np.poly(points)[::-1]]
    inputs = np.array([np.pad(r, (0, m + 2 - len(r))) for r in rows])
    random = np.random.default_rng(m)
    for _ in range(20):
        d, g = random.standard_normal(m + 2), random.standard_normal(3)
        got = output @ ((winograd.weight_matrix(m) @ g) * (inputs @ d))
        np.testing.assert_allclose(got, np.convolve(d, g[::-1], "valid"), atol=1e-12)


def test_the_points_of_f4_are_exact_in_f32():
    for m, pairs in winograd.PAIRS.items():
        squares = [a * a for a in pairs]
        used = [a**k for a in pairs for k in range(m)] + list(winograd.polynomial(squares))
        used += [c for i in range(len(squares)) for c in winograd.polynomial(squares[:i] + squares[i + 1 :])]
        assert all(float(np.float32(c)) == c for c in used)


@pytest.mark.parametrize("token", ["w4o32", "w2o16"])
@pytest.mark.parametrize("dims", [(33, 17, 3, 3), (1, 1, 3, 1), (64, 40, 1, 3), (5, 8, 3, 3)])
def test_packed_weights_can_be_unpacked(token, dims):
    layout = Layout.parse(token)
    assert str(layout) == token and layout.fits(dims) and not layout.is_lossless
    array = np.random.default_rng(0).standard_normal(dims).astype(np.float32)
    memory = layout.pack(array)
    assert memory.shape == layout.physical_dims(dims) and memory.dtype == np.float32
    np.testing.assert_allclose(layout.unpack(memory, dims), array, atol=2e-6)
    assert not memory[:, :, dims[1] :].any() and not memory[-1, ..., (dims[0] - 1) % layout.block + 1 :].any()


def test_windows_of_other_sizes_have_no_transform():
    assert not any(Packed("o", 32, winograd=4).fits((8, 8, *size)) for size in ((1, 1), (5, 5), (3, 2)))


# -- shapes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [2, 4])
@pytest.mark.parametrize(
    "src, outputs, pad",
    [
        ((1, 1, 1, 1), 1, (1, 1, 1, 1)),
        ((2, 3, 5, 7), 17, (1, 1, 1, 1)),
        ((1, 17, 13, 13), 24, (1, 1, 1, 1)),
        ((1, 24, 3, 3), 33, (0, 0, 0, 0)),
        ((1, 33, 4, 31), 3, (2, 1, 0, 1)),
        ((3, 16, 8, 8), 16, (0, 2, 2, 0)),
        ((1, 64, 14, 14), 64, (1, 1, 1, 1)),
        ((1, 20, 1, 29), 40, (2, 2, 2, 2)),
    ],
)
def test_windows_of_3x3(m, src, outputs, pad):
    check(m, src, outputs, pad=pad)


@pytest.mark.parametrize("m", [2, 4])
@pytest.mark.parametrize(
    "src, outputs, pad",
    [((1, 1, 1, 1), 1, (1, 1, 1, 1)), ((2, 3, 5, 7), 17, (1, 1, 1, 1)), ((1, 33, 4, 31), 3, (2, 1, 0, 1)), ((1, 200, 7, 7), 40, (1, 1, 1, 1))],
)  # fmt: skip
def test_weights_that_are_transformed_at_run_time(m, src, outputs, pad):
    """They take what plain ones do, and may round a little more: their transform is in f32."""
    check(m, src, outputs, pad=pad, choices={"order": PANELS}, tolerance=6e-6)


@pytest.mark.parametrize("m", [2, 4])
def test_weights_of_one_axis_transformed_at_run_time(m):
    check(m, (1, 17, 9, 16), 20, size=(3, 1), pad=(1, 0, 1, 0), choices={"order": PANELS})
    check(m, (1, 17, 16, 16), 18, size=(1, 3), pad=(0, 8, 0, 8), dilation=(1, 8), choices={"order": PANELS})
    check(m, (2, 9, 7, 10), 19, machine=MACHINES[8], choices={"order": PANELS}, tolerance=6e-6)


@pytest.mark.parametrize("m", [2, 4])
@pytest.mark.parametrize("src", [(1, 17, 9, 16), (2, 8, 1, 5), (1, 33, 12, 12)])
def test_windows_of_one_axis(m, src):
    check(m, src, 20, size=(3, 1), pad=(1, 0, 1, 0))
    check(m, src, 20, size=(1, 3), pad=(0, 1, 0, 1), out=(0, 2))


@pytest.mark.parametrize("m", [2, 4])
@pytest.mark.parametrize(
    "size, pad, dilation",
    [
        ((3, 1), (2, 0, 2, 0), (2, 1)),
        ((1, 3), (0, 8, 0, 8), (1, 8)),
        ((3, 1), (16, 0, 16, 0), (16, 1)),
        ((3, 3), (3, 2, 3, 2), (3, 2)),
    ],
)
def test_dilations(m, size, pad, dilation):
    for rows, columns in ((9, 11), (16, 16), (24, 7)):
        check(m, (1, 17, rows, columns), 18, size=size, pad=pad, dilation=dilation)


@pytest.mark.parametrize("lanes", [8, 4])
@pytest.mark.parametrize("m", [2, 4])
def test_other_widths(m, lanes):
    check(m, (2, 9, 7, 10), 19, machine=MACHINES[lanes])
    check(m, (1, 24, 9, 9), 12, size=(3, 1), pad=(1, 0, 1, 0), machine=MACHINES[lanes])
    operands, text = body_of((1, 24, 9, 9), 12)
    kernel = kernel_of(operands, text)
    plan = lay_out(kernel, GENERATORS[m], MACHINES[lanes])
    functions = [launch.function for launch in plan.build(kernel, "kernel", {})]
    assert f"<{lanes} x float>" in str(emit_module(ModuleOp(functions), TargetVectors(lanes)))


@pytest.mark.parametrize("m", [2, 4])
def test_sums_over_many_channels(m):
    """F(4x4, 3x3) of 512 channels stays within 1e-5 of the largest value, whatever is asked of a network."""
    check(m, (1, 512, 8, 8), 32, tolerance=5e-6)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.data())
def test_a_sweep(data):
    draw = data.draw
    size = draw(st.sampled_from([(3, 3), (3, 1), (1, 3)]))
    dilation = [draw(st.sampled_from([1, 1, 2, 3])) if k == 3 else 1 for k in size]
    pad = [draw(st.integers(0, 2 * dilation[i % 2])) if size[i % 2] == 3 else 0 for i in range(4)]
    least = [max(1, (size[i] - 1) * dilation[i] + 1 - pad[i] - pad[i + 2]) for i in (0, 1)]
    hw = [draw(st.integers(n, n + 18)) for n in least]
    src = (draw(st.integers(1, 2)), draw(st.integers(1, 40)), *hw)
    check(
        draw(st.sampled_from([2, 4])), src, draw(st.integers(1, 50)), size=size, pad=pad, dilation=dilation,
        machine=replace(MACHINES[draw(st.sampled_from([16, 8]))], threads=draw(st.integers(1, 3))),
        extra=(draw(st.integers(0, 2)), draw(st.integers(0, 2))), out=(draw(st.integers(0, 2)), draw(st.integers(0, 2))),
    )  # fmt: skip


@pytest.mark.parametrize("m", [2, 4])
@pytest.mark.parametrize(
    "src, body, choices",
    [
        ((1, 16, 5, 5), {}, {}),
        ((1, 3, 7, 6), {"pad": (0, 1, 2, 0)}, {"tiles": (1, 1), "order": OUTPUTS}),
        ((2, 17, 9, 1), {"size": (3, 1), "pad": (2, 0, 2, 0), "dilation": (2, 1)}, {}),
        ((1, 5, 3, 10), {"size": (1, 3), "pad": (0, 1, 0, 1)}, {"tiles": (2, 1)}),
    ],
)
def test_every_access_is_inside(m, src, body, choices):
    """Where tiles reach further than the map: the interpreter checks each index."""
    operands, text = body_of(src, 18, **body)
    kernel = kernel_of(operands, text)
    kernel.attributes.update({k: StringAttr(v) if isinstance(v, str) else ParamAttr(v) for k, v in choices.items()})
    for launch in lay_out(kernel, GENERATORS[m], ProcessorModel(), out=(1, 1)).build(kernel, "kernel", {}):
        types = [arg.type for arg in launch.function.body.block.args[2:]]
        arrays = [np.zeros(t.get_shape(), memory_dtype(t)) for t in types]
        program = LoopProgram(ModuleOp([launch.function]))
        program.launch(launch.function.sym_name.data, range(launch.grid), arrays)


def test_prefetches_are_hints_to_read_and_to_write():
    operands, text = body_of((1, 16, 8, 8), 32)
    kernel = kernel_of(operands, text)
    functions = [launch.function for launch in lay_out(kernel, WINOGRAD4, ProcessorModel()).build(kernel, "kernel", {})]
    ((emitted, _),) = emit_module(ModuleOp(functions), TargetVectors(16)).kernels.values()
    found = re.findall(r"call void @llvm.prefetch.p0\(ptr %\w+, i32 (.),", emitted)
    assert set(found) == {"0", "1"}


# -- epilogues ---------------------------------------------------------------------------------------------------------

EPILOGUES = {
    "none": "ln.yield %s",
    "leaky": "%y = ln.lrelu %s {negslope = 0.1} : {t} ln.yield %y",
    "hard-swish": "%y = ln.hard_swish %s : {t} ln.yield %y",
    "sigmoid": "%y = ln.sigmoid %s : {t} ln.yield %y",
    "silu": "%y = ln.silu %s : {t} ln.yield %y",
    "residual then relu": "%a = ln.add %s, %r : {t} %y = ln.relu %a : {t} ln.yield %y",
    "relu then residual": "%a = ln.relu %s : {t} %y = ln.add %a, %r : {t} ln.yield %y",
    "two results": "%y = ln.relu %s : {t} ln.yield %s, %y",
}


@pytest.mark.sampled(every=3, share=0.2)
@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("m", [2, 4])
def test_epilogues(m, name):
    rest = EPILOGUES[name]
    more = {"r": None} if "%r" in rest else {}
    check(m, (1, 20, 6, 9), 24, rest=rest, **more)
    check(m, (1, 20, 6, 9), 24, rest=rest, size=(3, 1), pad=(2, 0, 2, 0), dilation=(2, 1), **more)


def test_a_residual_in_place():
    rest = "%a = ln.add %s, %r : {t} %y = ln.relu %a : {t} ln.yield %y"
    check(4, (2, 16, 11, 9), 32, rest=rest, r=None, out=(0, 0), aliases={0: 3})


def test_the_input_as_residual():
    check(4, (1, 20, 9, 9), 20, rest="%a = ln.add %s, %x : {t} %y = ln.relu %a : {t} ln.yield %y")


# -- choices -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "choices",
    [
        {"tiles": (2, 2), "order": OUTPUTS, "share": (1,)},
        {"tiles": (3, 2), "order": OUTPUTS, "share": (2,)},
        {"tiles": (1, 5), "tile": (2, 1, 4)},
        {"tiles": (4, 4), "tile": (5, 2, 8), "order": TILES},
        {"tile": (1, 3, 8)},
    ],
)
def test_choices_change_nothing_but_rounding(choices):
    check(4, (2, 24, 17, 18), 40, choices=choices)


@pytest.mark.parametrize(
    "choices, message",
    [
        ({"order": "rows"}, "expected tiles, outputs or panels"),
        ({"tiles": (9, 1)}, "there are"),
        ({"tiles": (0, 1)}, "from 1 on"),
        ({"tile": (1, 1)}, "expected 3"),
        ({"tile": (1, 1, 3)}, "do not divide"),
        ({"tile": (4, 4, 8)}, "tiles by 4 vectors"),
        ({"order": OUTPUTS, "share": (5,)}, "share"),
    ],
)
def test_choices_that_cannot_be_are_refused(choices, message):
    with pytest.raises(LightNetError, match=message):
        check(4, (1, 24, 17, 18), 24, choices=choices)


def test_bodies_of_other_kinds_are_not_taken():
    for size, extra in (((5, 5), ""), ((3, 3), ", stride = [2, 2]"), ((1, 1), ""), ((3, 3), ", group = 2")):
        c = 4 if "group" in extra else 8
        hw = 8 if "stride" in extra else 16 + 3 - size[0]
        text = f"%s = ln.conv2d %x, %w, %b {{size = {list(size)}, padding = [1, 1, 1, 1]{extra}}} : {tensor(1, 8, hw, hw)} ln.yield %s"
        kernel = kernel_of({"x": tensor(1, 8, 16, 16), "w": tensor(8, c, *size), "b": tensor(8)}, text)
        assert form_of(WINOGRAD4, kernel) is None


# -- the model ---------------------------------------------------------------------------------------------------------


def speedup(m, channels, outputs, pixels, machine=ProcessorModel()) -> float:
    """The direct convolution's time over that of F(m, 3), by the models."""
    operands, text = body_of((1, channels, pixels, pixels), outputs)
    kernel = kernel_of(operands, text)
    return planned(DIRECT, kernel, machine).time / planned(GENERATORS[m], kernel, machine).time


def test_the_model_knows_where_winograd_wins():
    """As measured, with warm caches: 2.9, 3.35 and 2.37 for F(4x4, 3x3), 1.36 for F(2x2, 3x3) on maps of 7x7."""
    for channels, pixels in ((64, 56), (128, 28), (256, 14)):
        assert 1.9 < speedup(4, channels, channels, pixels) < 3.6
        assert speedup(4, channels, channels, pixels) > speedup(2, channels, channels, pixels)
    assert 1.1 < speedup(2, 512, 512, 7) < 1.6 and speedup(2, 512, 512, 7) > speedup(4, 512, 512, 7)


def test_the_model_knows_where_winograd_loses():
    assert speedup(4, 3, 64, 112) < 1 and speedup(4, 1, 8, 5) < 1
    at_run_time, in_memory = (speedup(4, 64, 64, 56, ProcessorModel(growth=growth)) for growth in (2.0, 4.0))
    assert 1 < at_run_time < in_memory, "where weights may not grow, they are transformed each time"


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("channels, pixels", [(64, 56), (128, 28), (256, 14), (512, 7)])
def test_grids_split_well(channels, pixels, threads):
    """No thread gets more than 1.35 times its share."""
    operands, text = body_of((1, channels, pixels, pixels), channels)
    kernel = kernel_of(operands, text)
    for m in (2, 4):
        plan = winograd_schedule_of(kernel, m, ProcessorModel(threads=threads))
        blocks = plan.all_groups if plan.order == TILES else plan.all_groups * -(-plan.panels // plan.share)
        assert -(-blocks // threads) * threads <= 1.35 * blocks


# -- another oracle ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [2, 4])
def test_pytorch_agrees(m):
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(5)
    x, w, b = (random.standard_normal(d).astype(np.float32) for d in ((1, 19, 11, 14), (21, 19, 3, 3), (21,)))
    found = torch.conv2d(*(torch.from_numpy(a).double() for a in (x, w, b)), padding=(2, 1)).numpy()
    operands, text = body_of((1, 19, 11, 14), 21, pad=(2, 1, 2, 1), rest="ln.yield %s")
    check_blocked(GENERATORS[m], operands, text, arrays=[x, w, b], expected=[found], tolerance=3e-6)
