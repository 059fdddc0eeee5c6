"""Maps: ONNX's map(K, V), of text or integers to numbers or text, and lists of them, at the ends of a network.

In a host part, a map is an array without dims that holds a dict, and a sequence of maps an array [N] of dicts; outside,
they are a dict and a list of dicts. Source: the operator documentation of ONNX-ML; where it is silent, ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from struct import error as Unpackable
from struct import pack, unpack
from typing import Any

import numpy as np

from lightnet.diagnostics import LightNetError
from lightnet.runtime.dtypes import BY_NAME, convert
from lightnet.runtime.host.steps import (
    MAX_CHARACTERS,
    TEXT,
    TEXT_DTYPE,
    Dims,
    HostStep,
    KeyValue,
    host_op,
    map_kind,
    pair_of,
)
from lightnet.runtime.host.strings import read_integer, read_number

#: Pairs of a key and a value in all maps of a tensor.
MAX_PAIRS = 1 << 24


def map_array(name: str, kind: str, value: Any) -> np.ndarray:
    """A fed map as an array without dims that holds a dict, its values as Python has them. Raises LightNetError for
    what is no map of `kind`."""
    pair = pair_of(kind)
    assert pair is not None
    if not isinstance(value, Mapping):
        raise LightNetError(f"'{name}' takes a dict, {kind}, but gets a {type(value).__name__}", label="feed.value")
    if len(value) > MAX_PAIRS:
        raise LightNetError(f"'{name}' gets more than {MAX_PAIRS} pairs", label="feed.shape")
    found = np.empty((), TEXT_DTYPE)
    sides = [
        _listed(name, side, dtype, given)
        for side, dtype, given in zip(("key", "value"), pair, (value.keys(), value.values()))
    ]
    found[()] = dict(zip(*sides))
    return found


def _listed(name: str, side: str, dtype: str, given: Any) -> list[Any]:
    """The keys or values of a fed map, of one type. Raises LightNetError, which names the first wrong one."""
    found = []
    for value in given:
        try:
            found.append(_of(dtype, value))
        except (AttributeError, OverflowError, TypeError, Unpackable, ValueError):
            raise LightNetError(
                f"'{name}' takes {side}s of {dtype}, but gets {value!r:.60}", label="feed.value"
            ) from None
    if dtype == TEXT and sum(map(len, found)) > MAX_CHARACTERS:
        raise LightNetError(f"'{name}' gets more than {MAX_CHARACTERS} characters", label="feed.shape")
    return found


def _of(dtype: str, value: Any) -> Any:
    """A value as Python has those of a type. Raises what Python raises where it cannot be one."""
    if dtype == TEXT:
        value.encode()  # what is no string, or half of a surrogate pair
        return str(value)
    if isinstance(value, bool | str | bytes):
        raise TypeError
    form = {"i64": "<q", "f32": "<f", "f64": "<d"}[dtype]
    return unpack(form, pack(form, index(value) if dtype == "i64" else float(value)))[0]


# -- the ops


def _labels(step: HostStep) -> tuple[str, Sequence[Any]]:
    """The type of a ZipMap's keys, and the keys by column."""
    words, numbers = step.list("classlabels_strings", str, ()), step.list("classlabels_int64s", int, ())
    if bool(words) == bool(numbers):
        step.fail("it needs either classlabels_strings or classlabels_int64s")
    return (TEXT, words) if words else ("i64", numbers)


@host_op(
    "ai.onnx.ml.ZipMap",
    lambda step, inputs: (map_kind(_labels(step)[0], "f32"),),
    shapes=lambda step, x: ((x[0] if len(x) == 2 else 1,),),
)
def zip_map(step: HostStep, x: np.ndarray) -> np.ndarray:
    """A map for each row of scores [N, C] or [C], of the label of a column to the score, ordered by label. Of columns
    of one label, the last counts."""
    labels = _labels(step)[1]
    if x.ndim not in (1, 2) or x.shape[-1] != len(labels) or x.dtype.kind != "f":
        step.fail(f"it has {len(labels)} labels for scores {x.dtype}{list(x.shape)}")
    if x.size > MAX_PAIRS:
        step.fail(f"its maps would have {x.size} pairs; at most {MAX_PAIRS} are made", "host.size")
    columns = dict(sorted({label: k for k, label in enumerate(labels)}.items()))
    rows = x.reshape(-1, len(labels))[:, list(columns.values())]
    found = np.empty(len(rows), TEXT_DTYPE)
    found[:] = [dict(zip(columns, row)) for row in rows.tolist()]
    return found


def _pair(step: HostStep) -> KeyValue:
    """The types of keys and values of the map that a step takes, which `frontends/onnx/split.py` writes down."""
    found = pair_of(step.text("map"))
    if found is None:
        step.fail("its attribute 'map' is no type of a map")
    return found


def _fed(step: HostStep, x: np.ndarray) -> dict[Any, Any]:
    value = x.item() if x.dtype == TEXT_DTYPE and not x.ndim else None
    if not isinstance(value, dict):
        step.fail(f"takes a map, but gets {x.dtype}{list(x.shape)}")
    return value


def _vocabulary(step: HostStep) -> Sequence[Any]:
    """The keys of a DictVectorizer's columns."""
    name, kind = ("string_vocabulary", str) if _pair(step).keys == TEXT else ("int64_vocabulary", int)
    return step.list(name, kind)


@host_op(
    "ai.onnx.ml.DictVectorizer",
    lambda step, inputs: (_pair(step).values,),
    shapes=lambda step, x: ((1, len(_vocabulary(step))),),
    maps=True,
)
def dict_vectorizer(step: HostStep, x: np.ndarray) -> np.ndarray:
    """The values of a map by the keys of the vocabulary, in its order: [1, C]; 0, or an empty text, where there is
    none. Other keys are left out."""
    values, fed, vocabulary = _pair(step).values, _fed(step, x), _vocabulary(step)
    found = np.empty(step.room((1, len(vocabulary))), TEXT_DTYPE if values == TEXT else BY_NAME[values].np)
    found[0, :] = [fed.get(key, "" if values == TEXT else 0) for key in vocabulary]
    return found


_CASTS = {"TO_FLOAT": "f32", "TO_INT64": "i64", "TO_STRING": TEXT}


def _cast_gives(step: HostStep, inputs: Sequence[str]) -> tuple[str, ...]:
    to = step.text("cast_to", "TO_FLOAT")
    if to not in _CASTS or _pair(step).keys != "i64":
        step.fail(f"its cast_to is '{to:.40}', of {step.text('map'):.40}; there are {', '.join(_CASTS)} of map(i64,…)")
    return (_CASTS[to],)


def _cast_shapes(step: HostStep, x: Sequence[int | None]) -> tuple[Dims, ...]:
    return ((1, step.integer("max_map", 1) if step.text("map_form", "DENSE") == "SPARSE" else None),)


@host_op("ai.onnx.ml.CastMap", _cast_gives, shapes=_cast_shapes, maps=True)
def cast_map(step: HostStep, x: np.ndarray) -> np.ndarray:
    """The values of a map in the order of their keys [1, values], cast; with ``SPARSE``, at the places that the keys
    are [1, max_map], zeros between them, and keys beyond left out."""
    fed, form = _fed(step, x), step.text("map_form", "DENSE")
    dtype, texts_in = _cast_gives(step, ())[0], _pair(step).values == TEXT
    values = {key: _cast(step, fed[key], dtype, texts_in) for key in sorted(fed)}
    if form == "DENSE":
        placed = list(values.values())
    elif form == "SPARSE":
        if min(values, default=0) < 0:
            step.fail(f"the key {min(values)} is negative", "host.index")
        count = step.integer("max_map", 1)
        step.room((1, count))
        placed = ["0.f" if dtype == TEXT else 0] * count  # as ONNX Runtime has it
        for key, value in values.items():
            if key < count:
                placed[key] = value
    else:
        step.fail(f"its map_form is '{form:.40}'; there are DENSE and SPARSE")
    found = np.empty((1, len(placed)), TEXT_DTYPE if dtype == TEXT else BY_NAME[dtype].np)
    found[0, :] = placed
    return found


def _cast(step: HostStep, value: Any, dtype: str, texts_in: bool) -> Any:
    """A value of a map, a text or a number, as `dtype`."""
    if dtype == TEXT:
        return value if texts_in else f"{value:f}"
    if not texts_in:
        return convert(np.array(value, np.float32), BY_NAME[dtype]).item()
    return read_number(step, value) if dtype == "f32" else read_integer(step, value, BY_NAME[dtype])
