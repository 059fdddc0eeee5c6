"""A program linked into this process, and how it is called.

Each call runs on an arena of its own (arenas are kept for reuse), so calls from several threads are safe. Large inputs
and outputs are not copied: the program has ports for them (`program.is_port`), which stand for the caller's arrays and
for the new ones that a call returns. Imports NumPy, the standard library and (to link machine code) llvmlite: no xDSL,
no front end.
"""

from __future__ import annotations

import sys
from array import array as words
from collections.abc import Callable, Mapping
from ctypes import c_uint8, c_void_p
from math import prod
from typing import Any, Protocol, TextIO

import numpy as np

from lightnet.runtime.arrays import ALIGNMENT, aligned
from lightnet.runtime.calls import Invocation
from lightnet.runtime.dtypes import BY_NAME
from lightnet.runtime.growing import Growth, grow
from lightnet.runtime.pool import pool_run
from lightnet.runtime.printing import open_fprint, print_tensor
from lightnet.runtime.program import BODY_ENTRY, FRAME, HostCall, Program, sized
from lightnet.runtime.threads import processors

_ARENA, _STATIC, _HOST = range(len(FRAME))
#: Arrays by name: what tensors hold, and what a run gives.
Contents = Mapping[str, np.ndarray]
Outputs = dict[str, np.ndarray]
_NONE: Contents = {}


class Arena:
    """The memory of one call at a time: activations, the frame that the machine code gets (`program.FRAME`), what the
    ports stand for, and which input tensors hold something other than their default."""

    def __init__(self, program: Program, memory: np.ndarray | None = None):
        size = max(program.memory.get("arena", 0), 1)
        self.bytes = aligned(size, ALIGNMENT) if memory is None or memory.nbytes < size else memory
        addresses = bytes(8 * (len(FRAME) + len(program.ports)))
        self.frame = words("Q", addresses) + words("Q", program.values)
        self.frame[_ARENA] = self.bytes.ctypes.data
        self.address: int = self.frame.buffer_info()[0]
        self.ports: dict[str, np.ndarray] = {}
        self.stale: set[str] | None = None  # tensors to write before the next run; None: all of them
        self.quick: Quick | None = None  # made when it is first wanted

    def memory(self, static: np.ndarray) -> dict[str, np.ndarray]:
        """The bytes of each memory space."""
        return {"arena": self.bytes, "static": static, **self.ports}


class _Code(Protocol):
    """Machine code in this process."""

    def address(self, symbol: str) -> int:
        """The address of a global symbol; LightNetError when there is none."""

    def entry(self) -> Callable[[int], None]:
        """`ENTRY`, as a function of the address of a frame."""


class Callee(Protocol):
    """A program ready to be called, wherever it runs: an `Instance`, or a `spaces.SpacesInstance`."""

    program: Program
    static: np.ndarray
    defaults: dict[str, np.ndarray]
    inputs: dict[str, Any]

    def quick(self, feeds: Any) -> dict[str, np.ndarray] | None:
        """The result of `call` in the common case, or None."""

    def call(self, call: Invocation, static: np.ndarray | None = None, residents: Contents | None = None) -> Outputs:
        """Run once."""


Quick = Callable[["Instance", Arena, Any], dict[str, np.ndarray] | None]


class Instance:
    """A program linked into this process.

    `static` holds the bytes of the static space, `defaults` the contents of inputs and residents after loading; `code`
    is the machine code if that is loaded already (else LLVM links the program's objects).
    """

    def __init__(
        self, program: Program, static: np.ndarray, defaults: Mapping[str, np.ndarray], code: _Code | None = None
    ):
        if code is None:
            from lightnet.runtime.native import NativeCode

            code = NativeCode(program.objects)
        self.program = program
        self.static = static
        self.defaults = dict(defaults)
        self.inputs = {t.name: t for t in program.inputs}
        tensors = program.port_tensors()
        numbered = [(len(FRAME) + k, tensors[space]) for k, space in enumerate(program.ports)]
        caches = program.caches()
        self._caches = [(k, *caches[t.space]) for k, t in numbered if t.space in caches]
        numbered = [(k, t) for k, t in numbered if t.space not in caches]
        self._in_ports = [(k, t) for k, t in numbered if self.inputs.get(t.name) is t]
        self._out_ports = [(k, t) for k, t in numbered if self.inputs.get(t.name) is not t]
        self._filled = {t.name: t for t in (*program.inputs, *program.residents) if tensors.get(t.space) is not t}
        self._lost = dict(program.overwritten)
        self._native = code
        self._main = self._native.entry()
        self._body = self._native.address(BODY_ENTRY) if program.widest > 1 else 0
        self._most = min(program.bound.wanted, program.widest)
        self._static_address = static.ctypes.data
        self._idle: list[Arena] = []
        self._fed = set(self.inputs)
        self._is_plain = program.is_plain

    def apart(self) -> Instance:
        """The same program, with memory of its own."""
        static = aligned(self.static.nbytes)
        static[:] = self.static
        return Instance(self.program, static, self.defaults, self._native)

    def quick(self, feeds: Any) -> dict[str, np.ndarray] | None:
        """The result of `call` for `feeds`, where that is the common case: a dict of exactly one array an input, each
        of its very type, in a program that does nothing but compute. None for everything else, which `call` does, or
        complains of.
        """
        if not self._is_plain:
            return None
        try:
            arena = self._idle.pop()  # one bytecode: no lock is needed
        except IndexError:
            return None
        try:
            return (arena.quick or self._quick_on(arena))(self, arena, feeds)
        finally:
            arena.ports.clear()  # the arrays are the caller's
            self._idle.append(arena)

    def _quick_on(self, arena: Arena) -> Quick:
        """`quick` on one arena. A call of a network of some microseconds should not cost that again, so nothing is
        looked up or made in it that can be known here. (It holds neither this instance nor the arena, which would then
        live until the next collection of cycles.)"""
        memory = {"arena": arena.bytes, "static": self.static}
        views = [(t, t.view(memory)) for t in self._filled.values()]
        inputs = [(t.name, view.__setitem__, t.dims, view.dtype) for t, view in views]
        ports = [(t.name, t.dims, t.np_dtype, False) for _, t in self._in_ports]
        ports += [(t.name, t.dims, t.np_dtype, True) for _, t, _ in self._caches]
        copies = [(t.name, t.view(memory).copy) for t in self.program.outputs if t.space in memory]
        count, has_ports, most = len(self._fed), bool(self.program.ports), self._most
        main, address, frame, static_address = self._main, arena.address, arena.frame, self._static_address

        def quick(self: Instance, arena: Arena, feeds: Any) -> dict[str, np.ndarray] | None:
            if type(feeds) is not dict or len(feeds) != count:
                return None
            arena.stale = None
            for name, write, dims, dtype in inputs:
                array = feeds.get(name)
                if type(array) is not np.ndarray or array.shape != dims or array.dtype != dtype:
                    return None
                write(..., array)
            for name, dims, dtype, may_be_strided in ports:
                array = feeds.get(name)
                if (
                    type(array) is not np.ndarray
                    or array.shape != dims
                    or array.dtype != dtype
                    or not (may_be_strided or array.flags.c_contiguous)
                ):
                    return None
            arena.stale = self._fed
            threads = min(most, processors()) if most > 1 else 1
            if has_ports:
                made = self.bind(arena, feeds)
                self._enter(arena, self.static, 0, threads)
                return self._found(arena, self.static, made)
            if threads == 1:
                frame[_STATIC] = static_address
                main(address)
            else:
                self._enter(arena, self.static, 0, threads)
            return {name: copy() for name, copy in copies}

        arena.quick = quick
        return quick

    def call(
        self,
        call: Invocation,
        static: np.ndarray | None = None,
        residents: Contents | None = None,
        arena: Arena | None = None,
    ) -> Outputs:
        """Run once on what `call` feeds, and return the outputs, new arrays but for those that it has buffers for, in
        the program's order.

        `static` and `residents` replace the loaded contents of the static space and of residents, for this call; the
        number of threads is at most that which the program is compiled for (unless given also no more than processors).
        """
        threads, out = self.program.bound.of_call(call.threads, self._most), call.buffers or _NONE
        arrays = self.program.fed(call.feeds)
        static = self.static if static is None else static
        is_own = arena is None
        if arena is None:
            try:
                arena = self._idle.pop()
            except IndexError:
                arena = Arena(self.program)
        try:
            made = self.start(arena, {**(residents or {}), **arrays}, static, out)
            self.run(arena, static, call.stream, threads)
            return sized(self._found(arena, static, made, out), self.program.counts)
        finally:
            arena.ports.clear()
            if is_own:
                self._idle.append(arena)

    def _found(self, arena: Arena, static: np.ndarray, made: Contents, out: Contents = _NONE) -> Outputs:
        """The outputs of a run: the arrays of ports, and copies of what stands elsewhere, which go to `out` where that
        has arrays."""
        memory = arena.memory(static)
        found = {}
        for t in self.program.outputs:
            if t.name in self._lost:
                continue
            if t.name not in made and t.name in out:
                np.copyto(out[t.name], t.view(memory))
            array = made.get(t.name, out.get(t.name))
            found[t.name] = t.view(memory).copy() if array is None else array
        return found

    def start(self, arena: Arena, feeds: Contents, static: np.ndarray, out: Contents = _NONE) -> Outputs:
        """Write the inputs that need it (`fill`), and let the ports stand for arrays (`bind`): a run on `arena` starts
        from there."""
        self.fill(arena, feeds, static)
        return self.bind(arena, feeds, out)

    def fill(self, arena: Arena, feeds: Contents, static: np.ndarray) -> None:
        """Write the inputs that need it into the arena."""
        memory = {"arena": arena.bytes, "static": static}
        names = set(self._filled) if arena.stale is None else {*arena.stale, *feeds, *self.program.restore}
        arena.stale = None  # should writing fail, everything is written next time
        for name in names & self._filled.keys():
            self._filled[name].view(memory)[...] = feeds[name] if name in feeds else self.defaults[name]
        arena.stale = set(feeds)

    def bind(self, arena: Arena, feeds: Contents, out: Contents = _NONE) -> Outputs:
        """Let the ports stand for the inputs that are fed, which are contiguous, or for what they hold otherwise, and
        for the arrays of `out` that share no memory with these, or new ones: by the name of the output. What grows
        does so in the memory of what is fed."""
        made = {}
        for k, tensor in self._in_ports:
            array = feeds[tensor.name] if tensor.name in feeds else self.defaults[tensor.name]
            arena.frame[k] = array.ctypes.data
            arena.ports[tensor.space] = array.reshape(-1).view(np.uint8)
        for k, tensor in self._out_ports:
            given = out.get(tensor.name)
            if given is not None and not any(np.may_share_memory(given, fed) for fed in feeds.values()):
                array = given
            else:
                array = aligned(tensor.nbytes).view(tensor.np_dtype).reshape(tensor.dims)
            arena.ports[tensor.space] = array.reshape(-1).view(np.uint8)
            arena.frame[k] = array.ctypes.data
            made[tensor.name] = array
        for k, old, new in self._caches:
            growth = Growth(new.memory_dims, new.dims, new.grows[0], new.np_dtype)
            made[new.name], memory = grow(feeds[old.name], growth)
            arena.frame[k], arena.ports[new.space] = memory.address, np.frombuffer(memory, np.uint8)
        return made

    def run(self, arena: Arena, static: np.ndarray, stream: TextIO | None = None, threads: int = 1) -> None:
        """Run the entry function on `arena`, from where `start` leaves it. `print` ops write to `stream`."""
        if not self.program.hosts:
            self._enter(arena, static, 0, threads)
            return
        errors: list[BaseException] = []
        callback = self._host(errors, stream or sys.stdout)  # alive until the call returns
        self._enter(arena, static, c_void_p.from_buffer(callback).value or 0, threads)
        if errors:
            raise errors[0]

    def _enter(self, arena: Arena, static: np.ndarray, host: int, threads: int) -> None:
        frame = arena.frame
        frame[_STATIC] = self._static_address if static is self.static else static.ctypes.data
        frame[_HOST] = host
        threads = min(threads, self.program.widest)
        if threads == 1:
            self._main(arena.address)
        else:
            pool_run(self._native)(self._body, arena.address, threads, self.program.scratch)

    def _host(self, errors: list[BaseException], stream: TextIO) -> Any:
        from lightnet.runtime.image import HOST_FUNCTION

        def call(index: int, args: Any) -> None:
            if errors:
                return
            try:
                host_call(self.program.hosts[index], args[0], stream)
            except BaseException as e:  # must not unwind through machine code: raised after the run
                errors.append(e)

        return HOST_FUNCTION(call)


def host_call(call: HostCall, address: int, stream: TextIO) -> None:
    """Carry out a run-time call on the tensor at `address`.

    Raises LightNetError for a file that `fprint` may not write; one that the system refuses is a warning on stderr.
    """
    dtype = BY_NAME[call.dtype]
    nbytes = prod(call.dims) * dtype.size
    array = np.frombuffer((c_uint8 * nbytes).from_address(address), dtype.np).reshape(call.dims)
    if call.kind == "print":
        print_tensor(stream, call.msg, array)
        return
    try:
        with open_fprint(call.file) as file:
            print_tensor(file, call.msg, array)
    except OSError as e:
        sys.stderr.write(f"warning: fprint cannot write {call.file!a}: {e.strerror}\n")
