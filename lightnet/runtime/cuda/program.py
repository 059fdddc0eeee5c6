"""A network compiled for CUDA, as data, and loaded on a device: one allocation for the static tensors, one for each
other memory space, and the launch list as CUDA graphs.

All goes through the `Driver` protocol, so that the emulator runs the same program. Imports NumPy, the standard library
and the runtime: no xDSL, no LLVM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, TextIO

import numpy as np

from lightnet.dataclasses import asdict, dataclass
from lightnet.diagnostics import LightNetError
from lightnet.runtime.cuda.driver import DeviceLaunch, Driver, LaunchGraph, Module, arguments
from lightnet.runtime.cuda.machine import MACHINE
from lightnet.runtime.cuda.tensor_map import TensorMap, check_tensor_map
from lightnet.runtime.machine import Machine, Opened
from lightnet.runtime.program import Program
from lightnet.runtime.spaces import Place, SpacesInstance

Sizes = tuple[int, int, int]


@dataclass(frozen=True)
class KernelLine:
    """A launch: the kernel's name in the PTX, its grid, the threads of its blocks, bytes of dynamic shared memory, the
    places that its pointers stand for, and the numbers of the launches that it waits for, among those since the last
    run-time call. `maps` has, for each place, the tensor map that the kernel takes in place of its pointer, or None;
    nothing if it takes none."""

    kernel: str
    grid: Sizes
    block: Sizes
    shared: int
    places: tuple[Place, ...]
    after: tuple[int, ...] = ()
    maps: tuple[TensorMap | None, ...] = ()


@dataclass(frozen=True)
class HostLine:
    """A run-time call, by its number in `Program.hosts`, and the place of its tensor."""

    number: int
    place: Place


@dataclass(frozen=True)
class CudaCode:
    """The code that a device runs: PTX, the architecture that it is for, and the lines of the program in order."""

    ptx: str
    arch: str
    lines: tuple[KernelLine | HostLine, ...]

    def header(self) -> dict[str, Any]:
        """Everything but the PTX, as JSON values."""
        return {"arch": self.arch, "lines": [asdict(line) for line in self.lines]}

    @classmethod
    def from_header(cls, header: Mapping[str, Any], ptx: str, program: Program) -> CudaCode:
        """The code of a header; ValueError, TypeError, KeyError or LightNetError when it is none, or has places or
        tensor maps outside of the program's memory, or launches that wait for others than earlier ones.

        What a kernel does stands in the PTX alone: whether it stays within its tensors, and whether `after` names every
        launch whose results it reads, is not known here. A file is trusted as far as its code is.
        """
        lines = tuple(_line(entry) for entry in header["lines"])
        places = [p for line in lines for p in (line.places if isinstance(line, KernelLine) else (line.place,))]
        if not all(0 <= offset <= program.memory[space] for space, offset in places):
            raise ValueError("a place outside of memory")
        for line in lines:
            if isinstance(line, KernelLine) and line.maps:
                _check_maps(line, program.memory)
        _check_after(lines)
        if [line.number for line in lines if isinstance(line, HostLine)] != list(range(len(program.hosts))):
            raise ValueError("run-time calls that there are not")
        return cls(ptx, str(header["arch"]), lines)


def _line(entry: Mapping[str, Any]) -> KernelLine | HostLine:
    if "number" in entry:
        return HostLine(int(entry["number"]), _place(entry["place"]))
    grid, block = (tuple(map(int, entry[key])) for key in ("grid", "block"))
    if len(grid) != 3 or len(block) != 3:
        raise ValueError("a grid or a block that has not three sizes")
    places, after = tuple(map(_place, entry["places"])), tuple(map(int, entry["after"]))
    maps = tuple(m if m is None else TensorMap.from_header(m) for m in entry.get("maps", ()))
    return KernelLine(str(entry["kernel"]), grid, block, int(entry["shared"]), places, after, maps)


def _check_maps(line: KernelLine, memory: Mapping[str, int]) -> None:
    """ValueError or LightNetError for tensor maps that are not one a place, or not of that place's memory."""
    if len(line.maps) != len(line.places):
        raise ValueError("as many tensor maps as places are expected")
    for (space, offset), map in zip(line.places, line.maps):
        if map is None:
            continue
        check_tensor_map(offset, map)  # a memory space begins at a multiple of 256
        if offset + map.nbytes > memory[space]:
            raise ValueError("a tensor map outside of memory")


def _check_after(lines: Sequence[KernelLine | HostLine]) -> None:
    """ValueError for a launch that waits for another than an earlier one since the last run-time call, or for one
    twice."""
    earlier = 0
    for line in lines:
        if isinstance(line, HostLine):
            earlier = 0
            continue
        if len(set(line.after)) != len(line.after) or not all(0 <= n < earlier for n in line.after):
            raise ValueError("a launch that waits for none of the earlier ones")
        earlier += 1


def _place(entry: Sequence[Any]) -> Place:
    space, offset = entry
    return str(space), int(offset)


#: A piece of the launch list: a graph of kernels, or a run-time call.
Part = LaunchGraph | HostLine


class CudaInstance(SpacesInstance):
    """A program on a device: `driver` is the state of `opened`, if that is given. `launches` are the kernels of the
    launch list, in order, for who runs them one by one."""

    def __init__(
        self,
        program: Program,
        code: CudaCode,
        static: np.ndarray,
        defaults: Mapping[str, np.ndarray],
        driver: Driver,
        opened: Opened | None = None,
    ):
        super().__init__(program, static, defaults, opened)
        self.code, self.driver = code, driver
        sizes = {space: max(size, 1) for space, size in {"static": 1, "arena": 1, **program.memory}.items()}
        if sum(sizes.values()) > driver.memory_bytes:
            raise LightNetError(
                f"the network needs {sum(sizes.values())} bytes of device memory, and {driver.name} has "
                f"{driver.memory_bytes}"
            )
        #: The device address of each memory space.
        self.address = {space: driver.alloc(size) for space, size in sizes.items()}
        self.launches: list[DeviceLaunch] = []
        self._parts = list(self._recorded())

    @property
    def machine(self) -> tuple[Machine, Driver]:
        return MACHINE, self.driver

    def apart(self) -> CudaInstance:
        return CudaInstance(self.program, self.code, self.static, self.defaults, self.driver, self.opened)

    def release(self) -> None:
        for address in self.address.values():
            self.driver.free(address)

    def at(self, place: Place) -> int:
        return self.address[place[0]] + place[1]

    def wait(self) -> None:
        self.driver.synchronize()

    def run_all(self, stream: TextIO | None) -> None:
        for part in self._parts:
            if not isinstance(part, HostLine):
                part.launch()
            elif stream is not None:
                self._host(part.number, part.place, stream)

    def launch(self, number: int) -> None:
        """Run one launch, and do not wait."""
        self.driver.launch(self.launches[number])

    def _recorded(self) -> Iterator[Part]:
        """The launch list in pieces: what stands between run-time calls is a graph."""
        module = self.driver.load(self.code.ptx)
        for is_host, lines in groupby(self.code.lines, lambda line: isinstance(line, HostLine)):
            if is_host:
                yield from (line for line in lines if isinstance(line, HostLine))
                continue
            kernels = [line for line in lines if isinstance(line, KernelLine)]
            launches = [self._launch(module, line) for line in kernels]
            self.launches += launches
            yield self.driver.graph(launches, [line.after for line in kernels])

    def _launch(self, module: Module, line: KernelLine) -> DeviceLaunch:
        args = arguments(self.driver, [self.at(place) for place in line.places], line.maps)
        return DeviceLaunch(module.function(line.kernel), line.grid, line.block, line.shared, args)
