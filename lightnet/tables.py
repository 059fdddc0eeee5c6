"""Columns of text and figures with units, for reports on a terminal. Imports diagnostics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from lightnet.diagnostics import printable

#: Cells that stand to the right of their column, where all of it are such: ``12``, ``5.28 G``, ``42.5 MiB``, ``67%``.
_FIGURE = re.compile(r"-?[\d.,]+(e[-+]?\d+)?( ?[kMGT]?i?B?|%)")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Aligned columns, the header first; figures to the right. What a terminal would act on is escaped, line breaks
    too."""
    lines = [tuple(header), *(tuple(printable(cell) for cell in row) for row in rows)]
    columns = list(zip(*lines))
    widths = [max(map(len, column)) for column in columns]
    right = [any(column[1:]) and all(not c or _FIGURE.fullmatch(c) for c in column[1:]) for column in columns]
    padded = ([c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right)] for row in lines)
    return "\n".join("  ".join(row).rstrip() for row in padded)


def some(number: int, what: str) -> str:
    """A number of things: ``1 tensor``, ``2 tensors``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def count(value: float, unit: str = "") -> str:
    """A number with a decimal prefix: ``5.28 G``, ``40 M``, ``12``; three significant digits."""
    for limit, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit * 0.9995:
            return f"{value / limit:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}".rstrip()


def size(nbytes: float) -> str:
    """Bytes with a binary prefix: ``42.5 MiB``, ``640 B``."""
    for limit, prefix in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes >= limit:
            return f"{nbytes / limit:.3g} {prefix}" if nbytes < 999.5 * limit else f"{nbytes / limit:.0f} {prefix}"
    return f"{nbytes:.0f} B"


def shape(dims: Sequence[int | str | None] | None) -> str:
    """``1x3x224x224``; an open dim is its name or ``?``, rank 0 is ``scalar``, an unknown rank ``?``."""
    if dims is None:
        return "?"
    return "x".join("?" if d is None else str(d) for d in dims) or "scalar"


def shortened(text: str, width: int) -> str:
    """`text` in at most so many characters."""
    return text if len(text) <= width else text[: width - 1] + "…"
