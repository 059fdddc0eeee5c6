"""Real networks on target cuda: scaled-down copies in the PTX interpreter, with everything poisoned that the plan lets die; they, and the networks
at full size, on a device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scaled_networks import NETS, NETWORKS, scaled
from test_cuda_networks import run_poisoned

import lightnet
from lightnet.dialects.ln.source import Source
from lightnet.ir.body import choice
from lightnet.ir.kernel import KernelOp
from lightnet.ir.module import main_of
from lightnet.runtime.cuda.driver import CudaUnavailable, devices, runs_on

#: Sums in other orders, through up to sixty layers; scores that are nearly equal are far enough apart in these.
TOLERANCE = 1e-4
#: Roundings to f16 in each layer.
IN_F16 = 2e-2
EXAMPLES = Path(__file__).parents[3] / "examples" / "nets"


def close(got: dict[str, np.ndarray], want: dict[str, np.ndarray], tolerance: float = TOLERANCE) -> None:
    assert got.keys() == want.keys()
    for name, array in want.items():
        # Numbers of classes may all be the same; a constant proves nothing else.
        assert np.isfinite(array).all() and (array.std() > 0 or array.dtype.kind == "i")
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


@pytest.mark.slow
def test_a_copy_by_warpgroups() -> None:
    """In f16, for sm_90a: as the CPU's in f32, as far as the type lets it."""
    model = scaled("erfnet_samepad")
    on_cuda = lightnet.compile(model, "cuda", precision="f16", arch="sm_90a", emulate=True)
    assert (
        sum(
            choice(op, "alg") == "wgmma"
            for op in main_of(on_cuda._compilation.planned).walk()
            if isinstance(op, KernelOp)
        )
        > 20
    )
    run_poisoned(on_cuda, {})
    close({t.name: on_cuda.instance._read(t) for t in on_cuda.program.outputs}, lightnet.compile(model)(), IN_F16)


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


@pytest.mark.gpu
@pytest.mark.parametrize("arch", ["sm_90", "sm_90a"])
@pytest.mark.parametrize("name", ["resnet18", "mobilenetv2"])
def test_f16_on_a_device(name: str, arch: str) -> None:
    """By warps, and by warpgroups, on contents that the network declares."""
    require_device()
    if not runs_on(arch, devices()[0].arch):
        pytest.skip(f"the device does not run {arch}")
    model = lightnet.load(EXAMPLES / f"{name}.net")
    close(lightnet.compile(model, "cuda", precision="f16", arch=arch)(), lightnet.compile(model)(), IN_F16)


def require_device() -> None:
    try:
        devices()
    except CudaUnavailable as error:
        pytest.skip(error.message)
