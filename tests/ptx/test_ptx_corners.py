"""Corners of the PTX machine: sinks, operands that all threads share, fragments that are not the whole block, spaces behind generic addresses,
what orders blocks by plain loads and stores, and what is said of accesses that are wrong."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from test_ptx_machine import T, finding, kernel, words

from lightnet.diagnostics import LightNetError
from lightnet.runtime.cuda.driver import DeviceLaunch
from lightnet_ptx import atomics, comparisons, races
from lightnet_ptx.emulator import Emulator
from lightnet_ptx.memory import GLOBAL_BASE, GlobalMemory

#: Each instruction lets a result go to the sink; the others are as without it.
SINKS = """.shared .align 16 .b8 sm[512]; mov.u32 %r2, sm; mad.lo.u32 %r2, %r1, 16, %r2; mov.u32 %r3, 0;
    st.shared.v4.u32 [%r2], {%r1, %r3, %r1, %r3}; bar.sync 0; mov.u32 _, %r1; mov.u32 _, %tid.x; mov.u32 _, %clock; add.u32 _, %r1, 1; cvt.u64.u32 _, %r1;
    cvta.to.global.u64 _, %rd1; mov.b64 _, {%r1, %r3}; mov.b64 %rd5, {%r1, %r3}; mov.b64 {_, %r4}, %rd5; mov.b64 {%r5, _}, %rd5; ld.global.u32 _, [%rd2];
    ld.shared.v4.u32 {%r6, _, %r7, _}, [%r2]; ld.param.u32 _, [O]; ld.param.v2.u32 {_, %r8}, [O]; shfl.sync.bfly.b32 _|%p1, %r1, 1, 31, -1; shfl.sync.bfly.b32 %r9|_, %r1, 1, 31, -1;
    vote.sync.any.pred _, %p1, -1; vote.sync.ballot.b32 _, %p1, -1; match.any.sync.b32 _, %r1, -1; match.all.sync.b32 _|%p2, %r3, -1; match.all.sync.b32 %r10|_, %r3, -1;
    redux.sync.add.u32 _, %r1, -1; activemask.b32 _; elect.sync _|%p3, -1; elect.sync %r11|_, -1; setp.lt.u32 _|%p4, %r1, 5; atom.global.add.u32 _, [%rd1+128], 1;
    ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r12, _}, [%r2]; mov.f32 %f1, 0f00000000; mov.f32 %f4, 0f3F800000;
    mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f2, _, _, %f3}, {%r3, %r3, %r3, %r3}, {%r3, %r3}, {%f4, %f1, %f1, %f1};
    cvt.rzi.u32.f32 %r13, %f2; xor.b32 %r9, %r9, 1; and.b32 %r9, %r9, %r5; and.b32 %r9, %r9, %r6; and.b32 %r9, %r9, %r7; add.u32 %r9, %r9, %r4; add.u32 %r9, %r9, %r13;
    selp.u32 %r14, 100, 0, %p1; add.u32 %r9, %r9, %r14; selp.u32 %r14, 1000, 0, %p2; add.u32 %r9, %r9, %r14; selp.u32 %r14, 10000, 0, %p3; add.u32 %r9, %r9, %r14;
    selp.u32 %r14, 100000, 0, %p4; add.u32 %r9, %r9, %r14; and.b32 %r10, %r10, 1; add.u32 %r9, %r9, %r10; add.u32 %r9, %r9, %r11; st.global.u32 [%rd2], %r9;"""


def test_results_that_go_to_the_sink() -> None:
    got = words(SINKS, 33)
    want = T + 1 + 100 + 1000 + 10000 * (T == 0) + 100000 * (T >= 5) + 1
    assert got[:32].tolist() == want.tolist() and got[32] == 32


#: A body, and what each thread stores.
CASES = [
    # a predicate that all threads share
    ("setp.eq.u32 %p1, 1, 2; mov.u32 %r2, 3; @%p1 mov.u32 %r2, 5; @!%p1 add.u32 %r2, %r2, 10; st.global.u32 [%rd2], %r2;", 13 + 0 * T),
    # both results of a packed comparison of two constants: 1 < 1.5, and 2 < 1 not
    ("mov.b32 %r3, 0x40003C00; mov.b32 %r4, 0x3C003E00; setp.lt.f16x2 %p1|%p2, %r3, %r4; selp.u32 %r2, 1, 0, %p1; selp.u32 %r5, 2, 0, %p2; add.u32 %r2, %r2, %r5; st.global.u32 [%rd2], %r2;", 1 + 0 * T),
    # a register that is written on every path taken, though not on every path
    ("setp.lt.u32 %p1, %r1, 99; @!%p1 bra E; mov.u32 %r2, 7;\nE: add.u32 %r3, %r2, %r1; st.global.u32 [%rd2], %r3;", T + 7),
    # a table of branches, taken by a part of the lanes
    ("mov.u32 %r2, 0; setp.lt.u32 %p1, %r1, 8; @%p1 bra E; and.b32 %r3, %r1, 1; TS: .branchtargets A, B; brx.idx %r3, TS; A: mov.u32 %r2, 10; bra E; B: mov.u32 %r2, 20;\nE: st.global.u32 [%rd2], %r2;",
     np.where(T < 8, 0, np.where(T % 2, 20, 10))),
    # octal, binary and hexadecimal numbers, and a negative one
    ("mov.u32 %r2, 010; add.u32 %r2, %r2, 0b11U; add.u32 %r2, %r2, 0X10; add.s32 %r2, %r2, -7; add.u32 %r2, %r2, 08; st.global.u32 [%rd2], %r2;", 8 + 3 + 16 - 7 + 8 + 0 * T),
    # two accesses behind a number, forwards and backwards
    (".shared .align 4 .b32 s[32]; mov.u32 %r2, s; mad.lo.u32 %r2, %r1, 4, %r2; st.shared.u32 [%r2], %r1; bar.sync 0; ld.shared.u32 %r3, [8+4]; ld.shared.u32 %r4, [16-12]; mad.lo.u32 %r3, %r3, 100, %r4; st.global.u32 [%rd2], %r3;", 301 + 0 * T),
    # vectors by generic addresses, of which half the lanes mean shared memory
    (""".shared .align 8 .b32 s[64]; mov.u64 %rd3, s; cvta.shared.u64 %rd4, %rd3; mad.wide.u32 %rd4, %r1, 8, %rd4; mad.wide.u32 %rd5, %r1, 8, %rd1; add.u64 %rd5, %rd5, 256;
        setp.lt.u32 %p1, %r1, 16; selp.b64 %rd6, %rd4, %rd5, %p1; mov.u32 %r2, 5; st.v2.u32 [%rd6], {%r1, %r2}; atom.add.u32 %r3, [%rd6], 1000; atom.add.u32 %r4, [%rd6], 1; ld.v2.u32 {%r5, %r6}, [%rd6];
        add.u32 %r5, %r5, %r6; add.u32 %r5, %r5, %r3; sub.u32 %r5, %r5, %r4; st.global.u32 [%rd2], %r5;""", T + 1001 + 5 - 1000),
    # barriers that are not aligned: a warp may come in parts
    ("setp.lt.u32 %p1, %r1, 16; @%p1 bra A; barrier.sync 0; bra E; A: barrier.sync 0;\nE: st.global.u32 [%rd2], %r1;", T),
    # a warp's barrier, and its other instructions, whose lanes come one half after the other
    ("setp.lt.u32 %p1, %r1, 16; @%p1 bra A; bar.warp.sync -1; bra E; A: bar.warp.sync -1;\nE: st.global.u32 [%rd2], %r1;", None),
    # an elected lane of those that are there
    ("setp.lt.u32 %p1, %r1, 7; @%p1 bra E; elect.sync %r2|%p2, 0xFFFFFF80; selp.u32 %r3, 1, 0, %p2; mad.lo.u32 %r2, %r2, 10, %r3; st.global.u32 [%rd2], %r2;\nE: ret;", np.where(T < 7, 0, 70 + (T == 7))),
    # two halves that are added, one of them too large
    ("mov.b32 %r3, 0x3C004400; atom.global.add.noftz.f16x2 %r4, [%rd1+128], %r3; st.global.u32 [%rd2], 1;", 1 + 0 * T),
    # shifts of funnels by more than a word
    ("mov.u32 %r3, 0x80000001; mov.u32 %r4, 0x40000002; mov.u32 %r5, 33; shf.l.wrap.b32 %r6, %r3, %r4, %r5; shf.l.clamp.b32 %r7, %r3, %r4, %r5; shf.r.wrap.b32 %r8, %r3, %r4, %r5; shf.r.clamp.b32 %r9, %r3, %r4, %r5; xor.b32 %r6, %r6, %r7; xor.b32 %r8, %r8, %r9; add.u32 %r6, %r6, %r8; st.global.u32 [%rd2], %r6;",
     ((0x80000005 ^ 0x80000001) + (0x40000000 ^ 0x40000002) + 0 * T)),
]  # fmt: skip


def test_what_threads_store() -> None:
    wrong = []
    for body, want in CASES:
        if want is None:
            finding(body, "missing-lane")
            continue
        got = words(body, 128).tolist()[:32]
        if got != np.asarray(want).tolist():
            wrong.append((body, got))
    assert not wrong


def test_halves_are_added_by_atomics() -> None:
    body = "mov.b32 %r3, 0x3C004000; atom.global.add.noftz.f16x2 %r4, [%rd1+128], %r3; atom.global.add.noftz.f16 %h1, [%rd1+132], 0x3C00;"
    got = words(body, 34)[32:].view(np.float16)
    assert got.tolist() == [64, 32, 32, 0]


# -- what orders two blocks
FLAG = """mov.u32 %r3, %ctaid.x; setp.eq.u32 %p1, %r3, 0; @!%p1 bra READ; st.global.u32 [%rd1+64], 5; {before} st{store}.global.u32 [%rd1+68], 1; ret;
    READ: ld{load}.global.u32 %r4, [%rd1+68]; {after} ld.global.u32 %r5, [%rd1+64]; mad.lo.u32 %r5, %r4, 100, %r5; st.global.u32 [%rd1], %r5;"""


def test_flags_order_two_blocks() -> None:
    """A store and a load of a flag order what stands before the one and behind the other if they release and acquire, or a fence does."""
    stores, loads, fences = (
        (".relaxed.gpu", ".release.gpu", ".volatile"),
        (".relaxed.gpu", ".acquire.gpu"),
        ("", "fence.acq_rel.gpu;"),
    )
    for store, load, before, after in itertools.product(stores, loads, fences, fences):
        body = FLAG.format(before=before, store=store, load=load, after=after)
        if (before or "release" in store) and (after or "acquire" in load):
            assert words(body, threads=1, grid=(2, 1, 1), lanes=32)[0] == 105, body
        else:
            finding(body, "race", threads=1, grid=(2, 1, 1), lanes=32)


def test_what_writes_a_flag_alone_acquires_nothing() -> None:
    body = FLAG.format(before="", store=".release.gpu", load=".acquire.gpu", after="")
    finding(
        body.replace(
            "ld.acquire.gpu.global.u32 %r4, [%rd1+68];",
            "mov.u32 %r4, 1; st.release.gpu.global.u32 [%rd1+68], 1; fence.acq_rel.gpu;",
        ),
        "race",
        threads=1,
        grid=(2, 1, 1),
        lanes=32,
    )
    finding(body.replace("ld.acquire.gpu", "ld.weak"), "race", threads=1, grid=(2, 1, 1), lanes=32)


def test_atomics_and_plain_accesses() -> None:
    """Atomics race with plain accesses of other threads, not with each other or with strong loads."""
    plain = "setp.eq.u32 %p1, %r1, 0; @%p1 st.global.u32 [%rd1], 7; @!%p1 {} [%rd1], 1;"
    assert "a write of 4 bytes" in finding(plain.format("red.global.add.u32"), "race").message
    assert "a write of 8 bytes" in finding(plain.format("red.global.add.u64"), "race").message
    both = "red.global.add.u32 [%rd1+128], 1; {} %r2, [%rd1+128];"
    assert words(both.format("ld.relaxed.gpu.global.u32"), 33)[32] == 32
    assert words(both.format("ld.volatile.global.u32"), 33)[32] == 32
    message = finding(both.format("ld.global.u32"), "race", 33).message
    assert "a read of 4 bytes" in message and "an atomic write by block (0, 0, 0), thread (" in message
    other = "{} %r2, [%rd1+128]; red.global.add.u32 [%rd1+128], 1;"
    words(other.format("ld.relaxed.gpu.global.u32"), 33)
    message = finding(other.format("ld.global.u32"), "race", 33).message
    assert (
        "a write of 4 bytes" in message
        and "a read by block (0, 0, 0), thread (31, 0, 0) and others, with no barrier" in message
    )
    strong_read = "setp.eq.u32 %p1, %r1, 0; @%p1 st.global.u32 [%rd1], 7; @!%p1 ld.relaxed.gpu.global.u32 %r2, [%rd1];"
    assert "a read of 4 bytes" in finding(strong_read, "race").message
    mixed = "setp.eq.u32 %p1, %r1, 0; @%p1 ld.global.u32 %r2, [%rd1+128]; @!%p1 ld.relaxed.gpu.global.u32 %r2, [%rd1+128]; red.global.add.u32 [%rd1+128], 1;"
    finding(mixed, "race", 33)


def test_collisions_of_vectors() -> None:
    """Two lanes that write different values to one place at once; the same values are no race."""
    body = "setp.lt.u32 %p1, %r1, 30; @%p1 bra E; mov.u32 %r2, 5; st.global.v2.u32 [%rd1], {%r2, VALUE};\nE: ret;"
    message = finding(body.replace("VALUE", "%r1"), "race").message
    assert (
        message
        == f"race: a write of 8 bytes at address {GLOBAL_BASE:#x} (byte 0 of allocation 1), to which block (0, 0, 0), thread (31, 0, 0) writes another value at once"
    )
    assert words(body.replace("VALUE", "%r2"))[:2].tolist() == [5, 5]
    three = "min.u32 %r3, %r1, 2; st.global.u32 [%rd1], %r3;"  # of lanes 0 to 2 the last one's value stays
    assert "to which block (0, 0, 0), thread (2, 0, 0) writes" in finding(three, "race", threads=3).message


# -- what is said of wrong accesses
OUTSIDE = [
    ("ld.global.u32 %r2, [g+256];", "4 bytes at {g256} are in no allocation of global memory: 240 bytes past the end of g, 16 bytes at {g}"),
    ("ld.const.u32 %r2, [%rd1];", "4 bytes at {o} are in no allocation of const memory: -128 bytes past the end of allocation 1, 128 bytes at {o}"),
    ("mov.u64 %rd3, c; st.global.u32 [%rd3], 1;", None),
    ("ld.local.u32 %r2, [0];", "4 bytes at local address 0x0 are outside its 0 bytes of local memory"),
    (".local .b8 l[4]; ld.local.u32 %r2, [l+16];", "4 bytes at local address 0x10 are outside its 16 bytes of local memory"),
    ("ld.param.u32 %r2, [O+8];", "4 bytes at param address 0x8 are outside its 8 bytes of param memory"),
    ("mov.u64 %rd3, 0; ld.shared.u64 %rd4, [%rd3+120]; ld.shared.u32 %r2, [%rd3+128];", "8 bytes at shared address 120 (no variable): they are in no variable"),
    ("ld.shared.u32 %r2, [128];", "4 bytes at shared address 0x80 are outside its 128 bytes of shared memory"),
    ("mov.u64 %rd3, 0; cvta.shared.u64 %rd4, %rd3; ld.global.u32 %r2, [%rd4+8];", "4 bytes at 0x100000008 are in no allocation of global memory: a generic address of shared memory, offset 8"),
    ("mov.u64 %rd3, 0; cvta.param.u64 %rd4, %rd3; ld.global.u32 %r2, [%rd4];", "4 bytes at 0x300000000 are in no allocation of global memory: a generic address of param memory, offset 0"),
    ("ld.global.u32 %r2, [4294967292];", "4 bytes at 0xfffffffc are in no allocation of global memory: perhaps an offset into shared or local memory"),
    ("mov.u64 %rd3, 0x400000000; ld.global.u32 %r2, [%rd3];", "4 bytes at 0x400000000 are in no allocation of global memory: before all allocations"),
    ("ld.global.u32 %r2, [0];", "4 bytes at 0x0 are in no allocation of global memory: a null pointer"),
]  # fmt: skip


def test_accesses_outside() -> None:
    variables = ".const .align 4 .u32 c[4] = {1, 2, 3, 4}; .global .align 4 .u32 g[4];"
    step = 4096 + 256
    g, o = GLOBAL_BASE + step, GLOBAL_BASE + 2 * step
    for body, want in OUTSIDE:
        if want is None:
            assert finding(body, "read-only", variables=variables).message == "a write to c, which is constant"
            continue
        want = want.format(g=hex(g), g256=hex(g + 256), o=hex(o))
        assert finding(body, "bounds", variables=variables).message == want, body


def test_memory_of_a_device() -> None:
    memory = GlobalMemory(1000)
    first = memory.alloc(0, "nothing")
    second = memory.alloc(1000, "all")
    assert memory.find(first.base, 0) == (first, 0) and memory.used == 1000 and memory.stores() == [first, second]
    with pytest.raises(LightNetError, match="out of memory: 1 bytes more than the 1000 in use pass 1000"):
        memory.alloc(1, "more")
    with pytest.raises(LightNetError, match="out of memory: -1 bytes"):
        memory.alloc(-1, "less")
    with pytest.raises(LightNetError, match="is no allocation"):
        memory.free(second.base + 1)
    memory.free(second.base)
    assert (
        memory.used == 0
        and memory.near(second.base + 999) == f"inside 1000 bytes at {second.base:#x} that were given back"
    )
    assert (
        memory.near(second.base + 1000)
        == f"{second.base + 1000 - first.base} bytes past the end of nothing, 0 bytes at {first.base:#x}"
    )
    memory.free(first.base)
    assert memory.near(first.base) == f"inside 0 bytes at {first.base:#x} that were given back"
    assert memory.near(second.base + 1000) == "before all allocations" and memory.stores() == []
    with pytest.raises(LightNetError, match="was given back already"):
        memory.free(first.base)


def test_variables_of_a_module_stay() -> None:
    device = Emulator()
    module = device.load(kernel("ld.global.u32 %r2, [g]; st.global.u32 [%rd2], %r2;", variables=".global .u32 g[4];"))
    with pytest.raises(LightNetError, match=f"address {module.variables[0]:#x} is a variable of a module"):
        device.free(module.variables[0])
    address = device.alloc(4)
    device.free(address)


def test_epochs_start_again() -> None:
    """After the largest epoch the records of accesses are forgotten: a launch finds no race with an older one."""
    device = Emulator()
    function = device.load(kernel("bar.sync 0; st.global.u32 [%rd2], %r1;")).function("k")
    address = device.alloc(128)
    launch = DeviceLaunch(function, (1, 1, 1), (32, 1, 1), 0, (address,))
    device.launch(launch)
    assert device._epoch == 3
    store = device.memory.at(address)
    old = store.races
    device._epoch = races.MAX_EPOCH
    device.launch(launch)
    assert device._epoch == races.MAX_EPOCH + 2 and store.races is old
    device.launch(launch)
    assert device._epoch == 3 and store.races is not old


def test_without_checks_copies_land() -> None:
    body = ".shared .align 16 .b8 s[512]; mov.u32 %r2, s; mad.lo.u32 %r3, %r1, 4, %r2; cp.async.ca.shared.global [%r3], [%rd2], 4; cp.async.wait_all; ld.shared.u32 %r4, [%r3]; add.u32 %r4, %r4, %r1; st.global.u32 [%rd2], %r4;"
    for check in (True, False):
        assert (words(body, check=check) == T).all()


def test_a_register_is_seen_by_a_trace() -> None:
    seen = []

    def trace(batch) -> None:
        seen.append((batch.register("%r7"), batch.register("%r2")))
        assert batch.register("%none") is None

    words("mov.u32 %r2, 9; mov.u32 %r7, 5;", trace=trace)
    assert seen[0] == (None, None) and seen[-1][0].tolist() == [5] * 32 and seen[-1][1].tolist() == [9] * 32


def test_warps_that_are_complete_beside_one_that_is_not() -> None:
    """Of 48 threads those of the first warp multiply."""
    body = """mov.u32 %r2, 0; mov.f32 %f1, 0f3F800000; setp.ge.u32 %p1, %r1, 32; @%p1 bra E;
        mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1, %f2, %f3, %f4}, {%r2, %r2, %r2, %r2}, {%r2, %r2}, {%f1, %f1, %f1, %f1};
        E: st.global.f32 [%rd2], %f1;"""
    assert (words(body, 48, 48).view(np.float32) == 1).all()


# -- rows of comparisons that `test_every_comparison` leaves out
def test_tests_of_floats() -> None:
    rows = comparisons.table()
    for kind, dtype in (("f32", np.float32), ("f64", np.float64)):
        tiny = np.finfo(dtype).tiny
        x = np.array([0, -0.0, 1, tiny, -tiny, tiny / 2, -tiny / 2, np.inf, -np.inf, np.nan], dtype)
        number, finite = ~np.isnan(x), np.array([1] * 7 + [0] * 3, bool)
        small = np.array([0, 0, 0, 0, 0, 1, 1, 0, 0, 0], bool)
        want = {
            "finite": finite,
            "infinite": ~finite & number,
            "number": number,
            "notanumber": ~number,
            "subnormal": small,
        }
        want["normal"] = np.array([0, 0, 1, 1, 1, 0, 0, 0, 0, 0], bool)
        assert {n for n in rows if n.startswith("testp") and n.endswith(kind)} == {f"testp.{n}.{kind}" for n in want}
        for name, expected in want.items():
            row = rows[f"testp.{name}.{kind}"]
            assert (row.dest, row.sources, row.fn(x).tolist()) == ("pred", (kind,), expected.tolist()), name


def test_selections_and_packed_comparisons() -> None:
    rows = comparisons.table()
    kinds = {"b16", "b32", "b64", "s16", "s32", "s64", "u16", "u32", "u64", "f16", "f32", "f64"}
    assert {n.removeprefix("selp.") for n in rows if n.startswith("selp")} == kinds
    for kind in kinds:
        row = rows[f"selp.{kind}"]
        assert (row.dest, row.sources) == (kind, (kind, kind, "pred"))
        assert row.fn(np.array([1, 2]), np.array([3, 4]), np.array([True, False])).tolist() == [1, 4]
    a, b = np.array([1, np.nan, 2, 0], np.float16), np.array([2, 1, 2, -0.0], np.float16)
    wide = [(x.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16) for x in (a, b)]
    for name, fn in comparisons.float_comparisons().items():
        want = np.asarray(fn(a, b)).reshape(-1, 2).T.tolist()
        for kind, (x, y) in (("f16x2", (a, b)), ("bf16x2", wide)):
            row = rows[f"setp.{name}.{kind}"]
            assert (row.dest, row.sources) == ("pred", ("b32", "b32"))
            assert row.fn(x.view(np.uint32), y.view(np.uint32)).tolist() == want, name


@pytest.mark.parametrize("count, cells", [(1, 1), (32, 1), (32, 2), (32, 5), (64, 1000), (1000, 40)])
def test_lanes_of_an_atomic_take_as_few_turns_as_they_can(count: int, cells: int) -> None:
    """Each lane has one turn, each turn names a cell once, those of a cell come in the order of lanes, and there are as
    many turns as the cell with the most lanes needs."""
    rng = np.random.default_rng(count + cells)
    for at in (rng.integers(0, cells, count), np.sort(rng.integers(0, cells, count)), np.arange(count) % cells):
        turns = [turn.tolist() for turn in atomics._turns(at)]
        assert sorted(lane for turn in turns for lane in turn) == list(range(count))
        assert all(len(set(at[turn].tolist())) == len(turn) for turn in turns)
        for cell in set(at.tolist()):
            assert [lane for turn in turns for lane in turn if at[lane] == cell] == np.nonzero(at == cell)[0].tolist()
        assert len(turns) == np.bincount(at).max()


def _is_ordered(old: tuple[int, ...], new: tuple[int, ...], shared: bool) -> bool:
    """Whether a barrier lies between accesses `(block, thread, epoch, clock of the warp)`, or one thread makes both."""
    if old[:2] == new[:2]:
        return True
    near = old[1] // 32 == new[1] // 32
    return old[0] == new[0] and (old[2] < new[2] or (shared and near and old[3] < new[3]))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("strong", [False, True])
def test_the_first_race_is_found(shared: bool, strong: bool) -> None:
    """By stamps as by comparing each access with all before it. With `strong`, reads of both kinds come before strong
    writes, which race with reads that are not; what the last access of all alone would decide is left out."""
    rng = np.random.default_rng(shared + 2 * strong)
    raced = 0
    for _ in range(300):
        table = races.Races(8, 4, shared)
        table.begin(1)
        epochs, clocks, reads, writes = [1, 1], {}, [], []
        for _ in range(12):
            kind = int(rng.integers(8))
            block, thread = 0 if shared else int(rng.integers(2)), int(rng.choice([0, 1, 32, 33]))
            warp = block, thread // 32
            if kind == 0:
                epochs[block] += 1
            elif kind == 1:
                clocks[warp] = clocks.get(warp, 0) + 1
            if kind < 2:
                continue
            access = block, thread, epochs[block], clocks.get(warp, 0)
            stamp = epochs[block] << races.EPOCH_SHIFT | (access[3] if shared else block) << 10 | thread
            where, stamps = np.array([0]), np.array([stamp], np.int64)
            if kind < 6:
                is_strong = strong and kind < 4
                found = table.read(where, 8, stamps, is_strong)
                against = [("write", w) for w in writes]
                reads.append((access, is_strong))
            else:
                others = [(r, s) for r, s in reads if not _is_ordered(r, access, shared)]
                found = table.write(where, 8, stamps, strong, lambda granule: np.array([False, False]))
                if strong:
                    if others and any(s for _, s in reads) and not all(s for _, s in reads):
                        wanted = any(not s for _, s in others)
                        assert found is not None or not wanted
                    else:
                        assert (found is not None) == any(not s for _, s in others)
                    break
                against = [("write", w) for w in writes] + [("read", r) for r, _ in others]
                writes.append(access)
            wanted = next((kind for kind, a in against if not _is_ordered(a, access, shared)), None)
            assert (found.kind if found is not None else None) == wanted
            if found is not None:
                raced += 1
                break
    assert strong or raced > 50
