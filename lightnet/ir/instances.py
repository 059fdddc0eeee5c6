"""The static ops that open ones are in a call: the same op where symbols have numbers.

What only costs time is decided for the *typical* one (`Symbol.typical`), so that no model of time knows of symbols.
Imports `ir`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntAttr, IntegerAttr, ModuleOp, TensorType
from xdsl.ir import Attribute, Block, Operation, SSAValue

from lightnet.diagnostics import LightNetError
from lightnet.ir.kernel import KernelOp
from lightnet.ir.layout import layout_of, with_layout
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import size_attr
from lightnet.ir.op import LnOp
from lightnet.ir.place import PlaceAttr
from lightnet.ir.types import DimsAttr, ParamAttr, TensorSpec, spec_of, tensor_type
from lightnet.runtime.dims import Dim, Size, Symbol, typical, with_sizes

O = TypeVar("O", bound=LnOp)
#: What a size becomes, and what the dims of a tensor do.
Change = Callable[[Size], Size]
ChangeDims = Callable[[tuple[Size, ...]], tuple[Size, ...]]


def is_open(values: Sequence[SSAValue]) -> bool:
    """Return whether a dim of one of the values' types is for a call to decide."""
    return any(spec_of(v.type).open_dims for v in values)


def is_open_value(value: Any) -> bool:
    """Return whether the value of a parameter has a size in it that a call decides."""
    return any(isinstance(v, Dim) for v in (value if isinstance(value, tuple) else (value,)))


def is_open_op(op: Operation) -> bool:
    """Return whether an op computes something else from the same operands where a call decides other sizes: a result
    has an open dim, or a parameter one of these sizes."""
    ops = [op, *op.walk()] if op.regions else [op]
    return is_open(op.results) or any(
        isinstance(a, ParamAttr) and is_open_value(a.data) for o in ops for a in o.properties.values()
    )


def with_dims(type: Attribute, change: ChangeDims) -> Attribute:
    """A tensor type with other dims, in its layout."""
    spec = spec_of(type)
    new = tensor_type(TensorSpec(change(spec.dims), spec.dtype))
    layout = layout_of(type)
    return new if layout.is_plain else with_layout(new, layout)


def changed_type(type: Attribute, change: Change) -> Attribute:
    """A tensor type with other sizes, in its layout."""
    return with_dims(type, lambda dims: tuple(map(change, dims)))


def changed_value(value: Any, change: Change) -> Any:
    """The value of a parameter with other sizes."""
    if isinstance(value, tuple | list):
        return tuple(changed_value(v, change) for v in value)
    return change(value) if isinstance(value, Dim) else value


def changed_op(op: O, operands: Sequence[SSAValue], dims: ChangeDims, size: Change) -> O:
    """The op on operands that have other dims: those of its results become `dims`, and sizes in its parameters
    `size`."""
    params = {name: changed_value(v, size) for name, v in op.written_params().items()}
    types = [with_dims(r.type, dims) for r in op.results]
    new = type(op).build_unchecked(operands, params, [*map(spec_of, types)], name=op.op_name, location=op.location)
    for result, found in zip(new.results, types):
        result._type = found
    return new


def typical_op(op: O, typical: Change = typical) -> O:
    """The op where dims have typical values (or what `typical` gives for them), on arguments of a block of its own;
    itself where it is static."""
    if not is_open(op.operands) and not is_open_op(op):
        return op
    block = Block(arg_types=[changed_type(v.type, typical) for v in op.operands])
    new = changed_op(op, list(block.args), lambda dims: tuple(map(typical, dims)), typical)
    block.add_op(new)
    return new


def changed_body(
    ops: Sequence[LnOp], outside: Sequence[SSAValue], dims: ChangeDims, size: Change
) -> tuple[Block, dict[SSAValue, SSAValue]]:
    """A block with copies of ops, where what comes from `outside`, its arguments, has other `dims`, and what each value
    is in it; `size` changes those in parameters. Raises what these do."""
    block = Block(arg_types=[with_dims(v.type, dims) for v in outside])
    for argument, value in zip(block.args, outside):
        argument.name_hint = value.name_hint
    known: dict[SSAValue, SSAValue] = dict(zip(outside, block.args))
    for op in ops:
        made = changed_op(op, [known[v] for v in op.operands], dims, size)
        known.update(zip(op.results, made.results))
        block.add_op(made)
    return block, known


def changed_kernel(kernel: KernelOp, dims: ChangeDims, size: Change, choices: Mapping[str, Attribute]) -> KernelOp:
    """A copy of a kernel with other choices, of other dims, as of `changed_body`; its operands are the arguments of a
    block of its own."""
    body, known = changed_body(kernel.ops, kernel.body.args, dims, size)
    around, _ = changed_body((), kernel.body.args, dims, size)
    found = type(kernel).around(body, around.args, [known[v] for v in kernel.terminator.operands], dict(choices))
    found.location = kernel.location
    return found


def typical_kernel(kernel: KernelOp, typical: Change = typical) -> KernelOp:
    """A copy of a kernel, with its choices, where dims have typical values (or what `typical` gives for them)."""
    return changed_kernel(kernel, lambda dims: tuple(map(typical, dims)), typical, kernel.choices)


# -- modules


def symbols_in(root: Operation) -> Iterator[tuple[Symbol, Operation]]:
    """The symbols in the types of results, and in parameters, of ops of level 1 to 3 inside of one (a module), some
    several times, each with the op that has it: an input that nothing reads any more may have decided a parameter."""
    for op in root.walk():
        for value in op.results:
            if isinstance(value.type, TensorType) and isinstance(value.type.encoding, DimsAttr):
                yield from ((s, op) for d in value.type.encoding.data.dims for s in d.symbols)
        for attr in op.properties.values():
            if isinstance(attr, ParamAttr) and is_open_value(attr.data):
                sizes = attr.data if isinstance(attr.data, tuple) else (attr.data,)
                yield from ((s, op) for d in sizes if isinstance(d, Dim) for s in d.symbols)


def symbols_of(module: ModuleOp) -> dict[str, Symbol]:
    """The symbols of a module of level 1 to 3, by name."""
    return {s.name: s for s, _ in symbols_in(module)}


def check_ranges(module: ModuleOp) -> None:
    """Raise `LightNetError` for a symbol that has another range elsewhere in a module, which a file may say."""
    known: dict[str, Symbol] = {}
    for symbol, op in symbols_in(module):
        if (first := known.setdefault(symbol.name, symbol)) != symbol:
            message = f"'{symbol.name}' is {symbol.domain} here and {first.domain} before: a name has one range"
            raise LightNetError(message, loc_of(op), label="dims.range")


def refuse_open(module: ModuleOp, what: str, label: str = "dims.numbers") -> None:
    """Raise `LightNetError` where calls decide sizes of a module, which `what` does not have: at the first value whose
    type has one, if there is one."""
    symbols = symbols_of(module)
    if not symbols:
        return
    values = (v for op in module.walk() for v in op.results if isinstance(v.type, TensorType))
    value = next((v for v in values if spec_of(v.type).open_dims), None)
    symbol = min(symbols if value is None else (s.name for s in spec_of(value.type).open_dims[0].symbols))
    where = "" if value is None else f" of {spec_of(value.type)}"
    raise LightNetError(f"{what} needs numbers for sizes, and each call decides '{symbol}'{where}: give it one, as in "
                        f'--dim {symbol}=16 (in Python: dims={{"{symbol}": 16}})',
                        None if value is None else loc_of(value.owner), label=label)  # fmt: skip


def instance_of(module: ModuleOp, values: Mapping[str, Size]) -> ModuleOp:
    """A copy of a module of any level in which symbols have these values, by name."""
    instance = module.clone()
    change_sizes(instance, lambda size: with_sizes(size, values))
    return instance


def change_sizes(module: ModuleOp, change: Change) -> None:
    """Change the sizes in all types, parameters, places, grids and sizes of memory of a module. Functions of level 4
    take values of symbols as before."""
    for op in module.walk():
        for value in (*op.results, *(a for r in op.regions for b in r.blocks for a in b.args)):
            if isinstance(value.type, TensorType) and isinstance(value.type.encoding, DimsAttr):
                value._type = changed_type(value.type, change)
        op.properties = {name: _changed(a, change, ParamAttr) for name, a in op.properties.items()}
        op.attributes = {name: _changed(a, change, size_attr) for name, a in op.attributes.items()}
    for op in module.walk():
        if isinstance(op, func.FuncOp):
            op.update_function_type()


def _changed(attribute: Attribute, change: Change, sized: Callable[[Any], Attribute]) -> Attribute:
    """An attribute with other sizes; a `ParamAttr` that is a size alone becomes what `sized` makes of it."""
    match attribute:
        case ParamAttr(data=Dim() as size):
            return sized(change(size))
        case ParamAttr(data=tuple() as sizes) if any(isinstance(v, Dim) for v in sizes):
            return ParamAttr(changed_value(sizes, change))
        case PlaceAttr() if isinstance(attribute.offset.data, Dim):
            return PlaceAttr(attribute.space, change(attribute.offset.data))
        case IntegerAttr() if isinstance(attribute.value.data, Dim):
            return IntegerAttr(IntAttr(change(attribute.value.data)), attribute.type)
        case ArrayAttr():
            return ArrayAttr([_changed(a, change, sized) for a in attribute])
        case DictionaryAttr():
            return DictionaryAttr({k: _changed(a, change, sized) for k, a in attribute.data.items()})
    return attribute
