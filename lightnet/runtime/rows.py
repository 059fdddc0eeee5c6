"""Any number of rows through an executable whose batch is fixed. Imports NumPy and the diagnostics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lightnet.diagnostics import LightNetError


def batch_of(run: Any) -> int:
    """The first dim that all inputs and outputs of an executable have. Raises `LightNetError` where they have none in
    common."""
    tensors = {**run.inputs, **run.outputs}
    first = {name: dims[0] if dims else 0 for name, (dims, _) in tensors.items()}
    sizes = set(first.values())
    if len(sizes) != 1 or not run.inputs or not (size := sizes.pop()):
        found = ", ".join(f"'{name}' {list(dims)}" for name, (dims, _) in list(tensors.items())[:8])
        raise LightNetError(f"inputs and outputs have no batch in common, by which to take rows apart: {found}")
    return size


def score(run: Any, feeds: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The outputs of any number of rows: `run` is called on as many as its batch has at a time, the last time with
    zeros behind them.

    `feeds` maps inputs to arrays of as many rows each, ``[n, ...]``; outputs are ``[n, ...]``. For networks that
    compute each row by itself. Raises `LightNetError` as a call does, and where an array has another number of rows or
    the executable no batch (`batch_of`).
    """
    size = batch_of(run)
    arrays = {name: np.asarray(value) for name, value in feeds.items()}
    counts = {name: len(array) if array.ndim else -1 for name, array in arrays.items()}
    if len(set(counts.values())) != 1 or -1 in counts.values():
        found = ", ".join(f"'{name}' {list(array.shape)}" for name, array in arrays.items())
        raise LightNetError(f"inputs should have one number of rows, and get {found or 'none'}")
    rows = next(iter(counts.values()))
    parts: dict[str, list[np.ndarray]] = {
        name: [np.empty((0, *dims[1:]), dtype)] for name, (dims, dtype) in run.outputs.items()
    }
    for start in range(0, rows, size):
        stop = min(start + size, rows)
        for name, found in run({name: _filled(array[start:stop], size) for name, array in arrays.items()}).items():
            parts[name].append(found[: stop - start])
    return {name: np.concatenate(found) for name, found in parts.items()}


def _filled(array: np.ndarray, size: int) -> np.ndarray:
    """An array with rows of zeros behind it, where it has fewer than `size`."""
    if len(array) == size:
        return array
    whole = np.zeros((size, *array.shape[1:]), array.dtype)
    whole[: len(array)] = array
    return whole
