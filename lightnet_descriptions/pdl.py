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
from typing import ClassVar

from xdsl.dialects import pdl
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.ir.context import make_context
from lightnet.ir.locations import loc_of
from lightnet.ir.parser import MAX_TEXT, parse_mlir
from lightnet.ir.registry import misplaced
from lightnet.ir.rewrites import FilePattern
from lightnet.ir.verify import verify_module
from lightnet.source import read_text
from lightnet_descriptions.pdl_check import PatternChecker, fail
from lightnet_descriptions.pdl_match import Matcher, Rewriting, name_of_pattern

PASS, TARGET = "ln.pass", "ln.target"


class PdlPattern(FilePattern):
    """A pattern of a file. A subclass stands for each: `name`, where it is applied, the `equation` above it, the op it
    starts at and its place."""

    equation: ClassVar[str]
    root: ClassVar[str]
    declared_at: ClassVar[SourceLoc]
    matcher: ClassVar[Matcher]

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if (bound := self.matcher.match(op)) is not None:
            Rewriting(self.matcher, bound, op).run(rewriter)


def _benefit(cls: type[PdlPattern]) -> int:
    pattern = cls.matcher.rewrite.parent_op()
    assert isinstance(pattern, pdl.PatternOp)
    return pattern.benefit.value.data


def load_pdl_file(path: str) -> list[type[PdlPattern]]:
    """The patterns of a file, those of the highest benefit first. Raises `LightNetError` at the place of a mistake."""
    return load_pdl(read_text(path, MAX_TEXT), path)


def load_pdl(text: str, file: str) -> list[type[PdlPattern]]:
    """As `load_pdl_file`, from text."""
    ctx = make_context()
    module = parse_mlir(ctx, text, file)
    verify_module(module, ctx)
    lines = text.split("\n")
    try:
        found = list(_patterns(module, lines, {}))
    except LightNetError as e:
        raise ctx.sources.annotate(e) from None
    if not found:
        raise LightNetError("there is no pdl.pattern in the file", SourceLoc(file))
    return sorted(found, key=_benefit, reverse=True)


def _patterns(module: ModuleOp, lines: list[str], around: dict[str, str]) -> Iterator[type[PdlPattern]]:
    where = {**around, **_applied(module)}
    for op in module.body.ops:
        if isinstance(op, ModuleOp):
            yield from _patterns(op, lines, where)
        elif isinstance(op, pdl.PatternOp):
            yield _pattern(op, lines, where.get(PASS, "simplify"), where.get(TARGET, "*"))
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


def _pattern(op: pdl.PatternOp, lines: list[str], pass_name: str, target: str) -> type[PdlPattern]:
    if op.sym_name is None:
        fail(op, "a pattern needs a name: pdl.pattern @name")
    matcher = PatternChecker(op).matcher()
    loc = loc_of(op)
    assert loc is not None
    namespace = {
        "name": op.sym_name.data, "pass_name": pass_name, "target": target, "matcher": matcher, "declared_at": loc,
        "equation": _comment(lines, loc.line), "root": name_of_pattern(matcher.root), "__module__": __name__,
    }  # fmt: skip
    return type(op.sym_name.data, (PdlPattern,), namespace)


def _comment(lines: list[str], line: int) -> str:
    """The comment lines right above a line, without their slashes."""
    found: list[str] = []
    at = line - 2
    while at >= 0 and (text := lines[at].strip()).startswith("//"):
        found.append(text.lstrip("/").strip())
        at -= 1
    return "\n".join(reversed(found))
