"""Time each kernel launch of a network on the CPU: ``python tools/profile_net.py NET [--rounds N] [--shape NAME=1x3x224x224]``.

Prints one line a kernel function: launches, total milliseconds of processor time (median of the rounds), share, GFLOP/s where
the kernel's ops count floating-point operations, the shapes of the body, and a total beside the time of the whole entry function.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections import defaultdict

import lightnet
from lightnet.cli.feeding import shapes_of, values_of
from lightnet.cli.network import add_shapes
from lightnet.compiler import native_module
from lightnet.dialects.launch import LaunchOp, launches
from lightnet.ir.kernel import KernelOp
from lightnet.ir.module import main_of
from lightnet.ir.views import place_of
from lightnet.runtime.program import Arena


def main() -> None:
    """Profile one network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("net")
    add_shapes(parser)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--top", type=int, default=25)
    args = parser.parse_args()
    model = lightnet.load(args.net, shapes=shapes_of(args.shapes), values=values_of(args.values))
    executable = lightnet.compile(model)
    compilation, instance = executable._compilation, executable.instance
    native = native_module(compilation)
    arena = Arena(instance.program.memory["arena"])
    instance.run(arena, {}, instance.static)
    bases = {"arena": arena.bytes.ctypes.data, "static": instance.static.ctypes.data}
    about = described(compilation)
    times: dict[str, list[float]] = defaultdict(list)
    whole = []
    for _ in range(args.rounds):
        start = time.thread_time()
        instance.run(arena, {}, instance.static)
        whole.append(time.thread_time() - start)
        spent: dict[str, float] = defaultdict(float)
        for line in launches(compilation.loops):
            if not isinstance(line, LaunchOp):
                continue
            name = line.callee.root_reference.data
            pointers = [bases[p.space.data] + p.offset.data for p in line.args]
            call = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * len(pointers))(
                native.kernel_address(name)
            )
            begin = time.thread_time()
            call(0, line.grid.value.data, *pointers)
            spent[name] += time.thread_time() - begin
        for name, seconds in spent.items():
            times[name].append(seconds)
    count = defaultdict(int)
    for line in launches(compilation.loops):
        if isinstance(line, LaunchOp):
            count[line.callee.root_reference.data] += 1
    medians = {n: statistics.median(t) for n, t in times.items()}
    total = sum(medians.values())
    for name, seconds in sorted(medians.items(), key=lambda x: -x[1])[: args.top]:
        flops, shapes = about.get(name, (0, ""))
        rate = f"{flops * count[name] / seconds / 1e9:8.1f} GFLOP/s" if flops else " " * 16
        print(f"{name:40s} x{count[name]:<3d} {seconds * 1e3:9.3f} ms {seconds / total:6.1%} {rate}  {shapes}")
    print(f"{'sum of kernels':40s}      {total * 1e3:9.3f} ms; entry function {statistics.median(whole) * 1e3:.3f} ms")


def described(compilation) -> dict[str, tuple[int, str]]:
    """Floating-point operations of one launch, and the shapes of the body, by function name. Kernels and launches stand in the
    same order: a launch belongs to the next kernel whose operands and results stand where it reads and writes."""
    kernels = [op for op in main_of(compilation.planned).body.block.ops if isinstance(op, KernelOp)]
    lines = [line for line in launches(compilation.loops) if isinstance(line, LaunchOp)]
    lines = [line for line in lines if not line.callee.root_reference.data.startswith("copy_")]  # of moves
    out: dict[str, tuple[int, str]] = {}
    for kernel in kernels:
        places = {str(place_of(v)) for v in (*kernel.operands, *kernel.results)}
        title = "_".join(op.optype for op in kernel.ops[:3])
        while lines and lines[0].callee.root_reference.data.startswith(title):
            args = set(map(str, lines[0].args))
            if (
                len(args - places) > 1 or not {str(place_of(v)) for v in kernel.results} <= args
            ):  # one may be the workspace
                break
            ops = kernel.ops
            shapes = f"{' '.join(map(str, ops[0].operand_specs[:2]))} -> {ops[-1].result_specs[0]}"
            out.setdefault(lines.pop(0).callee.root_reference.data, (sum(o.flops() for o in ops), shapes))
    return out


if __name__ == "__main__":
    main()
