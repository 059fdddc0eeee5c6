"""Models for tests of serving that need no compiler, and a client of an application in this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import numpy as np

from lightnet_serving.app import Service, make_app
from lightnet_serving.repository import ModelSource, ServingOptions

Types = Mapping[str, tuple[tuple[int, ...], Any]]


class Model:
    """A callable that says what it takes and gives; it counts its calls, and may be slow."""

    def __init__(self, inputs: Types, outputs: Types, call: Callable[..., dict[str, np.ndarray]], seconds: float = 0.0):
        self.inputs = {name: (dims, np.dtype(dtype)) for name, (dims, dtype) in inputs.items()}
        self.outputs = {name: (dims, np.dtype(dtype)) for name, (dims, dtype) in outputs.items()}
        self.function, self.seconds = call, seconds
        self.calls: list[int] = []
        self.closed = False

    def __call__(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        assert not self.closed
        for name, array in feeds.items():
            assert (array.shape, array.dtype) == self.inputs[name] and array.flags.c_contiguous and array.flags.aligned
        if self.seconds:
            time.sleep(self.seconds)
        self.calls.append(len(next(iter(feeds.values()))))
        return self.function(**feeds)

    def close(self) -> None:
        self.closed = True


def affine(rows: int = 8, seconds: float = 0.0, scale: float = 2.0) -> Model:
    """y = scale x + 1, z = whether x is positive, of `rows` rows of four."""
    return Model(
        {"x": ((rows, 4), np.float32)},
        {"y": ((rows, 4), np.float32), "z": ((rows,), np.bool_)},
        lambda x: {"y": np.float32(scale) * x + 1, "z": x.sum(axis=1) > 0},
        seconds,
    )


def served(model: Any, talk: Callable[[Any, Service], Awaitable[Any]], **options: Any) -> Any:
    """What `talk` returns, called with an httpx client of an application that serves models by name (or one, called ``m``), and the service."""
    import httpx

    models = model if isinstance(model, dict) else {"m": model}
    sources = [
        ModelSource(n, m if callable(m) and not hasattr(m, "inputs") else (lambda m=m: m)) for n, m in models.items()
    ]

    async def main() -> Any:
        async with asyncio.timeout(60):
            return await within()

    async def within() -> Any:
        service = Service(sources, ServingOptions(**options)).open()
        app = make_app(service)
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60) as client:
                return await talk(client, service)

    return asyncio.run(main())


def tensor(name: str, array: np.ndarray, datatype: str = "FP32", **more: Any) -> dict[str, Any]:
    """A tensor of a request in JSON."""
    return {"name": name, "shape": list(array.shape), "datatype": datatype, "data": array.reshape(-1).tolist(), **more}
