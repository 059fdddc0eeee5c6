"""Reads PTX text into a tree (`tree.py`): what a debugger shows, and what the decoder (`decode.py`) makes code from.

Takes what LLVM's NVPTX back end prints and what is written by hand in the same way: one module of variables, entries
and functions, with nested scopes. Reading checks the form alone; which opcodes exist is the decoder's business.
Grammar: "PTX ISA", chapters 4 (syntax), 5 (state spaces and types), 11 (directives). Imports the standard library and
`lightnet.diagnostics`.
"""

from __future__ import annotations

import re
import struct

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet_ptx.tokens import MAX_VARIABLE, Tokens, integer_value
from lightnet_ptx.tree import (
    FILE,
    Address,
    Function,
    Group,
    Imm,
    Instruction,
    Module,
    Not,
    Operand,
    Pair,
    Reg,
    Scope,
    Source,
    Variable,
    Vec,
    bytes_of,
    encode,
)

#: Bytes of PTX that are read, the depth of scopes, and the registers that one directive declares.
MAX_TEXT, MAX_DEPTH, MAX_REGISTERS = 1 << 26, 64, 1 << 20

#: Directives of a function, before its body, that say how it may be launched, and how many numbers they take at most.
_LIMITS = {".maxntid": 3, ".reqntid": 3, ".minnctapersm": 1, ".maxnreg": 1, ".noreturn": 0, ".maxnctapersm": 1}
_TYPE = re.compile(r"\.(?:([bus])(8|16|32|64)|(f)(16|32|64)|(pred)|(f16x2|bf16|bf16x2))")


def parse(text: str, name: str = FILE) -> Module:
    """Read a module. Raises LightNetError at the place where the text is no PTX."""
    if len(text) > MAX_TEXT:
        raise LightNetError(f"the PTX has {len(text)} characters, at most {MAX_TEXT} are read", SourceLoc(name))
    return _Parser(Source(text, name)).module()


class _Parser(Tokens):
    # -- the module
    def module(self) -> Module:
        result = Module(self.source)
        while self.kinds[self.at] != "end":
            if self.take(".version"):
                major, _, minor = self.text.partition(".")
                if self.kinds[self.at] != "float" or not (major.isdigit() and minor.isdigit()):
                    raise self.fail("a version such as 8.0")
                result.version = (int(major), int(minor))
                self.at += 1
            elif self.take(".target"):
                result.target = self.word("a target such as sm_80")
                while self.take(","):
                    self.word("a target option")
            elif self.take(".address_size"):
                if self.integer("the address size") != 64:
                    raise self.source.error("only 64-bit PTX is understood", self.pos, "ptx.address-size")
            elif self.text in (".file", ".loc"):
                self.rest_of_line()
            elif self.take(".section"):
                while self.kinds[self.at] != "end" and not self.take("}"):
                    self.at += 1
            elif not self.take(";"):
                self._definition(result)
        if not result.target:
            raise self.source.error("the module has no .target", 0, "ptx.syntax")
        return result

    def _definition(self, module: Module) -> None:
        pos, linkage = self.pos, set()
        while self.text in (".visible", ".extern", ".weak", ".common", ".internal"):
            linkage.add(self.text)
            self.at += 1
        if self.text in (".entry", ".func"):
            function = self._function(pos)
            old = module.functions.get(function.name)
            if old and old.body and function.body:
                raise self.source.error(f"function {function.name} is defined twice", pos, "ptx.name")
            if not (old and old.body):
                module.functions[function.name] = function
            return
        if self.text not in (".global", ".const", ".shared"):
            raise self.fail("a directive of a module, such as .entry or .global")
        for variable in self._variables(".extern" in linkage):
            if variable.name in module.variables:
                raise self.source.error(f"variable {variable.name} is declared twice", variable.pos, "ptx.name")
            module.variables[variable.name] = variable

    def _function(self, pos: int) -> Function:
        entry = self.text == ".entry"
        self.at += 1
        returns = () if entry or self.text != "(" else self._parameters()
        name = self.word("the name of a function")
        params = self._parameters() if self.text == "(" else ()
        limits: dict[str, tuple[int, ...]] = {}
        while self.text in _LIMITS or self.text == ".pragma":
            directive = self.word("a directive")
            if directive == ".pragma":
                self._pragma()
                continue
            numbers: list[int] = []
            while len(numbers) < _LIMITS[directive] and (not numbers or self.take(",")):
                numbers.append(self.integer(f"a number of {directive}"))
            limits[directive] = tuple(numbers)
        if self.take(";"):
            return Function(name, entry, returns, params, limits, None, pos)
        self.expect("{")
        return Function(name, entry, returns, params, limits, self._scope(0), pos)

    def _parameters(self) -> tuple[Variable, ...]:
        self.expect("(")
        found: list[Variable] = []
        while not self.take(")"):
            if self.text != ".param":
                raise self.fail("a .param, or ')'")
            found += self._variables(False, end=False)
            if not self.take(",") and self.text != ")":
                raise self.fail("',' or ')'")
        return tuple(found)

    def _pragma(self) -> None:
        while self.kinds[self.at] == "string" or self.text == ",":
            self.at += 1
        self.expect(";")

    # -- variables
    def _kind(self) -> str:
        if not _TYPE.fullmatch(self.text):
            raise self.fail("a type such as .b32")
        self.at += 1
        return self.texts[self.at - 1][1:]

    def _variables(self, extern: bool, end: bool = True) -> list[Variable]:
        """``.shared .align 16 .b8 s[64], t[4];``: a space, an alignment, a type, then names."""
        space, align = self.word("a state space")[1:], 0
        while self.text == ".align" or self.text == ".attribute":
            if self.take(".attribute"):
                raise self.source.error("attributes of variables are not understood", self.pos, "ptx.unsupported")
            self.at += 1
            align = self.integer("an alignment", 1, 1 << 12)
        vector = 1
        if self.text in (".v2", ".v4"):
            vector = int(self.word("a vector")[2:])
        kind = self._kind()
        while self.text in (".ptr", ".global", ".const", ".shared", ".local"):  # what a pointer parameter points to
            self.at += 1
        if self.take(".align"):
            self.integer("an alignment", 1, 1 << 12)
        size = bytes_of(kind) * vector
        found = [self._variable(space, kind, size, align or size, extern)]
        while end and self.take(","):
            found.append(self._variable(space, kind, size, align or size, extern))
        if end:
            self.expect(";")
        return found

    def _variable(self, space: str, kind: str, size: int, align: int, extern: bool) -> Variable:
        pos, name = self.pos, self.word("the name of a variable")
        if align & (align - 1):
            raise self.source.error(f"alignment {align} of {name} is no power of two", pos, "ptx.limit")
        count = 1
        while self.take("["):
            count *= 0 if self.text == "]" else self.integer("a dimension")
            self.expect("]")
        if count * size > MAX_VARIABLE:
            raise self.source.error(f"variable {name} has {count * size} bytes", pos, "ptx.limit")
        data = None
        if self.take("="):
            data = self._initial(name, kind, count * size)
        return Variable(space, name, count * size, align, kind, data, pos, extern)

    def _initial(self, name: str, kind: str, size: int) -> bytes:
        values, depth, step, pos = bytearray(), 0, bytes_of(kind), self.pos
        while True:
            if self.take("{"):
                depth += 1
            elif self.take("}"):
                depth -= 1
            elif depth and self.take(","):
                continue
            else:
                values += encode(self._constant(), kind, self.source, self.pos)
            if depth <= 0 or len(values) > size:
                break
        if len(values) > size or depth:
            raise self.source.error(f"{name} of {size} bytes does not hold its initial values", pos, "ptx.initial")
        return bytes(values.ljust(-(-size // step) * step, b"\0"))

    # -- code
    def _scope(self, depth: int) -> Scope:
        if depth > MAX_DEPTH:
            raise self.source.error("scopes are nested too deeply", self.pos, "ptx.limit")
        scope = Scope()
        while not self.take("}"):
            text = self.text
            if self.take("{"):
                scope.items.append(self._scope(depth + 1))
            elif text == ".reg":
                self._registers(scope)
            elif text in (".local", ".shared", ".param", ".global", ".const"):
                scope.variables += self._variables(False)
            elif text == ".pragma":
                self.at += 1
                self._pragma()
            elif text in (".file", ".loc"):
                self.rest_of_line()
            elif self.kinds[self.at] == "word" and self.texts[self.at + 1] == ":":
                self._label(scope)
            elif not self.take(";"):
                scope.items.append(self._instruction())
        return scope

    def _label(self, scope: Scope) -> None:
        pos, name = self.pos, self.word("a label")
        self.expect(":")
        if name in scope.labels or name in scope.tables:
            raise self.source.error(f"label {name} is defined twice", pos, "ptx.name")
        if self.take(".branchtargets"):
            targets = [self.word("a label")]
            while self.take(","):
                targets.append(self.word("a label"))
            self.expect(";")
            scope.tables[name] = tuple(targets)
        else:
            scope.labels[name] = len(scope.items)

    def _registers(self, scope: Scope) -> None:
        self.at += 1
        kind = self._kind()
        while True:
            name = self.word("the name of a register")
            if self.take("<"):
                count = self.integer("a count of registers", 0, MAX_REGISTERS)
                self.expect(">")
                scope.ranges[name] = (kind, count)
            else:
                scope.registers[name] = kind
            if not self.take(","):
                break
        self.expect(";")

    def _instruction(self) -> Instruction:
        pos, guard = self.pos, None
        if self.take("@"):
            negated = self.take("!")
            guard = (self.word("a predicate register"), negated)
        opcode = self.word("an instruction")
        operands: list[Operand] = []
        if self.text != ";":
            operands.append(self._operand())
            while self.take(","):
                operands.append(self._operand())
        self.expect(";")
        return Instruction(opcode, tuple(operands), guard, pos)

    def _list(self, close: str) -> tuple[Operand, ...]:
        items: list[Operand] = []
        while not self.take(close):
            items.append(self._simple())
            if not self.take(",") and self.text != close:
                raise self.fail(f"',' or {close!r}")
        return tuple(items)

    def _operand(self) -> Operand:
        if self.take("{"):
            return Vec(self._list("}"))
        if self.take("("):
            return Group(self._list(")"))
        if self.take("["):
            return self._address()
        if self.take("!"):
            return Not(self._simple())
        first = self._simple()
        return Pair(first, self._simple()) if self.take("|") else first

    def _address(self) -> Address:
        base = self._simple()
        offset = 0
        if self.take("+") or self.text == "-":
            offset = self.integer("an offset", -(1 << 31), 1 << 32)
        coordinates: tuple[Operand, ...] = ()
        if self.take(","):
            self.expect("{")
            coordinates = self._list("}")
        self.expect("]")
        return Address(base, offset, coordinates)

    def _simple(self) -> Reg | Imm:
        if self.kinds[self.at] == "word":
            return Reg(self.word("an operand"))
        return self._constant()

    def _constant(self) -> Imm:
        negative = self.take("-")
        kind, text = self.kinds[self.at], self.text
        if kind not in ("int", "float"):
            raise self.fail("a register, a variable or a number")
        self.at += 1
        imm = Imm(integer_value(text), "int") if kind == "int" else _float(text)
        return Imm(-imm.value, imm.kind) if negative else imm


def _float(text: str) -> Imm:
    if text[:2] in ("0f", "0F"):
        return Imm(struct.unpack(">f", bytes.fromhex(text[2:]))[0], "f32")
    if text[:2] in ("0d", "0D"):
        return Imm(struct.unpack(">d", bytes.fromhex(text[2:]))[0], "f64")
    return Imm(float(text), "f64")
