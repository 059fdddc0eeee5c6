"""Memory planning: a pure computation on numbers, used by the `plan` pass and the tools. Never imports xDSL."""

from .buffers import Buffer, lower_bound
from .check import check
from .planner import Plan, pack

__all__ = ["Buffer", "Plan", "check", "lower_bound", "pack"]
