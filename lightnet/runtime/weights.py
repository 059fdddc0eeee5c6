"""Weight stores: named arrays in a file, for the tensors of a network that say ``from_file`` and for params.

A store is a read-only mapping from names to arrays. Opening it reads the table of contents only (``.wts``, being text,
is decoded); an array is a view of the mapped file where its bytes allow it. No file can make it run code. Imports
NumPy, the standard library and diagnostics.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from lightnet.diagnostics import LightNetError, SourceLoc, alike
from lightnet.runtime import dtypes
from lightnet.runtime.containers import MAX_NAME, Entry, malformed, npz_entries, safetensors_entries
from lightnet.runtime.dtypes import DType
from lightnet.runtime.files import map_file, write_atomic
from lightnet.runtime.mxnet import is_params, params_entries
from lightnet.runtime.wts import read_wts, write_wts

#: Names looked at for "did you mean": the comparison is quadratic.
_NEAR_LIMIT, _NEAR_LENGTH = 2000, 128
_UNSUPPORTED = "weight '{}' has an unsupported type: {}"


class WeightStore(Mapping[str, np.ndarray]):
    """Named, read-only arrays. `path` is the file they come from ("" for a mapping), `warnings` what was odd in it.

    An array of a type that LightNet lacks (float128, complex, ...) has a name and dims, and is an error only
    when it is asked for. ``.wts`` keeps no shapes: its arrays have one dimension.
    """

    def __init__(self, entries: Mapping[str, Entry], path: str = "", warnings: Sequence[str] = ()):
        self.path = path
        self.warnings = list(warnings)
        self._entries = dict(entries)
        self._expected: set[str] = set()  # names that nobody need use

    @property
    def loc(self) -> SourceLoc | None:
        return SourceLoc(self.path) if self.path else None

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def dims(self, name: str) -> tuple[int, ...]:
        """The shape of an array, without loading it. Raises KeyError for an unknown name."""
        return self._entries[name].dims

    def dtype(self, name: str) -> DType | None:
        """The element type, without loading; None for one that LightNet lacks. KeyError for an unknown name."""
        dtype = self._entries[name].dtype
        return dtypes.BY_NP.get(dtype.newbyteorder("=")) if dtype is not None else None

    def __getitem__(self, name: str) -> np.ndarray:
        """The array. Raises KeyError for an unknown name, LightNetError for an unusable type or damaged data."""
        entry = self._entries[name]
        if self.dtype(name) is None:
            what = entry.problem or str(entry.dtype)
            raise LightNetError(_UNSUPPORTED.format(name, what), self.loc, label="weights.dtype")
        try:
            return entry.load()
        except (MemoryError, ValueError) as error:  # ValueError: more elements than NumPy can count
            raise LightNetError(f"weight '{name}' does not fit in memory: {error}", self.loc) from None

    def under(self, other: WeightStore) -> WeightStore:
        """A store with the arrays of both; those of `other` go first."""
        store = WeightStore(
            {**self._entries, **other._entries}, other.path or self.path, [*self.warnings, *other.warnings]
        )
        store._expected = {*self._entries, *self._expected, *other._expected}
        return store

    def renamed(self, names: Mapping[str, str]) -> WeightStore:
        """A store with some of the arrays: `names` has the name here by the name there."""
        return WeightStore({new: self._entries[old] for new, old in names.items()}, self.path)

    def is_expected(self, name: str) -> bool:
        """Return whether a name came with the network, so that nobody need use it."""
        return name in self._expected

    def unused_names(self, used: Iterable[str]) -> list[str]:
        """The names that are not in `used`, in the file's order."""
        seen = {*used, *self._expected}
        return [name for name in self._entries if name not in seen]

    def unused_warnings(self, used: Iterable[str]) -> list[str]:
        """A warning for each name that is not in `used`."""
        return [f"ignore unused weight {name}" for name in self.unused_names(used)]


def open_weights(source: str | os.PathLike[str] | Mapping[str, np.ndarray]) -> WeightStore:
    """A store from a ``.wts``, ``.npz``, ``.safetensors`` or ``.params`` file, or from a mapping of arrays. MXNet's
    ``.params`` are known by their first bytes too, whatever the file's suffix.

    Raises LightNetError for a file that cannot be opened or is malformed, with the place where a format has
    one.
    """
    if isinstance(source, WeightStore):
        return source
    if isinstance(source, Mapping):
        return WeightStore({name: _array_entry(name, array) for name, array in source.items()})
    path = os.fspath(source)
    suffix = Path(path).suffix.lower()
    known = suffix in (".wts", ".npz", ".safetensors", ".params")
    data = map_file(path)
    warnings: list[str] = []
    if suffix == ".params" or (not known and is_params(data)):
        entries, warnings = params_entries(data, path)
    elif not known:
        raise LightNetError("unknown kind of weight file (known: .wts, .npz, .safetensors, .params)", SourceLoc(path))
    elif suffix == ".wts":
        arrays, warnings = read_wts(data, path)
        entries = {name: _array_entry(name, array) for name, array in arrays.items()}
    else:
        entries = (npz_entries if suffix == ".npz" else safetensors_entries)(data, path)
    for name in entries:
        if len(name) > MAX_NAME or not name.isprintable():
            raise malformed(path, f"the name {name[:40]!a} is too long or not printable", "name")
    return WeightStore(entries, path, warnings)


def fetch(store: WeightStore, name: str, dims: Sequence[int], dtype: DType, loc: SourceLoc | None = None) -> np.ndarray:
    """The array for a tensor `name` of shape `dims` and type `dtype`, checked before it is loaded; read-only.

    A 1-D array takes any shape of its length; dims of 1 may be there or not. Raises LightNetError (at `loc`,
    the place in the network, if given) when the name is missing, and when length, shape or type differ.
    """

    def fail(message: str, label: str) -> LightNetError:
        where = f" in {store.path}" if store.path else ""
        return LightNetError(f"weight '{name}'{where} {message}", loc or store.loc, label=f"weights.{label}")

    if name not in store:
        raise fail(f"is missing{_near(store, name)}", "missing")
    have, want = store.dims(name), tuple(dims)
    found = store.dtype(name)
    if found is not None and found != dtype and not (dtype.is_stored and found.name == "ui8"):
        raise fail(f"has type {found}, and the tensor has {dtype}", "dtype")
    if math.prod(have) != math.prod(want):
        raise fail(f"has {math.prod(have)} elements {list(have)}, and the tensor has {list(want)}", "length")
    if len(have) > 1 and [n for n in have if n != 1] != [n for n in want if n != 1]:
        raise fail(f"has shape {list(have)}, and the tensor has {list(want)}", "shape")
    return store[name].reshape(want).view(dtype.np) if dtype.is_stored else store[name].reshape(want)


def save_wts(path: str | os.PathLike[str], tensors: Mapping[str, np.ndarray]) -> None:
    """Write float32 and int8 arrays as ``.wts`` text; shapes are lost. Raises LightNetError for other types."""
    write_atomic(path, lambda out: write_wts(out, tensors))


def save_npz(path: str | os.PathLike[str], tensors: Mapping[str, np.ndarray]) -> None:
    """Write arrays (of numbers, or of strings as long as the longest) as an ``.npz`` archive: stored, each array at a
    multiple of 64 bytes so that it can be mapped.
    """
    for name, array in tensors.items():
        if array.dtype not in dtypes.BY_NP and array.dtype.kind != "U":
            raise LightNetError(_UNSUPPORTED.format(name, array.dtype), label="weights.dtype")

    def write(out: BinaryIO) -> None:
        from zipfile import ZIP_STORED, ZipFile, ZipInfo

        with ZipFile(out, "w", ZIP_STORED) as archive:
            for name, array in tensors.items():
                info = ZipInfo(f"{name}.npy")
                # An extra field (id, size, zeros) moves the content; zipfile adds a zip64 field of 20 bytes.
                head = out.tell() + 30 + len(info.filename.encode()) + 20 + 4
                info.extra = b"\x35\xd9" + (pad := -head % 64).to_bytes(2, "little") + bytes(pad)
                with archive.open(info, "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asarray(array, order="C"), allow_pickle=False)

    write_atomic(path, write)


def _array_entry(name: str, array: np.ndarray) -> Entry:
    if not isinstance(name, str):
        raise LightNetError(f"a weight's name must be a string, not {name!r:.80}")
    array = np.asarray(array)
    if array.dtype.hasobject:
        return Entry(array.shape, None, bytes, problem="Python objects")
    contiguous = np.ascontiguousarray(array).reshape(array.shape)
    return Entry(array.shape, array.dtype, lambda: contiguous.reshape(-1).view(np.uint8).data)


def _near(store: WeightStore, name: str) -> str:
    """A phrase with the names most like `name`, or with how many names there are."""
    names = [known for _, known in zip(range(_NEAR_LIMIT), store) if len(known) <= _NEAR_LENGTH]
    near = alike(name[:_NEAR_LENGTH], names)
    if near:
        return " (did you mean " + ", ".join(f"'{known}'" for known in near) + "?)"
    shown = ", ".join(f"'{known}'" for known in names[:5])
    more = ", ..." if len(store) > 5 else ""
    return f" (the store has {len(store)} names{': ' + shown if shown else ''}{more})"
