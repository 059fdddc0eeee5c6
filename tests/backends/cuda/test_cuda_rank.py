"""Sorts on target cuda (`rank`): in the PTX interpreter, where races, bounds and what was never written are errors, and natively at the size of a detector;
the oracle is Python's own stable sort."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import pytest
from cuda_runs import Regions
from sampling import draw
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block

import lightnet
from lightnet.backends.cuda.device import device_of
from lightnet.backends.cuda.rank import RANK
from lightnet.backends.cuda.selection import choose
from lightnet.backends.cuda.simt import Simt
from lightnet.diagnostics import LightNetError
from lightnet.dialects.cuda import CudaKernelOp
from lightnet.dialects.ln.dialect import optypes
from lightnet.ir.kernel import KernelOp
from lightnet.ir.module import main_of
from lightnet.ir.target import Form, Request
from lightnet.ir.types import TensorSpec, tensor_type
from lightnet.ir.views import place_of
from lightnet.runtime.dtypes import BY_NAME

DIRECTIONS = ("TL_SORT_DIR_ASCENDING", "TL_SORT_DIR_DESCENDING")
DTYPES = ("f32", "f16", "bf16", "f64", "i8", "ui8", "i16", "i32", "ui32", "i64", "ui64")


def sort_of(n: int, dtype: str, direction: str, by_key: bool = True) -> KernelOp:
    """A kernel of one sort, pinned to `rank`."""
    specs = [TensorSpec((n,), BY_NAME[dtype]), TensorSpec((n,), BY_NAME["i32"])]
    block = Block(arg_types=[tensor_type(s) for s in specs[: 1 + by_key]])
    op = optypes()["sort1d_by_key" if by_key else "sort1d"].make(list(block.args), {"dir": direction}, name="sort")
    block.add_op(op)
    kernel = CudaKernelOp.wrap([op])
    kernel.attributes["alg"] = StringAttr("rank")
    return kernel


def keys_of(n: int, dtype: str, seed: int) -> np.ndarray:
    """Keys with equal ones among them; of floats zeros of both signs, infinities and NaN."""
    rng, d = np.random.default_rng(seed), BY_NAME[dtype]
    if not d.is_float:
        low, high = d.limits
        return rng.choice(np.array([low, high, 0, 1, 5, high // 2], d.np), n)
    keys = np.round(rng.standard_normal(n) * 4) / 4
    return np.where(rng.random(n) < 0.3, rng.choice([0.0, -0.0, np.nan, np.inf, -np.inf], n), keys).astype(d.np)


def order_of(keys: np.ndarray, direction: str) -> list[int]:
    """Which element comes where; NaN is the largest key."""
    values = [(1, 0) if k != k else (0, k) for k in keys.tolist()]
    return sorted(range(len(values)), key=values.__getitem__, reverse=direction == DIRECTIONS[1])


def check(kernel: KernelOp, got: Sequence[np.ndarray], keys: np.ndarray, values: np.ndarray) -> None:
    order = order_of(keys, kernel.ops[0].dir)
    for found, want in zip(got, (keys[order], values[order])):
        assert found.tobytes() == want.tobytes()


@pytest.mark.sampled(every=3, share=0.2)
@pytest.mark.parametrize("dtype", DTYPES)
def test_sorts_are_stable(dtype):
    """The places of equal keys show in what moves along, and zeros of both signs in their own bits."""
    sizes = (1, 2, 31, 33, 300)
    cases = [(n, dtype, d) for n in sizes for d in DIRECTIONS] + [(50, dtype, DIRECTIONS[0], False)]
    kernels = [sort_of(*case) for case in draw(cases, f"sorts {dtype}", every=7, start=DTYPES.index(dtype))]
    regions = Regions(kernels)
    for number, kernel in enumerate(kernels):
        n = kernel.ops[0].operand_specs[0].len
        arrays = keys_of(n, dtype, number), np.arange(n, dtype=np.int32)[::-1].copy()
        check(kernel, regions.run(number, arrays[: len(kernel.operands)]), *arrays)


NETWORK = """
create(| dst=x | dtype=TL_FLOAT, dims=[{n}], data=[1], ran=[-1, 1], from_file=false);
create(| dst=c | dtype=TL_FLOAT, dims=[{n}], data=[1], ran=[-1, 1], from_file=false);
elew(src1=x, src2=c | dst=k | elew_op=TL_MAX);
arange(| dst=i | dtype=TL_INT32, start=0, stop={n}, step=1);
sort1d_by_key(src_key=k, src_val=i | dst_key=y, dst_val=j | dir="TL_SORT_DIR_DESCENDING");
"""


#: Upstream sorts in place.
UPSTREAM = "bind,expand,plan{plan=upstream alignment=256},choose,lower-cuda"


@pytest.mark.parametrize("n, options", [(300, {"emulate": True}), (16848, {"on_cpu": True})])
@pytest.mark.parametrize("pipeline", [None, UPSTREAM])
def test_networks(n, options, pipeline):
    """Where the plan gives a result the memory of an operand, which all threads read, nobody writes there before all have."""
    executable = lightnet.compile(lightnet.loads(NETWORK.format(n=n), ".net"), "cuda", pipeline=pipeline, **options)
    (kernel,) = (k for k in main_of(executable.planned).body.block.ops if "sort" in str(k))
    assert (place_of(kernel.results[0]) == place_of(kernel.operands[0])) == (pipeline is not None)
    rng = np.random.default_rng(0)
    x, c = (rng.standard_normal(n).astype(np.float32) for _ in range(2))
    check(kernel, list(executable({"x": x, "c": c}).values()), np.maximum(x, c), np.arange(n, dtype=np.int32))


@pytest.mark.parametrize("aliases", [{}, {0: 0}], ids=["apart", "in place"])
@pytest.mark.parametrize("n", [1, 127, 128, 129, 4000])
def test_no_block_is_launched_for_nothing(n, aliases):
    """An element is ranked by a lane of each warp of its block, and copied by one thread."""
    kernel = sort_of(n, "f32", DIRECTIONS[0])
    ranked, *copied = RANK.build(
        kernel, RANK.plan(kernel, Form({}, plain_results=True), device_of("sm_80")), "k", aliases
    )
    assert len(copied) == len(aliases)
    for launch, elements in [(ranked, 32), *((f, prod(f.block)) for f in copied)]:
        assert (prod(launch.grid) - 1) * elements < n <= prod(launch.grid) * elements


@pytest.mark.interpreter
def test_threads_wait_for_each_other(monkeypatch):
    """What is left out is noticed: the barrier between counting and adding the counts up."""
    monkeypatch.setattr(Simt, "barrier", lambda self: None)
    with pytest.raises(LightNetError, match=r"race|never written"):
        Regions([sort_of(40, "f32", DIRECTIONS[0], False)]).run(0, [keys_of(40, "f32", 0)])


@pytest.mark.parametrize("n, alg", [(64, "rank"), (16848, "rank"), (1 << 20, "loops")])
def test_it_is_taken_where_comparing_all_pairs_is_faster_than_one_thread(n, alg):
    kernel = sort_of(n, "f32", DIRECTIONS[0])
    del kernel.attributes["alg"]
    assert choose(kernel, Request("sm_80"))["alg"] == StringAttr(alg)
