"""The cost of threads: ``python tools/bench_threads.py [--threads 2,3,4] [--seconds S]``.

Nanoseconds of a fork and join (a run of an empty body on the pool), of a barrier, and of a run after the workers fell asleep; loops are
machine code, so that Python does not count. Each figure is the smallest and the median of many rounds that alternate: with other load on
the machine the smallest is what to look at. A row with more threads than processors says what oversubscription costs.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import time

import llvmlite.binding as llvm
from machine import machine

from lightnet.backends.llvm.jit import CodeMachine, Compiler
from lightnet.backends.llvm.pool import pool_text
from lightnet.runtime.native import NativeCode
from lightnet.runtime.pool import POOL_ENTRY

#: Runs and barriers in one round.
TIMES = 200

# @forks(run, threads): that many runs of an empty body. @meets, a body: that many barriers.
TEXT = f"""
define void @empty(ptr %frame, i64 %thread, i64 %threads, ptr %barrier, ptr %scratch) {{
  ret void
}}
define void @forks(ptr %run, i64 %threads) {{
entry:
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %k1, %loop ]
  call void %run(ptr @empty, ptr null, i64 %threads, i64 4096)
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, {TIMES}
  br i1 %more, label %loop, label %done
done:
  ret void
}}
define void @meets(ptr %frame, i64 %thread, i64 %threads, ptr %barrier, ptr %scratch) {{
entry:
  %alone = icmp eq ptr %barrier, null
  br i1 %alone, label %done, label %begin
begin:
  %wait = load ptr, ptr %barrier
  br label %loop
loop:
  %k = phi i64 [ 0, %begin ], [ %k1, %loop ]
  call void %wait(ptr %barrier)
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, {TIMES}
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""


class Bench:
    """The pool and the bodies above, linked into this process."""

    def __init__(self) -> None:
        compiler, pointer = Compiler(CodeMachine.host()), ctypes.c_void_p
        texts = (pool_text(llvm.get_default_triple()), TEXT)
        self.code = NativeCode([compiler.run(text, False, False) for text in texts])
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.code))  # its workers never leave it
        self.address = self.code.address(POOL_ENTRY)
        self.run = ctypes.CFUNCTYPE(None, pointer, pointer, ctypes.c_int64, ctypes.c_int64)(self.address)
        self.forks = ctypes.CFUNCTYPE(None, pointer, ctypes.c_int64)(self.code.address("forks"))
        self.meets, self.empty = self.code.address("meets"), self.code.address("empty")

    def fork_join(self, threads: int) -> float:
        """Seconds of one run of the empty body."""
        self.forks(self.address, threads)  # nobody sleeps now
        return _seconds(lambda: self.forks(self.address, threads)) / TIMES

    def barrier(self, threads: int) -> float:
        """Seconds of one barrier: those of many in a run, less the run."""
        self.forks(self.address, threads)
        spent = _seconds(lambda: self.run(self.meets, None, threads, 4096))
        return spent / TIMES

    def wake(self, threads: int) -> float:
        """Seconds of a run that finds the workers asleep."""
        time.sleep(0.005)
        return _seconds(lambda: self.run(self.empty, None, threads, 4096))


def _seconds(call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parser.add_argument("--threads", default=f"1,2,{cores + 1}", help="numbers of threads (1, 2 and one too many)")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long to measure")
    args = parser.parse_args()
    counts = sorted({int(n) for n in args.threads.split(",")})
    bench = Bench()
    kinds = {"fork and join": bench.fork_join, "barrier": bench.barrier, "run after 5 ms of sleep": bench.wake}
    found: dict[tuple[str, int], list[float]] = {(kind, n): [] for kind in kinds for n in counts}
    end = time.monotonic() + args.seconds
    while time.monotonic() < end or any(len(f) < 5 for f in found.values()):
        for (kind, n), seconds in found.items():
            seconds.append(kinds[kind](n))
    print(machine(), "\n")
    print("| | threads | smallest, us | median, us |\n| --- | --- | --- | --- |")
    for (kind, n), seconds in found.items():
        print(f"| {kind} | {n} | {1e6 * min(seconds):.3f} | {1e6 * statistics.median(seconds):.3f} |")


if __name__ == "__main__":
    main()
