"""Latency of networks, ours against ONNX Runtime on the same exported graph: ``python tools/bench_nets.py [NET…]``.

Without arguments, the networks of tests/data/nets/il. Both sides hold the same sampled weights and the same inputs, and each
runs on one thread (--threads gives ONNX Runtime more; our code runs on one). Rounds of the two are interleaved, in turn
one first and then the other, so that a busy machine disturbs both alike; each round runs a side for about --slice seconds
and keeps its fastest call. Prints the medians of the rounds, the ratio (ours / ONNX Runtime: below 1 we are faster) of the
medians, and the spread of the per-round ratios (10th to 90th percentile).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from compare_onnxruntime import sampled_model, session
from machine import machine

import lightnet
from lightnet.frontends.onnx_export import input_contents
from lightnet.runtime.program import Arena

NETS = Path(__file__).parent.parent / "tests" / "data" / "nets" / "il"


def fastest(call: Callable[[], object], seconds: float) -> float:
    """The fastest of as many calls as fit in `seconds` (at least one), in seconds."""
    best, end = float("inf"), time.perf_counter() + seconds
    while True:
        start = time.perf_counter()
        call()
        now = time.perf_counter()
        best = min(best, now - start)
        if now >= end:
            return best


def rotation(sides: Sequence[Callable[[], object]], rounds: int, seconds: float) -> np.ndarray:
    """Seconds of each side in each round, [rounds, sides]; the order turns round by round."""
    for call in sides:
        call()
    times = np.empty((rounds, len(sides)))
    for i in range(rounds):
        for k in range(len(sides)):
            j = (i + k) % len(sides)
            times[i, j] = fastest(sides[j], seconds)
    return times


def sides(path: str, threads: int) -> list[Callable[[], object]]:
    """A call of our program and one of ONNX Runtime's session, on the same weights and inputs."""
    model = sampled_model(path)
    instance = lightnet.compile(model).instance
    arena = Arena(instance.program.memory["arena"])
    theirs, feeds = session(model, threads=threads), input_contents(model)
    feeds = {i.name: feeds[i.name] for i in theirs.get_inputs()}
    return [lambda: instance.run(arena, {}, instance.static), lambda: theirs.run(None, feeds)]


def main() -> None:
    """Print one line a network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="*", default=[str(p) for p in sorted(NETS.iterdir())])
    parser.add_argument("--threads", type=int, default=1, help="of ONNX Runtime; our code runs on one so far")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--slice", type=float, default=0.3, help="seconds of one side in one round")
    args = parser.parse_args()
    print(machine("lightnet", "llvmlite", "onnxruntime", "numpy"))
    print(f"{'network':24s} {'ours ms':>10s} {'ORT ms':>10s} {'ratio':>7s}  spread of the ratio, {args.rounds} rounds")
    for path in args.nets:
        times = rotation(sides(path, args.threads), args.rounds, args.slice)
        ours, theirs = np.median(times, axis=0)
        low, high = np.percentile(times[:, 0] / times[:, 1], [10, 90])
        print(
            f"{Path(path).stem:24s} {ours * 1e3:10.2f} {theirs * 1e3:10.2f} {ours / theirs:7.2f}  {low:.2f} to {high:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
