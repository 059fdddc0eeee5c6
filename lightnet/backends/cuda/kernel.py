"""The function of a kernel of threads: its memrefs for operands, results and workspace. Imports the builder of threads
and layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from xdsl.dialects.builtin import MemRefType
from xdsl.ir import SSAValue

from lightnet.backends.cuda.simt import Simt, SimtLaunch, Sizes
from lightnet.backends.launches import Argument
from lightnet.dataclasses import dataclass, field
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import layout_of
from lightnet.ir.types import spec_of, storage_type


def physical(value: SSAValue) -> tuple[int, ...]:
    """The row-major shape of a value's memory: [N, H, W, C'] with the channels last, else its dims."""
    return layout_of(value.type).physical_dims(spec_of(value.type).dims)


@dataclass(frozen=True)
class KernelTask:
    """A kernel whose functions are to be made: the name of the first, and, of results that take an operand's memory,
    the number of that operand."""

    kernel: KernelOp
    name: str
    aliases: Mapping[int, int] = field(default_factory=dict)


class KernelFunction:
    """One function of a kernel region. `inputs` maps block arguments of the region to memrefs, `outputs` the numbers of
    results; an operand whose memory a result takes is the result's memref (no two memrefs of a kernel overlap).
    `workspace` are the memrefs of the kernel's workspace, in the order of `types`, which come with the byte at which
    each begins.

    `reads` and `writes` say which operands and results the function has (default: all), `shape` how their memory is
    seen.
    """

    def __init__(self, kernel: KernelOp, name: str, block: Sizes, aliases: Mapping[int, int], *,
                 reads: Iterable[SSAValue] | None = None, writes: Sequence[int] | None = None,
                 workspace: Sequence[tuple[MemRefType, int]] = (),
                 shape: Callable[[SSAValue], Sequence[int]] = physical):  # fmt: skip
        args = list(kernel.body.args)
        reads = args if reads is None else list(dict.fromkeys(reads))
        writes = range(len(kernel.results)) if writes is None else writes
        shared = {operand: result for result, operand in aliases.items() if result in writes}
        own = [a for a in reads if a.index not in shared]
        types = [_memref(a, shape) for a in own] + [_memref(kernel.results[r], shape) for r in writes]
        types += [type for type, _ in workspace]
        self.kernel, self.block = kernel, block
        hints = [v.name_hint for v in (*own, *(kernel.results[r] for r in writes))]
        hints += ["work"] * len(workspace)
        self.b = Simt.thread(name, types, block, hints, kernel.location)
        memrefs = list(self.b.args)
        self.inputs: dict[SSAValue, SSAValue] = dict(zip(own, memrefs))
        self.outputs = dict(zip(writes, memrefs[len(own) :]))
        self.inputs |= {a: self.outputs[shared[a.index]] for a in reads if a.index in shared}
        self.workspace = memrefs[len(memrefs) - len(workspace) :]
        self.arguments = [
            *(Argument("operand", a.index) for a in own),
            *(Argument("result", r) for r in writes),
            *(Argument("workspace", at) for _, at in workspace),
        ]

    def launch(self, grid: Sizes) -> SimtLaunch:
        """End the function; the launch of it."""
        return SimtLaunch(self.b.finish(), grid, self.block, tuple(self.arguments))


def _memref(value: SSAValue, shape: Callable[[SSAValue], Sequence[int]]) -> MemRefType:
    return MemRefType(storage_type(spec_of(value.type).dtype), list(shape(value)))
