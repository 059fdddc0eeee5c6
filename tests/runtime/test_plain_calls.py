"""Calls of open programs in the common case (`runtime/plain_calls.py`), and the numbers that they need (`size_numbers.py`)."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import lightnet
from lightnet.runtime.dims import Size, at, dim_max, dim_min, symbol
from lightnet.runtime.size_numbers import SizeNumbers, line_of

N, M = symbol("n", 1, 60), symbol("m", 0, 96, 8)
#: The new state is a longer one; so are two outputs of odd sizes, one of which stands in the arena.
GROWS = """func.func @main() -> (tensor<2x?x256xf32, #ln.dims<"n(1..60) + 1">>, tensor<1x?x1xf32, #ln.dims<"n(1..60)">>, tensor<1x1x3xf32>) {
  %0 = ln.input : tensor<2x?x256xf32, #ln.dims<"n(1..60)">> as ("state")
  %1 = ln.input {required = true} : tensor<2x1x256xf32> as ("step")
  %2 = ln.concat %0, %1 {axis = 1} : tensor<2x?x256xf32, #ln.dims<"n(1..60) + 1">> as ("new")
  %3 = ln.reduce_sum %0 {axes = [0, 2]} : tensor<1x?x1xf32, #ln.dims<"n(1..60)">> as ("sums")
  %4 = ln.slice %1 {axis = 2, start = 0, len = 3} : tensor<2x1x3xf32>
  %5 = ln.reduce_max %4 {axes = [0, 1]} : tensor<1x1x3xf32> as ("most")
  func.return %2, %3, %5 : tensor<2x?x256xf32, #ln.dims<"n(1..60) + 1">>, tensor<1x?x1xf32, #ln.dims<"n(1..60)">>, tensor<1x1x3xf32>
}"""


def size(rng: random.Random, depth: int = 3) -> Size:
    if depth == 0:
        return rng.choice((N, M, rng.randint(-3, 70)))
    a, b = size(rng, depth - 1), size(rng, depth - 1)
    return rng.choice((lambda: a + b, lambda: a - b, lambda: a * b, lambda: a // rng.choice((2, 3, 256)), lambda: dim_max(a, b),
                       lambda: dim_min(a, b)))()  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_numbers_are_those_of_each_size(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [size(rng) for _ in range(6)]
    numbers = SizeNumbers([next(iter(s.symbols)) for s in (N, M)])
    places = [numbers.place(s) for s in sizes]
    for n in (1, 2, 17, 60):
        for m in (0, 8, 96):
            found = numbers.at((n, m))
            assert [found[k] for k in places] == [at(s, {"n": n, "m": m}) for s in sizes]


def test_equal_sizes_are_computed_once() -> None:
    numbers = SizeNumbers([next(iter(N.symbols))])
    assert len({numbers.place(s) for s in (2 * N + 1, N + N + 1, 1 + 2 * N)}) == 1
    assert len(numbers.at((5,))) == 2


def test_lines() -> None:
    (n,), (m,) = N.symbols, M.symbols
    assert line_of(N) == (n, 1, 0) and line_of(2 * N + 1) == (n, 2, 1) and line_of(M + 4) == (m, 8, 4)
    assert not any(map(line_of, (7, N + M, N * N, N // 2, dim_max(N, 9))))


@pytest.fixture(scope="module")
def grows() -> lightnet.Executable:
    return lightnet.compile(lightnet.loads(GROWS, ".mlir"))


def fed(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng((n, seed))
    return {"state": rng.standard_normal((2, n, 256), np.float32), "step": rng.standard_normal((2, 1, 256), np.float32)}


def check(feeds: dict[str, np.ndarray], found: dict[str, np.ndarray] | None) -> None:
    assert found is not None and [*found] == ["new", "sums", "most"]
    state, step = feeds["state"], feeds["step"]
    np.testing.assert_array_equal(found["new"], np.concatenate([state, step], 1))
    np.testing.assert_allclose(found["sums"][0, :, 0], state.sum((0, 2), dtype=float), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(found["most"][0, 0], step[:, 0, :3].max(0))


def test_each_shape_is_a_quick_call(grows: lightnet.Executable) -> None:
    quick = grows.instance.quick
    for n in (1, 60, 2, 33, 2, 59, *range(1, 61)):
        check(fed(n), quick(fed(n)))


def test_a_cache_is_fed_back(grows: lightnet.Executable) -> None:
    feeds = fed(1)
    for n in range(1, 60):
        found = grows(feeds)
        check(feeds, found)
        feeds = {"state": found["new"], "step": fed(1, n)["step"]}


def test_outputs_are_new_each_time(grows: lightnet.Executable) -> None:
    first = grows(fed(7))
    kept = {name: array.copy() for name, array in first.items()}
    grows(fed(7, 1)), grows(fed(8))
    for name, array in first.items():
        np.testing.assert_array_equal(array, kept[name])
        assert not np.shares_memory(array, grows(fed(7))[name])


@pytest.mark.parametrize("change", [
    lambda f: {**f, "state": f["state"].astype(np.float64)},  # is converted
    lambda f: {**f, "state": np.asfortranarray(f["state"])},  # is copied
    lambda f: {**f, "state": f["state"].tolist()},
])  # fmt: skip
def test_what_is_no_plain_call_is_a_call(grows: lightnet.Executable, change) -> None:
    given = change(fed(5))
    assert grows.instance.quick(given) is None
    check(fed(5), grows(given))


@pytest.mark.parametrize("feeds, says", [
    (lambda: {"state": np.zeros((2, 61, 256), np.float32), "step": np.zeros((2, 1, 256), np.float32)}, "n is 61"),
    (lambda: {"state": np.zeros((2, 0, 256), np.float32), "step": np.zeros((2, 1, 256), np.float32)}, "n is 0"),
    (lambda: {"state": np.zeros((2, 5, 15), np.float32), "step": np.zeros((2, 1, 256), np.float32)}, "has shape"),
    (lambda: {"state": np.zeros((2, 5), np.float32), "step": np.zeros((2, 1, 256), np.float32)}, "has shape"),
    (lambda: {"state": np.zeros((2, 5, 256), np.float32), "step": np.zeros((2, 2, 256), np.float32)}, "has shape"),
    (lambda: {"state": np.zeros((2, 5, 256), np.float32)}, "step"),
])  # fmt: skip
def test_mistakes_are_said(grows: lightnet.Executable, feeds, says: str) -> None:
    for _ in range(2):
        assert grows.instance.quick(feeds()) is None
        with pytest.raises(lightnet.LightNetError, match=says):
            grows(feeds())


def test_threads_have_memory_of_their_own(grows: lightnet.Executable) -> None:
    def run(seed: int) -> None:
        for n in random.Random(seed).sample(range(1, 61), 40):
            feeds = fed(n, seed)
            check(feeds, grows(feeds))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(4)))


def test_memory_grows_and_stays(grows: lightnet.Executable) -> None:
    """An arena that is large enough is kept, one that is not is replaced by a little more than is needed."""
    rooms = grows.instance._rooms
    grows(fed(60))
    sizes = [room.bytes.nbytes for room in rooms._idle]
    for n in (1, 30, 60):
        grows(fed(n))
    assert [room.bytes.nbytes for room in rooms._idle] == sizes
    assert max(sizes) <= 1.07 * grows.program.at((60,)).memory["arena"] + 64


def test_calls_of_both_kinds_share_their_memory(grows: lightnet.Executable) -> None:
    for _ in range(2):
        check(fed(60), grows(fed(60)))
        check(fed(60), grows({name: array.tolist() for name, array in fed(60).items()}))
    (room,) = grows.instance._rooms._idle[-1:]
    assert room.arenas and all(arena.bytes is room.bytes for arena in room.arenas.values())


def test_a_call_that_is_interrupted_leaves_nothing(grows: lightnet.Executable, monkeypatch) -> None:
    """Wherever it was: the room that it had is not used again."""
    from lightnet.runtime.plain_calls import Room

    check(fed(60), grows(fed(60)))
    before, hold = len(grows.instance._rooms._idle), Room.hold

    def interrupted(self: Room, nbytes: int) -> None:
        hold(self, nbytes)
        raise KeyboardInterrupt

    with monkeypatch.context() as m:
        m.setattr(Room, "hold", interrupted)
        with pytest.raises(KeyboardInterrupt):
            grows(fed(9))
    assert len(grows.instance._rooms._idle) == before - 1
    check(fed(9), grows(fed(9)))


def test_an_output_for_which_there_is_no_memory(grows: lightnet.Executable, monkeypatch) -> None:
    """An error of ours, as from other calls."""
    check(fed(20), grows(fed(20)))

    def refused(*_: object) -> np.ndarray:
        raise MemoryError

    feeds = fed(20)
    with monkeypatch.context() as m:
        m.setattr(np, "empty", refused)
        with pytest.raises(lightnet.LightNetError, match="cannot allocate"):
            grows(feeds)
    check(feeds, grows(feeds))
