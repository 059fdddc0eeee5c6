"""Set up and use a checkout, with nothing but Python 3.11 on the machine: ``python3 tools/dev.py COMMAND``.

    setup   make the virtual environment .venv with everything in it (done by the others, too)
    demo    run a network
    check   lint, docs, types, FileCheck and the quickest tests (seconds)
    test    the conformance suites against their floor, and the tests (minutes)
    full    the same with all tests, the slow ones too
    docs    write the generated reference pages
    clean   remove what the others made

Imports the standard library only. The Makefile has a target of each name. ``--jobs N`` sets how many processes run tests.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
STAMP = VENV / ".installed"
#: What `check` runs: FileCheck, and the tests of single parts.
QUICK = ("filecheck", "registry", "ir_infrastructure", "ln_opt", "json_ir", "notation", "runtime", "passes")
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


def run(program: str, *arguments: str) -> None:
    """Run a program of the environment; a failure ends this one with its status. Byte code is kept: the tests start hundreds of
    processes, each of which would compile what it imports."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    status = subprocess.run([str(BIN / program), *arguments], cwd=ROOT, env=environment).returncode
    if status:
        sys.exit(status)


def setup() -> None:
    """Make .venv, or bring it up to date with pyproject.toml; the stamp says that it was done."""
    if STAMP.exists() and STAMP.stat().st_mtime >= (ROOT / "pyproject.toml").stat().st_mtime:
        return
    print("setting up .venv (once)", flush=True)
    if not (BIN / "python").exists():
        venv.create(VENV, with_pip=True)
    run("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-e", ".[dev]")
    STAMP.touch()


def clean() -> None:
    """Remove what the other commands made."""
    for name in MADE:
        shutil.rmtree(ROOT / name, ignore_errors=True)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("setup", "demo", "check", "test", "full", "docs", "clean"))
    parser.add_argument("--jobs", default=os.environ.get("JOBS", "2"), help="processes that run tests (2)")
    args = parser.parse_args()
    if sys.version_info < (3, 11):  # noqa: UP036 (the file runs before anything is installed)
        sys.exit("error: Python 3.11 or newer is needed")
    if args.command == "clean":
        return clean()
    setup()
    if args.command == "demo":
        run("python", "examples/squeezedet.py")
    elif args.command == "docs":
        run("python", "tools/docs.py")
    elif args.command == "check":
        run("ruff", "check", ".")
        run("ruff", "format", "--check", "--quiet", "lightnet", "tests", "tools", "examples")
        run("python", "tools/docs.py", "--check")
        run("python", "tools/check_types.py")
        run("pytest", "-n", args.jobs, *(f"tests/test_{name}.py" for name in QUICK))
    elif args.command in ("test", "full"):
        run("python", "tools/check_types.py")
        run("python", "tools/conformance.py", "--check", "--jobs", args.jobs)
        done = ("--deselect", "tests/test_conformance.py::test_the_floor_holds")  # a share of these suites
        run("pytest", "-n", args.jobs, *done, *(("-m", "not slow") if args.command == "test" else ()))


if __name__ == "__main__":
    main()
