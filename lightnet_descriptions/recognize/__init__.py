"""The rules of the pass `recognize`, as data: a description for each family. Imports `lightnet_descriptions`."""

from __future__ import annotations

from lightnet_descriptions import Description

NORMS, ACTIVATIONS = (
    Description(f"lightnet_descriptions.recognize:{name}.json", "recognize") for name in ("norms", "activations")
)
