"""C of descriptions: text -> tree. Declarations, assignments, `if`, `for`, `return`, and C's expressions; nothing else.

    block       := statement*
    statement   := "{" block "}" | "if" "(" e ")" statement ("else" statement)? | "return" e? ";"
                 | "break" ";" | "continue" ";"
                 | "for" "(" (declaration | e? ";") e? ";" e? ")" statement | declaration | e? ";"
    declaration := type "*"* NAME ("[" e? "]")? ("=" (e | "{" e, e … "}"))? ("," "*"* NAME …)* ";"
    e           := C's expressions, from the comma to casts, `sizeof` and compound literals ``(int[]){a, b}``

A type is one of C's words, or a name in front of another name or of stars. What else C has is refused at its place with
what to write instead. Imports the tree, the lexer, `parsing` and `ir.expr` for its limits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from lightnet.ir.expr import MAX_DEPTH
from lightnet.parsing import Token, TokenParser
from lightnet_descriptions.c import lexer
from lightnet_descriptions.c.tree import (
    Assign,
    Binary,
    Block,
    Call,
    Compound,
    Conditional,
    Declaration,
    Evaluate,
    Expr,
    For,
    If,
    Increment,
    Index,
    Jump,
    Member,
    Name,
    Number,
    Return,
    Sequence,
    SizeOf,
    Statement,
    Text,
    Type,
    TypeCast,
    Unary,
)
from lightnet_descriptions.c.values import SIZES, CodeError, text_error

#: Words of C that are refused, and what to write instead.
REFUSED = {
    **dict.fromkeys(("while", "do"), "a loop is `for (int i = 0; i < n; i++)`"),
    **dict.fromkeys(("switch", "case", "default"), "write `if` and `else`"), "goto": "write `if` and `else`",
    **dict.fromkeys(("struct", "union", "enum", "typedef"),
                    "types are those that there are; `extra_privs` names constants of an op"),
    **dict.fromkeys(("static", "extern", "register", "inline", "volatile", "restrict", "auto"), "leave it out"),
    **dict.fromkeys(("asm", "__asm__", "__attribute__", "_Generic"), "only what a table names is called here"),
}  # fmt: skip
_QUALIFIERS = ("const", "unsigned", "signed", "long", "short")
#: Words that are types wherever they stand.
WORDS = {*(w for name in SIZES for w in name.split()), "void", "FILE"} - {"tl_dtype"}
_NOT_NAMES = {*WORDS, *_QUALIFIERS, *REFUSED, "if", "else", "for", "return", "break", "continue", "sizeof"}
_LEVELS = ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", "<=", ">", ">="), ("<<", ">>"), ("+",
    "-"), ("*", "/", "%")  # fmt: skip
_ASSIGNMENTS = ("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=")


def parse_type(text: str) -> Type | None:
    """The type that a text is, ``int *``; None of one that no table here has, such as a handle of a library."""
    try:
        parser = Parser(text)
        found = Type(parser.type_name(), parser.stars())
    except CodeError:
        return None
    return found if parser.token.kind == "end" and (found.name in SIZES or found.is_pointer) else None


def parse_code(text: str) -> Block:
    """The statements of `text`. Raises `CodeError`, whose lines and columns are those of `text`."""
    parser = Parser(text)
    found: list[Statement] = []
    try:
        while parser.token.kind != "end":
            found.append(parser.statement())
    except RecursionError:
        parser.error("C code is nested too deeply")
    return Block(0, tuple(found), is_scope=False)


def parse_expression(text: str) -> Expr:
    """The one expression that `text` is; a ``;`` may follow. Raises `CodeError`."""
    parser = Parser(text)
    try:
        value = parser.expression()
    except RecursionError:
        parser.error("C code is nested too deeply")
    parser.accept(";")
    if parser.token.kind != "end":
        parser.error(f"expected the end of the expression, got '{parser.token.text}'")
    return value


class Parser(TokenParser[Expr]):
    """Recursive descent; depth and the number of operators in a row are bounded, so that no tree is deep."""

    LEVELS, MAX_DEPTH, MAX_ROW, WHAT = _LEVELS, MAX_DEPTH, MAX_DEPTH, "C code"

    def __init__(self, text: str):
        super().__init__(text, lexer.tokens(text))

    def error(self, message: str, pos: int | None = None) -> NoReturn:
        raise text_error(self.text, self.token.pos if pos is None else pos, message)

    # -- statements

    def statement(self) -> Statement:
        return self.nested(self._statement)

    def _statement(self) -> Statement:
        token = self.token
        if token.text in REFUSED and token.kind == "name":
            self.error(f"'{token.text}' is not taken here: {REFUSED[token.text]}")
        if token.text == "#":
            self.error(
                "a directive of the preprocessor is not taken here: what there is to call is known without #include"
            )
        match token.text if token.kind in ("name", "op") else "":
            case "{":
                return self.block()
            case "if":
                return self.conditional()
            case "for":
                return self.loop()
            case "return":
                self.next()
                value = None if self.token.text == ";" else self.expression()
                self.expect(";", "behind a return")
                return Return(token.pos, value)
            case "break" | "continue":
                self.next()
                self.expect(";", f"behind {token.text}")
                return Jump(token.pos, token.text)
            case ";":
                self.next()
                return Block(token.pos, ())
        if self.at_declaration():
            found = self.declaration()
            self.expect(";", "behind a declaration")
            return found
        value = self.expression()
        if self.token.text == "{":
            self.error("a function is not defined here: write its code where it is used")
        self.expect(";", "behind an expression")
        return Evaluate(token.pos, value)

    def block(self) -> Block:
        start = self.expect("{")
        found: list[Statement] = []
        while not self.accept("}"):
            if self.token.kind == "end":
                self.error("a block has no '}'", start.pos)
            found.append(self.statement())
        return Block(start.pos, tuple(found))

    def conditional(self) -> If:
        start = self.next()
        self.expect("(", "behind if")
        cond = self.expression()
        self.expect(")")
        then = self.statement()
        other = self.statement() if self.accept("else") else None
        return If(start.pos, cond, then, other)

    def loop(self) -> For:
        start = self.next()
        self.expect("(", "behind for")
        first: Statement | None = None
        if self.at_declaration():
            first = self.declaration()
        elif self.token.text != ";":
            first = Evaluate(self.token.pos, self.expression())
        self.expect(";", "behind the start of a loop")
        cond = None if self.token.text == ";" else self.expression()
        self.expect(";", "behind the condition of a loop")
        step = None if self.token.text == ")" else self.expression()
        self.expect(")")
        return For(start.pos, first, cond, step, self.statement())

    # -- declarations

    def at_declaration(self) -> bool:
        if self.token.kind != "name":
            return False
        if self.token.text in WORDS or self.token.text in _QUALIFIERS:
            return True
        k = 1  # NAME NAME, or NAME * NAME followed by what a declaration goes on with
        while self.ahead(k).text == "*":
            k += 1
        named = self.ahead(k).kind == "name" and self.ahead(k).text not in _NOT_NAMES
        return named and (k == 1 or self.ahead(k + 1).text in ("=", ";", ",", "["))

    def type_name(self) -> str:
        """The words of a type, without stars."""
        words: list[str] = []
        named = WORDS - set(_QUALIFIERS)
        while self.token.kind == "name" and (
            self.token.text in _QUALIFIERS or (self.token.text in WORDS and not named & set(words))
        ):
            words.append(self.next().text)
        words = [w for w in words if w not in ("const", "signed")]
        if not words:
            if self.token.kind != "name":
                self.error(f"expected a type, got '{self.token.text[:40]}'")
            words = [self.next().text]
            self.accept("const")
        if len(words) > 1 and words[-1] == "int":
            words.pop()
        name = " ".join(words)
        return {"long long": "long", "unsigned long long": "unsigned long"}.get(name, name)

    def stars(self) -> int:
        count = 0
        while self.accept("*"):
            count += 1
            self.accept("const")
        return count

    def declaration(self) -> Statement:
        start = self.token.pos
        name = self.type_name()
        found: list[Statement] = [self.declarator(name)]
        while self.accept(","):
            found.append(self.declarator(name))
        return found[0] if len(found) == 1 else Block(start, tuple(found), is_scope=False)

    def declarator(self, type_name: str) -> Declaration:
        type = Type(type_name, self.stars())
        if self.token.text == "(":
            self.error("a pointer to a function is not taken here: only what a table names is called")
        token = self.token
        if token.kind != "name" or token.text in _NOT_NAMES:
            self.error(f"expected the name of a variable, got '{token.text[:40]}'")
        self.next()
        if self.token.text == "(":
            self.error("a function is not declared here: what there is to call is known")
        is_array, length = False, None
        if self.accept("["):
            is_array, length = True, None if self.token.text == "]" else self.expression()
            self.expect("]")
            if self.token.text == "[":
                self.error("an array has one dimension here: write its elements one row behind the other")
        value: Expr | None = None
        if mark := self.accept("="):
            value = Compound(mark.pos, type, self.items(), length) if self.token.text == "{" else self.assignment()
        return Declaration(token.pos, type, token.text, value, is_array, length)

    def items(self) -> tuple[Expr, ...]:
        self.expect("{")
        found: list[Expr] = []
        while not self.accept("}"):
            if self.token.text in (".", "["):
                self.error("an initializer has its elements in order, without names")
            found.append(self.assignment())
            if not self.accept(",") and self.token.text != "}":
                self.error(f"expected ',' or '}}', got '{self.token.text[:40]}'")
        return tuple(found)

    # -- expressions

    def expression(self) -> Expr:
        first = self.assignment()
        if self.token.text != ",":
            return first
        found = [first]
        while self.accept(","):
            found.append(self.assignment())
        return Sequence(first.pos, tuple(found))

    def assignment(self) -> Expr:
        return self.nested(self._assignment)

    def _assignment(self) -> Expr:
        target = self.choice()
        if self.token.kind == "op" and self.token.text in _ASSIGNMENTS:
            mark = self.next()
            if not isinstance(target, Name | Member | Index | Unary) or (
                isinstance(target, Unary) and target.op != "*"
            ):
                self.error("only a variable, an element or a member can be assigned", mark.pos)
            target = Assign(target.pos, mark.text[:-1], target, self.assignment())
        return target

    def choice(self) -> Expr:
        cond = self.climb()
        if not self.accept("?"):
            return cond
        then = self.expression()
        self.expect(":", "of a conditional")
        return Conditional(cond.pos, cond, then, self.assignment())

    def joined(self, left: Expr, right: Callable[[], Expr]) -> Expr:
        return Binary(left.pos, self.next().text, left, right())

    def too_long(self) -> NoReturn:
        self.error(f"more than {MAX_DEPTH} operators in a row")

    def operand(self) -> Expr:
        token = self.token
        if token.kind == "op" and token.text in ("-", "+", "!", "~", "*", "&", "++", "--"):
            self.next()
            arg = self.nested(self.operand)
            if token.text in ("++", "--"):
                return Increment(token.pos, token.text[0], arg, prefix=True)
            return Unary(token.pos, token.text, arg)
        if token.text == "sizeof" and token.kind == "name":
            return self.size_of()
        if token.text == "(" and self.is_type(1):
            return self.cast()
        return self.postfix()

    def is_type(self, k: int) -> bool:
        """Return whether the tokens from `k` on are a type in parentheses."""
        first = self.ahead(k)
        if first.kind != "name":
            return False
        if first.text in WORDS or first.text in _QUALIFIERS:
            return True
        k += 1
        if self.ahead(k).text == "[" and self.ahead(k + 1).text == "]":
            return True
        stars = 0
        while self.ahead(k).text == "*":
            stars, k = stars + 1, k + 1
        return stars > 0 and self.ahead(k).text == ")"

    def cast(self) -> Expr:
        start = self.next()
        type = Type(self.type_name(), self.stars())
        if self.accept("["):
            length = None if self.token.text == "]" else self.expression()
            self.expect("]")
            self.expect(")")
            return self.after(Compound(start.pos, type, self.items(), length))
        self.expect(")", "behind the type of a cast")
        if self.token.text == "{":
            self.error(f"a structure cannot be written here; an array is ({type}[]){{a, b}}")
        return TypeCast(start.pos, type, self.nested(self.operand))

    def size_of(self) -> Expr:
        start = self.next()
        if self.token.text == "(" and self.is_type(1):
            self.next()
            what = Type(self.type_name(), self.stars())
            self.expect(")")
            return SizeOf(start.pos, what)
        return SizeOf(start.pos, self.nested(self.operand))

    def postfix(self) -> Expr:
        return self.after(self.primary())

    def after(self, value: Expr) -> Expr:
        """Parse what stands behind a value: subscripts, members, ``++``."""
        count = 0
        while self.token.kind == "op" and self.token.text in ("[", ".", "->", "++", "--", "("):
            mark = self.next()
            count += 1
            if count > MAX_DEPTH:
                self.error(f"more than {MAX_DEPTH} subscripts in a row", mark.pos)
            if mark.text == "[":
                sub = self.expression()
                self.expect("]")
                value = Index(value.pos, value, sub)
            elif mark.text in ("++", "--"):
                value = Increment(value.pos, mark.text[0], value, prefix=False)
            elif mark.text == "(":
                self.error("only a function that a table names can be called", mark.pos)
            else:
                value = Member(value.pos, value, self.name("the name of a member").text)
        return value

    def primary(self) -> Expr:
        token = self.next()
        match token.kind:
            case "num":
                return Number(token.pos, lexer.c_number(self.text, token))
            case "char":
                return Number(token.pos, ord(lexer.c_string(self.text, token)[:1] or "\0"))
            case "str":
                parts = [lexer.c_string(self.text, token)]
                while self.token.kind == "str":  # strings beside each other are one
                    parts.append(lexer.c_string(self.text, self.next()))
                return Text(token.pos, "".join(parts))
            case "name" if token.text not in _NOT_NAMES:
                return self.call(token) if self.token.text == "(" else Name(token.pos, token.text)
        if token.text == "(":
            value = self.expression()
            self.expect(")")
            return value
        if token.text in REFUSED:
            self.error(f"'{token.text}' is not taken here: {REFUSED[token.text]}", token.pos)
        self.error(f"expected an expression, got '{token.text[:40]}'", token.pos)

    def call(self, name: Token) -> Call:
        self.expect("(")
        args: list[Expr] = []
        while not self.accept(")"):
            args.append(self.assignment())
            if not self.accept(",") and self.token.text != ")":
                self.error(f"expected ',' or ')', got '{self.token.text[:40]}'")
        return Call(name.pos, name.text, tuple(args))
