"""The register-tiled kernels against the NumPy references, at the ops' own ugly shapes."""

from __future__ import annotations

import numpy as np
import pytest
from kernels import agree, op_of, run_native
from xdsl.ir import Block

from lightnet.backends.cpu import narrow, tiled
from lightnet.backends.cpu.window import staged_window_of
from lightnet.backends.cpu.window_kernel import tile_shape
from lightnet.dialects.cpu import CpuKernelOp
from lightnet.dialects.ln.conv import Conv2d, Deconv2d
from lightnet.dialects.ln.elementwise import Elew, Lrelu
from lightnet.dialects.ln.move import Transpose
from lightnet.dialects.ln.norm import Batchnorm
from lightnet.dialects.ln.pool import Avgpool2d, Maxpool2d
from lightnet.ir.op import case as op_case
from lightnet.ir.types import TensorSpec, tensor_type

CASES = [(cls, i) for cls in (Conv2d, Deconv2d, Maxpool2d, Avgpool2d) for i in range(len(cls.samples()))]


@pytest.mark.sampled(every=4, by="cls")
@pytest.mark.parametrize("cls, index", CASES, ids=lambda v: getattr(v, "optype", str(v)))
@pytest.mark.parametrize("width", [16, 8])
def test_window_kernels(cls, index, width):
    op, arrays = op_of(cls, cls.samples()[index], index)
    assert bool(tiled.accepts([op])) == op.result_specs[0].dtype.is_float
    if not tiled.accepts([op]):
        pytest.skip("left to the generic loops")
    kernel = CpuKernelOp.wrap([op])
    launch = tiled.build(kernel, "k", width, {})
    (got,) = run_native(
        launch.function, launch.grid, arrays, op.result_specs, workspace=tiled.workspace_bytes(kernel, width)
    )
    agree(got, np.asarray(op.reference(*arrays)))


def test_epilogues_stay_on_tiles():
    """A convolution with batch norm, activation and a residual is one tiled kernel, for a batch of 1 and of 2."""
    for batch in (1, 2):
        case = op_case(src=(batch, 5, 6, 19), weight=(9, 5, 3, 3), bias=(9,), size=(3, 3), padding=(1, 1, 1, 1))
        conv, arrays = op_of(Conv2d, case)
        specs = conv.result_specs[0]
        extra = Block(arg_types=[tensor_type(specs), *[tensor_type(TensorSpec((9,), specs.dtype))] * 4])
        residual, *vectors = extra.args
        norm = Batchnorm.make([conv.dst, *vectors], {"epsilon": 1e-5})
        act = Lrelu.make([norm.dst], {"negslope": 0.1})
        total = Elew.make([act.dst, residual], {"elew_op": "TL_SUM"})
        ops = [conv, norm, act, total]
        assert tiled.accepts(ops)
        rng = np.random.default_rng(0)
        more = [rng.normal(size=specs.dims), *(rng.uniform(0.5, 1.5, 9) for _ in range(4))]
        arrays = [*arrays, *(m.astype(np.float32) for m in more)]
        kernel = fused(ops, [*conv.operands, *vectors, residual])
        order = [*arrays[:3], *arrays[4:], arrays[3]]
        launch = tiled.build(kernel, "k", 16, {0: 7})  # in place of the residual
        want = conv.reference(*order[:3])
        want = act.reference(norm.reference(want, *order[3:7])) + order[7]
        (got,) = run_native(
            launch.function, launch.grid, order, [specs], aliases={0: 7}, workspace=tiled.workspace_bytes(kernel, 16)
        )
        agree(got, want)


def fused(ops, operands):
    """One kernel of all ops, yielding the last result alone."""
    kernel = CpuKernelOp.wrap(ops)
    order = [list(kernel.operands).index(v) if v in kernel.operands else None for v in operands]
    assert None not in order
    body = kernel.regions[0].detach_block(0)
    last = body.last_op
    final = last.operands[-1]
    last.detach()
    block = Block(arg_types=[v.type for v in operands])
    mapping = {body.args[i]: block.args[k] for k, i in enumerate(order)}
    for op in list(body.ops):
        op.detach()
        op.operands = [mapping.get(v, v) for v in op.operands]
        block.add_op(op)
    return CpuKernelOp.around(block, [], [final])


@pytest.mark.parametrize("dims", [(1, 6, 1, 1), (2, 6, 9, 1), (1, 6, 1, 9), (1, 6, 3, 7)])
def test_residuals_of_one_pixel_windows(dims):
    """A 1x1 convolution plus its own source and another tensor: one pixel, one column, one row, a picture."""
    conv, arrays = op_of(Conv2d, op_case(src=dims, weight=(6, 6, 1, 1), bias=(6,), size=(1, 1)))
    extra = Block(arg_types=[tensor_type(conv.result_specs[0])])
    one = Elew.make([conv.dst, conv.src], {"elew_op": "TL_SUM"})
    two = Elew.make([one.dst, extra.args[0]], {"elew_op": "TL_SUM"})
    more = np.random.default_rng(0).normal(size=dims).astype(np.float32)
    kernel = fused([conv, one, two], [*conv.operands, extra.args[0]])
    assert tiled.accepts(kernel.ops, kernel.terminator.operands)
    launch = tiled.build(kernel, "k", 16, {})
    (got,) = run_native(launch.function, launch.grid, [*arrays, more], [conv.result_specs[0]],
                        workspace=tiled.workspace_bytes(kernel, 16))  # fmt: skip
    agree(got, conv.reference(*arrays) + arrays[0] + more)


@pytest.mark.parametrize("width, bands", [(16, False), (8, False), (16, True)])
@pytest.mark.parametrize("size, stride, dims, group", [
    (3, 1, (2, 6, 7, 7), 1), (3, 2, (1, 6, 13, 14), 2), (1, 2, (1, 16, 10, 10), 1), (5, 1, (1, 4, 6, 3), 4),
    (3, 1, (1, 3, 40, 20), 1), (5, 2, (1, 2, 11, 17), 1),
])  # fmt: skip
def test_narrow_maps(size, stride, dims, group, width, bands, monkeypatch):
    """Tiles run over several rows: as long as these are short, in every group and picture, with an epilogue; whole maps,
    and bands of rows where a map is large."""
    pad = (size // 2,) * 4
    if bands:
        monkeypatch.setattr(narrow, "MAP_BYTES", 2 << 10)
    conv, arrays = op_of(Conv2d, op_case(src=dims, weight=(12, dims[1] // group, size, size), bias=(12,), group=group,
                                         size=(size, size), stride=(stride, stride), padding=pad))  # fmt: skip
    spec = conv.result_specs[0]
    extra = Block(arg_types=[tensor_type(spec)])
    total = Elew.make([conv.dst, extra.args[0]], {"elew_op": "TL_SUM"})
    act = Lrelu.make([total.dst], {"negslope": 0.1})
    kernel = fused([conv, total, act], [*conv.operands, extra.args[0]])
    if width == 16 and not bands:
        assert narrow.narrow_layout_of(staged_window_of(conv), width) is not None
    more = np.random.default_rng(0).normal(size=spec.dims).astype(np.float32)
    launch = tiled.build(kernel, "k", width, {0: 3})  # in place of the other summand
    (got,) = run_native(launch.function, launch.grid, [*arrays, more], [spec], aliases={0: 3},
                        workspace=tiled.workspace_bytes(kernel, width))  # fmt: skip
    agree(got, act.reference(conv.reference(*arrays) + more))


def test_what_an_epilogue_cannot_be():
    """A transpose of a square map has the shape of its source and reads it elsewhere; an operand is not computed."""
    conv, _ = op_of(Conv2d, op_case(src=(1, 6, 5, 5), weight=(6, 6, 1, 1), bias=(6,), size=(1, 1)))
    turned = Transpose.make([conv.dst], {"axes": (0, 1, 3, 2)})
    assert not tiled.accepts([conv, turned])
    assert not tiled.accepts([conv], [conv.dst, conv.src])
    assert tiled.accepts([conv], [conv.dst, conv.dst])


@pytest.mark.parametrize("pixels", [1, 15, 16, 49, 65, 196, 208, 209])
def test_rows_in_even_tiles(pixels):
    """A row is cut into tiles that differ by one vector at most, whatever is left at its end."""
    conv, arrays = op_of(Conv2d, op_case(src=(1, 5, 1, pixels), weight=(9, 5, 1, 1), bias=(9,), size=(1, 1)))
    launch = tiled.build(CpuKernelOp.wrap([conv]), "k", 16, {})
    (got,) = run_native(launch.function, launch.grid, arrays, conv.result_specs)
    agree(got, conv.reference(*arrays))


def test_what_is_no_tiled_window():
    """Nothing, what has no channels or pixels, windows and phases one too many to be written out; those at the limits are tiled."""
    assert not tiled.accepts([])

    def conv(size, channels=1, pixels=40):
        size = (size, size) if isinstance(size, int) else size
        case = op_case(src=(1, channels, pixels, pixels), weight=(2, channels, *size), bias=(2,), size=size)
        return op_of(Conv2d, case)[0]

    def deconv(stride, pixels=4):
        case = op_case(src=(1, 1, pixels, pixels), weight=(1, 2, 1, 1), bias=(2,), size=(1, 1), stride=stride)
        return op_of(Deconv2d, case)[0]

    def pool(cls, *size):
        return op_of(cls, op_case(src=(1, 1, 40, 70), size=size))[0]

    taken = [
        conv(31),
        conv((1, 3)),
        deconv((16, 16)),
        deconv((2, 100), pixels=1),
        pool(Maxpool2d, 20, 10),
        pool(Avgpool2d, 10, 20),
    ]
    left = [
        conv((31, 32)),
        conv(3, channels=0),
        deconv((16, 17)),
        deconv((17, 16)),
        pool(Maxpool2d, 3, 67),
        pool(Avgpool2d, 19, 11),
    ]
    assert [bool(tiled.accepts([op])) for op in taken] == [True] * len(taken)
    assert [bool(tiled.accepts([op])) for op in left] == [False] * len(left)


@pytest.mark.parametrize("width", [16, 8])
@pytest.mark.parametrize("stride", [(3, 3), (5, 2)])
def test_transposed_convolutions_of_many_phases(stride, width):
    """One phase for each remainder by the strides, nine and more; tiles are one row of one vector then, of fewer
    outputs where there are 16 registers."""
    case = op_case(src=(1, 2, 2, 3), weight=(2, 9, 4, 4), bias=(9,), size=(4, 4), stride=stride)
    op, arrays = op_of(Deconv2d, case)
    window = staged_window_of(op)
    shape = tile_shape(window, width)
    many = stride[0] * stride[1] > 9
    assert len(window.phases) == stride[0] * stride[1]
    assert shape.outputs == (8 if width == 16 else 4) and (not many or (shape.rows, shape.vectors) == (1, 1))
    kernel = CpuKernelOp.wrap([op])
    launch = tiled.build(kernel, "k", width, {})
    if width == 16:
        (got,) = run_native(
            launch.function, launch.grid, arrays, op.result_specs, workspace=tiled.workspace_bytes(kernel, width)
        )
        agree(got, np.asarray(op.reference(*arrays)))
