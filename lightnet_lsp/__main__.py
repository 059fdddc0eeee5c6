"""The `ln-lsp` tool: the language server for MLIR, IL, JSON networks and descriptions, over stdin and stdout.

    ln-lsp [--load FILE] [-I DIR]

An editor starts it (docs/editors.md). It needs pygls, the extra `lsp`.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack

from lightnet.cli.common import ToolParser, run_tool
from lightnet.cli.network import add_load
from lightnet.diagnostics import LightNetError


def main(argv: list[str] | None = None) -> int:
    """The entry point; returns the exit status (1 for every error)."""
    return run_tool(_main, argv)


def _main(argv: list[str]) -> int:
    args = _parser().parse_args(argv)
    try:
        import pygls.lsp.server  # noqa: F401
    except ImportError:
        raise LightNetError(
            "the language server needs pygls: install it with pip install 'lightnet-compiler[lsp]'"
        ) from None
    from lightnet_lsp.documents import Settings
    from lightnet_lsp.server import make_server

    # Stdout is the protocol's: whatever else prints, goes to stderr.
    with ExitStack() as stack, os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        if args.load:
            from lightnet.plugins import loaded

            stack.enter_context(loaded(args.load))
        server = make_server(Settings(tuple(args.include)))
        server.start_io(stdout=out)
    return server.exit_status


def _parser() -> ToolParser:
    p = ToolParser(
        "ln-lsp",
        description="The language server, for an editor to start; it speaks over stdin and stdout.",
        allow_abbrev=False,
    )
    add_load(p)
    p.add_argument("-I", dest="include", action="append", default=[], metavar="DIR", help="a folder for #include of IL")
    p.add_argument("--stdio", action="store_true", help="what it does anyway (editors pass it)")
    return p


if __name__ == "__main__":
    sys.exit(main())
