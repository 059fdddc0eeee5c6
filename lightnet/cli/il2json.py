"""`il2json [-o FILE] [FILE]`: LightNet IL as JSON IR. Ops are not checked, unless `--load FILE` says which there are."""

from __future__ import annotations

import sys

from lightnet.cli import common
from lightnet.cli.network import add_load
from lightnet.diagnostics import SourceLoc
from lightnet.frontends import il, json_ir
from lightnet.frontends.evals import MODES
from lightnet.frontends.netlist import Netlist


def main(argv: list[str] | None = None) -> int:
    """The entry point; the exit status is 1 for every error, also of usage, and then no file is written."""
    return common.run(_main, argv)


def _main(argv: list[str]) -> int:
    parser = common.Parser(prog="il2json", description="Translate a network in LightNet IL to JSON IR.")
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
    args = parser.parse_args(argv)
    net = il.read_file(args.file, include_dirs=args.include, defines=args.define, eval_mode=args.eval, on_warning=_warn)
    if args.load:
        _check(net, args.load)
    common.write_atomic(args.outfile, json_ir.write(net))
    return 0


def _check(net: Netlist, files: list[str]) -> None:
    """With ``--load`` the ops are known: the network has to be made of them and of ours, as in every other tool. Without, any
    name may stand for an op, as what reads the JSON decides what it means."""
    from lightnet.frontends.importer import to_module
    from lightnet.plugins import loaded

    with loaded(files):
        to_module(net)


def _warn(loc: SourceLoc, message: str) -> None:
    print(f"{loc}: warning: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
