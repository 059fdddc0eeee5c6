"""Ops that look elements up in a table: LabelEncoder, CategoryMapper and OneHotEncoder of ai.onnx.ml, and the labels of
its classifiers.

Source: the operator documentation of ONNX-ML; where it is silent, ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lightnet.runtime.dtypes import BY_NP
from lightnet.runtime.host.steps import TEXT, TEXT_DTYPE, HostStep, each, host_op

#: The attributes that keys and values stand in, by the end of their names.
_LISTS: dict[str, tuple[Any, Any]] = {
    "strings": (str, TEXT_DTYPE),
    "int64s": (int, np.int64),
    "floats": ((float, int), np.float32),
}


def _side(step: HostStep, name: str) -> np.ndarray:
    """The keys or values of a LabelEncoder, as an array [N]."""
    for end, (kind, dtype) in _LISTS.items():
        if f"{name}_{end}" in step.attributes:
            values = step.list(f"{name}_{end}", kind)
            found = np.empty(len(values), dtype)
            found[:] = values
            return found
    return step.attribute(f"{name}_tensor", np.ndarray).reshape(-1)


def _kind(dtype: np.dtype) -> str:
    return TEXT if dtype == TEXT_DTYPE else BY_NP[dtype].name


def _encoder_gives(step: HostStep, inputs: Sequence[str]) -> tuple[str, ...]:
    if "classes_strings" in step.attributes:  # of opset 1: what it does, its input says
        return ("i64",) if inputs[0] == TEXT else (TEXT,)
    return (_kind(_side(step, "values").dtype),)


@host_op("ai.onnx.ml.LabelEncoder", _encoder_gives, shapes=lambda step, x: (x,))
def label_encoder(step: HostStep, x: np.ndarray) -> np.ndarray:
    """Each element by the pair of which it is the key (the last one), or else the default. NaN is a key like others."""
    if "classes_strings" in step.attributes:
        return _mapped(step, step.list("classes_strings", str), None, x)
    keys, values = _side(step, "keys"), _side(step, "values")
    if len(keys) != len(values):
        step.fail(f"it has {len(keys)} keys and {len(values)} values")
    if (keys.dtype == TEXT_DTYPE) != (x.dtype == TEXT_DTYPE):
        step.fail(f"its keys are {_kind(keys.dtype)}, and its input {_kind(x.dtype)}")
    pairs = {_key(k): v for k, v in zip(keys.tolist(), values)}
    default = _default(step, values.dtype)
    step.room(x.shape)
    return each(lambda v: pairs.get(_key(v), default), x, values.dtype)


def _key(value: Any) -> Any:
    """NaN is equal to none, so that a name stands for it."""
    value = value.item() if isinstance(value, np.generic) else value
    return "NaN" if isinstance(value, float) and value != value else value


def _default(step: HostStep, dtype: np.dtype) -> Any:
    if "default_tensor" in step.attributes:
        found = step.attribute("default_tensor", np.ndarray).reshape(-1)
        if found.dtype != dtype or found.size != 1:
            step.fail("its default is of another type than its values")
        return found[0]
    if dtype == TEXT_DTYPE:
        return step.text("default_string", "_Unused")
    if dtype.kind == "f":
        return step.attribute("default_float", (float, int), -0.0)
    return step.integer("default_int64", -1)


def _mapper_gives(step: HostStep, inputs: Sequence[str]) -> tuple[str, ...]:
    return ("i64",) if inputs[0] == TEXT else (TEXT,)


@host_op("ai.onnx.ml.CategoryMapper", _mapper_gives)
def category_mapper(step: HostStep, x: np.ndarray) -> np.ndarray:
    """The number of a category's text, or the text of its number."""
    return _mapped(step, step.list("cats_strings", str), step.list("cats_int64s", int), x)


def _mapped(step: HostStep, words: Sequence[str], numbers: Sequence[int] | None, x: np.ndarray) -> np.ndarray:
    numbers = range(len(words)) if numbers is None else numbers
    if len(words) != len(numbers):
        step.fail(f"it has {len(words)} texts and {len(numbers)} numbers")
    if x.dtype == TEXT_DTYPE:
        by_word, default = dict(zip(words, numbers)), step.integer("default_int64", -1)
        return each(lambda v: by_word.get(v, default), x, np.int64)
    by_number, other = dict(zip(numbers, words)), step.text("default_string", "_Unused")
    return each(lambda v: by_number.get(int(v), other), x)


@host_op("ai.onnx.ml.OneHotEncoder", "f32")
def one_hot_encoder(step: HostStep, x: np.ndarray) -> np.ndarray:
    """1 where the element is each of the categories, along a new last axis; a row of zeros for another one, or an error
    without `zeros`."""
    categories = step.list("cats_strings", str)
    index = {word: i for i, word in enumerate(categories)}
    found = np.zeros(step.room((x.size, len(categories))), np.float32)
    places = np.array([index.get(v, -1) for v in x.reshape(-1)], np.int64)
    if not step.integer("zeros", 1) and (places < 0).any():
        step.fail(f"'{x.reshape(-1)[int(np.argmin(places))]:.40}' is none of its categories", "host.category")
    rows = np.flatnonzero(places >= 0)
    found[rows, places[rows]] = 1
    return found.reshape((*x.shape, len(categories)))
