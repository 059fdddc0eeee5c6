"""Direct convolution on blocked maps against float64 references, and against PyTorch."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from blocked_kernels import check_blocked, form_of, kernel_of, lay_out
from blocked_windows import EPILOGUES, MACHINES, convolution, tensor, with_epilogue
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from lightnet.backends.cpu.blocked import conv_model as model
from lightnet.backends.cpu.blocked.base import MACHINES as KNOWN
from lightnet.backends.cpu.blocked.base import ProcessorModel
from lightnet.backends.cpu.blocked.conv import DIRECT
from lightnet.backends.cpu.blocked.conv_choices import geometry_of
from lightnet.backends.cpu.blocked.deconv import DECONV
from lightnet.diagnostics import LightNetError
from lightnet.ir.layout import Packed
from lightnet.ir.types import ParamAttr
from lightnet.ir.windows import Axis

SAME = (1, 1, 1, 1)
SHAPES = [
    ((1, 1, 1, 1), 1, (1, 1)),
    ((1, 33, 1, 1), 80, (1, 1)),  # a matrix-vector product
    ((2, 3, 1, 1), 17, (3, 3), (1, 1), (1, 1), SAME),  # taps that are all outside but one
    ((2, 17, 7, 7), 33, (3, 3), (1, 1), (1, 1), SAME),
    ((1, 24, 13, 5), 48, (1, 1)),  # 65 pixels as one row, three vectors
    ((1, 40, 4, 29), 16, (1, 1), (2, 2)),
    ((1, 16, 9, 29), 32, (3, 3), (1, 1), (1, 1), SAME),  # a width that no tile divides
    ((1, 33, 14, 6), 24, (3, 3), (2, 2), (1, 1), (1, 0, 0, 1)),
    ((1, 5, 17, 33), 17, (2, 3), (1, 1), (1, 1), (2, 0, 1, 3)),
    ((1, 20, 16, 30), 16, (3, 3), (3, 1), (2, 3), (2, 3, 0, 1)),
    ((1, 16, 6, 40), 16, (3, 1), (1, 1), (16, 1), (16, 0, 16, 0)),  # rows of taps far outside
    ((1, 16, 6, 40), 16, (1, 3), (1, 1), (1, 16), (0, 16, 0, 16)),
    ((1, 32, 8, 9), 64, (3, 3), (1, 1), (1, 1), SAME, 2),
    ((2, 48, 5, 5), 48, (1, 1), (1, 1), (1, 1), (0, 0, 0, 0), 3),
    ((1, 8, 12, 12), 16, (7, 5), (2, 2), (1, 1), (3, 2, 3, 2)),
    ((1, 4, 3, 3), 4, (3, 3), (1, 1), (1, 1), (5, 5, 5, 5)),
    ((3, 16, 40, 3), 16, (3, 3), (1, 1), (1, 1), SAME),  # several rows in a tile
]


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("machine", MACHINES, ids=["avx512", "avx2", "neon"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_windows(shape, machine):
    src, outputs, size, *rest = shape
    check_blocked(DIRECT, *convolution(src, outputs, size, *rest), machine=machine)


@pytest.mark.sampled(every=7)
@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize(
    "src, size", [((2, 17, 5, 9), (3, 3)), ((1, 3, 1, 1), (1, 1)), ((1, 16, 5, 23), (1, 1))], ids=str
)
def test_epilogues(epilogue, src, size):
    pad = [size[0] // 2] * 4
    for outputs, extra, out in ((33, (0, 1), (1, 2)), (48, (0, 0), (0, 0))):
        body = convolution(src, outputs, size, pad=pad, epilogue=epilogue)
        check_blocked(DIRECT, *body, extra=extra, out=out, tolerance=4e-6)


@pytest.mark.parametrize(
    "src, size", [((1, 24, 7, 17), (3, 3)), ((2, 16, 5, 29), (1, 1)), ((1, 16, 1, 9), (1, 1))], ids=str
)
def test_a_result_in_the_memory_of_the_residual(src, size):
    """Tiles must not overlap then: what was overwritten would be added again."""
    body = convolution(src, 32, size, pad=[size[0] // 2] * 4, epilogue="residual")
    for machine in MACHINES:
        for halo in ((0, 0), (1, 1)):
            check_blocked(DIRECT, *body, machine=machine, extra=halo, out=halo, aliases={0: 3})
    tile = {"tile": ParamAttr((1, src[3] // 2 + 1, 1, 2))}
    check_blocked(DIRECT, *body, extra=(0, 1), out=(0, 1), choices=tile, aliases={0: 3})


@pytest.mark.parametrize("stride, pad, size, group", [(1, 1, 3, 1), (2, 3, 7, 1), (2, 0, 1, 1), (1, 2, 5, 3)])
def test_pytorch_agrees(stride, pad, size, group):
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(5)
    shapes = [(2, 48, 13, 17), (96, 48 // group, size, size), (96,)]
    x, w, b = arrays = [random.standard_normal(s).astype(np.float32) for s in shapes]
    x, w, b = (torch.from_numpy(a).double() for a in (x, w, b))
    expected = torch.nn.functional.conv2d(x, w, b, stride, pad, groups=group).relu().numpy()
    body = convolution(shapes[0], 96, (size, size), (stride, stride), pad=[pad] * 4, group=group)
    check_blocked(DIRECT, *body, arrays=arrays, expected=[expected])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.tuples(st.integers(1, 2), st.integers(1, 40), st.integers(1, 18), st.integers(1, 40)), st.integers(1, 70),
    st.tuples(st.integers(1, 5), st.integers(1, 5)), st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)), st.tuples(*[st.integers(0, 4)] * 4),
    st.sampled_from(sorted(EPILOGUES)), st.sampled_from(MACHINES), st.tuples(st.integers(0, 2), st.integers(0, 2)),
)  # fmt: skip
def test_any_window(src, outputs, size, stride, dilation, pad, epilogue, machine, halo):
    assume(all(src[2 + i] + pad[i] + pad[i + 2] > (size[i] - 1) * dilation[i] for i in (0, 1)))
    body = convolution(src, outputs, size, stride, dilation, pad, epilogue=epilogue)
    check_blocked(DIRECT, *body, extra=halo, out=halo[::-1], machine=machine, tolerance=2e-5)  # exp enlarges errors


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_choice(data):
    """Every tile, order and band that is not refused gives the same result."""
    src = tuple(data.draw(st.integers(1, m)) for m in (2, 40, 9, 30))
    size = data.draw(st.sampled_from([(1, 1), (3, 3)]))
    outputs = data.draw(st.sampled_from([16, 48, 64, 90]))
    (height, width), blocks = src[2:], -(-outputs // 16)
    halo = data.draw(st.sampled_from([(1, 1), (0, 1), (0, 0)]))
    if size == (1, 1) and halo == (0, 0):
        height, width = 1, height * width  # what the kernel makes of it
    rows = data.draw(st.integers(1, min(height, 4))) if size == (1, 1) or halo[0] else 1
    columns = data.draw(st.integers(1, min(width, 14 // rows)))
    vectors = data.draw(st.sampled_from([v for v in (1, 2, 3, 6) if blocks % v == 0 and v * rows * columns <= 28]))
    band = [
        data.draw(st.sampled_from([whole, *range(step, whole, step)]))
        for whole, step in ((height, rows), (width, columns))
    ]
    choices = {
        "tile": ParamAttr((rows, columns, vectors, data.draw(st.sampled_from([1, 2, 4, 8])))),
        "order": ParamAttr(data.draw(st.sampled_from(["outputs", "rows"]))),
        "band": ParamAttr(band),
    }
    body = convolution(
        src, outputs, size, pad=[size[0] // 2] * 4, epilogue=data.draw(st.sampled_from(["none", "sigmoid"]))
    )
    kernel = check_blocked(DIRECT, *body, extra=halo if size == (1, 1) else (halo[0], 0), out=halo, choices=choices)
    assert all(kernel.attributes[k] == v for k, v in choices.items())


@pytest.mark.parametrize(
    "choices, message",
    [
        ({"tile": (1, 18, 1, 1)}, "at most 13 x 17 pixels"),
        ({"tile": (0, 1, 1, 1)}, "takes .rows, columns, vectors, unroll."),
        ({"tile": (1, 2, 3)}, "takes .rows, columns, vectors, unroll."),
        ({"tile": (1, 8, 3, 8)}, "divides the 4 blocks"),
        ({"tile": (1, 8, 2, 3)}, "divides the 16 channels"),
        ({"tile": (1, 17, 4, 1)}, "at most 32 sums"),
        ({"tile": (2, 7, 2, 8)}, "an input with 1 rows of halo, not 0"),
        ({"order": "columns"}, "'outputs' or 'rows'"),
        ({"tile": (1, 5, 2, 8), "band": (3, 7)}, "multiples of the tile's"),
        ({"band": (14, 17)}, "multiples of the tile's"),
    ],
)
def test_choices_that_do_not_fit_are_refused(choices, message):
    kernel = kernel_of(*convolution((1, 16, 13, 17), 64, (3, 3), pad=SAME))
    kernel.attributes.update({k: ParamAttr(v) for k, v in choices.items()})
    with pytest.raises(LightNetError, match=message) as error:
        lay_out(kernel, DIRECT, ProcessorModel())
    assert error.value.loc is not None and error.value.loc.file == "kernel.mlir"


@pytest.mark.parametrize(
    "body",
    [
        convolution((1, 16, 5, 5), 16, (3, 3), group=16),
        convolution((1, 48, 5, 5), 48, (3, 3), group=2),
        convolution((1, 16, 5, 200), 16, (1, 3), dilation=(1, 70), pad=(0, 70, 0, 70)),
        ({"x": "tensor<1x8x4x5xf32>"}, "%y = ln.relu %x : tensor<1x8x4x5xf32> ln.yield %y"),
    ],
    ids=["depthwise", "groups", "halo", "relu"],
)
def test_other_bodies_are_left_to_others(body):
    kernel = kernel_of(*body)
    assert form_of(DIRECT, kernel) is None


DECONVS = [
    ((1, 16, 5, 7), 32, (3, 3), (2, 2), (1, 1, 1, 1), (1, 1)),  # the usual upsampling
    ((2, 20, 1, 1), 5, (2, 2), (2, 2), (0, 0, 0, 0), (0, 0)),
    ((1, 40, 3, 29), 48, (4, 4), (2, 2), (1, 1, 1, 1), (0, 0)),
    ((1, 3, 4, 5), 17, (3, 5), (1, 3), (0, 2, 1, 0), (0, 2)),
    ((1, 17, 6, 3), 16, (2, 1), (3, 4), (0, 0, 0, 0), (1, 2)),  # pixels that no tap reaches
    ((1, 16, 2, 2), 16, (7, 7), (2, 2), (3, 3, 3, 3), (1, 1)),
    ((1, 16, 1, 1), 24, (3, 3), (4, 4), (1, 1, 1, 1), (0, 0)),  # a result of one pixel
]


def deconvolution(src, outputs, size, stride, pad, more, epilogue="relu"):
    n, c, *plane = src
    out = [(plane[i] - 1) * stride[i] + size[i] + more[i] - pad[i] - pad[i + 2] for i in (0, 1)]
    operands = {"x": tensor(*src), "w": tensor(c, outputs, *size), "b": tensor(outputs)}
    params = f"size = {list(size)}, stride = {list(stride)}, padding = {list(pad)}, output_padding = {list(more)}"
    return with_epilogue(operands, f"ln.deconv2d %x, %w, %b {{{params}}}", (n, outputs, *out), epilogue)


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("machine", MACHINES, ids=["avx512", "avx2", "neon"])
@pytest.mark.parametrize("shape", DECONVS, ids=str)
def test_transposed(shape, machine):
    for epilogue in ("relu", "sigmoid", "both"):
        check_blocked(DECONV, *deconvolution(*shape, epilogue), out=(1, 2), machine=machine, tolerance=4e-6)
    check_blocked(DECONV, *deconvolution(*shape, "residual"), machine=machine, aliases={0: 3})


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_transposed(data):
    src = tuple(data.draw(st.integers(1, m)) for m in (2, 40, 6, 20))
    size, stride = ([data.draw(st.integers(1, 5)) for _ in range(2)] for _ in range(2))
    pad = [data.draw(st.integers(0, size[i % 2] - 1)) for i in range(4)]
    more = [data.draw(st.integers(0, s - 1)) for s in stride]
    out = [(src[2 + i] - 1) * stride[i] + size[i] + more[i] - pad[i] - pad[i + 2] for i in (0, 1)]
    assume(min(out) > 0)
    body = deconvolution(
        src, data.draw(st.integers(1, 50)), size, stride, pad, more, data.draw(st.sampled_from(sorted(EPILOGUES)))
    )
    machine = data.draw(st.sampled_from(MACHINES))
    check_blocked(DECONV, *body, extra=(1, 0), out=(0, 1), machine=machine, tolerance=5e-6)


def test_pytorch_agrees_on_transposed():
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(6)
    shapes = [(2, 24, 9, 11), (24, 40, 3, 3), (40,)]
    x, w, b = arrays = [random.standard_normal(s).astype(np.float32) for s in shapes]
    x, w, b = (torch.from_numpy(a).double() for a in (x, w, b))
    expected = torch.nn.functional.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1).relu().numpy()
    body = deconvolution(shapes[0], 40, (3, 3), (2, 2), (1, 1, 1, 1), (1, 1))
    check_blocked(DECONV, *body, arrays=arrays, expected=[expected])


def test_the_halo_of_a_transposed_convolution_is_what_it_reads():
    """Columns of the input that taps of columns of the result stand for, on either side of the map."""
    for case in range(50):
        draw = random.Random(case)
        size, stride = ([draw.randint(1, 6) for _ in range(2)] for _ in range(2))
        size[1] = max(size[1], stride[1])  # a phase without taps reads nothing, though there is room for it
        pad, more = [draw.randint(0, size[i % 2] - 1) for i in range(4)], [draw.randint(0, s - 1) for s in stride]
        width = draw.randint(1, 9)
        out = (width - 1) * stride[1] + size[1] + more[1] - pad[1] - pad[3]
        if out < 1 or 7 * stride[0] + size[0] + more[0] - pad[0] - pad[2] < 1:
            continue
        kernel = kernel_of(*deconvolution((1, 16, 8, width), 16, size, stride, pad, more))
        places = [x + pad[1] - tap for x in range(out) for tap in range(size[1])]
        reads = [at // stride[1] for at in places if at % stride[1] == 0]
        beyond = max(-min(reads), max(reads) - (width - 1), 0)
        assert form_of(DECONV, kernel).maps[kernel.body.args[0]] == (0, beyond), (size, stride, pad, more, width)


def test_rows_of_padding_need_no_halo():
    kernel = kernel_of(*convolution((1, 16, 45, 80), 16, (3, 1), dilation=(16, 1), pad=(16, 0, 16, 0)))
    form = form_of(DIRECT, kernel)
    assert form.maps[kernel.body.args[0]] == (0, 0)


def test_weights_are_packed_by_the_tile():
    kernel = kernel_of(*convolution((1, 16, 13, 17), 64, (3, 3), pad=SAME))
    kernel.attributes["tile"] = ParamAttr((1, 6, 4, 8))
    assert lay_out(kernel, DIRECT, ProcessorModel()).weights == {1: Packed("o", 64, 16), 2: Packed("v", 16)}


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 20), st.integers(1, 7), st.integers(1, 4), st.integers(1, 4), st.integers(0, 9), st.integers(0, 9)
)  # fmt: skip
def test_rows_that_pass_over_taps(height, size, stride, dilation, top, bottom):
    """The others fetch the weights of the next group: each of them every tap, so that none is left out."""
    out = (height + top + bottom - (size - 1) * dilation - 1) // stride + 1
    assume(out > 0)
    g = model.Geometry(Axis(height, size, stride, dilation, top, positions=out), Axis(8, 1, positions=8), 1, 1, 16, 32)
    first, last = model.edge_rows(g, model.ConvTile(1, 8, 2, 8))
    taps = [[y * stride + r * dilation - top for r in range(size)] for y in range(out)]
    passes = [any(not 0 <= row < height for row in rows) for rows in taps]
    assert all(passes[:first]) and not any(passes[first : out - last]) and all(passes[out - last :])
    assert model.taps_inside(g) == sum(0 <= row < height for rows in taps for row in rows)


@pytest.mark.parametrize("machine", KNOWN.values(), ids=KNOWN)
def test_weights_are_fetched_ahead_of_another_group_alone(machine):
    """Where tiles fetch weights, all of them together fetch a whole group's, whichever the number of groups; where all
    outputs are one group, or tiles do not go through the outputs, there are no next ones."""
    fetched = 0
    for vectors, taps, size, columns in product((1, 2, 3, 4), (1, 3), (7, 14, 28), (7, 14)):
        axis = Axis(size, taps, 1, 1, taps // 2, taps // 2, positions=size)
        shape = model.ConvTile(1, min(columns, size), vectors, 1)
        walk = model.TileWalk(model.OUTPUTS, size, size)
        found = []
        for groups in (1, 2, 3, 8):
            g = model.Geometry(axis, axis, 1, 1, 4 * machine.lanes, groups * vectors * machine.lanes)
            found.append(model.weights_ahead(g, machine, shape, walk))
            assert model.weights_ahead(g, machine, shape, replace(walk, order=model.ROWS)) == 0
        assert found[0] == 0 and len({*found[1:]}) == 1
        top, bottom = model.edge_rows(g, shape)
        tiles = (size - top - bottom) * -(-size // shape.columns)
        row_of_taps = 4 * taps * machine.lanes * vectors * machine.lanes  # bytes, of a block of inputs
        assert found[1] == 0 or tiles * found[1] >= row_of_taps > tiles * (found[1] - model.LINE)
        fetched += found[1] > 0
    assert fetched > 5


@pytest.mark.parametrize("machine", MACHINES, ids=["avx512", "avx2", "neon"])
def test_the_model_chooses_what_runs_at_the_peak(machine):
    """Tiles fill the registers, split widths evenly, and blocks are enough for eight threads."""
    for src, outputs, size in (((1, 64, 56, 56), 64, 3), ((1, 256, 28, 28), 256, 1), ((1, 512, 14, 14), 512, 3)):
        kernel = kernel_of(*convolution(src, outputs, (size, size), pad=[size // 2] * 4))
        plan = lay_out(kernel, DIRECT, next(m for m in KNOWN.values() if m.lanes == machine.lanes))
        rows, columns, vectors, unroll = kernel.attributes["tile"].data
        sums = rows * columns * vectors
        assert sums >= 0.8 * {16: 28, 8: 12, 4: 24}[machine.lanes] and sums * unroll <= model.MOST_CONV_BODY
        geometry = geometry_of(kernel)
        assert sum(c * n for c, n in model.column_tiles(geometry, columns)) <= 1.04 * geometry.cols.positions
        (launch,) = plan.build(kernel, "kernel", {})
        assert launch.grid >= 16 and sum(1 for _ in launch.function.walk()) <= 110
