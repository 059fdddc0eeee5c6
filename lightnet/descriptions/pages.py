"""The docstring of a described op: what its description says of it, and an example that verifies. Imports `ir.op`."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

from xdsl.ir import Block
from xdsl.printer import Printer

from lightnet.diagnostics import LightNetError
from lightnet.ir.op import LnOp, name_hint
from lightnet.ir.schema import Case
from lightnet.ir.types import TensorSpec, tensor_type

if TYPE_CHECKING:
    from lightnet.descriptions.described import DescribedOp


def docstring(cls: type[DescribedOp]) -> str:
    """What `--list-ops`, the reference pages and editors show."""
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
    shown = example(cls)
    return "\n\n".join([*parts, f"```mlir\n{shown}\n```"] if shown else parts)


def example(cls: type[LnOp]) -> str | None:
    """The op's first test case in the text form, with the types of its operands above it; None where it has no test case."""
    try:
        cases = cls.samples()
        return None if not cases else _text(*operation(cls, cases[0]))
    except LightNetError:
        return None


def operation(cls: type[LnOp], case: Case) -> tuple[LnOp, Block]:
    """A test case as an op on the arguments of a block. Raises `LightNetError` if it breaks a constraint."""
    case = cls.schema.resolve(case)
    specs: list[TensorSpec] = []
    for operand in cls.schema.operands:
        value = case.tensors[operand.name]
        specs += (value,) if isinstance(value, TensorSpec) else value
    block = Block(arg_types=[tensor_type(s) for s in specs])
    names = cls.schema.operand_names(len(specs))
    for argument, name in zip(block.args, names):
        argument.name_hint = name_hint(name)
    op = cls.make(list(block.args), case.params)
    for result, name in zip(op.results, op.arg_names()[1]):
        result.name_hint = name_hint(name)
    block.add_op(op)
    return op, block


def _text(op: LnOp, block: Block) -> str:
    arguments = ", ".join(f"%{a.name_hint} : {a.type}" for a in block.args)
    out = StringIO()
    Printer(stream=out).print_op(op)
    return f"// {arguments}\n{out.getvalue()}" if arguments else out.getvalue()
