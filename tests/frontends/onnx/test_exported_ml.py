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


def agrees(proto: Any, tolerance: float = 1e-4) -> None:
    source = proto.SerializeToString()
    session = runtime.InferenceSession(source, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    made = lightnet.compile(source)({name: X})
    for output, want in zip(session.get_outputs(), session.run(None, {name: X})):
        got = made[output.name]
        if isinstance(want, list):
            assert list(map(list, got)) == list(map(list, want))
            got, want = ([list(row.values()) for row in rows] for rows in (got, want))
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
