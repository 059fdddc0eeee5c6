"""The pool of threads that compiled networks run on, as LLVM IR text: machine code of its own, one pool a process.

    void ln_pool_run(ptr body, ptr frame, i64 threads, i64 scratch)

calls `body(frame, thread, threads, barrier, scratch)` on so many threads at once and returns when all have: the caller
is thread 0, the others are workers that live as long as the process. Each of these gets `scratch` bytes of memory of
its own (a multiple of 128, where they begin), which means nothing before a run or after it; the caller, who has some of
its own, gets null. A caller that finds the pool in use runs alone (`thread` 0 of 1, `barrier` null): the caller's own
result does not change, and processors are not asked to do more than they can. So it is with workers that are not there
at once, being asleep or kept from their processor by other load: the caller waits for them an eighth of the time that
its last run took, no longer than it takes to wake one, and then runs with those that came.

* A worker waits for its own word to change: it spins, as a network follows the one before at once or not for long; then
  it yields the processor; then it sleeps in the kernel (a futex on Linux, a condition elsewhere). Barriers wait in the
  same way, and hardly spin where there are more threads than processors.
* A run has a *gate*, one word with the number of the run, its threads at most, and those that came. Who comes adds one,
  and has its thread number, or finds the gate closed. The caller closes it, which settles how many they are, and gives
  the sign to begin.
* A barrier counts arrivals; the last one starts a new *generation*, which the others wait for (Mellor-Crummey and
  Scott, "Algorithms for scalable synchronization on shared-memory multiprocessors", 1991, section 3.1, with a counter
  in place of the sense). The end of a run is one more barrier, at which only the caller waits.
* Scratch is one block for all workers, as large as the largest run so far needed for its threads, whatever executable
  that was of. Who runs enlarges it under the lock, when no worker is in a run. Where the system has no memory for it,
  the caller runs alone.
* The lock holds the process number of the one that runs. After a fork the child finds a number that is not its own: it
  takes the lock and makes a pool of its own, the parent's workers not being there.
* Workers block all signals, so that handlers run on the program's own threads, and compute in the caller's
  floating-point mode.

    i64 ln_pool_processors()

is how many processors the calling thread may run on. Its C functions are those of POSIX, which the linker finds in the
process.

The text stands beside this file: `pool.ll`, and a part for the processor (``pool_x86_64.ll`` …), for how threads sleep
(``pool_futex.ll``, ``pool_condition.ll``) and for the system (``pool_linux.ll``, ``pool_posix.ll``). Imports a number
of the runtime.
"""

from __future__ import annotations

from pathlib import Path

from lightnet.runtime.threads import MAX_THREADS

#: Looks at a word before a thread yields its processor (some 0.1 to 0.5 ms), and where there are fewer processors than
#: threads.
SPINS, FEW_SPINS = 1 << 14, 1 << 6
#: Times that a thread yields its processor before it sleeps.
YIELDS = 32
#: Processor cycles that a caller waits for workers: at least, at first, and at most (some 70 us: a worker that sleeps
#: takes 20 to 40); and looks at the gate, where there is no clock to be read.
PATIENCE, LOOKS = (1 << 10, 1 << 16, 1 << 18), 1 << 10
#: Runs between two looks at how many processors there are (and one more than that is a power of two): affinities
#: change.
RECOUNT = 255
#: Bytes of a worker's stack: that of a main thread, as kernels are made for no other.
STACK = 8 << 20

#: Number of the system call `futex`, by architecture.
_FUTEX = {"x86_64": 202, "aarch64": 98, "riscv64": 98}

#: What a worker's scratch is a multiple of, and where it begins: prefetchers fetch cache lines in pairs.
PAIR = 128


def scratch_stride(scratch: int) -> int:
    """Bytes that the pool takes for each worker of a run with so much scratch."""
    return -(-scratch // PAIR) * PAIR


def pool_text(triple: str, is_patient: bool = False) -> str:
    """The pool for a target triple, as LLVM IR. One that `is_patient` waits for all threads, however long that takes
    (for tests)."""
    arch = triple.partition("-")[0]
    arch = {"arm64": "aarch64", "amd64": "x86_64"}.get(arch, arch)
    linux = "linux" in triple
    machine = arch if arch in ("x86_64", "aarch64") else "other"
    parts = ("", f"_{machine}", "_futex" if linux and arch in _FUTEX else "_condition", "_linux" if linux else "_posix")
    constants = {
        "MAX": MAX_THREADS, "SPINS": SPINS, "FEW_SPINS": FEW_SPINS, "YIELDS": YIELDS, "STACK": STACK,
        "RECOUNT": RECOUNT, "PAIR": PAIR, "FUTEX": _FUTEX.get(arch, 0),
        "LEAST": PATIENCE[0], "FIRST": PATIENCE[1], "MOST": PATIENCE[2],
        "LOOKS": 1 << 62 if is_patient or arch == "x86_64" else LOOKS, "EVER": "true" if is_patient else "false",
        "DETACHED": 2 if "darwin" in triple or "macos" in triple else 1,
        "BLOCK": 0 if linux else 1, "SETMASK": 2 if linux else 3,
    }  # fmt: skip
    text = "\n".join(Path(__file__).with_name(f"pool{part}.ll").read_text("utf-8") for part in parts)
    for name, value in constants.items():
        text = text.replace(f"${name}$", str(value))
    return text
