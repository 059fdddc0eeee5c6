"""Latency of networks, ours against ONNX Runtime on the same graph: ``python tools/bench_nets.py [NET… | MODEL.onnx…]``.

Without arguments, the networks of tests/data/nets/il. An ONNX model runs as it is, with its own weights, and --shape and
--value close its shapes (those of inputs that a model does not have are passed over); other networks are exported, with
sampled weights. Both sides get the same inputs, and each runs on one thread (--threads gives ONNX Runtime more; our code runs
on one). Rounds of the two are interleaved, in turn one first and then the other, so that a busy machine disturbs both alike;
each round runs a side for about --slice seconds and keeps its fastest call. With one thread, time is the processor time of that
thread, which others' load disturbs least. Prints the medians of the rounds, the ratio (ours / ONNX Runtime: below 1 we are
faster) of the medians, the spread of the per-round ratios (10th to 90th percentile), the largest difference of an output relative
to its largest value, and the seconds from the file to machine code. Exit status 1 where an output differs by more than
`compare_onnxruntime.TOLERANCE`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from compare_onnxruntime import TOLERANCE, compare_arrays, file_session, sampled_model, session
from machine import machine

import lightnet
from lightnet.cli.feeding import shapes_of, values_of
from lightnet.cli.network import add_shapes
from lightnet.diagnostics import LightNetError
from lightnet.frontends.onnx.export.model import input_contents
from lightnet.runtime.dtypes import BY_NP
from lightnet.runtime.initial import sample

NETS = Path(__file__).parent.parent / "tests" / "data" / "nets" / "il"


def fastest(call: Callable[[], object], seconds: float, clock: Callable[[], float] = time.perf_counter) -> float:
    """The fastest of as many calls as fit in `seconds` (at least one), in seconds of `clock`."""
    best, end = float("inf"), time.perf_counter() + seconds
    while True:
        start = clock()
        call()
        best = min(best, clock() - start)
        if time.perf_counter() >= end:
            return best


def rotation(sides: Sequence[Callable[[], object]], rounds: int, seconds: float, clock=time.perf_counter) -> np.ndarray:
    """Seconds (of `clock`) of each side in each round, [rounds, sides]; the order turns round by round."""
    for call in sides:
        call()
    times = np.empty((rounds, len(sides)))
    for i in range(rounds):
        for k in range(len(sides)):
            j = (i + k) % len(sides)
            times[i, j] = fastest(sides[j], seconds, clock)
    return times


@dataclass(frozen=True)
class Case:
    """A network on both sides: a call of our program, one of ONNX Runtime's session, and how their outputs compare."""

    ours: Callable[[], object]
    theirs: Callable[[], object]
    error: float
    seconds: float


def case(path: str, threads: int, shapes: dict[str, Sequence[int]], values: dict[str, np.ndarray],
         feeds: dict[str, np.ndarray] | None = None) -> Case:  # fmt: skip
    """Both sides on the same weights and inputs (of an ONNX model `feeds`, or noise). Raises `LightNetError` for a network that we cannot read or compile."""
    onnx = path.endswith(".onnx")
    if onnx:
        theirs = file_session(path, threads)
        names = {i.name for i in theirs.get_inputs()}
        shapes, values = ({k: v for k, v in d.items() if k in names} for d in (shapes, values))
    start = time.perf_counter()
    model = lightnet.load(path, shapes=shapes, values=values) if onnx else sampled_model(path)
    executable = lightnet.compile(model)
    executable.prepare()
    seconds = time.perf_counter() - start
    if onnx and feeds is not None:
        fed = feeds | values
    elif onnx:
        feeds = {n: sample(n, "data", d, BY_NP[np.dtype(t)], 0) for n, (d, t) in executable.inputs.items()}
        fed = feeds | values
    else:
        feeds, theirs, fed = {}, session(model, threads=threads), input_contents(model)
    fed = {i.name: fed[i.name] for i in theirs.get_inputs()}
    want = dict(zip((o.name for o in theirs.get_outputs()), theirs.run(None, fed)))
    error = max((compare_arrays(n, array, want[n]).error for n, array in executable(feeds).items()), default=0.0)
    return Case(lambda: executable(feeds), lambda: theirs.run(None, fed), error, seconds)


def main() -> int:
    """Print one line a network; 1 where one cannot be read or differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="*", default=[str(p) for p in sorted(NETS.iterdir())])
    add_shapes(parser)
    parser.add_argument("--threads", type=int, default=1, help="of ONNX Runtime; our code runs on one so far")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--slice", type=float, default=0.3, help="seconds of one side in one round")
    args = parser.parse_args()
    print(machine("lightnet", "llvmlite", "onnxruntime", "numpy"))
    print(
        f"{'network':24s} {'ours ms':>10s} {'ORT ms':>10s} {'ratio':>7s}  spread, {args.rounds} rounds  error    compile s"
    )
    shapes, values = shapes_of(args.shapes), values_of(args.values)
    failed = False
    for path in args.nets:
        try:
            found = case(path, args.threads, shapes, values)
        except LightNetError as e:
            print(f"{Path(path).stem:24s} {' '.join(str(e).split())[:300]}", flush=True)
            failed = True
            continue
        times = rotation(
            [found.ours, found.theirs],
            args.rounds,
            args.slice,
            time.thread_time if args.threads == 1 else time.perf_counter,
        )
        ours, theirs = np.median(times, axis=0)
        low, high = np.percentile(times[:, 0] / times[:, 1], [10, 90])
        failed |= not found.error <= TOLERANCE
        print(
            f"{Path(path).stem:24s} {ours * 1e3:10.3f} {theirs * 1e3:10.3f} {ours / theirs:7.2f}  "
            f"{low:.2f} to {high:.2f}      {found.error:8.1e} {found.seconds:6.1f}",
            flush=True,
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
