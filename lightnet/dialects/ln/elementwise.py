"""Element by element: activations (`relu`, `lrelu`, `sigmoid`) and arithmetic on two tensors (`elew`)."""

from __future__ import annotations

import numpy as np

from lightnet.dialects.ln.numeric import elementwise_in, integer_quotient, larger, power, smaller
from lightnet.dialects.ln.rows import TypedRow, UnaryRow
from lightnet.dialects.ln.rules import producer, rule
from lightnet.ir.op import LnOp, case, ln_op, number, operand, result, string


# relu(relu(x)) = relu(x)
@rule("relu")
def relu_of_relu(op):
    return None if producer(op.src, Relu) is None else op.src


# relu(x) = lrelu(x, s) = x, where the type of x has no values below 0
@rule("relu", "lrelu")
def relu_of_unsigned(op):
    return op.src if op.operand_specs[0].dtype.kind in ("uint", "bool") else None


# lrelu(x, 1) = x
@rule("lrelu")
def lrelu_of_slope_one(op):
    return op.src if op.negslope == 1 else None


def _SHAPES(**params):
    return [case(src=s, **params) for s in ((1,), (7,), (3, 5), (2, 1, 9), (1, 3, 4, 33), (2, 1, 3, 1, 5))]


# fmt: off
Relu = UnaryRow.row(
    "relu", "src < 0 ? 0 : src", lambda x: np.where(x < 0, x.dtype.type(0), x), "max(src, 0); NaN stays NaN.",
    src=operand(), domain=None, rewrites=(relu_of_relu, relu_of_unsigned), kinds=("i8", "i32", "ui8", "f16", "bf16"),
    more=(*_SHAPES(), case("i32", src=(17,)), case(src=(0,)), case("i32", src=(2, 0, 3))))
# fmt: on


@ln_op
class Lrelu(TypedRow):
    """src where it is at least 0, else src * negslope. The slope is cast to the tensor's type first (so that 0.1 is 0
    for integers); an integer product wraps around.

    ```mlir
    %y = ln.lrelu %x {negslope = 0.1} : tensor<1x3x4x5xf32>
    ```
    """

    optype = "lrelu"
    src = operand()
    negslope = number("float")
    definition = "dst[i...] = src[i...] >= 0 ? src[i...] : wrap(src[i...] * sat(negslope, src), src)"
    rewrites = (relu_of_unsigned, lrelu_of_slope_one)
    work = 2
    domain = None
    function = staticmethod(lambda x, slope: np.where(x >= 0, x, x * slope))
    kinds, given = ("f16", "bf16"), {"negslope": 0.1}
    more = (*_SHAPES(negslope=0.1), case("i8", src=(3, 5), negslope=2), case("i32", src=(17,), negslope=0.1),
            case("i1", src=(7,), negslope=0.1), case("f64", src=(6,), negslope=-0.5))  # fmt: skip


# fmt: off
Sigmoid = UnaryRow.row(
    "sigmoid", "1 / (1 + exp(-src))", lambda x: 1 / (1 + np.exp(-x)), "1 / (1 + exp(-src)).", domain=None, work=4,
    more=tuple(_SHAPES()))
# fmt: on


_ELEW = ("TL_MUL", "TL_DIV", "TL_SUM", "TL_SUB", "TL_MAX", "TL_MIN", "TL_POW")


# max(x, x) = min(x, x) = x
@rule("elew")
def extreme_with_itself(op):
    return op.src1 if op.src1 is op.src2 and op.elew_op in ("TL_MAX", "TL_MIN") else None


@ln_op
class Elew(LnOp):
    """Arithmetic on two tensors of equal shape and type. Integer sums, differences and products wrap around, integer
    division truncates (x / 0 is 0), integer powers saturate; maximum and minimum propagate NaN.

    ```mlir
    %y = ln.elew %a, %b {elew_op = "TL_SUM"} : tensor<1x3x4x5xf32>
    ```
    """

    optype = "elew"
    src1 = operand()
    src2 = operand(same_type="src1", same_shape="src1")
    dst = result()
    elew_op = string(*_ELEW)
    rewrites = (extreme_with_itself,)

    definition = """
        dst[i...] = elew_op == "TL_MUL" ? src1[i...] * src2[i...] : elew_op == "TL_DIV" ? src1[i...] / src2[i...]
            : elew_op == "TL_SUM" ? src1[i...] + src2[i...] : elew_op == "TL_SUB" ? src1[i...] - src2[i...]
            : elew_op == "TL_MAX" ? max(src1[i...], src2[i...]) : elew_op == "TL_MIN" ? min(src1[i...], src2[i...])
            : pow(src1[i...], src2[i...])
    """

    def reference(self, src1, src2):
        return elementwise_in(_ELEW_NUMPY[self.elew_op], src1, src2)

    @classmethod
    def sample_data(cls, name, kind, spec, tensors, params, seed):
        data = super().sample_data(name, kind, spec, tensors, params, seed)
        if params["elew_op"] == "TL_POW" and spec.dtype.is_float:
            return np.abs(data) + spec.dtype.np.type(0.1)  # a negative base has no real power
        return data

    @classmethod
    def samples(cls):
        out = [case(src1=(3, 5), src2=(3, 5), elew_op=op) for op in _ELEW]
        out += [case("i32", src1=(3, 7), src2=(3, 7), elew_op=op) for op in _ELEW]
        out += [case("ui8", src1=(3, 7), src2=(3, 7), elew_op=op) for op in _ELEW]
        out += [case("i1", src1=(3, 7), src2=(3, 7), elew_op=op) for op in _ELEW]
        return [*out, case(src1=(1, 1, 3, 1, 17), src2=(1, 1, 3, 1, 17), elew_op="TL_SUM"),
                case("f64", src1=(1,), src2=(1,), elew_op="TL_DIV"), case(src1=(), src2=(), elew_op="TL_SUB"),
                case("i32", src1=(), src2=(), elew_op="TL_POW"), case("i1", src1=(), src2=(), elew_op="TL_SUM"),
                case("i8", src1=(0, 3), src2=(0, 3), elew_op="TL_DIV")]  # fmt: skip


_ELEW_NUMPY = {
    "TL_MUL": np.multiply,
    "TL_DIV": integer_quotient,
    "TL_SUM": np.add,
    "TL_SUB": np.subtract,
    "TL_MAX": larger,
    "TL_MIN": smaller,
    "TL_POW": power,
}
