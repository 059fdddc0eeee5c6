"""The ops that work element by element: special values and extremes in machine code, broadcasting, rewrites, fusion."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from test_ops import run_kernel
from xdsl.dialects.builtin import StringAttr
from xdsl.dialects.test import TestOp as Source

from lightnet.backends.cpu.plain import accepts, tile_generator_of
from lightnet.dialects.cpu import CpuKernelOp
from lightnet.dialects.ln import activation, arith, unary
from lightnet.dialects.ln.arith import Add, Cast, Less, Maximum, Where
from lightnet.dialects.ln.conv import Conv2d
from lightnet.dialects.ln.elementwise import Relu
from lightnet.ir.body import Body, build_body
from lightnet.ir.context import make_context
from lightnet.ir.op import ConstraintError, LnOp
from lightnet.ir.parser import parse_mlir
from lightnet.ir.registry import FAMILIES
from lightnet.ir.types import TensorSpec, tensor_type
from lightnet.passes.simplify import SimplifyPass
from lightnet.runtime.dtypes import BY_NAME, BY_NP, convert

OPS = [op for family in ("arith", "unary", "activation", "elementwise") for op in FAMILIES.get(family)]
FLOATS = [t for t in ("f32", "f64", "f16", "bf16") if t in BY_NAME]
#: Parameters that an op needs.
NEEDED = {"clip": {"lo": -1, "hi": 6}, "lrelu": {"negslope": 0.5}, "elew": {"elew_op": "TL_DIV"}, "cast": {"dtype": "TL_INT8"},
          "bitcast": {"dtype": "TL_INT32"}, "round_clip": {"low": -3, "high": 200}}  # fmt: skip


def values(*specs: TensorSpec) -> list:
    return list(Source(result_types=[tensor_type(s) for s in specs]).results)


def spec(*dims: int, dtype: str = "f32") -> TensorSpec:
    return TensorSpec(dims, BY_NAME[dtype])


def native(cls: type[LnOp], arrays: list[np.ndarray], dtypes: list[str], **params) -> tuple[np.ndarray, np.ndarray]:
    """What machine code and the reference make of arrays."""
    op = cls.make(values(*(TensorSpec(a.shape, BY_NAME[t]) for a, t in zip(arrays, dtypes))), params)
    (got,) = run_kernel(CpuKernelOp.wrap([op]), arrays)
    with np.errstate(all="ignore"):
        return got, op.evaluate(arrays)[0]


def special(dtype: str) -> np.ndarray:
    """Numbers at which functions have corners."""
    if dtype == "i1":
        return np.array([False, True])
    low, high = BY_NAME[dtype].limits
    if not BY_NAME[dtype].is_float:
        return np.array([low, low + 1, max(low, -1), 0, 1, 3, high - 1, high], BY_NAME[dtype].np)
    numbers = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1, -1, 0.5, -2.5, 3, high, low]
    return convert(np.array(numbers), BY_NAME[dtype])


def takes(cls: type[LnOp], dtype: str) -> bool:
    dtypes = cls.schema.operands[0].dtypes
    return not dtypes or dtype in dtypes


#: In these types all ops are run, in the others those whose definition depends on the type.
COMMON = ("f32", "i8", "ui16", "i1")
DEPENDING = {
    *FAMILIES.get("arith"),
    unary.Sign,
    unary.Abs,
    unary.RoundEven,
    unary.Isinf,
    activation.Clip,
    activation.Mish,
}
CASES = [(cls, t) for cls in OPS for t in (*COMMON, "i64", *FLOATS[1:]) if takes(cls, t)
         and (t in COMMON or cls in DEPENDING) and cls is not Where and (cls is not arith.Bitcast or t == "f32")]  # fmt: skip


@pytest.mark.sampled(every=5, by="cls")
@pytest.mark.parametrize(("cls", "dtype"), CASES, ids=[f"{c.optype}-{t}" for c, t in CASES])
def test_special_values(cls: type[LnOp], dtype: str) -> None:
    """NaN, infinities, zeros and the ends of the range, each with each."""
    numbers, count = special(dtype), len(cls.schema.operands)
    if cls in (arith.Fmod, arith.Mod) and BY_NAME[dtype].is_float:
        numbers = numbers[:-2]  # the quotient of the largest number and a small one is infinite
    arrays = [np.array(column, numbers.dtype) for column in zip(*product(numbers, repeat=count))]
    got, want = native(cls, arrays, [dtype] * count, **NEEDED.get(cls.optype, {}))
    assert got.dtype == want.dtype
    if got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want)
        return
    tolerance = {"f16": 2e-3, "bf16": 2e-2}.get(dtype, 1e-5)
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), tolerance, 1e-7)


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("source", [*FLOATS, "i8", "ui8", "i32", "ui64", "i1"])
@pytest.mark.parametrize("target", [*FLOATS, "i8", "ui8", "i32", "i1"])
@pytest.mark.parametrize("mode", ["saturate", "wrap"])
def test_casts_of_special_values(source: str, target: str, mode: str) -> None:
    numbers = special(source)
    if BY_NAME[source].is_float:
        numbers = np.concatenate([numbers, convert(np.array([1e5, -300.7, 255.9, 65520, 1e-8]), BY_NAME[source])])
    got, want = native(Cast, [numbers], [source], dtype=BY_NAME[target].tl, mode=mode)
    if BY_NAME[target].is_float:  # NumPy finds the NaN of a bfloat16 unequal to itself
        got, want = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_array_equal(got, want)


# -- broadcasting ----------------------------------------------------------------------------------------------------


def test_what_does_not_broadcast_is_refused() -> None:
    with pytest.raises(ConstraintError, match="along axis -1 their lengths are 2, 3") as e:
        Add.make(values(spec(4, 2), spec(3)))
    assert e.value.label == "add.broadcast"
    with pytest.raises(ConstraintError, match="not the other way round"):
        arith.Prelu.make(values(spec(3), spec(2, 3)))


def test_an_empty_tensor_broadcasts() -> None:
    assert Add.make(values(spec(0, 3), spec(1))).result_specs == [spec(0, 3)]


@pytest.mark.parametrize(("a", "b", "c"), [((2, 1, 4), (3, 1), ()), ((5,), (2, 1, 1), (1, 4, 1)), ((), (), (7,))])
def test_three_operands_broadcast(a: tuple, b: tuple, c: tuple) -> None:
    rng = np.random.default_rng(1)
    cond, x, y = rng.random(a) > 0.5, rng.random(b).astype(np.float32), rng.random(c).astype(np.float32)
    got, _ = native(Where, [cond, x, y], ["i1", "f32", "f32"])
    np.testing.assert_array_equal(got, np.where(cond, x, y))


# -- rewrites --------------------------------------------------------------------------------------------------------


def simplified(text: str) -> str:
    ctx = make_context()
    module = parse_mlir(ctx, text, "test")
    SimplifyPass().apply(ctx, module)
    return str(module)


@pytest.mark.parametrize(("chain", "left"), [
    ("%a = ln.neg %x : T\n%y = ln.neg %a : T", []),
    ("%a = ln.abs %x : T\n%y = ln.abs %a : T", ["ln.abs"]),
    ("%a = ln.floor %x : T\n%y = ln.floor %a : T", ["ln.floor"]),
    ("%y = ln.maximum %x, %x : T", []),
    ("%a = ln.clip %x {lo = 0, hi = 1} : T\n%y = ln.clip %a {lo = 0, hi = 1} : T", ["ln.clip"]),
    ("%a = ln.clip %x {lo = 0, hi = 1} : T\n%y = ln.clip %a {lo = 0, hi = 2} : T", ["ln.clip"] * 2),
    ("%y = ln.cast %x : T", []),
    ("%a = ln.cast %x : tensor<4xf64>\n%y = ln.cast %a : T", []),
    ("%a = ln.cast %x : tensor<4xf16>\n%y = ln.cast %a : T", ["ln.cast"] * 2),
    ("%a = ln.cast %x : tensor<4xi32>\n%y = ln.cast %a : T", ["ln.cast"] * 2),
    ("%a = ln.bitcast %x : tensor<4xi32>\n%y = ln.bitcast %a : T", []),
    ("%c = ln.less %x, %x : tensor<4xi1>\n%y = ln.where %c, %x, %x : T", []),
    ("%c = ln.less %x, %x : tensor<4xi1>\n%d = ln.logical_not %c : tensor<4xi1>\n%e = ln.logical_not %d : tensor<4xi1>\n"
     "%y = ln.cast %e : T", ["ln.less", "ln.cast"]),
])  # fmt: skip
def test_rewrites(chain: str, left: list[str]) -> None:
    """What equal ops become; `left` are those that stay beside the source and the copy under the output's name."""
    body = chain.replace("T", "tensor<4xf32>")
    text = (
        f'func.func @main() -> tensor<4xf32> {{\n%x = ln.input : tensor<4xf32> as "x"("x")\n{body}\nfunc.return %y : '
        "tensor<4xf32>\n}"
    )
    words = [word for line in simplified(text).splitlines() for word in line.split()]
    assert [w for w in words if w.startswith("ln.") and w not in ("ln.input", "ln.forward")] == left


# -- fusion ----------------------------------------------------------------------------------------------------------


def body(*ops: LnOp) -> Body:
    kernel = CpuKernelOp.wrap(list(ops))
    kernel.terminator.operands = [kernel.terminator.operands[-1]]
    return Body.of(kernel)


def conv() -> Conv2d:
    return Conv2d.make(values(spec(1, 3, 4, 4), spec(5, 3, 1, 1), spec(5)), {"size": (1, 1)})


@pytest.mark.parametrize(("dims", "kind"), [((5, 1, 1), "anchor"), ((), "anchor"), ((1, 1), "anchor"), ((4,), None)])
def test_a_bias_goes_into_the_epilogue(dims: tuple[int, ...], kind: str | None) -> None:
    """Along channels, or one for all; along the columns, which a tile may walk as it likes, the convolution keeps its
    tiles and the sum a kernel of its own."""
    first = conv()
    add = Add.make([first.dst, *values(spec(*dims))])
    assert (accepts(body(first, add)) or None) == kind
    assert accepts(body(add, Relu.make([add.dst]))) == "elementwise"


def test_what_is_read_repeatedly_stays_outside() -> None:
    """An element that many others read is computed once."""
    small = Relu.make(values(spec(5, 1, 1)))
    add = Add.make([*values(spec(1, 5, 4, 4)), small.dst])
    assert not accepts(body(small, add))
    first = conv()
    assert not accepts(body(first, Maximum.make([*values(spec(2, 5, 4, 4)), first.dst])))


def test_what_tiles_cannot_do_stays_outside() -> None:
    first = conv()
    assert not accepts(body(first, Less.make([first.dst, *values(spec())])))
    assert not accepts(body(first, Cast.make([first.dst], {"dtype": "TL_INT64"})))


def test_a_mask_in_memory_chooses_on_tiles() -> None:
    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal(d).astype(np.float32) for d in ((1, 3, 4, 4), (5, 3, 1, 1), (5,))]
    arrays += [rng.random((5, 1, 1)) > 0.5, np.float32(7).reshape(())]
    x, w, b, mask, other = values(*(TensorSpec(a.shape, BY_NP[a.dtype]) for a in arrays))
    first = Conv2d.make([x, w, b], {"size": (1, 1)})
    where = Where.make([mask, first.dst, other])
    kernel = build_body(body(first, where), CpuKernelOp)
    assert tile_generator_of(kernel.ops, kernel.terminator.operands) is not None
    kernel.attributes |= {"alg": StringAttr("direct")}
    (got,) = run_kernel(kernel, arrays)
    want = np.einsum("ncyx,oc->noyx", arrays[0], arrays[1][:, :, 0, 0]) + arrays[2][:, None, None]
    np.testing.assert_allclose(got, np.where(arrays[3], want, arrays[4]), 1e-4, 1e-5)
