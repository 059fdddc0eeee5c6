"""Find out which rewrites are exact: ``python tools/exactness.py [--record] [FILE...]``.

Runs the pipelines of the FileCheck tests, the networks of the mutants and the examples with `--check=exact` after each rewrite.
A pattern is ``exact`` where what it makes is, as a formula, what was there, ``in floats`` where it is only nearly; those that no
network here has are left out. Prints a table; `--record` writes `tests/data/exactness.json`, which docs/patterns.md shows.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "tests/data/exactness.json"
EXACT, IN_FLOATS = "exact", "in floats"
#: What the networks that are examples go through.
EXAMPLES = ("@cpu:plan", "bind,simplify,fold-batchnorm,simplify")
NETWORKS = ("cnn.net", "example.net", "nets/lenet.net", "nets/mlp.net")


class Subject(NamedTuple):
    """A module to run passes on: what it is called, its text (or the path of an example), the pipeline and the target."""

    name: str
    text: str
    is_il: bool
    passes: str
    target: str


def subjects() -> Iterator[Subject]:
    """All that is run."""
    from mutants import MUTANTS

    for m in MUTANTS:
        yield Subject(m.name, m.text, False, m.passes, "cpu")
    for path in sorted((ROOT / "tests/filecheck").rglob("*.mlir")):
        text = path.read_text("utf-8")
        for line in dict.fromkeys(re.findall(r"RUN: (ln-opt [^|>]*)", text)):
            found = re.search(r"--pass='?([^'\s]+)", line)
            target = re.search(r"(?:-t|--target)[ =](\w+)", line)
            if found is None:
                continue
            for k, part in enumerate(text.split("// -----") if "--split-input-file" in line else [text]):
                yield Subject(f"{path.stem}.{k}", part, False, found[1], target[1] if target else "cpu")
    for name in NETWORKS:
        for passes in EXAMPLES:
            yield Subject(name, str(ROOT / "examples" / name), True, passes, "cpu")


def measured(subject: Subject) -> dict[str, str]:
    """By pattern that the passes apply, whether all its rewrites were exact. Raises `LightNetError` for what does not run."""
    import lightnet
    from lightnet.frontends import mlir
    from lightnet.ir.context import make_context
    from lightnet.ir.passes import parse_pipeline, run_pipeline
    from lightnet_trust.check import Checker, CheckOptions

    found: dict[str, str] = {}

    class Watch(Checker):
        """Takes note of each rewrite, and goes on."""

        def rewrote(self, rewrite) -> None:
            rounds = self.options.rounding_of(self._current[0]) is not None
            found[rewrite.pattern] = IN_FLOATS if rounds else found.get(rewrite.pattern, EXACT)
            super().rewrote(rewrite)

        def is_lawful(self, difference, pass_, pattern) -> bool:
            if difference.kind != "exact" or pattern is None or difference.tensor in self.baseline.in_floats:
                return False
            found[pattern] = IN_FLOATS
            self.baseline.in_floats.add(difference.tensor)
            return True

    if subject.is_il:
        net = lightnet.load(subject.text)
        ctx, module = net.ctx, net.module
    else:
        ctx = make_context()
        module = mlir.read(subject.text, subject.name, ctx)
    watch = Watch(ctx, CheckOptions(("ordinary",), in_field=True), each_rewrite=True)
    run_pipeline(ctx, module, parse_pipeline(subject.passes, {"target": subject.target}), [watch])
    return found


def all_measured() -> tuple[dict[str, str], list[str]]:
    """By pattern, whether it was exact wherever it applied; and what did not run, and why."""
    from lightnet.diagnostics import LightNetError

    found: dict[str, str] = {}
    failed: list[str] = []
    for subject in subjects():
        try:
            for pattern, how in measured(subject).items():
                if how == IN_FLOATS or pattern not in found:
                    if how == IN_FLOATS and found.get(pattern) != IN_FLOATS:
                        failed.append(f"{subject.name} [{subject.passes}]: {pattern} is in floats")
                    found[pattern] = how
        except LightNetError as e:
            failed.append(f"{subject.name} [{subject.passes}]: {e.message[:150]}")
        except Exception as e:
            failed.append(f"{subject.name} [{subject.passes}]: {type(e).__name__} {e!s:.100}")
    return dict(sorted(found.items())), failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--record", action="store_true", help=f"write {RECORD.relative_to(ROOT)}")
    args = parser.parse_args()
    found, failed = all_measured()
    for pattern, how in found.items():
        print(f"{pattern:40s} {how}")
    for line in failed:
        print(line, file=sys.stderr)
    if args.record:
        RECORD.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
