"""The means to write an exporter of an `ln` op to NNVM: it takes the op and gives a `NodeCall`, an NNVM op on values.

    @exporter("relu")
    def relu(op, exporting):
        return NodeCall("relu", (op.src,), {})

NNVM's own list of ops (its core operators, levels 1 to 4) decides what there is; MXNet's are not used. The exporters
stand in `layers.py` and `ops.py`; `model.py` walks the module. Imports the IR.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, Protocol, TypeVar

import numpy as np
from xdsl.ir import SSAValue

from lightnet.dataclasses import dataclass
from lightnet.dialects.ln.source import Zeros
from lightnet.ir.decorated import FunctionTable
from lightnet.ir.op import LnOp
from lightnet.ir.registry import NNVM_EXPORTERS
from lightnet.ir.types import TensorSpec, spec_of
from lightnet_nnvm.pairs import NNVM_DTYPES

#: NNVM has no bf16.
DTYPE_NAMES = {ours: name for name, ours in NNVM_DTYPES.items() if ours != "bf16"}


class NotInNnvm(Exception):
    """An op that NNVM does not have, and why."""


class Exporting(Protocol):
    """The questions that an exporter may ask."""

    def contents(self, value: SSAValue) -> np.ndarray | None:
        """The contents of a param, where that is known and small."""


@dataclass(frozen=True)
class NodeCall:
    """An NNVM op on values and on other calls. `name` is the node's, where it is not the `ln` op's; `spec` the type of
    the result of a call inside of another."""

    op: str
    operands: tuple[SSAValue | NodeCall, ...]
    attrs: Mapping[str, Any]
    name: str | None = None
    spec: TensorSpec | None = None

    def leaves(self) -> Iterator[SSAValue]:
        """The values that it reads, in order."""
        for operand in self.operands:
            if isinstance(operand, NodeCall):
                yield from operand.leaves()
            else:
                yield operand


Exporter = Callable[[Any, Exporting], NodeCall]
_EXPORTERS = FunctionTable("NNVM exporter of", NNVM_EXPORTERS.imported)
_Op = TypeVar("_Op", bound=LnOp)


def exporter(*optypes: str) -> Callable[[Exporter], Exporter]:
    """Decorator: the function exports the ops of these optypes."""
    return _EXPORTERS.decorator("@exporter", optypes)


def plan(op: LnOp, exporting: Exporting) -> NodeCall:
    """The call that an op becomes. Raises `NotInNnvm`."""
    NNVM_EXPORTERS.imported()  # importing a family registers its exporters
    function = _EXPORTERS.get(op.optype)
    if function is None:
        refuse("NNVM has no such op")
    if op.result_specs[0].dtype.name not in DTYPE_NAMES:
        refuse(f"NNVM has no type {op.result_specs[0].dtype}")
    return function(op, exporting)


def refuse(why: str) -> NoReturn:
    raise NotInNnvm(why)


def made_by(value: SSAValue, cls: type[_Op]) -> _Op | None:
    """The op of that class that makes a value."""
    return value.owner if isinstance(value.owner, cls) else None


def is_all(exporting: Exporting, value: SSAValue, number: float) -> bool:
    """Return whether a value is known to be one number throughout."""
    if number == 0 and made_by(value, Zeros) is not None:
        return True
    contents = exporting.contents(value)
    return contents is not None and bool((contents == number).all())


def dims_of(value: SSAValue) -> tuple[int, ...]:
    return spec_of(value.type).dims


def written(op: LnOp, name: str) -> Any:
    """A number as the network has it, before it is rounded to the type that the op reads it as."""
    return op.param_values()[name]


def first_name(*ops: LnOp) -> str | None:
    """The name that several ops of one layer have in common: the shortest."""
    return min((op.op_name for op in ops if op.op_name), key=len, default=None)
