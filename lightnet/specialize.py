"""Networks whose shapes a call decides: one executable for each set of shapes and deciding values, made when it is first needed.

An ONNX model may leave dims of its inputs open, and may compute shapes from the values of inputs (the `shape` of a Reshape).
`lightnet.compile` then gives a `SpecializingExecutable`: each call reads the open dims and the deciding values off what it is fed,
and runs the executable that is compiled for just these. The last few are kept. Imports the compiler and the front ends.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

import numpy as np

from lightnet.diagnostics import LightNetError
from lightnet.executable import Executable
from lightnet.frontends.loading import OpenError
from lightnet.model import Model
from lightnet.runtime.arrays import by_name, checked_array
from lightnet.runtime.dtypes import BY_NAME
from lightnet.runtime.program import not_fed, unknown

#: Executables that are kept, the last used ones.
CAPACITY = 16

Key = tuple[tuple[str, tuple[int, ...], bytes | None], ...]


class SpecializingExecutable:
    """Called like an `Executable`; compiles itself for the shapes and values that it is called with.

    `deciding` are the inputs whose values have turned out to decide shapes. Calls from several threads are safe.
    """

    def __init__(self, opened: OpenError, compile: Callable[[Model], Executable]):
        self._again, self._compile = opened.again, compile
        self._source = opened.loc.file if opened.loc is not None else "<model>"
        self.signature = dict(opened.signature)
        self.deciding = {name for name in opened.inputs if _is_closed(self.signature[name][1])}
        self._cache: OrderedDict[Key, Executable] = OrderedDict()
        self._lock = threading.RLock()

    def __call__(self, feeds: Mapping[str, Any] | None = None, *, outputs: Sequence[str] | None = None,
                 stream: TextIO | None = None, threads: int | None = None) -> dict[str, np.ndarray]:  # fmt: skip
        """Run the network on `feeds`, arrays by input name; as `Executable.__call__`."""
        feeds = dict(by_name(feeds))
        executable = self.specialized(feeds)
        known = {k: v for k, v in feeds.items() if k in executable.inputs}
        return executable(known, outputs=outputs, stream=stream, threads=threads)

    run = __call__

    def specialized(self, feeds: Mapping[str, Any]) -> Executable:
        """The executable for inputs like `feeds`, compiled if there is none yet."""
        given = {name: self._checked(name, value) for name, value in feeds.items()}
        if missing := [name for name in self.signature if name not in given]:
            raise not_fed(dict.fromkeys(missing, ""))
        arrays = {name: given[name] for name in self.signature}  # in one order, whatever that of the feeds
        while True:
            with self._lock:
                deciding = frozenset(self.deciding)
                key = self._key(arrays, deciding)
                if (found := self._cache.get(key)) is not None:
                    self._cache.move_to_end(key)
                    return found
            values = {n: arrays[n] for n in deciding}
            shapes = {n: a.shape for n, a in arrays.items() if n not in deciding}
            try:  # unlocked, so that calls that are compiled already need not wait
                module, weights = self._again(shapes, values)
            except OpenError as e:
                if e.inputs <= deciding:
                    raise
                with self._lock:
                    self.deciding |= e.inputs
                continue
            found = self._compile(Model(module, self._source, weights, brings_weights=weights is not None))
            with self._lock:
                self._cache[key] = found
                while len(self._cache) > CAPACITY:
                    self._cache.popitem(last=False)
            return found

    @staticmethod
    def _key(arrays: Mapping[str, np.ndarray], deciding: frozenset[str]) -> Key:
        return tuple((n, a.shape, a.tobytes() if n in deciding else None) for n, a in sorted(arrays.items()))

    def _checked(self, name: str, value: Any) -> np.ndarray:
        if name not in self.signature:
            raise unknown("input", name, self.signature)
        dtype, _ = self.signature[name]
        if dtype not in BY_NAME:
            raise LightNetError(f"input '{name}' has type {dtype}, which is not supported")
        array = np.asarray(value)
        return checked_array(name, array, array.shape, BY_NAME[dtype])

    @property
    def is_native(self) -> bool:
        """Whether there is machine code for everything compiled so far."""
        return all(e.is_native for e in list(self._cache.values()))

    @property
    def inputs(self) -> dict[str, tuple[tuple[int | str | None, ...] | None, np.dtype]]:
        """Shape (an open dim is None or its name) and dtype of every input by name."""
        return {n: (dims, BY_NAME[dtype].np) for n, (dtype, dims) in self.signature.items() if dtype in BY_NAME}


def _is_closed(dims: tuple[int | str | None, ...] | None) -> bool:
    return dims is not None and all(isinstance(d, int) for d in dims)
