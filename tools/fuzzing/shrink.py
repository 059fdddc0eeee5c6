"""Smaller files with the same fault: lines, then bytes, halved down, as long as a judge finds the same signature."""

from __future__ import annotations

from collections.abc import Callable

#: Cases that one file may cost.
TESTS = 300


def smaller(data: bytes, same: Callable[[bytes], bool], tests: int = TESTS) -> bytes:
    """`data` without what `same` does not need, within a number of tests."""
    for pieces in (data.splitlines(True), None):
        parts = pieces if pieces is not None else [data[i : i + 1] for i in range(len(data))]
        step = max(1, len(parts) // 2)
        while step and tests > 0:
            at = 0
            while at < len(parts) and tests > 0:
                shorter = parts[:at] + parts[at + step :]
                tests -= 1
                if same(b"".join(shorter)):
                    parts = shorter
                else:
                    at += step
            step //= 2
        data = b"".join(parts)
    return data
