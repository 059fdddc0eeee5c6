"""The models of a server: loaded, reloaded and unloaded while requests run, each on the model that it was read for.

Imports NumPy, the standard library and the diagnostics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet_serving.batching import Queue, QueuedRequest, Workers, mixes_rows
from lightnet_serving.errors import RequestError, shown_value
from lightnet_serving.metrics import Metrics
from lightnet_serving.signature import Servable, Signature, common_rows


@dataclass(frozen=True)
class ModelSource:
    """The source of a model: `load` reads it, on a thread, and raises LightNetError."""

    name: str
    load: Callable[[], Servable]
    version: str = "1"


@dataclass(frozen=True)
class ServingOptions:
    """The options of serving: `delay` is for how many seconds a request may wait for others to share a call with (None:
    never), `timeout` how many seconds a request may take, `queue` how many requests of a model there may be at a time,
    `workers` how many calls, and `max_body` the bytes of a request (None: what the model's inputs take,
    `Signature.body_limit`). `control` lets clients load and unload the models that there are."""

    delay: float | None = None
    timeout: float = 30.0
    queue: int = 128
    workers: int = 1
    max_body: int | None = None
    control: bool = False


class ServedModel:
    """A loaded model: its signature, and its queue."""

    def __init__(
        self,
        source: ModelSource,
        runnable: Servable,
        rows: int,
        workers: Workers,
        options: ServingOptions,
        metrics: Metrics,
    ):
        self.name, self.version, self._runnable = source.name, source.version, runnable
        self.signature = Signature.of(runnable, rows)
        self._labels = (source.name, source.version)
        self._metrics = metrics
        self.queue = Queue(runnable, workers, rows=rows, delay=options.delay or 0.0, watch=self._watch)
        self._users = 0
        self._unused = asyncio.Event()
        self._unused.set()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """While a request has this model, from before its body is read: `retire` waits for it."""
        self._users += 1
        self._unused.clear()
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                self._unused.set()

    def _watch(self, items: Sequence[QueuedRequest], seconds: float) -> None:
        metrics, labels = self._metrics, self._labels
        metrics.calls.labels(*labels).inc()
        metrics.call_seconds.labels(*labels).observe(seconds)
        metrics.batch.labels(*labels).observe(len(items))
        metrics.rows.labels(*labels).inc(sum(max(item.rows, 1) for item in items))
        for item in items:
            metrics.queue_seconds.labels(*labels).observe(item.started - item.since)

    async def retire(self) -> None:
        """Close the executable once its last request is answered."""
        await self._unused.wait()
        await self.queue.drained()
        close = getattr(self._runnable, "close", None)
        if close is not None:
            close()


@dataclass
class _Entry:
    """A version of a model: its source, what is loaded of it, and why nothing is."""

    source: ModelSource
    model: ServedModel | None = None
    reason: str = "not loaded yet"
    accepted: int = 0


class Repository:
    """The models by name and version."""

    def __init__(self, sources: Iterable[ModelSource], options: ServingOptions, metrics: Metrics):
        self.options, self.metrics = options, metrics
        self.workers = Workers(options.workers)
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="lightnet-load")
        self._lock = asyncio.Lock()
        self._retiring: set[asyncio.Task[None]] = set()
        self._entries: dict[str, dict[str, _Entry]] = {}
        #: What a person should know of the models, in the order found.
        self.notes: list[str] = []
        for source in sources:
            versions = self._entries.setdefault(source.name, {})
            if source.version in versions:
                raise LightNetError(
                    f"model '{source.name}' is given twice as version {source.version}: name them NAME=FILE or "
                    "NAME:VERSION=FILE"
                )
            versions[source.version] = _Entry(source)

    # -- finding

    def names(self) -> list[str]:
        """The names of all models."""
        return list(self._entries)

    def versions(self, name: str) -> list[str]:
        """The versions of a model that are loaded, in ascending order."""
        return [v for v, entry in self._versions(name).items() if entry.model is not None]

    def _versions(self, name: str) -> dict[str, _Entry]:
        if name not in self._entries:
            there = ", ".join(list(self._entries)[:8]) or "none"
            raise RequestError(f"there is no model {shown_value(name)}; there are: {there}", 404)
        return dict(sorted(self._entries[name].items(), key=lambda item: (len(item[0]), item[0])))

    def entry(self, name: str, version: str | None = None) -> _Entry:
        """The entry of a version (None: the highest that is loaded). Raises `RequestError` (404)."""
        versions = self._versions(name)
        if version is None:
            loaded = [entry for entry in versions.values() if entry.model is not None]
            return (loaded or list(versions.values()))[-1]
        if version not in versions:
            raise RequestError(
                f"model '{name}' has no version {shown_value(version)}; there are: {', '.join(versions)}", 404
            )
        return versions[version]

    def model(self, name: str, version: str | None = None) -> ServedModel:
        """A loaded model. Raises `RequestError`: 404 where there is none of that name or version, 503 where it is not
        loaded."""
        entry = self.entry(name, version)
        if entry.model is None:
            raise RequestError(f"model '{name}', version {entry.source.version}, is not loaded: {entry.reason}", 503)
        return entry.model

    @property
    def ready(self) -> bool:
        """True if all models are loaded."""
        return all(entry.model is not None for versions in self._entries.values() for entry in versions.values())

    def index(self) -> list[dict[str, str]]:
        """The protocol's index: name, version, state, and the reason where a model is not ready."""
        found = []
        for name in self._entries:
            for version, entry in self._versions(name).items():
                state = "READY" if entry.model is not None else "UNAVAILABLE"
                found.append({"name": name, "version": version, "state": state, "reason": entry.reason})
        return found

    # -- loading

    def open(self) -> None:
        """Load every model, before requests come. Raises LightNetError."""
        for versions in self._entries.values():
            for entry in versions.values():
                with self._counted(entry):
                    try:
                        self._place(entry, *self._read(entry.source))
                    except OSError as e:
                        raise LightNetError(
                            f"model '{entry.source.name}' cannot be loaded: {e.strerror or e}"
                        ) from None

    async def load(self, name: str) -> None:
        """Load all versions of a model again, beside requests. What is loaded stays where that fails, and answers the
        requests that it has where it does not. Raises LightNetError; `RequestError` (404) for an unknown name."""
        async with self._lock:
            for entry in self._versions(name).values():
                with self._counted(entry):
                    read = await asyncio.get_running_loop().run_in_executor(self._loader, self._read, entry.source)
                    self._place(entry, *read)

    @contextmanager
    def _counted(self, entry: _Entry) -> Iterator[None]:
        """Count a load by how it ends."""
        loads = self.metrics.loads.labels(entry.source.name, entry.source.version, "ok")
        try:
            yield
        except Exception as e:
            loads = self.metrics.loads.labels(entry.source.name, entry.source.version, "error")
            if entry.model is None:
                entry.reason = str(e)
            raise
        finally:
            loads.inc()

    def _place(self, entry: _Entry, runnable: Servable, rows: int) -> None:
        model = ServedModel(entry.source, runnable, rows, self.workers, self.options, self.metrics)
        self.metrics.waiting.labels(model.name, model.version).set_function(
            lambda: len(entry.model.queue) if entry.model is not None else 0
        )
        self._retire(entry)
        entry.model, entry.reason = model, ""

    def _read(self, source: ModelSource) -> tuple[Servable, int]:
        """On the loader's thread: the executable, and how many rows a call of several requests has (0: a call is of one
        request)."""
        runnable = source.load()
        rows = common_rows(Signature.of(runnable))
        if self.options.delay is None:
            return runnable, 0
        if rows < 2:
            self.notes.append(
                f"model '{source.name}': each request is a call of its own, since its inputs and outputs have no batch "
                "in common"
            )
            return runnable, 0
        try:
            name = mixes_rows(runnable, runnable.inputs, rows)
        except LightNetError as e:
            self.notes.append(
                f"model '{source.name}': each request is a call of its own, since it refuses rows such as others would "
                f"be put beside: {e.message}"
            )
            return runnable, 0
        if name is not None:
            self.notes.append(
                f"model '{source.name}': each request is a call of its own, since rows of output '{name}' depend on "
                "other rows"
            )
            return runnable, 0
        return runnable, rows

    def _retire(self, entry: _Entry) -> None:
        if entry.model is not None:
            task = asyncio.get_running_loop().create_task(entry.model.retire())
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)
            entry.model = None

    async def unload(self, name: str) -> None:
        """Take all versions of a model out of service; requests that it has are answered. Raises `RequestError`
        (404)."""
        async with self._lock:
            for entry in self._versions(name).values():
                self._retire(entry)
                entry.reason = "unloaded"

    async def close(self) -> None:
        """Answer what is accepted, and close all models."""
        for name in self._entries:
            await self.unload(name)
        await asyncio.gather(*self._retiring)
        self.workers.pool.shutdown()
        self._loader.shutdown()
