"""The architecture that a lowered module is for. Imports xDSL alone, so that asking costs nothing."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp, StringAttr

#: The attribute of a lowered module: the architecture that its kernels are for.
ARCH_ATTRIBUTE = "cuda.arch"


def arch_of(loops: ModuleOp | None) -> str | None:
    """The architecture that a module's kernels are for; None of a module that is not for cuda."""
    attr = None if loops is None else loops.attributes.get(ARCH_ATTRIBUTE)
    return attr.data if isinstance(attr, StringAttr) else None
