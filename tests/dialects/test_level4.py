"""Level 4: the emitter against the interpreter against NumPy, on single ops, hand-written kernels and random programs."""

from __future__ import annotations

import numpy as np
import pytest
from level4_runner import interpreted, native, parse, run
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import Float16Type, IntegerType, MemRefType, ModuleOp, f32, f64, i1
from xdsl.ir import Operation

from lightnet.backends.builder import Builder, vector_type
from lightnet.backends.llvm.jit import CodeMachine, compile_module
from lightnet.diagnostics import LightNetError
from lightnet_trust.interpreter.loop_types import memory_dtype, numpy_type
from lightnet_trust.interpreter.loops import LoopProgram

RNG = np.random.default_rng(7)
N = 48


def elementwise_kernel(build, types, outs, mode: str) -> ModuleOp:
    """A kernel that loads one value of each input, and stores what `build(b, values)` returns; scalar or vector."""
    memrefs = [MemRefType(t, [N]) for t in (*types, *outs)]
    b = Builder.kernel("k", memrefs, opt="O2" if mode == "scalar" else "none")
    count = len(types)
    step = 1 if mode == "scalar" else N // 2
    with b.loop(0, N, step) as i:
        if mode == "scalar":
            values = [b.load(m, [i.iv]) for m in b.args[:count]]
        else:
            values = [b.tile_load(m, [i.iv], [0], [step]) for m in b.args[:count]]
        for result, m in zip(build(b, values), b.args[count:], strict=True):
            if mode == "scalar":
                b.store(result, m, [i.iv])
            else:
                b.tile_store(result, m, [i.iv], [0])
    return ModuleOp([b.finish()])


def integers(bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs with every combination of the edge values, then random ones."""
    dtype = np.dtype(f"i{bits // 8}")
    info = np.iinfo(dtype)
    edges = [0, 1, -1, info.min, info.max, 7]
    a = np.array([x for x in edges for _ in edges], dtype)
    b = np.array([y for _ in edges for y in edges], dtype)
    rest = RNG.integers(info.min, info.max, (2, N - a.size), dtype)
    return np.concatenate([a, rest[0]]), np.concatenate([b, rest[1]])


def exact_division(a: int, b: int) -> int:
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


#: Integer ops with their meaning on Python ints: (op, operands are unsigned, function).
INT_OPS = [
    (arith.AddiOp, False, lambda a, b: a + b), (arith.SubiOp, False, lambda a, b: a - b),
    (arith.MuliOp, False, lambda a, b: a * b), (arith.AndIOp, False, lambda a, b: a & b),
    (arith.OrIOp, False, lambda a, b: a | b), (arith.XOrIOp, False, lambda a, b: a ^ b),
    (arith.DivSIOp, False, exact_division), (arith.DivUIOp, True, exact_division),
    (arith.RemSIOp, False, lambda a, b: 0 if b == 0 else a - b * exact_division(a, b)),
    (arith.RemUIOp, True, lambda a, b: 0 if b == 0 else a % b),
    (arith.FloorDivSIOp, False, lambda a, b: 0 if b == 0 else a // b),
    (arith.CeilDivSIOp, False, lambda a, b: 0 if b == 0 else -(-a // b)),
    (arith.CeilDivUIOp, True, lambda a, b: 0 if b == 0 else -(-a // b)),
    (arith.MaxSIOp, False, max), (arith.MinSIOp, False, min), (arith.MaxUIOp, True, max), (arith.MinUIOp, True, min),
]  # fmt: skip
#: Ops on the bits of one integer: (op, function of the unsigned number and the width).
BIT_OPS = [
    (math.CountLeadingZerosOp, lambda x, bits: bits - x.bit_length()),
    (math.CountTrailingZerosOp, lambda x, bits: (x & -x).bit_length() - 1 if x else bits),
    (math.CtPopOp, lambda x, bits: x.bit_count()),
]


def wrap(x: int, bits: int) -> int:
    return (x + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("mode", ["scalar", "vector"])
def test_integer_ops(bits: int, mode: str):
    """Every integer op on every width, at the edges: division by zero is 0, min / -1 wraps."""
    a, b = integers(bits)
    t = IntegerType(bits)

    def build(builder, values):
        results = [builder.op(op, *values) for op, _, _ in INT_OPS]
        five = builder.const(5, values[0].type)
        bit_ops = [builder.op(op, values[0]) for op, _ in BIT_OPS]
        shifts = [builder.op(op, values[0], five) for op in (arith.ShLIOp, arith.ShRSIOp, arith.ShRUIOp)]
        return results + bit_ops + shifts

    count = len(INT_OPS) + len(BIT_OPS) + 3
    module = elementwise_kernel(build, [t, t], [t] * count, mode)
    outs = run(module, [a, b, *[np.zeros_like(a)] * count])[2:]
    mask = (1 << bits) - 1
    for (op, unsigned, meaning), got in zip(INT_OPS, outs):
        pairs = [(x & mask, y & mask) if unsigned else (x, y) for x, y in zip(a.tolist(), b.tolist())]
        assert got.tolist() == [wrap(meaning(x, y), bits) for x, y in pairs], op.name
    for (op, count_of), got in zip(BIT_OPS, outs[len(INT_OPS) :]):
        assert got.tolist() == [wrap(count_of(x & mask, bits), bits) for x in a.tolist()], op.name
    assert outs[-3].tolist() == [wrap(x << 5, bits) for x in a.tolist()]
    assert outs[-2].tolist() == [x >> 5 for x in a.tolist()]
    assert outs[-1].tolist() == [wrap((x & mask) >> 5, bits) for x in a.tolist()]


@pytest.mark.parametrize("mode", ["scalar", "vector"])
def test_comparisons(mode: str):
    """All predicates, signed and unsigned, ordered and unordered (NaN, infinities), through select and i1 memory."""
    a, b = integers(32)
    x = RNG.choice([0.0, -1.5, 2.0, np.nan, np.inf, -np.inf], N).astype(np.float32)
    y = RNG.choice([0.0, -1.5, 2.0, np.nan, np.inf, -np.inf], N).astype(np.float32)

    def build(builder, values):
        ints = [builder.cmpi(p, values[0], values[1]) for p in arith.CMPI_COMPARISON_OPERATIONS]
        floats = [builder.cmpf(p, values[2], values[3]) for p in arith.CMPF_COMPARISON_OPERATIONS]
        return [*ints, *floats, builder.select(ints[2], values[2], values[3])]

    count = len(arith.CMPI_COMPARISON_OPERATIONS) + len(arith.CMPF_COMPARISON_OPERATIONS)
    t = IntegerType(32)
    module = elementwise_kernel(build, [t, t, f32, f32], [i1] * count + [f32], mode)
    outs = run(module, [a, b, x, y, *[np.zeros(N, np.uint8)] * count, np.zeros(N, np.float32)])[4:]
    truth = dict(zip([*arith.CMPI_COMPARISON_OPERATIONS, *("f" + p for p in arith.CMPF_COMPARISON_OPERATIONS)], outs))
    assert (truth["slt"] == (a < b)).all() and (truth["ult"] == (a.view("u4") < b.view("u4"))).all()
    assert (truth["eq"] == (a == b)).all() and (truth["sge"] == (a >= b)).all()
    nan = np.isnan(x) | np.isnan(y)
    assert (truth["foeq"] == (x == y)).all() and (truth["fune"] == (x != y)).all()
    assert (truth["fult"] == ((x < y) | nan)).all() and (truth["fone"] == ((x != y) & ~nan)).all()
    assert (truth["funo"] == nan).all() and (truth["ftrue"] == 1).all()
    np.testing.assert_array_equal(outs[-1], np.where(a < b, x, y))


FLOAT_OPS: list[tuple[type[Operation], object]] = [
    (arith.NegfOp, np.negative), (math.AbsFOp, np.abs), (math.ExpOp, np.exp), (math.Exp2Op, np.exp2),
    (math.ExpM1Op, np.expm1), (math.LogOp, np.log), (math.Log1pOp, np.log1p), (math.Log2Op, np.log2),
    (math.Log10Op, np.log10), (math.SqrtOp, np.sqrt), (math.RsqrtOp, lambda x: 1 / np.sqrt(x)),
    (math.CbrtOp, np.cbrt), (math.FloorOp, np.floor), (math.CeilOp, np.ceil), (math.RoundEvenOp, np.rint),
    (math.RoundOp, lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5)), (math.TruncOp, np.trunc),
    (math.SinOp, np.sin), (math.CosOp, np.cos), (math.TanhOp, np.tanh), (math.AtanOp, np.arctan),
    (math.SinhOp, np.sinh), (math.CoshOp, np.cosh), (math.AsinhOp, np.arcsinh),
]  # fmt: skip
FLOAT_PAIRS = [
    (arith.AddfOp, np.add), (arith.SubfOp, np.subtract), (arith.MulfOp, np.multiply), (arith.DivfOp, np.divide),
    (arith.MaximumfOp, np.maximum), (arith.MinimumfOp, np.minimum), (arith.MaxnumfOp, np.fmax),
    (arith.MinnumfOp, np.fmin), (math.PowFOp, np.power), (math.Atan2Op, np.arctan2),
    (math.CopySignOp, np.copysign),
]  # fmt: skip


@pytest.mark.parametrize(("type", "rtol"), [(f32, 2e-6), (f64, 1e-12), (Float16Type(), 2e-3)])
@pytest.mark.parametrize("mode", ["scalar", "vector"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_float_ops(type, rtol: float, mode: str):
    """Every float op against float64 NumPy; NaN and infinities where NumPy has them."""
    dtype = numpy_type(type)
    special = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, np.nan, np.inf, -np.inf, 1.0, -2.0, 3.0]
    x = np.concatenate([special, RNG.uniform(0.1, 6, N - len(special))]).astype(dtype)
    y = np.concatenate([RNG.permutation(special), RNG.uniform(-3, 3, N - len(special))]).astype(dtype)

    def build(b, values):
        ones = [b.op(op, values[0]) for op, _ in FLOAT_OPS]
        twos = [b.op(op, *values) for op, _ in FLOAT_PAIRS]
        third = b.const(0.75, values[0].type)
        clipped = b.op(arith.MaximumfOp, values[0], third), b.op(arith.MinimumfOp, third, values[0])
        return [*ones, *twos, *clipped, b.op(math.FmaOp, *values, third)]

    count = len(FLOAT_OPS) + len(FLOAT_PAIRS) + 3
    module = elementwise_kernel(build, [type, type], [type] * count, mode)
    outs = run(module, [x, y, *[np.zeros(N, dtype)] * count], rtol=rtol, atol=rtol)[2:]
    wide, other = x.astype(np.float64), y.astype(np.float64)
    expected = [f(wide) for _, f in FLOAT_OPS] + [f(wide, other) for _, f in FLOAT_PAIRS]
    expected += [np.maximum(wide, 0.75), np.minimum(wide, 0.75), wide * other + 0.75]
    for k, (got, want) in enumerate(zip(outs, expected, strict=True)):
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(got, want.astype(dtype), rtol=rtol, atol=rtol, err_msg=f"op {k}")


@pytest.mark.parametrize("mode", ["O2", "none"])
def test_exp_over_its_range(mode: str):
    """The inline exp of f32 is within 2 units in the last place, subnormal results, both ends and NaN included."""
    n = 4096
    memory = MemRefType(f32, [n])
    b = Builder.kernel("k", [memory, memory], opt=mode)
    with b.loop(0, n, 1 if mode == "O2" else 32) as i:
        if mode == "O2":
            b.store(b.op(math.ExpOp, b.load(b.args[0], [i.iv])), b.args[1], [i.iv])
        else:
            b.tile_store(b.op(math.ExpOp, b.tile_load(b.args[0], [i.iv], [0], [32])), b.args[1], [i.iv], [0])
    x = np.linspace(-110, 95, n, dtype=np.float32)
    x[:4] = np.nan, np.inf, -np.inf, 0.0
    module = ModuleOp([b.finish()])
    got = native(compile_module(module, verify=True), "k", 1, [x, np.zeros(n, np.float32)])[1]
    with np.errstate(over="ignore", under="ignore"):
        want = np.exp(x.astype(np.float64)).astype(np.float32)
    ulp = np.abs(np.spacing(np.where(np.isfinite(want), want, 1)))
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite])
    assert (np.abs(got[finite].astype(np.float64) - want[finite]) <= 2 * ulp[finite]).all()
    assert got[3] == 1.0


@pytest.mark.parametrize("mode", ["scalar", "vector"])
def test_conversions(mode: str):
    """Widths and kinds: sign and zero extension, truncation, int to float; float to int saturates and NaN is 0."""
    a, _ = integers(32)
    x = np.concatenate([[np.nan, np.inf, -np.inf, 1e20, -1e20, -0.9, 254.7, -129.0], RNG.normal(0, 100, N - 8)])
    x = x.astype(np.float32)
    types = {n: IntegerType(n) for n in (1, 8, 16, 32, 64)}

    casts = [
        (0, "trunci", types[8], a.astype(np.int8)), (0, "trunci", types[1], (a & 1) != 0),
        (0, "extsi", types[64], a.astype(np.int64)),
        (0, "extui", types[64], a.view(np.uint32).astype(np.int64)),
        (0, "sitofp", f32, a.astype(np.float32)), (0, "uitofp", f64, a.view(np.uint32).astype(np.float64)),
        (1, "extf", f64, x.astype(np.float64)), (1, "truncf", Float16Type(), None),
        (1, "bitcast", types[32], x.view(np.int32)),
        (1, "fptosi", types[8], np.clip(np.trunc(np.nan_to_num(x, nan=0.0)), -128, 127).astype(np.int8)),
        (1, "fptoui", types[8], np.clip(np.trunc(np.nan_to_num(x)), 0, 255).astype(np.uint8).view(np.int8)),
    ]  # fmt: skip

    def build(b, values):
        return [b.cast(kind, values[k], t) for k, kind, t, _ in casts]

    outs = [MemRefType(t, [N]) for _, _, t, _ in casts]
    module = elementwise_kernel(build, [types[32], f32], [t for _, _, t, _ in casts], mode)
    with np.errstate(over="ignore"):
        half = x.astype(np.float16)
    got = run(module, [a, x, *[np.zeros(N, memory_dtype(t)) for t in outs]])[2:]
    for (_, kind, _, want), result in zip(casts, got):
        np.testing.assert_array_equal(result, half if want is None else want, err_msg=kind)


GEMM = """
func.func @k(%lo: index, %hi: index, %a: memref<20x12xf32>, %b: memref<12x50xf32>, %o: memref<20x50xf32>)
    attributes {tile.opt = "none"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c6 = arith.constant 6 : index
  %c12 = arith.constant 12 : index
  %c14 = arith.constant 14 : index
  %c32 = arith.constant 32 : index
  %c50 = arith.constant 50 : index
  %zero = arith.constant dense<0.0> : vector<6x32xf32>
  scf.for %block = %lo to %hi step %c1 {
    %start = arith.muli %block, %c6 : index
    %i = arith.minsi %start, %c14 : index
    scf.for %j = %c0 to %c50 step %c32 {
      %left = arith.subi %c50, %j : index
      %r = scf.for %k = %c0 to %c12 step %c4 iter_args(%acc = %zero) -> (vector<6x32xf32>) {
        %x = tile.load %a[%i, %k] dims [0, 1] : memref<20x12xf32>, vector<6x4xf32>
        %y = tile.load %b[%k, %j] dims [0, 1] lanes %left : memref<12x50xf32>, vector<4x32xf32>
        %n = tile.fma %x, %y, %acc : vector<6x4xf32>, vector<4x32xf32>, vector<6x32xf32>
        scf.yield %n : vector<6x32xf32>
      }
      tile.store %r, %o[%i, %j] dims [0, 1] lanes %left : vector<6x32xf32>, memref<20x50xf32>
    }
  }
  func.return
}"""


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


#: What the elements of the factors of a `tile.dot` are, and the type of its sums.
PARTS = {"words": ("<i2", "<i2", "i32"), "bytes": ("u1", "i1", "i32"), "bfloats": ("<u2", "<u2", "f32")}
#: Processors, and the instructions by which bf16 are multiplied there.
MULTIPLIES = {
    "sapphirerapids": "vdpbf16ps",
    "znver5": "vdpbf16ps",
    "x86-64-v4": "vfmadd",
    "x86-64-v3": "vfmadd",
    "generic": "fmla",
}


def dots(kind: str) -> ModuleOp:
    a, b, c = "vector<3x5xi32>", "vector<5x32xi32>", f"vector<3x32x{PARTS[kind][2]}>"
    types = [v.replace("vector", "memref") for v in (a, b, c)]
    return parse(f"""func.func @k(%lo: index, %hi: index, %a: {types[0]}, %b: {types[1]}, %c: {types[2]}) attributes {{tile.opt = "none"}} {{
      %z = arith.constant 0 : index
      %x = tile.load %a[%z, %z] dims [0, 1] : {types[0]}, {a}
      %y = tile.load %b[%z, %z] dims [0, 1] : {types[1]}, {b}
      %s = tile.load %c[%z, %z] dims [0, 1] : {types[2]}, {c}
      %r = tile.dot {kind} %x, %y, %s : {a}, {b}, {c}
      tile.store %r, %c[%z, %z] dims [0, 1] : {c}, {types[2]}
      func.return
    }}""")


@pytest.mark.parametrize("kind", PARTS)
def test_products_of_several(kind):
    """Of the ends of integers, whose sums wrap around; of bf16 as NumPy has them in double."""
    left, right, sums = PARTS[kind]
    shapes = (3, 5), (5, 32), (3, 32)
    if kind == "bfloats":
        a, b = ((normal(*shape, 2).view(np.uint32) & 0xFFFF0000).view(np.float32) for shape in shapes[:2])
        factors = [(x.view(np.uint32) >> 16).astype("<u2") for x in (a, b)]
        acc = normal(*shapes[2])
    else:
        many = 4 // np.dtype(left).itemsize
        ends = [np.array([np.iinfo(t).min, np.iinfo(t).max, 1, 0]).astype(t) for t in (left, right)]
        factors = [RNG.choice(e, (*shape, many)) for e, shape in zip(ends, shapes)]
        a, b = (x.astype(np.int64) for x in factors)
        acc = RNG.integers(-(2**31), 2**31, shapes[2], np.int32)
    want = acc + np.einsum("pkg,kng->pn", a.astype(np.float64 if sums == "f32" else np.int64), b)
    words = [np.ascontiguousarray(x).view("<i4").reshape(shape) for x, shape in zip(factors, shapes)]
    got = run(dots(kind), [*words, acc], grid=1)[2]
    if sums == "i32":
        np.testing.assert_array_equal(got, want.astype(np.int32))
    else:
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("cpu", MULTIPLIES)
def test_products_of_bf16_on_other_processors(cpu):
    triple = "aarch64-unknown-linux-gnu" if cpu == "generic" else "x86_64-unknown-linux-gnu"
    features = "+avx512f,+avx512bf16" if MULTIPLIES[cpu] == "vdpbf16ps" else ""
    assembly = compile_module(dots("bfloats"), machine=CodeMachine(cpu, features, triple)).assembly
    assert MULTIPLIES[cpu] in assembly and ("vdpbf16ps" in assembly) == (MULTIPLIES[cpu] == "vdpbf16ps")


def test_gemm_with_ragged_edges():
    """Rows end by moving the last tile back, columns by run-time lanes."""
    a, b = normal(20, 12), normal(12, 50)
    out = run(parse(GEMM), [a, b, np.full((20, 50), np.nan, np.float32)], grid=4)[2]
    np.testing.assert_allclose(out, a.astype(np.float64) @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("stride", [1, 2, 3, 5])
def test_conv_microkernel(stride: int):
    """3x3 on NCHW: weights element by element, pixels as strided vectors; bias stretched; residual in place; ReLU."""
    c, o, n, rows = 5, 8, 18, 4
    size = (n - 1) * stride + 3
    x, w, bias, residual = normal(c, size, size), normal(o, c, 3, 3), normal(o), normal(o, n, n)
    b = Builder.kernel("k", [MemRefType(f32, a.shape) for a in (x, w, bias, residual)], opt="none")
    xm, wm, bm, om = b.args
    with b.loop(b.lo, b.hi) as block, b.loop(0, n) as y:
        first = b.mul(block.iv, rows)
        start = b.broadcast(b.tile_load(bm, [first], [0, 0], [rows, 1], steps=[1, 0]), [rows, n])
        with b.loop(0, c, carry=[start]) as ci:
            with b.loop(0, 3, carry=ci.args) as ky:
                acc = ky.args[0]
                for kx in range(3):
                    weights = b.tile_load(wm, [first, ci.iv, ky.iv, kx], [0, 1], [rows, 1])
                    row = b.add(b.mul(y.iv, stride), ky.iv)
                    pixels = b.tile_load(xm, [ci.iv, row, kx], [0, 2], [1, n], steps=[1, stride])
                    acc = b.fma(weights, pixels, acc)
                ky.yields(acc)
            ci.yields(*ky.results)
        total = b.op(arith.AddfOp, ci.results[0], b.tile_load(om, [first, y.iv, 0], [0, 2], [rows, n]))
        b.tile_store(b.op(arith.MaximumfOp, total, b.const(0.0, total.type)), om, [first, y.iv, 0], [0, 2])
    out = run(ModuleOp([b.finish()]), [x, w, bias, residual], grid=o // rows)[3]
    wide = x.astype(np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (1, 2))[:, ::stride, ::stride]
    expected = np.einsum("ocij,chwij->ohw", w, windows)
    np.testing.assert_allclose(out, np.maximum(expected + bias[:, None, None] + residual, 0), rtol=1e-4, atol=1e-4)


def test_depthwise_and_reductions():
    """Nine taps of one channel, then the mean, the largest and the product over rows and over everything."""
    n = 6
    x, w = normal(3, n + 2, 35), normal(3, 3, 3)
    types = [MemRefType(f32, s) for s in ((3, n + 2, 35), (3, 3, 3), (3, n, 33), (3, 4), (3, 4), (3, 4), (3, n))]
    b = Builder.kernel("k", types, opt="none")
    xm, wm, om, sums, most, least, rows = b.args
    shape, zero = [n, 33], b.const(0.0, vector_type((n, 33), f32))
    with b.loop(b.lo, b.hi) as c:
        acc = zero
        for i in range(3):
            for j in range(3):
                tap = b.broadcast(b.load(wm, [c.iv, i, j]), shape)
                acc = b.op(math.FmaOp, tap, b.tile_load(xm, [c.iv, i, j], [1, 2], shape), acc)
        b.tile_store(acc, om, [c.iv, 0, 0], [1, 2])
        for kind, m in (("add", sums), ("max", most), ("min", least)):
            b.store(b.reduce(kind, acc, [0, 1]), m, [c.iv, 0])
            columns = b.reduce(kind, acc, [0])
            b.store(b.reduce(kind, columns, [0]), m, [c.iv, 1])
            b.store(b.reduce(kind, b.reduce(kind, acc, [1]), [0]), m, [c.iv, 2])
        b.tile_store(b.reduce("add", acc, [1]), rows, [c.iv, 0], [1])
    arrays = [x, w, np.zeros((3, n, 33)), np.zeros((3, 4)), np.zeros((3, 4)), np.zeros((3, 4)), np.zeros((3, n))]
    outs = run(ModuleOp([b.finish()]), [a.astype(np.float32) for a in arrays], grid=3, rtol=1e-4, atol=1e-4)[2:]
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), (1, 2))
    expected = np.einsum("cij,chwij->chw", w, windows)
    np.testing.assert_allclose(outs[0], expected, rtol=1e-4, atol=1e-5)
    for k, f in enumerate((np.sum, np.max, np.min)):
        want = np.repeat(f(expected, axis=(1, 2))[:, None], 3, 1)
        np.testing.assert_allclose(outs[1 + k][:, :3], want, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(outs[4], expected.sum(axis=2), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("bits", [8, 32])
def test_integer_reductions(bits: int):
    """Signed and unsigned extremes, sums that wrap."""
    t, dtype = IntegerType(bits), np.dtype(f"i{bits // 8}")
    kinds = ("add", "mul", "max", "min", "umax", "umin")
    b = Builder.kernel("k", [MemRefType(t, [6, 20]), MemRefType(t, [6])], opt="none")
    value = b.tile_load(b.args[0], [0, 0], [0, 1], [6, 20])
    for k, kind in enumerate(kinds):
        b.store(b.reduce(kind, value, [0, 1]), b.args[1], [k])
    x = RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (6, 20), dtype)
    out = run(ModuleOp([b.finish()]), [x, np.zeros(6, dtype)])[1]
    u = x.view(f"u{bits // 8}")
    product = wrap(int(np.prod(x.astype(object))), bits)
    assert out.tolist() == [
        wrap(int(x.astype(object).sum()), bits),
        product,
        x.max(),
        x.min(),
        wrap(int(u.max()), bits),
        wrap(int(u.min()), bits),
    ]


def test_slices():
    """Static extents, repeats (step 0), windows over one dimension, transposes, extract and insert."""
    text = """
func.func @k(%lo: index, %hi: index, %x: memref<9x40xf32>, %o: memref<9x40xf32>, %t: memref<3x5x20xf32>,
             %w: memref<4x7xf32>, %s: memref<20x3xf32>) attributes {tile.opt = "none"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %v = tile.load %x[%c1, %c3] dims [0, 1] valid [7, 37] : memref<9x40xf32>, vector<8x40xf32>
  tile.store %v, %o[%c1, %c0] dims [0, 1] valid [8, 39] : vector<8x40xf32>, memref<9x40xf32>
  %win = tile.load %x[%c0, %c0] dims [1, 1] steps [2, 1] : memref<9x40xf32>, vector<4x7xf32>
  tile.store %win, %w[%c0, %c0] dims [0, 1] : vector<4x7xf32>, memref<4x7xf32>
  %a = tile.load %x[%c0, %c0] dims [0, 1] : memref<9x40xf32>, vector<3x20xf32>
  %b = tile.load %x[%c3, %c0] dims [0, 1] : memref<9x40xf32>, vector<3x20xf32>
  %p, %q, %r = tile.transpose %a, %b : vector<3x20xf32>, vector<3x20xf32> -> vector<2x20xf32>, vector<2x20xf32>, vector<2x20xf32>
  tile.store %p, %t[%c0, %c0, %c0] dims [1, 2] : vector<2x20xf32>, memref<3x5x20xf32>
  tile.store %r, %t[%c1, %c0, %c0] dims [0, 2] : vector<2x20xf32>, memref<3x5x20xf32>
  %row = vector.extract %a[1] : vector<20xf32> from vector<3x20xf32>
  %one = vector.extract %a[2, 5] : f32 from vector<3x20xf32>
  %col = vector.insert %row, %b[0] : vector<20xf32> into vector<3x20xf32>
  %last = vector.insert %one, %col[2, 19] : f32 into vector<3x20xf32>
  tile.store %last, %s[%c0, %c0] dims [1, 0] : vector<3x20xf32>, memref<20x3xf32>
  func.return
}"""
    x = normal(9, 40)
    zeros = [np.zeros(s, np.float32) for s in ((9, 40), (3, 5, 20), (4, 7), (20, 3))]
    _, o, t, w, s = run(parse(text), [x, *zeros])
    expected = np.zeros((9, 40), np.float32)
    expected[1:8, :37] = x[1:8, 3:]
    np.testing.assert_array_equal(o, expected)
    np.testing.assert_array_equal(w, [x[0, 2 * i : 2 * i + 7] for i in range(4)])
    np.testing.assert_array_equal(t[0, :2], x[[0, 3], :20])
    np.testing.assert_array_equal(t[1:3, 0], x[[2, 5], :20])
    tile = x[3:6, :20].copy()
    tile[0], tile[2, 19] = x[1, :20], x[2, 5]
    np.testing.assert_array_equal(s, tile.T)


def test_overlapping_in_place():
    """A load stays lazy only until its memory is written: each row becomes the sum with the row before the update."""
    text = """
func.func @k(%lo: index, %hi: index, %x: memref<4x32xf32>) attributes {tile.opt = "none"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %a = tile.load %x[%c0, %c0] dims [0, 1] : memref<4x32xf32>, vector<3x32xf32>
  %b = tile.load %x[%c1, %c0] dims [0, 1] : memref<4x32xf32>, vector<3x32xf32>
  %s = arith.addf %a, %b : vector<3x32xf32>
  tile.store %s, %x[%c1, %c0] dims [0, 1] : vector<3x32xf32>, memref<4x32xf32>
  tile.store %a, %x[%c0, %c0] dims [0, 1] : vector<3x32xf32>, memref<4x32xf32>
  func.return
}"""
    x = normal(4, 32)
    expected = x.copy()
    expected[1:] = x[:-1] + x[1:]
    expected[:3] = x[:3]
    np.testing.assert_array_equal(run(parse(text), [x])[0], expected)


SORT = """
func.func private @less(%a: f32, %b: f32) -> i1 {
  %r = arith.cmpf olt, %a, %b : f32
  func.return %r : i1
}
func.func @k(%lo: index, %hi: index, %x: memref<8x13xf32>, %n: memref<8xi64>, %ws: memref<128xi8>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c13 = arith.constant 13 : index
  %c64 = arith.constant 64 : index
  %buf = memref.view %ws[%c64][] : memref<128xi8> to memref<13xf32>
  %flags = memref.alloca() : memref<13xi1>
  %false = arith.constant false
  %true = arith.constant true
  scf.for %r = %lo to %hi step %c1 {
    scf.for %j = %c0 to %c13 step %c1 {
      %v = memref.load %x[%r, %j] : memref<8x13xf32>
      memref.store %v, %buf[%j] : memref<13xf32>
      memref.store %false, %flags[%j] : memref<13xi1>
    }
    %moves = scf.for %i = %c1 to %c13 step %c1 iter_args(%count = %c0) -> (index) {
      %key = memref.load %buf[%i] : memref<13xf32>
      %j, %m = scf.while (%p = %i, %q = %count) : (index, index) -> (index, index) {
        %inside = arith.cmpi sgt, %p, %c0 : index
        %go = scf.if %inside -> (i1) {
          %before = arith.subi %p, %c1 : index
          %w = memref.load %buf[%before] : memref<13xf32>
          %l = func.call @less(%key, %w) : (f32, f32) -> i1
          scf.yield %l : i1
        } else {
          scf.yield %false : i1
        }
        scf.condition(%go) %p, %q : index, index
      } do {
      ^bb0(%p: index, %q: index):
        %before = arith.subi %p, %c1 : index
        %w = memref.load %buf[%before] : memref<13xf32>
        memref.store %w, %buf[%p] : memref<13xf32>
        memref.store %true, %flags[%p] : memref<13xi1>
        %q1 = arith.addi %q, %c1 : index
        scf.yield %before, %q1 : index, index
      }
      memref.store %key, %buf[%j] : memref<13xf32>
      scf.yield %m : index
    }
    %touched = scf.for %j = %c0 to %c13 step %c1 iter_args(%t = %c0) -> (index) {
      %v = memref.load %buf[%j] : memref<13xf32>
      memref.store %v, %x[%r, %j] : memref<8x13xf32>
      %f = memref.load %flags[%j] : memref<13xi1>
      %t1 = scf.if %f -> (index) {
        %u = arith.addi %t, %c1 : index
        scf.yield %u : index
      } else {
        scf.yield %t : index
      }
      scf.yield %t1 : index
    }
    %hundred = arith.constant 100 : index
    %scaled = arith.muli %moves, %hundred : index
    %both = arith.addi %scaled, %touched : index
    %cast = arith.index_cast %both : index to i64
    memref.store %cast, %n[%r] : memref<8xi64>
  }
  func.return
}"""


@pytest.mark.parametrize("mode", ["O2", "none"])
def test_insertion_sort(mode: str):
    """while in for in for, if with results, a private function, views of a workspace, i1 memory, index results."""
    x = normal(8, 13)
    module = parse(SORT.replace("%ws: memref<128xi8>)", f'%ws: memref<128xi8>) attributes {{tile.opt = "{mode}"}}'))
    out, counts, _ = run(module, [x, np.zeros(8, np.int64), np.zeros(128, np.int8)], grid=8)
    np.testing.assert_array_equal(out, np.sort(x, axis=1))
    inversions = [sum(a > b for i, a in enumerate(row) for b in row[i + 1 :]) for row in x]
    assert (counts // 100).tolist() == inversions


def test_known_bounds():
    """Loops of no trip and of one, conditions that fold, index division by constants, negative indices included."""
    text = """
func.func @k(%lo: index, %hi: index, %o: memref<40xi64>) attributes {tile.opt = "none"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c9 = arith.constant 9 : index
  %m20 = arith.constant -20 : index
  %zero = arith.constant 0 : i64
  %none = scf.for %i = %c3 to %c0 step %c1 iter_args(%a = %c9) -> (index) {
    scf.yield %i : index
  }
  scf.for %i = %lo to %hi step %c1 {
    %shifted = arith.addi %i, %m20 : index
    %once = scf.for %j = %i to %i1 step %c1 iter_args(%a = %c0) -> (index) {
      %twice = arith.addi %j, %j : index
      scf.yield %twice : index
    }
    %triple = arith.muli %shifted, %c3 : index
    %d = arith.divsi %shifted, %c3 : index
    %f = arith.floordivsi %shifted, %c3 : index
    %u = arith.ceildivsi %shifted, %c3 : index
    %r = arith.remsi %shifted, %c3 : index
    %e = arith.divsi %triple, %c3 : index
    %same = arith.cmpi eq, %e, %shifted : index
    scf.if %same {
      %s0 = arith.addi %d, %f : index
      %s1 = arith.addi %u, %r : index
      %s2 = arith.addi %s0, %s1 : index
      %s3 = arith.addi %s2, %once : index
      %s4 = arith.addi %s3, %none : index
      %s = arith.index_cast %s4 : index to i64
      memref.store %s, %o[%i] : memref<40xi64>
    }
  }
  func.return
}""".replace("%once = scf", "%i1 = arith.addi %i, %c1 : index\n    %once = scf")
    out = run(parse(text), [np.zeros(40, np.int64)], grid=40)[0]

    def value(i: int) -> int:
        s = i - 20
        quotient = exact_division(s, 3)
        return quotient + s // 3 + -(-s // 3) + s - 3 * quotient + 2 * i + 9

    assert out.tolist() == [value(i) for i in range(40)]


#: Ops on indices, with their meaning: those of `INT_OPS` that indices have.
INDEX_OPS = {
    "addi": lambda a, b: a + b, "subi": lambda a, b: a - b, "muli": lambda a, b: a * b, "divsi": exact_division,
    "remsi": lambda a, b: a - b * exact_division(a, b) if b else 0, "floordivsi": lambda a, b: a // b if b else 0,
    "ceildivsi": lambda a, b: -(-a // b) if b else 0, "maxsi": max, "minsi": min,
}  # fmt: skip
UNSIGNED_OPS = {
    "divui": exact_division, "remui": lambda a, b: a % b if b else 0, "ceildivui": lambda a, b: -(-a // b) if b else 0,
    "maxui": max, "minui": min,
}  # fmt: skip
PREDICATES = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "slt": lambda a, b: a < b, "sle": lambda a, b: a <= b,
    "sgt": lambda a, b: a > b, "sge": lambda a, b: a >= b, "ult": lambda a, b: a < b, "uge": lambda a, b: a >= b,
}  # fmt: skip


def test_index_arithmetic_folds_to_what_it_computes():
    """Every op on indices that are constants, depend on the block, and both: exact quotients and others, of either sign, by zero."""
    operands = {
        "c7": 7, "c6": 6, "m7": -7, "m6": -6, "c0": 0, "c3": 3, "c2": 2, "i": None, "six": lambda i: 6 * i + 12, "off": lambda i: 6 * i + 13,
        "two": lambda i: i + 2,
    }  # fmt: skip
    lines, wanted = [], []
    for a, b in (("c7", "c2"), ("c6", "c3"), ("m7", "c2"), ("m6", "c3"), ("c7", "c0"), ("i", "c3"), ("i", "two"), ("six", "c3"),
                 ("off", "c3"), ("m7", "two"), ("c0", "i")):  # fmt: skip
        negative = "m7" in (a, b) or "m6" in (a, b)
        for name, meaning in (INDEX_OPS | ({} if negative else UNSIGNED_OPS)).items():
            lines.append(f"%r{len(wanted)} = arith.{name} %{a}, %{b} : index")
            wanted.append((a, b, meaning))
        for name, meaning in PREDICATES.items():
            if not (negative and name[0] == "u"):
                lines.append(f"%p{len(wanted)} = arith.cmpi {name}, %{a}, %{b} : index")
                lines.append(f"%r{len(wanted)} = arith.select %p{len(wanted)}, %c3, %c2 : index")
                wanted.append((a, b, lambda x, y, meaning=meaning: 3 if meaning(x, y) else 2))
    constants = [
        f"%{name} = arith.constant {value} : index" for name, value in operands.items() if isinstance(value, int)
    ]
    for n in range(len(wanted)):
        lines += [f"%at{n} = arith.constant {n} : index", f"%v{n} = arith.index_cast %r{n} : index to i64",
                  f"memref.store %v{n}, %o[%i, %at{n}] : memref<3x{len(wanted)}xi64>"]  # fmt: skip
    text = f"""
func.func @k(%lo: index, %hi: index, %o: memref<3x{len(wanted)}xi64>) attributes {{tile.opt = "none"}} {{
  %c1 = arith.constant 1 : index
  %c12 = arith.constant 12 : index
  {chr(10).join(constants)}
  scf.for %i = %lo to %hi step %c1 {{
    %scaled = arith.muli %i, %c6 : index
    %six = arith.addi %scaled, %c12 : index
    %off = arith.addi %six, %c1 : index
    %two = arith.addi %i, %c2 : index
    {chr(10).join(lines)}
  }}
  func.return
}}"""
    module, memory = parse(text), [np.zeros((3, len(wanted)), np.int64)]
    found = [interpreted(module, "k", 3, memory), native(compile_module(module, verify=True), "k", 3, memory)]

    def value(name: str, i: int) -> int:
        known = operands[name]
        return i if known is None else known if isinstance(known, int) else known(i)

    for (out,) in found:
        assert out.tolist() == [[meaning(value(a, i), value(b, i)) for a, b, meaning in wanted] for i in range(3)]


def test_slices_of_single_lanes_and_of_bits():
    """Run-time lanes on a last dimension of 1, on bits and on strided memory; elements taken one by one from what is masked; none at all."""
    text = """
func.func @k(%lo: index, %hi: index, %x: memref<5x40xf32>, %f: memref<40xi1>, %g: memref<3xi32>, %n: memref<2xi64>, %one: memref<3x2xf32>,
             %bits: memref<2x40xi1>, %far: memref<40x2xf32>, %s: memref<9xf32>, %w: memref<4xi32>) attributes {tile.opt = "none"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %m = memref.load %n[%c0] : memref<2xi64>
  %none = arith.index_cast %m : i64 to index
  %k = memref.load %n[%c1] : memref<2xi64>
  %some = arith.index_cast %k : i64 to index
  %v0 = tile.load %x[%c1, %c0] dims [0, 1] lanes %some : memref<5x40xf32>, vector<3x1xf32>
  tile.store %v0, %one[%c0, %c0] dims [0, 1] lanes %some : vector<3x1xf32>, memref<3x2xf32>
  %v1 = tile.load %x[%c0, %c0] dims [0, 1] lanes %none : memref<5x40xf32>, vector<3x1xf32>
  tile.store %v1, %one[%c0, %c1] dims [0, 1] : vector<3x1xf32>, memref<3x2xf32>
  %b = tile.load %f[%c0] dims [0] lanes %some : memref<40xi1>, vector<32xi1>
  tile.store %b, %bits[%c0, %c0] dims [1] : vector<32xi1>, memref<2x40xi1>
  %all = tile.load %f[%c0] dims [0] : memref<40xi1>, vector<32xi1>
  tile.store %all, %bits[%c1, %c0] dims [1] lanes %some : vector<32xi1>, memref<2x40xi1>
  %row = tile.load %x[%c0, %c0] dims [1] : memref<5x40xf32>, vector<32xf32>
  tile.store %row, %far[%c0, %c0] dims [0] lanes %some : vector<32xf32>, memref<40x2xf32>
  tile.store %row, %far[%c0, %c1] dims [0] lanes %none : vector<32xf32>, memref<40x2xf32>
  %late = tile.load %x[%c3, %c0] dims [1] lanes %some : memref<5x40xf32>, vector<32xf32>
  %e0 = vector.extract %late[18] : f32 from vector<32xf32>
  %e1 = vector.extract %late[20] : f32 from vector<32xf32>
  %part = tile.load %x[%c0, %c0] dims [0, 1] valid [2, 20] : memref<5x40xf32>, vector<3x32xf32>
  %inner = vector.extract %part[1] : vector<32xf32> from vector<3x32xf32>
  %e2 = vector.extract %inner[3] : f32 from vector<32xf32>
  %e3 = vector.extract %inner[20] : f32 from vector<32xf32>
  %fold = tile.load %x[%c0, %c0] dims [0, 1] : memref<5x40xf32>, vector<5x4xf32>
  %product = tile.reduce mul %fold dims [0, 1] : vector<5x4xf32> to f32
  %back = tile.load %x[%c4, %c3] dims [1] steps [-1] : memref<5x40xf32>, vector<4xf32>
  %e5 = vector.extract %back[3] : f32 from vector<4xf32>
  memref.store %e0, %s[%c0] : memref<9xf32>
  memref.store %e1, %s[%c1] : memref<9xf32>
  memref.store %e2, %s[%c3] : memref<9xf32>
  memref.store %e3, %s[%c4] : memref<9xf32>
  %c5 = arith.constant 5 : index
  %c6 = arith.constant 6 : index
  memref.store %product, %s[%c5] : memref<9xf32>
  memref.store %e5, %s[%c6] : memref<9xf32>
  %never = arith.constant false
  %always = arith.constant true
  %chosen = arith.select %never, %e0, %e5 : f32
  %c7 = arith.constant 7 : index
  memref.store %chosen, %s[%c7] : memref<9xf32>
  %taken = scf.if %always -> (f32) {
    scf.yield %e2 : f32
  } else {
    scf.yield %e0 : f32
  }
  %c8 = arith.constant 8 : index
  memref.store %taken, %s[%c8] : memref<9xf32>
  %whole = tile.load %g[%c0] dims [0] valid [3] : memref<3xi32>, vector<4xi32>
  %outside = vector.extract %whole[3] : i32 from vector<4xi32>
  memref.store %outside, %w[%c0] : memref<4xi32>
  %list = arith.constant dense<[[5], [6], [7]]> : vector<3x1xi32>
  %flat = tile.reduce add %list dims [1] : vector<3x1xi32> to vector<3xi32>
  tile.store %flat, %w[%c1] dims [0] : vector<3xi32>, memref<4xi32>
  func.return
}"""
    x = 1 + normal(5, 40) / 4
    f = (RNG.random(40) < 0.5).astype(np.uint8)
    zeros = [
        np.zeros((3, 2), np.float32),
        np.ones((2, 40), np.uint8),
        np.zeros((40, 2), np.float32),
        np.zeros(9, np.float32),
    ]
    arrays = [x, f, np.array([1, 2, 3], np.int32), np.array([0, 19]), *zeros, np.full(4, 9, np.int32)]
    _, _, _, _, one, bits, far, s, w = run(parse(text), arrays)
    np.testing.assert_array_equal(one, np.stack([x[1:4, 0], np.zeros(3, np.float32)], 1))
    np.testing.assert_array_equal(bits[0], [*f[:19], *[0] * 13, *[1] * 8])
    np.testing.assert_array_equal(bits[1], [*f[:19], *[1] * 21])
    np.testing.assert_array_equal(far, np.stack([[*x[0, :19], *[0] * 21], [0] * 40], 1))
    product = x[:, :4].astype(np.float64).prod()
    np.testing.assert_allclose(s, [x[3, 18], 0, 0, x[1, 3], 0, product, x[4, 0], x[4, 0], x[1, 3]], rtol=1e-5)
    assert w.tolist() == [0, 5, 6, 7]


def random_program(seed: int) -> tuple[ModuleOp, list[np.ndarray]]:
    """Random elementwise vector code with loads and stores that overlap, in a loop that carries a tile."""
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 4)), int(rng.choice([1, 3, 7, 16, 20, 32])))
    memory = MemRefType(f32, [10, 40])
    b = Builder.kernel("k", [memory, memory], opt=str(rng.choice(["O2", "none"])))
    start = b.tile_load(b.args[0], [0, 0], [0, 1], shape)
    ops = [arith.AddfOp, arith.SubfOp, arith.MulfOp, arith.MaximumfOp, arith.MinimumfOp]

    def access() -> dict:
        step = int(rng.choice([1, 1, 2]))
        dims = [0, 1] if rng.random() < 0.8 or max(shape) > 10 else [1, 0]
        room = [10, 40] if dims == [0, 1] else [40, 10]
        step = step if (shape[1] - 1) * step < room[1] else 1
        at = [int(rng.integers(0, r - (n - 1) * s)) for r, n, s in zip(room, shape, (1, step))]
        return {"indices": at if dims == [0, 1] else at[::-1], "dims": dims, "steps": [1, step]}

    with b.loop(0, 3, carry=[start]) as loop:
        pool = [loop.args[0], b.const(0.5, start.type)]
        for _ in range(int(rng.integers(4, 14))):
            kind, m = rng.random(), b.args[int(rng.integers(2))]
            if kind < 0.3:
                pool.append(b.tile_load(m, shape=shape, **access()))
            elif kind < 0.5:
                b.tile_store(pool[int(rng.integers(len(pool)))], m, **access())
            else:
                x, y = (pool[int(rng.integers(len(pool)))] for _ in range(2))
                pool.append(b.op(ops[int(rng.integers(len(ops)))], x, y))
        loop.yields(pool[-1] if pool[-1].type == start.type else pool[0])
    b.tile_store(loop.results[0], b.args[1], [0, 0], [0, 1])
    arrays = [rng.uniform(-1, 1, (10, 40)).astype(np.float32) for _ in range(2)]
    return ModuleOp([b.finish()]), arrays


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed: int):
    """Lazy emission keeps the order of loads and stores."""
    module, arrays = random_program(seed)
    run(module, arrays, rtol=1e-3, atol=1e-3)


def test_interpreter_checks_bounds_and_order():
    """An index outside the memref is an error that names the op; blocks that depend on their order give other results."""
    text = """
func.func @k(%lo: index, %hi: index, %x: memref<9xi32>) {
  %c1 = arith.constant 1 : index
  scf.for %i = %lo to %hi step %c1 {
    %v = memref.load %x[%i] : memref<9xi32>
    %j = arith.addi %i, %c1 : index
    memref.store %v, %x[%j] : memref<9xi32>
  }
  func.return
}"""
    program = LoopProgram(parse(text))
    with pytest.raises(LightNetError, match=r"@k: memref.store at \[9\] is out of bounds"):
        program.launch("k", [8], [np.zeros(9, np.int32)])
    ascending, shuffled = np.arange(9, dtype=np.int32), np.arange(9, dtype=np.int32)
    program.launch("k", range(8), [ascending])
    program.launch("k", [5, 2, 7, 0, 1, 3, 6, 4], [shuffled])
    assert ascending.tolist() != shuffled.tolist()
    tile = text.replace(
        "memref.load %x[%i] : memref<9xi32>",
        "memref.load %x[%i] : memref<9xi32>\n    %w = tile.load %x[%i] dims [0] : memref<9xi32>, vector<4xi32>",
    )
    with pytest.raises(LightNetError, match=r"tile.load at \[6\]"):
        LoopProgram(parse(tile)).launch("k", [6], [np.zeros(9, np.int32)])


@pytest.mark.parametrize("mode", ["O2", "none"])
def test_loads_are_repeated_after_stores(mode: str):
    """The same place read before a store, after it, and after a loop that writes it: scalars and tiles."""
    memory = MemRefType(f32, [4, 16])
    b = Builder.kernel("k", [memory, memory], opt=mode)
    x, o = b.args

    def both(row: int) -> None:
        b.tile_store(b.tile_load(x, [0, 0], [1], [16]), o, [row, 0], [1])
        b.store(b.load(x, [1, 0]), o, [3, row])

    both(0)
    b.tile_store(b.tile_load(x, [2, 0], [1], [16]), x, [0, 0], [1])
    b.store(b.const(7.0, f32), x, [1, 0])
    both(1)
    with b.loop(b.lo, b.hi):
        b.tile_store(b.tile_load(x, [3, 0], [1], [16]), x, [0, 0], [1])
        b.store(b.const(8.0, f32), x, [1, 0])
    both(2)
    x0 = normal(4, 16)
    out = run(ModuleOp([b.finish()]), [x0, np.zeros((4, 16), np.float32)])[1]
    np.testing.assert_array_equal(out[:3], x0[[0, 2, 3]])
    np.testing.assert_array_equal(out[3, :3], [x0[1, 0], 7, 8])
