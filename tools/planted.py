"""A trial of `lightnet compare`, whether it finds what is planted: ``python tools/planted.py [NET…] [--share 0.03] [--trials 20]
[--burners 1]``.

A slowdown is planted into each network by doing some blocks of one kernel twice (`benching/repeat_launch.py`): so many
that they take `share` of a call, by the times of its kernels. So is a change that changes nothing: the pass runs, and
repeats no block. Each is compared with the network as it is, `trials` times, by a process of its own, while other processes load
as many cores as `--burners` says. The table says how often each verdict came, and how long that took. Exit status 1 where fewer than 19 of
20 are right.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from benching import networks
from machine import machine

import lightnet
from lightnet.diagnostics import LightNetError
from lightnet.dialects.launch import LaunchOp, lines_of
from lightnet.tables import table
from lightnet_debug.profile import profiled
from lightnet_debug.steps import steps_of

PASS = Path(__file__).parent / "benching" / "repeat_launch.py"
#: The share of trials that should be right.
ENOUGH = 19 / 20


def planted_at(path: str, share: float) -> tuple[str, float]:
    """The options of `repeat-launch` for a network, and the share of a call that they add: of one launch whose results
    take no operand's memory, as many blocks as come nearest."""
    executable = lightnet.compile(path, threads=1)
    found = profiled(executable, rounds=9)
    loops = executable.loops
    assert loops is not None
    lines = lines_of(loops)
    steps = [step for step in steps_of(executable.planned, loops) if step.lines]
    best = ("", 0.0)
    for kernel, step in zip(found.kernels, steps):
        (line, *more) = step.lines
        if more or not isinstance(line, LaunchOp) or len(set(line.args)) < len(line.args.data):
            continue
        each = kernel.seconds / found.seconds / line.blocks
        blocks = min(round(share / each), line.blocks) if each else 0
        if abs(blocks * each - share) < abs(best[1] - share):
            best = f"line={lines.index(line)} blocks={blocks}", blocks * each
    if not best[0]:
        raise LightNetError(f"{path}: no launch to repeat")
    return best


@contextmanager
def loaded_cores(count: int) -> Iterator[None]:
    """Processes that do nothing but take time, for the length of a block."""
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def trial(path: str, options: str) -> tuple[dict[str, Any], float]:
    """The answer of `lightnet compare` about a network with the pass and without, and the seconds of the command."""
    start = time.monotonic()
    command = [sys.executable, "-m", "lightnet.cli.lightnet", "compare", path, "--json", f"--load={PASS}",
               f"--b=--pass='@cpu+after:lower-cpu:repeat-launch{{{options}}}'"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LightNetError(f"compare fails: {done.stderr.strip()[:400]}")
    return json.loads(done.stdout), time.monotonic() - start


def main() -> int:
    """The tool."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=["mobilenetv2"], help="names of tools/bench.py, or files")
    parser.add_argument("--share", type=float, default=0.03, help="the slowdown that is planted (%(default)s)")
    parser.add_argument("--trials", type=int, default=20, help="comparisons of each (%(default)s)")
    parser.add_argument("--burners", type=int, default=1, help="processes that load a core each (%(default)s)")
    args = parser.parse_args()
    print(machine("lightnet", "llvmlite", "numpy"))
    rows, right = [], True
    for name in args.networks:
        path = str(networks.NETWORKS.get(name, name))
        options, share = planted_at(path, args.share)
        cases = ((f"{share:.1%} slower", options, "slower"), ("no-op", "line=0 blocks=0", "no difference"))
        for what, chosen, wanted in cases:
            with loaded_cores(args.burners):
                found = [trial(path, chosen) for _ in range(args.trials)]
            verdicts = Counter(values["verdict"] for values, _ in found)
            ratios = sorted(values["ratio"]["ratio"] for values, _ in found)
            right &= verdicts[wanted] >= ENOUGH * args.trials
            rows.append((Path(path).stem, what, f"{verdicts[wanted]} of {args.trials}",
                         ", ".join(f"{v} {n}" for v, n in verdicts.most_common()),
                         f"{ratios[0]:.3f} {statistics.median(ratios):.3f} {ratios[-1]:.3f}",
                         f"{statistics.median(s for _, s in found):.1f}", f"{max(s for _, s in found):.1f}"))  # fmt: skip
            print(rows[-1], file=sys.stderr, flush=True)
    print(table(("network", "planted", "right", "verdicts", "ratio: least, median, most", "s", "most s"), rows))
    return int(not right)


if __name__ == "__main__":
    sys.exit(main())
