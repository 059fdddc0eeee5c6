"""What is published: the runtime's modules are those that NumPy suffices for, both wheels install, and a network runs from each."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import lightnet

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import wheels  # noqa: E402

NET = ROOT / "examples" / "cnn.net"
RUN = """
import sys
import numpy as np
import lightnet
run = lightnet.load_executable(sys.argv[1])
np.savez(sys.argv[2], **run({"picture": np.load(sys.argv[3])}))
assert not {"xdsl", "llvmlite"} & set(sys.modules)
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, np.ndarray]]:
    """A saved executable, a picture in a file, and what the compiler's own executable gives for it."""
    folder = tmp_path_factory.mktemp("saved")
    executable = lightnet.compile(NET)
    executable.save(folder / "cnn.lnx")
    picture = np.random.default_rng(3).normal(size=(1, 3, 32, 32)).astype(np.float32)
    np.save(folder / "x.npy", picture)
    return folder / "cnn.lnx", folder / "x.npy", executable({"picture": picture})


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Where lightnet-runtime's modules and NumPy are, and nothing else is."""
    tree = tmp_path_factory.mktemp("runtime")
    wheels.lay_out_runtime(tree)
    beside = tmp_path_factory.mktemp("numpy")
    site = Path(np.__file__).parent.parent
    for name in ("numpy", "numpy.libs"):
        if (site / name).exists():
            (beside / name).symlink_to(site / name)
    return str(tree), str(beside)


def alone(runtime: tuple[str, ...], *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run Python where there is nothing but the runtime, NumPy and the standard library."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(runtime), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-S", *arguments], capture_output=True, text=True, env=env, cwd=cwd, timeout=120
    )


def test_runtime_runs_what_the_compiler_saved(runtime: tuple[str, ...], saved: tuple, tmp_path: Path) -> None:
    path, picture, expected = saved
    done = alone(runtime, "-c", RUN, str(path), str(tmp_path / "out.npz"), str(picture), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = np.load(tmp_path / "out.npz")
    assert set(found) == set(expected) and all(np.array_equal(found[k], v) for k, v in expected.items())


def test_runtime_has_the_command(runtime: tuple[str, ...], saved: tuple, tmp_path: Path) -> None:
    """`run` of an executable; what needs the compiler says which distribution has it, in one line."""
    command = "import sys; from lightnet.cli.lightnet import main; sys.exit(main(sys.argv[1:]))"
    done = alone(runtime, "-c", command, "run", str(saved[0]), "-i", "random", cwd=tmp_path)
    assert done.returncode == 0 and "output" in done.stdout, done.stderr
    others = [["run", str(saved[0]), "-i", "random", "--profile"], ["run", str(NET)], ["inspect", str(NET)]]
    for words in (["compile", str(NET)], [str(NET)], *others):
        done = alone(runtime, "-c", command, *words, cwd=tmp_path)
        assert done.returncode == 1 and done.stderr.startswith("error: this needs the compiler"), (words, done.stderr)
        assert "pip install lightnet-compiler" in done.stderr and done.stderr.count("\n") == 1
    done = alone(runtime, "-c", "import lightnet; lightnet.compile('x.net')", cwd=tmp_path)
    assert "LightNetError: error: this needs the compiler" in done.stderr


def test_runtime_compares_outputs(runtime: tuple[str, ...], saved: tuple, tmp_path: Path) -> None:
    """With arrays of a file, for which NumPy suffices."""
    path, picture, expected = saved
    command = "import sys; from lightnet.cli.lightnet import main; sys.exit(main(sys.argv[1:]))"
    for share, status in ((1, 0), (2, 1)):
        np.savez(tmp_path / "want.npz", **{name: share * array for name, array in expected.items()})
        words = ("run", str(path), "-i", f"picture=@{picture}", "--compare", "want.npz")
        done = alone(runtime, "-c", command, *words, cwd=tmp_path)
        assert done.returncode == status and ("agrees" if share == 1 else "DIFFERS") in done.stdout, done.stderr


def test_runtime_emulates_with_the_interpreter_beside(runtime: tuple[str, ...], tmp_path: Path) -> None:
    """Without it, the error says what to install."""
    lightnet.compile(ROOT / "examples" / "nets" / "mlp.net", "cuda").save(tmp_path / "net.lnx")
    wheels.lay_out_interpreter(tmp_path / "ptx")
    command = "import sys; from lightnet.cli.lightnet import main; sys.exit(main(sys.argv[1:]))"
    words = ("-c", command, "run", "net.lnx", "--emulate", "-i", "random")
    done = alone(runtime, *words, cwd=tmp_path)
    assert done.returncode == 1 and done.stderr.startswith("net.lnx: error: emulation needs"), done.stderr
    done = alone((*runtime, str(tmp_path / "ptx")), *words, cwd=tmp_path)
    assert done.returncode == 0 and "output" in done.stdout, done.stderr


SERVE = """
import asyncio, sys
from lightnet_serving import command as serve
from lightnet_serving.app import Service, make_app
args = serve._parser().parse_args(sys.argv[1:])
make_app(Service(serve._sources(args), serve._options(args)).open())
assert not {"xdsl", "llvmlite"} & set(sys.modules)
"""


def test_runtime_serves(runtime: tuple[str, ...], saved: tuple, tmp_path: Path) -> None:
    """`serve` says what it needs, and needs no more than that."""
    command = "import sys; from lightnet.cli.lightnet import main; sys.exit(main(sys.argv[1:]))"
    done = alone(runtime, "-c", command, "serve", str(saved[0]), cwd=tmp_path)
    needs = (
        "error: `lightnet serve` needs starlette, uvicorn, prometheus_client: pip install 'lightnet-runtime[serve]'\n"
    )
    assert done.returncode == 1 and done.stderr == needs
    for name in ("starlette", "prometheus_client", "anyio", "typing_extensions", "idna", "sniffio"):
        origin = Path(getattr(find_spec(name), "origin", None) or "none")
        where = origin.parent if origin.stem == "__init__" else origin
        if where.exists():
            (tmp_path / where.name).symlink_to(where)
        elif name in ("starlette", "prometheus_client"):
            pytest.skip(f"{name} is not installed")
    done = alone((*runtime, str(tmp_path)), "-c", SERVE, str(saved[0]), cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_runtime_is_a_closed_part() -> None:
    """What its modules import when they are imported, it has; the compiler's anchors it has not."""
    imports = wheels.Imports()
    names = set(imports.reached(wheels.ENTRIES))
    inside = {n for m in names for n in imports.always[m] if n in imports.files}
    assert inside <= names and names < set(imports.files)
    assert {"lightnet.runtime.artifact", "lightnet.runtime.cuda.libcuda", "lightnet.cli.run"} <= names
    assert not {"lightnet.compiler", "lightnet.ir.op", "lightnet.backends.llvm.jit"} & names


def test_what_an_import_is(tmp_path: Path) -> None:
    """At the top, under conditions, relative, of packages above; not for a type checker; later, inside of functions."""
    package = tmp_path / "lightnet"
    (package / "a").mkdir(parents=True)
    (package / "__init__.py").write_text("import json\n")
    (package / "a" / "__init__.py").write_text("")
    (package / "a" / "b.py").write_text(
        "from typing import TYPE_CHECKING\nfrom . import c\ntry:\n    import numpy\nexcept ImportError:\n    pass\n"
        "if TYPE_CHECKING:\n    import xdsl\ndef f():\n    from lightnet.a import d\n"
    )
    (package / "a" / "c.py").write_text("")
    (package / "a" / "d.py").write_text("class D:\n    import llvmlite.binding\n")
    imports = wheels.Imports(tmp_path)
    assert imports.always["lightnet.a.b"] == {"lightnet", "lightnet.a", "lightnet.a.c", "typing", "numpy"}
    assert imports.later["lightnet.a.b"] == {"lightnet.a.d"}
    assert set(imports.reached(["lightnet.a.b"])) == {"lightnet", "lightnet.a", "lightnet.a.b", "lightnet.a.c"}


def test_pages_name_our_distributions() -> None:
    """`lightnet` on PyPI is another project: nothing tells people to install it."""
    pages = [p for folder in ("docs", "examples", "editors", "lightnet", "tools") for p in (ROOT / folder).rglob("*")
             if p.suffix in (".md", ".py", ".toml", ".ipynb", ".json")]  # fmt: skip
    for page in [ROOT / "README.md", *pages]:
        for line in page.read_text("utf-8", "replace").splitlines():
            if "pip install" in line:
                words = line.split("pip install", 1)[1].partition("`")[0].replace("'", " ").replace('"', " ").split()
                assert not any(w == "lightnet" or w.startswith("lightnet[") for w in words), f"{page}: {line}"


def test_the_version_is_the_one_of_the_changes() -> None:
    """It counts: the first section is this version, and they only rise."""
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    versions = [tuple(map(int, v)) for v in re.findall(r"^## (\d+)\.(\d+)\.(\d+)$", text, re.MULTILINE)]
    assert ".".join(map(str, versions[0])) == lightnet.__version__
    assert versions == sorted(set(versions), reverse=True) and len(versions) == text.count("\n## ")


@pytest.mark.slow
@pytest.mark.parametrize("name", wheels.DISTRIBUTIONS)
def test_wheels_install(name: str, saved: tuple, tmp_path: Path) -> None:
    """In a clean environment, with what they depend on; the runtime brings NumPy and nothing else."""
    parts = [wheels.RUNTIME, name] if name == wheels.INTERPRETER else [name]
    built = [str(wheels.build(part, tmp_path / "dist")) for part in parts]
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    done = subprocess.run([str(python), "-m", "pip", "install", "-q", *built], capture_output=True, text=True)
    if done.returncode and "No matching distribution" in done.stderr:
        pytest.skip(f"no package index: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    freeze = subprocess.run(
        [str(python), "-m", "pip", "list", "--format=freeze"], capture_output=True, text=True
    ).stdout
    packages = {line.partition("==")[0] for line in freeze.split()} - {"pip", "setuptools"}
    assert "xdsl" in packages if name == wheels.COMPILER else packages == {*parts, "numpy"}
    path, picture, expected = saved
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    if name == wheels.COMPILER:
        path = tmp_path / "again.lnx"
        shutil.copy(NET, tmp_path)
        command = [str(python.with_name("lightnet")), "compile", "cnn.net", "-o", str(path)]
        subprocess.run(command, check=True, cwd=tmp_path, env=env)
    if name != wheels.RUNTIME:
        subprocess.run([str(python), "-c", "import lightnet_ptx.emulator"], check=True, cwd=tmp_path, env=env)
    words = [str(python), "-c", RUN, str(path), str(tmp_path / "out.npz"), str(picture)]
    subprocess.run(words, check=True, cwd=tmp_path, env=env)
    found = np.load(tmp_path / "out.npz")
    assert all(np.array_equal(found[k], v) for k, v in expected.items())


def test_the_source_distribution_has_what_pages_link_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file that a page of the checkout names by a link is one that MANIFEST.in takes, and so is each page."""
    monkeypatch.chdir(ROOT)  # where patterns are looked up
    filelist = pytest.importorskip("setuptools.command.egg_info").FileList()
    pages = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("examples/**/*.md"),
        *ROOT.glob("editors/**/*.md"),
    ]
    linked = {str(page.relative_to(ROOT)): str(page.relative_to(ROOT)) for page in pages}
    for page in pages:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            if "://" not in target and (path := (page.parent / target).resolve()).is_relative_to(ROOT):
                files = (
                    [path]
                    if path.is_file()
                    else [p for p in path.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
                )
                linked |= {str(p.relative_to(ROOT)): str(page.relative_to(ROOT)) for p in files}
    assert {"CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md", "editors/README.md"} & linked.keys() >= {
        "CHANGELOG.md",
        "SECURITY.md",
    }
    filelist.allfiles = list(linked)
    for line in (ROOT / "MANIFEST.in").read_text().splitlines():
        filelist.process_template_line(line)
    packages = {path.parent.name for path in ROOT.glob("lightnet*/__init__.py")}
    packaged = {name for name in linked if name.split("/")[0] in packages and name.endswith(".py")}
    assert not {
        name: page for name, page in linked.items() if name not in {*filelist.files, *packaged, "pyproject.toml"}
    }
