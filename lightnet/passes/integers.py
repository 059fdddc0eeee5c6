"""`integers`: a quantised network computes in integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue, Use

from lightnet.dialects.ln.arith import Add, Cast, Div, Equal, Less, Mul, Sub, Where
from lightnet.dialects.ln.conv import Conv2d
from lightnet.dialects.ln.elementwise import Relu
from lightnet.dialects.ln.integer import SUMS, Conv2dInteger, MatmulInteger
from lightnet.dialects.ln.matmul import Matmul
from lightnet.dialects.ln.move import Concat, Reshape, Slice, Transpose
from lightnet.dialects.ln.pool import Maxpool2d
from lightnet.dialects.ln.rules import is_yielded
from lightnet.dialects.ln.source import ConstantOp, known
from lightnet.dialects.ln.unary import RoundClip, RoundEven
from lightnet.ir import budget, rewrites
from lightnet.ir.names import OP_NAME, FreshNames
from lightnet.ir.op import LnOp, set_tensor_names, tensor_name, tensor_names
from lightnet.ir.passes import LnPass
from lightnet.ir.target import Blocking, get_target
from lightnet.ir.types import TensorSpec, spec_of, tensor_type
from lightnet.passes.graph import graphs, static_values, tensor_names_in
from lightnet.runtime.dims import Dim
from lightnet.runtime.dtypes import BY_NAME, DType

F32 = BY_NAME["f32"]
#: Floats that hold whole numbers of the ranges here.
FLOATS_OF_WHOLE = ("f32", "f64")
#: The types of two factors whose products of four, or of two, are one instruction.
BYTES, WORDS = (BY_NAME["ui8"], BY_NAME["i8"]), (BY_NAME["i16"], BY_NAME["i16"])
#: The scales that another one is multiplied with before it is known.
MODERATE = 2.0**-24, 2.0**24
#: How much longer integers may take than Winograd's floats: their maps and weights take less memory, of which the model
#: of one convolution does not know all.
LENIENCE = 1.3
#: Channels of a group from which on a convolution is one of integers: with fewer, a product of two channels is a waste.
LEAST_CHANNELS = 8
#: Channels of which a group has a multiple where there are several: whole blocks of the widest vectors.
GROUP_CHANNELS = 16
#: What gives of whole numbers in a range whole numbers in it, and of numbers times a scale above 0 the same times it.
CHOOSES = (Concat, Maxpool2d, Reshape, Slice, Transpose)

#: Limits of rounded tensors that are written into code, as parameters: others are operands, so that kernels that differ
#: in zero points alone are one.
COMMON = {(0.0, 255.0), (-128.0, 127.0), (0.0, 127.0), (-127.0, 127.0)}

Range = tuple[int, int]


@dataclass(frozen=True)
class IntegersPass(LnPass):
    """Multiply integers where a network multiplies numbers that are integers times a scale.

    ```mlir
    %a = ln.sub (ln.cast %q : ui8 to f32), 128       %a = ln.cast (ln.sub …) : tensor<…xi16>
    %x = ln.mul %a, %s                               %v = ln.cast %weights : i8 to tensor<…xi16>
    %w = ln.mul (ln.cast %weights), %t          ->   %n = ln.conv2d_integer %a, %v : tensor<…xi32>
    %y = ln.conv2d %x, %w, %b                        %y = ln.add (ln.mul (ln.cast %n), (ln.mul %s, %t)), %b
    ```

    What is whole, and in which range, follows from casts of integers, constants, roundings and what only moves or
    chooses elements: no form that some exporter writes is looked for. Sums of integers are exact; that their
    scales are multiplied once, behind the sum, changes rounding, as does a quotient that becomes a product, so
    with `exact` only products without scales become those of integers. What is rounded to an integer type and read
    back is clamped as a float, in which -0 stays what it is. Factors of 0 to 255 by such of -128 to 127 are
    multiplied as bytes where the processor (`features`) has that, others as words of 16 bits. Where a convolution
    of floats takes less time (Winograd's), it stays one: which is told by the target's models. Convolutions of few
    channels, of open pictures, and on maps that stay plain (`layout`) are left alone: they have kernels for floats
    only. For targets that multiply integers faster.
    """

    name = "integers"
    level = "graph"
    target: str = "cpu"
    features: str = ""
    layout: str = ""
    exact: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in graphs(op):
            kinds = set()
            for one in block.ops:
                budget.check(one)
                kinds.add(type(one))
            if Cast in kinds and kinds & {Conv2d, Matmul}:
                _Narrowing(block, self, FreshNames(tensor_names_in(op))).run()


class _Narrowing:
    """Takes the products of a graph to integers."""

    def __init__(self, block: Block, made: IntegersPass, names: FreshNames):
        self.block, self.exact, self.names = block, made.exact, names
        self.target, self.features = get_target(made.target), made.features
        self.bytes, self.on_maps = self.target.multiplies_bytes(made.features), made.layout != "plain"
        self.static = static_values(block)
        self.ranges: dict[SSAValue, Range | None] = {}
        self.integers: dict[tuple[SSAValue, DType], SSAValue] = {}

    def run(self) -> None:
        for op in [] if self.exact else list(self.block.ops):
            if isinstance(op, Sub | Cast):
                self.shorten(op)
            elif isinstance(op, (*CHOOSES, Relu)):
                self.scale_behind(op)
        for op in list(self.block.ops):
            budget.check(op)
            if isinstance(op, Conv2d) and self.on_maps:
                self.convolve(op)
            elif isinstance(op, Matmul):
                self.multiply_matrices(op)

    # -- what is known

    def range_of(self, value: SSAValue) -> Range | None:
        """The range of a tensor of whole numbers; None where nothing says that it is one."""
        if value not in self.ranges:
            self.ranges[value] = self._range(value)
        return self.ranges[value]

    def _range(self, value: SSAValue) -> Range | None:
        op, dtype = value.owner, spec_of(value.type).dtype
        if not dtype.is_float and dtype.size <= 2:
            low, high = dtype.limits
            return int(low), int(high)
        if isinstance(op, Cast) and dtype.name in FLOATS_OF_WHOLE:
            return self.range_of(op.src)
        if (array := known(value)) is not None:
            whole = array.size and np.array_equal(array, np.rint(array)) and float(np.abs(array).max()) < 1 << 20
            return (int(array.min()), int(array.max())) if whole else None
        if isinstance(op, Add | Sub):
            left, right = map(self.range_of, op.operands)
            if left is None or right is None:
                return None
            low, high = right if isinstance(op, Add) else (-right[1], -right[0])
            return (left[0] + low, left[1] + high) if max(map(abs, (*left, *right))) < 1 << 20 else None
        if isinstance(op, Relu):
            found = self.range_of(op.operands[0])
            return found and (max(found[0], 0), max(found[1], 0))
        if isinstance(op, CHOOSES):
            ranges = [r for v in op.operands if (r := self.range_of(v)) is not None]
            if len(ranges) == len(op.operands):
                return min(low for low, _ in ranges), max(high for _, high in ranges)
        return None

    def scaled(self, value: SSAValue) -> tuple[SSAValue, SSAValue | None]:
        """The whole numbers and the scale (None: 1) that a tensor is the product of; its own numbers if it is none."""
        op = value.owner
        if isinstance(op, Mul):
            for k in (0, 1):
                numbers, scale = op.operands[k], op.operands[1 - k]
                if spec_of(numbers.type) == spec_of(value.type) and self.range_of(numbers) is not None:
                    return numbers, scale
        if isinstance(op, Transpose) and value in self.static and op.src.owner.__class__ is Mul:  # of weights
            numbers, by = self.scaled(op.src)
            if by is not None and spec_of(value.type).ndim == 2 and op.axes == (1, 0):
                new = NewOps(self.block, op, self.names)
                turned = new.add(Transpose.make([numbers], {"axes": (1, 0)}))
                if spec_of(by.type).len > 1:
                    rows = new.reshape(by, ((1,) * (2 - spec_of(by.type).ndim)) + spec_of(by.type).dims)
                    by = new.add(Transpose.make([rows], {"axes": (1, 0)}))
                self.static.update(o.results[0] for o in new.made)
                return turned, by
        return value, None

    # -- what is rounded and read back

    # cast(saturate(round(x) + z)) - z = clamp(round(x), low - z, high - z)
    def shorten(self, op: LnOp) -> None:
        """Clamp what was rounded to an integer type, moved by a zero point, and is read as floats again."""
        (result,) = op.results
        if spec_of(result.type).dtype != F32:
            return
        read, zero = (op.operands[0], known(op.operands[1])) if isinstance(op, Sub) else (result, np.zeros(()))
        if isinstance(op, Cast) and any(isinstance(u.operation, Sub) and u.index == 0 for u in result.uses):
            return  # whose turn comes
        if (
            zero is None
            or zero.size != 1
            or not isinstance(read.owner, Cast)
            or not isinstance(read.owner.src.owner, Cast)
        ):
            return
        stored = read.owner.src.owner
        kind = spec_of(stored.dst.type).dtype
        if kind.is_float or kind.size > 2 or stored.mode != "saturate" or spec_of(stored.src.type).dtype != F32:
            return
        number, at = stored.src, float(zero.reshape(()))
        if isinstance(number.owner, Add) and (moved := known(number.owner.src2)) is not None:
            if moved.size != 1 or float(moved.reshape(())) != at:
                return
            number = number.owner.src1
        elif at:
            return
        if not isinstance(number.owner, RoundEven) or spec_of(number.type) != spec_of(result.type):
            return
        if (step := rewrites.begin("integers", [op, stored])) is None:
            return
        new = NewOps(self.block, op, self.names)
        limits = float(kind.limits[0]) - at, float(kind.limits[1]) - at
        self.replace(op, self.clamped(number.owner.src, limits, -at, new), new)
        step.done(new.made)

    # f(concat(x, y)) = concat(f(x), f(y))
    def clamped(self, value: SSAValue, limits: tuple[float, float], nan: float, new: NewOps) -> SSAValue:
        """`value` rounded, within limits, and `nan` for NaN. What is put together is rounded before, where its parts
        are made."""
        by = self.divisor(value)
        parts = value.owner.src1 if by is not None and isinstance(value.owner, Div) else value
        if isinstance(parts.owner, Concat) and parts.has_one_use():
            found = [self.rounded(v, by, limits, nan, new) for v in parts.owner.operands]
            made = new.add(Concat.make(found, parts.owner.param_values(), location=parts.owner.location))
        else:
            made = self.rounded(parts, by, limits, nan, new)
        self.ranges.setdefault(made, (int(limits[0]), int(limits[1])))
        return made

    def rounded(
        self, value: SSAValue, by: float | None, limits: tuple[float, float], nan: float, new: NewOps
    ) -> SSAValue:
        """`value` divided by a number, where there is one, rounded, within limits, and `nan` for NaN."""
        numbers, scale = self.scaled(value)
        factor = None if scale is None else known(scale)
        if by is not None and factor is not None and factor.size == 1 and float(factor.reshape(())) == by:
            whole, own = numbers, self.range_of(numbers)
            if own is not None and limits[0] <= own[0] and own[1] <= limits[1]:
                return whole
        else:
            if by is not None:
                value = new.add(Mul.make([value, new.constant(float(np.float32(1) / np.float32(by)))]))
            if limits in COMMON and nan == limits[0]:
                made = new.add(RoundClip.make([value], {"low": limits[0], "high": limits[1]}))
                self.ranges[made] = int(limits[0]), int(limits[1])
                return made
            whole = new.add(RoundEven.make([value]))
        low, high = map(new.constant, limits)
        # NaN is above nothing: it becomes the lowest, which of types without a sign is the 0 that a cast makes of it
        above = new.add(Where.make([new.add(Less.make([low, whole])), whole, low]))
        if nan != limits[0]:
            above = new.add(Where.make([new.add(Equal.make([whole, whole])), above, new.constant(nan)]))
        made = new.add(Where.make([new.add(Less.make([above, high])), above, high]))
        self.ranges[made] = int(limits[0]), int(limits[1])
        return made

    def divisor(self, value: SSAValue) -> float | None:
        """The number by which a tensor is divided, where the product with its inverse will do."""
        if self.exact or not isinstance(value.owner, Div) or (by := known(value.owner.src2)) is None or by.size != 1:
            return None
        if spec_of(value.owner.src1.type) != spec_of(value.type):
            return None  # of more dims
        number = float(by.reshape(()))
        tiny = float(np.finfo(np.float32).tiny)
        return number if tiny <= abs(number) <= 1 / tiny else None

    # choose(s * x) = s * choose(x), for s > 0
    def scale_behind(self, op: LnOp) -> None:
        """Choose among whole numbers, and multiply what was chosen."""
        found = [self.scaled(v) for v in op.operands]
        scales = [None if s is None else known(s) for _, s in found]
        if any(s is None or s.size != 1 for s in scales) or len(op.results) != 1:
            return
        numbers = {float(s.reshape(())) for s in scales if s is not None}
        if len(numbers) != 1 or not min(numbers) > 0:
            return
        if (step := rewrites.begin("integers", [op])) is None:
            return
        new = NewOps(self.block, op, self.names)
        chosen = new.add(type(op).make([v for v, _ in found], op.param_values(), location=op.location))
        made = new.add(Mul.make([chosen, new.constant(min(numbers))]))
        self.replace(op, made, new)
        step.done(new.made)

    # -- products

    # conv(s a, t w) + b = (s t) conv(a, w) + b
    def convolve(self, op: Conv2d) -> None:
        """Put a convolution of integers in the place of one of floats."""
        (outputs, channels), pixels = spec_of(op.weight.type).dims[:2], spec_of(op.dst.type).dims[2:]
        least = LEAST_CHANNELS if op.group == 1 else GROUP_CHANNELS
        if channels < least or any(isinstance(d, Dim) for d in (outputs, channels, *pixels)):
            return
        if op.group > 1 and (channels % GROUP_CHANNELS or outputs // op.group % GROUP_CHANNELS):
            return
        per_output = (outputs, 1, 1, 1)
        depth = prod(spec_of(op.weight.type).dims[1:])

        def made(new: NewOps, src: SSAValue, weight: SSAValue) -> SSAValue:
            return new.add(Conv2dInteger.make([src, weight], op.param_values(), location=op.location))

        self.multiply(op, op.src, op.weight, per_output, channels, depth, made, op.bias)

    # (s a) (t b) = (s t) a b, with a t for each column of b
    def multiply_matrices(self, op: Matmul) -> None:
        """Put a product of integer matrices in the place of one of floats, by a matrix that is known at load."""
        spec = spec_of(op.b.type)
        if spec.ndim != 2 or any(isinstance(d, Dim) for d in spec.dims) or spec.dims[1] < 2:
            return

        def made(new: NewOps, a: SSAValue, b: SSAValue) -> SSAValue:
            return new.add(MatmulInteger.make([a, b], location=op.location))

        self.multiply(op, op.a, op.b, (1, spec.dims[1]), spec.dims[0], spec.dims[0], made)

    def multiply(
        self,
        op: LnOp,
        left: SSAValue,
        right: SSAValue,
        per_output: tuple[int, ...],
        channels: int,
        depth: int,
        make: Callable[[NewOps, SSAValue, SSAValue], SSAValue],
        bias: SSAValue | None = None,
    ) -> None:
        """Put the scaled product that `make` makes of two factors as integers in the place of `op`, whose sums have
        `depth` products, and read `channels` that lie together; scales of the right one may have the dims
        `per_output`."""
        result = op.result_specs[0]
        if result.dtype.name not in FLOATS_OF_WHOLE or right not in self.static:
            return
        factors = self.scaled(left), self.scaled(right)
        ranges = [self.range_of(numbers) for numbers, _ in factors]
        scales = [scale for _, scale in factors if scale is not None]
        if ranges[0] is None or ranges[1] is None or (self.exact and scales):
            return
        types = _types(ranges[0], ranges[1], channels, self.bytes)
        if types is None or depth * max(map(abs, ranges[0])) * max(map(abs, ranges[1])) > SUMS.limits[1]:
            return
        if scales and isinstance(op, Conv2d) and not self.pays(op, types):
            return
        outputs = max(per_output)
        for scale, most in zip((f[1] for f in factors), (1, outputs)):
            spec = None if scale is None else spec_of(scale.type)
            if spec is not None and spec.len != 1 and (spec.len != most or spec.dims != per_output[-spec.ndim :]):
                return
        if (step := rewrites.begin("integers", [op])) is None:
            return
        a, b = (self.as_integers(numbers, dtype) for (numbers, _), dtype in zip(factors, types))
        new = NewOps(self.block, op, self.names)
        product = make(new, a, b)
        along = (outputs,) + (1,) * (result.ndim - 2 if result.ndim == 4 and bias is not None else 0)
        if not scales and bias is not None and self.is_sum(bias):
            whole = self.as_integers(bias, SUMS)
            product, bias = new.add(Add.make([product, new.reshape(whole, along)])), None
        if not scales and bias is None:
            self.read_whole(op, product, new)
        number = new.cast(product, result.dtype)
        by = [new.reshape(new.cast(s, result.dtype), along if spec_of(s.type).len > 1 else ()) for s in scales]
        if len(by) == 2 and _have_product([known(s) for s in scales]):
            by = [new.add(Mul.make(by))]
        for scale in reversed(by):
            number = new.add(Mul.make([number, scale]))
        if bias is not None:
            number = new.add(Add.make([number, new.reshape(bias, along)]))
        self.replace(op, number, new)
        step.done(new.made)

    def is_sum(self, value: SSAValue) -> bool:
        """Return whether a tensor of floats is one of `SUMS`, as biases of quantised convolutions are: ONNX adds them
        to sums in that type, in which it may wrap around."""
        return isinstance(value.owner, Cast) and spec_of(value.owner.src.type).dtype == SUMS

    # cast(cast(x, floats that hold it), type) = cast(x, type)
    def read_whole(self, op: LnOp, product: SSAValue, new: NewOps) -> None:
        """Let casts of the result of `op` read its sums as integers: in i32 and f32, there are no doubles between."""
        for cast in [use.operation for use in op.results[0].uses]:
            if isinstance(cast, Cast) and cast.result_specs[0].dtype in (SUMS, F32):
                self.replace(cast, new.cast(product, cast.result_specs[0].dtype), new)

    def pays(self, op: Conv2d, types: tuple[DType, DType]) -> bool:
        """Return whether the target says that a convolution takes less time in integers of these types. By Winograd,
        one of floats multiplies 2 or 4 times less; it is what ONNX defines, so which one is taken changes rounding."""
        integers = [spec._replace(dtype=t) for spec, t in zip(op.operand_specs, types)]
        kinds = (Conv2d, op.operand_specs), (Conv2dInteger, integers)
        by_floats, by_integers = (
            time_on_maps(self.target.name, self.features, kind, specs, op) for kind, specs in kinds
        )
        return by_floats is None or by_integers is None or by_integers <= LENIENCE * by_floats

    def as_integers(self, value: SSAValue, dtype: DType) -> SSAValue:
        """A tensor of whole numbers in an integer type; what else reads the floats reads them from there."""
        if (value, dtype) in self.integers:
            return self.integers[value, dtype]
        op, original = value.owner, spec_of(value.type).dtype
        if not original.is_float:
            made = value if original == dtype else NewOps(self.block, op, self.names, behind=True).cast(value, dtype)
            self.integers[value, dtype] = made
            return made
        if isinstance(op, Cast):
            self.integers[value, dtype] = made = self.as_integers(op.src, dtype)
            return made
        inner = [self.as_integers(v, dtype) for v in op.operands] if isinstance(op, CHOOSES) else []
        new = NewOps(self.block, op, self.names, behind=True)
        if isinstance(op, CHOOSES):
            made = new.add(type(op).make(inner, op.param_values(), location=op.location))
        else:
            made = new.cast(value, dtype)
        self.integers[value, dtype] = made

        def is_other(use: Use) -> bool:
            return use.operation not in new.made and not is_yielded(use)

        if any(map(is_other, value.uses)):
            back = new.cast(made, original)
            value.replace_uses_with_if(back, is_other)
            self.ranges[back], self.integers[back, dtype] = self.range_of(value), made
            if value in self.static:
                self.static.add(back)
        return made

    def replace(self, op: LnOp, value: SSAValue, new: NewOps) -> None:
        """Let a new value take the place of the result of `op`."""
        if all(v in self.static for v in op.operands):
            self.static.add(value)
        replace_result(op, value, new)


def replace_result(op: LnOp, value: SSAValue, new: NewOps) -> None:
    """Let a value, of which `new` ops are made, take the place and the name of the result of `op`."""
    assert isinstance(value.owner, LnOp)
    if value.owner in new.made:
        set_tensor_names(value.owner, list(tensor_names(op)))
        if OP_NAME in op.attributes:
            value.owner.attributes[OP_NAME] = op.attributes[OP_NAME]
    op.results[0].replace_all_uses_with(value)
    op.detach()
    op.erase()


def time_on_maps(target: str, features: str, kind: type[LnOp], specs: Sequence[TensorSpec], like: LnOp) -> float | None:
    """Nanoseconds that an op of a kind, with operands of these types and the parameters of another op, takes on maps by
    the models of a target; None where it has no kernel there."""
    architecture, types = get_target(target), [tensor_type(spec) for spec in specs]
    outside, body = Block(arg_types=types), Block(arg_types=types)
    op = kind.make(list(body.args), like.param_values())
    body.add_op(op)
    way = architecture.blocking(architecture.kernel_op.around(body, outside.args, op.results), features)
    return way.blocked if isinstance(way, Blocking) else None


def _types(left: Range, right: Range, channels: int, bytes: bool) -> tuple[DType, DType] | None:
    """The types in which factors of these ranges are multiplied, where sums take so many channels, and `bytes` may be:
    None where there are none."""
    kinds = [(BYTES, channels % 4)] * bytes + [(WORDS, channels % 2)]
    for types, rest in kinds:
        if not rest and all(t.limits[0] <= low and high <= t.limits[1] for t, (low, high) in zip(types, (left, right))):
            return types
    return None


def _have_product(scales: Sequence[np.ndarray | None]) -> bool:
    """Return whether the product of two scales is neither above all f32 nor below those of 24 bits, as far as they are
    known: one that is `MODERATE` has one with all that a network of such has."""
    sizes = [np.abs(s.astype(np.float64)) for s in scales if s is not None]
    low, high = (np.finfo(np.float32).tiny, np.finfo(np.float32).max) if len(sizes) == 2 else MODERATE
    return bool(sizes) and all(low <= by <= high for by in np.prod(np.broadcast_arrays(*sizes), axis=0).flat)


class NewOps:
    """New ops in front of another one, or `behind` it."""

    def __init__(self, block: Block, at: Operation | Block, names: FreshNames, behind: bool = False):
        if not isinstance(at, Operation) or at.parent is not block:  # what comes from outside is there from the start
            assert block.first_op is not None
            at, behind = block.first_op, False
        self.block, self.at, self.names, self.behind = block, at, names, behind
        self.made: list[LnOp] = []

    def add(self, op: LnOp) -> SSAValue:
        """The result of an op that is put there."""
        if self.behind:
            self.block.insert_op_after(op, self.made[-1] if self.made else self.at)
        else:
            self.block.insert_op_before(op, self.at)
        name = tensor_name(self.at.results[0]) if isinstance(self.at, LnOp) else None
        set_tensor_names(op, [self.names.fresh(name or op.optype)])
        self.made.append(op)
        return op.results[0]

    def constant(self, number: float) -> SSAValue:
        return self.add(ConstantOp.make([], {"dims": (), "dtype": F32.tl, "data": (number,)}))

    def cast(self, value: SSAValue, dtype: DType) -> SSAValue:
        """`value` in another type; beyond the range of a short one it is infinite."""
        mode = {"mode": "wrap"} if dtype.is_short else {}
        return (
            value if spec_of(value.type).dtype == dtype else self.add(Cast.make([value], {"dtype": dtype.tl, **mode}))
        )

    def reshape(self, value: SSAValue, dims: tuple[int, ...]) -> SSAValue:
        return value if spec_of(value.type).dims == dims else self.add(Reshape.make([value], {"dims": dims}))
