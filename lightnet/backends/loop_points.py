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

from lightnet.backends.loop_addresses import Layouts
from lightnet.backends.loop_function import LoopFunction
from lightnet.backends.loop_layouts import covers, laid_out, ordered
from lightnet.backends.loop_vectors import Vectors, width_of
from lightnet.ir.affine import Space
from lightnet.ir.bound import BoundDefinition, Node, Statement, reads
from lightnet.ir.fusion import Nest

#: Nests that run one after the other at each point of the loops that they share.
Part = list[Nest]


class PointFunction(LoopFunction):
    """Builds the function of `parts`, which stand beside each other: block numbers run through the points of the first,
    then of the second, …"""

    def __init__(self, d: BoundDefinition, parts: Sequence[Part], private: dict[str, tuple[int, ...]],
                 aliases: dict[str, str], layouts: Layouts, zeros: Sequence[Nest] = ()):  # fmt: skip
        layouts = {name: layout for name, layout in layouts.items() if name not in private}
        super().__init__(d, [g for part in parts for g in part], None, private, aliases, 1, layouts, zeros)
        self.parts = [part for own in parts for part in _laid_out(own, d, layouts)]
        made = [nest for part in self.parts for nest in part]
        self.parts += [part for nest in zeros if not covers(made, nest) for part in _laid_out([nest], d, layouts)]

    def _values(self, memory: dict[str, SSAValue], sizes: dict[str, int]) -> Vectors:
        return Vectors(self.b, memory, sizes, self.written)

    def _grid(self) -> int:
        flat = self.addresses.flat
        parts = [[flat(g, len(g.loops) if len(part) > 1 else 0) for g in part] for part in self.parts]
        widths = [width_of(part[0], self.specs, self.scalars) if len(part) == 1 else 1 for part in parts]
        sizes = [prod(n for _, n in part[0].loops) // width for part, width in zip(parts, widths)]
        b, first = self.b, 0
        with b.loop(b.lo, b.hi) as block, self.values.scope({}):
            for part, size, width in zip(parts, sizes, widths):
                if len(parts) == 1:
                    self._part(block.iv, part, width)
                else:
                    place = b.add(block.iv, -first)
                    inside = b.cmpi("slt", place, b.index(size))
                    if first:
                        inside = b.op(arith.AndIOp, b.cmpi("sge", place, b.index(0)), inside)
                    with b.when(inside), self.values.scope({}, guard=True):
                        self._part(place, part, width)
                first += size
        return first

    def _part(self, position: SSAValue, part: Part, width: int) -> None:
        """The nests of a part at one position, for `width` elements along the last loop."""
        values: Vectors = self.values  # type: ignore[assignment]
        loops = part[0].loops
        values.lane, values.width = loops[-1][0] if loops else "", width
        if loops:
            name, n = loops[-1]
            self._unpack(position, (*loops[:-1], (name, n // width)))
            values.define(name, self.b.mul(values.scopes[-1].indices[name], width))
        for nest in part:
            self._body(nest)
        values.width = 1

    def _store(self, tensor: str, address: Node, value: SSAValue) -> None:
        values: Vectors = self.values  # type: ignore[assignment]
        if values.width > 1:
            return values.put(tensor, address, value)
        super()._store(tensor, address, value)


def _laid_out(part: Part, d: BoundDefinition, layouts: Layouts) -> list[Part]:
    """A part as parts that follow the layouts. Nests that share their loops stay together."""
    return [ordered(part, d.specs, layouts)] if len(part) > 1 else [[n] for n in laid_out(part[0], d.specs, layouts)]


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
    """Whether two statements touch a tensor that one of them writes, at elements that may be the same."""

    def memory(tensor: str) -> str:
        return aliases.get(tensor, tensor)

    for s, other in ((a, b), (b, a)):
        read = {memory(r.tensor) for r in reads(other.value)}
        if not other.fresh:
            read |= set(map(memory, other.targets))
        if read & set(map(memory, s.targets)):
            return True
    if not set(map(memory, a.targets)) & set(map(memory, b.targets)):
        return False
    return a.flat != b.flat or not any(_apart(p, q) for p, q in zip(_box(a), _box(b)))


def _box(s: Statement) -> list[tuple[int, int]]:
    """Where a statement begins to write along each dimension, and where it ends."""
    found = []
    for sub in s.subs:
        offset, index = Space(()).written(sub)
        found.append((offset, offset + (1 if index is None else dict(s.loops)[index])))
    return found


def _apart(p: tuple[int, int], q: tuple[int, int]) -> bool:
    return p[1] <= q[0] or q[1] <= p[0]
