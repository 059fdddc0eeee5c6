"""Memory planning: the packer against exhaustive search, the checker against broken plans, the pool against upstream.

Oracles that are not our planner: enumeration of all integer offsets, a byte map filled position by position, upstream's
published pool addresses, and the MiniMalloc instances, whose capacity is known to suffice.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from counting import calls
from hypothesis import given, settings
from hypothesis import strategies as st
from minimalloc import Instance, main, read, write

from lightnet.diagnostics import LightNetError
from lightnet.passes.planning import Buffer, MemoryPlan, check_offsets, lower_bound, pack
from lightnet.passes.planning.buffers import Conflicts
from lightnet.passes.planning.greedy import UNPLACED, conflict_weights, contention, orders, place_buffers
from lightnet.passes.planning.search import EjectionSearch
from lightnet.passes.planning.upstream import Pool

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests" / "data" / "minimalloc"


def instance(name: str) -> list[Buffer]:
    path = DATA / f"{name}.csv"
    return read(path.read_text(), str(path)).buffers


def live(b: Buffer, time: int) -> bool:
    return b.lower <= time < b.upper and not any(first <= time < last for first, last in b.gaps)


def is_valid(buffers: list[Buffer], offsets: dict[str, int]) -> bool:
    """The definition of a plan, byte by byte and position by position."""
    if any(offsets[b.id] % b.alignment or offsets[b.id] < 0 for b in buffers):
        return False
    for t in range(min(b.lower for b in buffers), max(b.upper for b in buffers)):
        taken: set[int] = set()
        for b in buffers:
            mine = set(range(offsets[b.id], offsets[b.id] + b.size)) if live(b, t) else set()
            if taken & mine:
                return False
            taken |= mine
    return True


def peak_of(buffers: list[Buffer], offsets: dict[str, int]) -> int:
    return max((offsets[b.id] + b.size for b in buffers), default=0)


def exact_peak(buffers: list[Buffer], fixed: dict[str, int] | None = None) -> int:
    """The lowest possible peak: backtracking over every integer offset."""
    fixed = fixed or {}
    clash = {
        (a.id, b.id): a.size * b.size > 0 and any(live(a, t) and live(b, t) for t in range(a.lower, a.upper))
        for a in buffers for b in buffers
    }  # fmt: skip
    order = sorted(buffers, key=lambda b: (b.id not in fixed, -b.size))

    def fits(height: int, k: int, placed: list[tuple[Buffer, int]]) -> bool:
        if k == len(order):
            return True
        b = order[k]
        for x in [fixed[b.id]] if b.id in fixed else range(0, height - b.size + 1, b.alignment):
            if x + b.size <= height and all(
                x >= y + c.size or y >= x + b.size or not clash[b.id, c.id] for c, y in placed
            ):
                if fits(height, k + 1, [*placed, (b, x)]):
                    return True
        return False

    height = max((b.size + fixed.get(b.id, 0) for b in buffers), default=0)
    while not fits(height, 0, []):
        height += 1
    return height


@st.composite
def problems(draw, most: int = 7, sizes: int = 6, rich: bool = True) -> list[Buffer]:
    """Small problems: times below 9; with `rich`, alignments, gaps, negative times and empty buffers."""
    buffers = []
    for k in range(draw(st.integers(1, most))):
        lower = draw(st.integers(-2 if rich else 0, 7))
        upper = draw(st.integers(lower + 1, 9))
        gaps: tuple[tuple[int, int], ...] = ()
        if rich and upper - lower > 2 and draw(st.booleans()):
            first = draw(st.integers(lower, upper - 1))
            gaps = ((first, draw(st.integers(first + 1, upper))),)
        size = draw(st.integers(0 if rich else 1, sizes))
        buffers.append(Buffer(f"b{k}", lower, upper, size, draw(st.sampled_from([1, 1, 2, 3, 4])) if rich else 1, gaps))
    return buffers


# The packer


@settings(max_examples=80, deadline=None)
@given(problems())
def test_a_plan_is_valid_and_never_below_the_bound(buffers):
    plan = pack(buffers)
    check_offsets(buffers, plan.offsets, plan.peak)
    assert is_valid(buffers, plan.offsets)
    assert plan.peak == peak_of(buffers, plan.offsets) >= plan.bound == lower_bound(buffers)


@settings(max_examples=60, deadline=None)
@given(problems(most=6, sizes=5))
def test_the_lower_bound_is_sound_and_the_plan_is_optimal_on_tiny_problems(buffers):
    exact = exact_peak(buffers)
    assert lower_bound(buffers) <= exact
    assert pack(buffers, effort="high").peak == exact


def test_greedy_alone_is_near_the_optimum_and_search_reaches_it():
    """A fixed sample of tiny problems without slack: the search must close every gap that greedy leaves."""
    source = random.Random(7)
    greedy = 0
    for _ in range(40):
        buffers = [
            Buffer(f"b{k}", a := source.randrange(8), a + source.randint(1, 6), source.randint(1, 6)) for k in range(6)
        ]
        exact = exact_peak(buffers)
        greedy += pack(buffers, effort="fast").peak == exact
        assert pack(buffers).peak == exact
    assert greedy >= 30


@settings(max_examples=60, deadline=None)
@given(problems(most=4, sizes=4), st.data())
def test_fixed_offsets_are_kept_and_the_rest_is_packed_around_them(buffers, data):
    anywhere = {b.id: data.draw(st.integers(0, 2)) * b.alignment for b in buffers if data.draw(st.booleans())}
    if anywhere and not is_valid([b for b in buffers if b.id in anywhere], anywhere):
        with pytest.raises(LightNetError, match="share bytes"):
            pack(buffers, fixed=anywhere)
        return
    plan = pack(buffers, fixed=anywhere)
    assert is_valid(buffers, plan.offsets)
    assert {name: plan.offsets[name] for name in anywhere} == anywhere
    assert plan.bound <= exact_peak(buffers, anywhere) <= plan.peak


@pytest.mark.parametrize("name", ["A.1048576", "C.1048576"])
def test_minimalloc_instances_come_close_to_the_bound(name):
    buffers = instance(name)
    plan = pack(buffers)
    check_offsets(buffers, plan.offsets, plan.peak)
    assert plan.ratio <= 1.15
    assert plan.bound <= 1048576  # every one of them can be packed into that


def test_search_improves_on_greedy_with_alignment_and_gaps():
    """The instances with lifetimes cut by gaps and sizes that leave paddings: valid, and better than greedy."""
    source = random.Random(3)
    buffers = []
    for b in instance("B.1048576"):
        third = (b.upper - b.lower) // 3
        gaps = ((b.lower + third, b.upper - third),) if third and source.random() < 0.3 else ()
        buffers.append(replace(b, size=b.size + source.randrange(200), alignment=256, gaps=gaps))
    greedy, searched = pack(buffers, effort="fast"), pack(buffers)
    check_offsets(buffers, searched.offsets, searched.peak)
    assert searched.peak < greedy.peak
    assert searched.ratio < 1.2


def test_equal_arguments_give_equal_plans():
    buffers = instance("E.1048576")
    first = pack(buffers, effort=1500, seed=1)
    assert pack(buffers, effort=1500, seed=1) == first
    assert pack(buffers, effort=1500, seed=2).offsets != first.offsets
    program = (
        "from pathlib import Path; from lightnet.passes.planning import pack\n"
        "from minimalloc import read\n"
        f"b = read(Path({str(DATA / 'E.1048576.csv')!r}).read_text(), 'E').buffers\n"
        "print(sorted(pack(b, effort=1500, seed=1).offsets.items()))"
    )
    # Another process has other string hashes.
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT / "tools"
    )
    assert out.stdout.strip() == str(sorted(first.offsets.items()))


def chain(n: int, seed: int = 0) -> list[Buffer]:
    """Results of a chain of `n` ops: most die at the next op, some are skip connections."""
    source = random.Random(seed)
    return [
        Buffer(
            f"t{i}",
            i,
            min(n + 1, i + 2 + (source.randrange(1, 12) if source.random() < 0.2 else 0)),
            source.choice([1, 2, 4, 16]) * source.randrange(1000, 9000),
            64,
        )
        for i in range(n)
    ]


def test_a_long_chain_is_packed_in_near_linear_time():
    small, large = chain(1000), chain(8000)
    with calls() as few:
        pack(small)
    with calls() as many:
        plan = pack(large)
    check_offsets(large, plan.offsets, plan.peak)
    assert plan.ratio < 1.01
    assert many.count < 24 * few.count  # a quadratic one: 64


def test_many_permanent_buffers_are_stacked_at_once():
    """Five thousand parameters that all live throughout are 12.5 million conflicts, and no problem."""
    params = [Buffer(f"p{i}", 0, 2001, i * 7 % 1000 + 1, 64) for i in range(5000)]
    buffers = params + chain(2000)
    with calls(at_most=2_000_000):
        plan = pack(buffers)
    check_offsets(buffers, plan.offsets)
    assert plan.peak == plan.bound


def test_a_dense_problem_stores_no_pairs_and_places_as_a_sparse_one(monkeypatch):
    """The numpy path and the list path are two implementations: they place every buffer alike."""
    source = random.Random(1)
    buffers = [
        Buffer(
            f"b{k}",
            a := source.randrange(150),
            a + source.randint(1, 120),
            source.randint(1, 99),
            4,
            ((a, a + 1),) if k % 9 == 0 else (),
        )
        for k in range(150)
    ]
    sparse = Conflicts(buffers)
    monkeypatch.setattr("lightnet.passes.planning.buffers.STORED_PAIRS", 0)
    dense = Conflicts(buffers)
    assert sparse.stored and not dense.stored
    for i, b in enumerate(buffers):
        meets = [
            j
            for j, c in enumerate(buffers)
            if j != i and any(live(b, t) and live(c, t) for t in range(b.lower, b.upper))
        ]
        assert sorted(sparse.of(i)) == sorted(dense.of(i)) == meets
        array = sparse.array(i)
        assert sorted(array.tolist()) == meets and array.dtype == np.int64
        assert sparse.array(i) is array, "a list is made an array once"
    for best_fit in (True, False):
        one, two = [UNPLACED] * len(buffers), [UNPLACED] * len(buffers)
        place_buffers(buffers, sparse, range(len(buffers)), best_fit, one)
        monkeypatch.setattr("lightnet.passes.planning.greedy.VECTOR_FROM", 0)
        place_buffers(buffers, dense, range(len(buffers)), best_fit, two)
        monkeypatch.undo()
        assert one == two


@given(problems(rich=False))
def test_heuristic_keys_agree_with_their_definitions(buffers):
    overlaps = [[c for c in buffers if c.lower < b.upper and b.lower < c.upper] for b in buffers]
    assert conflict_weights(buffers) == [sum(c.size for c in near) for near in overlaps]
    assert contention(buffers) == [
        max(sum(c.size for c in buffers if live(c, t)) for t in range(b.lower, b.upper)) for b in buffers
    ]


@given(problems(rich=False))
def test_orders_are_those_of_their_names(buffers):
    """Most of the name's number first (of time least); ties fall as is said, by number last, so that a plan is one plan."""
    weights, peaks = conflict_weights(buffers), contention(buffers)
    ties = [(b.lower - b.upper, -b.size, b.lower, i) for i, b in enumerate(buffers)]
    wanted = {
        "time": [(b.lower, -b.size, -b.upper, i) for i, b in enumerate(buffers)],
        "reverse time": [(-b.upper, -b.size, b.lower, i) for i, b in enumerate(buffers)],
        "size": [(-b.size, *ties[i]) for i, b in enumerate(buffers)],
        "area": [(-b.size * (b.upper - b.lower), *ties[i]) for i, b in enumerate(buffers)],
        "lifetime": [(b.lower - b.upper, *ties[i]) for i, b in enumerate(buffers)],
        "conflicts": [(-weights[i], *ties[i]) for i in range(len(buffers))],
        "conflicts x size": [(-weights[i] * b.size, *ties[i]) for i, b in enumerate(buffers)],
        "contention": [(-peaks[i], *ties[i]) for i in range(len(buffers))],
    }
    found = dict(orders(buffers, range(len(buffers))))
    assert found.keys() == wanted.keys()
    for name, order in found.items():
        assert [wanted[name][i] for i in order] == sorted(wanted[name]), name


def test_small_cases():
    assert pack([]) == MemoryPlan({}, 0, 0, "stack")
    assert pack([Buffer("a", 0, 1, 0)]).offsets == {"a": 0}
    # Disjoint lifetimes share everything; touching half-open intervals are disjoint.
    assert pack([Buffer("a", 0, 2, 8), Buffer("b", 2, 4, 8)]).peak == 8
    # Never live, yet it has an offset: the peak is above it.
    assert pack([Buffer("a", 0, 2, 8, gaps=((0, 2),)), Buffer("b", 0, 2, 4)]).peak == 8
    # A buffer fits into the gap of another.
    assert pack([Buffer("a", 0, 9, 8, gaps=((3, 6),)), Buffer("b", 3, 6, 8)]).peak == 8
    # Only the topmost buffer goes without its padding, and it is the one with the largest.
    assert pack([Buffer("a", 0, 1, 65, 64), Buffer("b", 0, 1, 127, 64)]).peak == 128 + 65
    assert lower_bound([Buffer("a", 0, 1, 65, 64), Buffer("b", 0, 1, 127, 64)]) == 128 + 65


def test_capacity():
    buffers = [Buffer("a", 0, 2, 8), Buffer("b", 1, 3, 8)]
    assert pack(buffers, capacity=16).peak == 16
    with pytest.raises(LightNetError, match="at least 16 bytes at one time, the capacity is 15"):
        pack(buffers, capacity=15)
    # At most 4 bytes are live at once, but b finds no two bytes free beside both a and c where they are pinned.
    pinned = [Buffer("a", 0, 2, 2), Buffer("b", 1, 3, 2), Buffer("c", 2, 4, 2)]
    with pytest.raises(LightNetError, match=r"no plan within the capacity of 4 bytes .* needs 5, the lower bound is 4"):
        pack(pinned, capacity=4, fixed={"a": 0, "c": 1})


@pytest.mark.parametrize(
    ("buffers", "label"),
    [
        ([Buffer("a", 0, 1, 1), Buffer("a", 1, 2, 1)], "plan.duplicate-id"),
        ([Buffer("a", 2, 2, 1)], "plan.lifetime"),
        ([Buffer("a", 0, 1, -1)], "plan.size"),
        ([Buffer("a", 0, 1, 1, 0)], "plan.size"),
        ([Buffer("a", 0, 4, 1, 1, ((3, 5),))], "plan.gap"),
        ([Buffer("a", 0, 4, 1, 1, ((2, 2),))], "plan.gap"),
        ([Buffer("a", 0, 4, 1 << 62)], "plan.limit"),
        ([Buffer("a", 0, 4, 0, (1 << 61) + 1)], "plan.limit"),
        ([Buffer("a", 0, 4, (1 << 60) + 1, 1 << 60)], "plan.limit"),
        ([Buffer("a", 0, 4, 1 << 60, 1 << 59), Buffer("b", 0, 4, 1, 1 << 59)], "plan.limit"),
        ([Buffer("a", 0, 1 << 61, 1)], "plan.limit"),
        ([Buffer("a", -1 << 61, 0, 1)], "plan.limit"),
    ],
)
def test_malformed_buffers_are_refused(buffers, label):
    with pytest.raises(LightNetError) as caught:
        pack(buffers)
    assert caught.value.label == label


def test_buffers_just_below_the_limits_are_packed():
    """Sizes and the alignments that they may have to be rounded to, all added up; first and last positions."""
    fits = [Buffer("a", 0, 4, 1 << 60, 1 << 59), Buffer("b", 0, 4, 0, 1 << 59)]
    assert pack(fits).peak == 1 << 60
    assert pack([Buffer("a", 1 - (1 << 61), (1 << 61) - 1, (1 << 61) - 1)]).peak == (1 << 61) - 1


def test_unknown_effort_and_unknown_fixed_buffers_are_refused():
    with pytest.raises(LightNetError, match="unknown effort 'huge': expected one of fast, default, high"):
        pack([], effort="huge")
    with pytest.raises(LightNetError, match="'b', which is no buffer"):
        pack([Buffer("a", 0, 1, 1)], fixed={"b": 0})


# The checker


@settings(max_examples=150, deadline=None)
@given(problems(), st.data())
def test_the_checker_agrees_with_the_definition(buffers, data):
    offsets = {b.id: data.draw(st.integers(-1, 14)) for b in buffers}
    capacity = data.draw(st.integers(1, 20))
    fits = all(offsets[b.id] + b.size <= capacity for b in buffers)
    if fits and is_valid(buffers, offsets):
        check_offsets(buffers, offsets, capacity)
        return
    with pytest.raises(LightNetError):
        check_offsets(buffers, offsets, capacity)


def test_the_checker_catches_every_kind_of_mutation():
    buffers = [replace(b, alignment=1024) for b in instance("A.1048576")]
    plan = pack(buffers, effort="fast")
    good = plan.offsets
    check_offsets(buffers, good, plan.peak)
    first = buffers[0]
    cases = [
        ({k: v for k, v in good.items() if k != first.id}, None, "plan.missing-id"),
        (good | {"ghost": 0}, None, "plan.unknown-id"),
        (good | {first.id: good[first.id] + 512}, None, "plan.alignment"),
        (good | {first.id: -1024}, None, "plan.offset"),
        (good | {first.id: 0.0}, None, "plan.offset"),
        (good, plan.peak - 1, "plan.capacity"),
    ]
    for offsets, capacity, label in cases:
        with pytest.raises(LightNetError) as caught:
            check_offsets(buffers, offsets, capacity)
        assert caught.value.label == label
    # Move each buffer onto another one that is live with it.
    source = random.Random(0)
    for b in buffers:
        other = source.choice([c for c in buffers if c is not b and c.lower < b.upper and b.lower < c.upper])
        with pytest.raises(LightNetError) as caught:
            check_offsets(buffers, good | {b.id: good[other.id]})
        assert caught.value.label == "plan.overlap"


def test_an_overlap_names_both_buffers_their_lifetimes_and_bytes():
    buffers = [Buffer("conv1", 0, 5, 100), Buffer("relu1", 3, 9, 64)]
    with pytest.raises(LightNetError) as caught:
        check_offsets(buffers, {"conv1": 0, "relu1": 96})
    assert caught.value.message == (
        "buffers 'conv1' (live [0, 5), 100 bytes) and 'relu1' (live [3, 9), 64 bytes) share bytes at time 3: "
        "[0, 100) and [96, 160)"
    )


# Upstream's pool


@pytest.mark.parametrize(
    ("align", "sizes", "addresses", "more"),
    [
        # (size, address): after freeing blocks 2 and 4; after freeing block 3; after freeing the first of these.
        (1, [10, 8, 2, 4, 6], [1, 11, 19, 21, 25], [(2, 21), (9, 11), (5, 20)]),
        (8, [10, 9, 2, 4, 6], [8, 24, 40, 48, 56], [(8, 48), (11, 24), (16, 40)]),
    ],
)
def test_the_pool_gives_upstreams_addresses(align, sizes, addresses, more):
    """The two unit tests of the C implementation, replayed (sizes, then frees and allocations in turn)."""
    pool = Pool(1 << 20, align)
    assert [pool.alloc(n) for n in sizes] == addresses
    pool.dealloc(addresses[1])
    pool.dealloc(addresses[3])
    assert pool.alloc(more[0][0]) == more[0][1]
    pool.dealloc(addresses[2])
    assert pool.alloc(more[1][0]) == more[1][1]
    pool.dealloc(more[0][1])
    assert pool.alloc(more[2][0]) == more[2][1]
    assert pool.exist(more[2][1]) and not pool.exist(more[2][1] + 1)


class ListPool:
    """The pool as upstream describes it: one list of blocks, searched from its head."""

    def __init__(self, size: int, align: int) -> None:
        self.align, self.blocks = align, [(1, size, False)]

    def alloc(self, n: int) -> int | None:
        best = None
        for k, (start, end, used) in enumerate(self.blocks):
            at = -(-start // self.align) * self.align
            if not used and at + n - 1 <= end and (best is None or end - at + 1 < best[0]):
                best = (end - at + 1, k, at)
        if best is None:
            return None
        _, k, at = best
        start, end, _ = self.blocks[k]
        pieces = [(start, at - 1, False), (at, at + n - 1, True), (at + n, end, False)]
        self.blocks[k : k + 1] = [p for p in pieces if p[0] <= p[1]]
        return at

    def dealloc(self, address: int) -> None:
        merged: list[tuple[int, int, bool]] = []
        for start, end, used in self.blocks:
            used = used and start != address
            if merged and not used and not merged[-1][2]:
                merged[-1] = (merged[-1][0], end, False)
            else:
                merged.append((start, end, used))
        self.blocks = merged


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([1, 3, 8]), st.lists(st.integers(-4, 12), max_size=50))
def test_the_pool_agrees_with_a_plain_list_of_blocks(align, script):
    """Positive numbers allocate, others free one of the blocks in use."""
    pool, model, used = Pool(90, align), ListPool(90, align), []
    for n in script:
        if n > 0:
            expected = model.alloc(n)
            if expected is None:
                with pytest.raises(LightNetError, match="out of space"):
                    pool.alloc(n)
                continue
            assert pool.alloc(n) == expected
            used.append(expected)
        elif used:
            address = used.pop(n % len(used))
            pool.dealloc(address)
            model.dealloc(address)
    rows = re.findall(r"\[(\d+), (\d+)\] \d+ (used|hole)", pool.dump())
    assert [(int(a), int(b), kind == "used") for a, b, kind in rows] == model.blocks


def test_the_pool_refuses_misuse():
    pool = Pool(16)
    assert pool.alloc(16) == 1
    assert pool.high_water == 17
    for action in (lambda: pool.alloc(1), lambda: pool.alloc(0), lambda: pool.dealloc(5), lambda: Pool(0)):
        with pytest.raises(LightNetError):
            action()


# MiniMalloc files


def test_the_published_example_fits_into_twelve_bytes():
    assert pack(instance("input.12")).peak == 12


def test_old_column_names_gaps_and_offsets_are_read():
    text = "buffer_id,start,end,size,alignment,gaps,offset\nx,0,9,8,4,2-3 5-6@0:4,12\n"
    found = read(text, "f.csv")
    assert found.buffers == [Buffer("x", 0, 10, 8, 4, ((2, 4),))]
    assert found.offsets == {"x": 12}
    again = write(found, {"x": 16})
    assert again == "id,lower,upper,size,alignment,gaps,offset\nx,0,10,8,4,2-4 5-7@0:4,16\n"


@settings(max_examples=60, deadline=None)
@given(problems())
def test_files_round_trip(buffers):
    buffers = [b for b in buffers if b.lower >= 0]
    offsets = pack(buffers, effort="fast").offsets
    found = read(write(Instance(buffers), offsets), "f.csv")
    assert (found.buffers, found.offsets) == (buffers, offsets)


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("", "f.csv:1:1", "expected a header"),
        ("id,lower,upper\n", "f.csv:1:1", "the column 'size' is missing"),
        ("id,lower,upper,size,colour\n", "f.csv:1:21", "unknown column 'colour'"),
        ("id,lower,begin,upper,size\n", "f.csv:1:10", "two columns give the lower"),
        ("id,lower,upper,size\na,0,1\n", "f.csv:2:5", "expected 4 fields, got 3"),
        ("id,lower,upper,size\na,0,x,1\n", "f.csv:2:5", "expected an integer for upper, got 'x'"),
        ("id,lower,upper,size\na,0,1,1\nb,4,4,1\n", "f.csv:3:1", "empty lifetime"),
        ("id,lower,upper,size\na,0,1,1\na,0,1,1\n", "f.csv", "two buffers are called 'a'"),
        ("id,lower,upper,size,gaps\na,0,9,1,3\n", "f.csv:2:9", "expected a gap such as"),
        ("id,lower,upper,size\na,0,1," + "9" * 5000 + "\n", "f.csv:2:7", "expected an integer for size"),
    ],
)
def test_a_broken_file_is_refused_with_its_place(text, where, message):
    with pytest.raises(LightNetError) as caught:
        read(text, "f.csv")
    assert str(caught.value.loc) == where
    assert message in caught.value.message


def test_the_tool_packs_checks_and_writes_answers(tmp_path, capsys):
    answer, page = tmp_path / "answer.csv", tmp_path / "plan.html"
    example = str(DATA / "input.12.csv")
    assert main([example, "-o", str(answer), "-c", "12", "--html", str(page)]) == 0
    assert re.search(r"input\.12 +5 +12 +12 +1\.0000", capsys.readouterr().out)
    assert main(["--check", str(answer)]) == 0
    assert "<svg" in page.read_text()
    answer.write_text(re.sub(r"\d+$", "0", answer.read_text(), flags=re.MULTILINE))
    capsys.readouterr()
    assert main(["--check", str(answer)]) == 1
    assert "share bytes" in capsys.readouterr().err
    assert main([example, "-c", "11"]) == 1
    assert main([str(tmp_path / "none.csv")]) == 1
    assert "Traceback" not in capsys.readouterr().err


def test_a_search_among_pinned_buffers_ends_where_none_can_be_lower():
    """The buffer that finds no room beside pinned ones stops the search at once; the best plan so far stays."""
    pinned = [Buffer("a", 0, 2, 2), Buffer("b", 1, 3, 2), Buffer("c", 2, 4, 2)]
    buffers = [*pinned, *(Buffer(f"d{k}", 5 + k, 7 + k, 2) for k in range(6))]
    offsets = [0, 3, 1, *(2 * (k % 2) for k in range(6))]
    search = EjectionSearch(buffers, Conflicts(buffers), offsets, frozenset((0, 2)), 4, 0)
    search.run(1000)
    assert search.peak == 5 and search._step == 1 and search.offsets.tolist() == offsets
    plan = pack(buffers, fixed={"a": 0, "c": 1}, effort=1000)
    check_offsets(buffers, plan.offsets, 5)
    assert (plan.peak, plan.bound, plan.offsets["a"], plan.offsets["c"]) == (5, 4, 0, 1)


def test_steps_of_a_search_are_bounded_by_what_it_places(monkeypatch):
    """However many are asked for, 600 for each buffer are enough; what is less is taken as it is."""
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(EjectionSearch, "run", lambda self, steps: asked.append((len(self.offsets), steps)))
    source = random.Random(3)
    for count in range(8, 24):
        buffers = [
            Buffer(f"b{k}", a := source.randrange(20), a + source.randint(1, 9), source.randint(1, 99), 4)
            for k in range(count)
        ]
        for effort in (0, 1, 600, 10**9):
            pack(buffers, effort=effort)
    counts = [n for n, _ in asked[::3]]
    assert asked == [(n, steps) for n in counts for steps in (1, 600, 600 * n)]
    assert len(set(counts)) > 3, "there, greedy misses the bound"


def test_a_search_keeps_what_is_pinned():
    """It lowers greedy plans, and pinned buffers stay where they are."""
    source, lowered = random.Random(11), 0
    for seed in range(24):
        buffers = [
            Buffer(f"b{k}", a := source.randrange(9), a + source.randint(1, 6), source.randint(1, 9)) for k in range(10)
        ]
        fixed = {"b0": source.randrange(4)}
        greedy, searched = pack(buffers, fixed=fixed, effort="fast"), pack(buffers, fixed=fixed, effort=150, seed=seed)
        check_offsets(buffers, searched.offsets, searched.peak)
        assert is_valid(buffers, searched.offsets) and searched.offsets["b0"] == fixed["b0"]
        assert searched.bound <= searched.peak <= greedy.peak
        lowered += searched.peak < greedy.peak
    assert lowered >= 3


def test_capacity_is_met_exactly_by_a_search():
    """Greedy needs more than the bound, the search does not: the capacity is met with every effort that has a name."""
    source = random.Random(7)
    while True:
        buffers = [
            Buffer(f"b{k}", a := source.randrange(8), a + source.randint(1, 6), source.randint(1, 6)) for k in range(6)
        ]
        greedy, best = pack(buffers, effort="fast"), pack(buffers, effort="high")
        if greedy.peak > best.peak == best.bound:
            break
    assert pack(buffers, capacity=best.peak, effort="fast").peak == best.peak
    assert pack(buffers, capacity=greedy.peak, effort="fast") == greedy
    with pytest.raises(
        LightNetError, match=f"no plan within the capacity of {best.peak} bytes was found: the best needs {greedy.peak}"
    ):
        pack(buffers, capacity=best.peak, effort=0)
    for effort in (-1, "", "0"):
        with pytest.raises(
            LightNetError, match=f"unknown effort {effort!r}: expected one of fast, default, high or a number of steps"
        ):
            pack(buffers, effort=effort)
