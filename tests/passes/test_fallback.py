"""What no generator takes as the passes before `choose` laid it out runs in a plainer way, with a warning; what is pinned is refused."""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest
from blocked_networks import random_network
from xdsl.dialects.builtin import ModuleOp

import lightnet
from lightnet.backends.interpreter import graph
from lightnet.diagnostics import FallbackWarning, LightNetError
from lightnet.ir.context import make_context
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import is_plain
from lightnet.ir.op import tensor_names
from lightnet.ir.parser import parse_mlir
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.ir.registry import TARGETS
from lightnet.ir.target import Target, get_target
from lightnet.model import Model
from lightnet.passes.layout import changes_layout

FACTOR = int(os.environ.get("LIGHTNET_FUZZ", "0"))
SEEDS = range(1000, 1000 + FACTOR * 20) if FACTOR else range(2)


def refusing(target: Target, share: float, seed: int) -> Target:
    """A target whose generators refuse a share of the kernels, but for one op on row-major memory and changes of layout."""
    rng = np.random.default_rng(seed)

    def choose(kernel, request):
        simple = changes_layout(kernel) or (is_plain(kernel) and len(kernel.ops) == 1)
        if not simple and "alg" not in kernel.attributes and rng.random() < share:
            raise LightNetError(f"no generator takes {kernel.name}")
        return target.choose(kernel, request)

    return Target(**{**vars(target), "choose": choose})


@pytest.mark.parametrize("name, share", [("cpu", 0.5), ("cpu", 1.0), ("cuda", 0.7)])
@pytest.mark.parametrize("seed", SEEDS)
def test_networks_whose_kernels_are_refused_are_right(monkeypatch, seed: int, name: str, share: float) -> None:
    module, feeds = random_network(seed, ops=8)
    want = graph.run(module, feeds)
    monkeypatch.setitem(TARGETS._values, name, refusing(get_target(name), share, seed))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        executable = lightnet.compile(Model(module, "net"), name, **({"on_cpu": True} if name == "cuda" else {}))
        got = executable({n: a for n, a in feeds.items() if n in {*executable.inputs, *executable.params}})
    assert share < 1 or any(w.category is FallbackWarning for w in seen)
    assert list(got) == list(want)
    for name, b in want.items():
        assert np.abs(got[name].astype(np.float64) - b).max(initial=0) <= 1e-4 * max(np.abs(b).max(initial=0), 1e-3), (
            name
        )


#: A kernel of maps in blocks; what it reads and makes lies as no generator takes it.
MAPS = """func.func @main() -> tensor<1x16x4x4xf32> {
  %x = ln.input : tensor<1x16x4x4xf32, #ln.layout<"c8">> as ("x")
  %y = cpu.kernel(%x_ = %x) CHOICES {
    %a = ln.relu %x_ : tensor<1x16x4x4xf32, #ln.layout<"c16h1">>
    ln.yield %a
  } as ("y")
  %z = cpu.kernel(%y_ = %y) {
    %a = ln.forward %y_ : tensor<1x16x4x4xf32>
    ln.yield %a
  } as ("z")
  func.return %z : tensor<1x16x4x4xf32>
}
"""


def chosen(text: str) -> ModuleOp:
    module = parse_mlir(make_context(), text, "maps.mlir")
    run_pipeline(make_context(), module, parse_pipeline("choose", {"target": "cpu"}), verify_each=True)
    return module


def test_the_warning_says_where_and_how() -> None:
    with pytest.warns(
        FallbackWarning,
        match=r"maps.mlir:3:.*no generator .* relu with layouts c8, c16h1.*: it runs on row-major memory",
    ):
        module = chosen(MAPS.replace("CHOICES", ""))
    found = [k for k in module.walk() if isinstance(k, KernelOp)]
    assert [[op.optype for op in k.ops] for k in found] == [["forward"], ["relu"], ["forward"], ["forward"]]
    assert all("alg" in k.attributes for k in found)
    names = [name for k in found for name in tensor_names(k)]
    assert len(set(names)) == len(names) and names[-1] == "z"


def test_what_is_pinned_is_refused() -> None:
    with pytest.raises(LightNetError, match="no generator of the CPU takes"):
        chosen(MAPS.replace("CHOICES", 'choices {alg = "map"}'))


@pytest.mark.parametrize("token", ["h1", "c1024"])
def test_a_layout_that_nothing_reads_is_refused(token: str) -> None:
    with (
        pytest.raises(LightNetError, match=rf"no generator of the CPU takes .* layouts {token}"),
        pytest.warns(FallbackWarning),
    ):
        chosen(MAPS.replace("CHOICES", "").replace("c8", token))
