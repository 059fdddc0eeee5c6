"""The CPU's patterns over kernels, for the pass `subgraph`."""

from __future__ import annotations

from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from lightnet.backends.subgraphs import InterleaveConcat, kernel_around
from lightnet.dialects.cpu import CpuKernelOp
from lightnet.dialects.ln.arith import Cast
from lightnet.dialects.ln.conv import Conv2d, Deconv2d
from lightnet.dialects.ln.matmul import Matmul
from lightnet.dialects.ln.pool import Maxpool2d
from lightnet.ir.op import tensor_names


class WidenProducts(RewritePattern):
    """A convolution or a matrix product of f16 or bf16 in f32, for which there is a register-tiled kernel.

    ```
    %y = matmul %a, %b : tensor<..xf16>    ->    %0 = cast %a, %1 = cast %b : tensor<..xf32>
                                                 %2 = matmul %0, %1 : tensor<..xf32>
                                                 %y = cast %2 : tensor<..xf16>
    ```
    Those of weights are static: `hoist` evaluates them at load.
    """

    # an element that is read is an f32, sums are in f32, and a value is rounded where it is stored
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, CpuKernelOp) or len(op.ops) != 1 or not isinstance(anchor := op.ops[0], _PRODUCTS):
            return
        short = anchor.result_specs[0].dtype
        if not short.is_short:
            return
        wide = [
            kernel_around(
                CpuKernelOp, Cast.make([op.operands[op.body.args.index(v)]], {"dtype": "TL_FLOAT", "mode": "wrap"})
            )
            for v in anchor.operands
        ]
        product = kernel_around(
            CpuKernelOp, type(anchor).make([k.results[0] for k in wide], anchor.param_values(), name=anchor.op_name)
        )
        narrow = Cast.make([product.results[0]], {"dtype": short.tl, "mode": "wrap"})
        rewriter.replace(op, [*wide, product, kernel_around(CpuKernelOp, narrow, tensor_names(anchor)[0])])


_PRODUCTS = (Conv2d, Deconv2d, Matmul)


class SeparateMaxpool(RewritePattern):
    """The maximum of large windows that overlap, first along the rows, then along the columns.

    ```
    %y = maxpool2d %x {size = [h, w]}    ->    %0 = maxpool2d %x {size = [1, w]}, %y = maxpool2d %0 {size = [h, 1]}
    ```
    That is h + w maxima an element instead of h * w: where it saves half of them, it pays for the tensor in between.
    """

    # max over (i, j) of x[i, j] = max over i of (max over j of x[i, j]); padding is minus infinity, NaN wins either way
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, CpuKernelOp) or len(op.ops) != 1 or not isinstance(pool := op.ops[0], Maxpool2d):
            return
        top, left, bottom, right = pad = pool.derived_values()["pad"]
        (height, width), (down, along) = pool.size, pool.stride
        before, after = pool.operand_specs[0].dims[2], pool.result_specs[0].dims[2]
        if min(pad) < 0 or height * width * after < 2 * (width * before + height * after):
            return
        row = {"size": (1, width), "stride": (1, along), "padding": (0, left, 0, right)}
        column = {"size": (height, 1), "stride": (down, 1), "padding": (top, 0, bottom, 0)}
        name = tensor_names(pool)[0]
        rows = kernel_around(CpuKernelOp, Maxpool2d.make([op.operands[0]], row), name and f"{name}.rows")
        columns = Maxpool2d.make([rows.results[0]], column, name=pool.op_name)
        rewriter.replace(op, [rows, kernel_around(CpuKernelOp, columns, name)])


SUBGRAPHS: tuple[type[RewritePattern], ...] = (InterleaveConcat, WidenProducts, SeparateMaxpool)
