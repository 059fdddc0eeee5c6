"""Level 4 executed as Python that is generated from the IR: the oracle for the LLVM back end.

Every index is checked against its memref, memory that nobody has written is poisoned, and the blocks of a launch run in
a shuffled order, each on the poisoned scratch of some thread, so that what depends on their order, or on what another
block left, fails. The source comes from `loop_writer`. Imports xDSL, NumPy and `loop_library`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
from xdsl.dialects.builtin import MemRefType, ModuleOp
from xdsl.ir import Attribute

from lightnet.backends.interpreter.arena import POISON
from lightnet.diagnostics import LightNetError
from lightnet.dialects import launch
from lightnet.dialects.launch import LaunchOp
from lightnet.ir.place import PlaceAttr
from lightnet.runtime.machine import PROCESS, Area
from lightnet_trust.interpreter import loop_library as lib
from lightnet_trust.interpreter.loop_types import memory_dtype
from lightnet_trust.interpreter.loop_writer import LoopWriter


class LoopProgram:
    """A level-4 module as Python functions. `source` maps a function's name to its text."""

    def __init__(self, module: ModuleOp):
        self.module = module
        self.functions = launch.kernels(module)
        self.source: dict[str, str] = {}
        self._compiled: dict[str, Callable[..., Any]] = {}

    def function(self, name: str) -> Callable[..., Any]:
        """The Python function of ``@name``: ints for indices, NumPy scalars, arrays for memrefs."""
        if name not in self._compiled:
            if name not in self.functions:
                raise LightNetError(f"level 4 has no function @{name}")
            writer = LoopWriter(self.functions[name])
            self.source[name] = writer.source
            space: dict[str, Any] = {"np": np, "lib": lib, "k": writer.constants, "call": self.function}
            exec(compile(writer.source, f"<level 4: {len(self.source)}>", "exec"), space)
            self._compiled[name] = space["kernel"]
        return self._compiled[name]

    def launch(self, name: str, blocks: Sequence[int], arrays: Sequence[np.ndarray]) -> None:
        """Run the given blocks of a kernel, in the given order, each as a range of its own."""
        kernel = self.function(name)
        with np.errstate(all="ignore"):
            for block in blocks:
                kernel(block, block + 1, *arrays)

    def run_main(
        self,
        arena: np.ndarray | bytearray,
        static: np.ndarray | bytearray | bytes = b"",
        host: Callable[[int, list[np.ndarray]], None] | None = None,
        seed: int = 0,
        ports: Mapping[str, np.ndarray] | None = None,
        copy: Callable[[Area, Area], None] | None = None,
    ) -> None:
        """Execute the launch list on byte buffers, `tile.copy` by the `copy` of a machine (default: the process);
        `ports` are those of further memory spaces. `host(call, args)` serves `tile.host` calls: each argument is the
        memory (u8) from its place on. `seed` shuffles the blocks of each launch. LightNetError: an access out of
        bounds.
        """
        spaces = {"arena": np.frombuffer(arena, np.uint8), "static": np.frombuffer(static, np.uint8), **(ports or {})}
        rng, calls = random.Random(seed), 0
        for op in launch.lines_of(self.module):
            if isinstance(op, launch.HostOp):
                if host is not None:
                    host(calls, [spaces[p.space.data][p.offset.data :] for p in op.args])
                calls += 1
                continue
            if isinstance(op, launch.CopyOp):
                source, to = (_area(spaces, place, op.size) for place in op.args)
                (copy or partial(PROCESS.copy, None))(to, source)
                continue
            assert isinstance(op, LaunchOp)
            name = op.callee.string_value()
            blocks = list(range(op.grid.value.data))
            rng.shuffle(blocks)
            if not op.scratch_bytes:
                self.launch(name, blocks, self.arrays_of(op, spaces))
                continue
            for block in blocks:
                self.launch(name, [block], self.arrays_of(op, spaces, rng.randrange(op.most_threads)))

    def arrays_of(self, op: LaunchOp, spaces: dict[str, np.ndarray], thread: int = 0) -> list[np.ndarray]:
        """The memrefs of a launch as one thread has them: with scratch of its own, poisoned here, which is that of the
        launch for thread 0, and new memory for any other."""
        types = self.functions[op.callee.string_value()].function_type.inputs.data[2:]
        arrays = [array_at(spaces, place, type) for place, type in zip(op.args, types)]
        if op.scratch_bytes and thread:
            arrays[-1] = np.empty_like(arrays[-1])
        if op.scratch_bytes:
            arrays[-1].reshape(-1).view(np.uint8)[:] = POISON
        return arrays


def _area(spaces: Mapping[str, np.ndarray], place: PlaceAttr, size: int) -> Area:
    space, start = spaces.get(place.space.data), place.offset.data
    if space is None or start + size > space.size:
        raise LightNetError(f"{size} bytes at {place} do not fit their memory", label="level4.bounds")
    return Area(place.space.data, space[start : start + size], size)


def array_at(spaces: dict[str, np.ndarray], place: Any, type: Attribute) -> np.ndarray:
    """The memref at a place, as an array over the space's bytes."""
    assert isinstance(type, MemRefType)
    dtype, shape = memory_dtype(type), type.get_shape()
    space = spaces.get(place.space.data)
    size, start = prod(shape) * dtype.itemsize, place.offset.data
    if space is None or start + size > space.size:
        raise LightNetError(f"{type} at {place} does not fit its memory", label="level4.bounds")
    return space[start : start + size].view(dtype).reshape(shape)


def run_main(
    module: ModuleOp,
    arena: np.ndarray | bytearray,
    static: np.ndarray | bytearray | bytes = b"",
    host: Callable[[int, list[np.ndarray]], None] | None = None,
    seed: int = 0,
    ports: Mapping[str, np.ndarray] | None = None,
    copy: Callable[[Area, Area], None] | None = None,
) -> None:
    """Execute a level-4 module on byte buffers; see `LoopProgram.run_main`."""
    launch.verify_launches(module)
    LoopProgram(module).run_main(arena, static, host, seed, ports, copy)
