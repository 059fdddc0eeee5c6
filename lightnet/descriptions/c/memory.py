"""Functions on memory and texts of the code's own: what `ln_alloc` gives, arrays, buffers of char. Imports the machine
and the values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightnet.descriptions.c.arguments import formatted, integers, text, whole
from lightnet.descriptions.c.arithmetic import element_type, size_of
from lightnet.descriptions.c.functions import Function, function
from lightnet.descriptions.c.machine import Machine
from lightnet.descriptions.c.values import Buffer, Memory, Pointer, Raw, shown


@function(1)
def _alloc(machine: Machine, size: Any) -> Pointer:
    return Pointer(Raw(machine.allocate(size)))


@function(2)
def _clone(machine: Machine, source: Any, size: Any) -> Pointer:
    """A copy of the first `size` bytes of an array."""
    if not isinstance(source, Pointer) or not isinstance(source.memory, Buffer):
        raise TypeError(f"expected an array, got {shown(source)}")
    count = machine.allocate(size) // _element_size(source.memory)
    if source.offset + count > source.memory.length:
        raise IndexError(f"{size} bytes are read of {source.memory.what}, which has {source.memory.length} elements")
    return Pointer(Buffer(source.memory.type, source.elements(count), source.memory.what))


def _element_size(memory: Memory) -> int:
    return size_of(element_type(memory))


@function(1)
def _free(machine: Machine, pointer: Any) -> None:
    if pointer is not None and not isinstance(pointer, Pointer):
        raise TypeError(f"{shown(pointer)} was not allocated")


@function(3)
def _memset(machine: Machine, target: Any, value: Any, size: Any) -> Any:
    """Zeros, in the first `size` bytes."""
    if not isinstance(target, Pointer):
        raise TypeError(f"expected memory, got {shown(target)}")
    if value != 0:
        raise ValueError("memset writes zeros here: assign the elements")
    fill = getattr(target.memory, "fill", None)
    if fill is not None:
        fill(target.offset, size)
    elif isinstance(target.memory, Buffer):
        for k in range(whole(size) // _element_size(target.memory)):
            target.memory.store(target.offset + k, 0)
    return target


@function(3)
def _memmove(machine: Machine, target: Any, source: Any, size: Any) -> Any:
    if not isinstance(target, Pointer) or not isinstance(source, Pointer):
        raise TypeError("expected two arrays")
    move = getattr(target.memory, "move", None)
    if move is not None:
        move(target.offset, source, size)
        return target
    for memory in (target.memory, source.memory):
        if not isinstance(memory, Buffer):
            raise TypeError(f"{memory.what if isinstance(memory, Raw) else 'this memory'} has no type to be moved as")
    if target.memory.type != source.memory.type:
        raise TypeError(f"memory of {source.memory.type} is moved to memory of {target.memory.type}")
    count = whole(size) // _element_size(target.memory)
    machine.spend(count)
    if not 0 <= count <= source.memory.length - source.offset:
        raise IndexError(f"{size} bytes are read of {source.memory.what}, which has {source.memory.length} elements")
    for k, value in enumerate(source.elements(count)):
        target.memory.store(target.offset + k, value)
    return target


@function(2)
def _streq(machine: Machine, a: Any, b: Any) -> int:
    return int(text(a) == text(b))


@function(2)
def _strcmp(machine: Machine, a: Any, b: Any) -> int:
    return (text(a) > text(b)) - (text(a) < text(b))


@function(1)
def _strlen(machine: Machine, a: Any) -> int:
    return len(text(a))


def _write(target: Any, written: str) -> Any:
    if (
        not isinstance(target, Pointer)
        or not isinstance(target.memory, Buffer)
        or target.memory.type != "char"
        or target.offset
    ):
        raise TypeError(f"expected an array of char, got {shown(target)}")
    target.memory.set_text(written)
    return target


@function(3)
def _sprint_shape(machine: Machine, target: Any, ndim: Any, dims: Any) -> Any:
    """``[1, 3, 8]`` in an array of char."""
    return _write(target, str(integers(dims, ndim)))


@function(2, None)
def _sprintf(machine: Machine, target: Any, form: Any, *args: Any) -> int:
    written = formatted(text(form), args)
    _write(target, written)
    return len(written)


@function(3, None)
def _snprintf(machine: Machine, target: Any, size: Any, form: Any, *args: Any) -> int:
    written = formatted(text(form), args)
    _write(target, written[: max(0, whole(size) - 1)])
    return len(written)


FUNCTIONS: Mapping[str, Function] = {
    **dict.fromkeys(("ln_alloc", "malloc"), _alloc), "ln_clone": _clone, **dict.fromkeys(("ln_free", "free"), _free),
    **dict.fromkeys(("memset", "ln_memset_cuda"), _memset),
    **dict.fromkeys(("memmove", "memcpy", "ln_memcpy_h2d", "ln_memcpy_d2h", "ln_memcpy_d2d"), _memmove),
    "ln_streq": _streq, "strcmp": _strcmp, "strlen": _strlen, "ln_sprint_shape": _sprint_shape, "sprintf": _sprintf,
    "snprintf": _snprintf,
}  # fmt: skip
