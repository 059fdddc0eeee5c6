#!/usr/bin/env python3
"""Pack memory-planning problems in MiniMalloc's CSV format, and print how close the peaks are to the lower bounds.

    python tools/minimalloc.py --effort=high tests/data/minimalloc/[A-E].*.csv

The format (Moffitt, ASPLOS 2023) is the one by which such problems are exchanged. A header names the columns, in any order: ``id`` (or
``buffer``, ``buffer_id``), ``lower`` (``begin``, ``start``), ``upper`` (or ``end``, the last position of the lifetime instead of the first
after it), ``size``, and optionally ``alignment``, ``gaps``, ``offset`` and ``hint``. An answer is the problem with an ``offset`` column.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.passes.planning import check_offsets, lower_bound, pack
from lightnet.passes.planning.buffers import Buffer, validate
from lightnet.passes.planning.planner import EFFORTS, MemoryPlan
from lightnet_report.plan_report import PlanReport

ALIASES = {"buffer": "id", "buffer_id": "id", "begin": "lower", "start": "lower", "end": "upper"}
REQUIRED = ("id", "lower", "upper", "size")
COLUMNS = (*REQUIRED, "alignment", "hint", "gaps", "offset")

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}\Z")
_GAP = re.compile(r"(-?[0-9]{1,19})-(-?[0-9]{1,19})(?:@([0-9]{1,19}):([0-9]{1,19}))?\Z")


@dataclass
class Instance:
    """A problem, and the offsets that the file gives (empty without an ``offset`` column).

    `hints` and `gaps` keep the text of those columns, by id, for writing.
    """

    buffers: list[Buffer]
    offsets: dict[str, int] = field(default_factory=dict)
    hints: dict[str, str] = field(default_factory=dict)
    gaps: dict[str, str] = field(default_factory=dict)


def read(text: str, file: str) -> Instance:
    """Parse a MiniMalloc CSV file; an empty line ends it. Raises `LightNetError` with the place in `file`.

    A gap ``a-b@lo:hi``, in which the buffer shrinks to the bytes from lo to hi, is taken as no gap at all: plans stay
    valid, and may be larger than they had to be.
    """
    instance = Instance([])
    header: list[str] = []
    inclusive = 0
    for number, line in enumerate(text.splitlines(), 1):
        row = _Row(file, number, line)
        if not line.strip():
            break
        if not header:
            header, inclusive = _header(row)
            continue
        if len(row.fields) != len(header):
            raise row.error(f"expected {len(header)} fields, got {len(row.fields)}", len(row.fields) - 1)
        column = {name: k for k, name in enumerate(header)}
        try:
            buffer = _buffer(row, column, inclusive, instance)
            validate([buffer])
        except LightNetError as error:
            raise error.at(SourceLoc(file, number, 1), line) from None
        instance.buffers.append(buffer)
    if not header:
        raise LightNetError("expected a header with the columns id,lower,upper,size", SourceLoc(file, 1, 1))
    try:
        validate(instance.buffers)
    except LightNetError as error:
        raise error.at(SourceLoc(file)) from None
    return instance


def write(instance: Instance, offsets: Mapping[str, int] | None = None) -> str:
    """The text of a problem, in today's column names, with an ``offset`` column if `offsets` (by id) are given.

    Raises `LightNetError` for an id that the format cannot hold: it has no quoting.
    """
    buffers = instance.buffers
    optional = {
        "alignment": any(b.alignment != 1 for b in buffers),
        "hint": bool(instance.hints),
        "gaps": any(b.gaps for b in buffers) or any(instance.gaps.values()),
        "offset": offsets is not None,
    }
    columns = [c for c in COLUMNS if optional.get(c, True)]
    lines = [",".join(columns)]
    for b in buffers:
        if not b.id or re.search(r"[,\s]", b.id):
            raise LightNetError(f"the buffer id {b.id!r} has no form in a MiniMalloc file", label="minimalloc.id")
        cells = {
            "id": b.id, "lower": b.lower, "upper": b.upper, "size": b.size, "alignment": b.alignment,
            "hint": instance.hints.get(b.id, ""),
            "gaps": instance.gaps.get(b.id, " ".join(f"{first}-{last}" for first, last in b.gaps)),
            "offset": offsets[b.id] if offsets is not None else "",
        }  # fmt: skip
        lines.append(",".join(str(cells[c]) for c in columns))
    return "\n".join(lines) + "\n"


class _Row:
    """A line of the file, its fields, and errors that point at one of them."""

    def __init__(self, file: str, number: int, line: str) -> None:
        self.file, self.number, self.line = file, number, line
        self.fields = line.split(",")

    def text(self, k: int) -> str:
        return self.fields[k].strip()

    def integer(self, k: int, what: str) -> int:
        if not _INTEGER.match(self.text(k)):
            raise self.error(f"expected an integer for {what}, got {self.text(k)!r}", k)
        return int(self.text(k))

    def error(self, message: str, k: int) -> LightNetError:
        col = 1 + sum(len(f) + 1 for f in self.fields[:k])
        return LightNetError(message, SourceLoc(self.file, self.number, col), "minimalloc.syntax", self.line)


def _header(row: _Row) -> tuple[list[str], int]:
    """The columns by their names of today, and 1 if the ends of lifetimes belong to them."""
    names: list[str] = []
    for k in range(len(row.fields)):
        name = ALIASES.get(row.text(k), row.text(k))
        if name not in COLUMNS:
            raise row.error(f"unknown column '{name}': expected {', '.join(COLUMNS)}", k)
        if name in names:
            raise row.error(f"two columns give the {name}", k)
        names.append(name)
    for name in REQUIRED:
        if name not in names:
            raise row.error(f"the column '{name}' is missing", 0)
    return names, int(row.text(names.index("upper")) == "end")


def _buffer(row: _Row, column: Mapping[str, int], inclusive: int, instance: Instance) -> Buffer:
    """The buffer of a row; its offset, hint and gaps go into `instance`."""
    name = row.text(column["id"])
    lower, upper, size = (row.integer(column[c], c) for c in ("lower", "upper", "size"))
    alignment = row.integer(column["alignment"], "alignment") if "alignment" in column else 1
    gaps, texts = [], []
    for gap in row.text(column["gaps"]).split() if "gaps" in column else []:
        match = _GAP.match(gap)
        if not match:
            raise row.error(f"expected a gap such as 3-7 or 3-7@0:64, got {gap!r}", column["gaps"])
        first, last = int(match[1]), int(match[2]) + inclusive
        window = f"@{match[3]}:{match[4]}" if match[3] else ""
        texts.append(f"{first}-{last}{window}")
        if not window:
            gaps.append((first, last))
    if texts:
        instance.gaps[name] = " ".join(texts)
    if "hint" in column:
        instance.hints[name] = row.text(column["hint"])
    if "offset" in column:
        instance.offsets[name] = row.integer(column["offset"], "offset")
    return Buffer(name, lower, upper + inclusive, size, alignment, tuple(gaps))


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    options = _parser().parse_args(arguments)
    if options.output and len(options.files) > 1 and not Path(options.output).is_dir():
        print("error: with several files, -o needs a directory that exists", file=sys.stderr)
        return 1
    print(f"{'name':<24} {'n':>6} {'lower bound':>14} {'peak':>14} {'ratio':>7} {'seconds':>8}")
    try:
        for file in options.files:
            _run(Path(file), options)
    except LightNetError as error:
        print(error, file=sys.stderr)
        return 1
    except (OSError, UnicodeDecodeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="CSV with id,lower,upper,size[,alignment][,gaps][,offset]"
    )
    parser.add_argument("-o", "--output", help="write the answer here (a directory for several files)")
    parser.add_argument("-c", "--capacity", type=int, help="fail unless the plan fits into this many bytes")
    parser.add_argument("-e", "--effort", choices=EFFORTS, default="default", help="how long to search")
    parser.add_argument("--seed", type=int, default=0, help="another search")
    parser.add_argument("--fixed", action="store_true", help="keep the offsets that a file gives")
    parser.add_argument("--check", action="store_true", help="check the offsets that a file gives; pack nothing")
    parser.add_argument("--html", metavar="FILE", help="write a picture of the (last) plan")
    return parser


def _run(path: Path, options: argparse.Namespace) -> None:
    instance = read(path.read_text(encoding="utf-8"), str(path))
    buffers = instance.buffers
    start = time.perf_counter()
    if options.check:
        peak = max((instance.offsets.get(b.id, 0) + b.size for b in buffers), default=0)
        plan = MemoryPlan(instance.offsets, peak, lower_bound(buffers), "given")
    else:
        fixed = instance.offsets if options.fixed else None
        plan = pack(buffers, capacity=options.capacity, effort=options.effort, seed=options.seed, fixed=fixed)
    seconds = time.perf_counter() - start
    check_offsets(buffers, plan.offsets, options.capacity)
    print(
        f"{path.stem:<24} {len(buffers):>6} {plan.bound:>14,} {plan.peak:>14,} {plan.ratio:>7.4f} {seconds:>8.2f}",
        flush=True,
    )
    if options.output:
        target = Path(options.output)
        target = target / path.name if target.is_dir() else target
        target.write_text(write(instance, plan.offsets), encoding="utf-8")
    if options.html:
        Path(options.html).write_text(PlanReport(buffers, plan).html(title=path.stem), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
