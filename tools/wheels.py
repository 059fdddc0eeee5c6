"""Build what is published: ``python tools/wheels.py [-o DIR] [--only NAME]``.

Three distributions come from this tree. An environment takes the compiler, or the runtime, which are both the import package `lightnet`.

    lightnet-compiler   all of it, with the packages that stand beside
    lightnet-runtime    what runs saved executables (`.lnx`), which needs NumPy alone, with lightnet_serving
    lightnet-ptx        the PTX interpreter, lightnet_ptx, for an environment with the runtime

What belongs to the runtime is read off the imports, and listed nowhere: every module that its entry points reach and that Python's
standard library and NumPy suffice to import. Wheels are pure Python; pip and setuptools make them.
"""

from __future__ import annotations

import argparse
import ast
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE, PTX = "lightnet", "lightnet_ptx"


def _packages(root: Path) -> list[str]:
    """All that comes from a tree: the package, and those that stand beside it."""
    return sorted(path.parent.name for path in root.glob(f"{PACKAGE}*/__init__.py"))


#: What the runtime is there for: `lightnet.load_executable`, and the commands that take an executable.
ENTRIES = (
    PACKAGE,
    "lightnet.runtime.artifact",
    "lightnet.runtime.listed",
    "lightnet.runtime.rows",
    "lightnet.cli.lightnet",
    "lightnet.cli.run",
    "lightnet.cli.inspect",
    "lightnet_debug.command",
    "lightnet_serving.command",
)
#: The extras that it has, too: packages that it imports inside of functions.
EXTRAS = ("sign", "serve")
#: What they may import beside the standard library.
ALLOWED = frozenset({"numpy", *sys.stdlib_module_names})
COMPILER, RUNTIME, INTERPRETER = "lightnet-compiler", "lightnet-runtime", "lightnet-ptx"


#: A row of a table, which is imported by its name: a target's runtime (`ir/registry.py`), or a form of code (`runtime/formats.py`).
_ROW = re.compile(r"(lightnet(?:\.\w+)+:RUNTIME|lightnet\.runtime(?:\.\w+)+:\w+)")


class Imports:
    """The imports of the packages' modules: `always`, when they are imported themselves, and `later`, inside of
    functions.
    """

    def __init__(self, root: Path = ROOT):
        self.root = root
        self.packages = _packages(root)
        paths = sorted(path for name in self.packages for path in (root / name).rglob("*.py"))
        self.files = {_module(path.relative_to(root)): path for path in paths}
        self.always: dict[str, set[str]] = {}
        self.later: dict[str, set[str]] = {}
        for name, path in self.files.items():
            self.always[name], self.later[name] = _above(name), set()
            self._read(ast.parse(path.read_text()), name, self.always[name])

    def _read(self, node: ast.AST, module: str, found: set[str]) -> None:
        for child in ast.iter_child_nodes(node):
            match child:
                case ast.Import():
                    found.update(alias.name for alias in child.names)
                case ast.ImportFrom():
                    parent = module.split(".")[: -child.level] if child.level else []
                    origin = ".".join([*parent, *([child.module] if child.module else [])])
                    names = {f"{origin}.{alias.name}" for alias in child.names}
                    found.update({n for n in names if n in self.files} or {origin})
                case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                    for other in child.orelse:
                        self._read(other, module, found)
                case ast.Constant(value=str(text)) if match := _ROW.fullmatch(text):
                    self.later[module].add(match[1].partition(":")[0])
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                    self._read(child, module, self.later[module])
                case _:
                    self._read(child, module, found)

    def light(self) -> frozenset[str]:
        """The modules that can be imported with what is `ALLOWED` alone."""
        heavy = {m for m, names in self.always.items() if any(self._is_foreign(n) for n in names)}
        while more := {m for m, names in self.always.items() if m not in heavy and names & heavy}:
            heavy |= more
        return frozenset(self.files) - heavy

    def _is_foreign(self, name: str) -> bool:
        return name not in self.files and name.partition(".")[0] not in {*self.packages, *ALLOWED}

    def reached(self, entries: Iterable[str]) -> Iterator[str]:
        """The light modules that `entries` import, at once or later."""
        light, seen, waiting = self.light(), set(), list(entries)
        while waiting:
            name = waiting.pop()
            if name in light and name not in seen:
                seen.add(name)
                yield name
                waiting += self.always[name] | self.later[name]


def _module(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _above(name: str) -> set[str]:
    """The packages that a module is in, which are imported before it."""
    parts = name.split(".")
    return {".".join(parts[:n]) for n in range(1, len(parts))}


@cache
def runtime_files() -> list[Path]:
    """The source files of lightnet-runtime."""
    imports = Imports()
    return sorted(imports.files[name] for name in imports.reached(ENTRIES))


def lay_out_runtime(folder: Path) -> None:
    """Write the source tree of lightnet-runtime into an empty folder: its modules, its licence, and its own pyproject.toml."""
    for path in runtime_files():
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    _about(folder, DESCRIPTION, _metadata())


def lay_out_interpreter(folder: Path) -> None:
    """Write the source tree of lightnet-ptx into an empty folder."""
    shutil.copytree(ROOT / PTX, folder / PTX, ignore=_MADE)
    _about(folder, INTERPRETER_DESCRIPTION, _interpreter_metadata())


def _about(folder: Path, description: str, metadata: str) -> None:
    """Write what every source tree has beside its modules."""
    for name in ("LICENSE", "NOTICE"):
        shutil.copyfile(ROOT / name, folder / name)
    (folder / "README.md").write_text(description)
    (folder / "pyproject.toml").write_text(metadata)


#: What Python writes beside modules.
_MADE = shutil.ignore_patterns("__pycache__")

DESCRIPTION = """# lightnet-runtime

Runs networks that LightNet has compiled (`lightnet compile net.onnx -o net.lnx`, of the distribution lightnet-compiler), with NumPy alone:

```python
import lightnet
run = lightnet.load_executable("net.lnx")
outputs = run({"x": picture})
```

It holds modules that lightnet-compiler holds as well: an environment takes one of the two. A `.lnx` is machine code: run those that you trust.
"""


INTERPRETER_DESCRIPTION = """# lightnet-ptx

The PTX interpreter of LightNet, beside lightnet-runtime: `lightnet run net.lnx --emulate` runs the code of a network for CUDA without a device, and finds
races, missing barriers, accesses out of bounds and reads of what was never written. lightnet-compiler holds it as well.
"""


def _ours() -> dict[str, Any]:
    """The compiler's pyproject.toml."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        return tomllib.load(file)


def _version() -> str:
    """The version of what is here, which may not be what is installed."""
    (version,) = re.findall(
        r'^__version__ = "(.+)"$', (ROOT / PACKAGE / "__init__.py").read_text("utf-8"), re.MULTILINE
    )
    return version


def _interpreter_metadata() -> str:
    """The pyproject.toml of lightnet-ptx, which goes with a runtime of the same version."""
    ours = _ours()
    project = ours["project"]
    needs = [f"{RUNTIME}=={_version()}", *_numpy(project)]
    return f"""{_head(ours, INTERPRETER, "An interpreter of PTX in NumPy, which runs what LightNet compiled for CUDA")}
version = {_version()!r}
dependencies = {needs!r}

[tool.setuptools]
packages = [{PTX!r}]

[tool.setuptools.package-data]
"*" = ["py.typed"]
"""


def _numpy(project: dict[str, Any]) -> list[str]:
    return [d for d in project["dependencies"] if d.startswith("numpy")]


def _head(ours: dict[str, Any], name: str, description: str) -> str:
    """The part of the metadata that is in common with the compiler's."""
    project = ours["project"]
    return f"""[build-system]
requires = {ours["build-system"]["requires"]!r}
build-backend = {ours["build-system"]["build-backend"]!r}

[project]
name = {name!r}
description = {description!r}
readme = "README.md"
requires-python = {project["requires-python"]!r}
license = {project["license"]!r}
license-files = {project["license-files"]!r}
authors = [{{ name = {project["authors"][0]["name"]!r} }}]
classifiers = {project["classifiers"]!r}"""


def _metadata() -> str:
    """The pyproject.toml of lightnet-runtime, from that of the compiler."""
    ours = _ours()
    project = ours["project"]
    extras = {name: project["optional-dependencies"][name] for name in EXTRAS}
    return f"""{_head(ours, RUNTIME, "Runs networks that LightNet has compiled, with NumPy alone")}
version = {_version()!r}
dependencies = {_numpy(project)!r}

[project.optional-dependencies]
{chr(10).join(f"{name} = {needs!r}" for name, needs in extras.items())}

[project.scripts]
lightnet = {project["scripts"]["lightnet"]!r}

[tool.setuptools.packages.find]
include = ["{PACKAGE}*"]
"""


def lay_out_compiler(folder: Path) -> None:
    """Copy what lightnet-compiler is built from into a folder: setuptools leaves files where it works, and takes along what it finds."""
    for name in _packages(ROOT):
        shutil.copytree(ROOT / name, folder / name, ignore=_MADE)
    for name in ("LICENSE", "NOTICE", "README.md", "pyproject.toml"):
        shutil.copyfile(ROOT / name, folder / name)


DISTRIBUTIONS = {COMPILER: lay_out_compiler, RUNTIME: lay_out_runtime, INTERPRETER: lay_out_interpreter}


def build(name: str, folder: Path) -> Path:
    """The wheel of a distribution, written into `folder`. Raises CalledProcessError where pip fails."""
    options = ["--quiet", "--disable-pip-version-check", "--no-deps"]
    if find_spec("setuptools") and int(metadata.version("setuptools").partition(".")[0]) >= 77:
        options.append("--no-build-isolation")  # nothing to download
    with tempfile.TemporaryDirectory() as tree:
        source, made = Path(tree) / "source", Path(tree) / "wheel"
        source.mkdir()
        DISTRIBUTIONS[name](source)
        subprocess.run(
            [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(made), str(source)], check=True
        )
        (wheel,) = made.glob("*.whl")
        folder.mkdir(parents=True, exist_ok=True)
        return Path(shutil.move(wheel, folder / wheel.name))


def main(argv: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "-o", "--output", type=Path, default=ROOT / "dist", metavar="DIR", help="where wheels go (dist)"
    )
    parser.add_argument("--only", choices=DISTRIBUTIONS, help="only one of them")
    args = parser.parse_args(argv)
    for name in [args.only] if args.only else DISTRIBUTIONS:
        wheel = build(name, args.output)
        print(f"{wheel}: {wheel.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
