"""Compile time against network size: ``python tools/bench_compile.py [SIZES…] [--net FILE]``.

Generates residual networks of about the given numbers of ops (creates included), compiles each for the CPU, and prints
seconds by stage, microseconds an op, and the growth of each stage from size to size (1.0 is linear). `--net` times a given
network instead.
"""

from __future__ import annotations

import argparse
import math
import os
import time

from machine import machine

import lightnet
from lightnet import compiler
from lightnet.ir.passes import Instrumentation


class Stages(Instrumentation):
    """Seconds by pass, verification apart."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._start = 0.0

    def before_pass(self, pass_, module) -> None:
        self._start = time.perf_counter()

    def after_pass(self, pass_, module) -> None:
        self.seconds[pass_.name] = self.seconds.get(pass_.name, 0.0) + time.perf_counter() - self._start

    def before_verify(self) -> None:
        self._start = time.perf_counter()

    def after_verify(self) -> None:
        self.seconds["verify"] = self.seconds.get("verify", 0.0) + time.perf_counter() - self._start


def network(ops: int) -> str:
    """IL of a residual network of about `ops` ops: blocks of conv, relu, conv, sum, slice, slice, relu, concat."""
    lines = ["create(|dst=t0|dtype=TL_FLOAT, dims=[1,8,6,6], ran=[-1,1], data=[0], from_file=true)"]
    head = "dtype=TL_FLOAT, ran=[-1,1], data=[0], from_file=true"
    conv = 'group=1, size=[3,3], stride=[1,1], dilation=[1,1], padding=[1,1,1,1], autopad="NOTSET"'
    for k in range(max(1, (ops - 1) // 12)):
        x = f"t{k}"
        for i in (1, 2):
            lines.append(f"create(|dst=w{k}_{i}|{head}, dims=[8,8,3,3])")
            lines.append(f"create(|dst=b{k}_{i}|{head}, dims=[8])")
        lines += [
            f"conv2d(src={x}, weight=w{k}_1, bias=b{k}_1|dst=c{k}|{conv})",
            f"relu(src=c{k}|dst=r{k}|)",
            f"conv2d(src=r{k}, weight=w{k}_2, bias=b{k}_2|dst=d{k}|{conv})",
            f"elew(src1=d{k}, src2={x}|dst=s{k}|elew_op=TL_SUM)",
            f"slice(src=s{k}|dst=p{k}|axis=1, start=0, len=3)",
            f"slice(src=s{k}|dst=q{k}|axis=1, start=3, len=5)",
            f"relu(src=p{k}|dst=u{k}|)",
            f"concat(src1=q{k}, src2=u{k}|dst=t{k + 1}|axis=1)",
        ]
    return ";\n".join(lines)


def measure(load) -> tuple[int, dict[str, float]]:
    """Ops of the source, and seconds by stage."""
    stages = Stages()
    start = time.perf_counter()
    model = load()
    seconds = {"load": time.perf_counter() - start}
    ops = sum(1 for _ in model.main.body.block.ops) - 1
    start = time.perf_counter()
    executable = compiler.compile(model, instrumentation=[stages])
    compiled = time.perf_counter() - start
    seconds |= stages.seconds
    seconds["other"] = compiled - sum(stages.seconds.values())
    start = time.perf_counter()
    _ = executable.native
    seconds["machine code"] = time.perf_counter() - start
    seconds["to level 4"] = seconds["load"] + compiled
    seconds["total"] = seconds["to level 4"] + seconds["machine code"]
    return ops, seconds


def main() -> None:
    """Print the table."""
    os.environ["LIGHTNET_CACHE"] = "off"  # what is measured is compiling
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, default=[1250, 2500, 5000, 10000, 20000])
    parser.add_argument("--net", help="a network file instead of generated ones")
    args = parser.parse_args()
    print(machine("lightnet", "xdsl", "llvmlite"))
    lightnet.compile(lightnet.loads(network(50), ".net"))  # imports and caches
    loads = [lambda: lightnet.load(args.net)] if args.net else [
        lambda n=n: lightnet.loads(network(n), ".net", f"generated-{n}") for n in args.sizes
    ]  # fmt: skip
    before: tuple[int, dict[str, float]] | None = None
    rows: dict[str, list[str]] = {}
    header = []
    for load in loads:
        ops, seconds = measure(load)
        header.append(f"{ops:>8d} ops")
        for stage, s in seconds.items():
            growth = ""
            if before is not None and before[1].get(stage, 0) > 0.005:
                exponent = math.log(s / before[1][stage]) / math.log(ops / before[0])
                growth = f"^{exponent:.2f}"
            rows.setdefault(stage, []).append(f"{s:7.3f}{growth:>6s}")
        before = ops, seconds
    print(f"{'seconds (growth exponent)':25s}" + "".join(f"{h:>14s}" for h in header))
    for stage, cells in rows.items():
        print(f"{stage:25s}" + "".join(f"{c:>14s}" for c in cells))


if __name__ == "__main__":
    main()
