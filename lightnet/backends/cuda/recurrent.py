"""``recurrent``: the recurrent layers `lstm`, `gru` and `rnn`, a block of threads for each sequence, or for a few that
read the same weights.

What the inputs add stands before the op, as a product over all steps. What is left are steps that wait for each other,
each a product of a state with all weights: these come from the second-level cache again in every step, unless all of
them find room in the registers of a block. Where they are so many that one processor reads them for longer than a
launch takes, each step is a launch, and blocks share the units. Choices: ``units`` of a block (0: all, in one launch),
its ``threads``, the ``sequences`` that it runs, and whether weights are ``held`` in registers. Imports the functions
and the base of generators.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import gcd

from xdsl.ir import SSAValue

from lightnet.backends.cuda.base import Choices, SimtGenerator
from lightnet.backends.cuda.device import DeviceModel
from lightnet.backends.cuda.recurrent_kernel import RecurrentFunction
from lightnet.backends.cuda.recurrent_layer import (
    ROWS_AHEAD,
    RecurrentSchedule,
    access_lanes,
    products_of,
    recurrent_of,
    shared_bytes,
)
from lightnet.backends.cuda.recurrent_steps import RecurrentSteps, step_workspace
from lightnet.backends.cuda.simt import SimtLaunch
from lightnet.backends.generator import Forms, Plan
from lightnet.dialects.cuda_checks import ARCHS, MAX_BLOCK_THREADS, WARP
from lightnet.dialects.ln.recurrent import Recurrent
from lightnet.ir.kernel import KernelOp, choice_attr
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal, begins_otherwise
from lightnet.ir.target import Form
from lightnet.runtime.arrays import align_up

#: Sequences of a block that the model looks at, and at most; units that a thread may have, all of which are in code.
SEQUENCES, MOST_SEQUENCES, MOST_UNITS = (1, 2, 4, 8), 16, 4
#: Registers of a block's threads together, of one thread at most, and what a thread needs beside sums, weights and
#: units.
REGISTERS, MOST_REGISTERS, OTHERS = 1 << 16, 255, 40
#: Bytes that a processor reads a nanosecond from the second-level cache, and how much faster than device memory that is
#: for all of them.
CACHE_EACH, CACHE_ALL = 90.0, 2.5
#: Nanoseconds of a step for each product, its barriers and the cell behind it; more, where weights come from the cache;
#: of one instruction of a warp (a processor issues four at a time), and of a multiply-add until the next can use its
#: result.
STEP, FETCH, ISSUE, CHAIN = 150.0, 200.0, 0.7, 2.8
#: Bytes of weights that stay in the second-level cache from step to step.
CACHE_BYTES = 32e6
#: Steps that may be launches, which are lines of the program; units and threads of their blocks.
MOST_LAUNCHES, STEP_UNITS, STEP_THREADS = 1 << 10, (4, 8, 16, 32, 64), (128, 256, 512)
#: The choices, in the order in which they narrow each other.
CHOICES = ("units", "threads", "sequences", "held")
READ = Choices("cuda.recurrent")


class RecurrentGenerator(SimtGenerator):
    """Takes a recurrent layer that stands alone, whatever of its results are yielded."""

    alg = "recurrent"

    def takes(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], device: DeviceModel | None = None) -> Forms:
        if len(ops) != 1 or not isinstance(op := ops[0], Recurrent):
            return begins_otherwise(ops, "a recurrent layer alone")
        if not set(yielded) <= set(op.results) or len(set(yielded)) != len(yielded):
            return Refusal("it yields a value twice, or one that is not its own")
        _, batch, hidden = op.sizes
        if not batch or not 0 < hidden <= MOST_UNITS * MAX_BLOCK_THREADS:
            return Refusal("it has {} units, not 1 to {}, or no batch", hidden, MOST_UNITS * MAX_BLOCK_THREADS)
        leanest = RecurrentSchedule(1, MAX_BLOCK_THREADS, False)
        fits = shared_bytes(op, leanest) <= min(ARCHS.values())
        return [Form({}, plain_results=True)] if fits else Refusal("its state is too large for shared memory")

    def plan(self, kernel: KernelOp, form: Form, device: DeviceModel) -> Plan:
        op, made = recurrent_of(kernel), _scheduled(kernel, device)
        return Plan.of(
            self, kernel, form, _time(op, made, device), made,
            choices={name: choice_attr(int(getattr(made, name))) for name in CHOICES},
            workspace_bytes=step_workspace(op) if made.units else 0,
        )  # fmt: skip

    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[SimtLaunch]:
        if plan.schedule.units:
            return RecurrentSteps(kernel, name, plan.schedule).build()
        return [RecurrentFunction(kernel, name, plan.schedule, aliases).build()]


# ---- ways ------------------------------------------------------------------------------------------------------------


def _scheduled(kernel: KernelOp, device: DeviceModel) -> RecurrentSchedule:
    """The schedule that a kernel's choices name, or of those that they leave the fastest. Raises `LightNetError` where
    they leave none."""
    op, given = recurrent_of(kernel), {name: READ.number(kernel, name) for name in CHOICES}
    if (threads := given["threads"]) is not None and (threads % WARP or not 0 < threads <= MAX_BLOCK_THREADS):
        raise READ.error(kernel, "threads", f"they are whole warps of {WARP}, and at most {MAX_BLOCK_THREADS}")
    most = min(op.sizes[1], MOST_SEQUENCES)
    if (sequences := given["sequences"]) is not None and not 0 < sequences <= most:
        raise READ.error(kernel, "sequences", f"a block runs 1 to {most} of the {op.sizes[1]} sequences")
    if (units := given["units"]) is not None and units != 0 and (units < 0 or not _may_step(op)):
        why = f"a multiple of an access; there are at most {MOST_LAUNCHES} launches, one a product"
        raise READ.error(kernel, "units", why)
    if not (found := _ways(op, device, given)):
        name = next(name for name in reversed(CHOICES) if given[name] is not None)
        why = "with the other choices, a block has no room for that, in threads, registers or shared memory"
        raise READ.error(kernel, name, why)
    return min(found, key=lambda way: _time(op, way, device))


def _may_step(op: Recurrent) -> bool:
    """Return whether each step may be a launch."""
    return 0 < op.sizes[0] * len(op.products()) <= MOST_LAUNCHES


def _ways(op: Recurrent, device: DeviceModel, given: Mapping[str, int | None]) -> list[RecurrentSchedule]:
    """The ways that a block has room for, of those with what is `given`: those that leave registers enough, if there
    are any."""

    def values(name: str, others: Iterable[int]) -> Iterable[int]:
        return others if given.get(name) is None else (given[name],)  # type: ignore[return-value]

    units = (0, *(STEP_UNITS if _may_step(op) else ()))
    sequences = [s for s in values("sequences", SEQUENCES) if s <= op.sizes[1]]
    found = [
        RecurrentSchedule(s, t, bool(h), u)
        for u in values("units", units)
        for t in values("threads", STEP_THREADS if u else range(WARP, MAX_BLOCK_THREADS + 1, WARP))
        for s, h in product(sequences, values("held", (0, 1)))
    ]
    found = [way for way in found if (_fits_step if way.units else _fits)(op, way, device)]
    return [way for way in found if _registers(op, way) <= _share(way)] or found


def _fits(op: Recurrent, way: RecurrentSchedule, device: DeviceModel) -> bool:
    """Return whether a block can run all steps."""
    if way.sequences * op.sizes[2] > MOST_UNITS * way.threads or shared_bytes(op, way) > device.shared:
        return False
    shared = all(p.groups <= way.threads for p in products_of(op, way))
    return not way.held or (shared and _registers(op, way) <= _share(way))


def _fits_step(op: Recurrent, way: RecurrentSchedule, device: DeviceModel) -> bool:
    """Return whether a block can run a step of its units."""
    if way.units % gcd(access_lanes(op), op.sizes[2]) or way.units > op.sizes[2]:
        return False
    groups = max(p.groups for p in products_of(op, way))
    if max(groups, way.units * way.sequences) > way.threads or shared_bytes(op, way) > device.shared:
        return False
    return not way.held or _registers(op, way) <= _share(way)


def _share(way: RecurrentSchedule) -> int:
    """Registers of a thread: a processor gives them to four warps at a time, eight by eight."""
    return min(MOST_REGISTERS, REGISTERS // align_up(way.threads, 4 * WARP) // 8 * 8)


def _registers(op: Recurrent, way: RecurrentSchedule) -> int:
    """Registers that a thread takes, roughly."""
    products, words = products_of(op, way), op.operand_specs[0].dtype.size // 4
    units = -(-way.sequences * (way.units or op.sizes[2]) // way.threads)
    weights = sum(p.rows * p.width for p in products) if way.held else ROWS_AHEAD * products[0].width
    sums = way.sequences * (products[0].width + access_lanes(op))
    return OTHERS + words * (weights + sums + units * (op.count + len(op.constants()) + 2))


def _time(op: Recurrent, way: RecurrentSchedule, device: DeviceModel) -> float:
    """Nanoseconds of all steps, the launches included. Where steps are launches, blocks that share a processor wait at
    the same time."""
    (steps, batch, hidden), size, warps = op.sizes, op.operand_specs[0].dtype.size, way.threads // WARP
    units = way.units or hidden
    blocks, all_weights = -(-hidden // units) * -(-batch // way.sequences), op.count * hidden * hidden * size
    cache = (CACHE_ALL if all_weights < CACHE_BYTES else 0.8) * device.bytes / min(blocks, device.processors)
    latency = work = 0.0
    for p in products_of(op, way):
        turns, ahead = -(-p.groups // way.threads), p.rows if way.held else ROWS_AHEAD
        instructions = turns * p.rows * (2 + p.width * way.sequences)
        bound = max(instructions * warps / 4 * ISSUE, turns * p.rows * CHAIN)
        latency += STEP
        if way.units or not way.held:
            under_way = min(way.threads, p.groups * p.slices) * ahead * p.width * size
            bound = max(bound, p.columns * hidden * size / min(CACHE_EACH, cache, under_way / FETCH))
            latency += FETCH
        work += bound + -(-way.sequences * units // way.threads) * p.columns // units * p.slices * warps / 4 * ISSUE
    turns = -(-blocks // device.processors)
    launches = len(op.products()) * (device.launch + FETCH)
    step = launches + latency + turns * work if way.units else turns * (latency + work)
    return device.launch + all_weights / device.bytes + steps * step


RECURRENT = RecurrentGenerator()
