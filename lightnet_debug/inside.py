"""The tensors inside of a network as `lightnet run` shows them: `--dump-tensors`, `--check-nan`,
`--compare WITH --layers`.

Imports what it reports on when that is asked for.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lightnet.cli.network import PEERS, Network, names_of, run_options
from lightnet.diagnostics import LightNetError, SourceLoc, printable
from lightnet.runtime.program import unknown
from lightnet.tables import shortened, some
from lightnet_debug.peers import expected_layers

if TYPE_CHECKING:
    from lightnet_debug.tensors import NonFinite, Tensors

#: Tensors without memory, and starts of NaN, that are named.
MAX_SHOWN = 8


def _show(text: str) -> None:
    """Print what may hold names out of a file."""
    print(printable(text, "\n"))


class Inside:
    """One look inside; `executable` is what has been run on `feeds`. `rtol` and `share`: as of `difference`."""

    def __init__(
        self,
        network: Network,
        executable: Any,
        feeds: Mapping[str, Any],
        args: argparse.Namespace,
        rtol: float,
        share: float,
    ):
        self.network, self.executable, self.feeds, self.args = network, executable, feeds, args
        self.rtol, self.share = rtol, share

    def run(self) -> int:
        """Print or write what the options ask for; 1 where something is wrong with a tensor."""
        found, names = self.tensors()
        if self.args.dump_tensors:
            self.dump(found, names)
        failed = self.check_nan(found) if self.args.check_nan else 0
        return failed | (self.compare(found, names) if self.args.layers else 0)

    def tensors(self) -> tuple[Tensors, Sequence[str]]:
        """The tensors, and the names of those that are asked for. Those that have no memory in the network as it ships
        are kept by compiling it again with them as outputs."""
        from lightnet_debug.steps import specialized
        from lightnet_debug.tensors import computed_names, tensors

        found = tensors(self.executable, self.feeds)
        if self.args.tensors is None:
            return found, list(found.arrays)
        known = computed_names(found.source)
        wanted = known if self.args.tensors == "all" else names_of(self.args.tensors)
        for name in wanted:
            if name not in known and name not in found.arrays:
                raise unknown("computed tensor", name, known)
        if lacking := [name for name in wanted if name not in found.arrays]:
            executable, feeds = specialized(
                self.network.compile(self.args.target, outputs=lacking, **run_options(self.args)), self.feeds
            )
            found, (self.executable, self.feeds) = tensors(executable, feeds), (executable, feeds)
            _show(
                f"\ncompiled again with {some(len(lacking), 'more output')}, which changes what is fused: "
                f"{_listed(lacking)}"
            )
        return found, wanted

    def dump(self, found: Tensors, names: Sequence[str]) -> None:
        """`--dump-tensors`."""
        from lightnet_debug.tensors import write_tensors

        written = write_tensors(found, self.args.dump_tensors, names)
        _show(f"\nwrote {some(len(written), 'tensor')} to {self.args.dump_tensors}")
        if found.swallowed and self.args.tensors is None:
            _show(
                f"{some(len(found.swallowed), 'tensor')} without memory in the compiled network; --tensors all keeps:"
            )
            for name, why in list(found.swallowed.items())[:MAX_SHOWN]:
                _show(f"  {shortened(name, 60)}: {why}")
            if (more := len(found.swallowed) - MAX_SHOWN) > 0:
                _show(f"  and {more} more")

    def check_nan(self, found: Tensors) -> int:
        """`--check-nan`."""
        from lightnet_debug.tensors import first_non_finite

        bad = first_non_finite(found, self.executable if hasattr(self.executable, "loaded") else None)
        if not bad:
            _show(f"\nno NaN or infinity in {some(len(found.arrays), 'tensor')}")
            return 0
        _show("\nNaN or infinity comes up at:")
        for one in bad[:MAX_SHOWN]:
            self.show_non_finite(one)
        if len(bad) > MAX_SHOWN:
            _show(f"  and {some(len(bad) - MAX_SHOWN, 'more tensor')}")
        return 1

    def show_non_finite(self, one: NonFinite) -> None:
        """One tensor, and, where a kernel of several ops made it, which of these."""
        from lightnet.ir.locations import loc_of
        from lightnet_debug.alone import alone
        from lightnet_debug.tensors import kernel_label

        where, inner = one.where, ""
        checked = alone(self.executable, self.feeds, one.name) if "+" in one.kernel else None
        if checked is not None and checked.non_finite is not None:
            where, inner = loc_of(checked.non_finite), f"; it begins at {kernel_label(checked.non_finite)}"
        elif checked is not None and not checked.agrees:
            inner = "; by the references of these ops it has none: the compiled kernel is at fault"
        _show(f"  {where or ''}{': ' if where else ''}{one}{inner}")
        if line := self.line(where):
            _show(f"    {shortened(line.strip(), 110)}")

    def compare(self, found: Tensors, names: Sequence[str]) -> int:
        """`--compare WITH --layers`."""
        from lightnet_debug.differences import compare_layers, layers_text
        from lightnet_debug.tensors import computed_names

        what = self.args.compare
        asked = {name: array for name, array in found.arrays.items() if name in set(names)}
        found.arrays = asked
        expected = expected_layers(what, self.network, self.feeds, names)
        layers = compare_layers(found, expected, self.rtol, self.args.atol, self.share)
        if not layers:
            raise LightNetError(f"no tensor of the network is in {what}", None if what in PEERS else SourceLoc(what))
        _show(f"\ncompared with {what}, layer by layer:")
        _show(layers_text(layers, self.line))
        self.blame(next((layer.name for layer in layers if not layer.difference.agrees), None))
        if self.args.tensors is None and found.swallowed:
            kind = "without memory in the compiled network"
            _show(f"not compared: {some(len(found.swallowed), 'tensor')} {kind}; --tensors all keeps them")
        if lacking := [name for name in computed_names(found.source) if name in asked and name not in expected]:
            _show(f"not compared: {some(len(lacking), 'tensor')} that {what} lacks: {_listed(lacking)}")
        return int(any(not layer.difference.agrees for layer in layers))

    def blame(self, name: str | None) -> None:
        """Say of the kernel that makes the first wrong tensor whether it does what its ops mean."""
        from lightnet_debug.alone import alone

        if name is None or (checked := alone(self.executable, self.feeds, name, self.rtol, self.args.atol)) is None:
            return
        if checked.agrees:
            _show(
                f"the kernel of '{name}' does what its ops mean: look at the rewrites that made them, and at weights "
                "and operands"
            )
        else:
            _show(f"the kernel of '{name}' does not compute what its ops mean: the generated code is at fault")

    def line(self, loc: SourceLoc | None) -> str | None:
        """The source line at a place, where the source is text."""
        return self.network.line(loc)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(shortened(n, 60) for n in names[:MAX_SHOWN]) + (
        f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
    )
