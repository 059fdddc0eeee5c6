"""A network compiled for CUDA, as data, and loaded on a device: one allocation for the static tensors, one for each other memory
space, and the launch list as CUDA graphs.

All goes through the `Driver` protocol, so that the emulator runs the same program. Imports NumPy, the standard library and the
runtime: no xDSL, no LLVM.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, TextIO

import numpy as np

from lightnet.diagnostics import LightNetError
from lightnet.runtime.cuda.driver import Driver, Graph, Launch, Module, arguments
from lightnet.runtime.cuda.machine import MACHINE
from lightnet.runtime.cuda.tensor_map import TensorMap, check
from lightnet.runtime.instance import host_call
from lightnet.runtime.machine import Area, Opened
from lightnet.runtime.program import Program, Tensor, sized
from lightnet.runtime.threads import threads_of_call

Sizes = tuple[int, int, int]
#: A place: memory space and byte offset.
Place = tuple[str, int]


@dataclass(frozen=True)
class KernelLine:
    """A launch: the kernel's name in the PTX, its grid, the threads of its blocks, bytes of dynamic shared memory, the places that its
    pointers stand for, and the numbers of the launches that it waits for, among those since the last run-time call. `maps` has, for each
    place, the tensor map that the kernel takes in place of its pointer, or None; nothing if it takes none."""

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
    """What a device runs: PTX, the architecture that it is for, and the lines of the program in order."""

    ptx: str
    arch: str
    lines: tuple[KernelLine | HostLine, ...]

    def header(self) -> dict[str, Any]:
        """Everything but the PTX, as JSON values."""
        return {"arch": self.arch, "lines": [asdict(line) for line in self.lines]}

    @classmethod
    def from_header(cls, header: Mapping[str, Any], ptx: str, program: Program) -> CudaCode:
        """The code of a header; ValueError, TypeError, KeyError or LightNetError when it is none, or has places or tensor maps outside of the
        program's memory, or launches that wait for others than earlier ones.

        What a kernel does stands in the PTX alone: whether it stays within its tensors, and whether `after` names every launch whose
        results it reads, is not known here. A file is trusted as far as its code is.
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
        check(offset, map)  # a memory space begins at a multiple of 256
        if offset + map.nbytes > memory[space]:
            raise ValueError("a tensor map outside of memory")


def _check_after(lines: Sequence[KernelLine | HostLine]) -> None:
    """ValueError for a launch that waits for another than an earlier one since the last run-time call, or for one twice."""
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
Part = Graph | HostLine


class CudaInstance:
    """A program on a device: `driver` is the state of `opened`, if that is given, and closed with it.

    `static` holds the bytes of the static space, `defaults` the contents of inputs and residents after loading. Calls from several
    threads are safe: they run one after the other, since there is one arena. `launches` are the kernels of the launch list, in order, for
    who runs them one by one, in an instance of their own (`apart`).
    """

    def __init__(
        self,
        program: Program,
        code: CudaCode,
        static: np.ndarray,
        defaults: Mapping[str, np.ndarray],
        driver: Driver,
        opened: Opened | None = None,
    ):
        self._opened = opened  # the driver is closed with the last reference to it
        self.program, self.code, self.static, self.driver = program, code, static, driver
        self.defaults = dict(defaults)
        self.inputs = {t.name: t for t in program.inputs}
        self._filled = {t.name: t for t in (*program.inputs, *program.residents)}
        self._lost = dict(program.overwritten)
        self._lock = threading.Lock()
        self._stale: set[str] | None = None  # tensors to write before the next run; None: all of them
        self._uploaded: np.ndarray | None = None  # the bytes that the static space of the device holds
        sizes = {space: max(size, 1) for space, size in {"static": 1, "arena": 1, **program.memory}.items()}
        if sum(sizes.values()) > driver.memory_bytes:
            raise LightNetError(
                f"the network needs {sum(sizes.values())} bytes of device memory, and {driver.name} has {driver.memory_bytes}"
            )
        #: The device address of each memory space.
        self.address = {space: driver.alloc(size) for space, size in sizes.items()}
        self.launches: list[Launch] = []
        self._parts = list(self._recorded())

    def apart(self) -> CudaInstance:
        """The same program on the same device, with memory of its own."""
        return CudaInstance(self.program, self.code, self.static, self.defaults, self.driver, self._opened)

    def release(self) -> None:
        """Give back the memory. Nothing else may be called afterwards."""
        for address in self.address.values():
            self.driver.free(address)

    def _recorded(self) -> Iterator[Part]:
        """The launch list in pieces: what stands between run-time calls is a graph."""
        module = self.driver.load(self.code.ptx)
        for is_host, lines in groupby(self.code.lines, lambda line: isinstance(line, HostLine)):
            if is_host:
                yield from lines
                continue
            kernels = [line for line in lines if isinstance(line, KernelLine)]
            launches = [self._launch(module, line) for line in kernels]
            self.launches += launches
            yield self.driver.graph(launches, [line.after for line in kernels])

    def _launch(self, module: Module, line: KernelLine) -> Launch:
        args = arguments(self.driver, [self._at(place) for place in line.places], line.maps)
        return Launch(module.function(line.kernel), line.grid, line.block, line.shared, args)

    def _at(self, place: Place) -> int:
        return self.address[place[0]] + place[1]

    def quick(self, feeds: Any) -> dict[str, np.ndarray] | None:
        """The way around checks and look-ups that `Instance` has: there is none here, and `call` does everything."""
        return None

    def call(
        self,
        feeds: Mapping[str, Any],
        *,
        static: np.ndarray | None = None,
        stream: TextIO | None = None,
        residents: Mapping[str, np.ndarray] | None = None,
        threads: int | None = None,
        out: Mapping[str, np.ndarray] | None = None,
    ) -> dict[str, np.ndarray]:
        """Run once on `feeds` (input name → array) and return the outputs, new arrays but for those that `out` has arrays for, in the
        program's order.

        `static` and `residents` replace the loaded contents of the static space and of residents, for this call. `threads` is
        checked, and means nothing to a device.
        """
        threads_of_call(threads, self.program.threads)
        if self._opened is not None:
            _ = self._opened.state  # an error once it is closed
        arrays = self.program.fed(feeds)
        with self._lock:
            self._start({**(residents or {}), **arrays}, self.static if static is None else static)
            for part in self._parts:
                if isinstance(part, HostLine):
                    self._host(part, stream or sys.stdout)
                else:
                    part.launch()
            outputs = (t for t in self.program.outputs if t.name not in self._lost)
            found = {t.name: self._read(t, (out or {}).get(t.name)) for t in outputs}
            self.driver.synchronize()  # a program without outputs has errors, too
            return sized(found, self.program.counts)

    def start(self, feeds: Mapping[str, np.ndarray], static: np.ndarray) -> None:
        """Write all that a call starts from: inputs and residents, of which `feeds` replaces some, and the static space."""
        with self._lock:
            self._stale = None
            self._start(feeds, static)
            self._stale = None

    def launch_all(self) -> None:
        """Run the whole program but its run-time calls, from where `start` leaves the memory; does not wait."""
        for part in self._parts:
            if not isinstance(part, HostLine):
                part.launch()

    def bytes_at(self, place: Place, size: int) -> np.ndarray:
        """A copy of `size` bytes of the device's memory, as they are after all earlier launches."""
        found = np.empty(size, np.uint8)
        if size:
            self._copy_out(place, found)
        return found

    def enqueue(self) -> None:
        """Launch the kernels once more, on what the device holds from the call before, and do not wait: what a benchmark times. Run-time calls are left
        out."""
        for part in self._parts:
            if not isinstance(part, HostLine):
                part.launch()

    def _start(self, feeds: Mapping[str, np.ndarray], static: np.ndarray) -> None:
        """Write what a run starts from, as far as it is not there already."""
        if self._uploaded is not static:
            self._uploaded = None  # should the copy fail, it is made again next time
            if static.nbytes:
                self._write(("static", 0), static[: max(self.program.memory.get("static", 0), 1)])
            self._uploaded = static
        names = set(self._filled) if self._stale is None else {*self._stale, *feeds, *self.program.restore}
        self._stale = None
        for name in names & self._filled.keys():
            tensor = self._filled[name]
            array = np.ascontiguousarray(feeds[name] if name in feeds else self.defaults[name], tensor.np_dtype)
            if array.nbytes:
                self._write((tensor.space, tensor.offset), array)
        self._stale = set(feeds)

    def _read(self, tensor: Tensor, out: np.ndarray | None = None) -> np.ndarray:
        found = np.empty(tensor.dims, tensor.np_dtype) if out is None else out
        if found.nbytes:
            self._copy_out((tensor.space, tensor.offset), found)
        return found

    def _write(self, place: Place, array: np.ndarray) -> None:
        """Copy a contiguous array to the device."""
        MACHINE.copy(self.driver, Area(place[0], self._at(place), array.nbytes), Area.of(array))

    def _copy_out(self, place: Place, found: np.ndarray) -> None:
        """Fill a contiguous array from the device."""
        MACHINE.copy(self.driver, Area.of(found), Area(place[0], self._at(place), found.nbytes))

    def _host(self, line: HostLine, stream: TextIO) -> None:
        call = self.program.hosts[line.number]
        array = self._read(Tensor("", call.dims, call.dtype, *line.place))
        host_call(call, array.ctypes.data, stream)
