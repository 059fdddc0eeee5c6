"""Faults in source text: every place where a comparison, constant, condition, operator, return or statement can be wrong, and
the text with one such fault. A fault keeps the number of lines, so that code around it is found by its lines.

Left out is what no test could notice or any would: annotations, docstrings, strings, ``assert``, what stands under
``TYPE_CHECKING`` or in an abstract method. Imports the standard library only.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

COMPARISONS = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}  # fmt: skip
OPERATORS = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+"), ast.FloorDiv: ("//", "*"), ast.Div: ("/", "*"),
    ast.Mod: ("%", "//"), ast.LShift: ("<<", ">>"), ast.RShift: (">>", "<<"), ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"), ast.BitXor: ("^", "|"), ast.Pow: ("**", "*"),
}  # fmt: skip
BOOLEANS = {ast.And: ("and", "or"), ast.Or: ("or", "and")}


@dataclass(frozen=True)
class Fault:
    """A change of `file`: the bytes `start` to `end` (`old`) become `new`. `line` is the one where it starts; `function` says
    whether it lies in code that runs when a function is called, not when the module is imported; `within` names the innermost one."""

    file: str
    line: int
    kind: str
    start: int
    end: int
    old: str
    new: str
    function: bool
    within: str = ""

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line}:{self.start}:{self.kind}:{self.new.strip()}"

    def apply(self, text: str) -> str:
        """The text of `file` with the fault. Raises ValueError where it is another text."""
        data = text.encode()
        if data[self.start : self.end] != self.old.encode():
            raise ValueError(f"{self.file} has changed")
        return (data[: self.start] + self.new.encode() + data[self.end :]).decode()


class Site(NamedTuple):
    """A fault, the node that it changes, and, where it changes an operator, which one of the node: that between `operand` and the next."""

    fault: Fault
    node: ast.AST
    operand: int = 0


def sample(texts: Mapping[str, str], count: int, seed: int) -> list[Fault]:
    """`count` faults of files by name, at most one a line; each line that can have one is as likely as another. A larger
    `count` begins with the faults of a smaller one."""
    chance = random.Random(seed)
    lines: dict[tuple[str, int], list[Fault]] = {}
    for file in sorted(texts):
        for fault in faults(file, texts[file]):
            lines.setdefault((file, fault.line), []).append(fault)
    keys = sorted(lines)
    chance.shuffle(keys)
    chosen: list[Fault] = []
    for key in keys:
        if len(chosen) == count:
            break
        chance.shuffle(lines[key])
        chosen += [f for f in lines[key] if is_program(f.apply(texts[f.file]))][:1]
    return chosen


def faults(file: str, text: str) -> list[Fault]:
    """Every fault of a file, in the order of places."""
    return sorted((site.fault for site in sites(file, text, ast.parse(text))), key=lambda f: (f.start, f.end, f.new))


def sites(file: str, text: str, tree: ast.Module) -> list[Site]:
    """Every fault of a file, with what it changes in the tree of its text."""
    found = _Faults(file, text)
    found.block(tree.body)
    return found.sites


def is_program(text: str) -> bool:
    """Return whether a text can be parsed."""
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


class _Faults:
    """Collects the faults of one file."""

    def __init__(self, file: str, text: str):
        self.file, self.data = file, text.encode()
        self.sites: list[Site] = []
        self.starts = [0]
        for line in text.encode().splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.inside, self.scope = False, ""

    # -- where -------------------------------------------------------------------------------------------------------

    def span(self, node: ast.AST) -> tuple[int, int]:
        return (
            self.starts[node.lineno - 1] + node.col_offset,
            self.starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def add(self, kind: str, node: ast.AST, start: int, end: int, new: str, operand: int = 0) -> None:
        old = self.data[start:end]
        line = self.data.count(b"\n", 0, start) + 1
        new += "\n" * (old.count(b"\n") - new.count("\n"))
        fault = Fault(self.file, line, kind, start, end, old.decode(), new, self.inside, self.scope)
        self.sites.append(Site(fault, node, operand))

    def put(self, kind: str, node: ast.AST, new: str) -> None:
        self.add(kind, node, *self.span(node), new)

    def between(
        self, kind: str, node: ast.AST, left: ast.AST, right: ast.AST, pair: tuple[str, str], operand: int = 0
    ) -> None:
        """Exchange the operator of a node between two operands; parentheses and blanks may stand around it."""
        start, end = self.span(left)[1], self.span(right)[0]
        words = r"\s+".join(map(re.escape, pair[0].split()))
        match = re.fullmatch(rf"([\s)]*)({words})([\s(]*(?:not)?[\s(]*)", self.data[start:end].decode())
        if match is not None:
            self.add(kind, node, start + match.start(2), start + match.end(2), pair[1], operand)

    # -- statements --------------------------------------------------------------------------------------------------

    def block(self, body: list[ast.stmt]) -> None:
        for i, node in enumerate(body):
            is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if not is_text and not isinstance(node, ast.Assert | ast.Import | ast.ImportFrom | ast.Raise):
                self.statement(node, len(body) - i)

    def statement(self, node: ast.stmt, left: int) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self.function(node)
        elif isinstance(node, ast.ClassDef):
            self.within(False, node.body, node.decorator_list)
        elif isinstance(node, ast.If | ast.While):
            if "TYPE_CHECKING" not in ast.unparse(node.test) and "__main__" not in ast.unparse(node.test):
                self.condition(node.test, isinstance(node, ast.If))
                self.expression(node.test)
                self.block(node.body)
            self.block(node.orelse)
        else:
            self.simple(node)
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr) and child is not getattr(node, "annotation", None):
                    self.expression(child)
                elif isinstance(child, ast.withitem):
                    self.expression(child.context_expr)
                elif isinstance(child, ast.ExceptHandler | ast.match_case):
                    self.block(child.body)
            for name in ("body", "orelse", "finalbody"):
                self.block(getattr(node, name, []))

    def simple(self, node: ast.stmt) -> None:
        """Take a statement away, or what it returns."""
        if isinstance(node, ast.Expr | ast.AugAssign | ast.Continue | ast.Break | ast.Delete):
            if not isinstance(getattr(node, "value", None), ast.Yield | ast.YieldFrom):
                self.put("statement", node, "pass")
        if isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
            self.put("return", node.value, "(None)" if b"\n" in self.text(node.value) else "None")
        if isinstance(node, ast.AugAssign) and type(node.op) in OPERATORS:
            old, new = OPERATORS[type(node.op)]
            self.between("operator", node, node.target, node.value, (f"{old}=", f"{new}="))

    def text(self, node: ast.AST) -> bytes:
        start, end = self.span(node)
        return self.data[start:end]

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        defaults = [d for d in (*node.args.defaults, *node.args.kw_defaults) if d is not None]
        outer, self.inside = self.inside, False
        for expression in (*node.decorator_list, *defaults):
            self.expression(expression)
        self.inside = outer
        if not any(isinstance(n, ast.Raise) and "NotImplementedError" in ast.unparse(n) for n in node.body):
            outer_scope, self.scope = self.scope, node.name
            self.within(True, node.body, [])
            self.scope = outer_scope

    def within(self, inside: bool, body: list[ast.stmt], decorators: list[ast.expr]) -> None:
        for decorator in decorators:
            self.expression(decorator)
        outer, self.inside = self.inside, inside or self.inside
        self.block(body)
        self.inside = outer

    # -- expressions -------------------------------------------------------------------------------------------------

    def condition(self, node: ast.expr, fixed: bool = True) -> None:
        lines = "\n" * self.text(node).count(b"\n")
        self.put("condition", node, f"(not ({self.text(node).decode()}))")
        if fixed:
            self.put("condition", node, f"(True{lines})")
        self.put("condition", node, f"(False{lines})")

    def expression(self, node: ast.AST) -> None:
        if isinstance(node, ast.JoinedStr):  # its parts have no places of their own before Python 3.12
            return
        self.change(node)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr | ast.comprehension | ast.keyword):
                self.expression(child)

    def change(self, node: ast.AST) -> None:
        match node:
            case ast.Compare():
                operands = [node.left, *node.comparators]
                for i, (left, right, op) in enumerate(zip(operands, operands[1:], node.ops)):
                    self.between("comparison", node, left, right, COMPARISONS[type(op)], i)
            case ast.BoolOp():
                for i, (left, right) in enumerate(zip(node.values, node.values[1:])):
                    self.between("boolean", node, left, right, BOOLEANS[type(node.op)], i)
            case ast.BinOp() if type(node.op) in OPERATORS and not (_is_text(node.left) or _is_text(node.right)):
                self.between("operator", node, node.left, node.right, OPERATORS[type(node.op)])
            case ast.UnaryOp(op=ast.Not()):
                self.put("boolean", node, f"({self.text(node.operand).decode()})")
            case ast.UnaryOp(op=ast.USub()):
                self.put("operator", node, f"({self.text(node.operand).decode()})")
            case ast.IfExp():
                self.condition(node.test)
            case ast.comprehension():
                for test in node.ifs:
                    self.condition(test)
            case ast.Constant(value=bool() as value):
                self.put("constant", node, str(not value))
            case ast.Constant(value=int() as value):
                self.put("constant", node, str(value + 1))
            case ast.Constant(value=float() as value):
                self.put("constant", node, repr(value * 2 + 1))


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
