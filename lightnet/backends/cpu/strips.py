"""Kernels on open rows (`backends/open_rows.py`) in strips: the static kernel of a few rows, on some after others.

Any generator of static kernels serves so: it is asked for the body of one row, and, where that reads weights which more
rows could share, of several. A function of the kernel on `n` rows becomes one that takes all rows, as bytes, and is the
same inside a loop over strips: its grid is that of a strip, as many times as there are strips. Strips of the most rows
come first; what is left goes to those of fewer, or, where nothing is computed in place, to a last one that lies on the
one before. Imports the base of generators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache

from xdsl.dialects import arith, func
from xdsl.dialects.builtin import DYNAMIC_INDEX, IntegerType, MemRefType, StringAttr
from xdsl.ir import Attribute, OpResult, SSAValue

from lightnet.backends.builder import Builder, Index
from lightnet.backends.cpu.blocked.base import (
    AdaptedGenerator,
    BlockedGenerator,
    ProcessorModel,
    choice_error,
    choice_ints,
)
from lightnet.backends.cpu.open_maps import OpenMaps, is_open_map
from lightnet.backends.generator import Plan, form_of_arguments, numbered
from lightnet.backends.launches import Launch, launch_memory_of
from lightnet.backends.open_rows import (
    STRIPS,
    OpenRows,
    Strip,
    completed_strips,
    cover_rows,
    forms_of_rows,
    known_rows,
    most_of,
    moves,
    one_row,
    own_choices,
    static_of,
)
from lightnet.backends.selection import has_maps
from lightnet.dataclasses import dataclass, replace
from lightnet.diagnostics import LightNetError
from lightnet.dialects.launch import SYMBOLS, memref_bytes
from lightnet.ir.kernel import KernelOp, YieldOp
from lightnet.ir.op import LnOp
from lightnet.ir.target import Form
from lightnet.ir.types import ParamAttr
from lightnet.runtime.arrays import align_up
from lightnet.runtime.dims import Size, greatest, typical
from lightnet.runtime.threads import MAX_THREADS

#: Rows of strips that share weights, the most first.
SHARING = (64, 16, 4)
#: Part of the time of single rows that more in a strip should take, to be worth their code.
GAIN = 0.8
_BYTES = MemRefType(IntegerType(8), [DYNAMIC_INDEX])


class Strips(AdaptedGenerator):
    """The kernels of another generator, in strips."""

    def form(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: ProcessorModel) -> Form | None:
        raise NotImplementedError("`takes` asks the other one")

    def takes(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], machine: ProcessorModel) -> Sequence[Form]:
        # Loops take open rows as well, but where these lie in blocks; no row is a map that is part of one.
        part = any(is_open_map(s) for op in ops for s in (*op.operand_specs, *op.result_specs))
        wanted = {True} if self.last else {True, False}
        wanted -= {True} if part else set()
        return forms_of_rows(self.inner, ops, yielded, machine, lambda form, _: has_maps(form) in wanted)

    def plan(self, kernel: KernelOp, form: Form, machine: ProcessorModel) -> Plan:
        rows, form = known_rows(kernel), numbered(form, kernel)
        return self._of(rows, form, self._strips(kernel, rows, form, machine))

    def _strip(self, kernel: KernelOp, rows: OpenRows, form: Form, machine: ProcessorModel, n: int,
               pinned: Mapping[str, Attribute]) -> Strip:  # fmt: skip
        """The strips of `n` rows, by the kernel's choices and those that are pinned."""
        static = rows.kernel(kernel, n, {**own_choices(kernel), **pinned})
        return Strip(n, self.inner.planned(static, form_of_arguments(form, static), machine))

    def _strips(self, kernel: KernelOp, rows: OpenRows, form: Form, machine: ProcessorModel) -> list[Strip]:
        """The strips of several rows and of one, where several share weights to a gain, or are asked for: all have the
        choices of the first, and want weights packed the same way. Else those of one."""
        asked, most = choice_ints(kernel, STRIPS), greatest(rows.count)
        if asked is not None and not all(1 <= n <= most for n in asked):
            message = f"{STRIPS} = {list(asked)}: a strip has 1 to {most} rows"
            raise choice_error(kernel, "strips.rows", message)
        sizes = sorted((n for n in set(SHARING if asked is None else asked) if 1 < n <= most), reverse=True)
        if not sizes or not (form.weights or asked):
            return [self._strip(kernel, rows, form, machine, 1, {})]
        found = [first := self._strip(kernel, rows, form, machine, sizes[0], {})]
        single = self._strip(kernel, rows, form, machine, 1, {}) if asked is None else None
        if single is not None and first.plan.time > GAIN * first.rows * single.plan.time:
            return [single]
        for n in (*sizes[1:], 1):
            try:
                strip = self._strip(kernel, rows, form, machine, n, first.plan.choices)
            except LightNetError:  # a tile that so few rows cannot have
                continue
            if dict(strip.plan.weights) == dict(first.plan.weights):
                found.append(strip)
        return found if found[-1].rows == 1 else [single or self._strip(kernel, rows, form, machine, 1, {})]

    def _of(self, rows: OpenRows, form: Form, strips: Sequence[Strip]) -> Plan:
        first = strips[0].plan
        counts = [n for n, _ in cover_rows(rows.count, strips, in_place=False)]
        grids = [greatest(n) * s.plan.blocks for n, s in zip(counts, strips)]
        lean = first.lean
        return Plan(
            self, form, sum(typical(n) * s.plan.time for n, s in zip(counts, strips)), tuple(strips),
            choices={**first.choices, STRIPS: ParamAttr([s.rows for s in strips])}, weights=first.weights,
            scratch_bytes=max(s.plan.scratch_bytes for s in strips),
            workspace_bytes=most_of([-(-rows.count // s.rows) * align_up(s.plan.workspace_bytes) for s in strips]),
            blocks=min(max(grids), MAX_THREADS),
            lean=None if lean is None or len(strips) > 1 else self._of(rows, form, [Strip(1, lean)]),
        )  # fmt: skip

    def completed(self, kernel: KernelOp, plan: Plan) -> Plan:
        strips = completed_strips(kernel, plan.schedule, self.inner)
        return self._of(known_rows(kernel), plan.form, strips)

    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[Launch]:
        rows, strips, made = known_rows(kernel), plan.schedule, list[Launch]()
        for k, ((count, first), strip) in enumerate(zip(cover_rows(rows.count, strips, bool(aliases)), strips)):
            static = static_of(kernel, strip)
            launches = strip.plan.build(static, name, aliases)
            shared = align_up(launch_memory_of(launches).shared)
            walk = _Walk(count, first, strip.rows, not aliases, shared, few=k > 0)
            known: dict[func.FuncOp, Launch] = {}  # a function may be launched again
            for launch in launches:
                found = known.get(launch.function) or _in_strips(launch, kernel, rows, walk)
                known[launch.function] = found
                made.append(replace(found, args=launch.args))
        for k, function in enumerate(dict.fromkeys(launch.function for launch in made)):
            function.sym_name = StringAttr(f"{name}_{k}" if k else name)  # as functions of one kernel are called
        return made


@cache
def open_ways(generator: BlockedGenerator) -> tuple[BlockedGenerator, ...]:
    """The generators of open kernels that one is: itself, in strips, on open maps, or several of these (the loops:
    those on maps in strips)."""
    in_strips = () if generator.takes_open and not generator.last else (Strips(generator),)
    on_maps = (OpenMaps(generator),) if generator.opens else ()
    return (*in_strips, *on_maps, *(generator,) * generator.takes_open)


def found_among_rows(kernel: KernelOp, find: Callable[[KernelOp], list[KernelOp]]) -> list[KernelOp]:
    """The result of `find` for an open kernel: it sees static copies on as many rows as are typical, of the kernel and
    of those whose results it reads or that read its own."""
    beside = [v.owner for v in kernel.operands] + [use.operation for r in kernel.results for use in r.uses]
    copies: dict[KernelOp, KernelOp] = {}
    for op in (kernel, *beside):
        if isinstance(op, KernelOp) and op not in copies and one_row(op.ops, op.terminator.operands) is not None:
            rows = known_rows(op)
            copies[op] = rows.kernel(op, typical(rows.count), op.choices)
    for op, copy in copies.items():
        copy.operands = [_copied(v, copies, other) for v, other in zip(op.operands, copy.operands)]
    for op, copy in copies.items():
        for result, other in zip(op.results, copy.results):
            YieldOp.of([other for use in result.uses if use.operation not in copies])  # others read it, too
    back = {copy: op for op, copy in copies.items()}
    return [back[k] for k in find(copies[kernel])] if kernel in copies else []


def _copied(value: SSAValue, copies: Mapping[KernelOp, KernelOp], other: SSAValue) -> SSAValue:
    """The value that the copy of a kernel reads for `value`: what another copy makes, if one does."""
    owner = value.owner
    made = copies.get(owner) if isinstance(owner, KernelOp) and isinstance(value, OpResult) else None
    return other if made is None or not isinstance(value, OpResult) else made.results[value.index]


@dataclass(frozen=True)
class _Walk:
    """The walk of a launch over strips: `count` of them, of `rows` rows each, from row `first` on; where they
    `overlap`, the last one ends with the rows. Each has `shared` bytes of workspace of its own. Those of a block follow
    each other where they are `few`: what it reads of weights comes from memory once."""

    count: Size
    first: Size
    rows: int
    overlap: bool
    shared: int
    few: bool


def _in_strips(launch: Launch, kernel: KernelOp, rows: OpenRows, walk: _Walk) -> Launch:
    """A launch on one strip as one on all of them."""
    inner, block = launch.function, launch.function.body.block
    types = block.arg_types[2:]
    whole = [_BYTES if moves(a, kernel) or a.kind == "workspace" else t for a, t in zip(launch.args, types)]
    symbols = {s for size in (walk.count, walk.first, rows.count) if not isinstance(size, int) for s in size.symbols}
    hints = [a.name_hint for a in block.args[2:]]
    b = Builder.kernel(inner.sym_name.data, whole, hints=hints, location=inner.location, symbols=symbols)
    b.function.attributes.update({k: v for k, v in inner.attributes.items() if k != SYMBOLS})
    with _strip_and_blocks(b, walk, launch.grid) as (strip, low, high):
        start = b.add(b.mul(strip, walk.rows), walk.first)
        if walk.overlap and walk.rows > 1:
            start = b.op(arith.MinSIOp, b.index(start), b.index(rows.count - walk.rows))
        given: list[SSAValue] = [b.index(low), b.index(high)]
        for argument, type, value in zip(launch.args, types, b.args):
            if argument.kind == "workspace":
                assert isinstance(type, MemRefType)
                value = b.view(value, b.mul(strip, walk.shared), type)
            elif moves(argument, kernel):
                assert isinstance(type, MemRefType)
                value = b.view(value, b.mul(start, memref_bytes(type) // walk.rows), type, value.name_hint)
            given.append(value)
        for old, new in zip(block.args, given):
            old.replace_all_uses_with(new)
        for op in list(block.ops):
            op.detach()
            if not isinstance(op, func.ReturnOp):
                b.block.add_op(op)
    used = walk.count * walk.shared if any(a.kind == "workspace" for a in launch.args) else 0
    return Launch(b.finish(), walk.count * launch.grid, launch.args, used)


@contextmanager
def _strip_and_blocks(b: Builder, walk: _Walk, grid: int) -> Iterator[tuple[SSAValue, Index, Index]]:
    """The loops over the strips in the function's range: a strip, and the range of its blocks."""
    if not walk.few or grid == 1:
        with b.loop(b.divmod(b.lo, grid)[0], _quotient_up(b, b.hi, grid), name="strip") as strip:
            yield strip.iv, *_within(b, strip.iv, grid)
        return
    count = b.op(arith.MaxSIOp, b.index(walk.count), b.index(1))  # there may be none, and then nothing is in the range
    with b.loop(b.divmod(b.lo, count)[0], _quotient_up(b, b.hi, count), name="block") as block:
        with b.loop(*_within(b, block.iv, count), name="strip") as strip:
            yield strip.iv, block.iv, b.add(block.iv, 1)


def _quotient_up(b: Builder, value: Index, by: Index) -> Index:
    return value if by == 1 else b.divmod(b.add(value, b.op(arith.SubiOp, b.index(by), b.index(1))), by)[0]


def _within(b: Builder, whole: SSAValue, size: Index) -> tuple[Index, Index]:
    """The part of a function's range that is in one of the wholes of `size` that it goes over."""
    if size == 1:
        return 0, 1
    before = b.mul(whole, size)
    low = b.op(arith.MaxSIOp, b.op(arith.SubiOp, b.lo, b.index(before)), b.index(0))
    high = b.op(arith.MinSIOp, b.op(arith.SubiOp, b.hi, b.index(before)), b.index(size))
    return low, high
