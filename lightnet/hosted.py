"""Compiled networks with a host part, which text at their ends needs. Imports the host parts of the runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightnet.compiled import Compiled
from lightnet.runtime.artifact import HOST_PART
from lightnet.runtime.hosted import HostedExecutable, of_network

if TYPE_CHECKING:
    from lightnet.runtime.host.program import HostProgram


class HostedCompiled(HostedExecutable, Compiled):
    """A compiled network with a host part: what is asked of it is that of `network`, the executable of numbers."""

    network: Compiled

    def __init__(self, network: Compiled, host: HostProgram):
        super().__init__(network, host)

    def specialized(self, feeds: Mapping[str, Any] | None = None) -> Compiled:
        found = self.network.specialized(self.split_feeds(feeds or {})[1])
        return self if found is self.network else HostedCompiled(found, self.host)

    def _out_types(self, feeds: Mapping[str, Any]) -> Any:
        return self.specialized(feeds).outputs

    def __reduce__(self) -> Any:
        if hasattr(self.network, "signature"):  # of open shapes: it is its model, text and all, that is compiled there
            return self.network.__reduce__()
        return super().__reduce__()

    is_native, missing, weight_warnings, planned = map(
        of_network, ("is_native", "missing", "weight_warnings", "planned")
    )

    def ir(self, stage: str | None = None) -> str:
        return self.network.ir(stage)

    def _save(self, path: str | Path, variants: Sequence[Any], sign: Any, texts: dict[str, str]) -> None:
        """The host part is a text of the file."""
        self.network.save(path, [v.network for v in variants], sign, {**texts, HOST_PART: self.host.to_json()})
