"""Sides of a comparison: a network compiled in some way, or an executable from a file, made ready to be called over and
over.

A side is the network that arguments name, compiled under the plugins that they load. Where it is called matters: the
same program is up to 0.5 % faster at some addresses than at others, for as long as a process lives. So a side has
several places in memory, where it is small enough, and is called at each of them. Imports the compiler when it makes a
side.
"""

from __future__ import annotations

import argparse
import io
import os
import time
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from lightnet.cli.network import run_options
from lightnet.cli.run import fed_inputs, named_network
from lightnet.cli.warning import Warnings
from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.runtime.calls import Invocation
from lightnet.runtime.instance import Instance

if TYPE_CHECKING:
    from lightnet.executable import Executable

#: Places in memory of a side, and bytes of its tensors up to which it has more than one.
PLACES, MOST_BYTES = 4, 128 << 20


@dataclass
class Side:
    """One of two sides. `name` is ``A`` or ``B``, `text` says what it is; `executable` is what is called on `feeds`,
    arrays by input name, on `threads` threads."""

    name: str
    text: str
    executable: Any
    feeds: dict[str, Any]
    threads: int

    @cached_property
    def network(self) -> Any:
        """The executable of numbers alone, without the host part of a network with text at its ends."""
        return getattr(self.executable, "network", self.executable)

    @cached_property
    def apart(self) -> Executable:
        """The network with its kernels apart: of a saved executable, its plan compiled again. Raises LightNetError
        where that cannot be."""
        if hasattr(self.network, "variants"):
            from lightnet_debug.command import with_kernels_apart

            return with_kernels_apart(self.network, {})
        return self.network

    @cached_property
    def fed(self) -> dict[str, Any]:
        """The feeds of `network`."""
        if self.executable is self.network:
            return self.feeds
        return self.executable.split_feeds(self.feeds)[1]

    def call(self) -> dict[str, Any]:
        """Run once; the outputs by name."""
        return self.executable(self.feeds, stream=io.StringIO(), threads=self.threads)

    def places(self) -> list[Callable[[], Any]]:
        """The call, at several places in memory where that can be."""
        self.executable.prepare()
        outer: Any = getattr(self.executable, "instance", None)
        is_plain = isinstance(outer, Instance) and self.feeds.keys() <= outer.inputs.keys()
        if not is_plain or self.executable.program.symbols:
            return [self.call]
        count = PLACES if outer.static.nbytes + outer.program.memory.get("arena", 0) <= MOST_BYTES else 1
        instances = [outer, *(outer.apart() for _ in range(count - 1))]
        call = Invocation(self.feeds, stream=io.StringIO(), threads=self.threads)
        return [partial(instance.call, call) for instance in instances]

    @property
    def clock(self) -> Callable[[], float] | None:
        """The clock of this thread, where the network runs on it alone; None: only the clock on the wall will do."""
        on_this = self.threads == 1 and isinstance(getattr(self.network, "instance", None), Instance)
        return time.thread_time if on_this else None

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of each memory space of the plan that is not the caller's, and of what each further thread needs."""
        from lightnet.runtime.dims import is_known
        from lightnet.runtime.program import ports_of

        program = (
            self.network.specialized(self.fed).program if hasattr(self.network, "specialized") else self.network.program
        )
        known = {name: n for name, n in program.memory.items() if is_known((n,))}
        ports = set(ports_of(known))
        found = {name: int(n) for name, n in known.items() if name not in ports}
        return found | ({"a thread": int(program.scratch)} if program.scratch and is_known((program.scratch,)) else {})

    @property
    def code_bytes(self) -> int | None:
        """Bytes of machine code; None where there are no object files."""
        return instruction_bytes(getattr(self.network.program, "objects", ()))


def instruction_bytes(objects: Any) -> int | None:
    """Bytes of the instructions in object files, equal ones once."""
    from llvmlite.binding import ObjectFileRef

    try:
        files = [ObjectFileRef.from_data(data) for data in dict.fromkeys(bytes(o) for o in objects)]
        return sum(s.size() for file in files for s in file.sections() if s.is_text()) if files else None
    except (RuntimeError, TypeError):  # no object files
        return None


def made(
    name: str, args: argparse.Namespace, path: str, words: str = "", feeds: Mapping[str, Any] | None = None
) -> Side:
    """The side that arguments say: the network at `path`, compiled under what they load; `words` are the options of
    this side alone. `feeds` are those of the other side, where there is one; raises LightNetError where an input of
    this one is not among them."""
    from lightnet.plugins import loaded

    shown = Warnings(args.warnings)
    with loaded(args.load), shown.of_descriptions():
        network = named_network(args, path)
        shown.show(network.warnings)
        planning = {k: v for k, v in (("plan", args.plan), ("layout", args.layout)) if v not in (None, "default")}
        executable = network.compile(args.target, threads=args.threads, **run_options(args), **planning)
        if feeds is None:
            fed = fed_inputs(args, network, executable)
        else:
            fed = {n: feeds[n] for n in feeds if n in executable.inputs or n in executable.params}
            if missing := [n for n in executable.inputs if n not in feeds]:
                raise LightNetError(f"the sides differ in what they take: A has no input '{missing[0]}', which B has",
                                    label="compare.inputs")  # fmt: skip
        side = Side(name, f"{os.path.basename(path)}{' ' if words else ''}{words}", executable, fed, args.threads)
        side.call()
        _ = side.network.native if hasattr(side.network, "native") else None
    return side
