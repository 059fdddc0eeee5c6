"""The base of generators of kernels of threads. `registry.CUDA_GENERATORS` has the table of them, `selection.py` asks
them for their plans.

Imports choices, layouts, the epilogue's conditions and the device's model.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from lightnet.backends import generator
from lightnet.backends.cuda.device import DeviceModel
from lightnet.backends.expressions import has_tile_epilogue
from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.ir.kernel import KernelOp, choice_integers
from lightnet.ir.layout import ChannelsLast
from lightnet.ir.locations import loc_of
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal

#: The layout of maps: the channels of a pixel begin at a multiple of 16 bytes (f32) or 8 (f16), and are read by as many
#: threads in a row.
MAP = ChannelsLast(4)
#: Types that are multiplied, in f32 or on tensor cores, and that an epilogue's results may have.
PRODUCT_TYPES = ("f32", "f16", "bf16")


class SimtGenerator(generator.Generator[DeviceModel]):
    """A generator of kernels of threads.

    `Form.maps` of what it takes lie in the layout `MAP` (halos are (0, 0)), and so does every result, unless the form
    has `plain_results`; a form without maps and with plain results is one for row-major tensors. `Form.weights` are
    static. A plan is in one of the forms: layouts of the kernel's types say nothing before `layout` has run.
    """

    target = "cuda"
    #: Whether it builds for sizes that calls decide, and whether its kernels of some rows run in strips (`strips.py`).
    takes_open, runs_in_strips = False, True


@dataclass(frozen=True)
class Choices:
    """Reads the choices of kernels that are numbers. Errors are labelled by the `area` and the choice."""

    area: str

    def error(self, kernel: KernelOp, name: str, why: str) -> LightNetError:
        """The error for a choice that cannot be, which may be one that the kernel leaves to us."""
        given = f" = {kernel.attributes[name]}" if name in kernel.attributes else ""
        return LightNetError(f"{name}{given}: {why}", loc_of(kernel), label=f"{self.area}.{name}")

    def number(self, kernel: KernelOp, name: str) -> int | None:
        """A choice that is an integer; None where there is none. Raises `LightNetError` for anything else."""
        found = _integers(kernel, name)
        if not isinstance(found, int | None):
            raise self.error(kernel, name, "expected an integer")
        return found

    def numbers(self, kernel: KernelOp, name: str, length: int) -> tuple[int, ...] | None:
        """The same of an array of so many integers."""
        found = _integers(kernel, name)
        if found is not None and (isinstance(found, int) or len(found) != length):
            raise self.error(kernel, name, f"expected an array of {length} integers")
        return found


def _integers(kernel: KernelOp, name: str) -> int | tuple[int, ...] | None:
    """A choice that is an integer or an array of integers; an empty array for what is neither."""
    attr = kernel.attributes.get(name)
    found = None if attr is None else choice_integers(attr)
    return () if attr is not None and found is None else found


def memory_time(size: int, device: DeviceModel) -> float:
    """Nanoseconds of one launch that moves `size` bytes of device memory, in loops that keep it busy."""
    return device.launch + size / (0.8 * device.bytes)


def is_all_epilogue(ops: Sequence[LnOp], yielded: Sequence[SSAValue], along: Sequence[int]) -> bool | Refusal:
    """Return whether what follows the first of `ops` is an epilogue, of any of `PRODUCT_TYPES`, and these ops make all
    that is yielded, at least one value and none twice."""
    once = len(set(yielded)) == len(yielded) > 0
    return (
        has_tile_epilogue(ops, yielded, along, PRODUCT_TYPES)
        if once
        else Refusal("it yields nothing, or a value twice")
    )
