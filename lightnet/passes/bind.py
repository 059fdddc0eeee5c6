"""`bind`: which tensors a caller feeds, and which are constant from call to call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.arguments import bind_arguments
from lightnet.dialects.ln.source import Create, Input, ParamOp, Source
from lightnet.ir import budget
from lightnet.ir.kernel import KernelOp
from lightnet.ir.locations import loc_of
from lightnet.ir.op import LnOp, tensor_names
from lightnet.ir.passes import LnPass
from lightnet.ir.types import ParamAttr
from lightnet.passes.graph import graphs


@dataclass(frozen=True)
class BindPass(LnPass):
    """Make each `create` an `input` or a `param`, by the role of its uses.

    ```mlir
    %x = ln.create : tensor<1x1x4x4xf32>                ->  %x = ln.input : tensor<1x1x4x4xf32>
    %w = ln.create : tensor<2x1x3x3xf32>                ->  %w = ln.param : tensor<2x1x3x3xf32>
    %y = ln.conv2d %x, %w, %b {size = [3, 3]} : ...         %y = ln.conv2d %x, %w, %b {size = [3, 3]} : ...
    ```

    A tensor with a use as data is an input, its contents the default; any other is a param. A `print` decides nothing
    where there is another use, so that a look at a weight does not make it an input. Options `inputs` and `params` name
    tensors that are what they say, whatever their uses. An argument of `@main` is an input under the argument's name,
    which every call feeds.
    """

    name = "bind"
    level = "graph"
    inputs: tuple[str, ...] = ()
    params: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if both := sorted(set(self.inputs) & set(self.params)):
            raise LightNetError(f"bind: '{both[0]}' is named both as an input and as a param")
        unseen = {*self.inputs, *self.params}
        for block in graphs(op):
            if block.args:
                bind_arguments(block)
            for source in budget.within(list(block.ops)):
                if not isinstance(source, Source):
                    continue
                name = tensor_names(source)[0]
                unseen.discard(name or "")
                cls = self.class_of(source, name)
                if source.name != cls.name:  # a constant is a param, too
                    self.rebind(source, cls)
            for reader in budget.within(block.ops):
                if isinstance(reader, LnOp) and type(reader).check_roles is not LnOp.check_roles:
                    try:
                        reader.check_roles()
                    except LightNetError as e:
                        raise e.at(loc_of(reader)) from None
        if unseen:
            raise LightNetError(f"bind: no input or param is named '{min(unseen)}'")

    def class_of(self, source: LnOp, name: str | None) -> type[LnOp]:
        if name in self.inputs:
            return Input
        if name in self.params:
            return ParamOp
        if not isinstance(source, Create):
            return type(source)
        return Input if is_data(source.results[0]) else ParamOp

    @staticmethod
    def rebind(source: LnOp, cls: type[LnOp]) -> None:
        known = cls.schema.by_name  # a `create` is not `required`
        properties = {p.name: ParamAttr(p.default) for p in cls.schema.params if p.default is not ...}
        new = cls.create(
            result_types=source.result_types,
            properties=properties | {k: v for k, v in source.properties.items() if k in known},
            attributes=dict(source.attributes),
            location=source.location,
        )
        assert source.parent is not None
        source.parent.insert_op_before(new, source)
        source.results[0].replace_all_uses_with(new.results[0])
        source.detach()
        source.erase()


def is_data(value: SSAValue) -> bool:
    """Return whether a tensor is data: an op reads it as such; a host op's look counts only where no op reads it at
    all.
    """
    uses = list(_roles(value))
    device = [role for role, host in uses if not host]
    return "data" in (device or [role for role, _ in uses])


def _roles(value: SSAValue) -> Iterator[tuple[str, bool]]:
    """For each use of a value as an op's operand, inside kernels too: its role, and whether the op is a host op."""
    for use in value.uses:
        user = use.operation
        if isinstance(user, LnOp):
            yield user.schema.operand_fields(len(user.operands))[use.index].role, user.is_host
        elif isinstance(user, KernelOp):
            yield from _roles(user.body.args[use.index])
