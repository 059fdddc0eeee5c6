"""Show whether the checker catches wrong rewrites: ``python tools/mutants.py [--list] [--only NAME,...]``.

Each mutant is a deliberately wrong variant of a rewrite of this project (`tools/mutations/`), applied in memory, in a process
of its own. On a small network `ln-opt --check` has to find that the results change, and to name the pass and the pattern;
with the project as it is, nothing may be found on the same network. Prints a table; the exit status is 1 if a mutant
survives, is blamed on another, or is none (it crashes or does not verify, which needs no check).
"""

from __future__ import annotations

import argparse
import multiprocessing
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from mutations import corners, graph, kernels, layouts, lowering, memory, simplify
from mutations.mutant import Mutant, StaleError, install

MUTANTS: tuple[Mutant, ...] = (
    *simplify.MUTANTS, *graph.MUTANTS, *kernels.MUTANTS, *memory.MUTANTS, *lowering.MUTANTS, *layouts.MUTANTS,
    *corners.MUTANTS,
)  # fmt: skip
#: Whether the check compares in a prime field, too (`--exact`).
EXACT = False
#: Seconds for one mutant.
LIMIT = 60
#: What a process imports before a mutant lives in it: nothing of the project.
BEFORE = (
    "numpy", "llvmlite.binding", "xdsl.parser", "xdsl.printer", "xdsl.pattern_rewriter", "xdsl.passes", "xdsl.utils.arg_spec",
    "xdsl.utils.worklist", "xdsl.transforms.dead_code_elimination", "xdsl.irdl.dominance",
    *(f"xdsl.dialects.{name}" for name in ("builtin", "func", "arith", "scf", "cf", "math", "memref", "vector", "tensor")),
)  # fmt: skip

CAUGHT, SURVIVES, MISNAMED, INVALID, WRONG_WITHOUT = "caught", "survives", "misnamed", "invalid", "fails without"


class Result(NamedTuple):
    """The result of a mutant: the verdict, what the check named or said, and the seconds that it took."""

    verdict: str
    detail: str
    seconds: float


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--list", action="store_true", help="list the mutants and stop")
    parser.add_argument("--only", metavar="NAME,...", help="only these mutants")
    parser.add_argument("-j", "--jobs", type=int, default=2, metavar="N", help="processes at a time (default: 2)")
    parser.add_argument(
        "--exact", action="store_true", help="check in a prime field, too, as ln-opt --check=exact does"
    )
    source_options(parser)
    args = parser.parse_args(argv)
    if args.source:
        from mutations import source

        return source.main(args)
    global EXACT  # in each process that is forked
    EXACT = args.exact
    chosen = select(args.only)
    if args.list:
        for m in chosen:
            print(f"{m.name:28s} {who(m.pass_name, m.pattern):44s} {m.what}")
        return 0
    return report(chosen, dict(run(chosen, args.jobs)))


def source_options(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``--source``."""
    group = parser.add_argument_group("faults in source lines")
    group.add_argument("--source", action="store_true", help="judge sampled faults in the lines of the package")
    group.add_argument("--count", type=int, default=600, metavar="N", help="faults (600)")
    group.add_argument("--seed", type=int, default=1, metavar="N", help="which faults (1)")
    group.add_argument("--files", default="", metavar="TEXT", help="only in files whose path contains TEXT")
    group.add_argument("--budget", type=float, default=3600, metavar="S", help="stop after these seconds (3600)")
    group.add_argument("--unnoticed", action="store_true", help="list all faults that no test can notice, and stop")
    group.add_argument("--work", type=Path, metavar="DIR", help="where copies and results are (build/mutants)")
    group.add_argument(
        "--carry", type=Path, metavar="DIR", help="go on with the sample of DIR, a --work of an older project"
    )
    group.add_argument("--cpu", type=float, default=20, metavar="S", help="CPU seconds of tests for one fault (20)")
    group.add_argument(
        "--rest", type=float, default=0, metavar="S", help="CPU seconds of further tests for all survivors at once (0)"
    )
    group.add_argument(
        "--again", nargs="*", metavar="TEST", help="judge survivors once more, by these tests as they are now"
    )
    group.add_argument(
        "--equivalent", nargs=2, action="append", default=[], metavar=("NAME", "WHY"), help="no test can find it"
    )


def select(names: str | None) -> list[Mutant]:
    """The mutants that ``--only`` names."""
    if names is None:
        return list(MUTANTS)
    table = {m.name: m for m in MUTANTS}
    wanted = names.split(",")
    if unknown := [n for n in wanted if n not in table]:
        sys.exit(f"no mutant is called '{unknown[0]}'; --list shows all")
    return [table[n] for n in wanted]


def run(mutants: Sequence[Mutant], jobs: int) -> Iterator[tuple[str, Result]]:
    """The result of each mutant, by name, as they finish in order."""
    for name in BEFORE:
        import_module(name)
    context = multiprocessing.get_context("fork")
    with context.Pool(max(1, jobs), initializer=_quiet, maxtasksperchild=1) as pool:
        healthy = pool.apply_async(without, (mutants,))
        waiting = [(m.name, pool.apply_async(judge, (m,))) for m in mutants]
        faults: dict[str, str] = healthy.get(LIMIT + len(mutants))
        for name, found in waiting:
            try:
                result = found.get(LIMIT)
            except multiprocessing.TimeoutError:
                result = Result(INVALID, f"does not end within {LIMIT} s", float(LIMIT))
            if name in faults:
                result = Result(WRONG_WITHOUT, faults[name], result.seconds)
            yield name, result


def _quiet() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the parent, which ends the pool


def without(mutants: Sequence[Mutant]) -> dict[str, str]:
    """The findings of a check on the networks of mutants with the project as it is, by name: nothing, one hopes."""
    faults = {}
    for mutant in mutants:
        try:
            verdict, detail = check(mutant)
        except Exception as e:
            verdict, detail = INVALID, f"{type(e).__name__}: {e}"
        if verdict != SURVIVES:
            faults[mutant.name] = f"{verdict}: {detail}"
    return faults


def judge(mutant: Mutant) -> Result:
    """The result of one mutant, in a process that has imported nothing of the project."""
    start = time.perf_counter()
    try:
        install(mutant.edits)
        verdict, detail = check(mutant)
    except StaleError as e:
        verdict, detail = INVALID, f"stale: {e}"
    except Exception as e:  # code that is changed may break anywhere
        verdict, detail = INVALID, f"{type(e).__name__}: {e}"
    return Result(verdict, detail, time.perf_counter() - start)


def check(mutant: Mutant) -> tuple[str, str]:
    """The verdict of `--check`: what it says of the mutant's passes on its network."""
    from lightnet.diagnostics import LightNetError
    from lightnet.frontends import mlir
    from lightnet.ir.context import make_context
    from lightnet.ir.passes import parse_pipeline
    from lightnet_trust.check import CheckOptions, run_checked

    ctx = make_context()
    try:
        module = mlir.read(mutant.text, f"{mutant.name}.mlir", ctx)
        verdict = run_checked(ctx, module, parse_pipeline(mutant.passes), CheckOptions(in_field=EXACT))
    except LightNetError as e:
        return INVALID, e.message
    if verdict.ok:
        return SURVIVES, "; ".join(verdict.notes)
    assert verdict.difference is not None and verdict.pass_name is not None
    named = who(verdict.pass_name, verdict.pattern)
    if verdict.difference.kind == "fails":
        return INVALID, f"{named}: {verdict.difference.what}"
    detail = f"{named}: {verdict.difference.what}"
    if (verdict.pass_name, verdict.pattern) != (mutant.pass_name, mutant.pattern):
        return MISNAMED, detail
    return CAUGHT, detail


def who(pass_name: str, pattern: str | None) -> str:
    return f"{pass_name}, {pattern}" if pattern is not None else pass_name


def report(mutants: Sequence[Mutant], results: dict[str, Result]) -> int:
    """Print the table; 1 unless every mutant is caught."""
    print(f"{'mutant':28s} {'pass, pattern':44s} {'verdict':14s}    s  what was named, and found")
    for m in mutants:
        verdict, detail, seconds = results[m.name]
        print(f"{m.name:28s} {who(m.pass_name, m.pattern):44s} {verdict:14s} {seconds:4.1f}  {detail[:140]}")
    counts = Counter(r.verdict for r in results.values())
    print(f"{len(mutants)} mutants: {', '.join(f'{n} {v}' for v, n in counts.most_common())}")
    return 0 if counts[CAUGHT] == len(mutants) else 1


if __name__ == "__main__":
    sys.exit(main())
