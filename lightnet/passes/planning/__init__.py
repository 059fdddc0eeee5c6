"""Memory planning: a pure computation on numbers, used by the `plan` pass and the tools. Never imports xDSL."""

from .buffers import Buffer, lower_bound
from .check import check_offsets
from .planner import MemoryPlan, pack

__all__ = ["Buffer", "MemoryPlan", "check_offsets", "lower_bound", "pack"]
