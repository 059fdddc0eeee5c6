"""The time of a compiled network by kernel: each kernel timed by itself, beside what the machine could do at best.

    from lightnet_debug.profile import profile
    for kernel in profile(lightnet.compile("squeezedet.net")):
        print(kernel.name, kernel.seconds, kernel.bound_seconds / kernel.seconds)

Kernel functions are called one by one, in order, on the network's own memory (`steps.py`): the code is what ships.
Times are processor time of the calling thread, on which launches run, or the device's own (`Profile.clock`), less what
calling the function costs from here; the median of the rounds. The bound is the roofline's (`roofline.py`). Imports
steps, costs and roofline; NumPy and LLVM come with an executable.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.ir import Operation

from lightnet.dataclasses import asdict, dataclass, replace
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.dialects.launch import CopyOp, LaunchLine
from lightnet.ir.kernel import KernelOp
from lightnet.ir.locations import loc_of
from lightnet.ir.module import op_label
from lightnet.ir.names import name_of, tensor_names
from lightnet.ir.op import LnOp
from lightnet.ir.target import get_target
from lightnet.ir.types import spec_of
from lightnet.tables import count, shape, shortened, some, table
from lightnet_debug import costs, roofline
from lightnet_debug.steps import KernelStep, specialized, stepper

#: Rows of the table on a terminal.
TOP = 40


@dataclass(frozen=True)
class KernelTime:
    """One kernel of a network (or, `by_function`, all kernels that share their functions).

    `name` is the tensor that it makes, `function` its (first) function at level 4, `ops` what its body computes, as
    ``conv2d conv1``; `launches` calls take `seconds` in all, for `flops` operations and `bytes` of compulsory traffic,
    which take this machine at least `bound_seconds` (0: nobody knows). `shapes` has the types of what it reads and
    makes, `where` is its place in the source.
    """

    name: str
    function: str
    ops: tuple[str, ...]
    launches: int
    seconds: float
    flops: int
    bytes: int
    bound_seconds: float
    shapes: str = ""
    where: SourceLoc | None = None

    @property
    def share_of_bound(self) -> float:
        """The share of the bound that it reaches: 1 is as fast as can be."""
        return self.bound_seconds / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Profile:
    """The kernels of a network in program order, and one call of the whole. `whole_seconds` is None for a network that
    prints, and in the PTX interpreter; `peaks` there, and of a device that is not known. `clock` says what the times
    are of."""

    kernels: tuple[KernelTime, ...]
    whole_seconds: float | None
    rounds: int
    peaks: roofline.Peaks | None
    clock: str = ""

    @property
    def seconds(self) -> float:
        """The sum of the kernels."""
        return sum(k.seconds for k in self.kernels)

    def text(self, top: int = TOP) -> str:
        """A table of the kernels that take longest, and totals."""
        total = self.seconds or 1.0
        ranked = sorted(self.kernels, key=lambda k: -k.seconds)
        header = ("kernel", "ops", "function", "us", "share", "GFLOP/s", "MB", "GB/s", "of bound", "shapes")
        lines = [table(header, (_row(k, total) for k in ranked[:top]))]
        if len(ranked) > top:
            rest = sum(k.seconds for k in ranked[top:])
            lines.append(f"and {some(len(ranked) - top, 'more kernel')}, {1e6 * rest:.1f} us")
        return "\n".join([*lines, "", *self._totals()])

    def _totals(self) -> list[str]:
        flops, bound = sum(k.flops for k in self.kernels), sum(k.bound_seconds for k in self.kernels)
        rate = f", {count(flops / self.seconds, 'FLOP/s')}" if self.seconds else ""
        lines = [
            f"sum of {some(len(self.kernels), 'kernel')}: {1e3 * self.seconds:.3f} ms{rate} (median of "
            f"{some(self.rounds, 'round')})"
        ]
        if self.whole_seconds is not None:
            lines.append(f"one call of the network: {1e3 * self.whole_seconds:.3f} ms")
        if self.seconds and self.peaks is not None:
            lines.append(f"roofline bound: {1e3 * bound:.3f} ms, {bound / self.seconds:.0%} of the time")
        return [
            *lines,
            *([f"times: {self.clock}"] if self.clock else []),
            *([self.machine] if self.peaks is not None else []),
        ]

    @property
    def machine(self) -> str:
        """The bound that the times are held against, as a sentence."""
        return "" if self.peaks is None else f"this machine: {self.peaks}"

    def json(self) -> str:
        """Everything, as a trace in the JSON form of Chrome's trace viewer (and of Perfetto): one event a kernel, end
        to end, below one for the whole network. The member ``lightnet`` has the kernels and totals as plain values."""
        events: list[dict[str, Any]] = [
            {"name": "process_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "lightnet"}},
            {"name": "sum of kernels", "cat": "network", "ph": "X", "pid": 1, "tid": 1, "ts": 0.0,
             "dur": 1e6 * self.seconds,
             "args": {"one call of the network, us": None if self.whole_seconds is None else 1e6 * self.whole_seconds}},
        ]  # fmt: skip
        at = 0.0
        for kernel in self.kernels:
            args = {"function": kernel.function, "ops": list(kernel.ops), "shapes": kernel.shapes,
                    "flops": kernel.flops,
                    "bytes": kernel.bytes, "of bound": kernel.share_of_bound,
                    "source": str(kernel.where or "")}  # fmt: skip
            events.append({"name": kernel.name, "cat": "kernel", "ph": "X", "pid": 1, "tid": 1, "ts": at,
                           "dur": 1e6 * kernel.seconds, "args": args})  # fmt: skip
            at += 1e6 * kernel.seconds
        plain = {"kernels": [{**asdict(k), "where": str(k.where) if k.where else None} for k in self.kernels],
                 "seconds": self.seconds, "whole_seconds": self.whole_seconds, "rounds": self.rounds,
                 "peaks": None if self.peaks is None else asdict(self.peaks), "clock": self.clock}  # fmt: skip
        return json.dumps({"traceEvents": events, "displayTimeUnit": "ns", "lightnet": plain}, indent=1) + "\n"


def profile(executable: Any, feeds: Mapping[str, Any] | None = None, rounds: int = 5) -> list[KernelTime]:
    """The kernels of an `Executable` (or a `SpecializingExecutable`) in program order, each with its time on `feeds`,
    arrays by input name. Moves that cost nothing are left out. Raises `LightNetError` as a call does, and where there
    is no machine code."""
    return list(profiled(executable, feeds, rounds).kernels)


def profiled(executable: Any, feeds: Mapping[str, Any] | None = None, rounds: int = 5) -> Profile:
    """As `profile`, with the time of a whole call and the limits of the machine."""
    if rounds < 1:
        raise LightNetError(f"a profile needs at least one round, and gets {rounds}")
    executable, feeds = specialized(executable, feeds)
    if not executable.is_native:
        raise executable.no_code("profile")
    walk = stepper(executable, feeds)
    steps = [step for step in walk.steps if step.lines]
    rounds, warm = (rounds, 1) if walk.rounds is None else (min(rounds, walk.rounds), 0)
    silent = not executable.program.hosts and walk.rounds is None
    times: list[list[float]] = [[] for _ in steps]
    whole: list[float] = []
    for _ in range(rounds + warm):
        if silent:
            walk.restart()
            whole.append(walk.whole_seconds())
        walk.restart()
        for spent, step in zip(times, steps):
            spent.append(walk.seconds(step))
    peaks = walk.peaks()
    middle = [statistics.median(spent[warm:]) for spent in times]  # the first round warms caches up
    selection = get_target(executable.options.get("target", "cpu")).selection
    kernels = tuple(_timed(step, seconds, peaks, selection) for step, seconds in zip(steps, middle))
    return Profile(kernels, statistics.median(whole[warm:]) if whole else None, rounds, peaks, walk.clock)


def by_function(kernels: Sequence[KernelTime]) -> list[KernelTime]:
    """One entry for all kernels that share their functions, the slowest first; figures are sums."""
    groups: dict[str, list[KernelTime]] = {}
    for kernel in kernels:
        groups.setdefault(kernel.function, []).append(kernel)
    merged = [
        replace(
            group[0],
            name=group[0].name if len(group) == 1 else f"{group[0].name} and {len(group) - 1} more",
            launches=sum(k.launches for k in group),
            seconds=sum(k.seconds for k in group),
            flops=sum(k.flops for k in group),
            bytes=sum(k.bytes for k in group),
            bound_seconds=sum(k.bound_seconds for k in group),
        )
        for group in groups.values()
    ]
    return sorted(merged, key=lambda k: -k.seconds)


# -- one kernel


def _timed(step: KernelStep, seconds: float, peaks: roofline.Peaks | None, selection: Any) -> KernelTime:
    op = step.op
    flops, nbytes = costs.flops(op), costs.bytes_moved(op)
    item = max((spec_of(v.type).dtype.size for v in op.results if spec_of(v.type).dtype.is_float), default=4)
    bound = 0.0 if peaks is None else peaks.bound(costs.executed(op, selection), nbytes, item)
    return KernelTime(
        kernel_name(op), _function(step.lines[0]), _ops_of(op), len(step.lines), seconds, flops, nbytes, bound,
        _shapes_of(op), loc_of(op),
    )  # fmt: skip


def _function(line: LaunchLine | CopyOp) -> str:
    return line.callee.string_value() if isinstance(line, LaunchLine) else line.name


def kernel_name(op: Operation) -> str:
    """The name of a kernel: the tensors that it makes, or else its ops."""
    return ", ".join(n for n in tensor_names(op) if n) or op_label(op)


def _ops_of(op: Operation) -> tuple[str, ...]:
    """The ops of a kernel's body, each with its name in the source."""
    inner = op.ops if isinstance(op, KernelOp) else [op] if isinstance(op, LnOp) else []
    return tuple(f"{o.optype} {name}" if (name := name_of(o)) else o.optype for o in inner)


def _shapes_of(op: Operation) -> str:
    """The shapes of what a kernel reads and makes: ``1x64x56x56 64x64x3x3 64 -> 1x64x56x56``."""
    read, made = ([shape(spec_of(v.type).dims) for v in values] for values in (op.operands, op.results))
    kept = [*read[:4], "…"] if len(read) > 4 else read
    return f"{' '.join(kept)} -> {' '.join(made)}"


def _row(k: KernelTime, total: float) -> tuple[str, ...]:
    types = [o.partition(" ")[0] for o in k.ops]
    rate = f"{k.flops / k.seconds / 1e9:.1f}" if k.seconds and k.flops else ""
    traffic = f"{k.bytes / k.seconds / 1e9:.1f}" if k.seconds else ""
    near = f"{k.share_of_bound:.0%}" if k.seconds and k.bound_seconds else ""
    return (shortened(k.name, 32), shortened("+".join(types), 32), shortened(k.function, 28), f"{1e6 * k.seconds:.1f}",
            f"{k.seconds / total:.1%}", rate, f"{k.bytes / 1e6:.2f}", traffic, near,
            shortened(k.shapes, 60))  # fmt: skip
