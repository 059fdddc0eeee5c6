"""examples/my_kernel.py, the generator of docs/add-a-kernel.md: alone at ugly shapes, and in a network."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from blocked_kernels import check_blocked

import lightnet
from lightnet.backends.cpu.blocked import generators
from lightnet.backends.cpu.blocked.base import Machine
from lightnet.diagnostics import LightNetError
from lightnet.ir.registry import GENERATORS
from lightnet.plugins import load

FILE = Path(__file__).parent.parent / "examples" / "my_kernel.py"
_SPEC = importlib.util.spec_from_file_location("my_kernel", FILE)
_MODULE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_MODULE)
CROP = _MODULE.CROP

MACHINES = [Machine(), Machine(lanes=8, registers=16), Machine(lanes=4)]


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
    before = generators()
    feeds = {"x": np.random.default_rng(0).uniform(-1, 1, (1, 16, 64, 64)).astype(np.float32)}
    with load(FILE):
        assert "crop" in GENERATORS and len(generators()) == len(before) + 1
        run = lightnet.compile(str(FILE.with_suffix(".mlir")), features="avx2", threads=2)
        planned = str(run.planned)
        found, single = run(feeds)["conv2"], run(feeds, threads=1)["conv2"]
    assert generators() == before and "crop" not in GENERATORS
    assert 'alg = "crop"' in planned and planned.count('alg = "reorder"') == 2
    assert np.array_equal(found, single)
    (expected,) = lightnet.compile(str(FILE.with_suffix(".mlir")), target="none")(feeds).values()
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
    assert 'alg = "crop"' not in str(lightnet.compile(str(FILE.with_suffix(".mlir"))).planned)


@pytest.mark.parametrize("value", ["0", "17", "x", "[8]"])
def test_a_choice_that_cannot_be_built(value):
    from lightnet.ir.passes import parse_pipeline, run_pipeline

    model = lightnet.load(str(FILE.with_suffix(".mlir")))
    passes = parse_pipeline(f'bind,expand,hoist,combine,layout,choose{{set="cut.pixels={value}"}}')
    with load(FILE), pytest.raises(LightNetError, match="1 to 16 are in registers"):
        run_pipeline(model.ctx, model.module, passes)


def test_a_name_that_is_taken(tmp_path):
    twice = tmp_path / "twice.py"
    twice.write_text(FILE.read_text("utf-8").replace('alg = "crop"', 'alg = "pool"'))
    with pytest.raises(
        LightNetError, match="generator 'pool' is defined twice: by lightnet.backends.cpu.blocked.pool:POOL and by"
    ):
        with load(twice):
            pass
