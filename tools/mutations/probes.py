"""Probes: marks that say of a fault whether a test computes another value with it than without (weak mutation, W. E. Howden, 1982).

A comparison that never saw equal operands, a condition that was never false, a product by one: no test can notice that
they are wrong, however many run the line. `Probes` puts calls into a tree that set a mark where the two values differ; a
fault without a probe changes its value wherever it runs. Imports the standard library only.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable

from mutations.faults import COMPARISONS, OPERATORS, Fault, Site

#: Comparisons whose opposite differs wherever they run.
OPPOSITE = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
#: What probes call, for the module that holds the marks. Operands that are no numbers may do anything when they are compared
#: twice: a fault there counts as noticeable.
FUNCTIONS = """
_NUMBERS = {int, float, bool}


def both(mark, with_fault, without, left, right):
    value = without(left, right)
    if left.__class__ in _NUMBERS and right.__class__ in _NUMBERS:
        if not HITS[mark]:
            try:
                other = with_fault(left, right)
                HITS[mark] = other != value or other.__class__ is not value.__class__
            except (ArithmeticError, ValueError, MemoryError):
                HITS[mark] = 1
    else:
        HITS[mark] = 1
    return value


def truth(if_true, if_false, value):
    if value:
        HITS[if_true] = 1
    else:
        HITS[if_false] = 1
    return value


def some(mark, value):
    if value is not None:
        HITS[mark] = 1
    return value
"""


class Probes(ast.NodeTransformer):
    """Puts probes for `sites` into the tree that they are of. `marks` are those of faults, by name: from `first`, which is of none, to `size`."""

    def __init__(self, sites: Iterable[Site], first: int):
        self.none, self.size, self.marks = first, first + 1, dict[str, int]()
        self.sites: dict[int, list[Site]] = defaultdict(list)
        for site in sites:
            if site.fault.function:
                self.sites[id(site.node)].append(site)

    def visit(self, node: ast.AST) -> ast.AST:
        sites = self.sites.get(id(node), ())
        node = self.generic_visit(node)
        for site in sites:
            if site.fault.kind in ("comparison", "operator", "boolean"):
                node = self._operator(node, site)
        tests = [s.fault for s in sites if s.fault.kind == "condition" and not s.fault.new.startswith("(not ")]
        if tests:
            by_value = {
                f.new[1:5] == "True": f for f in tests
            }  # a condition that is always true is wrong where it is false
            marks = [self._mark(by_value.get(fault)) for fault in (False, True)]
            node = _call("truth", *marks, node)
        for site in sites:
            if site.fault.kind == "return":
                node = _call("some", self._mark(site.fault), node)
        return node

    def _operator(self, node: ast.AST, site: Site) -> ast.AST:
        if isinstance(node, ast.BoolOp):
            mark = self._mark(site.fault)
            marks = (self.none, mark) if isinstance(node.op, ast.And) else (mark, self.none)
            for i in (site.operand, site.operand + 1):
                node.values[i] = _call("truth", *marks, node.values[i])
        elif isinstance(node, ast.Compare) and len(node.ops) == 1 and not isinstance(node.ops[0], OPPOSITE):
            return self._both(site.fault, COMPARISONS[type(node.ops[0])], node.left, node.comparators[0])
        elif isinstance(node, ast.BinOp):
            return self._both(site.fault, OPERATORS[type(node.op)], node.left, node.right)
        return node

    def _both(self, fault: Fault, pair: tuple[str, str], left: ast.expr, right: ast.expr) -> ast.expr:
        functions = (ast.Name(f"_{FUNCTION[word]}_", ast.Load()) for word in reversed(pair))
        return _call("both", self._mark(fault), *functions, left, right)

    def _mark(self, fault: Fault | None) -> int:
        if fault is None:
            return self.none
        self.size += 1
        return self.marks.setdefault(fault.name, self.size - 1)


def _call(function: str, *arguments: int | ast.AST) -> ast.Call:
    words = [ast.Constant(a) if isinstance(a, int) else a for a in arguments]
    return ast.Call(ast.Name(f"_{function}_", ast.Load()), words, [])


#: The function of each operator that a probe computes, in Python's module `operator`.
FUNCTION = {
    "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "+": "add", "-": "sub", "*": "mul", "//": "floordiv", "/": "truediv",
    "%": "mod", "<<": "lshift", ">>": "rshift", "&": "and_", "|": "or_", "^": "xor", "**": "pow",
}  # fmt: skip
