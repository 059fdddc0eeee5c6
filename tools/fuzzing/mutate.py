"""Mutants of files: of bytes, words and archives. What a change puts in comes from other files of the corpus and from the limits of numbers."""

from __future__ import annotations

import io
import random
import re
import zipfile
from collections.abc import Callable, Sequence

Pool = Sequence[bytes]
_WORD = re.compile(rb"\w+|[^\w\s]+|\s+")
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
#: At the ends of number types, and a step beyond.
NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    127,
    128,
    255,
    256,
    -128,
    65535,
    65536,
    10**6,
    2**31 - 1,
    2**31,
    -(2**31) - 1,
    2**32,
    2**62,
    2**63 - 1,
    2**63,
    2**64,
    10**30,
)
FLOATS = (0.5, -0.0, 1e-45, 3.5e38, 1e308, float("inf"), float("-inf"), float("nan"))


def of_text(data: bytes, pool: Pool, rng: random.Random) -> bytes:
    """A few changes of words, numbers and lines."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        data = rng.choice(_TEXT)(data, pool, rng)
    return data


def of_bytes(data: bytes, pool: Pool, rng: random.Random) -> bytes:
    """A few changes of bytes and stretches of bytes."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        data = rng.choice(_BYTES)(data, pool, rng)
    return data


def of_zip(data: bytes, pool: Pool, rng: random.Random) -> bytes:
    """Changes of one member, so that checksums fit; sometimes of the archive."""
    if rng.random() < 0.3 or not zipfile.is_zipfile(io.BytesIO(data)):
        return of_bytes(data, pool, rng)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    out = io.BytesIO()
    chosen = rng.randrange(len(members)) if members else -1
    with zipfile.ZipFile(out, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for i, (name, content) in enumerate(members):
            head = of_text(content[:128], pool, rng) + content[128:] if i == chosen else content
            archive.writestr(name, head)
    return out.getvalue()


# -- words


def _spans(data: bytes) -> list[tuple[int, int]]:
    return [m.span() for m in _WORD.finditer(data)] or [(0, len(data))]


def _piece(pool: Pool, rng: random.Random) -> bytes:
    """A word of some file, or a number."""
    if rng.random() < 0.3:
        return str(rng.choice(NUMBERS + FLOATS)).encode()
    words = _WORD.findall(rng.choice(pool)) if pool else []
    return rng.choice(words) if words else b"0"


def _word_goes(data: bytes, pool: Pool, rng: random.Random) -> bytes:
    a, b = rng.choice(_spans(data))
    return data[:a] + data[b:]


def _word_comes(data: bytes, pool: Pool, rng: random.Random) -> bytes:
    a, _ = rng.choice(_spans(data))
    return data[:a] + _piece(pool, rng) + data[a:]


def _word_is_another(data: bytes, pool: Pool, rng: random.Random) -> bytes:
    a, b = rng.choice(_spans(data))
    return data[:a] + _piece(pool, rng) + data[b:]


def _words_change_places(data: bytes, pool: Pool, rng: random.Random) -> bytes:
    (a, b), (c, d) = sorted(rng.choices(_spans(data), k=2))
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:] if b <= c else data


def _number_is_another(data: bytes, pool: Pool, rng: random.Random) -> bytes:
    found = list(_NUMBER.finditer(data))
    if not found:
        return _word_is_another(data, pool, rng)
    m = rng.choice(found)
    return data[: m.start()] + str(rng.choice(NUMBERS + FLOATS)).encode() + data[m.end() :]


def _line_of_elsewhere(data: bytes, pool: Pool, rng: random.Random) -> bytes:
    lines, others = data.splitlines(True), rng.choice(pool).splitlines(True) if pool else []
    if others:
        lines.insert(rng.randint(0, len(lines)), rng.choice(others))
    return b"".join(lines)


def _line_twice_or_gone(data: bytes, pool: Pool, rng: random.Random) -> bytes:
    lines = data.splitlines(True)
    if lines:
        at = rng.randrange(len(lines))
        lines[at : at + 1] = lines[at : at + 1] * rng.choice((0, 2, 2, 300))
    return b"".join(lines)


def _end_goes(data: bytes, pool: Pool, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _deeper(data: bytes, pool: Pool, rng: random.Random) -> bytes:
    """Brackets, many times over: what a parser that calls itself does not survive."""
    a, b = rng.choice(_spans(data))
    left, right = rng.choice(((b"(", b")"), (b"[", b"]"), (b"{", b"}"), (b"<", b">"), (b"-", b""), (b"!", b"")))
    times = rng.choice((1, 2, 50, 3000))
    return data[:a] + left * times + data[a:b] + right * times + data[b:]


_TEXT: tuple[Callable[[bytes, Pool, random.Random], bytes], ...] = (
    _word_goes, _word_comes, _word_comes, _word_is_another, _word_is_another, _words_change_places, _number_is_another, _number_is_another, _line_of_elsewhere,
    _line_twice_or_gone, _end_goes, _deeper,
)  # fmt: skip


# -- bytes


def _bits(data: bytes, pool: Pool, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 4)) if out else 0):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def _integer(data: bytes, pool: Pool, rng: random.Random) -> bytes:
    """A number of 1 to 8 bytes in the place of as many."""
    size = rng.choice((1, 2, 4, 8))
    at = rng.randrange(max(1, len(data) - size + 1))
    return (
        data[:at] + (rng.choice(NUMBERS) % 256**size).to_bytes(size, rng.choice(("little", "big"))) + data[at + size :]
    )


def _stretch(data: bytes, pool: Pool, rng: random.Random) -> bytes:
    """A stretch goes, comes twice, or is one of another file."""
    a, b = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    b = min(b, a + rng.choice((1, 8, 64, 4096)))
    other = rng.choice(pool) if pool else data
    c = rng.randrange(len(other) + 1)
    return data[:a] + rng.choice((b"", data[a:b] * 2, other[c : c + b - a])) + data[b:]


_BYTES: tuple[Callable[[bytes, Pool, random.Random], bytes], ...] = (
    _bits,
    _bits,
    _integer,
    _integer,
    _stretch,
    _end_goes,
)
