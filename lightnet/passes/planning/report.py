"""The report on a memory plan: as text, as JSON, and as a picture (SVG, or an HTML page around it), which
`lightnet_report` draws. Imports `buffers`, `planner` and tables.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lightnet.ir.registry import resolve_beside
from lightnet.tables import size, table

from .buffers import Buffer
from .planner import MemoryPlan

#: What draws it, in a package beside this one.
PICTURE = "lightnet_report.plan_picture"


@dataclass(frozen=True)
class PlanReport:
    """A plan and its buffers; `ops` names the op at each position of time, when they are ops."""

    buffers: Sequence[Buffer]
    plan: MemoryPlan
    ops: Sequence[str] | None = None

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
        extra = {"ops": list(self.ops)} if self.ops is not None else {}
        return json.dumps({**head, "buffers": entries, **extra}, indent=1) + "\n"

    def svg(self, title: str = "Memory plan") -> str:
        """A self-contained SVG picture of the plan; pointing at a buffer shows its name, lifetime and bytes."""
        return resolve_beside(f"{PICTURE}:svg", "the picture of a memory plan")(self, title)

    def html(self, title: str = "Memory plan") -> str:
        """An HTML page with the picture and a table of the buffers, light or dark as the reader's system is."""
        return resolve_beside(f"{PICTURE}:html", "the page of a memory plan")(self, title)

    def by_offset(self) -> list[tuple[Buffer, int]]:
        """The buffers and their offsets, in the order of these."""
        pairs = [(b, self.plan.offsets[b.id]) for b in self.buffers]
        return sorted(pairs, key=lambda p: (p[1], p[0].lower, p[0].upper, p[0].id))

    def live(self, b: Buffer) -> str:
        """The half-open intervals of positions in which a buffer is live."""
        return " ".join(f"[{lower}, {upper})" for lower, upper in b.segments())
