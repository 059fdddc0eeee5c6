"""A program whose dims each call decides, linked into this process.

A call reads the symbols off the shapes of what it is fed, checks what is said twice, and runs the `Instance` of these
values: the same code and static tensors, on numbers where the program has dims, and with the values behind the
addresses of its frame. Nothing is compiled, and what is made for a shape (some views) is kept for the last ones. Memory
is kept, too: each call takes a room, which has grown to what shapes have needed so far. Imports dims and the runtime.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from lightnet.diagnostics import LightNetError
from lightnet.runtime.arrays import as_array
from lightnet.runtime.calls import Invocation
from lightnet.runtime.dims import Dim, Size, Symbol, at
from lightnet.runtime.instance import Contents, Instance, Outputs
from lightnet.runtime.lnx_check import Lie, check_places, checked_part
from lightnet.runtime.plain_calls import KEPT, PlainCalls, Rooms
from lightnet.runtime.program import Program, not_fed
from lightnet.runtime.size_numbers import line_of

I = TypeVar("I")


class OpenCallee(ABC, Generic[I]):
    """The instances of a program by the values of its symbols, those of the last calls; called as one of them is."""

    #: Whether the program is from a file, which may lie: then its places are checked with the numbers of each call.
    is_read = False

    def __init__(self, program: Program, static: np.ndarray, defaults: Mapping[str, np.ndarray]):
        self.program, self.static, self.defaults = program, static, dict(defaults)
        self.inputs = {t.name: t for t in program.inputs}
        self._made: OrderedDict[tuple[int, ...], I] = OrderedDict()
        self._making = threading.Lock()

    @abstractmethod
    def made(self, program: Program) -> I:
        """The instance of the program of a call."""

    def check(self, program: Program) -> None:
        """Raise `Lie` where something in the program of a call lies outside of its memory."""
        check_places(program)

    def of(self, values: tuple[int, ...]) -> I:
        """The instance where the symbols have these values, in the order of `Program.symbols`."""
        with self._making:
            if (found := self._made.get(values)) is not None:
                self._made.move_to_end(values)
                return found
            program = self.program.at(values)
            if self.is_read:
                self._check_read(program)
            found = self._made[values] = self.made(program)
            while len(self._made) > KEPT:
                self._made.popitem(last=False)
            return found

    def of_feeds(self, feeds: Mapping[str, Any]) -> I:
        """The instance of a call on what is fed. Raises `LightNetError` for what does not fit."""
        self.program.check_fed(feeds)
        return self.of(bound_values(self.program, fed_shapes(feeds)))

    def _check_read(self, program: Program) -> None:
        try:
            checked_part(lambda: self.check(program))
        except Lie as error:
            said = ", ".join(f"{s.name} is {n}" for s, n in zip(self.program.symbols, program.values))
            raise LightNetError(f"the executable lies where {said}: {error}", label="lnx.header") from None


class OpenInstance(OpenCallee[Instance]):
    """The instances of machine code; they share memory, a room a call."""

    def __init__(self, program: Program, static: np.ndarray, defaults: Mapping[str, np.ndarray], code: Any = None):
        if code is None:
            from lightnet.runtime.native import NativeCode

            code = NativeCode(program.objects)
        super().__init__(program, static, defaults)
        self._code = code
        self._rooms = Rooms(program, static)
        self._plain = PlainCalls.of(program, self._rooms, code)

    def made(self, program: Program) -> Instance:
        return Instance(program, self.static, self.defaults, self._code)

    def quick(self, feeds: Any) -> dict[str, np.ndarray] | None:
        """The result of `call` in the common case, or None."""
        return self._plain(feeds) if self._plain is not None and type(feeds) is dict else None

    def call(self, call: Invocation, static: np.ndarray | None = None, residents: Contents | None = None) -> Outputs:
        """Run once, on the shapes of what is fed."""
        instance = self.of_feeds(call.feeds)
        room = self._rooms.take()
        found = instance.call(call, static, residents, room.arena(instance))
        self._rooms.give(room)
        return found


def fed_shapes(feeds: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shapes of what is fed, by name. Raises `LightNetError` for what is no array."""
    return {name: (v if isinstance(v, np.ndarray) else as_array(name, v)).shape for name, v in feeds.items()}


def bound_values(program: Program, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """The values of a program's symbols in a call on inputs of these shapes. Raises as `call_values`."""
    values = call_values({t.name: t.dims for t in (*program.inputs, *program.unread)}, shapes, program.symbols)
    return tuple(values[s.name] for s in program.symbols)


def call_values(
    dims: Mapping[str, Sequence[Size]], shapes: Mapping[str, tuple[int, ...]], symbols: Iterable[Symbol]
) -> dict[str, int]:
    """The values of symbols by name in a call in which inputs that have these dims have these shapes. Raises
    `LightNetError` for a shape that does not fit, two that do not fit together, a value out of its range, and one that
    no input says."""
    values: dict[str, int] = {}
    said: dict[str, str] = {}
    fed = {name: of for name, of in dims.items() if name in shapes}
    for name, of in fed.items():
        if len(of) != len(shapes[name]):
            raise _misshapen(name, of, shapes[name])
        for axis, (dim, got) in enumerate(zip(of, shapes[name])):
            if (solved := _solved(dim, got)) is not None and solved[0].name not in values:
                symbol, value = solved
                try:
                    if value is None:
                        raise ValueError(f"{dim!s} is never that")
                    symbol.check(value)
                except ValueError as e:
                    raise LightNetError(f"dim {axis} of '{name}' is {got}: {e}", label="feed.range") from None
                values[symbol.name], said[symbol.name] = value, f"dim {axis} of '{name}'"
    if missing := [s.name for s in symbols if s.name not in values]:
        unfed = {n: str(list(of)) for n, of in dims.items() if n not in shapes and any(isinstance(d, Dim) for d in of)}
        raise not_fed(unfed or dict.fromkeys(missing, ""))
    for name, of in fed.items():
        for axis, (dim, got) in enumerate(zip(of, shapes[name])):
            if at(dim, values) != got:
                who = [f"{s.name} is {values[s.name]} by {said[s.name]}" for s in _symbols(dim)]
                why = f": dim {axis} should be {at(dim, values)}, as {' and '.join(who)}" if who else ""
                raise _misshapen(name, of, shapes[name], why)
    return values


def _symbols(size: Size) -> list[Symbol]:
    return sorted(size.symbols, key=lambda s: s.name) if isinstance(size, Dim) else []


def _solved(dim: Size, got: int) -> tuple[Symbol, int | None] | None:
    """The symbol that a dim is a multiple of, but for a constant, and its value where the dim is `got` (None where it
    is so for no number); None for any other dim."""
    if (line := line_of(dim)) is None:
        return None
    symbol, factor, rest = line
    units, left = divmod(got - rest, factor)
    return symbol, None if left else units * symbol.multiple


def _misshapen(name: str, dims: Sequence[Size], got: tuple[int, ...], why: str = "") -> LightNetError:
    text = ", ".join(map(str, dims))
    return LightNetError(f"'{name}' has shape [{text}], but gets {list(got)}{why}", label="feed.shape")
