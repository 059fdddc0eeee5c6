"""`fold`: compute at compile time what the program itself spells out."""

from __future__ import annotations

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from lightnet.dialects.ln.move import Forward, Reshape
from lightnet.dialects.ln.rules import is_yielded
from lightnet.dialects.ln.source import MAX_KNOWN, Arange, ConstantOp, Zeros, known, spelt
from lightnet.ir.op import ConstraintError, LnOp
from lightnet.ir.passes import LnPass, rewrite_greedily
from lightnet.ir.types import TensorSpec, spec_of
from lightnet.passes.graph import is_constant, is_pure

#: Elements of the largest tensor, operand or result, that folding computes.
MAX_ELEMENTS = 64


class FoldPass(LnPass):
    """Compute ops on small constants.

    ```mlir
    %a = ln.arange {start = 0, stop = 6, step = 1} : tensor<6xf32>
    %b = ln.slice %a {axis = 0, start = 2, len = 3} : ...  ->  %b = ln.arange {start = 2, stop = 5, step = 1} : ...
    ```

    Constants are what the program spells out: `constant` (of at most 16 elements), `zeros`, `arange`, and a reshape of
    `arange`. The contents of params and inputs are not constants, inline or not: anybody may feed them. An op on
    constants folds when its result, computed by its NumPy reference, is bit for bit one of these again; others are
    evaluated once, at load (`hoist`). Moves of zeros are zeros at any size.
    """

    name = "fold"
    level = "graph"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        rewrite_greedily(op, [FoldConstants()])


class FoldConstants(RewritePattern):
    """One step of the pass."""

    # op(constants) = constant
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, LnOp) or not op.operands or not op.results or not is_pure(op):
            return
        if isinstance(op, Forward):  # its own rule removes it, unless it keeps the name of an output
            return
        if not all(_is_spelt(v) for v in op.operands) or _is_spelt(op.results[0]):
            return
        if op.is_move and all(isinstance(v.owner, Zeros) for v in op.operands):
            zeros = [_zeros(s) for s in op.result_specs]
            rewriter.replace(op, zeros, [z.results[0] for z in zeros])
            return
        specs = [*op.operand_specs, *op.result_specs]
        if any(s.len > MAX_ELEMENTS for s in specs):
            return
        results = op.evaluate([_value(v) for v in op.operands])
        is_output = any(is_yielded(use) for r in op.results for use in r.uses)  # a source is none
        spell = _ranged if is_output or not any(isinstance(v.owner, ConstantOp) for v in op.operands) else _constant
        found = [spell(r, s) for r, s in zip(results, op.result_specs)]
        if all(ops is not None for ops in found):
            new = [ops for ops in found if ops is not None]
            rewriter.replace(op, [o for ops in new for o in ops], [ops[-1].results[0] for ops in new])


def _is_spelt(value: SSAValue) -> bool:
    owner = value.owner
    if isinstance(owner, Reshape):
        return isinstance(owner.src.owner, Arange)
    if isinstance(owner, ConstantOp):
        return known(value) is not None
    return isinstance(owner, Operation) and is_constant(owner)


def _value(value: SSAValue) -> np.ndarray:
    owner = value.owner
    assert isinstance(owner, LnOp)
    if isinstance(owner, ConstantOp):
        return owner.contents(None)
    return owner.evaluate([_value(v) for v in owner.operands])[0]


def _zeros(spec: TensorSpec) -> LnOp:
    return Zeros.make([], {"dtype": spec.dtype.tl, "dims": spec.dims})


def _constant(value: np.ndarray, spec: TensorSpec) -> list[LnOp] | None:
    """The constant that is `value`, bit for bit, or None where there is none."""
    data = spelt(value) if spec.len <= MAX_KNOWN else None
    return None if data is None else [ConstantOp.make([], {"dtype": spec.dtype.tl, "dims": spec.dims, "data": data})]


def _ranged(value: np.ndarray, spec: TensorSpec) -> list[LnOp] | None:
    """Ops whose last result is `value`, bit for bit, or None where there are none: zeros, or a range (reshaped)."""
    data = np.ascontiguousarray(value).reshape(-1)
    if not any(data.tobytes()):
        return [_zeros(spec)]
    start = data[0].item()
    step = data[1].item() - data[0].item() if len(data) > 1 else 1
    if spec.dtype.kind == "bool" or not step > 0 or not np.isfinite(float(start)):
        return None
    try:
        stop = start + len(data) * step
        arange = Arange.make([], {"dtype": spec.dtype.tl, "start": start, "stop": stop, "step": step})
    except (ConstraintError, OverflowError):
        return None
    if spec_of(arange.dst.type).dims != data.shape or arange.reference().tobytes() != data.tobytes():
        return None
    return [arange] if spec.ndim == 1 else [arange, Reshape.make([arange.dst], {"dims": spec.dims})]
