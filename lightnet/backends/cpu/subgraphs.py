"""The CPU's patterns over kernels, for the pass `subgraph`: those that compute more than a description can say (one
rule for several optypes). `subgraphs.json` has the others."""

from __future__ import annotations

from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from lightnet.backends.subgraphs import InterleaveConcat, kernel_around
from lightnet.dialects.cpu import CpuKernelOp
from lightnet.dialects.ln.arith import Cast
from lightnet.dialects.ln.conv import Conv2d, Deconv2d
from lightnet.dialects.ln.matmul import Matmul
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

SUBGRAPHS: tuple[type[RewritePattern], ...] = (InterleaveConcat, WidenProducts)
