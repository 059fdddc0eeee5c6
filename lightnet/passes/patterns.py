"""The rewrite patterns that each pass has: what the reference page lists, and what a plugin's pattern may clash with.

Imports the targets, the registry and the passes that have patterns of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.pattern_rewriter import RewritePattern

from lightnet.ir.registry import TARGETS, all_patterns, meet
from lightnet.ir.target import Target, get_target
from lightnet.passes import recognize
from lightnet.passes.decompose import Decompose
from lightnet.passes.fold import FoldConstants
from lightnet.passes.simplify import own_patterns

#: A pattern: the pass that applies it, the target it is for (``*``: all), its class.
Row = tuple[str, str, type[RewritePattern]]

#: Passes with a pattern of their own.
_OWN = (("fold", FoldConstants), ("decompose", Decompose))
#: Passes whose patterns a target has, and its field.
_OF_TARGETS = {"expand": "expanders", "combine": "combiners", "subgraph": "subgraphs"}


def built_in(pass_name: str | None = None, target: str = "*") -> Iterator[Row]:
    """The patterns that stand with ops, targets and passes, not those of `registry.pattern`: all, or those of a pass
    that may meet a pattern for `target`."""
    if pass_name in (None, "simplify"):
        yield from (("simplify", "*", cls) for cls in own_patterns())
    yield from ((name, "*", cls) for name, cls in _OWN if pass_name in (None, name))
    if pass_name in (None, "recognize"):
        yield from (("recognize", "*", cls) for cls in recognize.recognizers())
    if pass_name in (None, *_OF_TARGETS):
        for name in TARGETS:
            if meet(name, target):
                yield from (row for row in _of_target(get_target(name)) if pass_name in (None, row[0]))


def _of_target(target: Target) -> Iterator[Row]:
    described = [cls for description in target.descriptions for cls in description.read()]
    yield from ((cls.pass_name, target.name, cls) for cls in described)
    for name, field in _OF_TARGETS.items():
        yield from ((name, target.name, cls) for cls in getattr(target, field))


def every() -> list[Row]:
    """All patterns that there are now."""
    return [*built_in(), *all_patterns()]
