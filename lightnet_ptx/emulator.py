"""The `Driver` that needs no device: it runs the PTX that ships in the interpreter, and finds what a device
would do silently.

Kernels run when they are launched. With `check` races are looked for; accesses outside allocations, misaligned ones,
and reads of what was never written are found always. A finding is a LightNetError at the line of the PTX.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush

import numpy as np

from lightnet.diagnostics import LightNetError
from lightnet.runtime.cuda.driver import DeviceLaunch, check_maps, encode, graph_waits, runs_on
from lightnet.runtime.cuda.tensor_map import TensorMap
from lightnet_ptx import races, tensor_map
from lightnet_ptx.clocks import owners
from lightnet_ptx.decode import Decoder
from lightnet_ptx.kernel import Kernel, Symbol
from lightnet_ptx.machine import STEP_LIMIT, Batch
from lightnet_ptx.memory import SET, GlobalMemory, Store
from lightnet_ptx.text import parse
from lightnet_ptx.threads import WARP, Geometry

#: How many lanes a batch has at most, and bytes of shared and local memory: registers of a batch should fit into
#: caches.
LANES, BATCH_BYTES = 16384, 1 << 26
#: What a device of an architecture offers a block in shared memory, in bytes, static and dynamic.
SHARED_LIMIT = {"sm_80": 163 << 10, "sm_86": 99 << 10, "sm_89": 99 << 10}
STATIC_LIMIT = 48 << 10
NEWEST_PTX = (9, 0)


class Module:
    """Decoded PTX, and the memory of its variables."""

    def __init__(self, kernels: dict[str, Kernel], variables: list[int]) -> None:
        self.kernels, self.variables = kernels, variables

    def function(self, name: str) -> Kernel:
        """The entry of that name."""
        if name not in self.kernels:
            raise LightNetError(
                f"the module has no kernel {name}; it has: {', '.join(sorted(self.kernels)) or 'none'}",
                label="cuda.function",
            )
        return self.kernels[name]


class _Graph:
    """Launches that run one after the other, in an order that a device might take: of those that wait for nothing more,
    the last one goes first. So a launch that does not wait for what it needs finds that it is not there."""

    def __init__(self, emulator: Emulator, launches: Sequence[DeviceLaunch], after: Sequence[Sequence[int]]) -> None:
        self._emulator = emulator
        self._launches = tuple(launches[i] for i in _late_first(after))

    def launch(self) -> None:
        """Run all of them."""
        for launch in self._launches:
            self._emulator.launch(launch)


def _late_first(after: Sequence[Sequence[int]]) -> Iterator[int]:
    """The numbers of launches in the order in which they run."""
    behind: list[list[int]] = [[] for _ in after]
    missing = [len(numbers) for numbers in after]
    for i, numbers in enumerate(after):
        for n in numbers:
            behind[n].append(i)
    ready = [-i for i, count in enumerate(missing) if not count]
    heapify(ready)
    while ready:
        yield (i := -heappop(ready))
        for k in behind[i]:
            missing[k] -= 1
            if not missing[k]:
                heappush(ready, -k)


class Emulator:
    """A device in NumPy. `check` looks for races; `trace` is called before each instruction with the `machine.Batch`
    that executes it (its `here` is the index of the instruction in `kernel.sites`). `memory_bytes` bounds what can be
    allocated, `step_limit` the instructions that a batch of blocks may execute.
    """

    def __init__(
        self,
        arch: str = "sm_80",
        check: bool = True,
        memory_bytes: int = 16 << 30,
        step_limit: int = STEP_LIMIT,
        trace: Callable[[Batch], None] | None = None,
        lanes: int = LANES,
    ) -> None:
        self.is_emulated = True
        self.name, self.arch, self.memory_bytes = "PTX interpreter", arch, memory_bytes
        self.check, self.step_limit, self.trace, self.lanes = check, step_limit, trace, lanes
        self.memory = GlobalMemory(memory_bytes)
        self._epoch = 1
        self._count = 0
        self._own: set[int] = set()
        self.executed = 0  # thread-instructions, of all launches

    # -- modules
    def load(self, text: str) -> Module:
        """Read PTX and decode its entries. LightNetError, at the line, where it is not understood, or is for a newer
        device.
        """
        module = parse(text)
        if module.version > NEWEST_PTX or module.version < (1, 0):
            raise module.source.error(
                f"PTX {module.version[0]}.{module.version[1]}: up to {NEWEST_PTX[0]}.{NEWEST_PTX[1]} is understood",
                0,
                "ptx.version",
            )
        if not runs_on(module.target, self.arch):
            raise module.source.error(f"PTX for {module.target} does not run on {self.arch}", 0, "ptx.target")
        symbols, own = {}, []
        for variable in module.variables.values():
            if variable.space == "shared":
                continue
            if variable.extern:
                raise module.source.error(f"variable {variable.name} is defined in no module", variable.pos, "ptx.name")
            store = self.memory.alloc(variable.size, variable.name, variable.space)
            store.data[: len(variable.data or b"")] = np.frombuffer(variable.data or b"", np.uint8)
            store.state = None  # what has no initial value is 0
            symbols[variable.name] = Symbol(variable.space, store.base, variable.size, variable.align)
            own.append(store.base)
        kernels = {f.name: Decoder(module, f, symbols).run() for f in module.functions.values() if f.entry and f.body}
        self._own |= set(own)
        return Module(kernels, own)

    # -- memory
    def alloc(self, nbytes: int) -> int:
        """The address of new memory."""
        self._count += 1
        return self.memory.alloc(nbytes, f"allocation {self._count}").base

    def free(self, address: int) -> None:
        """Give back what `alloc` gave; accesses to it are findings from then on."""
        if address in self._own:
            raise LightNetError(f"address {address:#x} is a variable of a module", label="cuda.free")
        self.memory.free(address)

    def upload(self, address: int, data: np.ndarray) -> None:
        """Copy an array to the device."""
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        store, offset = self.memory.find(address, raw.nbytes)
        store.data[offset : offset + raw.nbytes] = raw
        store.mark(offset, raw.nbytes)

    def download(self, address: int, out: np.ndarray) -> None:
        """Fill `out` from the device; bytes that were never written come as 0xFF, which floats read as NaN."""
        store, offset = self.memory.find(address, out.nbytes)
        raw = store.data[offset : offset + out.nbytes]
        if store.state is not None:
            raw = np.where(store.state[offset : offset + out.nbytes] == SET, raw, np.uint8(255))
        out[...] = np.frombuffer(raw.tobytes(), out.dtype).reshape(out.shape)

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        """Set bytes."""
        store, offset = self.memory.find(address, nbytes)
        store.data[offset : offset + nbytes] = byte
        store.mark(offset, nbytes)

    def poison(self, address: int, nbytes: int) -> None:
        """Count bytes as never written: what a memory plan gives to another tensor."""
        store, offset = self.memory.find(address, nbytes)
        if store.state is None:
            store.state = np.ones(len(store.data), np.uint8)
        store.state[offset : offset + nbytes] = 0

    def tensor_map(self, address: int, map: TensorMap) -> bytes:
        """The map of the tensor at an address, in a form of the interpreter's own: 128 bytes. LightNetError for one
        that a driver refuses, and for a device without tensor maps."""
        check_maps(self.arch, self.name)
        return tensor_map.encode(address, map)

    # -- launches
    def launch(self, launch: DeviceLaunch) -> None:
        """Run a kernel to its end. LightNetError for what it does wrong."""
        kernel: Kernel = launch.function
        self._verify(kernel, launch)
        if self._epoch > races.MAX_EPOCH:
            self._epoch = 1
            for store in self.memory.stores():
                store.races = None
        geometry = Geometry(launch.grid, launch.block, launch.shared, self._epoch)
        params = self._params(kernel, launch)
        lanes = -(-geometry.threads // WARP) * WARP
        each = kernel.shared_bytes + launch.shared + kernel.local_bytes * lanes
        if self.check and (kernel.mbarriers or kernel.sums):
            granules = (kernel.shared_bytes + launch.shared) // kernel.granules["shared"]
            each += 4 * granules * owners(lanes)  # of `clocks.Clocks`
        count = max(1, min(self.lanes // lanes, BATCH_BYTES // max(each, 1)))
        last = self._epoch
        for first in range(0, geometry.blocks, count):
            batch = Batch(kernel, geometry, first, min(count, geometry.blocks - first), self.memory, params, self.check)
            batch.run(self.trace, self.step_limit)
            last = max(last, int(batch.epoch.max()))
            self.executed += batch.steps * batch.count * geometry.threads
        self._epoch = last + 1

    def _verify(self, kernel: Kernel, launch: DeviceLaunch) -> None:
        """Refuse what a driver refuses."""
        x, y, z = launch.block
        if (
            min(*launch.block, *launch.grid) < 1
            or x * y * z > 1024
            or z > 64
            or launch.grid[0] >= 1 << 31
            or max(launch.grid[1:]) > 65535
        ):
            raise self._refused(kernel, f"grid {launch.grid} of blocks {launch.block}")
        if launch.grid[0] * launch.grid[1] * launch.grid[2] >= 1 << 24:
            raise self._refused(kernel, f"grid {launch.grid}: the interpreter takes up to {1 << 24} blocks")
        required = kernel.limits.get(".reqntid")
        if required and launch.block != (*required, 1, 1)[:3]:
            raise self._refused(kernel, f"block {launch.block}, and the kernel requires {required}")
        most = kernel.limits.get(".maxntid")
        if most and x * y * z > int(np.prod(most)):
            raise self._refused(kernel, f"block {launch.block} of more than {most} threads")
        static = sum(s.size for s in kernel.shared.values())
        limit = SHARED_LIMIT.get(self.arch, 227 << 10)
        if static > STATIC_LIMIT or launch.shared < 0 or static + launch.shared > limit:
            raise self._refused(
                kernel,
                f"{static} bytes of static and {launch.shared} of dynamic shared memory; "
                f"a block may have {STATIC_LIMIT} static, {limit} in all",
            )

    def _refused(self, kernel: Kernel, reason: str) -> LightNetError:
        return LightNetError(f"launch of {kernel.name} refused: {reason}", label="cuda.launch")

    def _params(self, kernel: Kernel, launch: DeviceLaunch) -> Store:
        """The parameter space of a launch."""
        offsets, size = kernel.param_offsets()
        if len(launch.args) != len(offsets):
            raise self._refused(kernel, f"{len(launch.args)} arguments for {len(offsets)} parameters")
        store = Store(size, "the parameters", "kparam", is_set=True)
        for number, (arg, offset, param) in enumerate(zip(launch.args, offsets, kernel.params)):
            raw = encode(arg)
            if len(raw) != param.size:
                raise self._refused(kernel, f"argument {number} has {len(raw)} bytes, the parameter {param.size}")
            store.data[offset : offset + len(raw)] = np.frombuffer(raw, np.uint8)
        return store

    def graph(self, launches: Sequence[DeviceLaunch], after: Sequence[Sequence[int]] | None = None) -> _Graph:
        """Launches to run together."""
        return _Graph(self, launches, graph_waits(launches, after))

    def synchronize(self) -> None:
        """Nothing: a launch ends before `launch` returns."""

    def time(self, call: Callable[[], None]) -> float:
        """The seconds that `call` takes here, which say nothing about a device."""
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    def close(self) -> None:
        """Give back all memory."""
        self.memory = GlobalMemory(self.memory_bytes)
