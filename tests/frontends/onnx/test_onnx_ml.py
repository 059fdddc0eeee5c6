"""ai.onnx.ml as converters of scikit-learn's models write it: against ONNX Runtime and ONNX's reference evaluator, on random forests and tables."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from onnx_ml import GRID, MODES, RNG, f32, forest, machine, rows, seeded

import lightnet
from lightnet.diagnostics import LightNetError

onnx = pytest.importorskip("onnx")
from onnx import helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

ML = "ai.onnx.ml"


@pytest.fixture(autouse=True)
def own_data() -> None:
    """A test draws the same numbers whichever run before it: ONNX Runtime refuses some random forests of BRANCH_NEQ."""
    seeded()


def ways(first: Any, *others: Any) -> list:
    """Parameters and targets: what an op means is quick to say, machine code of all but the `first` is slow."""
    return [
        (first, "cpu"),
        *((x, "none") for x in (first, *others)),
        *(pytest.param(x, "cpu", marks=pytest.mark.slow) for x in others),
    ]


TARGETS = ["none", pytest.param("cpu", marks=pytest.mark.slow)]
NAMES = ("LOGISTIC", "NONE", "SOFTMAX", "SOFTMAX_ZERO")
TRANSFORMS = ways(*NAMES)


def model(op: str, inputs: dict, outputs: int, version: int = 3, constants: tuple = (), **attributes) -> bytes:
    infos = [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
             for k, v in inputs.items() if k not in constants]  # fmt: skip
    names = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(op, list(inputs), names, domain=ML, **attributes)
    tensors = [numpy_helper.from_array(inputs[k], k) for k in constants]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info(y) for y in names], tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ML, version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def runtime(source: bytes, feeds: dict) -> list[np.ndarray]:
    ort = pytest.importorskip("onnxruntime")
    return ort.InferenceSession(source, providers=["CPUExecutionProvider"]).run(None, feeds)


def compare(
    op: str,
    inputs: dict,
    outputs: int = 1,
    version: int = 3,
    constants: tuple = (),
    tolerance: float = 1e-5,
    target: str = "cpu",
    **attributes,
) -> None:
    source = model(op, inputs, outputs, version, constants, **attributes)
    feeds = {k: v for k, v in inputs.items() if k not in constants}
    got = lightnet.compile(source, target)(feeds)
    for k, want in enumerate(runtime(source, feeds)):
        same(got[f"y{k}"], want, tolerance, f"{op} {attributes.get('post_transform', '')} output {k}")


def same(got: np.ndarray, want: np.ndarray, tolerance: float, what: str) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape, (
        f"{what}: {got.dtype}{got.shape}, not {want.dtype}{want.shape}"
    )
    np.testing.assert_allclose(
        got, want, rtol=tolerance, atol=tolerance * max(1, np.abs(want).max(initial=0)), err_msg=what
    )


# -- trees ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode, target", ways("all", *MODES))
@pytest.mark.parametrize("missing", [False, True])
def test_every_condition_of_a_tree(mode: str, target: str, missing: bool) -> None:
    """Values equal to thresholds, and NaN that is tracked or not; ONNX Runtime walks trees of several conditions one by one."""
    attributes = forest("target", 3, 4, 4, [0, 1], MODES if mode == "all" else (mode,), GRID, tracks=missing)
    compare("TreeEnsembleRegressor", {"x": rows(40, 4, missing)}, target=target, n_targets=2, **attributes)


@pytest.mark.parametrize("aggregate, target", ways("SUM", "AVERAGE", "MIN", "MAX"))
def test_regressors(aggregate: str, target: str) -> None:
    for targets, several in ((1, True), (3, True), (3, False)):
        attributes = forest("target", 7, 5, 5, list(range(targets)), MODES[:1], GRID, several)
        compare("TreeEnsembleRegressor", {"x": rows(20, 5)}, target=target, n_targets=targets, aggregate_function=aggregate,
                **({"base_values": [0.5] * targets} if several else {}), **attributes)  # fmt: skip
    attributes = forest("target", 1, 0, 2, [0], MODES[:1], GRID)  # a tree that is one leaf
    compare(
        "TreeEnsembleRegressor",
        {"x": rows(3, 2)},
        target=target,
        n_targets=1,
        aggregate_function=aggregate,
        **attributes,
    )


@pytest.mark.parametrize("transform, target", TRANSFORMS)
def test_classifiers(transform: str, target: str) -> None:
    for classes, ids, base in ((3, [0, 1, 2], 0), (3, [0, 1, 2], 3), (2, [0, 1], 0), (2, [1], 0), (2, [0], 1)):
        attributes = forest("class", 5, 4, 4, ids, MODES[:1], GRID)
        if len(ids) == 1 and transform != "NONE":  # as gradient boosting has it: weights of both signs
            attributes["class_weights"] = [w - 0.5 for w in attributes["class_weights"]]
        labels = [10, -3, 7][:classes]
        more = {"base_values": [0.25, -0.5, 0.1][:base]} if base else {}
        x = rows(25, 4)
        source = model(
            "TreeEnsembleClassifier",
            {"x": x},
            2,
            post_transform=transform,
            classlabels_int64s=labels,
            **more,
            **attributes,
        )
        got, (label, score) = lightnet.compile(source, target)({"x": x}), runtime(source, {"x": x})
        if ids == [0, 1]:  # ONNX Runtime takes the second class wherever its score is positive
            label = np.array(labels)[score.argmax(1)]
        np.testing.assert_allclose(got["y1"], score, rtol=1e-5, atol=1e-6, err_msg=f"{classes} classes, ids {ids}")
        np.testing.assert_array_equal(got["y0"], label, err_msg=f"{classes} classes, ids {ids}")


def test_doubles_and_integers() -> None:
    """Thresholds of f64 beside rows of f32, f64 and integers."""
    attributes = forest("target", 4, 4, 4, [0], MODES[:1], GRID)
    values = np.array(attributes.pop("nodes_values"), np.float64) + 1e-12
    weights = np.array(attributes.pop("target_weights"), np.float64)
    attributes |= {
        "nodes_values_as_tensor": numpy_helper.from_array(values),
        "target_weights_as_tensor": numpy_helper.from_array(weights),
    }
    source = model("TreeEnsembleRegressor", {"x": np.zeros((20, 4))}, 1, n_targets=1, **attributes)
    x = rows(20, 4).astype(np.float64)
    np.testing.assert_allclose(lightnet.compile(source)({"x": x})["y0"], runtime(source, {"x": x})[0], rtol=1e-6)
    plain = forest("class", 4, 4, 4, [0, 1, 2], MODES[:1], np.arange(-2, 3, dtype=np.float32))
    compare("TreeEnsembleClassifier", {"x": RNG.integers(-3, 4, (20, 4))}, 2, classlabels_int64s=[0, 1, 2], **plain)


def test_ensembles_of_version_5() -> None:
    """Against ONNX's reference: leaves in a list of their own, membership."""
    splits = np.array([1.5, 0.5, 2.0, np.nan, 3.0], np.float32)
    members = np.array([1.0, 2.5, -1.0, np.nan], np.float32)
    attributes = dict(
        n_targets=2, aggregate_function=1, post_transform=0, tree_roots=[0, 3], nodes_featureids=[0, 1, 0, 2, 1],
        nodes_modes=numpy_helper.from_array(np.array([0, 4, 3, 6, 2], np.uint8)), nodes_splits=numpy_helper.from_array(splits),
        nodes_truenodeids=[1, 0, 2, 4, 5], nodes_trueleafs=[0, 1, 1, 1, 1], nodes_falsenodeids=[2, 1, 3, 4, 6],
        nodes_falseleafs=[0, 1, 1, 0, 1], leaf_targetids=[0, 1, 0, 1, 0, 1, 0],
        leaf_weights=numpy_helper.from_array(np.array([1, 2, 4, 8, 16, 32, 64], np.float32)), membership_values=numpy_helper.from_array(members),
    )  # fmt: skip
    x = np.array(list(product((1.0, 1.5, 2.0, 3.0), (0.5, 3.0, 4.0), (1.0, 2.5, -1.0, 0.0))), np.float32)
    source = model("TreeEnsemble", {"x": x}, 1, version=5, **attributes)
    (want,) = ReferenceEvaluator(source).run(None, {"x": x})
    np.testing.assert_allclose(lightnet.compile(source)({"x": x})["y0"], want)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes_featureids": 9}, "look at feature 9, and its input has 4"), ({"nodes_truenodeids": 999}, "refers to a node that is not there"),
        ({"target_ids": 5}, "should be of targets 0 to 0"),
        ({"nodes_modes": "BRANCH_MAYBE"}, "their modes known"), ({"nodes_values": None}, "should be of one length"),
        ({"nodes_nodeids": 3}, "have one number|refers to a node"),
    ],
)  # fmt: skip
def test_trees_that_are_none(change: dict, message: str) -> None:
    attributes = forest("target", 1, 3, 4, [0], MODES[:1], GRID)
    ((name, value),) = change.items()
    attributes[name] = attributes[name][:-1] if value is None else [value] * len(attributes[name])
    with pytest.raises(LightNetError, match=message):
        lightnet.compile(model("TreeEnsembleRegressor", {"x": rows(2, 4)}, 1, n_targets=1, **attributes))


def test_a_tree_that_is_a_cycle() -> None:
    attributes = {f"nodes_{k}": v for k, v in dict(treeids=[0] * 3, nodeids=[0, 1, 2], featureids=[0] * 3, values=[0.0] * 3,
                  modes=["BRANCH_LEQ", "BRANCH_LEQ", "LEAF"], truenodeids=[1, 1, 0], falsenodeids=[2, 2, 0]).items()}  # fmt: skip
    attributes |= {"target_treeids": [0], "target_nodeids": [2], "target_ids": [0], "target_weights": [1.0]}
    with pytest.raises(LightNetError) as caught:
        lightnet.compile(model("TreeEnsembleRegressor", {"x": rows(2, 4)}, 1, n_targets=1, **attributes))
    assert "a forest of more than" in str(caught.value.notes)


# -- linear and kernel models ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transform, target", TRANSFORMS)
def test_linear_models(transform: str, target: str) -> None:
    x = f32(9, 5)
    for targets in (1, 3):
        if transform == "NONE" or targets == 3:
            compare("LinearRegressor", {"x": x}, version=1, target=target, coefficients=f32(targets * 5).tolist(), intercepts=f32(targets).tolist(),
                    targets=targets, post_transform=transform)  # fmt: skip
    for count, labels in ((3, [4, 9, 2]), (2, [0, 1])):
        compare("LinearClassifier", {"x": x}, 2, version=1, target=target, coefficients=f32(count * 5).tolist(), intercepts=f32(count).tolist(),
                classlabels_ints=labels, post_transform=transform)  # fmt: skip


@pytest.mark.parametrize("kernel, target", ways("RBF", "LINEAR", "POLY", "SIGMOID"))
def test_support_vectors(kernel: str, target: str) -> None:
    x = f32(9, 4)
    for one_class in (0, 1):
        compare("SVMRegressor", {"x": x}, version=1, target=target, kernel_type=kernel, kernel_params=[0.3, 0.5, 3.0], n_supports=6, one_class=one_class,
                support_vectors=f32(24).tolist(), coefficients=f32(6).tolist(), rho=[0.2])  # fmt: skip


@pytest.mark.parametrize("pair, target", ways(*((k, t) for k in ("RBF", "LINEAR", "POLY") for t in NAMES)))
def test_votes_of_support_vectors(pair: tuple[str, str], target: str) -> None:
    """Of two classes under SOFTMAX, ONNX Runtime has something that is no softmax: there ONNX's reference."""
    (kernel, transform), x = pair, f32(30, 4)
    for count in (2, 3, 4):
        attributes = {"kernel_type": kernel, "post_transform": transform, **machine(count, False)}
        if count > 2 or transform in ("LOGISTIC", "NONE"):
            compare("SVMClassifier", {"x": x}, 2, version=1, target=target, **attributes)
            continue
        source = model("SVMClassifier", {"x": x}, 2, version=1, **attributes)
        got = lightnet.compile(source, target)({"x": x})
        for k, want in enumerate(ReferenceEvaluator(source).run(None, {"x": x})):
            same(got[f"y{k}"], want, 1e-5, f"{transform} output {k}")


@pytest.mark.parametrize("target", TARGETS)
def test_classifiers_without_support_vectors(target: str) -> None:
    for count in (3, 4):
        compare("SVMClassifier", {"x": f32(30, 4)}, 2, version=1, target=target, kernel_type="LINEAR", kernel_params=[0.0] * 3, coefficients=f32(count * 4).tolist(), rho=[0.3, 0.0],
                classlabels_ints=list(range(count)))  # fmt: skip


@pytest.mark.parametrize("count", [2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_coupled_probabilities(count: int) -> None:
    """Against the minimum itself in f64, and against ONNX Runtime, whose iteration stops within 0.005 of it."""
    x, attributes = f32(30, 4), machine(count, True)
    source = model("SVMClassifier", {"x": x}, 2, version=1, kernel_type="RBF", **attributes)
    got, (labels, scores) = lightnet.compile(source)({"x": x}), runtime(source, {"x": x})
    np.testing.assert_array_equal(got["y0"], labels)
    np.testing.assert_allclose(got["y1"], scores, atol=5e-3)
    decisions = lightnet.compile(model("SVMClassifier", {"x": x}, 2, version=1, kernel_type="RBF",
                                       **{k: v for k, v in attributes.items() if not k.startswith("prob")}))({"x": x})["y1"]  # fmt: skip
    decisions = (decisions[:, 1:] if count == 2 else decisions).astype(np.float64)
    pairs = 1 / (1 + np.exp(decisions * attributes["prob_a"] + np.array(attributes["prob_b"])))
    for row, found in zip(np.clip(pairs, 1e-7, 1 - 1e-7), got["y1"]):
        r = np.zeros((count, count))
        r[np.triu_indices(count, 1)] = row
        r.T[np.triu_indices(count, 1)] = 1 - row
        system = np.ones((count + 1, count + 1))
        system[:-1, :-1] = np.diag((r**2).sum(0)) - r * r.T
        system[-1, -1] = 0
        want = np.linalg.solve(system, [0] * count + [1])[:-1]
        np.testing.assert_allclose(found, want, atol=2e-6)


def test_machines_that_are_none() -> None:
    for change, message in (({"vectors_per_class": [3]}, "should be one number for each of 3 classes"), ({"rho": [0.5]}, "3 rho"),
                            ({"prob_a": [1.0]}, "1 prob_a and 3 prob_b")):  # fmt: skip
        with pytest.raises(LightNetError, match=message):
            lightnet.compile(
                model("SVMClassifier", {"x": f32(2, 4)}, 2, version=1, kernel_type="RBF", **machine(3, True) | change)
            )


# -- features ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
def test_features(target: str) -> None:
    x, whole = f32(6, 4), RNG.integers(-2, 5, (6, 4))
    compare("Scaler", {"x": x}, version=1, target=target, offset=f32(4).tolist(), scale=f32(4).tolist())
    compare("Scaler", {"x": whole}, version=1, target=target, offset=[0.5], scale=[2.0])
    for norm in ("L1", "L2"):
        compare("Normalizer", {"x": x}, version=1, target=target, norm=norm)
    compare("Normalizer", {"x": np.abs(x)}, version=1, target=target, norm="MAX")
    compare("Binarizer", {"x": x}, version=1, target=target, threshold=0.25)
    holes = np.where(RNG.random(x.shape) < 0.3, np.float32(np.nan), x)
    compare(
        "Imputer",
        {"x": holes},
        version=1,
        target=target,
        imputed_value_floats=[1.0, 2.0, 3.0, 4.0],
        replaced_value_float=float("nan"),
    )
    compare("Imputer", {"x": whole}, version=1, target=target, imputed_value_int64s=[7], replaced_value_int64=0)
    for cats in ([0, 1, 2, 3], [4, -2, 9]):
        compare("OneHotEncoder", {"x": whole}, version=1, target=target, cats_int64s=cats, zeros=1)
    compare(
        "LabelEncoder",
        {"x": whole},
        version=2,
        target=target,
        keys_int64s=[0, 3, -2],
        values_floats=[0.5, 1.5, 2.5],
        default_float=9.0,
    )
    compare("LabelEncoder", {"x": whole}, version=2, target=target, keys_int64s=[0, 3, -2], values_int64s=[10, 20, 30])
    compare(
        "LabelEncoder",
        {"x": holes},
        version=2,
        target=target,
        keys_floats=[float("nan"), float(x[0, 0])],
        values_int64s=[4, 5],
        default_int64=-7,
    )
    compare(
        "FeatureVectorizer", {"a": x, "b": whole.astype(np.float32)}, version=1, target=target, inputdimensions=[4, 4]
    )
    compare("ArrayFeatureExtractor", {"x": x, "i": np.array([3, 0, 0])}, version=1, target=target, constants=("i",))
    compare("ArrayFeatureExtractor", {"x": x[0], "i": np.array([3, 0])}, version=1, target=target, constants=("i",))


def test_label_encoder_of_tensors() -> None:
    x = RNG.integers(-2, 5, (6,))
    pairs = {
        "keys_tensor": np.array([1, 2, 4]),
        "values_tensor": np.array([0.1, 0.2, 0.4], np.float32),
        "default_tensor": np.array([-1.0], np.float32),
    }
    source = model(
        "LabelEncoder", {"x": x}, 1, version=4, **{k: numpy_helper.from_array(v, k) for k, v in pairs.items()}
    )
    (want,) = ReferenceEvaluator(source).run(None, {"x": x})
    np.testing.assert_array_equal(lightnet.compile(source)({"x": x})["y0"], want)


def test_text_labels() -> None:
    attributes = forest("class", 5, 4, 4, [0, 1, 2], MODES[:1], GRID)
    x = rows(12, 4)
    source = model("TreeEnsembleClassifier", {"x": x}, 2, classlabels_strings=["ant", "bee", "cow"], **attributes)
    labels, scores = runtime(source, {"x": x})
    got = lightnet.compile(source)({"x": x})
    assert got["y0"].tolist() == labels.tolist() and got["y0"].dtype == object
    np.testing.assert_allclose(got["y1"], scores, rtol=1e-5)
    with pytest.raises(LightNetError) as caught:
        lightnet.compile(model("DictVectorizer", {"x": np.arange(3)}, 1, version=1, string_vocabulary=["a"]))
    assert "maps" in str(caught.value.notes)
