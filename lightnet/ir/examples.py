"""A test case of an op as the text that its documentation shows. Imports `ir.op`."""

from __future__ import annotations

from xdsl.ir import Block

from lightnet.ir.op import LnOp, name_hint
from lightnet.ir.printer import TextForm
from lightnet.ir.schema import Case
from lightnet.ir.types import TensorSpec, tensor_type


def example(cls: type[LnOp], case: Case) -> str:
    """A test case in the text form, with the types of its operands above it. Raises `LightNetError` if it breaks a
    constraint."""
    op, block = operation(cls, case)
    text = TextForm().text(op)
    arguments = ", ".join(f"%{a.name_hint} : {a.type}" for a in block.args)
    return f"// {arguments}\n{text}" if arguments else text


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
