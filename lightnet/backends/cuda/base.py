"""What a generator of kernels of threads is. `registry.CUDA_GENERATORS` has the table of them, `selection.py` asks them.

Imports layouts, the device's model and launches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from xdsl.ir import Attribute, SSAValue

from lightnet.backends.cuda.device import Device
from lightnet.backends.cuda.simt import SimtLaunch
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import ChannelsLast, Layout
from lightnet.ir.op import LnOp
from lightnet.ir.target import Form

#: The layout of maps: the channels of a pixel begin at a multiple of 16 bytes (f32) or 8 (f16), and are read by as many threads in a row.
MAP = ChannelsLast(4)


class Generator(ABC):
    """Makes kernels of one family; `alg` is the choice that names it.

    A body (`ops`, and what of them is `yielded`) may be that of a kernel, or a union that is not built yet; layouts of types do not
    count where it is judged. `build` reads them off the kernel's operands and results.
    """

    alg: str
    #: What ends the bodies that `combine` should make for it though `backends/bodies.py` does not know them.
    ends: ClassVar[tuple[type[LnOp], ...]] = ()

    @abstractmethod
    def takes(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue]) -> Sequence[Form]:
        """The forms in which it takes a body, none where it is no generator for it. `Form.maps` lie in the layout `MAP` (halos are
        (0, 0)), and so does every result, unless the form has `plain_results`; a form without maps and with plain results is one for
        row-major tensors. `Form.weights` are static, and lie as `weights` says."""

    def is_for(self, device: Device) -> bool:
        """Whether a device has what the kernels need."""
        return True

    def is_exact(self, ops: Sequence[LnOp]) -> bool:
        """Whether results are those of a direct evaluation but for the order of sums. Products of f32 whose factors are rounded to tf32 are
        not; where they are meant, the precision asked for is ``tf32``."""
        return True

    @abstractmethod
    def cost(self, kernel: KernelOp, form: Form, device: Device) -> float:
        """Nanoseconds, roughly, of a kernel in one of its forms, the launches themselves included. Layouts of the kernel's types do not count:
        `layout` asks before there are any."""

    def choices(self, kernel: KernelOp, device: Device) -> Mapping[str, Attribute]:
        """Tile, splits and so on, by a model of the device; those that the kernel has already are kept, checked, and may narrow the rest.
        Layouts stand on the kernel's types now. Raises `LightNetError` for one that cannot be."""
        return {}

    def weights(self, kernel: KernelOp) -> Mapping[int, Layout]:
        """The layouts of operands to be packed, by operand number, for the kernel's choices."""
        return {}

    def workspace_bytes(self, kernel: KernelOp) -> int:
        """Bytes that one launch of the kernel leaves for the next."""
        return 0

    @abstractmethod
    def build(self, kernel: KernelOp, name: str, aliases: Mapping[int, int]) -> list[SimtLaunch]:
        """The launches; `aliases` maps a result to the operand whose memory it takes."""


def memory_time(size: int, device: Device) -> float:
    """Nanoseconds of one launch that moves `size` bytes of device memory, in loops that keep it busy."""
    return device.launch + size / (0.8 * device.bytes)
