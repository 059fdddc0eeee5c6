"""`lightnet describe`: ops as operator descriptions, and files of descriptions in their other form.

Imports the compiler only when ops are described, so that usage errors come at once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from lightnet.cli import common
from lightnet.cli.network import add_load
from lightnet.diagnostics import LightNetError, SourceLoc, near

FORMATS = ("json", "op")


def main(argv: list[str]) -> int:
    """The entry point of the subcommand."""
    args = _parser().parse_args(argv)
    if bool(args.names) == args.all:
        raise LightNetError("name ops or files of descriptions, or give --all")
    from lightnet.plugins import loaded
    from lightnet_descriptions import export

    with loaded(args.load):
        text = export.description_text(
            list(_descriptions(args.names, args.all)), args.format or _format_of(args.outfile)
        )
    if args.outfile in (None, "-"):
        sys.stdout.write(text)
    else:
        common.write_atomic(args.outfile, text)
    return 0


def _format_of(outfile: str | None) -> str:
    return "op" if (outfile or "").lower().endswith(".op") else "json"


def _parser() -> common.ToolParser:
    parser = common.ToolParser(
        prog="lightnet describe",
        description="Write ops as operator descriptions, which --load takes.",
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="OPTYPE",
        help="an op, or a file of descriptions (.json, .op) to write in the other form",
    )
    parser.add_argument("--all", action="store_true", help="every op that there is, those of --load among them")
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="json, or op as upstream's later files (default: by the name of -o, else json)",
    )
    parser.add_argument("-o", "--outfile", metavar="FILE", help="the file to write (default: stdout)")
    add_load(parser)
    return parser


def _descriptions(names: Sequence[str], everything: bool) -> Iterator[dict[str, Any]]:
    from lightnet.dialects.ln.dialect import optypes
    from lightnet_descriptions import export

    known = optypes()
    for name in known if everything else names:
        if name in known:
            yield export.describe(known[name])
        elif name.endswith((".json", ".op")):
            yield from _of_file(name)
        else:
            raise LightNetError(f"unknown op '{name}'{near(name, known) or '; `ln-opt --list-ops` lists them'}")


def _of_file(path: str) -> Iterator[dict[str, Any]]:
    """The descriptions of a file, which are checked; those that say ``autogen: false`` are kept."""
    from lightnet.source import read_text
    from lightnet_descriptions import description_kind, operators
    from lightnet_descriptions.reader import MAX_TEXT, read_description

    document = read_description(read_text(path, MAX_TEXT), path)
    if description_kind(document) == "optimizer":
        raise LightNetError(
            "the file describes rules of an optimizer, and no ops: `ln-opt --load` applies them", SourceLoc(path)
        )
    operators.load_operators(document)
    found = (item.plain() for item in operators.described_entries(document))
    yield from (d for d in found if "optype" in d)  # what other objects inherit alone has none
