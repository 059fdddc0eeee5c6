"""The picture of a memory plan (`plan_report.py`): SVG, or an HTML page around it.

The picture has time from left to right and bytes from bottom to top, a rectangle for each buffer, the bytes that are
live as a line, and the lower bound. It stands alone: no scripts, fonts or links.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from lightnet.diagnostics import printable
from lightnet.passes.planning.buffers import Buffer, load_profile
from lightnet.tables import size
from lightnet_report.calls import OpenInfo
from lightnet_report.plan_report import PlanReport

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
{calls}
<table><thead><tr><th>offset</th><th>end</th><th>size</th><th>from</th><th>to</th><th>buffer</th></tr></thead><tbody>
{rows}
</tbody></table></body></html>
"""


def svg(report: PlanReport, title: str) -> str:
    """A self-contained SVG picture of the plan; pointing at a buffer shows its name, lifetime and bytes."""
    scale = _Scale(report.buffers, max(report.plan.peak, report.plan.bound))
    title = title if report.calls is None else f"{title} where {report.calls.typical}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plan" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>',
        f'<text class="title" x="{LEFT}" y="22">{_xml(title)}</text>',
        f'<text x="{LEFT}" y="40">peak {size(report.plan.peak)}, lower bound {size(report.plan.bound)}, '
        f"ratio {report.plan.ratio:.4f}, {len(report.buffers)} buffers, found by {_xml(report.plan.heuristic)}</text>",
        *scale.grid(),
    ]
    for k, b in enumerate(sorted(report.buffers, key=lambda b: (b.lower, report.plan.offsets[b.id]))):
        parts += _rectangles(report, b, k % len(FILLS), scale)
    parts += scale.load_line(load_profile(report.buffers))
    y = scale.y(report.plan.bound)
    parts.append(f'<line class="bound" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
    parts.append(
        f'<text class="bound-text" x="{WIDTH - RIGHT}" y="{HEIGHT - 8}" text-anchor="end">'
        f"- - lower bound {report.plan.bound:,}</text>"
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


def html(report: PlanReport, title: str) -> str:
    """An HTML page with the picture and a table of the buffers, light or dark as the reader's system is."""
    rows = "\n".join(
        f"<tr><td>{x:,}</td><td>{x + b.size:,}</td><td>{b.size:,}</td><td>{b.lower}</td><td>{b.upper}</td>"
        f"<td>{_xml(b.id)}</td></tr>"
        for b, x in report.by_offset()
    )
    calls = "" if report.calls is None else "\n".join(f"<p>{_xml(line)}</p>" for line in _calls(report.calls))
    return PAGE.format(title=_xml(title), svg=svg(report, title), calls=calls, rows=rows)


def _calls(calls: OpenInfo) -> list[str]:
    return [calls.note, *calls.memory_lines()]


def _op(report: PlanReport, position: int) -> str:
    if report.ops is None or not 0 <= position < len(report.ops):
        return ""
    return f" ({report.ops[position]})"


def _rectangles(report: PlanReport, b: Buffer, hue: int, scale: _Scale) -> list[str]:
    """A rectangle for each live segment, with one tooltip, and the name where it fits."""
    x = report.plan.offsets[b.id]
    tip = (
        f"{b.id}\nlive {report.live(b)}: from {b.lower}{_op(report, b.lower)} to {b.upper - 1}"
        f"{_op(report, b.upper - 1)}"
        f"\nbytes [{x:,}, {x + b.size:,}), {size(b.size)}"
    )
    parts = [f"<g><title>{_xml(tip)}</title>"]
    top, height = scale.y(x + b.size), scale.y(x) - scale.y(x + b.size)
    for lower, upper in b.segments():
        left, width = scale.x(lower), scale.x(upper) - scale.x(lower)
        parts.append(f'<rect class="b h{hue}" x="{left:.2f}" y="{top:.2f}" width="{width:.2f}" height="{height:.2f}"/>')
        if height >= LINE and width >= CHARACTER * (len(b.id) + 1):
            parts.append(
                f'<text x="{left + width / 2:.1f}" y="{top + height / 2 + 4:.1f}" text-anchor="middle">'
                f"{_xml(b.id)}</text>"
            )
    return [*parts, "</g>"]


class _Scale:
    """From positions and bytes to pixels."""

    def __init__(self, buffers: Sequence[Buffer], top: int) -> None:
        self.first = min((b.lower for b in buffers), default=0)
        self.last = max((b.upper for b in buffers), default=1)
        self.top = max(1, top)

    def x(self, position: float) -> float:
        return LEFT + (position - self.first) / (self.last - self.first) * (WIDTH - LEFT - RIGHT)

    def y(self, nbytes: float) -> float:
        return HEIGHT - BOTTOM - nbytes / self.top * (HEIGHT - TOP - BOTTOM)

    def grid(self) -> list[str]:
        """Lines and numbers at round values of both axes."""
        parts = []
        step = _round_step(self.top, 8, 2)
        for nbytes in range(0, self.top + 1, step):
            y = self.y(nbytes)
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{size(nbytes)}</text>')
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


def _xml(text: str) -> str:
    """Text without control characters, which XML forbids."""
    return escape(printable(text, "\n"))
