"""``rows``: kernels whose work is reductions: sums and extremes along axes, softmax, norms, global pools; a team of
threads for each result.

Bodies are taken by their definitions: every statement runs at the points of one set of loops, and what passes between
statements is a scalar of its point (`stages.py`). A row is read once where its team can hold it in registers; few long
rows are cut in pieces, which are blocks of their own and put together by the next launch. Choices: ``order`` and
``team`` (points across, threads of a team) as in `teams.py`, ``width`` (elements that a thread takes at a time),
``pieces``. Imports the model of time and the function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod

from xdsl.dialects.builtin import MemRefType
from xdsl.ir import SSAValue

from lightnet.backends.cuda.base import MAP, Choices, SimtGenerator
from lightnet.backends.cuda.device import DeviceModel, device_of
from lightnet.backends.cuda.kernel import KernelFunction, physical
from lightnet.backends.cuda.rows.kernel import RowFunction, RowWalk
from lightnet.backends.cuda.rows.model import MOST_THREADS, RowSchedule, best
from lightnet.backends.cuda.rows.stages import Rows, definition_rows, split_rows
from lightnet.backends.cuda.rows.teams import ORDERS, Team
from lightnet.backends.cuda.simt import SimtLaunch
from lightnet.backends.generator import Forms, Plan, form_of_arguments
from lightnet.backends.kernel_loops import bind_op
from lightnet.dialects.cuda_checks import WARP
from lightnet.ir.body import choice
from lightnet.ir.bound import BoundDefinition, reads
from lightnet.ir.fusion import Part, compose
from lightnet.ir.kernel import KernelOp, choice_attr
from lightnet.ir.layout import ChannelsLast, Layout, layout_of
from lightnet.ir.notation import parse
from lightnet.ir.op import LnOp
from lightnet.ir.refusal import Refusal
from lightnet.ir.target import Form
from lightnet.ir.types import TensorSpec, spec_of, storage_type
from lightnet.runtime.arrays import align_up

#: Pieces that a row is cut in, at most: blocks of a grid along y.
MOST_PIECES = (1 << 16) - 1
#: Elements that a thread takes at a time, at most: a vector of 16 bytes. Code is written out for each.
MOST_WIDE = 16
CHOICES = Choices("cuda.rows")


class RowsGenerator(SimtGenerator):
    """Takes bodies that reduce rows."""

    alg = "rows"

    def takes(self, ops: Sequence[LnOp], yielded: Sequence[SSAValue], device: DeviceModel | None = None) -> Forms:
        if not _reduces(ops):
            return Refusal("no definition of it reduces, or an op has none")
        body = _Body.of(ops, yielded)
        forms = []
        if body.rows() is not None:
            forms.append(Form({}, plain_results=True))
        maps = [v for v in body.operands if spec_of(v.type).ndim == 4]
        if maps and all(spec_of(v.type).ndim == 4 for v in yielded) and body.rows(maps) is not None:
            forms.append(Form(dict.fromkeys(maps, (0, 0))))
        return forms or Refusal("what it reduces, and all around it, are not the rows of one tensor")

    def plan(self, kernel: KernelOp, form: Form, device: DeviceModel) -> Plan:
        body = _Body.of(kernel.ops, list(kernel.terminator.operands))
        rows = body.laid_out(form)
        best, time = _best(rows, body.definition, device.arch, sum(op.flops() for op in kernel.ops))
        made = _scheduled(kernel, rows, best)
        team = made.walk.team
        return Plan.of(
            self, kernel, form, time, made,
            choices={
                "order": choice_attr(team.order),
                "team": choice_attr((team.across, team.size)),
                "width": choice_attr(made.walk.width),
                "pieces": choice_attr(made.pieces),
            },
            workspace_bytes=sum(align_up(spec.nbytes) for _, spec in _Launches(body, rows, made).parts),
        )  # fmt: skip

    def build(self, kernel: KernelOp, plan: Plan, name: str, aliases: Mapping[int, int]) -> list[SimtLaunch]:
        body = _Body.of(kernel.ops, list(kernel.terminator.operands))
        return _Launches(body, body.laid_out(form_of_arguments(plan.form, kernel)), plan.schedule).build(
            kernel, name, aliases
        )


def _reduces(ops: Sequence[LnOp]) -> bool:
    """Return whether any statement of the ops' definitions reduces, and all have one."""
    if any(op.definition is None or op.has_builder or op.is_host for op in ops):
        return False
    return any(s.op != "=" for op in ops for s in parse(op.definition or "").statements)


class _Body:
    """The definition of a body: `operands` are the values from outside, called ``in0``, ``in1``, …"""

    def __init__(self, operands: list[SSAValue], definition: BoundDefinition):
        self.operands, self.definition = operands, definition

    @classmethod
    def of(cls, ops: Sequence[LnOp], yielded: Sequence[SSAValue]) -> _Body:
        made = {r for op in ops for r in op.results}
        operands = list(dict.fromkeys(v for op in ops for v in op.operands if v not in made))
        operands += [v for v in dict.fromkeys(yielded) if v not in made and v not in operands]
        names: dict[SSAValue, str] = {v: f"in{i}" for i, v in enumerate(operands)}
        for i, value in enumerate(yielded):
            names.setdefault(value, f"out{i}")
        for k, op in enumerate(ops):
            for i, result in enumerate(op.results):
                names.setdefault(result, f"v{k}.{i}")
        parts = tuple(
            Part(bind_op(op), tuple(names[v] for v in op.operands), tuple(names[r] for r in op.results)) for op in ops
        )
        read = tuple(names[v] for v in operands if any(v in op.operands for op in ops))
        return cls(operands, _composed(parts, tuple(names[v] for v in yielded), read))

    def rows(self, maps: Sequence[SSAValue] = ()) -> Rows | None:
        """The body as rows; where there are `maps`, these and all results are maps."""
        if not maps:
            return _rows(self.definition, ())
        names = [f"in{self.operands.index(v)}" for v in maps] + [n for n, _ in self.definition.results]
        return _rows(self.definition, tuple((n, MAP) for n in names))

    def laid_out(self, form: Form) -> Rows:
        """The body as rows in a form that it is taken in."""
        rows = self.rows(list(form.maps))
        assert rows is not None, "a generator builds what it takes"
        return rows


@lru_cache(maxsize=512)
def _composed(parts: tuple[Part, ...], yielded: tuple[str, ...], operands: tuple[str, ...]) -> BoundDefinition:
    return compose(parts, yielded, operands, [f"out{i}" for i in range(len(yielded))])


@lru_cache(maxsize=512)
def _rows(d: BoundDefinition, layouts: tuple[tuple[str, Layout], ...]) -> Rows | None:
    return definition_rows(d, dict(layouts))


@lru_cache(maxsize=512)
def _best(rows: Rows, d: BoundDefinition, arch: str, flops: int) -> tuple[RowSchedule, float]:
    pieces = split_rows(rows, 2)
    return best(rows, d.specs, device_of(arch), 0 if pieces is None else len(pieces), flops)


def _scheduled(kernel: KernelOp, rows: Rows, found: RowSchedule) -> RowSchedule:
    """The schedule that a kernel's choices name, or the best one, `found`. Raises `LightNetError` for one that cannot
    be."""
    if "order" in kernel.attributes and choice(kernel, "order") is None:
        raise CHOICES.error(kernel, "order", f"expected {' or '.join(ORDERS)}")
    order, team = choice(kernel, "order") or found.walk.team.order, found.walk.team
    if (numbers := CHOICES.numbers(kernel, "team", 2)) is not None or order != team.order:
        team = Team(order, *(numbers or (32, 4)))
    if (width := CHOICES.number(kernel, "width")) is None:
        width = found.walk.width if team.order == "row" else 1
    if (pieces := CHOICES.number(kernel, "pieces")) is None:
        pieces = found.pieces if team == found.walk.team else 1
    sizes = team.across > 0 and team.size > 0 and not team.threads % WARP and team.threads <= MOST_THREADS
    powers = sizes and not any(n & (n - 1) for n in (team.across, team.size))
    if team.order not in ORDERS or not powers or (team.order == "column" and team.across > WARP):
        raise CHOICES.error(
            kernel, "team",
            f"{team.order} with teams {team.across} x {team.size}: across and size are powers of two, together 32 "
            f"to {MOST_THREADS} threads, and the order is {' or '.join(ORDERS)} (of this at most {WARP} across)",
        )  # fmt: skip
    if not 1 <= width <= MOST_WIDE or any(s.extent % width for s in rows.stages if s.has_row):
        raise CHOICES.error(kernel, "width", f"no {width} elements at a time of rows of {rows.extent}")
    if not 1 <= pieces <= MOST_PIECES or (pieces > 1 and split_rows(rows, pieces) is None):
        raise CHOICES.error(kernel, "pieces", f"no {pieces} pieces of such rows")
    return RowSchedule(RowWalk.of(team, width, rows.extent), pieces)


class _Launches:
    """The launches of a body, and the partial results between them: `parts`."""

    def __init__(self, body: _Body, rows: Rows, schedule: RowSchedule):
        self.body, self.rows, self.walk = body, rows, schedule.walk
        pieces = schedule.pieces
        launches = split_rows(self.rows, pieces) if pieces > 1 else (self.rows,)
        assert launches is not None
        self.launches = launches
        specs = self.body.definition.specs
        self.parts = [
            (part, TensorSpec((self.rows.points * pieces,), specs[part.removesuffix(".parts")].dtype))
            for launch in launches[:-1]
            for part in launch.stages[-1].targets
        ]

    def build(self, kernel: KernelOp, name: str, aliases: Mapping[int, int]) -> list[SimtLaunch]:
        names = (f"{name}_{k}" if k else name for k in range(len(self.launches)))
        return [self._launch(kernel, own, rows, aliases) for own, rows in zip(names, self.launches)]

    def _launch(self, kernel: KernelOp, name: str, rows: Rows, aliases: Mapping[int, int]) -> SimtLaunch:
        body, walk = self.body, self.walk
        operands = {f"in{k}": v for k, v in enumerate(body.operands)}
        results = {n: k for k, (n, _) in enumerate(body.definition.results)}
        used = {r.tensor for s in rows.stages for r in reads(s.value)} | {
            r.tensor for s in rows.stages if s.place for r in reads(s.place)
        }
        last = rows is self.launches[-1]
        stored = set(results) if last else set(rows.stages[-1].targets)
        offsets, at = {}, 0
        for part, spec in self.parts:
            offsets[part], at = (at, spec), at + align_up(spec.nbytes)
        space = [n for n in offsets if n in used or n in stored]
        f = KernelFunction(
            kernel, name, (walk.team.threads, 1, 1), aliases,
            reads=[v for n, v in operands.items() if n in used], writes=list(results.values()) if last else [],
            workspace=[(MemRefType(storage_type(offsets[n][1].dtype), [offsets[n][1].len]),
                        offsets[n][0]) for n in space],
            shape=_elements,
        )  # fmt: skip
        memory = {n: f.inputs[v] for n, v in operands.items() if n in used}
        memory |= {n: f.outputs[k] for n, k in results.items() if last}
        memory |= dict(zip(space, f.workspace))
        sizes = {n: m.type.get_shape()[0] for n, m in memory.items()}  # type: ignore[attr-defined]
        shared = {n for n, v in operands.items() if n in used and any(memory[n] is m for m in f.outputs.values())}
        pads = {n: _pad(kernel.results[k]) for n, k in results.items()}
        return f.launch(RowFunction(f, rows, walk, memory, sizes, stored | shared, stored, pads).build())


def _elements(value: SSAValue) -> tuple[int]:
    """The memory of a value as one row of elements."""
    return (prod(physical(value)),)


def _pad(value: SSAValue) -> tuple[int, int]:
    """The channels of a map, and the lanes behind them."""
    if not isinstance(layout_of(value.type), ChannelsLast):
        return 0, 0
    channels = spec_of(value.type).dims[1]
    return channels, physical(value)[3] - channels


ROWS = RowsGenerator()
