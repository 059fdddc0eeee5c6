"""The generators of kernels on row-major tensors: register tiles (`tiled.py`, `gemm.py`), and the loops of ops'
definitions, which take all.

Both are rows of the table of generators like those of blocked maps. Imports the base of generators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import ModuleType

from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import SSAValue

from lightnet.backends import kernel_loops
from lightnet.backends.bodies import body_kind, is_free
from lightnet.backends.cpu import gemm, open_conv, open_gemm, tiled
from lightnet.backends.cpu.blocked.base import NO_HALO, BlockedGenerator, ProcessorModel, chosen_lanes
from lightnet.backends.expressions import stays_on_tiles
from lightnet.backends.generator import Plan
from lightnet.backends.kernel_loops import bind_op
from lightnet.backends.launches import Launch
from lightnet.backends.loop_layouts import laid_out
from lightnet.backends.open_rows import one_row
from lightnet.dataclasses import replace
from lightnet.dialects.ln.conv import Conv2d, Deconv2d
from lightnet.dialects.ln.integer import Conv2dInteger, MatmulInteger
from lightnet.dialects.ln.move import Forward
from lightnet.ir.access import data_operands
from lightnet.ir.affine import IndexSpace
from lightnet.ir.body import Body
from lightnet.ir.bound import Idx, Statement, indices, reads
from lightnet.ir.fusion import linearize
from lightnet.ir.instances import is_open, typical_op
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import Blocked, layout_of
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal
from lightnet.ir.target import Form
from lightnet.ir.types import TensorSpec, spec_of
from lightnet.runtime.dims import Undecided
from lightnet.runtime.threads import MAX_THREADS

#: Share of the peak that kernels on plain maps reach: convolutions, those that sum over few channels, and the rest.
CONVOLUTION, SHALLOW, OTHER = 0.6, 0.08, 0.03
#: The same of the loops that open maps have where no tiles take them (measured: 0.12, and 0.006 to 0.01, as each
#: element asks which taps reach it).
LOOPED, LOOPED_TRANSPOSED = 0.12, 0.007
#: Nanoseconds that the tiles of open convolutions take to copy an element of the windows, for all outputs.
WINDOW_COPY = 1.3
#: Share of the rate of memory at which a convolution with one pixel reads its weights, row by row.
ROWS = 0.6
#: Times that loops take on maps as long as on row-major tensors: where they run along the channels of a block, and
#: elsewhere (measured: 0.1 to 1.4, and 2 to 7; a change of layout takes a third of what `reorder_time` says).
ALONG, ACROSS = 1.1, 12.0
PLAIN_FORM = Form({}, plain_results=True)


class Plain(BlockedGenerator):
    """A generator of kernels on row-major tensors."""

    on_maps = False


class Tiles(Plain):
    """A window or a product on register tiles, with an epilogue. `make` is the module that builds it."""

    alg = "direct"

    def __init__(self, make: ModuleType):
        self.make = make

    def form(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: ProcessorModel) -> Form | Refusal:
        return PLAIN_FORM if (found := self.make.accepts(ops, yielded)) else found

    def plan(self, kernel: KernelOp, form: Form, machine: ProcessorModel) -> Plan:
        lanes = chosen_lanes(kernel) or machine.lanes
        return Plan.of(
            self, kernel, form, plain_time_of(kernel.ops, machine), lanes, choices={"lanes": IntegerAttr(lanes, i64)},
            scratch_bytes=self.make.workspace_bytes(kernel, lanes), blocks=self.make.grid(kernel, lanes),
        )  # fmt: skip

    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[Launch]:
        return [self.make.build(kernel, name, plan.schedule, aliases)]


class OpenTiles(Tiles):
    """The same of bodies that are open, and not by rows."""

    takes_open = True

    def __init__(self, make: ModuleType, takes_reserved: bool = False):
        super().__init__(make)
        self.takes_reserved = takes_reserved


class Loops(BlockedGenerator):
    """Any body, from an op's own loop-level builder (sorts) or what ops' definitions say: these run on tensors in any
    layout. On maps it is asked for where nothing would be on register tiles if it were not."""

    alg = "loops"
    #: It is asked where no other takes a kernel, or by name.
    last = True
    takes_open = takes_reserved = takes_all = True

    def form(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: ProcessorModel) -> Form:
        return PLAIN_FORM

    def takes(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: ProcessorModel) -> Sequence[Form]:
        maps = None if any(is_open(op.results) for op in ops) else map_form(ops, yielded)
        # A move of the same memory is one where a change of layout is another kernel; it may be that kernel itself.
        free = len(ops) == 1 and is_free(ops[0]) and not isinstance(ops[0], Forward)
        return (
            (PLAIN_FORM,) if maps is None or free or tile_generator_of(ops, yielded) is not None else (maps, PLAIN_FORM)
        )

    def plan(self, kernel: KernelOp, form: Form, machine: ProcessorModel) -> Plan:
        blocks = 1 if kernel_loops.builder_op(kernel) is not None else MAX_THREADS
        time = plain_time_of(kernel.ops, machine)
        if form.maps or not form.plain_results:
            time *= ALONG if all(follows_lanes(op, machine.lanes) for op in kernel.ops) else ACROSS
        return Plan.of(self, kernel, form, time, blocks=blocks)

    def completed(self, kernel: KernelOp, plan: Plan) -> Plan:
        return replace(plan, workspace_bytes=kernel_loops.loop_workspace_bytes(kernel))

    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[Launch]:
        return kernel_loops.generate(kernel, name, aliases)


def plain_time_of(ops: Sequence[LnOp], machine: ProcessorModel) -> float:
    """Nanoseconds of a body on row-major tensors, very roughly."""
    tiles = tile_generator_of(ops[:1], ()) if is_open(ops[0].results) else None
    looped = is_open(ops[0].results) and tiles is None
    ops = [typical_op(op) for op in ops]
    anchor = ops[0]
    size, depth = 4 * sum(s.len for s in (*anchor.operand_specs, *anchor.result_specs)), 0
    share, work = OTHER, sum(op.flops() for op in ops)
    if isinstance(anchor, Conv2dInteger | MatmulInteger):
        share = LOOPED
    if isinstance(anchor, Conv2d | Deconv2d):
        depth = prod(anchor.operand_specs[1].dims[1:])
        share = CONVOLUTION if anchor.operand_specs[1].dims[1] > 1 else SHALLOW
        if looped:
            share = min(share, LOOPED if isinstance(anchor, Conv2d) else LOOPED_TRANSPOSED)
        work += 2 * depth * anchor.result_specs[0].len
    pixel = isinstance(anchor, Conv2d) and anchor.result_specs[0].dims[2:] == (1, 1)
    rate = machine.l3_bytes * (ROWS if pixel else 1)
    copied = 0.0
    if tiles is not None and tiles.make is open_conv:
        copied = WINDOW_COPY * depth * anchor.result_specs[0].len / anchor.result_specs[0].dims[1]
    return copied + max(work / (share * machine.flops), size / rate)


def map_form(ops: Sequence[LnOp], yielded: Sequence[SSAValue]) -> Form | None:
    """The form in which loops take a body on maps: all data from outside that has four dims are maps, and all results,
    if they have. None where there are none, or where no definition says what is computed."""
    if any(op.has_builder or op.definition is None for op in ops):
        return None
    made = {r for op in ops for r in op.results}
    if not all(v in made for v in yielded):
        return None
    if isinstance(ops[0], Forward) and len(ops) == 1:  # a change of layout, if its types say so
        source, target = (layout_of(v.type).is_plain for v in (ops[0].src, ops[0].dst))
        return None if source and target else Form({} if source else {ops[0].src: NO_HALO}, plain_results=target)
    data = dict.fromkeys(op.operands[k] for op in ops for k in data_operands(op) if op.operands[k] not in made)
    maps = {v: NO_HALO for v in data if is_map(v)}
    plain_results = not all(map(is_map, yielded))
    return None if not maps and plain_results else Form(maps, plain_results=plain_results)


def is_map(value: SSAValue) -> bool:
    """Return whether a value has channels to lie in blocks."""
    spec = spec_of(value.type)
    return spec.ndim == 4 and spec.len > 1


def follows_lanes(op: LnOp, lanes: int) -> bool:
    """Return whether loops of an op on maps run along the channels of a block, which lie beside each other in all that
    is read and written, or are not told apart there."""
    names, results = op.arg_names()
    data = [(names[k], op.operands[k]) for k in data_operands(op)] + list(zip(results, op.results))
    layouts = {name: Blocked(lanes) for name, value in data if is_map(value)}
    found = laid_out(bind_op(op), layouts)
    return all(_follows_lanes(s, found.specs) for s in found.statements)


def _follows_lanes(s: Statement, specs: Mapping[str, TensorSpec]) -> bool:
    """Return whether the last loop of a statement takes steps of one element, or of none."""
    lane, space = Idx(s.loops[-1][0] if s.loops else ""), IndexSpace(s.loops + s.reductions)
    accesses = [(s.tensor, s.subs, s.flat), *((r.tensor, r.subs, r.flat) for r in reads(s.value))]
    forms = [space.linear(subs[0] if flat else linearize(subs, specs[t].dims)) for t, subs, flat in accesses]
    steps = [form.terms.get(lane, 0) for form in forms]
    apart = any(lane.name in indices(atom) for form in forms for atom in form.terms if atom != lane)
    return not apart and steps[0] == 1 and all(step in (0, 1) for step in steps)


WINDOWS, PRODUCTS, LOOPS = Tiles(tiled), Tiles(gemm), Loops()
OPEN_WINDOWS, OPEN_PRODUCTS = OpenTiles(open_conv), OpenTiles(open_gemm, True)


def tile_generator_of(ops: Sequence[LnOp], yielded: Sequence[SSAValue]) -> Tiles | None:
    """The generator on register tiles that takes a body, one row at a time if it is open."""
    if (row := one_row(ops, yielded)) is not None:
        ops, yielded = row.ops, row.yielded
    found = (OPEN_WINDOWS, OPEN_PRODUCTS) if any(is_open(op.operands) for op in ops[:1]) else (WINDOWS, PRODUCTS)
    try:
        return next((g for g in found if g.make.accepts(ops, yielded)), None)
    except Undecided:  # in some calls, perhaps
        return None


# -- which bodies of several ops there are kernels for


def accepts(body: Body) -> str | Refusal:
    """The generator that takes `body`: ``anchor``, ``elementwise``, ``moves``; none where it leaves tiles."""
    kind, (anchor, *rest) = body_kind(body), body.ops
    tiles = tile_generator_of([anchor], ()) if kind == "anchor" else None
    if tiles is None:
        return kind
    stays = (stays_on_tiles(op, anchor, tiles.make.readable(anchor)) for op in rest)
    if (left := next((found for found in stays if not found), None)) is not None:
        return Refusal("{} is computed on register tiles, and {}", anchor.optype, left)
    stored = all(spec_of(v.type).dtype.name != "i1" for v in body.yielded)
    return kind if stored else Refusal("register tiles are not stored as bools")
