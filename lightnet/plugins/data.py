"""Plugins that are data: descriptions of operators and optimizers, and patterns in PDL. Imports `descriptions` on demand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lightnet.ir import registry


@contextmanager
def descriptions(path: str) -> Iterator[None]:
    """Register the ops and the patterns that a description file has."""
    from lightnet.descriptions import load_file

    found = load_file(path)
    for name, ops in found.families.items():
        registry.FAMILIES.add(name, tuple(ops))
    _register(found.patterns)
    yield None


@contextmanager
def patterns(path: str) -> Iterator[None]:
    """Register the patterns of a PDL file."""
    from lightnet.descriptions import pdl

    _register(pdl.load_file(path))
    yield None


def _register(classes: list[type]) -> None:
    for cls in classes:
        registry.pattern(cls.pass_name, cls.target)(cls)
