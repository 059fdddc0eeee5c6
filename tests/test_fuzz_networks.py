"""Random networks (`network_cases`) through every pipeline: native code and the interpreter of planned modules, against the
references run op by op. ``LIGHTNET_FUZZ=N`` runs N times as many networks, from other seeds."""

from __future__ import annotations

import io
import os

import numpy as np
import pytest
from network_cases import other_feeds, random_model
from pass_lists import some_passes

import lightnet
from lightnet.backends.interpreter import graph
from lightnet.diagnostics import LightNetError
from lightnet.ir.memory import memory_of
from lightnet.ir.module import main_of
from lightnet.ir.op import LnOp
from lightnet.model import Model
from lightnet.passes import pipelines

FACTOR = int(os.environ.get("LIGHTNET_FUZZ", "0"))
SEEDS = range(1000, 1000 + FACTOR * 14) if FACTOR else range(14)

Run = tuple[dict[str, np.ndarray], str]


def same(got: Run, want: Run, label: str) -> None:
    """Names, prints and integers are equal; floats to within 1e-4 of the largest (chains of tens of ops, in f32)."""
    assert list(got[0]) == list(want[0]), label
    assert got[1] == want[1], label
    for name, b in want[0].items():
        a = got[0][name]
        assert (a.shape, a.dtype) == (b.shape, b.dtype), f"{label}: {name}"
        if b.dtype.kind != "f":
            np.testing.assert_array_equal(a, b, f"{label}: {name}")
            continue
        error = np.abs(a.astype(np.float64) - b).max() / max(np.abs(b).max(), 1e-3)
        assert error <= 1e-4, f"{label}: {name} differs by {error}"


def reference(model: Model, feeds: dict[str, np.ndarray]) -> Run:
    printed = io.StringIO()
    return graph.run(model.module, feeds, stream=printed), printed.getvalue()


def native(executable: lightnet.Executable, feeds: dict[str, np.ndarray]) -> Run:
    printed = io.StringIO()
    return executable(feeds, stream=printed), printed.getvalue()


def bits(run: Run) -> list[bytes]:
    return [a.tobytes() for a in run[0].values()]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_networks(seed):
    check(seed)


def check(seed: int) -> None:
    model = random_model(seed)
    executable = lightnet.compile(model)
    names = [*executable.inputs, *executable.params]
    other = {n: a for n, a in other_feeds(model.module, names, seed).items() if n in names}
    want, want_other = reference(model, {}), reference(model, other)
    first = native(executable, {})
    same(first, want, f"{seed} default")
    same(native(executable, other), want_other, f"{seed} fed")
    assert bits(native(executable, {})) == bits(first), f"{seed}: a call left something behind"
    rng = np.random.default_rng(seed)
    kept = some_passes(rng, 0.6)
    kept += kept[1:] if rng.random() < 0.2 else []  # passes take their own output, too
    planned = lightnet.compile(model, pipeline=",".join(kept)).planned
    printed = io.StringIO()
    fed = {n: a for n, a in other.items() if n in _sources(planned)}
    same((graph.run(planned, fed, stream=printed), printed.getvalue()), want_other, f"{seed} {kept}")
    partial = ",".join([*kept, "lower-cpu"]).replace("plan,", f"plan{{ports={seed % 3}}},")
    same(native(lightnet.compile(model, pipeline=partial), other), want_other, f"{seed} native {kept}")
    same(native(lightnet.compile(model, "none"), other), want_other, f"{seed} none")
    check_upstream(model, seed, want, want_other, other)
    check_capacity(model, executable, seed)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("seed", SEEDS[: max(6, len(SEEDS) // 5)])
def test_random_networks_on_cuda(seed):
    """In the PTX interpreter, which takes a second or so for each."""
    model = random_model(seed)
    executable = lightnet.compile(model, "cuda", emulate=True)
    names = {*executable.inputs, *executable.params}
    other = {n: a for n, a in other_feeds(model.module, list(names), seed).items() if n in names}
    first = native(executable, {})
    same(first, reference(model, {}), f"{seed} cuda")
    same(native(executable, other), reference(model, other), f"{seed} cuda, fed")
    assert bits(native(executable, {})) == bits(first), f"{seed}: a call left something behind"


def _sources(module) -> set[str]:
    return {op.tensor_names[0] for op in graph.feedable_ops(module)}


def check_upstream(model: Model, seed: int, want: Run, want_other: Run, other: dict[str, np.ndarray]) -> None:
    """Upstream's plan loses outputs that nobody consumes; the others agree. A sort works in place there: a network that
    reads its source again (no IL network does) is refused."""
    if reads_overwritten(model.module):
        with pytest.raises(LightNetError):
            lightnet.compile(model, plan="upstream")
        return
    executable = lightnet.compile(model, plan="upstream")
    for feeds, expected in (({}, want), (other, want_other)):
        got = native(executable, {n: a for n, a in feeds.items() if n in {*executable.inputs, *executable.params}})
        kept = {n: a for n, a in expected[0].items() if n in got[0]}
        lost = {name for name, _ in executable.program.overwritten}
        assert set(expected[0]) - set(kept) == lost, f"{seed} upstream"
        same(got, (kept, expected[1]), f"{seed} upstream")


def reads_overwritten(module) -> bool:
    """Whether an op reads a tensor whose memory, in upstream's plan, an earlier op with an in-place result has changed."""
    root: dict = {}
    stale: set = set()
    for op in main_of(module).body.block.ops:
        if not isinstance(op, LnOp):
            continue
        if stale & set(op.operands):
            return True
        fields = op.schema.results
        for i, value in enumerate(op.results):
            field = fields[min(i, len(fields) - 1)]
            root[value] = value if field.owner is None else root[op.operands[op.arg_names()[0].index(field.owner)]]
        for value, field in zip(op.results, fields):
            if field.overwrites:
                stale |= {v for v in root if root[v] is root[value] and v not in op.results}
    return False


def check_capacity(model: Model, executable: lightnet.Executable, seed: int) -> None:
    """A plan fits where it is told to fit; half of that is refused, or it fits there, too."""
    arena = memory_of(executable.planned).get("arena", 0)
    if not arena:
        return
    for capacity in (arena, max(64, arena // 2)):
        pipeline = f"{pipelines.default(until='kernels')},plan{{capacity={capacity}}}"
        try:
            planned = lightnet.compile(model, pipeline=pipeline).planned
        except LightNetError as e:
            assert capacity < max(memory_of(executable.planned).values()), f"{seed}: {e}"
        else:
            assert all(n <= capacity for n in memory_of(planned).values()), seed
