"""Arithmetic, comparisons and selection on tensors that broadcast as NumPy does, and conversions between types.

Both operands have one dtype (a front end casts). Integers wrap around, x / 0 and x % 0 of integers are 0; f16 and bf16
are computed in f32 and rounded once. A bool counts as 0 or 1 in arithmetic, and a result is true where it is not 0.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from lightnet.dialects.ln.numeric import (
    INTS,
    NUMBERS,
    broadcast_dims,
    cases,
    elementwise_in,
    integer_quotient,
    larger,
    power,
    smaller,
    uniform_data,
)
from lightnet.dialects.ln.rows import BinaryRow, Broadcasting
from lightnet.dialects.ln.rules import producer, rule
from lightnet.dialects.ln.source import known
from lightnet.ir.op import ConstraintError, LnOp, case, dtype_of_result, ln_op, operand, result, string
from lightnet.runtime.dtypes import BY_NAME, STORED, DType, convert, is_float, round_to


# maximum(x, x) = minimum(x, x) = bit_and(x, x) = bit_or(x, x) = x
@rule("maximum", "minimum", "bit_and", "bit_or")
def same_operand(op):
    return op.src1 if op.src1 is op.src2 else None


# c + x = x + c; c * x = x * c: what is known stands behind, where rules look for it
@rule("add", "mul")
def known_behind(op):
    if known(op.src1) is None or known(op.src2) is not None:
        return None
    return type(op).make([op.src2, op.src1])


# x * 1 = x / 1 = x - 0 = x, and of integers x + 0 = x, where x is not repeated
@rule("add", "sub", "mul", "div")
def neutral_operand(op):
    number = known(op.src2)
    if number is None or op.operand_specs[0] != op.result_specs[0]:
        return None
    if op.optype in ("mul", "div"):
        return op.src1 if (number == 1).all() else None
    is_exact = op.optype == "sub" or not is_float(number.dtype)  # -0 + 0 is 0, and -0 - 0 is -0
    return op.src1 if is_exact and not any(number.tobytes()) else None


class _Remainder(BinaryRow):
    """Of integers by `formula`, where x % 0 is 0; of floats by `of_floats`, in which a finite src1 over an infinite
    src2 is a case of its own: there the quotient is 0, and its product with src2 NaN."""

    src1 = operand(dtypes=NUMBERS)
    kinds = ("f64", "f16", "bf16", "i32", "ui8", "i64")
    domain = {"src1": (-9, 9), "src2": (0.7, 2)}
    of_floats: ClassVar[str]

    @property
    def definition(self):
        return self.defined(self.of_floats if self.operand_specs[0].dtype.is_float else self.formula)

    def numpy(self, a, b):
        if is_float(a.dtype):
            return self.function(a, b)
        return np.where(b == 0, a.dtype.type(0), self.function(a, np.where(b == 0, b.dtype.type(1), b)))


class _Bitwise(BinaryRow):
    src1 = operand(dtypes=(*INTS, "i1"))
    kinds = ("i8", "ui16", "i64", "ui64", "i1")

    def reference(self, src1, src2):
        return self.function(src1, src2)


class _Shift(BinaryRow):
    src1 = operand(dtypes=INTS)
    kinds = ("i8", "ui8", "ui16", "i64", "ui64")
    #: What is left of a negative number when every bit has been shifted out.
    below: ClassVar[int] = 0

    def reference(self, src1, src2):
        inside = (src2 >= 0) & (src2 < 8 * src1.dtype.itemsize)
        shifted = self.function(src1, np.where(inside, src2, src2.dtype.type(0)))
        return np.where(inside, shifted, np.where(src1 < 0, self.below, 0).astype(src1.dtype))

    @classmethod
    def sample_data(cls, name, kind, spec, tensors, params, seed):
        data = super().sample_data(name, kind, spec, tensors, params, seed)
        return data if name == "src1" else np.abs(data) * data.dtype.type(3)  # 0, 3, …, 12: beyond 8 bits too


class _Comparison(BinaryRow):
    dst = result(dtype="i1")

    def reference(self, src1, src2):
        return np.asarray(self.function(src1, src2), np.bool_)


_SHAPES = [
    ((1,), (1,)), ((), ()), ((), (3,)), ((2, 3), ()), ((7,), (5, 7)), ((5, 7), (7,)), ((1, 4, 6, 6), (4, 1, 1)),
    ((1, 1, 3), (4, 5, 1)), ((2, 1, 3, 1, 2), (1, 4, 1, 5, 2)), ((3, 1), (1, 3)), ((1, 1), (9,)),
]  # fmt: skip

# fmt: off
Add = BinaryRow.row("add", "src1 + src2", np.add, "src1 + src2.",
                 more=(*(case(src1=a, src2=b) for a, b in _SHAPES), *cases({"src1": (3, 1), "src2": (4,)}, INTS)),
                 rewrites=(known_behind, neutral_operand))
Sub = BinaryRow.row("sub", "src1 - src2", np.subtract, "src1 - src2.", rewrites=(neutral_operand,))
Mul = BinaryRow.row("mul", "src1 * src2", np.multiply, "src1 * src2.", rewrites=(known_behind, neutral_operand))
Div = BinaryRow.row("div", "src1 / src2", integer_quotient,
                 "src1 / src2; of integers, truncated toward zero, and 0 where src2 is 0.", domain={"src2": (0.5, 2)},
                 rewrites=(neutral_operand,))
Pow = BinaryRow.row("pow", "pow(src1, src2)", power,
                 "src1 to the power of src2. Integers go through double and saturate; a negative float has a power "
                 "only where src2 is whole, else NaN.", domain={"src1": (0.2, 3)})
Fmod = _Remainder.row("fmod", "src1 % src2", np.fmod,
                      "The remainder of src1 / src2 with the sign of src1, as C's `fmod` and `%`; of floats, "
                      "src1 - src2·trunc(src1 / src2).",
                      of_floats="isinf(src2) && abs(src1) < inf ? src1 : "  # a zero has the sign of src1, too
                                "(src1 % src2 == 0 ? src1 * 0 : src1 % src2)")
Mod = _Remainder.row("mod", "floormod(src1, src2)", np.mod,
                     "The remainder of src1 / src2 with the sign of src2, as Python's `%`; of floats, "
                     "src1 - src2·floor(src1 / src2).",
                     of_floats="isinf(src2) && abs(src1) < inf ? (src1 == 0 || (src1 < 0) == (src2 < 0) ? src1 : src2) "
                               ": "
                               "floormod(src1, src2)")
Maximum = BinaryRow.row("maximum", "max(src1, src2)", larger, "The larger of src1 and src2; NaN where one of them is.",
                     rewrites=(same_operand,))
Minimum = BinaryRow.row("minimum", "min(src1, src2)", smaller, "The smaller of src1 and src2; NaN where one of them "
                                                               "is.",
                     rewrites=(same_operand,))

BitAnd = _Bitwise.row("bit_and", "bitand(src1, src2)", np.bitwise_and,
                      "The bits that are set in src1 and in src2; of bools, the logical and.", rewrites=(same_operand,))
BitOr = _Bitwise.row("bit_or", "bitor(src1, src2)", np.bitwise_or,
                     "The bits that are set in src1 or in src2; of bools, the logical or.", rewrites=(same_operand,))
BitXor = _Bitwise.row("bit_xor", "bitxor(src1, src2)", np.bitwise_xor,
                      "The bits that differ between src1 and src2; of bools, the exclusive or.")
ShiftLeft = _Shift.row("shift_left", "shl(src1, src2)", np.left_shift,
                       "src1 * 2^src2, wrapped around; 0 where src2 is negative or at least the number of bits.")
ShiftRight = _Shift.row("shift_right", "shr(src1, src2)", np.right_shift,
                        "src1 / 2^src2, rounded down; 0 (of a negative number, -1) where src2 is negative or at least "
                        "the "
                        "number of bits.", below=-1)

Equal = _Comparison.row("equal", "src1 == src2", np.equal, "Whether src1 = src2; a NaN equals nothing.")
Less = _Comparison.row("less", "src1 < src2", np.less, "Whether src1 < src2; false where one of them is NaN.")
LessEqual = _Comparison.row("less_equal", "src1 <= src2", np.less_equal,
                            "Whether src1 ≤ src2; false where one of them is NaN.")
# fmt: on


# where(c, x, x) = x, where c repeats nothing
@rule("where")
def where_of_one(op):
    return op.src1 if op.src1 is op.src2 and op.operand_specs[1] == op.result_specs[0] else None


@ln_op
class Where(Broadcasting):
    """src1 where cond holds, else src2.

    ```mlir
    // %c : tensor<3x1xi1>, %a : tensor<3x5xf32>, %b : tensor<f32>
    %y = ln.where %c, %a, %b : tensor<3x5xf32>
    ```
    """

    optype = "where"
    cond = operand(dtypes=("i1",))
    src1 = operand()
    src2 = operand(same_type="src1")
    dst = result()
    formula = "cond ? src1 : src2"
    rewrites = (where_of_one,)

    def reference(self, cond, src1, src2):
        return np.where(cond, src1, src2)

    @classmethod
    def samples(cls):
        dims = [((3, 5),) * 3, ((3, 1), (5,), ()), ((), (2, 3), (3,)), ((4,), (2, 1, 1), (3, 1)), ((1,), (1, 1), ())]
        out = [case(cond=(c, "i1"), src1=a, src2=b) for c, a, b in dims]
        kinds = [t for t in ("f64", "f16", "bf16", "i64", "ui8", "i1") if t in BY_NAME]
        return out + [case(t, cond=((7,), "i1"), src1=(7,), src2=(2, 1)) for t in kinds]


@ln_op
class Prelu(Broadcasting):
    """src where it is at least 0, else src * slope; the slope is repeated to the shape of src. NaN stays NaN.

    ```mlir
    // %x : tensor<1x8x5x5xf32>, %s : tensor<8x1x1xf32>
    %y = ln.prelu %x, %s : tensor<1x8x5x5xf32>
    ```
    """

    optype = "prelu"
    src = operand(dtypes=NUMBERS)
    slope = operand(same_type="src")
    dst = result()
    formula = "src >= 0 ? src : src * slope"
    work = 2

    @classmethod
    def infer(cls, t, p):
        if broadcast_dims(cls.optype, [t.src, t.slope]) != t.src.dims:
            raise ConstraintError(
                f"prelu: the slope {t.slope} should be repeated to the shape of {t.src}, not the other way round",
                label="prelu.slope",
            )
        return [t.src]

    def reference(self, src, slope):
        return elementwise_in(lambda x, s: np.where(x < 0, x * s, x), src, slope)

    @classmethod
    def samples(cls):
        dims = [((3, 5), (3, 5)), ((1, 4, 6, 6), (4, 1, 1)), ((3, 5), ()), ((2, 7), (7,)), ((), ())]
        return [case(src=a, slope=b) for a, b in dims] + cases(("src", "slope"), ("f64", "f16", "bf16", "i32", "ui8"))


# -- conversions -----------------------------------------------------------------------------------------------------


def holds_all(wide: DType, narrow: DType) -> bool:
    """Return whether every value of `narrow` is one of `wide`."""
    if wide.is_float and narrow.is_float:
        return wide.size > narrow.size or wide == narrow
    if wide.is_float or narrow.is_float or "bool" in (wide.kind, narrow.kind):
        return narrow.kind == "bool" and wide.kind != "bool"
    low, high = np.iinfo(wide.np), np.iinfo(narrow.np)
    return low.min <= high.min and high.max <= low.max


# cast(x, type of x) = x; cast(cast(x, wider type), type of x) = x
@rule("cast")
def cast_back(op):
    if op.operand_specs == op.result_specs:
        return op.src
    inner = producer(op.src, Cast)
    if inner is None or inner.operand_specs != op.result_specs:
        return None
    return inner.src if holds_all(inner.result_specs[0].dtype, inner.operand_specs[0].dtype) else None


@ln_op
class Cast(LnOp):
    """src in another type. Floats become integers by truncation, saturated, NaN as 0; bools 0 and 1; and what is not 0
    becomes true. `mode` says what happens to values beyond the range otherwise: ``saturate`` takes the nearest value
    there is (infinities stay), ``wrap`` drops the upper bits of an integer and rounds a float to infinity.

    ```mlir
    // %x : tensor<2x3xf32>
    %y = ln.cast %x : tensor<2x3xi8>
    ```
    """

    optype = "cast"
    src = operand()
    dst = result(dtype="dtype")
    dtype = dtype_of_result()
    mode = string("saturate", "wrap", default="saturate")
    rewrites = (cast_back,)

    @property
    def definition(self):
        if self.mode == "wrap":
            return "dst[i...] = wrap(src[i...], dst)"
        source, target = self.operand_specs[0].dtype, self.result_specs[0].dtype
        if not (source.is_float and target.is_float) or holds_all(target, source):
            return "dst[i...] = sat(src[i...], dst)"
        largest = target.limits[1]
        return f"dst[i...] = sat(abs(src[i...]) == inf ? src[i...] : clamp(src[i...], -{largest}, {largest}), dst)"

    def reference(self, src):
        target = self.result_specs[0].dtype
        if self.mode == "saturate" or target.kind == "bool":
            return convert(src, target)
        if target.is_float:
            return round_to(src if is_float(src.dtype) or not target.is_short else src.astype(np.float32), target)
        return convert(src, target) if is_float(src.dtype) else src.astype(target.np)

    @classmethod
    def sample_data(cls, name, kind, spec, tensors, params, seed):
        data = super().sample_data(name, kind, spec, tensors, params, seed)
        if not is_float(data.dtype) and data.dtype != np.bool_:
            return data * data.dtype.type(67)  # beyond 8 bits, where there are more
        return data if data.dtype == np.bool_ else uniform_data(data, -400, 400)

    @classmethod
    def samples(cls):
        pairs = [
            ("f32", "i8"), ("f32", "ui8"), ("f32", "i1"), ("f32", "f64"), ("f64", "f32"), ("f64", "i64"), ("i32", "i8"),
            ("i32", "ui8"), ("i64", "f32"), ("ui8", "i8"), ("i8", "ui64"), ("i1", "f32"), ("i1", "i32"), ("i32", "i1"),
            ("f32", "f16"), ("f16", "f32"), ("bf16", "f64"), ("f16", "bf16"), ("i16", "f16"), ("f16", "i8"),
            ("f16", "i1"),
            ("bf16", "ui16"), ("i1", "bf16"), ("f32", "f32"),
        ]  # fmt: skip
        wraps = {
            ("f64", "f32"),
            ("i32", "i8"),
            ("i32", "ui8"),
            ("ui8", "i8"),
            ("f32", "f16"),
            ("i16", "f16"),
            ("f32", "ui8"),
        }
        modes = [(*pair, "saturate") for pair in pairs] + [(*pair, "wrap") for pair in sorted(wraps)]
        modes = [(a, b, m) for a, b, m in modes if a in BY_NAME and b in BY_NAME]
        out = [case(a, src=(3, 5), dtype=BY_NAME[b].tl, mode=m) for a, b, m in modes]
        return [*out, case(src=(), dtype="TL_INT32"), case("i64", src=(1,), dtype="TL_INT32")]


# bitcast(bitcast(x)) = bitcast(x); bitcast(x, type of x) = x
@rule("bitcast")
def bitcast_chain(op):
    if op.operand_specs == op.result_specs:
        return op.src
    inner = producer(op.src, Bitcast)
    return None if inner is None else Bitcast.make([inner.src], {"dtype": op.dtype})


@ln_op
class Bitcast(LnOp):
    """The bits of src, read as another type of the same size. Types that are only stored in (i4, f8E4M3FN …) are a byte
    each, of which ui8 is the reading.

    ```mlir
    // %x : tensor<2x3xf32>
    %y = ln.bitcast %x : tensor<2x3xi32>
    ```
    """

    optype = "bitcast"
    takes_bits = True
    src = operand(dtypes=(*NUMBERS, *(d.name for d in STORED)))
    dst = result(dtype="dtype")
    dtype = dtype_of_result(stored=True)
    checks = {
        "size": "sizeof(src.dtype) == sizeof(dtype)",
        "bool": 'dtype != "TL_BOOL"',
    }
    definition = "dst[i...] = bitcast(src[i...], dst)"
    rewrites = (bitcast_chain,)
    work = 0

    def reference(self, src):
        return src.view(self.result_specs[0].dtype.np)

    @classmethod
    def samples(cls):
        pairs = [
            ("f32", "i32"),
            ("ui8", "i8"),
            ("i16", "ui16"),
            ("f16", "i16"),
            ("bf16", "ui16"),
            ("f64", "ui64"),
            ("f8E4M3FN", "ui8"),
            ("ui8", "i4"),
        ]
        known = [(a, b) for a, b in pairs if a in BY_NAME and b in BY_NAME]
        return [case(a, src=(3, 5), dtype=BY_NAME[b].tl) for a, b in known] + [case(src=(1,), dtype="TL_UINT32")]
