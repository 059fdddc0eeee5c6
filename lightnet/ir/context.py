"""The xDSL context with our dialects: which names a `.mlir` file may use.

`DIALECTS` is the table (`registry.py`); a dialect's Python file is imported when its first op is parsed.
Imports xDSL's context, the registry and nothing of the dialects.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from xdsl.context import Context
from xdsl.ir import Dialect, Operation

from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import LightNetError
from lightnet.ir.locations import SourceMap
from lightnet.ir.registry import ARCH_OPS, DIALECTS

#: The dialects of this project, in the order of the levels.
OURS = ("ln", "cpu", "cuda", "cudnn", "tensorrt", "dpu", "tile")


#: Tokens of one file of MLIR text: some ten seconds of parsing and 700 MiB, whatever they mean.
MAX_TOKENS = 1_000_000


@dataclass
class LnContext(Context):
    """An xDSL context that also keeps the texts that were read into it, for diagnostics, and a limit of its parser."""

    sources: SourceMap = field(default_factory=SourceMap)
    max_tokens: int = MAX_TOKENS

    def get_optional_op(self, name: str, *, dialect_stack: Sequence[str] = ()) -> type[Operation] | None:
        """The class of an op by its name; of one that comes with a target, too, which the dialect does not list."""
        if name.startswith("ln.") and name[3:] in ARCH_OPS:
            return ARCH_OPS.get(name[3:])
        return super().get_optional_op(name, dialect_stack=dialect_stack)


def make_context(*, allow_unregistered: bool = False) -> LnContext:
    """A context in which every dialect of `DIALECTS` is registered; only `builtin` is loaded."""
    ctx = LnContext(allow_unregistered)
    for name in DIALECTS:
        ctx.register_dialect(name, partial(_dialect, name))
    ctx.load_registered_dialect("builtin")
    return ctx


def _dialect(name: str) -> Dialect:
    dialect = DIALECTS.get(name)
    if not isinstance(dialect, Dialect):
        raise LightNetError(f"dialect '{name}' ({DIALECTS.where(name)}) is not an xDSL dialect")
    return dialect


def sources_of(ctx: Context) -> SourceMap:
    """The texts read into `ctx`; an empty map for a context that is not ours."""
    return ctx.sources if isinstance(ctx, LnContext) else SourceMap()
