"""The server for programs: its tools by the SDK's client in memory, and what a request may not do."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")
import anyio
from mcp import Client

from lightnet.diagnostics import LightNetError
from lightnet_mcp import __main__ as command
from lightnet_mcp.bench import Bench, Bounds, pipeline
from lightnet_mcp.server import make_server
from lightnet_trust import verdicts

ROOT = Path(__file__).parent.parent.parent
PLANTED = ROOT / "tests" / "trust" / "planted_bugs.py"
TOOLS = {"check", "bisect", "isolate", "reduce", "compare", "inspect", "passes"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "nets"
    (folder / "sub").mkdir(parents=True)
    shutil.copy(ROOT / "examples" / "cnn.net", folder / "cnn.net")
    (folder / "sub" / "bad.mlir").write_text("func.func @main() { ln.nothing }")
    (folder / "code.lnx").write_bytes(b"")
    (tmp_path / "secret.net").write_text("secret")
    (folder / "link.net").symlink_to(tmp_path / "secret.net")
    return folder


def called(bench: Bench, tool: str, **arguments: Any) -> dict[str, Any]:
    """The answer of a tool, as a client of the protocol gets it."""

    async def ask() -> Any:
        async with Client(make_server(bench)) as client:
            return await client.call_tool(tool, arguments)

    answer = anyio.run(ask)
    assert not answer.is_error, answer
    told = json.loads(answer.content[0].text)
    assert answer.structured_content in (told, {"result": told})
    assert told["tool"] == tool and set(verdicts.COMMON) <= told.keys()
    if validator := pytest.importorskip("jsonschema"):
        validator.validate(told, verdicts.SCHEMA)
    return told


def test_the_tools_say_what_they_do(root: Path) -> None:
    async def ask() -> Any:
        async with Client(make_server(Bench(root))) as client:
            return await client.list_tools()

    tools = anyio.run(ask).tools
    assert {tool.name for tool in tools} == TOOLS and all(len(tool.description) > 40 for tool in tools)


def test_check(root: Path) -> None:
    told = called(Bench(root), "check", network="cnn.net", passes="bind,simplify")
    assert told["verdict"] == "right" and told["compared"] > 10
    told = called(Bench(root, [str(PLANTED)]), "check", network="cnn.net", passes="bind,planted")
    assert (told["verdict"], told["pattern"]) == ("wrong", "sigmoid_is_tanh")
    assert told["error"]["place"]["file"] == "cnn.net"  # not where the server keeps it


def test_isolate_and_bisect(root: Path) -> None:
    bench = Bench(root, [str(PLANTED)])
    told = called(bench, "isolate", network="cnn.net", passes="bind,simplify,planted,expand")
    assert (told["verdict"], told["pipeline"], told["passes"]) == ("isolated", "planted", 1)
    assert called(bench, "bisect", network="cnn.net", passes="bind,planted")["pattern"] == "sigmoid_is_tanh"
    told = called(bench, "reduce", network="cnn.net", passes="bind,planted{bug=crash}", crash=True)
    assert told["verdict"] == "reduced" and "ln.maxpool2d" in told["module"] and told["ops"] < told["ops_before"]


def test_compare(root: Path) -> None:
    told = called(Bench(root), "compare", a="cnn.net", passes_b="@cpu-combine", seconds=0.3)
    assert told["verdict"] in verdicts.WORDS["compare"] and told["kernels"]
    assert called(Bench(root), "compare", a="cnn.net", seconds=1e6)["error"]["label"] == "mcp.seconds"


def test_inspect_and_passes(root: Path) -> None:
    assert called(Bench(root), "inspect", network="cnn.net")["report"]["inputs"]
    told = called(Bench(root), "passes", network="cnn.net", passes="bind,expand")
    assert told["verdict"] == "done" and "cpu.kernel" in told["module"]
    told = called(Bench(root), "passes", network="sub/bad.mlir", passes="bind")
    assert not told["ok"] and "unknown op 'ln.nothing'" in told["error"]["message"]
    assert str(root) not in json.dumps(told)
    assert "unknown pass 'bnid'" in called(Bench(root), "check", network="cnn.net", passes="bnid")["error"]["message"]


@pytest.mark.parametrize(
    ("network", "label"),
    [
        ("../secret.net", "mcp.path"),
        ("/etc/passwd", "mcp.path"),
        ("link.net", "mcp.path"),
        ("sub/../../secret.net", "mcp.path"),
        ("", "mcp.path"),
        ("a\nb.net", "mcp.path"),
        ("code.lnx", "mcp.form"),
        ("sub", "mcp.form"),
        ("none.net", "mcp.file"),
        ("--load=x.net", "mcp.file"),
    ],
)
def test_a_path_that_is_refused(network: str, label: str, root: Path) -> None:
    """What is elsewhere is refused in the same words, whether it is there or not."""
    for tool in ("inspect", "check"):
        told = called(Bench(root), tool, network=network, **({"passes": "bind"} if tool == "check" else {}))
        assert (told["verdict"], told["error"]["label"]) == ("fails", label)
        assert "secret" not in told["error"]["message"].replace("secret.net", "")


def test_a_file_that_is_too_large(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lightnet_mcp.bench.MAX_FILE", 10)
    assert called(Bench(root), "inspect", network="cnn.net")["error"]["label"] == "mcp.size"


@pytest.mark.parametrize("text", ["", "x" * 5000, "bind\nexpand", 'choose{from="/etc/passwd"}', "choose{a=1 tuned=x}"])
def test_passes_that_are_refused(text: str) -> None:
    with pytest.raises(LightNetError) as refused:
        pipeline(text)
    assert refused.value.label == "mcp.passes"
    assert pipeline('choose{set="y.alg=direct"}') == '--pass=choose{set="y.alg=direct"}'


def test_no_code_of_plugins_that_nobody_gave(root: Path) -> None:
    """A pass of a plugin is there only where the server was started with it; a file beside the network loads nothing."""
    shutil.copy(PLANTED, root / "planted.py")
    told = called(Bench(root), "check", network="cnn.net", passes="bind,planted")
    assert "unknown pass 'planted'" in told["error"]["message"]
    for tool, arguments in (
        ("passes", {"network": "cnn.net", "passes": f"bind --load={root}/planted.py"}),
        ("compare", {"a": "cnn.net", "passes_b": f"@cpu --load={root}/planted.py"}),
        ("compare", {"a": "cnn.net", "passes_a": f"@cpu' --load '{root}/planted.py", "seconds": 0.2}),
        ("compare", {"a": "cnn.net", "passes_b": f"@cpu+after:bind:planted --load={root}/planted.py"}),
    ):
        told = called(Bench(root), tool, **arguments)
        assert told["verdict"] == "fails" and re.search("pipeline|<passes>", told["error"]["text"]), told


def test_installed_plugins_are_found_only_where_asked(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []
    real = __import__("subprocess").Popen

    def watched(*words: Any, **options: Any) -> Any:
        seen.append(options["env"].get("LIGHTNET_NO_PLUGINS"))
        return real(*words, **options)

    monkeypatch.delenv("LIGHTNET_NO_PLUGINS", raising=False)
    monkeypatch.setattr("lightnet_mcp.bench.subprocess.Popen", watched)
    for installed in (False, True):
        Bench(root, installed=installed).inspect("cnn.net")
    assert seen == ["1", None]


#: A pass that takes a while, prints much, takes much memory, or writes a file.
HUNGRY = """
import time
from dataclasses import dataclass
from pathlib import Path
from lightnet.ir.passes import LnPass

@dataclass(frozen=True)
class Hungry(LnPass):
    name = "hungry"
    for_: str = "time"

    def apply(self, ctx, op):
        if self.for_ == "time":
            time.sleep(60)
        if self.for_ == "memory":
            bytearray(1 << 42)
        if self.for_ == "output":
            print("x" * (1 << 23))
        if self.for_ == "files":
            Path("here.txt").write_text("x")
"""


@pytest.mark.parametrize(
    ("what", "says"), [("time", "takes more than 8 s"), ("memory", "out of memory"), ("output", "prints more than")]
)
def test_bounds(what: str, says: str, root: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "hungry.py"
    plugin.write_text(HUNGRY)
    bench = Bench(root, [str(plugin)], Bounds(seconds=8 if what == "time" else 120))
    told = bench.passes("cnn.net", f"hungry{{for-={what}}}")
    assert not told["ok"] and (
        says in told["error"]["text"] or (what == "memory" and "MemoryError" in told["error"]["text"])
    ), told


def test_what_a_command_writes_goes_with_it(root: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "hungry.py"
    plugin.write_text(HUNGRY)
    before = sorted(os.listdir(".")), sorted(os.listdir(root))
    assert Bench(root, [str(plugin)]).passes("cnn.net", "hungry{for-=files}")["ok"]
    assert (sorted(os.listdir(".")), sorted(os.listdir(root))) == before


def test_mistakes_at_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--root", str(tmp_path / "nowhere")]) == 1
    assert "is no folder" in capsys.readouterr().err
    assert command.main(["--root", str(tmp_path), "--seconds", "0"]) == 1
    assert "needs a second" in capsys.readouterr().err
