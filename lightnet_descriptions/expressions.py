"""The expressions of optimizer descriptions but for accessors: the tokens, arrays, directives and enumerators that
upstream's C-like texts have and `ir/expr.py` has not.

    more     := "${con(" a, b ... ")}" | "${type(" T ")" e "}" | "${rh " accessor "}"
              | "[" e, e ... "]" | "{" e, e ... "}"
              | "${type(" T ")" C "}"     an expression of C, with directives in it, which `c/` evaluates
              | F "(" e, e ... ")"        a function of upstream's (`functions.py`)
    constant := an enumerator of C's (TL_FLOAT, TL_SUM, LN_MEM_CPU …): the string of these letters

Everything becomes an atom (`scope.py`) of a known kind (`kinds.py`); nothing is executed. Imports `ir` and the modules
beside it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NoReturn

from lightnet.diagnostics import LightNetError, near
from lightnet.ir import expr
from lightnet.ir.constants import Value
from lightnet.ir.expr import Binary, Call, Expr, Name, Num, Str
from lightnet.ir.registry import TARGETS
from lightnet.parsing import Token, lexed
from lightnet.runtime.numbers import as_realtype
from lightnet_descriptions import functions, kinds
from lightnet_descriptions.enumerators import ENUMERATORS
from lightnet_descriptions.reader import DescribedValue
from lightnet_descriptions.scope import Atom, Expression, Ops, Read, RuleScope, TensorRef, evaluate_over
from lightnet_descriptions.tensors import origin

_TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<num>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[fFlLuU]*|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<str>\"[^\"\n]*\"|'[^'\n]*')|(?P<op>=>|\$\{|\$[@^]|\|\||&&|<<|>>|->|[=!<>]=|[-+*/%<>!?:()\[\]{},.=|&^~])",
    re.ASCII,
)
_C_TYPES = {"int": "int", "float": "float", "double": "double", "char": "string", "ln_bool": "bool", "bool": "bool"}
#: The kind of a realtype's values.
KIND_OF_TYPE = {"int": "number", "float": "number", "double": "number", "string": "string", "bool": "bool"}
#: Names that are constants.
_WORDS = ("inf", "true", "false")
#: What C code gives, before it is evaluated.
_ANY = "any"
_BOOLS = {"LN_TRUE": True, "LN_FALSE": False}
#: What an expression of C has and this grammar has not.
_C_CODE = re.compile(
    r"\(\s*(?:int|float|double|char|size_t|ln_bool)\b|<<|>>|(?<!\|)\|(?!\|)|(?<!&)&(?!&)|[~^]|\b(?:tl|ln|LN)_\w+\s*\(",
    re.ASCII,
)
#: Functions of upstream's that are an operator here, or say nothing.
_EQUAL, _IDENTITY = "ln_streq", ("tl_dtype_name", "tl_dtype_from_str")


class ExpressionParser(expr.NotationParser):
    """Recursive descent over one string of a description; a subclass says what an accessor is."""

    def __init__(self, item: DescribedValue, scope: RuleScope):
        if not isinstance(item.value, str):
            raise item.error(f"expected a string, got {item.kind}")
        self.item, self.scope, self.text, self.file = item, scope, item.value, item.source.file
        self.tokens = self.tokenized()
        self.i = self.depth = 0
        self.atoms: list[Atom] = []
        self.kinds: list[str] = []  # of the atoms
        self.used: set[str] = set()

    def error(self, message: str, pos: int | None = None) -> NoReturn:
        raise self.item.error_at(self.token.pos if pos is None else pos, message)

    def tokenized(self) -> list[Token]:
        if len(self.text) > expr.MAX_TEXT:
            raise self.item.error(f"expression text of {len(self.text)} characters (at most {expr.MAX_TEXT})")

        def unknown(at: int) -> NoReturn:
            raise self.item.error_at(at, f"unexpected character {self.text[at]!a}")

        tokens = [*lexed(self.text, _TOKEN, unknown)]
        if len(tokens) > expr.MAX_TOKENS:
            raise self.item.error(f"more than {expr.MAX_TOKENS} tokens")
        return [*tokens, Token("end", "the end of the text", len(self.text))]

    def expression(self) -> Expression:
        """An expression, its kind checked."""
        pos = self.token.pos
        return self.expression_of(self.expr(), pos)

    def expression_of(self, parsed: Expr, pos: int) -> Expression:
        """The expression that was parsed at `pos`, its kind checked."""
        try:
            kind = kinds.expression_kind(parsed, self.kinds)
        except kinds.KindError as e:
            self.error(e.message, e.pos)
        except RecursionError:
            self.error("expression too deep", pos)
        return Expression(self.item, pos, parsed, self.atoms, kind, self.used)

    def atom(self, kind: str, read: Read, pos: int, tensor: TensorRef | None = None) -> Name:
        self.atoms.append(Atom(kind, read, tensor))
        self.kinds.append(kind)
        return Name(f"${len(self.atoms) - 1}", pos)

    # -- what an expression has that `ir/expr.py` does not know

    def _operation(self, op: str, left: Expr, right: Expr, pos: int) -> Expr:
        """``a.ins[x] == b.outs[y]`` asks whether these are one tensor: names would do only where every tensor has
        one."""
        one, other = self.tensor_of(left), self.tensor_of(right)
        if op not in ("==", "!=") or one is None or other is None:
            return super()._operation(op, left, right, pos)
        return self.atom("bool", lambda ops: (origin(one.value(ops)) is origin(other.value(ops))) == (op == "=="), pos)

    def tensor_of(self, e: Expr) -> TensorRef | None:
        """The tensor that an expression names, if it does nothing else."""
        atom = self.atoms[int(e.name[1:])] if isinstance(e, Name) else None
        return atom.tensor if atom is not None else None

    def _primary(self) -> Expr:
        token, following = self.token, self.ahead(1)
        if token.kind == "op" and token.text == "${":
            return self.directive()
        if token.kind == "op" and token.text in ("[", "{"):
            return self.array()
        if token.kind != "name" or token.text in _WORDS:
            return super()._primary()
        if token.text in self.scope.variables:
            return self.accessor()
        if token.text in _BOOLS:
            return Num(_BOOLS[self.next().text], token.pos)
        if following.text == "(" and token.text in functions.KINDS:
            return self.function()
        if token.text.startswith(("TL_", "LN_")):
            return self.enumerator()
        if following.text != "(":
            known = ", ".join(self.scope.variables)
            self.error(f"unknown name '{token.text}'; the variables here are: {known}")
        called = super()._primary()
        return self.renamed(called) if isinstance(called, Call) else called

    def enumerator(self) -> Str:
        """A name of C's enumerations (dtypes, elementwise operations, memory types …), which stands for itself."""
        token = self.next()
        known = [*ENUMERATORS, *(f"LN_MEM_{target.upper()}" for target in TARGETS)]
        if token.text not in known:
            self.error(f"unknown enumerator '{token.text}'{near(token.text, known)}", token.pos)
        return Str(token.text, token.pos)

    def renamed(self, call: Call) -> Expr:
        """Upstream's functions on strings."""
        if call.fn == _EQUAL:
            if len(call.args) != 2:
                self.error(f"{_EQUAL} takes 2 arguments, got {len(call.args)}", call.pos)
            return Binary("==", *call.args, call.pos)
        if call.fn in _IDENTITY and len(call.args) == 1:
            return call.args[0]
        return call

    def array(self) -> Name:
        """``[a, b]``: an array of values of one kind."""
        start = self.next()
        close = "]" if start.text == "[" else "}"
        parts: list[Expression] = []
        while not self.accept(close):
            parts.append(self.expression())
            if not self.accept(",") and self.token.text != close:
                self.error(f"expected ',' or '{close}', got '{self.token.text}'")
        found = {kinds.value_kind(p.kind) for p in parts}
        if len(found) > 1 or found & set(kinds.ELEMENT):
            self.error("the elements of an array are all numbers, all strings or all bools", start.pos)
        kind = kinds.ARRAY[found.pop()] if found else "numbers"
        return self.atom(kind, lambda ops: tuple(evaluate_over(p.expr, p.atoms, ops) for p in parts), start.pos)

    def directive(self) -> Expr:
        start = self.next()
        what = self.name("con, type or rh")
        match what.text:
            case "con":
                value: Expr = self.concatenation(start.pos)
            case "type":
                value = self.typed(start.pos)
            case "rh":
                if self.token.text not in self.scope.variables:
                    self.error(f"expected an accessor, got '{self.token.text}'")
                value = self.accessor()
            case _:
                self.error(f"unknown directive '{what.text}'; there are: con, type, rh", what.pos)
        self.expect("}")
        return value

    def concatenation(self, pos: int) -> Name:
        """``${con(a, b)}``: strings behind each other."""
        self.expect("(")
        parts = [self.expression()]
        while self.accept(","):
            parts.append(self.expression())
        self.expect(")")
        for part in parts:
            if kinds.value_kind(part.kind) not in ("string", "number"):
                self.error(f"con takes strings, got {kinds.SHOWN[part.kind]}", part.pos)
        return self.atom("string", lambda ops: "".join(str(evaluate_over(p.expr, p.atoms, ops)) for p in parts), pos)

    def typed(self, pos: int) -> Name:
        """``${type(T) e}``: the value as a C type; ``${type(T *, n) e}`` an array of n of it."""
        self.expect("(")
        word = self.name("a type")
        if word.text not in _C_TYPES:
            self.error(f"unknown type '{word.text}'; there are: {', '.join(_C_TYPES)}", word.pos)
        stars = 0
        while self.accept("*"):
            stars += 1
        length = self.expression() if self.accept(",") else None
        self.expect(")")
        inner = self.c_code() if self.is_c() else self.expression()
        realtype, is_array = _C_TYPES[word.text], stars - (word.text == "char") > 0
        kind = KIND_OF_TYPE[realtype]
        kind = kinds.ARRAY[kind] if is_array else kind
        got = kinds.value_kind(inner.kind)
        if got not in (kind, _ANY) and {got, kind} != {"bool", "number"}:
            self.error(
                f"{word.text}{'*' * stars} is {kinds.SHOWN[kind]}, but the value is {kinds.SHOWN[got]}", inner.pos
            )

        def read(ops: Ops) -> Value:
            value = inner.read(ops) if isinstance(inner, Atom) else evaluate_over(inner.expr, inner.atoms, ops)
            if isinstance(inner, Atom) and not _is_a(value, kind):
                raise self.item.error_at(
                    pos, f"{word.text}{'*' * stars} is {kinds.SHOWN[kind]}, but the code gives {value!r:.60}"
                )
            if isinstance(value, tuple):
                if length is not None and len(value) != (n := evaluate_over(length.expr, length.atoms, ops)):
                    raise LightNetError(f"an array of {len(value)} elements where {n} are declared")
                return tuple(_as(v, realtype) for v in value)
            return _as(value, realtype)

        return self.atom(kind, read, pos)

    # -- C

    def is_c(self) -> bool:
        """Return whether what follows, up to the end of the directive, is more than this grammar has: a cast, bits, or
        a call of upstream's.
        """
        return _C_CODE.search(self.text, self.token.pos, self.end_of_directive()) is not None

    def end_of_directive(self) -> int:
        """The offset of the brace that closes the directive that is being read."""
        depth = 0
        for token in self.tokens[self.i :]:
            depth += (token.text in ("{", "${")) - (token.text == "}")
            if depth < 0:
                return token.pos
        self.error("expected '}' behind the code")

    def c_code(self) -> Atom:
        """An expression of C up to the end of the directive; directives in it are names to it. Unknown names and
        functions, and what is no expression, are errors at their places now."""
        start, end, at = self.token.pos, self.end_of_directive(), self.token.pos
        text, parts = "", dict[str, Expression | Atom]()
        while self.token.pos < end:
            if self.token.text == "${":
                text += self.text[at : self.token.pos]
                name, first = f"_{len(parts)}", self.token.pos
                found = self.directive()
                parts[name] = (
                    self.atoms[int(found.name[1:])] if isinstance(found, Name) else self.expression_of(found, first)
                )
                at = self.tokens[self.i - 1].pos + 1
                text += name.ljust(at - first)  # so that places in the code are those in the text
            else:
                self.next()
        text += self.text[at:end]
        return Atom(_ANY, self.reading(text, parts, start))

    def reading(self, text: str, parts: Mapping[str, Expression | Atom], start: int) -> Read:
        """The reader of the value of an expression of C that stands at `start`; `parts` are its names beside the
        enumerators."""
        from lightnet_descriptions import c
        from lightnet_descriptions.c import library, tree

        try:
            e = c.parse_expression(text)
            names = dict.fromkeys((*parts, *library.NAMES))
            c.check_c_code(
                tree.Evaluate(pos=0, expr=e), text, c.CodeScope(names=names, functions=functions.function_table())
            )
        except c.CodeError as error:
            raise self.item.error_at(start + error.pos, error.message) from None

        def read(ops: Ops) -> Any:
            found = (
                (k, p.read(ops) if isinstance(p, Atom) else evaluate_over(p.expr, p.atoms, ops))
                for k, p in parts.items()
            )
            try:
                return c.evaluate_c(text, {k: functions.argument(v) for k, v in found}, functions.function_table(), e)
            except LightNetError as error:
                raise self.item.error_at(start, error.message) from None

        return read

    def function(self) -> Name:
        """A call of a function of upstream's, whose arguments are expressions."""
        token = self.next()
        self.expect("(")
        args = {"a0": self.expression()}
        while self.accept(","):
            args[f"a{len(args)}"] = self.expression()
        self.expect(")")
        read = self.reading(f"{token.text}({', '.join(args)})", args, token.pos)
        return self.atom(functions.KINDS[token.text], read, token.pos)

    def accessor(self) -> Name:
        """Parse what follows a variable."""
        raise NotImplementedError


def _is_a(value: Any, kind: str) -> bool:
    """Return whether what C gives is of a kind."""
    if kind in kinds.ELEMENT:
        return isinstance(value, tuple) and all(_is_a(v, kinds.ELEMENT[kind]) for v in value)
    return isinstance(value, str) if kind == "string" else isinstance(value, bool | int | float)


def _as(value: Any, realtype: str) -> Any:
    if realtype == "string":
        return value
    return bool(value) if realtype == "bool" else as_realtype(value, realtype)
