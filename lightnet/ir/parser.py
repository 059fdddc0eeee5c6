"""The `.mlir` parser: xDSL's, with a source location on every op, with limits, and with errors for a user.

xDSL's parser leaves every op at an unknown location, reports an undefined value at the end of the file, and prints the
whole source line however long it is. This subclass notes where each op's name stands (as MLIR does) and turns
everything that goes wrong into a `LightNetError`. Imports xDSL and the lower modules of `ir`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from math import prod
from typing import Any, cast

from xdsl.context import Context
from xdsl.dialects.builtin import (
    AnyFloat,
    FileLineColLoc,
    IntAttr,
    IntegerType,
    LocationAttr,
    ModuleOp,
    StringAttr,
    UnknownLoc,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue, TypeAttribute
from xdsl.parser import ForwardDeclaredValue, Parser, ParserState, UnresolvedOperand
from xdsl.utils.exceptions import MultipleSpansParseError, ParseError, VerifyException
from xdsl.utils.lexer import Input, Span, Token
from xdsl.utils.mlir_lexer import MLIRLexer, MLIRToken, MLIRTokenKind, StringLiteral

from lightnet.diagnostics import LightNetError, SourceLoc, alike, did_you_mean
from lightnet.ir.collector import collector_paused
from lightnet.ir.context import MAX_TOKENS, LnContext, sources_of
from lightnet.ir.locations import loc_of
from lightnet.ir.verify import error_of

#: Characters of one file: more takes minutes to parse.
MAX_TEXT = 16 << 20
#: Characters of a shape: xDSL lexes the rest of it again at each dimension.
MAX_SHAPE = 4096
#: Bits of an integer type: a number of such a type is checked against 2 to the power of them.
MAX_BITS = 1024
#: Ops of one file: half a gigabyte of Python objects.
MAX_OPS = 100_000
#: Characters of a message: names and types in it are the file's.
MAX_MESSAGE = 600
#: Regions inside regions; attributes are bounded by Python's recursion limit.
MAX_NESTING = 48
#: Elements of all `dense` constants of a file together: xDSL materialises splats.
MAX_DENSE = 1 << 22
#: Attributes that the aliases of one file stand for, expanded: aliases of aliases of aliases are few
#: characters.
MAX_ALIASED = 1 << 21


@collector_paused()
def parse_mlir(ctx: Context, text: str, file: str = "<mlir>", *, first_line: int = 1) -> ModuleOp:
    """Parse `text`, the contents of `file` from line number `first_line` on, into a module. It is not verified.

    Raises `LightNetError` at the place of the mistake.
    """
    module = LocatedParser(ctx, text, file, first_line).parse_file()
    if "#ln.dims" in text:  # or else nothing is open
        from lightnet.ir.instances import check_ranges

        check_ranges(module)
    return module


class _Lexer(MLIRLexer):
    """xDSL's lexer with a bound, and without backtracking: gigabytes of stack for a long comment, and a time that
    doubles with each character of a string that does not end. It takes texts that xDSL prints for texts, whatever
    characters they have."""

    _whitespace_regex = re.compile(r"(?:\s++|//[^\n]*+)*+", re.ASCII)
    _unescaped_characters_regex = re.compile(r'"(?:[^"\\\n\v\f]++|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*+"')

    def __init__(self, text: str, file: str, max_tokens: int):
        super().__init__(Input(text, file))
        self.left = self.limit = max_tokens

    def _lex_string_literal(self, start_pos: int) -> MLIRToken:
        """Lex a text. xDSL writes "é" as the bytes of its UTF-8, and reads that as no text, but bytes."""
        token = super()._lex_string_literal(start_pos)
        if token.kind is MLIRTokenKind.BYTES_LIT and _is_text(cast(StringLiteral, token.span).bytes_contents):
            return Token(MLIRTokenKind.STRING_LIT, token.span)
        return token

    def _form_token(self, kind: MLIRTokenKind, start_pos: int) -> MLIRToken:
        self.left -= 1
        span = Span(start_pos, self.pos, self.input)
        if self.left < 0:
            raise ParseError(span, f"the file has more than {self.limit} tokens (ln-opt takes --max-tokens)")
        return Token(kind, span)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


class LocatedParser(Parser):
    """xDSL's parser with locations, limits and our errors; `parse_file` is the entry."""

    def __init__(self, ctx: Context, text: str, file: str, first_line: int = 1):
        if len(text) > MAX_TEXT:
            text = f"the file has {len(text)} characters; the limit is {MAX_TEXT}"
            raise LightNetError(text, SourceLoc(file))
        sources_of(ctx).add(file, text, first_line)
        self._text, self._file, self._first_line = text, file, first_line
        self._line_starts = [0, *(m.end() for m in re.finditer("\n", text))]
        self._file_attr = StringAttr(file)
        self._op_starts: list[int] = []
        self._first_uses: dict[SSAValue, int] = {}  # of values that were not defined there
        self._columns: dict[int, IntAttr] = {}  # a file's ops stand in few columns
        self._op_count = self._depth = self._dense = 0
        super().__init__(ctx, "", file)
        self.attribute_aliases = self._aliases = _Aliases()
        try:
            limit = ctx.max_tokens if isinstance(ctx, LnContext) else MAX_TOKENS
            self._parser_state = ParserState(_Lexer(text, file, limit))
        except ParseError as e:
            raise self._converted(e) from e

    # -- locations

    def source_loc(self, pos: int) -> SourceLoc:
        """The place of the character at `pos`."""
        line = bisect_right(self._line_starts, pos) - 1
        return SourceLoc(self._file, line + self._first_line, pos - self._line_starts[line] + 1)

    def error_at(self, pos: int, message: str, **fields: Any) -> LightNetError:
        """An error at the character at `pos`, with its line."""
        pos = min(pos, len(self._text))
        line = bisect_right(self._line_starts, pos) - 1
        end = self._text.find("\n", pos)
        source = self._text[self._line_starts[line] : end if end >= 0 else len(self._text)]
        return LightNetError(message[:MAX_MESSAGE], self.source_loc(pos), source_line=source, **fields)

    def _parse_op_result_list(self) -> list[tuple[Span, int]]:
        results = super()._parse_op_result_list()
        self._op_starts.append(self._current_token.span.start)
        return results

    def parse_operation(self) -> Operation:
        self._op_count += 1
        if self._op_count > MAX_OPS:
            raise self.error_at(self.pos, f"the file has more than {MAX_OPS} ops")
        op = super().parse_operation()
        start = self._op_starts.pop()
        if isinstance(op.location, UnknownLoc):
            op.location = self._loc_attr(start)
        return op

    def _loc_attr(self, pos: int) -> LocationAttr:
        line = bisect_right(self._line_starts, pos) - 1
        col = pos - self._line_starts[line] + 1
        if (column := self._columns.get(col)) is None:
            column = self._columns[col] = IntAttr(col)
        return FileLineColLoc(self._file_attr, IntAttr(line + self._first_line), column)

    # -- names

    def _register_ssa_definition(self, name: str, values: Sequence[SSAValue], span: Span) -> None:
        """Define values. The hint of ``%x_1_5`` is ``x``: what ends with a number may be what a printer makes of the
        second ``x``, and xDSL takes off one."""
        super()._register_ssa_definition(name, values, span)
        for value in values:
            while (hint := value.name_hint) and _NUMBERED.search(hint):
                value.name_hint = hint

    def resolve_operand(self, operand: UnresolvedOperand, type: Any) -> Any:
        try:
            value = super().resolve_operand(operand, type)
        except ParseError:
            if made := self.ssa_values.get(operand.operand_name, ())[operand.index :]:
                raise self._mistyped(operand, type, made[0]) from None
            raise
        if isinstance(value, ForwardDeclaredValue):  # an op's operands may be resolved behind those in its regions
            start = operand.span.start
            self._first_uses[value] = min(self._first_uses.get(value, start), start)
        return value

    def _mistyped(self, operand: UnresolvedOperand, type: Attribute, value: SSAValue) -> LightNetError:
        """The error about an operand that is of another type where it is made: there, if that type is wrong."""
        name = operand.operand_name
        owner = value.owner if isinstance(value.owner, Operation) else None
        where = loc_of(owner) if owner is not None else None
        if owner is not None and where is not None and (error := error_of(owner, in_place=False)) is not None:
            return error.error.at(where)
        note = (where, f"%{name} is made here, of type {value.type}: one of the two is to be changed")
        text = f"%{name} is of type {value.type}, but is read as {type}"
        return self.error_at(operand.span.start, text, notes=[note] if where is not None else [])

    # -- limits

    def parse_optional_region(self, arguments: Any = None) -> Region | None:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise self.error_at(self.pos, f"regions are nested more than {MAX_NESTING} deep")
        region = super().parse_optional_region(arguments)
        self._depth -= 1
        return region

    def _parse_dense_literal_type(self) -> Any:
        start = self.pos
        type_ = super()._parse_dense_literal_type()
        self._dense += prod(type_.get_shape())
        if self._dense > MAX_DENSE:
            text = f"the dense constants of the file have more than {MAX_DENSE} elements"
            raise self.error_at(start, f"{text}; weights belong in a weight store")
        return type_

    def _parse_tensor_literal_element(self) -> Any:
        element = super()._parse_tensor_literal_element()
        if element.span.text.lower().startswith(("0x", "-0x")):
            return _HexElement(element.is_negative, element.value, element.span)
        return element

    def _parse_optional_shape_delimiter(self) -> str | None:
        span = self._current_token.span
        if span.end - span.start > MAX_SHAPE:
            raise self.error_at(span.start, f"a shape has more than {MAX_SHAPE} characters")
        return super()._parse_optional_shape_delimiter()

    def _parse_optional_integer_or_float_type(self) -> TypeAttribute | None:
        start = self._current_token.span.start
        found = super()._parse_optional_integer_or_float_type()
        if isinstance(found, IntegerType) and found.width.data > MAX_BITS:
            raise self.error_at(start, f"an integer type has more than {MAX_BITS} bits")
        return found

    def _parse_alias_def(self) -> None:
        before = self._aliases.spent
        super()._parse_alias_def()
        name = next(reversed(self._aliases))
        self._aliases.weights[name] = 1 + self._aliases.spent - before

    # -- errors

    def _parse_block(self) -> Block:
        """Parse a block. Of one that a branch named before, xDSL forgets where it is defined, and crashes at a second
        definition."""
        label = self._current_token.span
        block = super()._parse_block()
        self.blocks[label.text[1:]] = block, label
        return block

    def _get_op_by_name(self, name: str) -> type[Operation]:
        op_type = self.ctx.get_optional_op(name, dialect_stack=self._parser_state.dialect_stack)
        if op_type is None:
            raise self.error_at(self._op_starts[-1], self._unknown_op(name))
        return op_type

    def _unknown_op(self, name: str) -> str:
        name = name[:80]
        known = [op.name for op in self.ctx.loaded_ops]
        if "." in name and (dialect := name.split(".")[0]) not in self.ctx.registered_dialect_names:
            dialects = ", ".join(sorted(self.ctx.registered_dialect_names))
            return f"unknown dialect '{dialect}' of op '{name}'; there are: {dialects}"
        return f"unknown op '{name}'{did_you_mean([repr(c) for c in alike(name, known)])}"

    def parse_file(self) -> ModuleOp:
        """Parse the whole text. A text without ops is an empty module."""
        try:
            if self._current_token.kind is MLIRTokenKind.EOF:
                return ModuleOp([])
            module = self.parse_module()
            if isinstance(module.location, UnknownLoc):  # the module that a file without one stands for
                module.location = self._loc_attr(0)
            return module
        except Exception as e:
            raise self.as_error(e) from (e.__cause__ if isinstance(e, LightNetError) else e)

    def as_error(self, error: Exception) -> LightNetError:
        """The error that a user sees for an exception that parsing raised."""
        if isinstance(error, LightNetError):
            return self._located(error)
        if isinstance(error, ParseError):
            return next(iter(self.undefined_values()), None) or self._converted(error)
        if isinstance(error, RecursionError):
            return self.error_at(self.pos, "the text is nested too deeply")
        if isinstance(error, VerifyException):
            return self._located(LightNetError(str(error)))
        # What xDSL's own attribute parsers let through: bad numbers (ValueError, OverflowError), asserts.
        text = f"cannot be parsed: {type(error).__name__}: {_first_line(str(error))}"
        return self._located(LightNetError(text))

    def _located(self, error: LightNetError) -> LightNetError:
        """An error without a place stands at the op that is being parsed."""
        if error.loc is not None:
            return error
        at = self.error_at(self._op_starts[-1] if self._op_starts else self.pos, "")
        return error.at(at.loc, at.source_line)

    def _converted(self, error: ParseError) -> LightNetError:
        message = _MESSAGES.get(error.msg, error.msg)
        if error.span.start >= len(self._text):
            message = f"unexpected end of the file: {message}"
        notes = []
        if isinstance(error, MultipleSpansParseError):
            if error.msg.startswith("region ends with missing block"):
                span = error.refs[0][0]
                return self.error_at(span.start, f"block '{span.text}' is used but never defined")
            notes = [(self.source_loc(span.start), text or error.ref_text or "") for span, text in error.refs]
        return self.error_at(error.span.start, _first_line(message), notes=notes)

    def undefined_values(self) -> list[LightNetError]:
        """The errors for values that are used and never defined, each at its first use.

        xDSL notices at the end of the file only, so an earlier syntax error leaves forward references pending that are
        no mistakes.
        """
        if self._current_token.kind is not MLIRTokenKind.EOF or self._depth:
            return []
        uses = [
            (min(self._first_uses[value] for value in by_index.values()), name)
            for name, by_index in self.forward_ssa_references.items()
        ]
        return [self.error_at(pos, f"value '%{name}' is used but never defined") for pos, name in sorted(uses)]


class _HexElement(Parser._TensorLiteralElement):
    """An element of a `dense` constant in hexadecimal: of floats these are the bits, as in MLIR and as xDSL prints
    infinities, NaNs and large numbers. xDSL reads them as an integer."""

    def to_type(self, parser: Any, type: Any) -> Any:
        if not isinstance(type, AnyFloat):
            return super().to_type(parser, type)
        bits = self.to_int(parser, allow_negative=False)
        if bits.bit_length() > 8 * type.compile_time_size:
            parser.raise_error(f"{self.span.text:.40} has more bits than {type}", at_position=self.span)
        return next(iter(type.iter_unpack(bits.to_bytes(type.compile_time_size, "little"))))


class _Aliases(dict[str, Attribute]):
    """The aliases of a file, with what they cost.

    Attributes share their parts, but whatever walks or prints them does not: so each use counts as much as the alias
    stands for.
    """

    def __init__(self) -> None:
        super().__init__()
        self.weights: dict[str, int] = {}
        self.spent = 0

    def __getitem__(self, name: str) -> Attribute:
        self.spent += self.weights.get(name, 1)
        if self.spent > MAX_ALIASED:
            raise LightNetError(f"aliases expand to more than {MAX_ALIASED} attributes")
        return super().__getitem__(name)


_NUMBERED = re.compile(r"_\d+$")
#: xDSL's texts that say nothing to a user.
_MESSAGES = {
    "Could not parse entire input!": "expected an op",
    " in block definition": "expected an op, a block label or '}'",
    "Expected suffix identifier after {first_char}": "expected a name behind this sign",
}


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0][:MAX_MESSAGE]
