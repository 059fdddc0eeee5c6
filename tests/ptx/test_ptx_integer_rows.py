"""Every row of the PTX interpreter's table of integers, on edge values, against Python's integers. The names are made here, from the
manual's grammar: a row that is missing, one too many, or one of other types is found too. Source: "PTX ISA", 9.7.1 and 9.7.7.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from lightnet_ptx import integers
from lightnet_ptx.tables import DTYPES

RNG = np.random.default_rng(7)
Oracle = Callable[..., object]
#: For each name: the types of the result and of the operands, and the function of one thread's operands.
Wanted = dict[str, tuple[str, tuple[str, ...], Oracle]]


def edges(kind: str) -> list[int]:
    bits = int(kind[1:])
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
    return sorted({0, 1, 2, 5, high, high - 1, high // 3, low, low + 1, *(-x for x in (1, 2, 7) if low)})


def wrapped(value: int, kind: str) -> int:
    bits = int(kind[1:])
    value %= 1 << bits
    return value - (1 << bits) if kind[0] == "s" and value >> bits - 1 else value


def quotient(a: int, b: int) -> int:
    """Toward zero; all ones by 0."""
    return -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def shifted_right(a: int, n: int, kind: str) -> int:
    return a >> min(n, int(kind[1:]))


def extracted(a: int, pos: int, length: int, kind: str) -> int:
    """The manual's loop: bits of `a` from `pos` on, then its sign."""
    bits, pos, length = int(kind[1:]), pos & 255, length & 255
    word = a % (1 << bits)
    sign = 0 if kind[0] == "u" or length == 0 else word >> min(pos + length - 1, bits - 1) & 1
    return wrapped(
        sum((word >> pos + i & 1 if i < length and pos + i < bits else sign) << i for i in range(bits)), kind
    )


def inserted(a: int, b: int, pos: int, length: int, bits: int) -> int:
    for i in range(length & 255):
        if i + (pos & 255) < bits:
            at = i + (pos & 255)
            b = b & ~(1 << at) | (a >> i & 1) << at
    return b


def funnel(a: int, b: int, n: int, left: bool, wrap: bool) -> int:
    n = n % 32 if wrap else min(n, 32)
    word = b << 32 | a
    return (word << n >> 32 if left else word >> n) & 0xFFFFFFFF


def permuted(a: int, b: int, selector: int) -> int:
    found = []
    for i in range(4):
        nibble = selector >> 4 * i & 15
        byte = (b << 32 | a) >> 8 * (nibble & 7) & 255
        found.append(255 * (byte >> 7) if nibble & 8 else byte)
    return int.from_bytes(bytes(found), "little")


def bytes_of(word: int, signed: bool) -> list[int]:
    return [wrapped(word >> 8 * i, "s8" if signed else "u8") for i in range(4)]


def halves(*words: int, kind: str) -> list[tuple[int, ...]]:
    return [tuple(wrapped(w >> s, kind) for w in words) for s in (0, 16)]


def joined(values: Iterable[int]) -> int:
    low, high = (v & 0xFFFF for v in values)
    return low | high << 16


def integer_rows() -> Wanted:
    wanted: Wanted = {}
    for bits, k in itertools.product((16, 32, 64), "su"):
        kind, wide = f"{k}{bits}", f"{k}{2 * bits}"
        two: dict[str, Oracle] = {
            "add": lambda a, b: a + b,
            "sub": lambda a, b: a - b,
            "mul.lo": lambda a, b: a * b,
            "mul.hi": lambda a, b, n=bits: a * b >> n,
            "div": quotient,
            "rem": lambda a, b: a - b * quotient(a, b) if b else a,
            "min": min,
            "max": max,
        }
        for name, fn in two.items():
            wanted[f"{name}.{kind}"] = (kind, (kind, kind), fn)
        wanted[f"mad.lo.{kind}"] = (kind, (kind,) * 3, lambda a, b, c: a * b + c)
        wanted[f"mad.hi.{kind}"] = (kind, (kind,) * 3, lambda a, b, c, n=bits: (a * b >> n) + c)
        if bits < 64:
            wanted[f"mul.wide.{kind}"] = (wide, (kind, kind), lambda a, b: a * b)
            wanted[f"mad.wide.{kind}"] = (wide, (kind, kind, wide), lambda a, b, c: a * b + c)
        if k == "s":
            wanted[f"abs.{kind}"] = (kind, (kind,), abs)
            wanted[f"neg.{kind}"] = (kind, (kind,), lambda a: -a)
    for k in "su":
        for name, fn in (("add", lambda a, b: a + b), ("min", min), ("max", max)):
            of_halves = lambda a, b, fn=fn, k=k: joined(fn(x, y) for x, y in halves(a, b, kind=f"{k}16"))  # noqa: E731
            wanted[f"{name}.{k}16x2"] = ("b32", ("b32", "b32"), of_halves)
        dot = lambda a, b, c, s=k == "s": sum(x * y for x, y in zip(bytes_of(a, s), bytes_of(b, s))) + c  # noqa: E731
        wanted[f"dp4a.{k}32.{k}32"] = (f"{k}32", ("b32", "b32", f"{k}32"), dot)
    for kind in ("b16", "b32", "b64", "pred"):
        for name, fn in (("and", int.__and__), ("or", int.__or__), ("xor", int.__xor__)):
            wanted[f"{name}.{kind}"] = (kind, (kind, kind), fn)
        wanted[f"not.{kind}"] = (kind, (kind,), (lambda a: not a) if kind == "pred" else lambda a: ~a)
    for bits in (16, 32, 64):
        wanted[f"shl.b{bits}"] = (f"b{bits}", (f"b{bits}", "u32"), lambda a, n, m=bits: a << min(n, m))
        for k in "bsu":
            fn = lambda a, n, kind=f"{k}{bits}": shifted_right(a, n, kind)  # noqa: E731
            wanted[f"shr.{k}{bits}"] = (f"{k}{bits}", (f"{k}{bits}", "u32"), fn)
    for bits in (32, 64):
        kind = f"b{bits}"
        wanted[f"popc.{kind}"] = ("u32", (kind,), lambda a: a.bit_count())
        wanted[f"clz.{kind}"] = ("u32", (kind,), lambda a, n=bits: n - a.bit_length())
        wanted[f"brev.{kind}"] = (kind, (kind,), lambda a, n=bits: int(f"{a:0{n}b}"[::-1], 2))
        insert = lambda a, b, p, n, m=bits: inserted(a, b, p, n, m)  # noqa: E731
        wanted[f"bfi.{kind}"] = (kind, (kind, kind, "u32", "u32"), insert)
        for k in "su":
            extract = lambda a, p, n, kind=f"{k}{bits}": extracted(a, p, n, kind)  # noqa: E731
            wanted[f"bfe.{k}{bits}"] = (f"{k}{bits}", (f"{k}{bits}", "u32", "u32"), extract)
    for side, mode in itertools.product("lr", ("wrap", "clamp")):
        fn = lambda a, b, n, left=side == "l", wrap=mode == "wrap": funnel(a, b, n, left, wrap)  # noqa: E731
        wanted[f"shf.{side}.{mode}.b32"] = ("b32", ("b32", "b32", "u32"), fn)
    wanted["prmt.b32"] = ("b32", ("b32",) * 3, permuted)
    wanted["lop3.b32"] = ("b32", ("b32",) * 4, None)  # `test_any_function_of_three_bits`
    return wanted


#: Shifts, positions and lengths about the sizes of words, and those of which the low eight bits count.
AMOUNTS = [0, 1, 3, 7, 8, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 255, 256, 263, 1 << 31, (1 << 32) - 1]


#: Words whose bytes, halves and nibbles differ, in sign too.
WORDS_OF_PARTS = [0, 1, 0xFFFFFFFF, 0x80017FFF, 0x7FFF8000, 0x01FE80FF, 0x7654BA98, 0x12345678, 0x0003FFFD]


def operands(sources: Sequence[str], name: str) -> list[tuple[int, ...]]:
    """Of two operands all pairs of edges, of more also combinations drawn."""
    lists = [[False, True] if s == "pred" else edges(s) for s in sources]
    if name.split(".")[0] in ("shl", "shr", "shf", "bfe", "bfi"):
        lists = [AMOUNTS if s == "u32" and i else values for i, (s, values) in enumerate(zip(sources, lists))]
    if name.startswith("prmt") or name.endswith("16x2") or name.startswith("dp4a"):
        lists = [WORDS_OF_PARTS if s == "b32" else values for s, values in zip(sources, lists)]
    every = list(itertools.product(*lists)) if len(lists) < 3 else []
    return every or [tuple(v[i] for v, i in zip(lists, RNG.integers(0, [len(v) for v in lists]))) for _ in range(150)]


def test_every_row_of_integers() -> None:
    rows, wanted = integers.table(), integer_rows()
    assert rows.keys() == wanted.keys()
    wrong = []
    for name, (dest, sources, oracle) in wanted.items():
        row = rows[name]
        assert (row.dest, row.sources) == (dest, sources), name
        if oracle is None:
            continue
        cases = operands(sources, name)
        arrays = [np.array([c[i] for c in cases], DTYPES[s]) for i, s in enumerate(sources)]
        with np.errstate(all="ignore"):
            got = row.fn(*arrays)
            scalars = [row.fn(*(a[i] for a in arrays)) for i in (0, len(cases) - 1)]
        assert got.dtype.itemsize == DTYPES[dest].itemsize and got.shape == (len(cases),), name
        for case, value in zip([*cases, cases[0], cases[-1]], [*got.tolist(), *(int(s) for s in scalars)]):
            want = bool(oracle(*case)) if dest == "pred" else wrapped(int(oracle(*case)), dest)
            if wrapped(int(value), dest) != want if dest != "pred" else value != want:
                wrong.append(f"{name} {case}: {value}, not {want}")
    assert not wrong, "\n".join(wrong[:20])
