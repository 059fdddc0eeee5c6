"""A model's queue, and who runs its calls: on threads, several requests in one call where the model allows.

All state belongs to the event loop's thread, so that there are no locks: `Workers` counts the threads that are free,
and a `Queue` hands them its requests. Calls of networks leave Python's lock, so that threads suffice. Imports NumPy and
the standard library.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from lightnet.dataclasses import dataclass, field
from lightnet_serving.errors import RequestError

Arrays = Mapping[str, np.ndarray]
#: Called with the requests of a call that ended, and the seconds that it took.
Watcher = Callable[[Sequence["QueuedRequest"], float], None]


class Workers:
    """So many threads for the calls of all models; a queue that finds none free is asked again, in turn, when one
    is."""

    def __init__(self, count: int):
        self.free = self.count = count
        self.pool = ThreadPoolExecutor(count, thread_name_prefix="lightnet-call")
        self._waiting: OrderedDict[Queue, None] = OrderedDict()

    def take(self, queue: Queue) -> bool:
        """Take a free thread; where there is none, `queue.pump` is called later."""
        if self.free:
            self.free -= 1
            return True
        self._waiting[queue] = None
        return False

    def give(self) -> None:
        """Give a thread back."""
        self.free += 1
        while self.free and self._waiting:
            self._waiting.popitem(last=False)[0].pump()


@dataclass
class QueuedRequest:
    """A request in a queue: its arrays, how many rows (0: it is a call of its own), when it came, and what waits for
    its outputs."""

    feeds: dict[str, np.ndarray]
    rows: int
    since: float
    done: asyncio.Future[Arrays]
    started: float = field(default=0.0)


class Queue:
    """The requests of one model. With `rows`, one call takes up to so many rows, of requests that feed the same inputs:
    it begins when they are there, or when the oldest has waited for `delay` seconds, and a thread is free. Rows that no
    request has are zeros."""

    def __init__(self, call: Callable[[dict[str, np.ndarray]], Arrays], workers: Workers, *, rows: int = 0,
                 delay: float = 0.0,
                 watch: Watcher | None = None):  # fmt: skip
        self._call, self._workers, self._rows, self._delay = call, workers, rows, delay
        self._watch = watch
        self._items: deque[QueuedRequest] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._running: set[asyncio.Future[Any]] = set()

    def __len__(self) -> int:
        """The number of requests that wait for a thread."""
        return sum(not item.done.done() for item in self._items)

    async def submit(self, feeds: dict[str, np.ndarray], rows: int, timeout: float | None) -> Arrays:
        """The outputs of a request, those of its rows alone. Raises what the call raises, and `RequestError` (504)
        after `timeout` seconds: what waits is then not run, and what runs is not waited for."""
        loop = asyncio.get_running_loop()
        item = QueuedRequest(feeds, rows, loop.time(), loop.create_future())
        self._items.append(item)
        self.pump()
        try:
            return await asyncio.wait_for(item.done, timeout)
        except TimeoutError:
            state = "it runs" if item.started else "it was not begun"
            raise RequestError(f"no result after {timeout:g} seconds: {state}", 504) from None

    def pump(self) -> None:
        """Start calls as long as there are requests that are due, and threads."""
        while (due := self._due()) is not None:
            if due > 0:
                self._wake_in(due)
                return
            if not self._workers.take(self):
                return
            self._start(self._taken())

    def _due(self) -> float | None:
        """In how many seconds a call should begin; None where no request waits."""
        while self._items and self._items[0].done.done():  # timed out, or its caller has gone
            self._items.popleft()
        if not self._items:
            return None
        if not self._rows or sum(item.rows for item in self._items) >= self._rows:
            return 0.0
        return self._items[0].since + self._delay - asyncio.get_running_loop().time()

    def _wake_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.pump)

    def _taken(self) -> list[QueuedRequest]:
        """The requests of the next call, out of the queue: in order, up to the first that does not fit."""
        taken, rows = [self._items.popleft()], 0
        if self._rows:
            rows = taken[0].rows
            while self._items:
                item = self._items[0]
                if not item.done.done():
                    if rows + item.rows > self._rows or item.feeds.keys() != taken[0].feeds.keys():
                        break
                    taken.append(item)
                    rows += item.rows
                self._items.popleft()
        return taken

    def _start(self, items: list[QueuedRequest]) -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()
        for item in items:
            item.started = start
        running = loop.run_in_executor(self._workers.pool, self._run, items)
        self._running.add(running)
        running.add_done_callback(lambda future: self._ended(items, future, loop.time() - start))

    def _ended(
        self, items: list[QueuedRequest], future: asyncio.Future[list[Arrays | Exception]], seconds: float
    ) -> None:
        self._running.discard(future)
        if self._watch is not None:
            self._watch(items, seconds)
        for item, result in zip(items, future.result()):
            if item.done.done():
                continue
            if isinstance(result, Exception):
                item.done.set_exception(result)
            else:
                item.done.set_result(result)
        self._workers.give()
        self.pump()

    def _run(self, items: list[QueuedRequest]) -> list[Arrays | Exception]:
        """On a thread: the outputs of each request, or what its call raised. One that the network refuses does not fail
        those beside it."""
        try:
            return list(self._outputs(items))
        except Exception as e:
            return [e] if len(items) == 1 else [result for item in items for result in self._run([item])]

    def _outputs(self, items: list[QueuedRequest]) -> list[Arrays]:
        """The outputs of each request, from one call."""
        if not self._rows:
            return [self._call(items[0].feeds)]
        outputs = self._call({name: self._joined([item.feeds[name] for item in items]) for name in items[0].feeds})
        found: list[Arrays] = []
        row = 0
        for item in items:
            found.append({name: array[row : row + item.rows] for name, array in outputs.items()})
            row += item.rows
        return found

    def _joined(self, arrays: list[np.ndarray]) -> np.ndarray:
        """The rows of all, and zeros behind them."""
        if len(arrays) == 1 and len(arrays[0]) == self._rows:
            return arrays[0]
        whole = np.full((self._rows, *arrays[0].shape[1:]), blank(arrays[0].dtype), arrays[0].dtype)
        row = 0
        for array in arrays:
            whole[row : row + len(array)] = array
            row += len(array)
        return whole

    async def drained(self) -> None:
        """Wait until nothing waits or runs."""
        while waiting := [item.done for item in self._items if not item.done.done()] + list(self._running):
            await asyncio.wait(waiting)


def blank(dtype: np.dtype) -> Any:
    """The contents of rows that no request has: zeros, or empty texts."""
    return "" if dtype.hasobject else np.zeros((), dtype)


def mixes_rows(
    call: Callable[[dict[str, np.ndarray]], Arrays], inputs: Mapping[str, tuple[Any, np.dtype]], rows: int
) -> str | None:
    """The name of an output in which a row depends on other rows, by trying: calls on random rows, on the same with
    zeros in the rear half (the front must not change by a bit), and in reverse order (within rounding). None where no
    row does."""
    from lightnet.runtime.dtypes import is_float

    rng = np.random.default_rng(0)

    def drawn(dims: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        if dtype.hasobject:
            return rng.choice(np.array(["", "a", "b c", "a a b"], object), dims)
        if is_float(dtype):
            return rng.normal(size=dims).astype(dtype)
        return rng.integers(0, 2, dims).astype(dtype)

    feeds = {name: drawn(dims, dtype) for name, (dims, dtype) in inputs.items()}
    half = {name: array.copy() for name, array in feeds.items()}
    for array in half.values():
        array[rows // 2 :] = blank(array.dtype)
    whole = {name: np.array(array) for name, array in call(feeds).items()}
    front = call(half)
    back = call({name: np.ascontiguousarray(array[::-1]) for name, array in feeds.items()})
    for name, array in whole.items():
        before, after = (np.ascontiguousarray(a[: rows // 2]) for a in (array, front[name]))
        if not _same(before, after) or not _agree(array, np.asarray(back[name])[::-1]):
            return name
    return None


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether arrays are equal to the bit."""
    return a.tolist() == b.tolist() if a.dtype.hasobject else a.tobytes() == b.tobytes()


def _agree(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether arrays are equal but for what the order of sums may change."""
    if a.dtype.kind in "iubO":
        return bool(np.array_equal(a, b))
    a, b = a.astype(np.float64), b.astype(np.float64)
    scale = np.nanmax(np.abs(a[np.isfinite(a)]), initial=0.0)
    return bool(np.allclose(a, b, rtol=1e-3, atol=1e-3 * scale, equal_nan=True))
