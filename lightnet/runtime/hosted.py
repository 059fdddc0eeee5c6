"""Executables with a host part (`runtime/host`): what is fed goes through it into a network of numbers, whose outputs
come out through it.

Imports NumPy, the standard library and the rest of the runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import numpy as np

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.runtime.artifact import HOST_PART
from lightnet.runtime.calls import Invocation, copied_out
from lightnet.runtime.host.program import HostProgram
from lightnet.runtime.program import unknown
from lightnet.runtime.runnable import Runnable


def of_network(name: str) -> Any:
    """The property `name` of an executable with a host part, which is its network's."""
    return property(attrgetter(f"network.{name}"))


class HostedExecutable(Runnable):
    """An executable, `network`, and the host part before and behind it, `host`. Text is fed as an array of strings,
    lists of them, or a string, and comes out as an array of strings (dtype object). Maps are dicts, and come out as a
    list of them."""

    def __init__(self, network: Any, host: HostProgram):
        self.network, self.host = network, host

    def _run(self, call: Invocation) -> dict[str, Any]:
        self._check_open()
        env, feeds = self.split_feeds(call.feeds)
        env = self.host.left(env, self.network._run(Invocation(feeds, None, None, call.stream, call.threads)))
        there = self.outputs  # known of open shapes now
        asked = [call.outputs] if isinstance(call.outputs, str) else call.outputs
        names = list(there if asked is None else asked)
        if wrong := [name for name in names if name not in there]:
            raise unknown("output", wrong[0], there)
        maps = self.host.maps
        outputs = {  # but for those that the plan overwrites
            name: env[name].tolist() if name in maps else env[name] for name in names if name in env
        }
        return copied_out(outputs, call.buffers) if call.buffers else outputs

    def split_feeds(self, feeds: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The values before the network, by name, and the feeds of the network. Raises LightNetError for what cannot be
        fed."""
        own, params = self.inputs, self.params
        if wrong := [name for name in feeds if name not in own and name not in params]:
            raise unknown("input or param", wrong[0], own)
        env = self.host.entered(feeds)
        takes = self.network.inputs
        fed = {name: value for name, value in feeds.items() if name in takes or name in params}
        return env, {**fed, **{name: env[name] for name in self.host.entering}}

    # -- what it is

    @property
    def inputs(self) -> dict[str, tuple[Any, np.dtype]]:
        known = self.network.inputs
        found = {t.name: known.get(t.name, (t.dims, t.np_dtype)) for t in self.host.inputs}
        return found | {name: kind for name, kind in known.items() if name not in self.host.entering}

    @property
    def outputs(self) -> dict[str, tuple[Any, np.dtype]]:
        """Shape (None where it follows from text) and dtype of every output by name, in order."""
        known, made = self.network.outputs, {name for step in self.host.after for name in step.outputs}
        shaped = self.host.dims_behind({name: dims for name, (dims, _) in known.items()})
        found = {}
        for tensor in self.host.outputs:
            if tensor.name in known and tensor.name not in made:
                found[tensor.name] = known[tensor.name]
            elif tensor.dtype:
                found[tensor.name] = shaped.get(tensor.name, tensor.dims), tensor.np_dtype
        return found | {
            name: kind for name, kind in known.items() if name not in found and name not in self.host.leaving
        }

    params, threads, options, warnings, plan, is_closed, program = map(
        of_network, ("params", "threads", "options", "warnings", "plan", "is_closed", "program")
    )

    def prepare(self) -> None:
        self.network.prepare()

    def close(self) -> None:
        self.network.close()

    def __reduce__(self) -> Any:
        return HostedSaved, (self.network, self.host)


class HostedSaved(HostedExecutable):
    """One whose network was read from a file, in this process or in another one that it went to."""

    #: The processors that the file has code for; and whether it has a signature, whosever.
    variants, is_signed = map(of_network, ("variants", "is_signed"))


def with_host(saved: Any, where: SourceLoc) -> HostedSaved:
    """A saved executable with the host part of its file. Raises LightNetError for a malformed one."""
    try:
        host = HostProgram.from_json(saved.texts[HOST_PART])
        if lost := set(host.entering) - set(saved.inputs):
            raise LightNetError(
                f"the host part gives the network '{min(lost):.60}', which it does not take", label="host.file"
            )
    except LightNetError as error:
        raise error.at(where) from None
    return HostedSaved(saved, host)


def of_numbers(executable: Any) -> Any:
    """The network alone of an executable whose host part does no more than to name classes and columns of scores: it
    gives their numbers, and the scores as a tensor. Any other as it is."""
    host = getattr(executable, "host", None)
    return executable.network if host is not None and host.names_only else executable


def of_tensors(executable: Any) -> Any:
    """As `of_numbers`; of another executable, one that gives tensors for maps. Raises LightNetError for an input that
    is a map."""
    found = of_numbers(executable)
    host = getattr(found, "host", None)
    return HostedExecutable(found.network, host.of_tensors()) if host is not None and host.maps else found


def map_types(executable: Any) -> dict[str, str]:
    """The type of every input and output of an executable that is a map, or a list of them, by name."""
    host = getattr(executable, "host", None)
    return host.maps if host is not None else {}
