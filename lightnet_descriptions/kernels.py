"""Inline kernels of descriptions: a `func.func` at level 4 whose text has constant expressions in it.

    func.func @kernel(%src: memref<${src->len}xf32>, %dst: memref<${dst->len}xf32>) {
      %0 = arith.constant 0 : index ...
      scf.for %i = %0 to %n step %1 { ... memref.store %y, %dst[%i] : memref<${dst->len}xf32> }
      func.return
    }

Its memrefs are the operands, then the results, each as its row-major elements, then (if it takes one) an i8 workspace.
The text is filled in, parsed and checked for each combination of types; the op's loop-level builder puts its body into
the kernel of the target, and the interpreter of level 4 runs it elsewhere. The checker admits ops that both have, and
`bounds` guards what they access. Imports `ir`, `bounds`, the builder, the interpreter of level 4 and xDSL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.dialects import arith, func, memref, scf
from xdsl.dialects.builtin import (
    BFloat16Type,
    Float16Type,
    Float32Type,
    Float64Type,
    IntegerAttr,
    IntegerType,
    MemRefType,
    ModuleOp,
)
from xdsl.ir import Attribute, Operation, SSAValue

from lightnet.backends.builder import Builder
from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import LightNetError
from lightnet.ir import constants
from lightnet.ir.constraints import ConstraintError
from lightnet.ir.context import make_context
from lightnet.ir.locations import loc_of
from lightnet.ir.parser import parse_mlir
from lightnet.ir.types import MAX_TENSOR_BYTES, TensorSpec, storage_type
from lightnet.ir.verify import verify_module
from lightnet.runtime.dtypes import BY_NAME, BY_TL
from lightnet_descriptions import bounds
from lightnet_descriptions.bounds import INDEX
from lightnet_descriptions.reader import DescribedValue
from lightnet_trust.interpreter.loop_library import poison
from lightnet_trust.interpreter.loop_types import memory_dtype
from lightnet_trust.interpreter.loops import LoopProgram

if TYPE_CHECKING:
    from lightnet_descriptions.described import DescribedOp

#: Characters of a kernel, its constants filled in.
MAX_TEXT = 1 << 16
#: Texts that a template remembers the functions of.
MAX_KNOWN = 64
_OPS = (scf.ForOp, scf.IfOp, scf.YieldOp, memref.LoadOp, memref.StoreOp, memref.AllocaOp, func.ReturnOp)
_DIALECTS = ("arith.", "math.")
#: What no engine has.
ABSENT = ("arith.addui_extended", "arith.mulsi_extended", "arith.mului_extended", "math.fpowi", "math.ipowi")
_SCALARS = (
    INDEX,
    *(IntegerType(n) for n in (1, 8, 16, 32, 64)),
    BFloat16Type(),
    Float16Type(),
    Float32Type(),
    Float64Type(),
)
_PREDICATES: dict[type[Operation], int] = {arith.CmpiOp: 10, arith.CmpfOp: 16}


@dataclass(frozen=True)
class Template:
    """The text of a kernel in pieces: text, a constant expression (as text), text, ..."""

    optype: str
    pieces: tuple[str, ...]
    item: DescribedValue = field(compare=False, repr=False)
    known: dict[str, func.FuncOp] = field(default_factory=dict, compare=False, repr=False)

    def render(self, env: constants.Env) -> str:
        """The text for an op whose constants are `env`; a dtype is the type of its elements in memory."""
        return "".join(_shown(constants.evaluate(p, env)) if k % 2 else p for k, p in enumerate(self.pieces))

    def function(self, env: constants.Env, specs: Sequence[TensorSpec]) -> func.FuncOp:
        """The kernel for tensors of these types, checked. Raises `ConstraintError`, with a note of the place."""
        try:
            text = self.render(env)
            if len(text) > MAX_TEXT:
                raise LightNetError(f"it has {len(text)} characters, at most {MAX_TEXT}")
            if text not in self.known:
                if len(self.known) >= MAX_KNOWN:
                    self.known.clear()
                self.known[text] = _parsed(text, self.item.loc.file, self.item.loc.line)
            _check_signature(self.known[text], specs)
        except LightNetError as e:
            error = ConstraintError(f"{self.optype}: its kernel: {e.message}", label=f"{self.optype}.run")
            error.notes.append((e.loc or self.item.loc, "here, in its description"))
            raise error from None
        return self.known[text]

    def function_of(self, op: DescribedOp) -> func.FuncOp:
        return self.function(op.env(), [*op.operand_specs, *op.result_specs])

    def workspace_bytes(self, op: DescribedOp) -> int:
        """Bytes of the memref behind those of the tensors."""
        types = self.function_of(op).function_type.inputs.data[len(op.operands) + len(op.results) :]
        return types[0].get_shape()[0] if types and isinstance(types[0], MemRefType) else 0

    def inline(self, op: DescribedOp, b: Builder, memrefs: Sequence[SSAValue], workspace: SSAValue | None) -> None:
        """The body of the kernel, on the memrefs of `b`."""
        body = self.function_of(op).body.block
        values: dict[SSAValue, SSAValue] = dict(zip(body.args, [*memrefs, *([] if workspace is None else [workspace])]))
        for inner in body.ops:
            if not isinstance(inner, func.ReturnOp):
                b.append(inner.clone(values))

    def evaluate(self, op: DescribedOp, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results by the interpreter of level 4; what the kernel does not write is poison."""
        specs = [*op.operand_specs, *op.result_specs]
        types = [MemRefType(storage_type(s.dtype), [s.len]) for s in specs]
        if size := self.workspace_bytes(op):
            types.append(MemRefType(IntegerType(8), [size]))
        b = Builder.kernel("kernel", types)
        self.inline(op, b, b.args[: len(specs)], b.args[-1] if size else None)
        program = LoopProgram(ModuleOp([b.finish()]))
        arrays = [np.ascontiguousarray(a).reshape(-1).copy() for a in operands]
        memory = [a.view(memory_dtype(t)) for a, t in zip(arrays, types)]
        memory += [poison([t.get_shape()[0]], memory_dtype(t)) for t in types[len(operands) :]]
        program.launch("kernel", [0], memory)
        return [a.view(s.dtype.np).reshape(s.dims) for a, s in zip(memory[len(operands) :], op.result_specs)]


def _shown(value: Any) -> str:
    if isinstance(value, str) and (dtype := BY_NAME.get(value) or BY_TL.get(value)) is not None:
        return str(storage_type(dtype))
    if isinstance(value, tuple):
        return "x".join(map(_shown, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parsed(text: str, file: str, line: int) -> func.FuncOp:
    ctx = make_context()
    module = parse_mlir(ctx, text, file, first_line=line)
    verify_module(module, ctx)
    ops = list(module.body.block.ops)
    if len(ops) != 1 or not isinstance(ops[0], func.FuncOp) or len(ops[0].body.blocks) != 1:
        raise LightNetError("a kernel is one func.func with one block")
    for op in ops[0].body.walk():
        _check_op(op)
    bounds.guard(ops[0].body.block)
    return ops[0]


def _check_op(op: Operation) -> None:
    """An op that both engines have, on scalars and memrefs, whose value is never left open."""
    known = isinstance(op, _OPS) or (op.name.startswith(_DIALECTS) and op.name not in ABSENT)
    if not known:
        names = ", ".join(sorted(o.name for o in _OPS))
        raise LightNetError(f"{op.name} cannot stand in an inline kernel; there are: arith, math, {names}", loc_of(op))
    for value in (*op.results, *(a for region in op.regions for block in region.blocks for a in block.args)):
        if not isinstance(value.type, MemRefType) and value.type not in _SCALARS:
            raise LightNetError(
                f"the type {value.type} cannot stand in an inline kernel, which has scalars", loc_of(op)
            )
    if isinstance(op, scf.ForOp) and not (op.lb.type == INDEX and _constant(op.step) > 0):
        raise LightNetError(
            "an scf.for in an inline kernel counts an index, and its step is a positive arith.constant", loc_of(op)
        )
    if isinstance(op, arith.ShLIOp | arith.ShRSIOp | arith.ShRUIOp):
        bits = op.result.type.width.data if isinstance(op.result.type, IntegerType) else 0
        if not 0 <= _constant(op.rhs, -1) < bits:
            raise LightNetError(f"{op.name} shifts an iN by an arith.constant below its width", loc_of(op))
    if isinstance(op, arith.CmpiOp | arith.CmpfOp) and not 0 <= op.predicate.value.data < _PREDICATES[type(op)]:
        raise LightNetError(f"{op.name} has no predicate {op.predicate.value.data}", loc_of(op))
    fastmath = op.properties.get("fastmath")
    if isinstance(fastmath, arith.FastMathFlagsAttr) and {"nnan", "ninf"} & {str(f) for f in fastmath.data}:
        raise LightNetError(
            "fast-math flags that promise something of the data (nnan, ninf) are for nobody to check", loc_of(op)
        )


def _constant(value: SSAValue, otherwise: int = 0) -> int:
    """The integer that a value is, if it is an `arith.constant`."""
    op = value.owner
    known = isinstance(op, arith.ConstantOp) and isinstance(op.value, IntegerAttr)
    return op.value.value.data if known else otherwise  # type: ignore[union-attr]


def _check_signature(function: func.FuncOp, specs: Sequence[TensorSpec]) -> None:
    want = [MemRefType(storage_type(s.dtype), [s.len]) for s in specs]
    got = list(function.function_type.inputs)
    rest = got[len(want) :]
    workspace = len(rest) == 1 and _is_workspace(rest[0])
    if got[: len(want)] != want or (rest and not workspace) or function.function_type.outputs.data:
        shown = ", ".join(map(str, want))
        raise LightNetError(f"it takes ({', '.join(map(str, got))}), and should take ({shown}), then at most a "
                            "workspace "
                            "memref<...xi8>, and return nothing")  # fmt: skip


def _is_workspace(type: Attribute) -> bool:
    if not isinstance(type, MemRefType) or type.element_type != IntegerType(8) or len(type.get_shape()) != 1:
        return False
    return 0 <= type.get_shape()[0] <= MAX_TENSOR_BYTES
