"""The process of `lightnet serve`: a socket, uvicorn, and signals. Needs the packages of the extra `serve`."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from contextlib import suppress

from lightnet.diagnostics import LightNetError
from lightnet_serving.app import Service, make_app


def listen(host: str, port: int, backlog: int = 2048) -> socket.socket:
    """A socket that listens; port 0 is any that is free. Raises LightNetError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off on sockets that say they are TCP's; a reply in two parts would wait 40 ms for
    # its second one
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(backlog)
    except (OSError, OverflowError, UnicodeError) as e:
        sock.close()
        raise LightNetError(f"cannot listen on {host}:{port}: {getattr(e, 'strerror', None) or e}") from None
    return sock


def serve(service: Service, sock: socket.socket, *, grace: float, connections: int, log_level: str) -> int:
    """Answer until SIGTERM or SIGINT: no connection is taken after it, and what is accepted is answered, for at most
    `grace` seconds. SIGHUP loads all models again. Beyond so many `connections` at a time, new ones get 503. Returns
    the exit status."""
    import uvicorn

    def started(service: Service) -> None:
        host, port = sock.getsockname()[:2]
        _say(
            service,
            f"serving {', '.join(service.repository.names())} on http://{f'[{host}]' if ':' in host else host}:{port}",
        )
        loop, tasks = asyncio.get_running_loop(), set[asyncio.Task[None]]()

        def reload() -> None:
            tasks.add(task := loop.create_task(_reload(service)))
            task.add_done_callback(tasks.discard)

        loop.add_signal_handler(signal.SIGHUP, reload)

    config = uvicorn.Config(make_app(service, started), lifespan="on", log_level=log_level, access_log=False,
                            limit_concurrency=connections,
                            timeout_graceful_shutdown=max(1, round(grace)), server_header=False, ws="none")  # fmt: skip
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(
            number, lambda *_: None
        )  # uvicorn takes them while it runs, and raises them again when it is done
    uvicorn.Server(config).run(sockets=[sock])
    return 0


async def _reload(service: Service) -> None:
    for name in service.repository.names():
        try:
            await service.repository.load(name)
            _say(service, f"loaded {name} again")
        except Exception as e:
            _say(service, f"cannot load {name} again, and goes on with what is loaded: {e}")


def _say(service: Service, text: str) -> None:
    """Print a line, and what a person should know of the models, on standard error (which may be a file on a disk that
    is full)."""
    notes = service.repository.notes
    with suppress(OSError):
        for note in notes:
            print(f"note: {note}", file=sys.stderr)
        print(text, file=sys.stderr, flush=True)
    notes.clear()
