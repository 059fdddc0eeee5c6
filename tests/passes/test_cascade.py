"""Stripes of rows: what they compute, against the chain as it was; when there are some, and what they save."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import lightnet
from lightnet.dialects.ln.move import Concat
from lightnet.ir.context import make_context
from lightnet.ir.memory import memory_of
from lightnet.ir.module import main_of
from lightnet.ir.op import LnOp
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.ir.target import get_target
from lightnet.model import Model
from lightnet.passes import cascade
from lightnet.passes.cascade import Cascade, links_around
from lightnet.passes.memory_model import MemoryModel
from lightnet.passes.pipelines import default, pipeline_of

NETS = Path(__file__).parents[1] / "data" / "nets" / "il"

#: What makes a map, what stands between, and what reads it: conv2d(channels, size, ...) or a pool (size, ...).
CHAINS = [
    ("conv 4 3x3 pad 1,1,1,1", "lrelu", "conv 5 3x3 stride 2,2 pad 1,1,1,1"),
    ("conv 4 3x3 pad 1,1,1,1", "lrelu", "conv 5 3x3 stride 2,1 pad 0,1,1,0"),
    ("conv 2 5x2 stride 2,1 pad 3,0,1,2", "", "max 3x3 stride 2,2 pad 1,1,1,1"),
    ("conv 3 1x1", "sigmoid relu", "avg 3x2 stride 1,1 pad 2,1,1,0"),
    ("max 2x2 stride 1,1", "", "conv 4 3x3 dilation 2,1 pad 2,1,2,1"),
    ("conv 3 3x3 dilation 3,2 pad 3,2,3,2", "clip", "conv 2 4x4 stride 3,3"),
    ("avg 3x3 stride 2,2 pad 1,1,1,1", "", "avg 2x2 stride 2,2"),
    ("conv 4 3x3 stride 2,2 same", "lrelu", "conv 4 4x3 same"),
    ("max 3x3 stride 2,2 lower", "", "conv 4 5x1 lower"),
]
ELEMENTWISE = {"lrelu": "negslope = 0.125", "sigmoid": "", "relu": "", "clip": "lo = -0.25, hi = 0.5"}


def network(chain: tuple[str, str, str], rows: int, batch: int = 1, behind: str = "", columns: int = 7) -> Model:
    """The chain over a picture of 3 channels, as a module of the graph's level."""
    first, between, last = chain
    steps = [first, *between.split(), last, *behind.split()]
    params, ops, value, dims = [], [], "%x", [batch, 3, rows, columns]
    for k, step in enumerate(steps):
        words = step.split()
        if words[0] in ELEMENTWISE:
            attributes = ELEMENTWISE[words[0]]
            ops.append(f'  %v{k} = ln.{words[0]} {value} {{{attributes}}} : {spelt(dims)} as ("v{k}")')
            value = f"%v{k}"
            continue
        channels = int(words[1]) if words[0] == "conv" else dims[1]
        size = [int(n) for n in words[2 if words[0] == "conv" else 1].split("x")]
        given = dict(pairwise(words))
        numbers = lambda key, default: [int(n) for n in given.get(key, default).split(",")]  # noqa: B023, E731
        stride, dilation, pad = numbers("stride", "1,1"), numbers("dilation", "1,1"), numbers("pad", "0,0,0,0")
        auto = {"same": "SAME_UPPER", "lower": "SAME_LOWER"}.get(words[-1], "NOTSET")
        made = list(dims)
        for axis in (0, 1):
            n, extent = dims[2 + axis], (size[axis] - 1) * dilation[axis] + 1
            made[2 + axis] = (
                -(-n // stride[axis])
                if auto != "NOTSET"
                else (n + pad[axis] + pad[2 + axis] - extent) // stride[axis] + 1
            )
        made[1] = channels
        text = f'size = {size}, stride = {stride}, padding = {pad}, autopad = "{auto}"'
        operands = value
        if words[0] == "conv":
            text += f", dilation = {dilation}"
            weight = [channels, dims[1], *size]
            params.append(f'  %w{k} = ln.param {{ran = [-1., 1.]}} : {spelt(weight)} as ("w{k}")')
            params.append(f'  %b{k} = ln.param {{ran = [-1., 1.]}} : {spelt([channels])} as ("b{k}")')
            operands += f", %w{k}, %b{k}"
        name = {"conv": "conv2d", "max": "maxpool2d", "avg": "avgpool2d"}[words[0]]
        dims, value = made, f"%v{k}"
        ops.append(f'  {value} = ln.{name} {operands} {{{text}}} : {spelt(dims)} as ("v{k}")')
    text = f'func.func @main() -> {spelt(dims)} {{\n  %x = ln.input : {spelt([batch, 3, rows, columns])} as ("x")\n'
    text += "\n".join([*params, *ops]) + f"\n  func.return {value} : {spelt(dims)}\n}}\n"
    return lightnet.loads(text, ".mlir")


def spelt(dims: list[int]) -> str:
    return f"tensor<{'x'.join(map(str, dims))}xf32>"


def result(model: Model, target: str = "none", **options) -> np.ndarray:
    dims = next(op for op in model.module.walk() if op.name == "ln.input").result_specs[0].dims
    feed = np.random.default_rng(0).standard_normal(dims).astype(np.float32)
    (value,) = lightnet.compile(model, target, **options)(x=feed).values()
    return value


def windowed(model: Model) -> LnOp:
    return [op for op in main_of(model.module).body.block.ops if isinstance(op, cascade.WINDOWED)][-1]


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: "-".join(" ".join(chain).split()))
def test_stripes_make_the_same_numbers(chain: tuple[str, str, str], batch: int) -> None:
    expected = result(network(chain, 23, batch))
    rows = expected.shape[2]
    assert rows > 4
    for stripes in {2, 3, rows - 1, rows}:
        model = network(chain, 23, batch)
        found = links_around(windowed(model))
        assert len(found) == len(" ".join((chain[1], "first last")).split())
        joined = Cascade(found, stripes).divide()[-1]
        model.module.verify()
        assert isinstance(joined, Concat) and len(joined.operands) == stripes
        np.testing.assert_array_equal(result(model), expected)


def peak(model: Model) -> int:
    block = main_of(model.module).body.block
    return MemoryModel(block).peak(range(len(list(block.ops))))


def divided(model: Model) -> int:
    """The number of stripes that the pass makes."""
    run_pipeline(make_context(), model.module, parse_pipeline("cascade"))
    return sum(len(op.operands) for op in model.module.walk() if isinstance(op, Concat))


#: A map of 4 MiB between others of 1 MiB and less.
LARGE = ("conv 16 3x3 pad 1,1,1,1", "lrelu", "max 2x2 stride 2,2")


def test_what_is_between_is_never_there_as_a_whole() -> None:
    model = network(LARGE, 256, columns=256, behind="sigmoid")
    before, expected = peak(model), result(model)
    assert divided(model) == 5
    picture, whole, last = 3 << 18, 1 << 22, 1 << 20
    assert before == picture + whole + last
    assert peak(model) <= picture + 2 * last + (whole + picture) // 5 + 100 * 1024
    assert len([op for op in model.module.walk() if op.name == "ln.sigmoid"]) == 5  # it fuses with what it reads
    np.testing.assert_array_equal(result(model), expected)
    np.testing.assert_allclose(result(model, "cpu"), expected, atol=1e-5)


def test_a_plan_of_plain_maps_takes_less() -> None:
    made = [
        lightnet.compile(network(LARGE, 256, columns=256), layout="plain", disable=off) for off in ((), ("cascade",))
    ]
    arenas = [executable.program.memory["arena"] for executable in made]
    assert arenas[0] < 0.6 * arenas[1]
    feed = np.random.default_rng(1).standard_normal((1, 3, 256, 256)).astype(np.float32)
    np.testing.assert_allclose(*(next(iter(e(x=feed).values())) for e in made), atol=1e-5)


@pytest.mark.parametrize(("name", "limit"), [("yolov3_bak", 276_000_000), ("squeezedet", 35_000_000)])
def test_networks_of_plain_maps(name: str, limit: int) -> None:
    """All memory of a network, the caller's arrays included. Whole, the maps of these would take 286 and 53 million bytes."""
    module = lightnet.load(NETS / f"{name}.net").module
    options = {"target": "cpu", "layout": "plain", "ports": get_target("cpu").ports}
    run_pipeline(make_context(), module, parse_pipeline(default("cpu", until="plan", layout="plain"), options))
    assert sum(memory_of(module).values()) <= limit


def test_small_maps_stay_whole() -> None:
    model = network(LARGE, 64, columns=256)
    before = str(model.module)
    assert divided(model) == 0 and str(model.module) == before


def test_a_map_that_another_op_reads_stays_whole() -> None:
    model = network(LARGE, 256, columns=256)
    conv = next(op for op in model.module.walk() if op.name == "ln.conv2d")
    ret = main_of(model.module).body.block.last_op
    ret.operands = [*ret.operands, conv.results[0]]
    assert links_around(windowed(model)) == []


def test_rows_that_would_be_computed_twice_too_often() -> None:
    """Windows of 65 rows over a map of 256, in two stripes, make 62 rows twice."""
    chain = ("conv 16 3x3 pad 1,1,1,1", "", "max 65x2 stride 2,2")
    assert Cascade(links_around(windowed(network(chain, 256))), 2).twice == pytest.approx(62 / 256)
    assert divided(network(chain, 256, columns=256)) == 0


def test_windows_that_see_padding_alone_stay() -> None:
    assert links_around(windowed(network(("conv 4 3x3", "", "conv 4 1x1 pad 2,0,0,0"), 9))) == []
    assert links_around(windowed(network(("conv 4 1x1 pad 0,0,1,0", "", "conv 4 3x3"), 9))) == []


def test_pipelines_of_plain_maps_have_it() -> None:
    assert "cascade" in pipeline_of("cpu", layout="plain").passes
    assert "cascade" not in pipeline_of("cpu").passes + pipeline_of("cuda", layout="plain").passes
    assert "cascade" not in pipeline_of("cpu", plan="upstream", layout="plain").passes
