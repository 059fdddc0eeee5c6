"""The files of outputs that `lightnet run -o` writes: `.npz`, `.npy`, `.json`. Imports NumPy and the runtime."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from lightnet.diagnostics import LightNetError
from lightnet.runtime.dtypes import numbers_of
from lightnet.runtime.files import write_atomic
from lightnet.runtime.weights import save_npz

#: Bytes of an output of text in a file.
MAX_STRINGS = 1 << 30


def _strings(path: str, name: str, array: Any) -> Any:
    """Text as an array of strings as long as the longest of them, as files have it."""
    longest = max(map(len, array.reshape(-1).tolist()), default=0)
    if 4 * longest * array.size > MAX_STRINGS:
        raise LightNetError(
            f"cannot write '{path}': {array.size} strings of '{name}', as long as the longest of {longest} characters, "
            f"take over {MAX_STRINGS} bytes"
        )
    return array.astype(f"U{max(longest, 1)}") if array.size else np.empty(array.shape, "U1")


def _as_json(value: Any) -> Any:
    """An output as JSON has it; keys of maps are strings there."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {str(key): _as_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_json(item) for item in value]
    if isinstance(value, np.ndarray):
        return _as_json((value if value.dtype.hasobject else numbers_of(value)).tolist())
    return value


def write_arrays(path: str, arrays: Mapping[str, Any]) -> None:
    """Write the outputs, whole or not at all. Types that the format lacks are written as those that hold their values:
    bfloat16 and floats of 8 bits as float32, integers of 4 bits as int8 and uint8. JSON is for all outputs, arrays as
    nested lists; NaN and infinities are strings in it."""
    if path.lower().endswith(".json"):
        text = json.dumps({name: _as_json(a) for name, a in arrays.items()}, ensure_ascii=False, allow_nan=False)
        return write_atomic(path, text + "\n")
    if maps := [name for name, a in arrays.items() if isinstance(a, list)]:
        raise LightNetError(f"cannot write '{path}': output '{maps[0]}' is a list of maps: write .json")
    known = {name: _strings(path, name, a) if a.dtype.hasobject else numbers_of(a) for name, a in arrays.items()}
    if path.lower().endswith(".npz"):
        save_npz(path, known)
        return
    if len(known) != 1:
        raise LightNetError(f"cannot write '{path}': there are {len(known)} outputs, which need .npz")
    (array,) = known.values()
    write_atomic(path, lambda out: np.save(out, array, allow_pickle=False))
