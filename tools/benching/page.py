"""The tables of a benchmark: as text, on a terminal by `rich` where it is there, and as the page docs/performance.md.

Imports results.py and the standard library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from benching.results import OURS, Row, mean_ratio

ENGINES = (OURS, "onnxruntime", "openvino")
TITLES = {OURS: "LightNet", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}
LATENCY = ("", "MFLOP", "LightNet, ms", "ONNX Runtime, ms", "OpenVINO, ms", "ratio", "spread", "% of peak", "best peer, % of peak",
           "largest error")  # fmt: skip
STARTS = ("", "cold, process", "cold, load to first", "with our cache", "warm, process", "warm, load to first", "memory cold",
          "memory warm", "code KB", "arena MB")  # fmt: skip
NETWORKS, LAYERS, OTHERS, QUANTISED = "networks", "layers", "others", "quantised networks"


def latency_cells(row: Row) -> list[str]:
    """The cells of a row under LATENCY."""
    low_high = row.spread
    return [
        row.name,
        f"{row.flops / 1e6:.1f}",
        *(_text(row.median(e), lambda s: figure(1e3 * s)) for e in ENGINES),
        _text(row.ratio, lambda r: f"{r:.2f}"),
        f"{low_high[0]:.2f}–{low_high[1]:.2f}" if low_high else "–",
        _text(row.share_of_peak(OURS), lambda s: f"{100 * s:.0f}"),
        _text(row.share_of_peak(row.best_peer), lambda s: f"{100 * s:.0f}"),
        _text(row.errors.get(OURS), lambda e: f"{e:.1e}"),
    ]


def start_cells(row: Row) -> list[str]:
    """The cells of a row under STARTS; a cell has a figure of each engine."""

    def each(kind: str, what: str, form: Callable[[float], str]) -> str:
        return " / ".join(_text(row.start(e, kind, what), form) for e in ENGINES)

    def loading(kind: str) -> str:
        sums = [(row.start(e, kind, "load"), row.start(e, kind, "first")) for e in ENGINES]
        return " / ".join("–" if a is None or b is None else milliseconds(a + b) for a, b in sums)

    return [
        row.name, each("cold", "total", milliseconds), loading("cold"),
        _text(row.start(OURS, "cached", "total"), milliseconds), each("warm", "total", milliseconds), loading("warm"),
        each("cold", "memory", megabytes), each("warm", "memory", megabytes),
        _text(row.start(OURS, "cold", "code"), lambda n: f"{n / 1e3:.0f}"),
        _text(row.start(OURS, "cold", "arena"), lambda n: f"{n / 1e6:.1f}"),
    ]  # fmt: skip


def milliseconds(seconds: float) -> str:
    """Whole milliseconds."""
    return f"{1e3 * seconds:.0f}"


def megabytes(count: float) -> str:
    """Whole millions of bytes."""
    return f"{count / 1e6:.0f}"


def figure(value: float) -> str:
    """Three digits or more."""
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}" if 0 < value < 1000 else f"{value:.0f}"


def _text(value: float | None, form: Callable[[float], str]) -> str:
    return "–" if value is None or (isinstance(value, float) and math.isnan(value)) else form(value)


def mean_cells(rows: Sequence[Row], title: str) -> list[str]:
    """The row of the geometric mean under LATENCY."""
    mean, count = mean_ratio(rows)
    worst = max((r.ratio for r in rows if r.ratio is not None), default=math.nan)
    return [f"{title} of {count}", "", "", "", "", _text(mean, lambda r: f"{r:.3f}"), f"≤ {worst:.2f}" if count else "–",
            "", "", ""]  # fmt: skip


def groups(rows: Sequence[Row]) -> list[tuple[str, int, list[Row]]]:
    """The rows by group and number of threads, in the order in which they came."""
    found: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row.group, row.threads), []).append(row)
    ordered = sorted(
        found.items(), key=lambda item: ([NETWORKS, OTHERS, QUANTISED, LAYERS].index(item[0][0]), item[0][1])
    )
    return [(group, threads, members) for (group, threads), members in ordered]


def tables(rows: Sequence[Row]) -> list[tuple[str, Sequence[str], list[list[str]]]]:
    """Every table: title, header, cells."""
    found: list[tuple[str, Sequence[str], list[list[str]]]] = []
    for group, threads, members in groups(rows):
        cells = [latency_cells(r) for r in members]
        if group in (NETWORKS, QUANTISED) and len(members) > 1:
            cells.append(mean_cells(members, "geometric mean"))
        found.append((f"{group.capitalize()}, {threads} thread{'s' * (threads > 1)}", LATENCY, cells))
    if started := [r for r in rows if any(r.starts.values())]:
        title = "From nothing to the first result (ms) and peak memory (MB): LightNet / ONNX Runtime / OpenVINO"
        found.append((title, STARTS, [start_cells(r) for r in started]))
    return found


def text_table(header: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """Columns of plain text, the first to the left."""
    rows = [header, *cells]
    widths = [max(len(r[i]) for r in rows) for i in range(len(header))]
    return "\n".join(
        "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths))).rstrip()
        for r in rows
    )


def show(rows: Sequence[Row], terminal: bool) -> None:
    """Print every table; in colour where a person looks, `rich` is installed, and there is room."""
    for title, header, cells in tables(rows):
        if not terminal or not _coloured(title, header, cells):
            print(f"\n{title}\n{text_table(header, cells)}")


def _coloured(title: str, header: Sequence[str], cells: Sequence[Sequence[str]]) -> bool:
    """Print a table by `rich`; False where that cannot be, or would cut figures off."""
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        return False
    console, table = Console(), Table(title=title, title_justify="left")
    for i, name in enumerate(header):
        table.add_column(name, justify="left" if i == 0 else "right", no_wrap=i == 0)
    for line in cells:
        ratio = line[header.index("ratio")] if "ratio" in header else "–"
        table.add_row(*line, style=None if ratio == "–" else "green" if float(ratio) <= 1 else "red")
    if console.measure(table).minimum > console.width or len(text_table(header, cells).split("\n")[1]) > console.width:
        return False
    console.print(table)
    return True


def notes(rows: Sequence[Row]) -> list[str]:
    """The notes that a reader needs on single rows: engines that failed, references other than float64, other
    clocks.
    """
    found = [f"{r.name}, {r.threads}: {engine} did not run: {why}" for r in rows for engine, why in r.problems.items()]
    found += [f"{r.name}: compared with {r.oracle}" for r in rows if r.oracle not in ("", "float64")]
    found += [
        f"{r.name}: LightNet ran on one thread"
        for r in rows
        if r.threads > 1 and not r.first.get(OURS, {}).get("threads", True)
    ]
    found += ["Times are processor time of the engine's process, not of a clock."] * any(r.clock == "cpu" for r in rows)
    return list(dict.fromkeys(found))


def page(rows: Sequence[Row], about: dict[str, Any]) -> str:
    """docs/performance.md."""
    lines = [
        "<!-- Written by `python tools/bench.py --write`. -->", "", "# Performance", "",
        "Latency of one inference, batch 1, in 32-bit floats, beside the runtimes that one would use instead; what is measured and",
        "how, [benchmark.md](benchmark.md) says. A ratio is our time over that of the faster peer: below 1, LightNet is faster. The",
        "spread is that of the ratios of single rounds (10th to 90th percentile); nothing under 5 % is a difference.", "",
        f"Measured on {about['date']}: {about['machine']}.", "",
        f"Command: `{about['command']}`", "",
    ]  # fmt: skip
    for title, header, cells in tables(rows):
        lines += [f"## {title}", "", f"| {' | '.join(header)} |", f"|{' --- |' + ' ---: |' * (len(header) - 1)}"]
        lines += [f"| {' | '.join(c.replace('|', '/') for c in line)} |" for line in cells] + [""]
    if said := notes(rows):
        lines += ["## Notes", "", *(f"* {note}" for note in said), ""]
    return "\n".join(lines)
