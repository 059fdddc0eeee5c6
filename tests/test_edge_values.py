"""Floats at the edge (`edge_values.py`, docs/edge-values.md): every target gives what the references say, to the letter."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from edge_values import DTYPES, OPS, TARGETS, cases, decided, differences, letter
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Region

import lightnet
from lightnet.dialects.ln.arith import Cast
from lightnet.dialects.ln.norm import Layernorm
from lightnet.dialects.ln.numeric import larger, largest, smaller, total
from lightnet.dialects.ln.source import Input
from lightnet.model import Model
from lightnet.runtime.dtypes import BY_NAME, convert, is_float, widened_array
from lightnet.runtime.dtypes import DTYPES as TYPES

OURS = decided()
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, 1.9, -1.9, 127.5, 128.0, -129.0, 255.9, 300.0, -300.0, 32768.0, 65519.0, 65520.0, 3e9,
           -3e9, 9.3e18, 1e20, -1e20, 1e38, 1e-45, 1e-40)  # fmt: skip


def test_the_page_is_about_reductions_pools_norms_and_extremes():
    wanted = {
        "reduce_sum",
        "reduce_max",
        "argmax",
        "maxpool2d",
        "avgpool",
        "clip",
        "maximum",
        "minimum",
        "layernorm",
        "softmax",
        "elew",
    }
    assert wanted <= set(OURS) <= set(OPS)


def test_ops_agree_on_special_values():
    assert not differences(OURS, "f32", "cpu", most=5)


def test_references_take_every_float():
    """Of all ops, those too that read at places which floats give (one with a NaN for a corner ended in an IndexError)."""
    with np.errstate(all="ignore"):
        for name in OPS:
            for case in cases(name, "f32", 8):
                assert all(isinstance(a, np.ndarray) for a in case.want), case


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("target", TARGETS)
def test_ops_agree_everywhere(target, dtype):
    if target == "ptx" and dtype != "f32":
        pytest.skip("the same code as target cuda, in a slow interpreter")
    assert not differences(OURS, dtype, target)


def test_what_is_the_same_letter():
    values = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45], np.float32)
    assert letter(values).tolist() == [0, 1, -1, 2, -2, 3]
    assert any(np.isnan(a).any() for case in cases("reduce_max", "f32", 3) for a in case.arrays)


def test_zeros_and_nans_of_references():
    assert not np.signbit(larger(np.float32(-0.0), np.float32(0.0))) and np.signbit(
        smaller(np.float32(-0.0), np.float32(0.0))
    )
    assert np.isnan(larger(np.float32(1), np.float32(np.nan)))
    row = np.array([[-0.0, 0.0, -0.0], [-0.0, -1.0, -0.0]], np.float32)
    assert np.signbit(largest(row, 1, -np.inf)).tolist() == [False, True]
    assert not np.signbit(total(np.full((2, 3), -0.0), 1)).any() and np.signbit(total(np.full((2, 1), -0.0), 1)).all()


# -- casts -------------------------------------------------------------------------------------------------------------


def cast_network() -> tuple[Model, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """A cast from every type to every other, in both modes, of values that many of these cannot hold."""
    block, outputs, feeds, want = Block(), [], {}, {}
    for source in TYPES:
        values = [v for v in SPECIAL if source.is_float or np.isfinite(v)]
        data = convert(np.array(values, np.float64), source)
        x = Input.make(
            [], {"dtype": source.tl, "dims": data.shape, "required": True}, name=f"c_{source}", tensors=[f"x_{source}"]
        )
        block.add_op(x)
        feeds[f"x_{source}"] = data
        for target, mode in itertools.product(TYPES, ("saturate", "wrap")):
            op = Cast.make(
                [x.results[0]],
                {"dtype": target.tl, "mode": mode},
                name=f"{source}_{target}_{mode}",
                tensors=[f"{source}_{target}_{mode}"],
            )
            block.add_op(op)
            outputs.append(op.results[0])
            want[f"{source}_{target}_{mode}"] = op.evaluate([data])[0]
    block.add_op(func.ReturnOp(*outputs))
    main = func.FuncOp("main", ((), [v.type for v in outputs]), Region(block))
    return Model(ModuleOp([main]), "casts"), feeds, want


def check_casts(target: str) -> None:
    model, feeds, want = cast_network()
    got = TARGETS[target](model)(feeds)
    for name, a in want.items():
        b = got[name]
        if is_float(a.dtype):
            one, other = widened_array(a).astype(np.float64), widened_array(b).astype(np.float64)
            same = np.array_equal(letter(a), letter(b)) and np.array_equal(one, other, equal_nan=True)
        else:
            same = np.array_equal(a, b)
        assert same, (name, feeds[f"x_{name.partition('_')[0]}"], a, b)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_casts_agree_everywhere(target):
    check_casts(target)


def test_casts_out_of_range():
    _, _, want = cast_network()
    assert want["f32_i8_saturate"].tolist()[:3] == [0, 127, -128] and want["f32_i8_wrap"].tolist()[:3] == [0, 127, -128]
    assert want["i32_i8_wrap"][-4:].tolist() != want["i32_i8_saturate"][-4:].tolist()
    assert (
        np.isinf(widened_array(want["f32_f16_wrap"])).sum()
        > np.isinf(widened_array(want["f32_f16_saturate"])).sum()
        == 2
    )


# -- overflow ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["cpu", "plain", "cuda"])
@pytest.mark.parametrize("shape, axis", [((4, 64), 1), ((3, 2, 8), 1)])
def test_a_large_mean_overflows_no_small_variance(target, shape, axis):
    """The square of 1e20 is no f32: a variance by way of the mean of squares would be an infinity, or NaN."""
    rng = np.random.default_rng(0)
    data = (1e20 + 1e18 * rng.standard_normal(shape)).astype(np.float32)
    block = Block()
    x = Input.make([], {"dtype": BY_NAME["f32"].tl, "dims": shape, "required": True}, name="i", tensors=["x"])
    op = Layernorm.make([x.results[0]], {"axis": axis, "epsilon": 1e-5}, name="n", tensors=["y"])
    block.add_ops([x, op, func.ReturnOp(op.results[0])])
    model = Model(ModuleOp([func.FuncOp("main", ((), [op.results[0].type]), Region(block))]), "norm")
    got = TARGETS[target](model)({"x": data})["y"]
    np.testing.assert_allclose(got, op.evaluate([data])[0], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("optype", ["reduce_max", "reduce_sum", "maxpool2d", "clip", "relu"])
def test_denormals_are_kept(optype):
    cls = OPS[optype]
    case = cls.schema.resolve(cls.samples()[0])
    block = Block()
    dims = case.tensors["src"].dims
    x = Input.make([], {"dtype": BY_NAME["f32"].tl, "dims": dims, "required": True}, name="i", tensors=["x"])
    op = cls.make([x.results[0]], dict(case.params), name="n", tensors=["y"])
    block.add_ops([x, op, func.ReturnOp(op.results[0])])
    model = Model(ModuleOp([func.FuncOp("main", ((), [op.results[0].type]), Region(block))]), "denormals")
    data = np.full(dims, 1e-40, np.float32)
    np.testing.assert_allclose(lightnet.compile(model)({"x": data})["y"], op.evaluate([data])[0], rtol=1e-4, atol=0)
    assert (op.evaluate([data])[0] > 0).all()
