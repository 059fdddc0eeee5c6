"""The server's tools: each is a command of LightNet, in a process of its own, whose answer is a verdict.

A network is a file below one folder, by its real path. It is data: executables, which are code, are refused, and
plugins are those that the server was started with. A command has bounds of time, memory and output, and works in an
empty folder, to which whatever a network writes (`ln.fprint`) goes; nothing of a request reaches a shell, or is taken
for an option. Imports the standard library and `lightnet_trust.verdicts`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightnet.diagnostics import LightNetError
from lightnet_trust.verdicts import failed, verdict

#: The forms of networks that are data.
SUFFIXES = (".onnx", ".net", ".json", ".mlir")
#: Bytes of a network's file, of a pipeline, and of what a command prints.
MAX_FILE, MAX_PIPELINE, MAX_OUTPUT = 1 << 30, 4096, 4 << 20
#: Options of passes that name files.
_READS_FILES = re.compile(r"[{\s,](from|tuned)\s*=")
OPT, REDUCE, LIGHTNET = "lightnet.cli.ln_opt", "lightnet_trust.ln_reduce", "lightnet.cli.lightnet"


@dataclass(frozen=True)
class Bounds:
    """The bounds of one command: seconds (of time, and of each processor), and bytes of address space."""

    seconds: int = 120
    memory: int = 16 << 30

    def __post_init__(self) -> None:
        if self.seconds < 1 or self.memory < 1 << 30:
            raise LightNetError("a command needs a second and a GiB at least", label="mcp.bounds")


class Bench:
    """The tools, for networks below `root`. `load` are plugins, which run with the server's rights; `installed` says
    whether those of installed packages may be found."""

    def __init__(self, root: str | Path, load: Sequence[str] = (), bounds: Bounds = Bounds(), installed: bool = False):
        self.root = Path(root).resolve()
        if not self.root.is_dir():
            raise LightNetError(f"'{root}' is no folder", label="mcp.root")
        self.load = [f"--load={Path(file).resolve()}" for file in load]
        self.bounds, self.installed = bounds, installed

    # -- the tools

    def check(self, network: str, passes: str, mode: str = "pass", data: str = "") -> dict[str, Any]:
        """The check of passes: do they keep what a network computes, and if not, which pass and pattern does not?"""
        words = [f"--check={mode}", *([f"--check-data={data}"] if data else [])]
        return self.answer("check", lambda: [OPT, self.file(network), pipeline(passes), *words, "--json"])

    def bisect(self, network: str, passes: str, exact: bool = False) -> dict[str, Any]:
        """The rewrite that makes the result of passes wrong."""
        words = ["--bisect", *(["--check=exact"] if exact else []), "--json"]
        return self.answer("bisect", lambda: [OPT, self.file(network), pipeline(passes), *words])

    def isolate(self, network: str, passes: str, exact: bool = False) -> dict[str, Any]:
        """The fewest passes, and the smallest module, that show a fault of passes."""
        words = [*(["--check-exact"] if exact else []), "-q", "--json"]
        return self.answer("isolate", lambda: [REDUCE, self.file(network), pipeline(passes, "--isolate"), *words])

    def reduce(self, network: str, passes: str, crash: bool = False) -> dict[str, Any]:
        """The smallest module on which all of the passes are wrong in the same way, or fail."""
        test = "--test-crash" if crash else "--test-check"
        return self.answer("reduce", lambda: [REDUCE, self.file(network), pipeline(passes, test), "-q", "--json"])

    def compare(
        self, a: str, b: str = "", passes_a: str = "", passes_b: str = "", seconds: float = 5
    ) -> dict[str, Any]:
        """The comparison of two networks, or of one with two pipelines: is B faster than A?"""

        def words() -> list[str]:
            if not 0 < seconds <= self.bounds.seconds / 2:
                most = self.bounds.seconds / 2
                raise LightNetError(f"seconds should be above 0, and {most:g} at most", label="mcp.seconds")
            networks = [self.file(a), *([self.file(b)] if b else [])]
            # Of a side's options the command makes words again: a text stays one of them.
            sides = [
                f"--{side}={shlex.quote(pipeline(text))}" for side, text in (("a", passes_a), ("b", passes_b)) if text
            ]
            return [LIGHTNET, "compare", *networks, *sides, f"--limit={seconds}", "--json"]

        return self.answer("compare", words)

    def passes(self, network: str, passes: str) -> dict[str, Any]:
        """The module behind passes, as text."""
        return self.answer("passes", lambda: [OPT, self.file(network), pipeline(passes)])

    def inspect(self, network: str) -> dict[str, Any]:
        """The description of a network: inputs, outputs, ops, costs, and what of it does not run."""
        return self.answer("inspect", lambda: [LIGHTNET, "inspect", self.file(network), "--json"])

    # -- requests

    def file(self, name: str) -> str:
        """The real path of a network's file. Raises LightNetError for one that is not below the root, no file of data,
        or too large; it says nothing of what is elsewhere."""
        if not name or len(name) > 4096 or not name.isprintable():
            raise LightNetError("the name of a network is a path below the server's folder", label="mcp.path")
        path = (self.root / name).resolve()
        if not path.is_relative_to(self.root):
            raise LightNetError(f"'{name:.200}' is not below the server's folder", label="mcp.path")
        if path.suffix.lower() not in SUFFIXES:
            raise LightNetError(
                f"'{name:.200}' is no network: its name should end in {', '.join(SUFFIXES)}", label="mcp.form"
            )
        if not path.is_file():
            raise LightNetError(f"there is no file '{name:.200}'", label="mcp.file")
        if path.stat().st_size > MAX_FILE:
            raise LightNetError(f"'{name:.200}' has more than {MAX_FILE} bytes", label="mcp.size")
        return str(path)

    def answer(self, tool: str, words: Any) -> dict[str, Any]:
        """The verdict of a command: what it printed, or why it printed none."""
        try:
            module, *arguments = words()
            status, out, err = self.run(module, [*arguments, *self.load])
        except LightNetError as error:
            return failed(tool, error)
        if tool == "passes" and status == 0:
            return verdict(tool, "done", True, module=out)
        try:
            told = json.loads(out)
        except ValueError:  # it failed before it had anything to say
            text = err.strip() or "it printed nothing"
            message = re.sub(r"^(?:\S+?: )?error: ", "", text.splitlines()[-1 if text.startswith("Traceback") else 0])
            return failed(tool, LightNetError(message, label="mcp.command", notes=[(None, text[:4096])]))
        return told if tool != "inspect" else verdict(tool, "done", status == 0, report=told)

    def run(self, module: str, words: Sequence[str]) -> tuple[int, str, str]:
        """The exit status, output and errors of a command, without the path of the root. Raises LightNetError where it
        takes or prints too much."""
        limits = [str(self.bounds.seconds * (os.cpu_count() or 1)), str(self.bounds.memory), str(MAX_OUTPUT)]
        command = [sys.executable, "-P", "-m", "lightnet_mcp.bounded", *limits, module, *words]
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        if not self.installed:
            variables["LIGHTNET_NO_PLUGINS"] = "1"
        with tempfile.TemporaryDirectory(prefix="lightnet-mcp-") as folder:
            out, err = Path(folder) / ".stdout", Path(folder) / ".stderr"
            with open(out, "wb") as stdout, open(err, "wb") as stderr:
                process = subprocess.Popen(
                    command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
                    start_new_session=True,
                )  # fmt: skip
                try:
                    status = process.wait(self.bounds.seconds)
                except subprocess.TimeoutExpired:
                    raise LightNetError(
                        f"the command takes more than {self.bounds.seconds} s", label="mcp.seconds"
                    ) from None
                finally:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            if out.stat().st_size >= MAX_OUTPUT:
                raise LightNetError(f"the command prints more than {MAX_OUTPUT} bytes", label="mcp.output")
            said, told = (path.read_text("utf-8", "replace").replace(f"{self.root}{os.sep}", "") for path in (out, err))
            return status, said, told


def pipeline(text: str, option: str = "--pass") -> str:
    """The option that names passes. Raises LightNetError for a text that is too long, or makes a pass read a file."""
    if not text or len(text) > MAX_PIPELINE or not text.isprintable():
        raise LightNetError(f"passes are a text of {MAX_PIPELINE} characters at most", label="mcp.passes")
    if _READS_FILES.search(text):
        raise LightNetError("options of passes that read files are not for requests", label="mcp.passes")
    return f"{option}={text}"
