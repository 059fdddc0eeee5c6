"""Which launches of a program wait for which."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import lightnet
from lightnet.dialects.accesses import LineAccesses
from lightnet.dialects.cuda_launch import CudaLaunchOp
from lightnet.dialects.dependences import launch_waits
from lightnet.ir.module import main_of
from lightnet.runtime.cuda.program import KernelLine

NETS = Path(__file__).parents[3] / "examples" / "nets"


class Touch(NamedTuple):
    space: str
    begin: int
    end: int
    reads: bool
    writes: bool


def reads(begin: int, end: int, space: str = "arena") -> Touch:
    return Touch(space, begin, end, True, False)


def writes(begin: int, end: int, space: str = "arena") -> Touch:
    return Touch(space, begin, end, False, True)


def test_branches_wait_for_their_trunk_alone() -> None:
    trunk, left, right = [writes(0, 8)], [reads(0, 8), writes(8, 16)], [reads(0, 8), writes(16, 24)]
    join = [reads(8, 24), writes(0, 8)]
    assert launch_waits([trunk, left, right, join]) == [(), (0,), (0,), (1, 2)]


def test_what_is_known_to_have_ended_is_not_waited_for() -> None:
    assert launch_waits([[writes(0, 4)], [reads(0, 4), writes(4, 8)], [reads(0, 8), writes(8, 12)]]) == [(), (0,), (1,)]


def test_memory_is_used_again_when_all_have_read_it() -> None:
    assert launch_waits([[reads(0, 4)], [reads(2, 6)], [writes(3, 9)], [reads(0, 3)]]) == [(), (), (0, 1), ()]


def test_spaces_and_bytes_tell_launches_apart() -> None:
    assert launch_waits([[writes(0, 8)], [writes(0, 8, "static")], [writes(8, 9)], [writes(4, 4)]]) == [(), (), (), ()]


def conflict(one: list, other: list) -> bool:
    return any(
        a.space == b.space and max(a.begin, b.begin) < min(a.end, b.end) and (a.writes or b.writes)
        for a in one
        for b in other
    )


def check(launches: list[list], found: list[tuple[int, ...]]) -> None:
    """Against the definition: whoever is in conflict is ordered, directly or through others, and no edge follows from others."""
    reach: list[set[int]] = []
    for i, numbers in enumerate(found):
        reach.append(set(numbers).union(*(reach[n] for n in numbers)))
        assert {k for k in range(i) if conflict(launches[i], launches[k])} <= reach[i]
        for n in numbers:
            assert not any(n in reach[other] for other in numbers)
            assert conflict(launches[i], launches[n]), "an edge for nothing"


@pytest.mark.parametrize("seed", range(20))
def test_random_accesses(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def touch() -> Touch:
        begin = int(rng.integers(30))
        kind = int(rng.integers(3))
        return Touch("ab"[int(rng.integers(2))], begin, begin + int(rng.integers(8)), kind != 1, kind > 0)

    launches = [[touch() for _ in range(int(rng.integers(1, 4)))] for _ in range(40)]
    check(launches, launch_waits(launches))


@pytest.mark.parametrize("net", ["squeezenet1.1.net", "resnet18.net"])
def test_networks(net: str) -> None:
    executable = lightnet.compile(NETS / net, "cuda", emulate=True)
    loops = executable._compilation.loops
    accesses = LineAccesses(loops)
    ops = [op for op in main_of(loops).body.block.ops if isinstance(op, CudaLaunchOp)]
    launches = [accesses.of(op) for op in ops]
    found = launch_waits(launches)
    check(launches, found)
    assert all(sum(a.writes for a in touched) < len(touched) for touched in launches), "params are read alone"
    if net.startswith("squeezenet"):  # the two expansions of a module follow its squeeze
        assert sum(len(n) == 1 and found.count(n) > 1 for n in found) >= 8
    assert [line.after for line in executable.native.code.lines if isinstance(line, KernelLine)] == found
