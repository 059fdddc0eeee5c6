"""A document of MLIR text, of any level: what an editor may ask about it. Imports the index, the parser and the ops'
documentation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cached_property

from xdsl.ir import Operation, SSAValue

from lightnet.diagnostics import LightNetError
from lightnet.ir.module import op_label
from lightnet.ir.names import tensor_name
from lightnet.ir.op import LnOp
from lightnet.ir.schema import Param
from lightnet.ir.types import spec_of
from lightnet_lsp import op_docs, pipelines
from lightnet_lsp.documents import Document
from lightnet_lsp.mlir_index import SPLIT, Definition, Index, Scope, Statement
from lightnet_lsp.mlir_parser import Parsed, parse
from lightnet_lsp.text import Completion, Hover, Place, Span, Symbol

_NAME = re.compile(r"[A-Za-z_][\w$.]*")
_STRING_VALUE = re.compile(r'([\w.]+)\s*=\s*(?:\[[^\]"]*(?:"[^"]*"\s*,\s*)*)?"([^"]*)$')
_OP_PREFIX = re.compile(r'^\s*(?:%[\w$.:, %-]+=\s*)?"?([A-Za-z_][\w$.]*)?$')
_SSA_NAME = re.compile(r"%?([0-9]+|[A-Za-z$._-][\w$.-]*)")
MAX_SYMBOLS = 10_000
#: Characters before the cursor that completion looks at.
MAX_LINE = 2000


class MlirDocument(Document):
    @cached_property
    def index(self) -> Index:
        return Index(self.text.text)

    @cached_property
    def parsed(self) -> Parsed:
        """The parse, for who needs it before `analyse` has run."""
        return parse(self.text.text, self.path)

    def errors(self, is_cancelled: Callable[[], bool]) -> list[LightNetError]:
        text = self.text.text
        self.parsed = parse(text, self.path, is_cancelled)
        if "pdl.pattern" in text and not self.parsed.errors and not SPLIT.search(text):
            return _pattern_errors(text, self.path)
        return self.parsed.errors

    def line_at(self, offset: int) -> tuple[str, int, int]:
        """The line around an offset, the offset's column, and where the line begins."""
        line, column = self.text.position(offset)
        return self.text.line(line), column, self.text.starts[line]

    # -- hover

    def hover(self, offset: int) -> Hover | None:
        if (found := pipelines.hover(*self.line_at(offset))) is not None:
            return found
        if (value := self.index.value_at(offset)) is not None:
            return Hover(value[1], self.describe(value[0]))
        if (symbol := self.index.symbol_at(offset)) is not None:
            return self.hover_symbol(symbol)
        statement = self.index.statement_at(offset)
        if statement is None:
            return None
        if offset in statement.name:
            op = op_docs.all_ops().get(statement.op)
            return Hover(statement.name, op_docs.op_markdown(op)) if op is not None else None
        return self.hover_param(statement, offset)

    def hover_symbol(self, symbol: tuple[str, Span, int]) -> Hover | None:
        name, span, part = symbol
        statement = self.index.defined.get((name, part))
        if statement is None:
            return None
        header = self.text.text[statement.start : statement.end].split("\n", 1)[0][:300].rstrip(" {")
        return Hover(span, f"```mlir\n{header}\n```")

    def hover_param(self, statement: Statement, offset: int) -> Hover | None:
        word = next((m for m in _NAME.finditer(*self.line_span(offset)) if m.start() <= offset <= m.end()), None)
        op = op_docs.ln_op(statement.op) if statement.op.startswith("ln.") else None
        if word is None or op is None or (param := op.schema.by_name.get(word[0])) is None:
            return None
        return Hover(Span(*word.span()), op_docs.param_markdown(op, param))

    def line_span(self, offset: int) -> tuple[str, int, int]:
        line, _, start = self.line_at(offset)
        return self.text.text, start, start + len(line)

    def describe(self, definition: Definition) -> str:
        """A value: its type, its tensor, and the op that makes it."""
        values = self.values_of(definition)
        types = ", ".join(str(v.type) for v in values)
        lines = [f"```mlir\n{definition.name}{f' : {types}' if types else ''}\n```"]
        what = "argument" if definition.is_argument else "result"
        op = self.op_of(definition)
        label = f" `{op_label(op)}`" if op is not None and op_label(op) != op.name else ""
        lines.append(f"{what} {definition.index} of `{definition.statement.op}`{label}")
        if len(values) == 1:
            if (tensor := tensor_name(values[0])) is not None:
                lines.append(f"tensor `{tensor}`")
            if size := _size_text(values[0]):
                lines.append(size)
        uses = len(definition.uses)
        return "\n\n".join([*lines, f"{uses} use{'s' if uses != 1 else ''}"])

    def op_of(self, definition: Definition) -> Operation | None:
        return self.parsed.ops.get(definition.statement.name.start)

    def values_of(self, definition: Definition) -> list[SSAValue]:
        """The values behind a name in the text: several for ``%x:2``, none where the text did not parse."""
        op = self.op_of(definition)
        if op is None:
            return []
        values: list[SSAValue] = list(op.results)
        if definition.is_argument:
            values = [arg for region in op.regions for block in region.blocks for arg in block.args]
        elif len(values) != len(definition.statement.results):
            return values  # a group of results: all of them
        return values[definition.index : definition.index + 1]

    # -- completion

    def complete(self, offset: int) -> list[Completion]:
        line, column, start = self.line_at(offset)
        before = line[max(0, column - MAX_LINE) : column]
        if (found := pipelines.complete(line, column, start)) is not None:
            return found
        if _in_comment(before):
            return []
        if before.count('"') % 2:
            return self.complete_string(before, offset)
        if sigil := re.search(r"[%@][\w$.-]*$", before):
            span = Span(offset - len(sigil[0]), offset)
            return self.complete_values(span) if sigil[0][0] == "%" else self.complete_symbols(span)
        word = re.search(r"[A-Za-z_]?[\w$.]*$", before)
        span = Span(offset - len(word[0]) if word else offset, offset)
        if (owner := self.dictionary_at(offset)) is not None:
            return self.complete_params(*owner, span)
        return _ops(span) if _OP_PREFIX.match(before) else []

    def dictionary_at(self, offset: int) -> tuple[type[LnOp], Scope] | None:
        """The `ln` op in whose braces the cursor is, where it has parameters and no region."""
        scope = self.index.scope_at(offset)
        if scope is None or scope.statement is None or not scope.statement.op.startswith("ln."):
            return None
        op = op_docs.ln_op(scope.statement.op)
        return (op, scope) if op is not None else None

    def complete_string(self, before: str, offset: int) -> list[Completion]:
        """The choices of the parameter whose string is being typed."""
        owner, value = self.dictionary_at(offset), _STRING_VALUE.search(before)
        if owner is None or value is None or (param := owner[0].schema.by_name.get(value[1])) is None:
            return []
        return [Completion(c, Span(offset - len(value[2]), offset), "EnumMember") for c in param.choices]

    def complete_params(self, op: type[LnOp], scope: Scope, span: Span) -> list[Completion]:
        """The parameters of an op that are not given yet, or, behind ``=``, values of the one being given."""
        text = self.text.text
        value = re.search(r"([\w.]+)\s*=\s*\[?\s*$", text[scope.start : span.start])
        if value is not None:
            param = op.schema.by_name.get(value[1])
            return _values(param, span) if param is not None else []
        given = set(re.findall(r"([\w.]+)\s*=", text[scope.start : scope.end]))
        wanted = [p for p in op.schema.params if p.in_type is None and p.name not in given]
        return [
            Completion(f"{p.name} = ", span, "Property", op_docs.param_text(p).replace("`", ""))
            for p in sorted(wanted, key=lambda p: p.default is not ...)
        ]

    def complete_values(self, span: Span) -> list[Completion]:
        found = []
        for d in self.index.visible(span.start + 1):
            names = self.index.tensor_names(d.statement) if not d.is_argument else []
            tensor = f" {names[d.index]}" if d.index < len(names) else ""
            found.append(Completion(d.name, span, "Variable", f"{d.statement.op}{tensor}"))
        return found

    def complete_symbols(self, span: Span) -> list[Completion]:
        part = sum(start <= span.start for start in self.index.part_starts) - 1
        return [Completion(n, span, "Function", s.op) for (n, p), s in self.index.defined.items() if p == part]

    # -- names

    def definition(self, offset: int) -> Place | None:
        if (value := self.index.value_at(offset)) is not None:
            return Place(value[0].span)
        if (symbol := self.index.symbol_at(offset)) is not None:
            statement = self.index.defined.get((symbol[0], symbol[2]))
            return Place(statement.symbol) if statement is not None and statement.symbol is not None else None
        return None

    def references(self, offset: int) -> list[Place]:
        if (value := self.index.value_at(offset)) is not None:
            return [Place(span) for span in (value[0].span, *value[0].uses)]
        if (symbol := self.index.symbol_at(offset)) is not None:
            return [Place(span) for name, span, part in self.index.symbols if (name, part) == (symbol[0], symbol[2])]
        return []

    def rename(self, offset: int, name: str) -> list[Place] | None:
        if (value := self.index.value_at(offset)) is None:
            return None
        if (found := _SSA_NAME.fullmatch(name)) is None:
            raise LightNetError(f"'{name}' is no name of a value: write letters, digits and _ $ . -")
        if self.clashes(value[0], f"%{found[1]}"):
            raise LightNetError(f"%{found[1]} is used already where {value[0].name} is")
        return [Place(span) for span in (value[0].span, *value[0].uses)]

    def clashes(self, definition: Definition, name: str) -> bool:
        """Return whether `name` means something where the value is defined or used, or in a region inside."""
        own = definition.statement.scope
        scopes = [s for s in self.index.scopes if own in s.outward() or s in own.outward()]
        return any(name in s.definitions or any(n == name for n, _ in s.uses) for s in scopes)

    def symbols(self) -> list[Symbol]:
        top = [s for s in self.index.statements[:MAX_SYMBOLS] if s.scope.statement is None]
        return [symbol for s in top for symbol in self.symbol_of(s)]

    def symbol_of(self, statement: Statement) -> Iterable[Symbol]:
        """The outline of an op: the ops that define something, by the tensors' names."""
        children = [symbol for inner in statement.inner for symbol in self.symbol_of(inner)]
        name = ", ".join(self.index.tensor_names(statement) or [d.name for d in statement.results])
        kind, selection = "Variable", statement.name
        if statement.symbol is not None:
            kind, selection = "Function", statement.symbol
            name = self.text.text[selection.start : selection.end]
        elif children:
            name, kind = name or statement.op, "Module"
        if name:
            yield Symbol(name, statement.op, kind, Span(statement.start, statement.end), selection, children)


def _pattern_errors(text: str, path: str) -> list[LightNetError]:
    """The errors of patterns in PDL that verify."""
    from lightnet_descriptions import pdl

    try:
        pdl.load_pdl(text, path)
    except LightNetError as e:
        return [e]
    return []


def _in_comment(before: str) -> bool:
    return "//" in re.sub(r'"(?:[^"\\]|\\.)*"', "", before)


def _ops(span: Span) -> list[Completion]:
    ops = op_docs.all_ops().items()
    return [Completion(name, span, "Function", op_docs.first_sentence(op), f"op {name}") for name, op in ops]


def _values(param: Param, span: Span) -> list[Completion]:
    words = [f'"{c}"' for c in param.choices]
    words += ["true", "false"] if param.kind.startswith("bool") else []
    return [Completion(word, span, "EnumMember") for word in words]


def _size_text(value: SSAValue) -> str:
    """Elements and bytes of a tensor."""
    try:
        spec = spec_of(value.type)
    except TypeError:
        return ""
    return f"{spec.len:,} elements, {spec.nbytes:,} bytes"
