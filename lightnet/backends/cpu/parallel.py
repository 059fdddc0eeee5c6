"""The number of threads that a kernel uses. Imports `ir`."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr

from lightnet.diagnostics import LightNetError
from lightnet.ir.kernel import KernelOp
from lightnet.ir.locations import loc_of
from lightnet.ir.types import ParamAttr
from lightnet.runtime.threads import MAX_THREADS

#: The choice: how many threads a kernel may use (absent: 1).
THREADS = "threads"
#: Nanoseconds of work that a further thread should have: a barrier takes 100 to 300, and threads do not come to it at
#: once.
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
    """The number of threads, `most` at most, that work of `cost` nanoseconds pays for."""
    return max(1, min(most, int(cost / WORTH)))
