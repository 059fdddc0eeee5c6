"""Windows in numbers (`ir/windows.Axis`) against counting: every tap of every window, one by one."""

from __future__ import annotations

from itertools import product

import pytest

from lightnet.ir.windows import Axis

AXES = [
    Axis(size, taps, stride, dilation, before, behind, positions)
    for size, taps, stride, dilation, before, behind in product((1, 4, 7), (1, 2, 3), (1, 2, 3), (1, 2), (-1, 0, 2), (-1, 0, 2))
    if (most := (size + before + behind - (taps - 1) * dilation - 1) // stride + 1) > 0
    for positions in {most, most + 1}  # one more is what rounding up gives
]  # fmt: skip


@pytest.mark.parametrize("start", range(4))
def test_windows_are_what_their_taps_are(start):
    assert len(AXES) > 300
    for axis in AXES[start::4]:
        taps = [
            [y * axis.stride + r * axis.dilation - axis.before for r in range(axis.taps)] for y in range(axis.positions)
        ]
        first, last = taps[0][0], taps[-1][-1]
        there = [[0 <= at < axis.size for at in window] for window in taps]
        assert (axis.extent, axis.reach) == (taps[0][-1] - taps[0][0] + 1, last - first + 1), axis
        assert axis.overhang == last - axis.size + 1, axis
        assert axis.clipped == (first < 0 or last >= axis.size), axis
        assert axis.halo == max(-first, last - axis.size + 1, 0), axis
        if all(map(any, there)):
            assert axis.inside().tolist() == [sum(window) for window in there], axis
        counted = [max(sum(at < axis.size + axis.behind for at in window), 1) for window in taps]
        assert axis.counted().tolist() == counted, axis
