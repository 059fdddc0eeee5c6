"""`integers`: a quantised network computes in integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue, Use

from lightnet.dialects.ln.arith import Add, Cast, Div, Equal, Less, Mul, Sub, Where
from lightnet.dialects.ln.conv import Conv2d
from lightnet.dialects.ln.elementwise import Relu
from lightnet.dialects.ln.integer import SUMS, Conv2dInteger, MatmulInteger
from lightnet.dialects.ln.matmul import Matmul
from lightnet.dialects.ln.move import Concat
from lightnet.dialects.ln.rearrange import Pad
from lightnet.dialects.ln.reduce import ReduceSum
from lightnet.dialects.ln.rules import is_yielded
from lightnet.dialects.ln.source import known
from lightnet.dialects.ln.unary import RoundClip, RoundEven
from lightnet.ir import budget, rewrites
from lightnet.ir.bound import F32
from lightnet.ir.names import FreshNames
from lightnet.ir.op import LnOp
from lightnet.ir.passes import LnPass
from lightnet.ir.target import Blocking, get_target
from lightnet.ir.types import TensorSpec, spec_of, tensor_type
from lightnet.passes.graph import graphs, tensor_names_in
from lightnet.passes.whole_numbers import CHOOSES, FLOATS_OF_WHOLE, NewOps, Range, WholeNumbers, replace_result
from lightnet.runtime.dims import Dim
from lightnet.runtime.dtypes import BY_NAME, DType

#: The types of two factors whose products of four, or of two, are one instruction.
BYTES, WORDS = (BY_NAME["ui8"], BY_NAME["i8"]), (BY_NAME["i16"], BY_NAME["i16"])
#: The largest number of a byte.
BYTE = 255
#: The scales that another one is multiplied with before it is known.
MODERATE = 2.0**-24, 2.0**24
#: How much longer integers may take than Winograd's floats: their maps and weights take less memory, of which the model
#: of one convolution does not know all.
LENIENCE = 1.3
#: Channels of a group from which on a convolution is one of integers: with fewer, a product of two channels is a waste.
LEAST_CHANNELS = 8
#: The same where there are products of four bytes: what fills them up is multiplied in vain.
LEAST_OF_BYTES = 3
#: Channels of which a group has a multiple where there are several: whole blocks of the widest vectors.
GROUP_CHANNELS = 16
#: Limits of rounded tensors that are written into code, as parameters: others are operands, so that kernels that differ
#: in zero points alone are one.
COMMON = {(0.0, 255.0), (-128.0, 127.0), (0.0, 127.0), (-127.0, 127.0)}


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
    back is clamped as a float, in which -0 stays what it is. Factors of at most 256 numbers by such of -128 to 127 are
    multiplied as bytes where the processor (`features`) has that (less their lowest number, whose products are added
    to the sums, and with which a map is padded), others as words of 16 bits. Where a convolution of floats takes less
    time (Winograd's), it stays one: which is told by the target's models. Channels are filled up to what one product
    takes; convolutions of very few, of open pictures, and on maps that stay plain (`layout`) are left alone: they have
    kernels for floats only. For targets that multiply integers faster.
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


class _Narrowing(WholeNumbers):
    """Takes the products of a graph to integers."""

    def __init__(self, block: Block, made: IntegersPass, names: FreshNames):
        super().__init__(block, names)
        self.exact = made.exact
        self.target, self.features = get_target(made.target), made.features
        self.bytes, self.on_maps = self.target.multiplies_bytes(made.features), made.layout != "plain"
        self.integers: dict[tuple[SSAValue, DType, int], SSAValue] = {}
        #: Of what has the limits of a byte less its lowest number: the numbers without limits.
        self.unlimited: dict[SSAValue, SSAValue] = {}

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
            if nan != limits[0]:  # of NaN, which is above nothing, the lowest is made
                value = new.add(Where.make([new.add(Equal.make([value, value])), value, new.constant(nan)]))
            whole = new.add(RoundEven.make([value]))
        if whole is not numbers and limits in COMMON:
            made = new.add(RoundClip.make([value], {"low": limits[0], "high": limits[1]}))
        else:
            low, high = map(new.constant, limits)
            above = new.add(Where.make([new.add(Less.make([low, whole])), whole, low]))
            made = new.add(Where.make([new.add(Less.make([above, high])), above, high]))
        self.ranges[made] = int(limits[0]), int(limits[1])
        if limits[1] - limits[0] == BYTE:
            self.unlimited[made] = whole
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
        moved = op.src.owner  # by what a call decides, there are scales behind that it decides
        few = self.bytes and not (isinstance(moved, Sub) and known(moved.src2) is None)
        least = GROUP_CHANNELS if op.group > 1 else LEAST_OF_BYTES if few else LEAST_CHANNELS
        if channels < least or any(isinstance(d, Dim) for d in (outputs, channels, *pixels)):
            return
        if op.group > 1 and (channels % GROUP_CHANNELS or outputs // op.group % GROUP_CHANNELS):
            return
        per_output = (outputs, 1, 1, 1)
        depth = prod(spec_of(op.weight.type).dims[1:])

        top, left, bottom, right = pad = op.derived_values()["pad"]

        def made(new: NewOps, src: SSAValue, weight: SSAValue, zero: int) -> SSAValue:
            more, params = -channels % (4 if spec_of(src.type).dtype == BYTES[0] else 2), op.param_values()
            if more or (zero and any(pad)):
                around = {"before": (0, 0, top, left), "after": (0, more, bottom, right), "value": zero}
                src, params = new.add(Pad.make([src], around)), {**params, "padding": (0,) * 4, "autopad": "NOTSET"}
            if more:
                weight = new.add(Pad.make([weight], {"before": (0,) * 4, "after": (0, more, 0, 0)}))
                self.static.add(weight)
            return new.add(Conv2dInteger.make([src, weight], params, location=op.location))

        whole = channels + -channels % 4
        self.multiply(op, op.src, op.weight, per_output, whole, depth, made, op.bias, padded=any(pad))

    def stored(self, value: SSAValue, padded: bool) -> tuple[SSAValue, SSAValue] | None:
        """The bytes that a tensor of whole numbers is read from, and the zero point that is subtracted from them, which
        is known where it is `padded` with."""
        if not isinstance(value.owner, Sub) or not isinstance(value.owner.src1.owner, Cast):
            return None
        numbers, zero = value.owner.src1.owner.src, value.owner.src2
        if spec_of(numbers.type) != spec_of(value.type)._replace(dtype=BYTES[0]) or spec_of(zero.type).len != 1:
            return None
        is_fit = self.range_of(zero) is not None and not (padded and known(zero) is None)
        return (numbers, zero) if is_fit else None

    # (s a) (t b) = (s t) a b, with a t for each column of b
    def multiply_matrices(self, op: Matmul) -> None:
        """Put a product of integer matrices in the place of one of floats, by a matrix that is known at load."""
        spec = spec_of(op.b.type)
        if spec.ndim != 2 or any(isinstance(d, Dim) for d in spec.dims) or spec.dims[1] < 2:
            return
        self.multiply(op, op.a, op.b, (1, spec.dims[1]), spec.dims[0], spec.dims[0],
                      lambda new, a, b, _: new.add(MatmulInteger.make([a, b], location=op.location)))  # fmt: skip

    def multiply(
        self,
        op: LnOp,
        left: SSAValue,
        right: SSAValue,
        per_output: tuple[int, ...],
        channels: int,
        depth: int,
        make: Callable[[NewOps, SSAValue, SSAValue, int], SSAValue],
        bias: SSAValue | None = None,
        padded: bool = False,
    ) -> None:
        """Put the scaled product that `make` makes of two factors as integers in the place of `op`, whose sums have
        `depth` products, and read `channels` that lie together; scales of the right one may have the dims
        `per_output`. The left one may have a zero point, which `make` has to pad with."""
        result = op.result_specs[0]
        if result.dtype.name not in FLOATS_OF_WHOLE or right not in self.static:
            return
        factors = self.scaled(left), self.scaled(right)
        ranges = [self.range_of(numbers) for numbers, _ in factors]
        scales = [scale for _, scale in factors if scale is not None]
        if ranges[0] is None or ranges[1] is None or (self.exact and scales):
            return
        types, low = _types(ranges[0], ranges[1], channels, self.bytes), 0
        stored = self.stored(factors[0][0], padded)
        if self.bytes and types != BYTES and (stored is not None or ranges[0][1] - ranges[0][0] <= BYTE):
            if (moved := _types((0, BYTE), ranges[1], channels, True)) == BYTES:
                types, low = moved, ranges[0][0]
        if types is None or depth * max(map(abs, ranges[0])) * max(map(abs, ranges[1])) > SUMS.limits[1]:
            return
        if scales and isinstance(op, Conv2d) and not self.pays(op, types, channels):
            return
        outputs = max(per_output)
        for scale, most in zip((f[1] for f in factors), (1, outputs)):
            spec = None if scale is None else spec_of(scale.type)
            if spec is not None and spec.len != 1 and (spec.len != most or spec.dims != per_output[-spec.ndim :]):
                return
        if (step := rewrites.begin("integers", [op])) is None:
            return
        numbers, b = factors[0][0], self.as_integers(factors[1][0], types[1])
        new = NewOps(self.block, op, self.names)
        a, zero = stored if low and stored is not None else (self.as_integers(numbers, types[0], low), None)
        product = make(new, a, b, -low)
        along = (outputs,) + (1,) * (result.ndim - 2 if result.ndim == 4 and bias is not None else 0)
        addends = [self.beside(b, low, zero, per_output, new)] if low else []
        if not scales and bias is not None and self.is_sum(bias):
            addends.append(self.as_integers(bias, SUMS))
            bias = None
        if addends:
            addends = [new.reshape(v, along) for v in addends]
            product = new.add(Add.make([product, addends[0] if len(addends) == 1 else new.add(Add.make(addends))]))
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

    # a b = (a - z) b + z (the sums of b)
    def beside(
        self, right: SSAValue, low: int, zero: SSAValue | None, per_output: tuple[int, ...], new: NewOps
    ) -> SSAValue:
        """The numbers that products of a factor less `low`, or more by `zero` where that is not known, lack."""
        axes = tuple(k for k, n in enumerate(per_output) if n == 1)
        sums = new.add(ReduceSum.make([new.cast(right, SUMS)], {"axes": axes}))
        by = new.cast(new.constant(low if zero is None or known(zero) is not None else -1), SUMS)
        if zero is not None and known(zero) is None:
            by = new.add(Mul.make([new.cast(new.reshape(zero, ()), SUMS), by]))
        return new.add(Mul.make([sums, by]))

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

    def pays(self, op: Conv2d, types: tuple[DType, DType], channels: int) -> bool:
        """Return whether the target says that a convolution takes less time in integers of these types, of so many
        `channels` for each output. By Winograd, one of floats multiplies 2 or 4 times less; it is what ONNX defines, so
        which one is taken changes rounding."""
        counts = channels * op.group, channels
        integers = [s._replace(dtype=t, dims=(s.dims[0], n, *s.dims[2:]))
                    for s, t, n in zip(op.operand_specs, types, counts)]  # fmt: skip
        kinds = (Conv2d, op.operand_specs), (Conv2dInteger, integers)
        by_floats, by_integers = (
            time_on_maps(self.target.name, self.features, kind, specs, op) for kind, specs in kinds
        )
        return by_floats is None or by_integers is None or by_integers <= LENIENCE * by_floats

    def as_integers(self, value: SSAValue, dtype: DType, low: int = 0) -> SSAValue:
        """A tensor of whole numbers less `low` in an integer type; what else reads the floats reads them from there."""
        key = value, dtype, low
        if key in self.integers:
            return self.integers[key]
        op, original = value.owner, spec_of(value.type).dtype
        new = NewOps(self.block, op, self.names, behind=True)
        if not original.is_float:
            self.integers[key] = made = value if original == dtype else new.cast(value, dtype)
            return made
        if isinstance(op, Cast) and not low:
            self.integers[key] = made = self.as_integers(op.src, dtype)
            return made
        if isinstance(op, CHOOSES):
            inner = [self.as_integers(v, dtype, low) for v in op.operands]
            made = new.add(type(op).make(inner, op.param_values(), location=op.location))
        else:
            found = self.unlimited.get(value, value) if low and dtype == BYTES[0] else value  # the cast saturates
            made = new.cast(new.moved(found, -low), dtype)
        self.integers[key] = made

        def is_other(use: Use) -> bool:
            return use.operation not in new.made and not is_yielded(use)

        if any(map(is_other, value.uses)):
            back = new.moved(new.cast(made, original), low)
            value.replace_uses_with_if(back, is_other)
            self.ranges[back], self.integers[back, dtype, low] = self.range_of(value), made
            if value in self.static:
                self.static.add(back)
        return made

    def replace(self, op: LnOp, value: SSAValue, new: NewOps) -> None:
        """Let a new value take the place of the result of `op`."""
        if all(v in self.static for v in op.operands):
            self.static.add(value)
        replace_result(op, value, new)


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
