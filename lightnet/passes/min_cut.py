"""The labelling of nodes by two labels at the least cost: a minimum cut.

Costs are of a node with a label, and of pairs of nodes with different ones; any such sum has an exact minimum in
polynomial time (Picard and Ratliff 1975). The flow is found as by Dinic (1970): shortest augmenting paths, many at a
time. Pure Python on integers.
"""

from __future__ import annotations

from collections import deque
from itertools import count

#: A cost that no sum of others reaches.
NEVER = 1 << 62


class TwoLabels:
    """Nodes, numbered from 0, each of which is labelled True or False. Costs are integers, at least 0."""

    def __init__(self) -> None:
        self.edges: list[list[int]] = [[], []]  # of each vertex, its edges by number; two vertices are the labels
        self.excess: list[int] = []  # of each node, how much more it costs to be False
        self.heads: list[int] = []
        self.room: list[int] = []  # edge e ^ 1 is the converse of edge e

    def node(self, if_true: int = 0, if_false: int = 0) -> int:
        """A new node, and what each of its labels costs."""
        self.edges.append([])
        self.excess.append(if_false - if_true)
        return len(self.excess) - 1

    def cost(self, node: int, if_true: int) -> None:
        """Add what it costs that a node is True."""
        self.excess[node] -= if_true

    def pair(self, one: int, other: int, cost: int) -> None:
        """Add the cost that `one` is True and `other` False."""
        self._edge(one + 2, other + 2, cost)

    def any_false(self, one: int, others: list[int], cost: int) -> None:
        """Add the cost, once, that `one` is True and any of `others` False."""
        if len(others) == 1:
            self.pair(one, others[0], cost)
        elif others:
            both = self.node()
            self.pair(one, both, cost)
            for other in others:
                self.pair(both, other, NEVER)

    def any_true(self, others: list[int], one: int | None, cost: int) -> None:
        """Add the cost, once, that any of `others` is True and `one` False (or always, without `one`)."""
        if not others:
            return
        either = others[0] if len(others) == 1 else self.node()
        for other in others if len(others) > 1 else ():
            self.pair(other, either, NEVER)
        if one is None:
            self.cost(either, if_true=cost)
        else:
            self.pair(either, one, cost)

    def solve(self) -> list[bool]:
        """The labels that cost least together; of several such, those with the fewest True. To be called once."""
        for node, excess in enumerate(self.excess):
            if excess > 0:
                self._edge(0, node + 2, excess)
            elif excess < 0:
                self._edge(node + 2, 1, -excess)
        while True:
            level = self._levels()
            if level[1] < 0:
                return [distance >= 0 for distance in level[2:]]
            self._augment(level)

    def _edge(self, tail: int, head: int, room: int) -> None:
        for vertex, other, free in ((tail, head, room), (head, tail, 0)):
            self.edges[vertex].append(len(self.heads))
            self.heads.append(other)
            self.room.append(free)

    def _levels(self) -> list[int]:
        """Each vertex's distance from the label True over edges with room; -1 where there is no way."""
        level = [-1] * len(self.edges)
        level[0] = 0
        waiting = deque([0])
        while waiting:
            vertex = waiting.popleft()
            for edge in self.edges[vertex]:
                head = self.heads[edge]
                if self.room[edge] and level[head] < 0:
                    level[head] = level[vertex] + 1
                    waiting.append(head)
        return level

    def _augment(self, level: list[int]) -> None:
        """Fill shortest paths until each has an edge without room (a blocking flow)."""
        edges, heads, room = self.edges, self.heads, self.room
        tried = [0] * len(edges)  # of each vertex, the edges that lead no further
        path: list[int] = []
        vertex = 0
        while True:
            if vertex == 1:
                least = min(room[edge] for edge in path)
                for edge in path:
                    room[edge] -= least
                    room[edge ^ 1] += least
                cut = next(i for i in count() if not room[path[i]])
                vertex = heads[path[cut] ^ 1]
                del path[cut:]
                continue
            own, i = edges[vertex], tried[vertex]
            while i < len(own) and not (room[own[i]] and level[heads[own[i]]] == level[vertex] + 1):
                i += 1
            tried[vertex] = i
            if i < len(own):
                path.append(own[i])
                vertex = heads[own[i]]
            elif vertex == 0:
                return
            else:
                vertex = heads[path.pop() ^ 1]
                tried[vertex] += 1
