"""Cases of ai.onnx.ml as converters of scikit-learn's and of boosted trees' models write it: random forests, machines and tables. The tests take
them, and `tools/conformance.py` counts them."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np

RNG = np.random.default_rng(9)


def seeded(seed: int = 9) -> None:
    """Begin to draw anew."""
    RNG.bit_generator.state = np.random.default_rng(seed).bit_generator.state


class Case(NamedTuple):
    """A node: inputs by name, how many outputs, the version of the domain, names of inputs that are constants, attributes."""

    inputs: dict[str, np.ndarray]
    outputs: int
    version: int
    constants: tuple[str, ...]
    attributes: dict[str, Any]


def case(
    inputs: dict[str, np.ndarray],
    outputs: int = 1,
    version: int = 1,
    constants: tuple[str, ...] = (),
    **attributes: Any,
) -> Case:
    """A case of an op's version 1, unless it says otherwise."""
    return Case(inputs, outputs, version, constants, attributes)


def f32(*dims: int) -> np.ndarray:
    return RNG.standard_normal(dims).astype(np.float32)


def forest(kind: str, trees: int, depth: int, features: int, targets: list[int], modes: tuple[str, ...], values: np.ndarray, several: bool = True,
           tracks: bool = False) -> dict:  # fmt: skip
    """The attributes of random trees that are not balanced; nodes are numbered in no order."""
    nodes: dict[str, list] = {k: [] for k in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids",
                                              "missing_value_tracks_true")}  # fmt: skip
    leaves: dict[str, list] = {k: [] for k in ("treeids", "nodeids", "ids", "weights")}

    def add(tree: int, node: int, mode: str, yes: int = 0, no: int = 0) -> None:
        row = (
            tree,
            node,
            int(RNG.integers(features)),
            mode,
            float(RNG.choice(values)),
            yes,
            no,
            int(tracks and RNG.random() < 0.5),
        )
        for column, x in zip(nodes.values(), row):
            column.append(x)

    for tree in range(trees):
        names = list(RNG.permutation(1 << (depth + 1)) + 1)

        def grow(node: int, level: int, tree: int = tree, names: list = names) -> None:
            if level == depth or (level and RNG.random() < 0.25):
                add(tree, node, "LEAF")
                for target in targets if several and RNG.random() < 0.7 else [int(RNG.choice(targets))]:
                    for column, x in zip(leaves.values(), (tree, node, target, float(RNG.random()))):
                        column.append(x)
                return
            yes, no = int(names.pop()), int(names.pop())
            add(tree, node, str(RNG.choice(modes)), yes, no)
            grow(yes, level + 1)
            grow(no, level + 1)

        grow(0, 0)
    return {f"nodes_{k}": v for k, v in nodes.items()} | {f"{kind}_{k}": v for k, v in leaves.items()}


GRID = np.arange(-2, 3, dtype=np.float32) / 2  # so that values are equal to thresholds
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def rows(count: int, features: int, missing: bool = False) -> np.ndarray:
    x = np.where(RNG.random((count, features)) < 0.5, RNG.choice(GRID, (count, features)), f32(count, features)).astype(
        np.float32
    )
    return np.where(RNG.random(x.shape) < 0.15, np.float32(np.nan), x) if missing else x


def machine(count: int, probabilities: bool, labels: dict | None = None) -> dict:
    """The attributes of a random classifier of `count` classes, of rows of 4."""
    per_class, pairs = [3, 2, 4, 1][:count], count * (count - 1) // 2
    total = sum(per_class)
    more = {"prob_a": (-1 - RNG.random(pairs)).tolist(), "prob_b": f32(pairs).tolist()} if probabilities else {}
    return {"support_vectors": f32(total * 4).tolist(), "coefficients": f32(total * (count - 1)).tolist(), "rho": f32(pairs).tolist(),
            "vectors_per_class": per_class, "kernel_params": [0.3, 0.5, 3.0],
            **(labels or {"classlabels_ints": [5, -2, 9, 0][:count]}), **more}  # fmt: skip


KERNELS = ("RBF", "LINEAR", "POLY", "SIGMOID")
POST = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")


def regressions() -> list[Case]:
    """Forests of every condition, aggregate and number of targets."""
    found = [case({"x": rows(20, 4, missing)}, 1, 3, n_targets=2,
                  **forest("target", 3, 4, 4, [0, 1], MODES if mode == "all" else (mode,), GRID, tracks=missing))
             for mode, missing in product((*MODES, "all"), (False, True))]  # fmt: skip
    return found + [
        case({"x": rows(20, 5)}, 1, 3, n_targets=targets, aggregate_function=aggregate,
             **forest("target", 7, 5, 5, list(range(targets)), MODES[:1], GRID))
        for aggregate, targets in product(("SUM", "AVERAGE", "MIN", "MAX"), (1, 3))]  # fmt: skip


def classifications() -> list[Case]:
    """Forests of three classes, and of two with one score."""
    found = [case({"x": rows(25, 4)}, 2, 3, post_transform=post, classlabels_int64s=[10, -3, 7],
                  **forest("class", 5, 4, 4, [0, 1, 2], MODES[:1], GRID)) for post in POST]  # fmt: skip
    for post in POST:
        attributes = forest("class", 5, 4, 4, [1], MODES[:1], GRID)
        if post != "NONE":  # as gradient boosting has it: weights of both signs
            attributes["class_weights"] = [w - 0.5 for w in attributes["class_weights"]]
        found.append(case({"x": rows(25, 4)}, 2, 3, post_transform=post, classlabels_int64s=[10, -3], **attributes))
    return found


def features() -> dict[str, list[Case]]:
    """What is before a model: scalers, imputers, encoders."""
    x, whole = f32(6, 4), RNG.integers(-2, 5, (6, 4))
    holes = np.where(RNG.random(x.shape) < 0.3, np.float32(np.nan), x)
    return {
        "Scaler": [case({"x": x}, offset=f32(4).tolist(), scale=f32(4).tolist()), case({"x": whole}, offset=[0.5], scale=[2.0])],
        "Normalizer": [*(case({"x": x}, norm=norm) for norm in ("L1", "L2")), case({"x": np.abs(x)}, norm="MAX")],
        "Binarizer": [case({"x": x}, threshold=0.25)],
        "Imputer": [case({"x": holes}, imputed_value_floats=[1.0, 2.0, 3.0, 4.0], replaced_value_float=float("nan")),
                    case({"x": whole}, imputed_value_int64s=[7], replaced_value_int64=0)],
        "OneHotEncoder": [case({"x": whole}, cats_int64s=cats, zeros=1) for cats in ([0, 1, 2, 3], [4, -2, 9])],
        "LabelEncoder": [case({"x": whole}, 1, 2, keys_int64s=[0, 3, -2], values_floats=[0.5, 1.5, 2.5], default_float=9.0),
                         case({"x": whole}, 1, 2, keys_int64s=[0, 3, -2], values_int64s=[10, 20, 30]),
                         case({"x": holes}, 1, 2, keys_floats=[float("nan"), float(x[0, 0])], values_int64s=[4, 5], default_int64=-7)],
        "FeatureVectorizer": [case({"a": x, "b": whole.astype(np.float32)}, inputdimensions=[4, 4])],
        "ArrayFeatureExtractor": [case({"x": x, "i": np.array([3, 0, 0])}, constants=("i",)),
                                  case({"x": x[0], "i": np.array([3, 0])}, constants=("i",))],
    }  # fmt: skip


def cases() -> dict[str, list[Case]]:
    """All of them by op, the same in every call."""
    seeded()
    x = f32(9, 5)
    linear = [case({"x": x}, coefficients=f32(k * 5).tolist(), intercepts=f32(k).tolist(), targets=k) for k in (1, 3)]
    linear += [
        case({"x": x}, coefficients=f32(15).tolist(), intercepts=f32(3).tolist(), targets=3, post_transform=p)
        for p in POST[1:]
    ]
    classes = [case({"x": x}, 2, coefficients=f32(len(labels) * 5).tolist(), intercepts=f32(len(labels)).tolist(), classlabels_ints=labels,
                    post_transform=p) for labels, p in product(([4, 9, 2], [0, 1]), POST)]  # fmt: skip
    vectors = [case({"x": f32(9, 4)}, kernel_type=kernel, kernel_params=[0.3, 0.5, 3.0], n_supports=6, one_class=one, rho=[0.2],
                    support_vectors=f32(24).tolist(), coefficients=f32(6).tolist()) for kernel, one in product(KERNELS, (0, 1))]  # fmt: skip
    votes = [case({"x": f32(30, 4)}, 2, kernel_type=kernel, post_transform=p, **machine(count, False))
             for kernel, count, p in product(KERNELS[:3], (2, 3, 4), POST) if count > 2 or p in ("NONE", "LOGISTIC")]  # fmt: skip
    return features() | {
        "TreeEnsembleRegressor": regressions(), "TreeEnsembleClassifier": classifications(), "LinearRegressor": linear,
        "LinearClassifier": classes, "SVMRegressor": vectors, "SVMClassifier": votes,
    }  # fmt: skip
