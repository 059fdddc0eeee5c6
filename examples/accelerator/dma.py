"""The accelerator's memories: a DMA engine copies between them and the host. Here the process copies, and counts."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from lightnet.runtime.machine import Area, Machine


class Dma(Machine):
    """The state of an executable counts the bytes that were copied, by the spaces from where and to where."""

    def open(self, options: Mapping[str, Any]) -> Counter:
        return Counter()

    def close(self, state: Counter) -> None:
        state.clear()

    def copy(self, state: Counter, to: Area, source: Area) -> None:
        super().copy(state, to, source)
        state[source.space, to.space] += source.nbytes
