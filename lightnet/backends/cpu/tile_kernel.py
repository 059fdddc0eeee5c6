"""The common part of the register-tiled kernels: a function's arguments, and the epilogue. Imports the builder and the
epilogue."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerType, MemRefType
from xdsl.ir import SSAValue

from lightnet.backends.builder import Builder
from lightnet.backends.expressions import TileEvaluator, TileView
from lightnet.ir.kernel import KernelOp
from lightnet.ir.op import LnOp
from lightnet.ir.types import storage_type


class TileKernel:
    """A kernel function under construction: memrefs of the kernel's operands and results (but for those in `aliases`,
    which take an operand's memory), then `workspace` bytes."""

    def __init__(self, kernel: KernelOp, name: str, aliases: dict[int, int], workspace: int):
        self.kernel, self.ops = kernel, kernel.ops
        self.anchor: LnOp = kernel.ops[0]
        self.element = storage_type(self.anchor.result_specs[0].dtype)
        yielded = kernel.terminator.operands
        made = [v for i, v in enumerate(yielded) if i not in aliases]
        types = [self.memref(v) for v in kernel.body.args]
        types += [self.memref(v) for v in made]
        types += [MemRefType(IntegerType(8), [workspace])] if workspace else []
        hints = [*(v.name_hint for v in (*kernel.body.args, *made)), "work"]
        self.b = Builder.kernel(name, types, opt="none", hints=hints, location=kernel.location)
        self.b.location = self.anchor.location
        args = list(self.b.args)
        self.inputs: dict[SSAValue, SSAValue] = dict(zip(kernel.body.args, args))
        fresh = iter(args[len(kernel.body.args) :])
        self.results = [args[aliases[i]] if i in aliases else next(fresh) for i in range(len(yielded))]

    def memref(self, value: SSAValue) -> MemRefType:
        """The memref of a tensor; called before anything but the kernel, its ops and the anchor is known."""
        raise NotImplementedError

    def finish(self, tile: TileView, value: SSAValue) -> None:
        """Run the epilogue on a finished tile of the anchor's result and store what the kernel yields."""
        evaluator = TileEvaluator(self.b, tile, lambda v: self.inputs[v])
        evaluator.registers[self.anchor.results[0]] = value
        for op in self.ops[1:]:
            evaluator.run(op)
        for value, memref in zip(self.kernel.terminator.operands, self.results):
            self.b.tile_store(
                evaluator.registers[value], memref, tile.indices, tile.dims, steps=tile.steps, valid=tile.valid
            )
