"""Time each kernel launch of a network on the CPU: ``python tools/profile_net.py NET [--rounds N]``.

Prints one line a kernel function: launches, total milliseconds (median of the rounds), share, GFLOP/s where the kernel's ops
count floating-point operations, and a total beside the time of the whole entry function.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections import defaultdict

import lightnet
from lightnet.compiler import native_module
from lightnet.dialects.launch import LaunchOp, launches
from lightnet.ir.kernel import KernelOp
from lightnet.ir.module import main_of
from lightnet.runtime.program import Arena


def main() -> None:
    """Profile one network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("net")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--top", type=int, default=25)
    args = parser.parse_args()
    executable = lightnet.compile(lightnet.load(args.net))
    compilation, instance = executable._compilation, executable.instance
    native = native_module(compilation)
    arena = Arena(instance.program.memory["arena"])
    instance.run(arena, {}, instance.static)
    bases = {"arena": arena.bytes.ctypes.data, "static": instance.static.ctypes.data}
    flops = flops_by_function(compilation)
    times: dict[str, list[float]] = defaultdict(list)
    whole = []
    for _ in range(args.rounds):
        start = time.perf_counter()
        instance.run(arena, {}, instance.static)
        whole.append(time.perf_counter() - start)
        spent: dict[str, float] = defaultdict(float)
        for line in launches(compilation.loops):
            if not isinstance(line, LaunchOp):
                continue
            name = line.callee.root_reference.data
            pointers = [bases[p.space.data] + p.offset.data for p in line.args]
            call = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * len(pointers))(
                native.kernel_address(name)
            )
            begin = time.perf_counter()
            call(0, line.grid.value.data, *pointers)
            spent[name] += time.perf_counter() - begin
        for name, seconds in spent.items():
            times[name].append(seconds)
    count = defaultdict(int)
    for line in launches(compilation.loops):
        if isinstance(line, LaunchOp):
            count[line.callee.root_reference.data] += 1
    medians = {n: statistics.median(t) for n, t in times.items()}
    total = sum(medians.values())
    for name, seconds in sorted(medians.items(), key=lambda x: -x[1])[: args.top]:
        rate = f"{flops[name] * count[name] / seconds / 1e9:8.1f} GFLOP/s" if flops.get(name) else ""
        print(f"{name:40s} x{count[name]:<3d} {seconds * 1e3:9.3f} ms {seconds / total:6.1%} {rate}")
    print(f"{'sum of kernels':40s}      {total * 1e3:9.3f} ms; entry function {statistics.median(whole) * 1e3:.3f} ms")


def flops_by_function(compilation) -> dict[str, int]:
    """Floating-point operations of one launch, by function name (matched by location order of kernels and launches)."""
    by_place: dict[object, int] = {}
    for op in main_of(compilation.planned).body.block.ops:
        if isinstance(op, KernelOp):
            by_place[tuple(map(str, op.attributes["ln.places"].data)), str(op.location)] = sum(
                o.flops() for o in op.ops
            )
    out: dict[str, int] = {}
    for line in launches(compilation.loops):
        if isinstance(line, LaunchOp):
            for (places, location), flops in by_place.items():
                if location == str(line.location) and places[0] in map(str, line.args):
                    out.setdefault(line.callee.root_reference.data, flops)
    return out


if __name__ == "__main__":
    main()
