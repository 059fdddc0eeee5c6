"""`lightnet inspect NET`: what a network is, without running it: inputs and outputs, ops and their costs, parameters,
the memory it takes on a target.

Weights are not needed. What cannot run is listed all at once, by op, number and reason, also of a network that cannot
be imported; what is known of the graph is shown then. The exit status is 1 where something cannot run.
"""

from __future__ import annotations

import argparse

from lightnet.cli import common
from lightnet.cli.network import add_layout, add_loading, add_trust
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.ir.resolving import resolve_beside


def main(argv: list[str]) -> int:
    """The subcommand; returns the exit status."""
    args = _parser().parse_args(argv)
    from lightnet.plugins import loaded

    with loaded(args.load):
        return _inspect(args)


def _parser() -> common.ToolParser:
    parser = common.ToolParser(
        "lightnet inspect", description="Say what a network is, and what it takes.", allow_abbrev=False
    )
    option = parser.add_argument
    option(
        "network",
        metavar="NET",
        help="a network: .onnx, -symbol.json, .net, .json or .mlir; - is stdin; or an executable of `lightnet compile`",
    )
    option("--layers", action="store_true", help="the table of all ops: shapes, parameters, operations, bytes, source")
    option("--json", action="store_true", help="everything as JSON")
    option(
        "-t", "--target", metavar="NAME", default="cpu", help="plan for a target: cpu (default), or none for no plan"
    )
    add_layout(parser)
    add_trust(parser)
    add_loading(parser)
    return parser


def _inspect(args: argparse.Namespace) -> int:
    from lightnet.runtime.artifact import is_saved

    if is_saved(args.network):
        from lightnet.cli import saved

        if args.layers:
            raise LightNetError(
                "--layers needs the network, and this is a compiled executable", SourceLoc(args.network)
            )
        return saved.inspect_saved(args)
    from lightnet.ir.target import get_target

    get_target(args.target)
    return resolve_beside("lightnet_report.command:inspect_network", "command 'inspect' of a network")(args)
