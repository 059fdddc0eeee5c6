"""Elementwise ops of level 4 as PTX, executed in the PTX interpreter, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from cuda_device import Device, N, op_kernel

NUMPY = {
    "i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "f16": np.float16,
    "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip
INTEGERS, FLOATS = ("i8", "i16", "i32", "i64"), ("f16", "bf16", "f32", "f64")


# ---- scalars: an op a kernel --------------------------------------------------------------------------------------------------


def total(divide):
    """Integer division by 0 is 0, of Python's numbers, which then wrap."""

    def apply(a, b):
        wide = np.array([0 if y == 0 else divide(int(x), int(y)) for x, y in zip(a, b)], object)
        return np.array([int(v) & (1 << 8 * a.itemsize) - 1 for v in wide], f"u{a.itemsize}").view(a.dtype)

    return apply


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def unsigned(operation):
    """An operation on the bits taken for unsigned numbers."""
    return lambda *args: np.asarray(operation(*(x.view(f"u{x.itemsize}") for x in args))).view(args[0].dtype)


def shift(operation):
    """Shifts by less than the width."""
    return lambda a, b: operation(a, b & (8 * a.itemsize - 1))


def bit_count(function):
    return lambda a: np.array(
        [function(f"{int(v) & (1 << 8 * a.itemsize) - 1:0{8 * a.itemsize}b}") for v in a], a.dtype
    )


BINARY_INT = {
    "addi": np.add, "subi": np.subtract, "muli": np.multiply, "andi": np.bitwise_and, "ori": np.bitwise_or,
    "xori": np.bitwise_xor, "divsi": total(truncated), "remsi": total(lambda a, b: a - b * truncated(a, b)),
    "floordivsi": total(lambda a, b: a // b), "ceildivsi": total(lambda a, b: -(-a // b)),
    "divui": unsigned(total(lambda a, b: a // b)), "remui": unsigned(total(lambda a, b: a % b)),
    "ceildivui": unsigned(total(lambda a, b: -(-a // b))),
    "maxsi": np.maximum, "minsi": np.minimum, "maxui": unsigned(np.maximum), "minui": unsigned(np.minimum),
}  # fmt: skip
UNARY_INT = {
    "absi": np.abs,
    "ctlz": bit_count(lambda bits: len(bits) - len(bits.lstrip("0"))),
    "cttz": bit_count(lambda bits: len(bits) - len(bits.rstrip("0"))),
    "ctpop": bit_count(lambda bits: bits.count("1")),
}
BINARY_FLOAT = {
    "arith.addf": np.add, "arith.subf": np.subtract, "arith.mulf": np.multiply, "arith.divf": np.divide,
    "arith.maximumf": lambda a, b: np.where((a == 0) & (b == 0), a + b, np.maximum(a, b)),
    "arith.minimumf": lambda a, b: np.where((a == 0) & (b == 0), -(-a - b), np.minimum(a, b)),
    "math.copysign": np.copysign,
}  # fmt: skip
UNARY_FLOAT = {
    "arith.negf": np.negative, "math.absf": np.abs, "math.sqrt": np.sqrt, "math.floor": np.floor, "math.ceil": np.ceil,
    "math.trunc": np.trunc, "math.roundeven": np.rint, "math.round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    "math.rsqrt": lambda x: 1 / np.sqrt(x),
}  # fmt: skip


def in_float(function):
    """f16 and bf16 are computed in f32, and rounded."""

    def apply(*args):
        short = args[0].itemsize == 2
        result = function(*(x.astype(np.float32) if short else x for x in args))
        return result.astype(args[0].dtype)

    return apply


def saturated(target: str, sign: bool):
    """A float as an integer: the nearest that there is, NaN as 0."""

    def apply(x):
        bits = 8 * np.dtype(NUMPY[target]).itemsize
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if sign else (0, (1 << bits) - 1)
        whole = [0 if v != v else low if v <= low else high if v >= high else int(v) for v in x.astype(np.float64)]
        return np.array([w & (1 << bits) - 1 for w in whole], f"u{bits // 8}").view(NUMPY[target])

    return apply


def scalar_cases():
    """(name, op, source type, result type, operands, function of NumPy)"""
    for t in INTEGERS:
        for op, f in BINARY_INT.items():
            yield f"{op}_{t}", f"arith.{op} %a, %b : {t}", t, t, 2, f
        for op, f in {"shli": np.left_shift, "shrsi": np.right_shift, "shrui": unsigned(np.right_shift)}.items():
            mask = f"arith.andi %b, %mask : {t}\n  %s = arith.{op} %a, %m : {t}"
            text = f"arith.addi %s, %zero : {t}"
            head = (
                f"%mask = arith.constant {8 * np.dtype(NUMPY[t]).itemsize - 1} : {t}\n  %zero = arith.constant 0 : {t}"
            )
            yield f"{op}_{t}", f"{head}|%m = {mask}|{text}", t, t, 2, shift(f)
        for op, f in UNARY_INT.items():
            yield f"{op}_{t}", f"math.{op} %a : {t}", t, t, 1, f
        for p, f in {"eq": np.equal, "slt": np.less, "sge": np.greater_equal}.items():
            yield f"cmpi_{p}_{t}", f"arith.cmpi {p}, %a, %b : {t}", t, "i1", 2, f
        for p, f in {"ult": np.less, "uge": np.greater_equal}.items():
            yield f"cmpi_{p}_{t}", f"arith.cmpi {p}, %a, %b : {t}", t, "i1", 2, lambda a, b, f=f: f(
                a.view(f"u{a.itemsize}"), b.view(f"u{b.itemsize}"))  # fmt: skip
    for t in FLOATS:
        for op, f in {"maxnumf": np.fmax, "minnumf": np.fmin}.items():
            yield f"{op}_{t}", f"arith.{op} %a, %b : {t}", t, t, 2, in_float(f)
        for op, f in BINARY_FLOAT.items():
            yield f"{op.partition('.')[2]}_{t}", f"{op} %a, %b : {t}", t, t, 2, in_float(f)
        for op, f in UNARY_FLOAT.items():
            yield f"{op.partition('.')[2]}_{t}", f"{op} %a : {t}", t, t, 1, in_float(f)
        for p, f in {"oeq": np.equal, "une": np.not_equal, "olt": np.less, "oge": np.greater_equal}.items():
            yield f"cmpf_{p}_{t}", f"arith.cmpf {p}, %a, %b : {t}", t, "i1", 2, f
        yield f"uno_{t}", f"arith.cmpf uno, %a, %b : {t}", t, "i1", 2, lambda a, b: np.isnan(a) | np.isnan(b)
        for u in INTEGERS:
            yield f"fptosi_{t}_{u}", f"arith.fptosi %a : {t} to {u}", t, u, 1, saturated(u, True)
            yield f"fptoui_{t}_{u}", f"arith.fptoui %a : {t} to {u}", t, u, 1, saturated(u, False)
            for op, kind in (("sitofp", "i"), ("uitofp", "u")):
                yield f"{op}_{u}_{t}", f"arith.{op} %a : {u} to {t}", u, t, 1, lambda a, k=kind, t=t: (
                    a.view(f"{k}{a.itemsize}").astype(np.float64 if t == "f64" else np.float32).astype(NUMPY[t]))  # fmt: skip
        for u in FLOATS:
            size = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}
            if size[t] != size[u]:
                op = "extf" if size[u] > size[t] else "truncf"
                yield f"{op}_{t}_{u}", f"arith.{op} %a : {t} to {u}", t, u, 1, lambda a, u=u: a.astype(NUMPY[u])
    for t in INTEGERS:
        for u in INTEGERS:
            a, b = int(t[1:]), int(u[1:])
            if a < b:
                yield f"extsi_{t}_{u}", f"arith.extsi %a : {t} to {u}", t, u, 1, lambda x, u=u: x.astype(NUMPY[u])
                yield f"extui_{t}_{u}", f"arith.extui %a : {t} to {u}", t, u, 1, lambda x, u=u: (
                    x.view(f"u{x.itemsize}").astype(NUMPY[u]))  # fmt: skip
            if a > b:
                yield f"trunci_{t}_{u}", f"arith.trunci %a : {t} to {u}", t, u, 1, lambda x, u=u: x.astype(NUMPY[u])


CASES = list(scalar_cases())


def scalars_text() -> str:
    parts = []
    for name, op, source, target, arity, _ in CASES:
        *before, last = op.split("|")
        text = op_kernel(name, last, source, target, arity)
        parts.append(text.replace("  %r =", "".join(f"  {line}\n" for line in before) + "  %r ="))
    return "".join(parts)


def values(type: str, rng: np.random.Generator) -> np.ndarray:
    """The ends of the range, numbers near 0, and random bits."""
    dtype = np.dtype(NUMPY[type])
    if type in INTEGERS:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        special = [0, 1, -1, 2, -2, 7, low, high, low + 1, high - 1]
        bits = rng.integers(low, high, N, dtype, endpoint=True)
    else:
        info = ml_dtypes.finfo(dtype)
        special = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, np.inf, -np.inf, np.nan, info.max, info.smallest_subnormal, -2.0]
        bits = (rng.standard_normal(N) * 10.0 ** rng.uniform(-4, 4, N)).astype(dtype)
    bits[: len(special)] = np.array(special).astype(dtype)
    return rng.permutation(bits)


def same_bits(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Equality bit for bit; any NaN for a NaN."""
    if got.dtype == np.bool_:
        return got == want
    bits = f"u{got.itemsize}"
    return (got.view(bits) == want.view(bits)) | ((got != got) & (want != want))


def test_scalars():
    """Every elementwise op at every type gives NumPy's bits, through LLVM and the interpreter."""
    rng = np.random.default_rng(0)
    device, wrong = Device(scalars_text()), []
    for name, _, source, target, arity, function in CASES:
        inputs = [values(source, rng) for _ in range(arity)]
        out = np.zeros(N, np.uint8 if target == "i1" else NUMPY[target])
        got = device.run(name, [1], [N], inputs, out)
        with np.errstate(all="ignore"):
            want = function(*inputs)
        ok = same_bits(got.view(np.bool_) if target == "i1" else got, want)
        if name.startswith(("maxnum", "minnum")):  # of two zeros either one
            ok |= got == want
        if not ok.all():
            k = int(np.argmin(ok))
            wrong.append(f"{name}({[x[k] for x in inputs]}) = {got[k]}, not {want[k]}")
    assert not wrong, "\n".join(wrong)
