"""`move-scales`: a number that scales one factor of a matrix product scales the other, which is smaller."""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from lightnet.dialects.ln.arith import Mul
from lightnet.dialects.ln.matmul import Matmul
from lightnet.dialects.ln.move import Reshape, Transpose
from lightnet.dialects.ln.rearrange import Expand
from lightnet.ir import budget, rewrites
from lightnet.ir.locations import fused, set_loc
from lightnet.ir.op import LnOp, set_tensor_names, tensor_names
from lightnet.ir.passes import LnPass
from lightnet.ir.types import spec_of
from lightnet.passes.graph import graphs, static_values
from lightnet.runtime.dims import typical

#: Types of enough range for a number of either factor on the other, and for two in one: 16 bits have too little.
WIDE = ("f32", "f64")


class MoveScalesPass(LnPass):
    """Move the number that scales the second factor of a `matmul`, before or behind a rearrangement, to the first,
    where that has no more elements.

    ```mlir
    %t = ln.transpose %k {axes = [0, 2, 1]}          %t = ln.transpose %k {axes = [0, 2, 1]}
    %u = ln.mul %t, %s                           ->  %u = ln.mul %q, %s
    %y = ln.matmul %q, %u                            %y = ln.matmul %u, %t
    ```

    q (s k) = (s q) k. Exporters write attention so, with the root of the scale on queries and keys: of keys that are in
    a cache, nothing is left to compute then but the product, which may read them where they lie. Two numbers become
    one, at load. Only rounding changes; products of 16 bits, whose range is small, are left alone.
    """

    name = "move-scales"
    level = "graph"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in graphs(op):
            found = [
                o for o in budget.within(block.ops) if isinstance(o, Matmul) and spec_of(o.dst.type).dtype.name in WIDE
            ]
            static = static_values(block) if found else set()
            for product in found:
                moves, scale = _scaled(product.b)
                if scale is None or product.b in static or _length(product.a) > _length(product.b):
                    continue
                if (step := rewrites.begin("move-scales", [product, scale])) is None:
                    return
                step.done(_move(product, moves, scale, static))


def _length(value: SSAValue) -> int:
    return typical(spec_of(value.type).len)


def _scaled(value: SSAValue) -> tuple[list[LnOp], LnOp | None]:
    """The ops between a value and the product with a number that it is a rearrangement of, the last first, and that
    product; nothing else uses any of them."""
    moves: list[LnOp] = []
    while value.has_one_use() and isinstance(op := value.owner, Reshape | Transpose | Expand):
        moves.append(op)
        value = op.src
    scale = value.owner
    return moves, scale if isinstance(scale, Mul) and value.has_one_use() and _number(scale) is not None else None


def _number(scale: LnOp) -> int | None:
    """The number of the operand that is one number, by which the other is scaled."""
    (dst,) = scale.result_specs
    return next((k for k in (0, 1) if scale.operand_specs[k].len == 1 and scale.operand_specs[1 - k] == dst), None)


def _move(product: Matmul, moves: list[LnOp], scale: LnOp, static: set[SSAValue]) -> list[LnOp]:
    """Put a product of the scaled first factor and the second as it is in the place of `product`; its new ops."""
    new: list[LnOp] = []

    def add(op: LnOp) -> SSAValue:
        new.append(op)
        return op.results[0]

    def number(of: LnOp, k: int) -> SSAValue:
        value = of.operands[k]
        return add(Reshape.make([value], {"dims": ()})) if spec_of(value.type).ndim else value

    which = _number(scale)
    assert which is not None
    by, a = number(scale, which), product.a
    before = a.owner
    if isinstance(before, Mul) and a.has_one_use() and (own := _number(before)) is not None:
        if {before.operands[own], scale.operands[which]} <= static:  # one number, which `hoist` computes
            by, a = add(Mul.make([number(before, own), by])), before.operands[1 - own]
    b = scale.operands[1 - which]
    for move in reversed(moves):
        b = add(type(move).make([b], move.written_params()))
    a = add(Mul.make([a, by]))
    add(Matmul.make([a, b], name=product.op_name))
    set_tensor_names(new[-1], list(tensor_names(product)))
    _replace(product, scale, moves, new)
    static.update(op.results[0] for op in new if op.operands and all(v in static for v in op.operands))
    return new


def _replace(product: Matmul, scale: LnOp, moves: list[LnOp], new: list[LnOp]) -> None:
    """Put `new` in the place of `product`, and leave out what nothing reads any more."""
    block = product.parent
    assert block is not None
    location = fused([scale, product])
    for op in new:
        set_loc(op, location)
        block.insert_op_before(op, product)
    product.dst.replace_all_uses_with(new[-1].results[0])
    before = product.a.owner
    for old in (product, *moves, scale, *([before] if isinstance(before, Mul) else [])):
        if not any(r.uses for r in old.results):
            old.detach()
            old.erase()
