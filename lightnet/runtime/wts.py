"""The ``.wts`` weight format: text, one tensor a line, elements in hexadecimal. Imports only NumPy.

    2                                   the number of tensors
    wts1 0 3 3f99999a 3a83126f 00000000      name, type, number of elements, elements
    wts2 2 2 01 ff

Type 0 is float32 (the IEEE bits), 2 is int8 (two's complement), 1 is half, which no LightNet tensor has. Fields are
separated by any whitespace. The text cannot be mapped, so it is decoded when it is opened, 4 MiB at a time: memory is
bounded by twice the size of the file, and every mistake is found at once, with its line and column.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import BinaryIO, NoReturn

import numpy as np

from lightnet.diagnostics import LightNetError, SourceLoc

#: Hexadecimal digits at most, and the element type of the bits, by type number. Half stays as bits.
TYPES: dict[int, tuple[int, np.dtype]] = {
    0: (8, np.dtype(np.uint32)),
    1: (4, np.dtype(np.uint16)),
    2: (2, np.dtype(np.uint8)),
}
#: Each costs some hundred times what it takes in the file.
MAX_TENSORS = 1 << 17
_CHUNK = 1 << 22
_HEADER_FIELD = 1024  # characters of a name or a number, at most
_TOKEN = re.compile(rb"[^ \t\r\n\v\f]+")
_SPACE = np.zeros(256, bool)
_SPACE[list(b" \t\r\n\v\f")] = True
_DIGIT = np.full(256, 255, np.uint8)
for _i, _c in enumerate(b"0123456789abcdef"):
    _DIGIT[[_c, ord(chr(_c).upper())]] = _i


def read_wts(data: memoryview, path: str) -> tuple[dict[str, np.ndarray], list[str]]:
    """Decode a file: the tensors by name (1-D; float32, int8, or float16 for half), and warnings.

    Raises LightNetError at the line and column of the first mistake: no or a negative count, type or length, fewer
    elements than the length says, a name twice, an unknown type, an element that is no hexadecimal number of at most
    the type's width. Text after the last tensor is only a warning, since the format's other readers never see it.
    """
    reader = _Reader(data, path)
    count = reader.integer("the number of tensors")
    if count > MAX_TENSORS:
        reader.fail(f"{count} tensors are more than the limit of {MAX_TENSORS}")
    tensors: dict[str, np.ndarray] = {}
    for _ in range(count):
        name = reader.name()
        if name in tensors:
            reader.fail(f"tensor '{name}' is in the file twice")
        kind = reader.integer(f"the type of '{name}'")
        if kind not in TYPES:
            reader.fail(f"type {kind} of '{name}' is unknown (0 is float, 2 is int8)")
        length = reader.integer(f"the length of '{name}'")
        bits = reader.elements(name, length, *TYPES[kind])
        tensors[name] = bits.view({0: np.float32, 1: np.float16, 2: np.int8}[kind])
    rest = reader.token()
    warnings = [] if rest is None else [f"{reader.loc()}: text after the last of {count} tensors is ignored"]
    return tensors, warnings


class _Reader:
    """Reads whitespace-separated fields of `data`; `start` is where the field read last begins."""

    def __init__(self, data: memoryview, path: str):
        self.data, self.path, self.pos, self.start = data, path, 0, 0

    def loc(self) -> SourceLoc:
        line, line_start = 1, 0
        for at in range(0, self.start, _CHUNK):  # in chunks, since the file may be large
            part = bytes(self.data[at : min(at + _CHUNK, self.start)])
            if newlines := part.count(b"\n"):
                line, line_start = line + newlines, at + part.rfind(b"\n") + 1
        return SourceLoc(self.path, line, self.start - line_start + 1)

    def fail(self, message: str) -> NoReturn:
        raise LightNetError(f"invalid weight file: {message}", self.loc(), label="wts")

    def token(self) -> bytes | None:
        match = _TOKEN.search(self.data, self.pos)
        if match is None:
            self.start = self.pos = len(self.data)
            return None
        self.start, self.pos = match.span()
        if self.pos - self.start > _HEADER_FIELD:
            self.fail(f"a field of more than {_HEADER_FIELD} characters")
        return match.group()

    def field(self, what: str) -> str:
        token = self.token()
        if token is None:
            self.fail(f"the file ends before {what}")
        try:
            return token.decode()
        except UnicodeDecodeError:
            self.fail(f"expected {what}, got bytes that are not UTF-8")

    def name(self) -> str:
        return self.field("the name of the next tensor (is the count on line 1 too high?)")

    def integer(self, what: str) -> int:
        text = self.field(what)
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
            self.fail(f"expected {what}, got '{text[:40]}'")
        if int(text) < 0:
            self.fail(f"{what} is negative ({text})")
        return int(text)

    def elements(self, name: str, length: int, width: int, dtype: np.dtype) -> np.ndarray:
        """The next `length` elements as bits, of 1 to `width` digits each."""
        if 2 * length - 1 > len(self.data) - self.pos:  # a digit and a space each: checked before allocating
            self.start = len(self.data)
            self.fail(f"the file ends before the {length} elements of '{name}'")
        out = np.empty(length, dtype)
        done = 0
        while done < length:
            values = self._chunk(name, length - done, width)
            out[done : done + len(values)] = values
            done += len(values)
        return out

    def _chunk(self, name: str, wanted: int, width: int) -> np.ndarray:
        """Up to `wanted` elements from the next chunk of text; at least one, or an error."""
        end = min(self.pos + _CHUNK, len(self.data), self.pos + wanted * (width + 1) + 1)
        text = np.frombuffer(self.data[self.pos : end], np.uint8)
        space = _SPACE[text]
        edge = np.flatnonzero(np.diff(space, prepend=True, append=True))  # start, end, start, end, ...
        starts, ends = edge[0::2], edge[1::2]
        if len(ends) and ends[-1] == len(text) and end < len(self.data):
            if len(text) - starts[-1] <= width:  # cut in two by the end of the chunk: leave it to the next
                starts, ends = starts[:-1], ends[:-1]
        starts, ends = starts[:wanted], ends[:wanted]
        if not len(starts):
            return self._skip_space(name, end)
        digits = _DIGIT[text]
        lengths = ends - starts
        values = np.zeros(len(starts), np.uint32)
        bad = lengths > width
        for i in range(min(width, int(lengths.max()))):
            inside = i < lengths
            digit = digits[np.minimum(starts + i, len(text) - 1)]
            bad |= inside & (digit == 255)
            values = np.where(inside, (values << np.uint32(4)) | digit, values)
        if bad.any():
            first = int(np.argmax(bad))
            self.start = self.pos + int(starts[first])
            shown = bytes(text[starts[first] : ends[first]][:16]).decode("ascii", "replace")
            self.fail(f"element '{shown}' of '{name}' is not a hexadecimal number of at most {width} digits")
        self.pos += int(ends[-1])
        return values

    def _skip_space(self, name: str, end: int) -> np.ndarray:
        """Nothing but space up to `end` (or a piece of one element, to be read from its start next time)."""
        match = _TOKEN.search(self.data, self.pos)
        if match is None:
            self.start = len(self.data)
            self.fail(f"the file ends before the last element of '{name}'")
        self.pos = match.start()
        return np.empty(0, np.uint32)


def write_wts(out: BinaryIO, tensors: Mapping[str, np.ndarray]) -> None:
    """Write 1-D or shaped float32 and int8 arrays; the shape is not kept. Raises LightNetError before writing."""
    kinds = {np.dtype(np.float32): (0, ">u4", 4), np.dtype(np.int8): (2, "u1", 1)}
    for name, array in tensors.items():
        if not name or name.split() != [name]:
            raise LightNetError(f"a .wts file cannot hold the name '{name}': it is empty or has whitespace")
        if array.dtype not in kinds:
            raise LightNetError(f"a .wts file cannot hold '{name}': it is {array.dtype}, not float32 or int8")
    out.write(b"%d\n" % len(tensors))
    for name, array in tensors.items():
        kind, bits, width = kinds[array.dtype]
        out.write(f"{name} {kind} {array.size}".encode())
        flat = array.reshape(-1)
        for start in range(0, flat.size, _CHUNK // 16):
            part = flat[start : start + _CHUNK // 16].view(f"u{width}").astype(bits)
            out.write(b" " + part.tobytes().hex(" ", width).encode())
        out.write(b"\n")
