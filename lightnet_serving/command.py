"""`lightnet serve NET.lnx ...`: answer requests for networks over HTTP (docs/serve.md). Needs the packages of the extra
`serve`; of the compiler only where a network is to be compiled first."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightnet.cli import common, targets
from lightnet.cli.network import Network, add_loading, add_precision, add_trust, run_options
from lightnet.cli.targets import add_target
from lightnet.cli.warning import Warnings, add_warnings
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.ir.runtime import RUN

if TYPE_CHECKING:
    from lightnet_serving.repository import ModelSource, ServingOptions


def main(argv: list[str]) -> int:
    """The subcommand; returns the exit status."""
    args = _parser(argv).parse_args(argv)
    options = _options(args)
    _check_installed()
    from lightnet_serving import server
    from lightnet_serving.app import Service

    service = Service(_sources(args), options)
    sock = server.listen(args.host, args.port)
    with sock:
        service.open()
        return server.serve(service, sock, grace=args.grace, connections=args.connections, log_level=args.log_level)


def _parser(argv: Sequence[str] | None = None) -> common.ToolParser:
    parser = common.ToolParser("lightnet serve",
                           description="Answer requests for networks over HTTP, by the Open Inference Protocol v2.",
                           allow_abbrev=False)  # fmt: skip
    option = parser.add_argument
    option("models", metavar="[NAME[:VERSION]=]FILE", nargs="+",
           help="an executable (.lnx), or a network that is compiled first; its name is the file's unless given, its "
                "version 1")  # fmt: skip
    option(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="where to listen (default: 127.0.0.1; 0.0.0.0 for all of this machine's addresses)",
    )
    option("--port", type=int, default=8000, metavar="N", help="the port (default: 8000; 0 for any that is free)")
    option(
        "--threads",
        type=int,
        metavar="N",
        help="how many threads a call may use (default: what the executable does unless told)",
    )
    option(
        "--workers",
        type=int,
        metavar="N",
        help="how many calls run at a time (default: as many as there are processors)",
    )
    option("--batch-delay", type=float, metavar="MS",
           help="put requests together in one call, up to the network's batch; none waits longer than this for others "
                "(default: each is a call of its own)")  # fmt: skip
    option(
        "--queue",
        type=int,
        default=128,
        metavar="N",
        help="how many requests of a model there may be at a time; others get 503 (default: 128)",
    )
    option("--timeout", type=float, default=30, metavar="SECONDS", help="how long a request may take (default: 30)")
    option(
        "--max-body",
        type=int,
        metavar="BYTES",
        help="how large a request may be (default: what the model's inputs take)",
    )
    option(
        "--connections",
        type=int,
        default=512,
        metavar="N",
        help="how many connections there may be at a time; others get 503 (default: 512)",
    )
    option(
        "--grace",
        type=float,
        default=30,
        metavar="SECONDS",
        help="how long a stop waits for requests that are accepted (default: 30)",
    )
    option(
        "--control",
        action="store_true",
        help="let clients load models again, and unload them (SIGHUP loads all again in any case)",
    )
    option(
        "--log-level",
        default="warning",
        choices=["critical", "error", "warning", "info", "debug"],
        help="what the server logs (default: warning)",
    )
    add_target(parser, RUN, argv, "of networks that are compiled first: the target (default: cpu)")
    add_precision(parser)
    add_loading(parser)
    add_trust(parser)
    add_warnings(parser)
    return parser


def _options(args: argparse.Namespace) -> ServingOptions:
    from lightnet.runtime.threads import thread_count
    from lightnet_serving.repository import ServingOptions

    for name, least in (
        ("queue", 1),
        ("connections", 1),
        ("workers", 1),
        ("max_body", 1),
        ("timeout", 0.001),
        ("batch_delay", 0),
        ("grace", 0),
    ):
        value = getattr(args, name)
        if value is not None and not least <= value < 2**40:
            raise LightNetError(f"--{name.replace('_', '-')} should be at least {least}, and is {value}")
    if args.threads is not None:
        thread_count(args.threads)
    delay = None if args.batch_delay is None else args.batch_delay / 1000
    workers = args.workers or len(os.sched_getaffinity(0))
    return ServingOptions(delay, args.timeout, args.queue, workers, args.max_body, args.control)


def _check_installed() -> None:
    """Raise LightNetError where a package of the extra `serve` is not there."""
    from importlib.util import find_spec

    if missing := [name for name in ("starlette", "uvicorn", "prometheus_client") if find_spec(name) is None]:
        name = "lightnet-compiler" if find_spec("lightnet.compiler") else "lightnet-runtime"
        raise LightNetError(f"`lightnet serve` needs {', '.join(missing)}: pip install '{name}[serve]'")


def _sources(args: argparse.Namespace) -> list[ModelSource]:
    from lightnet_serving.repository import ModelSource

    found = []
    for word in args.models:
        label, path = ("", word) if os.path.exists(word) or "=" not in word else word.split("=", 1)
        name, _, version = label.partition(":")
        name = name or Path(path).stem
        version = version or "1"
        if not name.isprintable() or "/" in name or "/" in version or not version.isprintable():
            raise LightNetError(
                f"'{label or name:.80}' cannot be a model's name: it stands in a URL (give one: NAME={path})"
            )
        found.append(ModelSource(name, partial(_load, path, args), version))
    return found


def _load(path: str, args: argparse.Namespace) -> Any:
    """The executable of a file: a saved one, or that of a network."""
    from lightnet.runtime.artifact import is_saved, load_executable
    from lightnet.runtime.hosted import of_tensors

    if path.endswith(".lnx") or is_saved(path):
        from lightnet.plugins import loaded

        with loaded(args.load):
            run: Any = load_executable(path, trust=args.trust, **targets.given(args))
    elif args.trust:
        raise LightNetError("--trust is for executables, and this is a network", SourceLoc(path))
    else:
        run = _compiled(path, args)
    run = of_tensors(run)
    return run if args.threads is None else _Threads(run, args.threads)


def _compiled(path: str, args: argparse.Namespace) -> Any:
    from lightnet.plugins import loaded

    warnings = Warnings(args.warnings)
    with loaded(args.load), warnings.of_descriptions():
        network = Network(args, path)
        network.named()  # one executable for all shapes, where some are open
        warnings.show(network.warnings)
        run = network.compile(args.target, threads=args.threads, **run_options(args))
        run.prepare()
        warnings.show(run.warnings if args.datafile or run.missing else ())
        return run


class _Threads:
    """An executable whose calls use so many threads."""

    def __init__(self, run: Any, threads: int):
        self.inputs, self.outputs, self.program = run.inputs, run.outputs, run.program
        self.host = getattr(run, "host", None)
        self.close: Callable[[], None] = run.close
        self._run = partial(run, threads=threads)
        limit = self.program.threads
        if threads > limit:
            raise LightNetError(f"--threads {threads}: the executable is compiled for {limit}")

    def __call__(self, feeds: dict[str, Any]) -> dict[str, Any]:
        return self._run(feeds)
