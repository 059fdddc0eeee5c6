"""The generator that takes a kernel of cuda, and by which plan. Imports the table of generators, by what they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from xdsl.ir import Attribute, SSAValue

from lightnet.backends.cuda.base import MAP
from lightnet.backends.cuda.device import DeviceModel, device_of
from lightnet.backends.cuda.strips import open_generators
from lightnet.backends.generator import Generator
from lightnet.backends.kernel_loops import takes_layouts
from lightnet.backends.selection import PINNED, Candidate, Selection, has_maps, layouts, with_workspace
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir.body import choice
from lightnet.ir.instances import is_open
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import ChannelsLast, Layout, Packed, Phases, layout_of
from lightnet.ir.locations import loc_of
from lightnet.ir.op import LnOp
from lightnet.ir.registry import CUDA_GENERATORS
from lightnet.ir.target import Blocking, Form, Request
from lightnet.ir.types import spec_of
from lightnet.ir.views import place_of
from lightnet.runtime.dims import typical

#: What factors of products of f32 may be rounded to.
PRECISIONS = ("f32", "tf32")
#: The generator that takes every kernel.
ANYTHING = "loops"


class CudaSelection(Selection[DeviceModel]):
    """The generators of kernels of threads."""

    def __init__(self) -> None:
        super().__init__("cuda", CUDA_GENERATORS)

    def usable(self, kernel: KernelOp, machine: DeviceModel) -> Iterable[Generator]:
        """The generators that a kernel may have: where calls decide sizes of it, those that build for symbols, and the
        others in strips of rows."""
        return (g for g in self.ways(kernel.ops, kernel.operands) if g.is_for(machine))

    def ways(self, ops: Sequence[LnOp], beside: Sequence[SSAValue] = ()) -> Sequence[Generator]:
        """The generators that there are for ops, which may be open, as may be what a kernel reads `beside` them."""
        found = self.generators()
        values = (*beside, *(v for op in ops for v in (*op.operands, *op.results)))
        return [way for g in found for way in open_generators(g)] if is_open(values) else found

    def fits(self, generator: Generator, form: Form, kernel: KernelOp, machine: DeviceModel) -> bool:
        """Weights that are not packed yet are static, and have no place."""
        planned = any(place_of(r) is not None for r in kernel.results)
        static = _static(kernel)

        def ok(value: SSAValue) -> bool:
            layout = layout_of(value.type)
            if value in form.maps:
                return layout == MAP
            if value in form.weights:
                return isinstance(layout, ChannelsLast | Packed | Phases) or (value in static and not planned)
            return layout.is_plain

        if generator.alg == choice(kernel, "alg") == ANYTHING:
            return takes_layouts(kernel)
        wanted = Layout() if form.plain_results else MAP
        return all(layout_of(r.type) == wanted for r in kernel.results) and all(map(ok, kernel.body.args))

    def machine_for(self, kernel: KernelOp) -> DeviceModel:
        """The device to check choices for. What is chosen was checked then, for a device that may have more than any
        other; what is not is for all devices.
        """
        return device_of("sm_90a" if kernel.choices else "")

    def default(self, kernel: KernelOp) -> str | None:
        return ANYTHING if choice(kernel, "alg") is None else None

    def refuse(self, kernel: KernelOp, machine: DeviceModel, usable: Sequence[Candidate]) -> NoReturn:
        pinned = choice(kernel, "alg")
        others = ", ".join(dict.fromkeys(g.alg for g, form in usable if self.fits(g, form, kernel, machine)))
        text = f"; alg may be {others}" if others else ""
        if pinned in {g.alg for g in self.generators() if not g.is_for(machine)}:
            text += f"; '{pinned}' is not for {machine.arch}"
        elif forms := [form for g, form in usable if g.alg == pinned]:
            if any(form.weights <= _static(kernel) for form in forms):
                text += f"; '{pinned}' takes it in other layouts: write "
                text += f'choices {{alg = "{pinned}"}} on the kernel before the pass layout'
            else:
                text += f"; '{pinned}' takes it with weights that are static"
        what = f"{kernel.name} of {', '.join(op.optype for op in kernel.ops)}"
        given = f"layouts {layouts(kernel)}" + (f", alg = '{pinned}'" if pinned is not None else "")
        raise LightNetError(f"no generator of cuda takes {what} with {given}{text}", loc_of(kernel), label="choose.alg")

    # -- before there are layouts

    def machine_of(self, features: str) -> DeviceModel:
        return device_of(features)

    def origins(self, kernel: KernelOp) -> tuple[bool, ...]:
        """The flags of operands: True for those that are static."""
        return tuple(isinstance(v.owner, OnceOp) for v in kernel.operands)

    def numbered_blocking(self, kernel: KernelOp, machine: DeviceModel) -> Blocking | None:
        """Products on tensor cores are left out: that they round is decided later, and layouts do not depend on it."""
        pinned, static = choice(kernel, "alg"), _static(kernel)
        found = [
            (g, form)
            for g, form in self.candidates(kernel, machine)
            if form.weights <= static and (pinned == g.alg or (pinned is None and g.is_exact(kernel.ops)))
        ]
        if not any(map(has_maps, (form for _, form in found))):
            return None
        plans = self.offers(kernel, found, machine)
        maps = [p for p in plans if has_maps(p.form)]
        if not maps:
            return None
        best = min(maps, key=lambda p: p.time)
        plain = min((p.time for p in plans if not has_maps(p.form)), default=PINNED)
        return Blocking(best.form, MAP, best.time, plain)


def _static(kernel: KernelOp) -> set[SSAValue]:
    """The block arguments of a kernel that are computed when a network is loaded."""
    return {a for a, v in kernel.outside.items() if isinstance(v.owner, OnceOp)}


def cuda_reorder_time(value: SSAValue, layout: Layout) -> float:
    """Nanoseconds of a change of layout, roughly (`Target.reorder`): where the memory is the same, none."""
    spec, device = spec_of(value.type), device_of("")
    if spec.ndim == 4 and spec.dims[2:] == (1, 1) and spec.dims[1] % MAP.multiple == 0:
        return 0.0
    return device.launch + typical(spec.nbytes + layout.size(spec)) / (0.6 * device.bytes)


SELECTION = CudaSelection()


def choose(kernel: KernelOp, request: Request) -> Mapping[str, Attribute]:
    """The choices of a kernel (`Target.choose`). Raises `LightNetError` where no generator takes it."""
    if request.precision not in PRECISIONS:
        raise LightNetError(
            f"unknown precision '{request.precision:.40}'; there are: {', '.join(PRECISIONS)}", label="choose.precision"
        )
    rounds = request.precision == "tf32" and not request.exact
    return with_workspace(kernel, SELECTION.choose(kernel, device_of(request.features), exact=not rounds))
