"""The options of `lightnet run` that look at a run: `--compare`, `--layers`, `--check-nan`, `--dump-tensors`,
`--profile`.

Imports what carries an option out when it is given; until then no xDSL, so that a saved executable is compared where
there is no compiler.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lightnet.cli import targets
from lightnet.cli.network import PEERS, Network
from lightnet.diagnostics import LightNetError, SourceLoc, printable
from lightnet.ir.registry import runtime_of
from lightnet.ir.runtime import RUN
from lightnet.runtime.files import write_atomic
from lightnet.runtime.threads import ANY
from lightnet.tables import table
from lightnet_debug.arrays import difference, is_one_number
from lightnet_debug.peers import check_peer, expectation, rounding

if TYPE_CHECKING:
    from lightnet.executable import Executable
    from lightnet.runtime.artifact import SavedExecutable


class Debugging:
    """The options of one run, carried out. Raises LightNetError for a value of ``--compare`` that says nothing."""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        if args.compare:
            check_peer(args.compare)
        self.share = rounding(args.precision)
        self.rtol: float = self.share if args.rtol is None else args.rtol

    def run(self, network: Network, executable: Any, feeds: Mapping[str, Any], outputs: Mapping[str, Any]) -> int:
        """Print or write what is asked for of an executable, which gave `outputs` on `feeds`; 1 where something is
        wrong."""
        if self.args.profile:
            self.profile(executable, feeds)
        failed = 0
        if self.args.layers or self.args.check_nan or self.args.dump_tensors:
            from lightnet_debug.inside import Inside

            failed = Inside(network, executable, feeds, self.args, self.rtol, self.share).run()
        if self.args.compare and not self.args.layers:
            failed |= self.compare(network, feeds, outputs)
        return failed

    def profile(self, executable: Any, feeds: Mapping[str, Any]) -> None:
        """`--profile`: a table on stdout, or a trace in a file."""
        from lightnet_debug.profile import profiled

        if hasattr(executable, "split_feeds"):
            _, feeds = executable.split_feeds(feeds)
            executable = executable.network
        if hasattr(executable, "variants"):  # a saved one
            executable = with_kernels_apart(executable, targets.given(self.args))
        found = profiled(executable, feeds, self.args.rounds)
        if self.args.profile != "-":
            write_atomic(self.args.profile, found.json())
        print(printable(f"\n{found.text()}", "\n"))

    def compare(self, network: Network, feeds: Mapping[str, Any], outputs: Mapping[str, Any]) -> int:
        """Print how far each output is from what is expected; 1 where one is too far."""
        what = self.args.compare
        expected = expectation(what, network, feeds, list(outputs))
        rows, failed = [], False
        for name, got in outputs.items():
            if name not in expected:
                if what in PEERS:
                    raise LightNetError(f"{what} gives no output '{name}'")
                rows.append((name, "", "", "", "not in the file"))
                continue
            row = difference_row(name, got, expected[name], self.rtol, self.args.atol, self.share)
            rows.append(row)
            failed |= row[-1] != "agrees"
        if all(row[-1] == "not in the file" for row in rows):
            there = ", ".join(list(expected)[:8])
            raise LightNetError(f"no output is in it; there are: {there or 'none'}", SourceLoc(what))
        print(f"\ncompared with {what}:")
        print(table(("output", "max abs error", "max rel error", "largest value", ""), rows))
        if constant := [f"'{name}'" for name in outputs if name in expected and is_one_number(expected[name])]:
            verb = "s are" if len(constant) > 1 else " is"
            print(f"\nnote: output{verb} one number throughout, whose equality proves little: {', '.join(constant)}")
        return 1 if failed else 0


def difference_row(
    name: str, got: Any, want: Any, rtol: float, atol: float | None, share: float = 1e-4
) -> tuple[str, str, str, str, str]:
    """A row: name, largest absolute and relative difference, largest expected value, verdict."""
    d = difference(got, want, rtol, atol, share)
    if d.mismatch:
        return name, "", "", "", d.verdict
    return name, f"{d.absolute:.3g}", "" if d.exact else f"{d.relative:.3g}", f"{d.largest:.3g}", d.verdict


def with_kernels_apart(saved: SavedExecutable, options: Mapping[str, Any]) -> Executable:
    """A saved executable with its kernels apart, for a profile: its planned module compiled again by this compiler, for
    this machine, with its own tensors. Raises LightNetError where calls decide dims."""
    if saved.program.symbols:
        raise LightNetError("--profile needs numbers for dims: profile the network, with --shape", label="dims.open")
    from lightnet.compiler import compile
    from lightnet.model import loads

    target = saved.options.get("target", targets.DEFAULT)
    own = {
        o.name: saved.options[o.name] for o in runtime_of(target).options if RUN in o.tools and o.name in saved.options
    }
    made = compile(
        loads(saved.texts["planned"], ".mlir"),
        target,
        compiled=True,
        threads=saved.program.bound.number or ANY,
        **{**own, **options},
    )
    return made.with_tensors(saved.instance.static, saved.instance.defaults)
