"""The functions that a `run` may call, but for those that `calls` says are ops: elements, what is printed, library
calls. Imports `c`, `calls`, `elements`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightnet.dialects.ln.dialect import built_in_optypes
from lightnet_descriptions import c, code
from lightnet_descriptions.c import arguments, library, tree
from lightnet_descriptions.c.arithmetic import c_element_type
from lightnet_descriptions.c.machine import CMachine
from lightnet_descriptions.c.values import Raw, shown
from lightnet_descriptions.c.variables import Place
from lightnet_descriptions.calls import HANDLES, param_value
from lightnet_descriptions.elements import Element, Elements, element_operand


@c.function(3)
def _padd(machine: CMachine, data: Any, index: Any, size: Any) -> c.Pointer:
    """The address of an element: `size` is that of the elements."""
    if not isinstance(data, c.Pointer):
        raise TypeError(f"expected the data of a tensor, got {shown(data)}")
    if isinstance(data.memory, Elements):
        wanted = arguments.dtype_of(machine.dtype(data.memory.name)).tl_size  # type: ignore[attr-defined]
        if size != wanted:
            raise ValueError(f"elements of '{data.memory.name}' have {wanted} bytes, not {shown(size)}")
    return machine.moved(data, index)


@c.function(4)
def _convert(machine: CMachine, target: Any, to: Any, source: Any, dtype: Any) -> None:
    """One element, converted with saturation."""
    if not isinstance(target, c.Pointer) or not isinstance(source, c.Pointer):
        raise TypeError("tl_convert takes the addresses of two elements")
    value = source.memory.load(source.offset)
    if isinstance(target.memory, Raw):
        machine.stage(target, to, value)  # type: ignore[attr-defined]
        return
    if isinstance(target.memory, Elements):
        name = target.memory.name
        if to != machine.dtype(name):  # type: ignore[attr-defined]
            raise TypeError(f"'{name}' holds {machine.dtype(name)}, not {shown(to)}")  # type: ignore[attr-defined]
        text = element_operand(value)
        value = Element(f"sat({text}, {name})", target.memory.type)
    machine.store(_place(target), value)


def _place(target: c.Pointer) -> Any:
    return Place(
        target.memory,
        target.offset,
        tree.Type("", 0) if isinstance(target.memory, Elements) else c_element_type(target.memory),
    )


@c.function(1, None)
def _printf(machine: CMachine, form: Any, *args: Any) -> int:
    machine.said.append(arguments.formatted(arguments.string_argument(form), args))  # type: ignore[attr-defined]
    return 0


@c.function(2, None)
def _fprintf(machine: CMachine, file: Any, form: Any, *args: Any) -> int:
    _file(file)
    return _printf.call(machine, form, *args)


@c.function(2)
def _fopen(machine: CMachine, name: Any, mode: Any) -> Any:
    if arguments.string_argument(mode) != "w":
        raise ValueError(f'a file is opened for writing, "w", not {shown(mode)}')
    return c.Struct("a file", {"file": arguments.string_argument(name)})


def _file(value: Any) -> str:
    if not isinstance(value, c.Struct) or "file" not in value.fields:
        raise TypeError(f"{shown(value)} is no file")
    return value.fields["file"]


@c.function(2)
def _print(machine: CMachine, tensor: Any, form: Any) -> None:
    _show(machine, "print", tensor, {})


@c.function(3)
def _fprint(machine: CMachine, file: Any, tensor: Any, form: Any) -> None:
    _show(machine, "fprint", tensor, {"file": _file(file)})


def _show(machine: Any, optype: str, tensor: Any, params: dict[str, Any]) -> None:
    """A tensor, behind the line that was printed."""
    message, machine.said = "".join(machine.said), []
    machine.only("calls")
    machine.emit(
        built_in_optypes()[optype], [machine.tensor(tensor)], {"msg": message.removesuffix("\n"), **params}, []
    )


@c.function(4)
def _maxreduce(machine: Any, src: Any, dst: Any, arg: Any, axis: Any) -> None:
    """The maxima along an axis, and where they are if `arg` is not NULL."""
    machine.only("calls")
    known = built_in_optypes()
    operands, params = [machine.tensor(src)], {"axis": param_value(axis)}
    if arg is None:
        return machine.emit(known["maxreduce"], operands, params, [machine.tensor(dst)])
    machine.emit(known["maxreduce_arg"], operands, params, [machine.tensor(dst), machine.tensor(arg)])


@c.function(8)
def _activation(
    machine: Any, handle: Any, descriptor: Any, alpha: Any, x_desc: Any, x: Any, beta: Any, y_desc: Any, y: Any = None
) -> int:
    machine.activation(descriptor, x, y)
    return 0


@c.function(0, 1)
def _random(machine: CMachine, *args: Any) -> int:
    raise ValueError("random contents are those of `create`, seeded by the name of its tensor")


@c.function(1)
def _close(machine: CMachine, file: Any) -> int:
    _file(file)
    return 0


#: Functions that only random contents need: what calls one is a `create`.
RANDOM = ("rand", "srand", "time")


FUNCTIONS: Mapping[str, c.CFunction] = {
    **library.FUNCTIONS, **code.CHECKS, **HANDLES, "tl_padd": _padd, "tl_convert": _convert, "printf": _printf,
    "fprintf": _fprintf, "fopen": _fopen,
    "fclose": _close, "tl_tensor_print": _print, "tl_tensor_print_cuda": _print,
    "tl_tensor_fprint": _fprint, "tl_tensor_fprint_cuda": _fprint, "tl_tensor_maxreduce": _maxreduce,
    "tl_tensor_maxreduce_cuda": _maxreduce,
    "cudnnActivationForward": _activation._replace(least=8, most=8), **dict.fromkeys(RANDOM, _random),
}  # fmt: skip


#: Those of them that print.
PRINTS = ("tl_tensor_print", "tl_tensor_print_cuda", "tl_tensor_fprint", "tl_tensor_fprint_cuda", "printf", "fprintf")
