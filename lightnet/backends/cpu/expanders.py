"""The ops that the CPU runs, and its expander patterns: one op to several kernels.

`expand` wraps an op that no pattern takes into a kernel of its own, which is what the CPU wants for every op there is
now.
"""

from __future__ import annotations

from xdsl.pattern_rewriter import RewritePattern

from lightnet.ir.op import LnOp

EXPANDERS: tuple[type[RewritePattern], ...] = ()


def supports(op: LnOp) -> bool:
    """Return whether the CPU can run `op` by itself: from its definition, or by its loop-level builder."""
    return op.definition is not None or op.has_builder
