"""The arguments of a call, in the forms that callers have: arrays of any library, by name or in order, and buffers for
the outputs.

Imports NumPy, the standard library and the rest of the runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import numpy as np

from lightnet.diagnostics import LightNetError
from lightnet.runtime.arrays import as_array

if TYPE_CHECKING:
    from lightnet.runtime.program import Program

#: Shape and dtype by name.
Types = Mapping[str, tuple[tuple[int, ...], np.dtype]]


class Invocation(NamedTuple):
    """One call of an executable: what is fed, by name; which `outputs` are asked for (None: all); `buffers` for some of
    these, which are just what the outputs are; the `stream` that `print` ops write to (None: standard output); and on
    how many `threads` it may run (None: the executable's own choice)."""

    feeds: Mapping[str, Any]
    outputs: Iterable[str] | None = None
    buffers: Mapping[str, np.ndarray] | None = None
    stream: TextIO | None = None
    threads: int | None = None

    def answer(self, program: Program, run: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """The outputs that are asked for of a run of `program`, in the buffers that there are. Raises LightNetError
        before it for what cannot be read after it."""
        program.check_readable(self.buffers or ())
        found = program.pick(self.outputs, run)
        return copied_out(found, self.buffers) if self.buffers else found


def feeds_of(given: Sequence[Any], named: Mapping[str, Any], inputs: Iterable[str]) -> dict[str, Any]:
    """The feeds of a call, by name: a mapping, or values in the order of `inputs`; and values by keyword. Raises
    LightNetError for more values than inputs, and for what is given twice."""
    first = given[0] if given else None
    feeds: dict[str, Any] = {}
    if first is None or isinstance(first, Mapping):
        if len(given) > 1:
            raise LightNetError(
                "inputs are a mapping by name, or arrays in the order of the inputs, not both", label="feed.order"
            )
        feeds.update(first or {})
    else:
        names = list(inputs)
        if len(given) > len(names):
            raise LightNetError(f"the network has {len(names)} inputs ({', '.join(names[:8])}), but gets {len(given)} "
                                "arrays",
                                label="feed.order")  # fmt: skip
        feeds.update(zip(names, given))
    if twice := feeds.keys() & named.keys():
        raise LightNetError(f"input '{min(twice)}' is fed twice", label="feed.order")
    feeds.update(named)
    return feeds


def buffers_of(out: Any, outputs: Types, names: Iterable[str] | None) -> dict[str, np.ndarray]:
    """The arrays of a call's `out`, by the name of the output: a mapping, or one array where there is one output. Each
    must be just what the output is, and writable. Raises LightNetError, which says of which output what is wrong."""
    picked = list(outputs) if names is None else [names] if isinstance(names, str) else list(names)
    if not isinstance(out, Mapping):
        if len(picked) != 1:
            raise LightNetError(
                f"out is one array, and there are {len(picked)} outputs: give a mapping by name", label="out.name"
            )
        out = {picked[0]: out}
    if wrong := [name for name in out if name not in picked]:
        from lightnet.runtime.program import unknown

        raise unknown("output of this call", wrong[0], picked)
    found = {name: _buffer(name, value, *outputs[name]) for name, value in out.items() if name in outputs}
    arrays = list(found.items())
    for i, (name, array) in enumerate(arrays):
        for other, there in arrays[:i]:
            if np.may_share_memory(array, there):
                raise LightNetError(f"out: the buffers of '{other}' and '{name}' share memory", label="out.overlap")
    return found


def _buffer(name: str, value: Any, dims: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if dtype.hasobject:
        raise LightNetError(f"out: '{name}' is text or maps, which each call makes anew", label="out.dtype")
    if not hasattr(value, "__array__") and not hasattr(value, "__dlpack__"):
        raise LightNetError(
            f"out: '{name}' takes an array to write to, not a {type(value).__name__}", label="out.value"
        )
    array = value if isinstance(value, np.ndarray) else as_array(name, value)
    if array.shape != dims:
        raise LightNetError(
            f"out: '{name}' has shape {list(dims)}, but the buffer has {list(array.shape)}", label="out.shape"
        )
    if array.dtype != dtype:
        raise LightNetError(f"out: '{name}' is of {dtype}, but the buffer is of {array.dtype}", label="out.dtype")
    flags = array.flags
    for wanted, says in ((flags.c_contiguous, "contiguous"), (flags.writeable, "writable"), (flags.aligned, "aligned")):
        if not wanted:
            raise LightNetError(f"out: the buffer of '{name}' is not {says}", label="out.layout")
    return array


def copied_out(found: dict[str, np.ndarray], buffers: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of a run with those that have buffers in them."""
    for name, buffer in buffers.items():
        if found[name] is not buffer:
            np.copyto(buffer, found[name])
            found[name] = buffer
    return found
