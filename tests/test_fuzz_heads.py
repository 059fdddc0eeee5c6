"""Random heads of networks (`random_heads`) and networks on sequences (`random_sequences`) compile, whatever the options, without falling back, and give what ONNX Runtime gives.
``LIGHTNET_FUZZ=N`` runs 100 times as many each, from other seeds."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping

import numpy as np
import pytest
from random_heads import TOLERANCES, OpenHead, open_head, random_head
from random_sequences import OpenSequence, open_sequence

import lightnet
from lightnet.diagnostics import FallbackWarning, LightNetError
from lightnet.frontends.onnx.importer import NeedsShape
from lightnet.runtime import processor
from lightnet.runtime.program import Program

onnxruntime = pytest.importorskip("onnxruntime", reason="heads are compared with ONNX Runtime")

#: Largest error on sequences, of the largest value: norms of sums, one behind the other, in f32.
DEEP = 5e-4
FACTOR = int(os.environ.get("LIGHTNET_FUZZ", "0"))
SEEDS = range(1000, 1000 + FACTOR * 100) if FACTOR else range(6)


def expected(model: bytes, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds)))


def runs_here(program: Program) -> bool:
    try:
        processor.check_processor(program.cpu, program.features, program.triple)
    except LightNetError:
        return False
    return True


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("seed", SEEDS)
def test_heads_compile_and_agree_with_onnx_runtime(seed: int) -> None:
    check(seed)


def check(seed: int) -> None:
    """Compile and compare the head of a seed."""
    model, feeds, options = random_head(seed)
    data = model.SerializeToString()
    want = expected(data, feeds)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        executable = lightnet.compile(data, **options.arguments())
        program = executable.program  # compiled
    if not runs_here(program):
        return
    agree(executable(feeds), want, TOLERANCES[options.precision], options)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("seed", SEEDS)
def test_heads_of_open_maps_are_compiled_once(seed: int) -> None:
    head = open_head(seed)
    check_open(head, TOLERANCES[head.options.precision])


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("seed", SEEDS)
def test_open_sequences_are_compiled_once(seed: int) -> None:
    check_open(open_sequence(seed), DEEP)


def check_open(head: OpenHead | OpenSequence, tolerance: float) -> None:
    """Compile an open network once, and compare a few calls."""
    data, options = head.model.SerializeToString(), head.options
    wanted = [expected(data, feeds) for feeds in head.calls]
    try:
        model = lightnet.load(head.model, dims=head.dims)
    except NeedsShape:
        pytest.skip("a pool that rounds up has padding by what is left of a size: each shape is compiled")
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        executable = lightnet.compile(model, **options.arguments())
    if not runs_here(executable.program):
        return
    for feeds, want in zip(head.calls, wanted):
        agree(executable(feeds), want, tolerance, ({n: a.shape for n, a in feeds.items()}, head.dims, options))


def agree(got: Mapping[str, np.ndarray], want: Mapping[str, np.ndarray], tolerance: float, about: object) -> None:
    """Compare the outputs of a call, each to its largest value; `about` says of which."""
    assert got.keys() == want.keys(), about
    for name, b in want.items():
        a = got[name]
        assert a.shape == b.shape, (name, about)
        error = np.abs(a.astype(np.float64) - b).max(initial=0) / max(np.abs(b).max(initial=0), 1e-3)
        assert error <= tolerance, (name, error, about)
