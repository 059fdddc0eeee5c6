"""`tools/open_shapes.py`: shapes drawn from bounds, tables of what was measured, and one small network end to end. Nothing here asserts a
time."""

from __future__ import annotations

import ast
import json
import math
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
import open_shapes  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from opening import measure, tables  # noqa: E402
from opening.measure import STATIC, DecodeRows, NetworkRows, ShapeRow, StreamRows  # noqa: E402
from opening.networks import NETWORKS, UGLY, Bounds, Input, OpenNetwork, exported  # noqa: E402

ENGINES = ("lightnet", "onnxruntime")
#: A cache that grows by a row a call: what comes out is the sum of all rows so far, as logits.
DIMS = {"past": Bounds(1, 12)}
INPUTS = {"ids": Input((1, 1), "ids", 5), "k": Input((1, "past", 5))}
SMALL = OpenNetwork("small", "", "script", INPUTS, DIMS, ("logits", "new_k"), (("k", "new_k"),))


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    table = np.random.default_rng(0).standard_normal((5, 5)).astype(np.float32)
    nodes = [helper.make_node("Gather", ["table", "ids"], ["row"], axis=0), helper.make_node("Concat", ["k", "row"], ["new_k"], axis=1),
             helper.make_node("ReduceSum", ["new_k", "axes"], ["logits"])]  # fmt: skip
    types = {"ids": TensorProto.INT64, "k": TensorProto.FLOAT}
    given = [helper.make_tensor_value_info(n, types[n], i.dims) for n, i in INPUTS.items()]
    made = [numpy_helper.from_array(table, "table"), numpy_helper.from_array(np.array([1]), "axes")]
    graph = helper.make_graph(nodes, "g", given, [helper.make_empty_tensor_value_info(n) for n in SMALL.outputs], made)
    file = tmp_path_factory.mktemp("open") / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), file)
    return file


@pytest.mark.parametrize("network", NETWORKS.values(), ids=lambda n: n.name)
def test_shapes_are_within_bounds_and_ugly(network: OpenNetwork) -> None:
    """The corners come first, then extents that no tile divides; a seed draws the same ones again; a limit holds."""
    drawn = network.drawn(12)
    assert drawn == network.drawn(12) != network.drawn(12, seed=1) and len(drawn) == 12
    for numbers in drawn:
        assert all(b.low <= numbers[n] <= b.high and numbers[n] % b.multiple == 0 for n, b in network.dims.items())
    assert {n: b.low for n, b in network.dims.items()} in drawn and {
        n: b.high for n, b in network.dims.items()
    } in drawn
    near = {n: {u * b.multiple for u in UGLY} for n, b in network.dims.items()}
    assert sum(all(numbers[n] in near[n] for n in near) for numbers in drawn) >= 5
    assert all(network.weight(n) <= 4 for n in network.drawn(12, most=4.0))
    feeds = network.feeds(drawn[3], 1)
    assert {n: a.shape for n, a in feeds.items()} == network.shapes(drawn[3])
    assert OpenNetwork.read(json.loads(json.dumps(asdict(network)))) == network


def test_masks_have_rows_of_other_lengths() -> None:
    mask = NETWORKS["bert, dynamo"].feeds({"batch": 4, "length": 16})["mask"]
    assert mask.sum(1).tolist() == [16, 14, 12, 10] and (np.diff(mask) <= 0).all()


def test_one_network_from_its_file_to_its_tables(path: Path) -> None:
    rows = measure.measure(SMALL, path, [{"past": 5}, {"past": 12}], 1, ENGINES, 1, 0.01)
    assert rows.problems.keys() <= {"open, to save"} and len(rows.shapes) == 2
    first, second = rows.shapes
    assert first.seconds.keys() == {*ENGINES, STATIC} and second.seconds.keys() == set(ENGINES)
    assert first.error < 1e-6 and second.error < 1e-6 and not first.problems
    assert first.arena is not None and second.arena is None and len(rows.compiling_static) == 1
    text = open_shapes.shapes_table(rows)
    assert text.count("\n") >= 5 and len(tables.network_cells(rows)) == len(tables.NETWORKS)
    assert open_shapes.failures([rows]) == []


def test_a_stream_and_tokens(path: Path) -> None:
    found = measure.stream(SMALL, path, 50, ENGINES, math.inf)
    assert {e: len(t) for e, t in found.seconds.items()} == dict.fromkeys(ENGINES, 50) and not found.problems
    assert found.growth.keys() == set(ENGINES) and all(len(r) == len(tables.STREAMS) for r in tables.stream_rows(found))
    tokens = measure.decode(SMALL, path, 8, ENGINES)
    assert tokens.agree and {len(t) for t in tokens.tokens.values()} == {8}
    assert all(len(r) == len(tables.DECODES) for r in tables.decode_rows(tokens))


def test_an_engine_that_fails_is_said(path: Path) -> None:
    """Three numbers more than the bounds have, which ours refuses: the rest goes on."""
    rows = measure.measure(SMALL, path, [{"past": 15}, {"past": 2}], 0, ENGINES, 1, 0.01)
    assert "past is 15, not in 1..12" in rows.problems["lightnet"] and "onnxruntime" in rows.shapes[1].seconds
    assert open_shapes.failures([rows]) == [f"small: lightnet: {rows.problems['lightnet']}"]


def test_figures_of_tables() -> None:
    """Ratios to the better peer, geometric means with the worst, and a first call against what it may take."""
    a = ShapeRow(
        {"n": 3},
        1e-7,
        {"lightnet": 2e-3, STATIC: 1e-3, "onnxruntime": 4e-3, "openvino": 8e-3},
        {"lightnet": 6.8e-3},
        (300, 200),
    )
    b = ShapeRow({"n": 9}, 2e-4, {"lightnet": 8e-3, STATIC: 1e-3, "onnxruntime": 8e-3, "openvino": 4e-3})
    assert (
        (a.ratio(STATIC), a.to_peers, b.to_peers) == (2, 0.5, 2)
        and a.first_call == pytest.approx(2)
        and b.first_call is None
    )
    rows = NetworkRows("net", [a, b], 3.0, [1.0, 2.0, 4.0], 13_000_000, [10_000_000])
    assert tables.network_cells(rows) == [
        "net",
        "2",
        "2.0e-04",
        "4.00 (8.00)",
        "1.00 (2.00)",
        "2.00",
        "1.50",
        "3.0",
        "1.50",
        "13.0",
        "1.30",
    ]
    assert open_shapes.failures([rows]) == ["net: off by 2.0e-04 of the largest value"]
    empty = NetworkRows("net", [ShapeRow({"n": 1})])
    assert tables.network_cells(empty)[2:6] == ["nan", "– (–)", "– (–)", "–"]
    stream = StreamRows(
        "net", {"lightnet": [1e-3, 3e-3], "onnxruntime": [2e-3, 2e-3]}, {"lightnet": 5_000_000, "onnxruntime": 0}
    )
    assert tables.stream_rows(stream)[0] == ["net", "lightnet", "2", "2.00", "2.98", "1.49", "5.0"]
    assert open_shapes.failures([DecodeRows("net", tokens={"lightnet": [1], "onnxruntime": [2]})]) == [
        "net: other tokens than the peers'"
    ]


def test_what_is_not_exported_is_said(tmp_path, monkeypatch, capsys) -> None:
    from opening import networks

    monkeypatch.setattr(networks, "FOLDER", tmp_path)
    with pytest.raises(RuntimeError, match="not exported yet"):
        exported(NETWORKS["resnet18"], None)
    with pytest.raises(RuntimeError, match="resnet18: not exported: no torch"):
        (tmp_path / "python").write_text("#!/bin/sh\necho no torch >&2\nexit 3\n")
        (tmp_path / "python").chmod(0o755)
        exported(NETWORKS["resnet18"], str(tmp_path / "python"))
    monkeypatch.setattr(sys, "argv", ["open_shapes.py", "--only", "resnet18", "--quick"])
    assert open_shapes.main() == 1 and "not exported yet" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["open_shapes.py", "--shapes", "0"])
    assert open_shapes.main() == 1 and "--shapes should be positive" in capsys.readouterr().err


def test_every_network_has_something_that_makes_it() -> None:
    """The functions of `modules.py`, which needs torch to be imported."""
    made = ast.parse((ROOT / "tools" / "opening" / "modules.py").read_text("utf-8"))
    names = {f.name for f in made.body if isinstance(f, ast.FunctionDef)}
    assert {n.make for n in NETWORKS.values()} <= names and {n.exporter for n in NETWORKS.values()} == {
        "dynamo",
        "script",
    }
