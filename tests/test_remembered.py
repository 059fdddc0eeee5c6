"""What compiling makes once and uses again: it is never stale, and no check passes because another one did."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects import test as xdsl_test

import lightnet
from lightnet.backends.cpu.blocked.conv_model import Geometry
from lightnet.backends.cpu.expressions import bind_op
from lightnet.dialects.ln.conv import Conv2d
from lightnet.dialects.ln.elementwise import Relu
from lightnet.dialects.ln.norm import Batchnorm, Softmax
from lightnet.ir.constraints import ConstraintError
from lightnet.ir.layout import Layout, to_memory, with_layout
from lightnet.ir.types import ParamAttr, TensorSpec, tensor_type
from lightnet.runtime.dtypes import BY_NAME

F32 = BY_NAME["f32"]
WINDOW = {"group": 1, "size": (3, 3), "stride": (1, 1), "dilation": (1, 1), "padding": (1, 1, 1, 1), "autopad": "NOTSET"}  # fmt: skip


def values(*dims: tuple[int, ...]) -> list:
    return list(xdsl_test.TestOp(result_types=[tensor_type(TensorSpec(d, F32)) for d in dims]).results)


def test_what_follows_from_an_op_changes_with_it() -> None:
    conv = Conv2d.make(values((1, 8, 9, 9), (4, 8, 3, 3), (4,)), WINDOW)
    assert Geometry.of(conv) is Geometry.of(conv)
    assert tuple(conv.derived_values()["pad"]) == (1, 1, 1, 1)
    conv.properties["padding"] = ParamAttr((2, 2, 0, 0))
    assert tuple(conv.derived_values()["pad"]) == (2, 2, 0, 0)
    assert Geometry.of(conv).pad == (2, 2)
    conv.operands = values((1, 8, 5, 7), (4, 8, 3, 3), (4,))
    assert Geometry.of(conv).in_hw == (5, 7)


def test_a_right_op_lets_no_wrong_one_pass() -> None:
    """1, 1.0 and true are equal, and as keys the same; true is no axis, and 3 is none of these dims."""
    for good in (1, 1.0):
        assert Softmax.make(values((2, 3)), {"axis": good}).dst.type.get_shape() == (2, 3)
    for bad in (True, "1", 3, -1):
        with pytest.raises(ConstraintError, match="axis"):
            Softmax.make(values((2, 3)), {"axis": bad})
    params: dict = {}
    for _ in range(2):  # defaults are filled in the second time, too
        op = Batchnorm.make(values((1, 3, 2, 2), *[(3,)] * 4), params)
        assert op.properties["epsilon"].data == 1e-5


def test_bound_definitions_follow_types() -> None:
    one, other = (Relu.make(values(dims)) for dims in ((2, 3), (2, 5)))
    assert bind_op(one) is bind_op(Relu.make(values((2, 3))))
    assert bind_op(one).results != bind_op(other).results


@pytest.mark.parametrize(
    ("token", "dims"),
    [
        ("plain", (3, 5)), ("o32i16", (40, 21, 3, 2)), ("o16", (20, 3, 3, 3)), ("w4o16", (20, 5, 3, 3)), ("w2o16", (20, 5, 1, 3)),
        ("t16i8", (9, 20, 2, 2)), ("d16", (20, 1, 3, 3)), ("n32", (7, 40)), ("v16", (20, 1, 1)), ("c16h1x2", (2, 20, 3, 4)), ("h1", (1, 2, 3, 3)),
    ],
)  # fmt: skip
def test_packed_in_place(token: str, dims: tuple[int, ...]) -> None:
    """Memory that is given holds what memory of its own would; it has every element of the tensor, and zeros besides."""
    array = np.random.default_rng(0).uniform(1, 2, dims).astype(np.float32)
    layout = Layout.parse(token)
    type = with_layout(tensor_type(TensorSpec(dims, F32)), layout)
    memory = np.zeros(int(np.prod(layout.physical_dims(dims))) * 4, np.uint8)
    assert to_memory(type, array, memory) is memory
    np.testing.assert_array_equal(memory, to_memory(type, array))
    if layout.is_lossless:
        assert np.array_equal(np.sort(memory.view(np.float32))[-array.size :], np.sort(array, axis=None))
        assert np.count_nonzero(memory.view(np.float32)) == array.size


def test_batchnorm_of_many_channels() -> None:
    """The reference works in steps of channels: more of them than one step takes, against one formula in float64."""
    rng = np.random.default_rng(1)
    src, channels = rng.standard_normal((2, 300, 11, 13)).astype(np.float32), (300,)
    s, o, m, v = (rng.uniform(0.5, 1.5, channels).astype(np.float32) for _ in range(4))
    op = Batchnorm.make(values(src.shape, *[channels] * 4))
    (got,) = op.evaluate([src, s, o, m, v])
    s, o, m, v = (a.astype(np.float64)[:, None, None] for a in (s, o, m, v))
    np.testing.assert_allclose(got, (src - m) * s / np.sqrt(v + 1e-5) + o, rtol=1e-6, atol=1e-6)


def test_fed_params_do_not_stay_in_memory() -> None:
    """Static tensors are packed where they will stand: in fresh memory for every set of params."""
    text = """create(|dst=x|dtype=TL_FLOAT, dims=[1,4], ran=[0,0], data=[1,1,1,1], from_file=false);
create(|dst=w|dtype=TL_FLOAT, dims=[4,3], ran=[0,0], data=[1,2,3], from_file=true);
matmul(a=x, b=w|dst=y|)"""
    run = lightnet.compile(lightnet.loads(text, ".net"))
    x = np.ones((1, 4), np.float32)
    for w in (np.ones((4, 3), np.float32), np.zeros((4, 3), np.float32)):
        np.testing.assert_array_equal(run({"x": x, "w": w})["y"], x @ w)
