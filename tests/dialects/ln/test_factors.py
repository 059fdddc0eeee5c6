"""The elements of a source that those of a rearrangement are, by factors (`dialects/ln/factors.py`), and the rule of `matmul` that goes by it."""

from __future__ import annotations

import random
from math import prod

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

import lightnet
from lightnet.dialects.ln.factors import product, rearranged
from lightnet.dialects.ln.move import Reshape, Transpose
from lightnet.dialects.ln.rearrange import Expand
from lightnet.dialects.ln.source import Input
from lightnet.ir.context import make_context
from lightnet.ir.parser import parse_mlir
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.ir.types import spec_of


def chain(rng: random.Random, dims: tuple[int, ...]) -> SSAValue:
    """A value that random moves make of an input of these dims."""
    value: SSAValue = Input.make([], {"dims": dims, "dtype": "TL_FLOAT"}, tensors=["x"]).results[0]
    for _ in range(rng.randint(1, 6)):
        dims = spec_of(value.type).dims
        match rng.choice(("reshape", "transpose", "expand")):
            case "transpose":
                op = Transpose.make([value], {"axes": tuple(rng.sample(range(len(dims)), len(dims)))})
            case "expand":
                more = [rng.choice((1, 2))] * (len(dims) < 5)
                op = Expand.make([value], {"dims": (*more, *(rng.choice((1, 3)) if d == 1 else d for d in dims))})
            case _:
                op = Reshape.make([value], {"dims": regrouped(rng, prod(dims))})
        value = op.results[0]
    return value


def regrouped(rng: random.Random, count: int) -> tuple[int, ...]:
    """Dims of so many elements."""
    dims: list[int] = []
    while count > 1 and len(dims) < 4:
        dims.append(rng.choice([n for n in range(1, count + 1) if count % n == 0]))
        count //= dims[-1]
    return (*dims, count)


def moved(value: SSAValue) -> np.ndarray:
    """The number of the input's element that each element of a value is, by NumPy."""
    op = value.owner
    if isinstance(op, Input):
        dims = spec_of(value.type).dims
        return np.arange(prod(dims)).reshape(dims)
    source = moved(op.src)
    dims = op.result_specs[0].dims
    if isinstance(op, Transpose):
        return source.transpose(op.axes)
    return np.broadcast_to(source, dims) if isinstance(op, Expand) else source.reshape(dims)


@pytest.mark.parametrize("seed", range(200))
def test_factors_say_where_each_element_is_from(seed: int) -> None:
    rng = random.Random(seed)
    value = chain(rng, rng.choice([(2, 3), (4, 6), (1, 2, 1, 5), (12,), (2, 2, 3, 4), ()]))
    found, expected = rearranged(value), moved(value)
    if found is None:  # dims that cut across factors
        assert any(isinstance(op, Reshape) for op in owners(value))
        return
    strides, stride = {}, 1
    for factor in reversed(found.order):
        strides[factor], stride = stride, stride * factor.size
    assert tuple(map(product, found.axes)) == expected.shape
    number = np.zeros((), int)
    for factor in (f for axis in found.axes for f in axis):
        number = number[..., None] + np.arange(factor.size) * (0 if factor.repeats else strides[factor])
    assert (number.reshape(expected.shape) == expected).all()


def owners(value: SSAValue) -> list[object]:
    """The ops that made a value, the last first."""
    found: list[object] = []
    while not isinstance(op := value.owner, Input):
        found.append(op)
        value = op.src
    return found


def test_most_chains_have_factors() -> None:
    found = [rearranged(chain(random.Random(seed), (2, 3, 4))) for seed in range(200)]
    assert sum(f is not None for f in found) > 120


#: A product of queries with keys that stand once for some heads: batch, groups, heads of a group, rows, width.
CACHED = """func.func @main() -> tensor<{b}x{h}x{m}x?xf32, #ln.dims<"n(1..40)">> {{
  %q = ln.input : tensor<{b}x{h}x{m}x{k}xf32> as ("q")
  %k = ln.input : tensor<{b}x{g}x?x{k}xf32, #ln.dims<"n(1..40)">> as ("k")
  %1 = ln.reshape %k : tensor<{b}x{g}x1x?x{k}xf32, #ln.dims<"n(1..40)">>
  %2 = ln.expand %1 : tensor<{b}x{g}x{r}x?x{k}xf32, #ln.dims<"n(1..40)">>
  %3 = ln.reshape %2 : tensor<{b}x{h}x?x{k}xf32, #ln.dims<"n(1..40)">>
  %4 = ln.transpose %3 {{axes = [0, 1, 3, 2]}} : tensor<{b}x{h}x{k}x?xf32, #ln.dims<"n(1..40)">>
  %y = ln.matmul %q, %4 : tensor<{b}x{h}x{m}x?xf32, #ln.dims<"n(1..40)">> as ("y")
  func.return %y : tensor<{b}x{h}x{m}x?xf32, #ln.dims<"n(1..40)">>
}}"""


def simplified(text: str) -> ModuleOp:
    module = parse_mlir(make_context(), text)
    run_pipeline(make_context(), module, parse_pipeline("bind,simplify"))
    return module


@pytest.mark.parametrize(
    ("b", "g", "r", "m", "k"), [(1, 2, 4, 1, 8), (2, 1, 3, 5, 4), (3, 2, 2, 2, 1), (1, 4, 1, 3, 7)]
)
def test_keys_are_not_repeated(b: int, g: int, r: int, m: int, k: int) -> None:
    text = CACHED.format(b=b, g=g, r=r, m=m, k=k, h=g * r)
    assert "ln.expand" not in str(simplified(text))
    run, rng = lightnet.compile(lightnet.loads(text, ".mlir")), np.random.default_rng(0)
    for n in (1, 5, 17, 40):
        q, keys = rng.standard_normal((b, g * r, m, k), np.float32), rng.standard_normal((b, g, n, k), np.float32)
        expected = q.astype(float) @ np.repeat(keys.astype(float), r, axis=1).swapaxes(2, 3)
        np.testing.assert_allclose(run({"q": q, "k": keys})["y"], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("what, old, new", [
    ("columns are repeated", "ln.matmul %q, %4", "ln.matmul %q, %w"),
    ("heads repeat the groups, not each its own", "ln.expand %1", "ln.expand %v"),
])  # fmt: skip
def test_other_repetitions_stay(what: str, old: str, new: str) -> None:
    text = CACHED.format(b=1, g=2, r=2, m=3, k=4, h=4)
    line = {
        "%w": "%v = ln.reshape %q : tensor<48xf32>\n %u = ln.slice %v {axis = 0, start = 0, len = 16} : tensor<16xf32>\n"
        ' %t = ln.reshape %u : tensor<1x4x4x1xf32>\n %w = ln.expand %t : tensor<1x4x4x?xf32, #ln.dims<"n(1..40)">>',
        "%v": '%v = ln.reshape %k : tensor<1x1x2x?x4xf32, #ln.dims<"n(1..40)">>',
    }[new.split()[-1]]
    changed = text.replace("  %4 = ln", f"  {line}\n  %4 = ln" if "%w" in line else "  %4 = ln").replace(old, new)
    if "%v" in new:
        changed = changed.replace("  %2 = ln", f"  {line}\n  %2 = ln").replace("tensor<1x2x2x?x4", "tensor<1x2x2x?x4")
    assert "ln.expand" in str(simplified(changed)), what


@pytest.mark.parametrize("a, b, wide, out", [
    ("4x8", "1x1x8x5", "4x1x8x5", "4x1x4x5"),  # rows of `a` are no heads
    ("3x1x4x8", "1x1x8x5", "3x1x8x5", "3x1x4x5"),  # an axis of 1 behind the heads
    ("2x3x4x8", "2x1x8x5", "2x3x8x5", "2x3x4x5"),
    ("3x4x8", "2x1x8x5", "2x3x8x5", "2x3x4x5"),
    ("2x1x4x8", "2x1x8x5", "2x3x8x5", "2x3x4x5"),  # `a` has one head
], ids=str)  # fmt: skip
def test_operands_of_other_ranks(a: str, b: str, wide: str, out: str) -> None:
    text = f"""func.func @main() -> tensor<{out}xf32> {{
      %a = ln.input : tensor<{a}xf32> as ("a")
      %b = ln.input : tensor<{b}xf32> as ("b")
      %1 = ln.expand %b : tensor<{wide}xf32>
      %y = ln.matmul %a, %1 : tensor<{out}xf32> as ("y")
      func.return %y : tensor<{out}xf32>
    }}"""
    rng = np.random.default_rng(0)
    feeds = {
        n: rng.integers(-3, 4, [int(d) for d in dims.split("x")]).astype(np.float32) for n, dims in (("a", a), ("b", b))
    }
    expected = feeds["a"] @ np.broadcast_to(feeds["b"], [int(d) for d in wide.split("x")])
    simplified(text)
    np.testing.assert_array_equal(lightnet.compile(lightnet.loads(text, ".mlir"))(feeds)["y"], expected)


def test_more_factors_than_axes_may_be() -> None:
    text = """func.func @main() -> tensor<4x3x32xf32> {
      %a = ln.input : tensor<4x3x512xf32> as ("a")
      %k = ln.input : tensor<8x8x256xf32> as ("k")
      %1 = ln.reshape %k : tensor<2x4x2x4x16x16xf32>
      %2 = ln.transpose %1 {axes = [5, 3, 1, 0, 2, 4]} : tensor<16x4x4x2x2x16xf32>
      %3 = ln.reshape %2 : tensor<2x8x2x2x2x2x4x16xf32>
      %4 = ln.transpose %3 {axes = [7, 1, 3, 5, 0, 2, 4, 6]} : tensor<16x8x2x2x2x2x2x4xf32>
      %5 = ln.reshape %4 : tensor<1x512x32xf32>
      %6 = ln.expand %5 : tensor<4x512x32xf32>
      %y = ln.matmul %a, %6 : tensor<4x3x32xf32> as ("y")
      func.return %y : tensor<4x3x32xf32>
    }"""
    simplified(text)
