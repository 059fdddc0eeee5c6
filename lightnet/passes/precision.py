"""`precision`: a network of f32 that computes in a shorter type."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from lightnet.backends.kernel_loops import bind_op
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.arith import Cast
from lightnet.dialects.ln.rules import is_yielded
from lightnet.dialects.ln.source import Source
from lightnet.dialects.ln.unary import RoundEven
from lightnet.ir import budget, rewrites
from lightnet.ir.bound import F32, Apply, walk_nodes
from lightnet.ir.instances import typical_op
from lightnet.ir.intervals import Interval, has_positions, intervals
from lightnet.ir.kernel import KernelOp
from lightnet.ir.locations import loc_of
from lightnet.ir.names import FreshNames
from lightnet.ir.op import ConstraintError, LnOp, set_tensor_names, tensor_name, tensor_names
from lightnet.ir.passes import LnPass
from lightnet.ir.schema import dtype_in_type
from lightnet.ir.types import TensorSpec, spec_of
from lightnet.passes.graph import graphs, static_values, tensor_names_in
from lightnet.runtime.dims import greatest
from lightnet.runtime.dtypes import BY_NAME, SHORT, DType

#: How large the elements of a map are taken to be: the square root of what f16 holds, and a factor of two for sums. A
#: contraction gives what one of its products gives: weights are the smaller, the more of them there are.
TYPICAL: Interval = (-128.0, 128.0)
PRODUCT: Interval = (-(128.0**2), 128.0**2)
#: The largest number of f16. bf16 holds larger ones, with fewer bits; what leaves this range stays f32 for its sake,
#: too.
LIMIT = BY_NAME["f16"].limits[1]
#: Functions that give integers of integers, and those that round: what they round counts whole ones.
WHOLE = {"add", "sub", "mul", "neg", "abs", "min", "max", "select", "cast", "round", "rint", "floor", "ceil"}


@dataclass(frozen=True)
class PrecisionPass(LnPass):
    """Compute in f16 (or bf16) between the inputs and the outputs, which keep their types.

    ```mlir
    %x = ln.input : tensor<1x3x8x8xf32>                        %x = ln.input : tensor<1x3x8x8xf32>
    %w = ln.param : tensor<4x3x3x3xf32>                        %w = ln.param : tensor<4x3x3x3xf32>
    %y = ln.conv2d %x, %w, %b {...} : tensor<1x4x8x8xf32>  ->  %x1 = ln.cast %x : tensor<1x3x8x8xf16>   (%w1, %b1 too)
                                                               %y1 = ln.conv2d %x1, %w1, %b1 {...} : tensor<…xf16>
    func.return %y : tensor<1x4x8x8xf32>                       %y = ln.cast %y1 : tensor<1x4x8x8xf32>
    ```

    f16 and bf16 are types of memory: elements that are read become f32, sums are of f32, and what is stored is rounded.
    So an op loses by them what its results lose, and an op becomes one of the short type unless its definition says
    otherwise. It stays f32, with casts around it,
    * if interval arithmetic takes a tensor that it makes, its own in between included, out of ±65504, the range of f16,
      for operands within ±128, a contraction (a sum of products of two operands) counting as one product: exponentials,
      logarithms and powers, quotients, softmax and normalisations, sums of many elements. A sigmoid, a mean of a
      window, an activation are bounded, and are not among them;
    * if it adds indices to floats, or reads elements at places that floats give: positions, which rounding by a share
      moves;
    * if what it makes becomes integers, directly or behind what gives integers of integers (moves, sums, products, the
      largest and the least) or rounds: sums that f32 holds exactly (quantised products), which rounding by a share
      moves, and which f16 may not hold;
    * if it has no definition but code (sorts, recurrent layers), or does not take the type.
    Ops on params alone stay f32 as well: they cost nothing where `hoist` puts them, and only what they give is rounded.
    A move of what an op of f32 made is one of f32. Other types than f32 are left alone.

    It stands at the end of level 1, behind `fold-batchnorm`, and before `hoist`, which makes casts of params happen
    once: weights then take half of the memory (on the CPU, whose kernels for products are of f32, `subgraph` widens
    them again).
    """

    name = "precision"
    level = "graph"
    to: str = "f16"

    @property
    def rounds_to(self) -> DType | None:
        return BY_NAME.get(self.to)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.to not in SHORT:
            raise LightNetError(
                f"precision: there is no 'to={self.to:.40}'; there are: {', '.join(SHORT)}", label="precision.to"
            )
        names = FreshNames(tensor_names_in(op), first=2)
        for block in graphs(op):
            _check_level(block)
            if not _Shortening(block, BY_NAME[self.to], names).run():
                return


def _check_level(block: Block) -> None:
    for op in block.ops:
        if isinstance(op, KernelOp):
            raise LightNetError(
                "precision: there are kernels already: it works on the graph, before 'expand'",
                loc_of(op),
                label="precision.level",
            )


def keeps_range(op: LnOp) -> bool:
    """Return whether the definition of an op says that it may compute in a short type; see the pass."""
    if op.is_move:
        return True
    if op.is_host or op.has_builder or op.definition is None:
        return False
    definition = bind_op(typical_op(op, greatest))  # of the longest sums
    if has_positions(definition):
        return False
    given = {name: TYPICAL for name, spec in definition.operands if spec.dtype.is_float}
    found = intervals(definition, given, PRODUCT)
    floats = [found[name] for name, spec in definition.results + definition.locals if spec.dtype.is_float]
    return all(-LIMIT <= low and high <= LIMIT for low, high in floats)


class _Shortening:
    """Takes the ops of a graph to a short type, one after the other; the graph is consistent between them. What is
    short is read as f32 through a cast, which its next reader looks through."""

    def __init__(self, block: Block, dtype: DType, names: FreshNames):
        self.block, self.dtype, self.names = block, dtype, names
        self.static, self.integers = static_values(block), _becoming_integers(block)
        self.casts: dict[SSAValue, SSAValue] = {}  # f32 -> short
        self.widened: list[Cast] = []

    def run(self) -> bool:
        """False where rewrites are to stop."""
        for op in budget.within(list(self.block.ops)):
            if not self._may_be_short(op):
                continue
            assert isinstance(op, LnOp)
            if (step := rewrites.begin("precision", [op])) is None:
                return False
            if new := self._shortened(op):
                step.done(new)
        for cast in self.widened:
            if cast.dst.first_use is None:
                cast.detach()
                cast.erase()
        return True

    def _may_be_short(self, op: Operation) -> bool:
        if not isinstance(op, LnOp) or isinstance(op, Source) or not op.operands or not _is_f32(op.result_specs):
            return False
        if all(v in self.static for v in op.results) or op.takes_bits or not keeps_range(op):
            return False
        if any(r in self.integers for r in op.results):
            return False
        return not op.is_move or any(self._is_short(v) for v in op.operands)

    def _is_short(self, value: SSAValue) -> bool:
        """Return whether a tensor of f32 may as well be short: it was rounded already, or nothing computed it."""
        return isinstance(value.owner, Source) or value in self.static or value in self.casts

    def _shortened(self, op: LnOp) -> list[Operation]:
        """Put an op of the short type, and casts of its results, in the place of `op`; none where there is no such op.
        Returns what is there."""
        specs = [TensorSpec(s.dims, self.dtype) if s.dtype == F32 else s for s in op.result_specs]
        cast = [v for v in dict.fromkeys(op.operands) if spec_of(v.type).dtype == F32 and v not in self.casts]
        casts = {v: Cast.make([v], {"dtype": self.dtype.tl, "mode": "wrap"}, location=op.location) for v in cast}
        short = {v: casts[v].dst if v in casts else self.casts.get(v, v) for v in op.operands}
        try:
            new = type(op).make([short[v] for v in op.operands], _params(op, self.dtype), location=op.location)
        except ConstraintError:
            new = None
        if new is None or new.result_specs != specs:
            for made in (new, *casts.values()):
                if made is not None:
                    made.erase()
            return []
        new.attributes.update(op.attributes)
        wide = self._replace(op, [*casts.values(), new])
        for value, made in casts.items():
            self._name(made.dst, tensor_name(value))
            self.casts[value] = made.dst
            if value in self.static:
                self.static.add(made.dst)
        return [*casts.values(), new, *wide]

    def _replace(self, op: LnOp, made: list[LnOp]) -> list[Cast]:
        """Put `made`, whose last stands for `op`, before it, and take `op` away; the casts back to f32 of its
        results."""
        new, wide, names = made[-1], [], list(tensor_names(op))
        for one in made:
            self.block.insert_op_before(one, op)
        for i, (old, short) in enumerate(zip(op.results, new.results)):
            if old.type == short.type:
                old.replace_all_uses_with(short)
                continue
            back = Cast.make([short], {"dtype": F32.tl}, location=op.location)
            self.block.insert_op_before(back, op)
            if any(map(is_yielded, old.uses)) and (name := names[i]) is not None:  # people ask for it by name
                set_tensor_names(back, [name])
                names[i] = self.names.fresh(f"{name}_{self.dtype}")
            old.replace_all_uses_with(back.dst)
            self.casts[back.dst] = short
            wide.append(back)
        set_tensor_names(new, names)
        self.widened += wide
        op.detach()
        op.erase()
        return wide

    def _name(self, value: SSAValue, of: str | None) -> None:
        if of is not None and isinstance(value.owner, Operation):
            set_tensor_names(value.owner, [self.names.fresh(f"{of}_{self.dtype}")])


def _is_f32(specs: list[TensorSpec]) -> bool:
    return any(s.dtype == F32 for s in specs)


def _becoming_integers(block: Block) -> set[SSAValue]:
    """The tensors that a cast makes integers of, or that are rounded to whole numbers, directly or behind ops that give
    integers of integers."""
    found: set[SSAValue] = set()
    for op in reversed(list(block.ops)):
        if isinstance(op, RoundEven) or (isinstance(op, Cast) and not op.result_specs[0].dtype.is_float):
            found.update(op.operands)
        elif isinstance(op, LnOp) and any(r in found for r in op.results) and _keeps_integers(op):
            found.update(op.operands)
    return found


def _keeps_integers(op: LnOp) -> bool:
    """Return whether an op computes integers where what it reads are integers."""
    if op.is_move:
        return True
    if op.is_host or op.has_builder or op.definition is None:
        return False
    nodes = [n for s in bind_op(typical_op(op)).statements for n in walk_nodes(s.value) if isinstance(n, Apply)]
    return all(n.fn in WHOLE for n in nodes if n.dtype.is_float)


def _params(op: LnOp, dtype: DType) -> dict:
    """The parameters of an op whose results are of the short type."""
    values = op.param_values()
    return values | {
        p.name: dtype.tl for p in op.schema.params if p.in_type is dtype_in_type and values[p.name] == F32.tl
    }
