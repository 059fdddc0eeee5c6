"""`grow-caches`: inputs that become outputs where they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, OpResult, SSAValue

from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.source import Input
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import PLAIN, is_plain
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import memory_of
from lightnet.ir.module import main_of, output_names
from lightnet.ir.names import FreshNames
from lightnet.ir.op import tensor_name
from lightnet.ir.passes import LnPass
from lightnet.ir.reserved import Reserved
from lightnet.ir.target import Target, get_target
from lightnet.ir.types import spec_of
from lightnet.passes.defuse import split
from lightnet.passes.graph import tensor_names_in
from lightnet.passes.layout import change_layout, follow, set_layout
from lightnet.runtime.dims import greatest, is_known
from lightnet.runtime.program import unknown

#: The word for all inputs that can.
ALL = "all"


@dataclass(frozen=True)
class GrowCachesPass(LnPass):
    """Let inputs become outputs where they are.

    ```mlir
    // caches = "k=all_k"; past(1..511)
    %all_k = cpu.kernel(%k_ = %k, %new_ = %new) {
      %0 = ln.concat %k_, %new_ {axis = 2} : tensor<1x8x?x64xf32, #ln.dims<"past + 1">>
    ```
    ->
    ```mlir
      %0 = ln.concat %k_, %new_ {axis = 2} : tensor<1x8x?x64xf32, #ln.dims<"past + 1", #ln.layout<"r2x512">>>
    ```

    A decoder takes the keys and values of the tokens before as inputs, and returns them with those of its own: as long
    as there is room behind the input, only these are written. `caches` names such inputs with their outputs, as in
    ``k0=new_k0,v0=new_v0``, or is ``all``, for each that can. An output has to be a concatenation that begins with
    the input, which nothing else reads, and be open along the axis. Both get memory for the largest size of the output;
    so `plan` puts them at one place, and whoever reads the output reads it there.
    """

    name = "grow-caches"
    level = "kernels"
    target: str = "cpu"
    caches: str = ""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if not self.caches:
            return
        target = get_target(self.target)
        generators = target.generators.in_order() if target.generators is not None else ()
        if not any(g.takes_reserved for g in generators):
            raise LightNetError(f"caches: kernels of target '{target.name}' cannot read tensors that grow where they "
                                "are: leave the option out", label="grow-caches.target")  # fmt: skip
        if memory_of(op):
            raise LightNetError("caches: the network is planned: run grow-caches before plan",
                                label="grow-caches.planned")  # fmt: skip
        block = main_of(op).body.block
        if not any(isinstance(inner, KernelOp) for inner in block.ops):
            raise LightNetError("caches: there are no kernels: run expand before grow-caches",
                                label="grow-caches.level")  # fmt: skip
        done: set[SSAValue] = set()
        # One by one: a kernel that makes several is split, and its results are others then.
        while pair := next((p for p in _asked(block, self.caches) if p[0] not in done), None):
            _grow(*pair, target, FreshNames(tensor_names_in(op)))
            done.add(pair[0])
        function = block.parent_op()
        if isinstance(function, FuncOp):
            function.update_function_type()


def _asked(block: Block, caches: str) -> list[tuple[OpResult, OpResult]]:
    """The pairs that somebody names, or all that there are."""
    inputs = {tensor_name(op.results[0]) or "": op.results[0] for op in block.ops if isinstance(op, Input)}
    last = block.last_op
    assert last is not None
    outputs = output_names(last)
    if caches == ALL:
        return list(_all(list(inputs.values()), last))
    found = []
    for text in caches.split(","):
        old, _, new = text.strip().partition("=")
        if not old or not new:
            raise LightNetError(f"caches: expected INPUT=OUTPUT,… or '{ALL}', not '{text:.80}'",
                                label="grow-caches.pair")  # fmt: skip
        for what, name, known in (("input", old, inputs), ("output", new, outputs)):
            if name not in known:
                raise LightNetError(f"caches: {unknown(what, name, known).message}", label="grow-caches.name")
        source, result = inputs[old], outputs[new]
        if why := _obstacle(source, result):
            loc = loc_of(result.owner) if isinstance(result, OpResult) else None
            raise LightNetError(f"caches: '{old}' cannot become '{new}' where it is: {why}", loc,
                                label="grow-caches.pair")  # fmt: skip
        assert isinstance(result, OpResult)
        found.append((source, result))
    return found


def _all(inputs: list[OpResult], last: Operation) -> Iterator[tuple[OpResult, OpResult]]:
    for source in inputs:
        for use in source.uses:
            for result in use.operation.results:
                if result in last.operands and not _obstacle(source, result):
                    yield source, result


def _obstacle(source: SSAValue, result: SSAValue) -> str | None:
    """The reason why an input cannot become an output where it is; None where there is none."""
    kernel = result.owner
    if not isinstance(kernel, KernelOp) or not isinstance(result, OpResult) or source not in kernel.operands:
        return "the output is no concatenation that begins with the input"
    value = kernel.terminator.operands[result.index]
    inner = value.owner
    arg = kernel.body.args[list(kernel.operands).index(source)]
    if not getattr(inner, "extends", False) or inner.operands[0] is not arg:  # type: ignore[union-attr]
        return "the output is no concatenation that begins with the input"
    if len(list(source.uses)) > 1 or len(list(arg.uses)) > 1:
        return "something else reads the input"
    if len(kernel.ops) > 1 and not is_plain(kernel):
        return "its kernel does more, on maps in blocks"
    if others := [u.operation for u in result.uses if not isinstance(u.operation, KernelOp | ReturnOp)]:
        return f"{others[0].name} reads the output"
    if sum(isinstance(use.operation, ReturnOp) for use in result.uses) > 1:
        return "it is an output twice"
    axes = [k for k, (a, b) in enumerate(zip(spec_of(source.type).dims, spec_of(result.type).dims)) if a != b]
    if len(axes) != 1 or is_known([spec_of(source.type).dims[axes[0]]]):
        return "nothing grows from call to call: its length is a number, or nothing is put behind it"
    return None


def _grow(source: OpResult, result: OpResult, target: Target, names: FreshNames) -> None:
    """Give both the layout, and what reads the output, too."""
    kernel, name = result.owner, tensor_name(result)
    assert isinstance(kernel, KernelOp)
    if len(kernel.ops) > 1:
        inner = kernel.terminator.operands[result.index].owner
        at = list(kernel.ops).index(inner)  # type: ignore[arg-type]
        kernel = split(kernel)[at]
        (result,) = kernel.results
        assert tensor_name(result) == name
    old, new = spec_of(source.type).dims, spec_of(result.type).dims
    (axis,) = (k for k, (a, b) in enumerate(zip(old, new)) if a != b)
    layout = Reserved(axis, greatest(new[axis]))
    set_layout(source, layout)
    readers: set[Operation] = {use.operation for use in result.uses if isinstance(use.operation, KernelOp)}
    others: set[Operation] = {
        r for r in readers if isinstance(r, KernelOp) and any(op.definition is None for op in r.ops)
    }
    if others:  # an op's own builder knows row-major tensors alone
        readers = {*(readers - others), change_layout(target, result, PLAIN, others, names)}
    set_layout(result, layout)
    for reader in (kernel, *readers):
        follow(reader)
