"""The target `none`: the reference interpreter runs the graph as it was imported."""

from __future__ import annotations

from lightnet.ir.target import Target

NONE = Target("none")
