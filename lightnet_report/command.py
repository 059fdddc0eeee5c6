"""`lightnet inspect` of what is not compiled (`cli/inspect.py`)."""

from __future__ import annotations

import argparse

from lightnet.cli import feeding
from lightnet.cli.network import Network
from lightnet.diagnostics import LightNetError
from lightnet_report.inspection import inspect
from lightnet_report.survey import survey


def inspect_network(args: argparse.Namespace) -> int:
    """Print what the network that the arguments name is; 1 where something cannot run."""
    try:
        network = Network(args, args.network)
        found = inspect(network.named(), args.target, args.layout)
    except LightNetError as error:
        if args.network == "-":  # it has been read
            raise
        shapes, values = feeding.shapes_of(args.shapes), feeding.fed_values(args.values)
        found = survey(args.network, error, shapes=shapes, values=values, include_dirs=args.include,
                       eval_mode=args.eval,
                       defines=args.define)  # fmt: skip
    print(found.json() if args.json else found.text(args.layers))
    return 0 if found.runs else 1
