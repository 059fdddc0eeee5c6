"""The tables of networks with open dims, as text. Imports `measure` and the figures of `benching`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

from benching.page import figure
from benching.results import OURS, geometric_mean, quantile

from .measure import ORACLE, STATIC, DecodeRows, NetworkRows, ShapeRow, StreamRows

SHAPES = ("shape", "error", "open, ms", "static, ms", "ONNX Runtime, ms", "OpenVINO, ms", "to static", "to peer", "first, ms",
          "to its bound", "arena, KB", "to static's")  # fmt: skip
NETWORKS = ("network", "shapes", "error", "to static (worst)", "to peer (worst)", "first to its bound", "arena to static's", "compile, s",
            "to static's", "saved, MB", "to static's")  # fmt: skip
STREAMS = ("network", "engine", "calls", "p50, ms", "p99, ms", "to ONNX Runtime's p99", "memory grew, MB")
DECODES = ("network", "engine", "tokens", "median, ms", "p99, ms", "to ONNX Runtime's median", "tokens alike")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows))


def shape_cells(row: ShapeRow) -> list[str]:
    """A shape under SHAPES."""
    times = [_milliseconds(row.seconds.get(e)) for e in (OURS, STATIC, ORACLE, "openvino")]
    arena = row.arena or (None, None)
    return ["×".join(map(str, row.numbers.values())), f"{row.error:.1e}", *times, _ratio(row.ratio(STATIC)), _ratio(row.to_peers),
            _milliseconds(row.first.get(OURS)), _ratio(row.first_call), "–" if arena[0] is None else f"{arena[0] / 1e3:.0f}",
            _ratio(arena_ratio(row))]  # fmt: skip


def network_cells(rows: NetworkRows) -> list[str]:
    """A network under NETWORKS: geometric means, and the worst in brackets."""
    to_static, to_peer = ([r for r in found if r is not None] for found in
                          ([s.ratio(STATIC) for s in rows.shapes], [s.to_peers for s in rows.shapes]))  # fmt: skip
    first = [f for s in rows.shapes if (f := s.first_call) is not None]
    arenas = [a for a in map(arena_ratio, rows.shapes) if a is not None]
    compiled = median(rows.compiling_static) if rows.compiling_static else None
    saved = median(rows.saved_static) if rows.saved_static else None
    return [rows.name, str(sum(OURS in s.seconds for s in rows.shapes)), f"{worst_error(rows):.1e}", _means(to_static), _means(to_peer),
            _ratio(max(first, default=None)), _ratio(max(arenas, default=None)), f"{rows.compiling:.1f}",
            _ratio(compiled and rows.compiling / compiled), "–" if rows.saved is None else f"{rows.saved / 1e6:.1f}",
            _ratio(saved and rows.saved and rows.saved / saved)]  # fmt: skip


def stream_rows(rows: StreamRows) -> list[list[str]]:
    """The engines of a stream under STREAMS."""
    theirs = rows.seconds.get(ORACLE)
    return [[rows.name, engine, str(len(times)), _milliseconds(quantile(times, 0.5)), _milliseconds(quantile(times, 0.99)),
             _ratio(theirs and quantile(times, 0.99) / quantile(theirs, 0.99)), f"{rows.growth[engine] / 1e6:.1f}"]
            for engine, times in rows.seconds.items()]  # fmt: skip


def decode_rows(rows: DecodeRows) -> list[list[str]]:
    """The engines of a decoder under DECODES."""
    theirs = rows.seconds.get(ORACLE)
    return [[rows.name, engine, str(len(times)), _milliseconds(median(times)), _milliseconds(quantile(times, 0.99)),
             _ratio(theirs and median(times) / median(theirs)), "yes" if rows.agree else "no"]
            for engine, times in rows.seconds.items()]  # fmt: skip


def worst_error(rows: NetworkRows) -> float:
    """The largest error of all shapes that ran; not a number where none did."""
    return max((s.error for s in rows.shapes if not math.isnan(s.error)), default=math.nan)


def arena_ratio(row: ShapeRow) -> float | None:
    """Our open plan's bytes over the static plan's of that shape; None where either is not known, or nothing."""
    return row.arena[0] / row.arena[1] if row.arena and row.arena[1] else None


def _means(ratios: Sequence[float]) -> str:
    return f"{_ratio(geometric_mean(ratios) if ratios else None)} ({_ratio(max(ratios, default=None))})"


def _ratio(value: float | None) -> str:
    return f"{value:.2f}" if value else "–"


def _milliseconds(seconds: float | None) -> str:
    return "–" if seconds is None else figure(1e3 * seconds)
