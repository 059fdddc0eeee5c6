"""The text of tensors, as LightNet's `print` and `fprint` write it, and where `fprint` may write.

Imports NumPy, the standard library and diagnostics.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import numpy as np

from lightnet.diagnostics import LightNetError
from lightnet.runtime import dtypes
from lightnet.runtime.dtypes import DType
from lightnet.runtime.files import resolved

#: Elements formatted by one `%` operation: the memory of one piece of text.
_BLOCK = 1 << 15


def format_pieces(array: np.ndarray, dtype: DType | None = None) -> Iterator[str]:
    """The text of `format_tensor` in pieces of bounded size (some 32,000 elements)."""
    array = np.ascontiguousarray(array).reshape(np.shape(array))  # ascontiguousarray makes one dim of none
    dtype = dtype or dtypes.BY_NP[array.dtype]
    if array.ndim == 0:
        yield dtype.print_format % array.item() + "\n"
        return
    ndim, flat = array.ndim, array.reshape(-1)

    # `template` is the text of a subarray of the last `k` dims; they grow as long as a block can hold them.
    template, size, k = dtype.print_format, 1, 0
    while k < ndim and size * array.shape[ndim - 1 - k] <= _BLOCK:
        n: int = array.shape[ndim - 1 - k]
        template, size, k = "[" + _separator(ndim, k).join([template] * n) + "]", size * n, k + 1
    if k == ndim:
        yield template % tuple(flat.tolist()) + "\n"
        return

    # Each row of axis `outer - 1` is larger than a block: walk over the rows, each in groups of subarrays.
    outer = ndim - k
    n, group, separator = array.shape[outer - 1], max(1, _BLOCK // size), _separator(ndim, k)
    for row in range(math.prod(array.shape[: outer - 1])):
        opened = _wrapped_dims(row, array.shape[: outer - 1]) + 1
        yield "]" * opened + "\n" + " " * (outer - opened) + "[" * opened if row else "[" * outer
        for start in range(0, n, group):
            count = min(group, n - start)
            at = (row * n + start) * size
            text = separator.join([template] * count) % tuple(flat[at : at + count * size].tolist())
            yield separator + text if start else text
    yield "]" * outer + "\n"


def _separator(ndim: int, k: int) -> str:
    """The text between two subarrays of the last `k` of `ndim` dims: a space for each level still open."""
    return "\n" + " " * (ndim - k) if k else " "


def _wrapped_dims(index: int, dims: tuple[int, ...]) -> int:
    """The number of trailing dims that are at coordinate 0 at the row-major `index` (> 0)."""
    wrapped = 0
    for n in reversed(dims):
        if index % n:
            return wrapped
        index, wrapped = index // n, wrapped + 1
    return wrapped


def format_tensor(array: np.ndarray, dtype: DType | None = None) -> str:
    """The text of a tensor of any shape: nested brackets, each innermost row on a line of its own, a final
    newline.

        [[2.000 3.000 4.000]
         [6.000 7.000 8.000]]

    Floats have three decimals (``-0.000``, ``nan`` whatever its sign, ``inf``, ``-inf``), bools are 0 and 1.
    `dtype` is the array's own unless given; KeyError for an array type that LightNet lacks.
    """
    return "".join(format_pieces(array, dtype))


def print_tensor(stream: TextIO, msg: str, array: np.ndarray) -> None:
    """Write what the `print` op does: `msg` and a newline (even if `msg` is empty), then the tensor."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(msg.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    for piece in format_pieces(array):
        stream.write(piece)


def fprint_path(file: str, base: str | os.PathLike[str]) -> Path:
    """The absolute path that `fprint` may write for `file`: it must lie below the folder `base`, links
    followed.

    Raises LightNetError for an absolute path, for one with ``..``, for one that a symbolic link leads out of
    `base`, and for what exists and is not a regular file.
    """

    def refuse(why: str) -> LightNetError:
        return LightNetError(f"fprint may not write {file[:200]!a}: {why}", label="fprint.file")

    if not file or "\0" in file:
        raise refuse("not a file name")
    relative = Path(file)
    if relative.is_absolute() or relative.drive or ".." in relative.parts:
        raise refuse("only relative paths below the working folder, without '..', are allowed")
    try:
        root = Path(base).resolve()
        target = resolved(root / relative)
        special = target.exists() and not target.is_file()
    except (OSError, ValueError):
        raise refuse("the path cannot be resolved") from None
    if root not in target.parents:
        raise refuse("it leads out of the working folder")
    if special:
        raise refuse("it is not a regular file")
    return target


def open_fprint(file: str, base: str | os.PathLike[str] = ".") -> TextIO:
    """Open the file of an `fprint` op for writing (truncated). Refusals as in `fprint_path`.

    Raises OSError where the system cannot open an allowed path (its folder does not exist): `fprint` then warns and
    writes nothing.
    """
    target = fprint_path(file, base)
    # No following of a link that was put there since the check, no waiting for a pipe's reader.
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    return open(os.open(target, flags, 0o666), "w", encoding="utf-8", newline="\n")
