"""Every barrier and every wait of the generators' kernels is there for a reason: without any one of them the interpreter finds a fault, or
the results are wrong. Zero-fills, swapped fragments and tails have their tests beside the generators and in test_ptx_mutants.py.
"""

from __future__ import annotations

import numpy as np
import pytest
from cuda_cases import CASES, pinned
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from lightnet.diagnostics import LightNetError
from lightnet.dialects.cuda_memory import AsyncWaitOp
from lightnet.dialects.cuda_simt import BarrierOp
from lightnet.executable import Executable

#: A generator, a type, and the case whose kernels it makes.
KERNELS = [
    ("simt", "f32", "conv 3x3"), ("simt", "f32", "product 17x33x9"), ("mma", "f16", "conv 3x3"), ("mma", "bf16", "products, batched"),
    ("join", "f32", "convolutions beside each other"), ("reorder", "f32", "forward, tiles"), ("rows", "f32", "softmax 1 of 7x1000"),
    ("recurrent", "f32", "gru of 4x2x70"),
]  # fmt: skip


def compiled(alg: str, dtype: str, case: str):
    compilation, names = pinned(alg, dtype, cases=[c for c in CASES if c.name == case])
    assert compilation is not None and names == [case]
    return compilation


def meetings(module: ModuleOp) -> list[Operation]:
    """The ops at which threads wait, for each other or for copies; but for a wait behind all stages, which is for copies of nothing that are
    under way when a kernel ends."""
    found = [op for op in module.walk() if isinstance(op, BarrierOp | AsyncWaitOp)]
    return [op for op in found if isinstance(op, BarrierOp) or not isinstance(op.parent_op(), FuncOp)]


def results(compilation) -> list[np.ndarray]:
    return list(Executable(compilation, None, 0)().values())


def agree(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    with np.errstate(all="ignore"):
        return all(
            np.allclose(a.astype(np.float64), b.astype(np.float64), rtol=1e-2, atol=1e-3) for a, b in zip(one, other)
        )


@pytest.mark.sampled(every=3, share=0.2)
@pytest.mark.interpreter
@pytest.mark.parametrize(("alg", "dtype", "case"), KERNELS, ids=lambda v: v.replace(" ", "-"))
def test_nothing_that_waits_can_go(alg: str, dtype: str, case: str) -> None:
    whole = compiled(alg, dtype, case)
    want, count = results(whole), len(meetings(whole.loops))
    assert count > 0
    for number in range(count):
        mutant = compiled(alg, dtype, case)
        op = meetings(mutant.loops)[number]
        text = str(op)
        op.detach()
        op.erase()
        try:
            found = results(mutant)
        except LightNetError:
            continue
        assert not agree(found, want), f"without number {number}, {text}, nobody notices"
