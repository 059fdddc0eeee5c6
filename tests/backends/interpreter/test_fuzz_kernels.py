"""Register-tiled kernels at random: geometries, types, lanes, epilogues, in-place residuals, block ranges; see
`kernel_cases`. ``LIGHTNET_FUZZ=N`` runs N times as many cases, from other seeds."""

from __future__ import annotations

import os
import platform

import numpy as np
import pytest
from kernel_cases import Memory, compiled, random_case, random_pieces, run_pieces
from xdsl.dialects.builtin import ModuleOp

from lightnet.backends.cpu import tiled, window
from lightnet.backends.llvm.emitter import TargetVectors
from lightnet.backends.llvm.jit import CodeMachine
from lightnet_trust.interpreter.loop_types import memory_dtype
from lightnet_trust.interpreter.loops import LoopProgram

FACTOR = int(os.environ.get("LIGHTNET_FUZZ", "0"))
BATCHES = range(FACTOR * 20) if FACTOR else range(6)
PER_BATCH = 8
TOLERANCE = {np.dtype(np.float32): 2e-5, np.dtype(np.float64): 1e-12}  # of max|ref|: sums of up to 3,000 products


def agree(got: np.ndarray, want: np.ndarray, label: str) -> None:
    assert np.isfinite(want).all(), label
    error = np.abs(got.astype(np.float64) - want).max(initial=0) / max(np.abs(want).max(initial=0), 1e-30)
    assert error <= TOLERANCE[want.dtype], f"{label}: relative error {error}"


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("batch", BATCHES)
def test_random_kernels(batch):
    """All blocks at once agree with the references; ranges in random order give the same bits."""
    for seed in range(batch * PER_BATCH, (batch + 1) * PER_BATCH):
        check(seed, (16, 16, 8, 4)[seed % 4])


@pytest.fixture(autouse=True)
def small_bands(request, monkeypatch):
    """Every other batch stages bands of a few rows, so that small maps have several."""
    if request.node.callspec.params.get("batch", 0) % 2:
        monkeypatch.setattr(window, "BAND_BYTES", 4 << 10)


def check(seed: int, width: int, machine: CodeMachine | None = None, vectors: TargetVectors | None = None) -> bool:
    case = random_case(seed)
    if not tiled.accepts(case.kernel.ops):
        return False
    launch = tiled.build(case.kernel, "k", width, case.aliases)
    workspace = tiled.workspace_bytes(case.kernel, width)
    native = compiled(launch.function, machine, vectors)
    whole = run_pieces(native, "k", [(0, launch.grid)], case, workspace)
    for got, want in zip(whole, case.want, strict=True):
        agree(got, want, f"{case.label} width {width}")
    pieces = random_pieces(launch.grid, np.random.default_rng(seed))
    for got, want in zip(run_pieces(native, "k", pieces, case, workspace), whole, strict=True):
        assert got.tobytes() == want.tobytes(), f"{case.label} width {width}: {pieces}"
    return True


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("seed", range(10_000, 10_000 + (FACTOR * 20 or 8)))
def test_random_kernels_stay_in_bounds(seed):
    """The level-4 interpreter checks every access, runs the blocks in random order, and agrees."""
    interpret(seed)


def interpret(seed: int) -> bool:
    case, width = random_case(seed, small=True), (16, 8, 4)[seed % 3]
    if not tiled.accepts(case.kernel.ops):
        return False
    launch = tiled.build(case.kernel, "k", width, case.aliases)
    memory = Memory(case, tiled.workspace_bytes(case.kernel, width))
    types = launch.function.function_type.inputs.data[2:]
    arrays = [v.view(memory_dtype(t)).reshape(t.get_shape()) for v, t in zip(memory.arguments(), types, strict=True)]
    LoopProgram(ModuleOp([launch.function])).launch(
        "k", np.random.default_rng(seed).permutation(launch.grid).tolist(), arrays
    )
    for got, want in zip(memory.check(), case.want, strict=True):
        agree(got, want, f"{case.label} width {width}")
    return True


MACHINES = [CodeMachine("x86-64-v3", ""), CodeMachine("x86-64", "")]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="machines of one family")
@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.cpu)
def test_random_kernels_on_lesser_machines(machine):
    """Without AVX-512, and with SSE2 alone (where one fused multiply-add is a call): the same results."""
    for seed in range(20_000, 20_000 + (FACTOR * 100 or 6)):
        check(seed, machine.vectors.width, machine)
