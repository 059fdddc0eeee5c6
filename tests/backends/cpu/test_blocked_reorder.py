"""Changes of layout, plain to blocked with any halo and back, against the layouts' own packing (NumPy)."""

from __future__ import annotations

import numpy as np
import pytest
from blocked_kernels import check_blocked
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from level4_runner import run
from xdsl.dialects.builtin import MemRefType, ModuleOp, f32

from lightnet.backends.builder import Builder
from lightnet.backends.cpu.blocked.base import ProcessorModel
from lightnet.backends.cpu.blocked.maps import MAPS
from lightnet.backends.cpu.blocked.reorder import REORDER
from lightnet.backends.llvm.emitter import TargetVectors
from lightnet.backends.llvm.jit import compile_module
from lightnet.dialects import tile_arith
from lightnet.runtime.dtypes import BY_NAME

MACHINES = [ProcessorModel(), ProcessorModel(lanes=8, registers=16), ProcessorModel(lanes=4)]
SHAPES = [
    (1, 1, 1, 1), (2, 3, 1, 1), (1, 33, 1, 1), (1, 3, 5, 7), (2, 17, 7, 7), (1, 24, 13, 13), (1, 33, 4, 16), (3, 16, 1, 9),
    (1, 5, 30, 35), (1, 20, 2, 200),
]  # fmt: skip


def reorder(dims, lanes, packs, dtype="f32"):
    shape = "x".join(map(str, dims))
    plain, blocked = f"tensor<{shape}x{dtype}>", f'tensor<{shape}x{dtype}, #ln.layout<"c{lanes}">>'
    source, target = (plain, blocked) if packs else (blocked, plain)
    return {"x": source}, f"%y = ln.forward %x : {target} ln.yield %y"


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: f"{m.lanes} lanes")
@pytest.mark.parametrize("dims", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["f32", "ui8", "i8", "i16"])
def test_there_and_back(dims, machine, dtype):
    made = np.random.default_rng(0).integers(-(1 << 15), 1 << 15, dims).astype(BY_NAME[dtype].np)
    for halo in ((0, 0), (1, 1), (2, 0)):
        for packs, around in ((True, {"out": halo}), (False, {"extra": halo})):
            check_blocked(
                REORDER,
                *reorder(dims, machine.lanes, packs, dtype),
                machine=machine,
                tolerance=0,
                arrays=[made],
                **around,
            )


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.tuples(st.integers(1, 2), st.integers(1, 40), st.integers(1, 12), st.integers(1, 70)),
    st.tuples(st.integers(0, 3), st.integers(0, 3)), st.sampled_from(MACHINES), st.booleans(),
)  # fmt: skip
def test_any_shape(dims, halo, machine, packs):
    out, extra = (halo, (0, 0)) if packs else ((0, 0), halo)
    check_blocked(REORDER, *reorder(dims, machine.lanes, packs), out=out, extra=extra, machine=machine, tolerance=0)


def test_another_halo_is_a_copy():
    for dims in ((1, 24, 7, 7), (2, 3, 1, 50)):
        t = f'tensor<{"x".join(map(str, dims))}xf32, #ln.layout<"c16">>'
        body = f"%y = ln.forward %x : {t} ln.yield %y"
        check_blocked(MAPS, {"x": t}, body, extra=(1, 1), out=(0, 3), tolerance=0)
        check_blocked(MAPS, {"x": t}, body, extra=(0, 0), out=(2, 2), tolerance=0)


@pytest.mark.parametrize("n", [4, 8, 16])
def test_squares_are_transposed_by_shuffles(n):
    """`tile.transpose` of n registers of n elements, against the interpreter and NumPy; no element is moved by itself."""
    b = Builder.kernel("k", [MemRefType(f32, [n, n])] * 2, opt="none")
    x, y = b.args
    rows = [b.tile_load(x, [i, 0], [1], [n]) for i in range(n)]
    for i, column in enumerate(b.append(tile_arith.TransposeOp(rows)).results):
        b.tile_store(column, y, [i, 0], [1])
    module = ModuleOp([b.finish()])
    data = np.arange(n * n, dtype=np.float32).reshape(n, n)
    _, got = run(module, [data, np.zeros((n, n), np.float32)])
    assert (got == data.T).all()
    text = compile_module(module, vectors=TargetVectors(16)).llvm_ir
    assert text.count("shufflevector") == n * (n.bit_length() - 1) and "insertelement" not in text
