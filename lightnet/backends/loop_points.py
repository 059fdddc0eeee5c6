"""Loops for threads: a function whose blocks are single points of independent loops, or a few consecutive ones.

As `loop_function.py`, but that each block does as little as there is: nests that do not depend on each other stand
beside each other in one function (where tensors lie in layouts, neighbouring blocks are neighbouring elements there),
and a block has several consecutive elements where they can be computed as a vector. Part of `loops.py`.
Imports `ir` and xDSL.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from lightnet.backends.loop_function import Labels, LoopFunction
from lightnet.backends.loop_layouts import box_of
from lightnet.backends.loop_vectors import width_of
from lightnet.ir.bound import BoundDefinition, Node, Statement, reads
from lightnet.ir.fusion import Nest
from lightnet.runtime.dims import Size

#: Nests that run one after the other at each point of the loops that they share.
Part = list[Nest]


class PointFunction(LoopFunction):
    """Builds the function of `parts`, which stand beside each other: block numbers run through the points of the first,
    then of the second, …"""

    def __init__(self, d: BoundDefinition, parts: Sequence[Part], private: dict[str, tuple[int, ...]],
                 aliases: dict[str, str], zeros: Sequence[Nest], labels: Labels):  # fmt: skip
        super().__init__(d, [g for part in parts for g in part], None, private, aliases, 1, zeros, labels=labels)
        self.parts = [*parts, *([nest] for nest in zeros)]

    def _takes_vectors(self) -> bool:
        return False  # each block has one, or a few elements of its own

    def _grid(self) -> Size:
        flat = self.addresses.flat
        parts = [[flat(g, len(g.loops) if len(part) > 1 else 0) for g in part] for part in self.parts]
        widths = [width_of(part[0], self.specs, self.scalars) if len(part) == 1 else 1 for part in parts]
        sizes = [prod(n for _, n in part[0].loops) // width for part, width in zip(parts, widths)]
        first: Size = 0
        b = self.b
        with self._over_blocks() as block:
            for part, size, width in zip(parts, sizes, widths):
                if len(parts) == 1:
                    self._part(block, part, width)
                else:
                    place = b.add(block, -first)
                    inside = b.cmpi("slt", place, b.index(size))
                    if first != 0:
                        inside = b.op(arith.AndIOp, b.cmpi("sge", place, b.index(0)), inside)
                    with b.when(inside), self.values.scope({}, guard=True):
                        self._part(place, part, width)
                first += size
        return first

    def _part(self, position: SSAValue, part: Part, width: int) -> None:
        """The nests of a part at one position, for `width` elements along the last loop."""
        self.nest, values, loops = part[0], self.values, part[0].loops
        values.lane, values.width = loops[-1][0] if loops else "", width
        if loops:
            name, n = loops[-1]
            self._unpack(position, (*loops[:-1], (name, n // width)))
            values.define(name, self.b.mul(values.scopes[-1].indices[name], width))
        for self.nest in part:
            self._body(self.nest)
        values.width = 1


def beside(groups: Sequence[Nest], aliases: dict[str, str]) -> list[list[Part]]:
    """Nests by launches: a nest joins the launch before it if it reads nothing that is written there, and writes
    nothing that is touched there; but several may write boxes of one tensor that share no element."""
    launches: list[list[Part]] = []
    for g in groups:
        if not launches or any(_depend(g, other, aliases) for (other,) in launches[-1]):
            launches.append([])
        launches[-1].append([g])
    return launches


def _depend(one: Nest, other: Nest, aliases: dict[str, str]) -> bool:
    return any(_conflict(a, b, aliases) for a in one.statements for b in other.statements)


def _conflict(a: Statement, b: Statement, aliases: dict[str, str]) -> bool:
    """Return whether two statements touch a tensor that one of them writes, at elements that may be the same."""

    def memory(tensor: str) -> str:
        return aliases.get(tensor, tensor)

    for s, other in ((a, b), (b, a)):
        written = set(map(memory, s.targets))
        touched = [(t, other.subs, other.flat) for t in other.targets]
        touched += [(r.tensor, r.subs, r.flat) for r in reads(other.value)]
        for tensor, subs, flat in touched:
            at_own = subs == other.subs and memory(tensor) in map(memory, other.targets)
            same = tensor in s.targets or (at_own and s.tensor == other.tensor)  # by subscripts that mean the same
            if memory(tensor) in written and not (same and flat == s.flat and _apart(s, subs, other)):
                return True
    return False


def _apart(s: Statement, subs: Sequence[Node], other: Statement) -> bool:
    """Return whether what a statement writes and what another one touches, by `subs`, share no element."""
    boxes = zip(box_of(s.subs, s.loops), box_of(subs, other.loops + other.reductions), strict=True)
    return any(p[1] < q[0] or q[1] < p[0] for p, q in boxes)
