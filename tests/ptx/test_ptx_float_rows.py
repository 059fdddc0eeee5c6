"""Every row of the PTX interpreter's tables of floats and conversions, on edge values, against Python's fractions rounded once. The names
are made here, from the manual's grammar, as in `test_ptx_integer_rows`. Source: "PTX ISA", 9.7.3 to 9.7.5, 9.7.9.21.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from test_ptx_integer_rows import Oracle, Wanted, wrapped

from lightnet_ptx import conversions, floats
from lightnet_ptx.tables import DTYPES

#: Digits, and the exponents of the least normal and of the largest number.
FORMATS = {"f16": (11, -14, 15), "bf16": (8, -126, 127), "f32": (24, -126, 127), "f64": (53, -1022, 1023)}
#: What a float format's bits stand in.
WORDS = {"f16": np.float16, "bf16": np.uint16, "f32": np.float32, "f64": np.float64}
RNG = np.random.default_rng(7)


def nearest(x: Fraction | float, kind: str, mode: str = "rn") -> float:
    """A number in a format: `x` itself where it is no fraction (zeros, infinities, NaN)."""
    if isinstance(x, float):  # zeros, infinities, NaN
        return x
    digits, lowest, most = FORMATS[kind]
    above, below = abs(x.numerator), x.denominator
    exponent = above.bit_length() - below.bit_length()
    exponent -= above << max(-exponent, 0) < below << max(exponent, 0)
    unit = max(exponent, lowest) - digits + 1  # the exponent of one in the last place
    units, rest = divmod(above << max(-unit, 0), below << max(unit, 0))
    if mode == "rn":
        half = 2 * rest - (below << max(unit, 0))
        units += half > 0 or (half == 0 and units % 2)
    too_large = exponent + (units >> digits) > most
    size = (math.inf if mode == "rn" else largest(kind)) if too_large else math.ldexp(units, unit)
    return size if x > 0 else -size


def largest(kind: str) -> float:
    digits, _, most = FORMATS[kind]
    return (2.0 - 2.0 ** (1 - digits)) * 2.0**most


def values(kind: str, count: int = 0) -> list[float]:
    """Zeros, the least and the largest of each kind, what is about powers and ties, infinities, a NaN; and `count` drawn."""
    digits, least, most = FORMATS[kind]
    tiny, normal, unit = 2.0 ** (least - digits + 1), 2.0**least, 2.0 ** (1 - digits)
    found = [tiny, 3 * tiny, normal - tiny, normal, normal + tiny, 0.5, 1 - unit / 2, 1.0, 1 + unit, 1.5, 2.5, 3.0, 100.5, largest(kind)]  # fmt: skip
    spread = RNG.standard_normal(count) * 2.0 ** RNG.integers(max(least, -40), min(most, 40), count)
    drawn = [nearest(Fraction(float(x)), kind) for x in spread]
    return [0.0, -0.0, math.inf, -math.inf, math.nan, *found, *(-x for x in found), *drawn]


def array(numbers: Sequence[float], kind: str) -> np.ndarray:
    """Numbers of a format as the interpreter holds them."""
    if kind == "bf16":
        return (np.array(numbers, np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return np.array(numbers, WORDS[kind])


def numbers_of(found: np.ndarray, kind: str) -> list[float]:
    if kind == "bf16":
        found = (np.asarray(found).astype(np.uint32) << np.uint32(16)).view(np.float32)
    return np.asarray(found).astype(np.float64).tolist()


def alike(a: float, b: float) -> bool:
    """The same number, its sign with it; a NaN is like any."""
    return (a != a and b != b) or (a == b and math.copysign(1, a) == math.copysign(1, b))


def flushed(x: float, kind: str) -> float:
    return math.copysign(0.0, x) if abs(x) < 2.0 ** FORMATS[kind][1] else x


def clamped(x: float) -> float:
    return 0.0 if x != x else min(max(x, 0.0), 1.0) + 0.0


def total(a: float, b: float) -> Fraction | float:
    if not (math.isfinite(a) and math.isfinite(b)):
        return a + b
    return Fraction(a) + Fraction(b) or a + b


def product(a: float, b: float) -> Fraction | float:
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b
    return Fraction(a) * Fraction(b) or a * b


def fused(a: float, b: float, c: float) -> Fraction | float:
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b + c
    if not math.isfinite(c):
        return c
    return Fraction(a) * Fraction(b) + Fraction(c) or math.copysign(1, a) * math.copysign(1, b) * 0.0 * (
        a * b == 0
    ) + c * (a * b == 0)


def ratio(a: float, b: float) -> Fraction | float:
    sign = math.copysign(1, a) * math.copysign(1, b)
    if a != a or b != b or (math.isinf(a) and math.isinf(b)) or a == b == 0:
        return math.nan
    if math.isinf(a) or b == 0:
        return sign * math.inf
    return sign * 0.0 if math.isinf(b) or a == 0 else Fraction(a) / Fraction(b)


def root(x: float) -> Fraction | float:
    """The square root, with a bit behind all that count where it is none of these (which rounds like it)."""
    if x != x or x < 0:
        return math.nan
    if x == 0 or math.isinf(x):
        return x
    scaled = Fraction(x) * 4**1200
    whole = math.isqrt(int(scaled))
    return Fraction(2 * whole + (whole * whole != scaled), 2**1201)


def least(a: float, b: float, more: bool = False) -> float:
    """Of a number and a NaN the number; -0 is less than 0."""
    if a != a or b != b:
        return b if a != a else a
    key = lambda x: (x, math.copysign(1, x))  # noqa: E731
    return max(a, b, key=key) if more else min(a, b, key=key)


def or_nan(fn: Oracle) -> Oracle:
    return lambda a, b: math.nan if a != a or b != b else fn(a, b)


def changed(fn: Oracle, kind: str, words: str) -> Oracle:
    """`fn` rounded to a format, with ``.ftz``, ``.sat`` or ``.relu``."""

    def run(*xs: float) -> float:
        if "ftz" in words:
            xs = tuple(flushed(x, kind) for x in xs)
        y = nearest(fn(*xs), kind)
        y = flushed(y, kind) if "ftz" in words else y
        y = clamped(y) if "sat" in words else y
        return 0.0 if "relu" in words and (y < 0 or y == 0) else y

    return run


def by_float64(fn: Callable[[float], float], grid: float = 0.0) -> Oracle:
    """A function that float64 has, on multiples of `grid` where one is given."""

    def run(*xs: float) -> Fraction | float:
        with np.errstate(all="ignore"):
            y = float(fn(*(np.float64(x) for x in xs)))
        if grid and math.isfinite(y):
            scaled = round(Fraction(y) / Fraction(grid)) * Fraction(grid)
            return scaled or math.copysign(0.0, y)
        return Fraction(y) if math.isfinite(y) and y else y

    return run


def coarse_tanh(x: float) -> Fraction | float:
    """To 11 bits of fraction behind the leading one."""
    y = math.tanh(x)
    if y == 0 or y != y:
        return y
    mantissa, exponent = math.frexp(y)
    return Fraction(round(mantissa * 4096), 4096) * Fraction(2) ** exponent


def rough_quotient(a: float, b: float) -> Fraction | float:
    """A divisor in (2^126, 2^128) has a reciprocal that is flushed."""
    if a == a and math.isfinite(b) and abs(b) > 2.0**126:
        return math.nan if math.isinf(a) else math.copysign(1, a) * math.copysign(1, b) * 0.0
    return ratio(a, b)


def rough_reciprocal(x: float) -> Fraction | float:
    """Of float64 to 20 bits of fraction; what is subnormal is 0, before and after."""
    y = nearest(ratio(1.0, flushed(x, "f64")), "f64")
    y = flushed(y, "f64")
    return float((np.float64(y).view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64))


def arithmetic_rows() -> dict[str, tuple[str, int, bool, Oracle]]:
    """By name: the format, the number of operands, whether two stand in a word, and the function of numbers."""
    wanted: dict[str, tuple[str, int, bool, Oracle]] = {}

    def add(name: str, kind: str, count: int, fn: Oracle, words: str = "", two: bool = True) -> None:
        oracle = changed(fn, kind, words)
        wanted[f"{name}.{kind}"] = (kind, count, False, oracle)
        if two and kind in ("f16", "bf16"):
            wanted[f"{name}.{kind}x2"] = (kind, count, True, oracle)

    minus = lambda a, b: total(a, -b)  # noqa: E731
    for op, fn, count in (("add", total, 2), ("sub", minus, 2), ("mul", product, 2), ("fma", fused, 3)):
        for rounding in (".rn",) if op == "fma" else ("", ".rn"):
            add(op + rounding, "f64", count, fn)
            add(op + rounding, "bf16", count, fn)
            for words, kind in itertools.product(("", ".ftz", ".sat", ".ftz.sat"), ("f32", "f16")):
                add(op + rounding + words, kind, count, fn, words)
    for kind in ("f16", "bf16"):
        add("fma.rn.relu", kind, 3, fused, "relu")
    for op, more in (("min", False), ("max", True)):
        pick = lambda a, b, more=more: least(a, b, more)  # noqa: E731
        add(op, "f64", 2, pick)
        for kind in ("f32", "f16", "bf16"):
            add(op, kind, 2, pick)
            add(f"{op}.NaN", kind, 2, or_nan(pick))
        add(f"{op}.ftz", "f32", 2, pick, "ftz")
        add(f"{op}.ftz.NaN", "f32", 2, or_nan(pick), "ftz")
    for kind in FORMATS:
        add("abs", kind, 1, lambda x: math.fabs(x))
        add("neg", kind, 1, lambda x: -x)
    for kind in ("f32", "f64"):
        add("copysign", kind, 2, lambda a, b: math.copysign(b, a) if b == b else b)
        add("div.rn", kind, 2, ratio)
        add("rcp.rn", kind, 1, lambda x: ratio(1.0, x))
        add("sqrt.rn", kind, 1, root)
    add("abs.ftz", "f32", 1, math.fabs, "ftz")
    add("neg.ftz", "f32", 1, lambda x: -x, "ftz")
    with_ftz = {
        "div.approx": rough_quotient, "div.full": ratio, "rcp.approx": lambda x: ratio(1.0, x), "sqrt.approx": root,
        "rsqrt.approx": by_float64(lambda x: 1 / np.sqrt(x)), "ex2.approx": by_float64(np.exp2), "lg2.approx": by_float64(np.log2),
        "sin.approx": by_float64(np.sin, 2.0**-21), "cos.approx": by_float64(np.cos, 2.0**-21),
    }  # fmt: skip
    for op, fn in with_ftz.items():
        add(op, "f32", 1 + op.startswith("div"), fn)
    for op, fn in {**with_ftz, "div.rn": ratio, "rcp.rn": lambda x: ratio(1.0, x), "sqrt.rn": root}.items():
        add(f"{op}.ftz", "f32", 1 + op.startswith("div"), fn, "ftz")
    add("rcp.approx.ftz", "f64", 1, rough_reciprocal)
    add("rsqrt.approx", "f64", 1, by_float64(lambda x: 1 / np.sqrt(x)))
    add("tanh.approx", "f32", 1, coarse_tanh)
    add("tanh.approx", "f16", 1, by_float64(np.tanh))
    add("ex2.approx", "f16", 1, by_float64(np.exp2))
    add("tanh.approx", "bf16", 1, by_float64(np.tanh))
    add("ex2.approx.ftz", "bf16", 1, by_float64(np.exp2))
    return wanted


def float_operands(kind: str, count: int) -> list[tuple[float, ...]]:
    """Edges with edges, and drawn ones; of three, such that products cancel, and nearly."""
    if count < 3:
        few = values(kind, 12 if count == 1 else 2)
        return list(itertools.product(*[few if count == 1 else few[::3] + few[-4:]] * count))
    numbers = values(kind, 20)
    pick = RNG.integers(0, len(numbers), (60, 3))
    cases = [tuple(numbers[i] for i in row) for row in pick]
    for a, b, _ in cases[:40]:
        if math.isfinite(a) and math.isfinite(b):
            cases.append((a, b, -nearest(product(a, b), kind)))
    digits, lowest, _ = FORMATS[kind]
    unit, tiny, most = 2.0 ** (1 - digits), 2.0 ** (lowest - digits + 1), largest(kind)
    cases += itertools.product((most, -most, tiny), (2.5, most, tiny, 0.0), (1.0, -most, tiny, math.inf))
    far = [tiny, max(2.0**-60, tiny)]  # beside a tie, beyond what float64 adds exactly
    cases += itertools.product((1 + unit, 1 + 3 * unit), (1.5, -1.5), (0.0, *far, *(-x for x in far)))
    if kind == "f32":  # below a tie of two subnormal ones
        cases += [(2.0**-75 * (1 + unit), 2.0**-75 * (1 - unit), 2.0**-127 + n * tiny) for n in (0, 1)]
    return cases


def test_every_row_of_floats() -> None:
    rows, wanted = floats.table(), arithmetic_rows()
    assert rows.keys() == wanted.keys()
    cases = {(kind, count): float_operands(kind, count) for kind in FORMATS for count in (1, 2, 3)}
    known: dict[tuple[Oracle, int], list[float]] = {}
    wrong = []
    for name, (kind, count, two, oracle) in wanted.items():
        row, mine = rows[name], cases[kind, count]
        mine = mine[: len(mine) // 2 * 2]
        held = "b32" if two else kind
        assert (row.dest, row.sources) == (held, (held,) * count), name
        arrays = [array([c[i] for c in mine], kind) for i in range(count)]
        with np.errstate(all="ignore"):
            got = row.fn(*(np.ascontiguousarray(a).view(np.uint32) if two else a for a in arrays))
        assert got.dtype == (np.uint32 if two else arrays[0].dtype), name
        if (oracle, count) not in known:
            known[oracle, count] = [oracle(*c) for c in mine]
        found = numbers_of(got.view(arrays[0].dtype), kind)
        for case, value, want in zip(mine, found, known[oracle, count]):
            if not alike(value, want):
                wrong.append(f"{name} {case}: {value!r}, not {want!r}")
    assert not wrong, f"{len(wrong)} wrong\n" + "\n".join(wrong[:20])


# -- conversions
WHOLE = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}
INTEGERS = [f"{k}{bits}" for k in "su" for bits in (8, 16, 32, 64)]


def range_of(kind: str) -> tuple[int, int]:
    bits = int(kind[1:])
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)


def to_integer(x: float, source: str, dest: str, name: str) -> int:
    low, high = range_of(dest)
    if x != x:
        top = low if dest[0] == "s" else 1 << int(dest[1:]) - 1
        return top if source == "f64" or dest[1:] == "64" else 0
    return min(max(WHOLE[name](x), low), high) if math.isfinite(x) else (high if x > 0 else low)


def within(x: float, name: str) -> float:
    """Rounded to an integer, with the sign of what it was."""
    return math.copysign(float(WHOLE[name](x)), x) if math.isfinite(x) and abs(x) < 2.0**60 else x


def narrowed(x: float, kind: str, mode: str, relu: bool = False) -> float:
    if relu and x <= 0:
        return 0.0
    return nearest(Fraction(x), kind, mode) if math.isfinite(x) and x else x


def tf32(x: float, mode: str) -> float:
    """10 bits of fraction, all exponents of float32: ties to even, away from zero, or cut off."""
    if not math.isfinite(x) or x == 0:
        return x
    quantum = 2.0 ** (max(math.frexp(x)[1] - 1, -126) - 10)
    units = abs(x) / quantum
    whole = {"rn": round(units), "rna": math.floor(units + 0.5), "rz": math.floor(units)}[mode]
    value = whole * Fraction(quantum)
    return math.copysign(math.inf if value >= 2**128 else float(value), x)


def conversion_rows() -> Wanted:
    wanted: Wanted = {}
    for source, dest in itertools.product(INTEGERS, INTEGERS):
        low, high = range_of(dest)
        wanted[f"cvt.{dest}.{source}"] = (dest, (source,), lambda x, d=dest: wrapped(x, d))
        wanted[f"cvt.sat.{dest}.{source}"] = (dest, (source,), lambda x, low=low, high=high: min(max(x, low), high))
    for kind, real in itertools.product(INTEGERS, FORMATS):
        exact = lambda x, r=real: nearest(Fraction(x), r) if x else 0.0  # noqa: E731
        wanted[f"cvt.rn.{real}.{kind}"] = (real, (kind,), exact)
        for name in WHOLE:
            fn = lambda x, s=real, d=kind, n=name: to_integer(x, s, d, n)  # noqa: E731
            wanted[f"cvt.{name}.{kind}.{real}"] = wanted[f"cvt.{name}.sat.{kind}.{real}"] = (kind, (real,), fn)
            if real == "f32":
                wanted[f"cvt.{name}.ftz.{kind}.f32"] = (kind, ("f32",), lambda x, fn=fn: fn(flushed(x, "f32")))
    for real, name in itertools.product(FORMATS, WHOLE):
        wanted[f"cvt.{name}.{real}.{real}"] = (real, (real,), lambda x, n=name: within(x, n))
        ftz = lambda x, n=name: within(flushed(x, "f32"), n)  # noqa: E731
        wanted[f"cvt.{name}.ftz.f32.f32"] = ("f32", ("f32",), ftz)
    for source, dest in (("f16", "f32"), ("f16", "f64"), ("bf16", "f32"), ("bf16", "f64"), ("f32", "f64")):
        wanted[f"cvt.{dest}.{source}"] = (dest, (source,), lambda x: x)
    wanted["cvt.ftz.f32.f16"] = ("f32", ("f16",), lambda x: x)
    wanted["cvt.ftz.f64.f32"] = ("f64", ("f32",), lambda x: flushed(x, "f32"))
    for source, dest in (("f64", "f32"), ("f64", "f16"), ("f64", "bf16"), ("f32", "f16"), ("f32", "bf16")):
        for mode in ("rn", "rz"):
            wanted[f"cvt.{mode}.{dest}.{source}"] = (dest, (source,), lambda x, d=dest, m=mode: narrowed(x, d, m))
            if source == "f32":
                relu = lambda x, d=dest, m=mode: narrowed(x, d, m, True)  # noqa: E731
                wanted[f"cvt.{mode}.relu.{dest}.f32"] = (dest, ("f32",), relu)
    wanted["cvt.rn.ftz.f16.f32"] = ("f16", ("f32",), lambda x: narrowed(flushed(x, "f32"), "f16", "rn"))
    wanted["cvt.rn.ftz.f32.f64"] = ("f32", ("f64",), lambda x: flushed(narrowed(x, "f32", "rn"), "f32"))
    for name in ("cvt.sat", "cvt.rn.sat"):
        wanted[f"{name}.f32.f32"] = ("f32", ("f32",), clamped)
    wanted["cvt.ftz.sat.f32.f32"] = ("f32", ("f32",), lambda x: clamped(flushed(x, "f32")))
    for mode in ("rn", "rna", "rz"):
        wanted[f"cvt.{mode}.tf32.f32"] = ("b32", ("f32",), lambda x, m=mode: tf32(x, m))
    return wanted


def conversion_cases(kind: str) -> list:
    if kind not in FORMATS:
        bits = int(kind[1:])
        low, high = range_of(kind)
        powers = [(1 << n) + d for n in (7, 8, 11, 15, 16, 24, 31, 32, 53, 63) if n < bits for d in (-1, 0, 1)]
        lengths = [(n, d) for n in (14, 28, 40, 56, 61) if n < bits for d in (8, 11, 12, 24, 25, 53) if n > d]
        ties = [(1 << n) + (1 << n - d) + e for n, d in lengths for e in (-1, 0, 1)]
        found = {0, 1, 3, low, high, low + 1, high - 1, *powers, *ties, *(-x for x in powers + ties)}
        return sorted(x for x in found if low <= x <= high)
    about = [
        x + d
        for x in (127, 255, 32767, 65535, 2.0**31, 2.0**32, 2.0**63, 2.0**64, 65504, 65520)
        for d in (-1, 0, 0.5, 1)
    ]
    halves_ = [n + 0.5 for n in range(-4, 4)] + [n + d for n in (-2, 1, 3) for d in (0.25, 0.75)]
    #: What lies between two of a shorter format: in the middle, and a little to either side.
    ties = [
        1 + n * 2.0**-d + e
        for n in (1, 3)
        for d in (8, 9, 11, 12, 24, 25)
        for e in (0, 2.0**-30, -(2.0**-30), 2.0**-50)
    ]
    short = [2.0**e * m for e in (-24, -25, -14, -133, -134, -149, -150, -126, 127) for m in (1, 1.5)]
    numbers = [*about, *halves_, *ties, *short, *(-x for x in (*about, *ties, *short))]
    kept = {nearest(Fraction(x), kind) if x else x for x in numbers}
    return [*values(kind, 8), *sorted(x for x in kept if math.isfinite(x))]


def test_every_row_of_conversions() -> None:
    rows, wanted = conversions.table(), conversion_rows()
    packs = {f"cvt.{m}{r}.{k}x2.f32": (m, r, k) for m in ("rn", "rz") for r in ("", ".relu") for k in ("f16", "bf16")}
    assert rows.keys() == wanted.keys() | packs.keys()
    cases = {kind: conversion_cases(kind) for kind in (*INTEGERS, *FORMATS)}
    known: dict[tuple[Oracle, str], list] = {}
    wrong = []
    for name, (dest, (source,), oracle) in wanted.items():
        row, mine = rows[name], cases[source]
        assert (row.dest, row.sources) == (dest, (source,)), name
        held = array(mine, source) if source in FORMATS else np.array(mine, DTYPES[source])
        with np.errstate(all="ignore"):
            got = row.fn(held)
        if (oracle, source) not in known:
            known[oracle, source] = [oracle(x) for x in mine]
        real = "f32" if "tf32" in name else dest
        assert got.dtype.itemsize == DTYPES[dest].itemsize, name
        found, same = got.tolist(), int.__eq__
        if real in FORMATS:
            found, same = numbers_of(got.view(np.float32) if "tf32" in name else got, real), alike
        wrong += [f"{name} {x}: {v}, not {w}" for x, v, w in zip(mine, found, known[oracle, source]) if not same(v, w)]
    for name, (mode, relu, kind) in packs.items():
        assert (rows[name].dest, rows[name].sources) == ("b32", ("f32", "f32")), name
        mine = array(cases["f32"], "f32")
        with np.errstate(all="ignore"):
            words = rows[name].fn(mine, mine[::-1])
        want = [narrowed(x, kind, mode, bool(relu)) for x in cases["f32"]]
        halves_ = words.view(array([0.0], kind).dtype).reshape(-1, 2)
        for half, wanted_ in ((halves_[:, 1], want), (halves_[:, 0], want[::-1])):
            wrong += [f"{name}: {v}, not {w}" for v, w in zip(numbers_of(half, kind), wanted_) if not alike(v, w)]
    assert not wrong, f"{len(wrong)} wrong\n" + "\n".join(wrong[:20])
