"""The values of C's expressions: a tree is walked, each step counted. The statements around them are in `machine.py`.

Imports the tree, the values, the arithmetic and the functions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from lightnet.dataclasses import dataclass, field
from lightnet_descriptions.c import tree
from lightnet_descriptions.c.arithmetic import c_arithmetic, c_element_type, c_kind, c_size_of, equal, integer, negated
from lightnet_descriptions.c.functions import (
    ELEMENTS_A_STEP,
    MAX_BYTES,
    MAX_STEPS,
    CFunction,
    RunBudget,
    check_count,
    unknown_value,
)
from lightnet_descriptions.c.tree import Expr, Type
from lightnet_descriptions.c.values import (
    FLOATS,
    SIZES,
    CBuffer,
    CodeError,
    CSymbol,
    Enumerator,
    Float,
    Pointer,
    Raw,
    Struct,
    shown,
    text_error,
)
from lightnet_descriptions.c.variables import Field, Place, Variable


def _length(argument: Any) -> int:
    """The part of an argument that a function may go through."""
    if isinstance(argument, Pointer) and isinstance(argument.memory, CBuffer):
        return argument.memory.length
    return len(argument) if isinstance(argument, str) else 0


@dataclass
class Expressions:
    """Evaluates expressions. `names` are values that it may read; `declare` adds variables, which `variables` holds,
    innermost scope last."""

    names: Mapping[str, Any] = field(default_factory=dict)
    functions: Mapping[str, CFunction] = field(default_factory=dict)
    budget: RunBudget = field(default_factory=RunBudget)
    variables: list[dict[str, Variable]] = field(default_factory=lambda: [{}])
    text: str = ""
    #: Where the code is now, an offset in `text`.
    pos: int = 0

    # -- variables and bounds

    def declare(self, name: str, type: str, pointers: int = 0, value: Any = ..., *, is_array: bool = False) -> None:
        """A variable of the innermost scope; without a value it has to be assigned before it is read."""
        is_set = value is not ...
        self.variables[-1][name] = Variable(Type(type, pointers), value if is_set else None, name, is_array, is_set)

    def variable(self, name: str) -> Variable | None:
        return next((scope[name] for scope in reversed(self.variables) if name in scope), None)

    def error(self, message: str, label: str | None = None) -> CodeError:
        found = text_error(self.text, self.pos, message)
        found.label = label or found.label
        return found

    def spend(self, steps: int = 1) -> None:
        budget = self.budget
        budget.steps -= steps
        budget.pool.steps -= steps
        if budget.steps < 0:
            raise ValueError(f"the code takes more than {MAX_STEPS} steps")
        if budget.pool.steps < 0:
            raise ValueError("the code takes too many steps for each of the test cases that are tried")

    def allocate(self, nbytes: Any) -> int:
        """Count memory that the code asks for."""
        if isinstance(nbytes, bool) or not isinstance(nbytes, int) or nbytes < 0:
            raise TypeError(f"{shown(nbytes)} is no number of bytes")
        self.budget.bytes -= nbytes
        if self.budget.bytes < 0:
            raise ValueError(f"the code takes more than {MAX_BYTES} bytes")
        return nbytes

    # -- expressions

    def eval(self, e: Expr) -> Any:
        """The value of an expression."""
        self.pos = e.pos
        self.spend()
        match e:
            case tree.Number(value=value):
                return value
            case tree.Text(value=value):
                return value
            case tree.Name(name=name):
                return self.read(name)
            case tree.Member():
                return self.member(self.eval(e.base), e)
            case tree.Index():
                return self.load(self.pointed(e))
            case tree.Call():
                return self.call(e)
            case tree.Binary():
                return self.binary(e)
            case tree.Conditional():
                taken, other = (e.then, e.other) if self.truth(self.eval(e.cond)) else (e.other, e.then)
                return self.widened(self.eval(taken), other)
            case tree.Assign():
                return self.assign(e)
            case tree.Unary():
                return self.unary(e)
            case tree.Increment():
                return self.step(e)
            case tree.TypeCast(type=type, arg=arg):
                return self.cast(self.eval(arg), type)
            case tree.SizeOf():
                return self.size(e)
            case tree.Compound(type=type, items=items, length=length):
                values = [self.converted(self.eval(x), type) for x in items]
                return self.filled(type, values, len(values) if length is None else self.eval(length))
            case tree.Sequence(items=items):
                return [self.eval(x) for x in items][-1]
        raise TypeError("this is no expression")

    def widened(self, value: Any, other: Expr) -> Any:
        """A branch of a conditional, in the type that both branches have: what the other one is, its text says."""
        if isinstance(value, int | Float) and not isinstance(value, bool):
            kind = self.kind(other)
            return float(value) if kind == "double" else Float(value) if kind == "float" else value
        return value

    def kind(self, e: Expr) -> str:
        """C's type of an arithmetic expression, ``int``, ``float`` or ``double``, as far as it is known without its
        value; else ``int``."""
        match e:
            case tree.Number(value=value):
                return c_kind(value)
            case tree.Name(name=name):
                variable = self.variable(name)
                return str(variable.declared) if variable is not None else c_kind(self.names.get(name))
            case tree.TypeCast(type=type):
                return str(type)
            case tree.Unary(op="-" | "+", arg=arg):
                return self.kind(arg)
            case tree.Binary(op="+" | "-" | "*" | "/", left=a, right=b) | tree.Conditional(then=a, other=b):
                kinds = (self.kind(a), self.kind(b))
                return next((k for k in ("double", "float") if k in kinds), "int")
        return "int"

    def read(self, name: str) -> Any:
        if (variable := self.variable(name)) is not None:
            return variable.load(0)
        if name in self.names:
            return self.names[name]
        if name == "NULL":
            return None
        raise LookupError(unknown_value("name", name, [*(n for scope in self.variables for n in scope), *self.names]))

    def member(self, base: Any, e: tree.Member) -> Any:
        self.pos = e.pos
        return self.struct(base, e).get(e.name)

    def struct(self, base: Any, e: tree.Member) -> Struct:
        if not isinstance(base, Struct):
            raise TypeError(f"{shown(base)} has no member '{e.name}'")
        return base

    def call(self, e: tree.Call) -> Any:
        if e.fn not in self.functions:
            raise LookupError(unknown_value("function", e.fn, self.functions))
        fn = self.functions[e.fn]
        check_count(e.fn, fn, len(e.args))
        args = [self.eval(a) for a in e.args]
        self.pos = e.pos
        self.spend(sum(map(_length, args)) // ELEMENTS_A_STEP)
        return fn.call(self, *args)

    # -- memory

    def pointed(self, e: tree.Index) -> Pointer:
        """The element that a subscript names, as a pointer to it."""
        base, sub = self.eval(e.base), self.eval(e.sub)
        self.pos = e.pos
        return self.moved(base, sub)

    def moved(self, base: Any, by: Any) -> Pointer:
        if not isinstance(base, Pointer):
            raise TypeError(f"{shown(base)} is no array")
        if isinstance(by, bool | float) or not isinstance(by, int | CSymbol):
            raise TypeError(f"a subscript is an integer, not {shown(by)}")
        return Pointer(base.memory, by if base.offset == 0 else base.offset + by)

    def load(self, at: Pointer) -> Any:
        value = at.memory.load(at.offset)
        return ord(value) if isinstance(value, str) and at.memory.type == "char" else value

    def place(self, e: Expr) -> Place:
        """The place that an assignment to `e` writes."""
        self.pos = e.pos
        match e:
            case tree.Name(name=name):
                variable = self.variable(name)
                if variable is None:
                    raise TypeError(f"'{name}' cannot be assigned" if name in self.names else unknown_value("variable",
                        name,
                        [n for s in self.variables for n in s]))  # fmt: skip
                if variable.is_array:
                    raise TypeError(f"'{name}' is an array: assign its elements")
                return Place(variable, 0, variable.declared)
            case tree.Index():
                at = self.pointed(e)
                return Place(at.memory, at.offset, c_element_type(at.memory))
            case tree.Unary(op="*", arg=arg):
                at = self.moved(self.eval(arg), 0)
                return Place(at.memory, at.offset, c_element_type(at.memory))
            case tree.Member(base=base, name=name):
                holder = self.struct(self.eval(base), e)
                if holder.writable is not None and name not in holder.writable:
                    raise TypeError(f"'{name}' of {holder.what} cannot be assigned")
                return Place(holder, name, holder.type_of(name))
        raise TypeError("this cannot be assigned")

    def assign(self, e: tree.Assign) -> Any:
        if e.op:
            old = self.eval(e.target)
            value = self.operate(e.op, old, self.eval(e.value))
        else:
            value = self.eval(e.value)
        return self.store(self.place(e.target), value)

    def store(self, place: Place, value: Any) -> Any:
        value = self.converted(value, place.type)
        if isinstance(place.holder, Struct):
            place.holder.fields[place.key] = value
        else:
            place.holder.store(place.key, value)
        return value

    def address(self, e: Expr) -> Any:
        """``&e``."""
        match e:
            case tree.Name(name=name) if (variable := self.variable(name)) is not None:
                return variable.value if variable.is_array else Pointer(variable)
            case tree.Index():
                return self.pointed(e)
            case tree.Unary(op="*", arg=arg):
                return self.eval(arg)
            case tree.Member(base=base, name=name):
                return self.member_address(self.struct(self.eval(base), e), name)
        return self.eval(e)

    def member_address(self, holder: Struct, name: str) -> Any:
        return Pointer(Field(holder, name))

    # -- operators

    def binary(self, e: tree.Binary) -> Any:
        left = self.eval(e.left)
        if e.op in ("&&", "||"):
            if self.truth(left) == (e.op == "||"):
                return int(e.op == "||")
            return int(self.truth(self.eval(e.right)))
        right = self.eval(e.right)
        self.pos = e.pos
        return self.operate(e.op, left, right)

    def operate(self, op: str, a: Any, b: Any) -> Any:
        if isinstance(a, CSymbol):
            return a.binary(op, b, reflected=False)
        if isinstance(b, CSymbol):
            return b.binary(op, a, reflected=True)
        if op in ("==", "!="):
            return int(equal(a, b) == (op == "=="))
        if op in ("+", "-") and isinstance(a, Pointer):
            return self.pointer_arithmetic(op, a, b)
        return c_arithmetic(op, a, b)

    def pointer_arithmetic(self, op: str, a: Pointer, b: Any) -> Any:
        if isinstance(b, Pointer):
            if op != "-" or b.memory is not a.memory:
                raise TypeError("pointers into two arrays have nothing to do with each other")
            return a.offset - b.offset
        return self.moved(a, b if op == "+" else c_arithmetic("-", 0, b))

    def unary(self, e: tree.Unary) -> Any:
        if e.op == "&":
            return self.address(e.arg)
        value = self.eval(e.arg)
        self.pos = e.pos
        if e.op == "*":
            return self.load(self.moved(value, 0))
        if e.op == "!":
            return value.unary("!") if isinstance(value, CSymbol) else int(not self.truth(value))
        if isinstance(value, CSymbol):
            return value.unary(e.op)
        if e.op == "~":
            return c_arithmetic("^", value, -1)
        return c_arithmetic("-", 0, value) if e.op == "-" and isinstance(value, int) else negated(value, e.op)

    def step(self, e: tree.Increment) -> Any:
        old = self.eval(e.target)
        new = self.store(self.place(e.target), self.operate(e.op, old, 1))
        return new if e.prefix else old

    def truth(self, value: Any) -> bool:
        """Return whether a condition holds."""
        if isinstance(value, CSymbol):
            return value.truth()
        if isinstance(value, Enumerator):
            return value.number != 0
        return value is not None and (not isinstance(value, int | float) or bool(value))

    def size(self, e: tree.SizeOf) -> int:
        if isinstance(e.what, Type):
            return c_size_of(e.what)
        if isinstance(e.what, tree.Name) and (variable := self.variable(e.what.name)) is not None:
            whole = variable.value.memory.length if variable.is_array else 1
            return whole * c_size_of(variable.declared.pointee if variable.is_array else variable.declared)
        value = self.eval(e.what)
        return (
            8
            if isinstance(value, Pointer | Struct | str) or value is None
            else 4
            if isinstance(value, int | Float)
            else 8
        )

    # -- conversions

    def cast(self, value: Any, type: Type) -> Any:
        if not type.is_pointer and isinstance(value, float) and type.name not in FLOATS and type.name in SIZES:
            if not math.isfinite(value):
                raise ValueError(f"{value} is no {type}")
            value = math.trunc(value)
        return self.converted(value, type)

    def converted(self, value: Any, type: Type) -> Any:
        """`value` as it is stored in something of the type `type`."""
        if type.is_pointer:
            return self.as_pointer(value, type)
        if isinstance(value, CSymbol):
            return value.cast(type.name)
        if type.name in FLOATS and isinstance(value, int | float):
            return Float(value) if type.name == "float" else float(value)
        if type.name in SIZES:
            return integer(value, type.name)
        return value

    def as_pointer(self, value: Any, type: Type) -> Any:
        if isinstance(value, Pointer) and isinstance(value.memory, Raw) and type.name != "void":
            memory = value.memory.as_type(str(type.pointee))
            return Pointer(memory, value.offset // c_size_of(type.pointee))
        if isinstance(value, int | float) and value != 0:
            raise TypeError(f"{shown(value)} is no {type}")
        return None if isinstance(value, int) else value
