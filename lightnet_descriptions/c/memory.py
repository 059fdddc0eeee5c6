"""Functions on memory and texts of the code's own: what `ln_alloc` gives, arrays, buffers of char. Imports the machine
and the values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightnet_descriptions.c.arguments import formatted, integers, string_argument, whole
from lightnet_descriptions.c.arithmetic import c_element_type, c_size_of
from lightnet_descriptions.c.functions import CFunction, function
from lightnet_descriptions.c.machine import CMachine
from lightnet_descriptions.c.values import CBuffer, CMemory, Pointer, Raw, shown


@function(1)
def _alloc(machine: CMachine, size: Any) -> Pointer:
    return Pointer(Raw(machine.allocate(size)))


@function(2)
def _clone(machine: CMachine, source: Any, size: Any) -> Pointer:
    """A copy of the first `size` bytes of an array."""
    if not isinstance(source, Pointer) or not isinstance(source.memory, CBuffer):
        raise TypeError(f"expected an array, got {shown(source)}")
    count = machine.allocate(size) // _element_size(source.memory)
    if source.offset + count > source.memory.length:
        raise IndexError(f"{size} bytes are read of {source.memory.what}, which has {source.memory.length} elements")
    return Pointer(CBuffer(source.memory.type, source.elements(count), source.memory.what))


def _element_size(memory: CMemory) -> int:
    return c_size_of(c_element_type(memory))


@function(1)
def _free(machine: CMachine, pointer: Any) -> None:
    if pointer is not None and not isinstance(pointer, Pointer):
        raise TypeError(f"{shown(pointer)} was not allocated")


@function(3)
def _memset(machine: CMachine, target: Any, value: Any, size: Any) -> Any:
    """Zeros, in the first `size` bytes."""
    if not isinstance(target, Pointer):
        raise TypeError(f"expected memory, got {shown(target)}")
    if value != 0:
        raise ValueError("memset writes zeros here: assign the elements")
    fill = getattr(target.memory, "fill", None)
    if fill is not None:
        fill(target.offset, size)
    elif isinstance(target.memory, CBuffer):
        for k in range(whole(size) // _element_size(target.memory)):
            target.memory.store(target.offset + k, 0)
    return target


@function(3)
def _memmove(machine: CMachine, target: Any, source: Any, size: Any) -> Any:
    if not isinstance(target, Pointer) or not isinstance(source, Pointer):
        raise TypeError("expected two arrays")
    move = getattr(target.memory, "move", None)
    if move is not None:
        move(target.offset, source, size)
        return target
    for memory in (target.memory, source.memory):
        if not isinstance(memory, CBuffer):
            raise TypeError(f"{memory.what if isinstance(memory, Raw) else 'this memory'} has no type to be moved as")
    if target.memory.type != source.memory.type:
        raise TypeError(f"memory of {source.memory.type} is moved to memory of {target.memory.type}")
    count = whole(size) // _element_size(target.memory)
    if not 0 <= count <= source.memory.length - source.offset:
        raise IndexError(f"{size} bytes are read of {source.memory.what}, which has {source.memory.length} elements")
    for k, value in enumerate(source.elements(count)):
        target.memory.store(target.offset + k, value)
    return target


@function(2)
def _streq(machine: CMachine, a: Any, b: Any) -> int:
    return int(string_argument(a) == string_argument(b))


@function(2)
def _strcmp(machine: CMachine, a: Any, b: Any) -> int:
    return (string_argument(a) > string_argument(b)) - (string_argument(a) < string_argument(b))


@function(1)
def _strlen(machine: CMachine, a: Any) -> int:
    return len(string_argument(a))


def _write(target: Any, written: str) -> Any:
    if (
        not isinstance(target, Pointer)
        or not isinstance(target.memory, CBuffer)
        or target.memory.type != "char"
        or target.offset
    ):
        raise TypeError(f"expected an array of char, got {shown(target)}")
    target.memory.set_text(written)
    return target


@function(3)
def _sprint_shape(machine: CMachine, target: Any, ndim: Any, dims: Any) -> Any:
    """``[1, 3, 8]`` in an array of char."""
    return _write(target, str(integers(dims, ndim)))


@function(2, None)
def _sprintf(machine: CMachine, target: Any, form: Any, *args: Any) -> int:
    written = formatted(string_argument(form), args)
    _write(target, written)
    return len(written)


@function(3, None)
def _snprintf(machine: CMachine, target: Any, size: Any, form: Any, *args: Any) -> int:
    written = formatted(string_argument(form), args)
    _write(target, written[: max(0, whole(size) - 1)])
    return len(written)


FUNCTIONS: Mapping[str, CFunction] = {
    **dict.fromkeys(("ln_alloc", "malloc"), _alloc), "ln_clone": _clone, **dict.fromkeys(("ln_free", "free"), _free),
    **dict.fromkeys(("memset", "ln_memset_cuda"), _memset),
    **dict.fromkeys(("memmove", "memcpy", "ln_memcpy_h2d", "ln_memcpy_d2h", "ln_memcpy_d2d"), _memmove),
    "ln_streq": _streq, "strcmp": _strcmp, "strlen": _strlen, "ln_sprint_shape": _sprint_shape, "sprintf": _sprintf,
    "snprintf": _snprintf,
}  # fmt: skip
