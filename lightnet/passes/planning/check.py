"""The independent checker of memory plans. It trusts nothing: it knows buffers and offsets, and no planner.

One sweep over time keeps the byte ranges in use as a sorted list; a range that starts may touch only its two
neighbours there, if the list was disjoint before. Imports `buffers` and the standard library.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence

from lightnet.diagnostics import LightNetError

from .buffers import Buffer, validate


def check_offsets(buffers: Sequence[Buffer], offsets: Mapping[str, int], capacity: int | None = None) -> None:
    """Raise `LightNetError` unless `offsets` (bytes, by id) is a plan for exactly these buffers.

    A plan: each offset is a non-negative multiple of its buffer's alignment, no range reaches above `capacity`, and no
    two buffers that are live at the same time share a byte. Takes O(n log n) comparisons for n buffers with their gaps.
    """
    validate(buffers)
    names = {b.id for b in buffers}
    for name in offsets:
        if name not in names:
            raise LightNetError(f"the plan has an offset for '{name}', which is no buffer", label="plan.unknown-id")
    for b in buffers:
        if b.id not in offsets:
            raise LightNetError(f"the plan has no offset for buffer {b}", label="plan.missing-id")
        x = offsets[b.id]
        if not isinstance(x, int) or x < 0:
            raise LightNetError(f"buffer {b} has the offset {x!r}, expected an integer >= 0", label="plan.offset")
        if x % b.alignment:
            raise LightNetError(
                f"buffer {b} stands at offset {x}, which is no multiple of {b.alignment}", label="plan.alignment"
            )
        if capacity is not None and x + b.size > capacity:
            raise LightNetError(
                f"buffer {b} takes bytes [{x}, {x + b.size}), the capacity is {capacity}", label="plan.capacity"
            )
    _check_disjoint([b for b in buffers if b.size], offsets)


def _check_disjoint(buffers: Sequence[Buffer], offsets: Mapping[str, int]) -> None:
    events = []
    for k, b in enumerate(buffers):
        for lower, upper in b.segments():
            events += [(lower, 1, k), (upper, 0, k)]
    events.sort()  # at one time, ends come before starts: lifetimes are half-open
    live: list[tuple[int, int]] = []  # (offset, index), sorted, disjoint
    for time, starts, k in events:
        b = buffers[k]
        entry = (offsets[b.id], k)
        if not starts:
            del live[bisect_left(live, entry)]
            continue
        at = bisect_left(live, entry)
        for other in live[max(0, at - 1) : at + 1]:
            c = buffers[other[1]]
            if other[0] < entry[0] + b.size and entry[0] < other[0] + c.size:
                raise LightNetError(
                    f"buffers {c} and {b} share bytes at time {time}: "
                    f"[{other[0]}, {other[0] + c.size}) and [{entry[0]}, {entry[0] + b.size})",
                    label="plan.overlap",
                )
        insort(live, entry)
