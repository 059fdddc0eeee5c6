"""The launches that a generator of kernels gives: functions, their grids, what their memrefs are, and the memory that
they ask for. Imports xDSL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from xdsl.dialects.builtin import MemRefType
from xdsl.dialects.func import FuncOp

from lightnet.dataclasses import dataclass
from lightnet.dialects.launch import memref_bytes
from lightnet.runtime.arrays import align_up
from lightnet.runtime.dims import Size, dim_max


class Argument(NamedTuple):
    """A memref argument of a launch: an ``operand`` or ``result`` by number; the ``workspace``, which the launches of a
    kernel share, or the ``scratch`` of the thread that runs, from a byte on."""

    kind: str
    number: int


class Made(Protocol):
    """The parts that a target's generators give for one launch: the function that is launched, and all that it needs,
    itself last.
    """

    @property
    def function(self) -> FuncOp: ...

    @property
    def functions(self) -> tuple[FuncOp, ...]: ...

    @property
    def args(self) -> tuple[Argument, ...]: ...

    @property
    def workspace(self) -> Size: ...

    @property
    def scratch(self) -> Size: ...


@dataclass(frozen=True)
class Launch:
    """One function of a generated kernel, its grid of blocks, and what its memrefs are. `workspace` and `scratch` are
    how many bytes of these memrefs of open length take."""

    function: FuncOp
    grid: Size
    args: tuple[Argument, ...]
    workspace: Size = 0
    scratch: Size = 0

    @property
    def functions(self) -> tuple[FuncOp, ...]:
        """The functions that the launch adds to a module."""
        return (self.function,)


class LaunchMemory(NamedTuple):
    """Bytes that the launches of a kernel need beside operands and results: `shared` is what passes from one to the
    next, `scratch` what a thread uses while it runs. Behind what is shared stands that of the first thread; others
    bring theirs."""

    shared: Size
    scratch: Size

    @property
    def size(self) -> Size:
        """Bytes of workspace to plan for."""
        return align_up(self.shared) + self.scratch


def launch_memory_of(launches: Sequence[Made]) -> LaunchMemory:
    """The memory that the memrefs of launches ask for."""
    shared: Size = 0
    scratch: Size = 0
    for launch in launches:
        shared = dim_max(shared, launch.workspace)
        scratch = dim_max(scratch, align_up(launch.scratch))
        types = [t for t in launch.function.body.block.arg_types if isinstance(t, MemRefType)]
        for argument, type in zip(launch.args, types):
            if argument.kind == "workspace":
                shared = dim_max(shared, argument.number + memref_bytes(type))
            elif argument.kind == "scratch":
                scratch = dim_max(scratch, align_up(memref_bytes(type)))
        assert all(a.kind != "scratch" for a in launch.args[:-1]), "scratch is the last argument of a launch, and one"
    return LaunchMemory(shared, scratch)
