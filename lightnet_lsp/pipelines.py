"""Pass pipelines in comments: ``// RUN: ln-opt --pass=expand,combine{max-ops=8}``. Completion and hover of what stands
there.

Imports `text`, `op_docs` and the registries.
"""

from __future__ import annotations

import re

from lightnet.ir.registry import TARGETS
from lightnet_lsp import op_docs
from lightnet_lsp.text import Completion, Hover, Span

#: Options of `ln-opt` whose value is a pipeline or a list of passes, or a target.
_OPTION = re.compile(
    r"(?P<passes>--pass(?:es)?[= ]|(?<![\w-])-p |--print-ir-(?:before|after)=)|(?P<target>--target[= ]|(?<![\w-])-t )"
)
_VALUE = re.compile(r"'[^']*'?|\"[^\"]*\"?|\S*")
MAX_LINE = 10_000
_WORD = re.compile(r"[\w-]+")


def _value_at(line: str, column: int) -> tuple[str, int, str] | None:
    """The kind of the option whose value the cursor is in (`passes` or `target`), where that value begins, and it."""
    if "//" not in line[:column] or len(line) > MAX_LINE:
        return None
    for m in _OPTION.finditer(line):
        value = _VALUE.match(line, m.end())
        if value is not None and m.end() <= column <= value.end():
            return str(m.lastgroup), m.end(), value[0]
    return None


def _pass_around(value: str, column: int) -> str | None:
    """The pass in whose braces the cursor is; None outside of braces."""
    before = value[:column]
    if before.rfind("{") <= before.rfind("}"):
        return None
    found = re.search(r"([\w-]+)\{[^{}]*$", before)
    return found[1] if found else None


def complete(line: str, column: int, start: int) -> list[Completion] | None:
    """Proposals in a line that begins at offset `start`; None where no pipeline stands."""
    if (found := _value_at(line, column)) is None:
        return None
    kind, at, value = found
    typed = re.search(r"[\w-]*$", line[at:column])
    span = Span(start + column - len(typed[0]) if typed else start + column, start + column)
    if kind == "target":
        return [Completion(name, span, "Value") for name in TARGETS]
    if (name := _pass_around(value, column - at)) is None:
        classes = ((n, op_docs.pass_class(n)) for n in op_docs.pass_names())
        return [
            Completion(n, span, "Function", op_docs.first_sentence(c) if c else "", f"pass {n}") for n, c in classes
        ]
    if (cls := op_docs.pass_class(name)) is None:
        return []
    inside = value[: column - at].rpartition("{")[2]
    given = set(re.findall(r"([\w-]+)=", inside))
    if re.search(r"=[\w-]*$", inside):
        return [Completion(word, span, "Value") for word in ("true", "false")] if _is_flag(cls, inside) else []
    options = op_docs.pass_options(cls)
    return [Completion(f"{o}=", span, "Property", text) for o, text in options.items() if o not in given]


def _is_flag(cls: type, inside: str) -> bool:
    option = re.search(r"([\w-]+)=[\w-]*$", inside)
    return option is not None and op_docs.pass_options(cls).get(option[1], "").startswith("bool")


def hover(line: str, column: int, start: int) -> Hover | None:
    """The pass or option under the cursor."""
    if (found := _value_at(line, column)) is None or found[0] != "passes":
        return None
    _, at, value = found
    word = next((m for m in _WORD.finditer(line, at) if m.start() <= column <= m.end()), None)
    if word is None or word.start() > at + len(value):
        return None
    span = Span(start + word.start(), start + word.end())
    if (name := _pass_around(value, word.start() - at)) is not None:
        cls = op_docs.pass_class(name)
        text = op_docs.pass_options(cls).get(word[0]) if cls is not None else None
        return Hover(span, f"option `{word[0]}` of pass `{name}`: {text}") if text else None
    text = op_docs.pass_markdown(word[0])
    return Hover(span, text) if text else None
