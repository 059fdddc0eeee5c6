"""`fold-batchnorm`: a batch normalisation behind a convolution goes into the weights."""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from lightnet.dialects.ln.conv import Conv2d, Deconv2d
from lightnet.dialects.ln.move import Reshape
from lightnet.dialects.ln.norm import Batchnorm
from lightnet.dialects.ln.rules import producer
from lightnet.dialects.ln.source import Zeros
from lightnet.ir import budget, rewrites
from lightnet.ir.locations import fused, set_loc
from lightnet.ir.names import FreshNames
from lightnet.ir.op import LnOp, set_tensor_names, tensor_names
from lightnet.ir.passes import LnPass
from lightnet.passes.graph import graphs, static_values, tensor_names_in


class FoldBatchnormPass(LnPass):
    """Fold `batchnorm` into the weights of the convolution (or deconvolution of one group) before it.

    ```mlir
    %c = ln.conv2d %x, %w, %b                   ->  %w1 = the batchnorm of %w, %b1 = the batchnorm of %b (once, at load)
    %y = ln.batchnorm %c, %s, %o, %m, %v            %y = ln.conv2d %x, %w1, %b1
    ```

    A convolution is linear in its weights and bias together, c[o] = sum(w[o] * x) + b[o], so with r = s / sqrt(v + e)

        r[o] * (c[o] - m[o]) + o[o]  =  sum((r[o] * w[o]) * x)  +  (r[o] * (b[o] - m[o]) + o[o])

    and both terms are batch normalisations over the channel o: of the weights with mean and offset 0, and of the bias.
    So the new weights are spelt in ordinary ops on params, which `hoist` moves into `ln.once`. It applies where the
    weights and vectors depend on params alone and nothing else reads the convolution's result. Only rounding changes.
    """

    name = "fold-batchnorm"
    level = "graph"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        names = FreshNames(tensor_names_in(op), first=2)
        for block in graphs(op):
            static = static_values(block)
            for norm in [o for o in budget.within(block.ops) if isinstance(o, Batchnorm)]:
                conv = producer(norm.src, Conv2d) or producer(norm.src, Deconv2d)
                if conv is None or not _foldable(conv, norm, static):
                    continue
                if (step := rewrites.begin("fold-batchnorm", [norm, conv])) is None:
                    return
                *new, folded = _fold(conv, norm, names)
                static.update(r for op in new for r in op.results)
                step.done([*new, folded])


def _foldable(conv: Conv2d | Deconv2d, norm: Batchnorm, static: set[SSAValue]) -> bool:
    if not conv.dst.has_one_use() or (isinstance(conv, Deconv2d) and conv.group != 1):
        return False
    return all(v in static for v in (conv.weight, conv.bias, *norm.operands[1:]))


def _fold(conv: Conv2d | Deconv2d, norm: Batchnorm, names: FreshNames) -> list[LnOp]:
    """Put the convolution with folded weights in the place of both; returns the new ops, the convolution last."""
    name = tensor_names(norm)[0] or tensor_names(conv)[0] or "conv"
    epsilon = {"epsilon": norm.written_params()["epsilon"]}
    channels, dtype = norm.operand_specs[1].len, norm.operand_specs[1].dtype
    new: list[LnOp] = []

    def add(op: LnOp) -> SSAValue:
        new.append(op)
        return op.results[0]

    def reshape(value: SSAValue, *dims: int) -> SSAValue:
        return add(Reshape.make([value], {"dims": dims}))

    zeros = add(Zeros.make([], {"dtype": dtype.tl, "dims": (channels,)}))
    weight_dims = conv.operand_specs[1].dims
    if isinstance(conv, Conv2d):  # [O, I, kh, kw]: the channel of the norm is axis 1
        flat = reshape(conv.weight, 1, channels, conv.operand_specs[1].len // channels, 1)
        scaled = add(Batchnorm.make([flat, norm.scale, zeros, zeros, norm.var], epsilon))
        weight = reshape(scaled, *weight_dims)
    else:  # [I, O, kh, kw]
        weight = add(Batchnorm.make([conv.weight, norm.scale, zeros, zeros, norm.var], epsilon))
    flat = reshape(conv.bias, 1, channels, 1, 1)
    bias = reshape(add(Batchnorm.make([flat, *norm.operands[1:]], epsilon)), channels)
    for value, wish in ((weight, f"{name}_folded_weight"), (bias, f"{name}_folded_bias")):
        op = value.owner
        assert isinstance(op, Operation)
        set_tensor_names(op, [names.fresh(wish)])

    params = conv.written_params()
    folded = type(conv).make([conv.src, weight, bias], params, name=conv.op_name, tensors=_known(tensor_names(norm)))
    _replace([conv, norm], [*new, folded])
    return [*new, folded]


def _known(names: tuple[str | None, ...]) -> list[str]:
    return [n for n in names if n]


def _replace(old: list[LnOp], new: list[LnOp]) -> None:
    """Put `new` in the place of `old`; the results of the last ones correspond."""
    block = old[-1].parent
    assert block is not None
    location = fused(old)
    for op in new:
        set_loc(op, location)
        block.insert_op_before(op, old[-1])
    for before, after in zip(old[-1].results, new[-1].results):
        before.replace_all_uses_with(after)
    for op in reversed(old):
        _erase(op)


def _erase(op: Operation) -> None:
    op.detach()
    op.erase()
