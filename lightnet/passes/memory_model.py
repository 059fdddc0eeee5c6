"""The memory that an order of ops needs, roughly and in linear time: what `schedule` compares orders by.

A value takes its bytes from the op that makes it to its last reader, outputs to the end. Values that a plan makes part
of another one (views) take none and keep that one alive; a concatenation takes over the bytes of operands that end with
it; a result takes over those of an operand that may be overwritten (`ir/views.py` has both rules). Static tensors do
not count, inputs count from the start. The packing into addresses is left out. Imports xDSL, `ir` and `passes.graph`.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from xdsl.ir import Block, Operation, SSAValue
from xdsl.traits import IsTerminator, is_side_effect_free

from lightnet.dialects.ln.source import Create, Input, ParamOp
from lightnet.dialects.ln.structure import OnceOp
from lightnet.ir.layout import byte_size
from lightnet.ir.views import overwritable, views_of
from lightnet.runtime.dims import typical


class MemoryModel:
    """The ops of a block by number, and for each: what it reads, what it allocates, and what it must come after."""

    def __init__(self, block: Block):
        self.ops = list(block.ops)
        self.size: list[int] = []  # of each root: a value with memory of its own
        self.fixed: list[bool] = []  # roots that are never freed nor overwritten in the model
        self.users: list[set[int]] = []  # of each root: the ops that need it
        self.reads: list[set[int]] = []  # of each op: roots
        self.makes: list[list[int]] = []  # of each op: roots
        self.inplace: list[set[int]] = []  # of each op: roots that a result may take over
        self.joins: list[bool] = []  # whether an op takes over all roots that end with it (concat, gather)
        self.after: list[set[int]] = []  # of each op: ops before it
        self._root: dict[SSAValue, int] = {}
        self._number: dict[Operation | Block, int] = {op: i for i, op in enumerate(self.ops)}
        self.start = 0
        previous_effect: int | None = None
        for i, op in enumerate(self.ops):
            self._add(i, op)
            if op.has_trait(IsTerminator):
                self.after[i].update(range(i))
            elif not is_side_effect_free(op):
                if previous_effect is not None:
                    self.after[i].add(previous_effect)
                previous_effect = i

    def _add(self, i: int, op: Operation) -> None:
        roots = [self._root.get(v) for v in op.operands]
        reads = {r for r in roots if r is not None}
        self.reads.append(reads)
        self.after.append({self._number[v.owner] for v in op.operands if v.owner in self._number})
        self.makes.append([])
        self.inplace.append(set())
        self.joins.append(False)
        for r in reads:
            self.users[r].add(i)
            if op.has_trait(IsTerminator):
                self.fixed[r] = True
        if isinstance(op, OnceOp | ParamOp) or not op.results:
            return
        self._add_results(i, op, roots)

    def _add_results(self, i: int, op: Operation, roots: Sequence[int | None]) -> None:
        views = views_of(op)
        over = overwritable(op)
        for j, result in enumerate(op.results):
            size = typical(byte_size(result.type))
            mine = [v for v in views if v.result == j]
            source = roots[mine[0].operand] if len(mine) == 1 else None
            if source is not None and size <= self.size[source]:
                self._root[result] = source
                continue
            self._root[result] = root = len(self.size)
            self.size.append(size)
            self.users.append(set())
            self.fixed.append(isinstance(op, Input | Create))
            self.joins[i] |= len(mine) > 1
            self.inplace[i].update(
                r for k, to in over if to == j and (r := roots[k]) is not None and self.size[r] == size
            )
            if isinstance(op, Input | Create):
                self.start += size
            else:
                self.makes[i].append(root)

    # -- orders

    def live(self, order: Sequence[int]) -> list[int]:
        """The bytes in use while each op runs, of ops in this order."""
        left = [len(u) for u in self.users]
        now, live = self.start, []
        for i in order:
            ends = [r for r in self.reads[i] if left[r] == 1 and not self.fixed[r]]
            allocated = sum(self.size[r] for r in self.makes[i])
            freed = sum(self.size[r] for r in ends)
            reused = sum(self.size[r] for r in ends if self.joins[i] or r in self.inplace[i])
            live.append(now + allocated - min(reused, allocated))
            dead = sum(self.size[r] for r in self.makes[i] if not self.users[r])
            now += allocated - freed - dead
            for r in self.reads[i]:
                left[r] -= 1
        return live

    def peak(self, order: Sequence[int]) -> int:
        """The highest number of bytes in use while the ops run in this order."""
        return max(self.live(order), default=self.start)

    def order(self, by_delta: bool) -> list[int]:
        """List scheduling. An op that could overwrite what others have yet to read waits for them, if it can; with
        `by_delta` the op that adds least memory goes first before anything else. Ties go to the source order."""
        left = [len(u) for u in self.users]
        waits = [len(a) for a in self.after]
        followers: list[list[int]] = [[] for _ in self.ops]
        for i, before in enumerate(self.after):
            for b in before:
                followers[b].append(i)

        def key(i: int) -> tuple[int, bool]:
            waiting = any(left[r] > 1 and not self.fixed[r] for r in self.inplace[i])
            if not by_delta:
                return 0, waiting
            freed = sum(self.size[r] for r in self.reads[i] if left[r] == 1 and not self.fixed[r])
            return sum(self.size[r] for r in self.makes[i]) - freed, waiting

        heap = [(key(i), i) for i, n in enumerate(waits) if n == 0]
        heapq.heapify(heap)
        done = [False] * len(self.ops)
        order: list[int] = []
        while heap:
            _, i = heapq.heappop(heap)
            if done[i]:
                continue
            done[i] = True
            order.append(i)
            for f in followers[i]:
                waits[f] -= 1
                if waits[f] == 0:
                    heapq.heappush(heap, (key(f), f))
            for r in self.reads[i]:
                left[r] -= 1
                if left[r] == 1:  # the last reader is better now than it was when it entered the heap
                    last = next(u for u in self.users[r] if not done[u])
                    if waits[last] == 0:
                        heapq.heappush(heap, (key(last), last))
        return order
