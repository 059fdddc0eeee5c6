"""The CPU's patterns of `expand`: ops as others that its loops run faster. Imports the ops."""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from lightnet.dialects.ln.einsum import Einsum
from lightnet.dialects.ln.factors import rearranged
from lightnet.dialects.ln.matmul import Matmul, gemm_shape
from lightnet.dialects.ln.move import Reshape
from lightnet.dialects.ln.source import ParamOp
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir.op import LnOp
from lightnet.ir.types import spec_of
from lightnet.runtime.dims import greatest, typical

#: With more rows, a product on register tiles and the copy before it take less time than a sum for each element, and
#: with shorter sums, too (measured on AVX2: 5 us for 40 at one row of 200 sums of 64, 8 us for 24 at four).
MOST_ROWS, LEAST_SUM = 8, 16


class RowsByColumns(RewritePattern):
    """Products of a few rows with a matrix that lies turned over in memory, as keys in a cache do, as sums along its
    rows: it is read where it lies, and once.

    ```
    %t = transpose %k                    ->    %y = einsum %q, %k {equation = "...mk,...nk->...mn"}
    %y = matmul %q, %t
    ```
    """

    # y[.., m, n] = sum over k of q[.., m, k] * t[.., k, n], and t[.., k, n] = k[.., n, k]
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, Matmul) or op.result_specs[0].dtype.name not in ("f32", "f64"):
            return
        _, rows, length, _ = gemm_shape(op)
        if greatest(rows) > MOST_ROWS or typical(length) < LEAST_SUM:
            return
        b = rearranged(op.b)
        if b is None or _is_known(b.source) or any(f.repeats for axis in b.axes for f in axis):
            return
        *batch, inner, columns = b.axes
        if not columns or b.order != tuple(f for axis in (*batch, columns, inner) for f in axis):
            return
        dims = spec_of(op.b.type).dims
        turned = (*dims[:-2], dims[-1], dims[-2])
        new: list[LnOp] = [Reshape.make([b.source], {"dims": turned})] if spec_of(b.source.type).dims != turned else []
        keys = new[0].results[0] if new else b.source
        new.append(Einsum.make([op.a, keys], {"equation": "...mk,...nk->...mn"}, name=op.op_name))
        unused = op.b
        rewriter.replace(op, new)
        while unused is not b.source and not unused.uses:  # what turned it over
            move = unused.owner
            assert isinstance(move, LnOp)
            unused = move.operands[0]
            rewriter.erase(move)


def _is_known(value: SSAValue) -> bool:
    """Return whether a value is there before the network runs: turned over once."""
    return isinstance(value.owner, OnceOp | ParamOp)


CPU_EXPANDERS: tuple[type[RewritePattern], ...] = (RowsByColumns,)
