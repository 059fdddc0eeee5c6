"""The contents of tensors while the C of a `run` is read: symbols, whose arithmetic is text of index notation. Imports
`c` and `ir`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lightnet.dataclasses import dataclass
from lightnet.ir.expr import format_number
from lightnet.ir.values import FUNCTION_NAMES
from lightnet_descriptions import c
from lightnet_descriptions.c import arguments
from lightnet_descriptions.c.values import FLOATS, Raw, shown

if TYPE_CHECKING:
    from lightnet_descriptions.steps import Run


@dataclass(eq=False)
class Elements(c.CMemory):
    """The contents of a tensor: its elements are symbols."""

    run: Run
    name: str
    type: str
    length: int

    @property
    def what(self) -> str:
        return f"the data of '{self.name}'"

    def load(self, index: Any) -> Any:
        return self.run.load_element(self, index)

    def store(self, index: Any, value: Any) -> None:
        self.run.store_element(self, index, value)

    def fill(self, offset: Any, size: Any) -> None:
        """`memset` to zero, of all of it."""
        whole = self.length * arguments.dtype_of(self.run.dtype(self.name)).tl_size
        if offset != 0 or size != whole:
            raise ValueError(f"memset writes {shown(size)} bytes of '{self.name}', which has {whole}")
        self.run.write(self.name, "i", "0")
        self.run.cleared.append(self.name)

    def move(self, offset: Any, source: c.Pointer, size: Any) -> None:
        """`memmove` of one tensor to another, or of memory that holds the elements of this one."""
        other = source.memory
        if isinstance(other, Raw) and isinstance(other.typed, StagedElements) and offset == 0 and source.offset == 0:
            self.run.unstage(self, other.typed, size)
            return
        if not isinstance(other, Elements) or offset != 0 or source.offset != 0 or other.type != self.type:
            raise TypeError("memmove in a run moves one tensor to another of its type")
        if not other.length == self.length == size // max(1, arguments.dtype_of(self.run.dtype(self.name)).tl_size):
            raise ValueError(f"memmove of {shown(size)} bytes, where '{self.name}' has {self.length} elements")
        self.run.write(self.name, "i", str(self.run.element(other, "i")))


@dataclass(eq=False)
class StagedElements(c.CMemory):
    """Memory of the code's own for elements of `dtype`, which a loop fills before they are moved to a tensor: cuda's
    ops do that."""

    dtype: Any
    length: int
    type: str = "staged"
    content: tuple[str, str, int] | None = None  # the index, what stands there, and how often

    @property
    def what(self) -> str:
        return "memory of ln_alloc"

    def load(self, index: Any) -> Any:
        raise TypeError("elements that are staged are moved to a tensor, and not read")


@dataclass(eq=False)
class Element(c.CSymbol):
    """An expression of index notation: `kind` is C's type of it. An index (`is_index`) also counts elements."""

    text: str
    kind: str
    is_index: bool = False

    def __str__(self) -> str:
        return self.text

    def shown(self) -> str:
        return f"'{self.text}', which depends on elements,"

    def binary(self, op: str, other: Any, *, reflected: bool) -> Any:
        if op in ("&&", "||", "+", "-", "*", "/", "%", "<", "<=", ">", ">=", "==", "!="):
            a, b = (element_operand(other), self.text) if reflected else (self.text, element_operand(other))
            kind = "int" if op in ("<", "<=", ">", ">=", "==", "!=") else self.wider(other)
            return Element(f"({a} {op} {b})", kind, self.is_index and isinstance(other, int) and op in ("+", "-", "*"))
        if op in ("pow", "min", "max"):
            a, b = (element_operand(other), self.text) if reflected else (self.text, element_operand(other))
            return Element(f"{op}({a}, {b})", self.wider(other))
        raise TypeError(f"'{op}' is not for elements here: index notation has bitand, bitor, shl and shr")

    def wider(self, other: Any) -> str:
        if isinstance(other, Element):
            kind = other.kind
        else:
            kind = "double" if type(other) is float else "float" if isinstance(other, float) else "int"
        return next((k for k in ("double", "float") if k in (self.kind, kind)), "int")

    def unary(self, op: str) -> Any:
        if op in ("-", "!"):
            return Element(f"({op}{self.text})", self.kind)
        name = {"fabs": "abs"}.get(op, op)
        if name == "+":
            return self
        if name not in FUNCTION_NAMES:
            raise TypeError(
                f"'{op}' is not for elements here; in index notation there are: {', '.join(sorted(FUNCTION_NAMES))}"
            )
        return Element(f"{name}({self.text})", self.kind)

    def cast(self, name: str) -> Any:
        if not name:  # stored in a tensor
            return self
        if name in FLOATS or name == self.kind:
            return Element(self.text, name if name in FLOATS else self.kind, self.is_index)
        raise TypeError(f"an element of {self.kind} is made {name}: convert it with tl_convert")


def element_operand(value: Any) -> str:
    """An operand of an expression on elements."""
    if isinstance(value, Element):
        return value.text
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (
            format_number(float(value) if isinstance(value, c.Float) else value)
            if value >= 0
            else f"({format_number(value)})"
        )
    raise TypeError(f"{shown(value)} is no number")
