"""The bodies of several ops that the CPU's generators take: those of `backends/bodies.py`, but what runs on register
tiles alone takes nothing in that does not.
"""

from __future__ import annotations

from lightnet.backends.bodies import body_kind
from lightnet.backends.cpu.plain import tile_generator_of
from lightnet.backends.expressions import stays_on_tiles
from lightnet.ir.body import Body


def accepts(body: Body) -> str | None:
    """The generator that takes `body`: ``anchor``, ``elementwise``, ``moves``, or None."""
    kind = body_kind(body)
    return None if kind == "anchor" and not _stays_tiled(body) else kind


def _stays_tiled(body: Body) -> bool:
    """Return whether a body runs on register tiles if its anchor alone does."""
    anchor, *rest = body.ops
    tiles = tile_generator_of([anchor], ())
    return tiles is None or all(stays_on_tiles(op, anchor, tiles.make.readable(anchor)) for op in rest)
