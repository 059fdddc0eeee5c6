"""The `Driver` of NVIDIA devices, on the driver library alone: no toolkit, no package.

Everything goes to one stream, in order. ``LIGHTNET_CUDA_SYNC=1`` waits for each launch, so that an error says which one
failed. Imports the standard library and NumPy.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable, Sequence
from ctypes import c_float, c_size_t, c_uint64, c_void_p
from typing import Any

import numpy as np

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.runtime.cuda import api
from lightnet.runtime.cuda.api import Api, CudaError, KernelNode
from lightnet.runtime.cuda.context import DeviceContext
from lightnet.runtime.cuda.driver import (
    LEAST_CAPABILITY,
    CudaUnavailable,
    Device,
    DeviceLaunch,
    check_maps,
    encode,
    graph_waits,
)
from lightnet.runtime.cuda.encoded_maps import encoded
from lightnet.runtime.cuda.modules import DeviceFunction, LoadedModule, check_target
from lightnet.runtime.cuda.staging import Staging
from lightnet.runtime.cuda.tensor_map import MAP_ALIGNMENT, TensorMap, check_tensor_map

_INT_MAX = 2**31 - 1


@dataclass(eq=False)
class _Call:
    """A launch as the driver takes it: `pointers` are the addresses of the arguments, which stand in `values`."""

    handle: int
    sizes: tuple[int, ...]
    pointers: ctypes.Array[c_void_p]
    values: ctypes.Array[ctypes.c_char]
    what: str


class KernelGraph:
    """Launches as one CUDA graph; destroyed when it is collected."""

    def __init__(self, driver: LibCuda, handle: int, launches: tuple[DeviceLaunch, ...]):
        # The launches keep the modules of their kernels loaded.
        self._driver, self._handle, self._launches = driver, handle, launches

    def launch(self) -> None:
        """Run all of them; does not wait."""
        self._driver._launch_graph(self._handle, self._launches)


class LibCuda:
    """The `Driver` of the first supported device. Raises CudaUnavailable where there is none.

    `library` is the driver library (that of the process if None). Calls may come from several threads. In a process
    that was forked after this was made, every call raises LightNetError, and closing it does nothing.
    """

    def __init__(self, library: Api | None = None):
        library = library or api.connect()
        device = _choose(api.device_list(library))
        self.is_emulated = False
        self.name, self.arch, self.memory_bytes = device.name, device.arch, device.memory_bytes
        self._waits = os.environ.get("LIGHTNET_CUDA_SYNC", "") not in ("", "0")
        try:
            self._context = context = DeviceContext(library, device.ordinal)
        except CudaError as error:
            raise CudaUnavailable(f"{device.name} gives no context: {error.message}") from None
        weakref.finalize(self, context.close).atexit = False  # the process's end gives everything back anyway
        self._shared_limit = device.shared_bytes
        self._staging = Staging(context)

    def load(self, ptx: str) -> LoadedModule:
        """Compile a PTX text for this device. LightNetError, at the PTX's line and with the driver's log, if it is
        refused."""
        check_target(ptx, self.arch, self.name)
        return LoadedModule(self._context, ptx)

    # -- memory ------------------------------------------------------------------------------------------------------

    def alloc(self, nbytes: int) -> int:
        """The address of new memory, a multiple of 256. LightNetError says what is free where that is too little."""
        if nbytes < 0:
            raise LightNetError(f"{nbytes} bytes of memory cannot be had")
        address = c_uint64()
        with self._context.current():
            if nbytes > self.memory_bytes:  # it might not even fit a size_t
                raise self._no_room(nbytes)
            try:
                self._context("cuMemAlloc_v2", address, max(nbytes, 1))
            except CudaError as error:
                if error.code != api.OUT_OF_MEMORY:
                    raise
                raise self._no_room(nbytes) from None
            return self._context.hold("cuMemFree_v2", address.value)

    def _no_room(self, nbytes: int) -> LightNetError:
        free, total = c_size_t(), c_size_t()
        self._context("cuMemGetInfo_v2", free, total)
        return LightNetError(
            f"{self.name} has no {nbytes} bytes of memory to give: {free.value} of {total.value} are free"
        )

    def free(self, address: int) -> None:
        """Give back what `alloc` gave, once the device is done with it; LightNetError if there is no such memory."""
        with self._context.current():
            if not self._context.holds("cuMemFree_v2", address):
                raise LightNetError(f"there is no memory at {address:#x} to be freed")
            self._context.wait()
            self._context.give_back("cuMemFree_v2", address)

    def upload(self, address: int, data: np.ndarray) -> None:
        """Copy an array to the device, through pinned memory; `data` may be changed once this returns."""
        with self._context.current():
            if data.size:
                self._staging.upload(address, data)

    def download(self, address: int, out: np.ndarray) -> None:
        """Fill `out` from the device, through pinned memory, with what is there after all earlier calls."""
        dense = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
        with self._context.current():
            if dense.size:
                self._staging.download(address, dense)
                self._context.finished()
        if dense is not out:
            out[...] = dense

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        """Set `nbytes` bytes to the value `byte`, 0 to 255."""
        if not (0 <= byte <= 255 and nbytes >= 0):
            raise LightNetError(f"memory cannot be filled with {nbytes} bytes of {byte}")
        with self._context.current():
            if nbytes:
                self._context("cuMemsetD8Async", address, byte, nbytes, self._context.stream)

    def tensor_map(self, address: int, map: TensorMap) -> bytes:
        """The map of the tensor at an address, as the driver encodes it: 128 bytes. LightNetError for one that it
        refuses, and for a device without tensor maps."""
        check_tensor_map(address, map)
        check_maps(self.arch, self.name)
        with self._context.current():
            return encoded(self._context, address, map)

    # -- running -----------------------------------------------------------------------------------------------------

    def launch(self, launch: DeviceLaunch) -> None:
        """Run a kernel; does not wait. LightNetError for arguments that are not its parameters, or what the device
        cannot launch."""
        with self._context.current():
            call = self._prepare(launch)
            self._enqueue(call)
            self._context.launched(call.what)
            if self._waits:
                self._context.wait()

    def graph(self, launches: Sequence[DeviceLaunch], after: Sequence[Sequence[int]] | None = None) -> KernelGraph:
        """Record launches as one CUDA graph. LightNetError as of `launch`."""
        graph, handle = c_void_p(), c_void_p()
        context = self._context
        with context.current():
            calls = [self._prepare(launch) for launch in launches]
            edges = graph_waits(launches, after)
            context("cuGraphCreate", graph, 0)
            try:
                nodes: list[int] = []
                for call, numbers in zip(calls, edges):
                    nodes.append(self._node(graph, call, [nodes[n] for n in numbers]))
                context("cuGraphInstantiateWithFlags", handle, graph, 0)
            finally:
                context.attempt("cuGraphDestroy", graph)
            made = KernelGraph(self, context.hold("cuGraphExecDestroy", handle.value or 0), tuple(launches))
        weakref.finalize(made, context.discard, "cuGraphExecDestroy", made._handle).atexit = False
        return made

    def _node(self, graph: c_void_p, call: _Call, after: Sequence[int]) -> int:
        """Add a kernel to a graph, behind some of its nodes; the handle of its node. The driver copies the
        arguments."""
        node, earlier = c_void_p(), (c_void_p * len(after))(*after)
        self._checked(
            call,
            "cuGraphAddKernelNode_v2",
            node,
            graph,
            earlier,
            len(after),
            KernelNode(call.handle, *call.sizes, call.pointers),
        )
        return node.value or 0

    def _launch_graph(self, handle: int, launches: tuple[DeviceLaunch, ...]) -> None:
        if self._waits:
            for launch in launches:
                self.launch(launch)
            return
        with self._context.current():
            self._context("cuGraphLaunch", handle, self._context.stream)
            self._context.launched(f"a graph of {len(launches)} kernels")

    def synchronize(self) -> None:
        """Wait for everything; LightNetError says what failed."""
        with self._context.current():
            self._context.wait()

    def time(self, call: Callable[[], None]) -> float:
        """The seconds from the device's reaching what `call` launches to its finishing that, to about half a
        microsecond."""
        events: list[int] = []
        elapsed = c_float()  # milliseconds
        context = self._context
        with context.current():
            try:
                for _ in range(2):
                    event = c_void_p()
                    context("cuEventCreate", event, api.EVENT_DEFAULT)
                    events.append(context.hold("cuEventDestroy_v2", event.value or 0))
                context("cuEventRecord", events[0], context.stream)
                call()
                context("cuEventRecord", events[1], context.stream)
                context.wait()
                context("cuEventElapsedTime", elapsed, *events)
            finally:
                for event_handle in events:
                    context.give_back("cuEventDestroy_v2", event_handle)
        return elapsed.value * 1e-3

    def close(self) -> None:
        """Give back all memory, kernels and graphs. Nothing else may be called afterwards; closing again does
        nothing."""
        self._context.close()

    def _prepare(self, launch: DeviceLaunch) -> _Call:
        """Check a launch and lay its arguments out. The driver reads as many as the kernel has, each as large as the
        kernel says."""
        function: DeviceFunction = launch.function
        what = _describe(launch)
        values = [encode(argument) for argument in launch.args]
        given, wanted = tuple(map(len, values)), function.parameters
        if given != wanted:
            raise LightNetError(f"{what} takes parameters of {_sizes(wanted)}, and was given {_sizes(given)}")
        if not (all(0 < n <= _INT_MAX for n in (*launch.grid, *launch.block)) and 0 <= launch.shared <= _INT_MAX):
            raise LightNetError(f"{what} cannot be launched: a size is not positive, or too large")
        if launch.shared > function.dynamic_limit:
            self._allow_shared(function, launch.shared, what)
        pointers, buffer = _laid_out(values)
        return _Call(function.handle, (*launch.grid, *launch.block, launch.shared), pointers, buffer, what)

    def _allow_shared(self, function: DeviceFunction, nbytes: int, what: str) -> None:
        if function.static_shared + nbytes > self._shared_limit:
            static = f", beside the {function.static_shared} that it declares" if function.static_shared else ""
            raise LightNetError(
                f"{what} needs too much{static}: a block has at most {self._shared_limit} bytes on {self.name}"
            )
        self._context("cuFuncSetAttribute", function.handle, api.FUNCTION_MAX_DYNAMIC_SHARED_BYTES, nbytes)
        function.dynamic_limit = nbytes

    def _enqueue(self, call: _Call) -> None:
        self._checked(call, "cuLaunchKernel", call.handle, *call.sizes, self._context.stream, call.pointers, None)

    def _checked(self, call: _Call, name: str, *args: Any) -> None:
        """Call a function of the driver that takes a launch; an error says of which."""
        try:
            self._context(name, *args)
        except CudaError as error:
            if error.code in api.STICKY:
                raise
            raise LightNetError(f"{call.what} cannot be launched: {error.reason}") from None


def _laid_out(values: Sequence[bytes]) -> tuple[ctypes.Array[c_void_p], ctypes.Array[ctypes.c_char]]:
    """The addresses of arguments, and the memory that they stand in: a tensor map at a multiple of 64, anything else of
    8."""
    offsets, end = [], 0
    for value in values:
        unit = MAP_ALIGNMENT if len(value) > 8 else 8
        offsets.append(-(-end // unit) * unit)
        end = offsets[-1] + len(value)
    buffer = (ctypes.c_char * (end + MAP_ALIGNMENT))()
    base = -(-ctypes.addressof(buffer) // MAP_ALIGNMENT) * MAP_ALIGNMENT
    for offset, value in zip(offsets, values):
        ctypes.memmove(base + offset, value, len(value))
    return (c_void_p * len(values))(*(base + offset for offset in offsets)), buffer


def _choose(devices: Sequence[Device]) -> Device:
    for device in devices:
        if device.is_supported:
            return device
    shown = ", ".join(f"{d.name} has {d.capability[0]}.{d.capability[1]}" for d in devices)
    least = ".".join(map(str, LEAST_CAPABILITY))
    raise CudaUnavailable(f"compute capability {least} or later is needed, and {shown}")


def _describe(launch: DeviceLaunch) -> str:
    grid, block = ("x".join(map(str, sizes)) for sizes in (launch.grid, launch.block))
    shared = f", {launch.shared} bytes of shared memory" if launch.shared else ""
    return f"kernel '{launch.function.name}' (grid {grid}, block {block}{shared})"


def _sizes(sizes: Sequence[int]) -> str:
    return f"[{', '.join(map(str, sizes))}] bytes" if sizes else "none"
