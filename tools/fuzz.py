"""Look for inputs that break what must not break: ``python tools/fuzz.py [TARGET ...] --minutes N [--seed N]``.

Cases follow from a target and a number, so that a seed repeats a run; what covers what is printed at the end, with the cases a second. A fault is made smaller and
saved with what it said; ``--replay FILE`` runs a saved case again in this process. The exit status is 1 where a fault is found.

Targets: each reader (il, mlir, json, nnvm, onnx, op, rules, pdl, npz, safetensors, wts, params, lnx), `graphs` (random ONNX graphs through compilers' options
against ONNX Runtime), `models` (the same by a second generator, of all opsets, types and forms), `quantized` (quantised ones, of that), `calls` (executables called with what fits and what does not), `readers` (all of the first), `all`.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

from fuzzing.process import Outcome, Target, judged, outcomes, worker
from fuzzing.readers import FOLDER, prepare, readers
from fuzzing.shrink import smaller

ROOT = Path(__file__).resolve().parent.parent


@cache
def targets() -> dict[str, Target]:
    """Every target by name."""
    from fuzzing.calls import Calls
    from fuzzing.graphs import Graphs
    from fuzzing.models_target import Models, Quantized

    found: list[Target] = [*readers(), Graphs(), Models(), Quantized(), Calls()]
    return {t.name: t for t in found}


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    args, begin = _parser().parse_args(argv), time.monotonic()
    if args.worker:
        FOLDER.append(args.worker.parent / "corpus")
        worker(targets().__getitem__, args.worker)
        return 0
    groups = {"all": list(targets()), "readers": [t.name for t in readers()]}
    names = list(dict.fromkeys(n for word in args.target or ["all"] for n in groups.get(word, [word])))
    if unknown := [n for n in names if n not in targets()]:
        sys.exit(f"no target is called '{unknown[0]}'; there are: {', '.join([*groups, *targets()])}")
    if args.replay:
        return replay(targets()[names[0]], args.replay)
    seed = args.seed if args.seed is not None else secrets.randbelow(10**9)
    print(f"seed {seed}; {len(names)} targets; {args.jobs} processes", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        prepare([targets()[name] for name in names], Path(scratch) / "corpus")
        found = run(names, seed, args, Path(scratch), begin + 60 * args.minutes)
        found.report()
        found.save(args.save, Path(scratch))
    return 1 if found.faults else 0


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("target", nargs="*", help="what to fuzz (all)")
    p.add_argument("--minutes", type=float, default=5, metavar="N", help="for how long (5)")
    p.add_argument("--count", type=int, metavar="N", help="at most N cases of each target")
    p.add_argument("--seed", type=int, metavar="N", help="which cases (random, and printed)")
    p.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (2)")
    p.add_argument(
        "--save", type=Path, default=ROOT / "build" / "fuzz", metavar="DIR", help="where faults go (build/fuzz)"
    )
    p.add_argument("--replay", type=Path, metavar="FILE", help="run one file of the target named first, here")
    p.add_argument("--worker", type=Path, metavar="DIR", help=argparse.SUPPRESS)
    return p


def replay(target: Target, path: Path) -> int:
    """One saved case in this process, without limits, with its traceback."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / f"case{target.suffix}"
        copy.write_bytes(path.read_bytes())
        print(target.run(path.read_bytes(), copy, {}))
    return 0


def run(names: list[str], seed: int, args: argparse.Namespace, scratch: Path, end: float) -> Found:
    """All cases until the time is over, of which what they start from has taken some: targets take turns."""

    def cases() -> Iterator[tuple[str, int]]:
        k = 0
        while args.count is None or k < args.count:
            for name in names:
                if time.monotonic() > end:
                    return
                yield name, seed * 1_000_000 + k
            k += 1

    found = Found()
    command = [sys.executable, str(Path(__file__).resolve()), "--worker"]
    with suppress(KeyboardInterrupt):  # what was found until then is shown
        for (name, number), outcome in outcomes(cases(), command, scratch, args.jobs):
            found.add(name, number, outcome)
    return found


class Found:
    """The results of cases: words by target, what they covered, what was slowest and largest, and faults by
    signature.
    """

    def __init__(self) -> None:
        self.words: dict[str, Counter[str]] = defaultdict(Counter)
        self.covered: dict[str, Counter[str]] = defaultdict(Counter)
        self.slowest: dict[str, float] = defaultdict(float)
        self.largest: dict[str, int] = defaultdict(int)
        self.faults: dict[tuple[str, str], list[tuple[int, Outcome]]] = defaultdict(list)
        self.start = time.monotonic()

    def add(self, name: str, number: int, outcome: Outcome) -> None:
        self.words[name][outcome.word] += 1
        self.slowest[name] = max(self.slowest[name], outcome.seconds)
        self.largest[name] = max(self.largest[name], outcome.bytes)
        for kind, things in outcome.covered.items():
            self.covered[kind].update(things)
        if outcome.fault:
            if not self.faults[name, outcome.signature]:
                print(f"{name} {number}: {outcome.signature}", flush=True)
            self.faults[name, outcome.signature].append((number, outcome))

    def report(self) -> None:
        """The tables, on stdout."""
        print(f"\n{'target':12s} {'cases':>7s} {'slowest':>8s} {'memory':>8s}  what came of them")
        for name, words in self.words.items():
            what = ", ".join(f"{n} {word}" for word, n in words.most_common())
            print(
                f"{name:12s} {words.total():7d} {self.slowest[name]:6.1f} s {self.largest[name] >> 20:4d} MiB  {what}"
            )
        for kind, counts in sorted(self.covered.items()):
            rare = ", ".join(f"{name} ({n})" for name, n in sorted(counts.items(), key=lambda item: item[1])[:6])
            print(f"{len(counts)} of kind '{kind}'; the rarest: {rare}")
        total = sum(words.total() for words in self.words.values())
        print(f"{total} cases in {time.monotonic() - self.start:.0f} s; {len(self.faults)} faults")

    def save(self, folder: Path, scratch: Path) -> None:
        """The smallest case of each fault, made smaller, with what it said and how to run it again."""
        for (name, signature), cases in self.faults.items():
            target = targets()[name]
            outcome = cases[0][1]
            if outcome.word == "not made":
                print(f"{name} {cases[0][0]}: {outcome.fault}")
                continue
            data = min((target.make(number) for number, _ in cases[:20]), key=len)
            if outcome.word in ("crash", "wrong") and target.suffix != ".lnx":
                data = smaller(data, partial(_has, signature, target, scratch / f"small{target.suffix}"))
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / f"{name}-{outcome.key}{target.suffix}"
            file.write_bytes(data)
            again = f"python tools/fuzz.py {name} --replay {file}"
            file.with_name(file.name + ".txt").write_text(
                f"{signature}\n{len(cases)} cases, the first {cases[0][0]}\n{again}\n\n{outcome.fault}"
            )
            print(f"{len(cases)} x {name}: {signature}\n    {again}")


def _has(signature: str, target: Target, path: Path, data: bytes) -> bool:
    return judged(target, data, path).signature == signature


if __name__ == "__main__":
    sys.exit(main())
