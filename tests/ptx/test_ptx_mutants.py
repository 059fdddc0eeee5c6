"""The interpreter runs two real kernels right, and catches what is planted in them: by a finding at the line, or where
a fault changes values alone, by wrong values.
"""

from __future__ import annotations

import numpy as np
import pytest
from ptx_kernels import LAST_BLOCK, MMA, SIMT
from ptx_tools import run

from lightnet.diagnostics import LightNetError


def simt(source: str, m: int, n: int, k: int, **options) -> float:
    """The error of the float32 kernel's product, relative to the largest element. C begins as NaN."""
    rng = np.random.default_rng(m + n + k)
    a, b = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
    grid = (-(-n // 16), -(-m // 16), 1)
    sizes = [("u32", m), ("u32", n), ("u32", k)]
    c = run(
        source, "simt", [a, b, np.full((m, n), np.nan, np.float32)], *sizes, grid=grid, block=(16, 16, 1), **options
    )[2]
    want = a.astype(np.float64) @ b
    return float(np.abs(c - want).max() / np.abs(want).max())


def mma(source: str, m: int, n: int, k: int, **options) -> float:
    """The error of the tensor-core kernel."""
    rng = np.random.default_rng(m + n + k)
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((n, k)).astype(np.float16)
    grid = (-(-n // 16), -(-m // 16), 1)
    sizes = [("u32", m), ("u32", n), ("u32", k)]
    c = run(source, "mma", [a, b, np.full((m, n), np.nan, np.float32)], *sizes, grid=grid, block=(64, 1, 1), **options)[
        2
    ]
    want = a.astype(np.float64) @ b.astype(np.float64).T
    return float(np.abs(c - want).max() / np.abs(want).max())


@pytest.mark.parametrize("shape", [(16, 16, 16), (33, 17, 40), (1, 50, 7)])
def test_simt_product(shape):
    assert simt(SIMT, *shape) < 1e-6


@pytest.mark.parametrize("shape", [(16, 16, 16), (16, 16, 32), (40, 23, 56), (1, 1, 8)])
def test_tensor_core_product(shape):
    assert mma(MMA, *shape) < 1e-6


#: A line of the kernel, what stands there instead, and the finding (None: values are wrong).
SIMT_MUTANTS = [
    ("bar.sync 0;                        // FILLED", "", "race"),
    ("bar.sync 0;                        // READ", "", "race"),
    ("setp.lt.and.s32 %p3, %r18, %r3, %p1;", "setp.le.and.s32 %p3, %r18, %r3, %p1;", "bounds"),
    ("setp.lt.s32 %p1, %r9, %r1;", "setp.le.s32 %p1, %r9, %r1;", "bounds"),
    ("setp.lt.s32 %p2, %r8, %r2;", "setp.le.s32 %p2, %r8, %r2;", "bounds"),
    ("@%p7 st.global.f32 [%rd6], %f1;", "st.global.f32 [%rd6], %f1;", "bounds"),
    ("st.shared.f32 [%r14], %f3;", "", "uninitialised"),
    ("ld.shared.f32 %f4, [%r23];", "ld.global.f32 %f4, [%rd19];", "uninitialised"),
    ("ld.shared.f32 %f5, [%r24];", "cvt.u64.u32 %rd9, %r24; ld.global.f32 %f5, [%rd9];", "bounds"),
    ("add.s32 %r24, %r24, 64;", "add.s32 %r24, %r24, 68;", "bounds"),
    ("setp.lt.u32 %p5, %r22, 16;", "setp.le.u32 %p5, %r22, 16;", "bounds"),
    ("setp.lt.u32 %p5, %r22, 16;", "setp.lt.u32 %p5, %r22, 15;", None),
    ("shl.b32 %r10, %r10, 2;", "", "misaligned"),
    ("mov.f32 %f1, 0f00000000;", "", "uninitialised"),
    ("bar.sync 0;                        // READ", "@%p1 bar.sync 0;", "race"),
    (".shared .align 4 .b8 bs[1024];", ".shared .align 4 .b8 bs[1020];", "bounds"),
    ("mad.wide.s32 %rd6, %r25, 4, %rd3;", "mad.wide.s32 %rd6, %r8, 4, %rd3;", "race"),
    ("setp.lt.s32 %p6, %r17, %r3;", "setp.ne.s32 %p6, %r17, -1;", "step-limit"),
]


@pytest.mark.parametrize("line, other, finding", SIMT_MUTANTS)
def test_planted_bugs_in_the_simt_product_are_caught(line, other, finding):
    assert SIMT.count(line) == 1
    _caught(lambda: simt(SIMT.replace(line, other), 33, 17, 40, step_limit=20000), finding)


MMA_MUTANTS = [
    ("cp.async.wait_group 1;             // WAIT", "", "cp-async"),
    ("cp.async.wait_group 1;             // WAIT", "cp.async.wait_group 2;", "cp-async"),
    ("bar.sync 0;                        // FILLED", "", "race"),
    ("bar.sync 0;                        // USED", "", "race"),
    ("bar.sync 0;                        // FILLED", "bar.warp.sync -1;", "race"),
    ("bar.sync 0;                        // USED", "bar.warp.sync -1;", "race"),
    ("[%rd5], 16, %r30;", "[%rd5], 16;", None),
    ("selp.b32 %r30, 16, 0, %p5;         // BYTES", "selp.b32 %r30, 16, 8, %p5;", None),
    ("selp.b32 %r30, 16, 0, %p5;         // BYTES", "selp.b32 %r30, 20, 0, %p5;", "cp-async"),
    ("setp.lt.s32 %p2, %r11, %r12;       // ROW EXISTS", "setp.le.s32 %p2, %r11, %r12;", "bounds"),
    ("{%r44, %r45},\n", "{%r45, %r44},\n", None),
    ("{%r40, %r41, %r42, %r43}, {%r44", "{%r40, %r42, %r41, %r43}, {%r44", None),
    ("ldmatrix.sync.aligned.m8n8.x2.shared", "ldmatrix.sync.aligned.m8n8.x2.trans.shared", None),
    ("xor.b32 %r28, %r28, 512;", "", "cp-async"),
    ("shl.b32 %r17, %r5, 4;", "shl.b32 %r17, %r5, 3;", "misaligned"),
    ("cp.async.commit_group;", "", "cp-async"),
    ("cp.async.cg.shared.global [%r34]", "@%p1 cp.async.cg.shared.global [%r34]", "uninitialised"),
    ("    bar.sync 0;                        // FILLED", "    setp.lt.u32 %p9, %r4, 40; @%p9 bar.sync 0;", "barrier"),
    (
        "    ldmatrix.sync.aligned.m8n8.x2",
        "    setp.lt.u32 %p9, %r5, 30; @%p9 ldmatrix.sync.aligned.m8n8.x2",
        "uninitialised",
    ),
    ("    mma.sync", "    setp.lt.u32 %p9, %r5, 30; @%p9 mma.sync", "missing-lane"),
    ("setp.lt.s32 %p13, %r55, %r2;", "setp.le.s32 %p13, %r55, %r2;", "bounds"),
    (".shared .align 16 .b8 bs[1024];", ".shared .align 16 .b8 bs[512];", "bounds"),
    ("mov.f32 %f3, 0f00000000;", "mov.f32 %f3, 0f3F800000;", None),
]


@pytest.mark.parametrize("line, other, finding", MMA_MUTANTS)
def test_planted_bugs_in_the_tensor_core_product_are_caught(line, other, finding):
    assert MMA.count(line) == 1
    _caught(lambda: mma(MMA.replace(line, other), 40, 23, 56), finding)


def _caught(execute, finding):
    if finding is None:
        assert not execute() < 1e-4
        return
    with pytest.raises(LightNetError) as caught:
        execute()
    assert caught.value.label == f"ptx.{finding}", caught.value.render()
    assert caught.value.loc and caught.value.loc.line > 4
    if finding not in ("step-limit",):
        assert "thread (" in caught.value.render()


def test_without_checks_a_race_is_not_looked_for():
    assert simt(SIMT.replace("bar.sync 0;                        // FILLED", ""), 16, 16, 16, check=False) < 1e9


def last_block(source: str) -> float:
    """What the sum of the last block is wrong by; the blocks run in several batches."""
    a = np.arange(9 * 32, dtype=np.float32)
    zeros = [np.zeros(9, np.float32), np.zeros(1, np.uint32), np.zeros(1, np.float32)]
    total = run(source, "last", [a, *zeros], grid=(9, 1, 1), lanes=128)[3]
    return float(abs(total[0] - a.sum()))


def test_the_last_block_may_read_what_others_released():
    assert last_block(LAST_BLOCK) == 0


@pytest.mark.parametrize(
    "line, other",
    [
        ("membar.gl;                         // RELEASE", ""),
        ("membar.gl;                         // RELEASE", "membar.cta;"),
        ("membar.gl;                         // ACQUIRE", ""),
        ("bar.sync 0;                        // TURN", ""),
        ("atom.global.add.u32 %r5, [%rd3], 1;", "ld.global.u32 %r5, [%rd3]; add.u32 %r5, %r5, 1; st.global.u32 [%rd3], %r5;"),
    ],
)  # fmt: skip
def test_planted_bugs_between_blocks_are_caught(line, other):
    assert LAST_BLOCK.count(line) == 1
    _caught(lambda: last_block(LAST_BLOCK.replace(line, other)), "race")
