"""A kernel as the machine runs it: its code, and where its variables stand. Imports NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lightnet.dataclasses import dataclass, field
from lightnet_ptx import tree as ptx
from lightnet_ptx.memory import OUTSIDE

Array = Any
#: An instruction, made ready; it gets a `machine.Batch`.
Step = Callable[[Any], None]


@dataclass(frozen=True)
class Symbol:
    """A variable, where it stands: an offset in its space, or an address (``global``, ``const``)."""

    space: str
    address: int
    size: int
    align: int


@dataclass
class Kernel:
    """A decoded entry. `code` has a closure and `sites` the instruction of each step; `granules` is the smallest access
    by state space.
    """

    name: str
    source: ptx.Source
    params: tuple[ptx.Variable, ...]
    limits: dict[str, tuple[int, ...]]
    code: list[Step] = field(default_factory=list)
    sites: list[ptx.Instruction] = field(default_factory=list)
    slots: int = 0
    names: dict[int, str] = field(default_factory=dict)
    kinds: dict[int, np.dtype] = field(default_factory=dict)
    tracked: frozenset[int] = frozenset()
    shared: dict[str, Symbol] = field(default_factory=dict)
    shared_bytes: int = 0
    dynamic_at: int | None = None
    local_bytes: int = 0
    granules: dict[str, int] = field(default_factory=lambda: {"shared": 16, "global": 16})
    #: Whether mbarriers order its accesses; and the registers that sums of `wgmma` are in.
    mbarriers: bool = False
    sums: frozenset[int] = frozenset()

    def param_offsets(self) -> tuple[list[int], int]:
        """The offset of each parameter in the parameter space, and the size of that."""
        offsets, at = [], 0
        for p in self.params:
            at = -(-at // p.align) * p.align
            offsets.append(at)
            at += p.size
        return offsets, at

    def shared_outside(self, size: int, dynamic: int) -> Array:
        """The states of a block's shared memory when it starts: which bytes belong to variables."""
        state = np.full(size, OUTSIDE, np.uint8)
        for symbol in self.shared.values():
            state[symbol.address : symbol.address + symbol.size] = 0
        if self.dynamic_at is not None:
            state[self.dynamic_at : self.dynamic_at + dynamic] = 0
        return state

    def shared_name(self, offset: int) -> str:
        """The variable at an offset, in words."""
        for name, symbol in self.shared.items():
            if symbol.address <= offset < symbol.address + symbol.size:
                return f"{name}+{offset - symbol.address}"
        if self.dynamic_at is not None and offset >= self.dynamic_at:
            return f"dynamic+{offset - self.dynamic_at}"
        return "no variable"
