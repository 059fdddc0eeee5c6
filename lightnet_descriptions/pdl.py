"""Rewrite patterns as data: MLIR's PDL dialect on `ln` ops, in a `.mlir` file.

    builtin.module attributes {ln.pass = "simplify"} {
      // relu(relu(x)) = relu(x)
      pdl.pattern @relu_of_relu : benefit(1) {
        %x = pdl.operand
        %inner = pdl.operation "ln.relu" (%x : !pdl.value)
        %y = pdl.result 0 of %inner
        %outer = pdl.operation "ln.relu" (%y : !pdl.value)
        pdl.rewrite %outer {
          pdl.replace %outer with %inner
        }
      }
    }

The module's attributes `ln.pass` (default: simplify) and `ln.target` (default: ``*``, all) say where its patterns are
applied; a file may have several modules. The attributes of a `pdl.operation` are the op's parameters:
``#ln.param<[1, 0]>``, or MLIR's own numbers, strings, bools and arrays. An op without result types matches, and makes,
whatever its operands give: types are inferred and every constraint of a new op is checked. What is wrong with a pattern
is an error when the file is read (`pdl_check.py`). Native functions are those of `pdl_match.py`. Imports both, xDSL's
dialect and the parser.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from xdsl.dialects import pdl
from xdsl.dialects.builtin import ModuleOp, StringAttr

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.ir.context import make_context
from lightnet.ir.locations import loc_of
from lightnet.ir.parser import MAX_TEXT, parse_mlir
from lightnet.ir.registry import misplaced
from lightnet.ir.rewrites import FilePattern
from lightnet.ir.verify import verify_module
from lightnet.source import read_text
from lightnet_descriptions.pdl_check import PatternChecker, fail
from lightnet_descriptions.pdl_match import rewrite
from lightnet_descriptions.rules import Case, Rule

PASS, TARGET = "ln.pass", "ln.target"


def load_pdl_file(path: str) -> list[type[FilePattern]]:
    """The patterns of a file, those of the highest benefit first. Raises `LightNetError` at the place of a mistake."""
    return load_pdl(read_text(path, MAX_TEXT), path)


def load_pdl(text: str, file: str) -> list[type[FilePattern]]:
    """As `load_pdl_file`, from text."""
    ctx = make_context()
    module = parse_mlir(ctx, text, file)
    verify_module(module, ctx)
    try:
        found = list(_rules(module, text, {}))
    except LightNetError as e:
        raise ctx.sources.annotate(e) from None
    if not found:
        raise LightNetError("there is no pdl.pattern in the file", SourceLoc(file))
    return [rule.pattern() for _, rule in sorted(found, key=lambda row: row[0], reverse=True)]


def _rules(module: ModuleOp, text: str, around: dict[str, str]) -> Iterator[tuple[int, Rule]]:
    """The rules of a module, each with its benefit."""
    where = {**around, **_applied(module)}
    for op in module.body.ops:
        if isinstance(op, ModuleOp):
            yield from _rules(op, text, where)
        elif isinstance(op, pdl.PatternOp):
            yield op.benefit.value.data, _rule(op, text, where.get(PASS, "simplify"), where.get(TARGET, "*"))
        else:
            fail(op, f"a file of patterns holds pdl.pattern and modules, not {op.name}")


def _applied(module: ModuleOp) -> dict[str, str]:
    found = {}
    for key, value in module.attributes.items():
        if key not in (PASS, TARGET) or not isinstance(value, StringAttr):
            fail(
                module, f"a module of patterns has the attributes {PASS} and {TARGET}, strings, and not {key} = {value}"
            )
        found[key] = value.data
    if (problem := misplaced(found.get(PASS, "simplify"), found.get(TARGET, "*"))) is not None:
        fail(module, problem)
    return found


def _rule(op: pdl.PatternOp, text: str, pass_name: str, target: str) -> Rule:
    if op.sym_name is None:
        fail(op, "a pattern needs a name: pdl.pattern @name")
    matcher = PatternChecker(op).matcher()
    place = loc_of(op)
    assert place is not None
    return Rule(op.sym_name.data, pass_name, target, place, text, matcher, (Case(partial(rewrite, matcher)),))
