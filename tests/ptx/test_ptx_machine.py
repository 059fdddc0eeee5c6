"""How the PTX interpreter runs threads: divergence, barriers, warps, calls, state spaces, atomics; and what it refuses."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest
from ptx_kernels import MMA, PROLOGUE, SIMT
from ptx_tools import elementwise, run, to_ptx

from lightnet.diagnostics import LightNetError
from lightnet.runtime.cuda.driver import DeviceLaunch
from lightnet_ptx.emulator import Emulator

REGS = ".reg .pred %p<20>; .reg .b16 %h<20>; .reg .b32 %r<60>; .reg .f32 %f<20>; .reg .b64 %rd<40>;"


def kernel(body: str, params: str = ".param .u64 O", variables: str = "", functions: str = "") -> str:
    """A kernel whose %rd1 is the parameter O, %r1 the thread, and %rd2 the address of O's element (of 4 bytes) of the
    thread.
    """
    return (
        f"{PROLOGUE}\n{variables}\n{functions}\n.visible .entry k({params})\n{{ {REGS}\n"
        "ld.param.u64 %rd1, [O]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 4, %rd1;\n" + body + "\nret; }"
    )


def words(body: str, count: int = 32, threads: int = 32, **options) -> np.ndarray:
    """What the kernel leaves in O, words that begin as 0."""
    text = kernel(body, **{k: options.pop(k) for k in ("params", "variables", "functions") if k in options})
    return run(text, "k", [np.zeros(count, np.uint32)], *options.pop("scalars", ()), block=(threads, 1, 1), **options)[
        0
    ]


def finding(body: str, label: str, count: int = 32, threads: int = 32, **options) -> LightNetError:
    with pytest.raises(LightNetError) as caught:
        words(body, count, threads, **options)
    assert caught.value.label == f"ptx.{label}", caught.value.render()
    return caught.value


T = np.arange(32, dtype=np.uint32)


# -- control flow
@pytest.mark.parametrize(("first", "second"), [("%p1", "%p2"), ("%p1", "_"), ("_", "%p2")])
@pytest.mark.parametrize("packed", [False, True])
def test_comparisons_with_two_results(packed: bool, first: str, second: str) -> None:
    """``p|q``: the comparison and its opposite, or, of two halves, both comparisons; either may be left out."""
    compare = "setp.lt.f16x2 {p}|{q}, %r3, %r4;" if packed else "setp.lt.u32 {p}|{q}, %r1, 12;"
    body = f"""
        and.b32 %r3, %r1, 3; and.b32 %r5, %r1, 16; shl.b32 %r5, %r5, 12; or.b32 %r3, %r3, %r5; mov.u32 %r4, 0x00010002;
        setp.eq.u32 %p1, %r1, 77; setp.eq.u32 %p2, %r1, 77; {compare.format(p=first, q=second)}
        selp.u32 %r6, 1, 0, %p1; selp.u32 %r7, 2, 0, %p2; or.b32 %r6, %r6, %r7; st.global.u32 [%rd2], %r6;"""
    p, q = (T % 4 < 2, T // 16 % 2 < 1) if packed else (T < 12, T >= 12)
    want = (p & (first != "_")) + 2 * (q & (second != "_")).astype(int)
    assert words(body).tolist() == want.tolist()


def test_branches_diverge_and_converge():
    body = """
        mov.u32 %r2, 0; and.b32 %r3, %r1, 1; setp.eq.u32 %p1, %r3, 0; @%p1 bra EVEN;
        add.u32 %r2, %r1, 100; bra JOIN;
        EVEN: setp.lt.u32 %p2, %r1, 8; @!%p2 bra JOIN; mov.u32 %r2, 7;
        JOIN: activemask.b32 %r4; add.u32 %r2, %r2, %r4; st.global.u32 [%rd2], %r2;"""
    want = np.where(T % 2 == 1, T + 100, np.where(T < 8, 7, 0)).astype(np.uint32) - np.uint32(
        1
    )  # all lanes are active again
    assert (words(body) == want).all()


def test_loops_of_different_lengths():
    body = """
        mov.u32 %r2, 0; mov.u32 %r3, 0;
        L: setp.ge.u32 %p1, %r3, %r1; @%p1 bra E; add.u32 %r2, %r2, %r3; add.u32 %r3, %r3, 1; bra.uni L;
        E: st.global.u32 [%rd2], %r2;"""
    assert (words(body) == T * (T - 1) // 2).all()


def test_threads_that_end_early_leave_the_others_alone():
    assert (words("setp.ge.u32 %p1, %r1, 5; @%p1 ret; st.global.u32 [%rd2], %r1;") == np.where(T < 5, T, 0)).all()


def test_a_table_of_branches():
    body = """
        and.b32 %r2, %r1, 3; TS: .branchtargets A, B, C, A; brx.idx %r2, TS;
        A: mov.u32 %r3, 10; bra E;
        B: mov.u32 %r3, 20; bra E;
        C: mov.u32 %r3, 30;
        E: st.global.u32 [%rd2], %r3;"""
    assert (words(body) == np.array([10, 20, 30, 10])[T % 4]).all()
    finding(body.replace("%r1, 3", "%r1, 7"), "bounds")


def test_a_grid_larger_than_a_batch_and_blocks_that_fill_no_warp():
    text = kernel(
        """mov.u32 %r2, %ctaid.y; mov.u32 %r3, %nctaid.x; mov.u32 %r4, %ctaid.x; mad.lo.u32 %r2, %r2, %r3, %r4;
        mov.u32 %r5, %tid.y; mov.u32 %r6, %ntid.x; mad.lo.u32 %r5, %r5, %r6, %r1; mad.lo.u32 %r2, %r2, 21, %r5;
        mad.wide.u32 %rd3, %r2, 4, %rd1; st.global.u32 [%rd3], %r2;"""
    )
    got = run(text, "k", [np.zeros(21 * 35, np.uint32)], grid=(5, 7, 1), block=(7, 3, 1), lanes=128)[0]
    assert (got == np.arange(21 * 35)).all()


def test_a_kernel_that_never_ends():
    finding("L: bra L;", "step-limit", step_limit=1000)


# -- barriers
def test_barriers_of_part_of_a_block():
    body = """.shared .b32 s[64];
        mov.u32 %r2, s; shl.b32 %r3, %r1, 2; add.u32 %r4, %r2, %r3; setp.ge.u32 %p1, %r1, 64; @%p1 bra E;
        st.shared.u32 [%r4], %r1; bar.sync 1, 64; xor.b32 %r5, %r3, 252; add.u32 %r5, %r5, %r2; ld.shared.u32 %r6, [%r5];
        st.global.u32 [%rd2], %r6;
        E: """
    assert (words(body, 96, 96)[:64] == 63 - np.arange(64)).all()
    finding(body.replace("bar.sync 1, 64;", ""), "race", 96, 96)
    finding(body.replace("bar.sync 1, 64;", "bar.sync 1, 96;"), "barrier", 96, 96)


def test_a_barrier_that_some_threads_never_reach():
    error = finding("setp.lt.u32 %p1, %r1, 32; @%p1 ret; bar.sync 0;", "barrier", 64, 64)
    assert "ended here" in error.render()
    finding("setp.lt.u32 %p1, %r1, 16; @%p1 ret; bar.sync 0;", "divergent-barrier", 64, 64)
    finding("setp.lt.u32 %p1, %r1, 16; @%p1 bra A; bar.sync 0; bra E; A: bar.sync 0; E: ", "divergent-barrier", 64, 64)


def test_whole_warps_may_wait_at_different_barrier_instructions():
    words(
        "setp.lt.u32 %p1, %r1, 32; @%p1 bra A; bar.sync 0; bra E; A: bar.sync 0; E: st.global.u32 [%rd2], %r1;", 64, 64
    )


def test_warps_that_wait_for_each_other_at_two_barriers():
    error = finding(
        "setp.lt.u32 %p1, %r1, 32; @%p1 bra A; bar.sync 1; bar.sync 2; bra E; A: bar.sync 2; bar.sync 1; E: ",
        "barrier",
        64,
        64,
    )
    assert "wait here" in error.render()


# -- warps
def _shuffle(mode, b, c):
    lane = T.astype(int)
    low, high = lane & (c >> 8), (lane & (c >> 8)) | (c & 31 & ~(c >> 8))
    source = {"up": lane - b, "down": lane + b, "bfly": lane ^ b, "idx": low | (b & ~(c >> 8))}[mode]
    inside = source >= high if mode == "up" else source <= high
    return np.where(inside, source, lane), inside


@pytest.mark.parametrize(
    "mode, b, c",
    [
        ("up", 1, 0),
        ("down", 3, 31),
        ("bfly", 16, 31),
        ("idx", 5, 31),
        ("down", 2, 0x181F),
        ("up", 2, 0x1800),
        ("bfly", 4, 0x1C1F),
    ],
)
def test_shuffles(mode, b, c):
    got = words(
        f"mul.lo.u32 %r2, %r1, 3; shfl.sync.{mode}.b32 %r3|%p1, %r2, {b}, {c}, -1; selp.b32 %r4, 1000, 0, %p1; add.u32 %r3, %r3, %r4; st.global.u32 [%rd2], %r3;"
    )
    source, inside = _shuffle(mode, b, c)
    assert (got == source * 3 + 1000 * inside).all()


def test_a_shuffle_from_a_lane_that_is_not_there():
    finding("setp.lt.u32 %p1, %r1, 4; @%p1 ret; shfl.sync.idx.b32 %r2, %r1, 9, 31, -1;", "missing-lane")
    finding("setp.lt.u32 %p1, %r1, 16; @!%p1 bra E; shfl.sync.idx.b32 %r2, %r1, 20, 31, 0xffff; E: ", "missing-lane")
    finding("setp.lt.u32 %p1, %r1, 16; @!%p1 bra E; shfl.sync.idx.b32 %r2, %r1, 2, 31, -1; E: ", "missing-lane")
    finding("shfl.sync.idx.b32 %r2, %r1, 2, 31, 0xffff;", "members")


def test_half_a_warp_shuffles():
    got = words(
        "setp.lt.u32 %p1, %r1, 16; @!%p1 bra E; shfl.sync.bfly.b32 %r2, %r1, 1, 31, 0xffff; st.global.u32 [%rd2], %r2; E: "
    )
    assert (got == np.where(T < 16, T ^ 1, 0)).all()


def test_votes_matches_and_reductions():
    body = """setp.lt.u32 %p1, %r1, 5; vote.sync.ballot.b32 %r2, %p1, -1; vote.sync.any.pred %p2, %p1, -1; vote.sync.all.pred %p3, %p1, -1;
        vote.sync.uni.pred %p4, %p1, -1; selp.b32 %r3, 1, 0, %p2; selp.b32 %r4, 2, 0, %p3; selp.b32 %r5, 4, 0, %p4;
        redux.sync.add.s32 %r6, %r1, -1; redux.sync.max.u32 %r7, %r1, -1; redux.sync.xor.b32 %r8, %r1, -1; and.b32 %r9, %r1, 3;
        match.any.sync.b32 %r10, %r9, -1; match.all.sync.b32 %r11|%p5, %r9, -1; selp.b32 %r12, 1, 0, %p5;
        mul.wide.u32 %rd3, %r1, 32; add.u64 %rd3, %rd3, %rd1; add.u32 %r3, %r3, %r4; add.u32 %r3, %r3, %r5;
        st.global.v4.u32 [%rd3], {%r2, %r3, %r6, %r7}; st.global.v4.u32 [%rd3+16], {%r8, %r10, %r11, %r12};"""
    got = words(body, 256).reshape(32, 8)
    any_ = [sum(1 << i for i in range(32) if i % 4 == t % 4) for t in range(32)]
    assert (got[:, :5] == [31, 1, 31 * 16, 31, 0]).all() and (got[:, 5] == any_).all() and not got[:, 6:].any()


# -- state spaces
def test_constants_variables_and_generic_addresses():
    variables = (
        ".const .align 4 .f32 c[4] = {0f3F800000, 2.0, 3.0, 0f40800000}; .global .align 4 .u32 g[2] = {5, 0x10};"
    )
    body = """.shared .align 4 .u32 s[32]; .local .align 4 .u32 l[4];
        and.b32 %r2, %r1, 3; mul.wide.u32 %rd3, %r2, 4; mov.u64 %rd4, c; add.u64 %rd4, %rd4, %rd3; ld.const.f32 %f1, [%rd4];
        ld.global.u32 %r3, [g+4]; cvt.rzi.u32.f32 %r4, %f1;
        mov.u64 %rd5, l; cvta.local.u64 %rd6, %rd5; add.u64 %rd6, %rd6, %rd3; st.u32 [%rd6], %r1; add.u64 %rd7, %rd5, %rd3; ld.local.u32 %r5, [%rd7];
        mov.u64 %rd8, s; cvta.shared.u64 %rd9, %rd8; mad.wide.u32 %rd9, %r1, 4, %rd9; st.u32 [%rd9], %r5; cvta.to.shared.u64 %rd10, %rd9;
        ld.shared.u32 %r6, [%rd10]; setp.lt.u32 %p1, %r1, 16; selp.b64 %rd11, %rd9, %rd2, %p1; add.u32 %r3, %r3, %r4;
        st.u32 [%rd11], %r3; st.global.u32 [%rd2], %r6; ld.u32 %r7, [%rd11]; mad.lo.u32 %r7, %r7, 1000, %r6; st.global.u32 [%rd2], %r7;"""
    want = np.where(T < 16, (16 + T % 4 + 1) * 1000 + T, T * 1000 + T)
    assert (words(body, variables=variables) == want).all()


def test_calls_are_expanded():
    ir = """define internal float @f(float %x, i32 %n) noinline { %a = fadd float %x, 1.0
        %c = icmp eq i32 %n, 3
        br i1 %c, label %y, label %z
        y: ret float %a
        z: %b = fmul float %a, %a
        ret float %b }
        define internal float @g(float %x, i32 %n) noinline { %a = call float @f(float %x, i32 %n)
        %b = call float @f(float %a, i32 3)
        ret float %b }
        """ + elementwise("k", ["float", "i32"], "float", "%r = call float @g(float %x0, i32 %x1)")
    x, n = np.arange(32, dtype=np.float32), np.arange(32, dtype=np.int32) % 5
    got = run(to_ptx(ir), "k", [x, n, np.zeros(32, np.float32)])[2]
    assert (got == np.where(n == 3, x + 1, (x + 1) ** 2) + 1).all()


def test_what_llvm_leaves_undefined_may_be_passed_on():
    h = """.func h(.param .b64 o, .param .align 8 .b8 s[16]) { .reg .b64 %rd<4>; .reg .b32 %r<4>;
        ld.param.b64 %rd1, [o]; ld.param.b32 %r1, [s]; st.global.b32 [%rd1], %r1; ret; }"""
    body = """{ .param .b64 param0; .param .align 8 .b8 param1[16]; st.param.b64 [param1+8], %rd9; st.param.b32 [param1], %r1;
        st.param.b64 [param0], %rd2; call.uni h, (param0, param1); }"""  # nothing writes %rd9
    assert (words(body, functions=h) == T).all()
    finding(body, "uninitialised", functions=h.replace("[s]", "[s+8]"))


def test_parameters_of_every_size():
    ir = """define ptx_kernel void @k(ptr addrspace(1) %o, i8 %a, i16 %b, float %c, double %d, [3 x i32] %e) {
        %f = zext i8 %a to i32
        store volatile i32 %f, ptr addrspace(1) %o
        %g = extractvalue [3 x i32] %e, 1
        %h = getelementptr i32, ptr addrspace(1) %o, i32 1
        store volatile i32 %g, ptr addrspace(1) %h
        ret void }"""
    emulator = Emulator()
    function = emulator.load(to_ptx(ir)).function("k")
    address = emulator.alloc(8)
    launch = DeviceLaunch(
        function, (1, 1, 1), (1, 1, 1), 0, (address, ("u32", 1), ("u32", 1), ("f32", 1.0), ("f64", 2.0), 3)
    )
    with pytest.raises(LightNetError, match="argument 1 has 4 bytes, the parameter 1"):
        emulator.launch(launch)
    assert function.param_offsets()[0] == [0, 8, 10, 12, 16, 24]


def test_packing_and_sixteen_bits():
    body = """cvt.u16.u32 %h1, %r1; mov.b32 %r2, {%h1, %h1}; mov.b32 {%h2, %h3}, %r2; mul.wide.u16 %r3, %h3, 4; shl.b32 %r4, %r2, 3;
        mov.b64 %rd3, {%r3, %r4}; mov.b64 {%r5, _}, %rd3; st.global.u32 [%rd2], %r5;"""
    assert (words(body) == T * 4).all()


def test_dynamic_shared_memory_stands_behind_the_static():
    body = """.shared .align 8 .b8 a[12]; mov.u32 %r2, d; mov.u32 %r3, a; sub.u32 %r4, %r2, %r3; mad.lo.u32 %r5, %r1, 4, %r2; st.shared.u32 [%r5], %r1;
        ld.shared.u32 %r6, [%r5]; setp.ge.u32 %p1, %r4, 12; @%p1 st.global.u32 [%rd2], %r6;"""
    variables = ".extern .shared .align 128 .b8 d[];"
    assert (words(body, variables=variables, shared=128) == T).all()
    finding(body, "bounds", variables=variables, shared=124)


# -- atomics
def test_atomics_count_and_return_what_was_there():
    body = """.shared .u32 s[2]; mov.u32 %r2, s; setp.eq.u32 %p1, %r1, 0; @%p1 st.shared.v2.u32 [%r2], {%r1, %r1}; bar.sync 0;
        atom.shared.add.u32 %r3, [%r2], 2; atom.global.max.u32 %r4, [%rd1+1024], %r1; red.global.add.u32 [%rd1+1028], 1;
        atom.shared.inc.u32 %r6, [%r2+4], 6; atom.global.cas.b32 %r5, [%rd1+1032], 0, %r1; atom.global.exch.b32 %r8, [%rd1+1036], 5; st.global.u32 [%rd2], %r3;"""
    got = words(
        body.replace("[%r2], {%r1, %r1}", "[%r2], {0, 0}").replace(".shared .u32 s", ".shared .align 8 .u32 s"), 260, 64
    )
    assert sorted(got[:64]) == list(range(0, 128, 2)) and (got[256:] == [63, 64, 1, 5]).all()


def test_float_atomics_sum():
    got = words(
        "cvt.rn.f32.u32 %f1, %r1; atom.global.add.f32 %f2, [%rd1+128], %f1; red.global.add.f32 [%rd1+128], %f1;", 33
    )
    assert got.view(np.float32)[32] == 2 * T.sum()


# -- races
def test_races_in_global_memory():
    body = "mov.u32 %r3, %ctaid.x; st.global.u32 [%rd1], {0};"
    assert "another value at once" in finding(body.replace("{0}", "%r1"), "race").render()
    error = finding(body.replace("{0}", "%r3"), "race", threads=1, grid=(2, 1, 1))
    assert "another block" in error.render() or "at once" in error.render()
    words(body.replace("{0}", "7"), grid=(3, 1, 1))  # the same value
    error = finding("ld.global.u32 %r2, [%rd1]; st.global.u32 [%rd2], %r1;", "race", grid=(1, 1, 1))
    assert "block (0, 0, 0), thread (" in error.render()


def test_blocks_of_different_batches_race_too():
    body = "mov.u32 %r3, %ctaid.x; setp.eq.u32 %p1, %r3, 0; @%p1 bra R; ret; R: ld.global.u32 %r2, [%rd1+4]; add.u32 %r2, %r2, 1; st.global.u32 [%rd1], %r2;"
    words(body, 32, 1, grid=(2, 1, 1), lanes=32)
    reverse = body.replace("ret; R:", "st.global.u32 [%rd1+4], %r3; ret; R:")
    assert "another block" in finding(reverse, "race", 32, 1, grid=(2, 1, 1), lanes=32).render()


def test_launches_are_ordered():
    emulator = Emulator()
    function = emulator.load(
        kernel(
            "ld.global.u32 %r2, [%rd1]; bar.sync 0; setp.eq.u32 %p1, %r1, 31; add.u32 %r2, %r2, 1; @%p1 st.global.u32 [%rd1], %r2;"
        )
    ).function("k")
    address, out = emulator.alloc(4), np.zeros(1, np.uint32)
    emulator.fill(address, 0, 4)
    emulator.graph([DeviceLaunch(function, (1, 1, 1), (32, 1, 1), 0, (address,))] * 5).launch()
    emulator.download(address, out)
    assert out[0] == 5


def test_a_warp_orders_its_accesses_by_itself():
    body = """.shared .u32 s[32]; mov.u32 %r2, s; mad.lo.u32 %r3, %r1, 4, %r2; st.shared.u32 [%r3], %r1; bar.warp.sync -1;
        xor.b32 %r4, %r1, 1; mad.lo.u32 %r4, %r4, 4, %r2; ld.shared.u32 %r5, [%r4]; bar.warp.sync -1; st.shared.u32 [%r3], %r5; st.global.u32 [%rd2], %r5;"""
    assert (words(body) == T ^ 1).all()
    finding(body.replace("bar.warp.sync -1;", "", 1), "race")
    finding(body.replace("%r5, [%r4]; bar.warp.sync -1;", "%r5, [%r4];"), "race")


@pytest.mark.parametrize("order", ["", ".relaxed", ".acquire", ".release", ".acq_rel"])
def test_what_orders_the_accesses_of_two_blocks(order: str) -> None:
    """The last block to count itself reads what both wrote (PTX ISA, "Memory Consistency Model"): their counts have to release and to
    acquire, by themselves or by a fence between them and the accesses."""
    scope = ".gpu" if order else ""
    for before in ("", "fence.acq_rel.gpu;"):
        for after in ("", "fence.acq_rel.gpu;"):
            body = f"""mov.u32 %r3, %ctaid.x; mad.wide.u32 %rd3, %r3, 4, %rd1; add.u32 %r5, %r3, 5; st.global.u32 [%rd3], %r5;
                {before} atom{order}{scope}.global.add.u32 %r4, [%rd1+64], 1; {after} setp.ne.u32 %p1, %r4, 1; @%p1 bra END;
                ld.global.u32 %r6, [%rd1]; ld.global.u32 %r7, [%rd1+4]; add.u32 %r6, %r6, %r7; st.global.u32 [%rd1+32], %r6; END:"""
            releases, acquires = order in (".release", ".acq_rel"), order in (".acquire", ".acq_rel")
            if (before or releases) and (after or acquires):
                assert words(body, threads=1, grid=(2, 1, 1))[8] == 11
            else:
                finding(body, "race", threads=1, grid=(2, 1, 1))


def test_places_in_sources_are_passed_over() -> None:
    """``.file``, ``.loc`` and sections of debuggers, which LLVM and nvcc write."""
    text = kernel(".loc 1 7 3\n st.global.u32 [%rd2], %r1;\n.loc 1 8 1, function_name $L_x, inlined_at 1 2 3")
    text = (
        text.replace(PROLOGUE, PROLOGUE + '\n.file 1 "/a b/k.cu"\n')
        + '\n.section .debug_str { .b8 1, 2 }\n.file 2 "c.h"\n'
    )
    assert (run(text, "k", [np.zeros(32, np.uint32)], block=(32, 1, 1))[0] == T).all()


@pytest.mark.parametrize("space", ["shared", "global"])
def test_races_are_those_of_a_brute_force_search(space):
    """Random reads and writes in phases between barriers, by two warps, in global memory of two blocks: a race is two accesses to a word by
    different threads, one of them a write, in one phase or in different blocks."""
    found = [_random_accesses(space, seed) for seed in range(60)]
    assert all(got == want for got, want in found), [i for i, (got, want) in enumerate(found) if got != want]
    assert 10 < sum(want for _, want in found) < 50


def _random_accesses(space: str, seed: int) -> tuple[bool, bool]:
    rng, steps, threads = np.random.default_rng(seed), 8, 64
    blocks = 1 if space == "shared" else 2
    lanes = blocks * threads
    own = np.arange(lanes)
    where = np.where(
        rng.random((steps, lanes)) < (0.997 if space == "shared" else 0.9993),
        own,
        rng.integers(0, lanes, (steps, lanes)),
    ).astype(np.uint32)
    if space == "shared":
        where = where % threads
    writes, barriers = rng.random(steps) < 0.5, rng.random(steps) < 0.5
    body = [
        ".shared .align 4 .b32 s[64];",
        "mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, 64, %r1; mad.wide.u32 %rd3, %r3, 4, %rd1; mov.u64 %rd5, s; mad.wide.u32 %rd6, %r1, 4, %rd5;",
        "st.shared.u32 [%rd6], %r1; bar.sync 0;",
    ]
    base = "%rd5" if space == "shared" else "%rd1"
    offset = 0 if space == "shared" else 4 * steps * lanes
    for s in range(steps):
        body.append(
            f"ld.global.u32 %r4, [%rd3+{4 * s * lanes}]; mad.wide.u32 %rd4, %r4, 4, {base}; mad.lo.u32 %r5, %r3, {steps}, {s + 1000};"
        )
        body.append(f"st.{space}.u32 [%rd4+{offset}], %r5;" if writes[s] else f"ld.{space}.u32 %r6, [%rd4+{offset}];")
        body.append("bar.sync 0;" if barriers[s] else "")
    data = np.concatenate([where.ravel(), np.zeros(lanes, np.uint32)])
    try:
        run(
            kernel("\n".join(body)), "k", [data], grid=(blocks, 1, 1), block=(threads, 1, 1), lanes=64 + 64 * (seed % 2)
        )
        got = False
    except LightNetError as error:
        assert error.label == "ptx.race"
        got = True
    phase = np.concatenate([[0], np.cumsum(barriers)])[:steps]
    uses = [(int(where[s, t]), t, int(phase[s]), bool(writes[s])) for s in range(steps) for t in range(lanes)]
    by_word: dict[int, list[tuple[int, int, bool]]] = {}
    for word, *use in uses:
        by_word.setdefault(word, []).append(tuple(use))
    want = any(
        a[0] != b[0] and (a[2] or b[2]) and (a[1] == b[1] or a[0] // threads != b[0] // threads)
        for users in by_word.values()
        for i, a in enumerate(users)
        for b in users[:i]
    )
    return got, want


# -- memory
def test_accesses_that_no_memory_takes():
    assert "past the end of allocation 1" in finding("ld.global.u32 %r2, [%rd2+4];", "bounds").render()
    assert "null pointer" in finding("mov.u64 %rd3, 0; ld.global.u32 %r2, [%rd3];", "bounds").render()
    assert "multiple of 4" in finding("ld.global.u32 %r2, [%rd2+2];", "misaligned").render()
    assert "multiple of 16" in finding("ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd1+4];", "misaligned").render()
    finding(".shared .u32 s[4]; mov.u64 %rd3, s; ld.global.u32 %r2, [%rd3+16];", "bounds")
    assert "never written" in finding(".shared .u32 s[4]; ld.shared.u32 %r2, [s];", "uninitialised").render()
    finding(".local .u32 s[4]; ld.local.u32 %r2, [s];", "uninitialised")
    finding(".local .u32 s[4]; st.local.u32 [s+16], 0;", "bounds")
    assert "register %r2" in finding("add.u32 %r3, %r2, 1;", "uninitialised").render()
    finding("setp.eq.u32 %p1, %r1, 3; @%p1 bra E; mov.u32 %r2, 0; E: add.u32 %r3, %r2, 1;", "uninitialised")
    words(
        "setp.eq.u32 %p1, %r1, 3; @%p1 bra E; mov.u32 %r2, 0; E: mov.u32 %r3, %r2;"
    )  # a move may copy what is undefined


def test_new_and_freed_memory_holds_nothing():
    emulator = Emulator()
    function = emulator.load(kernel("ld.global.u32 %r2, [%rd2];")).function("k")
    address = emulator.alloc(128)
    launch = DeviceLaunch(function, (1, 1, 1), (32, 1, 1), 0, (address,))
    with pytest.raises(LightNetError, match="never written"):
        emulator.launch(launch)
    emulator.upload(address, np.zeros(16, np.uint32))
    with pytest.raises(LightNetError, match=r"byte 64 of allocation 1.*never written"):
        emulator.launch(launch)
    emulator.fill(address, 1, 128)
    emulator.launch(launch)
    emulator.poison(address + 4, 4)
    with pytest.raises(LightNetError, match="byte 4 of allocation 1"):
        emulator.launch(launch)
    emulator.free(address)
    with pytest.raises(LightNetError, match="given back"):
        emulator.launch(launch)
    with pytest.raises(LightNetError, match="given back already"):
        emulator.free(address)
    with pytest.raises(LightNetError, match="out of memory"):
        Emulator(memory_bytes=1000).alloc(1001)


def test_what_is_read_as_constant_may_not_be_written_in_the_launch():
    body = "st.global.u32 [%rd2], %r1; bar.sync 0; ld.global.nc.u32 %r2, [%rd2];"
    assert "read-only" in finding(body, "race").render()
    words(body.replace(".nc", ""))


def test_what_was_never_written_comes_back_as_ones():
    emulator, out = Emulator(), np.zeros(2, np.float32)
    address = emulator.alloc(8)
    emulator.upload(address, np.ones(1, np.float32))
    emulator.download(address, out)
    assert out[0] == 1 and np.isnan(out[1])


# -- asynchronous copies
def test_copies_land_when_they_are_waited_for():
    body = """.shared .align 16 .b8 s[512]; mov.u32 %r2, s; mad.lo.u32 %r3, %r1, 4, %r2; cp.async.ca.shared.global [%r3], [%rd2], 4; cp.async.commit_group;
        cp.async.ca.shared.global [%r3+256], [%rd2], 4, 3; cp.async.commit_group; cp.async.wait_group 1; ld.shared.u32 %r4, [%r3]; cp.async.wait_group 0;
        ld.shared.u32 %r5, [%r3+256]; sub.u32 %r4, %r4, %r5; st.global.u32 [%rd2+128], %r4;"""
    data = np.arange(64, dtype=np.uint32) * 0x01000001
    got = run(kernel(body), "k", [data])[0]
    assert (got[32:] == data[:32] - (data[:32] & 0xFFFFFF)).all()
    for old, new in (
        ("wait_group 1", "wait_group 2"),
        ("cp.async.wait_group 0;", ""),
        ("cp.async.commit_group; cp.async.wait_group 1", "cp.async.wait_group 1"),
    ):
        with pytest.raises(LightNetError) as caught:
            run(kernel(body.replace(old, new)), "k", [data])
        assert caught.value.label == "ptx.cp-async"


# -- tensor cores
@pytest.mark.parametrize("kind, k", [("f16", 16), ("bf16", 16), ("f16", 8), ("bf16", 8), ("tf32", 8), ("tf32", 4)])
def test_mma_multiplies_the_fragments_of_the_manual(kind, k):
    rng = np.random.default_rng(k)
    a, b, c = rng.integers(-8, 8, (16, k)), rng.integers(-8, 8, (k, 8)), rng.integers(-8, 8, (16, 8))
    each = 1 if kind == "tf32" else 2
    na, nb = 16 * k // 32 // each, 8 * k // 32 // each
    half = {
        "f16": lambda x: x.astype(np.float16).view(np.uint16),
        "bf16": lambda x: (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16),
    }

    def fragment(matrix, places):  # [32, registers]: registers of `each` elements at (row, column)
        values = np.array([[matrix[p] for p in places(lane // 4, lane % 4)] for lane in range(32)])
        if kind == "tf32":
            return values.astype(np.float32).view(np.uint32)
        return np.ascontiguousarray(half[kind](values)).view(np.uint32)

    steps = range(0, k, 4 * each)
    a_words = fragment(a, lambda g, t: [(g + r, s + each * t + e) for s in steps for r in (0, 8) for e in range(each)])
    b_words = fragment(b, lambda g, t: [(s + each * t + e, g) for s in steps for e in range(each)])
    where = [
        [(g + r, 2 * t + e) for r in (0, 8) for e in (0, 1)] for g, t in ((lane // 4, lane % 4) for lane in range(32))
    ]
    c_words = np.array([[c[p] for p in w] for w in where]).astype(np.float32).view(np.uint32)
    n = na + nb + 4
    loads = "".join(f"ld.global.u32 %r{10 + i}, [%rd4+{4 * i}];" for i in range(n))
    names = [f"%r{10 + i}" for i in range(n)]
    part = lambda x: "{" + ", ".join(x) + "}"  # noqa: E731
    body = f"""mad.wide.u32 %rd4, %r1, {4 * n}, %rd1; {loads}
        mma.sync.aligned.m16n8k{k}.row.col.f32.{kind}.{kind}.f32 {{%r40, %r41, %r42, %r43}}, {part(names[:na])}, {part(names[na : na + nb])}, {part(names[na + nb :])};
        mad.wide.u32 %rd5, %r1, 16, %rd1; st.global.v4.u32 [%rd5+{128 * n}], {{%r40, %r41, %r42, %r43}};"""
    data = np.concatenate([np.concatenate([a_words, b_words, c_words], axis=1).ravel(), np.zeros(128, np.uint32)])
    got = run(kernel(body), "k", [data])[0][32 * n :].view(np.float32).reshape(32, 4)
    want = a @ b + c
    assert (got == np.array([[want[p] for p in w] for w in where])).all()


def test_tensor_cores_need_whole_warps():
    body = """mov.f32 %f1, 0f00000000; mov.u32 %r2, 0;
        mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1, %f2, %f3, %f4}, {%r2, %r2, %r2, %r2}, {%r2, %r2}, {%f1, %f1, %f1, %f1};"""
    words(body, 64, 64)
    finding(body, "missing-lane", 48, 48)


def test_transposed_ldmatrix():
    data = np.arange(64 * 4, dtype=np.uint16)
    body = """.shared .align 16 .b8 s[512]; mad.wide.u32 %rd3, %r1, 16, %rd1; ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd3]; mov.u32 %r6, s; mad.lo.u32 %r6, %r1, 16, %r6;
        st.shared.v4.u32 [%r6], {%r2, %r3, %r4, %r5}; bar.sync 0; ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r2, %r3, %r4, %r5}, [%r6]; bar.sync 0;
        st.global.v4.u32 [%rd3], {%r2, %r3, %r4, %r5};"""
    got = run(kernel(body), "k", [data])[0].reshape(32, 4, 2)
    for lane in range(32):
        for m in range(4):
            for e in range(2):
                assert got[lane, m, e] == 64 * m + 8 * (2 * (lane % 4) + e) + lane // 4


# -- what LLVM emits
def _calls() -> str:
    """LLVM IR that uses what there is beside arithmetic: atomics, warps, asynchronous copies, tensor cores, special
    registers.
    """
    lines, decls = [], []

    def keep(name: str, kind: str) -> None:
        lines.append(f"store volatile {kind} %{name}, ptr addrspace(1) %o")

    for space in (0, 1, 3):
        p = f"ptr addrspace({space}) %p{space}"
        for kind in ("i32", "i64"):
            for op in "add sub and or xor min max umin umax xchg uinc_wrap udec_wrap".split():
                lines.append(f"%a{space}{kind}{op} = atomicrmw {op} {p}, {kind} %v{kind} monotonic")
                keep(f"a{space}{kind}{op}", kind)
            lines.append(
                f"%c{space}{kind} = cmpxchg {p}, {kind} %v{kind}, {kind} 5 acq_rel monotonic\n%d{space}{kind} = extractvalue {{{kind}, i1}} %c{space}{kind}, 0"
            )
            keep(f"d{space}{kind}", kind)
        for kind in ("float", "double"):
            lines.append(f"%f{space}{kind} = atomicrmw fadd {p}, {kind} 1.0 monotonic")
            keep(f"f{space}{kind}", kind)
    for mode in ("bfly", "up", "down", "idx"):
        decls.append(f"declare i32 @llvm.nvvm.shfl.sync.{mode}.i32(i32, i32, i32, i32)")
        lines.append(f"%s{mode} = call i32 @llvm.nvvm.shfl.sync.{mode}.i32(i32 -1, i32 %t, i32 1, i32 31)")
        keep(f"s{mode}", "i32")
    for op in ("add", "umin", "max", "and", "xor"):
        decls.append(f"declare i32 @llvm.nvvm.redux.sync.{op}(i32, i32)")
        lines.append(f"%r{op} = call i32 @llvm.nvvm.redux.sync.{op}(i32 %t, i32 -1)")
        keep(f"r{op}", "i32")
    for name in "tid.y tid.z ntid.x ntid.z ctaid.x ctaid.z nctaid.y laneid warpsize warpid nwarpid lanemask.lt lanemask.ge clock clock64 smid".split():
        kind, local = "i64" if name == "clock64" else "i32", name.replace(".", "")
        decls.append(f"declare {kind} @llvm.nvvm.read.ptx.sreg.{name}()")
        lines.append(f"%g{local} = call {kind} @llvm.nvvm.read.ptx.sreg.{name}()")
        keep(f"g{local}", kind)
    for name in ("barrier0", "membar.gl", "membar.cta", "membar.sys", "cp.async.commit.group", "cp.async.wait.all"):
        decls.append(f"declare void @llvm.nvvm.{name}()")
        lines.append(f"call void @llvm.nvvm.{name}()")
    for name, args in (
        ("cp.async.wait.group", "i32 1"),
        ("bar.warp.sync", "i32 -1"),
        ("barrier.cta.sync.aligned.count", "i32 1, i32 64"),
        ("barrier.cta.sync.all", "i32 2"),
    ):
        decls.append(f"declare void @llvm.nvvm.{name}({', '.join(a.split()[0] for a in args.split(', '))})")
        lines.append(f"call void @llvm.nvvm.{name}({args})")
    for name, size in (("cg", 16), ("ca", 4), ("ca", 8), ("ca", 16)):
        decls.append(
            f"declare void @llvm.nvvm.cp.async.{name}.shared.global.{size}(ptr addrspace(3), ptr addrspace(1))"
        )
        decls.append(
            f"declare void @llvm.nvvm.cp.async.{name}.shared.global.{size}.s(ptr addrspace(3), ptr addrspace(1), i32)"
        )
        lines.append(
            f"call void @llvm.nvvm.cp.async.{name}.shared.global.{size}(ptr addrspace(3) %p3, ptr addrspace(1) %p1)"
        )
        lines.append(
            f"call void @llvm.nvvm.cp.async.{name}.shared.global.{size}.s(ptr addrspace(3) %p3, ptr addrspace(1) %p1, i32 %vi32)"
        )
    lines.append(
        "fence acq_rel\n%ld = load atomic i32, ptr addrspace(1) %p1 acquire, align 4\nstore atomic i32 %ld, ptr addrspace(1) %p1 release, align 4"
    )
    return "\n".join(decls) + (
        "\ndefine ptx_kernel void @k(ptr %p0, ptr addrspace(1) %p1, ptr addrspace(3) %p3, ptr addrspace(1) %o, i32 %vi32, i64 %vi64) {\n"
        "%t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n" + "\n".join(lines) + "\nret void\n}"
    )


@pytest.mark.parametrize("cpu", ["sm_80", "sm_90"])
def test_what_llvm_emits_is_understood(cpu):
    assert len(Emulator(cpu).load(to_ptx(_calls(), cpu)).function("k").code) > 200


# -- what is refused
@pytest.mark.parametrize(
    "body, label",
    [
        ("mul.high.u32 %r2, %r1, %r1;", "opcode"),
        ("mul.hi.f32 %f1, %f1, %f1;", "opcode"),
        ("add.u32 %r2, %r1;", "operand"),
        ("add.u32 %rd2, %r1, 1;", "operand"),
        ("add.u32 %r2, %p1, 1;", "operand"),
        ("add.u32 %r99, %r1, 1;", "operand"),
        ("add.u32 %r2, %r1, 0x100000000;", "constant"),
        ("add.u32 %r2, %r1, 1" + "0" * 5000 + ";", "constant"),
        ("mov.f32 %f1, 1;", "constant"),
        ("mov.f32 %f1, 1e300;", "constant"),
        ("bra NOWHERE;", "name"),
        ("add.u32 %r2, %r1, 1", "syntax"),
        ("ld.global.u32 %r2, [nothing];", "name"),
        ("st.global.u32 {%r1}, %r2;", "operand"),
        ("tcgen05.fence::before_thread_sync;", "opcode"),
        ("@%p1 add.u32 %r2, %r1, ?;", "syntax"),
        ("call nothing;", "call"),
        ("ld.shared.u32 %r2, [O];", "space"),
        (".shared .b8 s[400000]; mov.u32 %r2, s;", "limit"),
    ],
)
def test_what_is_not_understood_is_an_error_at_its_line(body, label):
    error = finding(body, label)
    assert error.loc.line >= 7 or label == "limit"


def test_a_module_for_a_newer_device_is_refused():
    for text in (
        SIMT.replace("sm_80", "sm_90"),
        SIMT.replace("8.0", "12.0"),
        SIMT.replace(".address_size 64", ".address_size 32"),
        ".version 8.0\n",
    ):
        with pytest.raises(LightNetError):
            Emulator().load(text)
    assert Emulator("sm_90").load(SIMT).kernels


def test_launches_that_a_driver_refuses():
    emulator = Emulator()
    module = emulator.load(SIMT)
    with pytest.raises(LightNetError, match="no kernel other"):
        module.function("other")
    address = emulator.alloc(4)
    good = (address, address, address, ("u32", 1), ("u32", 1), ("u32", 1))
    for grid, block, shared, args, message in (
        ((1, 1, 1), (32, 1, 1), 0, good, "requires"),
        ((0, 1, 1), (16, 16, 1), 0, good, "grid"),
        ((1, 1, 1), (16, 16, 1), 1 << 20, good, "shared memory"),
        ((1, 1, 1), (16, 16, 1), 0, good[:5], "5 arguments for 6"),
        ((1, 1, 1), (16, 16, 1), 0, (*good[:5], ("f64", 1.0)), "has 8 bytes"),
    ):
        with pytest.raises(LightNetError, match=message):
            emulator.launch(DeviceLaunch(module.function("simt"), grid, block, shared, args))


@pytest.mark.parametrize("seed", range(3))
def test_mangled_text_is_refused_or_runs(seed):
    rng = np.random.default_rng(seed)
    for _ in range(40):
        text = list(MMA)
        for at in rng.integers(0, len(text), 2):
            text[at] = chr(rng.integers(32, 127)) if rng.random() < 0.5 else ""
        try:
            Emulator().load("".join(text))
        except LightNetError as error:
            assert error.loc is None or error.loc.line > 0


def test_a_trace_sees_each_instruction():
    seen = []

    def trace(batch):
        if batch.kernel.sites[batch.here].opcode == "st.global.u32":
            seen.append(batch.register("%r2").tolist())

    words("add.u32 %r2, %r1, 5; st.global.u32 [%rd2], %r2;", trace=trace)
    assert seen == [(T + 5).tolist()]


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="no ptxas on this machine")
def test_the_kernels_of_these_tests_assemble(tmp_path):
    for name, text in (("simt", SIMT), ("mma", MMA)):
        (tmp_path / f"{name}.ptx").write_text(text)
        subprocess.run(["ptxas", "-arch=sm_80", str(tmp_path / f"{name}.ptx"), "-o", str(tmp_path / "out")], check=True)


def test_elements_of_a_vector_that_nobody_reads_are_not_accessed():
    """LLVM reads four elements where three are wanted and the address is aligned: what stands behind them may belong to somebody else, or to
    nobody. A fourth one that is read counts, and so does the alignment of the whole."""
    load = "ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd1+16];"
    three = f"{load} add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, %r4; st.global.u32 [%rd1], %r2;"
    assert words(three, count=7, threads=1)[0] == 0
    assert "past the end" in finding(f"{three} st.global.u32 [%rd1], %r5;", "bounds", count=7, threads=1).render()
    assert "multiple of 16" in finding(three.replace("+16", "+8"), "misaligned", count=7, threads=1).render()


@pytest.mark.parametrize("start, nbytes", [(0, 9), (8, 1), (-1, 4), (4, 8), (0, -1)])
def test_copies_of_the_host_stay_in_an_allocation(start, nbytes):
    memory = Emulator().memory
    store = memory.alloc(8, "eight bytes")
    assert memory.find(store.base + 3, 5) == (store, 3)
    with pytest.raises(LightNetError, match="are not in one allocation"):
        memory.find(store.base + start, nbytes)
