"""The node that a handler of an NNVM or MXNet op sees, and the table of handlers.

A handler takes a `Node` and one `Value` for each input (None for an absent one), and returns a Value for each output:

    @nnvm_op("Convolution", params=(1, 2))
    def convolution(n: Node, x: Value, weight: Lazy, bias: Lazy | None = None) -> Value: ...

Graphs do not say the shapes of their variables. What an op decides itself, the shape of a weight above all, it takes as
a `Lazy` and fixes with `Node.fixed`. Handlers stand in `lightnet_nnvm/ops/<family>.py`, which `registry.NNVM_OPS`
lists. Imports the graph builder, the attribute grammar and the registry.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.frontends.graph import Graph, Value
from lightnet.frontends.handlers import HandledNode
from lightnet.ir.decorated import FunctionTable
from lightnet.ir.registry import NNVM_OPS
from lightnet.runtime.dtypes import BY_NAME, DType, convert
from lightnet_nnvm import attributes
from lightnet_nnvm.pairs import DTYPE_NUMBERS, NNVM_DTYPES
from lightnet_nnvm.reader import GraphNode


class Lazy:
    """A variable, or a constant of open shape, that nothing has read yet: `hint` has its dims as far as they are known
    (0 where not), `make` its Value once they are."""

    def __init__(self, name: str, hint: tuple[int, ...] | None, dtype: DType | None,
                 make: Callable[[tuple[int, ...], DType], Value]):  # fmt: skip
        self.name, self.hint, self.dtype, self._make = name, hint, dtype, make
        self.value: Value | None = None
        self.is_param = False

    def known(self) -> Value | None:
        """The Value, where the dims are known without an op that says them."""
        if self.value is None and self.hint is not None and 0 not in self.hint:
            self.value = self._make(self.hint, self.dtype or BY_NAME["f32"])
        return self.value

    def fixed(self, dims: tuple[int, ...], dtype: DType) -> Value:
        """The Value, whose dims an op says. Raises LightNetError where what is known of them says otherwise."""
        if self.value is None:
            if self.hint is not None and not _fits(self.hint, dims):
                raise LightNetError(f"'{self.name}' should have shape {list(dims)} here, but it has {list(self.hint)}",
                                    label="nnvm.shape")  # fmt: skip
            self.value = self._make(dims, self.dtype or dtype)
        return self.value


def _fits(hint: tuple[int, ...], dims: tuple[int, ...]) -> bool:
    """Return whether dims agree with what is known: a weight file may keep a vector (``.wts`` has no shapes), and dims
    of 1 may be there or not.
    """
    if len(hint) == len(dims) and all(h in (0, d) for h, d in zip(hint, dims)):
        return True
    return 0 not in hint and (hint == (math.prod(dims),) or [d for d in hint if d != 1] == [d for d in dims if d != 1])


@dataclass(frozen=True)
class Handler:
    """The import of an op. Inputs by position: `params` are parameters (their shapes follow), `lazy` may be of open
    shape too, `labels` are for training only. `aux` names the last inputs where old graphs leave them out, `outputs`
    the outputs where they are not called ``output``."""

    function: Callable[..., Any]
    params: tuple[int, ...] = ()
    lazy: tuple[int, ...] = ()
    labels: tuple[int, ...] = ()
    aux: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


_HANDLERS = FunctionTable("NNVM op", NNVM_OPS.imported)


def nnvm_op(*ops: str, **options: Any) -> Callable[[Callable], Callable]:
    """Decorator: the function imports these ops; `options` are fields of `Handler`."""
    return _HANDLERS.decorator("@nnvm_op", ops, row=lambda function: Handler(function, **options))


def handlers() -> dict[str, Handler]:
    """Every handler by op."""
    NNVM_OPS.imported()  # importing a family registers its handlers
    return _HANDLERS


class Node(HandledNode):
    """One op of the graph, as its handler sees it."""

    form = "nnvm"

    def __init__(self, graph: Graph, node: GraphNode, version: int):
        self.g, self.node, self.version = graph, node, version
        self.inputs = len(node.inputs)

    @property
    def op(self) -> str:
        return self.node.op

    # -- attributes: a text that is "None" is absent

    def value(self, name: str) -> attributes.Attribute:
        text = self.node.attrs.get(name)
        if text is None:
            return None
        try:
            return attributes.parse_attribute(text)
        except attributes.AttributeText as e:
            self.fail(f"its attribute '{name}', {text[:60]!r}, {e}")

    def has(self, name: str) -> bool:
        return self.value(name) is not None

    def _read(self, name: str, read: Callable[[Any], Any], what: str, default: Any) -> Any:
        value = self.value(name)
        if value is None:
            if default is ...:
                self.fail(f"needs the attribute '{name}' ({what})")
            return default
        found = read(value)
        if found is None:
            self.fail(f"its attribute '{name}' should be {what}, but is {self.node.attrs[name][:60]!r}")
        return found

    def int(self, name: str, default: Any = ...) -> Any:
        """An integer attribute; without a default it has to be there."""
        return self._read(name, attributes.attribute_int, "an integer", default)

    def float(self, name: str, default: Any = ...) -> Any:
        """A float attribute."""
        return self._read(name, attributes.attribute_float, "a number", default)

    def bool(self, name: str, default: Any = ...) -> Any:
        """A bool attribute."""
        return self._read(name, attributes.as_bool, "True or False", default)

    def ints(self, name: str, default: Any = ...) -> Any:
        """A tuple of integers; of one where the text is a number alone."""
        return self._read(name, attributes.as_ints, "a tuple of integers", default)

    def floats(self, name: str, default: Any = ...) -> Any:
        """A tuple of floats; of one where the text is a number alone."""

        def read(value: Any) -> Any:
            found = [attributes.attribute_float(v) for v in (value if isinstance(value, tuple) else (value,))]
            return None if None in found else tuple(found)

        return self._read(name, read, "a tuple of numbers", default)

    def optional_ints(self, name: str) -> tuple[Any, ...] | None:
        """A tuple of integers and Nones, or None."""
        value = self.value(name)
        if value is None:
            return None
        found = value if isinstance(value, tuple) else (value,)
        if not all(v is None or attributes.attribute_int(v) is not None for v in found):
            self.fail(f"its attribute '{name}' should be a tuple of integers, but is {self.node.attrs[name][:60]!r}")
        return tuple(None if v is None else attributes.attribute_int(v) for v in found)

    def per_axis(self, name: str, count: builtins.int, default: builtins.int) -> tuple[builtins.int, ...]:
        """`count` integers, one for each spatial axis; one number (or none at all) is for all of them."""
        found = self.ints(name, ())
        if len(found) not in (0, 1, count):
            self.fail(f"its attribute '{name}' should have {count} numbers, but is {self.node.attrs[name][:60]!r}")
        return found if len(found) == count else (found or (default,)) * count

    def string(self, name: str, default: Any = ...) -> Any:
        """A text attribute."""
        text = self.node.attrs.get(name)
        if text is None or text == "None":
            if default is ...:
                self.fail(f"needs the attribute '{name}'")
            return default
        return text.strip()

    def choice(self, name: str, default: str, *choices: str) -> str:
        """A text attribute that is one of `choices` (or the default)."""
        found = self.string(name, default)
        if found not in (default, *choices):
            self.unsupported(f"its attribute '{name}' is {found[:60]!r}; there are: {', '.join((default, *choices))}")
        return found

    def dtype(self, name: str, default: DType | str) -> DType:
        """An element type, by MXNet's name or number."""
        default = default.name if isinstance(default, DType) else default
        value = self.value(name)
        if isinstance(value, int) and 0 <= value < len(DTYPE_NUMBERS):
            found = DTYPE_NUMBERS[value]
        else:
            text = default if value is None or value == -1 else str(value)
            found = NNVM_DTYPES.get(text, text)
        if found not in BY_NAME:
            self.unsupported(f"element type '{found[:60]}'")
        return BY_NAME[found]

    # -- values

    def fixed(self, x: Value | Lazy, dims: Sequence[builtins.int], like: Value) -> Value:
        """An input of open shape as a Value of `dims`; floats are brought to the float type of `like`."""
        dims = tuple(dims)
        value = x.fixed(dims, like.dtype) if isinstance(x, Lazy) else x
        if value.dims != dims:
            if [d for d in value.dims if d != 1] != [d for d in dims if d != 1]:
                name = f"'{value.name}'" if value.name else "an input"
                self.fail(f"{name} should have shape {list(dims)}, but has {list(value.dims)}")
            value = self.g.reshape(value, dims)
        return self.same_float(value, like)

    def same_float(self, value: Value, like: Value) -> Value:
        """`value`, in the element type of `like` where both are floats."""
        return self.g.cast(value, like.dtype) if value.dtype.is_float and like.dtype.is_float else value

    def scalar(self, x: builtins.float, like: Value) -> Value:
        """A number as a tensor of rank 0, in the element type of `like` (saturating)."""
        return self.g.constant(convert(np.asarray(x, np.float64), like.dtype))

    def bounded(self, count: builtins.int) -> builtins.int:
        """`count`, where a constant of so many elements may be made. Sizes out of a file are checked before anything is
        allocated."""
        return self.g.bounded(count, "a constant")

    def at_least(self, x: Value, rank: builtins.int) -> Value:
        """`x`, which should have that rank or a higher one."""
        if x.ndim < rank:
            self.fail(f"takes a tensor of rank {rank} or more, but gets {list(x.dims)}")
        return x

    def need_rank(self, x: Value, *ranks: builtins.int) -> None:
        """Refuse an input of another rank."""
        if x.ndim not in ranks:
            self.fail(f"takes a tensor of rank {' or '.join(map(str, ranks))}, but gets {list(x.dims)}")
