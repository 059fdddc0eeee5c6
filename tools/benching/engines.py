"""The engines that a benchmark compares, as a worker process sees them: how one loads a network, and how one is called.

A job (`worker.py`) is a dict: `onnx` and `network` are the files of one network in ONNX and in our form (the same file for an ONNX
model), `weights`, `values`, `shapes` and `dims` (ranges of open ones) complete the latter, `saved` is a file that the engine wrote before, to start warm from.
Each class imports its engine when it is made and nothing before, so that the time from the start of the process is the engine's own.
Imports NumPy and the standard library.
"""

from __future__ import annotations

import ctypes
import inspect
import statistics
import threading
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Job = Mapping[str, Any]
Arrays = dict[str, np.ndarray]


def write_arrays(path: str, arrays: Mapping[str, np.ndarray]) -> None:
    """An ``.npz`` of arrays by any names (those of `numpy.savez` are words of Python)."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asarray(array), allow_pickle=False)


class Engine:
    """One engine with one network. `feeds` are the inputs by name."""

    def __init__(self, job: Job, feeds: Arrays):
        self.job = job
        self.feeds = feeds
        self.threads: int = job["threads"]

    def load(self) -> None:
        """Read the network, and do all that is done before the first call."""
        raise NotImplementedError

    def feed(self, feeds: Arrays) -> None:
        """Take other inputs: those of them that the network has."""
        self.feeds = {n: feeds[n] for n in self.feeds}

    def call(self) -> Any:
        """One inference, inputs and outputs in memory of NumPy; what the engine returns."""
        raise NotImplementedError

    def outputs(self) -> Arrays:
        """The outputs of one call by name."""
        raise NotImplementedError

    def save(self, path: str) -> None:
        """Write what `job["saved"]` takes."""
        raise NotImplementedError

    def info(self) -> dict[str, Any]:
        """Further figures: seconds of `load` that went into reading (`read`), bytes of machine code (`code`), of planned memory
        (`arena`) and of static tensors (`static`)."""
        return {}

    def profile(self) -> str:
        """Time by kernel, as text."""
        raise NotImplementedError


class LightNet(Engine):
    """Ours: the executable is called with a dict of inputs, and returns a dict of new arrays."""

    def __init__(self, job: Job, feeds: Arrays):
        super().__init__(job, feeds)
        import lightnet

        self.lightnet = lightnet
        self.read = 0.0
        if not job.get("saved"):  # imports are lazy; what compiling needs would be counted as loading
            _ = lightnet.compile, lightnet.load

    def load(self) -> None:
        job = self.job
        if job.get("saved"):
            load = self.lightnet.load_executable
            self.executable = load(job["saved"], **self._threads(load))
            self.feeds = {n: a for n, a in self.feeds.items() if n in self.executable.inputs}
            return
        values = dict(np.load(job["values"])) if job.get("values") else {}
        start = time.monotonic()
        model = self.lightnet.load(job["network"], weights=job.get("weights"), override=bool(job.get("weights")),
                                   shapes=job.get("shapes") or {}, values=values,
                                   **({"dims": job["dims"]} if "dims" in job else {}))  # fmt: skip
        self.read = time.monotonic() - start
        self.feeds = {n: a for n, a in self.feeds.items() if n not in values}
        self.executable = self.lightnet.compile(model, **self._threads(self.lightnet.compile), **job.get("options", {}))
        self.executable.prepare()

    def _threads(self, function: Callable[..., Any]) -> dict[str, int]:
        """``threads=`` where the function takes it."""
        return {"threads": self.threads} if "threads" in inspect.signature(function).parameters else {}

    def call(self) -> Any:
        return self.executable(self.feeds)

    def outputs(self) -> Arrays:
        return self.executable(self.feeds)

    def save(self, path: str) -> None:
        self.executable.save(path)

    def info(self) -> dict[str, Any]:
        program = self.executable.program
        if getattr(program, "symbols", ()):  # of the shape that was fed
            from lightnet.runtime.open_instance import bound_values

            shapes = {n: a.shape for n, a in self.feeds.items()}
            program = self.executable.instance.of(bound_values(program, shapes)).program
        memory = program.memory
        return {"read": self.read, "code": sum(map(len, program.objects)), "arena": memory.get("arena", 0), "static": memory.get("static", 0),
                "threads": "threads" in inspect.signature(self.lightnet.compile).parameters}  # fmt: skip

    def profile(self) -> str:
        from lightnet_debug.profile import profiled

        return profiled(self.executable, self.feeds).text()


class OnnxRuntime(Engine):
    """ONNX Runtime: default optimisations, `threads` threads within an op, one op at a time. It starts warm from its own format,
    written after all optimisations."""

    def __init__(self, job: Job, feeds: Arrays):
        super().__init__(job, feeds)
        import onnxruntime

        self.ort = onnxruntime

    def load(self) -> None:
        self.session = self._session(None)
        self.feeds = {i.name: self.feeds[i.name] for i in self.session.get_inputs()}

    def _session(self, write_to: str | None) -> Any:
        options = self.ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self.threads, 1
        options.log_severity_level = 3
        path = self.job.get("saved") or self.job["onnx"]
        if self.job.get("saved"):
            options.graph_optimization_level = self.ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        if write_to is not None:
            options.optimized_model_filepath = write_to
            options.add_session_config_entry("session.save_model_format", "ORT")
        return self.ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def call(self) -> Any:
        return self.session.run(None, self.feeds)

    def outputs(self) -> Arrays:
        return dict(zip((o.name for o in self.session.get_outputs()), self.call()))

    def save(self, path: str) -> None:
        self._session(path)


class OpenVino(Engine):
    """OpenVINO's CPU plugin in f32 (its default is less), for latency. It starts warm from its cache of compiled models."""

    def __init__(self, job: Job, feeds: Arrays):
        super().__init__(job, feeds)
        import openvino

        self.ov = openvino

    def load(self) -> None:
        self.request = self._compiled(self.job.get("saved")).create_infer_request()
        names = [sorted(port.get_names()) for port in self.request.model_inputs]
        self.feeds = {n: self.feeds[n] for group in names for n in group if n in self.feeds}

    def _compiled(self, cache: str | None) -> Any:
        core = self.ov.Core()
        config = {
            "INFERENCE_PRECISION_HINT": self.job.get("options", {}).get("precision", "f32"),
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": self.threads,
        }
        if cache is not None:
            config["CACHE_DIR"] = cache
        if not self.job.get("shapes"):
            return core.compile_model(self.job["onnx"], "CPU", config)
        model = core.read_model(self.job["onnx"])
        model.reshape({n: list(a.shape) for n, a in self.feeds.items()})
        return core.compile_model(model, "CPU", config)

    def call(self) -> Any:
        return self.request.infer(self.feeds, share_inputs=True, share_outputs=True)

    def outputs(self) -> Arrays:
        found = self.call()
        return {name: np.array(array) for port, array in found.items() for name in port.get_names()}

    def save(self, path: str) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)
        self._compiled(path)


class Peak(Engine):
    """No network: a loop of independent fused multiply-adds on registers, once a thread, for what the cores can do right now."""

    def __init__(self, job: Job, feeds: Arrays):
        super().__init__(job, feeds)
        from xdsl.dialects.builtin import ModuleOp

        from lightnet.backends.llvm.jit import CodeMachine, compile_module
        from lightnet_debug import roofline

        width = CodeMachine.host().vectors.width
        self.kernel = roofline.fma_kernel(width)
        self.native = compile_module(ModuleOp([self.kernel.finish()]))
        self.lanes = roofline.CHAINS * width
        self.flops = 2 * self.lanes * roofline.UNROLLED * roofline.TRIPS

    def load(self) -> None:
        from lightnet.runtime.arrays import aligned

        form = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
        self.function = form(self.native.kernel_address("peak"))
        self.memory = [aligned(4 * self.lanes) for _ in range(self.threads)]

    def call(self) -> Any:
        self.function(0, 1, self.memory[0].ctypes.data)

    def outputs(self) -> Arrays:
        return {}

    def rate(self, seconds: float) -> float:
        """Operations a second of all threads together over so long: for each thread, those of its median call."""
        rates = [0.0] * self.threads

        def loop(k: int) -> None:
            address, times = self.memory[k].ctypes.data, []
            end = time.perf_counter() + seconds
            while (start := time.perf_counter()) < end or not times:
                self.function(0, 1, address)
                times.append(time.perf_counter() - start)
            rates[k] = self.flops / statistics.median(times)

        others = [threading.Thread(target=loop, args=(k,)) for k in range(1, self.threads)]
        for thread in others:
            thread.start()
        loop(0)
        for thread in others:
            thread.join()
        return sum(rates)


ENGINES: dict[str, type[Engine]] = {
    "lightnet": LightNet,
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
    "peak": Peak,
}
