"""The static ops that open ones are in a call: the same op where symbols have numbers.

What only costs time is decided for the *typical* one (`Symbol.typical`), so that no model of time knows of symbols.
Imports `ir`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from xdsl.ir import Attribute, Block, Operation, SSAValue

from lightnet.ir.layout import layout_of, with_layout
from lightnet.ir.op import LnOp
from lightnet.ir.types import ParamAttr, TensorSpec, spec_of, tensor_type
from lightnet.runtime.dims import Dim, Size, typical

O = TypeVar("O", bound=LnOp)
#: What a size becomes.
Change = Callable[[Size], Size]


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


def changed_type(type: Attribute, change: Change) -> Attribute:
    """A tensor type with other dims, in its layout."""
    spec = spec_of(type)
    new = tensor_type(TensorSpec(tuple(map(change, spec.dims)), spec.dtype))
    layout = layout_of(type)
    return new if layout.is_plain else with_layout(new, layout)


def changed_value(value: Any, change: Change) -> Any:
    """The value of a parameter with other sizes."""
    if isinstance(value, tuple | list):
        return tuple(changed_value(v, change) for v in value)
    return change(value) if isinstance(value, Dim) else value


def typical_op(op: O) -> O:
    """The op where dims have typical values, on arguments of a block of its own; itself where it is static."""
    if not is_open(op.operands) and not is_open_op(op):
        return op
    block = Block(arg_types=[changed_type(v.type, typical) for v in op.operands])
    params = {name: changed_value(v, typical) for name, v in op.written_params().items()}
    specs = [spec_of(changed_type(r.type, typical)) for r in op.results]
    new = type(op).build_unchecked(list(block.args), params, specs, name=op.op_name, location=op.location)
    block.add_op(new)
    return new
