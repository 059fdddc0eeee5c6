"""Which generator of blocked maps takes a kernel, and with which choices: what the passes layout, choose and pack ask the CPU.

Nothing is measured: each generator has a model of its time on a `Machine`. Imports the generators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from xdsl.dialects.builtin import IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute

from lightnet.backends.cpu.blocked import generators
from lightnet.backends.cpu.blocked.base import Generator, Machine, chosen_lanes, lanes_of
from lightnet.backends.cpu.blocked.forms import lies_right
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.conv import Conv2d, Deconv2d
from lightnet.dialects.ln.source import ParamOp, Source
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir.body import OfEqualKernels, choice
from lightnet.ir.kernel import KernelOp, choice_attr
from lightnet.ir.layout import Blocked, Layout, layout_of
from lightnet.ir.locations import loc_of
from lightnet.ir.op import LnOp
from lightnet.ir.registry import GENERATORS
from lightnet.ir.target import Blocking, Form, reorder_time
from lightnet.ir.types import ParamAttr, spec_of
from lightnet.ir.views import place_of

#: What the cost model knows of processors, by the feature that decides.
MACHINES = {
    "avx512": Machine(),
    "avx2": Machine(lanes=8, registers=16, flops=118.0),
    "neon": Machine(lanes=4, registers=32, flops=59.0),
}
#: Share of the peak that kernels on plain maps reach: convolutions, those that sum over few channels, and the rest.
PLAIN_CONVOLUTION, PLAIN_SHALLOW, PLAIN_OTHER = 0.6, 0.08, 0.03
#: Share of the rate of memory at which a convolution with one pixel reads its weights, row by row.
PLAIN_ROWS = 0.6
#: The choices `alg` of kernels on plain maps.
PLAIN_ALGS = ("direct", "loops")
#: Channels in a block of the maps that kernels are made for.
LANES = frozenset(machine.lanes for machine in MACHINES.values())
#: What a pinned `alg` adds to the time of the other ways, in nanoseconds: no other reason counts as much.
PINNED = 1e12


def machine_of(features: str, threads: int = 1) -> Machine:
    """The model of a machine with these features. Raises `LightNetError` for unknown ones."""
    if features and features not in MACHINES:
        raise LightNetError(f"unknown CPU feature '{features}'; there are: {', '.join(MACHINES)}")
    return replace(MACHINES[features or "avx512"], threads=threads)


def is_blocked(kernel: KernelOp) -> bool:
    """Whether a kernel reads or writes blocked maps."""
    return any(isinstance(layout_of(v.type), Blocked) for v in (*kernel.operands, *kernel.results))


def candidates(kernel: KernelOp, lanes: int) -> list[tuple[Generator, Form]]:
    """The generators that take a kernel's body, and what they need. What is empty is for the loops, which have none."""
    ops, yielded = kernel.ops, list(kernel.terminator.operands)
    if any(spec_of(v.type).len == 0 for v in (*kernel.operands, *kernel.results)):
        return []
    if not kernel.operands or any(op.has_builder or not op.operands for op in ops) or lanes not in LANES:
        return []
    found = ((g, g.takes(ops, yielded, lanes)) for g in generators())
    return [(g, form) for g, form in found if form is not None]


def blocking(kernel: KernelOp, features: str) -> Blocking | None:
    """How a kernel would run on blocked maps (`Target.blocking`): by the form that costs least, or that of its choice `alg`."""
    owners = (v.owner for v in kernel.operands)
    inputs = tuple(isinstance(owner, Source) and not isinstance(owner, ParamOp) for owner in owners)
    beside, args = (features, inputs, GENERATORS.version), kernel.body.args

    def make() -> Blocking | None:
        return _in_terms_of(_blocking(kernel, features, inputs), {arg: i for i, arg in enumerate(args)})

    return _in_terms_of(_BLOCKINGS.get(kernel, beside, make), dict(enumerate(args)))


#: In terms of the numbers of operands, where `Form` has block arguments: what is kept keeps no IR.
_BLOCKINGS: OfEqualKernels[Blocking | None] = OfEqualKernels()


def _in_terms_of(found: Blocking | None, names: Mapping[Any, Any]) -> Blocking | None:
    """The same with other names for the values of its form."""
    if found is None:
        return None
    maps, weights = {names[v]: halo for v, halo in found.form.maps.items()}, {names[v] for v in found.form.weights}
    return replace(found, form=replace(found.form, maps=maps, weights=frozenset(weights)))


def _blocking(kernel: KernelOp, features: str, inputs: Sequence[bool]) -> Blocking | None:
    """`blocking`, asked anew; `inputs` says which operands come from outside of the network."""
    machine, pinned = machine_of(features), choice(kernel, "alg")
    found = [(g, form) for g, form in candidates(kernel, machine.lanes) if pinned in (None, g.alg)]
    if not found or chosen_lanes(kernel) not in (0, machine.lanes):
        return None
    costs = [(g.cost(kernel, machine), form) for g, form in found]
    # What comes from outside of the network is plain for certain: a form that reads it so needs no change of layout.
    plain_for_sure = {a for a, is_input in zip(kernel.body.args, inputs) if is_input}

    def time(cost: float, form: Form) -> float:
        return cost + sum(reorder_time(v, Blocked(machine.lanes)) for v in plain_for_sure & form.maps.keys())

    cost, form = min(costs, key=lambda c: time(*c))
    plain = 0.0 if form.tied else plain_cost(kernel.ops, machine)
    return Blocking(form, Blocked(machine.lanes), cost, plain + (PINNED if pinned not in (None, *PLAIN_ALGS) else 0))


def packs(kernel: KernelOp, machine: Machine, exact: bool) -> bool:
    """Whether a kernel on plain tensors is for a generator that reads weights packed: its `alg` says so, or its weights are static and
    it is not planned yet (`pack` comes before `plan`), and the generator is exact if it has to be."""
    pinned, static = choice(kernel, "alg"), {v for v in kernel.operands if isinstance(v.owner, OnceOp)}
    if pinned is None and (not static or place_of(kernel.results[0]) is not None):
        return False
    lanes, outside = lanes_of(kernel) or machine.lanes, dict(zip(kernel.body.args, kernel.operands))
    found = [(g, form.weights) for g, form in candidates(kernel, lanes) if form.weights and fits(form, kernel, lanes)]
    if pinned is not None:
        return any(g.alg == pinned for g, _ in found)
    return any({outside[v] for v in weights} <= static and (g.exact or not exact) for g, weights in found)


def plain_cost(ops: Sequence[LnOp], machine: Machine) -> float:
    """Nanoseconds of a body on plain maps, very roughly."""
    anchor = ops[0]
    size = 4 * sum(s.len for s in (*anchor.operand_specs, *anchor.result_specs))
    share, work = PLAIN_OTHER, sum(op.flops() for op in ops)
    if isinstance(anchor, Conv2d | Deconv2d):
        depth = prod(anchor.operand_specs[1].dims[1:])
        share = PLAIN_CONVOLUTION if anchor.operand_specs[1].dims[1] > 1 else PLAIN_SHALLOW
        work += 2 * depth * anchor.result_specs[0].len
    pixel = isinstance(anchor, Conv2d) and anchor.result_specs[0].dims[2:] == (1, 1)
    rate = machine.l3_bytes * (PLAIN_ROWS if pixel else 1)
    return max(work / (share * machine.flops), size / rate)


def fits(form: Form, kernel: KernelOp, lanes: int) -> bool:
    """Whether the layouts of a kernel's operands and results are what a generator needs (`lies_right`), in blocks of the `lanes` that it
    chose, if it chose any."""
    if lanes not in LANES or chosen_lanes(kernel) not in (0, lanes):
        return False
    return lies_right(form, kernel.body.args, kernel.results, lanes)


def generator_of(kernel: KernelOp) -> Generator | None:
    """The generator that a kernel's choices and layouts name; None for kernels on plain maps."""
    alg, lanes = choice(kernel, "alg"), lanes_of(kernel)
    if not lanes:
        return None
    for generator in generators():
        if generator.alg != alg:
            continue
        form = generator.takes(kernel.ops, list(kernel.terminator.operands), lanes)
        if form is not None and fits(form, kernel, lanes):
            return generator
    return None


def cost_of(kernel: KernelOp, machine: Machine) -> float:
    """Nanoseconds of a kernel on one thread, by the model of the generator that its choices name."""
    generator = generator_of(kernel)
    return plain_cost(kernel.ops, machine) if generator is None else generator.cost(kernel, machine)


def choose(kernel: KernelOp, machine: Machine, exact: bool) -> Mapping[str, Attribute]:
    """The choices of a kernel on blocked maps: of the generators that take it (that which its `alg` names, if it has one; none that
    is inexact if it has to be `exact`) the one that costs least. Raises `LightNetError` where none does."""
    pinned, lanes = choice(kernel, "alg"), lanes_of(kernel) or machine.lanes
    found, refusals = [], []
    fitting = [g for g, form in candidates(kernel, lanes) if fits(form, kernel, lanes)]
    for generator in fitting:
        if pinned == generator.alg or (pinned is None and (generator.exact or not exact)):
            try:
                found.append((generator.cost(kernel, machine), len(found), generator))
            except LightNetError as e:  # a tile, say, that is one of another generator
                refusals.append(e)
    if not found and refusals:
        raise refusals[0]
    if not found:
        layouts = ", ".join(dict.fromkeys(str(layout_of(v.type)) for v in (*kernel.operands, *kernel.results)))
        what = f"layouts {layouts}, lanes = {chosen_lanes(kernel) or lanes}" + (
            f", alg = '{pinned}'" if pinned is not None else ""
        )
        others = f"; alg may be {', '.join(g.alg for g in fitting)}" if fitting else ""
        raise LightNetError(f"no generator of the CPU takes {kernel.name} of {', '.join(op.optype for op in kernel.ops)} with {what}{others}",
                            loc_of(kernel), label="choose.layout")  # fmt: skip
    generator = min(found, key=lambda f: f[:2])[2]
    choices = {"alg": StringAttr(generator.alg), "lanes": IntegerAttr(lanes, i64)}
    kernel.attributes.update({k: v for k, v in choices.items() if k not in kernel.attributes})
    own = generator.choices(kernel, machine)
    return {**choices, **{k: choice_attr(v.data) if isinstance(v, ParamAttr) else v for k, v in own.items()}}


def packing(kernel: KernelOp) -> Mapping[int, Layout]:
    """The layouts of a kernel's weights (`Target.packing`)."""

    def make() -> Mapping[int, Layout]:
        generator = generator_of(kernel)
        return {} if generator is None else generator.weights(kernel)

    return _PACKINGS.get(kernel, GENERATORS.version, make)


_PACKINGS: OfEqualKernels[Mapping[int, Layout]] = OfEqualKernels()
