"""The meaning of the functions of TensorLight and of cuDNN in a `run`: the op that each computes, and which argument is
what of it.

``tl_tensor_X(operands, results, params)`` is our op X, in the order of its schema, also as ``tl_tensor_X_cuda`` and
``tl_tensor_X_cpu``; those that TensorLight declares in another order are in `ORDERS`. A call writes its results: what
follows sees them. Imports `ir` and the op table; the ops are those that are built in, whatever takes their places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from lightnet.dialects.ln.dialect import built_in_optypes
from lightnet.ir.op import LnOp
from lightnet.ir.schema import Operand, Param, Result
from lightnet_descriptions import c
from lightnet_descriptions.c import arguments
from lightnet_descriptions.c.values import shown

PREFIX, SUFFIXES = "tl_tensor_", ("_cuda", "_cpu")
#: Arguments that mean nothing here: workspace, formats.
SKIP = ""
#: function -> (optype, its arguments in order). A result that stands where an operand would is written in place:
#: ``dst=src``.
ORDERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "tl_tensor_resize": ("resize", ("src", "dst", "dims", "mode")),
    "tl_tensor_dot_product_cuda": ("dot_product", ("src1", "src2", SKIP, SKIP, "dst")),
    "tl_tensor_rearange": ("rearange", ("dst=src", "start", "stop", "step")),
    "tl_tensor_sort1d": ("sort1d", ("dst_key=src_key", "dir")),
    "tl_tensor_sort1d_by_key": ("sort1d_by_key", ("dst_key=src_key", "dst_val=src_val", "dir")),
    "tl_tensor_pick1d": ("pick1d", ("src", "src_index", "dst", "stride", "len")),
    "tl_tensor_detect_yolov3": ("detect_yolov3",
                                ("feature", "anchors", "box_centers", "box_sizes", "boxes", "confs", "probs",
                                 "img_height", "img_width")),
    "tl_tensor_concat": ("concat", ("src1", "src2", "dst", "axis")),
}  # fmt: skip


class Order(NamedTuple):
    """An op, and its arguments in the order of a call."""

    op: type[LnOp]
    arguments: tuple[str, ...]


def order_of(name: str) -> Order | None:
    """The op that a function computes, None for a function that is no op."""
    known = built_in_optypes()
    base = next((name.removesuffix(s) for s in SUFFIXES if name.endswith(s) and name not in ORDERS), name)
    if base in ORDERS:
        optype, arguments = ORDERS[base]
        return Order(known[optype], arguments)
    optype = base.removeprefix(PREFIX)
    op = known.get(optype) if base.startswith(PREFIX) else None
    if op is None or op.schema.variadic_operand is not None or op.schema.variadic_result is not None or op.is_host:
        return None
    schema = op.schema
    if not schema.results or (not schema.operands and op.definition in (None, "")):
        return None
    in_type = [p.name for p in schema.params if p.in_type is not None]
    fields: tuple[Operand | Result | Param, ...] = (*schema.operands, *schema.results, *schema.params)
    return Order(op, tuple(f.name for f in fields if f.name not in in_type))


class Calls(Mapping[str, c.CFunction]):
    """The functions that a `run` may call: `others`, and each that is an op. `call(order, name, args)` makes one of the
    latter."""

    def __init__(
        self, others: Mapping[str, c.CFunction], call: Callable[[c.CMachine, str, Order, tuple[Any, ...]], Any]
    ):
        self.others, self.call = others, call

    def __getitem__(self, name: str) -> c.CFunction:
        if name in self.others:
            return self.others[name]
        if (order := order_of(name)) is None:
            raise KeyError(name)
        count = len(order.arguments)
        return c.CFunction(lambda machine, *args: self.call(machine, name, order, args), count, count)

    def __contains__(self, name: object) -> bool:
        return name in self.others or (isinstance(name, str) and order_of(name) is not None)

    def __iter__(self) -> Iterator[str]:
        yield from self.others
        yield from ORDERS
        yield from (f"{PREFIX}{optype}" for optype in built_in_optypes() if order_of(f"{PREFIX}{optype}") is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def param_value(value: Any) -> Any:
    """An argument of a call as the value of a param: an enumerator is its name, an array a tuple."""
    if isinstance(value, c.Struct | c.CSymbol):
        raise TypeError(f"{shown(value)} is no value of a param")
    return c.plain(value)


# -- handles ---------------------------------------------------------------------------------------------------------


def _handle(what: str) -> c.Struct:
    return c.Struct(what, {}, None)


@c.function(2)
def _hash_find(machine: c.CMachine, table: Any, name: Any) -> Any:
    """The architecture of a name, as `LN_ARCH.arch_table` has it."""
    arch = _handle(f"the architecture '{arguments.string_argument(name)}'")
    context = _handle("its context")
    context.missing = lambda member: _handle(f"its {member}")
    arch.fields["priv"] = context
    return arch


@c.function(1)
def _create(machine: c.CMachine, target: Any) -> int:
    """A descriptor where the pointer says; 0, as there is no error."""
    if not isinstance(target, c.Pointer):
        raise TypeError(f"expected the address of a descriptor, got {shown(target)}")
    target.memory.store(target.offset, _handle("a descriptor"))
    return 0


@c.function(4)
def _set_activation(machine: c.CMachine, descriptor: Any, mode: Any, nan: Any, coefficient: Any) -> int:
    if not isinstance(descriptor, c.Struct):
        raise TypeError(f"{shown(descriptor)} is no descriptor")
    descriptor.fields["mode"] = mode
    return 0


@c.function(1)
def _descriptor(machine: c.CMachine, tensor: Any) -> Any:
    found = _handle("the descriptor of a tensor")
    found.fields["tensor"] = tensor
    return found


@c.function(0, None)
def _nothing(machine: c.CMachine, *args: Any) -> int:
    return 0


#: Enumerators of libraries, and the op of an activation by cuDNN's name.
ACTIVATIONS = {"CUDNN_ACTIVATION_RELU": "relu", "CUDNN_ACTIVATION_SIGMOID": "sigmoid", "CUDNN_ACTIVATION_TANH": "tanh"}
NAMES = {n: c.Enumerator(n) for n in (*ACTIVATIONS, "CUDNN_NOT_PROPAGATE_NAN", "CUDNN_PROPAGATE_NAN")}
#: Functions of libraries that make and free what is theirs; nothing of it is there.
HANDLES: Mapping[str, c.CFunction] = {
    "ln_hash_find": _hash_find, "ln_cudnn_tensor_nchw_init": _descriptor, "cudnnCreateActivationDescriptor": _create,
    "cudnnSetActivationDescriptor": _set_activation, "LN_CUDNN_CK": c.CFunction(lambda machine, status: status, 1, 1),
    **dict.fromkeys(("ln_cudnn_tensor_cleanup", "cudnnDestroyActivationDescriptor", "cudnnDestroyTensorDescriptor"),
                    _nothing),
}  # fmt: skip
