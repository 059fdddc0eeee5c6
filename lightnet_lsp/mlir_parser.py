"""Parsing MLIR for an editor: all errors of a text rather than the first, and which op stands where.

After a syntax error the parser goes on with the next statement. A statement that is lost leaves its results behind as
values of any type, so that their uses are no errors. If the text parses, every op is verified; else those ops that
depend on nothing lost. Imports xDSL and `ir`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any

from xdsl.dialects.builtin import ModuleOp, NoneType
from xdsl.ir import Operation, SSAValue
from xdsl.parser.core import ForwardDeclaredValue
from xdsl.utils.exceptions import ParseError
from xdsl.utils.mlir_lexer import MLIRTokenKind

from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.ir.collector import collector_paused
from lightnet.ir.context import LnContext, make_context, sources_of
from lightnet.ir.op import LnOp
from lightnet.ir.parser import LocatedParser
from lightnet.ir.verify import error_of, module_errors
from lightnet_lsp.documents import Cancelled
from lightnet_lsp.mlir_index import SPLIT, TOKEN

#: Errors of one part of a file: what follows so many is noise.
MAX_ERRORS = 50
_OP_STARTS = (MLIRTokenKind.PERCENT_IDENT, MLIRTokenKind.BARE_IDENT, MLIRTokenKind.STRING_LIT)
_OTHER_STARTS = (MLIRTokenKind.HASH_IDENT, MLIRTokenKind.EXCLAMATION_IDENT, MLIRTokenKind.FILE_METADATA_BEGIN)
_RESULTS = r"%[\w$.-]+(?:\s*:\s*\d+)?(?:\s*,\s*%[\w$.-]+(?:\s*:\s*\d+)?)*\s*="
_STATEMENT = re.compile(rf'{_RESULTS}|\^|\}}|"[\w$.]+"\(|[A-Za-z_]\w*\.[A-Za-z_]|(?:module|return)\b')
_BLANKS = re.compile(r"[ \t]*")
_RESULT = re.compile(r"%([\w$.-]+)(?:\s*:\s*(\d{1,3})(?!\d))?")


@dataclass
class Parsed:
    """The result of parsing: errors in the order in which they were found, and ops by the offset of their name in the
    text."""

    errors: list[LightNetError] = field(default_factory=list)
    ops: dict[int, Operation] = field(default_factory=dict)


@collector_paused()
def parse(text: str, path: str, is_cancelled: Callable[[], bool] = lambda: False) -> Parsed:
    """Parse and verify every part of `text`. Raises `Cancelled`, and nothing else, as soon as `is_cancelled`."""
    result = Parsed()
    for start, end in _parts(text):
        if is_cancelled():
            raise Cancelled
        ctx = make_context(allow_unregistered="--allow-unregistered-dialect" in text)
        first_line = text.count("\n", 0, start) + 1
        try:
            parser = _Recovering(ctx, text[start:end], path, first_line, is_cancelled)
        except LightNetError as e:  # the first token, or the size
            result.errors.append(e)
            continue
        result.errors += parser.all_errors(ctx)
        result.ops.update((at + start, op) for at, op in parser.ops.items())
    return result


def _parts(text: str) -> Iterator[tuple[int, int]]:
    """The parts between lines ``// -----``, each from the line end before it on, so that columns stay."""
    start = 0
    for mark in SPLIT.finditer(text):
        yield start, mark.start()
        start = mark.end()
    yield start, len(text)


class _Recovering(LocatedParser):
    """The parser, with an error list and `ops`."""

    def __init__(self, ctx: LnContext, text: str, path: str, first_line: int, is_cancelled: Callable[[], bool]):
        super().__init__(ctx, text, path, first_line)
        self.is_cancelled = is_cancelled
        self.errors: list[LightNetError] = []
        self.ops: dict[int, Operation] = {}
        self._names: list[int] = []  # where the names of the ops stand that are being parsed

    def all_errors(self, ctx: LnContext) -> list[LightNetError]:
        """Parse the text and verify what can be."""
        try:
            module: ModuleOp | None = self.parse_file()
        except LightNetError as e:
            module = None
            undefined = self.undefined_values()
            self.errors += undefined or ([] if self.errors else [e])
        if not self.errors and module is not None:
            self.check()
            return module_errors(module, ctx)
        return self.errors + [e for op in self.ops.values() if (e := self.independent_error(op)) is not None]

    def independent_error(self, op: Operation) -> LightNetError | None:
        """The error of an op of a text that does not parse, where that has nothing to do with what is lost."""
        self.check()
        if not isinstance(op, LnOp) or any(isinstance(o.type, NoneType) for o in op.operands):
            return None
        error = error_of(op, in_place=False)
        return sources_of(self.ctx).annotate(error.error, op) if error is not None else None

    def check(self) -> None:
        if self.is_cancelled():
            raise Cancelled

    # -- where ops stand

    def _parse_op_result_list(self) -> list[Any]:
        results = super()._parse_op_result_list()
        self._names.append(self.pos)
        return results

    def parse_operation(self) -> Operation:
        self.check()
        op = super().parse_operation()
        self.ops[self._names.pop()] = op
        return op

    # -- recovering

    def parse_optional_operation(self) -> Operation | None:
        while True:
            start = self.pos
            state = self._state()
            try:
                self._refuse_stray()
                return super().parse_optional_operation()
            except Exception as e:
                self._note(e)
                self._restore(state)
                self._lose(start)
                self._skip(start)

    def _refuse_stray(self) -> None:
        """Refuse here what begins neither an op nor anything else, so that the region around it goes on."""
        kind = self._current_token.kind
        after_ops = (MLIRTokenKind.R_BRACE, MLIRTokenKind.CARET_IDENT) if self._depth else _OTHER_STARTS
        if kind not in (*_OP_STARTS, *after_ops, MLIRTokenKind.EOF):
            self.raise_error("expected an op")

    def _note(self, error: Exception) -> None:
        """Add the error, unless it only follows from the last; too many, and those of limits, end the parsing."""
        found = self.as_error(error)
        if not self.errors or found.loc != self.errors[-1].loc:
            self.errors.append(found)
        if len(self.errors) >= MAX_ERRORS or self.lexer.left < 0 or isinstance(error, RecursionError):
            raise self.errors.pop()

    def _state(self) -> tuple[Any, ...]:
        lengths = tuple(map(len, (self._op_starts, self._names, self._parser_state.dialect_stack, self.ssa_values)))
        return lengths, self._depth, self.ssa_values, self.blocks, self.forward_block_references

    def _restore(self, state: tuple[Any, ...]) -> None:
        (starts, names, stack, values), self._depth, self.ssa_values, self.blocks, self.forward_block_references = state
        del self._op_starts[starts:], self._names[names:], self._parser_state.dialect_stack[stack:]
        while len(self.ssa_values) > values:
            self.ssa_values.popitem()  # what an inner region defined

    def _lose(self, start: int) -> None:
        """Leave values of any type for the results of the statement at `start`."""
        results = re.compile(_RESULTS).match(self._text, start)
        for m in _RESULT.finditer(results[0]) if results else ():
            self.ssa_values.setdefault(m[1], tuple(_lost_value() for _ in range(int(m[2] or 1))))
            self.forward_ssa_references.pop(m[1], None)

    def resolve_operand(self, operand: Any, type: Any) -> SSAValue:
        values = self.ssa_values.get(operand.operand_name)
        if values and isinstance(values[0].type, NoneType):
            return ForwardDeclaredValue(type)
        return super().resolve_operand(operand, type)

    def _skip(self, start: int) -> None:
        """Resume at the statement after the one at `start`, and not before the last error."""
        loc = self.errors[-1].loc
        error_at = self._pos_of(loc) if loc is not None else start
        while True:
            start = self._next_statement(start, error_at)
            try:
                self._resume_from(start)
                return
            except ParseError as e:
                error = self.as_error(e)
                if error.loc != self.errors[-1].loc:
                    self.errors.append(error)
                error_at = max(error_at, e.span.start)

    def _pos_of(self, loc: SourceLoc) -> int:
        index = loc.line - self._first_line
        known = loc.file == self._file and 0 <= index < len(self._line_starts)
        return self._line_starts[index] + loc.col - 1 if known else 0

    def _next_statement(self, start: int, at_least: int) -> int:
        """The start of the statement after the one at `start`: behind its braces, or, where those do not match, at a
        line that is indented no further; or the brace that closes the block around it."""
        indent, depth, line = self._indent(start), 0, self._line_of(start)
        for m in TOKEN.finditer(self._text, start + 1):
            at, text = m.start(), m[0]
            if m.lastgroup == "comment":
                continue
            new_line, line = self._line_of(at) > line, max(line, self._line_of(at))
            begins = new_line and at >= at_least and _STATEMENT.match(self._text, at) is not None
            closes_block = text == "}" and (depth == 0 or (new_line and self._indent(at) < indent))
            if at >= at_least and (
                closes_block or (begins and text != "}" and (depth <= 0 or self._indent(at) <= indent))
            ):
                return at
            depth = depth + 1 if text == "{" else max(depth - 1, 0) if text == "}" else depth
        return len(self._text)

    def _line_of(self, at: int) -> int:
        return bisect_right(self._line_starts, at) - 1

    def _indent(self, at: int) -> int:
        """The blanks that the line of `at` begins with."""
        start = self._line_starts[self._line_of(at)]
        return _BLANKS.match(self._text, start).end() - start  # type: ignore[union-attr]


def _lost_value() -> SSAValue:
    return ForwardDeclaredValue(NoneType())
