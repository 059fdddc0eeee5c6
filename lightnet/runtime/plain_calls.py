"""Calls of a program whose dims each call decides, in the common case: it does nothing but compute, and is fed one
contiguous array an input, each of its very type.

What a shape needs is some numbers, computed together and kept for the last shapes. A network that is called with
another shape each time (a decoder, whose cache grows with each token) pays some microseconds for that. Anything else is
`OpenInstance.call`'s to do, or to complain of. Imports NumPy and the runtime.
"""

from __future__ import annotations

from array import array as words
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from lightnet.dataclasses import dataclass
from lightnet.runtime.arrays import ALIGNMENT, aligned
from lightnet.runtime.dims import Symbol
from lightnet.runtime.growing import Growth, grow
from lightnet.runtime.instance import Arena, Instance, Outputs
from lightnet.runtime.pool import pool_run
from lightnet.runtime.program import BODY_ENTRY, FRAME, Program, Tensor, is_port
from lightnet.runtime.size_numbers import SizeNumbers, line_of
from lightnet.runtime.threads import processors

_ARENA, _STATIC = map(FRAME.index, ("arena", "static"))
#: Shapes whose numbers are kept.
KEPT = 64
#: Bytes of the largest tensor.
_MOST = 1 << 47


_Shapes = tuple[tuple[int, ...], ...]
Write = tuple[int, Callable[[Any, np.ndarray], None]]
Read = tuple[str, Callable[[], np.ndarray]]


@dataclass(frozen=True)
class _Place:
    """A tensor of a program, by the places of its sizes: dims, offset, and the bytes of its memory; which word of the
    frame is its port's address (none: it stands in the arena); how it grows (`Tensor.grows`)."""

    name: str
    dims: tuple[int, ...]
    dtype: np.dtype
    offset: int
    memory: int
    port: int | None
    grows: tuple[int, ...]


class _Shape(NamedTuple):
    """The calls on inputs of some shapes: bytes of the arena, values of the symbols, and by position among the inputs
    and outputs the dims of each tensor, with its offset in the arena, or its bytes where it is a port; and how inputs
    grow."""

    arena: int
    values: tuple[int, ...]
    inputs: list[tuple[tuple[int, ...], int]]
    outputs: list[tuple[tuple[int, ...], int]]
    growths: list[Growth]


class Room:
    """The memory of one call at a time of a program, whatever its shapes: an arena that has grown to what they have
    needed so far, and the frame; by shapes, how tensors in the arena are written and read (`views`), and the arenas of
    instances."""

    def __init__(self, program: Program, static: np.ndarray):
        self.bytes = np.empty(0, np.uint8)
        self.frame = words("Q", bytes(8 * (len(FRAME) + len(program.ports) + len(program.symbols))))
        self.frame[_STATIC] = static.ctypes.data
        self.address: int = self.frame.buffer_info()[0]
        self.views: dict[_Shapes, tuple[list[Write], list[Read]]] = {}
        self.arenas: dict[Instance, Arena] = {}

    def hold(self, nbytes: int) -> None:
        """Let the arena have so many bytes or more: one that grows with each call (a cache does) is seldom a new
        one."""
        if self.bytes.nbytes < nbytes or not self.bytes.nbytes:
            self.views.clear()
            self.arenas.clear()
            self.bytes = aligned(max(nbytes + nbytes // 16, 1), ALIGNMENT)
            self.frame[_ARENA] = self.bytes.ctypes.data

    def arena(self, instance: Instance) -> Arena:
        """The arena of an instance, in this memory."""
        self.hold(instance.program.memory.get("arena", 0))
        arena = self.arenas.get(instance)
        if arena is None:
            if len(self.arenas) >= KEPT:
                self.arenas.clear()
            arena = self.arenas[instance] = Arena(instance.program, self.bytes)
        arena.stale = None  # another shape may have used the memory
        return arena


class Rooms:
    """The rooms of a program that no call is in."""

    def __init__(self, program: Program, static: np.ndarray):
        self._made = program, static
        self._idle: list[Room] = []

    def take(self) -> Room:
        """A room for a call, which gives it back when it has ended. One whose call ends in an exception, wherever that
        came, is not used again."""
        try:
            return self._idle.pop()  # one bytecode: no lock is needed
        except IndexError:
            return Room(*self._made)

    def give(self, room: Room) -> None:
        """Take a room back."""
        self._idle.append(room)


class PlainCalls:
    """The plain calls of a program; `code` is its machine code (`instance._Code`)."""

    def __init__(self, program: Program, rooms: Rooms, code: Any):
        numbers = SizeNumbers(program.symbols)
        self._numbers = numbers
        ports = {space: len(FRAME) + k for k, space in enumerate(program.ports)}
        whole, caches = program.port_tensors(), program.caches()

        def place(t: Tensor) -> _Place:
            port = ports[t.space] if t.space in caches or whole.get(t.space) is t else None
            dims = tuple(map(numbers.place, t.dims))
            at = numbers.place(t.offset), numbers.place(program.memory[t.space])
            return _Place(t.name, dims, t.np_dtype, *at, port, t.grows)

        self._inputs = [place(t) for t in program.inputs]
        self._outputs = [place(t) for t in program.outputs]
        self._arena = numbers.place(program.memory.get("arena", 0))
        self._solved = _solutions(program)
        self._fed = [(t.name, t.dtype, t.port is not None and not t.grows) for t in self._inputs]
        self._in_ports = [(k, t.port) for k, t in enumerate(self._inputs) if t.port is not None and not t.grows]
        self._out_ports = [
            (k, t.name, t.dtype, t.port) for k, t in enumerate(self._outputs) if t.port is not None and not t.grows
        ]
        inputs, outputs = list(program.inputs), list(program.outputs)
        pairs = [(inputs.index(old), outputs.index(new)) for old, new in caches.values()]
        self._caches = [(k, j, self._outputs[j].port or 0) for k, j in pairs]
        self._order: dict[str, Any] = dict.fromkeys(t.name for t in self._outputs)
        self._made: dict[_Shapes, _Shape] = {}
        self._rooms = rooms
        self._main: Callable[[int], None] = code.entry()
        self._body = code.address(BODY_ENTRY) if program.widest > 1 else 0
        self._most, self._widest = min(program.bound.wanted, program.widest), program.widest
        self._scratch, self._code = program.scratch, code

    @classmethod
    def of(cls, program: Program, rooms: Rooms, code: Any) -> PlainCalls | None:
        """Those of a program; None where it has none: it does more than compute, or its inputs do not say its symbols
        one by one, or tensors stand elsewhere than in the arena and in ports of their own."""
        spaces = {t.space: t for t in (*program.inputs, *program.outputs)}
        is_placed = all(space == "arena" or is_port(space) for space in spaces)
        tensors = program.port_tensors() if is_placed else {}
        caches = program.caches()
        ours = [t for t in (*program.inputs, *program.outputs) if is_port(t.space) and t.space not in caches]
        if not (program.is_plain and is_placed and all(tensors.get(t.space) is t for t in ours)):
            return None
        return cls(program, rooms, code) if len(_solutions(program)) == len(program.symbols) else None

    def __call__(self, feeds: dict[str, np.ndarray]) -> Outputs | None:
        """The outputs, or None where this is no plain call."""
        if len(feeds) != len(self._fed):
            return None
        arrays = []
        for name, dtype, is_whole in self._fed:
            array = feeds.get(name)
            if type(array) is not np.ndarray or array.dtype != dtype or (is_whole and not array.flags.c_contiguous):
                return None
            arrays.append(array)
        shapes = tuple([array.shape for array in arrays])
        shape = self._made.get(shapes) or self._shape(shapes)
        if shape is None:
            return None
        room = self._rooms.take()
        found = self._run(room, shapes, shape, arrays)
        self._rooms.give(room)
        return found

    def _shape(self, shapes: _Shapes) -> _Shape | None:
        """The calls on inputs of these shapes; None where they do not fit, or a tensor lies outside of its memory (the
        program of a file may lie)."""
        values = []
        for symbol, k, axis, ndim, factor, rest in self._solved:
            if len(shapes[k]) != ndim:
                return None
            units, left = divmod(shapes[k][axis] - rest, factor)
            value = units * symbol.multiple
            if left or not symbol.low <= value <= symbol.high:
                return None
            values.append(value)
        numbers = self._numbers.at(values)
        if any(shape != tuple([numbers[d] for d in t.dims]) for t, shape in zip(self._inputs, shapes)):
            return None
        if not all(_fits(t, numbers) for t in (*self._inputs, *self._outputs)):
            return None

        def standing(t: _Place) -> tuple[tuple[int, ...], int]:
            return tuple([numbers[d] for d in t.dims]), numbers[t.offset if t.port is None else t.memory]

        outputs, growths = [standing(t) for t in self._outputs], []
        for k, j, _ in self._caches:
            (axis, most), dims, dtype = self._outputs[j].grows, outputs[j][0], self._outputs[j].dtype
            old = shapes[k]
            if old[axis] > dims[axis] or (*old[:axis], *old[axis + 1 :]) != (*dims[:axis], *dims[axis + 1 :]):
                return None
            growths.append(Growth((*dims[:axis], most, *dims[axis + 1 :]), dims, axis, dtype))
        if len(self._made) >= KEPT:
            self._made.clear()
        found = self._made[shapes] = _Shape(numbers[self._arena], tuple(values), [standing(t) for t in self._inputs],
                                            outputs, growths)  # fmt: skip
        return found

    def _views(self, room: Room, shapes: _Shapes, shape: _Shape) -> tuple[list[Write], list[Read]]:
        """The ways to write the inputs that stand in the arena, by number, and to read such outputs."""

        def views(tensors: Sequence[_Place], standing: Sequence[tuple[tuple[int, ...], int]]) -> Iterator[Any]:
            for k, (t, (dims, offset)) in enumerate(zip(tensors, standing)):
                if t.port is None:
                    yield k, t.name, np.ndarray(dims, t.dtype, room.bytes, offset)

        writes = [(k, view.__setitem__) for k, _, view in views(self._inputs, shape.inputs)]
        reads = [(name, view.copy) for _, name, view in views(self._outputs, shape.outputs)]
        if len(room.views) >= KEPT:
            room.views.clear()
        room.views[shapes] = writes, reads
        return writes, reads

    def _run(self, room: Room, shapes: _Shapes, shape: _Shape, arrays: Sequence[np.ndarray]) -> Outputs:
        room.hold(shape.arena)
        frame, found = room.frame, dict(self._order)
        writes, reads = room.views.get(shapes) or self._views(room, shapes, shape)
        for k, write in writes:
            write(..., arrays[k])
        for k, port in self._in_ports:
            frame[port] = arrays[k].ctypes.data
        for k, name, dtype, port in self._out_ports:
            dims, nbytes = shape.outputs[k]
            found[name] = array = np.ndarray(dims, dtype, aligned(nbytes))
            frame[port] = array.ctypes.data
        for (k, j, port), growth in zip(self._caches, shape.growths):
            found[self._outputs[j].name], memory = grow(arrays[k], growth)
            frame[port] = memory.address
        for k, value in enumerate(shape.values, len(frame) - len(shape.values)):
            frame[k] = value
        threads = min(self._most, processors()) if self._most > 1 else 1
        if threads == 1:
            self._main(room.address)
        else:
            pool_run(self._code)(self._body, room.address, min(threads, self._widest), self._scratch)
        for name, read in reads:
            found[name] = read()
        return found


def _fits(t: _Place, numbers: Sequence[int]) -> bool:
    """Return whether a tensor lies in its memory, and is all of its port."""
    dims, offset, memory = [numbers[d] for d in t.dims], numbers[t.offset], numbers[t.memory]
    if t.grows:
        axis, most = t.grows
        if not 0 <= dims[axis] <= most:
            return False
        dims[axis] = most
    if min(dims, default=0) < 0 or offset < 0 or t.dtype.itemsize * prod(n or 1 for n in dims) > _MOST:
        return False  # nor has NumPy such arrays, be they empty
    nbytes = t.dtype.itemsize * prod(dims)
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
