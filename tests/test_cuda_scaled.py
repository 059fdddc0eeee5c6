"""Real networks on target cuda: scaled-down copies in the PTX interpreter, with everything poisoned that the plan lets die; they, and the networks
at full size, on a device."""

from __future__ import annotations

import numpy as np
import pytest
from scaled_networks import NETS, NETWORKS, scaled
from test_cuda_networks import run_poisoned

import lightnet
from lightnet.dialects.ln.source import Source
from lightnet.ir.module import main_of
from lightnet.runtime.cuda.driver import CudaUnavailable, devices

#: Sums in other orders, through up to sixty layers; scores that are nearly equal are far enough apart in these.
TOLERANCE = 1e-4


def close(got: dict[str, np.ndarray], want: dict[str, np.ndarray], tolerance: float = TOLERANCE) -> None:
    assert got.keys() == want.keys()
    for name, array in want.items():
        assert np.isfinite(array).all() and array.std() > 0, "a constant proves nothing"
        np.testing.assert_allclose(got[name], array, rtol=tolerance, atol=tolerance * np.abs(array).max())


@pytest.mark.parametrize("name", NETWORKS)
def test_copies_have_the_same_graph(name: str) -> None:
    def shape(model: lightnet.Model) -> list[tuple[str, list[int]]]:
        ops = list(main_of(model.module).body.block.ops)
        number = {result: i for i, op in enumerate(ops) for result in op.results}
        return [(op.name, [number[v] for v in op.operands]) for op in ops]

    full = lightnet.load(NETS / f"{name}.net")
    assert shape(scaled(name)) == shape(full)
    sizes = [
        sum(op.result_specs[0].len for op in m.module.walk() if isinstance(op, Source)) for m in (full, scaled(name))
    ]
    assert sizes[1] * 20 < sizes[0]


@pytest.mark.parametrize("name", NETWORKS)
def test_copies_have_the_results_of_the_cpu(name: str) -> None:
    """In the interpreter, kernel by kernel: behind each, all bytes of the arena that no later one reads count as never written."""
    on_cpu, on_cuda = lightnet.compile(scaled(name)), lightnet.compile(scaled(name), "cuda", emulate=True)
    want = on_cpu()
    run_poisoned(on_cuda, {})
    instance = on_cuda.instance
    close({t.name: instance._read(t) for t in on_cuda.program.outputs if t.name in want}, want)


@pytest.mark.gpu
@pytest.mark.parametrize("name", NETWORKS)
def test_copies_on_a_device(name: str) -> None:
    require_device()
    close(lightnet.compile(scaled(name), "cuda")(), lightnet.compile(scaled(name))())


@pytest.mark.gpu
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", NETWORKS)
def test_full_size_on_a_device(name: str, arch: str) -> None:
    """With contents that keep activations in bounds, for both architectures that the device can run."""
    require_device()
    if devices()[0].capability < (int(arch[3]), 0):
        pytest.skip(f"the device is older than {arch}")
    model = scaled(name, full=True)
    close(lightnet.compile(model, "cuda", arch=arch)(), lightnet.compile(model)(), 1e-3)


def require_device() -> None:
    try:
        devices()
    except CudaUnavailable as error:
        pytest.skip(error.message)
