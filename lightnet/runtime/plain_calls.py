"""Calls of a program whose dims each call decides, in the common case: it does nothing but compute, and is fed one
contiguous array an input, each of its very type.

What a shape needs is some numbers, computed together and kept for the last shapes. A network that is called with
another shape each time (a decoder, whose cache grows with each token) pays some microseconds for that. Anything else is
`OpenInstance.call`'s to do, or to complain of. Imports NumPy and the runtime.
"""

from __future__ import annotations

from array import array as words
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lightnet.dataclasses import dataclass
from lightnet.runtime.arrays import ALIGNMENT, aligned
from lightnet.runtime.dims import Symbol
from lightnet.runtime.pool import pool_run
from lightnet.runtime.program import BODY_ENTRY, FRAME, Program, Tensor, is_port
from lightnet.runtime.size_numbers import SizeNumbers, line_of
from lightnet.runtime.threads import processors

#: Shapes whose numbers are kept.
KEPT = 64


@dataclass(frozen=True)
class _Place:
    """A tensor of a program, by the places of its sizes: dims, offset, and the bytes of its memory; which word of the
    frame is its port's address (none: it stands in the arena)."""

    name: str
    dims: tuple[int, ...]
    dtype: np.dtype
    offset: int
    memory: int
    port: int | None


class _Room:
    """The memory of one call at a time: an arena that has grown to what shapes have needed, and the frame."""

    def __init__(self, ports: int, values: int):
        self.bytes = np.empty(0, np.uint8)
        self.frame = words("Q", bytes(8 * (len(FRAME) + ports + values)))
        self.address: int = self.frame.buffer_info()[0]

    def holds(self, nbytes: int) -> np.ndarray:
        """The arena, of so many bytes or more: one that grows with each call (a cache does) is seldom a new one."""
        if self.bytes.nbytes < nbytes or not self.bytes.nbytes:
            self.bytes = aligned(max(nbytes + nbytes // 16, 1), ALIGNMENT)
            self.frame[0] = self.bytes.ctypes.data
        return self.bytes


class PlainCalls:
    """The plain calls of a program; `code` is its machine code (`instance._Code`)."""

    def __init__(self, program: Program, static: np.ndarray, code: Any):
        numbers = SizeNumbers(program.symbols)
        self._numbers = numbers
        self._symbols = program.symbols
        ports = {space: len(FRAME) + k for k, space in enumerate(program.ports)}
        whole = program.port_tensors()

        def place(t: Tensor) -> _Place:
            port = ports[t.space] if whole.get(t.space) is t else None
            dims = tuple(map(numbers.place, t.dims))
            at = numbers.place(t.offset), numbers.place(program.memory[t.space])
            return _Place(t.name, dims, t.np_dtype, *at, port)

        self._inputs = [place(t) for t in program.inputs]
        self._outputs = [place(t) for t in program.outputs]
        self._arena = numbers.place(program.memory.get("arena", 0))
        self._solved = _solutions(program)
        self._made: dict[tuple[tuple[int, ...], ...], list[int]] = {}
        self._rooms: list[_Room] = []
        self._counts = len(ports), len(program.symbols)
        self._static = static
        self._main: Callable[[int], None] = code.entry()
        self._body = code.address(BODY_ENTRY) if program.widest > 1 else 0
        self._most, self._widest = min(program.bound.wanted, program.widest), program.widest
        self._scratch, self._code = program.scratch, code

    @classmethod
    def of(cls, program: Program, static: np.ndarray, code: Any) -> PlainCalls | None:
        """Those of a program; None where it has none: it does more than compute, or its inputs do not say its symbols
        one by one, or tensors stand elsewhere than in the arena and in ports of their own."""
        spaces = {t.space: t for t in (*program.inputs, *program.outputs)}
        is_placed = all(space == "arena" or is_port(space) for space in spaces)
        tensors = program.port_tensors() if is_placed else {}
        ours = [t for t in (*program.inputs, *program.outputs) if is_port(t.space)]
        if not (program.is_plain and is_placed and all(tensors.get(t.space) is t for t in ours)):
            return None
        return cls(program, static, code) if len(_solutions(program)) == len(program.symbols) else None

    def __call__(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        """The outputs, or None where this is no plain call."""
        if len(feeds) != len(self._inputs):
            return None
        arrays = []
        for t in self._inputs:
            array = feeds.get(t.name)
            if type(array) is not np.ndarray or array.dtype != t.dtype:
                return None
            if t.port is not None and not array.flags.c_contiguous:
                return None
            arrays.append(array)
        shapes = tuple([array.shape for array in arrays])
        numbers = self._made.get(shapes)
        if numbers is None:
            if (numbers := self._of_shapes(shapes)) is None:
                return None
            if len(self._made) >= KEPT:
                self._made.clear()
            self._made[shapes] = numbers
        try:
            room = self._rooms.pop()  # one bytecode: no lock is needed
        except IndexError:
            room = _Room(*self._counts)
        try:
            return self._run(room, arrays, numbers)
        finally:
            self._rooms.append(room)

    def _of_shapes(self, shapes: Sequence[tuple[int, ...]]) -> list[int] | None:
        """The numbers of a call on inputs of these shapes; None where they do not fit, or a tensor lies outside of its
        memory (the program of a file may lie)."""
        values = []
        for symbol, k, axis, ndim, factor, rest in self._solved:
            if len(shapes[k]) != ndim:
                return None
            units, left = divmod(shapes[k][axis] - rest, factor)
            value = units * symbol.multiple
            if left or not symbol.low <= value <= symbol.high or value % symbol.multiple:
                return None
            values.append(value)
        numbers = self._numbers.at(values)
        if any(shape != tuple([numbers[d] for d in t.dims]) for t, shape in zip(self._inputs, shapes)):
            return None
        return numbers if all(_fits(t, numbers) for t in (*self._inputs, *self._outputs)) else None

    def _run(self, room: _Room, arrays: Sequence[np.ndarray], numbers: list[int]) -> dict[str, np.ndarray]:
        arena, frame = room.holds(numbers[self._arena]), room.frame
        for t, array in zip(self._inputs, arrays):
            if t.port is None:
                _view(t, arena, numbers)[...] = array
            else:
                frame[t.port] = array.ctypes.data
        made = []
        for t in self._outputs:
            if t.port is not None:
                nbytes = numbers[t.memory]
                raw = np.empty(nbytes + ALIGNMENT, np.uint8)
                address = raw.ctypes.data
                start = -address % ALIGNMENT
                frame[t.port] = address + start
                made.append(np.ndarray([numbers[d] for d in t.dims], t.dtype, raw, start))
        first = len(frame) - len(self._symbols)
        for k in range(len(self._symbols)):
            frame[first + k] = numbers[k]
        frame[1] = self._static.ctypes.data
        threads = min(self._most, processors()) if self._most > 1 else 1
        if threads == 1:
            self._main(room.address)
        else:
            pool_run(self._code)(self._body, room.address, min(threads, self._widest), self._scratch)
        ready = iter(made)
        return {t.name: _view(t, arena, numbers).copy() if t.port is None else next(ready) for t in self._outputs}


def _view(t: _Place, arena: np.ndarray, numbers: Sequence[int]) -> np.ndarray:
    return np.ndarray([numbers[d] for d in t.dims], t.dtype, arena, numbers[t.offset])


def _fits(t: _Place, numbers: Sequence[int]) -> bool:
    """Return whether a tensor lies in its memory, and is all of its port."""
    nbytes, dims = t.dtype.itemsize, [numbers[d] for d in t.dims]
    for n in dims:
        nbytes *= n
    offset, memory = numbers[t.offset], numbers[t.memory]
    if min(dims, default=0) < 0 or offset < 0:
        return False
    return offset + nbytes <= memory if t.port is None else not offset and nbytes == memory


def _solutions(program: Program) -> list[tuple[Symbol, int, int, int, int, int]]:
    """The way from the inputs' shapes to the symbols: each with (input, axis, rank, factor, rest), where that dim is
    `factor` units of the symbol and `rest`. A symbol that no dim says so is left out."""
    found: dict[str, tuple[Symbol, int, int, int, int, int]] = {}
    for k, t in enumerate(program.inputs):
        for axis, dim in enumerate(t.dims):
            if (line := line_of(dim)) is not None:
                symbol, factor, rest = line
                found.setdefault(symbol.name, (symbol, k, axis, len(t.dims), factor, rest))
    return [found[s.name] for s in program.symbols if s.name in found]
