"""The syntax trees of the C that descriptions hold. Every node knows where it begins, as an offset in its text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lightnet.dataclasses import dataclass, field, fields


@dataclass(frozen=True, slots=True)
class Type:
    """``name`` and so many ``*``; `name` has no qualifiers, and of ``unsigned long int`` is ``unsigned long``."""

    name: str
    pointers: int

    @property
    def is_pointer(self) -> bool:
        return self.pointers > 0

    @property
    def pointee(self) -> Type:
        return Type(self.name, self.pointers - 1)

    def __str__(self) -> str:
        return f"{self.name} {'*' * self.pointers}".strip()


@dataclass(frozen=True, slots=True)
class SyntaxNode:
    pos: int = field(compare=False)


# -- expressions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Number(SyntaxNode):
    """A number; one with the suffix ``f`` is a `values.Float`."""

    value: int | float


@dataclass(frozen=True, slots=True)
class Text(SyntaxNode):
    value: str


@dataclass(frozen=True, slots=True)
class Name(SyntaxNode):
    name: str


@dataclass(frozen=True, slots=True)
class Unary(SyntaxNode):
    """``-a``, ``+a``, ``!a``, ``~a``, ``*a`` or ``&a``."""

    op: str
    arg: Expr


@dataclass(frozen=True, slots=True)
class Increment(SyntaxNode):
    """``++a``, ``a++``, ``--a``, ``a--``."""

    op: str
    target: Expr
    prefix: bool


@dataclass(frozen=True, slots=True)
class Binary(SyntaxNode):
    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Conditional(SyntaxNode):
    cond: Expr
    then: Expr
    other: Expr


@dataclass(frozen=True, slots=True)
class Assign(SyntaxNode):
    """``target = value``, or with an operator: ``target += value`` (`op` is ``+``)."""

    op: str
    target: Expr
    value: Expr


@dataclass(frozen=True, slots=True)
class Call(SyntaxNode):
    fn: str
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Member(SyntaxNode):
    """``base->name`` or ``base.name``."""

    base: Expr
    name: str


@dataclass(frozen=True, slots=True)
class Index(SyntaxNode):
    base: Expr
    sub: Expr


@dataclass(frozen=True, slots=True)
class TypeCast(SyntaxNode):
    type: Type
    arg: Expr


@dataclass(frozen=True, slots=True)
class SizeOf(SyntaxNode):
    """``sizeof(type)`` or ``sizeof expression``."""

    what: Type | Expr


@dataclass(frozen=True, slots=True)
class Compound(SyntaxNode):
    """``(int[]){a, b}``, and the braces of a declaration; `length` is what the brackets hold."""

    type: Type
    items: tuple[Expr, ...]
    length: Expr | None


@dataclass(frozen=True, slots=True)
class Sequence(SyntaxNode):
    """``a, b``."""

    items: tuple[Expr, ...]


Expr = (
    Number | Text | Name | Unary | Increment | Binary | Conditional | Assign | Call | Member | Index | TypeCast | SizeOf
    | Compound | Sequence
)  # fmt: skip


# -- statements ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Declaration(SyntaxNode):
    """``type name = value`` or ``type name[length] = {…}``; `is_array` tells ``name[]`` from ``name``."""

    type: Type
    name: str
    value: Expr | None
    is_array: bool
    length: Expr | None


@dataclass(frozen=True, slots=True)
class Evaluate(SyntaxNode):
    """An expression for its effect."""

    expr: Expr


@dataclass(frozen=True, slots=True)
class If(SyntaxNode):
    cond: Expr
    then: Statement
    other: Statement | None


@dataclass(frozen=True, slots=True)
class For(SyntaxNode):
    start: Statement | None
    cond: Expr | None
    step: Expr | None
    body: Statement


@dataclass(frozen=True, slots=True)
class Jump(SyntaxNode):
    """``break`` or ``continue``."""

    kind: str


@dataclass(frozen=True, slots=True)
class Return(SyntaxNode):
    value: Expr | None


@dataclass(frozen=True, slots=True)
class Block(SyntaxNode):
    """``{ … }``, a scope; a whole text is one, too. Declarations of several names are blocks that are no scope."""

    statements: tuple[Statement, ...]
    is_scope: bool = True


Statement = Declaration | Evaluate | If | For | Jump | Return | Block


def children(node: Any) -> Iterator[Any]:
    """The nodes right inside of a node, in the order of the text."""
    for slot in fields(node):
        value = getattr(node, slot.name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, SyntaxNode):
                yield part


def walk(node: Any) -> Iterator[Any]:
    """Every node of a tree, parents first."""
    yield node
    for child in children(node):
        yield from walk(child)
