"""`schedule`: the order of ops, chosen for peak memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation

from lightnet.diagnostics import LightNetError
from lightnet.ir.passes import LnPass
from lightnet.ir.target import Target, get_target
from lightnet.passes.graph import graphs
from lightnet.passes.memory_model import MemoryModel

ORDERS = ("source", "memory")


@dataclass(frozen=True)
class SchedulePass(LnPass):
    """Order the ops of the graph such that little memory is in use at one time.

    ```mlir
    %a = ln.relu %x : ...                          %b = ln.transpose %x {axes = [1, 0]} : ...
    %b = ln.transpose %x {axes = [1, 0]} : ...  -> %a = ln.relu %x : ...      (now it may overwrite %x)
    ```

    List scheduling on a model of memory (`memory_model.py`): once with the op that frees most first, once in source
    order but for ops that could work in place if other readers came before them. The order of the source stays unless
    one of these has a lower peak in the model. Ops with effects keep their order among each other. A target's own
    `schedule` goes before all that. With `order` = ``source`` nothing changes.
    """

    name = "schedule"
    level = "graph"
    target: str = "cpu"
    order: str = "memory"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.order not in ORDERS:
            raise LightNetError(f"schedule: unknown order '{self.order}'; there are: {', '.join(ORDERS)}")
        if self.order == "source":
            return
        target = get_target(self.target)
        for block in graphs(op):
            _reorder(block, _best_order(block) if target.schedule is None else _targets_order(block, target))


def _best_order(block: Block) -> Sequence[Operation]:
    model = MemoryModel(block)
    candidates = [list(range(len(model.ops))), model.order(by_delta=False), model.order(by_delta=True)]
    best = min(candidates, key=model.peak)  # the first of equals: the source order
    return [model.ops[i] for i in best]


def _targets_order(block: Block, target: Target) -> Sequence[Operation]:
    assert target.schedule is not None
    before = list(block.ops)
    order = list(target.schedule(block))
    if len(order) != len(before) or set(order) != set(before):
        raise LightNetError(f"the schedule function of target '{target.name}' should return a permutation of all ops")
    return order


def _reorder(block: Block, order: Sequence[Operation]) -> None:
    if list(order) == list(block.ops):
        return
    for op in order:
        op.detach()
    block.add_ops(order)
