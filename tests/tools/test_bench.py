"""The harness of `tools/bench.py`: rotations, figures and tables, the float64 reference, and one network measured end to end. Nothing
here asserts a time."""

from __future__ import annotations

import json
import math
import os
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import lightnet
from lightnet.diagnostics import LightNetError
from lightnet.ir.module import main_of
from lightnet.ir.op import LnOp
from lightnet.runtime.initial import uniform

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
pytest.importorskip("onnx")

import bench  # noqa: E402
from benching import against, layers, networks, page, reference, rotation, worker  # noqa: E402
from benching.engines import write_arrays  # noqa: E402
from benching.results import Row, from_json, geometric_mean, mean_ratio, quantile, to_json  # noqa: E402

# -- rotations


def test_everybody_comes_first_and_follows_everybody() -> None:
    names = ["a", "b", "c", "d"]
    rounds = [rotation.order(names, i) for i in range(8)]
    assert all(sorted(r) == names for r in rounds)
    assert set(Counter(r[0] for r in rounds).values()) == {2} and {r[-1] for r in rounds} == set(names)
    assert all(rounds[i + 1] == rounds[i][::-1] for i in range(0, 8, 2))
    assert rotation.order([], 3) == []


def test_slice_counts_calls_and_leaves_out_the_first() -> None:
    now = [0.0]

    def call() -> None:
        now[0] += 1.0 if now[0] else 100.0  # the first call is slow

    times = worker.timed(call, 0.0, lambda: now[0], 5)
    assert times == [1.0] * 5


def test_worker_that_fails_says_why(tmp_path: Path) -> None:
    job = {"engine": "lightnet", "network": str(tmp_path / "none.net"), "onnx": "", "threads": 1}
    with pytest.raises(rotation.WorkerError, match=r"LightNetError: .*none\.net"):
        rotation.Worker(job)
    found = rotation.rotate(job, ["lightnet"], 1, 2, 0.01)
    assert list(found.problems) == ["lightnet"] and not found.seconds


def test_worker_that_hangs_is_given_up() -> None:
    job = {"engine": "peak", "threads": 1}
    with pytest.raises(rotation.WorkerError, match="no answer"):
        rotation.Worker(job, timeout=0.01)


def test_worker_goes_with_its_pipe() -> None:
    with rotation.worker({"engine": "peak", "threads": 1}) as process:
        assert process.ask(do="run", seconds=0.01)["rate"] > 1e8
        with pytest.raises(rotation.WorkerError, match="ValueError"):
            process.ask(do="what")
        pid = process.process.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


# -- figures


def rows() -> list[Row]:
    fast = Row("fast", page.NETWORKS, 1, 2_000_000, {"lightnet": [1e-3, 1e-3, 1e-3], "onnxruntime": [2e-3, 4e-3, 4e-3],
               "openvino": [5e-3, 5e-3, 5e-3]}, peak=[4e9, 4e9, 8e9], errors={"lightnet": 1e-6}, oracle="float64")  # fmt: skip
    slow = Row("slow", page.NETWORKS, 1, 4_000_000, {"lightnet": [4e-3, 4e-3], "onnxruntime": [1e-3, 1e-3]}, peak=[4e9],
               errors={"lightnet": math.nan}, oracle="float64", problems={"openvino": "no kernel for | this"})  # fmt: skip
    return [fast, slow]


def test_quantile_is_numpys() -> None:
    values = uniform("q", 0, 11, 0, 1).tolist()
    for q in (0, 0.1, 0.5, 0.83, 1):
        assert quantile(values, q) == pytest.approx(float(np.quantile(values, q)))


def test_ratio_is_to_the_better_peer() -> None:
    fast, slow = rows()
    assert fast.best_peer == "onnxruntime" and fast.ratio == pytest.approx(0.25)
    assert fast.spread == pytest.approx((0.25, 0.45))  # single rounds: 0.5, 0.25, 0.25
    assert fast.share_of_peak("lightnet") == pytest.approx(0.5) and slow.ratio == pytest.approx(4)
    assert mean_ratio([fast, slow]) == (pytest.approx(1.0), 2)
    assert geometric_mean([2, 8]) == pytest.approx(4) and math.isnan(geometric_mean([]))


def test_an_engine_that_is_not_there_leaves_a_gap() -> None:
    alone = Row("alone", page.OTHERS, 2, 10, {"lightnet": [1e-3]})
    assert alone.best_peer is None and alone.ratio is None and alone.spread is None
    assert page.latency_cells(alone)[3:9] == ["–"] * 6
    assert mean_ratio([alone])[1] == 0
    peers_only = Row("peers", page.OTHERS, 2, 10, {"openvino": [1e-3]})
    assert peers_only.ratio is None and page.latency_cells(peers_only)[2] == "–"


def test_json_gives_the_rows_back() -> None:
    text = to_json(rows(), {"machine": "m"})
    again, about = from_json(text)
    assert about == {"machine": "m"} and to_json(again, about) == text
    assert json.loads(text)["rows"][0]["derived"]["ratio"] == pytest.approx(0.25)
    assert math.isnan(again[1].errors["lightnet"])


def test_page_has_tables_that_are_tables() -> None:
    made = rows()
    made[0].starts = {"lightnet": {"cold": [{"total": 0.5, "load": 0.25, "first": 0.1, "memory": 5e7}], "warm": []}}
    text = page.page(made, {"date": "today", "machine": "m", "command": "c"})
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in table} == {len(page.LATENCY) + 1, len(page.STARTS) + 1}
    assert "| fast | 2.0 | 1.00 | 4.00 | 5.00 | 0.25 | 0.25–0.45 | 50 | 12 | 1.0e-06 |" in table
    assert "| geometric mean of 2 |  |  |  |  | 1.000 | ≤ 4.00 |  |  |  |" in table
    assert "500 / – / –" in text and "350 / – / –" in text and "50 / – / –" in text
    assert "slow, 1: openvino did not run" in text
    for title, header, cells in page.tables(made):
        assert title and len({len(line) for line in [header, *cells]}) == 1


def test_failures_are_ours() -> None:
    made = rows()
    assert len(bench.failures(made)) == 1 and "slow" in bench.failures(made)[0]  # a NaN is no agreement
    made[0].problems["lightnet"] = "crash"
    assert bench.failures(made)[0] == "fast: lightnet: crash"


# -- networks


def test_reference_is_computed_in_float64() -> None:
    text = """
        create(|dst=x|dtype=TL_FLOAT, dims=[1,64], ran=[-1,1], data=[0], from_file=false);
        param(|dst=w|dtype=TL_FLOAT, dims=[64,64], ran=[-1,1], data=[0], from_file=false);
        matmul(a=x, b=w|dst=p|); matmul(a=p, b=w|dst=y|)
    """
    model = lightnet.loads(text, ".net")
    given = networks.contents(model)
    want = given["x"].astype(np.float64) @ given["w"].astype(np.float64) @ given["w"].astype(np.float64)
    outputs, oracle = reference.expected(model, given)
    assert oracle == "float64" and np.array_equal(outputs["y"], want.astype(np.float32))
    doubled = [op for op in main_of(reference.in_double(model.module)).body.block.ops if isinstance(op, LnOp)]
    assert {s.dtype.name for op in doubled for s in op.result_specs} == {"f64"}


def test_an_op_without_float64_stands_between_casts() -> None:
    text = """
        create(|dst=x|dtype=TL_FLOAT, dims=[1,24,5,5], ran=[-1,1], data=[0], from_file=false);
        create(|dst=anchors|dtype=TL_FLOAT, dims=[3,2], ran=[4,64], data=[0], from_file=false);
        sigmoid(src=x|dst=s|);
        detect_yolov3(feature=s, anchors=anchors|box_centers=a, box_sizes=b, boxes=c, confs=d, probs=e|img_width=160, img_height=160);
        relu(src=c|dst=r|)
    """
    model = lightnet.loads(text, ".net")
    types = [op.optype for op in main_of(reference.in_double(model.module)).body.block.ops if isinstance(op, LnOp)]
    assert types == ["create", "create", "sigmoid", "cast", "cast", "detect_yolov3", "cast", "relu"]
    outputs, oracle = reference.expected(model, networks.contents(model))
    assert oracle == "float64"
    got = lightnet.compile(model)()
    assert reference.error(got, outputs, []) < 1e-5
    assert reference.error({**got, "r": got["r"] * 1.01}, outputs, []) > 1e-3


def test_layers_are_what_their_names_say(tmp_path: Path) -> None:
    """MFLOP: eight times 2 c c k k n n, and 2 m k n."""
    sizes = {"depthwise 960 at 7": 8 * 2 * 960 * 9 * 49, "1x1 64 at 56": 8 * 2 * 64 * 64 * 56 * 56,
             "3x3/2 256 to 512 at 14": 2 * 256 * 512 * 9 * 14 * 14, "gemm 196x192x768": 2 * 196 * 192 * 768,
             "1x1 64 to 256 at 56": 4 * 2 * 64 * 256 * 56 * 56, "first 7x7/2 3 to 64 at 112": 2 * 3 * 64 * 49 * 112 * 112}  # fmt: skip
    for name, flops in sizes.items():
        path = layers.write(name, tmp_path)
        assert networks.flops(lightnet.load(path)) == flops, name
        assert layers.write(name, tmp_path) == path
    import onnx

    for path in tmp_path.rglob("*.onnx"):
        onnx.checker.check_model(str(path), full_check=True)


def test_transformers_have_the_published_size(tmp_path: Path) -> None:
    """BERT-mini (Turc et al.) has 11 million parameters, DeiT-Ti (Touvron et al.) 5.7; multiply-adds follow from the widths."""
    import onnx
    from suites import transformers

    def layer(tokens: int, width: int) -> int:
        return 12 * tokens * width**2 + 2 * tokens**2 * width

    macs = {"bert-mini": 4 * layer(128, 256), "vit-tiny": 12 * layer(196, 192) + 196 * 192 * 768 + 192 * 1000}
    for name, millions in (("bert-mini", 11.0), ("vit-tiny", 5.7)):
        path = transformers.write(name, tmp_path)
        onnx.checker.check_model(str(path), full_check=True)
        sizes = [math.prod(w.dims) for w in onnx.load(path).graph.initializer]
        assert sum(sizes) / 1e6 == pytest.approx(millions, abs=0.05)
        assert networks.flops(lightnet.load(path)) == 2 * macs[name]


def test_arrays_by_any_name(tmp_path: Path) -> None:
    arrays = {"file": np.float32(3), "a/b": np.arange(6).reshape(2, 3).T, "": np.zeros((0, 2), bool)}
    write_arrays(str(tmp_path / "x.npz"), arrays)
    read = dict(np.load(tmp_path / "x.npz"))
    assert read.keys() == arrays.keys()
    assert all(read[n].shape == np.shape(a) and np.array_equal(read[n], a) for n, a in arrays.items())


def test_wrong_options_are_errors() -> None:
    def run(*words: str) -> None:
        bench.run(bench.options().parse_args(words))

    with pytest.raises(LightNetError, match="no network 'resnet19'"):
        run("--models", "resnet19")
    with pytest.raises(LightNetError, match="no engine 'tvm'"):
        run("--engines", "lightnet,tvm")
    for words in (["--threads", "1,x"], ["--threads", "0"], ["--threads", "9999"], ["--rounds", "0"], ["--slice", "0"],
                  ["--from", str(ROOT / "none.json")], ["--from", str(ROOT / "pyproject.toml")]):  # fmt: skip
        with pytest.raises(LightNetError):
            run(*words)


# -- end to end


def test_mlp_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(networks, "FOLDER", tmp_path / "bench")
    monkeypatch.setattr(bench, "PAGE", tmp_path / "performance.md")
    words = ["bench.py", "--models", "mlp", "--engines", "lightnet,onnxruntime", "--threads", "1", "--rounds", "2", "--slice",
             "0.02", "--trials", "1", "--json", str(tmp_path / "out.json"), "--write"]  # fmt: skip
    monkeypatch.setattr(sys, "argv", words)
    assert bench.main() == 0
    (row,), about = from_json((tmp_path / "out.json").read_text())
    assert row.flops == 2 * 535_040 and row.ratio is not None and row.ratio > 0 and not row.problems
    assert set(row.seconds) == {"lightnet", "onnxruntime"} == set(row.errors)
    assert all(len(times) == 2 and min(times) > 0 for times in row.seconds.values()) and len(row.peak) == 2
    assert 0 < row.errors["lightnet"] < 1e-5 and row.oracle == "float64"
    for engine in row.seconds:
        for kind in ("cold", "warm"):
            assert row.start(engine, kind, "total") > row.start(engine, kind, "load") > 0
            assert row.start(engine, kind, "memory") > 1e7
    assert row.start("lightnet", "cold", "code") > 1000
    assert 0 < row.start("lightnet", "cold", "read") < row.start("lightnet", "cold", "load")
    assert row.start("lightnet", "cached", "total") > 0 and row.start("onnxruntime", "cached", "total") is None
    assert "onnxruntime" in about["machine"] and str(tmp_path) not in about["command"]
    assert "| mlp | 1.1 |" in (tmp_path / "performance.md").read_text()
    assert "mlp" in capsys.readouterr().out


# -- another tree


def test_ratios_are_of_this_tree_over_the_other() -> None:
    one = against.Compared("one", (2.0, 1.0), (1.0, 4.0), (64, 128), (1 << 20, 1 << 20))
    other = against.Compared("other", (1.0, 2.0), (1.0, 1.0), (64, 64), (1 << 20, 4 << 20))
    assert one.ratios == (0.5, 4.0, 1.0)
    assert against.means([one, other]) == "geometric mean of 2: call 1.000, compiling 2.000, process 2.000"
    assert len(one.line()) == len(against.HEADER)


def test_a_tree_is_a_folder_or_a_commit(tmp_path: Path) -> None:
    assert against.tree_of(str(ROOT), tmp_path) == ROOT
    with pytest.raises(ValueError, match="'no-such' is neither a folder with lightnet/ nor a commit: "):
        against.tree_of("no-such", tmp_path)
    with pytest.raises(LightNetError, match="no network 'neither'"):
        bench.compare_trees(bench.options().parse_args(["--against", str(ROOT), "--models", "neither"]))


@pytest.mark.slow
def test_a_tree_beside_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """Two processes, one of each tree, whose plans are the same."""
    words = ["--against", str(ROOT), "--models", "lenet", "--trials", "1", "--rounds", "2", "--slice", "0.02"]
    assert bench.run(bench.options().parse_args(words)) == 0
    header, line, mean = capsys.readouterr().out.splitlines()
    assert header == against.HEADER and line.startswith("lenet ") and mean.startswith("geometric mean of 1: call ")
    arenas = [w for w in line.split() if "," in w]
    assert len(arenas) == 2 and arenas[0] == arenas[1]
