"""The peaks of this machine: fused multiply-adds a second, and bytes a second out of each level of its memory.

The roofline of a kernel (Williams, Waterman, Patterson, CACM 52(4), 2009): it takes at least its operations at the
peak, and at least its bytes at the bandwidth. Both are measured here, on one thread as launches run, by kernels of our
own level 4. Bandwidth depends on where the bytes are: it is measured on working sets from the first-level cache to main
memory, and a kernel is held to the fastest level that its bytes can be in. Imports the builder and the JIT.
"""

from __future__ import annotations

import ctypes
import time
from functools import cache

from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import MemRefType, ModuleOp, f32

from lightnet.backends.builder import Builder
from lightnet.backends.llvm.jit import CodeMachine, compile_module
from lightnet.dataclasses import dataclass, replace
from lightnet.runtime.arrays import aligned
from lightnet.tables import size

#: Independent chains of multiply-adds: latency times throughput of today's cores, and no more than half of their
#: registers.
CHAINS = 12
#: Working sets whose bandwidth is measured, in bytes.
SETS = (1 << 14, 1 << 17, 1 << 20, 1 << 23, 1 << 26)
#: Trips of the loop that measures the peak of arithmetic, and multiply-adds of each chain in a trip.
TRIPS, UNROLLED = 20_000, 4
#: Seconds that each measurement may take.
BUDGET = 0.03


@dataclass(frozen=True)
class Peaks:
    """Limits, measured on one thread if nothing else is said: `flops` in f32 operations a second (a multiply-add is
    two), `bandwidth` in bytes read a second by size of the working set in bytes. `short_flops` are operations a second
    on elements of two bytes, where there are units for these."""

    flops: float
    bandwidth: tuple[tuple[int, float], ...]
    short_flops: float = 0.0
    of: str = "one thread"

    def bytes_per_second(self, nbytes: int) -> float:
        """The bandwidth for a working set: that of the largest measured one that is no larger, so that it is an upper
        limit."""
        return next((rate for least, rate in reversed(self.bandwidth) if least <= nbytes), self.bandwidth[0][1])

    def bound(self, flops: float, nbytes: int, item: int = 4) -> float:
        """Seconds that so many operations on elements of `item` bytes, and so many bytes, take at least."""
        peak = self.short_flops if item == 2 and self.short_flops else self.flops * (4 / item if item > 4 else 1)
        return max(flops / peak, nbytes / self.bytes_per_second(nbytes))

    def __str__(self) -> str:
        sizes = ", ".join(f"{rate / 1e9:.0f} GB/s from {size(nbytes)}" for nbytes, rate in self.bandwidth)
        short = f", {self.short_flops / 1e9:.0f} GFLOP/s (f16)" if self.short_flops else ""
        return f"{self.flops / 1e9:.0f} GFLOP/s (f32){short}, {sizes}; {self.of}"


@cache
def measured() -> Peaks:
    """The limits of this machine, measured at the first call in a process (some 0.2 s)."""
    width = CodeMachine.host().vectors.width
    bandwidth, least = [], float("inf")
    for nbytes in SETS:
        least = min(least, _read_rate(width, nbytes))  # a larger set is not faster, but for noise
        bandwidth.append((nbytes, least))
    return Peaks(_fma_rate(width), tuple(bandwidth))


def raised(peaks: Peaks) -> Peaks:
    """The limits with the arithmetic measured once more; the higher peak counts. Clocks change within seconds, with
    heat and with what the neighbours do."""
    return replace(peaks, flops=max(peaks.flops, _fma_rate(CodeMachine.host().vectors.width)))


def _fma_rate(width: int) -> float:
    """Operations a second of independent chains of fused multiply-adds on registers."""
    return 2 * CHAINS * width * UNROLLED * TRIPS / _fastest(fma_kernel(width), [CHAINS * width], 1)


def fma_kernel(width: int) -> Builder:
    """A kernel of ``CHAINS * UNROLLED * TRIPS`` fused multiply-adds on vectors of `width` f32, kept in a
    ``[CHAINS, width]`` memory."""
    b = Builder.kernel("peak", [MemRefType(f32, [CHAINS, width])], opt="none")
    (memory,) = b.args
    start = b.tile_load(memory, [0, 0], [0, 1], (CHAINS, width))
    x, y = (b.const(v, start.type) for v in (0.999, 0.001))
    with b.loop(0, TRIPS, carry=[start]) as loop:
        chains = loop.args[0]
        for _ in range(UNROLLED):
            chains = b.op(vector.FMAOp, chains, x, y)
        loop.yields(chains)
    b.tile_store(loop.results[0], memory, [0, 0], [0, 1])
    return b


def _read_rate(width: int, nbytes: int) -> float:
    """Bytes a second of adding up a working set, over and over."""
    accumulators = 8
    rows = nbytes // (4 * accumulators * width)
    passes = max(1, (1 << 20) // nbytes)
    b = Builder.kernel(
        "read", [MemRefType(f32, [rows, accumulators, width]), MemRefType(f32, [accumulators, width])], opt="none"
    )
    source, total = b.args
    start = b.tile_load(total, [0, 0], [0, 1], (accumulators, width))
    with b.loop(b.lo, b.hi, carry=[start]) as again:
        with b.loop(0, rows, carry=again.args) as row:
            loaded = b.tile_load(source, [row.iv, 0, 0], [1, 2], (accumulators, width))
            row.yields(b.op(arith.AddfOp, row.args[0], loaded))
        again.yields(*row.results)
    b.tile_store(again.results[0], total, [0, 0], [0, 1])
    row_length = accumulators * width
    return 4 * passes * rows * row_length / _fastest(b, [rows * row_length, row_length], passes)


def _fastest(b: Builder, lengths: list[int], grid: int) -> float:
    """Seconds of the shortest of several calls of a kernel on f32 arrays of these lengths."""
    function = b.finish()
    native = compile_module(ModuleOp([function]))
    arrays = [aligned(4 * n) for n in lengths]
    for array in arrays:
        array[:] = 0
    form = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * len(arrays))
    call = form(native.kernel_address(function.sym_name.data))
    pointers = [a.ctypes.data for a in arrays]
    call(0, grid, *pointers)
    best, spent = float("inf"), 0.0
    while spent < BUDGET:
        start = time.thread_time()
        call(0, grid, *pointers)
        seconds = max(time.thread_time() - start, 1e-9)
        best, spent = min(best, seconds), spent + seconds
    return best
