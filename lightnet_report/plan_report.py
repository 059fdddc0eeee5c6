"""The report on a memory plan: as text, as JSON, and as a picture (`plan_picture.py`).

The buffers of a module that is planned are read off its places. Values that an op makes out of each other and that
share bytes (views, in-place results) are one buffer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from lightnet.dataclasses import asdict, dataclass
from lightnet.ir.instances import instance_of
from lightnet.ir.layout import byte_size
from lightnet.ir.memory import ARENA, is_upstream, workspace_size
from lightnet.ir.module import op_label, value_name
from lightnet.ir.op import WORKSPACE
from lightnet.ir.place import PlaceAttr
from lightnet.ir.views import place_of
from lightnet.passes.plan_buffers import PlannedValues
from lightnet.passes.planning.buffers import Buffer, lower_bound
from lightnet.passes.planning.planner import MemoryPlan
from lightnet.tables import size, table
from lightnet_report.calls import OpenInfo, open_info


@dataclass(frozen=True)
class PlanReport:
    """A plan and its buffers; `ops` names the op at each position of time, when they are ops. Where calls decide sizes
    (`calls`), it is that of the typical one."""

    buffers: Sequence[Buffer]
    plan: MemoryPlan
    ops: Sequence[str] | None = None
    calls: OpenInfo | None = None

    def in_form(self, file: str) -> str:
        """The report in the form that a file's suffix names: .json, .svg, .html (.htm), or else text."""
        forms = {".json": self.json, ".svg": self.svg, ".html": self.html, ".htm": self.html}
        return forms.get(Path(file).suffix.lower(), self.text)()

    def text(self) -> str:
        """Peak, lower bound and ratio, then a line for each buffer in order of its offset."""
        plan = self.plan
        lines = [
            f"peak         {plan.peak} bytes ({size(plan.peak)})",
            f"lower bound  {plan.bound} bytes ({size(plan.bound)})",
            f"ratio        {plan.ratio:.4f}",
            f"found by     {plan.heuristic}",
            f"buffers      {len(self.buffers)}, {sum(b.size for b in self.buffers)} bytes without sharing",
        ]
        if self.calls is not None:
            lines += [self.calls.note, *self.calls.memory_lines()]
        rows = ((str(x), str(x + b.size), str(b.size), self.live(b), b.id) for b, x in self.by_offset())
        return "\n".join([*lines, table(("offset", "end", "size", "live", "buffer"), rows)]) + "\n"

    def json(self) -> str:
        """The same as a JSON object; `live` holds half-open intervals of positions, gaps taken out."""
        plan = self.plan
        entries = [
            {"id": b.id, "offset": x, "size": b.size, "alignment": b.alignment, "live": b.segments()}
            for b, x in self.by_offset()
        ]
        head = {"peak": plan.peak, "bound": plan.bound, "ratio": plan.ratio, "heuristic": plan.heuristic}
        extra: dict[str, Any] = {"ops": list(self.ops)} if self.ops is not None else {}
        extra |= {"calls": asdict(self.calls)} if self.calls is not None else {}
        return json.dumps({**head, "buffers": entries, **extra}, indent=1) + "\n"

    def svg(self, title: str = "Memory plan") -> str:
        """A self-contained SVG picture of the plan; pointing at a buffer shows its name, lifetime and bytes."""
        from lightnet_report import plan_picture

        return plan_picture.svg(self, title)

    def html(self, title: str = "Memory plan") -> str:
        """An HTML page with the picture and a table of the buffers, light or dark as the reader's system is."""
        from lightnet_report import plan_picture

        return plan_picture.html(self, title)

    def by_offset(self) -> list[tuple[Buffer, int]]:
        """The buffers and their offsets, in the order of these."""
        pairs = [(b, self.plan.offsets[b.id]) for b in self.buffers]
        return sorted(pairs, key=lambda p: (p[1], p[0].lower, p[0].upper, p[0].id))

    def live(self, b: Buffer) -> str:
        """The half-open intervals of positions in which a buffer is live."""
        return " ".join(f"[{lower}, {upper})" for lower, upper in b.segments())


def plan_report(module: ModuleOp, space: str = ARENA) -> PlanReport:
    """The report on one memory space of a planned module (text, json, svg, html): peak, lower bound, ratio, and the
    interval of each buffer in op positions. Where calls decide sizes, that of the typical one."""
    calls = open_info(module, space)
    if calls is not None:
        module = instance_of(module, calls.typical.values)
    buffers, offsets, ops = _buffers_of(module, space)
    peak = max((offsets[b.id] + b.size for b in buffers), default=0)
    found = "upstream's pool" if is_upstream(module) else "plan"
    return PlanReport(buffers, MemoryPlan(offsets, peak, lower_bound(buffers), found), ops, calls)


def _buffers_of(module: ModuleOp, space: str) -> tuple[list[Buffer], dict[str, int], list[str]]:
    """(buffers, offsets by id, the op at each position) of one memory space."""
    network = PlannedValues.of(module)
    ranges = {v: r for v in network.slots if (r := _range(v, space)) is not None}
    parent = {v: v for v in ranges}

    def root(v: SSAValue) -> SSAValue:
        while parent[v] is not v:
            parent[v] = parent[parent[v]]
            v = parent[v]
        return v

    for op in network.ops:
        for a in op.operands:
            for b in op.results:
                if a in ranges and b in ranges and _meet(ranges[a], ranges[b]):
                    parent[root(b)] = root(a)
    groups: dict[SSAValue, list[SSAValue]] = {}
    for v in ranges:
        groups.setdefault(root(v), []).append(v)
    buffers: list[Buffer] = []
    offsets: dict[str, int] = {}
    names: set[str] = set()

    def add(name: str, lo: int, hi: int, lower: int, upper: int) -> None:
        name = name if name not in names else f"{name}#{len(names)}"
        names.add(name)
        buffers.append(Buffer(name, lower, upper, hi - lo))
        offsets[name] = lo

    for values in groups.values():
        slots = [network.slots[v] for v in values]
        largest = max(slots, key=lambda s: (s.size, -s.number))
        add(
            value_name(largest.value),
            min(ranges[v][0] for v in values),
            max(ranges[v][1] for v in values),
            min(s.lower for s in slots),
            max(s.upper for s in slots),
        )
    for i, op in enumerate(network.ops):
        for place in getattr(op.attributes.get(WORKSPACE), "data", ()):
            if isinstance(place, PlaceAttr) and place.space.data == space:
                at = place.offset.data
                add(f"workspace of {op_label(op)}", at, at + workspace_size(op), i, i + 1)
    return buffers, offsets, [op_label(op) for op in network.ops]


def _range(value: SSAValue, space: str) -> tuple[int, int] | None:
    place = place_of(value)
    if place is None or place.space.data != space:
        return None
    return place.offset.data, place.offset.data + byte_size(value.type)


def _meet(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[1] and b[0] < a[1]
