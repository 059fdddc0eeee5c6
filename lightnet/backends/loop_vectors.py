"""Several consecutive elements at once: the values of a nest as vectors along its last loop.

A thread that has four elements of a row moves 16 bytes an access, and computes what the four share once. Part of
`loops.py`. Imports `ir.bound`, `ir.affine`, `builder` and xDSL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from xdsl.dialects.builtin import VectorType
from xdsl.ir import SSAValue

from lightnet.backends.builder import Builder
from lightnet.backends.elementwise import applied, constant, loaded_value, memory_value, takes_vectors
from lightnet.backends.loop_values import Values
from lightnet.ir.affine import IndexSpace
from lightnet.ir.bound import Apply, Const, Idx, Node, Read, Statement, indices, reads
from lightnet.ir.functions import FLOAT_FUNCTIONS
from lightnet.ir.fusion import Nest
from lightnet.ir.types import TensorSpec
from lightnet.runtime.dims import Size

#: Bytes of one access of a thread, and elements that it has at most.
ACCESS, MOST = 16, 8
#: What is not worth four times the code.
SCALAR = {"pow", *(name for name, f in FLOAT_FUNCTIONS.items() if f.is_long)}


def width_of(
    nest: Nest, specs: Mapping[str, TensorSpec], scalars: Iterable[str], access: int = ACCESS, most: int = MOST,
    *, gathers: bool = True,
) -> int:  # fmt: skip
    """The number of elements along its last loop that a nest with linear addresses can compute at once, in accesses of
    so many bytes; 1 where that is for single elements: where something but an address depends on the index, where what
    is written is not contiguous along it, or, unless it `gathers`, where what is read is neither that nor one element.
    """
    if not nest.loops:
        return 1
    name, n = nest.loops[-1]
    written: set[str] = set()
    for s in nest.statements:
        check = _Check(IndexSpace(nest.loops + s.reductions), name, specs, written, gathers)
        if not check.takes(s, s.tensor not in scalars):
            return 1
        written.update(s.targets)
    touched = {t for s in nest.statements for t in (*s.targets, *(r.tensor for r in reads(s.value)))}
    size = max((specs[t].dtype.size for t in touched if t not in scalars), default=access)
    width = min(most, access // size)
    while width > 1 and n % width != 0:
        width //= 2
    return width


class _Check:
    """The test whether a statement can be computed for consecutive values of the index `name`."""

    def __init__(self, space: IndexSpace, name: str, specs: Mapping[str, TensorSpec], written: set[str], gathers: bool):
        self.space, self.name, self.specs, self.written, self.gathers = space, name, specs, written, gathers

    def takes(self, s: Statement, stored: bool) -> bool:
        if s.arg is not None or (stored and self.step(s.subs[0]) != 1):
            return False
        if s.op != "=" and not self.specs[s.tensor].dtype.is_float:
            return False
        return self.node(s.value)

    def step(self, address: Node) -> Size | None:
        """From one element to the next; None where that differs."""
        terms = self.space.linear(address).terms
        index = Idx(self.name)
        if any(self.name in indices(atom) for atom in terms if atom != index):
            return None
        return terms.get(index, 0)

    def varies(self, node: Node) -> bool:
        return self.name in indices(node) or any(r.tensor in self.written for r in reads(node))

    def node(self, node: Node) -> bool:
        if not self.varies(node):
            return True
        match node:
            case Read(tensor=tensor, subs=(address,)):
                step = self.step(address)
                return tensor in self.written or (isinstance(step, int) if self.gathers else step in (0, 1))
            case Apply(fn="select", args=(cond, a, b)):
                inside = not self.varies(cond) or all(map(self.inside, reads(a) + reads(b)))
                return inside and all(map(self.node, node.args))
            case Apply(fn="and" | "or", args=(a, b)):
                return self.node(a) and self.node(b) and not reads_outside(self, b)
            case Apply(fn=fn, args=args):
                return takes_vectors(node) and fn not in SCALAR and all(map(self.node, args))
        return False

    def inside(self, read: Read) -> bool:
        """Return whether a read falls into memory whatever guards it."""
        return read.tensor in self.written or self.space.inside(read.subs[0], self.specs[read.tensor].len)


def reads_outside(check: _Check, node: Node) -> bool:
    """Return whether an expression reads what may not be there."""
    return not all(map(check.inside, reads(node)))


class ConsecutiveValues(Values):
    """Values of `width` consecutive elements: what depends on the index `lane` (whose value is that of the first
    element), or on what the nest has computed, is a vector, all else a scalar."""

    def __init__(self, b: Builder, memory: dict[str, SSAValue], sizes: dict[str, Size], written: set[str]):
        super().__init__(b, memory, sizes, written)
        self.lane, self.width = "", 1

    def result(self, node: Node) -> SSAValue:
        return self.value(node) if self.width == 1 else self.wide(node)

    def wide(self, node: Node) -> SSAValue:
        """An expression as a vector."""
        if isinstance(node, Const):
            return constant(self.b, node, (self.width,))
        value = self.value(node)
        return value if isinstance(value.type, VectorType) else self.b.broadcast(value, (self.width,))

    def _varies(self, node: Node) -> bool:
        return self.lane in self._about(node)[0] or any(r.tensor in self.registers for r in reads(node))

    def _value(self, node: Node) -> SSAValue:
        if self.width == 1 or not self._varies(node):
            return super()._value(node)
        b = self.b
        match node:
            case Read(tensor=tensor, subs=(address,), dtype=dtype):
                step = self.space.linear(address).terms[Idx(self.lane)]
                read = b.tile_load(self.memory[tensor], [self.index(address)], [0], (self.width,), steps=[step])
                return loaded_value(b, read, dtype)
            case Apply(fn="select", args=(cond, x, y)) if not self._varies(cond):
                return self._select(cond, lambda: self.wide(x), lambda: self.wide(y), (x, y))
            case Apply(args=args):
                return applied(b, node, [self.wide(x) for x in args])
        raise TypeError(node)

    def put(self, tensor: str, address: Node, value: SSAValue) -> None:
        """Store a vector."""
        self.b.tile_store(memory_value(self.b, value), self.memory[tensor], [self.index(address)], [0])
