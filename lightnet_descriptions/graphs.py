"""The ops that a described op is: the built-in one that it stands for, or those that its C calls.

`graph` makes them on values that stand for the operands, so that types are checked as for any op; `decomposed` puts
them on the op's own. Imports `ir`, `steps`, the interpreter of single ops and xDSL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.ir import Block, SSAValue

from lightnet.diagnostics import LightNetError
from lightnet.ir.constants import Env
from lightnet.ir.op import LnOp, set_tensor_names, tensor_names
from lightnet.ir.types import TensorSpec, tensor_type
from lightnet_descriptions.steps import Ref, Run, RunSteps

if TYPE_CHECKING:
    from lightnet_descriptions.described import DescribedOp

Graph = tuple[list[LnOp], list[SSAValue]]


def run_code(cls: type[DescribedOp], env: Env) -> RunSteps:
    """The steps that the C of an op computes on these types and params. Raises `LightNetError` at its place in the
    description."""
    machine = Run(cls, env)
    for code in cls.described.running:
        code.run(machine)
    try:
        machine.finish()
    except LightNetError as e:
        raise cls.described.running[-1].item.error(e.message) from None
    return machine.steps


def graph(cls: type[DescribedOp], env: Env, params: dict[str, Any], operands: Sequence[SSAValue]) -> Graph:
    """The ops that an op is, and the values that its results are. Raises `LightNetError`."""
    if cls.stands_for is not None:
        given = {k: v for k, v in params.items() if k in cls.stands_for.schema.by_name}
        op = cls.stands_for.make(operands, given)
        return [op], list(op.results)
    steps = run_code(cls, env)
    read = {k: cls.schema.by_name[k].read(v) for k, v in params.items()}
    names = cls.schema.operand_names(len(operands))
    values: dict[Ref, SSAValue] = {Ref(f"{name}#0"): value for name, value in zip(names, operands)}
    made: list[LnOp] = []
    for call in steps.calls:
        # A param that the code hands on stays as it was written: 0 is no 0.0, and 0.1 no float.
        given = {k: params[k] if k in read and read[k] == v else v for k, v in call.params.items()}
        op = call.op.make([values[r] for r in call.operands], given)
        made.append(op)
        values.update(zip(call.results, op.results))
    found = [values[steps.results[r.name]] for r in cls.schema.results]
    if cls.named is None or [list(op.operands) for op in made] != [list(operands)] or list(made[0].results) != found:
        return made, found
    op = cls.named.make(operands, {k: v for k, v in params.items() if k in cls.named.schema.by_name})
    if not _are_same(op, made[0]):
        erase([op])
        return made, found
    erase(made)
    return [op], list(op.results)


def _are_same(op: LnOp, other: LnOp) -> bool:
    """Return whether two ops on the same operands compute the same: their definitions are the same text, and so is what
    it may name (upstream's upsample calls the function of resize).
    """
    if not isinstance(op.definition, str) or op.definition != other.definition or op.result_specs != other.result_specs:
        return False
    theirs = other.param_values()
    return all(theirs[k] == v for k, v in op.param_values().items() if k in theirs)


def check_ops(cls: type[DescribedOp], env: Env, params: dict[str, Any], results: Sequence[TensorSpec]) -> None:
    """Raise `LightNetError` where the ops refuse the operands, or give other types than the description says."""
    specs = [env.tensors[n] for n in list(env.tensors)[: len(env.tensors) - len(results)]]
    ops, values = graph(cls, env, params, Block(arg_types=[tensor_type(s) for s in specs]).args)
    wanted = [tensor_type(r) for r in results]
    got = [v.type for v in values]
    erase(ops)
    if got != wanted:
        what = ops[-1].optype if ops else "nothing"
        raise LightNetError(
            f"its results are {', '.join(map(str, wanted))}, and {what}, which it computes as, gives "
            f"{', '.join(map(str, got))}"
        )


def erase(ops: Sequence[LnOp]) -> None:
    for op in reversed(ops):
        op.erase(safe_erase=False)


def decomposed(op: DescribedOp) -> Graph:
    """The ops in the place of `op`, detached, with its name and those of its tensors."""
    ops, values = graph(type(op), op.env(), dict(op.param_values()), op.operands)
    names = dict(zip(values, tensor_names(op)))
    for new in ops:
        new.location = op.location
        if new is ops[-1] and op.op_name is not None:
            new.attributes["ln.name"] = op.attributes["ln.name"]
        if found := [names.get(r) for r in new.results]:
            set_tensor_names(new, found)
    return ops, values


def evaluate_ops(op: DescribedOp, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of the ops, one after another."""
    block = Block(arg_types=[v.type for v in op.operands])
    ops, values = graph(type(op), op.env(), dict(op.param_values()), block.args)
    known: dict[SSAValue, np.ndarray] = dict(zip(block.args, operands))
    for inner in ops:
        known.update(zip(inner.results, inner.evaluate([known[v] for v in inner.operands])))
    found = [known[v] for v in values]
    erase(ops)
    return found


def graph_flops(op: DescribedOp) -> int:
    """Their work."""
    block = Block(arg_types=[v.type for v in op.operands])
    ops, _ = graph(type(op), op.env(), dict(op.param_values()), block.args)
    found = sum(inner.flops() for inner in ops)
    erase(ops)
    return found
