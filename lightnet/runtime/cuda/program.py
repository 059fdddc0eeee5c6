"""A network compiled for CUDA, as data, and loaded on a device: one allocation for the static tensors, one for each
other memory space, and the launch list as CUDA graphs.

All goes through the `Driver` protocol, so that the emulator runs the same program. Imports NumPy, the standard library
and the runtime: no xDSL, no LLVM.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any, TextIO

import numpy as np

from lightnet.dataclasses import asdict, dataclass, replace
from lightnet.diagnostics import LightNetError
from lightnet.runtime.cuda.driver import DeviceLaunch, Driver, LaunchGraph, Module, arguments
from lightnet.runtime.cuda.machine import MACHINE
from lightnet.runtime.cuda.tensor_map import TensorMap, check_tensor_map
from lightnet.runtime.dims import Dim, Size, Symbol
from lightnet.runtime.machine import Machine, Opened
from lightnet.runtime.program import Program, evaluator_of, read_size, with_texts
from lightnet.runtime.spaces import Place, SpacesInstance

Sizes = tuple[int, int, int]
Number = Callable[[Size], Any]


@dataclass(frozen=True)
class KernelLine:
    """A launch: the kernel's name in the PTX, its grid, the threads of its blocks, bytes of dynamic shared memory, the
    places that its pointers stand for, and the numbers of the launches that it waits for, among those since the last
    run-time call. `maps` has, for each place, the tensor map that the kernel takes in place of its pointer, or None;
    nothing if it takes none. `numbers` are what it takes in front of its pointers: values of symbols. These, the grid
    and offsets of places are numbers, or what a call decides."""

    kernel: str
    grid: Sizes
    block: Sizes
    shared: int
    places: tuple[Place, ...]
    after: tuple[int, ...]
    maps: tuple[TensorMap | None, ...] = ()
    numbers: tuple[int, ...] = ()

    def with_sizes(self, number: Number) -> KernelLine:
        """The launch with numbers in the place of sizes."""
        x, y, z = map(number, self.grid)
        places = tuple((space, number(offset)) for space, offset in self.places)
        return replace(self, grid=(x, y, z), places=places, numbers=tuple(map(number, self.numbers)))


@dataclass(frozen=True)
class HostLine:
    """A run-time call, by its number in `Program.hosts`, and the place of its tensor."""

    number: int
    place: Place

    def with_sizes(self, number: Number) -> HostLine:
        """The call with a number in the place of an offset."""
        return replace(self, place=(self.place[0], number(self.place[1])))


@dataclass(frozen=True)
class CudaCode:
    """The code that a device runs: PTX, the architecture that it is for, and the lines of the program in order; those
    of a call (`at`), where it decides sizes."""

    ptx: str
    arch: str
    lines: tuple[KernelLine | HostLine, ...]

    def header(self) -> dict[str, Any]:
        """Everything but the PTX, as JSON values."""
        return {"arch": self.arch, "lines": with_texts([asdict(line) for line in self.lines])}

    def at(self, symbols: Sequence[Symbol], values: Sequence[int]) -> CudaCode:
        """The code of calls in which symbols have these values."""
        number = evaluator_of({s.name: n for s, n in zip(symbols, values, strict=True)})
        return replace(self, lines=tuple(line.with_sizes(number) for line in self.lines))

    @classmethod
    def from_header(cls, header: Mapping[str, Any], ptx: str, program: Program) -> CudaCode:
        """The code of a header; ValueError, TypeError, KeyError or LightNetError when it is none, or has places or
        tensor maps outside of the program's memory, or launches that wait for others than earlier ones.

        What a kernel does stands in the PTX alone: whether it stays within its tensors, and whether `after` names every
        launch whose results it reads, is not known here. A file is trusted as far as its code is. Places that calls
        decide are looked at in some calls; `check` is for any other.
        """
        known = {s.name: s.dim for s in program.symbols}
        lines = tuple(_line(entry, known) for entry in header["lines"])
        _check_after(lines)
        if [line.number for line in lines if isinstance(line, HostLine)] != list(range(len(program.hosts))):
            raise ValueError("run-time calls that there are not")
        known_symbols = {s.dim for s in program.symbols}
        if any(n not in known_symbols for line in lines if isinstance(line, KernelLine) for n in line.numbers):
            raise ValueError("a kernel takes what is no symbol of the program")
        code = cls(ptx, str(header["arch"]), lines)
        for example in program.examples:
            code.at(program.symbols, example.values).check(example)
        return code

    def check(self, program: Program) -> None:
        """ValueError or LightNetError where the code of a call has a place or a tensor map outside of the memory of
        `program`, that of the call."""
        for line in self.lines:
            for space, offset in line.places if isinstance(line, KernelLine) else (line.place,):
                if not 0 <= offset <= program.memory[space]:
                    raise ValueError("a place outside of memory")
            if isinstance(line, KernelLine) and line.maps:
                _check_maps(line, program.memory)


def _line(entry: Mapping[str, Any], known: Mapping[str, Dim]) -> KernelLine | HostLine:
    """A line of a header, in whose sizes there are the symbols `known`."""

    def size(value: Any) -> Any:
        return read_size(value, known) if isinstance(value, str) else int(value)

    def place(entry: Sequence[Any]) -> Place:
        space, offset = entry
        return str(space), size(offset)

    if "number" in entry:
        return HostLine(int(entry["number"]), place(entry["place"]))
    grid, block = tuple(map(size, entry["grid"])), tuple(map(int, entry["block"]))
    if len(grid) != 3 or len(block) != 3:
        raise ValueError("a grid or a block that has not three sizes")
    places, after = tuple(map(place, entry["places"])), tuple(map(int, entry["after"]))
    maps = tuple(m if m is None else TensorMap.from_header(m) for m in entry.get("maps", ()))
    numbers = tuple(map(size, entry.get("numbers", ())))
    return KernelLine(str(entry["kernel"]), grid, block, int(entry["shared"]), places, after, maps, numbers)


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


#: A piece of the launch list: a graph of kernels, or a run-time call.
Part = LaunchGraph | HostLine


#: A space that grows gets this part more than it needs: one that grows with each call (a cache does) is seldom a new
#: one.
GROWTH = 16


class DeviceSpaces:
    """The kernels of a code on a device, and the memory spaces that its programs share, those of one call after the
    other: they have grown to what calls have needed so far. `user` is the mark of the instance whose inputs they hold,
    `uploaded` the static tensors. Whoever uses them holds the `lock`."""

    def __init__(self, code: CudaCode, driver: Driver):
        self.code, self.driver = code, driver
        self.lock = threading.Lock()
        self.user: object = None
        self.uploaded: np.ndarray | None = None
        #: The device address of each memory space, and how often one has become another.
        self.address: dict[str, int] = {}
        self.moves = 0
        self._sizes: dict[str, int] = {}

    @cached_property
    def module(self) -> Module:
        """The kernels, ready to be launched."""
        return self.driver.load(self.code.ptx)

    def hold(self, sizes: Mapping[str, int]) -> None:
        """Let each space have so many bytes or more. Raises `LightNetError` where the device has fewer."""
        grown = {space: size for space, size in sizes.items() if size > self._sizes.get(space, 0)}
        if not grown:
            return
        if (needed := sum({**self._sizes, **grown}.values())) > self.driver.memory_bytes:
            name, most = self.driver.name, self.driver.memory_bytes
            raise LightNetError(f"the network needs {needed} bytes of device memory, and {name} has {most}")
        self.moves, self.user = self.moves + 1, None
        for space, size in grown.items():
            if space in self.address:
                self.driver.free(self.address.pop(space))
                self._sizes[space] = 0  # should there be no memory
                if needed + size // GROWTH <= self.driver.memory_bytes and self._take(space, size + size // GROWTH):
                    continue
            if space == "static":
                self.uploaded = None
            self.address[space] = self.driver.alloc(size)
            self._sizes[space] = size

    def _take(self, space: str, size: int) -> bool:
        """Let a space have so many bytes, if there are as many to give."""
        try:
            self.address[space] = self.driver.alloc(size)
        except LightNetError:
            return False
        self._sizes[space] = size
        return True

    def release(self) -> None:
        """Give back the memory."""
        for address in self.address.values():
            self.driver.free(address)


class CudaInstance(SpacesInstance):
    """A program on a device: `driver` is the state of `opened`, if that is given, `spaces` what it shares with others
    of the same code. `launches` are the kernels of the launch list, in order, for who runs them one by one; None for
    one on an empty grid."""

    def __init__(
        self,
        program: Program,
        code: CudaCode,
        static: np.ndarray,
        defaults: Mapping[str, np.ndarray],
        driver: Driver,
        opened: Opened | None = None,
        spaces: DeviceSpaces | None = None,
    ):
        super().__init__(program, static, defaults, opened)
        self.code, self.driver = code, driver
        self.spaces = spaces or DeviceSpaces(code, driver)
        self._lock = self.spaces.lock
        self._sizes = {space: max(size, 1) for space, size in {"static": 1, "arena": 1, **program.memory}.items()}
        self._recorded_for, self._mark = -1, object()
        self.launches: list[DeviceLaunch | None] = []
        if spaces is None:
            self._settle()

    @property
    def address(self) -> Mapping[str, int]:
        """The device address of each memory space."""
        return self.spaces.address

    def _settle(self) -> None:
        """Have the memory that the program needs, and the launch list recorded for where it stands now."""
        self.spaces.hold(self._sizes)
        if self._recorded_for != self.spaces.moves:
            self.launches = []
            self._parts = list(self._recorded())
            self._recorded_for = self.spaces.moves
        if self.spaces.user is not self._mark:
            self.spaces.user, self._stale = self._mark, None
        self._uploaded = self.spaces.uploaded

    def _start(self, feeds: Mapping[str, np.ndarray], static: np.ndarray) -> None:
        self._settle()
        self.spaces.uploaded = None  # should a copy fail
        super()._start(feeds, static)
        self.spaces.uploaded = self._uploaded

    @property
    def machine(self) -> tuple[Machine, Driver]:
        return MACHINE, self.driver

    def apart(self) -> CudaInstance:
        return CudaInstance(self.program, self.code, self.static, self.defaults, self.driver, self.opened)

    def release(self) -> None:
        self.spaces.release()

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
        if (launch := self.launches[number]) is not None:
            self.driver.launch(launch)

    def _recorded(self) -> Iterator[Part]:
        """The launch list in pieces: what stands between run-time calls is a graph."""
        module = self.spaces.module
        for is_host, lines in groupby(self.code.lines, lambda line: isinstance(line, HostLine)):
            if is_host:
                yield from (line for line in lines if isinstance(line, HostLine))
                continue
            kernels = [line for line in lines if isinstance(line, KernelLine)]
            launches = [self._launch(module, line) if 0 not in line.grid else None for line in kernels]
            self.launches += launches
            after = _of_some([line.after for line in kernels], [launch is not None for launch in launches])
            if made := [launch for launch in launches if launch is not None]:
                yield self.driver.graph(made, after)

    def _launch(self, module: Module, line: KernelLine) -> DeviceLaunch:
        args = arguments(self.driver, [self.at(place) for place in line.places], line.maps)
        numbers = (("s64", n) for n in line.numbers)
        return DeviceLaunch(module.function(line.kernel), line.grid, line.block, line.shared, (*numbers, *args))


def _of_some(after: Sequence[Sequence[int]], is_there: Sequence[bool]) -> list[tuple[int, ...]]:
    """For the launches that are there, in their own numbers, those that each waits for: in the place of one that is not
    there, what that would have waited for."""
    number = {k: n for n, k in enumerate(k for k, there in enumerate(is_there) if there)}
    waits: list[tuple[int, ...]] = []
    for earlier in after:
        found = (n for k in earlier for n in ((number[k],) if is_there[k] else waits[k]))
        waits.append(tuple(dict.fromkeys(found)))
    return [wait for wait, there in zip(waits, is_there) if there]
