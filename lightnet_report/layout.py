"""The places of a graph's nodes in a picture: a layered drawing (Sugiyama, Tagawa and Toda 1981), in time near
linear.

Each node stands in the layer behind the last one that it reads from; long edges go through points in the layers
between. Sweeps order each layer by the mean position of the neighbours (the barycenter heuristic), and place it by
isotonic regression: the positions nearest to those means, in that order, without an overlap. Numbers only: imports
nothing of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lightnet.dataclasses import dataclass

#: Pixels between neighbours of a layer, and between layers.
GAP_X, GAP_Y = 26, 44
#: A longer edge is drawn directly: points in every layer would make the work quadratic.
MAX_SPAN = 24
#: Sweeps for the order of the layers, and for the positions in them.
ORDER_SWEEPS, PLACE_SWEEPS = 8, 8
#: How much straighter an edge through points should be than one between nodes.
POINT_WEIGHT, NODE_WEIGHT = 6.0, 1.0


@dataclass(frozen=True)
class _Layout:
    """Centres of the nodes, in pixels from the top left corner, the points of each edge between its ends, and the
    size."""

    centers: list[tuple[float, float]]
    bends: list[list[tuple[float, float]]]
    width: float
    height: float


def layout(sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]]) -> _Layout:
    """The drawing of nodes of these sizes (width, height). An edge (source, target) needs ``source < target``."""
    if not sizes:
        return _Layout([], [[] for _ in edges], 0, 0)
    return _Drawing(sizes, edges).run()


class _Drawing:
    """Nodes and, numbered behind them, the points of long edges: `layers` has both, from left to right."""

    def __init__(self, sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]]):
        self.count = len(sizes)
        self.widths = [w for w, _ in sizes]
        self.heights = [h for _, h in sizes]
        self.edges = edges
        self.layer = _layers(self.count, edges)
        self.above: list[list[int]] = [[] for _ in sizes]
        self.below: list[list[int]] = [[] for _ in sizes]
        self.points: list[list[int]] = [[] for _ in edges]
        self.x: list[float] = []
        for edge in {pair: k for k, pair in reversed(list(enumerate(edges)))}.values():
            self.route(edge)
        self.layers: list[list[int]] = [[] for _ in range(max(self.layer) + 1)]
        for node, layer in enumerate(self.layer):
            self.layers[layer].append(node)

    def route(self, edge: int) -> None:
        """Link the ends of an edge through points in the layers between; equal edges share them."""
        source, target = self.edges[edge]
        before = source
        if self.layer[target] - self.layer[source] <= MAX_SPAN:
            for layer in range(self.layer[source] + 1, self.layer[target]):
                point = len(self.widths)
                self.widths.append(2)
                self.heights.append(0)
                self.layer.append(layer)
                self.above.append([])
                self.below.append([])
                self.points[edge].append(point)
                self.link(before, point)
                before = point
            self.link(before, target)

    def link(self, a: int, b: int) -> None:
        self.below[a].append(b)
        self.above[b].append(a)

    def run(self) -> _Layout:
        self.x = [0.0] * len(self.widths)
        for layer in self.layers:
            self.number(layer)
        for sweep in range(ORDER_SWEEPS):
            self.sweep(sweep % 2 == 0, self.reorder)
        for layer in self.layers:
            self.place(layer, [[] for _ in layer])
        for sweep in range(PLACE_SWEEPS):
            self.sweep(sweep % 2 == 0, self.place)
        return self.result()

    def sweep(self, down: bool, step: Callable[[list[int], list[list[int]]], None]) -> None:
        """Take each layer in turn, by its neighbours in the layer before."""
        for layer in self.layers if down else reversed(self.layers):
            neighbours = self.above if down else self.below
            step(layer, [neighbours[v] for v in layer])

    def number(self, layer: list[int]) -> None:
        for position, v in enumerate(layer):
            self.x[v] = position - (len(layer) - 1) / 2

    def reorder(self, layer: list[int], neighbours: list[list[int]]) -> None:
        """Sort a layer by its neighbours' mean position; what has none keeps its place."""
        key = {v: self.mean(near, self.x[v]) for v, near in zip(layer, neighbours)}
        layer.sort(key=lambda v: (key[v], self.x[v]))
        self.number(layer)

    def mean(self, near: list[int], default: float) -> float:
        return sum(self.x[v] for v in near) / len(near) if near else default

    def place(self, layer: list[int], neighbours: list[list[int]]) -> None:
        """Move the nodes of a layer near to their neighbours, keeping the order and the gaps."""
        wishes = [self.mean(near, self.x[v]) for v, near in zip(layer, neighbours)]
        weights = [
            POINT_WEIGHT if v >= self.count and near and near[0] >= self.count else NODE_WEIGHT
            for v, near in zip(layer, neighbours)
        ]
        for v, x in zip(layer, apart(wishes, weights, [self.widths[v] for v in layer])):
            self.x[v] = x

    def result(self) -> _Layout:
        y, tops = 0.0, []
        for layer in self.layers:
            height = max((self.heights[v] for v in layer), default=0)
            tops.append(y + height / 2)
            y += height + GAP_Y
        left = min(self.x[v] - self.widths[v] / 2 for v in range(len(self.x)))
        right = max(self.x[v] + self.widths[v] / 2 for v in range(len(self.x)))
        at = [(self.x[v] - left, tops[self.layer[v]]) for v in range(len(self.x))]
        first = {pair: k for k, pair in reversed(list(enumerate(self.edges)))}
        bends = [[at[v] for v in self.points[first[pair]]] for pair in self.edges]
        return _Layout(at[: self.count], bends, right - left, y - GAP_Y)


def apart(wishes: Sequence[float], weights: Sequence[float], widths: Sequence[float]) -> list[float]:
    """Centres nearest to `wishes` (by weighted squares), in order, GAP_X apart at least.

    With the least distances taken off, that is isotonic regression: blocks that would overlap move together to their
    mean (pool adjacent violators; Barlow et al. 1972).
    """
    offsets, end = [], 0.0
    for width in widths:
        offsets.append(end + width / 2)
        end += width + GAP_X
    blocks: list[tuple[float, float, int]] = []  # (mean, weight, how many)
    for wish, weight, offset in zip(wishes, weights, offsets):
        mean, total, count = wish - offset, weight, 1
        while blocks and blocks[-1][0] > mean:
            m, w, n = blocks.pop()
            mean, total, count = (m * w + mean * total) / (w + total), w + total, n + count
        blocks.append((mean, total, count))
    means = [mean for mean, _, count in blocks for _ in range(count)]
    return [mean + offset for mean, offset in zip(means, offsets)]


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The longest path to each node; but what hangs on one reader alone, with all that it reads, stands right before
    that reader."""
    above: list[set[int]] = [set() for _ in range(count)]
    below: list[set[int]] = [set() for _ in range(count)]
    for source, target in edges:
        if source >= target:
            raise ValueError(f"edge ({source}, {target}) leads back")
        above[target].add(source)
        below[source].add(target)
    layer: list[int] = []
    hangs: list[bool] = []  # all that it reads is read by nothing else
    for v in range(count):
        layer.append(max((layer[u] + 1 for u in above[v]), default=0))
        hangs.append(all(hangs[u] and len(below[u]) == 1 for u in above[v]))
    for v in reversed(range(count)):
        if hangs[v] and below[v]:
            layer[v] = min(layer[w] for w in below[v]) - 1
    return layer
