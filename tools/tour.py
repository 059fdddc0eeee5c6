"""The tale of docs/tour.md, held against a compilation: ``python tools/tour.py`` prints which function each stop of the
tour begins with, and who calls it, in a process that has compiled nothing yet.

The page is written by hand, but for what stands below a comment ``<!-- tour: STAGE -->`` or ``<!-- tour: STAGE | TEXT | N -->``: the network
at that stage, or N of its lines from the first one on that has TEXT. Stages are ``read``, ``pipeline``, the names of passes, ``llvm`` and ``asm``. `tools/docs.py` writes them, `tests/tools/test_tour.py` checks the rest.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import numpy as np
import onnx.numpy_helper
import onnx.parser
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

import lightnet
from lightnet.deploy import emit
from lightnet.ir.passes import Instrumentation
from lightnet.ir.printer import module_text
from lightnet.passes import pipelines

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "tour.md"
#: The processor that the tour compiles for, whatever it runs on.
CPU, TRIPLE = "x86-64-v4", "x86_64-unknown-linux-gnu"
#: Columns of a line that is shown.
WIDTH = 180

_STOP = re.compile(r"^## \d+\. \[`(?P<file>lightnet/[\w/]+\.py)`\]\(\.\./(?P=file)\): `(?P<function>[\w.]+)`$", re.M)
_SOURCE = re.compile(r"^```onnx\n(.*?)^```$", re.M | re.S)
_SHOWN = re.compile(r"^(<!-- tour: ([\w-]+)(?: \| (.+?) \| (\d+))? -->\n```\w*\n).*?^```$", re.M | re.S)


@dataclass(frozen=True)
class Stop:
    """A stop of the tour: a file, and the function in it where a convolution comes by first."""

    file: str
    function: str


def stops(page: str) -> list[Stop]:
    """The stops of a page, in its order."""
    return [Stop(m["file"], m["function"]) for m in _STOP.finditer(page)]


def page(text: str, journey: Journey | None = None) -> str:
    """The page with what its stages are now, in a journey of its own unless one is given."""
    shown = (journey or Journey(source(text))).stages

    def fill(match: re.Match[str]) -> str:
        head, stage, start, count = match.groups()
        return f"{head}{excerpt(shown[stage], start, int(count or 0))}\n```"

    return _SHOWN.sub(fill, text)


def source(text: str) -> str:
    """The network of a page, in ONNX's text form."""
    match = _SOURCE.search(text)
    if match is None:
        sys.exit(f"{PAGE}: there is no block of onnx")
    return match[1]


def excerpt(text: str, start: str | None, count: int) -> str:
    """`count` lines (0: all) from the first one on that has `start`, without the indentation that they share, cut off at `WIDTH` columns."""
    lines = text.splitlines()
    if start is not None:
        first = next((i for i, line in enumerate(lines) if start in line), None)
        if first is None:
            sys.exit(f"{PAGE}: no line has '{start}'")
        lines = lines[first : first + count]
    kept = textwrap.dedent("\n".join(lines).expandtabs(8)).splitlines()
    return "\n".join(line if len(line) <= WIDTH else f"{line[: WIDTH - 2]} …" for line in kept)


@dataclass
class Journey:
    """A network on its way: what it is at each stage, and, where `calls` is asked for, who called each function of the package first, in
    the order of these calls."""

    text: str
    calls: dict[Stop, Stop] | None = None
    stages: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        with tempfile.TemporaryDirectory() as folder, self._watched():
            self.stages = travelled(self.text, Path(folder))

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Without the cache of machine code, in which nothing would be called; with the calls noted."""
        with mock.patch.dict(os.environ, LIGHTNET_CACHE=""):
            before = sys.getprofile()
            if self.calls is not None:
                sys.setprofile(_noting(self.calls))
            try:
                yield
            finally:
                sys.setprofile(before)


def travelled(text: str, folder: Path) -> dict[str, str]:
    """Compile a network in ONNX's text form, whose weights are what it declares and does not compute: stage -> text."""
    path, made = folder / "network.onnx", {kind: folder / f"network.{kind}" for kind in ("llvm", "asm")}
    path.write_bytes(binary(text))
    model = lightnet.load(path)
    stages = {"read": module_text(model.module), "pipeline": pipelines.default("cpu", "default")}
    watching = [_Kept(stages)]
    executable = lightnet.compile(model, cpu=CPU, triple=TRIPLE, threads=1, instrumentation=watching)
    emit(executable, made, "network")
    return stages | {kind: file.read_text("utf-8") for kind, file in made.items()}


def binary(text: str) -> bytes:
    """A network in ONNX's text form as a file of ONNX's, with seeded weights."""
    model = onnx.parser.parse_model(text)
    numbers = np.random.default_rng(0)
    for value in model.graph.value_info:
        dims = [d.dim_value for d in value.type.tensor_type.shape.dim]
        array = numbers.standard_normal(dims).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
    return model.SerializeToString()


@dataclass
class _Kept(Instrumentation):
    """Keeps what each pass leaves."""

    stages: dict[str, str]

    def after_pass(self, pass_: ModulePass, module: ModuleOp) -> None:
        self.stages[pass_.name] = module_text(module)


def _noting(calls: dict[Stop, Stop]) -> Callable[[FrameType, str, Any], None]:
    """A profiler that notes the first call of each function of the package, and its caller."""
    inside, cut = f"{Path(lightnet.__file__).parent}{os.sep}", len(str(ROOT)) + 1

    def place(frame: FrameType) -> Stop:
        return Stop(frame.f_code.co_filename[cut:], frame.f_code.co_qualname)

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(inside) and (here := place(frame)) not in calls:
            above = frame.f_back
            while above is not None and not above.f_code.co_filename.startswith(inside):
                above = above.f_back
            calls[here] = place(above) if above is not None else Stop("", "")

    return note


def main() -> None:
    """The command line. The status is 1 where the page's stops are not in the order of their first calls, or it shows another network than there is."""
    text, calls = PAGE.read_text("utf-8"), {}
    journey = Journey(source(text), calls)
    for stop in stops(text):
        above = calls.get(stop)
        print(f"{stop.file}: {stop.function}", f"<- {above.file}: {above.function}" if above else "is not called")
    if why := fault(text, list(calls), page(text, journey)):
        sys.exit(f"{PAGE}: {why}")


def fault(text: str, calls: list[Stop], true: str) -> str:
    """The reason why a page is wrong, given what is called in which order, and the page as it should be; empty where it is right."""
    found = [calls.index(stop) if stop in calls else -1 for stop in stops(text)]
    if -1 in found or found != sorted(found):
        return f"its stops are called in the order {found} (-1: not at all)"
    return "" if text == true else "it shows what is no more so: run `python tools/docs.py`"


if __name__ == "__main__":
    main()
