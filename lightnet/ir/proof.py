"""The proofs that binding makes of index notation: every read falls inside its tensor, every result is written whole,
once.

Imports `bound` and `affine`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from lightnet.diagnostics import LightNetError
from lightnet.ir.affine import IndexSpace
from lightnet.ir.bound import BOOL, I64, Apply, Const, Node, Read, Statement, indices, show, walk_nodes
from lightnet.ir.types import TensorSpec
from lightnet.runtime.dims import is_never_below


def check_covered(name: str, spec: TensorSpec, statements: Sequence[Statement]) -> None:
    """Every element of a result is written: by one full statement, or by disjoint boxes that fill it. Raises
    `LightNetError`."""
    if spec.len == 0:
        return
    boxes = []
    for s in statements:
        if name not in s.targets:
            continue
        if s.size == spec.len:
            return
        boxes.append([_offset_extent(sub, dict(s.loops)) for sub in s.subs])
    if not boxes:
        raise LightNetError(f"the definition never writes its result '{name}'")
    volume = sum(math.prod(n for _, n in box) for box in boxes)
    disjoint = all(_apart(a, b) for i, a in enumerate(boxes) for b in boxes[:i])
    if volume != spec.len or not disjoint:
        raise LightNetError(f"the statements do not write every element of '{name}' ({spec}) exactly once")


def _apart(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> bool:
    return any(is_never_below(q, p + n) or is_never_below(p, q + m) for (p, n), (q, m) in zip(a, b))


def _offset_extent(sub: Node, extents: dict[str, int]) -> tuple[int, int]:
    offset, name = IndexSpace(extents.items()).written(sub)
    return offset, 1 if name is None else extents[name]


class Finisher:
    """Canonical subscripts, clamped data indices, and the proof that every read falls inside its tensor; where there is
    none, `fail` gets the message and raises."""

    def __init__(self, specs: Mapping[str, TensorSpec], space: IndexSpace, fail: Callable[[str], NoReturn]):
        self.specs, self.space, self.fail = specs, space, fail

    def finish(self, node: Node) -> Node:
        return self._check(self.space.simplify(self._clamp(node)), self.space)

    def _clamp(self, node: Node) -> Node:
        """Clamp the subscripts that come from data."""
        match node:
            case Read(filler=None):
                subs = tuple(self._clamped(self._clamp(s), n) for s, n in zip(node.subs, self._dims(node)))
                new = Read(node.tensor, subs, None, node.dtype, node.flat)
            case Read(filler=filler) if filler is not None:
                subs = tuple(map(self._clamp, node.subs))
                new = Read(node.tensor, subs, self._clamp(filler), node.dtype, node.flat)
            case Apply(fn=fn, args=args, dtype=dtype):
                return Apply(fn, tuple(map(self._clamp, args)), dtype)
            case _:
                return node
        return new

    def _clamped(self, sub: Node, extent: int) -> Node:
        if not any(isinstance(n, Read) for n in walk_nodes(sub)) or self.space.inside(sub, extent):
            return sub
        return Apply("min", (Apply("max", (sub, Const(0, I64)), I64), Const(extent - 1, I64)), I64)

    def _check(self, node: Node, space: IndexSpace) -> Node:
        """Prove bounds; a filler that is never needed goes away."""
        match node:
            case Apply(fn="select", args=(cond, a, b), dtype=dtype):
                yes, no = (space.knowing(space.consequences(cond, holds)) for holds in (True, False))
                return Apply("select", (self._check(cond, space), self._check(a, yes), self._check(b, no)), dtype)
            case Apply(fn="and" | "or", args=(a, b)):
                later = space.knowing(space.consequences(a, node.fn == "and"))
                return Apply(node.fn, (self._check(a, space), self._check(b, later)), BOOL)
            case Apply(fn=fn, args=args, dtype=dtype):
                return Apply(fn, tuple(self._check(a, space) for a in args), dtype)
            case Read():
                return self._check_read(node, space)
        return node

    def _check_read(self, node: Read, space: IndexSpace) -> Node:
        dims = self._dims(node)
        if 0 in dims and node.filler is not None:
            return self._check(node.filler, space)
        bad = next((k for k, (s, n) in enumerate(zip(node.subs, dims)) if not space.inside(s, n)), None)
        subs = tuple(self._check(s, space) for s in node.subs)
        if bad is None:
            return Read(node.tensor, subs, None, node.dtype, node.flat)
        if node.filler is not None:
            return Read(node.tensor, subs, self._check(node.filler, space), node.dtype, node.flat)
        low, high = space.bounds(space.linear(node.subs[bad]))
        names = ", ".join(sorted(indices(node.subs[bad]))) or "none"
        self.fail(
            f"subscript {bad} of '{node.tensor}', {show(node.subs[bad])} (indices: {names}), ranges over "
            f"{low}..{high}, "
            f"outside 0..{dims[bad] - 1}; give the read a filler or a guard"
        )

    def _dims(self, read: Read) -> tuple[int, ...]:
        spec = self.specs[read.tensor]
        return (spec.len,) if read.flat else spec.dims
