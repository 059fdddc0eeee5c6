"""Winograd convolutions on blocked maps: windows of 3x3, 3x1 and 1x3 with stride 1, by F(2, 3) and F(4, 3), with an
epilogue.

They multiply 2.25 and 4 times less than the direct convolution (1.5 and 2 times in one axis), read weights that are 1.8
and 4 times larger, and round differently: a sum of 512 channels is off by 2e-6 of the largest value with F(4 x 4, 3 x
3). Imports the base of blocked kernels, the plan and the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import lcm, prod

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, SSAValue

from lightnet.backends.cpu.blocked import winograd_kernel
from lightnet.backends.cpu.blocked.base import BlockedGenerator, Ends, ProcessorModel, choice_ints, machine_for
from lightnet.backends.cpu.blocked.conv_model import Geometry
from lightnet.backends.cpu.blocked.depthwise import conv_of
from lightnet.backends.cpu.blocked.forms import convolution_form, weight_layouts
from lightnet.backends.cpu.blocked.winograd_few import direct_time, few_pixels, with_few
from lightnet.backends.cpu.blocked.winograd_model import (
    PANELS,
    WinogradSchedule,
    winograd_schedule_of,
    winograd_time_of,
)
from lightnet.backends.cpu.blocked.winograd_runs import is_many, scratch_bytes, workspace_bytes
from lightnet.backends.generator import Plan
from lightnet.backends.launches import Launch
from lightnet.dataclasses import replace
from lightnet.dialects.ln.conv import Conv2d
from lightnet.ir.body import choice
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Packed
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal
from lightnet.ir.target import Form, Halo
from lightnet.ir.types import ParamAttr
from lightnet.ir.windows import Window
from lightnet.ir.winograd import tile_products
from lightnet.runtime.dims import Dim, Size, common_divisor

#: The windows that are taken.
SIZES = ((3, 3), (3, 1), (1, 3))


class Winograd(BlockedGenerator):
    """The generator of `conv2d` with stride 1 and one group, of f32, by F(m, 3) in each axis that has 3 taps."""

    exact, opens = False, True

    def __init__(self, m: int):
        self.m, self.alg = m, f"winograd{m}"

    def effort(self, kernel: KernelOp) -> float:
        size = conv_of(kernel).size
        return tile_products(self.m, size) / prod(taps * (self.m if taps == 3 else 1) for taps in size)

    def form(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: ProcessorModel) -> Form | Refusal:
        def halo_of(conv: Conv2d) -> Halo | Refusal:
            if conv.group != 1 or tuple(conv.stride) != (1, 1) or tuple(conv.size) not in SIZES:
                text = "its windows are {} x {} by strides {} x {}, in {} groups: there is no transform"
                return Refusal(text, *conv.size, *conv.stride, conv.group)
            return Window.of(conv).halo

        return convolution_form(ops, yielded, Conv2d, halo_of)

    def plan(self, kernel: KernelOp, form: Form, machine: ProcessorModel) -> Plan:
        return self._with_lean(kernel, form, machine, lambda machine: winograd_schedule_of(kernel, self.m, machine))

    def opened(self, kernel: KernelOp, ends: Ends, form: Form, machine: ProcessorModel) -> Plan:
        def schedule(machine: ProcessorModel) -> WinogradSchedule:
            """Runs of tiles that are as long as suits the largest map: on a smaller one they end earlier."""
            made = winograd_kernel.sized_for(kernel, winograd_schedule_of(ends[1], self.m, machine, is_run=True))
            if made.order != PANELS:
                return made
            given = choice_ints(kernel, "few", 1)
            (step,) = choice_ints(kernel, "side", 1) or (1,)
            few = given[0] if given else few_pixels(made, Geometry.of(conv_of(kernel)), machine, step)
            return replace(made, few=few)

        return self._with_lean(kernel, form, machine, schedule)

    def ways(self, kernel: KernelOp) -> Sequence[Mapping[str, Attribute]]:
        """Panels have the plain weights, which few pixels can be computed by: maps whose sides are multiples of
        `side`."""
        step = lcm(*(common_divisor(d) for d in kernel.ops[0].result_specs[0].dims[2:] if isinstance(d, Dim)))
        side = {"side": ParamAttr((step,))}
        return (side,) if choice(kernel, "order") is not None else (side, {**side, "order": StringAttr(PANELS)})

    def open_memory(self, kernel: KernelOp, plan: Plan) -> tuple[Size, Size]:
        schedule = winograd_kernel.sized_for(kernel, plan.schedule)
        return scratch_bytes(schedule), workspace_bytes(schedule)

    def _with_lean(self, kernel: KernelOp, form: Form, machine: ProcessorModel,
                   schedule: Callable[[ProcessorModel], WinogradSchedule]) -> Plan:  # fmt: skip
        """The best plan, with the best whose weights do not grow, by the schedule for a machine."""
        plan = self._plan(kernel, form, machine, schedule(machine))
        if plan.schedule.growth == 1 or choice(kernel, "order") is not None:
            return plan
        lean = replace(machine, growth=1.0)
        return replace(plan, lean=self._plan(kernel, form, lean, schedule(lean)))

    def _plan(self, kernel: KernelOp, form: Form, machine: ProcessorModel, made: WinogradSchedule) -> Plan:
        time, pixels = winograd_time_of(made, machine), made.y.positions * made.x.positions
        if 0 < pixels <= made.few:
            time = direct_time(made, Geometry.of(conv_of(kernel)), machine)
        layout = Packed("o", made.vectors * made.lanes, winograd=0 if made.order == PANELS else self.m)
        return Plan.of(
            self, kernel, form, time, made,
            choices={
                "tile": ParamAttr((made.rows, made.vectors, made.unroll)),
                "tiles": ParamAttr(made.group),
                "order": StringAttr(made.order),
                "share": ParamAttr((made.share,)),
                **({"few": ParamAttr((made.few,))} if made.is_run and made.order == PANELS else {}),
            },
            weights=weight_layouts(kernel, form, made.lanes, {kernel.ops[0].operands[1]: layout}),
            scratch_bytes=scratch_bytes(made),
            workspace_bytes=workspace_bytes(made),
        )  # fmt: skip

    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[Launch]:
        schedule, machine = plan.schedule, machine_for(kernel)
        if not schedule.is_run or not schedule.few:
            return winograd_kernel.build(kernel, schedule, name, aliases)
        assert machine is not None, "the plan was made for one, and groups have no memory in calls of few pixels"
        sized = winograd_kernel.sized_for(kernel, schedule)
        made = winograd_kernel.build(kernel, schedule, name, aliases) if is_many(sized) != 0 else []
        return with_few(kernel, sized, made, f"{name}_2" if made else name, machine, aliases)


WINOGRAD2, WINOGRAD4 = Winograd(2), Winograd(4)
