"""The first convolution, from a plain picture to a blocked map, against float64 references, and against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from blocked_kernels import check_blocked, form_of, kernel_of, lay_out
from blocked_windows import EPILOGUES, MACHINES, convolution
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from lightnet.backends.cpu.blocked.base import ProcessorModel
from lightnet.backends.cpu.blocked.first import FIRST
from lightnet.backends.cpu.blocked.first_model import band_of, staged_bytes
from lightnet.diagnostics import LightNetError
from lightnet.ir.types import ParamAttr

SHAPES = [
    ((1, 3, 32, 32), 32, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1)),
    ((1, 3, 33, 47), 64, (7, 7), (2, 2), (1, 1), (3, 3, 3, 3)),
    ((1, 3, 63, 71), 96, (11, 11), (4, 4), (1, 1), (2, 2, 2, 2)),
    ((2, 1, 28, 28), 20, (5, 5), (1, 1), (1, 1), (0, 0, 0, 0)),
    ((1, 1, 1, 1), 1, (1, 1), (1, 1), (1, 1), (0, 0, 0, 0)),
    ((1, 4, 7, 7), 48, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),  # two rows a tile, and one left over
    ((1, 2, 19, 5), 33, (3, 5), (3, 1), (2, 1), (4, 0, 1, 5)),
    ((1, 1, 12, 20), 20, (3, 5), (2, 1), (1, 2), (1, 2, 0, 1)),  # grey: all rows of a column in one body
    ((1, 1, 9, 11), 40, (4, 2), (1, 2), (2, 1), (0, 0, 3, 1)),
    ((1, 3, 6, 70), 80, (1, 1), (1, 1), (1, 1), (0, 0, 0, 0)),
    ((1, 3, 9, 40), 20, (1, 1), (1, 1), (1, 1), (2, 0, 1, 0)),  # windows that see nothing of the picture
    ((1, 2, 9, 40), 20, (3, 1), (1, 1), (2, 1), (5, 0, 3, 0)),  # rows of a window before and behind the picture
]


@pytest.mark.sampled(every=4, share=0.2)
@pytest.mark.parametrize("machine", MACHINES, ids=["avx512", "avx2", "neon"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_windows(shape, machine):
    check_blocked(FIRST, *convolution(*shape), machine=machine)


@pytest.mark.sampled(every=3, share=0.2)
@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("outputs", [33, 16, 3])
def test_epilogues(epilogue, outputs):
    body = convolution((2, 3, 9, 17), outputs, (3, 3), (2, 2), pad=(1, 0, 1, 2), epilogue=epilogue)
    check_blocked(FIRST, *body, out=(1, 2), tolerance=4e-6)


@pytest.mark.parametrize("src", [(1, 3, 7, 7), (1, 3, 5, 31)], ids=str)
def test_a_result_in_the_memory_of_the_residual(src):
    """Tiles must not overlap then: what was overwritten would be added again."""
    for machine in MACHINES:
        body = convolution(src, 24, (3, 3), pad=(1, 1, 1, 1), epilogue="residual")
        check_blocked(FIRST, *body, machine=machine, aliases={0: 3})


@pytest.mark.parametrize("stride, pad, size", [(1, 1, 3), (2, 3, 7), (4, 2, 11)])
def test_pytorch_agrees(stride, pad, size):
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(5)
    shapes = [(2, 3, 23, 37), (40, 3, size, size), (40,)]
    x, w, b = arrays = [random.standard_normal(s).astype(np.float32) for s in shapes]
    x, w, b = (torch.from_numpy(a).double() for a in (x, w, b))
    expected = torch.nn.functional.conv2d(x, w, b, stride, pad).relu().numpy()
    body = convolution(shapes[0], 40, (size, size), (stride, stride), pad=[pad] * 4)
    check_blocked(FIRST, *body, arrays=arrays, expected=[expected])


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.tuples(st.integers(1, 2), st.integers(1, 4), st.integers(1, 20), st.integers(1, 40)), st.integers(1, 70),
    st.tuples(st.integers(1, 6), st.integers(1, 6)), st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)), st.tuples(*[st.integers(0, 9)] * 4),
    st.sampled_from(sorted(EPILOGUES)), st.sampled_from(MACHINES), st.tuples(st.integers(0, 2), st.integers(0, 2)),
)  # fmt: skip
def test_any_window(src, outputs, size, stride, dilation, pad, epilogue, machine, halo):
    assume(all(src[2 + i] + pad[i] + pad[i + 2] > (size[i] - 1) * dilation[i] for i in (0, 1)))
    body = convolution(src, outputs, size, stride, dilation, pad, epilogue=epilogue)
    check_blocked(FIRST, *body, out=halo, machine=machine, tolerance=4e-6)


@pytest.mark.parametrize("size, stride", [(3, 1), (3, 2), (7, 2), (11, 4)])
@pytest.mark.parametrize("picture", [64, 224, 416])
def test_bands_are_as_large_as_a_cache_lets_them(picture, size, stride):
    """What is staged for a band fits into a first-level cache; of fewer bands of equal size, it would not."""
    kernel = kernel_of(*convolution((1, 3, picture, picture), 64, (size, size), (stride, stride), pad=[size // 2] * 4))
    conv, height = kernel.ops[0], kernel.ops[0].result_specs[0].dims[2]
    for rows in (r for r in (1, 2, 4) if height % r == 0):
        band = band_of(conv, rows)
        bands = -(-height // band)
        assert band % rows == 0 and (band == rows or staged_bytes(conv, band) <= 48 << 10)
        if bands > 1:
            wider = -(-height // rows // (bands - 1)) * rows
            assert staged_bytes(conv, wider) > 48 << 10


def test_choices_are_kept_or_refused():
    for tile, band in (((1, 5, 1), 3), ((2, 3, 2), 14), ((1, 14, 4), 14)):
        choices = {"tile": ParamAttr(tile), "band": ParamAttr((band,))}
        body = convolution((1, 3, 14, 14), 64, (3, 3), pad=(1, 1, 1, 1))
        kernel = check_blocked(FIRST, *body, choices=choices)
        assert {k: kernel.attributes[k] for k in choices} == choices
    for tile, band in (
        ((1, 15, 2), 14),
        ((1, 14, 3), 14),
        ((0, 1, 1), 14),
        ((1, 4, 1), 0),
        ((3, 4, 1), 5),
        ((2, 14, 4), 14),
    ):
        kernel = kernel_of(*convolution((1, 3, 14, 14), 64, (3, 3), pad=(1, 1, 1, 1)))
        kernel.attributes.update({"tile": ParamAttr(tile), "band": ParamAttr((band,))})
        with pytest.raises(LightNetError, match="the kernel of a first convolution takes"):
            lay_out(kernel, FIRST, ProcessorModel())


def test_other_bodies_are_left_to_others():
    bodies = [
        convolution((1, 5, 9, 9), 16, (3, 3)),
        convolution((1, 4, 9, 9), 16, (3, 3), group=2),
        convolution((1, 1, 3, 300_000), 16, (3, 3)),  # no band of it fits into scratch
    ]
    for body in bodies:
        kernel = kernel_of(*body)
        assert form_of(FIRST, kernel) is None
