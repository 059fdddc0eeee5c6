"""The parts of a module of PTX: operands, instructions, scopes, functions, and the text that they stand in. Imports
the standard library and `lightnet.diagnostics`.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right

from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import LightNetError, SourceLoc

#: What the file is called in locations.
FILE = "<ptx>"
_SIZES = {"8": 1, "16": 2, "32": 4, "64": 8}


@dataclass(frozen=True, slots=True)
class Reg:
    """A register, a special register (``%tid.x``), or the sink ``_``."""

    name: str


@dataclass(frozen=True, slots=True)
class Imm:
    """A constant: `kind` is ``int``, ``f32`` or ``f64``; of a float, `value` is the number (a decimal one is an
    ``f64``).
    """

    value: int | float
    kind: str


@dataclass(frozen=True, slots=True)
class Vec:
    """``{a, b}``."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Address:
    """``[base + offset]``; the base is a register or variable's name, or a number. ``[base, {a, b}]``: coordinates in a
    tensor."""

    base: Reg | Imm
    offset: int
    coordinates: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """``a|b``: two results."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Not:
    """``!p``."""

    operand: Operand


@dataclass(frozen=True, slots=True)
class Group:
    """``(a, b)``: the arguments or results of a call."""

    items: tuple[Operand, ...]


Operand = Reg | Imm | Vec | Address | Pair | Not | Group


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction; `guard` is the predicate register and whether it is negated. `pos` is its offset in the text."""

    opcode: str
    operands: tuple[Operand, ...]
    guard: tuple[str, bool] | None
    pos: int


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable in a state space: `size` bytes (0 where it is open, ``[]``), `data` its initial bytes or None.
    `kind` is the type of one element (``f32``)."""

    space: str
    name: str
    size: int
    align: int
    kind: str
    data: bytes | None
    pos: int
    extern: bool = False


@dataclass(slots=True)
class Scope:
    """A scope: what stands between braces: items in order, and the names that it declares."""

    items: list[Instruction | Scope] = field(default_factory=list)
    registers: dict[str, str] = field(default_factory=dict)
    ranges: dict[str, tuple[str, int]] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Function:
    """An entry or a device function; `limits` has the directives ``.reqntid`` and so on. A declaration has no body."""

    name: str
    entry: bool
    returns: tuple[Variable, ...]
    params: tuple[Variable, ...]
    limits: dict[str, tuple[int, ...]]
    body: Scope | None
    pos: int


class Source:
    """The text, and where its lines begin."""

    def __init__(self, text: str, name: str = FILE) -> None:
        self.text, self.name = text, name
        self._starts = [0, *(m.end() for m in re.finditer("\n", text))]

    def loc(self, pos: int) -> SourceLoc:
        """The location of an offset; lines and columns count from 1."""
        line = bisect_right(self._starts, pos)
        return SourceLoc(self.name, line, pos - self._starts[line - 1] + 1)

    def line(self, pos: int) -> str:
        """The line that an offset is in, without its end."""
        start = self._starts[bisect_right(self._starts, pos) - 1]
        return self.text[start : (self.text.find("\n", start) + 1 or len(self.text) + 1) - 1]

    def error(self, message: str, pos: int, label: str | None = None) -> LightNetError:
        """An error at an offset."""
        return LightNetError(message, self.loc(pos), label, self.line(pos).replace("\t", " "))


@dataclass(slots=True)
class Module:
    """A PTX module: `version` as (major, minor), `target` (``sm_80``), variables and functions by name."""

    source: Source
    version: tuple[int, int] = (0, 0)
    target: str = ""
    variables: dict[str, Variable] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)


def bytes_of(kind: str) -> int:
    """The size of a type in memory: ``f32`` has 4 bytes."""
    return {"pred": 1, "f16x2": 4, "bf16": 2, "bf16x2": 4}.get(kind) or _SIZES[kind.lstrip("busf")]


def encode(imm: Imm, kind: str, source: Source, pos: int) -> bytes:
    """A constant as the little-endian bytes of a type. Raises LightNetError where it is not one of that type."""
    size = bytes_of(kind)
    if imm.kind == "int":
        if kind in ("f32", "f64"):
            raise source.error(f"{imm.value} is an integer, not an .{kind}", pos, "ptx.constant")
        if not -(1 << (8 * size - 1)) <= imm.value < 1 << (8 * size):
            raise source.error(f"{imm.value} does not fit into {8 * size} bits", pos, "ptx.constant")
        return (int(imm.value) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    if size == 8 and kind in ("f64", "b64"):
        return struct.pack("<d", imm.value)
    if size == 4 and kind in ("f32", "b32"):
        try:
            return struct.pack("<f", imm.value)
        except OverflowError:
            raise source.error(f"{imm.value} is no f32", pos, "ptx.constant") from None
    raise source.error(f"a floating-point constant is no .{kind}", pos, "ptx.constant")
