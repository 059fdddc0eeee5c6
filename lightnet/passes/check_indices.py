"""`check-indices`: a network that says when an index lies outside of its axis, where it would be clamped."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, Protocol, runtime_checkable

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from lightnet.dialects.ln.dialect import built_in_optypes
from lightnet.dialects.ln.source import ParamOp
from lightnet.ir import budget
from lightnet.ir.module import main_of
from lightnet.ir.op import LnOp, name_of
from lightnet.ir.passes import LnPass
from lightnet.ir.types import spec_of
from lightnet.runtime.index_checks import check_name


@runtime_checkable
class _Indexing(Protocol):
    """The members of an op at indices."""

    index: SSAValue

    def index_limits(self) -> Sequence[int]: ...


class CheckIndicesPass(LnPass):
    """For each op that reads or writes at indices, compute the first one outside of its axis, and return that, too.

    ```mlir
    %y = ln.take %x, %index {axis = 0}      ->      %y = ln.take %x, %index {axis = 0}
    func.return %y                                  %bad = (%index < -n) | (n <= %index)
                                                    %c = [any(%bad), argmax(%bad), %index[argmax(%bad)]]
                                                    func.return %y, %c
    ```

    An index counts from the end where it is negative, so that an axis of n elements has the indices -n … n - 1. A call
    looks at what came out, and raises (`runtime/index_checks.py`). Indices that several ops read under the same bounds
    are looked at once.
    """

    name = "check-indices"
    level = "graph"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        main = main_of(op)
        last = main.body.block.last_op
        assert isinstance(last, func.ReturnOp)
        seen: set[tuple[SSAValue, tuple[int, ...]]] = set()
        values = list(last.operands)
        for node in budget.within(list(main.body.block.ops)):
            if not isinstance(node, LnOp) or not isinstance(node, _Indexing):
                continue
            limits = tuple(node.index_limits())
            if not limits or (node.index, limits) in seen or 0 in spec_of(node.index.type).dims:
                continue
            seen.add((node.index, limits))
            values.append(_check(node, limits, len(seen) - 1, last))
        last.operands = values
        main.update_function_type()


def _check(node: Any, limits: tuple[int, ...], number: int, last: func.ReturnOp) -> SSAValue:
    """The check of one op's indices, [3] of i64: whether one is outside, the place of the first in row-major order, and
    that index."""
    classes = built_in_optypes()
    block = last.parent_block()
    assert block is not None
    spec = spec_of(node.index.type)
    base, steps = f"{name_of(node) or node.optype}_indices_{number}", count()

    def op(optype: str, *operands: SSAValue, name: str = "", **params: Any) -> SSAValue:
        name = name or f"{base}_{next(steps)}"
        made = classes[optype].make(list(operands), params, name=name, tensors=[name], location=node.location)
        block.insert_op_before(made, last)
        return made.results[0]

    def bound(values: list[int]) -> SSAValue:
        name = f"{base}_{'low' if values[0] < 0 else 'high'}"
        param = ParamOp.make([], {"dims": (len(values),), "dtype": spec.dtype.tl, "data": tuple(values)}, name=name,
                             tensors=[name],
                             location=node.location)  # fmt: skip
        block.insert_op_before(param, last)
        return param.results[0]

    low, high = op("less", node.index, bound([-n for n in limits])), op("less_equal", bound(list(limits)), node.index)
    bad = op("reshape", op("bit_or", low, high), dims=(spec.len,))
    where = op("argmax", op("cast", bad, dtype="TL_INT32"), axis=0)
    flat = op("reshape", node.index, dims=(spec.len,))
    value, found = (op("cast", op("take", x, where, axis=0), dtype="TL_INT64") for x in (flat, bad))
    label = f"{node.optype} '{name_of(node)}'" if name_of(node) else node.optype
    return op("concat", found, where, value, axis=0, name=check_name(number, spec.dims, limits, label))
