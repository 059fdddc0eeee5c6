"""What a generator of the CPU gives: functions, their grids, and what their memrefs are. Imports xDSL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from xdsl.dialects.func import FuncOp


class Argument(NamedTuple):
    """A memref argument of a launch: an ``operand`` or ``result`` by number; the ``workspace``, which the launches of a kernel share,
    or the ``scratch`` of the thread that runs, from a byte on."""

    kind: str
    number: int


@dataclass(frozen=True)
class Launch:
    """One function of a generated kernel, its grid, and what its memrefs are."""

    function: FuncOp
    grid: int
    args: tuple[Argument, ...]
