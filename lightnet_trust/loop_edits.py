"""Edits that make a module of level 4 smaller, for `ln-reduce`: launches, kernel functions, the ops in them and their
loops.

They make no difference between ops: a result is replaced by zero, or by an operand of its type. As in `edits.py`, an
edit need not succeed. Imports xDSL and the dialects of level 4.
"""

from __future__ import annotations

from collections.abc import Collection

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import (
    AnyFloat,
    ArrayAttr,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    ModuleOp,
    VectorType,
    i64,
)
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.traits import IsTerminator

from lightnet.dialects.launch import HostOp, LaunchOp, kernels, launches

Line = LaunchOp | HostOp


def lines(module: ModuleOp) -> list[Line]:
    """The lines of `@main`."""
    return launches(module)


def drop_lines(module: ModuleOp, gone: Collection[Line]) -> None:
    """Drop lines of `@main`, and the kernels that no line calls any more."""
    for op in gone:
        op.detach()
        op.erase()
    called = {op.callee.string_value() for op in launches(module) if isinstance(op, LaunchOp)}
    for name, function in kernels(module).items():
        if name not in called and not function.sym_visibility:
            function.detach()
            function.erase()


def other_functions(module: ModuleOp) -> list[FuncOp]:
    """The functions but for `@main`, where no line of it launches them."""
    called = {op.callee.string_value() for op in launches(module) if isinstance(op, LaunchOp)}
    found = (op for op in module.ops if isinstance(op, FuncOp))
    return [f for f in found if f.sym_name.data != "main" and f.sym_name.data not in called]


def drop_functions(module: ModuleOp, gone: Collection[FuncOp]) -> None:
    """Drop functions. One that is called makes the module one that does not verify."""
    for function in gone:
        function.detach()
        function.erase()


def loop_ops(module: ModuleOp) -> list[Operation]:
    """The ops of the kernel functions, outer before inner, without terminators and the constants that are read."""
    inside = [op for function in kernels(module).values() for op in function.walk() if op is not function]
    return [op for op in inside if not op.has_trait(IsTerminator) and not _is_read_constant(op)]


def _is_read_constant(op: Operation) -> bool:
    return isinstance(op, arith.ConstantOp) and op.result.first_use is not None


def drop_loop_ops(module: ModuleOp, gone: Collection[Operation]) -> None:
    """Drop ops with all that is inside of them; whoever reads a result reads an operand of its type, or zero."""
    dropped = set(gone)
    for op in [op for op in gone if dropped.isdisjoint(_above(op))]:
        for result in op.results:
            if result.first_use is not None:
                result.replace_all_uses_with(_instead(op, result))
        op.detach()
        op.erase()


def _above(op: Operation) -> list[Operation]:
    found = []
    above = op.parent_op()
    while above is not None:
        found.append(above)
        above = above.parent_op()
    return found


def _instead(op: Operation, result: SSAValue) -> SSAValue:
    if (operand := next((v for v in op.operands if v.type == result.type), None)) is not None:
        return operand
    constant = arith.ConstantOp(_zero(result.type))
    block = op.parent
    assert block is not None
    block.insert_op_before(constant, op)
    return constant.result


def _zero(type_: Attribute) -> Attribute:
    if isinstance(type_, IndexType | IntegerType):
        return IntegerAttr(0, type_)
    if isinstance(type_, VectorType):
        return DenseIntOrFPElementsAttr.from_list(type_, [_zero(type_.element_type).value.data])
    if isinstance(type_, AnyFloat):
        return FloatAttr(0.0, type_)
    raise NotImplementedError(f"no zero of type {type_}")


def kernel_loops_in(module: ModuleOp) -> list[scf.ForOp]:
    """The loops of the kernel functions."""
    return [op for op in loop_ops(module) if isinstance(op, scf.ForOp)]


def run_once(module: ModuleOp, gone: Collection[scf.ForOp]) -> None:
    """Put the body of a loop, for its first round, in the place of the loop."""
    for loop in gone:
        block, body = loop.parent, loop.body.block
        assert block is not None
        for arg, value in zip(body.args, (loop.lb, *loop.iter_args)):
            arg.replace_all_uses_with(value)
        last = body.last_op
        assert last is not None
        values = list(last.operands)
        last.detach()
        last.erase()
        for op in list(body.ops):
            op.detach()
            block.insert_op_before(op, loop)
        for result, value in zip(loop.results, values):
            result.replace_all_uses_with(value)
        loop.detach()
        loop.erase()


Grid = tuple[LaunchOp, int]


def grids(module: ModuleOp) -> list[Grid]:
    """Launches with grids that they could have instead: of one block, or half as many."""
    found = []
    for op in launches(module):
        if isinstance(op, LaunchOp) and (count := op.grid.value.data) > 1:
            found += [(op, n) for n in sorted({1, count // 2})]
    return found


def shrink_grids(module: ModuleOp, changes: Collection[Grid]) -> None:
    """Launch fewer blocks."""
    for op, count in changes:
        op.properties["grid"] = IntegerAttr(count, i64)


def shared_launches(module: ModuleOp) -> list[LaunchOp]:
    """Launches that several threads share."""
    return [op for op in launches(module) if isinstance(op, LaunchOp) and op.threads is not None]


def run_alone(module: ModuleOp, gone: Collection[LaunchOp]) -> None:
    """Launch on one thread."""
    for op in gone:
        op.properties.pop("threads", None)


Argument = tuple[FuncOp, int]


def unread_arguments(module: ModuleOp) -> list[Argument]:
    """The memrefs of kernels that they do not touch, last first."""
    arguments = [(f, arg) for f in kernels(module).values() for arg in reversed(f.body.block.args[2:])]
    return [(f, arg.index) for f, arg in arguments if arg.first_use is None]


def drop_arguments(module: ModuleOp, gone: Collection[Argument]) -> None:
    """Drop arguments of kernels, in each launch, too."""
    for function, index in sorted(gone, key=lambda a: -a[1]):
        block = function.body.block
        block.erase_arg(block.args[index])
        function.update_function_type()
        for op in launches(module):
            if isinstance(op, LaunchOp) and op.callee.string_value() == function.sym_name.data:
                if index - 2 == len(op.args) - 1:  # the scratch, if there is any, is the last
                    op.properties.pop("scratch", None)
                op.properties["args"] = ArrayAttr([a for i, a in enumerate(op.args) if i != index - 2])
