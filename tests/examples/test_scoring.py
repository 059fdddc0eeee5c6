"""Scoring rows: `lightnet.score`, and the recipes of examples/ for engines, each where its engine is installed."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lightnet
from lightnet.diagnostics import LightNetError

ROOT = Path(__file__).parents[2]
SCORING = ROOT / "examples" / "scoring"
WIDTH, CLASSES, BATCH = 16, 4, 256
NET = f"""
create(| dst=x | dtype=TL_FLOAT, dims=[{BATCH}, {WIDTH}], data=[0], ran=[-1, 1], from_file=false);
slice(src=x | dst=front | axis=1, start=0, len={CLASSES});
sigmoid(src=front | dst=gate |);
softmax(src=gate | dst=y | axis=1);
"""


def expected(x: np.ndarray) -> np.ndarray:
    """The network in float64."""
    front = 1 / (1 + np.exp(-x[:, :CLASSES].astype(np.float64)))
    powers = np.exp(front)
    return powers / powers.sum(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network, saved."""
    folder = tmp_path_factory.mktemp("scoring")
    (folder / "net.net").write_text(NET)
    lightnet.compile(folder / "net.net").save(folder / "net.lnx")
    return folder / "net.lnx"


def rows_of(count: int) -> np.ndarray:
    return np.random.default_rng(count).normal(size=(count, WIDTH)).astype(np.float32)


def write_parquet(path: Path, x: np.ndarray, group: int = 5000) -> None:
    """Rows with their numbers, in groups."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(exist_ok=True)
    table = pa.table({"row": np.arange(len(x)), "x": pa.array(list(x))})
    pq.write_table(table, path, row_group_size=group)


def check(table: Any, x: np.ndarray) -> None:
    """Each row is there once, with its own result."""
    assert sorted(table["row"].to_pylist()) == list(range(len(x)))
    order = table["row"].to_numpy()
    np.testing.assert_allclose(np.stack(table["y"].to_numpy()), expected(x)[order], atol=1e-6)


def recipe(path: Path) -> Any:
    """A recipe as a module."""
    spec = importlib.util.spec_from_file_location(path.stem + "_recipe", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("count", [0, 1, BATCH - 1, BATCH, BATCH + 1, 1000])
def test_score(net: Path, count: int) -> None:
    x = rows_of(count)
    found = lightnet.score(lightnet.load_executable(net), {"x": x})
    assert list(found) == ["y"] and found["y"].shape == (count, CLASSES) and found["y"].dtype == np.float32
    np.testing.assert_allclose(found["y"], expected(x), atol=1e-6)


def test_score_says_what_does_not_fit(net: Path) -> None:
    run = lightnet.load_executable(net)
    for feeds, words in (({}, "get none"), ({"x": np.float32(1)}, r"'x' \[\]"), ({"x": np.zeros((3, 5))}, "has shape"),
                         ({"z": np.zeros((3, 5))}, "no input is called 'z'")):  # fmt: skip
        with pytest.raises(LightNetError, match=words):
            lightnet.score(run, feeds)
    odd = types.SimpleNamespace(inputs={"x": ((2, 3), np.float32)}, outputs={"y": ((), np.float32)})
    with pytest.raises(LightNetError, match="no batch in common"):
        lightnet.score(odd, {"x": np.zeros((2, 3))})


# -- Triton


class Backend(types.ModuleType):
    """The interface of `triton_python_backend_utils` that models use, for want of the server."""

    class Tensor:
        def __init__(self, name: str, array: np.ndarray):
            self._name, self._array = name, array

        def name(self) -> str:
            return self._name

        def as_numpy(self) -> np.ndarray:
            return self._array

    class TritonError(Exception):
        def message(self) -> str:
            return str(self)

    class InferenceResponse:
        def __init__(self, output_tensors: Any = (), error: Any = None):
            self._tensors, self._error = list(output_tensors), error

        def output_tensors(self) -> list[Any]:
            return self._tensors

        def has_error(self) -> bool:
            return self._error is not None

        def error(self) -> Any:
            return self._error

    @staticmethod
    def get_input_tensor_by_name(request: Any, name: str) -> Any:
        return next((t for t in request if t.name() == name), None)


def test_triton_model(net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend's calls: requests of several rows, one of which does not fit."""
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", Backend("triton_python_backend_utils"))
    shutil.copytree(ROOT / "examples" / "triton", tmp_path / "scorer")
    shutil.copy(net, tmp_path / "scorer" / "1" / "model.lnx")
    model = recipe(tmp_path / "scorer" / "1" / "model.py").TritonPythonModel()
    model.initialize({"model_repository": str(tmp_path / "scorer"), "model_version": "1", "model_name": "scorer"})
    arrays = [rows_of(n) for n in (1, 300, 7)] + [np.zeros((2, WIDTH + 1), np.float32), np.zeros((2, WIDTH))]
    responses = model.execute([[Backend.Tensor("x", array)] for array in arrays])
    for x, response in zip(arrays[:3], responses):
        (y,) = response.output_tensors()
        assert y.name() == "y" and not response.has_error()
        np.testing.assert_allclose(y.as_numpy(), expected(x), atol=1e-6)
    assert [r.has_error() for r in responses] == [False] * 3 + [True] * 2
    assert "but gets float32[2, 17]" in responses[3].error().message()
    model.finalize()


# -- engines


def score_part_and_die(net: str, source: str, part: int, target: str) -> None:
    """What a process does that is killed the first time it gets to the seventh part."""
    marker = Path(target).parent.parent / "died"
    if part == 7 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    recipe(SCORING / "parquet.py").score_part(net, source, part, target)


@pytest.mark.slow
def test_parquet_with_a_killed_process(net: Path, tmp_path: Path) -> None:
    """100,000 rows on two processes, one of which is killed: nothing is lost, and nothing doubled."""
    pq = pytest.importorskip("pyarrow.parquet")
    x = rows_of(100_000)
    write_parquet(tmp_path / "in.parquet", x)
    module = recipe(SCORING / "parquet.py")
    pools = module.score_file(
        str(net), str(tmp_path / "in.parquet"), str(tmp_path / "out.parquet"), part=score_part_and_die
    )
    assert pools == 2 and (tmp_path / "died").exists()
    table = pq.read_table(tmp_path / "out.parquet")
    assert table["row"].to_pylist() == list(range(len(x)))
    check(table, x)
    assert {p.name for p in tmp_path.iterdir()} == {"in.parquet", "out.parquet", "died"}


@pytest.mark.slow
def test_ray_data_with_a_killed_process(net: Path, tmp_path: Path) -> None:
    """The same with Ray Data, which starts the process again; in a process of its own, as Ray goes on after it."""
    pytest.importorskip("ray.data", reason="Ray is not installed")
    x = rows_of(100_000)
    for k in range(10):
        write_parquet(tmp_path / "in" / f"{k}.parquet", x[:0])
    import pyarrow as pa
    import pyarrow.parquet as pq

    for k, part in enumerate(np.array_split(np.arange(len(x)), 10)):
        pq.write_table(pa.table({"row": part, "x": pa.array(list(x[part]))}), tmp_path / "in" / f"{k}.parquet")
    words = [str(Path(__file__).parents[1] / "ray_killed.py"), str(net), str(tmp_path)]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "died").exists() and len((tmp_path / "started").read_text().split()) >= 3
    check(pq.read_table(tmp_path / "out"), x)


@pytest.mark.slow
def test_spark(net: Path, tmp_path: Path) -> None:
    """10,000 rows with predict_batch_udf, on two processes."""
    pytest.importorskip("pyspark", reason="Spark is not installed")
    pytest.importorskip("pandas", reason="pandas, which predict_batch_udf needs, is not installed")
    pq = pytest.importorskip("pyarrow.parquet")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    x = rows_of(10_000)
    write_parquet(tmp_path / "in" / "a.parquet", x, 2500)
    submit = "--master local[2] --conf spark.ui.enabled=false --conf spark.driver.host=127.0.0.1 pyspark-shell"
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": submit,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    words = [sys.executable, str(SCORING / "spark.py"), str(net), str(tmp_path / "in"), str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    check(pq.read_table(tmp_path / "out"), x)
