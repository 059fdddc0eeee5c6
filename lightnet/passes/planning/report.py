"""The picture of a memory plan: as text, as JSON, and as a picture (SVG, or an HTML page around it).

The picture has time from left to right and bytes from bottom to top, a rectangle for each buffer, the bytes that are
live as a line, and the lower bound. It stands alone: no scripts, fonts or links. Imports `buffers` and `planner`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from .buffers import Buffer, load_profile
from .planner import MemoryPlan

#: The picture in pixels: the whole, and the margins around the plot.
WIDTH, HEIGHT = 1080, 620
LEFT, RIGHT, TOP, BOTTOM = 76, 16, 54, 44

#: A character of a label in pixels, for deciding whether a name fits into its rectangle.
CHARACTER, LINE = 6.2, 13

#: Fills for light and for dark paper, given out in turn: light or dark tones of eight hues far apart.
FILLS = (
    ("#9ec5ee", "#2b5f96"), ("#f6c38f", "#96602a"), ("#a5d9a0", "#356f3a"), ("#cdb4ec", "#65479a"),
    ("#efe08d", "#7d6d1f"), ("#95d9d4", "#23706b"), ("#f3adbf", "#933f58"), ("#c9cf9c", "#5d6730"),
)  # fmt: skip


def _style(tone: int, ink: str, paper: str, faint: str, bound: str) -> str:
    """The colours of one scheme. No CSS variables: many SVG viewers do not know them."""
    fills = "".join(f".plan .h{k} {{ fill: {pair[tone]}; }} " for k, pair in enumerate(FILLS))
    return (
        f".plan .paper {{ fill: {paper}; }} .plan text {{ fill: {ink}; }} .plan .grid {{ stroke: {faint}; }} "
        f".plan .b {{ stroke: {paper}; }} .plan .load {{ stroke: {ink}; }} "
        f".plan .bound {{ stroke: {bound}; }} .plan text.bound-text {{ fill: {bound}; }} {fills}"
    )


STYLE = (
    ".plan text { font: 11px system-ui, sans-serif; } .plan text.title { font-size: 15px; font-weight: 600; } "
    ".plan .b { stroke-width: .7; } .plan g:hover > .b { stroke-width: 2.5; } "
    ".plan .bound { stroke-width: 1.5; stroke-dasharray: 6 4; } "
    ".plan .load { fill: none; stroke-width: 1; opacity: .65; } "
    + _style(0, "#1f2430", "#ffffff", "#d9dde5", "#c0262d")
    + "@media (prefers-color-scheme: dark) { "
    + _style(1, "#e4e7ee", "#14171d", "#343a46", "#ff7b72")
    + "}"
)

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ margin: 24px auto; max-width: 1080px; padding: 0 16px; font: 14px system-ui, sans-serif; }}
svg {{ width: 100%; height: auto; }}
table {{ border-collapse: collapse; margin-top: 16px; font-variant-numeric: tabular-nums; }}
th, td {{ padding: 2px 12px; text-align: right; }} th:last-child, td:last-child {{ text-align: left; }}
tbody tr:nth-child(odd) {{ background: color-mix(in srgb, currentColor 7%, transparent); }}
</style></head><body>
{svg}
<table><thead><tr><th>offset</th><th>end</th><th>size</th><th>from</th><th>to</th><th>buffer</th></tr></thead><tbody>
{rows}
</tbody></table></body></html>
"""


@dataclass(frozen=True)
class PlanReport:
    """A plan and its buffers; `ops` names the positions of time, when they are ops."""

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
            f"peak         {plan.peak} bytes ({human(plan.peak)})",
            f"lower bound  {plan.bound} bytes ({human(plan.bound)})",
            f"ratio        {plan.ratio:.4f}",
            f"found by     {plan.heuristic}",
            f"buffers      {len(self.buffers)}, {sum(b.size for b in self.buffers)} bytes without sharing",
        ]
        rows = [("offset", "end", "size", "live", "buffer")]
        for b, x in self._by_offset():
            rows.append((str(x), str(x + b.size), str(b.size), self._live(b), b.id))
        widths = [max(len(r[k]) for r in rows) for k in range(4)]
        for r in rows:
            lines.append("  ".join([*(r[k].rjust(widths[k]) for k in range(4)), _printable(r[4])]))
        return "\n".join(lines) + "\n"

    def json(self) -> str:
        """The same as a JSON object; `live` holds half-open intervals of positions, gaps taken out."""
        plan = self.plan
        entries = [
            {"id": b.id, "offset": x, "size": b.size, "alignment": b.alignment, "live": b.segments()}
            for b, x in self._by_offset()
        ]
        head = {"peak": plan.peak, "bound": plan.bound, "ratio": plan.ratio, "heuristic": plan.heuristic}
        extra = {"ops": list(self.ops)} if self.ops is not None else {}
        return json.dumps({**head, "buffers": entries, **extra}, indent=1) + "\n"

    def svg(self, title: str = "Memory plan") -> str:
        """A self-contained SVG picture of the plan; pointing at a buffer shows its name, lifetime and bytes."""
        scale = _Scale(self.buffers, max(self.plan.peak, self.plan.bound))
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="plan" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
            f"<style>{STYLE}</style>",
            f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>',
            f'<text class="title" x="{LEFT}" y="22">{_xml(title)}</text>',
            f'<text x="{LEFT}" y="40">peak {human(self.plan.peak)}, lower bound {human(self.plan.bound)}, '
            f"ratio {self.plan.ratio:.4f}, {len(self.buffers)} buffers, found by {_xml(self.plan.heuristic)}</text>",
            *scale.grid(),
        ]
        for k, b in enumerate(sorted(self.buffers, key=lambda b: (b.lower, self.plan.offsets[b.id]))):
            parts += self._rectangles(b, k % len(FILLS), scale)
        parts += scale.load_line(load_profile(self.buffers))
        y = scale.y(self.plan.bound)
        parts.append(f'<line class="bound" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(
            f'<text class="bound-text" x="{WIDTH - RIGHT}" y="{HEIGHT - 8}" text-anchor="end">'
            f"- - lower bound {self.plan.bound:,}</text>"
        )
        return "\n".join([*parts, "</svg>"]) + "\n"

    def html(self, title: str = "Memory plan") -> str:
        """An HTML page with the picture and a table of the buffers, light or dark as the reader's system is."""
        rows = "\n".join(
            f"<tr><td>{x:,}</td><td>{x + b.size:,}</td><td>{b.size:,}</td><td>{b.lower}</td><td>{b.upper}</td>"
            f"<td>{_xml(b.id)}</td></tr>"
            for b, x in self._by_offset()
        )
        return PAGE.format(title=_xml(title), svg=self.svg(title), rows=rows)

    def _by_offset(self) -> list[tuple[Buffer, int]]:
        pairs = [(b, self.plan.offsets[b.id]) for b in self.buffers]
        return sorted(pairs, key=lambda p: (p[1], p[0].lower, p[0].upper, p[0].id))

    def _live(self, b: Buffer) -> str:
        return " ".join(f"[{lower}, {upper})" for lower, upper in b.segments())

    def _op(self, position: int) -> str:
        if self.ops is None or not 0 <= position < len(self.ops):
            return ""
        return f" ({self.ops[position]})"

    def _rectangles(self, b: Buffer, hue: int, scale: _Scale) -> list[str]:
        """A rectangle for each live segment, with one tooltip, and the name where it fits."""
        x = self.plan.offsets[b.id]
        tip = (
            f"{b.id}\nlive {self._live(b)}: from {b.lower}{self._op(b.lower)} to {b.upper - 1}{self._op(b.upper - 1)}"
            f"\nbytes [{x:,}, {x + b.size:,}), {human(b.size)}"
        )
        parts = [f"<g><title>{_xml(tip)}</title>"]
        top, height = scale.y(x + b.size), scale.y(x) - scale.y(x + b.size)
        for lower, upper in b.segments():
            left, width = scale.x(lower), scale.x(upper) - scale.x(lower)
            parts.append(
                f'<rect class="b h{hue}" x="{left:.2f}" y="{top:.2f}" width="{width:.2f}" height="{height:.2f}"/>'
            )
            if height >= LINE and width >= CHARACTER * (len(b.id) + 1):
                parts.append(
                    f'<text x="{left + width / 2:.1f}" y="{top + height / 2 + 4:.1f}" text-anchor="middle">'
                    f"{_xml(b.id)}</text>"
                )
        return [*parts, "</g>"]


def report(buffers: Sequence[Buffer], plan: MemoryPlan, ops: Sequence[str] | None = None) -> PlanReport:
    """The report on `plan`; `ops` gives the name of the op at each position of time."""
    return PlanReport(buffers, plan, ops)


def human(size: int) -> str:
    """A number of bytes in the unit that reads best: ``1.25 MiB``."""
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.2f} {unit}" if unit != "B" else f"{size} B"


class _Scale:
    """From positions and bytes to pixels."""

    def __init__(self, buffers: Sequence[Buffer], top: int) -> None:
        self.first = min((b.lower for b in buffers), default=0)
        self.last = max((b.upper for b in buffers), default=1)
        self.top = max(1, top)

    def x(self, position: float) -> float:
        return LEFT + (position - self.first) / (self.last - self.first) * (WIDTH - LEFT - RIGHT)

    def y(self, size: float) -> float:
        return HEIGHT - BOTTOM - size / self.top * (HEIGHT - TOP - BOTTOM)

    def grid(self) -> list[str]:
        """Lines and numbers at round values of both axes."""
        parts = []
        step = _round_step(self.top, 8, 2)
        for size in range(0, self.top + 1, step):
            y = self.y(size)
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{human(size)}</text>')
        step = _round_step(self.last - self.first, 10, 10)
        for position in range(-(-self.first // step) * step, self.last + 1, step):
            parts.append(
                f'<text x="{self.x(position):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{position}</text>'
            )
        parts.append(f'<text x="{LEFT}" y="{HEIGHT - 8}">time (op positions) →   line: live bytes</text>')
        return parts

    def load_line(self, profile: Sequence[tuple[int, int]]) -> list[str]:
        """The bytes that are live, as steps over time."""
        if not profile:
            return []
        path = [f"M{self.x(profile[0][0]):.1f} {self.y(0):.1f}"]
        for time, load in profile:
            path.append(f"H{self.x(time):.1f}V{self.y(load):.1f}")
        return [f'<path class="load" d="{"".join(path)}"/>']


def _round_step(span: int, count: int, base: int) -> int:
    """A step that divides `span` into at most about `count` parts: a power of two, or 1, 2, 5 times a power of ten."""
    step = 1
    factors = (2,) if base == 2 else (2, 2.5, 2)
    k = 0
    while span / step > count:
        step = int(step * factors[k % len(factors)])
        k += 1
    return step


def _printable(text: str) -> str:
    """The text without control characters, which XML forbids and terminals obey."""
    return "".join(c if c.isprintable() else "�" for c in text)


def _xml(text: str) -> str:
    return escape("\n".join(_printable(line) for line in text.split("\n")))
