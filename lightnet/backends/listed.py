"""The base of a runtime whose code is a launch list beside a body of kernels (`runtime/listed.py`). Imports xDSL when
it makes code."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from lightnet.ir.runtime import Content, Files, Runtime, Settings
from lightnet.runtime.listed import COPY_LINE, HOST_LINE, KERNEL_LINE, ListedCode, ListedFormat, ListedLine

if TYPE_CHECKING:
    from pathlib import Path

    from xdsl.dialects.builtin import ModuleOp

    from lightnet.executable import Executable


class Listed(NamedTuple):
    """The code of a lowered module; `assembly` is the source that its kernels were made of."""

    code: ListedCode
    assembly: str


class Sources(Files):
    """The source that the kernels were made of, as a file of whatever kind."""

    def make(self, kind: str, path: Path, folder: Path) -> Content:
        return self.executable.native.assembly


class ListedRuntime(Runtime):
    """A runtime for `tile.launch`, `tile.copy` and `tile.host`, which ``lower-cpu`` makes: a target derives it, says
    its `format`, and makes a body of kernel functions. Where its memory has spaces of its own, its format's `machine`
    copies."""

    form: ListedFormat
    steps = "lightnet_debug.steps:InstanceStepper"

    @property
    def format(self) -> ListedFormat:
        return self.form

    @abstractmethod
    def body(self, loops: ModuleOp, options: Mapping[str, Any]) -> tuple[bytes, str]:
        """The kernels of a module at level 4, as the format loads them, and their source. Raises `LightNetError` for
        what there is no code of."""

    def make(self, loops: ModuleOp, settings: Settings) -> Listed:
        body, source = self.body(loops, settings.options)
        return Listed(ListedCode(body, tuple(_listed(loops))), source)

    def facts(self, made: Listed, threads: int) -> dict[str, Any]:
        return {"threads": threads, "cpu": self.form.name, "triple": self.form.name}

    def code(self, made: Listed) -> ListedCode:
        return made.code

    def writer(self, executable: Executable, name: str) -> Files:
        return Sources(executable, name)


def _listed(loops: ModuleOp) -> list[ListedLine]:
    """The launch list of a module at level 4. Raises `LightNetError` for a line of another target's."""
    from lightnet.diagnostics import LightNetError
    from lightnet.dialects.launch import CopyOp, HostOp, LaunchOp, lines_of
    from lightnet.ir.locations import loc_of

    found: list[ListedLine] = []
    calls = 0
    for line in lines_of(loops):
        places = tuple((p.space.data, p.offset.data) for p in line.args.data)
        if isinstance(line, LaunchOp):
            found.append(ListedLine(KERNEL_LINE, places, line.callee.string_value(), line.grid.value.data))
        elif isinstance(line, CopyOp):
            found.append(ListedLine(COPY_LINE, places, size=line.size))
        elif isinstance(line, HostOp):
            found.append(ListedLine(HOST_LINE, places[:1], size=calls))
            calls += 1
        else:
            raise LightNetError(
                f"{line.name}: no line of a list of `tile.launch`, `tile.copy` and `tile.host`", loc_of(line)
            )
    return found
