"""The abilities of a device, as far as a compiled network asks it: the `Driver` protocol, and how to get a driver.

There are two drivers: `libcuda.LibCuda`, NVIDIA's, and the `Emulator` of the package `lightnet_ptx`, which executes the
same PTX on NumPy. All that runs on a device goes through this protocol, so that the emulator tests the program that
ships. Imports the standard library, NumPy (as a type) and `diagnostics`; a driver is imported where it is opened.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError

if TYPE_CHECKING:
    import numpy as np

    from lightnet.runtime.cuda.tensor_map import TensorMap

#: The least that compiled programs ask for: PTX 8.0 is read by drivers for CUDA 12.0 and later, kernels are for sm_80
#: and later.
LEAST_VERSION = (12, 0)
LEAST_CAPABILITY = (8, 0)
#: The least that has tensor maps.
MAPS_CAPABILITY = (9, 0)

#: An argument of a kernel: a device address, a scalar with its type, such as ``("f32", 0.5)``, or the bytes of a tensor
#: map.
Argument = int | bytes | tuple[str, int | float]

#: The package of the interpreter of PTX.
INTERPRETER = "lightnet_ptx"

_FORMATS = {"u32": "<I", "s32": "<i", "u64": "<Q", "s64": "<q", "f32": "<f", "f64": "<d"}


class CudaUnavailable(LightNetError):
    """No device can be used here; `reason` says why."""

    def __init__(self, reason: str):
        super().__init__(f"no CUDA device can be used: {reason}; --emulate runs without one")
        self.reason = reason


@dataclass(frozen=True)
class DeviceLaunch:
    """One kernel of a program's launch list.

    `function` is what `Module.function` gave; `grid` counts blocks and `block` threads, along x, y and z; `shared` is
    dynamic shared memory in bytes. `args` are the kernel's parameters in order.
    """

    function: Any
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    args: tuple[Argument, ...]


def capability_of(arch: str) -> tuple[int, int]:
    """The compute capability that an architecture names: (9, 0) of ``sm_90`` and ``sm_90a``; (0, 0) of what is none."""
    found = re.fullmatch(r"sm_(\d{1,3})(\d)[af]?", arch)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def runs_on(arch: str, device: str) -> bool:
    """Return whether a device of the architecture `device` runs PTX for `arch`: any for an earlier one, but for
    ``sm_90a`` and the like, whose instructions only the devices of that capability have (PTX ISA, "PTX Module
    Directives: .target").
    """
    needs, has = capability_of(arch), capability_of(device)
    return needs == has if arch.endswith(("a", "f")) else needs <= has


def graph_waits(launches: Sequence[DeviceLaunch], after: Sequence[Sequence[int]] | None) -> list[tuple[int, ...]]:
    """For each launch of a graph, the earlier ones that it waits for. LightNetError where `after` is none of
    `Driver.graph`."""
    if after is None:
        return [(i - 1,) if i else () for i in range(len(launches))]
    found = [tuple(sorted(set(numbers))) for numbers in after]
    if len(found) != len(launches) or not all(0 <= n < i for i, numbers in enumerate(found) for n in numbers):
        raise LightNetError("the launches of a graph wait for earlier ones of it")
    return found


@dataclass(frozen=True)
class Device:
    """A device of this machine. `ordinal` is the driver's number of it, `version` the CUDA version that the driver is
    for, `shared_bytes` the shared memory that a block may have."""

    ordinal: int
    name: str
    capability: tuple[int, int]
    memory_bytes: int
    version: tuple[int, int]
    shared_bytes: int  # that a block may have

    @property
    def arch(self) -> str:
        """The architecture as PTX spells it: ``sm_90``."""
        return f"sm_{self.capability[0]}{self.capability[1]}"

    @property
    def is_supported(self) -> bool:
        """True if compiled networks run on it."""
        return self.capability >= LEAST_CAPABILITY


class Module(Protocol):
    """PTX, loaded."""

    def function(self, name: str) -> Any:
        """The kernel of that name, for `DeviceLaunch`; LightNetError if there is none."""


class LaunchGraph(Protocol):
    """Launches that were recorded once."""

    def launch(self) -> None:
        """Run all of them, each behind those that it follows, behind everything launched before; does not wait."""


class Driver(Protocol):
    """A device. Everything is done in the order of the calls; `launch`, `fill`, `upload` and `LaunchGraph.launch` do
    not wait for the device.

    Any call raises LightNetError where the device reports an error, which may be that of an earlier launch.
    """

    name: str
    arch: str
    memory_bytes: int
    is_emulated: bool  # its times are no device's

    def load(self, ptx: str) -> Module:
        """Make the kernels of a PTX text ready; LightNetError, at the line of the PTX, if it is refused."""

    def alloc(self, nbytes: int) -> int:
        """The address of new memory, a multiple of 256; what it holds is undefined."""

    def free(self, address: int) -> None:
        """Give back what `alloc` gave."""

    def upload(self, address: int, data: np.ndarray) -> None:
        """Copy an array of any shape and dtype to the device; `data` may be changed once this returns."""

    def download(self, address: int, out: np.ndarray) -> None:
        """Fill `out` (any shape and dtype) from the device, with what is there after all earlier calls."""

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        """Set `nbytes` bytes to the value `byte`, 0 to 255."""

    def tensor_map(self, address: int, map: TensorMap) -> bytes:
        """The map of the tensor at an address, as a parameter of a kernel: 128 bytes. LightNetError for one that the
        device does not take, or if it takes none."""

    def launch(self, launch: DeviceLaunch) -> None:
        """Run a kernel."""

    def graph(self, launches: Sequence[DeviceLaunch], after: Sequence[Sequence[int]] | None = None) -> LaunchGraph:
        """Record launches, to be run together any number of times. `after` has, for each, the numbers of the earlier
        ones that it has to wait for; what does not wait for each other, even through others, may run at once (default:
        each waits for the one before it)."""

    def synchronize(self) -> None:
        """Wait for everything; LightNetError names the launch that failed."""

    def time(self, call: Callable[[], None]) -> float:
        """The seconds that the device takes for what `call` launches."""

    def close(self) -> None:
        """Give back all memory. Nothing else may be called afterwards; closing again does nothing."""


def arguments(driver: Driver, addresses: Sequence[int], maps: Sequence[TensorMap | None]) -> tuple[int | bytes, ...]:
    """The arguments of a kernel at these addresses: where `maps`, one an address or none at all, has a map, the
    driver's of it."""
    pairs = zip(addresses, maps or [None] * len(addresses), strict=True)
    return tuple(at if map is None else driver.tensor_map(at, map) for at, map in pairs)


def check_maps(arch: str, name: str) -> None:
    """Raise LightNetError for a device, by its architecture and name, that has no tensor maps."""
    if capability_of(arch) < MAPS_CAPABILITY:
        least = ".".join(map(str, MAPS_CAPABILITY))
        raise LightNetError(f"{name} ({arch}) has no tensor maps: they take compute capability {least} or later")


def encode(argument: Argument) -> bytes:
    """The bytes of a kernel's parameter, little-endian, a tensor map as it is; LightNetError for a value that its type
    does not hold."""
    if isinstance(argument, bytes):
        return argument
    kind, value = argument if isinstance(argument, tuple) else ("u64", argument)
    if kind not in _FORMATS:
        raise LightNetError(f"a parameter of a kernel has no type '{kind}'; there are: {', '.join(_FORMATS)}")
    try:
        return struct.pack(_FORMATS[kind], value)
    except (struct.error, OverflowError):
        raise LightNetError(f"a parameter of a kernel of type {kind} does not hold {value!r}") from None


def open_driver(emulate: bool = False, arch: str = "sm_80") -> Driver:
    """The first supported device that the NVIDIA driver shows (``CUDA_VISIBLE_DEVICES`` selects), or the emulator of
    one of `arch` (``sm_90a``: of one that runs code for it). Raises CudaUnavailable, and LightNetError where there is
    no emulator."""
    if emulate:
        return _emulator(arch)
    from lightnet.runtime.cuda.libcuda import LibCuda

    return LibCuda()


def _emulator(arch: str) -> Driver:
    """The emulator of a device: the one place where this package imports the interpreter, which stands beside it."""
    try:
        found = import_module(f"{INTERPRETER}.emulator")
    except ModuleNotFoundError as e:
        if e.name != INTERPRETER:
            raise
        raise LightNetError(
            f"emulation needs the PTX interpreter, the package {INTERPRETER}, which is not installed: "
            "lightnet-compiler "
            "brings it, and beside lightnet-runtime, pip install lightnet-ptx does"
        ) from None
    emulator: Driver = found.Emulator(arch)
    return emulator


def devices() -> list[Device]:
    """The devices that the NVIDIA driver shows, supported or not: at least one. Raises CudaUnavailable where there is
    none, or no driver for them."""
    from lightnet.runtime.cuda.api import connect, device_list

    return device_list(connect())
