"""`genwts`: make a ``.wts`` weight file from text files of numbers, or from ``.npy`` and ``.npz`` arrays.

The tensor of a text or ``.npy`` file is named after the leading word of the file's name (``conv1.weight.txt`` gives
``conv1``), those of an ``.npz`` file have the names in it. Imports the runtime, no xDSL.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lightnet.cli.common import ToolParser, run_tool
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.runtime.containers import npy_entry
from lightnet.runtime.dtypes import BY_NAME, BY_NP, convert
from lightnet.runtime.files import map_file
from lightnet.runtime.weights import open_weights, save_wts

_WORD = re.compile(r"[^\s,;!|\[\](){}<>]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
FLOAT, HALF, INT8 = 0, 1, 2


def _numbers(text: str) -> np.ndarray:
    """The decimal numbers among the words of `text`, as float64; other words are passed over.

    Words are separated by white space and by any of ``,;!|[](){}<>``.
    """
    words = (match.group() for match in _WORD.finditer(text))
    return np.fromiter((float(word) for word in words if _NUMBER.fullmatch(word)), np.float64)


def to_type(values: np.ndarray, kind: int) -> np.ndarray:
    """The elements as float32 (rounded to nearest, infinite when too large) or int8 (truncated, then modulo 256)."""
    with np.errstate(over="ignore", under="ignore"):
        if kind == FLOAT:
            return values.astype(np.float32)
        return convert(values, BY_NAME["i64"]).astype(np.uint8).view(np.int8)


def arrays(path: str) -> Iterator[tuple[str, np.ndarray]]:
    """The named arrays of an input file. Raises LightNetError when it cannot be read or is not what it should be."""
    suffix = Path(path).suffix.lower()
    if suffix == ".npz":
        yield from open_weights(path).items()
        return
    match = re.match(r"\w+", Path(path).name)
    if not match:
        raise LightNetError("the file's name does not start with a word, so its tensor has no name", SourceLoc(path))
    data = map_file(path)
    if suffix == ".npy":
        entry = npy_entry(path, match.group(), len(data), lambda start, stop: data[start:stop])
        if entry.dtype is None or entry.dtype.newbyteorder("=") not in BY_NP:
            raise LightNetError(f"unsupported type: {entry.problem or entry.dtype}", SourceLoc(path))
        yield match.group(), entry.load()
    else:
        yield match.group(), _numbers(_text(data, path))


def _text(data: memoryview, path: str) -> str:
    """The file as UTF-8 text. What is no text is told by a NUL byte, or by a third of odd bytes, near its start."""
    head = bytes(data[:512])
    odd = sum(
        (char < " " and char not in "\b\t\n\v\f\r\x1b") or char == "\ufffd" for char in head.decode(errors="replace")
    )
    if b"\0" in head or odd * 3 > len(head):
        raise LightNetError("not a text file", SourceLoc(path))
    return bytes(data).decode("utf-8", "replace")


def genwts(argv: list[str]) -> int:
    """The tool; a file that cannot be read is skipped with a warning, and the count in the result is without it."""
    parser = ToolParser(prog="genwts", description="Make a .wts weight file from numbers in text, .npy or .npz files.")
    parser.add_argument(
        "-t", "--type", required=True, type=int, metavar="TYPE", help="0 float, 1 half (not supported), 2 int8"
    )
    parser.add_argument("-o", "--outfile", required=True, metavar="OUT", help="the file to write (- for stdout)")
    parser.add_argument("infiles", nargs="+", metavar="INFILE")
    args = parser.parse_args(argv)
    if args.type == HALF:
        raise LightNetError("type 1 (half) is not supported yet")
    if args.type not in (FLOAT, INT8):
        raise LightNetError(f"unknown type {args.type} (0 is float, 2 is int8)")
    tensors: dict[str, np.ndarray] = {}
    for path in args.infiles:
        try:
            found = list(arrays(path))
        except LightNetError as error:
            where = f"{error.loc}: " if error.loc else ""
            print(f"warning: {where}{error.message}; file skipped", file=sys.stderr)
            continue
        for name, values in found:
            if name in tensors:
                raise LightNetError(f"tensor '{name}' would be in the file twice", SourceLoc(path))
            tensors[name] = to_type(values, args.type)
    if not tensors:
        raise LightNetError("no input file could be used")
    save_wts(args.outfile, tensors)
    return 0


def main(argv: list[str] | None = None) -> int:
    return run_tool(genwts, argv)


if __name__ == "__main__":
    sys.exit(main())
