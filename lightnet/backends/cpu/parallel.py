"""How many threads a kernel uses, and the memory that its launches take for them. Imports `ir`, and what launches are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from xdsl.dialects.builtin import IntegerAttr

from lightnet.backends.cpu.launches import Launch
from lightnet.diagnostics import LightNetError
from lightnet.dialects.launch import memref_bytes
from lightnet.ir.kernel import KernelOp
from lightnet.ir.locations import loc_of
from lightnet.ir.types import ParamAttr
from lightnet.runtime.arrays import align_up
from lightnet.runtime.threads import MAX_THREADS

#: The choice: how many threads a kernel may use (absent: 1).
THREADS = "threads"
#: Nanoseconds of work that a further thread should have: a barrier takes 100 to 300, and threads do not come to it at once.
WORTH = 1000.0


def threads_of(kernel: KernelOp) -> int:
    """The kernel's choice of threads. Raises `LightNetError` for what is no number of threads."""
    attr = kernel.attributes.get(THREADS)
    if attr is None:
        return 1
    value = (
        attr.value.data if isinstance(attr, IntegerAttr) else attr.data if isinstance(attr, ParamAttr) else str(attr)
    )
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_THREADS:
        raise LightNetError(f"the choice threads of {kernel.name} is a number from 1 to {MAX_THREADS}, not {value!r}",
                            loc_of(kernel), label="cpu.kernel.threads")  # fmt: skip
    return value


def worthwhile(cost: float, most: int) -> int:
    """How many of `most` threads work of `cost` nanoseconds pays for."""
    return max(1, min(most, int(cost / WORTH)))


class Memory(NamedTuple):
    """Bytes that the launches of a kernel need beside operands and results: `shared` is what passes from one to the next, `scratch`
    what each thread uses while it runs, behind that."""

    shared: int
    scratch: int

    def size(self, threads: int) -> int:
        """Bytes for so many threads."""
        return align_up(self.shared) + threads * self.scratch


def memory_of(launches: Sequence[Launch]) -> Memory:
    """What the memrefs of launches ask for."""
    shared = scratch = 0
    for launch in launches:
        types = launch.function.body.block.arg_types[2:]
        for argument, type in zip(launch.args, types):
            if argument.kind == "workspace":
                shared = max(shared, argument.number + memref_bytes(type))
            elif argument.kind == "scratch":
                scratch = max(scratch, align_up(memref_bytes(type)))
        assert all(a.kind != "scratch" for a in launch.args[:-1]), "scratch is the last argument of a launch, and one"
    return Memory(shared, scratch)
