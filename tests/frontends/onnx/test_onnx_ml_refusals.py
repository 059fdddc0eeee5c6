"""What no node of ai.onnx.ml can be is refused at the node, check by check: a row each, of attributes that are right but for one."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from onnx_ml import machine

onnx = pytest.importorskip("onnx")
from onnx import numpy_helper  # noqa: E402
from test_onnx_ml import model  # noqa: E402

import lightnet  # noqa: E402
from lightnet.diagnostics import LightNetError  # noqa: E402

X = np.ones((2, 4), np.float32)


def tensor(values: list, dtype: type = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, dtype))


def ensemble(**changes: Any) -> dict[str, Any]:
    """One node with two leaves, in the form of version 5."""
    right = dict(
        n_targets=1, tree_roots=[0], nodes_featureids=[0], nodes_modes=tensor([0], np.uint8), nodes_splits=tensor([1.5]),
        nodes_truenodeids=[0], nodes_trueleafs=[1], nodes_falsenodeids=[1], nodes_falseleafs=[1], leaf_targetids=[0, 0],
        leaf_weights=tensor([1, 2]),
    )  # fmt: skip
    return right | changes


def tree(**changes: Any) -> dict[str, Any]:
    """One node with two leaves, a list for each attribute."""
    nodes = dict(treeids=[0] * 3, nodeids=[0, 1, 2], featureids=[0] * 3, values=[0.0] * 3, modes=["BRANCH_LEQ", "LEAF", "LEAF"],
                 truenodeids=[1, 0, 0], falsenodeids=[2, 0, 0])  # fmt: skip
    leaves = dict(target_treeids=[0, 0], target_nodeids=[1, 2], target_ids=[0, 0], target_weights=[1.0, 2.0])
    return {"n_targets": 1, **{f"nodes_{k}": v for k, v in nodes.items()}, **leaves, **changes}


LINEAR = {"coefficients": [1.0] * 12, "intercepts": [0.5] * 3, "classlabels_ints": [0, 1, 2]}
SVM = {"n_supports": 2, "support_vectors": [1.0] * 8, "coefficients": [1.0, 2.0], "rho": [0.5], "kernel_type": "RBF",
       "kernel_params": [1.0, 0.0, 0.0]}  # fmt: skip
KEYS = {"keys_int64s": [1, 2], "values_int64s": [3, 4]}
#: op, version, input, attributes, message, outputs.
ROWS: list[tuple] = [
    ("TreeEnsemble", 5, X, ensemble(nodes_truenodeids=[2]), "nodes_truenodeids should name its nodes and leaves"),
    ("TreeEnsemble", 5, X, ensemble(nodes_falsenodeids=[-1]), "nodes_falsenodeids should name its nodes and leaves"),
    ("TreeEnsemble", 5, X, ensemble(nodes_trueleafs=[0], nodes_truenodeids=[1]), "should name its nodes and leaves"),
    ("TreeEnsemble", 5, X, ensemble(nodes_falseleafs=[1, 1]), "should name its nodes and leaves"),
    ("TreeEnsemble", 5, X, ensemble(nodes_splits=tensor([1, 2])), "should be of one length"),
    ("TreeEnsemble", 5, X, ensemble(nodes_featureids=[0, 0]), "should be of one length"),
    ("TreeEnsemble", 5, X, ensemble(leaf_targetids=[0]), "should be of one length"),
    ("TreeEnsemble", 5, X, ensemble(nodes_modes=tensor([7], np.uint8)), "their modes known"),
    ("TreeEnsemble", 5, X, ensemble(tree_roots=[1]), "tree_roots should name its nodes"),
    ("TreeEnsemble", 5, X, ensemble(tree_roots=[-1]), "tree_roots should name its nodes"),
    ("TreeEnsemble", 5, X, ensemble(tree_roots=[0], nodes_missing_value_tracks_true=[0, 0]), "tree_roots should name its nodes"),
    ("TreeEnsemble", 5, X, ensemble(nodes_modes=tensor([6], np.uint8)), "1 nodes of membership, and 0 sets"),
    ("TreeEnsemble", 5, X, ensemble(aggregate_function=4), "aggregate_function is 4; there are 0 to 3"),
    ("TreeEnsemble", 5, X, ensemble(post_transform=5), "post_transform is 5; there are 0 to 4"),
    ("TreeEnsemble", 5, X, ensemble(post_transform=-1), "post_transform is -1"),
    ("TreeEnsemble", 5, X[0], ensemble(), r"should be \[rows, features\]"),
    ("TreeEnsembleRegressor", 3, X, tree(nodes_treeids=[0, 0]), "should be of one length"),
    ("TreeEnsembleRegressor", 3, X, tree(nodes_modes=["BRANCH_MEMBER", "LEAF", "LEAF"]), "BRANCH_MEMBER as an attribute of text"),
    ("TreeEnsembleRegressor", 3, X, tree(nodes_falsenodeids=[1, 0, 0]), "should have one root"),
    ("TreeEnsembleRegressor", 3, X, tree(nodes_nodeids=[0, 1, 1]), "two of its nodes have one number"),
    ("TreeEnsembleRegressor", 3, X, tree(nodes_nodeids=[0, 1, 1 << 31]), "from 0 to 2.31"),
    ("TreeEnsembleRegressor", 3, X, tree(nodes_nodeids=[0, 1, -1]), "from 0 to 2.31"),
    ("TreeEnsembleRegressor", 3, X, tree(target_treeids=[0]), "should come in pairs"),
    ("TreeEnsembleRegressor", 3, X, tree(nodes_featureids=[-1, 0, 0]), "look at feature -1, and its input has 4"),
    ("TreeEnsembleRegressor", 3, X, tree(nodes_featureids=[4, 0, 0]), "look at feature 4, and its input has 4"),
    ("TreeEnsembleRegressor", 3, X, tree(target_ids=[0, 1]), "targets 0 to 0"),
    ("TreeEnsembleRegressor", 3, X, tree(base_values=[1.0, 2.0]), "2 base values should be 1 or 1"),
    ("TreeEnsembleRegressor", 3, X, tree(post_transform="CUBE"), "its post_transform is CUBE"),
    ("TreeEnsembleRegressor", 3, X, tree(aggregate_function="MEDIAN"), "aggregate_function|MEDIAN"),
    ("LinearRegressor", 1, X, {"coefficients": [1.0] * 5}, "5 coefficients should be 1 x 4"),
    ("LinearRegressor", 1, X, {"coefficients": [1.0] * 8, "targets": 2, "intercepts": [1.0]}, "1 intercepts should be 2"),
    ("LinearRegressor", 1, np.ones((1, 2, 4), np.float32), {"coefficients": [1.0] * 4}, r"should be \[rows, features\]"),
    ("LinearClassifier", 1, X, LINEAR | {"classlabels_ints": [0, 1]}, "should be 2 x 4|labels", 2),
    ("LinearClassifier", 1, X, LINEAR | {"intercepts": [0.5]}, "1 intercepts should be 3", 2),
    ("SVMRegressor", 1, X, SVM | {"coefficients": [1.0]}, "2 support vectors should have 4 features and a coefficient each"),
    ("SVMRegressor", 1, X, SVM | {"support_vectors": [1.0] * 7}, "2 support vectors should have 4 features"),
    ("SVMRegressor", 1, X, SVM | {"kernel_type": "CUBE"}, "its kernel_type is CUBE"),
    ("SVMClassifier", 1, X, machine(3, False) | {"vectors_per_class": [3, 2]}, "one number for each of 3 classes", 2),
    ("SVMClassifier", 1, X, machine(3, False) | {"vectors_per_class": [7, -1, 0]}, "one number for each of 3 classes", 2),
    ("SVMClassifier", 1, X, machine(3, False) | {"support_vectors": [1.0] * 4}, "support vectors|support_vectors", 2),
    ("SVMClassifier", 1, X, machine(3, False) | {"coefficients": [1.0] * 4}, "support vectors|coefficients", 2),
    ("SVMClassifier", 1, X, machine(3, True) | {"prob_b": [1.0] * 2}, "3 prob_a and 2 prob_b", 2),
    ("SVMClassifier", 1, X, {"coefficients": [1.0] * 11, "classlabels_ints": [0, 1, 2], "rho": [0.0]}, "should be 3 x 4", 2),
    ("Scaler", 1, X, {"offset": [1.0] * 3, "scale": [1.0]}, "its offset has 3 elements"),
    ("Scaler", 1, X, {"offset": [1.0] * 4, "scale": [1.0] * 2}, "its scale has 2 elements"),
    ("Normalizer", 1, X, {"norm": "L3"}, "its norm is L3; there are L1, L2 and MAX"),
    ("Imputer", 1, X, {"imputed_value_floats": [1.0] * 3}, "it has 3 values"),
    ("Imputer", 1, X.astype(np.int64), {"imputed_value_int64s": [1] * 3}, "it has 3 values"),
    ("OneHotEncoder", 1, X, {"cats_int64s": [1], "zeros": 0}, "zeros = 0"),
    ("LabelEncoder", 2, X.astype(np.int64), KEYS | {"values_int64s": [3]}, "it has 2 keys and 1 values"),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[4]}")
def test_a_refusal(row: tuple) -> None:
    op, version, x, attributes, message, outputs = (*row, 1)[:6]
    with pytest.raises(LightNetError) as caught:
        lightnet.loads(model(op, {"x": x}, outputs, version, **attributes), ".onnx")
    words = "\n".join([caught.value.message, *(note for _, note in caught.value.notes)])
    assert re.search(message, words), words


def test_what_the_rows_change_is_right_otherwise() -> None:
    for op, version, attributes in (
        ("TreeEnsemble", 5, ensemble()),
        ("TreeEnsembleRegressor", 3, tree()),
        ("SVMRegressor", 1, SVM),
    ):
        lightnet.loads(model(op, {"x": X}, 1, version, **attributes), ".onnx")
    for op, attributes in (("LinearClassifier", LINEAR), ("SVMClassifier", machine(3, True))):
        lightnet.loads(model(op, {"x": X}, 2, 1, **attributes), ".onnx")
