"""About how long one block of a level-4 kernel takes in the interpreter of loops, by counting ops. Imports xDSL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from xdsl.dialects import arith, func, scf
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Block, Operation, Region, SSAValue

from lightnet.ir.constants import int_div

#: What a loop whose bounds are not known is taken for.
UNKNOWN_TRIPS = 32


class LoopCost:
    """The steps of the functions of a module, which may call each other, but not themselves."""

    def __init__(self, functions: Mapping[str, func.FuncOp]):
        self.functions = functions
        self._known: dict[str, int] = {}

    def of(self, name: str) -> int:
        """About how many ops one block of a kernel's grid executes."""
        if name not in self._known:
            self._known[name] = 0  # of a function that calls itself
            block = self.functions[name].body.block
            self._known[name] = self._steps(block, {arg: i for i, arg in enumerate(block.args[:2])})  # the range [0, 1)
        return self._known[name]

    def _steps(self, block: Block, values: dict[SSAValue, int]) -> int:
        total = 0
        for op in block.ops:
            total += 1
            if isinstance(op, scf.ForOp):
                total += _trips(op, values) * self._steps(op.body.block, values)
            elif isinstance(op, func.CallOp):
                total += self.of(op.callee.string_value())
            elif op.regions:
                total += max(self._steps(inner, values) for region in op.regions for inner in _blocks(region))
            else:
                _fold(op, values)
        return total


def _blocks(region: Region) -> Iterable[Block]:
    return region.blocks or [Block()]


def _trips(op: scf.ForOp, values: dict[SSAValue, int]) -> int:
    low, high, step = (values.get(v) for v in (op.lb, op.ub, op.step))
    if low is not None:
        values[op.body.block.args[0]] = low
    if low is None or high is None or not step:
        return UNKNOWN_TRIPS
    return max(0, -(-(high - low) // step))


_FOLDED: dict[type[Operation], Callable[[int, int], int]] = {
    arith.AddiOp: lambda a, b: a + b, arith.SubiOp: lambda a, b: a - b, arith.MuliOp: lambda a, b: a * b,
    arith.MinSIOp: min, arith.MaxSIOp: max, arith.DivSIOp: int_div,
    arith.RemSIOp: lambda a, b: a - b * int_div(a, b),
}  # fmt: skip


def _fold(op: Operation, values: dict[SSAValue, int]) -> None:
    if isinstance(op, arith.ConstantOp) and isinstance(op.value, IntegerAttr):
        values[op.result] = op.value.value.data
    elif (fold := _FOLDED.get(type(op))) is not None:
        left, right = (values.get(v) for v in op.operands)
        if left is not None and right is not None:
            values[op.results[0]] = fold(left, right)
