"""The outputs that the pass `check-indices` has a network return beside its outputs, and what a call does with it.

A check is a tensor [3] of i64 (whether an index is outside of its axis, the place of the first one, that index), whose
name says all that an error tells. Imports NumPy and the diagnostics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from lightnet.diagnostics import LightNetError

#: What the names of checks begin with.
PREFIX = "check-indices:"


def check_name(number: int, dims: Sequence[int], limits: Sequence[int], label: str) -> str:
    """The name of check `number`: of indices of shape `dims` that lie below `limits` (one for each entry of the last
    axis, or one for all), of the op `label`."""
    return f"{PREFIX}{number}:{'x'.join(map(str, dims))}:{'x'.join(map(str, limits))}:{label}"


def is_check(name: str) -> bool:
    """Return whether an output is a check."""
    return name.startswith(PREFIX)


def checked(outputs: Mapping[str, np.ndarray], checks: Iterable[str]) -> dict[str, np.ndarray]:
    """The outputs without the checks. Raises LightNetError for the first index that is outside of its axis."""
    for name in checks:
        found, place, value = outputs[name].tolist()
        if found:
            raise _error(name, place, value)
    return {name: array for name, array in outputs.items() if not is_check(name)}


def _error(name: str, place: int, value: int) -> LightNetError:
    dims, limits, label = name.removeprefix(PREFIX).split(":", 3)[1:]
    shape = [int(n) for n in dims.split("x") if n]
    sizes = [int(n) for n in limits.split("x")]
    at = [int(k) for k in np.unravel_index(place, shape)]
    size = sizes[at[-1] if len(sizes) > 1 else 0]
    return LightNetError(f"{label}: its index {value}, at {at}, is outside of an axis of {size} elements ({-size} to "
                         f"{size - 1})",
                         label="index.range")  # fmt: skip
