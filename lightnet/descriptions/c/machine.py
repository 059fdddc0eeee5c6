"""C of descriptions at compile time: a tree is walked, within bounds on steps and memory; nothing of it is executed as C.

    machine = Machine(names, functions)          names: what the code may read, and `declare` what it may assign
    machine.run(parse(text), text)               statements; variables stay for the next text, as in one function of C
    machine.value(parse_expression(text), text)  one expression

Integers are C's, but never wrap: what does not fit 64 bits (or the variable it is stored in) is an error, and so is an index outside
of an array, a division by zero, a function that the table has not. Imports the tree, the values and `ir.constants`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, NamedTuple

from lightnet.descriptions.c import tree
from lightnet.descriptions.c.tree import Block, Expr, Statement, Type
from lightnet.descriptions.c.values import (
    FLOATS,
    SIZES,
    CodeError,
    Enumerator,
    Float,
    Memory,
    Pointer,
    Raw,
    Struct,
    Symbol,
    array,
    shown,
    text_error,
    text_of,
)
from lightnet.diagnostics import LightNetError, did_you_mean
from lightnet.ir.constants import int_div

#: Steps of one run (expressions and statements), and bytes of the memory that it makes.
MAX_STEPS, MAX_BYTES = 200_000, 1 << 20
_INT64 = 1 << 63
#: A message lists at most so many names.
_MANY = 24


class Function(NamedTuple):
    """A function that code may call: what it does with the values of its arguments, and how many these are (`most` None: any number).
    It raises TypeError, ValueError, IndexError or LightNetError for what is wrong with them."""

    call: Callable[..., Any]
    least: int
    most: int | None


def function(count: int, most: int | None = -1) -> Callable[[Callable[..., Any]], Function]:
    """Decorator: a `Function` of ``(machine, *arguments)`` that takes `count` arguments, or up to `most`."""
    return lambda call: Function(call, count, count if most == -1 else most)


@dataclass
class Budget:
    """What a run may still take."""

    steps: int = MAX_STEPS
    bytes: int = MAX_BYTES


class Return(Exception):
    def __init__(self, value: Any):
        super().__init__()
        self.value = value


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


class Place(NamedTuple):
    """What an assignment writes: an element of memory, or a member of a structure."""

    holder: Memory | Struct
    key: Any
    type: Type


@dataclass(eq=False)
class Variable(Memory):
    """A variable: memory of length 1 that knows its type."""

    declared: Type
    value: Any
    name: str = ""
    is_array: bool = False
    is_set: bool = True

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
            raise ValueError(f"'{self.name}' is read before it is given a value")
        return self.value

    def store(self, index: Any, value: Any) -> None:
        if index != 0:
            raise IndexError(f"'{self.name}' is one value, and no array")
        self.value, self.is_set = value, True


@dataclass
class Machine:
    """Runs code. `names` are values that it may read; `declare` adds variables, which `variables` holds, innermost scope last."""

    names: Mapping[str, Any] = field(default_factory=dict)
    functions: Mapping[str, Function] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)
    variables: list[dict[str, Variable]] = field(default_factory=lambda: [{}])
    text: str = ""
    #: Where the code is now, an offset in `text`.
    pos: int = 0

    # -- the outside

    def declare(self, name: str, type: str, pointers: int = 0, value: Any = ..., *, is_array: bool = False) -> None:
        """A variable of the innermost scope; without a value it has to be assigned before it is read."""
        is_set = value is not ...
        self.variables[-1][name] = Variable(Type(type, pointers), value if is_set else None, name, is_array, is_set)

    def variable(self, name: str) -> Variable | None:
        return next((scope[name] for scope in reversed(self.variables) if name in scope), None)

    def run(self, block: Block, text: str) -> Any:
        """Run the statements that `text` holds; what they return, or None. Raises `CodeError`, at its place in `text`."""
        return self.guarded(lambda: self._run(block), text)

    def value(self, e: Expr, text: str) -> Any:
        """The value of an expression. Raises `CodeError`."""
        return self.guarded(lambda: self.eval(e), text)

    def _run(self, block: Block) -> Any:
        try:
            self.statement(block)
        except Return as e:
            return e.value
        return None

    def guarded(self, action: Callable[[], Any], text: str) -> Any:
        """What `action` gives; whatever the code did wrong as an error at its place in `text`."""
        before, self.text = self.text, text
        depth = len(self.variables)
        try:
            return action()
        except CodeError:
            raise
        except LightNetError as e:
            raise self.error(e.message, e.label) from None
        except (TypeError, ValueError, LookupError, ArithmeticError) as e:
            raise self.error(str(e.args[0]) if e.args else "it has no value") from None
        except (_Break, _Continue):
            raise self.error("'break' and 'continue' stand in loops") from None
        except RecursionError:
            raise self.error("C code is nested too deeply") from None
        finally:
            self.text = before
            del self.variables[depth:]

    def error(self, message: str, label: str | None = None) -> CodeError:
        found = text_error(self.text, self.pos, message)
        found.label = label or found.label
        return found

    def spend(self, steps: int = 1) -> None:
        self.budget.steps -= steps
        if self.budget.steps < 0:
            raise ValueError(f"the code takes more than {MAX_STEPS} steps")

    def allocate(self, nbytes: Any) -> int:
        """Count memory that the code asks for."""
        if isinstance(nbytes, bool) or not isinstance(nbytes, int) or nbytes < 0:
            raise TypeError(f"{shown(nbytes)} is no number of bytes")
        self.budget.bytes -= nbytes
        if self.budget.bytes < 0:
            raise ValueError(f"the code takes more than {MAX_BYTES} bytes")
        return nbytes

    # -- statements

    def statement(self, s: Statement | None) -> None:
        if s is None:
            return
        self.pos = s.pos
        self.spend()
        match s:
            case tree.Block(statements=statements, is_scope=is_scope):
                self.block(statements, is_scope)
            case tree.Declaration():
                self.declaration(s)
            case tree.Evaluate(expr=e):
                self.eval(e)
            case tree.If(cond=cond, then=then, other=other):
                self.statement(then if self.truth(self.eval(cond)) else other)
            case tree.For():
                self.loop(s)
            case tree.Return(value=value):
                raise Return(None if value is None else self.eval(value))
            case tree.Jump(kind=kind):
                raise _Break if kind == "break" else _Continue

    def block(self, statements: Sequence[Statement], is_scope: bool) -> None:
        if is_scope:
            self.variables.append({})
        for s in statements:
            self.statement(s)
        if is_scope:
            self.variables.pop()

    def loop(self, s: tree.For) -> None:
        depth = len(self.variables)
        self.variables.append({})
        self.statement(s.start)
        inside = len(self.variables)
        try:
            while s.cond is None or self.truth(self.eval(s.cond)):
                self.spend()
                try:
                    self.statement(s.body)
                except _Continue:
                    del self.variables[inside:]
                if s.step is not None:
                    self.eval(s.step)
        except _Break:
            pass
        del self.variables[depth:]

    def declaration(self, s: tree.Declaration) -> None:
        if s.name in self.variables[-1]:
            raise ValueError(f"'{s.name}' is declared twice in one block")
        if s.is_array:
            self.declare(s.name, s.type.name, s.type.pointers + 1, self.array_of(s), is_array=True)
            return
        if s.type.name == "void" and not s.type.pointers:
            raise TypeError(f"'{s.name}' cannot be void")
        if s.value is None:
            self.declare(s.name, s.type.name, s.type.pointers)
            return
        value = self.converted(self.eval(s.value), s.type)
        self.declare(s.name, s.type.name, s.type.pointers, value)

    def array_of(self, s: tree.Declaration) -> Pointer:
        """The memory of an array that is declared."""
        if isinstance(s.value, tree.Text):
            values: list[Any] = [*s.value.value, "\0"]
        elif isinstance(s.value, tree.Compound):
            values = [self.converted(self.eval(e), s.type) for e in s.value.items]
        elif s.value is None:
            values = []
        else:
            raise TypeError("an array is given its elements in braces")
        length = len(values) if s.length is None else self.eval(s.length)
        if s.length is None and s.value is None:
            raise TypeError(f"the array '{s.name}' needs a length")
        return self.filled(s.type, values, length, f"'{s.name}'")

    def filled(self, type: Type, values: list[Any], length: Any, what: str = "the array") -> Pointer:
        if isinstance(length, bool) or not isinstance(length, int) or length < len(values):
            raise TypeError(f"an array of {len(values)} elements cannot have the length {shown(length)}")
        self.allocate(length * size_of(type))
        zero: Any = None if type.pointers else "\0" if type.name == "char" else 0.0 if type.name in FLOATS else 0
        return array(str(type), [*values, *[zero] * (length - len(values))], what)

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
            case tree.Step():
                return self.step(e)
            case tree.Cast(type=type, arg=arg):
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
        """C's type of an arithmetic expression, ``int``, ``float`` or ``double``, as far as it is known without its value; else ``int``."""
        match e:
            case tree.Number(value=value):
                return kind_of(value)
            case tree.Name(name=name):
                variable = self.variable(name)
                return str(variable.declared) if variable is not None else kind_of(self.names.get(name))
            case tree.Cast(type=type):
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
        raise LookupError(unknown("name", name, [*(n for scope in self.variables for n in scope), *self.names]))

    def member(self, base: Any, e: tree.Member) -> Any:
        self.pos = e.pos
        return self.struct(base, e).get(e.name)

    def struct(self, base: Any, e: tree.Member) -> Struct:
        if not isinstance(base, Struct):
            raise TypeError(f"{shown(base)} has no member '{e.name}'")
        return base

    def call(self, e: tree.Call) -> Any:
        if e.fn not in self.functions:
            raise LookupError(unknown("function", e.fn, self.functions))
        fn = self.functions[e.fn]
        check_count(e.fn, fn, len(e.args))
        args = [self.eval(a) for a in e.args]
        self.pos = e.pos
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
        if isinstance(by, bool | float) or not isinstance(by, int | Symbol):
            raise TypeError(f"a subscript is an integer, not {shown(by)}")
        return Pointer(base.memory, by if base.offset == 0 else base.offset + by)

    def load(self, at: Pointer) -> Any:
        value = at.memory.load(at.offset)
        return ord(value) if isinstance(value, str) and at.memory.type == "char" else value

    def place(self, e: Expr) -> Place:
        """What an assignment to `e` writes."""
        self.pos = e.pos
        match e:
            case tree.Name(name=name):
                variable = self.variable(name)
                if variable is None:
                    raise TypeError(f"'{name}' cannot be assigned" if name in self.names else unknown("variable", name, [n for s in self.variables for n in s]))  # fmt: skip
                if variable.is_array:
                    raise TypeError(f"'{name}' is an array: assign its elements")
                return Place(variable, 0, variable.declared)
            case tree.Index():
                at = self.pointed(e)
                return Place(at.memory, at.offset, element_type(at.memory))
            case tree.Unary(op="*", arg=arg):
                at = self.moved(self.eval(arg), 0)
                return Place(at.memory, at.offset, element_type(at.memory))
            case tree.Member(base=base, name=name):
                holder = self.struct(self.eval(base), e)
                if holder.writable is not None and name not in holder.writable:
                    raise TypeError(f"'{name}' of {holder.what} cannot be assigned")
                return Place(holder, name, Type("void", 1))
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
        return Pointer(_Field(holder, name))

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
        if isinstance(a, Symbol):
            return a.binary(op, b, reflected=False)
        if isinstance(b, Symbol):
            return b.binary(op, a, reflected=True)
        if op in ("==", "!="):
            return int(equal(a, b) == (op == "=="))
        if op in ("+", "-") and isinstance(a, Pointer):
            return self.pointer_arithmetic(op, a, b)
        return arithmetic(op, a, b)

    def pointer_arithmetic(self, op: str, a: Pointer, b: Any) -> Any:
        if isinstance(b, Pointer):
            if op != "-" or b.memory is not a.memory:
                raise TypeError("pointers into two arrays have nothing to do with each other")
            return a.offset - b.offset
        return self.moved(a, b if op == "+" else arithmetic("-", 0, b))

    def unary(self, e: tree.Unary) -> Any:
        if e.op == "&":
            return self.address(e.arg)
        value = self.eval(e.arg)
        self.pos = e.pos
        if e.op == "*":
            return self.load(self.moved(value, 0))
        if e.op == "!":
            return value.unary("!") if isinstance(value, Symbol) else int(not self.truth(value))
        if isinstance(value, Symbol):
            return value.unary(e.op)
        if e.op == "~":
            return arithmetic("^", value, -1)
        return arithmetic("-", 0, value) if e.op == "-" and isinstance(value, int) else negated(value, e.op)

    def step(self, e: tree.Step) -> Any:
        old = self.eval(e.target)
        new = self.store(self.place(e.target), self.operate(e.op, old, 1))
        return new if e.prefix else old

    def truth(self, value: Any) -> bool:
        """Whether a condition holds."""
        if isinstance(value, Symbol):
            return value.truth()
        if isinstance(value, Enumerator):
            return value.number != 0
        return value is not None and (not isinstance(value, int | float) or bool(value))

    def size(self, e: tree.SizeOf) -> int:
        if isinstance(e.what, Type):
            return size_of(e.what)
        if isinstance(e.what, tree.Name) and (variable := self.variable(e.what.name)) is not None:
            whole = variable.value.memory.length if variable.is_array else 1
            return whole * size_of(variable.declared.pointee if variable.is_array else variable.declared)
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
        if isinstance(value, Symbol):
            return value.cast(type.name)
        if type.name in FLOATS and isinstance(value, int | float):
            return Float(value) if type.name == "float" else float(value)
        if type.name in SIZES:
            return integer(value, type.name)
        return value

    def as_pointer(self, value: Any, type: Type) -> Any:
        if isinstance(value, Pointer) and isinstance(value.memory, Raw) and type.name != "void":
            memory = value.memory.as_type(str(type.pointee))
            return Pointer(memory, value.offset // size_of(type.pointee))
        if isinstance(value, int | float) and value != 0:
            raise TypeError(f"{shown(value)} is no {type}")
        return None if isinstance(value, int) else value


@dataclass(eq=False)
class _Field(Memory):
    """A member of a structure whose address is taken."""

    holder: Struct
    name: str
    type: str = "void *"

    @property
    def length(self) -> int:  # type: ignore[override]
        return 1

    def load(self, index: Any) -> Any:
        return self.holder.get(self.name)

    def store(self, index: Any, value: Any) -> None:
        if self.holder.writable is not None and self.name not in self.holder.writable:
            raise TypeError(f"'{self.name}' of {self.holder.what} cannot be assigned")
        self.holder.fields[self.name] = value


# -- arithmetic ------------------------------------------------------------------------------------------------------


def kind_of(value: Any) -> str:
    return "float" if isinstance(value, Float) else "double" if isinstance(value, float) else "int"


def size_of(type: Type) -> int:
    return 8 if type.is_pointer else SIZES.get(type.name, 8)


def element_type(memory: Memory) -> Type:
    if isinstance(memory, Variable):
        return memory.declared
    name = memory.type.rstrip(" *")
    return Type(name, memory.type.count("*"))


def integer(value: Any, type: str) -> Any:
    """`value` as an integer of `type`: a number is cut, an enumerator and text stay what they are. Raises ValueError where it does not fit."""
    if isinstance(value, Enumerator):
        return value
    if isinstance(value, str) and len(value) == 1 and type == "char":
        return value
    if not isinstance(value, int | float):
        raise TypeError(f"{shown(value)} is no {type}")
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is no {type}")
        value = math.trunc(value)
    if type in ("ln_bool", "bool"):
        return int(value != 0)
    bits = 8 * SIZES[type]
    low, high = (
        (0, 1 << bits) if "unsigned" in type or type.startswith(("u", "size")) else (-(1 << bits - 1), 1 << bits - 1)
    )
    if not low <= value < high:
        raise ValueError(f"{value} does not fit {type}")
    return int(value)


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, Enumerator) and isinstance(b, int):
        return a.number == b
    if isinstance(b, Enumerator) and isinstance(a, int):
        return b.number == a
    if isinstance(a, str) and isinstance(b, str):
        raise TypeError("strings are compared by ln_streq(a, b), not by ==")
    if a is None or b is None:
        return (a is None or a == 0) and (b is None or b == 0)
    return bool(a == b)


def negated(value: Any, op: str) -> Any:
    if not isinstance(value, int | float):
        raise TypeError(f"'{op}' takes a number, not {shown(value)}")
    return type(value)(-value) if op == "-" else value


def arithmetic(op: str, a: Any, b: Any) -> Any:
    """A binary operator of C on numbers; what does not fit 64 bits is a ValueError, a division of integers by 0 an ArithmeticError."""
    a, b = (x.number if isinstance(x, Enumerator) and x.number is not None else x for x in (a, b))
    for x in (a, b):
        if not isinstance(x, int | float):
            raise TypeError(f"'{op}' takes numbers, not {shown(x)}")
    if op in ("<", "<=", ">", ">="):
        return int({"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[op])
    if isinstance(a, int) and isinstance(b, int):
        return _whole(op, int(a), int(b))
    found = _real(op, float(a), float(b))
    single = all(isinstance(x, Float | int) for x in (a, b))
    return Float(found) if single else found


def _whole(op: str, a: int, b: int) -> int:
    if op in ("/", "%"):
        if b == 0:
            raise ArithmeticError(f"{a} {op} 0: a division by zero")
        found = int_div(a, b)
        return found if op == "/" else a - b * found
    if op in ("<<", ">>"):
        if not 0 <= b < 64:
            raise ValueError(f"a shift by {b}")
        found = a << b if op == "<<" else a >> b
    else:
        found = {"+": a + b, "-": a - b, "*": a * b, "&": a & b, "|": a | b, "^": a ^ b}[op]
    if not -_INT64 <= found < 2 * _INT64:
        raise ValueError(f"{a} {op} {b} does not fit 64 bits")
    return found


def _real(op: str, a: float, b: float) -> float:
    if op == "/" and b == 0:
        return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1.0, b)
    found = {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a / b}.get(op)
    if found is None:
        raise TypeError(f"'{op}' takes integers")
    return found()


# -- messages --------------------------------------------------------------------------------------------------------


def unknown(what: str, name: str, known: Any) -> str:
    names = sorted(known)
    near = did_you_mean(get_close_matches(name, names, 3))
    if not near and len(names) > _MANY:
        near = f"; it is none of the {len(names)} that code may use (docs/describe-an-op.md has the table)"
    return f"unknown {what} '{name}'{near or '; there are: ' + (', '.join(names) or 'none')}"


def check_count(name: str, fn: Function, count: int) -> None:
    """Raise TypeError where a function is called with another number of arguments."""
    if count < fn.least or (fn.most is not None and count > fn.most):
        need = (
            f"at least {fn.least}"
            if fn.most is None
            else str(fn.least)
            if fn.least == fn.most
            else f"{fn.least} to {fn.most}"
        )
        raise TypeError(f"{name} takes {need} argument{'s' * (need != '1')}, got {count}")


__all__ = [
    "Budget",
    "Function",
    "Machine",
    "Return",
    "Variable",
    "arithmetic",
    "check_count",
    "function",
    "text_of",
    "unknown",
]
