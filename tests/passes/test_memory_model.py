"""Orders of ops by the memory that they need, against list scheduling that weighs every ready op again at each step."""

from __future__ import annotations

import pytest
from blocked_networks import random_network
from xdsl.dialects.builtin import ModuleOp

from lightnet.ir.context import make_context
from lightnet.ir.module import main_of
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.passes.memory_model import MemoryModel


def by_weighing(model: MemoryModel, by_delta: bool) -> list[int]:
    """The same order, without a heap."""
    done: list[int] = []

    def unread(root: int) -> int:
        return len(model.users[root] - set(done))

    def key(i: int) -> tuple[int, bool, int]:
        last = {r for r in model.reads[i] if unread(r) == 1 and not model.fixed[r]}
        waits = any(unread(r) > 1 and not model.fixed[r] for r in model.inplace[i])
        grows = sum(model.size[r] for r in model.makes[i]) - sum(model.size[r] for r in last)
        return (grows if by_delta else 0), waits, i

    while len(done) < len(model.ops):
        ready = [i for i in range(len(model.ops)) if i not in done and model.after[i] <= set(done)]
        done.append(min(ready, key=key))
    return done


def models(module: ModuleOp) -> list[MemoryModel]:
    """Those of a network as it is read, and with kernels; from all positions ready at the beginning to few."""
    found = [MemoryModel(main_of(module).body.block)]
    run_pipeline(make_context(), module, parse_pipeline("bind,simplify,hoist,expand,combine", {"target": "cpu"}))
    return [*found, MemoryModel(main_of(module).body.block)]


@pytest.mark.parametrize("by_delta", [False, True])
def test_an_order_takes_the_best_ready_op(by_delta: bool) -> None:
    modules = [random_network(seed, 20)[0] for seed in range(8)]
    differ = 0
    for model in (m for module in modules for m in models(module)):
        order = model.order(by_delta)
        assert order == by_weighing(model, by_delta)
        differ += order != sorted(order)
    assert differ > 3
