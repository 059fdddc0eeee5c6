"""What a generator of kernels on blocked maps is, the machine that its model of time knows, and what a kernel's choices say.

Imports layouts and launches; `forms.py` has what most bodies have in common, `kernel.py` the kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from xdsl.ir import Attribute, SSAValue

from lightnet.backends.launches import Launch
from lightnet.diagnostics import LightNetError
from lightnet.ir.kernel import KernelOp, choice_integers
from lightnet.ir.layout import Blocked, Layout, layout_of
from lightnet.ir.locations import loc_of
from lightnet.ir.op import LnOp
from lightnet.ir.target import Form, Halo

NO_HALO: Halo = (0, 0)


@dataclass(frozen=True)
class Machine:
    """The processor as the cost model sees it, one core. Sizes in bytes, rates per nanosecond (G/s)."""

    lanes: int = 16  # of f32 in a vector
    registers: int = 32  # vector registers
    flops: float = 236.0  # floating-point operations: 2 a multiply-add
    l1: int = 48 << 10
    l2: int = 1 << 20
    l2_bytes: float = 160.0  # read from the second-level cache
    l3_bytes: float = 90.0
    dram_bytes: float = 36.0
    threads: int = 1
    #: Times that transformed weights (Winograd's) may be as large as the weights: 4 allows all, 1 none.
    growth: float = 4.0


@runtime_checkable
class Generator(Protocol):
    """Makes kernel functions of one family; `alg` is the choice that names it. A class that derives from it has no choices, packs
    no weights and needs no memory unless it says so."""

    alg: str
    #: Whether results are those of a direct evaluation but for the order of sums (Winograd's are not).
    exact: bool = True

    def takes(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], lanes: int) -> Form | None:
        """What the body needs, None where this is no generator for it. Ops may be those of a kernel, or a union that is not
        built yet; layouts of types do not count here."""

    def choices(self, kernel: KernelOp, machine: Machine) -> Mapping[str, Attribute]:
        """Tile, order and so on, by a model of the machine; those that the kernel has already are kept and may narrow the rest."""
        return {}

    def cost(self, kernel: KernelOp, machine: Machine) -> float:
        """Nanoseconds on one thread, roughly, with the kernel's present choices (or the default ones)."""

    def weights(self, kernel: KernelOp) -> Mapping[int, Layout]:
        """The layouts of operands to be packed, by operand number, for the kernel's choices."""
        return {}

    def scratch_bytes(self, kernel: KernelOp) -> int:
        """Bytes of memory that one thread uses while it runs."""
        return 0

    def workspace_bytes(self, kernel: KernelOp) -> int:
        """Bytes that one launch of the kernel leaves for the next, shared by all threads."""
        return 0

    def build(self, kernel: KernelOp, name: str, aliases: Mapping[int, int]) -> list[Launch]:
        """The functions; `aliases` maps a result to the operand whose memory it takes."""


def read_rate(machine: Machine, size: int) -> float:
    """Bytes a nanosecond that memory gives for data of `size` bytes which a kernel walks once."""
    return (
        machine.l2_bytes if size <= machine.l2 else machine.l3_bytes if size <= 16 * machine.l2 else machine.dram_bytes
    )


def blocks_of(channels: int, lanes: int) -> int:
    """Blocks of `lanes` channels."""
    return -(-channels // lanes)


def lanes_of(kernel: KernelOp) -> int:
    """Channels in a block of the maps of a kernel; without maps, elements of the vectors that it is for (0: nothing says)."""
    layouts = [layout_of(v.type) for v in (*kernel.operands, *kernel.results)]
    return next((layout.block for layout in layouts if isinstance(layout, Blocked)), chosen_lanes(kernel))


def chosen_lanes(kernel: KernelOp) -> int:
    """The kernel's choice `lanes`; 0 where it has none, -1 where that is no number."""
    attr = kernel.attributes.get("lanes")
    value = 0 if attr is None else choice_integers(attr)
    return value if isinstance(value, int) else -1


def choice_ints(kernel: KernelOp, name: str, length: int | None = None) -> tuple[int, ...] | None:
    """A choice of a kernel that is an array of integers, `length` of them if that is given; None where it has none. `LightNetError`
    for anything else."""
    attr = kernel.attributes.get(name)
    if attr is None:
        return None
    found = choice_integers(attr)
    if not isinstance(found, tuple) or (length is not None and len(found) != length):
        what = "integers" if length is None else f"{length} integer{'s' * (length > 1)}"
        raise LightNetError(
            f"choice {name} = {attr}: expected an array of {what}", loc_of(kernel), label=f"choice.{name}"
        )
    return found
