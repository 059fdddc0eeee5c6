"""docs/add-a-kernel.md: choices by hand; examples/my_kernel.py, the generator of that page, alone at ugly shapes and in a network."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from blocked_kernels import check_blocked

import lightnet
from lightnet.backends.cpu.blocked.base import ProcessorModel
from lightnet.backends.cpu.selection import SELECTION
from lightnet.diagnostics import LightNetError
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.ir.registry import GENERATORS
from lightnet.plugins import load

FILE = Path(__file__).parents[2] / "examples" / "my_kernel.py"
_SPEC = importlib.util.spec_from_file_location("my_kernel", FILE)
_MODULE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_MODULE)
CROP = _MODULE.CROP

MACHINES = [ProcessorModel(), ProcessorModel(lanes=8, registers=16), ProcessorModel(lanes=4)]


def tensor(*dims: int) -> str:
    return f"tensor<{'x'.join(map(str, dims))}xf32>"


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: f"{m.lanes} lanes")
@pytest.mark.parametrize("axis", [2, 3])
@pytest.mark.parametrize("dims", [(1, 1, 4, 4), (2, 17, 7, 30), (1, 40, 5, 9)], ids=str)
def test_machine_code(dims, axis, machine):
    """With an epilogue that does not keep zeros, a residual, and halos on both sides."""
    cut = (*dims[:axis], dims[axis] - 3, *dims[axis + 1 :])
    body = f"%y = ln.slice %x {{axis = {axis}, start = 2, len = {cut[axis]}}} : {tensor(*cut)} ln.yield %y"
    extra, out = (1, 1), (2, 1)
    check_blocked(CROP, {"x": tensor(*dims)}, body, extra=extra, out=out, machine=machine)
    body = body.replace(
        "ln.yield %y", f"%s = ln.sigmoid %y : {tensor(*cut)} %z = ln.add %s, %r : {tensor(*cut)} ln.yield %z"
    )
    check_blocked(CROP, {"x": tensor(*dims), "r": tensor(*cut)}, body, extra=extra, out=out, machine=machine)


def test_in_a_network():
    """The result is that of the interpreter; no map becomes row-major between the convolutions; afterwards the row is gone."""
    before = SELECTION.generators()
    feeds = {"x": np.random.default_rng(0).uniform(-1, 1, (1, 16, 16, 16)).astype(np.float32)}
    with load(FILE):
        assert "crop" in GENERATORS and len(SELECTION.generators()) == len(before) + 1
        run = lightnet.compile(str(FILE.with_suffix(".mlir")), features="avx2", threads=2)
        planned = str(run.planned)
        found, single = run(feeds)["conv2"], run(feeds, threads=1)["conv2"]
    assert SELECTION.generators() == before and "crop" not in GENERATORS
    assert 'alg = "crop"' in planned and planned.count('alg = "reorder"') == 2
    assert np.array_equal(found, single)
    (expected,) = lightnet.compile(str(FILE.with_suffix(".mlir")), target="none")(feeds).values()
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
    assert 'alg = "crop"' not in str(lightnet.compile(str(FILE.with_suffix(".mlir"))).planned)


@pytest.mark.parametrize("value", ["0", "17", "x", "[8]"])
def test_a_choice_that_cannot_be_built(value):
    model = lightnet.load(str(FILE.with_suffix(".mlir")))
    passes = parse_pipeline(f'bind,expand,hoist,combine,layout,choose{{set="cut.pixels={value}"}}')
    with load(FILE), pytest.raises(LightNetError, match="1 to 16 are in registers"):
        run_pipeline(model.ctx, model.module, passes)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('alg = "crop"', "", "has no name"),
        ('alg = "crop"', "alg = 3", "has no name"),
        ("def plan(", "def plans(", "Can.t instantiate.*plan"),
        ("def build(self, kernel: KernelOp", "def builds(self, kernel: KernelOp", "Can.t instantiate.*build"),
    ],
)
def test_a_generator_that_is_not_whole(tmp_path, old, new, message):
    broken = tmp_path / "broken.py"
    broken.write_text(FILE.read_text("utf-8").replace(old, new))
    with pytest.raises(LightNetError, match=message):
        with load(broken):
            pass


def test_a_name_that_is_taken(tmp_path):
    twice = tmp_path / "twice.py"
    twice.write_text(FILE.read_text("utf-8").replace('alg = "crop"', 'alg = "pool"'))
    with pytest.raises(LightNetError, match=r"generator 'pool' is defined twice: by .*pool:POOL and by"):
        with load(twice):
            pass


CHOOSE = "bind,simplify,hoist,expand,combine,layout,choose"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("conv2.tile=[8, 2, 8]", 'alg = "winograd4"'),  # three numbers: a tile of Winograd's algorithm, and of no other
        ("conv2.tile=[1, 8, 2, 8]", 'alg = "direct"'),
        ("conv2.order=tiles", 'order = "tiles"'),  # and stays, though weights then may take less memory
        ("conv2.alg=direct;conv2.tile=[1, 4, 2, 8]", "tile = [1, 4, 2, 8]"),
    ],
)
def test_choices_by_hand(given, expected):
    """`set` narrows what is chosen: a generator that cannot have a choice is out."""
    model = lightnet.load(str(FILE.parent / "cnn.net"))
    run_pipeline(model.ctx, model.module, parse_pipeline(f'{CHOOSE}{{set="{given}"}}'))
    (line,) = [line for line in str(model.module).splitlines() if "%swish = cpu.kernel" in line]
    assert expected in line


def test_another_algorithm_has_choices_of_its_own():
    """A kernel that has chosen, and is told another algorithm, keeps no tile of the first one."""
    model = lightnet.load(str(FILE.parent / "cnn.net"))
    run_pipeline(model.ctx, model.module, parse_pipeline(f'{CHOOSE},pack,choose{{set="conv2.alg=direct"}},pack,plan'))
    (line,) = [line for line in str(model.module).splitlines() if "%swish = cpu.kernel" in line]
    assert 'alg = "direct"' in line and "tiles" not in line


@pytest.mark.parametrize(
    ("given", "message", "line"),
    [
        (
            "conv2.tyle=[8]",
            "tyle is no choice of this cpu.kernel; there are: alg, lanes, order, share, threads, tile",
            11,
        ),
        ("conv2.order=3", "order = 3 : i64 is no choice of this cpu.kernel", 11),
        ("conv2.tile=[1.5, 2, 8]", 'tile = "[1.5, 2, 8]": expected an array of integers', 11),
        ("conv2.tile=[nan]", 'tile = "[nan]": expected an array of integers', 11),
        ("conv2.alg=pool", "alg = 'pool'; alg may be direct, winograd4, winograd2", 11),
        ("conv2.alg=direct;conv2.tile=[8, 2, 8]", "a convolution takes", 11),
        ("other.alg=direct", "no kernel has an op or tensor 'other'", None),
    ],
)
def test_choices_that_mean_nothing(given, message, line):
    model = lightnet.load(str(FILE.parent / "cnn.net"))
    with pytest.raises(LightNetError) as error:
        run_pipeline(model.ctx, model.module, parse_pipeline(f'{CHOOSE}{{set="{given}"}}'))
    assert message in error.value.message
    assert line is None or error.value.loc.line == line


@pytest.mark.parametrize("options", ["threads=0", "threads=-1", "weight-memory=-1"])
def test_limits_of_choices(options):
    model = lightnet.load(str(FILE.parent / "cnn.net"))
    with pytest.raises(LightNetError, match="at least one thread"):
        run_pipeline(model.ctx, model.module, parse_pipeline(f"bind,expand,choose{{{options}}}"))


def test_inputs_without_names():
    """They go by their SSA names, as inputs and as params of a call."""
    text = """func.func @main() -> tensor<1x4xf32> {
      %x = ln.input : tensor<1x3xf32>
      %w = ln.param {ran = [-1, 1]} : tensor<3x4xf32>
      %y = ln.matmul %x, %w : tensor<1x4xf32>
      func.return %y : tensor<1x4xf32>
    }"""
    x, w = np.ones((1, 3), np.float32), np.arange(12, dtype=np.float32).reshape(3, 4)
    for target in ("cpu", "none"):
        (y,) = lightnet.compile(lightnet.loads(text, ".mlir"), target=target)({"x": x, "w": w}).values()
        assert np.array_equal(y, x @ w)
