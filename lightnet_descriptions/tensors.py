"""The network as a description sees it: ops, the tensors between them and who reads these, with kernels looked through.

At level 1 an op stands in the function itself, at level 2 inside of a kernel, and a tensor may cross the edge of two
kernels on its way from one op to the next. Here it is one tensor. Imports `ir` and the `ln` dialect.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.func import ReturnOp
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.source import Arange, Input, Source, known
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir.kernel import KernelOp, YieldOp
from lightnet.ir.op import LnOp, name_of, tensor_name
from lightnet.ir.target import get_target
from lightnet.ir.types import spec_of
from lightnet.runtime.dtypes import is_float


def kernel_of(op: Operation) -> KernelOp | None:
    """The kernel that `op` stands in."""
    parent = op.parent_op()
    return parent if isinstance(parent, KernelOp) else None


def holder(op: Operation) -> Operation:
    """The op of the function's block that `op` is, or stands in."""
    return kernel_of(op) or op


def outside(value: SSAValue) -> SSAValue | None:
    """The value in the function's block that a value of a kernel is; None for one that does not leave its kernel."""
    if isinstance(value, BlockArgument):
        kernel = value.block.parent_op()
        return kernel.operands[value.index] if isinstance(kernel, KernelOp) else value
    assert isinstance(value, OpResult)
    kernel = kernel_of(value.op)
    if kernel is None:
        return value
    yielded = list(kernel.terminator.operands)
    return kernel.results[yielded.index(value)] if value in yielded else None


def origin(value: SSAValue) -> SSAValue:
    """The result of the op that computes `value`, through the edges of kernels."""
    while True:
        if isinstance(value, BlockArgument):
            kernel = value.block.parent_op()
            if not isinstance(kernel, KernelOp):
                return value
            value = kernel.operands[value.index]
        elif isinstance(value.owner, KernelOp):
            assert isinstance(value, OpResult)
            value = value.owner.terminator.operands[value.index]
        else:
            return value


def readers(value: SSAValue) -> Iterator[tuple[Operation, int]]:
    """The ops (and `func.return`) that read a value, each with the number of the operand."""
    for use in value.uses:
        op = use.operation
        if isinstance(op, YieldOp) and isinstance(kernel := op.parent_op(), KernelOp):
            yield from readers(kernel.results[use.index])
        elif isinstance(op, KernelOp):
            yield from readers(op.body.args[use.index])
        else:
            yield op, use.index


def is_returned(value: SSAValue) -> bool:
    """Return whether the value is an output of the network."""
    return any(isinstance(op, ReturnOp) for op, _ in readers(value))


def value_at(op: LnOp | KernelOp, section: str, arg: str | int) -> SSAValue:
    """The operand (``ins``) or result (``outs``) of an op, by argument name or number. LightNetError where it has
    none."""
    values = op.operands if section == "ins" else op.results
    if isinstance(op, KernelOp):  # what a rule makes: its outputs are dst1, dst2, …
        number = str(arg).removeprefix("dst")
        found = int(number) - 1 if number.isdigit() and 0 < int(number) <= len(values) else None
    elif isinstance(arg, int):
        found = arg if arg < len(values) else None
    else:
        names = op.arg_names()[section == "outs"]
        found = names.index(arg) if arg in names else None
    if found is None:
        what = "input" if section == "ins" else "output"
        raise LightNetError(f"`{name_of(op) or op.optype}` has no {what} tensor `{arg}`")
    return values[found]


# -- the fields of a tensor ------------------------------------------------------------------------------------------


def source_name(value: SSAValue, arch: str) -> str:
    """Its name in the source network, "" where it has none."""
    return tensor_name(origin(value)) or tensor_name(outside(value) or value) or ""


def owner(value: SSAValue, arch: str) -> str:
    """The name of the tensor in whose memory upstream's op makes this one, "" for one with memory of its own."""
    made = origin(value)
    if not isinstance(made, OpResult) or not isinstance(op := made.op, LnOp):
        return ""
    results = op.schema.results
    field = results[min(made.index, len(results) - 1)]
    return source_name(value_at(op, "ins", field.owner), arch) if field.owner is not None else ""


def creater(value: SSAValue, arch: str) -> str:
    """The name of the op that makes it."""
    made = origin(value)
    return name_of(made.op) or "" if isinstance(made, OpResult) else ""


def _is_static(value: SSAValue, arch: str) -> bool:
    """Return whether it is the same in every run: made by a `create` that is no input, by `arange` or by `ln.once`."""
    made = origin(value).owner
    return isinstance(made, Source | Arange | OnceOp) and not isinstance(made, Input)


def mtype(value: SSAValue, arch: str) -> str:
    """The memory type: that of the space in which a tensor stands that a kernel makes, or that enters the network."""
    made = outside(value) or value
    if not isinstance(made.owner, KernelOp | Source | OnceOp):
        return "LN_MEM_NONE"
    return f"LN_MEM_{get_target(arch).mtype_of(made).upper()}"


def _value(value: SSAValue, arch: str) -> tuple[int | float, ...]:
    """The elements of a constant that passes may read; none of any other tensor."""
    array = known(origin(value))
    if array is None:
        return ()
    convert = float if is_float(array.dtype) else int
    return tuple(convert(x) for x in array.reshape(-1))


#: The fields of a tensor that an accessor may name: the kind of the value, and how it is read from a value for an arch.
FIELDS = {
    "name": ("string", source_name),
    "owner": ("string", owner),
    "creater": ("string", creater),
    "isstatic": ("bool", _is_static),
    "mtype": ("string", mtype),
    "dtype": ("string", lambda value, arch: spec_of(value.type).dtype.tl),
    "len": ("number", lambda value, arch: spec_of(value.type).len),
    "ndim": ("number", lambda value, arch: spec_of(value.type).ndim),
    "dims": ("numbers", lambda value, arch: spec_of(value.type).dims),
    "value": ("numbers", _value),
    "tensor": ("struct", lambda value, arch: spec_of(value.type)),
}
#: Fields of upstream's that nothing can be known of when a rule is asked, and why.
NOT_KNOWN = {
    "offset": "a tensor has no offset before memory is planned",
    "data": "no rewrite reads what a tensor holds; `value` is that of a constant",
    "backend_data": "no rewrite reads what a tensor holds; `value` is that of a constant",
}
