"""The part of ONNX and NNVM that works: ``python tools/conformance.py [--check | --update] [--only REGEX]``.

Runs ONNX's backend suite (of the installed `onnx`) and the networks of tests/data/nnvm through LightNet's cpu target, and
prints totals and reasons. With ``--check`` LightNet has to pass every case of the checked-in floor, or the exit status is 1;
``--update`` runs the peers that are installed as well (ONNX Runtime, ONNX's reference evaluator), and writes the floor and
docs/conformance.md. Each case has a process of a pool, and a time limit. With ``--sampled``, LIGHTNET_SAMPLE draws cases beyond a
core, as in the tests (tests/sampling.py); where it is not set, all run.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from machine import machine

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
import sampling
from suites import floor, page, pool
from suites.cases import ONNX_SUITES, SUITES, Case, collect
from suites.runners import PASS, RUNNERS, Result, installed

PAGE = Path(__file__).parent.parent / "docs" / "conformance.md"
COMMAND = "python tools/conformance.py --update"
#: What is drawn of a suite: the first case of each op, each nth, and a share of the others. Suites that are not here run whole.
DRAWN = {
    "node": (12, 0.1),
    "node-expanded": (16, 0.1),
    "pytorch-converted": (3, 0.2),
    "real": (5, 0.1),
    "com.microsoft": (3, 0.2),
    "ai.onnx.ml": (3, 0.2),
    "nnvm": (5, 0.1),
}


def main() -> int:
    """The command line."""
    args = arguments()
    cases = select(collect(args.suite or SUITES), args)
    runners = list(RUNNERS) if args.update else args.runner or ["lightnet"]
    absent = [r for r in runners if r not in installed()]
    results = run(cases, [r for r in runners if r not in absent], args)
    for name in absent:
        print(f"{RUNNERS[name].name} is not installed", file=sys.stderr)
    if args.json:
        Path(args.json).write_text(json.dumps({r: {k: asdict(v) for k, v in of.items()} for r, of in results.items()}))
    show(cases, results, args.verbose)
    if args.update:
        return update(cases, results)
    return check(cases, results["lightnet"]) if args.check else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="exit 1 if a case of the floor does not pass")
    what.add_argument("--update", action="store_true", help="write the floor and docs/conformance.md")
    parser.add_argument("--suite", action="append", choices=SUITES, help="only this suite; may be repeated")
    parser.add_argument("--only", metavar="REGEX", default="", help="only cases whose suite/name has a match")
    parser.add_argument(
        "--every", metavar="N", type=int, default=1, help="only every Nth case of each suite but `real`"
    )
    parser.add_argument("--sampled", action="store_true", help="the cases that LIGHTNET_SAMPLE draws")
    parser.add_argument("--runner", action="append", choices=list(RUNNERS), help="default: lightnet; may be repeated")
    parser.add_argument("--jobs", metavar="N", type=int, default=2, help="processes (2)")
    parser.add_argument("--limit", metavar="S", type=float, default=120, help="seconds for one case (120)")
    parser.add_argument("--json", metavar="FILE", help="write every result, too")
    parser.add_argument("-v", "--verbose", action="store_true", help="list what does not pass")
    args = parser.parse_args()
    if args.update and (args.suite or args.only or args.every != 1 or args.sampled or args.runner):
        parser.error("--update needs all cases and all runners")
    if args.check and args.runner and "lightnet" not in args.runner:
        parser.error("--check needs the runner lightnet")
    return args


def select(cases: list[Case], args: argparse.Namespace) -> list[Case]:
    """The cases asked for."""
    if args.sampled:
        cases = [c for suite in SUITES for c in drawn(suite, [c for c in cases if c.suite == suite])]
    sampled = [c for suite in SUITES for i, c in enumerate(c for c in cases if c.suite == suite)
               if i % args.every == 0 or suite == "real"]  # fmt: skip
    return [c for c in sampled if re.search(args.only, c.key)]


def drawn(suite: str, cases: list[Case]) -> list[Case]:
    """The cases of a suite that run today."""
    if suite not in DRAWN:
        return cases
    every, share = DRAWN[suite]
    return sampling.draw(cases, f"conformance {suite}", every, share, by=lambda c: c.op or None)


def run(cases: list[Case], runners: list[str], args: argparse.Namespace) -> dict[str, dict[str, Result]]:
    """Results by runner and case. Peers run ONNX's cases only. On a terminal, a bar shows how far it is."""
    results: dict[str, dict[str, Result]] = {r: {} for r in runners}
    with progress(len(cases) * len(runners)) as advance:
        for runner in runners:
            of = cases if runner == "lightnet" else [c for c in cases if c.suite in ONNX_SUITES]
            for name, case, result in pool.run(of, [runner], args.jobs, args.limit):
                results[name][case.key] = result
                advance(f"{RUNNERS[name].name}: {case.key}")
    return results


@contextmanager
def progress(total: int) -> Iterator[Callable[[str], None]]:
    """Gives a function to call after each case; it moves a bar where stderr is a terminal."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:
        yield lambda text: None
        return
    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}")
    console = Console(stderr=True)
    # Without auto-refresh there is no thread, which workers that are forked meanwhile would not take along.
    with Progress(
        *columns, console=console, auto_refresh=False, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=total)

        def advance(text: str) -> None:
            bar.update(task, advance=1, description=text[:60].ljust(60), refresh=True)

        yield advance


def show(cases: list[Case], results: dict[str, dict[str, Result]], verbose: bool) -> None:
    """Totals by suite, and what does not pass by reason."""
    for runner, of in results.items():
        print(RUNNERS[runner].name)
        for suite in SUITES:
            if known := [of[c.key] for c in cases if c.suite == suite and c.key in of]:
                counts = Counter("constant" if r.folded else r.status for r in known)
                passed = counts[PASS] + counts["constant"]
                rest = ", ".join(f"{n} {s}" for s, n in counts.most_common() if s != PASS)
                print(f"  {suite:18s} {passed:5d} of {len(known):5d} pass   {rest}")
        groups: dict[str, list[Case]] = defaultdict(list)
        for case in cases:
            if case.key in of and of[case.key].status != PASS:
                groups[page.reason(case, of[case.key])].append(case)
        for name, group in sorted(groups.items(), key=lambda g: -len(g[1])):
            print(f"  {len(group):5d} {name}")
            for case in group if verbose else ():
                print(f"          {case.key}: {of[case.key].detail}")


def check(cases: list[Case], ours: dict[str, Result]) -> int:
    """Compare with the floor; 1 if a case fell."""
    known = floor.read()
    fallen = [c for c in cases if c.key in known and ours[c.key].status != PASS]
    risen = [c for c in cases if c.key not in known and ours[c.key].status == PASS]
    if known.onnx != version("onnx"):
        print(f"the floor is of onnx {known.onnx}; this is {version('onnx')}")
    for case in fallen:
        print(f"FALLEN {case.key}: {ours[case.key].status}: {ours[case.key].detail}")
    if risen:
        print(f"{len(risen)} more cases pass than the floor has: `{COMMAND}` raises it")
    print(f"floor: {'fallen: ' + str(len(fallen)) if fallen else 'holds'}")
    return 1 if fallen else 0


def update(cases: list[Case], results: dict[str, dict[str, Result]]) -> int:
    """Write the floor and the page."""
    ours = results["lightnet"]
    floor.write(version("onnx"), (k for k, r in ours.items() if r.status == PASS))
    packages = dict.fromkeys(RUNNERS[r].package for r in results)
    PAGE.write_text(page.page(cases, results, COMMAND, machine(*packages, "numpy", "llvmlite")), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
