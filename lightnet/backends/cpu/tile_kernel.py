"""The common part of the register-tiled kernels: a function's arguments, and the epilogue. Imports the builder and the
epilogue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.dialects.builtin import DYNAMIC_INDEX, IntegerType, MemRefType
from xdsl.ir import Attribute, SSAValue

from lightnet.backends.builder import Builder
from lightnet.backends.expressions import TileEvaluator
from lightnet.backends.launches import Argument, Launch
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import layout_of
from lightnet.ir.op import LnOp
from lightnet.ir.types import flat_memref, spec_of, storage_type
from lightnet.runtime.dims import Dim, Size


def memref_of(type: Attribute) -> MemRefType:
    """The memref of a tensor in its layout; where a call decides its size, of the pixels of a map, or flat."""
    spec, layout = spec_of(type), layout_of(type)
    if not spec.open_dims:
        return MemRefType(storage_type(spec.dtype), layout.physical_dims(spec.dims))
    if layout.is_plain:
        return flat_memref(spec)
    return MemRefType(storage_type(spec.dtype), [DYNAMIC_INDEX, layout.physical_dims(spec.dims)[-1]])


class TileKernel:
    """A kernel function under construction. Memrefs: the kernel's operands, its results (but for those in `aliases`,
    which take an operand's memory), then `workspace` bytes, which the launches of the kernel share, and `scratch` bytes
    of the thread."""

    def __init__(self, kernel: KernelOp, name: str, aliases: Mapping[int, int], scratch: Size = 0, workspace: Size = 0):
        self.describe(kernel)
        self._open_memory = {k: n for k, n in (("workspace", workspace), ("scratch", scratch)) if isinstance(n, Dim)}
        fresh = [i for i in range(len(self.yielded)) if i not in aliases]
        values = [*kernel.body.args, *(self.yielded[i] for i in fresh)]
        tail = {kind: size for kind, size in (("workspace", workspace), ("scratch", scratch)) if size != 0}
        extents = [DYNAMIC_INDEX if isinstance(size, Dim) else size for size in tail.values()]
        types = [self.memref(v) for v in values] + [MemRefType(IntegerType(8), [n]) for n in extents]
        hints = [*(v.name_hint for v in values), *tail]
        symbols = {s for v in values for d in spec_of(v.type).open_dims for s in d.symbols}
        self.b = Builder.kernel(name, types, opt="none", hints=hints, location=kernel.location, symbols=symbols)
        self.b.location = self.anchor.location  # until parts or the epilogue say theirs
        args = list(self.b.args)
        self.inputs: dict[SSAValue, SSAValue] = dict(zip(kernel.body.args, args))
        made = dict(zip(fresh, args[len(kernel.body.args) :]))
        self.results = [args[aliases[i]] if i in aliases else made[i] for i in range(len(self.yielded))]
        self._tail = dict(zip(tail, args[len(values) :]))
        operands = [Argument("operand", i) for i in range(len(kernel.operands))]
        self.arguments = (*operands, *(Argument("result", i) for i in fresh), *(Argument(kind, 0) for kind in tail))

    def describe(self, kernel: KernelOp) -> None:
        """Note what is made: all that `memref` may ask for."""
        self.kernel, self.ops = kernel, kernel.ops
        self.anchor: LnOp = kernel.ops[0]
        self.yielded = list(kernel.terminator.operands)
        self.element = storage_type(self.anchor.result_specs[0].dtype)

    @property
    def scratch(self) -> SSAValue:
        """The thread's memory, of a kernel that asked for some."""
        return self._tail["scratch"]

    @property
    def workspace(self) -> SSAValue:
        """The memory of all launches, of a kernel that asked for some."""
        return self._tail["workspace"]

    def memref(self, value: SSAValue) -> MemRefType:
        """The memref of a value from outside or of a result: a kernel may see the same bytes under other dims."""
        return memref_of(value.type)

    def finish(self, tile: Any, value: SSAValue) -> None:
        """Run the epilogue on a finished tile of the anchor's result, and store what the kernel yields."""
        self.evaluate(tile, {self.anchor.results[0]: value}, self.ops[1:])

    def evaluate(self, tile: Any, known: Mapping[SSAValue, SSAValue], ops: Sequence[LnOp]) -> None:
        """Run elementwise ops on a tile of values, of which some are `known`, and store what the kernel yields."""
        evaluator = self.evaluator(tile)
        evaluator.registers |= known
        for op in ops:
            evaluator.run(op)
        for yielded, memref in zip(self.yielded, self.results):
            self.put(tile, evaluator.registers[yielded], yielded, memref)

    def evaluator(self, tile: Any) -> TileEvaluator:
        """The evaluator of elementwise ops on a tile, a `TileView`."""
        return TileEvaluator(self.b, tile, self.inputs.__getitem__)

    def put(self, tile: Any, value: SSAValue, yielded: SSAValue, memref: SSAValue) -> None:
        """Store a tile of a result."""
        self.b.tile_store(value, memref, tile.indices, tile.dims, steps=tile.steps, valid=tile.valid)

    def done(self, grid: Size) -> Launch:
        """The finished function over `grid` blocks."""
        return Launch(self.b.finish(), grid, self.arguments, **self._open_memory)
