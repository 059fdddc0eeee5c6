"""The values of ``--shape``, ``--value`` and ``-i``: dims and arrays for named inputs, from the command line and from
files.

    data=@picture.npy    data=@arrays.npz:key    steps=1.5,2,3    data=random    data=zeros    data=1x3x224x224 (dims)

Text is fed as it stands (word=hello, for all of the input), as a JSON list of strings, or @FILE.json, @FILE.npy of
strings; a map as a JSON object, or @FILE.json.

Arrays come from `.npy` and `.npz` files, read by `runtime.containers`: mapped, checked against the file's size, and
nothing in them is unpickled. Imports the runtime.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lightnet.cli.warning import show_warning
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.runtime.arrays import checked_array
from lightnet.runtime.containers import Entry, npy_entry, npz_entries
from lightnet.runtime.dims import Dim, at
from lightnet.runtime.dtypes import DType
from lightnet.runtime.files import map_file
from lightnet.runtime.host.program import text_array
from lightnet.runtime.host.steps import TEXT, pair_of
from lightnet.runtime.initial import sample
from lightnet.runtime.open_instance import call_values
from lightnet.source import read_text

#: Largest JSON file of text.
MAX_TEXT = 1 << 28
_DIM = re.compile(r"[0-9]{1,18}|[0-9* ]{0,18}[A-Za-z_][A-Za-z0-9_.+* -]{0,200}")
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_WORDS = {"true": True, "false": False}
#: Words for contents that are made, not given.
MADE = ("random", "zeros")

Dims = tuple[int, ...]


def assignments(words: Iterable[str], option: str) -> dict[str, str]:
    """``name=text`` words as a dict. Raises `LightNetError` for a word without a name, and for a name that stands
    twice."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not name or not equals:
            raise LightNetError(f"{option} takes name=..., and gets '{word:.80}'")
        if name in found:
            raise LightNetError(f"{option} names '{name}' twice")
        found[name] = text
    return found


def shapes_of(words: Iterable[str]) -> dict[str, tuple[int | str, ...]]:
    """The dims that ``--shape name=1x3x224x224`` words give (``name=`` is a scalar); with names of dims,
    ``ids=batchxlength`` or ``ids=batch,max_length``."""
    found = {}
    for name, text in assignments(words, "--shape").items():
        parts = re.split("," if "," in text else "x", text) if text else []
        if not all(map(_DIM.fullmatch, parts)):
            raise LightNetError(f"--shape takes name=1x3x224x224, and gets '{name}={text:.80}'")
        found[name] = tuple(int(d) if d.isdigit() else d for d in parts)
    return found


def dims_of(words: Iterable[str], shapes: Mapping[str, Sequence[int | str]]) -> dict[str, str] | None:
    """The ranges that ``--dim name=1..512:8`` words give; None where no dim is named, in `shapes` neither."""
    named = any(isinstance(d, str) for dims in shapes.values() for d in dims)
    return assignments(words, "--dim") if words or named else None


def fed_values(words: Iterable[str]) -> dict[str, np.ndarray]:
    """The arrays that ``--value name=...`` words give: a file's, or numbers (``3`` is a scalar, ``3,`` a vector)."""
    found = {}
    for name, text in assignments(words, "--value").items():
        found[name] = from_file(name, text[1:]) if text.startswith("@") else parsed_numbers(name, text)
    return found


def fed(name: str, text: str, dtype: DType, dims: tuple[int | str | None, ...] | None, seed: int) -> np.ndarray:
    """The array that ``-i name=text`` feeds an input of that type; `dims` has None or a name for those that are open,
    and is None where the rank is.

    Numbers fill an input in row-major order; a single number fills all of it. Random contents belong to the name and
    the seed. Raises `LightNetError` where the array does not fit.
    """
    if text in MADE:
        closed = _closed(name, dims, text)
        return sample(name, "data", closed, dtype, seed) if text == "random" else np.zeros(closed, dtype.np)
    array = from_file(name, text[1:]) if text.startswith("@") else _filled(name, parsed_numbers(name, text), dims)
    if dims is None or len(dims) == array.ndim:
        target = tuple(d if isinstance(d, int) else n for d, n in zip(dims or array.shape, array.shape))
        return checked_array(name, array, target, dtype)
    raise LightNetError(f"'{name}' has shape {_text(dims)}, but gets {list(array.shape)}", label="feed.shape")


def called_dims(
    name: str, dims: tuple[Any, ...] | None, types: Mapping[str, tuple[Any, Any]], feeds: Mapping[str, Any]
) -> tuple[Any, ...] | None:
    """The dims of contents that are made: where calls decide them, as what is fed says, or else typical ones, which is
    noted on stderr."""
    open_dims = [d for d in dims or () if isinstance(d, Dim)]
    if dims is None or not open_dims:
        return dims
    shapes = {n: a.shape for n, a in feeds.items() if isinstance(a, np.ndarray) and types[n][0] is not None}
    values = call_values({n: types[n][0] for n in shapes}, shapes, ())
    if unsaid := {s for d in open_dims for s in d.symbols if s.name not in values}:
        typical = {s.name: s.typical for s in sorted(unsaid, key=lambda s: s.name)}
        said = " and ".join(f"{n} = {value}" for n, value in typical.items())
        show_warning(f"'{name}' is made for {said}: --dim {next(iter(typical))}=N is for another one", kind="note")
        values |= typical
    return tuple(at(d, values) for d in dims)


def fed_text(name: str, text: str, dims: tuple[int | str | None, ...] | None) -> np.ndarray:
    """The array that ``-i name=text`` feeds an input that is text: strings of a JSON list or file, or one string, which
    fills all of the input.

    ``zeros`` are empty strings. Raises `LightNetError` where it is no text; whether it fits, a call says.
    """
    if text in MADE:
        if text == "random":
            raise LightNetError(
                f"'{name}' is text, of which there is none at random: feed it, as in -i {name}=@file.json",
                label="feed.value",
            )
        return np.full(_closed(name, dims, text), "", object)
    if text.startswith("@") and not text.lower().endswith(".json"):
        return text_array(name, from_file(name, text[1:]))
    if text.startswith("@") or text.startswith("["):
        return text_array(name, _json(name, text))
    whole = dims is not None and all(isinstance(d, int) for d in dims)
    shape = _closed(name, dims, "") if whole else (1,) * len(dims or ())
    return np.full(shape, text, object)


def fed_map(name: str, text: str, kind: str) -> dict[Any, Any]:
    """The map that ``-i name=text`` feeds an input of a type of maps, `kind`: a JSON object, whose names are the keys,
    or a file of one. ``zeros`` is a map without pairs. Raises `LightNetError` where it is none; whether it fits, a call
    says."""
    if text == "zeros":
        return {}
    if text == "random" or not text.startswith(("@", "{")):
        raise LightNetError(
            f"'{name}' is a map ({kind}): feed it a JSON object, as in -i {name}=@file.json", label="feed.value"
        )
    found = _json(name, text)
    if not isinstance(found, dict):
        raise LightNetError(f"'{name}' takes a JSON object, {kind}, but gets {found!r:.60}", label="feed.value")
    pair = pair_of(kind)
    if pair is None or pair.keys == TEXT:
        return found
    if wrong := [key for key in found if not _INTEGER.fullmatch(key)]:
        raise LightNetError(f"'{name}' takes keys that are integers, but gets '{wrong[0]:.60}'", label="feed.value")
    return {int(key): value for key, value in found.items()}


def _json(name: str, text: str) -> Any:
    """The value of JSON, or of a file of it after an ``@``. Raises LightNetError where it is malformed."""
    where = text[1:] if text.startswith("@") else ""
    try:
        return json.loads(read_text(where, MAX_TEXT) if where else text)
    except (ValueError, RecursionError) as error:
        raise LightNetError(
            f"'{name}' gets JSON that is malformed: {error!s:.100}", SourceLoc(where) if where else None
        ) from None


def _closed(name: str, dims: tuple[int | str | None, ...] | None, word: str) -> Dims:
    if dims is None or not all(isinstance(d, int) for d in dims):
        known = "an open shape" if dims is None else f"shape {_text(dims)}"
        raise LightNetError(f"'{name}' has {known}: {word} contents need --shape {name}=...", label="feed.shape")
    return tuple(d for d in dims if isinstance(d, int))


def _filled(name: str, values: np.ndarray, dims: tuple[int | str | None, ...] | None) -> np.ndarray:
    if dims is None:
        return values
    if all(isinstance(d, int) for d in dims):
        closed = _closed(name, dims, "")
        count = int(np.prod(closed, dtype=np.int64))
        if values.ndim and values.size != count:
            raise LightNetError(
                f"'{name}' has {count} elements {list(closed)}, but gets {values.size}", label="feed.shape"
            )
        return values.reshape(closed) if values.size == count else np.full(closed, values)
    if len(dims) == 1:
        return values.reshape(-1)
    raise LightNetError(f"'{name}' has shape {_text(dims)}: numbers need --shape {name}=...", label="feed.shape")


def _text(dims: tuple[int | str | None, ...]) -> str:
    return f"[{', '.join('?' if d is None else str(d) for d in dims)}]"


def parsed_numbers(name: str, text: str) -> np.ndarray:
    """``1.5,2,3`` as float64, ``1,2`` as int64 (uint64 where needed), ``true,false`` as bool; one without a comma is a
    scalar."""
    parts = [part.strip() for part in text.split(",")]
    vector = len(parts) > 1
    if vector and not parts[-1]:
        parts.pop()
    try:
        if all(part in _WORDS for part in parts):
            array = np.array([_WORDS[part] for part in parts])
        elif all(_INTEGER.fullmatch(part) for part in parts):
            array = np.array([int(part) for part in parts])
        else:
            array = np.array([float(part) for part in parts])
    except ValueError:
        raise LightNetError(
            f"'{name}' gets '{text:.80}', which is neither numbers (1.5,2), nor @FILE.npy, nor {' nor '.join(MADE)}"
        ) from None
    if array.dtype.hasobject or (array.dtype == np.float64 and all(_INTEGER.fullmatch(part) for part in parts)):
        raise LightNetError(f"'{name}' gets an integer of over 64 bits")
    return array if vector else array.reshape(())


def from_file(name: str, text: str) -> np.ndarray:
    """The array in ``FILE.npy``, ``FILE.npz:key`` or ``FILE.npz`` (there the one called `name`, or the only one)."""
    path, colon, key = text.rpartition(":") if re.search(r"\.npz:[^/]*$", text, re.IGNORECASE) else (text, "", "")
    entries = array_entries(path)
    if not colon:
        key = name if name in entries else next(iter(entries)) if len(entries) == 1 else name
    if key not in entries:
        there = ", ".join(list(entries)[:8]) + (", ..." if len(entries) > 8 else "")
        raise LightNetError(f"no array is called '{key}'; there are: {there or 'none'}", SourceLoc(path))
    return loaded_entry(path, key, entries[key])


def array_entries(path: str) -> Mapping[str, Entry]:
    """The arrays of an ``.npz`` by name, or the one of an ``.npy`` (called "")."""
    data = map_file(path)
    if path.lower().endswith(".npz"):
        return npz_entries(data, path)
    if path.lower().endswith(".npy"):
        return {"": npy_entry(path, path, len(data), lambda start, stop: data[start:stop])}
    raise LightNetError("arrays are read from .npy and .npz files", SourceLoc(path))


def loaded_entry(path: str, key: str, entry: Entry) -> np.ndarray:
    """The contents of an entry. Raises `LightNetError` for a type that is none of ours (Python objects above all)."""
    if entry.dtype is None:
        what = f"array '{key}'" if key else "the array"
        raise LightNetError(f"{what} has {entry.problem}, which cannot be read", SourceLoc(path))
    return entry.load()
