"""Arguments of `@main`: what MLIR people write where LightNet has `ln.input`. Imports `ir` and the sources."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block

from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.source import Input
from lightnet.ir.locations import loc_of, source_loc
from lightnet.ir.module import main_of
from lightnet.ir.names import FreshNames, set_tensor_names, tensor_names
from lightnet.ir.types import ParamAttr, spec_of


def without_arguments(module: ModuleOp) -> ModuleOp:
    """`module`, or a copy of it in which the arguments of `@main` are inputs, if it has any."""
    if main_of(module).body.block.args:
        module = module.clone()
        bind_arguments(main_of(module).body.block)
    return module


def bind_arguments(block: Block) -> None:
    """Make the arguments of `@main`, whose body is `block`, inputs under their names, which every call feeds. Raises
    `LightNetError` for one that is no tensor."""
    main = block.parent_op()
    first = block.first_op
    if not isinstance(main, FuncOp) or first is None:
        return
    names = FreshNames(n for op in block.ops for n in tensor_names(op) if n)
    for i, argument in enumerate(list(block.args)):
        who = f"argument {i} of @{main.sym_name.data}"
        try:
            spec_of(argument.type)
        except TypeError as e:
            raise LightNetError(f"{who}: {e}", source_loc(argument.location) or loc_of(main)) from None
        name = names.fresh(argument.name_hint or f"arg{i}")
        properties = {p.name: ParamAttr(p.default) for p in Input.schema.params if p.default is not ...}
        new = Input.create(
            result_types=[argument.type], properties=properties | {"required": ParamAttr(True)}, location=main.location
        )
        set_tensor_names(new, [name])
        block.insert_op_before(new, first)
        argument.replace_all_uses_with(new.results[0])
    for argument in reversed(block.args):
        block.erase_arg(argument)
    main.update_function_type()
