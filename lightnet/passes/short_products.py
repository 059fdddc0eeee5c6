"""`short-products`: products of bf16 with sums of f32, where these take less time."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue, Use

from lightnet.dialects.ln.arith import Add, Cast
from lightnet.dialects.ln.conv import Conv2d
from lightnet.dialects.ln.integer import Conv2dShort, MatmulShort
from lightnet.dialects.ln.matmul import Matmul, gemm_shape
from lightnet.dialects.ln.move import Concat, Reshape, Transpose
from lightnet.dialects.ln.rules import is_yielded
from lightnet.dialects.ln.source import Source
from lightnet.ir import budget, rewrites
from lightnet.ir.access import is_elementwise
from lightnet.ir.bound import F32
from lightnet.ir.instances import is_open, typical_op
from lightnet.ir.names import FreshNames
from lightnet.ir.op import LnOp
from lightnet.ir.passes import LnPass
from lightnet.ir.target import get_target
from lightnet.ir.types import spec_of
from lightnet.passes.graph import graphs, static_values, tensor_names_in
from lightnet.passes.integers import time_on_maps
from lightnet.passes.whole_numbers import NewOps, replace_result
from lightnet.runtime.dims import Dim, typical
from lightnet.runtime.dtypes import BY_NAME, DType

#: The type that there are products of (None without ml_dtypes), and what asks for them.
FACTORS, ASKING = BY_NAME.get("bf16"), ("bf16", "auto")
#: Bytes a nanosecond that a tensor is rounded at, read and written, where its producer cannot do it.
ROUNDING_RATE = 30.0
#: The moves of which what they read is rounded, if nothing else reads what they give.
MOVES = (Concat, Reshape, Transpose)
#: Rows and columns of products of computed matrices, at least: of the second one, pairs are made.
LEAST_ROWS, LEAST_COLUMNS = 32, 16


@dataclass(frozen=True)
class ShortProductsPass(LnPass):
    """Multiply in bf16, and sum in f32, where the processor has products of two bf16 and less time is predicted.

    ```mlir
    %y = ln.matmul %a, %b : tensor<8x16xf32>    ->    %a1 = ln.cast %a : tensor<8x32xbf16>   (%b1 too)
                                                      %y = ln.matmul_short %a1, %b1 : tensor<8x16xf32>
    ```

    Factors are rounded, once for all products that read them, sums and all else stay f32: a rounding becomes part of
    what makes the tensor, and one of weights happens at load. A convolution or a product by static weights becomes one
    of bf16 if the models of the target say that this takes less time than its best form in f32 (Winograd's, say), the
    rounding of its map included; a product of two computed matrices if the first one has enough rows. `to` is ``bf16``
    or ``auto`` (both mean that), or ``f32``: then only products of tensors that are bf16 already are taken, whose sums
    are rounded as before. Processors are told by their `features`; where one has no such products, or with `exact`,
    nothing changes.
    """

    name = "short-products"
    level = "graph"
    target: str = "cpu"
    features: str = ""
    to: str = "f32"
    exact: bool = False

    @property
    def rounds_to(self) -> DType | None:
        return FACTORS if self.to in ASKING else None

    @property
    def types(self) -> tuple[DType, ...]:
        """The types of factors that are taken."""
        assert FACTORS is not None
        return (FACTORS, F32) if self.rounds_to else (FACTORS,)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in graphs(op) if self.finds_some() else ():
            products = (o for o in budget.within(block.ops) if isinstance(o, Conv2d | Matmul))
            if any(spec_of(o.operands[0].type).dtype in self.types for o in products):
                Shortening(block, self, FreshNames(tensor_names_in(op))).run()

    def finds_some(self) -> bool:
        """Return whether there may be products that it takes."""
        return FACTORS is not None and not self.exact and get_target(self.target).multiplies_short(self.features)


class Shortening:
    """Takes the products of a graph to those of bf16."""

    def __init__(self, block: Block, made: ShortProductsPass, names: FreshNames):
        assert FACTORS is not None
        self.block, self.made, self.names, self.dtype = block, made, names, FACTORS
        self.types = made.types
        self.static = static_values(block)
        self.short: dict[SSAValue, SSAValue] = {}
        self.moved: list[LnOp] = []  # of which what is read is rounded

    def run(self) -> None:
        for op in list(self.block.ops):
            budget.check(op)
            if isinstance(op, Conv2d | Matmul) and self.pays(op):
                if (step := rewrites.begin("short-products", [op])) is None:
                    return
                step.done(self.multiply(op))
        for value, short in self.short.items():
            self.read_short(value, short)

    def pays(self, op: Conv2d | Matmul) -> bool:
        """Return whether a product takes less time in bf16 than in f32; of two computed matrices, whether it is one of
        some size."""
        if isinstance(op, Matmul) and op.b not in self.static and not is_open([*op.operands, *op.results]):
            _, m, k, n = gemm_shape(op)
            is_large = m >= LEAST_ROWS and n >= LEAST_COLUMNS and k % 2 == 0 < k
            return is_large and all(s.dtype in self.types for s in op.operand_specs)
        times = self.times(op)
        return bool(times) and times["bf16"] < times["f32"]

    def times(self, op: Conv2d | Matmul) -> dict[str, float]:
        """Nanoseconds of a product by static weights in each type, with the rounding of its map; none where it has no
        kernel in one of them."""
        (src, weight, *_), kind = op.operand_specs, Conv2dShort if isinstance(op, Conv2d) else MatmulShort
        if src.dtype not in self.types or weight.dtype != src.dtype or op.operands[1] not in self.static:
            return {}
        if weight.open_dims or (isinstance(op, Conv2d) and any(isinstance(d, Dim) for d in src.dims[1:])):
            return {}
        like, x = typical_op(op), op.operands[0]
        ways = {"f32": (type(op), like.operand_specs), "bf16": (kind, like.operand_specs[:2])}
        found: dict[str, float] = {}
        for name, (made, specs) in ways.items():
            of_type = [spec._replace(dtype=BY_NAME[name]) for spec in specs]
            if (time := time_on_maps(self.made.target, self.made.features, made, of_type, like)) is None:
                return {}
            found[name] = time
        if src.dtype == F32 and not (x in self.short or x in self.static or x.has_one_use()):
            found["bf16"] += typical(src.len) * 6 / ROUNDING_RATE  # what makes it does not round it
        return found

    # conv(x, w) + b = conv(round(x), round(w)) + b, but for the rounding
    def multiply(self, op: Conv2d | Matmul) -> list[LnOp]:
        """Put a product of bf16 in the place of one of f32 or bf16; what was made."""
        kind = Conv2dShort if isinstance(op, Conv2d) else MatmulShort
        factors = [self.rounded(v) for v in op.operands[:2]]
        new = NewOps(self.block, op, self.names)
        made = new.add(kind.make(factors, op.param_values(), location=op.location))
        if isinstance(op, Conv2d) and op.bias is not None:
            made = new.add(Add.make([made, new.reshape(new.cast(op.bias, F32), (spec_of(op.bias.type).len, 1, 1))]))
        replace_result(op, new.cast(made, op.result_specs[0].dtype), new)
        for move in self.moved:
            if move.results[0].first_use is None:
                move.detach()
                move.erase()
        self.moved.clear()
        return new.made

    # f(x) = f(widened(round(x))), but for the rounding
    def read_short(self, value: SSAValue, short: SSAValue) -> None:
        """Let elementwise ops read a factor as it was rounded, where that is all that is read of it then: it stands in
        memory once, in half of its bytes."""
        others = [use for use in value.uses if use.operation is not short.owner]
        if value in self.static or isinstance(value.owner, Source) or not all(map(_is_elementwise, others)):
            return
        for use in others:
            use.operation.operands[use.index] = NewOps(self.block, use.operation, self.names).cast(short, F32)

    def rounded(self, value: SSAValue) -> SSAValue:
        """A factor in bf16: where it is made, so that this rounds it, and all its readers read one."""
        op = value.owner
        if spec_of(value.type).dtype == self.dtype:
            return value
        if isinstance(op, Cast) and spec_of(op.src.type).dtype == self.dtype:
            return op.src
        if value not in self.short:
            new = NewOps(self.block, op, self.names, behind=True)
            if isinstance(op, MOVES) and value.has_one_use() and value not in self.static:
                self.moved.append(op)  # round(move(x)) = move(round(x))
                parts = [self.rounded(v) for v in op.operands]
                return new.add(type(op).make(parts, op.param_values(), location=op.location))
            self.short[value] = new.cast(value, self.dtype)
            if value in self.static:
                self.static.add(self.short[value])
        return self.short[value]


def _is_elementwise(use: Use) -> bool:
    """Return whether a use is that of an elementwise op, which may read the value from other memory."""
    return not is_yielded(use) and isinstance(use.operation, LnOp) and bool(is_elementwise(use.operation))
