"""Set up and use a checkout, with nothing but Python 3.11 on the machine: ``python3 tools/dev.py COMMAND``.

    setup   make the virtual environment .venv with everything in it (done by the others, too)
    demo    run a network
    check   lint, docs, types, FileCheck and the quickest tests (seconds)
    op NAME what concerns one op: its samples on every target, its import and export, FileCheck (seconds)
    suites  types, and the conformance suites against their floor (a minute)
    test    these, the tests, and some fuzzing (minutes); `tests` leaves `suites` out
    full    the same with all tests and all cases, the slow ones too
    docs    write the generated reference pages
    clean   remove what the others made

Of large products of cases, `test` runs a core and a share that the date draws; the date is the seed of the fuzzing, too. It is printed, and
LIGHTNET_SAMPLE=2026-11-22 repeats that day's run. Imports the standard library only. The Makefile has a target of each name but `op`.
``--jobs N`` sets how many processes run tests.
"""

from __future__ import annotations

import argparse
import atexit
import os
import re
import shutil
import subprocess
import sys
import venv
import zlib
from collections.abc import Callable
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
STAMP = VENV / ".installed"
#: What `check` runs: FileCheck, and the tests of single parts.
QUICK = ("filecheck", "registry", "ir_infrastructure", "ln_opt", "json_ir", "notation", "runtime", "passes")
#: What `test` fuzzes beside the tests, whose processes wait for others at times: readers of files for five minutes, and so many cases of others, so that
#: a failure comes again on any machine. `models` is left out, whose oracle still takes rounding for a fault at times (one network in some hundreds).
FUZZED = (("readers", "--minutes", "5"), ("graphs", "calls", "--count", "100", "--minutes", "8"))
#: What draws cases and seeds (tests/sampling.py).
SAMPLE = "LIGHTNET_SAMPLE"
MADE = (
    ".venv",
    "build",
    "dist",
    "lightnet_compiler.egg-info",
    ".pytest_cache",
    ".ruff_cache",
    ".mypy_cache",
    ".hypothesis",
)

#: By a path, not by a finder: that comes behind a folder that is called as the package, as a clone of the project is, for scripts beside it.
EDITABLE = ("-e", ".[dev]", "--config-settings", "editable_mode=compat")


def run(program: str, *arguments: str, **variables: str) -> None:
    """Run a program of the environment; a failure ends this one with its status. Byte code is kept: the tests start hundreds of
    processes, each of which would compile what it imports."""
    status = subprocess.run([str(BIN / program), *arguments], cwd=ROOT, env=environment() | variables).returncode
    if status:
        sys.exit(status)


def environment() -> dict[str, str]:
    """The variables of programs that are started."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def begin(program: str, *arguments: str, waits: bool = False) -> Callable[[], None]:
    """Start a program beside what follows, for which one processor is enough, or what others leave if it `waits`. Gives what waits for it
    and shows what it printed; a failure ends this process with its status."""
    polite = ("nice", "-n", "19") if waits and shutil.which("nice") else ()
    words = [*polite, str(BIN / program), *arguments]
    started = subprocess.Popen(
        words, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    atexit.register(started.kill)  # which does nothing once it has ended

    def finish() -> None:
        print(started.communicate()[0], end="", flush=True)
        if started.returncode:
            sys.exit(started.returncode)

    return finish


def setup() -> None:
    """Make .venv, or bring it up to date with pyproject.toml; the stamp says that it was done."""
    if STAMP.exists() and STAMP.stat().st_mtime >= (ROOT / "pyproject.toml").stat().st_mtime:
        return
    print("setting up .venv (once)", flush=True)
    if not (BIN / "python").exists():
        venv.create(VENV)
    if not installed_by_uv():
        run("python", "-m", "ensurepip", "--upgrade", "--default-pip")
        run("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *EDITABLE)
    STAMP.touch()


def installed_by_uv() -> bool:
    """Return whether uv is there and has installed everything, pip too: it takes a fifth of pip's time."""
    uv = shutil.which("uv")
    words = ["pip", "install", "--quiet", "--python", str(BIN / "python"), *EDITABLE, "pip"]
    return uv is not None and subprocess.run([uv, *words], cwd=ROOT).returncode == 0


def check(jobs: str) -> None:
    """Lint, docs, types, FileCheck and the tests of single parts."""
    types, docs = begin("python", "tools/check_types.py"), begin("python", "tools/docs.py", "--check")
    run("ruff", "check", ".")
    run("ruff", "format", "--check", "--quiet", *packages(), "tests", "tools", "examples")
    run("pytest", "-n", jobs, *map(tests_of, QUICK), **{SAMPLE: "core"})
    docs()
    types()


def packages() -> list[str]:
    """The package, and those that stand beside it."""
    return sorted(path.parent.name for path in ROOT.glob("lightnet*/__init__.py"))


def tests_of(name: str) -> str:
    """The file of tests called `name`, wherever it lies."""
    return next((ROOT / "tests").rglob(f"test_{name}.py")).relative_to(ROOT).as_posix()


def drawn_by(full: bool) -> str:
    """The word that draws cases and seeds, today's date unless somebody repeats a run; printed. Empty where all cases run."""
    word = os.environ.get(SAMPLE) or ("" if full else date.today().isoformat())
    if word:
        print(f"cases and seeds are drawn by {SAMPLE}={word}, which repeats them", flush=True)
    return word


def suites(jobs: str, word: str) -> None:
    """Run the conformance suites, and the type checker beside them."""
    types = begin("python", "tools/check_types.py")
    run("python", "tools/conformance.py", "--check", "--sampled", "--jobs", jobs, **{SAMPLE: word})
    types()


def tests(jobs: str, word: str, full: bool) -> None:
    """Run the tests, and fuzzing beside them, by seeds that follow from the word."""
    digits = word.replace("-", "")  # 20261122
    seed = digits if digits.isdecimal() else str(zlib.crc32(word.encode()) % 10**9)
    seeded = ("--jobs", "1", *(("--seed", seed) if word else ()))
    fuzzing = [begin("python", "tools/fuzz.py", *words, *seeded, waits=True) for words in FUZZED]
    done = ("--deselect", f"{tests_of('conformance')}::test_the_floor_holds")  # a share of these suites
    run("pytest", "-n", jobs, *done, *(() if full else ("-m", "not slow")), **{SAMPLE: word})
    for finish in fuzzing:
        finish()


def op(name: str, jobs: str) -> None:
    """Run what concerns one op; the files whose text neither has its name nor goes through all ops are not read."""
    every = re.compile(
        rf"\b{re.escape(name)}\b|\boptypes\(\)|\bFAMILIES\b|\bEXAMPLES\b|op_cases|kernel_cases|collect\("
    )
    files = [p for p in sorted((ROOT / "tests").rglob("test_*.py")) if every.search(p.read_text("utf-8"))]
    run("pytest", "-n", jobs, "--op", name, "-m", "not slow", *map(str, files))


def clean() -> None:
    """Remove what the other commands made."""
    for name in MADE:
        shutil.rmtree(ROOT / name, ignore_errors=True)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "command", choices=("setup", "demo", "check", "op", "suites", "tests", "test", "full", "docs", "clean")
    )
    parser.add_argument("name", nargs="?", help="the op, of `op`")
    parser.add_argument("--jobs", default=os.environ.get("JOBS", "2"), help="processes that run tests (2)")
    args = parser.parse_args()
    if sys.version_info < (3, 11):  # noqa: UP036 (the file runs before anything is installed)
        sys.exit("error: Python 3.11 or newer is needed")
    if (args.command == "op") != (args.name is not None):
        parser.error("`op` needs the name of an op, and nothing else takes one")
    if args.command == "clean":
        return clean()
    setup()
    if args.command == "demo":
        run("python", "examples/squeezedet.py")
    elif args.command == "docs":
        run("python", "tools/docs.py")
    elif args.command == "check":
        check(args.jobs)
    elif args.command == "op":
        op(args.name, args.jobs)
    elif args.command != "setup":
        full = args.command == "full"
        word = drawn_by(full)
        if args.command != "tests":
            suites(args.jobs, word)
        if args.command != "suites":
            tests(args.jobs, word, full)


if __name__ == "__main__":
    main()
