"""Convolutions whose results are concatenated: each writes its channels of the one result, so that nothing is copied.

    %a = conv2d …, %b = relu %a      %c = conv2d …      %y = concat %b, %c, %d {axis = 1}

With the channels last, those of an operand are no range of bytes of the result, so the planner can make no view of it
(`ir/views.py`); here every convolution is a launch of its own that writes to its place, and an operand from outside
(%d) is copied there. Choice: ``tiles``, five numbers a convolution: rows, columns, depth, stages, splits. Imports the
generators of products.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import SSAValue

from lightnet.backends.cuda.base import MAP, PRODUCT_TYPES, SimtGenerator, memory_time
from lightnet.backends.cuda.device import DeviceModel
from lightnet.backends.cuda.gemm import kernel as kernels
from lightnet.backends.cuda.gemm.generator import CHOICES, MMA, SIMT, Gemm, checked_pins
from lightnet.backends.cuda.gemm.model import Pinned
from lightnet.backends.cuda.gemm.problem import ChannelSlice, GemmProblem, match, whole_channels
from lightnet.backends.cuda.gemm.wgmma import WGMMA
from lightnet.backends.cuda.kernel import KernelFunction, KernelTask
from lightnet.backends.cuda.simt import SimtLaunch
from lightnet.backends.generator import Forms, Plan
from lightnet.dataclasses import dataclass, replace
from lightnet.dialects.ln.move import Concat
from lightnet.ir.kernel import KernelOp, choice_attr
from lightnet.ir.layout import layout_of
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal
from lightnet.ir.target import Form
from lightnet.ir.types import spec_of

#: Threads of a block that copies, and channels that each copies.
THREADS, VECTOR = 128, 4
#: Numbers of the choice `tiles` for each convolution.
NUMBERS = 5


@dataclass(frozen=True)
class Joint:
    """A concatenation of maps along the channels: `products` make some of its operands, `copies` are the others, with
    their first channel."""

    result: SSAValue
    products: tuple[GemmProblem, ...]
    copies: tuple[tuple[SSAValue, int], ...]

    @cached_property
    def form(self) -> Form:
        maps: dict[SSAValue, tuple[int, int]] = {value: (0, 0) for value, _ in self.copies}
        weights: set[SSAValue] = set()
        for p in self.products:
            maps |= p.form().maps
            weights |= p.form().weights
        return Form(maps, frozenset(weights))


def joint_of(ops: Sequence[LnOp], yielded: Sequence[SSAValue]) -> Joint | None:
    """The products that a body joins; None where it is no concatenation of the results of convolutions, each of whose
    ops belongs to one of them.
    """
    if len(ops) < 2 or not isinstance(concat := ops[-1], Concat) or list(yielded) != [concat.results[0]]:
        return None
    spec = concat.result_specs[0]
    if concat.axis != 1 or spec.ndim != 4 or spec.len == 0 or spec.dtype.name not in PRODUCT_TYPES:
        return None
    makers: dict[SSAValue, LnOp] = {r: op for op in ops[:-1] for r in op.results}
    products, copies, first, seen = list[GemmProblem](), list[tuple[SSAValue, int]](), 0, set[LnOp]()
    for value, part in zip(concat.operands, concat.operand_specs, strict=True):
        if first % MAP.multiple:
            return None  # the channels of a pixel begin anywhere
        if value not in makers:
            copies.append((value, first))
        elif (product := _product(value, ops, makers, seen)) is not None:
            products.append(replace(product, slice=ChannelSlice(value, first, spec.dims[1])))
        else:
            return None
        first += part.dims[1]
    joint = Joint(concat.results[0], tuple(products), tuple(copies))
    whole = len(seen) == len(ops) - 1 and bool(products)
    return joint if whole and joint.form.maps.keys().isdisjoint(joint.form.weights) else None


def _product(
    value: SSAValue, ops: Sequence[LnOp], makers: Mapping[SSAValue, LnOp], seen: set[LnOp]
) -> GemmProblem | None:
    """The convolution that makes a value and nothing else; `seen` are the ops that others are made of, to which its own
    are added."""
    own, waiting = set[LnOp](), [value]
    while waiting:
        op = makers.get(waiting.pop())
        if op is not None and op not in own:
            own.add(op)
            waiting += op.operands
    if not own.isdisjoint(seen):
        return None
    seen |= own
    return next((p for p in match([op for op in ops if op in own], [value]) if p.is_map), None)


class Join(SimtGenerator):
    """Joints on one family of cores."""

    ends = (Concat,)

    def __init__(self, alg: str, gemm: Gemm):
        self.alg, self.gemm, self.runs_in_strips = alg, gemm, gemm.runs_in_strips

    def takes(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], device: DeviceModel | None = None) -> Forms:
        joint = joint_of(ops, yielded)
        if joint is None:
            return Refusal("it is no concat of channels of maps that convolutions make, in whole accesses")
        if not all(map(self.gemm.suits, joint.products)):
            return Refusal("its cores do not compute all of its products")
        return [joint.form]

    def is_exact(self, ops: Sequence[LnOp]) -> bool:
        joint = joint_of(ops, ops[-1].results)
        return joint is not None and all(self.gemm.is_exact(p.ops) for p in joint.products)

    def is_for(self, device: DeviceModel) -> bool:
        return self.gemm.is_for(device)

    def plan(self, kernel: KernelOp, form: Form, device: DeviceModel) -> Plan:
        joint = _joint(kernel)
        best = [
            self.gemm.best(kernel, p, pinned, device, "tiles")
            for p, pinned in zip(joint.products, self._pinned(kernel, joint))
        ]
        made = tuple(schedule for _, schedule in best)
        copies = sum(memory_time(2 * spec_of(value.type).nbytes, device) for value, _ in joint.copies)
        numbers = ((s.tile.rows, s.tile.cols, s.tile.depth, s.tile.stages, s.splits) for s in made)
        return Plan.of(
            self, kernel, form, sum(time for time, _ in best) + copies, made,
            choices={"tiles": choice_attr(tuple(n for several in numbers for n in several))},
            weights={kernel.number_of(p.b): p.packed for p in joint.products},
            workspace_bytes=sum(kernels.workspace_bytes(p, s.splits) for p, s in zip(joint.products, made)),
        )  # fmt: skip

    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[SimtLaunch]:
        joint, at, task = _joint(kernel), 0, KernelTask(kernel, name, aliases)
        launches: list[SimtLaunch] = []
        for p, schedule in zip(joint.products, plan.schedule):
            launches += self.gemm.launches(task, p, schedule, at)
            at += kernels.workspace_bytes(p, schedule.splits)
        launches += [_copy(kernel, name, value, first) for value, first in joint.copies]
        for number, launch in enumerate(launches[1:], 1):  # as profiles and the like expect them to be called
            launch.function.sym_name = StringAttr(f"{name}_{number}")
        return launches

    def _pinned(self, kernel: KernelOp, joint: Joint) -> list[Pinned]:
        """The pins of each product in a kernel's choice."""
        numbers = CHOICES.numbers(kernel, "tiles", NUMBERS * len(joint.products))
        if numbers is None:
            return [Pinned()] * len(joint.products)
        several = (numbers[i : i + NUMBERS] for i in range(0, len(numbers), NUMBERS))
        return [checked_pins(kernel, "tiles", Pinned(tuple(tile), stages, splits)) for *tile, stages, splits in several]


def _joint(kernel: KernelOp) -> Joint:
    joint = joint_of(kernel.ops, list(kernel.terminator.operands))
    assert joint is not None
    return joint


def _copy(kernel: KernelOp, name: str, value: SSAValue, first: int) -> SimtLaunch:
    """The launch that copies a map to its channels of the result, those that fill it up included: a thread takes four
    channels of a pixel."""

    def shape(seen: SSAValue) -> tuple[int, int]:
        n, h, w, channels = layout_of(seen.type).physical_dims(spec_of(seen.type).dims)
        return (n * h * w, channels)

    f = KernelFunction(kernel, name, (THREADS, 1, 1), {}, reads=[value], shape=shape)
    b, (pixels, channels) = f.b, shape(value)
    assert channels == whole_channels(channels)
    count = pixels * (channels // VECTOR)
    number = b.add(b.mul(b.block_id(), THREADS), b.thread_id())
    with b.when(b.below(number, count)):
        pixel, piece = b.divmod(number, channels // VECTOR)
        channel = b.mul(piece, VECTOR)
        part = b.tile_load(f.inputs[value], [pixel, channel], [1], (VECTOR,))
        b.tile_store(part, f.outputs[0], [pixel, b.add(channel, first)], [1])
    return f.launch((-(-count // THREADS), 1, 1))


JOIN, JOIN_MMA, JOIN_WGMMA = Join("join", SIMT), Join("join-mma", MMA), Join("join-wgmma", WGMMA)
