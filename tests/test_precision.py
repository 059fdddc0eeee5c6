"""Networks of f32 that compute in f16 and bf16: near what they compute in f32, on every target; what stays f32, and why; half of the memory for
weights; what `--check` makes of it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from kernels import op_of, sample_ops
from op_cases import beside
from xdsl.dialects.builtin import ModuleOp

import lightnet
from lightnet.backends.kernel_loops import bind_op
from lightnet.cli import lightnet as cli
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.activation import Gelu
from lightnet.dialects.ln.arith import Cast
from lightnet.dialects.ln.dialect import optypes
from lightnet.dialects.ln.source import Zeros
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir.context import make_context
from lightnet.ir.intervals import intervals, is_contraction
from lightnet.ir.memory import memory_of
from lightnet.ir.module import main_of
from lightnet.ir.op import LnOp
from lightnet.ir.parser import parse_mlir
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.ir.types import spec_of
from lightnet.passes.precision import TYPICAL, keeps_range
from lightnet.runtime.dtypes import BY_NAME, SHORT, is_float
from lightnet_trust.baseline import Baseline
from lightnet_trust.check import run_checked

EXAMPLES = Path(__file__).parents[1] / "examples"
#: Half the distance from 1 to the next number: the relative error of one rounding.
UNIT = {"f16": 2.0**-11, "bf16": 2.0**-8}
#: Roundings one after the other that a result of these networks has, weights, maps and epilogues of up to five layers, as they add up at worst in
#: an element as large as the largest.
ROUNDINGS = 12

RESIDUAL = """
func.func @main() -> (tensor<1x10xf32>, tensor<1x8x1x1xf32>) {
  %x = ln.input {ran = [-1, 1]} : tensor<1x3x8x8xf32> as ("x")
  %w = ln.param {ran = [-0.3, 0.3]} : tensor<8x3x3x3xf32> as ("w")
  %b = ln.param {ran = [-0.3, 0.3]} : tensor<8xf32> as ("b")
  %c = ln.conv2d %x, %w, %b {size = [3, 3], padding = [1, 1, 1, 1]} : tensor<1x8x8x8xf32> as ("c")
  %w2 = ln.param {ran = [-0.2, 0.2]} : tensor<8x8x3x3xf32> as ("w2")
  %d = ln.conv2d %c, %w2, %b {size = [3, 3], padding = [1, 1, 1, 1]} : tensor<1x8x8x8xf32> as ("d")
  %s = ln.silu %d : tensor<1x8x8x8xf32> as ("s")
  %r = ln.add %s, %c : tensor<1x8x8x8xf32> as ("r")
  %p = ln.avgpool2d %r {size = [8, 8]} : tensor<1x8x1x1xf32> as ("p")
  %f = ln.reshape %p : tensor<1x8xf32> as ("f")
  %w3 = ln.param {ran = [-1, 1]} : tensor<8x10xf32> as ("w3")
  %m = ln.matmul %f, %w3 : tensor<1x10xf32> as ("m")
  %y = ln.softmax %m {axis = 1} : tensor<1x10xf32> as ("y")
  func.return %y, %p : tensor<1x10xf32>, tensor<1x8x1x1xf32>
}
"""


@cache
def model(name: str):
    if name == "residual":
        return lightnet.loads(RESIDUAL, ".mlir")
    return lightnet.load(str(EXAMPLES / name))


@cache
def in_f32(name: str) -> dict[str, np.ndarray]:
    return lightnet.compile(model(name), "none")({})


def parse(text: str) -> ModuleOp:
    return parse_mlir(make_context(), text, "test.mlir")


def passed(module: ModuleOp, pipeline: str, limit: int | None = None) -> ModuleOp:
    run_pipeline(
        make_context(), module, parse_pipeline(pipeline, {"target": "cpu"}), verify_each=True, rewrite_limit=limit
    )
    return module


# ---- results -----------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(every=3, share=0.2)
@pytest.mark.parametrize("dtype", SHORT)
@pytest.mark.parametrize("name", ["cnn.net", "nets/lenet.net", "nets/mlp.net", "residual"])
def test_networks(name, dtype):
    """Every target is as near to f32 as the type allows, and no nearer (but the CPU in bf16, where products alone are short), and they differ from each other by a rounding here and there."""
    want, found = in_f32(name), {}
    for target, options in (("none", {}), ("cpu", {}), ("cuda", {"emulate": True})):
        found[target] = lightnet.compile(model(name), target, precision=dtype, **options)({})
        for key, array in want.items():
            got = found[target][key]
            error = np.abs(got.astype(np.float64) - array).max() / np.abs(array).max()
            assert got.dtype == np.float32
            assert error < ROUNDINGS * UNIT[dtype]
            assert error > UNIT[dtype] / 64 or (target, dtype) == ("cpu", "bf16")  # where no product pays
    for target in ("cpu", "cuda"):
        for key, array in found["none"].items():
            np.testing.assert_allclose(found[target][key], array, atol=4 * UNIT[dtype] * np.abs(array).max(), rtol=0)


@pytest.mark.parametrize("name", ["cnn.net", "nets/lenet.net", "residual"])
def test_weights_take_half_of_the_memory(name):
    """On cuda; the CPU, whose kernels are of f32, widens weights when it loads them."""
    plain, short = (
        lightnet.compile(model(name), "cuda", precision=p, layout="plain")._compilation.planned for p in ("f32", "f16")
    )
    tensors = [spec_of(r.type) for op in short.walk() if isinstance(op, OnceOp) for r in op.results]
    assert tensors
    assert {s.dtype.name for s in tensors} == {"f16"}
    sizes = [memory_of(m)["static"] for m in (plain, short)]
    alignment = 256 * len(tensors)
    assert sizes[1] <= sizes[0] / 2 + alignment


def test_params_are_fed_in_f32():
    """What is fed is rounded anew."""
    executable = lightnet.compile(model("residual"), "cpu", precision="f16")
    w3 = np.random.default_rng(0).standard_normal((8, 10)).astype(np.float32)
    want = lightnet.compile(model("residual"), "none")({"w3": w3})["y"]
    np.testing.assert_allclose(executable({"w3": w3})["y"], want, atol=ROUNDINGS * UNIT["f16"])


# ---- what stays f32 ------------------------------------------------------------------------------------------------------

#: By their definitions alone.
BOUNDED = (
    "relu", "lrelu", "prelu", "sigmoid", "silu", "gelu", "elu", "tanh", "hard_swish", "softplus", "add", "sub", "mul", "clip", "maxpool2d",
    "avgpool2d", "conv2d", "deconv2d", "matmul", "dot_product", "resize", "interpolate", "concat", "reshape", "pad", "reduce_max", "erf",
)  # fmt: skip
UNBOUNDED = (
    "exp", "log", "pow", "div", "reciprocal", "sinh", "softmax", "log_softmax", "batchnorm", "layernorm", "rmsnorm", "l2norm", "lrn", "sort1d",
    "topk", "lstm", "roi_align", "detect_yolov3", "cumsum", "grid_sample",
)  # fmt: skip


def samples_of_f32(name: str) -> list[LnOp]:
    found = [op for op, _ in sample_ops(optypes()[name]) if any(s.dtype.name == "f32" for s in op.result_specs)]
    return [op for op in found if all(s.len for s in (*op.operand_specs, *op.result_specs))]


@pytest.mark.parametrize("name", BOUNDED + UNBOUNDED)
def test_rule(name):
    ops = samples_of_f32(name)
    assert ops
    kept = {keeps_range(op) for op in ops}
    assert kept == {True} if name in BOUNDED else False in kept


def test_every_move_keeps_the_range():
    """Whatever its definition looks like: one that reads positions, or has none, too."""
    moves = [op for name in optypes() if optypes()[name].samples() for op in samples_of_f32(name) if op.is_move]
    assert len({op.optype for op in moves}) > 6
    assert [op.optype for op in moves if not keeps_range(op)] == []


#: What may stand between a product of integers and the cast, and what it gives of the product.
STEPS = {
    "moves": ("%r = ln.reshape %t : tensor<4x2xf32>", lambda t: t),
    "bounds": ("""%l = ln.param {data = [-100.0]} : tensor<1xf32> as ("l")
      %m = ln.maximum %t, %l : tensor<4x2xf32>
      %d = ln.cast %m : tensor<4x2xf64>
      %r = ln.abs %d : tensor<4x2xf64>""", lambda t: abs(np.maximum(t, -100))),
    "sums": ("""%s = ln.add %t, %t : tensor<4x2xf32>
      %u = ln.reduce_sum %s {axes = [1]} : tensor<4x1xf32>
      %r = ln.sub %t, %u : tensor<4x2xf32>""", lambda t: t - 2 * t.sum(1, keepdims=True)),
    "scales": ("""%f = ln.param {data = [0.25]} : tensor<1xf32> as ("f")
      %m = ln.mul %t, %f : tensor<4x2xf32>
      %r = ln.floor %m : tensor<4x2xf32>""", lambda t: np.floor(t * np.float32(0.25))),
}  # fmt: skip


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_integers_in_f32_stay_exact(dtype, kind):
    """A product of integers, as quantised networks have it: what becomes integers, behind what keeps them, is not rounded."""
    steps, given = STEPS[kind]
    text = """func.func @main() -> tensor<4x2xi32> {
      %a = ln.input : tensor<2x64xi32> as ("a")
      %b = ln.input : tensor<64x4xi32> as ("b")
      %x = ln.cast %a {mode = "wrap"} : tensor<2x64xf32> as ("x")
      %y = ln.cast %b {mode = "wrap"} : tensor<64x4xf32> as ("y")
      %z = ln.matmul %x, %y : tensor<2x4xf32> as ("z")
      %t = ln.transpose %z {axes = [1, 0]} : tensor<4x2xf32> as ("t")
      STEPS
      %c = ln.cast %r {mode = "wrap"} : tensor<4x2xi32> as ("c")
      func.return %c : tensor<4x2xi32>
    }""".replace("STEPS", steps)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, shape).astype(np.int32) for shape in ((2, 64), (64, 4)))
    got = lightnet.compile(lightnet.loads(text, ".mlir"), precision=dtype)({"a": a, "b": b})["c"]
    np.testing.assert_array_equal(got, given((a @ b).T))


def test_sums_keep_the_range_while_they_are_short():
    text = """func.func @main() -> tensor<1xf32> {{
      %x = ln.input : tensor<{n}xf32> as ("x")
      %y = ln.{op} %x {{axes = [0]}} : tensor<1xf32> as ("y")
      func.return %y : tensor<1xf32>
    }}"""
    for op in ("reduce_sum", "reduce_mean"):
        kept = [
            keeps_range(next(o for o in parse(text.format(n=n, op=op)).walk() if o.name == f"ln.{op}"))
            for n in (64, 511, 512, 4096)
        ]
        assert kept == [True, True, False, False]


@pytest.mark.parametrize("name", [n for n, cls in optypes().items() if cls.samples()])
def test_intervals_hold_what_ops_give(name):
    """References on data within the intervals of the operands give nothing outside of those of the results."""
    rng = np.random.default_rng(0)
    for op, arrays in sample_ops(optypes()[name])[:8]:
        if op.definition is None or op.has_builder or not all(s.len for s in op.operand_specs) or op.takes_bits:
            continue
        definition = bind_op(op)
        if any(is_contraction(definition, s) for s in definition.statements):
            continue
        drawn = [rng.uniform(*TYPICAL, a.shape).astype(a.dtype) if is_float(a.dtype) else a for a in arrays]
        given = {n: TYPICAL for n, s in definition.operands if s.dtype.is_float}
        found = intervals(definition, given, TYPICAL)
        for (result, spec), array in zip(definition.results, op.evaluate(drawn), strict=True):
            wide = array.astype(np.float64)
            low, high = found[result]
            if spec.dtype.is_float:  # what a type cannot hold is infinite in it
                low, high = (np.copysign(np.inf, x) if abs(x) > spec.dtype.limits[1] else x for x in (low, high))
            slack = 1e-2 if spec.dtype.is_short else 1e-5
            inside = (wide >= low - slack * abs(low) - 1e-30) & (wide <= high + slack * abs(high) + 1e-30)
            assert (inside | np.isnan(wide)).all(), (str(definition), low, high, wide.min(), wide.max())


# ---- the pass ------------------------------------------------------------------------------------------------------------


def test_casts_stand_at_borders_alone():
    module = passed(model("residual").module.clone(), "bind,precision{to=f16},simplify,hoist")
    short = [op for op in module.walk() if isinstance(op, Cast) and op.operand_specs[0].dtype.name == "f32"]
    wide = [op for op in module.walk() if isinstance(op, Cast) and op.operand_specs[0].dtype.name == "f16"]
    assert [op.src.name_hint for op in short if op.parent_op().name == "func.func"] == ["x"]
    assert len([op for op in short if isinstance(op.parent_op(), OnceOp)]) == 4
    assert len(wide) == 2  # of the operand of the softmax, and of the output p


def test_it_is_done_once():
    """A second run finds nothing of f32 to round."""
    module = passed(model("residual").module.clone(), "bind,precision{to=f16}")
    again = passed(module.clone(), "precision{to=f16},simplify")
    assert str(again) == str(passed(module, "simplify"))


@pytest.mark.parametrize("limit", range(8))
def test_rewrites_can_be_cut_off(limit):
    module = model("residual").module.clone()
    want = Baseline(passed(module.clone(), "bind"))
    assert want.compare(passed(module, "bind,precision{to=f16}", limit + 5), rounded=BY_NAME["f16"]) is None


@pytest.mark.parametrize("text, message", [
    ("precision{to=f32}", "there is no 'to=f32'"),
    ("precision{to=i8}", "there is no 'to=i8'"),
    ("expand,precision{to=f16}", "there are kernels already"),
])  # fmt: skip
def test_refusals(text, message):
    with pytest.raises(LightNetError, match=message):
        passed(model("residual").module.clone(), f"bind,{text}")


@pytest.mark.parametrize("target, options, message", [
    ("cpu", {"precision": "tf32"}, "'tf32' is of target cuda"),
    ("cpu", {"precision": "f8"}, "target 'cpu' has no precision 'f8'; there are: f32, f16, bf16"),
    ("cpu", {"precision": "f16", "plan": "upstream"}, "upstream's plans"),
    ("cpu", {"precision": "f16", "pipeline": "bind,expand,plan,lower-cpu"}, "put precision"),
])  # fmt: skip
def test_options_that_do_not_go_together(target, options, message):
    with pytest.raises(LightNetError, match=message):
        lightnet.compile(model("residual"), target, **options)


def test_tf32_is_for_the_choice_of_kernels():
    executable = lightnet.compile(model("residual"), "cuda", precision="tf32", emulate=True)
    assert next(p for p in executable._compilation.passes if p.name == "choose").precision == "tf32"
    want = in_f32("residual")
    for key, array in executable({}).items():
        np.testing.assert_allclose(array, want[key], atol=ROUNDINGS * UNIT["f16"] * np.abs(want[key]).max(), rtol=0)


# ---- checking it ---------------------------------------------------------------------------------------------------------

PIPELINE = "bind,simplify,fold-batchnorm,simplify,precision{{to={}}},simplify,hoist,expand,combine"


@pytest.mark.parametrize("dtype", SHORT)
@pytest.mark.parametrize("name", ["cnn.net", "nets/lenet.net", "residual"])
def test_check(name, dtype):
    module = model(name).module.clone()
    verdict = run_checked(make_context(), module, parse_pipeline(PIPELINE.format(dtype), {"target": "cpu"}))
    assert verdict.ok
    assert verdict.compared > 20
    alone = run_checked(make_context(), model(name).module.clone(), parse_pipeline(f"precision{{to={dtype}}}"))
    assert alone.ok
    assert alone.compared > 3


def test_what_is_wrong_is_found_behind_the_rounding():
    """Another op than there was, of the right type, and weights that are no longer those: each is more than rounding."""
    source = passed(model("residual").module.clone(), "bind")
    baseline, half = Baseline(source), BY_NAME["f16"]
    module = passed(source.clone(), "precision{to=f16}")
    assert baseline.compare(module, rounded=half) is None
    assert "was float32" in str(baseline.compare(module))  # types are promised by every other pass
    other = module.clone()
    silu = next(op for op in other.walk() if op.name == "ln.silu")
    gelu = Gelu.make([silu.src], tensors=["s"])
    silu.parent.insert_op_before(gelu, silu)
    silu.results[0].replace_all_uses_with(gelu.results[0])
    silu.detach()
    difference = baseline.compare(other, rounded=half)
    assert difference is not None
    assert difference.tensor == "s"
    shifted = module.clone()
    first, second = (op for op in shifted.walk() if op.name == "ln.conv2d")
    zeros = Zeros.make([], {"dtype": half.tl, "dims": (8,)})
    second.parent.insert_op_before(zeros, first)
    second.operands[2] = zeros.dst
    difference = baseline.compare(shifted, rounded=half)
    assert difference is not None
    assert difference.tensor == "d"


def test_a_wrong_pass_is_blamed(monkeypatch):
    """A pass that promises to keep types is held to it, at the first op that it rounds."""
    from lightnet.passes import precision

    monkeypatch.setattr(precision.PrecisionPass, "rounds_to", property(lambda self: None))
    passes = parse_pipeline("bind,precision{to=f16}")
    verdict = run_checked(make_context(), model("residual").module.clone(), passes)
    assert verdict.pass_name == "precision"
    assert verdict.pattern == "precision"


# ---- the command line ------------------------------------------------------------------------------------------------------


def test_command_line(tmp_path, capsys):
    network, saved = str(EXAMPLES / "cnn.net"), str(tmp_path / "cnn.lnx")
    arrays = []
    for arguments in (["run", network, "--precision", "f16"], ["run", saved]):
        if arguments[1] == saved:
            assert cli.main(["compile", network, "-o", saved, "--precision", "f16"]) == 0
        assert cli.main([*arguments, "-i", "random", "-o", str(tmp_path / "out.npz")]) == 0
        arrays.append(np.load(tmp_path / "out.npz")["classes"])
    assert (arrays[0] == arrays[1]).all()
    assert cli.main(["run", network, "-i", "random", "-o", str(tmp_path / "out.npz")]) == 0
    plain = np.load(tmp_path / "out.npz")["classes"]
    assert 0 < np.abs(plain - arrays[0]).max() < ROUNDINGS * UNIT["f16"]
    assert cli.main(["run", saved, "--precision", "f16"]) == 1
    assert "--precision needs the network" in capsys.readouterr().err


# ---- every op ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", SHORT)
@pytest.mark.parametrize("name", sorted(n for n, cls in optypes().items() if cls.samples()))
def test_every_op(name: str, dtype: str) -> None:
    """A network of one op keeps its types, and has casts where the op has become short; where it has not, none are left."""
    cls = optypes()[name]
    case = next((c for c in cls.samples() if "f32" in str(cls.schema.resolve(c).tensors)), None)
    if case is None:
        pytest.skip("it takes no f32")
    op, arrays = op_of(cls, case)
    net, _ = beside(
        [SimpleNamespace(cls=cls, specs=op.operand_specs, params=op.param_values(), arrays=arrays)], "test.mlir"
    )
    module = net.module
    before, types = str(module), [r.type for r in main_of(module).get_return_op().operands]
    assert [r.type for r in main_of(passed(module, f"precision{{to={dtype}}}")).get_return_op().operands] == types
    (after,) = (o for o in module.walk() if isinstance(o, cls) and o.op_name)
    casts = [o for o in module.walk() if o.name == "ln.cast" and o is not after]
    short = any(spec_of(v.type).dtype.name == dtype for v in (*after.operands, *after.results))
    assert bool(casts) == short and (short or str(module) == before)
