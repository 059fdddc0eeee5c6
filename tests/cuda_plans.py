"""What generators of cuda say of kernels that stand alone, whatever device they are for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lightnet.backends.cuda.device import DeviceModel, device_of
from lightnet.backends.cuda.selection import SELECTION
from lightnet.backends.generator import Generator, Plan
from lightnet.ir.body import OfEqualKernels
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import layout_of
from lightnet.ir.target import Form


def candidates(kernel: KernelOp) -> list[tuple[Generator, Form]]:
    """The generators that take a kernel's body on any device, once for each form."""
    return [(g, form) for g in SELECTION.generators() for form in forms_of(g, kernel)]


def forms_of(generator: Generator, kernel: KernelOp) -> list[Form]:
    """The forms in which a generator takes a kernel's body."""
    return list(generator.takes(kernel.ops, list(kernel.terminator.operands)))


def planned(generator: Generator, kernel: KernelOp, device: DeviceModel | None = None) -> Plan:
    """The plan of a generator for a kernel in the layouts of its results."""
    on_maps = any(not layout_of(r.type).is_plain for r in kernel.results)
    forms = forms_of(generator, kernel)
    form = next((f for f in forms if f.plain_results != on_maps), forms[0])
    return generator.plan(kernel, form, device or device_of(""))


def timed(monkeypatch, generator: Generator, time: Callable[[KernelOp], float]) -> None:
    """Let a generator say that kernels take other times, whatever was found out about them before."""
    plan = type(generator).plan

    def planned_so(kernel: KernelOp, form: Form, device: DeviceModel) -> Plan:
        return replace(plan(generator, kernel, form, device), time=time(kernel))

    monkeypatch.setattr(generator, "plan", planned_so)
    for name in ("_blockings", "_chosen", "_settled"):
        monkeypatch.setattr(SELECTION, name, OfEqualKernels())
