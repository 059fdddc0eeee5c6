"""`lightnet run NET.lnx` and `lightnet inspect NET.lnx`: what stands for the network where a saved executable is run,
and what there is to say of one. Imports the runtime, no xDSL.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lightnet.cli.feeding import shapes_of
from lightnet.cli.network import PEERS
from lightnet.cli.targets import DEFAULT
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.tables import shape, size, table

if TYPE_CHECKING:
    from lightnet.runtime.artifact import SavedExecutable

#: Options that need the network itself: attribute of the arguments -> as it is spelt.
_NEEDS_NETWORK = {
    "layers": "--layers", "check_nan": "--check-nan", "dump_tensors": "--dump-tensors", "tensors": "--tensors",
    "datafile": "-f", "precision": "--precision", "pipeline": "--pass", "disable": "--disable", "dims": "--dim",
    "tuned": "--tuned", "values": "--value", "include": "-I", "define": "-D",
}  # fmt: skip


class SavedNetwork:
    """A saved executable in the place of a network (`cli.network.Network`)."""

    opened = None

    def __init__(self, args: argparse.Namespace, path: str):
        given = [spelt for name, spelt in _NEEDS_NETWORK.items() if getattr(args, name, None)]
        given += [f"--compare {args.compare}"] if args.compare in PEERS else []
        given += [f"-t {args.target}"] if args.target != DEFAULT else []
        if given:
            raise LightNetError(f"{given[0]} needs the network, and this is a compiled executable", SourceLoc(path))
        self.path, self.trust = path, args.trust
        self.warnings: list[Any] = []
        self.shapes = shapes_of(args.shapes)  # of what is made for open dims
        self.values: dict[str, Any] = {}

    def compile(self, target: str, threads: int | None = None, **options: Any) -> SavedExecutable:
        """The executable; nothing is compiled, how many threads it may use is its own, and `options` are those of
        loading it."""
        from lightnet.runtime.artifact import load_executable

        return load_executable(self.path, trust=self.trust, **options)


def inspect_saved(args: argparse.Namespace) -> int:
    """`lightnet inspect NET.lnx`: what it takes and gives, what it was compiled with, and for what."""
    from lightnet.runtime.artifact import load_executable
    from lightnet.runtime.program import ports_of

    saved = load_executable(args.network, trust=args.trust, runs=False)
    found = _described(saved)
    if args.json:
        print(json.dumps(found, indent=2))
        return 0
    rows = [(kind[:-1], t["name"], t["dtype"], shape(t["dims"])) for kind in ("inputs", "outputs") for t in found[kind]]
    print(f"{args.network}: a compiled executable{', signed' if found['signed'] else ''}\n")
    print(table(("", "name", "dtype", "shape"), rows))
    if found["host"]:
        print(f"\non the host   {found['host']}")
    print(f"\ncompiled for  {', '.join(found['processors'])}; this processor takes {found['processor']}")
    print(f"threads       {saved.program.bound}")
    print(f"options       {', '.join(f'{k}={v}' for k, v in found['options'].items())}")
    if found["symbols"]:
        print(f"dims          {', '.join(found['symbols'])}")
    least, most = (
        saved.program.at(tuple(getattr(s, end) for s in saved.program.symbols)).memory for end in ("low", "high")
    )
    memory = {k: f"{k} {size(n)}{f' to {size(most[k])}' * (most[k] > n)}" for k, n in least.items()}
    ports = [memory.pop(k) for k in ports_of(least)]
    scratch = f"; each thread but the first {size(found['scratch'])}" if found["scratch"] else ""
    print(f"memory        {', '.join(memory.values())}{scratch}{'; of the caller ' * bool(ports)}{', '.join(ports)}")
    for warning in found["warnings"]:
        print(f"warning       {warning}")
    return 0


def _described(saved: SavedExecutable) -> dict[str, Any]:
    """The description of an executable, as JSON values."""

    from lightnet.runtime.hosted import map_types
    from lightnet.runtime.program import with_texts

    maps = map_types(saved)

    def types(found: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [
            {
                "name": name,
                "dtype": maps.get(name, "text") if dtype.hasobject else str(dtype),
                "dims": None if dims is None else with_texts(dims),
            }
            for name, (dims, dtype) in found.items()
        ]

    return {
        "inputs": types(saved.inputs), "outputs": types(saved.outputs), "processors": saved.variants,
        "processor": saved.program.cpu,
        "threads": saved.program.bound.number, "options": saved.options,
        "symbols": saved.program.symbol_texts, "memory": with_texts(dict(saved.program.memory)),
        "scratch": saved.program.scratch, "params": list(saved.program.params),
        "warnings": saved.warnings, "signed": saved.is_signed, "host": str(getattr(saved, "host", "")),
    }  # fmt: skip
