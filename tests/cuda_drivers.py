"""Which driver the tests of kernels run on: the PTX interpreter, or a device (``pytest -m gpu``). There what asks for
the interpreter (``emulate=True``) gets the device as well."""

from __future__ import annotations

import inspect
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from lightnet.runtime.cuda import driver as drivers

if TYPE_CHECKING:
    from lightnet.runtime.cuda.driver import Driver

EMULATOR, DEVICE = "emulator", "device"
#: Test modules that use one of these run on devices as well, but for tests marked `interpreter`.
HELPERS = {"cuda_runs", "cuda_device", "cuda_maps", "cuda_products"}
#: So do those that compile for the interpreter themselves.
EMULATED = "emulate=True"

_current, _emulator = EMULATOR, drivers._emulator


def use(name: str) -> None:
    """Run what follows on a driver; the test is skipped where there is no device."""
    global _current
    if name == DEVICE:
        _device()
    _current = name
    drivers._emulator = driver if name == DEVICE else _emulator


def on_device() -> bool:
    """Whether kernels run on a device now."""
    return _current == DEVICE


def driver(arch: str = "sm_80") -> Driver:
    """A driver for the kernels of a test: an interpreter of its own, or the device, which all tests of a process share; one that does not run
    code for `arch` skips the test."""
    if _current != DEVICE:
        from lightnet_ptx.emulator import Emulator

        return Emulator(arch=arch)
    from lightnet.runtime.cuda.driver import runs_on

    device = _device()
    if not runs_on(arch, device.arch):
        pytest.skip(f"the code is for {arch}, and {device.name} is {device.arch}")
    return device


def _device() -> Driver:
    found = _opened()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@cache
def _opened() -> Driver | str:
    """The device, or why there is none. What is allocated is filled with 0xFF, NaN as floats, so that what nobody writes shows."""
    from lightnet.runtime.cuda.driver import CudaUnavailable
    from lightnet.runtime.cuda.libcuda import LibCuda

    class Device(LibCuda):
        def alloc(self, nbytes: int) -> int:
            address = super().alloc(nbytes)
            self.fill(address, 0xFF, nbytes)
            return address

        def poison(self, address: int, nbytes: int) -> None:
            """NaN for what the interpreter takes for never written."""
            self.fill(address, 0xFF, nbytes)

        def close(self) -> None:
            """Nothing: the next test uses it."""

    try:
        return Device()
    except CudaUnavailable as error:
        return error.message


def is_run_on_devices(module: ModuleType, test: str) -> bool:
    """Whether a test has kernels run by our helpers, or compiles for the interpreter: it, or its module, says so by its
    name."""
    named = any(word in f"{module.__name__} {test}" for word in ("cuda", "nvptx"))
    return named and (_uses_helpers(module) or _emulates(module))


def _uses_helpers(module: ModuleType) -> bool:
    return any(getattr(value, "__module__", None) in HELPERS for value in vars(module).values())


@cache
def _emulates(module: ModuleType) -> bool:
    return EMULATED in inspect.getsource(module)
