"""Kernels of threads on open rows (`backends/open_rows.py`) in strips: the static kernel of a few rows, on some after
others.

A static generator is asked for the body of one row, and, where rows share weights, of several. Its kernel becomes one
that takes all rows, as bytes: the grid along x is that of a strip, as many times as a call has strips, and a block
works on views of its strip. So generators know nothing of symbols. Strips of the most rows come first; those of fewer
have what is left, in launches of their own, which are empty where nothing is. Strips do not overlap, as blocks of one
launch must not write the same bytes. Imports the base of generators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from xdsl.dialects import func
from xdsl.dialects.builtin import DYNAMIC_INDEX, ArrayAttr, IntegerType, MemRefType, StringAttr
from xdsl.ir import Attribute, SSAValue

from lightnet.backends.cuda.base import MAP, SimtGenerator
from lightnet.backends.cuda.device import DeviceModel
from lightnet.backends.cuda.simt import Simt, SimtLaunch
from lightnet.backends.generator import Generator, Plan, form_of_arguments, numbered
from lightnet.backends.launches import launch_memory_of
from lightnet.backends.open_rows import (
    STRIPS,
    OneRow,
    OpenRows,
    Strip,
    completed_strips,
    cover_rows,
    forms_of_rows,
    known_rows,
    leading,
    most_of,
    moves,
    own_choices,
    static_of,
)
from lightnet.backends.selection import has_maps
from lightnet.dataclasses import dataclass, replace
from lightnet.diagnostics import LightNetError
from lightnet.dialects.cuda_checks import BLOCK_ATTRIBUTE, MAX_GRID
from lightnet.dialects.cuda_simt import BlockIdOp, GridDimOp
from lightnet.dialects.launch import SYMBOLS, memref_bytes
from lightnet.ir.kernel import KernelOp, choice_attr, choice_integers
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import ARENA
from lightnet.ir.names import PLACES
from lightnet.ir.op import LnOp
from lightnet.ir.place import PlaceAttr
from lightnet.ir.target import Form
from lightnet.ir.types import spec_of
from lightnet.ir.views import alignment_of
from lightnet.runtime.arrays import align_up
from lightnet.runtime.dims import Dim, Size, greatest, typical

#: Rows of strips that share weights, the most first.
SHARING = (64, 8)
#: The number of bytes that vectors and asynchronous copies of kernels want to begin at, so that rows have to as well.
ACCESS = 16
_BYTES = MemRefType(IntegerType(8), [DYNAMIC_INDEX])


class GridStrips(SimtGenerator):
    """The kernels of another generator, in strips."""

    takes_open = True

    def __init__(self, inner: Generator[DeviceModel]):
        self.inner = inner
        self.alg, self.exact, self.last = inner.alg, inner.exact, inner.last
        self.ends = inner.ends  # type: ignore[misc]  # as a class has it

    def is_for(self, machine: DeviceModel) -> bool:
        return self.inner.is_for(machine)

    def is_exact(self, ops: Sequence[LnOp]) -> bool:
        return self.inner.is_exact(ops)

    def takes(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], device: DeviceModel) -> Sequence[Form]:
        specs = [s for op in ops for s in (*op.operand_specs, *op.result_specs)]
        whole = not any(s.ndim == 4 and leading(s.dims) > 1 for s in specs)  # else a row is part of a map

        def fits(form: Form, row: OneRow) -> bool:
            return _is_aligned(form, row, yielded) and (whole or not has_maps(form))

        return forms_of_rows(self.inner, ops, yielded, device, fits)

    def plan(self, kernel: KernelOp, form: Form, device: DeviceModel) -> Plan:
        """The time is that of the static kernel on as many rows as are typical: a grid of strips fills a device as
        well."""
        rows, form = known_rows(kernel), numbered(form, kernel)
        strips: list[Strip] = []
        for n in _sizes(kernel, rows):
            pinned = strips[0].plan.choices if strips else {}
            strip = self._strip(kernel, rows, form, device, n, pinned)
            if strip is not None and (not strips or dict(strip.plan.weights) == dict(strips[0].plan.weights)):
                strips.append(strip)
        if not strips or strips[-1].rows != 1:
            strips = [Strip(1, self.inner.planned(*self._static(kernel, rows, form, 1, {}), device))]
        many = typical(rows.count)
        whole = self._strip(kernel, rows, form, device, many, {})
        time = sum(typical(n) * s.plan.time for (n, _), s in zip(cover_rows(rows.count, strips, in_place=True), strips))
        return self._of(rows, form, time if whole is None else whole.plan.time, strips)

    def _static(self, kernel: KernelOp, rows: OpenRows, form: Form, n: int,
                pinned: Mapping[str, Attribute]) -> tuple[KernelOp, Form]:  # fmt: skip
        """The kernel on `n` rows, with its choices and those that are pinned, and the form, of its arguments."""
        static = rows.kernel(kernel, n, {**own_choices(kernel), **pinned})
        return static, form_of_arguments(form, static)

    def _strip(self, kernel: KernelOp, rows: OpenRows, form: Form, device: DeviceModel, n: int,
               pinned: Mapping[str, Attribute]) -> Strip | None:  # fmt: skip
        """The strips of `n` rows; None where the generator does not take so many, or has no such tile for them."""
        static, own = self._static(kernel, rows, form, n, pinned)
        if own not in self.inner.forms(static.ops, list(static.terminator.operands), device):
            return None
        try:
            return Strip(n, self.inner.planned(static, own, device))
        except LightNetError:
            return None

    def _of(self, rows: OpenRows, form: Form, time: float, strips: Sequence[Strip]) -> Plan:
        first = strips[0].plan
        sizes = [-(-rows.count // s.rows) * align_up(s.plan.workspace_bytes) for s in strips]
        return Plan(self, form, time, tuple(strips), weights=first.weights, workspace_bytes=most_of(sizes),
                    choices={**first.choices, STRIPS: choice_attr(tuple(s.rows for s in strips))})  # fmt: skip

    def completed(self, kernel: KernelOp, plan: Plan) -> Plan:
        strips = completed_strips(kernel, plan.schedule, self.inner)
        return self._of(known_rows(kernel), plan.form, plan.time, strips)

    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[SimtLaunch]:
        rows, made = known_rows(kernel), list[SimtLaunch]()
        for (count, first), strip in zip(cover_rows(rows.count, plan.schedule, in_place=True), plan.schedule):
            if greatest(count) == 0:  # larger ones leave nothing in any call
                continue
            static = static_of(kernel, strip)
            place = PlaceAttr(ARENA, alignment_of([*kernel.operands, *kernel.results]))  # which generators look at
            static.attributes[PLACES] = ArrayAttr([place for _ in static.results])
            launches = strip.plan.build(static, name, aliases)
            walk = _Walk(count, first, strip.rows, align_up(launch_memory_of(launches).shared))
            known: dict[func.FuncOp, SimtLaunch] = {}  # a function may be launched again
            for launch in launches:
                found = known.get(launch.function) or _in_strips(launch, kernel, walk)
                known[launch.function] = found
                made.append(replace(found, args=launch.args))
        for k, function in enumerate(dict.fromkeys(launch.function for launch in made)):
            function.sym_name = StringAttr(f"{name}_{k}" if k else name)  # as functions of one kernel are called
        return made


@cache
def open_generators(generator: Generator[DeviceModel]) -> tuple[Generator[DeviceModel], ...]:
    """The generators of open kernels that one is: itself, or in strips."""
    if getattr(generator, "takes_open", False):
        return (generator,)
    return (GridStrips(generator),) if getattr(generator, "runs_in_strips", False) else ()


def _is_aligned(form: Form, row: OneRow, yielded: Sequence[SSAValue]) -> bool:
    """Return whether each row begins where kernels want memory to, in the layouts of a form."""

    def size(value: SSAValue, is_map: bool) -> int:
        spec = spec_of(value.type)
        return MAP.size(spec) if is_map else spec.nbytes

    moving = [size(v, v in form.maps) for v, whole in row.outside.items() if leading(spec_of(whole.type).dims)]
    results = [v for v, whole in zip(row.yielded, yielded) if leading(spec_of(whole.type).dims)]
    return all(n % ACCESS == 0 for n in (*moving, *(size(v, not form.plain_results) for v in results)))


def _sizes(kernel: KernelOp, rows: OpenRows) -> list[int]:
    """The rows that strips have, the most first: the kernel's choice, or one, and several where what all rows read is
    more than a row's own."""
    most = greatest(rows.count)
    if (attr := kernel.attributes.get(STRIPS)) is not None:
        asked = choice_integers(attr)
        asked = (asked,) if isinstance(asked, int) else asked
        if not asked or not all(1 <= n <= most for n in asked):
            raise LightNetError(f"{STRIPS} = {attr}: a strip has 1 to {most} rows", loc_of(kernel), label="strips.rows")
        return sorted({*asked, 1}, reverse=True)
    one = rows.kernel(kernel, 1, {})
    pairs = list(zip((*kernel.operands, *kernel.results), (*one.operands, *one.results)))
    shared = sum(spec_of(v.type).nbytes for v, _ in pairs if not leading(spec_of(v.type).dims))
    own = sum(spec_of(v.type).nbytes for whole, v in pairs if leading(spec_of(whole.type).dims))
    return [*(n for n in SHARING if n <= most), 1] if shared > own else [1]


@dataclass(frozen=True)
class _Walk:
    """The walk of a launch over strips: `count` of them, of `rows` rows each, from row `first` on. Each has `shared`
    bytes of workspace of its own."""

    count: Size
    first: Size
    rows: int
    shared: int


def _in_strips(launch: SimtLaunch, kernel: KernelOp, walk: _Walk) -> SimtLaunch:
    """A launch on one strip as one on all of them."""
    inner, block, (x, y, z) = launch.function, launch.function.body.block, launch.grid
    if greatest(walk.count) * greatest(x) > MAX_GRID[0]:
        message = f"a grid has at most {MAX_GRID[0]} blocks, and {walk.count!s} strips have {x!s} each"
        raise LightNetError(message, loc_of(kernel), label="strips.grid")
    types = [t for t in block.arg_types if isinstance(t, MemRefType)]
    whole = [_BYTES if moves(a, kernel) or a.kind == "workspace" else t for a, t in zip(launch.args, types)]
    symbols = sorted({s.name for s in walk.first.symbols}) if isinstance(walk.first, Dim) else []
    hints = [a.name_hint for a in block.args]
    b = Simt.thread(inner.sym_name.data, whole, launch.block, hints, inner.location, symbols)
    kept = {k: v for k, v in inner.attributes.items() if k not in (SYMBOLS, BLOCK_ATTRIBUTE)}
    b.function.attributes.update(kept)
    strip, number = b.divmod(b.block_id(), x)
    start = b.add(b.mul(strip, walk.rows), walk.first)
    for argument, old, value in zip(launch.args, block.args, b.args):
        type = old.type
        assert isinstance(type, MemRefType)
        if argument.kind == "workspace":
            value = b.view(value, b.mul(strip, walk.shared), type)
        elif moves(argument, kernel):
            value = b.view(value, b.mul(start, memref_bytes(type) // walk.rows), type, value.name_hint)
        old.replace_all_uses_with(value)
    for op in list(block.ops):
        op.detach()
        if not isinstance(op, func.ReturnOp):
            b.block.add_op(op)
        for own in list(op.walk()):
            if isinstance(own, BlockIdOp | GridDimOp) and own.dim.data == "x":
                own.result.replace_all_uses_with(number if isinstance(own, BlockIdOp) else b.index(x))
                own.detach()
                own.erase()
    used = walk.count * walk.shared if any(a.kind == "workspace" for a in launch.args) else 0
    return SimtLaunch(b.finish(), (walk.count * x, y, z), launch.block, launch.args, launch.helpers, used)
