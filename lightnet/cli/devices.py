"""`lightnet devices`: the NVIDIA devices that programs for CUDA can run on here, or why there are none.

Imports neither NumPy nor xDSL, to start fast.
"""

from __future__ import annotations

from lightnet.cli import common
from lightnet.runtime.cuda.driver import LEAST_CAPABILITY, CudaUnavailable, Device, devices


def main(argv: list[str]) -> int:
    """The subcommand; returns the exit status."""
    parser = common.ToolParser(
        "lightnet devices",
        description="List the devices that programs for CUDA can run on (CUDA_VISIBLE_DEVICES selects).",
        allow_abbrev=False,
    )
    parser.parse_args(argv)
    try:
        rows = [_row(device) for device in devices()]
    except CudaUnavailable as error:
        print(error.message)
    else:
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    print("the emulator (--emulate) executes PTX for sm_80 and later in NumPy, and checks every access to memory")
    return 0


def _row(device: Device) -> tuple[str, ...]:
    """The columns of a device's line: number, name, architecture, memory, driver, and what keeps it from being used."""
    least = ".".join(map(str, LEAST_CAPABILITY))
    return (
        str(device.ordinal),
        device.name,
        device.arch,
        f"{device.memory_bytes / 2**30:.1f} GiB",
        f"driver for CUDA {device.version[0]}.{device.version[1]}",
        "" if device.is_supported else f"not supported: its compute capability is below {least}",
    )
