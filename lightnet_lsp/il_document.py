"""A document of LightNet IL: diagnostics by the reader and the importer, the rest from the index.

`${eval}` is arithmetic that we evaluate, never Perl. Imports `frontends`, the index and the ops' documentation.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from itertools import pairwise

from xdsl.dialects.builtin import ModuleOp

from lightnet.diagnostics import LightNetError, LimitError, SourceLoc
from lightnet.frontends.il import reader as il
from lightnet.frontends.importer import to_module
from lightnet.frontends.netlist import Netlist
from lightnet.ir.names import name_of, tensor_names
from lightnet.ir.op import LnOp
from lightnet_lsp import op_docs
from lightnet_lsp.documents import Document
from lightnet_lsp.il_index import IlIndex, Word
from lightnet_lsp.text import Completion, Finding, Hover, Place, Span, Symbol

_DIRECTIVES = (
    "define",
    "undef",
    "include",
    "if",
    "ifdef",
    "ifndef",
    "elif",
    "elifdef",
    "elifndef",
    "else",
    "endif",
    "error",
    "warning",
    "line",
    "pragma",
)
_TYPED = re.compile(r"[A-Za-z_]?\w*$")


class IlDocument(Document):
    """`include_dirs` are searched by `#include` after the document's own folder."""

    def __init__(self, text: str, path: str, include_dirs: tuple[str, ...]):
        super().__init__(text, path)
        self.include_dirs = include_dirs
        self.warnings: list[tuple[SourceLoc, str]] = []
        self.net: Netlist | None = None

    @cached_property
    def index(self) -> IlIndex:
        return IlIndex(self.text.text, self.path, self.include_dirs)

    def analyse(self, is_cancelled: Callable[[], bool] = lambda: False) -> list[Finding]:
        found = super().analyse(is_cancelled)
        warnings = [(loc, text) for loc, text in self.warnings if loc.file == self.path]
        return found + [Finding(self.text.span_at(loc), text, "warning") for loc, text in warnings]

    def errors(self, is_cancelled: Callable[[], bool]) -> list[LightNetError]:
        """Those of the preprocessor; where no directive failed, also those of every statement."""
        self.warnings = []
        malformed: list[LightNetError] = []
        found: list[LightNetError] = []
        try:
            self.net = il.read(
                self.text.text,
                self.path,
                include_dirs=self.include_dirs,
                on_warning=lambda loc, text: self.warnings.append((loc, text)),
                on_error=malformed.append,
                physical=True,
            )
            self.types = _types(to_module(self.net, found.append))
        except LimitError as e:
            found += [e] if e.loc is not None else []  # without a place: that there are too many errors
        except LightNetError as e:
            found.append(e)
        if malformed:  # which may have made whatever is missing
            found = [e for e in found if e.label != "tensor-undefined"]
        return malformed + found

    @cached_property
    def types(self) -> dict[str, str]:
        """Tensor -> its type and the op that makes it."""
        self.errors(lambda: False)
        return self.__dict__.get("types", {})

    # -- hover

    def hover(self, offset: int) -> Hover | None:
        word = self.index.word_at(offset) or self.index.directive_word_at(offset)
        if word is None:
            return None
        if (macro := self.index.macros.get(word.text)) is not None:
            return Hover(
                word.span, f"```c\n{macro.text[:2000]}\n```\n\nmacro, defined at {macro.loc.line}:{macro.loc.col}"
            )
        statement = self.index.statement_at(offset)
        op = op_docs.ln_op(statement.op.text if statement is not None else word.text)
        if statement is None or word is statement.op:
            return Hover(word.span, op_docs.op_markdown(op, il=True)) if op is not None else None
        is_name = any(a.name is word for a in statement.arguments)
        text = _argument_text(op, word.text) if is_name and op is not None else self.tensor_text(word.text)
        return Hover(word.span, text) if text else None

    def tensor_text(self, name: str) -> str:
        """The type of a tensor and the op that makes it; "" for any other name."""
        return f"tensor `{name}` : {self.types[name]}" if name in self.types else ""

    # -- completion

    def complete(self, offset: int) -> list[Completion]:
        line, column = self.text.position(offset)
        before = self.text.line(line)[:column]
        typed = _TYPED.search(before)
        span = Span(offset - len(typed[0]) if typed else offset, offset)
        if re.match(r"\s*#\s*\w*$", before):
            return [Completion(d, span, "Keyword") for d in _DIRECTIVES]
        if before.lstrip().startswith("#") or self.index.is_comment(offset):
            return []
        words = self.index.before(span.start)
        if not words:
            return self.complete_ops(span)
        op = op_docs.ln_op(words[0].text)
        if op is None or len(words) < 2 or words[1].text != "(":
            return []
        section = sum(w.text == "|" for w in words)
        last = words[-1].text
        if last in ("(", "|") or (last == "," and not _in_array(words)):
            return _argument_names(op, section, words, span)
        name = _argument_of(words)
        return self.complete_value(op, section, name, span) if name is not None else []

    def complete_ops(self, span: Span) -> list[Completion]:
        ops = [op for name, op in op_docs.all_ops().items() if name.startswith("ln.") and issubclass(op, LnOp)]
        found = [Completion(op.optype, span, "Function", op_docs.first_sentence(op), f"il {op.optype}") for op in ops]
        return found + [Completion(m.name, span, "Constant", "macro") for m in self.index.macros.values()]

    def complete_value(self, op: type[LnOp], section: int, name: str, span: Span) -> list[Completion]:
        """The completions that may stand behind ``name=``: tensors that are there already, or the choices of a
        parameter.
        """
        if section == 0:
            tensors = [w for w in self.index.tensors.values() if w.span.start < span.start]
            return [Completion(w.text, span, "Variable") for w in tensors]
        param = op.schema.by_name.get(name)
        if section != 2 or param is None:
            return []
        choices = ("true", "false") if param.kind.startswith("bool") else param.choices
        return [Completion(c, span, "EnumMember") for c in choices]

    # -- names

    def definition(self, offset: int) -> Place | None:
        for include in self.index.includes:
            if offset in include.span:
                return Place(other=SourceLoc(include.path, 1, 1)) if include.path is not None else None
        word = self.index.word_at(offset) or self.index.directive_word_at(offset)
        if word is None:
            return None
        if (macro := self.index.macros.get(word.text)) is not None:
            here = macro.loc.file == self.path
            return Place(self.text.span_at(macro.loc)) if here else Place(other=macro.loc)
        if (tensor := self.index.tensors.get(word.text)) is not None:
            return Place(tensor.span)
        return self.made_by_macro(word.text)

    def made_by_macro(self, tensor: str) -> Place | None:
        """The call of the macro that makes a tensor."""
        op = next((o for o in self.net.ops if any(t.name == tensor for t in o.tensors_out)), None) if self.net else None
        return Place(self.text.span_at(op.loc)) if op is not None and op.loc.file == self.path else None

    def references(self, offset: int) -> list[Place]:
        if (word := self.index.word_at(offset)) is None:
            return []
        if word.text in self.index.macros or any(s.op is word for s in self.index.statements):
            return [Place(w.span) for w in self.index.words if w.text == word.text]
        return [Place(span) for span in self.index.occurrences(word.text)]

    def symbols(self) -> list[Symbol]:
        macros = [m for m in self.index.macros.values() if m.loc.file == self.path]
        found = [Symbol(m.name, "macro", "Constant", *[self.text.span_at(m.loc)] * 2) for m in macros]
        for s in self.index.statements:
            name = ", ".join(w.text for w in s.tensors(1)) or s.op.text
            found.append(Symbol(name, s.op.text, "Variable", s.span, s.op.span))
        return found


def _types(module: ModuleOp) -> dict[str, str]:
    return {
        tensor: f"`{value.type}`, made by `{name_of(op) or op.name}`"
        for op in module.walk()
        for tensor, value in zip(tensor_names(op), op.results)
        if tensor is not None
    }


def _argument_text(op: type[LnOp], name: str) -> str:
    """The description of an argument of an op."""
    if (param := op.schema.by_name.get(name)) is not None:
        return op_docs.param_markdown(op, param)
    plain = name.rstrip("0123456789")
    operand = next((o for o in op.schema.operands if o.name == name or (o.variadic and o.name == plain)), None)
    return f"operand `{name}` of `{op.optype}`: {op_docs.operand_text(operand)}" if operand is not None else ""


def _argument_names(op: type[LnOp], section: int, words: list[Word], span: Span) -> list[Completion]:
    """The arguments of a section that are not given yet; of a variadic one the next."""
    given = [w.text for w, after in pairwise(words) if after.text == "="]
    if section == 2:
        params = [p for p in op.schema.params if p.name not in given]
        return [Completion(f"{p.name}=", span, "Property", op_docs.param_text(p).replace("`", "")) for p in params]
    fields = (op.schema.operands, op.schema.results)[section] if section < 2 else ()
    names = []
    for f in fields:
        count = sum(g.rstrip("0123456789") == f.name for g in given) + 1
        names += [f"{f.name}{count}"] if f.variadic else [f.name] if f.name not in given else []
    return [Completion(f"{name}=", span, "Property") for name in names]


def _in_array(words: list[Word]) -> bool:
    return sum((w.text == "[") - (w.text == "]") for w in words) > 0


def _argument_of(words: list[Word]) -> str | None:
    """The argument whose value comes next; inside of an array, that of the array."""
    at = max((i for i, w in enumerate(words) if w.text == "="), default=0)
    expects = words[-1].text == "=" or (_in_array(words) and words[-1].text in ("[", ","))
    return words[at - 1].text if at and expects else None
