"""Calibration: a network runs on data, compiled by LightNet, and what its tensors hold is counted. Imports the package;
onnx inside of functions."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lightnet.compiler import compile
from lightnet.diagnostics import LightNetError, SourceLoc, near
from lightnet.model import loads
from lightnet.runtime.containers import npz_entries
from lightnet.runtime.files import map_file
from lightnet_quantize.histograms import Histogram
from lightnet_quantize.source import SourceModel

if TYPE_CHECKING:
    pass

#: The most samples of a call, where a network's batch is open.
MOST_ROWS = 32
#: So many shapes are compiled for themselves; a network that is called with more is compiled with open dims.
MOST_SHAPES = 4

Feeds = Mapping[str, np.ndarray]
#: Calibration data: a file (.npz), arrays by the names of inputs, or what feeds each call.
Data = str | os.PathLike[str] | Mapping[str, Any] | Iterable[Mapping[str, Any]]


class Runner:
    """A network, given as ONNX, that gives `names` (tensors of its top graph) when it is called, and all in float32 as
    LightNet computes it. It is compiled for the shapes that it is called with."""

    def __init__(self, source: SourceModel, names: Sequence[str]):
        import onnx

        self.source = source
        self.names = list(names)
        fed = {i.name for i in source.proto.graph.input}
        proto = onnx.ModelProto()
        proto.CopyFrom(source.proto)
        proto.graph.ClearField("output")
        proto.graph.output.extend(onnx.ValueInfoProto(name=n) for n in dict.fromkeys(names) if n not in fed)
        self.data = proto.SerializeToString() if proto.graph.output else b""
        self.compiled: dict[tuple[Any, ...], Any] = {}

    def __call__(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """The tensors, of one call. Raises LightNetError as compiling and running do."""
        found: dict[str, np.ndarray] = {}
        if self.data:
            try:
                found = self._executable(feeds)(feeds)
            except LightNetError as error:
                raise error.at(SourceLoc(self.source.path)) from None
        return {n: found[n] if n in found else np.asarray(feeds[n]) for n in self.names}

    def _executable(self, feeds: Feeds) -> Any:
        shapes = {name: np.shape(array) for name, array in feeds.items()}
        key = tuple(sorted(shapes.items()))
        if key not in self.compiled and len(self.compiled) < MOST_SHAPES:
            self.compiled[key] = compile(loads(self.data, ".onnx", self.source.path, shapes=shapes))
        if key not in self.compiled:
            if () not in self.compiled:
                self.compiled[()] = compile(self.data)
            return self.compiled[()]
        return self.compiled[key]


def batches(data: Data, source: SourceModel, most: int | None = None) -> Iterator[dict[str, np.ndarray]]:
    """The feeds of each call, checked: of a file or of arrays by name, whose first axis counts samples, pieces of them;
    of anything else, each item. At most `most` calls of samples.

    An array has the shape of its input behind one more axis, of samples; or that shape, with any number along the first
    axis, of which a call takes as many as the network says, or `MOST_ROWS` where that is open. An array of just the
    input's shape, beside others with more samples, is fed to every call. Raises LightNetError, about the file where
    there is one: missing and unknown inputs, a type or shape that does not fit, NaN and infinities.
    """
    where = SourceLoc(os.fspath(data)) if isinstance(data, str | os.PathLike) else None
    inputs = input_types(source)
    if isinstance(data, str | os.PathLike):
        data = _from_file(os.fspath(data))
    if isinstance(data, Mapping):
        arrays = _checked_names(data, inputs, where)
        yield from _pieces(arrays, inputs, most, where)
        return
    count = 0
    for feeds in data:
        if most is not None and count >= most:
            return
        found = _checked_names(feeds, inputs, where)
        for name, array in found.items():
            dims = inputs[name][0]
            if dims is not None and not _fits(array.shape, dims):
                raise _misfit(name, array.shape, dims, where)
            _check_finite(name, array, where, count)
        yield found
        count += 1
    if not count:
        raise LightNetError("there is no calibration data: it feeds no call", where)


def input_types(source: SourceModel) -> dict[str, tuple[tuple[int | None, ...] | None, np.dtype]]:
    """Dims (None where open; None for an unknown rank) and dtype of each input that data must feed."""
    from onnx import helper

    constants = {t.name for t in source.proto.graph.initializer}
    found = {}
    for info in source.proto.graph.input:
        if info.name in constants:
            continue
        tensor = info.type.tensor_type
        try:
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        except (KeyError, ValueError, TypeError):
            raise source.error(
                f"input '{info.name}' is no tensor of numbers, which is what quantisation takes"
            ) from None
        dims = [d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else None for d in tensor.shape.dim]
        found[info.name] = (tuple(dims) if tensor.HasField("shape") else None, dtype)
    return found


def _from_file(path: str) -> dict[str, Callable[[], np.ndarray]]:
    """The arrays of a file, each loaded when it is asked for."""
    from lightnet.cli.feeding import loaded_entry

    if not path.lower().endswith(".npz"):
        raise LightNetError("calibration data is read from .npz files, with an array for each input", SourceLoc(path))
    entries = npz_entries(map_file(path), path)
    return {name: partial(loaded_entry, path, name, entry) for name, entry in entries.items()}


def _checked_names(
    data: Mapping[str, Any], inputs: Mapping[str, Any], where: SourceLoc | None
) -> dict[str, np.ndarray]:
    """The arrays for the inputs, in their types."""
    for name in inputs:
        if name not in data:
            there = ", ".join(list(data)[:8]) or "none"
            raise LightNetError(f"there is no array for input '{name}'; there are: {there}", where)
    if extra := [name for name in data if name not in inputs]:
        raise LightNetError(
            f"no input is called '{extra[0]}'; there are: {', '.join(inputs)}{near(extra[0], inputs)}", where
        )
    return {name: _converted(name, data[name], inputs[name][1], where) for name in inputs}


def _converted(name: str, given: Any, dtype: np.dtype, where: SourceLoc | None) -> np.ndarray:
    array = np.asarray(given() if callable(given) else given)
    if array.dtype == dtype:
        return array
    narrows = array.dtype.kind == "f" and dtype.kind == "f"
    if not narrows and not (array.dtype.kind in "iub" and np.can_cast(array.dtype, dtype, "safe")):
        raise LightNetError(f"the array for input '{name}' is of {array.dtype}, and the input of {dtype}", where)
    return array.astype(dtype)


def _check_finite(name: str, array: np.ndarray, where: SourceLoc | None, first: int) -> None:
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return
    wrong = np.argwhere(~np.isfinite(array))[0].tolist()
    value = array[tuple(wrong)]
    raise LightNetError(f"calibration data for input '{name}' holds {value} (in call {first}, at {wrong})", where)


def _fits(shape: Sequence[int], dims: Sequence[int | None]) -> bool:
    return len(shape) == len(dims) and all(d is None or d == n for n, d in zip(shape, dims))


def _misfit(name: str, shape: Sequence[int], dims: Sequence[int | None], where: SourceLoc | None) -> LightNetError:
    wanted = ", ".join("?" if d is None else str(d) for d in dims)
    return LightNetError(
        f"the array for input '{name}' has shape {list(shape)}, and the input [{wanted}]: samples count along "
        "one more axis in front, or along the first",
        where,
    )


def _pieces(
    arrays: Feeds, inputs: Mapping[str, Any], most: int | None, where: SourceLoc | None
) -> Iterator[dict[str, np.ndarray]]:
    """Arrays of many samples, call by call."""
    sliced: dict[str, tuple[int, Callable[[int], np.ndarray]]] = {}
    whole: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        dims = inputs[name][0]
        if dims is None or (_fits(array.shape, dims) and not (dims and dims[0] is None)):
            whole[name] = array
        elif array.ndim == len(dims) + 1 and _fits(array.shape[1:], dims):
            sliced[name] = len(array), array.__getitem__
        elif dims and array.ndim == len(dims) and _fits(array.shape[1:], dims[1:]):
            rows = dims[0] or max(_rows(len(array)), 1)
            if dims[0] and len(array) % rows:
                raise LightNetError(
                    f"the array for input '{name}' has {len(array)} samples, no multiple of the network's batch of "
                    f"{rows}",
                    where,
                )
            sliced[name] = -(-len(array) // rows), partial(_rows_of, array, rows)
        else:
            raise _misfit(name, array.shape, dims, where)
    counts = {name: count for name, (count, _) in sliced.items()}
    if len(set(counts.values())) > 1:
        said = ", ".join(f"'{name}' for {count}" for name, count in counts.items())
        raise LightNetError(f"the arrays are for different numbers of calls: {said}", where)
    calls = next(iter(counts.values()), 1)
    if not calls:
        raise LightNetError("there is no calibration data: it has no samples", where)
    for name, array in whole.items():
        _check_finite(name, array, where, 0)
    for k in range(calls if most is None else min(calls, most)):
        feeds = {name: sliced[name][1](k) if name in sliced else whole[name] for name in arrays}
        for name in sliced:
            _check_finite(name, feeds[name], where, k)
        yield feeds


def _rows_of(array: np.ndarray, rows: int, call: int) -> np.ndarray:
    return array[call * rows : (call + 1) * rows]


def _rows(count: int) -> int:
    """The number of samples, of so many, that a call takes where the network leaves that open: at most `MOST_ROWS`, and
    where possible so that all calls take as many, for which the network is then compiled."""
    divisors = [n for n in range(1, min(count, MOST_ROWS) + 1) if count % n == 0]
    return divisors[-1] if divisors and 4 * divisors[-1] >= min(count, MOST_ROWS) else min(count, MOST_ROWS)


def collect(runner: Runner, calls: Iterable[Feeds], step: Callable[[int], None]) -> dict[str, Histogram]:
    """The histogram of each tensor that the runner gives, over all calls; those of another type than float32 are left
    out. `step` is told the number of each call. Raises LightNetError for NaN and infinities that the network makes."""
    found: dict[str, Histogram] = {}
    for k, feeds in enumerate(calls):
        step(k)
        for name, array in runner(feeds).items():
            if array.dtype != np.float32:
                continue
            if not np.isfinite(array).all():
                value = array[~np.isfinite(array)].flat[0]
                raise runner.source.error(
                    f"tensor '{name}' holds {value} in call {k} of the calibration data, in float32"
                )
            found.setdefault(name, Histogram()).add(array)
    return found


def signal_to_noise(signal: float, noise: float) -> float:
    """The ratio of two sums of squares in decibels; infinite where there is no noise."""
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf
