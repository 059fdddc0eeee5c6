"""The form of a ``.lnx`` file: a header, code and tensors, each byte of which is accounted for.

    magic, header's length and CRC-32     "LNEXE6\\n\\0", 8 and 4 bytes, little endian
    header                                JSON: what the network takes and gives, and where the sections are
    sections                              at multiples of 4096, in order, zeros between them
    signature (optional)                  "LNSIGN1\\0", public key (32 bytes), Ed25519 signature (64 bytes)

A section of code begins with *facts*: how it is linked, and which memory it was compiled for. Code cannot be checked,
and is trusted; all that stands elsewhere is checked against what the code says of itself (`lnx_check.py`). The header
has the SHA-256 of each section, so that a signature of the header is one of the whole file. Imports the standard
library.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Mapping
from typing import Any

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.runtime.files import reason_of

MAGIC = b"LNEXE6\n\0"
#: What the magic of every version begins with.
ANY_VERSION = b"LNEXE"
#: What code and sections of arrays begin and end at.
PAGE = 4096
FIXED = struct.Struct("<QI")
#: A header of this many bytes at most is read: ten thousand tensors take a tenth of it.
MAX_HEADER = 1 << 26
CODE_MAGIC = b"LNCODE1\0"
SIGNATURE_MAGIC = b"LNSIGN1\0"
SIGNATURE_BYTES = len(SIGNATURE_MAGIC) + 32 + 64
#: What a signature signs is this, and the header as it stands in the file (magic, length and checksum included).
SIGNED_PREFIX = b"lightnet executable\0"


def pages(nbytes: int) -> int:
    """The least multiple of `PAGE` that is not below `nbytes`."""
    return -(-nbytes // PAGE) * PAGE


# -- code ----------------------------------------------------------------------------------------------------


def packed_code(facts: Mapping[str, Any], body: bytes) -> bytes:
    """A section of code: its facts, sealed with it by a checksum, and from the next page on its bytes."""
    text = json.dumps(facts).encode()
    head = pages(len(CODE_MAGIC) + FIXED.size + len(text))
    rest = text.ljust(head - len(CODE_MAGIC) - FIXED.size) + body
    return CODE_MAGIC + FIXED.pack(len(text), zlib.crc32(rest)) + rest


def unpacked_code(section: bytes | memoryview) -> tuple[dict[str, Any], memoryview]:
    """The facts and the bytes of a section of code. ValueError where it is none, or not whole."""
    section = memoryview(section)
    start = len(CODE_MAGIC) + FIXED.size
    if section[: len(CODE_MAGIC)] != CODE_MAGIC or len(section) < start:
        raise ValueError("is no code")
    length, crc = FIXED.unpack(section[len(CODE_MAGIC) : start])
    if length > len(section) - start or zlib.crc32(section[start:]) != crc:
        raise ValueError("is damaged")
    facts = json.loads(bytes(section[start : start + length]))
    if not isinstance(facts, dict):
        raise ValueError("has no facts")
    return facts, section[pages(start + length) :]


# -- the header ----------------------------------------------------------------------------------------------


def packed_header(text: bytes) -> bytes:
    """The bytes that a file begins with."""
    return MAGIC + FIXED.pack(len(text), zlib.crc32(text)) + text


@dataclass(frozen=True)
class Head:
    """The header as it stands in a file, not looked into yet: `raw`, all bytes before the first section's page; the
    `size` of the file, and its `signature` (public key and signature), if it has one."""

    raw: bytes
    size: int
    signature: tuple[bytes, bytes] | None

    @property
    def text(self) -> bytes:
        """The JSON."""
        return self.raw[len(MAGIC) + FIXED.size :]


def read_head(fd: int, where: SourceLoc) -> Head:
    """The header of an open file. LightNetError for what is no executable of this version, is cut short or damaged, or
    cannot be read."""
    try:
        size = os.fstat(fd).st_size
        start = len(MAGIC) + FIXED.size
        begin = os.pread(fd, start, 0)
        if begin[: len(MAGIC)] != MAGIC or len(begin) < start:
            raise LightNetError("this is no executable saved by this version of LightNet", where)
        length, crc = FIXED.unpack(begin[len(MAGIC) :])
        text = os.pread(fd, length, start) if length <= min(MAX_HEADER, size) else b""
        if len(text) != length or zlib.crc32(text) != crc:
            raise LightNetError("the file is damaged or cut short: its header does not match its checksum", where)
        tail = os.pread(fd, SIGNATURE_BYTES, size - SIGNATURE_BYTES) if size >= SIGNATURE_BYTES else b""
    except OSError as error:
        raise LightNetError(f"cannot read: {reason_of(error)}", where) from None
    signature = None
    if size % PAGE == SIGNATURE_BYTES and tail.startswith(SIGNATURE_MAGIC):
        signature = tail[len(SIGNATURE_MAGIC) :][:32], tail[-64:]
    return Head(begin + text, size, signature)
