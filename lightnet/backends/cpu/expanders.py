"""The CPU's patterns of `expand`: ops as others that its loops run faster. Imports the ops."""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from lightnet.backends.cpu.blocked.base import processor_model_of
from lightnet.backends.cpu.open_maps import is_open_map
from lightnet.dialects.ln.conv import Conv2d
from lightnet.dialects.ln.einsum import Einsum
from lightnet.dialects.ln.factors import rearranged
from lightnet.dialects.ln.matmul import Matmul, gemm_shape
from lightnet.dialects.ln.move import Concat, Reshape, Slice
from lightnet.dialects.ln.rearrange import Pad
from lightnet.dialects.ln.source import ParamOp
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir.op import LnOp
from lightnet.ir.types import spec_of
from lightnet.runtime.dims import greatest, typical

#: With more rows, a product on register tiles and the copy before it take less time than a sum for each element, and
#: with shorter sums, too (measured on AVX2: 5 us for 40 at one row of 200 sums of 64, 8 us for 24 at four).
MOST_ROWS, LEAST_SUM = 8, 16
#: Groups of a convolution that become one, at most: it multiplies so many times as much.
MOST_TOGETHER = 4


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


# conv2d(x, w; groups) = conv2d(x, [w of the own group, 0 of others put to it]; fewer groups)
class GroupsInBlocks(RewritePattern):
    """Convolutions of open maps in groups that are no whole blocks of channels as ones of fewer groups that are: what a
    group has not of the others has the weight 0. They run on maps in blocks, which takes less time than their loops as
    long as few are put together. An infinity or a NaN in one group is one in those beside it then, so with `exact`
    they stay.

    ```
    %y = conv2d %x, %w, %b {group = 16}    ->    %y = conv2d %x, %wider, %b {group = 8}
    ```
    """

    #: What the machine has, which says how long a block is.
    features = ""
    #: Whether results have to be just those of the definition, for infinities and NaN, too.
    exact = False

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if self.exact or not isinstance(op, Conv2d) or op.group == 1 or op.result_specs[0].dtype.name != "f32":
            return
        lanes, spec = processor_model_of(self.features).lanes, op.operand_specs[1]
        count, inputs, outputs = op.group, spec.dims[1], spec.dims[0] // op.group
        if inputs == outputs == 1 or (inputs % lanes == 0 and outputs % lanes == 0):
            return
        if not any(map(is_open_map, (*op.operand_specs, *op.result_specs))) or not _is_known(op.operands[1]):
            return
        together = [n for n in range(2, MOST_TOGETHER + 1) if count % n == 0]
        fills = (n for n in together if inputs * n % lanes == outputs * n % lanes == 0)
        merged = next(fills, count if count in together else 0)
        if not merged:
            return
        taps = spec.dims[2] * spec.dims[3]
        # [merged groups, groups in one, outputs, inputs, taps]: the inputs of a group among those of all in one.
        new: list[LnOp] = [Reshape.make([op.operands[1]], {"dims": (count // merged, merged, outputs, inputs, taps)})]
        parts = []
        for k in range(merged):
            new.append(Slice.make([new[0].results[0]], {"axis": 1, "start": k, "len": 1}))
            around = [(0, 0, 0, n * inputs, 0) for n in (k, merged - 1 - k)]
            new.append(Pad.make([new[-1].results[0]], {"before": around[0], "after": around[1]}))
            parts.append(new[-1].results[0])
        new.append(Concat.make(parts, {"axis": 1}))
        wider = (spec.dims[0], merged * inputs, *spec.dims[2:])
        new.append(Reshape.make([new[-1].results[0]], {"dims": wider}))
        params = {**op.written_params(), "group": count // merged}
        operands = [op.operands[0], new[-1].results[0], op.operands[2]]
        new.append(Conv2d.make(operands, params, name=op.op_name))
        rewriter.replace(op, new)


CPU_EXPANDERS: tuple[type[RewritePattern], ...] = (RowsByColumns, GroupsInBlocks)
