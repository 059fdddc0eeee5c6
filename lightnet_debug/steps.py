"""A compiled network one kernel at a time: which launches belong to which kernel, and running them singly.

What profiling and looking at intermediate tensors have in common. The kernels that are called are the ones that the
network ships; nothing is instrumented. A target's runtime says which of the classes here it is, or one of its own
(`cuda_steps.py`). Imports `ir`, the launches of level 4, the builder, the JIT and the runtime.
"""

from __future__ import annotations

import ctypes
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Operation, SSAValue

from lightnet.backends.builder import Builder
from lightnet.backends.llvm.jit import NativeModule, compile_module
from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.dialects.launch import CopyOp, LaunchLine, LaunchOp, copies_piece, kernel_symbols, kernels, lines_of
from lightnet.dialects.ln.source import Source
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir.arrays import from_memory
from lightnet.ir.layout import byte_size
from lightnet.ir.module import main_of, op_label
from lightnet.ir.types import spec_of
from lightnet.ir.views import moves_left, place_of
from lightnet.runtime.instance import Arena, Instance
from lightnet_debug.roofline import Peaks, measured, raised

if TYPE_CHECKING:
    from lightnet.executable import Executable

Call = Callable[[], None]
#: Calls of nothing before each launch that is timed.
IDLE_CALLS = 3


@dataclass(frozen=True)
class KernelStep:
    """A kernel of a planned network (or a host op), and what it became: its launches, in order, and copies between
    memory spaces. A move whose pieces stand in place has none."""

    op: Operation
    lines: tuple[LaunchLine | CopyOp, ...]


def specialized(executable: Any, feeds: Mapping[str, Any] | None) -> tuple[Executable, dict[str, Any]]:
    """The executable that runs `feeds`, and what it is fed: of one whose shapes a call decides, the one for these
    shapes, which does not take the values that decided them; of one with a host part, the network, and what this makes
    for it."""
    fed = dict(feeds or {})
    if hasattr(executable, "split_feeds"):
        _, fed = executable.split_feeds(fed)
        executable = executable.network
    found = executable.specialized(fed)
    return found, fed if found is executable else {n: v for n, v in fed.items() if n in found.inputs}


def steps_of(planned: ModuleOp, loops: ModuleOp) -> list[KernelStep]:
    """The kernels of a planned module in order, each with its launches in the lowered one.

    Launches stand in the order of the kernels. A move has one for each piece that does not stand in place; any other
    kernel one of a function ``f``, and then those of ``f_1``, ``f_2`` and so on, each of which may be launched again.
    Raises `LightNetError` where the two modules do not go together (a lowering that names its functions in another
    way).
    """
    lines = [line for line in lines_of(loops) if isinstance(line, LaunchLine | CopyOp)]
    steps, at = [], 0
    for op in main_of(planned).body.block.ops:
        if isinstance(op, Source | OnceOp | ReturnOp):
            continue
        count = _launch_count(op, lines, at)
        steps.append(KernelStep(op, tuple(lines[at : at + count])))
        at += count
    if at != len(lines):
        raise LightNetError(
            f"{len(lines) - at} launches belong to no kernel: this target cannot be run kernel by kernel"
        )
    return steps


def _launch_count(op: Operation, lines: Sequence[LaunchLine | CopyOp], at: int) -> int:
    if not any(spec_of(r.type).len for r in op.results):  # none has elements, or there is none (of a host op)
        return 0
    left = moves_left(op)
    is_move = all(operand is not None for _, operand in left)
    if is_move and (not left or _is_piece(lines[at])):  # else it is a move in this call alone
        return len(left)
    callees = (line.callee.string_value() if isinstance(line, LaunchLine) else "" for line in islice(lines, at, None))
    first, count = next(callees, None), 1
    for name in callees:
        if not name.startswith(f"{first}_") or not name.removeprefix(f"{first}_").isdecimal():
            break
        count += 1
    written = {place_of(r) for r in op.results if spec_of(r.type).len}
    if not written <= {place for line in lines[at : at + count] for place in line.args.data}:
        raise LightNetError(f"'{op_label(op)}' has no launch: this target cannot be run kernel by kernel")
    return count


def _is_piece(line: LaunchLine | CopyOp) -> bool:
    return isinstance(line, CopyOp) or copies_piece(line)


class Stepper(ABC):
    """A network whose kernels are called one by one, on memory of its own; `stepper` makes one.

    `clock` says what times are of. `rounds` is how many of them a profile should make, at most: times in the
    interpreter mean little, and take long. Host calls (`print`) are left out.
    """

    clock: str
    rounds: int | None = None

    def __init__(self, executable: Executable, feeds: Mapping[str, Any]):
        self.executable, self.feeds = executable, dict(feeds)
        loops = executable.loops
        assert loops is not None
        self.steps = steps_of(executable.planned, loops)

    @abstractmethod
    def restart(self) -> None:
        """Write again what a call starts from."""

    @abstractmethod
    def call_whole(self) -> None:
        """Run the whole network, from where `restart` leaves the memory. Not for networks that print."""

    @abstractmethod
    def calls(self, step: KernelStep) -> list[Call]:
        """A call of each launch of a step."""

    @abstractmethod
    def read(self, value: SSAValue) -> np.ndarray:
        """A copy of what stands where the planned `value` does."""

    @abstractmethod
    def seconds(self, step: KernelStep) -> float:
        """Run a step; how long its launches took, without what calling costs from here."""

    @abstractmethod
    def whole_seconds(self) -> float:
        """`call_whole`, timed."""

    @abstractmethod
    def peaks(self) -> Peaks | None:
        """The peaks of the machine, as far as that is known."""


def stepper(executable: Executable, feeds: Mapping[str, Any] | None = None) -> Stepper:
    """The kernels of an executable, to be called one by one on `feeds`, arrays by input or param name, as for a call.
    Raises `LightNetError` as a call does, and where there is no machine code."""
    return executable.runtime.stepper(executable, feeds or {})


def started(
    executable: Executable, feeds: Mapping[str, Any] | None = None, arena: Arena | None = None
) -> tuple[Arena, np.ndarray]:
    """The memory that a call of machine code on `feeds` starts from: an arena with inputs and ports in place, and the
    bytes of the static tensors. Of an `arena` from an earlier call the inputs are written again, and the ports stay.
    Raises as a call does."""
    filled, static = executable.filled(feeds)
    instance = cast(Instance, executable.instance)
    if arena is not None:
        instance.fill(arena, filled, static)
    else:
        arena = Arena(executable.program)
        instance.start(arena, filled, static)
    return arena, static


class InstanceStepper(Stepper):
    """Of a target whose instance runs its launch list itself (`runtime.spaces.SpacesInstance`), which has `launches` in
    the order of the list, and `launch` for one by its number. Times are processor time of the calling thread."""

    clock = "processor time of one thread"

    def __init__(self, executable: Executable, feeds: Mapping[str, Any]):
        super().__init__(executable, feeds)
        filled, static = executable.filled(feeds)
        instance: Any = executable.instance
        self.instance = instance.apart()
        weakref.finalize(self, self.instance.release).atexit = False  # the machine takes everything back then
        self.instance.start(filled, static)
        numbers = iter(range(len(self.instance.launches)))
        self._launches = {step.op: [next(numbers) for _ in step.lines] for step in self.steps}

    def restart(self) -> None:
        self.instance.start(*self.executable.filled(self.feeds))

    def call_whole(self) -> None:
        self.instance.launch_all()
        self.instance.wait()

    def calls(self, step: KernelStep) -> list[Call]:
        return [partial(self.instance.launch, k) for k in self._launches[step.op]]

    def read(self, value: SSAValue) -> np.ndarray:
        place = place_of(value)
        assert place is not None
        raw = self.instance.bytes_at((place.space.data, place.offset.data), byte_size(value.type))
        return from_memory(value.type, raw)

    def seconds(self, step: KernelStep) -> float:
        return sum(map(_seconds, self.calls(step)))

    def whole_seconds(self) -> float:
        return _seconds(self.call_whole)

    def peaks(self) -> Peaks | None:
        return None


class NativeStepper(Stepper):
    """Of a target whose code runs on this processor. Times are processor time of the calling thread, on which launches
    run."""

    clock = "processor time of one thread"

    def __init__(self, executable: Executable, feeds: Mapping[str, Any]):
        self.arena, self.static = started(executable, feeds)
        super().__init__(executable, feeds)
        self._functions: dict[tuple[str, int], Any] = {}
        assert executable.loops is not None
        self._symbols = {name: kernel_symbols(function) for name, function in kernels(executable.loops).items()}
        self._timed: dict[Operation, list[tuple[Call, Call]]] = {}

    def restart(self) -> None:
        started(self.executable, self.feeds, self.arena)

    def call_whole(self) -> None:
        cast(Instance, self.executable.instance).run(self.arena, self.static)

    def calls(self, step: KernelStep) -> list[Call]:
        return [self._call(line) for line in step.lines]

    def _call(self, line: LaunchLine | CopyOp) -> Call:
        assert isinstance(line, LaunchOp)
        name, grid = line.callee.string_value(), line.grid.value.data
        memory = self.arena.memory(self.static)
        values = [self.executable.values[symbol] for symbol in self._symbols[name]]
        pointers = [*values, *(memory[p.space.data].ctypes.data + p.offset.data for p in line.args)]
        key = name, len(pointers)
        if key not in self._functions:
            self._functions[key] = _callable(self.executable.native.kernel_address(name), len(pointers))
        return partial(self._functions[key], 0, grid, *pointers)

    def read(self, value: SSAValue) -> np.ndarray:
        place = place_of(value)
        assert place is not None
        memory = self.arena.memory(self.static)[place.space.data]
        raw = memory[place.offset.data : place.offset.data + byte_size(value.type)]
        return from_memory(value.type, raw.copy())

    def seconds(self, step: KernelStep) -> float:
        if not self._timed:
            measured()  # before the kernels, and `peaks` once more behind them
        if step.op not in self._timed:
            self._timed[step.op] = list(zip(self.calls(step), map(idle, step.lines)))
        return sum(_net_seconds(*call) for call in self._timed[step.op])

    def whole_seconds(self) -> float:
        return _seconds(self.call_whole)

    def peaks(self) -> Peaks:
        return raised(measured())


def _seconds(call: Call) -> float:
    start = time.thread_time()
    call()
    return time.thread_time() - start


def _net_seconds(call: Call, idle: Call) -> float:
    """Seconds of a launch, less those of calling. The first idle call finds caches that the kernel before has filled,
    so that the shortest of a few counts, and the launch does not pay for it either."""
    overhead = min(_seconds(idle) for _ in range(IDLE_CALLS))
    return max(_seconds(call) - overhead, 0.0)


def idle(line: LaunchLine | CopyOp) -> Call:
    """A call of a function that does nothing, on as many arguments as a launch has: what calling costs from here.

    (A launch on no block is not that: a kernel may prepare something before it looks at its range.)
    """
    return partial(_callable(_nothing().kernel_address("nothing"), len(line.args)), 0, 0, *[None] * len(line.args))


@cache
def _nothing() -> NativeModule:
    return compile_module(ModuleOp([Builder.kernel("nothing", []).finish()]))


def _callable(address: int, pointers: int) -> Any:
    return ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * pointers)(address)
