"""The teams by which the threads of a block share rows: a team for each point, whose threads take elements of its row
in turn and put what they found together.

    order "row"       thread = point · size + member      a row lies along memory: neighbours read neighbouring elements
    order "column"    thread = member · across + point    the points do: neighbours work on neighbouring rows

Imports the builder of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from xdsl.dialects import arith
from xdsl.dialects.builtin import Float32Type, Float64Type, IntegerType, f64, i32, i64
from xdsl.ir import SSAValue

from lightnet.backends.cuda.simt import Simt
from lightnet.backends.elementwise import combine, loaded_value, memory_value
from lightnet.dataclasses import dataclass
from lightnet.dialects.cuda_checks import WARP
from lightnet.ir.types import storage_type
from lightnet.runtime.dtypes import DType

ORDERS = ("row", "column")
#: What a team passes around: a value, or a value and its place.
Found = tuple[SSAValue, ...]
Step = Callable[[Found, Found], Found]


@dataclass(frozen=True)
class Team:
    """Teams of `size` threads, `across` of them in a block: both powers of two, together whole warps. Along columns at
    most a warp of points lies across."""

    order: str
    across: int
    size: int

    @property
    def threads(self) -> int:
        return self.across * self.size

    @property
    def warps(self) -> int:
        """The number of warps that a team is spread over."""
        return self.threads // WARP if self.order == "column" else max(1, self.size // WARP)

    @property
    def strides(self) -> list[int]:
        """The distances, in lanes, at which members of a team stand in a warp: powers of two from the first on."""
        first, last = (self.across, WARP) if self.order == "column" else (1, min(self.size, WARP))
        return [1 << k for k in range(first.bit_length() - 1, last.bit_length() - 1)]

    def place(self, b: Simt, thread: SSAValue) -> tuple[SSAValue, SSAValue]:
        """The point of a thread in its block, and its number in the team."""
        if self.order == "column":
            member, point = b.divmod(thread, self.across)
            return point, member
        return b.divmod(thread, self.size)

    def total(self, b: Simt, found: Found, dtypes: Sequence[DType], step: Step, thread: SSAValue) -> Found:
        """The total that all members found together, for each of them. The whole block comes here."""
        for distance in self.strides:
            found = step(found, tuple(exchange(b, v, distance) for v in found))
        if self.warps == 1:
            return found
        beside = self.across if self.order == "column" else 1
        warp, lane = b.divmod(thread, WARP)
        point = b.divmod(lane, beside)[1]
        first = b.mul(b.divmod(warp, self.warps)[0], self.warps)  # of the team's warps
        shared = [b.shared([self.threads // WARP, beside], storage_type(t)) for t in dtypes]
        with b.when(b.below(lane, beside)):
            for memory, value in zip(shared, found):
                b.store(memory_value(b, value), memory, [warp, point])
        b.barrier()
        places = [[b.add(first, w), point] for w in range(self.warps)]
        return tree([tuple(loaded_value(b, b.load(m, at), t) for m, t in zip(shared, dtypes)) for at in places], step)


def tree(parts: Sequence[Found], step: Step) -> Found:
    """All parts as one, neighbours first."""
    while len(parts) > 1:
        parts = [reduce(step, parts[k : k + 2]) for k in range(0, len(parts), 2)]
    return parts[0]


def step_of(b: Simt, op: str, dtype: DType) -> Step:
    """One step of a reduction; of values with places, where the first winner counts, and a NaN wins over every
    number."""
    if not op.startswith("arg"):
        return lambda x, y: (combine(b, op, x[0], y[0], dtype),)

    def better(x: Found, y: Found) -> Found:
        wins, ties = _order(b, op, y[0], x[0], dtype)
        earlier = b.op(arith.AndIOp, ties, b.cmpi("slt", y[1], x[1]))
        takes = b.op(arith.OrIOp, wins, earlier)
        return b.select(takes, y[0], x[0]), b.select(takes, y[1], x[1])

    return better


def _order(b: Simt, op: str, value: SSAValue, best: SSAValue, dtype: DType) -> tuple[SSAValue, SSAValue]:
    """Return whether `value` is better than `best`, and whether it is as good."""
    if not dtype.is_float:
        sign = "u" if dtype.kind in ("uint", "bool") else "s"
        return b.cmpi(f"{sign}{'gt' if op == 'argmax=' else 'lt'}", value, best), b.cmpi("eq", value, best)
    nan, known = b.cmpf("uno", value, value), b.cmpf("ord", best, best)
    wins = b.op(arith.OrIOp, b.cmpf("ogt" if op == "argmax=" else "olt", value, best), b.op(arith.AndIOp, nan, known))
    both = b.op(arith.AndIOp, nan, b.cmpf("uno", best, best))
    return wins, b.op(arith.OrIOp, b.cmpf("oeq", value, best), both)


def exchange(b: Simt, value: SSAValue, distance: int) -> SSAValue:
    """The value, of any scalar type, of the lane whose number differs by `distance` (a power of two); a shuffle moves
    32 bits."""
    type = value.type
    if isinstance(type, Float32Type) or type == i32:
        return b.shuffle("xor", value, distance)
    if isinstance(type, Float64Type):
        bits = exchange(b, b.op(arith.BitcastOp, value, type=i64), distance)
        return b.op(arith.BitcastOp, bits, type=f64)
    assert isinstance(type, IntegerType), type
    if type.width.data < 32:
        wide = b.shuffle("xor", b.op(arith.ExtUIOp, value, type=i32), distance)
        return b.op(arith.TruncIOp, wide, type=type)
    half = b.const(32, i64)
    low, high = (b.shuffle("xor", b.op(arith.TruncIOp, v, type=i32), distance)
                 for v in (value, b.op(arith.ShRUIOp, value, half)))  # fmt: skip
    high = b.op(arith.ShLIOp, b.op(arith.ExtUIOp, high, type=i64), half)
    return b.op(arith.OrIOp, high, b.op(arith.ExtUIOp, low, type=i64))
