"""What a generator of kernels of threads is. `registry.CUDA_GENERATORS` has the table of them, `selection.py` asks them
for their plans.

Imports layouts and the device's model.
"""

from __future__ import annotations

from lightnet.backends import generator
from lightnet.backends.cuda.device import Device
from lightnet.ir.layout import ChannelsLast

#: The layout of maps: the channels of a pixel begin at a multiple of 16 bytes (f32) or 8 (f16), and are read by as many
#: threads in a row.
MAP = ChannelsLast(4)


class Generator(generator.Generator[Device]):
    """A generator of kernels of threads.

    `Form.maps` of what it takes lie in the layout `MAP` (halos are (0, 0)), and so does every result, unless the form
    has `plain_results`; a form without maps and with plain results is one for row-major tensors. `Form.weights` are
    static. A plan is in one of the forms: layouts of the kernel's types say nothing before `layout` has run.
    """

    target = "cuda"


def memory_time(size: int, device: Device) -> float:
    """Nanoseconds of one launch that moves `size` bytes of device memory, in loops that keep it busy."""
    return device.launch + size / (0.8 * device.bytes)
