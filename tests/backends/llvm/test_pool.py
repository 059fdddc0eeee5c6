"""The pool of threads by itself: who runs a body, barriers in both ways of sleeping, forks, signals, the floating-point mode."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

from lightnet.backends.llvm import pool
from lightnet.backends.llvm.jit import CodeMachine, Compiler, compile_module
from lightnet.ir.context import make_context
from lightnet.ir.parser import parse_mlir
from lightnet.runtime.arrays import aligned
from lightnet.runtime.native import NativeCode
from lightnet.runtime.pool import COUNT_ENTRY, POOL_ENTRY
from lightnet.runtime.threads import MAX_THREADS

LENET = Path(__file__).parents[3] / "examples" / "nets" / "lenet.net"
P, I64 = ctypes.c_void_p, ctypes.c_int64
BODY = ctypes.CFUNCTYPE(None, P, I64, I64, P, P)
RUN = ctypes.CFUNCTYPE(None, P, P, I64, I64)

# @meet: `rounds` (at the second word of the frame) times, writes the round into its cell of the array at the first, waits, and counts in cell 512 + thread the rounds in
# which the next thread's cell holds another one; waits again. Alone it does nothing.
TEXT = """
define void @meet(ptr %frame, i64 %thread, i64 %threads, ptr %barrier, ptr %scratch) {
entry:
  %arena = load ptr, ptr %frame
  %second = getelementptr ptr, ptr %frame, i64 1
  %static = load ptr, ptr %second
  %alone = icmp eq ptr %barrier, null
  br i1 %alone, label %done, label %begin
begin:
  %wait = load ptr, ptr %barrier
  %rounds = load i64, ptr %static
  %mine = getelementptr i64, ptr %arena, i64 %thread
  %t1 = add i64 %thread, 1
  %next = urem i64 %t1, %threads
  %other = getelementptr i64, ptr %arena, i64 %next
  %e = add i64 %thread, 512
  %wrong = getelementptr i64, ptr %arena, i64 %e
  br label %loop
loop:
  %k = phi i64 [ 1, %begin ], [ %k1, %loop ]
  store i64 %k, ptr %mine
  call void %wait(ptr %barrier)
  %v = load i64, ptr %other
  %bad = icmp ne i64 %v, %k
  %b = zext i1 %bad to i64
  %w = load i64, ptr %wrong
  %w1 = add i64 %w, %b
  store i64 %w1, ptr %wrong
  call void %wait(ptr %barrier)
  %k1 = add i64 %k, 1
  %more = icmp ule i64 %k1, %rounds
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


def built(futex: bool, is_patient: bool = True) -> NativeCode:
    """A pool of its own, which stays loaded, as its workers do."""
    machine = CodeMachine.host()
    with pytest.MonkeyPatch.context() as patch:
        if not futex:
            patch.setattr(pool, "_FUTEX", {})  # as on systems whose calls it does not know
        text = pool.pool_text(llvm.get_default_triple(), is_patient)
    assert ("@syscall" in text) == futex
    compiler = Compiler(machine)
    code = NativeCode([compiler.run(text, False, True), compiler.run(TEXT, False, True)])
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(code))
    return code


@pytest.fixture(scope="module", params=["futex", "condition"])
def code(request) -> NativeCode:
    if request.param == "futex" and platform.system() != "Linux":
        pytest.skip("futexes are Linux's")
    return built(request.param == "futex")


@pytest.fixture
def run(code):
    return RUN(code.address(POOL_ENTRY))


def call_meet(code, run, cells: np.ndarray, count: np.ndarray, threads: int) -> None:
    frame = np.array([cells.ctypes.data, count.ctypes.data], np.uint64)
    run(code.address("meet"), frame.ctypes.data, threads, 0)


def meets(code, run, threads: int, rounds: int) -> int:
    """Rounds in which some thread did not see what its neighbour wrote before the barrier."""
    cells = np.zeros(1024, np.int64)
    count = np.array([rounds], np.int64)
    call_meet(code, run, cells, count, threads)
    assert (cells[: min(threads, MAX_THREADS)] == rounds).all() or threads == 1
    return int(cells[512:].sum())


@pytest.mark.parametrize("threads, rounds", [(1, 10), (2, 3000), (3, 300), (8, 100)])
def test_barriers(code, run, threads, rounds):
    assert meets(code, run, threads, rounds) == 0


def test_workers_that_sleep_are_woken(code, run):
    for _ in range(5):
        assert meets(code, run, 2, 10) == 0
        time.sleep(0.02)  # longer than they spin


class Recorder:
    """A body in Python: who ran it."""

    def __init__(self, act=lambda thread: None):
        self.ran: list[tuple[int, int, bool, int]] = []
        self.scratch: dict[int, int] = {}
        self.function = BODY(self._body)
        self.act, self.errors = act, []

    def _body(self, frame, thread, threads, barrier, scratch):
        try:
            self.scratch[thread] = scratch
            self.ran.append((thread, threads, barrier is not None, threading.get_native_id()))
            self.act(thread)
        except Exception as e:
            self.errors.append(e)

    def __call__(self, run, threads: int, scratch: int = 0) -> list[tuple[int, int, bool, int]]:
        self.ran.clear(), self.scratch.clear()
        run(ctypes.cast(self.function, P), None, threads, scratch)
        assert not self.errors
        return sorted(self.ran)


def test_each_thread_runs_the_body_once(run):
    body = Recorder()
    for threads in (1, 2, 4, 3, 1):
        ran = body(run, threads)
        assert [r[:3] for r in ran] == [(t, threads, threads > 1) for t in range(threads)]
        assert len({r[3] for r in ran}) == threads
        assert ran[0][3] == threading.get_native_id()
    assert [r[:3] for r in body(run, 0)] == [(0, 1, False)] == [r[:3] for r in body(run, -5)]
    first, again = body(run, 4), body(run, 4)
    assert {r[3] for r in first} == {r[3] for r in again}  # the same workers


def test_scratch_of_workers(run):
    """Theirs alone, as large as was asked for, at pairs of cache lines; and the same memory again as long as it is large enough."""
    body, last = Recorder(), {}
    for threads, scratch in ((2, 0), (2, 1), (4, 1000), (3, 1000), (2, 2048), (4, 100_000), (5, 100_000), (3, 64)):

        def fill(thread, scratch=scratch):
            if thread and scratch:
                ctypes.memset(body.scratch[thread], thread, scratch)

        body.act = fill
        assert len(body(run, threads, scratch)) == threads
        assert body.scratch[0] is None
        for thread in range(1, threads) if scratch else ():
            at = body.scratch[thread]
            assert at % pool.PAIR == 0 and ctypes.string_at(at, scratch) == bytes([thread]) * scratch
            assert at == body.scratch[1] + (thread - 1) * pool.scratch_stride(scratch)
        last[threads, scratch] = body.scratch[1] if scratch else None
    assert last[4, 1000] == last[3, 1000] == last[2, 2048]
    assert last[5, 100_000] == last[3, 64]


@pytest.mark.parametrize("scratch", [1 << 62, (1 << 63) - 1, 1 << 56])
def test_who_gets_no_scratch_runs_alone(run, scratch):
    body = Recorder()
    for _ in range(2):
        assert [r[:3] for r in body(run, 3, scratch)] == [(0, 1, False)]
        assert len(body(run, 3, 1 << 10)) == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_child_has_scratch_of_its_own(run):
    """It may use, enlarge and free what its parent's workers had; the parent's is as it was."""
    body = Recorder()
    body(run, 3, 4096)
    at = body.scratch[1]
    ctypes.memset(at, 1, 4096)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        body.act = lambda thread: thread and ctypes.memset(body.scratch[thread], 2, 4096)
        fine = len(body(run, 3, 4096)) == 3 and len(body(run, 4, 1 << 22)) == 4
        os._exit(0 if fine else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert ctypes.string_at(at, 4096) == b"\1" * 4096
    body(run, 3, 4096)
    assert body.scratch[1] == at


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="has no affinities")
def test_processors(code):
    """Those of the thread that asks, now."""
    count = ctypes.CFUNCTYPE(I64)(code.address(COUNT_ENTRY))
    there = os.sched_getaffinity(0)
    assert count() == len(there)
    try:
        os.sched_setaffinity(0, {min(there)})
        assert count() == 1
    finally:
        os.sched_setaffinity(0, there)


#: Each block notes what stands in the scratch that it has: a launch for two threads, behind it one for thread 0.
NOTES = """
func.func @note(%lo: index, %hi: index, %o: memref<7xi32>, %s: memref<16xi32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %block = %lo to %hi step %c1 {
    %piece = memref.load %s[%c0] : memref<16xi32>
    memref.store %piece, %o[%block] : memref<7xi32>
  }
  func.return
}
func.func @main() {
  tile.launch @note grid 7 threads 2 scratch 64 [arena+0, arena+128]
  tile.launch @note grid 7 scratch 64 [arena+64, arena+128]
  func.return
}"""


@pytest.mark.parametrize("threads, first", [(1, 7), (2, 3), (3, 3)])
def test_blocks_of_a_launch_run_on_its_threads(run, threads, first):
    """That results are equal shows no second thread: the scratch that a block had says which share of the grid it was in, and the
    body which thread of the system took that share."""
    native = compile_module(parse_mlir(make_context(), NOTES, "notes"))
    assert (native.emitted.threads, native.emitted.scratch) == (2, 64)
    arena, ran = aligned(192).view(np.int32), {}
    arena[:] = 0
    arena[32:48] = 10  # the scratch of the first thread
    body = BODY(native.code.address("ln_body"))

    @BODY
    def noted(frame, thread, threads, barrier, scratch):
        ran[thread] = threading.get_native_id()
        assert (scratch is None) == (thread == 0)
        if thread:
            ctypes.c_int32.from_address(scratch).value = 20
        body(frame, thread, threads, barrier, scratch)

    frame = np.array([arena.ctypes.data, 0, 0], np.uint64)
    run(ctypes.cast(noted, P), frame.ctypes.data, threads, 64)
    assert sorted(ran) == list(range(threads)) and len(set(ran.values())) == threads
    assert arena[:7].tolist() == [10] * first + [20] * (7 - first)
    assert arena[16:23].tolist() == [10] * 7


@pytest.mark.parametrize("futex", [True, False])
@pytest.mark.parametrize("cycles", [1 << 10, 1 << 24])
def test_who_does_not_come_is_not_waited_for(futex, cycles, monkeypatch):
    """As many threads as came, numbered without gaps, each once: whether workers spin, sleep, are made just now, or come late to a
    gate that is that of another run, with other threads."""
    if futex and platform.system() != "Linux":
        pytest.skip("futexes are Linux's")
    monkeypatch.setattr(pool, "PATIENCE", (cycles, cycles, cycles))
    code = built(futex, is_patient=False)
    run, body, counts = RUN(code.address(POOL_ENTRY)), Recorder(), set()
    for k in range(200):
        ran = body(run, threads := (2, 5, 3, 2)[k % 4])
        count = len(ran)
        assert [r[:3] for r in ran] == [(t, count, count > 1) for t in range(count)] and count <= threads
        assert len({r[3] for r in ran}) == count and ran[0][3] == threading.get_native_id()
        counts.add(count)
        if k % 16 == 0:
            time.sleep(0.003)  # they fall asleep
    assert cycles == 1 << 10 or max(counts) > 1


def test_who_finds_the_pool_in_use_runs_alone(run):
    inner, seen = Recorder(), []
    outer = Recorder(lambda thread: seen.append([r[:3] for r in inner(run, 2)]) if thread == 0 else None)
    assert len(outer(run, 2)) == 2
    assert seen == [[(0, 1, False)]]
    assert len(inner(run, 2)) == 2  # and it is free again


def test_workers_take_no_signals(run):
    blocked: dict[int, set] = {}
    body = Recorder(lambda thread: blocked.setdefault(thread, signal.pthread_sigmask(signal.SIG_BLOCK, [])))
    body(run, 2)
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGALRM} <= blocked[1]
    assert signal.SIGINT not in blocked[0]


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="sets the mode as x86 does")
def test_workers_compute_in_the_callers_mode(code, run):
    """Denormals are zero where the caller says so."""
    text = """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
define void @modes(ptr %arena, i64 %thread, i64 %threads, ptr %barrier, ptr %scratch) {
  %p = getelementptr i32, ptr %arena, i64 %thread
  call void @llvm.x86.sse.stmxcsr(ptr %p)
  ret void
}
define void @set(ptr %mode) {
  call void @llvm.x86.sse.ldmxcsr(ptr %mode)
  ret void
}
"""
    helper = NativeCode([Compiler(CodeMachine.host()).run(text, False, True)])
    change = ctypes.CFUNCTYPE(None, P)(helper.address("set"))
    for mode in (0x1F80 | 0x8040, 0x1F80):  # flush to zero and denormals are zero; the default
        seen, wanted = np.zeros(4, np.uint32), np.array([mode], np.uint32)
        change(wanted.ctypes.data)
        run(helper.address("modes"), seen.ctypes.data, 3, 0)
        change(np.array([0x1F80], np.uint32).ctypes.data)
        assert (seen[:3] & ~np.uint32(0x3F) == mode & ~0x3F).all()  # flags of past exceptions left out


def test_callers_on_several_threads(code, run):
    """Nobody waits for the pool, and nobody's job is another's."""
    results: list[int] = []

    def calls() -> None:
        results.extend(meets(code, run, 2, 20) for _ in range(50))

    def meets(code, run, threads, rounds) -> int:
        cells, count = np.zeros(1024, np.int64), np.array([rounds], np.int64)
        call_meet(code, run, cells, count, threads)
        return int(cells[512:].sum()) + int(cells[0] not in (0, rounds)) + int(cells[0] != cells[1])

    callers = [threading.Thread(target=calls) for _ in range(4)]
    for c in callers:
        c.start()
    for c in callers:
        c.join()
    assert results == [0] * 200


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_child_has_a_pool_of_its_own(code, run):
    """After a fork: from the thread that used it, and while another thread is in the middle of a run."""
    body = Recorder()
    parents = {r[3] for r in body(run, 3)}
    stop, busy = threading.Event(), threading.Event()
    outer = Recorder(lambda thread: (busy.set(), stop.wait(10)) if thread == 0 else None)
    caller = threading.Thread(target=lambda: outer(run, 2))
    for running in (False, True):
        if running:
            caller.start()
            assert busy.wait(10)
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            ran = body(run, 3)
            fine = len(ran) == 3 and not {r[3] for r in ran[1:]} & parents and meets(code, run, 3, 50) == 0
            os._exit(0 if fine else 1)
        assert os.waitpid(child, 0)[1] == 0
    stop.set()
    caller.join()
    assert len(body(run, 3)) == 3  # the parent's is as it was


def test_the_text_is_code_for_other_systems():
    """Cross-compiled, and not run."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    for triple in (
        "aarch64-unknown-linux-gnu",
        "arm64-apple-darwin",
        "x86_64-apple-darwin",
        "riscv64-unknown-linux-gnu",
    ):
        module = llvm.parse_assembly(pool.pool_text(triple))
        module.verify()
        target = llvm.Target.from_triple(triple).create_target_machine(reloc="pic", codemodel="small")
        assert target.emit_object(module)


def test_a_process_ends_while_workers_spin():
    script = (
        f"NET = {str(LENET)!r}"
        + """
import threading, lightnet
e = lightnet.compile(NET, threads=2)
def forever():
    while True: e()
threading.Thread(target=forever, daemon=True).start()
for _ in range(200): e()
"""
    )
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
