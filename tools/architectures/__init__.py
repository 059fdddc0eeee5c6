"""Architectures of PyTorch's libraries with random weights, as users export them: what `tools/real_models.py` measures.

A function under `architecture` makes one: it imports the libraries that it needs, so that the names are there without them.
`export.py` writes one to ONNX in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Example:
    """A module of PyTorch in evaluation mode, its positional inputs by name, and the names of its outputs."""

    module: Any
    inputs: dict[str, Any]
    outputs: Sequence[str] = ("y",)


#: What makes each, by name, in the order of the table.
ARCHITECTURES: dict[str, Callable[[], Example]] = {}
#: Those that only the exporter by tracing takes, with what PyTorch's newer one lacks.
TRACED: set[str] = set()


def architecture(name: str, traced: bool = False) -> Callable[[Callable[[], Example]], Callable[[], Example]]:
    """Enter a function that makes an architecture. `traced`: TorchScript's exporter takes it, the one by graph capture does not."""

    def enter(make: Callable[[], Example]) -> Callable[[], Example]:
        ARCHITECTURES[name] = make
        if traced:
            TRACED.add(name)
        return make

    return enter


for _part in ("vision", "language", "generation", "detection"):
    import_module(f"{__name__}.{_part}")
