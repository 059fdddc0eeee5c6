"""Whole numbers in a graph: their ranges, and the tensors of which they are the scaled numbers.

Shared by passes that take floats to shorter numbers (`integers.py`, `short_products.py`), with the ops that these put
there. Imports the dialect.
"""

from __future__ import annotations

import numpy as np
from xdsl.ir import Block, Operation, SSAValue

from lightnet.dialects.ln.arith import Add, Cast, Mul, Sub
from lightnet.dialects.ln.elementwise import Relu
from lightnet.dialects.ln.move import Concat, Reshape, Slice, Transpose
from lightnet.dialects.ln.pool import Maxpool2d
from lightnet.dialects.ln.source import ConstantOp, known
from lightnet.ir.bound import F32
from lightnet.ir.names import OP_NAME, FreshNames
from lightnet.ir.op import LnOp, set_tensor_names, tensor_name, tensor_names
from lightnet.ir.types import spec_of
from lightnet.passes.graph import static_values
from lightnet.runtime.dtypes import DType

#: Floats that hold whole numbers of the ranges here.
FLOATS_OF_WHOLE = ("f32", "f64")
#: What gives of whole numbers in a range whole numbers in it, and of numbers times a scale above 0 the same times it.
CHOOSES = (Concat, Maxpool2d, Reshape, Slice, Transpose)


Range = tuple[int, int]


class NewOps:
    """New ops in front of another one, or `behind` it."""

    def __init__(self, block: Block, at: Operation | Block, names: FreshNames, behind: bool = False):
        if not isinstance(at, Operation) or at.parent is not block:  # what comes from outside is there from the start
            assert block.first_op is not None
            at, behind = block.first_op, False
        self.block, self.at, self.names, self.behind = block, at, names, behind
        self.made: list[LnOp] = []

    def add(self, op: LnOp) -> SSAValue:
        """The result of an op that is put there."""
        if self.behind:
            self.block.insert_op_after(op, self.made[-1] if self.made else self.at)
        else:
            self.block.insert_op_before(op, self.at)
        name = tensor_name(self.at.results[0]) if isinstance(self.at, LnOp) else None
        set_tensor_names(op, [self.names.fresh(name or op.optype)])
        self.made.append(op)
        return op.results[0]

    def constant(self, number: float) -> SSAValue:
        return self.add(ConstantOp.make([], {"dims": (), "dtype": F32.tl, "data": (number,)}))

    def moved(self, value: SSAValue, by: int) -> SSAValue:
        return self.add(Add.make([value, self.constant(by)])) if by else value

    def cast(self, value: SSAValue, dtype: DType) -> SSAValue:
        """`value` in another type; beyond the range of a short one it is infinite."""
        mode = {"mode": "wrap"} if dtype.is_short else {}
        return (
            value if spec_of(value.type).dtype == dtype else self.add(Cast.make([value], {"dtype": dtype.tl, **mode}))
        )

    def reshape(self, value: SSAValue, dims: tuple[int, ...]) -> SSAValue:
        return value if spec_of(value.type).dims == dims else self.add(Reshape.make([value], {"dims": dims}))


def replace_result(op: LnOp, value: SSAValue, new: NewOps) -> None:
    """Let a value, of which `new` ops are made, take the place and the name of the result of `op`."""
    assert isinstance(value.owner, LnOp)
    if value.owner in new.made:
        set_tensor_names(value.owner, list(tensor_names(op)))
        if OP_NAME in op.attributes:
            value.owner.attributes[OP_NAME] = op.attributes[OP_NAME]
    op.results[0].replace_all_uses_with(value)
    op.detach()
    op.erase()


class WholeNumbers:
    """The ranges and scales of the tensors of a graph."""

    def __init__(self, block: Block, names: FreshNames):
        self.block, self.names = block, names
        self.static = static_values(block)
        self.ranges: dict[SSAValue, Range | None] = {}

    def range_of(self, value: SSAValue) -> Range | None:
        """The range of a tensor of whole numbers; None where nothing says that it is one."""
        if value not in self.ranges:
            self.ranges[value] = self._range(value)
        return self.ranges[value]

    def _range(self, value: SSAValue) -> Range | None:
        op, dtype = value.owner, spec_of(value.type).dtype
        if not dtype.is_float and dtype.size <= 2:
            low, high = dtype.limits
            return int(low), int(high)
        if isinstance(op, Cast) and dtype.name in FLOATS_OF_WHOLE:
            return self.range_of(op.src)
        if (array := known(value)) is not None:
            whole = array.size and np.array_equal(array, np.rint(array)) and float(np.abs(array).max()) < 1 << 20
            return (int(array.min()), int(array.max())) if whole else None
        if isinstance(op, Add | Sub):
            left, right = map(self.range_of, op.operands)
            if left is None or right is None:
                return None
            low, high = right if isinstance(op, Add) else (-right[1], -right[0])
            return (left[0] + low, left[1] + high) if max(map(abs, (*left, *right))) < 1 << 20 else None
        if isinstance(op, Relu):
            found = self.range_of(op.operands[0])
            return found and (max(found[0], 0), max(found[1], 0))
        if isinstance(op, CHOOSES):
            ranges = [r for v in op.operands if (r := self.range_of(v)) is not None]
            if len(ranges) == len(op.operands):
                return min(low for low, _ in ranges), max(high for _, high in ranges)
        return None

    def scaled(self, value: SSAValue) -> tuple[SSAValue, SSAValue | None]:
        """The whole numbers and the scale (None: 1) that a tensor is the product of; its own numbers if it is none."""
        op = value.owner
        if isinstance(op, Mul):
            for k in (0, 1):
                numbers, scale = op.operands[k], op.operands[1 - k]
                if spec_of(numbers.type) == spec_of(value.type) and self.range_of(numbers) is not None:
                    return numbers, scale
        if isinstance(op, Transpose) and value in self.static and op.src.owner.__class__ is Mul:  # of weights
            numbers, by = self.scaled(op.src)
            if by is not None and spec_of(value.type).ndim == 2 and op.axes == (1, 0):
                new = NewOps(self.block, op, self.names)
                turned = new.add(Transpose.make([numbers], {"axes": (1, 0)}))
                if spec_of(by.type).len > 1:
                    rows = new.reshape(by, ((1,) * (2 - spec_of(by.type).ndim)) + spec_of(by.type).dims)
                    by = new.add(Transpose.make([rows], {"axes": (1, 0)}))
                self.static.update(o.results[0] for o in new.made)
                return turned, by
        return value, None
