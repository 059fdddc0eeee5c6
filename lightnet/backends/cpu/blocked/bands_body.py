"""Chains of convolutions as bodies: what one is, what it needs, and which kernels of a network should become one.

A chain is a depthwise convolution with a pointwise one before it, behind it, or both, each with an epilogue; what a
stage makes is read once, by the convolution of the next. Instead of a pointwise one, the first convolution of a
network, of a picture, may stand before it. `BodyStage` is what such kernels are made of, that of a first convolution
and a pool too. Imports the generators of the single convolutions and the model in numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from xdsl.ir import SSAValue

from lightnet.backends.cpu.blocked import bands_model as model
from lightnet.backends.cpu.blocked.bands_model import Chain
from lightnet.backends.cpu.blocked.base import BlockedGenerator, ProcessorModel
from lightnet.backends.cpu.blocked.conv import DIRECT
from lightnet.backends.cpu.blocked.conv_model import Geometry
from lightnet.backends.cpu.blocked.depthwise import DEPTHWISE, is_depthwise
from lightnet.backends.cpu.blocked.first import FIRST, MOST_CHANNELS
from lightnet.backends.cpu.blocked.forms import lies_right
from lightnet.dataclasses import dataclass
from lightnet.dialects.ln.conv import Conv2d
from lightnet.ir.body import Body
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Blocked, layout_of
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal
from lightnet.ir.target import Form, Halo

#: The stages, by the names of the choices that have their tiles.
EXPAND, WINDOW, PROJECT = "expand", "depthwise", "project"
CHAINS = ((EXPAND, WINDOW, PROJECT), (WINDOW, PROJECT), (EXPAND, WINDOW))


@dataclass(frozen=True)
class BodyStage:
    """An anchor and its epilogue, whose kernel `generator` makes."""

    ops: tuple[LnOp, ...]
    generator: BlockedGenerator

    @property
    def source(self) -> SSAValue:
        """The map, or picture, that the anchor reads."""
        return self.ops[0].operands[0]

    @property
    def results(self) -> list[SSAValue]:
        return [r for op in self.ops for r in op.results]


def form_of_stages(stages: Sequence[BodyStage], body: Body, machine: ProcessorModel) -> Form | Refusal:
    """The form of a body of stages: each stage reads what the one before makes once, as its
    anchor's input, and nothing else lies in memory in two ways."""
    if not set(body.yielded) <= set(stages[-1].results):
        return Refusal("it yields what its last stage does not make")
    maps: dict[SSAValue, Halo] = {}
    weights: set[SSAValue] = set()
    made: set[SSAValue] = set()
    alone: list[SSAValue] = []  # a picture stays plain, and each filter lies in a way of its own
    for stage, following in zip(stages, (*stages[1:], None)):
        source = body.value(stage.source)
        reads = [v for v in map(body.value, (v for op in stage.ops for v in op.operands)) if v in made]
        if reads != [source] * bool(made):
            return Refusal("a stage reads another value than its map of what is computed in it, or reads it twice")
        yielded = body.yielded if following is None else [body.value(following.source)]
        if not set(yielded) <= set(stage.results):
            return Refusal("a stage reads what the one before does not make")
        form = stage.generator.form(stage.ops, yielded, machine)
        if not isinstance(form, Form):
            return Refusal("its stage {}: {}", stage.ops[0].optype, form)
        for value, (rows, cols) in form.maps.items():
            known = maps.get(body.value(value), (0, 0))
            maps[body.value(value)] = (max(rows, known[0]), max(cols, known[1]))
        weights |= set(map(body.value, form.weights))
        alone += [body.value(v) for v in stage.ops[0].operands[1:2]] + [source] * (stage.source not in form.maps)
        made |= set(stage.results)
    reads = [body.value(v) for op in body.ops for v in op.operands]
    if any(reads.count(v) > 1 for v in alone) or weights & set(maps):
        return Refusal("what it reads would have to lie in memory in two ways")
    return Form({v: halo for v, halo in maps.items() if v not in made}, frozenset(weights))


@dataclass(frozen=True)
class ChainStage(BodyStage):
    """A convolution of a chain and its epilogue; `kind` is one of the names in `CHAINS`."""

    kind: str

    @classmethod
    def of(cls, kind: str, ops: tuple[LnOp, ...]) -> ChainStage:
        first = ops[0]
        assert isinstance(first, Conv2d)
        return cls(ops, DEPTHWISE if kind == WINDOW else DIRECT if _is_pointwise(first) else FIRST, kind)

    @property
    def anchor(self) -> Conv2d:
        conv = self.ops[0]
        assert isinstance(conv, Conv2d)
        return conv


def stages_of(ops: Sequence[LnOp]) -> tuple[ChainStage, ...] | Refusal:
    """The stages of a chain. None where windows read padding alone: no row is there to make."""
    starts = [i for i, op in enumerate(ops) if isinstance(op, Conv2d)]
    if not 2 <= len(starts) <= 3 or starts[0] != 0:
        return Refusal("it is no two or three convolutions, each with an epilogue")
    groups = [tuple(ops[i:j]) for i, j in zip(starts, (*starts[1:], len(ops)))]
    depthwise = next((i for i, at in enumerate(starts) if _is_depthwise(ops[at])), None)
    if depthwise is None or depthwise > 1:
        return Refusal("neither of its first two convolutions is depthwise")
    names = (EXPAND, WINDOW, PROJECT)[1 - depthwise :][: len(groups)]
    if names not in CHAINS:
        return Refusal("its depthwise convolution has not one more convolution on each side, or on one")
    stages = tuple(map(ChainStage.of, names, groups))
    around = [s for s in stages if s.kind != WINDOW]
    known = all(_is_pointwise(s.anchor) or (s.kind == EXPAND and _reads_picture(s.anchor)) for s in around)
    if not known:
        return Refusal("a convolution beside the depthwise one is not 1 x 1, nor the first of a picture")
    return stages if _in_numbers(stages).reaches else Refusal("windows read padding alone")


def _is_pointwise(op: Conv2d) -> bool:
    return op.group == 1 and Geometry.of(op).is_pointwise


def _reads_picture(op: Conv2d) -> bool:
    return op.group == 1 and op.operand_specs[0].dims[1] <= MOST_CHANNELS


def _is_depthwise(op: LnOp) -> bool:
    return isinstance(op, Conv2d) and is_depthwise(op) and not Geometry.of(op).is_pointwise


def form_of(body: Body, machine: ProcessorModel) -> Form | Refusal:
    """The form of a chain."""
    stages = stages_of(body.ops)
    return stages if isinstance(stages, Refusal) else form_of_stages(stages, body, machine)


def chain_of(ops: Sequence[LnOp]) -> Chain:
    """A chain in numbers."""
    stages = stages_of(ops)
    assert not isinstance(stages, Refusal)
    return _in_numbers(stages)


def _in_numbers(stages: Sequence[ChainStage]) -> Chain:
    found = {s.kind: Geometry.of(s.anchor) for s in stages}
    return Chain(found.get(EXPAND), found[WINDOW], found.get(PROJECT))


def chain_around(kernel: KernelOp, machine: ProcessorModel) -> list[KernelOp]:
    """The kernels, in order, that should become one in bands of rows: `kernel`, of a depthwise convolution on blocked
    maps, and the one before it, the one behind it, or both, which nothing else uses; whatever saves most. None where
    that saves nothing."""
    gains = [(gain, kernels) for kernels, gain in chains_around(kernel, machine) if not isinstance(gain, Refusal)]
    best = sorted((offer for offer in gains if offer[0] > 0), key=lambda offer: -offer[0])
    return next((kernels for _, kernels in best if is_taken(kernels, form_of, machine)), [])


def chains_around(kernel: KernelOp, machine: ProcessorModel) -> Iterator[tuple[list[KernelOp], float | Refusal]]:
    """All such kernels, and the nanoseconds that they save as one, if they are taken (`is_taken`)."""
    if not isinstance(kernel.ops[0], Conv2d) or not _is_depthwise(kernel.ops[0]):
        return
    before, behind = producer_of(kernel), _consumer(kernel)
    for candidate in ([before, kernel, behind], [kernel, behind], [before, kernel]):
        kernels = [k for k in candidate if k is not None]
        if len(kernels) < len(candidate):
            continue
        stages = stages_of([op for k in kernels for op in k.ops])
        if any("alg" in k.attributes for k in kernels):
            yield kernels, Refusal("the algorithm of one of them is given")
        elif isinstance(stages, Refusal):
            yield kernels, stages
        else:
            chain = _in_numbers(stages)
            yield kernels, model.gain(chain, machine, model.best_schedule(chain, machine))


def union_of(kernels: Sequence[KernelOp]) -> Body:
    """The body that kernels in order would have as one."""
    body = Body.of(kernels[0])
    for before, kernel in pairwise(kernels):
        body = Body.union(body, before.results, Body.of(kernel))
    return body


def is_taken(
    kernels: Sequence[KernelOp], form_of: Callable[[Body, ProcessorModel], Form | Refusal], machine: ProcessorModel
) -> bool | Refusal:
    """Return whether kernels in order can be one, with the layouts that they have: a first convolution may have been
    laid out for another generator, which reads its picture in blocks.
    """
    union = union_of(kernels)
    form = form_of(union, machine)
    return lies_right(form, union.inputs, kernels[-1].results, machine.lanes) if isinstance(form, Form) else form


def producer_of(kernel: KernelOp) -> KernelOp | None:
    """The kernel that makes the map which a kernel's anchor reads, for it alone."""
    source = Body.of(kernel).value(kernel.ops[0].operands[0])
    made = source.owner
    is_map = isinstance(layout_of(source.type), Blocked)
    return made if is_map and isinstance(made, KernelOp) and is_used_once(made) else None


def is_used_once(kernel: KernelOp) -> bool:
    """Return whether a kernel's one result has one use."""
    return len(kernel.results) == 1 and len(list(kernel.results[0].uses)) == 1


def _consumer(kernel: KernelOp) -> KernelOp | None:
    """The kernel whose convolution alone reads what a kernel makes."""
    if not is_used_once(kernel):
        return None
    (use,) = kernel.results[0].uses
    is_map = isinstance(layout_of(kernel.results[0].type), Blocked)
    return use.operation if is_map and isinstance(use.operation, KernelOp) else None
