"""Integer arithmetic, logic and shifts, which wrap. Imports NumPy.

Division by zero, which PTX leaves open, gives what the hardware's division routine does: all ones, and the dividend as
the remainder. The lowest integer divided by -1 is itself. Semantics: "PTX ISA", 9.7.1 (integers) and 9.7.7 (logic and
shifts).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lightnet_ptx.tables import DTYPES, Array, Row, Table, packed

u32, u64, i64 = np.uint32, np.uint64, np.int64


def _wide(kind: str) -> np.dtype:
    bits = int(kind[1:])
    return DTYPES[f"{kind[0]}{2 * bits}"]


def _high(kind: str) -> Callable[[Array, Array], Array]:
    """The upper half of a product."""
    bits = int(kind[1:])
    if bits < 64:
        wide, narrow = _wide(kind), DTYPES[kind]
        return lambda a, b: (np.multiply(a, b, dtype=wide) >> wide.type(bits)).astype(narrow)
    if kind == "u64":
        return _high_u64

    def signed(a: Array, b: Array) -> Array:
        a, b = np.asarray(a), np.asarray(b)
        high = _high_u64(a.view(u64), b.view(u64))
        high = high - np.where(a < 0, b.view(u64), u64(0)) - np.where(b < 0, a.view(u64), u64(0))
        return np.asarray(high).view(i64)

    return signed


def _high_u64(a: Array, b: Array) -> Array:
    mask, half = u64(0xFFFFFFFF), u64(32)
    a0, a1, b0, b1 = a & mask, a >> half, b & mask, b >> half
    middle = a1 * b0 + ((a0 * b0) >> half)
    carry = (middle & mask) + a0 * b1
    return a1 * b1 + (middle >> half) + (carry >> half)


def _divide(a: Array, b: Array) -> Array:
    """Truncating division; by zero gives all ones."""
    dtype = np.asarray(b).dtype
    kind = dtype.type
    safe = np.where(b == 0, kind(1), b)
    if dtype.kind == "u":
        return np.where(b == 0, ~kind(0), a // safe)
    negate = np.asarray(safe) == -1  # the lowest integer by -1 wraps
    safe = np.where(negate, kind(1), safe)
    quotient = a // safe
    quotient = quotient + ((quotient * safe != a) & ((a < 0) != (safe < 0)))  # NumPy rounds down
    return np.where(b == 0, kind(-1), np.where(negate, kind(0) - a, quotient)).astype(kind)


def _remainder(a: Array, b: Array) -> Array:
    return np.where(b == 0, a, a - _divide(a, b) * b).astype(np.asarray(a).dtype)


def _shift_left(kind: str) -> Callable[[Array, Array], Array]:
    bits, dtype = int(kind[1:]), DTYPES[kind].type
    return lambda a, n: np.where(n < bits, a << np.minimum(n, u32(bits - 1)).astype(dtype), dtype(0))


def _shift_right(kind: str) -> Callable[[Array, Array], Array]:
    bits, dtype = int(kind[1:]), DTYPES[kind].type
    if kind[0] == "s":
        return lambda a, n: a >> np.minimum(n, u32(bits - 1)).astype(dtype)
    return lambda a, n: np.where(n < bits, a >> np.minimum(n, u32(bits - 1)).astype(dtype), dtype(0))


def _funnel(left: bool, wrap: bool) -> Callable[[Array, Array, Array], Array]:
    """Bits of the 64-bit word b:a, shifted."""

    def run(a: Array, b: Array, c: Array) -> Array:
        n = (c & u32(31)) if wrap else np.minimum(c, u32(32))
        word = (np.asarray(b).astype(u64) << u64(32)) | np.asarray(a).astype(u64)
        n = np.asarray(n).astype(u64)
        return ((word << n) >> u64(32) if left else word >> n).astype(u32)

    return run


def _bits_extract(kind: str) -> Callable[[Array, Array, Array], Array]:
    bits, dtype = int(kind[1:]), DTYPES[kind].type
    word, shift = DTYPES[f"u{bits}"].type, _shift_right(kind)

    def run(a: Array, pos: Array, length: Array) -> Array:
        pos, length = np.asarray(pos) & u32(255), np.asarray(length) & u32(255)
        shifted = np.asarray(shift(a, pos)).view(word)  # a signed one has its sign from its end on
        mask = _ones(word, length)
        if kind[0] == "u":
            return shifted & mask
        last = np.minimum(length - u32(1), u32(bits - 1)).astype(word)
        sign = (length != 0) & (shifted >> last & word(1)).astype(bool)
        return np.where(sign, shifted | ~mask, shifted & mask).view(dtype)

    return run


def _ones(word: type, count: Array) -> Array:
    """Words of which the lowest `count` bits, or all, are set."""
    bits = 8 * word().itemsize
    return np.where(count >= bits, ~word(0), (word(1) << np.minimum(count, u32(bits - 1)).astype(word)) - word(1))


def _bits_insert(kind: str) -> Callable[..., Array]:
    bits, word = int(kind[1:]), DTYPES[kind].type

    def run(a: Array, b: Array, pos: Array, length: Array) -> Array:
        pos, length = np.asarray(pos) & u32(255), np.asarray(length) & u32(255)
        shift = np.minimum(pos, u32(bits - 1)).astype(word)
        mask = np.where(pos < bits, _ones(word, length) << shift, word(0))
        return (b & ~mask) | ((a << shift) & mask)

    return run


def _permute(a: Array, b: Array, selector: Array) -> Array:
    """Four bytes out of b:a; the top bit of a nibble replicates the byte's sign."""
    word = (np.asarray(b).astype(u64) << u64(32)) | np.asarray(a).astype(u64)
    result: Array = u64(0)
    for i in range(4):
        nibble = (np.asarray(selector) >> u32(4 * i)) & u32(15)
        byte = (word >> ((nibble & u32(7)).astype(u64) * u64(8))) & u64(255)
        sign = np.where(byte >> u64(7), u64(255), u64(0))
        result = result | (np.where(nibble & u32(8), sign, byte) << u64(8 * i))
    return np.asarray(result).astype(u32)


def _reverse(bits: int) -> Callable[[Array], Array]:
    word = DTYPES[f"u{bits}"].type
    steps = []
    mask, size = (1 << bits) - 1, bits
    while size > 1:
        size //= 2
        mask ^= mask << size & ((1 << bits) - 1)
        steps.append((word(size), word(mask)))

    def run(a: Array) -> Array:
        for shift, keep in steps:
            a = ((a >> shift) & keep) | ((a & keep) << shift)
        return a

    return run


def _population(a: Array) -> Array:
    """The number of bits that are set: sums of ever wider fields."""
    a = np.asarray(a)
    word, bits = a.dtype.type, 8 * a.dtype.itemsize
    size, ones = 1, (1 << bits) - 1
    while size < bits:
        mask = word(ones // ((1 << size) + 1))  # the lower half of each field of 2 * size bits
        a = (a & mask) + ((a >> word(size)) & mask)
        size *= 2
    return a.astype(u32)


def _leading_zeros(bits: int) -> Callable[[Array], Array]:
    def run(a: Array) -> Array:
        a, count = np.asarray(a), np.zeros(np.shape(a), u32)
        word = a.dtype.type
        size = bits // 2
        while size:
            empty = a >> word(bits - size) == 0
            count = count + np.where(empty, u32(size), u32(0))
            a = np.where(empty, a << word(size), a)
            size //= 2
        return count + (a >> word(bits - 1) == 0)

    return run


def _logic3(a: Array, b: Array, c: Array, truth: Array) -> Array:
    """Any function of three bits: bit 4*a + 2*b + c of `truth`."""
    truth = np.asarray(truth)
    result: Array = u32(0)
    for i in range(8):
        term = (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
        result = result | np.where((truth >> u32(i)) & u32(1), term, u32(0))
    return result


def _dot4(a: Array, b: Array, c: Array, kind: str) -> Array:
    byte = DTYPES[f"{kind[0]}8"]
    first, second = (np.ascontiguousarray(np.atleast_1d(x)).view(byte).reshape(-1, 4).astype(i64) for x in (a, b))
    total = (first * second).sum(axis=1) + np.asarray(c).astype(i64)
    total = total.astype(DTYPES[kind])
    return total if any(np.ndim(x) for x in (a, b, c)) else total[0]


def _arithmetic(table: Table) -> None:
    for bits in (16, 32, 64):
        for k in "su":
            kind = f"{k}{bits}"
            two = (kind, kind)
            for name, fn in (
                ("add", np.add),
                ("sub", np.subtract),
                ("mul.lo", np.multiply),
                ("div", _divide),
                ("rem", _remainder),
                ("min", np.minimum),
                ("max", np.maximum),
                ("mul.hi", _high(kind)),
            ):
                table[f"{name}.{kind}"] = Row(fn, kind, two)
            table[f"mad.lo.{kind}"] = Row(lambda a, b, c: a * b + c, kind, (*two, kind))
            table[f"mad.hi.{kind}"] = Row(lambda a, b, c, high=_high(kind): high(a, b) + c, kind, (*two, kind))
            if bits < 64:
                wide = _wide(kind)
                name = f"{k}{2 * bits}"
                table[f"mul.wide.{kind}"] = Row(lambda a, b, w=wide: np.multiply(a, b, dtype=w), name, two)
                table[f"mad.wide.{kind}"] = Row(
                    lambda a, b, c, w=wide: np.multiply(a, b, dtype=w) + c, name, (*two, name)
                )
        table[f"abs.s{bits}"] = Row(np.abs, f"s{bits}", (f"s{bits}",))
        table[f"neg.s{bits}"] = Row(np.negative, f"s{bits}", (f"s{bits}",))
    for k in "su":
        for name, fn in (("add", np.add), ("min", np.minimum), ("max", np.maximum)):
            table[f"{name}.{k}16x2"] = Row(packed(fn, DTYPES[f"{k}16"]), "b32", ("b32", "b32"))
        dot = f"dp4a.{k}32.{k}32"
        table[dot] = Row(lambda a, b, c, k=k: _dot4(a, b, c, f"{k}32"), f"{k}32", ("b32", "b32", f"{k}32"))


def _logic(table: Table) -> None:
    for kind in ("b16", "b32", "b64", "pred"):
        for name, fn in (("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor)):
            table[f"{name}.{kind}"] = Row(fn, kind, (kind, kind))
        table[f"not.{kind}"] = Row(np.logical_not if kind == "pred" else np.invert, kind, (kind,))
    for bits in (16, 32, 64):
        table[f"shl.b{bits}"] = Row(_shift_left(f"b{bits}"), f"b{bits}", (f"b{bits}", "u32"))
        for k in "bsu":
            table[f"shr.{k}{bits}"] = Row(_shift_right(f"{k}{bits}"), f"{k}{bits}", (f"{k}{bits}", "u32"))
    for bits in (32, 64):
        kind = f"b{bits}"
        table[f"popc.{kind}"] = Row(_population, "u32", (kind,))
        table[f"clz.{kind}"] = Row(_leading_zeros(bits), "u32", (kind,))
        table[f"brev.{kind}"] = Row(_reverse(bits), kind, (kind,))
        table[f"bfi.{kind}"] = Row(_bits_insert(kind), kind, (kind, kind, "u32", "u32"))
        for k in "su":
            table[f"bfe.{k}{bits}"] = Row(_bits_extract(f"{k}{bits}"), f"{k}{bits}", (f"{k}{bits}", "u32", "u32"))
    for side in "lr":
        for mode in ("wrap", "clamp"):
            table[f"shf.{side}.{mode}.b32"] = Row(_funnel(side == "l", mode == "wrap"), "b32", ("b32", "b32", "u32"))
    table["prmt.b32"] = Row(_permute, "b32", ("b32", "b32", "b32"))
    table["lop3.b32"] = Row(_logic3, "b32", ("b32", "b32", "b32", "b32"))


def table() -> Table:
    """All rows of this family."""
    rows: Table = {}
    _arithmetic(rows)
    _logic(rows)
    return rows
