"""A compiled network: machine code, memory sizes, and where each named tensor stands; and how it is called.

Imports NumPy, the standard library and (to link machine code) llvmlite: no xDSL, no front end. A `Program` is immutable
data; `Instance` is a program linked into this process with the contents of its static tensors; each call runs on an arena
of its own (arenas are kept for reuse), so calls from several threads are safe.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from ctypes import c_uint8, c_void_p
from dataclasses import asdict, dataclass, fields
from math import prod
from typing import Any, NamedTuple, Protocol, TextIO

import numpy as np

from lightnet.diagnostics import LightNetError
from lightnet.runtime.arrays import ALIGNMENT, aligned, checked_array
from lightnet.runtime.dtypes import BY_NAME
from lightnet.runtime.pool import pool_run
from lightnet.runtime.printing import open_fprint, print_tensor
from lightnet.runtime.threads import MAX_THREADS, threads_of_call

__all__ = ["ALIGNMENT", "ENTRY", "Arena", "HostCall", "Instance", "Program", "Tensor", "aligned", "checked_array"]

#: The symbol of the machine entry, ``void (ptr arena, ptr static, ptr host)``: the emitter defines it, the linker finds it.
ENTRY = "ln_main"
#: That of what each thread of a run does, ``void (ptr arena, ptr static, ptr host, i64 thread, i64 threads, ptr barrier)``.
BODY = "ln_body"


@dataclass(frozen=True)
class Tensor:
    """A named tensor: its type and its place (memory space and byte offset)."""

    name: str
    dims: tuple[int, ...]
    dtype: str
    space: str
    offset: int

    @property
    def nbytes(self) -> int:
        return prod(self.dims) * BY_NAME[self.dtype].size

    def view(self, memory: Mapping[str, np.ndarray]) -> np.ndarray:
        """The tensor's bytes in `memory` as an array (no copy)."""
        raw = memory[self.space][self.offset : self.offset + self.nbytes]
        return raw.view(BY_NAME[self.dtype].np).reshape(self.dims)


@dataclass(frozen=True)
class HostCall:
    """A run-time call in the order of the program: `kind` is ``print`` or ``fprint``."""

    kind: str
    msg: str
    dims: tuple[int, ...]
    dtype: str
    file: str = ""


@dataclass(frozen=True)
class Program:
    """What the compiler hands over.

    `memory` maps a space to its size in bytes. `inputs` are the tensors that a call may feed, and those in `required` must be
    fed, having no contents of their own; `unread` are inputs of the network that nothing reads; `residents` are further tensors
    of the arena that are filled at load (in a plan of upstream's kind, where params stand in the arena), `restore` names
    those of both that the program itself overwrites: every call writes them again. `params` are fixed when the program is
    loaded. `overwritten` lists outputs that are gone when a run ends, with the op that writes over them (only plans of
    upstream's kind have any). `fused` names tensors of the source network that passes removed, `reused` those whose memory
    serves others later: both for clear errors only. `threads` is how many it is compiled for, `widest` how many
    any launch makes use of (with more than one, the objects have the pool). `cpu`, `features` and `triple` are those of the machine code.
    """

    objects: tuple[bytes, ...]
    memory: dict[str, int]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    params: tuple[str, ...]
    hosts: tuple[HostCall, ...] = ()
    residents: tuple[Tensor, ...] = ()
    restore: tuple[str, ...] = ()
    overwritten: tuple[tuple[str, str], ...] = ()
    fused: tuple[str, ...] = ()
    reused: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    unread: tuple[Tensor, ...] = ()
    threads: int = 1
    widest: int = 1
    cpu: str = ""
    features: str = ""
    triple: str = ""

    def header(self) -> dict[str, Any]:
        """Everything but the machine code, as JSON values."""
        return {k: v for k, v in asdict(self).items() if k != "objects"}

    @classmethod
    def from_header(cls, header: Mapping[str, Any], objects: tuple[bytes, ...]) -> Program:
        """The program of a header; ValueError, TypeError or KeyError when it is none."""
        values: dict[str, Any] = {}
        for f in fields(cls):
            if f.name == "objects":
                continue
            value = header[f.name]
            if f.name in ("inputs", "outputs", "residents", "unread"):
                value = tuple(Tensor(**{**t, "dims": tuple(t["dims"])}) for t in value)
            elif f.name == "hosts":
                value = tuple(HostCall(**{**h, "dims": tuple(h["dims"])}) for h in value)
            elif isinstance(value, list):
                value = tuple(tuple(v) if isinstance(v, list) else v for v in value)
            values[f.name] = value
        program = cls(objects=objects, **values)
        for t in (*program.inputs, *program.outputs, *program.residents):
            if not 0 <= t.offset <= t.offset + t.nbytes <= program.memory[t.space]:
                raise ValueError(f"tensor '{t.name}' lies outside its memory")
        if not 1 <= program.widest <= program.threads <= MAX_THREADS:
            raise ValueError("a number of threads that there cannot be")
        return program

    def pick(self, names: Iterable[str] | None, run: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """The outputs called `names` of a run (all if None); a name that cannot be read is an error before the run."""
        if names is None:
            return run()
        names = [names] if isinstance(names, str) else list(names)
        readable = {t.name for t in self.outputs} - {name for name, _ in self.overwritten}
        for name in names:
            if name not in readable:
                raise self.unreadable(name)
        found = run()
        return {name: found[name] for name in names}

    def check_fed(self, names: Iterable[str]) -> None:
        """Raise LightNetError where an input that a call must feed is not among `names`."""
        fed = set(names)
        if missing := [name for name in self.required if name not in fed]:
            types = {t.name: f"{t.dtype}{list(t.dims)}" for t in self.inputs}
            raise not_fed({name: types.get(name, "?") for name in missing})

    def unreadable(self, name: str) -> LightNetError:
        """Why the tensor `name` cannot be read after a run, and what to do."""
        by = dict(self.overwritten).get(name)
        if by is not None:
            return LightNetError(
                f"output '{name}' is overwritten by '{by}': this plan, as upstream's, keeps nothing that no "
                "op reads; compile with the default plan"
            )
        if name in self.fused:
            return LightNetError(
                f"tensor '{name}' does not exist in the compiled network: a pass (fusion) removed it; keep "
                f"it with outputs=['{name}'] at compile time"
            )
        if name in self.reused:
            return LightNetError(
                f"tensor '{name}' is an intermediate result, whose memory is used again; keep it with "
                f"outputs=['{name}'] at compile time"
            )
        return unknown("tensor", name, [*(t.name for t in self.outputs), *self.fused, *self.reused])


def not_fed(missing: Mapping[str, str]) -> LightNetError:
    """The error for inputs that a call must feed; `missing` maps their names to what they take ("" where that is open)."""
    what = ", ".join(f"'{name}'{takes and f' ({takes})'}" for name, takes in missing.items())
    return LightNetError(
        f"the network needs {'inputs' if len(missing) > 1 else 'input'} {what}, which no one fed "
        f"(at the command line: -i {next(iter(missing))}=@file.npy, or -i random)"
    )


def unknown(what: str, name: object, known: Iterable[str]) -> LightNetError:
    """The error for a name that is not there, with those it may be meant for."""
    names = list(known)
    from difflib import get_close_matches

    near = get_close_matches(str(name), names, 3) or names[:8]
    there = ", ".join(near) + (", ..." if len(names) > len(near) else "") if near else "none"
    return LightNetError(f"no {what} is called '{name}'; there are: {there}")


class Ports(NamedTuple):
    """Where a call writes its inputs in an arena and reads its outputs, by name, and the addresses of arena and static space."""

    inputs: tuple[tuple[str, np.ndarray], ...]
    outputs: tuple[tuple[str, np.ndarray], ...]
    addresses: tuple[int, int]


class Arena:
    """The memory of one call at a time: activations, and which input tensors hold something other than their default."""

    def __init__(self, nbytes: int):
        self.bytes = aligned(max(nbytes, 1), ALIGNMENT)
        self.stale: set[str] | None = None  # tensors to write before the next run; None: all of them
        self.ports: Ports | None = None  # made when a call first needs them


class Code(Protocol):
    """Machine code in this process."""

    def address(self, symbol: str) -> int:
        """The address of a global symbol; LightNetError when there is none."""

    def entry(self) -> Callable[[int, int, int | None], None]:
        """`ENTRY`, as a function of the addresses of the arena, the static space and a host function (or None)."""


class Instance:
    """A program linked into this process.

    `static` holds the bytes of the static space, `defaults` the contents of inputs and residents after loading; `code` is the
    machine code if that is loaded already (else LLVM links the program's objects).
    """

    def __init__(
        self, program: Program, static: np.ndarray, defaults: Mapping[str, np.ndarray], code: Code | None = None
    ):
        if code is None:
            from lightnet.runtime.native import NativeCode

            code = NativeCode(program.objects)
        self.program = program
        self.static = static
        self.defaults = dict(defaults)
        self.inputs = {t.name: t for t in program.inputs}
        self._filled = {t.name: t for t in (*program.inputs, *program.residents)}
        self._lost = dict(program.overwritten)
        self._native = code
        self._main = self._native.entry()
        self._body = self._native.address(BODY) if program.widest > 1 else 0
        self._idle: list[Arena] = []
        self._lock = threading.Lock()
        self._fed = set(self.inputs)
        self._is_plain = bool(self.inputs) and not (
            program.hosts or program.residents or program.overwritten or program.restore or program.unread
        )

    def quick(self, feeds: Any) -> dict[str, np.ndarray] | None:
        """What `call` gives for `feeds`, where that is the common case: a dict of exactly one array an input, each of its very type,
        in a program that does nothing but compute. None for everything else, which `call` does, or complains of.

        A call of a network of some microseconds should not cost that again: nothing is looked up or made here that can be known.
        """
        if not self._is_plain or type(feeds) is not dict or len(feeds) != len(self._fed):
            return None
        try:
            arena = self._idle.pop()  # one bytecode: no lock is needed
        except IndexError:
            return None
        try:
            ports = arena.ports or self._ports(arena)
            for name, view in ports.inputs:
                array = feeds.get(name)
                if type(array) is not np.ndarray or array.shape != view.shape or array.dtype != view.dtype:
                    arena.stale = None
                    return None
                view[...] = array
            arena.stale = self._fed
            if self.program.widest == 1:
                self._main(*ports.addresses, None)
            else:
                pool_run(self._native)(self._body, *ports.addresses, None, self.program.widest)
            return {name: view.copy() for name, view in ports.outputs}
        finally:
            self._idle.append(arena)

    def _ports(self, arena: Arena) -> Ports:
        memory = {"arena": arena.bytes, "static": self.static}
        arena.ports = Ports(
            tuple((t.name, t.view(memory)) for t in self.program.inputs),
            tuple((t.name, t.view(memory)) for t in self.program.outputs),
            (arena.bytes.ctypes.data, self.static.ctypes.data),
        )
        return arena.ports

    def call(
        self,
        feeds: Mapping[str, Any],
        *,
        static: np.ndarray | None = None,
        stream: TextIO | None = None,
        residents: Mapping[str, np.ndarray] | None = None,
        threads: int | None = None,
    ) -> dict[str, np.ndarray]:
        """Run once on `feeds` (input name → array) and return copies of the outputs in the program's order.

        `static` and `residents` replace the loaded contents of the static space and of residents, for this call; `threads`
        is the number of threads, at most (and unless given) that which the program is compiled for.
        """
        threads = threads_of_call(threads, self.program.threads)
        arrays = {name: self.checked(name, value) for name, value in feeds.items()}
        self.program.check_fed(arrays)
        for tensor in self.program.unread:
            arrays.pop(tensor.name, None)
        static = self.static if static is None else static
        with self._lock:
            arena = self._idle.pop() if self._idle else None
        arena = arena or Arena(self.program.memory.get("arena", 0))
        try:
            self.run(arena, {**(residents or {}), **arrays}, static, stream, threads)
            memory = {"arena": arena.bytes, "static": static}
            return {t.name: t.view(memory).copy() for t in self.program.outputs if t.name not in self._lost}
        finally:
            with self._lock:
                self._idle.append(arena)

    def run(
        self,
        arena: Arena,
        feeds: Mapping[str, np.ndarray],
        static: np.ndarray,
        stream: TextIO | None = None,
        threads: int = 1,
    ) -> None:
        """Write the inputs that need it, then run the entry function on `arena`."""
        self.fill(arena, feeds, static)
        if not self.program.hosts:
            self.main(arena, static, threads)
            return
        errors: list[BaseException] = []
        callback = self._host(errors, stream or sys.stdout)  # alive until the call returns
        self._enter(arena, static, c_void_p.from_buffer(callback).value, threads)
        if errors:
            raise errors[0]

    def main(self, arena: Arena, static: np.ndarray, threads: int = 1) -> None:
        """Run the entry function of a program without host calls."""
        self._enter(arena, static, None, threads)

    def _enter(self, arena: Arena, static: np.ndarray, host: int | None, threads: int) -> None:
        memory = arena.bytes.ctypes.data, static.ctypes.data
        threads = min(threads, self.program.widest)
        if threads == 1:
            self._main(*memory, host)
        else:
            pool_run(self._native)(self._body, *memory, host, threads)

    def fill(self, arena: Arena, feeds: Mapping[str, np.ndarray], static: np.ndarray) -> None:
        """Write the inputs that need it: a run on `arena` starts from there."""
        memory = {"arena": arena.bytes, "static": static}
        names = set(self._filled) if arena.stale is None else {*arena.stale, *feeds, *self.program.restore}
        arena.stale = None  # should writing fail, everything is written next time
        for name in names:
            self._filled[name].view(memory)[...] = feeds[name] if name in feeds else self.defaults[name]
        arena.stale = set(feeds)

    def checked(self, name: str, value: Any) -> np.ndarray:
        """`value` as an array of input `name`'s type (`arrays.checked_array`)."""
        tensor = self.inputs.get(name) or next((t for t in self.program.unread if t.name == name), None)
        if tensor is None:
            if name in self.program.params:
                raise LightNetError(f"param '{name}' is fixed in a saved executable: save one with other weights")
            raise unknown("input", name, self.inputs)
        return checked_array(name, value, tensor.dims, BY_NAME[tensor.dtype])

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
