"""Property tests: networks drawn from the op table mean the same on every level, in every form, and in machine code.

The level-1 interpreter (NumPy references, each tested against other oracles elsewhere) is what all else is compared with.
"""

from __future__ import annotations

import os

import numpy as np
from hypothesis import HealthCheck, assume, given, note, settings
from networks import networks
from xdsl.dialects.builtin import ModuleOp

import lightnet
from lightnet.backends.interpreter import graph
from lightnet.frontends import json_ir, mlir
from lightnet.frontends.importer import to_module
from lightnet.passes.check_plan import check_plan
from lightnet.runtime.dtypes import is_float
from lightnet_export.netlist import from_module

EXAMPLES = int(os.environ.get("LIGHTNET_EXAMPLES", "60"))
quick = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
#: Values beyond this make rounding errors visible (softmax of them, say), and prove nothing.
LARGEST = 1e4


def reference(module: ModuleOp, feeds: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], float]:
    """What level 1 computes, and the largest float anywhere in it; discards networks with numbers out of hand."""
    values: dict[str, np.ndarray] = {}
    outputs = graph.run(module, feeds, values=values)
    floats = [float(np.abs(v).max(initial=0)) for v in values.values() if is_float(v.dtype)]
    assume(all(np.isfinite(f) and f < LARGEST for f in floats))
    return outputs, max(floats, default=0.0)


def agree(got: dict[str, np.ndarray], want: dict[str, np.ndarray], largest: float, what: str) -> None:
    """Relative to max|want|, 1e-4; beside it the rounding of the network's largest number, for what cancels."""
    assert list(got) == list(want), what
    for name, array in want.items():
        assert got[name].shape == array.shape and got[name].dtype == array.dtype, (what, name)
        if not is_float(array.dtype):
            np.testing.assert_array_equal(got[name], array, f"{what}: {name}")
            continue
        array = array.astype(np.float64)
        error = np.abs(got[name].astype(np.float64) - array).max(initial=0)
        assert error <= 1e-4 * np.abs(array).max(initial=0) + 1e-6 * largest, f"{what}: {name}: error {error}"


@quick
@given(networks(netlist=True))
def test_text_and_json_keep_the_network(network):
    module, feeds = network
    text = str(module)
    assert str(mlir.read(text, "net.mlir")) == text
    again = to_module(json_ir.read(json_ir.write(from_module(module)), "net.json"))
    assert str(again) == text
    want, largest = reference(module, feeds)
    got = graph.run(again, feeds)
    agree({name: got[name] for name in want}, want, largest, "JSON")


@quick
@given(networks())
def test_every_level_and_machine_code_agree(network):
    module, feeds = network
    assert str(mlir.read(str(module), "net.mlir")) == str(module)
    want, largest = reference(module, feeds)
    run = lightnet.compile(lightnet.Model(module, "net"))
    note(run.ir())
    left = {name: feeds[name] for name in [*run.inputs, *run.program.params]}  # passes may have removed the others
    agree(graph.run(run._compilation.stage("schedule"), left), want, largest, "level 2")
    check_plan(run.planned)
    agree(graph.run(run.planned, left), want, largest, "level 3")
    agree(run(feeds), want, largest, "machine code")
    agree(run(feeds), want, largest, "machine code, second call")


@settings(quick, max_examples=max(EXAMPLES // 3, 1))
@given(networks(netlist=True))
def test_upstreams_plan_computes_the_same(network):
    module, feeds = network
    want, largest = reference(module, feeds)
    run = lightnet.compile(lightnet.Model(module, "net"), plan="upstream")
    note(run.ir())
    check_plan(run.planned)
    lost = {name for name, _ in run.program.overwritten}
    agree(run(feeds), {k: v for k, v in want.items() if k not in lost}, largest, "upstream's plan")
