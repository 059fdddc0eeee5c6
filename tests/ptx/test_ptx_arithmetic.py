"""What LLVM emits for every arithmetic op computes, in the PTX interpreter, what Python, NumPy and ml_dtypes compute."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from ptx_tools import elementwise, run, to_ptx

from lightnet_ptx import comparisons
from lightnet_ptx.floats import _relu_bf16
from lightnet_ptx.integers import _logic3

ml_dtypes = pytest.importorskip("ml_dtypes")

N = 96
RNG3 = np.random.default_rng(3)
NP = {"i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "half": np.float16, "float": np.float32, "double": np.float64,
      "bfloat": ml_dtypes.bfloat16}  # fmt: skip
SUFFIX = {"half": "f16", "float": "f32", "double": "f64", "bfloat": "bf16"}


class Cases:
    """Kernels that are compiled as one module, each with what its result must be."""

    def __init__(self, cpu: str = "sm_80") -> None:
        self.cpu, self.ir, self.cases, self.decls = cpu, [], [], set()

    def add(
        self,
        what: str,
        sources: list[str],
        dest: str,
        body: str,
        inputs: list[np.ndarray],
        want: np.ndarray,
        decl: str = "",
        ulp: float = 0,
    ) -> None:
        name = f"k{len(self.cases)}"
        self.decls.update(d for d in [decl] if d)
        self.ir.append(elementwise(name, sources, dest, body))
        self.cases.append((what, name, inputs, want, ulp))

    def check(self) -> None:
        ptx = to_ptx("\n".join(sorted(self.decls)) + "\n" + "\n".join(self.ir), self.cpu)
        from lightnet_ptx.emulator import Emulator

        emulator, wrong = Emulator(arch=self.cpu), []
        module = emulator.load(ptx)
        emulator.load = lambda _: module
        for what, name, inputs, want, ulp in self.cases:
            got = run("", name, [*inputs, np.zeros(N, want.dtype)], block=(N, 1, 1), emulator=emulator)[-1]
            bad = _differ(got, want, ulp)
            if bad.any():
                at = int(np.argmax(bad))
                wrong.append(f"{what}: {[i[at] for i in inputs]} -> {got[at]!r}, not {want[at]!r}")
        assert not wrong, f"{len(wrong)} of {len(self.cases)} wrong:\n" + "\n".join(wrong[:20])


def _differ(got: np.ndarray, want: np.ndarray, ulp: float) -> np.ndarray:
    if got.dtype.kind in "iu":
        return got != want
    wide, expected = got.astype(np.float64), want.astype(np.float64)
    nan = np.isnan(expected)
    if ulp:
        close = np.abs(wide - expected) <= ulp * np.abs(expected) + 1e-300
        return np.where(nan, ~np.isnan(wide), ~(close | (wide == expected)))
    return np.where(nan, ~np.isnan(wide), (wide != expected) | (np.signbit(wide) != np.signbit(expected)))


def integers(kind: str, seed: int) -> np.ndarray:
    rng, bits = np.random.default_rng(seed), int(kind[1:])
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    edge = [0, 1, -1, 2, 3, 7, low, high, low + 1, high - 1, 8, -8]
    mixed = [*(int(x) for x in rng.integers(low, high, N, endpoint=True) >> rng.integers(0, bits, N))]
    return np.array((edge + mixed)[:N], NP[kind])[rng.permutation(N)]


def floats(kind: str, seed: int, wild: bool = True) -> np.ndarray:
    rng = np.random.default_rng(seed)
    spread = 5 if kind == "half" else 20
    values = rng.standard_normal(N) * 2.0 ** rng.integers(-spread, spread, N)
    if wild:
        tiny = {"half": 6e-8, "bfloat": 1e-40, "float": 1e-44, "double": 1e-320}[kind]
        values[:14] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, 2.5, 3.5, tiny, -tiny, 6e4, 1.5]
    with np.errstate(all="ignore"):
        return values.astype(NP[kind])[rng.permutation(N)]


def wrap(values: list[int], kind: str) -> np.ndarray:
    bits = int(kind[1:])
    return np.array([((v + (1 << (bits - 1))) % (1 << bits)) - (1 << (bits - 1)) for v in values], NP[kind])


def unsigned(x: int, bits: int) -> int:
    return x % (1 << bits)


def _quotient(a: int, b: int) -> int:
    return -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@pytest.mark.parametrize("kind", ["i8", "i16", "i32", "i64"])
def test_integer_arithmetic_wraps_as_python_computes_it(kind):
    bits, cases = int(kind[1:]), Cases()
    a, b, c = (integers(kind, s) for s in range(3))
    ua, ub = ([unsigned(int(x), bits) for x in y] for y in (a, b))
    ia, ib, ic = ([int(x) for x in y] for y in (a, b, c))
    amount = (np.arange(N) % bits).astype(NP[kind])
    u = [int(x) for x in amount]
    nonzero = np.where(b == 0, 5, b).astype(NP[kind])
    nb = [int(x) for x in nonzero]
    unb = [unsigned(x, bits) for x in nb]
    for op, values in {
        "add": [x + y for x, y in zip(ia, ib)],
        "sub": [x - y for x, y in zip(ia, ib)],
        "mul": [x * y for x, y in zip(ia, ib)],
        "and": [x & y for x, y in zip(ia, ib)],
        "or": [x | y for x, y in zip(ia, ib)],
        "xor": [x ^ y for x, y in zip(ia, ib)],
    }.items():
        cases.add(op, [kind] * 2, kind, f"%r = {op} {kind} %x0, %x1", [a, b], wrap(values, kind))
    for op, values in {
        "sdiv": [_quotient(x, y) for x, y in zip(ia, nb)],
        "srem": [x - y * _quotient(x, y) for x, y in zip(ia, nb)],
        "udiv": [x // y for x, y in zip(ua, unb)],
        "urem": [x % y for x, y in zip(ua, unb)],
    }.items():
        ok = ~((a == np.iinfo(NP[kind]).min) & (nonzero == -1))  # undefined in LLVM
        cases.add(op, [kind] * 2, kind, f"%r = {op} {kind} %x0, %x1", [np.where(ok, a, 3).astype(a.dtype), nonzero],
                  wrap([v if k else {"sdiv": -3, "srem": 0, "udiv": 3 // m, "urem": 3 % m}[op] for v, k, m in zip(values, ok, unb)], kind))  # fmt: skip
    for op, values in {
        "shl": [x << n for x, n in zip(ia, u)],
        "lshr": [x >> n for x, n in zip(ua, u)],
        "ashr": [x >> n for x, n in zip(ia, u)],
    }.items():
        cases.add(op, [kind] * 2, kind, f"%r = {op} {kind} %x0, %x1", [a, amount], wrap(values, kind))
    for op, values in {
        "smin": [min(x, y) for x, y in zip(ia, ib)],
        "smax": [max(x, y) for x, y in zip(ia, ib)],
        "umin": [min(x, y) for x, y in zip(ua, ub)],
        "umax": [max(x, y) for x, y in zip(ua, ub)],
        "sadd.sat": np.clip([x + y for x, y in zip(ia, ib)], -(1 << bits - 1), (1 << bits - 1) - 1),
        "usub.sat": [max(x - y, 0) for x, y in zip(ua, ub)],
    }.items():
        call = f"{kind} @llvm.{op}.{kind}"
        cases.add(
            op,
            [kind] * 2,
            kind,
            f"%r = call {call}({kind} %x0, {kind} %x1)",
            [a, b],
            wrap([int(v) for v in values], kind),
            f"declare {call}({kind}, {kind})",
        )
    for op, values in {
        "ctpop": [bin(x).count("1") for x in ua],
        "bitreverse": [int(f"{x:0{bits}b}"[::-1], 2) for x in ua],
    }.items():
        call = f"{kind} @llvm.{op}.{kind}"
        cases.add(op, [kind], kind, f"%r = call {call}({kind} %x0)", [a], wrap(values, kind), f"declare {call}({kind})")
    for op, values in {
        "ctlz": [bits - x.bit_length() for x in ua],
        "cttz": [bits if x == 0 else (x & -x).bit_length() - 1 for x in ua],
        "abs": [abs(x) for x in ia],
    }.items():
        call = f"{kind} @llvm.{op}.{kind}"
        cases.add(
            op,
            [kind],
            kind,
            f"%r = call {call}({kind} %x0, i1 false)",
            [a],
            wrap(values, kind),
            f"declare {call}({kind}, i1)",
        )
    call = f"{kind} @llvm.fshl.{kind}"
    rotated = [((x << bits | y) << n >> bits) for x, y, n in zip(ua, ub, u)]
    cases.add(
        "fshl",
        [kind] * 3,
        kind,
        f"%r = call {call}({kind} %x0, {kind} %x1, {kind} %x2)",
        [a, b, amount],
        wrap(rotated, kind),
        f"declare {call}({kind}, {kind}, {kind})",
    )
    cases.add(
        "mad",
        [kind] * 3,
        kind,
        f"%m = mul {kind} %x0, %x1\n%r = add {kind} %m, %x2",
        [a, b, c],
        wrap([x * y + z for x, y, z in zip(ia, ib, ic)], kind),
    )
    for d in (3, -7, 100, 8):
        cases.add(
            f"sdiv {d}", [kind], kind, f"%r = sdiv {kind} %x0, {d}", [a], wrap([_quotient(x, d) for x in ia], kind)
        )
        if d > 0:
            cases.add(f"urem {d}", [kind], kind, f"%r = urem {kind} %x0, {d}", [a], wrap([x % d for x in ua], kind))
    pick = (np.arange(N) % 3 == 0).astype(np.int8)
    cases.add(
        "select",
        [kind, kind, "i8"],
        kind,
        f"%c = trunc i8 %x2 to i1\n%r = select i1 %c, {kind} %x0, {kind} %x1",
        [a, b, pick],
        np.where(pick, a, b),
    )
    for name, values in {"slt": [x < y for x, y in zip(ia, ib)], "uge": [x >= y for x, y in zip(ua, ub)], "eq": [x == y for x, y in zip(ia, ib)],
                         "sgt": [x > y for x, y in zip(ia, ib)], "ule": [x <= y for x, y in zip(ua, ub)], "ne": [x != y for x, y in zip(ia, ib)]}.items():  # fmt: skip
        cases.add(
            f"icmp {name}",
            [kind] * 2,
            "i8",
            f"%c = icmp {name} {kind} %x0, %x1\n%r = zext i1 %c to i8",
            [a, b],
            np.array(values, np.int8),
        )
    for other in ("i8", "i16", "i32", "i64"):
        wide = int(other[1:])
        if wide > bits:
            cases.add(f"sext {other}", [kind], other, f"%r = sext {kind} %x0 to {other}", [a], wrap(ia, other))
            cases.add(f"zext {other}", [kind], other, f"%r = zext {kind} %x0 to {other}", [a], wrap(ua, other))
        elif wide < bits:
            cases.add(f"trunc {other}", [kind], other, f"%r = trunc {kind} %x0 to {other}", [a], wrap(ia, other))
    cases.check()


def test_products_of_twice_the_width_and_their_upper_halves():
    cases = Cases()
    for kind, wide in (("i16", "i32"), ("i32", "i64"), ("i64", "i128")):
        bits = int(kind[1:])
        a, b = integers(kind, 5), integers(kind, 6)
        for ext, read in (("sext", int), ("zext", lambda x, bits=bits: unsigned(int(x), bits))):
            product = [read(x) * read(y) for x, y in zip(a, b)]
            body = f"%a = {ext} {kind} %x0 to {wide}\n%b = {ext} {kind} %x1 to {wide}\n"
            high = f"%m = mul {wide} %a, %b\n%s = lshr {wide} %m, {bits}\n%r = trunc {wide} %s to {kind}"
            cases.add(
                f"high {ext} {kind}", [kind] * 2, kind, body + high, [a, b], wrap([p >> bits for p in product], kind)
            )
            if bits < 64:
                cases.add(
                    f"wide {ext} {kind}", [kind] * 2, wide, f"{body}%r = mul {wide} %a, %b", [a, b], wrap(product, wide)
                )
    cases.check()


def test_permutation_and_fields():
    cases, a = Cases(), integers("i32", 7)
    b = integers("i32", 8)
    body = ("%a = bitcast i32 %x0 to <4 x i8>\n%b = bitcast i32 %x1 to <4 x i8>\n"
            "%s = shufflevector <4 x i8> %a, <4 x i8> %b, <4 x i32> <i32 0, i32 5, i32 3, i32 6>\n%r = bitcast <4 x i8> %s to i32")  # fmt: skip
    both = np.concatenate([a.view(np.uint8).reshape(-1, 4), b.view(np.uint8).reshape(-1, 4)], axis=1)
    cases.add(
        "prmt", ["i32", "i32"], "i32", body, [a, b], np.ascontiguousarray(both[:, [0, 5, 3, 6]]).view(np.int32)[:, 0]
    )
    cases.add("bfe.u", ["i32"], "i32", "%a = lshr i32 %x0, 5\n%r = and i32 %a, 127", [a], (a >> 5) & 127)
    cases.add("bfe.s", ["i32"], "i32", "%a = shl i32 %x0, 5\n%r = ashr i32 %a, 20", [a], (a << 5) >> 20)
    cases.add(
        "bswap",
        ["i32"],
        "i32",
        "%r = call i32 @llvm.bswap.i32(i32 %x0)",
        [a],
        a.byteswap(),
        "declare i32 @llvm.bswap.i32(i32)",
    )
    cases.check()


ORDERED = {"oeq": np.equal, "ogt": np.greater, "oge": np.greater_equal, "olt": np.less, "ole": np.less_equal}


def _compare(name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    a, b = a.astype(np.float64), b.astype(np.float64)
    nan = np.isnan(a) | np.isnan(b)
    if name in ("ord", "uno"):
        return nan if name == "uno" else ~nan
    if name == "one":
        return (a != b) & ~nan
    if name in ORDERED:
        return ORDERED[name](a, b)
    return nan | ({"ueq": np.equal, "une": np.not_equal, "ult": np.less, "uge": np.greater_equal}[name](a, b))


def _exact(a, b, c, dtype) -> np.ndarray:
    """a * b + c, rounded once to a float type: the nearer of the neighbours, measured in fractions."""
    out = []
    for x, y, z in zip(*(v.astype(np.float64).tolist() for v in (a, b, c))):
        if not all(map(math.isfinite, (x, y, z))):
            with np.errstate(all="ignore"):
                out.append(np.float64(x) * y + z)
            continue
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        if exact == 0:
            out.append(x * y + z)
            continue
        near = np.array(float(exact) if abs(exact) < Fraction(1.7e308) else math.copysign(math.inf, exact)).astype(
            dtype
        )
        if dtype == np.float64 or not np.isfinite(near.astype(np.float64)):
            out.append(near)
            continue
        around = [near, np.nextafter(near, near.dtype.type(np.inf)), np.nextafter(near, near.dtype.type(-np.inf))]
        around = [v for v in around if np.isfinite(v.astype(np.float64))]
        even = lambda v: int(np.atleast_1d(v).view(f"u{v.dtype.itemsize}")[0]) & 1  # noqa: E731
        out.append(min(around, key=lambda v: (abs(Fraction(float(v)) - exact), even(v))))
    with np.errstate(all="ignore"):
        return np.array([np.asarray(v).astype(np.float64) for v in out]).astype(dtype)


@pytest.mark.parametrize("kind", ["half", "bfloat", "float", "double"])
@pytest.mark.parametrize("cpu", ["sm_80", "sm_90"])
def test_float_arithmetic_rounds_once(kind, cpu):
    cases, t, dtype = Cases(cpu), SUFFIX[kind], NP[kind]
    a, b, c = (floats(kind, s) for s in range(3))
    with np.errstate(all="ignore"):
        for op, fn in {"fadd": np.add, "fsub": np.subtract, "fmul": np.multiply, "fdiv": np.divide}.items():
            cases.add(op, [kind] * 2, kind, f"%r = {op} {kind} %x0, %x1", [a, b], fn(a, b).astype(dtype))
        call = f"{kind} @llvm.fma.{t}"
        cases.add(
            "fma",
            [kind] * 3,
            kind,
            f"%r = call {call}({kind} %x0, {kind} %x1, {kind} %x2)",
            [a, b, c],
            _exact(a, b, c, dtype),
            f"declare {call}({kind}, {kind}, {kind})",
        )
        near = (-a.astype(np.float64) * b.astype(np.float64)).astype(
            dtype
        )  # cancels all but what the product rounds off
        cases.add(
            "fma cancelling",
            [kind] * 3,
            kind,
            f"%r = call {call}({kind} %x0, {kind} %x1, {kind} %x2)",
            [a, b, near],
            _exact(a, b, near, dtype),
        )
        for op, fn in {
            "fabs": np.abs,
            "sqrt": np.sqrt,
            "floor": np.floor,
            "ceil": np.ceil,
            "trunc": np.trunc,
            "rint": np.rint,
            "roundeven": np.rint,
        }.items():
            want = fn(a.astype(np.float64)).astype(dtype) if kind == "bfloat" else fn(a).astype(dtype)
            if op == "sqrt" and kind in ("half", "bfloat"):
                want = np.sqrt(a.astype(np.float32)).astype(dtype)
            call = f"{kind} @llvm.{op}.{t}"
            cases.add(op, [kind], kind, f"%r = call {call}({kind} %x0)", [a], want, f"declare {call}({kind})")
        cases.add("fneg", [kind], kind, f"%r = fneg {kind} %x0", [a], -a)
        wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
        sign = np.copysign(np.abs(wide_a), wide_b).astype(dtype)
        low, high = np.fmin(wide_a, wide_b).astype(dtype), np.fmax(wide_a, wide_b).astype(dtype)
        nan = np.isnan(wide_a) | np.isnan(wide_b)
        for op, want in {
            "copysign": sign,
            "minnum": low,
            "maxnum": high,
            "maximum": np.where(nan, np.nan, high).astype(dtype),
        }.items():
            call = f"{kind} @llvm.{op}.{t}"
            inputs = [a, b] if op == "copysign" else [a, np.where(wide_b == 0, 1, wide_b).astype(dtype)]
            if op != "copysign":
                y = inputs[1].astype(np.float64)
                want = {
                    "minnum": np.fmin(wide_a, y),
                    "maxnum": np.fmax(wide_a, y),
                    "maximum": np.where(nan, np.nan, np.fmax(wide_a, y)),
                }[op].astype(dtype)
            cases.add(
                op,
                [kind] * 2,
                kind,
                f"%r = call {call}({kind} %x0, {kind} %x1)",
                inputs,
                want,
                f"declare {call}({kind}, {kind})",
            )
        for name in ("oeq", "ogt", "oge", "olt", "ole", "one", "ord", "uno", "ueq", "une", "ult", "uge"):
            cases.add(
                f"fcmp {name}",
                [kind] * 2,
                "i8",
                f"%c = fcmp {name} {kind} %x0, %x1\n%r = zext i1 %c to i8",
                [a, b],
                _compare(name, a, b).astype(np.int8),
            )
        cases.add(
            "select",
            [kind] * 2,
            kind,
            f"%c = fcmp ogt {kind} %x0, %x1\n%r = select i1 %c, {kind} %x0, {kind} %x1",
            [a, b],
            np.where(wide_a > wide_b, a, b),
        )
    cases.check()


@pytest.mark.parametrize("kind", ["half", "bfloat", "float"])
def test_packed_arithmetic_is_that_of_the_halves(kind):
    t, dtype = SUFFIX[kind], NP[kind]
    cases = []
    a, b = floats(kind, 3), floats(kind, 4)
    two = f"<2 x {kind}>"
    ops = {"add": ("fadd", np.add), "mul": ("fmul", np.multiply), "sub": ("fsub", np.subtract)}
    ir = "".join(elementwise(n, [two, two], two, f"%r = {op} {two} %x0, %x1") for n, (op, _) in ops.items())
    call = f"{two} @llvm.maxnum.v2{t}"
    ir += f"declare {call}({two}, {two})\n" + elementwise(
        "max", [two, two], two, f"%r = call {call}({two} %x0, {two} %x1)"
    )
    ptx = to_ptx(ir, "sm_90")
    for name, (_, fn) in ops.items():
        got = run(ptx, name, [a, b, np.zeros(N, dtype)], block=(N // 2, 1, 1), arch="sm_90")[-1]
        with np.errstate(all="ignore"):
            cases.append((name, got, fn(a, b).astype(dtype)))
    for name, got, want in cases:
        assert not _differ(got, want, 0).any(), name


@pytest.mark.parametrize("source", ["half", "bfloat", "float", "double"])
def test_conversions_of_floats(source):
    cases, a = Cases("sm_90"), floats(source, 9)
    with np.errstate(all="ignore"):
        for dest in NP:
            if dest == source or {source, dest} == {"half", "bfloat"}:
                continue
            if dest not in SUFFIX:
                inside = np.where(np.abs(a.astype(np.float64)) < 100, a, NP[source](3))
                inside = np.where(np.isnan(inside.astype(np.float64)), NP[source](2), inside)
                want = np.trunc(inside.astype(np.float64)).astype(NP[dest])
                cases.add(f"fptosi {dest}", [source], dest, f"%r = fptosi {source} %x0 to {dest}", [inside], want)
                info, call = np.iinfo(NP[dest]), f"{dest} @llvm.fptosi.sat.{dest}.{SUFFIX[source]}"
                exact = [
                    0 if math.isnan(x) else info.max if x >= info.max else info.min if x <= info.min else int(x)
                    for x in a.astype(np.float64).tolist()
                ]
                cases.add(
                    f"saturating {dest}",
                    [source],
                    dest,
                    f"%r = call {call}({source} %x0)",
                    [a],
                    np.array(exact, NP[dest]),
                    f"declare {call}({source})",
                )
                continue
            size = {"half": 0, "bfloat": 0, "float": 1, "double": 2}
            op = "fpext" if size[dest] > size[source] else "fptrunc"
            want = a.astype(NP[dest])
            if source == "double" and dest == "bfloat":
                zero = np.full(N, -0.0)
                want = _exact(a, np.ones(N), zero, NP["bfloat"])
            cases.add(f"{op} {dest}", [source], dest, f"%r = {op} {source} %x0 to {dest}", [a], want)
    cases.check()


@pytest.mark.parametrize("source", ["i8", "i16", "i32", "i64"])
def test_conversions_of_integers(source):
    cases, a = Cases("sm_90"), integers(source, 11)
    bits = int(source[1:])
    a[:4] = [1, 3, -3, 77]
    if bits == 64:
        a[4:8] = [(1 << 62) + 1, (1 << 55) + (1 << 54) + 1, -(1 << 60) - 3, (1 << 40) + (1 << 32)]
    for dest in SUFFIX:
        for op, values in (("sitofp", [int(x) for x in a]), ("uitofp", [unsigned(int(x), bits) for x in a])):
            with np.errstate(all="ignore"):
                want = np.array([_nearest(v, NP[dest]) for v in values]).astype(NP[dest])
            cases.add(f"{op} {dest}", [source], dest, f"%r = {op} {source} %x0 to {dest}", [a], want)
    cases.check()


def _nearest(value: int, dtype: type) -> float:
    """An integer in a float type, to nearest even, by its bits."""
    digits = {np.float16: 11, ml_dtypes.bfloat16: 8, np.float32: 24, np.float64: 53}[dtype]
    size = abs(value)
    drop = max(size.bit_length() - digits, 0)
    half, rest = (1 << drop) >> 1, size & ((1 << drop) - 1)
    size >>= drop
    if drop and (rest > half or (rest == half and size & 1)):
        size += 1
    return math.copysign(float(size << drop), value) if value else 0.0


def test_approximations_are_within_what_hardware_promises():
    cases = Cases()
    x = np.abs(floats("float", 21, wild=False)) + np.float32(1e-3)
    small = np.clip(floats("float", 22, wild=False), -3, 3)
    f64 = x.astype(np.float64)
    for name, arg, want, error in (
        ("ex2.approx.f", small, np.exp2(small.astype(np.float64)), 2.0**-22),
        ("lg2.approx.f", x + np.float32(1), np.log2((x + np.float32(1)).astype(np.float64)), 2.0**-21),
        ("rsqrt.approx.f", x, 1 / np.sqrt(f64), 2.0**-22),
        ("sqrt.approx.f", x, np.sqrt(f64), 2.0**-22),
        ("rcp.approx.ftz.f", x, 1 / f64, 2.0**-22),
        ("tanh.approx.f32", small, np.tanh(small.astype(np.float64)), 2.0**-10.9),
    ):
        cases.add(
            name,
            ["float"],
            "float",
            f"%r = call float @llvm.nvvm.{name}(float %x0)",
            [arg],
            want.astype(np.float32),
            f"declare float @llvm.nvvm.{name}(float)",
            error,
        )
    cases.check()


def test_tf32_has_ten_bits_of_fraction():
    x = floats("float", 30, wild=False)
    x[0] = np.float32(1 + 2.0**-11)  # a tie
    call = "i32 @llvm.nvvm.f2tf32.rna"
    ptx = to_ptx(f"declare {call}(float)\n" + elementwise("k", ["float"], "i32", f"%r = call {call}(float %x0)"))
    got = run(ptx, "k", [x, np.zeros(N, np.uint32)], block=(N, 1, 1))[1]
    assert not (got & 0x1FFF).any() and got.view(np.float32)[0] == np.float32(1 + 2.0**-10)
    assert np.abs(got.view(np.float32) / x - 1).max() <= 2.0**-11


def test_any_function_of_three_bits():
    """`lop3`: bit 4a + 2b + c of the table, for every table."""
    a, b, c = RNG3.integers(0, 2**32, (3, 40), np.uint32)
    bits = np.arange(32, dtype=np.uint32)

    def column(x: np.ndarray) -> np.ndarray:
        return (x[:, None] >> bits) & 1

    for table in range(256):
        want = ((np.uint32(table) >> (4 * column(a) + 2 * column(b) + column(c))) & 1) << bits
        np.testing.assert_array_equal(_logic3(a, b, c, np.uint32(table)), want.sum(1, dtype=np.uint32))


SIGNED = {"lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b}
COMPARED = {"eq": lambda a, b: a == b, "ne": lambda a, b: a != b, **SIGNED}
SAME = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
MEETS = {"": lambda c, p: c, ".and": lambda c, p: c and p, ".or": lambda c, p: c or p, ".xor": lambda c, p: c != p}


def _holds(name: str, a: float, b: float) -> bool:
    """PTX ISA, 9.7.6: a comparison of floats is ordered, or true of a NaN (`..u`, `nan`)."""
    unknown = a != a or b != b
    if name in ("num", "nan"):
        return unknown == (name == "nan")
    fn = COMPARED[name[:2]]
    return (unknown and len(name) == 3) or (not unknown and fn(a, b))


def test_every_comparison():
    """Each name on each type, alone and with each way to meet a predicate, as Python compares; there are no others."""
    rows, seen = comparisons.table(), set()
    kinds = {f"{k}{bits}": (f"int{bits}" if k == "s" else f"uint{bits}") for k in "bsu" for bits in (16, 32, 64)}
    for kind, dtype in kinds.items():
        low = 1 << int(kind[1:]) - 1
        values = [0, 1, 5, low - 1] + ([-1, -low] if kind[0] == "s" else [low, 2 * low - 1])
        names = [n for n in COMPARED if kind[0] != "b" or n not in SIGNED] + (list(SAME) if kind[0] == "u" else [])
        seen |= _check_comparisons(
            rows, kind, names, values, np.array(values, dtype), lambda n, a, b: COMPARED[SAME.get(n, n)](a, b)
        )
    names = [*COMPARED, *(f"{n}u" for n in COMPARED), "num", "nan"]
    values = [0.0, -0.0, 1.5, -2.0, math.inf, -math.inf, math.nan]
    for kind, dtype in {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}.items():
        array = np.array(values, dtype)
        seen |= _check_comparisons(
            rows, kind, names, values, array.view(np.uint16) if kind == "bf16" else array, _holds
        )
    assert seen == {name for name in rows if name.startswith("setp.") and not name.endswith("x2")}


def _check_comparisons(rows, kind, names, values, array, holds) -> set[str]:
    a, b = (x.ravel() for x in np.meshgrid(array, array))
    pairs = [(y, x) for x in values for y in values]
    seen = set()
    for name, (word, meet), p in itertools.product(names, MEETS.items(), (False, True)):
        row = rows[full := f"setp.{name}{word}.{kind}"]
        got = row.fn(a, b, *[np.full(len(a), p)] if word else [])
        assert np.asarray(got).tolist() == [meet(holds(name, x, y), p) for x, y in pairs], full
        seen.add(full)
    return seen


def test_relu_of_bfloat16():
    """Below 0 it is 0, -0 too, and a NaN stays one, whatever its sign."""
    values = np.arange(1 << 16, dtype=np.uint16)
    floats = values.view(ml_dtypes.bfloat16).astype(np.float32)
    got = _relu_bf16(lambda x: x)(values)
    want = np.where(np.signbit(floats) & ~np.isnan(floats), np.uint16(0), values)
    np.testing.assert_array_equal(got, want)
