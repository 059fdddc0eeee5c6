"""The variables that code assigns: variables, and members of structures whose address is taken. Imports the tree and
the values.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from lightnet.dataclasses import dataclass
from lightnet_descriptions.c.tree import Type
from lightnet_descriptions.c.values import CMemory, Struct


@dataclass(eq=False)
class Variable(CMemory):
    """A variable: memory of length 1 that knows its type."""

    declared: Type
    value: Any
    name: str = ""
    is_array: bool = False
    is_set: bool = True
    why: str = "is read before it is given a value"  # the reason, where it is not set

    @property
    def type(self) -> str:  # type: ignore[override]
        return str(self.declared)

    @property
    def length(self) -> int:  # type: ignore[override]
        return 1

    @property
    def what(self) -> str:
        return f"'{self.name}'"

    def load(self, index: Any) -> Any:
        if index != 0:
            raise IndexError(f"'{self.name}' is one value, and no array")
        if not self.is_set:
            raise ValueError(f"'{self.name}' {self.why}")
        return self.value

    def store(self, index: Any, value: Any) -> None:
        if index != 0:
            raise IndexError(f"'{self.name}' is one value, and no array")
        self.value, self.is_set = value, True


@dataclass(eq=False)
class Field(CMemory):
    """A member of a structure whose address is taken."""

    holder: Struct
    name: str

    @property
    def type(self) -> str:  # type: ignore[override]
        return str(self.holder.type_of(self.name))

    @property
    def length(self) -> int:  # type: ignore[override]
        return 1

    def load(self, index: Any) -> Any:
        self.check(index)
        return self.holder.get(self.name)

    def check(self, index: Any) -> None:
        if index != 0:
            raise IndexError(f"'{self.name}' of {self.holder.what} is one value, and no array")

    def store(self, index: Any, value: Any) -> None:
        self.check(index)
        if self.holder.writable is not None and self.name not in self.holder.writable:
            raise TypeError(f"'{self.name}' of {self.holder.what} cannot be assigned")
        self.holder.fields[self.name] = value


class Place(NamedTuple):
    """The target of an assignment: an element of memory, or a member of a structure."""

    holder: CMemory | Struct
    key: Any
    type: Type
