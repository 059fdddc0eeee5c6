"""Models that others' converters write (skl2onnx, onnxmltools), of scikit-learn, LightGBM and XGBoost, where these are installed: against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lightnet

runtime = pytest.importorskip("onnxruntime")
datasets = pytest.importorskip("sklearn.datasets")
pytestmark = pytest.mark.slow
X, Y = datasets.make_classification(120, 6, n_informative=4, n_classes=3, random_state=0)
X = X.astype(np.float32)
TWO, NUMBER = (Y > 0).astype(int), X[:, 0] * 2 + X[:, 1]


def agrees(proto: Any, tolerance: float = 1e-4, feeds: dict[str, Any] | None = None) -> None:
    source = proto.SerializeToString()
    session = runtime.InferenceSession(source, providers=["CPUExecutionProvider"])
    feeds = {session.get_inputs()[0].name: X} if feeds is None else feeds
    made = lightnet.compile(source)(feeds)
    for output, want in zip(session.get_outputs(), session.run(None, feeds)):
        got = made[output.name]
        if isinstance(want, list):
            assert list(map(list, got)) == list(map(list, want))
            got, want = (np.array([list(row.values()) for row in rows]) for rows in (got, want))
        if want.dtype.kind in "OUiub":
            np.testing.assert_array_equal(got, want, err_msg=output.name)
            continue
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=tolerance, err_msg=output.name)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly"])
@pytest.mark.parametrize("kind", ["SVC", "NuSVC"])
def test_support_vectors(kind: str, kernel: str, classes: int) -> None:
    """As scikit-learn has them, which computes in f64 as we do (ONNX Runtime's f32 takes other classes where weights are large): the labels, and
    the coupled probabilities within what libsvm's iteration leaves (0.005)."""
    svm, skl2onnx = pytest.importorskip("sklearn.svm"), pytest.importorskip("skl2onnx")
    labels = TWO if classes == 2 else Y
    for options in ({}, {"probability": True, "random_state": 0}):
        fitted = getattr(svm, kind)(kernel=kernel, **options).fit(X, labels)
        source = skl2onnx.to_onnx(fitted, X[:1], options={"zipmap": False}).SerializeToString()
        got = lightnet.compile(source)({"X": X})
        np.testing.assert_array_equal(got["label"], fitted.predict(X))
        if options:
            np.testing.assert_allclose(got["probabilities"], fitted.predict_proba(X), atol=5e-3)


BOOSTED = [("lightgbm", "LGBMClassifier", {"verbose": -1}), ("lightgbm", "LGBMRegressor", {"verbose": -1}), ("xgboost", "XGBClassifier", {}),
           ("xgboost", "XGBRegressor", {}), ("xgboost", "XGBRFRegressor", {})]  # fmt: skip


@pytest.mark.parametrize(("package", "name", "options"), BOOSTED, ids=lambda x: x if isinstance(x, str) else "")
def test_boosted_trees(package: str, name: str, options: dict) -> None:
    library, onnxmltools = pytest.importorskip(package), pytest.importorskip("onnxmltools")
    from onnxmltools.convert.common.data_types import FloatTensorType

    convert = getattr(onnxmltools, f"convert_{package}")
    for labels in (NUMBER,) if "Regressor" in name else (Y, TWO):
        fitted = getattr(library, name)(n_estimators=8, **options).fit(X, labels)
        agrees(convert(fitted, initial_types=[("x", FloatTensorType([None, 6]))], target_opset=15))


NAMED = np.array(["ant", "bee", "cow"])[Y]
ESTIMATORS = {
    "voting": "ensemble.VotingClassifier([('a', linear_model.LogisticRegression()), ('b', tree.DecisionTreeClassifier(max_depth=3))], voting='soft', flatten_transform=False)",
    "stacking": "ensemble.StackingClassifier([('a', linear_model.LogisticRegression()), ('b', neighbors.KNeighborsClassifier(3))], cv=3)",
    "calibrated": "calibration.CalibratedClassifierCV(naive_bayes.GaussianNB(), cv=2, method='isotonic')",
    "mlp": "neural_network.MLPClassifier((8,), max_iter=30)",
    "adaboost": "ensemble.AdaBoostClassifier(n_estimators=3)",
    "bins": "pipeline.make_pipeline(preprocessing.KBinsDiscretizer(4, encode='onehot-dense'), linear_model.LogisticRegression())",
    "discriminant": "discriminant_analysis.QuadraticDiscriminantAnalysis(reg_param=0.3)",
    "isolation forest": "ensemble.IsolationForest(n_estimators=5, random_state=0)",
    "mixture": "mixture.GaussianMixture(2, random_state=0, reg_covar=0.1)",
    "one class": "svm.OneClassSVM()",
}  # fmt: skip
MODULES = ("calibration", "compose", "discriminant_analysis", "ensemble", "feature_extraction.text", "linear_model", "mixture", "naive_bayes", "neighbors", "neural_network", "pipeline",
           "preprocessing", "svm", "tree")  # fmt: skip


@pytest.fixture(scope="module")
def sklearn() -> dict[str, Any]:
    pytest.importorskip("skl2onnx")
    return {name: pytest.importorskip(f"sklearn.{name}") for name in MODULES}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.filterwarnings("ignore")
def test_estimators(name: str, sklearn: dict[str, Any]) -> None:
    """As skl2onnx exports them without options: classifiers have a ZipMap of texts."""
    import skl2onnx

    fitted = eval(ESTIMATORS[name], dict(sklearn)).fit(X, NAMED)
    agrees(skl2onnx.to_onnx(fitted, X[:1], target_opset={"": 18, "ai.onnx.ml": 3}))


def test_columns_of_text_and_numbers(sklearn: dict[str, Any]) -> None:
    """A category that nobody knows is none."""
    import skl2onnx
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType

    pandas = pytest.importorskip("pandas")
    colour = np.array(["red", "green", "blue"], object)[Y]
    table = pandas.DataFrame({"a": X[:, 0], "colour": colour})
    parts = sklearn["compose"].ColumnTransformer(
        [
            ("n", sklearn["preprocessing"].StandardScaler(), ["a"]),
            ("c", sklearn["preprocessing"].OneHotEncoder(handle_unknown="ignore"), ["colour"]),
        ]
    )
    fitted = sklearn["pipeline"].make_pipeline(parts, sklearn["linear_model"].LogisticRegression()).fit(table, NAMED)
    types = [("a", FloatTensorType([None, 1])), ("colour", StringTensorType([None, 1]))]
    colour[3] = "mauve"
    proto = skl2onnx.convert_sklearn(fitted, initial_types=types, target_opset={"": 18, "ai.onnx.ml": 3})
    agrees(proto, feeds={"a": X[:, :1], "colour": colour.reshape(-1, 1)})


@pytest.mark.parametrize("analyzer", ["word", "char"])
def test_texts(analyzer: str, sklearn: dict[str, Any]) -> None:
    import skl2onnx
    from skl2onnx.common.data_types import StringTensorType

    texts = [
        "the cat sat",
        "a dog ran fast",
        "cats and dogs",
        "stock markets fell",
        "shares rose today",
        "market rally",
    ]
    vectorizer = sklearn["feature_extraction.text"].TfidfVectorizer(analyzer=analyzer, ngram_range=(1, 2))
    fitted = (
        sklearn["pipeline"]
        .make_pipeline(vectorizer, sklearn["linear_model"].LogisticRegression())
        .fit(texts, ["pet"] * 3 + ["money"] * 3)
    )
    proto = skl2onnx.convert_sklearn(fitted, initial_types=[("t", StringTensorType([None, 1]))], options={type(vectorizer): {"locale": "C"}},
                                     target_opset={"": 18, "ai.onnx.ml": 3})  # fmt: skip
    agrees(proto, feeds={"t": np.array([*texts, "", "dogs fell unknown"], object).reshape(-1, 1)})
