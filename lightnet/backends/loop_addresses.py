"""Linear addresses: nests of statements whose tensors are the elements of their memory, and whose loops are as few as
that allows.

Imports `ir`.
"""

from __future__ import annotations

from collections.abc import Mapping

from lightnet.backends.loop_shapes import collapsed, collapsed_reductions, unfolded
from lightnet.dataclasses import replace
from lightnet.ir.affine import IndexSpace
from lightnet.ir.bound import I64, Apply, Const, Node, Read, Statement, rebuild
from lightnet.ir.fusion import Nest, inside, linearize
from lightnet.ir.types import TensorSpec


class Addresses:
    """The addresses of the tensors `logical`. Those in `private` have one element along the dimensions named there,
    which the block fixes: `stored` has the shapes in memory."""

    def __init__(self, logical: Mapping[str, TensorSpec], private: Mapping[str, tuple[int, ...]]):
        self.logical, self.private = logical, private
        self.stored = {name: self._stored(name, spec) for name, spec in logical.items()}

    def _stored(self, name: str, spec: TensorSpec) -> TensorSpec:
        fixed = self.private.get(name, ())
        return TensorSpec(tuple(1 if k in fixed else n for k, n in enumerate(spec.dims)), spec.dtype)

    def flat(self, g: Nest, first: int) -> Nest:
        """A nest by linear addresses; the loops before `first` stay as they are."""
        flat = replace(g, statements=[self._statement(s) for s in g.statements])
        flat = unfolded(flat, first)
        k = len(flat.loops) - 2
        while k >= first:
            flat = collapsed(flat, k) or flat
            k -= 1
        return replace(flat, statements=[collapsed_reductions(s) for s in flat.statements])

    def _statement(self, s: Statement) -> Statement:
        space = IndexSpace(s.loops + s.reductions)
        address = self._address(s.tensor, s.subs, s.flat)
        value = space.simplify(self._node(s.value))
        return replace(s, subs=(space.simplify(address),), flat=True, value=value)

    def _address(self, tensor: str, subs: tuple[Node, ...], flat: bool) -> Node:
        if flat:
            return subs[0]
        fixed = self.private.get(tensor, ())
        return linearize([Const(0, I64) if k in fixed else s for k, s in enumerate(subs)], self.stored[tensor].dims)

    def _node(self, node: Node) -> Node:
        """Reads by linear address; fillers as explicit guards."""
        new = rebuild(node, self._node)
        if not isinstance(new, Read):
            return new
        spec = self.logical[new.tensor]
        read = Read(new.tensor, (self._address(new.tensor, new.subs, new.flat),), None, new.dtype, True)
        if new.filler is None:
            return read
        cond = inside(new.subs, [(0, n) for n in ((spec.len,) if new.flat else spec.dims)])
        return Apply("select", (cond, read, new.filler), new.dtype)
