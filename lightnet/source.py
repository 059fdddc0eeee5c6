"""Reading the user's text safely, and finding lines and columns in it. Imports the standard library and diagnostics
only.

Every front end reads files through `read_text`, so that one place keeps the promises: regular files only, bounded size,
valid UTF-8, and an error with a location for anything else.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from bisect import bisect_right

from lightnet.diagnostics import LightNetError, SourceLoc

#: What a location calls text that came from standard input.
STDIN_NAME = "<stdin>"
#: Longest line that an error shows a part of.
MAX_SHOWN = 1 << 16
_CHUNK = 1 << 20


def read_text(path: str, limit: int) -> str:
    """The text of `path` ("-" is standard input), at most `limit` bytes of UTF-8 without NUL.

    Raises LightNetError for a missing or unreadable file, for anything that is no regular file (folders, FIFOs,
    devices), and for text that is too long, is not UTF-8 or holds a NUL byte.
    """
    if path == "-":
        return decode(_read_bounded(sys.stdin.fileno(), STDIN_NAME, limit), STDIN_NAME)
    try:
        # O_NONBLOCK: opening a FIFO must not wait for a writer before it is refused.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as e:
        raise _cannot_read(path, e) from None
    try:
        return decode(read_regular(fd, path, limit), path)
    finally:
        os.close(fd)


def read_regular(fd: int, path: str, limit: int) -> bytes:
    """The contents of an open file; LightNetError unless it is a regular file of at most `limit` bytes. `path` is for
    the message."""
    mode = os.fstat(fd).st_mode
    if stat.S_ISDIR(mode):
        raise LightNetError(f"cannot read '{path}': it is a folder")
    if not stat.S_ISREG(mode):
        raise LightNetError(f"cannot read '{path}': it is not a regular file (use - for standard input)")
    return _read_bounded(fd, path, limit)


def _read_bounded(fd: int, path: str, limit: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        try:
            chunk = os.read(fd, _CHUNK)
        except OSError as e:
            raise _cannot_read(path, e) from None
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            raise LightNetError(f"'{path}' is too large: more than {limit} bytes")


def _cannot_read(path: str, error: OSError | ValueError) -> LightNetError:
    reason = getattr(error, "strerror", None) or "not a valid file name"
    return LightNetError(f"cannot read '{path}': {reason}")


def end_of(pattern: re.Pattern[str], text: str, at: int = 0) -> int:
    """The end of what a pattern matches at an offset; the offset, where it matches nothing."""
    found = pattern.match(text, at)
    return at if found is None else found.end()


def decode(data: bytes, path: str) -> str:
    """UTF-8 bytes as text; a located LightNetError for bytes that are not UTF-8 and for NUL."""
    refuse_pointer(data[:24], path)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as e:
        kind = file_kind(data[:24])
        message = "the text is not valid UTF-8" + (f": {kind}" if kind else "")
        raise LightNetError(message, _byte_loc(data, e.start, path)) from None
    check_text(text, path)
    return text


_POINTER = b"version https://git-lfs"
#: How files begin that are taken for something else, what they are, and what helps.
_KINDS = (
    (_POINTER, "it is a Git LFS pointer, not the file itself: fetch that with 'git lfs pull'"),
    (b"\x1f\x8b", "it is compressed with gzip: decompress it first"),
    (b"BZh", "it is compressed with bzip2: decompress it first"),
    (b"\xfd7zXZ", "it is compressed with xz: decompress it first"),
    (b"PK\x03\x04", "it is a zip archive (of PyTorch, Keras or NumPy, or to be unpacked)"),
    (b"\x93NUMPY", "it is one NumPy array (.npy)"),
    (b"\x89HDF", "it is an HDF5 file (of Keras): export the network to ONNX"),
    (b"\x80\x02", "it is a Python pickle, which only running code can read: export the network to ONNX"),
    (b"\x80\x04", "it is a Python pickle, which only running code can read: export the network to ONNX"),
    (b"<!DOCTYPE", "it is a web page: the download went wrong"),
    (b"<!doctype", "it is a web page: the download went wrong"),
    (b"<html", "it is a web page: the download went wrong"),
    (b"<?xml", "it is XML, as of OpenVINO"),
)


def file_kind(head: bytes) -> str | None:
    """The kind of a file that could not be read, by its first bytes (8 are enough, 24 tell most): a clause for the
    error; None where nothing is known.
    """
    if not head:
        return "it is empty"
    for magic, what in _KINDS:
        if head.startswith(magic):
            return what
    if head[4:8] == b"TFL3":
        return "it is a TensorFlow Lite model: convert it to ONNX"
    if head[:1] == b"\x08" and head[1:2] <= b"\x1f" and head[2:3] in (b"\x12", b"\x1a", b"\x22", b"\x3a", b"\x42"):
        return "it looks like an ONNX model: call it .onnx"
    return "it is text" if head.isascii() and all(c >= 32 or c in b"\t\n\r" for c in head) else None


def refuse_pointer(head: bytes, path: str) -> None:
    """Refuse what Git LFS leaves in place of a file, whatever the file should have been."""
    if head.startswith(_POINTER):
        raise LightNetError(f"cannot be read: {file_kind(head)}", SourceLoc(path))


def check_text(text: str, path: str) -> None:
    """Refuse NUL and lone surrogates: for text that a caller hands over and for what `decode` made."""
    at = text.find("\0")
    if at >= 0:
        raise LightNetError("the text holds a NUL byte", Lines(text).loc(path, at))
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as e:
            raise LightNetError("the text holds a lone surrogate", Lines(text).loc(path, e.start)) from None


def _byte_loc(data: bytes, offset: int, path: str) -> SourceLoc:
    start = data.rfind(b"\n", 0, offset) + 1
    return SourceLoc(path, data.count(b"\n", 0, offset) + 1, len(data[start:offset].decode("utf-8", "replace")) + 1)


class Lines:
    """Offsets in a text as lines and columns; the table of line starts is made on first use."""

    def __init__(self, text: str):
        self.text = text
        self._starts: list[int] | None = None

    def line_col(self, offset: int) -> tuple[int, int]:
        """Line and column, from 1, of an offset."""
        if self._starts is None:
            self._starts = [0]
            at = self.text.find("\n")
            while at >= 0:
                self._starts.append(at + 1)
                at = self.text.find("\n", at + 1)
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def loc(self, path: str, offset: int) -> SourceLoc:
        return SourceLoc(path, *self.line_col(offset))

    def line_at(self, offset: int) -> str | None:
        """The line that holds `offset`, without its end; None if it is too long to be worth showing."""
        start = self.text.rfind("\n", 0, offset) + 1
        end = self.text.find("\n", offset)
        end = end if end >= 0 else len(self.text)
        return self.text[start:end] if end - start <= MAX_SHOWN else None


class Texts:
    """The texts that were read, by file name: what an error shows a line of."""

    def __init__(self) -> None:
        self._texts: dict[str, list[tuple[int, str]]] = {}

    def add(self, file: str, text: str, first_line: int = 1) -> None:
        """Remember the text of `file`; its first line is line number `first_line` of the file."""
        self._texts[file] = [(first_line, text)]

    def update(self, other: Texts) -> None:
        """Take over what `other` has."""
        self._texts.update(other._texts)

    def extend(self, file: str, text: str, first_line: int) -> None:
        """Remember a further piece of `file`, as `#line` numbers its lines."""
        self._texts.setdefault(file, []).append((first_line, text))

    def line(self, loc: SourceLoc | None) -> str | None:
        """The source line at `loc`, or None when the file was not read."""
        if loc is None or not loc.line:
            return None
        pieces = self._texts.get(loc.file, ())
        return next((found for first, text in pieces if (found := _nth_line(text, loc.line - first)) is not None), None)


def _nth_line(text: str, number: int) -> str | None:
    """The line `number`, from 0, of a text; None where it has none of that number."""
    start = 0
    for _ in range(number):
        start = text.find("\n", start) + 1
        if start == 0:
            return None
    end = text.find("\n", start)
    return text[start : end if end >= 0 else len(text)] if number >= 0 else None
