"""The generator that takes a kernel of cuda, and by which plan. Imports the table of generators, by what they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from xdsl.ir import Attribute, SSAValue

from lightnet.backends.cuda.base import MAP
from lightnet.backends.cuda.device import DeviceModel, device_of
from lightnet.backends.cuda.strips import open_generators
from lightnet.backends.generator import Generator
from lightnet.backends.kernel_loops import takes_layouts
from lightnet.backends.selection import PINNED, Candidate, Selection, has_maps, with_workspace
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir.body import choice
from lightnet.ir.instances import is_open
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import ChannelsLast, Layout, Packed, Phases, layout_of
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal
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

    def fits(self, generator: Generator, form: Form, kernel: KernelOp, machine: DeviceModel) -> bool | Refusal:
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
            return takes_layouts(kernel) or Refusal("loops do not know these layouts")
        wanted = Layout() if form.plain_results else MAP
        if made := [layout_of(r.type) for r in kernel.results if layout_of(r.type) != wanted]:
            return Refusal("it makes {}, and a result lies as {}", wanted, made[0])
        odd = [layout_of(v.type) for v in kernel.body.args if not ok(v)]
        return not odd or Refusal("an operand lies as {}, and it reads it otherwise", odd[0])

    def machine_for(self, kernel: KernelOp) -> DeviceModel:
        """The device to check choices for. What is chosen was checked then, for a device that may have more than any
        other; what is not is for all devices.
        """
        return device_of("sm_90a" if kernel.choices else "")

    def default(self, kernel: KernelOp) -> str | None:
        return ANYTHING if choice(kernel, "alg") is None else None

    def remedy(self, pinned: str | None, kernel: KernelOp, machine: DeviceModel, usable: Sequence[Candidate]) -> str:
        if pinned in {g.alg for g in self.generators() if not g.is_for(machine)}:
            return f"; '{pinned}' is not for {machine.arch}"
        if not (forms := [form for g, form in usable if g.alg == pinned]):
            return ""
        if any(form.weights <= _static(kernel) for form in forms):
            where = f'choices {{alg = "{pinned}"}} on the kernel before the pass layout'
            return f"; '{pinned}' takes it in other layouts: write {where}"
        return f"; '{pinned}' takes it with weights that are static"

    # -- before there are layouts

    def machine_of(self, features: str) -> DeviceModel:
        return device_of(features)

    def origins(self, kernel: KernelOp) -> tuple[bool, ...]:
        """The flags of operands: True for those that are static."""
        return tuple(isinstance(v.owner, OnceOp) for v in kernel.operands)

    def numbered_blocking(self, kernel: KernelOp, machine: DeviceModel) -> Blocking | Refusal:
        """Products on tensor cores are left out: that they round is decided later, and layouts do not depend on it."""
        pinned, static = choice(kernel, "alg"), _static(kernel)
        found = [
            (g, form)
            for g, form in self.candidates(kernel, machine)
            if form.weights <= static and (pinned == g.alg or (pinned is None and g.is_exact(kernel.ops)))
        ]
        if not any(map(has_maps, (form for _, form in found))):
            return Refusal("no generator takes it on maps")
        plans = self.offers(kernel, found, machine)
        maps = [p for p in plans if has_maps(p.form)]
        if not maps:
            return Refusal("no generator takes it on maps, with the choices that it has")
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
