"""C of descriptions at compile time: a tree is walked, within bounds on steps and memory; nothing of it is executed as
C.

    machine = Machine(names, functions)          names: what the code may read, and `declare` what it may assign
    machine.run(parse(text), text)               statements; variables stay for the next text, as in one function of C
    machine.value(parse_expression(text), text)  one expression

Integers are C's, but never wrap: what does not fit 64 bits (or the variable it is stored in) is an error, and so is an
index outside of an array, a division by zero, a function that the table has not. Imports the tree, the values and
`ir.constants`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet_descriptions.c import tree
from lightnet_descriptions.c.arithmetic import c_size_of
from lightnet_descriptions.c.expressions import Expressions
from lightnet_descriptions.c.tree import Block, Expr, Statement, Type
from lightnet_descriptions.c.values import FLOATS, CodeError, Pointer, array, shown


class _Return(Exception):
    def __init__(self, value: Any):
        super().__init__()
        self.value = value


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


@dataclass
class CMachine(Expressions):
    """Runs code: statements, and expressions by themselves."""

    # -- the outside

    def run(self, block: Block, text: str) -> Any:
        """Run the statements that `text` holds; what they return, or None. Raises `CodeError`, at its place in
        `text`."""
        return self.guarded(lambda: self._run(block), text)

    def value(self, e: Expr, text: str) -> Any:
        """The value of an expression. Raises `CodeError`."""
        return self.guarded(lambda: self.eval(e), text)

    def _run(self, block: Block) -> Any:
        try:
            self.statement(block)
        except _Return as e:
            return e.value
        return None

    def guarded(self, action: Callable[[], Any], text: str) -> Any:
        """The result of `action`; whatever the code did wrong becomes an error at its place in `text`."""
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
                raise _Return(None if value is None else self.eval(value))
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
        self.allocate(length * c_size_of(type))
        zero: Any = None if type.pointers else "\0" if type.name == "char" else 0.0 if type.name in FLOATS else 0
        return array(str(type), [*values, *[zero] * (length - len(values))], what)
