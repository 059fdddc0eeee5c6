"""A compiled network: machine code, memory sizes, and where each named tensor stands; and how it is called.

Imports NumPy, the standard library and (to link machine code) llvmlite: no xDSL, no front end. A `Program` is immutable
data; `Instance` is a program linked into this process with the contents of its static tensors; each call runs on an arena
of its own (arenas are kept for reuse), so calls from several threads are safe.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from ctypes import CFUNCTYPE, POINTER, c_int64, c_void_p
from dataclasses import asdict, dataclass, field
from typing import Any, TextIO

import numpy as np

from lightnet.diagnostics import LightNetError
from lightnet.runtime.dtypes import BY_NAME, BY_NP, DType
from lightnet.runtime.printing import fprint_path, print_tensor

ALIGNMENT = 64


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
        return int(np.prod(self.dims)) * BY_NAME[self.dtype].size

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
    """What the compiler hands over. `memory` maps a space to its size in bytes; `restore` lists byte ranges of the static
    space that the program itself overwrites (only upstream's plans do), which every call restores first."""

    objects: tuple[bytes, ...]
    memory: dict[str, int]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    params: tuple[str, ...]
    hosts: tuple[HostCall, ...] = ()
    cpu: str = ""
    features: str = ""
    #: Names of tensors that stand nowhere in the compiled program (fused away), for clear errors.
    fused: tuple[str, ...] = ()
    single_space: bool = False
    extra: dict[str, Any] = field(default_factory=dict)

    def header(self) -> dict[str, Any]:
        """Everything but the machine code, as JSON values."""
        return {k: v for k, v in asdict(self).items() if k != "objects"}

    @classmethod
    def from_header(cls, header: Mapping[str, Any], objects: tuple[bytes, ...]) -> Program:
        fields = dict(header)
        for key in ("inputs", "outputs"):
            fields[key] = tuple(Tensor(**{**t, "dims": tuple(t["dims"])}) for t in fields[key])
        fields["hosts"] = tuple(HostCall(**{**h, "dims": tuple(h["dims"])}) for h in fields["hosts"])
        fields["params"], fields["fused"] = tuple(fields["params"]), tuple(fields["fused"])
        return cls(objects=objects, **fields)


def aligned(nbytes: int, alignment: int = ALIGNMENT) -> np.ndarray:
    """Uninitialised bytes at an aligned address. Raises `LightNetError` when there is not enough memory."""
    try:
        raw = np.empty(nbytes + alignment, np.uint8)
    except (MemoryError, ValueError):
        raise LightNetError(f"cannot allocate {nbytes} bytes for a compiled network") from None
    start = -raw.ctypes.data % alignment
    return raw[start : start + nbytes]


class Arena:
    """The memory of one call at a time: activations, and which input tensors hold something other than their default."""

    def __init__(self, nbytes: int):
        self.bytes = aligned(max(nbytes, 1))
        self.stale: set[str] | None = None  # inputs to write before the next run; None: all of them


_HOST = CFUNCTYPE(None, c_int64, POINTER(c_void_p))


class Instance:
    """A program linked into this process.

    `static` holds the static tensors, `defaults` the contents that inputs have unless a call feeds them.
    """

    def __init__(self, program: Program, static: np.ndarray, defaults: Mapping[str, np.ndarray]):
        from lightnet.runtime.native import NativeCode

        self.program = program
        self.static = static
        self.defaults = dict(defaults)
        self.inputs = {t.name: t for t in program.inputs}
        self.outputs = {t.name: t for t in program.outputs}
        self._native = NativeCode(program.objects)
        self._main = self._native.entry()
        self._idle: list[Arena] = []
        self._lock = threading.Lock()

    def call(self, feeds: Mapping[str, Any], *, static: np.ndarray | None = None,
             stream: TextIO | None = None) -> dict[str, np.ndarray]:  # fmt: skip
        """Run once on `feeds` (input name → array) and return copies of the outputs in the program's order."""
        arrays = {name: self.checked(name, value) for name, value in feeds.items()}
        with self._lock:
            arena = self._idle.pop() if self._idle else Arena(self.program.memory.get("arena", 0))
        try:
            self.run(arena, arrays, self.static if static is None else static, stream)
            memory = {"arena": arena.bytes, "static": self.static if static is None else static}
            return {t.name: t.view(memory).copy() for t in self.program.outputs}
        finally:
            with self._lock:
                self._idle.append(arena)

    def run(self, arena: Arena, feeds: Mapping[str, np.ndarray], static: np.ndarray, stream: TextIO | None = None) -> None:
        """Write the inputs that need it, then run the entry function on `arena`."""
        memory = {"arena": arena.bytes, "static": static}
        write = set(self.inputs) if arena.stale is None or self.program.single_space else arena.stale | set(feeds)
        for name in write:
            self.inputs[name].view(memory)[...] = feeds[name] if name in feeds else self.defaults[name]
        if self.program.single_space:  # upstream's plans: params stand in the arena, and ops may write over them
            arena.bytes[: len(static)] = static
            for name in feeds:
                self.inputs[name].view(memory)[...] = feeds[name]
        arena.stale = set(feeds)
        errors: list[BaseException] = []
        host = self._host(errors, stream) if self.program.hosts else None
        self._main(arena.bytes.ctypes.data, static.ctypes.data, host)
        if errors:
            raise errors[0]

    def checked(self, name: str, value: Any) -> np.ndarray:
        """`value` as an array of input `name`'s type; shapes must agree, dtypes must convert without loss."""
        tensor = self.inputs.get(name)
        if tensor is None:
            raise LightNetError(f"no input is called '{name}'; there are: {', '.join(self.inputs) or 'none'}")
        return checked_array(name, value, tensor.dims, BY_NAME[tensor.dtype])

    def _host(self, errors: list[BaseException], stream: TextIO | None) -> Any:
        def call(index: int, args: Any) -> None:
            try:
                host_call(self.program.hosts[index], args[0], stream or sys.stdout)
            except BaseException as e:  # must not unwind through machine code: raised after the run
                errors.append(e)

        self._keep = _HOST(call)
        return c_void_p.from_buffer(self._keep).value


def host_call(call: HostCall, address: int, stream: TextIO) -> None:
    """Carry out a run-time call on the tensor at `address`."""
    from ctypes import c_uint8

    dtype = BY_NAME[call.dtype]
    nbytes = int(np.prod(call.dims)) * dtype.size
    array = np.frombuffer((c_uint8 * nbytes).from_address(address), dtype.np).reshape(call.dims)
    if call.kind == "print":
        print_tensor(stream, call.msg, array)
        return
    with open(fprint_path(call.file), "w") as f:
        print_tensor(f, call.msg, array)


def checked_array(name: str, value: Any, dims: tuple[int, ...], dtype: DType) -> np.ndarray:
    """`value` as an array of the given type. Raises `LightNetError` when the shape differs or the dtype would lose."""
    array = np.asarray(value)
    if array.dtype not in BY_NP:
        raise LightNetError(f"'{name}' takes {dtype.name}, but gets an array of {array.dtype}")
    if array.shape != dims:
        raise LightNetError(f"'{name}' has shape {list(dims)}, but gets {list(array.shape)}")
    if array.dtype != dtype.np and not (isinstance(value, list | tuple | int | float) or np.can_cast(array.dtype, dtype.np)):
        raise LightNetError(f"'{name}' takes {dtype.np}, but gets {array.dtype}; convert it first")
    return np.ascontiguousarray(array, dtype.np)
