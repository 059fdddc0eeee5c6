"""The form that an SSA value of level 4 takes while its function is emitted as LLVM IR text.

* an index: a linear form `Lin` over symbols (LLVM values of type i64), so that address arithmetic folds by itself;
* a memref: `Mem`, a pointer and a linear byte offset;
* a vector: `Vec`, a list of leaves (``<16 x float>``), each made when it is first asked for;
* any other scalar: the operand's text, a literal or an LLVM name.

Imports xDSL types only.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, MutableMapping, Sequence
from functools import cache
from math import gcd, prod
from typing import Any, NamedTuple

from xdsl.dialects.builtin import (
    BFloat16Type,
    Float16Type,
    Float32Type,
    Float64Type,
    IndexType,
    IntegerType,
    MemRefType,
)
from xdsl.ir import Attribute, SSAValue

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError

_FLOATS: dict[type[Attribute], str] = {
    Float16Type: "half",
    BFloat16Type: "bfloat",
    Float32Type: "float",
    Float64Type: "double",
}
_BYTES = {"half": 2, "bfloat": 2, "float": 4, "double": 8}
_MANGLED = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}


@dataclass(frozen=True, slots=True)
class Dots:
    """The sums of products of small numbers that are instructions: of `pairs` of words, of four `bytes`, of which the
    first factor is unsigned, of pairs of `bfloats`; as x86 has them."""

    pairs: bool = False
    bytes: bool = False
    bfloats: bool = False


class Sym:
    """An i64 LLVM value; `depth` is the number of scopes around its definition."""

    __slots__ = ("depth", "name", "order")
    _count = 0

    def __init__(self, name: str, depth: int):
        self.name, self.depth = name, depth
        Sym._count += 1
        self.order = Sym._count


class Lin(NamedTuple):  # of which a kernel makes thousands, a third as long as those of a dataclass
    """The linear form ``const + sum(coeff * sym)``; terms are ordered by depth, so that outer parts are shared."""

    const: int
    terms: tuple[tuple[Sym, int], ...] = ()

    @property
    def depth(self) -> int:
        return self.terms[-1][0].depth if self.terms else 0

    def __add__(self, other: Lin) -> Lin:  # type: ignore[override]  # no longer pair
        if not other.terms:
            return Lin(self.const + other.const, self.terms)
        if not self.terms:
            return Lin(self.const + other.const, other.terms)
        sums = dict(self.terms)
        for sym, coeff in other.terms:
            sums[sym] = sums.get(sym, 0) + coeff
        terms = sorted((t for t in sums.items() if t[1]), key=lambda t: (t[0].depth, t[0].order))
        return Lin(self.const + other.const, tuple(terms))

    def scaled(self, factor: int) -> Lin:
        if factor == 0:
            return Lin(0)
        if factor == 1:
            return self
        return Lin(self.const * factor, tuple((s, c * factor) for s, c in self.terms))


@dataclass(frozen=True, slots=True)
class Mem:
    """A memref: `root` names the argument or alloca that it is part of, `align` its base's alignment in bytes."""

    root: str
    offset: Lin
    type: MemRefType
    align: int

    @property
    def strides(self) -> tuple[int, ...]:
        """Row-major strides, in elements."""
        return row_major(self.type.get_shape())


@cache
def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[d + 1 :]) for d in range(len(shape)))


class Vec:
    """A vector value as leaves. Leaf f holds the elements [f * lanes, (f + 1) * lanes) of the row-major order.

    `make_leaf(f)` and `make_scalar(i)` emit a leaf or a single element (for a broadcast). Leaves are kept; elements are
    kept only while the value is lazy, that is, used in one block. `roots` are the memories that lazy parts still read.
    """

    __slots__ = ("_make_leaf", "_make_scalar", "elem", "lanes", "leaves", "roots", "scalars", "shape")

    def __init__(
        self,
        elem: str,
        shape: tuple[int, ...],
        lanes: int,
        make_leaf: Callable[[int], str],
        make_scalar: Callable[[int], str | None] | None = None,
        roots: frozenset[str] = frozenset(),
    ):
        self.elem, self.shape, self.lanes, self.roots = elem, shape, lanes, roots
        self._make_leaf, self._make_scalar = make_leaf, make_scalar
        self.leaves: dict[int, str] = {}
        self.scalars: dict[int, str | None] = {}

    @classmethod
    def of_leaves(cls, elem: str, shape: tuple[int, ...], lanes: int, leaves: Sequence[str]) -> Vec:
        vec = cls(elem, shape, lanes, leaves.__getitem__)
        vec.leaves = dict(enumerate(leaves))
        return vec

    @property
    def count(self) -> int:
        return prod(self.shape) // self.lanes

    @property
    def leaf_type(self) -> str:
        return leaf_type(self.elem, self.lanes)

    def leaf(self, f: int) -> str:
        value = self.leaves.get(f)
        if value is None:
            value = self.leaves[f] = self._make_leaf(f)
        return value

    def lazy_scalar(self, i: int) -> str | None:
        """Element i made by itself, or None when it must be taken from its leaf."""
        if self.lanes == 1:
            return self.leaf(i)
        if self._make_scalar is None or i // self.lanes in self.leaves:
            return None
        if i not in self.scalars:
            self.scalars[i] = self._make_scalar(i)
        return self.scalars[i]

    def force(self) -> None:
        """Emit every leaf that is not there yet; the value reads no memory afterwards."""
        for f in range(self.count):
            self.leaf(f)
        self._make_scalar, self.roots = None, frozenset()
        self.scalars.clear()

    def forget(self) -> None:
        """Let go of what makes leaves, which may lead back to this value: no other is asked for any more."""
        self._make_leaf, self._make_scalar = self.leaves.__getitem__, None


def forget(values: MutableMapping[SSAValue, Any]) -> None:
    """Let go of the values of a function. They lead to each other and to the emitter, and the cycle collector rests
    while code is made: they would stay until all kernels are emitted (7 MB of ERFNet's)."""
    for value in values.values():
        if isinstance(value, Vec):
            value.forget()
    values.clear()


@cache
def leaf_lanes(shape: tuple[int, ...], width: int) -> int:
    """Elements a leaf: all of a short last dimension, else the hardware's width or the best divisor below it.

    A power of two is preferred unless another divisor is more than twice as long.
    """
    last = shape[-1] if shape else 1
    if last <= width:
        return max(last, 1)
    power = gcd(last, width)
    longest = max(d for d in range(1, width + 1) if last % d == 0)
    return power if 2 * power >= longest else longest


@cache
def leaf_type(elem: str, lanes: int) -> str:
    return elem if lanes == 1 else f"<{lanes} x {elem}>"


@cache
def llvm_type(type: Attribute) -> str:
    """The LLVM type of a scalar."""
    if isinstance(type, IntegerType):
        return f"i{type.width.data}"
    if isinstance(type, IndexType):
        return "i64"
    name = _FLOATS.get(type.__class__)
    if name is None:
        raise LightNetError(f"level 4 has no machine type for {type}")
    return name


@cache
def size_of(elem: str) -> int:
    """Bytes of an element in memory; an i1 takes one byte."""
    return _BYTES.get(elem) or (int(elem[1:]) + 7) // 8


@cache
def mangled(type: str) -> str:
    """The suffix of an overloaded intrinsic: ``float`` is f32, ``<16 x float>`` is v16f32."""
    if type.startswith("<"):
        count, _, elem = type[1:-1].partition(" x ")
        return f"v{count}{mangled(elem)}"
    return _MANGLED.get(type, type)


@cache
def splat_literal(elem: str, lanes: int, literal: str) -> str:
    return literal if lanes == 1 else f"splat ({elem} {literal})"


def int_literal(value: int, elem: str) -> str:
    return ("true" if value else "false") if elem == "i1" else str(value)


def float_literal(value: float, elem: str) -> str:
    """The exact literal: LLVM writes the bits of the double for float and double, its own bits for the short types."""
    if elem == "half":
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    if elem == "bfloat":
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
        return f"0xR{bits >> 16:04X}"
    if elem == "float" and value == value and abs(value) != float("inf"):
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    if value != value:
        return "0x7FF8000000000000"
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def literal(value: float | int, elem: str) -> str:
    return float_literal(float(value), elem) if elem in _BYTES else int_literal(int(value), elem)


@cache
def slice_offsets(shape: tuple[int, ...], steps: tuple[int, ...]) -> list[int]:
    """The offset of each element of a slice, row-major, where dimension d advances by `steps[d]`."""
    offsets = [0]
    for n, step in zip(shape, steps):
        offsets = [o + i * step for o in offsets for i in range(n)]
    return offsets


@cache
def slice_valid(shape: tuple[int, ...], valid: tuple[int, ...]) -> list[bool]:
    """Return whether each element of a slice is inside the extents `valid`."""
    inside = [True]
    for n, v in zip(shape, valid):
        inside = [ok and i < v for ok in inside for i in range(n)]
    return inside
