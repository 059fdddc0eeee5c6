"""`lightnet run NET.lnx`: what stands for the network where a saved executable is run. Imports the runtime, no xDSL."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from lightnet.cli.peers import PEERS
from lightnet.diagnostics import LightNetError, SourceLoc

if TYPE_CHECKING:
    from lightnet.runtime.artifact import SavedExecutable

#: Options that need the network itself: attribute of the arguments -> as it is spelt.
_NEEDS_NETWORK = {
    "layers": "--layers", "check_nan": "--check-nan", "dump_tensors": "--dump-tensors", "tensors": "--tensors", "profile": "--profile",
    "datafile": "-f", "precision": "--precision", "shapes": "--shape", "values": "--value", "include": "-I", "define": "-D",
}  # fmt: skip


class SavedNetwork:
    """A saved executable in the place of a network (`cli.network.Network`)."""

    opened = None

    def __init__(self, args: argparse.Namespace, path: str):
        given = [spelt for name, spelt in _NEEDS_NETWORK.items() if getattr(args, name, None)]
        given += [f"--compare {args.compare}"] if args.compare in PEERS else []
        given += ["--arch"] if args.arch else []
        given += ["--on-cpu"] if args.on_cpu else []
        given += [f"-t {args.target}"] if args.target != "cpu" else []
        if given:
            raise LightNetError(f"{given[0]} needs the network, and this is a compiled executable", SourceLoc(path))
        self.path = path
        self.warnings: list[Any] = []
        self.shapes: dict[str, Any] = {}
        self.values: dict[str, Any] = {}

    def compile(self, target: str, threads: int | None = None, emulate: bool = False) -> SavedExecutable:
        """The executable; nothing is compiled, and how many threads it may use is its own."""
        from lightnet.runtime.artifact import load_executable

        return load_executable(self.path, emulate=emulate)
