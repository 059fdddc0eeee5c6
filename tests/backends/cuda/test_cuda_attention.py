"""Attention as one kernel of cuda, in the PTX interpreter: the results of NumPy in float64, on ragged and large sizes, masks, heads that share keys;
what it is made of, and what stays several kernels."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import parser  # noqa: E402

import lightnet  # noqa: E402
from lightnet import LightNetError  # noqa: E402
from lightnet.ir.body import choice  # noqa: E402
from lightnet.ir.kernel import KernelOp  # noqa: E402
from lightnet.passes import pipelines  # noqa: E402

#: How far f16 and bf16 are off, relative to the largest value: a few roundings, and sums in another order.
NEAR = {"f16": 2e-3, "bf16": 2e-2}


def network(batch: int, rows: int, keys: int, heads: int, width: int, *, mask: str = "", columns: int = 0,
            more: str = "", outputs: str = "", axis: int = -1) -> onnx.ModelProto:  # fmt: skip
    """Attention of `heads` heads as an exporter writes it; `mask` are the dims of what is added to the scores, `columns` those of V (default: the width)."""
    columns = columns or width
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[{batch},{rows},{heads * width}] x, float[{batch},{keys},{heads * width}] y, float[{batch},{keys},{heads * columns}] z
       {f", float[{mask}] m" if mask else ""}) => (float[{batch},{rows},{heads * columns}] out{outputs}) {{
      sq = Constant<value = int64[4] {{0, 0, {heads}, {width}}}>() sk = Constant<value = int64[4] {{0, 0, {heads}, {width}}}>()
      sv = Constant<value = int64[4] {{0, 0, {heads}, {columns}}}>() so = Constant<value = int64[3] {{0, 0, {heads * columns}}}>()
      scale = Constant<value = float {{{width**-0.5}}}>()
      q0 = Reshape(x, sq) q = Transpose<perm = [0, 2, 1, 3]>(q0) k0 = Reshape(y, sk) k1 = Transpose<perm = [0, 2, 1, 3]>(k0)
      v0 = Reshape(z, sv) v1 = Transpose<perm = [0, 2, 1, 3]>(v0) t = Transpose<perm = [0, 1, 3, 2]>(k1)
      s = MatMul(q, t) a = Mul(s, scale) {"b = Add(a, m)" if mask else "b = Identity(a)"} p = Softmax<axis = {axis}>(b)
      o = MatMul(p, v1) o1 = Transpose<perm = [0, 2, 1, 3]>(o) out = Reshape(o1, so) {more}
    }}"""
    return parser.parse_model(text)


def expected(feeds: dict[str, np.ndarray], heads: int) -> np.ndarray:
    wide = [feeds[name].astype(np.float64) for name in "xyz"]
    q, k, v = (array.reshape(*array.shape[:2], heads, -1).transpose(0, 2, 1, 3) for array in wide)
    scores = q @ k.transpose(0, 1, 3, 2) * q.shape[-1] ** -0.5
    if "m" in feeds:
        scores = scores + feeds["m"]
    e = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = e / e.sum(-1, keepdims=True) @ v
    return mixed.transpose(0, 2, 1, 3).reshape(*feeds["x"].shape[:2], -1)


def drawn(model: onnx.ModelProto, hidden: float = 0.3) -> dict[str, np.ndarray]:
    """Noise; a mask hides some keys, never the first."""
    rng, feeds = np.random.default_rng(5), {}
    for value in model.graph.input:
        dims = [d.dim_value for d in value.type.tensor_type.shape.dim]
        feeds[value.name] = rng.standard_normal(dims).astype(np.float32)
    if "m" in feeds:
        hides = rng.random(feeds["m"].shape) < hidden
        hides[..., 0] = False
        feeds["m"] = np.where(hides, -np.inf, feeds["m"]).astype(np.float32)
    return feeds


def algs(executable) -> list[str]:
    return [str(choice(op, "alg")) for op in executable.planned.walk() if isinstance(op, KernelOp)]


SHAPES = {
    "one tile": (1, 16, 64, 1, 16),
    "ragged": (2, 33, 70, 2, 32),
    "one row": (1, 1, 100, 2, 64),
    "one key": (2, 5, 1, 3, 16),
    "few keys": (1, 40, 17, 2, 48),
    "many keys": (1, 20, 300, 1, 64),
    "wide": (1, 65, 129, 1, 128),
    "many heads": (3, 17, 31, 5, 16),
}


@pytest.mark.parametrize("precision", NEAR)
@pytest.mark.parametrize("shape", SHAPES)
def test_attention_is_one_kernel(shape: str, precision: str) -> None:
    model = network(*SHAPES[shape])
    check(model, precision, SHAPES[shape][3])


@pytest.mark.parametrize("mask", ["2,1,33,70", "1,1,33,70", "2,1,1,70", "33,70", "70", "2,2,33,70", "1"])
def test_masks_of_every_shape(mask: str) -> None:
    check(network(2, 33, 70, 2, 32, mask=mask), "f16", 2)


def test_values_of_another_width() -> None:
    check(network(1, 20, 37, 2, 32, columns=80), "f16", 2)


@pytest.mark.parametrize("tile", [(16, 16), (32, 32), (48, 48), (128, 128)])
def test_every_tile_gives_the_results(tile: tuple[int, int]) -> None:
    check(network(2, 50, 70, 1, 32, mask="50,70"), "f16", 1, pipeline=choosing(f"out_f16.tile={list(tile)}"))


@pytest.mark.parametrize(
    "choice, why",
    [
        ("out_f16.tile=[24, 64]", "rows are multiples of 16 up to 128, keys of 16 up to 128"),
        ("out_f16.tile=[16, 144]", "rows are multiples of 16"),
        ("out_f16.tile=[0, 16]", "rows are multiples of 16"),
        ("out_f16.tile=64", "expected an array of 2 integers"),
    ],
)
def test_choices_that_cannot_be(choice: str, why: str) -> None:
    with pytest.raises(LightNetError, match=why):
        lightnet.compile(
            network(1, 20, 37, 2, 32), "cuda", emulate=True, pipeline=choosing(f"out_f16.alg=attention;{choice}")
        )


def test_a_row_that_sees_no_key_is_nan() -> None:
    """As by the definition: 0 / 0."""
    model = network(1, 20, 70, 1, 16, mask="20,70")
    feeds = drawn(model)
    feeds["m"][3] = -np.inf
    feeds["m"][4, :69] = -np.inf  # sees the last one alone
    (got,) = lightnet.compile(model, "cuda", precision="f16", emulate=True)(feeds).values()
    assert np.isnan(got[0, 3]).all() and np.isfinite(np.delete(got[0], 3, axis=0)).all()
    np.testing.assert_allclose(got[0, 4], feeds["z"][0, 69], rtol=2e-3, atol=2e-3)


def test_scores_that_are_far_apart() -> None:
    """Most exponentials are zeros."""
    model = network(1, 24, 70, 1, 64)
    feeds = drawn(model)
    feeds["x"] = (feeds["x"] * 12).astype(np.float32)
    executable = lightnet.compile(model, "cuda", precision="bf16", emulate=True)
    (got,) = executable(feeds).values()
    want = expected(feeds, 1)
    assert np.abs(got - want).max() <= 0.2 * np.abs(want).max() and np.isfinite(got).all()


@pytest.mark.parametrize(
    "model",
    [
        network(1, 20, 37, 2, 24),  # columns that tensor cores do not take
        network(1, 20, 37, 1, 144),  # more sums than registers
        network(1, 37, 37, 2, 32, axis=2),
        network(1, 1, 1000, 4, 32),  # a step of a decoder: too few blocks
        network(1, 20, 37, 2, 32, outputs=", float[1,2,20,37] s"),  # somebody reads the scores
        network(1, 20, 37, 2, 32, outputs=", float[1,2,20,37] p"),
    ],
    ids=["width", "wide", "axis", "decoder", "scores", "probabilities"],
)
def test_what_stays_several_kernels(model: onnx.ModelProto) -> None:
    executable = lightnet.compile(model, "cuda", precision="f16", emulate=True)
    assert "attention" not in algs(executable)


def test_exact_products_stay_several_kernels() -> None:
    executable = lightnet.compile(network(1, 20, 37, 2, 32), "cuda", emulate=True)
    assert "attention" not in algs(executable)


def test_on_the_processor() -> None:
    model = network(1, 33, 40, 2, 32)
    feeds = drawn(model)
    (got,) = lightnet.compile(model, "cuda", precision="f16", on_cpu=True)(feeds).values()
    want = expected(feeds, 2)
    assert np.abs(got - want).max() <= NEAR["f16"] * np.abs(want).max()


def choosing(choices: str) -> str:
    """The pipeline of cuda, with choices."""
    chosen = pipelines.default("cuda").replace("choose", f'choose{{set="{choices}"}}')
    return f"precision{{to=f16}},{chosen}"


def check(model: onnx.ModelProto, precision: str, heads: int, **options: str) -> None:
    """One kernel, each step of which the interpreter watches, beside those that round the inputs, has NumPy's results."""
    feeds = drawn(model)
    options = options or {"precision": precision}
    executable = lightnet.compile(model, "cuda", emulate=True, **options)
    assert set(algs(executable)) <= {"attention", "loops"} and algs(executable).count("attention") == 1
    (got,) = executable(feeds).values()
    want = expected(feeds, heads)
    assert np.abs(got - want).max() <= NEAR[precision] * np.abs(want).max()
