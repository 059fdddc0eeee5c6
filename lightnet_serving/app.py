"""The routes of the Open Inference Protocol v2 over HTTP, as an ASGI application. Needs the packages of the extra
`serve`."""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from lightnet import __version__
from lightnet.diagnostics import LightNetError
from lightnet_serving import protocol
from lightnet_serving.elements import payload_size
from lightnet_serving.errors import RequestError
from lightnet_serving.metrics import Metrics
from lightnet_serving.repository import ModelSource, Repository, ServedModel, ServingOptions

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request as HttpRequest
    from starlette.responses import Response

#: Bodies and replies from so many bytes on are read and written on a thread: it takes longer than changing to one.
_ASIDE = 16 * 1024


class Service:
    """The models of a server, and what answers requests for them."""

    def __init__(self, sources: Iterable[ModelSource], options: ServingOptions):
        self.options, self.metrics = options, Metrics()
        self.repository = Repository(sources, options, self.metrics)
        self._codec = ThreadPoolExecutor(2, thread_name_prefix="lightnet-codec")

    def open(self) -> Service:
        """Load the models; returns itself. Raises LightNetError."""
        self.repository.open()
        return self

    async def close(self) -> None:
        """Answer what is accepted, and give everything back."""
        await self.repository.close()
        self._codec.shutdown()

    # -- what is there

    async def server(self, http: HttpRequest) -> Response:
        """GET /v2"""
        extensions = ["binary_tensor_data", "model_repository"]
        return _json({"name": "lightnet", "version": __version__, "extensions": extensions})

    async def live(self, http: HttpRequest) -> Response:
        """GET /v2/health/live"""
        return _json({"live": True})

    async def ready(self, http: HttpRequest) -> Response:
        """GET /v2/health/ready"""
        ready = self.repository.ready
        return _json({"ready": ready}, 200 if ready else 503)

    async def model(self, http: HttpRequest) -> Response:
        """GET /v2/models/NAME[/versions/VERSION]"""
        model = self._model(http)
        versions = self.repository.versions(model.name)
        return _json({"name": model.name, "versions": versions, "platform": "lightnet", **model.signature.described()})

    async def model_ready(self, http: HttpRequest) -> Response:
        """GET /v2/models/NAME[/versions/VERSION]/ready"""
        entry = self.repository.entry(http.path_params["name"], http.path_params.get("version"))
        ready = entry.model is not None
        return _json({"name": entry.source.name, "ready": ready}, 200 if ready else 503)

    async def metrics_text(self, http: HttpRequest) -> Response:
        """GET /metrics"""
        from starlette.responses import Response

        text, kind = self.metrics.text()
        return Response(text, headers={"Content-Type": kind})

    def _model(self, http: HttpRequest) -> ServedModel:
        return self.repository.model(http.path_params["name"], http.path_params.get("version"))

    # -- the repository

    async def index(self, http: HttpRequest) -> Response:
        """POST /v2/repository/index"""
        return _json(self.repository.index())

    async def load(self, http: HttpRequest) -> Response:
        """POST /v2/repository/models/NAME/load"""
        self._check_control()
        await self.repository.load(http.path_params["name"])
        return _json({})

    async def unload(self, http: HttpRequest) -> Response:
        """POST /v2/repository/models/NAME/unload"""
        self._check_control()
        await self.repository.unload(http.path_params["name"])
        return _json({})

    def _check_control(self) -> None:
        if not self.options.control:
            raise RequestError(
                "clients do not load or unload models here: the server was started without --control", 403
            )

    # -- inference

    async def infer(self, http: HttpRequest) -> Response:
        """POST /v2/models/NAME[/versions/VERSION]/infer"""
        from starlette.responses import Response

        loop = asyncio.get_running_loop()
        since = loop.time()
        model = self._model(http)
        labels, status = (model.name, model.version), 500
        try:
            with self._accepted(model), model.in_use():
                body, headers = await self._infer(model, http, since + self.options.timeout)
            status = 200
            return Response(body, headers=headers)
        except (RequestError, LightNetError, MemoryError, OSError) as e:
            status = _status(e)
            raise
        except asyncio.CancelledError:
            status = 499  # the server stops, or the client has gone
            raise
        finally:
            self.metrics.requests.labels(*labels, str(status)).inc()
            if status != 200:
                self.metrics.failures.labels(*labels, str(status)).inc()
            self.metrics.request_seconds.labels(*labels).observe(loop.time() - since)

    @contextmanager
    def _accepted(self, model: ServedModel) -> Any:
        """One of the requests that there may be at a time: counted before its body is read, which bounds memory as
        well."""
        entry = self.repository.entry(model.name, model.version)
        if entry.accepted >= self.options.queue:
            raise RequestError(
                f"model '{model.name}' has {entry.accepted} requests, which is as many as it may: try again", 503, 1
            )
        gauge = self.metrics.accepted.labels(model.name, model.version)
        entry.accepted += 1
        gauge.inc()
        try:
            yield
        finally:
            entry.accepted -= 1
            gauge.dec()

    async def _infer(self, model: ServedModel, http: HttpRequest, deadline: float) -> tuple[bytes, dict[str, str]]:
        limit = self.options.max_body or model.signature.body_limit
        body = await read_body(http, limit, deadline)
        header = http.headers.get(protocol.HEADER)
        request = await self._aside(len(body), protocol.read_request, body, header, model.signature)
        del body
        left = max(deadline - asyncio.get_running_loop().time(), 0.001)
        outputs = await model.queue.submit(request.feeds, request.rows, left)
        size = sum(map(payload_size, outputs.values()))
        return await self._aside(size, protocol.write_reply, model.name, model.version, request, outputs)

    async def _aside(self, size: int, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function, on a thread where it has much to read or write."""
        if size < _ASIDE:
            return function(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._codec, function, *arguments)


async def read_body(http: HttpRequest, limit: int, deadline: float) -> bytearray:
    """The body of a request. Raises `RequestError`: 413 where it has more than `limit` bytes (which are then not read),
    408 where it is not there by `deadline`, 415 where it is compressed, 400 where the client went away."""
    from starlette.requests import ClientDisconnect

    if (encoding := http.headers.get("content-encoding", "identity").lower()) != "identity":
        raise RequestError(f"a body is taken as it is, and not with Content-Encoding '{encoding:.40}'", 415)
    length = http.headers.get("content-length", "")
    if length.isdigit() and (len(length) > 18 or int(length) > limit):
        raise _too_large(limit, length)
    body = bytearray()
    try:
        async with asyncio.timeout_at(deadline):
            async for chunk in http.stream():
                body += chunk
                if len(body) > limit:
                    raise _too_large(limit, "more")
    except TimeoutError:
        raise RequestError("the body did not come in time", 408) from None
    except ClientDisconnect:
        raise RequestError("the client went away while it sent the body") from None
    return body


def _too_large(limit: int, size: str) -> RequestError:
    return RequestError(f"a request may have {limit} bytes here, and has {size:.20}", 413)


# -- answers


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse(value, status, headers)


def _status(error: BaseException) -> int:
    """The status that an error is answered with: what a network refuses is the request's fault, as its model loads."""
    if isinstance(error, RequestError):
        return error.status
    return 503 if isinstance(error, MemoryError | OSError) else 400


def _text(error: Exception) -> str:
    """The text of an error; what the system lacks (memory, descriptors, room) by the system's words."""
    if isinstance(error, RequestError | LightNetError):
        return error.message
    return f"the server lacks what it needs: {(isinstance(error, OSError) and error.strerror) or 'out of memory'}"


async def _failed(http: HttpRequest, error: Exception) -> Response:
    """The answer to a request that failed: ``{"error": text}``, and never a traceback."""
    from starlette.exceptions import HTTPException

    if isinstance(error, HTTPException):  # of the router: no such path, no such method
        text = f"{http.method} {http.url.path:.200}: {error.detail}"
        return _json({"error": text}, error.status_code, dict(error.headers or {}))
    if isinstance(error, RequestError | LightNetError | MemoryError | OSError):
        text = _text(error)
        retry = error.retry_after if isinstance(error, RequestError) else None
        return _json({"error": text}, _status(error), {"Retry-After": str(retry)} if retry is not None else None)
    with suppress(OSError):  # a log on a disk that is full
        traceback.print_exception(error, file=sys.stderr)
    return _json({"error": "internal error: the server's log has more"}, 500)


def _answered(handler: Callable[[Any], Awaitable[Response]]) -> Callable[[Any], Awaitable[Response]]:
    async def answered(http: HttpRequest) -> Response:
        try:
            return await handler(http)
        except Exception as e:
            return await _failed(http, e)

    return answered


def make_app(service: Service, started: Callable[[Service], None] | None = None) -> Starlette:
    """The application of a service that is open. `started` is called when it starts; when it stops, all requests are
    answered, and the models closed."""
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.routing import Route

    @asynccontextmanager
    async def lifespan(app: Starlette) -> Any:
        if started is not None:
            started(service)
        yield
        await service.close()

    def route(path: str, handler: Callable[[Any], Awaitable[Response]], method: str = "GET") -> Route:
        return Route(path, _answered(handler), methods=[method])

    routes = [
        route("/v2", service.server),
        route("/v2/health/live", service.live),
        route("/v2/health/ready", service.ready),
        route("/metrics", service.metrics_text),
        route("/v2/repository/index", service.index, "POST"),
        route("/v2/repository/models/{name}/load", service.load, "POST"),
        route("/v2/repository/models/{name}/unload", service.unload, "POST"),
    ]
    for base in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
        routes += [
            route(base, service.model),
            route(f"{base}/ready", service.model_ready),
            route(f"{base}/infer", service.infer, "POST"),
        ]
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _failed})
