"""The engines that `tools/bench_cuda.py` compares on one device, in one process: ours, and PyTorch as people deploy it there: channels
last, cuDNN's choice of algorithms by measuring, everything in a CUDA graph; with `torch.compile` as one more. Times are the device's own, by events.

Imports torch where an engine of it is made.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from importlib.util import find_spec
from typing import Any

import numpy as np

import lightnet
from benching.cuda_work import Work
from lightnet.backends.cuda.native import native_arch
from lightnet.runtime.cuda.program import KernelLine

OURS, WARPS, TORCH, COMPILED = "lightnet", "lightnet-sm_90", "torch", "torch.compile"
ENGINES = (OURS, WARPS, TORCH, COMPILED)
#: How often a graph repeats a kernel, and how often that is timed.
REPEATS, TRIALS = 20, 5


class Engine(ABC):
    """One engine with one work, loaded, its inputs where it reads them."""

    name: str

    @abstractmethod
    def outputs(self) -> list[np.ndarray]:
        """The outputs of one call, in the order of the network, as f32."""

    @abstractmethod
    def seconds(self, count: int) -> float:
        """Seconds of `count` calls, one behind the other, inputs and outputs staying where they are."""

    @abstractmethod
    def kernels(self) -> list[tuple[str, float]]:
        """The kernels of one call, in their order, and the seconds of each."""


class Ours(Engine):
    """LightNet, on a device or (`emulate`) in the PTX interpreter."""

    name = OURS

    def __init__(self, work: Work, emulate: bool, arch: str):
        self._executable = lightnet.compile(work.model, "cuda", precision=work.compiled, arch=arch, emulate=emulate)
        self._outputs = [a.astype(np.float32) for a in self._executable(work.inputs).values()]
        self._instance: Any = self._executable.instance

    def outputs(self) -> list[np.ndarray]:
        return self._outputs

    def seconds(self, count: int) -> float:
        def calls() -> None:
            for _ in range(count):
                self._instance.launch_all()

        return self._instance.driver.time(calls)

    def kernels(self) -> list[tuple[str, float]]:
        """Each in a graph that repeats it, so its operands are in the cache of the device where they fit."""
        instance, found = self._instance, []
        driver = instance.driver
        lines = [line for line in instance.code.lines if isinstance(line, KernelLine)]
        for line, launch in zip(lines, instance.launches):
            if launch is not None:
                graph = driver.graph([launch] * REPEATS)
                graph.launch()
                seconds = min(driver.time(graph.launch) for _ in range(TRIALS)) / REPEATS
                found.append((f"{line.kernel} {'x'.join(map(str, launch.grid))}", seconds))
        return found


class Torch(Engine):
    """PyTorch; on a machine without a device its CPU form, uncaptured, which only shows that the way is right."""

    name = TORCH

    def __init__(self, work: Work, emulate: bool, compiled: bool = False):
        import torch

        from benching import torch_form, torch_transformers

        self._torch, self._device = torch, "cpu" if emulate else "cuda"
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = work.precision == "tf32"
        torch.backends.cudnn.benchmark = True
        dtype = "float16" if work.precision == "f16" else "float32"
        if work.name in torch_transformers.MODULES:
            network = torch_transformers.module_of(work.name, work.contents, self._device, dtype)
        else:
            network = torch_form.module_of(work.model, work.contents, self._device, dtype)
        self._inputs = [self._loaded(a, getattr(torch, dtype)) for a in work.inputs.values()]
        self._call = torch.compile(network) if compiled else network
        self._graph: Any = None
        with torch.inference_mode():
            if emulate:
                self._results = self._call(*self._inputs)
            else:
                self._capture()

    def _loaded(self, array: np.ndarray, dtype: Any) -> Any:
        if array.dtype.kind != "f":
            return self._torch.from_numpy(array).to(self._device)
        tensor = self._torch.from_numpy(np.array(array, np.float32)).to(self._device, dtype)
        return tensor.to(memory_format=self._torch.channels_last) if tensor.ndim == 4 else tensor

    def _capture(self) -> None:
        """The calls as a CUDA graph, after some on another stream, which choose algorithms."""
        torch = self._torch
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(5):
                self._call(*self._inputs)
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._results = self._call(*self._inputs)

    def outputs(self) -> list[np.ndarray]:
        if self._graph is not None:
            self._graph.replay()
            self._torch.cuda.synchronize()
        return [t.float().cpu().contiguous().numpy() for t in self._results]

    def seconds(self, count: int) -> float:
        torch = self._torch
        with torch.inference_mode():
            if self._graph is None:
                start = time.perf_counter()
                for _ in range(count):
                    self._call(*self._inputs)
                return time.perf_counter() - start
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(count):
                self._graph.replay()
            end.record()
            end.synchronize()
            return begin.elapsed_time(end) / 1e3

    def kernels(self) -> list[tuple[str, float]]:
        """By PyTorch's profiler."""
        from torch.autograd import DeviceType
        from torch.profiler import ProfilerActivity, profile

        if self._graph is None:
            return []
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            self._graph.replay()
            self._torch.cuda.synchronize()
        events = [e for e in found.events() if e.device_type == DeviceType.CUDA]
        return [(e.name, e.time_range.elapsed_us() / 1e6) for e in sorted(events, key=lambda e: e.time_range.start)]


def make(name: str, work: Work, emulate: bool) -> Engine:
    """An engine by name."""
    if name == WARPS:
        return Ours(work, emulate, "sm_90")
    if name == OURS:
        return Ours(work, emulate, "sm_90a" if emulate else native_arch())
    return Torch(work, emulate, compiled=name == COMPILED)


def installed(names: list[str], emulate: bool) -> list[str]:
    """Those that can run here; on a CPU, compiling a network takes longer than it says anything."""
    there = {OURS}
    if emulate or native_arch() == "sm_90a":
        there.add(WARPS)
    if find_spec("torch") is not None:
        there |= {TORCH} if emulate else {TORCH, COMPILED}
    return [n for n in names if n in there]


def concerns(name: str, work: Work) -> bool:
    """Return whether an engine has a way of its own for a work: what sm_90a adds, and sm_90 is to show the worth of, is
    for factors of 16 bits.
    """
    return name != WARPS or work.precision in ("f16", "bf16")
