"""Patterns over kernels for the pass `subgraph` that suit any target; a target lists those that it wants. Imports `ir`
and `ln` ops."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Block, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from lightnet.dialects.ln.move import Concat, Reshape, Transpose
from lightnet.ir.kernel import KernelOp
from lightnet.ir.op import LnOp, set_tensor_names, tensor_names


def single_op(value: SSAValue, cls: type[LnOp]) -> LnOp | None:
    """The op inside the one-op kernel that makes `value`, if it is a `cls` and nothing else uses the value."""
    kernel = value.owner
    if not isinstance(kernel, KernelOp) or not value.has_one_use() or len(kernel.ops) != 1:
        return None
    op = kernel.ops[0]
    return op if isinstance(op, cls) else None


def kernel_around(kind: type[KernelOp], op: LnOp, name: str | None = None) -> KernelOp:
    """A kernel of a target around a new op, whose result may have a name."""
    if name is not None:
        set_tensor_names(op, [name])
    kernel = kind.wrap([op])
    op.erase()  # wrapped as a clone
    return kernel


class InterleaveConcat(RewritePattern):
    """The channel shuffle of two halves as one interleaving copy, without the concatenation in between.

    ```
    %c = concat %a, %b along axis k             each [.., p, ..], p elements along axis k
    %r = reshape %c                       ->    %a1 = reshape %a, %b1 = reshape %b     (views: [.., p, 1, ..])
    %t = transpose %r, axes k and k+1           %t = concat %a1, %b1 along axis k+1
    ```
    with the reshape behind it, if there is one, in one kernel.
    A half that cannot be planned into the concatenation (it is a slice of something else, as in ShuffleNet) was copied
    twice; now each half is read once, from where it lies.
    """

    # t[.., i, h, ..] = r[.., h, i, ..] = c[.., h*p + i, ..] = (a, b)[h][.., i, ..]
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, KernelOp) or len(op.ops) != 1 or not isinstance(transpose := op.ops[0], Transpose):
            return
        if (reshape := single_op(op.operands[0], Reshape)) is None:
            return
        if (concat := single_op(reshape.parent_op().operands[0], Concat)) is None:
            return
        if len(concat.operands) != 2:
            return
        axis = concat.axis
        first, second = concat.operand_specs
        halves = (*first.dims[:axis], 2, *first.dims[axis:])
        swapped = (*range(axis), axis + 1, axis, *range(axis + 2, len(halves)))
        if first != second or reshape.result_specs[0].dims != halves or transpose.axes != swapped:
            return
        parts = concat.parent_op()
        assert isinstance(parts, KernelOp)
        a, b = (parts.operands[parts.body.args.index(v)] for v in concat.operands)
        stacked = (*first.dims[: axis + 1], 1, *first.dims[axis + 1 :])
        views: list[Operation | None] = [reshape.parent_op(), parts]
        if (last := merging(op.results[0], concat.result_specs[0].dims)) is not None:
            views.insert(0, op)
            rewriter.replace(last.parent_op(), [interleaving(type(op), a, b, stacked, axis, transpose, last)])
        else:
            new = [kernel_around(type(op), Reshape.make([v], {"dims": stacked})) for v in (a, b)]
            interleave = Concat.make([k.results[0] for k in new], {"axis": axis + 1}, name=transpose.op_name)
            rewriter.replace(op, [*new, kernel_around(type(op), interleave, tensor_names(transpose)[0])])
        for kernel in views:
            rewriter.erase(kernel)


def merging(value: SSAValue, dims: Sequence[int]) -> Reshape | None:
    """The reshape to `dims` that is the only use of `value` and a kernel of its own, if there is one."""
    users = [use.operation for use in value.uses]
    if len(users) != 1 or not isinstance(users[0], KernelOp) or len(users[0].ops) != 1:
        return None
    op = users[0].ops[0]
    return op if isinstance(op, Reshape) and op.result_specs[0].dims == tuple(dims) else None


def interleaving(
    kind: type[KernelOp], a: SSAValue, b: SSAValue, stacked: Sequence[int], axis: int, transpose: LnOp, last: Reshape
) -> KernelOp:
    """One kernel for the whole shuffle: reshape %a, reshape %b, concat, reshape. On maps in blocks of channels it is
    one pass, on plain ones the reshapes cost nothing."""
    values = list(dict.fromkeys((a, b)))
    block = Block(arg_types=[v.type for v in values])
    inside = dict(zip(values, block.args))
    halves = [Reshape.make([inside[v]], {"dims": stacked}) for v in (a, b)]
    concat = Concat.make([op.results[0] for op in halves], {"axis": axis + 1}, name=transpose.op_name)
    merged = Reshape.make([concat.results[0]], {"dims": last.result_specs[0].dims}, name=last.op_name)
    for op, source in ((concat, transpose), (merged, last)):
        set_tensor_names(op, list(tensor_names(source)))
    for op in (*halves, concat, merged):
        op.location = transpose.location
    block.add_ops([*halves, concat, merged])
    return kind.around(block, values, [merged.results[0]])
