"""Instructions that LLVM does not emit, and what hand-written PTX may have: each thread's result is what the PTX ISA says, reckoned in Python's integers
and NumPy's float64."""

from __future__ import annotations

import re

import numpy as np
import pytest
from ptx_tools import run
from test_ptx_machine import T, finding, kernel, words

from lightnet.diagnostics import LightNetError
from lightnet_ptx.emulator import Emulator

ml_dtypes = pytest.importorskip("ml_dtypes")

#: Two words that differ in every thread: %r3, %r4.
MIXED = "mul.lo.u32 %r3, %r1, 0x9E3779B1; add.u32 %r3, %r3, 0x7F4A7C15; mul.lo.u32 %r4, %r1, 0x85EBCA6B; xor.b32 %r4, %r4, 0xC2B2AE35;"
A = ((T.astype(np.uint64) * 0x9E3779B1 + 0x7F4A7C15) & 0xFFFFFFFF).astype(np.uint32)
B = ((T.astype(np.uint64) * 0x85EBCA6B) & 0xFFFFFFFF).astype(np.uint32) ^ np.uint32(0xC2B2AE35)


def stored(body: str, result: str = "%r9") -> np.ndarray:
    return words(f"{MIXED}\n{body}\nst.global.u32 [%rd2], {result};")


def inserted(a: int, b: int, pos: int, length: int, bits: int) -> int:
    """The manual's loop: bit by bit."""
    for i in range(length & 255):
        if i + (pos & 255) < bits:
            at = i + (pos & 255)
            b = b & ~(1 << at) | (a >> i & 1) << at
    return b


@pytest.mark.parametrize(
    "pos, length",
    [
        ("%r1", "8"),
        ("5", "%r1"),
        ("%r1", "%r1"),
        ("31", "1"),
        ("0", "32"),
        ("0", "33"),
        ("32", "8"),
        ("260", "3"),
        ("3", "0"),
        ("1", "31"),
    ],
)
def test_bits_are_inserted(pos: str, length: str) -> None:
    number = lambda text, t: t if text == "%r1" else int(text)  # noqa: E731
    want = [inserted(int(a), int(b), number(pos, t), number(length, t), 32) for t, (a, b) in enumerate(zip(A, B))]
    assert stored(f"bfi.b32 %r9, %r3, %r4, {pos}, {length};").tolist() == want


@pytest.mark.parametrize("pos, length", [("%r1", "40"), ("%r5", "%r1"), ("63", "1"), ("0", "64"), ("64", "8")])
def test_bits_are_inserted_into_64(pos: str, length: str) -> None:
    body = f"mul.lo.u32 %r5, %r1, 2; mov.b64 %rd5, {{%r3, %r4}}; mov.b64 %rd6, {{%r4, %r3}}; bfi.b64 %rd7, %rd5, %rd6, {pos}, {length}; mov.b64 {{%r9, %r10}}, %rd7;"
    number = lambda text, t: {"%r1": t, "%r5": 2 * t}.get(text) if text[0] == "%" else int(text)  # noqa: E731
    want = [
        inserted(int(a) | int(b) << 32, int(b) | int(a) << 32, number(pos, t), number(length, t), 64)
        for t, (a, b) in enumerate(zip(A, B))
    ]
    assert stored(body).tolist() == [w & 0xFFFFFFFF for w in want] and stored(body, "%r10").tolist() == [
        w >> 32 for w in want
    ]


@pytest.mark.parametrize("kind", ["s32", "u32"])
def test_products_of_four_bytes(kind: str) -> None:
    """And an accumulator, which goes round."""
    byte = np.int8 if kind == "s32" else np.uint8
    pairs = zip(A.view(byte).reshape(-1, 4).astype(int), B.view(byte).reshape(-1, 4).astype(int), B)
    want = [int((a * b).sum() + int(c)) & 0xFFFFFFFF for a, b, c in pairs]
    assert stored(f"dp4a.{kind}.{kind} %r9, %r3, %r4, %r4;").tolist() == want
    fixed = (
        int(
            (
                np.array([0x04030201], np.uint32).view(byte).astype(int)
                * np.array([0x05FF0102], np.uint32).view(byte).astype(int)
            ).sum()
            + 7
        )
        & 0xFFFFFFFF
    )
    assert (stored(f"dp4a.{kind}.{kind} %r9, 0x04030201, 0x05FF0102, 7;") == fixed).all()


@pytest.mark.parametrize(("kind", "want"), [
    ("eq", lambda t: 1 << t), ("lt", lambda t: (1 << t) - 1), ("le", lambda t: (2 << t) - 1), ("gt", lambda t: 0xFFFFFFFF & ~((2 << t) - 1)),
    ("ge", lambda t: 0xFFFFFFFF & ~((1 << t) - 1)),
])  # fmt: skip
def test_masks_of_lanes(kind: str, want) -> None:
    assert words(f"mov.u32 %r9, %lanemask_{kind}; st.global.u32 [%rd2], %r9;", 64, 64).tolist() == [
        want(t % 32) for t in range(64)
    ]


def test_the_size_of_a_warp() -> None:
    assert (stored("mov.u32 %r9, WARP_SZ;") == 32).all() and (stored("add.u32 %r9, %r1, WARP_SZ;") == T + 32).all()


#: Of 32 threads: floats about 0 and 1, below the normal ones, and what is no number.
F32 = np.array(
    [
        0,
        -0.0,
        0.25,
        -0.25,
        1,
        1.5,
        -1.5,
        np.inf,
        -np.inf,
        np.nan,
        1e-39,
        -1e-39,
        1.2e-38,
        3e38,
        0.999,
        2.0**-126,
        *np.linspace(-2, 2, 16),
    ],
    np.float32,
)
F16 = np.array(
    [
        0,
        -0.0,
        0.25,
        -0.25,
        1,
        1.5,
        -1.5,
        np.inf,
        -np.inf,
        np.nan,
        3e-5,
        -3e-5,
        6.2e-5,
        6e4,
        0.999,
        2.0**-14,
        *np.linspace(-2, 2, 16),
    ],
    np.float16,
)


def given(values: np.ndarray) -> str:
    """%r5 holds the thread's element, as bits."""
    bits = values.view(f"u{values.itemsize}").astype(np.uint32)
    return "mov.u32 %r5, 0;" + "".join(f"setp.eq.u32 %p1, %r1, {t}; @%p1 mov.u32 %r5, {b};" for t, b in enumerate(bits))


def same(found: np.ndarray, want: np.ndarray) -> None:
    """Equal, the signs of zeros with them; NaN stands for any."""
    found, want = found.astype(np.float64), want.astype(np.float64)
    np.testing.assert_array_equal(found, want)
    kept = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(found)[kept], np.signbit(want)[kept])


def flushed(x: np.ndarray, least: float) -> np.ndarray:
    return np.where(np.abs(x) < least, np.copysign(0, x), x)


@np.errstate(all="ignore")
def clamped(x: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(x), 0, np.clip(x, 0, 1)) + 0.0


@np.errstate(all="ignore")
@pytest.mark.parametrize(("op", "want"), [
    ("add.sat.f32 %f2, %f1, 0f3E800000", lambda x: clamped(x + np.float32(0.25))), ("mul.sat.f32 %f2, %f1, 0f40000000", lambda x: clamped(x * np.float32(2))),
    ("add.ftz.f32 %f2, %f1, 0f00000000", lambda x: flushed(x, 2.0**-126) + np.float32(0)), ("mul.ftz.f32 %f2, %f1, 0f3F000000", lambda x: flushed(flushed(x, 2.0**-126) * np.float32(0.5), 2.0**-126)),
    ("mul.f32 %f2, %f1, 0f3F000000", lambda x: x * np.float32(0.5)),
])  # fmt: skip
def test_floats_that_are_clamped_or_flushed(op: str, want) -> None:
    body = f"{given(F32)} mov.b32 %f1, %r5; {op}; mov.b32 %r9, %f2;"
    same(stored(body).view(np.float32), want(F32).astype(np.float32))


@np.errstate(all="ignore")
@pytest.mark.parametrize(("op", "want"), [
    ("add.ftz.f16 %h2, %h1, %h3", lambda x: flushed(flushed(x, 2.0**-14) + np.float16(0), 2.0**-14)), ("mul.ftz.f16 %h2, %h1, %h4", lambda x: flushed(flushed(x, 2.0**-14) * np.float16(0.5), 2.0**-14)),
    ("add.sat.f16 %h2, %h1, %h4", lambda x: clamped(x + np.float16(0.5))), ("fma.rn.f16 %h2, %h1, %h4, %h4", lambda x: (x.astype(np.float64) * 0.5 + 0.5).astype(np.float16)),
    ("fma.rn.relu.f16 %h2, %h1, %h4, %h4", lambda x: np.where(np.isnan(x), x, np.maximum((x.astype(np.float64) * 0.5 + 0.5).astype(np.float16), 0))),
])  # fmt: skip
def test_halves_that_are_clamped_or_flushed(op: str, want) -> None:
    body = f"{given(F16)} cvt.u16.u32 %h1, %r5; mov.b16 %h3, 0; mov.b16 %h4, 0x3800; {op}; cvt.u32.u16 %r9, %h2;"
    same(stored(body).astype(np.uint16).view(np.float16), want(F16).astype(np.float16))


@np.errstate(all="ignore")
def test_reciprocals_of_doubles() -> None:
    """To 20 bits of fraction, what is below the normal ones flushed."""
    x = F32.astype(np.float64)
    body = f"{given(F32)} mov.b32 %f1, %r5; cvt.f64.f32 %fd1, %f1; rcp.approx.ftz.f64 %fd2, %fd1; mov.b64 {{%r9, %r10}}, %fd2;".replace(
        "cvt", ".reg .f64 %fd<4>; cvt", 1
    )
    high, low = stored(body, "%r10"), stored(body, "%r9")
    found = (high.astype(np.uint64) << np.uint64(32) | low).view(np.float64)
    same(found, (1 / x).view(np.uint64).__and__(np.uint64(0xFFFFFFFF00000000)).view(np.float64))
    assert not low.any()


@np.errstate(all="ignore")
@pytest.mark.parametrize(("op", "want"), [
    ("cvt.rz.f16.f32 %h2, %f1", lambda x: toward_zero(x, np.float16)), ("cvt.rz.bf16.f32 %h2, %f1", lambda x: toward_zero(x, ml_dtypes.bfloat16)),
    ("cvt.rn.f16.f32 %h2, %f1", lambda x: x.astype(np.float16)), ("cvt.rn.bf16.f32 %h2, %f1", lambda x: x.astype(ml_dtypes.bfloat16)),
])  # fmt: skip
def test_shorter_floats(op: str, want) -> None:
    x = np.array([0, -0.0, 1, -1, 1.0001, -1.0001, 1.0009, 1e-8, -6e-8, 65504, 65519, 65520, 7e4, -1e6, np.inf, -np.inf, 3.1415927, 2.7182817, 0.1, -0.1, *np.geomspace(1e-4, 900, 12)],
                 np.float32)  # fmt: skip
    kind = np.float16 if "f16.f32" in op and "bf16" not in op else ml_dtypes.bfloat16
    same(stored(f"{given(x)} mov.b32 %f1, %r5; {op}; cvt.u32.u16 %r9, %h2;").astype(np.uint16).view(kind), want(x))


def toward_zero(x: np.ndarray, kind: type) -> np.ndarray:
    """The neighbour of `x` toward zero: the nearest, or the one below it where that is too large."""
    near = x.astype(kind)
    over = np.abs(near.astype(np.float64)) > np.abs(x.astype(np.float64))
    return (near.view(np.uint16) - over).astype(np.uint16).view(kind)


def test_tf32_rounds_to_even_or_away() -> None:
    """10 bits of fraction; what is no finite number stays."""
    x = np.array(
        [
            1,
            1 + 2.0**-11,
            1 + 3 * 2.0**-11,
            1 + 2.0**-11 + 2.0**-20,
            -1 - 2.0**-11,
            np.inf,
            -np.inf,
            3e38,
            1e-39,
            *np.linspace(-3, 3, 23),
        ],
        np.float32,
    )
    mantissa, exponent = np.frexp(x.astype(np.float64))
    for mode, rounded in (("rn", np.rint), ("rna", lambda y: np.copysign(np.floor(np.abs(y) + 0.5), y))):
        with np.errstate(all="ignore"):
            want = np.where(
                np.isfinite(x) & (np.abs(x) > 1e-30), np.ldexp(rounded(mantissa * 2.0**11) / 2.0**11, exponent), x
            )
        found = stored(f"{given(x)} mov.b32 %f1, %r5; cvt.{mode}.tf32.f32 %r9, %f1;").view(np.float32)
        kept = np.abs(x) > 1e-30
        np.testing.assert_array_equal(found[kept], want[kept].astype(np.float32))


def test_atomics_of_bfloats() -> None:
    """One of a word, and two of one."""
    body = "cvt.rn.f32.u32 %f1, %r1; cvt.rn.bf16.f32 %h1, %f1; atom.global.add.noftz.bf16 %h2, [%rd1+128], %h1; mov.b32 %r5, {%h1, %h1}; atom.global.add.noftz.bf16x2 %r6, [%rd1+132], %r5;"
    got = words(body, 34).view(np.uint16).view(ml_dtypes.bfloat16).astype(float)
    total = ml_dtypes.bfloat16(0)
    for t in range(32):
        total = ml_dtypes.bfloat16(float(total) + t)
    assert got[64] == got[66] == got[67] == float(total) and got[65] == 0


# -- what stands around instructions


def test_directives_and_operands_of_hand_written_ptx() -> None:
    """Comments of debuggers, pragmas, sections, negated predicates, negative offsets."""
    text = kernel("""
        .loc 1 7 3
        .pragma "nounroll";
        setp.lt.u32 %p2, %r1, 20; setp.ge.and.u32 %p1, %r1, 4, !%p2; selp.u32 %r9, 1, 0, %p1; add.u64 %rd3, %rd2, 8; st.global.u32 [%rd3+-8], %r9;""")
    text = text.replace(".target sm_80", ".target sm_80, debug").replace("\n{ ", '\n.pragma "nounroll";\n{ ', 1)
    text += '\n.file 1 "a.cu"\n.section .debug_str { .b8 1, 2 }\n'
    (found,) = run(text, "k", [np.zeros(32, np.uint32)])
    assert found.tolist() == ((T >= 4) & (T >= 20)).astype(int).tolist()


def test_addresses_that_are_numbers() -> None:
    """An absolute address is in no allocation here."""
    finding("ld.global.u32 %r9, [64]; st.global.u32 [%rd2], %r9;", "bounds")
    body = ".shared .align 4 .b32 s[32]; mov.u32 %r2, s; shl.b32 %r3, %r1, 2; add.u32 %r2, %r2, %r3; st.shared.u32 [%r2], %r1; bar.sync 0; ld.shared.u32 %r9, [4]; st.global.u32 [%rd2], %r9;"
    assert (words(body) == 1).all()


def test_what_stops_a_kernel() -> None:
    assert "the kernel stops with a trap" in finding("trap;", "trap").message
    assert "barrier 16: there are 0 to 15" in finding("mov.u32 %r2, 16; bar.sync %r2;", "barrier").message
    words("mov.u32 %r2, 15; bar.sync %r2;")
    words(
        "setp.lt.u32 %p1, %r1, 32; mov.u32 %r2, 16; @%p1 mov.u32 %r2, 3; @!%p1 bra E; bar.sync %r2, 32;\nE: ", 64, 64
    )  # of those that come
    for count in ("33", "64"):
        assert "no multiple of 32, or more than the block has" in finding(f"bar.sync 0, {count};", "barrier").message
    words("bar.sync 0, 32;")


@pytest.mark.parametrize(("old", "new", "message"), [
    (r"\.address_size 64", ".address_size 32", "only 64-bit PTX is understood"), (r"\.version [\d.]+", ".version 8", "a version such as 8.0"),
    (r"\.version [\d.]+", ".version x", "a version such as 8.0"),
])  # fmt: skip
def test_heads_of_modules(old: str, new: str, message: str) -> None:
    text, count = re.subn(old, new, kernel(""))
    assert count == 1
    with pytest.raises(LightNetError, match=message):
        Emulator().load(text)
