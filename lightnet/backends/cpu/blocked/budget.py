"""The memory that transformed weights may take: Winograd's are up to four times as large as those that they stand for.

Each kernel chooses for itself what is quickest (`selection.py`). Where all of these together would take more memory than the network
may, those that gain least for it give way: to a smaller transform, or to the direct algorithm. Imports the selection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from xdsl.dialects.builtin import StringAttr

from lightnet.backends.cpu.blocked import selection
from lightnet.backends.cpu.blocked.base import Machine, lanes_of
from lightnet.ir.kernel import KernelOp
from lightnet.ir.names import SUFFIX
from lightnet.ir.types import spec_of

#: Bytes that transformed weights may take beyond the plain ones unless a caller says otherwise: so many times those of all weights, and at least as many
#: as matter nowhere, beside what a process takes. Measured against no limit, CPU time of one thread: ResNet-50 takes 0.5 % longer for 133 MB instead of
#: 159, ResNet-18 8 % for 59 instead of 97; SqueezeNet, whose weights are below the least, nothing.
TIMES, LEAST = 0.3, 8 << 20


class _Step(NamedTuple):
    """A kernel with another algorithm: nanoseconds that it loses, and bytes that it saves."""

    loss: float
    saved: int
    kernel: KernelOp
    alg: str


def changes(kernels: Sequence[KernelOp], machine: Machine, budget: int | None) -> dict[KernelOp, str]:
    """Which of `kernels`, all of a network whose algorithm may change, should use which other one, so that transformed weights take
    no more than `budget` bytes (None: the default) beyond the plain ones. What loses least time for a byte gives way first."""
    grown = [k for k in kernels if (g := selection.generator_of(k)) is not None and not g.exact]
    total = sum(map(_excess, grown))
    if budget is None:
        budget = LEAST if total <= LEAST else _default(kernels)
    if total <= budget:
        return {}
    found: dict[KernelOp, _Step] = {}
    for step in sorted((s for k in grown for s in _steps(k, machine)), key=lambda s: s.loss / s.saved):
        if total <= budget:
            break
        before = found.get(step.kernel)
        if before is None or before.saved < step.saved:
            total -= step.saved - (before.saved if before is not None else 0)
            found[step.kernel] = step
    return {kernel: step.alg for kernel, step in found.items()}


def _default(kernels: Sequence[KernelOp]) -> int:
    """Bytes that transformed weights of a network may take beyond the plain ones, where nothing else is said."""
    weights = {k.operands[i] for k in kernels for i in selection.packing(k)}
    return max(int(TIMES * sum(spec_of(v.type).nbytes for v in weights)), LEAST)


def _excess(kernel: KernelOp) -> int:
    """Bytes that the packed weights of a kernel take beyond the plain ones, by its present choices."""
    specs = [(layout, spec_of(kernel.operands[i].type)) for i, layout in selection.packing(kernel).items()]
    return sum(layout.size(spec) - spec.nbytes for layout, spec in specs)


def _steps(kernel: KernelOp, machine: Machine) -> Iterator[_Step]:
    """What else a kernel could do with less memory."""
    before, now = dict(kernel.attributes), _excess(kernel)
    time = selection.cost_of(kernel, machine)
    lanes = lanes_of(kernel)
    for generator, form in selection.candidates(kernel, lanes):
        if not selection.fits(form, kernel, lanes):
            continue
        kernel.attributes = without_choices(kernel, generator.alg)
        kernel.attributes |= selection.choose(kernel, machine, exact=False)
        size = _excess(kernel)
        if size < now:
            yield _Step(max(generator.cost(kernel, machine) - time, 0.0), now - size, kernel, generator.alg)
        kernel.attributes = dict(before)


def without_choices(kernel: KernelOp, alg: str) -> dict:
    """The attributes of a kernel whose one choice is its algorithm."""
    return {k: v for k, v in kernel.attributes.items() if k in SUFFIX} | {"alg": StringAttr(alg)}
