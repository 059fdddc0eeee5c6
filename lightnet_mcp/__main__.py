"""The `ln-mcp` tool: a server of the Model Context Protocol over stdin and stdout, for programs that use the bench.

    ln-mcp --root nets/ [--load FILE]

Its tools check, bisect, isolate, reduce, compare, inspect and run passes, on networks below one folder; answers are the
verdicts of docs/verdicts.md. Code of plugins runs only where the server was started with it. It needs the extra `mcp`.
"""

from __future__ import annotations

import sys

from lightnet.cli.common import ToolParser, run_tool
from lightnet.diagnostics import LightNetError


def main(argv: list[str] | None = None) -> int:
    """The entry point; returns the exit status (1 for every error)."""
    return run_tool(_main, argv)


def _main(argv: list[str]) -> int:
    args = _parser().parse_args(argv)
    from lightnet_mcp.bench import Bench, Bounds

    bench = Bench(args.root, args.load, Bounds(args.seconds, args.memory << 30), args.installed)
    try:
        from lightnet_mcp.server import make_server
    except ImportError as e:
        if (e.name or "").partition(".")[0] not in ("mcp", "anyio"):
            raise
        raise LightNetError(
            "the server needs the SDK of the protocol: install it with pip install 'lightnet-compiler[mcp]'"
        ) from None
    make_server(bench).run("stdio")
    return 0


def _parser() -> ToolParser:
    p = ToolParser("ln-mcp", description="A server of the Model Context Protocol, over stdin and stdout.",
                   allow_abbrev=False)  # fmt: skip
    p.add_argument("--root", metavar="DIR", required=True, help="the folder of networks; nothing else is read")
    p.add_argument("--load", metavar="FILE", action="append", default=[],
                   help="a plugin for all requests: it runs with your rights, on whatever they ask")  # fmt: skip
    p.add_argument("--installed", action="store_true", help="let plugins of installed packages be found, too")
    p.add_argument("--seconds", metavar="N", type=int, default=120, help="end a command after so long (%(default)s)")
    p.add_argument("--memory", metavar="GIB", type=int, default=16, help="address space of a command (%(default)s)")
    return p


if __name__ == "__main__":
    sys.exit(main())
