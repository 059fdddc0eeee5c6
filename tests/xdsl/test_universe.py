"""What `xdsl-opt` finds of LightNet by the entry point in pyproject.toml, and that it does what ln-opt does."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
from xdsl.universe import Universe
from xdsl.xdsl_opt_main import xDSLOptMain

from lightnet.cli.ln_opt import main as ln_opt
from lightnet.ir.context import OURS, make_context
from lightnet.ir.parser import parse_mlir
from lightnet.ir.registry import PASSES

ROOT = Path(__file__).parents[2]
NET = ROOT / "examples" / "nets" / "lenet.net"


@pytest.fixture
def xdsl_opt(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """`xdsl-opt` where xDSL and this project are installed, however the environment came about: what it prints."""
    group = "xdsl.universe"
    rows = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"][group]
    found = [*metadata.distribution("xdsl").entry_points.select(group=group)]
    found += [metadata.EntryPoint(name, value, group) for name, value in rows.items()]
    monkeypatch.setattr(metadata, "entry_points", lambda **which: found if which == {"group": group} else [])

    def run(*words: str) -> str:
        capsys.readouterr()
        xDSLOptMain(args=list(words)).run()
        return capsys.readouterr().out

    return run


def written(tmp_path: Path, *words: str) -> Path:
    """What ln-opt writes."""
    out = tmp_path / "out.mlir"
    assert ln_opt([str(NET), *words, "-o", str(out)]) == 0
    return out


def text_of(path_or_text: Path | str) -> str:
    """A module as xDSL prints it, read from ln-opt's text or from xdsl-opt's."""
    text = path_or_text.read_text("utf-8") if isinstance(path_or_text, Path) else path_or_text
    return str(parse_mlir(make_context(), text))


def test_everything_is_in_it(xdsl_opt: Callable[..., str]) -> None:
    """All our dialects and passes, each under its own name; xDSL would refuse a name that it has itself."""
    universe = Universe.get_multiverse()
    assert {*OURS} < {*universe.all_dialects} and {*PASSES} < {*universe.all_passes}
    assert {name: universe.all_passes[name]().name for name in PASSES} == {name: name for name in PASSES}
    assert {name: universe.all_dialects[name]().name for name in OURS} == {name: name for name in OURS}


def test_passes_one_by_one(xdsl_opt: Callable[..., str], tmp_path: Path) -> None:
    passes = "simplify,expand{target=cpu},combine{target=cpu}"
    net = written(tmp_path)
    assert text_of(xdsl_opt(str(net), "-p", passes)) == text_of(written(tmp_path, f"--pass={passes}"))


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_pipeline_by_its_name(target: str, xdsl_opt: Callable[..., str], tmp_path: Path) -> None:
    net = written(tmp_path)
    printed = xdsl_opt(str(net), "-p", f'ln-pipeline{{passes="@{target}:plan" target={target}}}')
    assert "ln.memory" in printed
    assert text_of(printed) == text_of(written(tmp_path, f"--pass=@{target}:plan", "-t", target))


def test_a_target_emits(xdsl_opt: Callable[..., str], tmp_path: Path) -> None:
    lowered = written(tmp_path, "--pass=@cpu")
    printed = xdsl_opt(str(lowered), "-t", "lightnet{target=cpu form=llvm}")
    out = tmp_path / "net.ll"
    assert ln_opt([str(lowered), "--emit=llvm", "-o", str(out)]) == 0
    assert "define" in printed and printed.strip() == out.read_text("utf-8").strip()


def test_a_mistake_is_named(xdsl_opt: Callable[..., str], tmp_path: Path) -> None:
    net = written(tmp_path)
    with pytest.raises(Exception, match="emits planned networks"):
        xdsl_opt(str(net), "-t", "lightnet{form=llvm}")
    with pytest.raises(Exception, match="unknown pass 'expnad'; did you mean 'expand'"):
        xdsl_opt(str(net), "-p", 'ln-pipeline{passes="expnad"}')
