"""The outputs that the pass `check-indices` has a network return beside its outputs, and what a call does with it.

A check is a tensor [3] of i64 (whether an index is outside of its axis, the place of the first one, that index), whose
name says all that an error tells. Imports NumPy and the diagnostics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

import numpy as np

from lightnet.diagnostics import LightNetError

#: What the names of checks begin with.
PREFIX = "check-indices:"


def check_name(number: int, dims: Sequence[int], limits: Sequence[int], label: str) -> str:
    """The name of check `number`: of indices of shape `dims` that lie below `limits` (one for each entry of the last
    axis, or one for all), of the op `label`. A dim that a call decides is ``?``."""
    shape = "x".join(str(d) if isinstance(d, int) else "?" for d in dims)
    return f"{PREFIX}{number}:{shape}:{'x'.join(map(str, limits))}:{label}"


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
    shape = dims.split("x") if dims else []
    sizes = [int(n) for n in limits.split("x")]  # of which there are several by the last axis, which is a number then
    where, size = f"element {place} in row-major order", sizes[place % len(sizes)]
    if "?" not in shape[1:]:
        inner = [int(n) for n in shape[1:]]
        first, rest = divmod(place, prod(inner)) if shape else (0, 0)
        at = [int(k) for k in np.unravel_index(rest, inner)] if inner else []
        where = f"at {[first, *at] if shape else []}"
    return LightNetError(f"{label}: its index {value}, {where}, is outside of an axis of {size} elements ({-size} to "
                         f"{size - 1})",
                         label="index.range")  # fmt: skip
