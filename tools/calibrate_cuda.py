"""The model of products on a device against the device: ``python tools/calibrate_cuda.py [--json FILE]``.

Each product of some networks is built with many of the plans that the model knows (generator, tile, stages, splits), timed in a CUDA graph that repeats it,
and printed beside what the model says: how far its choice is from the fastest that was tried, and how far its nanoseconds are off. ``--from FILE``
prints what an earlier run measured against the model as it is now, without a device: for who changes its constants. Imports lightnet and NumPy.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from xdsl.dialects.builtin import ModuleOp

sys.path.insert(0, str(Path(__file__).parent))

from benching import cuda_work

import lightnet
from lightnet.backends.cuda.device import DeviceModel, device_of
from lightnet.backends.cuda.gemm.generator import MMA, SIMT, Gemm, problem_of
from lightnet.backends.cuda.gemm.kernel import GemmSchedule
from lightnet.backends.cuda.gemm.model import Pinned, ProductTile, product_time_of
from lightnet.backends.cuda.gemm.problem import GemmProblem
from lightnet.backends.cuda.gemm.wgmma import WGMMA
from lightnet.backends.cuda.kernel import KernelTask
from lightnet.backends.cuda.nvptx import emit_program
from lightnet.backends.cuda.selection import SELECTION
from lightnet.backends.cuda.simt import SimtLaunch
from lightnet.backends.cuda.tensor_maps import maps_of
from lightnet.diagnostics import LightNetError
from lightnet.dialects.cuda_launch import dynamic_shared
from lightnet.dialects.launch import memref_bytes
from lightnet.ir.body import choice
from lightnet.ir.kernel import KernelOp
from lightnet.runtime.cuda.driver import DeviceLaunch, Driver, arguments, open_driver
from lightnet.runtime.cuda.tensor_map import TensorMap
from lightnet.runtime.files import write_atomic

FAMILIES = {g.alg: g for g in (SIMT, MMA, WGMMA)}
#: How often a graph repeats a product, and how often that is timed.
REPEATS, TRIALS = 20, 5
#: In how many jobs a network is built.
SHARDS = 6
#: Bytes that kernels read and write: a part of each argument's own.
ROOM = 1 << 30


class Line(NamedTuple):
    """A launch without its IR: what a process hands to another."""

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    sizes: tuple[int, ...]
    maps: tuple[TensorMap | None, ...]


@dataclass
class Row:
    """One plan of a product: what it is, what the model says, and what the device says, in nanoseconds."""

    work: str
    kernel: str
    sizes: tuple[int, ...]
    dtype: str
    alg: str
    tile: tuple[int, int, int]
    stages: int
    splits: int
    predicted: float
    measured: float = 0.0
    why: str = ""


def worth_trying(p: GemmProblem, gemm: Gemm, device: DeviceModel, count: int) -> list[tuple[float, GemmSchedule]]:
    """The best by the model, the best of other tiles, and some at random of those within three times the best's time."""
    found = sorted(gemm.family.plans(p, device, Pinned()), key=lambda f: f[0])
    kept: list[tuple[float, GemmSchedule]] = []
    seen: set[ProductTile] = set()
    for nanoseconds, plan in found:
        if (shape := replace(plan.tile, stages=2)) not in seen and len(kept) < 2 * count // 3:
            seen.add(shape)
            kept.append((nanoseconds, plan))
    rest = [f for f in found if f not in kept and f[0] < 3 * found[0][0]]
    nearest, others = rest[: count // 6], rest[count // 6 :]
    drawn = [others[i] for i in np.random.default_rng(0).permutation(len(others))]
    return [*kept, *nearest, *drawn][:count]


def products(work: cuda_work.Work, arch: str, seen: set[Any]) -> Iterator[tuple[KernelOp, GemmProblem]]:
    """The products of a network's kernels, each once."""
    executable = lightnet.compile(work.model, "cuda", precision=work.compiled, arch=arch, emulate=True)
    for op in executable.planned.walk():
        if isinstance(op, KernelOp) and choice(op, "alg") in FAMILIES:
            p = problem_of(op, SELECTION.plan_of(op).form)
            key = (
                p.kind,
                p.dtype.name,
                p.batch,
                p.rows,
                p.cols,
                p.depth,
                tuple(o.optype for o in p.ops),
                p.anchor.operand_specs[0].dims,
            )
            if key not in seen:
                seen.add(key)
                yield op, p


class Job(NamedTuple):
    """The products of one network that one process builds: every `SHARDS`-th."""

    name: str
    precision: str
    arch: str
    batch: int
    count: int
    shard: int


def built(job: Job) -> list[tuple[Row, str, list[Line]]]:
    """Every plan of a network's products that is tried, as PTX."""
    name, precision, arch, batch, count, shard = job
    work = made(name, precision, batch)
    device, rows = device_of(arch), []
    for op, p in list(products(work, arch, set()))[shard::SHARDS]:
        for gemm in FAMILIES.values():
            if not gemm.is_for(device) or not gemm.suits(p) or (gemm is SIMT and choice(op, "alg") != "simt"):
                continue
            for predicted, plan in worth_trying(p, gemm, device, count):
                tile = plan.tile
                row = Row(f"{name} b{batch} {arch}", _ops(p), _sizes(p), p.dtype.name, gemm.alg,
                          (tile.rows, tile.cols, tile.depth), tile.stages, plan.splits, predicted)  # fmt: skip
                try:
                    launches = gemm.launches(KernelTask(op, "k"), p, plan)
                    rows.append((row, *emitted(launches, arch)))
                except LightNetError as error:
                    row.why = str(error)
                    print(row, file=sys.stderr)
    return rows


def emitted(launches: Sequence[SimtLaunch], arch: str) -> tuple[str, list[Line]]:
    """The PTX of launches, and how they are launched."""
    module = ModuleOp([*dict.fromkeys(f for launch in launches for f in launch.functions)])
    program = emit_program(module, arch)
    lines = []
    for launch in launches:
        sizes = tuple(memref_bytes(t) for t in launch.function.function_type.inputs)
        lines.append(Line(program.entries[launch.function.sym_name.data], launch.grid, launch.block,
                          dynamic_shared(launch.function), sizes, tuple(maps_of(launch.function))))  # fmt: skip
    return program.text, lines


def made(name: str, precision: str, batch: int) -> cuda_work.Work:
    """A network by name, or a product, ``1024x1024x1024``."""
    if "x" in name and name[0].isdecimal():
        m, k, n = map(int, name.split("x"))
        return cuda_work.gemm(m, k, n, precision)
    return cuda_work.network(name, precision, batch)


def measure(driver: Driver, base: int, module: Any, lines: Sequence[Line]) -> float:
    """Nanoseconds of a product in a row of equal ones."""
    launches = []
    for line in lines:
        address, addresses = base, []
        for size in line.sizes:
            addresses.append(address)
            address += -(-size // 256) * 256
        if address - base > ROOM:
            return float("nan")
        args = arguments(driver, addresses, line.maps)
        launches.append(DeviceLaunch(module.function(line.entry), line.grid, line.block, line.shared, args))
    graph = driver.graph(launches * REPEATS)
    graph.launch()
    driver.synchronize()
    return 1e9 * min(driver.time(graph.launch) for _ in range(TRIALS)) / REPEATS


def run(args: argparse.Namespace) -> list[Row]:
    """Build on all processors, then measure, in an order that leaves something of everything where time runs out."""
    jobs = [Job(n, p, a, b, args.count, shard) for p, a in args.ways for b in args.batches for n in args.models
            for shard in range(1 if "x" in n else SHARDS) if b == 1 or "x" not in n]  # fmt: skip
    with ProcessPoolExecutor(args.jobs, get_context("fork")) as pool:
        found = [x for part in pool.map(built, jobs) for x in part]
    driver = open_driver(False)
    base = driver.alloc(ROOM)
    noise = np.random.default_rng(0).standard_normal(ROOM // 8).astype(np.float16) * np.float16(0.1)
    for part in range(4):
        driver.upload(base + part * noise.nbytes, noise)
    order = [found[i] for i in np.random.default_rng(1).permutation(len(found))]
    print(f"{len(order)} plans", flush=True)
    end, rows = time.monotonic() + args.seconds, []
    for begin in range(0, len(order), 64):
        if time.monotonic() > end:
            break
        part = order[begin : begin + 64]
        with ThreadPoolExecutor(8) as pool:
            modules = list(pool.map(lambda f: driver.load(f[1]), part))
        for (row, _, lines), module in zip(part, modules):
            try:
                row.measured = measure(driver, base, module, lines)
            except LightNetError as error:
                row.why = str(error)[:200]
            rows.append(row)
    return rows


def predicted_again(rows: Sequence[Row]) -> list[Row]:
    """The rows with what the model says now; those of products that networks no longer have are left out."""
    works: dict[str, list[Row]] = {}
    for row in rows:
        works.setdefault(row.work, []).append(row)
    found = []
    for work, tried in works.items():
        name, batch, arch = work.split()
        device, table = device_of(arch), {}
        for _, p in products(made(name, "tf32" if tried[0].dtype == "f32" else "f16", int(batch[1:])), arch, set()):
            table.setdefault((_sizes(p), _ops(p), p.dtype.name), p)
        for row in tried:
            p = table.get((row.sizes, row.kernel, row.dtype))
            if p is not None:
                family = FAMILIES[row.alg].family
                tile = family.tile(row.tile, row.stages)
                core, speed = family.make(p, tile), family.speed(p, device)
                found.append(
                    replace(row, predicted=product_time_of(p, GemmSchedule(tile, row.splits), core, speed, device))
                )
    return found


def _sizes(p: GemmProblem) -> tuple[int, ...]:
    return p.batch, p.rows, p.cols, p.depth


def _ops(p: GemmProblem) -> str:
    return "+".join(op.optype for op in p.ops)


def report(rows: Sequence[Row]) -> tuple[float, float]:
    """Print, by product, the model's choice beside the fastest. How many times as long the choices take as the fastest (geometric mean), and by which factor
    the model is off (median)."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        if row.measured == row.measured and row.measured > 0:
            groups.setdefault((row.work.rpartition(" ")[2], row.dtype, row.sizes, row.kernel), []).append(row)
    lost = []
    for (arch, dtype, sizes, kernel), found in groups.items():
        chosen, best = min(found, key=lambda r: r.predicted), min(found, key=lambda r: r.measured)
        lost.append(chosen.measured / best.measured)

        def text(r: Row) -> str:
            return f"{r.alg} {'x'.join(map(str, r.tile))} s{r.stages} k{r.splits} {r.measured / 1e3:.2f} (model {r.predicted / 1e3:.2f})"

        print(f"{lost[-1]:.2f}  {arch} {dtype} {sizes} {kernel[:30]}: {text(chosen)} | {text(best)}")
    if not lost:
        return 1.0, 1.0
    worse = float(np.exp(np.mean(np.log(lost))))
    off = float(np.exp(np.median([abs(np.log(r.predicted / r.measured)) for found in groups.values() for r in found])))
    print(
        f"the model's choice takes {worse:.3f} times as long as the fastest that was tried (geometric mean of {len(lost)})"
    )
    print(f"the model is off by a factor of {off:.2f} (median of {sum(map(len, groups.values()))} plans)")
    return worse, off


def read(path: str | Path) -> list[Row]:
    """The rows that --json wrote."""
    entries = json.loads(Path(path).read_text("utf-8"))
    return [Row(**{**e, "sizes": tuple(e["sizes"]), "tile": tuple(e["tile"])}) for e in entries]


def main() -> int:
    """The tool."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    option = parser.add_argument
    option("--models", nargs="+", default=["squeezenet1.1", "mobilenetv2", "resnet50", "yolov3", "1024x1024x1024", "128x4096x4096",
                                           "512x4096x1024", "8192x768x3072", "4096x4096x4096"])  # fmt: skip
    option("--batches", nargs="+", type=int, default=[1, 32])
    option("--ways", nargs="+", default=["f16:sm_90a", "tf32:sm_90"], help="precision:arch (%(default)s)")
    option("--count", type=int, default=14, help="plans of each product and generator (%(default)s)")
    option("--seconds", type=float, default=300, help="how long is measured, at most (%(default)s)")
    option("--jobs", type=int, default=None)
    option("--json", metavar="FILE", help="write every plan with its time")
    option(
        "--from",
        metavar="FILE",
        dest="earlier",
        help="measure nothing: what --json wrote, against the model as it is now",
    )
    args = parser.parse_args()
    args.ways = [tuple(w.split(":")) for w in args.ways]
    rows = predicted_again(read(args.earlier)) if args.earlier else run(args)
    if args.json:
        write_atomic(args.json, json.dumps([asdict(r) for r in rows]).encode())
    report(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
