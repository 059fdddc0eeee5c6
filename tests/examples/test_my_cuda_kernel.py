"""docs/add-a-kernel.md, for cuda: examples/my_cuda_kernel.py alone at ugly shapes, in a network, and wrong on purpose; a pass of one's own on
kernels of threads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cuda_runs import Regions
from xdsl.dialects.builtin import StringAttr

import lightnet
from lightnet.backends.cuda.selection import SELECTION
from lightnet.diagnostics import LightNetError
from lightnet.ir.kernel import KernelOp
from lightnet.ir.module import main_of
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.ir.registry import CUDA_GENERATORS
from lightnet.plugins import load
from lightnet_trust.check import run_checked

FILE = Path(__file__).parents[2] / "examples" / "my_cuda_kernel.py"
CHOOSE = "bind,expand,hoist,combine,layout,choose"


def turned(dims: tuple[int, int], dtype: str, side: int) -> KernelOp:
    """The kernel region of one transposition. The plugin is loaded."""
    types = f"tensor<{dims[0]}x{dims[1]}x{dtype}>", f"tensor<{dims[1]}x{dims[0]}x{dtype}>"
    model = lightnet.loads(
        f"""func.func @main() -> {types[1]} {{
          %x = ln.input : {types[0]} as ("x")
          %y = ln.transpose %x {{axes = [1, 0]}} : {types[1]} as ("y")
          func.return %y : {types[1]}
        }}""",
        ".mlir",
    )
    spec = f'{CHOOSE}{{set="y.alg=turn;y.side={side}"}}'
    run_pipeline(model.ctx, model.module, parse_pipeline(spec, {"target": "cuda"}))
    (kernel,) = (op for op in main_of(model.module).body.block.ops if isinstance(op, KernelOp))
    return kernel


@pytest.mark.parametrize("dtype", ["f32", "i32"])
@pytest.mark.parametrize("dims", [(1, 1), (1, 70), (33, 65), (96, 32)], ids=str)
def test_ugly_shapes(dims, dtype):
    with load(FILE):
        regions = Regions([turned(dims, dtype, side) for side in (16, 32)])
        x = np.random.default_rng(0).integers(-100, 100, dims).astype({"f32": np.float32, "i32": np.int32}[dtype])
        for number in range(2):
            (found,) = regions.run(number, [x])
            assert np.array_equal(found, x.T)


def test_in_a_network():
    """The result is that of the interpreter, and the choices print; afterwards the row is gone."""
    before = SELECTION.generators()
    feeds = {"x": np.random.default_rng(0).uniform(-1, 1, (50, 40)).astype(np.float32)}
    with load(FILE):
        assert "turn" in CUDA_GENERATORS and len(SELECTION.generators()) == len(before) + 1
        run = lightnet.compile(str(FILE.with_suffix(".mlir")), "cuda", emulate=True)
        assert 'alg = "turn", side = 32' in str(run.planned)
        (found,) = run(feeds).values()
    assert SELECTION.generators() == before and "turn" not in CUDA_GENERATORS
    (expected,) = lightnet.compile(str(FILE.with_suffix(".mlir")), "none")(feeds).values()
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.interpreter
def test_without_its_barrier(tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text(FILE.read_text("utf-8").replace("        b.barrier()\n", ""))
    with load(broken):
        regions = Regions([turned((33, 65), "f32", 32)])
        with pytest.raises(LightNetError, match=r"race|never written"):
            regions.run(0, [np.zeros((33, 65), np.float32)])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('alg = "turn"', "", "has no name"),
        ("def plan(", "def plans(", "Can't instantiate"),
        ('alg = "turn"', 'alg = "rows"', r"generator of cuda 'rows' is defined twice: by .*ROWS and by"),
    ],
)
def test_a_generator_that_is_not_whole(tmp_path, old, new, message):
    broken = tmp_path / "broken.py"
    broken.write_text(FILE.read_text("utf-8").replace(old, new))
    with pytest.raises(LightNetError, match=message):
        with load(broken):
            pass


@pytest.mark.parametrize("value", ["8", "x", "[32]"])
def test_a_choice_that_cannot_be_built(value):
    with load(FILE), pytest.raises(LightNetError, match="a tile has 16 or 32 rows"):
        turned((5, 7), "f32", value)


PASS = '''
from dataclasses import dataclass

from lightnet.dialects.cuda_simt import BarrierOp
from lightnet.ir.passes import LnPass


@dataclass(frozen=True)
class DropBarriers(LnPass):
    """Take all barriers out of kernels: wrong on purpose."""

    name = "drop-barriers"

    def apply(self, ctx, op):
        for barrier in [o for o in op.walk() if isinstance(o, BarrierOp)]:
            barrier.detach()
            barrier.erase()
'''


def test_a_pass_on_kernels_of_threads(tmp_path):
    """It stands behind lower-cuda in a pipeline, and what it breaks is found when the PTX runs."""
    file = tmp_path / "drop.py"
    file.write_text(PASS)
    spec = f"{CHOOSE},pack,plan,lower-cuda"
    with load(FILE, file):
        whole, broken = (
            lightnet.compile(str(FILE.with_suffix(".mlir")), "cuda", pipeline=text, emulate=True)
            for text in (spec, f"{spec},drop-barriers")
        )
        assert len(whole({})) == 1
        with pytest.raises(LightNetError, match=r"race|never written"):
            broken({})


def test_what_stands_behind_the_lowering_is_not_called_checked(tmp_path):
    file = tmp_path / "drop.py"
    file.write_text(PASS)
    model = lightnet.load(str(FILE.with_suffix(".mlir")))
    with load(file):
        passes = parse_pipeline(f"{CHOOSE},pack,plan,lower-cuda,drop-barriers", {"target": "cuda"})
        verdict = run_checked(model.ctx, model.module, passes)
    assert verdict.ok and verdict.notes[-1] == "drop-barriers: not checked, as the module is lowered already"


def test_an_algorithm_for_other_layouts():
    """What is pinned behind the pass layout fits what that decided; before it, it decides."""
    model = lightnet.load(str(FILE.parent / "cnn.net"))
    passes = parse_pipeline(f'{CHOOSE}{{set="conv1.alg=simt"}}', {"target": "cuda", "layout": "plain"})
    with pytest.raises(
        LightNetError, match=r"'simt' takes it in other layouts: write choices .* before the pass layout"
    ) as e:
        run_pipeline(model.ctx, model.module, passes)
    assert e.value.loc is not None and e.value.loc.line == 7
    model = lightnet.load(str(FILE.parent / "cnn.net"))
    run_pipeline(model.ctx, model.module, parse_pipeline("bind,expand,hoist,combine", {"target": "cuda"}))
    kernel = next(op for op in model.module.walk() if isinstance(op, KernelOp))
    kernel.attributes["alg"] = StringAttr("simt")
    run_pipeline(model.ctx, model.module, parse_pipeline("layout,choose,pack,plan,lower-cuda", {"target": "cuda"}))
    assert "cuda.async_copy" in str(model.module)
