"""Elementwise definitions on tiles of blocked maps: the epilogue of a kernel, and kernels that are nothing else.

Imports the evaluator of plain tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from lightnet.backends.expressions import TileEvaluator
from lightnet.backends.expressions import TileView as PlainTile
from lightnet.ir import bound
from lightnet.ir.layout import Packed, layout_of
from lightnet.ir.types import memref_type_of, spec_of

if TYPE_CHECKING:
    from lightnet.backends.cpu.blocked.kernel import BlockedKernel, MapTile


class BlockedEvaluator(TileEvaluator):
    """Evaluates elementwise definitions on tiles of blocked maps."""

    def __init__(self, owner: BlockedKernel, tile: MapTile):
        # Without a place: `read` is its own.
        super().__init__(owner.b, PlainTile([], [], tile.shape, [], None), owner.inputs.__getitem__)
        self.owner, self.blocked = owner, tile
        self.narrow = False  # whether what is evaluated is one value a channel: a tile of one pixel

    def computed(self, node: bound.Node) -> SSAValue:
        """Compute once what depends on the channel alone, as a tile of one pixel, then repeated for each."""
        if self.narrow or not isinstance(node, bound.Apply) or not self.by_channel(node):
            return super().computed(node)
        whole, cache = self.shape, self.cache
        self.narrow, self.shape, self.cache = True, (1, 1, *whole[2:]), {}
        value = super().computed(node)
        self.narrow, self.shape, self.cache = False, whole, cache
        return self.b.broadcast(value, self.shape)

    def by_channel(self, node: bound.Node) -> bool:
        """Return whether a node reads no map and nothing that is in registers."""
        values = [self.names[r.tensor] for r in bound.reads(node)]
        return all(v not in self.registers and spec_of(v.type).dims != self.dims for v in values)

    def read(self, value: SSAValue, subs: Sequence[bound.Node]) -> SSAValue:
        """The tile of `value` at the current position: a map of the result's shape, or one value a channel (and
        picture) or in all, repeated."""
        if value in self.registers:
            return self.registers[value]
        b, tile, owner = self.b, self.blocked, self.owner
        memref, dims = owner.inputs[value], spec_of(value.type).dims
        if dims == self.dims:
            where = owner.at(value, tile.n, tile.block, tile.y, tile.x)
            return b.tile_load(memref, where, owner.walks(value, [2, 3, 1, 4]), tile.shape, steps=tile.strides)
        if layout_of(value.type).is_plain:  # one value in all
            return b.broadcast(b.load(memref, [0] * memref_type_of(memref).get_num_dims()), self.shape)
        walked = {self.position[s.name] for s in subs if isinstance(s, bound.Idx)}
        shape = (1, 1, *tile.shape[2:])
        if isinstance(layout_of(value.type), Packed):  # a vector by channel: [blocks, lanes]
            lanes = b.tile_load(memref, [tile.block, 0], [0, 0, 0, 1], shape, steps=[0, 0, 1, 1])
        else:  # a map [N, C, 1, 1]
            at = owner.at(value, tile.n if 0 in walked else 0, tile.block, 0, 0)
            lanes = b.tile_load(memref, at, owner.walks(value, [2, 3, 1, 4]), shape)
        return lanes if self.narrow else b.broadcast(lanes, tile.shape)
