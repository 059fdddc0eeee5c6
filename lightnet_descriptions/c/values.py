"""The values of the C that descriptions hold: numbers, text, arrays and pointers into them, structures, and what is
symbolic.

    int, float      C's integers, and double         Buffer, Pointer     memory: arrays, variables, `ln_alloc`'s
    Float           C's float                        Struct              `src`, `src_entry`, `op_arg`, `priv` …
    str             a string                         Enumerator          TL_FLOAT, LN_MEM_CPU …
    None            NULL                             Symbol              not known at compile time (a subclass says)

Nothing here is memory of the machine: a buffer is a list, and no index leaves it. Imports NumPy by `runtime.numbers`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import LightNetError
from lightnet.ir.expr import location
from lightnet.runtime.numbers import as_float
from lightnet_descriptions.c.tree import Type

#: Bytes of the types that memory may be of; every other type is one of pointers or handles, of 8.
SIZES = {
    "char": 1, "signed char": 1, "unsigned char": 1, "bool": 1, "int8_t": 1, "uint8_t": 1, "short": 2,
    "unsigned short": 2, "int16_t": 2,
    "uint16_t": 2, "int": 4, "unsigned": 4, "int32_t": 4, "uint32_t": 4, "ln_bool": 4, "tl_dtype": 4, "float": 4,
    "double": 8, "long": 8,
    "unsigned long": 8, "int64_t": 8, "uint64_t": 8, "size_t": 8, "ssize_t": 8,
}  # fmt: skip
#: What their elements are.
FLOATS = ("float", "double")
#: Characters of a text that is put together.
MAX_TEXT = 1 << 14


class CodeError(LightNetError):
    """An error in C of a description, at offset `pos` of its text; `instead` says what to write, where there is
    something."""

    pos: int = 0


def text_error(text: str, pos: int, message: str) -> CodeError:
    """An error at offset `pos` of `text`."""
    loc, line = location(text, min(pos, len(text)), "<snippet>")
    error = CodeError(message, loc, "description.c-code", source_line=line)
    error.pos = pos
    return error


class Float(float):
    """A C `float`: arithmetic with floats and integers rounds to float32."""

    __slots__ = ()

    def __new__(cls, value: float) -> Float:
        return super().__new__(cls, as_float(value) if math.isfinite(value) else value)


@dataclass(frozen=True)
class Enumerator:
    """A name of one of C's enumerations; equal to another of the same name, and to its number, if it has one."""

    name: str
    number: int | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return self.name


class CSymbol:
    """A value that is not known: the element of a tensor, a handle of a library. What can be done with it, a subclass
    says; each of these raises TypeError, with a message, for what cannot."""

    def binary(self, op: str, other: Any, *, reflected: bool) -> Any:
        """``self op other``, or ``other op self`` if `reflected`."""
        raise TypeError(f"{self.shown()} is not known at compile time: '{op}' cannot be computed")

    def unary(self, op: str) -> Any:
        raise TypeError(f"{self.shown()} is not known at compile time: '{op}' cannot be computed")

    def cast(self, name: str) -> Any:
        """The value as a number of the type `name`."""
        raise TypeError(f"{self.shown()} is not known at compile time: it is no {name}")

    def truth(self) -> bool:
        raise TypeError(f"{self.shown()} is not known at compile time: no branch can be taken on it")

    def shown(self) -> str:
        return "the value"


class CMemory:
    """The memory that pointers point into: `load` and `store` of element `index`, which raise IndexError outside of
    it.
    """

    type: str
    length: int

    def load(self, index: Any) -> Any:
        raise NotImplementedError

    def store(self, index: Any, value: Any) -> None:
        raise NotImplementedError


@dataclass(eq=False)
class CBuffer(CMemory):
    """An array of `type` (a variable is one of length 1). `what` says whose it is, in messages."""

    type: str
    elements: list[Any] = field(repr=False)
    what: str = "the array"
    read_only: bool = False

    @property
    def length(self) -> int:  # type: ignore[override]
        return len(self.elements)

    def at(self, index: Any) -> int:
        if isinstance(index, CSymbol) or not 0 <= index < len(self.elements):
            shown = index.shown() if isinstance(index, CSymbol) else index
            raise IndexError(f"index {shown} of {self.what} is not in 0..{len(self.elements) - 1}")
        return int(index)

    def load(self, index: Any) -> Any:
        return self.elements[self.at(index)]

    def store(self, index: Any, value: Any) -> None:
        if self.read_only:
            raise TypeError(f"{self.what} cannot be written")
        self.elements[self.at(index)] = value

    def text(self, start: int = 0) -> str:
        """The string that an array of char holds from element `start` on."""
        values: list[str] = []
        for e in islice(self.elements, start, None):
            value = e if isinstance(e, str) else chr(int(e) & 255)
            if value == "\0":
                break
            values.append(value)
        return "".join(values)

    def set_text(self, text: str) -> None:
        if len(text) + 1 > len(self.elements):
            raise IndexError(f"a text of {len(text)} characters does not fit {self.what}, of {len(self.elements)}")
        self.elements[: len(text) + 1] = [*text, "\0"]


@dataclass(eq=False)
class Raw(CMemory):
    """The memory that `ln_alloc` gives: bytes without a type. Its first use as a ``T *`` makes it a buffer of T, zeros
    at first.
    """

    nbytes: int
    what: str = "memory of ln_alloc"
    typed: CBuffer | None = None
    type: str = "void"

    @property
    def length(self) -> int:  # type: ignore[override]
        return self.nbytes

    def as_type(self, name: str) -> CMemory:
        if self.typed is None:
            zero = 0.0 if name in FLOATS else 0
            self.typed = CBuffer(name, [zero] * (self.nbytes // SIZES.get(name, 8)), self.what)
        if self.typed.type != name:
            raise TypeError(f"{self.what} is of {self.typed.type}, and is read as {name}")
        return self.typed

    def load(self, index: Any) -> Any:
        raise TypeError(f"{self.what} is void *: give the pointer a type")

    def store(self, index: Any, value: Any) -> None:
        self.load(index)


@dataclass(frozen=True, eq=False)
class Pointer:
    """`memory` from element `offset` on; of a `Raw`, bytes."""

    memory: CMemory
    offset: Any = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pointer) and self.memory is other.memory and self.offset == other.offset

    def __hash__(self) -> int:
        return id(self.memory)

    def elements(self, count: int) -> list[Any]:
        """The first `count` elements. Raises IndexError where there are not so many."""
        return [self.memory.load(self.offset + k) for k in range(count)]


@dataclass(eq=False)
class Struct:
    """A structure: its fields by name; those of `writable` (None: all) may be assigned."""

    what: str
    fields: dict[str, Any]
    writable: frozenset[str] | None = frozenset()
    #: Called for a field that may be there and is not in `fields` yet.
    missing: Callable[[str], Any] | None = None
    #: The types of the fields that are declared with one; any other takes every pointer.
    types: Mapping[str, Type] = field(default_factory=dict)

    def type_of(self, name: str) -> Type:
        return self.types.get(name, Type("void", 1))

    def get(self, name: str) -> Any:
        if name in self.fields:
            return self.fields[name]
        if self.missing is not None:
            return self.missing(name)
        raise KeyError(f"{self.what} has no member '{name}'; there are: {', '.join(self.fields) or 'none'}")


def array(type: str, values: Iterable[Any], what: str = "the array", *, read_only: bool = False) -> Pointer:
    """A pointer to an array of its own."""
    return Pointer(CBuffer(type, list(values), what, read_only))


def text_of(value: Any) -> str | None:
    """The string that a value is; None for what is none."""
    if isinstance(value, str):
        return value
    if isinstance(value, Pointer) and isinstance(value.memory, CBuffer) and value.memory.type == "char":
        return value.memory.text(value.offset)
    return None


def shown(value: Any) -> str:
    """A value in messages."""
    match value:
        case None:
            return "NULL"
        case CSymbol():
            return value.shown()
        case Struct():
            return value.what
        case Pointer() if (text := text_of(value)) is None:
            return f"a pointer to {getattr(value.memory, 'what', 'memory')}"
        case Pointer():
            return f'"{text[:40]}"'
        case str():
            return f'"{value[:40]}"'
    return str(value)
