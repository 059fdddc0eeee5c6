"""The docstring of a described op: what its description says of it, and an example that verifies. Imports `ir.op`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightnet.diagnostics import LightNetError
from lightnet.ir import examples
from lightnet.ir.op import LnOp

if TYPE_CHECKING:
    from lightnet_descriptions.described import DescribedOp


def docstring(cls: type[DescribedOp]) -> str:
    """The docstring that `--list-ops`, the reference pages and editors show."""
    d = cls.described
    text = d.doc.strip() or f"The op {cls.optype} of {d.file}."
    parts = [text, f"Described by {d.author} in {d.file}."]
    if cls.stands_for is not None:
        parts.append(f"Its description has no code of its own: it computes as {cls.stands_for.optype}.")
    from lightnet.ir.target import is_here

    if is_here(cls.arch):
        parts += [f"It runs on the target {cls.arch} only."] if cls.arch != "none" else []
    else:
        parts.append(f"It is an op of '{cls.arch}', which is not here: the interpreter computes it by its definition.")
    shown = page_example(cls)
    return "\n\n".join([*parts, f"```mlir\n{shown}\n```"] if shown else parts)


def page_example(cls: type[LnOp]) -> str | None:
    """The op's first test case in the text form; None where it has no test case."""
    try:
        cases = cls.samples()
        return examples.example(cls, cases[0]) if cases else None
    except LightNetError:
        return None
