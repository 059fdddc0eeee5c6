"""`il2json [-o FILE] [FILE]`: LightNet IL as JSON IR. Ops are not checked, unless `--load FILE` says which there are.

A file whose suffix is that of another form of text, as one that a plugin's front end reads, is translated from that
form.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import PurePath

from lightnet.cli import common
from lightnet.cli.network import add_load
from lightnet.cli.warning import Message, Warnings, add_warnings
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.frontends import json_ir
from lightnet.frontends.il import reader as il
from lightnet.frontends.il.evals import MODES
from lightnet.frontends.netlist import Netlist, netlist_of


def main(argv: list[str] | None = None) -> int:
    """The entry point; the exit status is 1 for every error, also of usage, and then no file is written."""
    return common.run_tool(_main, argv)


def _main(argv: list[str]) -> int:
    parser = common.ToolParser(prog="il2json", description="Translate a network in LightNet IL to JSON IR.")
    parser.add_argument("file", nargs="?", default="-", help="the network (default: standard input)")
    parser.add_argument(
        "-o", "--outfile", metavar="FILE", default="-", help="where to write (default: standard output)"
    )
    parser.add_argument("-I", dest="include", metavar="DIR", action="append", default=[], help="a folder for #include")
    parser.add_argument("-D", dest="define", metavar="NAME[=VALUE]", action="append", default=[], help="define a macro")
    parser.add_argument(
        "--eval", choices=MODES, default="arith", help="how ${eval} is evaluated; perl runs code from the file"
    )
    add_load(parser)
    add_warnings(parser)
    args = parser.parse_args(argv)
    found: list[Message] = []
    warnings = Warnings(args.warnings)
    try:
        net = _read(args, lambda loc, message: found.append((loc, message)))
    except LightNetError as e:
        raise warnings.refused(e, found or e.warnings) from None
    warnings.show(found)
    common.write_atomic(args.outfile, json_ir.write(net))
    return 0


def _read(args: Namespace, warn: Callable[[SourceLoc, str], None]) -> Netlist:
    """The network. With ``--load`` the ops are known: it has to be made of them and of ours, as in every other tool.
    Without, any name may stand for an op of IL, as what reads the JSON decides what it means."""
    options = {"include_dirs": args.include, "defines": args.define, "eval_mode": args.eval}
    suffix = PurePath(args.file).suffix.lower()
    if not args.load and suffix in ("", ".net"):
        return il.read_file(args.file, on_warning=warn, **options)
    from lightnet.frontends.importer import to_module
    from lightnet.ir.registry import FRONTENDS
    from lightnet.plugins import loaded

    with loaded(args.load):
        if suffix != ".net" and suffix in FRONTENDS and not FRONTENDS.get(suffix).binary:
            from lightnet.model import load

            model = load(args.file, **options)
            for loc, message in model.warnings:
                warn(loc, message)
            return netlist_of(model.module)
        net = il.read_file(args.file, on_warning=warn, **options)
        if args.load:
            to_module(net)
        return net


if __name__ == "__main__":
    sys.exit(main())
