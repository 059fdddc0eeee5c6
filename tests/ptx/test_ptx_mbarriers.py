"""What mbarriers order among the threads of a block, without copies; and what is said of those that are used wrongly."""

from __future__ import annotations

import numpy as np
from test_ptx_machine import finding, words

HERE = {"arch": "sm_90a"}
#: An mbarrier m of so many arrivals, which all threads see; s holds words.
HEAD = """.shared .align 8 .b64 m[80]; .shared .align 4 .b32 s[64]; setp.eq.u32 %p1, %r1, 0;
    @%p1 mbarrier.init.shared.b64 [m], {count}; @%p1 mbarrier.init.shared.b64 [m+8], 1; @%p1 fence.mbarrier_init.release.cluster; @%p1 st.shared.u32 [s+4], 0; bar.sync 0;
    setp.lt.u32 %p2, %r1, 32;"""
WAIT = "{0}: mbarrier.try_wait.parity.shared.b64 %p3, [m], 0; @!%p3 bra {0};"
ARRIVE = "mbarrier.arrive.shared.b64 _, [m];"


def body(text: str, count: int = 1) -> str:
    return HEAD.format(count=count) + text


def test_a_store_before_an_arrival_lies_before_a_load_behind_the_wait() -> None:
    send = "@!%p2 bra READ; @%p1 st.shared.u32 [s], 5; @%p1 {0} ret; READ: {1} ld.shared.u32 %r2, [s]; st.global.u32 [%rd2], %r2;"
    assert words(body(send.format(ARRIVE, WAIT.format("W"))), 64, 64, **HERE).tolist() == [0] * 32 + [5] * 32
    late = f"@!%p2 bra READ; @%p1 {ARRIVE} @%p1 st.shared.u32 [s], 5; ret; READ: {WAIT.format('W')} ld.shared.u32 %r2, [s]; st.global.u32 [%rd2], %r2;"
    error = finding(body(late), "race", 64, 64, **HERE)
    assert (
        "a read of 4 bytes" in error.message
        and "a write by block (0, 0, 0), thread (0, 0, 0), with no barrier between" in error.message
    )


def test_loads_before_arrivals_lie_before_a_store_behind_the_wait() -> None:
    """Of all warps that read: one that has not arrived may still."""
    every = f"ld.shared.u32 %r2, [s+4]; {{}} {ARRIVE} @!%p1 bra E; {WAIT.format('W')} st.shared.u32 [s+4], 7; E: st.global.u32 [%rd2], %r2;"
    assert words(body(every.format(""), 96), 96, 96, **HERE).tolist() == [0] * 96
    two = every.format("setp.ge.u32 %p4, %r1, 64; @%p4 bra E;")
    error = finding(body(two, 64), "race", 96, 96, **HERE)
    where = "a write of 4 bytes at shared address 660 (s+4)"
    assert (
        error.message
        == f"race: {where} and a read by block (0, 0, 0), thread (95, 0, 0) and others, with no barrier between"
    )


def test_atomics_need_no_order() -> None:
    all_ = f"atom.shared.add.u32 %r2, [s+4], 1; {ARRIVE} {WAIT.format('W')} ld.shared.u32 %r3, [s+4]; st.global.u32 [%rd2], %r3;"
    assert words(body(all_, 64), 64, 64, **HERE).tolist() == [64] * 64


def test_barriers_of_a_part_of_a_block() -> None:
    """Two of three warps exchange by a barrier of their own, in a kernel with mbarriers."""
    part = "setp.ge.u32 %p4, %r1, 64; @%p4 bra E; mov.u32 %r2, s; shl.b32 %r3, %r1, 2; add.u32 %r4, %r2, %r3; st.shared.u32 [%r4], %r1; {} xor.b32 %r3, %r3, 252; and.b32 %r3, %r3, 255; add.u32 %r4, %r2, %r3; ld.shared.u32 %r5, [%r4]; st.global.u32 [%rd2], %r5;\nE: ret;"
    assert words(body(part.format("bar.sync 1, 64;")), 96, 96, **HERE).tolist() == [*range(63, -1, -1), *[0] * 32]
    finding(body(part.format("")), "race", 96, 96, **HERE)


def test_lanes_that_wait_for_different_mbarriers() -> None:
    """Those whose phase has ended go on, and let the others go."""
    split = f"""@%p1 mbarrier.arrive.shared.b64 _, [m+8]; bar.warp.sync -1; mov.u32 %r2, m; setp.ge.u32 %p4, %r1, 16; @%p4 add.u32 %r2, %r2, 8;
        W: mbarrier.try_wait.parity.shared.b64 %p3, [%r2], 0, 1000; @!%p3 bra W; setp.eq.u32 %p5, %r1, 20; @%p5 {ARRIVE} st.global.u32 [%rd2], %r1;"""
    assert words(body(split), **HERE).tolist() == list(range(32))


def test_only_those_wait_whose_phase_has_not_ended() -> None:
    """All lanes ask twice: who waits is told when it goes on."""
    split = f"""@%p1 mbarrier.arrive.shared.b64 _, [m+8]; bar.warp.sync -1; mov.u32 %r2, m; setp.ge.u32 %p4, %r1, 16; @%p4 add.u32 %r2, %r2, 8; mov.u32 %r3, 0;
        L: mbarrier.try_wait.parity.shared.b64 %p3, [%r2], 0; add.u32 %r3, %r3, 1; setp.lt.u32 %p5, %r3, 2; @%p5 bra L; setp.eq.u32 %p5, %r1, 20; @%p5 {ARRIVE}
        selp.u32 %r4, 1, 0, %p3; st.global.u32 [%rd2], %r4;"""
    assert words(body(split), **HERE).tolist() == [1] * 32


def test_fences_of_products_need_warpgroups() -> None:
    for threads in (128, 256):
        words("wgmma.fence.sync.aligned; wgmma.wait_group.sync.aligned 0;", threads, threads, **HERE)
    for text in ("wgmma.fence.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"):
        assert (
            finding(text, "missing-lane", 96, 96, **HERE).message
            == "the block has 96 threads: warpgroups are 128 of them"
        )


def test_an_answer_that_nobody_reads() -> None:
    text = f"@%p1 {ARRIVE} mbarrier.test_wait.parity.shared.b64 _, [m], 0; mbarrier.try_wait.parity.shared.b64 %p3, [m], 0; selp.u32 %r2, 1, 0, %p3; st.global.u32 [%rd2], %r2;"
    assert words(body(text), **HERE).tolist() == [0] * 32  # who asks for the first time is told that it has not ended


def test_parities_alternate_from_the_first_phase_of_each_mbarrier() -> None:
    """Three phases, then made invalid and anew: the first one has parity 0 again."""
    one = (
        "@%p1 mbarrier.arrive.shared.b64 _, [m]; {0}: mbarrier.try_wait.parity.shared.b64 %p3, [m], {1}; @!%p3 bra {0};"
    )
    phases = " ".join(one.format(f"W{i}", i % 2) for i in range(3))
    anew = "bar.sync 0; @%p1 mbarrier.inval.shared.b64 [m]; @%p1 mbarrier.init.shared.b64 [m], 1; @%p1 fence.mbarrier_init.release.cluster; bar.sync 0;"
    text = f"{phases} {anew} {one.format('X', 0)} {one.format('Y', 1)} st.global.u32 [%rd2], %r1;"
    assert words(body(text), 64, 64, **HERE).tolist() == list(range(64))
    error = finding(
        body(f"{phases} {anew} {one.format('X', 1)} {one.format('Y', 1)}{one.format('Z', 1)}"),
        "mbarrier",
        64,
        64,
        **HERE,
    )
    assert (
        error.message
        == "deadlock: 64 threads wait for parity 1 of the mbarrier at shared address 0 (m+0): its phase 1 waits for 1 of 1 arrivals and 0 bytes"
    )


WRONG = [
    ("@%p1 mbarrier.init.shared.b64 [m+16], 0;", "mbarrier", "an mbarrier of 0 arrivals: 1 to 1048575"),
    ("@%p1 mbarrier.init.shared.b64 [m+16], 1048576;", "mbarrier", "an mbarrier of 1048576 arrivals: 1 to 1048575"),
    ("@%p1 mbarrier.init.shared.b64 [m], 1;", "mbarrier", "the mbarrier at shared address 0 (m+0) is there already, and was not made invalid"),
    (f"@%p1 {ARRIVE.replace('[m]', '[m], 2')}", "mbarrier", "arrives 2 times at the mbarrier at shared address 0 (m+0): its phase 0 waits for 1 of 1 arrivals and 0 bytes"),
    (f"@%p1 {ARRIVE.replace('[m]', '[m], 0')}", "mbarrier", "arrives 0 times at the mbarrier at shared address 0 (m+0): its phase 0 waits for 1 of 1 arrivals and 0 bytes"),
    (f"@%p1 {ARRIVE.replace('[m]', '[m+16]')}", "mbarrier", "there is no mbarrier at shared address 16 (m+16): mbarrier.init makes one"),
    ("mbarrier.try_wait.parity.shared.b64 %p3, [m], 2;", "mbarrier", "waits for parity 2: a phase has 0 or 1"),
    ("@%p1 mbarrier.expect_tx.shared.b64 [m], 1048576;", "mbarrier", "the mbarrier at shared address 0 (m+0) waits for 1048576 bytes, at most 1048575"),
    ("@%p1 mbarrier.expect_tx.shared.b64 [m], 1048575;", None, ""),
    ("@%p1 ld.shared.u32 %r2, [m];", "mbarrier", "reads 4 bytes at shared address 0 (m+0): it is an mbarrier"),
    ("@%p1 st.shared.u32 [m+4], 1;", "mbarrier", "overwrites 4 bytes at shared address 4 (m+4): it is an mbarrier"),
    ("@%p1 mbarrier.inval.shared.b64 [m];", None, ""),
    (WAIT.format("W"), "mbarrier", "deadlock: 64 threads wait for parity 0 of the mbarrier at shared address 0 (m+0): its phase 0 waits for 1 of 1 arrivals and 0 bytes"),
    ("@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [m], 16; " + WAIT.format("W"), "mbarrier", "deadlock: 64 threads wait for parity 0 of the mbarrier at shared address 0 (m+0): its phase 0 waits for 0 of 1 arrivals and 16 bytes, which no copy brings"),
    (f"@%p2 bra A; {WAIT.format('W')} ret; A: mov.u32 %r2, 0; L: add.u32 %r2, %r2, 1; setp.lt.u32 %p4, %r2, 9; @%p4 bra L; @%p1 mbarrier.inval.shared.b64 [m];", "mbarrier",
     "the mbarrier at shared address 0 (m+0) ends, while copies or threads use it: its phase 0 waits for 1 of 1 arrivals and 0 bytes"),
]  # fmt: skip


def test_what_is_said_of_wrong_uses() -> None:
    for text, label, message in WRONG:
        if label is None:
            words(body(text), 64, 64, **HERE)
            continue
        assert finding(body(text), label, 64, 64, **HERE).message == message, text


def test_so_many_mbarriers() -> None:
    """64 of a block, at different places; a place that is used again counts once."""
    make = "@%p1 mbarrier.init.shared.b64 [m+{0}], 1;"
    many = " ".join(make.format(8 * i) for i in range(2, 64))
    again = "@%p1 mbarrier.inval.shared.b64 [m+16]; " + make.format(16)
    words(body(many + again), **HERE)
    assert (
        finding(body(many + make.format(512)), "limit", **HERE).message
        == "more than 64 mbarriers of a block are not understood"
    )


def test_which_threads_hang() -> None:
    """The others that wait are told, those for the same mbarrier not twice, and of at most eight others."""
    init = " ".join(f"@%p1 mbarrier.init.shared.b64 [m+{8 * i}], 1;" for i in range(2, 12))
    wait = "mov.u32 %r2, m; shr.u32 %r3, %r1, 5; mad.lo.u32 %r2, %r3, 8, %r2; W: mbarrier.try_wait.parity.shared.b64 %p3, [%r2], 0; @!%p3 bra W;"
    for warps in (1, 2, 9, 10, 12):
        text = body(f"{init} @%p1 fence.mbarrier_init.release.cluster; bar.sync 0; {wait}")
        error = finding(text, "mbarrier", 32 * warps, 32 * warps, **HERE)
        notes = [note for _, note in error.notes if "threads wait for" in note]
        assert error.message.startswith("deadlock: 32 threads wait for parity 0 of the mbarrier at shared address 0")
        assert len(notes) == min(warps - 1, 8)
        assert all(
            n.startswith(f"32 threads wait for the mbarrier at shared address {8 * k} (m+{8 * k}): its phase 0")
            for k, n in enumerate(notes, 1)
        )


def test_results_are_those_of_numpy() -> None:
    """A ring of two mbarriers through which two warps hand a counter to and fro."""
    text = """mov.u32 %r2, 0; @%p1 bra A; setp.eq.u32 %p5, %r1, 32; @%p5 bra B; ret;
        A: setp.ge.u32 %p4, %r2, 6; @%p4 ret; ld.shared.u32 %r3, [s+4]; add.u32 %r3, %r3, 3; st.shared.u32 [s+4], %r3; mbarrier.arrive.shared.b64 _, [m]; and.b32 %r4, %r2, 1;
        WA: mbarrier.try_wait.parity.shared.b64 %p3, [m+8], %r4; @!%p3 bra WA; add.u32 %r2, %r2, 1; bra A;
        B: setp.ge.u32 %p4, %r2, 6; @%p4 bra E; and.b32 %r4, %r2, 1;
        WB: mbarrier.try_wait.parity.shared.b64 %p3, [m], %r4; @!%p3 bra WB; ld.shared.u32 %r3, [s+4]; mul.lo.u32 %r3, %r3, 2; st.shared.u32 [s+4], %r3; mbarrier.arrive.shared.b64 _, [m+8]; add.u32 %r2, %r2, 1; bra B;
        E: st.global.u32 [%rd2], %r3;"""
    value = 0
    for _ in range(6):
        value = (value + 3) * 2
    got = words(body(text), 64, 64, **HERE)
    assert got[32] == value and not np.delete(got, 32).any()
