"""Tree ensembles of ai.onnx.ml: TreeEnsembleClassifier, TreeEnsembleRegressor and TreeEnsemble.

A forest becomes tables of one list of nodes, in which the two children of a node are neighbours, the nodes of all trees
lie level by level, and every condition is ``x <= threshold``: ``x < t`` is ``x <= `` the float before t, ``x >= t`` is
that with the children exchanged, ``x == t`` is two nodes, and membership a chain of these. Where NaN goes to the first
child, the node looks at a column in which NaN is minus infinity. `ln.tree_step`, as often as the deepest tree is deep,
leads to the leaves, whose values are summed. Imports the composites and the table of handlers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lightnet.dataclasses import dataclass
from lightnet.frontends.composites import concat, expand, full, positions_along
from lightnet.frontends.graph import Value
from lightnet.frontends.onnx.node import Node, onnx_op
from lightnet_ml.scores import ML, labelled, needs_floats, transformed

#: Nodes of a forest, and levels of a tree.
MAX_NODES, MAX_DEPTH = 1 << 24, 4096
#: Elements of a table that has the values of inner nodes (zeros), too.
MAX_DENSE = 1 << 22

LEQ, LT, GTE, GT, EQ, NEQ, MEMBER, LEAF = range(8)
MODES = {"BRANCH_LEQ": LEQ, "BRANCH_LT": LT, "BRANCH_GTE": GTE, "BRANCH_GT": GT, "BRANCH_EQ": EQ, "BRANCH_NEQ": NEQ,
         "BRANCH_MEMBER": MEMBER, "LEAF": LEAF}  # fmt: skip
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
POST_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@dataclass
class Forest:
    """Nodes as a model gives them: `true` and `false` are places in the list, `tracks` says that NaN takes the first
    child; `weights` are (node, target, weight) of leaves."""

    mode: np.ndarray
    feature: np.ndarray
    value: np.ndarray
    true: np.ndarray
    false: np.ndarray
    tracks: np.ndarray
    roots: np.ndarray
    weights: tuple[np.ndarray, np.ndarray, np.ndarray]
    targets: int


@dataclass(frozen=True)
class Tables:
    """The tables of `ln.tree_step`. `origin` is the node of the `Forest` that each one is; `depth` the number of
    steps."""

    feature: np.ndarray
    threshold: np.ndarray
    child: np.ndarray
    origin: np.ndarray
    depth: int


# -- the forms of a model ----------------------------------------------------------------------------------------------


def _of_attributes(n: Node, kind: str, targets: int) -> Forest:
    """The form with one list of nodes for each attribute; `kind` (class, target) begins the names of those of
    leaves."""
    trees, ids = (np.array(n.ints(f"nodes_{k}"), np.int64) for k in ("treeids", "nodeids"))
    count = len(trees)
    modes = np.array([MODES.get(m, -1) for m in n.strings("nodes_modes")], np.int8)
    value = _floats(n, "nodes_values", count)
    true, false, feature = (
        np.array(n.ints(f"nodes_{k}"), np.int64) for k in ("truenodeids", "falsenodeids", "featureids")
    )
    tracks = np.array(n.ints("nodes_missing_value_tracks_true", (0,) * count), bool)
    lists: tuple[np.ndarray, ...] = (ids, modes, value, true, false, feature, tracks)
    if any(len(column) != count for column in lists) or (modes < 0).any() or not count:
        n.fail("its lists of nodes should be of one length, and their modes known")
    if (modes == MEMBER).any():
        n.unsupported("BRANCH_MEMBER as an attribute of text")
    key = _keys(n, trees, ids)
    order = np.argsort(key, kind="stable")
    key = key[order]
    if (key[1:] == key[:-1]).any():
        n.fail("two of its nodes have one number")

    def places(tree: np.ndarray, node: np.ndarray) -> np.ndarray:
        wanted = _keys(n, tree, node)
        at = np.minimum(np.searchsorted(key, wanted), count - 1)
        if (key[at] != wanted).any():
            n.fail("a node or a weight of its refers to a node that is not there")
        return order[at]

    inner = modes != LEAF
    for child in (true, false):
        child[inner] = places(trees[inner], child[inner])
        child[~inner] = 0
    root = np.ones(count, bool)
    root[true[inner]] = root[false[inner]] = False
    roots = np.flatnonzero(root)
    if not len(roots) or len(np.unique(trees[roots])) != len(roots):
        n.fail("each of its trees should have one root")
    leaf = places(*(np.array(n.ints(f"{kind}_{k}"), np.int64) for k in ("treeids", "nodeids")))
    target, weight = np.array(n.ints(f"{kind}_ids"), np.int64), _floats(n, f"{kind}_weights", len(leaf))
    return Forest(modes, feature, value, true, false, tracks, roots, (leaf, target, weight), targets)


def _keys(n: Node, trees: np.ndarray, ids: np.ndarray) -> np.ndarray:
    if len(trees) != len(ids) or (np.concatenate([trees, ids]) >> 31).any():
        n.fail("numbers of trees and nodes should come in pairs, from 0 to 2^31")
    return (trees << 32) | ids


def _floats(n: Node, name: str, count: int) -> np.ndarray:
    """Floats of an attribute or, in f64 where they are given so, of the tensor of that name."""
    tensor = n.tensor(f"{name}_as_tensor")
    if tensor is not None and tensor.size:
        return tensor.reshape(-1)
    return np.array(n.floats(name, (0.0,) * count), np.float32)


def _of_tensors(n: Node) -> Forest:
    """The form of version 5, whose leaves have a list of their own."""
    modes, splits = (np.asarray(n.tensor(k)).reshape(-1) for k in ("nodes_modes", "nodes_splits"))
    inner, leaves = len(modes), np.asarray(n.tensor("leaf_weights")).reshape(-1)
    feature = np.array(n.ints("nodes_featureids"), np.int64)
    targets, ids = n.int("n_targets"), np.array(n.ints("leaf_targetids"), np.int64)
    total = inner + len(leaves)
    children = []
    for side in ("true", "false"):
        to, leaf = (np.array(n.ints(f"nodes_{side}{k}"), np.int64) for k in ("nodeids", "leafs"))
        if len(to) != inner or len(leaf) != inner or (to < 0).any() or (to >= np.where(leaf, len(leaves), inner)).any():
            n.fail(f"its nodes_{side}nodeids should name its nodes and leaves")
        children.append(np.concatenate([np.where(leaf, to + inner, to), np.zeros(len(leaves), np.int64)]))
    if len(splits) != inner or len(feature) != inner or len(ids) != len(leaves) or (modes > MEMBER).any():
        n.fail("its lists of nodes should be of one length, and their modes known")
    tracks = np.array(n.ints("nodes_missing_value_tracks_true", (0,) * inner), bool)
    roots = np.array(n.ints("tree_roots"), np.int64)
    if len(tracks) != inner or not len(roots) or (roots < 0).any() or (roots >= max(inner, 1)).any():
        n.fail("its tree_roots should name its nodes")
    pad = np.zeros(len(leaves), np.int64)
    # A node that is its own leaf on both sides is a tree of one leaf.
    return Forest(np.concatenate([modes.astype(np.int8), np.full(len(leaves), LEAF, np.int8)]),
                  np.concatenate([feature, pad]), np.concatenate([splits, pad.astype(splits.dtype)]),
                  children[0], children[1],
                  np.concatenate([tracks, pad.astype(bool)]), roots, (np.arange(inner, total), ids, leaves),
                  targets)  # fmt: skip


# -- one condition, neighbours, levels ---------------------------------------------------------------------------------


def _plain(n: Node, f: Forest) -> None:
    """Leave only nodes of ``x <= t``, and leaves."""
    _chains(n, f)
    swapped = np.isin(f.mode, (GTE, GT))
    before = np.isin(f.mode, (GTE, LT))
    f.true[swapped], f.false[swapped] = f.false[swapped], f.true[swapped]
    f.tracks = f.tracks ^ swapped
    below = np.nextafter(f.value, f.value.dtype.type(-np.inf))
    f.value = np.where(before, np.where(np.isneginf(f.value), np.nan, below), f.value).astype(f.value.dtype)
    f.mode = np.where(f.mode == LEAF, LEAF, LEQ).astype(np.int8)


def _chains(n: Node, f: Forest) -> None:
    """Nodes of equality as two, and of membership as a chain of such pairs: x <= t ? (x < t ? no : yes) : no."""
    special = np.flatnonzero(np.isin(f.mode, (EQ, NEQ, MEMBER)))
    if not len(special):
        return
    members = iter(_members(n, int((f.mode[special] == MEMBER).sum())))
    nodes: list[list[Any]] = [a.tolist() for a in (f.mode, f.feature, f.value, f.true, f.false, f.tracks)]
    for at in special.tolist():
        mode, feature, value, yes, no, tracks = (column[at] for column in nodes)
        if mode == NEQ:
            yes, no, tracks = no, yes, False  # NaN is unequal to all
        wanted = next(members) if mode == MEMBER else [value]
        place = at
        for k, number in enumerate(wanted):
            inner = len(nodes[0])
            last = k + 1 == len(wanted)
            other = no if last else inner + 1
            # NaN fails every test, down to `no`; or, where it is tracked, passes the first one to `yes`.
            for column, x in zip(nodes, (LEQ, feature, number, inner, other, tracks and k == 0)):
                column[place] = x
            place = inner + 1
            for row in ((LT, feature, number, other, yes, False), (0,) * 6)[: 1 if last else 2]:
                for column, x in zip(nodes, row):
                    column.append(x)
    kinds: tuple[Any, ...] = (np.int8, np.int64, f.value.dtype, np.int64, np.int64, bool)
    f.mode, f.feature, f.value, f.true, f.false, f.tracks = (np.array(c, d) for c, d in zip(nodes, kinds))


def _members(n: Node, count: int) -> list[list[float]]:
    """The sets of the nodes of membership, in order: NaN ends each."""
    values = n.tensor("membership_values")
    sets: list[list[float]] = [[]]
    for x in np.asarray([] if values is None else values).reshape(-1).tolist():
        if np.isnan(x):
            sets.append([])
        else:
            sets[-1].append(x)
    sets = [s for s in sets if s]
    if len(sets) != count:
        n.fail(f"it has {count} nodes of membership, and {len(sets)} sets")
    return sets


def tables(n: Node, f: Forest, features: int) -> Tables:
    """Nodes level by level, the children of one beside each other. Feature `features` is 0 everywhere, and feature
    features + 1 + k is feature k with minus infinity for NaN."""
    _plain(n, f)
    inner = f.mode != LEAF
    if inner.any() and ((f.feature[inner] < 0).any() or (f.feature[inner] >= features).any()):
        n.fail(f"its nodes look at feature {int(f.feature[inner].max())}, and its input has {features}")
    levels, child, start = [f.roots], [], 0
    while True:
        here = levels[-1]
        total = start + len(here)
        splits = inner[here]
        number = np.cumsum(splits) - 1
        child.append(np.where(splits, total + 2 * number, start + np.arange(len(here))))
        below = here[splits]
        if not len(below):
            break
        if len(levels) > MAX_DEPTH or total + 2 * len(below) > MAX_NODES:
            n.unsupported(f"a forest of more than {MAX_NODES} nodes or {MAX_DEPTH} levels")
        levels.append(np.stack([f.true[below], f.false[below]], 1).reshape(-1))
        start = total
    origin = np.concatenate(levels)
    leaf = ~inner[origin]
    feature = np.where(leaf, features, f.feature[origin] + np.where(f.tracks[origin], features + 1, 0))
    threshold = np.where(leaf, np.inf, f.value[origin]).astype(f.value.dtype)
    return Tables(feature.astype(np.int32), threshold, np.concatenate(child).astype(np.int32), origin, len(levels) - 1)


# -- as ops ------------------------------------------------------------------------------------------------------------


def scores(n: Node, x: Value, f: Forest, aggregate: str) -> Value:
    """The values [N, targets] of a forest on rows [N, features]."""
    g = n.g
    if x.ndim != 2 or not x.dims[1]:
        n.fail(f"its input should be [rows, features], but is {x.spec}")
    x = needs_floats(n, x)
    if f.value.dtype == np.float64 and x.dtype.name == "f32":
        # x <= t for an f32 x, where t is no f32: the largest f32 that is not above it says the same.
        f.value = _not_above(f.value)
    elif x.dtype.name == "f64":
        f.value = f.value.astype(np.float64)
    rows, features = x.dims
    t = tables(n, f, features)
    columns = [x, full(g, (rows, 1), 0, x.dtype)]
    if (t.feature > features).any():
        columns.append(g.op("where", g.op("isnan", x), g.scalar(-np.inf, x.dtype), x))
    wide = concat(g, columns, 1)
    count = len(f.roots)
    node = expand(g, positions_along(g, count, 1, 2, "i32"), (rows, count))
    feature, threshold, child = (g.constant(a) for a in (t.feature, t.threshold, t.child))
    for _ in range(t.depth):
        node = g.op("tree_step", wide, node, feature, threshold, child)
    values, absent = _leaf_values(n, f, t, aggregate)
    found = g.op("take", g.constant(values[0]), node, axis=0) if values[1] is None else g.op(
        "take", g.constant(values[0]), g.op("take", g.constant(values[1]), node, axis=0), axis=0)  # fmt: skip
    reduce = {"SUM": "reduce_sum", "AVERAGE": "reduce_sum", "MIN": "reduce_min", "MAX": "reduce_max"}[aggregate]
    total = g.reshape(g.op(reduce, found, axes=(1,)), (rows, f.targets))
    if aggregate == "AVERAGE":
        total = g.op("div", total, g.scalar(count, total.dtype))
    if absent:
        total = g.op("where", g.op("isinf", total), g.scalar(0, total.dtype), total)
    return total


def _not_above(value: np.ndarray) -> np.ndarray:
    """The largest f32 that is not above each f64."""
    near = value.astype(np.float32)
    return np.where(near > value, np.nextafter(near, np.float32(-np.inf)), near).astype(np.float32)


def _leaf_values(n: Node, f: Forest, t: Tables, aggregate: str) -> tuple[tuple[np.ndarray, np.ndarray | None], bool]:
    """The values of nodes, [nodes, targets]; or of leaves alone, and which leaf each node is. And whether some leaf
    lacks a target."""
    leaf, target, weight = f.weights
    if len(leaf) != len(target) or (len(target) and not 0 <= target.min() <= target.max() < f.targets):
        n.fail(f"its weights should be of targets 0 to {f.targets - 1}")
    n.g.bounded(len(f.mode) * f.targets, "a table of leaves")
    own = np.zeros((len(f.mode), f.targets), np.float32)
    np.add.at(own, (leaf, target), weight.astype(np.float32))
    absent = False
    if aggregate in ("MIN", "MAX"):
        there = np.zeros(own.shape, bool)
        there[leaf, target] = True
        absent = not there[leaf].all()
        own = np.where(there, own, np.float32(np.inf if aggregate == "MIN" else -np.inf))
    if len(t.origin) * f.targets <= MAX_DENSE:
        return (own[t.origin], None), absent
    leaves, number = np.unique(np.where(f.mode[t.origin] == LEAF, t.origin, t.origin.max()), return_inverse=True)
    return (own[leaves], number.astype(np.int32)), absent


@onnx_op("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(n: Node, x: Value) -> Value:
    targets = n.int("n_targets", 1)
    y = scores(n, x, _of_attributes(n, "target", targets), n.string("aggregate_function", "SUM"))
    return transformed(n, _based(n, y), n.string("post_transform", "NONE"))


@onnx_op("TreeEnsemble", domain=ML)
def tree_ensemble(n: Node, x: Value) -> Value:
    y = scores(n, x, _of_tensors(n), _named(n, AGGREGATES, "aggregate_function", 1))
    return n.g.cast(transformed(n, y, _named(n, POST_TRANSFORMS, "post_transform", 0)), x.dtype)


def _named(n: Node, names: tuple[str, ...], attribute: str, default: int) -> str:
    number = n.int(attribute, default)
    if not 0 <= number < len(names):
        n.fail(f"its {attribute} is {number}; there are 0 to {len(names) - 1}")
    return names[number]


def _based(n: Node, y: Value) -> Value:
    base = _floats(n, "base_values", 0).astype(np.float32)
    if not len(base):
        return y
    if len(base) not in (1, y.dims[1]):
        n.fail(f"its {len(base)} base values should be 1 or {y.dims[1]}")
    return n.g.op("add", y, n.g.constant(base))


@onnx_op("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(n: Node, x: Value) -> tuple[Value, Value]:
    """Classes and their scores. Of two classes the first may have all the weights: they are the second's, and the
    first's score follows."""
    count = max(len(n.ints("classlabels_int64s", ())), len(n.strings("classlabels_strings", ())))
    f = _of_attributes(n, "class", count)
    leaf, ids, weight = f.weights
    positive = count == 2 and len(np.unique(ids)) == 1 and bool((weight >= 0).all())
    single = count == 2 and not ids.any()
    if single:
        f.weights, f.targets = (leaf, np.zeros_like(ids), weight), 1
    y = scores(n, x, f, "SUM")
    base = _floats(n, "base_values", 0)
    if single and len(base) == 2:
        y = n.g.op("add", y, n.g.constant(base[1:].astype(np.float32)))
    else:
        y = _based(n, y)
    return labelled(n, y, positive)
