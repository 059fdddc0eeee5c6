"""The architecture to compile for where code is to run on a device of this machine. Imports the driver and the
architectures that there is code for."""

from __future__ import annotations

from lightnet.dialects.cuda_checks import ARCHS
from lightnet.runtime.cuda.driver import CudaUnavailable, Device, capability_of, devices, runs_on

#: The architecture of code for any device.
PORTABLE = "sm_80"


def native_arch() -> str:
    """The best architecture for the first supported device. Raises CudaUnavailable where there is none."""
    there = [device for device in devices() if device.is_supported]
    if not there:
        raise CudaUnavailable("the driver shows no device that programs run on; `lightnet devices` lists them")
    return best_arch(there[0])


def best_arch(device: Device) -> str:
    """The latest architecture that a device runs code for, and whose blocks have no more shared memory than the
    device's: ``sm_90a`` for compute capability 9.0, and ``sm_89``, say, for a later one whose blocks have 99 KiB."""
    fitting = [a for a, shared in ARCHS.items() if runs_on(a, device.arch) and shared <= device.shared_bytes]
    return max(fitting, key=lambda a: (capability_of(a), a), default=PORTABLE)
