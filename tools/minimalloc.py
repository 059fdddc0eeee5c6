#!/usr/bin/env python3
"""Pack memory-planning problems in MiniMalloc's CSV format, and print how close the peaks are to the lower bounds.

python tools/minimalloc.py --effort=high tests/data/minimalloc/[A-E].*.csv
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from lightnet.diagnostics import LightNetError
from lightnet.passes.planning import check, lower_bound, pack
from lightnet.passes.planning.minimalloc import read, write
from lightnet.passes.planning.planner import EFFORTS, Plan
from lightnet.passes.planning.report import report


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    options = _parser().parse_args(arguments)
    if options.output and len(options.files) > 1 and not Path(options.output).is_dir():
        print("error: with several files, -o needs a directory that exists", file=sys.stderr)
        return 1
    print(f"{'name':<24} {'n':>6} {'lower bound':>14} {'peak':>14} {'ratio':>7} {'seconds':>8}")
    try:
        for file in options.files:
            _run(Path(file), options)
    except LightNetError as error:
        print(error, file=sys.stderr)
        return 1
    except (OSError, UnicodeDecodeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="CSV with id,lower,upper,size[,alignment][,gaps][,offset]"
    )
    parser.add_argument("-o", "--output", help="write the answer here (a directory for several files)")
    parser.add_argument("-c", "--capacity", type=int, help="fail unless the plan fits into this many bytes")
    parser.add_argument("-e", "--effort", choices=EFFORTS, default="default", help="how long to search")
    parser.add_argument("--seed", type=int, default=0, help="another search")
    parser.add_argument("--fixed", action="store_true", help="keep the offsets that a file gives")
    parser.add_argument("--check", action="store_true", help="check the offsets that a file gives; pack nothing")
    parser.add_argument("--html", metavar="FILE", help="write a picture of the (last) plan")
    return parser


def _run(path: Path, options: argparse.Namespace) -> None:
    instance = read(path.read_text(encoding="utf-8"), str(path))
    buffers = instance.buffers
    start = time.perf_counter()
    if options.check:
        peak = max((instance.offsets.get(b.id, 0) + b.size for b in buffers), default=0)
        plan = Plan(instance.offsets, peak, lower_bound(buffers), "given")
    else:
        fixed = instance.offsets if options.fixed else None
        plan = pack(buffers, capacity=options.capacity, effort=options.effort, seed=options.seed, fixed=fixed)
    seconds = time.perf_counter() - start
    check(buffers, plan.offsets, options.capacity)
    print(
        f"{path.stem:<24} {len(buffers):>6} {plan.bound:>14,} {plan.peak:>14,} {plan.ratio:>7.4f} {seconds:>8.2f}",
        flush=True,
    )
    if options.output:
        target = Path(options.output)
        target = target / path.name if target.is_dir() else target
        target.write_text(write(instance, plan.offsets), encoding="utf-8")
    if options.html:
        Path(options.html).write_text(report(buffers, plan).html(title=path.stem), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
